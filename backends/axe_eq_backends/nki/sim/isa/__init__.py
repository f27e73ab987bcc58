"""Instructions of `nki.isa`: what each reads, checks, computes and takes."""

from __future__ import annotations

from axe_eq_backends.nki.sim.isa import cells, matrix, moves, selects  # noqa: F401
from axe_eq_backends.nki.sim.isa.registry import DIALECTS, INSTRUCTIONS

__all__ = ["DIALECTS", "INSTRUCTIONS"]

"""The array namespace of traced arrays; see `axe_eq.program.array`."""

from __future__ import annotations

from axe_eq.program import array
from axe_eq.program.array import *  # noqa: F403

__all__ = list(array.__all__)

"""Candidates: ways to write one kernel, each with its parameters and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Candidate:
    """One way to write a kernel.

    Attributes:
        parameters: what its schedule writes it by (tile, warps, vectors, ...), and nothing else.
        time_s: estimated seconds.
        costs: named costs with units in their names.
    """

    parameters: Mapping[str, int]
    time_s: float
    costs: Mapping[str, float] = field(default_factory=dict)

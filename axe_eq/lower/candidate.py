"""Candidates: ways to write a kernel, or several in one call, with parameters and costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Joined:
    """The cheapest way to run several kernels in one call.

    Attributes:
        time_s: estimated seconds of the call.
        costs: named costs with units in their names.
        kept: buffer -> the layout near the engines in which its value stays between them.
        parameters: of every kernel, in order.
    """

    time_s: float
    costs: Mapping[str, float]
    kept: Mapping[str, str]
    parameters: tuple[Mapping[str, int], ...]


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

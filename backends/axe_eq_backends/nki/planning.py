"""Plans of whole kernels: checked, dispatched, spread over engines, ordered, placed, priced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from axe_eq.errors import ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.check import RULES, check_capacity
from axe_eq.kernel.dispatch import Planned, dispatch
from axe_eq.target import Target
from axe_eq_backends.nki.families import derivations
from axe_eq_backends.nki.order import busy, filled, instructions, ordered, spread
from axe_eq_backends.nki.place import Places, placed
from axe_eq_backends.nki.unroll import total_ns

# Of what the other engines do beside the busiest one, so much is seen by a guess of the time.
SHARE = 0.05
ROUNDING = 1e-9  # of seconds that are added up in another order


@dataclass(frozen=True)
class Made:
    """A kernel that can be written.

    Attributes:
        planned: its plans.
        places: of its tiles.
        busy: seconds per engine.
    """

    planned: Planned[Any]
    places: Places
    busy: Mapping[str, float]

    @property
    def least_s(self) -> float:
        """Seconds that it takes at least: the busiest engine works so long."""
        return self.planned.target.launch_s + max(self.busy.values())

    @property
    def latency_s(self) -> float:
        """Seconds beside its launch that a kernel takes if it computes nothing: two transfers."""
        return 2 * self.planned.target.limits["dma_latency_ns"] * 1e-9

    @property
    def near_s(self) -> float:
        """About as long: first transfers, the busiest engine's time, and a share of the others'.

        With one copy of what transfers fill, those of a loop wait for its arithmetic.
        """
        dma = self.busy["dma"]
        others = [t for name, t in self.busy.items() if name != "dma"]
        most = max(dma, *others) if self.places.copies["sbuf"] > 1 else dma + max(others)
        return _guess(min(filled(self.planned)[0], most), most, self.busy)

    @cached_property
    def time_s(self) -> float:
        """Seconds, by the timeline that the report of its text shows."""
        return self.planned.target.launch_s + total_ns(self.planned, self.places) * 1e-9

    @property
    def costs(self) -> dict[str, float]:
        """Named costs."""
        engines = ("tensor", "vector", "scalar", "gpsimd", "dma")
        partitions = {m.name: m.extents[0] for m in self.planned.target.memories if m.extents}
        held = {f"{n}_bytes": float(self.places.peaks.get(n, 0) * p) for n, p in partitions.items()}
        return (
            held
            | {f"{n}_s": self.busy.get(n, 0.0) for n in engines}
            | {"latency_s": self.latency_s}
        )


@dataclass(frozen=True)
class Spread:
    """A kernel whose primitives have plans and engines; its order and its places are not chosen.

    Attributes:
        planned: its plans.
    """

    planned: Planned[Any]

    @cached_property
    def least_near_s(self) -> float:
        """What `Made.near_s` is at least: with no transfers first, and copies of what they fill."""
        seconds = busy(self.planned)
        return _guess(0.0, max(seconds.values()), seconds) * (1 - ROUNDING)

    def made(self) -> Made:
        """The kernel ordered and placed.

        Raises:
            ScheduleError: it is too large for a memory.
        """
        planned, target = ordered(self.planned), self.planned.target
        try:
            places = placed(planned.kernel, target)
        except ScheduleError:  # statements that stand earlier may keep more alive
            planned = self.planned
            places = placed(planned.kernel, target)
        return Made(planned, places, busy(planned))


def _guess(first: float, most: float, seconds: Mapping[str, float]) -> float:
    """Seconds: before anything is computed, of the busiest, and a share of the others'."""
    return first + most + SHARE * (sum(seconds.values()) - most)


def plan(kernel: ir.Kernel, target: Target) -> Made:
    """Check a kernel, plan its primitives, choose engines and order, and place its tiles.

    Raises:
        ScheduleError: it breaks a rule of the language, or is too large for a memory or a compiler.
        DispatchError: a primitive that no instruction implements.
    """
    return on_engines(kernel, target).made()


def on_engines(kernel: ir.Kernel, target: Target) -> Spread:
    """Check a kernel, plan its primitives and choose engines.

    Raises:
        ScheduleError: it breaks a rule of the language, or is too large for a compiler.
        DispatchError: a primitive that no instruction implements.
    """
    for rule in RULES:
        if rule is not check_capacity:  # by lifetimes, in `placed`
            rule(kernel, target)
    planned = dispatch(kernel, target, derivations())
    spread(planned)
    most = target.limits["instructions"]
    if (count := instructions(planned)) > most:
        raise ScheduleError(
            f"kernel {kernel.name}", f"unrolls to {count} instructions", f"at most {most}"
        )
    return Spread(planned)

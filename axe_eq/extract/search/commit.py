"""Committing: what extraction takes is built before the search ends with it.

A schedule sees figures of a cone when it says that it can implement it. Here its kernel is built:
lowered, dispatched and written, without a device. A candidate that fails is ruled out with its
reason, the next ones of the same cone are tried, and the search goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from axe_eq.debug import switches
from axe_eq.errors import AxeError, PackError, SearchError, cause, raised_at
from axe_eq.extract.price.priced import Prices
from axe_eq.extract.price.pricer import Price
from axe_eq.extract.search.merge import Group
from axe_eq.schedule.graph import Access, BufferSpec, KernelStep, MoveStep, ScheduleGraph
from axe_eq.target import Target

MOST_ROUNDS = 20
MOST_TRIED = 12  # candidates of one cone that are built in one round


class Builder(Protocol):
    """What an emitter brings so that its kernels can be built before they are committed to."""

    def build(self, step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target) -> object:
        """Everything that emission does for one step; what it returns is not looked at.

        Raises:
            DispatchError, EmitError, ScheduleError: the kernel cannot be made, or is too large.
        """


@dataclass(frozen=True)
class Failure:
    """A kernel that cannot be built as it was priced.

    Attributes:
        name: of the step.
        group: which of the chosen kernels it is; None for a move, which has no alternative.
        reason: why.
    """

    name: str
    group: Group | None
    reason: str


@dataclass
class Kernels:
    """The kernels that were built for one target, remembered by their content.

    Attributes:
        builder: of the target's family; None where nothing is emitted for it.
        target: the machine.
        n_built: kernels built, those that failed included.
        known: content -> why it cannot be built, or None; searches of several programs share it.
        ruled_out: what could not be built, in words: what a search says beside its choice.
    """

    builder: Builder | None
    target: Target
    known: dict[object, str | None] = field(default_factory=dict)
    n_built: int = 0
    ruled_out: list[str] = field(default_factory=list)

    def reason(self, step: KernelStep | MoveStep, graph: ScheduleGraph) -> str | None:
        """Why a step cannot be built; None where it was.

        Raises:
            PackError: somebody's schedule fails, or returns what is no kernel.
        """
        if self.builder is None:
            return None
        key = content(step, graph)
        if key not in self.known:
            self.n_built += 1
            self.known[key] = self._failing(self.builder, step, graph)
        return self.known[key]

    def _failing(
        self, builder: Builder, step: KernelStep | MoveStep, graph: ScheduleGraph
    ) -> str | None:
        try:
            builder.build(step, graph, self.target)
        except PackError:
            raise
        except AxeError as error:
            # Its place is a line of the schedule's own text: nothing to say to who wrote a program.
            return str(type(error)(error.thing, error.wrong, error.expected))
        except Exception as error:
            if switches().check:
                raise
            return f"its lowering fails ({cause(error)}, at {raised_at(error)})"
        return None

    def failures(self, graph: ScheduleGraph, groups: Sequence[Group]) -> list[Failure]:
        """Steps of a schedule that cannot be built.

        Args:
            graph: the schedule.
            groups: its kernels as extraction chose them, in the order of its kernel steps.
        """
        of_kernels: Iterator[Group | None] = iter(groups)
        found = []
        for step in graph.steps:
            if not isinstance(step, KernelStep | MoveStep):
                continue
            group = next(of_kernels) if isinstance(step, KernelStep) else None
            reason = self.reason(step, graph)
            if reason is not None:
                found.append(Failure(step.name, group, reason))
        return found

    def rule_out(self, failures: Sequence[Failure], graph: ScheduleGraph, prices: Prices) -> None:
        """Take what failed out of the search, and the next candidates of its cones that fail too.

        Raises:
            SearchError: a move fails, which has no alternative.
        """
        steps = {step.name: step for step in graph.kernels}
        for failure in failures:
            if failure.group is None:
                raise SearchError(
                    f"step {failure.name}", f"cannot be written: {failure.reason}",
                    "layouts that a kernel of the target copies between",
                )  # fmt: skip
            self._try(steps[failure.name], failure.group, failure.reason, graph, prices)

    def _try(
        self, step: KernelStep, group: Group, reason: str, graph: ScheduleGraph, prices: Prices
    ) -> None:
        self.ruled_out.append(f"{step.schedule} for {_computed(step)}: {reason}")
        layouts, price = [w.layout for w in step.writes], group.price
        for _ in range(MOST_TRIED):
            price = prices.rule_out(group.roots, group.picks, layouts, price.way, reason)
            if price.time_s == float("inf"):
                return
            tried = self.reason(as_priced(step, price), graph)
            if tried is None:
                return
            reason = tried


def as_priced(step: KernelStep, price: Price) -> KernelStep:
    """The same cone by another candidate."""
    return replace(
        step, schedule=price.schedule, row=price.row, parameters=dict(price.parameters),
        time_s=price.time_s, costs=dict(price.costs), rejected=dict(price.rejected),
    )  # fmt: skip


def _computed(step: KernelStep) -> str:
    """What a kernel writes, from what: its name says what it computes on the way."""
    words = step.name.partition("_")[2]
    return f"{words} of {', '.join(step.nodes[root].type for root in step.roots)}"


def _meets(buffer: BufferSpec) -> tuple[bool, bool, int]:
    """Whether devices wait for a buffer, or are told of it, and in which chunks."""
    return bool(buffer.after), bool(buffer.before), buffer.chunk


def content(step: KernelStep | MoveStep, graph: ScheduleGraph) -> object:
    """What a step computes and how, whatever it and its buffers are called."""
    number: dict[str, int] = {}

    def seen(accesses: Sequence[Access]) -> tuple[Any, ...]:
        return tuple(
            (
                number.setdefault(a.buffer, len(number)), a.layout, graph.buffers[a.buffer].type,
                number.get(graph.buffers[a.buffer].over, -1), _meets(graph.buffers[a.buffer]),
            )
            for a in accesses
        )  # fmt: skip

    accesses = seen(step.reads), seen(step.writes)
    if isinstance(step, MoveStep):
        return accesses
    loops, parameters = tuple(step.loops.items()), tuple(step.parameters.items())
    how = step.schedule, step.row, parameters, step.rounds
    return accesses, step.nodes, step.roots, loops, how

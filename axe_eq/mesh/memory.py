"""Memory of a mesh plan: what every rank holds at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from axe_eq.mesh.steps import ExchangeStep, LocalStep, reads_of, writes_of
from axe_eq.schedule.memory import plan as plan_memory

if TYPE_CHECKING:
    from axe_eq.mesh.plan import MeshPlan


def _home(plan: MeshPlan, name: str) -> str:
    """The buffer whose memory a buffer takes, itself or that of what is merged with it."""
    return plan.root(plan.under.get(name, name))


def last_uses(plan: MeshPlan) -> dict[str, int]:
    """Buffer -> number of the last step that uses its memory; outputs stay to the end."""
    last: dict[str, int] = {}
    for number, step in enumerate(plan.steps):
        for name in (*reads_of(step), *writes_of(step)):
            last[_home(plan, name)] = number
    last |= dict.fromkeys(map(plan.root, (*plan.inputs, *plan.outputs)), len(plan.steps))
    return {n: last[home] for n in plan.buffers if (home := _home(plan, n)) in last}


def peaks(plan: MeshPlan) -> tuple[int, ...]:
    """Per rank the most bytes that are alive at once, also within a step."""
    last = last_uses(plan)
    sizes = {n: plan.side(n).n_elements * b.value_type.itemsize for n, b in plan.buffers.items()}
    held = {n: set(plan.side(n).devices.tolist()) for n in plan.buffers}
    staged = [_staged(step, plan.n_ranks) for step in plan.steps]
    found = []
    for rank in range(plan.n_ranks):
        mine = {n: size if rank in held[n] else 0 for n, size in sizes.items()}
        alive = set(map(plan.root, plan.inputs))
        peak = sum(mine[n] for n in alive)
        for number, step in enumerate(plan.steps):
            alive |= {_home(plan, n) for n in writes_of(step)}
            peak = max(peak, sum(mine[n] for n in alive) + staged[number][rank])
            alive -= {n for n in alive if last.get(n, number) <= number}
        found.append(peak)
    return tuple(found)


def _staged(step: LocalStep | ExchangeStep, n_ranks: int) -> list[int]:
    """Bytes that every rank needs in a step alone.

    Temporaries of what it computes, or packed messages that it sends and receives.
    """
    if isinstance(step, LocalStep):
        arena = plan_memory(step.graph).arena_bytes
        return [arena if rank in step.ranks else 0 for rank in range(n_ranks)]
    sent, received = step.messages.sent(n_ranks), step.messages.received(n_ranks)
    return [a + b for a, b in zip(sent, received, strict=True)]

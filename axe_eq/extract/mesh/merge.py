"""Results of local programs that lie where an exchange brought what they are merged with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from axe_eq.mesh.steps import local_type
from axe_eq.schedule.digits import digits
from axe_eq.schedule.graph import BufferSpec, MoveStep, SpmdStep, Step
from axe_eq.schedule.merging import Merging, merged


def merge(
    steps: list[Step], buffers: dict[str, BufferSpec], outputs: Collection[str], mesh: str,
    merging: Merging,
) -> None:  # fmt: skip
    """Let memory merge results with what has arrived where they are to lie, where that pays.

    Args:
        steps: of all ranks, which are changed.
        buffers: theirs, likewise.
        outputs: names of the program's.
        mesh: text.
        merging: what a kernel takes whose result memory merges.
    """
    read = Counter(a.buffer for s in steps for a in s.reads)
    held = {b.within for b in buffers.values()} | {*outputs}
    brought = {
        a.buffer for s in steps if isinstance(s, MoveStep) and s.n_bytes for a in s.writes
        if read[a.buffer] == 1 and a.buffer not in held and not buffers[a.buffer].within
    }  # fmt: skip
    for number, step in enumerate(steps):
        if not isinstance(step, SpmdStep):
            continue
        given, made = (
            dict(zip(own, (a.buffer for a in of), strict=True))
            for own, of in ((step.graph.inputs, step.reads), (step.graph.outputs, step.writes))
        )
        graph = merged(step.graph, {n for n in given if given[n] in brought}, merging)
        over = {made[n]: given[b] for n in made if (b := graph.buffers[n].over)}
        pairs = [(buffers[name], buffers[below]) for name, below in over.items()]
        if over and all(_may_lie_over(*pair, mesh) for pair in pairs):
            steps[number] = replace(step, graph=graph, time_s=graph.time_s)
            buffers |= {b.name: replace(b, over=below.name) for b, below in pairs}


def _may_lie_over(own: BufferSpec, below: BufferSpec, mesh: str) -> bool:
    """Whether a result may take the memory of what has arrived: both are dense, of one size."""
    one, other = (local_type(b, mesh) for b in (own, below))
    same = (one.dtype, one.size) == (other.dtype, other.size)
    return same and not own.across and (not own.within or digits(own).is_dense)

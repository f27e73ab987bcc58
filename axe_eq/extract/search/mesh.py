"""Extraction on a mesh: where every value lives, and what moves it there.

A move is implicit: any placement of a value can be had from any other at the price of the bytes
that boxes do not share. The cheapest way to every placement is found by relaxation over whole cost
sets, so that a value needed twice is paid once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from axe_eq.errors import SearchError
from axe_eq.extract.read.placements import MeshForest, Site, Way, link_seconds
from axe_eq.extract.read.trees import Tree, trees
from axe_eq.program.ops import MONOIDS
from axe_eq.program.signature import signature
from axe_eq.program.types import ValueType
from axe_eq.schedule import shard
from axe_eq.schedule.graph import (
    Access,
    BufferSpec,
    CollectiveStep,
    KernelStep,
    MoveStep,
    ScheduleGraph,
    Step,
    TileNode,
)  # fmt: skip
from axe_eq.target import Target

Costs = dict[int, Way]


class Selection:
    """A value that is made by moving others through selectors, into one cut.

    Attributes:
        leaves: value classes of what is read.
        copying_s: what a device takes to copy its part.
    """

    def __init__(self, forest: MeshForest, tree: Tree, goal: tuple[int, Site], mesh: str,
                 target: Target) -> None:  # fmt: skip
        self.forest, self.tree, self.goal = forest, tree, goal
        self.mesh, self.target = mesh, target
        self.leaves = tree.leaves
        local = shard.local_type(goal[1].type, goal[1].box, mesh).n_bytes
        self.copying_s = 2 * local / target.memories[0].bytes_per_s + target.launch_s

    def way(self, total: Mapping[int, float]) -> Way | None:
        """The cheapest way, given what it takes to have every placed class.

        None where a leaf cannot be had, or where the goal is had for no more already.
        """
        placed, site = self.goal
        chosen = []
        for number in range(len(self.leaves)):
            found = self._cheapest(number, total)
            if found is None:
                return None
            chosen.append(found)
        n_bytes = sum(n for _, _, n in chosen)
        crossing = link_seconds(n_bytes, self.mesh, self.target) if n_bytes else 0.0
        return Way(
            "move", placed, tuple(p for p, _, _ in chosen), crossing + self.copying_s, n_bytes, (),
            site, tuple(held for _, held, _ in chosen), self.tree.nodes,
        )  # fmt: skip

    def _cheapest(self, number: int, total: Mapping[int, float]) -> tuple[int, Site, int] | None:
        """A leaf's placed class, what it holds, and the bytes that cross links from there.

        Bytes are counted only from where a leaf could be cheapest.
        """
        placed, site = self.goal
        candidates = sorted((
            (total[p], p, held.box, held)
            for p in self.forest.by_value.get(self.leaves[number], ())
            if p in total and p != placed
            for held in self.forest.sites[p]
            if held.value == self.leaves[number]
        ), key=lambda candidate: candidate[:3])  # fmt: skip
        bar = total.get(placed, math.inf) - self.copying_s
        best: tuple[float, int, Site, int] | None = None
        for have, p, box, held in candidates:
            if have >= (bar if best is None else best[0]):
                break
            n = self.tree.bytes(number, box, site.box, self.mesh)
            seconds = have + (link_seconds(n, self.mesh, self.target) if n else 0.0)
            if best is None or seconds < best[0]:
                best = seconds, p, held, n
        return None if best is None else best[1:]


def selections(forest: MeshForest, mesh: str, target: Target) -> list[Selection]:
    """Every placement of a value that selectors make, by every tree of them.

    Where the same memory holds what would be read too, as that of a split, it is moved there as it
    is.
    """
    return [
        Selection(forest, tree, (placed, site), mesh, target)
        for value in forest.selected
        for tree in trees(value, forest.selected, forest.types)
        for placed in forest.by_value.get(value, ())
        for site in forest.sites[placed]
        if site.value == value and not _holds(forest, placed, tree.leaves)
    ]


def _holds(forest: MeshForest, placed: int, leaves: Sequence[int]) -> bool:
    """Whether a placed class holds the one leaf."""
    return len(leaves) == 1 and any(s.value == leaves[0] for s in forest.sites[placed])


class Relaxation:
    """Cheapest cost set of every placed class."""

    def __init__(self, forest: MeshForest, mesh: str, target: Target) -> None:
        self.forest, self.mesh, self.target = forest, mesh, target
        self.best: dict[int, Costs] = {}
        self.total: dict[int, float] = {}
        self._made: dict[int, float] = {}
        self._users: dict[int, list[Way]] = {}
        for way in forest.ways:
            for need in set(way.needs):
                self._users.setdefault(need, []).append(way)
        self._selections: dict[int, list[Selection]] = {}
        alone = []
        for selection in selections(forest, mesh, target):
            for leaf in set(selection.leaves):
                self._selections.setdefault(leaf, []).append(selection)
            if not selection.leaves:
                alone.append(selection.way({}))
        self._queue: deque[Way] = deque(
            w for w in (*forest.ways, *filter(None, alone)) if not w.needs
        )

    def run(self) -> None:
        """Relax until nothing improves; costs only fall and are bounded, so this ends."""
        while self._queue:
            self._try(self._queue.popleft())

    def _try(self, way: Way) -> None:
        if any(n not in self.best for n in way.needs):
            return
        costs: Costs = {}
        for need in way.needs:
            costs |= self.best[need]
        if way.out in costs:
            return
        costs[way.out] = way
        total = sum(w.seconds for w in costs.values())
        if total >= self._made.get(way.out, math.inf) - 1e-12:
            return
        self._made[way.out] = total
        self._improve(way.out, costs, total)
        for move in self._moves(way.out):
            if move.out not in costs:
                cost = total + move.seconds
                if cost < self.total.get(move.out, math.inf) - 1e-12:
                    self._improve(move.out, {**costs, move.out: move}, cost)

    def _improve(self, placed: int, costs: Costs, total: float) -> None:
        if total < self.total.get(placed, math.inf) - 1e-12:
            self.best[placed], self.total[placed] = costs, total
            self._queue.extend(self._users.get(placed, ()))
            for held in self.forest.sites.get(placed, ()):
                for selection in self._selections.get(held.value, ()):
                    if (way := selection.way(self.total)) is not None:
                        self._queue.append(way)

    def _moves(self, source: int) -> Iterable[Way]:
        """Moves from a placement to every other demanded placement of the same value."""
        for held in self.forest.sites.get(source, ()):
            for other in self.forest.by_value[held.value]:
                goal = next((s for s in self.forest.sites[other] if s.value == held.value), None)
                if other == source or goal is None:
                    continue
                n_bytes = shard.moved_bytes(str(held.type), held.box, goal.box, self.mesh)
                seconds = link_seconds(n_bytes, self.mesh, self.target) if n_bytes else 0.0
                yield Way("move", other, (source,), seconds, n_bytes, (held.box,), goal)


@dataclass(frozen=True)
class MeshPlan:
    """The chosen way of every placement needed, and the placement of every output."""

    ways: Costs
    roots: tuple[int, ...]


def plan_mesh(forest: MeshForest, mesh: str, target: Target) -> MeshPlan:
    """The chosen ways, for all outputs together.

    Raises:
        SearchError: an output cannot be had on the mesh.
    """
    relaxation = Relaxation(forest, mesh, target)
    relaxation.run()
    chosen: Costs = {}
    roots = []
    for number, places in enumerate(forest.roots):
        reached = [p for p in places if p in relaxation.best]
        if not reached:
            raise SearchError(
                f"output {number}", "cannot be computed on the mesh", "the laws of pack 'sharding'"
            )
        roots.append(min(reached, key=lambda p: (relaxation.total[p], p)))
        chosen |= relaxation.best[roots[-1]]
    return MeshPlan(chosen, tuple(roots))


def build_mesh(
    plan: MeshPlan,
    mesh: str,
    target: Target,
    inputs: Sequence[tuple[str, ValueType, str]],
    layouts: Mapping[str, str],
    outputs: Sequence[ValueType],
) -> ScheduleGraph:
    """The schedule graph of the chosen ways: one buffer per placement, layouts with device axes.

    Args:
        plan: the chosen ways.
        mesh: mesh text.
        target: the machine.
        inputs: name, type and role of inputs and constants.
        layouts: how these arrive.
        outputs: types of the outputs, of which buffers may hold reshapes.
    """
    chosen, roots = plan.ways, plan.roots
    names = {p: w.detail[0] for p, w in chosen.items() if w.kind == "buffer"}
    for placed in chosen:
        names.setdefault(placed, f"t{len(names)}")
    buffers = {n: BufferSpec(n, str(t), layouts[n], role) for n, t, role in inputs}
    for placed, way in chosen.items():
        if way.kind != "buffer":
            role = "output" if placed in roots else "temporary"
            layout = shard.layout_text(str(way.site.type), way.site.box, mesh)
            buffers[names[placed]] = BufferSpec(names[placed], str(way.site.type), layout, role)
    steps = [
        _step(number, way, names, buffers, mesh)
        for number, way in enumerate(_in_order(chosen, roots))
    ]
    sizes = {name: size for name, (size, _) in shard.mesh_axes(mesh).items()}
    held = [buffers[names[r]].value_type for r in roots]
    views = tuple(shard.reshape_texts(h.shape, t.shape) for h, t in zip(held, outputs, strict=True))
    return ScheduleGraph(
        target.name, buffers, tuple(steps), tuple(n for n, _, _ in inputs),
        tuple(names[r] for r in roots), {}, sizes, sum(s.time_s for s in steps), views,
    )  # fmt: skip


def _in_order(chosen: Costs, roots: Sequence[int]) -> list[Way]:
    order: list[Way] = []
    done: set[int] = set()
    stack = [(r, False) for r in reversed(roots)]
    while stack:
        placed, ready = stack.pop()
        if placed in done:
            continue
        if ready:
            done.add(placed)
            if chosen[placed].kind != "buffer":
                order.append(chosen[placed])
            continue
        stack.append((placed, True))
        stack.extend((n, False) for n in reversed(chosen[placed].needs))
    return order


def _step(
    number: int,
    way: Way,
    names: Mapping[int, str],
    buffers: Mapping[str, BufferSpec],
    mesh: str,
) -> Step:
    def access(placed: int) -> Access:
        return Access(names[placed], buffers[names[placed]].layout)

    reads = tuple(access(n) for n in way.needs)
    writes = (access(way.out),)
    if way.kind == "move":
        name = f"m{number}_{'select' if way.nodes else 'move'}"
        return MoveStep(name, reads, writes, way.n_bytes, way.seconds, nodes=way.nodes)
    if way.kind == "collective":
        sig, axis = way.detail
        scatters = any(axis in axes for axes in shard.entries(way.site.box))
        kind = "reduce_scatter" if scatters else "all_reduce"
        monoid = MONOIDS[signature(sig).monoid].name
        return CollectiveStep(
            f"c{number}_{kind}", kind, monoid, (axis,), reads, writes, way.n_bytes, way.seconds
        )
    return _local_kernel(number, way, reads, writes, mesh)


def _local_kernel(
    number: int, way: Way, reads: tuple[Access, ...], writes: tuple[Access, ...], mesh: str
) -> KernelStep:
    """The operator on every device's own part, whole."""
    kind, text, cell = way.detail
    nodes = [
        TileNode(
            "load", "", "", _whole(s.type.rank), str(shard.local_type(s.type, s.box, mesh)), (), i
        )
        for i, s in enumerate(way.given)
    ]
    out = str(shard.local_type(way.site.type, way.site.box, mesh))
    box = _whole(way.site.type.rank)
    nodes.append(TileNode(kind, text, cell, box, out, tuple(range(len(nodes)))))
    name = f"k{number}_{(cell or kind).partition(' ')[0]}"
    roots = (len(nodes) - 1,)
    return KernelStep(name, tuple(nodes), roots, reads, writes, {}, "spmd", time_s=way.seconds)


def _whole(rank: int) -> str:
    return " ".join("*" for _ in range(rank))

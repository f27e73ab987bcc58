"""Extraction on a mesh: where every value lives, and what moves it there.

Costs are seconds: local work by the target's roofline, bytes over the links by rate and latency. A
move is
implicit: any placement of a value can be had from any other at the price of the bytes that boxes do
    not share.
The cheapest way to every placement is found by relaxation over whole cost sets, so that a value
needed twice is paid once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from axe_eq.egraph.session import Session
from axe_eq.errors import SearchError
from axe_eq.extract.read.forest import Reader
from axe_eq.extract.read.trees import Tree, trees
from axe_eq.program.node import op_type, scan_type, sel_type
from axe_eq.program.ops import MONOIDS
from axe_eq.program.signature import signature
from axe_eq.program.types import ValueType, value_type
from axe_eq.rule.term import Term
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
from axe_eq.schedule.terms import PLACED
from axe_eq.target import Target


@dataclass(frozen=True)
class Site:
    """A placement of a value on the mesh: value class, cut, type."""

    value: int
    box: str
    type: ValueType


@dataclass(frozen=True, eq=False)
class Way:
    """One way to a placement.

    Attributes:
        kind: "buffer", "spmd", "collective" or "move".
        out: placed class it answers.
        needs: placed classes.
        seconds: its own cost.
        n_bytes: bytes over links, all devices together.
        detail: input name, (kind, text, cell) of a tile node, or (signature, axis).
        site: where it puts the value.
        given: for "spmd", where the operands are.
        nodes: for a "move" through selectors, loads and these.
    """

    kind: str
    out: int
    needs: tuple[int, ...]
    seconds: float
    n_bytes: int
    detail: tuple[str, ...]
    site: Site
    given: tuple[Site, ...] = ()
    nodes: tuple[TileNode, ...] = ()


Costs = dict[int, Way]


@dataclass
class MeshForest:
    """Placed classes on a mesh.

    Attributes:
        sites: placed class -> what it holds, and how it is cut.
        ways: to come to placed classes, all but moves.
        by_value: value class -> placed classes that hold it.
        selected: value class -> selectors that it is the value of, with their operands' classes.
        types: of value classes.
        roots: per output, the placed classes that will do.
    """

    sites: dict[int, list[Site]] = field(default_factory=dict)
    ways: list[Way] = field(default_factory=list)
    by_value: dict[int, list[int]] = field(default_factory=dict)
    selected: dict[int, list[tuple[str, tuple[int, ...]]]] = field(default_factory=dict)
    types: dict[int, ValueType] = field(default_factory=dict)
    roots: list[list[int]] = field(default_factory=list)


class _MeshReader(Reader):
    """A reader that knows lists of placed classes."""

    @cached_property
    def lists(self) -> dict[Any, Any]:
        """List -> its head and its rest."""
        return {row.output: row.inputs for row in self.table("PCons")}

    @cached_property
    def ends(self) -> set[Any]:
        """Lists of nothing."""
        return {row.output for row in self.table("PNil")}


def read_mesh(session: Session, mesh: str, target: Target, requests: Sequence[Term]) -> MeshForest:
    """Read a session saturated with the sharding laws.

    Args:
        session: after the demand phase.
        mesh: mesh text.
        target: prices local work and links.
        requests: `shard` terms (that cut) or `spread` terms (any cut), one per output.
    """
    reader = _MeshReader(session)
    types = {
        reader.id("Value", r.inputs[0]): value_type(reader.text(r.output))
        for r in reader.table("type")
    }
    forest = MeshForest(types=types)
    for row in reader.table("shard"):
        value, box = reader.id("Value", row.inputs[0]), reader.text(row.inputs[1])
        placed = reader.id("Placed", row.output)
        forest.sites.setdefault(placed, []).append(Site(value, box, types[value]))
        forest.by_value.setdefault(value, []).append(placed)
    _read_selected(reader, forest)
    _read_buffers(reader, forest)
    _read_spmd(reader, forest, mesh, target)
    _read_moved(reader, forest, mesh, target)
    _read_collectives(reader, forest, mesh, target)
    for request in requests:
        value = reader.id("Value", session.class_of(request.args[0]))
        anywhere = forest.by_value.get(value, [])
        one = (
            [reader.id("Placed", session.class_of(request))] if request.sort == PLACED else anywhere
        )
        forest.roots.append(one)
    return forest


def _read_buffers(reader: Reader, forest: MeshForest) -> None:
    for row in reader.table("Buffer"):
        placed = reader.id("Placed", row.output)
        site = next(iter(forest.sites.get(placed, ())), None)
        if site is not None:
            name = reader.text(row.inputs[0])
            forest.ways.append(Way("buffer", placed, (), 0.0, 0, (name,), site))


def _read_selected(reader: Reader, forest: MeshForest) -> None:
    lists = {row.output: row.inputs for row in reader.table("SCons")}
    ends = {row.output for row in reader.table("SNil")}
    of = {row.output: reader.id("Value", row.inputs[0]) for row in reader.table("spread")}
    for row in reader.table("Through"):
        operands, rest = [], row.inputs[1]
        while rest in lists:
            head, rest = lists[rest]
            operands.append(of.get(head))
        value = of.get(row.output)
        known = tuple(o for o in operands if o is not None)
        if value is not None and rest in ends and len(known) == len(operands):
            found = forest.selected.setdefault(value, [])
            found.append((reader.text(row.inputs[0]), known))


def _read_spmd(reader: _MeshReader, forest: MeshForest, mesh: str, target: Target) -> None:
    """Block operators that every device applies to its parts."""
    for row in reader.table("Spmd"):
        sig, cell, types, box = (reader.text(v) for v in row.inputs[:4])
        given = tuple(value_type(t) for t in types.split(";")[:-1])
        cuts = shard.operand_boxes(sig, types, box, mesh)
        parts = _Local(op_type(sig, cell, given), box, given, cuts, ("cell", sig, cell))
        _read_local(reader, forest, row, parts, mesh, target)


def _read_moved(reader: _MeshReader, forest: MeshForest, mesh: str, target: Target) -> None:
    """Selectors and scans of parts."""
    for table, kind, typed, boxes in (
        ("SpmdSel", "gather", sel_type, shard.moved_boxes),
        ("SpmdScan", "scan", scan_type, shard.scanned_boxes),
    ):
        for row in reader.table(table):
            text, types, box = (reader.text(v) for v in row.inputs[:3])
            given = tuple(value_type(t) for t in types.split(";")[:-1])
            cuts = boxes(text, types, box, mesh)
            parts = _Local(typed(text, given), box, given, cuts, (kind, text, ""))
            _read_local(reader, forest, row, parts, mesh, target)


@dataclass(frozen=True)
class _Local:
    """An operator on parts: its type and cut, those of its operands, and its node."""

    type: ValueType
    box: str
    given: tuple[ValueType, ...]
    cuts: tuple[str, ...] | None
    node: tuple[str, str, str]


def _read_local(
    reader: _MeshReader, forest: MeshForest, row: Any, of: _Local, mesh: str, target: Target
) -> None:
    needs = _placed_list(reader, row.inputs[-1])
    if needs is None:  # a limit stopped the search before all operands were demanded
        return
    placed = reader.id("Placed", row.output)
    site = _site(forest, placed, of.type, of.box)
    operands = zip(needs, of.given, of.cuts or (), strict=True)
    found = [_site(forest, n, t, b) for n, t, b in operands]
    sites = tuple(s for s in found if s is not None)
    if site is None or len(sites) < len(found):
        return
    local = [shard.local_type(s.type, s.box, mesh) for s in sites]
    kind, text, _ = of.node
    sig = text if kind == "cell" else ""
    seconds = _local_seconds(sig, local, shard.local_type(site.type, of.box, mesh), target)
    forest.ways.append(Way("spmd", placed, tuple(needs), seconds, 0, of.node, site, sites))


def _placed_list(reader: _MeshReader, rest: Any) -> list[int] | None:
    """The placed classes of a list; None where its end is a request that nothing answered."""
    found = []
    while rest in reader.lists:
        head, rest = reader.lists[rest]
        found.append(reader.id("Placed", head))
    return found if rest in reader.ends else None


def _site(forest: MeshForest, placed: int, type: ValueType, box: str) -> Site | None:
    """Where a placed class holds a value of this type in this cut: it may hold its reshapes too."""
    sites = forest.sites.get(placed, ())
    return next((s for s in sites if s.type == type and s.box == box), None)


def _local_seconds(sig: str, given: Sequence[ValueType], out: ValueType, target: Target) -> float:
    """Roofline of one operator on one device: matrix rate for products of two, else plain.

    One without a signature moves, or takes one step per element.
    """
    traffic = sum(t.n_bytes for t in (*given, out)) / target.memories[0].bytes_per_s
    if not sig:
        return target.launch_s + max(out.size / target.vector_flops_per_s, traffic)
    parsed = signature(sig)
    space = math.prod(parsed.extents([t.shape for t in given]))
    rows = [r for r in target.rows("gemm") if any(out.dtype in d for d in r.dtypes)]
    contracts = parsed.n_reduced > 0 and len(given) > 1
    rate = max((r.flops_per_s for r in rows), default=target.vector_flops_per_s)
    work = 2.0 * space / (rate if contracts else target.vector_flops_per_s)
    return target.launch_s + max(work, traffic)


def _read_collectives(reader: Reader, forest: MeshForest, mesh: str, target: Target) -> None:
    for row in reader.table("Collective"):
        placed, source = reader.id("Placed", row.output), reader.id("Placed", row.inputs[0])
        type_, sig, axis, box = (reader.text(v) for v in row.inputs[1:5])
        whole = value_type(type_)
        site = _site(forest, placed, ValueType(whole.dtype, whole.shape[1:]), box)
        partial = next(
            (
                s
                for s in forest.sites.get(source, ())
                if s.type == whole and shard.entries(s.box)[0] == (axis,)
            ),
            None,
        )
        if site is None or partial is None:
            continue
        scatters = any(axis in axes for axes in shard.entries(box))
        n_bytes = shard.collective_bytes(partial.type, partial.box, axis, scatters, mesh)
        steps = 1 if scatters else 2  # peers exchange directly, all at once
        seconds = link_seconds(n_bytes, mesh, target, steps)
        forest.ways.append(
            Way("collective", placed, (source,), seconds, n_bytes, (sig, axis), site)
        )


def link_seconds(n_bytes: int, mesh: str, target: Target, steps: int = 1) -> float:
    """Time of a transfer that all devices share evenly: latency per step, then rate.

    Raises:
        SearchError: the target has no links.
    """
    if not target.links:
        raise SearchError(
            f"target {target.name!r}", "has no links to other devices", "a target with links"
        )
    link = target.links[0]
    return link.latency_s * steps + n_bytes / shard.n_devices(mesh) / link.bytes_per_s


class Selection:
    """A value that is made by moving others through selectors, into one cut.

    Attributes:
        leaves: value classes of what is read.
    """

    def __init__(self, forest: MeshForest, tree: Tree, goal: tuple[int, Site], mesh: str,
                 target: Target) -> None:  # fmt: skip
        self.forest, self.tree, self.goal = forest, tree, goal
        self.mesh, self.target = mesh, target
        self.leaves = tree.leaves

    def way(self, total: Mapping[int, float]) -> Way | None:
        """The cheapest way, given what it takes to have every placed class; None where none is."""
        placed, site = self.goal
        chosen: list[tuple[int, Site, int]] = []
        for number, value in enumerate(self.leaves):
            found = [
                (total[p] + link_seconds(n, self.mesh, self.target) if n else total[p], p, held, n)
                for p in self.forest.by_value.get(value, ())
                if p in total and p != placed
                for held in self.forest.sites[p]
                if held.value == value
                for n in [self.tree.bytes(number, held.box, site.box, self.mesh)]
            ]
            if not found:
                return None
            _, p, held, n = min(found, key=lambda f: (f[0], f[1]))
            chosen.append((p, held, n))
        n_bytes = sum(n for _, _, n in chosen)
        local = shard.local_type(site.type, site.box, self.mesh).n_bytes
        copying = 2 * local / self.target.memories[0].bytes_per_s + self.target.launch_s
        crossing = link_seconds(n_bytes, self.mesh, self.target) if n_bytes else 0.0
        return Way(
            "move", placed, tuple(p for p, _, _ in chosen), crossing + copying, n_bytes, (), site,
            tuple(held for _, held, _ in chosen), self.tree.nodes,
        )  # fmt: skip


def selections(forest: MeshForest, mesh: str, target: Target) -> list[Selection]:
    """Every placement of a value that selectors make, by every tree of them."""
    return [
        Selection(forest, tree, (placed, site), mesh, target)
        for value in forest.selected
        for tree in trees(value, forest.selected, forest.types)
        for placed in forest.by_value.get(value, ())
        for site in forest.sites[placed]
        if site.value == value
    ]


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
        self._queue: deque[Way] = deque(w for w in (*forest.ways, *filter(None, alone)) if not w.needs)

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
    return KernelStep(
        f"k{number}_{(cell or kind).partition(' ')[0]}", tuple(nodes), (len(nodes) - 1,), reads, writes, {},
        "spmd", time_s=way.seconds,
    )  # fmt: skip


def _whole(rank: int) -> str:
    return " ".join("*" for _ in range(rank))

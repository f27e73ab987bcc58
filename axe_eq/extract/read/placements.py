"""An e-graph that was saturated with the sharding laws, as data: placements and ways to them.

Costs are seconds: local work by the target's roofline, bytes over the links by rate and latency.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from axe_eq.egraph.session import Session
from axe_eq.errors import SearchError
from axe_eq.extract.read.forest import Reader
from axe_eq.program.node import op_type, scan_type, sel_type
from axe_eq.program.signature import signature
from axe_eq.program.types import ValueType, value_type
from axe_eq.rule.term import Term
from axe_eq.schedule import shard
from axe_eq.schedule.graph import TileNode
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
    nothing = {row.output for row in reader.table("ANil")}
    ends = {row.output for row in reader.table("spreads") if row.inputs[0] in nothing}
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

"""The saturated e-graph as plain Python: placed classes, tile classes and their alternatives.

Classes get small integers in a deterministic order. Everything that pricing needs of one
alternative is computed here once; nothing here chooses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from axe_eq.egraph.session import Session
from axe_eq.errors import ScheduleError
from axe_eq.extract.read.order import admissible
from axe_eq.program.ops import CELLS, MONOIDS, Cell, scan, selector, split_text
from axe_eq.program.places import Selecting, selecting
from axe_eq.program.signature import signature
from axe_eq.program.terms import OPERATORS, Cons, In, Op, Sel
from axe_eq.program.types import DTYPES, ValueType, value_type
from axe_eq.rule.term import Symbol, Term
from axe_eq.schedule import box as boxes
from axe_eq.schedule.views import COPY, view_layout
from axe_eq.walk import circles

Views = Mapping[int, Sequence[tuple[int, str]]]
LOAD, CELL, GATHER, SCAN = "load", "cell", "gather", "scan"


@dataclass(frozen=True)
class Choice:
    """One way to get a tile.

    Attributes:
        kind: "load", "cell", "gather" or "scan".
        text: signature, selector or scan text ("" for loads).
        cell: cell text ("" otherwise).
        children: tile classes of the operands.
        source: placed class that is loaded, -1 otherwise.
        layout: the layout of a load in that memory, "" otherwise.
        product: floating operations of sums of products, over the whole index space.
        vector: other floating operations, over the whole index space.
        dtype: element type the products multiply, the wider one of two; where weights of a
            structured monoid are made between them, that of the values.
        structured: reduces by a structured monoid.
        reduces: reduces at least one dim.
        inside: letters of the tile and its operands, sorted, as one text.
        selects: what a selector does with its operands; None where it is none.
    """

    kind: str
    text: str
    cell: str
    children: tuple[int, ...]
    source: int = -1
    layout: str = ""
    product: float = 0.0
    vector: float = 0.0
    dtype: str = ""
    structured: bool = False
    reduces: bool = False
    inside: str = ""
    selects: Selecting | None = field(default=None, compare=False)


@dataclass
class TileClass:
    """A box of a value inside a kernel, and the ways to get it.

    Attributes:
        value: value class.
        box: box text.
        type: type of the value.
        letters: loop letters of the box.
        extents: letter -> extent of the dim it runs over.
        star: elements of the dims that are whole.
        key: the letters, sorted, as one text.
        streams: a streaming letter is among them.
        n_bytes: bytes of the whole value.
        compute: alternatives that compute it.
        loads: alternatives that load it.
        known: figures of it that were worked out before, see `cone.summarise`.
    """

    value: int
    box: str
    type: ValueType
    letters: frozenset[str]
    extents: dict[str, int]
    star: int
    key: str
    streams: bool
    n_bytes: int
    compute: list[Choice] = field(default_factory=list)
    loads: list[Choice] = field(default_factory=list)
    known: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass
class PlacedClass:
    """A value materialised in a layout, and the ways to get it there.

    Attributes:
        requests: (value class, layout text) pairs that this class answers.
        kernels: root tile classes with the layout they store in.
        buffers: (input name, layout) where it is an input as it arrives.
        moves: (source placed class, layout from, layout to).
    """

    requests: list[tuple[int, str]] = field(default_factory=list)
    kernels: list[int] = field(default_factory=list)
    buffers: list[tuple[str, str]] = field(default_factory=list)
    moves: list[tuple[int, str, str]] = field(default_factory=list)


@dataclass
class Forest:
    """All placed and tile classes of a session.

    Attributes:
        types: value class -> type.
        tiles: tile classes.
        placed: placed classes.
        roots: placed class of every program output, in order.
        users: placed class -> tile classes that can load it.
        views: value class -> (value class, selector text) pairs that keep the row-major order.
        parts: value class -> (value class, text of a view of it) pairs that do not; the text is ""
            where both values are alike.
        inputs: input name -> value class.
        names: value class -> what the program's text calls it, where the program has it.
        root_values: value class of every program output, in order.
    """

    types: dict[int, ValueType]
    tiles: list[TileClass]
    placed: list[PlacedClass]
    roots: list[int]
    users: dict[int, list[int]]
    views: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    root_values: list[int] = field(default_factory=list)
    parts: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    inputs: dict[str, int] = field(default_factory=dict)

    def type_of(self, placed: int) -> ValueType:
        """Type of the value of a placed class (of its first request)."""
        return self.types[self.placed[placed].requests[0][0]]

    def is_named(self, placed: int) -> bool:
        """Whether the program's text has the value of a placed class."""
        return any(v in self.names for v, _ in self.placed[placed].requests)

    def label(self, placed: int) -> str:
        """What the program's text calls the value of a placed class, with its type.

        A value that is none of the program's, which a law made on the way, has a number of its own.
        A copy of an input has the input's name, whatever reshapes of it are read.
        """
        named = [v for v, _ in self.placed[placed].requests if v in self.names]
        given = self.copied(placed)
        named.sort(key=lambda v: self.names[v] != given)
        if not named:
            return f"rewritten#{placed} ({self.type_of(placed)})"
        return f"{self.names[named[0]]} ({self.types[named[0]]})"

    def copied(self, placed: int) -> str | None:
        """The name of the input that a placed class is a copy of."""
        sources = [self.placed[source].buffers for source, _, _ in self.placed[placed].moves]
        return next((name for buffers in sources for name, _ in buffers), None)

    def view(self, start: int, goal: int) -> tuple[str, ...] | None:
        """Selectors that turn one value class into another in place; None if none do."""
        paths: dict[int, tuple[str, ...]] = {start: ()}
        queue = [start]
        for value in queue:
            for other, text in self.views.get(value, ()):
                if other not in paths:
                    paths[other] = (*paths[value], text)
                    queue.append(other)
        return paths.get(goal)

    def seen(self, start: int, held: str, goal: int, layout: str) -> tuple[str, ...]:
        """Views that turn a value class held in a layout into another one in a layout.

        Raises:
            ScheduleError: no views do.
        """
        paths: dict[tuple[int, str], tuple[str, ...]] = {(start, held): ()}
        queue = [(start, held)]
        for value, lies in queue:
            for other, text in (*self.views.get(value, ()), *self.parts.get(value, ())):
                at = view_layout(text, self.types[value], lies) if text else lies
                if at is not None and (other, at) not in paths:
                    paths[other, at] = (*paths[value, lies], *([text] if text else []))
                    queue.append((other, at))
            if (goal, layout) in paths:
                return paths[goal, layout]
        thing = f"value {self.types[goal]} in {layout}"
        raise ScheduleError(thing, f"is no view of {self.types[start]} in {held}", "a view")

    def layout_of(self, placed: int) -> str:
        """Layout text of a placed class."""
        node = self.placed[placed]
        return node.requests[0][1] if node.requests else node.buffers[0][1]


class Reader:
    """Reads frozen rows into a forest."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.rows = session.freeze()
        self.number: dict[str, dict[Any, int]] = {"Value": {}, "Tile": {}, "Placed": {}}
        self._same: dict[Any, Any] = {}

    def table(self, name: str) -> Sequence[Any]:
        """Rows of a table; none where the session has no such table."""
        return self.rows[name].rows if name in self.rows else ()

    def id(self, sort: str, value: Any) -> int:
        """The number of a class."""
        known = self.number[sort]
        value = self._same.get(value, value) if sort == "Tile" else value
        return known.setdefault(value, len(known))

    def join_tiles(self) -> None:
        """Make one class of those that are one box of one value, asked for after other turns."""
        homes: dict[tuple[int, str], Any] = {}
        near: dict[Any, list[Any]] = {}
        for row in self.table("tile"):
            box, _ = boxes.split_turns(self.text(row.inputs[1]))
            home = homes.setdefault((self.id("Value", row.inputs[0]), box), row.output)
            near.setdefault(home, []).append(row.output)
            near.setdefault(row.output, []).append(home)
        for part in circles(near):
            self._same |= dict.fromkeys(part, part[0])

    def text(self, value: Any) -> str:
        """A text column."""
        return str(self.session.read(value, "String"))


def read_forest(
    session: Session, roots: Sequence[Term], names: Mapping[Term, str] | None = None
) -> Forest:
    """Read a saturated session.

    Args:
        session: after the demand phase.
        roots: the `place` terms of the outputs, inserted.
        names: what people call inserted values.
    """
    reader = Reader(session)
    types = {
        reader.id("Value", r.inputs[0]): value_type(reader.text(r.output))
        for r in reader.table("type")
    }
    reader.join_tiles()
    placed: dict[int, PlacedClass] = {}
    _read_placed(reader, placed)
    tiles = _read_tiles(reader, types)
    _read_choices(reader, tiles)
    root_ids = [reader.id("Placed", session.class_of(r)) for r in roots]
    n_placed = len(reader.number["Placed"])
    users: dict[int, list[int]] = {}
    for number, tile in enumerate(tiles):
        for choice in tile.loads:
            users.setdefault(choice.source, []).append(number)
    nodes = [placed.get(i, PlacedClass()) for i in range(n_placed)]
    views, parts = _read_views(reader, types), _read_parts(reader, tiles)
    inputs = {reader.text(r.inputs[0]): reader.id("Value", r.output) for r in reader.table(In.name)}
    _drop_circles(reader, tiles, views, parts)
    labels = {reader.id("Value", session.class_of(t)): name for t, name in (names or {}).items()}
    root_values = [reader.id("Value", session.class_of(r.args[0])) for r in roots]
    return Forest(
        types, tiles, nodes, root_ids, users, views, labels, root_values, parts, inputs
    )  # fmt: skip


def _drop_circles(reader: Reader, tiles: Sequence[TileClass], views: Views, parts: Views) -> None:
    """Leave out alternatives through which a value could wait for itself.

    Values are one if they share memory, and if one box of both is one tile: two views may be alike.
    """
    pairs = [(v, other) for v, ends in views.items() for other, _ in ends]
    pairs += [(v, other) for v, ends in parts.items() for other, text in ends if not text]
    allowed = admissible(_read_values(reader), pairs)
    for tile in tiles:
        tile.compute = [
            c for c in tile.compute if allowed(tile.value, (tiles[x].value for x in c.children))
        ]


@dataclass(frozen=True)
class ValueRow:
    """One alternative of a value class.

    Attributes:
        value: the value class.
        symbol: its constructor.
        texts: what it says of itself, such as a signature and a cell.
        operands: operand value classes.
    """

    value: int
    symbol: Symbol
    texts: tuple[str, ...]
    operands: tuple[int, ...] = ()


def value_rows(reader: Reader) -> Iterator[ValueRow]:
    """Every alternative of every value class."""
    lists = {row.output: row.inputs for row in reader.table(Cons.name)}
    for symbol in (In, *OPERATORS):
        for row in reader.table(symbol.name):
            texts = tuple(
                reader.text(v) for v, s in zip(row.inputs, symbol.args, strict=True) if s.primitive
            )
            operands, rest = [], None if symbol is In else row.inputs[-1]
            while rest in lists:
                head, rest = lists[rest]
                operands.append(reader.id("Value", head))
            yield ValueRow(reader.id("Value", row.output), symbol, texts, tuple(operands))


def _read_values(reader: Reader) -> dict[int, list[tuple[int, ...]]]:
    """Operand value classes of every alternative of every value class."""
    found: dict[int, list[tuple[int, ...]]] = {}
    for row in value_rows(reader):
        found.setdefault(row.value, []).append(row.operands)
    return found


def _read_views(reader: Reader, types: Mapping[int, ValueType]) -> dict[int, list[tuple[int, str]]]:
    """Selectors that keep the row-major order, in both directions."""
    views: dict[int, list[tuple[int, str]]] = {}
    lists = {row.output: row.inputs for row in reader.table("ACons")}
    for row in reader.table("Sel"):
        text = reader.text(row.inputs[0])
        declared, params = selector(text)
        if declared.inverse is None:
            continue
        source = reader.id("Value", lists[row.inputs[1]][0])
        made = reader.id("Value", row.output)
        views.setdefault(source, []).append((made, text))
        views.setdefault(made, []).append((source, declared.inverse(params, types[source])))
    return views


def _read_parts(reader: Reader, tiles: Sequence[TileClass]) -> dict[int, list[tuple[int, str]]]:
    """Views that keep no row-major order; `view_layout` says which are views of a layout.

    Also values of which one box is one tile, with the text "".
    """
    parts: dict[int, list[tuple[int, str]]] = {}
    for row in value_rows(reader):
        is_copy = row.symbol is Op and row.texts[1] == COPY
        is_move = row.symbol is Sel and selector(row.texts[0])[0].inverse is None
        if len(row.operands) == 1 and (is_copy or is_move):
            parts.setdefault(row.operands[0], []).append((row.value, row.texts[0]))
    rows = {(r.inputs[0], r.output) for r in reader.table("tile")}
    alike = ((reader.id("Value", v), tiles[reader.id("Tile", t)].value) for v, t in rows)
    for value, other in sorted({(v, other) for v, other in alike if v != other}):
        parts.setdefault(value, []).append((other, ""))
        parts.setdefault(other, []).append((value, ""))
    return parts


def _read_placed(reader: Reader, placed: dict[int, PlacedClass]) -> None:
    def at(value: Any) -> PlacedClass:
        return placed.setdefault(reader.id("Placed", value), PlacedClass())

    for row in reader.table("place"):
        at(row.output).requests.append(
            (reader.id("Value", row.inputs[0]), reader.text(row.inputs[1]))
        )
    for row in reader.table("Buffer"):
        at(row.output).buffers.append((reader.text(row.inputs[0]), reader.text(row.inputs[1])))
    for row in reader.table("Move"):
        source = reader.id("Placed", row.inputs[0])
        at(row.output).moves.append(
            (source, reader.text(row.inputs[1]), reader.text(row.inputs[2]))
        )
    for row in reader.table("Kernel"):
        kernels = at(row.output).kernels
        if (tile := reader.id("Tile", row.inputs[0])) not in kernels:
            kernels.append(tile)


def _read_tiles(reader: Reader, types: Mapping[int, ValueType]) -> list[TileClass]:
    found: dict[int, TileClass] = {}
    for row in reader.table("tile"):
        number = reader.id("Tile", row.output)
        if number not in found:
            value = reader.id("Value", row.inputs[0])
            box, _ = boxes.split_turns(reader.text(row.inputs[1]))
            found[number] = tile_class(value, box, types[value])
    return [found[i] for i in range(len(reader.number["Tile"]))]


def tile_class(value: int, box: str, type: ValueType) -> TileClass:
    """A tile class without alternatives."""
    entries = boxes.parse(box)
    extents = {e.letter: n for e, n in zip(entries, type.shape, strict=True)
               if e.letter not in ("", boxes.WHOLE)}  # fmt: skip
    star = math.prod(
        n if e.letter == boxes.WHOLE else e.window if e.letter == "" else 1
        for e, n in zip(entries, type.shape, strict=True)
    )
    key = "".join(sorted(extents))
    streams = not frozenset(extents).isdisjoint(boxes.STREAM_LETTERS)
    return TileClass(
        value, box, type, frozenset(extents), extents, star, key, streams, type.n_bytes
    )


def _read_choices(reader: Reader, tiles: list[TileClass]) -> None:
    lists = {row.output: row.inputs for row in reader.table("TCons")}
    ends = {row.output for row in reader.table("TNil")}

    def children(value: Any) -> tuple[int, ...] | None:
        """Operand tiles; None where a limit stopped the search before all were demanded."""
        found = []
        while value in lists:
            head, value = lists[value]
            found.append(reader.id("Tile", head))
        return tuple(found) if value in ends else None

    for row in reader.table("Load"):
        tile = tiles[reader.id("Tile", row.output)]
        source, layout = reader.id("Placed", row.inputs[0]), reader.text(row.inputs[2])
        tile.loads.append(Choice(LOAD, "", "", (), source, layout))
    for row in reader.table("Cell"):
        number = reader.id("Tile", row.output)
        sig, cell = reader.text(row.inputs[0]), reader.text(row.inputs[1])
        operands = children(row.inputs[3])
        if operands is not None:
            types = tuple(tiles[c].type for c in operands)
            figures = _cell_figures(sig, CELLS[split_text(cell)[0]], types)
            tiles[number].compute.append(Choice(CELL, sig, cell, operands, **figures))
    for kind, table in ((GATHER, "Gather"), (SCAN, "Scanned")):
        for row in reader.table(table):
            tile, text = tiles[reader.id("Tile", row.output)], reader.text(row.inputs[0])
            operands = children(row.inputs[2])
            if operands is not None:
                moves, flops = kind == GATHER, float(tile.type.size)
                selects = selecting(text, tuple(tiles[c].type for c in operands)) if moves else None
                flops *= 1 if moves else scan(text)[0].flops
                way = Choice(kind, text, "", operands, vector=flops, selects=selects)
                tile.compute.append(way)
    for tile in tiles:
        tile.loads = list(dict.fromkeys(tile.loads))
        ways = dict.fromkeys(tile.compute)
        tile.compute = [replace(c, inside=_inside(tile, c, tiles)) for c in ways]
        tile.compute.sort(
            key=lambda c: (c.product + c.vector, len(c.children), c.text, c.cell, c.children)
        )


def _inside(tile: TileClass, choice: Choice, tiles: Sequence[TileClass]) -> str:
    return "".join(sorted(tile.letters.union(*(tiles[c].letters for c in choice.children))))


@lru_cache(maxsize=4096)
def _cell_figures(text: str, cell: Cell, types: tuple[ValueType, ...]) -> dict[str, Any]:
    """What a `Choice` says of a block operator beside its operands; those of blocks are alike."""
    sig = signature(text)
    space = math.prod(sig.extents([t.shape for t in types]))
    structured = bool(sig.monoid) and MONOIDS[sig.monoid].n_values > 1
    if structured or (sig.monoid == "+" and cell.product and len(types) == 2):
        factors = types[1:] if structured else types
        wide = max(factors, key=lambda t: DTYPES[t.dtype].itemsize).dtype
        extra = MONOIDS[sig.monoid].flops * math.prod(types[0].shape) if structured else 0.0
        return {"product": 2.0 * space, "vector": extra, "dtype": wide,
                "structured": structured, "reduces": True}  # fmt: skip
    flops = cell.flops * space + (MONOIDS[sig.monoid].flops * space if sig.monoid else 0.0)
    return {"vector": flops, "reduces": bool(sig.monoid)}

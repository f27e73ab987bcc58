"""Summaries: a cone in figures, which is all that a cost model sees of it.

Every figure names its loop letters, so a cost model multiplies it by block counts and needs nothing
else. There is one exception: conditions on positions may decide how much of a stream is run, which
no figure says; then the summary holds the cone's formulas too. Equal summaries have equal prices.
`Columns` holds candidate parameters and what they cost, one numpy entry each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from axe_eq.program.types import value_type
from axe_eq.schedule.box import GRID_LETTERS, MIXED_LETTER, STREAM_LETTERS, TILE_LETTERS
from axe_eq.schedule.graph import Access as Named
from axe_eq.schedule.graph import KernelStep, TileNode
from axe_eq.schedule.window import remote
from axe_eq.target import Target

Column = npt.NDArray[np.float64]
# Of a buffer without any stride but the contiguous one.
ANY_ALIGNMENT = 1 << 20


class Access(NamedTuple):
    """A load or a store of one cone, in figures.

    Attributes:
        n_bytes: bytes of the whole value, once.
        letters: loop letters of its box.
        star: elements per index of the letters (dims that are whole).
        itemsize: bytes of one element.
        passes: how often streaming loops sweep it.
        feeds_product: a sum of products reads it (so it goes through tile memory).
        aligned: how rows lie to lines of memory: the most bytes that divide the first place that is
            read, the length of a block of the contiguous dim, and every stride but that dim's. 0
            where no dim is contiguous or a stride is negative. Copies of whole rows need it.
        strides: (letter, extent, elements between neighbours) of every dim of more than one index,
            in the order of the dims; the letter of a whole dim is "*". A dim in blocks has several,
            slow to fast. Empty where strides do not describe it, and in cones without products.
        offset: the element where it is read from or stored to, where the strides are given.
        fast: the letter of the dim whose neighbours are neighbours in memory; "" where none are.
        remote: the part of its bytes that lies on other devices, as often as links carry it.
    """

    n_bytes: float
    letters: str
    star: int
    itemsize: int
    passes: int = 1
    feeds_product: bool = False
    aligned: int = ANY_ALIGNMENT
    strides: tuple[tuple[str, int, int], ...] = ()
    offset: int = 0
    fast: str = ""
    remote: float = 0.0


class Work(NamedTuple):
    """Operations of one cone node over its whole index space; repeated per missing letter.

    Attributes:
        flops: operations.
        letters: loop letters of the node and its operands.
        dtype: element type that products multiply, the wider one of two; that of the values where a
            structured monoid mixes them.
        structured: a structured monoid reduces.
        star: elements per index of the letters.
        dtypes: element types of the operands of products, each once.
        reduced: extents of the dims that products sum over.
        crossed: operands of products are contiguous along different ones of these.
        kept: (letter, extent, operands) of every dim of more than one index that a product keeps:
            "*" where it is whole, and which operands reach it: "a", "b", "ab" or "".
    """

    flops: float
    letters: str
    dtype: str = ""
    structured: bool = False
    star: int = 1
    dtypes: tuple[str, ...] = ()
    reduced: tuple[int, ...] = ()
    crossed: bool = False
    kept: tuple[tuple[str, int, str], ...] = ()


class Reductions(NamedTuple):
    """The numbers of reductions in a cone, which are known before its other figures.

    Attributes:
        products: number of sums of products, structured ones with them.
        structured: of them, those that a structured monoid reduces.
        folds: reductions that are no sums of products.
        spaces: as `Summary.n_reduced`.
        staged: operands of products that the kernel computes itself.
        scans: whether there is a scan.
        results: number of values that it stores.
    """

    products: int = 0
    structured: int = 0
    folds: int = 0
    spaces: int = 0
    staged: int = 0
    scans: bool = False
    results: int = 1


class ScanWork(NamedTuple):
    """A scan of a cone.

    Attributes:
        monoid: its name.
        dtypes: element types of its operands.
        length: elements of one row that it scans.
    """

    monoid: str
    dtypes: tuple[str, ...]
    length: int


class Formula(NamedTuple):
    """A cone node by node, whatever its buffers are called.

    Attributes:
        nodes: operands before users.
        roots: nodes that are stored.
        reads, writes: layouts of what is loaded, by the nodes' numbers of them, and of the roots.
    """

    nodes: tuple[TileNode, ...]
    roots: tuple[int, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def remote_bytes(self) -> float:
        """Bytes of its values that lie on other devices."""
        loads = [n for n in self.nodes if n.kind == "load"]
        of = [(n, self.reads[n.access]) for n in loads]
        of += [(self.nodes[r], text) for r, text in zip(self.roots, self.writes, strict=True)]
        return sum(value_type(n.type).n_bytes * remote(text) for n, text in of)

    def step(self, row: str, rounds: bool = False) -> KernelStep:
        """The kernel on an instruction row, as it is emitted but for names."""
        reads, writes = (
            tuple(Named(f"{name}{n}", layout) for n, layout in enumerate(layouts))
            for name, layouts in (("x", self.reads), ("y", self.writes))
        )
        return KernelStep("cone", self.nodes, self.roots, reads, writes, {}, "", row, rounds=rounds)


@dataclass(frozen=True)
class Summary:
    """A cone in figures; equal summaries have equal prices.

    Attributes:
        extents: (letter, extent) of every loop.
        loads, stores: memory accesses.
        products: sums of products (matrix units).
        vector: all other arithmetic.
        resident: (elements per index of letters, letters) of tiles that must stay on chip.
        staged: elements of product operands computed in the kernel, which pass through tile memory.
        n_nodes: nodes computed.
        n_folds: of them, reductions that are no sums of products.
        n_reduced: what they reduce, as boxes of index spaces: one where rows are reduced several
            times, more where reductions are nested or over different dims.
        n_positions: in cones with products, values that are positions along a dim.
        n_parts: likewise, values of several parts: of different operands, or of one and a constant;
            and those that move what products give.
        order: likewise, (letter, extent) of the first result's dims of more than one index, slow to
            fast as they lie in memory.
        unread: why its formulas cannot be read (`axe_eq.lower.read`); "" where they can. Values may
            be gathered from, or stored at, places that are no affine function of the index; or a
            part of what is padded may end along several dims of the index space at once.
        n_reads: loads that one element of a result makes. `y = x * 2` in `y + flip(y)` is computed
            at two places, so `x` is loaded twice. Counted up to some number.
        n_looked: values gathered from where integers say, which are read or counted. Kernels that
            move whole tiles cannot take them.
        n_ended: loads that are read in parts, the last of which may end past what is there.
        n_outside: stored values with elements that are neither one per index of the largest one's
            index space, nor one per index of some of its dims.
        n_scanned: dims of the index space that it scans.
        scans: scans, one entry each. Schedules that do not say `scans = True` are not asked then.
        monoids: names of what it reduces by, in order of the alphabet.
        cells: in cones with products, operations of the cells that compute one element of every
            result from loads and products, each value once; what storing does is none of them.
        formula: the cone itself, where it has a structured reduction and either positions or
            several results: conditions on positions say which parts of a stream a kernel leaves
            out, and no figure does.
        mixed: where one result of several reaches a structured reduction of products, the figures
            of that one alone: the others may be values that the reduction has at hand.
    """

    extents: tuple[tuple[str, int], ...]
    loads: tuple[Access, ...]
    stores: tuple[Access, ...]
    products: tuple[Work, ...]
    vector: tuple[Work, ...]
    resident: tuple[tuple[int, str], ...]
    staged: tuple[Work, ...]
    n_nodes: int
    n_folds: int = 0
    n_reduced: int = 0
    n_positions: int = 0
    n_parts: int = 0
    order: tuple[tuple[str, int], ...] = ()
    unread: str = ""
    n_reads: int = 0
    n_outside: int = 0
    n_looked: int = 0
    n_ended: int = 0
    n_scanned: int = 0
    scans: tuple[ScanWork, ...] = ()
    monoids: tuple[str, ...] = ()
    cells: float = 0.0
    formula: Formula | None = None
    mixed: Summary | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Worked out once: prices are remembered by figures in several places."""
        return hash(_figures(self))

    def extent(self, letter: str) -> int:
        """Extent of a loop letter; 1 where the cone does not have it."""
        return self._extents.get(letter, 1)

    @cached_property
    def _extents(self) -> dict[str, int]:
        return dict(self.extents)

    @cached_property
    def reductions(self) -> Reductions:
        """How many there are of every kind."""
        structured = sum(w.structured for w in self.products)
        reduced = len(self.products), structured, self.n_folds, self.n_reduced
        return Reductions(*reduced, len(self.staged), bool(self.scans), len(self.stores))

    def without_places(self) -> Summary:
        """The same without strides and offsets."""
        if not any(a.strides or a.offset for a in (*self.loads, *self.stores)):
            return self
        loads, stores = (
            tuple(a._replace(strides=(), offset=0) for a in accesses)
            for accesses in (self.loads, self.stores)
        )
        return replace(self, loads=loads, stores=stores)

    def has(self, letter: str) -> bool:
        """Whether the cone loops over a letter."""
        return letter in self._extents

    @property
    def grid(self) -> tuple[str, ...]:
        """Loop letters that cut the grid."""
        return tuple(letter for letter, _ in self.extents if letter in GRID_LETTERS)

    @property
    def streams(self) -> tuple[str, ...]:
        """Loop letters that stream inside a block."""
        return tuple(letter for letter, _ in self.extents if letter in STREAM_LETTERS)

    @property
    def uneven(self) -> bool:
        """Whether a stored value lacks a dim of another, whose blocks would all store it."""
        return len({a.n_bytes // a.itemsize for a in self.stores}) > 1


_figures = attrgetter(*(figure.name for figure in fields(Summary)))


@dataclass
class Columns:
    """A table of candidates.

    Attributes:
        block: letter -> block size ("p", "q", "k", "s").
        extra: other parameters ("stages", ...).
        exact: `extra` is all that a kernel is written by; else block sizes are parameters too.
        rows: instruction row of each candidate, by name ("" where none).
        time_s: estimated time; inf where rejected.
        costs: named cost columns with the unit in the name ("gmem_bytes", "smem_bytes", ...).
        rejected: reason -> number of candidates it ruled out.
        known: how often loops run, see `repeats`: costs ask for the same again and again.
    """

    block: dict[str, Column]
    extra: dict[str, Column] = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    time_s: Column = field(default_factory=lambda: np.zeros(0))
    costs: dict[str, Column] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    exact: bool = False
    known: dict[object, Column] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(next(iter(self.block.values())))

    def reject(self, mask: npt.NDArray[np.bool_], reason: str) -> None:
        """Rule out the candidates of a mask; the reason is kept with their number."""
        count = int(np.count_nonzero(mask & np.isfinite(self.time_s)))
        if count:
            self.rejected[reason] = self.rejected.get(reason, 0) + count
            self.time_s = np.where(mask, np.inf, self.time_s)

    def size(self, letter: str, extent: int) -> Column:
        """Block size of a letter: its column, clipped to the extent; 1 for unit letters."""
        if letter in TILE_LETTERS or letter in STREAM_LETTERS:
            return np.minimum(self.block[letter], extent)
        return np.ones(len(self))


def joined(tables: Sequence[Columns]) -> Columns:
    """The candidates of several tables with the same parameters and costs, one after the other."""
    first, *others = tables
    if not others:
        return first

    def together(of: str) -> dict[str, Column]:
        columns = [getattr(table, of) for table in tables]
        return {name: np.concatenate([c[name] for c in columns]) for name in columns[0]}

    found = replace(
        first, block=together("block"), extra=together("extra"), costs=together("costs"),
        rows=tuple(chain.from_iterable(table.rows for table in tables)),
        time_s=np.concatenate([table.time_s for table in tables]), rejected={},
    )  # fmt: skip
    for table in tables:
        for reason, number in table.rejected.items():
            found.rejected[reason] = found.rejected.get(reason, 0) + number
    return found


class Schedule(Protocol):
    """A way to implement cones on a family of targets; packs register these.

    Attributes:
        name: how explanations call it.
        families: target families it exists for.

    Four parts may be there beside:

    * `candidates(step, target)` reads a cone before it is taken: it is asked with the kernel that
      would be built, but for names and boxes (`axe_eq.lower.read.read_cone`), and answers with
      `axe_eq.lower.candidate.Candidate`s, by whose parameters kernels are written. What `price`
      says is an estimate then.
    * `prices_places = False` says that `price` does not look at strides and offsets; it is asked
      less often then.
    * `scans = True`: it is asked about cones with scans too.
    * `refuse_reductions(reductions, target)` refuses most cones that it cannot implement before
      their figures are worked out. `refuse` is asked about the others.
    """

    name: str
    families: tuple[str, ...]

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Why it cannot implement such a cone on such a machine; None where it can."""

    def price(self, summary: Summary, target: Target) -> Columns:
        """Candidates with their costs."""


def grid_of(*sizes: float | Iterable[float]) -> list[Column]:
    """All combinations of the given sizes, one column each."""
    given = tuple(tuple(s) if isinstance(s, Iterable) else (s,) for s in sizes)
    return [column.copy() for column in _grid_of(given)]


@lru_cache(maxsize=256)
def _grid_of(sizes: tuple[tuple[float, ...], ...]) -> tuple[Column, ...]:
    """Most schedules have the same candidates for every cone."""
    grids = np.meshgrid(*map(np.asarray, sizes), indexing="ij")
    return tuple(grid.ravel().astype(float) for grid in grids)


def repeats(summary: Summary, columns: Columns, letters: str) -> Column:
    """How often a node with these letters runs: the product of the block counts that it lacks."""
    known, key = columns.known, (summary.extents, letters)
    if key not in known:
        result = np.ones(len(columns))
        for letter, extent in summary.extents:
            if letter in GRID_LETTERS and letter not in letters:
                if (letter, extent) not in known:
                    known[letter, extent] = np.ceil(extent / columns.size(letter, extent))
                result = result * known[letter, extent]
        result.flags.writeable = False
        known[key] = result
    return known[key]


def elements(access_letters: str, star: int, summary: Summary, columns: Columns) -> Column:
    """Elements of one block's tile."""
    result = np.full(len(columns), float(star))
    for letter in access_letters:
        result = result * columns.size(letter, summary.extent(letter))
    return result


def traffic(
    summary: Summary, columns: Columns, streamed: Column | float = 1.0
) -> tuple[Column, Column]:
    """Bytes that must cross main memory once, and bytes read again, which caches may serve.

    Args:
        summary: the cone.
        columns: its candidates.
        streamed: part of a structured reduction's streaming loop that blocks run.
    """
    once = sum(a.n_bytes for a in (*summary.loads, *summary.stores))
    per_read: dict[str, float] = {}
    for access in summary.loads:
        swept = per_read.get(access.letters, 0.0)
        per_read[access.letters] = swept + access.n_bytes * access.passes
    loaded = sum(a.n_bytes for a in summary.loads)
    again = np.full(len(columns), -loaded)
    for letters, n_bytes in per_read.items():
        read = repeats(summary, columns, letters)
        again = again + n_bytes * np.maximum(read * _part(letters, streamed), 1.0)
    return np.full(len(columns), once), again


def link_bytes(summary: Summary, columns: Columns) -> Column:
    """Bytes that a device reads and stores in others' memory, as often as its blocks do."""
    found = np.zeros(len(columns))
    for access in (*summary.loads, *summary.stores):
        if access.remote:
            far = access.remote * access.n_bytes * access.passes
            again = access in summary.loads
            found = found + far * (repeats(summary, columns, access.letters) if again else 1.0)
    return found


def flops(
    works: tuple[Work, ...], summary: Summary, columns: Columns, streamed: Column | float = 1.0
) -> Column:
    """Operations of all blocks together, recomputation included; `streamed` as in `traffic`."""
    result = np.zeros(len(columns))
    for work in works:
        run = repeats(summary, columns, work.letters) * _part(work.letters, streamed)
        result = result + work.flops * run
    return result


def _part(letters: str, streamed: Column | float) -> Column | float:
    """The part of a node or an access that runs, by whether the structured loop is one of its."""
    return streamed if MIXED_LETTER in letters else 1.0


def blocks(summary: Summary, columns: Columns) -> Column:
    """Number of blocks of the grid."""
    return repeats(summary, columns, "")

"""The figures of a cone, which rank it among others before its formulas are read.

Everything that a cost model sees of a cone is worked out here, from the tile classes and what their
alternatives know of themselves. Formulas (`axe_eq.lower.read`) say more and take four times as
long, so they are read of cones that a schedule would be taken with, and of the few of which figures
cannot tell whether strides describe them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property, lru_cache
from math import gcd
from typing import NamedTuple

from axe_eq.errors import DispatchError
from axe_eq.extract.price.cone import Picks, loop_extents, used
from axe_eq.extract.price.lying import access, as_it_lies, in_bytes, lies
from axe_eq.extract.price.reductions import computed_operands, monoids, reductions, through_tiles
from axe_eq.extract.read.forest import CELL, LOAD, SCAN, Choice, Forest, TileClass
from axe_eq.extract.read.formula import formula
from axe_eq.kernel.cells import Cell
from axe_eq.lower.formulas import Load
from axe_eq.lower.read import read_cone
from axe_eq.program import places
from axe_eq.program.ops import MONOIDS, cell, scan
from axe_eq.program.signature import Affine, signature
from axe_eq.program.types import ValueType
from axe_eq.schedule import box as boxes
from axe_eq.schedule.summary import ANY_ALIGNMENT, Access, Formula, ScanWork, Summary, Work

MOST_READS = 1024  # that are counted
REMEMBERED = 4096


def summarise(
    forest: Forest,
    roots: Sequence[int],
    picks: Picks,
    stored: Sequence[str],
    order: Sequence[int] | None = None,
) -> Summary:
    """The figures of a cone with these root tiles; `stored` are the layouts they are stored in.

    Args:
        forest: its tiles.
        roots: those that are stored.
        picks: the alternative taken of every tile.
        stored: the layout that each root is stored in.
        order: `used` of them, where it is known.
    """
    return _Figures(forest, roots, picks, stored, order or used(roots, picks)).summary()


class _Read(NamedTuple):
    """Dims of the index space that a cone scans, and loads that it reads where integers say."""

    scanned: int = 0
    looked: int = 0


class _Figures:
    """One cone.

    Attributes:
        order: its tiles, users before operands.
        moves: those that selectors give, and what these do.
        products: alternatives that are sums of products.
        ends: per operand of these what it is a part of, and where that lies.
    """

    def __init__(
        self,
        forest: Forest,
        roots: Sequence[int],
        picks: Picks,
        stored: Sequence[str],
        order: Sequence[int],
    ) -> None:
        self.forest, self.roots, self.picks, self.stored = forest, roots, picks, stored
        self.order = order
        self.moves = [(t, s) for t in self.order if (s := picks[t].selects)]
        self.products = [c for t in self.order if (c := picks[t]).product]
        self.ends = {
            child: as_it_lies(forest, child, picks) for c in self.products for child in c.children
        }

    def summary(self) -> Summary:
        """All figures."""
        roots, picks, order, tiles = self.roots, self.picks, self.order, self.forest.tiles
        passes, fed = sweeps(self.forest, order, picks), self._fed()
        parted = self._partly_read() if self.moves else {}
        ended = {picks[t].children[0]: tiles[t] for t, s in self.moves if s.cut}
        loads, products = list[Access](), list[Work]()
        vector, staged = dict[str, float](), list[Work]()
        for tile in order:
            node, choice, times = tiles[tile], picks[tile], passes.get(tile, 1)
            if choice.kind == LOAD:
                read = access(node, choice.layout, times, tile in fed, bool(self.products))
                read = _of_parts(read, parted.get(tile, ()))
                if tile in ended:  # of a block it reads one part
                    read = read._replace(letters=ended[tile].key, star=ended[tile].star)
                if (begins := fed.get(tile, ANY_ALIGNMENT)) < ANY_ALIGNMENT:
                    read = read._replace(aligned=begins and gcd(read.aligned, begins))
                loads.append(read)
                continue
            if choice.product:
                products.append(self._product(node, choice, times))
                made = computed_operands(self.forest, choice, picks)
                staged += [Work(float(t.type.size * times), t.key) for t in made]
            if choice.vector:
                vector[choice.inside] = vector.get(choice.inside, 0.0) + choice.vector * times
        stores = tuple(
            access(tiles[r], text, 1, False, bool(self.products))
            for r, text in zip(roots, self.stored, strict=True)
        )
        reduced = reductions(self.forest, order, picks, len(roots))
        positions = self._positions()
        structured = any(c.structured for c in self.products)
        said, looked = self._read(), sum(bool(s.looked) for _, s in self.moves)
        unread, beside = (said, _Read()) if isinstance(said, str) else ("", said)
        return Summary(
            tuple(sorted(loop_extents(self.forest, roots, order, picks).items())),
            tuple(sorted(loads, key=_load_order)),
            stores,
            tuple(products),
            tuple(Work(flops, letters) for letters, flops in sorted(vector.items())),
            tuple(sorted((tiles[t].star, tiles[t].key) for t in order if picks[t].product)),
            tuple(staged),
            n_nodes=sum(picks[t].kind == CELL for t in order),
            n_folds=reduced.folds,
            n_reduced=reduced.spaces,
            n_positions=positions,
            n_parts=self._parts(),
            order=_order(stores[0]),
            unread=unread,
            n_reads=self._reads() if self.moves else len(loads),
            n_outside=self._outside() if len(roots) > 1 else 0,
            n_looked=max(looked, beside.looked),
            n_ended=sum(s.cut is not None for _, s in self.moves),
            n_scanned=beside.scanned,
            scans=self.scans,
            monoids=monoids(order, picks),
            cells=self._cells() if self.products else 0.0,
            formula=self._formula if structured and (positions or len(roots) > 1) else None,
            mixed=self._mixed() if structured and len(roots) > 1 else None,
        )

    # -- products

    def _fed(self) -> dict[int, int]:
        """Loads that products read, each with the bytes that divide where the parts of it begin."""
        found: dict[int, int] = {}
        for choice, child in ((p, c) for p in self.products for c in through_tiles(p)):
            (end, place), begins = self.ends[child], ANY_ALIGNMENT
            itemsize = self.forest.tiles[end].type.itemsize
            if end != child:
                begins = in_bytes(place.apart, itemsize) if place else 0
            if place and self._slides(choice, child, place.fast):
                begins = min(begins, itemsize)
            before = found.get(end, ANY_ALIGNMENT)
            found[end] = min(before, begins) and gcd(before, begins)
        return found

    def _slides(self, choice: Choice, child: int, dims: Sequence[int]) -> bool:
        """Whether a window of an operand of a product slides along some of its dims."""
        if not _bends(choice.text):
            return False
        sig = signature(choice.text)
        extents = sig.extents([t.shape for t in self._types(choice)])
        return any(
            sum(extents[letter] > 1 for letter, _ in sig.operands[n][d].terms) > 1
            for n, c in enumerate(choice.children) if c == child for d in dims
        )  # fmt: skip

    def _product(self, node: TileClass, choice: Choice, times: int) -> Work:
        """The work of a sum of products; what its operands' layouts say of it is kept."""
        places_of = (self.ends[child][1] for child in choice.children)
        lying = tuple(place.fast if place else () for place in places_of)
        key = choice.text, choice.children, lying
        if key not in node.known:
            types = tuple(self.forest.tiles[c].type for c in choice.children)
            node.known[key] = _of_operands(choice.text, types, lying, node.box)
        work: Work = node.known[key]
        return work._replace(
            flops=choice.product * times, letters=choice.inside, dtype=choice.dtype,
            structured=choice.structured, star=node.star,
        )  # fmt: skip

    def _positions(self) -> int:
        return sum(s.positions for _, s in self.moves) if self.products else 0

    def _parts(self) -> int:
        """Values of several parts, and those that move what products give."""
        if not self.products:
            return 0
        joins = sum(s.joins for _, s in self.moves)
        children = (self.picks[t].children for t, s in self.moves if not s.views)
        return joins + sum(map(self._multiplies, children))

    def _multiplies(self, tiles: Sequence[int]) -> bool:
        """Whether a sum of products is among what some tiles are computed from.

        Its operands are then read at other places than its own tile says.
        """
        return any(self.picks[t].product for t in used(tiles, self.picks))

    def _mixed(self) -> Summary | None:
        """The figures of the one root of several that a structured reduction reaches."""
        found = [
            (root, text)
            for root, text in zip(self.roots, self.stored, strict=True)
            if any(self.picks[t].structured for t in used([root], self.picks))
        ]
        if len(found) != 1:
            return None
        return summarise(self.forest, [found[0][0]], self.picks, [found[0][1]])

    def _cells(self) -> float:
        """Operations of the cells after the products, for one element of every result.

        A lower bound of what kernels evaluate: a value that moves may be there several times, and a
        last cast is the rounding of the store.
        """
        after, stored, total = set(self.roots), set(self.roots), 0.0
        for tile in self.order:
            choice = self.picks[tile]
            if tile not in after or choice.reduces:
                continue
            after.update(choice.children)
            if choice.kind != CELL:
                continue
            if tile in stored and cell(choice.cell)[0].result == "param":
                stored.update(choice.children)
                continue
            total += choice.vector / self.forest.tiles[tile].type.size
        return total

    # -- reads

    def _partly_read(self) -> dict[int, list[TileClass]]:
        """Loads of which only parts are read, each with the tiles that are."""
        by = {t: frozenset((0,)) if s.strided else s.looked for t, s in self.moves}
        if not any(by.values()):
            return {}
        found, plainly = dict[int, list[TileClass]](), set(self.order[:1])
        for tile in self.order:
            choice, parts = self.picks[tile], by.get(tile, ())
            for n, child in enumerate(choice.children):
                if n in parts:
                    some = tile in found and tile not in plainly  # parts of parts
                    own = found[tile] if some else [self.forest.tiles[tile]]
                    found.setdefault(child, []).extend(own)
                elif choice.reduces or tile not in found:
                    plainly.add(child)
                else:
                    found.setdefault(child, []).extend(found[tile])
        return {tile: tiles for tile, tiles in found.items() if tile not in plainly}

    def _reads(self) -> int:
        """Reads at places of their own, as if no two moves went to the same place."""
        here, moved, total = dict.fromkeys(self.roots, 1), dict[int, int](), 0
        for tile in self.order:
            choice, n = self.picks[tile], min(here.get(tile, 0) + moved.get(tile, 0), MOST_READS)
            total += n if choice.kind == LOAD else 0
            for child in choice.children:
                if choice.selects and not choice.selects.views:
                    moved[child] = moved.get(child, 0) + n
                else:
                    here[child] = max(here.get(child, 0), n)
        return min(total, MOST_READS)

    def _outside(self) -> int:
        """Stored values that are not one per index, or part of one, of the largest one's space."""
        shapes = [self.forest.tiles[self._unviewed(r)].type.shape for r in self.roots]
        space = places.index_space(shapes)
        return sum(not places.spans(space, shape) for shape in shapes)

    def _unviewed(self, tile: int) -> int:
        """The tile whose elements a tile has in the same order."""
        while self._is_view(tile):
            (tile,) = self.picks[tile].children
        return tile

    def _is_view(self, tile: int) -> bool:
        selects = self.picks[tile].selects
        return selects is not None and selects.views

    @cached_property
    def scans(self) -> tuple[ScanWork, ...]:
        """Scans of rows of several elements; one over a single element is a cell."""
        found = []
        for choice in (c for t in self.order if (c := self.picks[t]).kind == SCAN):
            (monoid, axis), types = scan(choice.text), self._types(choice)
            if types[0].shape[axis] > 1:
                dtypes = tuple(t.dtype for t in types)
                found.append(ScanWork(monoid.name, dtypes, types[0].shape[axis]))
        return tuple(found)

    def _types(self, choice: Choice) -> tuple[ValueType, ...]:
        return tuple(self.forest.tiles[c].type for c in choice.children)

    def _read(self) -> _Read | str:
        """What formulas say beside figures; or why strides do not describe the cone.

        Most cones have nothing that could make it so: only where several things that would have to
        come together are there, their formulas are read.
        """
        if self._is_strided():
            return _Read()
        looked = any(s.looked for _, s in self.moves)
        row = "any" if self.products and not looked else ""
        found = _read(self._formula, row)
        if isinstance(found, str) and row:  # what no tile holds may be read element by element
            single = _read(self._formula, "")
            found = single if not isinstance(single, str) and single.looked else found
        return found

    def _is_strided(self) -> bool:
        """Whether what a cone reads and stores is strided for certain, and nothing is scanned."""
        picks, tiles, moves = self.picks, self.forest.tiles, self.moves
        read = [
            lies(c.layout, tiles[t].type.shape) for t in self.order if (c := picks[t]).kind == LOAD
        ]
        homes = (tiles[self._unviewed(r)].type.shape for r in self.roots)
        if self.scans or not all(place and place.is_plain for place in read):
            return False
        if None in map(lies, self.stored, homes) or any(s.scattered or s.cut for _, s in moves):
            return False
        views = [picks[t].children[0] for t, s in moves if s.views and t not in self.roots]
        if any(picks[below].kind != LOAD for below in views):
            return False
        if not all(place and place.is_dense for place in read) and any(s.views for _, s in moves):
            return False
        cells = (picks[t].text for t in self.order if picks[t].kind == CELL)
        return not (any(s.joins for _, s in moves) and any(map(_bends, cells)))

    @cached_property
    def _formula(self) -> Formula:
        return formula(self.forest, self.roots, self.order, self.picks, self.stored)


def sweeps(forest: Forest, order: Sequence[int], picks: Picks) -> dict[int, int]:
    """How many sweeps of the streaming loop need each streaming tile; empty where nothing streams.

    A reduction over a streaming letter ends a sweep; a tile that uses its result inside a streaming
    box needs another one. That is why softmax over a streamed row takes more than one pass.
    """
    tiles = forest.tiles
    if not any(tiles[t].streams for t in order):
        return {}
    level: dict[int, int] = {}
    for tile in reversed(order):
        outside = not tiles[tile].streams
        inner = 0
        for child in picks[tile].children:
            inner = max(inner, level[child] + (outside and tiles[child].streams))
        level[tile] = inner
    needed: dict[int, set[int]] = {tile: set() for tile in order}
    for tile in order:
        inside = tiles[tile].streams
        for child in picks[tile].children:
            if not tiles[child].streams:
                continue
            if inside:
                needed[child] |= {max(s, level[child]) for s in needed[tile] or {level[tile]}}
            else:
                needed[child].add(level[tile] - 1)
    return {tile: len(s) for tile, s in needed.items() if s}


def _of_parts(access: Access, parts: Sequence[TileClass]) -> Access:
    """The access of a load, or of the parts of it that are read where those are fewer bytes.

    Neighbours that are left out move with those that are read.
    """
    if not parts:
        return access
    step = min((abs(s) for _, _, s in access.strides), default=1)
    n_bytes = float(sum(t.type.size for t in parts) * access.itemsize * step)
    if n_bytes >= access.n_bytes:
        return access
    most = max(parts, key=lambda t: t.type.size)
    return access._replace(n_bytes=n_bytes, letters=most.key, star=most.star)


def _order(access: Access) -> tuple[tuple[str, int], ...]:
    """(letter, extent) of the dims of an access, slow to fast, each where it is fastest."""
    found: dict[str, int] = {}
    for letter, extent, _ in sorted(access.strides, key=lambda dim: -abs(dim[2])):
        found[letter] = extent * found.pop(letter, 1)
    return tuple(found.items())


def _load_order(access: Access) -> tuple[object, ...]:
    feeds = access.feeds_product
    place = access.aligned, access.strides, access.offset, access.fast
    return access.letters, access.n_bytes, access.star, access.passes, feeds, *place


def _of_operands(
    text: str, types: Sequence[ValueType], lying: Sequence[Sequence[int]], box: str
) -> Work:
    """What operands say of a product: their types, each contiguous along such dims, and its box."""
    parsed = signature(text)
    extents = parsed.extents([t.shape for t in types])
    along = {
        i
        for contiguous, dims in zip(lying, parsed.operands, strict=True)
        for d in contiguous
        for i, _ in dims[d].terms
        if i in parsed.reduced
    }
    dtypes = tuple(sorted({t.dtype for t in types}))
    reaches = [
        "".join(n for n, o in zip("ab", parsed.operands, strict=False) if _reads(o, i))
        for i in range(parsed.n_out)
    ]
    kept = tuple(
        (entry.letter, extent, reach)
        for entry, extent, reach in zip(boxes.parse(box), extents, reaches, strict=False)
        if extent > 1 and entry.letter
    )
    summed = tuple(extents[i] for i in parsed.reduced)
    return Work(0.0, "", dtypes=dtypes, reduced=summed, crossed=len(along) > 1, kept=kept)


def _reads(operand: Sequence[Affine], dim: int) -> bool:
    """Whether an operand of a signature depends on an index dim."""
    return any(d == dim for projection in operand for d, _ in projection.terms)


@cache
def _bends(text: str) -> bool:
    """Whether some operand is read along several dims at once."""
    return any(len(p.terms) > 1 for operand in signature(text).operands for p in operand)


@lru_cache(REMEMBERED)
def _read(cone: Formula, row: str) -> _Read | str:
    """What a cone's formulas say; or why they cannot be read."""
    try:
        made = read_cone(cone.step(row), _first)
    except DispatchError as error:
        return f"{error.wrong}; expected {error.expected}"
    several = any(len(f.dims) > 1 for f in made.folds)
    if several and any(MONOIDS[f.monoid].n_values > 1 for f in made.folds):
        return "streams over dims in blocks; expected one stride"
    looked = sum(isinstance(leaf, Load) and bool(leaf.looks) for leaf in made.leaves)
    return _Read(len({p.dim for p in made.prefixes}), looked)


def _first(monoid: str, operands: Sequence[Cell], dtypes: Sequence[str]) -> Cell:
    """Some value of a scan over one element, which is read where its first operand is."""
    return operands[0]

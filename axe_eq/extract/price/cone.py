"""Cones: the tile values that become one kernel, and the figures that price them.

A cone goes from root tiles down to loads of materialised values. `Cones` enumerates the
alternatives of a root under a set of materialised classes; `summarise` reduces a cone to a hashable
`Summary` in which what a cost model may look at is a number per loop letter, so equal kernels are
priced once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import product
from math import gcd
from typing import NamedTuple

from axe_eq.extract.price.lying import access, contiguous
from axe_eq.extract.price.parts import (
    apart,
    as_it_lies,
    in_parts,
    of_parts,
    partly_read,
    seen_through,
)
from axe_eq.extract.price.reads import reads
from axe_eq.extract.price.reductions import computed_operands, monoids, reductions, through_tiles
from axe_eq.extract.read.forest import CELL, GATHER, LOAD, Choice, Forest, TileClass
from axe_eq.extract.read.formula import formula
from axe_eq.extract.search.recall import Recall, bits, members
from axe_eq.program.ops import cell, selector
from axe_eq.program.signature import Affine, signature
from axe_eq.program.types import ValueType
from axe_eq.schedule import box as boxes
from axe_eq.schedule.summary import ANY_ALIGNMENT, Access, Summary, Work

MAX_NODES = 40
MAX_CONES = 12
# Pairs of cones put together until fewer are kept of each tile, and how many then: deep graphs of
# operators that all fuse, such as scans, would take minutes. Programs of 1000 operators take 0.3e6.
NARROWED = ((500_000, 4), (1_500_000, 2))
MAX_DEPTH = 40

Picks = dict[int, Choice]
Kept = tuple[tuple[str, int, str], ...]
Form = tuple[tuple[str, ...], tuple[int, ...], bool, Kept]


class Cone(NamedTuple):
    """One way to compute a tile inside a kernel.

    Attributes:
        picks: alternative taken for every tile class of the cone.
        tiles: those tile classes, as bits: what a merged cone would hold is counted without it.
        marks: what it loads, reduces and gathers, as bits; the rest are cells. Of the cones that
            agree in this only the one with the least arithmetic can be the cheapest.
    """

    picks: Picks
    tiles: int
    marks: int

    @property
    def size(self) -> int:
        """Number of tile classes."""
        return self.tiles.bit_count()


Found = tuple[list[Cone], int]
"""Cones, and the placed classes on whose membership in M they depend, as bits."""
Memo = dict[int, Found]


class Cones:
    """Enumerates cones; remembers what each tile class met, so a change of M drops little.

    Args:
        forest: where the tile classes are.
        inputs: placed classes that are always at hand.
        values: value classes to whose tiles the cones are held; None for all.
        remembered: sets M for which the cones of a tile are kept, beside the present one.

    Attributes:
        computed: tile classes enumerated so far, those done again included.
    """

    def __init__(
        self,
        forest: Forest,
        inputs: Collection[int],
        values: Collection[int] | None = None,
        remembered: int = 0,
    ) -> None:
        self.forest = forest
        self.inputs = frozenset(inputs)
        self._values = values
        self._memo: Memo = {}
        self._remembers = bool(remembered)
        self._seen = Recall[Found](remembered)
        self._members = 0
        self._met: dict[int, int] = {}
        self._met_by: dict[int, set[int]] = {}
        self._loads: dict[int, tuple[list[tuple[int, list[Cone]]], int]] = {}
        self._bits: dict[int, int] = {}
        self._joined = 0
        self.computed = 0

    def of(self, root: int, materialised: Collection[int]) -> Found:
        """Cones of a root tile (computed, not loaded), and the placed classes met on the way.

        An input is computed by nothing: its cones copy it from where it arrives.
        """
        if not self.forest.tiles[root].compute:
            loads = self._loads_of(root)[0]
            return [c for source, load in loads if source in self.inputs for c in load], 0
        self._members = bits(materialised) if self._remembers else 0
        return self._compute(root, materialised, 0)

    def invalidate(self, placed: Collection[int]) -> Memo:
        """Forget what depends on these classes being materialised; returns it, for `reinstate`."""
        forgotten: Memo = {}
        memo = self._memo
        for p in placed:
            for tile in self._met_by.get(p, ()):
                found = memo.get(tile)
                if found is not None and found[1] >> p & 1:
                    forgotten[tile] = memo.pop(tile)
        return forgotten

    def reinstate(self, entries: Memo) -> None:
        """Put back what `invalidate` returned, once M is again as it was."""
        self._memo.update(entries)  # `_met_by` only grows, so it still names them

    def _below(self, tile: int, materialised: Collection[int], depth: int) -> Found:
        """Cones of an operand tile: a load where its value is at hand, else computed."""
        loads, met = self._loads_of(tile)
        for source, load in loads:
            if source in self.inputs or source in materialised:
                return load, met
        if depth > MAX_DEPTH:
            return [], met
        cones, deeper = self._compute(tile, materialised, depth)
        return cones, met | deeper

    def _loads_of(self, tile: int) -> tuple[list[tuple[int, list[Cone]]], int]:
        """Loads of a tile, each as the one cone it is, and what they depend on."""
        found = self._loads.get(tile)
        if found is None:
            # Copies of inputs come first: they were made for what reads them.
            loads = sorted(self.forest.tiles[tile].loads, key=lambda c: c.source in self.inputs)
            found = self._loads[tile] = (
                [(c.source, [Cone({tile: c}, 1 << tile, self._mark(c))]) for c in loads],
                bits({choice.source for choice in loads} - self.inputs),
            )
        return found

    def _mark(self, choice: Choice) -> int:
        return self._bits.setdefault(id(choice), 1 << len(self._bits))

    def _compute(self, tile: int, materialised: Collection[int], depth: int) -> Found:
        found = self._memo.get(tile)
        if found is not None:
            return found
        found = self._seen.find(tile, self._members)
        if found is None:
            found = self._enumerated(tile, materialised, depth)
            if depth <= MAX_DEPTH and self._remembers:
                self._seen.keep(tile, met=found[1], members=self._members, answer=found)
        if depth <= MAX_DEPTH:
            self._note(tile, found)
        return found

    def _enumerated(self, tile: int, materialised: Collection[int], depth: int) -> Found:
        self.computed += 1
        cones: list[Cone] = []
        met = 0
        node = self.forest.tiles[tile]
        known = self._values is None or node.value in self._values
        for choice in node.compute if known else ():
            below = [
                self._below(c, materialised, depth + 1) for c in dict.fromkeys(choice.children)
            ]
            for _, deeper in below:
                met |= deeper
            plain = choice.kind == CELL and not choice.reduces
            own = {tile: choice}, 1 << tile, 0 if plain else self._mark(choice)
            cones += self._join(own, [c for c, _ in below])
        return _best(cones, self._kept()), met

    def _note(self, tile: int, found: Found) -> None:
        """Found for the present M."""
        self._memo[tile] = found
        before = self._met.get(tile, 0)
        if new := found[1] & ~before:
            self._met[tile] = before | new
            for p in members(new):
                self._met_by.setdefault(p, set()).add(tile)

    def _kept(self) -> int:
        """How many cones of a tile are kept by now."""
        if self._joined <= NARROWED[0][0]:
            return MAX_CONES
        return min(n for after, n in NARROWED if self._joined > after)

    def _join(self, own: tuple[Picks, int, int], below: Sequence[list[Cone]]) -> list[Cone]:
        """Combine the operands' cones; a tile met twice is computed once, the last way."""
        picks, tiles, marks = own
        several = [alternatives for alternatives in below if len(alternatives) != 1]
        cones = [Cone(*own)] if several else []
        for alternatives in several:
            self._joined += len(cones) * len(alternatives)
            cones = _merged(cones, alternatives, self._kept())
        only = [alternatives[0] for alternatives in below if len(alternatives) == 1]
        for _, more, marked in only:
            tiles, marks = tiles | more, marks | marked
        if not several:  # nearly always
            for one in only:
                picks.update(one.picks)
            return [Cone(picks, tiles, marks)] if tiles.bit_count() <= MAX_NODES else []
        if not only:
            return cones
        return [
            Cone(_united(c.picks, only), c.tiles | tiles, c.marks | marks)
            for c in cones
            if (c.tiles | tiles).bit_count() <= MAX_NODES
        ]


def _united(picks: Picks, others: Iterable[Cone]) -> Picks:
    united = picks.copy()
    for other in others:
        united.update(other.picks)
    return united


def _merged(cones: Sequence[Cone], others: Sequence[Cone], keep: int) -> list[Cone]:
    """`_best` of every cone with every other; only what is kept is put together."""
    pairs: dict[int, tuple[int, Cone, Cone]] = {}
    for cone, other in product(cones, others):
        tiles, marks = cone.tiles | other.tiles, cone.marks | other.marks
        if tiles.bit_count() > MAX_NODES:
            continue
        rival = pairs.setdefault(marks, (tiles, cone, other))
        if rival[1] is not cone or rival[2] is not other:
            picks = {**other.picks, **cone.picks}
            if _arithmetic(picks) < _arithmetic({**rival[2].picks, **rival[1].picks}):
                pairs[marks] = tiles, cone, other
    smallest = sorted(pairs.items(), key=lambda item: item[1][0].bit_count())[:keep]
    return [
        Cone({**other.picks, **cone.picks}, tiles, marks)
        for marks, (tiles, cone, other) in smallest
    ]


def _best(cones: Sequence[Cone], keep: int) -> list[Cone]:
    """The smallest cones, of those with equal marks the one with the least arithmetic."""
    if len(cones) < 2:
        return list(cones)
    kept: dict[int, Cone] = {}
    for cone in cones:
        other = kept.setdefault(cone.marks, cone)
        if other is not cone and _arithmetic(cone.picks) < _arithmetic(other.picks):
            kept[cone.marks] = cone
    return sorted(kept.values(), key=lambda c: c.size)[:keep]


def _arithmetic(picks: Picks) -> tuple[float, int]:
    return sum(c.vector for c in picks.values()), len(picks)


def used(forest: Forest, roots: Sequence[int], picks: Picks) -> list[int]:
    """Tile classes of a cone that its roots reach, users before operands."""
    order: list[int] = []
    seen: set[int] = set()
    stack = list(reversed(roots))
    while stack:
        tile = stack.pop()
        if tile < 0:
            order.append(~tile)
        elif tile not in seen:
            seen.add(tile)
            stack.append(~tile)
            stack.extend(picks[tile].children)
    order.reverse()
    return order


def loaded(root: int, picks: Picks) -> frozenset[int]:
    """Placed classes that a cone loads."""
    found, seen, stack = set(), {root}, [root]
    while stack:
        choice = picks[stack.pop()]
        if choice.kind == LOAD:
            found.add(choice.source)
        for tile in choice.children:
            if tile not in seen:
                seen.add(tile)
                stack.append(tile)
    return frozenset(found)


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


def loop_extents(
    forest: Forest, roots: Sequence[int], order: Sequence[int], picks: Picks
) -> dict[str, int]:
    """Letter -> extent of every loop of a cone.

    Loops run over results and over what is reduced; operands of which a part is read have more.
    """
    found: dict[str, int] = {}

    def run(tile: int, but: Collection[str] = ()) -> None:
        for letter, extent in forest.tiles[tile].extents.items():
            if letter not in but and found.get(letter, 0) < extent:
                found[letter] = extent

    for root in roots:
        run(root)
    for tile in order:
        if picks[tile].reduces:
            for child in picks[tile].children:
                run(child, forest.tiles[tile].letters)
    return found


def summarise(forest: Forest, roots: Sequence[int], picks: Picks, stored: Sequence[str]) -> Summary:
    """The figures of a cone with these root tiles; `stored` are the layouts they are stored in."""
    order = used(forest, roots, picks)
    reduced = reductions(forest, roots, picks)
    passes = sweeps(forest, order, picks)
    loads: list[Access] = []
    products: list[Work] = []
    vector: dict[str, float] = {}
    staged: list[Work] = []
    resident: list[tuple[int, str]] = []
    multiplied = [picks[t] for t in order if picks[t].product]
    fed = _fed(forest, multiplied, picks)
    parted, cut = partly_read(forest, order, picks), in_parts(forest, order, picks)
    computed = positions = parts = 0
    for tile in order:
        node, choice = forest.tiles[tile], picks[tile]
        times = passes.get(tile, 1)
        if choice.kind == LOAD:
            key = choice.layout, times, tile in fed, bool(multiplied)
            if key not in node.known:
                node.known[key] = access(node, *key)
            read = of_parts(node.known[key], parted.get(tile, []))
            if tile in cut:  # of a block it reads one part
                read = read._replace(letters=cut[tile].key, star=cut[tile].star)
            begins = fed.get(tile, ANY_ALIGNMENT)
            if begins < ANY_ALIGNMENT:
                read = read._replace(aligned=begins and gcd(read.aligned, begins))
            loads.append(read)
            continue
        computed += choice.kind == CELL
        if multiplied and choice.kind == GATHER:
            filled, whole = _filled(choice.text)
            positions += not (choice.children or filled)
            parts += bool(choice.children) and (filled or not whole)
            parts += _moves(choice.text) and _multiplies(choice.children, picks)
        if choice.product:
            products.append(
                Work(
                    choice.product * times,
                    choice.inside,
                    choice.dtype,
                    choice.structured,
                    node.star,
                    *_form(forest, node, choice, picks),
                )
            )
            resident.append((node.star, node.key))
            made = computed_operands(forest, choice, picks)
            staged += [Work(float(t.type.size * times), t.key) for t in made]
        if choice.vector:
            vector[choice.inside] = vector.get(choice.inside, 0.0) + choice.vector * times
    stores = tuple(
        access(forest.tiles[r], text, 1, False, bool(multiplied))
        for r, text in zip(roots, stored, strict=True)
    )
    return Summary(
        tuple(sorted(loop_extents(forest, roots, order, picks).items())),
        tuple(sorted(loads, key=_load_order)),
        stores,
        tuple(products),
        tuple(Work(flops, letters) for letters, flops in sorted(vector.items())),
        tuple(sorted(resident)),
        tuple(staged),
        computed,
        reduced.folds,
        reduced.spaces,
        positions,
        parts,
        _order(stores[0]),
        *reads(forest, roots, order, picks, stored),
        monoids=monoids(order, picks),
        cells=_cells(forest, roots, order, picks) if multiplied else 0.0,
        formula=(
            formula(forest, roots, order, picks, stored)
            if (positions or len(roots) > 1) and any(c.structured for c in multiplied)
            else None
        ),
        mixed=_mixed(forest, roots, picks, stored),
    )


def _mixed(
    forest: Forest, roots: Sequence[int], picks: Picks, stored: Sequence[str]
) -> Summary | None:
    """The figures of the one root of several that a structured reduction of products reaches."""
    if len(roots) < 2 or not any(c.structured and c.product for c in picks.values()):
        return None
    found = [
        (root, text)
        for root, text in zip(roots, stored, strict=True)
        if any(picks[t].structured for t in used(forest, [root], picks))
    ]
    return summarise(forest, [found[0][0]], picks, [found[0][1]]) if len(found) == 1 else None


def _cells(forest: Forest, roots: Sequence[int], order: Sequence[int], picks: Picks) -> float:
    """Operations of the cells after the products, for one element of every result.

    A lower bound of what kernels evaluate: a value that moves may be there several times, and a
    last cast is the rounding of the store.
    """
    after, stored, total = set(roots), set(roots), 0.0
    for tile in order:
        choice = picks[tile]
        if tile not in after or choice.reduces:
            continue
        after.update(choice.children)
        if choice.kind != CELL:
            continue
        if tile in stored and cell(choice.cell)[0].result == "param":
            stored.update(choice.children)
            continue
        total += choice.vector / forest.tiles[tile].type.size
    return total


def _order(access: Access) -> tuple[tuple[str, int], ...]:
    """(letter, extent) of the dims of an access, slow to fast, each where it is fastest."""
    found: dict[str, int] = {}
    for letter, extent, _ in sorted(access.strides, key=lambda dim: -abs(dim[2])):
        found[letter] = extent * found.pop(letter, 1)
    return tuple(found.items())


@cache
def _moves(text: str) -> bool:
    """Whether a selector gives elements in another order, or not all: no view."""
    return selector(text)[0].inverse is None


def _multiplies(tiles: Sequence[int], picks: Picks) -> bool:
    """Whether a sum of products is among what some tiles are computed from.

    Its operands are then read at other places than its own tile says.
    """
    seen, stack = set(tiles), list(tiles)
    while stack:
        choice = picks[stack.pop()]
        if choice.product:
            return True
        stack += set(choice.children) - seen
        seen.update(choice.children)
    return False


@cache
def _filled(text: str) -> tuple[bool, bool]:
    """Whether a selector fills what no operand gives, and whether it takes one operand alone."""
    declared, params = selector(text)
    return declared.fill is not None and declared.fill(params) is not None, declared.arity == 1


def _form(forest: Forest, tile: TileClass, choice: Choice, picks: Picks) -> Form:
    """`dtypes`, `reduced`, `crossed` and `kept` of a product, as in `Work`."""
    ends = tuple(as_it_lies(forest, c, picks) for c in choice.children)
    key = choice.text, choice.children, ends, tuple(picks[end].layout for end in ends)
    if key not in tile.known:
        types = tuple(forest.tiles[c].type for c in choice.children)
        lying = []
        for child, end in zip(choice.children, ends, strict=True):
            shape, layout = forest.tiles[end].type.shape, picks[end].layout
            dims = contiguous(layout, shape) if layout else ()
            lying.append(seen_through(forest, child, picks, dims) if dims else ())
        tile.known[key] = _form_of(choice.text, types, tuple(lying), tile.box)
    found: Form = tile.known[key]
    return found


def _form_of(
    text: str, types: Sequence[ValueType], lying: Sequence[Sequence[int]], box: str
) -> Form:
    """The same of operands of these types, each contiguous along such dims, in a box."""
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
    return dtypes, tuple(extents[i] for i in parsed.reduced), len(along) > 1, kept


def _reads(operand: Sequence[Affine], dim: int) -> bool:
    """Whether an operand of a signature depends on an index dim."""
    return any(d == dim for projection in operand for d, _ in projection.terms)


def _load_order(access: Access) -> tuple[object, ...]:
    feeds = access.feeds_product
    place = access.aligned, access.strides, access.offset, access.fast
    return access.letters, access.n_bytes, access.star, access.passes, feeds, *place


def _fed(forest: Forest, products: Sequence[Choice], picks: Picks) -> dict[int, int]:
    """Loads that products read, each with the bytes that divide where the parts of it begin."""
    found: dict[int, int] = {}
    for child in (c for choice in products for c in through_tiles(choice)):
        end, begins = as_it_lies(forest, child, picks), ANY_ALIGNMENT
        if end != child:
            begins = apart(forest, child, picks) * forest.tiles[end].type.itemsize
        before = found.get(end, ANY_ALIGNMENT)
        found[end] = min(before, begins) and gcd(before, begins)
    return found

"""Cones: the tile values that become one kernel.

A cone goes from root tiles down to loads of values that are kept in memory. `Cones` lists the ways
to compute a root, given which values are kept. `figures` works out what a cost model sees of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from operator import attrgetter

from axe_eq.extract.read.forest import CELL, LOAD, Choice, Forest
from axe_eq.extract.search.recall import Recall, bits, members

MAX_NODES = 40
MAX_CONES = 12
# Pairs of cones put together until fewer are kept of each tile, and how many then: deep graphs of
# operators that all fuse, such as scans, would take minutes. Programs of 1000 operators take 0.3e6.
NARROWED = ((500_000, 4), (1_500_000, 2))
MAX_DEPTH = 40

Picks = dict[int, Choice]


@dataclass(eq=False)
class Cone:
    """One way to compute a tile inside a kernel.

    Attributes:
        picks: alternative taken for every tile class of the cone.
        tiles: those tile classes, as bits: what a merged cone would hold is counted without it.
        marks: its loads, reductions and gathers, as bits; all else are cells. Of cones with equal
            marks only the one with the least arithmetic can be the cheapest.
    """

    picks: Picks
    tiles: int
    marks: int

    @property
    def size(self) -> int:
        """Number of tile classes."""
        return self.tiles.bit_count()

    @cached_property
    def work(self) -> tuple[float, int]:
        """Its arithmetic; counted once, as a cone is compared under many sets M."""
        return _arithmetic(self.picks)


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

    def of(self, root: int, materialised: Collection[int], copied: bool = False) -> Found:
        """Cones of a root tile (computed, not loaded), and the placed classes met on the way.

        Nothing computes an input: its cones copy it from where it arrives. A value that may be
        `copied` may also be loaded from another place where it is kept.
        """
        if not self.forest.tiles[root].compute:
            loads = self._loads_of(root)[0]
            return [c for source, load in loads if source in self.inputs for c in load], 0
        self._members = bits(materialised) if self._remembers else 0
        cones, met = self._compute(root, materialised, 0)
        if copied:
            loads, more = self._loads_of(root)
            cones = cones + [c for source, load in loads if source in materialised for c in load]
            met |= more
        return cones, met

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
        for one in only:
            tiles, marks = tiles | one.tiles, marks | one.marks
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
    """`_best` of every cone with every other; only what is kept is put together.

    There the arithmetic of two is that of each.
    """
    pairs: dict[int, tuple[int, Cone, Cone]] = {}
    least_work: dict[int, tuple[float, int]] = {}  # of those that had a rival
    for cone, other in product(cones, others):
        tiles, marks = cone.tiles | other.tiles, cone.marks | other.marks
        if tiles.bit_count() > MAX_NODES:
            continue
        rival = pairs.setdefault(marks, (tiles, cone, other))
        if rival[1] is not cone or rival[2] is not other:
            if marks not in least_work:
                least_work[marks] = _arithmetic({**rival[2].picks, **rival[1].picks})
            work = _arithmetic({**other.picks, **cone.picks})
            if work < least_work[marks]:
                pairs[marks], least_work[marks] = (tiles, cone, other), work
    smallest = sorted(pairs.items(), key=lambda item: item[1][0].bit_count())
    if len(smallest) > keep:
        least = min(smallest[keep:], key=lambda pair: pair[1][1].work[0] + pair[1][2].work[0])
        smallest = [*smallest[:keep], least]
    return [
        Cone({**other.picks, **cone.picks}, tiles, marks)
        for marks, (tiles, cone, other) in smallest
    ]


def _best(cones: Sequence[Cone], keep: int) -> list[Cone]:
    """The smallest cones, of those with equal marks the one with the least arithmetic.

    And of the others the one with the least: what merges parts is more tiles than what reads all
    anew, and far less work.
    """
    if len(cones) < 2:
        return list(cones)
    kept: dict[int, Cone] = {}
    for cone in cones:
        other = kept.setdefault(cone.marks, cone)
        if other is not cone and cone.work < other.work:
            kept[cone.marks] = cone
    found = sorted(kept.values(), key=lambda c: c.size)
    rest = found[keep:]
    return [*found[:keep], min(rest, key=lambda c: c.work)] if rest else found


_vector = attrgetter("vector")


def _arithmetic(picks: Picks) -> tuple[float, int]:
    return sum(map(_vector, picks.values())), len(picks)


def used(roots: Sequence[int], picks: Picks) -> list[int]:
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
    found = (picks[tile] for tile in used([root], picks))
    return frozenset(choice.source for choice in found if choice.kind == LOAD)


def loop_extents(
    forest: Forest, roots: Sequence[int], order: Sequence[int], picks: Picks
) -> dict[str, int]:
    """Letter -> extent of every loop of a cone.

    Loops run over results and over reduced dims. An operand of which only a part is read may be
    longer than the loop.
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

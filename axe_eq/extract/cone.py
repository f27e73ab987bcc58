"""Cones: the tile values that become one kernel, and the figures that price them.

A cone goes from root tiles down to loads of materialised values. `Cones` enumerates the alternatives of a root
under a set of materialised classes; `summarise` reduces a cone to a hashable `Summary` in which everything a
cost model may look at is a number per loop letter, so equal kernels are priced once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product

from axe_eq.extract.forest import CELL, LOAD, Choice, Forest
from axe_eq.schedule.box import STREAM_LETTERS
from axe_eq.schedule.summary import Access, Summary, Work

MAX_NODES = 64
MAX_CONES = 12
MAX_DEPTH = 40

Picks = dict[int, Choice]
Memo = dict[int, tuple[list[Picks], frozenset[int]]]


class Cones:
    """Enumerates cones; remembers per tile class what it met, so that a change of M drops only what it must."""

    def __init__(self, forest: Forest, inputs: Collection[int]) -> None:
        self.forest = forest
        self.inputs = frozenset(inputs)
        self._memo: Memo = {}
        self._met_by: dict[int, set[int]] = {}

    def of(self, root: int, materialised: Collection[int]) -> tuple[list[Picks], frozenset[int]]:
        """Cones of a root tile (computed, not loaded) and the placed classes met on the way."""
        return self._compute(root, materialised, 0)

    def invalidate(self, placed: Collection[int]) -> Memo:
        """Forget what depends on whether these classes are materialised; returns it, for `reinstate`."""
        forgotten: Memo = {}
        for p in placed:
            for tile in self._met_by.pop(p, ()):
                entry = self._memo.pop(tile, None)
                if entry is not None:
                    forgotten[tile] = entry
        return forgotten

    def reinstate(self, entries: Memo) -> None:
        """Put back what `invalidate` returned, once M is again as it was."""
        for tile, entry in entries.items():
            self._remember(tile, entry)

    def _remember(self, tile: int, entry: tuple[list[Picks], frozenset[int]]) -> None:
        self._memo[tile] = entry
        for p in entry[1]:
            self._met_by.setdefault(p, set()).add(tile)

    def _below(
        self, tile: int, materialised: Collection[int], depth: int
    ) -> tuple[list[Picks], frozenset[int]]:
        """Cones of an operand tile: a load where its value is at hand, else computed."""
        node = self.forest.tiles[tile]
        met = frozenset(c.source for c in node.loads)
        for choice in node.loads:
            if choice.source in self.inputs or choice.source in materialised:
                return [{tile: choice}], met - self.inputs
        if depth > MAX_DEPTH:
            return [], met
        cones, deeper = self._compute(tile, materialised, depth)
        return cones, met | deeper

    def _compute(
        self, tile: int, materialised: Collection[int], depth: int
    ) -> tuple[list[Picks], frozenset[int]]:
        found = self._memo.get(tile)
        if found is not None:
            return found
        cones: list[Picks] = []
        met: frozenset[int] = frozenset()
        for choice in self.forest.tiles[tile].compute:
            below = [
                self._below(c, materialised, depth + 1) for c in dict.fromkeys(choice.children)
            ]
            met = met.union(*(m for _, m in below))
            cones += self._join(tile, choice, [c for c, _ in below])
        cones.sort(key=len)
        found = (cones[:MAX_CONES], met)
        if depth <= MAX_DEPTH:
            self._remember(tile, found)
        return found

    @staticmethod
    def _join(tile: int, choice: Choice, below: Sequence[list[Picks]]) -> list[Picks]:
        """Combine the operands' cones; a tile met twice is computed once, the first way."""
        cones: list[Picks] = [{tile: choice}]
        for alternatives in below:
            cones = [{**cone, **base} for base, cone in product(cones, alternatives)]
            cones = [c for c in cones if len(c) <= MAX_NODES]
            cones.sort(key=len)
            cones = cones[:MAX_CONES]
        return cones


def used(forest: Forest, roots: Sequence[int], picks: Picks) -> list[int]:
    """Tile classes of a cone that its roots reach, users before operands."""
    order: list[int] = []
    seen: set[int] = set()
    stack = [(r, False) for r in reversed(roots)]
    while stack:
        tile, ready = stack.pop()
        if ready:
            order.append(tile)
        elif tile not in seen:
            seen.add(tile)
            stack.append((tile, True))
            stack.extend((c, False) for c in picks[tile].children)
    return order[::-1]


def sweeps(forest: Forest, order: Sequence[int], picks: Picks) -> dict[int, frozenset[int]]:
    """In which sweeps of the streaming loop every tile is needed (0 for tiles outside any).

    A reduction over a streaming letter ends a sweep; a tile that uses its result inside a streaming box needs
    another one. That is why softmax over a streamed row takes more than one pass.
    """
    level: dict[int, int] = {}
    for tile in reversed(order):
        inner = 0
        for child in picks[tile].children:
            ends = _streaming(forest, child) and not _streaming(forest, tile)
            inner = max(inner, level[child] + (1 if ends else 0))
        level[tile] = inner
    needed: dict[int, set[int]] = {tile: set() for tile in order}
    for tile in order:
        for child in picks[tile].children:
            if not _streaming(forest, child):
                continue
            if _streaming(forest, tile):
                needed[child] |= {max(s, level[child]) for s in needed[tile] or {level[tile]}}
            else:
                needed[child].add(level[tile] - 1)
    return {tile: frozenset(s) for tile, s in needed.items()}


def _streaming(forest: Forest, tile: int) -> bool:
    return not forest.tiles[tile].letters.isdisjoint(STREAM_LETTERS)


def summarise(forest: Forest, roots: Sequence[int], picks: Picks) -> Summary:
    """The figures of a cone with these root tiles."""
    order = used(forest, roots, picks)
    passes = sweeps(forest, order, picks)
    extents: dict[str, int] = {}
    loads: list[Access] = []
    products: list[Work] = []
    vector: list[Work] = []
    staged: list[Work] = []
    resident: list[tuple[int, str]] = []
    fed = {c for t in order if picks[t].product for c in picks[t].children}
    for tile in order:
        node, choice = forest.tiles[tile], picks[tile]
        for letter, extent in node.extents.items():
            extents[letter] = max(extent, extents.get(letter, 1))
        times = max(1, len(passes[tile]))
        letters = "".join(sorted(node.letters))
        if choice.kind == LOAD:
            loads.append(
                Access(
                    node.type.n_bytes, letters, node.star, node.type.itemsize, times, tile in fed
                )
            )
        else:
            inside = "".join(
                sorted(node.letters.union(*(forest.tiles[c].letters for c in choice.children)))
            )
            if choice.product:
                products.append(
                    Work(choice.product * times, inside, choice.dtype, choice.structured, node.star)
                )
                resident.append((node.star, letters))
                staged += _staged(forest, choice, picks, times)
            if choice.vector:
                vector.append(Work(choice.vector * times, inside))
    stores = tuple(
        Access(t.type.n_bytes, "".join(sorted(t.letters)), t.star, t.type.itemsize)
        for t in (forest.tiles[r] for r in roots)
    )
    computed = sum(picks[t].kind == CELL for t in order)
    return Summary(
        tuple(sorted(extents.items())), _merged(loads), stores, tuple(products), _added(vector),
        tuple(sorted(resident)), _added(staged), computed,
    )  # fmt: skip


def _staged(forest: Forest, choice: Choice, picks: Picks, times: int) -> list[Work]:
    """Operands of a product that the kernel computes itself: they pass through tile memory."""
    if choice.structured:
        return []
    made = (forest.tiles[c] for c in choice.children if picks[c].kind != LOAD)
    return [Work(float(t.type.size * times), "".join(sorted(t.letters))) for t in made]


def _merged(loads: Sequence[Access]) -> tuple[Access, ...]:
    return tuple(
        sorted(loads, key=lambda a: (a.letters, a.n_bytes, a.star, a.passes, a.feeds_product))
    )


def _added(works: Sequence[Work]) -> tuple[Work, ...]:
    total: dict[str, float] = {}
    for work in works:
        total[work.letters] = total.get(work.letters, 0.0) + work.flops
    return tuple(Work(flops, letters) for letters, flops in sorted(total.items()))

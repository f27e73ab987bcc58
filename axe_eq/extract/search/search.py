"""Technology mapping: choose which values to materialise, and with that every kernel.

The state is M, the set of values that are kept in memory. A kernel is the cheapest cone from a
member of M down to other members and inputs. A schedule costs the sum of the kernels that its
outputs need: work that is shared through memory counts once, and work that is done again counts
each time. Of small graphs every M is tried. Of larger ones values are toggled, sunk and swapped
until nothing gains; those of moderate size begin at two places, and then change several values at
once. Everything is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace
from itertools import chain, combinations

from axe_eq.errors import SearchError
from axe_eq.extract.price.cone import Cones, Memo, Picks, loaded
from axe_eq.extract.price.priced import Prices
from axe_eq.extract.price.pricer import Price
from axe_eq.extract.read.forest import Forest, PlacedClass
from axe_eq.extract.search.recall import Recall, bits, members
from axe_eq.extract.search.running import TOLERANCE_S, Running, Trail
from axe_eq.extract.search.selection import Mapped, Selection
from axe_eq.schedule.kept import PADDED, kept_layouts
from axe_eq.schedule.terms import row_major
from axe_eq.walk import in_order

EXACT_VALUES = 12
NEAR_VALUES = 5
MODERATE_VALUES = 24
PASSES = 6
SHORT_ROW = 256
SINK_LEAVES, SINK_OTHERS = 4, 1
SWAPPED = 4
REMEMBERED = 256
# Tile classes that a descent may enumerate, and more per value of the program's text, before it
# ends where it is: random graphs of 1000 operators take 170 a value.
WORK, WORK_PER_VALUE = 20_000, 200
ROUNDING = 1e-9  # of sums that are taken in another order
INFINITE = float("inf")

End = tuple[float, frozenset[int]]
"""What a schedule costs, and the values that it keeps."""


@dataclass(frozen=True)
class Undo:
    """What a change of M made forget."""

    kernels: dict[int, Mapped]
    cones: Memo


class Search:
    """One search over the forest of some prices."""

    def __init__(self, prices: Prices) -> None:
        self.forest, self.prices = prices.forest, prices
        forest = prices.forest
        self.inputs = frozenset(i for i, p in enumerate(forest.placed) if p.buffers)
        # A value that is an input needs no kernel: where an output wants it elsewhere it is moved.
        # Only where kernels may want it in another order it is copied first.
        wanted = set(forest.roots)
        copies = {
            i
            for i, p in enumerate(forest.placed)
            if p.moves and (i in wanted or i not in forest.users or _stays(p))
        }
        made = {i for i, p in enumerate(forest.placed) if p.kernels} - self.inputs - copies
        self.roots = frozenset(r for r in forest.roots if r in made)
        padded = PADDED in prices.pricer.target.kept
        self.values = sorted(v for v in made - self.roots if padded or not _is_padded(forest, v))
        # Results that lie as no kernel but one of cells may store them are copied there.
        self.blocked = frozenset(r for r in self.roots if not _in_order(forest, r))
        # Sets that differ in few values have most kernels in common: of small graphs all are kept.
        small = len(self.values) <= EXACT_VALUES
        remembered = 1 << EXACT_VALUES if small else REMEMBERED
        moderate = len(self.values) <= MODERATE_VALUES
        self.cones = Cones(forest, self.inputs, remembered=remembered if moderate else 0)
        self.own = [v for v in self.values if forest.is_named(v)]
        self._value_set = frozenset(self.values)
        self.materialised: set[int] = set(self.values) | set(self.roots)
        self.kernels: dict[int, Mapped] = {}
        self.users: dict[int, set[int]] = {}
        self.evaluated = 0
        self.cut = False
        self.running = Running(self.inputs)
        self._members = bits(self.materialised)
        self._seen = Recall[Mapped](remembered)
        self._by_cut = [self._root_tiles(p) for p in range(len(forest.placed))]
        self._clock, self._reads = 0, True
        self._changed: dict[int, int] = {}
        self._tried: dict[tuple[int, str], int] = {}

    # --- kernels
    # --------------------------------------------------------------------------------------------

    def _root_tiles(self, placed: int) -> list[int]:
        """Root tiles of a class, those without any cut last."""
        tiles = self.forest.tiles
        return sorted(self.forest.placed[placed].kernels, key=lambda r: not tiles[r].letters)

    def best_kernel(self, placed: int, read: bool) -> Mapped:
        """The cheapest cone of a class under the present M, by figures or as schedules read it."""
        self.evaluated += 1
        offers: list[tuple[float, int, bool, int, Picks]] = []
        met = 0
        stored = self.forest.layout_of(placed)
        for root in self._by_cut[placed]:
            if offers and not self.forest.tiles[root].letters:
                break  # one block for everything is for what nothing else can do
            cones, below = self.cones.of(root, self.materialised, placed in self.blocked)
            met |= below
            for cone in cones:
                picks = cone.picks
                if not self._worth_whole(root, picks) or _loads(picks, placed):
                    continue
                price = self.prices.estimate([root], picks, [stored])
                if price.time_s < INFINITE:
                    offers.append((price.time_s, len(offers), False, root, picks))
        depends = frozenset(members(met))
        heapify(offers)
        while offers:  # until the cheapest has been read
            _, number, is_read, root, picks = offers[0]
            asked = self.prices.price if read else self.prices.estimate
            price = asked([root], picks, [stored])
            if is_read or not read:
                return Mapped(placed, price, root, picks, loaded(root, picks), depends)
            if price.time_s < INFINITE:
                heapreplace(offers, (price.time_s, number, True, root, picks))
            else:
                heappop(offers)
        return Mapped(placed, Price(INFINITE), met=depends)

    def _worth_whole(self, root: int, picks: Picks) -> bool:
        """Whether keeping the last dim whole in every block may pay, against cutting it in blocks.

        Graphs that are solved exactly try everything. In others, only row reductions and structured
        monoids use a whole row; plain products may keep a short one. Every root has its twin that
        cuts the dim, so nothing becomes impossible.
        """
        star = self.forest.tiles[root].star
        small = len(self.values) <= EXACT_VALUES
        if small or star == 1 or not self.forest.tiles[root].letters:
            return True
        if any(c.reduces and (c.structured or not c.product) for c in picks.values()):
            return True
        return star <= SHORT_ROW and any(c.product for c in picks.values())

    def kernel(self, placed: int) -> Mapped:
        """As `best_kernel`, remembered: it depends on M only by the classes it met."""
        found = self.kernels.get(placed)
        if found is None:
            found = self._seen.find(placed, self._members) or self._first(placed)
            self.kernels[placed] = found
        return found

    def _first(self, placed: int, read: bool = False) -> Mapped:
        mapped = self.best_kernel(placed, read)
        for p in mapped.met:
            self.users.setdefault(p, set()).add(placed)
        self._seen.keep(placed, met=bits(mapped.met), members=self._members, answer=mapped)
        return mapped

    def set_materialised(self, changes: Iterable[int]) -> Undo:
        """Flip membership of classes; returns what was forgotten, for `restore`."""
        flipped = list(changes)
        forgotten = self.cones.invalidate(flipped)
        dropped: dict[int, Mapped] = {}
        for p in flipped:
            self.materialised ^= {p}
            self._members ^= 1 << p
            for user in self.users.get(p, ()):
                if user in self.kernels and p in self.kernels[user].met:
                    dropped[user] = self.kernels.pop(user)
        return Undo(dropped, forgotten)

    def restore(self, changes: Iterable[int], undo: Undo) -> None:
        """Undo `set_materialised`."""
        self.set_materialised(changes)
        self.kernels.update(undo.kernels)
        self.cones.reinstate(undo.cones)

    # --- whole schedules
    # ------------------------------------------------------------------------------------

    def total(self, bound: float = INFINITE) -> float:
        """Cost of everything the outputs need under the present M, whose kernels are read.

        Infinite above the bound, and where kernels wait for each other in a circle.
        """
        if bound < INFINITE and self._exceeds(bound):
            return INFINITE
        cost = self._estimate(bound)
        while cost < INFINITE and self._read():
            cost = self._estimate(bound)
        return cost

    def _estimate(self, bound: float = INFINITE) -> float:
        """The same by figures, as far as kernels have not been read."""
        cost = 0.0
        for mapped in self._walk():
            if mapped is None:
                return INFINITE
            cost += mapped.time_s
            if cost > bound or cost == INFINITE:
                return INFINITE
        return cost

    def _exceeds(self, bound: float) -> bool:
        """Whether some of the kernels that the outputs need cost more by themselves.

        Those that a change of M left as they were are counted first: of a change that does not pay,
        few others are worked out.
        """
        cost, bound = 0.0, bound * (1 + ROUNDING)
        met = set(self.roots)
        known = [r for r in sorted(met) if r in self.kernels]
        changed = sorted(met.difference(known))
        while known or changed:
            mapped = self.kernel((known or changed).pop())
            cost += mapped.time_s
            if cost > bound:
                return True
            new = sorted(mapped.leaves - self.inputs - met)
            met.update(new)
            for placed in new:
                (known if placed in self.kernels else changed).append(placed)
        return False

    def keeping(self, values: Collection[int]) -> float:
        """Cost with those of some values in memory that there are here."""
        self._become(self._value_set.intersection(values) | self.roots)
        return self.total()

    def begin_as(self, other: Search, more: Mapping[int, Collection[int]]) -> float:
        """Go where another search of the same forest is, less classes that only this one has.

        None of these is in memory, so the kernels are the same, known without a search for them.

        Args:
            other: at its end.
            more: placed class -> those that may be loaded only here wherever it may be.
        """
        self._become(frozenset(other.materialised))
        for placed, mapped in other.live().items():
            met = mapped.met.union(*(more[p] for p in mapped.met & more.keys()))
            self.kernels[placed] = replace(mapped, met=met)
            for p in met:
                self.users.setdefault(p, set()).add(placed)
        return self.total()

    def flipped(self, flips: Sequence[int], bound: float) -> float | None:
        """The cost with the membership of some classes flipped, if that is below a bound.

        Else None, and nothing is flipped.
        """
        undo = self.set_materialised(flips)
        cost = self.total(bound)
        if cost < bound:
            return cost
        self.restore(flips, undo)
        return None

    def _walk(self) -> Iterator[Mapped | None]:
        """Kernels the outputs need, operands before users; None where they go in a circle."""
        below = lambda placed: sorted(self.kernel(placed).leaves - self.inputs)  # noqa: E731
        for placed in in_order(sorted(self.roots), below):
            yield None if placed is None else self.kernels[placed]

    def live(self) -> dict[int, Mapped]:
        """Kernels the outputs need, operands before users.

        Raises:
            SearchError: they wait for each other in a circle.
        """
        order: dict[int, Mapped] = {}
        for mapped in self._walk():
            if mapped is None:
                raise SearchError("kernels", "wait for each other in a circle", "an order")
            order[mapped.placed] = mapped
        return order

    def selection(self, exact: bool = False) -> Selection:
        """The schedule under the present M.

        Raises:
            SearchError: an output has no kernel at all (no demand law, or nothing implements it).
        """
        while self._read():
            pass
        kernels = self.live()
        for placed, mapped in kernels.items():
            if mapped.root < 0:
                raise SearchError(
                    f"value {self.forest.type_of(placed)}", "has no kernel: " + _why(self, placed),
                    "a demand law and a schedule that accept it",
                )  # fmt: skip
        return Selection(kernels, sum(m.time_s for m in kernels.values()), exact, self.cut)

    # --- the search
    # -----------------------------------------------------------------------------------------

    def run(self, progress: Callable[[str], None] = lambda _: None) -> Selection:
        """The best schedule found."""
        for output in self.forest.roots:
            if output not in self.inputs and not self._answered(output):
                raise SearchError(
                    f"output {self.forest.type_of(output)}", "no law answers its request",
                    "a pack of demand laws, such as tiling",
                )  # fmt: skip
        if len(self.values) <= EXACT_VALUES:
            return self._exact()
        if len(self.values) > MODERATE_VALUES:
            if 2 * len(self.own) < len(self.values):
                self._start_plain(progress)
            self._descend(progress)
            if self.total() == INFINITE:  # figures led where nothing can be written
                self._become(frozenset(self.values) | self.roots)
                self._changed.clear()
                self._tried.clear()
                self._descend(progress, reads=True)
            return self.selection()
        # From everything in memory and from the least that works: each ends in other optima.
        ends = [self._settled(start, progress) for start in (self.values, self._least())]
        best = min(ends, key=_cost)
        self._become(best[1])
        rounds = 1
        while (self._exchange() or self._read()) and rounds < PASSES:
            best, rounds = min(best, self._end(), key=_cost), rounds + 1
        self._become(min(best, self._end(), key=_cost)[1])
        return self.selection()

    def _least(self) -> list[int]:
        """Values that must stay, taken out one after the other while every kernel exists."""
        self._become(frozenset(self.values) | self.roots)
        for value in self.values:
            undo = self.set_materialised([value])
            if self._estimate() == INFINITE:
                self.restore([value], undo)
        return sorted(self.materialised - self.roots)

    def _settled(self, start: Collection[int], progress: Callable[[str], None]) -> End:
        """Where a descent from a start ends, or the start where it was cheaper.

        A move is taken by figures, and kernels are read later: they may turn out dearer.
        """
        self._become(frozenset(start) | self.roots)
        first = self._end()
        self._changed.clear()
        self._tried.clear()
        self._descend(progress)
        return min(first, self._end(), key=_cost)

    def _end(self) -> End:
        """The present M, and what it costs."""
        return self.total(), frozenset(self.materialised)

    def _start_plain(self, progress: Callable[[str], None]) -> None:
        """Go where a descent ends that computes the values of the program's text alone.

        Laws make a value for every sum of the shifts of a scan; a descent from all of them is cut
        short before it has seen the program's own, which are few.
        """
        plain = Search(self.prices)
        plain.cones = Cones(self.forest, self.inputs, self.forest.names)
        plain.values = self.own
        plain._become(frozenset(self.own) | self.roots)
        if plain._estimate() < INFINITE:
            plain._descend(progress)
            self.evaluated += plain.evaluated
            self._become(frozenset(plain.materialised))
            if self._estimate() == INFINITE:  # what is cheaper with more values waits in a circle
                self._become(frozenset(self.values) | self.roots)

    def _become(self, wanted: frozenset[int]) -> None:
        self.set_materialised(sorted(wanted ^ self.materialised))

    def _descend(self, progress: Callable[[str], None], reads: bool = False) -> None:
        """Moves of single values, until none makes the schedule cheaper."""
        for number in range(PASSES):
            progress(f"pass {number}, {self.evaluated} kernels priced")
            self._drop_dead()
            self._reads = reads or number > 0
            before = self._clock
            for value in reversed(self.values) if number % 2 == 0 else self.values:
                if self.cones.computed > WORK + WORK_PER_VALUE * len(self.own):
                    self.cut = True
                    return
                # The others wait for the second pass: most of what they find, toggling finds first.
                if not self._toggle(value) and number:
                    _ = self._sink(value) or self._swap(value)
            if number and before == self._clock and not self._read():
                break

    def _read(self) -> bool:
        """Read the kernels that were taken by figures alone; whether there were any."""
        taken = [m.placed for m in self.live().values() if m.price.estimated]
        self._clock += bool(taken)
        for placed in taken:
            mapped = self.kernels[placed] = self._first(placed, read=True)
            near = placed, *mapped.met, *mapped.leaves
            self._changed.update(dict.fromkeys(near, self._clock))
        return bool(taken)

    def _answered(self, placed: int) -> bool:
        node = self.forest.placed[placed]
        return bool(node.kernels or node.moves)

    def _exact(self) -> Selection:
        """All subsets, by depth-first flips so that neighbours share kernels."""
        best, chosen = self.total(), frozenset(self.materialised)
        previous = 0
        for code in range(1, 1 << len(self.values)):
            gray = code ^ (code >> 1)
            bit = (gray ^ previous).bit_length() - 1
            previous = gray
            self.set_materialised([self.values[bit]])
            cost = self.total(best)
            if cost < best - TOLERANCE_S:
                best, chosen = cost, frozenset(self.materialised)
        self._become(chosen)
        return self.selection(exact=True)

    def _drop_dead(self) -> None:
        """Take out the members of M that no output needs: they cost nothing and hide gains."""
        self.set_materialised(sorted(self.materialised - set(self.live())))
        self.running.start(self.roots, self.live().values())

    def _affected(self, placed: int) -> list[int]:
        live = self.running.live
        return [u for u in self.users.get(placed, ()) if u in live and placed in live[u].met]

    def _due(self, value: int, move: str) -> bool:
        """Whether anything near a value changed since this move was last tried on it."""
        tried = self._tried.get((value, move), -1)
        self._tried[value, move] = self._clock
        return self._changed.get(value, 0) > tried

    def _gain(self, flips: Collection[int]) -> bool:
        """Flip these if the whole schedule gets cheaper; else leave M as it was.

        What is cheaper by figures alone is read first, but in a first pass: figures are bounds, and
        one that no candidate reaches would be taken again and again.
        """
        undo, before = self.set_materialised(flips), self.running.cost
        trails = [self.running.change(sorted(undo.kernels), self.kernel)]
        while self.running.cost.below(before) and not self.running.circular(trails[-1]):
            unread = self._unread(trails[-1]) if self._reads else []
            if not unread:
                self._note(trails)
                return True
            for placed in unread:
                self.kernels[placed] = self._first(placed, read=True)
            trails.append(self.running.change(unread, self.kernel))
        for trail in reversed(trails):
            self.running.undo(trail)
        self.restore(flips, undo)
        return False

    def _unread(self, trail: Trail) -> list[int]:
        """Live kernels of a change whose prices are figures alone."""
        live = self.running.live
        return [p for p in trail.kernels if p in live and live[p].price.estimated]

    def _note(self, trails: Iterable[Trail]) -> None:
        """Kernels changed: moves near them may pay now."""
        self._clock += 1
        for placed, old in (kernel for trail in trails for kernel in trail.kernels.items()):
            for mapped in (old, self.running.live.get(placed)):
                near = mapped.met | mapped.leaves if mapped else ()
                self._changed.update(dict.fromkeys((placed, *near), self._clock))

    def _toggle(self, value: int) -> bool:
        due = self._due(value, "toggle")
        return due and bool(self._affected(value)) and self._gain([value])

    def _sink(self, value: int) -> bool:
        """Materialise a value and stop materialising what its kernel and few others load."""
        due = value not in self.materialised and self._due(value, "sink")
        users = self._affected(value) if due else []
        if not users:
            return False
        undo = self.set_materialised([value])
        own = [
            p
            for p in sorted(self.kernel(value).leaves)
            if p in self.materialised - self.roots and self.running.others(p, users) <= SINK_OTHERS
        ]
        self.restore([value], undo)
        return bool(own) and len(own) <= SINK_LEAVES and self._gain([value, *own])

    def _swap(self, value: int) -> bool:
        """Materialise another value in place of this one, which its users can be made of.

        A kernel loads what makes it cheapest itself, however dear that is to make.
        """
        if value not in self.materialised or not self._due(value, "swap"):
            return False
        met = {p for u in self._affected(value) for p in self.running.live[u].met}
        others = [
            p for p in sorted(met & self._value_set - self.materialised)
            if self.kernel(p).time_s < self.kernel(value).time_s
            and value not in self.kernel(p).leaves  # sinking tries those
        ]  # fmt: skip
        # The dearest of them does most of the same work.
        dearest = sorted(others, key=lambda p: -self.kernel(p).time_s)[:1]
        some = dict.fromkeys([*others[: SWAPPED - 1], *dearest])
        return any(self._gain([value, other]) for other in some)

    def _exchange(self) -> bool:
        """Flip any two values at once, three that are not all alike, and up to five neighbours."""
        self._drop_dead()
        near = {frozenset(s) for v in self.values
                for n in (4, 5) for s in combinations(self._neighbours(v), n)}  # fmt: skip
        inside = frozenset(self.materialised)
        mixed = (s for s in combinations(self.values, 3) if 0 < len(inside.intersection(s)) < 3)
        several = chain(combinations(self.values, 2), mixed, sorted(map(sorted, near)))
        return any([self._gain(flips) for flips in several])

    def _neighbours(self, value: int) -> list[int]:
        near = {value}
        for mapped in list(self.kernels.values()):
            if value == mapped.placed or value in mapped.met:
                near |= {p for p in {mapped.placed, *mapped.met} if p in self._value_set}
        return sorted(near, key=lambda p: (p != value, abs(p - value)))[:NEAR_VALUES]


def _cost(end: End) -> float:
    return end[0]


def _in_order(forest: Forest, placed: int) -> bool:
    """Whether a value lies as every value may be kept."""
    plain = kept_layouts(forest.type_of(placed), (PADDED,))
    return forest.layout_of(placed) in (kept.layout for kept in plain)


def _is_padded(forest: Forest, placed: int) -> bool:
    """Whether rows of a value lie further apart than they are long, as some targets keep none."""
    of = forest.type_of(placed)
    return forest.layout_of(placed) != row_major(of.size) and _in_order(forest, placed)


def _stays(placed: PlacedClass) -> bool:
    """Whether this is an input in the layout it arrives in, or a reshape of one."""
    return any(before == after for _, before, after in placed.moves)


def _loads(picks: Picks, placed: int) -> bool:
    """Whether a cone reads what it is to make, by way of a reshape of it."""
    return any(c.source == placed for c in picks.values())


def _why(search: Search, placed: int) -> str:
    node = search.forest.placed[placed]
    if not node.kernels:
        return "no law answers its request"
    reasons: dict[str, int] = {}
    stored = search.forest.layout_of(placed)
    for root in node.kernels:
        for cone in search.cones.of(root, search.materialised, placed in search.blocked)[0]:
            for reason, count in search.prices.price([root], cone.picks, [stored]).rejected:
                reasons[reason] = reasons.get(reason, 0) + count
    return "; ".join(f"{r} ({c})" for r, c in reasons.items()) or "none is left of its cones"

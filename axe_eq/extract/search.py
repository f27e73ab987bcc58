"""Technology mapping: choose which values to materialise, and with that every kernel.

State: the set M of materialised placed classes. A kernel is the cheapest cone from a member of M
    down to
other members and inputs; the cost of a schedule is the sum over the kernels that the outputs need,
so work shared through memory is counted once and recomputation is counted where it happens. Small
graphs are solved exactly (all M); larger ones by toggling and sinking single values to a local
optimum, then exactly in windows of neighbours. Everything is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from axe_eq.errors import SearchError
from axe_eq.extract.cone import Cones, Memo, Picks, summarise, used
from axe_eq.extract.forest import LOAD, Forest
from axe_eq.extract.price import Price, Pricer

EXACT_VALUES = 12
WINDOW_VALUES = 5
WINDOW_GRAPH = 24
PASSES = 6
SHORT_ROW = 256
SINK_LEAVES = 4
INFINITE = float("inf")


@dataclass(frozen=True, eq=False)
class Mapped:
    """The best kernel of one placed class under some M.

    Attributes:
        placed: the class.
        price: its price; infinite where no cone exists.
        root: root tile class.
        picks: the cone.
        leaves: placed classes it loads (inputs included).
        met: placed classes whose membership in M it depends on.
    """

    placed: int
    price: Price
    root: int = -1
    picks: Picks = field(default_factory=dict)
    leaves: frozenset[int] = frozenset()
    met: frozenset[int] = frozenset()

    @property
    def time_s(self) -> float:
        """Estimated seconds."""
        return self.price.time_s


@dataclass(frozen=True, eq=False)
class Selection:
    """What extraction chose: one kernel per live materialised class.

    Attributes:
        kernels: by placed class.
        time_s: total estimated seconds of the kernels and moves.
        exact: proven the best over all M of this forest.
    """

    kernels: dict[int, Mapped]
    time_s: float
    exact: bool = False

    @property
    def materialised(self) -> frozenset[int]:
        """The live members of M."""
        return frozenset(self.kernels)


@dataclass(frozen=True)
class Undo:
    """What a change of M made forget."""

    kernels: dict[int, Mapped]
    cones: Memo


class Search:
    """One search over one forest."""

    def __init__(self, forest: Forest, pricer: Pricer) -> None:
        self.forest, self.pricer = forest, pricer
        self.inputs = frozenset(i for i, p in enumerate(forest.placed) if p.buffers)
        # A value that is an input needs no kernel: where it is wanted elsewhere it is moved.
        copies = {i for i, p in enumerate(forest.placed) if p.moves}
        made = {i for i, p in enumerate(forest.placed) if p.kernels} - self.inputs - copies
        self.roots = frozenset(r for r in forest.roots if r in made)
        self.cones = Cones(forest, self.inputs)
        self.values = sorted(made - self.roots)
        self.materialised: set[int] = set(self.values) | set(self.roots)
        self.kernels: dict[int, Mapped] = {}
        self.users: dict[int, set[int]] = {}
        self.evaluated = 0
        self.cost = INFINITE
        self._changed: set[int] = set()

    # --- kernels
    # --------------------------------------------------------------------------------------------

    def best_kernel(self, placed: int) -> Mapped:
        """The cheapest cone of a class under the present M."""
        self.evaluated += 1
        best = Mapped(placed, Price(INFINITE))
        met: set[int] = set()
        for root in self._by_cut(placed):
            if best.root >= 0 and not self.forest.tiles[root].letters:
                break  # one block for everything is for what nothing else can do
            cones, below = self.cones.of(root, self.materialised)
            met |= below
            for picks in cones:
                if not self._worth_whole(root, picks) or _loads(picks, placed):
                    continue
                price = self.pricer.price(summarise(self.forest, [root], picks))
                if price.time_s < best.time_s:
                    best = Mapped(placed, price, root, picks)
        if best.root < 0:
            return Mapped(placed, best.price, met=frozenset(met))
        leaves = frozenset(
            best.picks[t].source
            for t in used(self.forest, [best.root], best.picks)
            if best.picks[t].kind == LOAD
        )
        return Mapped(placed, best.price, best.root, best.picks, leaves, frozenset(met))

    def _by_cut(self, placed: int) -> list[int]:
        """Root tiles of a class, those without any cut last."""
        tiles = self.forest.tiles
        return sorted(self.forest.placed[placed].kernels, key=lambda r: not tiles[r].letters)

    def _worth_whole(self, root: int, picks: Picks) -> bool:
        """Whether keeping the last dim whole in every block may pay, against cutting it in blocks.

        Only row reductions and structured monoids use a whole row; plain products may keep a short
        one. Every root has its twin that cuts the dim, so nothing becomes impossible.
        """
        star = self.forest.tiles[root].star
        if star == 1 or not self.forest.tiles[root].letters:
            return True
        if any(c.reduces and (c.structured or not c.product) for c in picks.values()):
            return True
        return star <= SHORT_ROW and any(c.product for c in picks.values())

    def kernel(self, placed: int) -> Mapped:
        """As `best_kernel`, remembered until M changes below it."""
        found = self.kernels.get(placed)
        if found is None:
            found = self.kernels[placed] = self.best_kernel(placed)
            for p in found.met:
                self.users.setdefault(p, set()).add(placed)
        return found

    def set_materialised(self, changes: Iterable[int]) -> Undo:
        """Flip membership of classes; returns what was forgotten, for `restore`."""
        flipped = list(changes)
        forgotten = self.cones.invalidate(flipped)
        dropped: dict[int, Mapped] = {}
        for p in flipped:
            self.materialised ^= {p}
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
        """Cost of everything the outputs need under the present M.

        Infinite above the bound, and where kernels wait for each other in a circle.
        """
        cost = 0.0
        for mapped in self._walk():
            if mapped is None:
                return INFINITE
            cost += mapped.time_s
            if cost > bound or cost == INFINITE:
                return INFINITE
        return cost

    def _walk(self) -> Iterator[Mapped | None]:
        """Kernels the outputs need, operands before users; None where they go in a circle."""
        open_, done = 1, 2
        state: dict[int, int] = {}
        stack = sorted(self.roots, reverse=True)
        while stack:
            placed = stack[-1]
            if state.get(placed) is None and placed not in self.inputs:
                state[placed] = open_
                leaves = sorted(self.kernel(placed).leaves, reverse=True)
                if any(state.get(leaf) == open_ for leaf in leaves):
                    yield None
                    return
                stack.extend(leaf for leaf in leaves if state.get(leaf) is None)
                continue
            stack.pop()
            if state.get(placed) == open_:
                state[placed] = done
                yield self.kernels[placed]

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
        kernels = self.live()
        for placed, mapped in kernels.items():
            if mapped.root < 0:
                raise SearchError(
                    f"value {self.forest.type_of(placed)}", "has no kernel: " + _why(self, placed),
                    "a demand law and a schedule that accept it",
                )  # fmt: skip
        return Selection(kernels, sum(m.time_s for m in kernels.values()), exact)

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
        self.cost = self.total()
        dirty = frozenset(self.values)
        for number in range(PASSES):
            progress(f"pass {number}, {len(dirty)} values to try, {self.evaluated} kernels priced")
            self._drop_dead()
            self._changed = set()
            order = reversed(self.values) if number % 2 == 0 else self.values
            for value in order:
                if value in dirty and not self._toggle(value) and number:
                    self._sink(value)
            # The first pass only toggles; the second tries every value again, with sinking.
            dirty = frozenset(self._changed) if number else frozenset(self.values)
            if not dirty or (number and not self._changed):
                break
        if len(self.values) <= WINDOW_GRAPH:
            self._windows()
        return self.selection()

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
            if cost < best - 1e-15:
                best, chosen = cost, frozenset(self.materialised)
        self.set_materialised(sorted(chosen ^ self.materialised))
        return self.selection(exact=True)

    def _drop_dead(self) -> None:
        """Take out the members of M that no output needs: they cost nothing and hide gains."""
        dead = self.materialised - set(self.live())
        self.set_materialised(sorted(dead))

    def _affected(self, placed: int) -> list[int]:
        return [
            u for u in self.users.get(placed, ())
            if u in self.kernels and u in self.materialised and placed in self.kernels[u].met
        ]  # fmt: skip

    def _gain(self, flips: Collection[int]) -> bool:
        """Flip these if the whole schedule gets cheaper; else leave M as it was."""
        undo = self.set_materialised(flips)
        cost = self.total(self.cost)
        if cost >= self.cost - 1e-15:
            self.restore(flips, undo)
            return False
        self.cost = cost
        for mapped in undo.kernels.values():
            self._changed |= mapped.met | mapped.leaves | {mapped.placed}
        return True

    def _toggle(self, value: int) -> bool:
        return bool(self._affected(value)) and self._gain([value])

    def _sink(self, value: int) -> bool:
        """Materialise a value and stop materialising what only its kernel loads."""
        if value in self.materialised or not self._affected(value):
            return False
        undo = self.set_materialised([value])
        own = [
            p
            for p in sorted(self.kernel(value).leaves)
            if p in self.materialised and p not in self.roots
        ]
        self.restore([value], undo)
        return bool(own) and len(own) <= SINK_LEAVES and self._gain([value, *own])

    def _windows(self) -> None:
        """Exact search in windows of neighbouring values, until none improves."""
        improved = True
        rounds = 0
        while improved and rounds < PASSES:
            improved = False
            rounds += 1
            for value in self.values:
                improved |= self._window(self._neighbours(value))

    def _neighbours(self, value: int) -> list[int]:
        near = {value}
        for mapped in list(self.kernels.values()):
            if value == mapped.placed or value in mapped.met:
                near |= {p for p in {mapped.placed, *mapped.met} if p in self._value_set}
        return sorted(near, key=lambda p: (p != value, abs(p - value)))[:WINDOW_VALUES]

    @property
    def _value_set(self) -> frozenset[int]:
        return frozenset(self.values)

    def _window(self, window: list[int]) -> bool:
        best = self.total()
        chosen: tuple[int, ...] = ()
        for count in range(1, len(window) + 1):
            for flips in combinations(window, count):
                undo = self.set_materialised(flips)
                cost = self.total(best)
                if cost < best - 1e-15:
                    best, chosen = cost, flips
                self.restore(flips, undo)
        if chosen:
            self.set_materialised(chosen)
        return bool(chosen)


def _loads(picks: Picks, placed: int) -> bool:
    """Whether a cone reads what it is to make, by way of a reshape of it."""
    return any(c.source == placed for c in picks.values())


def _why(search: Search, placed: int) -> str:
    node = search.forest.placed[placed]
    if not node.kernels:
        return "no law answers its request"
    reasons: dict[str, int] = {}
    for root in node.kernels:
        for picks in search.cones.of(root, search.materialised)[0]:
            for reason, count in search.pricer.price(
                summarise(search.forest, [root], picks)
            ).rejected:
                reasons[reason] = reasons.get(reason, 0) + count
    return "; ".join(f"{r} ({c})" for r, c in reasons.items()) or "every cone is too large"

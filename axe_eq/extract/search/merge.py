"""Which kernel writes which of the kept values: kernels of several results, chosen by price.

A search chooses the values that are kept, as if each had a kernel of its own. Here kernels become
one where that is cheaper: `h = x + r` beside a norm of `h` then costs one store. A kernel of
several results has one grid, so its members are taken at the boxes that give them that grid, and
what it makes itself is computed where it is used and never loaded. A value that only its own kernel
reads is not stored at all.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from axe_eq.extract.price.cone import MAX_NODES, Picks, loop_extents, used
from axe_eq.extract.price.pricer import Price
from axe_eq.extract.read.forest import LOAD, Forest
from axe_eq.extract.search.search import Search
from axe_eq.extract.search.selection import Selection
from axe_eq.schedule.box import STREAM_LETTERS
from axe_eq.schedule.build import Chosen, ChosenBuffer, ChosenKernel, ChosenNode
from axe_eq.walk import reached

# Pairs of kernels that are offered to become one: all of them where 45 kernels touch a value, the
# nearest partners of each where more do, so that a program may have any number of outputs.
MOST_PAIRS, FEWEST_PARTNERS = 2000, 4
LEAST_GAIN_S = 1e-12
INFINITE = float("inf")

Letters = dict[str, str]
"""What the loop letters of some tiles of a cone are in the others, where they have others."""
Grid = tuple[tuple[str, int], ...]
"""Loop letters of a root tile in the order of its dims, with their extents; no single ones."""


class Way(NamedTuple):
    """How a kernel goes over its values.

    Attributes:
        grid: its loop letters; None where every value keeps its own.
        streams: whether what it reduces is read in chunks; None where it reduces nothing.
    """

    grid: Grid | None
    streams: bool | None


class Member(NamedTuple):
    """A value at one of its root tiles, and the cone that computes it."""

    placed: int
    root: int
    picks: Picks


class Cone(NamedTuple):
    """What one kernel is to compute.

    Attributes:
        placed: placed classes it writes.
        roots: their root tiles.
        picks: the alternative of every tile.
        letters: those that tiles which no structured reduction needs have in place of others.
    """

    placed: Sequence[int]
    roots: Sequence[int]
    picks: Picks
    letters: Letters


class Group:
    """One kernel to be: the values that it writes, with one grid.

    Attributes:
        placed: placed classes it writes.
        roots: their root tiles.
        picks: the cone of all.
        price: what it costs.
        leaves: placed classes it loads.
        values: value classes that it computes.
        letters: as in `Cone`.
        way: how it goes over them.
    """

    def __init__(self, forest: Forest, cone: Cone, price: Price) -> None:
        self.placed, self.roots, self.picks = tuple(cone.placed), tuple(cone.roots), cone.picks
        self.price, self.letters = price, cone.letters
        made = {t: cone.picks[t] for t in used(self.roots, self.picks)}
        self.leaves = frozenset(c.source for c in made.values() if c.kind == LOAD)
        tiles = (forest.tiles[t] for t, c in made.items() if c.kind != LOAD)
        self.values = frozenset(tile.value for tile in tiles)
        self.way = Way(_grid(forest, self.roots[0]), _streams(forest, made))


def stored(forest: Forest, group: Group | Cone) -> list[str]:
    """The layouts that a kernel stores its roots in."""
    return [forest.layout_of(placed) for placed in group.placed]


def merged(search: Search, selection: Selection) -> list[Group]:
    """Kernels of a selection; two become one kernel of several results where that is cheaper.

    Greedy by gain, in a deterministic order.
    """
    return _Grouping(search, selection).run()


class _Grouping:
    """The kernels of a selection on their way to fewer ones."""

    def __init__(self, search: Search, selection: Selection) -> None:
        self.search, self.forest, self.prices = search, search.forest, search.prices
        self.groups: dict[int, Group] = {}
        self.writer: dict[int, int] = {}
        self.readers: dict[int, set[int]] = {}
        self._count = self._offers = 0
        self._heap: list[tuple[float, int, tuple[int, ...], list[Cone] | Group]] = []
        self._at: dict[tuple[int, Way], Member | None] = {}
        self._grids_of: dict[int, dict[Grid, None]] = {}
        for m in selection.kernels.values():
            self._add(Group(self.forest, Cone([m.placed], [m.root], m.picks, {}), m.price))

    def run(self) -> list[Group]:
        """Merge until no two kernels gain by it."""
        self._offer_all(self.groups)
        while self._heap:
            _, number, parts, joined = heapq.heappop(self._heap)
            if not self.groups.keys() >= set(parts):
                continue
            if not isinstance(joined, Group):
                self._offer_read(number, parts, joined)
                continue
            if self._waits(joined, parts):
                continue
            if not self._stands(joined, parts):  # others have come to read something else
                self._offer(parts)
                continue
            first = self._count
            self._remove(*parts)
            self._add(joined)
            while self._drop_dead():
                pass
            self._offer_all([n for n in self.groups if n >= first])
        return _ordered(list(self.groups.values()))

    def _add(self, group: Group) -> None:
        self.groups[self._count] = group
        self.writer |= dict.fromkeys(group.placed, self._count)
        for placed in group.leaves:
            self.readers.setdefault(placed, set()).add(self._count)
        self._count += 1

    def _remove(self, *numbers: int) -> None:
        for number in numbers:
            group = self.groups.pop(number)
            for placed in group.placed:
                del self.writer[placed]
            for placed in group.leaves:
                self.readers[placed].remove(number)

    def _needed(self, group: Group, but: Collection[int]) -> list[int]:
        """What a kernel writes that is an output, or that a kernel beside some reads."""
        return [
            p for p in group.placed
            if p in self.search.roots or not self.readers.get(p, set()) <= set(but)
        ]  # fmt: skip

    def _stands(self, joined: Group, parts: Collection[int]) -> bool:
        """Whether a kernel for some still writes all that is needed, and is given all it reads."""
        needed = {p for n in parts for p in self._needed(self.groups[n], parts)}
        return needed <= set(joined.placed) and self._given(joined.leaves)

    def _given(self, leaves: Collection[int]) -> bool:
        """Whether what is read is an input or is written."""
        return self.search.inputs | self.writer.keys() >= set(leaves)

    def _drop_dead(self) -> bool:
        """Store nothing that nobody reads: a merge may have taken a value's last reader."""
        for number, group in self.groups.items():
            needed = self._needed(group, (number,))
            if len(needed) == len(group.placed):
                continue
            cone = self._cone(self._members(group), needed) if needed else None
            left = None if cone is None else self._read(cone)
            if needed and (left is None or left.price.time_s == INFINITE):
                continue
            self._remove(number)
            if left is not None:
                self._add(left)
            return True
        return False

    # -- which pairs

    def _offer_all(self, changed: Collection[int]) -> None:
        for i, j in self._pairs(changed):
            self._offer((i, j))
            if shared := self._shared(i, j):
                self._offer((i, j, *shared))

    def _offer(self, parts: tuple[int, ...]) -> None:
        """Offer to make some kernels one.

        What figures say is a bound, so an offer is read when no other may gain more: one whose
        kernels have become others by then is never read. It is none where something is loaded more
        than once, which figures count as often.
        """
        offers = self._join(parts, self._apart_s(parts) - LEAST_GAIN_S)
        if not offers:
            return
        self._offers += 1
        cones = [cone for *_, cone in offers]
        if any(map(_loads_again, cones)):
            self._offer_read(self._offers, parts, cones)
        else:
            gain = offers[0][0] - self._apart_s(parts)
            heapq.heappush(self._heap, (gain, self._offers, parts, cones))

    def _offer_read(self, number: int, parts: tuple[int, ...], cones: Sequence[Cone]) -> None:
        """The first of an offer's cones that still gains when it is read."""
        apart_s = self._apart_s(parts)
        for group in map(self._read, cones):
            if group.price.time_s < apart_s - LEAST_GAIN_S:
                gain = group.price.time_s - apart_s
                heapq.heappush(self._heap, (gain, number, parts, group))
                return

    def _apart_s(self, parts: tuple[int, ...]) -> float:
        return sum(self.groups[n].price.time_s for n in parts)

    def _shared(self, i: int, j: int) -> list[int]:
        """Kernels of what only two read and both need: one for these two may compute it itself.

        Both read it, or one reads what the other computes.
        """
        found = []
        for k in sorted({self.writer[p] for n in (i, j) for p in self._leaves(n)} - {i, j}):
            third = self.groups[k]
            readers = [self.readers.get(p, set()) for p in third.placed]
            if self.search.roots.isdisjoint(third.placed) and set().union(*readers) <= {i, j}:
                needing = [r == {i, j} for r in readers]
                made = {v for p in third.placed for v, _ in self.forest.placed[p].requests}
                if all(needing) or any(made & self.groups[n].values for n in (i, j)):
                    found.append(k)
        return found

    def _leaves(self, number: int) -> list[int]:
        """What a kernel reads of what others write."""
        return [p for p in self.groups[number].leaves if p in self.writer]

    def _touched(self, group: Group) -> Iterator[int]:
        """What a kernel reads and writes; of values that one kernel writes the first."""
        for placed in (*group.leaves, *group.placed):
            writer = self.writer.get(placed)
            yield placed if writer is None else self.groups[writer].placed[0]

    def _pairs(self, changed: Collection[int]) -> list[tuple[int, int]]:
        """Pairs that touch a common placed class or kernel, at least one of them changed.

        Of the partners of one kernel those whose numbers are nearest, at most its share of the
        pairs.
        """
        touching: dict[int, list[int]] = {}
        for number, group in self.groups.items():
            for placed in self._touched(group):
                touching.setdefault(placed, []).append(number)
        most = max(FEWEST_PARTNERS, MOST_PAIRS // max(1, len(self.groups)))
        found = set()
        for number in changed:
            group = self.groups[number]
            others = {o for p in self._touched(group) for o in touching[p]} - {number}
            partners = [o for o in others if _fit(group, self.groups[o])]
            partners.sort(key=lambda o: (abs(o - number), o))
            found |= {(min(number, o), max(number, o)) for o in partners[:most]}
            # What read several kernels, and reads one now, has come to touch each other.
            readers = sorted({r for p in group.placed[1:] for r in self.readers.get(p, ())})
            first = sorted(self.readers.get(group.placed[0], ()))
            found |= {(min(a, b), max(a, b)) for a in first for b in readers if a != b}
        return sorted(found)

    def _waits(self, joined: Group, parts: Collection[int]) -> bool:
        """Whether kernels would wait for each other, were some of them one."""
        seen: set[int] = set()
        stack = [self.writer[p] for p in joined.leaves if p in self.writer]
        while stack:
            number = stack.pop()
            if number in parts:
                return True
            if number not in seen:
                seen.add(number)
                stack += [self.writer[p] for p in self._leaves(number)]
        return False

    # -- one kernel of several

    def _join(self, parts: tuple[int, ...], most_s: float) -> list[tuple[float, int, Cone]]:
        """One kernel for two in less than so many seconds, and for others that only they read.

        Its cones by figures, the cheapest first.

        Whether a kernel of one result should compute more itself, the search has asked.
        """
        a, b, *shared = (self.groups[n] for n in parts)
        kept = [p for group in (a, b) for p in self._needed(group, parts)]
        made = {p for group in shared for p in group.placed}
        if len(kept) < 2 or any(self._needed(group, parts) for group in shared):
            return []
        offers: list[tuple[float, int, Cone]] = []
        for way in self._ways((a, b), bool(shared)):
            members = [*self._moved(a, way), *self._moved(b, way)]
            if len(members) == len(a.placed) + len(b.placed):
                cone = self._cone(members, kept, made)
                time_s = INFINITE if cone is None else self._estimate(cone)
                if cone is not None and time_s < most_s:
                    offers.append((time_s, len(offers), cone))
        return sorted(offers, key=lambda o: o[:2])

    def _ways(self, groups: Sequence[Group], everywhere: bool) -> list[Way]:
        """Grids that all values of kernels have, each with what these do along what they reduce.

        Those that one of the kernels has where some do, else any; or any `everywhere`.
        """
        ways = [g.way for g in groups]
        streams = dict.fromkeys(w.streams for w in ways if w.streams is not None) or [None]
        first, *others = (self._grids(p) for g in groups for p in g.placed)
        common = [grid for grid in first if all(grid in more for more in others)]
        own = [] if everywhere else [w.grid for w in ways if w.grid in common]
        grids = [*dict.fromkeys(own or common), *([None] if everywhere else [])]
        return [Way(grid, s) for grid in grids for s in streams]

    def _grids(self, placed: int) -> dict[Grid, None]:
        """The grids of a value's root tiles: one block for all only where there is nothing else."""
        if placed not in self._grids_of:
            grids = dict.fromkeys(_grid(self.forest, r) for r in self.forest.placed[placed].kernels)
            self._grids_of[placed] = {g: None for g in grids if g or len(grids) == 1}
        return self._grids_of[placed]

    def _members(self, group: Group) -> list[Member]:
        return [Member(p, r, group.picks) for p, r in zip(group.placed, group.roots, strict=True)]

    def _moved(self, group: Group, way: Way) -> list[Member]:
        """The members of a kernel that goes so, those that can."""
        way = group.way._replace(streams=way.streams) if way.grid is None else way
        if group.way.grid == way.grid and group.way.streams in (way.streams, None):
            return self._members(group)
        return [m for p in group.placed if (m := self._alone(p, way)) is not None]

    def _alone(self, placed: int, way: Way) -> Member | None:
        """A value by the cone that goes so and is cheapest by figures where it is stored alone."""
        key = placed, way
        if key not in self._at:
            layouts = [self.forest.layout_of(placed)]
            found: list[tuple[float, int, Member]] = []
            for root in self.forest.placed[placed].kernels:
                if _grid(self.forest, root) != way.grid:
                    continue
                for one in self.search.cones.of(root, self.search.materialised)[0]:
                    if _streams(self.forest, one.picks) in (way.streams, None):
                        time_s = self.prices.estimate([root], one.picks, layouts).time_s
                        found.append((time_s, len(found), Member(placed, root, one.picks)))
            time_s, _, best = min(found, key=lambda f: f[:2], default=(INFINITE, 0, None))
            self._at[key] = best if time_s < INFINITE else None
        return self._at[key]

    def _cone(
        self, members: Sequence[Member], kept: Collection[int], made: Collection[int] = ()
    ) -> Cone | None:
        """The cone that makes some values, and those of members, and stores those kept.

        None where there is none, or it would load what no kernel writes.
        """
        found = self._within(members, {*made, *(m.placed for m in members)})
        if found is None:
            return None
        picks, letters = found
        members = [m for m in members if m.placed in kept]
        roots = [m.root for m in members]
        order = used(roots, picks)
        if len(order) > MAX_NODES or _is_cyclic(order, picks):
            return None
        picks = {tile: picks[tile] for tile in order}
        cone = Cone([m.placed for m in members], roots, picks, letters)
        loads = [c.source for c in picks.values() if c.kind == LOAD]
        return cone if self._given(loads) else None

    def _estimate(self, cone: Cone) -> float:
        return self.prices.estimate(cone.roots, cone.picks, stored(self.forest, cone)).time_s

    def _read(self, cone: Cone) -> Group:
        price = self.prices.price(cone.roots, cone.picks, stored(self.forest, cone))
        return Group(self.forest, cone, price)

    def _within(
        self, members: Sequence[Member], made: Collection[int]
    ) -> tuple[Picks, Letters] | None:
        """The cones of members as one, in which none loads what is made in it."""
        picks: Picks = {}
        for member in reversed(members):
            picks |= member.picks
        picks |= {m.root: m.picks[m.root] for m in members}
        loads = [t for t, c in picks.items() if c.kind == LOAD and c.source in made]
        chunks = []
        while loads:
            tile = loads.pop()
            cones = self.search.cones.of(tile, self.search.materialised)[0]
            if not cones:
                chunks.append(tile)
                continue
            new = {t: c for t, c in cones[0].picks.items() if t == tile or t not in picks}
            picks |= new
            loads += [t for t, c in new.items() if c.kind == LOAD and c.source in made]
        letters: Letters = {}
        for tile in chunks:
            same = self._same(tile, picks, letters)
            if same is None:
                return None
            picks[tile] = picks[same]
        return picks, letters

    def _same(self, tile: int, picks: Picks, letters: Letters) -> int | None:
        """The tile that a chunk is in a cone where other letters run over its dims.

        Structured reductions stream by a letter of their own, and take products in their chunks.
        What the chunk's letters are there is added to those known.
        """
        mine = self.forest.tiles[tile]
        for other, choice in picks.items():
            its = self.forest.tiles[other]
            if choice.kind == LOAD or not mine.streams or its.value != mine.value:
                continue
            pairs = dict(zip(mine.box.split(), its.box.split(), strict=True))
            alike = all((a in STREAM_LETTERS) == (b in STREAM_LETTERS) for a, b in pairs.items())
            if alike and all(letters.setdefault(a, b) == b for a, b in pairs.items()):
                return other
        return None


def _grid(forest: Forest, root: int) -> Grid:
    return tuple((x, e) for x, e in forest.tiles[root].extents.items() if e > 1)


def _streams(forest: Forest, picks: Picks) -> bool | None:
    """Whether a cone reads what it reduces in chunks; None where it reduces nothing."""
    reduced = [t for c in picks.values() if c.reduces for t in c.children]
    return any(forest.tiles[t].streams for t in reduced) if reduced else None


def _fit(a: Group, b: Group) -> bool:
    """Whether two kernels together have no more nodes than one may have."""
    larger, smaller = (a, b) if len(a.picks) >= len(b.picks) else (b, a)
    added = sum(tile not in larger.picks for tile in smaller.picks)
    return len(larger.picks) + added <= MAX_NODES


def _loads_again(cone: Cone) -> bool:
    sources = [c.source for c in cone.picks.values() if c.kind == LOAD]
    return len(set(sources)) < len(sources)


def _is_cyclic(order: Sequence[int], picks: Picks) -> bool:
    place = {t: n for n, t in enumerate(order)}
    return any(place[c] < n for t, n in place.items() for c in picks[t].children)


def _ordered(groups: Sequence[Group]) -> list[Group]:
    """Writers before readers, otherwise in the given order."""
    writer = {p: n for n, g in enumerate(groups) for p in g.placed}

    def below(number: int) -> list[int]:
        read = (writer.get(p, number) for p in sorted(groups[number].leaves))
        return [n for n in read if n != number]

    return [groups[n] for n in reached(range(len(groups)), below)]


def chosen(forest: Forest, groups: Sequence[Group], outputs: Sequence[tuple[int, str]]) -> Chosen:
    """Everything chosen, in plain terms."""
    needed = {p for g in groups for p in (*g.placed, *g.leaves)} | {p for p, _ in outputs}
    homes = {
        p: forest.tiles[r].value for g in groups for p, r in zip(g.placed, g.roots, strict=True)
    }
    buffers = {p: _buffer(forest, p, homes.get(p)) for p in sorted(needed)}
    values = {p: homes[p] if p in homes else _input_value(forest, p) for p in needed}
    wanted = zip(outputs, forest.root_values, strict=True)
    views = [forest.view(values[p], value) or () for (p, _), value in wanted]
    return Chosen([_kernel(forest, g, values) for g in groups], buffers, outputs, views)


def _input_value(forest: Forest, placed: int) -> int:
    """The value of an input; some computed values share memory with one that is not read."""
    named = (forest.inputs[name] for name, _ in forest.placed[placed].buffers)
    return next(named, -1)


def _buffer(forest: Forest, placed: int, home: int | None) -> ChosenBuffer:
    node = forest.placed[placed]
    if node.buffers:
        name, layout = node.buffers[0]
        return ChosenBuffer(forest.types[_input_value(forest, placed)], layout, name)
    type_ = forest.types[home] if home is not None else forest.type_of(placed)
    return ChosenBuffer(type_, forest.layout_of(placed))


def _kernel(forest: Forest, group: Group, values: Mapping[int, int]) -> ChosenKernel:
    order = used(group.roots, group.picks)[::-1]
    mixing = [r for r in group.roots if _mixes(forest, r, group)] if group.letters else group.roots
    kept = set(used(mixing, group.picks))
    number: dict[int, int] = {}
    nodes: dict[ChosenNode, int] = {}
    for tile in order:
        node, choice = forest.tiles[tile], group.picks[tile]
        view: tuple[str, ...] = ()
        if choice.kind == LOAD:
            held = values[choice.source], forest.layout_of(choice.source)
            view = forest.seen(*held, node.value, choice.layout)
        letters = {} if tile in kept else group.letters
        made = ChosenNode(
            choice.kind,
            choice.text,
            choice.cell,
            " ".join(letters.get(entry, entry) for entry in node.box.split()),
            node.type,
            tuple(number[c] for c in choice.children),
            choice.source,
            choice.layout,
            view,
        )
        number[tile] = nodes.setdefault(made, len(nodes))
    price = group.price
    every = loop_extents(forest, group.roots, order, group.picks)
    loops = {group.letters.get(x, x): extent for x, extent in every.items()}
    loops |= loop_extents(forest, mixing, [t for t in order if t in kept], group.picks)
    return ChosenKernel(
        group.placed,
        tuple(nodes),
        tuple(number[r] for r in group.roots),
        loops,
        price.schedule,
        price.row,
        dict(price.parameters),
        price.time_s,
        dict(price.costs),
        dict(price.rejected),
    )


def _mixes(forest: Forest, root: int, group: Group) -> bool:
    """Whether a structured reduction is among what a root needs."""
    return any(group.picks[t].structured for t in used([root], group.picks))

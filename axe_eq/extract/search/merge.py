"""From a selection to what `schedule.build` takes; merges kernels that gain by it."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence

from axe_eq.extract.price.cone import MAX_NODES, Picks, loop_extents, used
from axe_eq.extract.price.priced import Prices
from axe_eq.extract.price.pricer import Price
from axe_eq.extract.read.forest import LOAD, Forest
from axe_eq.extract.search.selection import Mapped, Selection
from axe_eq.schedule.build import Chosen, ChosenBuffer, ChosenKernel, ChosenNode

# Pairs of kernels that are offered to become one: all of them where 45 kernels touch a value, the
# nearest partners of each where more do, so that a program may have any number of outputs.
MOST_PAIRS, FEWEST_PARTNERS = 2000, 4
LEAST_GAIN_S = 1e-12


class Group:
    """One kernel to be: several roots with one grid."""

    def __init__(self, members: Sequence[Mapped], picks: Picks, price: Price) -> None:
        self.members, self.picks, self.price = tuple(members), picks, price
        self._leaves: frozenset[int] | None = None

    @property
    def placed(self) -> tuple[int, ...]:
        """Placed classes it writes."""
        return tuple(m.placed for m in self.members)

    @property
    def roots(self) -> tuple[int, ...]:
        """Root tiles."""
        return tuple(m.root for m in self.members)

    def leaves(self, forest: Forest) -> frozenset[int]:
        """Placed classes it loads."""
        if self._leaves is None:
            order = used(forest, self.roots, self.picks)
            loads = (self.picks[t].source for t in order if self.picks[t].kind == LOAD)
            self._leaves = frozenset(loads)
        return self._leaves


def stored(forest: Forest, members: Sequence[Mapped]) -> list[str]:
    """The layouts that kernels store their roots in."""
    return [forest.layout_of(member.placed) for member in members]


def merged(prices: Prices, selection: Selection) -> list[Group]:
    """Kernels of a selection; two become one kernel of several outputs where that is cheaper.

    Candidates share an operand or feed one another through a tile of the same box. Greedy by gain,
    in a deterministic order; a merge that would make kernels wait for each other is refused.
    """
    forest = prices.forest
    groups = {n: Group([m], m.picks, m.price) for n, m in enumerate(selection.kernels.values())}
    heap: list[tuple[float, int, int, Group]] = []
    for i, j in _pairs(forest, groups, groups):
        _offer(prices, groups, heap, i, j)
    count = len(groups)
    while heap:
        _, i, j, joined = heapq.heappop(heap)
        if i not in groups or j not in groups or _wait(forest, groups, i, j):
            continue
        del groups[i], groups[j]
        groups[count] = joined
        for a, b in _pairs(forest, groups, [count]):
            _offer(prices, groups, heap, a, b)
        count += 1
    return _ordered(forest, list(groups.values()))


def _pairs(
    forest: Forest, groups: Mapping[int, Group], changed: Collection[int]
) -> list[tuple[int, int]]:
    """Pairs with the same grid that touch a common placed class, at least one of them changed.

    Of the partners of one kernel those whose numbers are nearest, at most its share of the pairs.
    """
    touching: dict[int, list[int]] = {}
    for number, group in groups.items():
        for placed in (*group.leaves(forest), *group.placed):
            touching.setdefault(placed, []).append(number)
    most = max(FEWEST_PARTNERS, MOST_PAIRS // max(1, len(groups)))
    found = set()
    for number in changed:
        group = groups[number]
        others = {o for p in (*group.leaves(forest), *group.placed) for o in touching[p]}
        partners = [
            o for o in others - {number}
            if _fit(group, groups[o]) and _same_grid(forest, group, groups[o])
        ]  # fmt: skip
        partners.sort(key=lambda o: (abs(o - number), o))
        found |= {(min(number, o), max(number, o)) for o in partners[:most]}
    return sorted(found)


def _fit(a: Group, b: Group) -> bool:
    """Whether two kernels together have no more nodes than one may have."""
    larger, smaller = (a, b) if len(a.picks) >= len(b.picks) else (b, a)
    added = sum(tile not in larger.picks for tile in smaller.picks)
    return len(larger.picks) + added <= MAX_NODES


def _offer(
    prices: Prices,
    groups: Mapping[int, Group],
    heap: list[tuple[float, int, int, Group]],
    i: int,
    j: int,
) -> None:
    apart_s = groups[i].price.time_s + groups[j].price.time_s
    joined = _join(prices, groups[i], groups[j], apart_s - LEAST_GAIN_S)
    if joined is not None:
        heapq.heappush(heap, (joined.price.time_s - apart_s, i, j, joined))


def _wait(forest: Forest, groups: Mapping[int, Group], i: int, j: int) -> bool:
    """Whether one of the two needs the other through a third kernel."""
    writer = {p: n for n, g in groups.items() for p in g.placed}
    for start, goal in ((i, j), (j, i)):
        seen = {start}
        stack = [writer[p] for p in groups[start].leaves(forest) if p in writer]
        stack = [n for n in stack if n != goal]
        while stack:
            number = stack.pop()
            if number == goal:
                return True
            if number not in seen:
                seen.add(number)
                stack += [writer[p] for p in groups[number].leaves(forest) if p in writer]
    return False


def _same_grid(forest: Forest, a: Group, b: Group) -> bool:
    first, second = forest.tiles[a.roots[0]], forest.tiles[b.roots[0]]
    return first.box == second.box and first.extents == second.extents


def _join(prices: Prices, a: Group, b: Group, most_s: float) -> Group | None:
    """One kernel for both in less than so many seconds.

    None where there is none, or a value is read in another box than it is made in.
    """
    forest = prices.forest
    owner = {r: g for g in (a, b) for r in g.roots}
    made = {p for g in (a, b) for p in g.placed}
    picks = {**b.picks, **a.picks}
    for tile, choice in picks.items():
        if choice.kind == LOAD and choice.source in made and tile not in owner:
            return None
    picks |= {root: group.picks[root] for root, group in owner.items()}
    members = (*a.members, *b.members)
    roots = [m.root for m in members]
    if _cyclic(forest, roots, picks):
        return None
    layouts = stored(forest, members)
    if prices.estimate(roots, picks, layouts).time_s >= most_s:
        return None
    price = prices.price(roots, picks, layouts)
    return Group(members, picks, price) if price.time_s < most_s else None


def _cyclic(forest: Forest, roots: Sequence[int], picks: Picks) -> bool:
    place = {t: n for n, t in enumerate(used(forest, roots, picks))}
    return any(place[c] < n for t, n in place.items() for c in picks[t].children)


def _ordered(forest: Forest, groups: Sequence[Group]) -> list[Group]:
    """Writers before readers, otherwise in the given order."""
    writer = {p: n for n, g in enumerate(groups) for p in g.placed}
    order: list[Group] = []
    done: set[int] = set()

    def visit(number: int) -> None:
        stack = [(number, False)]
        while stack:
            n, ready = stack.pop()
            if n in done:
                continue
            if ready:
                done.add(n)
                order.append(groups[n])
                continue
            stack.append((n, True))
            stack += [
                (writer[p], False)
                for p in sorted(groups[n].leaves(forest), reverse=True)
                if p in writer and writer[p] not in done and writer[p] != n
            ]

    for number in range(len(groups)):
        visit(number)
    return order


def chosen(forest: Forest, groups: Sequence[Group], outputs: Sequence[tuple[int, str]]) -> Chosen:
    """Everything chosen, in plain terms."""
    needed = {p for g in groups for p in (*g.placed, *g.leaves(forest))} | {p for p, _ in outputs}
    homes = {m.placed: forest.tiles[m.root].value for g in groups for m in g.members}
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
    order = used(forest, group.roots, group.picks)[::-1]
    number = {t: n for n, t in enumerate(order)}
    nodes = []
    for tile in order:
        node, choice = forest.tiles[tile], group.picks[tile]
        view: tuple[str, ...] = ()
        if choice.kind == LOAD:
            held = values[choice.source], forest.layout_of(choice.source)
            view = forest.seen(*held, node.value, choice.layout)
        nodes.append(
            ChosenNode(
                choice.kind,
                choice.text,
                choice.cell,
                node.box,
                node.type,
                tuple(number[c] for c in choice.children),
                choice.source,
                choice.layout,
                view,
            )
        )
    price = group.price
    return ChosenKernel(
        group.placed,
        tuple(nodes),
        tuple(number[r] for r in group.roots),
        loop_extents(forest, group.roots, order, group.picks),
        price.schedule,
        price.row,
        dict(price.parameters),
        price.time_s,
        dict(price.costs),
        dict(price.rejected),
    )

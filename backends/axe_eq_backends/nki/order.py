"""Two decisions over the plans of a whole kernel: which engine runs what, and in which order.

Engines run side by side, each in program order, waiting for data by themselves. So work that
several could do goes to the one that is least busy, and a statement stands as early as what it
waits for allows: an engine that waits for another's result is not held up by it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import Choice, Planned
from axe_eq.kernel.expr import bounds
from axe_eq.kernel.plan import Plan
from axe_eq_backends.nki.access import repeats
from axe_eq_backends.nki.build import inputs, outputs


def turns(loop: ir.For) -> int:
    """How often a loop's body runs, at most."""
    low, high = bounds(loop.start)[0] or 0, bounds(loop.stop)[1]
    return -(-((high or 0) - low) // (bounds(loop.step)[0] or 1))


def often(body: ir.Body, times: int = 1) -> Iterator[tuple[ir.Primitive, int]]:
    """Every primitive of a body with how often it runs."""
    for s in body:
        if isinstance(s, ir.Primitive):
            yield s, times
        for inner in ir.children(s):
            yield from often(inner, times * (turns(s) if isinstance(s, ir.For) else 1))


def busy(planned: Planned[Any]) -> dict[str, float]:
    """Seconds that every engine works for one run of the kernel."""
    total: dict[str, float] = {e.name: 0.0 for e in planned.target.engines}
    for s, times in often(planned.kernel.body):
        plan = planned.plan(s)
        total[plan.row.scope] += plan.cycles * times * 1e-9
    return total


def filled(planned: Planned[Any], body: ir.Body | None = None) -> tuple[float, bool]:
    """Seconds of the transfers before anything is computed of them, and whether anything is."""
    total = 0.0
    for s in planned.kernel.body if body is None else body:
        if isinstance(s, ir.Primitive):
            plan = planned.plan(s)
            if plan.row.scope == "dma":
                total += plan.cycles * 1e-9
            elif inputs(s):
                return total, True
        for inner in ir.children(s):
            seconds, computes = filled(planned, inner)
            total += seconds * (turns(s) if isinstance(s, ir.For) and not computes else 1)
            if computes:
                return total, True
    return total, False


def instructions(planned: Planned[Any], body: ir.Body | None = None) -> int:
    """Instructions of the unrolled kernel, or of a body of it."""
    count = 0
    for s, times in often(planned.kernel.body if body is None else body):
        plan = planned.plan(s)
        count += times * repeats(plan.loops) * len(plan.calls)
    return count


def spread(planned: Planned[Any]) -> None:
    """Give every statement that several engines could run to the one that ends soonest by it."""
    total = dict.fromkeys((e.name for e in planned.target.engines), 0.0)
    free: list[tuple[ir.Primitive, list[Plan], int]] = []
    for s, times in often(planned.kernel.body):
        choice = planned.choices[s]
        plans = [choice.plan, *choice.others]
        best: dict[str, Plan] = {}
        for plan in plans:
            known = best.get(plan.row.scope)
            if known is None or plan.cycles < known.cycles:
                best[plan.row.scope] = plan
        if len(best) > 1:
            free.append((s, list(best.values()), times))
        else:
            total[choice.plan.row.scope] += choice.plan.cycles * times
    for s, plans, times in sorted(free, key=lambda f: -min(p.cycles for p in f[1]) * f[2]):
        chosen = min(plans, key=lambda p: (total[p.row.scope] + p.cycles * times, p.cycles))
        total[chosen.row.scope] += chosen.cycles * times
        old = planned.choices[s]
        if chosen is not old.plan:
            rest = [p for p in (old.plan, *old.others) if p is not chosen]
            reason = f"{old.plan.row.scope} is busier than {chosen.row.scope}"
            planned.choices[s] = Choice(chosen, [*old.lost, (old.plan.row.name, reason)], rest)


# -- order --


def touched(s: ir.Statement) -> tuple[set[ir.Buffer], set[ir.Buffer]]:
    """(buffers that a statement reads, buffers that it writes), those inside it included."""
    read, written = set[ir.Buffer](), set[ir.Buffer]()
    if isinstance(s, ir.Primitive):
        written |= {v.buffer.storage for v in outputs(s)}
        read |= {v.buffer.storage for v in inputs(s)}
    for body in ir.children(s):
        for inner in body:
            r, w = touched(inner)
            read, written = read | r, written | w
    return read, written


@dataclass(frozen=True)
class _Use:
    """What a statement does with a buffer: the part that it touches, and whether it writes.

    Attributes:
        box: from and to, per dim of the buffer, as far as bounds of begins say.
    """

    buffer: ir.Buffer
    box: tuple[tuple[int, float], ...]
    writes: bool

    @staticmethod
    def of(view: ir.View, writes: bool) -> _Use:
        if view.buffer.of is not None:  # under other dims
            return _Use(view.buffer.of, ((0, inf),) * len(view.buffer.of.shape), writes)
        ends = [bounds(b) for b in view.begin]
        box = tuple(
            (low or 0, inf if high is None else high + extent)
            for (low, high), extent in zip(ends, view.extent, strict=True)
        )
        return _Use(view.buffer, box, writes)

    def meets(self, other: _Use) -> bool:
        """Whether both touch some element of a buffer."""
        return self.buffer is other.buffer and all(
            a < d and c < b for (a, b), (c, d) in zip(self.box, other.box, strict=True)
        )


def _uses(s: ir.Statement) -> list[_Use]:
    """Everything that a statement touches, those inside it included."""
    if isinstance(s, ir.Primitive):
        return [
            *(_Use.of(v, False) for v in inputs(s)), *(_Use.of(v, True) for v in outputs(s))
        ]  # fmt: skip
    return [u for body in ir.children(s) for inner in body for u in _uses(inner)]


def scheduled(body: ir.Body, planned: Planned[Any], is_loop: bool = False) -> ir.Body:
    """A body's statements as early as dependences allow, the longest way to the end first.

    Loops inside are ordered likewise and stay whole. In a loop's body loads run ahead of their
    turn, and what the turn before wrote late is there as late as engines that never rest leave it.
    """
    for s in body:
        for inner in ir.children(s):
            inner[:] = scheduled(inner, planned, isinstance(s, ir.For) and turns(s) > 2)
    if len(body) < 3 or any(isinstance(s, ir.Let | ir.Assign | ir.If) for s in body):
        return body
    uses = [_uses(s) for s in body]
    before = [
        {m for m in range(n) if any((x.writes or y.writes) and x.meets(y)
                                    for x in uses[m] for y in uses[n])}
        for n in range(len(body))
    ]  # fmt: skip
    ns = [_engine_ns(s, planned) for s in body]
    length = [max(x.values(), default=0.0) for x in ns]
    ready = [0.0] * len(body)
    if not is_loop:
        order, _ = _listed(before, ns, length, ready, _rest(before, length))
        return [body[n] for n in order]
    for n, s in enumerate(body):
        if isinstance(s, ir.Copy) and s.src.buffer.is_global:
            length[n] = 0.0
    period = max(sum(x.get(e.name, 0.0) for x in ns) for e in planned.target.engines)
    carried = _carried(body, uses, planned.kernel)
    later = [0.0] * len(body)  # what is left to do of the next turn
    for n, way in enumerate(_rest(before, length)):
        for m in carried[n]:
            later[m] = max(later[m], way)
    rest = _rest(before, length, later)
    for _ in range(2):
        order, ended = _listed(before, ns, length, ready, rest)
        ready = [max([0.0, *(ended[m] - period for m in ms)]) for ms in carried]
    order, _ = _listed(before, ns, length, ready, rest)
    return [body[n] for n in order]


def _rest(
    before: Sequence[set[int]], length: Sequence[float], later: Sequence[float] = ()
) -> list[float]:
    """The longest way from the begin of every statement to the end, and what comes later."""
    rest = [x + y for x, y in zip(length, later or [0.0] * len(length), strict=True)]
    for n in reversed(range(len(before))):
        for m in before[n]:
            rest[m] = max(rest[m], length[m] + rest[n])
    return rest


def _carried(body: ir.Body, uses: Sequence[Sequence[_Use]], kernel: ir.Kernel) -> list[list[int]]:
    """Per statement of a loop's body those that write what it reads one turn later."""
    here = Counter(u.buffer for us in uses for u in us)
    everywhere = Counter(u.buffer for s in kernel.body for u in _uses(s))
    outer = {b for b in here if not b.is_global and here[b] < everywhere[b]}
    writes = [[u for u in us if u.writes and u.buffer in outer] for us in uses]
    return [
        [m for m in range(n, len(body)) if any(w.meets(u) for w in writes[m] for u in uses[n]
                                               if not u.writes)]
        for n in range(len(body))
    ]  # fmt: skip


def _listed(
    before: Sequence[set[int]], ns: Sequence[Mapping[str, float]], length: Sequence[float],
    ready: Sequence[float], rest: Sequence[float],
) -> tuple[list[int], list[float]]:  # fmt: skip
    """(order that starts each as early as it can, most left to do first; when each has ended)."""
    count = len(before)
    after: list[list[int]] = [[] for _ in range(count)]
    for n, earlier in enumerate(before):
        for m in earlier:
            after[m].append(n)
    ended, free = [0.0] * count, defaultdict[str, float](float)
    missing, at = [len(b) for b in before], list(ready)
    open_ = {n for n in range(count) if not missing[n]}
    order: list[int] = []
    while open_:
        starts = {n: max([at[n], *(free[e] for e in ns[n] if length[n])]) for n in open_}
        best = min(open_, key=lambda n: (starts[n], -rest[n], n))
        ended[best] = starts[best] + length[best]
        for engine, time in ns[best].items():
            free[engine] = max(free[engine], starts[best] + min(time, length[best]))
        order.append(best)
        open_.remove(best)
        for n in after[best]:
            at[n] = max(at[n], ended[best])
            missing[n] -= 1
            if not missing[n]:
                open_.add(n)
    return order, ended


def _engine_ns(s: ir.Statement, planned: Planned[Any]) -> Mapping[str, float]:
    """Nanoseconds of a statement on every engine that it uses."""
    total: dict[str, float] = {}
    for inner, times in often([s]):
        plan = planned.plan(inner)
        total[plan.row.scope] = total.get(plan.row.scope, 0.0) + plan.cycles * times
    return total


def ordered(planned: Planned[Any]) -> Planned[Any]:
    """The kernel with its statements in a better order; plans stay."""
    kernel = planned.kernel
    fresh = replace(kernel, body=scheduled(_copied(kernel.body), planned))
    return replace(planned, kernel=fresh)


def _copied(body: ir.Body) -> ir.Body:
    """Bodies of loops anew; primitives stay the same statements, by which plans are kept."""
    return [replace(s, body=_copied(s.body)) if isinstance(s, ir.For | ir.If) else s for s in body]

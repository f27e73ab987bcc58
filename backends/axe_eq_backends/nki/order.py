"""Two decisions over the plans of a whole kernel: which engine runs what, and in which order.

Engines run side by side, each in program order, waiting for data by themselves. So work that
several could do goes to the one that is least busy, and a statement stands as early as what it
waits for allows: an engine that waits for another's result is not held up by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import Choice, Planned
from axe_eq.kernel.expr import bounds
from axe_eq.kernel.plan import Plan
from axe_eq_backends.nki.access import repeats


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
        out, *ins = s.views()
        written.add(out.buffer)
        read |= {v.buffer for v in ins}
        if isinstance(s, ir.Gemm) and s.accumulate != 0:
            read.add(out.buffer)
    for body in ir.children(s):
        for inner in body:
            r, w = touched(inner)
            read, written = read | r, written | w
    return read, written


def scheduled(body: ir.Body, planned: Planned[Any]) -> ir.Body:
    """A body's statements as early as dependences allow, the longest way to the end first.

    Loops inside are ordered likewise and stay whole.
    """
    for s in body:
        for inner in ir.children(s):
            inner[:] = scheduled(inner, planned)
    if len(body) < 3 or any(isinstance(s, ir.Let | ir.Assign | ir.If) for s in body):
        return body
    before = _before(body)
    ns = [_engine_ns(s, planned) for s in body]
    length = [max(x.values(), default=0.0) for x in ns]
    after: list[list[int]] = [[] for _ in body]
    for n, earlier in enumerate(before):
        for m in earlier:
            after[m].append(n)
    rest = [0.0] * len(body)
    for n in reversed(range(len(body))):
        rest[n] = length[n] + max((rest[m] for m in after[n]), default=0.0)
    ended: dict[int, float] = {}
    free = dict.fromkeys((e.name for e in planned.target.engines), 0.0)
    order: list[int] = []
    left = set(range(len(body)))
    while left:
        ready = [n for n in left if before[n] <= ended.keys()]
        starts = {
            n: max([*(ended[m] for m in before[n]), *(free[e] for e in ns[n])], default=0.0)
            for n in ready
        }
        best = min(ready, key=lambda n: (starts[n], -rest[n], n))
        ended[best] = starts[best] + length[best]
        for engine, time in ns[best].items():
            free[engine] = starts[best] + time
        order.append(best)
        left.remove(best)
    return [body[n] for n in order]


def _before(body: ir.Body) -> list[set[int]]:
    """Per statement those before it that write what it uses, or use what it writes."""
    effects = [touched(s) for s in body]
    found = []
    for n, (read, written) in enumerate(effects):
        found.append(
            {m for m in range(n) if effects[m][1] & (read | written) or effects[m][0] & written}
        )
    return found


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

"""Counts that the statements of a kernel imply: arrivals of a barrier's phase, copies of a cluster.

Over a cluster every site counts for each CTA that it reaches, from every CTA that has it; the
counts must be the same for all CTAs, since they run one text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import prod

from axe_eq.errors import ScheduleError
from axe_eq.kernel.expr import Int, evaluate, variables
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.placement import LANES

MOST_CASES = 64  # of what conditions on the rank depend on beside it


def arrivals(kernel: ir.Kernel, barrier: ir.MBarrier) -> int:
    """Arrivals of one phase: every role with an arrive site arrives once with each warpgroup.

    A slot that depends on the warpgroup alone gets the arrivals of those that choose it. In a
    cluster, a site that names CTAs counts as often as one CTA is reached by it.

    Raises:
        ScheduleError: sites of one role arrive with different numbers of threads.
    """
    counts: dict[ir.Role | None, int] = {}
    for statement, where in ir.walk(kernel):
        if isinstance(statement, ir.Arrive | ir.Expect) and statement.barrier is barrier:
            threads = 1 if where.scope == "elect" else LANES * where.n_warps
            threads *= _groups_of_a_slot(statement, where)
            if isinstance(statement, ir.Arrive):
                threads *= statement.landings
            if counts.setdefault(where.role, threads) != threads:
                raise ScheduleError(
                    f"barrier {barrier.name}",
                    f"{threads} arrivals here, {counts[where.role]} elsewhere in the role",
                    "the same at every site of a role",
                    at=statement.at,
                )
    return sum(counts.values())


def _groups_of_a_slot(s: ir.Arrive | ir.Expect, where: ir.Where) -> int:
    """Warpgroups of a role that arrive at one slot of a barrier."""
    role = where.role
    if role is None:
        return 1
    everyone = range(role.low, role.high)
    if {v.name for v in variables(s.slot)} != {role.var.name}:
        return len(everyone)
    chosen = Counter(int(evaluate(s.slot, {role.var.name: g})) for g in everyone)
    if len(set(chosen.values())) > 1:
        raise ScheduleError(
            f"barrier {s.barrier.name}", f"its slots get {sorted(chosen.items())} arrivals",
            "the same for every slot", at=s.at,
        )  # fmt: skip
    return chosen.most_common(1)[0][1]


def reached(
    ranks: Sequence[Int],
    cluster: int,
    thing: str,
    conditions: Sequence[Int] = (),
    at: str = "",
    turns: bool = False,
) -> int:
    """CTAs of a cluster that reach one CTA by a statement which names these CTAs.

    Args:
        ranks: the named CTAs, as functions of the own rank and of little else; none names the own.
        cluster: CTAs of a cluster.
        thing: what it is about, for messages.
        conditions: under which the statement stands. Those that do not depend on the rank count as
            true. What ranks and the others depend on beside it is the same for all CTAs; it is
            taken in every case of a few, as where CTAs take turns.
        at: the user's line, for messages.
        turns: in one case all may reach some CTAs alone, and in another case others.

    Raises:
        ScheduleError: a CTA that is not in the cluster, one named twice, or CTAs that are reached
            by different numbers.
    """
    of_rank, cases = _cases(conditions, ranks)
    counts: set[tuple[int, ...]] = set()
    for case in cases:
        found = dict.fromkeys(range(cluster), 0)
        for rank in range(cluster):
            env = {**case, ir.RANK: rank}
            if not all(evaluate(c, env) for c in of_rank):
                continue
            named = [int(evaluate(r, env)) for r in ranks] or [rank]
            if set(named) - set(found) or len(set(named)) < len(named):
                raise ScheduleError(
                    thing,
                    f"names CTAs {named} of a cluster of {cluster}",
                    "different ones of it",
                    at=at,
                )
            for other in named:
                found[other] += 1
        counts.add(tuple(found.values()))
    of_none = turns and len(counts) > 1
    if len({times for case in counts for times in case if times or not of_none}) > 1:
        wrong = f"CTAs 0 to {cluster - 1} are reached {' or '.join(map(str, sorted(counts)))} times"
        raise ScheduleError(thing, wrong, "the same for every CTA of the cluster", at=at)
    return max(map(max, counts))


def _cases(
    conditions: Sequence[Int], ranks: Sequence[Int]
) -> tuple[list[Int], list[dict[str, int]]]:
    """Conditions that depend on the rank, and all values of what they and ranks depend on."""

    def beside(e: Int) -> dict[str, range | None]:
        ends = {v.name: (v.low, v.high) for v in variables(e) if v.name != ir.RANK}
        return {x: range(low, high + 1) if low is not None and high is not None else None
                for x, (low, high) in ends.items()}  # fmt: skip

    of_rank = [c for c in conditions if ir.RANK in {v.name for v in variables(c)}]
    ranges = {x: r for e in (*of_rank, *ranks) for x, r in beside(e).items()}
    known = [r for r in ranges.values() if r is not None]
    if len(known) < len(ranges) or prod(map(len, known)) > MOST_CASES:
        return [c for c in of_rank if not beside(c)], [{}]
    return of_rank, [dict(zip(ranges, case, strict=True)) for case in product(*known)]

"""Counts that the statements of a kernel imply: arrivals of a barrier's phase, copies of a cluster.

Over a cluster every site counts for each CTA that it reaches, from every CTA that has it; the
counts must be the same for all CTAs, since they run one text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from axe_eq.errors import ScheduleError
from axe_eq.kernel.expr import Int, evaluate, variables
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.placement import LANES


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
    ranks: Sequence[Int], cluster: int, thing: str, conditions: Sequence[Int] = (), at: str = ""
) -> int:
    """CTAs of a cluster that reach one CTA by a statement which names these CTAs.

    Args:
        ranks: the named CTAs, as functions of the own rank; none names the own.
        cluster: CTAs of a cluster.
        thing: what it is about, for messages.
        conditions: under which the statement stands; those that do not depend on the rank alone
            count as true.
        at: the user's line, for messages.

    Raises:
        ScheduleError: a CTA that is not in the cluster, one named twice, or CTAs that are reached
            by different numbers.
    """
    found = dict.fromkeys(range(cluster), 0)
    for rank in range(cluster):
        env = {ir.RANK: rank}
        if not all(evaluate(c, env) for c in conditions if _of_rank(c)):
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
    if len(set(found.values())) > 1:
        wrong = f"CTAs 0 to {cluster - 1} are reached {tuple(found.values())} times"
        raise ScheduleError(thing, wrong, "the same for every CTA of the cluster", at=at)
    return found[0]


def _of_rank(e: Int) -> bool:
    """Whether a value depends on the CTA's rank in its cluster and on nothing else."""
    return {v.name for v in variables(e)} == {ir.RANK}

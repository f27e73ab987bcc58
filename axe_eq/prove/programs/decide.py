"""How two programs are decided: refuted cheaply, then proved, then refuted at length.

Where the user set a limit of time or memory, all of it happens in a worker that ends there, and the
verdict is then Unknown: what cannot be decided is no error.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from axe_eq.deadline import DeadlinePassed, deadline, seconds_left
from axe_eq.debug import progress, stage, switches
from axe_eq.egraph.worker import LimitReached, is_limited, run_limited
from axe_eq.pack import Pack
from axe_eq.program.node import Program
from axe_eq.program.store import stored
from axe_eq.prove.certificates.rebuild import type_difference
from axe_eq.prove.certificates.verdict import Proved, Refuted, Unknown, Verdict
from axe_eq.prove.programs.frontier import Frontier
from axe_eq.prove.programs.prover import prove_programs
from axe_eq.prove.programs.refute import BUDGET as REFUTE_BUDGET
from axe_eq.prove.programs.refute import refute
from axe_eq.prove.programs.rounded import Rounded
from axe_eq.prove.programs.search import Budget
from axe_eq.prove.programs.witness import is_defined_somewhere

Pairs = Sequence[tuple[Program, Program]]
_CHEAP = 1 / 32  # share of the refutation budget that is spent before a proof is tried
_FIRST = 1 / 4  # share of the time of a call that may be spent before a proof is tried
_OPERATIONS_PER_S = 2e7  # interval operations of a refutation


def decide_programs(
    a: Program, b: Program, numerics: str, assume: Pairs, budget: Budget, packs: Sequence[Pack]
) -> Verdict:
    """Decide whether two programs are equal, within the user's limits.

    Args:
        a: a program.
        b: another.
        numerics: "real" or "exact".
        assume: pairs of programs over the same inputs that are taken to be equal.
        budget: limits of the search for a proof.
        packs: whose laws may be used.
    """
    difference = type_difference(a, b)
    if difference is not None:
        return Refuted(None, f"the types differ: {difference}")
    decide = _in_worker if is_limited() else _decide
    return decide(a, b, numerics, assume, budget, packs)


def _decide(
    a: Program,
    b: Program,
    numerics: str,
    assume: Pairs,
    budget: Budget,
    packs: Sequence[Pack],
    operations: float = REFUTE_BUDGET,
) -> Verdict:
    start = time.monotonic()
    found: Refuted | None = None
    left = seconds_left()
    # Inputs that break an assumption refute nothing.
    with deadline(None if left is None else left * _FIRST), suppress(DeadlinePassed):
        found = None if assume else _refuted(a, b, numerics, 0, operations * _CHEAP)
    if found is not None:
        return found
    proof = stage("prove", lambda: prove_programs(a, b, packs, numerics, assume, budget),
                  notes=proof_notes, show={3: proof_text})  # fmt: skip
    if isinstance(proof, Proved):
        if numerics == "exact" or is_defined_somewhere(a):
            return proof
        what = "an input at which they are defined: the sides are equal, but none was found"
        return Unknown(what, f"{time.monotonic() - start:.1f} s")
    with suppress(DeadlinePassed):  # then what the proof lacked is still known
        found = None if assume else _refuted(a, b, numerics, 1, operations)
    if found is not None:
        return found
    rounded = Rounded.of(a, b)
    said = dict.fromkeys(s for p in proof.pairs for s in rounded.said_between(p.left, p.right))
    return Unknown(
        replace(proof, rounded=tuple(said)), f"{proof.rows} rows, {time.monotonic() - start:.1f} s"
    )


def _refuted(a: Program, b: Program, numerics: str, seed: int, operations: float) -> Refuted | None:
    return stage(
        "refute", lambda: refute(a, b, numerics=numerics, seed=seed, budget=operations),
        notes=lambda found: {"found": found is not None},
    )  # fmt: skip


def proof_notes(proof: Proved | Frontier) -> dict[str, object]:
    """Figures of a proof, or of the search that found none."""
    if isinstance(proof, Proved):
        return {"stopped": "proved", "instances": len(proof.certificate.proof.firings)}
    return {"stopped": proof.stopped, "rows": proof.rows, "turns": proof.turns}


def proof_text(proof: Proved | Frontier) -> str:
    """How often a proof uses each law, the busiest first; or what a search is stuck at."""
    if isinstance(proof, Frontier):
        return str(proof)
    used = Counter(firing.law for firing in proof.certificate.proof.firings)
    if not used:
        return "both sides are one term: no law is needed"
    rows = sorted(used.items(), key=lambda row: (-row[1], row[0]))
    return "\n".join(f"{count:>10}  {key}" for key, count in rows)


# -- in a worker -----------------------------------------------------------------------------------


def _in_worker(
    a: Program, b: Program, numerics: str, assume: Pairs, budget: Budget, packs: Sequence[Pack]
) -> Verdict:
    """The verdict of a worker that ends at the limits."""
    now = switches()
    programs = [stored(p) for p in (a, b, *(side for pair in assume for side in pair))]
    job = programs, numerics, budget, tuple(packs), now.time_limit_s, seconds_left()
    try:
        verdict: Verdict | None = run_limited(
            "axe_eq.prove.programs.decide:decide_stored", job, seconds=now.time_limit_s,
            memory_bytes=now.memory_limit_mb and now.memory_limit_mb << 20, tell=progress.at,
        )  # fmt: skip
    except LimitReached as error:
        return Unknown(str(error), error.limit)
    if verdict is None:
        raise DeadlinePassed
    return verdict


def decide_stored(job: tuple[Any, ...]) -> Verdict | None:
    """What a worker does: the verdict of a job; None where its deadline passed."""
    programs, numerics, budget, packs, seconds, left = job
    a, b, *given = (p.program for p in programs)
    pairs = [(given[n], given[n + 1]) for n in range(0, len(given), 2)]
    operations = float(REFUTE_BUDGET)
    if seconds is not None:
        # Two attempts at a proof and a refutation: each a share, so that the last is reached.
        budget = replace(budget, seconds=min(budget.seconds, seconds / 4))
        operations = min(operations, seconds / 4 * _OPERATIONS_PER_S)
    with deadline(left), suppress(DeadlinePassed):
        return _decide(a, b, numerics, pairs, budget, packs, operations)
    return None

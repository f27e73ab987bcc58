"""How two programs are decided: refuted cheaply, then proved, then refuted at length.

Where the user set a limit of time or memory, all of it happens in a worker that ends there, and the
verdict is then Unknown: what cannot be decided is no error.
"""

from __future__ import annotations

import json
import pickle
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from axe_eq.deadline import DeadlinePassed, deadline, seconds_left
from axe_eq.debug import progress, stage, switches
from axe_eq.egraph.worker import LimitReached, is_limited, run_limited
from axe_eq.pack import Pack, by_reference, reference
from axe_eq.program.node import Program
from axe_eq.program.store import program_from_json, program_to_json
from axe_eq.prove.certificates.proof import Certificate
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
    job = {
        "programs": [
            program_to_json(p) for p in (a, b, *(side for pair in assume for side in pair))
        ],
        "numerics": numerics,
        "budget": asdict(budget),
        "packs": [reference(pack) for pack in packs],
        "seconds": now.time_limit_s,
        "left": seconds_left(),
    }
    try:
        answer = run_limited(
            "axe_eq.prove.programs.decide:decide_stored", json.dumps(job),
            first="axe_eq.pack:load_for", seconds=now.time_limit_s,
            memory_bytes=now.memory_limit_mb and now.memory_limit_mb << 20, tell=progress.at,
        )  # fmt: skip
    except LimitReached as error:
        return Unknown(str(error), error.limit)
    return _verdict(json.loads(answer))


def decide_stored(text: str) -> str:
    """What a worker does: JSON of a job to JSON of its verdict."""
    job = json.loads(text)
    a, b, *given = map(program_from_json, job["programs"])
    pairs = [(given[n], given[n + 1]) for n in range(0, len(given), 2)]
    budget, operations = Budget(**job["budget"]), float(REFUTE_BUDGET)
    if job["seconds"] is not None:
        # Two attempts at a proof and a refutation: each a share, so that the last is reached.
        budget = replace(budget, seconds=min(budget.seconds, job["seconds"] / 4))
        operations = min(operations, job["seconds"] / 4 * _OPERATIONS_PER_S)
    packs = [by_reference(name) for name in job["packs"]]
    with deadline(job["left"]):
        try:
            verdict = _decide(a, b, job["numerics"], pairs, budget, packs, operations)
        except DeadlinePassed:
            return json.dumps({"passed": True})
    return json.dumps(_verdict_data(verdict))


def _verdict_data(verdict: Verdict) -> dict[str, Any]:
    if isinstance(verdict, Proved):
        text = str.__str__(verdict.certificate)
        return {"proved": text, "how": verdict.how, "laws": verdict.laws}
    if isinstance(verdict, Refuted):
        return {"refuted": b64encode(pickle.dumps(verdict)).decode()}
    missing = verdict.missing
    known = missing.data() if isinstance(missing, Frontier) else {"text": missing}
    return {"unknown": known, "budget": verdict.budget}


def _verdict(data: dict[str, Any]) -> Verdict:
    if "passed" in data:
        raise DeadlinePassed
    if "proved" in data:
        certificate = Certificate(data["proved"])
        statement = certificate.proof.statement
        return Proved(certificate, statement, data["how"], tuple(data["laws"]))
    if "refuted" in data:
        refuted: Refuted = pickle.loads(b64decode(data["refuted"]))
        return refuted
    unknown = data["unknown"]
    return Unknown(unknown.get("text") or Frontier.from_data(unknown), data["budget"])

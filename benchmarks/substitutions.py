"""What axe_eq proves of TASO's and Tensat's substitutions, and of mutations of them.

``python -m benchmarks.substitutions`` writes results/substitutions.json and .md. Every substitution
is tried at three shapes, with as few groups of convolutions as it allows, and those that have
convolutions again with more groups. numpy must confirm every refutation and disprove no proof, and
a mutation that changes the meaning must never be proved.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

import axe_eq as axe
from axe_eq.pack import packs
from axe_eq.prove.certificates.verdict import ProgramCounterexample
from axe_eq.prove.programs.prover import prove_programs
from axe_eq.prove.programs.search import Budget
from benchmarks.machine import machine
from benchmarks.substitution_mutations import Mutation, mutations, same_in_numpy
from benchmarks.substitution_reader import Case, Rule, cases, taso, tensat, value

RESULTS = Path(__file__).parent / "results"
MUTATIONS = 300
SECONDS = 60.0
MUTATION_BUDGET = Budget(rows=20_000, seconds=6.0)
PROVED, REFUTED, UNKNOWN = "Proved", "Refuted", "Unknown"


@dataclass(frozen=True)
class Outcome:
    """The verdict on one case.

    Attributes:
        case: rule and shapes.
        verdict: "Proved", "Refuted" or "Unknown".
        numpy: whether numpy agrees: both sides are equal where proved, different where refuted.
        note: laws of a proof, where a refutation shows, or what was missing.
        seconds: time of the verdict.
    """

    case: str
    verdict: str
    numpy: bool
    note: str
    seconds: float


def judge(case: Case, seconds: float = SECONDS) -> Outcome:
    """The verdict on a case, compared with numpy."""
    a, b = case.programs()
    start = time.perf_counter()
    verdict = axe.equivalent(a, b, budget=seconds)
    took = round(time.perf_counter() - start, 2)
    if isinstance(verdict, axe.Proved):
        note = " ".join(sorted({f.law for f in verdict.certificate.proof.firings}))
        return Outcome(str(case), PROVED, same_in_numpy(case), note, took)
    if isinstance(verdict, axe.Refuted):
        return Outcome(str(case), REFUTED, _confirmed(case, verdict), str(verdict.reason), took)
    assert isinstance(verdict, axe.Unknown)
    return Outcome(str(case), UNKNOWN, True, str(verdict.missing), took)


def _confirmed(case: Case, verdict: axe.Refuted) -> bool:
    """Whether numpy, on the patterns themselves, finds a difference at the counterexample."""
    found = verdict.counterexample
    if not isinstance(found, ProgramCounterexample):
        return False
    given = {n: np.asarray(x) for n, x in zip(case.shapes, found.inputs, strict=True)}
    left, right = case.rule.pairs[found.output]
    a, b = (value(side, given)[found.index] for side in (left, right))
    return bool(abs(float(a) - float(b)) > 1e-3 * max(1.0, abs(float(a)), abs(float(b))))


def verdict_of(outcomes: Sequence[Outcome]) -> str:
    """Of a rule: proved at all shapes, refuted at one, or else unknown."""
    kinds = {o.verdict for o in outcomes}
    if REFUTED in kinds:
        return REFUTED
    return PROVED if kinds == {PROVED} else UNKNOWN


def judged(rule: Rule, count: int = 3) -> dict[str, Any]:
    """A rule's row of the scoreboard."""
    plain = [judge(case) for case in cases(rule, count)]
    grouped = [judge(case) for case in cases(rule, count, grouped=True)]
    return {
        "name": rule.name,
        "rule": str(rule),
        "verdict": verdict_of(plain),
        "grouped": verdict_of(grouped) if grouped else "",
        "cases": [asdict(outcome) for outcome in (*plain, *grouped)],
    }


def judged_mutation(mutation: Mutation, budget: Budget = MUTATION_BUDGET) -> dict[str, Any]:
    """A mutation's row: whether numpy finds it equal, and whether a proof of it was found."""
    a, b = mutation.case.programs()
    proof = prove_programs(a, b, packs(), budget=budget)
    return {
        "mutation": str(mutation),
        "kind": mutation.kind,
        "same": mutation.same_in_numpy(),
        "proved": isinstance(proof, axe.Proved),
    }


# -- scoreboard -----------------------------------------------------------------------------------


def counts(rows: Iterable[Mapping[str, Any]], source: str, column: str = "verdict") -> Counter[str]:
    """Verdicts on the rules of one source."""
    return Counter(r[column] for r in rows if r["name"].startswith(source) and r[column])


def wrong(rows: Sequence[Mapping[str, Any]], mutants: Sequence[Mapping[str, Any]]) -> list[str]:
    """Verdicts that numpy contradicts; there must be none."""
    found = [c["case"] for r in rows for c in r["cases"] if not c["numpy"]]
    return found + [m["mutation"] for m in mutants if m["proved"] and not m["same"]]


def report(rows: Sequence[Mapping[str, Any]], mutants: Sequence[Mapping[str, Any]]) -> str:
    """The scoreboard as a page."""
    lines = ["# Substitutions of TASO and Tensat", "", *_summary(rows, mutants)]
    lines += ["", "## Not proved at every shape", ""]
    lines += ["| rule | claim | fewest groups | more groups |", "|---|---|---|---|"]
    for row in rows:
        if (row["verdict"], row["grouped"] or PROVED) != (PROVED, PROVED):
            lines.append(
                f"| {row['name']} | `{row['rule']}` | {row['verdict']} | {row['grouped']} |"
            )
    for row in rows:
        shown = [c for c in row["cases"] if c["verdict"] != PROVED]
        lines += [f"\n{row['name']}: {_first(shown)}"] if shown else []
    lines += ["", "## All", "", "| rule | claim | verdict | s | laws |", "|---|---|---|---|---|"]
    lines += [_row(row) for row in rows]
    return "\n".join(lines) + "\n"


def _first(outcomes: Sequence[Mapping[str, Any]]) -> str:
    found = outcomes[0]
    return f"{found['verdict']} at `{found['case']}`: {found['note']}".replace("\n", " ")


def _row(row: Mapping[str, Any]) -> str:
    first = row["cases"][0]
    laws = first["note"] if first["verdict"] == PROVED else ""
    slowest = max(c["seconds"] for c in row["cases"])
    return f"| {row['name']} | `{row['rule']}` | {row['verdict']} | {slowest:.1f} | {laws} |"


def _summary(rows: Sequence[Mapping[str, Any]], mutants: Sequence[Mapping[str, Any]]) -> list[str]:
    table = ["| source | rules | proved | refuted | unknown |", "|---|---|---|---|---|"]
    for source, column, title in (
        ("taso", "verdict", "TASO, fewest groups"),
        ("tensat", "verdict", "Tensat, fewest groups"),
        ("taso", "grouped", "TASO, more groups"),
        ("tensat", "grouped", "Tensat, more groups"),
    ):
        found = counts(rows, source, column)
        cells = (sum(found.values()), found[PROVED], found[REFUTED], found[UNKNOWN])
        table.append(f"| {title} | {' | '.join(map(str, cells))} |")
    changed = [m for m in mutants if not m["same"]]
    proved = sum(m["proved"] for m in changed)
    kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(m["kind"] for m in mutants).items())
    return [
        "Written by `python -m benchmarks.substitutions`. A rule is proved if it is proved at each"
        " of three shapes, refuted if it is at one; a convolution has as many groups as its input"
        " has channels over those of its weight. Proofs are over the reals.",
        "",
        *table,
        "",
        f"Mutations: {len(mutants)} ({kinds}). {len(changed)} change the meaning; proved of those:"
        f" {proved}. Of the {len(mutants) - len(changed)} that change nothing,"
        f" {sum(m['proved'] for m in mutants if m['same'])} are proved.",
        "",
        f"Verdicts that numpy contradicts: {len(wrong(rows, mutants))}.",
    ]


def main() -> None:
    """Judge everything and write the scoreboard."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="names of rules, printed and not written")
    given = parser.parse_args()
    console = Console(stderr=True)
    rules = [*taso(), *tensat()]
    if given.only:
        for rule in rules:
            if rule.name in given.only:
                print(json.dumps(judged(rule), indent=1))
        return
    rows = [judged(rule) for rule in track(rules, "substitutions", console=console)]
    chosen = mutations(taso(), MUTATIONS)
    mutants = [judged_mutation(m) for m in track(chosen, "mutations", console=console)]
    result = {"machine": machine(), "rules": rows, "mutations": mutants}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "substitutions.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "substitutions.md").write_text(report(rows, mutants))
    print("\n".join(_summary(rows, mutants)))


if __name__ == "__main__":
    main()

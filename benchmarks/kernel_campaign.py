"""Every mutation of every subject: refused, caught by the interpreter, or argued legal.

``python -m benchmarks.kernel_campaign`` runs all of them and writes
results/kernel_mutations.json and .md.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from axe_eq.errors import AxeError
from axe_eq.kernel.dispatch import Names, choose
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.kernel.threads.interp import KernelFault, Report, interpret
from axe_eq.kernel.threads.plan import Address, Regs
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.families import derivations
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200
from axe_eq_backends.cuda.tensor_map import TensorMap
from benchmarks.kernel_mutations import (
    Mutant,
    Operand_,
    applied,
    kernel_mutants,
    layout_mutants,
    plan_mutants,
    with_plan,
)
from benchmarks.kernel_subjects import SUBJECTS, Subject
from benchmarks.kernel_survivors import argued
from benchmarks.machine import machine

ORDERS = (("early", 0), ("random", 0), ("late", 0), ("random", 1), ("random", 2))
REFUSED, FAULT, VALUES, SURVIVES = "refused", "fault", "values", "survives"
SAME_TEXT, SAME_EFFECTS = "same text", "same effects"
CRASH = "crash"  # of the compiler or the interpreter: never right
KINDS = (REFUSED, FAULT, VALUES, SAME_TEXT, SAME_EFFECTS, SURVIVES, CRASH)
RESULTS = Path(__file__).parent / "results"
ORDERS_OF_EACH = 50  # random ones, of subjects as they are
PART = 50  # mutants that one process takes at a time


@dataclass(frozen=True)
class Verdict:
    """How a mutant ends, and the message or order that shows it."""

    kind: str
    note: str = ""


class Campaign:
    """The mutants of one subject, and what becomes of each."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.subject: Subject = SUBJECTS[name]()
        self.kernel = self.subject.kernel
        self.planned = plan(self.kernel, h200)
        # All of this before any mutant: edits are made in place.
        self.text, self.effects = _launched(self.planned), self._first(self.planned)[1]
        kinds = (ir.CopyAsync, ir.Roles)
        overlaps = any(isinstance(s, kinds) for s, _ in ir.walk(self.kernel))
        # One order is all there is where nothing is asynchronous.
        self.orders = ORDERS if overlaps else ORDERS[:1]
        self.mutants: list[Mutant] = [
            *kernel_mutants(self.kernel), *layout_mutants(self.kernel),
            *plan_mutants(self.planned),
        ]  # fmt: skip

    def verdict(self, mutant: Mutant) -> Verdict:
        """Plan the mutant where its level asks for it, and interpret it in several orders."""
        try:
            return self._verdict(mutant)
        except Exception as error:  # named by the scoreboard, so that the others are judged
            return Verdict(CRASH, f"{type(error).__name__}: {error}")

    def _verdict(self, mutant: Mutant) -> Verdict:
        with applied(mutant.edits), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                planned = self._planned(mutant)
            except AxeError as refusal:
                return Verdict(REFUSED, str(refusal).splitlines()[0])
            found, effects = self._first(planned)
            if found.kind != SURVIVES:
                return found
            try:
                launched = _launched(planned)
            except AxeError as refusal:
                return Verdict(REFUSED, str(refusal).splitlines()[0])
            if launched == self.text:
                return Verdict(SAME_TEXT)
            if not mutant.synchronises and effects == self.effects:
                return Verdict(SAME_EFFECTS)
            return self._run(planned)

    def unchanged(self) -> Verdict:
        """The verdict on the subject itself: it survives."""
        first = self._first(self.planned)[0]
        return first if first.kind != SURVIVES else self._run(self.planned)

    def in_order(self, seed: int) -> str:
        """What is wrong with the subject in a random order, at both levels; "" if nothing."""
        for planned in (None, self.planned):
            try:
                run = self._interpreted(planned, "random", seed)
            except KernelFault as fault:
                return str(fault).splitlines()[0]
            if name := self.subject.wrong(run.outputs):
                return name
        return ""

    def _planned(self, mutant: Mutant) -> Planned:
        if mutant.level == "kernel":
            return plan(self.kernel, h200)
        if mutant.operand is None:
            # Emitters name tensor maps in the planned kernel: not in the one that others use.
            return replace(self.planned, resources=dict(self.planned.resources))
        return with_plan(self.planned, mutant.operand.primitive, self._misplanned(mutant.operand))

    def _misplanned(self, operand: Operand_) -> Plan:
        """The plan of a primitive one of whose operands is thought to lie otherwise."""
        view = operand.primitive.views()[operand.number]
        shadow = copy.copy(view.buffer)
        shadow.place = operand.place
        shadow.__dict__.pop("alignment", None)
        primitive = copy.copy(operand.primitive)
        other = replace(view, buffer=shadow)
        for attribute, value in vars(primitive).items():
            if value is view:
                setattr(primitive, attribute, other)
            elif isinstance(value, tuple) and view in value:
                setattr(primitive, attribute, tuple(other if v is view else v for v in value))
        where = next(w for s, w in ir.walk(self.kernel) if s is operand.primitive)
        found = choose(primitive, h200, where, derivations(), Names()).plan
        found.calls = [_with_buffer(c, shadow, view.buffer) for c in found.calls]
        return found

    def _first(self, planned: Planned) -> tuple[Verdict, str]:
        """The verdict of the order "early", and a digest of every change of memory, in order.

        Here alone every plan is compared with its primitive: that does not depend on the order.
        """
        order, seed = ORDERS[0]
        try:
            run = self._interpreted(planned, order, seed, digest=True, compare=True)
        except KernelFault as fault:
            return Verdict(FAULT, str(fault).splitlines()[0]), ""
        if name := self.subject.wrong(run.outputs):
            return Verdict(VALUES, f"{name}, order {order}"), run.digest
        return Verdict(SURVIVES), run.digest

    def _run(self, planned: Planned) -> Verdict:
        """The verdict of the other orders."""
        for order, seed in self.orders[1:]:
            try:
                run = self._interpreted(planned, order, seed)
            except KernelFault as fault:
                return Verdict(FAULT, str(fault).splitlines()[0])
            if name := self.subject.wrong(run.outputs):
                return Verdict(VALUES, f"{name}, order {order}")
        return Verdict(SURVIVES)

    def _interpreted(self, planned: Planned | None, order: str, seed: int, **how: Any) -> Report:
        s = self.subject
        with np.errstate(all="ignore"):  # what is outside a tensor may be infinite
            return interpret(
                self.kernel, s.arrays, s.params, planned=planned, meanings=MEANINGS,
                n_ctas=s.n_ctas, order=order, seed=seed, **how,
            )  # fmt: skip


def _launched(planned: Planned) -> tuple[Any, ...]:
    """Everything that a launch depends on; comments say what was meant, not what is done."""
    source, kernel = emit(planned), planned.kernel
    text = re.sub(r"//.*", "", source.text)
    grid = str(kernel.tiles), kernel.persistent
    return text, source.arguments, source.smem_bytes, grid, planned.requires, planned.align


def _with_buffer(call: Call, shadow: ir.Buffer, buffer: ir.Buffer) -> Call:
    """The call on the real buffer."""

    def real(value: Any) -> Any:
        if value is shadow:
            return buffer
        if isinstance(value, Address | Regs | TensorMap) and value.buffer is shadow:
            return replace(value, buffer=buffer)
        return tuple(map(real, value)) if isinstance(value, tuple) else value

    return Call(call.op, {name: real(value) for name, value in call.args.items()})


@dataclass(frozen=True)
class Outcome:
    """A mutant of a subject, its verdict, and the argument why a survivor is legal."""

    subject: str
    mutant: str
    operator: str
    level: str
    detail: str
    verdict: Verdict
    reason: str


campaign = cache(Campaign)


def judged(name: str, numbers: range) -> list[Outcome]:
    """The outcomes of some mutants of a subject."""
    found = campaign(name)
    out = []
    for n in numbers:
        m = found.mutants[n]
        verdict = found.verdict(m)
        reason = argued(name, m) if verdict.kind == SURVIVES else ""
        out.append(Outcome(name, str(m), m.operator, m.level, m.detail, verdict, reason))
    return out


def in_orders(name: str, count: int) -> dict[str, str]:
    """What is wrong with a subject in so many random orders of asynchronous effects."""
    found = {f"{name}, order {seed}": campaign(name).in_order(seed) for seed in range(count)}
    return {order: wrong for order, wrong in found.items() if wrong}


def all_in_orders(workers: int, count: int) -> dict[str, Any]:
    """`in_orders` of every subject, for a scoreboard."""
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        wrong = [w for found in pool.map(partial(in_orders, count=count), SUBJECTS)
                 for w in found.items()]  # fmt: skip
    return {"subjects": len(SUBJECTS), "orders": count, "wrong": dict(wrong)}


def all_outcomes(workers: int, step: int = 1) -> Iterator[Outcome]:
    """The outcomes of every `step`-th mutant of every subject, subject by subject."""
    parts = [
        (name, range(start, min(start + PART * step, n), step))
        for name in SUBJECTS
        for n in (len(campaign(name).mutants),)
        for start in range(0, n, PART * step)
    ]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for found in pool.map(judged, *zip(*parts, strict=True)):
            yield from found


# -- the scoreboard --


def scoreboard(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Counts per subject and operator, and every survivor with its argument."""
    found = list(outcomes)
    counts: dict[str, dict[str, dict[str, int]]] = {"subjects": {}, "operators": {}}
    for o in found:
        for table, key in (("subjects", o.subject), ("operators", f"{o.level}: {o.operator}")):
            row = counts[table].setdefault(key, {})
            row[o.verdict.kind] = row.get(o.verdict.kind, 0) + 1
    survivors: dict[str, dict[str, list[str]]] = {}
    for o in found:
        if o.verdict.kind == SURVIVES:
            reasons = survivors.setdefault(o.reason or "NOT ARGUED", {})
            shown = o.mutant + (f" ({o.detail})" if o.detail else "")
            reasons.setdefault(o.subject, []).append(shown)
    unargued = sum(o.verdict.kind == SURVIVES and not o.reason for o in found)
    crashes = sorted({f"{o.subject}: {o.mutant} ({o.verdict.note})" for o in found
                      if o.verdict.kind == CRASH})  # fmt: skip
    return {
        "mutants": len(found), "unargued": unargued, "crashes": crashes, **counts,
        "survivors": {r: {s: sorted(m) for s, m in by.items()} for r, by in survivors.items()},
    }  # fmt: skip


def report(board: dict[str, Any]) -> str:
    """The scoreboard as a page."""
    lines = [
        "# Mutations of kernels",
        "",
        "Written by `python -m benchmarks.kernel_campaign`. A mutant is one mistake at one site: of"
        " a statement, of the layout that one operand is planned with, or of one call of a plan."
        " It is *refused* by a static check or by dispatch, caught by the interpreter (a *fault*,"
        " or wrong *values*), or changes nothing: the emitted text is the *same*, or every change"
        " of memory is (*same effects*). What else *survives* is argued below.",
        "",
        f"{board['mutants']} mutants; survivors that are not argued legal: {board['unargued']}.",
        "",
        f"{board['orders']['subjects']} subjects as they are, each in {board['orders']['orders']}"
        " random orders of asynchronous effects, statements and plans:"
        f" {len(board['orders']['wrong'])} wrong.",
    ]
    for table in ("subjects", "operators"):
        lines += ["", f"| {table} | {' | '.join(KINDS)} |", "|---" * (1 + len(KINDS)) + "|"]
        rows = board[table] if table == "subjects" else dict(sorted(board[table].items()))
        for name, row in rows.items():
            lines.append(f"| {name} | {' | '.join(str(row.get(k, 0)) for k in KINDS)} |")
    lines += ["", "## Survivors"]
    for reason, by_subject in board["survivors"].items():
        lines += ["", f"{reason}:", ""]
        for subject, mutants in by_subject.items():
            for m, times in sorted(Counter(mutants).items()):
                lines.append(f"- {subject}: `{m}`" + (f" ({times} times)" if times > 1 else ""))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the whole campaign and write the scoreboard."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Formatter)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--step", type=int, default=1, help="every n-th mutant; writes nothing")
    parser.add_argument("--orders", type=int, default=ORDERS_OF_EACH, help="of every subject")
    parser.add_argument("--subject", action="append", help="only these; writes nothing")
    given = parser.parse_args()
    for name in [n for n in SUBJECTS if given.subject and n not in given.subject]:
        del SUBJECTS[name]
    total = sum(-(-len(campaign(name).mutants) // given.step) for name in SUBJECTS)
    found = all_outcomes(given.workers, given.step)
    orders = all_in_orders(given.workers, given.orders)
    board = {"orders": orders} | scoreboard(
        track(found, "mutants", total, console=Console(stderr=True))
    )
    if given.step == 1 and not given.subject:
        where = {"machine": machine()}
        text = json.dumps(where | board, indent=1)
        (RESULTS / "kernel_mutations.json").write_text(text + "\n", encoding="utf-8")
        (RESULTS / "kernel_mutations.md").write_text(report(board), encoding="utf-8")
    else:
        print(report(board))


_Formatter = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    main()

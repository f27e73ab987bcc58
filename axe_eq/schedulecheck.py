"""Automatic tests of schedules: what they lower computes the cones that they were given.

Sample programs are compiled with a pack's laws on its target, once as the cost model chooses and
once with the schedule made nearly free, so that extraction takes it wherever it does not refuse.
Every kernel it gets is lowered, interpreted and compared with the meaning of its cone.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axe_eq import nn
from axe_eq.check.kernelcheck import KINDS, Wrong, wrong_on_samples
from axe_eq.debug import progress
from axe_eq.errors import ProgramError, SearchError
from axe_eq.extract.price.priced import Prices
from axe_eq.extract.price.pricer import Pricer
from axe_eq.extract.read.excluded import drop_unwritable, emitter_of
from axe_eq.extract.read.forest import Forest, read_forest
from axe_eq.extract.search.stage import extract
from axe_eq.kernel.families import RowFamily, replaced
from axe_eq.pack import Pack, installed
from axe_eq.pipeline.rounds import graph_of
from axe_eq.pipeline.saturation import saturate_program
from axe_eq.program.node import OP, Program
from axe_eq.program.ops import MONOIDS
from axe_eq.program.signature import signature
from axe_eq.program.terms import encode
from axe_eq.program.trace import trace
from axe_eq.prove.certificates.rebuild import rebuild, reshape_program
from axe_eq.run.interpret import Interpreter, interpreter_of
from axe_eq.schedule.graph import KernelStep, ScheduleGraph
from axe_eq.schedule.summary import Columns, Schedule, Summary
from axe_eq.target import Target

SHOWN = 3  # findings of one schedule
FREE = 1e-9  # of its own estimate: what a schedule costs where it is to be taken

Sample = tuple[Callable[..., Any], tuple[str, ...]]


def _gated(x: Any, w: Any, v: Any) -> Any:
    return nn.silu(x @ w) * (x @ v)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return nn.softmax(q @ k.T * 0.125, axis=-1) @ v


def _turned(x: Any) -> Any:
    return x.__array_namespace__().permute_dims(x, (0, 2, 1))


def _joined(x: Any, y: Any) -> Any:
    return x.__array_namespace__().concat([x, y], axis=1)


def _folded(name: str, **options: Any) -> Callable[..., Any]:
    return lambda x: getattr(x.__array_namespace__(), name)(x, **options)


def _chosen(x: Any, y: Any) -> Any:
    xp = x.__array_namespace__()
    return xp.where(x > y, x, xp.exp(y))


# Ragged extents, and whole tiles for schedules that take no others.
SAMPLES: dict[str, Sample] = {
    "relu(x) * 3": (lambda x: nn.relu(x) * 3, ("24x40:f32",)),
    "relu(x) * 3, whole tiles": (lambda x: nn.relu(x) * 3, ("128x128:f32",)),
    "relu(x) * 3, halves": (lambda x: nn.relu(x) * 3, ("33x40:f16",)),
    "-x, one dim": (lambda x: -x, ("1000:f32",)),
    "y * x ** 2 + 1.5, rows of y": (lambda x, y: y * x**2 + 1.5, ("33x40:f16", "40:f16")),
    "x * y + 7, integers": (lambda x, y: x * y + 7, ("17x24:i32", "17x24:i32")),
    "x - y, bf16": (lambda x, y: x - y, ("16x64:bf16", "16x64:bf16")),
    "where(x > y, x, exp(y))": (_chosen, ("24x40:f32", "24x40:f32")),
    "x * x + y, doubles": (lambda x, y: x * x + y, ("9x20:f64", "9x20:f64")),
    "x + y and x * y": (lambda x, y: (x + y, x * y), ("24x32:f16", "24x32:f16")),
    "x.T + 1": (lambda x: x.T + 1, ("72x136:f16",)),
    "permute(x, 0 2 1)": (_turned, ("2x40x48:f32",)),
    "concat(x, y)": (_joined, ("24x40:f16", "24x24:f16")),
    "x[1:, ::2]": (lambda x: x[1:, ::2], ("20x34:f32",)),
    "running sums": (_folded("cumulative_sum", axis=1), ("9x70:f32",)),
    "row sums": (_folded("sum", axis=-1), ("17x64:f32",)),
    "column maxima": (_folded("max", axis=0), ("40x24:f32",)),
    "sum of all": (_folded("sum"), ("24x40:f32",)),
    "softmax": (lambda x: nn.softmax(x, axis=-1), ("9x100:f16",)),
    "layernorm(x) * g": (lambda x, g: nn.layernorm(x) * g, ("9x96:f32", "96:f32")),
    "a @ b": (lambda a, b: a @ b, ("72x64:f16", "64x136:f16")),
    "a @ b.T, whole tiles": (lambda a, b: a @ b.T, ("128x128:f16", "256x128:f16")),
    "a @ b, floats": (lambda a, b: a @ b, ("40x32:f32", "32x24:f32")),
    "a @ b, bf16": (lambda a, b: a @ b, ("64x64:bf16", "64x64:bf16")),
    "few rows @ b": (lambda a, b: a @ b, ("8x128:f16", "128x64:f16")),
    "relu(a @ b + c)": (lambda a, b, c: nn.relu(a @ b + c), ("72x64:f16", "64x64:f16", "64:f16")),
    "silu(a @ b) * (a @ c)": (_gated, ("64x64:f16", "64x128:f16", "64x128:f16")),
    "relu(a) @ b": (lambda a, b: nn.relu(a) @ b, ("72x64:f16", "64x64:f16")),
    "a @ b and a @ c": (lambda a, b, c: (a @ b, a @ c), ("64x64:f16", "64x64:f16", "64x64:f16")),
    "batches of a @ b": (lambda a, b: a @ b, ("2x40x32:f16", "2x32x48:f16")),
    "attention": (_attention, ("72x64:f16", "100x64:f16", "100x64:f16")),
}  # fmt: skip


@dataclass(frozen=True)
class ScheduleReport:
    """What the test of one schedule did.

    Attributes:
        name: of the schedule.
        target: the machine; "" where it was not tested.
        kernels: distinct kernels that were compared.
        programs: sample programs that were compiled.
        findings: what is wrong, one sentence each with the program.
        skipped: why it was not tested.
    """

    name: str
    target: str = ""
    kernels: int = 0
    programs: int = 0
    findings: tuple[str, ...] = ()
    skipped: str = ""

    def __str__(self) -> str:
        if self.skipped:
            return f"schedule {self.name!r}: not tested, {self.skipped}"
        lines = [f"schedule {self.name!r}: {finding}" for finding in self.findings[:SHOWN]]
        if more := len(self.findings) - SHOWN:
            lines += [f"schedule {self.name!r}: and {more} more"] * (more > 0)
        right = f"{self.kernels} kernels of {self.programs} programs compute their cones"
        return "\n".join(lines) or f"schedule {self.name!r}: {right} on {self.target!r}"


class Preferred:
    """A schedule that costs next to nothing, so that extraction takes it where it can."""

    def __init__(self, inner: Schedule) -> None:
        self.inner, self.name, self.families = inner, inner.name, inner.families
        self.scans = getattr(inner, "scans", False)
        if hasattr(inner, "candidates"):
            self.candidates = self._candidates

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """As the schedule."""
        return self.inner.refuse(summary, target)

    def price(self, summary: Summary, target: Target) -> Columns:
        """Its candidates, all at a small part of their times."""
        columns = self.inner.price(summary, target)
        if isinstance(columns, Columns):  # else the pricer says what is wrong with it
            columns = replace(columns, time_s=np.asarray(columns.time_s) * FREE)
        return columns

    def _candidates(self, step: KernelStep, target: Target) -> list[Any]:
        """Those of a schedule that reads cones, likewise."""
        found = getattr(self.inner, "candidates")(step, target)  # noqa: B009
        return [replace(c, time_s=c.time_s * FREE) for c in found]


def check_schedules(
    pack: Pack, target: Target | None = None, samples: Mapping[str, Sample] | None = None
) -> list[ScheduleReport]:
    """Test every schedule of a pack.

    Args:
        pack: the pack; all installed ones take part as they do in `compile`.
        target: the machine; by default per family the pack's own, else the first that is known.
        samples: name -> (function, specs); by default `SAMPLES` and the schedule's own (attribute
            `samples`: programs that reach it, in the same form).

    Raises:
        PackError: a schedule fails, or answers with what is no reason or no table.
    """
    used = list({**installed(), pack.name: pack}.values())
    given = SAMPLES if samples is None else samples
    own = {s.name: getattr(s, "samples", {}) for s in pack.schedules} if samples is None else {}
    trials = [_Trials(s, used, _target(s, pack, used, target)) for s in pack.schedules]
    live = [t for t in trials if not t.skipped]
    everywhere = {name: sample for more in own.values() for name, sample in more.items()}
    programs = _traced({**given, **everywhere})
    for name in everywhere:
        programs |= {f"{name}, {how}": made for how, made in varied(programs[name])}
    for number, (name, program) in enumerate(programs.items() if live else ()):
        progress.at(f"program {number + 1} of {len(programs)}: {name}")
        searched: dict[str, _Searched | None] = {}
        for trial in live:
            assert trial.target is not None
            if trial.target.name not in searched:
                searched[trial.target.name] = _searched(program, used, trial.target)
            trial.run(name, searched[trial.target.name])
    return [trial.report() for trial in trials]


@dataclass(frozen=True)
class RowFamilyReport:
    """What the test of one family of instruction rows did.

    Attributes:
        name: of the family.
        target: the machine whose rows were used; "" where there is none.
        calls: of its instructions that were interpreted.
        programs: sample programs that were compiled.
        findings: what is wrong, one sentence each with the program.
    """

    name: str
    target: str
    calls: int
    programs: int
    findings: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.findings:
            return "\n".join(f"row family {self.name!r}: {f}" for f in self.findings[:SHOWN])
        done = f"{self.calls} calls in {self.programs} programs do what their primitives say"
        return f"row family {self.name!r}: {done} on {self.target!r}"


def check_row_families(
    pack: Pack, samples: Mapping[str, Sample] | None = None
) -> list[RowFamilyReport]:
    """Test the row families of a pack, on its own machines that have such rows.

    Sample programs are compiled for such a machine, and every kernel is interpreted by its
    instruction calls and compared with the meaning of its cone. Families of a pack that brings the
    interpreter too are tested by its schedules.

    Args:
        pack: the pack.
        samples: name -> (function, specs); by default `SAMPLES` and the family's own.

    Raises:
        PackError: a derivation or meaning fails otherwise than by refusing.
    """
    used = list({**installed(), pack.name: pack}.values())
    given = _traced(SAMPLES if samples is None else samples)
    reports = []
    for (target_family, name), family in pack.row_families.items():
        if target_family in pack.interpreters:
            continue
        machines = [
            t for t in pack.targets.values()
            if t.family == target_family and any(r.family == name for r in t.instrs)
        ]  # fmt: skip
        programs = given | (_traced(family.samples) if samples is None else {})
        for target in machines:
            trial = _Family(family, used, target)
            for number, (what, program) in enumerate(programs.items()):
                progress.at(f"program {number + 1} of {len(programs)}: {what}")
                trial.run(what, program)
            reports.append(trial.report())
        if not machines:
            wrong = f"no target of pack {pack.name!r} has a row {name}.*"
            reports.append(RowFamilyReport(name, "", 0, 0, (wrong,)))
    return reports


def _traced(samples: Mapping[str, Sample]) -> dict[str, Program]:
    return {what: trace(fn, *specs) for what, (fn, specs) in samples.items()}


class _Family:
    """The test of one row family on one machine; counts the calls that are interpreted."""

    def __init__(self, family: RowFamily, used: Sequence[Pack], target: Target) -> None:
        self.family, self.used, self.target = family, used, target
        self.calls, self.programs = Counter[str](), 0
        self.findings: list[str] = []

    def run(self, what: str, program: Program) -> None:
        """Compile one program and compare its kernels."""
        interpreter = interpreter_of(self.used, self.target.family)
        searched = _searched(program, self.used, self.target)
        if interpreter is None or searched is None or searched.graph is None:
            return
        self.programs += 1
        graph, rng = searched.graph, np.random.default_rng(zlib.crc32(what.encode()))
        meanings = {name: self._counting(name, m) for name, m in self.family.meanings.items()}
        with replaced(self.target.family, replace(self.family, meanings=meanings)):
            for kind, wrong in wrong_on_samples(program, graph, self.target, interpreter, rng):
                self.findings.append(_said(what, kind, wrong))

    def _counting(self, name: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def meaning(*given: Any) -> Any:
            self.calls[name] += 1
            return does(*given)

        return meaning

    def report(self) -> RowFamilyReport:
        """What was found; never to have been used is a finding."""
        found = list(self.findings)
        if not self.calls:
            found.append(f"no sample program uses it on {self.target.name!r}")
        return RowFamilyReport(
            self.family.name, self.target.name, self.calls.total(), self.programs, tuple(found)
        )


EXTENTS: dict[str, Callable[[int], int]] = {
    "one more": lambda e: e + 1, "one less": lambda e: e - 1, "odd": lambda e: e // 2 | 1,
    "one": lambda e: 1,
}  # fmt: skip


def varied(program: Program) -> Iterator[tuple[str, Program]]:
    """A sample at other extents, and with other monoids in its reductions, as far as these fit.

    A schedule for sums of whole tiles sees figures: what it must refuse is what its author did not
    think of, one element more, or a maximum in the place of the sum.
    """
    extents = sorted({e for i in program.inputs for e in i.node.shape if e > 1})
    for how, other in EXTENTS.items():
        changed = reshape_program(program, {e: other(e) for e in extents})
        if changed is not None:
            yield f"extents {how}", changed
    used = {signature(n.text).monoid for n in program.nodes() if n.kind == OP} - {""}
    takes = {MONOIDS[m].n_values for m in used}
    for name in MONOIDS if used else ():
        if name in used or takes != {MONOIDS[name].n_values}:
            continue

        def renamed(text: str, name: str = name) -> str:
            sig = signature(text)
            return replace(sig, monoid=name).text if sig.monoid else text

        try:
            outputs = rebuild(program.outputs, lambda node: node, renamed)
        except ProgramError:
            continue
        yield (
            f"{name} for {' '.join(sorted(used))}",
            replace(program, outputs=tuple(outputs), names={}, places={}, retrace=None),
        )


def _target(
    schedule: Schedule, pack: Pack, used: Sequence[Pack], wanted: Target | None
) -> Target | None:
    if wanted is not None:
        return wanted if wanted.family in schedule.families else None
    own, theirs = pack.targets.values(), [(p, t) for p in used for t in p.targets.values()]
    # Machines of who writes for their family come before those that others add to it.
    theirs.sort(key=lambda at: at[1].family not in at[0].emitters)
    return next((t for t in (*own, *(t for _, t in theirs)) if t.family in schedule.families), None)


@dataclass(frozen=True)
class _Searched:
    """A sample program with its saturated forest, and the schedule chosen from it.

    Attributes:
        graph: None where nothing implements the program.
        summaries: of all cones that were priced on the way.
    """

    program: Program
    forest: Forest
    target: Target
    graph: ScheduleGraph | None
    summaries: Collection[Summary]

    def chosen(self, pricer: Pricer) -> ScheduleGraph | None:
        """The schedule of the program; None where nothing implements it."""
        return _graph(self.program, self.forest, pricer)


def _searched(program: Program, used: Sequence[Pack], target: Target) -> _Searched | None:
    """A program searched as `compile` does; None where a limit or a missing law stops that."""
    terms = encode(program.outputs)
    try:
        graph = saturate_program(program, terms, used, ())
    except SearchError:
        return None
    forest = read_forest(graph.session, graph.requests)
    drop_unwritable(forest, emitter_of(used, target.family))
    pricer = Pricer(target, [s for p in used for s in p.schedules])
    made = _graph(program, forest, pricer)
    return _Searched(program, forest, target, made, tuple(pricer.summaries))


def _graph(program: Program, forest: Forest, pricer: Pricer) -> ScheduleGraph | None:
    try:
        found = extract(Prices(forest, pricer))
    except SearchError:
        return None
    return graph_of(program, found, found.groups, pricer.target, "real")


class _Trials:
    """One schedule on all sample programs."""

    def __init__(self, schedule: Schedule, used: Sequence[Pack], target: Target | None) -> None:
        self.schedule, self.used, self.target = schedule, used, target
        self.seen: set[str] = set()
        self.findings: list[str] = []
        self.programs = 0
        self.interpreter: Interpreter | None = None
        families = " ".join(schedule.families)
        self.skipped = ""
        if target is None:
            self.skipped = f"no target of family {families} is known"
            return
        self.interpreter = interpreter_of(used, target.family)
        if self.interpreter is None:
            self.skipped = f"family {target.family!r} has no interpreter"

    def run(self, name: str, searched: _Searched | None) -> None:
        """Compare the kernels that the schedule gets, as it costs and where it is preferred."""
        self.programs += 1
        if searched is None:
            return
        assert self.target is not None
        graphs = [searched.graph]
        if any(self.schedule.refuse(s, self.target) is None for s in searched.summaries):
            others = [s for p in self.used for s in p.schedules if s is not self.schedule]
            pricer = Pricer(self.target, [Preferred(self.schedule), *others])
            graphs.append(searched.chosen(pricer))
        for graph in graphs:
            if graph is not None:
                self._compare(name, searched.program, graph)

    def _compare(self, name: str, program: Program, graph: ScheduleGraph) -> None:
        assert self.target is not None
        assert self.interpreter is not None
        mine = [k for k in graph.kernels if k.schedule == self.schedule.name]
        new = [k for k in mine if _content(k, graph) not in self.seen]
        if not new:
            return
        self.seen |= {_content(k, graph) for k in new}
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        own = {self.schedule.name}
        for kind, wrong in wrong_on_samples(
            program, graph, self.target, self.interpreter, rng, own
        ):
            if wrong.step in new:
                self.findings.append(_said(name, kind, wrong))
                new = [step for step in new if step is not wrong.step]

    def report(self) -> ScheduleReport:
        """What was found."""
        findings = list(self.findings)
        if not self.skipped and not self.seen:
            findings = [
                f"none of {self.programs} sample programs reaches it, made nearly free or not; "
                "give it `samples` that do"
            ]
        name = self.target.name if self.target and not self.skipped else ""
        return ScheduleReport(
            self.schedule.name, name, len(self.seen), self.programs, tuple(findings), self.skipped
        )


def _said(sample: str, kind: str, wrong: Wrong) -> str:
    on = sample if kind == KINDS[0] else f"{sample}, {kind} values"
    return f"on {on}: kernel {wrong.step.name} {wrong.problem}"


def _content(step: KernelStep, graph: ScheduleGraph) -> str:
    """What a kernel is, whatever its buffers are called."""
    names = [a.layout for a in (*step.reads, *step.writes)]
    return repr((step.nodes, step.roots, names, step.row, sorted(step.parameters.items())))

"""The way through, read this first: from a Python function to a schedule that runs.

    function --trace--> program --encode--> terms --saturate--> e-graph --extract--> selection
    --build--> graph

One line per stage in `compile`, each through `debug.stage`, which times it, prints it, dumps it and
checks what it must hold. Trace and encode apply no law; only extract chooses.
"""

from __future__ import annotations

import gc
import json
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from axe_eq.answers import as_answer, from_answer, from_cache
from axe_eq.debug import Report, StageRecord, progress, stage, switches
from axe_eq.egraph.phases import Saturated, saturate
from axe_eq.egraph.session import Limits
from axe_eq.egraph.worker import is_limited, run_limited
from axe_eq.errors import ArgumentError, PackError, ProgramError, SearchError
from axe_eq.extract.able import drop_unwritable, emitter_of, without_machine
from axe_eq.extract.choose import Group, chosen
from axe_eq.extract.circles import leave_out_circles
from axe_eq.extract.commit import MOST_ROUNDS, Failure, Kernels
from axe_eq.extract.forest import read_forest
from axe_eq.extract.mesh import build_mesh, plan_mesh, read_mesh
from axe_eq.extract.pareto import PRICES
from axe_eq.extract.price import Pricer
from axe_eq.extract.priced import Prices
from axe_eq.extract.stage import Extracted, extract
from axe_eq.layout import Layout, Mesh
from axe_eq.pack import Pack, by_reference, laws_of, name_list, reference
from axe_eq.pack import packs as find_packs
from axe_eq.program.facts import facts_of
from axe_eq.program.node import INPUT, Node, Program
from axe_eq.program.show import value_names
from axe_eq.program.store import program_from_json, program_to_json
from axe_eq.program.terms import OPERATORS, Cons, In, Nil, decode, encode, type_of, types_of
from axe_eq.program.trace import trace
from axe_eq.prove.agree import disagreement
from axe_eq.prove.kernelcheck import check_kernels
from axe_eq.requests import (
    arrival_layouts,
    check_axes,
    check_memory,
    constant_nodes,
    everywhere,
    mesh_requests,
    n_bytes_text,
    requests_of,
    too_large,
    wanted_layouts,
    without_plan,
)
from axe_eq.rule.term import Term
from axe_eq.run.cache import Cache, key
from axe_eq.run.executable import Executable
from axe_eq.run.fingerprint import program_key
from axe_eq.run.rebind import Compare
from axe_eq.schedule import terms as schedule_terms
from axe_eq.schedule.build import build
from axe_eq.schedule.graph import ScheduleGraph
from axe_eq.schedule.memory import plan
from axe_eq.schedule.shard import mesh_text
from axe_eq.schedule.terms import row_major
from axe_eq.schedule.timeline import timeline
from axe_eq.target import Target

SYMBOLS = (In, *OPERATORS, Nil, Cons, schedule_terms.Buffer)
ANALYSES = (type_of, types_of, schedule_terms.arrival)
PROGRAMS = Cache("programs")
LEVEL_OF_SEARCH = 2  # AXE_DEBUG: from here on it shows what a search does
LEAST_GRACE_S = 5.0  # to choose from what a search found within its time; or as long again


def compile(
    fn: Callable[..., Any] | Program,
    *specs: Any,
    target: str | Target | None = None,
    mesh: Mesh | None = None,
    outputs: Sequence[Layout | None] | None = None,
    packs: Iterable[str | Pack] | None = None,
    without: Iterable[str] = (),
    numerics: str = "real",
    tune: bool = False,
) -> Executable:
    """Compile a function of arrays: choose the cheapest schedule and make it runnable.

    Args:
        fn: a function of arrays, see `trace`; or a traced program.
        specs: what its arguments look like; arrays may stand for specs.
        target: a machine or its name; by default the first GPU that is a known target, else "cpu".
        mesh: devices; None for one. On a mesh the schedule graph is planned, not run, and inputs
            whose specs give no layout are whole on every device.
        outputs: the layout wanted of every output; None, or None in it, leaves dense row-major on
            one device and the cheapest cut on a mesh.
        packs: names of packs or packs; all installed ones by default.
        without: laws ("pack/law" or "law") and packs to leave out.
        numerics: "real" (laws of real numbers allowed) or "exact" (bit for bit laws only).
        tune: reserved for measuring candidates on the device; must be False here.

    Returns:
        The executable. Its search is kept on disk, by everything it depends on (AXE_CACHE_DIR,
        AXE_CACHE): the next one of the same program takes milliseconds.

    Raises:
        ProgramError, PackError, SearchError, ScheduleError: see their texts.
    """
    if numerics not in ("real", "exact"):
        raise ProgramError(f"numerics {numerics!r}", "is not a mode", "'real' or 'exact'")
    if tune:
        raise SearchError("tune=True", "measuring on a device is not available", "tune=False")
    if mesh is not None and not isinstance(mesh, Mesh):
        raise ArgumentError(f"mesh={mesh!r}", "is no mesh", 'a Mesh such as Mesh({"x": 2})')
    left_out = tuple(name_list("without", without))
    used = [p for p in find_packs(packs, left_out) if p.exact or numerics == "real"]
    machine = find_target(target, find_packs(packs))
    report = Report()
    program = stage("trace", lambda: as_program(fn, specs), report=report, show={5: str})
    if outputs is not None:
        program = replace(program, output_layouts=wanted_layouts(program, outputs))
    check_axes(program, machine, mesh)
    check_memory(program, machine, mesh)

    def search(report: Report) -> Executable:
        terms = stage("encode", lambda: encode(program.outputs), report=report,
                      check=lambda t: check_decodes(t, program))  # fmt: skip
        choose = _choose_limited if is_limited() else _choose
        return choose(program, terms, mesh, machine, used, left_out, numerics, report)

    text = program_key(program, machine, mesh, used, left_out, numerics) if is_cached() else None
    if text is None:
        return search(report)
    name = key(text)
    known = PROGRAMS.read(name, lambda data: from_cache(
        json.loads(data), program, machine, used, numerics, report, _differ(used, numerics),
        lambda: search(Report()),
    ))  # fmt: skip
    if known is not None:
        return known
    made = search(report)
    if not made.stopped.startswith("time"):  # what a clock stops ends elsewhere the next time
        PROGRAMS.store(name, json.dumps(as_answer(made)).encode())
    return made


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No look for cyclic garbage inside.

    What a search makes is nearly all alive: looking at it took a tenth of the time, in pauses of up
    to 0.2 s, and compiling needs no more memory without.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_collector_paused()
def _choose(
    program: Program,
    terms: Mapping[Node, Term],
    mesh: Mesh | None,
    machine: Target,
    used: Sequence[Pack],
    left_out: Sequence[str],
    numerics: str,
    report: Report,
) -> Executable:
    """The stages from saturate on."""
    if mesh is not None:
        return _choose_mesh(program, terms, mesh, machine, used, left_out, numerics, report)
    graph = stage("saturate", lambda: saturate_program(
                      program, terms, used, left_out, numerics=numerics), report=report,
                  notes=saturation_notes, show={3: matches_text})  # fmt: skip
    choices = read_choices(program, terms, graph, machine, used)
    for number in range(1, MOST_ROUNDS + 1):  # until every kernel that is taken is built
        found, built = _round(number, program, choices, used, numerics, report)
        if not choices.improve(built, report):
            break
    else:
        raise given_up(built)
    return Executable(
        program, built.schedule, machine, tuple(used), numerics, report, found, graph.matches,
        differ=_differ(used, numerics),
    )  # fmt: skip


def _round(
    number: int,
    program: Program,
    choices: Choices,
    used: Sequence[Pack],
    numerics: str,
    report: Report,
) -> tuple[Extracted, Built]:
    """Extract and build once, with what was ruled out so far."""
    target = choices.kernels.target
    found = stage("extract", lambda: extract_program(choices),
                  report=report, notes=extraction_notes)  # fmt: skip
    built = stage("build", lambda: build_program(program, choices, found, numerics), report=report,
                  notes=partial(build_notes, choices, number),
                  compare=lambda b: compare_kernels(program, b, target, used))  # fmt: skip
    return found, built


def _choose_mesh(
    program: Program,
    terms: Mapping[Node, Term],
    mesh: Mesh,
    target: Target,
    used: Sequence[Pack],
    without: Sequence[str],
    numerics: str,
    report: Report,
) -> Executable:
    """The stages from saturate on, for a mesh: the same graph, other requests."""
    text = mesh_text(mesh)
    program = everywhere(program, text)
    requests = mesh_requests(program, terms, text)
    graph = stage("saturate", lambda: saturate_program(
                      program, terms, used, without, requests, numerics), report=report,
                  notes=saturation_notes, show={3: matches_text})  # fmt: skip
    forest = stage("read", lambda: read_mesh(graph.session, text, target, requests), report=report)
    try:
        ways = stage("extract", lambda: plan_mesh(forest, text, target), report=report)
    except SearchError as error:
        raise limited(graph, without_plan(program, error)) from error
    layouts = arrival_layouts(program)
    inputs = [(i.name, i.node.type, layouts[i.name]) for i in program.inputs]
    schedule = stage("build", lambda: build_mesh(ways, text, target, inputs),
                     report=report, notes=lambda g: {"steps": len(g.steps)})  # fmt: skip
    return Executable(
        program, schedule, target, tuple(used), numerics, report, None, graph.matches,
        differ=_differ(used, numerics),
    )  # fmt: skip


def _differ(used: Sequence[Pack], numerics: str) -> Compare:
    """How an executable compares itself with its function at other extents."""
    return partial(disagreement, numerics=numerics, packs=used)


# -- in a worker ----------------------------------------------------------------------------------


def _choose_limited(
    program: Program,
    terms: Mapping[Node, Term],
    mesh: Mesh | None,
    machine: Target,
    used: Sequence[Pack],
    left_out: Sequence[str],
    numerics: str,
    report: Report,
) -> Executable:
    """The stages from saturate on, in a worker that ends at its limits."""
    now = switches()
    # Values of constants choose nothing, and may be large.
    bare = replace(program, constants=dict.fromkeys(program.constants, np.empty(0, np.bool_)))
    job = {
        "program": program_to_json(bare),
        "mesh": None if mesh is None else [list(mesh.shape.items()), mesh.axis],
        "target": _target_text(machine),
        "packs": [reference(pack) for pack in used],
        "without": left_out,
        "numerics": numerics,
    }
    found = stage("search", lambda: json.loads(run_limited(
        "axe_eq.pipeline:choose_stored", json.dumps(job), first="axe_eq.pack:load_for",
        seconds=now.time_limit_s,
        memory_bytes=now.memory_limit_mb and now.memory_limit_mb << 20,
        grace_s=max(now.time_limit_s or 0.0, LEAST_GRACE_S), tell=progress.at,
    )), report=report, describe=lambda answer: answer["explanation"])  # fmt: skip
    report.stages += [StageRecord(**s | {"depth": s["depth"] + 1}) for s in found["stages"]]
    return from_answer(found, program, machine, used, numerics, report, _differ(used, numerics))


def choose_stored(text: str) -> str:
    """What a worker does: the stages from saturate on for a job of `compile`, JSON to JSON."""
    job = json.loads(text)
    used = [by_reference(name) for name in job["packs"]]
    program = program_from_json(job["program"])
    mesh = None if job["mesh"] is None else Mesh(dict(job["mesh"][0]), job["mesh"][1])
    target: Target = pickle.loads(b64decode(job["target"]))
    exe = _choose(program, encode(program.outputs), mesh, target, used, job["without"],
                  job["numerics"], Report())  # fmt: skip
    return json.dumps(as_answer(exe))


def is_cached() -> bool:
    """Whether programs that were compiled before may be taken from disk.

    Whoever asks to see a search (AXE_TRACE, AXE_DEBUG from 2 on), or to have its result compared
    (AXE_CHECK = 2), gets one.
    """
    now = switches()
    return bool(now.cache) and now.trace is None and now.level < LEVEL_OF_SEARCH and now.check < 2


def _target_text(target: Target) -> str:
    plain = replace(target, limits=dict(target.limits))
    try:
        return b64encode(pickle.dumps(plain)).decode()
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        wrong = f"cannot be sent to another process ({error})"
        raise SearchError(f"target {target.name!r}", wrong, "a target of plain data") from None


def as_program(fn: Callable[..., Any] | Program, specs: Sequence[Any]) -> Program:
    """Trace a function; programs pass."""
    return fn if isinstance(fn, Program) else trace(fn, *specs)


def check_decodes(terms: Mapping[Node, Term], program: Program) -> None:
    """Encoding must apply no law: decoding gives back the very same nodes.

    Raises:
        SearchError: it does not.
    """
    for root in program.outputs:
        if decode(terms[root]) is not root:
            raise SearchError("encode", f"changed {root!r}", "the same program back")


def find_target(target: str | Target | None, known: Sequence[Pack]) -> Target:
    """The machine meant by `target`.

    Raises:
        PackError: no pack knows it.
    """
    if isinstance(target, Target):
        return target
    machines = {name: t for pack in known for name, t in pack.targets.items()}
    if target is None:
        runners = {f: r for pack in known for f, r in pack.runners.items()}
        present = [
            n for n, t in machines.items() if t.family in runners and runners[t.family].present(t)
        ]
        target = (
            sorted(present, key=lambda n: (machines[n].family == "cpu", n))[0] if present else "cpu"
        )
    if target not in machines:
        known_names = f"one of {' '.join(sorted(machines))}" if machines else "a pack with targets"
        raise PackError(f"target {target!r}", "is not known", known_names)
    return machines[target]


def limits() -> Limits:
    """Limits of the search, from the switches."""
    now = switches()
    default = Limits()
    return Limits(now.node_limit or default.rows, now.time_limit_s or default.seconds)


def saturate_program(
    program: Program,
    terms: Mapping[Node, Term],
    used: Sequence[Pack],
    without: Iterable[str],
    requests: Sequence[Term] | None = None,
    numerics: str = "real",
) -> Saturated:
    """Run all laws of these packs on a program and demand its outputs (or what `requests` says).

    Under the numerics "exact" only laws that hold bit for bit.
    """
    layouts = arrival_layouts(program)
    for name, node in ((n.text, n) for n in terms if n.kind == INPUT):
        layouts.setdefault(name, row_major(node.type.size))
    known = [
        (type_of, [(term, str(node.type)) for node, term in terms.items()]),
        (
            schedule_terms.arrival,
            [(t, layouts[n.text]) for n, t in terms.items() if n.kind == INPUT],
        ),
        # Asked for in the e-graph they would be answered node by node, from the inputs on.
        (facts_of, [(t, f) for t in terms.values() if (f := facts_of.of(t)) is not None]),
    ]
    return saturate(
        laws_of(used, without, numerics=numerics), SYMBOLS, ANALYSES, list(terms.values()), known,
        requests_of(program, terms) if requests is None else requests,
        limits=limits(), progress=progress.at,
        before_demand=leave_out_circles if requests is None else lambda _: None,
    )  # fmt: skip


def saturation_notes(graph: Saturated) -> dict[str, object]:
    """Figures of a saturation."""
    return {"rows": graph.rows, "stopped": graph.stopped}


def matches_text(graph: Saturated) -> str:
    """How often each law fired, the busiest first."""
    rows = sorted(graph.matches.items(), key=lambda item: (-item[1], item[0]))
    return "\n".join(f"{count:>10}  {key}" for key, count in rows)


@dataclass
class Choices:
    """What a schedule is chosen from.

    Attributes:
        graph: the saturated e-graph.
        prices: of its cones, less what was built in vain.
        kernels: those built so far.
        unwritable: why alternatives were left out.
        per_byte: seconds that a stored byte is worth, where time alone takes too much memory.
    """

    graph: Saturated
    prices: Prices
    kernels: Kernels
    unwritable: tuple[str, ...] = ()
    per_byte: float = 0.0

    def improve(self, built: Built, report: Report) -> bool:
        """Whether another search is needed: without what failed, or with less in memory.

        Raises:
            SearchError: what failed has no alternative.
            ScheduleError: the least memory that was found is too much.
        """
        if built.failures:
            stage("rule out", lambda: self.kernels.rule_out(
                      built.failures, built.schedule, self.prices), report=report,
                  notes=lambda _: {"built": self.kernels.n_built})  # fmt: skip
            return True
        peak, target = plan(built.schedule).peak_bytes, self.kernels.target
        if peak <= target.memories[0].n_bytes:
            return False
        dearer = [price for price in PRICES if price > self.per_byte]
        if not dearer:
            raise too_large(f"program that takes {n_bytes_text(peak)} at its peak", target)
        self.per_byte = dearer[0]
        return True


@dataclass(frozen=True)
class Built:
    """A schedule, and which of its kernels cannot be made."""

    schedule: ScheduleGraph
    failures: Sequence[Failure] = ()


def read_choices(
    program: Program,
    terms: Mapping[Node, Term],
    graph: Saturated,
    target: Target,
    used: Sequence[Pack],
) -> Choices:
    """Read the e-graph, less what the target cannot write."""
    # Laws may have made several values one: the first keeps its name.
    shown = reversed(value_names(program).items())
    names = {terms[node]: name for node, name in shown if node in terms}
    forest = read_forest(graph.session, graph.requests, names)
    emitter = emitter_of(used, target.family)
    unwritable = drop_unwritable(forest, emitter)
    pricer = Pricer(target, [s for pack in used for s in pack.schedules])
    known = {t.family for pack in (*find_packs(), *used) for t in pack.targets.values()}
    idle = without_machine(used, {*known, target.family})
    kernels = Kernels(emitter if hasattr(emitter, "build") else None, target)
    return Choices(graph, Prices(forest, pricer), kernels, (*unwritable, *idle))


def extract_program(choices: Choices) -> Extracted:
    """Choose the cheapest schedule of what can be built, as far as that is known."""
    try:
        found = extract(choices.prices, per_byte=choices.per_byte, progress=progress.at)
    except SearchError as error:
        if choices.unwritable:
            error.wrong = f"{error.wrong}; left out: {'; '.join(choices.unwritable)}"
        raise limited(choices.graph, error) from error
    failed = dict.fromkeys(f"cannot be built: {why}" for why in choices.kernels.ruled_out)
    return replace(found, unwritable=(*choices.unwritable, *failed))


def limited(graph: Saturated, error: SearchError) -> SearchError:
    """The error of a search whose saturation reached a limit: the limit is its cause."""
    bound, _, phase = graph.stopped.partition(" in phase ")
    if bound == "rows":  # laws that made too many were cut: then it is the last that did
        phase = [name for name, report in graph.reports.items() if report.stopped == bound][-1]
    given = graph.session.limits
    limit, switch = {
        "rows": (f"{given.rows} rows", "AXE_NODE_LIMIT"),
        "time": (f"{given.seconds:g} s", "AXE_TIME_LIMIT_S"),
    }.get(bound, ("", ""))
    if not limit:
        return error
    what = f"reached its limit of {limit} with {phase} laws, before every output had a schedule"
    return SearchError("search", what, "a higher limit", hint=f"a larger {switch}")


def extraction_notes(found: Extracted) -> dict[str, object]:
    """Figures of an extraction."""
    return {"kernels": len(found.groups), "priced": found.priced, "exact": found.selection.exact}


def build_program(program: Program, choices: Choices, found: Extracted, numerics: str) -> Built:
    """The schedule graph of a selection, with its kernels built."""
    schedule, groups = ranked(program, found, choices.kernels.target, numerics)
    return Built(schedule, choices.kernels.failures(schedule, groups))


def ranked(
    program: Program, found: Extracted, target: Target, numerics: str
) -> tuple[ScheduleGraph, Sequence[Group]]:
    """Of the best few schedules the one whose timeline is shortest, and its kernels.

    Sums of kernel times choose among all schedules; the timeline, which knows what can overlap,
    ranks the best few. Earlier ones win ties.
    """
    made = [
        (graph_of(program, found, groups, target, numerics), groups)
        for groups in (found.groups, *found.alternatives)
    ]
    return min(made, key=lambda m: timeline(m[0], target).makespan_s)


def compare_kernels(program: Program, built: Built, target: Target, used: Sequence[Pack]) -> None:
    """Interpret the kernels of a schedule that could all be built.

    Raises:
        ScheduleError: one does not compute its cone.
    """
    if not built.failures:
        check_kernels(program, built.schedule, target, used)


def build_notes(choices: Choices, number: int, built: Built) -> dict[str, object]:
    """Figures of a built schedule."""
    failed = {"failed": len(built.failures)} if built.failures else {}
    rounds = {"round": number} if number > 1 or failed else {}
    return {
        "steps": len(built.schedule.steps),
        "built": choices.kernels.n_built,
        **failed,
        **rounds,
    }


def given_up(built: Built) -> SearchError:
    """The error of a search that found no schedule whose kernels can all be built."""
    if not built.failures:  # the last rounds looked for one that fits into memory
        wrong = f"found no schedule that fits into memory in {MOST_ROUNDS} rounds"
        return SearchError("search", wrong,
                           "a program that takes less")  # fmt: skip
    failure = built.failures[0]
    wrong = f"and its rivals cannot be built, after {MOST_ROUNDS} rounds: {failure.reason}"
    expected = "a program whose kernels some schedule covers"
    return SearchError(f"kernel {failure.name}", wrong, expected)


def graph_of(
    program: Program, found: Extracted, groups: Sequence[Group], target: Target, numerics: str
) -> ScheduleGraph:
    """The schedule graph of one choice of kernels."""
    layouts = arrival_layouts(program)
    inputs = [(i.name, i.node.type, layouts[i.name]) for i in program.inputs]
    inputs += [
        (name, node.type, row_major(node.type.size))
        for name, node in constant_nodes(program).items()
    ]
    return build(
        chosen(found.forest, groups, found.outputs),
        target=target.name,
        inputs=inputs,
        constants=tuple(program.constants),
        dims={i.name: i.dims for i in program.inputs if any(i.dims)},
        rounds=numerics == "exact",
    )

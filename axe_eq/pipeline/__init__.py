"""The way through, read this first: from a Python function to kernels that run.

    function --trace--> program --encode--> terms --saturate--> e-graph --extract--> selection
    --build--> schedule graph, whose kernels were lowered, dispatched and written

One line per stage, each through `debug.stage`, which times it, prints it, dumps it and checks what
it must hold. Trace and encode apply no law; only extract chooses; what it takes is built before it
ends. The rooms beside this page: what is asked for (`job`, `requests`), what is kept (`answers`),
who searches (`worker`), and the stages' own parts (`saturation`, `rounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from axe_eq.debug import Report, stage
from axe_eq.egraph.worker import is_limited
from axe_eq.errors import ArgumentError, ProgramError, SearchError
from axe_eq.extract.mesh.build import Local
from axe_eq.extract.mesh.choose import TIME
from axe_eq.extract.mesh.values import read_values
from axe_eq.extract.search.commit import MOST_ROUNDS
from axe_eq.extract.search.launches import Joiner, launched
from axe_eq.extract.search.stage import Extracted
from axe_eq.layout import Layout, Mesh
from axe_eq.pack import Pack, name_list
from axe_eq.pack import packs as find_packs
from axe_eq.pipeline.answers import as_answer, cached
from axe_eq.pipeline.job import Job, find_target
from axe_eq.pipeline.on_mesh import Plans
from axe_eq.pipeline.requests import (
    check_axes,
    check_devices,
    check_memory,
    constant_nodes,
    cuts_problem,
    everywhere,
    wanted_layouts,
)
from axe_eq.pipeline.rounds import (
    Built,
    Choices,
    Shared,
    build_notes,
    build_program,
    compare_kernels,
    extract_program,
    extraction_notes,
    given_up,
    kernels_of,
    kernels_of_values,
    read_choices,
)
from axe_eq.pipeline.saturation import matches_text, saturate_program, saturation_notes
from axe_eq.pipeline.tuning import check_tuning
from axe_eq.pipeline.tuning import tune as tune_program
from axe_eq.pipeline.worker import choose_limited, collector_paused
from axe_eq.program.node import Node, Program
from axe_eq.program.show import value_names
from axe_eq.program.terms import decode, encode
from axe_eq.program.trace import trace
from axe_eq.rule.term import Term
from axe_eq.run.executable import Executable
from axe_eq.schedule.graph import ScheduleGraph
from axe_eq.schedule.merging import merging_on
from axe_eq.schedule.shard import mesh_text
from axe_eq.target import Target


def compile(
    fn: Callable[..., Any] | Program,
    *specs: Any,
    target: str | Target | None = None,
    mesh: Mesh | None = None,
    outputs: Sequence[Layout | Literal["any"] | None] | Literal["any"] | None = None,
    packs: Iterable[str | Pack] | None = None,
    without: Iterable[str] = (),
    numerics: str = "real",
    tune: bool | float = False,
    objective: str = TIME,
) -> Executable:
    """Compile a function of arrays: choose the cheapest schedule and make it runnable.

    >>> exe = axe.compile(lambda x, w: x @ w, "64x32:f32", "32x16:f32", target="cpu")
    >>> exe(np.ones((64, 32), np.float32), np.ones((32, 16), np.float32)).shape
    (64, 16)

    Args:
        fn: a function of arrays, see `trace`; or a traced program.
        specs: what its arguments look like; arrays may stand for specs.
        target: a machine or its name; by default the first known one that is here, else "cpu".
        mesh: devices; None for one. On a mesh the schedule graph is planned, not run, and inputs
            whose specs give no layout are whole on every device.
        outputs: the layout wanted of every output; None, or None in it, leaves dense row-major on
            one device and the cheapest cut on a mesh. "any", or "any" in it, leaves the choice to
            the compiler, as `Spec(..., layout="any")` does for an input: `layouts` says which.
        packs: names of packs or packs; all installed ones by default.
        without: laws ("pack/law" or "law") and packs to leave out.
        numerics: "real" (laws of real numbers allowed) or "exact" (bit for bit laws only).
        tune: measure the candidates that are nearest by price on the device, and take the fastest:
            for 60 s at most, or for as many as it says. Never slower than what is chosen without.
        objective: what is least: "time", or on a mesh a cost like "link_bytes", then the time.

    Returns:
        The executable. Its search is kept on disk, by everything it depends on (AXE_CACHE_DIR,
        AXE_CACHE): the next one of the same program takes milliseconds.

    Raises:
        ProgramError, PackError, SearchError, ScheduleError: see their texts.
        DeviceError: `tune`, and this machine is no such target.
    """
    if numerics not in ("real", "exact"):
        raise ProgramError(f"numerics {numerics!r}", "is not a mode", "'real' or 'exact'")
    check_tuning(tune, mesh)
    if objective != TIME and mesh is None:
        raise ArgumentError(f"objective={objective!r}", "is none of one device", f"{TIME!r}")
    if mesh is not None and not isinstance(mesh, Mesh):
        raise ArgumentError(f"mesh={mesh!r}", "is no mesh", 'a Mesh such as Mesh({"x": 2})')
    left_out = tuple(name_list("without", without))
    used = tuple(p for p in find_packs(packs, left_out) if p.exact or numerics == "real")
    machine = find_target(target, find_packs(packs))
    report = Report()
    program = stage("trace", lambda: as_program(fn, specs), report=report, show={5: str})
    if outputs is not None:
        program = replace(program, output_layouts=wanted_layouts(program, outputs))
    check_axes(program, machine, mesh)
    check_memory(program, machine, mesh)
    if mesh is not None:
        check_devices(program, mesh)
    job = Job(program, machine, used, left_out, numerics, mesh, tune, objective)
    return cached(job, report, lambda report: search(job, report))


def search(job: Job, report: Report) -> Executable:
    """The stages from encode on: here, or in a worker where a limit is set."""
    program = job.program
    terms = stage("encode", lambda: encode(program.outputs), report=report,
                  check=lambda t: check_decodes(t, program))  # fmt: skip
    if is_limited():
        return choose_limited(job, "axe_eq.pipeline:choose_stored", report)
    return choose(job, terms, report)


def choose_stored(job: Job) -> dict[str, Any]:
    """What a worker does: the stages from saturate on, and the explanation."""
    exe = choose(job, encode(job.program.outputs), Report())
    return as_answer(exe) | {"explanation": exe.explain()}


@collector_paused()
def choose(job: Job, terms: Mapping[Node, Term], report: Report) -> Executable:
    """The stages from saturate on."""
    if job.mesh is not None:
        return _choose_on_mesh(job, terms, job.mesh, report)
    return job.executable(*_choose_on_one(job, terms, report))


def _choose_on_one(
    job: Job, terms: Mapping[Node, Term], report: Report, shared: Shared | None = None
) -> tuple[ScheduleGraph, Report, Mapping[str, int], Extracted]:
    """The stages from saturate on, for one device.

    The programs of a plan's ranks share what is known, and their kernels have a call each.
    """
    graph = stage("saturate", lambda: saturate_program(
                      job.program, terms, job.packs, job.without, numerics=job.numerics,
                      kinds=job.target.kept),
                  report=report, notes=saturation_notes, show={3: matches_text})  # fmt: skip
    known = Shared(job.pricer()) if shared is None else shared
    choices = read_choices(job.program, terms, graph, job.target, job.packs, known)
    for number in range(1, MOST_ROUNDS + 1):  # until every kernel that is taken is built
        found, built = _round(number, job, choices, report)
        if not choices.improve(built, report):
            break
    else:
        raise given_up(built, number)
    schedule = built.schedule
    if shared is None and isinstance(joiner := choices.kernels.builder, Joiner):
        schedule = stage("join", lambda: launched(schedule, joiner, job.target),
                         report=report, notes=lambda s: {"calls": len(s.calls)})  # fmt: skip
    if job.tune:
        schedule = stage("tune", lambda: tune_program(job, choices, found, schedule),
                         report=report, notes=lambda t: t.notes()).schedule  # fmt: skip
    if shared is None:
        known.pricer.forget()
    return schedule, report, graph.matches, found


def _round(number: int, job: Job, choices: Choices, report: Report) -> tuple[Extracted, Built]:
    """Extract and build once, with what was ruled out so far."""
    found = stage("extract", lambda: extract_program(choices),
                  report=report, notes=extraction_notes)  # fmt: skip
    built = stage("build", lambda: build_program(job.program, choices, found, job.numerics),
                  report=report, notes=partial(build_notes, choices, number),
                  compare=lambda b: compare_kernels(job.program, b, job.target, job.packs),
                  )  # fmt: skip
    return found, built


def _choose_on_mesh(job: Job, terms: Mapping[Node, Term], mesh: Mesh, report: Report) -> Executable:
    """The stages from saturate on, for a mesh: cuts of the values, then one device's programs."""
    text, program = mesh_text(mesh), everywhere(job.program, mesh_text(mesh))
    job = replace(job, program=program)
    graph = stage("saturate", lambda: saturate_program(
                      program, terms, job.packs, job.without, [], job.numerics),
                  report=report, notes=saturation_notes, show={3: matches_text})  # fmt: skip
    values = stage("read", lambda: read_values(graph.session, program, terms), report=report)
    problem = cuts_problem(program, text, job.target, job.numerics, job.objective, mesh.links)
    inputs = [(i.name, i.node.type, "input") for i in program.inputs]
    inputs += [(n, node.type, "constant") for n, node in constant_nodes(program).items()]
    known = Shared(job.pricer())
    local, failing = partial(_local, job, known), kernels_of(job.target, job.packs, known).reason
    merging = merging_on(job.target, failing)
    plans = Plans(job.target, value_names(program), inputs, local, failing, merging, report)
    return job.executable(plans.choose(problem, values).graph, report, graph.matches, plans)


def _local(job: Job, known: Shared, program: Program) -> Local:
    """The schedule of what every device of a mesh computes on its own parts."""
    own = replace(job, program=program, mesh=None, objective=TIME)
    schedule, _, _, found = _choose_on_one(own, encode(program.outputs), Report(), known)
    return Local(schedule, kernels_of_values(program, found))


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

"""The test of schedules: wrong kernels are found with both values, right ones and ours pass."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import axe_eq as axe
from axe_eq import nn
from axe_eq import pack as packs
from axe_eq.check.kernelcheck import points, sampled_inputs, wrong_kernels
from axe_eq.cli import registry
from axe_eq.errors import PackError, ScheduleError
from axe_eq.kernel.cells import Cell, apply, arg
from axe_eq.kernel.expr import ceil_div
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.ir import span
from axe_eq.lower.own import Lowered
from axe_eq.lower.read import read_cone
from axe_eq.pack import Pack, installed
from axe_eq.pipeline.answers import is_cached
from axe_eq.schedule.graph import KernelStep, ScheduleGraph
from axe_eq.schedule.summary import Columns, Summary, grid_of, traffic
from axe_eq.schedulecheck import SAMPLES, Preferred, ScheduleReport, check_schedules
from axe_eq.target import Target
from axe_eq_backends.cuda.interpret import CudaInterpreter
from axe_eq_backends.cuda.target import h200

TILE = 64
REGISTERS = "S[(4,2,8,4,16):(1@warp,16@reg,4@lane,1@lane,1@reg)]"
TWICE_RELU = apply("mul", apply("maximum", arg(0), 0.0), 2.0)
RELU_CELL = apply("maximum", arg(0), 0.0)
RELU = {n: SAMPLES[n] for n in ("relu(x) * 3", "x * x + y, doubles", "-x, one dim")}


def of_tiles(m: int, n: int, dtype: str, cell: Cell) -> ir.Kernel:
    """A cell of one matrix, tile by tile."""
    b = ThreadBuilder("of_tiles", warps=4)
    x, y = b.tensor("X", dtype, (m, n)), b.tensor("Y", dtype, (m, n), output=True)
    across = ceil_div(n, TILE)
    with b.tiles(ceil_div(m, TILE) * across) as t:
        part = span(t // across * TILE, TILE), span(t % across * TILE, TILE)
        held = b.reg("held", dtype, (TILE, TILE), REGISTERS)
        b.copy(held.all, x[part])
        b.map(cell, held.all, held.all)
        b.copy(y[part], held.all)
    return b.finish()


@dataclass
class OneMap:
    """Any map of one f32 matrix, by figures alone; its kernel computes `cell`, else the cone's."""

    name: str = "twice_relu"
    families: tuple[str, ...] = ("cuda",)
    cell: Cell | None = TWICE_RELU
    least: int = 0
    samples: dict[str, Any] = field(default_factory=dict)

    def refuse(self, summary: Summary, target: Target) -> str | None:
        if summary.products or summary.n_folds or len(summary.loads) != 1:
            return "not one map of one operand"
        if summary.loads[0].n_bytes < self.least:
            return "too small"
        return None if summary.loads[0].itemsize == 4 else "no f32"

    def price(self, summary: Summary, target: Target) -> Columns:
        p, q, k = grid_of((TILE,), (TILE,), (TILE,))
        columns = Columns({"p": p, "q": q, "k": k, "s": k}, rows=("",))
        once, _ = traffic(summary, columns)
        columns.time_s = 1e-7 + once / target.memories[0].bytes_per_s * 0.9
        return columns

    def lower(self, step: KernelStep, graph: ScheduleGraph, target: Target) -> Lowered:
        cone = read_cone(step)
        m, n = cone.shape
        (root,) = cone.roots
        made = of_tiles(m, n, cone.load(0).dtype, self.cell or root.cell)
        return Lowered(made, {"X": cone.load(0).buffer, "Y": root.buffer})


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Schedules that a test registers are forgotten after it."""
    before = dict(packs._schedules)
    yield
    packs._schedules.clear()
    packs._schedules.update(before)


def pack_of(schedule: Any) -> Pack:
    pack = Pack("mine", summary="somebody's kernels")
    pack.schedule(schedule)
    return pack


def test_a_kernel_of_another_function_is_found_with_both_values() -> None:
    """2 * relu(x) for whatever the cone is: nothing that `refuse` sees tells them apart."""
    (report,) = check_schedules(pack_of(OneMap()), samples={"relu(x) * 3": RELU["relu(x) * 3"]})
    first = report.findings[0]
    assert first.startswith("on relu(x) * 3: kernel k0_full_maximum_mul gives ")
    assert "of t1, where its cone is " in first
    assert "of 960 elements differ): it does not compute full () 3.0 f32, full () 0" in first
    found, wanted = (float(part.split()[0]) for part in first.split("gives ")[1].split("cone is "))
    assert found == pytest.approx(wanted * 2 / 3, rel=1e-3)
    assert str(report).splitlines()[0].startswith("schedule 'twice_relu': on relu(x) * 3: kernel")


def test_a_kernel_of_the_cone_passes() -> None:
    (report,) = check_schedules(pack_of(OneMap(cell=None)), samples={"r": RELU["relu(x) * 3"]})
    assert (report.findings, report.target, report.kernels, report.programs) == ((), "h200", 3, 1)
    right = "schedule 'twice_relu': 3 kernels of 1 programs compute their cones on 'h200'"
    assert str(report) == right


def test_a_lowering_that_fails_is_named_with_its_line() -> None:
    (report,) = check_schedules(pack_of(OneMap(cell=None)), samples={"-x": RELU["-x, one dim"]})
    (finding,) = report.findings
    assert finding.startswith("on -x: kernel k0_neg cannot be run: schedule 'twice_relu' of pack ")
    assert "its lower fails (ValueError: not enough values" in finding
    assert "m, n = cone.shape" in finding


def test_a_schedule_is_tested_where_it_is_never_the_cheapest() -> None:
    @dataclass
    class Slow(OneMap):
        def price(self, summary: Summary, target: Target) -> Columns:
            columns = super().price(summary, target)
            columns.time_s = columns.time_s + 1.0
            return columns

    (report,) = check_schedules(pack_of(Slow()), samples={"r": RELU["relu(x) * 3"]})
    assert "does not compute" in report.findings[0]


def test_what_no_sample_reaches_is_said_and_samples_of_its_own_reach_it() -> None:
    large = OneMap(least=4 * 64 * 300)
    (report,) = check_schedules(pack_of(large), samples=RELU)
    (finding,) = report.findings
    assert finding == (
        "none of 3 sample programs reaches it, made nearly free or not; give it `samples` that do"
    )
    large.samples = {"64 rows": (lambda x: nn.relu(x) * 3, ("64x300:f32",))}
    (report,) = check_schedules(pack_of(large), samples=RELU | large.samples)
    assert "on 64 rows: " in report.findings[0]


def test_a_family_without_an_interpreter_is_not_tested_and_says_so() -> None:
    nobodys = OneMap(families=("nobodys",))
    (report,) = check_schedules(pack_of(nobodys))
    assert str(report) == "schedule 'twice_relu': not tested, no target of family nobodys is known"
    pack = Pack("mine")
    pack.schedule(nobodys)
    pack.target(h200.replace(name="theirs", family="nobodys"))
    (report,) = check_schedules(pack)
    assert str(report) == "schedule 'twice_relu': not tested, family 'nobodys' has no interpreter"


def test_a_schedule_that_answers_wrongly_is_the_error_of_compile() -> None:
    @dataclass
    class NoTable(OneMap):
        def price(self, summary: Summary, target: Target) -> Any:
            return None

    with pytest.raises(
        PackError, match="schedule 'twice_relu' of pack 'mine': its price returns N"
    ):
        check_schedules(pack_of(NoTable()), samples=RELU)


def test_a_kernel_that_reaches_outside_or_forgets_an_element_is_found() -> None:
    graph = axe.compile(lambda x: nn.relu(x), "64x96:f32", target="h200").schedule.graph
    interpreter = CudaInterpreter()
    inputs = sampled_inputs(graph, np.random.default_rng(0))

    class Narrow(OneMap):
        def lower(self, step: KernelStep, graph: ScheduleGraph, target: Target) -> Lowered:
            made = of_tiles(64, self.least, "f32", RELU_CELL)
            return Lowered(made, {"X": step.reads[0].buffer, "Y": step.writes[0].buffer})

    for columns, problem in ((95, "where its cone is"), (97, "reaches from element 0 to 6207")):
        packs._schedules[graph.kernels[0].schedule] = "mine", Narrow(least=columns)
        (wrong,) = wrong_kernels(graph, h200, interpreter, inputs)
        assert problem in str(wrong)
        assert str(wrong).startswith("schedule 'lanes' of pack 'mine', kernel k0_full_maximum: ")


def test_points_count_index_spaces() -> None:
    graph = axe.compile(lambda a, b: a @ b, "8x16:f32", "16x4:f32", target="cpu").schedule.graph
    assert points(graph) == 8 * 16 + 16 * 4 + 8 * 16 * 4


# Programs that reach every schedule of ours; all of them in full runs.
FEW = {
    "cuda": (
        "relu(x) * 3, halves", "x.T + 1", "softmax", "a @ b", "a @ b, floats", "relu(a) @ b",
        "a @ b and a @ c", "running sums",
    ),
    "cpu": ("x.T + 1", "softmax", "a @ b, floats", "relu(a) @ b", "running sums"),
}  # fmt: skip
# Reached by a program of its own, and alone with that, which others compute in too many ways.
ALONE = {"streaming": "attention"}


@pytest.mark.parametrize("name", ["cuda", "cpu"])
def test_our_own_schedules_compute_their_cones(name: str, full: bool) -> None:
    pack = installed()[name]
    samples = SAMPLES if full else {n: SAMPLES[n] for n in FEW[name]}
    alone = [] if full else [s for s in pack.schedules if s.name in ALONE]
    others = [s for s in pack.schedules if s not in alone]
    parts = [(others, samples), *(([s], {ALONE[s.name]: SAMPLES[ALONE[s.name]]}) for s in alone)]
    for schedules, given in parts:
        reports = check_schedules(replace(pack, schedules=schedules), samples=given)
        assert [str(r) for r in reports if r.findings or r.skipped] == []
        assert [r.name for r in reports] == [s.name for s in schedules]
        assert all(r.programs == len(given) for r in reports)
        assert {r.target for r in reports} == {{"cuda": "h200", "cpu": "cpu"}[name]}


@pytest.mark.parametrize("shape", ["24x40", "64x64"])
def test_at_check_2_compile_refuses_a_wrong_kernel_and_names_its_schedule(shape: str) -> None:
    every = [*installed().values(), pack_of(OneMap())]

    def compiled(factor: int) -> axe.Executable:
        return axe.compile(
            lambda x: nn.relu(x) * factor, f"{shape}:f32", target="h200", packs=every
        )

    assert compiled(3).kernels[0].schedule == "twice_relu"
    with axe.debug(check=2):
        assert not is_cached()  # a schedule from the cache would not be compared
        with pytest.raises(ScheduleError, match=r"^schedule 'twice_relu' of pack 'mine', kernel k0_"
                           r"full_maximum_mul: gives .* where its cone is"):  # fmt: skip
            compiled(3)
        assert compiled(2).kernels[0].schedule == "twice_relu"


@pytest.mark.parametrize("monoid", ["recurrence", "softmax"])
def test_where_the_order_of_a_scan_decides_infinities_nothing_is_asked(monoid: str) -> None:
    """Of two infinite decays with 0 between them NaN, where these two are merged first."""

    def scanned(a: Any, b: Any) -> Any:
        return axe.array.associative_scan(monoid, (a, b), axis=1)

    for seed in (1, 2):
        with axe.debug(check=2, seed=seed):
            exe = axe.compile(scanned, "2x37:f32", "2x37:f32", target="h200")

    class Off(CudaInterpreter):
        def run(self, *args: Any, **named: Any) -> Any:
            return {name: value * 2 for name, value in super().run(*args, **named).items()}

    inputs = sampled_inputs(exe.schedule.graph, np.random.default_rng(2), "extreme")
    assert any(np.isinf(x).any() for x in inputs.values())
    assert list(wrong_kernels(exe.schedule.graph, h200, CudaInterpreter(), inputs)) == []
    (wrong,) = wrong_kernels(exe.schedule.graph, h200, Off(), inputs)
    assert "where its cone is" in str(wrong)


def test_of_integers_that_machines_make_of_nan_nothing_is_asked() -> None:
    """f8e4m3 holds large numbers as NaN: 0 to one machine, the least integer to another."""
    xp = axe.array
    with axe.debug(check=2):
        axe.compile(
            lambda x: xp.astype(xp.astype(x, "i32"), "bool"), "64x300:f8e4m3", target="trn2"
        )


def test_packs_check_ends_with_1_and_names_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = ScheduleReport("twice_relu", "h200", 5, 30, tuple(f"on {n}: bad" for n in "abcde"))
    fine = ScheduleReport("few_rows", "h200", 2, 30)
    machines: list[Any] = []

    def checked(pack: Pack, target: Target | None) -> list[ScheduleReport]:
        machines.append(target)
        return [wrong, fine]

    monkeypatch.setattr(registry, "check_schedules", checked)
    monkeypatch.setattr(registry, "check_pack", lambda pack, samples: [])
    done = CliRunner().invoke(registry.check, ["cpu", "--target", "b200"])
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "pack 'cpu': 0 laws hold on samples",
        "schedule 'twice_relu': on a: bad",
        "schedule 'twice_relu': on b: bad",
        "schedule 'twice_relu': on c: bad",
        "schedule 'twice_relu': and 2 more",
        "schedule 'few_rows': 2 kernels of 30 programs compute their cones on 'h200'",
    ]
    assert [m.name for m in machines] == ["b200"]
    told = CliRunner().invoke(registry.check, ["cpu", "--json"])
    assert (told.exit_code, json.loads(told.output)) == (1, [str(wrong)])


def test_a_preferred_schedule_is_asked_what_its_own_is() -> None:
    for schedule in (s for p in installed().values() for s in p.schedules):
        for asked in ("scans", "candidates"):
            preferred = getattr(Preferred(schedule), asked, None)
            assert bool(preferred) == bool(getattr(schedule, asked, None))

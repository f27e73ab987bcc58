"""The lessons on kernels run, stay short, and say what they promise."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import pack
from axe_eq.errors import PackError
from axe_eq.kernel.threads.interp import interpret
from axe_eq.schedulecheck import SAMPLES, check_schedules
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import interpreted

EXAMPLES = Path(__file__).parents[3] / "examples"


def _output(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_the_product_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    text = _output("05_gemm_by_hand.py", capsys)
    for line in (
        "tma.load",
        "wgmma.f16",
        "matrix.stmatrix",
        "tma.store",
        "primitives: largest error 0.0",
    ):
        assert line in text
    assert len((EXAMPLES / "05_gemm_by_hand.py").read_text().splitlines()) <= 120


def test_the_copy_two_ways_becomes_the_same_loads(capsys: pytest.CaptureFixture[str]) -> None:
    text = _output("06_copy_two_ways.py", capsys)
    assert "Proved" in text
    first, second = text.split("collectively:")
    for half in (first, second):
        loads = [line for line in half.splitlines() if line.startswith("ld_global_v4_f32_nc(")]
        assert len(loads) == 2


# -- the kernel by hand as a schedule --


@pytest.fixture(scope="module")
def lesson() -> Iterator[dict[str, Any]]:
    known = dict(pack._schedules)
    yield runpy.run_path(str(EXAMPLES / "07_kernel_as_schedule.py"))
    pack._schedules.clear()
    pack._schedules.update(known)


def compiled(lesson: dict[str, Any], rows: int, cols: int, depth: int, *more: axe.Pack) -> Any:
    specs = f"{rows}x{depth}:f16", f"{cols}x{depth}:f16"
    packs = [*pack.installed().values(), *more]
    return axe.compile(lesson["product"], *specs, target="h200", packs=packs)


def test_extraction_picks_the_kernel_where_its_pack_is_on_and_it_is_the_cheapest(
    lesson: dict[str, Any],
) -> None:
    on = compiled(lesson, 8192, 4096, 4096, lesson["PACK"]).kernels[0]
    off = compiled(lesson, 8192, 4096, 4096).kernels[0]
    assert (on.schedule, off.schedule) == ("gemm_by_hand", "tensor_cores")
    assert on.time_s < off.time_s
    # Few rows: a wave of the machine is mostly empty, and smaller tiles are cheaper.
    few = compiled(lesson, 128, 4096, 4096, lesson["PACK"]).kernels[0]
    assert few.schedule == "tensor_cores"
    ragged = compiled(lesson, 8200, 4096, 4096, lesson["PACK"]).kernels[0]
    assert ragged.schedule == "tensor_cores"
    assert "gemm_by_hand: 8200 x 4096 x 4096 is not of whole tiles" in ragged.rejected


def test_a_dearer_candidate_is_not_picked(
    lesson: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = lesson["ByHand"]
    price = own.price

    def dearer(self: Any, summary: Any, target: Any) -> Any:
        columns = price(self, summary, target)
        columns.time_s = columns.time_s * 1.5
        return columns

    monkeypatch.setattr(own, "price", dearer)
    exe = compiled(lesson, 8192, 4096, 4096, lesson["PACK"])
    assert exe.kernels[0].schedule == "tensor_cores"


def test_what_is_picked_is_the_lesson_s_kernel_and_right(
    lesson: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def free(self: Any, summary: Any, target: Any) -> Any:
        columns = lesson["Columns"]({letter: np.full(1, 64.0) for letter in "pqks"})
        columns.rows, columns.time_s = ("wgmma.f16",), np.zeros(1)
        return columns

    monkeypatch.setattr(lesson["ByHand"], "price", free)
    exe = compiled(lesson, 256, 256, 128, lesson["PACK"])
    (step,) = exe.kernels
    assert step.schedule == "gemm_by_hand"
    lowered = lower(step, exe.schedule.graph, h200)
    planned = plan(lowered.kernel, h200)
    assert emit(planned).text == exe.source[step.name]
    assert "ring_a" in exe.source[step.name]
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 256, 128)).astype(np.float16)
    given = dict(zip(exe.schedule.graph.inputs, (a, b), strict=True))
    blank = np.zeros((256, 256), np.float16)
    arrays = {name: given.get(buffer, blank) for name, buffer in lowered.buffers.items()}
    found = interpret(lowered.kernel, arrays, planned=planned, meanings=MEANINGS).outputs
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(found["C"] - wanted).max() < 0.05


def lying(rows: int, columns: int, row: int, column: int, first: int = 0) -> axe.Spec:
    """A matrix of these extents, with strides and a first element."""
    layout = axe.Layout([(rows, row), (columns, column)], offset={"m": first})
    return axe.Spec((rows, columns), "f16", layout=layout)


# Kernels that are not the lesson's: what they compute, and why not, where one kernel does it.
OTHERS: dict[str, tuple[Any, tuple[axe.Spec, axe.Spec]]] = {
    "product of columns": (
        lambda a, b: a @ b,
        (axe.Spec((256, 128), "f16"), axe.Spec((128, 256), "f16")),
    ),
    "columns of A": (lambda a, b: a @ b.T, (lying(256, 128, 1, 256), axe.Spec((256, 128), "f16"))),
    "rows with a pitch": (
        lambda a, b: a @ b.T,
        (lying(256, 128, 136, 1), axe.Spec((256, 128), "f16")),
    ),
    "rows further on": (
        lambda a, b: a @ b.T,
        (lying(256, 128, 128, 1, 64), axe.Spec((256, 128), "f16")),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_operands_that_lie_otherwise_are_refused(
    lesson: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _almost_free(lesson, monkeypatch)
    fn, specs = OTHERS[name]
    packs = [*pack.installed().values(), lesson["PACK"]]
    exe = axe.compile(fn, *specs, target="h200", packs=packs)
    *copies, step = exe.kernels
    if copies:  # what it takes is made for it: dense rows
        assert all([n.kind for n in copy.nodes] == ["load"] for copy in copies)
        made = {write.buffer for copy in copies for write in copy.writes}
        assert made & {read.buffer for read in step.reads}
        assert {read.layout for read in step.reads} == {str(axe.Layout([(256 * 128, 1)]))}
        return
    assert step.schedule == "tensor_cores"
    assert "gemm_by_hand: operands or a result of other than dense rows" in step.rejected
    assert "operands or a result of other than dense rows" in exe.explain()
    assert "ring_a" not in exe.source[step.name]


@pytest.mark.parametrize("part", ["result", "operand"])
def test_parts_of_tensors_are_multiplied_where_they_lie(
    lesson: dict[str, Any], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    _almost_free(lesson, monkeypatch)
    of_result: Any = lambda a, b: (a @ b.T)[128:256]  # noqa: E731
    of_operand: Any = lambda a, b: a[128:256] @ b.T  # noqa: E731
    fn = of_result if part == "result" else of_operand
    specs = axe.Spec((384, 128), "f16"), axe.Spec((256, 128), "f16")
    packs = [*pack.installed().values(), lesson["PACK"]]
    exe = axe.compile(fn, *specs, target="h200", packs=packs)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(s.shape).astype(np.float16) for s in specs]
    (found,) = interpreted(exe.schedule.graph, given)
    assert np.abs(found - np.asarray(axe.run(fn, *given), np.float64)).max() < 0.05


def _almost_free(lesson: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the lesson's schedule cost next to nothing wherever it does not refuse."""
    price = lesson["ByHand"].price

    def cheap(self: Any, summary: Any, target: Any) -> Any:
        columns = price(self, summary, target)
        columns.time_s = columns.time_s * 1e-3
        return columns

    monkeypatch.setattr(lesson["ByHand"], "price", cheap)


def test_two_packs_do_not_share_a_schedule_s_name(lesson: dict[str, Any]) -> None:
    other = axe.Pack("another")
    with pytest.raises(PackError, match="has the name of one of pack 'by_hand'"):
        other.schedule(lesson["ByHand"]())
    assert pack.schedule_named("gemm_by_hand") in lesson["PACK"].schedules
    assert pack.schedule_named("nobody's") is None


def test_the_kernel_computes_the_cones_it_takes(lesson: dict[str, Any]) -> None:
    name = "a @ b.T, whole tiles"
    (report,) = check_schedules(lesson["PACK"], samples={name: SAMPLES[name]})
    assert str(report).endswith("1 kernels of 1 programs compute their cones on 'h200'")

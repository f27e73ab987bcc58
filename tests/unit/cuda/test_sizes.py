"""Kernels whose cells are too much text: what is priced knows the limit that building holds to."""

from __future__ import annotations

from typing import Any

import pytest

import axe_eq as axe
from axe_eq.extract.price import figures
from axe_eq.extract.read.forest import Forest
from axe_eq.kernel.cells import Cell, apply, arg
from axe_eq_backends.cuda import make, sizes
from axe_eq_backends.cuda.emitter import CudaEmitter
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.map import elementwise
from axe_eq_backends.cuda.schedules.tensors import Operand
from axe_eq_backends.cuda.target import h200
from benchmarks.compile import wide

xp = axe.array


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that were built, those that failed included."""
    names: list[str] = []
    plain = CudaEmitter.build

    def build(self: CudaEmitter, step: Any, graph: Any, target: Any) -> None:
        names.append(step.name)
        plain(self, step, graph, target)

    monkeypatch.setattr(CudaEmitter, "build", build)
    return names


def _compiled(*given: Any) -> axe.Executable:
    with axe.debug(cache=0):
        return axe.compile(*given, target="h200")


def test_no_kernel_of_a_wide_program_is_built_to_be_refused(built: list[str]) -> None:
    """Cells after products and of many results: the search takes nothing that is too large."""
    exe = _compiled(wide(40))
    assert [s.name for s in exe.report.stages].count("rule out") == 0
    assert len(built) <= len(exe.schedule.graph.steps)


def _mish(x: Any) -> Any:
    return x * xp.tanh(xp.log1p(xp.exp(x)))


def _products(x: Any, w: Any, b: Any) -> Any:
    return _mish(x @ w + b)


def _same(x: Any, w: Any, b: Any) -> Any:
    return xp.astype(xp.exp(x @ w) * xp.permute_dims(b, (0, 1)), xp.float16)


@pytest.mark.parametrize(
    ("fn", "shape"),
    [(_products, "512:f16"), (_same, "512x512:f16"), (lambda x, w, b: _mish(x @ w) - b, "512:f16")],
)
def test_the_priced_cells_of_a_product_are_those_of_its_kernel(
    fn: Any, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lower bound, so nothing that could be built is rejected; here it is the very number."""
    found: dict[frozenset[int], float] = {}
    plain = figures.summarise

    def summarise(forest: Forest, roots: Any, picks: Any, *given: Any) -> Any:
        made = plain(forest, roots, picks, *given)
        found[frozenset(map(id, picks.values()))] = made.cells
        return made

    monkeypatch.setattr("axe_eq.extract.price.priced.summarise", summarise)
    exe = _compiled(fn, "512x512:f16", "512x512:f16", shape)
    graph = exe.schedule.graph
    (step,) = graph.kernels
    assert step.schedule == "tensor_cores"
    m, n = step.parameters["m"], step.parameters["n"]
    counted = make.instructions(make.make(step, graph, h200).planned)
    per_thread = m * n / (128 * step.parameters["consumers"])
    assert counted == int(sizes.instructions(per_thread * max(found.values())))


@pytest.mark.parametrize("n_results", [1, 5])
def test_threads_of_large_cells_have_fewer_elements(n_results: int) -> None:
    """So a kernel of cells is never too large where one element of a thread is not."""
    cell: Cell = arg(0)
    for _ in range(10):
        cell = apply("mul", cell, apply("exp", cell))
    x = Operand("x", "f16", (1,))
    outputs = [(Operand(f"y{n}", "f16", (1,)), cell) for n in range(n_results)]
    planned = plan(elementwise((1 << 16,), [x], outputs), h200)
    assert 0 < make.instructions(planned) <= sizes.MOST_INSTRUCTIONS

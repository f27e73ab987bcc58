"""What extraction takes is built; what fails is ruled out with its reason, and search goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import DispatchError, ScheduleError, SearchError
from axe_eq.extract.search import commit
from axe_eq.pack import installed
from axe_eq.schedule.graph import KernelStep
from axe_eq_backends.cuda.emitter import CudaEmitter
from axe_eq_backends.cuda.make import instructions, make
from axe_eq_backends.cuda.target import h200

xp = axe.array


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`refuse(test)`: CUDA kernels of which `test(step)` is true cannot be built any more."""
    plain = CudaEmitter.build

    def refusing(test: Any) -> list[KernelStep]:
        asked: list[KernelStep] = []

        def build(self: CudaEmitter, step: Any, graph: Any, target: Any) -> None:
            asked.append(step)
            if test(step):
                raise DispatchError(f"kernel {step.name}", "is refused by this test", "another")
            plain(self, step, graph, target)

        monkeypatch.setattr(CudaEmitter, "build", build)
        return asked

    with axe.debug(cache=0):
        yield refusing


def matmul(a: Any, b: Any) -> Any:
    return nn.relu(a @ b)


def computed(a: Any, b: Any) -> Any:
    """One kernel computes an operand of its product; two do it where that cannot be built."""
    return nn.relu(a) @ b


SPECS = ("512x512:f16", "512x512:f16")
SMALL = ("64x64:f16", "64x64:f16")


def test_a_schedule_whose_kernels_fail_is_ruled_out_with_its_reason(refuse: Any) -> None:
    """The next cheapest candidates of the cone are built, then those of others."""
    (first,) = axe.compile(computed, *SMALL, target="h200").kernels
    refuse(lambda step: step.schedule == first.schedule)
    exe = axe.compile(computed, *SMALL, target="h200")
    assert all(k.schedule != first.schedule for k in exe.kernels)
    assert "is refused by this test; expected another" in exe.explain()
    assert len(exe.source) == len(exe.kernels)


def test_only_the_candidate_that_failed_is_ruled_out(refuse: Any) -> None:
    first = axe.compile(matmul, *SPECS, target="h200").kernels[0]
    asked = refuse(lambda step: dict(step.parameters) == dict(first.parameters))
    exe = axe.compile(matmul, *SPECS, target="h200")
    assert exe.kernels[0].schedule == first.schedule
    assert dict(exe.kernels[0].parameters) != dict(first.parameters)
    assert exe.cost["time_s"] >= first.time_s
    assert [dict(step.parameters) for step in asked].count(dict(first.parameters)) == 1


def test_a_fused_kernel_that_fails_becomes_several(refuse: Any) -> None:
    """Where no candidate of a cone can be built, other cones are taken."""
    refuse(lambda step: isinstance(step, KernelStep) and len(step.nodes) > 4)
    exe = axe.compile(lambda x: nn.silu(x) * xp.tanh(x), "64x100:f32", target="h200")
    assert len(exe.kernels) > 1
    tried = [str(s.notes["built"]) for s in exe.report.stages if s.name == "rule out"]
    assert tried == sorted(
        tried, key=int
    )  # its time is in the report: it may be most of the search
    assert tried
    x = np.linspace(-3, 3, 6400, dtype=np.float32).reshape(64, 100)
    want = x / (1 + np.exp(-x)) * np.tanh(x)
    np.testing.assert_allclose(exe.interpret(x), want, rtol=1e-5, atol=1e-6)


def test_where_nothing_can_be_built_the_error_says_why(refuse: Any) -> None:
    refuse(lambda step: True)
    with pytest.raises(SearchError, match="is refused by this test"):
        axe.compile(lambda x: x + 1, "64x100:f32", target="h200")


def test_the_search_ends_after_its_rounds(refuse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("axe_eq.pipeline.MOST_ROUNDS", 1)
    refuse(lambda step: step.schedule == "tensor_cores")
    wrong = r"cannot be built, after 1 rounds: .*refused by this test"
    with pytest.raises(SearchError, match=wrong):
        axe.compile(matmul, *SPECS, target="h200")


def test_the_search_for_less_memory_ends_after_its_rounds(
    refuse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All kernels are built then: there is no failure to name."""
    monkeypatch.setattr("axe_eq.pipeline.MOST_ROUNDS", 1)
    refuse(lambda step: False)
    held = 2 * (4096 * 4096 + 2 * 4096 * 64)
    small = installed()["cuda"].targets["h200"].replace(gmem=held)
    with pytest.raises(SearchError, match="fits into memory in 1 rounds"):
        axe.compile(lambda x, w: nn.rmsnorm(x) @ w, "4096x4096:f16", "4096x64:f16", target=small)


def test_kernels_of_one_content_are_built_once(refuse: Any) -> None:
    """Whatever they and their buffers are called: layers repeat."""
    asked = refuse(lambda step: False)

    def layers(x: Any, w: Any, v: Any) -> Any:
        for _ in range(3):  # a value between two may lie in columns
            x = nn.relu(nn.relu(x @ w) @ v)
        return x

    exe = axe.compile(layers, *["512x512:f16"] * 3, target="h200")
    assert len(exe.kernels) == 6
    assert len(asked) < 4


def test_a_failing_move_names_what_cannot_be_copied(refuse: Any) -> None:
    """A move has no alternative: the layouts that are asked for are the reason."""
    refuse(lambda step: step.kind == "move")
    turned = axe.Layout.parse("S[(8,16):(1,8)]")
    with pytest.raises(SearchError, match=r"refused by this test.*layouts that a kernel"):
        axe.compile(lambda x: x, "8x16:f32", target="h200", outputs=[turned])


def test_a_builder_that_breaks_is_no_traceback(
    refuse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of our own lowering rules its kernel out; AXE_CHECK shows it as it is."""
    (first,) = axe.compile(computed, *SMALL, target="h200").kernels
    refuse(lambda step: dict[str, bool]()["oops"] if step.schedule == first.schedule else False)
    with pytest.raises(KeyError):
        axe.compile(computed, *SMALL, target="h200")
    with axe.debug(check=0):
        exe = axe.compile(computed, *SMALL, target="h200")
    assert "its lowering fails (KeyError: 'oops'" in exe.explain()


def test_cells_that_would_compile_for_minutes_go_into_a_kernel_of_their_own() -> None:
    """A mish of a mish of a product: 128 of them in every thread are 12,000 instructions."""

    def mish(x: Any) -> Any:
        return x * xp.tanh(xp.log1p(xp.exp(x)))

    exe = axe.compile(
        lambda x, w, b: mish(mish(x @ w + b)), "1024x8192:f16", "8192x8192:f16", "8192:f16",
        target="h200",
    )  # fmt: skip
    graph = exe.schedule.graph
    sizes = [instructions(make(step, graph, h200).planned) for step in exe.kernels]
    assert 0 < max(sizes) <= 8000
    assert sum(map(len, exe.source.values())) < 100_000


def test_content_tells_kernels_apart_by_all_that_they_compute() -> None:
    graph = axe.compile(matmul, *SPECS, target="h200").schedule.graph
    (step,) = graph.kernels
    for other in (
        replace(step, rounds=True),
        replace(step, parameters={**step.parameters, "p": 1}),
        replace(step, row="mma.f16"),
        replace(step, reads=step.reads[:1] * 2),
    ):
        assert commit.content(other, graph) != commit.content(step, graph)
    named = replace(step, name="another", time_s=3.0)
    assert commit.content(named, graph) == commit.content(step, graph)


# -- memory ---------------------------------------------------------------------------------------


def test_what_does_not_fit_into_memory_is_refused_with_the_figures() -> None:
    wanted = (
        "program with 360.0 GB of inputs and 180.0 GB of outputs: does not fit into gmem of "
        "'h200'; expected at most 150.8 GB in all"
    )
    with pytest.raises(ScheduleError) as found:
        axe.compile(lambda a, b: a @ b, *["300000x300000:f16"] * 2, target="h200")
    assert str(found.value).startswith(wanted)


def test_memory_is_the_target_s() -> None:
    """A machine with more memory takes what another refuses."""
    small = replace(installed()["cuda"].targets["h200"]).replace(gmem=1 << 20)
    with pytest.raises(ScheduleError, match="does not fit into gmem"):
        axe.compile(lambda x: x + 1, "1024x1024:f32", target=small)
    exe = axe.compile(lambda x: x + 1, "1024x1024:f32", target=small.replace(gmem=1 << 23))
    assert exe.cost["peak_bytes"] == 1 << 23


def test_less_is_kept_where_the_fastest_schedule_needs_too_much_memory() -> None:
    """Rows that are normalised in memory are faster; normalised where they are read, they fit."""

    def fn(x: Any, w: Any) -> Any:
        return nn.rmsnorm(x) @ w

    specs = ["4096x4096:f16", "4096x64:f16"]
    fast = axe.compile(fn, *specs, target="h200")
    peak = int(fast.cost["peak_bytes"])
    small = installed()["cuda"].targets["h200"].replace(gmem=peak - 1)
    exe = axe.compile(fn, *specs, target=small)
    assert exe.cost["peak_bytes"] < peak
    assert exe.cost["time_s"] > fast.cost["time_s"]
    inputs_and_outputs = 2 * (4096 * 4096 + 2 * 4096 * 64)
    with pytest.raises(ScheduleError, match=r"program that takes .* does not fit into gmem"):
        axe.compile(fn, *specs, target=small.replace(gmem=inputs_and_outputs))

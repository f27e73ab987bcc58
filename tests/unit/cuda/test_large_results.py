"""Large kernels on lanes: results that no cache keeps, CTAs that begin one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.sizes import MANY_CTAS, begins_late
from axe_eq_backends.cuda.target import h200


def doubled(shape: str) -> Any:
    return axe.compile(lambda x: x * 2, f"{shape}:f16", target="h200")


@pytest.mark.parametrize(("shape", "large"), [("8192x4096", True), ("1024x2048", False)])
def test_results_that_no_cache_keeps_are_streamed(shape: str, large: bool) -> None:
    exe = doubled(shape)
    (text,) = exe.source.values()
    assert ("st.global.cs." in text) == large
    graph = exe.schedule.graph
    (step,) = graph.kernels
    (out,) = {w.buffer for w in step.writes}
    between = {**graph.buffers, out: replace(graph.buffers[out], role="temporary")}
    made = lower(step, replace(graph, buffers=between, outputs=()), h200)
    assert not made.kernel.streamed  # another kernel of the program reads it


def test_results_that_leave_in_parts_of_lines_are_not_streamed() -> None:
    (text,) = axe.compile(lambda x: x.T, "8192x4096:f16", target="h200").source.values()
    assert "st.global." in text
    assert "st.global.cs." not in text


@pytest.mark.parametrize("shape", ["8192x8192", "1024x2048"])
def test_kernels_of_many_ctas_wait_for_no_other(shape: str) -> None:
    exe = doubled(shape)
    (text,), (kernel,) = exe.source.values(), exe.kernels
    ctas = int(kernel.costs["blocks"])
    assert begins_late(ctas) == (ctas > MANY_CTAS) == ("kernel_start" not in text)


def test_moments_of_all_elements_read_them_once_whatever_was_compiled_before() -> None:
    def moments(x: Any) -> Any:
        return axe.array.mean(x), axe.array.var(x)

    times = []
    for _ in range(2):
        exe = axe.compile(moments, "256x511x224:f32", target="h200")
        times.append(exe.cost["time_s"])
        assert [dict(k.costs)["gmem_bytes"] > 1e8 for k in exe.kernels] == [True, False]
        axe.compile(lambda x: axe.array.sum(x, axis=0), "3000x5120:f16", target="h200")
    np.testing.assert_allclose(times[0], times[1])

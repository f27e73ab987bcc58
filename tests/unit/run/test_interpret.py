"""`exe.interpret`: the emitted kernels on the CPU interpreter, whole programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import ArgumentError, PackError, ScheduleError
from axe_eq.pack import Pack, installed
from axe_eq.program.types import Array
from axe_eq.run.interpret import interpret_graph
from axe_eq_backends.cuda.target import h200

xp = axe.array


def normal(*shape: int, dtype: str = "f4") -> Array:
    rng = np.random.default_rng(shape)
    return np.asarray(rng.standard_normal(shape), dtype=dtype)


def test_several_kernels_views_and_nesting_come_out_as_of_a_call() -> None:
    def fn(a: Any, b: Any) -> Any:
        return {"y": nn.softmax(a @ b), "t": (xp.reshape(a, (-1,)), xp.sum(b > 0, axis=0))}

    a, b = normal(17, 33, dtype="f2"), normal(33, 40, dtype="f2")
    exe = axe.compile(fn, a, b, target="h200")
    assert len(exe.kernels) > 1
    found, want = exe.interpret(a, b), axe.run(fn, a, b)
    np.testing.assert_allclose(found["y"].astype("f4"), want["y"].astype("f4"), atol=2e-3)
    np.testing.assert_array_equal(found["t"][0], want["t"][0])
    np.testing.assert_array_equal(found["t"][1], want["t"][1])
    assert found["y"].dtype == np.float16
    assert found["t"][1].dtype == want["t"][1].dtype


def test_what_is_computed_is_the_machine_s_rounding_not_numpy_s() -> None:
    """Sums of f16 are kept in f32 on the device: 2048 + 1 + 1 is 2050."""
    x = np.array([[2048, 1, 1]], np.float16)
    exe = axe.compile(lambda x: xp.sum(x, axis=1), x, target="h200")
    assert exe.interpret(x)[0] == 2050


def test_captured_constants_and_moves_take_part() -> None:
    w = normal(40, 24)
    turned = axe.Layout.parse("S[(17,24):(1,17)]")
    x = normal(17, 40)
    exe = axe.compile(lambda x: x @ w, x, target="h200", outputs=[turned])
    np.testing.assert_allclose(exe.interpret(x), x @ w, rtol=1e-4, atol=1e-4)


def test_orders_of_threads_and_copies_give_the_same_bits() -> None:
    a, b = normal(40, 64, dtype="f2"), normal(64, 72, dtype="f2")
    exe = axe.compile(lambda a, b: nn.relu(a @ b), a, b, target="h200")
    np.testing.assert_array_equal(exe.interpret(a, b, orders=4), exe.interpret(a, b))


def test_an_order_that_gives_other_bits_is_an_error_with_both() -> None:
    class Racing:
        def run(
            self, step: Any, graph: Any, target: Any, arrays: Mapping[str, Array], order: int = 0
        ) -> dict[str, Array]:
            return {step.writes[0].buffer: np.array([0.0, 1.0 + (order == 2)], np.float32)}

    graph = axe.compile(lambda x: x + 1, "2:f32", target="h200").schedule.graph
    with pytest.raises(ScheduleError, match=r"gives 1.0 and in order 2 2.0 at \(1,\) of"):
        interpret_graph(graph, h200, Racing(), {"x": np.zeros(2, np.float32)}, 3)
    assert interpret_graph(graph, h200, Racing(), {"x": np.zeros(2, np.float32)}, 2)


def test_arguments_go_by_name_as_in_a_call() -> None:
    exe = axe.compile(lambda x, y: x - y, "8:f32", "8:f32", target="h200")
    x, y = normal(8), normal(8) + 1
    np.testing.assert_array_equal(exe.interpret(x, y=y, orders=2), x - y)
    np.testing.assert_array_equal(exe.interpret(y=y, x=x), x - y)
    with pytest.raises(ArgumentError, match="got an argument named 'z'; expected x, y"):
        exe.interpret(x, z=y)


def test_extents_that_do_not_fit_are_refused_as_in_a_call() -> None:
    rows = axe.Spec((axe.dim("rows", divisible=8), 4), "f32")
    gpu, cpu = (axe.compile(lambda x: x * 2, rows, target=t) for t in ("h200", "cpu"))
    texts = []
    for call in (gpu.interpret, cpu):
        with pytest.raises(ArgumentError, match="extent 13 is not a positive multiple of 8") as got:
            call(normal(13, 4))
        texts.append(str(got.value))
    assert texts[0] == texts[1]


def test_named_dims_are_rebound_as_in_a_call() -> None:
    exe = axe.compile(lambda x: nn.relu(x) * 2, axe.Spec((64, 40), "f32", dims=("n", "h")),
                      target="h200")  # fmt: skip
    x = normal(24, 40)
    np.testing.assert_array_equal(exe.interpret(x), np.maximum(x, 0) * 2)


def test_on_the_cpu_the_schedule_itself_is_run() -> None:
    x = normal(5, 7)
    exe = axe.compile(lambda x: xp.exp(x) + 1, x, target="cpu")
    np.testing.assert_array_equal(exe.interpret(x), exe(x))


@pytest.mark.parametrize("orders", [0, -1, 1.5, True, "2"])
def test_orders_that_are_no_number_are_refused(orders: Any) -> None:
    x = normal(5, 7)
    exe = axe.compile(lambda x: x + 1, x, target="h200")
    with pytest.raises(ArgumentError, match="is no number of orders; expected 1 or more"):
        exe.interpret(x, orders=orders)


def test_arrays_that_do_not_fit_are_refused() -> None:
    exe = axe.compile(lambda x: x + 1, "5x7:f32", target="h200")
    with pytest.raises(ArgumentError, match=r"has shape \(7, 5\)"):
        exe.interpret(normal(7, 5))
    with pytest.raises(ArgumentError, match="has dtype"):
        exe.interpret(normal(5, 7, dtype="f8"))
    with pytest.raises(ArgumentError, match="got 2 arrays"):
        exe.interpret(normal(5, 7), normal(5, 7))


def test_a_family_without_an_interpreter_says_so() -> None:
    cuda = installed()["cuda"]
    blind = Pack("blind", schedules=[], targets=cuda.targets, emitters=cuda.emitters)
    exe = axe.compile(lambda x: x + 1, "5x7:f32", target="h200")
    exe.packs = (blind,)
    with pytest.raises(PackError, match="has no interpreter"):
        exe.interpret(normal(5, 7))

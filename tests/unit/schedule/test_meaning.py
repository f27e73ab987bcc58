"""What schedule terms mean: memory after a store, and blocks of kernels put together."""

from __future__ import annotations

import numpy as np
import pytest

from axe_eq.errors import ScheduleError
from axe_eq.layout import Layout
from axe_eq.program.terms import In, op, sel
from axe_eq.program.types import ValueType
from axe_eq.schedule import terms as s
from axe_eq.schedule.contents import contents, read, same, write
from axe_eq.schedule.meaning import Evaluator

X, Y = In("x", "f64[5,4]"), In("y", "f64[4,6]")
DENSE = "S[(20):(1@m)]"


@pytest.fixture
def evaluator(rng: np.random.Generator) -> Evaluator:
    return Evaluator({"x": rng.standard_normal((5, 4)), "y": rng.standard_normal((4, 6))})


@pytest.mark.parametrize(
    "text", [DENSE, "S[(5,4):(1@m,5@m)] + R[(3):(1@lane)]", "sw(1,0,1)@m . S[(5,4):(4@m,1@m)]",
             "S[(5,4):(-4@m,1@lane)] + 7@m", "box[(5,4)] in S[(8,4):(4@m,1@m)]"]
)  # fmt: skip
def test_memory_holds_what_the_layout_says(text: str, rng: np.random.Generator) -> None:
    value, layout = rng.standard_normal((5, 4)), Layout.parse(text)
    memory = write(value, text)
    held = {
        tuple((a, int(v)) for a, v in zip(memory.axes, point, strict=True) if v): element
        for point, element in zip(memory.points, memory.values, strict=True)
    }
    assert held == {place: value.reshape(-1)[x] for x in range(layout.size) for place in layout(x)}
    assert same(read(memory, text, ValueType("f64", (5, 4))), value)


def test_memory_refuses_what_it_does_not_hold() -> None:
    whole = ValueType("f64", (2, 3))
    value = np.arange(6.0).reshape(2, 3)
    with pytest.raises(ScheduleError, match=r"two values at one coordinate"):
        write(value, "S[(2,3):(1@m,0@m)]")
    assert write(np.ones((2, 3)), "S[(2,3):(1@m,0@m)]").values.tolist() == [1, 1]
    memory = write(value, "S[(6):(1@m)]")
    with pytest.raises(ScheduleError, match="memory at 6@m: holds nothing"):
        read(memory, "S[(6):(1@m)] + 1@m", whole)
    with pytest.raises(ScheduleError, match="memory at 1@lane: holds nothing"):
        read(memory, "S[(6):(1@m)] + 1@lane", whole)
    with pytest.raises(ScheduleError, match="has size 6; expected 4"):
        read(memory, "S[(6):(1@m)]", ValueType("f64", (4,)))
    spoiled = contents(("gpuid",), np.array([[0], [1]]), np.array([1.0, 2.0]))
    with pytest.raises(ScheduleError, match="copies that differ"):
        read(spoiled, "S[():()] + R[(2):(1@gpuid)]", ValueType("f64", ()))


@pytest.mark.parametrize("root", ["p q", "p *", "* *", "b q", "3p:3 *"])
def test_a_kernel_stores_what_its_blocks_compute(root: str, evaluator: Evaluator) -> None:
    product = op("a c, c b -> a b; + c", "mul", X, Y)
    first, _, second = root.partition(" ")
    for k in ("k", "*"):
        parts = s.tiles(product.args[2], f"{first} {k};{k} {second};")
        kernel = s.Kernel(s.Cell(*product.args[:2], root, parts), "S[(30):(1@m)]")
        memory = evaluator.memory(kernel)
        x, y = evaluator.inputs["x"], evaluator.inputs["y"]
        np.testing.assert_allclose(read(memory, "S[(30):(1@m)]", ValueType("f64", (5, 6))), x @ y)


@pytest.mark.parametrize(
    ("parts", "wrong_rows"),
    [("p+1 *;* q;", [0, 2, 4]), ("p 0;* q;", [0, 1, 2, 3, 4]), ("p k;* q;", [])],
)
def test_what_lies_outside_the_boxes_is_junk(
    parts: str, wrong_rows: list[int], evaluator: Evaluator
) -> None:
    product = op("a c, c b -> a b; + c", "mul", X, Y)
    tile = s.Cell(*product.args[:2], "p q", s.tiles(product.args[2], parts))
    memory = evaluator.memory(s.Kernel(tile, "S[(30):(1@m)]"))
    found = read(memory, "S[(30):(1@m)]", ValueType("f64", (5, 6)))
    right = np.isclose(found, evaluator.inputs["x"] @ evaluator.inputs["y"])
    assert [row for row in range(5) if not right[row].all()] == wrong_rows
    assert not right[wrong_rows].any()


def test_an_uncovered_element_holds_junk(evaluator: Evaluator) -> None:
    kernel = s.Kernel(s.tile(X, "p+1 *"), DENSE)
    found = read(evaluator.memory(kernel), DENSE, ValueType("f64", (5, 4)))
    assert same(found[1:], evaluator.inputs["x"][1:])
    assert not np.isclose(found[0], evaluator.inputs["x"][0]).any()


def test_a_view_and_its_value_are_one_memory(evaluator: Evaluator) -> None:
    merged = evaluator.memory(s.place(sel("merge 0 2", X), DENSE))
    plain = evaluator.memory(s.place(X, DENSE))
    assert same(merged.values, plain.values)
    turned = evaluator.memory(s.place(op("a b -> b a", "id", X), "S[(4,5):(1@m,4@m)]"))
    assert same(turned.values, plain.values)

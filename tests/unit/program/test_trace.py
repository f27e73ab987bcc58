"""Tracing: what becomes a program, names, places, constants, rebinding, refusals."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import axe_eq.array as xp
import axe_eq.nn as nn
from axe_eq.errors import ArgumentError, ProgramError
from axe_eq.layout import Layout
from axe_eq.program.meaning import evaluate
from axe_eq.program.nesting import unflatten
from axe_eq.program.node import Program
from axe_eq.program.trace import Spec, Traced, dim, run, trace
from axe_eq.program.types import DTYPES


def cells(program: Program) -> list[str]:
    """Cells and selectors, operands before users."""
    return [n.cell or n.text.split()[0] for n in program.nodes() if n.kind != "input"]


# -- no law is applied ----------------------------------------------------------------------------


def test_tracing_applies_no_law() -> None:
    assert cells(trace(lambda x: x + 0, "3:f32")) == ["full", "add"]
    assert cells(trace(lambda x: x * 1.0 - x / x, "3:f32")) == ["full", "mul", "div", "sub"]
    assert cells(trace(lambda x: xp.flip(xp.flip(x)), "3:f32")) == ["flip", "flip"]
    assert cells(trace(lambda x: xp.permute_dims(x, (0, 1)), "3x3:f32")) == ["id"]
    assert cells(trace(lambda x: x[:, ...], "3x3:f32")) == []
    assert cells(trace(lambda x: xp.asarray(2.0) + 3.0, "3:f32")) == ["full", "full", "add"]


def test_equal_values_are_one_node() -> None:
    program = trace(lambda x: (xp.exp(x) + 1) * (xp.exp(x) + 1), "3:f32")
    assert cells(program) == ["exp", "full", "add", "mul"]
    assert program.outputs[0].args[0] is program.outputs[0].args[1]
    again = trace(lambda y, x: xp.exp(x) + 1, "2:f16", "3:f32")
    assert again.outputs[0] is program.outputs[0].args[0]


def test_nodes_die_with_their_programs() -> None:
    program = trace(lambda x: xp.sinh(x) + 17.25, "3:f32")
    node = weakref.ref(program.outputs[0])
    del program
    gc.collect()
    assert node() is None


def test_what_no_output_reaches_is_no_part_of_the_program() -> None:
    def fn(x: Any, unused: Any) -> Any:
        xp.exp(x) @ xp.asarray(np.ones(3))
        return -x

    program = trace(fn, "3:f64", "5:f16")
    assert cells(program) == ["neg"]
    assert [spec.name for spec in program.inputs] == ["x", "unused"]
    assert program.constants == {}


# -- arguments and results ------------------------------------------------------------------------


class Pair(NamedTuple):
    first: Any
    second: Any


def test_nested_arguments_and_results() -> None:
    def fn(x: Any, params: Any, *rest: Any) -> Any:
        w, b = params["w"], params["b"]
        return {"y": x @ w + b[0], "z": [rest[0], (rest[1] * 2,)]}, Pair(x, 2.5)

    x, w, b, r = np.ones((2, 3)), np.ones((3, 4)), np.ones(4), np.arange(3)
    program = trace(fn, x, {"w": w, "b": [b]}, r, "5:i32")
    assert [i.name for i in program.inputs] == ["x", "params.w", "params.b.0", "rest.0", "rest.1"]
    arrays: list[Any] = [x, w, b, r, np.arange(5, dtype=np.int32)]
    first, second = unflatten(program.structure, evaluate(program, arrays))
    assert list(first) == ["y", "z"]
    assert [type(first["z"]), type(first["z"][1])] == [list, tuple]
    np.testing.assert_array_equal(first["y"], np.full((2, 4), 4.0))
    assert second[1] == 2.5
    assert program.arguments == [
        "tuple", [0, ["dict", [["w", 1], ["b", ["list", [2]]]]], 3, 4],
    ]  # fmt: skip


def test_an_input_may_be_an_output_and_an_output_may_repeat() -> None:
    program = trace(lambda x: (x, x + 1, x), "2:f64")
    got = evaluate(program, [np.array([1.0, 2.0])])
    assert [g.tolist() for g in got] == [[1, 2], [2, 3], [1, 2]]


def test_partial_functions_and_callables() -> None:
    class Scale:
        def __call__(self, x: Any) -> Any:
            return x * 3

    assert run(Scale(), np.ones(2)).tolist() == [3, 3]
    assert run(functools.partial(lambda x, n: x * n, n=4), np.ones(2)).tolist() == [4, 4]
    assert run(nn.relu, np.array([-1.0, 2.0])).tolist() == [0, 2]


def test_specs_carry_dims_and_layouts() -> None:
    layout = Layout.parse("S[(4,8):(1,4)]")
    spec = Spec((4, dim("n", 8, 8)), "f16", dims=("m", "n"), layout=layout)
    (given,) = trace(lambda x: x, spec).inputs
    assert (given.dims, given.divisible, given.layout) == (("m", "n"), (1, 8), layout)


def test_arguments_are_checked() -> None:
    program = trace(lambda x, y: x + y, "3:f16", "3:f16")
    x = np.ones(3, np.float16)
    for arrays, text in [
        ([x], "arguments: got 1 arrays; expected 2 (x, y)"),
        ([x, x[:2]], "argument 'y': is f16[2]; expected f16[3]"),
        ([x, x.astype(float)], "argument 'y': is f64[3]; expected f16[3]"),
        ([x, x.astype(complex)], "argument 'y': is complex128[3]; expected f16[3]"),
    ]:
        with pytest.raises(ArgumentError) as caught:
            evaluate(program, arrays)
        assert str(caught.value) == text


# -- constants ------------------------------------------------------------------------------------


def test_captured_arrays_are_constants_named_by_their_contents() -> None:
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    program = trace(lambda x: x * table + table.copy(), "2x3:f32")
    assert len(program.constants) == 1
    (name,) = program.constants
    assert name in {n.text for n in program.nodes()}
    np.testing.assert_array_equal(program.constants[name], table)
    table_of_other_values = table + 1
    other = trace(lambda x: x * table_of_other_values, "2x3:f32")
    assert set(other.constants) != set(program.constants)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(evaluate(program, [x])[0], x * table + table)


def test_a_captured_array_that_changes_later_does_not_change_the_program() -> None:
    table = np.ones(3)
    program = trace(lambda x: x + table, "3:f64")
    table[:] = 7
    assert evaluate(program, [np.zeros(3)])[0].tolist() == [1, 1, 1]


def test_constants_of_every_dtype() -> None:
    for name, of in DTYPES.items():
        held = np.asarray([0, 1, 1]).astype(of.numpy)
        program = trace(lambda x, held=held: xp.where(x, held, held), "3:bool")
        assert program.outputs[0].dtype == name
        scalar = trace(lambda x, held=held: xp.where(x, held[1], held[1]), "3:bool")
        assert scalar.outputs[0].dtype == name
        assert scalar.constants == {}


# -- names, places --------------------------------------------------------------------------------


def block(x: Any, w: Any) -> Any:
    hidden = nn.silu(x @ w)
    total: Any = xp.sum(hidden, axis=-1)
    hidden = hidden + 1
    return total, hidden


def test_values_keep_the_users_names_and_places() -> None:
    program = trace(block, "3x4:f16", "4x4:f16")
    named = {name: node.cell for node, name in program.names.items()}
    assert named["total"] == "id"
    assert sorted(program.names.values()) == ["hidden", "hidden", "total"]
    (product,) = [n for n in program.nodes() if ";" in n.text and n.cell == "mul"]
    line = block.__code__.co_firstlineno + 1
    assert program.places[product] == f"test_trace.py:{line}: hidden = nn.silu(x @ w)"
    assert set(program.places) >= {n for n in program.nodes() if n.kind != "input"}
    negated = trace(lambda x: -x, "3x4:f16")
    assert negated.names == {}


def test_names_and_places_take_no_part_in_equality() -> None:
    def one(x: Any) -> Any:
        a = x + 1
        return a * 2

    def other(x: Any) -> Any:
        return (x + 1) * 2

    assert trace(one, "3:f16").outputs == trace(other, "3:f16").outputs


# -- named dims -----------------------------------------------------------------------------------


def test_shapes_hold_the_named_dims_where_operators_pass_them_through() -> None:
    seen: dict[str, Any] = {}

    def fn(x: Any, w: Any) -> Any:
        n = x.shape[0]
        seen["matmul"] = (x @ w).shape[0] is n
        seen["transpose"] = x.T.shape[1] is n
        seen["slice"] = x[:, 1:].shape[0] is n
        seen["split"] = xp.reshape(x, (n, 2, -1)).shape[0] is n
        seen["sum"] = xp.sum(x, axis=1).shape[0] is n
        seen["cut"] = type(x[1:].shape[0])
        return x + n

    program = trace(fn, Spec((dim("n", 8), 4), "f32"), "4x5:f32")
    assert seen == {
        "matmul": True, "transpose": True, "slice": True, "split": True, "sum": True, "cut": int,
    }  # fmt: skip
    assert all(type(e) is int for node in program.nodes() for e in node.shape)


def test_rebinding_a_dim_traces_again() -> None:
    def fn(x: Any) -> Any:
        return xp.mean(x, axis=0), xp.reshape(x, (x.shape[0] // 2, -1))

    program = trace(fn, Spec((8, 6), "f64", dims=("n", "k")))
    small = program.rebind(n=4)
    assert [str(n.type) for n in small.outputs] == ["f64[6]", "f64[2,12]"]
    x = np.arange(24.0).reshape(4, 6)
    np.testing.assert_allclose(evaluate(small, [x])[0], x.mean(0))
    with pytest.raises(ProgramError, match="is not a dim of the program; expected one of: n k"):
        program.rebind(m=3)
    with pytest.raises(ProgramError, match="was not traced from a function"):
        Program((), program.outputs).rebind(n=3)


# -- refusals -------------------------------------------------------------------------------------


def branch(x: Any) -> Any:
    if x > 0:
        return x
    return -x


def assign(x: Any) -> Any:
    x[0] = 1
    return x


REFUSED: list[tuple[Callable[..., Any], list[Any], str, str]] = [
    (
        branch,
        [":f32"],
        "bool(x): x is traced and has no values yet; expected shapes and dtypes only",
        "where(condition, a, b)",
    ),
    (
        lambda x: float(x),
        [":f32"],
        "float(x): x is traced and has no values yet; expected shapes and dtypes only",
        "astype(x, 'f64')",
    ),
    (
        lambda x: int(x),
        [":f32"],
        "int(x): x is traced and has no values yet; expected shapes and dtypes only",
        "astype(x, 'i64')",
    ),
    (
        lambda x: complex(x),
        [":f32"],
        "complex(x): x is traced and has no values yet; expected shapes and dtypes only",
        "an array of a dtype of ours",
    ),
    (
        lambda x: [1, 2][x],
        [":i64"],
        "x as an index: x is traced and has no values yet; expected shapes and dtypes only",
        "where, or a slice with known bounds",
    ),
    (
        lambda x: 1 in x,
        ["3:f32"],
        "item in x: x is traced and has no values yet; expected shapes and dtypes only",
        "any(x == item)",
    ),
    (
        lambda x: np.asarray(x),
        ["3:f32"],
        "numpy.asarray(x): x is traced and has no values yet; expected shapes and dtypes only",
        "functions of axe_eq.array",
    ),
    (
        lambda x: f"{x:.2f}",
        ["3:f32"],
        "format(x, '.2f'): x is traced and has no values yet; expected shapes and dtypes only",
        "f'{x}', which shows dtype and shape",
    ),
    (lambda x: len(x), [":f32"], "len(x): x has no dims; expected at least one dim", "x.size"),
    (
        assign,
        ["3:f32"],
        "traced array: is never changed in place; expected a new array",
        "where(mask, value, x), or concat of slices",
    ),
    (
        lambda x: x[x > 0],
        ["3:f32"],
        "index of type Traced: would give a shape that depends on values; "
        "expected integers, slices, None or ...",
        "where(mask, a, b)",
    ),
    (
        lambda x: x[[True, False, True]],
        ["3:f32"],
        "index of type list: would give a shape that depends on values; "
        "expected integers, slices, None or ...",
        "where(mask, a, b)",
    ),
    (
        lambda x: x[[0, 1]],
        ["3:f32"],
        "index of type list: is an array of indices; expected integers, slices, None or ...",
        "axe_eq.array.take(x, indices, axis=...)",
    ),
    (
        lambda x, ids: x[ids],
        ["3x4:f32", "8:i32"],
        "index of type Traced: is an array of indices; expected integers, slices, None or ...",
        "axe_eq.array.take(x, indices, axis=...)",
    ),
    (
        lambda x: x[1.0],
        ["3:f32"],
        "index of type float: is no number of an element; expected integers, slices, None or ...",
        "",
    ),
    (lambda x: x[3], ["3:f32"], "index 3: is out of range on axis 0 of f32[3]; expected -3..2", ""),
    (
        lambda x: x[0, 0],
        ["3:f32"],
        "index [0, 0]: has too many indices for f32[3]; expected at most 1 indices",
        "",
    ),
    (
        lambda x: x[..., ...],
        ["3:f32"],
        "index [..., ...]: has more than one ...; expected at most 1 indices",
        "",
    ),
    (
        lambda x: x[2:1],
        ["3:f32"],
        "slice [2:1]: selects nothing of axis 0 of f32[3]; expected at least one element",
        "",
    ),
    (lambda x: x[::0], ["3:f32"], "slice [::0]: has step 0; expected another step", ""),
    (
        lambda x: x + np.ones(4, np.float32),
        ["3:f32"],
        "cell 'add': shapes (3,) and (4,) do not broadcast; expected equal extents, or 1",
        "",
    ),
    (
        lambda x: x + "1",
        ["3:f32"],
        "operand '1': is of type str; expected an array or a real number",
        "",
    ),
    (
        lambda x: x + 1j,
        ["3:f32"],
        "operand 1j: is of type complex; expected an array or a real number",
        "",
    ),
    (
        lambda x: x + 2**40,
        ["3:i32"],
        "constant 1099511627776: does not fit i32; expected a value of i32",
        "",
    ),
    (
        lambda x: x @ x,
        ["3x4:f16"],
        "matmul: f16[3,4] @ f16[3,4] have no common extent; expected (..., m, k) @ (..., k, n)",
        "",
    ),
    (
        lambda x: xp.reshape(x, (2, -1)),
        ["3:f16"],
        "reshape: f16[3] of 3 elements does not have shape (2, -1); "
        "expected extents of the same product, one of them may be -1",
        "",
    ),
    (lambda x: xp.sum(x, axis=2), ["3:f16"], "axis 2: is out of range; expected -1..0", ""),
    (
        lambda x: xp.sum(x, axis=(0, -1)),
        ["3:f16"],
        "axes (0, -1): repeat an axis; expected each axis once",
        "",
    ),
    (
        lambda x: xp.squeeze(x, axis=0),
        ["3:f16"],
        "squeeze: axis 0 of f16[3] has extent 3; expected extent 1",
        "",
    ),
    (
        lambda x: xp.broadcast_to(x, (3, 2)),
        ["3:f16"],
        "broadcast_to: (3,) does not broadcast to (3, 2); expected equal extents, or 1",
        "",
    ),
    (
        lambda x: x.T,
        ["3:f16"],
        "x.T: needs 2 dims, has shape (3,); expected a matrix",
        "x.mT or permute_dims(x, axes)",
    ),
    (lambda x: xp.nextafter(x, x), ["3:f16"], "nextafter: got f16; expected f32 or f64", ""),
    (
        lambda x: xp.repeat(x, x),
        ["3:i64"],
        "repeats <traced i64[3]>: is of type Traced; expected an integer of at least 1",
        "",
    ),
    (
        lambda x: xp.asarray([x, x]),
        ["3:i64"],
        "asarray: got a list of traced arrays; expected numbers",
        "stack(arrays)",
    ),
    (
        lambda x: np.sort(x),
        ["3:i64"],
        "numpy.sort: has no counterpart for traced arrays; expected a function of axe_eq.array",
        "",
    ),
    (
        lambda x: np.add.reduce(x),
        ["3:i64"],
        "numpy.add.reduce: has no meaning on traced arrays; expected functions of axe_eq.array",
        "",
    ),
    (
        lambda x: xp.block("a -> a", "gate", x),
        ["3:i64"],
        "cell 'gate': is not declared; expected one of",
        "",
    ),
]


@pytest.mark.parametrize(
    ("fn", "specs", "text", "hint"), REFUSED, ids=lambda v: None if callable(v) else str(v)[:40]
)
def test_refusals_say_what_and_where(
    fn: Callable[..., Any], specs: list[Any], text: str, hint: str
) -> None:
    with pytest.raises(ProgramError) as caught:
        trace(fn, *specs)
    lines = str(caught.value).split("\n")
    assert lines[0].startswith(text)
    assert lines[1].startswith(f"  at test_trace.py:{_line_of(fn)}: ")
    assert lines[2:] == ([f"  try: {hint}"] if hint else [])


def _line_of(fn: Callable[..., Any]) -> int:
    """The line of the function that fails: the last for a lambda, the second otherwise."""
    first: int = fn.__code__.co_firstlineno
    return first if fn.__name__ == "<lambda>" else first + 1


CALLS: list[tuple[Callable[[], object], str]] = [
    (
        lambda: trace(branch),
        "function 'branch': does not take 0 arguments (missing a required argument: 'x'); "
        "expected one spec per parameter",
    ),
    (
        lambda: trace(branch, "3:f32", "3:f32"),
        "function 'branch': does not take 2 arguments (too many positional arguments); "
        "expected one spec per parameter",
    ),
    (
        lambda: trace(lambda x: None, "3:f32"),
        "output of the function: is of type NoneType; "
        "expected arrays, nested in tuples, lists or dicts",
    ),
    (
        lambda: trace(lambda x: (), "3:f32"),
        "output of the function: holds no array; expected arrays, nested in tuples, lists or dicts",
    ),
    (
        lambda: trace(
            lambda x, y: x, Spec((3,), "f32", dims=("n",)), Spec((4,), "f32", dims=("n",))
        ),
        "dim 'n': has extents 3 and 4; expected one extent per name",
    ),
    (
        lambda: xp.asarray(np.ones(3)),
        "array: is captured outside of a trace; expected a traced function\n"
        "  try: call it in a function given to axe_eq.trace",
    ),
]


def test_a_value_of_another_trace_is_refused() -> None:
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x)
        return x

    trace(keep, "3:f32")
    with pytest.raises(ProgramError, match="belongs to another trace"):
        trace(lambda x: x + kept[0], "3:f32")
    with pytest.raises(ProgramError, match="belongs to another trace"):
        trace(lambda x: kept[0], "3:f32")
    with pytest.raises(ProgramError, match="belongs to another trace"):
        trace(lambda x: trace(lambda y: x * y, "3:f32").outputs[0], "3:f32")


def test_ambiguous_names_of_arguments_are_refused() -> None:
    spec = Spec((3,), "f32")
    with pytest.raises(ProgramError, match="is the name of two arrays; expected other dict keys"):
        trace(lambda p: p["a.b"], {"a": {"b": spec}, "a.b": spec})


def test_programs_compare_by_what_they_compute() -> None:
    def fn(x: Any) -> Any:
        return {"y": x * np.ones(3)}

    one, two = trace(fn, "3:f64"), trace(fn, "3:f64")
    assert one == two
    assert hash(one) == hash(two)
    assert one != trace(lambda x: x * np.ones(3), "3:f64")
    assert one != trace(lambda x: {"y": x * (np.ones(3) + 1)}, "3:f64")
    assert repr(one) == "<program (x: f64[3]) -> (f64[3])>"


@pytest.mark.parametrize(
    ("call", "text"), CALLS, ids=lambda v: None if callable(v) else str(v)[:40]
)
def test_bad_calls_say_what_is_wrong(call: Callable[[], object], text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        call()
    assert str(caught.value) == text


def test_errors_of_the_users_own_pass_through() -> None:
    def fn(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trace(fn, "3:f16")


def test_traced_arrays_look_like_arrays() -> None:
    seen: list[Any] = []

    def fn(x: Any) -> Any:
        seen.extend([x.shape, x.ndim, x.size, x.dtype, x.device, repr(x), len(x)])
        assert isinstance(x, Traced)
        assert x.to_device("gpu") is x
        assert x.__array_namespace__() is xp
        assert hash(x) == hash(x)
        return x

    trace(fn, "2x3:bf16")
    assert seen == [(2, 3), 2, 6, "bf16", "traced", "<traced bf16[2,3]>", 2]


def test_half_types_run(rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 4)).astype(ml_dtypes.bfloat16)
    got = run(lambda x: xp.exp(x) @ x.T, x)
    assert got.dtype == ml_dtypes.bfloat16
    wide = x.astype(np.float32)
    np.testing.assert_allclose(got.astype(float), np.exp(wide) @ wide.T, rtol=0.05, atol=0.1)

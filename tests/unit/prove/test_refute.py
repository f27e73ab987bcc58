"""Refutation of programs: real differences are found, rounding differences never are."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import ArgumentError, SearchError
from axe_eq.program.interval import Interval
from axe_eq.program.meaning import evaluate
from axe_eq.program.node import InputSpec, Node, Program, input_node, op_node, sel_node
from axe_eq.program.ops import CELLS, SELECTORS, Cell, Pull, Selector, join_text
from axe_eq.program.types import Array, ValueType, value_type
from axe_eq.prove.certificates.rebuild import reshape_program, type_difference
from axe_eq.prove.certificates.verdict import ProgramCounterexample
from axe_eq.prove.programs.enclose import enclose_program, plan, run
from axe_eq.prove.programs.refute import find_counterexample, refute
from axe_eq.prove.programs.region import whole
from axe_eq.prove.programs.sample import PATTERNS, RANDOM, Sample, sampled

MATMUL = "a c, c b -> a b; + c"


def program(
    build: Callable[..., Node | Sequence[Node]], *types: str, names: str = "xyzw"
) -> Program:
    inputs = [input_node(name, value_type(t)) for name, t in zip(names, types, strict=False)]
    outputs = build(*inputs)
    roots = (outputs,) if isinstance(outputs, Node) else tuple(outputs)
    return Program(tuple(map(InputSpec, inputs)), roots)


def cell(name: str, *xs: Node) -> Node:
    letters = [" ".join("abcd"[: x.type.rank]) for x in xs]
    return op_node(f"{', '.join(letters)} -> {max(letters, key=len)}", name, xs)


def number(value: float, like: Node) -> Node:
    return sel_node(join_text("full", (), value, like.dtype), [])


def reduced(monoid: str, x: Node) -> Node:
    return op_node(f"a b -> a; {monoid} b", "id", [x])


def check(a: Program, b: Program, **options: Any) -> ProgramCounterexample:
    """The counterexample, checked against the numpy meaning of both programs."""
    verdict = refute(a, b, **options)
    assert verdict is not None
    found = verdict.counterexample
    assert isinstance(found, ProgramCounterexample)
    for side, value in ((a, found.value_a), (b, found.value_b)):
        output = evaluate(side, list(found.inputs))[found.output]
        assert math.isclose(float(output[found.index]), value, rel_tol=1e-2, abs_tol=1e-3)
    return found


# -- types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("b", "reason"),
    [
        (program(lambda x, y: x, "f32[2,3]", "f32[2,3]"), "a has 1 inputs, b has 2"),
        (program(lambda x: (x, x), "f32[2,3]"), "a has 1 outputs, b has 2"),
        (program(lambda x: x, "f32[3,2]"), "input 0 is f32[2,3] in a, f32[3,2] in b"),
        (program(lambda x: x, "f16[2,3]"), "input 0 is f32[2,3] in a, f16[2,3] in b"),
        (
            program(lambda x: cell("cast f16", x), "f32[2,3]"),
            "output 0 is f32[2,3] in a, f16[2,3] in b",
        ),
        (program(lambda x: reduced("+", x), "f32[2,3]"), "output 0 is f32[2,3] in a, f32[2] in b"),
    ],
)
def test_different_types_are_refuted_without_inputs(b: Program, reason: str) -> None:
    a = program(lambda x: cell("exp", x), "f32[2,3]")
    verdict = refute(a, b)
    assert verdict is not None
    assert verdict.counterexample is None
    assert verdict.reason == f"the types differ: {reason}"
    assert type_difference(a, a) is None


def test_inputs_are_matched_by_position() -> None:
    a = program(lambda x, y: cell("sub", x, y), "f32[2]", "f32[2]", names="xy")
    b = program(lambda x, y: cell("sub", x, y), "f32[2]", "f32[2]", names="yx")
    swapped = program(lambda x, y: cell("sub", y, x), "f32[2]", "f32[2]", names="xy")
    assert refute(a, b) is None
    check(a, swapped)


def test_unknown_numerics_are_refused() -> None:
    a = program(lambda x: x, "f32[2]")
    with pytest.raises(ArgumentError, match="'real' or 'exact'"):
        find_counterexample(a, a, numerics="float")


# -- what differs ----------------------------------------------------------------------------------


def softmax(x: Node, divide: str = "a b, a -> a b") -> Node:
    shifted = op_node("a b, a -> a b", "sub", [x, reduced("max", x)])
    weights = cell("exp", shifted)
    return op_node(divide, "div", [weights, reduced("+", weights)])


def mean(x: Node, count: float) -> Node:
    return op_node("a, -> a", "div", [reduced("+", x), number(count, x)])


DIFFERENT: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]] = {
    "transposed product": (
        lambda x, y: op_node(MATMUL, "mul", [x, y]),
        lambda x, y: op_node("a c, b c -> a b; + c", "mul", [x, y]),
        ("f16[4,4]", "f16[4,4]"),
    ),
    "mean by a wrong count": (lambda x: mean(x, 6.0), lambda x: mean(x, 5.0), ("f32[3,6]",)),
    "softmax along the other axis": (
        softmax,
        lambda x: softmax(x, "a b, b -> a b"),
        ("f32[5,5]",),
    ),
    "bias added twice": (
        lambda x, b: op_node("a b, b -> a b", "add", [x, b]),
        lambda x, b: op_node("a b, b, b -> a b", "add", [x, b, b]),
        ("bf16[4,3]", "bf16[3]"),
    ),
    "product for sum": (
        lambda x: op_node("a b -> a; + b", "id", [x]),
        lambda x: op_node("a b -> a; * b", "id", [x]),
        ("f32[2,3]",),
    ),
    "strict comparison": (
        lambda x, y: cell("lt", x, y), lambda x, y: cell("le", x, y), ("f32[8]", "f32[8]"),
    ),
    "rounded down": (lambda x: x, lambda x: cell("floor", x), ("f32[8]",)),
    "clipped at 20": (
        lambda x: x, lambda x: op_node("a, -> a", "minimum", [x, number(20.0, x)]), ("f32[64]",),
    ),
    "absolute value": (
        lambda x: cell("sqrt", cell("mul", x, x)), lambda x: x, ("f32[4]",),
    ),
    "integer division": (
        lambda x, y: cell("floor_divide", x, y),
        lambda x, y: cell("sub", x, cell("remainder", x, y)),
        ("i32[8]", "i32[8]"),
    ),
    "logic": (
        lambda x, y: cell("and", x, y), lambda x, y: cell("or", x, y), ("bool[4]", "bool[4]"),
    ),
    "second output": (
        lambda x: (x, cell("sin", x)), lambda x: (x, cell("cos", x)), ("f32[3]",),
    ),
    "scalar": (lambda x: cell("exp", x), lambda x: cell("expm1", x), ("f64[]",)),
    "one part in a thousand": (
        lambda x: x, lambda x: op_node("a, -> a", "mul", [x, number(1.001, x)]), ("f32[3]",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_differences_are_found(name: str) -> None:
    build_a, build_b, types = DIFFERENT[name]
    a, b = program(build_a, *types), program(build_b, *types)
    found = check(a, b)
    low, high = sorted([found.bounds_a, found.bounds_b])
    assert low[1] < high[0]
    assert refute(a, a) is None
    assert str(refute(a, b)) == str(refute(a, b))
    if name not in ("rounded down",):
        assert all(np.array_equal(np.trunc(x * 1.0), x * 1.0) for x in found.inputs)


def test_second_output_is_named() -> None:
    build_a, build_b, types = DIFFERENT["second output"]
    assert check(program(build_a, *types), program(build_b, *types)).output == 1


def test_value_kinds_are_those_of_the_output() -> None:
    for name, kind in {"logic": bool, "integer division": int, "rounded down": float}.items():
        build_a, build_b, types = DIFFERENT[name]
        assert type(check(program(build_a, *types), program(build_b, *types)).value_a) is kind


# -- what is equal, or not known to differ ---------------------------------------------------------


def chain(*names: str) -> Callable[[Node], Node]:
    def build(x: Node) -> Node:
        for name in names:
            x = cell(name, x)
        return x

    return build


def scaled(x: Node, name: str, value: float) -> Node:
    return op_node("a, -> a", name, [x, number(value, x)])


def one_at(x: Node) -> Node:
    return scaled(scaled(x, "mul", 0.0), "add", 1.0)


def at_zero(x: Node, other: Node) -> Node:
    """2 where x is 0, else the other value."""
    zero = op_node("a, -> a", "eq", [x, number(0.0, x)])
    return op_node("a, , a -> a", "where", [zero, number(2.0, x), other])


NOT_REFUTED: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]] = {
    "order of a sum": (
        lambda x, y, z: cell("add", cell("add", x, y), z),
        lambda x, y, z: cell("add", x, cell("add", y, z)),
        ("f16[64]", "f16[64]", "f16[64]"),
    ),
    "rounding in between": (
        lambda x: chain("exp", "cast f8e4m3", "cast f32")(x), chain("exp"), ("f32[8]",),
    ),
    "division by ten": (
        lambda x: scaled(x, "div", 10.0), lambda x: scaled(x, "mul", 0.1), ("f32[64]",),
    ),
    "division by three": (
        lambda x: scaled(x, "div", 3.0), lambda x: scaled(x, "mul", 1 / 3), ("f64[64]",),
    ),
    "constants of two types": (
        lambda x: scaled(x, "mul", 0.3),
        lambda x: cell("cast f16", scaled(cell("cast f32", x), "mul", 0.3)),
        ("f16[64]",),
    ),
    "a rounded constant": (
        lambda x: scaled(x, "mul", 0.3),
        lambda x: scaled(x, "mul", float(np.float16(0.3))),
        ("f16[64]",),
    ),
    "undefined everywhere": (
        lambda x: cell("log", scaled(cell("abs", x), "sub", 1e9)),
        lambda x: cell("sqrt", scaled(cell("abs", x), "sub", 1e9)),
        ("f32[64]",),
    ),
    "undefined in the branch that is not taken": (
        lambda x: at_zero(x, cell("div", x, x)), lambda x: at_zero(x, one_at(x)),
        ("f32[64]",),
    ),
    "a divisor that underflows": (
        lambda x: cell("div", x, cell("exp", scaled(cell("mul", x, x), "mul", -1e4))),
        lambda x: cell("mul", x, cell("exp", scaled(cell("mul", x, x), "mul", 1e4))),
        ("f32[64]",),
    ),
    "a sum and a difference that wrap around": (
        lambda x, y: cell("sub", cell("add", x, y), y), lambda x, y: x, ("i8[64]", "i8[64]"),
    ),
    "the least of what wraps around": (
        lambda x: op_node("a b, -> a; min b", "mul", [x, number(2, x)]),
        lambda x: reduced("min", op_node("a b, -> a b", "mul", [x, number(2, x)])),
        ("i8[3,9]",),
    ),
    "wrapping integers": (
        lambda x: scaled(scaled(x, "mul", 65536), "mul", 65536),
        lambda x: scaled(x, "mul", 0),
        ("i32[64]",),
    ),
    "overflow of a half": (
        lambda x: scaled(scaled(x, "mul", 60000.0), "mul", 0.5),
        lambda x: scaled(scaled(x, "mul", 0.5), "mul", 60000.0),
        ("f16[8]",),
    ),
    "shift of a softmax": (
        softmax,
        lambda x: op_node(
            "a b, a -> a b", "div", [cell("exp", x), reduced("+", cell("exp", x))]
        ),
        ("f32[3,7]",),
    ),
    "tanh as sigmoid": (
        chain("tanh"),
        lambda x: scaled(scaled(cell("sigmoid", scaled(x, "mul", 2.0)), "mul", 2.0), "sub", 1.0),
        ("f32[64]",),
    ),
    "last bit of a large integer": (
        lambda x: scaled(scaled(x, "mul", 2.0**30), "mul", 2.0**30),
        lambda x: scaled(scaled(scaled(x, "mul", 2.0**60), "add", 1.0), "sub", 1.0),
        ("f64[8]",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_REFUTED)
def test_rounding_and_undefined_values_refute_nothing(name: str) -> None:
    build_a, build_b, types = NOT_REFUTED[name]
    assert refute(program(build_a, *types), program(build_b, *types)) is None


def test_constants_are_part_of_the_programs() -> None:
    def with_constant(values: Sequence[float]) -> Program:
        table = np.array(values, np.float32)
        node = input_node(f"table {table.tobytes().hex()}", value_type("f32[3]"))
        made = program(lambda x: op_node("a b, b -> a b", "mul", [x, node]), "f32[2,3]")
        return dataclasses.replace(made, constants={node.text: table})

    check(with_constant([1, 2, 3]), with_constant([1, 2, 4]))
    assert refute(with_constant([1, 2, 3]), with_constant([1, 2, 3])) is None
    rounded = np.nextafter(np.float32(0.1), np.float32(1))
    assert refute(with_constant([0.1, 2, 3]), with_constant([float(rounded), 2, 3])) is None


# -- operators of others ---------------------------------------------------------------------------


def declare(monkeypatch: pytest.MonkeyPatch, table: Any, declared: Any) -> None:
    monkeypatch.setitem(table._by_name, declared.name, declared)


def cube_bounds(x: tuple[Array, Array]) -> tuple[Array, Array]:
    return x[0] ** 3 - 1e-9, x[1] ** 3 + 1e-9


@pytest.mark.parametrize(("enclose", "refuted"), [(None, False), (cube_bounds, True)])
def test_cell_of_a_pack(enclose: Any, refuted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, CELLS, Cell("test_cube", 1, lambda x: x**3, enclose=enclose))
    a, b = program(chain("test_cube"), "f32[4]"), program(chain("neg"), "f32[4]")
    assert (refute(a, b) is not None) == refuted


def test_selector_of_a_pack_without_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the rows, the second half backwards, one row of sevens between."""

    def shape(params: Any, types: Sequence[ValueType]) -> ValueType:
        rows, *rest = types[0].shape
        return ValueType(types[0].dtype, (2 * rows + 1, *rest))

    def shown(params: Any, arrays: Sequence[Array]) -> Array:
        x = arrays[0]
        return np.concatenate([x, np.full_like(x[:1], 7), x[::-1]])

    mirror = Selector("test_mirror", 1, shape, shown, None, fill=lambda params: 7.0)
    declare(monkeypatch, SELECTORS, mirror)
    a = program(lambda x: sel_node("test_mirror", [x]), "f32[3,5]")
    x = np.arange(15, dtype=np.float32).reshape(3, 5) ** 2 + 50
    (complete,) = enclose_program(a, [x])
    np.testing.assert_array_equal(complete.low, shown((), [x]))
    region = (np.array([1, 3, 4]), np.array([0, 4]))
    (part,) = run(
        plan(a.outputs, [region]), lambda node, r: Interval(*[x[np.ix_(*r)].astype(np.float64)] * 2)
    )
    np.testing.assert_array_equal(part.low, shown((), [x])[np.ix_(*region)])


def test_selector_that_skews(monkeypatch: pytest.MonkeyPatch) -> None:
    """Column j turned by j: the second axis passes through, and yet decides about the first."""

    def skewed(params: Any, arrays: Sequence[Array]) -> Array:
        x = arrays[0]
        rows, columns = np.indices(x.shape)
        return np.asarray(x[(rows + columns) % x.shape[0], columns])

    pull = [[None, Pull(1)]]
    skew = Selector("test_skew", 1, lambda p, types: types[0], skewed, lambda p, types: pull)
    declare(monkeypatch, SELECTORS, skew)
    a = program(lambda x: sel_node("test_skew", [x]), "f32[4,5]")
    x = np.arange(20.0).reshape(4, 5)
    region = (np.array([0, 2]), np.array([1, 3]))
    (part,) = run(plan(a.outputs, [region]), lambda node, r: Interval(*[x[np.ix_(*r)]] * 2))
    np.testing.assert_array_equal(part.low, skewed((), [x])[np.ix_(*region)])


# -- programs at their own, large shapes -----------------------------------------------------------


def attention(heads: Callable[[Node], Node]) -> Callable[..., Node]:
    """Scores of 8 heads from token vectors, with the head dims regrouped by `heads`."""

    def build(x: Node, w: Node) -> Node:
        split = heads(op_node(MATMUL, "mul", [x, w]))
        return op_node("a c d, b c d -> c a b; + d", "mul", [split, split])

    return build


def test_large_programs_are_refuted_at_their_own_shapes() -> None:
    types = ("f16[4096,256]", "f16[256,512]")
    by_head = attention(lambda q: sel_node("split 1 (-1,64)", [q]))
    interleaved = attention(
        lambda q: op_node("a b c -> a c b", "id", [sel_node("split 1 (-1,8)", [q])])
    )
    a, b = program(by_head, *types), program(interleaved, *types)
    verdict = refute(a, b, budget=1 << 25)
    assert verdict is not None
    found = verdict.counterexample
    assert isinstance(found, ProgramCounterexample)
    assert [x.shape for x in found.inputs] == [(4096, 256), (256, 512)]
    x, w = (np.asarray(v, np.float64) for v in found.inputs)
    head, row, column = found.index
    q = x[[row, column]] @ w
    assert found.value_a == np.dot(*q.reshape(2, 8, 64)[:, head])
    assert found.value_b == np.dot(*q.reshape(2, 64, 8)[:, :, head])
    assert refute(a, a) is None


def test_reduced_witness() -> None:
    types = ("f16[512,128]", "f16[128,256]")
    a = program(lambda x, w: op_node(MATMUL, "mul", [x, w]), *types)
    b = program(lambda x, w: sel_node("flip (1,)", [op_node(MATMUL, "mul", [x, w])]), *types)
    found = check(a, b)
    assert found.reduced is not None
    assert max(max(x.shape) for x in found.reduced.inputs) <= 4
    assert "the same at smaller extents" in str(found)


def test_budget_bounds_the_search() -> None:
    build_a, build_b, types = DIFFERENT["transposed product"]
    assert refute(program(build_a, *types), program(build_b, *types), budget=100) is None


def test_program_that_is_too_large_to_enclose_whole() -> None:
    huge = program(lambda x: cell("exp", x), "f32[65536,65536]")
    with pytest.raises(SearchError, match="elements"):
        plan(huge.outputs, [whole(huge.outputs[0].shape)])
    check_huge = program(lambda x: cell("exp", cell("neg", x)), "f32[65536,65536]")
    verdict = refute(huge, check_huge)
    assert verdict is not None
    assert "pattern" in str(verdict)


# -- smaller extents -------------------------------------------------------------------------------


def test_reshape_program_replaces_extents_everywhere() -> None:
    def build(x: Node, w: Node) -> Node:
        h = op_node(MATMUL, "mul", [x, w])
        part = sel_node("slice ((0,1,64),None)", [h])
        full = sel_node("full (64,32) 1.5 f32", [])
        wide = op_node("a b -> a b c [c=32]", "id", [cell("add", part, full)])
        return sel_node("merge 1 2", [wide])

    a = program(build, "f32[64,128]", "f32[128,32]")
    small = reshape_program(a, {64: 4, 128: 3, 32: 2})
    assert small is not None
    assert [i.node.shape for i in small.inputs] == [(4, 3), (3, 2)]
    assert small.outputs[0].shape == (4, 4)
    assert reshape_program(a, {}) == dataclasses.replace(a, retrace=None)


@pytest.mark.parametrize("value", [4096.0, 1 / 4096, 64.0, 1 / 64, -4096.0])
def test_reshape_program_refuses_constants_that_encode_an_extent(value: float) -> None:
    a = program(
        lambda x: op_node("a, -> a", "mul", [reduced("+", x), number(value, x)]), "f32[16,4096]"
    )
    assert reshape_program(a, {4096: 4}) is None
    assert reshape_program(a, {16: 2}) is not None


def test_reshape_program_refuses_what_does_not_fit() -> None:
    split = program(lambda x: sel_node("split 0 (-1,24)", [x]), "f32[96]")
    assert reshape_program(split, {96: 7}) is None
    assert reshape_program(split, {96: 48}) is not None
    table = input_node("table", value_type("f32[96]"))
    with_table = dataclasses.replace(
        program(lambda x: cell("add", x, table), "f32[96]"), constants={"table": np.ones(96)}
    )
    assert reshape_program(with_table, {96: 48}) is None


# -- bit for bit -----------------------------------------------------------------------------------

BITS_DIFFER: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]] = {
    "rounding in between": (
        lambda x: chain("cast f16", "cast f32")(x), lambda x: x, ("f32[16]",),
    ),
    "order of additions": (
        lambda x, y, z: cell("add", cell("add", x, y), z),
        lambda x, y, z: cell("add", x, cell("add", y, z)),
        ("f32[64]", "f32[64]", "f32[64]"),
    ),
    "zero added": (lambda x: x, lambda x: scaled(x, "add", 0.0), ("f32[64]",)),
    "not a number": (
        lambda x: scaled(x, "mul", 0.0), lambda x: scaled(cell("abs", x), "mul", 0.0), ("f32[64]",),
    ),
    "product of integers": (
        lambda x, y: op_node(MATMUL, "mul", [x, y]),
        lambda x, y: op_node("a c, b c -> a b; + c", "mul", [x, y]),
        ("f16[4,4]", "f16[4,4]"),
    ),
    "integers": (lambda x: x, lambda x: scaled(x, "add", 1), ("i64[3]",)),
    "truth": (lambda x: x, chain("not"), ("bool[3]",)),
}  # fmt: skip


@pytest.mark.parametrize("name", BITS_DIFFER)
def test_bits_that_differ(name: str) -> None:
    build_a, build_b, types = BITS_DIFFER[name]
    a, b = program(build_a, *types), program(build_b, *types)
    verdict = refute(a, b, numerics="exact")
    assert verdict is not None
    assert verdict.reason == "output 0 differs bit for bit"
    found = verdict.counterexample
    assert isinstance(found, ProgramCounterexample)
    with np.errstate(all="ignore"):
        ours, theirs = (evaluate(side, list(found.inputs))[0][found.index] for side in (a, b))
    assert ours.tobytes() != theirs.tobytes()
    np.testing.assert_array_equal([float(ours), float(theirs)], [found.value_a, found.value_b])
    assert refute(a, a, numerics="exact") is None


SAME_BITS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]] = {
    "order of operands": (
        lambda x, y: cell("add", x, y), lambda x, y: cell("add", y, x), ("f16[64]", "f16[64]"),
    ),
    "negated twice": (chain("neg", "neg"), lambda x: x, ("f32[64]",)),
    "order of a sum is free": (
        lambda x: op_node("a -> ; + a", "id", [x]),
        lambda x: op_node("a -> ; + a", "id", [sel_node("flip (0,)", [x])]),
        ("f32[999]",),
    ),
    "implementation of a product is free": (
        lambda x, y: op_node("a c, c b -> a b; + c", "mul", [x, y]),
        lambda x, y: op_node("b a -> a b", "id", [op_node("c b, a c -> b a; + c", "mul", [y, x])]),
        ("f32[33,65]", "f32[65,17]"),
    ),
    "implementation of exp is free": (
        chain("exp"), lambda x: sel_node("flip (0,)", [cell("exp", sel_node("flip (0,)", [x]))]),
        ("f32[64]",),
    ),
    "value of exp is free": (
        chain("exp"), lambda x: scaled(cell("expm1", x), "add", 1.0), ("f32[64]",),
    ),
    "which zero is larger is free": (
        lambda x, y: cell("maximum", x, y),
        lambda x, y: cell("maximum", y, x),
        ("f32[64]", "f32[64]"),
    ),
    "wrapping integers": (
        lambda x: scaled(scaled(x, "mul", 65536), "mul", 65536),
        lambda x: scaled(x, "mul", 0),
        ("i32[64]",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME_BITS)
def test_freedom_of_implementations_refutes_nothing(name: str) -> None:
    build_a, build_b, types = SAME_BITS[name]
    a, b = program(build_a, *types), program(build_b, *types)
    assert refute(a, b, numerics="exact") is None


# -- inputs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [*PATTERNS, "one hot"])
@pytest.mark.parametrize("of", ["f8e5m2[5,7]", "bf16[4,3,5]", "i32[40]", "bool[6,6]", "f32[]"])
def test_a_region_of_a_sample_is_a_part_of_its_array(pattern: str, of: str) -> None:
    type_ = value_type(of)
    sample = Sample(pattern, 5)
    array = sample.array(1, type_)
    assert (array.shape, array.dtype) == (type_.shape, sample.array(0, type_).dtype)
    region = tuple(np.arange(0, extent, 2) for extent in type_.shape)
    with np.errstate(invalid="ignore"):
        part = sample.values(1, type_, region).astype(array.dtype)
    assert part.tobytes() == np.asarray(array[np.ix_(*region)]).tobytes()
    if pattern not in RANDOM:
        np.testing.assert_array_equal(
            sample.values(1, type_, whole(type_.shape)), array.astype(np.float64)
        )


def test_samples_depend_on_seed_and_position() -> None:
    type_ = value_type("f32[100]")
    arrays = [Sample("dense", s).array(p, type_).tobytes() for s in range(3) for p in range(3)]
    assert len(set(arrays)) == 9
    assert Sample("one hot", 0).array(0, type_).sum() == 1


def test_inputs_of_a_large_program_are_made_when_asked_for() -> None:
    types = [value_type("f16[100000,100000]"), value_type("f16[2,3]")]
    inputs = sampled(Sample("dense", 0), types)
    assert len(inputs) == 2
    np.testing.assert_array_equal(inputs[-1], Sample("dense", 0).array(1, types[1]))
    assert inputs[1:][0].shape == (2, 3)
    with pytest.raises(IndexError):
        inputs[2]

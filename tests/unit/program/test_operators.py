"""Cells, monoids and selectors: types, texts, pulls, refusals."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import PackError, ProgramError
from axe_eq.program.interval import ENCLOSE
from axe_eq.program.meaning import evaluate_op, evaluate_sel
from axe_eq.program.node import input_node, op_node, op_type, sel_node, sel_type
from axe_eq.program.ops import CELLS, MONOIDS, SELECTORS, Cell, Table, join_text, split_text
from axe_eq.program.types import DTYPES, ValueType, promote, value_type


def types(*texts: str) -> tuple[ValueType, ...]:
    return tuple(value_type(t) for t in texts)


def arange(type_: ValueType) -> Any:
    return np.arange(1, type_.size + 1).reshape(type_.shape).astype(DTYPES[type_.dtype].numpy)


def test_the_issue_of_standard_operators_is_complete() -> None:
    cells = """id add sub mul div neg abs sign floor ceil round trunc maximum minimum exp log sqrt
        rsqrt tanh sigmoid erf pow eq ne lt le gt ge and or xor not where cast sin cos tan expm1
        log1p remainder floor_divide isnan isfinite isinf pair"""
    assert set(cells.split()) <= set(CELLS)
    assert MONOIDS.names() == [
        "+", "*", "max", "min", "and", "or", "softmax", "argmax", "argmin", "recurrence",
    ]  # fmt: skip
    assert SELECTORS.names() == [
        "lookup", "slice", "flip", "concat", "pad", "split", "parts", "merge", "repeat",
        "interleave", "iota", "full", "runs",
    ]  # fmt: skip
    assert all(CELLS[name].enclose is ENCLOSE[name] for name in CELLS)


def test_stated_algebra_of_cells_holds(rng: np.random.Generator) -> None:
    """Commutativity, associativity and units on random operands of the dtypes a cell takes."""
    for name in CELLS:
        declared = CELLS[name]
        if declared.arity not in (None, 2) or not declared.commutative:
            continue
        kind = {"logical": "bool", "integer": "i64"}.get(declared.result, "f64")
        x, y, z = (rng.integers(0, 2 if kind == "bool" else 9, 50) for _ in range(3))
        x, y, z = (v.astype(DTYPES[kind].numpy) for v in (x, y, z))
        fn = declared.fn
        np.testing.assert_array_equal(fn(x, y), fn(y, x), err_msg=name)
        if declared.associative:
            np.testing.assert_array_equal(fn(fn(x, y), z), fn(x, fn(y, z)), err_msg=name)
        if declared.arity is None:
            np.testing.assert_array_equal(fn(x, y, z), fn(fn(x, y), z), err_msg=name)
        if declared.unit is not None:
            unit = np.asarray(declared.unit).astype(x.dtype)
            np.testing.assert_array_equal(fn(x, unit), x, err_msg=name)


def test_cells_that_round_nothing_give_an_operands_value(rng: np.random.Generator) -> None:
    for name in ("id", "maximum", "minimum", "where", "neg", "abs"):
        declared = CELLS[name]
        n = declared.arity or 2
        values = [rng.normal(size=20).astype("f2") for _ in range(n)]
        if name == "where":
            values[0] = values[0] > 0
        got = declared.fn(*(v.astype("f4") if v.dtype != bool else v for v in values))
        np.testing.assert_array_equal(got, got.astype("f2").astype("f4"))


@pytest.mark.parametrize("name", [n for n in CELLS if CELLS[n].domain or CELLS[n].whole_domain])
def test_cells_are_finite_inside_their_domains(name: str, rng: np.random.Generator) -> None:
    declared = CELLS[name]
    for domain, kind in ((declared.domain, "f4"), (declared.whole_domain, "i8")):
        clipped = [(max(low, -50.0), min(high, 50.0)) for low, high in domain]
        operands = [rng.uniform(low, high, 200) for low, high in clipped]
        if domain:
            got = declared.fn(
                *(np.round(v).astype(kind) if kind == "i8" else v.astype(kind) for v in operands)
            )
            assert np.isfinite(got).all()
            assert got.dtype == kind


def test_jumping_cells_say_so() -> None:
    """A cell whose value moves by 1/2 or more for a step of 1e-9 jumps."""
    x = np.linspace(-3, 3, 2401)
    for name in CELLS:
        declared = CELLS[name]
        if declared.arity == 1 and declared.result in ("number", "float", "bool"):
            with np.errstate(all="ignore"):
                step = np.abs(declared.fn(x + 1e-9) * 1.0 - declared.fn(x - 1e-9) * 1.0)
            jumps = bool((step[np.isfinite(step)] > 0.49).any())
            assert jumps <= declared.jumps, name


TYPES = [
    ("a -> a", "exp", ["f16[3]"], "f16[3]"),
    ("a, a -> a", "add", ["f16[3]", "f32[3]"], "f32[3]"),
    ("a, a -> a", "add", ["f16[3]", "bf16[3]"], "f32[3]"),
    ("a, a -> a", "add", ["bool[3]", "i32[3]"], "i32[3]"),
    ("a, a -> a", "mul", ["i64[3]", "f16[3]"], "f16[3]"),
    ("a, a -> a", "lt", ["i64[3]", "f16[3]"], "bool[3]"),
    ("a, a, a -> a", "where", ["bool[3]", "i32[3]", "i64[3]"], "i64[3]"),
    ("a -> a", "cast bf16", ["i64[3]"], "bf16[3]"),
    ("a b -> a; + b", "id", ["f8e4m3[2,3]"], "f8e4m3[2]"),
    ("a b -> a; + b", "cast f32", ["f16[2,3]"], "f32[2]"),
    ("a b -> a; max b", "lt", ["f16[2,3]", "f16[2,3]"], None),
    ("a b -> a; or b", "isnan", ["f16[2,3]"], "bool[2]"),
    ("a b, b -> a; argmax b", "pair", ["f16[2,3]", "i32[3]"], "i32[2]"),
    ("a c, c b -> a b; softmax c", "pair", ["f16[2,3]", "f32[3,4]"], "f32[2,4]"),
]


@pytest.mark.parametrize(("sig", "cell", "operands", "result"), TYPES)
def test_types_of_block_operators(sig: str, cell: str, operands: list[str], result: str) -> None:
    if result is None:
        with pytest.raises(ProgramError):
            op_type(sig, cell, types(*operands))
        return
    assert str(op_type(sig, cell, types(*operands))) == result
    arrays = [arange(t) % 2 == 0 if t.dtype == "bool" else arange(t) for t in types(*operands)]
    got = evaluate_op(sig, cell, arrays)
    assert (got.shape, got.dtype) == (
        value_type(result).shape,
        DTYPES[value_type(result).dtype].numpy,
    )


SELECTED = [
    ("slice ((1,2,2),None)", ["f32[5,2]"], "f32[2,2]"),
    ("slice ((4,-2,3),(0,1,1))", ["f32[5,2]"], "f32[3,1]"),
    ("flip (0,1)", ["i32[2,3]"], "i32[2,3]"),
    ("concat 1", ["f16[2,3]", "f16[2,1]", "f16[2,2]"], "f16[2,6]"),
    ("pad ((1,0),(0,2)) -1.0", ["f32[2,2]"], "f32[3,4]"),
    ("split 0 (-1,3)", ["f32[6,2]"], "f32[2,3,2]"),
    ("split 1 (-1,2,2)", ["f32[3,8]"], "f32[3,2,2,2]"),
    ("merge 1 2", ["f32[2,3,4,5]"], "f32[2,12,5]"),
    ("repeat 0 3", ["f32[2,2]"], "f32[6,2]"),
    ("interleave 1", ["f32[2,2]", "f32[2,2]"], "f32[2,4]"),
    ("iota 4 f16", [], "f16[4]"),
    ("full (2,3) 1.5 bf16", [], "bf16[2,3]"),
    ("full () -inf f32", [], "f32[]"),
    ("full () True bool", [], "bool[]"),
]


@pytest.mark.parametrize(("text", "operands", "result"), SELECTED)
def test_selectors_have_the_stated_type_and_pull(
    text: str, operands: list[str], result: str
) -> None:
    """The declared pulls say where every cell of the value comes from."""
    given = types(*operands)
    assert str(sel_type(text, given)) == result
    arrays = [arange(t) + 100 * n for n, t in enumerate(given)]
    got = evaluate_sel(text, arrays)
    assert (got.shape, got.dtype) == (
        value_type(result).shape,
        DTYPES[value_type(result).dtype].numpy,
    )
    name, params = split_text(text)
    declared = SELECTORS[name]
    if declared.pull is None:
        return
    pulls = declared.pull(params, given)
    assert [len(row) for row in pulls] == [t.rank for t in given]
    fill = declared.fill(params) if declared.fill else None
    for at in np.ndindex(*got.shape):
        sources = [_read(array, row, at) for array, row in zip(arrays, pulls, strict=True)]
        assert got[at] == fill or any(got[at] in cells for cells in sources)


def _read(array: Any, row: list[Any], at: tuple[int, ...]) -> list[Any]:
    """The operand's cells that a cell of the value may come from."""
    index: list[Any] = []
    for pull, extent in zip(row, array.shape, strict=True):
        if pull is None:
            index.append(range(extent))
            continue
        place = pull.scale * at[pull.axis] + pull.offset
        if not 0 <= place < extent:
            return []
        index.append([place])
    return [array[i] for i in itertools.product(*index)]


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("slice ((0, 2, 1), None)", "slice ((0,2,1),None)"),
        ("pad ((1,0),) 0", "pad ((1,0),) 0"),
        ("full () nan f32", "full () nan f32"),
    ],
)
def test_texts_of_selectors_become_canonical(given: str, canonical: str) -> None:
    shapes = {"slice": ["f32[3,2]"], "pad": ["f32[3]"], "full": []}
    operands = [input_node("x", t) for t in types(*shapes[given.split()[0]])]
    assert sel_node(given, operands).text == canonical


def test_texts_of_cells_become_canonical_and_nodes_are_shared() -> None:
    x = input_node("x", value_type("f32[3]"))
    assert op_node("i -> i", "cast float16", [x]) is op_node("a -> a", "cast f16", [x])
    assert op_node("a -> a", "exp", [x]) is not op_node("a -> a", "exp", [input_node("y", x.type)])


def test_parameters_survive_their_text() -> None:
    params = (((1, 2), (0, 0)), -float("inf"), "f16", None, 3)
    assert split_text(join_text("name", *params)) == ("name", params)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: op_type("a -> a", "exq", types("f32[2]")),
        "cell 'exq': is not declared; expected one of " + " ".join(sorted(CELLS)),
    ),
    (
        lambda: op_type("a -> a; ++ b [b=2]", "id", types("f32[2]")),
        "monoid '++': is not declared; expected one of " + " ".join(sorted(MONOIDS)),
    ),
    (
        lambda: sel_type("slise 0", types("f32[2]")),
        "selector 'slise': is not declared; expected one of " + " ".join(sorted(SELECTORS)),
    ),
    (
        lambda: op_type("a -> a", "exp", types("i32[2]")),
        "cell 'exp': got i32; expected a floating dtype",
    ),
    (
        lambda: op_type("a -> a", "neg", types("bool[2]")),
        "cell 'neg': got bool; expected a numeric dtype",
    ),
    (
        lambda: op_type("a -> a", "bit_not", types("f16[2]")),
        "cell 'bit_not': got f16; expected an integer dtype",
    ),
    (
        lambda: op_type("a -> a", "not", types("i32[2]")),
        "cell 'not': got i32; expected bool operands",
    ),
    (
        lambda: op_type("a, a, a -> a", "where", types("f32[2]", "f32[2]", "f32[2]")),
        "cell 'where': got f32; expected a bool condition",
    ),
    (
        lambda: op_type("a -> ; + a", "id", types("bool[2]")),
        "reduction '+': got bool; expected a numeric dtype",
    ),
    (
        lambda: op_type("a, a -> a", "exp", types("f32[2]", "f32[2]")),
        "cell 'exp': got 2 operands; expected 1 operands",
    ),
    (
        lambda: op_type("a -> a", "cast f17", types("f32[2]")),
        "dtype 'f17': is not known; expected one of " + " ".join(DTYPES),
    ),
    (
        lambda: op_type("a, a -> a", "add 5", types("f32[2]", "f32[2]")),
        "cell 'add 5': has 1 parameters; expected 0, as it declares",
    ),
    (
        lambda: op_type("a -> a", "cast f16 f32", types("f32[2]")),
        "cell 'cast f16 f32': has 2 parameters; expected 1, as it declares",
    ),
    (
        lambda: op_type("a -> a", "cast", types("f32[2]")),
        "dtype '': is not known; expected one of " + " ".join(DTYPES),
    ),
    (
        lambda: sel_type("slice ((0,1,9),)", types("f32[5]")),
        "selector 'slice ((0,1,9),)' of f32[5]: axis 0 reads 0..8 of extent 5; "
        "expected a range inside the operand",
    ),
    (
        lambda: sel_type("slice ((0,1,0),)", types("f32[5]")),
        "selector 'slice ((0,1,0),)' of f32[5]: axis 0 selects nothing; expected count >= 1",
    ),
    (
        lambda: sel_type("slice 3", types("f32[5]")),
        "selector 'slice 3' of f32[5]: has unusable parameters; expected 'slice (P0,P1,..)'",
    ),
    (
        lambda: sel_type("flip (2,)", types("f32[5]")),
        "selector 'flip (2,)' of f32[5]: axis 2 is outside; expected 0..0",
    ),
    (
        lambda: sel_type("concat 0", types("f32[5,2]", "f32[5,3]")),
        "selector 'concat 0' of f32[5,2], f32[5,3]: operand 1 is f32[5,3]; "
        "expected f32[5,2], any extent on axis 0",
    ),
    (
        lambda: sel_type("interleave 0", types("f32[5]", "f16[5]")),
        "selector 'interleave 0' of f32[5], f16[5]: operand 1 is f16[5]; expected f32[5]",
    ),
    (
        lambda: sel_type("split 0 (-1,2)", types("f32[5]")),
        "selector 'split 0 (-1,2)' of f32[5]: axis 0 of extent 5 is not divisible by 2; "
        "expected a multiple",
    ),
    (
        lambda: sel_type("merge 1 2", types("f32[5,2]")),
        "selector 'merge 1 2' of f32[5,2]: axes 1..2 are outside; expected axes in 0..1",
    ),
    (
        lambda: sel_type("pad ((0,-1),) 0.0", types("f32[5]")),
        "selector 'pad ((0,-1),) 0.0' of f32[5]: has unusable parameters; "
        "expected 'pad ((lo,hi),..) value'",
    ),
    (
        lambda: sel_type("pad ((0,1),) 0.5", types("i32[5]")),
        "constant 0.5: does not fit i32; expected a value of i32",
    ),
    (
        lambda: sel_type("full () 3000000000 i32", ()),
        "constant 3000000000: does not fit i32; expected a value of i32",
    ),
    (
        lambda: sel_type("concat 0", ()),
        "selector 'concat 0' of : got no operand; expected one or more operands",
    ),
    (
        lambda: sel_type("flip (0,)", ()),
        "selector 'flip (0,)': got 0 operands; expected 1 operands",
    ),
]


@pytest.mark.parametrize(
    ("call", "text"), REFUSED, ids=lambda v: None if callable(v) else str(v)[:40]
)
def test_refusals_say_what_is_wrong(call: Callable[[], object], text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        call()
    assert str(caught.value) == text


def test_a_name_is_declared_once() -> None:
    table: Table[Cell] = Table("cell")
    one = Cell("gate", 1, np.negative)
    assert table.add(one) is table.add(one) is table["gate"]
    with pytest.raises(PackError, match="is declared twice; expected one declaration"):
        table.add(Cell("gate", 1, np.abs))


@pytest.mark.parametrize("name", ["", "my gate", "gate(x)", "gate;"])
def test_a_name_that_no_text_can_hold_is_refused(name: str) -> None:
    with pytest.raises(PackError, match="has a name that no text can hold"):
        Table[Cell]("cell").add(Cell(name, 1, np.abs))


def test_a_rule_for_dtypes_that_nobody_knows_is_refused() -> None:
    with pytest.raises(PackError, match="cell 'gate': has result 'floats'; expected one of promo"):
        Table[Cell]("cell").add(Cell("gate", 1, np.abs, "floats"))


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (("f16", "f32"), "f32"), (("f16", "bf16"), "f32"), (("i64", "f16"), "f16"),
        (("bool", "i32"), "i32"), (("f8e4m3", "f8e5m2"), "f32"), (("f8e4m3", "f16"), "f16"),
        (("f64", "i64", "bool"), "f64"),
    ],
)  # fmt: skip
def test_promotion(names: tuple[str, ...], common: str) -> None:
    assert promote(*names) == common
    assert promote(*reversed(names)) == common

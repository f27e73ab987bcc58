"""Every cell of programs as instructions, against its numpy meaning, at extreme values too."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import DispatchError, PackError, ProgramError, SearchError
from axe_eq.kernel.cells import Cell, Constant, apply, arg, evaluate
from axe_eq.pack import installed
from axe_eq.program.node import op_type
from axe_eq.program.ops import CELLS
from axe_eq.program.ops import Cell as OwnCell
from axe_eq.program.terms import Sig, Value, op
from axe_eq.program.traced import elementwise
from axe_eq.program.types import DTYPES, ValueType
from axe_eq.rule.law import Sides
from axe_eq_backends.nki.native import EXPANSIONS, by_power_of_two
from axe_eq_backends.nki.space import Space, Tensor
from axe_eq_backends.nki.target import trn2
from axe_eq_backends.nki.vector import ARITHMETIC, FUNCTIONS
from axe_eq_backends.nki.written import refusal
from tests.unit.nki.levels import run, walk

EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    inf,
    -inf,
    nan,
    1e-4,
    -1e-4,
    3e4,
    -3e4,
    1e-30,
    7.0,
]
ENDLESS = {inf, -inf}
# What is undefined or of another size there: numpy's domain, and one whose result overflows.
OF_ONE = sorted(n for n in {*EXPANSIONS, *FUNCTIONS} if CELLS[n].arity == 1)
OF_TWO = sorted(
    n
    for n in {*EXPANSIONS, *ARITHMETIC}
    if CELLS[n].arity in (2, None) and n not in ("and", "or", "xor")
)


def computed(cell: Cell, dtype: str, out: str, *arrays: Any) -> Any:
    """What a kernel of a cell writes, by its text; plans are the same bit for bit."""
    n = arrays[0].size
    tensors = tuple(Tensor(f"x{i}", dtype, (1,)) for i in range(len(arrays)))
    space = Space((n,), tensors, ((Tensor("y", out, (1,)), cell),))
    kernel, buffers = walk(space, "k", trn2, {"tile": 512, "across": 0})
    given = {f"x{i}": a for i, a in enumerate(arrays)} | {"y": np.zeros(n, DTYPES[out].numpy)}
    _, plans, text = run(kernel, buffers, given)["y"]
    assert plans.tobytes() == text.tobytes()
    return text


def close(found: Any, want: Any, tolerance: float = 2e-5) -> None:
    found, want = found.astype(np.float64), want.astype(np.float64)
    same = (found == want) | (np.isnan(found) & np.isnan(want))
    apart = np.abs(found - want) <= tolerance * np.maximum(1.0, np.abs(want))
    wrong = np.flatnonzero(~(same | apart))
    assert not wrong.size, [(int(i), found[i], want[i]) for i in wrong[:5]]


def out_of(cell: Cell, *arrays: Any) -> tuple[Any, str]:
    with np.errstate(all="ignore"):
        want = np.asarray(evaluate(cell, arrays))
    return want, "bool" if want.dtype == bool else "f32"


@pytest.mark.parametrize("name", OF_ONE)
def test_cells_of_one_float(name: str) -> None:
    edges = [x for x in EDGES if not (name in ("sin", "cos", "tan") and abs(x) > 1e4)]
    ends = [88.7, 89.2, 90.0, 3e38, 1e-40] if name != "tan" else []  # of what exp and 1 / x hold
    edges += [sign * x for x in ends for sign in (1, -1) if name not in ("sin", "cos")]
    x = np.array([*edges, *np.linspace(-9, 9, 130), *np.linspace(-0.01, 0.01, 20)], np.float32)
    if name in ("sin", "cos"):  # many turns, whose product with a part of 2 pi must be exact
        many = [np.linspace(-top, top, 61, dtype=np.float32) for top in (900, 4e4, 4e5)]
        x = np.concatenate([x, *many])
    cell = apply(name, arg(0))
    want, out = out_of(cell, x)
    found = computed(cell, "f32", out, x)
    defined = np.ones(len(x), bool) if out == "bool" else ~np.isnan(want) | np.isnan(x)
    close(
        found[defined],
        want[defined],
        {"sin": 1e-6, "cos": 1e-6}.get(
            name, 1e-4 if name in ("tan", "sinh", "cosh", "exp", "acosh") else 3e-5
        ),
    )


@pytest.mark.parametrize("name", OF_TWO)
def test_cells_of_two_floats(name: str) -> None:
    pairs = [(a, b) for a in EDGES for b in EDGES]
    if name in ("floor_divide", "remainder"):  # of quotients that float32 holds
        pairs = [(a, b) for a, b in pairs if abs(a) < 1e5 and (1e-3 < abs(b) < 1e5 or b in ENDLESS)]
    if name in ("pow", "div"):
        pairs = [(a, b) for a, b in pairs if {abs(a), abs(b)}.isdisjoint({1e-30})]
    if name in ("atan2", "hypot"):  # what is less than a normal number counts as nothing
        pairs += [(1e-40, 0.0), (0.0, -1e-40), (1e-40, 1.0), (-1.0, 1e-40)]
    if name == "hypot":  # a length is NaN here where a side is
        pairs = [(a, b) for a, b in pairs if not {a, b} & ENDLESS or (a == a and b == b)]
    x, y = (np.array(side, np.float32) for side in zip(*pairs, strict=True))
    cell = apply(name, arg(0), arg(1))
    want, out = out_of(cell, x, y)
    found = computed(cell, "f32", out, x, y)
    defined = (
        np.ones(len(x), bool) if out == "bool" else ~np.isnan(want) | np.isnan(x) | np.isnan(y)
    )
    if name == "pow":
        defined &= np.abs(want) < 1e30
    close(found[defined], want[defined], 2e-4 if name == "pow" else 3e-5)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32"])
@pytest.mark.parametrize(
    "name",
    ["add", "sub", "mul", "maximum", "minimum", "bit_and", "bit_or", "bit_xor", "bit_not",
     "neg", "abs", "sign",
     "eq", "ne", "lt", "le", "gt", "ge", "shl", "shr", "remainder", "floor_divide"],
)  # fmt: skip
def test_integers_wrap_as_their_type_does(name: str, dtype: str) -> None:
    kind, ends = DTYPES[dtype].numpy, np.iinfo(DTYPES[dtype].numpy)
    draw = np.random.default_rng(len(name))
    edge = np.array([ends.min, ends.max, 0, 1, ends.max - 1, ends.min + 1], kind)
    x = np.concatenate(
        [np.repeat(edge, 6), draw.integers(ends.min, ends.max, 200, endpoint=True).astype(kind)]
    )
    y = np.concatenate(
        [np.tile(edge, 6), draw.integers(ends.min, ends.max, 200, endpoint=True).astype(kind)]
    )
    if name in ("shl", "shr"):
        y = (y.astype(np.int64) % 7).astype(kind)
    if name in ("remainder", "floor_divide"):
        y = y >> draw.integers(0, 8 * y.itemsize, y.shape).astype(kind)  # of any size
        y = np.where(y == 0, 3, y).astype(kind)
        near = x - x % y + draw.integers(-1, 2, x.shape).astype(kind)  # beside whole multiples
        x, y = np.concatenate([x, near]).astype(kind), np.concatenate([y, y])
    arrays = (x,) if CELLS[name].arity == 1 else (x, y)
    cell = apply(name, *(arg(i) for i in range(len(arrays))))
    with np.errstate(all="ignore"):
        want = np.asarray(evaluate(cell, arrays))
    found = computed(cell, dtype, "bool" if want.dtype == bool else dtype, *arrays)
    wrong = np.flatnonzero(found != want.astype(found.dtype))
    assert not wrong.size, [(x[i], y[i], found[i], want[i]) for i in wrong[:4]]


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32"])
@pytest.mark.parametrize("name", ["remainder", "floor_divide"])
def test_integers_by_powers_of_two_are_bits(name: str, dtype: str) -> None:
    kind, ends = DTYPES[dtype].numpy, np.iinfo(DTYPES[dtype].numpy)
    edge = [ends.min, ends.min + 1, ends.max, 0, 1, 15, 16, 17]
    draw = np.random.default_rng(0).integers(ends.min, ends.max, 200, endpoint=True)
    x = np.array([*edge, *draw], kind)
    for by in (1, 2, 16, 64):
        found = computed(apply(name, arg(0), Constant(by, dtype)), dtype, dtype, x)
        assert (found == evaluate(apply(name, arg(0), Constant(by, dtype)), [x])).all(), by
    assert by_power_of_two(apply(name, arg(0), Constant(6, dtype))) is None
    assert by_power_of_two(apply(name, arg(0), Constant(-2, "i32"))) is None


@pytest.mark.parametrize("kind", ["f32", "i16", "bool"])
def test_the_cells_that_are_refused_are_those_that_no_kernel_has(kind: str) -> None:
    for name in CELLS:
        if name in ("id", "pair", "product", "cast"):
            continue
        dtypes = [kind] * (CELLS[name].arity or 2)
        if name == "where":
            dtypes[0] = "bool"
        given = tuple(ValueType(d, (4,)) for d in dtypes)
        try:
            result = op_type(f"{', '.join('a' for _ in dtypes)} -> a", name, given)
        except ProgramError:
            continue  # of no program
        cell = apply(name, *map(arg, range(len(dtypes))))
        tensors = tuple(Tensor(f"x{n}", d, (1,)) for n, d in enumerate(dtypes))
        space = Space((4,), tensors, ((Tensor("y", result.dtype, (1,)), cell),))
        said = refusal(name, dtypes)
        if said is None:
            walk(space, "k", trn2, {"tile": 512, "across": 0})
            continue
        assert said.startswith(f"cell '{name}' has no instructions of NKI on {kind}: a law that")
        with pytest.raises(DispatchError, match=f"computes '{name}' of"):
            walk(space, "k", trn2, {"tile": 512, "across": 0})


@pytest.mark.usefixtures("own_operators")
def test_laws_lead_around_a_cell_that_has_no_instructions() -> None:
    gaps = axe.Pack("gaps_of_tests")
    gaps.cell(OwnCell("gap_of_tests", 2, lambda x, y: x - y, "float"))

    @gaps.law(source="definition of gap_of_tests")
    def gap_is_difference(s: Sig, x: Value, y: Value) -> Sides:
        """s[gap_of_tests](x, y) = s[sub](x, y)."""
        return op(s, "gap_of_tests", x, y), op(s, "sub", x, y)

    def gap(x: Any, y: Any) -> Any:
        return elementwise("gap_of_tests", x, y)

    used = [*installed().values(), gaps]
    exe = axe.compile(gap, "8:f32", "8:f32", target="trn2", packs=used)
    assert [n.cell for n in exe.kernels[0].nodes if n.cell] == ["sub"]
    with pytest.raises(SearchError, match=r"left out: cell 'gap_of_tests' has no instructions of"):
        axe.compile(gap, "8:f32", "8:f32", target="trn2")
    gaps.spelling("nki", "gap_of_tests", f32="{0} - {1}")
    with pytest.raises(PackError, match=r"(?s)spelling of cell 'gap_of_tests' for 'nki': is read "
                       r"by nobody.*expected a law that says.*test_cells.py"):  # fmt: skip
        axe.compile(gap, "8:f32", "8:f32", target="trn2", packs=used)


@pytest.mark.parametrize(("fn", "specs", "cast"), [
    (lambda x: axe.array.argmax(x, axis=1), ("7x15:f32",), "i64; expected .*astype.x, 'i32'."),
    (lambda x, w: x @ w, ("7x15:f64", "15x3:f64"), "f64; expected .*astype.x, 'f32'."),
])  # fmt: skip
def test_what_no_engine_holds_is_refused_with_the_cast_to_write(
    fn: Any, specs: tuple[str, ...], cast: str
) -> None:
    with pytest.raises(SearchError, match=cast):
        axe.compile(fn, *specs, target="trn2")


@pytest.mark.parametrize(
    "to", ["f16", "bf16", "f8e4m3", "f8e5m2", "i8", "u8", "i16", "i32", "bool"]
)
def test_casts_from_floats(to: str) -> None:
    x = np.array([0.0, 0.4, 0.5, 1.5, 2.5, 2.9, 100.7, 3.0, 7.0, 12.0], np.float32)
    x = np.concatenate([x, -x]) if to not in ("u8",) else x
    found = computed(apply(f"cast {to}", arg(0)), "f32", to, x)
    assert (found == x.astype(DTYPES[to].numpy)).all()


def test_choices_look_away_from_what_they_do_not_take() -> None:
    x = np.array([nan, inf, -inf, 1.0, -1.0, 0.0], np.float32)
    cell = apply("where", apply("gt", arg(0), 0.0), arg(0), Constant(-inf))
    found = computed(cell, "f32", "f32", x)
    assert found.tolist() == [-inf, inf, -inf, 1.0, -inf, -inf]


def test_narrow_floats_round_once() -> None:
    x = np.linspace(-3, 3, 200).astype(ml_dtypes.bfloat16)
    found = computed(apply("mul", apply("exp", arg(0)), arg(0)), "bf16", "bf16", x)
    wide = x.astype(np.float32)
    assert (found == (np.exp(wide) * wide).astype(ml_dtypes.bfloat16)).all()


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, 3.0, -2.0, 0.5, inf, -inf, nan])
@pytest.mark.parametrize("first", [False, True])
def test_powers_of_and_by_numbers(number: float, first: bool) -> None:
    x = np.array([*EDGES, *np.linspace(-3, 3, 13)], np.float32)
    args = (Constant(number, "f32"), arg(0)) if first else (arg(0), Constant(number, "f32"))
    y = np.full_like(x, number)  # numpy takes other ways for numbers
    want, out = out_of(apply("pow", arg(first), arg(not first)), x, y)
    close(computed(apply("pow", *args), "f32", out, x), want, 1e-4)


@pytest.mark.parametrize("asked", [False, True])
def test_choices_that_no_operand_decides(asked: bool) -> None:
    x = np.array([*EDGES, 3.0], np.float32)
    for one, other in ((arg(0), Constant(2.0)), (Constant(2.0), arg(0)),
                       (apply("gt", arg(0), 0.0), arg(0))):  # fmt: skip
        cell = apply("add", apply("where", Constant(asked, "bool"), one, other), 0.0)
        want, _ = out_of(cell, x)
        close(computed(cell, "f32", "f32", x), want)

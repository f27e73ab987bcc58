"""The numpy meaning against an interpreter of plain loops, on random programs.

The interpreter below shares nothing with `axe_eq.program.meaning`: no views, no BLAS, no monoids.
It evaluates one point after another in double precision and is compared operator by operator, on
the operands the meaning computed, so that no rounding difference piles up.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from axe_eq.program import meaning, ops
from axe_eq.program.meaning import evaluate, evaluate_nodes, evaluate_op, evaluate_sel
from axe_eq.program.node import INPUT, OP, SCAN, Node
from axe_eq.program.signature import signature
from axe_eq.program.types import DTYPES, ValueType
from benchmarks.random_programs import (
    JUMPING,
    operator_counts,
    operator_names,
    random_inputs,
    random_program,
)

Array = Any


def folded(fn: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def fold(first: Any, *rest: Any) -> Any:
        for value in rest:
            first = fn(first, value)
        return first

    return fold


def rounded_half_even(x: float) -> float:
    return float(round(x))


def power(x: float, y: float) -> float:
    return math.pow(x, y)


CELLS: dict[str, Callable[..., Any]] = {
    "id": lambda x: x,
    "add": folded(lambda a, b: a + b),
    "sub": lambda a, b: a - b,
    "mul": folded(lambda a, b: a * b),
    "div": lambda a, b: a / b,
    "neg": lambda x: -x,
    "abs": abs,
    "sign": lambda x: (x > 0) - (x < 0),
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": rounded_half_even,
    "maximum": folded(max),
    "minimum": folded(min),
    "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "pow": power,
    "atan2": math.atan2,
    "hypot": math.hypot,
    "copysign": math.copysign,
    "logaddexp": lambda a, b: math.log(math.exp(a) + math.exp(b)),
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": folded(lambda a, b: bool(a and b)),
    "or": folded(lambda a, b: bool(a or b)),
    "xor": lambda a, b: a != b,
    "not": lambda x: not x,
    "bit_and": lambda a, b: a & b,
    "bit_or": lambda a, b: a | b,
    "bit_xor": lambda a, b: a ^ b,
    "bit_not": lambda x: ~x,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "where": lambda c, a, b: a if c else b,
    "signbit": lambda x: math.copysign(1, x) < 0,
    "isnan": lambda x: x != x,
    "isinf": lambda x: abs(x) == math.inf,
    "isfinite": lambda x: abs(x) < math.inf,
}
MATH = """
exp expm1 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf
"""
CELLS |= {name: getattr(math, name) for name in MATH.split()}

REDUCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "+": lambda terms: math.fsum(terms) if isinstance(terms[0], float) else sum(terms),
    "*": math.prod,
    "max": max,
    "min": min,
    "and": all,
    "or": any,
    "argmax": lambda pairs: min(i for v, i in pairs if v == max(p[0] for p in pairs)),
    "argmin": lambda pairs: min(i for v, i in pairs if v == min(p[0] for p in pairs)),
    "softmax": lambda pairs: (
        math.fsum(math.exp(s) * v for s, v in pairs) / math.fsum(math.exp(s) for s, _ in pairs)
    ),
}
SCANS = REDUCTIONS | {
    "recurrence": lambda pairs: functools.reduce(lambda h, p: p[0] * h + p[1], pairs, 0.0)
}


def cell_at(text: str, operands: Sequence[Any], dtypes: Sequence[str]) -> Any:
    """The cell's value at one point, from Python numbers."""
    name, *params = text.split()
    if name == "cast":
        return cast(operands[0], params[0])
    if name == "pair":
        return tuple(operands)
    if name == "nextafter":
        wide = np.float64 if "f64" in dtypes else np.float32
        return float(np.nextafter(wide(operands[0]), wide(operands[1])))
    if "f" in {DTYPES[d].kind for d in dtypes} and name not in ("where",):
        operands = [float(x) for x in operands]
    return CELLS[name](*operands)


def cast(x: Any, name: str) -> Any:
    kind = DTYPES[name].kind
    if kind == "b":
        return bool(x)
    return (
        int(x)
        if kind == "i"
        else np.asarray(float(x)).astype(DTYPES[name].numpy).astype(float).item()
    )


def loops(node: Node, arrays: Sequence[Array]) -> Array:
    """A block operator, one point of its index space after another."""
    sig = signature(node.text)
    extents = sig.extents([a.shape for a in arrays])
    numbers = [
        a.astype(np.float64) if DTYPES[arg.dtype].kind == "f" else a
        for a, arg in zip(arrays, node.args, strict=True)
    ]
    dtypes = [a.dtype for a in node.args]
    if node.cell == "where":
        dtypes = dtypes[1:]
    out = np.empty(extents[: sig.n_out], object)
    for head in np.ndindex(*extents[: sig.n_out]):
        terms = []
        for tail in itertools.product(*(range(extents[d]) for d in sig.reduced)):
            at = head + tail
            values = [
                x[tuple(p.offset + sum(c * at[d] for d, c in p.terms) for p in projection)].item()
                for x, projection in zip(numbers, sig.operands, strict=True)
            ]
            terms.append(cell_at(node.cell, values, dtypes))
        out[head] = REDUCTIONS[sig.monoid](terms) if sig.monoid else terms[0]
    return out


def accumulated(node: Node, arrays: Sequence[Array]) -> Array:
    """A scan, one prefix after another."""
    monoid, _, axis = node.text.partition(" ")
    numbers = [
        a.astype(np.float64) if DTYPES[arg.dtype].kind == "f" else a
        for a, arg in zip(arrays, node.args, strict=True)
    ]
    out = np.empty(node.shape, object)
    for at in np.ndindex(*node.shape):
        before = [(*at[: int(axis)], n, *at[int(axis) + 1 :]) for n in range(at[int(axis)] + 1)]
        terms = [tuple(x[b].item() for x in numbers) for b in before]
        out[at] = SCANS[monoid](terms if len(numbers) > 1 else [t for (t,) in terms])
    return out


def moved(text: str, arrays: Sequence[Array]) -> Array:
    """A selector, by Python lists of cells."""
    name, _, rest = text.partition(" ")
    params: list[Any]
    params = [ast.literal_eval(p) if p not in DTYPES else p for p in rest.split()]
    if name == "iota":
        return np.array(list(range(params[0])))
    if name == "full":
        return np.full(params[0], params[1])
    x = arrays[0]
    if name in ("split", "merge"):
        flat = list(x.reshape(-1))
        axis, what = params
        shape = list(x.shape)
        if name == "merge":
            shape[axis : axis + what] = [math.prod(shape[axis : axis + what])]
        else:
            inner = math.prod(what[1:])
            shape[axis : axis + 1] = [shape[axis] // inner, *what[1:]]
        out = np.empty(len(flat), x.dtype)
        out[:] = flat
        return out.reshape(shape)
    rows = list(np.moveaxis(x, params[0], 0)) if isinstance(params[0], int) else []
    if name == "repeat":
        return np.moveaxis(np.array(rows * params[1]), 0, params[0])
    if name == "concat":
        rows = [row for a in arrays for row in np.moveaxis(a, params[0], 0)]
        return np.moveaxis(np.array(rows), 0, params[0])
    if name == "interleave":
        per = [list(np.moveaxis(a, params[0], 0)) for a in arrays]
        rows = [row for group in zip(*per, strict=True) for row in group]
        return np.moveaxis(np.array(rows), 0, params[0])
    return indexed(name, params, x)


def indexed(name: str, params: list[Any], x: Array) -> Array:
    """Selectors that read each cell at an affine index."""
    if name == "slice":
        parts = [p or (0, 1, e) for p, e in zip(params[0], x.shape, strict=True)]
        shape = [p[2] for p in parts]
    elif name == "flip":
        parts = [(e - 1, -1, e) if d in params[0] else (0, 1, e) for d, e in enumerate(x.shape)]
        shape = list(x.shape)
    else:
        parts = [(-lo, 1, 0) for lo, _ in params[0]]
        shape = [e + lo + hi for e, (lo, hi) in zip(x.shape, params[0], strict=True)]
    out = np.empty(shape, x.dtype)
    for at in np.ndindex(*shape):
        source = tuple(s + step * i for i, (s, step, _) in zip(at, parts, strict=True))
        inside = all(0 <= i < e for i, e in zip(source, x.shape, strict=True))
        out[at] = x[source] if inside else params[1]
    return out


# Relative errors of one operator: a rounding at the output, and f32 arithmetic before it.
TOLERANCE = {"f8e4m3": 0.07, "f8e5m2": 0.13, "f16": 1e-3, "bf16": 8e-3, "f32": 2e-5, "f64": 1e-12}


def check_node(node: Node, values: dict[Node, Array]) -> None:
    arrays = [values[a] for a in node.args]
    if node.kind == SCAN:
        expected = accumulated(node, arrays)
    else:
        expected = loops(node, arrays) if node.kind == OP else moved(node.text, arrays)
    got = values[node]
    assert got.shape == node.shape
    assert got.dtype == DTYPES[node.dtype].numpy
    tolerance = TOLERANCE.get(node.dtype, 0.0)
    scale = max((float(np.max(np.abs(a.astype(float)), initial=0)) for a in arrays), default=0.0)
    # Sums cancel: their error is relative to the size of what is summed.
    slack = tolerance * max(scale, 1.0) ** 2 if node.kind in (OP, SCAN) and tolerance else 0.0
    np.testing.assert_allclose(
        got.astype(np.float64),
        expected.astype(np.float64),
        rtol=tolerance,
        atol=slack,
        err_msg=repr(node),
    )


N_PROGRAMS = 60


def programs(n: int, n_ops: int = 10, **options: Any) -> list[Any]:
    return [random_program(np.random.default_rng(seed), n_ops, **options) for seed in range(n)]


def test_every_operator_means_its_definition(full: bool) -> None:
    for seed, program in enumerate(programs(1200 if full else N_PROGRAMS)):
        inputs = random_inputs(program, np.random.default_rng(seed))
        bound = {spec.name: a for spec, a in zip(program.inputs, inputs, strict=True)}
        values = evaluate_nodes(program.outputs, bound)
        for node in program.nodes():
            if node.kind != INPUT:
                check_node(node, values)
        for got, node in zip(evaluate(program, inputs), program.outputs, strict=True):
            np.testing.assert_array_equal(got, values[node])


def test_random_programs_have_every_operator_and_finite_values() -> None:
    made = programs(250, 12)
    counts = operator_counts(made)
    assert not [name for name in operator_names() if counts[name] < 4]
    for seed, program in enumerate(made):
        inputs = random_inputs(program, np.random.default_rng(1000 + seed))
        for got in evaluate(program, inputs):
            assert np.isfinite(got.astype(np.float64)).all()


def test_random_programs_are_reproducible_and_take_options() -> None:
    one, two = (random_program(np.random.default_rng(7), 15) for _ in range(2))
    assert str(one) == str(two)
    smooth = programs(40, 12, without=JUMPING, windows=False)
    assert not set(operator_counts(smooth)) & JUMPING
    many = operator_counts(programs(20, 12, weights={"softmax": 0.0, "reduce softmax": 60.0}))
    assert many["reduce softmax"] > 40


def test_operators_of_packs_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new cell without an enclosure, a new selector without anything but its sample."""
    gate = ops.Cell("gate", 2, lambda x, y: x / (1 + np.abs(y)), "float")
    head = ops.Selector(
        "head", 1, lambda p, t: ValueType(t[0].dtype, t[0].shape[1:]), lambda p, a: a[0][p[0]],
        sample=lambda rng, types: (int(rng.integers(types[0].shape[0])),),
    )  # fmt: skip
    monkeypatch.setitem(ops.CELLS._by_name, "gate", gate)
    monkeypatch.setitem(ops.SELECTORS._by_name, "head", head)
    made = programs(60, weights={"gate": 12.0, "head": 12.0})
    counts = operator_counts(made)
    assert min(counts["gate"], counts["head"]) > 20
    for seed, program in enumerate(made):
        for got in evaluate(program, random_inputs(program, np.random.default_rng(seed))):
            assert np.isfinite(got.astype(np.float64)).all()


@pytest.mark.parametrize("part", [1, 7, 64])
def test_evaluation_in_parts_changes_nothing(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = programs(25)
    whole = []
    for seed, program in enumerate(made):
        whole.append(evaluate(program, random_inputs(program, np.random.default_rng(seed))))
    monkeypatch.setattr(meaning, "PART", part)
    for seed, program in enumerate(made):
        inputs = random_inputs(program, np.random.default_rng(seed))
        for got, want in zip(evaluate(program, inputs), whole[seed], strict=True):
            np.testing.assert_allclose(
                got.astype(float),
                want.astype(float),
                rtol=2 * TOLERANCE.get(str(got.dtype), 0.13),
                atol=0.02,
            )


def test_values_are_fresh_and_contiguous() -> None:
    x = np.arange(6.0).reshape(2, 3)
    for got in (evaluate_op("a b -> b a", "id", [x]), evaluate_sel("flip (0,)", [x])):
        assert got.flags.c_contiguous
        assert not np.shares_memory(got, x)


def test_programs_are_drawn_with_every_selector_that_users_write() -> None:
    drawn = {"slice", "flip", "concat", "pad", "split", "merge", "repeat", "interleave", "full"}
    assert drawn <= set(operator_names())

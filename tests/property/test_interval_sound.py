"""Refutation never refutes what is equal, and finds most of what is not.

Random programs (`benchmarks.random_programs`) against themselves, against rewrites that are equal
over the reals, and against mutants.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from axe_eq.program.interval import point
from axe_eq.program.meaning import evaluate
from axe_eq.program.node import (
    INPUT,
    OP,
    InputSpec,
    Node,
    Program,
    input_node,
    made_node,
    op_node,
    sel_node,
    topological,
)
from axe_eq.program.ops import CELLS, join_text, split_text
from axe_eq.program.signature import LETTERS, Affine, make, signature
from axe_eq.program.types import DTYPES, ValueType
from axe_eq.prove.certificates.rebuild import rebuild
from axe_eq.prove.programs.enclose import enclose_program, plan, run
from axe_eq.prove.programs.refute import refute
from axe_eq.prove.programs.region import whole
from axe_eq.prove.programs.sample import Sample
from benchmarks.random_programs import JUMPING, random_inputs, random_program

Rng = np.random.Generator

TRIES = 1 << 18  # interval operations per pair of programs: several rounds of the search


class Inapplicable(Exception):
    """The rewrite or mutation does not fit this node."""


def need(condition: bool) -> None:
    if not condition:
        raise Inapplicable


def dims(node: Node) -> str:
    return " ".join(LETTERS[: node.type.rank])


def cellwise(name: str, x: Node, *ys: Node) -> Node:
    """A cell on values of one shape, or on scalars beside them."""
    parts = [dims(x), *(dims(y) for y in ys)]
    return op_node(f"{', '.join(parts)} -> {dims(x)}", name, [x, *ys])


def number(value: float, like: Node) -> Node:
    return sel_node(join_text("full", (), value, like.dtype), [])


def swap_node(program: Program, old: Node, new: Node) -> Program:
    """The program with one value replaced wherever it is used."""
    values: dict[Node, Node] = {old: new}
    for node in topological(program.outputs):
        if node not in values:
            args = [values[a] for a in node.args]
            kept = node.kind == INPUT
            values[node] = node if kept else made_node(node.kind, node.text, node.cell, args)
    return Program(program.inputs, tuple(values[n] for n in program.outputs))


def axis_of(node: Node, rng: Rng, least: int = 1) -> int:
    axes = [d for d, extent in enumerate(node.shape) if extent >= least]
    need(bool(axes))
    return int(rng.choice(axes))


def is_float(node: Node) -> None:
    need(DTYPES[node.dtype].kind == "f")


def cut(node: Node, axis: int, start: int, step: int, count: int) -> Node:
    parts: list[Any] = [None] * node.type.rank
    parts[axis] = (start, step, count)
    return sel_node(join_text("slice", tuple(parts)), [node])


# -- rewrites that are equal over the reals --------------------------------------------------------


def flip_twice(n: Node, rng: Rng) -> Node:
    text = join_text("flip", (axis_of(n, rng),))
    return sel_node(text, [sel_node(text, [n])])


def transpose_twice(n: Node, rng: Rng) -> Node:
    need(n.type.rank > 1)
    letters = list(LETTERS[: n.type.rank])
    moved = " ".join(rng.permutation(letters))
    there = op_node(f"{dims(n)} -> {moved}", "id", [n])
    return op_node(f"{moved} -> {dims(n)}", "id", [there])


def split_and_merge(n: Node, rng: Rng) -> Node:
    axis = axis_of(n, rng, 2)
    factor = next(f for f in range(2, n.shape[axis] + 1) if n.shape[axis] % f == 0)
    split = sel_node(join_text("split", axis, (-1, factor)), [n])
    return sel_node(join_text("merge", axis, 2), [split])


def cut_and_concat(n: Node, rng: Rng) -> Node:
    axis = axis_of(n, rng, 2)
    at = int(rng.integers(1, n.shape[axis]))
    parts = [cut(n, axis, 0, 1, at), cut(n, axis, at, 1, n.shape[axis] - at)]
    return sel_node(join_text("concat", axis), parts)


def deal_and_interleave(n: Node, rng: Rng) -> Node:
    axis = axis_of(n, rng, 2)
    need(n.shape[axis] % 2 == 0)
    half = n.shape[axis] // 2
    parts = [cut(n, axis, 0, 2, half), cut(n, axis, 1, 2, half)]
    return sel_node(join_text("interleave", axis), parts)


def pad_and_cut(n: Node, rng: Rng) -> Node:
    axis = axis_of(n, rng)
    widths = tuple((2, 1) if d == axis else (0, 0) for d in range(n.type.rank))
    padded = sel_node(join_text("pad", widths, 1), [n])
    return cut(padded, axis, 2, 1, n.shape[axis])


def repeat_and_cut(n: Node, rng: Rng) -> Node:
    axis = axis_of(n, rng)
    repeated = sel_node(join_text("repeat", axis, 3), [n])
    return cut(repeated, axis, n.shape[axis], 1, n.shape[axis])


def there_and_back(cells: tuple[str, str], value: float) -> Callable[[Node, Rng], Node]:
    def rewrite(n: Node, rng: Rng) -> Node:
        is_float(n)
        there = cellwise(cells[0], n, number(value, n))
        return cellwise(cells[1], there, number(value, n))

    return rewrite


def tenth_of_tenfold(n: Node, rng: Rng) -> Node:
    """0.1 is not a binary fraction; a constant stands for what it was rounded from."""
    is_float(n)
    return cellwise("mul", cellwise("mul", n, number(0.1, n)), number(10.0, n))


def third_of_threefold(n: Node, rng: Rng) -> Node:
    is_float(n)
    return cellwise("mul", cellwise("mul", n, number(3.0, n)), number(1 / 3, n))


def log_of_exp(n: Node, rng: Rng) -> Node:
    is_float(n)
    return cellwise("log", cellwise("exp", n))


def negated_twice(n: Node, rng: Rng) -> Node:
    need(DTYPES[n.dtype].kind != "b")
    return cellwise("neg", cellwise("neg", n))


def through_wider_and_narrower(n: Node, rng: Rng) -> Node:
    is_float(n)
    other = str(rng.choice(["f8e4m3", "f16", "bf16", "f64"]))
    return cellwise(f"cast {n.dtype}", cellwise(f"cast {other}", n))


def commuted(n: Node, rng: Rng) -> Node:
    need(n.kind == OP and CELLS[split_text(n.cell)[0]].commutative and len(n.args) == 2)
    sig = signature(n.text)
    fixed = dict(sig.fixed)
    swapped = make(sig.operands[::-1], range(sig.n_out), sig.monoid, sig.reduced, fixed)
    return op_node(swapped.text, n.cell, n.args[::-1])


def reduced_in_two(n: Node, rng: Rng) -> Node:
    """Reduce the halves of one reduced dim, then merge them."""
    merge = {"+": "add", "max": "maximum", "min": "minimum", "*": "mul", "and": "and", "or": "or"}
    need(n.kind == OP and signature(n.text).monoid in merge)
    sig = signature(n.text)
    dim = int(rng.choice(list(sig.reduced)))
    uses = [(k, d) for k, op in enumerate(sig.operands) for d, p in enumerate(op) if _has(p, dim)]
    need(bool(uses) and all(sig.operands[k][d].plain == dim for k, d in uses))
    extent = n.args[uses[0][0]].shape[uses[0][1]]
    need(extent >= 2)
    at = int(rng.integers(1, extent))
    halves = []
    for start, count in ((0, at), (at, extent - at)):
        args = list(n.args)
        for k, d in uses:
            args[k] = cut(args[k], d, start, 1, count)
        halves.append(op_node(n.text, n.cell, args))
    return cellwise(merge[sig.monoid], *halves)


def _has(projection: Affine, dim: int) -> bool:
    return any(d == dim for d, _ in projection.terms)


def _definition(name: str) -> Callable[[Callable[..., Node]], Callable[[Node, Rng], Node]]:
    """A rewrite of one cell, elementwise or not, by other cells."""

    def wrap(build: Callable[..., Node]) -> Callable[[Node, Rng], Node]:
        def rewrite(n: Node, rng: Rng) -> Node:
            need(n.kind == OP and split_text(n.cell)[0] == name and not signature(n.text).monoid)
            is_float(n)
            # Broadcast the operands first, in the value's type: then everything is elementwise.
            sig = signature(n.text)
            need(all(p.plain is not None for op in sig.operands for p in op))
            args = [_broadcast(n, k) for k in range(len(n.args))]
            need(len(args) == len(inspect.signature(build).parameters))
            return build(*args)

        return rewrite

    return wrap


def _broadcast(n: Node, k: int) -> Node:
    sig = signature(n.text)
    alone = make([sig.operands[k]], range(sig.n_out), "", (), dict(enumerate(n.shape)))
    return op_node(alone.text, f"cast {n.dtype}", [n.args[k]])


def one_over(x: Node) -> Node:
    return op_node(f", {dims(x)} -> {dims(x)}", "div", [number(1.0, x), x])


DEFINITIONS: dict[str, Callable[..., Node]] = {
    "sub": lambda x, y: cellwise("add", x, cellwise("neg", y)),
    "div": lambda x, y: cellwise("mul", x, one_over(y)),
    "maximum": lambda x, y: cellwise(
        "neg", cellwise("minimum", cellwise("neg", y), cellwise("neg", x))
    ),
    "exp": lambda x: one_over(cellwise("exp", cellwise("neg", x))),
    "sigmoid": lambda x: one_over(
        cellwise("add", cellwise("exp", cellwise("neg", x)), number(1.0, x))
    ),
    "tanh": lambda x: cellwise(
        "sub",
        cellwise("mul", cellwise("sigmoid", cellwise("mul", x, number(2.0, x))), number(2.0, x)),
        number(1.0, x),
    ),
    "rsqrt": lambda x: cellwise("sqrt", one_over(x)),
    "sqrt": lambda x: cellwise("pow", x, number(0.5, x)),
    "expm1": lambda x: cellwise("sub", cellwise("exp", x), number(1.0, x)),
    "sinh": lambda x: cellwise(
        "mul",
        cellwise("sub", cellwise("exp", x), cellwise("exp", cellwise("neg", x))),
        number(0.5, x),
    ),
    "hypot": lambda x, y: cellwise(
        "sqrt", cellwise("add", cellwise("mul", x, x), cellwise("mul", y, y))
    ),
}  # fmt: skip
MOVES = (
    flip_twice, transpose_twice, split_and_merge, cut_and_concat, deal_and_interleave, pad_and_cut,
    repeat_and_cut, commuted,
)  # fmt: skip
REWRITES: dict[str, Callable[[Node, Rng], Node]] = {
    **{f.__name__: f for f in (
        *MOVES, tenth_of_tenfold, third_of_threefold, log_of_exp, negated_twice,
        through_wider_and_narrower, reduced_in_two,
    )},
    "add_and_sub": there_and_back(("add", "sub"), 0.3),
    "div_and_mul": there_and_back(("div", "mul"), 3.0),
    **{f"define_{name}": _definition(name)(build) for name, build in DEFINITIONS.items()},
}  # fmt: skip


# -- mutations -------------------------------------------------------------------------------------

SWAPPED = {
    "add": "sub", "sub": "add", "mul": "add", "div": "mul", "maximum": "minimum", "lt": "le",
    "minimum": "maximum", "exp": "expm1", "floor": "ceil", "sin": "cos", "and": "or", "or": "and",
    "tanh": "sigmoid", "sigmoid": "tanh", "neg": "abs", "abs": "neg", "eq": "ne", "log": "log2",
}  # fmt: skip


def other_cell(n: Node, rng: Rng) -> Node:
    need(n.kind == OP and n.cell in SWAPPED)
    arity = CELLS[SWAPPED[n.cell]].arity
    need(arity is None or arity == len(n.args))
    return op_node(n.text, SWAPPED[n.cell], n.args)


def other_monoid(n: Node, rng: Rng) -> Node:
    swapped = {"+": "max", "max": "min", "min": "max", "and": "or", "or": "and"}
    need(n.kind == OP and signature(n.text).monoid in swapped)
    sig = signature(n.text)
    args = (sig.operands, range(sig.n_out), swapped[sig.monoid], sig.reduced, dict(sig.fixed))
    return op_node(make(*args).text, n.cell, n.args)


def flipped(n: Node, rng: Rng) -> Node:
    return sel_node(join_text("flip", (axis_of(n, rng, 2),)), [n])


def rolled(n: Node, rng: Rng) -> Node:
    axis = axis_of(n, rng, 2)
    parts = [cut(n, axis, 1, 1, n.shape[axis] - 1), cut(n, axis, 0, 1, 1)]
    return sel_node(join_text("concat", axis), parts)


def transposed(n: Node, rng: Rng) -> Node:
    need(n.type.rank == 2 and n.shape[0] == n.shape[1] > 1)
    return op_node("a b -> b a", "id", [n])


def a_little_larger(n: Node, rng: Rng) -> Node:
    is_float(n)
    return cellwise("mul", n, number(1.01, n))


def shifted(n: Node, rng: Rng) -> Node:
    need(DTYPES[n.dtype].kind != "b")
    return cellwise("add", n, number(1, n))


MUTATIONS = {
    f.__name__: f
    for f in (other_cell, other_monoid, flipped, rolled, transposed, a_little_larger, shifted)
}


def changed(
    program: Program,
    rng: Rng,
    changes: Mapping[str, Callable[[Node, Rng], Node]],
    counts: Counter[str],
) -> Program | None:
    """The program with one random change at a random node; None where none applies."""
    nodes = program.nodes()
    for name in map(str, rng.permutation(sorted(changes))):
        for at in rng.permutation(len(nodes)):
            try:
                new = changes[name](nodes[at], rng)
            except Inapplicable:
                continue
            assert new.type == nodes[at].type, name
            counts[name] += 1
            return swap_node(program, nodes[at], new)
    return None


# -- properties ------------------------------------------------------------------------------------


def programs(seed: int, n: int, **options: Any) -> list[Program]:
    return [random_program(np.random.default_rng([seed, k]), 7, **options) for k in range(n)]


def as_real(program: Program) -> Program:
    """The same function with every float in double precision."""

    def real(name: str) -> str:
        return "f64" if DTYPES[name].kind == "f" else name

    values: dict[Node, Node] = {}
    for node in program.nodes():
        args = [values[a] for a in node.args]
        name, given = split_text(node.cell if node.kind == OP else node.text)
        params = [real(p) if isinstance(p, str) and p in DTYPES else p for p in given]
        if node.kind == INPUT:
            values[node] = input_node(node.text, ValueType(real(node.dtype), node.shape))
        elif node.kind == OP:
            values[node] = op_node(node.text, join_text(name, *params), args)
        else:
            values[node] = made_node(node.kind, join_text(name, *params), "", args)
    inputs = tuple(InputSpec(values.get(i.node, i.node)) for i in program.inputs)
    return Program(inputs, tuple(values[n] for n in program.outputs))


def test_enclosures_hold_the_meaning_in_double_precision(full: bool) -> None:
    n_known = n_values = 0
    for seed, program in enumerate(programs(0, 3000 if full else 60, without=JUMPING)):
        program = as_real(program)
        inputs = random_inputs(program, np.random.default_rng(seed))
        found = enclose_program(program, inputs)
        with np.errstate(all="ignore"):
            exact = evaluate(program, inputs)
        for x, value, node in zip(found, exact, program.outputs, strict=True):
            wanted = value.astype(np.float64)
            assert x.shape == node.shape
            known = np.isfinite(x.low) & np.isfinite(x.high)
            slack = 1e-7 * (1 + np.abs(wanted))
            assert ((x.low - slack <= wanted) & (wanted <= x.high + slack))[known].all()
            width = (x.high - x.low)[known]
            assert np.median(width / (1 + np.abs(wanted[known]))) < 1e-3 if width.size else True
            n_known, n_values = n_known + int(known.sum()), n_values + known.size
    print(f"{n_known} of {n_values} values enclosed")
    assert n_known > 0.9 * n_values


def test_parts_have_the_enclosures_of_the_whole(full: bool) -> None:
    for seed, program in enumerate(programs(1, 3000 if full else 60)):
        rng = np.random.default_rng(seed)
        positions = {spec.node: n for n, spec in enumerate(program.inputs)}

        def given(node: Node, region: Any, at: dict[Node, int] = positions) -> Any:
            return point(Sample("dense", 3).values(at[node], node.type, region))

        complete = run(plan(program.outputs, [whole(n.shape) for n in program.outputs]), given)
        wanted = [
            tuple(
                np.flatnonzero(rng.integers(0, 2, e) | (np.arange(e) == rng.integers(e)))
                for e in n.shape
            )
            for n in program.outputs
        ]
        for part, all_of, region in zip(
            run(plan(program.outputs, wanted), given), complete, wanted, strict=True
        ):
            for ours, theirs in zip(part, all_of, strict=True):
                np.testing.assert_allclose(ours, theirs[np.ix_(*region)], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("numerics", ["real", "exact"])
def test_a_program_is_never_refuted_against_itself(numerics: str, full: bool) -> None:
    for program in programs(2, 400 if full else 8):
        assert refute(program, program, numerics=numerics, budget=TRIES) is None
        renamed = {i.node: input_node(f"other {i.name}", i.node.type) for i in program.inputs}
        outputs = rebuild(program.outputs, renamed.__getitem__)
        other = Program(tuple(InputSpec(n) for n in renamed.values()), tuple(outputs))
        assert refute(program, other, numerics=numerics, budget=TRIES) is None


@pytest.mark.parametrize("name", [f.__name__ for f in MOVES])
def test_moves_are_never_refuted_bit_for_bit(name: str, full: bool) -> None:
    counts: Counter[str] = Counter()
    for seed, program in enumerate(programs(5, 400 if full else 12)):
        other = changed(program, np.random.default_rng(seed), {name: REWRITES[name]}, counts)
        if other is not None:
            assert refute(program, other, numerics="exact", budget=TRIES) is None, seed
    assert counts.total() > 3


def test_rewrites_that_are_equal_over_the_reals_are_never_refuted(full: bool) -> None:
    counts: Counter[str] = Counter()
    often = {name: 4.0 for name in DEFINITIONS} | {f"reduce {m}": 6.0 for m in ("+", "max", "min")}
    for seed, program in enumerate(programs(6, 4000 if full else 100, weights=often)):
        rng = np.random.default_rng(seed)
        other: Program | None = program
        for _ in range(int(rng.integers(1, 4))):
            other = (other and changed(other, rng, REWRITES, counts)) or other
        assert other is not None
        verdict = refute(program, other, budget=TRIES)
        assert verdict is None, f"{seed} {verdict}\n{program}\n{other}"
    print(dict(counts.most_common()))
    assert set(counts) == set(REWRITES)


def assert_tells_apart(a: Program, b: Program, found: Any) -> None:
    """The counterexample's bounds are disjoint and hold an evaluation in double precision."""
    assert found.bounds_a[1] < found.bounds_b[0] or found.bounds_b[1] < found.bounds_a[0]
    for program, (low, high) in ((a, found.bounds_a), (b, found.bounds_b)):
        real = as_real(program)
        inputs = [
            x.astype(DTYPES[i.node.dtype].numpy)
            for x, i in zip(found.inputs, real.inputs, strict=True)
        ]
        with np.errstate(all="ignore"):
            value = float(evaluate(real, inputs)[found.output][found.index])
        slack = 1e-7 * (1 + abs(value))
        assert low - slack <= value <= high + slack


def differ_observably(a: Program, b: Program, rng: Rng) -> bool:
    """Some output differs by more than rounding for random inputs, in double precision."""
    inputs = random_inputs(as_real(a), rng)
    with np.errstate(all="ignore"):
        values = zip(evaluate(as_real(a), inputs), evaluate(as_real(b), inputs), strict=True)
    return not all(np.allclose(x * 1.0, y * 1.0, 1e-6, 1e-9, equal_nan=True) for x, y in values)


def test_mutants_are_refuted(full: bool) -> None:
    made: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    for seed, program in enumerate(programs(4, 3000 if full else 60, without=("nextafter",))):
        rng = np.random.default_rng(seed)
        counts: Counter[str] = Counter()
        mutant = changed(program, rng, MUTATIONS, counts)
        if mutant is None:
            continue
        verdict = refute(program, mutant, budget=TRIES)
        if verdict is not None:
            caught += counts
            assert_tells_apart(program, mutant, verdict.counterexample)
        if verdict is not None or differ_observably(program, mutant, rng):
            made += counts
    for name in sorted(made):
        print(f"{name}: {caught[name]} of {made[name]} refuted")
    print(f"mutants that differ: {made.total()}, refuted: {caught.total()}")
    assert caught.total() >= 0.9 * made.total()

"""Random programs for property tests and campaigns: every operator, small shapes, finite values.

Operators come from the tables, those of packs included; nothing here knows one by name. Every value
carries bounds that hold for all inputs `random_inputs` draws; an operator that could leave its
domain or the range of its dtype gets a guarded operand (``abs(x) + 0.5`` under a division) or is
not made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from axe_eq.errors import ProgramError
from axe_eq.program.gathers import gather_text
from axe_eq.program.node import (
    INPUT,
    OP,
    SCAN,
    InputSpec,
    Node,
    Program,
    input_node,
    op_node,
    scan_node,
    sel_node,
)
from axe_eq.program.ops import CELLS, MONOIDS, SELECTORS, Cell, Monoid, join_text, split_text
from axe_eq.program.signature import signature
from axe_eq.program.types import DTYPES, Array, ValueType
from benchmarks.random_bounds import Bounds, Refused, cell_bounds, reduced_bounds, scanned_bounds
from benchmarks.random_signatures import Shape, random_space

MAX_SIZE = 256  # elements of one value or of one index space
_LIMITS = {"f8e4m3": 200.0, "f8e5m2": 1e3, "f16": 1e3, "bf16": 1e4, "f32": 1e4, "f64": 1e4}
_INT_LIMIT = 1e6
_INPUTS: dict[str, Bounds] = {"f": (-2.0, 2.0), "i": (-3.0, 3.0), "b": (0.0, 1.0), "u8": (0.0, 3.0)}
_DTYPE_WEIGHTS = {
    "f32": 8, "f16": 5, "bf16": 3, "f64": 3, "i32": 3, "i64": 2, "bool": 2, "f8e4m3": 1,
    "f8e5m2": 1, "i8": 1, "u8": 1, "i16": 1,
}  # fmt: skip
_FREE = (-math.inf, math.inf)
_KINDS = {"number": "fi", "float": "f", "integer": "i", "logical": "b"}

# Cells and reductions whose value jumps: a rounding of an operand may change it by much.
JUMPING = frozenset(
    [name for name in CELLS if CELLS[name].jumps]
    + [name for name in MONOIDS if MONOIDS[name].result == "index"]
)


@dataclass(frozen=True)
class _Value:
    node: Node
    bounds: Bounds

    @property
    def kind(self) -> str:
        return DTYPES[self.node.dtype].kind


class _Maker:
    """A program under construction."""

    def __init__(
        self, rng: np.random.Generator, max_inputs: int, windows: bool, without: Collection[str]
    ) -> None:
        self.rng, self.max_inputs, self.windows, self.without = rng, max_inputs, windows, without
        self.inputs: list[_Value] = []
        self.values: list[_Value] = []
        self.read: set[Node] = set()
        self.known: set[Node] = set()

    # -- values

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choose(self, options: Sequence[int]) -> int:
        return options[int(self.rng.integers(len(options)))]

    def dtype(self, kinds: str = "fib") -> str:
        names = [n for n in _DTYPE_WEIGHTS if DTYPES[n].kind in kinds]
        weights = np.array([_DTYPE_WEIGHTS[n] for n in names], dtype=float)
        return names[int(self.rng.choice(len(names), p=weights / weights.sum()))]

    def shape(self) -> Shape:
        rank = int(self.rng.choice(5, p=[0.06, 0.2, 0.4, 0.24, 0.1]))
        extents = self.rng.choice([1, 2, 3, 4, 6], rank, p=[0.15, 0.25, 0.25, 0.2, 0.15])
        return tuple(map(int, extents))

    def input(self, kinds: str = "fib") -> _Value:
        name = self.dtype(kinds)
        node = input_node(f"x{len(self.inputs)}", ValueType(name, self.shape()))
        value = _Value(node, _INPUTS.get(name) or _INPUTS[DTYPES[name].kind])
        self.inputs.append(value)
        self.values.append(value)
        return value

    def scalar(self, kind: str) -> _Value:
        name = self.dtype(kind)
        value = {"f": self.choose([1, 2, 3]) / 2, "i": self.choose([1, 2, 3]), "b": True}[kind]
        return self.keep(sel_node(join_text("full", (), value, name), []), (value, value))

    def pick(self, kinds: str = "fib") -> _Value:
        """A value of these kinds: a recent one, a new input, or a cast."""
        found = [v for v in self.values if v.kind in kinds]
        if len(self.inputs) < self.max_inputs and (not found or self.chance(0.15)):
            return self.input(kinds)
        if not found:
            any_value = self.values[self.choose(range(len(self.values)))]
            return self.cell(f"cast {self.dtype(kinds)}", any_value)
        if self.chance(0.05):
            return self.scalar(found[0].kind)
        # Recent values nobody reads yet are likelier: programs are deep and little is left over.
        unread = [v for v in found if v.node not in self.read]
        pool = unread if unread and self.chance(0.7) else found
        return pool[max(len(pool) - int(self.rng.geometric(0.3)), 0)]

    def keep(self, node: Node, bounds: Bounds) -> _Value:
        """The value with its bounds widened by its rounding, unless it could leave its range."""
        kind = DTYPES[node.dtype].kind
        low, high = bounds
        if kind == "f":
            info = ml_dtypes.finfo(DTYPES[node.dtype].numpy)  # type: ignore[no-untyped-call]
            slack = 1e-3 + float(info.eps) * max(abs(low), abs(high))
            low, high = low - slack, high + slack
        limit = _LIMITS.get(node.dtype, _INT_LIMIT)
        if not max(abs(low), abs(high)) <= limit or node.type.size > MAX_SIZE:
            raise Refused
        if kind == "i" and not _holds(node.dtype, bounds):
            raise Refused
        if split_text(node.cell or node.text)[0] in self.without:
            raise Refused
        self.read.update(node.args)
        value = _Value(node, (low, high))
        if node not in self.known:
            self.known.add(node)
            self.values.append(value)
        return value

    # -- block operators

    def cell(self, text: str, *operands: _Value, monoid: str = "") -> _Value:
        """Apply a cell in a random index space; a monoid reduces some of its dims."""
        shapes = [v.node.shape for v in operands]
        space = random_space(self.rng, shapes, reduce=bool(monoid), windows=self.windows)
        if space.size() > MAX_SIZE * 4:
            raise Refused
        sig = space.signature(monoid)
        extents = sig.extents(shapes)
        count = math.prod(extents[d] for d in sig.reduced)
        return self.made(sig.text, text, operands, monoid, count)

    def made(
        self, sig: str, text: str, operands: Sequence[_Value], monoid: str = "", count: int = 1
    ) -> _Value:
        """A block operator; `count` is the number of cell values reduced to one."""
        node = op_node(sig, text, [v.node for v in operands])
        whole = all(v.kind in "ib" for v in operands)
        bounds = cell_bounds(text, [v.bounds for v in operands], whole)
        return self.keep(node, reduced_bounds(monoid, bounds, count))

    def any_cell(self, name: str, monoid: str = "", kinds: str = "fib") -> _Value:
        """A cell on operands that fit its dtypes and its domain."""
        declared = CELLS[name]
        arity = declared.arity or int(self.rng.choice([1, 2, 2, 2, 3]))
        kinds = _KINDS.get(declared.result, kinds)
        if declared.result == "number":
            kinds = "fi"[self.choose([0, 1])]
        operands = [self.pick(kinds) for _ in range(arity)]
        if declared.result == "last":
            operands[0] = self.pick("b")
        domain = declared.whole_domain if kinds == "i" else declared.domain
        for n, bounds in enumerate(domain):
            operands[n] = self.inside(operands[n], bounds)
        text = join_text(name, self.dtype()) if declared.result == "param" else name
        return self.cell(text, *operands, monoid=monoid)

    def inside(self, value: _Value, domain: Bounds) -> _Value:
        """The value, or a function of it that stays in the domain."""
        (low, high), (least, most) = value.bounds, domain
        if least <= low and high <= most:
            return value
        if value.kind == "i":
            rest = self.plain("remainder", value, 4)
            return self.plain("add", rest, 1) if least == 1 else rest
        if value.kind == "b":
            raise Refused
        if least > 0:
            size = self.plain("abs", value) if most == math.inf else self.plain("sigmoid", value)
            return self.plain("add", size, least + 0.25)
        return self.plain("mul", self.plain("tanh", value), 0.75 * min(-least, most))

    def plain(self, name: str, value: _Value, number: float | None = None) -> _Value:
        """A cell on a value and maybe a number, dims as they are."""
        dims = " ".join("abcdefgh"[: value.node.type.rank])
        operands = [value]
        if number is not None:
            text = join_text("full", (), number, value.node.dtype)
            operands.append(_Value(sel_node(text, []), (number, number)))
        sig = f"{dims}{', ' if number is not None else ''} -> {dims}"
        return self.made(sig, name, operands)

    def reduction(self, name: str) -> _Value:
        """A reduction of an operand, of a product, of any cell, or of a structured pair."""
        monoid = MONOIDS[name]
        if monoid.n_values > 1:
            return self.structured(monoid)
        cells = _single()
        if monoid.result == "logical":
            true = [c for c in cells if c.result in ("bool", "logical")]
            return self.any_cell(
                self.one_of(_moves(cells) if self.chance(0.5) else true), name, "b"
            )
        products = [c for c in cells if c.product]
        pool = self.choose([0, 0, 1, 1, 2])
        return self.any_cell(self.one_of([_moves(cells), products, cells][pool]), name)

    def one_of(self, cells: Sequence[Cell]) -> str:
        return cells[self.choose(range(len(cells)))].name

    def structured(self, monoid: Monoid) -> _Value:
        """A reduction of several values: scores and what they weigh, or values and positions."""
        cell = self.one_of([c for c in CELLS.values() if c.n_values == monoid.n_values])
        if monoid.result != "index":
            operands = [self.pick("f") for _ in range(monoid.n_values)]
            return self.cell(cell, *operands, monoid=monoid.name)
        values = self.pick("fi")
        if not values.node.shape:
            raise Refused
        axis = self.choose(range(values.node.type.rank))
        extent = values.node.shape[axis]
        index = self.keep(sel_node(f"iota {extent} i64", []), (0, extent - 1))
        dims = list("abcdefgh"[: values.node.type.rank])
        kept = dims[:axis] + dims[axis + 1 :]
        sig = f"{' '.join(dims)}, {dims[axis]} -> {' '.join(kept)}; {monoid.name} {dims[axis]}"
        return self.made(sig, cell, [values, index], monoid.name, extent)

    # -- scans

    def scan(self, name: str) -> _Value:
        """A scan of a value, of what it is and its positions, or of two values of one shape."""
        monoid = MONOIDS[name]
        kinds = _KINDS.get(monoid.result, "fi")
        value = self.pick("f" if monoid.n_values > 1 else kinds)
        shape = value.node.shape
        if not shape:
            raise Refused
        axis = self.choose(range(len(shape)))
        operands = [value]
        if monoid.result == "index":
            index = sel_node(f"iota {shape[axis]} i64", [])
            dims = "abcdefgh"[: len(shape)]
            fixed = " ".join(f"{d}={e}" for d, e in zip(dims, shape, strict=True))
            wide = op_node(f"{dims[axis]} -> {' '.join(dims)} [{fixed}]", "id", [index])
            operands.append(_Value(wide, (0, shape[axis] - 1)))
        elif monoid.n_values > 1:
            same = [v for v in self.values if v.node.shape == shape and v.kind == "f"]
            operands += [same[self.choose(range(len(same)))] for _ in range(monoid.n_values - 1)]
        node = scan_node(join_text(name, axis), [v.node for v in operands])
        return self.keep(node, scanned_bounds(name, [v.bounds for v in operands], shape[axis]))

    # -- selectors

    def selector(self, name: str) -> _Value:
        """A selector with parameters as it samples them."""
        declared = SELECTORS[name]
        if declared.look is not None:
            return self.gather()
        if declared.sample is None:
            raise Refused
        operands: list[_Value] = []
        if declared.arity != 0:
            operands = [self.pick()]
            if not operands[0].node.shape:
                raise Refused
        if declared.arity is None:
            same = [v for v in self.values if v.node.type == operands[0].node.type]
            operands += [same[self.choose(range(len(same)))] for _ in range(self.choose([0, 1, 2]))]
        params = declared.sample(self.rng, [v.node.type for v in operands])
        node = sel_node(join_text(name, *params), [v.node for v in operands])
        ends = [b for v in operands for b in v.bounds]
        fill = declared.fill(params) if declared.fill else None
        ends += [] if fill is None else [float(fill)]
        if not ends:
            ends = declared.run(params, []).astype(float).reshape(-1).tolist()
        return self.keep(node, (min(ends), max(ends)))

    def gather(self) -> _Value:
        """Rows of a value where integers of at most one dim say, cut to its indices."""
        source = self.pick()
        found = [v for v in self.values if v.kind == "i" and v.node.type.rank < 2]
        if not source.node.shape or not found:
            raise Refused
        axis, by = self.choose(range(source.node.type.rank)), found[self.choose(range(len(found)))]
        inside = self.plain("remainder", by, source.node.shape[axis])
        text = gather_text(axis, (axis,) * by.node.type.rank)
        return self.keep(sel_node(text, [source.node, inside.node]), source.bounds)


def _holds(name: str, bounds: Bounds) -> bool:
    """Whether an integer type has all numbers within these bounds."""
    ends = np.iinfo(DTYPES[name].numpy)
    return bool(ends.min <= bounds[0] and bounds[1] <= ends.max)


def _moves(cells: Sequence[Cell]) -> list[Cell]:
    return [c for c in cells if c.flops == 0]


# -- programs -------------------------------------------------------------------------------------


def _single() -> list[Cell]:
    """Cells of one value, but those that no program says and laws alone make."""
    return [c for c in CELLS.values() if c.n_values == 1 and c.result != "wide"]


def operator_names(without: Collection[str] = ()) -> list[str]:
    """Every operator that random programs have: cells, monoids ("reduce +") and selectors."""
    names = (
        [c.name for c in _single()]
        + [f"reduce {m}" for m in MONOIDS if MONOIDS[m].commutative]
        + [n for n in SELECTORS if (s := SELECTORS[n]).look or (s.sample and not s.cut)]
        + [f"scan {m}" for m in MONOIDS]
    )
    return [n for n in names if n.removeprefix("reduce ").removeprefix("scan ") not in without]


def operator_counts(programs: Iterable[Program]) -> Counter[str]:
    """How often every operator occurs, by the names of `operator_names`."""
    counts: Counter[str] = Counter()
    for program in programs:
        for node in program.nodes():
            if node.kind == INPUT:
                continue
            if node.kind == SCAN:
                counts[f"scan {split_text(node.text)[0]}"] += 1
                continue
            counts[split_text(node.cell if node.kind == OP else node.text)[0]] += 1
            if node.kind == OP and signature(node.text).monoid:
                counts[f"reduce {signature(node.text).monoid}"] += 1
    return counts


def random_program(
    rng: np.random.Generator,
    n_ops: int,
    *,
    max_inputs: int = 4,
    max_outputs: int = 3,
    windows: bool = True,
    without: Collection[str] = (),
    weights: dict[str, float] | None = None,
) -> Program:
    """A random well-typed program with finite values for the inputs `random_inputs` draws.

    Args:
        rng: the source of randomness; equal states give equal programs.
        n_ops: operators to make; a few more may be needed to keep operands inside domains.
        max_inputs: largest number of inputs.
        max_outputs: largest number of outputs.
        windows: whether signatures may have windows and strides.
        without: names of cells, monoids and selectors to leave out (`JUMPING`, say).
        weights: relative frequency by name of `operator_names`; 1 where not given.
    """
    names = operator_names(without)
    shares = np.array([(weights or {}).get(n, 1.0) for n in names])
    while True:
        maker = _Maker(rng, max_inputs, windows, without)
        maker.input("f")
        made = 0
        while made < n_ops:
            made += _try(maker, names[int(rng.choice(len(names), p=shares / shares.sum()))])
        program = _finished(maker, max_outputs)
        if program.inputs:
            return program


def _try(maker: _Maker, name: str) -> int:
    before = len(maker.values)
    try:
        if name.startswith("reduce "):
            maker.reduction(name.removeprefix("reduce "))
        elif name.startswith("scan "):
            maker.scan(name.removeprefix("scan "))
        elif name in CELLS:
            maker.any_cell(name)
        else:
            maker.selector(name)
    except (Refused, ProgramError):
        return 0
    return int(len(maker.values) > before)


def _finished(maker: _Maker, max_outputs: int) -> Program:
    made = [v.node for v in maker.values if v.node.kind != INPUT]
    left = [node for node in made if node not in maker.read]
    n_outputs = int(maker.rng.integers(1, max_outputs + 1))
    outputs = list(dict.fromkeys(made[-1:] + left[::-1]))[:n_outputs]
    program = Program((), tuple(outputs or [maker.values[0].node]))
    reached = set(program.nodes())
    inputs = tuple(InputSpec(v.node) for v in maker.inputs if v.node in reached)
    nesting = ["tuple", list(range(len(program.outputs)))]
    return Program(inputs, program.outputs, nesting, arguments=["tuple", list(range(len(inputs)))])


def random_inputs(program: Program, rng: np.random.Generator) -> list[Array]:
    """Arrays for the inputs of a random program: floats in -2..2, integers in -3..3, bools."""
    return [_random_array(spec.node.type, rng) for spec in program.inputs]


def _random_array(type_: ValueType, rng: np.random.Generator) -> Array:
    of = DTYPES[type_.dtype]
    low, high = _INPUTS.get(type_.dtype) or _INPUTS[of.kind]
    if of.kind == "f":
        return np.asarray(rng.uniform(low, high, type_.shape)).astype(of.numpy)
    whole = rng.integers(int(low), int(high), type_.shape, endpoint=True)
    return np.asarray(whole).astype(of.numpy)

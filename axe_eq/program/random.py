"""Random programs for property tests and campaigns: every operator, small shapes, finite values.

Every value carries bounds that hold for all inputs `random_inputs` draws, from the enclosures of
the cells; an operator that could leave its domain or the range of its dtype gets a guarded operand
(``abs(x) + 1`` under a division) or is not made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from axe_eq.errors import ProgramError
from axe_eq.program.interval import ENCLOSE, Interval
from axe_eq.program.node import INPUT, OP, InputSpec, Node, Program, input_node, op_node, sel_node
from axe_eq.program.ops import CELLS, MONOIDS, SELECTORS, join_text, split_text
from axe_eq.program.random_signature import Shape, Space, random_space
from axe_eq.program.signature import signature
from axe_eq.program.types import DTYPES, Array, ValueType

Bounds = tuple[float, float]

MAX_SIZE = 256  # elements of one value or of one index space
_LIMITS = {"f8e4m3": 200.0, "f8e5m2": 1e3, "f16": 1e3, "bf16": 1e4, "f32": 1e4, "f64": 1e4}
_INT_LIMIT = 1e6
_INPUTS: dict[str, Bounds] = {"f": (-2.0, 2.0), "i": (-3.0, 3.0), "b": (0.0, 1.0)}
_DTYPE_WEIGHTS = {
    "f32": 8, "f16": 5, "bf16": 3, "f64": 3, "i32": 3, "i64": 2, "bool": 2, "f8e4m3": 1,
    "f8e5m2": 1,
}  # fmt: skip

# Where cells are defined and tame, per operand; the margins are wider than any rounding.
_FREE = (-math.inf, math.inf)
_POSITIVE = (0.25, math.inf)
_INSIDE = (-0.8, 0.8)
_DOMAINS: dict[str, tuple[Bounds, ...]] = {
    "log": (_POSITIVE,), "log2": (_POSITIVE,), "log10": (_POSITIVE,), "sqrt": (_POSITIVE,),
    "rsqrt": (_POSITIVE,), "log1p": (_INSIDE,), "acos": (_INSIDE,), "asin": (_INSIDE,),
    "atanh": (_INSIDE,), "acosh": ((1.5, math.inf),), "tan": (_INSIDE,), "exp": ((-9.0, 4.0),),
    "expm1": ((-9.0, 4.0),), "sinh": ((-4.0, 4.0),), "cosh": ((-4.0, 4.0),),
    "div": (_FREE, _POSITIVE), "pow": ((0.5, 4.0), (-2.0, 2.0)),
    "floor_divide": (_FREE, _POSITIVE), "remainder": (_FREE, _POSITIVE),
    "atan2": (_FREE, _POSITIVE),
}  # fmt: skip
_INT_DOMAINS: dict[str, tuple[Bounds, ...]] = {
    "pow": ((0.0, 3.0), (0.0, 3.0)), "floor_divide": (_FREE, (1.0, math.inf)),
    "remainder": (_FREE, (1.0, math.inf)), "shl": ((0.0, 15.0), (0.0, 3.0)),
    "shr": (_FREE, (0.0, 3.0)),
}  # fmt: skip
_KINDS = {"number": "fi", "float": "f", "integer": "i", "logical": "b"}

# Cells whose value jumps; a rounding difference in an operand may change it by much.
JUMPING = frozenset(
    {
        "sign", "floor", "ceil", "trunc", "round", "floor_divide", "remainder", "eq", "ne", "lt",
        "le", "gt", "ge", "signbit", "copysign", "nextafter", "cast", "argmax", "argmin",
    }
)  # fmt: skip


@dataclass(frozen=True)
class _Value:
    node: Node
    bounds: Bounds

    @property
    def kind(self) -> str:
        return DTYPES[self.node.dtype].kind


class _Refused(Exception):
    """This operator cannot be made of the values there are."""


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
        value = _Value(node, _INPUTS[DTYPES[name].kind])
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
            raise _Refused
        if split_text(node.cell or node.text)[0] in self.without:
            raise _Refused
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
        return self.op(space, text, operands, monoid)

    def op(self, space: Space, text: str, operands: Sequence[_Value], monoid: str) -> _Value:
        sig = space.signature(monoid)
        if space.size() > MAX_SIZE * 4:
            raise _Refused
        node = op_node(sig.text, text, [v.node for v in operands])
        extents = sig.extents([v.node.shape for v in operands])
        n_reduced = math.prod(extents[d] for d in sig.reduced)
        bounds = _cell_bounds(text, [v.bounds for v in operands], node)
        return self.keep(node, _reduced_bounds(monoid, bounds, operands, n_reduced))

    def any_cell(self, name: str, monoid: str = "") -> _Value:
        """A cell on operands that fit its dtypes and its domain."""
        declared = CELLS[name]
        arity = declared.arity or int(self.rng.choice([1, 2, 2, 2, 3]))
        kinds = _KINDS.get(declared.result, "fib")
        if declared.result == "number":
            kinds = kinds[self.choose([0, 1])]
        operands = [self.pick(kinds) for _ in range(arity)]
        if declared.result == "last":
            operands[0] = self.pick("b")
        domains = (_INT_DOMAINS if kinds == "i" else _DOMAINS).get(name, (_FREE,) * arity)
        operands = [self.inside(v, domain) for v, domain in zip(operands, domains, strict=True)]
        text = f"cast {self.dtype()}" if name == "cast" else name
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
            raise _Refused
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
        node = op_node(sig, name, [v.node for v in operands])
        return self.keep(node, _cell_bounds(name, [v.bounds for v in operands], node))

    def reduction(self, name: str) -> _Value:
        """A reduction of one operand, of a product, or of a structured pair."""
        if MONOIDS[name].n_values == 2:
            return self.structured(name)
        if name in ("and", "or"):
            return (
                self.any_cell(("id", "eq")[self.choose([0, 1])], name)
                if self.chance(0.3)
                else (self.cell("id", self.pick("b"), monoid=name))
            )
        cells = (
            ["id", "id", "mul", "mul", "add", "abs", "maximum"] if name == "+" else ["id", "abs"]
        )
        return self.any_cell(cells[self.choose(range(len(cells)))], name)

    def structured(self, name: str) -> _Value:
        if name == "softmax":
            return self.cell("pair", self.pick("f"), self.pick("f"), monoid=name)
        values = self.pick("fi")
        if not values.node.shape:
            raise _Refused
        axis = self.choose(range(values.node.type.rank))
        extent = values.node.shape[axis]
        index = self.keep(sel_node(f"iota {extent} i64", []), (0, extent - 1))
        dims = list("abcdefgh"[: values.node.type.rank])
        kept = dims[:axis] + dims[axis + 1 :]
        sig = f"{' '.join(dims)}, {dims[axis]} -> {' '.join(kept)}; {name} {dims[axis]}"
        return self.keep(op_node(sig, "pair", [values.node, index.node]), (0, extent - 1))

    # -- selectors

    def selector(self, name: str) -> _Value:
        """A selector with random parameters."""
        if name in ("iota", "full"):
            return self.generated(name)
        value = self.pick()
        shape = value.node.shape
        if not shape:
            raise _Refused
        axis = self.choose(range(len(shape)))
        operands, bounds = [value], value.bounds
        if name in ("concat", "interleave"):
            same = [v for v in self.values if v.node.type == value.node.type]
            operands += [same[self.choose(range(len(same)))] for _ in range(self.choose([0, 1, 2]))]
            bounds = min(v.bounds[0] for v in operands), max(v.bounds[1] for v in operands)
        params = self.parameters(name, shape, axis, value)
        if name == "pad":
            bounds = min(bounds[0], params[1]), max(bounds[1], params[1])
        return self.keep(sel_node(join_text(name, *params), [v.node for v in operands]), bounds)

    def generated(self, name: str) -> _Value:
        dtype = self.dtype()
        if name == "iota":
            extent = self.choose([1, 2, 3, 4, 6]) if dtype != "bool" else 2
            return self.keep(sel_node(f"iota {extent} {dtype}", []), (0, extent - 1))
        value = _typed(self.choose([0, 1, 2]), dtype)
        shape = self.shape() if self.chance(0.5) else ()
        return self.keep(sel_node(join_text("full", shape, value, dtype), []), (value, value))

    def parameters(self, name: str, shape: Shape, axis: int, value: _Value) -> tuple[Any, ...]:
        if name == "slice":
            return (tuple(self.part(extent) for extent in shape),)
        if name == "flip":
            return (tuple(d for d in range(len(shape)) if d == axis or self.chance(0.3)),)
        if name == "pad":
            widths = tuple((self.choose([0, 1]), self.choose([0, 0, 2])) for _ in shape)
            return widths, _typed(self.choose([0, 1]), value.node.dtype)
        if name == "split":
            factors = [f for f in (1, 2, 3, 4) if shape[axis] % f == 0]
            return axis, (-1, self.choose(factors))
        if name == "merge":
            return axis, self.choose(range(1, len(shape) - axis + 1))
        return (axis, self.choose([1, 2, 3])) if name == "repeat" else (axis,)

    def part(self, extent: int) -> tuple[int, int, int] | None:
        if self.chance(0.4):
            return None
        start, step = self.choose(range(extent)), self.choose([-2, -1, 1, 1, 2])
        room = (extent - 1 - start if step > 0 else start) // abs(step) + 1
        return start, step, self.choose(range(1, room + 1))


def _typed(value: int, name: str) -> Any:
    kind = DTYPES[name].kind
    return float(value) if kind == "f" else bool(value) if kind == "b" else value


# -- bounds ---------------------------------------------------------------------------------------


def _cell_bounds(text: str, operands: Sequence[Bounds], node: Node) -> Bounds:
    """What the cell's value can be over the reals; raises _Refused where that is not known."""
    name, params = split_text(text)
    known = _OWN_BOUNDS.get(name)
    if known is not None:
        return known(*operands)
    if name == "pair":
        return operands[-1]
    intervals = [
        Interval(np.asarray(low, float), np.asarray(high, float)) for low, high in operands
    ]
    found = ENCLOSE[name](*intervals, *params)
    bounds = float(found.low), float(found.high)
    if any(map(math.isnan, bounds)):
        raise _Refused
    return bounds


def _size(*operands: Bounds) -> float:
    return max(abs(b) for bounds in operands for b in bounds)


def _bitwise_bounds(*operands: Bounds) -> Bounds:
    top = float(2 ** math.ceil(math.log2(_size(*operands) + 2)))
    return -top, top


# Enclosures of these say nothing about wide operands.
_OWN_BOUNDS: dict[str, Callable[..., Bounds]] = {
    "remainder": lambda a, b: (0.0, b[1]),
    "floor_divide": lambda a, b: (-_size(a) / min(b[0], 1) - 1, _size(a) / min(b[0], 1)),
    "shl": lambda a, b: (-8 * _size(a), 8 * _size(a)),
    "shr": lambda a, b: (-_size(a), _size(a)),
    "pow": lambda a, b: (0.0, max(_size(a), 2.0) ** 3),
    "atan2": lambda a, b: (-1.6, 1.6),
    "nextafter": lambda a, b: a,
    "bit_and": _bitwise_bounds, "bit_or": _bitwise_bounds, "bit_xor": _bitwise_bounds,
    "bit_not": _bitwise_bounds,
}  # fmt: skip


def _reduced_bounds(monoid: str, bounds: Bounds, operands: Sequence[_Value], count: int) -> Bounds:
    low, high = bounds
    if monoid == "+":
        return min(low * count, low), max(high * count, high)
    if monoid == "*":
        top = max(_size(bounds), 1.0) ** count
        return -top, top
    if monoid == "softmax":
        return operands[1].bounds
    return bounds


# -- programs -------------------------------------------------------------------------------------


def operator_names(without: Collection[str] = ()) -> list[str]:
    """Every operator that random programs have: cells, monoids ("reduce +") and selectors."""
    names = [c for c in CELLS if c != "pair"] + [f"reduce {m}" for m in MONOIDS] + list(SELECTORS)
    return [n for n in names if n.removeprefix("reduce ") not in without]


def operator_counts(programs: Iterable[Program]) -> Counter[str]:
    """How often every operator occurs, by the names of `operator_names`."""
    counts: Counter[str] = Counter()
    for program in programs:
        for node in program.nodes():
            if node.kind == INPUT:
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
        elif name in CELLS:
            maker.any_cell(name)
        else:
            maker.selector(name)
    except (_Refused, ProgramError):
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
    low, high = _INPUTS[of.kind]
    if of.kind == "f":
        return np.asarray(rng.uniform(low, high, type_.shape)).astype(of.numpy)
    whole = rng.integers(int(low), int(high), type_.shape, endpoint=True)
    return np.asarray(whole).astype(of.numpy)

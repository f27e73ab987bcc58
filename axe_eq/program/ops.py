"""Operators: cells, monoids and selectors, each declared once.

A block operator is a signature plus a *cell* (what happens at one point of the index space) plus,
where dims are reduced, a *monoid*. A *selector* moves elements and never computes; its cell map is
piecewise affine where `pull` says so (Tapestry, selectors). Cells and selectors may carry
parameters in their text: ``cast f16``, ``slice ((0, 2, 4), None)``. A *scan* is a monoid along one
axis whose every prefix is kept, for any declared monoid: ``+ 1``.

Cells and monoids work on arrays of index-space rank whose absent dims have extent 1, so that every
operand broadcasts; numpy functions here are THE meaning, everything else is tested against them.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import numpy as np

from axe_eq.errors import PackError, ProgramError
from axe_eq.program.decisions import Draw
from axe_eq.program.types import Array, ValueType, dtype

State = tuple[Array, ...]
Known = Sequence[ValueType | None]


@dataclass(frozen=True)
class Cell:
    """What a block operator computes at one point of its index space.

    Attributes:
        name: first word of the cell's text.
        arity: number of operands; None for any number of at least one (associative cells).
        fn: numpy meaning, called as fn(*operands, *params) in the accumulation dtype.
        result: "promote" (common dtype of the operands), "number", "float", "integer" (the same,
            must not be bool, must be floating, must be an integer), "logical" (all bool), "bool"
            (any operands, bool value), "last" (the first operand is a bool condition, the value has
            the common dtype of the others), "wide" (what the common dtype, which must be floating,
            accumulates in), or "param" (the first parameter names the dtype).
        commutative, associative, unit: algebra of a binary cell on reals; unit is its neutral
            element.
        product: contracts with the "+" monoid as a sum of products (einsum).
        flops: floating operations of one evaluation, for cost models.
        enclose: interval meaning on (low, high) pairs of float64 arrays with outward rounding, for
            rigorous refutation; None where nobody gave one.
        rounds: False where the value is one of the operands' values (moves and selections round
            nothing).
        n_values: number of arrays `fn` returns; more than one only for a monoid that takes as many.
        domain: per operand, bounds inside which it is defined and moderate on floats, with room for
            rounding; samples are drawn there. Empty where everywhere.
        whole_domain: the same on integers.
        jumps: its value jumps, so a rounding of an operand may change it by much.
        n_params: number of parameters in its text, 1 at least where the first names the dtype.
        strict: a float value is NaN where an operand is.
        identity: its values are its operands.
        quotient_of: name of the cell that gives the same, on reals, of its first operand and one
            over its second: "mul" of a division.
        facts: facts about operands -> facts about the value (`axe_eq.program.facts`), for laws that
            need to know where values are defined or finite; without it nothing is known.
    """

    name: str
    arity: int | None
    fn: Callable[..., Any]
    result: str = "promote"
    commutative: bool = False
    associative: bool = False
    unit: float | None = None
    product: bool = False
    flops: float = 1.0
    enclose: Callable[..., Any] | None = None
    rounds: bool = True
    n_values: int = 1
    domain: tuple[tuple[float, float], ...] = ()
    whole_domain: tuple[tuple[float, float], ...] = ()
    jumps: bool = False
    n_params: int = 0
    strict: bool = False
    identity: bool = False
    quotient_of: str = ""
    facts: Callable[..., int] | None = None

    @property
    def n_conditions(self) -> int:
        """How many of the first operands are conditions: bools, whatever the others are."""
        return int(self.result == "last")


@dataclass(frozen=True)
class Monoid:
    """A reduction that can be split: lift a chunk to a state, merge states, finish.

    Attributes:
        name: the word in signatures ("+", "max", ...).
        lift: (cell values, reduced axes) -> state; reduced axes stay with extent 1.
        merge: (state, state) -> state, the earlier one first; associative on reals.
        finish: state -> value with the reduced axes of extent 1.
        unit: value of an empty reduction of a one-array state; None where there is none. Of a
            structured monoid that `stands` for parts, the value beside the units of the others.
        flops: operations per reduced cell, for cost models.
        exact: merging is exact on floats (max, min), so order does not matter bit for bit.
        n_values: number of cell values one lift takes (structured monoids take several).
        result: dtype rule of the value, as in `Cell.result`, or "index" (the last operand's); a
            structured monoid applies it to its operands.
        convex: the value lies between the least and the greatest of its (last) cell values.
        commutative: merging is commutative on reals; scans alone take one that is not, for
            reductions have no order.
        facts: as in `Cell.facts`, of its cell values.
        merges: name of the cell that merges two states of one array, which is then the value too;
            "" where the state is another. Kernels are written with it.
        lifts: name of the cell that makes that state of one value; "" where it is the value.
        stands: of a structured monoid, what stands for a part of what is reduced: for each value
            the monoid that reduces it, "" (once) for what this monoid gives for the part, which of
            one element is that value of it. Reduced by this monoid again, they give the value of
            the whole: the index of the greatest of maxima, each beside its index. Devices may then
            hold parts. With a `unit` scans are cut so too: of a recurrence the product of all a
            beside the last value stands for a part, and (1, 0) for none.
    """

    name: str
    lift: Callable[[State, tuple[int, ...]], State]
    merge: Callable[[State, State], State]
    finish: Callable[[State], Array]
    unit: float | None = None
    flops: float = 1.0
    exact: bool = False
    n_values: int = 1
    result: str = "promote"
    convex: bool = False
    commutative: bool = True
    facts: Callable[..., int] | None = None
    merges: str = ""
    lifts: str = ""
    stands: tuple[str, ...] = ()


def monoid_of(
    name: str, merges: str, unit: float | None = None, lifts: str = "", **more: Any
) -> Monoid:
    """A monoid of cells alone: ``monoid_of("farthest", "maximum", 0.0, lifts="abs", exact=True)``.

    Args:
        name: the word in signatures.
        merges: name of the cell that merges two values.
        unit: the value that changes none that it is merged with; None where there is no such value.
        lifts: name of a cell that every value goes through before it is merged; "" for none.
        more: other fields of `Monoid`.

    Raises:
        ProgramError: no such cell is declared.
    """
    join = CELLS[merges].fn
    alone = CELLS[lifts].fn if lifts else None

    def lift(values: State, axes: tuple[int, ...]) -> State:
        state = values[0] if alone is None else alone(values[0])
        for axis in axes:
            while (n := state.shape[axis]) > 1:
                state = np.moveaxis(state, axis, 0)
                pairs = join(state[: n - n % 2 : 2], state[1::2])
                state = np.moveaxis(np.concatenate([pairs, state[n - n % 2 :]]), 0, axis)
        return (state,)

    def merge(a: State, b: State) -> State:
        return (join(a[0], b[0]),)

    return Monoid(
        name, lift, merge, lambda state: state[0], unit, merges=merges, lifts=lifts, **more
    )


@dataclass(frozen=True)
class Pull:
    """Where a selector reads one operand dim: scale x (index along an output axis) + offset."""

    axis: int
    scale: int = 1
    offset: int = 0


@dataclass(frozen=True)
class Look:
    """A dim of an operand that a selector reads where the value of another operand says.

    Attributes:
        operand, dim: what is read.
        by: the operand of integers, which has a `Pull` for every dim; it moves nowhere.
    """

    operand: int
    dim: int
    by: int


@dataclass(frozen=True)
class Selector:
    """An operator that moves elements.

    Attributes:
        name: first word of the selector's text.
        arity: number of operands, None for one or more.
        shape: (params, operand types) -> result type; raises ProgramError on what does not fit.
        run: (params, operand arrays) -> array, the numpy meaning.
        pull: (params, operand types) -> per operand, per operand dim, a `Pull`, or None where that
            dim must be whole; None for selectors without operands.
        look: (params, operand types) -> the dims without a `Pull` that are read where another
            operand says; None for selectors that read by their index alone. `run` may read
            anything where an integer is no index of the dim.
        fill: (params) -> value outside every operand; None where nothing is outside.
        sample: (random generator, operand types) -> parameters that fit, for tests.
        propose: (decisions, prefix of their names, wanted type, per operand its type or None) ->
            parameters that may give that type, or None; with it, laws about any selector are
            tested on this one too.
        held: (params, operand types) -> the parameters with constants as the element type holds
            them; None where it has none.
        placed: (params, old dim -> new dim, new rank) -> the parameters that do the same where the
            dims of operands and value are elsewhere: new dims that are no image are read as they
            are by all operands, and so were old dims without one. Without it a value may not
            differ between ranks (`axe_eq.mesh.lift`).
        operands: (decisions, prefix, parameters, wanted type, per operand its type or None) -> the
            operand shapes from which these parameters may give that type, or None. Both may be
            wrong about what fits: `shape` is asked.
        inverse: (params, operand type) -> the selector text that undoes it; given exactly by the
            selectors of one operand that keep the row-major order of all elements, which therefore
            move nothing in memory.
        counts: its value is the index along its one dim.
        cut: (params) -> (axis, length): dims p and i in place of the axis of the one operand, whose
            element p * length + i they are, and 0 past its end; None for other selectors.
        uniform: what it does to the dims without a pull is the same at every index of the dims it
            reads as they are, so it may be run at any extents of those (a skew may not).
        regroup: (params, operand types) -> for any number of operands, the text of the selector
            that may join them in groups, and the groups again, and the texts of the selectors and
            views (signatures) that follow; None where operands are not joined.
    """

    name: str
    arity: int | None
    shape: Callable[[tuple[Any, ...], Sequence[ValueType]], ValueType]
    run: Callable[[tuple[Any, ...], Sequence[Array]], Array]
    pull: Callable[[tuple[Any, ...], Sequence[ValueType]], list[list[Pull | None]]] | None = None
    fill: Callable[[tuple[Any, ...]], float | None] | None = None
    held: Callable[[tuple[Any, ...], Sequence[ValueType]], tuple[Any, ...]] | None = None
    inverse: Callable[[tuple[Any, ...], ValueType], str] | None = None
    counts: bool = False
    cut: Callable[[tuple[Any, ...]], tuple[int, int]] | None = None
    uniform: bool = False
    regroup: Callable[[tuple[Any, ...], Sequence[ValueType]], tuple[str, ...]] | None = None
    sample: Callable[[Any, Sequence[ValueType]], tuple[Any, ...]] | None = None
    propose: Callable[[Draw, str, ValueType, Known], tuple[Any, ...] | None] | None = None
    look: Callable[[tuple[Any, ...], Sequence[ValueType]], tuple[Look, ...]] | None = None
    placed: Callable[[tuple[Any, ...], Mapping[int, int], int], tuple[Any, ...]] | None = None
    operands: (
        Callable[[Draw, str, tuple[Any, ...], ValueType, Known], list[tuple[int, ...]] | None]
        | None
    ) = None


Declared = TypeVar("Declared", Cell, Monoid, Selector)


# Rules for the dtype of a value, see `Cell.result` and `Monoid.result`.
RESULTS = (
    "promote", "number", "float", "integer", "logical", "bool", "last", "param", "index", "wide",
)  # fmt: skip
_NAME = re.compile(r"[^\s()\[\],;]+")


class Table(Generic[Declared]):
    """Declared operators of one kind, by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._by_name: dict[str, Declared] = {}

    def add(self, declared: Declared) -> Declared:
        """Register.

        Raises:
            PackError: another object has that name, it cannot stand in a text, or there is no such
                rule for its dtype.
        """
        thing, rule = f"{self.kind} {declared.name!r}", getattr(declared, "result", "promote")
        if not _NAME.fullmatch(declared.name):
            raise PackError(thing, "has a name that no text can hold", "one word, no brackets")
        if rule not in RESULTS:
            raise PackError(thing, f"has result {rule!r}", f"one of {' '.join(RESULTS)}")
        old = self._by_name.setdefault(declared.name, declared)
        if old is not declared and old != declared:
            raise PackError(thing, "is declared twice", "one declaration")
        return declared

    def remove(self, name: str) -> None:
        """Take a name back: its pack declares it anew."""
        self._by_name.pop(name, None)

    def __getitem__(self, name: str) -> Declared:
        try:
            return self._by_name[name]
        except KeyError:
            known = " ".join(sorted(self._by_name))
            raise ProgramError(
                f"{self.kind} {name!r}", "is not declared", f"one of {known}"
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def names(self) -> list[str]:
        """Names in order of declaration."""
        return list(self._by_name)

    def values(self) -> Iterable[Declared]:
        """Declared operators in order of declaration."""
        return self._by_name.values()


CELLS: Table[Cell] = Table("cell")
MONOIDS: Table[Monoid] = Table("monoid")
SELECTORS: Table[Selector] = Table("selector")


def folding(monoid: str) -> str:
    """The monoid that reduces the results of parts to the result of the whole; "" where none does.

    It is the monoid itself where that merges values as they are. Some monoids lift values first, as
    "farthest" takes their sizes. Results are lifted already, so it is then the monoid with the same
    cell that lifts nothing.

    >>> folding("max"), folding("softmax")
    ('max', '')
    """
    declared = MONOIDS[monoid]
    if not declared.merges or declared.n_values > 1:
        return ""
    if not declared.lifts:
        return monoid
    wanted = declared.merges, "", 1
    found = (m.name for m in MONOIDS.values() if (m.merges, m.lifts, m.n_values) == wanted)
    return next(found, "")


def keeps_equal(monoid: str) -> bool:
    """Whether equal values are reduced to that value, bit for bit, as by max.

    Merging is exact, and what two equal values merge to lies between them.
    """
    declared = MONOIDS[monoid]
    return declared.exact and declared.convex and declared.n_values == 1


@cache
def split_text(text: str) -> tuple[str, tuple[Any, ...]]:
    """Name and parameters (Python literals or words) of a cell's or selector's text."""
    name, *words = _WORD.findall(text) or [""]
    return name, tuple(_literal(word) for word in words)


def join_text(name: str, *params: Any) -> str:
    """The text of a cell or selector with parameters; inverse of `split_text`."""
    return " ".join([name, *(p if isinstance(p, str) else _print(p) for p in params)])


_WORD = re.compile(r"(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|[^\s(])+")
_NOT_LITERALS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def _literal(word: str) -> Any:
    if word in _NOT_LITERALS:
        return _NOT_LITERALS[word]
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word


def _print(param: Any) -> str:
    return repr(param).replace(", ", ",")


@cache
def cell_text(text: str) -> str:
    """The canonical text of a cell: parameters printed alike, dtypes by their own names."""
    declared, params = cell(text)
    if declared.result == "param":
        params = (dtype(params[0] if params else "").name, *params[1:])
    return join_text(declared.name, *params)


@cache
def selector_text(text: str) -> str:
    """The canonical text of a selector."""
    declared, params = selector(text)
    return join_text(declared.name, *params)


def cell(text: str) -> tuple[Cell, tuple[Any, ...]]:
    """The cell and the parameters that a cell text names."""
    name, params = split_text(text)
    return CELLS[name], params


def selector(text: str) -> tuple[Selector, tuple[Any, ...]]:
    """The selector and the parameters that a selector text names."""
    name, params = split_text(text)
    return SELECTORS[name], params


def constant_of(text: str) -> float | None:
    """The constant in a selector's text, as it is written there; None where there is none."""
    declared, params = selector(text)
    return None if declared.fill is None else declared.fill(params)


@cache
def scan(text: str) -> tuple[Monoid, int]:
    """The monoid and the axis that a scan text names: ``+ 1`` adds up along axis 1.

    Raises:
        ProgramError: no such monoid, or no axis.
    """
    name, params = split_text(text)
    if len(params) != 1 or not isinstance(params[0], int) or params[0] < 0:
        raise ProgramError(f"scan {text!r}", f"has parameters {params}", "one axis, from 0")
    return MONOIDS[name], params[0]


@cache
def scan_text(text: str) -> str:
    """The canonical text of a scan."""
    monoid, axis = scan(text)
    return join_text(monoid.name, axis)

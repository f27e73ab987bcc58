"""Verdicts: Proved, Refuted, Unknown, and the counterexamples of refutations.

A verdict is a result, never an error. Only `Proved` is true in a condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from axe_eq.layout import Layout
from axe_eq.program.types import Array

Image = frozenset[tuple[tuple[str, int], ...]]
MOST_SHOWN = 64  # elements of an input that a counterexample prints
MOST_LISTED, FEW_LISTED = 16, 4  # elements unlike the others: listed at all, and of more than that
MOST_PLACES, FEW_PLACES = 32, 4  # of one element: listed at all, and listed of more than that


@dataclass(frozen=True)
class LayoutCounterexample:
    """A logical index that two layouts send to different places.

    Attributes:
        x: the logical index, one integer or one per dim.
        image_a, image_b: where each layout puts it, sets of coordinates.
        numbers: name -> number, for layouts with names, at which they differ.
        layouts: name -> layout that an unknown one stands for there.
        dims: extents of the tensor, where they are known.
    """

    x: int | tuple[int, ...]
    image_a: Image
    image_b: Image
    numbers: Mapping[str, int] = field(default_factory=dict)
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    dims: tuple[int, ...] = ()

    @property
    def element(self) -> tuple[int, ...]:
        """The digits of the element in the dims; its one index where they are not known."""
        if isinstance(self.x, tuple):
            return self.x
        return tuple(map(int, np.unravel_index(self.x, self.dims))) if self.dims else (self.x,)

    def __str__(self) -> str:
        given = [
            f"{name} = {value}" for name, value in (*self.numbers.items(), *self.layouts.items())
        ]
        at = f"with {', '.join(given)}, at" if given else "at"
        a, b = self.image_a, self.image_b
        digits = ",".join(map(str, self.element))
        shown = digits if len(self.element) == 1 else f"({digits})"
        return f"{at} element {shown}: a gives {_image('a', a, b)}, b gives {_image('b', b, a)}"


@dataclass(frozen=True)
class Elements:
    """A large array as a counterexample shows it: what most elements are, and which are not.

    Attributes:
        kind: dtype and shape, in words.
        size: how many elements there are.
        others: the value of all that are not counted.
        n: how many have another value.
        first: index and value of these, or of the first few where they are many.
    """

    kind: str
    size: int
    others: float | int | bool
    n: int
    first: tuple[tuple[tuple[int, ...], float | int | bool], ...]

    @staticmethod
    def of(array: Array) -> Elements:
        """Those of a whole array: unlike zero, or unlike its last element where more are so."""
        values = np.ascontiguousarray(_shown(array)).reshape(-1)
        bits = values.view(f"u{values.dtype.itemsize}")  # -0 is not 0, and NaN is NaN
        zero, last = np.flatnonzero(bits), np.flatnonzero(bits != bits[-1])
        usual = len(last) < len(zero)
        apart, others = (last, values[-1].item()) if usual else (zero, 0)
        at = np.unravel_index(apart, array.shape)
        return Elements.listed(_kind(array), array.size, others, at, values[apart])

    @staticmethod
    def listed(kind: str, size: int, others: float, at: Sequence[Array], values: Array) -> Elements:
        """Those at indices `at`, an array per dim, which have these values."""
        most = len(values) if len(values) <= MOST_LISTED else FEW_LISTED
        indices = (tuple(int(axis[n]) for axis in at) for n in range(most))
        first = tuple(zip(indices, values[:most].tolist(), strict=True))
        return Elements(kind, size, others, len(values), first)

    def __str__(self) -> str:
        if not self.n:
            return f"{self.kind}, all {number(self.others)}"
        listed = ", ".join(f"{list(index)} = {number(value)}" for index, value in self.first)
        if self.n == len(self.first):
            return f"{self.kind}, all {number(self.others)} but {listed}"
        return f"{self.kind}, {self.n} of {self.size} not {number(self.others)}: {listed}, ..."


@dataclass(frozen=True, eq=False)
class ProgramCounterexample:
    """Inputs on which two programs differ at one place of one output.

    Attributes:
        inputs: one array per input, in order, of the inputs' types and shapes; small integers where
            integers tell the programs apart. Those of a large program are made when asked for.
        output: which output differs.
        index: where in that output.
        value_a, value_b: the values there, exact where they are exact in float64; otherwise the
            midpoints of the bounds. Over the reals NaN is the side that is undefined there.
        bounds_a, bounds_b: disjoint enclosures of the two real values; the values themselves where
            programs were compared bit for bit.
        names: the first program's input names.
        rounded: what the refutation hinges on: constants that their element type holds as other
            numbers, with which, as they are written, these inputs do not tell the programs apart.
        reduced: the same for both programs at smaller extents, where that is known to differ too.
        rank: which rank of a mesh has that place of the output; None where there are none.
    """

    inputs: Sequence[Array]
    output: int
    index: tuple[int, ...]
    value_a: float | int | bool
    value_b: float | int | bool
    bounds_a: tuple[float, float]
    bounds_b: tuple[float, float]
    names: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()
    reduced: ProgramCounterexample | None = None
    rank: int | None = None

    @property
    def elements(self) -> list[Elements | None]:
        """Per input the elements unlike the others; None of one too large to look through."""
        if isinstance(self.inputs, tuple):
            return [Elements.of(array) for array in self.inputs]
        return list(getattr(self.inputs, "elements", [None] * len(self.inputs)))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        place = f"output {self.output}" + (f" at {self.index}" if self.index else "")
        place += "" if self.rank is None else f" on rank {self.rank}"
        a, b = (
            _value(v, r) for v, r in ((self.value_a, self.bounds_a), (self.value_b, self.bounds_b))
        )
        yield f"{place}: a gives {a}, b gives {b}"
        names = self.names or [f"input {n}" for n in range(len(self.inputs))]
        if isinstance(self.inputs, tuple):
            yield from (f"  {n}: {_array(x)}" for n, x in zip(names, self.inputs, strict=True))
        else:  # too large to make just to print
            yield f"  {self.inputs}"
            known = zip(names, self.elements, strict=True)
            yield from (f"  {name}: {x}" for name, x in known if x is not None)
        yield from (f"  {line}" for line in self.rounded)
        if self.reduced is not None:
            yield "the same at smaller extents:"
            yield from ("  " + line for line in str(self.reduced).splitlines())


Counterexample = LayoutCounterexample | ProgramCounterexample


@dataclass(frozen=True)
class Proved:
    """The two sides are equal, and a certificate says why.

    >>> verdict = axe.equivalent(lambda x: x * 1.0, lambda x: x, "4:f32")
    >>> bool(verdict), verdict.how
    (True, 'decided')

    Attributes:
        certificate: what an independent checker accepts.
        statement: what is proved: the two sides, the packs, the numerics.
        how: "identical" where nothing had to be proved, "decided" where laws only computed and
            compared (normal forms, the algebra of layouts), "rewritten" where others took part.
        laws: keys of the laws that the certificate uses.
    """

    certificate: Any
    statement: Any
    how: str = ""
    laws: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """How it was proved, in one sentence."""
        return {
            "identical": "both sides are the same as they stand",
            "decided": f"decided: both sides were computed and compared ({', '.join(self.laws)})",
            "rewritten": f"rewritten by {', '.join(self.laws)}",
        }.get(self.how, "")

    def __bool__(self) -> Literal[True]:
        return True

    def __repr__(self) -> str:
        return f"<Proved ({self.how}): {self.statement}>" if self.how else f"<{self}>"

    def __str__(self) -> str:
        return f"Proved: {self.statement}"


class _NotProved:
    """A verdict that is false in a condition."""

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return f"<{self}>"


@dataclass(frozen=True, repr=False)
class Refuted(_NotProved):
    """The two sides differ, certainly.

    >>> verdict = axe.equivalent(lambda x: x, lambda x: -x, "2:i32")
    >>> verdict.counterexample.value_a, verdict.counterexample.value_b
    (1, -1)

    Attributes:
        counterexample: where they differ; None where the reason says all (types that differ).
        reason: one sentence.
        hint: what may have been meant; empty where nothing suggests it.
    """

    counterexample: Counterexample | None
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        lines = [f"Refuted: {self.reason}"]
        lines += [] if self.counterexample is None else [str(self.counterexample)]
        return "\n".join([*lines, *([f"note: {self.hint}"] if self.hint else [])])


@dataclass(frozen=True, repr=False)
class Unknown(_NotProved):
    """Neither proved nor refuted within the budget.

    >>> bool(axe.Unknown("no law joins the sides", "2.0 s"))
    False

    Attributes:
        missing: what stood in the way: a law, an enclosure, time.
        budget: what was spent or allowed.
    """

    missing: Any
    budget: Any = None

    def __str__(self) -> str:
        spent = "" if self.budget is None else f" (budget: {self.budget})"
        return f"Unknown: {self.missing}{spent}"


Verdict = Proved | Refuted | Unknown


def _image(name: str, image: Image, other: Image) -> str:
    """The places of an element; of many only how many they are, and some that `other` lacks."""
    if not image:
        return "nothing"
    if len(image) <= MOST_PLACES:
        return "{" + ", ".join(map(_coordinate, sorted(image))) + "}"
    own = sorted(image - other)
    some = [*map(_coordinate, own[:FEW_PLACES]), *(["..."] if len(own) > FEW_PLACES else [])]
    return f"{len(image)} places" + (f" (only {name}: {', '.join(some)})" if some else "")


def _coordinate(coordinate: tuple[tuple[str, int], ...]) -> str:
    return " ".join(f"{value}@{axis}" for axis, value in coordinate) or "0"


def _value(value: float | int | bool, bounds: tuple[float, float]) -> str:
    low, high = bounds
    return str(value) if low == high or low != low else f"{value} (in [{low}, {high}])"


def _array(array: Array) -> str:
    if array.size > MOST_SHOWN:
        return str(Elements.of(array))
    text = np.array2string(
        _shown(array), separator=", ", max_line_width=1000, formatter={"float": number}
    )
    return f"{_kind(array)} {' '.join(text.split())}"


def _kind(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _shown(array: Array) -> Array:
    """The values as Python prints them: narrow floats widened."""
    return array if array.dtype.kind in "iub" else array.astype(np.float64)


def number(value: Any) -> str:
    """A real number as it is printed: a whole one without a point."""
    return str(value if isinstance(value, int) else float(value)).removesuffix(".0")

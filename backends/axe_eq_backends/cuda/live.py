"""Which indices of a streamed dim may weigh anything, for a tile of rows.

A score that is the statistic's unit (-inf of a maximum) has no weight, so chunks in which every
score is the unit change nothing: over the reals operands are finite, and 0 times one is 0. Scores
are often the unit by position, `where(i >= j, score, -inf)`. Here that condition is read from the
score's cell: comparisons of affine functions of positions, joined by and, or and not. What is no
such comparison may hold anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce

from axe_eq.kernel.cells import Apply, Cell, Constant, Operand, apply, subexpressions, used
from axe_eq.kernel.expr import Int, maximum, minimum
from axe_eq.program.types import DTYPES

# Positions and what is computed of them stay below: neither cells nor kernels leave 32 bits.
LARGEST = 1 << 29
KEEPS_INFINITY = ("cast f16", "cast bf16", "cast f32")
OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True)
class Place:
    """Where a tile is along the dims that positions count: all indices from `first` to `last`."""

    first: Int
    last: Int


@dataclass(frozen=True)
class Live:
    """The part of a streamed dim outside of which scores are the unit.

    Attributes:
        score: the cell of a score.
        counts: operand of the cell -> dim whose index it is.
        extents: of every dim that is counted.
        stream: the streamed dim.
        unit: the score that has no weight.

    Example: `where(ge(x1, x2), x0, -inf)` with counts {1: 0, 2: 1} and stream 1 gives, for rows 128
    to 255, (0, 255).
    """

    score: Cell
    counts: Mapping[int, int]
    extents: Mapping[int, int]
    stream: int
    unit: float

    def __hash__(self) -> int:
        return hash((self.score, self.stream, *self.counts.items()))

    @cached_property
    def known(self) -> bool:
        """Whether anything is known: else all of the dim may be live for every tile."""
        parts = subexpressions(self.score)
        return any(c.cell in OPPOSITE and self._compares_stream(c) for c in parts)

    def ends(self, places: Mapping[int, Place]) -> tuple[Int, Int]:
        """(first, last) index that may be live; the first is after the last where none is.

        Args:
            places: of the tile, along every dim that is counted but the streamed one.
        """
        return _Reader(self, places).score(self.score)

    def sure(self, places: Mapping[int, Place]) -> tuple[Int, Int] | None:
        """(first, last) index at which `mask` holds for all rows of a tile; None without a mask.

        Both lie in the dim, but the first is after the last where there is none.

        Args:
            places: as in `ends`.
        """
        if self.mask is None:
            return None
        first, last = _Reader(self, places).always(self.mask, True)
        extent = self.extents[self.stream]
        return minimum(maximum(first, 0), extent), maximum(minimum(last, extent - 1), -1)

    @property
    def mask(self) -> Cell | None:
        """A condition on positions outside of which the score is the unit; None without one."""
        return reduce(partial(apply, "and"), self._masks[1]) if self._masks[1] else None

    @property
    def unmasked(self) -> Cell:
        """The score where `mask` holds."""
        return self._masks[0]

    @cached_property
    def _masks(self) -> tuple[Cell, tuple[Cell, ...]]:
        """The score without its outermost masks by position, and the conditions of these."""
        conditions: list[Cell] = []

        def visit(cell: Cell) -> Cell:
            if not isinstance(cell, Apply):
                return cell
            if cell.cell == "where":
                condition, yes, no = cell.args
                unit = isinstance(no, Constant) and no.value == self.unit
                if unit and used(condition) and used(condition) <= set(self.counts):
                    conditions.append(condition)
                    return visit(yes)
            elif cell.cell in KEEPS_INFINITY and math.isinf(self.unit):
                return Apply(cell.cell, (visit(cell.args[0]),))
            return cell

        return visit(self.score), tuple(conditions)

    def _compares_stream(self, cell: Apply) -> bool:
        line = self.difference(cell)
        return line is not None and line.steps.get(self.stream, 0) != 0

    def difference(self, cell: Apply) -> Line | None:
        """The left side of a comparison less its right one; None where one is not affine."""
        left, right = (self._line(a) for a in cell.args)
        return None if left is None or right is None else self._small(left.plus(right, -1))

    def _line(self, cell: Cell) -> Line | None:
        if cell not in self._lines:
            self._lines[cell] = self._read_line(cell)
        return self._lines[cell]

    @cached_property
    def _lines(self) -> dict[Cell, Line | None]:
        return {}

    def _read_line(self, cell: Cell) -> Line | None:
        if isinstance(cell, Operand):
            dim = self.counts.get(cell.index)
            return None if dim is None else self._small(Line({dim: 1}))
        if isinstance(cell, Constant):
            whole = isinstance(cell.value, int) and not isinstance(cell.value, bool)
            kind = DTYPES[cell.kind]
            fits = whole and kind.kind == "i" and kind.itemsize >= DTYPES["i32"].itemsize
            return self._small(Line({}, int(cell.value))) if fits else None
        if cell.cell in ("cast i32", "cast i64"):
            return self._line(cell.args[0])
        if cell.cell not in ("add", "sub", "neg", "mul"):
            return None
        parts = [self._line(a) for a in cell.args]
        left, right = parts[0], parts[-1]
        if left is None or right is None:
            return None
        if cell.cell == "neg":
            return left.times(-1)
        if cell.cell != "mul":
            return self._small(left.plus(right, 1 if cell.cell == "add" else -1))
        if left.steps and right.steps:
            return None
        line, constant = (left, right) if left.steps else (right, left)
        return self._small(line.times(constant.begin))

    def _small(self, line: Line) -> Line | None:
        size = abs(line.begin) + sum(abs(n) * self.extents[d] for d, n in line.steps.items())
        return line if size < LARGEST else None


@dataclass(frozen=True)
class Line:
    """An affine function of positions: `begin` plus so many steps per index of a dim."""

    steps: Mapping[int, int]
    begin: int = 0

    def plus(self, other: Line, sign: int) -> Line:
        """The sum, or the difference."""
        steps = dict(self.steps)
        for dim, n in other.steps.items():
            steps[dim] = steps.get(dim, 0) + sign * n
        return Line({d: n for d, n in steps.items() if n}, self.begin + sign * other.begin)

    def times(self, n: int) -> Line:
        """The product with a number."""
        steps = {d: n * step for d, step in self.steps.items() if n}
        return replace(self, steps=steps, begin=n * self.begin)


Ends = tuple[Int, Int]


class _Reader:
    """Cells at one tile: hulls of the indices where scores are live and conditions may hold."""

    def __init__(self, live: Live, places: Mapping[int, Place]) -> None:
        self.live, self.places = live, places
        self.whole: Ends = (0, live.extents[live.stream] - 1)
        self.none: Ends = (live.extents[live.stream], -1)
        self.known = dict[tuple[Cell, bool | None], Ends]()
        self.proved = dict[tuple[Cell, bool], Ends]()

    def score(self, cell: Cell) -> Ends:
        """Where a score may be other than the unit."""
        if (cell, None) not in self.known:
            self.known[cell, None] = self._score(cell)
        return self.known[cell, None]

    def _score(self, cell: Cell) -> Ends:
        if isinstance(cell, Constant):
            return self.none if cell.value == self.live.unit else self.whole
        if not isinstance(cell, Apply):
            return self.whole
        if cell.cell == "where":
            condition, yes, no = cell.args
            return _either(
                _both(self.holds(condition, True), self.score(yes)),
                _both(self.holds(condition, False), self.score(no)),
            )
        if cell.cell in KEEPS_INFINITY:
            return self.score(cell.args[0])
        if cell.cell == "mul":
            for part, other in (cell.args, cell.args[::-1]):
                if isinstance(other, Constant) and other.value > 0:
                    return self.score(part)
        return self.whole

    def holds(self, cell: Cell, wanted: bool) -> Ends:
        """Where a condition may be `wanted` for a row of the tile."""
        if (cell, wanted) not in self.known:
            self.known[cell, wanted] = self._holds(cell, wanted)
        return self.known[cell, wanted]

    def _holds(self, cell: Cell, wanted: bool) -> Ends:
        if isinstance(cell, Constant) and isinstance(cell.value, bool):
            return self.whole if cell.value == wanted else self.none
        if not isinstance(cell, Apply):
            return self.whole
        if cell.cell == "not":
            return self.holds(cell.args[0], not wanted)
        if cell.cell in ("and", "or"):
            ends = [self.holds(a, wanted) for a in cell.args]
            return (_both if (cell.cell == "and") == wanted else _either)(*ends)
        if cell.cell == "where":
            condition, yes, no = cell.args
            return _either(
                _both(self.holds(condition, True), self.holds(yes, wanted)),
                _both(self.holds(condition, False), self.holds(no, wanted)),
            )
        if cell.cell not in OPPOSITE:
            return self.whole
        line = self.live.difference(cell)
        return (
            self.whole
            if line is None
            else self._solved(cell.cell if wanted else OPPOSITE[cell.cell], line)
        )

    def always(self, cell: Cell, wanted: bool) -> Ends:
        """Where a condition is `wanted` for all rows of the tile, as far as one range says it."""
        if (cell, wanted) not in self.proved:
            self.proved[cell, wanted] = self._always(cell, wanted)
        return self.proved[cell, wanted]

    def _always(self, cell: Cell, wanted: bool) -> Ends:
        if isinstance(cell, Constant) and isinstance(cell.value, bool):
            return self.whole if cell.value == wanted else self.none
        if not isinstance(cell, Apply):
            return self.none
        if cell.cell == "not":
            return self.always(cell.args[0], not wanted)
        if cell.cell in ("and", "or"):
            ends = [self.always(a, wanted) for a in cell.args]
            return _both(*ends) if (cell.cell == "and") == wanted else self._one(*ends)
        if cell.cell == "where":
            condition, yes, no = cell.args
            return self._one(
                _both(self.always(condition, True), self.always(yes, wanted)),
                _both(self.always(condition, False), self.always(no, wanted)),
            )
        line = self.live.difference(cell) if cell.cell in OPPOSITE else None
        relation = OPPOSITE.get(cell.cell, "") if wanted else cell.cell
        if line is None or not line.steps.get(self.live.stream) or relation in ("eq", "ne"):
            return self.none
        # One end of where it may be otherwise is an end of the dim.
        first, last = self._solved(relation, line)
        return (last + 1, self.whole[1]) if first == 0 else (0, first - 1)

    def _one(self, a: Ends, b: Ends) -> Ends:
        """Both ranges where they begin or end together, else one that is not empty as it stands."""
        if a[0] == b[0] or a[1] == b[1]:
            return _either(a, b)
        return b if a == self.none else a

    def _solved(self, relation: str, line: Line) -> Ends:
        """Where the line may be less than 0 (`lt`), and so on, for a row of the tile."""
        if relation == "ne" or not line.steps.get(self.live.stream):
            return self.whole
        if relation == "eq":
            return _both(self._solved("le", line), self._solved("ge", line))
        if relation in ("ge", "gt"):
            return self._solved("le" if relation == "ge" else "lt", line.times(-1))
        n = line.steps[self.live.stream]
        # n j <= most of what is on the other side, over the tile.
        most: Int = -line.begin - (relation == "lt")
        for dim, step in line.steps.items():
            if dim != self.live.stream:
                place = self.places[dim]
                most = most - step * (place.first if step > 0 else place.last)
        if n > 0:
            return 0, _quotient(most, n)
        # j >= -most / |n|, rounded up.
        least = -most if isinstance(most, int) else 0 - most
        return _over(least, -n), self.whole[1]


def _quotient(a: Int, n: int) -> Int:
    """A / n rounded down, or -1 where a is negative: kernels divide what is at least 0."""
    return maximum(a + n, 0) // n - 1


def _over(a: Int, n: int) -> Int:
    """A / n rounded up, or 0 where a is negative."""
    return (maximum(a, 0) + (n - 1)) // n


def _both(a: Ends, b: Ends) -> Ends:
    return maximum(a[0], b[0]), minimum(a[1], b[1])


def _either(a: Ends, b: Ends) -> Ends:
    return minimum(a[0], b[0]), maximum(a[1], b[1])


def chunks(ends: Ends, extent: int, size: int) -> tuple[Int, Int]:
    """(first, last) chunk of a streamed dim with what is live; one chunk where nothing is.

    Args:
        ends: as `Live.ends` has them.
        extent: of the dim.
        size: indices of a chunk.
    """
    last = minimum(maximum(ends[1], 0), extent - 1) // size
    return minimum(minimum(maximum(ends[0], 0), extent - 1) // size, last), last


def positions(strides: Sequence[int]) -> int:
    """The dim that a counting operand counts."""
    (dim,) = (d for d, s in enumerate(strides) if s)
    return dim

"""Gathers over digits, and of tables in parts: a sum of what the device that has a row reads.

Device r has rows r * e .. r * e + e - 1 of a table, and gives zero where an integer says a row of
another one. Which device reads, and where, are functions of the integer and of r alone, so they are
decided by all integers that are rows, by those at the ends of their dtype, where differences wrap,
and by bounds for all between, which must be no rows of any device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import count, permutations
from math import prod
from typing import Any

import numpy as np

from axe_eq.program.gathers import gather_text
from axe_eq.program.meaning import cell_values
from axe_eq.program.ops import Pull, join_text, split_text
from axe_eq.program.signature import Affine, make, plain, signature
from axe_eq.program.terms import VALUE, In, Op, Sel, op, operands, sel, type_of
from axe_eq.program.types import DTYPES, Array, value_type
from axe_eq.rule.term import Term, postorder
from axe_eq_rules.digits import Apart, View, common, in_front, named, runs, shape, written
from axe_eq_rules.enumerated import elements

MOST_ENTRIES = 1 << 23  # integers times devices that are looked at
MOST_TRIED = 32  # values that may be the integers
Coords = tuple[Affine, ...]


def gathered(term: Term, of: View, by: View, axis: int, row: Sequence[Pull | None]) -> View:
    """A gather: digits that both operands have, those of the integers as one dim, the others.

    What copies of the source along a dim of the integers give is what one of them gives.
    """
    rank, own = len(shape(term)), {p.axis: n for n, p in enumerate(row) if p is not None}
    if term.args[0] != gather_text(axis, sorted(own)):
        raise Apart
    passing = [d for d in range(rank) if d != axis]
    digits, sizes, ends = common(term, passing, [(of, {d: d for d in passing}), (by, own)])
    of = named(of, {d: digits[d] for d in passing}, ends, len(sizes))
    both = [d for d in passing if d in own]
    by = named(by, {own[d]: digits[d] for d in both}, {own[d]: ends[d] for d in both}, len(sizes))
    held = [{d for dim in x.inner for d in dim} for x in (of, by)]
    along = by.outer[own[axis]] if axis in own else ()
    sizes |= {d: by.extents[d] for d in along}
    fronts = runs([of.inner, by.inner], held[0] & held[1] & set(sizes) - set(along))
    rest = runs([of.inner], held[0] - held[1] - set(of.outer[axis]))
    wanted = (held[1] - held[0]) & set(sizes) | (held[1] & set(along))
    new = tuple(d for dim in by.inner for d in dim if d in wanted)
    source = in_front(of, (*fronts, of.outer[axis], *rest), (), digits)
    integers = in_front(by, (*fronts, *([new] if new else [])), (), digits)
    n = len(fronts)
    text = gather_text(n, range(n + bool(new)))
    outer = tuple(along if d == axis else tuple(digits[d]) for d in range(rank))
    return View(sel(text, written(source), written(integers)), (*fronts, new, *rest), outer, sizes)


def uncast(by: Term) -> Term | None:
    """Integers as they are, of those that are converted to a dtype that has them all."""
    if by.symbol is not Op or split_text(by.args[1])[0] != "cast":
        return None
    (of,) = operands(by)
    own, wide = (DTYPES[value_type(type_of(x)).dtype] for x in (of, by))
    if own.kind != "i" or not np.can_cast(own.numpy, wide.numpy):
        return None
    return op(by.args[0], "id", of)


class _Other(Exception):
    """A value that is no function of the integer and the device."""


def lookup_of_parts(core: Term) -> Term | None:
    """A sum over devices of what each reads of its part of a table, as one read of the table.

    None where it is none, or an integer that is no row reads one, or none of its parts does not.
    """
    if core.symbol is not Op or core.args[1] != "id" or len(operands(core)) != 1:
        return None
    sig, (choice,) = signature(core.args[0]), operands(core)
    if sig.monoid != "+" or choice.symbol is not Op or choice.args[1] != "where":
        return None
    order = [-1 if p.plain is None else p.plain for p in sig.operands[0]]
    if sorted(order) != [*range(sig.n_dims)] or signature(choice.args[0]).n_reduced:
        return None
    reduced = {n for n, d in enumerate(order) if d >= sig.n_out}
    for at in (1, 2):
        read = _Read.of(choice, at, reduced)
        found = None if read is None else read.whole()
        if read is None or found is None:
            continue
        left = [d for n, d in enumerate(order) if n in reduced - {*read.devices}]
        kept = [n for n in read.letters if n not in read.devices]
        dims = [plain(order[n]) if n < len(order) else Affine(()) for n in kept]
        extents = dict(enumerate(shape(choice)))
        fixed = {order[n]: e for n, e in extents.items() if n not in read.devices}
        made = make([dims], range(sig.n_out), sig.monoid if left else "", left, fixed)
        summed = op(made.text, "id", found)
        return summed if type_of.of(summed) == type_of.of(core) else None
    return None


@dataclass
class _Read:
    """A choice between zero and what a gather reads, over the letters of the choice.

    Attributes:
        mask: which is chosen, and how its dims are read.
        taken: what of the mask chooses the gather.
        source, by: of the gather.
        axis: of the source.
        letters: of the gather's dims; dims of one index that the choice lacks have more.
        along: of the integers' dims.
        devices: letter -> extent: which number the parts.
    """

    mask: tuple[Term, Coords]
    taken: bool
    source: Term
    by: Term
    axis: int
    letters: tuple[int, ...]
    along: Coords
    devices: dict[int, int] = field(default_factory=dict)

    @staticmethod
    def of(choice: Term, at: int, reduced: set[int]) -> _Read | None:
        """The choice whose operand at this place is the gather."""
        given, sig = operands(choice), signature(choice.args[0])
        zero, gather = elements(given[3 - at]), given[at]
        if zero is None or zero.astype(bool).any() or gather.symbol is not Sel:
            return None
        name, params = split_text(gather.args[0])
        if name != "lookup" or type_of.of(gather) is None:
            return None
        if value_type(type_of(gather)).dtype != value_type(type_of(choice)).dtype:
            return None
        more, each = count(sig.n_dims), zip(sig.operands[at], shape(gather), strict=True)
        own = tuple(_letter(p, next(more) if e == 1 else -1) for p, e in each)
        if -1 in own or len({*own}) < len(own):
            return None
        (source, by), (axis, dims) = operands(gather), params
        mask = given[0], tuple(sig.operands[0])
        along = tuple(plain(own[d]) for d in dims)
        read = _Read(mask, at == 1, source, by, axis, own, along)
        met = {d for p in (*mask[1], *along) for d, _ in p.terms} & reduced
        read.devices = {own[n]: e for n, e in enumerate(shape(source)) if own[n] in met}
        read.devices.pop(own[axis], None)
        return read

    def whole(self) -> Term | None:
        """The read of the whole table, its dims those of the gather but for devices."""
        inside = [x for x in postorder(self.by) if x.sort == VALUE and _is_whole(x)]
        for integers in list(dict.fromkeys(reversed(inside)))[:MOST_TRIED]:
            at = _Places(integers)
            try:
                order = self._decided(at)
            except _Other:
                continue
            if order is not None and at.coords is not None:
                return self._joined(integers, at.coords, order)
        return None

    def _decided(self, at: _Places) -> tuple[int, ...] | None:
        """The order of devices, slow to fast, in which they have the table's rows."""
        e = shape(self.source)[self.axis]
        n_devices = prod(self.devices.values())
        info = np.iinfo(DTYPES[value_type(type_of(at.integers)).dtype].numpy)
        n, few = n_devices * e, info.max - info.min < 1 << 16
        if (1 << 16 if few else 3 * n) * n_devices > MOST_ENTRIES or (n > info.max - n and not few):
            return None
        blocks = [(info.min, info.max)] if few else [
            (info.min, info.min + n), (0, n - 1), (info.max - n, info.max)
        ]  # fmt: skip
        ends = [] if few else [(info.min + n, -1), (n, info.max - n)]
        values = np.concatenate([np.arange(a, b + 1, dtype=info.dtype) for a, b in blocks])
        table = _Table(at, self.devices, values)
        takes = table.all(*self.mask) == self.taken
        row = table.all(self.by, self.along).astype(np.int64)
        outside = (row < 0) | (row >= e)
        mine = (values >= 0) & (values < n)
        if not (takes & outside)[~mine].any(1).all():
            return None
        for low, high in (end for end in ends if end[0] <= end[1]):
            bounds = _Bounds(at, self.devices, (low, high))
            chosen, (least, most) = bounds.of(*self.mask), bounds.of(self.by, self.along)
            certain = (chosen[0] == self.taken) & (chosen[1] == self.taken)
            if not (certain & ((most < 0) | (least >= e))).any():
                return None
        if not (takes[mine].sum(1) == 1).all():
            return None
        who, at_row = takes[mine].argmax(1), row[mine][takes[mine]]
        places = np.unravel_index(who, tuple(self.devices.values()) or (1,))
        for order in permutations(range(len(self.devices))):
            number = np.zeros(len(who), np.int64)
            for d in order:
                number = number * list(self.devices.values())[d] + places[d]
            inside = not outside[mine][takes[mine]].any()
            if inside and np.array_equal(number * e + at_row, values[mine]):
                return tuple(list(self.devices)[d] for d in order)
        return None

    def _joined(self, integers: Term, coords: Coords, order: Sequence[int]) -> Term | None:
        kept = [n for n, d in enumerate(self.letters) if d not in self.devices]
        at, parts = kept.index(self.axis), [self.letters.index(d) for d in order]
        dims = [*kept[:at], *parts, self.axis, *kept[at + 1 :]]
        turned = make([[plain(dims.index(d)) for d in range(len(dims))]], range(len(dims)))
        table = op(turned.text, "id", self.source)
        if parts:
            table = sel(join_text("merge", at, len(parts) + 1), table)
        letters = [self.letters[n] for n in kept]
        own = [_letter(p, -1) for p in coords if p.terms]
        if len({*own}) < len(own) or not set(own) <= set(letters):
            return None
        along = sorted(map(letters.index, own))
        images = {d: plain(along.index(letters.index(d))) for d in own}
        view = make([[p.substitute(images) for p in coords]], range(len(own)))
        found = sel(gather_text(at, along), table, op(view.text, "id", integers))
        return None if type_of.of(found) is None else found


def _letter(p: Affine, other: int) -> int:
    return other if p.plain is None else p.plain


def _is_whole(x: Term) -> bool:
    of = type_of.of(x)
    return isinstance(of, str) and DTYPES[value_type(of).dtype].kind == "i"


# -- functions of an integer and a device ----------------------------------------------------------


@dataclass
class _Places:
    """The value that integers are taken of, and how it is read: always alike.

    Attributes:
        integers: it.
        coords: how, as far as it was read.
    """

    integers: Term
    coords: Coords | None = None
    known: dict[Term, bool] = field(default_factory=dict)

    def is_in(self, term: Term) -> bool:
        """Whether a value is made of it."""
        for sub in postorder(term) if term not in self.known else ():
            if sub.sort == VALUE:
                given = () if sub.symbol is In else operands(sub)
                self.known[sub] = sub is self.integers or any(self.known[x] for x in given)
        return self.known[term]

    def read(self, coords: Coords) -> None:
        """Remember how it is read; raises _Other where otherwise than before."""
        if self.coords not in (None, coords):
            raise _Other
        self.coords = coords


@dataclass
class _Function:
    """Evaluates values as functions of an integer and a device.

    Attributes:
        at: what is the integer.
        devices: letters and extents that number devices.
    """

    at: _Places
    devices: Mapping[int, int]

    def of(self, term: Term, coords: Coords) -> Any:
        """A value, read at coordinates over letters; raises _Other where it is no such function."""
        if term is self.at.integers:
            self.at.read(coords)
            return self.integer()
        if not self.at.is_in(term):
            closed = elements(term)
            if closed is None:
                raise _Other
            return self.known(closed[self._picked(coords)])
        if term.symbol is not Op or signature(term.args[0]).n_reduced:
            raise _Other
        sig = signature(term.args[0])
        images = dict(enumerate(coords))
        given = [
            self.of(x, tuple(p.substitute(images) for p in operand))
            for x, operand in zip(operands(term), sig.operands, strict=True)
        ]
        return self.applied(term, given)

    def _picked(self, coords: Coords) -> tuple[Any, ...]:
        grid = np.indices(tuple(self.devices.values()))
        place = {d: n for n, d in enumerate(self.devices)}
        found = []
        for p in coords:
            if any(d not in place for d, _ in p.terms):
                raise _Other
            at = np.full(grid.shape[1:], p.offset, np.int64)
            for d, c in p.terms:
                at = at + c * grid[place[d]]
            found.append(at)
        return tuple(found)

    def integer(self) -> Any:
        """The integer itself."""
        raise NotImplementedError

    def known(self, values: Array) -> Any:
        """Values by device."""
        raise NotImplementedError

    def applied(self, term: Term, given: Sequence[Any]) -> Any:
        """An operator."""
        raise NotImplementedError


@dataclass
class _Table(_Function):
    """By these integers: arrays (integer, devices ..)."""

    values: Array

    def integer(self) -> Any:
        return self.values.reshape(-1, *[1] * len(self.devices))

    def known(self, values: Array) -> Any:
        return values[None]

    def all(self, term: Term, coords: Coords) -> Array:
        """A value by integers and devices."""
        return self._wide(self.of(term, coords)).reshape(len(self.values), -1)

    def _wide(self, values: Array) -> Array:
        return np.broadcast_to(values, (len(self.values), *self.devices.values()))

    def applied(self, term: Term, given: Sequence[Any]) -> Any:
        of = DTYPES[value_type(type_of(term)).dtype]
        whole = all(x.dtype.kind in "iub" for x in given)
        if split_text(term.args[1])[0] not in _BOUNDS or of.kind not in "ib" or not whole:
            raise _Other
        with np.errstate(all="ignore"):
            (found,) = cell_values(term.args[1], list(map(self._wide, given)))
        return found.astype(of.numpy)


@dataclass
class _Bounds(_Function):
    """For all integers between two: the least and the greatest value, by device."""

    ends: tuple[int, int]

    def integer(self) -> Any:
        shape_ = tuple(self.devices.values())
        return tuple(np.full(shape_, int(end), object) for end in self.ends)

    def known(self, values: Array) -> Any:
        if values.dtype.kind not in "iub":
            raise _Other
        wide = np.broadcast_to(values, tuple(self.devices.values())).astype(object)
        return wide, wide

    def applied(self, term: Term, given: Sequence[Any]) -> Any:
        of = value_type(type_of(term))
        name, _ = split_text(term.args[1])
        if name not in _BOUNDS or DTYPES[of.dtype].kind not in "ib":
            raise _Other
        fold = name in _FOLDED and len(given) > 1
        low, high = reduce(_BOUNDS[name], given) if fold else _BOUNDS[name](*given)
        if DTYPES[of.dtype].kind == "i":
            info = np.iinfo(DTYPES[of.dtype].numpy)
            if (low < info.min).any() or (high > info.max).any():
                raise _Other  # it wraps
        return low, high


def _ordered(*ways: Any) -> Any:
    return np.minimum.reduce(ways), np.maximum.reduce(ways)


def _if(c: Any, a: Any, b: Any) -> Any:
    low = np.where(c[0] == c[1], np.where(c[0] == 1, a[0], b[0]), np.minimum(a[0], b[0]))
    high = np.where(c[0] == c[1], np.where(c[0] == 1, a[1], b[1]), np.maximum(a[1], b[1]))
    return low, high


def _less(a: Any, b: Any, equal: bool) -> Any:
    """(surely, perhaps) a < b, or a <= b."""
    if equal:
        return a[1] <= b[0], a[0] <= b[1]
    return a[1] < b[0], a[0] < b[1]


_FOLDED = ("add", "mul", "maximum", "minimum", "and", "or")  # cells of any number of operands
_BOUNDS: dict[str, Any] = {
    "id": lambda a: a,
    "cast": lambda a: a,
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda a, b: _ordered(*(x * y for x in a for y in b)),
    "maximum": lambda a, b: (np.maximum(a[0], b[0]), np.maximum(a[1], b[1])),
    "minimum": lambda a, b: (np.minimum(a[0], b[0]), np.minimum(a[1], b[1])),
    "lt": lambda a, b: _less(a, b, False),
    "le": lambda a, b: _less(a, b, True),
    "gt": lambda a, b: _less(b, a, False),
    "ge": lambda a, b: _less(b, a, True),
    "and": lambda a, b: (a[0] & b[0], a[1] & b[1]),
    "or": lambda a, b: (a[0] | b[0], a[1] | b[1]),
    "not": lambda a: (a[1] == 0, a[0] == 0),
    "where": _if,
}

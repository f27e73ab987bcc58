"""Selectors through block operators: what a slice, pad, split or merge takes of the operands.

Pure functions; each returns None where the result would not mean the same. ``Pushed`` is a
signature and, per operand, the text of the selector that the operand needs, "" for none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from axe_eq.program import sigalg
from axe_eq.program.ops import join_text, keeps_equal, split_text
from axe_eq.program.signature import Affine, Signature, make, plain, signature
from axe_eq.program.types import DTYPES, ValueType
from axe_eq_rules.constants import Constant, exact_result, holds_value
from axe_eq_rules.selecting import Shape, keeps_all, slice_text, whole

Pushed = tuple[Signature, tuple[str, ...]]
Types = Sequence[ValueType]


def pushed(spec: str, sig: str, f: str, types: Types) -> Pushed | None:
    """The operator with the selector of its value done on its operands first."""
    name, params = split_text(spec)
    rule = {"slice": _sliced, "pad": _padded, "split": _split, "merge": _merged}.get(name)
    whole_sig = signature(sig)
    shape = whole_sig.out_shape([t.shape for t in types])
    if rule is None or keeps_all(spec, shape):
        return None
    return rule(params, whole_sig, f, types)


# -- slice ----------------------------------------------------------------------------------------


def _sliced(params: tuple[Any, ...], sig: Signature, f: str, types: Types) -> Pushed | None:
    extents = sig.extents([t.shape for t in types])
    parts = {d: whole(p, extents[d]) for d, p in enumerate(params[0]) if p is not None}
    after = [parts[d][2] if d in parts else e for d, e in enumerate(extents)]
    operands, specs = [], []
    for operand, of in zip(sig.operands, types, strict=True):
        axes = [_slice_axis(p, parts, after, e) for p, e in zip(operand, of.shape, strict=True)]
        if any(axis is None for axis in axes):
            return None
        operands.append(tuple(q for q, _ in axes if q is not None))  # type: ignore[misc]
        spec = slice_text((part for _, part in axes), of.shape)  # type: ignore[misc]
        specs.append("" if keeps_all(spec, of.shape) else spec)
    # A slice with steps of 0 repeats one index: what a window reads there, no dim reads any more.
    read = {d for operand in operands for d in sigalg.dims_of(operand)}
    fixed = {d: after[d] for d in range(sig.n_dims) if d in dict(sig.fixed) or d not in read}
    return sigalg.rebuild(sig, operands, fixed=fixed), tuple(specs)


def _slice_axis(
    p: Affine, parts: Mapping[int, tuple[int, int, int]], after: Sequence[int], extent: int
) -> tuple[Affine, tuple[int, int, int]] | None:
    """Projection and part of one operand dim once its index dims are sliced."""
    if not any(d in parts for d, _ in p.terms):
        return p, (0, 1, extent)
    if p.plain is not None:
        return p, parts[p.plain]
    images = {
        d: Affine.of({d: parts[d][1]}, parts[d][0]) if d in parts else plain(d) for d, _ in p.terms
    }
    moved = p.substitute(images)
    moved = Affine(tuple((d, c) for d, c in moved.terms if c > 0 or after[d] > 1), moved.offset)
    if any(c < 0 for _, c in moved.terms):
        return None
    span = sum(c * (after[d] - 1) for d, c in moved.terms)
    return Affine(moved.terms), (moved.offset, 1, span + 1)


# -- pad ------------------------------------------------------------------------------------------


def _padded(params: tuple[Any, ...], sig: Signature, f: str, types: Types) -> Pushed | None:
    widths = {d: w for d, w in enumerate(params[0]) if w != (0, 0)}
    reads = [_pad_axes(operand, widths) for operand in sig.operands]
    if any(axes is None for axes in reads) or any(d in widths for d, _ in sig.fixed):
        return None
    # Outside an operand must be constant; one that lacks some of the padded dims is not.
    cover = [widths.keys() & sigalg.dims_of(operand) for operand in sig.operands]
    if any(dims and dims != widths.keys() for dims in cover):
        return None
    touched = [bool(dims) for dims in cover]
    values = _fixpoint(f, sig.monoid, params[1], types, touched)
    if values is None:
        return None
    specs = [
        join_text("pad", axes, v) if t else ""
        for axes, v, t in zip(reads, values, touched, strict=True)
    ]
    return sig, tuple(specs)


def _pad_axes(
    operand: tuple[Affine, ...], widths: Mapping[int, tuple[int, int]]
) -> tuple[tuple[int, int], ...] | None:
    if any(p.plain is None and any(d in widths for d, _ in p.terms) for p in operand):
        return None
    return tuple(widths.get(-1 if p.plain is None else p.plain, (0, 0)) for p in operand)


def _fixpoint(
    f: str, monoid: str, value: Any, types: Types, touched: Sequence[bool]
) -> list[Any] | None:
    """Constants of the touched operands on which cell and reduction give `value`."""
    if monoid and not (keeps_equal(monoid) or (monoid == "+" and repr(value) in ("0", "0.0"))):
        return None
    # A condition that is not padded decides between equal values.
    free = [n for n, t in enumerate(touched) if not t]
    if free and not (split_text(f)[0] == "where" and free == [0]):
        return None
    choices = [
        _candidates(value, t) if hit else [True] for t, hit in zip(types, touched, strict=True)
    ]
    for values in product(*choices):
        found = exact_result(f, [(v, t.dtype) for v, t in zip(values, types, strict=True)])
        if found is not None and _same(found, value):
            return list(values)
    return None


def padded_factors(spec: str, sig: Signature, types: Types) -> tuple[str, ...] | None:
    """Zero paddings of the factors of a product whose value is padded with zeros; "" for none.

    Each padded dim must be read by a factor, and only plainly.
    """
    name, params = split_text(spec)
    if name != "pad" or params[1] != 0 or sig.monoid not in ("", "+"):
        return None
    widths = {d: w for d, w in enumerate(params[0]) if w != (0, 0)}
    if not widths or any(d in widths for d, _ in sig.fixed):
        return None
    if not widths.keys() <= sigalg.plain_dims(sig):
        return None
    specs = []
    for operand, of in zip(sig.operands, types, strict=True):
        axes = _pad_axes(operand, widths)
        if axes is None:
            return None
        zero = 0.0 if DTYPES[of.dtype].kind == "f" else 0
        padded = any(width != (0, 0) for width in axes)
        specs.append(join_text("pad", axes, zero) if padded else "")
    return tuple(specs)


def _candidates(value: Any, of: ValueType) -> list[Any]:
    """Constants to pad an operand with, each once."""
    found = [float(v) if DTYPES[of.dtype].kind == "f" else v for v in (value, 0, 1)]
    return [
        v
        for v in dict(zip(map(repr, found), found, strict=True)).values()
        if holds_value(of.dtype, v)
    ]


def _same(found: Constant, value: Any) -> bool:
    """Whether a constant is a number, the sign of zero included."""
    wanted = np.asarray(value).astype(DTYPES[found[1]].numpy)
    return np.asarray(found[0]).astype(wanted.dtype).tobytes() == wanted.tobytes()


# -- split and merge ------------------------------------------------------------------------------


def _split(params: tuple[Any, ...], sig: Signature, f: str, types: Types) -> Pushed | None:
    axis, factors = params
    count = len(factors)
    extent = sig.extents([t.shape for t in types])[axis]
    first = extent // math.prod(factors[1:])
    expanded = _expanded(sig, axis, (first, *factors[1:]))
    if expanded is None:
        return None
    specs = [_split_text(operand, axis, factors) for operand in sig.operands]
    return (expanded, tuple(specs)) if count > 1 else None


def _split_text(operand: tuple[Affine, ...], dim: int, factors: tuple[int, ...]) -> str:
    places = [n for n, p in enumerate(operand) if p.plain == dim]
    return join_text("split", places[0], factors) if places else ""


def _expanded(sig: Signature, dim: int, extents: Sequence[int]) -> Signature | None:
    """The signature with one index dim, read plainly and once, replaced by several."""
    for operand in sig.operands:
        reads = [p for p in operand if any(d == dim for d, _ in p.terms)]
        if len(reads) > 1 or any(p.plain is None for p in reads):
            return None
    added = len(extents) - 1
    new = {d: d if d < dim else d + added for d in range(sig.n_dims)}
    images = {d: plain(e) for d, e in new.items()}
    mine = list(range(dim, dim + added + 1))
    operands = [
        [
            q
            for p in operand
            for q in (map(plain, mine) if p.plain == dim else [p.substitute(images)])
        ]
        for operand in sig.operands
    ]
    spread = {d: mine if d == dim else [e] for d, e in new.items()}
    out = [e for d in range(sig.n_out) for e in spread[d]]
    reduced = [e for d in sig.reduced for e in spread[d]]
    fixed = {new[d]: e for d, e in sig.fixed if d != dim}
    if dim in dict(sig.fixed):
        fixed |= dict(zip(mine, extents, strict=True))
    return make(operands, out, sig.monoid, reduced, fixed)


def _merged(params: tuple[Any, ...], sig: Signature, f: str, types: Types) -> Pushed | None:
    first, count = params
    extents = sig.extents([t.shape for t in types])
    mine = list(range(first, first + count))
    read = [sorted({d for d in sigalg.dims_of(op) if d in mine}) for op in sig.operands]
    # Unit dims that an operand lacks do not matter.
    long = [d for d in mine if extents[d] > 1]
    for operand, dims in zip(sig.operands, read, strict=True):
        axes = [n for n, p in enumerate(operand) if any(d in mine for d, _ in p.terms)]
        if not dims:
            continue
        adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
        if not adjacent or [operand[n].plain for n in axes] != dims or not set(long) <= set(dims):
            return None
    return _contracted(sig, mine, read, math.prod(extents[d] for d in mine))


def _contracted(
    sig: Signature, mine: list[int], read: list[list[int]], extent: int
) -> Pushed | None:
    """The signature with adjacent output dims replaced by one."""
    first, gone = mine[0], len(mine) - 1
    images = {
        d: plain(first if d in mine else d if d < first else d - gone) for d in range(sig.n_dims)
    }
    operands, specs = [], []
    for operand, dims in zip(sig.operands, read, strict=True):
        axes = [n for n, p in enumerate(operand) if p.plain in dims] if dims else []
        kept = [p.substitute(images) for n, p in enumerate(operand) if n not in axes[1:]]
        operands.append(kept)
        specs.append(join_text("merge", axes[0], len(axes)) if len(axes) > 1 else "")
    fixed = {images[d].terms[0][0]: e for d, e in sig.fixed if d not in mine}
    fixed[first] = extent
    reduced = [d - gone for d in sig.reduced]
    return make(operands, range(sig.n_out - gone), sig.monoid, reduced, fixed), tuple(specs)


def merged_operand(
    sig: Signature, position: int, spec: str, shape: Shape
) -> tuple[Signature, str, tuple[str, ...]] | None:
    """The operator on the operand before its merge, of this shape.

    Returns:
        The signature, the merge its value needs ("" if the merged dim is reduced), and the splits
        the other operands need.
    """
    name, params = split_text(spec)
    if name != "merge" or params[1] < 2:
        return None
    axis, count = params
    dim = sig.operands[position][axis].plain
    extents = shape[axis : axis + count]
    expanded = None if dim is None else _expanded(sig, dim, extents)
    if expanded is None or dim is None:
        return None
    factors = (-1, *extents[1:])
    splits = [_split_text(op, dim, factors) for op in sig.operands]
    splits[position] = ""
    wrap = join_text("merge", dim, count) if dim < sig.n_out else ""
    return expanded, wrap, tuple(splits)


# -- joined operands ------------------------------------------------------------------------------


def joined_dim(sig: Signature, position: int, axis: int) -> int | None:
    """The index dim along which an operand is joined, if all read it plainly and once."""
    dim = sig.operands[position][axis].plain
    if dim is None:
        return None
    for operand in sig.operands:
        reads = [p for p in operand if any(d == dim for d, _ in p.terms)]
        if len(reads) > 1 or any(p.plain is None for p in reads):
            return None
    return dim


def parts_of_operands(
    sig: Signature, dim: int, position: int, types: Types, extent: int
) -> list[tuple[str, str]]:
    """Per operand the slices before and after `extent` along the dim; "" where it lacks the dim."""
    found = []
    for n, (operand, of) in enumerate(zip(sig.operands, types, strict=True)):
        axes = [a for a, p in enumerate(operand) if p.plain == dim]
        if not axes or n == position:
            found.append(("", ""))
            continue
        ends = ((0, 1, extent), (extent, 1, of.shape[axes[0]] - extent))
        a, b = (
            slice_text((e if d == axes[0] else None for d in range(len(of.shape))), of.shape)
            for e in ends
        )
        found.append((a, b))
    return found


# -- split operands --------------------------------------------------------------------------------


def unsplit(sig: Signature, specs: Sequence[str]) -> Signature | None:
    """The operator on its first operands before these splits, if all their factors are reduced.

    No other operand may read the factors, and these must read them as the whole split.
    """
    axes: list[tuple[int, int]] = []
    for name, params in map(split_text, specs):
        if name != "split" or len(params[1]) < 2:
            return None
        axes.append((params[0], len(params[1])))
    factors = {
        _factors(operand, *place) for operand, place in zip(sig.operands, axes, strict=False)
    }
    mine = factors.pop()
    if factors or len(set(mine)) < len(mine) or not all(d in sig.reduced for d in mine):
        return None
    operands = list(sig.operands)
    for n, (axis, count) in enumerate(axes):
        operands[n] = (*operands[n][:axis], *operands[n][axis + count :])
    if any(d in mine for operand in operands for d in sigalg.dims_of(operand)):
        return None
    for n, (axis, _) in enumerate(axes):
        operands[n] = (*operands[n][:axis], plain(mine[0]), *operands[n][axis:])
    return sigalg.rebuild(sig, operands, reduced=[d for d in sig.reduced if d not in mine[1:]])


def _factors(operand: tuple[Affine, ...], axis: int, count: int) -> tuple[int, ...]:
    """The index dims that read a split's factors; -1 where one is not read plainly."""
    return tuple(-1 if p.plain is None else p.plain for p in operand[axis : axis + count])

"""How far rounding may move each element of a program's results, to first order.

A tolerance of the largest result says too little of sums of large numbers that cancel, of sines of
large numbers, and of products whose parts overflow in some order. Here errors go through a program
element by element: each operator adds its own rounding in the program's types, and what its
operands are off by moves it as it moves the function. Reductions err with the number and the size
of their terms (Higham, Accuracy and Stability of Numerical Algorithms, 3.1 and 4.2, any order).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from axe_eq.program.meaning import cell_values, evaluate_nodes, evaluate_sel, index_views
from axe_eq.program.node import INPUT, OP, SEL, Node
from axe_eq.program.ops import cell
from axe_eq.program.signature import signature
from axe_eq.program.types import DTYPES, Array
from axe_eq.prove.certificates.rebuild import in_float64

ULPS = 4.0  # of one operator
PARTS = (1.0, 0.37, 0.0625)  # of an error, by which an operand is moved
MOST_POINTS = 1 << 26  # of an operator's index space; larger ones are taken to be exact


def bounds(nodes: Sequence[Node], given: Mapping[str, Array]) -> dict[Node, Array]:
    """An absolute error per element of every node; inf where rounding may decide all.

    What is not known (scans, reductions of pairs, contractions of more than `MOST_POINTS`) adds no
    error, so a judge stays strict there.

    Args:
        nodes: of a program, operands first.
        given: inputs and constants by name, floats in float64.
    """
    widened = in_float64(nodes)
    errors: dict[Node, Array] = {}
    with np.errstate(all="ignore"):
        found = evaluate_nodes(widened, given)
        values = {n: found[w] for n, w in zip(nodes, widened, strict=True)}
        for node, wide in zip(nodes, widened, strict=True):
            off = np.zeros(node.shape)
            if node.kind != INPUT:
                arrays, before = [values[a] for a in node.args], [errors[a] for a in node.args]
                if node.kind == SEL:
                    off = _moved(partial(_selected, wide.text), arrays, before)
                elif node.kind == OP:
                    off = _of_operator(node, wide, arrays, before)
            # Infinities are what they are: only a number has an error.
            errors[node] = np.broadcast_to(np.where(np.isnan(off), 0.0, off), node.shape)
    return errors


def _selected(text: str, *arrays: Array) -> Array:
    return evaluate_sel(text, arrays)


def _of_operator(node: Node, wide: Node, arrays: Sequence[Array], errors: Sequence[Array]) -> Array:
    sig = signature(node.text)
    space = sig.extents([a.shape for a in arrays])
    if prod(space) > MOST_POINTS:
        return np.zeros(node.shape)
    views, offs = index_views(sig, arrays, space), index_views(sig, errors, space)
    declared = cell(node.cell)[0]
    if declared.n_values > 1:
        return np.zeros(node.shape)

    def computed(*operands: Array) -> Array:
        return np.asarray(cell_values(wide.cell, operands)[0])

    terms = computed(*views)
    off = _moved(computed, views, offs)
    kind = DTYPES[node.dtype]
    unit = _unit(node.dtype) if kind.kind == "f" else 0.0
    if not sig.monoid:
        own = ULPS * unit * _size(terms) if unit and declared.rounds else 0.0
        return np.broadcast_to(off + own, node.shape)  # some dims may be read by no operand
    full = (*node.shape, *(space[d] for d in sig.reduced))
    axes = tuple(sig.reduced)
    terms, off = np.broadcast_to(terms, full), np.broadcast_to(off, full)
    if unit and declared.rounds:
        off = off + ULPS * _unit(kind.accumulate) * _size(terms)
    total = _reduced(sig.monoid, terms, off, axes, kind.accumulate if unit else "")
    if unit:
        total = total + unit * _size(_value(sig.monoid, terms, axes))
    return total


def _reduced(monoid: str, terms: Array, off: Array, axes: tuple[int, ...], acc: str) -> Array:
    """The error of a reduction in any order."""
    if monoid in ("max", "min"):
        fold = np.maximum.reduce if monoid == "max" else np.minimum.reduce
        was = fold(terms, axis=axes)
        ends = (fold(terms + off, axis=axes), fold(terms - off, axis=axes))
        return np.asarray(np.maximum(*(_apart(end, was) for end in ends)))
    if monoid not in ("+", "*") or not acc:
        return np.zeros(terms.shape[: terms.ndim - len(axes)])
    size = np.abs(terms)
    n = prod(terms.shape[a] for a in axes) * _unit(acc)
    most, least = _ends(acc)
    if monoid == "+":
        whole = size.sum(axis=axes)
        return np.where(np.isfinite(whole) & (whole > most), np.inf, off.sum(axis=axes) + n * whole)
    whole = size.prod(axis=axes)
    found = (size + off).prod(axis=axes) - whole + n * whole
    above = np.log2(np.maximum(size, 1.0)).sum(axis=axes)
    below = np.log2(np.where(size > 0, np.minimum(size, 1.0), 1.0)).sum(axis=axes)
    overflows = (above > np.log2(most)) & ((size < 1).any(axis=axes))
    underflows = (below < np.log2(least)) & (above > 0)
    return np.where(overflows | underflows, np.inf, found)


def _value(monoid: str, terms: Array, axes: tuple[int, ...]) -> Array:
    fold = {"+": np.add, "*": np.multiply, "max": np.maximum, "min": np.minimum}.get(monoid)
    return np.zeros(()) if fold is None else np.asarray(fold.reduce(terms, axis=axes))


def _moved(fn: Callable[..., Array], arrays: Sequence[Array], errors: Sequence[Array]) -> Array:
    """How far a function moves where its operands do: one at a time, or all, if that is further.

    Moves of a part are scaled up: a sine is where it was after a period. A square of what is 0 but
    for rounding moves only where both of its operands do.
    """
    was = np.asarray(fn(*arrays))
    moving = [at for at, off in enumerate(errors) if off.any()]

    def far(which: Sequence[int]) -> Array:
        found = np.zeros(was.shape)
        for sign in (1, -1):
            most = np.zeros(was.shape)
            for part in PARTS:
                changed = list(arrays)
                for at in which:
                    changed[at] = _shifted(arrays[at], sign * part * errors[at])
                most = np.maximum(most, _apart(np.asarray(fn(*changed)), was) / part)
            found = found + most
        return found

    alone = sum((far([at]) for at in moving), np.zeros(was.shape))
    return np.maximum(alone, far(moving)) if len(moving) > 1 else alone


def _shifted(array: Array, by: Array) -> Array:
    if array.dtype.kind == "b":
        return np.asarray(array ^ (by != 0))
    if array.dtype.kind in "iu":
        return np.asarray(array + np.where(np.isfinite(by), np.rint(by), 1).astype(array.dtype))
    return np.where(np.isinf(by), np.nan, array + by)  # what may be anything may be NaN


def _apart(a: Array, b: Array) -> Array:
    """Distances: 0 of equal infinities and of NaN from NaN, inf of what is not both a number."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    apart = np.where(same, 0.0, np.abs(x - y))
    return np.where(np.isnan(apart), np.inf, apart)


def _size(array: Array) -> Array:
    return np.where(np.isfinite(array), np.abs(array), 0.0)


def _unit(dtype: str) -> float:
    """Half the distance from 1 to the next number."""
    return float(_info(dtype).eps) / 2


def _ends(dtype: str) -> tuple[float, float]:
    return float(_info(dtype).max), float(_info(dtype).tiny)


def _info(dtype: str) -> Any:
    import ml_dtypes

    finfo: Any = ml_dtypes.finfo
    return finfo(DTYPES[dtype].numpy)

"""What programs mean over the reals, on samples: values, and where they are undefined.

Inputs are finite, constants what their type holds, infinities computed with as IEEE 754 does. What
would be NaN is undefined, and so are poles: infinite results of finite operands, as of 1/0 and
log(0). An operator is undefined where an operand is, a comparison too; a choice only needs its
condition and the branch it takes. Everything is computed in float64, so an overflow or an underflow
tells nothing: such values are *lost*, and nothing is said of them.

This is the oracle by which laws and proofs are attacked. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from axe_eq.program import places
from axe_eq.program.gathers import looks, misplaced, over_value
from axe_eq.program.meaning import cell_values, evaluate_node, index_views, moved
from axe_eq.program.node import INPUT, OP, SCAN, Node, topological
from axe_eq.program.ops import cell, scan
from axe_eq.program.signature import signature
from axe_eq.program.types import Array
from axe_eq.prove.programs.marks import any_of, before, full_shape, integer_poles, over, reached

TOLERANCE = 1e-9
# Operands of this size neither overflow nor underflow in one operator: an infinite result of such
# is a pole, not an overflow.
_MODERATE = (1e-30, 100.0)
_LEAST = 1e-280
_SATURATED = 5.0  # tanh of more is close to 1


@dataclass(frozen=True)
class Real:
    """An array over the reals.

    Attributes:
        values: float64, integers or bools; anything where undefined.
        undefined: where nothing is.
        lost: where float64 says nothing.
    """

    values: Array
    undefined: Array
    lost: Array


def real(values: Array) -> Real:
    """An input: undefined where it is NaN."""
    none = np.zeros(values.shape, bool)
    nan = np.isnan(values) if values.dtype.kind == "f" else none
    return Real(values, nan, none)


def evaluate_reals(roots: Sequence[Node], inputs: Mapping[str, Real]) -> dict[Node, Real]:
    """Values of every node the roots reach.

    Args:
        roots: nodes whose floating types are all f64 (`rebuild.in_float64`).
        inputs: by name.
    """
    found: dict[Node, Real] = {}
    with np.errstate(all="ignore"):
        for node in topological(roots):
            operands = [found[a] for a in node.args]
            if node.kind == INPUT:
                found[node] = inputs[node.text]
            elif node.kind == OP:
                found[node] = _operator(node, operands)
            elif node.kind == SCAN:
                found[node] = _scan(node, operands)
            else:
                found[node] = _selector(node, operands)
    return found


def _operator(node: Node, operands: Sequence[Real]) -> Real:
    given = [x.values for x in operands]
    values, sig = evaluate_node(node, given), signature(node.text)
    views = index_views(sig, given)
    full = full_shape(views)
    pole, beyond = (over(sig, marks, full) for marks in _of_cell(node.cell, views))
    bad, gone = _reached(node, operands)
    bad, gone = bad | pole, gone | beyond
    if values.dtype.kind == "f":
        bad, infinite = bad | np.isnan(values), np.isinf(values)
        if infinite.any():
            gone = gone | infinite & ~bad & ~over(sig, _infinite(views), full)
    return Real(values, bad & ~gone, gone)


def _reached(node: Node, operands: Sequence[Real]) -> tuple[Array, Array]:
    """Where what is undefined, and what is lost, reaches a value."""
    given = [x.values for x in operands]
    undefined = reached(node, given, [x.undefined for x in operands])
    return undefined, reached(node, given, [x.lost for x in operands])


def _scan(node: Node, operands: Sequence[Real]) -> Real:
    """Marks of what any element before has; a small value of large ones may be an underflow."""
    monoid, _ = scan(node.text)
    values = evaluate_node(node, [x.values for x in operands])
    bad, gone = _reached(node, operands)
    if values.dtype.kind == "f":
        bad = bad | np.isnan(values)
        infinite = before(node, [np.asarray(_infinite([x.values])) for x in operands])
        zero = before(node, [x.values == 0 for x in operands])
        gone = gone | np.isinf(values) & ~bad & ~infinite
        gone = gone | (np.abs(values) < _LEAST) & ~zero & (not monoid.exact)
    return Real(values, bad & ~gone, gone)


def _infinite(views: Sequence[Array]) -> Array:
    found = [np.isinf(v) if v.dtype.kind == "f" else np.zeros(v.shape, bool) for v in views]
    return any_of(found)


def _of_cell(text: str, views: Sequence[Array]) -> tuple[Array, Array]:
    """Where a cell has a pole or no value, and where float64 is not the reals."""
    declared, _ = cell(text)
    none = np.zeros(full_shape(views), bool)
    if declared.n_values > 1 or declared.result == "bool":
        return none, none
    found = cell_values(text, views)[0]
    if found.dtype.kind != "f":
        return integer_poles(text, views), none
    sizes = [np.abs(v.astype(np.float64)) for v in views]
    finite = ~_infinite(views)
    ends, tiny = np.isinf(found) & finite, (np.abs(found) < _LEAST) & finite
    undefined, lost = none | np.isnan(found), none
    if ends.any() or tiny.any():
        low, high = _MODERATE
        moderate = none | True
        for size in sizes:
            moderate = moderate & ((size == 0) | ((size > low) & (size < high)))
        undefined, lost = undefined | ends & moderate, (ends | tiny) & ~moderate
    if declared.rounds and not declared.jumps:
        lost = lost | (np.abs(found) == 1) & any_of([size > _SATURATED for size in sizes]) & finite
    if not finite.all():  # a pole beside an infinity is one too: inf / 0
        near = [np.where(np.isinf(v), np.sign(v), v) if v.dtype.kind == "f" else v for v in views]
        undefined = undefined | np.isinf(cell_values(text, near)[0]) & ~finite & np.isinf(found)
    return undefined, lost


def _selector(node: Node, operands: Sequence[Real]) -> Real:
    given = [x.values for x in operands]
    values = moved(node.text, given)
    if not operands:
        return real(values)
    undefined, lost = _reached(node, operands)
    # What is read where integers say is undefined where they are no index; and so is a NaN that a
    # selector fills in.
    types, rank = [a.type for a in node.args], len(node.shape)
    found = looks(node.text, types)
    rows = places.pulls(node.text, types) if found else []
    for look in found:
        extent = types[look.operand].shape[look.dim]
        undefined = undefined | over_value(rows[look.by], misplaced(given[look.by], extent), rank)
    if not found and values.dtype.kind == "f":
        undefined = undefined | np.isnan(values)
    return Real(values, undefined & ~lost, lost)


def difference_over_reals(a: Real, b: Real, tolerance: float = TOLERANCE) -> str | None:
    """What differs between two results over the reals, where neither is lost."""
    known = ~(a.lost | b.lost)
    if (known & (a.undefined != b.undefined)).any():
        return "its sides are not defined at the same places"
    there = known & ~a.undefined & ~b.undefined
    if a.values.dtype.kind in "iub":
        return "its sides differ" if (there & (a.values != b.values)).any() else None
    far = apart(a.values, b.values, tolerance)
    return "its sides differ over the reals" if (there & far).any() else None


def apart(a: Array, b: Array, tolerance: float = TOLERANCE) -> Array:
    """Where values differ by more than roundings."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    scale = np.maximum(np.maximum(np.abs(x), np.abs(y)), 1.0)
    with np.errstate(invalid="ignore"):
        return np.asarray((x != y) & ~(np.abs(x - y) <= tolerance * scale))

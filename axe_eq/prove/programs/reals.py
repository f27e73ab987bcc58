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
from axe_eq.program.ops import Look, cell, scan, selector
from axe_eq.program.signature import Signature, signature
from axe_eq.program.types import Array

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
    values = evaluate_node(node, [x.values for x in operands])
    sig = signature(node.text)
    space = sig.extents([x.values.shape for x in operands])
    views = index_views(sig, [x.values for x in operands], space)
    undefined, lost = (
        index_views(sig, marks, space)
        for marks in ([x.undefined for x in operands], [x.lost for x in operands])
    )
    full = np.broadcast_shapes(*(v.shape for v in views))
    bad, gone = _strict(node.cell, views, undefined), _strict(node.cell, views, lost)
    pole, beyond = _of_cell(node.cell, views)
    bad, gone = _over(sig, bad | pole, full), _over(sig, gone | beyond, full)
    bad, gone = (np.broadcast_to(m, node.shape) for m in (bad, gone))
    if values.dtype.kind == "f":
        bad = bad | np.isnan(values)
        gone = gone | np.isinf(values) & ~bad & ~_over(sig, _infinite(views), full)
    return Real(values, bad & ~gone, gone)


def _scan(node: Node, operands: Sequence[Real]) -> Real:
    """Marks of what any element before has; a small value of large ones may be an underflow."""
    monoid, axis = scan(node.text)
    values = evaluate_node(node, [x.values for x in operands])

    def before(marks: Sequence[Array]) -> Array:
        both = np.logical_or.reduce(np.broadcast_arrays(*marks)) if len(marks) > 1 else marks[0]
        return np.asarray(np.logical_or.accumulate(both, axis=axis))

    bad, gone = before([x.undefined for x in operands]), before([x.lost for x in operands])
    if values.dtype.kind == "f":
        bad = bad | np.isnan(values)
        infinite = before([np.asarray(_infinite([x.values])) for x in operands])
        zero = before([x.values == 0 for x in operands])
        gone = gone | np.isinf(values) & ~bad & ~infinite
        gone = gone | (np.abs(values) < _LEAST) & ~zero & ~monoid.exact
    return Real(values, bad & ~gone, gone)


def _strict(text: str, views: Sequence[Array], marks: Sequence[Array]) -> Array:
    """Where a mark of an operand reaches a cell."""
    if cell(text)[0].result == "last":
        return marks[0] | np.where(views[0], marks[1], marks[2])
    return np.logical_or.reduce(np.broadcast_arrays(*marks)) if len(marks) > 1 else marks[0]


def _infinite(views: Sequence[Array]) -> Array:
    found = [np.isinf(v) if v.dtype.kind == "f" else np.zeros(v.shape, bool) for v in views]
    return np.logical_or.reduce(np.broadcast_arrays(*found)) if len(found) > 1 else found[0]


def _of_cell(text: str, views: Sequence[Array]) -> tuple[Array, Array]:
    """Where a cell has a pole or no value, and where float64 is not the reals."""
    declared, _ = cell(text)
    none = np.zeros(np.broadcast_shapes(*(v.shape for v in views)), bool)
    if declared.n_values > 1 or declared.result == "bool":
        return none, none
    found = cell_values(text, views)[0]
    if found.dtype.kind != "f":
        if found.dtype.kind == "b" or declared.result != "number":
            return none, none
        wide = cell_values(text, [v.astype(np.float64) for v in views])[0]
        return none | ~np.isfinite(wide), none  # of integers: a division by zero
    sizes = [np.abs(v.astype(np.float64)) for v in np.broadcast_arrays(*views)]
    finite = ~_infinite(views)
    low, high = _MODERATE
    moderate = np.logical_and.reduce([(a == 0) | ((a > low) & (a < high)) for a in sizes])
    large = np.logical_or.reduce([a > _SATURATED for a in sizes])
    ends = np.isinf(found) & finite
    tiny = (np.abs(found) < _LEAST) & finite & ~moderate
    # A pole beside an infinity is one too: inf / 0.
    near = [np.where(np.isinf(v), np.sign(v), v) if v.dtype.kind == "f" else v for v in views]
    beside = np.isinf(cell_values(text, near)[0])
    one = (np.abs(found) == 1) & large if declared.rounds and not declared.jumps else none
    undefined = np.isnan(found) | ends & moderate | beside & ~finite & np.isinf(found)
    return none | undefined, none | ends & ~moderate | tiny | one & finite


def _over(sig: Signature, marks: Array, full: tuple[int, ...]) -> Array:
    """Marks of what a reduction makes of marked cells."""
    whole = np.broadcast_to(marks, full)
    if not sig.n_reduced:
        return whole
    return np.asarray(whole.any(axis=tuple(range(sig.n_out, whole.ndim))))


def _selector(node: Node, operands: Sequence[Real]) -> Real:
    values = moved(node.text, [x.values for x in operands])
    if not operands:
        return real(values)
    found = looks(node.text, [a.type for a in node.args])
    if found:
        return _gather(node, operands, found)
    marks = (
        np.isnan(_moved(node, [getattr(x, name) for x in operands]))
        for name in ("undefined", "lost")
    )
    undefined, lost = marks
    filled = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    return Real(values, undefined | filled & ~lost, lost)


def _gather(node: Node, operands: Sequence[Real], found: Sequence[Look]) -> Real:
    """What is read where integers say is undefined where they are, or are no index."""
    given, rank = [x.values for x in operands], len(node.shape)
    rows = places.pulls(node.text, [a.type for a in node.args])
    says = {look.by for look in found}

    def marked(name: str) -> Array:
        marks = [
            x.values if n in says else np.where(getattr(x, name), np.nan, 0.0)
            for n, x in enumerate(operands)
        ]
        own = np.isnan(moved(node.text, marks))
        for by in says:
            own = own | over_value(rows[by], getattr(operands[by], name), rank)
        return np.asarray(own)

    undefined, lost = marked("undefined"), marked("lost")
    for look in found:
        extent = node.args[look.operand].shape[look.dim]
        undefined = undefined | over_value(rows[look.by], misplaced(given[look.by], extent), rank)
    return Real(moved(node.text, given), undefined & ~lost, lost)


def _moved(node: Node, marks: Sequence[Array]) -> Array:
    """NaN where a selector puts what is marked; what it fills is not marked, unless it is NaN."""
    given = [np.where(m, np.nan, 0.0) for m in marks]
    declared, params = selector(node.text)
    return np.asarray(declared.run(params, given), dtype=np.float64)


def difference_over_reals(a: Real, b: Real, tolerance: float = TOLERANCE) -> str | None:
    """What differs between two results over the reals, where neither is lost."""
    known = ~(a.lost | b.lost)
    if (known & (a.undefined != b.undefined)).any():
        return "its sides are not defined at the same places"
    there = known & ~a.undefined & ~b.undefined
    if a.values.dtype.kind in "iub":
        return "its sides differ" if (there & (a.values != b.values)).any() else None
    x, y = a.values.astype(np.float64), b.values.astype(np.float64)
    scale = np.maximum(np.maximum(np.abs(x), np.abs(y)), 1.0)
    with np.errstate(invalid="ignore"):
        apart = (x != y) & ~(np.abs(x - y) <= tolerance * scale)
    return "its sides differ over the reals" if (there & apart).any() else None

"""Enclosures of program outputs over the reals, whole or only at chosen indices.

A backward pass finds which elements of every value the wanted outputs depend on; a forward pass
evaluates only those, in interval arithmetic. One output row of a large matrix product then costs
one row, so programs are compared at their own shapes. Where the inputs depend on few classes of
indices (`axe_eq.prove.programs.lifted`), so does every value, and one index of each class is
evaluated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from axe_eq.deadline import check_deadline
from axe_eq.errors import AxeError, SearchError, Signal, foreign
from axe_eq.program import places
from axe_eq.program.gathers import looks, misplaced, over_value
from axe_eq.program.interval import (
    ENCLOSE_MONOID,
    WRAPS,
    Interval,
    contract,
    literal,
    point,
    together,
    undefined,
    within,
    wrapped,
)
from axe_eq.program.interval.arithmetic import multiply
from axe_eq.program.meaning import bind_inputs, operand_view
from axe_eq.program.node import INPUT, OP, SCAN, Node, Program, dtype_by_rule, topological
from axe_eq.program.ops import MONOIDS, cell, constant_of, scan, selector
from axe_eq.program.signature import Affine, Signature, signature
from axe_eq.program.types import DTYPES, Array
from axe_eq.prove.programs.region import (
    Region,
    Source,
    along,
    check_size,
    index_space,
    is_empty,
    is_whole,
    look_needs,
    nothing_of,
    op_needs,
    read,
    sel_sources,
    size,
    union,
    whole,
)

Given = Callable[[Node, Region], Interval]
Constants = Mapping[tuple[str, str], Interval]
"""Of a selector's text and element type: what its constant is taken for."""

# A multiply-add inside a matrix product costs about this part of one interval operation.
_CONTRACTED = 1 / 256
_PER_NODE = 2000  # interval operations that the bookkeeping of one node costs


@dataclass(frozen=True)
class Plan:
    """What to evaluate for a region of every output.

    Attributes:
        outputs: the wanted values, with repetitions where a program has them.
        wanted: per output, the wanted region.
        regions: of every value they depend on, the part to evaluate.
        cost: interval operations, about 50 ns each.
        alike: from this index of every dim on, indices are one class, evaluated once: the plan is
            good for inputs that are equal there.
    """

    outputs: tuple[Node, ...]
    wanted: tuple[Region, ...]
    regions: dict[Node, Region]
    cost: float
    alike: int | None = None


def plan(outputs: Sequence[Node], wanted: Sequence[Region], limit: float = math.inf) -> Plan:
    """Find what the wanted regions of the outputs depend on.

    Args:
        outputs: values.
        wanted: a region of each.
        limit: interval operations that the plan may cost; finding it takes no longer than those.

    Raises:
        SearchError: it costs more, or an operator would materialise too many elements.
    """
    regions: dict[Node, Region] = {}
    for node, region in zip(outputs, wanted, strict=True):
        regions[node] = union(regions.get(node), region)
    cost = 0.0
    for node in reversed(list(topological(outputs))):
        check_deadline()
        region = regions[node]
        check_size(size(region))
        cost += node_cost(node, region)
        if cost > limit:
            raise SearchError("evaluation", "costs too much", f"<= {limit:.0f} operations")
        for arg, needed in zip(node.args, _needs(node, region), strict=True):
            regions[arg] = union(regions.get(arg), needed)
    return Plan(tuple(outputs), tuple(wanted), regions, cost)


def _needs(node: Node, region: Region) -> list[Region]:
    if node.kind == INPUT:
        return []
    if is_empty(region):
        return [nothing_of(a.type.rank) for a in node.args]
    if node.kind == OP:
        return op_needs(node, region)
    if node.kind == SCAN:
        return [_before(node, region)] * len(node.args)
    if is_whole(region, node.shape):
        return [whole(a.shape) for a in node.args]
    if looks(node.text, [a.type for a in node.args]):
        return look_needs(node, region)
    return [source.needs() for source in sel_sources(node, region)]


def _before(node: Node, region: Region) -> Region:
    """What the elements of a scan in a region are reduced from."""
    axis = scan(node.text)[1]
    return tuple(np.arange(h[-1] + 1) if d == axis else h for d, h in enumerate(region))


def node_cost(node: Node, region: Region, alike: int | None = None) -> float:
    """Interval operations that a region of one value costs, its operands known.

    Raises:
        SearchError: an operator would materialise too many elements.
    """
    if node.kind == SCAN and not is_empty(region):
        axis = scan(node.text)[1]
        rows = size(region) // len(region[axis])
        check_size(n_terms := rows * int(np.sum(region[axis] + 1)))
        return _PER_NODE * len(region[axis]) + n_terms
    if node.kind != OP or is_empty(region):
        return _PER_NODE + size(region) / 2
    n_cells = size(index_space(node, region, alike))
    if _contracts(node):
        return _PER_NODE + n_cells * _CONTRACTED + size(region)
    check_size(n_cells)
    return _PER_NODE + n_cells


def run(plan: Plan, given: Given, constants: Constants | None = None) -> list[Interval]:
    """Enclosures of the wanted regions of the outputs.

    Args:
        plan: from `plan`.
        given: the value of an input on a region.
        constants: of selectors whose constants are to be others than their types hold.
    """
    order = list(topological(plan.outputs))
    uses = Counter(a for node in order for a in node.args) + Counter(plan.outputs)
    values: dict[Node, Interval] = {}
    with np.errstate(all="ignore"):
        for node in order:
            check_deadline()
            values[node] = _value(node, plan, values, given, constants or {})
            uses.subtract(node.args)
            for spent in {a for a in node.args if uses[a] == 0}:
                del values[spent]
    return [
        _part(values[node], plan.regions[node], region)
        for node, region in zip(plan.outputs, plan.wanted, strict=True)
    ]


def _part(value: Interval, have: Region, wanted: Region) -> Interval:
    """The wanted part of a value that others may need more of."""
    if all(len(h) == len(w) for h, w in zip(have, wanted, strict=True)):
        return value
    at = np.ix_(*(np.searchsorted(h, w) for h, w in zip(have, wanted, strict=True)))
    return value.map(lambda bound: bound[at])


def enclose_program(program: Program, inputs: Sequence[Array]) -> list[Interval]:
    """Enclosures of every output over the reals, for exactly known inputs.

    Args:
        program: the program.
        inputs: one array per input, of its type.

    Returns:
        Per output, bounds of the output's shape; NaN where the value may be undefined.

    Raises:
        ArgumentError: arrays that do not fit the inputs.
        SearchError: the program is too large to evaluate whole.
    """
    bound = bind_inputs(program, inputs)
    everything = plan(program.outputs, [whole(node.shape) for node in program.outputs])

    def given(node: Node, region: Region) -> Interval:
        part = np.asarray(bound[node.text])[np.ix_(*region)]
        if node.text in program.constants:
            return literal(part, node.dtype)
        # Integers beyond 2^53 are enclosed; floats are what they are.
        return literal(part, "i64") if part.dtype.kind in "iu" else point(part)

    return run(everything, given)


# -- one value ------------------------------------------------------------------------------------


def _value(
    node: Node, plan: Plan, values: dict[Node, Interval], given: Given, constants: Constants
) -> Interval:
    region = plan.regions[node]
    if is_empty(region):
        return undefined(tuple(map(len, region)))
    if node.kind == INPUT:
        return given(node, region)
    operands = [values[a] for a in node.args]
    have = [plan.regions[a] for a in node.args]
    if node.kind == OP:
        return _enclose_op(node, region, operands, have, plan.alike)
    if node.kind == SCAN:
        return _enclose_scan(node, region, operands, have)
    if not node.args:
        return _constant(node, region, constants)
    return _enclose_sel(node, region, operands, have, constants)


def _enclose_op(
    node: Node,
    region: Region,
    operands: Sequence[Interval],
    have: Sequence[Region],
    alike: int | None,
) -> Interval:
    sig = signature(node.text)
    space = index_space(node, region, alike)
    dense = is_whole(region, node.shape)
    views = [
        _view(projection, value, h, space, dense and is_whole(h, arg.shape))
        for projection, value, h, arg in zip(sig.operands, operands, have, node.args, strict=True)
    ]
    result = _cells(node, sig, _widened(views, sig, space), _repeats(node, sig, space))
    shape = tuple(len(indices) for indices in region)
    if result is None:
        return undefined(shape)

    def fit(bound: Array) -> Array:
        return np.broadcast_to(bound.reshape(bound.shape[: sig.n_out]), shape)

    monoid = MONOIDS[sig.monoid].merges if sig.monoid else ""
    return _held(result.map(fit), node, node.dtype, monoid or cell(node.cell)[0].name)


def _held(x: Interval, node: Node, name: str, cell_name: str) -> Interval:
    """What an element type makes of values that a cell gives: integers of integers wrap around."""
    whole = all(DTYPES[a.dtype].kind != "f" for a in node.args)
    wraps = whole and DTYPES[name].kind == "i" and cell_name in WRAPS
    return within(wrapped(x, name) if wraps else x, name)


def _contracts(node: Node) -> bool:
    declared, _ = cell(node.cell)
    return declared.product and signature(node.text).monoid == "+" and len(node.args) == 2


def _view(
    projection: Sequence[Affine], value: Interval, have: Region, space: Region, dense: bool
) -> Interval:
    """An operand over the index space, dims it lacks with extent 1; all there is if `dense`."""
    if dense or all(_aligned(p, h, space) for p, h in zip(projection, have, strict=True)):
        extents = [len(indices) for indices in space]
        return value.map(lambda bound: operand_view(projection, bound, extents))
    # Beyond the last index that we have are only those of its class (`Plan.alike`).
    at = tuple(
        np.searchsorted(indices, np.minimum(read(p, space), indices[-1]))
        for p, indices in zip(projection, have, strict=True)
    )
    return value.map(lambda bound: np.asarray(bound[at]))


def _aligned(affine: Affine, have: Array, space: Region) -> bool:
    """We have just the indices of one index dim."""
    return affine.plain is not None and len(have) == len(space[affine.plain])


def _widened(views: list[Interval], sig: Signature, space: Region) -> list[Interval]:
    """A reduced dim that no operand holds is broadcast on the first."""
    lacking = [d for d in sig.reduced if all(v.shape[d] == 1 for v in views)]
    if not lacking:
        return views
    shape = [len(space[d]) if d in lacking else e for d, e in enumerate(views[0].shape)]
    return [views[0].map(lambda bound: np.broadcast_to(bound, shape)), *views[1:]]


def _repeats(node: Node, sig: Signature, space: Region) -> Interval | None:
    """How many indices each reduced one stands for, along the reduced dims; None where all one."""
    if sig.monoid != "+":  # the others that plans with classes have do not count their terms
        return None
    extents = sig.extents([a.shape for a in node.args])
    found: Array | None = None
    for d in sig.reduced:
        if extents[d] > len(space[d]):
            counts = np.ones(len(space[d]))
            counts[-1] += extents[d] - len(space[d])
            here = along(counts, d, sig.n_dims)
            found = here if found is None else found * here
    return None if found is None else point(found)


def _cells(
    node: Node, sig: Signature, views: list[Interval], repeats: Interval | None
) -> Interval | None:
    """Cell and monoid; reduced dims stay with extent 1. None where nobody gave an enclosure."""
    axes = tuple(sig.reduced)
    if _contracts(node):
        if repeats is not None:
            views = [multiply(views[0], repeats), *views[1:]]
        return contract(views, axes)
    declared, params = cell(node.cell)
    reduction = ENCLOSE_MONOID.get(sig.monoid)
    if declared.enclose is None or (sig.monoid and reduction is None):
        return None
    try:
        values = declared.enclose(*views, *params)
        intervals = [Interval(*v) for v in (values if declared.n_values > 1 else (values,))]
    except (AxeError, Signal, MemoryError):
        raise
    except Exception as error:
        thing, wrong = f"cell {node.cell!r}", "its enclosure fails"
        raise foreign(thing, error, declared.enclose, wrong, "bounds of its value") from error
    if reduction and declared.n_values == 1:  # the monoid is given what the cell's type makes of it
        of = dtype_by_rule(declared.result, node.cell, params, [a.dtype for a in node.args])
        intervals = [_held(v, node, of, declared.name) for v in intervals]
    if repeats is not None:
        intervals = [multiply(v, repeats) for v in intervals]
    return reduction(intervals, axes) if reduction else intervals[0]


def _fill(node: Node, constants: Constants) -> Interval | None:
    """The constant of a selector; None where it has none."""
    kept = constant_of(node.text)
    return (
        None
        if kept is None
        else constants.get((node.text, node.dtype)) or literal(kept, node.dtype)
    )


def _constant(node: Node, region: Region, constants: Constants) -> Interval:
    """A selector without operands."""
    declared, params = selector(node.text)
    shape = tuple(len(indices) for indices in region)
    value = _fill(node, constants)
    if value is not None:
        return value.map(lambda bound: np.broadcast_to(bound, shape))
    check_size(math.prod(node.shape))
    return literal(np.asarray(declared.run(params, []))[np.ix_(*region)], node.dtype)


def _enclose_sel(
    node: Node,
    region: Region,
    operands: Sequence[Interval],
    have: Sequence[Region],
    constants: Constants,
) -> Interval:
    if looks(node.text, [a.type for a in node.args]):
        return _enclose_look(node, region, operands, have)
    declared, params = selector(node.text)
    complete = all(is_whole(h, arg.shape) for h, arg in zip(have, node.args, strict=True))
    if complete and is_whole(region, node.shape) and declared.fill is None:
        return together(lambda *bounds: np.asarray(declared.run(params, bounds)), *operands)
    shape = tuple(len(indices) for indices in region)
    result = (_fill(node, constants) or undefined(())).map(
        lambda bound: np.broadcast_to(bound, shape)
    )
    for value, indices, source in zip(operands, have, sel_sources(node, region), strict=True):
        if source.reads:
            inside, at = _gather(source, indices, shape)
            result = together(lambda v, r, i=inside, a=at: np.where(i, v[a], r), value, result)
    return result


def _enclose_look(
    node: Node, region: Region, operands: Sequence[Interval], have: Sequence[Region]
) -> Interval:
    """What is read where integers say; unknown where they are no index, or not known exactly."""
    types = [a.type for a in node.args]
    rows, found = places.pulls(node.text, types), looks(node.text, types)
    inside, where = np.ones((1,) * len(region), bool), dict[tuple[int, int], Array]()
    for look in found:
        row = rows[look.by]
        at = [
            np.searchsorted(h, region[p.axis]) for h, p in zip(have[look.by], row, strict=True) if p
        ]
        low, high = (
            bound[np.ix_(*at)] for bound in (operands[look.by].low, operands[look.by].high)
        )
        known = (low == high) & ~misplaced(low, types[look.operand].shape[look.dim])
        inside = inside & over_value(row, np.asarray(known), len(region))
        index = np.where(known, low, 0).astype(np.int64)
        where[look.operand, look.dim] = over_value(row, index, len(region))
    ((n, row),) = ((n, r) for n, r in enumerate(rows) if n not in {x.by for x in found})
    places_ = tuple(
        where[n, d] if p is None else along(np.searchsorted(h, region[p.axis]), p.axis, len(region))
        for d, (p, h) in enumerate(zip(row, have[n], strict=True))
    )
    return operands[n].map(lambda bound: np.where(inside, bound[places_], np.nan))


def _enclose_scan(
    node: Node, region: Region, operands: Sequence[Interval], have: Sequence[Region]
) -> Interval:
    """Every wanted element as the reduction of what stands before it."""
    monoid, axis = scan(node.text)
    reduction = ENCLOSE_MONOID.get(monoid.name)
    if reduction is None:
        return undefined(tuple(len(indices) for indices in region))
    wanted = _before(node, region)
    given = [_part(v, h, wanted) for v, h in zip(operands, have, strict=True)]

    def up_to(value: Interval, end: int) -> Interval:
        return value.map(lambda bound: bound[(slice(None),) * axis + (slice(0, end),)])

    parts = [reduction([up_to(v, int(n) + 1) for v in given], (axis,)) for n in region[axis]]
    lows, highs = ([part[side] for part in parts] for side in (0, 1))
    found = Interval(np.concatenate(lows, axis), np.concatenate(highs, axis))
    return _held(found, node, node.dtype, monoid.merges)


def _gather(source: Source, have: Region, shape: tuple[int, ...]) -> tuple[Array, Region]:
    """Where in the region an operand is read, and the positions among the indices we have."""
    inside = np.ones(shape, bool)
    for valid in source.valid:
        inside = inside & valid
    at = (
        np.searchsorted(indices, np.where(valid, np.minimum(coordinate, indices[-1]), indices[0]))
        for indices, coordinate, valid in zip(have, *source, strict=True)
    )
    return inside, tuple(at)

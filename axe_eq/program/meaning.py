"""What programs mean: every operator evaluated with numpy. Everything else is tested against this.

A block operator reads its operands through `operand_view`: strided views of index-space rank, in
which a dim the operand lacks has extent 1. Its cell runs in the accumulation dtype, its monoid
reduces there, and the value rounds once, at the output. `index_views`, `cell_values`, `lift`,
`merge` and `finish` are the same steps on any part of the index space, so an executor streams a
reduction chunk by chunk with them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from axe_eq.errors import ArgumentError, AxeError, ProgramError, cause, raised_at
from axe_eq.program.contract import product_sum
from axe_eq.program.gathers import check_index, check_indices, index_nodes
from axe_eq.program.node import (
    INPUT,
    OP,
    SCAN,
    SEL,
    Node,
    Program,
    op_type,
    scan_type,
    sel_type,
    topological,
)
from axe_eq.program.ops import MONOIDS, Cell, State, cell, scan, selector
from axe_eq.program.scans import BLOCKS, prefixes
from axe_eq.program.signature import Affine, Signature, signature
from axe_eq.program.types import DTYPES, Array, ValueType, dtype, has_mask, promote

# Elements of one evaluation step; larger index spaces are evaluated in parts, to bound memory.
PART = 1 << 22


def array_type(array: Array) -> ValueType:
    """The value type of a numpy array.

    Raises:
        ProgramError: its dtype is none of ours.
    """
    return ValueType(dtype(array.dtype).name, array.shape)


# -- views of the index space ---------------------------------------------------------------------


def operand_view(projection: Sequence[Affine], array: Array, extents: Sequence[int]) -> Array:
    """The operand as a read-only strided view of the index space; dims it lacks have extent 1.

    Args:
        projection: per dim of the array, where it is read.
        array: the operand.
        extents: of all index dims.
    """
    strides = [0] * len(extents)
    for axis, affine in enumerate(projection):
        for dim, step in affine.terms:
            strides[dim] += step * array.strides[axis]
    present = {dim for affine in projection for dim, _ in affine.terms}
    shape = [extent if dim in present else 1 for dim, extent in enumerate(extents)]
    origin = array[tuple(slice(affine.offset, None) for affine in projection)]
    # As raw words, because numpy cannot restride the 8-bit floats by their own type.
    words = origin.view(f"u{array.itemsize}")
    return as_strided(words, shape, strides, writeable=False).view(array.dtype)


def index_views(
    sig: Signature | str, arrays: Sequence[Array], extents: Sequence[int] | None = None
) -> list[Array]:
    """Views of all operands; a reduced dim that no operand holds is broadcast on the first."""
    parsed = signature(sig) if isinstance(sig, str) else sig
    space = tuple(extents or parsed.extents([a.shape for a in arrays]))
    views = [operand_view(p, a, space) for p, a in zip(parsed.operands, arrays, strict=True)]
    lacking = [d for d in parsed.reduced if all(v.shape[d] == 1 for v in views)]
    if lacking:
        shape = [space[d] if d in lacking else e for d, e in enumerate(views[0].shape)]
        views[0] = np.broadcast_to(views[0], shape)
    return views


# -- one part of an operator ----------------------------------------------------------------------


def _accumulators(declared: Cell, views: Sequence[Array], acc: str | None) -> list[str]:
    """The dtype each operand is computed in."""
    own = [dtype(v.dtype).name for v in views]
    return _computed_in(own, declared.n_values, declared.n_conditions, acc)


def _computed_in(
    own: Sequence[str], n_values: int, n_conditions: int = 0, acc: str | None = None
) -> list[str]:
    """The dtype each of these operands of a cell, or of a scan, is computed in."""
    own = list(own)
    if n_values > 1:
        floats = [name for name in own if DTYPES[name].kind == "f"]
        common = acc or (DTYPES[promote(*floats)].accumulate if floats else "")
        return [common if name in floats else name for name in own]
    common = acc or DTYPES[promote(*own[n_conditions:])].accumulate
    return own[:n_conditions] + [common] * (len(own) - n_conditions)


def _accumulate(array: Array) -> Array:
    return array.astype(DTYPES[dtype(array.dtype).accumulate].numpy, copy=False)


def cell_values(cell_text: str, views: Sequence[Array], acc: str | None = None) -> State:
    """The cell's values on index-space arrays, in the accumulation dtype.

    Args:
        cell_text: name and parameters.
        views: operands; dims they lack have extent 1.
        acc: dtype to compute in; by default the accumulation dtype of the operands' common dtype.

    Returns:
        One array, or as many as the cell has values.

    Raises:
        ProgramError: the cell's function fails.
    """
    declared, params = cell(cell_text)
    wanted = _accumulators(declared, views, acc)
    operands = [
        v.astype(DTYPES[name].numpy, copy=False) for v, name in zip(views, wanted, strict=True)
    ]
    try:
        values = declared.fn(*operands, *params)
    except (AxeError, MemoryError, FloatingPointError):
        raise
    except Exception as error:  # a pack's own cells may fail in any way
        given = ", ".join(f"{a.dtype}{list(a.shape)}" for a in operands)
        raise ProgramError(
            f"cell {cell_text!r}", f"its function fails on {given} ({cause(error)})",
            "a value for any arrays that broadcast", at=raised_at(error),
        ) from error  # fmt: skip
    if declared.n_values > 1:
        return tuple(values)
    # A cast rounds to its dtype first; what follows is computed in that dtype's accumulator.
    return (_accumulate(np.asarray(values)) if declared.result == "param" else values,)


def lift(
    monoid: str, cell_text: str, views: Sequence[Array], axes: Sequence[int], acc: str | None = None
) -> State:
    """State of reducing the cell over the axes of these views; axes stay with extent 1.

    Sums of products go through BLAS without materialising the products. An axis that every view has
    with extent 1 is taken to have that extent.
    """
    declared, _ = cell(cell_text)
    along = tuple(axes)
    if declared.product and monoid == "+":
        wanted = _accumulators(declared, views, acc)
        operands = [
            v.astype(DTYPES[n].numpy, copy=False) for v, n in zip(views, wanted, strict=True)
        ]
        return (product_sum(operands, along),)
    return MONOIDS[monoid].lift(cell_values(cell_text, views, acc), along)


def merge(monoid: str, a: State, b: State) -> State:
    """State of two chunks together."""
    return MONOIDS[monoid].merge(a, b)


def finish(monoid: str, state: State) -> Array:
    """Value of a state, reduced axes with extent 1."""
    return MONOIDS[monoid].finish(state)


# -- whole operators ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Evaluation:
    """One block operator, evaluated in parts that bound its memory."""

    sig: Signature
    cell_text: str

    def fill(self, out: Array, views: Sequence[Array]) -> None:
        """Compute the values of `out`, which has the output dims of these views."""
        dim = self._cut(views, range(self.sig.n_out))
        if dim is None:
            value = np.asarray(self._value(views))
            out[...] = value.reshape(value.shape[: self.sig.n_out])
            return
        for part, half in zip(_halves([out], dim), _halves(views, dim), strict=True):
            self.fill(part[0], half)

    def _value(self, views: Sequence[Array]) -> Array:
        if not self.sig.monoid:
            return cell_values(self.cell_text, views)[0]
        return finish(self.sig.monoid, self._state(views))

    def _state(self, views: Sequence[Array]) -> State:
        dim = self._cut(views, self.sig.reduced)
        if dim is None:
            return lift(self.sig.monoid, self.cell_text, views, self.sig.reduced)
        first, second = _halves(views, dim)
        return merge(self.sig.monoid, self._state(first), self._state(second))

    def _cut(self, views: Sequence[Array], dims: range) -> int | None:
        """The longest of the dims, or None where there is nothing to cut or no need to."""
        # A contraction holds its operands; everything else holds the index space, several times.
        shape, limit = np.broadcast_shapes(*(v.shape for v in views)), PART
        if self.sig.monoid == "+" and cell(self.cell_text)[0].product:
            shape, limit = max((v.shape for v in views), key=math.prod), 4 * PART
        longest = max(dims, key=lambda d: shape[d], default=None)
        if longest is None or shape[longest] == 1 or math.prod(shape) <= limit:
            return None
        return longest


def _halves(views: Sequence[Array], dim: int) -> tuple[list[Array], list[Array]]:
    middle = max(v.shape[dim] for v in views) // 2
    before, after = ([slice(None)] * dim + [s] for s in (slice(middle), slice(middle, None)))

    def part(index: list[slice]) -> list[Array]:
        return [v if v.shape[dim] == 1 else v[tuple(index)] for v in views]

    return part(before), part(after)


def evaluate_op(sig_text: str, cell_text: str, arrays: Sequence[Array]) -> Array:
    """Value of a block operator.

    Args:
        sig_text: signature, canonical or not.
        cell_text: name and parameters of the cell.
        arrays: one per operand, of our dtypes.

    Returns:
        A fresh C-contiguous array of the operator's dtype and shape.

    Raises:
        ProgramError: shapes, arity or dtypes do not fit.
    """
    sig = signature(sig_text)
    type_ = op_type(sig.text, cell_text, tuple(map(array_type, arrays)))
    out = np.empty(type_.shape, DTYPES[type_.dtype].numpy)
    with np.errstate(all="ignore"):
        _Evaluation(sig, cell_text).fill(out, index_views(sig, arrays))
    return out


def evaluate_sel(text: str, arrays: Sequence[Array]) -> Array:
    """Value of a selector.

    Raises:
        ProgramError: arity, shapes or parameters do not fit.
        OutOfRange: an operand of integers says where another one has no element.
    """
    sel_type(text, tuple(map(array_type, arrays)))
    check_indices(text, arrays)
    return moved(text, arrays)


def moved(text: str, arrays: Sequence[Array]) -> Array:
    """What a selector moves, whatever its operands hold where nothing of them may matter."""
    declared, params = selector(text)
    return np.asarray(declared.run(params, arrays), order="C")


def scanned(text: str, arrays: Sequence[Array], order: str = BLOCKS) -> Array:
    """Values of a scan in the dtype it is computed in, of operands of one shape.

    Operands may be in their accumulation dtypes already; `order` as for `prefixes`.
    """
    monoid, axis = scan(text)
    wanted = _computed_in([dtype(a.dtype).name for a in arrays], monoid.n_values)
    given = [
        a.astype(DTYPES[name].numpy, copy=False) for a, name in zip(arrays, wanted, strict=True)
    ]
    return prefixes(monoid.name, given, axis, order)


def evaluate_scan(text: str, arrays: Sequence[Array]) -> Array:
    """Value of a scan: reductions of the elements up to each along its axis, rounded once.

    Raises:
        ProgramError: arity, shapes or dtypes do not fit.
    """
    type_ = scan_type(text, tuple(map(array_type, arrays)))
    out = np.empty(type_.shape, DTYPES[type_.dtype].numpy)
    with np.errstate(all="ignore"):
        _fill_scan(text, scan(text)[1], out, arrays)
    return out


def _fill_scan(text: str, axis: int, out: Array, arrays: Sequence[Array]) -> None:
    """In parts along the other axes, to bound memory."""
    others = [d for d in range(out.ndim) if d != axis]
    longest = max(others, key=lambda d: out.shape[d], default=axis)
    if out.size <= PART or longest == axis or out.shape[longest] == 1:
        out[...] = scanned(text, arrays)
        return
    parts = zip(_halves([out], longest), _halves(arrays, longest), strict=True)
    for (part,), half in parts:
        _fill_scan(text, axis, part, half)


# -- programs -------------------------------------------------------------------------------------


def evaluate_node(node: Node, arrays: Sequence[Array], *, checked: bool = True) -> Array:
    """Value of an operator node from its operands' values.

    Args:
        node: the operator.
        arrays: its operands.
        checked: refuse integers that say where there is no element; else what is read for them is
            what kernels read.
    """
    if not checked and node.kind == SEL:
        return moved(node.text, arrays)
    if node.kind == OP:
        return evaluate_op(node.text, node.cell, arrays)
    return (evaluate_scan if node.kind == SCAN else evaluate_sel)(node.text, arrays)


def evaluate_unchecked(node: Node, arrays: Sequence[Array]) -> Array:
    """Value of an operator node whose integers may say where there is no element."""
    return evaluate_node(node, arrays, checked=False)


def evaluate_nodes(
    roots: Sequence[Node],
    inputs: Mapping[str, Array],
    evaluate: Callable[[Node, Sequence[Array]], Array] = evaluate_node,
) -> dict[Node, Array]:
    """Values of every node the roots reach.

    Args:
        roots: nodes.
        inputs: input name to array, of the input's type (captured constants included).
        evaluate: the value of an operator node from its operands'.
    """
    values: dict[Node, Array] = {}
    for node in topological(roots):
        if node.kind == INPUT:
            values[node] = inputs[node.text]
        else:
            values[node] = evaluate(node, [values[a] for a in node.args])
    return values


def bind_inputs(program: Program, arrays: Sequence[Array]) -> dict[str, Array]:
    """Arrays by input name, captured constants included.

    Raises:
        ArgumentError: a wrong number of arrays, or one of a wrong shape or dtype.
    """
    if len(arrays) != len(program.inputs):
        names = ", ".join(i.name for i in program.inputs)
        raise ArgumentError(
            "arguments", f"got {len(arrays)} arrays", f"{len(program.inputs)} ({names})"
        )
    bound = dict(program.constants)
    for spec, array in zip(program.inputs, arrays, strict=True):
        bound[spec.name] = _check_argument(spec.name, spec.node.type, array)
    return bound


def of_their_own(made: Iterable[Array], given: Iterable[Array]) -> list[Array]:
    """Results that share memory with no argument and no other result: views are copied.

    >>> x = np.zeros((2, 3))
    >>> [np.shares_memory(x, y) for y in of_their_own([x, x.T, x + 1], [x])]
    [False, False, False]
    """
    known, found = [np.asarray(x) for x in given], list[Array]()
    for array in made:
        shares = any(np.may_share_memory(array, other) for other in (*known, *found))
        found.append(np.array(array) if shares else array)
    return found


def check_places(program: Program, arrays: Mapping[str, Array], *, computed: bool) -> None:
    """Refuse integers that say where a value has no element.

    Args:
        program: at the extents of these arrays.
        arrays: by input name, captured constants included.
        computed: also integers that are computed from other values than integers, which may take
            as long as the program.

    Raises:
        OutOfRange: naming the argument, or the gather that reads so.
    """
    for node, extent in index_nodes(program.nodes()):
        from_integers = all(DTYPES[n.dtype].kind in "ib" for n in topological([node]))
        if computed or from_integers:
            value = evaluate_nodes([node], arrays)[node]
            check_index(_index_said(program, node), value, extent)


def _index_said(program: Program, node: Node) -> str:
    """What says where another value is read: an argument, or what is computed of arguments."""
    if node.kind == INPUT:
        return f"argument {node.text!r}"
    inputs = {i.node for i in program.inputs}
    given = [repr(n.text) for n in topological([node]) if n in inputs]
    of = f"of argument{'s' * (len(given) > 1)} {' '.join(given)}" if given else ""
    return " ".join(filter(None, ("index", program.names.get(node, ""), of)))


def _check_argument(name: str, wanted: ValueType, array: Array) -> Array:
    if has_mask(array):
        expected = "an array; filled(number) makes one"
        raise ArgumentError(f"argument {name!r}", "has masked elements", expected)
    given = np.asarray(array)
    try:
        found: object = array_type(given)
    except ProgramError:
        found = f"{given.dtype}{list(given.shape)}"
    if found != wanted:
        raise ArgumentError(f"argument {name!r}", f"is {found}", f"{wanted}")
    return given


def evaluate(program: Program, arrays: Sequence[Array]) -> list[Array]:
    """Outputs of a program; values are dropped once no later operator reads them.

    Args:
        program: the program.
        arrays: one per input, in order.

    Raises:
        ArgumentError: arrays that do not fit the inputs.
        OutOfRange: integers say where a value has no element; names the argument.
    """
    bound = bind_inputs(program, arrays)
    order = program.nodes()
    uses = Counter(a for node in order for a in node.args) + Counter(program.outputs)
    values: dict[Node, Array] = {}
    for node in order:
        if node.kind == INPUT:
            values[node] = bound[node.text]
            continue
        for says, extent in index_nodes([node]):
            check_index(_index_said(program, says), values[says], extent)
        values[node] = evaluate_node(node, [values[a] for a in node.args])
        uses.subtract(node.args)
        for spent in {a for a in node.args if uses[a] == 0}:
            del values[spent]
    return [values[node] for node in program.outputs]

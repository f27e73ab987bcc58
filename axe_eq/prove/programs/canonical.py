"""One way to compute every operator: a function of its operands' values, and of nothing else.

Machines may sum in any order and round functions such as exp as they like; numpy's own results
depend on where an element stands in its array. Here an operator gives the same bits for the same
operands wherever it occurs, and a reduction the same for the same terms in any order. So two
programs that are equal bit for bit, whatever the machine does, agree here; two that are merely
close, or equal on the reals, do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from axe_eq.program.interval import APPROXIMATE, ENCLOSE
from axe_eq.program.meaning import cell_values, evaluate_node, index_views
from axe_eq.program.node import INPUT, OP, Node, topological
from axe_eq.program.ops import MONOIDS, Cell, State, cell
from axe_eq.program.signature import signature
from axe_eq.program.types import DTYPES, Array


class OneWay:
    """Evaluates nodes over these inputs; equal operators on equal values give equal bits.

    Args:
        inputs: arrays by input name.
    """

    def __init__(self, inputs: Mapping[str, Array]) -> None:
        self.values: dict[Node, Array] = {}
        self._inputs = inputs
        self._known: dict[tuple[str, tuple[str, ...], bytes], tuple[Array, ...]] = {}

    def evaluate(self, roots: Iterable[Node]) -> list[Array]:
        """Values of some nodes."""
        found = list(roots)
        with np.errstate(all="ignore"):
            for node in topological(found):
                if node not in self.values:
                    self.values[node] = self._node(node)
        return [self.values[node] for node in found]

    def _node(self, node: Node) -> Array:
        if node.kind == INPUT:
            return self._inputs[node.text]
        operands = [self.values[a] for a in node.args]
        if node.kind != OP:
            return evaluate_node(node, operands, checked=False)
        sig = signature(node.text)
        views = index_views(sig, operands)
        value = self._cell(node.cell, views)
        shape = np.broadcast_shapes(*(v.shape for v in views))
        if sig.monoid:
            value = (_reduced(sig.monoid, value, shape, sig.n_out),)
        of = DTYPES[node.dtype].numpy
        lead = value[0].reshape(value[0].shape[: sig.n_out])
        return np.array(np.broadcast_to(lead, node.shape), of)

    def _cell(self, text: str, views: Sequence[Array]) -> State:
        """Values of a cell at every point of the index space."""
        declared, _ = cell(text)
        if _has_one_result(declared, views):
            return cell_values(text, views)
        full = np.broadcast_arrays(*views)
        columns = [np.ascontiguousarray(a).reshape(-1) for a in full]
        words = [c.view(np.uint8).reshape(c.size, c.itemsize) for c in columns]
        rows = np.concatenate(words, axis=1)
        kinds = tuple(str(c.dtype) for c in columns)
        found = [self._point(declared, text, kinds, rows[n], columns, n) for n in range(len(rows))]
        parts = (np.concatenate(column) for column in zip(*found, strict=True))
        return tuple(part.reshape(full[0].shape) for part in parts)

    def _point(
        self,
        declared: Cell,
        text: str,
        kinds: tuple[str, ...],
        row: Array,
        columns: Sequence[Array],
        number: int,
    ) -> tuple[Array, ...]:
        """Values of a cell at one point, those of the same operands before if there were any."""
        key = text, kinds, row.tobytes()
        if key not in self._known:
            operands = [c[number : number + 1] for c in columns]
            if declared.commutative:  # which of two equal operands is selected is free
                operands.sort(key=_order)
            self._known[key] = tuple(np.array(v) for v in cell_values(text, operands))
        return self._known[key]


def _order(operand: Array) -> tuple[bool, float, bool]:
    value = float(operand[0])
    return value != value, value, not np.signbit(value)


def _has_one_result(declared: Cell, views: Sequence[Array]) -> bool:
    """Whether every machine gives the same bits, wherever the operands stand."""
    if all(v.dtype.kind in "iub" for v in views):
        return True
    selects = declared.commutative and not declared.rounds
    moves = not declared.rounds and not selects
    return moves or (declared.name in ENCLOSE.keys() - APPROXIMATE and not selects)


def _reduced(monoid: str, values: State, shape: tuple[int, ...], n_out: int) -> Array:
    """The reduction of the terms behind each output element, in ascending order."""
    full = [np.broadcast_to(v, shape).reshape(*shape[:n_out], -1) for v in values]
    order = np.lexsort([key for v in reversed(full) for key in _ascending(v)], axis=-1)
    ordered = tuple(np.take_along_axis(v, order, axis=-1) for v in full)
    declared = MONOIDS[monoid]
    return declared.finish(declared.lift(ordered, (n_out,)))


def _ascending(values: Array) -> list[Array]:
    """Sort keys, the last one first in importance: -0 stands before 0, NaN last."""
    return [values] if values.dtype.kind in "iub" else [~np.signbit(values), values]

"""What all ranks do together, as a program of whole arrays: what proofs are about.

A value of a rank program is lifted: it gets one dim more in front for every mesh axis along which
ranks may differ, and none for the others. Block operators, selectors and scans do to a lifted value
what they do to every rank's; a collective is an operator on those dims. Shards of a whole value are
its digits with those of mesh axes moved to the front, and a result is put together the other way.
So the program has as many operators for eight ranks as for eight thousand, and no law is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from axe_eq import array as xp
from axe_eq.errors import LayoutError, ProgramError
from axe_eq.layout import Mesh
from axe_eq.mesh.collectives import COLLECTIVE, collective, group_of, whole_program
from axe_eq.mesh.parts import Digit, Parts
from axe_eq.program.node import INPUT, OP, SCAN, Node, op_node, scan_node, sel_node, topological
from axe_eq.program.ops import join_text, scan, selector
from axe_eq.program.signature import Affine, make, plain, signature
from axe_eq.program.traced import Traced
from axe_eq.program.tracing import TRACING, Tracing


@dataclass(frozen=True)
class Lifted:
    """A value of all ranks.

    Attributes:
        node: a dim per axis, in the order of the mesh, then the dims that every rank's value has.
        axes: mesh axes along which ranks may differ.
    """

    node: Node
    axes: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one rank's value."""
        return self.node.shape[len(self.axes) :]


@contextmanager
def array_code() -> Iterator[None]:
    """A scope in which array functions make nodes."""
    token = TRACING.set(Tracing())
    try:
        yield
    finally:
        TRACING.reset(token)


class Lift:
    """Lifts values of rank programs on a mesh.

    Args:
        mesh: the devices.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh

    def ordered(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Mesh axes in the order of the mesh."""
        wanted = set(axes)
        return tuple(a for a in self.mesh.shape if a in wanted)

    # -- parts of whole values --------------------------------------------------------------------

    def shards(self, whole: Node, parts: Parts) -> Lifted:
        """The parts of a whole value."""
        digits = [d for dim in parts.dims for d in dim]
        axes = self.ordered(d.axis for d in digits)
        with array_code():
            value = Traced(whole)
            if parts.padded != parts.shape:
                ends = zip(parts.shape, parts.padded, strict=True)
                value = xp.pad(value, tuple((0, p - n) for n, p in ends))
            value = xp.reshape(value, tuple(d.extent for d in digits))
            value = xp.permute_dims(value, _to_front(digits, axes))
            value = xp.reshape(value, (*(self.mesh.shape[a] for a in axes), *parts.local))
        return Lifted(value.node, axes)

    def whole(self, value: Lifted, parts: Parts) -> tuple[Node, tuple[str, ...]]:
        """The value whose parts these are, and the axes along which there are several of it.

        Such axes, along which copies may differ, are dims in front.
        """
        digits = [d for dim in parts.dims for d in dim]
        value = self.varying(value, parts.axes)
        copies = tuple(a for a in value.axes if a not in parts.axes)
        at = [n for n, a in enumerate(value.axes) if a in copies]
        own = [d.extent for d in digits if not d.axis]
        sizes, n = [self.mesh.shape[a] for a in value.axes], len(value.axes)
        places = {a: n for n, a in enumerate(value.axes)}
        order, number = list(at), n
        for digit in digits:
            order.append(places[digit.axis] if digit.axis else number)
            number += not digit.axis
        lead = [sizes[p] for p in at]
        with array_code():
            found = xp.reshape(Traced(value.node), (*sizes, *own))
            found = xp.permute_dims(found, tuple(order))
            found = xp.reshape(found, (*lead, *parts.padded))
            if parts.padded != parts.shape:
                found = found[(..., *(slice(0, n) for n in parts.shape))]
        return found.node, copies

    def flat(self, value: Lifted, parts: Parts) -> Lifted:
        """A part with dims as a rank's flat memory holds it.

        Raises:
            LayoutError: that memory is not dense.
        """
        own = [d.extent for dim in parts.dims for d in dim if not d.axis]
        return self._moved(value, own, _dense(parts), (prod(own),))

    def with_dims(self, value: Lifted, parts: Parts) -> Lifted:
        """Inverse of `flat`."""
        own, order = [d.extent for dim in parts.dims for d in dim if not d.axis], _dense(parts)
        back = [order.index(n) for n in range(len(order))]
        return self._moved(value, [own[n] for n in order], back, parts.local)

    def shaped(self, value: Lifted, shape: Sequence[int]) -> Lifted:
        """A reshape of every rank's value."""
        sizes = [self.mesh.shape[a] for a in value.axes]
        with array_code():
            return Lifted(xp.reshape(Traced(value.node), (*sizes, *shape)).node, value.axes)

    def _moved(
        self, value: Lifted, own: Sequence[int], order: Sequence[int], shape: Sequence[int]
    ) -> Lifted:
        sizes, n = [self.mesh.shape[a] for a in value.axes], len(value.axes)
        with array_code():
            found = xp.reshape(Traced(value.node), (*sizes, *own))
            found = xp.permute_dims(found, (*range(n), *(n + d for d in order)))
            found = xp.reshape(found, (*sizes, *shape))
        return Lifted(found.node, value.axes)

    def varying(self, value: Lifted, axes: Iterable[str]) -> Lifted:
        """The same value with dims for these axes too."""
        wanted = self.ordered({*value.axes, *axes})
        if wanted == value.axes:
            return value
        place = {a: n for n, a in enumerate(wanted)}
        n, rank = len(wanted), len(value.shape)
        operand = [*(place[a] for a in value.axes), *range(n, n + rank)]
        fixed = {place[a]: self.mesh.shape[a] for a in wanted if a not in value.axes}
        sig = make([map(plain, operand)], range(n + rank), fixed=fixed)
        return Lifted(op_node(sig.text, "id", [value.node]), wanted)

    # -- programs ---------------------------------------------------------------------------------

    def values(self, roots: Sequence[Node], given: Mapping[Node, Lifted]) -> dict[Node, Lifted]:
        """Every value of a rank program.

        Args:
            roots: wanted values.
            given: inputs, lifted; others are the same on all ranks, as captured constants are.

        Raises:
            ProgramError: a selector that does not say how it works on dims elsewhere.
        """
        found = dict(given)
        for node in topological(roots):
            if node not in found:
                found[node] = self._node(node, [found[a] for a in node.args])
        return found

    def _node(self, node: Node, operands: Sequence[Lifted]) -> Lifted:
        if node.kind == INPUT:
            return Lifted(node, ())
        if node.kind == COLLECTIVE:
            return self._collective(node, operands)
        axes = self.ordered(a for x in operands for a in x.axes)
        if not axes:
            return Lifted(_same(node, [x.node for x in operands]), ())
        if node.kind == OP:
            return Lifted(self._op(node, operands, axes), axes)
        n, full = len(axes), [self.varying(x, axes).node for x in operands]
        if node.kind == SCAN:
            monoid, axis = scan(node.text)
            return Lifted(scan_node(f"{monoid.name} {axis + n}", full), axes)
        declared, params = selector(node.text)
        if declared.placed is None:
            wrong = "differs between ranks, and does not say how it works on dims elsewhere"
            raise ProgramError(f"selector {node.text!r}", wrong, "a selector with `placed`")
        places = {d: n + d for d in range(max(len(x.shape) for x in operands))}
        rank = max(x.type.rank for x in full)
        text = join_text(declared.name, *declared.placed(params, places, rank))
        return Lifted(sel_node(text, full), axes)

    def _op(self, node: Node, operands: Sequence[Lifted], axes: Sequence[str]) -> Node:
        """A block operator with a dim in front for each of these axes."""
        sig = signature(node.text)
        dims = {a: sig.n_dims + n for n, a in enumerate(axes)}
        reads: list[list[Affine]] = [
            [*(plain(dims[a]) for a in x.axes), *operand]
            for x, operand in zip(operands, sig.operands, strict=True)
        ]
        out = [*dims.values(), *range(sig.n_out)]
        new = make(reads, out, sig.monoid, sig.reduced, dict(sig.fixed))
        return op_node(new.text, node.cell, [x.node for x in operands])

    def _collective(self, node: Node, operands: Sequence[Lifted]) -> Lifted:
        names = [name for name, _ in group_of(node)]
        sizes = [size for _, size in group_of(node)]
        program = whole_program(node.text, tuple(a.type for a in node.args))
        others: tuple[str, ...] = ()
        given = {}
        for value, spec in zip(operands, program.inputs, strict=True):
            full = self.varying(value, names)
            others = tuple(a for a in full.axes if a not in names)
            given[spec.node] = Lifted(self._grouped(full, others, names), others)
        (root,) = program.outputs
        found = self.values([root], given)[root]
        if not collective(node).varies:
            return found
        behind = {a: n for n, a in enumerate((*found.axes, *names))}
        shape = [*(self.mesh.shape[a] for a in found.axes), *sizes, *node.shape]
        kept = self.ordered((*found.axes, *names))
        rest = range(len(behind), len(shape))
        with array_code():
            apart = xp.reshape(Traced(found.node), tuple(shape))
            apart = xp.permute_dims(apart, (*(behind[a] for a in kept), *rest))
        return Lifted(apart.node, kept)

    def _grouped(self, value: Lifted, others: Sequence[str], names: Sequence[str]) -> Node:
        """The value with the dims of a group as one, behind those of the other axes."""
        place = {a: n for n, a in enumerate(value.axes)}
        order = [*(place[a] for a in (*others, *names)), *range(len(place), value.node.type.rank)]
        sizes = [self.mesh.shape[a] for a in others]
        n = prod(self.mesh.shape[a] for a in names)
        with array_code():
            found = xp.permute_dims(Traced(value.node), tuple(order))
            return xp.reshape(found, (*sizes, n, *value.shape)).node


def _dense(parts: Parts) -> tuple[int, ...]:
    if parts.order is None:
        wrong = "is not dense in a rank's memory"
        raise LayoutError(f"a part of {parts.shape}", wrong, "a layout without gaps")
    return parts.order


def _to_front(digits: Sequence[Digit], axes: Sequence[str]) -> tuple[int, ...]:
    """The order of digits in which those of mesh axes come first, as the mesh has them."""
    place = {d.axis: n for n, d in enumerate(digits) if d.axis}
    return (*(place[a] for a in axes), *(n for n, d in enumerate(digits) if not d.axis))


def _same(node: Node, operands: Sequence[Node]) -> Node:
    """The node's operator on other operands of its operands' types."""
    if tuple(operands) == node.args:
        return node
    return Node(node.kind, node.text, node.cell, tuple(operands), node.type)

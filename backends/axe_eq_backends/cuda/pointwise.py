"""From cones of cells to kernels: maps, and relayouts where contiguous dims differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from axe_eq.kernel.threads import ir
from axe_eq.lower.formulas import Cone
from axe_eq.program.types import DTYPES
from axe_eq.target import Target
from axe_eq_backends.cuda.leaves import Names, operand, stored
from axe_eq_backends.cuda.schedules.map import elementwise
from axe_eq_backends.cuda.schedules.tensors import Operand, collapse
from axe_eq_backends.cuda.schedules.transpose import best_warps, turn

# Elements of a dim that reads or writes along it continue; sectors are of 32 bytes.
WORTH_TURNING = 8


def pointwise(cone: Cone, target: Target) -> tuple[ir.Kernel, Mapping[str, str]]:
    """The kernel of a cone without reductions, and the buffers behind its tensors."""
    names = Names()
    operands = [operand(cone, leaf, names) for leaf in cone.leaves]
    outputs = [stored(r, names) for r in cone.roots]
    shape = tuple(cone.shape) or (1,)
    if not cone.shape:
        operands = [replace(o, strides=(0,)) for o in operands]
        outputs = [replace(o, strides=(1,)) for o in outputs]
    cells = [r.cell for r in cone.roots]
    turned = _turned(shape, operands, outputs)
    if turned is None:
        pairs = list(zip(outputs, cells, strict=True))
        return elementwise(shape, operands, pairs, name=cone.name), names.buffers
    order = [*(d for d in range(len(shape)) if d not in turned), *turned]
    tensors = [o.over(order) for o in (*operands, *outputs)]
    extents, fused = collapse([shape[d] for d in order], tensors, frozen=2)
    ins, outs = fused[: len(operands)], fused[len(operands) :]
    pairs = list(zip(outs, cells, strict=True))
    warps = best_warps(extents, fused, target.n_units)
    return turn(extents, ins, pairs, warps, cone.name), names.buffers


def _turned(
    shape: Sequence[int], operands: Sequence[Operand], outputs: Sequence[Operand]
) -> tuple[int, int] | None:
    """(dim that most is read along, dim that all is written along) where they differ."""
    if any(o.looks for o in operands):
        return None
    written = {_contiguous(shape, o) for o in outputs}
    if len(written) != 1 or None in written:
        return None
    (along,) = written
    read: dict[int, int] = {}
    for o in operands:
        dim = _contiguous(shape, o)
        # Only a tensor over both dims has to be turned.
        if dim is not None and dim != along and along is not None and o.strides[along]:
            read[dim] = read.get(dim, 0) + DTYPES[o.dtype].itemsize
    if not read or along is None:
        return None
    most = max(read, key=lambda d: (read[d], d))
    if min(shape[most], shape[along]) < WORTH_TURNING:
        return None
    if any(o.bound(d) for o in operands for d in (most, along)):
        return None
    return most, along


def _contiguous(shape: Sequence[int], tensor: Operand) -> int | None:
    """The dim whose neighbours are neighbours in memory."""
    if tensor.counts:
        return None
    return next((d for d, s in enumerate(tensor.strides) if s == 1 and shape[d] > 1), None)

"""From cones that scan to kernels: rows where the scanned dim is contiguous, columns elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from axe_eq.kernel.cells import Cell, arg, result_dtype
from axe_eq.kernel.threads import ir
from axe_eq.lower.formulas import Cone, Prefix
from axe_eq.target import Target
from axe_eq_backends.cuda.leaves import Names, operand, stored
from axe_eq_backends.cuda.online import substituted
from axe_eq_backends.cuda.prefixes import lifted, parts_of
from axe_eq_backends.cuda.reductions import Problem, contiguous_last, fused
from axe_eq_backends.cuda.schedules import scans
from axe_eq_backends.cuda.schedules.scans import scan_rows, scan_tiling
from axe_eq_backends.cuda.schedules.tensors import run_vector


def scanned(cone: Cone, target: Target) -> tuple[ir.Kernel, Mapping[str, str]]:
    """The kernel of a cone whose scans are all along one dim, and its buffers.

    Raises:
        DispatchError: scans along several dims, reductions beside them, a monoid without cells.
    """
    names = Names()
    dims = {p.dim for p in cone.prefixes}
    if len(dims) > 1 or cone.folds:
        raise cone.refuse(f"scans dims {sorted(dims)} and reduces", "scans along one dim")
    (dim,) = dims
    loads = [n for n, leaf in enumerate(cone.leaves) if not isinstance(leaf, Prefix)]
    operands = [operand(cone, cone.leaves[n], names) for n in loads]
    known: dict[int, Cell] = {n: arg(i) for i, n in enumerate(loads)}
    dtypes = [o.dtype for o in operands]
    made = []
    for n, leaf in enumerate(cone.leaves):
        if isinstance(leaf, Prefix):
            made.append(_prefix(cone, leaf, known, dtypes))
            known[n] = arg(len(dtypes))
            states = [result_dtype(cell, dtypes) for cell in made[-1].lift]
            dtypes.append(result_dtype(made[-1].finish, states))
    outputs = [(stored(r, names), substituted(r.cell, known)) for r in cone.roots]
    order = [*(d for d in range(len(cone.shape)) if d != dim), dim]
    problem = fused(
        Problem(
            tuple(cone.shape[d] for d in order), 1, [o.over(order) for o in operands], [],
            [(o.over(order), c) for o, c in outputs],
        )
    )  # fmt: skip
    return _written(problem, made, cone.name, target), names.buffers


def _prefix(
    cone: Cone, leaf: Prefix, known: Mapping[int, Cell], dtypes: Sequence[str]
) -> scans.Prefix:
    cells = [substituted(c, known) for c in leaf.cells]
    parts = parts_of(leaf.monoid, [result_dtype(c, dtypes) for c in cells])
    if parts is None:
        raise cone.refuse(f"scans by {leaf.monoid}", "a monoid with cells for kernels")
    return scans.Prefix(lifted(parts, cells), parts.merge, parts.units, parts.finish)


def _written(
    problem: Problem, prefixes: Sequence[scans.Prefix], name: str, target: Target
) -> ir.Kernel:
    rank, fast = len(problem.shape), contiguous_last(problem)
    # Rows of columns: the scanned dim, then the contiguous one.
    order = list(range(rank)) if fast else [*range(rank - 2), rank - 1, rank - 2]
    shape = [problem.shape[d] for d in order]
    operands = [o.over(order) for o in problem.operands]
    outputs = [(o.over(order), c) for o, c in problem.outputs]
    wide = run_vector([*operands, *(o for o, _ in outputs)], rank - 1)
    extent, other = (shape[-1], shape[-2]) if fast else (shape[-2], shape[-1])
    outer = 1
    for e in shape[:-2]:
        outer *= e
    tiling = scan_tiling(extent, other, outer, fast, wide, target.n_units)
    return scan_rows(shape, operands, prefixes, outputs, tiling, name)


__all__ = ["scanned"]

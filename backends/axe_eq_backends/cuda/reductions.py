"""From cones that reduce to kernels: rows in registers, or sweeps of any length over any dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from axe_eq.kernel.cells import Apply, Cell, apply, arg, result_dtype
from axe_eq.kernel.threads import ir
from axe_eq.lower.formulas import Cone, Fold
from axe_eq.program.types import DTYPES
from axe_eq.target import Target
from axe_eq_backends.cuda.leaves import Names, looking, operand, stored
from axe_eq_backends.cuda.online import BEST, ONLINE, substituted
from axe_eq_backends.cuda.prefixes import exchanged
from axe_eq_backends.cuda.schedules.rows import best_across, reduce_rows
from axe_eq_backends.cuda.schedules.sweeps import sweep, sweep_tiling
from axe_eq_backends.cuda.schedules.tails import MERGE, Reduction, value_dtypes
from axe_eq_backends.cuda.schedules.tensors import (
    Look,
    Operand,
    Range,
    collapse,
    run_vector,
)

Output = tuple[Operand, Cell]
# Truth values are reduced as the numbers 0 and 1: threads exchange registers of 32 bits.
LOGICAL = {"and": "min", "or": "max"}


@dataclass
class Problem:
    """Reductions over, or scans along, the last dims of an index space, as schedules take them."""

    shape: tuple[int, ...]
    reduced: int
    operands: list[Operand]
    reductions: list[Reduction]
    outputs: list[Output]


def reduce(cone: Cone, exact: bool, target: Target) -> tuple[ir.Kernel, Mapping[str, str]]:
    """The kernel of a cone whose reductions are all over the same dims, and its buffers.

    Args:
        cone: the cone.
        exact: running values may not be rescaled (exact numerics).
        target: the machine, for its number of units.

    Raises:
        DispatchError: reductions over different dims, or a monoid that kernels lack.
    """
    names = Names()
    problem = fused(_read(cone, names))
    fast = contiguous_last(problem)
    if problem.reduced == 1 and fast:
        given = problem.shape, problem.operands, problem.reductions, problem.outputs
        across = best_across(*given, target.n_units)
        if across is not None:
            return reduce_rows(*given, across, cone.name), names.buffers
    return _swept(problem, fast, exact, cone.name), names.buffers


# -- cones as problems --


def _read(cone: Cone, names: Names) -> Problem:
    """The cone's reductions and results over (kept dims, reduced dims).

    Raises:
        DispatchError: reductions over different dims, or a monoid that kernels lack.
    """
    if len({frozenset(f.dims) for f in cone.folds}) > 1:
        raise cone.refuse("reduces different dims", "the same dims, any number of times")
    for fold in cone.folds:
        if fold.monoid not in (able := {**MERGE, **LOGICAL, **ONLINE, **BEST}):
            raise cone.refuse(f"reduces by {fold.monoid}", " ".join(able))
    loads = [n for n, leaf in enumerate(cone.leaves) if not isinstance(leaf, Fold)]
    operands = [operand(cone, cone.leaves[n], names) for n in loads]
    outputs = [stored(r, names) for r in cone.roots]
    known: dict[int, Cell] = {n: arg(i) for i, n in enumerate(loads)}
    operands = [looking(o, known) for o in operands]
    reductions: list[Reduction] = []
    for n, leaf in enumerate(cone.leaves):
        if isinstance(leaf, Fold):
            known[n] = _reduction(leaf, known, reductions, operands)
    cells = [substituted(r.cell, known) for r in cone.roots]
    dims = set(cone.folds[0].dims)
    kept = [d for d in range(len(cone.shape)) if d not in dims]
    reduced = sorted(dims, key=lambda d: -max((abs(o.strides[d]) for o in operands), default=0))
    order = [*kept, *reduced]
    return Problem(
        tuple(cone.shape[d] for d in order), len(reduced),
        [o.over(order) for o in operands], reductions,
        list(zip([o.over(order) for o in outputs], cells, strict=True)),
    )  # fmt: skip


def _reduction(
    fold: Fold,
    known: Mapping[int, Cell],
    reductions: list[Reduction],
    operands: Sequence[Operand],
) -> Cell:
    """Add a fold's reductions, one or those of a structured monoid; its value as a cell."""
    cell = substituted(fold.cell, known)
    if fold.monoid in (*MERGE, *LOGICAL):
        return _plain(fold.monoid, cell, reductions, operands)
    assert isinstance(cell, Apply)
    monoid = ONLINE.get(fold.monoid) or BEST[fold.monoid]
    given, results = dict(enumerate(cell.args)), list[Cell]()
    for plain, value in monoid.reductions():
        results.append(_plain(plain, substituted(value, given), reductions, operands))
        given[1 + len(results)] = results[-1]
    return monoid.finished(*results)


def _plain(
    monoid: str, cell: Cell, reductions: list[Reduction], operands: Sequence[Operand]
) -> Cell:
    """Add the reduction of a cell by a monoid; its value as a cell."""
    known = value_dtypes(operands, reductions)
    total = arg(len(known))
    own = result_dtype(cell, known)
    if exchanged(own) != own:
        reductions.append(Reduction(monoid, apply(f"cast {exchanged(own)}", cell)))
        return apply(f"cast {own}", total)
    if own != "bool":
        reductions.append(Reduction(monoid, cell))
        return total
    reductions.append(Reduction(LOGICAL.get(monoid, monoid), apply("cast i32", cell)))
    return apply("ne", total, 0)


def fused(problem: Problem) -> Problem:
    """Dims that are one run in every tensor as one; in either group the contiguous one last."""
    n_kept = len(problem.shape) - problem.reduced
    tensors = [*problem.operands, *(o for o, _ in problem.outputs)]
    sizes = [_n_bytes(problem.shape, o) for o in tensors]
    groups = []
    for dims in (range(n_kept), range(n_kept, len(problem.shape))):
        shape, parts = collapse([problem.shape[d] for d in dims], [o.over(dims) for o in tensors])
        if not shape:
            shape, parts = (1,), [o.widened() for o in parts]
        order = sorted(range(len(shape)), key=lambda d: _run_bytes(parts, sizes, d))
        groups.append((tuple(shape[d] for d in order), [o.over(order) for o in parts]))
    (kept, slow), (reduced, fast) = groups
    joined = [
        replace(
            a,
            strides=a.strides + b.strides,
            window=_window(a) + _window(b),
            looks=_looks(a, b),
        )
        for a, b in zip(slow, fast, strict=True)
    ]
    outputs = joined[len(problem.operands) :]
    if kept[-1] == 1:  # a stored row is a row, whatever its stride
        at = len(kept) - 1
        outputs = [
            replace(o, strides=(*o.strides[:at], o.strides[at] or 1, *o.strides[at + 1 :]))
            for o in outputs
        ]
    return Problem(
        kept + reduced, len(reduced), joined[: len(problem.operands)], problem.reductions,
        [(o, c) for o, (_, c) in zip(outputs, problem.outputs, strict=True)],
    )  # fmt: skip


def _looks(a: Operand, b: Operand) -> tuple[Look, ...]:
    """The looks of a tensor over two groups of dims."""
    return tuple(replace(x, reach=x.reach + y.reach) for x, y in zip(a.looks, b.looks, strict=True))


def _window(tensor: Operand) -> tuple[Range | None, ...]:
    """The window along every dim, given or not: a group of dims may have none."""
    return tuple(map(tensor.bound, range(len(tensor.strides))))


def _n_bytes(shape: Sequence[int], tensor: Operand) -> int:
    """Bytes of a tensor that are read or written; positions have none."""
    n_elements = prod(e for e, s in zip(shape, tensor.strides, strict=True) if s)
    return 0 if tensor.counts else n_elements * DTYPES[tensor.dtype].itemsize


def _run_bytes(tensors: Sequence[Operand], sizes: Sequence[int], dim: int) -> int:
    """Bytes of the tensors that are contiguous along a dim."""
    return sum(n for o, n in zip(tensors, sizes, strict=True) if o.strides[dim] == 1)


def contiguous_last(problem: Problem) -> int:
    """1 where tensors are contiguous along the last reduced dim, 0 where along the last kept."""
    kept = len(problem.shape) - problem.reduced - 1
    reduced = [o for o in problem.operands if any(o.strides[kept + 1 :])]
    sizes = [_n_bytes(problem.shape, o) for o in reduced]
    along = [_run_bytes(reduced, sizes, d) for d in (len(problem.shape) - 1, kept)]
    return int(along[0] >= along[1])


# -- schedules --


def _swept(problem: Problem, fast: int, exact: bool, name: str) -> ir.Kernel:
    """Sweeps: the last kept and the last reduced dim are cut into chunks."""
    kept = len(problem.shape) - problem.reduced - 1
    tensors = [*problem.operands, *(o for o, _ in problem.outputs)]
    along = len(problem.shape) - 1 if fast else kept
    wide = run_vector(tensors, along)
    running = 2 * len(problem.reductions) + 2 + len(problem.operands)
    tiling = sweep_tiling(problem.shape[kept], problem.shape[-1], fast, wide, running)
    return sweep(
        problem.shape, problem.reduced, problem.operands, problem.reductions, problem.outputs,
        tiling, name, not exact,
    )  # fmt: skip

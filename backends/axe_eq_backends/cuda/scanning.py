"""From cones that scan to kernels: rows where the scanned dim is contiguous, columns elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from axe_eq.kernel.cells import Cell, arg, result_dtype, substituted
from axe_eq.kernel.threads import ir
from axe_eq.lower.candidate import Candidate
from axe_eq.lower.formulas import Cone, Prefix
from axe_eq.target import Target
from axe_eq_backends.cuda.lane_price import MOST_IN_STEP, Tensors, chained, first_s, operations
from axe_eq_backends.cuda.leaves import Names, operand, stored
from axe_eq_backends.cuda.prefixes import lifted, parts_of
from axe_eq_backends.cuda.reductions import contiguous_last, fused
from axe_eq_backends.cuda.schedules import scans
from axe_eq_backends.cuda.schedules.scans import WARP, best_scan, scan_rows
from axe_eq_backends.cuda.schedules.tails import Problem
from axe_eq_backends.cuda.schedules.tensors import widest

# Threads of a unit that run side by side.
UNIT_THREADS = 1024


def scanned(cone: Cone) -> tuple[list[Scanned], Mapping[str, str]]:
    """The way to write a cone whose scans are all along one dim, and its buffers.

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
    rank, fast = len(problem.shape), contiguous_last(problem)
    # Rows of columns: the scanned dim, then the contiguous one.
    order = list(range(rank)) if fast else [*range(rank - 2), rank - 1, rank - 2]
    shape = [problem.shape[d] for d in order]
    ins = [o.over(order) for o in problem.operands]
    stores = [(o.over(order), c) for o, c in problem.outputs]
    lifted_ = [c for p in made for c in (*p.lift, *p.merge, p.finish)]
    flops = operations([*lifted_, *(c for _, c in stores)]) * prod(shape)
    tensors = Tensors(shape, ins, [o for o, _ in stores], names.buffers, flops)
    return [Scanned(tensors, made, [c for _, c in stores], fast)], names.buffers


def _prefix(
    cone: Cone, leaf: Prefix, known: Mapping[int, Cell], dtypes: Sequence[str]
) -> scans.Prefix:
    cells = [substituted(c, known) for c in leaf.cells]
    parts = parts_of(leaf.monoid, [result_dtype(c, dtypes) for c in cells])
    if parts is None:
        raise cone.refuse(f"scans by {leaf.monoid}", "a monoid with cells for kernels")
    return scans.Prefix(lifted(parts, cells), parts.merge, parts.units, parts.finish)


@dataclass(frozen=True)
class Scanned:
    """Scans of rows, or of columns, in one pass."""

    tensors: Tensors
    prefixes: Sequence[scans.Prefix]
    cells: Sequence[Cell]
    fast: int
    names: frozenset[str] = frozenset({"scan_along", "scan_across", "scan_held", "vector"})

    def candidates(self, target: Target) -> list[Candidate]:
        """Elements that a thread holds; fewer threads along the scanned dim where it holds one."""
        t, found = self.tensors, list[Candidate]()
        vector = widest(target, [*t.operands, *t.outputs], len(t.shape) - 1)
        scanned, beside = (-1, -2) if self.fast else (-2, -1)
        extent, other, outer = t.shape[scanned], t.shape[beside], prod(t.shape[:-2])
        best = best_scan(extent, other, outer, self.fast, vector, target.n_units)
        for held, along in product(target.sizes("scan_held"), target.sizes("scan_threads")):
            tiling = replace(best, held=held, along=along)
            if held > best.held or along > best.along or (along < best.along and held > 1):
                continue
            if tiling.along * tiling.across % WARP:
                continue
            counts = [*t.shape[:-2], 0, 0]
            counts[scanned] = -(-extent // tiling.scanned)
            counts[beside] = -(-other // tiling.other)
            blocks = outer * counts[beside]
            found.append(
                t.candidate(
                    target,
                    {
                        "scan_along": along, "scan_across": tiling.across, "scan_held": held,
                        "vector": tiling.wide,
                    },
                    blocks=blocks, warps=tiling.warps, resident=_resident(tiling), counts=counts,
                    waits=self._waits(target, tiling, blocks, counts[scanned]),
                    run=0 if self.fast else tiling.other, wide=tiling.wide,
                    lanes=min(tiling.along if self.fast else tiling.across, WARP),
                )
            )  # fmt: skip
        return found

    def _waits(self, target: Target, tiling: scans.ScanTiling, blocks: int, steps: int) -> float:
        """Seconds of the busiest unit: what its CTAs wait for step by step, and what they issue.

        CTAs begin together, so two of them wait and then issue at the same time; more fall apart.
        """
        t, of_thread, figure = self.tensors, tiling.held * tiling.wide, target.figure
        turns = steps * -(-blocks // (target.n_units * _resident(tiling)))
        step = tiling.warps * figure("scan_warp_s") + first_s(target, t.n_bytes)
        step += chained(target, of_thread, t.flops / prod(t.shape))
        # Lanes exchange what they have of every vector.
        issued = figure("scan_vector_s") + tiling.wide * figure("scan_element_s")
        issued *= tiling.held * tiling.warps
        of_unit, power = max(1.0, blocks / target.n_units), figure("lanes_power")
        in_step = min(_resident(tiling), of_unit, MOST_IN_STEP) * issued
        parts = turns * (step + in_step), of_unit * steps * issued
        return float(sum(part**power for part in parts) ** (1 / power))

    def kernel(self, parameters: Mapping[str, int], name: str) -> ir.Kernel:
        """Scans by tiles of so many elements."""
        t, p = self.tensors, parameters
        tiling = scans.ScanTiling(
            self.fast, p["vector"], p["scan_along"], p["scan_across"], p["scan_held"]
        )
        outputs = list(zip(t.outputs, self.cells, strict=True))
        problem = Problem(tuple(t.shape), 1, t.operands, [], outputs)
        return scan_rows(problem, self.prefixes, tiling, name)


def _resident(tiling: scans.ScanTiling) -> int:
    """CTAs that a unit holds."""
    return max(1, UNIT_THREADS // (tiling.warps * WARP))

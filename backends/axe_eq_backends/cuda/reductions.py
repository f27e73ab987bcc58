"""From cones that reduce to kernels: rows in registers, or sweeps of any length over any dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from axe_eq.errors import DispatchError
from axe_eq.kernel.cells import Apply, Cell, apply, arg, result_dtype, used
from axe_eq.kernel.threads import ir
from axe_eq.lower.candidate import Candidate
from axe_eq.lower.formulas import Cone, Fold
from axe_eq.program.ops import MONOIDS
from axe_eq.program.types import DTYPES
from axe_eq.target import Target
from axe_eq_backends.cuda.cost import UNIT_BANDWIDTH
from axe_eq_backends.cuda.lane_price import Tensors, apart, operations
from axe_eq_backends.cuda.leaves import Names, looking, operand, stored
from axe_eq_backends.cuda.online import BEST, ONLINE, substituted, unable
from axe_eq_backends.cuda.prefixes import exchanged, unexchanged
from axe_eq_backends.cuda.schedules.rows import (
    WARP,
    best_threads,
    reduce_rows,
    registers_of,
    room_for,
    vectors_of,
    warps_of,
)
from axe_eq_backends.cuda.schedules.sweeps import (
    MOST_THREADS,
    SweepTiling,
    best_sweep,
    sweep,
    sweeps_of,
    vectors_that_fit,
)
from axe_eq_backends.cuda.schedules.tails import Reduction, value_dtypes
from axe_eq_backends.cuda.schedules.tensors import (
    Look,
    Operand,
    Range,
    collapse,
    widest,
    with_looks,
)

Output = tuple[Operand, Cell]
# Of a block that sums products across columns. Measured on one H200: 56 blocks of a row of
# f16[4096] times f16[4096,14336] take 119 us.
COLUMNS_B_S = 17.6e9
NEAR = 8  # times fewer threads than best along what is contiguous that are tried
SWEPT = 0.03  # loss of running values, where rows in registers are as good
# Truth values are reduced as the numbers 0 and 1: threads exchange registers of 32 bits.
LOGICAL = {"and": "min", "or": "max", "min": "min", "max": "max"}


@dataclass
class Problem:
    """Reductions over, or scans along, the last dims of an index space, as schedules take them."""

    shape: tuple[int, ...]
    reduced: int
    operands: list[Operand]
    reductions: list[Reduction]
    outputs: list[Output]


def reduced(cone: Cone) -> tuple[list[Rows | Sweeps], Mapping[str, str]]:
    """The ways to write a cone whose reductions are all over the same dims, and its buffers.

    Raises:
        DispatchError: reductions over different dims, or a monoid that kernels lack.
    """
    names = Names()
    problem = fused(_read(cone, names))
    fast = contiguous_last(problem)
    ways: list[Rows | Sweeps] = []
    tensors = _tensors(problem, names.buffers)
    if problem.reduced == 1 and fast:
        ways.append(Rows(problem, tensors))
    # Sums of products across what is contiguous have few reads on their way.
    slow = not fast and any(f.product for f in cone.folds)
    ways.append(Sweeps(problem, replace(tensors, _known={}), fast, not cone.rounds, slow))
    return ways, names.buffers


# -- cones as problems --


def _read(cone: Cone, names: Names) -> Problem:
    """The cone's reductions and results over (kept dims, reduced dims).

    Raises:
        DispatchError: reductions over different dims, or a monoid that kernels lack.
    """
    if len({frozenset(f.dims) for f in cone.folds}) > 1:
        raise cone.refuse("reduces different dims", "the same dims, any number of times")
    for fold in cone.folds:
        if lost := unable(fold.monoid):
            raise cone.refuse(lost, "another monoid")
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
    cell, declared = substituted(fold.cell, known), MONOIDS[fold.monoid]
    if declared.merges:
        cell = apply(declared.lifts, cell) if declared.lifts else cell
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
    if refusal := unexchanged(monoid, own):
        raise DispatchError(f"reduction by {monoid}", refusal, "another monoid or element type")
    if exchanged(own) != own:
        reductions.append(Reduction(monoid, apply(f"cast {exchanged(own)}", cell)))
        return apply(f"cast {own}", total)
    if own != "bool":
        reductions.append(Reduction(monoid, cell))
        return total
    reductions.append(Reduction(LOGICAL[monoid], apply("cast i32", cell)))
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


# -- ways to write them --


def _tensors(problem: Problem, buffers: Mapping[str, str]) -> Tensors:
    """What the kernel of a problem reads, writes and computes."""
    of_space = prod(problem.shape)
    of_rows = prod(problem.shape[: len(problem.shape) - problem.reduced])
    swept = [c for o, c in problem.outputs if any(map(bool, o.strides[-problem.reduced :]))]
    whole = [c for o, c in problem.outputs if not any(map(bool, o.strides[-problem.reduced :]))]
    flops = operations([*(r.cell for r in problem.reductions), *swept]) * of_space
    flops += sum(MONOIDS[r.monoid].flops for r in problem.reductions) * of_space
    flops += operations(whole) * of_rows
    outputs = [o for o, _ in problem.outputs]
    return Tensors(problem.shape, problem.operands, outputs, buffers, flops)


@dataclass(frozen=True)
class Rows:
    """Rows in registers: everything is read once."""

    problem: Problem
    tensors: Tensors
    names: frozenset[str] = frozenset({"row_threads", "vector"})

    def candidates(self, target: Target) -> list[Candidate]:
        """Threads of a row, where its elements fit in their registers."""
        p, found = self.problem, list[Candidate]()
        registers = registers_of(p.operands, p.reductions, p.outputs)
        rows, columns = prod(p.shape[:-1]), p.shape[-1]
        best = best_threads(rows, columns, target.n_units)
        vector = widest(target, [*p.operands, *(o for o, _ in p.outputs)], len(p.shape) - 1)
        for threads in target.sizes("row_threads"):
            if registers(vectors_of(columns, vector, threads) * vector) > room_for(threads):
                continue
            down = WARP * warps_of(threads) // threads
            counts = (*p.shape[:-2], -(-p.shape[-2] // down), 1)
            found.append(
                self.tensors.candidate(
                    target, {"row_threads": threads, "vector": vector},
                    blocks=prod(counts), counts=counts, loss=apart(threads, best),
                    reread=self.tensors.scattered(len(p.shape) - 1, stores=True),
                )
            )  # fmt: skip
        return found

    def kernel(self, parameters: Mapping[str, int], name: str) -> ir.Kernel:
        """Rows of so many threads each."""
        p, threads = self.problem, parameters["row_threads"]
        given = p.shape, p.operands, p.reductions, p.outputs
        return reduce_rows(*given, threads, name, parameters["vector"])


@dataclass(frozen=True)
class Sweeps:
    """Sweeps over chunks of the last kept and the last reduced dim."""

    problem: Problem
    tensors: Tensors
    fast: int
    online: bool
    slow: bool
    names: frozenset[str] = frozenset({"sweep_threads", "sweep_warps", "vector", "vectors"})

    def candidates(self, target: Target) -> list[Candidate]:
        """Threads along what is contiguous, warps, and vectors that fit in registers."""
        p, found = self.problem, list[Candidate]()
        kept = len(p.shape) - p.reduced - 1
        everything = [*p.operands, *(o for o, _ in p.outputs)]
        vector = widest(target, everything, len(p.shape) - 1 if self.fast else kept)
        best = best_sweep(p.shape[kept], p.shape[-1], self.fast, vector)
        running = 2 * len(p.reductions) + 2 + len(p.operands)
        part = COLUMNS_B_S / target.memories[0].bytes_per_s if self.slow else UNIT_BANDWIDTH
        passes = self._passes()
        sizes = (target.sizes(f"sweep_{name}") for name in ("warps", "threads", "vectors"))
        for warps, threads, many in product(*sizes):
            tiling = SweepTiling(warps, self.fast, vector, threads, many)
            most = MOST_THREADS if self.fast else WARP
            if WARP * warps % threads or not best.threads <= NEAR * threads <= NEAR * most:
                continue
            if many > vectors_that_fit(warps, vector, running):
                continue
            tiles = -(-p.shape[kept] // tiling.tile[0])
            counts = (*p.shape[:kept], tiles, *(1 for _ in range(p.reduced)))
            pairs = (warps, best.warps), (threads, best.threads), (many, best.vectors)
            found.append(
                self.tensors.candidate(
                    target,
                    {
                        "sweep_threads": threads, "sweep_warps": warps, "vector": vector,
                        "vectors": many,
                    },
                    blocks=prod(counts[: kept + 1]), counts=counts, passes=passes, part=part,
                    loss=SWEPT + sum(apart(*pair) for pair in pairs),
                )
            )  # fmt: skip
        return found

    def _passes(self) -> dict[int, int]:
        """How many sweeps read every operand."""
        p = self.problem
        n_operands, last = len(p.operands), len(p.shape) - p.reduced
        sweeps, _ = sweeps_of(n_operands, p.reductions, self.online)
        read = [{x for n in s for x in used(p.reductions[n - n_operands].cell)} for s in sweeps]
        read.append({x for o, c in p.outputs if any(o.strides[last:]) for x in used(c)})
        times = [with_looks(numbers, p.operands) for numbers in read]
        return {n: sum(n in numbers for numbers in times) or 1 for n in range(n_operands)}

    def kernel(self, parameters: Mapping[str, int], name: str) -> ir.Kernel:
        """Sweeps of these chunks."""
        p = self.problem
        tiling = SweepTiling(
            parameters["sweep_warps"], self.fast, parameters["vector"],
            parameters["sweep_threads"], parameters["vectors"],
        )  # fmt: skip
        given = p.operands, p.reductions, p.outputs
        return sweep(p.shape, p.reduced, *given, tiling, name, self.online)

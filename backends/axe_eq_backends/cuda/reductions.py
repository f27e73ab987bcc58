"""From cones that reduce to kernels: rows in registers, or sweeps of any length over any dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import product
from math import ceil, log2, prod

from axe_eq.errors import DispatchError
from axe_eq.kernel.cells import Apply, Cell, Constant, apply, arg, result_dtype, substituted, used
from axe_eq.kernel.structured import BEST, ONLINE
from axe_eq.kernel.threads import ir
from axe_eq.lower.candidate import Candidate
from axe_eq.lower.formulas import Cone, Fold
from axe_eq.program.ops import MONOIDS
from axe_eq.program.types import DTYPES
from axe_eq.target import Target
from axe_eq_backends.cuda.lane_price import (
    LINE_BYTES,
    SECTOR_BYTES,
    Tensors,
    chained,
    exchanging,
    inside_sectors,
    operations,
    residents,
)
from axe_eq_backends.cuda.leaves import Names, looking, operand, stored
from axe_eq_backends.cuda.online import unable
from axe_eq_backends.cuda.pointwise import Maps
from axe_eq_backends.cuda.prefixes import exchanged, unexchanged
from axe_eq_backends.cuda.schedules.map import spread
from axe_eq_backends.cuda.schedules.rows import (
    MOST_REGISTERS,
    REGISTERS,
    WARP,
    late_operands,
    reduce_rows,
    registers_of,
    room_for,
    vectors_of,
    warps_of,
)
from axe_eq_backends.cuda.schedules.sweeps import (
    SweepTiling,
    registers_of_sweep,
    stays_in_memory,
    sweep,
    sweeps_of,
)
from axe_eq_backends.cuda.schedules.tails import Problem, Reduction, value_dtypes
from axe_eq_backends.cuda.schedules.tensors import (
    Look,
    Operand,
    Range,
    collapse,
    power_of_two_from,
    unaligned,
    widest,
    with_looks,
)

SWEPT = 0.03  # loss of running values, where rows in registers are as good
# Loss where caches give rows again that are swept: softmax of 64, 192 and 512 long rows.
SWEPT_AGAIN = 0.06
# Loss of a kernel per halving of what it reads at once below a line of the caches.
SHORT = 0.1
WORD_BYTES = 4
UNROLLED = 16  # elements of a reduction that one thread reads as operands of their own
# Truth values are reduced as the numbers 0 and 1: threads exchange registers of 32 bits.
LOGICAL = {"and": "min", "or": "max", "min": "min", "max": "max"}


def reduced(cone: Cone) -> tuple[list[Rows | Sweeps | Maps], Mapping[str, str]]:
    """The ways to write a cone whose reductions are all over the same dims, and its buffers.

    Raises:
        DispatchError: reductions over different dims, or a monoid that kernels lack.
    """
    names = Names()
    read = _read(cone, names)
    problem = fused(read)
    fast = contiguous_last(problem)
    ways: list[Rows | Sweeps | Maps] = []
    tensors = _tensors(problem, names.buffers)
    apart = bool(fast) and _unaligned(problem)
    for shifted in (False, True) if apart else (False,):
        if problem.reduced == 1 and fast:
            ways.append(Rows(problem, tensors, shifted))
        swept = Sweeps(problem, tensors, fast, not cone.rounds, shifted)
        ways.append(swept)
        if problem.reduced == 1 and shifted == apart:
            ways.append(replace(swept, kept=True))
    if prod(read.shape[-read.reduced :]) <= UNROLLED:
        ways += _unrolled(read, names)
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
    fold: Fold, known: Mapping[int, Cell], reductions: list[Reduction], operands: Sequence[Operand]
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


def _unrolled(problem: Problem, names: Names) -> list[Maps]:
    """Reductions of few elements as cells of as many operands; none where rows are stored again."""
    kept = len(problem.shape) - problem.reduced
    outputs = [o.over(range(kept)) for o, _ in problem.outputs]
    again = any(any(o.strides[kept:]) for o, _ in problem.outputs)
    if again or not kept or any(o.looks for o in problem.operands):
        return []
    operands, at = list[Operand](), list[dict[int, Cell]]()
    for place in product(*map(range, problem.shape[kept:])):
        here = dict[int, Cell]()
        for n, o in enumerate(problem.operands):
            one = at[0][n] if at and _stays(o, kept) else _at(o, place, kept, names)
            if isinstance(one, Operand):
                operands.append(one)
                one = arg(len(operands) - 1)
            here[n] = one
        at.append(here)
    values = dict[int, Cell]()
    for r, reduction in enumerate(problem.reductions, len(problem.operands)):
        merges = MONOIDS[reduction.monoid].merges
        parts = (substituted(reduction.cell, here | values) for here in at)
        values[r] = reduce(partial(apply, merges), parts)
    cells = [substituted(cell, at[0] | values) for _, cell in problem.outputs]
    shape, tensors = spread(problem.shape[:kept], [*operands, *outputs])
    ins, outs = tensors[: len(operands)], tensors[len(operands) :]
    flops = operations(cells) * prod(shape)
    return [Maps(Tensors(shape, ins, outs, names.buffers, flops), cells)]


def _stays(o: Operand, kept: int) -> bool:
    """Whether an operand is the same at all places of the reduced dims."""
    dims = range(kept, len(o.strides))
    return not any(o.varies(d) or o.bound(d) for d in dims)


def _at(o: Operand, place: Sequence[int], kept: int, names: Names) -> Operand | Cell:
    """An operand at one place of the reduced dims; its position there, 0 outside its window."""
    dims = list(enumerate(place, kept))
    if any(not low <= i < high for d, i in dims for low, high in [o.bound(d) or (i, i + 1)]):
        return Constant(0)
    if o.counts and any(o.strides[kept:]):
        return Constant(sum(i for d, i in dims if o.strides[d]), o.dtype)
    first = o.offset + sum(i * o.strides[d] for d, i in dims)
    name = o.name if o.counts or not any(place) else names.fresh(names.buffers[o.name])
    return replace(o.over(range(kept)), name=name, offset=first)


def fused(problem: Problem) -> Problem:
    """Dims that are one run in every tensor as one; in either group the contiguous one last."""
    n_kept = len(problem.shape) - problem.reduced
    tensors = [*problem.operands, *problem.stored]
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
            a, strides=a.strides + b.strides, window=_window(a) + _window(b), looks=_looks(a, b)
        )
        for a, b in zip(slow, fast, strict=True)
    ]  # fmt: skip
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


def _unaligned(problem: Problem) -> bool:
    """Whether rows begin anywhere, so that vectors of theirs need not."""
    tensors = [*problem.operands, *problem.stored]
    return bool(unaligned(tensors)) and any(o.strides[-1] for o in tensors)


def _tensors(problem: Problem, buffers: Mapping[str, str]) -> Tensors:
    """What the kernel of a problem reads, writes and computes."""
    of_space = prod(problem.shape)
    of_rows = prod(problem.shape[: len(problem.shape) - problem.reduced])
    swept = [c for o, c in problem.outputs if any(map(bool, o.strides[-problem.reduced :]))]
    whole = [c for o, c in problem.outputs if not any(map(bool, o.strides[-problem.reduced :]))]
    flops = operations([*(r.cell for r in problem.reductions), *swept]) * of_space
    flops += sum(MONOIDS[r.monoid].flops for r in problem.reductions) * of_space
    flops += operations(whole) * of_rows
    return Tensors(problem.shape, problem.operands, problem.stored, buffers, flops)


def _named(names: Set[str], shifted: bool) -> frozenset[str]:
    return frozenset(names | {"shifted"} if shifted else names)


def _marked(parameters: Mapping[str, int], shifted: bool) -> Mapping[str, int]:
    return {**parameters, "shifted": 1} if shifted else parameters


def _vector(target: Target, tensors: Sequence[Operand], dim: int, shifted: bool) -> int:
    """Elements of a vector along a dim, of rows that begin aligned or anywhere."""
    if shifted:
        return unaligned(tensors, max(target.sizes("vector_bytes")))
    return widest(target, tensors, dim)


@dataclass(frozen=True)
class Rows:
    """Rows in registers: everything is read once."""

    problem: Problem
    tensors: Tensors
    shifted: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The parameters of its candidates."""
        return _named({"row_threads", "vector", "resident"}, self.shifted)

    def candidates(self, target: Target) -> list[Candidate]:
        """Threads of a row, where its elements fit in their registers."""
        p, found = self.problem, list[Candidate]()
        enough, taken = registers_of(p)
        rows, columns = prod(p.shape[:-1]), p.shape[-1]
        rows_read = [o for o in p.operands if stays_in_memory(o)]
        own, exchanges = self.tensors.flops / (rows * columns), len(p.reductions)
        vector = _vector(target, [*p.operands, *p.stored], len(p.shape) - 1, self.shifted)
        ahead = vector - 1 if self.shifted else 0
        cut = not self.shifted and bool(columns % vector)
        for threads in target.sizes("row_threads"):
            held = vectors_of(columns + ahead, vector, threads) * vector
            warps = warps_of(threads)
            down = WARP * warps // threads
            if enough(held) > room_for(threads) or (self.shifted and down > 1):
                continue
            counts = (*p.shape[:-2], -(-p.shape[-2] // down), 1)
            # More CTAs than keep memory busy, or than there are, have fewer registers, and reads on
            # their way, each.
            n_bytes = WARP * warps * held * sum(DTYPES[o.dtype].itemsize for o in rows_read)
            # Where a warp has several rows, what all of them read late is at addresses of its own.
            late = held // 2 * len(late_operands(p)) if threads < WARP else 0
            resident = min(
                residents(target, warps, enough(held) + late),
                ceil(target.figure("rows_on_their_way") / max(1, n_bytes)),
                ceil(prod(counts) / target.n_units),
            )
            computes = chained(target, held, own)
            found.append(
                self.tensors.candidate(
                    target,
                    _marked(
                        {"row_threads": threads, "vector": vector, "resident": resident},
                        self.shifted,
                    ),
                    blocks=prod(counts), counts=counts,
                    warps=warps, resident=residents(target, warps, taken(held)),
                    chain=computes
                    + exchanges * exchanging(target, threads)
                    + self.tensors.ends(target, vector if self.shifted else 0)
                    + target.figure("cut_s") * (cut and held > vector),
                    computes=computes, wide=vector, lanes=min(threads, WARP),
                    shifted=self.shifted,
                )
            )  # fmt: skip
        return found

    def kernel(self, parameters: Mapping[str, int], name: str) -> ir.Kernel:
        """Rows of so many threads each."""
        sizes = parameters["vector"], parameters["resident"]
        return reduce_rows(self.problem, parameters["row_threads"], name, *sizes, self.shifted)


@dataclass(frozen=True)
class Sweeps:
    """Sweeps over chunks of the last kept and the last reduced dim.

    With `kept` what several sweeps read stays in shared memory, of a CTA or of a cluster's CTAs.
    """

    problem: Problem
    tensors: Tensors
    fast: int
    online: bool
    shifted: bool = False
    kept: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The parameters of its candidates."""
        names = {"sweep_threads", "sweep_warps", "vector", "vectors", "resident"}
        return _named(names | {"cluster"} if self.kept else names, self.shifted)

    def candidates(self, target: Target) -> list[Candidate]:
        """Warps, threads along what is contiguous, and tiles of a chunk that fit in registers."""
        p, found = self.problem, list[Candidate]()
        along = len(p.shape) - 1 if self.fast else len(p.shape) - p.reduced - 1
        # Single elements of vectors, each on its own, are what stores give least of memory for.
        stored = [o for o, _ in p.outputs if self.fast and o.strides[-1]]
        tensors = [*(self._read or p.operands), *stored]
        if not (vector := _vector(target, tensors, along, self.shifted)):
            return []
        if self.kept and p.shape[-1] < min(target.sizes("sweep_kept")):
            return []
        most = power_of_two_from(-(-p.shape[along] // vector))
        for warps in target.sizes("sweep_warps"):
            for threads, cluster in product(
                self._threads(target, WARP * warps, most, vector), self._clusters(target)
            ):
                if self.shifted and threads < WARP * warps:
                    continue
                fits = SweepTiling(
                    warps, self.fast, vector, threads, 1, self.shifted, cluster, self.kept
                )
                whole = fits.steps(p.shape[-p.reduced :])
                sizes = {min(n, power_of_two_from(whole)) for n in target.sizes("sweep_vectors")}
                if self.kept:  # reads of one vector at a time leave memory idle
                    sizes.discard(1)
                held = {whole} if whole * vector <= max(target.sizes("sweep_held")) else set()
                for vectors in sorted(sizes | held):
                    tiling = replace(fits, vectors=vectors)
                    steps = tiling.steps(p.shape[-p.reduced :])
                    stays = steps == 1 and max(self._passes.values(), default=1) > 1
                    rescaled = steps > 1 and self._rescales
                    given = p.operands, p.reductions, tiling, rescaled, stays, p.reduced
                    room = min(REGISTERS // (WARP * warps), MOST_REGISTERS)
                    if (registers := registers_of_sweep(*given)) > room and vectors > 1:
                        continue
                    n_bytes = self._kept_bytes(tiling) if steps > 1 else 0
                    keeps = bool(n_bytes) or cluster > 1
                    if keeps == self.kept and n_bytes <= target.memory("smem").n_bytes:
                        found.append(self._candidate(target, tiling, min(registers, room), n_bytes))
        return found

    def _clusters(self, target: Target) -> tuple[int, ...]:
        """CTAs that may have a part of every row each."""
        return target.sizes("sweep_cluster") if self.kept else (1,)

    def _kept_bytes(self, tiling: SweepTiling) -> int:
        """Bytes of a CTA's shared memory for what several sweeps read."""
        p, again = self.problem, {n for n, times in self._passes.items() if times > 1}
        held = [o for n, o in enumerate(p.operands) if n in again and stays_in_memory(o)]
        places = prod(tiling.tile) * tiling.tiles(p.shape[-1]) if self.kept else 0
        return places * sum(DTYPES[o.dtype].itemsize for o in held)

    def _threads(self, target: Target, most: int, enough: int, vector: int) -> list[int]:
        """Threads along what is contiguous: with as much of it as memory gives at least."""
        sizes = [n for n in target.sizes("sweep_threads") if n <= min(most, enough)]
        if self.fast:
            return sizes[-2:]
        return [n for n in sizes if n * vector * self._least >= SECTOR_BYTES] or sizes[-1:]

    def _candidate(
        self, target: Target, tiling: SweepTiling, registers: int, kept_bytes: int
    ) -> Candidate:
        """What a tiling costs: CTAs wait for every chunk, and for each other at the end."""
        p, kept = self.problem, len(self.problem.shape) - self.problem.reduced - 1
        rows, columns = tiling.tile
        counts = (*p.shape[:kept], -(-p.shape[kept] // rows), *(1 for _ in range(p.reduced)))
        steps, blocks = tiling.steps(p.shape[-p.reduced :]), prod(counts) * tiling.cluster
        once = {
            n for n, o in enumerate(p.operands)
            if steps == 1 or (self.kept and stays_in_memory(o))
        }  # fmt: skip
        passes = {n: 1 if n in once else times for n, times in self._passes.items()}
        resident = residents(target, tiling.warps, registers)
        if kept_bytes:
            taken = kept_bytes + target.limits["smem_reserved_per_cta"]
            resident = min(resident, max(1, target.limits["smem_per_unit"] // taken))
        together = min(resident, -(-blocks // target.n_units))
        elements = min(rows, p.shape[kept]) * prod(p.shape[-p.reduced :]) / steps / tiling.cluster
        n_bytes = elements * sum(DTYPES[o.dtype].itemsize for o in self._read)
        # CTAs begin together, and each reads at its unit's part of memory's rate.
        own_part = n_bytes * min(blocks, target.n_units) / target.memories[0].bytes_per_s
        chunk = max(self.tensors.answer(target, together * n_bytes), own_part)
        sweeps = max(passes.values(), default=1)
        online = self.online and steps > 1
        met = len(sweeps_of(len(p.operands), p.reductions, online)[0])
        merge = tiling.warps * target.figure("merge_warp_s")
        ends = met * (target.figure("exchange_s") + merge)
        # The last chunk has the tiles that are left, where chunks are of one dim.
        tiles = tiling.tiles(p.shape[-1]) if p.reduced == 1 else steps * tiling.vectors
        padded = rows * counts[kept] / p.shape[kept]
        padded *= columns * tiles * tiling.cluster / prod(p.shape[kept + 1 :])
        parameters = _marked({
            "sweep_threads": tiling.threads, "sweep_warps": tiling.warps,
            "vector": tiling.wide, "vectors": tiling.vectors,
            "resident": min(resident, ceil(blocks / target.n_units)),
            **({"cluster": tiling.cluster} if self.kept else {}),
        }, self.shifted)  # fmt: skip
        # Rows read again are found in the L2 where those on their way and as many before them fit.
        flying = min(blocks, 2 * resident * target.n_units) * elements * steps
        again = {n: times - 1 for n, times in passes.items() if times > 1}
        flying *= sum(DTYPES[p.operands[n].dtype].itemsize for n in again)
        beyond = flying / target.limits["l2_bytes"] - target.figure("swept_in_cache")
        missed = min(1.0, max(0.0, beyond / target.figure("swept_beyond_cache")))
        loss = self._short(tiling) + SWEPT + target.figure("swept_apart") * missed
        loss += SWEPT_AGAIN if again and self.fast else 0.0
        loss += target.figure("chunk_apart") * log2(steps)
        tensors = self._swept if steps > 1 else self.tensors
        said = partial(
            tensors.candidate, target, parameters, blocks=blocks, warps=tiling.warps,
            resident=resident, counts=counts, passes=passes, padded=padded, loss=loss,
            missed=missed, wide=tiling.wide, along=-1 if self.fast else -p.reduced - 1,
            lanes=min(tiling.threads, WARP), shifted=self.shifted,
        )  # fmt: skip
        aside = self.tensors.ends(target, tiling.wide if self.shifted else 0)
        if steps == 1 or self.kept:  # as rows in registers
            own, held = tensors.flops / prod(p.shape), tiling.wide * tiles
            computes = chained(target, held, own)
            chain = computes + aside
            if self.fast and not self.shifted and p.shape[-1] % tiling.wide and tiles > 2:
                chain += target.figure("cut_s")
            if tiling.wide * self._least < WORD_BYTES:
                chain += tiles * target.figure("small_read_s")
            sharing = tiling.threads if self.fast else WARP * tiling.warps
            chain += len(p.reductions) * exchanging(target, sharing)
            if not self.kept:
                return said(chain=chain, shared=merge, computes=computes)
            # Those that wait for others of their clusters read all at once.
            reads = steps * max(chunk, own_part * (together if tiling.cluster > 1 else 1))
            units = float(target.n_units)
            if tiling.cluster > 1:
                chain += (met + 1) * target.figure("cluster_meets_s")
                units = target.figure(f"units_in_clusters.{tiling.cluster}")
            follows = log2(tiling.cluster) * target.figure("cluster_follows_s")
            chain += 0.0 if self.fast else met * merge
            held_by_all = resident * units / target.n_units
            return said(resident=held_by_all, chain=chain, reads=reads, follows=follows)
        waves = -(-blocks // (target.n_units * resident))
        return said(waits=waves * (steps * sweeps * chunk + ends + sweeps * aside))

    def _short(self, tiling: SweepTiling) -> float:
        """The loss of reading less than whole lines of what is contiguous at a time.

        Runs of rows that begin inside sectors end in parts of them.
        """
        p = self.problem
        run = tiling.threads * tiling.wide
        if self.fast or run >= p.shape[-p.reduced - 1]:
            return 0.0
        lines = run * self._least / LINE_BYTES
        return SHORT * (max(0.0, -log2(lines)) + inside_sectors(self._read) / lines / 4)

    @cached_property
    def _read(self) -> list[Operand]:
        """Tensors that are read all along what is reduced."""
        dims = range(-self.problem.reduced, 0)
        return [o for o in self.problem.operands if not o.counts and any(map(o.varies, dims))]

    @cached_property
    def _least(self) -> int:
        """Bytes of an element of the narrowest of them."""
        return min((DTYPES[o.dtype].itemsize for o in self._read), default=4)

    @cached_property
    def _swept(self) -> Tensors:
        """The same tensors with the operations of several chunks: a sweep leaves the next none."""
        p, n = self.problem, len(self.problem.operands)
        sweeps, _ = sweeps_of(n, p.reductions, self.online)
        parts = [[p.reductions[m - n].cell for m in members] for members in sweeps]
        parts.append([c for o, c in p.outputs if any(o.strides[-p.reduced :])])
        again = sum(map(operations, parts)) - operations([c for cells in parts for c in cells])
        return replace(self.tensors, flops=self.tensors.flops + again * prod(p.shape))

    @cached_property
    def _rescales(self) -> bool:
        """Whether a running maximum rescales a sum."""
        n = len(self.problem.operands)
        return bool(sweeps_of(n, self.problem.reductions, self.online)[1])

    @cached_property
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
        tiling = SweepTiling(
            parameters["sweep_warps"], self.fast, parameters["vector"],
            parameters["sweep_threads"], parameters["vectors"], self.shifted,
            parameters.get("cluster", 1), self.kept,
        )  # fmt: skip
        return sweep(self.problem, tiling, name, self.online, parameters["resident"])

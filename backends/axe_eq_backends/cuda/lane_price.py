"""What kernels on lanes cost: the grid and the tensors that they are written with, and no estimate.

A kernel's time is a roofline. What was measured best of its sizes is the rule of its own file;
`apart` says what another size is priced at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, gcd, log2, prod
from typing import Any

from axe_eq.kernel.cells import Cell, subexpressions
from axe_eq.kernel.threads.placement import LANES
from axe_eq.lower.candidate import Candidate
from axe_eq.program import ops
from axe_eq.program.types import DTYPES
from axe_eq.target import Target
from axe_eq_backends.cuda.cells import joined
from axe_eq_backends.cuda.schedules.tensors import Operand, begins_apart, leading, run_vector

# Loss per doubling that a size is apart from the one that measured best: it orders sizes, and is
# less than what a kernel of another kind costs more.
APART = 0.03
# What cells take longer where all CTAs fit a machine that the kernel before leaves unit by unit:
# the root of the places over the CTAs, of so many at most (seven kernels of 2 to 5 us).
MOST_CROWDED = 6.0
MOST_IN_STEP = 2.0  # CTAs of a unit that compute at the same time
SECTOR_BYTES, LINE_BYTES = 32, 128  # that memory gives at least, and of what caches have


def apart(size: int, best: int) -> float:
    """The loss of a size that is not the best one.

    >>> apart(8, 32) == 2 * APART == apart(32, 8)
    True
    """
    return APART * abs(log2(size / best))


def operations(cells: Iterable[Cell]) -> float:
    """Floating operations of cells that are computed at one index, each subexpression once."""
    parts = {part for cell in cells for part in subexpressions(cell)}
    saved = sum(joint[0].saved for part in parts if (joint := joined(part)))
    return sum(ops.cell(part.cell)[0].flops for part in parts) - saved


def first_s(target: Target, n_bytes: float) -> float:
    """Seconds until a kernel has what it reads first.

    What is little lies in a cache, or has been asked for when the kernel before ends.
    """
    of_l2 = n_bytes / target.limits["l2_bytes"]
    return target.memories[0].latency_s * min(1.0, of_l2 / target.figure("little"))


def floor_s(target: Target, n_bytes: float) -> float:
    """Seconds that a kernel takes beside its launch, its bytes and what its CTAs compute.

    The second latency is that of kernels with more than is on its way at once.
    """
    of_l2 = n_bytes / target.limits["l2_bytes"]
    more = min(1.0, of_l2 / target.figure("on_its_way"))
    return first_s(target, n_bytes) + target.memories[0].latency_s * more


def residents(target: Target, warps: int, registers: int) -> int:
    """CTAs that a unit holds, of so many warps, and registers of a thread."""
    granule = target.limits["register_granule"]
    taken = -(-registers // granule) * granule * LANES * warps
    return max(
        1,
        min(
            target.limits["registers_per_unit"] // taken,
            target.limits["threads_per_unit"] // (LANES * warps),
            target.limits["ctas_per_unit"],
        ),
    )


def chained(target: Target, elements: int, flops: float) -> float:
    """Seconds in which a thread computes its elements, one after the other."""
    return elements * (target.figure("element_s") + flops * target.figure("operation_s"))


def exchanging(target: Target, threads: int) -> float:
    """Seconds in which so many threads of a CTA exchange a value that each of them has."""
    lanes = log2(min(threads, LANES)) * target.figure("shuffle_s")
    if threads <= LANES:
        return lanes
    return lanes + target.figure("exchange_s") + threads / LANES * target.figure("exchange_warp_s")


def rows_apart(tensors: Sequence[Operand]) -> set[int]:
    """Bytes between neighbours of tensors along the dims that are not contiguous."""
    return {s * DTYPES[o.dtype].itemsize for o in tensors for s in o.strides if s > 1}


def inside_sectors(tensors: Sequence[Operand]) -> float:
    """How far inside of sectors rows of tensors begin, of a sector."""
    return 1 - gcd(SECTOR_BYTES, *rows_apart(tensors)) / SECTOR_BYTES


@dataclass(frozen=True)
class Tensors:
    """What a kernel reads and writes over an index space.

    Attributes:
        shape: its extents.
        operands, outputs: tensors over it.
        buffers: by the names of tensors.
        flops: operations of its cells, over the whole space.
    """

    shape: Sequence[int]
    operands: Sequence[Operand]
    outputs: Sequence[Operand]
    buffers: Mapping[str, str]
    flops: float
    _known: dict[Any, float] = field(default_factory=dict, compare=False)

    def candidate(
        self,
        target: Target,
        parameters: Mapping[str, int],
        *,
        blocks: int,
        warps: int,
        resident: float,
        counts: Sequence[int],
        loss: float = 0.0,
        passes: Mapping[int, int] | None = None,
        waits: float = 0.0,
        reread: float = 0.0,
        padded: float = 1.0,
        chain: float | None = None,
        shared: float = 0.0,
        wide: int = 0,
        along: int = -1,
        lanes: int = LANES,
        missed: float = 0.0,
        phases: bool = True,
        shifted: bool = False,
        reads: float = 0.0,
        follows: float = 0.0,
        run: int = 0,
        computes: float = 0.0,
        apart: float = 0.0,
    ) -> Candidate:
        """The kernel by these parameters.

        Args:
            target: the machine.
            parameters: what it is written by.
            blocks: CTAs.
            warps: of a CTA.
            resident: CTAs that a unit holds, on the average of all units.
            counts: tiles along every dim: what does not vary along one is read for each.
            loss: part of its time that other parameters would save.
            passes: how often operands are swept, by number; 1 where it does not say.
            waits: seconds that CTAs wait for each other, at least.
            reread: bytes that caches give beside those of tiles.
            padded: elements that threads compute, of one that is needed.
            chain: seconds of one CTA beside a read and a write, one after the other; None where
                `waits` says how CTAs follow each other.
            shared: seconds of it in which no other CTA of a unit gets on.
            wide: elements along a dim that an instruction moves for each lane; 0 where
                instructions are too few to count.
            along: that dim.
            lanes: of a warp that are side by side along it.
            missed: part of what is swept again that memory gives again.
            phases: a CTA reads from memory first and from caches later; else all at once, and what
                caches give again is on its way beside the rest.
            shifted: rows begin anywhere, so that some operands are read by two vectors for one.
            reads: seconds of one CTA until it has read all; where it says, those that run together
                read, compute and store at the same time.
            follows: seconds until the next CTAs begin, beside `cta_s`.
            run: elements of a row that a warp stores at once where it stores several rows; 0 where
                all are of one.
            computes: seconds of `chain` in which threads compute what they hold.
            apart: part that memory takes longer.
        """
        once, stored = self._once
        loaded = self._loaded(tuple(counts), passes or {}, target)
        again = max(0.0, loaded - (once - stored))
        once, again = once + missed * again, again - missed * again + reread
        rate, units = target.memories[0].bytes_per_s, target.n_units
        memory = (1 + apart) * once / rate / min(1.0, blocks * target.figure("unit_bandwidth"))
        cached = rate * target.figure("l2_over_memory") * min(1.0, blocks / units)
        if phases:
            memory += again / cached
        else:
            memory = max(memory + reread / cached, (once + again) / cached)
        turned = self._turned(counts, passes or {}, wide) if shifted else 0.0
        flops = self.flops * padded + turned * target.figure("turned_flops")
        flops += blocks * warps * LANES * target.figure("thread_flops")
        vector = flops / target.vector_flops_per_s / target.figure("lane_issue")
        busiest = ceil(blocks / units) * units / blocks
        if not phases:  # units that are done first take more of few CTAs
            busiest *= min(MOST_CROWDED, max(1.0, resident * units / blocks)) ** 0.5
        asks = 0.0
        if wide:
            asks = self._asked(counts, passes or {}, target, wide, along, lanes, shifted) * busiest
            # The first CTAs of the units ask while they wait for their first answers.
            asks = max(0.0, asks - target.memories[0].latency_s * min(1.0, units / blocks))
        begin = target.figure("begin_cta_s") * max(1.0, warps / target.figure("begin_warps"))
        first = begin * min(blocks, units * resident) * target.figure("first_ctas")
        floor = floor_s(target, self._once[0]) + first
        if chain is not None:
            own = once / blocks / (rate * target.figure("unit_bandwidth"))
            if computes and resident < 2 and not reads:  # nothing of a unit is on its way meanwhile
                share = once / blocks * min(blocks, units) / rate
                own = max(own, share * target.figure("alone_reads"))
            one = target.figure("cta_s") + chain + max(own, asks * units / blocks / busiest)
            # Two CTAs of a unit begin together and compute at the same time; more fall out of step.
            in_step = min(resident, MOST_IN_STEP, max(1.0, blocks / units))
            at_once = target.figure("in_lockstep") * in_step * vector / blocks * units
            one += max(0.0, at_once - computes) if computes else 0.0
            if reads:
                runs = max(1.0, blocks / (units * resident))
                waits = max(waits, (one - own + max(own, reads) + follows) * (runs - 1) + reads)
            else:
                follow = blocks / (units * resident) - 0.5  # half of what runs together has begun
                waits = max(waits, one * follow, shared * blocks / units)
        waits = max(waits, blocks * begin)
        power = target.figure("lanes_power")
        # What asks is issued beside what computes, and waits for its pipe as well.
        issued = target.figure("ask_issue") * asks
        # These hide each other, but not whole.
        parts = memory, vector * busiest + issued, waits, asks - issued
        together = sum(part**power for part in parts) ** (1 / power)
        time_s = target.launch_s + floor + (chain or 0.0) + together * (1.0 + loss)
        stores = self._stored_apart(along, run)
        stores *= max(
            target.figure("apart_store_s"), target.figure("unit_store_s") / min(blocks, units)
        )
        time_s += stores
        costs = {
            "gmem_bytes": once, "reread_bytes": again, "vector_s": vector, "memory_s": memory,
            "blocks": float(blocks), "latency_s": floor + (chain or 0.0),
        }  # fmt: skip
        if waits:
            costs["waits_s"] = waits
        if asks + stores:
            costs["asks_s"] = asks + stores
        return Candidate(parameters, time_s, costs)

    @property
    def n_bytes(self) -> float:
        """Bytes that cross main memory."""
        return self._once[0]

    def ends(self, target: Target, wide: int) -> float:
        """Seconds of a CTA for the ends of rows that begin anywhere, read by vectors so wide.

        Every operand that is taken out of two vectors has ends of its own.
        """
        led = leading(self.operands, self.outputs)
        apart = sum(begins_apart(o, led, wide) for o in self.operands if not o.counts)
        return target.figure("row_ends_s") * (1 + apart) if wide else 0.0

    def answer(self, target: Target, n_bytes: float) -> float:
        """Seconds in which a unit that asks for so many bytes at once has them."""
        memory = target.memories[0]
        unit_rate = memory.bytes_per_s * target.figure("unit_bandwidth")
        return max(memory.latency_s, n_bytes / unit_rate)

    @cached_property
    def _once(self) -> tuple[float, float]:
        """Bytes that cross main memory, and of them those stored.

        What several tensors read of one buffer counts once.
        """
        of: dict[str, list[Operand]] = {}
        for o in self.operands:
            if not o.counts:
                of.setdefault(self.buffers[o.name], []).append(o)
        read = (min(sum(map(self._footprint, same)), self._span(same)) for same in of.values())
        stored = sum(map(self._footprint, self.outputs))
        return sum(read) + stored, stored

    def _extent(self, o: Operand, dim: int) -> int:
        low, high = o.bound(dim) or (0, self.shape[dim])
        return high - low

    def _footprint(self, o: Operand) -> float:
        """Bytes of the elements of a tensor that there are reads or writes of."""
        if o.counts:
            return 0.0
        dims = range(len(self.shape))
        places = prod(self._extent(o, d) for d in dims if o.strides[d])
        if o.looks:
            there = places * prod(look.extent for look in o.looks)
            places = min(there, prod(self._extent(o, d) for d in dims if o.varies(d)))
        return float(places * DTYPES[o.dtype].itemsize)

    def _span(self, same: Sequence[Operand]) -> float:
        """Bytes from the first element that some tensors of a buffer read to the last."""
        if len(same) == 1 or any(o.looks for o in same):
            return float("inf")
        ends = []
        for o in same:
            bounds = [o.bound(d) or (0, e) for d, e in enumerate(self.shape)]
            steps = [(s * a, s * (b - 1)) for s, (a, b) in zip(o.strides, bounds, strict=True)]
            ends.append([o.offset + sum(map(f, steps)) for f in (min, max)])
        first, last = min(a for a, _ in ends), max(b for _, b in ends)
        return float((last - first + 1) * DTYPES[same[0].dtype].itemsize)

    def _stored_apart(self, dim: int, run: int) -> float:
        """Parts of sectors that are stored alone, where lanes are neighbours along a dim.

        With a `run` of few neighbours the next ones of a warp are of the next row.
        """
        total = 0.0
        for o in self.outputs:
            size = DTYPES[o.dtype].itemsize
            step, at_once = abs(o.strides[dim]), 1
            if step == 1 and 0 < run * size < SECTOR_BYTES:
                step, at_once = abs(o.strides[dim - 1]), run
            if step > at_once:
                total += self._footprint(o) / size / at_once * min(1.0, step * size / SECTOR_BYTES)
        return total

    def scattered(self, dim: int) -> float:
        """Bytes that memory gives beside those wanted, where neighbours along a dim are read."""
        total = 0.0
        # What lies between the elements of one operand may be those of another.
        beside = Counter(self._comb(o, dim) for o in self.operands)
        for o in self.operands:
            whole = SECTOR_BYTES // DTYPES[o.dtype].itemsize
            apart = 1 if o.looks else min(abs(o.strides[dim]), whole)
            total += self._footprint(o) * max(0.0, apart / beside[self._comb(o, dim)] - 1)
        return total

    def _comb(self, o: Operand, dim: int) -> tuple[str, tuple[int, ...], int]:
        """What operands of one buffer that read between each other's elements have in common."""
        return self.buffers.get(o.name, ""), o.strides, o.offset // max(1, abs(o.strides[dim]))

    def _loaded(self, counts: tuple[int, ...], passes: Mapping[int, int], target: Target) -> float:
        """Bytes that units ask of the cache that all share, for the tiles of a kernel's passes."""
        key = counts, tuple(passes.items())
        if key not in self._known:
            read = (
                self._read(o, counts, target) * passes.get(n, 1)
                for n, o in enumerate(self.operands)
            )
            self._known[key] = sum(read)
        return self._known[key]

    def _read(self, o: Operand, counts: Sequence[int], target: Target) -> float:
        """Bytes that the tiles of a kernel read of an operand, together.

        What many tiles read, as the weights of rows, a unit's own cache keeps where it is small.
        """
        if o.counts:
            return 0.0
        own, times = self._places(o, counts)
        n_bytes = float(own * DTYPES[o.dtype].itemsize)
        kept = n_bytes <= target.figure("unit_cache_bytes")
        return n_bytes * (min(times, target.n_units) if kept else times)

    def _places(self, o: Operand, counts: Sequence[int]) -> tuple[int, int]:
        """Elements of an operand that there are, and tiles that read each of them."""
        own = prod(self._extent(o, d) for d in range(len(counts)) if o.varies(d))
        return own, prod(n for d, n in enumerate(counts) if not o.varies(d))

    def _asked(
        self,
        counts: Sequence[int],
        passes: Mapping[int, int],
        target: Target,
        wide: int,
        along: int,
        lanes: int,
        shifted: bool,
    ) -> float:
        """Seconds in which a unit's warps ask for all that they read and store, one by one."""
        total = 0.0
        for n, o in enumerate([*self.operands, *self.outputs]):
            own, times = self._places(o, counts)
            if o.counts:
                continue
            # Lanes whose elements lie apart ask for several lines at once.
            step, run = abs(o.strides[along]), lanes * wide * DTYPES[o.dtype].itemsize
            runs = LANES / lanes if step else 1.0
            lines = min(LANES, runs * max(1.0, run * step / LINE_BYTES))
            more = 1 + target.figure("ask_line_apart" if step > 1 else "ask_line") * (lines - 1)
            longest = max(1, max(target.sizes("vector_bytes")) // DTYPES[o.dtype].itemsize)
            held = 1 if step != 1 else longest if shifted else run_vector([o], along)
            of_one = LANES * min(wide, longest, held)
            if step == 1:  # parts of lines
                whole = max(1.0, of_one * DTYPES[o.dtype].itemsize / LINE_BYTES)
                more += target.figure("ask_part") * max(0.0, lines - whole)
            total += own * times * passes.get(n, 1) / of_one * more
        return total / target.n_units * target.figure("ask_s")

    def _turned(self, counts: Sequence[int], passes: Mapping[int, int], wide: int) -> float:
        """Elements that are taken out of two vectors, where those of results are aligned."""
        led = leading(self.operands, self.outputs)
        return sum(
            prod(self._places(o, counts)) * passes.get(n, 1)
            for n, o in enumerate(self.operands)
            if not o.counts and begins_apart(o, led, wide)
        )

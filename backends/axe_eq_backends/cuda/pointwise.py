"""From cones of cells to kernels: maps, and relayouts where contiguous dims differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import log2, prod

from axe_eq.kernel.cells import Cell
from axe_eq.kernel.cells import flops as cell_flops
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.placement import LANES
from axe_eq.lower.candidate import Candidate
from axe_eq.lower.formulas import Cone
from axe_eq.program.types import DTYPES
from axe_eq.target import Target
from axe_eq_backends.cuda.lane_price import (
    LINE_BYTES,
    SECTOR_BYTES,
    Tensors,
    chained,
    inside_sectors,
    operations,
    residents,
    rows_apart,
)
from axe_eq_backends.cuda.leaves import Names, operand, stored
from axe_eq_backends.cuda.pieces import in_pieces
from axe_eq_backends.cuda.schedules.map import (
    OTHER_REGISTERS,
    VECTORS,
    elementwise,
    fits,
    registers,
    spread,
    tiled,
)
from axe_eq_backends.cuda.schedules.tensors import (
    Operand,
    alike,
    collapse,
    run_vector,
    unaligned,
    vectors,
)  # fmt: skip
from axe_eq_backends.cuda.schedules.transpose import (
    ELEMENT_SIDE,
    ELEMENT_WARPS,
    SMALL,
    block_side,
    tile_of,
    turn,
)

PAGE_BYTES = 512  # rows so far apart share channels of memory
WORD_BYTES = 4
SMALL_READS = 8  # of a thread, each of less than a word, that lose nothing
# Of a thread that turns blocks: what it takes beside small ones, and registers of large ones.
BESIDE_BLOCKS, MANY_REGISTERS = 8, 64
MANY_WARPS = 32  # of a unit, with enough on its way; as many of one CTA begin and end together
# Of a kernel's CTAs, those that a unit has room for: from here on some of the next one's begin
# beside them, over so much more; up to here not all, over so much less.
ROOM = 1.1, 0.3, 2.4, 0.6
# Elements of a dim that reads or writes along it continue; sectors are of 32 bytes.
WORTH_TURNING = 8


def mapped(cone: Cone) -> tuple[list[Maps | Turns], Mapping[str, str]]:
    """The ways to write a cone without reductions, and the buffers behind its tensors."""
    names = Names()
    operands = [operand(cone, leaf, names) for leaf in cone.leaves]
    outputs = [stored(r, names) for r in cone.roots]
    shape = tuple(cone.shape) or (1,)
    if not cone.shape:
        operands = [replace(o, strides=(0,)) for o in operands]
        outputs = [replace(o, strides=(1,)) for o in outputs]
    cells = [r.cell for r in cone.roots]
    turned = _turned(shape, operands, outputs)
    ways: list[Maps | Turns] = []
    if turned is not None:
        order = [*(d for d in range(len(shape)) if d not in turned), *turned]
        tensors = [o.over(order) for o in (*operands, *outputs)]
        extents, fused = collapse([shape[d] for d in order], tensors, frozen=2)
        ways.append(Turns(_tensors(extents, fused, len(operands), cells, names), cells))
    given = list(zip(outputs, cells, strict=True))
    whole = _maps(shape, operands, given, names)
    ways.append(whole)
    if wide := unaligned([*whole.tensors.operands, *whole.tensors.outputs]):
        ways.append(replace(whole, shifted=True))
        t = whole.tensors
        if cut_rows := alike(t.shape, t.operands, t.outputs, len(t.shape) - 2, wide):
            near = replace(
                t, shape=cut_rows[0], operands=cut_rows[1], outputs=cut_rows[2], _known={}
            )
            ways.append(replace(whole, tensors=near, shifted=True, alike=wide))
    if cut := in_pieces(shape, operands, given, names):
        ways.append(_maps(cut.shape, cut.operands, cut.outputs, names, cut.count))
    return ways, names.buffers


def _maps(
    shape: Sequence[int],
    operands: Sequence[Operand],
    outputs: Sequence[tuple[Operand, Cell]],
    names: Names,
    pieces: int = 1,
) -> Maps:
    """Maps over an index space, its dims fused where all tensors run through them."""
    cells = [cell for _, cell in outputs]
    extents, fused = spread(shape, [*operands, *(o for o, _ in outputs)])
    return Maps(_tensors(extents, fused, len(operands), cells, names), cells, pieces)


def _tensors(
    shape: Sequence[int],
    tensors: Sequence[Operand],
    n_operands: int,
    cells: Sequence[Cell],
    names: Names,
) -> Tensors:
    """What a kernel of cells reads, writes and computes."""
    ins, outs = tensors[:n_operands], tensors[n_operands:]
    return Tensors(shape, ins, outs, names.buffers, operations(cells) * prod(shape))


@dataclass(frozen=True)
class Maps:
    """Cells at every index: vectors of every operand."""

    tensors: Tensors
    cells: Sequence[Cell]
    pieces: int = 1  # of an index space that it is over one of
    shifted: bool = False  # rows begin anywhere, and vectors where memory is aligned for them
    alike: int = 0  # rows so far apart, which begin alike, are next to each other

    @property
    def names(self) -> frozenset[str]:
        """The parameters of its candidates."""
        marks = {"pieces"} if self.pieces > 1 else {"shifted"} if self.shifted else set[str]()
        marks |= {"alike"} if self.alike else set()
        return frozenset({"map_warps", "vector", "vectors"} | marks)

    def candidates(self, target: Target) -> list[Candidate]:
        """Vectors and their number, as far as a thread holds and computes them."""
        t, found = self.tensors, list[Candidate]()
        fused, last = [*t.operands, *t.outputs], len(t.shape) - 1
        longest = max(target.sizes("vector_bytes"))
        run = run_vector(t.outputs, last, longest)
        if self.shifted:
            run = unaligned(fused, longest)
            if run < 2:  # single elements begin nowhere between others
                return found
        flops = sum(map(cell_flops, self.cells))
        held_by = {
            (min(most, run, held), held)
            for most in vectors(fused, longest)
            for held in target.sizes("map_elements")
            if held <= VECTORS * most and fits(fused, flops, held)
        }
        for warps, (wide, held) in product(target.sizes("map_warps"), sorted(held_by)):
            tile, _ = tiled(t.shape, fused, warps, wide, held // wide, self.shifted)
            if self.shifted and (
                wide < run or (tile[:-1] != (1,) and (len(tile) > 2 or not self.alike))
            ):
                continue
            if self.alike and tile[-2] == 1:
                continue
            sizes = (*[1] * (len(t.shape) - len(tile)), *tile)
            counts = tuple(-(-e // s) for e, s in zip(t.shape, sizes, strict=True))
            parameters = {"map_warps": warps, "vector": wide, "vectors": held // wide}
            # Tiles inside of rows guard nothing, but what is read along a part of them alone.
            cut = any(o.bound(last) for o in t.operands)
            at_ends = 1.0 if cut else min(1.0, 2 / counts[-1])
            if self.pieces > 1:
                parameters["pieces"] = self.pieces
            if self.shifted:
                parameters["shifted"] = 1
            if self.alike:
                parameters["alike"] = self.alike
            found.append(
                t.candidate(
                    target, parameters,
                    blocks=prod(counts), counts=counts,
                    reread=t.scattered(last) * target.figure("scattered"),
                    waits=t.n_bytes / prod(counts) / target.figure("cta_bytes_per_s"),
                    warps=warps,
                    resident=residents(target, warps, registers(fused, held) + OTHER_REGISTERS),
                    chain=chained(target, held, flops) + self._word_by_word(target, wide)
                    + at_ends * t.ends(target, run if self.shifted else 0),
                    wide=wide, phases=False, shifted=self.shifted,
                    apart=target.figure("held_apart") * log2(held // wide)
                    + self._one_by_one(target, wide, held // wide),
                    padded=prod(s * n for s, n in zip(sizes, counts, strict=True)) / prod(t.shape),
                )
            )  # fmt: skip
        return found

    def _one_by_one(self, target: Target, wide: int, vectors: int) -> float:
        """The part that memory takes longer for many reads of less than a word of a thread."""
        sizes = (DTYPES[o.dtype].itemsize for o in self.tensors.operands if not o.counts)
        small = wide * min(sizes, default=WORD_BYTES) < WORD_BYTES
        return small * target.figure("small_apart") * _doublings(vectors, SMALL_READS)

    def _word_by_word(self, target: Target, wide: int) -> float:
        """Seconds of a thread that reads of many operands no more than a word of each."""
        read = (DTYPES[o.dtype].itemsize * wide for o in self.tensors.operands if not o.counts)
        return sum(n <= WORD_BYTES for n in read) * target.figure("small_read_s")

    def kernel(self, parameters: Mapping[str, int], name: str) -> ir.Kernel:
        """A map of so many vectors a thread."""
        t = self.tensors
        return elementwise(
            t.shape, t.operands, list(zip(t.outputs, self.cells, strict=True)), name=name,
            warps=parameters["map_warps"], wide=parameters["vector"],
            vectors=parameters["vectors"], shifted=self.shifted,
        )  # fmt: skip


@dataclass(frozen=True)
class Turns:
    """Cells of tensors that are read along one dim and written along another."""

    tensors: Tensors
    cells: Sequence[Cell]
    names: frozenset[str] = frozenset({"turn_reading", "turn_writing", "turn_lanes", "vector"})

    def candidates(self, target: Target) -> list[Candidate]:
        """Warps along either dim."""
        t, found = self.tensors, list[Candidate]()
        tensors = [*t.operands, *t.outputs]
        side = block_side(t.shape, tensors, max(target.sizes("vector_bytes")))
        sizes = [target.sizes(f"turn_{n}") for n in ("reading", "writing", "lanes")]
        flops = sum(map(cell_flops, self.cells))
        held = side**2 if side > 1 else ELEMENT_SIDE**2 // (ELEMENT_WARPS * LANES)
        asks = prod(t.shape) * len(tensors) / LANES / target.n_units
        one_by_one = asks * target.figure("ask_s") if side == 1 else 0.0
        for reading, writing, lanes in product(*sizes) if side > 1 else [(*SMALL, LANES)]:
            warps = reading * writing if side > 1 else ELEMENT_WARPS
            tile = tile_of(side, (reading, writing), lanes)
            counts = (*t.shape[:-2], *(-(-e // s) for e, s in zip(t.shape[-2:], tile, strict=True)))
            is_whole = not any(e % s for e, s in zip(t.shape[-2:], tile, strict=True))
            of_thread = self._registers(held, is_whole)
            if of_thread * LANES * warps > target.limits["registers_per_unit"]:
                continue
            resident = residents(target, warps, of_thread)
            if side > 1:
                loss = self._parts(target, tile, side, lanes)
                loss += self._crowded(target, tile, counts, warps, resident)
            else:
                loss = target.figure("split_sector.elements") * inside_sectors(tensors)
            found.append(
                t.candidate(
                    target,
                    {"turn_reading": reading, "turn_writing": writing, "turn_lanes": lanes,
                     "vector": side},
                    blocks=prod(counts), counts=counts, chain=chained(target, held, flops),
                    warps=warps, resident=resident, loss=loss, waits=one_by_one,
                )
            )  # fmt: skip
        return found

    def _registers(self, held: int, is_whole: bool) -> int:
        """About those that NVRTC takes of a thread, which holds so many elements of a tensor.

        A block leaves its own as it is turned, so that large ones need none beside; the ends of
        tiles are found from fewer addresses.
        """
        of_blocks = registers([*self.tensors.operands, *self.tensors.outputs], held)
        beside = of_blocks < MANY_REGISTERS or (of_blocks == MANY_REGISTERS and is_whole)
        return of_blocks + BESIDE_BLOCKS * beside

    def _parts(self, target: Target, tile: tuple[int, int], side: int, lanes: int) -> float:
        """The loss of what is read and written at once: short runs, and parts of sectors."""
        t, line = self.tensors, float(LINE_BYTES)
        read, written = (min(DTYPES[o.dtype].itemsize for o in x) for x in (t.operands, t.outputs))
        loss = target.figure("short_run.read") * _doublings(line, side * LANES // lanes * read)
        # Where rows of results are whole pages apart, caches put halves of lines together.
        if any(n % PAGE_BYTES for n in rows_apart(t.outputs)):
            loss += target.figure("short_run.written") * _doublings(line, side * lanes * written)
        for extent, size in zip(tile, (read, written), strict=True):
            loss += target.figure("short_run.tile") * _doublings(2 * line, extent * size)
        # A tile's rows end in parts of sectors where those of results begin inside of them.
        apart = inside_sectors(t.outputs) * SECTOR_BYTES / (tile[1] * written)
        return loss + target.figure("split_sector.written") * apart

    def _crowded(
        self,
        target: Target,
        tile: tuple[int, int],
        counts: Sequence[int],
        warps: int,
        resident: int,
    ) -> float:
        """The loss of idle threads, of idle units, and of what units hold at once."""
        blocks, units = prod(counts), target.n_units
        covered = prod(s * n for s, n in zip(tile, counts[-2:], strict=True))
        loss = target.figure("turned_idle") * (covered / prod(self.tensors.shape[-2:]) - 1)
        loss += target.figure("turned_few") * _doublings(units, blocks)
        # The next kernel's CTAs begin where these leave room: some of them do on few units.
        room = resident * units / blocks
        some = min(1.0, (room - ROOM[0]) / ROOM[1], (ROOM[2] - room) / ROOM[3])
        loss += target.figure("turned_room") * max(0.0, some)
        if room < 1:
            loss += target.figure("turned_warps") * _doublings(MANY_WARPS, resident * warps)
        return loss + target.figure("turned_large") * (warps >= MANY_WARPS)

    def kernel(self, parameters: Mapping[str, int], name: str) -> ir.Kernel:
        """A relayout by so many warps along either dim."""
        t, warps = self.tensors, (parameters["turn_reading"], parameters["turn_writing"])
        outputs = list(zip(t.outputs, self.cells, strict=True))
        sizes = parameters["vector"], parameters["turn_lanes"]
        return turn(t.shape, t.operands, outputs, warps, name, *sizes)


def _doublings(of: float, what: float) -> float:
    """How often something doubles until it is so much: 32 twice for 128, 256 not once."""
    return max(0.0, log2(of / what))


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

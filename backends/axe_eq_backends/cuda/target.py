"""NVIDIA H200 and B200 as data.

H200 figures are measured (one card, burst protocol, random normal data, driver 580, CUDA 13.0,
2026-11) unless the comment says derived or datasheet. B200 figures are the datasheet's: no such
card was measured.
"""

from __future__ import annotations

from dataclasses import replace

from axe_eq.kernel.threads.ir import GROUPS
from axe_eq.kernel.threads.placement import LANES
from axe_eq.target import Completion, Instr, Level, Link, Memory, Target
from axe_eq.target.machine import GLOBAL, PRIVATE
from axe_eq_backends.cuda.instrs import (
    CP_ASYNC,
    FETCH,
    FMA,
    HOPPER,
    LOAD_STORE,
    MATRIX,
    MMA,
    REGISTERS,
    TMA,
)

_KIB = 1 << 10

_LIMITS = {
    "registers_per_unit": 65536,
    "registers_per_thread": 255,
    "register_granule": 8,
    "smem_per_unit": 228 * _KIB,
    "smem_reserved_per_cta": _KIB,
    "ctas_per_unit": 32,
    "threads_per_unit": 2048,
    "named_barriers": 16,
}
# Clusters of 8 CTAs are what every such machine gives; 16 are possible on some.
_CLUSTER = (Level("device", 1), Level("cluster"))
_CTA = (Level("warpgroup", 8), Level("warp", 4), Level("thread", LANES))


_COMPLETIONS = (Completion("mbarrier"), *GROUPS)


def _memories(
    gmem: int, gmem_rate: float, units: int, clock_hz: float, tmem: bool = False
) -> tuple[Memory, ...]:
    memories = (
        # A copy of any size takes 1.87e-6 beside its bytes, its launch among them: two latencies.
        Memory("gmem", ("m",), gmem, "device", gmem_rate, kind=GLOBAL, latency_s=0.58e-6),
        # 227 KiB of the 228 KiB are a CTA's to use; 128 bytes per clock and SM (derived).
        Memory("smem", ("m",), 227 * _KIB, "cta", units * 128 * clock_hz, align_bytes=128),
        Memory("reg", ("reg",), 255 * 4, "thread", kind=PRIVATE),
    )
    if not tmem:
        return memories
    # 128 lanes of 512 columns of 4 bytes per SM.
    tensor = Memory("tmem", ("TLane", "TCol"), 256 * _KIB, "cta", accumulates=True, extents=(128,))
    return (*memories, tensor)


def _powers(most: int) -> tuple[int, ...]:
    """1, 2, 4, ... to the last that is at most so many."""
    return tuple(1 << n for n in range(most.bit_length()))


# What kernels may have; which is best was measured on one H200 and is said by their price.
_CHOICES = {
    # Products on matrix units: a tile, steps on their way, panels of results in shared memory, CTAs
    # of a cluster that share operand tiles, or the steps of a tile. Clusters that share operands
    # take 1.007 times as long over eight large products and win one of them
    # (benchmarks/results/cuda_h200_clusters.json); they win where rows begin inside lines.
    "product_rows": (64, 128, 192, 256),
    "product_cols": (32, 64, 96, 128, 160, 192, 224, 256, 320),
    "product_stages": (2, 3, 4, 5, 6, 8, 10, 12),
    "product_panels": (1, 2, 8),
    "product_waves": (1, 2, 3, 4),  # that tiles of as few columns as can be fill
    "product_cluster": (1, 2, 4, 8),
    "product_split": (1, 2, 3, 4, 6, 8),
    "product_rest": (2,),  # of tiles that fill no wave; clusters of more leave units out
    # Products in registers: sides of a tile, warps of a CTA, rows of tiles in a band. Four warps
    # with large parts of a tile measured better than eight.
    "register_sides": (16, 32, 64, 128),
    "register_warps": (4,),
    "register_band": (8,),
    "register_steps": (1, 4),  # of small tiles on ordinary lanes, over those of a full one
    # Streams: warpgroups that multiply, a chunk, columns of the values, chunks on their way; 1 of
    # those is one warpgroup that carries operands through registers.
    "stream_groups": (1, 2, 3),
    "stream_chunk": tuple(range(32, 177, 16)),
    "stream_cols": (32, 64, 96, 128, 192, 256),
    "stream_stages": (1, 2, 3, 4),
    "vector_bytes": (4, 8, 16),
    "row_threads": _powers(1024),  # of a row that stays in registers
    "sweep_threads": _powers(1024),  # along what is contiguous
    "sweep_warps": (4, 8, 16, 32),
    "sweep_vectors": (1, 4, 8),  # of a thread, on their way together
    "sweep_cluster": (1, 2, 4, 8),  # CTAs of a part of every row, or one that keeps rows
    "sweep_kept": (4096,),  # elements of rows that shared memory keeps or a cluster has, at least
    "sweep_held": (64,),  # elements of a thread that holds all it reduces
    "map_warps": (4,),
    "map_elements": _powers(32),  # of a thread
    "turn_reading": (1, 2, 4),  # warps along the dim that is read
    "turn_writing": (1, 2, 4, 8),
    "turn_lanes": (4, 8, 16),  # of a warp along the dim that is written
    "scan_threads": _powers(1024),  # along the scanned dim
    "scan_held": (1, 2, 3, 4, 6, 8, 12, 16),  # of a thread
}

# Fitted on one H200 (2026-11, burst protocol, random normal data).
_FIGURES = {
    # Rate of the L2 over that of memory: GEMM tiles of 128 x 256 at 770 TFLOP/s draw 9.0e12 B/s
    # from it, so at least 2.1; 3 fits.
    "l2_over_memory": 3.0,
    # Kernels on lanes (2026-11-27; 900 candidates of 180 drawn kernels and 128 whole programs,
    # within 30 % for 95 % of those chosen). Parts of the L2: what has been asked for when the
    # kernel before ends, and beyond which a kernel waits for memory once more.
    "little": 1 / 220,
    "on_its_way": 0.27,
    # The power of times that hide each other in part.
    "lanes_power": 4.5,
    # Bytes that a unit's own cache gives again: the weights of rows cost none of the L2's rate up
    # to twice 28 KB, the most that was measured (layernorm of f16[6000,14336], 2026-11-27).
    "unit_cache_bytes": 32 << 10,
    # Seconds between instructions of a unit's warps that read or store, whatever their lanes move.
    "ask_s": 2.2e-9,
    # As much more for every line of 128 bytes beyond the first that one of them asks for, and where
    # its elements lie apart: pooling of f16[8,96,112,112] by vectors of 2, 4 and 8.
    "ask_line": 0.1,
    "ask_line_apart": 0.25,
    # As much more for every line that it asks for a part of: rows of 71 to 113 elements of f16 that
    # 2 to 16 threads of a warp read. The part of these seconds in which a scheduler issues, so that
    # nothing else computes. Operations that a thread takes for its addresses. Loss of maps per
    # doubling of a thread's vectors: concatenations of odd rows (all 2026-11-27, candidates of
    # drawn seeds 7000 to 11130).
    "ask_part": 0.2,
    "ask_issue": 0.2,
    "thread_flops": 30.0,
    "held_apart": 0.05,
    # As much of memory's part per doubling of a thread's reads of less than a word beyond eight:
    # sixteen halves take 1.05 to 1.4 of the time of eight (nine maps of odd rows, 2026-11-27).
    "small_apart": 0.25,
    # Loss of a relayout per halving of what a warp reads of a row at once below a line, of what it
    # writes of one, and of what a tile has of a row below two lines, on either side; of idle
    # threads past an end; of CTAs per halving below one for each unit; of room for some of the next
    # kernel's CTAs, not all; of a unit's warps per halving below 32, where CTAs follow each other;
    # of CTAs of so many; of a sector over what a tile writes of a row, where rows begin inside of
    # sectors. 3,000 tiles of 86 turns (2026-11-27): what is chosen takes 1.06 of the fastest in the
    # mean, 1.11 before.
    "short_run.read": 0.06,
    "short_run.written": 0.28,
    "short_run.tile": 0.037,
    "turned_idle": 0.4,
    "turned_few": 0.27,
    "turned_room": 0.31,
    "turned_warps": 0.078,
    "turned_large": 0.25,
    "split_sector.written": 0.42,
    "split_sector.elements": 0.4,
    # What a layout of inputs and outputs has to save: about a launch. Of 49 drawn programs that it
    # was to save more than 5 % 41 were faster, by 1.61 of 1.80 predicted (2026-11-27).
    "least_saved_s": 0.7e-6,
    # Share of arithmetic that does not hide behind memory traffic.
    "exposed": 0.1,
    # Bytes of L2's rate that a byte of a sector takes of which little is used.
    "scattered": 2.3,
    # Operations of cells per multiply-add of the peak: few of them are pairs.
    "lane_issue": 0.45,
    # Seconds of one operation, and of one element, after the other of the same thread.
    "operation_s": 0.7e-9,
    # Operations that take an element out of two vectors, and what the ends of a row that begins
    # anywhere are to a CTA.
    "turned_flops": 8.0,
    "row_ends_s": 0.3e-6,
    "element_s": 0.003e-6,
    # Seconds of a CTA beside what it computes, until the next one has begun in its place.
    "cta_s": 0.55e-6,
    # Seconds between the beginnings of two CTAs, on all units, of so many warps at most: 49,000 to
    # 690,000 CTAs of one to four warps, within 2 %. The part of them that is exposed where those
    # begin that are the first on their units.
    "begin_cta_s": 0.604e-9,
    "begin_warps": 4.0,
    "first_ctas": 0.1,
    # Seconds of a unit, for every warp of a CTA that merges what its threads have swept.
    "merge_warp_s": 0.05e-6,
    # Seconds in which the threads of a CTA exchange what they reduced, for each of its
    # warps more, and in which two lanes do.
    "exchange_s": 0.01e-6,
    "exchange_warp_s": 0.016e-6,
    "shuffle_s": 0.007e-6,
    # Bytes of rows on their way to a unit that more CTAs are not asked for: norms of 2880 to 5120
    # columns gain up to 64 KB, bounds of 3882 and 7486 lose from 96 KB on.
    "rows_on_their_way": 72 << 10,
    # What the end of a row takes that cuts a vector, of several: its elements are read after the
    # others. One CTA, 635 to 1753 elements of f32 (2026-11-27).
    "cut_s": 0.17e-6,
    # A thread's read of less than a word, of those that it holds: 25 to 46 of f16; of a word of
    # each of many operands: sums of 9 and 11 values (2026-11-27).
    "small_read_s": 12e-9,
    # The part of what a unit's CTAs compute that none of them hides: they begin together, wait for
    # their rows together and then compute at the same time. softmax of f16[8192,12288] and of
    # [8192,10240] by CTAs of 512 threads, two of them a unit: 113.7 and 108.5 us, of 256, four of
    # them: 101.0 and 84.2; rmsnorm and layernorm by 512 and 1024, 0.97 to 1.1 of it (2026-11-27).
    "in_lockstep": 1.0,
    # CTAs of which a unit holds one read at this part of what all units' reads together take: their
    # units fall out of step. Column norms by 16 warps, 1.10 to 1.5 of what was priced without it
    # (2026-11-27).
    "alone_reads": 0.5,
    # Loss of sweeps per doubling of their chunks: each ends with what waits for all of its reads.
    # Sums of 28424 elements in 1 to 14 chunks, rows of 12288 kept in 2 to 6 (2026-11-27).
    "chunk_apart": 0.03,
    # Bytes a second that a CTA of four warps reads and stores of cells, once and all of it at once:
    # sums of 13 and 16 values by 64 to 512 CTAs, cells of 2 MB by 158 to 480 (2026-11-27).
    "cta_bytes_per_s": 22e9,
    # Until the CTAs of a cluster that have parts of rows have met.
    "cluster_meets_s": 0.4e-6,
    # Per doubling of such a cluster, until the next one has begun in its place; its CTAs read all
    # at once (230 candidates of rows and columns in clusters, 2026-11-27).
    "cluster_follows_s": 0.2e-6,
    # Rows that are swept again: the part of the L2 that holds those on their way and as many before
    # them, how much more of it until memory gives them again, and the loss then: the largest of
    # 129 along columns of f16[129,268240], 26 tilings with 6 to 70 MB on their way (2026-11-27;
    # beyond 13 MB more and more comes from memory, from 26 MB on all). Inputs of 26 MB stay there.
    "swept_in_cache": 0.44,
    "swept_beyond_cache": 0.44,
    "swept_apart": 0.05,
    # A step of a scan beside its reads for each warp of its CTA, and what a warp issues for a
    # vector of each lane and for its elements. Of 29 drawn scans those chosen take 1.02 of the
    # fastest in the mean and 1.21 at worst, of 11 others 1.03 and 1.08, within 30 % for 90 and
    # 82 %; without what CTAs issue in step 83 and 55 % (2026-11-27).
    "scan_warp_s": 1.7e-9,
    "scan_element_s": 2.5e-9,
    "scan_vector_s": 3.3e-9,
    # A grid too small to fill the machine streams from a unit at most this part of the bandwidth.
    "unit_bandwidth": 1 / 40,
    # Products wait for shared memory where copies into it and instructions that read it move more
    # per multiply-add than those of a full tile, to this power: f16, M = 8192, against 128 x 256:
    # 256 x 128 at 0.935, 128 x 128 at 0.92, two products of 128 x 128 with the same rows at 1.
    "full_tile_rows": 128,
    "full_tile_cols": 256,
    "smem_exponent": 0.29,
    # Relative loss of a pipeline: over elements of a chunk, and over stages beyond the first (four
    # GEMM shapes at k = 64 with 3 and 4 stages, which are equal within 1 %).
    "short_chunk": 0.64,
    "few_stages": 0.02,
    # Storing a tile's panels in turns: worth more than a fourth stage, not than a third.
    "panels_in_turns": 0.004,
    "fewer_panels": 0.001,
    # Loss per doubling of a cluster's CTAs, beside what they read less of the L2: with it clusters
    # of 2 take 1.007 times as long over eight large products, as measured.
    "cluster": 0.026,
    # Products whose copies set their pace, 1,570 candidates of 137 products, after rings are filled
    # by elected threads (2026-11-27; root of the mean square of log of time over estimate 0.1, of
    # those near the best of one product 0.06; those taken 1.02 times the fastest): seconds until a
    # copy is there, a unit's rate of copies and that of all over memory's, the matrix units' rate
    # for microseconds over the row's, the power of what crosses shared memory that it loses by, and
    # the power of times that hide each other in part.
    "copy_latency_s": 0.87e-6,
    "tile_unit_bytes_per_s": 171e9,
    "copies_over_memory": 3.58,
    "burst_over_rate": 1.72,
    "burst_exponent": 0.94,
    "overlap_power": 4.06,
    # Of rows that consumers side by side read again, the part that counts.
    "read_beside": 0.69,
    # The part of what CTAs of a cluster read apart that counts again, for each doubling of them; of
    # what others read at the same time, up to so many; of operands whose tiles have an odd number
    # of groups of eight rows; and per halving of a tile's rows below a line (48 products of few
    # rows, 2026-11-27: what is chosen takes 1.033 of the fastest in the mean, 1.048 without).
    "lagging": 0.064,
    "read_apart": 0.25,
    "most_apart": 8.0,
    "odd_rows": 0.19,
    "short_lines": 0.05,
    # A part of a sector that is stored alone: of products 0.6 to 4.2e6 elements of f32 without a
    # neighbour in their tile took 16 to 18e-12 s each beside all else, of scans 0.13e6 of i64 and
    # 0.52e6 of bf16 9 to 18e-12, and of 5 CTAs 1.0e-9 for a unit (2026-11-27).
    "apart_store_s": 17e-12,
    "unit_store_s": 1e-9,
    # What a product takes beside its steps, results and the latencies of its bytes: barriers and
    # maps (18 of 9 to 650 KB, 2026-11-27: time over estimate 1.08 in the mean); what a unit stores
    # of results, while it multiplies nothing, and until a panel of them has left; until CTAs that
    # share operands have begun and ended together; until those that share a tile's steps have
    # fetched each other's sums, for each of them, and bytes of these. Fitted with the above.
    "product_begin_s": 0.12e-6,
    "store_unit_bytes_per_s": 17.7e9,
    "store_panel_s": 0.16e-6,
    "cluster_begin_s": 0.6e-6,
    "add_sums_s": 0.73e-6,
    "add_part_s": 0.09e-6,
    "add_sums_bytes_per_s": 41e9,
    # Parts of lines that are touched twice where rows begin inside them: of operands contiguous
    # along the reduced dim, whose next step has the rest of a line, and of others. The part of a
    # last wave's idle units that others have no power to win back, and of a wave that is no whole
    # one. Loss of kernels whose CTAs
    # share the rest of tiles. Fitted with the above.
    "lines_along_depth": 1.13,
    "lines_along_side": 1.03,
    "waves_exposed": 0.48,
    "few_exposed": 0.48,
    "shared_rest": 0.05,
    # Loss of three consumers over two: 192 x 192 against 128 x 256 and 256 x 192, 20 products of
    # 4416 rows and more (2026-11-27). Loss of those side by side for each 64 rows beyond the first.
    "third_consumer": 0.01,
    "rows_beside": 0.015,
    # Bytes a second that all units together get of what lies past the ends of operands: 129 rows
    # in whole tiles of 64 and 128 get 1.0 to 1.9e12. Fitted with the above (2026-11-27).
    "fill_bytes_per_s": 1.7e12,
    # Of a thread's instructions that run for the first time: bias and gelu of 200 values of each
    # took 7.0 us beside their product in 4,500 instructions and 2.9 us in 1,900 (f16, 1000 x 6144 x
    # 1536; 2026-11-27), of which issue is 1.0e-9 each.
    "cold_instruction_s": 0.55e-9,
    # Until a panel of what a result reads whole is there, and for a register of it of each thread:
    # x + y of 8192 x 256 x 128, 23 tiles; for an element of it, where those that are neighbours in
    # memory are of a tile's columns: x + y of 640 x 16000 x 3008 and 5632 x 1600 x 640 took 80 to
    # 190e-9 (2026-11-27).
    "read_panel_s": 0.3e-6,
    "read_word_s": 19e-9,
    "read_across_s": 0.12e-6,
    # A result that memory merges, beyond what a store takes: nine products with what has arrived
    # took 4 to 38 us less of 355 to 2559 on two H200 than where they read it, 1.1 to 2.5 %;
    # estimated were 0.6 to 2.0 % (2026-11-27).
    "merge_unit_bytes_per_s": 200e9,
    # Units that clusters of so many CTAs run on, one of each, as the driver says.
    "units_in_clusters.2": 132,
    "units_in_clusters.3": 117,
    "units_in_clusters.4": 120,
    "units_in_clusters.6": 102,
    "units_in_clusters.8": 120,
    # Until few CTAs begin that fill a unit each, more than others (`sizes.begins_early`).
    "late_s": 0.51e-6,
    # What a unit draws from the L2.
    "copy_unit_bytes_per_s": 125e9,
    # Lane operations per element that passes through registers (convert, swizzle, store).
    "carried_flops": 8.0,
    # The part of a row's rate that products in registers take: f16 with a cell before the product,
    # f64 at 2048 cubed, f32 as below.
    "mma_part": 0.78,
    "fma_part": 1.0,
    # What a CTA takes beside that for an element of the reduced dim: of a side of its tile, where
    # neighbours along the side are neighbours in memory and where they are not (they are turned
    # on their way, in deep steps by more conflicts of banks), of a read of a fragment's factors,
    # and of a step's begin. What it takes more where no other hides its latencies, and a unit where
    # few and many of them do, as a part. 156 tiles of 12 products of f32, root of the mean square
    # of log of time over estimate 0.06; 91 of 7 others 0.05 (2026-11-27).
    "across_s": 47e-12,
    "along_s": 86e-12,
    "along_deep_s": 153e-12,
    "fragment_read_s": 34e-12,
    "depth_s": 2.0e-9,
    "lone": 0.77,
    # The same where a step's instructions stay in caches: 331 tiles of 25 products, with steps of
    # 16 and more (2026-11-27); what is chosen takes 1.19 of the fastest at worst.
    "lone.short": 0.1,
    "lone.few": 0.2,
    "lone.many": 0.66,
    # Where copies fetch them: of a vector of a side; of units that take few CTAs, how far they are
    # from taking as many as they hold again; a part of a CTA beside several. 143 tiles of 15
    # products of f64 (2026-11-27), within 30 % for 94 %, chosen ones 1.06 of the fastest at worst.
    "copied_side_s": 65e-12,
    "copied_uneven": 0.2,
    "copied_beside": 0.07,
    # A thread's read of what a step multiplies after another, where steps wait for what they read:
    # 140 tiles of 22 drawn products of 10 to 4,500 KB (2026-11-27), within 30 % for 86 %. Windows
    # of 3 x 3 take 4 us more, of 2 x 2 none.
    "read_one_s": 12e-9,
    # The same on lanes, and the part of the L2 that such a product reads at which a step waits for
    # memory; what is less waits half of it: 450 tiles of 29 products of f32, chosen ones 1.16 of
    # the fastest at worst, 1.35 before (2026-11-27).
    "read_one_s.lanes": 6e-9,
    "read_again": 1 / 50,
    # Streams (lengths of 534 to 16384, widths of 64, 80 and 128, chunks of 32 to 176; 73 tilings,
    # within 12 %, 2026-11-27): lane clocks of one unit to weigh a score by consumers, whose warps
    # hide each other's latencies and the weighing behind products, and clocks to start a chunk,
    # which other consumers hide; the matrix units' rate over the row's; until a kernel begins,
    # beside the latencies of its bytes, and a tile's begin and end. Two slots of a ring are this
    # much longer than more: three took 0.86 to 1.007 of two, 0.97 in the mean of 21 attentions.
    "weigh_clocks.1": 0.021,
    "weigh_clocks.2": 0.127,
    "weigh_clocks.3": 0.098,
    "start_clocks": 583.0,
    "stream_over_rate": 1.126,
    "stream_begin_s": 0.48e-6,
    "stream_tile_s": 1.6e-6,
    "stream_two_slots": 0.02,
}

# An exchange by the transport "peers", its event waits and a rank's own copy included: fitted to
# all-gathers and swaps of 1.5, 3, .. 384 MiB per rank on two H200 joined by NV18 (2026-11-26,
# driver of CUDA 13; 22 to 1061 us), to 7 %; those of 1, 2, .. 512 MiB are within 10 % of it. A copy
# alone takes 2.3 us and as many bytes a second. Devices that wait for each other by events in a row
# of kernels take 3 to 5 us, by signals 2 to 6 (products of 128 to 1024 rows, beside the same
# without waits). Where those who store tell of it, 128 and 256 rows took 1.0 and 0.8 to 1.3 us
# less than by signals, 512 rows 0.6 and 1.7 more, in 2 or 4 chunks within 0.4 us of that: they wait
# until it is there. Kernels read and store over the link at 310 to 450e9 B/s (2026-11-27).
PEERS_LINK = Link(393e9, 18.1e-6, "NVLink", beside=True, wait_s=5e-6, signal_s=3e-6,
                  tell_s=(1.3e-6, 0.1e-6, 0.45))  # fmt: skip
# The same over NCCL 2.28.9: all-gathers and swaps of 1 to 512 MiB (2026-11-27; 16.5 to 2021 us).
# One line is 40 % off: a swap of 512 MiB moves 354 GB/s, an all-gather 266, both about 230 below
# 16 MiB. With two every one is within 17 %. For plans that run on the transport "nccl",
# `h200.replace(links=(NCCL_LINK,))`. Its kernels take units from those that they run beside:
# products in blocks gain nothing (0.95 to 1.02 of cuBLAS and NCCL one after the other). An
# all-to-all of 64 MiB of half rows takes 426 and 418 us, 140 to 148 more than
# this line says of dense messages: copies before and beside it read or write 256 MiB.
NCCL_LINK = Link(255e9, 15e-6, "NCCL", bulk=(315e9, 60e-6), packs=1.85e12)

h200 = Target(
    name="h200",
    family="cuda",
    n_units=132,
    unit="SM",
    # 143771 MiB as the driver reports; 4.28e12 B/s is the best copy, reads plus writes.
    memories=_memories(143771 << 20, 4.28e12, 132, 1.98e9),
    levels=(*_CLUSTER, Level("cta", 8), *_CTA),
    instrs=HOPPER,
    # Derived: 132 SM x 128 lanes x 2 x 1.98 GHz, the boost clock seen in bursts (datasheet: 67e12).
    vector_flops_per_s=66.9e12,
    # Inside a CUDA graph, which is how several kernels are launched; 4.6e-6 on a plain stream.
    launch_s=0.71e-6,
    links=(PEERS_LINK,),
    limits={**_LIMITS, "compute_capability": 90, "l2_bytes": 60 << 20},
    choices=_CHOICES,
    figures=_FIGURES,
    costs={
        "smem_bytes": "peak",
        "register_bytes": "peak",
        "matrix_s": "own",
        "vector_s": "own",
        "memory_s": "own",
        "waits_s": "own",
        "asks_s": "own",
        "latency_s": "own",
        "link_s": "own",
        "blocks": "own",
    },
    completions=_COMPLETIONS,
    kept=("padded", "turned", "1 2 0"),
    source="measured on one H200, 2026-11; rates of single instructions in cuda/instrs.py",
)

# Rows that Hopper shares with Blackwell; wgmma does not exist there. The 2.25e15 dense f16 rate
# and the 8e12 B/s are datasheet figures; tcgen05 reads both operands from shared memory and
# accumulates in TMEM.
_TCGEN05 = tuple(
    Instr(
        name=f"tcgen05.{dtype}",
        primitive="gemm",
        shape=(128, 256, 16),
        dtypes=((dtype, dtype, "f32"),),
        scope="thread",
        completion="mbarrier",
        proxy="async",
        flops_per_s=2.25e15,
        efficiency={"": 1.0},
    )
    for dtype in ("f16", "bf16")
)

b200 = replace(
    h200,
    name="b200",
    n_units=148,
    memories=_memories(180 << 30, 8e12, 148, 1.85e9, tmem=True),
    levels=(*_CLUSTER, Level("cta_pair", 4), Level("cta", 2), *_CTA),
    instrs=_TCGEN05 + MMA + FMA + TMA + CP_ASYNC + LOAD_STORE + FETCH + MATRIX + REGISTERS,
    vector_flops_per_s=148 * 128 * 2 * 1.85e9,
    links=(Link(900e9, 4.6e-6, "NVLink"),),
    completions=tuple(c for c in _COMPLETIONS if c.name != "wgmma"),
    limits={**_LIMITS, "compute_capability": 100, "l2_bytes": 126 << 20},
    source="datasheet, with figures that were fitted on an H200; not measured",
)

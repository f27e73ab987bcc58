"""A matrix product by hand in the kernel language: C[m, n] = sum over k of A[m, k] B[n, k], f16.

Four parts: where tiles lie, who does what, who waits for whom, and what every line becomes.
axe_eq_backends/cuda/schedules/gemm.py is the same for any cells, tiles and operand orders.
"""

from __future__ import annotations

import numpy as np

from axe_eq.kernel.cells import IDENTITY
from axe_eq.kernel.expr import Int, ceil_div
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.interp import interpret
from axe_eq.kernel.threads.ir import span
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200

TILE_M, TILE_N, TILE_K, STAGES, GROUPS = 128, 256, 64, 3, 2
ROWS, PANELS = TILE_M // GROUPS, TILE_N // 64

# Part 1, layouts. A ring of operand tiles: 64 f16 are one 128-byte row, 8 rows repeat the swizzle.
# Nothing below names TMA or wgmma: dispatch finds them, since their rows accept these layouts.
RING_A = f"sw(3,3,3)@m . S[({STAGES},{TILE_M},64):({TILE_M * 64},64,1)]"
RING_B = f"sw(3,3,3)@m . S[({STAGES},{TILE_N},64):({TILE_N * 64},64,1)]"
STAGING = f"sw(3,3,3)@m . S[({GROUPS},{PANELS},{ROWS},64):({PANELS * ROWS * 64},{ROWS * 64},64,1)]"
# The accumulator: 4 warps of 16 rows, 8 rows over lanes, pairs of columns in registers.
ACCUMULATOR = f"S[(4,2,8,{TILE_N // 8},4,2):(1@warp,2@reg,4@lane,4@reg,1@lane,1@reg)]"


def gemm(m: int, n: int, k: int) -> ir.Kernel:
    """The kernel for fixed extents."""
    b = ThreadBuilder("gemm_by_hand", warps=4 * (GROUPS + 1))
    left, right = b.tensor("A", "f16", (m, k)), b.tensor("B", "f16", (n, k))
    out = b.tensor("C", "f16", (m, n), output=True)
    ring_a = b.smem("ring_a", "f16", (STAGES, TILE_M, TILE_K), RING_A)
    ring_b = b.smem("ring_b", "f16", (STAGES, TILE_N, TILE_K), RING_B)
    staging = b.smem("staging", "f16", (GROUPS, PANELS, ROWS, 64), STAGING)
    # A slot is full when its bytes are there, empty when both consumers have read it. Arrival
    # counts and byte counts are derived from the statements below.
    full, empty = b.mbarriers("full", STAGES), b.mbarriers("empty", STAGES)
    across, steps = ceil_div(n, TILE_N), ceil_div(k, TILE_K)
    n_tiles = ceil_div(m, TILE_M) * across

    def origin(tile: Int) -> tuple[Int, Int]:
        return b.let("row", tile // across * TILE_M), b.let("col", tile % across * TILE_N)

    # Part 2, roles: one warpgroup feeds, two multiply. Their register budgets are derived as well.
    with b.roles():
        with b.warpgroups(GROUPS, GROUPS + 1), b.one_thread():
            pipe = b.pipe(STAGES, parity=1)  # all slots were freed before the start
            with b.tiles(n_tiles) as tile:
                row, col = origin(tile)
                with b.range(steps, name="step") as step:
                    b.wait(empty, pipe.stage, pipe.parity)
                    depth = span(step * TILE_K, TILE_K)
                    with b.arrives(full, pipe.stage):
                        b.copy_async(ring_a[pipe.stage], left[span(row, TILE_M), depth])
                        b.copy_async(
                            ring_b[pipe.stage],
                            right[span(col, TILE_N), span(step * TILE_K, TILE_K)],
                        )
                    pipe.advance()

        with b.warpgroups(0, GROUPS) as group:
            pipe = b.pipe(STAGES)
            acc = b.reg("acc", "f32", (ROWS, TILE_N), ACCUMULATOR)
            before = b.state("before", 0, high=STAGES - 1)
            with b.tiles(n_tiles) as tile:
                row, col = origin(tile)
                with b.range(steps, name="step") as step:
                    b.wait(full, pipe.stage, pipe.parity)
                    rows = ring_a[pipe.stage, span(group * ROWS, ROWS)]
                    b.gemm_async(acc.all, rows, ring_b[pipe.stage], accumulate=step > 0)
                    b.wait_group("wgmma", 1)  # Part 3: the step before is done, so its slot is free
                    with b.when(step > 0), b.one_thread():
                        b.arrive(empty, before)
                    b.assign(before, pipe.stage)
                    pipe.advance()
                b.wait_group("wgmma", 0)
                with b.one_thread():
                    b.arrive(empty, before)
                for panel in range(PANELS):  # 64 columns at a time leave through shared memory
                    with b.one_thread():
                        b.wait_group("bulk_read", PANELS - 1)  # the panel's last store has read it
                    b.sync()
                    part = acc[:, panel * 64 : (panel + 1) * 64]
                    half = b.reg_like("half", "f16", part)
                    b.map(IDENTITY, half.all, part)  # rounds to f16
                    b.copy(staging[group, panel], half.all)
                    b.fence_async()  # ordinary writes, read next by the copy engine
                    b.sync()
                    with b.one_thread():
                        to = span(row + group * ROWS, ROWS), span(col + panel * 64, 64)
                        b.copy_async(out[to], staging[group, panel])
                        b.commit("bulk")
            with b.one_thread():
                b.wait_group("bulk", 0)
    return b.finish()


def main() -> None:
    """Run the kernel on the CPU at both levels, and show what dispatch made of it."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((136, 192), (264, 192)))
    kernel = gemm(136, 264, 192)
    planned = plan(kernel, h200)  # Part 4
    arrays = {"A": a, "B": b, "C": np.zeros((136, 264), np.float16)}
    for plans in (None, planned):
        c = interpret(kernel, arrays, planned=plans, meanings=MEANINGS).outputs["C"]
        error = np.abs(c - a.astype(np.float32) @ b.astype(np.float32).T).max()
        print(f"{'instructions' if plans else 'primitives'}: largest error {error:.4f}")
    print(planned.explain(), f"{len(emit(planned).text.splitlines())} lines of CUDA C++", sep="\n")


if __name__ == "__main__":
    main()

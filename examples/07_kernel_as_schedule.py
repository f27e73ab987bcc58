"""A kernel of your own becomes a schedule: extraction picks it wherever it is the cheapest way.

A schedule says which cones it takes, what they cost on a machine, and how a chosen one becomes a
kernel. Here the kernel is that of 05_gemm_by_hand.py; its pack is turned on for one compilation.

    python examples/07_kernel_as_schedule.py
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq.lower.own import Lowered
from axe_eq.lower.read import read_cone
from axe_eq.pack import installed
from axe_eq.schedule.graph import KernelStep, ScheduleGraph
from axe_eq.schedule.summary import Columns, Summary, blocks, flops, grid_of
from axe_eq.target import Target

LESSON = runpy.run_path(str(Path(__file__).with_name("05_gemm_by_hand.py")))
TILE_M, TILE_N, TILE_K = (LESSON[f"TILE_{letter}"] for letter in "MNK")


class ByHand:
    """One product of whole tiles, by the lesson's kernel."""

    name = "gemm_by_hand"
    families = ("cuda",)

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """What the kernel does not do; shown by `explain`."""
        m, n, k = (summary.extent(letter) for letter in "pqk")
        if len(summary.products) != 1 or summary.n_nodes != 1 or len(summary.stores) != 1:
            return "not one product alone"
        if summary.products[0].dtype != "f16":
            return f"elements of {summary.products[0].dtype}"
        if m % TILE_M or n % TILE_N or k % TILE_K:
            return f"{m} x {n} x {k} is not of whole tiles"
        lie = {(a.strides, a.offset) for a in (*summary.loads, *summary.stores)}
        rows = (("p", m), ("k", k)), (("q", n), ("k", k)), (("p", m), ("q", n))
        if lie != {(((x, e, run), (y, run, 1)), 0) for (x, e), (y, run) in rows}:
            return "operands or a result of other than dense rows"
        return None

    def price(self, summary: Summary, target: Target) -> Columns:
        """One candidate: whole waves of CTAs, at the rate of the instruction's row."""
        p, q, k = grid_of(TILE_M, TILE_N, TILE_K)
        columns = Columns({"p": p, "q": q, "k": k, "s": k}, rows=("wgmma.f16",))
        (row,) = (r for r in target.rows("gemm") if r.name == "wgmma.f16")
        n_blocks = blocks(summary, columns)
        filled = np.ceil(n_blocks / target.n_units) * target.n_units / n_blocks
        work = flops(summary.products, summary, columns)
        columns.time_s = target.launch_s + filled * work / row.flops_per_s
        return columns

    def lower(self, step: KernelStep, graph: ScheduleGraph, target: Target) -> Lowered:
        """The lesson's kernel over the step's buffers, which lie as `refuse` saw to."""
        cone = read_cone(step)
        m, n, k = cone.shape
        found = {cone.load(number).strides: cone.load(number).buffer for number in range(2)}
        buffers = {"A": found[k, 0, 1], "B": found[0, k, 1], "C": cone.roots[0].buffer}
        return Lowered(LESSON["gemm"](m, n, k), buffers)


PACK = axe.Pack("by_hand", summary="one matrix product, written by hand")
PACK.schedule(ByHand())


def product(a: Any, b: Any) -> Any:
    """The product of A and the transpose of B."""
    return a @ b.T


def main() -> None:
    """The pack on and off, and products that the kernel does not take as they are."""
    every = [*installed().values(), PACK]
    columns = axe.Layout([(8192, 1), (4096, 8192)])
    cases = (
        ("pack off", axe.Spec((8192, 4096), "f16"), None),
        ("pack on", axe.Spec((8192, 4096), "f16"), every),
        ("8200 rows", axe.Spec((8200, 4096), "f16"), every),
        ("columns", axe.Spec((8192, 4096), "f16", layout=columns), every),
    )
    for what, spec, packs in cases:
        exe = axe.compile(product, spec, "4096x4096:f16", target="h200", packs=packs)
        *copies, kernel = exe.kernels  # columns are put in rows first, where that pays
        names = ", then ".join(k.schedule for k in exe.kernels)
        print(f"{what}: {names}, {exe.cost['time_s'] * 1e6:.0f} us estimated")
        assert (kernel.schedule == ByHand.name) == (what == "pack on" or bool(copies))
        assert ("ring_a" in exe.source[kernel.name]) == (kernel.schedule == ByHand.name)
        reasons = [reason for reason in kernel.rejected if reason.startswith(ByHand.name)]
        print(*reasons, sep="; ", end="\n" if reasons else "")


if __name__ == "__main__":
    main()

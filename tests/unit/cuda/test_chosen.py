"""What extraction chose is what is emitted: the kernel, its tile, stages and order of tiles."""

from __future__ import annotations

from typing import Any

import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import DispatchError
from axe_eq_backends.cuda import contract
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.gemm import Tiling, gemm

CASES: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    f"{m} x {n} x {k}{turned}": (fn, ((m, k), b))
    for m, n, k in [(8192, 4096, 4096), (65, 8192, 8192), (513, 33792, 8192), (333, 72, 40),
                    (64, 8, 1000), (1, 4096, 512), (72, 333, 64), (333, 333, 17), (9, 7, 200)]
    for turned, fn, b in [("", lambda a, b: a @ b, (k, n)),
                          (", turned", lambda a, b: a @ b.T, (n, k))]
}  # fmt: skip
CASES["gates"] = (
    lambda x, w, v: nn.silu(x @ w) * (x @ v), ((512, 256), (256, 384), (256, 384)),
)  # fmt: skip
CASES["bias"] = (lambda x, w, b: nn.relu(x @ w + b), ((256, 512), (512, 384), (384,)))


def specs(shapes: tuple[tuple[int, ...], ...]) -> list[axe.Spec]:
    return [axe.Spec(s, "f16") for s in shapes]


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_is_what_extraction_chose(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[Tiling] = []

    def noted(problem: Any, tiling: Tiling, kernel: str) -> Any:
        emitted.append(tiling)
        return gemm(problem, tiling, kernel)

    monkeypatch.setattr(contract, "gemm", noted)
    fn, shapes = CASES[name]
    exe = axe.compile(fn, *specs(shapes), target="h200")
    assert exe.source
    wanted = [k for k in exe.kernels if k.schedule == "tensor_cores"]
    assert len(emitted) == len(wanted)
    for tiling, kernel in zip(list(emitted), wanted, strict=True):
        chosen = kernel.parameters
        assert tiling.stages == chosen["stages"]
        assert tiling.staging == chosen["staging"]
        assert tiling.raster == chosen["band"]
        # A block is named by what of it is there.
        sizes = {"p": tiling.m, "q": tiling.n, "k": tiling.k}
        for letter, size in sizes.items():
            extent = kernel.loops.get(letter, 1)
            assert chosen.get(letter, 1) == min(size, extent), letter
        assert emitted_smem(exe, kernel.name) <= kernel.costs["smem_bytes"]


def emitted_smem(exe: Any, name: str) -> int:
    step = next(s for s in exe.schedule.graph.steps if s.name == name)
    made = lower(step, exe.schedule.graph, exe.target).kernel
    plan(made, exe.target)  # places buffers
    return made.smem_bytes


def test_what_bulk_copies_cannot_fetch_goes_through_registers() -> None:
    exe = axe.compile(lambda a, b: a @ b.T, *specs(((333, 17), (333, 17))), target="h200")
    (kernel,) = exe.kernels
    assert (kernel.schedule, kernel.row.partition(".")[0]) == ("register_products", "mma")
    assert any("rows of operands 2 B apart" in reason for reason in kernel.rejected)


def test_tiles_that_hang_over_cost_what_they_cover() -> None:
    def time_s(rows: int) -> float:
        shapes = ((rows, 4096), (4096, 4096))
        return float(axe.compile(lambda a, b: a @ b, *specs(shapes), target="h200").cost["time_s"])

    assert time_s(8192) <= time_s(8193) <= time_s(8320)


def test_a_row_without_kernels_is_refused() -> None:
    exe = axe.compile(lambda a, b: a @ b, *specs(((256, 256), (256, 256))), target="b200")
    with pytest.raises(DispatchError, match=r"was priced on tcgen05\.f16, which no kernel"):
        assert exe.source

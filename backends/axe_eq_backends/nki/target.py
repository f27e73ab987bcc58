"""Trainium 1, 2 and 3 as data: one NeuronCore each. Several cores are a mesh.

Nothing here was measured: figures are those of the AWS documentation of SDK 2.32 (NKI 0.6.0),
architecture guides (trainium_inferentia2_arch, trainium2_arch, trainium3_arch) where no other page
is named.
"""

from __future__ import annotations

from axe_eq.target import Completion, Engine, Instr, Level, Link, Memory, Target
from axe_eq.target.machine import GLOBAL, SHARED
from axe_eq_backends.nki.instrs import DMA, GPSIMD, SCALAR, SCALAR_COPY, VECTOR, tensor_rows

FAMILY = "nki"
PARTITIONS = 128  # of SBUF and PSUM, in every generation
_KIB, _GIB = 1 << 10, 1 << 30


def _memories(hbm: int, hbm_rate: float, sbuf_kib: int) -> tuple[Memory, ...]:
    """HBM as one core has it; SBUF and PSUM of so many KiB per partition."""
    return (
        Memory("hbm", ("m",), hbm, "device", hbm_rate, kind=GLOBAL),
        Memory("sbuf", ("P", "F"), PARTITIONS * sbuf_kib * _KIB, "core", kind=SHARED,
               extents=(PARTITIONS,)),
        # 8 banks of 2 KiB per partition; a sum covers one bank.
        Memory("psum", ("P", "F"), PARTITIONS * 16 * _KIB, "core", accumulates=True, kind=SHARED,
               extents=(PARTITIONS,), bank_bytes=2 * _KIB),
    )  # fmt: skip


def _engines(tensor: float, vector: float, scalar: float, gpsimd: float) -> tuple[Engine, ...]:
    """Clocks in hertz. 16 DMA engines serve a core; the sync engine triggers and computes none."""
    return (
        Engine("tensor", tensor), Engine("vector", vector), Engine("scalar", scalar),
        Engine("gpsimd", gpsimd), Engine("sync", scalar), Engine("dma", 1.4e9, queues=16),
    )  # fmt: skip


# Sizes that kernels choose among: rows and columns of a block of a product, its depth (0: all of it
# at once), and elements per partition of a tile of cells.
_CHOICES = {
    "block_rows": (128, 256, 512, 1024, 2048),
    "block_cols": (512, 1024, 2048),
    "block_depth": (0, 512, 1024, 2048),
    "tile_elements": (512, 2048, 8192),
    "stream_chunk": (128, 256, 512, 1024, 2048, 4096, 8192),
}
# The last dims but one in the other order, and rows of a partition behind each other where the
# first of 128 indices each lie on partitions: then a transfer moves them as one run.
_KEPT = ("turned", "1 2 0", "1%128 1/128 0")
_COSTS = {
    "sbuf_bytes": "peak", "psum_bytes": "peak", "tensor_s": "own", "vector_s": "own",
    "scalar_s": "own", "gpsimd_s": "own", "dma_s": "own", "latency_s": "own",
}  # fmt: skip


def _limits(generation: int) -> dict[str, int]:
    return {
        "generation": generation,  # NeuronCore-v2, -v3, -v4: what NKI's rules ask for
        # Latency of a transfer, and the run per partition at which half of the rate is reached:
        # nki-dma-bandwidth-guide gives 1.3 us. The run is fitted to two published times
        # (benchmarks/results/nki_anchors.md): the largest that is as good as any.
        "dma_latency_ns": 1300,
        "dma_half_run_bytes": 16,
        # A compiler unrolls loops: hours and tens of GB are reported beyond (aws-neuron-sdk#1374).
        "instructions": 200_000,
    }


def _target(name: str, generation: int, memories: tuple[Memory, ...], engines: tuple[Engine, ...],
            rows: tuple[Instr, ...], source: str) -> Target:  # fmt: skip
    vector = next(e.hz for e in engines if e.name == "vector")
    return Target(
        name=name, family=FAMILY, n_units=1, unit="NeuronCore", memories=memories,
        levels=(Level("device", 1), Level("core", 1)), instrs=rows,
        # A multiplication and an addition of one instruction, an element a cycle and partition.
        vector_flops_per_s=2 * PARTITIONS * vector,
        # Between kernels of one program: no figure is published; the order of a descriptor ring's.
        launch_s=15e-6,
        links=(Link(64e9, 2e-6),),  # NeuronLink of trn1: 384 GB/s of 6 links; latency assumed
        limits=_limits(generation), choices=_CHOICES, costs=_COSTS, kept=_KEPT,
        source=source, engines=engines,
        completions=(Completion("semaphore"),),
    )  # fmt: skip


# 820 GB/s for two cores; 16 DMA engines move 17 B/ns = 272 GB/s a core (dma-bandwidth-guide).
trn1 = _target(
    "trn1", 2, _memories(16 * _GIB, 272e9, 192), _engines(2.8e9, 1.12e9, 1.4e9, 1.4e9),
    # 128 x 128 x 2 x 2.8 GHz; 92 and 23 TFLOPS are published.
    (*tensor_rows(91.75e12, 22.9e12), *DMA, *VECTOR, *SCALAR, *GPSIMD),
    "AWS documentation of NeuronCore-v2, SDK 2.32; not measured",
)  # fmt: skip
# 3 TB/s for eight cores; 23 B/ns = 368 GB/s a core. 96 GiB of HBM a chip.
trn2 = _target(
    "trn2", 3, _memories(12 * _GIB, 368e9, 224), _engines(2.4e9, 0.96e9, 1.2e9, 1.2e9),
    (*tensor_rows(78.6e12, 19.7e12), *DMA, *VECTOR, *SCALAR, *SCALAR_COPY, *GPSIMD),
    "AWS documentation of NeuronCore-v3, SDK 2.32; not measured",
)  # fmt: skip
# 4.7 TB/s; 33 B/ns = 528 GB/s a core. 144 GiB a chip of eight cores (the number is inferred).
trn3 = _target(
    "trn3", 4, _memories(18 * _GIB, 528e9, 256), _engines(2.4e9, 1.2e9, 1.2e9, 1.2e9),
    (*tensor_rows(78.6e12, 19.7e12), *DMA, *VECTOR, *SCALAR, *SCALAR_COPY, *GPSIMD),
    "AWS documentation of NeuronCore-v4, SDK 2.32; not measured",
)  # fmt: skip

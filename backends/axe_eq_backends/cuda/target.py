"""NVIDIA H200 and B200 as data; what kernels may have, and figures of prices, in `h200.toml`.

H200 figures are measured (one card, burst protocol, random normal data, driver 580, CUDA 13.0,
2026-11) unless the comment says derived or datasheet. B200 figures are the datasheet's: no such
card was measured.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib import resources

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
_H200 = tomllib.loads(resources.files("axe_eq_backends.cuda").joinpath("h200.toml").read_text())

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


# An exchange by the transport "peers", its event waits and a rank's own copy included: fitted to
# all-gathers and swaps of 1.5, 3, .. 384 MiB per rank on two H200 joined by NV18 (2026-11-26,
# driver of CUDA 13; 22 to 1061 us), to 7 %; those of 1, 2, .. 512 MiB are within 10 % of it. A copy
# alone takes 2.3 us and as many bytes a second.
PEERS_LINK = Link(393e9, 18.1e-6, "NVLink", beside=True)
# The same by the all-gather of NCCL 2.28.9, 1 to 512 MiB in the same run (17.0 to 1999 us), to
# 13 %: for plans that run on the transport "nccl", `h200.replace(links=(NCCL_LINK,))`. Its kernels
# take units from those that they run beside: products in blocks gain nothing (0.95 to 1.02 of
# cuBLAS and NCCL one after the other).
NCCL_LINK = Link(255e9, 15e-6, "NCCL")

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
    choices={name: tuple(sizes) for name, sizes in _H200["choices"].items()},
    figures=_H200["figures"],
    costs={
        "smem_bytes": "peak",
        "register_bytes": "peak",
        "matrix_s": "own",
        "vector_s": "own",
        "memory_s": "own",
        "waits_s": "own",
        "asks_s": "own",
        "latency_s": "own",
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

"""The CPU as data: a machine that runs schedule graphs in numpy.

Rates were measured once on two cores of an Intel Xeon (family 6, model 167; 2 MiB of L2 each) with
numpy 2.4.6 and OpenBLAS 0.3.31, best of many, f32 unless said otherwise. They are there to compare
schedules; another machine replaces what matters with `Target.replace`.
"""

from __future__ import annotations

from axe_eq.target import Instr, Level, Link, Memory, Target

# Narrow floats are widened tile by tile before BLAS sees them, so all of them run at f32's rate.
SGEMM = Instr(
    name="sgemm",
    primitive="gemm",
    shape=(1, 1, 1),
    dtypes=tuple((d, d, "f32") for d in ("f32", "f16", "bf16", "f8e4m3", "f8e5m2")),
    scope="device",
    flops_per_s=290e9,
)
DGEMM = Instr(
    name="dgemm",
    primitive="gemm",
    shape=(1, 1, 1),
    dtypes=(("f64", "f64", "f64"),),
    scope="device",
    flops_per_s=145e9,
)

cpu = Target(
    name="cpu",
    family="cpu",
    n_units=2,
    unit="core",
    memories=(
        # Reads plus writes of a large copy, one thread.
        Memory("ram", ("m",), 16 << 30, "device", 13e9),
        # 12 bytes per element of an addition in cache, one thread.
        Memory("l2", ("m",), 2 << 20, "core", 120e9),
    ),
    levels=(Level("device", 1), Level("core", 2)),
    # Two processes of mpich through shared memory: 11 us for 8 bytes, 44 us for 256 kB.
    links=(Link(6e9, 10e-6, "process"),),
    instrs=(SGEMM, DGEMM),
    # Additions in cache, one thread: numpy's loops are not parallel.
    vector_flops_per_s=10e9,
    # Accesses of a step checked and bound.
    launch_s=100e-6,
    # Interpreting one node for one tile; elements widened or narrowed per second.
    limits={"tile_ns": 12_000, "converts_per_s": 1_100_000_000},
    costs={
        "tile_bytes": "peak",
        "matrix_s": "own",
        "vector_s": "own",
        "convert_s": "own",
        "interpret_s": "own",
        "memory_s": "own",
        "blocks": "own",
    },
    kept=("padded", "turned"),
    source="measured on two cores of an Intel Xeon, numpy 2.4.6 with OpenBLAS 0.3.31",
)

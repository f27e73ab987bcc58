"""Instruction rows of NeuronCores: limits and cycles that layout algebra cannot know.

A row's family is its name up to the first dot, and its scope the engine that issues it. Figures are
those of the AWS documentation of SDK 2.32: the architecture guides (nki/guides/architecture), the
cost sections of the nki.isa reference, and nki/api/nki.api.shared. Cycles are of the engine's
clock; `min_cycles` is the least that an instruction occupies its engine for.
"""

from __future__ import annotations

from axe_eq.target import Instr

MIN_CYCLES = 64  # "MIN_II is roughly 64 engine cycles", nki.isa cost sections
_LEAST = {"min_cycles": MIN_CYCLES}
_FLOATS = ("f8e5m2", "f16", "bf16")
# What is multiplied in another type, which holds all of its values: the e4m3 of engines before
# NeuronCore-v4 has infinities, and 240 is its largest number (nki.language, data types).
WIDENED = {"f8e4m3": "f16"}


def tensor_rows(flops: float, f32_flops: float) -> tuple[Instr, ...]:
    """The systolic array: 128 rows of weights, a moving operand of up to 512 columns.

    A product takes a cycle per column of the moving operand, four where factors are f32
    (architecture guides, "Cost Model"). Transposes are products by the identity.
    """
    narrow = tuple((a, b, "f32") for a in _FLOATS for b in _FLOATS)
    return (
        Instr("pe.matmul", "gemm", (128, 512, 128), narrow, "tensor", flops_per_s=flops,
              limits={**_LEAST, "column_cycles": 1}),
        Instr("pe.matmul_f32", "gemm", (128, 512, 128), (("f32", "f32", "f32"),), "tensor",
              flops_per_s=f32_flops, limits={**_LEAST, "column_cycles": 4}),
        Instr("pe.transpose", "copy", (128, 128), (("f16",), ("bf16",), ("f32",)), "tensor",
              limits={**_LEAST, "column_cycles": 1, "f32_column_cycles": 4}),
    )  # fmt: skip


# Between HBM and SBUF, and within either. A pattern has up to 5 dims, the partition among them
# (architecture guide of NeuronCore-v2, "tensor access patterns").
DMA = (
    Instr("dma.copy", "copy", scope="dma", completion="semaphore", limits={"dims": 5}),
    Instr("dma.gather", "copy", scope="dma", completion="semaphore", limits={"dims": 5}),
    # Whole blocks of elements of two bytes; a dim between both stays (nki.isa.dma_transpose).
    Instr("dma.transpose", "copy", (128, 128), (("f16",), ("bf16",)), "dma", "semaphore"),
)

# A cycle per element and partition where one operand is a tile, two where two are; reciprocals take
# eight (nki.api.shared, "Engine Selection"). A pattern has up to 4 dims, the partition among them.
_ONE = {**_LEAST, "element_cycles": 1, "dims": 4}
_TWO = {**_LEAST, "element_cycles": 2, "dims": 4}
VECTOR = (
    Instr("vector.copy", "copy", scope="vector", limits=_ONE),
    Instr("vector.cast", "map", scope="vector", limits=_ONE),
    Instr("vector.tensor_tensor", "map", scope="vector", limits=_TWO),
    Instr("vector.tensor_scalar", "map", scope="vector", limits=_ONE),
    Instr("vector.scalar_tensor_tensor", "map", scope="vector", limits=_TWO),
    Instr("vector.select", "map", scope="vector", limits={**_TWO, "element_cycles": 3}),
    Instr("vector.reciprocal", "map", scope="vector", limits={**_ONE, "element_cycles": 8}),
    Instr("vector.reduce", "reduce", scope="vector", limits=_ONE),
    Instr("vector.copy_reduce", "copy_reduce", scope="vector", limits=_ONE),
    Instr("vector.scan", "scan", scope="vector", limits=_TWO),
    Instr("vector.fill", "fill", scope="vector", limits=_ONE),
)
# Any function takes a cycle per element (architecture guides, "Scalar Engine").
SCALAR = (Instr("scalar.activation", "map", scope="scalar", limits=_ONE),)
# `tensor_copy` runs there from NeuronCore-v3 on.
SCALAR_COPY = (
    Instr("scalar.copy", "copy", scope="scalar", limits=_ONE),
    Instr("scalar.cast", "map", scope="scalar", limits=_ONE),
)
# Integers of 32 bits are exact there alone (nki.isa.tensor_tensor). It reaches SBUF only. Its rate
# beside VectorE's is no published figure; half of it is assumed.
GPSIMD = (
    Instr("gpsimd.integers", "map", scope="gpsimd", limits={**_TWO, "element_cycles": 4}),
    Instr("gpsimd.fold", "reduce", scope="gpsimd", limits={**_TWO, "element_cycles": 4}),
    Instr("gpsimd.copy", "copy", scope="gpsimd", limits={**_ONE, "element_cycles": 2}),
    Instr("gpsimd.fill", "fill", scope="gpsimd", limits={**_ONE, "element_cycles": 2}),
    Instr("gpsimd.index", "index", scope="gpsimd", limits={**_ONE, "element_cycles": 2}),
)

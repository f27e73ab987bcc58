"""The families of instruction rows of NeuronCores: ours, and those that packs bring."""

from __future__ import annotations

from axe_eq.kernel.families import Families, RowFamily
from axe_eq.pack import Later
from axe_eq_backends.nki.target import FAMILY

_HERE = "axe_eq_backends.nki"


def _family(name: str, module: str, *calls: str) -> RowFamily:
    meanings = {c: Later(f"{_HERE}.meaning:MEANINGS", c) for c in calls}
    texts = {c: Later(f"{_HERE}.texts:TEXTS", c) for c in calls}
    return RowFamily(name, Later(f"{_HERE}.{module}:derive"), meanings, texts)


OWN = (
    _family("pe", "pe", "nc_matmul", "nc_transpose"),
    _family("dma", "dma", "dma_copy", "dma_gather", "dma_transpose"),
    _family(
        "vector", "vector", "tensor_copy", "tensor_copy_predicated", "tensor_tensor",
        "tensor_scalar", "scalar_tensor_tensor", "reciprocal", "tensor_reduce", "memset",
        "tensor_tensor_scan", "tensor_scalar_reduce",
    ),
    _family("scalar", "vector", "activation"),
    _family("gpsimd", "vector", "iota"),
)  # fmt: skip


FAMILIES = Families(FAMILY, OWN)
derivations, meanings, texts = FAMILIES.derivations, FAMILIES.meanings, FAMILIES.texts

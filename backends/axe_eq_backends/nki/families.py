"""The families of instruction rows of NeuronCores: ours, and those that packs bring."""

from __future__ import annotations

from axe_eq.kernel.dispatch import Derive
from axe_eq.kernel.families import Families, RowFamily
from axe_eq_backends.nki import dma, pe, vector
from axe_eq_backends.nki.meaning import MEANINGS
from axe_eq_backends.nki.target import FAMILY
from axe_eq_backends.nki.texts import TEXTS


def _family(name: str, derive: Derive, *calls: str) -> RowFamily:
    return RowFamily(name, derive, {c: MEANINGS[c] for c in calls}, {c: TEXTS[c] for c in calls})


OWN = (
    _family("pe", pe.derive, "nc_matmul", "nc_transpose"),
    _family("dma", dma.derive, "dma_copy", "dma_gather", "dma_transpose"),
    _family(
        "vector", vector.derive, "tensor_copy", "tensor_copy_predicated", "tensor_tensor",
        "tensor_scalar", "scalar_tensor_tensor", "reciprocal", "tensor_reduce", "memset",
        "tensor_tensor_scan", "tensor_scalar_reduce",
    ),
    _family("scalar", vector.derive, "activation"),
    _family("gpsimd", vector.derive, "iota"),
)  # fmt: skip


FAMILIES = Families(FAMILY, OWN)
derivations, meanings, texts = FAMILIES.derivations, FAMILIES.meanings, FAMILIES.texts

"""The families of instruction rows of NeuronCores: ours, and those that packs bring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from axe_eq.kernel.dispatch import Derive
from axe_eq.kernel.families import RowFamily, row_families
from axe_eq_backends.nki import dma, pe, vector
from axe_eq_backends.nki.meaning import MEANINGS
from axe_eq_backends.nki.target import FAMILY
from axe_eq_backends.nki.texts import TEXTS


def _family(name: str, derive: Derive, *calls: str) -> RowFamily:
    return RowFamily(name, derive, {c: MEANINGS[c] for c in calls}, {c: TEXTS[c] for c in calls})


OWN = (
    _family("pe", pe.derive, "nc_matmul", "nc_transpose"),
    _family("dma", dma.derive, "dma_copy", "dma_gather"),
    _family(
        "vector", vector.derive, "tensor_copy", "tensor_copy_predicated", "tensor_tensor",
        "tensor_scalar", "scalar_tensor_tensor", "reciprocal", "tensor_reduce", "memset",
        "tensor_tensor_scan",
    ),
    _family("scalar", vector.derive, "activation"),
    _family("gpsimd", vector.derive, "iota"),
)  # fmt: skip


def families() -> dict[str, RowFamily]:
    """Every family, by name."""
    return {f.name: f for f in OWN} | row_families(FAMILY)


def derivations() -> dict[str, Derive]:
    """How the rows of every family are planned, by its name."""
    return {name: f.derive for name, f in families().items()}


def meanings() -> dict[str, Callable[..., Any]]:
    """What every instruction call does, by its name."""
    return {call: does for f in families().values() for call, does in f.meanings.items()}


def texts() -> dict[str, Callable[..., Any]]:
    """What writes every instruction call, by its name."""
    return {call: writes for f in families().values() for call, writes in f.texts.items()}

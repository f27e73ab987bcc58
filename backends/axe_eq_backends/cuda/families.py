"""The families of instruction rows of CUDA targets: ours, and those that packs bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from axe_eq.kernel.dispatch import Derive
from axe_eq.kernel.families import RowFamily, row_families
from axe_eq_backends.cuda import (
    copies,
    cp_async,
    fma,
    gathers,
    matrix,
    mma,
    scan_plan,
    tma,
    warps,
    wgmma,
)
from axe_eq_backends.cuda.calls import CALLS
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.scan_calls import CALLS as SCAN_CALLS


def _family(name: str, derive: Derive, *calls: str) -> RowFamily:
    texts: Mapping[str, Callable[..., Any]] = {**CALLS, **SCAN_CALLS}
    return RowFamily(name, derive, {c: MEANINGS[c] for c in calls}, {c: texts[c] for c in calls})


OWN = (
    _family("tma", tma.derive, "tma_load", "tma_load_multicast", "tma_store"),
    _family("cp", cp_async.derive, "cp_async"),
    _family("wgmma", wgmma.derive, "wgmma", "wgmma_fence", "wgmma_commit"),
    _family("mma", mma.derive, "mma"),
    _family("fma", fma.derive, "fma"),
    _family("ldst", copies.derive, "ld_global", "st_global", "ld_shared", "st_shared"),
    _family("gather", gathers.derive),
    _family("matrix", matrix.derive, "ldmatrix", "stmatrix"),
    _family("move", warps.derive_move),
    _family("cells", warps.derive_cells, "map", "fill", "index"),
    _family("shuffle", warps.derive_reduce, "accumulate", "shuffle", "ld_reduce", "sync"),
    _family(
        "prefix", scan_plan.derive_scan, "scan_run", "scan_lanes", "scan_next", "scan_carry"
    ),
)  # fmt: skip


def families() -> dict[str, RowFamily]:
    """Every family, by name."""
    return {f.name: f for f in OWN} | row_families("cuda")


def derivations() -> dict[str, Derive]:
    """How the rows of every family are planned, by its name."""
    return {name: f.derive for name, f in families().items()}


def meanings() -> dict[str, Callable[..., Any]]:
    """What every instruction call does, by its name."""
    return {call: does for f in families().values() for call, does in f.meanings.items()}


def texts() -> dict[str, Callable[..., Any]]:
    """What writes every instruction call, by its name."""
    return {call: writes for f in families().values() for call, writes in f.texts.items()}

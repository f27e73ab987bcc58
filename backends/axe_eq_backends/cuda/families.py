"""The families of instruction rows of CUDA targets: ours, and those that packs bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from axe_eq.kernel.dispatch import Derive
from axe_eq.kernel.families import Families, RowFamily
from axe_eq.pack import Later
from axe_eq_backends.cuda import (
    copies,
    cp_async,
    fma,
    gathers,
    matrix,
    mma,
    scan_plan,
    signals,
    tma,
    warps,
    wgmma,
)
from axe_eq_backends.cuda.calls import CALLS
from axe_eq_backends.cuda.scan_calls import CALLS as SCAN_CALLS


def _family(name: str, derive: Derive, *calls: str) -> RowFamily:
    texts: Mapping[str, Callable[..., Any]] = {**CALLS, **SCAN_CALLS, **signals.CALLS}
    meanings = {c: Later("axe_eq_backends.cuda.meaning:MEANINGS", c) for c in calls}
    return RowFamily(name, derive, meanings, {c: texts[c] for c in calls})


OWN = (
    _family("tma", tma.derive, "tma_load", "tma_load_multicast", "tma_store",
            "tma_merge"),
    _family("cp", cp_async.derive, "cp_async"),
    _family("wgmma", wgmma.derive, "wgmma", "wgmma_fence", "wgmma_commit"),
    _family("mma", mma.derive, "mma"),
    _family("fma", fma.derive, "fma"),
    _family("ldst", copies.derive, "ld_global", "ld_global_apart", "st_global", "ld_shared",
            "st_shared", "ld_peer", "merge_global"),
    _family("gather", gathers.derive),
    _family("matrix", matrix.derive, "ldmatrix", "stmatrix"),
    _family("signal", signals.derive, "signal_clear", "signal_fence", "signal_add",
            "tell_fence", "signal_tell", "signal_wait"),
    _family("move", warps.derive_move),
    _family("cells", warps.derive_cells, "map", "fill", "index"),
    _family("shuffle", warps.derive_reduce, "accumulate", "shuffle", "ld_reduce", "sync"),
    _family(
        "prefix", scan_plan.derive_scan, "scan_run", "scan_lanes", "scan_next", "scan_carry"
    ),
)  # fmt: skip


FAMILIES = Families("cuda", OWN)
derivations, meanings, texts = FAMILIES.derivations, FAMILIES.meanings, FAMILIES.texts

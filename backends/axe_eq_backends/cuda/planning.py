"""Which family of instruction rows is derived where; plans of whole kernels for a CUDA target."""

from __future__ import annotations

from axe_eq.kernel.dispatch import Families, dispatch
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.check import check
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.target import Target
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

FAMILIES: Families = {
    "tma": tma.derive,
    "cp": cp_async.derive,
    "wgmma": wgmma.derive,
    "mma": mma.derive,
    "fma": fma.derive,
    "ldst": copies.derive,
    "gather": gathers.derive,
    "matrix": matrix.derive,
    "move": warps.derive_move,
    "cells": warps.derive_cells,
    "shuffle": warps.derive_reduce,
    "prefix": scan_plan.derive_scan,
}


def plan(kernel: ir.Kernel, target: Target) -> Planned:
    """Check a kernel and plan all its primitives.

    Raises:
        ScheduleError: the kernel breaks a rule of the language or a limit of the target.
        DispatchError: a primitive that no instruction implements.
    """
    check(kernel, target)
    return dispatch(kernel, target, FAMILIES)

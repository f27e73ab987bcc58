"""Plans of whole kernels for a CUDA target."""

from __future__ import annotations

from axe_eq.kernel.dispatch import dispatch
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.check import check
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.target import Target
from axe_eq_backends.cuda.families import derivations


def plan(kernel: ir.Kernel, target: Target) -> Planned:
    """Check a kernel and plan all its primitives.

    Raises:
        ScheduleError: the kernel breaks a rule of the language or a limit of the target.
        DispatchError: a primitive that no instruction implements.
    """
    check(kernel, target)
    return dispatch(kernel, target, derivations())

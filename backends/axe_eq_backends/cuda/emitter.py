"""What the CUDA family writes, without a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph
    from axe_eq.target import Target


class CudaEmitter:
    """The emitter of family "cuda"."""

    def refuse(self, cell: str, dtypes: Sequence[str]) -> str | None:
        """Why a cell on operands of these element types cannot be written; None where it can."""
        from axe_eq_backends.cuda.cells import refusal

        return refusal(cell, dtypes)

    def emit(self, graph: ScheduleGraph, target: Target) -> dict[str, str]:
        """Kernel name -> CUDA C++ text that compiles alone.

        Raises:
            DispatchError: a kernel that no schedule or instruction of the target covers.
        """
        from axe_eq_backends.cuda.make import texts

        return texts(graph, target)

    def build(self, step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target) -> None:
        """Make one step without a device; see `axe_eq.extract.search.commit.Builder`.

        Raises:
            DispatchError, EmitError, ScheduleError: it cannot be made, or is too large.
        """
        from axe_eq_backends.cuda.make import make

        make(step, graph, target)

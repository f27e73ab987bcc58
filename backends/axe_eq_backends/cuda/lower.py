"""From the kernels of a schedule graph to the kernel language.

What was priced is what is written, by the row and the parameters of its candidate: on a row of
products these, with the rest of the cone as epilogue, without one what lanes do (`ways`). Nothing
is chosen here: what cannot be written so is refused with the reason, and the search goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from axe_eq.errors import DispatchError, ScheduleError
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.threads import ir
from axe_eq.lower.formulas import Cone
from axe_eq.lower.own import Lowered, own_kernel
from axe_eq.lower.read import as_kernel, read_cone
from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph
from axe_eq.schedule.merging import merges
from axe_eq.target import Instr, Target
from axe_eq_backends.cuda import contract, merging
from axe_eq_backends.cuda.lane_price import SECTOR_BYTES
from axe_eq_backends.cuda.leaves import Names
from axe_eq_backends.cuda.meet import meet
from axe_eq_backends.cuda.pointwise import Turns
from axe_eq_backends.cuda.prefixes import alone
from axe_eq_backends.cuda.schedules import chunks, gemm, product_tiles
from axe_eq_backends.cuda.schedules.chunks import Tiling
from axe_eq_backends.cuda.schedules.contraction import Contraction
from axe_eq_backends.cuda.schedules.stream import stream
from axe_eq_backends.cuda.streams import is_streaming, read_problem
from axe_eq_backends.cuda.ways import cheapest, written


def lower(step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target) -> Lowered:
    """The kernel of one step: its schedule's own where that writes one.

    Args:
        step: a kernel or a move of the graph.
        graph: the schedule graph it stands in.
        target: the machine, for capacities.

    Raises:
        DispatchError: no schedule covers the cone; says why.
        PackError: the schedule's own `lower` fails, or returns what is no kernel of the step.
    """
    own = own_kernel(step, graph, target, ir.Kernel)
    if own is not None:
        return own
    cone = read_cone(
        step if isinstance(step, KernelStep) else as_kernel(step, graph, "lanes"), alone
    )
    over = graph.buffers[step.writes[0].buffer].over
    by = merges(step, graph).get(over, "") if isinstance(step, KernelStep) else ""
    if over and not by:
        raise cone.refuse(f"lies over {over!r}", "an operand that it merges its result with")
    cone = merging.alone(cone, over) if by else cone
    try:
        made = _schedule(cone, step, target, by)
    except ScheduleError as error:
        raise cone.refuse(str(error), "a cone that a schedule covers") from error
    # Small reductions are read as cells too, with a tensor for each place: not by every kernel.
    buffers = {t.name: made.buffers[t.name] for t in made.kernel.tensors}
    made.kernel.streamed = _streamed(made, step, graph, target)
    return meet(replace(made, buffers=buffers), step, graph)


def _streamed(
    made: Lowered, step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target
) -> frozenset[str]:
    """The program's result of a kernel on lanes that moves more than the caches keep.

    Who reads it next finds none of it there; what another kernel of the program reads may be. Rows
    of one result gained up to 4 % on an H200; several results, and rows that share sectors, lost as
    much. So did relayouts (1 to 4.5 %), whose warps store parts of lines that the L2 puts together.
    """
    if isinstance(step, MoveStep) or step.row or step.parameters.keys() == Turns.names:
        return frozenset()
    kept = target.figure("swept_in_cache") * target.limits["l2_bytes"]
    moved = dict(step.costs).get("gmem_bytes", 0.0)
    if moved <= kept or len(made.kernel.outputs) > 1:
        return frozenset()
    (name,) = made.kernel.outputs
    tensor = made.kernel.tensor(name)
    whole = int(evaluate(tensor.shape[-1], made.params)) * tensor.itemsize % SECTOR_BYTES == 0
    is_result = graph.buffers[made.buffers[name]].role == "output"
    return frozenset({name} if whole and is_result else ())


def _schedule(
    cone: Cone, step: KernelStep | MoveStep, target: Target, merges: str = ""
) -> Lowered:  # fmt: skip
    if isinstance(step, MoveStep):  # which no search chose
        return Lowered(*written(cone, cheapest(cone, target)))
    if merges and (not step.row or is_streaming(cone)):
        raise cone.refuse(f"merges its result by {merges}", "a sum of products")
    if not step.row:
        return Lowered(*written(cone, step.parameters))
    row = next((r for r in target.rows("gemm") if r.name == step.row), None)
    names = names_of(row, is_streaming(cone)) if row else frozenset()
    if row is None or not names:
        known = " ".join((contract.OF_TILES, *contract.OF_REGISTERS))
        raise cone.refuse(f"is to be written with {step.row}", f"a row of {known}")
    if names != step.parameters.keys():
        wrong = f"is to be written by {' '.join(sorted(step.parameters)) or 'nothing'}"
        raise cone.refuse(wrong, f"{' '.join(sorted(names))} with {row.name}")
    if is_streaming(cone):
        problem, found = read_problem(cone)
        return Lowered(stream(problem, Tiling.of(step.parameters), cone.name), found)
    if not (cone.folds and all(f.product and min(f.dims) >= cone.rank for f in cone.folds)):
        raise cone.refuse("has other reductions than sums of products", "nothing beside those")
    contraction, buffers = _contraction(cone)
    made = contract.kernel(contraction, cone.name, row, step.parameters, merges)
    return Lowered(made, buffers)


def names_of(row: Instr, streams: bool) -> frozenset[str]:
    """What a kernel on an instruction row is written by; nothing where none is."""
    if row.family == contract.OF_TILES:
        return chunks.PARAMETERS if streams else gemm.PARAMETERS
    return product_tiles.PARAMETERS if row.family in contract.OF_REGISTERS else frozenset()


# -- products --


def _contraction(cone: Cone) -> tuple[Contraction, Mapping[str, str]]:
    """The contraction that a cone of products is, and the buffers behind its tensors."""
    names = Names()
    return contract.contraction(cone, names.fresh), names.buffers


__all__ = ["DispatchError", "Lowered", "lower"]

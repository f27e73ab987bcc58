"""All ranks of a plan in this process, on numpy, each with its own memory; messages are copied."""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.errors import ScheduleError
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.rank import Locals, Prepare, Rank, local_steps, part_of, whole_of
from axe_eq.mesh.steps import ExchangeStep
from axe_eq.mesh.transport import run_ranks, traced
from axe_eq.program.types import Array


class Simulation:
    """A plan made ready for runs in this process.

    Args:
        plan: proved.
        prepare: makes a graph of one device ready.

    Attributes:
        sent: exchange -> bytes that every rank sent in the last run.
    """

    def __init__(self, plan: MeshPlan, prepare: Prepare) -> None:
        self.plan, self.local = plan, Locals(local_steps(plan, prepare))
        self.sent: dict[str, tuple[int, ...]] = {}

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """Run on whole arrays, one per input; whole outputs.

        Raises:
            ScheduleError: copies of one part of an output differ.
        """
        plan = self.plan
        ranks = [Rank(plan, n, self.local) for n in range(plan.n_ranks)]
        for rank in ranks:
            named = zip(plan.inputs, arrays, strict=True)
            rank.bring({n: part_of(plan, n, a, rank.rank) for n, a in named})
        self.run(ranks)
        outputs = []
        for number, name in enumerate(plan.outputs):
            parts = [rank.memory[name] for rank in ranks]
            whole = whole_of(plan, name, parts)
            self._check_copies(number, name, whole, parts)
            outputs.append(whole)
        return outputs

    def run(self, ranks: Sequence[Rank]) -> None:
        """All ranks through all steps, side by side."""
        run_ranks(ranks, self)
        self.sent = traced(self.plan, [rank.sent for rank in ranks])

    def exchange(self, step: ExchangeStep, ranks: Sequence[Rank]) -> list[int]:
        """All messages of an exchange; the bytes that every rank sent."""
        wire = {
            (src, dst): step.messages.packed(src, dst, ranks[src].reads(step))
            for src, dst in step.messages.pairs
        }
        sent = [0] * len(ranks)
        for rank in ranks:
            rank.keep(step)
        for (src, dst), payload in wire.items():
            sent[src] += payload.nbytes
            step.messages.unpack(src, dst, payload, ranks[dst].memory[step.write.buffer])
        return sent

    def _check_copies(self, number: int, name: str, whole: Array, parts: Sequence[Array]) -> None:
        holder = self.plan.side(name)
        for rank in holder.devices.tolist():
            flat = parts[rank].reshape(-1)
            for slab, mine, sums in holder.held(rank):
                if whole[slab][mine].tobytes() != flat[holder.placed(sums)].tobytes():
                    wrong = f"rank {rank} has another copy than the ranks before it"
                    raise ScheduleError(f"output {number}", wrong, "equal copies")

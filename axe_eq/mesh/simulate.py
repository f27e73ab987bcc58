"""All ranks of a plan in this process, on numpy, each with its own memory; messages are copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from axe_eq.errors import ScheduleError
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.rank import HOST, Locals, Prepare, Rank, local_steps, part_of, whole_of
from axe_eq.mesh.steps import ExchangeStep
from axe_eq.mesh.transport import run_ranks, traced
from axe_eq.program.types import Array


class Sight:
    """A rank's sight of all ranks' memory: elements are read and stored where they lie.

    Args:
        plan: what all ranks do.
        rank: whose sight it is.
        every: per rank its memory of the buffers that all see.
    """

    def __init__(self, plan: MeshPlan, rank: int, every: Sequence[dict[str, Array]]) -> None:
        self.plan, self.rank, self.every = plan, rank, every
        self._stored: dict[str, Array] = {}

    def own(self, name: str) -> Array:
        """This rank's flat memory of a buffer that all see."""
        return self.every[self.rank][name]

    def seen(self, name: str) -> Array:
        """This rank's part of a buffer, as it is now; to be stored where kernels make it."""
        type_, of = self.plan.local_type(name), [m[self.plan.root(name)] for m in self.every]
        found = np.zeros(type_.shape, of[0].dtype)
        for device, mine, address in self._places(name):
            found.reshape(-1)[mine] = of[device][address]
        return self._stored.setdefault(name, found) if name in self.plan.stored else found

    def store(self, name: str) -> None:
        """Store what kernels made of a buffer where its elements lie."""
        values = self._stored.pop(name).reshape(-1)
        for device, mine, address in self._places(name):
            self.every[device][self.plan.root(name)][address] = values[mine]

    def _places(self, name: str) -> Iterator[tuple[int, Array, Array]]:
        """Per device which elements lie there, and where."""
        devices, address = self.plan.across(name).places(self.rank)
        for device in range(self.plan.n_ranks):
            mine = devices == device
            yield device, mine, address[mine]


def sights(plan: MeshPlan) -> Sequence[Sight | None]:
    """Every rank's sight of the others' memory; None where no kernel of the plan needs it."""
    if not plan.seen:
        return [None] * plan.n_ranks
    every = memories(plan)
    return [Sight(plan, rank, every) for rank in range(plan.n_ranks)]


def memories(plan: MeshPlan) -> list[dict[str, Array]]:
    """Per rank its memory of the buffers that all see, and of numbers that devices meet by."""
    names = plan.seen | {n for n in plan.signals if not plan.buffers[n].across}
    sizes = {n: (plan.side(n).n_elements, plan.buffers[n].value_type.dtype) for n in names}
    return [{n: HOST.zeros(*size) for n, size in sizes.items()} for _ in range(plan.n_ranks)]


class Simulation:
    """A plan made ready for runs in this process.

    Args:
        plan: proved.
        prepare: makes a graph of one device ready.

    Attributes:
        sent: exchange -> bytes that every rank sent in the last run.
    """

    def __init__(self, plan: MeshPlan, prepare: Prepare) -> None:
        self.plan = plan = plan.silent  # ranks wait for each other after every step
        self.local = Locals(local_steps(plan, prepare))
        self.sent: dict[str, tuple[int, ...]] = {}

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """Run on whole arrays, one per input; whole outputs.

        Raises:
            ScheduleError: copies of one part of an output differ.
        """
        plan = self.plan
        ranks = [Rank(plan, n, self.local, HOST, of) for n, of in enumerate(sights(plan))]
        for rank in ranks:
            named = zip(plan.inputs, arrays, strict=True)
            rank.bring({n: part_of(plan, n, a, rank.rank) for n, a in named})
        self.run(ranks)
        return self.outputs(ranks)

    def outputs(self, ranks: Sequence[Rank]) -> list[Array]:
        """Whole outputs of what ranks have after the last step.

        Raises:
            ScheduleError: copies of one part of an output differ.
        """
        found = []
        for number, name in enumerate(self.plan.outputs):
            parts = [rank.memory[name] for rank in ranks]
            found.append(whole_of(self.plan, name, parts))
            self._check_copies(number, name, found[-1], parts)
        return found

    def run(self, ranks: Sequence[Rank]) -> None:
        """All ranks through all steps, side by side."""
        run_ranks(ranks, self)
        self.sent = traced(self.plan, [rank.sent for rank in ranks])

    def exchange(self, step: ExchangeStep, ranks: Sequence[Rank]) -> list[int]:
        """All messages of an exchange; the bytes that every rank sent."""
        if ranks[0].windows is not None and ranks[0].plan.is_across(step):
            return self._seen(step, ranks)
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

    def _seen(self, step: ExchangeStep, ranks: Sequence[Rank]) -> list[int]:
        """An exchange that kernels carry: what they stored is there, the bytes are counted."""
        (source,), goal = step.reads, step.write.buffer
        is_stored = ranks[0].plan.buffers[source.buffer].across
        sent = [0] * len(ranks)
        for rank in ranks:
            rank.reads(step)
            rank.memory[goal] = rank.around(goal)
            part = rank.plan.across(source.buffer if is_stored else goal)
            counts = np.bincount(part.places(rank.rank)[0], minlength=len(ranks)).tolist()
            for device, n in enumerate(counts):
                if device != rank.rank:
                    sent[rank.rank if is_stored else device] += n * step.type.itemsize
        for rank in ranks if is_stored else ():
            assert isinstance(rank.windows, Sight)
            rank.windows.store(source.buffer)
        return sent

    def _check_copies(self, number: int, name: str, whole: Array, parts: Sequence[Array]) -> None:
        holder = self.plan.side(name)
        for rank in holder.devices.tolist():
            flat = parts[rank].reshape(-1)
            for slab, mine, sums in holder.held(rank):
                if whole[slab][mine].tobytes() != flat[holder.placed(sums)].tobytes():
                    wrong = f"rank {rank} has another copy than the ranks before it"
                    raise ScheduleError(f"output {number}", wrong, "equal copies")

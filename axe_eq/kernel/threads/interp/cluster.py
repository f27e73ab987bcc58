"""CTAs of one cluster, interpreted together: one schedule, the barrier that they share.

Every CTA has its memory, barriers and clocks. Clocks count the actors of all CTAs of the cluster,
each from its own on, so that what one CTA knows is another one's knowledge turned round.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from axe_eq.kernel.interp import Ints, KernelFault
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.interp.machine import Blocked, Cta
from axe_eq.kernel.threads.interp.memory import Threads

Strand = tuple[int, int]  # rank of a CTA, number of a group


class Meeting:
    """The barrier of a cluster; knowledge is kept as its first CTA counts actors."""

    def __init__(self, n_strands: int, n_actors: int) -> None:
        self._n_strands, self._n_actors = n_strands, n_actors
        self._phase, self._missing = 0, n_strands
        self._arrived: dict[Strand, int] = {}  # the phase that each strand has arrived for
        self._gathered, self._known = self._nothing(), self._nothing()

    def _nothing(self) -> Ints:
        return np.zeros((2, self._n_actors), np.int64)

    def arrive(self, cta: Cta, who: Threads, at: str) -> None:
        """Some threads of a CTA arrive."""
        strand = cta.rank, who.group
        if strand in self._arrived:
            raise KernelFault(
                f"cluster_arrive ({at})", f"{who} of CTA {cta.rank} arrive twice",
                "a cluster_wait in between",
            )  # fmt: skip
        self._arrived[strand] = self._phase
        for c in cta.clocks.classes(who):
            both = np.stack([cta.clocks.seen[c], cta.clocks.shown[c]])
            np.maximum(self._gathered, cta.clocks.turned(both, cta.rank), out=self._gathered)
        self._missing -= 1
        if not self._missing:
            self._phase, self._missing = self._phase + 1, self._n_strands
            self._known, self._gathered = self._gathered, self._nothing()

    def wait(self, cta: Cta, who: Threads, at: str) -> Iterator[Blocked]:
        """Wait until all have arrived, and know what they knew."""
        phase = self._arrived.pop((cta.rank, who.group), None)
        if phase is None:
            raise KernelFault(
                f"cluster_wait ({at})", f"{who} of CTA {cta.rank} have not arrived",
                "a cluster_arrive before",
            )  # fmt: skip
        if self._phase == phase:
            yield f"the barrier of its cluster ({at})", lambda: self._phase > phase
        clocks = cta.clocks
        seen, shown = clocks.turned(self._known, -cta.rank)
        clocks.join(clocks.classes(who), seen, shown)
        # All lanes of the CTA's warps have come.
        own = clocks.warp_of >= 0
        clocks.converged[own] = np.maximum(clocks.converged[own], seen[own])


class Cluster:
    """CTAs that run together.

    Args:
        kernel: what they run.
        order: when asynchronous effects happen.
        rng: of the random choices.
    """

    def __init__(self, kernel: ir.Kernel, order: str, rng: random.Random) -> None:
        self.kernel, self.order, self.rng = kernel, order, rng
        self.ctas: list[Cta] = []
        self.n_steps = 0
        self._inside: Cta | None = None

    def run(self, ctas: list[Cta]) -> None:
        """Run CTAs, given by rank, to their ends.

        Raises:
            KernelFault: the first thing that is wrong.
        """
        self.ctas = ctas
        first = ctas[0]
        meeting = Meeting(len(ctas) * first.n_groups, len(first.clocks.names))
        strands: dict[Strand, Iterator[Blocked | None]] = {}
        for cta in ctas:
            cta.peers, cta.meeting = ctas, meeting
            strands |= {(cta.rank, g): cta.strand(g) for g in range(cta.n_groups)}
        blocked: dict[Strand, Blocked] = {}
        while strands:
            self._step(strands, blocked)
        while self._pending():
            self._effect()
        for cta in ctas:
            cta.check_exit()

    def _step(
        self, strands: dict[Strand, Iterator[Blocked | None]], blocked: dict[Strand, Blocked]
    ) -> None:
        ready = [s for s in strands if s not in blocked or blocked[s][1]()]
        overtake = self.order == "random" and self.rng.random() < 0.4
        device = self.ctas[0].device
        if device is not None and self.order == "random" and self.rng.random() < 0.1:
            device.pause("its turn", lambda: True)
        if self._pending() and (not ready or overtake):
            self._effect()
            return
        if not ready and device is not None:
            what = "; ".join(f"{self._named(s)}: {blocked[s][0]}" for s in strands)
            device.pause(what, lambda: any(blocked[s][1]() for s in strands))
            return
        if not ready:
            waits = "; ".join(f"{self._named(s)} waits for {blocked[s][0]}" for s in strands)
            raise KernelFault(f"kernel {self.kernel.name}", f"deadlock: {waits}", "progress")
        strand = self.rng.choice(ready)
        blocked.pop(strand, None)
        self.n_steps += 1
        self._enter(self.ctas[strand[0]])
        try:
            wait = next(strands[strand])
            if wait:
                blocked[strand] = wait
        except StopIteration:
            del strands[strand]

    def _named(self, strand: Strand) -> str:
        rank, group = strand
        return f"group {group}" + (f" of CTA {rank}" if len(self.ctas) > 1 else "")

    def _enter(self, cta: Cta) -> None:
        """Global tensors are told which CTA uses them from now on."""
        if cta is not self._inside:
            self._inside = cta
            for tensor in cta.tensors.values():
                tensor.instance, tensor.user = cta.env[ir.CTA.name], cta

    def _pending(self) -> int:
        return sum(len(cta.pending) for cta in self.ctas)

    def _effect(self) -> None:
        """Let one asynchronous effect happen, whichever."""
        number = self.rng.randrange(self._pending())
        for cta in self.ctas:
            if number < len(cta.pending):
                self._enter(cta)
                cta.pending.pop(number)()
                return
            number -= len(cta.pending)

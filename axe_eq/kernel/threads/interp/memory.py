"""Memories of the interpreter: shared bytes, registers, global tensors, and their checks.

Happens-before is decided by vector clocks, so a verdict never depends on the order this run took.
Actors are thread classes (per warp, and the elected thread of every group) and queues of
asynchronous operations (matrix products, bulk stores, ordinary async copies of a warp, bulk loads
of a barrier slot). Every chunk of shared memory remembers its last writer and every actor's last
read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from axe_eq.kernel.interp import Ints, KernelFault, Watch
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.placement import LANES

MANY = LANES  # a lane number that no lane has: read by several lanes


@dataclass(frozen=True)
class Threads:
    """Some threads of a CTA: who issues an operation.

    Attributes:
        first_warp, n_warps: the group.
        elected: only its first thread.
        group: number of the group.
    """

    first_warp: int
    n_warps: int
    elected: bool
    group: int

    def __str__(self) -> str:
        who = "thread 0 of " if self.elected else ""
        return f"{who}warps {self.first_warp}..{self.first_warp + self.n_warps - 1}"


class Clocks:
    """Vector clocks of all actors of a CTA, and of the other CTAs of its cluster after them.

    Row c of `seen` is what thread class c knows to have happened, per actor; `shown` the part of it
    that is also visible to the async proxy. `converged` is every actor's time at its warp's last
    barrier.
    """

    def __init__(
        self, n_warps: int, n_groups: int, slots: list[str], rank: int = 0, n_ctas: int = 1
    ) -> None:
        self.n_warps, self.n_groups = n_warps, n_groups
        self.n_classes = n_warps + n_groups
        names = [f"warp {w}" for w in range(n_warps)]
        names += [f"the elected thread of group {g}" for g in range(n_groups)]
        names += [f"async copies of warp {w}" for w in range(n_warps)]
        names += [
            f"{kind} of group {g}" for kind in ("wgmma", "bulk stores") for g in range(n_groups)
        ]
        names += [f"bulk loads on {slot}" for slot in slots]
        self.n_own = len(names)
        ranks = [(rank + d) % n_ctas for d in range(1, n_ctas)]
        self.names = names + [f"{name} of CTA {r}" for r in ranks for name in names]
        n = len(self.names)
        per_group = n_warps // n_groups
        self.warp_of = np.full(n, -1)
        self.warp_of[:n_warps] = np.arange(n_warps)
        self.warp_of[n_warps : self.n_classes] = np.arange(n_groups) * per_group
        self.warp_of[self.n_classes : self.n_classes + n_warps] = np.arange(n_warps)
        self.seen = np.zeros((self.n_classes, n), np.int64)
        self.shown = np.zeros_like(self.seen)
        self.converged = np.zeros(n, np.int64)
        self.is_slot = np.arange(n) % self.n_own >= self.slot(0)

    def turned(self, clock: Ints, by: int) -> Ints:
        """A clock as the CTA of the cluster counts actors whose rank is lower by `by`."""
        return np.roll(clock, by * self.n_own, axis=-1)

    def elected(self, group: int) -> int:
        """The class of a group's first thread."""
        return self.n_warps + group

    def async_copies(self, warp: int) -> int:
        """The queue of a warp's ordinary async copies."""
        return self.n_classes + warp

    def products(self, group: int) -> int:
        """The queue of a group's matrix products."""
        return self.n_classes + self.n_warps + group

    def stores(self, group: int) -> int:
        """The queue of a group's bulk stores."""
        return self.n_classes + self.n_warps + self.n_groups + group

    def slot(self, number: int) -> int:
        """The bulk loads of a barrier slot."""
        return self.n_classes + self.n_warps + 2 * self.n_groups + number

    def classes(self, who: Threads) -> list[int]:
        """The thread classes of some threads."""
        if who.elected:
            return [self.elected(who.group)]
        warps = range(who.first_warp, who.first_warp + who.n_warps)
        groups = self.n_groups if who.n_warps == self.n_warps else 1
        first = 0 if groups == self.n_groups else who.group
        return [*warps, *(self.elected(g) for g in range(first, first + groups))]

    def classes_of(self, who: Threads, warp: Ints, lane: Ints) -> Ints:
        """The class of single threads of `who`; `warp` counts within the CTA."""
        if who.elected:
            return np.full(np.broadcast_shapes(warp.shape, lane.shape), self.elected(who.group))
        per_group = self.n_warps // self.n_groups
        first = (warp % per_group == 0) & (lane == 0)
        return np.where(first, self.n_warps + warp // per_group, warp)

    def tick(self, classes: list[int]) -> None:
        """A new moment of these classes."""
        for c in classes:
            self.seen[c, c] += 1

    def join(self, classes: list[int], seen: Ints, shown: Ints) -> None:
        """These classes learn what a clock knows."""
        np.maximum(self.seen[classes], seen, out=(joined := self.seen[classes]))
        self.seen[classes] = joined
        self.shown[classes] = np.maximum(self.shown[classes], shown)

    def barrier(self, classes: list[int]) -> None:
        """All of these classes meet."""
        self.join(classes, self.seen[classes].max(0), self.shown[classes].max(0))
        warps = {int(self.warp_of[c]) for c in classes}
        for actor, warp in enumerate(self.warp_of):
            if int(warp) in warps:
                self.converged[actor] = self.seen[classes[0], actor]

    def known_to(self, classes: list[int]) -> Ints:
        """Per actor the time up to which all of these classes know it, for any of their lanes."""
        least = np.asarray(self.seen[classes].min(0))
        own = (self.warp_of >= 0) & np.isin(self.warp_of, self.warp_of[classes])
        return np.where(own, np.minimum(least, self.converged), least)

    def fence(self, classes: list[int]) -> None:
        """What these classes know becomes visible to the async proxy."""
        self.shown[classes] = np.maximum(self.shown[classes], self.seen[classes])


class SharedMemory:
    """Bytes of shared memory with the last write and the last reads of every chunk."""

    def __init__(self, kernel: ir.Kernel, clocks: Clocks, watch: Watch) -> None:
        self.watch = watch
        sizes = [b.itemsize for b in kernel.buffers if b.is_shared]
        self.chunk = min(sizes, default=4)
        self.bytes = np.zeros(kernel.smem_bytes + 16, np.uint8)
        n = len(self.bytes) // self.chunk + 1
        self.clocks = clocks
        self.writer = np.full(n, -1)
        self.written = np.zeros(n, np.int64)
        self.writer_lane = np.full(n, -1)
        self.reads: dict[int, tuple[Ints, Ints]] = {}
        self.n_chunks = n

    def chunks(self, byte: Ints, width: int, what: str) -> Ints:
        """Chunk numbers of accesses of `width` bytes; a new last dim where there are several."""
        byte = np.asarray(byte)
        if byte.size and (byte.min() < 0 or byte.max() + width > len(self.bytes) - 16):
            raise KernelFault(what, f"accesses byte {int(byte.max())}", "inside shared memory")
        if (byte % min(width, 16)).any():
            raise KernelFault(what, f"accesses {width} bytes at a misaligned byte", "alignment")
        if width > self.chunk:
            return np.asarray(byte[..., None] + np.arange(0, width, self.chunk)) // self.chunk
        return (byte // self.chunk)[..., None]

    def _known(self, classes: Ints, lane: Ints, actor: Ints, time: Ints, lane_of: Ints) -> Any:
        """Whether threads know that something by `actor` at `time` (by a lane) has happened."""
        c = self.clocks
        seen = c.seen[classes, actor] >= time
        same_warp = c.warp_of[classes] == c.warp_of[actor]
        return seen & (~same_warp | (lane == lane_of) | (time <= c.converged[actor]))

    def check_read(self, k: Ints, classes: Ints, lane: Ints, what: str) -> None:
        """Threads read chunks: the last write must be known to them."""
        actor = self.writer[k]
        if (actor < 0).any():
            raise KernelFault(what, "reads shared memory that was never written")
        known = self._known(classes, lane, actor, self.written[k], self.writer_lane[k])
        if not known.all():
            self._fault(what, "reads", actor[~known][0], "the write")

    def check_write(self, k: Ints, classes: Ints, lane: Ints, what: str) -> None:
        """Threads overwrite chunks: the last write and all reads must be known to them."""
        actor = self.writer[k]
        known = self._known(
            classes, lane, np.maximum(actor, 0), self.written[k], self.writer_lane[k]
        )
        known |= actor < 0
        if not known.all():
            self._fault(what, "overwrites", actor[~known][0], "the write")
        for reader, (time, lane_of) in self.reads.items():
            known = self._known(classes, lane, np.full(k.shape, reader), time[k], lane_of[k])
            known |= time[k] == 0
            if not known.all():
                self._fault(what, "overwrites", reader, "the read")

    def check_read_by_all(self, k: Ints, classes: list[int], what: str) -> None:
        """Threads read chunks together: the last write must be known to every one of them."""
        actor = self.writer[k]
        if (actor < 0).any():
            raise KernelFault(what, "reads shared memory that was never written")
        late = self.clocks.known_to(classes)[actor] < self.written[k]
        if late.any():
            self._fault(what, "reads", actor[late][0], "the write")

    def check_write_by_all(self, k: Ints, classes: list[int], what: str) -> None:
        """Threads overwrite chunks together: all earlier accesses must be known to each."""
        known = self.clocks.known_to(classes)
        actor = self.writer[k]
        late = (actor >= 0) & (known[np.maximum(actor, 0)] < self.written[k])
        if late.any():
            self._fault(what, "overwrites", actor[late][0], "the write")
        for reader, (time, _) in self.reads.items():
            if (known[reader] < time[k]).any():
                self._fault(what, "overwrites", reader, "the read")

    def check_write_from_outside(self, k: Ints, seen: Ints, shown: Ints, what: str) -> None:
        """Another CTA overwrites chunks by a bulk copy: as `check_write` and `check_proxy`.

        Args:
            k: chunks.
            seen: what its issuing thread knows, as this CTA counts actors.
            shown: what of it the async proxy sees.
            what: for messages.
        """
        actor, time = self.writer[k], self.written[k]
        late = (actor >= 0) & (seen[np.maximum(actor, 0)] < time)
        if late.any():
            self._fault(what, "overwrites", actor[late][0], "the write")
        for reader, (times, _) in self.reads.items():
            if (seen[reader] < times[k]).any():
                self._fault(what, "overwrites", reader, "the read")
        self._check_shown(k, shown, "overwrites", what)

    def check_read_from_outside(self, k: Ints, seen: Ints, what: str) -> None:
        """Threads of another CTA read chunks, who know what `seen` says as this CTA counts."""
        actor = self.writer[k]
        if (actor < 0).any():
            raise KernelFault(what, "reads shared memory that was never written")
        late = seen[actor] < self.written[k]
        if late.any():
            self._fault(what, "reads", actor[late][0], "the write")

    def _fault(self, what: str, verb: str, actor: int, of: str) -> None:
        raise KernelFault(
            what,
            f"{verb} shared memory before {of} by {self.clocks.names[actor]} is known to be done",
            "a wait or a barrier in between",
        )

    def check_proxy(self, k: Ints, classes: list[int], verb: str, what: str) -> None:
        """The async proxy reads or overwrites chunks: ordinary writes must be fenced."""
        self._check_shown(k, self.clocks.shown[classes].min(0), verb, what)

    def _check_shown(self, k: Ints, shown: Ints, verb: str, what: str) -> None:
        actor, time = self.writer[k], self.written[k]
        ordinary = (actor >= 0) & (actor < self.clocks.n_classes + self.clocks.n_warps)
        if (ordinary & (shown[np.maximum(actor, 0)] < time)).any():
            raise KernelFault(
                what, f"{verb} ordinary writes through the async proxy", "fence_async"
            )

    def note_write(self, k: Ints, actor: Ints | int, time: Ints | int, lane: Ints | int) -> None:
        """Remember the last writer; an element written twice in one operation keeps the last."""
        self.writer[k], self.written[k], self.writer_lane[k] = actor, time, lane

    def note_read(self, k: Ints, actor: int, time: int, lane: Ints | int) -> None:
        """Remember the last read by an actor."""
        if actor not in self.reads:
            self.reads[actor] = (np.zeros(self.n_chunks, np.int64), np.full(self.n_chunks, -1))
        times, lanes = self.reads[actor]
        again = times[k] == time
        lanes[k] = np.where(again & (lanes[k] != lane), MANY, lane)
        times[k] = time

    # -- whole operations of ordinary threads --

    def access(
        self, byte: Ints, width: int, who: Threads, warp: Ints, lane: Ints, write: bool, what: str
    ) -> None:
        """Check and note an ordinary access of single threads, `width` bytes each."""
        k = self.chunks(byte, width, what)
        warp, lane = (np.broadcast_to(x, byte.shape)[..., None] for x in (warp, lane))
        warp, lane = np.broadcast_to(warp, k.shape), np.broadcast_to(lane, k.shape)
        classes = self.clocks.classes_of(who, warp, lane)
        (self.check_write if write else self.check_read)(k, classes, lane, what)
        present = [int(c) for c in np.unique(classes)]
        self.clocks.tick(present)
        if write:
            self._once(k, what)
            self.note_write(k, classes, self.clocks.seen[classes, classes], lane)
            return
        for c in present:
            mine = classes == c
            self.note_read(k[mine], c, int(self.clocks.seen[c, c]), lane[mine])

    def _once(self, k: Ints, what: str) -> None:
        if k.size and np.bincount((k - k.min()).ravel()).max() > 1:
            raise KernelFault(
                what, "writes one place of shared memory from several threads", "once"
            )

    def load(self, byte: Ints, dtype: Any, count: int = 1) -> Any:
        """`count` elements from each byte address, as a new last dim."""
        size = np.dtype(dtype).itemsize
        at = np.asarray(byte)[..., None] + np.arange(count * size)
        return self.bytes[at].reshape(*np.shape(byte), count, size).view(dtype)[..., 0]

    def store(self, byte: Ints, values: Any) -> None:
        """Store elements; values have one more dim than addresses."""
        values = np.ascontiguousarray(values)
        raw = values.view(np.uint8).reshape(*values.shape[:-1], values.shape[-1] * values.itemsize)
        at = np.asarray(byte)[..., None] + np.arange(raw.shape[-1])
        self.bytes[at] = raw
        self.watch("smem", byte, raw)

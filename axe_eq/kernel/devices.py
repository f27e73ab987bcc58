"""Several devices that are interpreted together: memory that all see, and a clock for each.

Every device has a thread of its own, and one runs at a time: it goes on until it waits for the
others, so a run is the same every time. A device counts its launches, and its clock says how many
of every device's are known to have ended, and which stores of those that run. Knowledge comes by
signals alone: a thread that has waited for one knows what those who sent it knew. So who reads what
it does not know to be written, or writes what others may still read, is found in whatever order
they ran.
"""

from __future__ import annotations

import contextvars
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from axe_eq.kernel.interp import Ints, KernelFault


class _Ended(Exception):
    """Another device has failed."""


Bools = npt.NDArray[np.bool_]


@dataclass
class Told:
    """What a signal tells.

    Attributes:
        clock: per device, how many of its launches have ended.
        stores: CTA of a launch -> which of its stores are done, in the order of their beginning.
    """

    clock: Ints
    stores: dict[int, Bools] = field(default_factory=dict)

    def learn(self, other: Told) -> None:
        """Know what another one tells too."""
        np.maximum(self.clock, other.clock, out=self.clock)
        for run, done in other.stores.items():
            own = self.stores.get(run, done)
            both = np.zeros(max(len(own), len(done)), np.bool_)
            both[: len(own)] |= own
            both[: len(done)] |= done
            self.stores[run] = both

    def has(self, runs: Ints, entries: Ints) -> Bools:
        """Which stores, of CTAs and of their numbers there, are done."""
        found = np.zeros(runs.shape, np.bool_)
        for run, done in self.stores.items():
            mine = (runs == run) & (entries < len(done))
            found[mine] = done[entries[mine]]
        return found


class Devices:
    """Devices that run together.

    Attributes:
        clocks: row d is what device d knows: per device, how many of its launches have ended. What
            a device had before any counts as one, which it knows itself.
        n_runs: CTAs that have begun.
    """

    n_runs = 0

    def __init__(self, n_devices: int, seed: int = 0) -> None:
        self.clocks = np.eye(n_devices, dtype=np.int64)
        self._rng, self._changed = random.Random(seed), threading.Condition()
        self._alive = list(range(n_devices))
        self._waits: dict[int, tuple[str, Callable[[], bool]]] = {}
        self._turn, self._error = 0, None  # type: int, BaseException | None
        self._met: list[int] = []

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Every device does its work.

        Raises:
            KernelFault: they wait for each other, or what one does wrong.
        """
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run, args=(self._one, n, work), daemon=True
            )
            for n, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _one(self, device: int, work: Callable[[], None]) -> None:
        try:
            self._take(device)
            work()
        except _Ended:
            pass
        except BaseException as error:
            self._error = self._error or error
        with self._changed:
            self._alive.remove(device)
            self._pass()

    def _take(self, device: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == device or self._error is not None)
        if self._error is not None:
            raise _Ended

    def _pass(self) -> None:
        """Choose who runs next, among those who can."""
        ready = [d for d in self._alive if d not in self._waits or self._waits[d][1]()]
        if ready:
            self._turn = self._rng.choice(ready)
        elif self._alive and self._error is None:
            waits = "; ".join(f"device {d} waits for {self._waits[d][0]}" for d in self._alive)
            self._error = KernelFault("devices", f"deadlock: {waits}", "progress")
        self._changed.notify_all()

    def pause(self, device: int, what: str, ready: Callable[[], bool]) -> None:
        """Let others run until something holds.

        Raises:
            KernelFault: from `run`, where nobody can go on.
        """
        with self._changed:
            self._waits[device] = what, ready
            self._pass()
        self._take(device)
        del self._waits[device]

    def meet(self, device: int, what: str, then: Callable[[], object]) -> None:
        """All come here, and know what all knew; the last one does something for all."""
        met = self._met
        met.append(device)
        if len(met) < len(self.clocks):
            self.pause(device, what, lambda: len(met) == len(self.clocks))
            return
        self._met = []
        self.clocks[:] = self.clocks.max(0)
        then()


@dataclass
class Memory:
    """A buffer of which every device has a part that all see.

    Attributes:
        arrays: per device its flat memory.
        there: whether it holds something before the first launch.
        signals: of numbers, by device and element: what those tell who added to it.
        least: the fewest that somebody has waited for.
    """

    arrays: Sequence[npt.NDArray[Any]]
    there: bool = True
    signals: dict[tuple[int, int], Told] = field(default_factory=dict)
    least: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n, least = len(self.arrays), 0 if self.there else -1
        self.writer = [np.full(len(a), d) for d, a in enumerate(self.arrays)]
        self.written = [np.full(len(a), least) for a in self.arrays]
        # The store that an element is of: CTA of a launch, and its number there.
        self.run, self.entry = ([np.full(len(a), -1) for a in self.arrays] for _ in range(2))
        # Per device that read or merged, its last launch that did.
        self.read, self.merged = (
            [np.full((n, len(a)), -1) for a in self.arrays] for _ in range(2)
        )  # fmt: skip


@dataclass(frozen=True)
class Shared:
    """Where a device finds a buffer: memory of all, device and element of its first one."""

    memory: Memory
    device: int
    place: int = 0


@dataclass
class Device:
    """One of the devices, while it interprets kernels one after another.

    Attributes:
        devices: all of them.
        number: its own.
        shared: buffer -> where it lies in memory that all see; others are its own.
        learned: what it knows when a kernel begins.
    """

    devices: Devices
    number: int
    shared: Mapping[str, Shared] = field(default_factory=dict)
    learned: Told = field(init=False)

    def __post_init__(self) -> None:
        self.learned = Told(self.devices.clocks[self.number])

    def begin(self) -> int:
        """A CTA begins: its number among those of all devices."""
        self.devices.n_runs += 1
        return self.devices.n_runs - 1

    @property
    def clock(self) -> Ints:
        """What it knows when a kernel begins; its own entry is the number of the launch."""
        return np.asarray(self.devices.clocks[self.number])

    def ended(self, learned: Sequence[Told]) -> None:
        """A launch is over: the next one knows what its threads have learned."""
        for told in learned:
            self.learned.learn(told)
        self.clock[self.number] += 1

    def pause(self, what: str, ready: Callable[[], bool]) -> None:
        """Let other devices run until something holds."""
        self.devices.pause(self.number, what, ready)

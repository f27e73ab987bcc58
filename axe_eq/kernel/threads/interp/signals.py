"""What kernels do with memory that several devices see: reads, writes, signals and waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from axe_eq.kernel.devices import Device, Shared, Told
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.interp import Env, GlobalTensor, Ints, KernelFault
from axe_eq.kernel.threads import ir
from axe_eq.program.ops import MONOIDS

if TYPE_CHECKING:
    from axe_eq.kernel.threads.interp.machine import Cta, Issue


class SharedTensor(GlobalTensor):
    """A global tensor in memory that all devices see."""

    def __init__(
        self, buffer: ir.Buffer, array: npt.NDArray[Any], env: dict[str, int], device: Device,
        shared: Shared,
    ) -> None:  # fmt: skip
        super().__init__(buffer, array, env, "CTA")
        self.device, self.shared = device, shared

    def places(self, element: Ints) -> tuple[Ints, Ints]:
        """Device and element of its memory."""
        device, place = np.divmod(element, self._far) if self._span else (0 * element, element)
        return device + self.shared.device, place + self.shared.place

    def read(self, element: Ints, active: Any, fill: float = 0.0) -> npt.NDArray[Any]:
        """Elements as they are now."""
        element, active = np.broadcast_arrays(element, active)
        found = super().read(element, active, fill).copy()
        for device, at, mine in self._parts(element, active):
            found[mine] = self.shared.memory.arrays[device][at]
        self.use(element, active)
        return found

    def write(self, element: Ints, values: Any, active: Any) -> None:
        """Write the active elements, in whichever device's memory."""
        element, values, active = np.broadcast_arrays(element, values, active)
        super().write(element, values, active)
        self.use(element, active, write=True)
        self._store(element, values, active)

    def merge(self, element: Ints, values: Any, active: Any, monoid: str) -> npt.NDArray[Any]:
        """Merge the active elements with what is there, in whichever device's memory."""
        element, values, active = np.broadcast_arrays(element, values, active)
        self.use(element, active, write=True, monoid=monoid)
        found = super().merge(element, values, active, monoid)
        self._store(element, found, active, monoid)
        return found

    def held(self, element: Ints, active: Any) -> npt.NDArray[Any]:
        """What is there now."""
        found = super().held(element, active).copy()
        for device, at, mine in self._parts(element, active):
            found[mine] = self.shared.memory.arrays[device][at]
        return found

    def _store(self, element: Ints, values: Any, active: Any, monoid: str = "") -> None:
        memory, own = self.shared.memory, self.device.number
        entry = self.entry or self._begun()
        for device, at, mine in self._parts(element, active):
            memory.arrays[device][at] = values[mine]
            memory.run[device][at], memory.entry[device][at] = entry
            if self._in_any_order(monoid):
                memory.merged[device][own, at] = self.device.clock[own]
                continue
            memory.writer[device][at] = own
            memory.written[device][at] = self.device.clock[own]

    def _begun(self) -> tuple[int, int]:
        """A store of the threads that run now."""
        cta: Cta = self.user
        assert cta.issuing is not None
        classes = cta.clocks.classes(cta.issuing.who)
        cta.clocks.tick(classes)
        return cta.log(classes, [int(cta.clocks.seen[c, c]) for c in classes])

    def _in_any_order(self, monoid: str) -> bool:
        """Whether merges by a monoid give the same whoever comes first."""
        return bool(monoid) and (MONOIDS[monoid].exact or self.data.dtype.kind != "f")

    def _parts(self, element: Ints, active: Any) -> list[tuple[int, Ints, Any]]:
        device, place = self.places(element)
        found = []
        for d in np.unique(device[active]):
            mine = active & (device == d)
            found.append((int(d), place[mine], mine))
        return found

    def use(
        self, element: Ints, active: Any, issue: Issue | None = None, *, write: bool = False,
        bulk: bool = False, monoid: str = "",
    ) -> None:  # fmt: skip
        """Threads that run now read or write elements: what came before must be known to them.

        Asynchronous effects happen at some later time: those who issue them are asked before. What
        others merge need not be known to who merges by the same monoid, where the order is nothing
        that values tell: not of sums of floats.
        """
        issue = issue or (self.user.issuing if self.user is not None else None)
        if issue is None:
            return
        told, memory, own = self.user.knows(issue.who, bulk), self.shared.memory, self.device
        knows = np.min([one.clock for one in told], axis=0)
        element, active = np.broadcast_arrays(element, active)
        for device, at, _ in self._parts(element, active):
            writer, written = memory.writer[device][at], memory.written[device][at]
            if (not write or monoid) and (written < 0).any():
                verb = f"merges with {self.buffer}" if monoid else f"reads {self.buffer}"
                raise KernelFault(issue.what, f"{verb}, which nobody wrote", "a write")
            late = (writer != own.number) & (written >= knows[writer])
            if late.any():
                stores = memory.run[device][at], memory.entry[device][at]
                late &= ~np.all([one.has(*stores) for one in told], axis=0)
            if late.any():
                self._fault(issue, "overwrites" if write else "reads", int(writer[late][0]),
                            "wrote")  # fmt: skip
            for other, when in enumerate(memory.merged[device][:, at]):
                unknown = other != own.number and (when >= knows[other]).any()
                if unknown and not self._in_any_order(monoid):
                    self._fault(issue, "overwrites" if write else "reads", other, "merges with")
            if not write:
                memory.read[device][own.number, at] = own.clock[own.number]
                continue
            for reader, read in enumerate(memory.read[device][:, at]):
                if reader != own.number and (read >= knows[reader]).any():
                    self._fault(issue, "overwrites", reader, "reads")

    def _fault(self, issue: Issue, verb: str, other: int, did: str) -> None:
        raise KernelFault(
            issue.what,
            f"on device {self.device.number} {verb} {self.buffer}, which device {other} {did}"
            " at no known time", "a signal, and a wait for it in between",
        )  # fmt: skip


def number_of(view: ir.View, cta: Cta, env: Env) -> tuple[GlobalTensor, Ints]:
    """The tensor and the elements of a view of numbers that devices signal with."""
    tensor = cta.tensors[view.buffer.name]
    index = np.indices(view.extent)
    begins = [int(np.asarray(evaluate(b, env)).item()) for b in view.begin]
    return tensor, tensor.element([x + b for x, b in zip(index, begins, strict=True)]).reshape(-1)


def add(
    cta: Cta, tensor: GlobalTensor, elements: Ints, issue: Issue, *, is_more: bool
) -> None:  # fmt: skip
    """The first thread adds 1 to numbers: what its device knew when the kernel began is told.

    Or it sets them to 0, for what they told is known.
    """
    if cta.env[ir.CTA.name] or issue.who.first_warp:
        return
    if not isinstance(tensor, SharedTensor):
        raise KernelFault(f"tensor {tensor.buffer}", "is on one device", "devices run together")
    memory, clock = tensor.shared.memory, tensor.device.clock
    for device, place in zip(*(x.tolist() for x in tensor.places(elements)), strict=True):
        if not is_more:
            memory.arrays[device][place] = 0
            memory.signals.pop((device, place), None)
            memory.least.pop((device, place), None)
            continue
        if not cta.fenced:
            raise KernelFault(issue.what, "tells nothing of what its device did", "a fence before")
        memory.arrays[device][place] += 1
        _check_count(tensor, issue, device, place)
        told = memory.signals.setdefault((device, place), Told(np.zeros_like(clock)))
        told.learn(tensor.device.learned)


def tell(cta: Cta, tensor: GlobalTensor, element: Ints, count: int, issue: Issue) -> None:
    """A thread adds to a number: what it knows of all devices, and of its CTA's stores, is told.

    Nothing is told of no elements: where a tile hangs over the end, no device has them.
    """
    if not count:
        return
    if not isinstance(tensor, SharedTensor):
        raise KernelFault(f"tensor {tensor.buffer}", "is on one device", "devices run together")
    if not cta.fenced:
        raise KernelFault(issue.what, "tells nothing of what its thread knows", "a fence before")
    (c,) = cta.clocks.classes(issue.who)
    (known,), memory = cta.knows(issue.who), tensor.shared.memory
    known.learn(Told(known.clock, {cta.run: cta.done(c)}))
    device, place = (int(x[0]) for x in tensor.places(element))
    memory.arrays[device][place] += count
    _check_count(tensor, issue, device, place)
    memory.signals.setdefault((device, place), Told(np.zeros_like(known.clock))).learn(known)


def is_there(tensor: GlobalTensor, element: Ints, least: int) -> bool:
    """Whether a number is as large as is waited for."""
    if not isinstance(tensor, SharedTensor):
        return bool(tensor.read(element, True).min() >= least)
    device, place = (int(x[0]) for x in tensor.places(element))
    return bool(tensor.shared.memory.arrays[device][place] >= least)


def acquire(cta: Cta, tensor: GlobalTensor, element: Ints, issue: Issue) -> None:
    """Threads have waited for a number: they know what those knew who added to it."""
    assert isinstance(issue.primitive, ir.Await)
    classes = cta.clocks.classes(issue.who)
    cta.clocks.tick(classes)
    if isinstance(tensor, SharedTensor):
        device, place = (int(x[0]) for x in tensor.places(element))
        memory, least = tensor.shared.memory, issue.primitive.least
        memory.least[device, place] = min(memory.least.get((device, place), least), least)
        _check_count(tensor, issue, device, place)
        told = Told(tensor.device.clock.copy())
        told.learn(memory.signals.get((device, place), told))
        cta.acquired += [(c, int(cta.clocks.seen[c, c]), told) for c in classes]
    cta.clocks.fence(classes)


def _check_count(tensor: SharedTensor, issue: Issue, device: int, place: int) -> None:
    """Who waits for fewer signals than come does not know whose these are."""
    memory = tensor.shared.memory
    least, count = memory.least.get((device, place)), int(memory.arrays[device][place])
    if least is not None and count > least:
        wrong = f"{count} signals come to {tensor.buffer} on device {device}, and {least}"
        raise KernelFault(issue.what, f"{wrong} are waited for", "a wait for all")


# -- primitives --


def do_signal(cta: Cta, s: ir.Signal, env: Env, issue: Issue) -> None:
    """One thread of the grid tells all devices."""
    add(cta, *number_of(s.last, cta, env), issue, is_more=False)
    cta.fenced = True
    add(cta, *number_of(s.flags, cta, env), issue, is_more=True)


def do_clear(cta: Cta, s: ir.Clear, env: Env, issue: Issue) -> None:
    """One thread of the grid sets numbers to 0."""
    add(cta, *number_of(s.flags, cta, env), issue, is_more=False)


def do_tell(cta: Cta, s: ir.Tell, env: Env, issue: Issue) -> None:
    """A thread adds to numbers."""
    cta.fenced = True
    for flag, count in zip(s.flags, s.counts, strict=True):
        at = number_of(flag, cta, env)
        tell(cta, *at, int(evaluate(count, env)), issue)


def do_wait(cta: Cta, s: ir.Await, env: Env, issue: Issue) -> None:
    """The number is there: who waited for it knows what it tells."""
    acquire(cta, *number_of(s.flag, cta, env), issue)

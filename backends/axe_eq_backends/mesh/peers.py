"""Mesh plans in one process on several GPUs that read each other's memory.

Messages are copies by the devices' copy engines, each pair of devices on a stream of its own, which
waits for what it sends and where it stores by events. Kernels that do not read what arrives run
meanwhile. Rows of a wider matrix are copied as they lie; other parts that are not dense are packed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from axe_eq.errors import DeviceError, MissingPackage
from axe_eq.run.arrays import Address
from axe_eq.schedule.meeting import meeting_of
from axe_eq_backends.mesh.torch_arrays import Moved, TorchArrays, again
from axe_eq_backends.mesh.torch_ranks import ENVIRONMENT
from axe_eq_backends.mesh.window import Window
from axe_eq_backends.mesh.wires import Wire

if TYPE_CHECKING:
    from axe_eq.mesh.plan import MeshPlan
    from axe_eq.mesh.rank import Rank
    from axe_eq.mesh.steps import ExchangeStep

Rows = dict[tuple[int, int], tuple[int, int] | None]  # by sender and receiver, see `_rows`
OPEN = 1 << 30  # a number that nobody waits for
ALIGNED = 512  # bytes, of where a buffer that devices see begins
EXTRA = 'pip install "axe-eq[peers]"'


class PeersSession:
    """All ranks of a plan: one per device, in the order of devices."""

    def __init__(self, torch: Any, copies: Copies, n_ranks: int) -> None:
        self.torch, self.copies, self.n_ranks = torch, copies, n_ranks
        self.arrays = [TorchArrays(torch, f"cuda:{device}") for device in range(n_ranks)]
        every = [(s, d) for s in range(n_ranks) for d in range(n_ranks) if s != d]
        self._streams = {pair: torch.cuda.Stream(pair[0]) for pair in every}
        self._wires: WeakKeyDictionary[Any, list[Wire]] = WeakKeyDictionary()
        self._rows: WeakKeyDictionary[Any, Rows] = WeakKeyDictionary()

    def windows(self, plan: MeshPlan) -> Turns:
        """Memory for what kernels of a plan read and store on other devices.

        Raises:
            DeviceError: devices have no room for it.
        """
        return Turns(self, plan)

    def exchange(self, step: ExchangeStep, ranks: Sequence[Rank]) -> list[int]:
        """All messages of an exchange, begun; the bytes that every rank sends."""
        if any(rank.plan.is_across(step) for rank in ranks[:1]):
            return self._seen(step, ranks)
        if step not in self._wires:
            pairs = zip(self.arrays, ranks, strict=True)
            self._wires[step] = [Wire(arrays, step, rank) for arrays, rank in pairs]
            self._rows[step] = {
                (w.rank, d): _rows(p) for w in self._wires[step] for d, p in w.out.items()
            }
        wires, rows, name = self._wires[step], self._rows[step], step.write.buffer
        reads = [rank.reads(step) for rank in ranks]
        for rank, wire, read in zip(ranks, wires, reads, strict=True):
            rank.memory[name] = wire.memory(read, rank)
        packed = {
            (src, dst): wires[src].payload(dst, reads[src])
            for (src, dst), shape in rows.items() if shape is None
        }  # fmt: skip
        event, current = self.torch.cuda.Event, self.torch.cuda.current_stream
        ready = [event() for _ in ranks]  # memory and what is sent
        arrived: list[dict[int, Any]] = [{} for _ in ranks]
        ends: list[list[Any]] = [[] for _ in ranks]
        sends: list[tuple[int, int, Any, Any, Callable[[], None]]] = []
        for (src, dst), shape in rows.items():
            stream, goal, end = self._streams[src, dst], ranks[dst].memory[name], event()
            if shape is None:
                landed = arrived[dst][src] = wires[dst].landing(src, goal)
                given = packed[src, dst]
                copy: Callable[[], None] = partial(self.copies.dense, landed, given, stream)
            else:
                given, copy = self._rows_of(wires, src, dst, shape, reads[src], goal, stream)
            given.record_stream(stream)
            sends.append((src, dst, stream, end, copy))
            ends[src].append(end)
            ends[dst].append(end)

        def begin() -> None:
            for device, one in enumerate(ready):
                one.record(current(device))
            for src, dst, stream, end, copy in sends:
                stream.wait_event(ready[src])
                stream.wait_event(ready[dst])
                copy()
                end.record(stream)

        self.arrays[0].do(begin)
        for n, (rank, wire) in enumerate(zip(ranks, wires, strict=True)):
            memory = rank.memory[name]
            if wire.own and not wire.is_view:
                wire.arrays.do(partial(wire.keep, reads[n], memory))
            if ends[n]:
                finish = _Finish(wire, partial(current, n), ends[n], arrived[n], memory)
                rank.arriving[name] = partial(wire.arrays.do, finish)
        return [wire.sent for wire in wires]

    def _seen(self, step: ExchangeStep, ranks: Sequence[Rank]) -> list[int]:
        """An exchange that kernels carry: who reads it waits for all that others did before.

        Where the kernel that reads it waits itself, calls that are made again do nothing.
        """
        event, current = self.torch.cuda.Event, self.torch.cuda.current_stream
        for rank in ranks:
            rank.reads(step)
        ready, name = [event() for _ in ranks], step.write.buffer
        once = name in ranks[0].plan.awaited

        def record() -> None:
            for device, one in enumerate(ready):
                one.record(current(device))

        if once:
            record()
        else:
            self.arrays[0].do(record)
        for n, rank in enumerate(ranks):
            rank.memory[name] = rank.around(name)
            others = [one for device, one in enumerate(ready) if device != n]

            def wait(n: int = n, others: Sequence[Any] = others) -> None:
                for one in others:
                    current(n).wait_event(one)

            rank.arriving[name] = wait if once else partial(self.arrays[n].do, wait)
        return list(step.messages.sent(len(ranks)))

    def _rows_of(
        self, wires: Sequence[Wire], src: int, dst: int, shape: tuple[int, int],
        reads: Sequence[Any], goal: Any, stream: Any,
    ) -> tuple[Any, Callable[[], None]]:  # fmt: skip
        """The memory that a message is read from, and its copy to where it is stored."""
        (given,), (taken,) = wires[src].out[dst], wires[dst].into[src]
        source, here, there = reads[given.leaf], given.source.region, taken.goals[0].region
        return source, partial(
            self.copies.rows, goal, there.offset, _pitch(there, shape), source, here.offset,
            _pitch(here, shape), shape, stream,
        )  # fmt: skip

    def again(self, run: Callable[[], Any], plan: MeshPlan) -> Callable[[], Any]:
        """A call on memory of its own, see `axe_eq_backends.mesh.torch_arrays.again`."""
        return again(self.arrays, run, plan.held_bytes, turns_of(plan))


def turns_of(plan: MeshPlan) -> int:
    """In how many windows calls of a plan are in turns.

    Its results are the same arrays in all of them, so kernels must store them where that is said.
    """
    return 2 if plan.seen and set(plan.outputs) <= plan.computed else 1


class Turns:
    """Windows for calls of a plan one after the other.

    Two calls in a row have other ones: when a call writes to what the one before the last used, all
    devices have waited for each other since. Where there is one window, they wait after each call.

    Kernels that wait for other devices themselves find their numbers open in a call that is made:
    its devices wait by events, for the host may wait for one of them before it has asked another
    one. When calls are made again the host only launches, and the numbers count.
    """

    def __init__(self, session: PeersSession, plan: MeshPlan) -> None:
        self._session, self._arrays, self._counts = session, session.arrays, False
        self._sights = [self._window(plan) for _ in range(turns_of(plan))]
        for sight, before in zip(self._sights, (self._sights[-1], *self._sights), strict=False):
            for own, other in zip(sight, before, strict=True):
                own.before = other
        self._meetings = [n for n in sorted(plan.signals) if n in plan.seen]
        self._streams: list[Any] = [None for _ in session.arrays]  # of the last call

    def _window(self, plan: MeshPlan) -> list[Sight]:
        places, n_bytes, copies = dict[str, int](), 0, self._session.copies
        for name in sorted(plan.seen):
            places[name] = n_bytes
            size = plan.side(name).n_elements * plan.buffers[name].value_type.itemsize
            n_bytes += -(-size // ALIGNED) * ALIGNED
        window = Window(copies.cu, copies.contexts, n_bytes)
        return [Sight(plan, a, r, window, places) for r, a in enumerate(self._arrays)]

    def begin(self) -> list[Sight]:
        """Every rank's sight in the next call, which follows the last on whatever streams it is."""
        self._sights.append(self._sights.pop(0))
        self._arrays[0].do(self._follow)
        if self._meetings:
            self._arrays[0].do(self._numbers(self._sights[-1]))
        return self._sights[-1]

    def _numbers(self, sights: Sequence[Sight]) -> Callable[[], None]:
        """Opens the numbers of meetings when it is called first, and lets them count after that."""
        made = False

        def begin() -> None:
            nonlocal made
            if not made:
                self._set(sights, OPEN)
            elif not self._counts:
                self._wait()
                self._set([sight for turn in self._sights for sight in turn], 0)
                self._wait()
                self._counts = True
            made = True

        return begin

    def _set(self, sights: Sequence[Sight], value: int) -> None:
        for sight in sights:
            for name in self._meetings:
                sight.own(name).fill_(value)

    def _wait(self) -> None:
        """Until all devices have done all that was asked of them."""
        for device in range(len(self._arrays)):
            self._session.torch.cuda.synchronize(device)

    def end(self) -> None:
        """After the last step of a call."""
        if len(self._sights) == 1:
            self._arrays[0].do(self._gather)

    def _follow(self) -> None:
        current = self._session.torch.cuda.current_stream
        for device, last in enumerate(self._streams):
            now = self._streams[device] = current(device)
            if last is not None and last != now:
                now.wait_stream(last)

    def _gather(self) -> None:
        events = [stream.record_event() for stream in self._streams]
        for device, stream in enumerate(self._streams):
            for event in (*events[:device], *events[device + 1 :]):
                stream.wait_event(event)


class Sight:
    """A rank's sight of the memory of all devices, see `axe_eq.mesh.rank.Windows`.

    Args:
        plan: whose buffers they are.
        arrays: of the rank's device.
        rank: its number, which is its device's.
        window: the memory of all devices.
        places: buffer -> where it begins in each.
    """

    def __init__(
        self, plan: MeshPlan, arrays: TorchArrays, rank: int, window: Window,
        places: Mapping[str, int],
    ) -> None:  # fmt: skip
        self.before: Sight  # of the same rank in the call before
        self._own: dict[str, Any] = {}
        self._seen: dict[str, Address] = {}
        for name, at in places.items():
            n, type_ = plan.side(name).n_elements, plan.buffers[name].value_type
            raw = window.array(rank, at, n * type_.itemsize)
            flat = arrays.torch.as_tensor(raw, device=arrays.device)
            self._own[name] = flat.view(arrays.element(type_.dtype))
        for b in plan.buffers.values():
            if b.across:
                device, place = plan.across(b.name).begins[rank]
                at = places[b.within] + place * b.value_type.itemsize
                self._seen[b.name] = Address(window.address(device, at), rank)

    def own(self, name: str) -> Any:
        """This rank's flat memory of a buffer that all devices see, or of a meeting's last."""
        return self._own[name] if name in self._own else self.before.own(meeting_of(name))

    def seen(self, name: str) -> Address:
        """Where the kernels of this rank find a buffer that lies across devices."""
        return self._seen[name]


class _Finish:
    """Ends a rank's part of an exchange: what arrives is there, and what was sent may change."""

    def __init__(
        self, wire: Wire, own: Callable[[], Any], ends: Sequence[Any], arrived: Mapping[int, Any],
        memory: Any,
    ) -> None:  # fmt: skip
        self.wire, self.own, self.ends = wire, own, ends
        self.arrived, self.memory = arrived, memory

    def __call__(self) -> None:
        own = self.own()
        for event in self.ends:
            own.wait_event(event)
        for src, landed in self.arrived.items():
            self.wire.unpack(src, landed, self.memory)


def _rows(parts: Sequence[Moved]) -> tuple[int, int] | None:
    """Rows and elements of each, where a message is one part that lies so here and there."""
    if len(parts) != 1 or parts[0].value is not None or parts[0].pick is not None:
        return None
    (part,) = parts
    if len(part.goals) != 1 or part.source.index is not None or part.goals[0].index is not None:
        return None
    regions = (part.source.region, part.goals[0].region)
    shapes = {r.shape for r in regions if not r.is_dense}
    if len(shapes) > 1 or any(len(s) != 2 for s in shapes):
        return None
    if any(not r.is_dense and r.strides[1] != 1 for r in regions):
        return None
    rows, width = shapes.pop() if shapes else (1, part.source.size)
    return rows, width


def _pitch(region: Any, shape: tuple[int, int]) -> int:
    return shape[1] if region.is_dense else int(region.strides[0])


class Copies:
    """Copies between devices by the driver.

    Args:
        driver: `cuda.bindings.driver`.
        n_devices: how many take part.

    Raises:
        DeviceError: two devices cannot read each other's memory.
    """

    def __init__(self, driver: Any, n_devices: int) -> None:
        self.cu = driver
        handles = [self._done(driver.cuDeviceGet(d)) for d in range(n_devices)]
        self.contexts = [self._done(driver.cuDevicePrimaryCtxRetain(h)) for h in handles]
        for here in range(n_devices):
            for there in range(n_devices):
                if here != there:
                    self._open(handles, here, there)
        self._made: dict[Any, Any] = {}

    def _open(self, handles: Sequence[Any], here: int, there: int) -> None:
        cu = self.cu
        if not self._done(cu.cuDeviceCanAccessPeer(handles[here], handles[there])):
            wrong = f"cannot read the memory of device {there}"
            raise DeviceError(f"device {here}", wrong, "devices joined by NVLink or one PCIe root")
        self._done((*cu.cuCtxPushCurrent(self.contexts[here]), None))
        (result,) = cu.cuCtxEnablePeerAccess(self.contexts[there], 0)
        cu.cuCtxPopCurrent()
        if result != cu.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
            self._done((result, None))

    def _done(self, returned: Any) -> Any:
        if returned[0] != self.cu.CUresult.CUDA_SUCCESS:
            raise DeviceError(
                "copies between devices", f"failed with {returned[0].name}", "success"
            )
        return returned[1]

    def dense(self, goal: Any, source: Any, stream: Any) -> None:
        """Copy a dense tensor to one of another device."""
        to, of = self.contexts[goal.device.index], self.contexts[source.device.index]
        n = source.numel() * source.itemsize
        with self._at(of):
            returned = self.cu.cuMemcpyPeerAsync(
                goal.data_ptr(), to, source.data_ptr(), of, n, stream.cuda_stream
            )
            self._done((*returned, None))

    def rows(
        self, goal: Any, to: int, to_pitch: int, source: Any, begin: int, pitch: int,
        shape: tuple[int, int], stream: Any,
    ) -> None:  # fmt: skip
        """Copy rows between two memories; addresses and pitches are in elements."""
        size, rows, width = source.itemsize, *shape
        if rows == 1 or pitch == to_pitch == width:
            n = rows * width
            self.dense(goal[to : to + n], source[begin : begin + n], stream)
            return
        cu = self.cu
        here = self.contexts[source.device.index]
        job = cu.CUDA_MEMCPY3D_PEER()
        job.srcMemoryType = job.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        job.srcContext, job.dstContext = here, self.contexts[goal.device.index]
        job.srcDevice, job.srcPitch = source.data_ptr() + begin * size, pitch * size
        job.dstDevice, job.dstPitch = goal.data_ptr() + to * size, to_pitch * size
        job.srcHeight = job.dstHeight = rows
        job.WidthInBytes, job.Height, job.Depth = width * size, rows, 1
        with self._at(here):
            self._done((*cu.cuMemcpy3DPeerAsync(job, stream.cuda_stream), None))

    def _at(self, context: Any) -> _Current:
        return _Current(self.cu, context)


class _Current:
    """Makes a context current."""

    def __init__(self, driver: Any, context: Any) -> None:
        self.cu, self.context = driver, context

    def __enter__(self) -> None:
        self.cu.cuCtxPushCurrent(self.context)

    def __exit__(self, *error: object) -> None:
        self.cu.cuCtxPopCurrent()


class PeersTransport:
    """Peer access between the GPUs of this process."""

    name = "peers"
    on_device = True
    one_process = True
    sees = True

    def open(self, n_ranks: int) -> PeersSession:
        """The session of all ranks.

        Raises:
            MissingPackage: no torch, or no bindings of the driver.
            DeviceError: too few GPUs, or such as cannot read each other's memory.
        """
        os.environ.update(ENVIRONMENT)
        try:
            import torch
            from cuda.bindings import driver
        except ImportError as error:
            why = str(error).partition("\n")[0]
            raise MissingPackage(
                "transport 'peers'", f"needs torch and cuda-python ({why})", "the extra 'peers'",
                hint=EXTRA,
            ) from None  # fmt: skip
        there = torch.cuda.device_count()
        if there < n_ranks:
            wrong = f"finds {there} GPU{'s' if there != 1 else ''}"
            raise DeviceError("transport 'peers'", wrong, f"{n_ranks}, one per rank")
        for device in range(n_ranks):
            torch.zeros(
                1, device=f"cuda:{device}"
            )  # torch's contexts are the devices' primary ones
        return PeersSession(torch, Copies(driver, n_ranks), n_ranks)


TRANSPORT = PeersTransport()

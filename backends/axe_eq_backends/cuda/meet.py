"""Kernels that tell other devices, or wait for them: the statements that a meeting adds to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd

from axe_eq.errors import ScheduleError
from axe_eq.kernel.expr import Int, bounds, divisor, maximum, minimum, variables
from axe_eq.kernel.placement import number
from axe_eq.kernel.spaces import WINDOW_BYTES
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.layout import Layout
from axe_eq.lower.own import Lowered
from axe_eq.schedule.graph import BufferSpec, KernelStep, MoveStep, ScheduleGraph
from axe_eq.schedule.meeting import ALL, LAST, chunks_of
from axe_eq.schedule.window import in_window


def meet(made: Lowered, step: KernelStep | MoveStep, graph: ScheduleGraph) -> Lowered:
    """The kernel of a step with the signals and waits of its meetings.

    Where it meets others alone there is a signal at its begin. Threads wait that read what is
    awaited, or start a copy of it: before all units of work, or where roles divide the threads in
    each unit, before the loop that does. Where devices are told of chunks they wait in each unit
    for those that it reads. What a kernel does before, it does meanwhile. What it stores on other
    devices it tells them behind every unit's stores.

    Raises:
        ScheduleError: it reads nothing that is awaited, or its units are no parts of chunks.
    """
    held, buffers, more = made.kernel, graph.buffers, dict[str, str]()
    if not any(b.after or b.before for b in buffers.values()):
        return made
    names = {n: b for n, b in made.buffers.items() if buffers[b].role != "signal"}

    def tensor(buffer: str) -> ir.Buffer:
        found = _tensor(buffers[buffer], held)
        held.tensors.append(found)
        more[found.name] = buffer
        return found

    reads = {a.buffer for a in step.reads}
    for name in dict.fromkeys(b.after for n in reads if (b := buffers[n]).after):
        awaited = {n: buffers[b].chunk for n, b in names.items() if buffers[b].after == name}
        chunks = chunks_of(buffers[name])
        sizes = {buffers[names[n]].value_type.size for n in awaited}
        seen, own = None if chunks else tensor(name + ALL), tensor(name)
        least = max(sizes) // chunks if seen is None else number(seen.shape[0])
        wait = _Wait(frozenset(awaited), own, least, chunks, max(awaited.values()))
        if len(sizes) != 1 or not wait.put(held.body):
            wrong = "reads nothing that devices wait for"
            raise ScheduleError(f"kernel {held.name}", wrong, "some, of one size")
        if seen is not None:
            held.body.insert(0, ir.Signal(seen.all, tensor(name + LAST).all))
        held.awaited |= wait.names
    for write in step.writes:
        if name := buffers[write.buffer].before:
            seen, last = tensor(name + ALL), tensor(name + LAST)
            (stored,) = (n for n, b in names.items() if b == write.buffer)
            told = _Told(stored, seen, buffers[write.buffer].chunk, chunks_of(buffers[name + ALL]))
            if not told.put(held.body):
                raise ScheduleError(f"kernel {held.name}", f"does not store {stored}", "a kernel's")
            held.body.insert(0, ir.Clear(last.all))
    found: Mapping[str, str] = {**made.buffers, **more}
    return replace(made, buffers=found)


def _tensor(buffer: BufferSpec, kernel: ir.Kernel) -> ir.Buffer:
    name = buffer.name
    while name in set(kernel.names()):
        name += "_"
    shape, size = buffer.value_type.shape, buffer.value_type.itemsize
    if len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    lies = in_window(Layout.parse(buffer.layout), size)
    return ThreadBuilder("signals", 1).tensor(name, "i32", shape, layout=lies)


# -- waits -----------------------------------------------------------------------------------------


class _Wait:
    """Waits of a kernel for some tensors.

    Attributes:
        names: the tensors.
        own: the device's numbers.
        least: what they must be.
        chunks, chunk: see `BufferSpec.chunk`; 0 where one number stands for all.
    """

    def __init__(
        self, names: frozenset[str], own: ir.Buffer, least: int, chunks: int, chunk: int
    ) -> None:
        self.names, self.own, self.least = names, own, least
        self.chunks, self.chunk = chunks, chunk

    def put(self, body: ir.Body, in_role: bool = False, elected: bool = False) -> bool:
        """Put waits into a body; whether it reads something that is awaited.

        Roles do different things of a unit of work: only what reads waits, so they ask for each.
        One thread asks and the others wait for it: with 512 rows all threads of a kernel that adds
        parts up, asking for one number, took 8 us (two H200).
        """
        found = False
        for at, s in enumerate(body):
            if not _uses(s, self.names):
                continue
            found = True
            deeper = self.chunks > 1 and isinstance(s, ir.Scope)
            units = _is_of_units(s) and (in_role or self.chunks > 1)
            if isinstance(s, ir.Roles) or units or deeper:
                one = elected or (isinstance(s, ir.Scope) and s.kind == "elect")
                for part in ir.children(s):
                    self.put(part, True, one)
                continue
            waits: ir.Body = [ir.Await(self._flag(n), self.least) for n in self._numbers(s)]
            body[at:at] = waits if elected else [ir.Scope("elect", waits), ir.Sync()]
            return True
        return found

    def _flag(self, chunk: Int) -> ir.View:
        return self.own[ir.span(chunk, 1),]

    def _numbers(self, s: ir.Statement) -> list[Int]:
        """Chunks that a statement reads of; all of them where loops inside it say where."""
        if self.chunks < 2:
            return [0]
        views = [v for v in _views(s) if v.buffer.name in self.names]
        inside = _bound(s)
        found = dict[str, Int]()
        for view in views:
            if any(v.name in inside for b in view.begin for v in variables(b)):
                return list(range(self.chunks))
            for _, chunk, _ in _parts(view, self.chunks, self.chunk):
                found[str(chunk)] = chunk
        return list(found.values())


def _uses(s: ir.Statement, names: frozenset[str]) -> bool:
    return any(v.buffer.name in names for v in _views(s))


def _views(s: ir.Statement) -> list[ir.View]:
    """The operands of a statement, and of all inside it."""
    own = list(s.views()) if isinstance(s, ir.Primitive) else []
    return own + [v for part in ir.children(s) for x in part for v in _views(x)]


def _bound(s: ir.Statement) -> set[str]:
    """Variables that get their values in a statement."""
    own = {s.var.name} if isinstance(s, ir.For | ir.Let | ir.Assign) else set[str]()
    return own.union(*(_bound(x) for part in ir.children(s) for x in part))


def _is_of_units(s: ir.Statement) -> bool:
    """Whether a loop goes over units of work."""
    return isinstance(s, ir.For) and any(v.name == ir.N_CTAS.name for v in variables(s.step))


# -- what is told ----------------------------------------------------------------------------------


class _Told:
    """What a kernel tells other devices of a tensor that it stores in their memory.

    Attributes:
        names: the tensor's.
        seen: the numbers of all devices.
        chunk, chunks: see `BufferSpec.chunk`.
    """

    def __init__(self, name: str, seen: ir.Buffer, chunk: int, chunks: int) -> None:
        self.names, self.seen, self.chunk, self.chunks = frozenset({name}), seen, chunk, chunks

    def put(self, body: ir.Body) -> bool:
        """Put signals behind the stores of every unit of work; whether it stores at all.

        Raises:
            ScheduleError: loops inside a unit say where it stores.
        """
        stores = [s for s in body if _uses(s, self.names)]
        if all(isinstance(s, ir.Roles) or _is_of_units(s) for s in stores):
            return any([self.put(part) for s in stores for part in ir.children(s)])
        body += self._tells(stores)
        return True

    def _tells(self, stores: ir.Body) -> ir.Body:
        """What is told of some statements, once what they store is there."""
        told, inside = dict[str, tuple[Int, Int, Int]](), set[str]().union(*map(_bound, stores))
        every = [p for s in stores for p in _primitives(s) if _uses(p, self.names)]
        for view in (s.views()[0] for s in every):
            if any(v.name in inside for b in view.begin for v in variables(b)):
                raise ScheduleError(f"view {view}", "is stored in a loop of a unit", "unit by unit")
            for device, chunk, count in _parts(view, self.chunks, self.chunk):
                key = f"{device}, {chunk}"
                before = told[key][2] if key in told else 0
                told[key] = device, chunk, before + count
        flags = tuple(self._flag(device, chunk) for device, chunk, _ in told.values())
        tells = ir.Tell(flags, tuple(count for _, _, count in told.values()))
        if all(isinstance(s, ir.CopyAsync) for s in every):  # one thread has issued them
            return [ir.Scope("elect", [ir.WaitGroup("bulk", 0), tells])]
        return [ir.Sync(), ir.Scope("elect", [tells])]

    def _flag(self, device: Int, chunk: Int) -> ir.View:
        return self.seen[device, ir.span(chunk, 1)]


def _primitives(s: ir.Statement) -> list[ir.Primitive]:
    own = [s] if isinstance(s, ir.Primitive) else []
    return own + [p for part in ir.children(s) for x in part for p in _primitives(x)]


def _parts(view: ir.View, chunks: int, chunk: int) -> list[tuple[Int, Int, Int]]:
    """Device, number of the chunk, and elements, of every part of a view that is of one chunk.

    Raises:
        ScheduleError: it begins inside of a part.
    """
    far = WINDOW_BYTES // view.buffer.itemsize
    found: list[tuple[Int, Int, Int]] = [(0, 0, 1)]
    for d, block in enumerate(view.buffer.place.blocks):
        begin, extent, size = view.begin[d], view.extent[d], view.buffer.shape[d]
        step, parts = _step(view, d, chunks, chunk, far), list[tuple[Int, Int, Int]]()
        for on, base, count in found:
            for first in range(0, extent, step):
                device, place, at, rest = on, base, begin + first, begin + first
                for n, i in enumerate(reversed(block), 1):
                    digit, stride = rest, number(i.stride)
                    if n < len(block):
                        digit, rest = rest % number(i.extent), rest // number(i.extent)
                    if stride >= far:
                        device = device + digit * (stride // far)
                    elif chunks > 1 and stride % (chunk * chunks):
                        place = place + digit * stride
                there = step if _is_inside(at, step, size) else _inside(at, step, size)
                parts.append((device, place, count * there))
        found = parts
    return [(device, place // chunk % chunks if chunks > 1 else 0, count)
            for device, place, count in found]  # fmt: skip


def _step(view: ir.View, d: int, chunks: int, chunk: int, far: int) -> int:
    """Indices along a dim of a view's parts that lie on one device, and in one chunk.

    Raises:
        ScheduleError: it begins inside of such a part, or chunks are no whole parts.
    """
    block, step = view.buffer.place.blocks[d], view.extent[d]
    run = 1  # indices that are counted already
    for i in reversed(block):
        stride = number(i.stride)
        if stride >= far:
            step = gcd(step, run)
        elif chunks > 1 and stride % (chunk * chunks) and run * stride * number(i.extent) > chunk:
            step = gcd(step, max(1, run * chunk // stride))
            if chunk % stride and stride % chunk:
                raise ScheduleError(f"view {view}", f"goes over chunks of {chunk}", "parts of them")
        run *= number(i.extent)
    if step < view.extent[d] and divisor(view.begin[d]) % step:
        raise ScheduleError(f"view {view}", f"begins inside of parts of {step}", "a begin of one")
    return step


def _is_inside(at: Int, step: int, size: Int) -> bool:
    """Whether a part is proven to end inside."""
    high = bounds(at)[1]
    return isinstance(size, int) and high is not None and high + step <= size


def _inside(at: Int, step: int, size: Int) -> Int:
    """How many indices of a part are inside: of a tile that hangs over the end some are not."""
    return maximum(0, minimum(step, size - at))

"""The primitive level: every primitive executed from its operands' layouts alone.

Nothing here knows instructions. A tile's elements are found in registers (warp, lane, number) and
memory (byte through layout, offset and swizzle) as the layouts say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np

from axe_eq.kernel import cells
from axe_eq.kernel.expr import Int, evaluate
from axe_eq.kernel.interp import Env, GlobalTensor, Ints, KernelFault
from axe_eq.kernel.placement import Placement, number
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.interp import signals
from axe_eq.kernel.threads.interp.machine import Cta, Execute, Issue, Slot
from axe_eq.kernel.threads.placement import LANES
from axe_eq.program import ops
from axe_eq.program.types import DTYPES

Where3 = tuple[Ints, Ints, Ints]


@lru_cache(maxsize=1024)
def _held(place: Placement, where: ir.Where) -> Where3:
    """(warp, lane, register) of every copy of every element, with the copies as first dim."""
    copies = [{"warp": 0, "lane": 0}]
    for i in place.replica:
        steps = [number(i.stride) * n for n in range(number(i.extent))]
        copies = [{**c, i.axis: c[i.axis] + s} for c in copies for s in steps]
    free = {"warp": range(where.n_warps), "lane": range(LANES)}
    for axis in ("warp", "lane"):
        if axis not in where.axes:
            copies = [{**c, axis: n} for c in copies for n in free[axis]]
    shape = (len(copies),) + (1,) * len(place.blocks)
    offsets = [np.array([c[a] for c in copies]).reshape(shape) for a in ("warp", "lane")]
    whole = (len(copies), *map(number, place.shape))
    warp, lane = (
        np.broadcast_to(place.coordinate(a)[None] + o, whole)
        for a, o in zip(("warp", "lane"), offsets, strict=True)
    )
    return warp, lane, np.broadcast_to(place.coordinate("reg")[None], whole)


def held(view: ir.View, issue: Issue) -> Where3:
    """Where a register view's elements are; warps are those of the CTA."""
    warp, lane, reg = _held(view.place.static(), issue.where)
    return warp + issue.who.first_warp, lane, reg + number(view.place.at("reg"))


def _per_copy(value: Any, warp: Ints, lane: Ints) -> Ints:
    """A value that may depend on the thread, per copy of a tile (its first dim)."""
    array = np.asarray(value)
    if array.ndim == 0:
        return array
    first = (slice(None),) + (0,) * (warp.ndim - 1)
    whole = np.broadcast_to(array, (int(warp.max()) + 1, LANES))
    return whole[warp[first], lane[first]].reshape((-1,) + (1,) * (warp.ndim - 1))


def smem_bytes(view: ir.View, env: Env) -> Any:
    """Byte of every element of a shared-memory view; thread-dependent offsets give arrays."""
    place, size = view.place, view.buffer.itemsize
    _inside(view, env)
    element = place.coordinate("m") + evaluate(place.at("m"), env)
    if place.swizzle is not None:
        element = place.swizzle.apply(np.asarray(element, np.int64))
    return view.buffer.offset + element * size


def _inside(view: ir.View, env: Env) -> None:
    for dim, (begin, extent) in enumerate(zip(view.begin, view.extent, strict=True)):
        at = np.asarray(evaluate(begin, env))
        size = number(view.buffer.shape[dim])
        if at.min() < 0 or at.max() + extent > size:
            raise KernelFault(
                f"view {view}", f"begins at {at.max()} in dim {dim}", f"inside {size}"
            )


def global_elements(view: ir.View, cta: Cta, env: Env, issue: Issue) -> tuple[Ints, Any]:
    """Storage element of every element of a global view, and whether it is inside the tensor."""
    tensor = cta.tensors[view.buffer.name]
    numbers = {**env, **cta.thread_numbers(issue.who)}
    whole = np.zeros((1, *view.shape), np.int64)
    probe = np.indices((len(_copies(issue)), *view.shape), sparse=True)[0] + whole
    index = []
    for d in range(len(view.buffer.shape)):
        begin = np.asarray(evaluate(view.begin[d], numbers))
        if begin.ndim and view.begin[d] is not None:
            warp = np.array([w for w, _ in _copies(issue)])
            lane = np.array([x for _, x in _copies(issue)])
            flat = np.broadcast_to(begin, (issue.who.n_warps, LANES))[warp, lane]
            begin = flat.reshape((-1,) + (1,) * len(view.shape))
        position = view.dims.index(d) if d in view.dims else None
        step = np.arange(view.extent[d])
        shape = [1] * (len(view.shape) + 1)
        if position is not None:
            shape[position + 1] = -1
            step = step.reshape(shape)
        else:
            step = np.zeros(1, np.int64).reshape(shape)
        index.append(begin + step + 0 * probe)
    return tensor.element(index), tensor.inside(index)


def _copies(issue: Issue) -> list[tuple[int, int]]:
    """(warp of the scope, lane) of each independent copy of a primitive."""
    where = issue.where
    if where.scope == "thread":
        return list(product(range(where.n_warps), range(LANES)))
    return [(w, 0) for w in range(where.n_warps)] if where.scope == "warp" else [(0, 0)]


def n_copies(issue: Issue) -> int:
    """How many threads or warps do a primitive for themselves."""
    return len(_copies(issue))


def _spread(values: Any, held_shape: tuple[int, ...], copies: int) -> Any:
    """Values per independent copy, repeated over the replicas of the tile."""
    replicas = held_shape[0] // copies
    values = np.broadcast_to(values, (copies, *held_shape[1:]))
    return np.tile(values, (replicas,) + (1,) * (len(held_shape) - 1))


def copy(cta: Cta, s: ir.Statement, env: Env, issue: Issue) -> None:
    """Registers, shared memory and global tensors, in any pair with registers."""
    assert isinstance(s, ir.Copy)
    if s.src.buffer.is_private and s.dst.buffer.is_private:
        map_cells(cta, ir.Map(cells.IDENTITY, s.dst, (s.src,)), env, issue)
    elif s.dst.buffer.is_private:
        warp, lane, reg = held(s.dst, issue)
        values = _fetch(cta, s, env, issue, warp, lane)
        cta.write_regs(s.dst.buffer, warp, lane, reg, values, issue)
    else:
        _put(cta, s, env, issue)


def _fetch(cta: Cta, s: ir.Copy, env: Env, issue: Issue, warp: Ints, lane: Ints) -> Any:
    view = s.src
    if view.buffer.is_global:
        return global_values(cta, s, env, issue, warp.shape)
    byte = thread_bytes(cta, view, env, issue, warp, lane)
    size = view.buffer.itemsize
    cta.memory.access(byte, size, issue.who, warp, lane, False, issue.what)
    return cta.memory.load(byte, DTYPES[view.buffer.dtype].numpy)[..., 0]


def global_values(cta: Cta, s: ir.Copy, env: Env, issue: Issue, shape: tuple[int, ...]) -> Any:
    """Elements of a global source, its fill outside, for every replica of a register tile."""
    element, inside = global_elements(s.src, cta, env, issue)
    values = cta.tensors[s.src.buffer.name].read(element, inside, s.fill)
    return _spread(values, shape, n_copies(issue))


def fetch(cta: Cta, s: ir.Statement, env: Env, issue: Issue) -> None:
    """What another CTA's shared memory holds."""
    assert isinstance(s, ir.Fetch)
    warp, lane, reg = held(s.dst, issue)
    byte = thread_bytes(cta, s.src, env, issue, warp, lane)
    (there,) = cta.named((s.rank,), env, issue.what)
    there.fetched(byte, s.src.buffer.itemsize, warp, lane, issue, cta)
    values = there.memory.load(byte, DTYPES[s.src.buffer.dtype].numpy)[..., 0]
    cta.write_regs(s.dst.buffer, warp, lane, reg, values, issue)


def gather(cta: Cta, s: ir.Statement, env: Env, issue: Issue) -> None:
    """Elements of an argument, from where registers say."""
    assert isinstance(s, ir.Gather)
    warp, lane, reg = held(s.dst, issue)
    values = gathered_values(cta, s, env, issue)
    cta.write_regs(s.dst.buffer, warp, lane, reg, values, issue)


def gathered_values(cta: Cta, s: ir.Gather, env: Env, issue: Issue) -> Any:
    """Elements of an argument at indices in registers, for every replica of a register tile."""
    warp, lane, _ = held(s.dst, issue)
    n = n_copies(issue)
    element, inside = global_elements(s.src, cta, env, issue)
    for dim, tile in s.indices:
        at = operand_registers(ir.Map(cells.IDENTITY, s.dst, (tile,)), tile, issue)
        index = cta.read_regs(tile.buffer, warp, lane, at, issue)[:n].astype(np.int64)
        check_index(s, dim, index, issue)
        element = element + index * s.step(dim)
    values = cta.tensors[s.src.buffer.name].read(element, inside, s.fill)
    return _spread(values, warp.shape, n)


def check_index(s: ir.Gather, dim: int, index: Ints, issue: Issue) -> None:
    """Refuse what is no index of a dim of a gather's source."""
    extent = number(s.src.buffer.shape[dim])
    if ((index < 0) | (index >= extent)).any():
        ends = f"{index.min()} to {index.max()}"
        raise KernelFault(issue.what, f"reads indices from {ends}", f"0 to {extent - 1}")


def thread_bytes(cta: Cta, view: ir.View, env: Env, issue: Issue, warp: Ints, lane: Ints) -> Ints:
    """The byte of shared memory that each thread of a register tile reads or writes."""
    numbers = {**env, **cta.thread_numbers(issue.who)}
    place = view.place
    offset = _per_copy(evaluate(place.at("m"), numbers), warp - issue.who.first_warp, lane)
    element = place.coordinate("m")[None] + offset
    if place.swizzle is not None:
        element = place.swizzle.apply(np.asarray(element, np.int64))
    return np.broadcast_to(view.buffer.offset + element * view.buffer.itemsize, warp.shape)


def _put(cta: Cta, s: ir.Copy, env: Env, issue: Issue) -> None:
    warp, lane, reg = held(s.src, issue)
    values = cta.read_regs(s.src.buffer, warp, lane, reg, issue)
    n = n_copies(issue)
    stride = warp.shape[0] // n
    same = values.reshape(stride, n, *values.shape[1:]) if n == 1 else values[:n][None]
    first = same[0]
    if n == 1 and stride > 1 and not _equal(values, first):
        raise KernelFault(issue.what, f"copies of {s.src} differ between threads", "equal replicas")
    view = s.dst
    if view.buffer.is_global:
        element, inside = global_elements(view, cta, env, issue)
        tensor = cta.tensors[view.buffer.name]
        if isinstance(s, ir.Merge):
            tensor.merge(element, first, inside, s.monoid)
        else:
            tensor.write(element, first, inside)
        return
    byte = thread_bytes(cta, view, env, issue, warp, lane)[:n]
    size = view.buffer.itemsize
    cta.memory.access(byte, size, issue.who, warp[:n], lane[:n], True, issue.what)
    cta.memory.store(byte, first[..., None])


def _equal(a: Any, b: Any) -> bool:
    return bool(((a == b) | ((a != a) & (b != b))).all())


@lru_cache(maxsize=512)
def _operand_registers(out: Placement, operand: Placement, where: ir.Where) -> Any:
    """Register of the operand in the thread of every element of `out`; -1 where none."""
    warp, lane, _ = _held(out, where)
    shape = (1,) * (len(out.blocks) - len(operand.blocks)) + tuple(map(number, operand.shape))
    w, x, r = (a.reshape(len(a), *shape) for a in _held(operand, where))
    table = np.full((where.n_warps * LANES, *shape), -1)
    flat = np.indices(shape, sparse=True)
    table[(w * LANES + x, *(i[None] for i in flat))] = r
    index = np.indices(tuple(map(number, out.shape)), sparse=True)
    kept = [np.zeros_like(i) if e == 1 else i for i, e in zip(index, shape, strict=True)]
    return table[(warp * LANES + lane, *(i[None] for i in kept))]


def operand_registers(s: ir.Map, view: ir.View, issue: Issue) -> Ints:
    """The register that holds a map's operand, in the thread of every element of its result."""
    numbers = _operand_registers(s.out.place.static(), view.place.static(), issue.where)
    if (numbers < 0).any():
        raise KernelFault(issue.what, f"{view} is not in the registers of every thread", "it")
    return np.asarray(numbers + number(view.place.at("reg")))


def _name(dtype: Any) -> str:
    return next(n for n, d in DTYPES.items() if d.numpy == dtype)


def map_cells(cta: Cta, s: ir.Statement, env: Env, issue: Issue) -> None:
    """Every thread applies the cell to its own registers."""
    assert isinstance(s, ir.Map)
    warp, lane, reg = held(s.out, issue)
    values = []
    for view in s.ins:
        at = operand_registers(s, view, issue)
        values.append(accumulate_type(cta.read_regs(view.buffer, warp, lane, at, issue)))
    result = cells.evaluate(s.cell, values)
    cta.write_regs(s.out.buffer, warp, lane, reg, np.broadcast_to(result, warp.shape), issue)


def accumulate_type(values: Any) -> Any:
    """Values in the dtype that cells compute in."""
    dtype = DTYPES[_name(values.dtype)]
    return values.astype(DTYPES[dtype.accumulate].numpy)


def fill(cta: Cta, s: ir.Statement, env: Env, issue: Issue) -> None:
    """Set every element."""
    assert isinstance(s, ir.Fill)
    warp, lane, reg = held(s.out, issue)
    cta.write_regs(s.out.buffer, warp, lane, reg, np.full(warp.shape, s.value), issue)


def index(cta: Cta, s: ir.Statement, env: Env, issue: Issue) -> None:
    """Set every element to its position."""
    assert isinstance(s, ir.Index)
    warp, lane, reg = held(s.out, issue)
    values = np.broadcast_to(positions(cta, s, env, issue), warp.shape)
    cta.write_regs(s.out.buffer, warp, lane, reg, values, issue)


def positions(cta: Cta, s: ir.Index, env: Env, issue: Issue) -> Ints:
    """The position of every element along the counted dim."""
    warp, lane, _ = held(s.out, issue)
    begin = evaluate(s.begin, {**env, **cta.thread_numbers(issue.who)})
    start = _per_copy(begin, warp - issue.who.first_warp, lane)
    return np.asarray(start + np.indices(s.out.shape, sparse=True)[s.dim][None])


def reduce(cta: Cta, s: ir.Statement, env: Env, issue: Issue) -> None:
    """Reduce the logical tile; every replica of the result holds it."""
    assert isinstance(s, ir.Reduce)
    warp, lane, reg = held(s.src, issue)
    values = accumulate_type(cta.read_regs(s.src.buffer, warp, lane, reg, issue))
    to_warp, to_lane, to_reg = held(s.out, issue)
    values = reduced(s, values, issue, to_warp.shape)
    cta.write_regs(s.out.buffer, to_warp, to_lane, to_reg, values, issue)


def reduced(s: ir.Reduce, values: Any, issue: Issue, shape: tuple[int, ...]) -> Any:
    """Values of a tile (copies first) over the reduced dims, for every replica of the result."""
    copies, monoid = n_copies(issue), ops.MONOIDS[s.monoid]
    dims = tuple(d + 1 for d in s.dims)
    return _spread(monoid.finish(monoid.lift((values[:copies],), dims)), shape, copies)


def scan(cta: Cta, s: ir.Statement, env: Env, issue: Issue) -> None:
    """Scan the logical tiles in order; every replica of a carry holds what stands before next."""
    assert isinstance(s, ir.Scan)
    states, carries = (
        [accumulate_type(cta.read_regs(v.buffer, *held(v, issue), issue)) for v in views]
        for views in (s.states, s.carries)
    )
    found = scanned(s, states, carries, issue)
    for view, values in zip((*s.states, *s.carries), found, strict=True):
        cta.write_regs(view.buffer, *held(view, issue), values, issue)


def scanned(s: ir.Scan, states: Sequence[Any], carries: Sequence[Any], issue: Issue) -> list[Any]:
    """States of tiles (copies first) after those of the carries, then the new carries."""
    copies, axis = n_copies(issue), s.dim + 1
    before = [np.take(c[:copies], 0, axis) for c in carries]
    columns = [np.moveaxis(v[:copies], axis, 0) for v in states]
    steps = []
    for n in range(len(columns[0])):
        both = [*before, *(c[n] for c in columns)]
        before = [np.asarray(cells.evaluate(c, both)).astype(b.dtype) for c, b in
                  zip(s.merge, before, strict=True)]  # fmt: skip
        steps.append(before)
    parts = [np.stack(part, axis) for part in zip(*steps, strict=True)]
    ends = [np.expand_dims(b, axis) for b in before]
    held_ = [*states, *carries]
    return [_spread(p, h.shape, copies) for p, h in zip([*parts, *ends], held_, strict=True)]


def gemm(cta: Cta, s: ir.Statement, env: Env, issue: Issue) -> None:
    """Multiply shared-memory or register tiles into an accumulator."""
    assert isinstance(s, ir.Gemm)
    tiles = [_operand(cta, v, env, issue) for v in (s.a, s.b)]
    start_product(cta, s, tiles[0], tiles[1], env, issue)


def _operand(cta: Cta, view: ir.View, env: Env, issue: Issue) -> Callable[[], Any]:
    """A function that reads a matrix operand when the product happens."""
    if view.buffer.is_private:
        warp, lane, reg = (x[0] for x in held(view, issue))
        return product_registers(cta, view.buffer, (warp, lane, reg), issue)
    byte = smem_bytes(view, env)
    note_product_read(cta, byte, view.buffer.itemsize, issue)
    return lambda: cta.memory.load(byte, DTYPES[view.buffer.dtype].numpy)[..., 0]


def product_registers(
    cta: Cta, buffer: ir.Buffer, where: Where3, issue: Issue
) -> Callable[[], Any]:
    """Registers that a product reads: now, or when an asynchronous one runs."""
    values, defined = cta.regs(buffer)
    if not defined[where].all():
        raise KernelFault(issue.what, f"reads registers of {buffer} that were never written")
    primitive = issue.primitive
    if isinstance(primitive, ir.Gemm) and primitive.asynchronous:
        number_ = cta.queue("wgmma", issue.who.group).committed + 1
        cta.lent[buffer, issue.who.group] = number_
    else:
        cta.touch(buffer, issue, "reads")
    return lambda: values[where]


def note_product_read(cta: Cta, byte: Ints, size: int, issue: Issue) -> None:
    """Check and remember that a product of this group reads shared memory."""
    k = cta.memory.chunks(byte, size, issue.what).ravel()
    classes = cta.clocks.classes(issue.who)
    cta.memory.check_read_by_all(k, classes, issue.what)
    primitive = issue.primitive
    if isinstance(primitive, ir.Gemm) and primitive.asynchronous:
        cta.memory.check_proxy(k, classes, "reads", issue.what)
        number_ = cta.queue("wgmma", issue.who.group).committed + 1
        cta.memory.note_read(k, cta.clocks.products(issue.who.group), number_, -1)


def start_product(
    cta: Cta, s: ir.Gemm, a: Callable[[], Any], b: Callable[[], Any], env: Env, issue: Issue
) -> None:
    """Do acc (+)= a b^T now, or when the group's turn comes."""
    warp, lane, reg = (x[0] for x in held(s.acc, issue))
    keep = bool(evaluate(s.accumulate, env))
    if keep and not cta.regs(s.acc.buffer)[1][warp, lane, reg].all():
        raise KernelFault(issue.what, f"accumulates into {s.acc}, which was never written")
    cta.regs(s.acc.buffer)[1][warp, lane, reg] = True

    def effect() -> None:
        values = cta.regs(s.acc.buffer)[0]
        # Not BLAS: its threads cost more than tiles of this size take.
        x = np.einsum("mk,nk->mn", a().astype(values.dtype), b().astype(values.dtype))
        values[warp, lane, reg] = values[warp, lane, reg] + x if keep else x
        cta.watch(s.acc.buffer.name, warp, lane, reg, values[warp, lane, reg])

    if not s.asynchronous:
        cta.touch(s.acc.buffer, issue, "changes")
        effect()
        return
    queue = cta.queue("wgmma", issue.who.group)
    queue.effects[-1].append(effect)
    commit_product(cta, s, issue)


def commit_product(cta: Cta, s: ir.Gemm, issue: Issue) -> None:
    """Close the group of a product."""
    queue = cta.queue("wgmma", issue.who.group)
    queue.committed += 1
    queue.effects.append([])
    number_ = queue.committed
    cta.busy[s.acc.buffer, issue.who.group] = number_
    cta.defer(lambda: queue.run(number_))


def copy_async(cta: Cta, s: ir.Statement, env: Env, issue: Issue) -> None:
    """Bulk copies by one thread, or ordinary ones by all."""
    assert isinstance(s, ir.CopyAsync)
    load = s.src.buffer.is_global
    if not issue.who.elected:
        if s.barrier is not None or not load:
            raise KernelFault(issue.what, "a bulk copy is issued by every thread", "one thread")
        _ordinary_load(cta, s, env, issue)
        return
    tensor, tile = (s.src, s.dst) if load else (s.dst, s.src)
    byte = smem_bytes(tile, env)
    element, inside = global_elements(tensor, cta, env, issue)
    if load:
        assert s.barrier is not None
        slots = receivers(cta, s.barrier, s.slot, s.ranks, env, issue)
        bulk_load(cta, s, slots, byte, element[0], inside[0], issue)
    else:
        bulk_store(cta, s, byte, element[0], inside[0], issue)


def _ordinary_load(cta: Cta, s: ir.CopyAsync, env: Env, issue: Issue) -> None:
    """Start a load whose elements any thread may write: nobody has them before a barrier."""
    byte, size = smem_bytes(s.dst, env), s.dst.buffer.itemsize
    element, inside = (x[0] for x in global_elements(s.src, cta, env, issue))
    k = cta.memory.chunks(byte, size, issue.what).ravel()
    cta.memory.check_write_by_all(k, cta.clocks.classes(issue.who), issue.what)
    queue = cta.queue("cp_async", issue.who.group)
    actor = cta.clocks.async_copies(issue.who.first_warp)
    cta.memory.note_write(k, actor, queue.committed + 1, -2)
    tensor, done = cta.tensors[s.src.buffer.name], [False]
    tensor.use(element, inside, issue)

    def effect() -> None:
        if not done[0]:
            done[0] = True
            cta.memory.store(byte, tensor.read(element, inside)[..., None])

    queue.effects[-1].append(effect)
    cta.defer(effect)


def bulk_load(
    cta: Cta,
    s: ir.CopyAsync,
    slots: Sequence[tuple[Cta, Slot]],
    byte: Ints,
    element: Ints,
    inside: Any,
    issue: Issue,
) -> None:
    """Start a load into the same bytes of CTAs' shared memory; it completes on a slot of each."""
    cta.tensors[s.src.buffer.name].use(element, inside, issue, bulk=True)
    for to, slot in slots:
        _check_load(cta, to, slot, byte, s.dst.buffer.itemsize, issue)
        slot.loaded = slot.phase + 1
        cta.defer(partial(_load, cta.tensors[s.src.buffer.name], to, slot, byte, element, inside))


def receivers(
    cta: Cta, barrier: ir.MBarrier, slot: Int, ranks: Sequence[Int], env: Env, issue: Issue
) -> list[tuple[Cta, Slot]]:
    """The CTAs that a load goes to, each with the slot that it completes on there."""
    return [(to, to.slot(barrier, slot, env)) for to in cta.named(ranks, env, issue.what)]


def _check_load(cta: Cta, to: Cta, slot: Slot, byte: Ints, size: int, issue: Issue) -> None:
    """A thread of `cta` may overwrite bytes of `to` by a bulk copy."""
    memory, elected = to.memory, cta.clocks.elected(issue.who.group)
    k = memory.chunks(byte, size, issue.what).ravel()
    if to is cta:
        memory.check_write(k, np.full(k.shape, elected), np.zeros(k.shape, int), issue.what)
        memory.check_proxy(k, [elected], "overwrites", issue.what)
    else:
        seen, shown = to.told(cta, elected)
        memory.check_write_from_outside(k, seen, shown, issue.what)
        # Its bytes come after the phases that the sender has seen; they tell nothing else.
        phases = np.where(to.clocks.is_slot, seen, 0)
        np.maximum(slot.gathered_seen, phases, out=slot.gathered_seen)
    memory.note_write(k, slot.actor, slot.phase + 1, -1)


def _load(
    tensor: GlobalTensor, to: Cta, slot: Slot, byte: Ints, element: Ints, inside: Any
) -> None:
    values = tensor.read(element, inside)[..., None]
    to.memory.store(byte, values)
    slot.n_bytes -= values.nbytes
    to.complete(slot)


def bulk_store(
    cta: Cta, s: ir.CopyAsync, byte: Ints, element: Ints, inside: Any, issue: Issue
) -> None:
    """Start a store from shared memory that completes with the next committed group."""
    group = issue.who.group
    queue, elected = cta.queue("bulk", group), cta.clocks.elected(group)
    k = cta.memory.chunks(byte, s.src.buffer.itemsize, issue.what).ravel()
    cta.memory.check_read(k, np.full(k.shape, elected), np.zeros(k.shape, int), issue.what)
    cta.memory.check_proxy(k, [elected], "reads", issue.what)
    cta.memory.note_read(k, cta.clocks.stores(group), queue.committed + 1, -1)
    tensor = cta.tensors[s.dst.buffer.name]
    monoid = s.monoid if isinstance(s, ir.MergeAsync) else ""
    tensor.use(element, inside, issue, write=True, bulk=True, monoid=monoid)
    done, entry = [False], cta.log([cta.clocks.stores(group)], [queue.committed + 1])

    def effect() -> None:
        if not done[0]:
            done[0] = True
            tensor.entry = entry
            values = cta.memory.load(byte, DTYPES[s.src.buffer.dtype].numpy)[..., 0]
            if monoid:
                tensor.merge(element, values, inside, monoid)
            else:
                tensor.write(element, values, inside)
            tensor.entry = None

    queue.effects[-1].append(effect)
    cta.defer(effect)


_EXECUTE: dict[type[ir.Primitive], Execute] = {
    ir.Copy: copy,
    ir.Merge: copy,
    ir.CopyAsync: copy_async,
    ir.MergeAsync: copy_async,
    ir.Fetch: fetch,
    ir.Gather: gather,
    ir.Gemm: gemm,
    ir.Map: map_cells,
    ir.Reduce: reduce,
    ir.Scan: scan,
    ir.Fill: fill,
    ir.Index: index,
    ir.Signal: signals.do_signal,
    ir.Clear: signals.do_clear,
    ir.Tell: signals.do_tell,
    ir.Await: signals.do_wait,
}


def execute(cta: Cta, s: ir.Primitive, env: Env, issue: Issue) -> None:
    """Do what a primitive says, for the threads that issue it."""
    _EXECUTE[type(s)](cta, s, env, issue)

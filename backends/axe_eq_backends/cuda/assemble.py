"""From schedule graphs to machine code; needs no device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from axe_eq.errors import DispatchError
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.lower.own import Lowered
from axe_eq.lower.read import element_strides
from axe_eq.run.cache import Cache, key
from axe_eq.run.fingerprint import lowering_key, sources
from axe_eq.schedule.digits import digits
from axe_eq.schedule.graph import ScheduleGraph
from axe_eq.schedule.memory import buffer_bytes, buffer_elements, plan
from axe_eq.schedule.shard import DEVICE_AXIS
from axe_eq.target import Target
from axe_eq_backends.cuda import code, compile
from axe_eq_backends.cuda.code import Code, Launch, Port
from axe_eq_backends.cuda.image import build_all
from axe_eq_backends.cuda.make import make_all

GRAPHS = Cache("graphs")


def assembled(graph: ScheduleGraph, target: Target) -> bytes:
    """The machine code of a graph, `Code` as bytes; from the disk cache where it is there.

    Raises:
        DispatchError, EmitError, ScheduleError: the target cannot run the graph.
        DeviceError: NVRTC is missing.
        SearchError: AXE_CACHE_DIR names a folder that cannot be written.
    """
    of_packs = lowering_key(graph, target)
    if of_packs is None:
        return assemble(graph, target).to_bytes()
    name = key(
        code.FORMAT, sources("axe_eq", "axe_eq_backends"), compile.version(), graph.to_json(),
        json.dumps(asdict(target), default=repr), of_packs,
    )  # fmt: skip
    return GRAPHS.get(name, lambda: assemble(graph, target).to_bytes(), _checked)


def _checked(data: bytes) -> bytes:
    Code.from_bytes(data)
    return data


def assemble(graph: ScheduleGraph, target: Target) -> Code:
    """Lower, compile and place a graph.

    Raises:
        DispatchError, EmitError, ScheduleError: the target cannot run the graph.
        DeviceError: NVRTC is missing.
    """
    memory = plan(graph)
    made = list(make_all(graph, target).values())
    lowered, planned = [m.lowered for m in made], [m.planned for m in made]
    images = build_all(planned, [m.source for m in made])
    launches = tuple(
        Launch(
            image,
            dict(k.params),
            {tensor: memory.offsets.get(b, b) for tensor, b in k.buffers.items()},
        )
        for image, k in zip(images, lowered, strict=True)
    )
    for launch in launches:
        launch.image.check(launch.params)
    roles = {n: graph.buffers[n].role for n in graph.inputs}
    align = _alignments(lowered, planned)
    names = dict.fromkeys([*graph.inputs, *graph.outputs])
    return Code(
        target=target.name,
        ports={n: _port(graph, n, align.get(n, 1)) for n in names},
        inputs=tuple(n for n, role in roles.items() if role != "constant"),
        constants=tuple(n for n, role in roles.items() if role == "constant"),
        outputs=graph.outputs,
        arena_bytes=memory.arena_bytes,
        launches=launches,
    )


def _alignments(lowered: Sequence[Lowered], planned: Sequence[Planned]) -> dict[str, int]:
    """Bytes that the address of every buffer is a multiple of, as the kernels need it."""
    found: dict[str, int] = {}
    for k, p in zip(lowered, planned, strict=True):
        for tensor in p.kernel.tensors:
            buffer = k.buffers[tensor.name]
            wanted = p.align.get(tensor.name, tensor.itemsize)
            found[buffer] = max(found.get(buffer, 1), wanted)
    return found


def _port(graph: ScheduleGraph, name: str, align: int) -> Port:
    spec = graph.buffers[name]
    shape = spec.value_type.shape
    views = dict(zip(graph.outputs, graph.views, strict=False))
    if shape and views.get(name):  # who sees it through views has its digits as dims
        shape = digits(spec).shape
    dtype, n_bytes = spec.value_type.dtype, buffer_bytes(spec)
    try:
        strides = element_strides(f"buffer {name}", spec.layout, shape, spec.value_type.itemsize)
    except DispatchError:
        if set(Layout.parse(spec.layout).axes) - {DEFAULT_AXIS, DEVICE_AXIS}:
            raise
        memory = (buffer_elements(spec.layout),)
        return Port(name, dtype, memory, (1,), n_bytes, align, spec.layout, shape)
    return Port(name, dtype, shape, natural(shape, strides), n_bytes, align)


def natural(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides as array libraries give them: a dim of extent 1 goes on from the dim after it."""
    found: list[int] = []
    size = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        found.insert(0, size if extent == 1 else stride)
        size = found[0] * extent
    return tuple(found)

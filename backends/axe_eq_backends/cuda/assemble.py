"""From schedule graphs to text and to machine code; needs no device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from axe_eq.errors import ScheduleError
from axe_eq.kernel.dispatch import Planned
from axe_eq.run.cache import Cache, key
from axe_eq.run.fingerprint import lowering_key, sources
from axe_eq.schedule.graph import CollectiveStep, ScheduleGraph
from axe_eq.schedule.memory import buffer_bytes, plan
from axe_eq.target import Target
from axe_eq_backends.cuda import code, compile
from axe_eq_backends.cuda.code import Code, Launch, Port
from axe_eq_backends.cuda.cones import element_strides
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.image import build_all
from axe_eq_backends.cuda.lower import Lowered, lower
from axe_eq_backends.cuda.planning import plan as plan_kernel

GRAPHS = Cache("graphs")


def texts(graph: ScheduleGraph, target: Target) -> dict[str, str]:
    """Kernel name -> CUDA C++ text that compiles alone.

    Raises:
        DispatchError: a kernel that no schedule or instruction of the target covers.
    """
    return {
        name: emit(plan_kernel(lowered.kernel, target)).text
        for name, lowered in lower_graph(graph, target).items()
    }


def lower_graph(graph: ScheduleGraph, target: Target) -> dict[str, Lowered]:
    """Step name -> its kernel.

    Raises:
        DispatchError, ScheduleError: a step that cannot run on one device.
    """
    found = {}
    for step in graph.steps:
        if isinstance(step, CollectiveStep):
            raise ScheduleError(f"step {step.name}", "is a collective", "a graph for one device")
        found[step.name] = lower(step, graph, target)
    return found


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
    lowered = list(lower_graph(graph, target).values())
    planned = [plan_kernel(k.kernel, target) for k in lowered]
    images = build_all(planned)
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
    type_ = spec.value_type
    strides = element_strides(f"buffer {name}", spec.layout, type_.shape)
    return Port(
        name, type_.dtype, type_.shape, natural(type_.shape, strides), buffer_bytes(spec), align
    )


def natural(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides as array libraries give them: a dim of extent 1 goes on from the dim after it."""
    found: list[int] = []
    size = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        found.insert(0, size if extent == 1 else stride)
        size = found[0] * extent
    return tuple(found)

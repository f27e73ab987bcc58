"""From schedule graphs to text and to machine code; needs no device."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from axe_eq.errors import DispatchError, EmitError, ScheduleError
from axe_eq.extract.search.commit import content
from axe_eq.kernel.cells import flops
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.lower.own import Lowered, own_lowering
from axe_eq.lower.read import element_strides
from axe_eq.run.cache import Cache, key
from axe_eq.run.fingerprint import lowering_key, sources
from axe_eq.schedule.digits import digits
from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph, SpmdStep
from axe_eq.schedule.memory import buffer_bytes, buffer_elements, plan
from axe_eq.target import Target
from axe_eq_backends.cuda import code, compile, sizes
from axe_eq_backends.cuda.code import Code, Launch, Port
from axe_eq_backends.cuda.emit import Source, emit
from axe_eq_backends.cuda.image import build_all
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.planning import plan as plan_kernel
from axe_eq_backends.cuda.sizes import MOST_INSTRUCTIONS, MOST_TEXT

GRAPHS = Cache("graphs")
MOST_MADE = 64


@dataclass(frozen=True)
class Made:
    """One step of a schedule graph, all the way to its text.

    Attributes:
        lowered: its kernel, with the buffers behind its tensors.
        planned: with a plan for every primitive.
        source: CUDA C++.
    """

    lowered: Lowered
    planned: Planned
    source: Source


_made: OrderedDict[object, tuple[object, Made]] = OrderedDict()  # with what the key names by id


def make(step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target) -> Made:
    """Lower, plan and write a step; the latest ones are remembered.

    A search builds what it takes, and saving or reading the text of what it took asks again.

    Raises:
        DispatchError, ScheduleError: no schedule or instruction of the target covers it.
        EmitError: it has no text, or is larger than what is compiled in seconds.
    """
    if own_lowering(step) is not None:
        return _made_now(step, graph, target)  # by somebody's own code, another the next time
    names = tuple(a.buffer for a in (*step.reads, *step.writes))
    roles = tuple(graph.buffers[a.buffer].role for a in step.writes)
    key = step.name, names, roles, content(step, graph), id(target)
    known = _made.pop(key, None)
    if known is None:
        known = target, _made_now(step, graph, target)
    _made[key] = known
    while len(_made) > MOST_MADE:
        _made.popitem(last=False)
    return known[1]


def _made_now(step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target) -> Made:
    lowered = lower(step, graph, target)
    planned = plan_kernel(lowered.kernel, target)
    # Before its text is written: a search that meets such kernels meets dozens of them.
    size = instructions(planned)
    check_size(step.name, size, "instructions for cells a thread", MOST_INSTRUCTIONS)
    source = emit(planned)
    check_size(source.name, len(source.text), "letters of text", MOST_TEXT)
    return Made(lowered, planned, source)


def check_size(name: str, n: int, what: str, most: int) -> None:
    """Refuse a kernel that NVRTC would compile for a minute.

    Raises:
        EmitError: gives its size and the limit.
    """
    if n > most:
        raise EmitError(f"kernel {name}", f"is about {n} {what}", f"at most {most}")


def instructions(planned: Planned) -> int:
    """About how many instructions the cells of a kernel are in one thread, unrolled as they are."""
    total = 0.0
    for choice in planned.choices.values():
        for call in choice.plan.calls:
            if "cell" in call.args:
                total += len(call["out"].index) * flops(call["cell"])
    return int(sizes.instructions(total))


def texts(graph: ScheduleGraph, target: Target) -> dict[str, str]:
    """Kernel name -> CUDA C++ text that compiles alone.

    Raises:
        DispatchError: a kernel that no schedule or instruction of the target covers.
    """
    return {name: made.source.text for name, made in make_all(graph, target).items()}


def make_all(graph: ScheduleGraph, target: Target) -> dict[str, Made]:
    """Step name -> its kernel.

    Raises:
        DispatchError, EmitError, ScheduleError: a step that cannot run on one device.
    """
    found = {}
    for step in graph.steps:
        if isinstance(step, SpmdStep):
            raise ScheduleError(
                f"step {step.name}", "is for the devices of a mesh", "a graph for one device"
            )
        found[step.name] = make(step, graph, target)
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
        strides = element_strides(f"buffer {name}", spec.layout, shape)
    except DispatchError:
        if set(Layout.parse(spec.layout).axes) - {DEFAULT_AXIS}:
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

"""Programs measured on a device: rounds of one CUDA graph of calls on memory that rotates.

The calls of a graph read arrays that lie apart, together more than the L2 cache holds, so that
every one finds its operands in main memory. A round is as long as the clock of events is exact for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from axe_eq.program.types import ValueType
from axe_eq.run.timing import DRAWN, drawn, rounds
from axe_eq_backends.cuda.arrays import flat, row_major
from axe_eq_backends.cuda.code import Port
from axe_eq_backends.cuda.driver import (
    Memory,
    attribute,
    call,
    copy_within,
    default_device,
    driver,
    on,
    upload,
)  # fmt: skip
from axe_eq_backends.cuda.run import Program

ROUND_S = 1e-3  # of one round at least: events are exact to half a microsecond
MOST_CALLS = 512  # of one graph
OVER_L2 = 2.0  # bytes of rotating memory, in sizes of the L2 cache
MOST_PART = 0.5  # of the memory that is free


Sets = list[list[Memory]]


def timed(
    program: Program, budget_s: float, sets: Sets | None = None, round_s: float = ROUND_S
) -> list[float]:
    """Seconds of one call, of every round.

    Args:
        program: what is measured.
        budget_s: seconds that the rounds may take together.
        sets: arrays that calls take in turns (`rotating`), of a program with the same ports.
        round_s: seconds of a round at least.

    Raises:
        DeviceError: no device, or the arrays do not fit into its memory.
    """
    device = default_device()
    there = program.on(device)
    with on(device), _stream() as stream:
        sets = sets or rotating(program)
        pointers = [tuple(m.pointer for m in memory) for memory in sets]
        there.run(pointers[0], stream)
        once = _seconds(stream, lambda: there.run(pointers[0], stream))
        n_calls = min(MOST_CALLS, max(len(sets), math.ceil(round_s / max(once, 1e-6))))
        with _graph(stream, lambda n: there.run(pointers[n % len(sets)], stream), n_calls) as graph:

            def replay() -> None:
                call((*driver().cuGraphLaunch(graph, stream), None), "launch of a graph")

            _seconds(stream, replay)
            return [s / n_calls for s in rounds(lambda: _seconds(stream, replay), budget_s)]


def rotating(program: Program) -> Sets:
    """Arrays for several calls, one memory per port of each.

    Raises:
        DeviceError: no device, or the arrays do not fit into its memory.
    """
    device = default_device()
    with on(device):
        return _sets(program, device)


def _sets(program: Program, device: int) -> Sets:
    ports = tuple(program.code.ports.values())
    n_bytes = sum(port.n_bytes for port in ports)
    free, _ = call(driver().cuMemGetInfo(), "free memory")
    wanted = math.ceil(OVER_L2 * attribute(device, "L2_CACHE_SIZE") / max(n_bytes, 1)) + 1
    number = max(1, min(wanted, int(MOST_PART * free / max(n_bytes, 1)), MOST_CALLS))
    rng, found = np.random.default_rng(0), list[list[Memory]]()
    for _ in range(number):
        found.append([Memory(port.n_bytes) for port in ports])
    for n, port in enumerate(ports):
        first, *others = (memory[n].pointer for memory in found)
        _fill(first, port, rng)
        for pointer in others:
            copy_within(pointer, first, port.n_bytes, 0, f"argument {port.name!r}")
    # Measured calls run on a stream that does not wait for this one.
    call((*driver().cuStreamSynchronize(0), None), "arguments")
    return found


def _fill(pointer: int, port: Port, rng: np.random.Generator) -> None:
    """Random elements. What repeats in a dense array is copied on the device."""
    what, size = f"argument {port.name!r}", math.prod(port.shape)
    if port.lies or port.strides != row_major(port.shape) or size <= DRAWN:
        upload(pointer, flat(port, drawn(ValueType(port.dtype, port.shape), rng)), what)
        return
    few = drawn(ValueType(port.dtype, (DRAWN,)), rng)
    upload(pointer, few, what)
    there = few.nbytes
    while there < port.n_bytes:
        more = min(there, port.n_bytes - there)
        copy_within(pointer + there, pointer, more, 0, what)
        there += more


@contextmanager
def _stream() -> Iterator[int]:
    cu = driver()
    flags = cu.CUstream_flags.CU_STREAM_NON_BLOCKING
    stream = call(cu.cuStreamCreate(flags), "a stream")
    try:
        yield int(stream)
    finally:
        cu.cuStreamDestroy(stream)


@contextmanager
def _graph(stream: int, run: Callable[[int], None], n_calls: int) -> Iterator[Any]:
    """Calls of `run`, each told its number, as one CUDA graph."""
    cu = driver()
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    call((*cu.cuStreamBeginCapture(stream, mode), None), "a capture")
    try:
        for number in range(n_calls):
            run(number)
    finally:
        captured = call(cu.cuStreamEndCapture(stream), "a capture")
    executable = call(cu.cuGraphInstantiate(captured, 0), "a graph")
    try:
        yield executable
    finally:
        cu.cuGraphExecDestroy(executable)
        cu.cuGraphDestroy(captured)


def _seconds(stream: int, launch: Callable[[], None]) -> float:
    """Seconds between two events around a launch."""
    cu = driver()
    events = [call(cu.cuEventCreate(0), "an event") for _ in range(2)]
    try:
        call((*cu.cuEventRecord(events[0], stream), None), "an event")
        launch()
        call((*cu.cuEventRecord(events[1], stream), None), "an event")
        call((*cu.cuEventSynchronize(events[1]), None), "a measured call")
        return float(call(cu.cuEventElapsedTime(*events), "an event")) / 1e3
    finally:
        for event in events:
            cu.cuEventDestroy(event)

"""A kernel at three levels: its primitives, its plans, its text in the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from axe_eq.kernel import ir
from axe_eq.kernel.expr import evaluate
from axe_eq.program.types import DTYPES, ValueType
from axe_eq.target import Target
from axe_eq_backends.nki.emit import Port, Source, emit
from axe_eq_backends.nki.families import meanings
from axe_eq_backends.nki.interpret import interpret
from axe_eq_backends.nki.lower import Stage
from axe_eq_backends.nki.lower import written as lowered
from axe_eq_backends.nki.planning import Made, plan
from axe_eq_backends.nki.sim import simulate
from axe_eq_backends.nki.target import trn2

Arrays = Mapping[str, Any]


def _alone(schedule: str, problem: Any, name: str, target: Target,
           parameters: Mapping[str, int]) -> tuple[ir.Kernel, dict[str, str]]:  # fmt: skip
    return lowered([Stage(schedule, problem, parameters)], name, target)


# A problem alone in a kernel, and the buffers behind its tensors.
gemm = partial(_alone, "tensor_engine")
stream = partial(_alone, "stream")
walk = partial(_alone, "tiles")


def numpy_of(dtype: str) -> Any:
    """The numpy type of an element type."""
    return DTYPES[dtype].numpy


def places(t: ir.Buffer) -> Any:
    """The element of its buffer that every index of a tensor is."""
    at = t.place.coordinate("m") + int(evaluate(t.place.at("m"), {}))
    return np.broadcast_to(at, tuple(map(int, t.shape)))  # type: ignore[arg-type]


def written(made: Made, buffers: Mapping[str, str], arrays: Arrays, dialect: str = "0.3") -> Source:
    """The text of a planned kernel; `arrays` has the shape of every buffer."""
    kinds = {t: made.planned.kernel.tensor(t).dtype for t in buffers}
    shapes = {b: arrays[b].shape for b in buffers.values()}
    ports = {
        b: Port(b, shapes[b], kinds[t], str(ValueType(kinds[t], shapes[b])))
        for t, b in buffers.items()
    }
    return emit(made, buffers, ports, dialect)


def run(
    kernel: ir.Kernel, buffers: Mapping[str, str], arrays: Arrays, target: Target = trn2
) -> dict[str, tuple[Any, Any, Any]]:
    """Per result what primitives, plans and the text compute.

    Args:
        kernel: the kernel.
        buffers: behind its tensors.
        arrays: of every buffer; those of results give shape and type alone.
        target: the machine.
    """
    made = plan(kernel, target)
    outputs = [buffers[n] for n in kernel.outputs]
    found: list[dict[str, Any]] = []
    for planned in (None, made.planned):
        body = kernel if planned is None else planned.kernel
        given = {
            t.name: np.asarray(arrays[buffers[t.name]].reshape(-1)[places(t)]) for t in body.tensors
        }
        results = interpret(body, given, planned, meanings())
        flat = {b: np.zeros(arrays[b].size, arrays[b].dtype) for b in outputs}
        for name, value in results.items():
            flat[buffers[name]][places(body.tensor(name))] = value
        found.append({b: x.reshape(arrays[b].shape) for b, x in flat.items()})
    text = written(made, buffers, arrays)
    passed = [arrays[p.buffer] for p in text.inputs]
    simulated, _ = simulate(
        text.text, text.name, *(a.view(np.uint8) if a.dtype == bool else a for a in passed),
        target=target.name,
    )  # fmt: skip
    made_there = simulated if isinstance(simulated, tuple | list) else (simulated,)
    for port, array in zip(text.outputs, made_there, strict=True):
        one = np.asarray(array).view(DTYPES[port.dtype].numpy).reshape(arrays[port.buffer].shape)
        found.append({port.buffer: one}) if len(found) < 3 else found[2].update({port.buffer: one})
    return {b: (found[0][b], found[1][b], found[2][b]) for b in outputs}


def agree(results: Mapping[str, tuple[Any, Any, Any]], wanted: Arrays, tolerance: float) -> None:
    """Plans and texts are equal bit for bit, and all levels are what is wanted."""
    for name, (primitives, plans, text) in results.items():
        assert plans.tobytes() == text.tobytes(), name
        for level in (primitives, plans):
            want = np.asarray(wanted[name], np.float64)
            apart = np.abs(level.astype(np.float64) - want)
            scale = max(1e-30, float(np.abs(want).max(initial=0)))
            assert np.nanmax(apart, initial=0) <= tolerance * scale, name
            assert (np.isnan(level.astype(np.float64)) == np.isnan(want)).all(), name

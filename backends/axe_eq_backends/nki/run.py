"""NKI text of schedule graphs, and what runs it: a Neuron device, or else the simulator.

Saved programs need numpy and the simulator, no compiler of ours; their texts are modules that a
machine with `nki` imports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from axe_eq.errors import ArgumentError
from axe_eq.layout import Layout
from axe_eq.program.types import DTYPES, Array, ValueType, value_type
from axe_eq_backends.nki import device

if TYPE_CHECKING:
    from axe_eq.lower.candidate import Joined
    from axe_eq.schedule.graph import KernelStep, Launch, MoveStep, ScheduleGraph
    from axe_eq.target import Target

FORMAT = 3


class NkiEmitter:
    """The emitter of family "nki".

    Attributes:
        spells: whether it reads the spellings that packs give; kernels are instructions, no texts
            of cells.
    """

    spells = False

    def refuse(self, cell: str, dtypes: Sequence[str]) -> str | None:
        """Why a cell on operands of these element types cannot be written; None where it can."""
        from axe_eq_backends.nki.written import refusal

        return refusal(cell, dtypes)

    def emit(self, graph: ScheduleGraph, target: Target) -> dict[str, str]:
        """Kernel name -> a Python module with one `nki.jit` function."""
        from axe_eq_backends.nki.assemble import sources

        return {step: source.text for step, source in sources(graph, target).items()}

    def build(self, step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target) -> None:
        """Make one step; see `axe_eq.extract.search.commit.Builder`."""
        from axe_eq_backends.nki.assemble import source

        source(step, graph, target)

    def join(
        self, steps: Sequence[KernelStep], graph: ScheduleGraph, target: Target,
        kept: Mapping[str, str],
    ) -> Joined | str:  # fmt: skip
        """Kernels as stages of one call; see `axe_eq.extract.search.launches.Joiner`."""
        from axe_eq_backends.nki.joined import joined

        return joined(steps, graph, target, kept)


class NkiInterpreter:
    """The interpreter of family "nki": plans, in program order."""

    def run(
        self, step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target,
        arrays: Mapping[str, Array], order: int = 0,
    ) -> dict[str, Array]:  # fmt: skip
        """What a lowered step writes, by buffer; see `axe_eq.run.interpret.Interpreter`.

        Engines wait for data by themselves: every order is the program's.
        """
        from axe_eq_backends.nki.assemble import interpreted

        return interpreted(step, graph, target, arrays)

    def call(
        self, launch: Launch, graph: ScheduleGraph, target: Target, arrays: Mapping[str, Array]
    ) -> dict[str, Array]:
        """What the kernels of a launch write; see `axe_eq.run.interpret.CallInterpreter`."""
        from axe_eq_backends.nki.assemble import interpreted

        return interpreted(launch, graph, target, arrays)


class NkiRunner:
    """The runner of family "nki": a Neuron device, or else the simulator.

    Attributes:
        simulates: what it returns without a device was computed by the simulator.
    """

    simulates = True

    def present(self, target: Target) -> bool:
        """Whether there is a Neuron device of the target's generation, and `nki` to run it."""
        from axe_eq_backends.nki.sim.machine import machine_of

        return device.generation() == machine_of(target).generation

    def device(self) -> str:
        """What is measured on."""
        return f"NeuronCore-v{device.generation()}"

    def compile(self, graph: ScheduleGraph, target: Target) -> bytes:
        """The texts of a graph, with what they are called with."""
        from axe_eq_backends.nki.assemble import assembled

        return assembled(graph, target)

    def load(self, code: bytes) -> Program:
        """The program whose texts `compile` wrote."""
        return load(code)


def load(code: bytes) -> Program:
    """The program whose texts `NkiRunner.compile` wrote.

    Raises:
        ArgumentError: the bytes are of another version.
    """
    data = json.loads(code)
    if data.get("format") != FORMAT:
        raise ArgumentError("kernels of NKI", f"have format {data.get('format')}", f"{FORMAT}")
    return Program(data)


class Program:
    """Kernels that are called one after another with host arrays: on a device, or simulated."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """Run on host arrays, one per input and constant.

        Raises:
            AxeError: what a kernel does wrong, with its line.
        """
        from axe_eq.schedule.contents import not_held, same
        from axe_eq_backends.nki.sim import simulate
        from axe_eq_backends.nki.sim.machine import Machine

        data, machine = self.data, Machine(**self.data["machine"])
        is_here = device.generation() == machine.generation
        held: dict[str, Any] = {}
        for name, array in zip(data["inputs"], arrays, strict=True):
            type_, elements = data["types"][name], data["elements"][name]
            held[name] = flat(array, type_, elements)
            if not same(_value(held[name], type_, elements), np.asarray(array)):
                raise not_held(name, f"its layout {elements['layout']}")
        for step in data["steps"]:
            given = [_shaped(held, port) for port in step["inputs"]]
            if is_here:
                made = device.run(step["text"], step["name"], given, machine.name)
            else:
                made, _ = simulate(step["text"], step["name"], *given, target=machine)
            made = made if isinstance(made, tuple | list) else (made,)
            for (buffer, _, dtype), array in zip(step["outputs"], made, strict=True):
                held[buffer] = np.asarray(array).view(DTYPES[dtype].numpy).reshape(-1)
        return [_value(held[n], data["types"][n], data["elements"][n]) for n in data["outputs"]]


def _offsets(of: ValueType, elements: Mapping[str, Any]) -> Any:
    """Element of every index of a value."""
    return Layout.parse(elements["layout"]).table("m").reshape(of.shape)


def flat(array: Array, type_: str, elements: Mapping[str, Any]) -> Array:
    """A value in its flat memory."""
    of = value_type(type_)
    out = np.zeros(elements["size"], DTYPES[of.dtype].numpy)
    out[_offsets(of, elements)] = np.asarray(array).reshape(of.shape)
    return out


def _value(memory: Array, type_: str, elements: Mapping[str, Any]) -> Array:
    found: Array = memory[_offsets(value_type(type_), elements)]
    return found


def _shaped(held: Mapping[str, Any], port: Sequence[Any]) -> Array:
    """An argument as its kernel has it: bools as bytes."""
    buffer, shape, dtype = port
    array: Array = held[buffer].reshape(shape)
    return array.view(np.uint8) if dtype == "bool" else array

"""Saved executables: one zip with the schedule as JSON, constants as npy, and the explanation."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from axe_eq.errors import ArgumentError
from axe_eq.program.types import DTYPES, Array, value_type
from axe_eq.run.executable import Call, Schedule
from axe_eq.run.files import whole
from axe_eq.schedule.graph import from_json
from axe_eq.target import Instr, Memory, Target

FORMAT = 1


def save(schedule: Schedule, explanation: str, path: str | Path) -> None:
    """Write a schedule; the file appears whole or not at all.

    Raises:
        ArgumentError: the place cannot be written.
    """
    call = schedule.call
    head = {
        "format": FORMAT,
        "names": call.names,
        "types": [str(t) for t in call.types],
        "arguments": call.arguments,
        "structure": call.structure,
        "dims": call.dims,
        "target": asdict(schedule.target) | {"instrs": []},
        "constants": {n: str(a.dtype) for n, a in schedule.constants.items()},
    }
    with whole(path) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("call.json", json.dumps(head))
        file.writestr("schedule.json", schedule.graph.to_json())
        file.writestr("explain.txt", explanation)
        for name, array in schedule.constants.items():
            buffer = io.BytesIO()
            np.save(buffer, np.ascontiguousarray(array).view(np.uint8), allow_pickle=False)
            file.writestr(f"constants/{name}.npy", buffer.getvalue())


class Loaded:
    """A saved executable, loaded: runs and explains, without e-graph or search."""

    def __init__(self, schedule: Schedule, explanation: str) -> None:
        self.schedule, self._explanation = schedule, explanation
        self.target = schedule.target

    def __call__(self, *arrays: Any) -> Any:
        """Run on the target."""
        return self.schedule.launch(*arrays)

    def explain(self) -> str:
        """The explanation as it was when saved."""
        return self._explanation

    @property
    def kernels(self) -> tuple[Any, ...]:
        """The kernels, in order."""
        return self.schedule.graph.kernels


def load(path: str | Path) -> Loaded:
    """Load what `Executable.save` wrote; imports no egglog.

    Raises:
        ArgumentError: not such a file, or of another format.
    """
    try:
        with zipfile.ZipFile(path) as file:
            head = json.loads(file.read("call.json"))
            graph = from_json(file.read("schedule.json").decode())
            text = file.read("explain.txt").decode()
            raw = {
                n: np.load(io.BytesIO(file.read(f"constants/{n}.npy"))) for n in head["constants"]
            }
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ArgumentError(
            f"file {str(path)!r}", f"does not load ({error})", "a saved executable"
        ) from None
    if head["format"] != FORMAT:
        raise ArgumentError(
            f"file {str(path)!r}", f"has format {head['format']}", f"format {FORMAT}"
        )
    constants = {
        n: _constant(a, graph.buffers[n].type) for n, a in raw.items() if n in graph.buffers
    }
    return Loaded(
        Schedule(graph, _call(head), _target(head["target"]), constants, _runners()), text
    )


def _constant(raw: Array, type_text: str) -> Array:
    wanted = value_type(type_text)
    return raw.view(DTYPES[wanted.dtype].numpy).reshape(wanted.shape)


def _call(head: dict[str, Any]) -> Call:
    return Call(
        tuple(head["names"]),
        tuple(value_type(t) for t in head["types"]),
        head["arguments"],
        head["structure"],
        tuple(tuple(d) for d in head["dims"]),
    )


def _target(data: dict[str, Any]) -> Target:
    memories = tuple(Memory(**m | {"axes": tuple(m["axes"])}) for m in data["memories"])
    instrs: tuple[Instr, ...] = ()
    return Target(
        **data | {"memories": memories, "instrs": instrs, "scopes": tuple(data["scopes"])}
    )


def _runners() -> dict[str, Any]:
    from axe_eq.pack import installed

    return {family: r for pack in installed().values() for family, r in pack.runners.items()}

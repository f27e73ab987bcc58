"""Start all ranks of a plan on this machine, and gather what they computed: `axe launch`.

Plan and arrays go through a folder; each rank runs `axe_eq.run.worker`, which needs no e-graph.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from axe_eq import plain
from axe_eq.errors import ArgumentError, DeviceError
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.rank import LOCAL_FAMILY, whole_of
from axe_eq.mesh.transport import Transport, traced
from axe_eq.pack import declaring, installed, reference
from axe_eq.program.types import DTYPES, Array, ValueType, value_type

if TYPE_CHECKING:
    from axe_eq.run.ranks import OnRanks

PLAN, CODE, ERROR = "plan.json", "code.json", "error.json"


@dataclass(frozen=True)
class Launched:
    """What a launch found.

    Attributes:
        outputs: whole; nested as the function's own by `Executable.launch`.
        sent: exchange -> bytes that every rank sent.
        seconds: per rank, the run without its start.
    """

    outputs: Any
    sent: dict[str, tuple[int, ...]]
    seconds: list[float]


def launch(
    plan: MeshPlan,
    arrays: Sequence[Array],
    transport: Transport,
    family: str = LOCAL_FAMILY,
    codes: Mapping[str, bytes] | None = None,
) -> Launched:
    """Run a plan in as many processes as it has ranks.

    Args:
        plan: proved.
        arrays: whole, one per input of the plan.
        transport: between the processes.
        family: of the plan's target.
        codes: machine code of its local steps, where ranks run on devices.

    Raises:
        MissingPackage, DeviceError: the transport is not here, or a rank ended.
        PackError: an operator is of a pack that no other process finds.
        ArgumentError, ScheduleError: what ranks said.
    """
    command = transport.command(plan.n_ranks)
    with tempfile.TemporaryDirectory(prefix="axe-eq-ranks-") as name:
        folder = Path(name)
        (folder / PLAN).write_text(plan.to_json())
        for number, array in enumerate(arrays):
            write(folder / f"input{number}.npy", array)
        if codes is not None:
            (folder / CODE).write_text(plain.text(codes))
        runs = family if codes is not None else LOCAL_FAMILY
        packs = [place_of("transports", transport.name), place_of("runners", runs), runs]
        packs += map(reference, declaring(plan.operators()))
        worker = [sys.executable, "-m", "axe_eq.run.worker", name, transport.name, *packs]
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}  # where these packs were found
        done = subprocess.run(
            [*command, *worker], capture_output=True, text=True, env=os.environ | path
        )
        if done.returncode:
            raise _failed(plan, folder, done)
        return _gathered(plan, folder)


def launch_together(run: OnRanks, arrays: Sequence[Any]) -> Launched:
    """Run all ranks of this process on whole arrays."""
    shards = run.shards(*arrays)
    run.whole(run(shards))  # kernels are loaded
    begin = time.perf_counter()
    found = run(shards)
    outputs = run.whole(found)
    seconds = time.perf_counter() - begin
    return Launched(outputs, traced(run.plan, run.sent), [seconds] * run.n_ranks)


def place_of(part: str, name: str) -> str:
    """Where the installed pack is, as ``module:ATTRIBUTE``, that has a part of this name.

    Raises:
        DeviceError: none has.
    """
    for pack in installed().values():
        if name in getattr(pack, part):
            return reference(pack)
    raise DeviceError(f"{part.removesuffix('s')} {name!r}", "no installed pack has it", "one")


def _failed(
    plan: MeshPlan, folder: Path, done: subprocess.CompletedProcess[str]
) -> DeviceError | ArgumentError:
    if (folder / ERROR).exists():
        said = json.loads((folder / ERROR).read_text())
        return ArgumentError(said["thing"], said["wrong"], said["expected"])
    gone = [n for n in range(plan.n_ranks) if not (folder / f"rank{n}.json").exists()]
    last = [line for line in done.stderr.splitlines() if line.startswith("rank ")]
    wrong = last[-1] if last else f"ended with status {done.returncode} before it was done"
    return DeviceError(
        f"launch on {plan.n_ranks} ranks", wrong,
        f"{plan.n_ranks} ranks that end with results ({len(gone)} did not)",
    )  # fmt: skip


def _gathered(plan: MeshPlan, folder: Path) -> Launched:
    said = [json.loads((folder / f"rank{n}.json").read_text()) for n in range(plan.n_ranks)]
    outputs = []
    for number, (name, type_) in enumerate(zip(plan.outputs, plan.result_types, strict=True)):
        files = [folder / f"output{number}.{rank}.npy" for rank in range(plan.n_ranks)]
        whole = whole_of(plan, name, [read(file, type_) for file in files])
        outputs.append(whole.reshape(value_type(plan.types[number]).shape))
    sent = traced(plan, [s["sent"] for s in said])
    return Launched(outputs, sent, [s["seconds"] for s in said])


def write(path: Path, array: Array) -> None:
    """An array's bytes: numpy has no text for the small floats."""
    np.save(path, np.ascontiguousarray(array).reshape(-1).view(np.uint8), allow_pickle=False)


def read(path: Path, type: ValueType, mapped: bool = False) -> Array:
    """An array that `write` wrote."""
    raw: Array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    return raw.view(DTYPES[type.dtype].numpy).reshape(type.shape)


def said_by(rank: int, sent: Mapping[str, int], seconds: float) -> str:
    """What a rank that is done writes."""
    return json.dumps({"rank": rank, "sent": dict(sent), "seconds": seconds})

"""A file's kernel in a process of its own, under limits of time and memory.

The child gets a folder with `job.json` and raw arrays, and leaves `report.json` and raw arrays, or
`error.json`. Foreign code runs there and nowhere else.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from axe_eq.errors import said
from axe_eq_backends.nki.sim.dtypes import dtype_of, name_of
from axe_eq_backends.nki.sim.errors import NkiError
from axe_eq_backends.nki.sim.state import MOST_INSTRUCTIONS


@dataclass(frozen=True)
class Limits:
    """Of a run.

    Attributes:
        seconds: of its process.
        memory_bytes: of address space of its process.
        instructions: of the kernel.

    Raises:
        NkiError: no time that ends.
    """

    seconds: float = 120.0
    memory_bytes: int = 8 << 30
    instructions: int = MOST_INSTRUCTIONS

    def __post_init__(self) -> None:
        if not 0 < self.seconds < inf:
            raise NkiError("limit", f"is {self.seconds} s", "seconds above 0, and finite")


@dataclass(frozen=True)
class Job:
    """What is run.

    Attributes:
        path: file, or "" where `module` is given.
        kernel: function of it.
        args, kwargs: arguments; arrays, and what JSON holds (lists are tuples, and
            {"dtype": name} is a data type).
        module: importable from `paths`, for files of a package.
        paths: folders to import from.
        prelude: whether nki, nisa, nl, np and math are there without an import.
    """

    path: str
    kernel: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    target: str = "trn2"
    dialect: str = "0.3"
    grid: tuple[int, ...] = ()
    module: str = ""
    paths: Sequence[str] = ()
    prelude: bool = False
    trace: str = ""


def run_file(job: Job, limits: Limits = Limits()) -> tuple[list[Any], dict[str, Any]]:
    """The arrays that a kernel returns, and its report as data.

    Raises:
        NkiError: as `simulate` does; or the process passes a limit, or dies.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = vars(job) | {"args": packed(job.args, folder, "in"), "limits": vars(limits)}
        data["kwargs"] = packed(dict(job.kwargs), folder, "in")
        (folder / "job.json").write_text(json.dumps(data))
        thing = f"kernel {job.kernel} of {job.path or job.module}"
        ended = _ended(folder, limits.seconds)
        if ended is None:
            raise NkiError(
                thing,
                f"has run for {limits.seconds:g} s",
                "an end within the limit",
                hint="--seconds, or smaller arrays",
            )
        if (folder / "error.json").exists():
            told = json.loads((folder / "error.json").read_text())
            raise NkiError(told["thing"], told["wrong"], told["expected"], check=told["check"],
                           at=told["at"], hint=told["hint"])  # fmt: skip
        if not (folder / "report.json").exists():
            raise NkiError(thing, f"ends its process ({ended[:200]})",
                           f"a run within {limits.memory_bytes >> 20} MiB",
                           hint="--memory, or smaller arrays")  # fmt: skip
        report = json.loads((folder / "report.json").read_text())
        return unpacked(report.pop("outputs"), folder), report


def _ended(folder: Path, seconds: float) -> str | None:
    """What a worker said last, or its exit code; None where it had to be ended.

    What it has started ends with it. What a kernel prints is in the report.
    """
    with (
        (folder / "stderr").open("wb") as last,
        subprocess.Popen(
            [sys.executable, "-m", "axe_eq_backends.nki.sim.worker", str(folder)],
            stdout=subprocess.DEVNULL, stderr=last, start_new_session=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # products are small
        ) as child,
    ):  # fmt: skip
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(child)
    lines = (folder / "stderr").read_text(errors="replace").strip().splitlines()
    return (lines or [f"exit code {code}"])[-1]


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a process with all of its session, where the system knows of such."""
    if os.name != "posix":
        child.kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def packed(value: Any, folder: Path, stem: str) -> Any:
    """A value as JSON; arrays are files, named by what they hold.

    Raises:
        NkiError: it is none of what a process hands another.
    """
    if isinstance(value, np.ndarray):
        number = len(list(folder.glob(f"{stem}*.bin")))
        file = f"{stem}{number}.bin"
        np.ascontiguousarray(value).tofile(folder / file)
        return {"array": file, "dtype": name_of(value.dtype), "shape": list(value.shape)}
    if isinstance(value, np.dtype):
        return {"dtype": name_of(value)}
    if isinstance(value, dict):
        if strange := [k for k in value if not isinstance(k, str)]:
            raise _unheld({strange[0]: value[strange[0]]}, stem)
        return {"names": {k: packed(v, folder, stem) for k, v in value.items()}}
    if isinstance(value, tuple | list):
        return [packed(v, folder, stem) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise _unheld(value, stem)


def _unheld(value: Any, stem: str) -> NkiError:
    known = "arrays, numbers, texts, data types, and tuples, lists and dicts of them by name"
    return NkiError("argument" if stem == "in" else "result", f"holds {said(value)}", known)


def unpacked(value: Any, folder: Path) -> Any:
    """What `packed` packed; lists are tuples."""
    if isinstance(value, list):
        return tuple(unpacked(v, folder) for v in value)
    if not isinstance(value, dict):
        return value
    if "names" in value:
        return {k: unpacked(v, folder) for k, v in value["names"].items()}
    dtype = dtype_of(value["dtype"])
    if "array" not in value:
        return dtype
    return np.fromfile(folder / value["array"], dtype).reshape(value["shape"])

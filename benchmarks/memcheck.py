"""Every kind of generated kernel under NVIDIA's compute-sanitizer, and between guards.

    python -m benchmarks.memcheck --prepare FILE [--seeds N] [--most N] [--only NAME ..]
    python -m benchmarks.memcheck --gpu FILE [--tools TOOL ..] [--sanitizer PATH] [--out FILE.json]

--prepare compiles them, anywhere: all subjects of `benchmarks.kernel_subjects`; of the programs of
`benchmarks.offered`, candidates that have every value of every parameter; of N programs drawn by
seed, what was chosen and a few others. --gpu runs them, many in a process, each buffer memory of
its own from the driver, of exactly its bytes. Exit code 1: something was found, or a mistake that
was planted was not. Exit code 2: nothing could be checked.

Tools are those of compute-sanitizer, and *guards*, which needs none: every buffer lies between
others that must stay as they are, and what is stored must not depend on what they hold, nor on what
results held before. So guards see what the copy engine does; a planted mistake of every kind says
what a tool sees.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.machine import machine

if TYPE_CHECKING:
    from axe_eq_backends.cuda.image import Image

GUARDS = "guards"
TOOLS: dict[str, dict[str, str]] = {  # options, of those that a version has
    GUARDS: {},
    "memcheck": {"padding": "4096", "report-api-errors": "no", "check-tensor-ops": "yes"},
    "racecheck": {},
    "synccheck": {},
    "initcheck": {"check-api-memory-access": "no"},
}
COMMON = {
    "demangle": "no", "destroy-on-device-error": "kernel", "show-backtrace": "device",
    "print-limit": "300", "check-exit-code": "no",
    "max-connections": "64", "launch-timeout": "60",
}  # fmt: skip
GUARD_BYTES = 4096
FILLS = (0x00, 0xFF)  # of guards and results
PREFIX = "========="
MARK = "@ "  # of the lines that a process tells of cases
CALM_S = 300.0  # that a process may take
# Lines that begin no finding.
HEADS = re.compile(r"COMPUTE-SANITIZER|\w+ SUMMARY|Target application|Error: process|Saved")


@dataclass(frozen=True)
class Result:
    """A buffer that a kernel stores.

    Attributes:
        dtype: of its elements.
        at: where in the buffer each one lies, in elements; the shape of a dense one.
        expected: float64 values, or None where they are not known.
    """

    dtype: str
    at: Any
    expected: Any = None


@dataclass(frozen=True)
class Case:
    """A kernel and what it runs on.

    Attributes:
        name: of the subject, or of the program, its kernel and the candidate.
        image: the compiled kernel.
        params: its run-time integers.
        places: the buffer behind every tensor.
        n_bytes: of every buffer.
        given: what lies there before; of a result where memory merges it alone.
        results: what it stores.
        n_ctas: of a smaller grid that a persistent kernel runs on too, for each CTA to take several
            tiles; 0: none.
    """

    name: str
    image: Image
    params: Mapping[str, int]
    places: Mapping[str, str]
    n_bytes: Mapping[str, int]
    given: Mapping[str, bytes]
    results: Mapping[str, Result]
    n_ctas: int = 0


@dataclass(frozen=True)
class Planted:
    """A mistake that is to be found.

    Attributes:
        what: it is.
        case: with it.
        tools: that are to find it.
        asked: other tools that are asked whether they do.
        short: bytes that are missing at the end of a buffer.
        unset: a buffer that nothing is written to before.
    """

    what: str
    case: Case
    tools: tuple[str, ...]
    asked: tuple[str, ...] = ()
    short: Mapping[str, int] = field(default_factory=dict)
    unset: str = ""


# -- a process that runs cases --


class Buffers:
    """Memory of a case's buffers, each its own.

    Args:
        case: whose.
        guard: what lies around each, a byte; None for no guards.
        short: bytes that are missing at the end of some.
        unset: one that nothing is written to.
    """

    def __init__(
        self, case: Case, guard: int | None, short: Mapping[str, int], unset: str = ""
    ) -> None:
        from axe_eq_backends.cuda.driver import call, driver

        self._cu, self._case, self._guard = driver(), case, guard
        self._size = {n: b - short.get(n, 0) for n, b in case.n_bytes.items()}
        self._base = dict[str, int]()
        self._ahead = 0 if guard is None else GUARD_BYTES
        for name, n_bytes in self._size.items():
            taken = self._cu.cuMemAlloc(max(1, n_bytes + 2 * self._ahead))
            self._base[name] = int(call(taken, f"{n_bytes} bytes"))
            if guard is not None:
                self._put(name, -self._ahead, bytes([guard]) * (n_bytes + 2 * self._ahead))
            if name != unset:
                self._put(name, 0, case.given.get(name, b"")[:n_bytes])

    def _put(self, name: str, at: int, data: bytes) -> None:
        from axe_eq_backends.cuda.driver import upload

        if data:
            host = np.frombuffer(data, np.uint8)
            upload(self._base[name] + self._ahead + at, host, name)

    def _got(self, name: str, at: int, n_bytes: int) -> Any:
        from axe_eq_backends.cuda.driver import download

        host = np.zeros(n_bytes, np.uint8)
        if n_bytes:
            download(host, self._base[name] + self._ahead + at, name)
        return host

    def pointers(self) -> dict[str, int]:
        """Per tensor its address."""
        return {t: self._base[b] + self._ahead for t, b in self._case.places.items()}

    def results(self) -> dict[str, Any]:
        """Every result as it lies in memory."""
        return {n: self._got(n, 0, self._size[n]) for n in self._case.results}

    def hurt(self) -> str:
        """The guards that are not as they were."""
        found = []
        for name, n_bytes in self._size.items() if self._guard is not None else ():
            for where, at in (("before", -self._ahead), ("past", n_bytes)):
                if (self._got(name, at, self._ahead) != self._guard).any():
                    found.append(f"writes {where} {name}")
        return ", ".join(found)

    def free(self) -> None:
        """Give it back."""
        for pointer in self._base.values():
            self._cu.cuMemFree(pointer)


def _array(result: Result, memory: Any) -> Any:
    """A result's elements."""
    from axe_eq.program.types import DTYPES

    element = DTYPES[result.dtype].numpy
    whole = memory[: len(memory) // element.itemsize * element.itemsize]
    found = whole.view(element)
    if isinstance(result.at, tuple):
        return found[: math.prod(result.at)].reshape(result.at)
    return found[result.at]


def _differs(result: Result, memory: Any) -> bool:
    found, expected = _array(result, memory).astype(np.float64), result.expected
    near = np.abs(found - expected) <= 1e-2 + 2e-3 * np.abs(expected)
    return not (near | (np.isnan(found) & np.isnan(expected))).all()


def run(
    case: Case,
    guards: bool,
    short: Mapping[str, int] | None = None,
    unset: str = "",
    compare: bool = True,
) -> str:
    """Launch a case on its own grid, and on its smaller one; what is wrong, "" if nothing.

    Args:
        case: is launched.
        guards: whether buffers lie between guards.
        short: bytes that are missing at the end of some.
        unset: a buffer that nothing is written to before.
        compare: whether values are compared with what is expected.

    Raises:
        DeviceError: a launch failed.
    """
    from axe_eq_backends.cuda.driver import call, driver
    from axe_eq_backends.cuda.launch import Loaded, Shaped

    shaped, wrong, short = Shaped(Loaded(case.image), case.params), list[str](), short or {}
    small = max(case.n_ctas // case.image.cluster, 1) * case.image.cluster
    grids = {shaped.grid}
    if case.n_ctas and case.image.persistent:
        grids.add(min(shaped.grid, small))
    for shaped.grid in grids:
        found = list[dict[str, Any]]()
        for fill in FILLS if guards else (None,):
            memory = Buffers(case, fill, short, unset)
            try:
                shaped.bind(memory.pointers()).launch()
                call((*driver().cuStreamSynchronize(0), None), "kernel")
                found.append(memory.results())
                wrong += filter(None, [memory.hurt()])
            finally:
                memory.free()
        for name, result in case.results.items():
            known = compare and result.expected is not None
            if known and _differs(result, found[0][name]):
                wrong.append(f"{name} is wrong with {shaped.grid} CTAs")
        if len(found) > 1:
            both = (tuple(_array(r, f[n]) for f in found) for n, r in case.results.items()
                    if not short.get(n))  # fmt: skip
            if any(a.tobytes() != b.tobytes() for a, b in both):
                wrong.append("results depend on what lies around or was there before")
    return "; ".join(dict.fromkeys(wrong))


def work(path: Path, tool: str, numbers: Sequence[int], planted: bool) -> None:
    """Run some cases of a file, and tell of each when it begins and ends.

    A context that is lost ends the process.
    """
    from axe_eq.errors import DeviceError
    from axe_eq_backends.cuda.driver import call, default_device, driver, on

    cases, plants = _read(path)
    with on(default_device()):
        for n in numbers:
            print(f"{MARK}begin {n}", flush=True)
            try:
                if planted:
                    p: Planted = plants[n]
                    wrong = run(p.case, tool == GUARDS, p.short, p.unset, compare=False)
                else:
                    wrong = run(cases[n], tool == GUARDS)
            except DeviceError as error:
                wrong = str(error).splitlines()[0]
            print(f"{MARK}end {n} {wrong}", flush=True)
            try:
                call((*driver().cuStreamSynchronize(0), None), "context")
            except DeviceError:
                os._exit(3)


def _read(path: Path) -> tuple[list[Case], list[Planted]]:
    found: tuple[list[Case], list[Planted]] = pickle.loads(gzip.decompress(path.read_bytes()))
    return found


# -- what a sanitizer says --


def findings(log: str) -> list[tuple[str, str]]:
    r"""Kernels that a sanitizer's log names, or "", each with the first line of a finding.

    >>> findings("========= Invalid __global__ read of size 2 bytes\n=========     at n7_map+0x1")
    [('n7_map', 'Invalid __global__ read of size 2 bytes')]
    """
    found: list[list[str]] = []
    for line in log.splitlines():
        text = line.removeprefix(PREFIX)
        if text == line or not text.strip():
            continue
        if not text.startswith("  "):
            found.append([])
        if found:
            found[-1].append(text.strip())
    return [
        (named[0] if (named := re.search(r"\bn\d+_\w+", " ".join(r))) else "", r[0])
        for r in found if not HEADS.match(r[0])
    ]  # fmt: skip


@dataclass
class Checked:
    """What a tool said of some cases.

    Attributes:
        wrong: per case what was found.
        others: what no case was named for.
        seconds: it took.
        unrun: cases that no time was left for.
    """

    wrong: dict[int, list[str]] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    seconds: float = 0.0
    unrun: int = 0


class Unchecked(Exception):
    """Nothing could be checked."""


def command(tool: str, sanitizer: str | None) -> tuple[list[str], str]:
    """What comes before a process that is checked, and the sanitizer's version.

    Raises:
        Unchecked: there is no sanitizer.
    """
    if tool == GUARDS:
        return [], ""
    found = sanitizer or shutil.which("compute-sanitizer")
    usual = Path("/usr/local/cuda/bin/compute-sanitizer")
    if found is None and usual.exists():
        found = str(usual)
    try:
        helped = subprocess.run([found or "", "--help"], capture_output=True, text=True).stdout
    except OSError:
        raise Unchecked(
            f"compute-sanitizer: {found or 'is not on the path'}; expected NVIDIA's, of a CUDA"
            " toolkit, named by --sanitizer PATH"
        ) from None
    options = {k: v for k, v in (COMMON | TOOLS[tool]).items() if f"--{k} " in helped}
    whole = [str(found), "--tool", tool, *(x for k, v in options.items() for x in (f"--{k}", v))]
    said = subprocess.run([str(found), "--version"], capture_output=True, text=True).stdout
    return whole, " ".join(re.findall(r"Version (\S+)", said))


def checked(
    path: Path,
    tool: str,
    before: Sequence[str],
    names: Mapping[str, int],
    planted: bool,
    budget_s: float = math.inf,
) -> Checked:
    """Cases under a tool, in one process and, where a case ends that, in others after it.

    Args:
        path: of the file.
        tool: its name.
        before: the command that a process is run by.
        names: of kernels, with their cases' numbers.
        planted: whether they are planted mistakes.
        budget_s: seconds that all may take.

    Raises:
        Unchecked: no case of them ran.
    """
    found, left, began = Checked(), list(names.values()), time.perf_counter()
    while left:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            logged = ["--log-file", str(log)] if before else []
            ran = [sys.executable, "-m", "benchmarks.memcheck", "--run", str(path), "--tools", tool,
                   "--numbers", ",".join(map(str, left)), *["--planted"] * planted]  # fmt: skip
            out = Path(folder) / "out"
            rest = budget_s - (time.perf_counter() - began)
            with out.open("w") as to:
                hung = _ended([*before, *logged, *ran], to, min(CALM_S, max(1.0, rest)))
            told = out.read_text(errors="replace")
            said = log.read_text(errors="replace") if log.exists() else ""
        marks = [x.split(" ", 3)[1:] for x in told.splitlines() if x.startswith(MARK)]
        if not marks:
            raise Unchecked(f"{tool}: no kernel ran; expected a GPU that it supports\n"
                            f"{_last(told)}\n{_last(said)}")  # fmt: skip
        for kind, number, *wrong in marks:
            if kind == "end" and wrong and wrong[0]:
                found.wrong.setdefault(int(number), []).append(wrong[0])
        ended = {int(m[1]) for m in marks if m[0] == "end"}
        begun = int(marks[-1][1])
        is_late = time.perf_counter() - began > budget_s
        if begun not in ended and not is_late:
            what = "does not end" if hung else "ends the process"
            found.wrong.setdefault(begun, []).append(what)
        for kernel, what in findings(said):
            if kernel not in names:
                found.others.append(f"{what} {kernel}".strip())
            elif what not in (known := found.wrong.setdefault(names[kernel], [])):
                known.append(what)
        left = left[left.index(begun) + (begun in ended or not is_late) :]
        if is_late:
            found.unrun = len(left)
            break
    found.seconds = time.perf_counter() - began
    return found


def _ended(ran: Sequence[str], to: Any, limit_s: float) -> bool:
    """Run a process and all that it starts; whether it had to be ended."""
    process = subprocess.Popen(ran, stdout=to, stderr=to, start_new_session=True)
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def _last(text: str) -> str:
    return "\n".join(text.splitlines()[-6:])


def report(
    path: Path,
    tools: Sequence[str],
    sanitizer: str | None = None,
    parts: int = 1,
    budget_s: float = math.inf,
) -> dict[str, Any]:
    """Everything in a file under some tools, all at the same time.

    Args:
        path: of the file.
        tools: their names.
        sanitizer: where compute-sanitizer is; looked for by default.
        parts: processes of a tool; 0 for planted mistakes alone.
        budget_s: seconds that all may take.

    Raises:
        Unchecked: a tool is not here, or does not work here.
    """
    cases, plants = _read(path)
    jobs = list[tuple[str, dict[str, int], bool]]()
    for tool in tools:
        asked = {p.case.image.name: n for n, p in enumerate(plants) if tool in p.tools + p.asked}
        jobs += [(tool, asked, True)] if asked else []
        numbers = [(c.image.name, n) for n, c in enumerate(cases)]
        jobs += [(tool, dict(numbers[first::parts]), False) for first in range(parts)]
    before, versions = zip(*(command(tool, sanitizer) for tool in tools), strict=True)
    of, version = dict(zip(tools, before, strict=True)), max(versions)
    with ThreadPoolExecutor(len(jobs)) as pool:
        done = list(pool.map(lambda j: checked(path, j[0], of[j[0]], j[1], j[2], budget_s), jobs))
    found: dict[str, Any] = {}
    for (tool, names, planted), c in zip(jobs, done, strict=True):
        row = found.setdefault(
            tool,
            {"kernels": 0, "seconds": 0.0, "findings": [], "planted": [], "others": [], "unrun": 0},
        )
        row["seconds"] = round(max(row["seconds"], c.seconds), 1)
        if planted:
            row["planted"] = [
                {"what": plants[n].what, "wanted": tool in plants[n].tools,
                 "found": c.wrong.get(n, [])} for n in list(names.values())[: len(names) - c.unrun]
            ]  # fmt: skip
            continue
        row["kernels"] += len(names) - c.unrun
        row["unrun"] += c.unrun
        row["findings"] += [{"kernel": cases[n].name, "what": w} for n, w in c.wrong.items()]
        row["others"] += c.others
    return {"machine": machine(), "device": _device(), "sanitizer": version, "tools": found}


def _device() -> str:
    from axe_eq.errors import DeviceError
    from axe_eq_backends.cuda.driver import device_name

    try:
        return device_name(0)
    except DeviceError:
        return ""


def failed(found: Mapping[str, Any]) -> bool:
    """Whether something was found, or a mistake was not that a tool is to find."""
    return any(
        row["findings"] or row["others"]
        or any(p["wanted"] and not p["found"] for p in row["planted"])
        for row in found["tools"].values()
    )  # fmt: skip


def show(found: Mapping[str, Any]) -> Iterator[str]:
    """The report, line by line."""
    yield f"{'tool':<10} {'kernels':>8} {'findings':>9} {'planted found':>14} {'seconds':>8}"
    for tool, row in found["tools"].items():
        wanted = [bool(p["found"]) for p in row["planted"] if p["wanted"]]
        hits = f"{sum(wanted)} of {len(wanted)}"
        n = len(row["findings"]) + len(row["others"])
        yield f"{tool:<10} {row['kernels']:>8} {n:>9} {hits:>14} {row['seconds']:>8.1f}"
    for tool, row in found["tools"].items():
        if row["unrun"]:
            yield f"{tool}: no time was left for {row['unrun']} kernels"
        for p in row["planted"]:
            if not p["found"]:
                yield f"{tool} {'MISSES' if p['wanted'] else 'does not see'} {p['what']}"
        for f in row["findings"]:
            yield f"{tool}: {f['kernel']}: {'; '.join(f['what'])}"
        for what in dict.fromkeys(row["others"]):
            yield f"{tool}: of no kernel: {what}"


def main() -> int:
    """Prepare, run, or be the process that runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prepare", type=Path, metavar="FILE", help="compile here and save there")
    parser.add_argument("--seeds", type=int, default=60, help="programs that are drawn")
    parser.add_argument("--most", type=int, help="candidates of a kernel at most")
    parser.add_argument("--only", nargs="*", help="beginnings of names")
    parser.add_argument("--gpu", type=Path, metavar="FILE", help="run what was saved")
    parser.add_argument("--tools", nargs="*", default=list(TOOLS), choices=list(TOOLS))
    parser.add_argument("--sanitizer", help="where compute-sanitizer is")
    parser.add_argument(
        "--parts", type=int, default=2, help="processes of a tool; 0: planted mistakes alone"
    )
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds that it may take")
    default = Path(os.environ.get("OUT", "benchmarks/results")) / "memcheck.json"
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--numbers", help=argparse.SUPPRESS)
    parser.add_argument("--planted", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        work(given.run, given.tools[0], [*map(int, given.numbers.split(","))], given.planted)
        return 0
    if given.prepare:
        from benchmarks.memcheck_cases import prepared

        found = prepared(given.seeds, given.most, given.only)
        if not found[0]:
            parser.error(f"--only {' '.join(given.only)}: begins the name of no kernel")
        given.prepare.write_bytes(gzip.compress(pickle.dumps(found)))
        print(f"{len(found[0])} kernels, {len(found[1])} planted mistakes")
        return 0
    if not given.gpu:
        parser.error("nothing to do; expected --prepare FILE or --gpu FILE")
    try:
        board = report(given.gpu, given.tools, given.sanitizer, given.parts, given.budget)
    except Unchecked as error:
        print(error, file=sys.stderr)
        return 2
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(board, indent=1) + "\n", encoding="utf-8")
    print(*show(board), sep="\n")
    return int(failed(board))


if __name__ == "__main__":
    raise SystemExit(main())

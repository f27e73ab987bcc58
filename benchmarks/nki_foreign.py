"""Kernels of others in the simulator of NKI: `python -m benchmarks.nki_foreign CHECKOUTS`.

CHECKOUTS is a folder with a checkout of each repository under its own name. Their files run as they
are, under the dialect that they are written in. Inputs and references are ours, see
`nki_foreign_cases` and `nki_foreign_library`. Nothing is measured: the simulator computes, and says
what it refuses.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from axe_eq.errors import AxeError
from axe_eq_backends.nki.sim import NkiError, simulate
from axe_eq_backends.nki.sim.loading import findable, load_file, prelude
from axe_eq_backends.nki.sim.run import find
from benchmarks.nki_foreign_cases import CASES, LIBRARY, Case
from benchmarks.nki_foreign_library import LIBRARY_CASES

SOURCES = "src"  # where nki-library has its package


@dataclass(frozen=True)
class Score:
    """How a kernel did.

    Attributes:
        passed: whether it ran and was right, or was refused as it has to be.
        error: largest difference, of the largest expected value; None where it did not run.
        reason: why it did not pass, or what refused it.
        steps: instructions.
        seconds: of the run here.
    """

    case: Case
    passed: bool
    error: float | None
    reason: str
    steps: int = 0
    seconds: float = 0.0


def score(case: Case, folder: Path) -> Score:
    """Run a case."""
    root, start = folder / case.repository.partition("/")[2], time.perf_counter()
    module = case.file if case.repository == LIBRARY else ""
    path = root / (case.file.replace(".", "/") if module else case.file)
    if case.unused and find_spec(case.unused) is None:
        sys.modules[case.unused] = ModuleType(case.unused)
    try:
        with (
            findable(case.dialect, [str(root / SOURCES), str(path.parent)]),
            redirect_stdout(sys.stderr),  # what kernels say is no part of the table
        ):
            space = load_file(
                str(path), case.dialect, module, None if module else prelude(case.dialect)
            )
            args, options, expected = case.make(space)
            kernel = find(space, case.kernel, case.file)
            outputs, report = simulate(kernel, case.kernel, *args, dialect=case.dialect, **options)
    except NkiError as error:
        reason = " ".join(str(error).split("\n")[0].replace(f"{folder}/", "").split())
        refused = bool(case.refused) and error.check == case.refused
        return Score(case, refused, None, f"refused by {reason}" if refused else reason)
    except AxeError as error:
        return Score(case, False, None, str(error).partition("\n")[0])
    if case.refused:
        return Score(case, False, None, f"has to be refused by {case.refused}, and ran")
    found = difference(outputs, expected)
    passed = found <= case.tolerance
    served = f"its import of {case.unused} is unused, and served by an empty module"
    reason = (
        (served if case.unused else "")
        if passed
        else f"differs by {found:.1e}, at most {case.tolerance:g}"
    )
    return Score(case, passed, found, reason, len(report.steps), time.perf_counter() - start)


def difference(outputs: Any, expected: Any) -> float:
    """The largest of all results, of the largest value of each."""
    if isinstance(expected, tuple) and callable(expected[0]):
        outputs, expected = expected[0](outputs), expected[1]
    if not isinstance(expected, tuple):
        outputs, expected = (outputs,), (expected,)
    worst = 0.0
    for got, wanted in zip(outputs, expected, strict=True):
        got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
        if got.shape != wanted.shape:
            got = got.reshape(wanted.shape)
        if not np.isfinite(got).all():
            return float("inf")
        worst = max(worst, float(np.abs(got - wanted).max() / (np.abs(wanted).max() + 1e-30)))
    return worst


def commit(folder: Path) -> str:
    """The commit of a checkout; "" where git does not know."""
    got = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True)
    noted = folder / "COMMIT"  # an archive without git may say it here
    return (
        got.stdout.strip()
        if got.returncode == 0
        else noted.read_text().strip()
        if noted.exists()
        else ""
    )


def table(scores: Sequence[Score], commits: dict[str, str]) -> str:
    """The scoreboard as Markdown."""
    passed = sum(s.passed for s in scores)
    lines = [
        "# Kernels of others in the simulator of NKI",
        "",
        "`python -m benchmarks.nki_foreign CHECKOUTS` writes this table. Files run as they are, "
        "under the dialect that they are written in. Inputs and references in numpy are ours; the "
        "error is the largest difference from float64, divided by the largest value. Simulated on "
        "trn2, nothing was measured.",
        "",
        f"{passed} of {len(scores)} calls pass.",
        "",
        "| repository | commit | passed |",
        "| --- | --- | --- |",
    ]
    for repository in dict.fromkeys(s.case.repository for s in scores):
        own = [s for s in scores if s.case.repository == repository]
        lines.append(
            f"| {repository} | {commits[repository][:12]} | "
            f"{sum(s.passed for s in own)} of {len(own)} |"
        )
    lines += [
        "",
        "| file | kernel | dialect | result | error | instructions |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for s in scores:
        kernel = s.case.kernel + (f" ({s.case.variant})" if s.case.variant else "")
        result = ("passed" if s.passed else "failed") + (f": {s.reason}" if s.reason else "")
        error = "" if s.error is None else f"{s.error:.1e}"
        lines.append(
            f"| {s.case.repository.partition('/')[2]}: {s.case.file} | {kernel} "
            f"| {s.case.dialect} | "
            f"{result.replace('|', '/')} | {error} | {s.steps or ''} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all, or those whose file or kernel has a word in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", default="", help="a word of the file or the kernel")
    parser.add_argument("--write", type=Path, help="write the table here")
    options = parser.parse_args()
    chosen = [
        c for c in (*CASES, *LIBRARY_CASES) if options.only in f"{c.repository} {c.file} {c.kernel}"
    ]
    scores = []
    for case in chosen:
        found = score(case, options.checkouts)
        scores.append(found)
        state = "passed" if found.passed else "FAILED"
        error = "" if found.error is None else f"{found.error:.1e}"
        print(f"{state} {case.file}:{case.kernel} {case.variant} {error} {found.steps} steps "
              f"{found.seconds:.1f} s {found.reason}", file=sys.stderr)  # fmt: skip
    names = {c.repository for c in chosen}
    commits = {r: commit(options.checkouts / r.partition("/")[2]) for r in names}
    text = table(scores, commits)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()

"""`python -m axe_eq_backends.nki.sim.worker FOLDER`: the process of one run, see `process`."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from axe_eq.errors import AxeError, cause
from axe_eq_backends.nki.sim.errors import NkiError
from axe_eq_backends.nki.sim.loading import findable, lint_file, load_file, prelude
from axe_eq_backends.nki.sim.process import packed, unpacked
from axe_eq_backends.nki.sim.run import Report, find, simulate

MOST_PRINTED = 100_000  # characters that are kept


class Printed(StringIO):
    """What a kernel prints, up to a limit: it may print without end."""

    def write(self, text: str) -> int:
        """Keep what there is room for."""
        super().write(text[: max(0, MOST_PRINTED - self.tell())])
        return len(text)


def main() -> None:
    """Run the job of a folder."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    printed = Printed()
    try:
        _limit(job["limits"]["memory_bytes"])
        with redirect_stdout(printed), redirect_stderr(Printed()):
            report = _run(job, folder)
        text = json.dumps(report | {"printed": printed.getvalue()})
        (folder / "report.json").write_text(text)
    except BaseException as error:  # kernels may exit, too
        (folder / "error.json").write_text(json.dumps(_told(error, job)))


def _told(error: BaseException, job: dict[str, Any]) -> dict[str, str]:
    """An error as data: what a check says, or what ended the kernel."""
    told = {"thing": f"kernel {job['kernel']}", "check": "", "at": "", "hint": ""}
    if isinstance(error, AxeError):
        keys = "thing", "wrong", "expected", "at", "hint"
        return {key: getattr(error, key) for key in keys} | {"check": getattr(error, "check", "")}
    if isinstance(error, MemoryError):
        return told | {
            "wrong": "needs more memory than its process may have",
            "expected": f"up to {job['limits']['memory_bytes'] >> 20} MiB",
            "hint": "--memory, or smaller arrays",
        }
    return told | {
        "wrong": f"ends with {cause(error)}", "expected": "a kernel that returns its results",
    }  # fmt: skip


def _limit(n_bytes: int) -> None:
    try:
        import resource
    except ImportError:  # not on Windows, where only time is limited
        return
    resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))


def _run(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    args, kwargs = unpacked(job["args"], folder), unpacked(job["kwargs"], folder)
    dialect, path = job["dialect"], job["path"]
    paths = [*job["paths"], *([str(Path(path).resolve().parent)] if path else [])]
    with findable(dialect, paths):
        names = prelude(dialect) if job["prelude"] else None
        remarks = [] if job["module"] else lint_file(path, dialect, names, job["kernel"])
        space = load_file(path, dialect, job["module"], names)
        kernel = find(space, job["kernel"], path or job["module"])
        outputs, report = simulate(
            kernel, job["kernel"], *args, target=job["target"], dialect=dialect,
            grid=tuple(job["grid"]), most_instructions=job["limits"]["instructions"], **kwargs,
        )  # fmt: skip
    if job["trace"]:
        try:
            Path(job["trace"]).write_text(report.timeline.perfetto())
        except OSError as error:
            raise NkiError(
                f"trace {job['trace']}", f"cannot be written ({error.strerror})", "a file"
            ) from None
    results = outputs if isinstance(outputs, tuple | list) else (outputs,)
    report = replace(report, warnings=(*remarks, *report.warnings))
    return report_data(report) | {"outputs": packed(list(results), folder, "out")}


def report_data(report: Report) -> dict[str, Any]:
    """A report as JSON data; times are the model's."""
    timeline = report.timeline
    return {
        "kernel": report.kernel,
        "target": report.machine.name,
        "dialect": report.dialect,
        "simulated": True,
        "instructions": report.counts(),
        "model_ns": timeline.total_ns,
        "utilisation": timeline.utilisation(),
        "peaks": {
            memory: {
                "bytes": peak.n_bytes,
                "of": getattr(report.machine, f"{memory}_bytes"),
                "lines": [
                    {"line": f"{line[0]}:{line[1]}", "tiles": n, "bytes": size}
                    for line, n, size in peak.lines()
                ],
            }
            for memory, peak in report.peaks.items()
        },
        "warnings": [
            {"check": w.check, "text": w.text, "line": f"{w.line[0]}:{w.line[1]}", "times": w.times}
            for w in report.warnings
        ],
    }


if __name__ == "__main__":
    main()

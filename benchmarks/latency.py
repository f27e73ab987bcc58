"""From a function to machine code: seconds cold and from the cache, per stage.

``python -m benchmarks.latency`` prints a table; --write keeps it in results/latency.json. Cold runs
are processes of their own with an empty cache, imports done (their seconds stand beside); each then
compiles the same program again in the same process. Needs NVRTC and no GPU: what a device adds is
loading, see `benchmarks.cuda_calls`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from benchmarks.terminal import told

RESULT = Path(__file__).parent / "results" / "latency.json"
RUNS = 5
FIGURES = "search_s", "code_s", "nvrtc_s", "total_s", "imports_s"


def programs() -> dict[str, Any]:
    """Name -> (function, specs)."""
    import axe_eq as axe
    from axe_eq import nn
    from examples import qwen

    def of(*shape: int) -> axe.Spec:
        return axe.Spec(shape, "f16")

    return {
        "product": (lambda a, b: a @ b, (of(4096, 4096), of(4096, 4096))),
        "softmax": (lambda x: nn.softmax(x, axis=-1), (of(8192, 4096),)),
        "gelu": (lambda x, b: nn.gelu(x + b), (of(8192, 4096), of(4096))),
        "mlp block": (qwen.mlp_block, tuple(qwen.mlp_specs())),
    }


def measure(name: str) -> dict[str, dict[str, float]]:
    """One process: cold, then from the cache."""
    began = time.perf_counter()
    import axe_eq as axe
    from axe_eq.pack import installed
    from axe_eq_backends.cuda import assemble as _assemble  # noqa: F401
    from axe_eq_backends.cuda import compile as compiler
    from axe_eq_backends.cuda.run import load

    compile = axe.compile  # imports the pipeline
    installed()
    compiler.version()
    imports_s = time.perf_counter() - began
    nvrtc = Timed(compiler.compile_texts)
    compiler.compile_texts = nvrtc  # type: ignore[assignment]
    fn, specs = programs()[name]
    found = {}
    for which in ("cold", "cached"):
        nvrtc.seconds = 0.0
        began = time.perf_counter()
        exe = compile(fn, *specs, target="h200")
        chosen = time.perf_counter()
        code = exe.schedule.code()
        assert code is not None
        load(code)
        ended = time.perf_counter()
        found[which] = {
            "search_s": chosen - began, "code_s": ended - chosen, "nvrtc_s": nvrtc.seconds,
            "total_s": ended - began, "imports_s": imports_s, "kernels": len(exe.kernels),
        }  # fmt: skip
    return found


class Timed:
    """A function, with the seconds that its calls took."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self.work, self.seconds = work, 0.0

    def __call__(self, *given: Any) -> Any:
        """Call it."""
        began = time.perf_counter()
        try:
            return self.work(*given)
        finally:
            self.seconds += time.perf_counter() - began


def run(name: str, runs: int) -> dict[str, dict[str, float]]:
    """Medians over processes."""
    rows = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.latency", "--once", name],
                capture_output=True, text=True, check=True,
                env=os.environ | {"AXE_CACHE_DIR": folder},
            )  # fmt: skip
        rows.append(json.loads(done.stdout))
    return {
        which: {k: statistics.median(row[which][k] for row in rows) for k in rows[0][which]}
        for which in rows[0]
    }


def main() -> None:
    """Measure and print; write where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULT.name}")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(measure(options.once)))
        return
    from axe_eq_backends.cuda.compile import version

    found = {name: run(name, options.runs) for name in told(list(programs()), "program")}
    if options.write:
        about = {"machine": machine(), "nvrtc": version(), "runs": options.runs}
        RESULT.write_text(json.dumps(about | {"found": found}, indent=1) + "\n")
    table = Table(title="from a function to machine code for an H200, seconds (median)")
    columns = "search", "lower and compile", "NVRTC alone", "whole", "imports before"
    for column in ("program", "kernels", "", *columns):
        table.add_column(column)
    for name, row in found.items():
        for which, t in row.items():
            figures = [f"{t[k]:.3f}" for k in FIGURES]
            table.add_row(name, f"{t['kernels']:.0f}", which, *figures)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()

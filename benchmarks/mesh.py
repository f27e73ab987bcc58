"""How long redistributions take to plan, for 8 to 512 devices.

``python -m benchmarks.mesh`` prints a table: processor time of planning all ranks' messages, the
least of several runs, and of the proof; ``--write`` keeps it in results/mesh.json. Bytes are
compared with the lower bound before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import axe_eq as axe
from axe_eq.mesh import redistribute
from benchmarks.machine import machine

RESULT = Path(__file__).parent / "results" / "mesh.json"
SHAPE = (4096, 4096)
MESHES = ({"x": 2, "y": 4}, {"x": 8, "y": 8}, {"x": 16, "y": 32})
BARS_MS = {8: 1, 64: 5, 512: 100}  # what planning is to take at most
RUNS = 7
PAIRS = {
    "rows to columns": ("P(('x','y'),None)", "P(None,('x','y'))"),
    "rows to everywhere": ("P(('x','y'),None)", "P(None,None)"),
    "a transposed mesh": ("P('x','y')", "P('y','x')"),
    "copies of rows to columns": ("P('y',None)", "P(None,'x')"),
}


def least_ms(call: Callable[[], Any]) -> float:
    """Processor time of the fastest of several runs."""
    found = []
    for _ in range(RUNS):
        began = time.process_time_ns()
        call()
        found.append((time.process_time_ns() - began) / 1e6)
    return min(found)


def measured(sizes: dict[str, int], name: str) -> dict[str, Any]:
    """One pair of layouts on one mesh."""
    mesh = axe.Mesh(sizes)
    sides = [axe.read("jax", text, shape=SHAPE, mesh=mesh) for text in PAIRS[name]]

    def plan() -> Any:
        return redistribute(*sides, shape=SHAPE, mesh=mesh)

    certificate = plan().certificate
    assert certificate.n_bytes == certificate.bound_bytes
    return {
        "devices": mesh.size,
        "pair": name,
        "messages": certificate.n_messages,
        "bytes": certificate.n_bytes,
        "plan_ms": least_ms(plan),
        "plan_and_prove_ms": least_ms(lambda: plan().certificate),
    }


def main() -> None:
    """Measure, print, and keep where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULT.name}")
    asked = parser.parse_args()
    rows = [measured(sizes, name) for sizes in MESHES for name in PAIRS]
    table = Table("devices", "pair", "messages", "plan", "at most", "with proof", box=None)
    for row in rows:
        bar = BARS_MS[row["devices"]]
        table.add_row(
            str(row["devices"]), row["pair"], f"{row['messages']:,}", f"{row['plan_ms']:.2f} ms",
            f"{bar} ms", f"{row['plan_and_prove_ms']:.2f} ms",
        )  # fmt: skip
    Console().print(table)
    if asked.write:
        RESULT.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

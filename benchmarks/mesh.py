"""Plans on meshes: bytes of programs that others measured, planning times, redistributions.

``python -m benchmarks.mesh`` prints three tables. Programs: bytes that cross links, by both
objectives, beside the best plan worked out by hand, JAX and DTensor, and how much slower by
estimate the plan is that rooflines of operators choose, whose kernels are fused afterwards. Stacks
of transformer layers: how long planning takes. Redistributions: processor time of planning all
ranks' messages, the least of several runs, and of the proof; bytes are compared with the lower
bound before anything is timed. ``--write`` keeps the figures in results/mesh.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import axe_eq as axe
from axe_eq.mesh import redistribute
from benchmarks.machine import machine
from benchmarks.mesh_programs import PROGRAMS, stack

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
STACKS: tuple[tuple[int, dict[str, int]], ...] = (
    (1, {"x": 2, "y": 4}), (20, {"x": 2, "y": 4}), (1, {"dp": 4, "tp": 8, "pp": 2}),
)  # fmt: skip


def least_ms(call: Callable[[], Any]) -> float:
    """Processor time of the fastest of several runs."""
    found = []
    for _ in range(RUNS):
        began = time.process_time_ns()
        call()
        found.append((time.process_time_ns() - began) / 1e6)
    return min(found)


def redistributed(sizes: dict[str, int], name: str) -> dict[str, Any]:
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


def planned(name: str) -> dict[str, Any]:
    """One program by both objectives; its plans are proved."""
    of = PROGRAMS[name]
    row: dict[str, Any] = {"program": name, "about": of.about}
    for objective in ("link_bytes", "time"):
        began = time.process_time()
        exe = of.compiled(objective=objective)
        row[f"{objective}_s"] = time.process_time() - began
        row[objective] = exe.plan.link_bytes
        row[f"{objective}_kernels"] = len(exe.kernels)
        row[f"{objective}_us"] = exe.cost["time_s"] * 1e6
        compiled = list(exe._searched.tried.values())
        row[f"{objective}_plans"] = len(compiled)
        row[f"{objective}_first_us"] = compiled[0].graph.time_s * 1e6
    return row | {"reference": of.reference, "jax": of.jax, "dtensor": of.dtensor}


def stacked(layers: int, sizes: dict[str, int]) -> dict[str, Any]:
    """Planning a stack of transformer layers."""
    mesh = axe.Mesh(sizes)
    program, layout = stack(layers, mesh)
    began = time.process_time()
    exe = axe.compile(program, target="cpu", mesh=mesh, outputs=[layout])
    planning = time.process_time() - began
    began = time.process_time()
    plan = exe.plan
    return {
        "layers": layers,
        "nodes": len(program.nodes()),
        "mesh": sizes,
        "plan_s": planning,
        "prove_s": time.process_time() - began,
        "plans": len(exe._searched.tried),
        "explained_in_lines": len(exe.explain().splitlines()),
        "exact": exe.report["extract"].notes["exact"],
        "kernels": len(exe.kernels),
        "steps": len(exe.schedule.steps),
        "link_bytes": plan.link_bytes,
    }


def main() -> None:
    """Measure, print, and keep where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULT.name}")
    asked = parser.parse_args()
    console = Console(width=150)
    with axe.debug(cache=0):
        programs = [planned(name) for name in PROGRAMS]
        console.print(_programs(programs))
        stacks = [stacked(*of) for of in STACKS]
        console.print(_stacks(stacks))
    rows = [redistributed(sizes, name) for sizes in MESHES for name in PAIRS]
    console.print(_redistributions(rows))
    if asked.write:
        found = {"machine": machine(), "programs": programs, "stacks": stacks, "rows": rows}
        RESULT.write_text(json.dumps(found, indent=1) + "\n")


def _programs(rows: list[dict[str, Any]]) -> Table:
    figures = ("least bytes", "in least time", "by hand", "JAX", "DTensor", "rooflines", "planned")
    table = Table("", "program", *figures, box=None)
    for row in rows:
        moved = [row[k] for k in ("link_bytes", "time", "reference", "jax", "dtensor")]
        texts = ["" if n is None else f"{n:,}" for n in moved]
        slower = f"x{row['time_first_us'] / row['time_us']:.2f}"
        seconds = f"{row['time_s']:.1f} s"
        table.add_row(row["program"], escape(row["about"]), *texts, slower, seconds)
    return table


def _stacks(rows: list[dict[str, Any]]) -> Table:
    table = Table("layers", "nodes", "mesh", "planned", "proved", "plans", "kernels", box=None)
    for row in rows:
        mesh = " ".join(f"{a}={n}" for a, n in row["mesh"].items())
        table.add_row(
            str(row["layers"]), str(row["nodes"]), mesh, f"{row['plan_s']:.1f} s",
            f"{row['prove_s']:.2f} s", str(row["plans"]), str(row["kernels"]),
        )  # fmt: skip
    return table


def _redistributions(rows: list[dict[str, Any]]) -> Table:
    table = Table("devices", "pair", "messages", "plan", "at most", "with proof", box=None)
    for row in rows:
        bar = BARS_MS[row["devices"]]
        table.add_row(
            str(row["devices"]), row["pair"], f"{row['messages']:,}", f"{row['plan_ms']:.2f} ms",
            f"{bar} ms", f"{row['plan_and_prove_ms']:.2f} ms",
        )  # fmt: skip
    return table


if __name__ == "__main__":
    main()

"""The 24 programs of `benchmarks.mesh_programs`, each run on eight MPI processes.

``python -m benchmarks.mesh_ranks`` plans every program for the fewest bytes and then in least time,
starts eight processes that run all plans on random normal data, compares what comes back with
numpy, and every rank's traced bytes with the plan's, exchange by exchange. It ends with an error if
one differs. ``--write`` keeps the figures in results/mesh_ranks.json. Seconds are of the slowest
rank, and say little where there are fewer processors than ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from axe_eq.mesh.rank import whole_of
from axe_eq.program.types import DTYPES
from axe_eq_backends.mesh.mpi import MpiTransport
from benchmarks.machine import machine
from benchmarks.mesh_programs import PROGRAMS

RESULT = Path(__file__).parent / "results" / "mesh_ranks.json"
RANKS = 8
OBJECTIVES = ("link_bytes", "time")
MOST_ERROR = 1e-4  # of the largest value, f32


def arrays(name: str) -> list[Any]:
    """Arguments of a program: random normal, and indices of the first argument's rows."""
    rng = np.random.default_rng(0)
    given = PROGRAMS[name].given
    found = []
    for shape, _, dtype in given:
        if DTYPES[dtype].kind == "i":
            found.append(rng.integers(0, given[0][0][0], shape).astype(DTYPES[dtype].numpy))
        else:
            found.append(rng.standard_normal(shape).astype(DTYPES[dtype].numpy))
    return found


def on_ranks(path: Path) -> None:
    """What every one of the processes does; the first one writes all rows."""
    from mpi4py import MPI

    comm, rows = MPI.COMM_WORLD, []
    for name, of in PROGRAMS.items():
        given = arrays(name)
        for objective in OBJECTIVES:
            exe = of.compiled(objective=objective)
            run = exe.on("mpi")
            parts = run.shards(*given)
            comm.Barrier()
            began = time.perf_counter()
            made = run(*parts)
            seconds = comm.gather(time.perf_counter() - began)
            results, sent = comm.gather(np.asarray(made)), comm.gather(run.sent)
            if comm.rank == 0:
                plan, wanted = exe.plan, np.asarray(exe.meaning(*given))
                assert results is not None
                assert sent is not None
                assert seconds is not None
                whole = whole_of(plan, plan.outputs[0], results).reshape(wanted.shape)
                traced = {n: [s[n] for s in sent] for n in plan.n_bytes}
                rows.append({
                    "program": name, "about": of.about, "objective": objective,
                    "error": float(np.abs(whole - wanted).max() / np.abs(wanted).max()),
                    "predicted_bytes": {n: list(b) for n, b in plan.n_bytes.items()},
                    "traced_bytes": traced, "link_bytes": plan.link_bytes,
                    "reference": of.reference, "seconds": max(seconds),
                })  # fmt: skip
    if comm.rank == 0:
        path.write_text(json.dumps(rows))


def main() -> None:
    """Plan here, run in eight processes, compare, print, and keep where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULT.name}")
    parser.add_argument("--rank", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank is not None:
        on_ranks(asked.rank)
        return
    for of in PROGRAMS.values():
        for objective in OBJECTIVES:
            of.compiled(objective=objective)  # ranks find it in the cache
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "benchmarks.mesh_ranks", "--rank", str(path)]
        alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        env = {**os.environ, **alone}
        subprocess.run([*MpiTransport().command(RANKS), *command], check=True, env=env)
        rows = json.loads(path.read_text())
    Console(width=150).print(_table(rows))
    wrong = [r for r in rows if r["traced_bytes"] != r["predicted_bytes"] or
             not r["error"] <= MOST_ERROR]  # fmt: skip
    assert not wrong, f"{[(r['program'], r['objective']) for r in wrong]} differ"
    assert len(rows) == len(PROGRAMS) * len(OBJECTIVES)
    if asked.write:
        RESULT.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


def _table(rows: list[dict[str, Any]]) -> Table:
    head = ("", "program", "least", "bytes", "by hand", "traced", "error", "seconds")
    table = Table(*head, box=None)
    for row in rows:
        traced = row["traced_bytes"] == row["predicted_bytes"]
        table.add_row(
            row["program"], escape(row["about"]), row["objective"], f"{row['link_bytes']:,}",
            f"{row['reference']:,}", "as planned" if traced else "differs", f"{row['error']:.1e}",
            f"{row['seconds']:.3f}",
        )  # fmt: skip
    return table


if __name__ == "__main__":
    main()

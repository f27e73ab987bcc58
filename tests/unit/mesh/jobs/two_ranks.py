"""A user's own script of two ranks: shards in, shards out, and what goes wrong.

What ranks say goes to a file of each in the folder that is named: their prints may mix.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import axe_eq as axe
from axe_eq.errors import AxeError

M2 = axe.Mesh({"x": 2})
ROWS = axe.read("jax", "P('x',None)", shape=(8, 6), mesh=M2)


def fn(x: Any, w: Any) -> Any:
    return {"y": x @ w, "total": axe.array.sum(x)}


def compiled(mesh: axe.Mesh = M2) -> Any:
    given = [axe.Spec((8, 6), "f32", layout=ROWS if mesh is M2 else None), "6x4:f32"]
    return axe.compile(fn, *given, target="cpu", mesh=mesh)


def say(run: Any, text: str) -> None:
    with (Path(sys.argv[1]) / f"rank{run.rank}.txt").open("a") as file:
        file.write(f"{text}\n")


def main() -> None:
    """Run, be lied to, and die."""
    exe = compiled()
    run = exe.on("mpi")
    x, w = np.arange(48, dtype=np.float32).reshape(8, 6), np.ones((6, 4), np.float32)
    shards = run.shards(x, w)
    if "error" in sys.argv:  # of one rank alone
        run(*(run.shards(x[run.rank :], w) if run.rank else shards))
    found, wanted = run(*shards), run.parts(exe(x, w))
    if "end" in sys.argv:  # of one script
        sys.exit(0) if run.rank else run(*shards)
    same = all(np.array_equal(found[name], wanted[name]) for name in wanted)
    planned = all(run.sent[n] == sent[run.rank] for n, sent in exe.plan.n_bytes.items())
    say(run, f"equal {same}, as planned {planned}, y {found['y'].shape}")
    lies = {
        "copy": (shards[0], shards[1] + run.rank),
        "shape": (shards[0][run.rank :], shards[1]),
        "dtype": (shards[0].astype(np.float64 if run.rank else np.float32), shards[1]),
    }
    for lie in lies.values():
        try:
            run(*lie)
        except AxeError as error:
            say(run, str(error))
    try:
        compiled(axe.Mesh({"x": 3})).on("mpi")
    except AxeError as error:
        say(run, str(error).partition("\n")[0])
    MPI.COMM_WORLD.Barrier()  # both have said it
    if run.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    run(*shards)
    say(run, "not reached")


if __name__ == "__main__":
    main()
    sys.exit(0)

"""One rank of `axe launch`: ``python -m axe_eq.run.worker FOLDER TRANSPORT PACK PACK FAMILY ..``.

The packs, as ``module:ATTRIBUTE``, have the transport and the runner of local steps, of that
family, and then the operators of the plan: loading all that are installed takes longer than most
runs.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from axe_eq import plain
from axe_eq.errors import ArgumentError
from axe_eq.mesh.plan import plan_from_json
from axe_eq.mesh.rank import Locals, local_steps, part_of
from axe_eq.pack import by_reference
from axe_eq.run.launch import CODE, ERROR, PLAN, read, said_by, write
from axe_eq.run.ranks import check_shards, run_steps


def main(folder: Path, transport: str, carries: str, runs: str, family: str, *declare: str) -> int:
    """Run this process's rank of the plan in a folder; the exit status."""
    for pack in declare:
        by_reference(pack)
    plan = plan_from_json((folder / PLAN).read_text())
    session = by_reference(carries).transports[transport].open(plan.n_ranks)
    rank, arrays = session.rank, session.arrays
    try:
        shards = {}
        for number, name in enumerate(plan.inputs):
            whole = read(folder / f"input{number}.npy", plan.buffers[name].value_type, mapped=True)
            shards[name] = arrays.given(part_of(plan, name, whole, rank), name)
        runner = by_reference(runs).runners[family]
        if (folder / CODE).exists():
            codes = plain.read("code", json.loads((folder / CODE).read_text()), dict[str, bytes])
            local = Locals({n: runner.load(code) for n, code in codes.items()}, arrays)
        else:
            local = Locals(local_steps(plan, runner.prepare), arrays)
        begin = time.perf_counter()
        check_shards(plan, session, shards)
        done = run_steps(plan, local, session, shards)
        results = [arrays.host(r) for r in done.results()]
        seconds = time.perf_counter() - begin
    except ArgumentError as error:  # about shards: all ranks found it
        if rank == 0:
            said = {"thing": error.thing, "wrong": error.wrong, "expected": error.expected}
            (folder / ERROR).write_text(json.dumps(said))
        return 2
    except BaseException as error:  # of this rank alone: the others wait for it
        session.abort(error)
        raise
    for number, result in enumerate(results):
        write(folder / f"output{number}.{rank}.npy", result)
    (folder / f"rank{rank}.json").write_text(said_by(rank, done.sent, seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))

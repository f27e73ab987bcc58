"""Programs drawn by seed: compiled, emitted, run, and compared with numpy in float64.

``python -m benchmarks.programs --count 3000 --out programs.jsonl`` interprets what was emitted for
an `h200`; ``--on device`` runs it there, ``--target cpu`` on the CPU; ``--target trn2 --on device``
runs the text in the simulator. A line per program is written
as soon as it is known, and programs that the file has are not done again.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from math import prod
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq.check.kernelcheck import JUMPING_SHARE, TOLERANCES, difference
from axe_eq.errors import AxeError, cause, raised_at
from axe_eq.program.meaning import evaluate_nodes
from axe_eq.program.node import OP, Program
from axe_eq.program.ops import cell
from axe_eq.program.signature import signature
from axe_eq.program.types import Array
from axe_eq.prove.certificates.rebuild import in_float64
from axe_eq.prove.programs.marks import on_no_integer
from axe_eq.run.executable import simulates
from benchmarks.drawn_programs import ELEMENTS, MULTIPLY_ADDS, Case, case, inputs, kind_of
from benchmarks.rounding import bounds
from benchmarks.terminal import told

RIGHT, WRONG, REFUSED, NOT_EMITTED, CRASH, LARGE, SLOW = (
    "right", "wrong", "refused", "not emitted", "crash", "not run: large", "slow",
)  # fmt: skip
MOST_SECONDS = 300


@dataclass(frozen=True)
class Outcome:
    """What became of one program.

    Attributes:
        seed: `drawn_programs.case(seed)`.
        name: kind and shapes.
        kind: family.
        state: one of the words above.
        problem: what was refused, or is wrong.
        compile_s: processor seconds of `compile`.
        kernels: chosen.
        wide: f64 or i64 is a type of its values.
    """

    seed: int
    name: str
    kind: str
    state: str
    problem: str = ""
    compile_s: float = 0.0
    kernels: int = 0
    wide: bool = False


def outcome(seed: int, target: str, on: str) -> Outcome:
    """Compile, emit, run and compare the program of a seed.

    Args:
        seed: of the program.
        target: a name, as "h200" or "trn2".
        on: "interpreter" or "device", which is the simulator where the target has one.
    """
    drawn = case(seed)
    wide = any(n.dtype in ("f64", "i64") for n in drawn.program.nodes())
    return replace(_outcome(seed, drawn, target, on), wide=wide)


def _outcome(seed: int, drawn: Case, target: str, on: str) -> Outcome:
    began, state, problem, kernels = time.process_time(), CRASH, "", 0
    try:
        try:
            exe = axe.compile(drawn.program, target=target)
        except AxeError as error:
            return Outcome(seed, drawn.name, drawn.kind, REFUSED, str(error)[:500])
        seconds, kernels = time.process_time() - began, len(exe.kernels)
        try:
            _ = exe.source if target != "cpu" else {}
        except AxeError as error:
            state, problem = NOT_EMITTED, str(error)[:500]
        else:
            state, problem = compared(seed, exe, drawn.program, drawn.values, on)
        return Outcome(seed, drawn.name, drawn.kind, state, problem, round(seconds, 3), kernels)
    except _Slow:
        return Outcome(seed, drawn.name, drawn.kind, SLOW, f"over {MOST_SECONDS} s")
    except Exception as error:
        text = f"{cause(error)}, at {raised_at(error)}"
        return Outcome(seed, drawn.name, drawn.kind, CRASH, text[:500])


def compared(seed: int, exe: Any, program: Program, values: str, on: str) -> tuple[str, str]:
    """State and problem of the compiled program of a seed: run as in `outcome`, and compared."""
    arrays = inputs(seed, program, values)
    runner = exe.schedule.runners.get(exe.target.family)
    computed_here = on == "interpreter" or simulates(runner, exe.target)
    if computed_here and is_large(program):
        return LARGE, ""
    run = exe.interpret if on == "interpreter" else exe
    return judged(program, arrays, _flat(run(*arrays)))


def judged(program: Program, arrays: list[Array], found: Sequence[Array]) -> tuple[str, str]:
    """State and problem of results for these arrays, compared with what the program means."""
    wide, narrow = meanings(program, arrays)
    tolerance = max((TOLERANCES.get(n.dtype, 0.0) for n in program.nodes()), default=0.0)
    share = JUMPING_SHARE if jumps(program) else 0.0
    rounding: list[Array] = []  # worked out for what is further apart than the tolerance
    for number, (f, w, n) in enumerate(zip(found, wide, narrow, strict=True)):
        if np.shape(f) != w.shape:
            return WRONG, f"output {number} has shape {np.shape(f)}, where it means {w.shape}"
        apart = difference(np.asarray(f), w, [n], tolerance, share)
        if apart is not None:
            rounding = rounding or _roundings(program, arrays)
            free = _is_nan(w) | _nobodys(program, arrays)[number]
            moved = np.where(free, np.inf, rounding[number])
            apart = difference(np.asarray(f), w, [n], tolerance, share, moved)
        if apart is not None:
            at, count = apart
            values = f"{f[at]} at {at}, where it means {w[at]}"
            return WRONG, f"output {number} is {values}: {count} of {f.size}"
    return RIGHT, ""


def is_large(program: Program) -> bool:
    """Whether a program is more than an interpreter should be given."""
    work = 0
    for node in program.nodes():
        if node.type.size > ELEMENTS:
            return True
        if node.kind == OP and signature(node.text).monoid:
            work += prod(signature(node.text).extents([a.shape for a in node.args]))
    return work > MULTIPLY_ADDS


def jumps(program: Program) -> bool:
    """Whether a cell jumps where a rounding may change its operand."""
    floats = any(n.dtype in TOLERANCES for n in program.nodes())
    return floats and any(cell(n.cell)[0].jumps for n in program.nodes() if n.kind == OP)


def meanings(program: Program, arrays: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The outputs in float64, and in the program's own types."""
    given = _given(program, arrays)
    wide_given = _wide(given)
    roots = list(program.outputs)
    wide_roots = in_float64(roots)
    with np.errstate(all="ignore"):
        narrow = evaluate_nodes(roots, given)
        wide = evaluate_nodes(wide_roots, wide_given)
    return [wide[r] for r in wide_roots], [narrow[r] for r in roots]


def _given(program: Program, arrays: Sequence[Array]) -> dict[str, Array]:
    names = [i.name for i in program.inputs]
    return {**dict(zip(names, arrays, strict=True)), **program.constants}


def _wide(given: dict[str, Array]) -> dict[str, Array]:
    return {n: a.astype(np.float64) if a.dtype.kind not in "iub" else a for n, a in given.items()}


def _roundings(program: Program, arrays: Sequence[Array]) -> list[Array]:
    errors = bounds(program.nodes(), _wide(_given(program, arrays)))
    return [errors[root] for root in program.outputs]


def _nobodys(program: Program, arrays: Sequence[Array]) -> list[Array]:
    """Of every output the elements that rest on a NaN made an integer, which machines choose."""
    roots = list(program.outputs)
    with np.errstate(all="ignore"):
        marks = on_no_integer(roots, evaluate_nodes(roots, _given(program, arrays)))
    return [marks.get(root, np.zeros(root.shape, bool)) for root in roots]


def _is_nan(array: Array) -> Array:
    """Where a program is undefined: what it is to be there no law keeps, see docs/programs.md."""
    return np.asarray(array != array)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [a for v in value.values() for a in _flat(v)]
    return [a for v in value for a in _flat(v)] if isinstance(value, tuple | list) else [value]


# -- all of them ----------------------------------------------------------------------------------


class _Slow(Exception):
    pass


def _late(*_: Any) -> None:
    raise _Slow


def _one(seed: int, target: str, on: str) -> Outcome:
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(MOST_SECONDS)
    try:
        return outcome(seed, target, on)
    except _Slow:
        return Outcome(seed, f"{seed}", "", SLOW, f"over {MOST_SECONDS} s")
    finally:
        signal.alarm(0)


def outcomes(seeds: Sequence[int], target: str, on: str, jobs: int) -> Iterable[Outcome]:
    """All of them, on several processes, as they end."""
    if jobs <= 1:
        yield from (_one(seed, target, on) for seed in told(seeds, "program"))
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, max_tasks_per_child=100) as pool:
        waiting = [pool.submit(_one, seed, target, on) for seed in seeds]
        ended = as_completed(waiting)
        for _ in told(range(len(waiting)), "program"):
            yield next(ended).result()


def summary(found: Sequence[Outcome]) -> str:
    """How many came out how, and what did not come out right."""
    states = Counter(o.state for o in found)
    lines = [f"{len(found)} programs: " + ", ".join(f"{n} {s}" for s, n in states.most_common())]
    if any(o.state == REFUSED for o in found):
        narrow = [o for o in found if not o.wide]
        made = sum(o.state != REFUSED for o in narrow)
        lines.append(f"of {len(narrow)} without f64 and i64 {made} compile")
    reasons = Counter((o.state, o.problem[:160]) for o in found if o.problem)
    lines += [f"{n:>5} {s}: {why}" for (s, why), n in reasons.most_common(60)]
    return "\n".join(lines)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=60, help="number of seeds")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--on", choices=("interpreter", "device"), default="interpreter")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON lines; those it has are not done again")
    parser.add_argument("--kind", default="", help="only of this kind")
    given = parser.parse_args()
    known: list[Outcome] = []
    if given.out and given.out.exists():
        known = [Outcome(**json.loads(line)) for line in given.out.read_text().splitlines()]
    first = (n for n in count(given.first) if given.kind in ("", kind_of(n)))
    seeds = list(islice(first, given.count))
    left = [s for s in seeds if s not in {o.seed for o in known}]
    for made in outcomes(left, given.target, given.on, given.jobs):
        known.append(made)
        if given.out:
            with given.out.open("a") as file:
                file.write(json.dumps(asdict(made)) + "\n")
    print(summary([o for o in known if o.seed in seeds]))


if __name__ == "__main__":
    main()

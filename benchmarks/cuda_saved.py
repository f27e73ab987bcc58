"""Benchmarks whose programs are compiled and saved anywhere, then timed where there is a GPU.

A benchmark has cases with names. `prepare` of its own saves programs and what was chosen; where the
GPU is, `measured` times every case, prints a line for each and writes all after each. So a case
that fails costs itself alone, and one that is cut off costs nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol, TypeVar

from benchmarks.terminal import need

Found = dict[str, Any]
MODES = ("default", "max-autotune-no-cudagraphs")  # of torch.compile
SETS_BYTES = 300e6  # of buffers that take turns: several times the L2
WORKERS = 12  # that compile for torch side by side, at most


class Named(Protocol):
    """A case of a benchmark."""

    @property
    def name(self) -> str:
        """What files of it are called."""


C = TypeVar("C", bound=Named)


def arguments(doc: str | None, file: str) -> argparse.ArgumentParser:
    """What such a benchmark is told; `file` is where figures go."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=raw)
    parser.add_argument("--prepare", type=Path, help="compile here and save there")
    parser.add_argument("--gpu", action="store_true", help="measure what --saved has")
    parser.add_argument("--saved", type=Path, help="where --prepare saved")
    default = Path(os.environ.get("OUT", "benchmarks/results")) / file
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("--only", nargs="*", default=None, help="beginnings of names")
    return parser


def asked(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """What was asked for; one message where that is nothing, or cannot be done here."""
    options = parser.parse_args()
    options.saved = options.saved or options.prepare
    if not (options.saved if options.gpu else options.prepare or getattr(options, "list", False)):
        parser.error("nothing to do; expected --prepare FOLDER, or --gpu --saved FOLDER")
    if options.gpu:
        need("torch")
    return options


def picked(cases: Iterable[C], only: Sequence[str] | None) -> Iterator[C]:
    """Each case once: all of them, or those whose names begin so."""
    for case in dict.fromkeys(cases):
        if not only or case.name.startswith(tuple(only)):
            yield case


def cases(
    named: Callable[[], Iterable[C]],
    drawn: Callable[..., Iterable[C]],
    only: Sequence[str] | None,
    seed: int | None = None,
) -> list[C]:
    """Named and drawn cases, or those of a seed alone; of them all, or whose names begin so."""
    return list(picked([*named(), *drawn()] if seed is None else drawn(seed), only))


def chosen(exe: Any, more: Callable[[Any], Found] = lambda kernel: {}) -> Found:
    """What was chosen: the estimate, and every kernel's schedule, time and parameters."""
    kernels = [
        {"schedule": k.schedule, **more(k), "us": k.time_s * 1e6, **k.parameters}
        for k in exe.kernels
    ]
    return {"estimate_us": exe.cost["time_s"] * 1e6, "kernels": kernels}


def shown(found: Found) -> str:
    """The kernels of what was chosen, in a line."""
    return "; ".join(" ".join(f"{k}={v}" for k, v in made.items()) for made in found["kernels"])


def prepare(
    cases: Iterable[C],
    folder: Path,
    written: Callable[[C], tuple[Callable[..., Any], Sequence[Any]]],
    more: Callable[[Any], Found] = lambda kernel: {},
) -> None:
    """Compile every case, given as a function and the specs of its arguments, and save it."""
    import axe_eq as axe

    folder.mkdir(parents=True, exist_ok=True)
    for case in cases:
        begin = time.process_time()
        fn, specs = written(case)
        exe = axe.compile(fn, *specs, target="h200")
        found = chosen(exe, more)
        save(exe, folder, case.name, found)
        seconds = time.process_time() - begin
        print(f"{case.name}: {found['estimate_us']:.1f} us, {seconds:.1f} s: {shown(found)}",
              flush=True)  # fmt: skip


def save(exe: Any, folder: Path, name: str, found: Found) -> None:
    """Keep a program and what was chosen under a case's name."""
    exe.save(folder / f"{name}.axe")
    (folder / f"{name}.json").write_text(json.dumps(found), encoding="utf-8")


def compiled(program: Callable[..., Any], sets: Sequence[Sequence[Any]], **how: Any) -> list[Any]:
    """A call of torch.compile's program for every set of tensors; the first has been made."""
    import torch

    torch._dynamo.reset()
    made: Callable[..., Any] = torch.compile(program, dynamic=False, **how)
    made(*sets[0])
    return [partial(made, *given) for given in sets]


def warmed(cases: Iterable[C], compile_one: Callable[[C], None]) -> None:
    """Compile torch's programs side by side: its caches then have the code, and no timings.

    Timings of several at once would be of no use, so what tunes kernels leaves none behind.
    """
    with ProcessPoolExecutor(
        min(WORKERS, os.cpu_count() or 1), get_context("spawn"), _untuned
    ) as pool:
        for done in [pool.submit(compile_one, case) for case in cases]:
            if error := done.exception():
                print("not compiled ahead:", repr(error)[:200], flush=True)


def _untuned() -> None:
    os.environ["TORCHINDUCTOR_AUTOTUNE_LOCAL_CACHE"] = "0"
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def raced(
    case: C,
    saved: Path,
    sets: Sequence[Sequence[Any]],
    program: Callable[..., Any],
    error: Callable[[Any], float],
    *,
    tolerance: float,
    modes: Sequence[str] = MODES,
    more: Callable[[], dict[str, list[Any]]] = dict,
    rounds: int = 9,
) -> Found:
    """A saved program against torch's, both checked by who calls: errors first, then times.

    Args:
        case: what is timed.
        saved: where its program is.
        sets: tensors of a call; calls take turns over them.
        program: the same in torch.
        error: how far results are off.
        tolerance: what is off by more is not timed.
        modes: of torch.compile.
        more: other peers, a call for every set.
        rounds: the median of so many is taken.

    Returns:
        What was chosen, the error, times of all, the best peer's over ours, ours over the estimate.
    """
    from axe_eq.run.store import load
    from benchmarks.cuda import Run, graphs, summary

    about = json.loads((saved / f"{case.name}.json").read_text(encoding="utf-8"))
    exe = load(saved / f"{case.name}.axe")
    calls = [exe.bind(*given) for given in sets]
    found = {"name": case.name, **about, "error": error(calls[0]())}
    runs: dict[str, list[Run]] = {"axe": calls} if found["error"] < tolerance else {}
    runs["eager"] = [partial(program, *given) for given in sets]
    for mode in modes:
        runs[f"compile {mode}"] = compiled(program, sets, mode=mode)
    runs |= more()
    n_bytes = sum(t.nbytes for t in sets[0])
    times = found["times"] = summary(graphs(runs, rounds), n_bytes)
    best = min(v["us"] for key, v in times.items() if key not in ("axe", "copy"))
    ours = times["axe"]["us"] if "axe" in times else math.inf
    return {**found, "ratio": best / ours, "of_estimate": ours / found["estimate_us"]}


def n_sets(n_bytes: float) -> int:
    """Buffers that take turns, of so many bytes each."""
    return max(2, math.ceil(SETS_BYTES / n_bytes))


def measured(
    cases: Iterable[C], measure: Callable[[C], Found], line: Callable[[Found], str], out: Path
) -> list[Found]:
    """Figures of all cases, with those that failed; each is said, and all are written, at once."""
    import torch

    from benchmarks.cuda import machine

    torch.manual_seed(0)
    random.seed(0)
    found: list[Found] = []
    for case in cases:
        try:
            found.append(measure(case))
        except Exception as error:
            found.append({"name": case.name, "failed": repr(error)[:500]})
            print(case.name, "failed:", repr(error)[:300], flush=True)
            continue
        print(f"{case.name}: {line(found[-1])}", flush=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"machine": machine(), "cases": found}, indent=1))
    return found


def times(found: Found) -> str:
    """Microseconds of every way that was timed."""
    return " ".join(f"{key} {v['us']:.2f}" for key, v in found["times"].items())


def summed(what: str, found: Sequence[Found], more: str = "") -> None:
    """Print the geometric mean and the least ratio, if any was measured."""
    if ratios := [c["ratio"] for c in found if c.get("ratio")]:
        mean = statistics.geometric_mean(ratios)
        print(f"{len(ratios)} {what}: geomean {mean:.3f}, least {min(ratios):.3f}{more}")

"""Benchmarks whose programs are compiled and saved anywhere, then timed where there is a GPU.

A benchmark has cases with names. `prepare` of its own saves programs and what was chosen; where the
GPU is, `measured` times every case, prints a line for each and writes all after each. So a case
that fails costs itself alone, and one that is cut off costs nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

Found = dict[str, Any]


class Named(Protocol):
    """A case of a benchmark."""

    @property
    def name(self) -> str:
        """What files of it are called."""


C = TypeVar("C", bound=Named)


def arguments(doc: str | None, file: str) -> argparse.ArgumentParser:
    """What such a benchmark is told; `file` is where figures go."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--prepare", type=Path, help="compile here and save there")
    parser.add_argument("--gpu", action="store_true", help="measure")
    parser.add_argument("--saved", type=Path, help="where --prepare saved")
    default = Path(os.environ.get("OUT", "benchmarks/results")) / file
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("--only", nargs="*", default=None, help="beginnings of names")
    return parser


def picked(cases: Iterable[C], only: Sequence[str] | None) -> Iterator[C]:
    """Each case once: all of them, or those whose names begin so."""
    for case in dict.fromkeys(cases):
        if not only or case.name.startswith(tuple(only)):
            yield case


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

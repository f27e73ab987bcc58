"""Candidates that the assembler spills, of all that are offered for `benchmarks.offered`.

    python -m benchmarks.spills [--only NAME ..] [--step N] [--out FILE.json]

Not the chosen ones alone: tuning builds the others, and another machine's prices choose them. Those
that differ in bands of tiles and slots of rings alone have the same registers, and are compiled
once. Needs NVRTC and no GPU. Exit code 1: some spill.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from axe_eq.errors import AxeError
from axe_eq.extract.price.pricer import Price
from axe_eq_backends.cuda.compile import compile_texts
from axe_eq_backends.cuda.emit import Source
from axe_eq_backends.cuda.make import make
from axe_eq_backends.cuda.target import h200
from benchmarks.machine import machine
from benchmarks.offered import PROGRAMS, offers
from benchmarks.terminal import told

FREE = frozenset({"band", "stages"})  # parameters that take no registers
TOGETHER = 16  # texts that are compiled side by side
SPILLED = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def texts(name: str, step: int = 1) -> Iterator[tuple[str, Source]]:
    """Every `step`-th candidate of a program's kernels, with its text; refused ones have none."""
    fn, specs = PROGRAMS[name]
    for offer in offers(fn, specs):
        kinds = dict[object, Price]()
        for price in offer.prices:
            taken = tuple(p for p in price.parameters if p[0] not in FREE)
            kinds.setdefault((price.schedule, price.row, taken), price)
        for price in list(kinds.values())[::step]:
            try:
                made = make(*offer.made(price), h200)
            except AxeError:
                continue
            way = " ".join(f"{n}={v}" for n, v in price.parameters)
            yield f"{name}: {offer.step.name} {price.schedule} {way}", made.source


def spilled(log: str) -> int:
    """Bytes of a thread that a compiler's log says are spilled, or lie on a stack.

    >>> spilled("0 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads")
    16
    """
    return max(max(map(int, found.groups())) for found in SPILLED.finditer(log))


def checked(names: Sequence[str], step: int = 1) -> dict[str, Any]:
    """How many candidates of programs were compiled, and the bytes of those that spill."""
    found: dict[str, Any] = {"candidates": {}, "spilled": {}}
    for name in told(names, "candidates of"):
        count, left = 0, texts(name, step)
        while some := list(islice(left, TOGETHER)):
            capability = h200.limits["compute_capability"]
            made = compile_texts([(source.text, capability, source.name) for _, source in some])
            count += len(some)
            for (way, _), binary in zip(some, made, strict=True):
                if n_bytes := spilled(binary.log):
                    found["spilled"][way] = n_bytes
                    print(f"{n_bytes} bytes: {way}", flush=True)
        found["candidates"][name] = count
    return found


def main() -> int:
    """Compile and say which spill."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", help="beginnings of names")
    parser.add_argument("--step", type=int, default=1, help="every n-th candidate")
    default = Path(os.environ.get("OUT", "benchmarks/results")) / "spills.json"
    parser.add_argument("--out", type=Path, default=default)
    given = parser.parse_args()
    names = [n for n in PROGRAMS if not given.only or n.startswith(tuple(given.only))]
    if not names:
        parser.error(
            f"--only {' '.join(given.only)}: begins no name; expected of {' '.join(PROGRAMS)}"
        )
    found = checked(names, given.step)
    if not given.only and given.step == 1:
        text = json.dumps({"machine": machine()} | found, indent=1)
        given.out.write_text(text + "\n", encoding="utf-8")
    total = sum(found["candidates"].values())
    print(f"{total} candidates, {len(found['spilled'])} spill")
    return int(bool(found["spilled"]))


if __name__ == "__main__":
    raise SystemExit(main())

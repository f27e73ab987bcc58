"""Pairs of programs, drawn by number: is what is Proved equal? `python -m benchmarks.pairs`.

A third of the drawn pairs has undefined, infinite, overflowing or rounded values; half of them are
rewrites that are true of reals, the others near misses. Every Proved is compared with intervals of
float64, undefined places included, at inputs of many sizes, and its certificate is checked; every
Refuted is compared at its counterexample.

A run is resumed where its file ends; the same seed draws the same pairs on every tree of the
project, so that two trees can be compared.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # where another tree's axe_eq is measured

import axe_eq as axe
from axe_eq import array as xp
from axe_eq.prove.certificates.verdict import ProgramCounterexample
from benchmarks.pair_rewrites import FALSE, TRUE, rewritten
from benchmarks.pair_terms import INPUTS, N, Tree, agreeing, differing, draw, meaning, traced

SPECS = tuple(f"{N}x{N}:{{}}" for _ in INPUTS)
SETS = 14  # inputs at which a pair is compared


def pair(seed: int, number: int) -> tuple[str, Tree, Tree, bool]:
    """Pair number so-and-so: dtype, both sides, and whether it was meant to be true."""
    rng = random.Random(f"{seed}:{number}")
    edge = number % 3 == 0
    dtype = rng.choice(("f16", "f32", "f64", "bf16", "f8e4m3") if edge else ("f32", "f64"))
    left = draw(rng, rng.choice((1, 2, 2, 3)), edge=edge)
    right = rewritten(left, rng, TRUE, rng.randint(1, 4))
    if number % 2:
        return dtype, left, rewritten(right, rng, FALSE, 1), False
    return dtype, left, right, True


def inputs(seed: str) -> Iterator[dict[str, Any]]:
    """Inputs of many sizes: whole numbers with zeros, moderate, large and small ones."""
    rng = np.random.default_rng(abs(hash_of(seed)))
    for n in range(SETS):
        if n < 5:
            draws = (rng.integers(-3, 4, (N, N)).astype(float) for _ in INPUTS)
        elif n < 7:
            draws = (np.full((N, N), float(rng.choice((0, 1, -1)))) for _ in INPUTS)
        elif n < 10:
            draws = (rng.uniform(0.25, 2, (N, N)) for _ in INPUTS)
        else:
            scale = (1.0, 1.0, 100.0, 0.01)[n - 10]
            draws = (rng.uniform(-2, 2, (N, N)) * scale for _ in INPUTS)
        yield dict(zip(INPUTS, draws, strict=True))


def hash_of(text: str) -> int:
    """A number from a text, the same in every process."""
    return random.Random(text).getrandbits(60)


def apart(dtype: str, a: Tree, b: Tree, seed: str) -> str | None:
    """What differs at one of the inputs, with these."""
    for given in inputs(seed):
        left, right = (meaning(tree, dtype, given) for tree in (a, b))
        found = np.argwhere(differing(left, right))
        if len(found):
            at = tuple(int(n) for n in found[0])
            values = " and ".join(f"{v.low[at]}..{v.high[at]}" for v in (left, right))
            return f"{values} at {at} of { ({k: v.tolist() for k, v in given.items()}) }"
    return None


def confirmed(dtype: str, a: Tree, b: Tree, shown: ProgramCounterexample) -> bool | None:
    """Whether sides differ where a counterexample says so; None where float64 cannot tell."""
    arrays = zip(INPUTS, shown.inputs, strict=True)
    given = {name: np.asarray(array, np.float64) for name, array in arrays}
    left, right = (meaning(tree, dtype, given) for tree in (a, b))
    if differing(left, right)[shown.index]:
        return True
    return False if agreeing(left, right)[shown.index] else None


def program_of(tree: Tree) -> Any:
    """A tree as a function of three arrays."""

    def program(x: Any, y: Any, z: Any) -> Any:
        return xp.astype(traced(tree, xp, {"x": x, "y": y, "z": z}), x.dtype)

    return program


def judged(dtype: str, a: Tree, b: Tree, seed: str, budget: float) -> dict[str, Any]:
    """The verdict of a pair and what intervals say of it."""
    start = time.process_time()
    specs = [spec.format(dtype) for spec in SPECS]
    row: dict[str, Any] = {}
    try:
        verdict = axe.equivalent(program_of(a), program_of(b), *specs, budget=budget)
    except axe.AxeError as error:
        return {"verdict": "refused", "why": str(error)[:200]}
    row["verdict"] = type(verdict).__name__
    wrong = apart(dtype, a, b, seed)
    row["equal"] = wrong is None
    if verdict:
        row["accepted"] = axe.check_certificate(verdict.certificate)
        if wrong is not None:
            row |= {"wrong": wrong, "dtype": dtype, "left": repr(a), "right": repr(b)}
    elif isinstance(verdict, axe.Refuted):
        assert isinstance(verdict.counterexample, ProgramCounterexample)
        found = confirmed(dtype, a, b, verdict.counterexample)
        row["confirmed"] = found
        if found is False:
            row |= {"wrong": str(verdict), "dtype": dtype, "left": repr(a), "right": repr(b)}
    return row | {"seconds": round(time.process_time() - start, 3)}


def run(seed: int, count: int, out: Path, budget: float) -> None:
    """Judge pairs, one line each; those that the file has are not drawn again."""
    done = {row["number"] for row in rows(out)}
    with out.open("a") as file:
        for number in range(count):
            if number in done:
                continue
            dtype, a, b, true = pair(seed, number)
            row = judged(dtype, a, b, f"{seed}:{number}", budget)
            file.write(json.dumps({"number": number, "meant": true, **row}) + "\n")
            file.flush()


def rows(out: Path) -> list[dict[str, Any]]:
    """The lines of a file, none where there is no file."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of a run."""
    proved, refuted = (
        [row for row in found if row["verdict"] == verdict] for verdict in ("Proved", "Refuted")
    )
    return {
        "pairs": len(found),
        "verdicts": dict(Counter(row["verdict"] for row in found)),
        "no difference found": sum(bool(row.get("equal")) for row in found),
        "proved": len(proved),
        "proved that differ": sum("wrong" in row for row in proved),
        "refuted that differ": sum(row["confirmed"] is True for row in refuted),
        "refuted that are equal": sum(row["confirmed"] is False for row in refuted),
        "certificates refused": sum(not row["accepted"] for row in proved),
        "CPU seconds": round(sum(row.get("seconds", 0) for row in found)),
    }


def main() -> None:
    """Judge pairs and print the figures of the whole file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of a verdict")
    parser.add_argument("--out", type=Path, required=True, help="a line per pair")
    given = parser.parse_args()
    run(given.seed, given.count, given.out, given.budget)
    print(json.dumps(summary(rows(given.out)), indent=1))


if __name__ == "__main__":
    main()

"""Changed certificates of drawn pairs: `python -m benchmarks.pair_certificates --pairs FILE`.

A certificate of each pair that the file of `benchmarks.pairs` has as Proved is changed at random,
in its statement and in its instances. Of those that the checker still accepts, both sides are
evaluated over the reals: a statement that is false is printed.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq.program.node import INPUT, topological
from axe_eq.program.terms import decode
from axe_eq.prove.certificates.certificate import parse
from axe_eq.prove.certificates.checker import refusal
from axe_eq.prove.certificates.rebuild import in_float64
from axe_eq.prove.programs.compare import real_input
from axe_eq.prove.programs.reals import difference_over_reals, evaluate_reals
from benchmarks.pairs import SPECS, pair, program_of, rows

WORDS = (
    "add", "sub", "mul", "div", "maximum", "exp", "log", "full () 0.0 f32", "full () inf f32",
    "full () 2.0 f32", "full () -1.0 f64", "x", "y", "const_any_x", "f32[3,3]", "f64[3,3]",
    "a b, a b -> a b", "a b -> b a", "a c, c b -> a b; + c", "real_normal/sum_form",
    "real_normal/product_form", "tensor/where_same", "real/factor_left", "real", "exact",
)  # fmt: skip
KINDS = ("moderate", "edges", "edges", "edges")


def leaves(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all numbers and texts."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return [path for key, part in pairs for path in leaves(part, (*at, key))]
    return [at]


def changed(document: Any, rng: random.Random) -> Any:
    """The document with one to three leaves replaced, mostly by others of it."""
    new = json.loads(json.dumps(document))
    paths = leaves(new)
    for _ in range(rng.randint(1, 3)):
        *way, last = rng.choice(paths)
        place = new
        for key in way:
            place = place[key]
        other = document
        for key in rng.choice(paths):
            other = other[key]
        old = place[last]
        step = old + rng.choice((-1, 1)) if isinstance(old, int) else rng.choice(WORDS)
        place[last] = other if type(other) is type(old) and rng.random() < 0.5 else step
    return new


def false_statement(text: str, rng: np.random.Generator) -> str | None:
    """What differs between the sides that a certificate says are equal."""
    statement = parse(text).statement
    sides = [decode(t) for t in (*statement.left, *statement.right)]
    roots, count = in_float64(sides), len(statement.left)
    inputs = [n for n in topological(roots) if n.kind == INPUT]
    for values in KINDS:
        given = {n.text: real_input(n.text, n.type, rng, values) for n in inputs}
        found = evaluate_reals(roots, given)
        for a, b in zip(roots[:count], roots[count:], strict=True):
            if (wrong := difference_over_reals(found[a], found[b], 1e-6)) is not None:
                return wrong
    return None


def main() -> None:
    """Change certificates and print how many were accepted, and what is false of these."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--pairs", type=Path, required=True, help="a file of benchmarks.pairs")
    parser.add_argument("--seed", type=int, default=1, help="of the pairs and of the changes")
    parser.add_argument("--count", type=int, default=5000)
    given = parser.parse_args()
    rng, numbers, counts = random.Random(given.seed), np.random.default_rng(0), Counter[str]()
    proved = [row["number"] for row in rows(given.pairs) if row["verdict"] == "Proved"]
    rng.shuffle(proved)
    each = max(1, -(-given.count // max(1, len(proved))))
    for number in proved:
        dtype, a, b, _ = pair(given.seed, number)
        verdict = axe.equivalent(*map(program_of, (a, b)), *(s.format(dtype) for s in SPECS))
        if not verdict:
            continue
        document = json.loads(str.__str__(verdict.certificate))
        for _ in range(each):
            new = changed(document, rng)
            text = json.dumps(new)
            reason = refusal(text)
            counts["refused" if reason else "the same" if new == document else "accepted"] += 1
            if reason is None and (wrong := false_statement(text, numbers)) is not None:
                counts["false"] += 1
                print(f"pair {number}: {wrong}\n{text}")
        if sum(counts.values()) >= given.count:
            break
    print(json.dumps(dict(counts)))


if __name__ == "__main__":
    main()

"""Checks of the simulator on changed kernels of AWS: `python -m benchmarks.nki_checks CHECKOUTS`.

CHECKOUTS is that of `nki_foreign`. A mutation is one change of one call of a kernel; it counts for
a check where the kernel is refused by it, or warned of by it and by no other. The mutations of our
own kernels are in `tests/unit/nki/sim/test_checks.py`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from axe_eq.errors import AxeError
from axe_eq_backends.nki.sim import CHECKS, NkiError, Report, simulate
from axe_eq_backends.nki.sim.loading import findable, load_file, prelude
from axe_eq_backends.nki.sim.run import find
from axe_eq_backends.nki.target import trn2
from benchmarks.nki_foreign import score
from benchmarks.nki_foreign_cases import CASES, SDK, Case

MOST = 8  # mutations of a check that are tried on a kernel
LESS = "(lambda t: t[0:t.shape[0], 0:t.shape[1] - 1])({})"
SHIFTED = "(lambda t: t.ap([[t.shape[1] - 1, t.shape[0]], [1, t.shape[1]]]))({})"
WIDE = "(lambda s: nl.ndarray((s[0], 60000), {})[0:s[0], 0:s[1]])({})"
ONE = "nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)"
EARLY = f"nisa.tensor_copy(dst={ONE}[0:{{0}}.shape[0]], src={{0}}[0:{{0}}.shape[0], 0:1])"
HALVES = """for half in range(2):
    nisa.dma_copy(dst=(lambda t: t[0:t.shape[0], half:t.shape[1]:2])({}),
                  src=(lambda t: t[0:t.shape[0], half:t.shape[1]:2])({}))"""
Change = Callable[[ast.Call], str | None]  # text instead of a call, which may be statements


def _given(call: ast.Call, name: str) -> str:
    return next((ast.unparse(k.value) for k in call.keywords if k.arg == name), "")


def _with(**new: str) -> Change:
    """Keywords with other values; `{}` in one is the value that it had."""

    def change(call: ast.Call) -> str | None:
        held = {k.arg: ast.unparse(k.value) for k in call.keywords if k.arg}
        if any("{}" in text and name not in held for name, text in new.items()):
            return None
        held |= {name: text.format(held.get(name, "")) for name, text in new.items()}
        given = [*map(ast.unparse, call.args), *(f"{k}={v}" for k, v in held.items())]
        return f"{ast.unparse(call.func)}({', '.join(given)})"

    return change


def _tile(text: Callable[[str, str], str]) -> Change:
    """Another tile on chip, of its shape and the rest of what it is made by."""

    def change(call: ast.Call) -> str | None:
        shape, *rest = [*call.args, *(k.value for k in call.keywords if k.arg == "shape")]
        if "hbm" in _given(call, "buffer"):
            return None
        kept = [ast.unparse(x) for x in rest if x in call.args]
        kept += [f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords if k.arg != "shape"]
        return text(ast.unparse(shape), ", ".join(kept))

    return change


def _twice(call: ast.Call) -> str:
    return f"{ast.unparse(call)}\n{ast.unparse(call)}"


# Check -> instruction or name, and what stands instead.
CHANGES: dict[str, list[tuple[str, Change]]] = {
    "P1": [("ndarray", _tile(lambda s, rest: f"nl.ndarray((129, *{s}[1:]), {rest})"))],
    "P2": [("ndarray", _with(address="(16, 0)"))],
    "P3": [(n, _with(**{a: SHIFTED})) for n, a in (("tensor_copy", "src"), ("activation", "data"))],
    "M1": [("nc_matmul", _with(**{a: LESS})) for a in ("stationary", "moving")],
    "M2": [("nc_matmul", _with(accumulate="True"))],
    "M3": [("nc_matmul", lambda c: f"{ast.unparse(c)}\n{EARLY.format(_given(c, 'dst') or 0)}")],
    "U1": [("dma_copy", lambda c: "pass")],
    "B1": [("dma_copy", _with(src=LESS))],
    "B2": [("tensor_copy", _with(engine="nisa.engine.gpsimd"))],
    "E1": [("tensor_copy", lambda c: ast.unparse(c).replace("tensor_copy", "exponential")),
           ("activation", _with(op="nl.add"))],
    "O1": [(n, _with(**{a: "nl.bitwise_and"}))
           for n, a in (("tensor_tensor", "op"), ("tensor_scalar", "op0"))],
    "C1": [("ndarray", _tile(lambda s, rest: WIDE.format(rest, s)))],
    "C2": [("ndarray", _with(address="(0, 2)"))],
    "D1": [("dma_copy", lambda c: HALVES.format(_given(c, "dst"), _given(c, "src")))],
    "S1": [(n, _twice) for n in ("tensor_copy", "dma_copy", "activation")],
}  # fmt: skip


def mutants(text: str, kernel: str, check: str) -> Iterator[str]:
    """Texts with one call of a kernel changed as a check asks for."""
    tree = ast.parse(text)
    (body,) = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == kernel)
    for name, change in CHANGES[check]:
        sites = [
            n for n in ast.walk(body)
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == name
        ]  # fmt: skip
        for site in sites[:MOST]:
            made = change(site)
            if made is not None:
                mark = ast.Name("CHANGED")
                changed = ast.unparse(copy.deepcopy(tree, {id(site): mark}))
                yield "\n".join(_put(line, made) for line in changed.split("\n"))


def _put(line: str, made: str) -> str:
    if line.strip() != "CHANGED":
        return line.replace("CHANGED", made)
    indent = line[: len(line) - len(line.lstrip())]
    return "\n".join(indent + part for part in made.split("\n"))


def run(case: Case, path: Path, target: Any) -> Report:
    """A kernel of a file in the simulator."""
    with findable(case.dialect, [str(path.parent)]):
        space = load_file(str(path), case.dialect, "", prelude(case.dialect))
        args, options, _ = case.make(space)
        kernel = find(space, case.kernel, case.file)
        return simulate(kernel, case.kernel, *args, **{**options, "dialect": case.dialect,
                                                       "target": target})[1]  # fmt: skip


def tripped(case: Case, path: Path, target: Any, known: set[str]) -> str:
    """The one check that refuses a kernel or alone warns of it anew; "" for none or several."""
    try:
        new = {w.check for w in run(case, path, target).warnings} - known
    except NkiError as error:
        return error.check
    except AxeError:
        return ""
    return new.pop() if len(new) == 1 else ""


def main() -> None:
    """Count by check, and say which has fewer than three."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkouts", type=Path)
    folder = parser.parse_args().checkouts.resolve()
    tried, hit, kernels = Counter[str](), Counter[str](), Counter[str]()
    cases = [c for c in CASES if c.repository == SDK and c.dialect == "0.3" and not c.refused]
    for case in (c for c in cases if score(c, folder).passed):
        source = folder / SDK.partition("/")[2] / case.file
        base = run(case, source, trn2)
        known = {w.check for w in base.warnings}
        short = replace(trn2, limits={**trn2.limits, "instructions": len(base.steps)})
        for check in CHECKS:
            found = 0
            for text in mutants(source.read_text(), case.kernel, check):
                with tempfile.TemporaryDirectory() as new:
                    path = Path(new) / source.name
                    path.write_text(text, encoding="utf-8")
                    found += tripped(case, path, short if check == "S1" else trn2, known) == check
                    tried[check] += 1
            hit[check] += found
            kernels[check] += found > 0
    for check in CHECKS:
        few = "" if hit[check] >= 3 else "  fewer than three"
        print(f"{check}: {hit[check]} of {tried[check]}, in {kernels[check]} kernels{few}")


if __name__ == "__main__":
    main()

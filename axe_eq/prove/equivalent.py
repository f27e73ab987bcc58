"""Equality of programs and of layouts: Proved with a certificate, Refuted, or Unknown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from axe_eq.errors import ArgumentError, ProgramError
from axe_eq.layout import Layout
from axe_eq.pack import Pack
from axe_eq.pack import packs as find_packs
from axe_eq.program.node import Program
from axe_eq.program.spec import Spec
from axe_eq.program.trace import trace
from axe_eq.prove.layouts import equivalent_layouts
from axe_eq.prove.prover import prove_programs
from axe_eq.prove.rebuild import type_difference
from axe_eq.prove.refute import BUDGET as REFUTE_BUDGET
from axe_eq.prove.refute import refute
from axe_eq.prove.search import Budget
from axe_eq.prove.verdict import Proved, Refuted, Unknown, Verdict

_CHEAP = 1 / 32  # share of the refutation budget that is spent before a proof is tried


def equivalent(
    a: Any,
    b: Any,
    *specs: Any,
    numerics: str = "real",
    assume: Sequence[tuple[Any, Any]] = (),
    budget: Budget | float | None = None,
    packs: Iterable[str | Pack] | None = None,
) -> Verdict:
    """Whether two programs, or two layouts, are the same function of their inputs.

    Args:
        a: a layout or the text of one ("cute:(4,8):(8,1)"); or a program, either a traced `Program`
            or a function of arrays.
        b: another of the same kind.
        specs: what the functions' arguments look like, as for `trace`; where one side is a
            `Program`, its inputs by default.
        numerics: "real" (equal over the reals) or "exact" (bit for bit, NaN = NaN).
        assume: pairs of programs over the same inputs that are taken to be equal.
        budget: seconds for the search of a proof, or all its limits.
        packs: whose laws may be used; all installed ones by default.

    Returns:
        `Proved` with a certificate that `check_certificate` accepts, `Refuted` with a
        counterexample, or `Unknown` with what was missing.

    Raises:
        AxeError: arguments that are neither two layouts nor two programs, or do not trace.
    """
    if numerics not in ("real", "exact"):
        raise ArgumentError("numerics", f"is {numerics!r}", "'real' or 'exact'")
    layouts = [isinstance(x, str | Layout) for x in (a, b)]
    if all(layouts):
        if specs or assume:
            raise ArgumentError("layouts", "got specs or assumptions", "two layouts alone")
        return equivalent_layouts(a, b, find_packs(packs))
    if any(layouts):
        raise ArgumentError("equivalent", "got a layout and a program", "two of one kind")
    left, right, *given = _programs([a, b, *(side for pair in assume for side in pair)], specs)
    pairs = [(given[n], given[n + 1]) for n in range(0, len(given), 2)]
    for one, other in pairs:
        if difference := type_difference(one, other) or _input_difference(left, one):
            raise ProgramError("assumption", difference, "programs of the same inputs")
    return _equivalent_programs(left, right, numerics, pairs, _budget(budget), find_packs(packs))


def _programs(sides: Sequence[Any], specs: Sequence[Any]) -> list[Program]:
    known = next((s for s in sides if isinstance(s, Program)), None)
    if known is not None and not specs:
        specs = [Spec(i.node.shape, i.node.dtype, i.dims) for i in known.inputs]
    return [_program(side, specs) for side in sides]


def _program(side: Program | Callable[..., Any], specs: Sequence[Any]) -> Program:
    if isinstance(side, Program):
        return side
    if not callable(side):
        raise ArgumentError(
            "equivalent", f"got {side!r}", "a layout, the text of one, a program or a function"
        )
    return trace(side, *specs)


def _input_difference(a: Program, b: Program) -> str | None:
    types = [[str(i.node.type) for i in p.inputs] for p in (a, b)]
    return None if types[0] == types[1] else f"has inputs {types[1]}, not {types[0]}"


def _budget(budget: Budget | float | None) -> Budget:
    if isinstance(budget, Budget):
        return budget
    if budget is None:
        return Budget()
    if type(budget) not in (int, float) or not budget > 0:
        raise ArgumentError("budget", f"is {budget!r}", "seconds, or a Budget")
    return Budget(seconds=float(budget))


def _equivalent_programs(
    a: Program,
    b: Program,
    numerics: str,
    assume: Sequence[tuple[Program, Program]],
    budget: Budget,
    packs: Sequence[Pack],
) -> Verdict:
    start = time.monotonic()
    difference = type_difference(a, b)
    if difference is not None:
        return Refuted(None, f"the types differ: {difference}")
    # Inputs that break an assumption refute nothing.
    found = None if assume else refute(a, b, numerics=numerics, budget=REFUTE_BUDGET * _CHEAP)
    if found is not None:
        return found
    proof = prove_programs(a, b, packs, numerics, assume, budget)
    if isinstance(proof, Proved):
        return proof
    found = None if assume else refute(a, b, numerics=numerics, seed=1)
    if found is not None:
        return found
    return Unknown(proof, f"{proof.rows} rows, {time.monotonic() - start:.1f} s")

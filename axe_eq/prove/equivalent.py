"""Equality of programs and of layouts: Proved with a certificate, Refuted, or Unknown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from axe_eq.deadline import DeadlinePassed, deadline
from axe_eq.debug import stage, switches
from axe_eq.errors import ArgumentError, ProgramError
from axe_eq.layout import Layout, Mesh
from axe_eq.layout.notation import NO_CONTEXT, Context, checked
from axe_eq.layout.symbolic.expression import LayoutExpr
from axe_eq.pack import Pack
from axe_eq.pack import packs as find_packs
from axe_eq.program.node import Program
from axe_eq.program.spec import Spec
from axe_eq.program.trace import trace
from axe_eq.prove.certificates.rebuild import type_difference
from axe_eq.prove.certificates.verdict import Proved, Unknown, Verdict
from axe_eq.prove.layouts.equality import equivalent_layouts
from axe_eq.prove.programs.decide import decide_programs, proof_text
from axe_eq.prove.programs.search import Budget
from axe_eq.prove.ranks import decide_ranks, is_ranks


def equivalent(
    a: Any,
    b: Any,
    *specs: Any,
    numerics: str = "real",
    assume: Sequence[Any] = (),
    budget: Budget | float | None = None,
    packs: Iterable[str | Pack] | None = None,
    shape: Iterable[int] | None = None,
    mesh: Mesh | None = None,
    itemsize: int | None = None,
) -> Verdict:
    """Whether two programs, or two layouts, are the same function of their inputs.

    >>> axe.equivalent(lambda x: x + x, lambda x: 2 * x, "4:f32").how
    'decided'
    >>> print(axe.equivalent("cute:(4,8):(8,1)", "S[(8,4):(1@m,8@m)]"))
    Proved: cute:(4,8):(8,1) = S[(8,4):(1@m,8@m)], both read as S[(8,4):(1@m,8@m)] (axe_eq 0.1.0)
    >>> print(axe.equivalent(lambda x: x + 1, lambda x: x + 2, "2:i32"))
    Refuted: output 0 differs over the reals
    output 0 at (0,): a gives 2, b gives 3
      x: int32[2] [1, 1]

    Args:
        a: a layout, an expression with unknown layouts or symbolic numbers, or the text of one
            ("cute:(4,8):(8,1)", "tile(A[8], (8), S[(n):(1)], (n))"); or a program, either a traced
            `Program` or a function of arrays.
        b: another of the same kind. A program may also be what ranks of a mesh do together: a plan
            (`Executable.plan`), or an `axe_eq.mesh.RankProgram`. Whole arrays are compared, and
            every copy that a rank has; a counterexample names the rank.
        specs: what the functions' arguments look like, as for `trace`; where one side is a
            `Program`, its inputs by default.
        numerics: "real" (equal over the reals: for finite inputs, undefined at the same ones;
            constants are what their dtype holds, infinities IEEE's, NaN and poles undefined; see
            docs/programs.md) or "exact" (bit for bit, NaN = NaN, where no integer that matters is
            divided by zero).
        assume: pairs of programs over the same inputs, or of layouts, that are taken to be equal;
            of names in layouts also texts: "n % 8 == 0", "n >= 2", "n == 4*k".
        budget: seconds for the whole call, or all limits of the search for a proof. Time is looked
            at between steps, and one round of laws is a step; the switches AXE_TIME_LIMIT_S and
            AXE_MEMORY_LIMIT_MB end everything, in a process of its own.
        packs: whose laws may be used; all installed ones by default.
        shape: extents of the tensor, as for `read`: texts of layouts are read with it, and it says
            the digits of an element at which two layouts differ.
        mesh: the devices, which texts of shardings leave out.
        itemsize: bytes of one element, where a text counts bytes.

    Returns:
        `Proved` with a certificate that `check_certificate` accepts, `Refuted` with a
        counterexample, or `Unknown` with what was missing or the limit that was reached.

    Raises:
        AxeError: arguments that are neither two layouts nor two programs, or do not trace.
    """
    if numerics not in ("real", "exact"):
        raise ArgumentError("numerics", f"is {numerics!r}", "'real' or 'exact'")
    limits = _budget(budget)
    context = checked(shape, mesh, itemsize)
    with deadline(None if budget is None else limits.seconds) as end:
        try:
            return _decided(a, b, specs, numerics, assume, limits, packs, context)
        except DeadlinePassed:
            assert end is not None
            what = f"time: the budget of {end.seconds:g} s was spent"
            return Unknown(what, f"{end.spent():.1f} s")


def _decided(
    a: Any,
    b: Any,
    specs: Sequence[Any],
    numerics: str,
    assume: Sequence[Any],
    budget: Budget,
    packs: Iterable[str | Pack] | None,
    context: Context,
) -> Verdict:
    layouts = [isinstance(x, str | Layout | LayoutExpr) for x in (a, b)]
    if all(layouts):
        if specs:
            raise ArgumentError("layouts", "got specs", "two layouts, with assumptions at most")
        decided: Verdict = stage(
            "decide",
            lambda: equivalent_layouts(a, b, find_packs(packs), assume, budget.seconds, context),
            notes=lambda verdict: {"verdict": type(verdict).__name__.lower()},
            show={3: lambda v: proof_text(v) if isinstance(v, Proved) else str(v)},
        )
        return decided
    if any(layouts):
        raise ArgumentError("equivalent", "got a layout and a program", "two of one kind")
    if context != NO_CONTEXT:
        wrong = "got a shape, a mesh or an itemsize, which say how layouts are read"
        raise ArgumentError("programs", wrong, "specs")
    if is_ranks(a) or is_ranks(b):
        if assume:
            raise ArgumentError("assume", "is given of what ranks do", "pairs for two programs")
        found = find_packs(packs)
        return decide_ranks(
            a, b, specs, numerics, lambda side, given: _programs([side], given)[0],
            lambda left, right: decide_programs(left, right, numerics, [], budget, found),
        )  # fmt: skip
    left, right, *given = _programs([a, b, *_assumed(assume)], specs)
    pairs = [(given[n], given[n + 1]) for n in range(0, len(given), 2)]
    for one, other in pairs:
        if difference := type_difference(one, other) or _input_difference(left, one):
            raise ProgramError("assumption", difference, "programs of the same inputs")
    return decide_programs(left, right, numerics, pairs, budget, find_packs(packs))


def _assumed(assume: Any) -> list[Any]:
    """Both sides of every assumption, one after the other."""
    pairs = list(assume) if isinstance(assume, list | tuple) else None
    if pairs is None or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
        raise ArgumentError("assume", "holds something else than pairs", "pairs of programs")
    return [side for pair in pairs for side in pair]


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
    """The limits asked for; those of the switches where nothing is."""
    if isinstance(budget, Budget):
        return budget
    rows = switches().node_limit or Budget.rows
    if budget is None:
        return Budget(rows=rows, seconds=switches().time_limit_s or Budget.seconds)
    if type(budget) not in (int, float) or not budget > 0:
        raise ArgumentError("budget", f"is {budget!r}", "more than 0 seconds, or a Budget")
    seconds = float(min(budget, sys.float_info.max))  # an integer may be larger than any float
    return Budget(rows=rows, seconds=seconds)

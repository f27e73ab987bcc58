"""Equality of layouts: decided by the algebra, proved by a certificate of layout laws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from axe_eq.debug import switches
from axe_eq.errors import ArgumentError, SearchError
from axe_eq.layout import Difference, Layout, same_map
from axe_eq.layout.notation import NO_CONTEXT, NOTATIONS, Context, prefixed, stated_shape
from axe_eq.layout.notation.text import spelling
from axe_eq.layout.symbolic.expression import LayoutExpr
from axe_eq.layout.symbolic.terms import SORTS, encode, is_answer
from axe_eq.layout.symbolic.text import read_layout
from axe_eq.layout.value.check import check_admitted
from axe_eq.pack import Pack, laws_of
from axe_eq.prove.certificates.certificate import LAYOUTS, Statement
from axe_eq.prove.certificates.verdict import (
    LayoutCounterexample,
    Proved,
    Refuted,
    Unknown,
    Verdict,
)
from axe_eq.prove.layouts.rewrite import Rewriter, Rules, laws_about
from axe_eq.prove.programs.prover import Step, explained, trusting, verdict_of, write_proof
from axe_eq.rule.term import Term


def equivalent_layouts(
    a: Layout | LayoutExpr | str,
    b: Layout | LayoutExpr | str,
    packs: Iterable[Pack],
    assume: Sequence[Any] = (),
    budget: float | None = None,
    context: Context = NO_CONTEXT,
) -> Verdict:
    """Whether two layouts are the same map, for all that they leave open.

    Args:
        a: a layout, an expression, or the text of either, with the notation as a prefix; none means
            axe.
        b: another.
        packs: whose layout laws certificates may use.
        assume: of expressions: texts such as ``n % 8 == 0``, and pairs of expressions that are
            taken to be equal.
        budget: seconds for the search of a proof about expressions.
        context: what texts of layouts leave out; the certificate keeps it with the texts.

    Raises:
        NotationError: a text that does not parse.
        LayoutError: an expression that makes no sense, a shape that a layout does not have, or an
            assumption that is none.
        ArgumentError: a context of expressions, which are not read with one.
    """
    left, right = _read(a, context), _read(b, context)
    if isinstance(assume, str):
        assume = [assume]
    if isinstance(left, Layout) and isinstance(right, Layout) and not assume:
        texts = _texts((a, b), (left, right))
        read = {"texts": texts, "context": context} if texts else {}
        verdict = _equivalent_values(left, right, list(packs), read)
        return _told(verdict, a, b, context.shape or left.box or right.box or ())
    from axe_eq.prove.layouts.expressions import equivalent_expressions

    return equivalent_expressions(left, right, list(packs), assume, budget)


def _read(value: Any, context: Context) -> Layout | LayoutExpr:
    """A side: its text read in the context, or a value that the context must fit."""
    found = read_layout(value, context)
    if isinstance(found, LayoutExpr) and context != NO_CONTEXT:
        wrong = "got a shape, a mesh or an itemsize for an expression"
        raise ArgumentError("equivalent", wrong, "two layouts, or expressions without them")
    if isinstance(value, Layout) and context.shape is not None:
        check_admitted(value.size, context.shape)
    return found


def _told(verdict: Verdict, a: Any, b: Any, dims: tuple[int, ...]) -> Verdict:
    """The verdict; a refutation with the digits of its element and what may have been meant."""
    if not isinstance(verdict, Refuted):
        return verdict
    found = verdict.counterexample
    if isinstance(found, LayoutCounterexample):
        found = replace(found, dims=dims)
    return replace(verdict, counterexample=found, hint=orders(a, b))


def orders(*given: Any) -> str:
    """What to say where two sides number the elements of their dims in different orders."""
    read = [prefixed(x) if isinstance(x, str) else ("axe", "") for x in given]
    first = [n for n, (name, _) in enumerate(read) if NOTATIONS[name].first_fastest]
    if len(first) != 1:
        return ""
    (name, text), (other, _) = read[first[0]], read[1 - first[0]]
    dims = stated_shape(name, text) or ()
    if sum(extent > 1 for extent in dims) < 2:
        return ""
    return (
        f"{name} counts elements with the first mode fastest, {other} with the last; "
        f"as dims in order the modes are read for a shape: {spelling().extents(dims)}"
    )


def _texts(given: Sequence[Any], layouts: Sequence[Layout]) -> tuple[str, ...]:
    """What two layouts were read from; nothing where that is how they are printed."""
    printed = tuple(map(str, layouts))
    pairs = zip(given, printed, strict=True)
    texts = tuple(text.strip() if isinstance(text, str) else shown for text, shown in pairs)
    return () if texts == printed else texts


def _equivalent_values(
    left: Layout, right: Layout, packs: list[Pack], read: Mapping[str, Any]
) -> Verdict:
    try:
        found = same_map(left, right)
        if found is not None:
            return _refuted(found)
        return _prove(left, right, packs, read)
    except SearchError as error:
        return Unknown(str(error))


def _refuted(found: Difference) -> Refuted:
    if found.x is None or found.image_a is None or found.image_b is None:
        return Refuted(None, found.reason)
    return Refuted(LayoutCounterexample(found.x, found.image_a, found.image_b), found.reason)


def _prove(left: Layout, right: Layout, packs: list[Pack], read: Mapping[str, Any]) -> Verdict:
    """The certificate, by the laws, of two layouts with one map, which were read from something."""
    state = statement(encode(left), encode(right), packs, **read)
    steps = rewrite(state, rules(packs))
    if steps is None:
        return Unknown("the maps are equal, but no layout law of the packs in use proves it")
    return proved(state, steps, packs)


def statement(left: Term, right: Term, packs: Sequence[Pack], **more: Any) -> Statement:
    """The statement that two layout terms are equal."""
    versions = {pack.name: pack.version for pack in packs}
    return Statement(LAYOUTS, (left,), (right,), packs=versions, numerics="exact", **more)


def rules(packs: Sequence[Pack]) -> Rules:
    """The layout laws of some packs, ready for rewriting."""
    return _rules(tuple(pack for pack in packs if pack.exact), switches().without)


@lru_cache(maxsize=8)
def _rules(packs: tuple[Pack, ...], without: tuple[str, ...]) -> Rules:
    return Rules(laws_about(laws_of(packs, without), SORTS))


def rewrite(state: Statement, known: Rules) -> list[Step] | None:
    """Law instances that prove a statement by rewriting both sides; None where they do not meet."""
    (left,), (right,) = state.left, state.right
    rewriter = Rewriter(known, is_answer)
    one, two = rewriter.normal(left), rewriter.normal(right)
    if (
        one is two
        or rewriter.decided(one, two, whole=False)
        or _computed(rewriter, one, two)
        or rewriter.decided(one, two, whole=True)
    ):
        return rewriter.steps
    return None


def compare(state: Statement, known: Rules) -> list[Step] | None:
    """Law instances that decide a statement, or all parts in which its sides differ; or None."""
    rewriter = Rewriter(known)
    decided = rewriter.decided(state.left[0], state.right[0], whole=True)
    return rewriter.steps if decided else None


def _computed(rewriter: Rewriter, one: Term, two: Term) -> bool:
    """Whether what computed laws make of both sides meets."""
    forms = [{term, *rewriter.computed(term)} for term in (one, two)]
    return bool(forms[0] & forms[1])


def proved(state: Statement, steps: Sequence[Step], packs: Sequence[Pack]) -> Proved:
    """The verdict with the certificate of instances that suffice, without those not needed."""
    needed = explained(state, steps)
    known = {pack.name: pack for pack in packs}
    laws = {firing.law for firing, _ in needed}
    return verdict_of(write_proof(state, needed, known), trusting(state, needed), laws, known)

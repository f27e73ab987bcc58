"""Laws: equalities of terms, written once as a Python function.

Called with variables a law is the rewrite; called with values it is a ground instance, for its own
soundness test and for re-instantiation by the certificate checker. The docstring's first line
states the law.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args, get_type_hints

from axe_eq.errors import AxeError, PackError, Signal, cause, defined_at, foreign, raised_at, said
from axe_eq.rule.term import (
    MODE,
    Call,
    Cond,
    Expr,
    Ground,
    Primitive,
    Recorder,
    Sort,
    Term,
    Undefined,
    Var,
    postorder,
    sort_of,
)

Sides = tuple[Any, ...]
"""What a law returns: left, right, then its conditions."""


@dataclass(frozen=True)
class Pattern:
    """A law run on variables."""

    params: tuple[Var, ...]
    left: Any
    right: Any
    conditions: tuple[Cond, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Instance:
    """A law run on values: the two sides that are equal."""

    left: Term
    right: Term


@dataclass(frozen=True, eq=False)
class Law:
    """An equality of terms.

    Attributes:
        name: name of the function.
        fn: see the module docstring; returns (left, right, *conditions).
        source: paper and section, or "folklore: ..." or "ours, ...".
        statement: the law as the docstring states it.
        params: names and sorts.
        exact: holds bit for bit on floats; otherwise on reals only.
        expands: may grow terms for ever: run for a bounded number of rounds, never to a fixpoint.
        both_ways: also rewrites right to left.
        demand: answers requests (`place`, `tile`); runs in the last phase.
        normal: the left side is any one term: Python picks the terms (normal forms of sums and
            products).
        sampler: makes argument tuples for the soundness test where types alone do not.
        search: takes part in schedule search; False where both sides always cost the same, so that
            only proofs need it.
        late: its right side is one more way to compute the left, which no other law has to see: in
            schedule search it runs after all others.
    """

    name: str
    fn: Callable[..., tuple[Any, ...]]
    source: str
    statement: str
    params: tuple[tuple[str, Sort], ...]
    exact: bool = True
    expands: bool = False
    both_ways: bool = False
    demand: bool = False
    normal: bool = False
    sampler: Callable[[Any], tuple[Any, ...] | None] | None = field(default=None)
    search: bool = True
    late: bool = False

    @property
    def searches(self) -> bool:
        """Whether it takes part in schedule search: it is no normal form, and not for proofs."""
        return self.search and not self.normal

    @property
    def sort(self) -> Sort:
        """Sort of the two sides; a normal-form law is about its only parameter."""
        if self.normal:
            return self.params[0][1]
        found: Sort = self.pattern().left.sort
        return found

    def pattern(self) -> Pattern:
        """The law on variables.

        Raises:
            PackError: its function fails on them.
        """
        return self._on_variables

    @cached_property
    def _on_variables(self) -> Pattern:
        params = tuple(Var(name, sort) for name, sort in self.params)
        recorder = MODE.recorder = Recorder()
        try:
            sides = self.fn(*params)
        except AxeError as error:
            error.at = error.at or raised_at(error, self.fn)
            raise
        except Exception as error:  # packs are somebody else's code
            raise PackError(
                f"law {self.name!r}", f"its function fails on variables ({cause(error)})",
                "terms of its parameters; what is computed, in functions marked @primitive",
                at=raised_at(error, self.fn),
            ) from error  # fmt: skip
        finally:
            MODE.recorder = None
        problem = _of_sides(sides) or next(filter(None, map(_of_call, recorder.calls)), "")
        if problem:
            expected = "left and right, terms of one sort on arguments they take, then conditions"
            raise PackError(f"law {self.name!r}", problem, expected, at=defined_at(self.fn))
        left, right, *conditions = sides
        return Pattern(params, left, right, tuple(conditions), tuple(recorder.calls))

    def instance(
        self,
        values: Sequence[Ground],
        choices: Sequence[tuple[Ground, ...]] | None = None,
        choose: Callable[[Sequence[tuple[Ground, ...]]], tuple[Ground, ...]] | None = None,
    ) -> Instance | None:
        """Run the law on values; None where its condition fails or a primitive is undefined.

        Args:
            values: one per parameter.
            choices: results of the primitives it calls, in order, to be checked (the checker's
                use).
            choose: picks one result where several hold and no choices are given.
        """
        MODE.choices = list(choices) if choices is not None else None
        MODE.choose = choose
        try:
            left, right, *conditions = self.fn(*values)
        except Undefined:
            return None
        except (AxeError, Signal, MemoryError):
            raise
        except Exception as error:
            wrong = f"its function fails on {said(values if len(values) != 1 else values[0])}"
            wanted = "two terms, then conditions"
            raise foreign(f"law {self.name!r}", error, self.fn, wrong, wanted) from error
        finally:
            MODE.choices = MODE.choose = None
        if not all(conditions):
            return None
        return Instance(left, right)


def _of_sides(sides: Any) -> str:
    """What is wrong with that which a law returned on variables; "" where nothing is."""
    if not isinstance(sides, tuple) or len(sides) < 2:
        return f"its function returns {said(sides)}"
    left, right, *conditions = sides
    for side in (left, right):
        if problem := _of_pattern(side):
            return problem
    if sort_of(left) != sort_of(right):
        return f"its sides are of sorts {sort_of(left)} and {sort_of(right)}"
    for condition in conditions:
        if not isinstance(condition, Cond):
            return f"its function returns {said(condition)} as a condition"
        if problem := _of_pattern(condition.left) or _of_pattern(condition.right):
            return problem
    return ""


def _of_pattern(value: Any) -> str:
    """What is wrong with a value on variables: arguments of other sorts; "" where nothing is."""
    if isinstance(value, Term):
        for term in postorder(value):
            for given, sort in zip(term.args, term.symbol.args, strict=True):
                if problem := _of_argument(given, sort, term.symbol.name):
                    return problem
        return ""
    if isinstance(value, Expr):
        if not value.sort.primitive:
            return f"{value} computes with sort {value.sort}, which has no arithmetic"
        parts = (_of_argument(given, value.sort, str(value)) for given in value.args)
        return next(filter(None, parts), "")
    return "" if sort_of(value) else f"its function returns {said(value)} for a term"


def _of_argument(given: Any, sort: Sort, of: str) -> str:
    if isinstance(given, Expr) and (problem := _of_pattern(given)):
        return problem
    if sort_of(given) != sort:
        found = f", of sort {sort_of(given)}," if sort_of(given) else ""
        return f"{said(given)}{found} is an argument of {of}, which takes sort {sort}"
    return ""


def _of_call(call: Call) -> str:
    """What is wrong with a call of a primitive or an analysis; "" where nothing is."""
    function = call.function
    sorts = function.args if isinstance(function, Primitive) else (function.sort,)
    for given, sort in zip(call.args, sorts, strict=True):
        problem = _of_pattern(given) or _of_argument(given, sort, function.name)
        if problem:
            return problem
    return ""


def annotations_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """What a function's parameters are annotated with; a name is looked up, all else evaluated."""
    written = {p: a for p, a in fn.__annotations__.items() if p != "return"}
    known = {p: fn.__globals__.get(a) if isinstance(a, str) else a for p, a in written.items()}
    return get_type_hints(fn, include_extras=True) if None in known.values() else known


def _sort_of(name: str, parameter: str, hint: Any) -> Sort:
    for extra in get_args(hint)[1:]:
        if isinstance(extra, Sort):
            return extra
    raise PackError(
        f"law {name!r}",
        f"parameter {parameter!r} has no sort",
        "an annotation such as Int, Sig, Value",
    )


def law(
    *,
    source: str,
    exact: bool = True,
    expands: bool = False,
    both_ways: bool = False,
    demand: bool = False,
    normal: bool = False,
    sampler: Callable[[Any], tuple[Any, ...] | None] | None = None,
    search: bool = True,
    late: bool = False,
    name: str = "",
) -> Callable[[Callable[..., tuple[Any, ...]]], Law]:
    """Decorator: make a function a law; see `Law` for the flags.

    Raises:
        PackError: no statement in the docstring, no source, or a parameter without a sort.
    """

    def wrap(fn: Callable[..., tuple[Any, ...]]) -> Law:
        title = name or fn.__name__
        doc = inspect.getdoc(fn) or ""
        statement = " ".join(doc.split("\n\n")[0].split())
        if "=" not in statement:
            raise PackError(
                f"law {title!r}",
                f"its docstring {statement!r} states no equality",
                "'left = right   if ...'",
            )
        if not source:
            raise PackError(
                f"law {title!r}", "has no source", "a paper and section, or 'ours, ...'"
            )
        hints = annotations_of(fn)
        names = list(inspect.signature(fn).parameters)
        params = tuple((p, _sort_of(title, p, hints.get(p))) for p in names)
        return Law(
            title,
            fn,
            source,
            statement,
            params,
            exact,
            expands,
            both_ways,
            demand,
            normal,
            sampler,
            search,
            late,
        )

    return wrap

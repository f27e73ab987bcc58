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

from axe_eq.errors import AxeError, PackError, cause, raised_at
from axe_eq.rule.term import MODE, Call, Cond, Ground, Recorder, Sort, Term, Undefined, Var

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
            left, right, *conditions = self.fn(*params)
        except AxeError:
            raise
        except Exception as error:  # packs are somebody else's code
            raise PackError(
                f"law {self.name!r}", f"its function fails on variables ({cause(error)})",
                "terms of its parameters; what is computed, in functions marked @primitive",
                at=raised_at(error),
            ) from error  # fmt: skip
        finally:
            MODE.recorder = None
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
        finally:
            MODE.choices = MODE.choose = None
        if not all(conditions):
            return None
        return Instance(left, right)


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
        hints = get_type_hints(fn, include_extras=True)
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
        )

    return wrap

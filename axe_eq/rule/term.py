"""Terms: sorts, symbols, variables, integer and text expressions.

Terms are hash-consed, so equal terms are one object and deep terms compare and hash in constant
time. Primitive sorts (`INT`, `STR`) hold Python ints and strs; every other sort is an equality sort
of the e-graph. A pattern is a term that contains variables; arithmetic on primitive variables
builds an `Expr`, comparison a `Cond`.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import Parameter, Signature
from math import prod
from typing import Annotated, Any, ClassVar
from weakref import WeakValueDictionary

from axe_eq.errors import AxeError, PackError, Signal, defined_at, foreign, said

_Operator = Callable[["_Primitive", Any], "Expr"]


@dataclass(frozen=True)
class Sort:
    """A sort: primitive (Python ints or strs) or an equality sort."""

    name: str
    primitive: bool = False

    def __repr__(self) -> str:
        return self.name


INT = Sort("i64", primitive=True)
STR = Sort("String", primitive=True)


@dataclass(frozen=True)
class Symbol:
    """A constructor: name, argument sorts, result sort, one object each. Calling it builds a term.

    `demand` symbols are requests (`place`, `tile`): they may be merged with what answers them but
    are never chosen by extraction.
    """

    name: str
    args: tuple[Sort, ...]
    result: Sort
    demand: bool = False
    _hash: int = field(init=False, repr=False, compare=False)
    _known: ClassVar[dict[tuple[Any, ...], Symbol]] = {}

    def __new__(
        cls, name: str, args: tuple[Sort, ...], result: Sort, demand: bool = False
    ) -> Symbol:
        """The one symbol of this declaration."""
        return cls._known.setdefault((name, args, result, demand), super().__new__(cls))

    def __post_init__(self) -> None:
        # Every term hashes its symbol: computed once, not field by field each time.
        own = hash((self.name, self.args, self.result, self.demand))
        object.__setattr__(self, "_hash", own)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return _symbol, (self.name, self.args, self.result, self.demand)

    def __call__(self, *args: Any) -> Term:
        """The term of these arguments."""
        if len(args) != len(self.args):
            raise PackError(
                f"symbol {self.name!r}", f"got {len(args)} arguments", str(len(self.args))
            )
        return Term(self, tuple(args))


def _symbol(*declared: Any) -> Symbol:
    """The symbol of a declaration that another process has made."""
    return Symbol._known.get(declared) or Symbol(*declared)


class Term:
    """A symbol applied to terms, variables, expressions, ints and strs; hash-consed."""

    __slots__ = ("__weakref__", "_digest", "args", "symbol")
    _known: ClassVar[WeakValueDictionary[tuple[Any, ...], Term]] = WeakValueDictionary()

    symbol: Symbol
    args: tuple[Any, ...]
    _digest: bytes | None

    def __new__(cls, symbol: Symbol, args: tuple[Any, ...]) -> Term:
        """The one term with this symbol and these arguments."""
        key = (symbol, tuple(id(a) if isinstance(a, (Term, Var, Expr)) else a for a in args))
        term = cls._known.get(key)
        if term is None:
            term = super().__new__(cls)
            term.symbol, term.args, term._digest = symbol, args, None
            cls._known[key] = term
        return term

    @property
    def sort(self) -> Sort:
        """Sort of the term."""
        return self.symbol.result

    @property
    def digest(self) -> bytes:
        """A structural digest: equal terms have equal digests in every process; orders terms."""
        if self._digest is None:
            for term in postorder(self):
                if term._digest is None:
                    parts = [term.symbol.name.encode()]
                    for arg in term.args:
                        known = arg._digest if isinstance(arg, Term) else repr(arg).encode()
                        assert known is not None, "subterms come first"
                        parts.append(known)
                    term._digest = hashlib.sha256(b"\0".join(parts)).digest()
        assert self._digest is not None
        return self._digest

    def __repr__(self) -> str:
        if not self.args:
            return self.symbol.name
        return f"{self.symbol.name}({', '.join(map(repr, self.args))})"

    def __copy__(self) -> Term:
        return self

    def __deepcopy__(self, memo: object) -> Term:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """As a table of subterms: pickle would go as deep as the term."""
        number: dict[int, int] = {}
        table: list[tuple[Symbol, tuple[Any, ...], tuple[int | None, ...]]] = []
        for term in postorder(self):
            number[id(term)] = len(table)
            below = tuple(number.get(id(a)) for a in term.args)
            own = tuple(None if n is not None else a for a, n in zip(term.args, below, strict=True))
            table.append((term.symbol, own, below))
        return _of_table, (table,)


def _of_table(table: Iterable[tuple[Symbol, tuple[Any, ...], tuple[int | None, ...]]]) -> Term:
    """The last term of a table in which each says which earlier ones are its arguments."""
    made: list[Term] = []
    for symbol, own, below in table:
        pairs = zip(own, below, strict=True)
        made.append(Term(symbol, tuple(a if n is None else made[n] for a, n in pairs)))
    return made[-1]


def postorder(term: Term, known: Container[Term] = ()) -> Iterator[Term]:
    """Subterms, each once, children first, without recursion; `known` ones are not entered."""
    seen: set[int] = set()
    stack: list[tuple[Term, bool]] = [(term, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node in known:
            continue
        stack.append((node, True))
        stack.extend((a, False) for a in node.args if isinstance(a, Term) and id(a) not in seen)


def mapped(
    term: Term, one: Callable[[Term], Term] = lambda sub: sub, known: Mapping[Term, Term] = {}
) -> Term:
    """The term with every subterm, its arguments done, replaced, if not by what is `known`."""
    images = dict(known)
    for sub in postorder(term, images):
        args = tuple(images[a] if isinstance(a, Term) else a for a in sub.args)
        images[sub] = one(Term(sub.symbol, args))
    return images[term]


def _arithmetic(op: str) -> tuple[_Operator, _Operator]:
    """The methods of an operation: with the pattern on the left, and on the right."""
    return (
        lambda value, other: Expr(op, (value, other), value.sort),
        lambda value, other: Expr(op, (other, value), value.sort),
    )


def _comparison(op: str) -> Callable[[_Primitive, Any], Any]:
    """The method that compares a pattern on the left."""
    return lambda value, other: Cond(op, value, other)


class _Primitive:
    """Arithmetic and comparison shared by primitive variables and expressions."""

    __slots__ = ()
    sort: Sort

    __add__, __radd__ = _arithmetic("+")
    __sub__, __rsub__ = _arithmetic("-")
    __mul__, __rmul__ = _arithmetic("*")
    __floordiv__ = _arithmetic("//")[0]
    __mod__ = _arithmetic("%")[0]
    __eq__ = _comparison("=")
    __ne__ = _comparison("!=")
    __lt__ = _comparison("<")
    __le__ = _comparison("<=")
    __gt__ = _comparison(">")
    __ge__ = _comparison(">=")

    def __neg__(self) -> Expr:
        return Expr("-", (0, self), self.sort)

    def __hash__(self) -> int:
        return id(self)


class Var(_Primitive):
    """A pattern variable."""

    __slots__ = ("name", "sort")

    def __init__(self, name: str, sort: Sort) -> None:
        self.name, self.sort = name, sort

    def __repr__(self) -> str:
        return f"?{self.name}"


class Expr(_Primitive):
    """Arithmetic on primitives, evaluated in rule bodies (egglog panics on right-hand sides)."""

    __slots__ = ("args", "op", "sort")

    def __init__(self, op: str, args: tuple[Any, ...], sort: Sort) -> None:
        self.op, self.args, self.sort = op, args, sort

    def __repr__(self) -> str:
        return f"({self.args[0]!r} {self.op} {self.args[1]!r})"


class Cond:
    """A comparison of primitives; conditions of laws are conjunctions of these."""

    __slots__ = ("left", "op", "right")

    def __init__(self, op: str, left: Any, right: Any) -> None:
        self.op, self.left, self.right = op, left, right

    def __bool__(self) -> bool:
        raise PackError(
            f"condition {self!r}",
            "was used as a truth value inside a law",
            "conditions returned one by one, without and/or/not/if",
        )

    def __repr__(self) -> str:
        return f"{self.left!r} {self.op} {self.right!r}"


Ground = int | str | Term


def sort_of(value: object) -> Sort | None:
    """Sort of a value or pattern; None of what is neither."""
    if isinstance(value, Term | Var | Expr):
        return value.sort
    if isinstance(value, str):
        return STR
    return INT if isinstance(value, int) else None


@dataclass(frozen=True)
class Call:
    """A primitive or an analysis applied to pattern values, with variables for its results."""

    function: Primitive | Analysis
    args: tuple[Any, ...]
    results: tuple[Var, ...]


class Undefined(Signal):
    """A primitive is undefined at these arguments: the law does not apply here."""


class Recorder:
    """Collects the calls made while a law runs on variables."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def call(self, function: Primitive | Analysis, args: tuple[Any, ...]) -> Any:
        """Record a call and return its result variables."""
        number = len(self.calls)
        results = tuple(Var(f"r{number}_{i}", sort) for i, sort in enumerate(function.results))
        self.calls.append(Call(function, args, results))
        return results[0] if len(results) == 1 else results


class Mode(threading.local):
    """What laws run on in this thread: variables (a recorder) or values (with choices)."""

    recorder: Recorder | None = None
    choices: list[tuple[Ground, ...]] | None = None
    choose: Callable[[Sequence[tuple[Ground, ...]]], tuple[Ground, ...]] | None = None


MODE = Mode()


def is_pattern(value: object) -> bool:
    """Whether a value is or contains a variable."""
    if isinstance(value, (Var, Expr)):
        return True
    return isinstance(value, Term) and any(is_pattern(a) for a in value.args)


class Primitive:
    """A partial function on primitives, written in Python, that laws may call.

    In the e-graph it is a table closed on demand: a law's match asks for the entry, Python computes
    it once. With `many` it is a relation: `fn` returns a sequence of results, a law fires for each.

    Args:
        fn: on ints and strs; returns None (or an empty sequence), or raises `Undefined`, where
            undefined.
        args: argument sorts.
        results: result sorts.
        many: whether several results may hold.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Sort, ...],
        results: tuple[Sort, ...],
        many: bool = False,
    ) -> None:
        self.fn, self.args, self.results, self.many = fn, args, results, many
        # Two packs may use one word: the table's name says whose it is.
        self.name = f"{fn.__module__.replace('.', '_')}__{fn.__name__}"
        self._memo: dict[tuple[Ground, ...], tuple[tuple[Ground, ...], ...]] = {}

    def __call__(self, *args: Any) -> Any:
        """The result at these arguments; on patterns, variables that stand for it."""
        if len(args) != len(self.args):
            raise PackError(
                f"primitive {self.name!r}", f"got {len(args)} arguments", str(len(self.args))
            )
        if MODE.recorder is not None and any(map(is_pattern, args)):
            return MODE.recorder.call(self, args)
        rows = self.rows(args)
        if not rows:
            raise Undefined(self.name)
        row = _choose(rows) if self.many else rows[0]
        return row[0] if len(row) == 1 else row

    def rows(self, args: tuple[Ground, ...]) -> tuple[tuple[Ground, ...], ...]:
        """All results at concrete arguments, each a tuple over the result sorts."""
        rows = self._memo.get(args)
        if rows is None:
            rows = self._memo[args] = self._computed(args)
        return rows

    def _computed(self, args: tuple[Ground, ...]) -> tuple[tuple[Ground, ...], ...]:
        """What the function says at these arguments.

        Raises:
            PackError: it fails, or returns something else than results.
        """
        try:
            found = self.fn(*args)
            each = (() if found is None else found) if self.many else [found] * (found is not None)
            rows = tuple(r if isinstance(r, tuple) else (r,) for r in each)
        except Undefined:
            return ()
        except (AxeError, Signal, MemoryError):
            raise
        except Exception as error:
            wrong = f"its function fails on {_given(args)}"
            raise foreign(self._thing, error, self.fn, wrong, self._wanted) from error
        kinds = [int if s is INT else str for s in self.results]
        for row in rows:
            if len(row) != len(kinds) or not all(map(isinstance, row, kinds)):
                wrong = f"its function returns {said(found)} for {_given(args)}"
                raise PackError(self._thing, wrong, self._wanted, at=defined_at(self.fn))
        return rows

    @property
    def _thing(self) -> str:
        return f"primitive {self.fn.__name__!r} of {self.fn.__module__}"

    @property
    def _wanted(self) -> str:
        return f"{', '.join(s.name for s in self.results)}; None where it is undefined"


def _given(args: tuple[Ground, ...]) -> str:
    """Arguments as an error names them."""
    return said(args if len(args) != 1 else args[0])


def _choose(rows: tuple[tuple[Ground, ...], ...]) -> tuple[Ground, ...]:
    """The result of a relation: the next given choice, which must hold, or one that is picked."""
    if MODE.choices is not None:
        row = MODE.choices.pop(0) if MODE.choices else None
        if row not in rows:
            raise Undefined("choice")
        return row
    return MODE.choose(rows) if MODE.choose is not None else rows[0]


class Analysis:
    """A primitive fact about every term of a sort (its type, its size), computed bottom-up.

    In the e-graph it is a function that must not disagree inside a class: a trip-wire against
    unsound laws. With `merge` the members of a class may say more or less of it, and what each of
    them says holds of all.

    Args:
        name: name of the table.
        sort: the sort it is about.
        result: sort of the fact.
        compute: (term, facts of sub-terms by term) -> fact, or None where undefined.
        merge: an egglog expression of `old` and `new` that joins what two members of a class say.
        asked: kept only of the classes that laws ask about, and of those below.
    """

    def __init__(
        self,
        name: str,
        sort: Sort,
        result: Sort,
        compute: Callable[[Term, Callable[[Term], Any]], Any],
        *,
        merge: str = "",
        asked: bool = False,
    ) -> None:
        self.name, self.sort, self.compute = name, sort, compute
        self.merge, self.asked = merge, asked
        self.results: tuple[Sort, ...] = (result,)
        self.rules: list[Callable[..., tuple[Term, Any]]] = []
        self._memo: dict[Term, Any] = {}

    def __call__(self, term: Any) -> Any:
        """The fact about a term; on patterns, a variable that stands for it."""
        if MODE.recorder is not None and is_pattern(term):
            return MODE.recorder.call(self, (term,))
        if MODE.recorder is not None and isinstance(term, Var):
            return MODE.recorder.call(self, (term,))
        fact = self.of(term)
        if fact is None:
            raise Undefined(self.name)
        return fact

    def of(self, term: Term) -> Any:
        """The fact about a concrete term, or None."""
        if term not in self._memo:
            for sub in postorder(term, self._memo):
                if sub.sort == self.sort:
                    self._memo[sub] = self.compute(sub, self._memo.get)
        return self._memo.get(term)

    @contextmanager
    def stating(self, facts: Mapping[Term, Any]) -> Iterator[None]:
        """Facts that hold inside the block, as an encoder states them about inputs."""
        before, self._memo = self._memo, {**self._memo, **facts}
        try:
            yield
        finally:
            self._memo = before

    def forget(self) -> None:
        """Drop remembered facts (they hold terms alive)."""
        self._memo.clear()

    def rule(self, fn: Callable[..., tuple[Term, Any]]) -> Callable[..., tuple[Term, Any]]:
        """Declare how the e-graph computes the fact for one constructor: (term, fact)."""
        self.rules.append(fn)
        return fn

    def follows(self, symbol: Symbol, *parts: int) -> None:
        """Declare that the fact is the product of those about some arguments, 1 where of none."""

        def fact(*args: Any) -> tuple[Term, Any]:
            facts = [self(args[n]) for n in parts]
            return symbol(*args), prod(facts[1:], start=facts[0]) if facts else 1

        names = [f"x{n}" for n in range(len(symbol.args))]
        fact.__name__ = symbol.name
        fact.__annotations__ = {
            name: Annotated[Any, sort] for name, sort in zip(names, symbol.args, strict=True)
        }
        fact.__signature__ = Signature(  # type: ignore[attr-defined]
            [Parameter(name, Parameter.POSITIONAL_ONLY) for name in names]
        )
        self.rule(fact)


def primitive(
    args: Sequence[Sort], results: Sequence[Sort], *, many: bool = False
) -> Callable[[Callable[..., Any]], Primitive]:
    """Decorator: make a Python function on primitives callable inside laws."""
    return lambda fn: Primitive(fn, tuple(args), tuple(results), many)

"""Samples of laws: values for a law's parameters such that its left side is well-typed.

Terms are made from the top: the shape of the value first, then cells and signatures that give it,
then operands. A parameter that occurs again is read wherever its type fits. Whether the law's own
condition holds is for the law to say; `Sampler` learns from the samples for which it did.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from axe_eq.check.lawkinds import Misfit, fits, operand_kinds
from axe_eq.check.scansample import draw_scan, scanned_kinds
from axe_eq.check.schedulesample import ARGUMENTS, Fact, draw_facts, stating
from axe_eq.check.selsample import sample_selector, shapes_for
from axe_eq.egraph.compile import variables_in
from axe_eq.errors import AxeError
from axe_eq.layout.symbolic.instances import layout_of
from axe_eq.layout.symbolic.terms import LAYOUT, encode
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import CELLS, MONOIDS, Cell, cell, join_text
from axe_eq.program.sigalg import elementwise
from axe_eq.program.signature import Affine, Signature, make, plain, signature
from axe_eq.program.terms import (
    ARGS,
    VALUE,
    Cons,
    In,
    Op,
    Scan,
    Sel,
    args,
    op,
    operands,
    sel,
    type_of,
)
from axe_eq.program.types import DTYPES, ValueType, held, value_type
from axe_eq.rule.law import Instance, Law, Pattern
from axe_eq.rule.term import INT, STR, Expr, Ground, Sort, Term, Undefined, Var

Shape = tuple[int, ...]
Values = tuple[Ground, ...]

# How terms of other sorts are made; packs that declare a sort may add theirs.
GENERATORS: dict[Sort, Callable[[Draw, str], Term]] = {}

EXTENTS = (2, 3, 4, 1, 6)
_MONOIDS = {"": 12.0, "+": 4.0}
_MAX_SIZE = 4096


@dataclass
class Maker:
    """One sample being made.

    Attributes:
        draw: its decisions.
        real: make floats of float64, but for a few, for laws that are compared as reals.
        bound: parameters that have a value.
    """

    draw: Draw
    real: bool
    bound: dict[str, Ground] = field(default_factory=dict)
    inputs: list[Term] = field(default_factory=list)
    extents_of: dict[str, tuple[int, ...]] = field(default_factory=dict)
    types_of: dict[str, tuple[ValueType, ...]] = field(default_factory=dict)

    # -- values ------------------------------------------------------------------------------------

    def value(self, pattern: Any, kinds: str, shape: Shape, at: str) -> Term:
        """A term that matches a pattern and has a value of this shape and one of these kinds.

        Any input where there is no pattern.
        """
        if pattern is None:
            return self.leaf(kinds, shape, at)
        if isinstance(pattern, Var):
            if pattern.name not in self.bound:
                self.bound[pattern.name] = self.leaf(kinds, shape, at)
            term = self.bound[pattern.name]
            assert isinstance(term, Term)
        elif pattern.symbol is Op:
            term = self.operator(pattern, kinds, shape, at)
        elif pattern.symbol is Sel:
            term = self.selector(pattern, kinds, shape, at)
        elif pattern.symbol is Scan:
            term = self.scan(pattern, kinds, shape, at)
        else:
            term = self.leaf(kinds, shape, at)
            self.bind(pattern.args, term.args)
        of = type_of.of(term)
        if of is None:
            raise Misfit
        found = value_type(of)
        if found.shape != shape or DTYPES[found.dtype].kind not in kinds:
            raise Misfit
        return term

    def bind(self, patterns: Sequence[Any], values: Sequence[Ground]) -> None:
        """Give values to primitive parameters; what has another value does not fit."""
        for pattern, value in zip(patterns, values, strict=True):
            if isinstance(pattern, Var):
                pattern = self.bound.setdefault(pattern.name, value)
            if pattern != value:
                raise Misfit

    def is_free(self, pattern: Any) -> bool:
        """Whether a pattern is a parameter without a value."""
        return isinstance(pattern, Var) and pattern.name not in self.bound

    def leaf(self, kinds: str, shape: Shape, at: str) -> Term:
        """An input of this shape, sometimes one there is already."""
        of = ValueType(self.dtype(kinds, at), shape)
        same = [t for t in self.inputs if t.args[1] == str(of)]
        if same and self.draw.chance(f"{at}.again", 0.2):
            return self.draw.pick(f"{at}.which", same)
        self.inputs.append(In(f"x{len(self.inputs)}", str(of)))
        return self.inputs[-1]

    def dtype(self, kinds: str, at: str) -> str:
        """An element type of these kinds; most samples share one float, some mix integers."""
        usual, mixed = ("i", 0.5) if self.draw.chance("integers", 0.2) else ("f", 0.1)
        kind = usual if usual in kinds and self.draw.chance(f"{at}.usual", 0.8) else None
        kind = kind or self.draw.pick(f"{at}.kind", kinds)
        names = [n for n, d in DTYPES.items() if d.kind == kind]
        if self.real and kind == "f" and not self.draw.chance(f"{at}.narrow", 0.05):
            return "f64"
        name = f"{at}.dtype" if self.draw.chance(f"{at}.mixed", mixed) else f"dtype {kind}"
        return self.draw.pick(name, names)

    def shape(self, at: str, rank: int | None = None) -> Shape:
        """A small shape."""
        rank = self.draw.weighted(f"{at}.rank", {2: 5, 1: 3, 3: 2, 0: 1}) if rank is None else rank
        return tuple(self.extent(f"{at}.{n}") for n in range(rank))

    def extent(self, at: str) -> int:
        """A small extent."""
        return self.draw.pick(at, EXTENTS)

    # -- block operators ---------------------------------------------------------------------------

    def operator(self, pattern: Term, kinds: str, shape: Shape, at: str) -> Term:
        """A block operator whose parts match the pattern."""
        own, rest = listed(pattern.args[2])
        text = self.cell_text(pattern.args[1], kinds, len(own), rest, at)
        declared, _ = cell(text)
        wanted = operand_kinds(declared, text, kinds)
        parts = [*own, *([None] * self.rest_length(declared, len(own), rest, at))]
        of = pattern.args[0]
        is_new = self.is_free(of)
        # Where the operands speak of a signature, it must be there before them.
        first = not is_new or of.name in variables_in(pattern.args[2])
        if is_new:
            given = [None] * len(parts) if first else parts
            sig, terms = self.new_signature(declared, given, wanted, shape, at)
            self.bound[of.name] = sig.text
        if first:
            sig, terms = self.known_signature(str(self.primitive(of)), parts, wanted, shape, at)
        return Op(sig.text, text, self.close(terms, len(own), rest))

    def primitive(self, pattern: Any) -> Ground:
        """The value of a primitive pattern; what is not bound yet cannot be known here."""
        if isinstance(pattern, Expr) or self.is_free(pattern):
            raise Misfit
        return self.bound[pattern.name] if isinstance(pattern, Var) else pattern

    def rest_length(self, declared: Cell, n: int, rest: Any, at: str) -> int:
        """Number of operands that an operand-list parameter stands for."""
        if rest is None:
            return 0
        if rest.name in self.bound:
            return len(operands(self.bound[rest.name]))  # type: ignore[arg-type]
        if declared.arity is not None:
            return declared.arity - n
        return self.draw.weighted(f"{at}.rest", {0: 2, 1: 3, 2: 1} if n else {1: 2, 2: 4, 3: 1})

    def close(self, terms: Sequence[Term], n: int, rest: Any) -> Term:
        """The operand list; binds the operand-list parameter."""
        tail = args() if rest is None else args(*terms[n:])
        if rest is not None and self.bound.setdefault(rest.name, tail) is not tail:
            raise Misfit
        return args(*terms[:n], rest=tail)  # type: ignore[no-any-return]

    def cell_text(self, pattern: Any, kinds: str, n: int, rest: Any, at: str) -> str:
        """A cell whose value is of one of these kinds, with a fitting number of operands."""
        if not self.is_free(pattern):
            return str(self.primitive(pattern))
        if rest is not None and rest.name in self.bound:
            n += len(operands(self.bound[rest.name]))  # type: ignore[arg-type]
            rest = None
        fitting = [c for c in CELLS.values() if fits(c, n, rest is not None, kinds)]
        if not fitting:
            raise Misfit
        text = self.with_param(self.draw.pick(f"cell {pattern.name}", fitting), kinds, at)
        self.bound[pattern.name] = text
        return text

    def with_param(self, declared: Cell, kinds: str, at: str) -> str:
        """The text of a cell, with the dtype that a cast names."""
        of = f" {self.dtype(kinds, f'{at}.to')}" if declared.result == "param" else ""
        return declared.name + of

    def new_signature(
        self, declared: Cell, parts: Sequence[Any], wanted: Sequence[str], shape: Shape, at: str
    ) -> tuple[Signature, list[Term]]:
        """A signature that gives this shape, and operands for it."""
        monoid = self.monoid(declared, wanted, at)
        dims = list(shape)
        n_reduced = self.draw.integer(f"{at}.reduced", 1, 2) if monoid else 0
        dims += [self.extent(f"{at}.red{n}") for n in range(n_reduced)]
        reads: list[tuple[Affine, ...]] = []
        terms: list[Term] = []
        for n, part in enumerate(parts):
            where = f"{at}.{n}"
            given = self.given(part)
            if given is not None:
                of = value_type(type_of(given)).shape
                read = self.matched(of, dims, reads, where)
            else:
                read, of = self.reading(len(shape), dims, where)
            kinds = wanted[min(n, len(wanted) - 1)]
            reads.append(read)
            terms.append(self.value(part, kinds, of, where))
        n_out, fixed = len(shape), dict(enumerate(dims))
        sig = make(reads, range(n_out), monoid, range(n_out, len(dims)), fixed)
        self.extents_of[sig.text] = tuple(dims)
        return sig, terms

    def monoid(self, declared: Cell, wanted: Sequence[str], at: str) -> str:
        """A reduction for the cell's values, or none."""
        if declared.n_values > 1:
            fits = [m for m in MONOIDS.values() if m.n_values == declared.n_values]
            fits = [m for m in fits if m.commutative]
            indexed = wanted[-1] == "i"
            names = [m.name for m in fits if (m.result == "index") == indexed]
            return self.draw.pick(f"{at}.monoid", names)
        names = [m.name for m in MONOIDS.values() if m.n_values == 1]
        return self.draw.weighted(f"{at}.monoid", dict.fromkeys(names, 1.0) | _MONOIDS)

    def given(self, part: Any) -> Term | None:
        """The value of a part that is known already."""
        known = self.bound.get(part.name) if isinstance(part, Var) else None
        return known if isinstance(known, Term) else None

    def matched(
        self, of: Shape, dims: Sequence[int], reads: Sequence[tuple[Affine, ...]], at: str
    ) -> tuple[Affine, ...]:
        """How an operand of a given shape may be read: as another is, or at dims of its extents."""
        alike = [r for r in reads if _extents(r, dims) == of]
        if alike and self.draw.chance(f"{at}.alike", 0.6):
            return self.draw.pick(f"{at}.like", alike)
        found: list[Affine] = []
        for axis, extent in enumerate(of):
            free = [d for d, e in enumerate(dims) if e == extent and plain(d) not in found]
            if not free:
                raise Misfit
            found.append(plain(self.draw.pick(f"{at}.dim{axis}", free)))
        return tuple(found)

    def reading(self, n_out: int, dims: Sequence[int], at: str) -> tuple[tuple[Affine, ...], Shape]:
        """A projection and the shape of the operand it reads."""
        style = self.draw.weighted(f"{at}.read", {"all": 10, "some": 6, "window": 1.5, "turn": 3})
        chosen = list(range(len(dims)))
        if style in ("some", "window"):
            chosen = [d for d in chosen if self.draw.chance(f"{at}.has{d}", 0.65)]
        if style == "turn":
            chosen = self.draw.shuffled(f"{at}.turn", chosen)
        read = [plain(d) for d in chosen]
        if style == "window":
            read = [self.window(p, chosen, f"{at}.w{n}") for n, p in enumerate(read)]
        return tuple(read), _extents(read, dims, self.draw if style == "window" else None)

    def window(self, p: Affine, chosen: Sequence[int], at: str) -> Affine:
        """A plain dim, or a strided, shifted or joint reading that starts with it."""
        dim = p.terms[0][0]
        steps = {dim: self.draw.integer(f"{at}.step", 1, 2)}
        if self.draw.chance(f"{at}.joint", 0.5):
            steps[self.draw.pick(f"{at}.with", chosen)] = 1
        offset = self.draw.integer(f"{at}.offset", 0, 1)
        return Affine.of(steps, offset) if self.draw.chance(f"{at}.is", 0.6) else p

    def known_signature(
        self, text: str, parts: Sequence[Any], wanted: Sequence[str], shape: Shape, at: str
    ) -> tuple[Signature, list[Term]]:
        """Operands for a signature that is given."""
        sig = signature(text)
        if len(sig.operands) != len(parts) or sig.n_out != len(shape):
            raise Misfit
        before = self.extents_of.get(sig.text)
        dims = list(before) if before else [self.extent(f"{at}.e{d}") for d in range(sig.n_dims)]
        dims[: sig.n_out] = shape
        for d, e in sig.fixed:
            dims[d] = e
        terms = []
        for n, (part, read) in enumerate(zip(parts, sig.operands, strict=True)):
            kinds = wanted[min(n, len(wanted) - 1)]
            terms.append(self.value(part, kinds, _extents(read, dims), f"{at}.{n}"))
        return sig, terms

    # -- selectors ---------------------------------------------------------------------------------

    def selector(self, pattern: Term, kinds: str, shape: Shape, at: str) -> Term:
        """A selector whose parts match the pattern."""
        parts, rest = listed(pattern.args[1])
        if rest is not None:
            parts = [*parts, *([None] * self.draw.integer(f"{at}.rest", 0, 1))]
        unbound = self.is_free(pattern.args[0])
        spec = None if unbound else str(self.primitive(pattern.args[0]))
        given = [self.given(p) for p in parts]
        known = [None if t is None else value_type(type_of(t)) for t in given]
        if unbound and self.types_of and self.draw.chance(f"{at}.like", 0.3):
            spec = self.draw.pick(f"{at}.which", list(self.types_of))
        name = self.dtype(kinds, f"{at}.of")
        if any(known):
            name = next(t.dtype for t in known if t is not None)
        of = ValueType(name, shape)
        if spec is not None:
            found = shapes_for(self.draw, at, spec, self.types_of.get(spec), known, of)
        else:
            found = sample_selector(self.draw, at, known, of)
        if found is None:
            raise Misfit
        text, shapes = found
        if unbound:
            self.bound[pattern.args[0].name] = text
        kind = DTYPES[name].kind if parts else kinds
        terms = [
            self.value(part, kind, of, f"{at}.{n}")
            for n, (part, of) in enumerate(zip(parts, shapes, strict=True))
        ]
        self.types_of[text] = tuple(value_type(type_of(t)) for t in terms)
        return Sel(text, self.close(terms, len(listed(pattern.args[1])[0]), rest))

    # -- scans -------------------------------------------------------------------------------------

    def scan(self, pattern: Term, kinds: str, shape: Shape, at: str) -> Term:
        """A scan whose parts match the pattern."""
        parts, rest = listed(pattern.args[1])
        if self.is_free(pattern.args[0]):
            self.bound[pattern.args[0].name] = draw_scan(self.draw, at, kinds, len(shape))
        text = str(self.primitive(pattern.args[0]))
        wanted = scanned_kinds(text, kinds)
        given = [*parts, *([None] * (len(wanted) - len(parts) if rest is not None else 0))]
        if len(given) != len(wanted):
            raise Misfit
        terms = [
            self.value(part, of, shape, f"{at}.{n}")
            for n, (part, of) in enumerate(zip(given, wanted, strict=True))
        ]
        return Scan(text, self.close(terms, len(parts), rest))

    # -- other sorts -------------------------------------------------------------------------------

    def other(self, pattern: Any, at: str) -> Ground:
        """A value of a primitive sort or of a sort with a generator, matching the pattern."""
        if isinstance(pattern, Var):
            if pattern.name not in self.bound:
                self.bound[pattern.name] = self.fresh(pattern.sort, f"{at}.{pattern.name}")
            return self.bound[pattern.name]
        if isinstance(pattern, Term):
            if pattern.sort == VALUE:
                return self.value(pattern, "fib", self.shape(at), at)
            if pattern.symbol in ARGUMENTS:
                return self.request(pattern, at)
            parts = (self.other(a, f"{at}.{n}") for n, a in enumerate(pattern.args))
            return Term(pattern.symbol, tuple(parts))
        return self.primitive(pattern)

    def request(self, pattern: Term, at: str) -> Term:
        """A term whose primitive arguments depend on its other ones."""
        sorts = list(enumerate(pattern.symbol.args))
        made = {n: self.other(pattern.args[n], f"{at}.{n}") for n, s in sorts if not s.primitive}
        texts = [n for n, s in sorts if s.primitive]
        others = [term for term in made.values() if isinstance(term, Term)]
        drawn = ARGUMENTS[pattern.symbol](self.draw, at, others)
        self.bind([pattern.args[n] for n in texts], drawn)
        made |= zip(texts, drawn, strict=True)
        return Term(pattern.symbol, tuple(made[n] for n, _ in sorts))

    def fresh(self, sort: Sort, at: str) -> Ground:
        """A value for a parameter."""
        if sort == INT:
            return self.draw.integer(at, 0, 8)
        if sort == STR:
            return self.draw.pick(at, ("m", "n", "lane"))
        if sort == VALUE:
            return self.random_value(2, at)
        if sort == ARGS:
            return args(self.leaf("f", self.shape(at), at))  # type: ignore[no-any-return]
        if sort not in GENERATORS:
            raise Misfit
        return GENERATORS[sort](self.draw, at)

    def random_value(self, depth: int, at: str) -> Term:
        """A value made of a few operators, mostly those that normal forms see through."""
        kinds = "i" if self.draw.chance(f"{at}.ring", 0.15) else "f"
        return self._random(depth, kinds, self.shape(at), at)

    def _random(self, depth: int, kinds: str, shape: Shape, at: str) -> Term:
        if depth == 0 or self.draw.chance(f"{at}.leaf", 0.15):
            return self.leaf(kinds, shape, at)
        if self.draw.chance(f"{at}.moved", 0.2):
            of = ValueType(self.dtype(kinds, at), shape)
            found = sample_selector(self.draw, at, [None], of)
            if found is None:
                raise Misfit
            text, (inner_shape,) = found
            return sel(text, self._random(depth - 1, kinds, inner_shape, f"{at}.0"))
        if kinds == "f" and self.draw.chance(f"{at}.twice", 0.2):
            return self._twice(depth, shape, at)
        open_cells = [
            c.name
            for c in CELLS.values()
            if c.associative or not c.rounds or self.draw.chance(f"{at}.any {c.name}", 0.15)
        ]
        names = [n for n in open_cells if fits(CELLS[n], 1, True, kinds)]
        declared = CELLS[self.draw.pick(f"{at}.cell", names)]
        text = self.with_param(declared, kinds, at)
        n = declared.arity or self.draw.integer(f"{at}.n", 1, 3)
        inner = [Var(f"{at}.{i}", VALUE) for i in range(n)]
        wanted = operand_kinds(declared, text, kinds)
        sig, leaves = self.new_signature(declared, inner, wanted, shape, at)
        grown = [
            self._random(depth - 1, DTYPES[of.dtype].kind, of.shape, f"{at}.{i}")
            for i, of in enumerate(value_type(type_of(x)) for x in leaves)
        ]
        return op(sig.text, text, *grown)

    def _twice(self, depth: int, shape: Shape, at: str) -> Term:
        """A value with itself: a multiple more, or less, or times it."""
        inner = self._random(depth - 1, "f", shape, f"{at}.both")
        of = type_of.of(inner)
        if of is None:
            raise Misfit
        rank, name = len(shape), value_type(of).dtype
        value = self.draw.pick(f"{at}.times", (1.0, 2.0, -1.0, 0.0, 2049.0))
        number = sel(join_text("full", (), held(value, name), name))
        other = op(make([range_of(rank), []], range(rank)).text, "mul", inner, number)
        how = self.draw.pick(f"{at}.how", ("add", "sub", "mul"))
        return op(elementwise(rank, 2).text, how, other, inner)


def listed(pattern: Any) -> tuple[list[Any], Any]:
    """The operands that a pattern lists, and the parameter for the others, if any."""
    parts = []
    while isinstance(pattern, Term) and pattern.symbol is Cons:
        parts.append(pattern.args[0])
        pattern = pattern.args[1]
    return parts, pattern if isinstance(pattern, Var) else None


def range_of(rank: int) -> tuple[Affine, ...]:
    """The dims of a value, each read as it is."""
    return tuple(map(plain, range(rank)))


def _layout(draw: Draw, at: str) -> Term:
    """A small layout."""
    rng = random.Random(draw.integer(f"{at}.seed", 0, 2**32))
    return encode(layout_of(rng, draw.pick(f"{at}.size", (1, 2, 3, 4, 6, 8, 12))))


GENERATORS[LAYOUT] = _layout


def _extents(read: Sequence[Affine], dims: Sequence[int], slack: Draw | None = None) -> Shape:
    """Extents of the operand dims that projections read; windows may leave a rest unread."""
    found = []
    for n, p in enumerate(read):
        top = p.offset + sum(c * (dims[d] - 1) for d, c in p.terms if c > 0)
        unread = slack.integer(f"slack {n}", 0, 1) if slack and p.plain is None else 0
        found.append(top + 1 + unread)
    if prod(found) > _MAX_SIZE:
        raise Misfit
    return tuple(found)


# -- samples of laws -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Values of a law's parameters for which it holds, its two sides there, and what is stated."""

    values: Values
    instance: Instance
    facts: tuple[Fact, ...] = ()


@dataclass
class Sampler:
    """Draws samples of one law.

    Attributes:
        tried: samples with a well-typed left side since the first usable one was found.
        usable: those for which the law's condition holds.
        explored: samples tried before the first usable one.
        refused: why the last attempt was refused that did not get as far as that; "" where its
            decisions merely did not fit together.
    """

    law: Law
    rng: random.Random
    tried: int = 0
    usable: int = 0
    explored: int = 0
    refused: str = ""
    _models: list[Mapping[str, float]] = field(default_factory=list)
    _pattern: Pattern | None = None

    def __post_init__(self) -> None:
        if not self.law.normal and self.law.sampler is None:
            self._pattern = self.law.pattern()

    def samples(self, attempts: int) -> Iterator[Sample]:
        """Usable samples among so many attempts."""
        for _ in range(attempts):
            sample = self.attempt()
            if sample is not None:
                yield sample

    def attempt(self) -> Sample | None:
        """One sample; None where it is not usable."""
        model = self.rng.choice(self._models) if self._models else None
        draw = Draw(self.rng, model, self.rng.choice((0.0, 0.5, 0.8, 0.9, 0.95)) if model else 0.0)
        try:
            values, facts = self._values(draw)
            if values is None:
                return None
            with stating(facts):
                instance = self.law.instance(values, choose=lambda rows: draw.pick("row", rows))
        except (Misfit, Undefined):
            return None
        except AxeError as error:
            self.refused = str(error)
            return None
        return self._count(values, instance, draw, facts)

    def _count(
        self, values: Values, instance: Instance | None, draw: Draw, facts: Sequence[Fact]
    ) -> Sample | None:
        if instance is not None and not self._models:
            self.tried = 0
        self.tried += 1
        if instance is None:
            self.explored += not self._models
            return None
        self.usable += 1
        self._models = [*self._models[-30:], draw.made]
        return Sample(values, instance, tuple(facts))

    def _values(self, draw: Draw) -> tuple[Values | None, list[Fact]]:
        """Values of the parameters, and what is stated about inputs."""
        if self.law.sampler is not None:
            return self.law.sampler(draw), []
        maker = Maker(draw, real=self.law.demand or not self.law.exact)
        if self._pattern is None:
            return tuple(maker.fresh(sort, name) for name, sort in self.law.params), []
        left = self._pattern.left
        if left.sort == VALUE:
            maker.value(left, "fib", maker.shape("shape"), "t")
        else:
            maker.other(left, "t")
        values = tuple(maker.bound[name] for name, _ in self.law.params)
        return values, draw_facts(draw, self._pattern.calls, maker.inputs)

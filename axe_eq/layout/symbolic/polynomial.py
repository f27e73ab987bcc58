"""Integer polynomials in positive integers: symbolic extents, strides and offsets.

Every name stands for an integer of at least 1. Polynomials are kept as sorted monomials, so equal
ones are equal objects with one text, and what holds of the text holds for all numbers. A quotient
that is not known to be exact is an atom of its own, written ``(n/8)``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import resources
from itertools import groupby
from math import prod
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput, v_args

from axe_eq.errors import LayoutError

Monomial = tuple[tuple[str, int], ...]  # (atom, power), sorted by atom

MAX_TERMS = 256
MAX_DEGREE = 32
MAX_BITS = 4096  # of a coefficient
MAX_TEXT = 4096


class Polynomial:
    """A polynomial; immutable, compared and hashed by value.

    Args:
        terms: monomial -> coefficient; zeros are dropped.

    Raises:
        LayoutError: too many terms, too high a degree or too large a coefficient.
    """

    __slots__ = ("_text", "terms")

    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        kept = sorted(((m, c) for m, c in terms.items() if c), key=_order)
        if len(kept) > MAX_TERMS:
            raise LayoutError("polynomial", f"{len(kept)} terms", f"at most {MAX_TERMS}")
        for monomial, coefficient in kept:
            if sum(power for _, power in monomial) > MAX_DEGREE:
                raise LayoutError("polynomial", f"degree over {MAX_DEGREE}", "a smaller one")
            if coefficient.bit_length() > MAX_BITS:
                raise LayoutError("polynomial", f"a number over {MAX_BITS} bits", "a smaller one")
        self.terms = tuple(kept)
        self._text: str | None = None

    # ---- kinds ----------------------------------------------------------------------------------

    @property
    def constant(self) -> int | None:
        """Its value, where it has no names."""
        if not self.terms:
            return 0
        monomial, coefficient = self.terms[0]
        return coefficient if len(self.terms) == 1 and not monomial else None

    @property
    def atoms(self) -> frozenset[str]:
        """Names, and quotients that are not known to be exact."""
        return frozenset(atom for monomial, _ in self.terms for atom, _ in monomial)

    def at_least(self, bound: int) -> bool:
        """Whether it is known to be at least `bound` for all positive integers.

        Sufficient, not necessary: with every name written ``1 + x``, no coefficient is negative.
        """
        shifted = (self - bound).substitute(lambda atom: ONE + name(atom))
        return all(coefficient >= 0 for _, coefficient in shifted.terms)

    # ---- arithmetic -----------------------------------------------------------------------------

    def __add__(self, other: Polynomial | int) -> Polynomial:
        total = dict(self.terms)
        for monomial, coefficient in poly(other).terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return Polynomial(total)

    __radd__ = __add__

    def __neg__(self) -> Polynomial:
        return Polynomial({monomial: -coefficient for monomial, coefficient in self.terms})

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self + -poly(other)

    def __rsub__(self, other: int) -> Polynomial:
        return poly(other) - self

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        total: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in poly(other).terms:
                monomial = _times(left, right)
                total[monomial] = total.get(monomial, 0) + a * b
        return Polynomial(total)

    __rmul__ = __mul__

    def __pow__(self, power: int) -> Polynomial:
        if power > MAX_DEGREE:
            raise LayoutError("polynomial", f"degree over {MAX_DEGREE}", "a smaller one")
        return prod([self] * power, start=ONE)

    def __truediv__(self, other: Polynomial | int) -> Polynomial:
        """The quotient: a polynomial where it is one, else an atom of its own.

        Raises:
            LayoutError: the divisor is 0, or both are numbers and the quotient is no integer.
        """
        divisor = poly(other)
        exact = self.divided(divisor)
        if exact is not None:
            return exact
        if not divisor.terms or (self.constant is not None and divisor.constant is not None):
            raise LayoutError(f"quotient {self}/{divisor}", "is no integer", "an exact one")
        return name(f"({_bracketed(self)}/{_bracketed(divisor)})")

    def divided(self, divisor: Polynomial | int) -> Polynomial | None:
        """The polynomial that times the divisor is this one, or None."""
        by = poly(divisor)
        if not by.terms:
            return None
        lead, factor = _lead(by)
        rest, quotient = self, Polynomial({})
        while rest.terms:
            monomial, coefficient = _lead(rest)
            part = _over(monomial, lead)
            if part is None or coefficient % factor:
                return None
            term = Polynomial({part: coefficient // factor})
            quotient += term
            rest -= term * by
        return quotient

    def substitute(self, image: Callable[[str], Polynomial | int]) -> Polynomial:
        """The polynomial with every atom replaced by its image."""
        images = {atom: poly(image(atom)) for atom in sorted(self.atoms)}
        total = Polynomial({})
        for monomial, coefficient in self.terms:
            part = Polynomial({(): coefficient})
            for atom, power in monomial:
                part *= images[atom] ** power
            total += part
        return total

    def at(self, numbers: Mapping[str, int]) -> int:
        """The value at some numbers.

        Raises:
            LayoutError: a name without a number, or a quotient that is no integer there.
        """
        value = self.substitute(lambda atom: _value(atom, numbers)).constant
        assert value is not None  # every atom has a number
        return value

    # ---- identity and text ----------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.constant == other
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    def __str__(self) -> str:
        if self._text is None:
            self._text = "".join(_term(m, c, n > 0) for n, (m, c) in enumerate(self.terms)) or "0"
        return self._text

    def __repr__(self) -> str:
        return f"parse({str(self)!r})"


def _order(term: tuple[Monomial, int]) -> tuple[Any, ...]:
    """Higher degrees first, then by atoms: the leading term stands first, a number last."""
    monomial, _ = term
    return -sum(power for _, power in monomial), [(atom, -power) for atom, power in monomial]


def _lead(polynomial: Polynomial) -> tuple[Monomial, int]:
    """The leading term in an order that products respect: by the powers of the atoms in turn."""
    atoms = sorted(polynomial.atoms)
    return max(polynomial.terms, key=lambda term: [dict(term[0]).get(atom, 0) for atom in atoms])


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    both = sorted((*a, *b))
    return tuple(
        (atom, sum(power for _, power in group))
        for atom, group in groupby(both, key=lambda pair: pair[0])
    )


def _over(a: Monomial, b: Monomial) -> Monomial | None:
    """The monomial that times b is a, or None."""
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) - power
    if any(power < 0 for power in powers.values()):
        return None
    return tuple(sorted((atom, power) for atom, power in powers.items() if power))


def _term(monomial: Monomial, coefficient: int, signed: bool) -> str:
    sign = "-" if coefficient < 0 else "+" if signed else ""
    factors = [f"{atom}**{power}" if power > 1 else atom for atom, power in monomial]
    if abs(coefficient) != 1 or not factors:
        factors.insert(0, str(abs(coefficient)))
    return sign + "*".join(factors)


def _bracketed(polynomial: Polynomial) -> str:
    text = str(polynomial)
    return text if text.isalnum() else f"({text})"


def _value(atom: str, numbers: Mapping[str, int]) -> int:
    if atom in numbers:
        return numbers[atom]
    if not atom.startswith("("):
        raise LayoutError(f"name {atom!r}", "has no number", f"one of {sorted(numbers)}")
    above, below = (part.at(numbers) for part in fraction(atom))
    if below == 0 or above % below:
        raise LayoutError(f"quotient {atom}", f"{above}/{below}", "an integer")
    return above // below


# ---- making -------------------------------------------------------------------------------------


def name(atom: str) -> Polynomial:
    """The polynomial that is one atom."""
    return Polynomial({((atom, 1),): 1})


def poly(value: Polynomial | int | str) -> Polynomial:
    """A polynomial of an integer, or of a text.

    Raises:
        LayoutError: a text that is no polynomial.
    """
    if isinstance(value, Polynomial):
        return value
    return parse(value) if isinstance(value, str) else Polynomial({(): value})


def integer(digits: str) -> int:
    """The integer of a text's digits.

    Raises:
        LayoutError: one that no polynomial holds, however long; Python reads only short ones.
    """
    if len(digits.lstrip("0")) > MAX_BITS // 3:  # a digit has more than 3 bits
        raise LayoutError("polynomial", f"a number over {MAX_BITS} bits", "a smaller one")
    return int(digits.lstrip("0") or "0")


def product(values: Iterable[Polynomial | int]) -> Polynomial:
    """The product of some numbers."""
    return prod((poly(value) for value in values), start=ONE)


def fraction(atom: str) -> tuple[Polynomial, Polynomial]:
    """Dividend and divisor of a quotient that is an atom."""
    depth, inside = 0, atom[1:-1]
    for place, character in enumerate(inside):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "/" and depth == 0:
            return parse(inside[:place]), parse(inside[place + 1 :])
    raise LayoutError(f"quotient {atom!r}", "has no division", "(n/8)")


@v_args(inline=True)
class Arithmetic(Transformer[Token, Any]):
    """Makes numbers of parsed sums, products, powers and quotients of names and integers."""

    add, sub, mul, neg = operator.add, operator.sub, operator.mul, operator.neg
    div = operator.truediv  # an atom of its own where it is no polynomial

    def number(self, token: Token) -> Polynomial:
        """An integer."""
        return poly(integer(token))

    def name(self, token: Token) -> Polynomial:
        """A name."""
        return name(str(token))

    def times(self, factor: Token, of: Polynomial) -> Polynomial:
        """``4n``."""
        return poly(integer(factor)) * of

    def name_pow(self, token: Token, power: Token) -> Polynomial:
        """A power of a name after a factor."""
        return name(str(token)) ** integer(power)

    def pow(self, a: Polynomial, power: Token) -> Polynomial:
        """``a ** 2``."""
        return a ** integer(power)


def rules(name: str) -> str:
    """The rules of a grammar of this folder, numbers' or expressions'."""
    package = resources.files(__name__.rpartition(".")[0])
    return package.joinpath(f"{name}.lark").read_text("utf-8")


@lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = "?start: sum\n" + rules("number")
    return Lark(grammar, parser="lalr", transformer=Arithmetic())  # no recursion over deep texts


@lru_cache(maxsize=4096)
def parse(text: str) -> Polynomial:
    """The polynomial of a text: sums, products, powers and quotients of names and integers.

    ``4n`` is ``4*n``; a name with digits needs the ``*``, lest ``1e5`` be one.

    Raises:
        LayoutError: a text that is none.
    """
    if len(text) > MAX_TEXT:
        raise LayoutError("polynomial", f"{len(text)} characters", f"at most {MAX_TEXT}")
    expected = "sums, products and quotients of names and integers, as 4*n + 1"
    try:
        made = _parser().parse(text)
    except UnexpectedInput:
        raise LayoutError(f"number {text!r}", "does not parse", expected) from None
    assert isinstance(made, Polynomial)
    return made


ZERO, ONE = poly(0), poly(1)

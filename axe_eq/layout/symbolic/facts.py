"""What is assumed of names: divisors, least values, definitions.

Facts are turned into substitutions, so that nothing that follows has to know them: with ``n % 8 ==
0`` the name n becomes ``8*n_by_8``, and n_by_8 is again any positive integer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import lcm

from axe_eq.errors import LayoutError
from axe_eq.layout.symbolic.polynomial import Polynomial, fraction, name, parse, poly

_EXPECTED = "n % 8 == 0, n >= 2, n >= k or n == 4*k, with a name on the left"
_FACT = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:%\s*(?P<by>.+?)\s*==\s*0|(?P<op>>=|>|==)(?P<to>.+))\s*")


@dataclass
class _Known:
    """What is said of one name."""

    divisors: list[Polynomial] = field(default_factory=list)
    least: int = 1
    above: Polynomial | None = None
    equal: Polynomial | None = None


@dataclass(frozen=True)
class Facts:
    """Assumptions as substitutions.

    Attributes:
        texts: the assumptions as given.
        images: name -> what stands for it, over new names that are any positive integers.
    """

    texts: tuple[str, ...] = ()
    images: Mapping[str, Polynomial] = field(default_factory=dict)

    def apply(self, value: Polynomial | int) -> Polynomial:
        """A number with every name replaced; quotients are taken where they are exact now.

        Raises:
            LayoutError: a quotient of numbers that is no integer.
        """
        return poly(value).substitute(self._image)

    def _image(self, atom: str) -> Polynomial:
        if not atom.startswith("("):
            return self.images.get(atom, name(atom))
        above, below = (self.apply(part) for part in fraction(atom))
        return above / below

    def numbers(self, names: Iterable[str], new: Mapping[str, int]) -> dict[str, int]:
        """The values of names where the new names have these values."""
        return {own: self.apply(name(own)).at(new) for own in sorted(names)}

    def __str__(self) -> str:
        return ", ".join(self.texts)


def facts(texts: Iterable[str], names: Iterable[str] = ()) -> Facts:
    """The assumptions of some texts: ``n % 8 == 0``, ``n >= 2``, ``n == 4*k``.

    Args:
        texts: the assumptions.
        names: further names in use, which new ones must not be.

    Raises:
        LayoutError: a text that is none of these, or assumptions that contradict each other.
    """
    given = tuple(texts)
    known: dict[str, _Known] = {}
    for text in given:
        _read(text, known)
    used = {*names, *known}
    for item in known.values():
        for number in (*item.divisors, item.equal, item.above):
            used |= frozenset() if number is None else number.atoms
    images: dict[str, Polynomial] = {}

    def fresh(wanted: str) -> Polynomial:
        while wanted in used:
            wanted += "_"
        used.add(wanted)
        return name(wanted)

    def image(own: str, above: tuple[str, ...]) -> Polynomial:
        if own in above:
            raise LayoutError(f"assumptions on {own!r}", "define it by itself", "no circle")
        if own not in known or own in images:
            return images.get(own, name(own))
        images[own] = _image(own, known[own], lambda n: image(n, (*above, own)), fresh)
        return images[own]

    for own in known:
        image(own, ())
    return Facts(given, images)


def _read(text: object, known: dict[str, _Known]) -> None:
    found = _FACT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise LayoutError(f"assumption {text!r}", "is not one", _EXPECTED)
    item = known.setdefault(found[1], _Known())
    number = parse(found["by"] or found["to"])
    if found["by"]:
        if not number.at_least(1):
            raise LayoutError(f"assumption {text!r}", f"divisor {number}", "a positive one")
        item.divisors.append(number)
    elif found["op"] == "==":
        if item.equal is not None and item.equal != number:
            raise LayoutError(f"assumption {text!r}", f"{found[1]} == {item.equal} too", "one")
        item.equal = number
    else:
        bound = number + (1 if found["op"] == ">" else 0)
        if bound.constant is not None:
            item.least = max(item.least, bound.constant)
        elif item.above is None or item.above == bound:
            item.above = bound
        else:
            raise LayoutError(f"assumption {text!r}", f"{found[1]} >= {item.above} too", "one")


def _image(
    own: str, known: _Known, image: Callable[[str], Polynomial], fresh: Callable[[str], Polynomial]
) -> Polynomial:
    """What stands for a name of which this is known."""
    if known.equal is not None:
        if known.divisors or known.least > 1 or known.above is not None:
            raise LayoutError(f"assumptions on {own!r}", "define and restrict it", "one of both")
        found = known.equal.substitute(image)
        if not found.at_least(1):
            raise LayoutError(f"assumption {own} == {known.equal}", "may be below 1", "positive")
        return found
    if known.above is not None:
        bound = known.above.substitute(image)
        if known.divisors or not bound.at_least(known.least):
            raise LayoutError(f"assumptions on {own!r}", "bound it in two ways", "one")
        return bound + fresh(f"{own}_more") - 1
    divisor = _divisor(own, [d.substitute(image) for d in known.divisors])
    size = divisor.constant
    if size is None:
        if known.least > 1:
            raise LayoutError(
                f"assumptions on {own!r}", f"a multiple of {divisor} of at least {known.least}",
                f"the least multiple as {own} == {divisor}*(k + 1)",
            )  # fmt: skip
        return divisor * fresh(f"{own}_over")
    before = -(-known.least // size) - 1  # multiples that are too small
    if size == 1 and before == 0:
        return name(own)
    label = f"{own}_by_{size}" if size > 1 else f"{own}_from_{known.least}"
    return divisor * (fresh(label) + before)


def _divisor(own: str, divisors: list[Polynomial]) -> Polynomial:
    """One number that all divisors together are."""
    whole = poly(1)
    for divisor in divisors:
        sizes = whole.constant, divisor.constant
        if sizes[0] is not None and sizes[1] is not None:
            whole = poly(lcm(sizes[0], sizes[1]))
        elif divisor.divided(whole) is not None:
            whole = divisor
        elif whole.divided(divisor) is None:
            wrong = f"{own} is a multiple of {whole} and of {divisor}"
            raise LayoutError(f"assumptions on {own!r}", wrong, "one divisor that both divide")
    return whole

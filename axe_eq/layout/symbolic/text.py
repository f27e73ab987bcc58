"""Texts of expressions: layouts with names in their numbers, unknown layouts, operations.

``S[(n,4):(4@m,1@m)] + R[(2):(k@lane)] + 3@m`` is a layout with names; ``A[8]`` any layout of 8
elements, ``I[8 below 16]`` any layout of 8 indices below 16; ``"cute:(4,8):(8,1)"`` in quotes a
layout in another notation. Operations are written as they are called:
``tile(A[8], (2,4), S[(2,2):(2,1)], (2,2))``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from lark import Lark, Token, UnexpectedInput, v_args

from axe_eq.errors import LayoutError, NotationError
from axe_eq.layout.notation import NO_CONTEXT, Context, notations_of, read_any
from axe_eq.layout.notation.text import TooLarge, Unparsed, clip, quote, unexpected
from axe_eq.layout.symbolic import expression as ex
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.polynomial import Arithmetic, Polynomial, integer, poly, rules
from axe_eq.layout.value.layout import Layout

MAX_CHARS = 1 << 14

_LIKELY = re.compile(r'\s*("|sw\b|(?!box\b)[A-Za-z_]\w*\s*[\[(])')
# A name that is no axis and no word of the axe notation: only expressions have such.
_NAMED = re.compile(r"(?<![@\w])\d*(?!(?:S|R|sw|box|of|order|in)\b)[A-Za-z_]\w*")


@v_args(inline=True)
class _Maker(Arithmetic):
    def stride(self, value: Polynomial, axis: Token | None) -> tuple[Polynomial, str]:
        return value, str(axis or "m")

    def bounds(self, begin: Polynomial, end: Polynomial) -> tuple[Polynomial, Polynomial]:
        return begin, end

    def items(self, *items: Any) -> tuple[Any, ...]:
        return tuple(item for item in items if item is not None)

    def shard(self, _: Token, *items: Any) -> tuple[str, list[Any]]:
        return "S", _zipped(items)

    def replica(self, _: Token, *items: Any) -> tuple[str, list[Any]]:
        return "R", _zipped(items)

    def offset(self, value: Polynomial, axis: Token | None) -> tuple[str, Any]:
        return "O", (str(axis or "m"), value)

    def written(self, *parts: tuple[str, Any]) -> ex.LayoutExpr:
        offset: dict[str, Polynomial] = {}
        for kind, part in parts:
            if kind == "O":
                offset[part[0]] = offset.get(part[0], poly(0)) + part[1]
        if [kind for kind, _ in parts].count("S") > 1:
            raise LayoutError("layout", "two S parts", "one S, then + R and + offsets")
        shard, replica = (
            [item for kind, part in parts if kind == wanted for item in part] for wanted in "SR"
        )
        left = {axis: value for axis, value in offset.items() if value != 0}
        return ex.symbolic_layout(shard, replica, left)

    def unknown(
        self, name: Token, elements: Polynomial, _: Token | None, bound: Polynomial | None
    ) -> ex.LayoutExpr:
        return ex.any_layout(str(name), elements, below=bound)

    def quoted(self, token: Token) -> ex.LayoutExpr:
        return ex.expression(read_any(str(token)[1:-1]))

    def swizzled(
        self, bits: Token, base: Token, shift: Polynomial, axis: Token | None, of: ex.LayoutExpr
    ) -> ex.LayoutExpr:
        distance = shift.constant
        if distance is None:
            raise LayoutError("swizzle", f"shift {shift}", "an integer")
        return ex.LayoutExpr(
            t.Swizzled(str(axis or "m"), integer(bits), integer(base), distance, of.term)
        )

    def call(self, name: Token, *args: Any) -> ex.LayoutExpr:
        operation = _CALLS.get(str(name))
        if operation is None:
            raise LayoutError(
                f"operation {str(name)!r}", "is unknown", f"one of {' '.join(_CALLS)}"
            )
        signature, make = operation
        given = [a for a in args if a is not None]
        fits = len(given) == len(signature) and all(
            isinstance(a, ex.LayoutExpr) == (kind == "layout")
            for a, kind in zip(given, signature, strict=True)
        )
        if not fits:
            raise LayoutError(f"{name}(...)", "got other arguments", f"({', '.join(signature)})")
        return make(*given)

    def start(self, found: ex.LayoutExpr) -> ex.LayoutExpr:
        return found


def _zipped(items: Any) -> list[Any]:
    extents = [item for item in items if isinstance(item, Polynomial)]
    strides = [item for item in items if isinstance(item, tuple)]
    if len(extents) != len(strides):
        raise LayoutError("layout", f"{len(extents)} extents, {len(strides)} strides", "as many")
    return [(e, s, a) for e, (s, a) in zip(extents, strides, strict=True)]


def _ints(values: tuple[Any, ...]) -> list[int]:
    found = [value.constant if isinstance(value, Polynomial) else None for value in values]
    if None in found:
        raise LayoutError("permutation", f"({', '.join(map(str, values))})", "integers")
    return found  # type: ignore[return-value]


def _bounds(values: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    if not all(isinstance(value, tuple) for value in values):
        raise LayoutError("region", f"({', '.join(map(str, values))})", "begin:end per dim")
    return list(values)


_CALLS: dict[str, tuple[tuple[str, ...], Callable[..., ex.LayoutExpr]]] = {
    "group": (("layout", "shape"), lambda x, s: x.group(s)),
    "permute": (("layout", "shape", "perm"), lambda x, s, p: x.permute(s, _ints(p))),
    "slice": (("layout", "shape", "region"), lambda x, s, r: x.slice(s, _bounds(r))),
    "inverse": (("layout", "axes"), lambda x, axes: x.inverse(list(map(str, axes)))),
    "compose": (("layout", "layout"), ex.composition),
    **{
        name: (
            ("layout", "shape", "layout", "shape"),
            lambda a, s, b, u, symbol=symbol: ex.pair(symbol, a, s, b, u),
        )
        for name, symbol in t.PAIRS.items()
    },
}


@lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = rules("expression") + rules("number")
    return Lark(grammar, parser="lalr", transformer=_Maker(), maybe_placeholders=True)


class _Unparsed(NotationError):
    """A text that does not match the grammar."""


def read_expression(text: str) -> ex.LayoutExpr:
    """The expression of a text.

    >>> print(axe.read_expression("S[(n,8):(8@m,1@m)]"))
    S[(n,8):(8@m,1@m)]

    Raises:
        NotationError: a text that is none, with the column; or one that makes no sense.
    """
    if not isinstance(text, str):
        raise NotationError(
            f"layout expression {text!r}", f"is of type {type(text).__name__}", "a text"
        )
    thing = f"layout expression {quote(text)}"
    if len(text) > MAX_CHARS:
        raise NotationError(thing, f"{len(text)} characters", f"at most {MAX_CHARS}")
    try:
        found = _parser().parse(text)
    except UnexpectedInput as error:
        raise _Unparsed(thing, *map(clip, unexpected(_parser(), text, error))) from None
    except LayoutError as error:
        wrong = clip(f"{error.thing}: {error.wrong}")
        raise NotationError(thing, wrong, clip(error.expected)) from None
    assert isinstance(found, ex.LayoutExpr)
    return found


def _is_meant(error: NotationError, text: str) -> bool:
    """Whether a text that is no expression was meant as one: it parses as one, or starts so.

    Not where it is the text of a notation whose prefix was left out.
    """
    if not _NAMED.search(text):
        return False
    return not isinstance(error, _Unparsed) or (
        bool(_LIKELY.match(text)) and not notations_of(text)
    )


def read_layout(
    value: Layout | ex.LayoutExpr | str, context: Context = NO_CONTEXT
) -> Layout | ex.LayoutExpr:
    """A layout or an expression, or the text of one; a layout wherever it is one value.

    Args:
        value: any of these.
        context: what the text of a layout leaves out.

    Raises:
        NotationError: a text that is neither.
        LayoutError: something else.
    """
    if isinstance(value, Layout | ex.LayoutExpr):
        return value
    if not isinstance(value, str):
        kind = type(value).__name__
        raise LayoutError(f"layout {value!r}", f"is of type {kind}", "a layout or its text")
    try:
        return read_any(value, **context._asdict())
    except (Unparsed, TooLarge) as error:  # a text of layouts that means none is no expression
        try:
            return read_expression(value)
        except NotationError as other:
            raise (other if _is_meant(other, value) else error) from None

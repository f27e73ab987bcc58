"""What every reader and writer shares: size limits, the LALR parser, error texts, the context.

A layout text comes from outside, so its size is checked before it is parsed, and every failure is
one `NotationError` that quotes the text, names the column and lists what would have been right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput
from lark.exceptions import UnexpectedToken, VisitError

from axe_eq.errors import AxeError, LayoutError, NotationError
from axe_eq.layout.check import MAX_ITERS
from axe_eq.layout.iters import Iter
from axe_eq.layout.mesh import Mesh
from axe_eq.layout.value import Layout, check_shape

MAX_CHARS = 1 << 16
"""Longest accepted text; an explicit list of 8192 devices fits."""
MAX_DEPTH = 64
"""Deepest accepted nesting of brackets."""
MAX_DIGITS = 100
"""Longest accepted integer literal."""

_LONG_INTEGER = re.compile(rf"\d{{{MAX_DIGITS + 1},}}")
_BRACKETS = re.compile(r"[()\[\]{}<>]")
_TERMINALS = {
    "$END": "the end of the text",
    "INT": "an integer",
    "NAME": "a name",
    "STRING": "a quoted name",
    "TYPE": "an element type",
}


class Context(NamedTuple):
    """What a layout text leaves out and the caller knows.

    Args:
        shape: extents of the logical tensor, or None.
        mesh: the devices, or None.
        itemsize: bytes of one element, or None.
    """

    shape: tuple[int, ...] | None = None
    mesh: Mesh | None = None
    itemsize: int | None = None


# ---- errors -------------------------------------------------------------------------------------


def quote(text: str, limit: int = 60) -> str:
    """Quotes a text for an error message, cut in the middle to about `limit` characters."""
    text = " ".join(text[: 4 * limit].split()) if len(text) < 4 * limit else text
    if len(text) > limit:
        text = f"{text[: limit - 17]} ... {text[-12:]}"
    return repr(text)


def subject(notation: str, text: str) -> str:
    """The thing that an error about a text names: ``cute layout '(4,8):(8,1)'``."""
    return f"{notation} layout {quote(text)}"


def refusal(notation: str, layout: Layout, wrong: str, expected: str) -> NotationError:
    """The error of a writer: this notation cannot express this layout, and why."""
    return NotationError(f"{notation} text of {quote(str(layout), 90)}", wrong, expected)


def build(
    notation: str,
    text: str,
    make: Callable[[], Layout],
) -> Layout:
    """Calls `make`; an impossible layout becomes a NotationError about `text`."""
    try:
        return make()
    except LayoutError as error:
        raise NotationError(
            subject(notation, text), f"{error.thing}: {error.wrong}", error.expected
        ) from None


def fit(notation: str, text: str, layout: Layout, shape: Sequence[int] | None) -> Layout:
    """Returns `layout` after checking that the caller's shape has as many elements."""
    if shape is not None:
        build(notation, text, lambda: (check_shape(layout, shape), layout)[1])
    return layout


def zip_iters(
    notation: str, text: str, extents: Sequence[int], strides: Sequence[tuple[int, str]]
) -> list[Iter]:
    """Pairs extents with ``(stride, axis)``.

    Raises:
        NotationError: as many strides as extents are needed.
    """
    if len(extents) != len(strides):
        raise NotationError(
            subject(notation, text),
            f"{len(extents)} extents {_some(extents)} but {len(strides)} strides",
            "one stride per extent",
        )
    if len(extents) > MAX_ITERS:
        raise NotationError(
            subject(notation, text), f"{len(extents)} iters", f"at most {MAX_ITERS}"
        )
    return [(extent, stride, axis) for extent, (stride, axis) in zip(extents, strides, strict=True)]


def _some(extents: Sequence[int]) -> str:
    shown = ",".join(map(str, extents[:8]))
    return f"({shown}{',...' if len(extents) > 8 else ''})"


# ---- parsing ------------------------------------------------------------------------------------


def check_text(notation: str, text: str) -> None:
    """Refuses a text that is too long, too deep or has an absurd number, before any parsing.

    Raises:
        NotationError: with the measured size and the limit.
    """
    if len(text) > MAX_CHARS:
        raise NotationError(
            subject(notation, text), f"{len(text)} characters", f"at most {MAX_CHARS}"
        )
    if found := _LONG_INTEGER.search(text):
        raise NotationError(
            subject(notation, text),
            f"an integer of {len(found.group())} digits at column {found.start() + 1}",
            f"at most {MAX_DIGITS} digits",
        )
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth += 1 if bracket.group() in "([{<" else -1
        if depth > MAX_DEPTH:
            raise NotationError(
                subject(notation, text),
                f"brackets nested deeper than {MAX_DEPTH} at column {bracket.start() + 1}",
                f"at most {MAX_DEPTH} levels",
            )


@cache
def _parser(grammar: str) -> Lark:
    source = resources.files(__package__ or __name__).joinpath("grammars", f"{grammar}.lark")
    return Lark(source.read_text(encoding="utf-8"), parser="lalr", maybe_placeholders=True)


def parse(notation: str, text: str, transformer: Transformer[Token, Any]) -> Any:
    """Parses a text with ``grammars/<notation>.lark`` and transforms its tree.

    Raises:
        NotationError: the text is too large or does not match the grammar.
    """
    check_text(notation, text)
    parser = _parser(notation)
    try:
        return transformer.transform(parser.parse(text))
    except UnexpectedInput as error:
        raise _syntax_error(notation, text, parser, error) from None
    except VisitError as error:
        if isinstance(error.orig_exc, AxeError):
            raise error.orig_exc from None
        raise


def _syntax_error(notation: str, text: str, parser: Lark, error: UnexpectedInput) -> NotationError:
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        wrong = f"ends too early, after column {len(text.rstrip())}"
    else:
        position: int = error.pos_in_stream  # type: ignore[assignment]  # declared as None
        wrong = f"unexpected {_word_at(text, position)!r} at column {position + 1}"
    return NotationError(subject(notation, text), wrong, _alternatives(parser, error))


def _word_at(text: str, position: int) -> str:
    found = re.compile(r"\w+|.", re.DOTALL).match(text, position)
    return found.group()[:20] if found else ""


def _alternatives(parser: Lark, error: UnexpectedInput) -> str:
    if isinstance(error, UnexpectedToken):
        names: Iterable[str] = error.accepts
    elif isinstance(error, UnexpectedCharacters):
        names = error.allowed
    else:
        names = getattr(error, "expected", ())
    ignored = set(parser.ignore_tokens)
    words = sorted({_terminal_words(parser, name) for name in names if name not in ignored})
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _terminal_words(parser: Lark, name: str) -> str:
    if name in _TERMINALS:
        return _TERMINALS[name]
    pattern = parser.get_terminal(name).pattern
    return repr(pattern.value) if pattern.type == "str" else name.lower().replace("_", " ")

"""What every reader and writer shares: size limits, the LALR parser, error texts, the context.

A layout text comes from outside, so its size is checked before it is parsed, and every failure is
one `NotationError` that quotes the text, names the column and lists what would have been right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import resources
from typing import Any, NamedTuple, NoReturn

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, v_args
from lark.exceptions import UnexpectedToken, VisitError

from axe_eq.errors import AxeError, LayoutError, NotationError, SearchError
from axe_eq.layout.value.check import MAX_ITERS, MAX_VALUE, check_admitted
from axe_eq.layout.value.iters import Iter
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh

MAX_CHARS = 1 << 16
"""Longest accepted text; an explicit list of 8192 devices fits."""
MAX_DEPTH = 64
"""Deepest accepted nesting of brackets."""
MAX_DIGITS = 100
"""Longest accepted integer literal."""

_LONG_INTEGER = re.compile(rf"\d{{{MAX_DIGITS + 1},}}")
_BRACKETS = re.compile(r"[()\[\]{}<>]")
_WORD = re.compile(r"\w+|.", re.DOTALL)
_TERMINALS = {
    "$END": "the end of the text",
    "<END-OF-FILE>": "the end of the text",
    "ARGUMENTS": "arguments in ()",
    "BELOW": "'below'",
    "GROUP": "shard_as or shard_like",
    "INT": "an integer",
    "KEY": "shape, strides or offset",
    "LEVEL": "a dimension level",
    "METADATA": "metadata={...}",
    "NAME": "a name",
    "REPLICA": "'R'",
    "SHARD": "'S'",
    "SHARDED": "S with mesh dims",
    "SPLITS": "a split configuration",
    "STRING": "a quoted name",
    "TIMES": "an integer",
    "TYPE": "an element type",
    "WORD": "a kind of subgroup",
    "_BREAK": "a row break",
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


NO_CONTEXT = Context()
"""What a text that leaves nothing out is read with."""


class Spelling(NamedTuple):
    """How the caller of a reader says what a text leaves out.

    Args:
        shape, mesh: each with values as an example.
        itemsize: so many bytes, or an example.
        extents: a shape with these.
    """

    shape: str
    mesh: str
    itemsize: Callable[[int | None], str]
    extents: Callable[[Sequence[int]], str]


PYTHON = Spelling(
    "shape=(...)",
    'mesh=Mesh({"x": 2, "y": 4})',
    lambda n_bytes: f"itemsize={n_bytes or '...'}",
    lambda extents: f"shape={tuple(extents)}",
)
_SPELLING = ContextVar("spelling", default=PYTHON)


def spelling() -> Spelling:
    """How errors name what a text leaves out: keywords, or what `spelled` says."""
    return _SPELLING.get()


@contextmanager
def spelled(words: Spelling) -> Iterator[None]:
    """Errors inside name what a text leaves out in these words."""
    token = _SPELLING.set(words)
    try:
        yield
    finally:
        _SPELLING.reset(token)


# ---- errors -------------------------------------------------------------------------------------


class Unparsed(NotationError):
    """A text that does not follow the grammar of its notation."""


class TooLarge(NotationError):
    """A text over the limits, which is not parsed."""


def quote(text: str, limit: int = 60) -> str:
    """Quotes a text for an error message, on one line and cut in the middle."""
    return repr(clip(" ".join(text[: 4 * limit].split()) if len(text) < 4 * limit else text, limit))


def clip(words: str, limit: int = 140) -> str:
    """A phrase of an error message, cut in the middle to about `limit` characters."""
    return words if len(words) <= limit else f"{words[: limit - 17]} ... {words[-12:]}"


def subject(notation: str, text: str) -> str:
    """The thing that an error about a text names: ``cute layout '(4,8):(8,1)'``."""
    return f"{notation} layout {quote(text)}"


class _Refusal(Exception):
    """What is wrong, and what was expected; of which text or layout, `refusing` says."""


def refuse(wrong: str, expected: str) -> NoReturn:
    """Ends the reading of a text, or the writing of a layout, with a NotationError about it."""
    raise _Refusal(wrong, expected)


@contextmanager
def refusing(thing: Callable[[], str]) -> Iterator[None]:
    """What is refused inside, impossible or undecided, is a NotationError about a thing."""
    try:
        yield
    except _Refusal as error:
        wrong, expected = error.args
        raise NotationError(thing(), clip(wrong), clip(expected)) from None
    except (LayoutError, SearchError) as error:
        wrong = f"{error.thing}: {error.wrong}"
        raise NotationError(thing(), clip(wrong), clip(error.expected)) from None


# ---- checks -------------------------------------------------------------------------------------


def fit(layout: Layout, shape: Sequence[int] | None) -> Layout:
    """Returns `layout` after checking that the caller's shape has as many elements."""
    if shape is not None:
        check_admitted(layout.size, shape)
    return layout


def zip_iters(extents: Sequence[int], strides: Sequence[tuple[int, str]]) -> list[Iter]:
    """Pairs extents with ``(stride, axis)``.

    Raises:
        NotationError: not as many strides as extents, or too many.
    """
    if len(extents) != len(strides):
        shown = clip(",".join(map(str, extents)), 40)
        wrong = f"{len(extents)} extents ({shown}) but {len(strides)} strides"
        refuse(wrong, "one stride per extent")
    check_count("iters", len(extents))
    check_product(extents)
    return [(extent, *stride) for extent, stride in zip(extents, strides, strict=True)]


def check_count(what: str, count: int) -> None:
    """Refuses more iters, dims or bases than a layout can have.

    Raises:
        NotationError: with the count and the limit.
    """
    if count > MAX_ITERS:
        refuse(f"{count} {what}", f"at most {MAX_ITERS}")


def check_product(extents: Iterable[int]) -> None:
    """Refuses extents whose product leaves 63 bits, without computing it.

    Raises:
        NotationError: the product is too large.
    """
    if sum(max(extent, 1).bit_length() - 1 for extent in extents) > 62:
        refuse("2**63 elements or more", f"at most {MAX_VALUE}")


def check_text(notation: str, text: str) -> None:
    """Refuses a text that is too long, too deep or has an absurd number, before any parsing.

    Raises:
        TooLarge: with the measured size and the limit.
    """
    thing = subject(notation, text)
    if len(text) > MAX_CHARS:
        raise TooLarge(thing, f"{len(text)} characters", f"at most {MAX_CHARS}")
    if found := _LONG_INTEGER.search(text):
        digits, column = len(found.group()), found.start() + 1
        wrong = f"an integer of {digits} digits at column {column}"
        raise TooLarge(thing, wrong, f"at most {MAX_DIGITS} digits")
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth += 1 if bracket.group() in "([{<" else -1
        if depth > MAX_DEPTH:
            wrong = f"brackets nested deeper than {MAX_DEPTH} at column {bracket.start() + 1}"
            raise TooLarge(thing, wrong, f"at most {MAX_DEPTH} levels")


# ---- parsing ------------------------------------------------------------------------------------


def given(*items: Any) -> tuple[Any, ...]:
    """The items of a list that a text has; the parser puts None where optional ones are missing."""
    return tuple(item for item in items if item is not None)


@v_args(inline=True)
class Reader(Transformer[Token, Any]):
    """What most grammars share: integers, names in quotes, and a start with several children."""

    INT: Any = int
    start: Any = staticmethod(given)

    def STRING(self, token: Token) -> str:
        """A name without its quotes."""
        return token[1:-1]


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
        wrong, expected = unexpected(parser, text, error)
    except VisitError as error:
        if isinstance(error.orig_exc, AxeError | _Refusal):
            raise error.orig_exc from None
        raise
    raise Unparsed(subject(notation, text), wrong, expected)


def follows(notation: str, text: str) -> bool:
    """Whether a text matches the grammar of a notation; what it means is not looked at."""
    try:
        check_text(notation, text)
        _parser(notation).parse(text)
    except (NotationError, UnexpectedInput):
        return False
    return True


def unexpected(parser: Lark, text: str, error: UnexpectedInput) -> tuple[str, str]:
    """What a parser found where, and what it would have taken there, as phrases of an error."""
    return _found(text, error), _alternatives(parser, error)


def _found(text: str, error: UnexpectedInput) -> str:
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return f"ends too early, after column {len(text.rstrip())}"
    position: int = error.pos_in_stream  # type: ignore[assignment]  # declared as None
    word = _WORD.match(text, position)
    return f"unexpected {word.group()[:20] if word else ''!r} at column {position + 1}"


def _alternatives(parser: Lark, error: UnexpectedInput) -> str:
    names: Iterable[str] = ()
    if isinstance(error, UnexpectedToken):
        names = error.accepts
    elif isinstance(error, UnexpectedCharacters):
        names = error.allowed
    ignored = set(parser.ignore_tokens)
    words = sorted({_terminal_words(parser, name) for name in names if name not in ignored})
    if not words:  # everything that may follow is a layout already
        return _TERMINALS["$END"]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _terminal_words(parser: Lark, name: str) -> str:
    if name in _TERMINALS:
        return _TERMINALS[name]
    pattern = parser.get_terminal(name).pattern
    return repr(pattern.value) if pattern.type == "str" else name.lower().replace("_", " ")

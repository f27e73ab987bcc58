"""Plain data as JSON: dataclasses, tuples, mappings and bytes, written and read by their types.

What is read is checked on the way: every field is there and of its kind, and there is no other. A
digest tells accidents, not intent: a file whose digests were worked out again may hold anything
that JSON can say. A class with `to_data` and `of_data` is written and read by these.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from itertools import repeat
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from axe_eq.errors import ArgumentError, said

T = TypeVar("T")

# What reading data may raise that was never written so, where classes read their own.
DAMAGED = (
    ArgumentError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip


def text(value: Any) -> str:
    """A value as JSON; mappings and fields keep their order.

    >>> from axe_eq.schedule.graph import Access
    >>> text(Access("x", "S[(4):(1@m)]"))
    '{"buffer": "x", "layout": "S[(4):(1@m)]", "begins": []}'
    """
    return json.dumps(value, default=_data)


def _data(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if hasattr(value, "to_data"):
        return value.to_data()
    return {field.name: getattr(value, field.name) for field in fields(value)}


def read(where: str, data: Any, kind: type[T]) -> T:
    """What `text` wrote of a value of this type, from what JSON gives; parts may be read already.

    >>> from axe_eq.schedule.graph import Access
    >>> read("access", {"buffer": "x", "layout": "S[(4):(1@m)]", "begins": [1]}, Access).begins
    (1,)

    Args:
        where: what it is, for errors.
        data: dicts, lists, texts and numbers.
        kind: a dataclass, a tuple, a mapping, a union or a plain type.

    Raises:
        ArgumentError: names the place and what is there.
    """
    try:
        value: T = _reader(kind)(data)  # type: ignore[arg-type]  # types are hashable
    except _Unfit as error:
        place = "".join(reversed(error.place))
        raise ArgumentError(where + place, f"says {error.found}", "what was saved") from None
    return value


def to_bytes(value: Any, version: str) -> bytes:
    """A dataclass in one piece of bytes that says the version of its format."""
    return text({"format": version, **vars(value)}).encode()


def of_bytes(where: str, data: bytes, kind: type[T], version: str) -> T:
    """The inverse of `to_bytes`.

    Raises:
        ArgumentError: the bytes are no value of this kind and version.
    """
    try:
        found = json.loads(data)
        if found.pop("format") != version:
            raise ValueError
        return read(where, found, kind)
    except DAMAGED:
        wrong = "is damaged or of another version"
        raise ArgumentError(where, wrong, f"format {version}") from None


class _Unfit(Exception):
    """Data of another kind than asked for, and the way to it, the last step first."""

    def __init__(self, found: object) -> None:
        self.found, self.place = said(found), list[str]()


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return partial(_union, parts)
    if hasattr(kind, "of_data"):
        return kind.of_data  # type: ignore[no-any-return]
    if is_dataclass(kind):
        return partial(_dataclass, kind)
    if origin is tuple:
        return partial(_tuple, parts)
    if origin is not None and issubclass(origin, Mapping):
        return partial(_mapping, parts[1])
    return b64decode if kind is bytes else partial(_plain, kind)


def _plain(kind: Any, value: Any) -> Any:
    if kind is not Any and not _may_be(kind, value):
        raise _Unfit(value)
    return value


def _at(place: str | int, reader: Callable[[Any], Any], value: Any) -> Any:
    try:
        return reader(value)
    except _Unfit as error:
        error.place.append(f"[{place}]" if isinstance(place, int) else f": {place}")
        raise


def _tuple(kinds: Sequence[Any], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or (kinds[-1] is not ... and len(value) != len(kinds)):
        raise _Unfit(value)
    readers = map(_reader, kinds) if kinds[-1] is not ... else repeat(_reader(kinds[0]))
    return tuple(map(_at, range(len(value)), readers, value))


def _mapping(kind: Any, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Unfit(value)
    reader = _reader(kind)
    return {name: _at(name, reader, entry) for name, entry in value.items()}


@cache
def _fields(kind: Any) -> Mapping[str, Callable[[Any], Any]]:
    hints = get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in fields(kind)}


def _dataclass(kind: Any, value: Any) -> Any:
    if type(value) is kind:
        return value
    readers = _fields(kind)
    if not isinstance(value, dict) or value.keys() != readers.keys():
        raise _Unfit(sorted(value) if isinstance(value, dict) else value)
    return kind(**{name: _at(name, reader, value[name]) for name, reader in readers.items()})


def _union(kinds: Sequence[Any], value: Any) -> Any:
    for kind in kinds:
        if _may_be(kind, value):
            return _reader(kind)(value)
    raise _Unfit(value)


def _may_be(kind: Any, value: Any) -> bool:
    """Whether a value is one of this type of a union; of dataclasses its `kind` says which."""
    if type(value) is kind or value is None:
        return type(value) is kind
    if is_dataclass(kind) and not hasattr(kind, "of_data"):
        return isinstance(value, dict) and getattr(kind, "kind", None) == value.get("kind")
    if isinstance(kind, type) and not hasattr(kind, "of_data"):
        return kind is float and type(value) is int
    return True

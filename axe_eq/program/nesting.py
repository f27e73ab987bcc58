"""Nestings of tuples, lists and dicts: taken apart into leaves and put together again.

A nesting is JSON data: ``0`` is leaf 0, ``["tuple", [...]]``, ``["list", [...]]`` and
``["dict", [[key, ...], ...]]`` hold nestings. Saved programs carry it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Nesting = Any


def flatten(value: Any) -> tuple[Nesting, list[Any]]:
    """The nesting of a value and its leaves; what is no tuple, list or dict is a leaf."""
    leaves: list[Any] = []
    return _take(value, leaves), leaves


def _take(value: Any, leaves: list[Any]) -> Nesting:
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return [kind, [_take(v, leaves) for v in value]]
    if isinstance(value, dict):
        return ["dict", [[key, _take(v, leaves)] for key, v in value.items()]]
    leaves.append(value)
    return len(leaves) - 1


def unflatten(nesting: Nesting, leaves: Sequence[Any]) -> Any:
    """The value with this nesting and these leaves; inverse of `flatten`."""
    if isinstance(nesting, int):
        return leaves[nesting]
    kind, parts = nesting
    if kind == "dict":
        return {key: unflatten(part, leaves) for key, part in parts}
    items = [unflatten(part, leaves) for part in parts]
    return tuple(items) if kind == "tuple" else items


def is_nesting(value: Any, keys: type | tuple[type, ...] = object) -> bool:
    """Whether data is a nesting; `keys` are the types that keys of dicts may have."""
    if type(value) is int:
        return True
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], list):
        return False
    kind, parts = value
    if kind == "dict":
        if not all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], keys) for p in parts):
            return False
        parts = [part for _, part in parts]
    return kind in ("tuple", "list", "dict") and all(is_nesting(part, keys) for part in parts)


def leaf_names(nesting: Nesting, prefix: str) -> Iterator[str]:
    """A name per leaf, in order: the prefix, then keys and positions joined by dots."""
    if isinstance(nesting, int):
        yield prefix
        return
    kind, parts = nesting
    named = parts if kind == "dict" else enumerate(parts)
    for key, part in named:
        yield from leaf_names(part, f"{prefix}.{key}" if prefix else str(key))


def leaf_numbers(nesting: Nesting) -> Iterator[int]:
    """The leaves of a nesting, in order."""
    if isinstance(nesting, int):
        yield nesting
        return
    kind, parts = nesting
    for part in parts:
        yield from leaf_numbers(part[1] if kind == "dict" else part)

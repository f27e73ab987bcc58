"""Shapes, devices and contexts of texts as words and options of the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import click

from axe_eq.errors import ArgumentError
from axe_eq.layout import Mesh
from axe_eq.layout.notation.text import Spelling, quote
from axe_eq.layout.value.check import check_axis

Shape = tuple[int, ...]


def parse_shape(text: str) -> Shape:
    """``8x16``, ``8,16`` or ``(8, 16)``.

    Raises:
        ArgumentError: anything else, or an extent below 1.
    """
    bare = text.strip().removeprefix("(").removesuffix(")").strip()
    parts = re.split(r"\s*[x,]\s*", bare.removesuffix(",")) if bare else []
    if not all(re.fullmatch(r"\d{1,19}", part) and int(part) > 0 for part in parts):
        raise ArgumentError(
            f"shape {quote(text)}", "does not parse", "extents of at least 1, as 8x16"
        )
    return tuple(map(int, parts))


def parse_integers(what: str, text: str) -> Shape:
    """``1,0``: integers of at least 0.

    Raises:
        ArgumentError: anything else.
    """
    bare = text.strip().removeprefix("(").removesuffix(")").strip().removesuffix(",")
    parts = re.split(r"\s*,\s*", bare) if bare else []
    if not all(re.fullmatch(r"\d{1,19}", part) for part in parts):
        raise ArgumentError(f"{what} {quote(text)}", "does not parse", "integers, as 1,0")
    return tuple(map(int, parts))


def parse_region(text: str) -> tuple[tuple[int, int], ...]:
    """``0:4,8:16``: begin and end per dim.

    Raises:
        ArgumentError: anything else.
    """
    pairs = _pairs("region", text, r"(\d{1,19})\s*:", "BEGIN:END per dim, as 0:4,8:16")
    return tuple((int(begin), end) for begin, end in pairs)


def parse_mesh(text: str, axis: str) -> Mesh:
    """``x=2,y=4``.

    Raises:
        ArgumentError: anything else.
    """
    pairs = _pairs("mesh", text, r"(\w+)\s*=", "names and extents, as x=2,y=4")
    names = [name for name, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        wrong = f"has the dim {', '.join(twice)} more than once"
        raise ArgumentError(f"mesh {quote(text)}", wrong, "one extent per dim, as x=2,y=4")
    return Mesh(dict(pairs), axis)


def _pairs(what: str, text: str, before: str, expected: str) -> list[tuple[str, int]]:
    """What stands between commas: a pattern with one group, and a number after it."""
    parts = [re.fullmatch(rf"\s*{before}\s*(\d{{1,19}})\s*", p) for p in text.split(",")]
    if not all(parts):
        raise ArgumentError(f"{what} {quote(text)}", "does not parse", expected)
    return [(found[1], int(found[2])) for found in parts if found]


OPTIONS = Spelling(
    "--shape 8x16",
    "--mesh x=2,y=4",
    lambda n_bytes: f"--itemsize {n_bytes or 2}",
    lambda extents: f"--shape {'x'.join(map(str, extents))}",
)


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Options of a command as one, in this order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


# What a text leaves out: the shape, the devices, the size of an element.
context_options = together(
    click.option(
        "--shape",
        default=None,
        help="Extents of the tensor: 8x16. The modes of CuTe text are then its dims.",
    ),
    click.option(
        "--mesh",
        multiple=True,
        help="The devices, slow to fast: x=2,y=4; several add up in their order.",
    ),
    click.option("--axis", default="gpuid", help="The axis that devices lie on."),
    click.option(
        "--itemsize",
        type=click.IntRange(1),
        default=None,
        help="Bytes of an element, for texts that count bytes.",
    ),
)


def context_of(
    shape: str | None, mesh: Sequence[str], axis: str, itemsize: int | None
) -> dict[str, Any]:
    """The options as arguments of `read`.

    Raises:
        AxeError: an option that says nothing, needed or not.
    """
    check_axis(axis)
    return {
        "shape": None if shape is None else parse_shape(shape),
        "mesh": parse_mesh(",".join(mesh), axis) if mesh else None,
        "itemsize": itemsize,
    }

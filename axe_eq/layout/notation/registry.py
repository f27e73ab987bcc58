"""The table of notations, and reading and writing by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from axe_eq.errors import LayoutError, NotationError, said
from axe_eq.layout.notation import (
    alpa,
    axe,
    cute,
    dtensor,
    hlo_sharding,
    jax,
    matrix,
    shardy,
    strides,
    triton,
    xla,
)
from axe_eq.layout.notation.text import Context, Unparsed, clip, follows, quote, refusing, subject
from axe_eq.layout.value.check import check_extents
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh


class Notation(NamedTuple):
    """One notation: its name, what it is, and both directions.

    Args:
        dims: the extents of the tensor that a text states, None where it states none.
        first_fastest: without a shape the layout is read as the function of a linear index that
            runs through the stated dims with the first one fastest.
    """

    name: str
    about: str
    read: Callable[[str, Context], Layout]
    write: Callable[[Layout, Context], str]
    dims: Callable[[str], tuple[int, ...] | None] = lambda _: None
    first_fastest: bool = False


_TABLE = (
    Notation("axe", "Axe layouts", axe.read, axe.write),
    Notation("matrix", "the matrix form of the Axe paper", matrix.read, matrix.write),
    Notation("cute", "CuTe layouts", cute.read, cute.write, cute.dims, first_fastest=True),
    Notation("xla", "XLA shapes with layouts", xla.read, xla.write, xla.dims),
    Notation("hlo_sharding", "XLA HLO shardings", hlo_sharding.read, hlo_sharding.write),
    Notation("jax", "JAX PartitionSpecs and NamedShardings", jax.read, jax.write),
    Notation("shardy", "Shardy shardings", shardy.read, shardy.write),
    Notation("dtensor", "torch DTensor placements on a mesh", dtensor.read, dtensor.write),
    Notation("alpa", "Alpa sharding specs on a mesh", alpa.read, alpa.write),
    Notation(
        "triton", "Triton layouts: bases and encodings", triton.read, triton.write, triton.dims
    ),
    Notation("strides", "numpy and torch strides", strides.read, strides.write, strides.dims),
)

NOTATIONS: Mapping[str, Notation] = MappingProxyType({entry.name: entry for entry in _TABLE})
"""Every notation by name."""

SYSTEMS = {
    "cutlass": ("cute",),
    "hlo": ("hlo_sharding",),
    "gspmd": ("hlo_sharding",),
    "sdy": ("shardy",),
    "torch": ("dtensor", "strides"),
    "pytorch": ("dtensor", "strides"),
    "numpy": ("strides",),
}
"""Names that are no notation's -> the notations that are looked for under them."""

MAX_CACHED = 1024

_PREFIX = re.compile(r"\s*([A-Za-z_]\w*)\s*:(.*)", re.DOTALL)


def read(
    notation: str,
    text: str,
    *,
    shape: Iterable[int] | None = None,
    mesh: Mesh | None = None,
    itemsize: int | None = None,
) -> Layout:
    """Reads a text of one notation.

    >>> print(axe.read("cute", "(4,8):(8,1)"))
    S[(8,4):(1@m,8@m)]
    >>> print(axe.read("xla", "f32[16,256]{1,0:T(8,128)}"))
    S[(2,8,2,128):(2048@m,128@m,1024@m,1@m)]

    Args:
        notation: a name from `NOTATIONS`, in capitals or not.
        text: the text, without prefix.
        shape: extents of the logical tensor; shardings and PartitionSpecs need it, the other
            notations check it against their own size.
        mesh: the devices; PartitionSpecs, DTensor placements and Alpa specs need it.
        itemsize: bytes of one element, where the text counts bytes.

    Returns:
        The layout from row-major logical coordinates to places.

    Raises:
        NotationError: an unknown notation, a text that does not parse, or one that means nothing
            a layout can express.
    """
    name, context = find(notation).name, checked(shape, mesh, itemsize)
    reading = read_cached if len(_check_str(text)) <= MAX_CACHED else _read
    return reading(name, text, context)


def write(
    notation: str,
    layout: Layout | str,
    *,
    shape: Iterable[int] | None = None,
    mesh: Mesh | None = None,
) -> str:
    """Writes a layout in one notation, so that reading it back gives the same map.

    >>> axe.write("cute", "S[(8,4):(1@m,8@m)]")
    '(4,8):(8,1)'

    Args:
        notation: a name from `NOTATIONS`.
        layout: any layout, or its text with the notation as a prefix.
        shape: extents of the logical tensor; without it the layout's box, or one dimension.
        mesh: the devices, for notations of shardings.

    Raises:
        NotationError: the notation cannot express this layout, with the reason.
    """
    target, context = find(notation), checked(shape, mesh, None)
    if not isinstance(layout, Layout):
        layout = read_any(layout, shape=context.shape, mesh=mesh)
    with refusing(lambda: f"{target.name} text of {quote(str(layout), 90)}"):
        return target.write(layout, context)


def read_any(
    text: str,
    *,
    shape: Iterable[int] | None = None,
    mesh: Mesh | None = None,
    itemsize: int | None = None,
) -> Layout:
    """Reads a text whose prefix names its notation, ``cute:(4,8):(8,1)``; no prefix means axe.

    Raises:
        Unparsed: a text without a prefix that is no axe text; with the notations whose text it is.
        NotationError: an unknown notation, or one that means nothing a layout can express.
    """
    name, rest = prefixed(text)
    if rest is not text:
        return read(name, rest, shape=shape, mesh=mesh, itemsize=itemsize)
    try:
        return read("axe", text, shape=shape, mesh=mesh, itemsize=itemsize)
    except Unparsed as error:
        raise Unparsed(error.thing, error.wrong, error.expected, hint=_prefixes(text)) from None


def notations_of(text: str) -> list[str]:
    """The notations whose grammar a text matches, whatever it means in them."""
    return [name for name in NOTATIONS if follows(name, text)]


def _prefixes(text: str) -> str:
    """The action to try where a text without a prefix is no axe text."""
    written = [f"{name}:{' '.join(text.split())}" for name in notations_of(text)]
    if not written or len(text) > MAX_CACHED:
        return "a prefix for another notation, as in cute:(4,8):(8,1)"
    return f"the prefix of its notation: {' or '.join(written)}"


def prefixed(text: str) -> tuple[str, str]:
    """The notation that the prefix of a text names, axe without one, and the rest.

    A name that is none is returned as it is.
    """
    found = _PREFIX.match(_check_str(text))
    if found is None:
        return "axe", text
    name = found[1].lower()
    return (name if name in NOTATIONS else found[1]), found[2].strip()


def stated_shape(notation: str, text: str) -> tuple[int, ...] | None:
    """The extents of the tensor that a text of one notation states, in its order; or None.

    Those of a CuTe layout are the sizes of its top-level modes.

    Raises:
        NotationError: an unknown notation, or a text that does not parse.
    """
    found = find(notation)
    with refusing(lambda: subject(found.name, text)):
        return found.dims(_check_str(text))


def row_major_shape(notation: str, text: str) -> tuple[int, ...] | None:
    """`stated_shape` in the order of the linear index that the text is read with: slow to fast."""
    found = stated_shape(notation, text)
    return found[::-1] if found is not None and find(notation).first_fastest else found


def _read(notation: str, text: str, context: Context) -> Layout:
    with refusing(lambda: subject(notation, text)):
        found = NOTATIONS[notation].read(text, context)
    if context.shape is not None:
        found = copy(found)  # others may have read it for another shape
        object.__setattr__(found, "read_for", context.shape)
    return found


read_cached = lru_cache(maxsize=1024)(_read)
"""`read` for texts of at most `MAX_CACHED` characters: schedules name their layouts by text."""


def check_shape(layout: Layout, shape: tuple[int, ...]) -> None:
    """Refuse a layout of another size than a shape, or one that was read for another shape.

    >>> check_shape(axe.read("xla", "f32[4,6]{0,1}", shape=(4, 6)), (6, 4))
    Traceback (most recent call last):
    axe_eq.errors.LayoutError: layout S[(4,6):(1@m,4@m)]: was read for (4, 6); expected (6, 4)

    Raises:
        LayoutError: with both shapes.
    """
    if layout.size != prod(shape):
        raise LayoutError(
            f"layout {layout}", f"has size {layout.size}", f"{prod(shape)}, of {shape}"
        )
    if layout.read_for not in (None, shape):
        raise LayoutError(f"layout {layout}", f"was read for {layout.read_for}", f"{shape}")


def find(notation: object) -> Notation:
    """The notation of a name, in capitals or not.

    Raises:
        NotationError: no such name; of a system whose notations have other names, with these.
    """
    word = notation.lower() if isinstance(notation, str) else ""
    if word in NOTATIONS:
        return NOTATIONS[word]
    meant = [NOTATIONS[name] for name in SYSTEMS.get(word, ())]
    raise NotationError(
        f"notation {clip(repr(notation), 60)}",
        "unknown",
        f"one of {', '.join(NOTATIONS)}",
        hint=" or ".join(f"{entry.name}, for {entry.about}" for entry in meant),
    )


def _check_str(text: object) -> str:
    if isinstance(text, str):
        return text
    kind = type(text).__name__
    raise NotationError(f"layout text {quote(repr(text))}", f"is of type {kind}", "a text")


def checked(shape: Iterable[int] | None, mesh: Mesh | None, itemsize: int | None) -> Context:
    """What texts leave out, as readers and writers take it.

    Raises:
        NotationError: no shape, no mesh, or no size of an element.
    """
    try:
        extents = None if shape is None else check_extents("shape", shape)
    except (LayoutError, TypeError):
        raise NotationError("shape", said(shape), "integers of at least 1") from None
    if mesh is not None and not isinstance(mesh, Mesh):
        raise NotationError("mesh", f"a {type(mesh).__name__}", 'Mesh({"x": 2, "y": 4})')
    if itemsize is not None and (type(itemsize) is not int or itemsize < 1):
        raise NotationError("itemsize", repr(itemsize), "the bytes of one element, at least 1")
    return Context(extents, mesh, itemsize)

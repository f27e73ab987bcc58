"""What an argument of a traced function looks like: shape, element type, dim names, layout."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from axe_eq.errors import ProgramError, said
from axe_eq.program.types import ANY, ValueType, dtype

if TYPE_CHECKING:
    from axe_eq.layout import Layout

# Example extent of a dim whose extent is given at run time: large enough that schedules for it are
# throughput schedules.
TYPICAL_EXTENT = 4096
MAX_RANK = 26  # signatures call each dim by a letter
MAX_ELEMENTS = 1 << 48


class Dim(int):
    """An extent with a name: as an integer, its example extent.

    Arithmetic on it gives plain integers of the example; a program that uses them is traced again
    when the dim is bound to another extent.

    Attributes:
        name: the dim's name; dims of one name have one extent.
        divisible: every extent it is bound to is a multiple of this.
    """

    name: str
    divisible: int

    def __new__(cls, name: str, divisible: int = 1, example: int | None = None) -> Dim:
        """See `dim`."""
        if not str(name).isidentifier():
            raise ProgramError(f"dim {name!r}", "is not a name", "a name such as 'tokens'")
        if type(divisible) is not int or divisible < 1:
            raise ProgramError(f"dim {name!r}", f"divisible is {divisible}", "at least 1")
        extent = max(TYPICAL_EXTENT // divisible, 1) * divisible if example is None else example
        if extent < 1 or extent % divisible:
            wrong = f"extent {extent} is not a positive multiple of {divisible}"
            raise ProgramError(f"dim {name!r}", wrong, f"a multiple of {divisible}")
        self = super().__new__(cls, extent)
        self.name, self.divisible = name, divisible
        return self

    def __getnewargs__(self) -> tuple[str, int, int]:  # type: ignore[override]
        return self.name, self.divisible, int(self)


def dim(name: str, divisible: int = 1, example: int | None = None) -> Dim:
    """A named extent for `Spec` that may be bound to others later.

    >>> n = axe.dim("n", divisible=8)
    >>> axe.Spec((n, 64), "f16").divisible
    (8, 1)

    Args:
        name: its name; dims of one name have one extent.
        divisible: a number that divides every extent it will be bound to.
        example: the extent to compile for; by default a multiple of `divisible` near 4096.

    Raises:
        ProgramError: not a name, or an example that is not a positive multiple of `divisible`.
    """
    return Dim(name, divisible, example)


@dataclass(frozen=True)
class Spec:
    """One argument: its shape, element type, dim names and the layout it arrives in.

    >>> axe.Spec((8192, 4096), "f16", dims=("tokens", "hidden")).type
    ValueType(dtype='f16', shape=(8192, 4096))

    Attributes:
        shape: extents, each at least 1; an entry may be a `dim`.
        dtype: element type by name, alias or numpy dtype; kept as our name.
        dims: one name per dim ("" for none), or empty.
        layout: a Layout or its text; "any" where the compiler is to choose it; None for dense
            row-major, where arrays in other strides may be taken all the same.

    Raises:
        ProgramError: an extent below 1, an unknown dtype, or names that do not fit the rank.
        LayoutError, NotationError: a layout that does not parse or has another size.
    """

    shape: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...] = ()
    layout: Layout | str | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "shape", _shape(self.shape))
        set_(self, "dtype", dtype(self.dtype).name)
        set_(self, "dims", _names(self.shape, self.dims))
        set_(self, "layout", _layout(self.layout, self.type))

    @property
    def type(self) -> ValueType:
        """Element type and shape, extents as plain integers."""
        return ValueType(self.dtype, tuple(int(e) for e in self.shape))

    @property
    def divisible(self) -> tuple[int, ...]:
        """Per dim, what every extent is a multiple of; empty where no dim is a `dim`."""
        if not any(isinstance(e, Dim) for e in self.shape):
            return ()
        return tuple(e.divisible if isinstance(e, Dim) else 1 for e in self.shape)

    def bound(self, extents: Mapping[str, int]) -> Spec:
        """This spec with other extents for its named dims; the layout stays only with its shape.

        Raises:
            ProgramError: an extent that its dim cannot have.
        """
        names = self.dims or ("",) * len(self.shape)
        shape = tuple(
            _bind(e, extents[name], name) if name in extents else e
            for e, name in zip(self.shape, names, strict=True)
        )
        same = tuple(map(int, shape)) == self.type.shape
        return replace(self, shape=shape, layout=self.layout if same else None)


def _bind(old: int, extent: int, name: str) -> int:
    if not isinstance(extent, int | np.integer):
        raise ProgramError(f"dim {name!r}", f"bound to {extent!r}", "an integer")
    return Dim(name, old.divisible, extent) if isinstance(old, Dim) else extent


def _shape(shape: Any) -> tuple[int, ...]:
    try:
        entries = (shape,) if isinstance(shape, int) else tuple(shape)
    except TypeError:
        raise ProgramError(f"shape {said(shape)}", "is no shape", "a tuple of extents") from None
    for entry in entries:
        whole = isinstance(entry, int | np.integer) and not isinstance(entry, bool)
        if not whole or entry < 1:
            raise ProgramError(
                f"shape {said(entries)}", f"has extent {said(entry)}", "integers of at least 1"
            )
    if len(entries) > MAX_RANK or math.prod(entries) > MAX_ELEMENTS:
        large = f"{len(entries)} dims, {said(math.prod(map(int, entries)))} elements"
        wanted = f"at most {MAX_RANK} dims and {MAX_ELEMENTS:.3g} elements"
        raise ProgramError(f"shape {said(entries)}", f"is too large ({large})", wanted)
    return tuple(e if isinstance(e, Dim) else int(e) for e in entries)


def _names(shape: tuple[int, ...], dims: Any) -> tuple[str, ...]:
    dims = () if dims is None else (dims,) if isinstance(dims, str) else tuple(dims)
    if strange := [d for d in dims if not isinstance(d, str)]:
        raise ProgramError(f"dims {dims}", f"names a dim {strange[0]!r}", "texts")
    if dims and len(dims) != len(shape):
        raise ProgramError(f"dims {dims}", f"names {len(dims)} dims", f"{len(shape)} names")
    given = dims or ("",) * len(shape)
    names = tuple(
        e.name if isinstance(e, Dim) and not name else name
        for e, name in zip(shape, given, strict=True)
    )
    for entry, name in zip(shape, names, strict=True):
        if isinstance(entry, Dim) and entry.name != name:
            raise ProgramError(f"dims {dims}", f"calls dim {entry.name!r} {name!r}", "one name")
    return names if any(names) else ()


def _layout(layout: Any, of: ValueType) -> Layout | str | None:
    if layout is None:
        return None
    if isinstance(layout, str) and layout.strip() == ANY:
        return ANY
    from axe_eq.layout import Layout as LayoutValue
    from axe_eq.layout.notation import check_shape, read_any

    if not isinstance(layout, str | LayoutValue):
        raise ProgramError(f"layout {layout!r}", "is no layout", "a Layout, its text or 'any'")
    found: Layout = (
        layout
        if isinstance(layout, LayoutValue)
        else read_any(layout, shape=of.shape, itemsize=of.itemsize)
    )
    check_shape(found, of.shape)
    return found


# -- texts and arrays as specs --------------------------------------------------------------------

_MOST_DIGITS = 100  # of an extent: of more, Python refuses to read thousands
_ENTRY = re.compile(r"(?:([A-Za-z_]\w*)=)?(\d+)")
_PRINTED = re.compile(r"(\w+)\[((?:\d+(?:,\d+)*)?)\]")  # a type
_FORM = (
    "the form '8192x4096:f16', with names 'tokens=8192x4096:f16', with a layout '...:f16@m-text', "
    "of a scalar ':f16'"
)


def parse_spec(text: str) -> Spec:
    """Read a spec: extents joined by ``x``, with names or not, ``:dtype``, then ``@layout`` or not.

    ``8192x4096:f16``, ``tokens=8192xhidden=4096:f16``, ``64x64:f16@cute:(64,64):(64,1)``; a scalar
    is ``:f32``. A type as messages print it is one too: ``f16[8192,4096]``.

    Raises:
        ProgramError: the text is not of that form, or names no dtype of ours.
        LayoutError, NotationError: the layout does not parse or has another size.
    """
    value, _, layout = text.strip().partition("@")
    if printed := _PRINTED.fullmatch(value.strip()):
        value = f"{printed[2].replace(',', 'x')}:{printed[1]}"
    extents, colon, name = value.partition(":")
    entries = _entries(extents)
    if not colon or not name.strip() or entries is None:
        raise ProgramError(f"spec {text!r}", "does not parse", _FORM)
    names = tuple(label for label, _ in entries)
    shape = tuple(extent for _, extent in entries)
    return Spec(shape, name.strip(), names if any(names) else (), layout.strip() or None)


def _entries(text: str) -> list[tuple[str, int]] | None:
    """Names and extents, or None. Read from the left, because a name may itself hold an x."""
    found: list[tuple[str, int]] = []
    at = 0
    while text and (match := _ENTRY.match(text, at)):
        if len(match[2]) > _MOST_DIGITS:
            raise ProgramError(
                f"spec {said(text)}", f"has an extent of {len(match[2])} digits",
                f"at most {MAX_ELEMENTS:.3g} elements",
            )  # fmt: skip
        found.append((match[1] or "", int(match[2])))
        at = match.end()
        if at == len(text):
            return found
        if text[at] != "x":
            return None
        at += 1
    return None if text else []


def as_spec(value: Any) -> Spec:
    """The spec that a spec, a spec text or an array of any library stands for.

    Raises:
        ProgramError: none of these.
    """
    if isinstance(value, Spec):
        return value
    if isinstance(value, str):
        return parse_spec(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return Spec(tuple(value.shape), _dtype_of(value))
    raise ProgramError(
        f"argument {value!r}",
        f"is of type {type(value).__name__}",
        "a Spec, a spec text such as '8192x4096:f16', or an array",
        hint="bind constants with functools.partial",
    )


def _dtype_of(array: Any) -> Any:
    text = str(array.dtype)
    return text.removeprefix("torch.") if text.startswith("torch.") else array.dtype


def named_extents(specs: Sequence[Spec]) -> dict[str, int]:
    """Extent of every named dim.

    Raises:
        ProgramError: one name with two extents.
    """
    found: dict[str, int] = {}
    for spec in specs:
        for name, extent in zip(spec.dims, spec.type.shape, strict=False):
            if name and found.setdefault(name, extent) != extent:
                wrong = f"has extents {found[name]} and {extent}"
                raise ProgramError(f"dim {name!r}", wrong, "one extent per name")
    return found

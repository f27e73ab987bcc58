"""What texts of Triton say: printed bases, encodings, module aliases, types with an encoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lark import Token, v_args

from axe_eq.layout.notation.text import Reader, given, parse, refuse

Vector = tuple[int, ...]


class Encoding(NamedTuple):
    """``#ttg.NAME<PADDING {FIELDS}>``: a value is an integer, a word, a vector or an encoding."""

    name: str
    fields: dict[str, Any]
    padding: tuple[tuple[int, int], ...]


class Alias(NamedTuple):
    """The name that a module gives to an encoding."""

    name: str


class Basis(NamedTuple):
    """A printed line: bit ``place`` of a hardware dim goes to a vector; no bit at place 0."""

    dim: str
    place: int
    vector: Vector


class Bases(NamedTuple):
    """Printed bases, and the extents of the tensor where they are printed too."""

    lines: tuple[Basis, ...]
    sizes: Vector


class Definition(NamedTuple):
    """A module's line that names an encoding."""

    name: str
    encoding: Encoding


class Said(NamedTuple):
    """What a text means: bases or an encoding, and the extents of the type around it."""

    meant: Any  # Bases or Encoding; an alias of it while the text is read
    shape: Vector | None


@v_args(inline=True)
class _Texts(Reader):
    vector = field = interval = padding = staticmethod(given)
    word, alias, definition = str, Alias, Definition

    def encoding(self, name: Token, padding: Any, *fields: Any) -> Encoding:
        given = dict(field for field in fields if field is not None)
        return Encoding(name.partition(".")[2], given, tuple(padding or ()))

    def typed(self, shaped: Token, value: Any, *_: Any) -> Said:
        return Said(value, tuple(int(extent) for extent in shaped.split("x")[:-1]))

    def basis(self, dim: Token, place: int, *vector: int) -> Basis:
        return Basis(str(dim), place, vector)

    def unit(self, dim: Token) -> Basis:
        return Basis(str(dim), 0, ())

    def size(self, _name: Token, extent: int) -> int:
        return extent

    def printed(self, *items: Basis | int | None) -> Bases:
        lines = tuple(item for item in items if isinstance(item, Basis))
        return Bases(lines, tuple(item for item in items if isinstance(item, int)))


def understood(text: str) -> Said:
    """What a text means, its aliases resolved; of definitions alone the last layout.

    Raises:
        NotationError: bad grammar, a name that is not defined, or no layout.
    """
    defined: dict[str, Encoding] = {}
    said = Said(None, None)
    for item in parse("triton", text, _Texts()):
        if isinstance(item, Definition):
            defined[item.name] = _resolved(item.encoding, defined)
            if item.encoding.fields:  # memory spaces have none
                said = Said(defined[item.name], None)
        else:
            said = item if isinstance(item, Said) else Said(item, None)
    meant = _resolved(said.meant, defined)
    if not isinstance(meant, Bases | Encoding):
        refuse("no layout", "bases, or an encoding as #ttg.blocked<{...}>")
    return Said(meant, said.shape)


def _resolved(value: Any, defined: Mapping[str, Encoding]) -> Any:
    """A value without aliases."""
    if isinstance(value, Alias):
        if value.name not in defined:
            known = ", ".join(defined) or "no alias"
            refuse(f"{value.name} is not defined", f"{known}, or {value.name} = #ttg...")
        return defined[value.name]
    if isinstance(value, Encoding):
        fields = {name: _resolved(field, defined) for name, field in value.fields.items()}
        return value._replace(fields=fields)
    return value

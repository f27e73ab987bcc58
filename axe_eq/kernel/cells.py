"""Cell expressions: what a `map` computes at one element, over the cells of programs.

A cell expression is a tree of cell texts (``add``, ``cast f16``) over operands and constants. Its
meaning is that of the named cells (`axe_eq.program.ops`); a backend adds their spelling, and packs
that of cells of their own (`declare_spelling`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from axe_eq.errors import PackError, ProgramError, ScheduleError
from axe_eq.kernel.userline import user_line
from axe_eq.program import ops
from axe_eq.program.types import DTYPES, dtype, promote


@dataclass(frozen=True)
class Operand:
    """The map's operand number `index` at this element."""

    index: int

    def __str__(self) -> str:
        return f"x{self.index}"


@dataclass(frozen=True, eq=False)
class Constant:
    """A number.

    Attributes:
        value: it; integers and bools stay what they are.
        dtype: its element type, as a constant of a program has one; "" where it takes that of its
            partners, or is an f32, i32 or bool where they hold no number or none like it.
    """

    value: float
    dtype: str = ""

    def __str__(self) -> str:
        return repr(self.value)

    def __eq__(self, other: object) -> bool:  # 0.0 is not -0.0, 1 is not 1.0, and NaN is NaN
        return isinstance(other, Constant) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, str]:
        return repr(self.value), self.dtype

    @property
    def kind(self) -> str:
        """The dtype that it is computed in where nothing else says it."""
        if self.dtype:
            return DTYPES[self.dtype].accumulate
        if isinstance(self.value, bool):
            return "bool"
        if not isinstance(self.value, int):
            return "f32"
        return "i32" if -(1 << 31) <= self.value < 1 << 31 else "i64"

    def computed_in(self, kind: str) -> Any:
        """Its value in an accumulation dtype, rounded as a cast rounds."""
        with np.errstate(all="ignore"):
            return np.asarray(self.value, DTYPES[self.kind].numpy).astype(DTYPES[kind].numpy)

    def suits(self, kinds: Collection[str]) -> bool:
        """Whether one of these dtypes holds it."""
        for name in kinds:
            found = DTYPES[name]
            if found.kind == "f" or (found.kind == "b" and isinstance(self.value, bool)):
                return True
            if found.kind == "i" and np.isfinite(self.value) and self.value == int(self.value):
                ends = np.iinfo(found.numpy)
                if ends.min <= self.value <= ends.max:
                    return True
        return False


@dataclass(frozen=True)
class Apply:
    """A cell applied to cell expressions."""

    cell: str
    args: tuple[Cell, ...]

    @cached_property
    def _hash(self) -> int:
        return hash((self.cell, self.args))

    def __hash__(self) -> int:  # kept: subexpressions that are used twice would be hashed again
        return self._hash

    def __str__(self) -> str:
        return f"{self.cell.replace(' ', ':')}({', '.join(map(str, self.args))})"


Cell = Operand | Constant | Apply


def arg(index: int) -> Operand:
    """Operand number `index` of a map."""
    return Operand(index)


def apply(cell: str, *args: Cell | float) -> Apply:
    """The cell `cell` of `args`; plain numbers become constants.

    Raises:
        ProgramError: no such cell is declared.
        ScheduleError: the cell takes another number of operands or parameters.
    """
    try:
        declared, params = ops.cell(cell)
        if declared.result == "param" and params:
            dtype(params[0])
    except ProgramError as error:
        error.at = error.at or user_line()
        raise
    thing = f"cell {cell!r}"
    if declared.arity is not None and declared.arity != len(args):
        raise ScheduleError(
            thing, f"is applied to {len(args)}", f"{declared.arity}", at=user_line()
        )
    if len(params) != declared.n_params:
        example = f', such as "{declared.name} f32"' if declared.result == "param" else ""
        wrong = f"has {len(params)} parameters in its text"
        raise ScheduleError(thing, wrong, f"{declared.n_params}{example}", at=user_line())
    trees = tuple(a if isinstance(a, Cell) else Constant(a) for a in args)
    return Apply(cell, trees)


IDENTITY = arg(0)


def n_operands(cell: Cell) -> int:
    """One more than the largest operand number."""
    if isinstance(cell, Operand):
        return cell.index + 1
    return max(map(n_operands, cell.args), default=0) if isinstance(cell, Apply) else 0


def used(cell: Cell) -> set[int]:
    """Numbers of the operands that a cell expression depends on."""
    if isinstance(cell, Operand):
        return {cell.index}
    return set().union(*map(used, cell.args)) if isinstance(cell, Apply) else set()


def renumber(cell: Cell, numbers: Mapping[int, int]) -> Cell:
    """The cell expression with its operands renumbered."""
    return substituted(cell, {old: arg(new) for old, new in numbers.items()})


def substituted(cell: Cell, values: Mapping[int, Cell]) -> Cell:
    """The cell expression with operands replaced by expressions; others stay."""
    return replaced(cell, {arg(number): value for number, value in values.items()})


def replaced(cell: Cell, known: Mapping[Cell, Cell]) -> Cell:
    """The cell expression with its largest subexpressions that are `known` replaced.

    What it shares is looked at once and shared again.
    """
    known = {part: other for part, other in known.items() if part != other}
    if not known:
        return cell
    seen: dict[int, Cell] = {}

    def visit(part: Cell) -> Cell:
        found = seen.get(id(part))
        if found is None:
            found = known.get(part)
            if found is None and isinstance(part, Apply):
                found = Apply(part.cell, tuple(map(visit, part.args)))
            found = seen[id(part)] = part if found is None else found
        return found

    return visit(cell)


def subexpressions(cell: Cell) -> dict[Apply, int]:
    """Every distinct application in a cell expression with its number of uses, operands first.

    ``x * x`` with ``x = exp(x0)`` has ``exp(x0)`` twice and the product once.
    """
    found: dict[Apply, int] = {}

    def visit(part: Cell) -> None:
        if not isinstance(part, Apply):
            return
        if part not in found:
            for a in part.args:
                visit(a)
            found[part] = 0
        found[part] += 1

    visit(cell)
    return found


def flops(cell: Cell) -> float:
    """Floating operations of a cell expression at one element, each subexpression counted once."""
    return sum(ops.cell(part.cell)[0].flops for part in subexpressions(cell))


def result_dtype(cell: Cell, dtypes: Sequence[str]) -> str:
    """The dtype a cell expression computes in, from its operands' dtypes."""
    return _result_dtype(cell, dtypes, {})


def _result_dtype(cell: Cell, dtypes: Sequence[str], known: dict[int, str]) -> str:
    """What is used twice is looked at once: by identity, for 1 and 1.0 are equal."""
    found = known.get(id(cell))
    if found is None:
        found = known[id(cell)] = _dtype_of(cell, dtypes, known)
    return found


def _dtype_of(cell: Cell, dtypes: Sequence[str], known: dict[int, str]) -> str:
    if isinstance(cell, Operand):
        return DTYPES[dtypes[cell.index]].accumulate
    if isinstance(cell, Constant):
        return cell.kind
    declared, params = ops.cell(cell.cell)
    if declared.result == "bool":
        return "bool"
    if declared.result == "param":
        return DTYPES[dtype(params[0]).name].accumulate
    return common_dtype(cell, [_result_dtype(a, dtypes, known) for a in cell.args])


def common_dtype(cell: Apply, held: Sequence[str]) -> str:
    """The dtype that a cell's operands, but for its conditions, are computed in.

    It is that of the program's operators (`axe_eq.program.meaning`): the accumulation dtype of
    their common one.

    Args:
        cell: the cell and its operands.
        held: dtype of every operand's value; that of a constant without a dtype counts only where
            the others hold no number like it.
    """
    first = ops.cell(cell.cell)[0].n_conditions
    kinds, loose = set[str](), list[Constant]()
    for a, h in zip(cell.args[first:], held[first:], strict=True):
        if isinstance(a, Constant) and not a.dtype:
            loose.append(a)
        else:
            kinds.add(h)
    kinds |= {a.kind for a in loose if not a.suits(kinds)}
    return DTYPES[promote(*kinds)].accumulate if kinds else "f32"


def evaluate(cell: Cell, operands: Sequence[Any]) -> Any:
    """The numpy meaning on arrays that are already in their accumulation dtypes."""
    if isinstance(cell, Operand):
        return operands[cell.index]
    if isinstance(cell, Constant):
        return cell.computed_in(cell.kind)
    declared, params = ops.cell(cell.cell)
    args = [np.asarray(evaluate(a, operands)) for a in cell.args]
    kind = common_dtype(cell, [dtype(x.dtype).name for x in args])
    first = declared.n_conditions
    args[first:] = [
        a.computed_in(kind) if isinstance(a, Constant) else x.astype(DTYPES[kind].numpy, copy=False)
        for a, x in zip(cell.args[first:], args[first:], strict=True)
    ]
    with np.errstate(all="ignore"):  # a machine computes infinities and NaN without a word
        value = np.asarray(declared.fn(*args, *params))
    return value.astype(_accumulation(value.dtype))


@lru_cache(maxsize=64)
def _accumulation(held: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that values are computed in: a cast rounds, the next cell goes on wide."""
    return DTYPES[DTYPES[dtype(held).name].accumulate].numpy


# -- spellings that packs give --------------------------------------------------------------------

_SPELLINGS: dict[tuple[str, str], Mapping[str, str]] = {}
KINDS = tuple(dict.fromkeys(d.accumulate for d in DTYPES.values()))  # what cells compute in
_FIELD = re.compile(r"\{\{|\}\}|\{(p?)(\d+)\}|[{}]")


def declare_spelling(family: str, cell: str, texts: Mapping[str, str]) -> None:
    """Say how a cell is written in the language of a target family.

    Args:
        family: of targets, "cuda".
        cell: name of a declared cell.
        texts: kind of number that it computes in ("f32" for every narrower float, "f64", "i32",
            "i64", "bool") -> text; ``{0}`` is the first operand, ``{p0}`` the first parameter, and
            ``{{`` a brace.

    Raises:
        PackError: no such cell, kind, operand or parameter, or another spelling was declared.
    """
    thing = f"spelling of cell {cell!r} for {family!r}"
    if cell not in ops.CELLS:
        raise PackError(thing, "names no declared cell", "the name of a cell, declared before")
    declared = ops.CELLS[cell]
    if not texts:
        raise PackError(thing, "is empty", f"a text for one of {' '.join(KINDS)}")
    for kind, text in texts.items():
        if kind not in KINDS:
            raise PackError(thing, f"is for {kind!r}", f"one of {' '.join(KINDS)}")
        for found in _FIELD.finditer(text):
            limit = (
                declared.n_params if found[1] else 2 if declared.arity is None else declared.arity
            )
            if found[0] not in ("{{", "}}") and (found[2] is None or int(found[2]) >= limit):
                names = [
                    *(f"{{{n}}}" for n in range(2 if declared.arity is None else declared.arity))
                ]
                names += [f"{{p{n}}}" for n in range(declared.n_params)]
                wrong = f"has {found[0]!r} in {text!r}"
                raise PackError(thing, wrong, f"{' '.join(names)}, and {{{{ for a brace")
    known = _SPELLINGS.setdefault((family, cell), MappingProxyType(dict(texts)))
    if dict(known) != dict(texts):
        raise PackError(thing, f"is {dict(texts)} and was {dict(known)}", "one spelling")


def forget_spellings(cell: str) -> None:
    """Take back how a cell is written, on every family."""
    for key in [key for key in _SPELLINGS if key[1] == cell]:
        del _SPELLINGS[key]


def spelling(family: str, cell: str, kind: str) -> str | None:
    """The text that a pack declared for a cell on a kind of number; None where none did."""
    return _SPELLINGS.get((family, cell), {}).get(kind)


def spellings(family: str) -> dict[str, dict[str, str]]:
    """What packs declared for a family: cell -> kind of number -> text."""
    return {c: dict(texts) for (f, c), texts in sorted(_SPELLINGS.items()) if f == family}

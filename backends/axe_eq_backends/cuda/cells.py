"""How CUDA C++ spells cells: rows of text templates, by cell name and kind of number.

Operands are f32 (every narrower float), i32 or bool values. ``{0}`` is the first operand's text;
``{p0}`` the first parameter of the cell's text. Cells of packs have the texts that these declare
(`Pack.spelling`), of the same form. Division is right to 2 ulp and the exponential to
1e-5, as in other array compilers: correctly rounded ones cost up to ten times the instructions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from axe_eq.errors import EmitError
from axe_eq.kernel.cells import (
    Apply,
    Cell,
    Constant,
    Operand,
    apply,
    arg,
    common_dtype,
    evaluate,
    flops,
    replaced,
    result_dtype,
    spelling,
    subexpressions,
    used,
)
from axe_eq.program import ops
from axe_eq.program.types import DTYPES, dtype

FLOAT: dict[str, str] = {
    "id": "{0}", "add": "({0} + {1})", "mul": "({0} * {1})", "sub": "({0} - {1})",
    "product": "({0} * {1})",
    "div": "div_f32({0}, {1})", "neg": "(-{0})", "abs": "fabsf({0})",
    "maximum": "max_f32({0}, {1})", "minimum": "min_f32({0}, {1})",
    "where": "({0} ? {1} : {2})", "floor": "floorf({0})",
    "ceil": "ceilf({0})", "trunc": "truncf({0})", "round": "rintf({0})", "sqrt": "sqrtf({0})",
    "rsqrt": "rsqrtf({0})", "exp": "exp_f32({0})", "log": "logf({0})", "log2": "log2f({0})",
    "log10": "log10f({0})", "sin": "sinf({0})", "cos": "cosf({0})", "tanh": "tanh_f32({0})",
    "sigmoid": "sigmoid_f32({0})", "expm1": "expm1f({0})",
    "log1p": "log1pf({0})",
    "tan": "tanf({0})", "sinh": "sinhf({0})", "cosh": "coshf({0})", "erf": "erf_f32({0})",
    "acos": "acosf({0})", "acosh": "acoshf({0})", "asin": "asinf({0})", "asinh": "asinhf({0})",
    "atan": "atanf({0})", "atanh": "atanhf({0})", "atan2": "atan2f({0}, {1})",
    "hypot": "hypotf({0}, {1})", "copysign": "copysignf({0}, {1})", "pow": "powf({0}, {1})",
    "nextafter": "nextafterf({0}, {1})", "isnan": "({0} != {0})",
    "isinf": "(fabsf({0}) == INFINITY_F32)", "isfinite": "(fabsf({0}) < INFINITY_F32)",
    "sign": "sign_f32({0})", "signbit": "(copysignf(1.0f, {0}) < 0)",
    "remainder": "remainder_f32({0}, {1})", "floor_divide": "floor_divide_f32({0}, {1})",
    "logaddexp": "logaddexp_f32({0}, {1})",
}  # fmt: skip
INTEGER: dict[str, str] = {
    "id": "{0}", "add": "add_{kind}({0}, {1})", "mul": "mul_{kind}({0}, {1})",
    "sub": "sub_{kind}({0}, {1})", "neg": "neg_{kind}({0})", "abs": "abs_{kind}({0})",
    "maximum": "max({0}, {1})", "minimum": "min({0}, {1})",
    "where": "({0} ? {1} : {2})", "floor": "{0}", "ceil": "{0}", "trunc": "{0}", "round": "{0}",
    "bit_and": "({0} & {1})", "bit_or": "({0} | {1})", "bit_xor": "({0} ^ {1})",
    "bit_not": "(~{0})", "sign": "(({0} > 0) - ({0} < 0))", "signbit": "({0} < 0)",
    "shl": "shl_{kind}({0}, {1})", "shr": "shr_{kind}({0}, {1})", "pow": "pow_{kind}({0}, {1})",
    "remainder": "remainder_{kind}({0}, {1})", "floor_divide": "floor_divide_{kind}({0}, {1})",
    "isnan": "false", "isinf": "false", "isfinite": "true",
}  # fmt: skip
COMPARE: dict[str, str] = {
    "eq": "({0} == {1})", "ne": "({0} != {1})", "lt": "({0} < {1})", "le": "({0} <= {1})",
    "gt": "({0} > {1})", "ge": "({0} >= {1})", "and": "({0} && {1})", "or": "({0} || {1})",
    "xor": "({0} != {1})", "not": "(!{0})",
}  # fmt: skip
BOOL: dict[str, str] = {
    "id": "{0}", "maximum": "({0} || {1})", "minimum": "({0} && {1})",
    "where": "({0} ? {1} : {2})", "signbit": "false", "isnan": "false", "isinf": "false",
    "isfinite": "true",
}  # fmt: skip
# f64 has the same cells with the functions of its own; division and the exponential are exact.
FLOAT64: dict[str, str] = {
    name: re.sub(r"\b([a-z0-9]+)f\(", r"\1(", row.replace("1.0f", "1.0"))
    .replace("_f32(", "_f64(")
    for name, row in FLOAT.items()
} | {
    "div": "({0} / {1})", "exp": "exp({0})", "erf": "erf({0})", "tanh": "tanh({0})",
    "sigmoid": "(1.0 / (1.0 + exp(-{0})))",
}  # fmt: skip


@dataclass(frozen=True)
class Joint:
    """A text for several f32 cells at once.

    Attributes:
        cell: they, of ``arg(0)``.
        text: as of one cell.
        flops: operations of the text, as `Cell.flops` weighs them.
    """

    cell: Apply
    text: str
    flops: float

    @property
    def saved(self) -> float:
        """Operations that the cells' own texts take beyond this one."""
        return flops(self.cell) - self.flops


# erf and tanh are right in all digits near 0, which 1 + erf(x) does not show: a text of the sum is
# half as long, as exact, and keeps digits near -1, which the sum loses. gelu is made of it.
JOINTS = (
    Joint(apply("pow", 2.0, arg(0)), "exp2_f32({0})", 8),
    Joint(apply("add", 1.0, apply("erf", arg(0))), "one_more_erf_f32({0})", 11),
    Joint(apply("add", 1.0, apply("tanh", arg(0))), "one_more_tanh_f32({0})", 5),
)
# C computes with integers of less than 32 bits in 32, so what leaves their range is cut again.
SMALL = INTEGER | {"bit_not": "bit_not_{kind}({0})"}
_ROWS = {
    "f32": FLOAT, "f64": FLOAT64, "i8": SMALL, "u8": SMALL, "i16": SMALL, "i32": INTEGER,
    "i64": INTEGER, "bool": BOOL,
}  # fmt: skip
_SMALL = frozenset(k for k, rows in _ROWS.items() if rows is SMALL)
C_TYPE = {
    "f32": "float", "f64": "double", "i8": "signed char", "u8": "unsigned char", "i16": "short",
    "i32": "int", "i64": "long long", "bool": "bool",
}  # fmt: skip
FAMILY = "cuda"
SHARED_FLOPS = 8.0  # from here on NVRTC is not left to find that a subexpression is used twice
_NARROW = ("f16", "bf16", "f8e4m3", "f8e5m2")  # computed in f32


def number(value: float, dtype: str) -> str:
    """A constant of a dtype.

    Raises:
        EmitError: the dtype does not hold it.
    """
    if DTYPES[dtype].kind == "i":
        ends = np.iinfo(DTYPES[dtype].numpy)
        if not (math.isfinite(value) and ends.min <= value <= ends.max and value == int(value)):
            wanted = f"an integer from {ends.min} to {ends.max}"
            raise EmitError(f"constant {value}", f"as {dtype}", wanted)
        mark = "ll" if dtype == "i64" else ""
        # The least number has no literal: the minus is an operator.
        least = int(value) == ends.min
        return f"({int(value) + 1}{mark} - 1)" if least else f"{int(value)}{mark}"
    if dtype == "bool":
        return "true" if value else "false"
    if math.isnan(value):
        return "NAN_F32"
    if math.isinf(value) or (dtype == "f32" and abs(value) > np.finfo(np.float32).max):
        return "INFINITY_F32" if value > 0 else "(-INFINITY_F32)"
    # The fewest digits that are this number.
    text = f"{float(value)!r}" if dtype == "f64" else f"{float(str(np.float32(value)))!r}f"
    return text if math.copysign(1.0, value) > 0 else f"({text})"


def spell(cell: Cell, operands: Sequence[str], dtypes: Sequence[str]) -> str:
    """A cell expression as CUDA C++ text.

    Args:
        cell: the expression.
        operands: texts of its operands, in their accumulation dtypes.
        dtypes: element dtypes of its operands.

    Raises:
        EmitError: a cell without a row, or with a number kind that it has no row for.
    """
    if isinstance(cell, Operand):
        return operands[cell.index]
    if isinstance(cell, Constant):
        return number(cell.value, cell.kind)
    if not used(cell):  # of constants alone: C would compute it in types of its own
        return number(evaluate(cell, ()).item(), result_dtype(cell, dtypes))
    name, params = ops.split_text(cell.cell)
    held = [result_dtype(a, dtypes) for a in cell.args]
    kind = common_dtype(cell, held)
    wanted = ["bool"] * ops.cell(cell.cell)[0].n_conditions
    wanted += [kind] * (len(held) - len(wanted))
    args = [
        number(a.computed_in(w).item(), w)
        if isinstance(a, Constant)
        else _converted(spell(a, operands, dtypes), h, w)
        for a, h, w in zip(cell.args, held, wanted, strict=True)
    ]
    if name == "cast":
        return _cast(args[0], kind, dtype(params[0]).name)
    if kind == "f32" and (joint := joined(cell)):
        row, inner = joint
        text = spell(inner, operands, dtypes)
        return row.text.format(_converted(text, result_dtype(inner, dtypes), kind))
    return _apply(cell, name, args, wanted, kind)


def joined(cell: Apply) -> tuple[Joint, Cell] | None:
    """The text that several cells have together, and what it is applied to; None for most."""
    for row in JOINTS:
        if (found := _match(row.cell, cell)) is not None:
            return row, found
    return None


def _match(pattern: Cell, cell: Cell) -> Cell | None:
    """What stands for the operand of a pattern; None where a cell is not of its form."""
    if isinstance(pattern, Operand):
        return cell
    if not (isinstance(pattern, Apply) and isinstance(cell, Apply) and cell.cell == pattern.cell):
        return None
    *before, last = pattern.args
    orders = [cell.args, cell.args[::-1]][: 1 + ops.cell(cell.cell)[0].commutative]
    for args in orders:
        if len(args) == len(pattern.args) and all(map(_is_number, before, args)):
            return _match(last, args[-1])
    return None


def _is_number(constant: Cell, cell: Cell) -> bool:
    return (
        isinstance(constant, Constant) and isinstance(cell, Constant)
        and cell.value == constant.value
    )  # fmt: skip


def function_body(cell: Cell, dtypes: Sequence[str]) -> str:
    """The statements of a function of operands ``x0``, ``x1``, ... that computes a cell.

    Expensive subexpressions that are used more than once are computed once: as a tree, a cell of
    a cell of a cell grows exponentially, and so does the time to compile it.

    Raises:
        EmitError: as `spell`.
    """
    names = [f"x{i}" for i in range(len(dtypes))]
    held = list(dtypes)
    known: dict[Cell, Cell] = {}
    lines = []
    for part, uses in subexpressions(cell).items():
        if uses < 2 or flops(part) < SHARED_FLOPS or not used(part):
            continue
        text = spell(_inside(part, known), names, held)
        known[part] = Operand(len(names))
        kind = result_dtype(part, dtypes)
        lines.append(f"const {C_TYPE[kind]} s{len(names) - len(dtypes)} = {text};")
        names.append(f"s{len(names) - len(dtypes)}")
        held.append(kind)
    return " ".join([*lines, f"return {spell(replaced(cell, known), names, held)};"])


def _inside(part: Apply, known: Mapping[Cell, Cell]) -> Cell:
    return Apply(part.cell, tuple(replaced(a, known) for a in part.args))


def _converted(text: str, held: str, wanted: str) -> str:
    """A value as another kind of number."""
    if held == wanted:
        return text
    return f"({text} != 0)" if wanted == "bool" else f"(({C_TYPE[wanted]})({text}))"


def _row(name: str, kind: str) -> str | None:
    return COMPARE.get(name) or _ROWS.get(kind, {}).get(name) or spelling(FAMILY, name, kind)


def refusal(text: str, dtypes: Sequence[str]) -> str | None:
    """Why a cell cannot be written; None where it can.

    Args:
        text: the cell's text.
        dtypes: element dtypes of its operands.
    """
    name, params = ops.split_text(text)
    given = Apply(text, tuple(map(Operand, range(len(dtypes)))))
    kind = common_dtype(given, [DTYPES[d].accumulate for d in dtypes])
    if name == "cast":
        wide = dtype(params[0]).name
        return None if wide in (*C_TYPE, *_NARROW) else f"cell {text!r} has no CUDA spelling"
    if _row(name, kind) is not None:
        return None
    return f"cell {text!r} has no CUDA spelling on {kind}: Pack.spelling gives it one"


def _apply(cell: Apply, name: str, args: list[str], held: list[str], kind: str) -> str:
    row = _row(name, kind)
    if row is None:
        known = " ".join(sorted(FLOAT))
        raise EmitError(f"cell {cell.cell!r}", f"has no CUDA spelling on {kind}", known)
    if spelling(FAMILY, name, kind) is row:
        return _of_pack(cell, row, args, held, kind)
    if len(args) > 2 and "{2}" not in row:  # n-ary associative cells
        text = args[0]
        for more in args[1:]:
            text = row.format(text, more, kind=kind)
        return text
    return row.format(*args, kind=kind) if len(args) > 1 or "{1}" not in row else args[0]


def _of_pack(cell: Apply, row: str, args: list[str], held: list[str], kind: str) -> str:
    """A pack's text of a cell; operands that it repeats are evaluated once.

    As operands of a function without a name, whose types are given: NVRTC 13.0 takes generic ones
    for functions of the host.
    """
    declared, params = ops.cell(cell.cell)
    if declared.arity is None and len(args) != 2:
        text = args[0]
        for more, of in zip(args[1:], held[1:], strict=True):
            text = _of_pack(Apply(cell.cell, cell.args[:2]), row, [text, more], [kind, of], kind)
        return text
    fields = {f"p{n}": str(p) for n, p in enumerate(params)}
    twice = any(row.count(f"{{{n}}}") > 1 and not a.isidentifier() for n, a in enumerate(args))
    if not twice:
        return f"({row.format(*args, **fields)})"
    names = [f"a{n}" for n in range(len(args))]
    given = ", ".join(f"{C_TYPE[h]} {name}" for h, name in zip(held, names, strict=True))
    return f"[]({given}) {{ return {row.format(*names, **fields)}; }}({', '.join(args)})"


def _cast(text: str, kind: str, to: str) -> str:
    """Round to a narrower type and come back, or change the kind of number."""
    if to in _NARROW:
        return f"round_{to}({text})"
    if to == "bool":
        return f"({text} != 0)"
    if to not in C_TYPE:
        raise EmitError(f"cell 'cast {to}'", f"from {kind} has no CUDA spelling", " ".join(C_TYPE))
    if kind in ("f32", "f64") and to in _SMALL:
        # Through i32, as numpy does: -1 is 255 in u8, where the device's own conversion gives 0.
        text = f"(int)({text})"
    return text if kind == to else f"(({C_TYPE[to]})({text}))"


def combine(monoid: str, a: str, b: str, dtype: str) -> str:
    """Merge two values of a reduction, as its cell is spelled.

    Raises:
        EmitError: as `spell`.
    """
    return spell(apply(ops.MONOIDS[monoid].merges, arg(0), arg(1)), (a, b), (dtype, dtype))

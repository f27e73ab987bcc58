"""Cells written as instructions over tiles: one map per operator, each value computed once.

A tile holds a value over a region of an index space: it has an extent for every dim, 1 along those
that the value does not vary along. Floats are held as they were read or in float32. Integers are
held in float32 where their range is exact there, else in 32 bits; narrow ones wrap as their type
does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.cells import Apply, Cell, Constant, Operand, arg, common_dtype, used
from axe_eq.kernel.values import Values, possible
from axe_eq.program import ops
from axe_eq.program.types import DTYPES, dtype
from axe_eq_backends.nki.build import EngineBuilder, rows_of
from axe_eq_backends.nki.native import DIVIDED, EXPANSIONS, Native, by_power_of_two, divided, raw
from axe_eq_backends.nki.space import constant
from axe_eq_backends.nki.tile import EXACT, HELD, Tile, held_instead, loaded
from axe_eq_backends.nki.vector import ARITHMETIC, BITS, FUNCTIONS, FUSED
from axe_eq_backends.nki.written import BOOLS, COMPARE, FLOATS, INTEGERS, WHOLE


class Cells:
    """Writes cells over tiles of one shape of region.

    Args:
        k: the kernel.
        across: the dim that lies on partitions; None where one partition is used.
        read: what gives the tile of an operand of cells.
        stem: of the names of temporaries.
        into: cells of floats, and where their values go, rounded to what holds them.
    """

    def __init__(
        self, k: EngineBuilder, across: int | None, read: Callable[[int], Tile], stem: str = "t",
        into: Mapping[Cell, ir.View] | None = None,
    ) -> None:  # fmt: skip
        self.k, self.across, self.read, self.stem = k, across, read, stem
        self.into = dict(into or {})
        self.rounded: dict[Cell, str] = {}  # floats that nothing but a store reads, and its type
        self.known: dict[Cell, Tile] = {}
        self._worked_out: dict[Cell, Cell] = {}
        self._kinds: dict[Cell, str] = {}
        self._held: dict[tuple[ir.View, str], Tile] = {}
        self._constants: dict[tuple[Constant, str, ir.View], Tile] = {}

    def refuse(self, wrong: str, expected: str) -> DispatchError:
        """Why a cell cannot be written."""
        return DispatchError("cells", wrong, expected)

    # -- tiles --

    def new(self, dtype: str, shape: Sequence[int], stem: str = "") -> ir.View:
        """A fresh tile in SBUF."""
        return self.k.sbuf(stem or self.stem, dtype, shape, rows_of(shape, self.across)).all

    def joined(self, tiles: Sequence[Tile]) -> tuple[int, ...]:
        """The extents of a value of several tiles."""
        return tuple(max(es) for es in zip(*(t.shape for t in tiles), strict=True))

    def tile(self, cell: Cell) -> Tile:
        """The tile of a cell's value."""
        if cell not in self.known:
            self.known[cell] = self._made(cell)
        return self.known[cell]

    def _made(self, cell: Cell) -> Tile:
        cell = constant(cell, self._worked_out)
        if isinstance(cell, Operand):
            return self.read(cell.index)
        if isinstance(cell, Constant):
            raise self.refuse(f"is the constant {cell}", "an operand beside it")
        return self._applied(cell)

    def constant(self, c: Constant, kind: str, like: Tile) -> Tile:
        """A tile of a constant: a value per partition."""
        return self.constant_in(c, kind, "i32" if DTYPES[kind].kind == "i" else kind, like)

    # -- operators --

    def _applied(self, cell: Apply) -> Tile:
        name, args = cell.cell, cell.args
        if len(args) > 2 and ops.cell(name)[0].arity is None:
            cell = Apply(name, (Apply(name, args[:-1]), args[-1]))
            args = cell.args
        if len(args) == 1 and ops.cell(name)[0].arity is None:
            return self.tile(args[0])  # a sum of one
        if all(isinstance(a, Constant) for a in args):
            raise self.refuse(f"computes {cell} of constants", "an operand")
        kinds = [self._kind(a) for a in args]
        if name.startswith("cast "):
            return self._cast(cell, self.tile(args[0]), name.removeprefix("cast "))
        kind = common_dtype(cell, kinds)
        if kind not in HELD:
            raise self.refuse(f"computes in {kind}", held_instead(kind))
        if name == "where":
            return self._where(cell, kind)
        if DTYPES[kind].kind == "f":
            return self._floats(cell, kind)
        if DTYPES[kind].kind == "b":
            return self._bools(cell)
        return self._integers(cell, kind)

    def _kind(self, cell: Cell) -> str:
        """The dtype that a cell's value is computed in."""
        if isinstance(cell, Constant):
            return cell.kind
        if isinstance(cell, Operand) or cell in self.known:
            return self.tile(cell).kind
        if cell not in self._kinds:  # without computing it: it may become a part of its user
            declared, params = ops.cell(cell.cell)
            if declared.result == "bool":
                found = "bool"
            elif declared.result == "param":
                found = DTYPES[dtype(params[0]).name].accumulate
            else:
                found = common_dtype(cell, [self._kind(a) for a in cell.args])
            self._kinds[cell] = found
        return self._kinds[cell]

    def _out(self, args: Sequence[Tile], dtype: str) -> ir.View:
        return self.new(dtype, self.joined(args))

    def _float(self, cell: Cell, args: Sequence[Tile]) -> ir.View:
        """Where the value of a cell of floats goes."""
        return self.into.get(cell) or self._out(args, self.rounded.get(cell, "f32"))

    def _map(self, cell: Cell, out: ir.View, args: Sequence[Tile]) -> None:
        self.k.map(cell, out, *(a.view for a in args))

    def _numbered(self, cell: Apply, kind: str) -> tuple[Apply, list[Tile]]:
        """The cell over its own operands, which are tiles, with its constants in place."""
        tiles: list[Tile] = []
        args: list[Cell] = []
        for a in cell.args:
            if isinstance(a, Constant):
                args.append(Constant(a.computed_in(kind).item(), a.dtype))
            else:
                args.append(arg(len(tiles)))
                tiles.append(self.tile(a))
        return Apply(cell.cell, tuple(args)), tiles

    # -- floats --

    def _floats(self, cell: Apply, kind: str) -> Tile:
        name = cell.cell
        if name in EXPANSIONS and not raw(cell) and not isinstance(cell, Native):
            formula = EXPANSIONS[name](*cell.args)
            if cell in self.into:
                self.into[formula] = self.into[cell]
            if cell in self.rounded:
                self.rounded[formula] = self.rounded[cell]
            return self.tile(formula)
        if name in FUNCTIONS:
            return self._function(cell)
        if name in ARITHMETIC:
            found = self._fused(cell) if name in FUSED else None
            if found is not None:
                return found
            one, tiles = self._numbered(cell, kind)
            tiles = self._widened(tiles)
            out = self._out(tiles, "bool") if name in COMPARE else self._float(cell, tiles)
            self._map(one, out, tiles)
            return Tile(out, "bool" if name in COMPARE else "f32")
        if raw(cell):
            x = self.tile(cell.args[1])
            out = self._out([x], "f32")
            self._map(Apply("div", (Constant(1.0), arg(0))), out, [x])
            return Tile(out, "f32")
        raise self.refuse(f"computes '{name}' of floats", f"{' '.join(FLOATS)}")

    def _is_column(self, shape: Sequence[int], beside: Sequence[int]) -> bool:
        """One value per partition, beside more."""
        whole = tuple(max(es) for es in zip(shape, beside, strict=True))
        rest = (e for d, e in enumerate(shape) if d != self.across)
        return tuple(shape) != whole and all(e == 1 for e in rest)

    def _extents(self, cell: Cell) -> tuple[int, ...]:
        """The extents of a value, which is not computed for that."""
        if cell in self.known:
            return self.known[cell].shape
        return self.joined([self.tile(arg(n)) for n in sorted(used(cell))])

    def _widened(self, tiles: list[Tile]) -> list[Tile]:
        """Values per partition in float32, as instructions take them beside tiles; at most one."""
        if len(tiles) < 2:
            return tiles
        found = list(tiles)
        for n, t in enumerate(tiles):
            if self._is_column(t.shape, self.joined(tiles)) and t.dtype != "f32":
                found[n] = self.widen(t)
        return found

    def widen(self, t: Tile) -> Tile:
        """The same value in float32."""
        if t.dtype == "f32":
            return t
        out = self._out([t], "f32")
        self._map(arg(0), out, [t])
        return Tile(out, t.kind, t.low, t.high)

    def _fused(self, cell: Apply) -> Tile | None:
        """Two operators of arithmetic with numbers in a row, as one instruction."""
        apps = [a for a in cell.args if isinstance(a, Apply)]
        if len(apps) != 1 or len(cell.args) != 2 or apps[0] in self.known:
            return None
        (inner,) = apps
        if inner.cell not in FUSED or len(inner.args) != 2:
            return None
        numbers = [a for a in inner.args if isinstance(a, Constant)]
        others = [a for a in inner.args if not isinstance(a, Constant)]
        rest = next(a for a in cell.args if a is not inner)
        if len(numbers) != 1 or DTYPES[self._kind(others[0])].kind != "f":
            return None
        x = self.tile(others[0])
        tiles = [x]
        if not isinstance(rest, Constant):
            y = self.tile(rest)
            if y.kind != "f32" or y.shape != self.joined([x, y]) or x.shape != y.shape:
                return None
            tiles.append(y)
        elif self._kind(rest) != "f32" and not isinstance(rest.value, int | float):
            return None

        def told(a: Cell, operand: Cell) -> Cell:
            return Constant(float(a.value)) if isinstance(a, Constant) else operand

        first = Apply(inner.cell, tuple(told(a, arg(0)) for a in inner.args))
        second = Apply(
            cell.cell, tuple(first if a is inner else told(a, arg(1)) for a in cell.args)
        )
        out = self._float(cell, tiles)
        self._map(second, out, tiles)
        return Tile(out, "f32")

    def _function(self, cell: Apply) -> Tile:
        """A function, with the sum and the product before it where the engine does them too."""
        (x,) = cell.args
        bias: list[Tile] = []
        if isinstance(x, Apply) and x.cell in ("add", "sub") and x not in self.known:
            bias, x = self._bias(x)
        scale: Constant | None = None
        if isinstance(x, Apply) and x.cell == "mul" and len(x.args) == 2 and x not in self.known:
            for a, b in (x.args, x.args[::-1]):
                if isinstance(b, Constant) and not isinstance(a, Constant):
                    if self._kind(a) == "f32":
                        x, scale = a, Constant(float(b.value))
                    break
        t = self.tile(x)
        inner: Cell = arg(0) if scale is None else Apply("mul", (arg(0), scale))
        inner = Apply("add", (inner, arg(1))) if bias else inner
        out = self._float(cell, [t, *bias])
        self._map(Apply(cell.cell, (inner,)), out, [t, *bias])
        return Tile(out, "f32")

    def _bias(self, x: Apply) -> tuple[list[Tile], Cell]:
        """(the value per partition that is added, the rest), where a sum is of these."""
        a, b = x.args[0], x.args[-1]
        if len(x.args) != 2 or isinstance(a, Constant) or isinstance(b, Constant):
            return [], x
        if self._kind(a) != "f32" or self._kind(b) != "f32":
            return [], x
        if not self._is_column(self._extents(b), self._extents(a)):
            return [], x
        if x.cell == "sub":  # negated by the instruction that computes it, where one does both
            b = Apply("mul", (b, Constant(-1.0)))
        return [self.widen(self.tile(b))], a

    # -- choices and casts --

    def _where(self, cell: Apply, kind: str) -> Tile:
        condition, yes, no = cell.args
        if isinstance(condition, Constant):
            chosen, other = (yes, no) if condition.value else (no, yes)
            if isinstance(chosen, Constant):
                return self.constant(chosen, kind, self.tile(other))
            found = self.tile(chosen)
            if found.kind == kind:
                return found
            held = self.held(found, self._held_in(kind, [found], []))
            return Tile(held.view, kind, found.low, found.high)
        asked = self.truth(self.tile(condition))
        first, second = parts = [a if isinstance(a, Constant) else self.tile(a) for a in (yes, no)]
        exact = [p for p in parts if isinstance(p, Tile)]
        dtype = self._held_in(kind, exact, [p for p in parts if isinstance(p, Constant)])
        shape = self.joined([asked, *exact])
        if isinstance(first, Constant):
            first = self.constant_in(first, kind, dtype, asked)
        tiles = [asked, self.held(first, dtype)]
        third: Cell = arg(2)
        if isinstance(second, Constant):
            third = Constant(second.computed_in(kind).item())
        else:
            tiles.append(self.held(second, dtype))
        out = self.new(dtype, shape)
        self._map(Apply("where", (arg(0), arg(1), third)), out, tiles)
        low, high = (
            (second.low, second.high) if isinstance(second, Tile) else (second.value, second.value)
        )
        return Tile(out, kind, min(first.low, low), max(first.high, high))

    def constant_in(self, c: Constant, kind: str, dtype: str, like: Tile) -> Tile:
        """A tile of a constant in an element type."""
        value = c.computed_in(kind).item()
        shape = [e if d == self.across else 1 for d, e in enumerate(like.shape)]
        out = self.new(dtype, shape, "c")
        self.k.fill(out, float(value) if DTYPES[dtype].kind == "f" else value)
        return Tile(out, kind, value, value)

    def _held_in(self, kind: str, tiles: Sequence[Tile], numbers: Sequence[Constant]) -> str:
        """The element type that holds some values of a kind."""
        if DTYPES[kind].kind == "f":
            return "f32"
        if DTYPES[kind].kind == "b":
            return "bool"
        exact = all(t.is_exact for t in tiles) and all(abs(c.value) <= EXACT for c in numbers)
        return "f32" if exact else "i32"

    def held(self, t: Tile, dtype: str) -> Tile:
        """The same value in another element type, which holds it."""
        if t.dtype == dtype:
            return t
        if (t.view, dtype) not in self._held:
            out = self._out([t], dtype)
            through = Apply(f"cast {dtype}", (arg(0),)) if dtype != "f32" else arg(0)
            self._map(through, out, [t])
            self._held[t.view, dtype] = Tile(out, t.kind, t.low, t.high)
        return self._held[t.view, dtype]

    def truth(self, t: Tile) -> Tile:
        """Whether a value is not zero, as a bool."""
        if t.kind == "bool" and t.dtype == "bool":
            return t
        out = self._out([t], "bool")
        self._map(Apply("ne", (arg(0), Constant(0.0 if t.dtype == "f32" else 0))), out, [t])
        return Tile(out, "bool", 0, 1)

    def _cast(self, cell: Apply, t: Tile, name: str) -> Tile:
        to = DTYPES[name]
        if name not in HELD:
            raise self.refuse(f"casts to {name}", held_instead(name))
        if to.kind == "b":
            return self.truth(t)
        if to.kind == "f":
            return self._to_float(t, name)
        if t.kind == "f32":
            is_whole = isinstance(cell, Native)
            whole = t if is_whole else self.tile(EXPANSIONS["trunc"](cell.args[0]))
            out = self._out([whole], "i32")
            self._map(Apply("cast i32", (arg(0),)), out, [whole])
            t = Tile(out, "i32", -(2.0**31), 2.0**31 - 1)
        return self.wrapped(t, name)

    def _to_float(self, t: Tile, name: str) -> Tile:
        held = DTYPES[t.dtype]
        if t.kind == "f32" and name == "f32" and held.kind == "f":
            return Tile(t.view, "f32")
        if t.dtype == name:
            return Tile(t.view, "f32")
        out = self._out([t], name)
        self._map(Apply(f"cast {name}", (arg(0),)), out, [t])
        return Tile(out, "f32")

    # -- bools --

    def _bools(self, cell: Apply) -> Tile:
        name = cell.cell
        if name == "not":
            t = self.truth(self.tile(cell.args[0]))
            out = self._out([t], "bool")
            self._map(Apply("eq", (arg(0), Constant(False))), out, [t])
            return Tile(out, "bool", 0, 1)
        if name in WHOLE:
            return self._known(cell, WHOLE[name])
        renamed = {"maximum": "or", "minimum": "and"}.get(name, name)
        if renamed not in ("and", "or", "xor", *COMPARE):
            raise self.refuse(f"computes '{name}' of bools", " ".join(BOOLS))
        tiles = [self.truth(self._boolean(a, cell)) for a in cell.args]
        out = self._out(tiles, "bool")
        self._map(Apply(renamed, (arg(0), arg(1))), out, tiles)
        return Tile(out, "bool", 0, 1)

    def _known(self, cell: Apply, value: bool) -> Tile:
        """What a question has for an answer, whatever it is asked about."""
        like = self.tile(cell.args[0])
        out = self.new("bool", like.shape)
        self.k.fill(out, int(value))
        return Tile(out, "bool", value, value)

    def _boolean(self, a: Cell, cell: Apply) -> Tile:
        if not isinstance(a, Constant):
            return self.tile(a)
        like = next(self.tile(x) for x in cell.args if not isinstance(x, Constant))
        return self.constant(Constant(bool(a.value)), "bool", like)

    # -- integers --

    def _integers(self, cell: Apply, kind: str) -> Tile:
        cell = bits if (bits := by_power_of_two(cell)) is not None else cell
        name = cell.cell
        tiles = [
            self.constant_like(a, kind, cell) if isinstance(a, Constant) else self.tile(a)
            for a in cell.args
        ]
        if name in COMPARE:
            return self._compared(name, tiles)
        if name in ("floor", "ceil", "trunc", "round"):
            return tiles[0]
        if name in WHOLE:
            return self._known(cell, WHOLE[name])
        if name == "signbit":
            return self._compared("lt", [tiles[0], None])
        low, high = self._unwrapped(cell, tiles)
        fits = max(-low, high) <= EXACT and all(t.is_exact for t in tiles)
        simple = {"neg": ("sub", True), "abs": ("abs", False), "sign": ("sign", False)}
        if fits and name in (*FUSED, "neg", "abs", "sign"):
            args: tuple[Cell, ...] = tuple(arg(n) for n in range(len(tiles)))
            if name == "neg":
                made: Cell = Apply("mul", (arg(0), Constant(-1.0)))
            else:
                made = Apply(name, args)
            tiles = [self.held(t, "f32") for t in tiles]
            view = self._out(tiles, "f32")
            self._map(made, view, tiles)
            return self.wrapped(Tile(view, "i32", *self._unwrapped(cell, tiles)), kind)
        if name in simple and name != "neg":
            return self._sized(name, tiles[0], kind)
        if name == "neg":
            tiles = [self.constant(Constant(0), "i32", tiles[0]), *tiles]
            name = "sub"
        if name in ("add", "sub", "mul"):
            return self.wrapped(self._words(name, tiles), kind)
        if name in ("maximum", "minimum"):
            return self._greater(name, tiles, kind)
        if name in BITS or name == "bit_not":
            return self._bits(name, tiles, kind)
        if name in DIVIDED:
            return self._divided(name, tiles, kind)
        raise self.refuse(f"computes '{name}' of {kind}", " ".join(INTEGERS))

    def constant_like(self, c: Constant, kind: str, cell: Apply) -> Tile:
        """A constant beside the other operands of a cell."""
        like = next(self.tile(a) for a in cell.args if not isinstance(a, Constant))
        key = c, kind, like.view
        if key not in self._constants:
            self._constants[key] = self.constant(c, kind, like)
        return self._constants[key]

    def _unwrapped(self, cell: Apply, tiles: Sequence[Tile]) -> tuple[float, float]:
        """What a cell gives before it wraps to a narrow type: all that 32 bits hold, at most."""
        ends = [Values(np.asarray(t.low), np.asarray(t.high), np.asarray(False)) for t in tiles]
        one = Apply(cell.cell, tuple(arg(n) for n in range(len(tiles))))
        found = possible(one, ends, ["i32"] * len(tiles))
        return float(found.low), float(found.high)

    def _words(self, name: str, tiles: Sequence[Tile]) -> Tile:
        """Modulo 2^32, on 32 bits."""
        words = [self.held(t, "i32") for t in tiles]
        out = self._out(words, "i32")
        self._map(Apply(name, (arg(0), arg(1))), out, words)
        return Tile(out, "i32", -(2.0**31), 2.0**31 - 1)

    def wrapped(self, t: Tile, name: str) -> Tile:
        """A whole number modulo what an integer type holds."""
        ends = np.iinfo(DTYPES[name].numpy)
        if t.low >= ends.min and t.high <= ends.max:
            return Tile(t.view, name, t.low, t.high)
        if name == "i32":
            return Tile(t.view, name, float(ends.min), float(ends.max))
        bits = 8 * DTYPES[name].itemsize
        t = self.held(t, "i32")
        low = self._bit("bit_and", t, (1 << bits) - 1)
        if name == "u8":
            return Tile(low, name, 0, 255)
        turned = self._bit("bit_xor", Tile(low, "i32"), 1 << (bits - 1))
        out = self.new("f32", t.shape)
        less = Constant(float(1 << (bits - 1)))
        self.k.map(Apply("sub", (arg(0), less)), out, turned)
        return Tile(out, name, float(ends.min), float(ends.max))

    def _bit(self, name: str, t: Tile, number: int) -> ir.View:
        out = self._out([t], "i32")
        self._map(Apply(name, (arg(0), Constant(number))), out, [t])
        return out

    def _bits(self, name: str, tiles: Sequence[Tile], kind: str) -> Tile:
        words = [self.held(t, "i32") for t in tiles]
        ends = np.iinfo(DTYPES[kind].numpy)
        if name == "bit_not":
            out = self._bit("bit_xor", words[0], -1)
            return self.wrapped(Tile(out, "i32", -np.inf, np.inf), kind)
        if name == "shr" and words[0].low < 0:
            return self._shifted(words, kind)
        out = self._out(words, "i32")
        self._map(Apply(name, (arg(0), arg(1))), out, words)
        if name == "shl":
            return self.wrapped(Tile(out, "i32"), kind)
        return Tile(out, kind, float(ends.min), float(ends.max))

    def _shifted(self, words: Sequence[Tile], kind: str) -> Tile:
        """To the right with the sign kept: of what is not negative, with the bits turned again."""
        x, by = words
        under = self._out([x], "i32")
        self._map(Apply("cast i32", (arg(0),)), under, [self._compared("lt", [x, None])])
        zero = self.constant(Constant(0), "i32", x)
        mask = self._words("sub", [zero, Tile(under, "i32", 0, 1)])
        turned = self._out([x, mask], "i32")
        self._map(Apply("bit_xor", (arg(0), arg(1))), turned, [x, mask])
        moved = self._out([Tile(turned, "i32"), by], "i32")
        self._map(Apply("shr", (arg(0), arg(1))), moved, [Tile(turned, "i32"), by])
        back = self._out([Tile(moved, "i32"), mask], "i32")
        self._map(Apply("bit_xor", (arg(0), arg(1))), back, [Tile(moved, "i32"), mask])
        ends = np.iinfo(DTYPES[kind].numpy)
        return Tile(back, kind, float(ends.min), float(ends.max))

    def _compared(self, name: str, tiles: Sequence[Tile | None]) -> Tile:
        """A comparison; None is 0. Of 32 bits: of the upper half, then of the lower one."""
        given = [t for t in tiles if t is not None]
        if all(t.is_exact for t in given) or len(given) < len(tiles):
            # Of a 32-bit integer and 0 float32 keeps the sign.
            args = tuple(Constant(0) if t is None else arg(n) for n, t in enumerate(tiles))
            out = self._out(given, "bool")
            self._map(Apply(name, args), out, self._columns(given))
            return Tile(out, "bool", 0, 1)
        a, b = (self.held(t, "i32") for t in given)
        if name in ("eq", "ne"):
            apart = self._out([a, b], "i32")
            self._map(Apply("bit_xor", (arg(0), arg(1))), apart, [a, b])
            out = self._out([Tile(apart, "i32")], "bool")
            self._map(Apply(name, (arg(0), Constant(0))), out, [Tile(apart, "i32")])
            return Tile(out, "bool", 0, 1)
        return self._halves(name, a, b)

    def _columns(self, tiles: Sequence[Tile]) -> list[Tile]:
        return [
            self.held(t, "f32")
            if len(tiles) > 1 and self._is_column(t.shape, self.joined(tiles))
            else t
            for t in tiles
        ]

    def _halves(self, name: str, a: Tile, b: Tile) -> Tile:
        """One after another: greater in the upper 16 bits, or there equal and so in the lower."""
        strict = {"le": "lt", "ge": "gt"}.get(name, name)
        parts = []
        for t in (a, b):
            turned = self._bit("bit_xor", t, -(1 << 31))  # so that they are numbers without a sign
            high = self._bit("shr", Tile(turned, "i32"), 16)
            low = self._bit("bit_and", Tile(turned, "i32"), 0xFFFF)
            parts.append((Tile(high, "i32", 0, 65535), Tile(low, "i32", 0, 65535)))
        (ah, al), (bh, bl) = parts
        first = self._compared(strict, [ah, bh])
        same = self._compared("eq", [ah, bh])
        second = self._compared(name, [al, bl])
        both = self._out([same, second], "bool")
        self._map(Apply("and", (arg(0), arg(1))), both, [same, second])
        out = self._out([first, Tile(both, "bool")], "bool")
        self._map(Apply("or", (arg(0), arg(1))), out, [first, Tile(both, "bool")])
        return Tile(out, "bool", 0, 1)

    def _greater(self, name: str, tiles: Sequence[Tile], kind: str) -> Tile:
        a, b = (self.held(t, "i32") for t in tiles)
        wins = self._compared("gt" if name == "maximum" else "lt", [a, b])
        out = self._out([a, b], "i32")
        self._map(Apply("where", (arg(0), arg(1), arg(2))), out, [wins, a, b])
        return Tile(out, kind, min(a.low, b.low), max(a.high, b.high))

    def _sized(self, name: str, t: Tile, kind: str) -> Tile:
        """The size or the sign of an integer of 32 bits."""
        word = self.held(t, "i32")
        if name == "sign":
            out = self._out([word], "f32")
            self._map(Apply("sign", (arg(0),)), out, [word])
            return Tile(out, kind, -1, 1)
        zero = self.constant(Constant(0), "i32", word)
        less = self._words("sub", [zero, word])
        under = self._compared("lt", [word, None])
        out = self._out([word], "i32")
        self._map(Apply("where", (arg(0), arg(1), arg(2))), out, [under, less, word])
        return self.wrapped(Tile(out, "i32", -(2.0**31), 2.0**31), kind)

    def _divided(self, name: str, tiles: Sequence[Tile], kind: str) -> Tile:
        """Quotients and remainders, in as many steps of float32 as they need."""
        words = [self.held(t, "i32") for t in tiles]
        most = [max(abs(t.low), abs(t.high)) for t in words]
        inner = Cells(self.k, self.across, words.__getitem__, self.stem)
        found = inner.tile(divided(name, arg(0), arg(1), most[0]))
        end = most[name == "remainder"]
        return self.wrapped(Tile(found.view, "i32", -end, end), kind)


__all__ = ["EXACT", "HELD", "Cells", "Tile", "loaded"]

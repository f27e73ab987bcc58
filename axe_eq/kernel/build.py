"""Writing kernels: `Builder` records statements and checks them where they stand.

What every execution model has is here: arguments, states, loops, primitives. A model derives a
builder of its own, with memories, scopes and synchronisation (`axe_eq.kernel.threads.build`).
Errors name the user's line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import gcd
from typing import ClassVar

from axe_eq.kernel import given, ir
from axe_eq.kernel.cells import Cell, renumber, used
from axe_eq.kernel.expr import Expr, Int, Var, bounds, divisor, var
from axe_eq.kernel.given import integer, refuse, whole
from axe_eq.kernel.parts import Parts
from axe_eq.kernel.placement import Iter, Placement, number, of_layout, row_major, strided
from axe_eq.kernel.spaces import GLOBAL, Space
from axe_eq.kernel.userline import user_line
from axe_eq.layout import Layout
from axe_eq.program.ops import MONOIDS

DEEPEST = 100  # statements inside one another, which are walked by recursion


class Builder:
    """Records one kernel.

    Args:
        kernel: of an execution model, without statements.
    """

    _arguments: ClassVar[Space] = Space("global", GLOBAL, ("m",))  # the memory that holds them

    def __init__(self, kernel: ir.Kernel) -> None:
        if not isinstance(kernel, ir.Kernel):
            wrong = f"of {kernel!r}"
            expected = "a kernel; on threads axe_eq.kernel.threads.build.ThreadBuilder(name, warps)"
            raise refuse("builder", wrong, expected)
        self._recorded = kernel
        self._bodies: list[ir.Body] = [kernel.body]
        self._scopes = [kernel.top.scope]
        self._names: dict[str, int] = {}  # how often each was taken
        self._parts = Parts(kernel.outputs)
        self._lets: dict[str, Int] = {}
        self._conditions: list[Int] = []

    # -- declarations --

    def _fresh(self, name: str) -> str:
        count = self._names.get(given.name("a part of a kernel", name), 0)
        while (found := f"{name}_{count}" if count else name) in self._names and count:
            count += 1
        self._names[name] = count + 1
        self._names.setdefault(found, 1)
        return found

    def param(self, name: str, divisor: int = 1, high: int | None = None) -> Var:
        """A run-time integer argument, at least 1, that `divisor` divides (checked at launch)."""
        divisor = whole(f"param {name}", "divisor", divisor, 1)
        if high is not None:
            high = whole(f"param {name}", "high", high, divisor)
        value = var(self._fresh(name), divisor, low=divisor, high=high)
        self._recorded.params.append(value)
        return value

    def tensor(
        self,
        name: str,
        dtype: str,
        shape: Sequence[Int],
        *,
        strides: Sequence[Int] | None = None,
        layout: Layout | Placement | str | None = None,
        output: bool = False,
    ) -> ir.Buffer:
        """An argument, row-major unless strides (elements) or a layout are given."""
        thing = f"tensor {name}"
        extents = given.shape(thing, shape)
        if strides is not None:
            steps = given.integers(thing, "strides", strides)
            if len(steps) != len(extents):
                raise refuse(thing, f"{len(steps)} strides for {len(extents)} dims", "one each")
            place = strided(extents, steps)
        else:
            place = row_major(extents) if layout is None else self._placed(layout, extents, thing)
        given.place(thing, place, self._arguments.axes, at_zero=False)
        buffer = self._buffer(thing, name, self._arguments, dtype, extents, place)
        self._recorded.tensors.append(buffer)
        if output:
            self._recorded.outputs.append(buffer.name)
        return buffer

    def buffer(
        self,
        space: Space,
        name: str,
        dtype: str,
        shape: Sequence[int],
        layout: Layout | Placement | str | None = None,
    ) -> ir.Buffer:
        """A piece of a memory, row-major unless `layout` says otherwise."""
        thing = f"{space.name} {name}"
        extents = given.shape(thing, shape)
        place = row_major(extents) if layout is None else self._placed(layout, extents, thing)
        given.place(thing, place, space.axes, at_zero=True)
        made = self._buffer(thing, name, space, dtype, extents, place)
        self._recorded.buffers.append(made)
        return made

    def _placed(
        self, layout: Layout | Placement | str, shape: Sequence[Int], thing: str
    ) -> Placement:
        if isinstance(layout, Placement):
            return layout
        if not isinstance(layout, Layout | str):
            raise refuse(thing, f"layout {layout!r}", "a Layout or its text")
        with given.at_user_line():
            parsed = Layout.parse(layout) if isinstance(layout, str) else layout
            return of_layout(parsed, [number(e) for e in shape], thing, self._split)

    def _split(self, i: Iter, thing: str) -> Sequence[Iter]:
        """The iters on the model's axes that one iter of a layout stands for."""
        return (i,)

    def _buffer(
        self,
        thing: str,
        name: str,
        space: Space,
        dtype: str,
        shape: tuple[Int, ...],
        place: Placement,
    ) -> ir.Buffer:
        kind = given.dtype(thing, dtype)
        if len(place.blocks) != len(shape):
            raise refuse(thing, f"layout of {len(place.blocks)} dims", f"{len(shape)}")
        buffer = ir.Buffer(self._fresh(name), space, kind, shape, place)
        self._parts.add(buffer)
        return buffer

    def state(self, name: str, value: Int, low: int | None = 0, high: int | None = None) -> Var:
        """A mutable run-time integer; the interpreter checks that it stays within its bounds."""
        thing = f"state {name}"
        v = var(self._fresh(name), 1, *given.promised(thing, low, high))
        self._parts.add(v)
        self._add(ir.Let(v, self._parts.held(v, value)))
        return v

    def let(
        self,
        name: str,
        value: Int,
        low: int | None = None,
        high: int | None = None,
        anew: bool = False,
    ) -> Int:
        """Name a value; what is proven about it stays known.

        Args:
            name: in texts.
            value: what it is.
            low: the least that it is where the author knows more than is proven; the interpreter
                checks it.
            high: the most.
            anew: what is computed of it is computed here, and not kept in registers around a loop.
        """
        value = integer(f"let {name}", "value", value)
        plain = isinstance(value, Var) and low is high is None and not anew
        if not isinstance(value, Expr) or plain:
            return value
        (least, most), promised = bounds(value), given.promised(f"let {name}", low, high)
        least = max((b for b in (least, promised[0]) if b is not None), default=None)
        most = min((b for b in (most, promised[1]) if b is not None), default=None)
        v = var(self._fresh(name), max(divisor(value), 1), least, most)
        self._add(ir.Let(v, value, anew))
        self._lets[v.name] = value
        return v

    def assign(self, state: Var, value: Int) -> None:
        """Change a state."""
        self._add(ir.Assign(state, self._parts.held(state, value)))

    # -- control --

    def _add(self, statement: ir.Statement) -> None:
        statement.at = user_line()
        self._bodies[-1].append(statement)

    @contextmanager
    def _inside(self, body: ir.Body, scope: str | None = None) -> Iterator[None]:
        if len(self._bodies) > DEEPEST:
            raise refuse("kernel", f"statements of {DEEPEST} levels", "fewer inside one another")
        self._bodies.append(body)
        self._scopes.append(scope or self._scopes[-1])
        try:
            yield
        finally:
            self._bodies.pop()
            self._scopes.pop()

    @contextmanager
    def range(self, stop: Int, start: Int = 0, step: Int = 1, name: str = "i") -> Iterator[Var]:
        """Loop over a range, upwards; ``with k.range(n) as i:``."""
        start, stop = integer("range", "start", start), integer("range", "stop", stop)
        least = bounds(integer("range", "step", step))[0]
        if least is None or least < 1:
            raise refuse("range", f"step {step}", "a step that is proven to be at least 1")
        low, high = bounds(start)[0], bounds(stop - 1)[1]
        v = var(self._fresh(name), max(divisor(start) and _common(start, step), 1), low, high)
        loop = ir.For(v, start, stop, step)
        self._add(loop)
        with self._inside(loop.body):
            yield v

    @contextmanager
    def when(self, condition: Int) -> Iterator[None]:
        """The body, where the run-time condition holds."""
        branch = ir.If(condition := given.condition("when", condition))
        self._add(branch)
        self._conditions.append(condition)
        try:
            with self._inside(branch.body):
                yield
        finally:
            self._conditions.pop()

    # -- primitives --

    def _same_shape(self, what: str, to: ir.View, src: ir.View) -> None:
        a, b = self._parts.written(what, to), self._parts.view(what, src)
        if a.shape != b.shape:
            raise refuse(what, f"{a} has shape {a.shape}, {b} has {b.shape}", "equal shapes")

    def copy(self, dst: ir.View, src: ir.View, fill: float = 0.0, via: str = "") -> None:
        """Copy between memories or registers; elements outside a global source read as `fill`."""
        self._same_shape("copy", dst, src)
        if dst.buffer.dtype != src.buffer.dtype:
            cast = f'k.map with a cast: apply("cast {dst.buffer.dtype}", arg(0))'
            raise refuse("copy", f"{src.buffer.dtype} to {dst.buffer.dtype}", cast)
        fill = given.constant("copy", fill, src.buffer.dtype)
        self._add(ir.Copy(dst, src, fill, via))

    def merge(self, dst: ir.View, src: ir.View, monoid: str = "+") -> None:
        """Merge registers with what a global tensor holds, and leave the result there.

        Args:
            dst: a part of an output, which holds something before the kernel.
            src: a register tile of the same shape.
            monoid: one that an instruction of the machine merges by in memory.
        """
        self._merges("merge", dst, src, monoid)
        if not dst.buffer.is_global or not src.buffer.is_private:
            raise refuse("merge", f"{src} to {dst}", "registers to a global tensor")
        self._add(ir.Merge(dst, src, monoid=monoid))

    def _merges(self, what: str, dst: ir.View, src: ir.View, monoid: str) -> None:
        self._same_shape(what, dst, src)
        if dst.buffer.dtype != src.buffer.dtype:
            raise refuse(what, f"{src.buffer.dtype} to {dst.buffer.dtype}", "one dtype")
        if monoid not in MONOIDS or not MONOIDS[monoid].merges:
            raise refuse(what, f"monoid {monoid!r}", "one that merges by a cell")

    def gemm(self, acc: ir.View, a: ir.View, b: ir.View, accumulate: Int) -> None:
        """Multiply: acc[m, n] (+)= a[m, k] b[n, k]."""
        self._gemm(acc, a, b, accumulate, False)

    def _gemm(
        self, acc: ir.View, a: ir.View, b: ir.View, accumulate: Int, asynchronous: bool
    ) -> None:
        acc, a, b = (
            self._parts.written("gemm", acc),
            self._parts.view("gemm", a),
            self._parts.view("gemm", b),
        )
        accumulate = given.condition("gemm", accumulate)
        shapes = acc.shape, a.shape, b.shape
        if [len(s) for s in shapes] != [2, 2, 2] or shapes != (
            (a.shape[0], b.shape[0]),
            (acc.shape[0], b.shape[1]),
            (acc.shape[1], a.shape[1]),
        ):
            raise refuse("gemm", f"shapes {shapes}", "(m, n), (m, k), (n, k)")
        self._add(ir.Gemm(acc, a, b, accumulate, asynchronous))

    def map(self, cell: Cell, out: ir.View, *ins: ir.View) -> None:
        """Apply a cell elementwise on registers; operands broadcast as in numpy."""
        out, ins = self._parts.written("map", out), tuple(self._parts.view("map", v) for v in ins)
        cell = given.cell("map", cell, [v.buffer.dtype for v in ins])
        kept = sorted(used(cell))
        cell, ins = renumber(cell, {n: i for i, n in enumerate(kept)}), tuple(ins[n] for n in kept)
        for view in ins:
            padded = (1,) * (len(out.shape) - len(view.shape)) + view.shape
            fits = len(padded) == len(out.shape)
            if not fits or any(e not in (1, o) for e, o in zip(padded, out.shape, strict=True)):
                raise refuse("map", f"{view} of shape {view.shape}", f"broadcast to {out.shape}")
        self._add(ir.Map(cell, out, ins))

    def reduce(
        self,
        monoid: str,
        out: ir.View,
        src: ir.View,
        dims: Sequence[int],
        scratch: ir.Buffer | None = None,
    ) -> None:
        """Reduce registers over `dims`; out keeps them with extent 1."""
        out, src = self._parts.written("reduce", out), self._parts.view("reduce", src)
        given.monoid("reduce", monoid, src.buffer.dtype)
        dims = given.dims("reduce", dims, len(src.shape))
        if scratch is not None:
            self._parts.buffer("reduce", scratch)
        wanted = tuple(1 if d in dims else e for d, e in enumerate(src.shape))
        if out.shape != wanted:
            raise refuse("reduce", f"{out} of shape {out.shape}", f"shape {wanted}")
        self._add(ir.Reduce(monoid, out, src, dims, scratch))

    def scan(
        self,
        merge: Cell | Sequence[Cell],
        states: Sequence[ir.View],
        carries: Sequence[ir.View],
        dim: int,
        scratch: Sequence[ir.Buffer] = (),
    ) -> None:
        """Scan register tiles along `dim` in place, after what the carries hold; see `ir.Scan`."""
        held, kept = ([self._parts.written("scan", v) for v in of] for of in (states, carries))
        cells = [merge] if isinstance(merge, Cell) else list(merge)
        if not held or not len(held) == len(kept) == len(cells):
            counts = f"{len(held)} states, {len(kept)} carries, {len(cells)} cells"
            raise refuse("scan", counts, "as many of each, one at least")
        dtypes = [v.buffer.dtype for v in held]
        merges = tuple(given.cell("scan", c, dtypes * 2) for c in cells)
        (dim,) = given.dims("scan", [dim], len(held[0].shape))
        shape = held[0].shape
        once = tuple(1 if d == dim else e for d, e in enumerate(shape))
        for state, carry, dtype in zip(held, kept, dtypes, strict=True):
            if state.shape != shape:
                raise refuse("scan", f"{state} of shape {state.shape}", f"shape {shape}")
            if carry.shape != once or carry.buffer.dtype != dtype:
                wrong = f"{carry} of {carry.buffer.dtype}{list(carry.shape)}"
                raise refuse("scan", wrong, f"{dtype}{list(once)}")
        for buffer in scratch:
            self._parts.buffer("scan", buffer)
        self._add(ir.Scan(merges, tuple(held), tuple(kept), dim, tuple(scratch)))

    def fill(self, out: ir.View, value: float) -> None:
        """Set every element."""
        out = self._parts.written("fill", out)
        self._add(ir.Fill(out, given.constant("fill", value, out.buffer.dtype)))

    def index(self, out: ir.View, dim: int, begin: Int = 0) -> None:
        """Set every element of an i32 tile to begin + its position along `dim`."""
        if self._parts.written("index", out).buffer.dtype != "i32":
            raise refuse("index", f"into {out.buffer.dtype}", "i32")
        (dim,) = given.dims("index", [dim], len(out.shape))
        self._add(ir.Index(out, dim, integer("index", "begin", begin)))

    # -- finish --

    def finish(self) -> ir.Kernel:
        """The finished kernel."""
        if len(self._bodies) > 1:
            named = f"kernel {self._recorded.name}"
            raise refuse(named, "is finished inside a scope", "at its top")
        return self._recorded


def _common(start: Int, step: Int) -> int:
    return gcd(divisor(start), divisor(step))

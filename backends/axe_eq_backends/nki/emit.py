"""Planned kernels as NKI Python: pure, deterministic, readable.

Dialect 0.3 and later; with 0.2 nothing says that products accumulate, as there it follows. Only
`nki.isa` instructions and `nl.ndarray`; arguments by name; layouts in comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from axe_eq.errors import EmitError
from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import variables
from axe_eq.kernel.expr import Int, Var, bounds, text
from axe_eq_backends.nki.access import Access, linear
from axe_eq_backends.nki.families import texts
from axe_eq_backends.nki.place import first_uses
from axe_eq_backends.nki.planning import Made

DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "i32": "int32", "i16": "int16",
    "i8": "int8", "u8": "uint8", "bool": "uint8", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}  # fmt: skip
DIALECTS = ("0.2", "0.3")


@dataclass(frozen=True)
class Port:
    """An argument or a result of an emitted kernel.

    Attributes:
        buffer: what it is called.
        shape: as the kernel has it.
        dtype: its element type.
        said: what the text says that it is: its type, and its layout where it lies flat.
    """

    buffer: str
    shape: tuple[int, ...]
    dtype: str
    said: str


@dataclass(frozen=True)
class Source:
    """An emitted kernel.

    Attributes:
        name: of its function.
        text: a Python module.
        inputs, outputs: in the order of its arguments and results.
    """

    name: str
    text: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


class Writer:
    """Writes one kernel.

    Args:
        made: what to write.
        buffers: tensor of the kernel -> buffer.
        ports: buffer -> its shape as an argument, in the order of arguments and of results.
        dialect: of NKI.
    """

    def __init__(
        self, made: Made, buffers: Mapping[str, str], ports: Mapping[str, Port], dialect: str
    ) -> None:
        self.made, self.planned, self.kernel = made, made.planned, made.planned.kernel
        self.buffers, self.ports, self.dialect = buffers, ports, dialect
        self.texts = texts()
        self.declared = first_uses(self.kernel.body, made.places)
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[object, str] = {}
        loops = (v.name for c in self.planned.choices.values() for v in c.plan.loops)
        self.taken = {"nki", "nisa", "nl", "inf", "nan", *loops}
        self.taken |= {v.name for v in variables(self.kernel)}

    def name(self, thing: object, stem: str) -> str:
        """The name of a part in the text."""
        if thing not in self.names:
            clean, n = re.sub(r"\W", "_", stem), 0
            clean = clean if not clean[:1].isdigit() else f"_{clean}"
            while (found := f"{clean}_{n}" if n else clean) in self.taken:
                n += 1
            self.taken.add(found)
            self.names[thing] = found
        return self.names[thing]

    def line(self, text: str) -> None:
        """Write a line at the present depth."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """One level deeper."""
        self.depth += 1
        yield
        self.depth -= 1

    # -- the kernel --

    def source(self) -> Source:
        """The whole text."""
        kernel, written = self.kernel, set(self.kernel.outputs)
        taken = {self.buffers[t.name] for t in kernel.tensors if t.name not in written}
        given = {self.buffers[t.name] for t in kernel.tensors if t.name in written}
        reads, writes = ([b for b in self.ports if b in side] for side in (taken, given))
        function = self.name(("function",), kernel.name)
        args = ", ".join(self.name(b, b) for b in reads)
        for b in writes:
            port = self.ports[b]
            self.line(
                f"{self.name(b, b)} = nl.ndarray({port.shape}, dtype=nl.{DTYPES[port.dtype]}, "
                "buffer=nl.shared_hbm)"
            )
        self.body(kernel.body)
        self.line(f"return {', '.join(self.name(b, b) for b in writes)}")
        body = "\n".join(self.lines)
        head = ["import nki", "import nki.isa as nisa", "import nki.language as nl", ""]
        special = [n for n in ("inf", "nan") if re.search(rf"[=-]{n}\b", body)]
        head += [f'{n} = float("{n}")' for n in special] + ([""] if special else [])
        head += ["", "@nki.jit", f"def {function}({args}):"]
        head += [f'    """{self._said()}', ""]
        head += [f"    {self.name(b, b)}: {self.ports[b].said}" for b in reads]
        head += [f"    returns {self.name(b, b)}: {self.ports[b].said}" for b in writes]
        head += ['    """']
        return Source(
            function, "\n".join([*head, body]) + "\n", tuple(self.ports[b] for b in reads),
            tuple(self.ports[b] for b in writes),
        )  # fmt: skip

    def _said(self) -> str:
        """What the text says about itself: where it was written for, and what it holds."""
        target, peaks = self.planned.target, self.made.places.peaks
        held = ", ".join(
            f"{peaks.get(m.name, 0)} of {m.place_bytes} bytes of {m.name.upper()}"
            for m in target.memories
            if m.extents
        )
        return f"For {target.name}; {held} per partition at most."

    # -- statements --

    def body(self, body: ir.Body) -> None:
        """A body; tiles are declared where the first statement uses them."""
        for s in body:
            for b in self.declared.get(id(s), ()):
                self.declare(b)
            self.statement(s)

    def declare(self, b: ir.Buffer) -> None:
        """A tile, with its layout."""
        shape = b.place.extent_on("P"), b.n_elements
        extents = "x".join(map(str, b.shape))
        self.line(
            f"{self.name(b, b.name)} = nl.ndarray({shape}, dtype=nl.{DTYPES[b.dtype]}, "
            f"buffer=nl.{b.memory})  # {extents} = {b.place}"
        )

    def statement(self, s: ir.Statement) -> None:
        """A loop, or a primitive by its plan."""
        if isinstance(s, ir.For):
            with self.loop(s.var, s.start, s.stop, s.step):
                self.body(s.body)
        elif isinstance(s, ir.Primitive):
            self.primitive(s)
        else:
            raise EmitError(type(s).__name__, "has no NKI text", "loops and primitives")

    @contextmanager
    def loop(self, v: Var, start: Int, stop: Int, step: Int) -> Iterator[None]:
        """A loop over a range."""
        begin = "" if start == 0 and step == 1 else f"{self.integer(start)}, "
        by = "" if step == 1 else f", {self.integer(step)}"
        self.line(f"for {v.name} in range({begin}{self.integer(stop)}{by}):")
        with self.inside():
            yield

    def primitive(self, s: ir.Primitive) -> None:
        """The calls of a plan in its loops, under what they are for."""
        plan = self.planned.plan(s)
        notes = f", {plan.notes}" if plan.notes else ""
        self.line(f"# {self._named(s.line())}  [{plan.row.name}{notes}]")
        for v in plan.loops:
            self.line(f"for {v.name} in range({(v.high or 0) + 1}):")
            self.depth += 1
        for call in plan.calls:
            if call.op not in self.texts:
                known = " ".join(self.texts)
                raise EmitError(f"call {call.op}", "has no text", known)
            self.texts[call.op](self, call)
        self.depth -= len(plan.loops)

    def _named(self, line: str) -> str:
        """A line of the kernel language with the names of this text."""
        known = {b.name: self.names[b] for b in self.kernel.buffers if b in self.names}
        known |= {t: self.names[b] for t, b in self.buffers.items()}
        return re.sub(r"[A-Za-z_]\w*", lambda m: known.get(m[0], m[0]), line)

    # -- operands --

    def integer(self, e: Int) -> str:
        """A run-time integer."""
        return text(e)

    def access(self, a: Access, beside: Access | None = None) -> str:
        """An operand as slices, where they say it, else as an access pattern."""
        if a.is_far:
            return self._far(a, beside)
        name = self.names[a.buffer]
        steps = [(s, n) for s, n in a.steps if n > 1] or [a.steps[-1] if a.steps else (1, 1)]
        if len(steps) == 1 and (steps[0][0] > 0 or steps[0][1] == 1) and len(a.steps) < 2:
            stride, n = steps[0]
            rows = self.slice(a.first, a.partitions)
            step = max(stride, 1)
            return f"{name}[{rows}, {self.slice(a.begin, (n - 1) * step + 1, step)}]"
        width = a.buffer.n_elements
        pattern = [[width, a.partitions], *([s, n] for s, n in a.steps)]
        return f"{name}.ap(pattern={pattern}, offset={self.integer(a.first * width + a.begin)})"

    def gathered(self, src: ir.View, steps: Sequence[tuple[int, int]], at: Access) -> str:
        """Rows of a tensor, taken flat, from where integers say: one per partition."""
        port = self.ports[self.buffers[src.buffer.name]]
        name, size = self.names[port.buffer], prod(port.shape)
        flat = name if len(port.shape) == 1 else f"{name}.reshape(({size},))"
        pattern = [[1, at.partitions], *([s, n] for s, n in steps)]
        first = self.integer(src.place.at(src.buffer.space.axes[-1]))
        return (
            f"{flat}.ap(pattern={pattern}, offset={first}, vector_offset={self.access(at)}, "
            "indirect_dim=0)"
        )

    def _far(self, a: Access, beside: Access | None) -> str:
        """A part of an argument: slices of its dims where it is one per dim, else a pattern."""
        name = self.names[self.buffers[a.buffer.name]]
        port = self.ports[self.buffers[a.buffer.name]]
        kept = [(s, n) for s, n in a.steps if n > 1]
        dims = 1 + len([n for _, n in beside.steps if n > 1]) if beside else len(kept)
        sliced = self._sliced(a.begin, kept, port.shape)
        if sliced is not None and len(kept) == dims and len(kept) > 1:
            return f"{name}[{sliced}]"
        lead, rest = a.steps[: a.lead], a.steps[a.lead :]
        pattern = [[s, n] for s, n in lead] or [[1, 1]]
        pattern += [[s, n] for s, n in rest] or [[1, 1]]
        return f"{name}.ap(pattern={pattern}, offset={self.integer(a.begin)})"

    def _sliced(
        self, begin: Int, steps: Sequence[tuple[int, int]], shape: Sequence[int]
    ) -> str | None:
        """Slices of a dense array that are these steps from an element; None where none are."""
        where = linear(begin)
        if where is None:
            return None
        first, factors = where
        shown, left = [], list(steps)
        for d, extent in enumerate(shape):
            size = prod(shape[d + 1 :])
            at: Int = first // size
            first %= size
            for v, factor in list(factors.items()):
                if factor >= size:
                    at = at + v * (factor // size)
                    factors[v] = factor % size
            low, high = bounds(at)
            if left and left[0][0] >= size and left[0][0] % size == 0:
                stride, n = left.pop(0)
                step = stride // size
                if low is None or high is None or low < 0 or high + (n - 1) * step >= extent:
                    return None
                shown.append(self.slice(at, (n - 1) * step + 1, step))
            else:
                if low is None or high is None or low < 0 or high >= extent:
                    return None
                shown.append(self.integer(at))
        return None if left else ", ".join(shown)

    def slice(self, begin: Int, extent: int, step: int = 1) -> str:
        """A slice from a run-time begin."""
        by = f":{step}" if step > 1 else ""
        return f"{self.integer(begin)}:{self.integer(begin + extent)}{by}"


def emit(
    made: Made, buffers: Mapping[str, str], ports: Mapping[str, Port], dialect: str = "0.3"
) -> Source:
    """Write a planned kernel.

    Raises:
        EmitError: a statement or a call without a text; an unknown dialect.
    """
    if dialect not in DIALECTS:
        raise EmitError(f"dialect {dialect!r} of NKI", "is not written", " or ".join(DIALECTS))
    return Writer(made, buffers, ports, dialect).source()


__all__ = ["Port", "Source", "emit"]

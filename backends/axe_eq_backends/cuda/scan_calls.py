"""The texts of scans: one per instruction call, over states of one or several registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from axe_eq.kernel.plan import Call
from axe_eq.kernel.threads import ir
from axe_eq_backends.cuda import prelude
from axe_eq_backends.cuda.calls import cell_function

if TYPE_CHECKING:
    from axe_eq_backends.cuda.emit import Writer

Names = Sequence[str]


class _Texts:
    """Names and statements of one call's states."""

    def __init__(self, w: Writer, call: Call) -> None:
        self.w, self.regs = w, call["regs"]
        dtypes = tuple(r.buffer.dtype for r in self.regs)
        self.kinds = [w.register_type(d) for d in dtypes]
        self.dtypes = dtypes
        self.merges = [cell_function(w, c, dtypes * 2) for c in call["merge"]]

    def at(self, position: int) -> list[str]:
        """The state at a place of the run."""
        return [f"{self.w.name(r.buffer)}[{r.index[position]}]" for r in self.regs]

    def declared(self, name: str, values: Names) -> list[str]:
        """New variables with these values."""
        names = [f"{name}{n}" for n in range(len(self.kinds))]
        for kind, variable, value in zip(self.kinds, names, values, strict=True):
            self.w.line(f"{kind} {variable} = {value};")
        return names

    def merged(self, into: Names, earlier: Names, later: Names) -> str:
        """A statement that merges two states."""
        args = ", ".join([*earlier, *later])
        if len(into) == 1:
            return f"{into[0]} = {self.merges[0]}({args});"
        values = " ".join(
            f"const {kind} scan_m{n} = {merge}({args});"
            for n, (kind, merge) in enumerate(zip(self.kinds, self.merges, strict=True))
        )
        kept = " ".join(f"{x} = scan_m{n};" for n, x in enumerate(into))
        return f"{{ {values} {kept} }}"

    def shuffled(self, mode: str, values: Names, number: str) -> list[str]:
        """The state of another lane."""
        marks = ("" if d == "f32" else f"_{d}" for d in self.dtypes)
        functions = [self.w.use(f"shuffle_{mode}{mark}") for mark in marks]
        return [f"{f}({x}, {number})" for f, x in zip(functions, values, strict=True)]

    def merge_into_run(self, before: Names, condition: str = "") -> None:
        """Merge what stands before a run into all of it."""
        guard = f"if ({condition}) " if condition else ""
        for position in range(len(self.regs[0].index)):
            here = self.at(position)
            self.w.line(f"{guard}{self.merged(here, before, here)}")


def _digit(call: Call) -> str:
    stride, extent = call["lanes"]
    lane = "lane" if stride == 1 else f"lane / {stride}"
    return f"({lane} % {extent})" if stride * extent < 32 else lane


def scan_run(w: Writer, call: Call, s: ir.Primitive) -> None:
    """A thread's neighbours, in order."""
    t = _Texts(w, call)
    for position in range(1, len(t.regs[0].index)):
        w.line(t.merged(t.at(position), t.at(position - 1), t.at(position)))


def scan_lanes(w: Writer, call: Call, s: ir.Primitive) -> None:
    """What stands before a run in its warp: its ends by doubling steps, then merged into it."""
    t, (stride, extent) = _Texts(w, call), call["lanes"]
    with w.block():
        ends = t.declared("scan_end", t.at(-1))
        step = 1
        while step < extent:
            before = t.declared(f"scan_up{step}_", t.shuffled("up", ends, str(step * stride)))
            w.line(f"if ({_digit(call)} >= {step}) {t.merged(ends, before, ends)}")
            step *= 2
        before = t.declared("scan_before", t.shuffled("up", ends, str(stride)))
        t.merge_into_run(before, f"{_digit(call)} > 0")


def _last(t: _Texts, call: Call, ends: Names) -> list[str]:
    """The state of the last lane of a row, of what each lane ends with."""
    stride, extent = call["lanes"]
    if extent == 1:
        return list(ends)
    first = f"lane - {_digit(call)}" + (f" * {stride}" if stride > 1 else "")
    return t.shuffled("from", ends, f"{first} + {(extent - 1) * stride}")


def scan_next(w: Writer, call: Call, s: ir.Primitive) -> None:
    """What a warp's earlier repeats hold, merged into the next one."""
    t = _Texts(w, call)
    ends = [f"{w.name(r.buffer)}[{r.index[-1]}]" for r in call["before"]]
    with w.block():
        t.merge_into_run(t.declared("scan_before", _last(t, call, ends)))


def scan_carry(w: Writer, call: Call, s: ir.Primitive) -> None:
    """What stands before a tile, and in earlier warps, merged into it; the carry moves on."""
    t = _Texts(w, call)
    carries = [f"{w.name(r.buffer)}[{r.index[0]}]" for r in call["carries"]]
    with w.block():
        before = t.declared("scan_before", carries)
        if call["count"] > 1:
            _peers(w, t, call, before, carries)
        else:
            ends = _last(t, call, t.at(-1))
            w.line(t.merged(carries, before, t.declared("scan_total", ends)))
        t.merge_into_run(before)


def _peers(w: Writer, t: _Texts, call: Call, before: Names, carries: Names) -> None:
    """Merge the totals of earlier warps into `before`, those of all into the carries."""
    w.line("#pragma unroll")
    with w.block(f"for (int i = 0; i < {call['count']}; i++) {{"):
        names = [f"scan_peer{n}" for n in range(len(t.kinds))]
        for kind, name, at in zip(t.kinds, names, call["addresses"], strict=True):
            load = prelude.access_name("ld", "shared", 1, kind)
            w.use(load, partial(prelude.access, "ld", "shared", 1, kind))
            w.line(f"{kind} {name};")
            step = call["step"] * at.buffer.itemsize
            w.line(f"{load}({name}, {w.address(at)} + i * {step});")
        w.line(f"if (i < {w.expr(call['mine'])}) {t.merged(before, before, names)}")
        w.line(t.merged(carries, carries, names))


CALLS: Mapping[str, Callable[[Any, Call, Any], None]] = {
    "scan_run": scan_run, "scan_lanes": scan_lanes, "scan_next": scan_next,
    "scan_carry": scan_carry,
}  # fmt: skip

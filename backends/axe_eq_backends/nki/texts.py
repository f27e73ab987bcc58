"""Instruction calls as NKI: one text per call, every argument by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from axe_eq.kernel.expr import Int
from axe_eq.kernel.ir import View
from axe_eq.kernel.plan import Call
from axe_eq_backends.nki.access import Access


class Writer(Protocol):
    """What texts are written with."""

    dialect: str

    def line(self, text: str) -> None:
        """Write a line."""

    def access(self, a: Access, beside: Access | None = None) -> str:
        """An operand; one in HBM with as many dims as the one beside it has."""

    def integer(self, e: Int) -> str:
        """A run-time integer."""

    def gathered(self, src: View, steps: Sequence[tuple[int, int]], at: Access) -> str:
        """Rows of a tensor from where integers say."""


Text = Callable[[Writer, Call], None]


def _shown(w: Writer, key: str, value: Any) -> str:
    if isinstance(value, Access):
        return w.access(value)
    if key.startswith(("op", "reduce_op")) and not key.startswith("operand"):
        return f"nl.{value}"
    if key == "engine":
        return f"nisa.engine.{value}"
    return repr(value)  # infinities and NaN are names that a kernel's text declares


def _named(op: str) -> Text:
    """All arguments by their names."""

    def write(w: Writer, call: Call) -> None:
        shown = (f"{key}={_shown(w, key, value)}" for key, value in call.args.items())
        w.line(f"nisa.{op}({', '.join(shown)})")

    return write


def _dma_copy(w: Writer, call: Call) -> None:
    dst, src = call["dst"], call["src"]
    w.line(f"nisa.dma_copy(dst={w.access(dst, src)}, src={w.access(src, dst)})")


def _dma_gather(w: Writer, call: Call) -> None:
    w.line(
        f"nisa.dma_copy(dst={w.access(call['dst'])}, "
        f"src={w.gathered(call['src'], call['steps'], call['at'])})"
    )


def _matmul(w: Writer, call: Call) -> None:
    operands = (f"{key}={w.access(call[key])}" for key in ("dst", "stationary", "moving"))
    started = call["accumulate"]
    # Before 0.3 a product adds where one has written since the tile was declared, as here.
    more = ""
    if w.dialect != "0.2":
        shown = repr(bool(started)) if isinstance(started, int) else w.integer(started)
        more = f", accumulate={shown}"
    w.line(f"nisa.nc_matmul({', '.join(operands)}{more})")


def _iota(w: Writer, call: Call) -> None:
    pattern = [[step, n] for step, n in call["pattern"]]
    w.line(
        f"nisa.iota(dst={w.access(call['dst'])}, pattern={pattern}, "
        f"offset={w.integer(call['offset'])}, channel_multiplier={call['channel_multiplier']})"
    )


def _tensor_reduce(w: Writer, call: Call) -> None:
    """The last of the operand's dims is reduced; the output has one element in its place."""
    dst, data = call["dst"], call["data"]
    w.line(
        f"nisa.tensor_reduce(dst={w.access(dst)}, op=nl.{call['op']}, "
        f"data={w.access(data)}, axis={len(data.steps)})"
    )


TEXTS: Mapping[str, Text] = {
    "dma_copy": _dma_copy, "dma_gather": _dma_gather, "nc_matmul": _matmul,
    "iota": _iota, "tensor_reduce": _tensor_reduce,
} | {
    op: _named(op)
    for op in ("tensor_copy", "tensor_copy_predicated", "nc_transpose", "tensor_tensor",
               "tensor_scalar", "scalar_tensor_tensor", "activation", "reciprocal", "memset",
               "tensor_tensor_scan", "dma_transpose", "tensor_scalar_reduce")
}  # fmt: skip

"""A pack as somebody else would write it: a gate, a cheaper form of it, a kernel for few rows.

Nothing of axe_eq knows these names. The operator needs its cell and no rule: boxes, fusion and
sharding follow from the signature.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from axe_eq import Pack
from axe_eq.program.ops import Cell
from axe_eq.program.terms import Sig, Value, op
from axe_eq.program.traced import Operand, Traced, elementwise
from axe_eq.rule.law import Sides
from axe_eq.schedule.summary import Columns, Summary, elements, flops, grid_of, traffic
from axe_eq.target import Target
from axe_eq_backends.cuda.register_cost import register_rows

PACK = Pack("gates", version="0.3.0", exact=False, summary="gated products")

_MOST_ROWS = 16


def _gate(y: Any, r: Any) -> Any:
    with np.errstate(over="ignore"):
        return y / (1 + np.exp(-r))


def _tanh_gate(y: Any, r: Any) -> Any:
    return y * (0.5 + 0.5 * np.tanh(0.5 * r))


PACK.cell(Cell("mygate", 2, _gate, "float", flops=16.0))
PACK.cell(Cell("mytanhgate", 2, _tanh_gate, "float", flops=6.0))
PACK.spelling("cuda", "mygate", f32="div_f32({0}, 1.0f + exp_f32(-{1}))")
PACK.spelling("cuda", "mytanhgate", f32="{0} * (0.5f + 0.5f * tanhf(0.5f * {1}))")


def mygate(y: Operand, r: Operand, /) -> Traced:
    """Y times the logistic function of r, element by element, broadcast against each other."""
    return elementwise("mygate", y, r)


@PACK.law(source="folklore: the logistic function is a shifted tanh of half its argument")
def gate_by_tanh(s: Sig, y: Value, r: Value) -> Sides:
    """s[mygate](y, r) = s[mytanhgate](y, r)."""
    return op(s, "mygate", y, r), op(s, "mytanhgate", y, r)


class FewRows:
    """Products of few rows: weights stream through once, every SM holds all rows."""

    name = "few_rows"
    families = ("cuda",)

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused but for one sum of products, and where the rows are too many to be held."""
        if len(summary.products) != 1 or summary.n_folds or summary.products[0].structured:
            return "not one sum of products"
        rows = summary.extent("p")
        if rows > _MOST_ROWS:
            return f"{rows} rows, at most {_MOST_ROWS}"
        return None if register_rows(target, summary) else "no row for these products"

    def price(self, summary: Summary, target: Target) -> Columns:
        """Candidates of column widths and depths; memory is all that counts."""
        p, q, k, warps, band = grid_of((_MOST_ROWS,), (32, 64, 128), (64, 128, 256), 4, 8)
        written = {"m": p, "n": q, "k": k, "warps": warps, "band": band}
        row = register_rows(target, summary)[0].name
        columns = Columns({"p": p, "q": q, "k": k, "s": k}, written, (row,) * len(p), exact=True)
        once, again = traffic(summary, columns)
        lanes = flops((*summary.products, *summary.vector), summary, columns)
        # Depth is cut over SMs as well, so that all of them stream, however few the columns.
        rate = target.memories[0].bytes_per_s
        seconds = np.maximum((once + again) / rate, lanes / target.vector_flops_per_s)
        columns.time_s = target.launch_s + seconds
        columns.costs = {"gmem_bytes": once, "reread_bytes": again, "memory_s": seconds}
        sizes = [elements(a.letters, a.star, summary, columns) * a.itemsize for a in summary.loads]
        held = np.sum(sizes, axis=0)
        limit = target.memory("smem").n_bytes
        columns.reject(np.asarray(held > limit), f"tiles exceed smem {limit} B")
        return columns


PACK.schedule(FewRows())

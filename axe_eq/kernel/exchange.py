"""Primitives in which threads exchange values, reductions and scans, checked as written."""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.kernel import given, ir
from axe_eq.kernel.cells import Cell
from axe_eq.kernel.given import refuse
from axe_eq.kernel.parts import Parts


def reduce(
    parts: Parts,
    monoid: str,
    out: ir.View,
    src: ir.View,
    dims: Sequence[int],
    scratch: ir.Buffer | None,
) -> ir.Reduce:
    """A reduction; errors as `Builder.reduce` states them."""
    out, src = parts.written("reduce", out), parts.view("reduce", src)
    given.monoid("reduce", monoid, src.buffer.dtype)
    dims = given.dims("reduce", dims, len(src.shape))
    if scratch is not None:
        parts.buffer("reduce", scratch)
    wanted = tuple(1 if d in dims else e for d, e in enumerate(src.shape))
    if out.shape != wanted:
        raise refuse("reduce", f"{out} of shape {out.shape}", f"shape {wanted}")
    return ir.Reduce(monoid, out, src, dims, scratch)


def scan(
    parts: Parts,
    merge: Cell | Sequence[Cell],
    states: Sequence[ir.View],
    carries: Sequence[ir.View],
    dim: int,
    scratch: Sequence[ir.Buffer],
) -> ir.Scan:
    """A scan; errors as `Builder.scan` states them."""
    held = [parts.written("scan", v) for v in states]
    kept = [parts.written("scan", v) for v in carries]
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
        parts.buffer("scan", buffer)
    return ir.Scan(merges, tuple(held), tuple(kept), dim, tuple(scratch))

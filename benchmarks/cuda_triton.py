"""Memory-bound kernels in Triton, as its users write them: what `benchmarks.cuda_memory` races."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from benchmarks.terminal import absent

try:
    import torch
    import triton
    import triton.language as tl
except ImportError as error:
    raise absent(error) from None

EPS = tl.constexpr(1e-5)


@triton.jit
def _rows(x, r, w, b, y, h, cols, KIND: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < cols
    other = -float("inf") if KIND == "softmax" or KIND == "logsumexp" else 0.0
    v = tl.load(x + row * cols + at, mask=inside, other=other).to(tl.float32)
    if KIND == "residual_rmsnorm":
        v += tl.load(r + row * cols + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(h + row * cols + at, v.to(tl.float16), mask=inside)
    if KIND == "softmax" or KIND == "logsumexp":
        top = tl.max(v, 0)
        e = tl.exp(v - top)
        total = tl.sum(e, 0)
        if KIND == "softmax":
            tl.store(y + row * cols + at, (e / total).to(tl.float16), mask=inside)
        else:
            tl.store(y + row, (top + tl.log(total)).to(tl.float16))
    else:
        if KIND == "layernorm":
            v = tl.where(inside, v - tl.sum(v, 0) / cols, 0.0)
        scale = tl.rsqrt(tl.sum(v * v, 0) / cols + EPS)
        out = v * scale * tl.load(w + at, mask=inside, other=0.0).to(tl.float32)
        if KIND == "layernorm":
            out += tl.load(b + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + row * cols + at, out.to(tl.float16), mask=inside)


@triton.jit
def _bias_gelu(x, b, y, n, cols, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    v += tl.load(b + at % cols, mask=inside, other=0.0).to(tl.float32)
    g = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(y + at, g.to(tl.float16), mask=inside)


@triton.jit
def _turn021(x, y, rows, cols, TR: tl.constexpr, TC: tl.constexpr):  # type: ignore[no-untyped-def]
    first = tl.program_id(2).to(tl.int64) * rows * cols
    i = tl.program_id(1) * TR + tl.arange(0, TR)
    j = tl.program_id(0) * TC + tl.arange(0, TC)
    inside = (i[:, None] < rows) & (j[None, :] < cols)
    v = tl.load(x + first + i[:, None] * cols + j[None, :], mask=inside)
    y += first
    tl.store(y + j[:, None] * rows + i[None, :], tl.trans(v), mask=tl.trans(inside))


@triton.jit
def _turn102(x, y, n, first, second, last, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = at // last
    place = ((row % first) * second + row // first) * last + at % last
    tl.store(y + at, tl.load(x + place, mask=at < n), mask=at < n)


@triton.jit
def _rope(x, c, s, y, n, length, half, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = tl.arange(0, BLOCK)
    inside = (row[:, None] < n) & (at[None, :] < half)
    place = row[:, None] * (2 * half) + at[None, :]
    turn = (row % length)[:, None] * half + at[None, :]
    a = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + place + half, mask=inside, other=0.0).to(tl.float32)
    cos = tl.load(c + turn, mask=inside, other=0.0)
    sin = tl.load(s + turn, mask=inside, other=0.0)
    tl.store(y + place, (a * cos - b * sin).to(tl.float16), mask=inside)
    tl.store(y + place + half, (a * sin + b * cos).to(tl.float16), mask=inside)


@triton.jit
def _sums(x, y, n, steps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        at = (step * tl.num_programs(0) + tl.program_id(0)) * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + tl.program_id(0), tl.sum(total, 0))


def ways(kind: str, shape: Sequence[int]) -> dict[str, Callable[..., Any]]:
    """Kernels of a program by name; each takes the program's tensors and returns its results."""
    cols, n = shape[-1], prod(shape)
    wide = triton.next_power_of_2(cols)
    if kind == "bias_gelu":
        return {f"triton b{b}": partial(_cells, b) for b in (1024, 2048, 4096)}
    if kind == "turn021":
        return {f"triton {r}x{c}": partial(_turned, r, c) for r, c in ((64, 128), (64, 64))}
    if kind == "turn102":
        return {f"triton b{b}": partial(_permuted, b) for b in (1024, 2048)}
    if kind == "rope":
        return {f"triton r{r}": partial(_rotated, r) for r in (8, 32)}
    if kind == "total":
        return {"triton 2 stages": partial(_summed, triton.cdiv(n, 132 * 8 * 4096))}
    warps = (4, 8, 16) if wide <= 16384 else (16, 32)
    return {f"triton w{w}": partial(_by_rows, kind, w, wide) for w in warps}


def _by_rows(kind: str, warps: int, wide: int, x: Any, *more: Any) -> Any:
    r, w, b, h = x, x, x, x
    y = torch.empty_like(x) if kind != "logsumexp" else x.new_empty(x.shape[0])
    if kind == "residual_rmsnorm":
        (r, w), h = more, torch.empty_like(x)
    elif kind == "layernorm":
        w, b = more
    elif kind == "rmsnorm":
        (w,) = more
    _rows[(x.shape[0],)](x, r, w, b, y, h, x.shape[1], KIND=kind, BLOCK=wide, num_warps=warps)
    return (h, y) if kind == "residual_rmsnorm" else y


def _cells(block: int, x: Any, b: Any) -> Any:
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), block),)
    _bias_gelu[grid](x, b, y, x.numel(), x.shape[1], BLOCK=block, num_warps=4)
    return y


def _turned(tr: int, tc: int, x: Any) -> Any:
    batch, rows, cols = x.shape
    y = x.new_empty((batch, cols, rows))
    grid = triton.cdiv(cols, tc), triton.cdiv(rows, tr), batch
    _turn021[grid](x, y, rows, cols, TR=tr, TC=tc, num_warps=8)
    return y


def _permuted(block: int, x: Any) -> Any:
    first, second, last = x.shape
    y = x.new_empty((second, first, last))
    grid = (triton.cdiv(x.numel(), block),)
    _turn102[grid](x, y, x.numel(), first, second, last, BLOCK=block, num_warps=4)
    return y


def _rotated(rows: int, x: Any, cos: Any, sin: Any) -> Any:
    y, half = torch.empty_like(x), x.shape[-1] // 2
    n = x.numel() // x.shape[-1]
    wide = triton.next_power_of_2(half)
    grid = (triton.cdiv(n, rows),)
    _rope[grid](x, cos, sin, y, n, x.shape[1], half, ROWS=rows, BLOCK=wide, num_warps=4)
    return y


def _summed(steps: int, x: Any) -> Any:
    parts = x.new_empty(132 * 8, dtype=torch.float32)
    total = x.new_empty(1, dtype=torch.float32)
    _sums[(parts.numel(),)](x, parts, x.numel(), steps, BLOCK=4096, num_warps=8)
    _sums[(1,)](parts, total, parts.numel(), 1, BLOCK=2048, num_warps=8)
    return total.view(())

"""What the CUDA kernels are compared with: torch and Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.terminal import absent

try:
    import torch
    import triton
    import triton.language as tl
except ImportError as error:
    raise absent(error) from None

Run = Callable[[], Any]


@triton.jit
def _softmax_kernel(x, y, cols, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < cols
    v = tl.load(x + row * cols + at, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * cols + at, (e / tl.sum(e, 0)).to(tl.float16), mask=inside)


@triton.jit
def _rmsnorm_kernel(x, w, y, cols, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < cols
    v = tl.load(x + row * cols + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(w + at, mask=inside, other=0.0).to(tl.float32)
    r = tl.rsqrt(tl.sum(v * v, 0) / cols + 1e-6)
    tl.store(y + row * cols + at, (v * r * g).to(tl.float16), mask=inside)


@triton.jit
def _bias_gelu_kernel(x, b, y, n, cols, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    v += tl.load(b + at % cols, mask=inside, other=0.0).to(tl.float32)
    g = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(y + at, g.to(tl.float16), mask=inside)


@triton.jit
def _transpose_kernel(x, y, rows, cols, TR: tl.constexpr, TC: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(1) * TR + tl.arange(0, TR)
    j = tl.program_id(0) * TC + tl.arange(0, TC)
    inside = (i[:, None] < rows) & (j[None, :] < cols)
    v = tl.load(x + i[:, None] * cols + j[None, :], mask=inside)
    t = tl.trans(inside)
    tl.store(y + j[:, None] * rows + i[None, :], tl.trans(v), mask=t)


def _block(cols: int) -> int:
    return int(triton.next_power_of_2(cols))


def triton_softmax(warps: int) -> Callable[..., None]:
    """Softmax of rows, one program a row."""
    return lambda x, y: _softmax_kernel[(x.shape[0],)](
        x, y, x.shape[1], BLOCK=_block(x.shape[1]), num_warps=warps
    )


def triton_rmsnorm(warps: int) -> Callable[..., None]:
    """Root-mean-square normalisation of rows, one program a row."""
    return lambda x, w, y: _rmsnorm_kernel[(x.shape[0],)](
        x, w, y, x.shape[1], BLOCK=_block(x.shape[1]), num_warps=warps
    )


def triton_bias_gelu(block: int) -> Callable[..., None]:
    """Bias and gelu, one-dimensional."""
    return lambda x, b, y: _bias_gelu_kernel[(triton.cdiv(x.numel(), block),)](
        x, b, y, x.numel(), x.shape[1], BLOCK=block, num_warps=4
    )


def triton_transpose(tr: int, tc: int) -> Callable[..., None]:
    """Transposition by tiles."""
    return lambda x, y: _transpose_kernel[
        (triton.cdiv(x.shape[1], tc), triton.cdiv(x.shape[0], tr))
    ](x, y, x.shape[0], x.shape[1], TR=tr, TC=tc, num_warps=8)


def reference(op: str) -> Callable[..., torch.Tensor]:
    """The operation in torch, as a user writes it."""
    return {
        "softmax": lambda x: torch.softmax(x.float(), -1).half(),
        "rmsnorm": lambda x, w: (
            x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6) * w.float()
        ).half(),
        "bias_gelu": lambda x, b: torch.nn.functional.gelu(x.float() + b.float()).half(),
        "transpose": lambda x: x.t().contiguous(),
    }[op]


TRITON: dict[str, dict[str, Callable[..., None]]] = {
    "softmax": {f"triton w{w}": triton_softmax(w) for w in (4, 8, 16)},
    "rmsnorm": {f"triton w{w}": triton_rmsnorm(w) for w in (4, 8, 16)},
    "bias_gelu": {f"triton b{b}": triton_bias_gelu(b) for b in (1024, 2048)},
    "transpose": {f"triton {r}x{c}": triton_transpose(r, c) for r, c in ((64, 128), (64, 64))},
}

"""Kernels of nki-library for the simulator of NKI: inputs and references in numpy, see there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.nki_foreign_cases import (
    BF16,
    F32,
    LIBRARY,
    Array,
    Case,
    Made,
    draw,
    rotated,
    running_sum,
    softmax,
    wide,
)


def rope_hf(backward: bool) -> Callable[[Any], Made]:
    """[batch, heads, seq, head_dim]; the backward pass rotates the other way."""

    def make(_: Any) -> Made:
        q, k = draw(1, 8, 256, 64), draw(1, 2, 256, 64)
        cos, sin = draw(1, 256, 64), draw(1, 256, 64, seed=1)

        def turn(x: Array) -> Array:
            x, c, s = wide(x), wide(cos)[:, None], wide(sin)[:, None]
            return x * c - rotated(x * s) if backward else x * c + rotated(x) * s

        args = (q, k, np.zeros_like(q), np.zeros_like(k), cos, sin, None, backward)
        return args, {}, (turn(q), turn(k))

    return make


def rope(contiguous: bool) -> Callable[[Any], Made]:
    """[d, batch, heads, seq]: pairs are halves, or neighbours."""

    def make(_: Any) -> Made:
        x, cos, sin = draw(128, 1, 2, 256), draw(64, 1, 256), draw(64, 1, 256, seed=1)
        parts = (
            (slice(0, 64), slice(64, 128)) if contiguous else (slice(0, 128, 2), slice(1, 128, 2))
        )
        c, s, out = wide(cos)[:, :, None], wide(sin)[:, :, None], np.empty(x.shape)
        a, b = wide(x)[parts[0]], wide(x)[parts[1]]
        out[parts[0]], out[parts[1]] = a * c - b * s, a * s + b * c
        return (x, cos, sin), {"contiguous_layout": contiguous}, out

    return make


def attention_cte(causal: bool) -> Callable[[Any], Made]:
    """One head, 512 queries, d 128."""

    def make(_: Any) -> Made:
        q, k, v = draw(1, 512, 128, scale=0.3), draw(1, 128, 512, scale=0.3), draw(1, 512, 128)
        scores = np.einsum("bqd,bdk->bqk", wide(q), wide(k))
        if causal:
            scores = np.where(np.tril(np.ones((512, 512))) > 0, scores, -np.inf)
        return (q, k, v, 1.0, causal), {}, softmax(scores) @ wide(v)

    return make


def attention_bwd(causal: bool) -> Callable[[Any], Made]:
    """Gradients of q, k and v for [batch, heads, d, seq]."""

    def make(_: Any) -> Made:
        q, k, v, dy = (draw(1, 1, 128, 512, scale=0.3, seed=s) for s in range(4))
        scale = 1 / math.sqrt(128)
        x = np.einsum("bhdq,bhdk->bhqk", wide(q), wide(k)) * scale
        if causal:
            x = np.where(np.tril(np.ones((512, 512))) > 0, x, -np.inf)
        lse = x.max(-1) + np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1))
        p = softmax(x)
        o = np.einsum("bhqk,bhdk->bhdq", p, wide(v))
        dp = np.einsum("bhdq,bhdk->bhqk", wide(dy), wide(v))
        ds = p * (dp - (wide(dy) * o).sum(2)[..., None]) * scale
        dq = np.einsum("bhqk,bhdk->bhdq", ds, wide(k))
        dk = np.einsum("bhqk,bhdq->bhdk", ds, wide(q))
        dv = np.einsum("bhqk,bhdq->bhdk", p, wide(dy))
        held = lse.reshape(1, 1, 4, 128).transpose(0, 1, 3, 2).astype(F32).copy()
        return (
            (q, k, v, o.astype(F32), dy, held),
            {"use_causal_mask": causal, "mixed_precision": True},
            (dq, dk, dv),
        )

    return make


def output_projection(_: Any) -> Made:
    """[batch, heads, d, seq] with a weight [heads * d, h]."""
    x, w, bias = draw(1, 4, 64, 512), draw(256, 512), draw(1, 512)
    expected = np.einsum("bnds,ndh->bsh", wide(x), wide(w).reshape(4, 64, 512)) + wide(bias)
    return (x, w, bias), {}, expected


def conv1d(_: Any) -> Made:
    """Three taps, padded, with a bias."""
    x, f, bias = draw(2, 32, 100), draw(3, 32, 64), draw(64)
    padded = np.pad(wide(x), ((0, 0), (0, 0), (1, 1)))
    out = sum(np.einsum("bcl,co->bol", padded[:, :, t : t + 100], wide(f[t])) for t in range(3))
    return (x, f, bias), {"padding": (1, 1)}, out + wide(bias)[None, :, None]


def depthwise(_: Any) -> Made:
    """A filter per channel."""
    x, f = draw(2, 128, 1, 64), draw(128, 1, 1, 4)
    out = sum(wide(x)[..., t : t + 61] * wide(f)[None, :, 0, :, t : t + 1] for t in range(4))
    return (x, f), {"grid": (2,), "feature_group_count": 128}, out


def cascaded(_: Any) -> Made:
    """Maximum and its index."""
    x = draw(2, 3, 4096)
    return (x,), {}, (x.max(-1, keepdims=True), x.argmax(-1)[..., None])


def loss(_: Any) -> Made:
    """Cross entropy and log-sum-exp."""
    x, at = (
        draw(128, 4096, scale=2.0),
        np.random.default_rng(3).integers(0, 4096, 128).astype(np.int32),
    )
    lse = np.log(np.exp(wide(x)).sum(1))
    expected = (lse - wide(x)[np.arange(128), at], lse)
    return (x, at), {"positions_per_batch": 32, "chunk_size": 2048, "dtype": F32}, expected


def loss_gradient(_: Any) -> Made:
    """Gradient of the mean of cross entropies."""
    x, at = (
        draw(128, 4096, scale=2.0),
        np.random.default_rng(3).integers(0, 4096, 128).astype(np.int32),
    )
    lse = np.log(np.exp(wide(x)).sum(1))
    expected = np.exp(wide(x) - lse[:, None])
    expected[np.arange(128), at] -= 1
    options = {"positions_per_batch": 32, "chunk_size": 2048, "dtype": F32, "inplace": False}
    return (x, at, lse.astype(F32)), options, expected / 128


def quantized(space: Mapping[str, Any]) -> Made:
    """RMS norm, then 8-bit floats with a scale per row, which is read back."""
    x, g = draw(1, 256, 512, dtype=BF16), draw(1, 512, dtype=BF16)
    normed = wide(x) / np.sqrt((wide(x) ** 2).mean(-1, keepdims=True) + 1e-6) * wide(g)

    def dequantized(out: Array) -> Array:
        scale = np.ascontiguousarray(out[..., 512:]).view(F32).astype(np.float64)
        return wide(out[..., :512]) * scale

    return (x, g, space["RmsNormQuantKernelArgs"]()), {}, (dequantized, normed)


def dynamic_addition(_: Any) -> Made:
    """The number of row tiles is in a tensor."""
    a, b = draw(256, 512, dtype=BF16), draw(256, 512, dtype=BF16, seed=1)
    return (a, b, np.array([[2]], np.int32)), {}, wide(a) + wide(b)


def nonzero(_: Any) -> Made:
    """Where the elements of each column are, and how many; two programs."""
    x = (np.random.default_rng(4).random((256, 16)) < 0.2).astype(F32)
    at = np.full((16, 256), -1)
    for c in range(16):
        found = np.flatnonzero(x[:, c])
        at[c, : len(found)] = found
    return (x,), {"grid": (2,)}, (at, (x != 0).sum(0))


def output_projection_tkg(_: Any) -> Made:
    """[d, batch, heads, seq] with a weight [heads * d, h], for few tokens."""
    x, w = draw(128, 2, 4, 4, dtype=BF16), draw(512, 1024, dtype=BF16)
    out = np.einsum("dbns,ndh->bsh", wide(x), wide(w).reshape(4, 128, 1024))
    return (x, w), {}, out.reshape(8, 1024)


_CORE, _MORE = "nkilib_src.nkilib.core", "nkilib_src.nkilib.experimental"
_CTE = f"{_CORE}.attention.attention_cte"
_BWD = f"{_CORE}.attention.attention_bwd"
_PROJECTION = f"{_CORE}.output_projection.output_projection_cte.output_projection_cte"
LIBRARY_CASES = (
    Case(LIBRARY, f"{_CORE}.cumsum.cumsum", "cumsum", "0.3", running_sum),
    Case(LIBRARY, f"{_CORE}.embeddings.rope_hf", "rope_hf", "0.3", rope_hf(False)),
    Case(
        LIBRARY, f"{_CORE}.embeddings.rope_hf", "rope_hf", "0.3", rope_hf(True), variant="backward"
    ),
    Case(LIBRARY, _CTE, "attention_cte", "0.3", attention_cte(True), 1e-2, "causal"),
    Case(LIBRARY, _CTE, "attention_cte", "0.3", attention_cte(False), 1e-2, "all keys"),
    Case(LIBRARY, f"{_CORE}.embeddings.rope", "RoPE", "0.3", rope(True)),
    Case(LIBRARY, f"{_CORE}.embeddings.rope", "RoPE", "0.3", rope(False), variant="interleaved"),
    Case(LIBRARY, _PROJECTION, "output_projection_cte", "0.3", output_projection),
    Case(LIBRARY, f"{_MORE}.conv.conv1d", "conv1d", "0.3", conv1d),
    Case(LIBRARY, _BWD, "attention_bwd", "0.3", attention_bwd(False)),
    Case(LIBRARY, _BWD, "attention_bwd", "0.3", attention_bwd(True), variant="causal"),
    Case(LIBRARY, f"{_CORE}.max.cascaded_max", "cascaded_max", "0.3", cascaded),
    Case(LIBRARY, f"{_MORE}.loss.cross_entropy", "cross_entropy_forward", "0.3", loss),
    Case(LIBRARY, f"{_MORE}.loss.cross_entropy", "cross_entropy_backward", "0.3", loss_gradient),
    Case(
        LIBRARY,
        f"{_MORE}.dynamic_shapes.dynamic_elementwise_add",
        "dynamic_elementwise_add",
        "0.3",
        dynamic_addition,
        1e-2,
    ),
    Case(
        LIBRARY,
        f"{_CORE}.subkernels.find_nonzero_indices",
        "find_nonzero_indices",
        "0.3",
        nonzero,
        0.0,
    ),
    Case(
        LIBRARY,
        f"{_MORE}.conv.depthwise_conv1d",
        "depthwise_conv1d_implicit_gemm",
        "0.3",
        depthwise,
    ),
    Case(
        LIBRARY,
        f"{_CORE}.output_projection.output_projection_tkg",
        "output_projection_tkg",
        "0.3",
        output_projection_tkg,
        1e-2,
    ),
    Case(LIBRARY, f"{_CORE}.rmsnorm.rmsnorm_quant", "rmsnorm_quant_kernel", "0.3", quantized, 5e-2),
)

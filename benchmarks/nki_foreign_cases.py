"""Kernels of others for the simulator of NKI: our inputs for them and our references in numpy.

Nothing of theirs is here but names of files, kernels and arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Made = tuple[Sequence[Any], Mapping[str, Any], Any]  # arguments, arguments by name, expected
BF16, F32, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.float16)

SDK, SAMPLES = "aws-neuron/aws-neuron-sdk", "aws-neuron/nki-samples"
LIBRARY, AUTOCOMP = "aws-neuron/nki-library", "ucb-bar/autocomp"
TRITON_VIZ = "Deep-Learning-Profiling-Tools/triton-viz"


@dataclass(frozen=True)
class Case:
    """One kernel, called once.

    Attributes:
        repository: on GitHub.
        file: in it; of nki-library a module, which imports others of its package.
        kernel: function.
        dialect: of NKI that it is written in.
        make: the names of the file -> arguments and expected results.
        tolerance: of the largest expected value.
        variant: what tells it from another call of the kernel.
        refused: the check that has to refuse it, for examples of what is wrong.
        unused: a package that the file imports and its kernel does not use; an empty module serves.
    """

    repository: str
    file: str
    kernel: str
    dialect: str
    make: Callable[[Mapping[str, Any]], Made]
    tolerance: float = 1e-5
    variant: str = ""
    refused: str = ""
    unused: str = ""


def draw(*shape: int, dtype: Any = F32, scale: float = 1.0, seed: int = 0) -> Array:
    """Normal numbers."""
    drawn = np.random.default_rng([seed, *shape]).standard_normal(shape) * scale
    return drawn.astype(dtype)


def wide(x: Array) -> Array:
    """In float64."""
    return x.astype(np.float64)


def softmax(x: Array) -> Array:
    """Over the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def running_sum(_: Any) -> Made:
    """Three dims, ragged."""
    x = draw(3, 100, 700)
    return (x,), {}, np.cumsum(wide(x), -1)


def rotated(x: Array) -> Array:
    """Halves of the last axis swapped, the first negated."""
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], -1)


# -- aws-neuron-sdk and nki-samples ----------------------------------------------------------------


def product(m: int, k: int, n: int, dtype: Any = F32) -> Callable[[Any], Made]:
    """a.T @ b."""

    def make(_: Any) -> Made:
        a, b = draw(k, m, dtype=dtype), draw(k, n, dtype=dtype)
        return (a, b), {}, wide(a).T @ wide(b)

    return make


def addition(*shape: int, dtype: Any = F32) -> Callable[[Any], Made]:
    """A + b."""

    def make(_: Any) -> Made:
        a, b = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype, seed=1)
        return (a, b), {}, wide(a) + wide(b)

    return make


def exponential(*shape: int) -> Callable[[Any], Made]:
    """Exp of a tile."""

    def make(_: Any) -> Made:
        x = draw(*shape)
        return (x,), {}, np.exp(wide(x))

    return make


def pooled(cell: Any) -> Callable[[Any], Made]:
    """Windows of 2 x 2."""

    def make(_: Any) -> Made:
        x = draw(32, 12, 8)
        return (x, 2), {}, cell(wide(x).reshape(32, 6, 2, 4, 2), (2, 4))

    return make


def split(_: Any) -> Made:
    """Even and odd columns."""
    x = draw(16, 21)
    return (x,), {}, (x[:, 0::2], x[:, 1::2])


def turned(_: Any) -> Made:
    """Rows that hold matrices, which are transposed."""
    x = draw(50, 60)
    return (x, (6, 10)), {}, x.reshape(50, 6, 10).transpose(0, 2, 1).reshape(50, 60)


def recurrence(delta: Array, u: Array, a: Array, b: Array, c: Array) -> Array:
    """Mamba: h' = exp(delta a) h + delta b u, y = sum of c h, step by step."""
    h, out = np.zeros((*delta.shape[:2], a.shape[1])), np.zeros(delta.shape)
    for t in range(delta.shape[2]):
        d = wide(delta[:, :, t, None])
        h = np.exp(d * a) * h + d * wide(b[:, None, :, t]) * wide(u[:, :, t, None])
        out[:, :, t] = (h * wide(c[:, None, :, t])).sum(-1)
    return out


def mamba(repeated: bool) -> Callable[[Any], Made]:
    """A state of 4 over 512 steps, 256 channels; b and c repeated on the host or not."""

    def make(_: Any) -> Made:
        delta, u = abs(draw(1, 256, 512, scale=0.3)), draw(1, 256, 512, seed=1)
        a, b, c = -abs(draw(256, 4)), draw(1, 4, 512), draw(1, 4, 512, seed=2)
        expected = recurrence(delta, u, a, b, c)
        b, c = (np.repeat(x, 128, 1) if repeated else x for x in (b, c))
        return (delta, u, a, b, c), {}, expected

    return make


_SDK = "nki/examples"
_MATMUL = "matrix_multiplication/matrix_multiplication_nki_kernels.py"
_STAGES = (
    ("nki_matmul_basic_", product(64, 128, 512), 1e-5),
    ("nki_matmul_tiled_", product(256, 256, 1024, BF16), 1e-2),
    ("nki_matmul_hoist_load_", product(256, 256, 1024), 1e-5),
    ("nki_matmul_block_free_dimension_", product(512, 256, 2048), 1e-5),
    ("nki_matmul_fully_optimized_", product(2048, 1024, 1024, BF16), 1e-2),
)
SDK_CASES = (
    *(Case(SDK, f"{_SDK}/{_MATMUL}", k, "0.3", m, t) for k, m, t in _STAGES),
    Case(
        SDK,
        f"{_SDK}/tensor_addition/tensor_addition_nki_kernels.py",
        "nki_tensor_add",
        "0.3",
        addition(256, 1024, dtype=BF16),
        1e-2,
    ),
    Case(
        SDK,
        f"{_SDK}/transpose2d/transpose2d_nki_kernels.py",
        "tensor_transpose2D_kernel_",
        "0.3",
        turned,
    ),
    Case(
        SDK,
        f"{_SDK}/average_pool2d/average_pool2d_nki_kernels.py",
        "tensor_avgpool_kernel",
        "0.3",
        pooled(np.mean),
    ),
    *(
        Case(SDK, f"{_SDK}/fused_mamba/mamba_nki_kernels.py", f"mamba_v{n}", "0.3", mamba(False))
        for n in (1, 2, 3)
    ),
    Case(SDK, f"{_SDK}/simulate/nki_simulate_example.py", "add_kernel", "0.3", addition(128, 512)),
    *(
        Case(
            SDK,
            f"{_SDK}/getting_started_{x}.py",
            "nki_tensor_add_kernel",
            "0.3",
            addition(4, 3, dtype=F16),
            1e-3,
        )
        for x in ("torch", "jax", "baremetal")
    ),
    Case(SDK, f"{_SDK}/index-case-1.py", "tensor_split_kernel_", "0.3", split),
    Case(SDK, f"{_SDK}/index-case-3.py", "tensor_maxpool_kernel_", "0.3", pooled(np.max)),
    Case(SDK, f"{_SDK}/layout-pass.py", "tensor_exp_kernel_", "0.3", exponential(128, 512)),
    Case(
        SDK,
        f"{_SDK}/layout-violation.py",
        "tensor_exp_kernel_",
        "0.3",
        exponential(256, 512),
        refused="P1",
    ),
    Case(SDK, f"{_SDK}/layout-loop.py", "tensor_exp_kernel_", "0.3", exponential(256, 512)),
    Case(SDK, f"{_SDK}/layout-dynamic-loop.py", "tensor_exp_kernel_", "0.3", exponential(256, 512)),
)
_TUTORIALS = "src/nki_samples/tutorials"
SAMPLES_CASES = (
    *(Case(SAMPLES, f"{_TUTORIALS}/{_MATMUL}", k, "0.2", m, t) for k, m, t in _STAGES),
    *(
        Case(SAMPLES, f"{_TUTORIALS}/{file}", kernel, "0.2", addition(256, 1024))
        for file, kernel in (
            ("tensor_addition/tensor_addition_nki_kernels.py", "nki_tensor_add"),
            ("transpose2d/transpose2d_nki_kernels.py", "tensor_transpose2D_kernel_"),
            ("average_pool2d/average_pool2d_nki_kernels.py", "tensor_avgpool_kernel"),
            ("fused_mamba/mamba_nki_kernels.py", "mamba_v1"),
            ("fused_mamba/mamba_nki_kernels.py", "mamba_v2"),
            ("fused_mamba/mamba_nki_kernels.py", "mamba_v3"),
        )
    ),
)


# -- autocomp and triton-viz -----------------------------------------------------------------------


def swapped(_: Any) -> Made:
    """Two of three axes."""
    x = draw(2, 256, 128)
    return (x, 1), {}, x.transpose(0, 2, 1)


def windows(_: Any) -> Made:
    """Maximum of 3 x 3."""
    x = draw(200, 600)
    view = np.lib.stride_tricks.sliding_window_view(x, (3, 3))
    return (x, 3), {}, view.max((2, 3))


def rope_2d(_: Any) -> Made:
    """[d, seq], pairs are halves."""
    x, cos, sin = draw(128, 512), draw(64, 512), draw(64, 512, seed=1)
    a, b, c, s = wide(x)[:64], wide(x)[64:], wide(cos), wide(sin)
    return (x, cos, sin), {}, np.concatenate([a * c - b * s, b * c + a * s])


def depthwise_row(_: Any) -> Made:
    """A filter of three taps per channel."""
    x, f = draw(2, 256, 1, 128), draw(256, 1, 1, 3)
    padded = np.pad(wide(x), ((0, 0), (0, 0), (0, 0), (1, 1)))
    out = sum(padded[..., t : t + 128] * wide(f)[None, :, 0, :, t : t + 1] for t in range(3))
    return (x, f), {"padding": ((0, 0), (1, 1))}, out


def conv2d(_: Any) -> Made:
    """3 x 3, padded."""
    x, f = draw(1, 128, 16, 16), draw(128, 3, 3, 128, scale=0.1)
    padded = np.pad(wide(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = sum(
        np.einsum("nchw,co->nohw", padded[:, :, i : i + 16, j : j + 16], wide(f[:, i, j]))
        for i in range(3) for j in range(3)
    )  # fmt: skip
    order = [0, 1, 2, 3]
    options = {"padding": ((1, 1), (1, 1)), "stride": [1, 1], "rhs_dilation": (1, 1),
               "in_perm": order, "kern_perm": order, "out_perm": order}  # fmt: skip
    return (x, f), options, out


def masked_attention(heads: int) -> Callable[[Any], Made]:
    """Causal, before the division by sums of rows; also their logarithms, and maxima."""

    def make(_: Any) -> Made:
        n, lead = (512, (heads,)) if heads else (2048, ())
        q, k, v = (draw(*lead, *s, scale=0.3) for s in ((n, 128), (128, n), (n, 128)))
        mask = np.tril(np.ones((n, n), F32))
        x = np.where(mask > 0, wide(q) @ wide(k), -9984.0)
        m = x.max(-1, keepdims=True)
        p = np.exp(x - m)
        lse = m + np.log(p.sum(-1, keepdims=True))
        options = {"seq_len": n} | ({"num_heads": heads} if heads else {})
        return (q, k, v, mask, BF16, F32), options, (p @ wide(v), lse, m)

    return make


def streamed(_: Any) -> Made:
    """One tile of queries against 4096 keys, after an earlier tile's results."""
    n, row = 4096, 2
    q, k, v = draw(128, n, scale=0.3), draw(128, n, scale=0.3), draw(128, n // 128, 128)
    before = np.concatenate([draw(128, 128), abs(draw(128, 1)) + 1, draw(128, 1)], 1)
    mask = np.zeros((128, n), F32)
    for i in range(128):
        mask[i, : row * 128 + i + 1] = 1
    x = np.where(mask > 0, wide(q[:, row * 128 : (row + 1) * 128]).T @ wide(k), -9984.0)
    old = wide(before[:, 129:].astype(BF16))
    m = np.maximum(x.max(-1, keepdims=True), old)
    p, alpha = np.exp(x - m), np.exp(old - m)
    keys = wide(v).transpose(1, 0, 2).reshape(n, 128)
    o = wide(before[:, :128]) * alpha + p @ keys
    total = wide(before[:, 128:129]) * alpha + p.sum(-1, keepdims=True)
    options = {"kernel_dtype": BF16, "acc_type": F32, "tile_mask": mask, "q_tile_idx": row,
               "LARGE_KV_TILE_SIZE": n}  # fmt: skip
    return (q, k, v, before), options, np.concatenate([o, total, m], 1)


def rms(_: Any) -> Made:
    """Rows by their root mean square, with a weight per column."""
    x, g = draw(300, 1000), draw(1000)
    return (x, g), {}, wide(x) / np.sqrt((wide(x) ** 2).mean(1, keepdims=True)) * wide(g)


def layer(_: Any) -> Made:
    """Layer norm."""
    x, g, b = draw(300, 1000), draw(1000), draw(1000, seed=1)
    centred = wide(x) - wide(x).mean(1, keepdims=True)
    out = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * wide(g) + wide(b)
    return (x, 1e-5, g, b), {}, out


def attention_columns(_: Any) -> Made:
    """[d, seq] of each."""
    q, k, v = (draw(128, 512, scale=0.3, seed=s) for s in range(3))
    return (q, k, v), {}, softmax(wide(q).T @ wide(k)) @ wide(v).T


def attention_rows(_: Any) -> Made:
    """[seq, d] of each, scaled."""
    q, k, v = (draw(512, 64, seed=s) for s in range(3))
    return (q, k, v), {}, softmax(wide(q) @ wide(k).T / 8) @ wide(v)


_SOLS = (
    ("advanced-nki2/0_cumsum_ref.py", running_sum, 1e-5),
    ("advanced-nki2/1_transpose_ref.py", swapped, 0.0),
    ("advanced-nki2/2_maxpool_ref.py", windows, 0.0),
    ("advanced-nki2/3_rope_ref.py", rope_2d, 1e-5),
    ("advanced-nki2/4_conv1d_ref.py", depthwise_row, 1e-5),
    ("advanced-nki2/5_conv2d_ref.py", conv2d, 1e-5),
    ("advanced-nki2/6_csa_2048_ref.py", masked_attention(0), 2e-2),
    ("advanced-nki2/7_csa_16384_ref.py", streamed, 2e-2),
    ("advanced-nki2/8_mha_ref.py", masked_attention(2), 2e-2),
    ("tutorial-nki2/0_rmsnorm_ref.py", rms, 1e-5),
    ("tutorial-nki2/1_layernorm_ref.py", layer, 1e-4),
    ("tutorial-nki2/2_gemm_ref.py", product(256, 256, 512, BF16), 2e-2),
    ("tutorial-nki2/3_mamba_ref.py", mamba(True), 1e-5),
    ("tutorial-nki2/4_attention_ref.py", attention_columns, 1e-5),
    ("tutorial-nki2/5_sdattention_ref.py", attention_rows, 1e-5),
)
AUTOCOMP_CASES = tuple(
    Case(AUTOCOMP, f"sols/trn-{file}", "solution", "0.2", make, tolerance)
    for file, make, tolerance in _SOLS
)


def into(make: Callable[[Any], Made]) -> Callable[[Any], Made]:
    """Arguments with a place for each result at their end."""

    def with_places(space: Any) -> Made:
        args, options, expected = make(space)
        results = expected if isinstance(expected, tuple) else (expected,)
        return (*args, *(np.zeros(r.shape, F32) for r in results)), options, expected

    return with_places


def row_softmax(_: Any) -> Made:
    """Of rows."""
    x = draw(256, 64)
    return (x,), {}, softmax(wide(x))


def row_rms(_: Any) -> Made:
    """With a weight for every element."""
    x, g = draw(256, 128), draw(256, 128, seed=1)
    return (x, g), {}, wide(x) / np.sqrt((wide(x) ** 2).mean(1, keepdims=True) + 1e-6) * wide(g)


def two_layers(_: Any) -> Made:
    """Products with a relu between."""
    x, a, b = draw(256, 128, scale=0.2), draw(256, 256, scale=0.2), draw(256, 512, scale=0.2)
    return (x, a, b), {}, np.maximum(wide(x).T @ wide(a), 0) @ wide(b)


def heads_4d(_: Any) -> Made:
    """[batch, heads, seq, d] with fewer keys' heads; extents are arguments too."""
    q, k, v = draw(1, 2, 256, 128), draw(1, 1, 384, 128), draw(1, 1, 384, 64)
    scores = np.einsum("bhqd,bgkd->bhqk", wide(q), wide(k)) / math.sqrt(128)
    out = np.einsum("bhqk,bgkd->bhqd", softmax(scores), wide(v))
    return (q, k, v, np.zeros(out.shape, F32), 1, 2, 1, 1, 256, 384, 128, 64), {}, out


def rope_4d(_: Any) -> Made:
    """[batch, heads, seq, d]."""
    q, k, cos, sin = (
        draw(1, 2, 256, 64),
        draw(1, 2, 256, 64, seed=1),
        draw(256, 64),
        draw(256, 64, seed=1),
    )
    turn = [wide(x) * wide(cos) + rotated(wide(x)) * wide(sin) for x in (q, k)]
    return (q, k, cos, sin, np.zeros_like(q), np.zeros_like(k), 1, 2, 256, 64), {}, tuple(turn)


_VIZ = (
    ("tiled_attention", "tiled_attention_kernel", heads_4d),
    ("softmax", "softmax_kernel", into(row_softmax)),
    ("rmsnorm", "rmsnorm_kernel", into(row_rms)),
    ("matmul", "matmul_kernel", into(product(256, 256, 512))),
    ("mlp", "mlp_kernel", into(two_layers)),
    ("rope", "rope_kernel", rope_4d),
    ("add", "nki_tensor_add_kernel", into(addition(100, 30))),
)
TRITON_VIZ_CASES = tuple(
    Case(TRITON_VIZ, f"examples/nki_beta2/{file}.py", kernel, "0.2", make,
         unused="torch" if file == "add" else "")
    for file, kernel, make in _VIZ
)  # fmt: skip

CASES = (*SDK_CASES, *SAMPLES_CASES, *AUTOCOMP_CASES, *TRITON_VIZ_CASES)

"""Kernels that every check accepts without a warning; tests break them in one place each."""

from __future__ import annotations

from typing import Any

import numpy as np

HEAD = """import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
"""

GEMM = f"""{HEAD}def gemm(aT, b):
    out = nl.ndarray((512, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
    c = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
    for k in range(2):
        nisa.dma_copy(dst=a[0:128, k * 512:k * 512 + 512], src=aT[k * 128:k * 128 + 128, 0:512])
        nisa.dma_copy(dst=c[0:128, k * 512:k * 512 + 512], src=b[k * 128:k * 128 + 128, 0:512])
    for m in range(4):
        acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        for k in range(2):
            start = k * 512 + m * 128
            left, right = a[0:128, start:start + 128], c[0:128, k * 512:k * 512 + 512]
            nisa.nc_matmul(dst=acc, stationary=left, moving=right, accumulate=k > 0)
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile, src=acc)
        nisa.dma_copy(dst=out[m * 128:m * 128 + 128, 0:512], src=tile)
    return out
"""

SOFTMAX = f"""{HEAD}def softmax(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    most = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=most, op=nl.maximum, data=t, axis=1, negate=True)
    e = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=e, op=nl.exp, data=t, bias=most, reduce_op=nl.add, reduce_res=total,
                    reduce_cmd=nisa.reduce_cmd.reset_reduce)
    part = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.reciprocal(dst=part, data=total)
    nisa.tensor_scalar(dst=e, data=e, op0=nl.multiply, operand0=part)
    nisa.dma_copy(dst=out, src=e)
    return out
"""

PLACED = f"""{HEAD}def placed(x):
    out = nl.ndarray((64, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
    u = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.sbuf, address=(64, 2048))
    s = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.sbuf, address=(0, 2048))
    p = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.psum, address=(0, 2048))
    nisa.dma_copy(dst=t, src=x)
    nisa.tensor_copy(dst=s, src=t)
    nisa.tensor_copy(dst=p, src=s)
    nisa.tensor_scalar(dst=s, data=p, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=u, src=x)
    nisa.tensor_scalar(dst=u[32:64, 0:512], data=u[32:64, 0:512], op0=nl.add, operand0=2.0)
    nisa.dma_copy(dst=out[0:64, 0:512], src=s)
    nisa.dma_copy(dst=out[0:64, 512:1024], src=u)
    return out
"""

BITS = f"""{HEAD}def bits(x):
    out = nl.ndarray((128, 1024), dtype=nl.int32, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    r = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(dst=r, pattern=[[1, 512]], offset=0, channel_multiplier=300)
    nisa.tensor_tensor(dst=t, data1=t, data2=r, op=nl.bitwise_xor)
    f = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=f, src=r)
    nisa.activation(dst=f, op=nl.copy, data=f, scale=2.0)
    nisa.dma_copy(dst=out[0:128, 0:512], src=t)
    nisa.dma_copy(dst=out[0:128, 512:1024], src=f)
    return out
"""

KERNELS = {"gemm": GEMM, "softmax": SOFTMAX, "placed": PLACED, "bits": BITS}


def arguments(name: str) -> tuple[np.ndarray[Any, Any], ...]:
    """Arrays for a kernel."""
    draw = np.random.default_rng(7)
    match name:
        case "gemm":
            shapes = [(256, 512), (256, 512)]
        case "softmax":
            shapes = [(128, 512)]
        case "placed":
            shapes = [(64, 512)]
        case _:
            return (draw.integers(-1000, 1000, (128, 512)).astype(np.int32),)
    return tuple(draw.standard_normal(s).astype(np.float32) for s in shapes)


def expected(name: str, arrays: tuple[np.ndarray[Any, Any], ...]) -> np.ndarray[Any, Any]:
    """What it computes, in numpy."""
    x = arrays[0].astype(np.float64) if arrays[0].dtype.kind == "f" else arrays[0]
    match name:
        case "gemm":
            return np.asarray(x.T @ arrays[1].astype(np.float64))
        case "softmax":
            e = np.exp(x - x.max(1, keepdims=True))
            return np.asarray(e / e.sum(1, keepdims=True))
        case "placed":
            return np.concatenate([x + 1, x + 2 * (np.arange(64) >= 32)[:, None]], 1)
    numbers = (np.arange(512)[None] + 300 * np.arange(128)[:, None]).astype(np.int32)
    return np.concatenate([arrays[0] ^ numbers, 2 * numbers], 1)

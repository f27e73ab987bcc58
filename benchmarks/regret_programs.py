"""Programs drawn by seed for `benchmarks.regret`: the sizes that people run, of every schedule."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

Fn = Callable[..., Any]
Drawn = tuple[Fn, list[str]]


def log_uniform(rng: random.Random, least: int, most: int, step: int = 1) -> int:
    """An integer whose logarithm is uniform, rounded up to a multiple of `step`."""
    found = math.exp(rng.uniform(math.log(least), math.log(most)))
    return max(step, -(-int(found) // step) * step)


def plane(rng: random.Random, least: int = 1 << 18, most: int = 1 << 26) -> tuple[int, int]:
    """Rows and columns of so many elements."""
    size, columns = log_uniform(rng, least, most), log_uniform(rng, 64, 65536)
    return max(1, size // columns), columns


def spec(dtype: str, *shape: int) -> str:
    """``spec("f16", 8, 4)`` is "8x4:f16"."""
    return "x".join(map(str, shape)) + ":" + dtype


def _half(rng: random.Random) -> str:
    return rng.choice(("f16", "f16", "bf16"))


def _matmul(dtype: str, turned: bool, m: int, n: int, k: int) -> Drawn:
    def product(x: Any, w: Any) -> Any:
        return x @ (w.T if turned else w)

    return product, [spec(dtype, m, k), spec(dtype, n, k) if turned else spec(dtype, k, n)]


def product(rng: random.Random) -> Drawn:
    """Large products."""
    m, n, k = (log_uniform(rng, 1024, 8192, 64) for _ in range(3))
    return _matmul(_half(rng), rng.random() < 0.6, m, n, k)


def few_rows(rng: random.Random) -> Drawn:
    """Products of 1 to 256 rows."""
    n, k = (log_uniform(rng, 1024, 16384, 64) for _ in range(2))
    return _matmul(_half(rng), rng.random() < 0.6, log_uniform(rng, 1, 256), n, k)


def odd_product(rng: random.Random) -> Drawn:
    """Products of extents without common factors."""
    m, n, k = (log_uniform(rng, 256, 4096) for _ in range(3))
    return _matmul("f16", rng.random() < 0.5, m, n, k)


def deep_product(rng: random.Random) -> Drawn:
    """Products of few blocks over a long dim."""
    m, n = (log_uniform(rng, 64, 512, 64) for _ in range(2))
    return _matmul(_half(rng), rng.random() < 0.5, m, n, log_uniform(rng, 16384, 262144, 64))


def wide_product(rng: random.Random) -> Drawn:
    """Products of f32, on ordinary lanes."""
    m, n, k = (log_uniform(rng, 512, 4096, 32) for _ in range(3))
    return _matmul("f32", rng.random() < 0.5, m, n, k)


def epilogue(rng: random.Random) -> Drawn:
    """A linear layer with bias and gelu."""
    from axe_eq import nn

    m, n, k = (log_uniform(rng, 1024, 8192, 64) for _ in range(3))
    dtype = _half(rng)
    return lambda x, w, b: nn.gelu(x @ w + b), [
        spec(dtype, m, k), spec(dtype, k, n), spec(dtype, n)
    ]  # fmt: skip


def rows(rng: random.Random) -> Drawn:
    """Norms and softmax of rows."""
    from axe_eq import array as xp
    from axe_eq import nn

    fn: Fn = rng.choice((
        nn.softmax, nn.rmsnorm, nn.layernorm, lambda x: xp.sum(x, axis=-1),
        lambda x: xp.max(x, axis=-1), lambda x: nn.softmax(x * 0.5 + 1.0),
    ))  # fmt: skip
    return fn, [spec(rng.choice(("f16", "bf16", "f32")), *plane(rng))]


def cells(rng: random.Random) -> Drawn:
    """Cells over whole arrays, with and without a row of parameters."""
    from axe_eq import nn

    dtype, (m, n) = rng.choice(("f16", "bf16", "f32")), plane(rng)
    if rng.random() < 0.5:
        return lambda x, b: nn.gelu(x + b), [spec(dtype, m, n), spec(dtype, n)]
    return lambda x, y: nn.silu(x) * y, [spec(dtype, m, n)] * 2


def turns(rng: random.Random) -> Drawn:
    """Transposes of two and three dims."""
    dtype = rng.choice(("f16", "f32"))
    if rng.random() < 0.5:
        return lambda x: x.T, [spec(dtype, *plane(rng))]
    shape = [log_uniform(rng, 16, 1024) for _ in range(3)]
    order = rng.choice(((0, 2, 1), (1, 0, 2), (2, 1, 0)))
    from axe_eq import array as xp

    return lambda x: xp.permute_dims(x, order), [spec(dtype, *shape)]


def sums(rng: random.Random) -> Drawn:
    """Sums over leading, middle and all dims; variances of columns."""
    from axe_eq import array as xp

    dtype = rng.choice(("f16", "f32"))
    kind = rng.randrange(4)
    if kind == 0:
        return lambda x: xp.sum(x, axis=0), [spec(dtype, *plane(rng))]
    if kind == 1:
        shape = [log_uniform(rng, 16, 512) for _ in range(3)]
        return lambda x: xp.mean(x, axis=1), [spec(dtype, *shape)]
    if kind == 2:
        return lambda x: xp.sum(x), [spec(dtype, *plane(rng))]
    return lambda x: xp.var(x, axis=0), [spec(dtype, *plane(rng))]


def scans(rng: random.Random) -> Drawn:
    """Cumulative sums of rows."""
    from axe_eq import array as xp

    return lambda x: xp.cumulative_sum(x, axis=-1), [spec("f32", *plane(rng, most=1 << 24))]


def attention(rng: random.Random) -> Drawn:
    """Attention without a mask, and causal."""
    from axe_eq import array as xp
    from axe_eq import nn

    heads, length = rng.choice((8, 16, 32)), log_uniform(rng, 512, 4096)
    width, causal = rng.choice((64, 80, 128)), rng.random() < 0.4

    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.mT * width**-0.5
        if causal:
            at = xp.arange(length)
            scores = xp.where(at[:, None] >= at[None, :], scores, -xp.inf)
        return nn.softmax(scores) @ v

    return attend, [spec("f16", heads, length, width)] * 3


def moves(rng: random.Random) -> Drawn:
    """Rotary embeddings, concatenations, rows that integers choose."""
    from axe_eq import array as xp

    kind = rng.randrange(3)
    if kind == 0:
        heads, length, width = rng.choice((8, 32)), log_uniform(rng, 512, 8192), 128

        def rope(x: Any, cos: Any, sin: Any) -> Any:
            left, right = x[..., : width // 2], x[..., width // 2 :]
            return x * cos + xp.concat([-right, left], axis=-1) * sin

        return rope, [spec("f16", heads, length, width), *[spec("f16", length, width)] * 2]
    if kind == 1:
        m, n = plane(rng, most=1 << 24)
        return lambda x, y: xp.concat([x, y], axis=-1), [spec("f16", m, n)] * 2
    n, width = log_uniform(rng, 256, 16384), log_uniform(rng, 256, 8192, 8)
    return lambda table, at: xp.take(table, at, axis=0), [spec("f16", 32000, width),
                                                          spec("i32", n)]  # fmt: skip


KINDS: dict[str, Callable[[random.Random], Drawn]] = {
    fn.__name__: fn
    for fn in (product, few_rows, odd_product, deep_product, wide_product, epilogue, rows, cells,
               turns, sums, scans, attention, moves)
}  # fmt: skip


def drawn(seed: int) -> tuple[str, Fn, list[str]]:
    """The program of a seed: its kind, function and specs. Kinds take turns."""
    name = list(KINDS)[seed % len(KINDS)]
    fn, specs = KINDS[name](random.Random(seed))
    return name, fn, specs

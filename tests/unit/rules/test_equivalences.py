"""What the packs prove together: pairs a user would call equal, and near misses nobody should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq import nn
from axe_eq.pack import packs
from axe_eq.prove.programs.prover import prove_programs
from axe_eq.prove.programs.search import Budget

Function = Callable[..., Any]
Pair = tuple[Function, Function, tuple[axe.Spec, ...]]


def of(*shape: int, dtype: str = "f32") -> axe.Spec:
    return axe.Spec(shape, dtype)


def rows_sum(x: Any) -> Any:
    return xp.sum(x, axis=1, keepdims=True)


def shifted_exp(s: Any) -> Any:
    return xp.exp(s - xp.max(s, axis=1, keepdims=True))


def turned(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary position embedding with the halves of a row as pairs."""
    return x * cos + xp.concat([-x[:, 4:], x[:, :4]], axis=1) * sin


def turned_by_halves(x: Any, cos: Any, sin: Any) -> Any:
    low = x[:, :4] * cos[:, :4] - x[:, 4:] * sin[:, :4]
    high = x[:, 4:] * cos[:, 4:] + x[:, :4] * sin[:, 4:]
    return xp.concat([low, high], axis=1)


def in_two_blocks(s: Any, v: Any) -> Any:
    """Attention over two blocks of keys, without their maxima."""
    a, b = xp.exp(s[:, :3]), xp.exp(s[:, 3:])
    return (a @ v[:3] + b @ v[3:]) / (rows_sum(a) + rows_sum(b))


def on_two_devices(x: Any, up: Any, down: Any) -> Any:
    """A layer whose hidden dim is cut in two, its partial sums added."""
    return nn.relu(x @ up[:, :4]) @ down[:4] + nn.relu(x @ up[:, 4:]) @ down[4:]


def split_k(a: Any, b: Any, strided: bool) -> Any:
    """A product whose parts are summed in a second stage."""
    if strided:
        whole = nn.einsum("mki,kin->imn", xp.reshape(a, (4, 3, 2)), xp.reshape(b, (3, 2, 5)))
    else:
        whole = nn.einsum("mik,ikn->imn", xp.reshape(a, (4, 2, 3)), xp.reshape(b, (2, 3, 5)))
    return xp.sum(whole, axis=0)


def grouped_scores(q: Any, k: Any) -> Any:
    """Scores of 4 query heads that share 2 key heads, without copying keys."""
    scores = nn.einsum("gjsd,gtd->gjst", xp.reshape(q, (2, 2, 5, 3)), k)
    return xp.reshape(scores, (4, 5, 5))


EXACT: dict[str, Pair] = {
    "transposes cancel": (
        lambda a: xp.permute_dims(xp.permute_dims(a, (1, 2, 0)), (2, 0, 1)),
        lambda a: a,
        (of(2, 3, 4),),
    ),
    "cell of a transpose": (lambda a: xp.exp(a.T), lambda a: xp.exp(a).T, (of(3, 4),)),
    "slice of a sum": (
        lambda a, b: (a + b)[1:3, ::2],
        lambda a, b: a[1:3, ::2] + b[1:3, ::2],
        (of(4, 6), of(4, 6)),
    ),
    "flips cancel": (lambda a: a[::-1, ::-1][::-1, ::-1], lambda a: a, (of(3, 4),)),
    "slices of a product are products": (
        lambda x, w: ((x @ w)[:, :4], (x @ w)[:, 4:]),
        lambda x, w: (x @ w[:, :4], x @ w[:, 4:]),
        (of(5, 6), of(6, 8)),
    ),
    "three products are one": (
        lambda x, u, v, w: xp.concat([x @ u, x @ v, x @ w], axis=1),
        lambda x, u, v, w: x @ xp.concat([u, v, w], axis=1),
        (of(5, 6), of(6, 3), of(6, 4), of(6, 2)),
    ),
    "rows cut in three": (
        lambda x, w: xp.concat([x[:2] @ w, x[2:4] @ w, x[4:] @ w], axis=0),
        lambda x, w: x @ w,
        (of(6, 4), of(4, 3)),
    ),
    "columns cut in two": (
        lambda x, w: xp.concat([x @ w[:, :2], x @ w[:, 2:]], axis=1),
        lambda x, w: x @ w,
        (of(6, 4), of(4, 4)),
    ),
    "relu twice": (lambda x: nn.relu(nn.relu(x)), nn.relu, (of(4, 5),)),
    "heads of a product": (
        lambda x, w: xp.reshape(x @ w, (5, 2, 3)),
        lambda x, w: nn.einsum("sk,khd->shd", x, xp.reshape(w, (6, 2, 3))),
        (of(5, 6), of(6, 6)),
    ),
    "product of merged heads": (
        lambda o, w: xp.reshape(o, (5, 6)) @ w,
        lambda o, w: nn.einsum("shd,hde->se", o, xp.reshape(w, (2, 3, 4))),
        (of(5, 2, 3), of(6, 4)),
    ),
    "reshape of a reshape": (
        lambda x: xp.reshape(xp.reshape(x, (4, 6)), (2, 2, 6)),
        lambda x: xp.reshape(x, (2, 2, 6)),
        (of(24),),
    ),
    "batch dims merged and split": (
        lambda x, w: xp.reshape(xp.reshape(x, (6, 4)) @ w, (2, 3, 5)),
        lambda x, w: x @ w,
        (of(2, 3, 4), of(4, 5)),
    ),
    "even columns": (lambda x: xp.reshape(x, (4, 3, 2))[:, :, 0], lambda x: x[:, ::2], (of(4, 6),)),
    "one of an interleaved pair": (
        lambda x, y: xp.reshape(xp.stack([x, y], axis=2), (3, 8))[:, 1::2],
        lambda x, y: y,
        (of(3, 4), of(3, 4)),
    ),
    "cast and back": (
        lambda x: xp.astype(xp.astype(x, "f32"), "f16"),
        lambda x: x,
        (of(4, 5, dtype="f16"),),
    ),
    "negated condition": (
        lambda c, x, y: xp.where(xp.logical_not(c), x, y),
        lambda c, x, y: xp.where(c, y, x),
        (of(4, dtype="bool"), of(4), of(4)),
    ),
    "one head of a mask": (
        lambda c, s: xp.where(c, s, -1e9)[0],
        lambda c, s: xp.where(c, s[0], -1e9),
        (of(4, 4, dtype="bool"), of(2, 4, 4)),
    ),
    "cell of a choice": (
        lambda c, x: xp.where(c, x, 0) * 2,
        lambda c, x: xp.where(c, x * 2, 0),
        (of(4, dtype="bool"), of(4)),
    ),
    "padded sum": (
        lambda x, y: xp.pad(x + y, ((1, 1), (0, 2))),
        lambda x, y: xp.pad(x, ((1, 1), (0, 2))) + xp.pad(y, ((1, 1), (0, 2))),
        (of(3, 4), of(3, 4)),
    ),
    "times one": (lambda x: x * 1.0, lambda x: x, (of(4, 5),)),
    "negated twice": (lambda x: xp.negative(xp.negative(x)), lambda x: x, (of(4, 5),)),
    "maximum in two stages": (
        lambda x: xp.max(x, axis=1),
        lambda x: xp.max(xp.max(xp.reshape(x, (4, 2, 3)), axis=2), axis=1),
        (of(4, 6),),
    ),
    "shared key heads": (
        lambda q, k: q @ xp.permute_dims(xp.repeat(k, 2, axis=0), (0, 2, 1)),
        grouped_scores,
        (of(4, 5, 3), of(2, 5, 3)),
    ),
    "stack of products": (
        lambda x, u, v: xp.stack([x @ u, x @ v]),
        lambda x, u, v: nn.einsum("sk,nkd->nsd", x, xp.stack([u, v])),
        (of(4, 5), of(5, 3), of(5, 3)),
    ),
    "rows of a convolution and their halo": (
        lambda x, w: nn.conv2d(x, w)[:, :, :2],
        lambda x, w: nn.conv2d(x[:, :, :4], w),
        (of(1, 2, 6, 5), of(3, 2, 3, 3)),
    ),
}

REAL: dict[str, Pair] = {
    "transposed product": (lambda a, b: (a @ b).T, lambda a, b: b.T @ a.T, (of(4, 6), of(6, 5))),
    "chain": (
        lambda a, b, c: (a @ b) @ c,
        lambda a, b, c: a @ (b @ c),
        (of(4, 5), of(5, 6), of(6, 3)),
    ),
    "product of a sum": (
        lambda a, b, c: (a + b) @ c,
        lambda a, b, c: a @ c + b @ c,
        (of(4, 5), of(4, 5), of(5, 3)),
    ),
    "split k by slices": (
        lambda a, b: a @ b,
        lambda a, b: a[:, :3] @ b[:3] + a[:, 3:] @ b[3:],
        (of(4, 6), of(6, 5)),
    ),
    "split k, contiguous": (
        lambda a, b: a @ b,
        lambda a, b: split_k(a, b, False),
        (of(4, 6), of(6, 5)),
    ),
    "split k, strided": (
        lambda a, b: a @ b,
        lambda a, b: split_k(a, b, True),
        (of(4, 6), of(6, 5)),
    ),
    "even and odd terms": (
        lambda x: xp.sum(x, axis=1),
        lambda x: xp.sum(x[:, ::2], axis=1) + xp.sum(x[:, 1::2], axis=1),
        (of(4, 6),),
    ),
    "softmax without its maximum": (
        nn.softmax,
        lambda x: xp.exp(x) / rows_sum(xp.exp(x)),
        (of(4, 6),),
    ),
    "attention divided late": (
        lambda s, v: nn.softmax(s) @ v,
        lambda s, v: (xp.exp(s) @ v) / rows_sum(xp.exp(s)),
        (of(4, 6), of(6, 3)),
    ),
    "attention divided late, shifted": (
        lambda s, v: nn.softmax(s) @ v,
        lambda s, v: (shifted_exp(s) @ v) / rows_sum(shifted_exp(s)),
        (of(4, 6), of(6, 3)),
    ),
    "attention in two blocks": (
        lambda s, v: nn.softmax(s) @ v,
        in_two_blocks,
        (of(4, 6), of(6, 3)),
    ),
    "silu": (nn.silu, lambda x: x / (1 + xp.exp(-x)), (of(4, 6),)),
    "tanh": (xp.tanh, lambda x: 2 * nn.sigmoid(2 * x) - 1, (of(4, 6),)),
    "relu": (nn.relu, lambda x: xp.where(x > 0, x, 0), (of(4, 6),)),
    "absolute value": (xp.abs, lambda x: xp.maximum(x, -x), (of(4, 6),)),
    "rmsnorm": (
        nn.rmsnorm,
        lambda x: x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-6),
        (of(4, 6),),
    ),
    "variance": (
        lambda x: xp.mean((x - xp.mean(x, axis=1, keepdims=True)) ** 2, axis=1),
        lambda x: xp.mean(x * x, axis=1) - xp.mean(x, axis=1) ** 2,
        (of(4, 6),),
    ),
    "scaled scores": (
        lambda q, k: (q * 0.125) @ k.T,
        lambda q, k: (q @ k.T) * 0.125,
        (of(4, 6), of(5, 6)),
    ),
    "product of exponentials": (
        lambda x, y: xp.exp(x) * xp.exp(y),
        lambda x, y: xp.exp(x + y),
        (of(4, 6), of(4, 6)),
    ),
    "logarithm of an exponential": (lambda x: xp.log(xp.exp(x)), lambda x: x, (of(4, 6),)),
    "square": (lambda x: x**2, lambda x: x * x, (of(4, 6),)),
    "square root": (lambda x: x**0.5, xp.sqrt, (of(4, 6),)),
    "shifted maximum": (
        lambda x, c: xp.max(x + c, axis=1),
        lambda x, c: xp.max(x, axis=1) + c[:, 0],
        (of(4, 6), of(4, 1)),
    ),
    "zeros along k": (
        lambda a, b: xp.pad(a, ((0, 0), (0, 2))) @ xp.pad(b, ((0, 2), (0, 0))),
        lambda a, b: a @ b,
        (of(4, 6), of(6, 3)),
    ),
    "padded product": (
        lambda a, b: xp.pad(a @ b, ((0, 2), (0, 1))),
        lambda a, b: xp.pad(a, ((0, 2), (0, 0))) @ xp.pad(b, ((0, 0), (0, 1))),
        (of(4, 6), of(6, 3)),
    ),
    "rotary embedding": (turned, turned_by_halves, (of(5, 8), of(5, 8), of(5, 8))),
    "a layer on two devices": (
        lambda x, u, w: nn.relu(x @ u) @ w,
        on_two_devices,
        (of(3, 5), of(5, 8), of(8, 5)),
    ),
    "convolution of one pixel": (
        nn.conv2d,
        lambda x, w: nn.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]),
        (of(2, 3, 4, 4), of(5, 3, 1, 1)),
    ),
}

# Not equal, or not where the left side is undefined, or not bit for bit.
NEVER: dict[str, tuple[str, Pair]] = {
    "exponential of a logarithm": ("real", (lambda x: xp.exp(xp.log(x)), lambda x: x, (of(4),))),
    "square of a root": ("real", (lambda x: xp.sqrt(x) * xp.sqrt(x), lambda x: x, (of(4),))),
    "a value over itself": ("real", (lambda x: x / x, xp.ones_like, (of(4),))),
    "a difference of equal quotients": (
        "real",
        (lambda x: (x / x) * 2 - (x / x) * 2, xp.zeros_like, (of(4),)),
    ),
    "zero over a value": ("real", (lambda x: (x - x) / x, xp.zeros_like, (of(4),))),
    "zero times a logarithm": ("real", (lambda x: xp.log(x) * (x - x), xp.zeros_like, (of(4),))),
    "logarithm of a product": (
        "real",
        (lambda x, y: xp.log(x * y), lambda x, y: xp.log(x) + xp.log(y), (of(4), of(4))),
    ),
    "a sixth, rounded": ("real", (lambda x: x / 6.0, lambda x: x * 0.1666666716337204, (of(4),))),
    "a folded constant": (
        "real",
        (
            lambda x: x * (xp.full((), 1.0, dtype="f32") / 3.0),
            lambda x: x * 0.3333333432674408,
            (of(4),),
        ),
    ),
    "slice off by one": ("real", (lambda a: (a + a)[1:], lambda a: a[:-1] + a[:-1], (of(4),))),
    "product not transposed": (
        "real",
        (lambda a, b: (a @ b).T, lambda a, b: a.T @ b.T, (of(4, 4), of(4, 4))),
    ),
    "softmax over the other dim": (
        "real",
        (nn.softmax, lambda x: nn.softmax(x, axis=0), (of(4, 4),)),
    ),
    "offset that is not a row's": (
        "real",
        (
            lambda s, m: xp.exp(s - m) / rows_sum(xp.exp(s - m)),
            lambda s, m: nn.softmax(s),
            (of(4, 6), of(4, 6)),
        ),
    ),
    "padded with ones": (
        "real",
        (lambda x: xp.sum(xp.pad(x, ((0, 2),), constant_values=1)), xp.sum, (of(4),)),
    ),
    "pad of a bias": (
        "real",
        (lambda x: xp.pad(x + 1, ((0, 2),)), lambda x: xp.pad(x, ((0, 2),)) + 1, (of(4),)),
    ),
    "maximum for minimum": ("real", (lambda x: xp.where(x > 0, 0, x), nn.relu, (of(4),))),
    "merged in another order": (
        "real",
        (lambda x: xp.reshape(x.T, (12,)), lambda x: xp.reshape(x, (12,)), (of(3, 4),)),
    ),
    "repeated elements for copies": (
        "real",
        (lambda x: xp.tile(x, (2,)), lambda x: xp.repeat(x, 2), (of(4),)),
    ),
    "concatenated the other way": (
        "real",
        (
            lambda x, u, v: xp.concat([x @ u, x @ v], axis=1),
            lambda x, u, v: x @ xp.concat([v, u], axis=1),
            (of(4, 4), of(4, 4), of(4, 4)),
        ),
    ),
    "association, bit for bit": (
        "exact",
        (lambda a, b, c: (a + b) + c, lambda a, b, c: a + (b + c), (of(4),) * 3),
    ),
    "plus zero, bit for bit": ("exact", (lambda x: x + 0.0, lambda x: x, (of(4),))),
    "times zero": ("exact", (lambda x: x * 0.0, xp.zeros_like, (of(4),))),
    "rounded and back": (
        "exact",
        (lambda x: xp.astype(xp.astype(x, "f16"), "f32"), lambda x: x, (of(4),)),
    ),
    # Integers wrap around: i32 where i64 or a float would not, and order does not outlive a sum.
    "a negated i32 added to an i64": (
        "exact",
        (lambda x, y: x + -y, lambda x, y: x - y, (of(4, dtype="i64"), of(4, dtype="i32"))),
    ),
    "a negated i32 taken from a float": (
        "real",
        (lambda x, y: x - -y, lambda x, y: x + y, (of(4, dtype="f64"), of(4, dtype="i32"))),
    ),
    "shifted maximum of integers": (
        "real",
        (
            lambda x, c: xp.max(x + c, axis=1),
            lambda x, c: xp.max(x, axis=1) + c[:, 0],
            (of(4, 6, dtype="i32"), of(4, 1, dtype="i32")),
        ),
    ),
    "a sum of i32 scaled in i64": (
        "real",
        (
            lambda x, y, z: z * x + z * y,
            lambda x, y, z: z * (x + y),
            (of(4, dtype="i32"), of(4, dtype="i32"), of(4, dtype="i64")),
        ),
    ),
    "a chain from integers to floats": (
        "real",
        (
            lambda a, b, c: (a @ b) @ c,
            lambda a, b, c: a @ (b @ c),
            (of(3, 4, dtype="i32"), of(4, 5, dtype="i32"), of(5, 2)),
        ),
    ),
    "integers scaled by a float before they are summed": (
        "real",
        (
            lambda a, b, c: (a * c) @ b,
            lambda a, b, c: (a @ b) * c,
            (of(3, 4, dtype="i32"), of(4, 5, dtype="i32"), of(3, 1)),
        ),
    ),
    "maximum of swapped zeros": (
        "exact",
        (lambda x, y: xp.maximum(x, y), lambda x, y: xp.maximum(y, x), (of(4), of(4))),
    ),
}


def proved(pair: Pair, numerics: str, budget: Budget | None = None) -> bool:
    left, right, specs = pair
    sides = axe.trace(left, *specs), axe.trace(right, *specs)
    return isinstance(prove_programs(*sides, packs(), numerics, budget=budget), axe.Proved)


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", EXACT)
def test_is_proved_bit_for_bit(name: str) -> None:
    assert proved(EXACT[name], "exact")


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", REAL)
def test_is_proved_over_the_reals(name: str) -> None:
    assert proved(REAL[name], "real")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", NEVER)
def test_is_never_proved(name: str, full: bool) -> None:
    numerics, pair = NEVER[name]
    assert not proved(pair, numerics, Budget(rows=10_000 if full else 3000, seconds=10.0))

"""Attention as people write it: forty-odd programs, and what each means in float64.

A spelling is a function of traced arrays with the dims of its operands by name. What it means is
said a second time, head by head over matrices, without the function: for numpy and for torch.
`benchmarks.cuda_spellings` compiles, interprets and measures them.

Dims: s queries, t keys, d what is multiplied, w columns of the values; all others are heads and
batches. "(k g)" is one dim of the operand that the meaning sees as two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import inf, prod
from typing import Any

import numpy as np

Sizes = dict[str, int]
Fn = Callable[..., Any]
MATRIX = ("s", "t", "d", "w")
MASKED = -1e4  # what some write for a score that takes no part
CAP, WINDOW = 30.0, 40
NUMPY = {"f16": np.float16, "f32": np.float32, "i32": np.int32, "bool": np.bool_}


@dataclass(frozen=True)
class Spelling:
    """A program.

    Attributes:
        fn: of traced arrays, in the order of the operands.
        operands: name -> dims; "q", "k", "v" first.
        out: dims of the result.
        small: sizes at which it is interpreted.
        large: sizes at which it runs on a GPU.
        scores: (numpy or torch, scaled scores of one head, query and key numbers, the head's part
            of other operands) -> scores; None leaves them alone. Numbers are s x 1 and 1 x t.
        kinds: element types of operands that are not of the program's.
        dtype: of the program.
        scaled: scores are divided by the square root of d.
        lse: the logarithm of the sum of exponentials is a second result, over the heads and s.
        peer: "" or "causal" where torch has one call for it.
    """

    fn: Fn
    operands: Mapping[str, str]
    out: str
    small: Sizes
    large: Sizes
    scores: Fn | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    dtype: str = "f16"
    scaled: bool = True
    lse: bool = False
    peer: str | None = None

    def specs(self, sizes: Sizes) -> list[str]:
        """Of the operands, as `axe.compile` takes them."""
        shapes = (map(str, shape(dims, sizes)) for dims in self.operands.values())
        return [
            f"{'x'.join(s)}:{self.kinds.get(name, self.dtype)}"
            for name, s in zip(self.operands, shapes, strict=True)
        ]

    def scale(self, sizes: Sizes) -> float:
        """What scores are multiplied by, as the program's element type holds it."""
        if not self.scaled:
            return 1.0
        return float(rounded(np.asarray(sizes["d"] ** -0.5), self.dtype))


def rounded(array: Any, dtype: str) -> Any:
    """Values as an element type holds them; those of bf16 in f32, as numpy has no such type."""
    if dtype != "bf16":
        return array.astype(NUMPY[dtype])
    words = array.astype(np.float32).view(np.uint32)
    words = words + 0x7FFF + (words >> 16 & 1)  # to the nearest, ties to even
    return (words & 0xFFFF0000).view(np.float32)


def shape(dims: str, sizes: Sizes) -> tuple[int, ...]:
    """Extents of an operand: what stands in parentheses is one dim; a number is itself."""
    parts = dims.replace("(", " ( ").replace(")", " ) ").split()
    found: list[int] = []
    inside = False
    for part in parts:
        if part in "()":
            inside = part == "("
            found += [1] * inside
        elif inside:
            found[-1] *= sizes[part]
        else:
            found.append(int(part) if part.isdigit() else sizes[part])
    return tuple(found)


def names(dims: str) -> list[str]:
    """The dims of an operand as its meaning sees them."""
    return dims.replace("(", " ").replace(")", " ").split()


def matrix(array: Any, dims: str, sizes: Sizes, at: Mapping[str, int]) -> Any:
    """What an operand has at one head: its dims of a matrix, in the order s, t, d, w.

    Dims of the matrix that it lacks are left out, but for s and t beside one of them.
    """
    order = names(dims)
    whole = array.reshape([int(n) if n.isdigit() else sizes[n] for n in order])
    part = whole[tuple(0 if n.isdigit() else at.get(n, slice(None)) for n in order)]
    kept = [n for n in order if n in MATRIX]
    wanted = sorted(kept, key=MATRIX.index)
    turned = part if kept == wanted else part.T
    if wanted == ["s"]:
        return turned[:, None]
    return turned[None] if wanted == ["t"] else turned


def heads(spelling: Spelling, sizes: Sizes) -> Iterator[dict[str, int]]:
    """Every head of the result."""
    dims = [n for n in names(spelling.out) if n not in MATRIX and not n.isdigit()]
    for at in product(*(range(sizes[n]) for n in dims)):
        yield dict(zip(dims, at, strict=True))


def meaning(
    xp: Any, spelling: Spelling, sizes: Sizes, arrays: Mapping[str, Any], at: Mapping[str, int]
) -> tuple[Any, Any]:
    """(result over s and w, logarithms of sums over s) of one head.

    Args:
        xp: numpy, or torch with the device of the arrays as its default.
        spelling: the program.
        sizes: of its dims.
        arrays: operands in float64, or of booleans, by name; as the program has them, every
            operation rounds to its element type, and the results are its meaning there.
        at: the head.
    """
    held = {n: matrix(arrays[n], dims, sizes, at) for n, dims in spelling.operands.items()}
    q, k, v = held.pop("q"), held.pop("k"), held.pop("v")
    z = q @ k.T * spelling.scale(sizes)
    if spelling.scores is not None:
        i, j = xp.arange(sizes["s"])[:, None], xp.arange(sizes["t"])[None, :]
        z = spelling.scores(xp, z, i, j, held)
    top = z.max(-1)
    top = (top if xp is np else top.values)[:, None]
    e = xp.exp(z - top)
    total = e.sum(-1)[:, None]
    return xp.asarray(e / total, dtype=v.dtype) @ v, (xp.log(total) + top)[:, 0]


# -- programs --


def _scores(q: Any, k: Any) -> Any:
    return q @ k.mT * q.shape[-1] ** -0.5


def _softmax(z: Any) -> Any:
    from axe_eq import nn

    return nn.softmax(z, axis=-1)


def mixed(z: Any, v: Any) -> Any:
    """Values weighted by the softmax of their scores."""
    return _softmax(z) @ v


def _xp() -> Any:
    from axe_eq import array

    return array


def plain(q: Any, k: Any, v: Any) -> Any:
    """Heads first; keys and values may have fewer dims, or dims of one index."""
    return mixed(_scores(q, k), v)


def by_einsum(q: Any, k: Any, v: Any) -> Any:
    """Tokens before heads."""
    from axe_eq import nn

    z = nn.einsum("bshd,bthd->bhst", q, k) * q.shape[-1] ** -0.5
    return nn.einsum("bhst,bthw->bshw", _softmax(z), v)


def by_permutes(q: Any, k: Any, v: Any) -> Any:
    """Tokens before heads, turned to heads first and back."""
    turned = (_xp().permute_dims(x, (0, 2, 1, 3)) for x in (q, k, v))
    return _xp().permute_dims(plain(*turned), (0, 2, 1, 3))


def tokens_first(q: Any, k: Any, v: Any) -> Any:
    """Tokens before heads, without a batch."""
    from axe_eq import nn

    z = nn.einsum("shd,thd->hst", q, k) * q.shape[-1] ** -0.5
    return nn.einsum("hst,thw->shw", _softmax(z), v)


def groups_of_tokens(q: Any, k: Any, v: Any) -> Any:
    """Tokens before groups of heads that share keys and values."""
    from axe_eq import nn

    z = nn.einsum("bskgd,btkd->bkgst", q, k) * q.shape[-1] ** -0.5
    return nn.einsum("bkgst,btkw->bskgw", _softmax(z), v)


def repeated(q: Any, k: Any, v: Any) -> Any:
    """Keys and values are repeated for the heads of a group."""
    times = q.shape[1] // k.shape[1]
    return plain(q, *(_xp().repeat(x, times, axis=1) for x in (k, v)))


def broadcast_then_merged(q: Any, k: Any, v: Any) -> Any:
    """Keys and values are broadcast over a new dim, which becomes one with the heads."""
    xp, times = _xp(), q.shape[1] // k.shape[1]

    def wide(x: Any) -> Any:
        b, h, t, d = x.shape
        return xp.reshape(
            xp.broadcast_to(xp.expand_dims(x, axis=2), (b, h, times, t, d)), (b, h * times, t, d)
        )

    return plain(q, wide(k), wide(v))


def by_hand(q: Any, k: Any, v: Any) -> Any:
    """Exponentials over their sum, written out."""
    xp = _xp()
    z = _scores(q, k)
    e = xp.exp(z - xp.max(z, axis=-1, keepdims=True))
    return (e @ v) / xp.sum(e, axis=-1, keepdims=True)


def unscaled(q: Any, k: Any, v: Any) -> Any:
    """As T5 has it."""
    return mixed(q @ k.mT, v)


def scaled_queries(q: Any, k: Any, v: Any) -> Any:
    """Queries are scaled before the product."""
    return mixed((q * q.shape[-1] ** -0.5) @ k.mT, v)


def _at(z: Any) -> tuple[Any, Any]:
    xp = _xp()
    return xp.arange(z.shape[-2])[:, None], xp.arange(z.shape[-1])[None, :]


def masked(kept: Fn) -> Fn:
    """Scores at pairs of positions that are not kept are -inf."""

    def fn(q: Any, k: Any, v: Any) -> Any:
        z = _scores(q, k)
        return mixed(_xp().where(kept(*_at(z)), z, -inf), v)

    return fn


def causal_tril(q: Any, k: Any, v: Any) -> Any:
    """A lower triangle of ones is the mask."""
    xp, z = _xp(), _scores(q, k)
    kept = xp.tril(xp.ones(z.shape[-2:], dtype=xp.bool))
    return mixed(xp.where(kept, z, -inf), v)


def causal_number(q: Any, k: Any, v: Any) -> Any:
    """A large negative number stands for what is masked."""
    z = _scores(q, k)
    i, j = _at(z)
    return mixed(_xp().where(i >= j, z, MASKED), v)


def causal_added(q: Any, k: Any, v: Any) -> Any:
    """A large negative number is added where a query does not see a key."""
    xp, z = _xp(), _scores(q, k)
    hidden = xp.triu(xp.ones(z.shape[-2:], dtype=z.dtype), k=1)
    return mixed(z + hidden * MASKED, v)


def mask_input(q: Any, k: Any, v: Any, m: Any) -> Any:
    """A mask of booleans for all heads, or one that broadcasts."""
    return mixed(_xp().where(m, _scores(q, k), -inf), v)


def documents(q: Any, k: Any, v: Any, a: Any, b: Any) -> Any:
    """Only tokens of the same document see each other, and none after them."""
    z = _scores(q, k)
    i, j = _at(z)
    kept = (a[:, None] == b[None, :]) & (i >= j)
    return mixed(_xp().where(kept, z, -inf), v)


def alibi(q: Any, k: Any, v: Any, m: Any) -> Any:
    """A slope per head times the distance is taken off."""
    xp, z = _xp(), _scores(q, k)
    i, j = _at(z)
    return mixed(z - m[:, None, None] * xp.astype(xp.abs(i - j), z.dtype), v)


def alibi_causal(q: Any, k: Any, v: Any, m: Any) -> Any:
    """A slope per head, and no key after its query."""
    xp, z = _xp(), _scores(q, k)
    i, j = _at(z)
    z = z + m[:, None, None] * xp.astype(j - i, z.dtype)
    return mixed(xp.where(i >= j, z, -inf), v)


def capped(q: Any, k: Any, v: Any) -> Any:
    """Scores are capped smoothly."""
    return mixed(_xp().tanh(_scores(q, k) / CAP) * CAP, v)


def capped_causal(q: Any, k: Any, v: Any) -> Any:
    """Capped scores, and no key after its query."""
    xp = _xp()
    z = xp.tanh(_scores(q, k) / CAP) * CAP
    i, j = _at(z)
    return mixed(xp.where(i >= j, z, -inf), v)


def biased_wide(q: Any, k: Any, v: Any, a: Any) -> Any:
    """A bias in f32; softmax in f32, and weights rounded before they mix."""
    xp = _xp()
    z = xp.astype(_scores(q, k), a.dtype) + a
    return xp.astype(_softmax(z), v.dtype) @ v


def wide_softmax(q: Any, k: Any, v: Any) -> Any:
    """Softmax in f32, and weights rounded before they mix."""
    xp = _xp()
    return xp.astype(_softmax(xp.astype(_scores(q, k), xp.float32)), v.dtype) @ v


def biased(q: Any, k: Any, v: Any, a: Any) -> Any:
    """A bias is added to the scores; it may broadcast."""
    return mixed(_scores(q, k) + a, v)


def _log_sum(z: Any) -> Any:
    xp = _xp()
    top = xp.max(z, axis=-1, keepdims=True)
    total = xp.sum(xp.exp(z - top), axis=-1, keepdims=True)
    return (xp.log(total) + top)[..., 0]


def with_log_sums(q: Any, k: Any, v: Any) -> Any:
    """The logarithm of the sum of exponentials is a second result."""
    z = _scores(q, k)
    return mixed(z, v), _log_sum(z)


def causal_with_log_sums(q: Any, k: Any, v: Any) -> Any:
    """The same under a causal mask."""
    z = _scores(q, k)
    i, j = _at(z)
    z = _xp().where(i >= j, z, -inf)
    return mixed(z, v), _log_sum(z)


# -- what scores become --


def _kept(rule: Fn, other: float = -inf) -> Fn:
    return lambda xp, z, i, j, held: xp.where(rule(i, j), z, other)


def _after(i: Any, j: Any) -> Any:
    return i >= j


def _window(i: Any, j: Any) -> Any:
    return (i >= j) & (i - j < WINDOW)


def _band(i: Any, j: Any) -> Any:
    return (i - j < WINDOW) & (j - i < WINDOW)


def _prefix(i: Any, j: Any) -> Any:
    return (i >= j) | (j < WINDOW)


def _none_at_first(i: Any, j: Any) -> Any:
    return i > j


def _ending(ahead: int) -> Fn:
    return lambda i, j: i + ahead >= j


def _sloped(xp: Any, z: Any, i: Any, j: Any, held: Any) -> Any:
    return z - held["m"] * xp.asarray(abs(i - j), dtype=z.dtype)


def _cap(xp: Any, z: Any, i: Any, j: Any, held: Any) -> Any:
    return xp.tanh(z / CAP) * CAP


# -- the table --

_H, _BH = {"h": 2}, {"b": 2, "h": 2}
_SMALL = {"s": 70, "t": 100, "d": 64, "w": 64}
_SAME = {"s": 100, "t": 100, "d": 64, "w": 64}
_LARGE = {"s": 4096, "t": 4096, "d": 128, "w": 128}
_QKV = {"q": "h s d", "k": "h t d", "v": "h t w"}
_BQKV = {"q": "b h s d", "k": "b h t d", "v": "b h t w"}
_SHARED = {"q": "b (k g) s d", "k": "b k t d", "v": "b k t w"}
_GROUPS = {"b": 2, "k": 2, "g": 3}


def _heads(fn: Fn = plain, scores: Fn | None = None, **changes: Any) -> Spelling:
    """Heads and no batch, as many keys as queries where positions are compared."""
    small = changes.pop("small", {}) if "small" in changes else {}
    large = changes.pop("large", {}) if "large" in changes else {}
    given = changes.pop("operands", {})
    base = _SMALL if scores is None else _SAME
    return Spelling(
        fn, _QKV | given, changes.pop("out", "h s w"), _H | base | small,
        {"h": 16} | _LARGE | large, scores, **changes,
    )  # fmt: skip


def _width(d: int, **large: int) -> Spelling:
    sizes = {"d": d, "w": d}
    return _heads(small=sizes | {"s": 70, "t": 100}, large=sizes | large, peer="")


def _all() -> dict[str, Spelling]:
    big = {"b": 3, "h": 16} | _LARGE
    shared = {"b": 2, "k": 4, "g": 4} | _LARGE | {"s": 2048, "t": 2048}
    causal = masked(_after)
    found = {
        # Batch dims and their order.
        "no heads": Spelling(
            plain, {"q": "s d", "k": "t d", "v": "t w"}, "s w", dict(_SMALL), dict(_LARGE), peer=""
        ),
        "heads": _heads(peer=""),
        "batch, heads": Spelling(plain, _BQKV, "b h s w", _BH | _SMALL, big, peer=""),
        "three batch dims": Spelling(
            plain, {"q": "a b h s d", "k": "a b h t d", "v": "a b h t w"}, "a b h s w",
            {"a": 2, "b": 3, "h": 2} | _SMALL, {"a": 2, "b": 3, "h": 4} | _LARGE, peer="",
        ),
        "three batch dims, keys of the middle one": Spelling(
            plain, {"q": "a b h s d", "k": "b 1 t d", "v": "b 1 t w"}, "a b h s w",
            {"a": 2, "b": 3, "h": 2} | _SMALL, {"a": 2, "b": 3, "h": 4} | _LARGE,
        ),
        "tokens before heads, einsum": Spelling(
            by_einsum, {"q": "b s h d", "k": "b t h d", "v": "b t h w"}, "b s h w",
            _BH | _SMALL, big | {"b": 2, "s": 2048, "t": 2048},
        ),
        "tokens before heads, permuted": Spelling(
            by_permutes, {"q": "b s h d", "k": "b t h d", "v": "b t h w"}, "b s h w",
            _BH | _SMALL, big | {"b": 2, "s": 2048, "t": 2048},
        ),
        "tokens before heads, no batch": Spelling(
            tokens_first, {"q": "s h d", "k": "t h d", "v": "t h w"}, "s h w",
            _H | _SMALL, {"h": 16} | _LARGE,
        ),
        # Heads that share keys and values.
        "groups by broadcast": Spelling(
            plain, {"q": "b k g s d", "k": "b k 1 t d", "v": "b k 1 t w"}, "b k g s w",
            _GROUPS | _SMALL, {"b": 2, "k": 8, "g": 4} | _LARGE | {"s": 1024, "t": 1024},
        ),
        "groups by broadcast, no batch": Spelling(
            plain, {"q": "k g s d", "k": "k 1 t d", "v": "k 1 t w"}, "k g s w",
            {"k": 2, "g": 3} | _SMALL, {"k": 8, "g": 4} | _LARGE,
        ),
        "groups by repeat": Spelling(repeated, _SHARED, "b (k g) s w", _GROUPS | _SMALL, shared),
        "groups by broadcast and reshape": Spelling(
            broadcast_then_merged, _SHARED, "b (k g) s w", _GROUPS | _SMALL, shared
        ),
        "groups, tokens before heads": Spelling(
            groups_of_tokens, {"q": "b s k g d", "k": "b t k d", "v": "b t k w"}, "b s k g w",
            _GROUPS | _SMALL, shared,
        ),
        "keys of all heads": Spelling(
            plain, {"q": "b h s d", "k": "b 1 t d", "v": "b 1 t w"}, "b h s w", _BH | _SMALL, big
        ),
        "keys of all heads and batches": Spelling(
            plain, {"q": "b h s d", "k": "t d", "v": "t w"}, "b h s w", _BH | _SMALL, big
        ),
        # How softmax and scale are written.
        "by hand": _heads(by_hand, peer=""),
        "unscaled": _heads(unscaled, scaled=False),
        "scaled queries": _heads(scaled_queries, peer=""),
        "softmax in f32": _heads(wide_softmax, peer=""),
        # Masks by position.
        "causal": _heads(causal, _kept(_after), peer="causal"),
        "causal, 64 wide": _heads(
            causal, _kept(_after), large={"d": 64, "w": 64, "s": 8192, "t": 8192}, peer="causal"
        ),
        "causal, 16384 long": _heads(
            causal, _kept(_after), large={"h": 4, "s": 16384, "t": 16384}, peer="causal"
        ),
        "causal, batch": Spelling(
            causal, _BQKV, "b h s w", _BH | _SAME, big | {"s": 2048, "t": 2048}, _kept(_after),
            peer="causal",
        ),
        "causal, groups by broadcast": Spelling(
            causal, {"q": "b k g s d", "k": "b k 1 t d", "v": "b k 1 t w"}, "b k g s w",
            _GROUPS | _SAME, shared, _kept(_after),
        ),
        "causal, triangle": _heads(causal_tril, _kept(_after), peer="causal"),
        "causal, a number": _heads(causal_number, _kept(_after, MASKED)),
        "causal, a number added": _heads(
            causal_added, lambda xp, z, i, j, held: xp.where(i >= j, z, z + MASKED)
        ),
        "causal, last queries": _heads(
            masked(_ending(84)), _kept(_ending(84)), small={"s": 16},
            large={"s": 16, "t": 100},
        ),
        "strictly causal": _heads(masked(_none_at_first), _kept(_none_at_first)),
        "window": _heads(masked(_window), _kept(_window)),
        "window on both sides": _heads(masked(_band), _kept(_band)),
        "prefix": _heads(masked(_prefix), _kept(_prefix)),
        # Masks and biases as operands.
        "mask": _heads(
            mask_input, lambda xp, z, i, j, held: xp.where(held["m"], z, -inf),
            operands={"m": "s t"}, kinds={"m": "bool"},
        ),
        "mask of keys": Spelling(
            mask_input, _BQKV | {"m": "b 1 1 t"}, "b h s w", _BH | _SMALL, big,
            lambda xp, z, i, j, held: xp.where(held["m"], z, -inf), {"m": "bool"},
        ),
        "documents": _heads(
            documents,
            lambda xp, z, i, j, held: xp.where((held["a"] == held["b"]) & (i >= j), z, -inf),
            operands={"a": "s", "b": "t"}, kinds={"a": "i32", "b": "i32"},
        ),
        "slopes": _heads(
            alibi, _sloped, operands={"m": "h"},
        ),
        "slopes, causal": _heads(
            alibi_causal,
            lambda xp, z, i, j, held: xp.where(i >= j, _sloped(xp, z, i, j, held), -inf),
            operands={"m": "h"},
        ),
        "bias": _heads(
            biased, lambda xp, z, i, j, held: z + held["a"], operands={"a": "s t"},
        ),
        "bias per head": _heads(
            biased, lambda xp, z, i, j, held: z + held["a"], operands={"a": "h s t"},
        ),
        "bias per batch, f32": Spelling(
            biased_wide, _BQKV | {"a": "b 1 s t"}, "b h s w", _BH | _SMALL,
            big | {"s": 2048, "t": 2048}, lambda xp, z, i, j, held: z + held["a"], {"a": "f32"},
        ),
        "capped": _heads(capped, _cap),
        "capped, causal": _heads(
            capped_causal,
            lambda xp, z, i, j, held: xp.where(i >= j, _cap(xp, z, i, j, held), -inf),
        ),
        # Several results.
        "log sums": _heads(with_log_sums, lse=True),
        "causal, log sums": _heads(causal_with_log_sums, _kept(_after), lse=True),
        # Widths, lengths and element types.
        "40 wide": _width(40, h=8), "64 wide": _width(64), "80 wide": _width(80),
        "96 wide": _width(96), "192 wide": _width(192), "256 wide": _width(256),
        "192 and 128 wide": _heads(small={"d": 192, "w": 128}, large={"d": 192, "w": 128}),
        "odd length": _heads(small={"s": 33, "t": 77}, large={"s": 1023, "t": 1023}, peer=""),
        "few keys": _heads(small={"s": 70, "t": 7}, large={"t": 77}, peer=""),
        "one token": _heads(small={"s": 1, "t": 1}, large={"s": 1, "t": 1}, peer=""),
        "16384 long": _heads(large={"h": 4, "s": 16384, "t": 16384}, peer=""),
        "one query": _heads(small={"s": 1}, large={"h": 32, "s": 1, "t": 8192}, peer=""),
        "one query, batch": Spelling(
            plain, _BQKV, "b h s w", _BH | _SMALL | {"s": 1}, big | {"s": 1}, peer=""
        ),
        "one query, groups": Spelling(
            plain, {"q": "b k g s d", "k": "b k 1 t d", "v": "b k 1 t w"}, "b k g s w",
            _GROUPS | _SMALL | {"s": 1}, {"b": 4, "k": 8, "g": 4} | _LARGE | {"s": 1, "t": 8192},
        ),
        "bf16": _heads(dtype="bf16", peer=""),
        "f32": _heads(dtype="f32", large={"s": 1024, "t": 1024, "d": 64, "w": 64}, peer=""),
    }  # fmt: skip
    return found


SPELLINGS = _all()


def work(spelling: Spelling, sizes: Sizes) -> float:
    """Operations of both products."""
    n = prod(sizes[x] for x in names(spelling.out) if x not in MATRIX)
    return 2.0 * n * sizes["s"] * sizes["t"] * (sizes["d"] + sizes["w"])

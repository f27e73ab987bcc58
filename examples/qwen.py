"""The programs of the demo as plain array functions: Qwen3-8B's MLP block, attention."""

from __future__ import annotations

from typing import Any

import axe_eq as axe
from axe_eq import nn

HIDDEN, INTERMEDIATE, TOKENS = 4096, 12288, 8192
HEADS, HEAD_DIM = 32, 128


def mlp_block(x: Any, g: Any, wg: Any, wu: Any, wd: Any) -> Any:
    """Block: x + (silu(h@Wg) * (h@Wu)) @ Wd with h = rmsnorm(x) * g."""
    h = nn.rmsnorm(x) * g
    return x + (nn.silu(h @ wg) * (h @ wu)) @ wd


def mlp_block_by_hand(x: Any, g: Any, wg: Any, wu: Any, wd: Any) -> Any:
    """The same block as somebody else would write it: sigmoid spelled out, products reordered."""
    h = g * nn.rmsnorm(x)
    gate = h @ wg
    up = h @ wu
    xp = x.__array_namespace__()
    return (up * (xp.sigmoid(gate) * gate)) @ wd + x


def mlp_block_forgotten(x: Any, g: Any, wg: Any, wu: Any, wd: Any) -> Any:
    """The block with its residual forgotten."""
    h = nn.rmsnorm(x) * g
    return (nn.silu(h @ wg) * (h @ wu)) @ wd


def attention(x: Any, g: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
    """Attention of all heads, no mask, with its residual; weights are (hidden, heads, head)."""
    h = nn.rmsnorm(x) * g
    q = nn.einsum("td,dhe->hte", h, wq)
    k = nn.einsum("td,dhe->hte", h, wk)
    v = nn.einsum("td,dhe->hte", h, wv)
    scores = nn.einsum("hte,hse->hts", q, k) * HEAD_DIM**-0.5
    mixed = nn.einsum("hts,hse->hte", nn.softmax(scores, axis=-1), v)
    return x + nn.einsum("hte,hed->td", mixed, wo)


def mlp_specs(tokens: int = TOKENS, hidden: int = HIDDEN, inner: int = INTERMEDIATE) -> list[Any]:
    """What the arguments of `mlp_block` look like; the token dim is named, so it can be rebound."""
    return [
        axe.Spec((tokens, hidden), "f16", dims=("tokens", "hidden")),
        axe.Spec((hidden,), "f16"),
        axe.Spec((hidden, inner), "f16"),
        axe.Spec((hidden, inner), "f16"),
        axe.Spec((inner, hidden), "f16"),
    ]


def attention_specs(
    tokens: int = TOKENS, hidden: int = HIDDEN, heads: int = HEADS, head: int = HEAD_DIM
) -> list[Any]:
    """What the arguments of `attention` look like."""
    weight = axe.Spec((hidden, heads, head), "f16")
    out = axe.Spec((heads, head, hidden), "f16")
    x = axe.Spec((tokens, hidden), "f16", dims=("tokens", "hidden"))
    return [x, axe.Spec((hidden,), "f16"), weight, weight, weight, out]

"""Layers against formulas in numpy, traced and on numpy arrays directly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq.nn as nn
from axe_eq.errors import ProgramError
from axe_eq.program.trace import run, trace

X = np.linspace(-4, 4, 60).reshape(3, 4, 5)


def check(fn: Callable[..., Any], expected: Any, *arrays: Any, rtol: float = 1e-12) -> None:
    """The traced meaning and the layer on numpy arrays both equal the expected array."""
    for got in (run(fn, *arrays), fn(*arrays)):
        assert got.dtype == arrays[0].dtype
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol)


def softmax(x: Any, axis: int) -> Any:
    weights = np.exp(x - x.max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


def test_activations() -> None:
    check(nn.relu, np.maximum(X, 0), X)
    check(nn.sigmoid, 1 / (1 + np.exp(-X)), X)
    check(nn.silu, X / (1 + np.exp(-X)), X)


def test_gelu() -> None:
    erf = np.vectorize(math.erf)
    check(nn.gelu, X * 0.5 * (1 + erf(X / math.sqrt(2))), X)
    tanh = np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3))
    check(lambda x: nn.gelu(x, approximate="tanh"), 0.5 * X * (1 + tanh), X)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_and_norms(axis: int) -> None:
    check(lambda x: nn.softmax(x, axis=axis), softmax(X, axis), X)
    check(lambda x: nn.mean(x, axis=axis), X.mean(axis), X)
    root = np.sqrt((X**2).mean(axis, keepdims=True) + 1e-6)
    check(lambda x: nn.rmsnorm(x, axis=axis), X / root, X)
    spread = np.sqrt(X.var(axis, keepdims=True) + 1e-5)
    centred = X - X.mean(axis, keepdims=True)
    check(lambda x: nn.layernorm(x, axis=axis), centred / spread, X)


@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 1, 1), (1,), ()])
def test_norms_take_weights_and_biases(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal(shape), rng.standard_normal(shape)
    rms = X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-6)
    check(lambda x, w: nn.rmsnorm(x, weight=w), rms * w, X, w)
    normed = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5)
    check(lambda x, w, b: nn.layernorm(x, weight=w, bias=b), normed * w + b, X, w, b)
    check(lambda x, b: nn.layernorm(x, bias=b), normed + b, X, b)


def test_weights_of_half_types_are_multiplied_in_f32() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((8, 64), (64,)))
    wide = x.astype(np.float64)
    rms = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * w.astype(np.float64)
    check(lambda x, w: nn.rmsnorm(x, weight=w), rms.astype(np.float16), x, w, rtol=1e-3)


anything: Any = nn  # the calls are wrong on purpose
BAD_CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a weight by place": (
        lambda x: anything.rmsnorm(x, x), "nn.rmsnorm: too many positional arguments; expected "
        "rmsnorm(x, *, weight=None, axis=-1, eps=1e-06)",
    ),
    "no array": (lambda x: anything.relu(), "nn.relu: missing a required argument: 'x'; expected"),
    "a keyword of another library": (
        lambda x: anything.softmax(x, dim=-1), "got an unexpected keyword argument 'dim'; expected "
        "softmax(x, *, axis=-1)",
    ),
    "no filter": (lambda x: anything.conv2d(x), "nn.conv2d: missing a required argument: 'weight'"),
    "a weight that does not fit": (
        lambda x: nn.rmsnorm(x, weight=x[..., :3]),
        "weight: is of shape (3, 4, 3); expected one that broadcasts to (3, 4, 5)",
    ),
    "a weight of more dims": (lambda x: nn.rmsnorm(x, weight=x[None]), "weight: is of shape (1, 3"),
    "a bias that does not fit": (
        lambda x: nn.layernorm(x, bias=x[..., :3]), "bias: is of shape (3, 4, 3)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_CALLS)
def test_calls_that_do_not_fit_are_refused(what: str) -> None:
    call, problem = BAD_CALLS[what]
    for attempt in (lambda: call(X), lambda: trace(call, "3x4x5:f64")):
        with pytest.raises(ProgramError) as refusal:
            attempt()
        assert problem in str(refusal.value)
    assert refusal.value.at.startswith("test_nn.py:")


def test_type_errors_from_inside_a_layer_stay() -> None:
    with pytest.raises(TypeError, match="did not contain a loop"):
        nn.rmsnorm(X, eps="small")  # type: ignore[arg-type]


def test_norms_of_half_types_do_not_overflow() -> None:
    x = np.full((2, 512), 500, np.float16)
    check(nn.rmsnorm, np.ones_like(x), x, rtol=1e-3)
    check(nn.layernorm, np.zeros_like(x), x, rtol=1e-3)


def test_layers_use_standard_operators_only() -> None:
    cells = {n.cell for n in trace(nn.softmax, "4x8:f16").nodes()}
    assert cells == {"", "id", "sub", "exp", "div"}


EINSUMS: list[Any] = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("ij,ij->", (3, 4), (3, 4)),
    ("i,j->ij", (3,), (4,)),
    ("ij,jk,kl->il", (3, 4), (4, 5), (5, 2)),
    ("i,i,i->i", (3,), (3,), (3,)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (6, 4, 5)),
    ("...i->...", (2, 3, 4)),
    ("b...,b->b...", (2, 3), (2,)),
    ("ij,kj->ik", (3, 1), (5, 4)),
    ("bhqd,bhkd->bhqk", (1, 2, 3, 4), (1, 2, 5, 4)),
    ("ba", (2, 3)),
    ("i,ij,j->", (3,), (3, 4), (4,)),
    ("abc,c->ab", (2, 3, 4), (4,)),
]


@pytest.mark.parametrize("case", EINSUMS, ids=lambda c: c[0])
def test_einsum(case: Any, rng: np.random.Generator) -> None:
    subscripts, *shapes = case
    arrays = [rng.normal(size=s) for s in shapes]
    expected = np.einsum(subscripts, *arrays)
    check(lambda *xs: nn.einsum(subscripts, *xs), expected, *arrays, rtol=1e-10)


def conv2d(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Convolution by its definition."""
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    n, _, height, width = x.shape
    o, inner, r, s = w.shape
    rows = (height - dilation[0] * (r - 1) - 1) // stride[0] + 1
    cols = (width - dilation[1] * (s - 1) - 1) // stride[1] + 1
    out = np.zeros((n, o, rows, cols))
    for at in np.ndindex(out.shape):
        b, k, h, v = at
        first = k // (o // groups) * inner
        window = x[
            b, first : first + inner,
            h * stride[0] : h * stride[0] + dilation[0] * (r - 1) + 1 : dilation[0],
            v * stride[1] : v * stride[1] + dilation[1] * (s - 1) + 1 : dilation[1],
        ]  # fmt: skip
        out[at] = (window * w[k]).sum()
    return out


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("stride", "padding", "dilation"),
    [
        ((1, 1), (0, 0), (1, 1)),
        ((2, 1), (1, 2), (1, 1)),
        ((2, 3), (2, 0), (2, 1)),
        ((1, 1), (1, 1), (3, 2)),
    ],
)
def test_conv2d(
    stride: Any, padding: Any, dilation: Any, groups: int, rng: np.random.Generator
) -> None:
    x, w = rng.normal(size=(2, 4, 8, 7)), rng.normal(size=(6, 4 // groups, 3, 2))
    options: dict[str, Any] = {
        "stride": stride, "padding": padding, "dilation": dilation, "groups": groups,
    }  # fmt: skip
    expected = conv2d(x, w, **options)
    check(lambda x, w: nn.conv2d(x, w, **options), expected, x, w, rtol=1e-10)


@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(2, None, 0), ((3, 2), 1, 1), (2, (3, 2), (0, 1))]
)
def test_pooling(size: Any, stride: Any, padding: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 3, 7, 6))
    kernel = size if isinstance(size, tuple) else (size, size)
    steps = stride if isinstance(stride, tuple) else (stride or kernel[0], stride or kernel[1])
    rows, cols = padding if isinstance(padding, tuple) else (padding, padding)
    for fn, reduce, fill in ((nn.max_pool2d, np.max, -np.inf), (nn.avg_pool2d, np.mean, 0.0)):
        padded = np.pad(x, ((0, 0), (0, 0), (rows, rows), (cols, cols)), constant_values=fill)
        view = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(2, 3))
        expected = reduce(view[:, :, :: steps[0], :: steps[1]], axis=(-1, -2))
        check(lambda x, fn=fn: fn(x, size, stride=stride, padding=padding), expected, x)


ERRORS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: nn.gelu(X, approximate="fast"),
        "approximate 'fast': is not known; expected 'none' or 'tanh'",
    ),
    (
        lambda: nn.einsum("ij,jk->iz", X[0], X[0]),
        "einsum 'ij,jk->iz': does not fit operands of [2, 2] dims; "
        "expected one letter per dim, output letters once",
    ),
    (
        lambda: nn.einsum("ijk->i", X[0]),
        "einsum 'ijk->i': does not fit operands of [2] dims; "
        "expected one letter per dim, output letters once",
    ),
    (
        lambda: nn.conv2d(X, X),
        "conv2d: got shape (3, 4, 5); expected (batch, channel, row, column)",
    ),
    (
        lambda: nn.conv2d(X[None], X[None], groups=2),
        "conv2d: x has 3 channels, weight is (1, 3, 4, 5), groups is 2; "
        "expected weight (o, channels / groups, r, s), groups dividing o",
    ),
    (
        lambda: nn.conv2d(X[None], X[None, :, :2, :3], padding=(0, 1), dilation=(5, 2)),
        "conv2d: windows reach over 6x5 elements, x with its padding has 4x7; "
        "expected windows inside it",
    ),
    (
        lambda: nn.max_pool2d(X[None], 5),
        "pooling: windows reach over 5x5 elements, x with its padding has 4x5; "
        "expected windows inside it",
    ),
    (lambda: nn.max_pool2d(X[None], 0), "size 0: is below 1; expected an integer of at least 1"),
    (
        lambda: nn.relu([1.0]),
        "list value: has no array namespace; expected an array of the standard\n"
        "  try: array_api_compat wraps libraries without one",
    ),
]


@pytest.mark.parametrize(
    ("call", "text"), ERRORS, ids=lambda v: None if callable(v) else str(v)[:30]
)
def test_bad_use_says_what_is_wrong(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        call()
    assert str(caught.value) == text

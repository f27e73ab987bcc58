"""Layers of neural networks, written in the array namespace: no operator of their own.

Functions of one array run on whatever array they get, through its ``__array_namespace__`` (numpy,
jax, traced). Those with windows or einsum subscripts are block operators; on numpy arrays they are
evaluated by their meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import numpy as np

from axe_eq.errors import ProgramError, said
from axe_eq.program.array.arguments import refusing, word
from axe_eq.program.meaning import evaluate_op
from axe_eq.program.ops import CELLS
from axe_eq.program.traced import Traced, block
from axe_eq.program.types import DTYPES, dtype

Axis = int | Sequence[int] | None
Given = ParamSpec("Given")

# The gain and curvature of the tanh form of GELU (Hendrycks and Gimpel, arXiv:1606.08415, sec. 2).
_TANH_GAIN = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


def layer(fn: Callable[Given, Any]) -> Callable[Given, Any]:
    """Decorator: calls that do not fit the signature are refused with it."""
    return refusing(fn, f"nn.{fn.__name__}")


def namespace_of(x: Any) -> Any:
    """The array namespace of an array.

    Raises:
        ProgramError: the array's library offers none.
    """
    if hasattr(x, "__array_namespace__") and not isinstance(x, type):
        return x.__array_namespace__()
    hint = "array_api_compat wraps libraries without one"
    wrong = "has no array namespace"
    raise ProgramError(f"{type(x).__name__} value", wrong, "an array of the standard", hint=hint)


def check_array(x: Any) -> None:
    """Refuse what has no shape and dtype.

    Raises:
        ProgramError: a number, a list, a type.
    """
    if isinstance(x, type) or not (hasattr(x, "shape") and hasattr(x, "dtype")):
        raise ProgramError(f"{type(x).__name__} value", "has no shape and dtype", "an array")


def apply_cell(name: str, x: Any) -> Any:
    """A cell that the standard has no function for, element by element, in the dtype of x."""
    xp = namespace_of(x)
    if hasattr(xp, name):
        return getattr(xp, name)(x)
    return xp.asarray(CELLS[name].fn(x), dtype=x.dtype)


def apply_block(sig: str, cell: str, *arrays: Any) -> Any:
    """A block operator on traced arrays, or evaluated on numpy arrays."""
    if any(isinstance(a, Traced) for a in arrays):
        return block(sig, cell, *arrays)
    return evaluate_op(sig, cell, [np.asarray(a) for a in arrays])


def exactly(x: Any) -> Any:
    """Half types in f32: sums of their squares overflow in their own."""
    check_array(x)
    name = dtype(x.dtype).accumulate
    if isinstance(x, Traced):
        return namespace_of(x).astype(x, name)
    return x.astype(DTYPES[name].numpy, copy=False)


# -- activations ----------------------------------------------------------------------------------


@layer
def relu(x: Any) -> Any:
    """max(x, 0).

    >>> axe.run(nn.relu, np.array([-1.0, 2.0], np.float32))
    array([0., 2.], dtype=float32)
    """
    return namespace_of(x).maximum(x, 0)


@layer
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)).

    >>> axe.run(nn.sigmoid, np.zeros(1, np.float32))
    array([0.5], dtype=float32)
    """
    return apply_cell("sigmoid", x)


@layer
def silu(x: Any) -> Any:
    """Sigmoid linear unit: x * sigmoid(x).

    >>> axe.run(nn.silu, np.array([0.0, 100.0], np.float32))
    array([  0., 100.], dtype=float32)
    """
    return x * sigmoid(x)


@layer
def gelu(x: Any, *, approximate: str = "none") -> Any:
    """Gaussian error linear unit: x * Phi(x) (Hendrycks and Gimpel, arXiv:1606.08415).

    Phi is the distribution function of the normal distribution.

    >>> axe.run(nn.gelu, np.array([0.0, 100.0], np.float32))
    array([  0., 100.], dtype=float32)

    Args:
        x: array of a floating dtype.
        approximate: "none" (by erf) or "tanh".

    Raises:
        ProgramError: another approximation.
    """
    namespace_of(x)
    if word("approximate", approximate, ("none", "tanh")) == "none":
        return 0.5 * x * (1 + apply_cell("erf", x * math.sqrt(0.5)))
    # 1 + tanh(y) = 2 sigmoid(2 y): nothing cancels, and machines take half as long.
    return x * sigmoid(x * (2 * _TANH_GAIN + 2 * _TANH_GAIN * _TANH_CUBIC * (x * x)))


# -- normalisations -------------------------------------------------------------------------------


@layer
def softmax(x: Any, *, axis: int = -1) -> Any:
    """exp(x - max x) / sum exp(x - max x) along an axis, in the dtype of x.

    >>> axe.run(nn.softmax, np.zeros((1, 4), np.float32))
    array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """
    xp = namespace_of(x)
    weights = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return weights / xp.sum(weights, axis=axis, keepdims=True)


@layer
def mean(x: Any, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Arithmetic mean over the axes; half types are summed and divided in f32.

    >>> axe.run(nn.mean, np.array([1.0, 3.0], np.float32))
    array(2., dtype=float32)
    """
    return namespace_of(x).mean(x, axis=axis, keepdims=keepdims)


@layer
def rmsnorm(x: Any, *, weight: Any = None, axis: Axis = -1, eps: float = 1e-6) -> Any:
    """Root mean square norm, x / sqrt(mean x^2 + eps) (Zhang and Sennrich, arXiv:1910.07467).

    Half types are computed in f32 and rounded at the end.

    >>> axe.run(nn.rmsnorm, np.full((1, 4), 8.0, np.float32)).round(3)
    array([[1., 1., 1., 1.]], dtype=float32)

    Args:
        x: array of a floating dtype.
        weight: what the norm is multiplied by, where given; broadcast to the shape of x, whatever
            `axis` is.
        axis: the axes of the mean.
        eps: what keeps the root from 0.

    Raises:
        ProgramError: a weight that does not broadcast to the shape of x.
    """
    exact = exactly(x)
    mean_square = mean(exact * exact, axis=axis, keepdims=True)
    return _back(_affine(exact * apply_cell("rsqrt", mean_square + eps), weight, None), x)


@layer
def layernorm(
    x: Any, *, weight: Any = None, bias: Any = None, axis: Axis = -1, eps: float = 1e-5
) -> Any:
    """Layer norm, (x - mean x) / sqrt(var x + eps) (Ba et al., arXiv:1607.06450).

    Half types are computed in f32 and rounded at the end.

    >>> axe.run(nn.layernorm, np.array([[1.0, 3.0]], np.float32)).round(3)
    array([[-1.,  1.]], dtype=float32)

    Args:
        x: array of a floating dtype.
        weight: what the norm is multiplied by, where given; broadcast to the shape of x, whatever
            `axis` is.
        bias: what is then added, where given; broadcast likewise.
        axis: the axes of mean and variance.
        eps: what keeps the root from 0.

    Raises:
        ProgramError: a weight or bias that does not broadcast to the shape of x.
    """
    exact = exactly(x)
    centred = exact - mean(exact, axis=axis, keepdims=True)
    variance = mean(centred * centred, axis=axis, keepdims=True)
    return _back(_affine(centred * apply_cell("rsqrt", variance + eps), weight, bias), x)


def _affine(normed: Any, weight: Any, bias: Any) -> Any:
    """A norm times its weight plus its bias, each where given."""
    for name, given in (("weight", weight), ("bias", bias)):
        if given is None:
            continue
        exact = exactly(given)
        extents = zip(reversed(exact.shape), reversed(normed.shape), strict=False)
        if exact.ndim > normed.ndim or any(mine not in (1, full) for mine, full in extents):
            expected = f"one that broadcasts to {tuple(normed.shape)}"
            raise ProgramError(
                name, f"is of shape {tuple(exact.shape)}", expected,
                hint=f"{name}[:, None] for one along the last dim but one",
            )  # fmt: skip
        normed = normed * exact if name == "weight" else normed + exact
    return normed


def _back(value: Any, x: Any) -> Any:
    return namespace_of(value).astype(value, x.dtype)


# -- einsum ---------------------------------------------------------------------------------------


@layer
def einsum(subscripts: str, *arrays: Any) -> Any:
    """Sums of products by subscripts, ``"bij,bjk->bik"`` (numpy's einsum, with one letter per dim).

    A letter twice in one operand reads its diagonal; without ``->`` the output has the letters met
    once, in alphabetic order; ``...`` stands for dims that broadcast. Three or more operands are
    contracted from left to right.

    >>> axe.run(lambda x, y: nn.einsum("ij,jk->ik", x, y), np.ones((2, 3)), np.ones((3, 1)))
    array([[3.],
           [3.]])

    Raises:
        ProgramError: subscripts that do not parse or do not fit the operands.
    """
    for array in arrays:
        check_array(array)
    given, out = _subscripts(subscripts, [a.ndim for a in arrays])
    result, letters = arrays[0], given[0]
    for n, (other, theirs) in enumerate(zip(arrays[1:], given[1:], strict=True), start=2):
        later = set("".join(given[n:]) + out)
        kept = [c for c in dict.fromkeys(letters + theirs) if c in later]
        target = out if n == len(arrays) else "".join(kept)
        result, letters = _contract([result, other], [letters, theirs], target), target
    return result if len(arrays) > 1 else _contract([result], [letters], out)


def _contract(arrays: list[Any], letters: list[str], out: str) -> Any:
    """One block operator; a letter's dims of extent 1 beside longer ones are read at 0."""
    extents: dict[str, int] = {}
    for array, row in zip(arrays, letters, strict=True):
        for c, extent in zip(row, array.shape, strict=True):
            extents[c] = max(extents.get(c, 1), extent)
    reduced = [c for c in dict.fromkeys("".join(letters)) if c not in out]
    operands = ", ".join(
        " ".join(c if e == extents[c] else "0" for c, e in zip(row, array.shape, strict=True))
        for array, row in zip(arrays, letters, strict=True)
    )
    sig = f"{operands} -> {' '.join(out)}" + (f"; + {' '.join(reduced)}" if reduced else "")
    return apply_block(sig, "mul" if len(arrays) > 1 else "id", *arrays)


def _subscripts(text: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Letters per operand and of the output, `...` replaced by letters nobody uses."""
    if not isinstance(text, str):
        raise ProgramError(f"einsum {said(text)}", "is no text", "letters such as 'ij,jk->ik'")
    left, arrow, right = text.replace(" ", "").partition("->")
    given = left.split(",")
    widths = [rank - len(g.replace("...", "")) for g, rank in zip(given, ranks, strict=False)]
    fits = len(given) == len(ranks)
    fits = fits and all(
        w >= 0 if "..." in g else w == 0 for g, w in zip(given, widths, strict=True)
    )
    dots = "".join(c for c in _LETTERS if c not in text)[: max(widths, default=0)]
    letters = [g.replace("...", dots[len(dots) - w :]) for g, w in zip(given, widths, strict=False)]
    out = right.replace("...", dots) if arrow else dots + _met_once(left.replace("...", ""))
    known = set("".join(letters))
    if not (fits and set(out) <= known <= set(_LETTERS) and len(set(out)) == len(out)):
        wrong = f"does not fit operands of {list(ranks)} dims"
        raise ProgramError(f"einsum {text!r}", wrong, "one letter per dim, output letters once")
    return letters, out


def _met_once(letters: str) -> str:
    return "".join(sorted(c for c in letters if c.isalpha() and letters.count(c) == 1))


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

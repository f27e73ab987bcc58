"""Operators that instructions take as `op`, by what `nki.language` calls them.

Kinds follow the tables of nki.api.shared: bitvec operators work on bit patterns of integers,
arithmetic ones in float32, activations are functions of the scalar engine with a range of validity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from axe_eq_backends.nki.sim.dtypes import dtype_of
from axe_eq_backends.nki.sim.errors import NkiError, kernel_line, shown
from axe_eq_backends.nki.sim.state import SBUF, current
from axe_eq_backends.nki.sim.storage import Array
from axe_eq_backends.nki.sim.views import Tensor

Cell = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Op:
    """An operator.

    Attributes:
        name: in `nki.language`.
        kind: "arithmetic", "bitvec", "unary" or "activation".
        cell: what it computes; of one or two arrays.
        reduces: the ufunc that a reduction uses; None where it cannot reduce.
        start: of a reduction.
        activation: whether the scalar engine has it.
        low, high: arguments that its activation is valid for, by absolute value where `mirrored`.
    """

    name: str
    kind: str
    cell: Cell
    reduces: np.ufunc | None = None
    start: float = 0.0
    activation: bool = False
    low: float = -math.inf
    high: float = math.inf
    mirrored: bool = False

    def __repr__(self) -> str:
        return f"nl.{self.name}"

    @property
    def arity(self) -> int:
        """How many arrays it takes."""
        return 2 if self.kind in ("arithmetic", "bitvec") and self.name != "invert" else 1

    def reduce(self, x: Array, axis: Any, keepdims: bool = False) -> Array:
        """The reduction of an array over axes; of equal arrays the same, however they lie."""
        x = np.ascontiguousarray(x)  # numpy adds in an order that depends on strides
        if self.reduces is np.subtract:  # x0 - x1 - x2 ...
            flat = x.reshape(*x.shape[: x.ndim - len(axis)], -1)
            out: Array = 2 * flat[..., 0] - flat.sum(-1)
            return out.reshape(out.shape + (1,) * len(axis)) if keepdims else out
        assert self.reduces is not None
        return np.asarray(self.reduces.reduce(x, axis=axis, keepdims=keepdims))

    def valid(self, x: Array) -> bool:
        """Whether all arguments are in the range of its activation."""
        if self.low == -math.inf and self.high == math.inf:
            return True
        x = np.abs(x) if self.mirrored else x
        with np.errstate(invalid="ignore"):
            return bool(((x >= np.float32(self.low)) & (x <= np.float32(self.high))).all())

    def __call__(self, *args: Any, dtype: Any = None, **_: Any) -> Tensor:
        """The function of `nki.language` with this name: a new tile, the smaller tile repeated."""
        tiles = [a for a in args if isinstance(a, Tensor)]
        if not tiles:
            at = shown(kernel_line())
            raise NkiError(f"{self!r}", "has no tensor among its arguments", "a tile", at=at)
        run = current()
        shape = tuple(int(n) for n in np.broadcast_shapes(*(t.shape for t in tiles)))
        out = run.declare(shape, dtype_of(dtype or tiles[0].dtype), SBUF)
        run.begin(f"nl.{self.name}")
        parts = [run.read("x", a) if isinstance(a, Tensor) else np.float32(a) for a in args]
        with np.errstate(all="ignore"):
            values = self.cell(*parts)
        run.write("dst", out, np.broadcast_to(values, shape))
        single = self.activation and len(tiles) == 1
        row = "activation" if single else "tensor_tensor" if len(tiles) > 1 else "tensor_scalar"
        run.issue("scalar" if single else "vector", out.free, row)
        return out


def _as_truth(cell: Cell) -> Cell:
    return lambda a, b: cell(a, b).astype(np.float32)


_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    """The error function."""
    return np.asarray(_erf(x.astype(np.float64)), np.float32)


def _sigmoid(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


def _gelu(x: Array) -> Any:
    return 0.5 * x * (1 + erf(x / np.float32(math.sqrt(2))))


def _gelu_dx(x: Array) -> Any:
    density = np.exp(-x * x / 2) / np.float32(math.sqrt(2 * math.pi))
    return 0.5 * (1 + erf(x / np.float32(math.sqrt(2)))) + x * density


def _gelu_tanh(x: Array) -> Any:
    return 0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + 0.044715 * x**3)))


def _gelu_sigmoid(x: Array) -> Any:
    return x * _sigmoid(np.float32(1.702) * x)


def _gelu_sigmoid_dx(x: Array) -> Any:
    s = _sigmoid(np.float32(1.702) * x)
    return s * (1 + np.float32(1.702) * x * (1 - s))


def _silu_dx(x: Array) -> Any:
    s = _sigmoid(x)
    return s * (1 + x * (1 - s))


def _softplus(x: Array) -> Any:
    return np.logaddexp(np.float32(0), x)


def _larger(a: Array, b: Array) -> Array:
    return np.where(np.abs(a) > np.abs(b), a, b)


def _smaller(a: Array, b: Array) -> Array:
    return np.where(np.abs(a) < np.abs(b), a, b)


def _truths(cell: Cell) -> Cell:
    return lambda a, b: cell(a != 0, b != 0).astype(np.float32)


def _shift(cell: Cell) -> Cell:
    """Shifts are logical: bits of an integer, whatever its sign."""
    return lambda a, b: cell(a.view(f"u{a.itemsize}"), b.astype(f"u{a.itemsize}")).view(a.dtype)


_MOST = math.inf
_LIST = (
    Op("add", "arithmetic", np.add, np.add),
    Op("subtract", "arithmetic", np.subtract, np.subtract),
    Op("multiply", "arithmetic", np.multiply, np.multiply, 1.0),
    Op("divide", "arithmetic", np.divide),
    Op("maximum", "arithmetic", np.maximum, np.maximum, -_MOST),
    Op("minimum", "arithmetic", np.minimum, np.minimum, _MOST),
    Op("power", "arithmetic", np.power),
    Op("abs_max", "arithmetic", _larger),
    Op("abs_min", "arithmetic", _smaller),
    Op("mod", "arithmetic", np.mod),
    Op("fmod", "arithmetic", np.fmod),
    Op("equal", "arithmetic", _as_truth(np.equal)),
    Op("not_equal", "arithmetic", _as_truth(np.not_equal)),
    Op("less", "arithmetic", _as_truth(np.less)),
    Op("less_equal", "arithmetic", _as_truth(np.less_equal)),
    Op("greater", "arithmetic", _as_truth(np.greater)),
    Op("greater_equal", "arithmetic", _as_truth(np.greater_equal)),
    Op("logical_and", "arithmetic", _truths(np.logical_and), np.logical_and, 1.0),
    Op("logical_or", "arithmetic", _truths(np.logical_or), np.logical_or),
    Op("logical_xor", "arithmetic", _truths(np.logical_xor), np.logical_xor),
    Op("bypass", "arithmetic", lambda a, b: a),
    Op("invert", "bitvec", np.invert),
    Op("bitwise_and", "bitvec", np.bitwise_and, np.bitwise_and),
    Op("bitwise_or", "bitvec", np.bitwise_or, np.bitwise_or),
    Op("bitwise_xor", "bitvec", np.bitwise_xor, np.bitwise_xor),
    Op("left_shift", "bitvec", _shift(np.left_shift)),
    Op("right_shift", "bitvec", _shift(np.right_shift)),
    Op("abs", "unary", np.abs, activation=True),
    Op("square", "unary", np.square, activation=True),
    Op("relu", "unary", lambda x: np.maximum(x, 0), activation=True),
    Op("rsqrt", "unary", lambda x: 1 / np.sqrt(x), activation=True, low=2.0**-87, high=2.0**97),
    Op("reciprocal", "unary", lambda x: 1 / x, activation=True, low=2.0**-42, high=2.0**42,
       mirrored=True),
    Op("logical_not", "unary", lambda x: (x == 0).astype(np.float32)),
    Op("negative", "unary", np.negative),
    Op("copy", "activation", lambda x: x, activation=True),
    Op("exp", "activation", np.exp, activation=True),
    Op("log", "activation", np.log, activation=True, low=2.0**-64, high=2.0**64),
    Op("sqrt", "activation", np.sqrt, activation=True, low=2.0**-116, high=2.0**118),
    Op("tanh", "activation", np.tanh, activation=True),
    Op("sigmoid", "activation", _sigmoid, activation=True),
    Op("silu", "activation", lambda x: x * _sigmoid(x), activation=True),
    Op("silu_dx", "activation", _silu_dx, activation=True),
    Op("gelu", "activation", _gelu, activation=True),
    Op("gelu_dx", "activation", _gelu_dx, activation=True),
    Op("gelu_apprx_tanh", "activation", _gelu_tanh, activation=True),
    Op("gelu_apprx_sigmoid", "activation", _gelu_sigmoid, activation=True),
    Op("gelu_apprx_sigmoid_dx", "activation", _gelu_sigmoid_dx, activation=True),
    Op("softplus", "activation", _softplus, activation=True),
    Op("mish", "activation", lambda x: x * np.tanh(_softplus(x)), activation=True),
    Op("erf", "activation", erf, activation=True),
    Op("erf_dx", "activation", lambda x: 2 / np.float32(math.sqrt(math.pi)) * np.exp(-x * x),
       activation=True),
    Op("sin", "activation", np.sin, activation=True, low=-math.pi, high=math.pi),
    Op("arctan", "activation", np.arctan, activation=True, low=-math.pi / 2, high=math.pi / 2),
    Op("sign", "activation", np.sign, activation=True),
    Op("cos", "function", np.cos),
    Op("tan", "function", np.tan),
    Op("ceil", "function", np.ceil),
    Op("floor", "function", np.floor),
    Op("trunc", "function", np.trunc),
)  # fmt: skip
OPS = {op.name: op for op in _LIST}

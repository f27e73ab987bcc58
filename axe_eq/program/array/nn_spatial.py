"""Convolution and pooling: block operators whose operand dims are strided windows.

Images are (batch, channel, row, column). Padding is a selector before the operator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from axe_eq.errors import ProgramError, said
from axe_eq.program.array.arguments import whole, wholes
from axe_eq.program.array.manipulation import pad
from axe_eq.program.array.nn import apply_block, check_array, exactly, layer, namespace_of
from axe_eq.program.selectors import check_scalar
from axe_eq.program.traced import Traced
from axe_eq.program.types import dtype

Pair = int | tuple[int, int]


def _pair(name: str, value: Pair, least: int) -> tuple[int, int]:
    both = wholes(name, value, least)
    if len(both) not in (1, 2):
        wanted = f"one or two integers of at least {least}"
        raise ProgramError(f"{name} {said(value)}", f"has {len(both)} entries", wanted)
    return both[0], both[-1]


def _padded(x: Any, padding: Pair, value: float) -> Any:
    rows, cols = _pair("padding", padding, 0)
    if not rows and not cols:
        return x
    widths = ((0, 0), (0, 0), (rows, rows), (cols, cols))
    if isinstance(x, Traced):
        return pad(x, widths, constant_values=value)
    check_scalar(value, dtype(x.dtype).name)
    return np.pad(x, widths, constant_values=value)


def _check_image(name: str, x: Any) -> None:
    check_array(x)
    if x.ndim != 4:
        raise ProgramError(name, f"got shape {tuple(x.shape)}", "(batch, channel, row, column)")


def _window(out: str, inner: str, step: int, spread: int) -> str:
    return f"{step if step > 1 else ''}{out}+{spread if spread > 1 else ''}{inner}"


@layer
def conv2d(
    x: Any, weight: Any, *, stride: Pair = 1, padding: Pair = 0, dilation: Pair = 1, groups: int = 1
) -> Any:
    """Two-dimensional convolution (cross-correlation, as layers mean it).

    >>> axe.trace(nn.conv2d, "1x3x8x8:f32", "4x3x3x3:f32").outputs[0].shape
    (1, 4, 6, 6)

    Args:
        x: (n, c, h, w).
        weight: (o, c / groups, r, s).
        stride: distance of windows, per spatial dim.
        padding: zeros on either side, per spatial dim.
        dilation: distance of a window's elements, per spatial dim.
        groups: number of independent groups of channels.

    Returns:
        (n, o, h', w') with h' = (h + 2 padding - dilation (r - 1) - 1) // stride + 1.

    Raises:
        ProgramError: ranks, channels or windows that do not fit.
    """
    _check_image("conv2d", x)
    _check_image("conv2d weight", weight)
    (n, c), (o, inner) = x.shape[:2], weight.shape[:2]
    groups = whole("groups", groups, 1)
    if o % groups or c != inner * groups:
        wrong = f"x has {c} channels, weight is {tuple(weight.shape)}, groups is {groups}"
        raise ProgramError(
            "conv2d", wrong, "weight (o, channels / groups, r, s), groups dividing o"
        )
    steps, spreads = _pair("stride", stride, 1), _pair("dilation", dilation, 1)
    row = _window("h", "r", steps[0], spreads[0])
    col = _window("w", "s", steps[1], spreads[1])
    image = _padded(x, padding, 0)
    reach = [d * (n - 1) + 1 for d, n in zip(spreads, weight.shape[2:], strict=True)]
    _check_windows("conv2d", image, reach)
    if groups == 1:
        sig = f"n c {row} {col}, o c r s -> n o h w; + c r s"
        return apply_block(sig, "mul", image, weight)
    xp = namespace_of(x)
    image = xp.reshape(image, (n, groups, inner, *image.shape[2:]))
    weight = xp.reshape(weight, (groups, o // groups, *weight.shape[1:]))
    sig = f"n g c {row} {col}, g o c r s -> n g o h w; + c r s"
    result = apply_block(sig, "mul", image, weight)
    return xp.reshape(result, (n, o, *result.shape[3:]))


@layer
def max_pool2d(x: Any, size: Pair, *, stride: Pair | None = None, padding: Pair = 0) -> Any:
    """Largest value of every window; `stride` is the window's size by default.

    >>> axe.trace(lambda x: nn.max_pool2d(x, 2), "1x3x8x8:f32").outputs[0].shape
    (1, 3, 4, 4)
    """
    _check_image("max_pool2d", x)
    return _pool(x, size, stride, _padded(x, padding, -math.inf), "max")


@layer
def avg_pool2d(x: Any, size: Pair, *, stride: Pair | None = None, padding: Pair = 0) -> Any:
    """Mean of every window, padding counted as zeros; half types are summed and divided in f32.

    >>> axe.trace(lambda x: nn.avg_pool2d(x, 2), "1x3x8x8:f32").outputs[0].shape
    (1, 3, 4, 4)
    """
    _check_image("avg_pool2d", x)
    xp = namespace_of(x)
    total = _pool(x, size, stride, exactly(_padded(x, padding, 0)), "+")
    return xp.astype(total / float(math.prod(_pair("size", size, 1))), x.dtype)


def _check_windows(layer: str, image: Any, reach: Sequence[int]) -> None:
    there = tuple(image.shape[2:])
    if any(n > e for n, e in zip(reach, there, strict=True)):
        windows, padded = ("x".join(map(str, n)) for n in (reach, there))
        wrong = f"windows reach over {windows} elements, x with its padding has {padded}"
        raise ProgramError(layer, wrong, "windows inside it")


def _pool(x: Any, size: Pair, stride: Pair | None, image: Any, monoid: str) -> Any:
    rows, cols = _pair("size", size, 1)
    steps = _pair("stride", size if stride is None else stride, 1)
    _check_windows("pooling", image, (rows, cols))
    row, col = _window("h", "r", steps[0], 1), _window("w", "s", steps[1], 1)
    sig = f"n c {row} {col} -> n c h w; {monoid} r s [r={rows} s={cols}]"
    return apply_block(sig, "id", image)

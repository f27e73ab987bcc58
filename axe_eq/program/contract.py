"""Sums of products through BLAS, without materialising the products.

Operands are *index-space arrays*: all of one rank, a dim an operand lacks has extent 1. The helpers
here know nothing of signatures, so that monoids (online softmax) and executors can use them on any
chunk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from axe_eq.program.types import Array


def product_sum(operands: Sequence[Array], axes: tuple[int, ...]) -> Array:
    """Sum the product of the operands over the axes, keeping them with extent 1.

    Memory stays at that of the operands and the result. Reduced axes must have their full extent in
    at least one operand; operands that lack one are constant along it.
    """
    if len(operands) == 1:
        return _sum(operands[0], axes)
    if len(operands) == 2:
        return _pair(operands[0], operands[1], axes)
    return _many(operands, axes)


def _sum(array: Array, axes: tuple[int, ...]) -> Array:
    result: Array = np.sum(array, axis=axes, keepdims=True, dtype=array.dtype)
    return result


def _pair(a: Array, b: Array, axes: tuple[int, ...]) -> Array:
    # What only one operand has can be summed before the product.
    a = _sum(a, tuple(d for d in axes if a.shape[d] > 1 and b.shape[d] == 1))
    b = _sum(b, tuple(d for d in axes if b.shape[d] > 1 and a.shape[d] == 1))
    both = [d for d in range(a.ndim) if a.shape[d] > 1 and b.shape[d] > 1]
    k = [d for d in both if d in axes]
    if not k:
        product: Array = a * b
        return product
    batch = [d for d in both if d not in axes]
    m = [d for d in range(a.ndim) if a.shape[d] > 1 and b.shape[d] == 1]
    n = [d for d in range(a.ndim) if b.shape[d] > 1 and a.shape[d] == 1]
    product = np.matmul(_matrices(a, batch, m, k), _matrices(b, batch, k, n))
    return _restore(product, batch + m + n, [a.shape[d] for d in batch + m], b, n)


def _matrices(array: Array, batch: list[int], rows: list[int], cols: list[int]) -> Array:
    """The operand as a stack of matrices; dims named nowhere have extent 1."""
    order = batch + rows + cols
    rest = [d for d in range(array.ndim) if d not in order]
    sizes = [math.prod(array.shape[d] for d in dims) for dims in (batch, rows, cols)]
    return array.transpose(order + rest).reshape(sizes)


def _restore(product: Array, order: list[int], extents: list[int], b: Array, n: list[int]) -> Array:
    """Put the dims of a stack of products back in index-space order."""
    full = product.reshape(extents + [b.shape[d] for d in n] + [1] * (b.ndim - len(order)))
    rest = [d for d in range(b.ndim) if d not in order]
    return full.transpose(np.argsort(order + rest))


def _many(operands: Sequence[Array], axes: tuple[int, ...]) -> Array:
    rank = operands[0].ndim
    shape = np.broadcast_shapes(*(a.shape for a in operands))
    kept = [d for d in range(rank) if d not in axes and shape[d] > 1]
    arguments: list[Any] = []
    for array in operands:
        dims = [d for d in range(rank) if array.shape[d] > 1]
        arguments += [array.reshape([array.shape[d] for d in dims]), dims]
    total: Array = np.einsum(*arguments, kept, optimize="greedy")
    return total.reshape([shape[d] if d in kept else 1 for d in range(rank)])


def shared(arrays: Sequence[Array], axes: tuple[int, ...]) -> list[Array]:
    """Broadcast the arrays against each other along the axes only."""
    extents = np.broadcast_shapes(*(tuple(a.shape[d] for d in axes) for a in arrays))
    wanted = dict(zip(axes, extents, strict=True))
    return [np.broadcast_to(a, [wanted.get(d, e) for d, e in enumerate(a.shape)]) for a in arrays]

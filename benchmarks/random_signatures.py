"""Random index spaces: broadcasts, permutations, diagonals, windows, reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from axe_eq.program.signature import Affine, Signature, make, plain

Shape = tuple[int, ...]


@dataclass
class Space:
    """An index space under construction: one extent per dim, and the operands' projections.

    Attributes:
        extents: of every index dim.
        open: dims whose extent no plain projection determines.
        operands: projections.
        order: index dims of the output, in order.
        reduced: index dims reduced.
    """

    extents: list[int] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    operands: list[list[Affine]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    reduced: list[int] = field(default_factory=list)

    def dim(self, extent: int, is_open: bool = False) -> int:
        """A new index dim."""
        self.extents.append(extent)
        if is_open:
            self.open.add(len(self.extents) - 1)
        return len(self.extents) - 1

    def signature(self, monoid: str) -> Signature:
        """The signature; the monoid reduces the reduced dims."""
        fixed = {d: self.extents[d] for d in self.open}
        return make(self.operands, self.order, monoid, self.reduced, fixed)

    def size(self) -> int:
        """Number of points."""
        return math.prod(self.extents)


def random_space(
    rng: np.random.Generator, shapes: Sequence[Shape], *, reduce: bool, windows: bool
) -> Space:
    """An index space in which operands of these shapes are read.

    Args:
        rng: the source of randomness.
        shapes: the operands' shapes.
        reduce: whether some dims are to be reduced.
        windows: whether operand dims may be read through windows.
    """
    space = Space()
    aligned = not reduce and rng.random() < 0.6 and _align(space, shapes)
    if not aligned:
        for shape in shapes:
            space.operands.append(_project(rng, space, shape, windows))
    if rng.random() < 0.1:
        space.dim(int(rng.integers(1, 4)), is_open=True)
    dims = list(range(len(space.extents)))
    if not aligned and rng.random() < 0.4:
        rng.shuffle(dims)
    if reduce:
        dims = dims or [space.dim(3, is_open=True)]
        n_reduced = int(rng.integers(1, min(len(dims), 3) + 1))
        space.reduced = [int(d) for d in rng.choice(dims, n_reduced, replace=False)]
    space.order = [d for d in dims if d not in space.reduced]
    return space


def _align(space: Space, shapes: Sequence[Shape]) -> bool:
    """Operands broadcast against each other, aligned to the right, where that is possible."""
    try:
        out = np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    for extent in out:
        space.dim(extent)
    for shape in shapes:
        first = len(out) - len(shape)
        row = [
            plain(first + n) if extent == out[first + n] else Affine(())
            for n, extent in enumerate(shape)
        ]
        space.operands.append(row)
    return True


def _project(rng: np.random.Generator, space: Space, shape: Shape, windows: bool) -> list[Affine]:
    """Each operand dim onto an index dim of its extent, a new one, a constant or a window."""
    row: list[Affine] = []
    used: set[int] = set()
    for extent in shape:
        draw = rng.random()
        if windows and extent >= 3 and draw < 0.12:
            row.append(_window(rng, space, extent))
            continue
        if draw > 0.95 or (extent == 1 and draw > 0.5):
            row.append(Affine((), int(rng.integers(extent))))
            continue
        dims = [d for d, e in enumerate(space.extents) if e == extent and d not in space.open]
        # A dim used twice by one operand reads a diagonal.
        fresh = [d for d in dims if d not in used or rng.random() < 0.1]
        dim = int(rng.choice(fresh)) if fresh and rng.random() < 0.75 else space.dim(extent)
        used.add(dim)
        row.append(plain(dim))
    return row


def _window(rng: np.random.Generator, space: Space, extent: int) -> Affine:
    """``offset + step * outer + spread * inner`` inside the extent."""
    step, spread = int(rng.integers(1, 3)), int(rng.choice([1, 1, 2]))
    offset = int(rng.integers(2)) if extent > 3 else 0
    inner = int(rng.integers(2, 3 + (extent - 1 - offset > 2 * spread)))
    outer = (extent - 1 - offset - spread * (inner - 1)) // step + 1
    if outer < 1:
        return Affine((), int(rng.integers(extent)))
    a, b = space.dim(outer, is_open=True), space.dim(inner, is_open=True)
    return Affine.of({a: step, b: spread}, offset)

"""Values that stay in SBUF between the kernels of one call: where, and as what kernels see them.

One dim of the value lies on partitions, in blocks of at most 128; the others run along the free
axis as they do in HBM. A kernel reads and writes tensors by strides of that memory. Here they
become places of the tile that holds the value: no copy where an engine can take them as they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.expr import Int
from axe_eq.kernel.placement import Iter, Placement, without_zeros
from axe_eq.layout import Layout
from axe_eq.target import Target
from axe_eq_backends.nki.access import linear
from axe_eq_backends.nki.build import FREE, PARTITION, EngineBuilder


@dataclass(frozen=True)
class Lying:
    """How a dense value of so many elements lies in SBUF.

    Attributes:
        size: elements of the value.
        step: of them between neighbours along the dim on partitions.
        extent: indices of that dim, with slower ones that it takes in.
        rows: partitions.
    """

    size: int
    step: int
    extent: int
    rows: int

    @property
    def blocks(self) -> int:
        """Blocks of partitions, of which the last one need not be full."""
        return -(-self.extent // self.rows)

    @property
    def above(self) -> int:
        """Indices of the dims that are slower than what lies on partitions."""
        return self.size // (self.step * self.extent)

    @property
    def layout(self) -> str:
        """The layout, as text: its place along both axes of SBUF."""
        shape = self.above, self.blocks, self.rows, self.step
        place = (
            (self.blocks * self.step, FREE), (self.step, FREE), (1, PARTITION), (1, FREE)
        )  # fmt: skip
        return str(Layout([(e, *at) for e, at in zip(shape, place, strict=True) if e > 1]))

    def tile(self, k: EngineBuilder, name: str, dtype: str) -> ir.Buffer:
        """A tile that holds the value."""
        free = self.above * self.blocks
        along = [Iter(free, self.step, FREE)] if free > 1 else []
        across = [Iter(self.rows, 1, PARTITION)] if self.rows > 1 else []
        block = (Iter(self.step, 1, FREE),) if self.step > 1 else ()
        place = Placement(((*along, *across), block))
        return k.sbuf(name, dtype, (free * self.rows, self.step), place)

    def place(self, strides: Sequence[int], shape: Sequence[int], first: Int) -> Placement:
        """Where a part of a tensor lies.

        Args:
            strides: of the tensor along its dims, in elements of the dense value.
            shape: of the part.
            first: its first element.

        Raises:
            DispatchError: it is no block of the tile.
        """
        whole, blocks = self.step * self.extent, list[tuple[Iter, ...]]()
        high_step, low_reach, mid_count = self.blocks * self.step, 0, 1
        for n, d in zip(shape, strides, strict=True):
            if n == 1:
                blocks.append(())
            elif d > 0 and d % whole == 0:
                blocks.append((Iter(n, d // whole * high_step, FREE),))
            elif d > 0 and d % (self.step * self.rows) == 0:
                blocks.append((Iter(n, d // self.rows, FREE),))
                mid_count += (n - 1) * d // self.step
            elif d == self.step and n <= self.rows:
                blocks.append((Iter(n, 1, PARTITION),))
                mid_count += n - 1
            elif d == self.step and n % self.rows == 0:
                blocks.append(
                    (Iter(n // self.rows, self.step, FREE), Iter(self.rows, 1, PARTITION))
                )
                mid_count += n - 1
            elif d > 0 and n * d <= self.step:
                blocks.append((Iter(n, d, FREE),))
                low_reach += (n - 1) * d
            else:
                raise self._refuse(f"a part of {n} indices {d} apart")
        found = linear(first)
        if found is None:
            raise self._refuse(f"a part from element {first}")
        high, rest = divmod(found[0], whole)
        mid, low = divmod(rest, self.step)
        at: Int = 0
        for v, c in found[1].items():
            last = (v.high or 0) * c
            if c % whole == 0:
                at = at + v * (c // whole * high_step)
            elif c % (self.step * self.rows) == 0:
                at, mid_count = at + v * (c // self.rows), mid_count + last // self.step
            elif c < self.step:
                at, low_reach = at + v * c, low_reach + last
            else:
                raise self._refuse(f"a part from element {first}")
        if mid % self.rows or mid + mid_count > self.extent or low + low_reach >= self.step:
            raise self._refuse(f"a part from element {first}")
        at = at + (high * high_step + mid // self.rows * self.step + low)
        return Placement(tuple(blocks), offset=without_zeros({FREE: at}))

    def _refuse(self, wrong: str) -> DispatchError:
        return DispatchError(f"SBUF in {self.layout}", f"has no place for {wrong}", "a block of it")


def ways_to_lie(shape: Sequence[int], strides: Sequence[int], target: Target) -> Iterator[Lying]:
    """Ways in which a value may lie in SBUF: any dim on partitions, alone and with slower ones.

    Args:
        shape: of the value.
        strides: of it, dense in some order of its dims.
        target: the machine.
    """
    most, size = target.memory("sbuf").extents[0], prod(shape)
    known = set[Lying]()
    for n, s in sorted(zip(shape, strides, strict=True), key=lambda x: -x[1]):
        for extent in (size // s, n):
            lying = Lying(size, s, extent, min(extent, most))
            if n > 1 and lying not in known:
                known.add(lying)
                yield lying


@dataclass(frozen=True)
class Kept:
    """A value in SBUF.

    Attributes:
        tile: that holds it.
        lying: how.
        is_stored: it is stored to HBM too.
    """

    tile: ir.Buffer
    lying: Lying
    is_stored: bool

    def part(self, strides: Sequence[int], shape: Sequence[int], first: Int) -> ir.Buffer:
        """A part of the value as a buffer of its own dims.

        Raises:
            DispatchError: it is no block of the tile.
        """
        t, place = self.tile, self.lying.place(strides, shape, first)
        return ir.Buffer(t.name, t.space, t.dtype, tuple(shape), place, of=t)


__all__ = ["Kept", "Lying", "ways_to_lie"]

"""Tensors of kernels: strided views of a storage, with the methods of `NkiTensor`.

A view is (storage, first byte, shape, bytes per step); taking one copies nothing. Checks P1
(bounds, partitions) and P3 (access patterns) are here, where a kernel's own line asks for the view.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from axe_eq_backends.nki.sim.dtypes import Dtype, dtype_of, name_of
from axe_eq_backends.nki.sim.errors import refuse
from axe_eq_backends.nki.sim.objects import NKIObject
from axe_eq_backends.nki.sim.storage import Array, MemoryRegion, Region, Storage, region

MOST_FREE_DIMS = 4  # of an access, beside the partitions (trainium_inferentia2_arch)
MOST_STEP = 2**15 - 1  # elements, int16
MOST_COUNT = 2**16 - 1  # uint16


class Register(NKIObject):
    """A register of an engine's sequencer; holds an integer."""

    def __init__(self, value: int | None = None) -> None:
        self.value = value

    def __index__(self) -> int:
        if self.value is None:
            raise refuse("U1", "register", "is read and was never written", "register_load first")
        return self.value

    __int__ = __index__

    def __bool__(self) -> bool:
        return self.__index__() != 0


@dataclass(frozen=True)
class Moved:
    """An offset that is read when an instruction runs.

    Attributes:
        by: the tensor or register with it.
        step: bytes per one of it.
        count: values of it: the extent of the dim that it counts in.
        each_row: whether every row of the view has one of its own.
    """

    by: Any
    step: int
    count: int
    each_row: bool


class Tensor(NKIObject):
    """A view of a storage; see `NkiTensor` of NKI."""

    __slots__ = ("dtype", "first", "moved", "shape", "steps", "storage")

    def __init__(
        self, storage: Storage, first: int, shape: tuple[int, ...], steps: tuple[int, ...],
        dtype: Dtype, moved: Moved | None = None,
    ) -> None:  # fmt: skip
        self.storage, self.first = storage, first
        self.shape, self.steps, self.dtype, self.moved = shape, steps, dtype, moved

    # -- what kernels ask --

    @property
    def buffer(self) -> MemoryRegion:
        """The memory."""
        return self.storage.memory

    @property
    def name(self) -> str:
        """As declared."""
        return self.storage.tile.name

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements per step of each dim."""
        return tuple(s // self.itemsize for s in self.steps)

    @property
    def offset(self) -> int:
        """Element at which the view starts."""
        return self.first // self.itemsize

    def get_pattern(self) -> list[list[int]]:
        """[[stride, count], ...] of every dim."""
        return [[s, n] for s, n in zip(self.strides, self.shape, strict=True)]

    def is_contiguous(self) -> bool:
        """Whether it lies without gaps; on chip, in each partition."""
        return self._dense(1 if self.buffer.on_chip else 0, self.ndim)

    def is_indirect(self) -> bool:
        """Whether an offset of it is read when an instruction runs."""
        return self.moved is not None

    def __repr__(self) -> str:
        named = f"{self.name} " if self.name else ""
        return f"{named}{self.shape} {name_of(self.dtype)} of {self.buffer.value}"

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        raise self._wrong("U1", "is asked whether it is true", "numbers that Python knows")

    # -- on chip --

    @property
    def partitions(self) -> int:
        """Its partitions: dim 0."""
        return self.shape[0] if self.shape else 1

    @property
    def free(self) -> int:
        """Elements per partition."""
        return prod(self.shape[1:])

    @property
    def start(self) -> int:
        """The partition it starts at, within its storage."""
        return self.first // self.storage.tile.bytes_per_partition

    @property
    def byte(self) -> int:
        """The byte of a partition it starts at, within its storage."""
        return self.first % self.storage.tile.bytes_per_partition

    # -- views --

    def like(
        self, shape: Iterable[int], steps: Iterable[int], first: int | None = None,
        dtype: Dtype | None = None,
    ) -> Tensor:  # fmt: skip
        """Another view of the storage."""
        first = self.first if first is None else first
        return Tensor(
            self.storage, first, tuple(shape), tuple(steps), dtype or self.dtype, self.moved
        )

    def __getitem__(self, key: Any) -> Tensor:
        keys = list(key) if isinstance(key, tuple) else [key]
        given = sum(1 for k in keys if k is not Ellipsis)
        if given > self.ndim:
            raise self._wrong("P1", f"is indexed by {given} values", f"at most {self.ndim}")
        full = [slice(None)] * (self.ndim - given)
        at = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
        keys[at : at + 1] = full
        first, shape, steps = self.first, [], []
        for dim, k in enumerate(keys):
            n, step = self.shape[dim], self.steps[dim]
            if isinstance(k, slice):
                start, count, by = self._bounds(dim, k)
                first += start * step
                shape.append(count)
                steps.append(step * by)
                continue
            try:
                i = operator.index(k)
            except TypeError:
                raise self._wrong("P1", f"is indexed by {k!r} in dim {dim}",
                                  "integers, slices and ...") from None  # fmt: skip
            if not -n <= i < n:
                raise self._wrong("P1", f"is read at {i} in dim {dim} of extent {n}",
                                  f"0 to {n - 1}")  # fmt: skip
            first += i % n * step
            if self.buffer.on_chip and dim == 0:  # a partition stays a dim
                shape.append(1)
                steps.append(step)
        if self.buffer.on_chip and len(shape) < 2:
            shape.append(1)
            steps.append(self.itemsize)
        if not shape:
            shape, steps = [1], [self.itemsize]
        return self.like(shape, steps, first)

    def _bounds(self, dim: int, k: slice) -> tuple[int, int, int]:
        n = self.shape[dim]
        start = 0 if k.start is None else operator.index(k.start)
        stop = n if k.stop is None else operator.index(k.stop)
        step = 1 if k.step is None else operator.index(k.step)
        start, stop = (start + n if start < 0 else start), (stop + n if stop < 0 else stop)
        if not 0 <= start < stop <= n:
            raise self._wrong("P1", f"is sliced {start}:{stop} in dim {dim} of extent {n}",
                              f"a part of 0:{n} that is not empty")  # fmt: skip
        if step < 1 or (step > 1 and dim == 0 and self.buffer.on_chip):
            what = "no step over partitions" if step > 1 else "a step of 1 or more"
            raise self._wrong("P1", f"is sliced with step {step} in dim {dim}", what)
        return start, -(-(stop - start) // step), step

    def __setitem__(self, key: Any, value: Any) -> None:
        raise self._wrong("P1", "is assigned to", "an instruction that writes it, as dst")

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> Tensor:
        """A part of one dim."""
        return self[(slice(None),) * self._dim(dim) + (slice(start, end, step),)]

    def select(self, dim: int, index: Any) -> Tensor:
        """One place of a dim, which goes; the place may be in a tensor or register."""
        dim = self._dim(dim)
        if isinstance(index, Tensor | Register):
            rest = [i for i in range(self.ndim) if i != dim]
            moved = Moved(index, self.steps[dim], self.shape[dim], False)
            return Tensor(self.storage, self.first, tuple(self.shape[i] for i in rest),
                          tuple(self.steps[i] for i in rest), self.dtype, moved)  # fmt: skip
        return self[(slice(None),) * dim + (index,)]

    def vector_select(self, dim: int, vector_offset: Tensor) -> Tensor:
        """Rows of which each has its own index along dim 0."""
        if dim != 0 or self.buffer.on_chip:
            raise self._wrong(
                "P3", f"is selected by a vector in dim {dim}", "dim 0 of a tensor in HBM"
            )
        moved = Moved(vector_offset, self.steps[0], self.shape[0], True)
        shape = (vector_offset.shape[0], *self.shape[1:])
        return Tensor(self.storage, self.first, shape, (0, *self.steps[1:]), self.dtype, moved)

    def permute(self, dims: Sequence[int]) -> Tensor:
        """Dims in another order."""
        dims = tuple(dims)
        if sorted(dims) != list(range(self.ndim)) or (self.buffer.on_chip and dims[0] != 0):
            raise self._wrong(
                "P1", f"is permuted by {dims}", "every dim once, partitions first on chip"
            )
        return self.like((self.shape[d] for d in dims), (self.steps[d] for d in dims))

    def broadcast(self, dim: int, size: int) -> Tensor:
        """A dim of extent 1 repeated."""
        dim = self._free_dim(dim)
        if self.shape[dim] not in (1, size) or size < 1:
            raise self._wrong("P1", f"is broadcast in dim {dim} of extent {self.shape[dim]}"
                              f" to {size}", "extent 1, to 1 or more")  # fmt: skip
        steps = self.steps[dim] if self.shape[dim] == size else 0
        return self._put(dim, [size], [steps], 1)

    def expand_dim(self, dim: int) -> Tensor:
        """A new dim of extent 1."""
        if self.buffer.on_chip and dim == 0:
            raise self._wrong("P1", "gets a dim before the partitions", "dim 1 or later")
        return self._put(dim % (self.ndim + 1), [1], [self.itemsize], 0)

    def squeeze_dim(self, dim: int) -> Tensor:
        """Without a dim of extent 1."""
        dim = self._free_dim(dim)
        if self.shape[dim] != 1:
            raise self._wrong("P1", f"loses dim {dim} of extent {self.shape[dim]}", "extent 1")
        return self._put(dim, [], [], 1)

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> Tensor:
        """A dim split into several."""
        dim = self._dim(dim)
        new = self._known(tuple(shape), self.shape[dim])
        if self.buffer.on_chip and dim == 0 and new[0] != self.shape[0]:
            raise self._wrong("P1", f"has its partitions split into {new}", "partitions whole")
        steps = [self.steps[dim] * prod(new[i + 1 :]) for i in range(len(new))]
        return self._put(dim, list(new), steps, 1)

    def flatten_dims(self, start_dim: int, end_dim: int) -> Tensor:
        """Dims that lie one after the other as one."""
        a, b = self._free_dim(start_dim), self._dim(end_dim) + 1
        if not self._dense(a, b, self.steps[b - 1]):
            raise self._wrong("P1", f"has dims {a} to {b - 1} flattened", "dims without gaps")
        return self._put(a, [prod(self.shape[a:b])], [self.steps[b - 1]], b - a)

    def reshape(self, *shape: Any) -> Tensor:
        """The elements, in order, in other dims; nothing is copied."""
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        new = self._known(tuple(operator.index(n) for n in given), self.size)
        if self.buffer.on_chip and new[0] != self.shape[0]:
            raise self._wrong("P1", f"is reshaped to {new}", f"{self.shape[0]} partitions kept")
        try:
            found = self.array().reshape(new, copy=False)
        except ValueError:
            raise self._wrong(
                "P1", f"is reshaped to {new} over gaps", "dims without gaps"
            ) from None
        return self.like(new, found.strides)

    def rearrange(
        self, src_pattern: Sequence[Any], dst_pattern: Sequence[Any],
        fixed_sizes: dict[str, int] | None = None,
    ) -> Tensor:  # fmt: skip
        """Dims split, put in another order and merged, by names."""
        sizes, view, names = dict(fixed_sizes or {}), self, list[str]()
        for group in src_pattern:
            parts = (group,) if isinstance(group, str) else tuple(group)
            extents = tuple(
                sizes.get(p, -1 if len(parts) > 1 else view.shape[len(names)]) for p in parts
            )
            view = view.reshape_dim(len(names), extents) if len(parts) > 1 else view
            names += parts
        order = [n for g in dst_pattern for n in ((g,) if isinstance(g, str) else g)]
        view = view.permute([names.index(n) for n in order])
        for at, group in enumerate(dst_pattern):
            if not isinstance(group, str) and len(group) > 1:
                view = view.flatten_dims(at, at + len(group) - 1)
        return view

    def view(self, dtype: Any) -> Tensor:
        """The bytes as another dtype; the last dim shrinks or grows."""
        to = dtype_of(dtype)
        old, new = self.itemsize, to.itemsize
        if old != new and (self.steps[-1] != old or self.shape[-1] * old % new):
            raise self._wrong(
                "P1", f"is seen as {name_of(to)}", "a last dim without gaps that fits"
            )
        shape = (*self.shape[:-1], self.shape[-1] * old // new)
        steps = (*self.steps[:-1], self.steps[-1] if old == new else new)
        self.storage.refine(new)
        return self.like(shape, steps, dtype=to)

    reinterpret_cast = view

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: Any = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> Tensor:
        """An access pattern [[stride, count], ...] over the storage, in elements of `dtype`."""
        to = self.dtype if dtype is None else dtype_of(dtype)
        self.storage.refine(to.itemsize)
        counts = tuple(operator.index(n) for _, n in pattern)
        strides = tuple(operator.index(s) for s, _ in pattern)
        first = self.first + operator.index(offset or 0) * to.itemsize
        steps = [s * to.itemsize for s in strides]
        if (
            self.buffer.on_chip
            and counts[0] > 1
            and steps[0] != self.storage.tile.bytes_per_partition
        ):
            row = self.storage.tile.bytes_per_partition // to.itemsize
            raise self._wrong("P3", f"has stride {strides[0]} over partitions",
                              f"{row}, the elements of a partition")  # fmt: skip
        moved = None
        for by, each_row in ((scalar_offset, False), (vector_offset, True)):
            if by is not None:
                moved = Moved(by, self.steps[indirect_dim], self.shape[indirect_dim], each_row)
        if vector_offset is not None:
            steps[0] = 0
        view = Tensor(self.storage, first, counts, tuple(steps), to, moved)
        view.in_bounds()
        return view

    # -- for instructions --

    def in_bounds(self) -> None:
        """Refuse a view that leaves its storage."""
        ends = [(n - 1) * s for n, s in zip(self.shape, self.steps, strict=True)]
        least = self.first + sum(min(end, 0) for end in ends)
        most = self.first + sum(max(end, 0) for end in ends)
        if min(self.shape) < 1 or least < 0 or most + self.itemsize > self.storage.n_bytes:
            held = self.storage.n_bytes // self.itemsize
            reached = f"{least // self.itemsize} to {most // self.itemsize}"
            raise self._wrong("P1", f"reaches elements {reached}", f"0 to {held - 1}")

    def array(self) -> Array:
        """Its elements, as a view of the storage."""
        return np.ndarray(self.shape, self.dtype, self.storage.data.data, self.first, self.steps)

    def bits(self, of: Array) -> Array:
        """Its part of a bitmap of its storage."""
        grain = self.storage.grain
        steps = tuple(s // grain for s in self.steps)
        if self.itemsize == grain:
            return np.ndarray(self.shape, np.bool_, of.data, self.first // grain, steps)
        shape = (*self.shape, self.itemsize // grain)
        return np.ndarray(shape, np.bool_, of.data, self.first // grain, (*steps, 1))

    def covers(self) -> bool:
        """Whether it is all of its storage."""
        return self.size * self.itemsize == self.storage.n_bytes and self._dense(0, self.ndim)

    def region(self) -> Region:
        """Its bytes."""
        return region(self.storage.tile, self.first, self.shape, self.steps, self.itemsize)

    def free_run(self) -> int:
        """Contiguous bytes at its end; on chip, within a partition."""
        inner = 1 if self.buffer.on_chip else 0
        return region(None, 0, self.shape[inner:], self.steps[inner:], self.itemsize).run

    def fits_descriptor(self) -> None:
        """Refuse an access pattern that no descriptor of an engine holds (P3)."""
        if self.ndim <= 2 and self.free <= MOST_COUNT:
            return
        steps = region(None, 0, self.shape[1:], self.steps[1:], self.itemsize)
        dims = len(steps.steps) + (steps.run > self.itemsize or not steps.steps)
        if dims > MOST_FREE_DIMS:
            raise self._wrong("P3", f"has {dims} free dims", f"at most {MOST_FREE_DIMS}")
        for step, count in steps.steps:
            if abs(step // self.itemsize) > MOST_STEP or count > MOST_COUNT:
                raise self._wrong(
                    "P3", f"has stride {step // self.itemsize} and count {count}",
                    f"strides up to {MOST_STEP}, counts up to {MOST_COUNT}",
                )  # fmt: skip

    # -- help --

    def _put(self, at: int, shape: list[int], steps: list[int], instead: int) -> Tensor:
        old, rest = slice(0, at), slice(at + instead, None)
        return self.like((*self.shape[old], *shape, *self.shape[rest]),
                         (*self.steps[old], *steps, *self.steps[rest]))  # fmt: skip

    def _dense(self, start: int, stop: int, size: int = 0) -> bool:
        size = size or self.itemsize
        for n, step in zip(
            reversed(self.shape[start:stop]), reversed(self.steps[start:stop]), strict=True
        ):
            if n != 1 and step != size:
                return False
            size *= n
        return True

    def _known(self, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
        if -1 in shape:
            rest = -prod(shape)
            shape = tuple(size // rest if n == -1 else n for n in shape) if rest > 0 else shape
        if prod(shape) != size:
            raise self._wrong("P1", f"is reshaped to {shape}", f"{size} elements")
        return shape

    def _dim(self, dim: int) -> int:
        if not -self.ndim <= dim < self.ndim:
            raise self._wrong("P1", f"has no dim {dim}", f"0 to {self.ndim - 1}")
        return dim % self.ndim

    def _free_dim(self, dim: int) -> int:
        dim = self._dim(dim)
        if dim == 0 and self.buffer.on_chip:
            raise self._wrong("P1", "has its partitions changed", "dim 1 or later")
        return dim

    def _wrong(self, check: str, wrong: str, expected: str) -> Exception:
        return refuse(check, f"tensor {self!r}", wrong, expected)


def dense(storage: Storage) -> Tensor:
    """The view of a whole storage."""
    size, steps = storage.dtype.itemsize, list[int]()
    for n in reversed(storage.shape):
        steps.insert(0, size)
        size *= n
    return Tensor(storage, 0, storage.shape, tuple(steps), storage.dtype)

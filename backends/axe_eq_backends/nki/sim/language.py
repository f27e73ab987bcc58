"""Functions of `nki.language`: tensors, loops, grid, and wrappers that make tiles of their own.

A wrapper such as `nl.add(x, y)` declares a tile in SBUF and issues the instruction.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np

from axe_eq_backends.nki.sim.dtypes import DTYPES, F32, dtype_of
from axe_eq_backends.nki.sim.errors import NkiError, kernel_line, refuse, shown
from axe_eq_backends.nki.sim.isa.registry import DIALECTS, INSTRUCTIONS
from axe_eq_backends.nki.sim.machine import Machine
from axe_eq_backends.nki.sim.objects import NKIObject
from axe_eq_backends.nki.sim.ops import OPS, Op
from axe_eq_backends.nki.sim.state import PSUM, SBUF, current, running
from axe_eq_backends.nki.sim.storage import Array, MemoryRegion
from axe_eq_backends.nki.sim.views import Register, Tensor

# name -> value or function, and the dialects that have it
NAMES: dict[str, tuple[Any, tuple[str, ...]]] = {}


Called = TypeVar("Called", bound=Callable[..., Any])


def name(*dialects: str) -> Callable[[Called], Called]:
    """Register a function of `nki.language`."""

    def wrap(function: Called) -> Called:
        NAMES[function.__name__] = function, dialects or DIALECTS
        return function

    return wrap


# -- tensors ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bare:
    """A memory as a word of dialect 0.2 that needs no import: `sbuf.view(dtype, shape)`."""

    region: MemoryRegion

    def view(self, dtype: Any, shape: Any, name: str = "") -> Tensor:
        """A new tensor in it."""
        return ndarray(shape, dtype, self.region, name)


BARE = {m.name: Bare(m) for m in MemoryRegion}


@name()
def ndarray(
    shape: Any, dtype: Any, buffer: Any = SBUF, name: str = "", address: Any = None, **_: Any
) -> Tensor:
    """A new tensor that nothing has written."""
    buffer = buffer.region if isinstance(buffer, Bare) else buffer
    if not isinstance(buffer, MemoryRegion):
        raise NkiError(f"buffer {buffer!r}", "is no memory", "nl.sbuf, nl.psum or nl.shared_hbm",
                       at=shown(kernel_line()))  # fmt: skip
    extents = tuple(operator.index(n) for n in ((shape,) if isinstance(shape, int) else shape))
    if address is not None and len(address) != 2:
        raise NkiError(f"address {address!r}", f"has {len(address)} parts",
                       "a partition and a byte", at=shown(kernel_line()))  # fmt: skip
    where = None if address is None else (int(address[0]), int(address[1]))
    return current().declare(extents, dtype_of(dtype), buffer, str(name or ""), where)


@name()
def full(shape: Any, fill_value: Any, dtype: Any, buffer: Any = SBUF, name: str = "") -> Tensor:
    """A tensor of one value."""
    t = ndarray(shape, dtype, buffer, name)
    if t.buffer.on_chip:
        INSTRUCTIONS["memset"].run(t, fill_value)
    else:
        run = current()
        run.begin("full")
        run.write("dst", t, np.full(t.shape, fill_value))
        run.issue("dma", ns=0.0)
    return t


@name()
def zeros(shape: Any, dtype: Any, buffer: Any = SBUF, name: str = "") -> Tensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


@name()
def ones(shape: Any, dtype: Any, buffer: Any = SBUF, name: str = "") -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


@name()
def zeros_like(x: Tensor, dtype: Any = None, buffer: Any = None, name: str = "") -> Tensor:
    """A tensor of zeros in the shape of another."""
    return full(x.shape, 0, dtype or x.dtype, buffer or x.buffer, name)


@name("0.3")
def empty_like(x: Tensor, dtype: Any = None, buffer: Any = None, name: str = "") -> Tensor:
    """A tensor in the shape of another, which nothing has written."""
    return ndarray(x.shape, dtype or x.dtype, buffer or x.buffer, name)


@name()
def shared_constant(constant: Any, dtype: Any = None) -> Tensor:
    """A constant in HBM."""
    values = np.load(constant) if isinstance(constant, str) else np.asarray(constant)
    return current().given(values.astype(dtype_of(dtype)) if dtype is not None else values)


@name()
def shared_identity_matrix(n: int, dtype: Any = DTYPES["uint8"], dst: Any = None) -> Tensor:
    """The identity in SBUF."""
    t = ndarray((n, n), dtype) if dst is None else dst
    run = current()
    run.begin("shared_identity_matrix")
    run.write("dst", t, np.eye(n))
    run.issue("dma", ns=0.0)
    return t


# -- loops and grid --------------------------------------------------------------------------------


def _range(start: Any, stop: Any = None, step: Any = 1, **_: Any) -> range:
    first, last = (0, start) if stop is None else (start, stop)
    return range(operator.index(first), operator.index(last), operator.index(step))


for _called in ("affine_range", "sequential_range", "static_range", "dynamic_range"):
    NAMES[_called] = _range, DIALECTS
NAMES["range"] = range, DIALECTS


@name("0.3")
def fori_loop(lower: Any, upper: Any, body_fun: Any, step: int = 1) -> None:
    """Run a body for every value."""
    for i in _range(lower, upper, step):
        body_fun(i)


@name()
def ds(start: Any, size: Any) -> slice:
    """The slice of so many places from a start."""
    return slice(operator.index(start), operator.index(start) + operator.index(size))


@name("0.2")
def par_dim(extent: int) -> int:
    """Marks the partitions in a shape; in a simulated tensor they come first."""
    return operator.index(extent)


@name()
def program_id(axis: int = 0) -> int:
    """Which program of the grid runs."""
    run = current()
    at = run.program
    for n in run.grid[axis + 1 :]:
        at //= n
    return at % run.grid[axis] if axis < len(run.grid) else 0


@name()
def num_programs(axes: Any = 0) -> int:
    """Programs of the grid along an axis."""
    grid = current().grid
    chosen = (axes,) if isinstance(axes, int) else tuple(axes)
    return prod(grid[a] for a in chosen if a < len(grid))


@name()
def program_ndim() -> int:
    """Axes of the grid."""
    return len(current().grid)


@name()
def device_print(print_prefix: str, tensor: Any = None) -> None:
    """Print a tensor's values."""
    print(print_prefix, tensor.array() if isinstance(tensor, Tensor) else tensor)


@name()
def is_hbm(buffer: Any) -> bool:
    """Whether a memory is off chip."""
    return isinstance(buffer, MemoryRegion) and not buffer.on_chip


@name()
def is_on_chip(buffer: Any) -> bool:
    """Whether a memory is on chip."""
    return isinstance(buffer, MemoryRegion) and buffer.on_chip


@name()
def is_sbuf(buffer: Any) -> bool:
    """Whether a memory is SBUF."""
    return buffer is SBUF


@name()
def is_psum(buffer: Any) -> bool:
    """Whether a memory is PSUM."""
    return buffer is PSUM


# -- wrappers that make tiles ----------------------------------------------------------------------


def _reduction(called: str, cell: Any) -> None:
    def reduce(x: Tensor, axis: Any, dtype: Any = None, keepdims: bool = False, **_: Any) -> Tensor:
        run = current()
        axes = tuple(a % x.ndim for a in ((axis,) if isinstance(axis, int) else tuple(axis)))
        if 0 in axes:
            raise refuse("P1", f"nl.{called} of {x!r}", f"reduces axis {axis}", "free axes")
        shape = tuple(
            1 if d in axes else n for d, n in enumerate(x.shape) if keepdims or d not in axes
        )
        out = ndarray(shape if len(shape) > 1 else (*shape, 1), dtype or x.dtype)
        run.begin(f"nl.{called}")
        with np.errstate(all="ignore"):
            run.write("dst", out, np.asarray(cell(run.read("x", x), axis=axes)))
        run.issue("vector", x.free, "reduce")
        return out

    reduce.__name__ = called
    NAMES[called] = reduce, DIALECTS


for _called, _cell in (("sum", np.sum), ("max", np.max), ("min", np.min), ("mean", np.mean),
                       ("prod", np.prod), ("var", np.var), ("all", np.all)):  # fmt: skip
    _reduction(_called, _cell)


@name()
def load(src: Tensor, dtype: Any = None, **_: Any) -> Tensor:
    """A tile in SBUF with what is in HBM."""
    shape = src.shape if src.ndim > 1 else (1, *src.shape)
    t = ndarray(shape, dtype or src.dtype)
    INSTRUCTIONS["dma_copy"].run(t, src)
    return t


@name()
def store(dst: Tensor, value: Tensor, **_: Any) -> None:
    """Put a tile into HBM."""
    INSTRUCTIONS["dma_copy"].run(dst, value)


@name()
def load_transpose2d(src: Tensor, dtype: Any = None) -> Tensor:
    """A tile in SBUF with the transpose of what is in HBM."""
    t = ndarray(src.shape[::-1], dtype or src.dtype)
    INSTRUCTIONS["dma_transpose"].run(t, src)
    return t


@name()
def transpose(x: Tensor, dtype: Any = None) -> Tensor:
    """The transpose, in PSUM."""
    t = ndarray((x.free, x.partitions), dtype or x.dtype, PSUM)
    INSTRUCTIONS["nc_transpose"].run(t, x)
    return t


@name()
def matmul(x: Tensor, y: Tensor, transpose_x: bool = False) -> Tensor:
    """The product, in PSUM; x is transposed first unless it is already."""
    if not transpose_x:
        turned = ndarray((x.free, x.partitions), x.dtype)
        INSTRUCTIONS["tensor_copy"].run(turned, transpose(x))
        x = turned
    t = ndarray((x.free, y.free), F32, PSUM)
    INSTRUCTIONS["nc_matmul"].run(t, x, y)
    return t


@name()
def broadcast_to(x: Tensor, shape: Any, dtype: Any = None) -> Tensor:
    """A tile with values repeated; over partitions by the tensor engine."""
    run = current()
    t = ndarray(tuple(shape), dtype or x.dtype)
    run.begin("nl.broadcast_to")
    run.write("dst", t, np.broadcast_to(run.read("x", x, exact=t.dtype == x.dtype), t.shape))
    run.issue("tensor" if x.partitions != t.partitions else "vector", t.free)
    return t


@name()
def expand_dims(x: Tensor, axis: int) -> Tensor:
    """A view with a new dim."""
    return x.expand_dim(axis)


def _chosen(condition: Array, x: Array, y: Array) -> Array:
    return np.where(condition != 0, x, y)


@name()
def where(condition: Tensor, x: Any, y: Any, dtype: Any = None) -> Tensor:
    """One of two values by a condition."""
    chosen = Op("where", "function", _chosen)
    first = x if isinstance(x, Tensor) else y if isinstance(y, Tensor) else condition
    return chosen(condition, x, y, dtype=dtype or first.dtype)


@name()
def gather_flattened(data: Tensor, indices: Tensor, axis: int = 0, dtype: Any = None) -> Tensor:
    """Elements of each partition by their index."""
    t = ndarray(indices.shape, dtype or data.dtype)
    INSTRUCTIONS["nc_n_gather"].run(t, data, indices)
    return t


@name("0.3")
def softmax(x: Tensor, axis: Any = -1, dtype: Any = None) -> Tensor:
    """Softmax over free axes."""
    axes = tuple(a % x.ndim for a in ((axis,) if isinstance(axis, int) else tuple(axis)))

    def cell(v: Any) -> Any:
        e = np.exp(v - v.max(axes, keepdims=True))
        return e / e.sum(axes, keepdims=True)

    return Op("softmax", "function", cell)(x, dtype=dtype)


@name()
def rms_norm(
    x: Tensor, w: Tensor, axis: Any, n: int, epsilon: float = 1e-6, dtype: Any = None, **_: Any
) -> Tensor:
    """X / sqrt(sum of squares / n + epsilon) * w."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)

    def cell(v: Any, g: Any) -> Any:
        return v / np.sqrt((v * v).sum(axes, keepdims=True) / n + epsilon) * g

    return Op("rms_norm", "function", cell)(x, w, dtype=dtype)


@name("0.3")
def no_reorder() -> Any:
    """A scope whose instructions keep their order; simulated ones do."""
    from contextlib import nullcontext

    return nullcontext()


# -- constants -------------------------------------------------------------------------------------


class TileSize:
    """Sizes of tiles on the machine that runs."""

    @property
    def _machine(self) -> Machine:
        from axe_eq_backends.nki.sim.machine import machine

        run = running()
        return run.machine if run else machine("trn2")

    pmax = property(lambda self: self._machine.partitions)
    psum_fmax = property(lambda self: self._machine.bank_bytes // 4)
    psum_bank_fmax = property(lambda self: self._machine.bank_bytes // 4)
    psum_bank_fmax_bytes = property(lambda self: self._machine.bank_bytes)
    psum_num_banks = property(lambda self: self._machine.psum_banks)
    gemm_stationary_fmax = property(lambda self: self._machine.most_stationary)
    gemm_moving_fmax = property(lambda self: 512)
    bn_stats_fmax = property(lambda self: 512)
    psum_min_align = property(lambda self: 4)
    sbuf_min_align = property(lambda self: 1)
    sbuf_fmax_bytes = property(lambda self: self._machine.sbuf_bytes)
    sbuf_fmax = property(lambda self: self._machine.sbuf_bytes // 4)
    sbuf_size_bytes = property(lambda self: self._machine.sbuf_bytes * self._machine.partitions)
    total_available_sbuf_size = property(lambda self: self._machine.sbuf_bytes)


NAMES |= {op: (value, DIALECTS) for op, value in OPS.items()}
NAMES |= {d: (value, DIALECTS) for d, value in DTYPES.items()}
NAMES["bool"] = DTYPES["bool_"], DIALECTS
NAMES |= {m.name: (m, DIALECTS) for m in MemoryRegion}
NAMES |= {
    "tile_size": (TileSize(), DIALECTS),
    "NKIObject": (NKIObject, DIALECTS),
    "NkiTensor": (Tensor, DIALECTS),
    "MemoryRegion": (MemoryRegion, DIALECTS),
    "VirtualRegister": (Register, DIALECTS),
    "average": (Op("average", "arithmetic", np.add), DIALECTS),
}

"""What interpreters of kernels share: arguments as they run, faults, values of run-time integers.

An execution model brings the rest: who runs, its private memories, when asynchronous effects happen
(`axe_eq.kernel.threads.interp`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from axe_eq.errors import AxeError, said
from axe_eq.kernel import ir
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.cells import evaluate as evaluate_cell
from axe_eq.kernel.expr import Var, evaluate
from axe_eq.kernel.spaces import WINDOW_BYTES
from axe_eq.program.ops import MONOIDS
from axe_eq.program.types import DTYPES

Ints = npt.NDArray[np.int64]
Env = dict[str, Any]
Watch = Callable[..., None]  # told of every change of a memory: where, and its arrays
INTEGERS = range(-(1 << 31), 1 << 31)  # what kernels count with


class KernelFault(AxeError):
    """What a kernel does wrong, as the interpreter saw it: a race, a deadlock, a stray access."""


def unwatched(*what: object) -> None:
    """Nobody is told."""


def bind(env: Env, v: Var, value: int, at: str = "") -> None:
    """Give a variable a value, which is one of those that are known of it.

    Text and plans rely on them: guards are left out where bounds make them true.

    Raises:
        KernelFault: it is none of them, or more than 32 bits.
    """
    low = INTEGERS.start if v.low is None else v.low
    high = INTEGERS[-1] if v.high is None else v.high
    if not low <= value <= high or value not in INTEGERS or (v.divisor and value % v.divisor):
        multiple = "" if v.divisor in (0, 1) else f", a multiple of {v.divisor}"
        raise KernelFault(f"variable {v}", f"becomes {value}", f"{low} to {high}{multiple}", at=at)
    env[v.name] = value


def check_given(
    kernel: ir.Kernel, arrays: Mapping[str, npt.NDArray[Any]], params: Mapping[str, int]
) -> None:
    """Every tensor has its array, every parameter its number, and there are no others.

    Raises:
        KernelFault: the first that lacks or does not fit.
    """
    named = {
        "arrays": (arrays, [t.name for t in kernel.tensors]),
        "params": (params, [p.name for p in kernel.params]),
    }
    for what, (given, known) in named.items():
        parts = {
            "lack": [n for n in known if n not in given],
            "have": [str(n) for n in given if n not in known],
        }
        wrong = " and ".join(f"{verb} {', '.join(names)}" for verb, names in parts.items() if names)
        if wrong:
            expected = ", ".join(known) or "none"
            raise KernelFault(f"kernel {kernel.name}", f"{what} {wrong}", expected)
    for tensor in kernel.tensors:
        array = arrays[tensor.name]
        if not isinstance(array, np.ndarray):
            raise KernelFault(f"tensor {tensor}", f"got {said(array)}", "a numpy array")
        if array.dtype != tensor.type.numpy:
            wrong = f"array of dtype {array.dtype}"
            raise KernelFault(f"tensor {tensor}", wrong, f"{tensor.type.numpy} ({tensor.dtype})")


def merged(held: npt.NDArray[Any], values: Any, monoid: str) -> npt.NDArray[Any]:
    """Values merged with what memory holds, in the dtype that cells compute in."""
    dtype = next(d for d in DTYPES.values() if d.numpy == held.dtype)
    wide = DTYPES[dtype.accumulate].numpy
    cell = apply(MONOIDS[monoid].merges, arg(0), arg(1))
    return np.asarray(evaluate_cell(cell, [held.astype(wide), np.asarray(values).astype(wide)]))


class GlobalTensor:
    """A global buffer: flat storage in its layout, and how often each element was written.

    Of a tensor that lies on several devices it is the memories of all of them, each as far as the
    tensor reaches there. A kernel may read back what the same instance of it wrote to an output;
    others write at no known time.
    """

    def __init__(
        self, buffer: ir.Buffer, array: npt.NDArray[Any], env: dict[str, int], what: str
    ) -> None:
        self.buffer, self.what = buffer, what
        self.shape = tuple(int(evaluate(e, env)) for e in buffer.shape)
        if array.shape != self.shape:
            raise KernelFault(f"tensor {buffer}", f"array of shape {array.shape}", f"{self.shape}")
        self.blocks = [
            [(int(evaluate(i.extent, env)), int(evaluate(i.stride, env))) for i in block]
            for block in buffer.place.blocks
        ]
        self.base = int(evaluate(buffer.place.at(buffer.space.axes[-1]), env))
        # Along a dim without a stride everything lies at one place.
        once = tuple(slice(None, None if any(s for _, s in b) else 1) for b in self.blocks)
        at = [
            x[tuple(once[d] if d == n else slice(None) for d in range(x.ndim))]
            for n, x in enumerate(np.indices(self.shape, sparse=True))
        ]
        places = self.element(at)
        self._far = WINDOW_BYTES // buffer.itemsize
        self._span = 0  # elements of a device's memory; 0 where it lies on one
        if places.max(initial=0) >= self._far:
            self._span = int((places % self._far).max()) + 1
        index = np.broadcast_to(self.stored(places), array[once].shape)
        self.index = np.broadcast_to(index, self.shape)
        self.data = np.zeros(int(index.max(initial=0)) + 1, array.dtype)
        self.data[index] = array[once]
        self.owned = np.zeros(len(self.data), bool)  # not what lies between its rows
        self.owned[index] = True
        self.count = np.zeros(len(self.data), np.int32)
        self.output, self.merged, self.again, self.instance = False, False, False, 0
        self.user: Any = None  # who runs that instance
        self.entry: Any = None  # of what is stored now, where that was begun before
        self.watch: Watch = unwatched
        self.owner = np.zeros(0, np.int64)

    def clear(self, merged: bool = False, again: bool = False) -> None:
        """Become an output: what it held is not there to be read, only to be merged with.

        With `again` an instance may write the bits that it wrote there, which counts once.
        """
        self.output, self.merged, self.again = True, merged, again
        if not merged:
            self.data[:] = 0
        self.owner = np.full(len(self.data), -1)

    def element(self, index: Any) -> Ints:
        """Storage element of a logical index, given per dim (arrays broadcast)."""
        total = np.asarray(self.base)
        for at, block in zip(index, self.blocks, strict=True):
            rest = np.asarray(at)
            for position in range(len(block) - 1, -1, -1):
                extent, stride = block[position]
                total = total + (rest % extent if position else rest) * stride
                rest = rest // extent
        return total

    def stored(self, element: Ints) -> Ints:
        """Where storage elements are kept here; below 0 where no device has one."""
        if not self._span:
            return element
        device, place = np.divmod(element, self._far)
        return np.where(place < self._span, device * self._span + place, -1)

    def inside(self, index: Any) -> Any:
        """Whether a logical index lies in the tensor."""
        ok = np.asarray(True)
        for at, extent in zip(index, self.shape, strict=True):
            ok = ok & (np.asarray(at) >= 0) & (np.asarray(at) < extent)
        return ok

    def read(self, element: Ints, active: Any, fill: float = 0.0) -> npt.NDArray[Any]:
        """Elements, `fill` where inactive."""
        element, active = np.broadcast_arrays(self.stored(element), active)
        self._check(element, active)
        if self.output and (self.owner[element[active]] != self.instance).any():
            raise KernelFault(
                f"tensor {self.buffer}",
                f"is read where this {self.what} has not written it",
                "an input",
            )
        values = self.data[np.where(active, element, 0)]
        return np.where(active, values, np.asarray(fill).astype(self.data.dtype))

    def write(self, element: Ints, values: Any, active: Any) -> None:
        """Write the active elements; what lies between them may be somebody else's."""
        element, values, active = np.broadcast_arrays(self.stored(element), values, active)
        self._check(element, active)
        if not self.owned[element[active]].all():
            wrong = int(element[active][~self.owned[element[active]]][0])
            raise KernelFault(
                f"tensor {self.buffer}", f"element {wrong} is written", "elements that it has"
            )
        place, before = element[active], self.data[element[active]]
        self.data[place] = values[active]
        counted: Any = 1
        if self.again:
            bits = f"u{before.itemsize}"
            other = before.view(bits) != self.data[place].view(bits)
            counted = other | (self.count[place] == 0) | (self.owner[place] != self.instance)
        np.add.at(self.count, place, counted)
        self.watch(self.buffer.name, element[active], values[active])
        if self.output:
            self.owner[element[active]] = self.instance

    def merge(
        self, element: Ints, values: Any, active: Any, monoid: str
    ) -> npt.NDArray[Any]:  # fmt: skip
        """Merge the active elements with what is there; what is there then.

        Raises:
            KernelFault: nothing is there: this launch wrote it, or shall.
        """
        element, values, active = np.broadcast_arrays(element, values, active)
        at = self.stored(element)
        self._check(at, active)
        if not self.merged or (self.count[at[active]] > 0).any():
            wrong = f"is merged by {monoid} with what is not there before the kernel"
            raise KernelFault(f"tensor {self.buffer}", wrong, "an output that is only merged with")
        found = merged(self.held(element, active), values, monoid).astype(self.data.dtype)
        GlobalTensor.write(self, element, found, active)
        return found

    def held(self, element: Ints, active: Any) -> npt.NDArray[Any]:
        """What is there, whoever wrote it."""
        return self.data[np.where(active, self.stored(element), 0)]

    def use(
        self, element: Ints, active: Any, issue: Any = None, *, write: bool = False,
        bulk: bool = False, monoid: str = "",
    ) -> None:  # fmt: skip
        """An asynchronous access is issued: nobody else changes memory of one device."""

    def _check(self, element: Ints, active: Any) -> None:
        used = element[active]
        if used.size and (used.min() < 0 or used.max() >= len(self.data)):
            raise KernelFault(
                f"tensor {self.buffer}",
                f"element {int(used.min())} or {int(used.max())} is accessed",
                f"0 to {len(self.data) - 1}",
            )

    def array(self) -> npt.NDArray[Any]:
        """The logical array."""
        return self.data[self.index]

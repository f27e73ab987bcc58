"""Torch as the library of a rank's memory and shards, on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from axe_eq.errors import ArgumentError, DeviceError
from axe_eq.mesh.rank import HOST, Run
from axe_eq.mesh.regions import Part, Region
from axe_eq.program.types import DTYPES, Array, dtype
from axe_eq.run.arrays import as_numpy, dlpack_of
from axe_eq.schedule.digits import Digits

_ODD = (0x9E3779B97F4A7C15 - (1 << 64), 0x2545F4914F6CDD1D)  # multipliers of a digest


class TorchArrays:
    """See `axe_eq.mesh.transport.Arrays`.

    Args:
        torch: the library.
        device: as it names it, "cuda:1" or "cpu".

    Attributes:
        tape: what is done, to be done again, while that is noted; else None.
    """

    def __init__(self, torch: Any, device: str) -> None:
        self.torch, self.device = torch, torch.device(device)
        self.tape: list[Callable[[], None]] | None = None

    def do(self, action: Callable[[], None]) -> None:
        """Do something with memory that is there already, and note it."""
        action()
        if self.tape is not None:
            self.tape.append(action)

    def element(self, name: str) -> Any:
        """Torch's name of an element type.

        Raises:
            DeviceError: it has none.
        """
        found = getattr(self.torch, DTYPES[name].scalar.rstrip("_"), None)
        if found is None:
            raise DeviceError(f"element type {name}", "is none of torch's", "one that torch has")
        return found

    # -- shards --

    def given(self, array: Any, name: str) -> Any:
        """A shard as a tensor on the device; of a DTensor its local part.

        Raises:
            ArgumentError: not an array, or one on another device.
        """
        if hasattr(array, "to_local"):
            array = array.to_local()
        if not isinstance(array, self.torch.Tensor):
            if hasattr(array, "__dlpack_device__") and not isinstance(array, np.ndarray):
                array = self.torch.from_dlpack(array)
            else:
                array = self._uploaded(as_numpy(array, name))
        if array.device.type == "cpu" != self.device.type:
            array = array.to(self.device)
        if array.device != self.device:
            wrong = f"lies on {array.device}"
            raise ArgumentError(f"shard {name!r}", wrong, f"{self.device}, this rank's")
        return array.detach()

    def _uploaded(self, array: Array) -> Any:
        raw = np.frombuffer(bytearray(np.ascontiguousarray(array).tobytes()), np.uint8)
        flat = self.torch.from_numpy(raw).view(self.element(dtype(array.dtype).name))
        return flat.reshape(array.shape).to(self.device)

    def like(self, given: Sequence[Any], result: Any) -> Any:
        """A result in the library of the shards given; of numpy's and torch's in torch."""
        foreign = next((a for a in given if hasattr(a, "__dlpack_device__")), result)
        known = isinstance(foreign, (self.torch.Tensor, np.ndarray))
        take = None if known else dlpack_of(foreign)
        return result if take is None else take(result)

    def host(self, array: Any) -> Array:
        """A copy for numpy, after all work on it."""
        name = dtype(str(array.dtype).rpartition(".")[2]).name
        raw = array.contiguous().reshape(-1).view(self.torch.uint8).cpu().numpy()
        found: Array = raw.view(DTYPES[name].numpy).reshape(tuple(array.shape))
        return found

    def digest(self, array: Any) -> str:
        """Two sums of the bytes, of eight at a time, weighted by odd numbers of their place.

        So any change within eight bytes changes it, and copies are compared where they lie.
        """
        torch = self.torch
        raw = array.contiguous().reshape(-1).view(torch.uint8)
        if rest := -len(raw) % 8:
            raw = torch.cat([raw, raw.new_zeros(rest)])
        words = raw.view(torch.int64)
        places = torch.arange(len(words), device=words.device) * 2 + 1
        sums = [int(((words ^ (words >> 29)) * (places * odd)).sum()) for odd in _ODD]
        return f"{array.numel()} {sums[0]:x} {sums[1]:x}"

    # -- memory --

    def held(self, array: Any) -> Any:
        """A shard's memory, flat: itself where it is dense."""
        if array.is_contiguous():
            return array.reshape(-1)
        dense = self.torch.empty(array.shape, dtype=array.dtype, device=self.device)
        self.do(partial(dense.copy_, array))
        return dense.reshape(-1)

    def stored(self, array: Any, memory: Any) -> Any:
        """A shard in flat memory, copied there in every call unless it lies there."""
        if array.data_ptr() != memory.data_ptr():
            self.do(partial(memory.view(array.shape).copy_, array))
        return memory

    def zeros(self, n: int, dtype: str) -> Any:
        """Flat memory."""
        return self.torch.zeros(n, dtype=self.element(dtype), device=self.device)

    def part(self, memory: Any, part: Digits) -> Any:
        """A view of a part of flat memory."""
        begin = memory.storage_offset() + part.offset  # as_strided counts from there
        return self.torch.as_strided(memory, part.shape, part.strides, begin)

    def empty(self, n: int, dtype: str) -> Any:
        """Flat memory that holds anything."""
        return self.torch.empty(n, dtype=self.element(dtype), device=self.device)

    def ready(self, made: Any) -> Run:
        """What a runner made ready: on a GPU machine code, else a function of numpy's arrays.

        Raises:
            DeviceError: code of another device than torch's.
        """
        if self.device.type == "cpu":
            return partial(self._on_host, HOST.ready(made))
        if not hasattr(made, "call"):
            raise DeviceError("local step", "takes no arrays of a device", "a target of GPUs")

        def run(arrays: Sequence[Any], into: Sequence[Any]) -> Sequence[Any]:
            if not arrays:  # no array says where it is to run
                return self._stored([self._uploaded(r) for r in made([])], into)
            if self.tape is not None:
                launch, bound = made.bind(arrays, into)
                self.do(launch)
                return self._stored(bound, into)
            found = made.quick(arrays, into)
            return self._stored(made.call(arrays, into) if found is None else found, into)

        return run

    def _on_host(self, run: Run, arrays: Sequence[Any], into: Sequence[Any]) -> Sequence[Any]:
        made = run([self.host(a) for a in arrays], [None] * len(into))
        return self._stored([self._uploaded(r) for r in made], into)

    def _stored(self, made: Sequence[Any], into: Sequence[Any]) -> Sequence[Any]:
        """Results where they are wanted."""
        for array, goal in zip(made, into, strict=True):
            if goal is not None and array is not goal:
                self.do(partial(goal.copy_, array.reshape(goal.shape)))
        return [a if g is None else g for a, g in zip(made, into, strict=True)]

    # -- regions --

    def region(self, region: Region) -> Place:
        """A region, to be read and written in memories of this device."""
        if region.index is None and all(s >= 0 for s in region.strides):
            return Place(self.torch, region)
        index = self.torch.from_numpy(region.addresses.reshape(-1)).to(self.device)
        return Place(self.torch, region, index)


class Place:
    """A region of memories on a device: a view where torch has one, else by addresses."""

    def __init__(self, torch: Any, region: Region, index: Any = None) -> None:
        self.torch, self.region, self.index = torch, region, index
        self.size, self.is_dense = region.size, region.is_dense

    def read(self, memory: Any) -> Any:
        """The elements: a view of the memory where they are a box."""
        r = self.region
        if self.index is not None:
            return memory[self.index]
        if self.is_dense:
            return memory[r.offset : r.offset + r.size]
        begin = memory.storage_offset() + r.offset  # as_strided counts from there
        return self.torch.as_strided(memory, r.shape, r.strides, begin)

    def write(self, memory: Any, values: Any) -> None:
        """Store elements in the region's order, or one everywhere."""
        if self.index is not None:
            memory[self.index] = values.reshape(-1)
        else:
            goal = self.read(memory)
            goal.copy_(values.reshape(goal.shape) if values.numel() > 1 else values.reshape(()))


class Moved:
    """One part of a message as a device reads and writes it."""

    def __init__(self, arrays: TorchArrays, part: Part, dtype: str) -> None:
        torch = arrays.torch
        self.leaf, self.source = part.leaf, arrays.region(part.source)
        self.goals = [arrays.region(g) for g in part.goals]
        self.pick, self.is_dense = None, part.is_dense
        if part.pick is not None:
            self.pick = torch.from_numpy(part.pick).to(arrays.device)
        self.value = None
        if part.value is not None:
            self.value = arrays._uploaded(part.value.astype(DTYPES[dtype].numpy))

    def copy(self, memories: Sequence[Any], memory: Any) -> None:
        """Read and store, within one device."""
        self.store(self.source.read(memories[self.leaf]), memory)

    def store(self, values: Any, memory: Any) -> None:
        """Store what was read."""
        if self.pick is not None:
            values = values.reshape(-1)[self.pick]
        for goal in self.goals:
            goal.write(memory, values)


Result = TypeVar("Result")


def again(
    every: Sequence[TorchArrays], run: Callable[[], Result], n_bytes: int, turns: int = 1
) -> Callable[[], Result]:
    """A call that is made once, and from then on does the same work on the same memory.

    So the host only launches. Where GPUs lack memory for all values at once, or there are none, it
    is `run` itself.

    Args:
        every: the arrays of all ranks of this process.
        run: the call.
        n_bytes: what all values of a rank take.
        turns: that calls take with other memory between, see `axe_eq_backends.mesh.peers`.
    """
    torch, tapes = every[0].torch, list[list[Callable[[], None]]]()
    if any(a.device.type != "cuda" for a in every):
        return run
    if any(turns * n_bytes > torch.cuda.mem_get_info(a.device)[0] // 2 for a in every):
        return run
    made: list[Result] = []

    def call() -> Result:
        if len(tapes) == turns:
            tapes.append(tapes.pop(0))
            for action in tapes[-1]:
                action()
            return made[0]
        tape = list[Callable[[], None]]()
        for arrays in every:
            arrays.tape = tape
        try:
            made.append(run())
            tapes.append(tape)
        finally:
            for arrays in every:
                arrays.tape = None
        return made[0]

    return call

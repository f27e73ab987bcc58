"""Programs of small kernels and arrays of a library with streams, for a driver without a device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from axe_eq_backends.cuda import arrays, driver, launch, prepared, run
from axe_eq_backends.cuda.arrays import DeviceArray
from axe_eq_backends.cuda.code import Code, Launch, Port
from axe_eq_backends.cuda.image import Image, MapSpec, TensorSpec
from tests.unit.cuda.fake_driver import FakeDriver

N = 8


def floats(address: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_float * N).from_address(address))


def increment(x: int, y: int) -> None:
    floats(y)[:] = floats(x) + 1


def double(x: int, y: int) -> None:
    floats(y)[:] = floats(x) * 2


def add(x: int, c: int, y: int) -> None:
    floats(y)[:] = floats(x) + floats(c)


KERNELS: dict[str, Callable[..., None]] = {"increment": increment, "double": double, "add": add}


def image(name: str, *tensors: str, **changes: Any) -> Image:
    fields = {
        "name": name, "cubin": b"code", "compute_capability": 90, "toolkit": "13.4",
        "n_threads": 32, "smem_bytes": 0, "tiles": 1, "persistent": False, "params": (),
        "tensors": (), "arguments": tuple(("pointer", t) for t in tensors), "requires": (),
    }  # fmt: skip
    return Image(**{**fields, **changes})


def port(name: str) -> Port:
    return Port(name, "f32", (N,), (1,), 4 * N, 16)


def one(**changes: Any) -> Code:
    """y = x + 1."""
    kernel = Launch(image("increment", "a", "b", **changes), {}, {"a": "x", "b": "y"})
    return Code("h200", {n: port(n) for n in "xy"}, ("x",), (), ("y",), 0, (kernel,))


def several(links: int = 2) -> Code:
    """y = (x + 1) * 2 ... + c, its values in between in the arena, one place per value."""
    steps, at = [], "x"
    for number in range(links):
        name = "double" if number % 2 else "increment"
        steps.append(Launch(image(name, "a", "b"), {}, {"a": at, "b": 64 * number}))
        at = 64 * number  # type: ignore[assignment]
    steps.append(Launch(image("add", "a", "c", "b"), {}, {"a": at, "c": "c", "b": "y"}))
    ports = {n: port(n) for n in "xcy"}
    return Code("h200", ports, ("x",), ("c",), ("y",), 64 * links, tuple(steps))


def through_maps() -> Code:
    """y = x + 1 as `one`, from tensor maps; x and y are the middles of their ports."""
    maps = tuple(("map", MapSpec(t, (N,), (1,), (N,), 0, offset=2)) for t in "ab")
    tensors = tuple(TensorSpec(t, "f32", (N,), (1,), 16) for t in "ab")
    return one(arguments=maps, tensors=tensors)


class Array:
    """An array of a library that has streams."""

    def __init__(self, library: FakeLibrary, values: Any = None) -> None:
        self.library = library
        self.memory = np.zeros(N + 64, np.float32)
        start = -self.memory.ctypes.data % 256 // 4
        self.values = self.memory[start : start + N]
        if values is not None:
            self.values[:] = values

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.library.device


class FakeLibrary:
    """A library on one device, on the stream it is told."""

    def __init__(self, device: int = 0) -> None:
        self.device, self.now = device, 0

    def stream(self) -> int:
        return self.now

    def array(self, values: Any = None) -> Array:
        return Array(self, values)

    def read(self, array: Array) -> DeviceArray:
        return DeviceArray(array.values.ctypes.data, "f32", (N,), (1,), self.device)

    def make(self, port: Port) -> Array:
        return self.array()

    def handed(self, array: Array) -> Array:
        return array

    def finish(self) -> None:
        """Has a stream."""


def expected(x: Any, c: Any, links: int = 2) -> Any:
    for number in range(links):
        x = x * 2 if number % 2 else x + 1
    return x + c


C = np.arange(N, dtype=np.float32)


def use(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Let everything talk to a fake driver; what is remembered about the real one is forgotten."""
    for module in (driver, launch, prepared, arrays):
        monkeypatch.setattr(module, "driver", lambda: fake)
    forget()
    monkeypatch.setattr(run, "library_of", lambda array: array.library)
    return fake


def forget() -> None:
    """Forget what is remembered about a driver."""
    for remembered in (driver._primary, driver.attribute, driver.version):
        remembered.cache_clear()

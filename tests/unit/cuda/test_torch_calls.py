"""Calls with tensors, on a stand-in for torch and a driver without a device: the short way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from axe_eq_backends.cuda import prepared, run
from axe_eq_backends.cuda.arrays import library_of
from axe_eq_backends.cuda.code import Code
from tests.unit.cuda.fake_driver import FakeDriver
from tests.unit.cuda.fake_programs import KERNELS, C, N, expected, forget, one, several, use


class Tensor:
    """What is asked of torch.Tensor."""

    def __init__(self, values: Any, strides: tuple[int, ...] = (1,), device: int = 0) -> None:
        given = np.asarray(values)
        self.memory = np.zeros(given.size + 64, given.dtype)
        start = -self.memory.ctypes.data % 256 // given.itemsize
        self.values = self.memory[start : start + given.size]
        self.values[:] = given
        self.dtype, self.shape, self.strides = FLOATS[given.dtype.name], given.shape, strides
        self.device = device

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def get_device(self) -> int:
        return self.device

    def data_ptr(self) -> int:
        return int(self.values.ctypes.data)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device


class Parameter(Tensor):
    """torch.nn.Parameter."""


class Dtype:
    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


FLOATS = {name: Dtype(name) for name in ("float32", "float64")}


def empty_strided(shape: Any, strides: Any, *, dtype: Dtype, device: Any) -> Tensor:
    return Tensor(np.zeros(shape, dtype.name), strides, device[1])


@pytest.fixture
def cu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A driver, with torch beside it."""
    fake = FakeDriver(KERNELS)
    torch = SimpleNamespace(
        Tensor=Tensor, nn=SimpleNamespace(Parameter=Parameter), empty_strided=empty_strided,
        device=lambda kind, index: (kind, index),
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 5), **FLOATS,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", torch)
    use(fake, monkeypatch)
    monkeypatch.setattr(run, "library_of", library_of)
    yield fake
    forget()


def tensor(value: float, kind: type[Tensor] = Tensor) -> Tensor:
    return kind(np.full(N, value, np.float32))


OUTPUTS: dict[str, tuple[str, ...]] = {
    "made": ("y",), "an input beside it": ("x", "y"), "twice": ("y", "y"), "swapped": ("y", "x"),
}  # fmt: skip


@pytest.mark.parametrize("outputs", OUTPUTS.values(), ids=OUTPUTS)
def test_the_short_way_gives_what_the_long_one_does(
    outputs: tuple[str, ...], cu: FakeDriver
) -> None:
    program = run.Program(replace(several(), outputs=outputs))
    assert program.quick([tensor(1)]) is None  # nothing was called yet
    program.call([tensor(1), C])
    for value, kind in ((2, Tensor), (7, Parameter)):
        x = tensor(value, kind)
        found = program.quick([x])
        assert found is not None
        long = program.call([x, C])
        cu.wait()
        assert [r is x for r in found] == [name == "x" for name in outputs]
        for name, r, other in zip(outputs, found, long, strict=True):
            assert (r.dtype, r.shape, r.stride()) == (other.dtype, other.shape, other.stride())
            wanted = x.values if name == "x" else expected(x.values, C)
            np.testing.assert_array_equal(r.values, wanted)
            np.testing.assert_array_equal(other.values, wanted)


def test_results_of_the_short_way_are_new_tensors(cu: FakeDriver) -> None:
    program = run.Program(several())
    program.call([tensor(1), C])
    given = [tensor(n) for n in range(3 * prepared.KEPT_BINDINGS)]
    kept = [program.quick([x]) for x in given]
    cu.wait()
    for x, found in zip(given, kept, strict=True):
        assert found is not None
        np.testing.assert_array_equal(found[0].values, expected(x.values, C))


OTHERS: dict[str, Callable[[], list[Any]]] = {
    "dtype": lambda: [Tensor(np.zeros(N))],
    "shape": lambda: [Tensor(np.zeros(N - 1, np.float32))],
    "strides": lambda: [Tensor(np.zeros(N, np.float32), strides=(2,))],
    "number": lambda: [tensor(1), tensor(1)],
    "none": lambda: [],
    "type": lambda: [np.zeros(N, np.float32)],
}


@pytest.mark.parametrize("name", OTHERS)
def test_tensors_of_another_kind_take_the_long_way(name: str, cu: FakeDriver) -> None:
    program = run.Program(several())
    program.call([tensor(1), C])
    cu.calls.clear()
    assert program.quick(OTHERS[name]()) is None
    assert cu.calls == []


def test_tensors_on_another_device_take_the_long_way(cu: FakeDriver) -> None:
    program = run.Program(several())
    program.call([tensor(1), C])
    x = tensor(3)
    x.device = 1
    assert program.quick([x]) is None


@pytest.mark.parametrize("constants", [(), ("c",)])
def test_misaligned_tensors_take_the_long_way(constants: tuple[str, ...], cu: FakeDriver) -> None:
    program = run.Program(several() if constants else one())
    given = [C] * len(constants)
    program.call([tensor(1), *given])
    for _ in range(2 * prepared.KEPT_BINDINGS):
        program.quick([tensor(1)])
    x = tensor(1)
    x.values = x.memory[1 : 1 + N]
    cu.wait()
    cu.calls.clear()
    assert program.quick([x]) is None
    assert cu.calls == []
    x.values[:] = 3
    (y,) = program.call([x, *given])
    cu.wait()
    np.testing.assert_array_equal(y.values, expected(x.values, C) if constants else x.values + 1)


def test_a_constant_that_is_handed_back_takes_the_long_way(cu: FakeDriver) -> None:
    code: Code = replace(several(), outputs=("y", "c"))
    program = run.Program(code)
    program.call([tensor(1), C])
    assert program.quick([tensor(1)]) is None

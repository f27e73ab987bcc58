"""Calls of a schedule that is ready somewhere: what is checked once, and what every time."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ArgumentError, ScheduleError
from axe_eq.program.types import DTYPES, ValueType
from axe_eq.run.arrays import in_strides
from axe_eq.run.call import MOST_QUICK, Call, Caller
from axe_eq.run.executable import Executable
from axe_eq.run.store import Loaded

CONSTANT = np.arange(4.0)


class There:
    """An array on a device."""

    dtype = "float64"

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def reshape(self, shape: tuple[int, ...]) -> There:
        return There(*shape)


class Device:
    """What a device runner makes ready: it says what it was asked."""

    def __init__(self, rows: int, log: list[str]) -> None:
        self.rows, self.log, self.known = rows, log, False

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        self.log.append(f"host {self.rows}")
        x, constant = arrays
        return [x + constant]

    def call(self, arrays: Sequence[Any]) -> list[Any]:
        assert len(arrays) == 2
        assert arrays[1] is CONSTANT
        self.log.append(f"call {self.rows}")
        self.known = True
        return [There(self.rows, 4)]

    def bind(self, arrays: Sequence[Any]) -> tuple[Callable[[], None], list[Any]]:
        return lambda: self.log.append(f"launch {self.rows}"), [There(self.rows, 4)]

    def quick(self, arrays: Sequence[Any]) -> list[Any] | None:
        if not self.known or len(arrays) != 1:
            return None
        (x,) = arrays
        if not isinstance(x, There) or x.shape != (self.rows, 4):
            return None
        self.log.append(f"quick {self.rows}")
        return [There(self.rows, 4)]


def caller(log: list[str], rows: int = 2, view: tuple[int, ...] | None = None) -> Caller:
    """y = x + constant, for rows x 4."""
    call = Call(("x",), (ValueType("f64", (rows, 4)),), ["tuple", [0]], 0, (("rows", ""),))

    def rebound(extents: Mapping[str, int]) -> Caller:
        if extents["rows"] > 100:
            raise ScheduleError("schedule", "has no meaning there")
        return caller(log, extents["rows"])

    return Caller(call, {"c": CONSTANT}, [view], lambda: made(rows, log), rebound)


def made(rows: int, log: list[str]) -> Device:
    log.append(f"made {rows}")
    return Device(rows, log)


def test_checks_are_done_once_per_extents() -> None:
    log: list[str] = []
    exe = caller(log)
    for rows in (2, 2, 5, 2, 5, 5):
        assert exe(There(rows, 4)).shape == (rows, 4)
    assert log == ["made 2", "call 2", "quick 2", "made 5", "call 5", "quick 2", "quick 5",
                   "quick 5"]  # fmt: skip


def test_only_the_latest_extents_are_quick() -> None:
    log: list[str] = []
    exe = caller(log)
    for rows in range(1, MOST_QUICK + 3):
        exe(There(rows, 4))
    log.clear()
    exe(There(1, 4))  # long ago: checked again, not made again
    exe(There(MOST_QUICK + 2, 4))
    assert log == ["call 1", f"quick {MOST_QUICK + 2}"]


def test_host_arrays_are_never_quick() -> None:
    log: list[str] = []
    exe = caller(log)
    exe(There(2, 4))
    x = np.ones((2, 4))
    np.testing.assert_array_equal(exe(x), x + CONSTANT)
    np.testing.assert_array_equal(exe.bind(x)(), x + CONSTANT)
    assert log == ["made 2", "call 2", "host 2", "host 2"]


def test_prepared_calls_only_launch() -> None:
    log: list[str] = []
    run = caller(log, view=(8,)).bind(There(2, 4))
    first = run()
    assert first.shape == (8,)  # viewed once
    assert run() is first
    assert log == ["made 2", "launch 2", "launch 2"]


def test_arrays_that_do_not_fit_are_refused_before_and_after_a_quick_call() -> None:
    log: list[str] = []
    exe = caller(log)
    bad = {
        r"argument 'x': has shape \(2, 5\), extent 5 in dim 1": (There(2, 5),),
        r"argument 'x': has shape \(2,\); expected f64\[2,4\]": (There(2),),
        r"call: got 2 arrays": (There(2, 4), There(2, 4)),
        r"call: got arrays with rows=101 \(schedule: has no meaning there": (There(101, 4),),
    }
    for _ in range(2):
        for message, given in bad.items():
            for way in (exe, exe.bind):
                with pytest.raises(ArgumentError, match=message):
                    way(*given)
        exe(There(2, 4))


def test_a_schedule_is_made_ready_by_one_of_many_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    log: list[str] = []
    exe = caller(log)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: exe(There(2, 4)), range(64)))
    assert log.count("made 2") == 1


@pytest.mark.parametrize("kind", [Executable, Loaded])
@pytest.mark.parametrize("act", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_compiled_program_is_neither_copied_nor_pickled(
    kind: type[Any], act: Callable[[Any], Any]
) -> None:
    with pytest.raises(ArgumentError, match="neither copied nor pickled; expected exe"):
        act(object.__new__(kind))


def test_a_result_that_is_memory_on_a_device_is_not_viewed() -> None:
    exe = caller([], view=(8,))
    exe.ready.lying = (True,)
    assert exe(There(2, 4)).shape == exe.bind(There(2, 4))().shape == (2, 4)
    x = np.ones((2, 4))
    assert exe(x).shape == (8,)


def test_an_input_that_is_memory_on_a_device_has_any_dims() -> None:
    log: list[str] = []
    exe = caller(log)
    with pytest.raises(ArgumentError, match="extent 8 in dim 1"):
        exe(There(1, 8))
    exe.ready.memories = {"x"}
    exe(There(1, 8))  # which what is called looks at
    assert log == ["made 2", "call 2"]


class Held(np.ndarray[Any, Any]):
    """An array of numpy that says it lies on a device."""

    __module__ = "numpy"

    def __dlpack_device__(self) -> tuple[int, int]:  # type: ignore[override]
        return 2, 0


@pytest.mark.parametrize("dtype", ["f16", "f8e4m3", "bool"])
def test_on_a_device_what_lies_in_blocks_is_packed_as_its_memory(dtype: str) -> None:
    layout = axe.read("xla", "f32[5,6]{1,0:T(4,4)}")
    exe = axe.compile(lambda x, y: (x, y), axe.Spec((5, 6), dtype, layout=layout), f"5x6:{dtype}",
                      target="cpu")  # fmt: skip
    x = np.arange(30).reshape(5, 6).astype(DTYPES[dtype].numpy).view(Held)
    made = exe.pack("x", x)
    assert (made.shape, made.dtype) == ((64,), x.dtype)
    assert made[layout.table("m")].tobytes() == x.tobytes()
    assert exe.pack("y", x) is x


def test_arrays_of_every_element_type_take_strides() -> None:
    for held in DTYPES.values():
        x = np.arange(6).reshape(2, 3).astype(held.numpy)
        made = in_strides(x, (1, 2), "x")
        assert (made.dtype, made.strides) == (x.dtype, (x.itemsize, 2 * x.itemsize))
        assert made.tobytes() == x.tobytes()

"""Every cone on the device, and what a launch refuses."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import ArgumentError, DeviceError
from axe_eq.kernel.expr import evaluate
from axe_eq_backends.cuda import image
from axe_eq_backends.cuda.arrays import DeviceArray, device_array
from axe_eq_backends.cuda.driver import call, driver
from axe_eq_backends.cuda.launch import Loaded

pytestmark = pytest.mark.gpu


def _cones() -> Any:
    path = Path(__file__).parents[1] / "unit" / "cuda" / "test_cones.py"
    spec = importlib.util.spec_from_file_location("cones", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cones"] = module
    spec.loader.exec_module(module)
    return module


cones = _cones()


class Memory:
    """Device copies of numpy arrays, in any strides."""

    def __init__(self) -> None:
        self.pointers: list[int] = []

    def upload(self, array: Any, dtype: str, strides: tuple[int, ...]) -> DeviceArray:
        host = np.zeros(self._size(array.shape, strides), array.dtype)
        self._view(host, array.shape, strides)[...] = array
        pointer = int(call(driver().cuMemAlloc(max(host.nbytes, 16)), "allocation"))
        self.pointers.append(pointer)
        call((*driver().cuMemcpyHtoD(pointer, host.ctypes.data, host.nbytes), None), "upload")
        return DeviceArray(pointer, dtype, array.shape, strides)

    def download(self, array: DeviceArray, dtype: Any) -> Any:
        host = np.zeros(self._size(array.shape, array.strides), dtype)
        call((*driver().cuMemcpyDtoH(host.ctypes.data, array.pointer, host.nbytes), None), "copy")
        return self._view(host, array.shape, array.strides)

    def _size(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
        return 1 + sum((e - 1) * s for e, s in zip(shape, strides, strict=True))

    def _view(self, host: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        steps = [s * host.itemsize for s in strides]
        return np.lib.stride_tricks.as_strided(host, shape, steps)

    def free(self) -> None:
        for pointer in self.pointers:
            driver().cuMemFree(pointer)


@pytest.fixture
def memory() -> Iterator[Memory]:
    driver()
    m = Memory()
    yield m
    m.free()


def upload(memory: Memory, cone: Any, built: image.Image) -> dict[str, DeviceArray]:
    arrays = {}
    for spec in built.tensors:
        host = cone.arrays[spec.name]
        if spec.name in cone.expected and host.dtype.kind != "i":
            host = np.full(host.shape, np.nan).astype(host.dtype)
        assert spec.strides is not None
        strides = tuple(int(evaluate(s, cone.params)) for s in spec.strides)
        arrays[spec.name] = memory.upload(host, spec.dtype, strides)
    return arrays


@pytest.mark.parametrize("name", cones.CONES)
def test_the_device_gives_the_expected_values(name: str, memory: Memory) -> None:
    cone = cones.cone(name)
    built = image.build(cones.planned(name))
    loaded = Loaded(built)
    arrays = upload(memory, cone, built)
    for _ in range(3):
        loaded.bind(arrays, cone.params).launch()
    call((*driver().cuCtxSynchronize(), None), "kernel")
    found = {n: memory.download(arrays[n], cone.arrays[n].dtype) for n in cone.expected}
    cones.check(found, cone)


def test_wrong_arrays_are_refused_with_their_name(memory: Memory) -> None:
    cone = cones.cone("plain")
    built = image.build(cones.planned("plain"))
    loaded = Loaded(built)
    arrays = upload(memory, cone, built)
    a = arrays["A"]
    wrong = {
        "no array A": {k: v for k, v in arrays.items() if k != "A"},
        "shape": arrays | {"A": DeviceArray(a.pointer, a.dtype, (1, 2), (2, 1))},
        "dtype": arrays | {"A": DeviceArray(a.pointer, "f32", a.shape, a.strides)},
        "strides": arrays | {"A": DeviceArray(a.pointer, a.dtype, a.shape, (1, a.shape[0]))},
        "address": arrays | {"A": DeviceArray(a.pointer + 2, a.dtype, a.shape, a.strides)},
    }
    for part, given in wrong.items():
        with pytest.raises(ArgumentError, match=part):
            loaded.bind(given, cone.params)
    with pytest.raises(ArgumentError, match="parameter K: is 188"):
        loaded.bind(arrays, cone.params | {"K": 188})


def test_host_memory_is_refused() -> None:
    with pytest.raises(ArgumentError, match="host memory"):
        device_array(np.zeros(4, np.float32))


def test_code_that_does_not_load_is_one_error() -> None:
    built = image.build(cones.planned("relu"))
    broken = image.Image(**{**vars(built), "cubin": b"nonsense" * 16})
    with pytest.raises(DeviceError, match="loading kernel"):
        Loaded(broken)


def test_launches_can_be_captured_in_a_graph(memory: Memory) -> None:
    cu, cone = driver(), cones.cone("one run")
    built = image.build(cones.planned("one run"))
    bound = Loaded(built).bind(arrays := upload(memory, cone, built), cone.params)
    stream = call(cu.cuStreamCreate(0), "stream")
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    call((*cu.cuStreamBeginCapture(stream, mode), None), "capture")
    bound.launch(int(stream))
    graph = call(cu.cuStreamEndCapture(stream), "capture")
    ready = call(cu.cuGraphInstantiate(graph, 0), "graph")
    call((*cu.cuGraphLaunch(ready, stream), None), "graph")
    call((*cu.cuStreamSynchronize(stream), None), "graph")
    cones.check({"y": memory.download(arrays["y"], np.float16)}, cone)

"""Streaming contractions on the device, several times over poisoned outputs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axe_eq.kernel.expr import evaluate
from axe_eq_backends.cuda import image
from axe_eq_backends.cuda.arrays import DeviceArray
from axe_eq_backends.cuda.driver import call, default_device, driver, on
from axe_eq_backends.cuda.launch import Loaded

pytestmark = pytest.mark.gpu


def _module(name: str) -> Any:
    path = Path(__file__).parents[1] / "unit" / "cuda" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


streams = _module("test_streams")


def _flat(array: Any, strides: tuple[int, ...], first: int) -> Any:
    """The memory of an array in these strides (elements), its first element at `first`."""
    last = sum((e - 1) * s for e, s in zip(array.shape, strides, strict=True))
    host = np.zeros(first + last + 1, array.dtype)
    _view(host, array.shape, strides, first)[...] = array
    return host


def _view(host: Any, shape: tuple[int, ...], strides: tuple[int, ...], first: int) -> Any:
    steps = [s * host.itemsize for s in strides]
    return np.lib.stride_tricks.as_strided(host[first:], shape, steps)


@pytest.mark.parametrize("name", streams.CONES)
def test_the_device_gives_the_expected_values(name: str) -> None:
    with on(default_device()):
        _run(name)


def _run(name: str) -> None:
    cone = streams.made(name)
    planned = streams.planned(name)
    loaded = Loaded(image.build(planned))
    arrays, places, pointers = {}, {}, []
    for tensor in planned.kernel.tensors:
        host = cone.arrays[tensor.name]
        if tensor.name in cone.expected:
            host = np.full(host.shape, np.nan).astype(host.dtype)
        blocks = tensor.place.blocks
        strides = tuple(int(evaluate(b[0].stride, {})) if b else 0 for b in blocks)
        first = int(evaluate(tensor.place.at("m"), {}))
        flat = _flat(host, strides, first)
        pointer = int(call(driver().cuMemAlloc(max(flat.nbytes, 16)), "allocation"))
        pointers.append(pointer)
        call((*driver().cuMemcpyHtoD(pointer, flat.ctypes.data, flat.nbytes), None), "upload")
        arrays[tensor.name] = DeviceArray(pointer, tensor.dtype, host.shape, strides)
        places[tensor.name] = flat, strides, first
    bound = loaded.bind(arrays, {})
    for _ in range(3):
        bound.launch()
    call((*driver().cuCtxSynchronize(), None), "kernel")
    found = {}
    for out in cone.expected:
        flat, strides, first = places[out]
        flat = np.empty_like(flat)
        copied = driver().cuMemcpyDtoH(flat.ctypes.data, arrays[out].pointer, flat.nbytes)
        call((*copied, None), "download")
        found[out] = _view(flat, arrays[out].shape, strides, first)
    for pointer in pointers:
        driver().cuMemFree(pointer)
    streams.check(found, cone)

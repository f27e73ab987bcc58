"""A call where there is no GPU says what can be done there, and that can be done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.run.executable import Executable
from axe_eq_backends.cuda.driver import driver

bindings = pytest.importorskip("cuda.bindings", reason="needs cuda-bindings")
X = np.arange(16, dtype=np.float32)


def no_library(flags: int) -> Any:
    raise RuntimeError("libcuda.so.1: cannot open shared object file. No such file")


def no_device(flags: int) -> Any:
    return (SimpleNamespace(name="CUDA_ERROR_NO_DEVICE"),)


@pytest.fixture(params=[no_library, no_device], ids=["no library", "no device"])
def absent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without the driver, or without a GPU."""
    fake = SimpleNamespace(cuInit=request.param, CUresult=SimpleNamespace(CUDA_SUCCESS=0))
    monkeypatch.setattr(bindings, "driver", fake, raising=False)
    driver.cache_clear()
    yield
    driver.cache_clear()


@pytest.fixture(scope="module")
def exe() -> Executable:
    return axe.compile(lambda x: x * 2, X, target="h200")


def saved(exe: Executable, path: Path) -> Any:
    exe.save(path)
    return axe.load(path)(X)


CALLS: dict[str, Callable[[Executable, Path], Any]] = {
    "call": lambda exe, path: exe(X),
    "bind": lambda exe, path: exe.bind(X)(),
    "launch": lambda exe, path: exe.schedule.launch(X),
    "saved": saved,
}


@pytest.mark.usefixtures("absent")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_names_what_needs_no_device(name: str, exe: Executable, tmp_path: Path) -> None:
    with pytest.raises(axe.DeviceError, match="; expected an NVIDIA GPU") as error:
        CALLS[name](exe, tmp_path / "double.axe")
    for way in ("exe.schedule.run(...)", "exe.interpret(...)", "exe.source", 'target="cpu"'):
        assert way in str(error.value)


@pytest.mark.usefixtures("absent")
def test_what_is_named_needs_no_device(exe: Executable) -> None:
    assert np.array_equal(exe.schedule.run(X), 2 * X)
    assert np.array_equal(exe.interpret(X), 2 * X)
    assert "__global__" in exe.source[exe.kernels[0].name]
    assert np.array_equal(axe.compile(lambda x: x * 2, X, target="cpu")(X), 2 * X)

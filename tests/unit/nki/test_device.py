"""Programs run on a Neuron device of their generation where `nki` is, else in the simulator.

No device is here: a file of its driver and a stand-in for `nki` are put in their places.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.run.timing import timed
from axe_eq_backends.nki import device
from axe_eq_backends.nki.target import trn1
from tests.unit.nki.stand_in import SIMULATED, installed
from tests.unit.nki.test_launches import PROGRAMS, drawn

# What is called is compiled for the platform; it says so.
NKI = """
CALLED = []

def simulate(kernel):
    raise AssertionError("programs call kernels")

class jit:
    def __init__(self, func):
        self.func = func

    def __call__(self, *arrays):
        CALLED.append((self.func.__name__, os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"]))
        return simulated(self.func, *arrays)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the stand-in as `nki`, and a device of NeuronCore-v3."""
    (tmp_path / "arch_type").write_text("NCv3\n", encoding="utf-8")
    monkeypatch.setattr(device, "CORE", tmp_path / "arch_type")
    monkeypatch.setitem(os.environ, device.PLATFORM, "")
    monkeypatch.delitem(os.environ, device.PLATFORM)
    with installed(tmp_path, {"__init__.py": SIMULATED + NKI}, monkeypatch):
        yield tmp_path
    device._kernel.cache_clear()


@pytest.mark.usefixtures("folder")
def test_a_program_runs_on_the_device(tmp_path: Path) -> None:
    fn, specs = PROGRAMS["both"]
    exe, arrays = axe.compile(fn, *specs, target="trn2"), drawn(specs)
    exe.save(tmp_path / "kept.axe")
    for program in exe, axe.load(tmp_path / "kept.axe"):
        called = sys.modules["nki"].CALLED if "nki" in sys.modules else []
        called.clear()
        got, want = program(*arrays), exe.interpret(*arrays)
        pairs = zip(got, want, strict=True) if isinstance(got, tuple | list) else [(got, want)]
        assert all(np.array_equal(g, w) for g, w in pairs)
        assert sys.modules["nki"].CALLED
        assert {platform for _, platform in sys.modules["nki"].CALLED} == {"trn2"}
    assert "simulated" not in repr(exe)
    runner = exe.schedule.runners["nki"]
    assert runner.device() == "NeuronCore-v3"
    assert timed(runner, exe.schedule.graph, exe.target, 0.01).rounds >= 3
    assert not runner.present(trn1)


@pytest.mark.parametrize("wrong", ["arch_type", "nki/__init__.py"])
def test_without_a_device_or_nki_it_is_simulated(wrong: str, folder: Path) -> None:
    if wrong == "arch_type":
        (folder / wrong).unlink()
    else:  # as the placeholder of the package index
        (folder / wrong).write_text("raise ImportError('no nki')", encoding="utf-8")
    assert device.generation() is None
    exe = axe.compile(lambda x: x + 1, "128x4:f32", target="trn2")
    assert "simulated" in repr(exe)
    assert np.array_equal(exe(np.ones((128, 4), np.float32)), np.full((128, 4), 2, np.float32))

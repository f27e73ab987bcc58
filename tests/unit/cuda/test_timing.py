"""Arrays that measured calls take in turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda import timing
from axe_eq_backends.cuda.arrays import row_major
from axe_eq_backends.cuda.code import Port
from axe_eq_backends.cuda.driver import download
from tests.unit.cuda.fake_driver import FakeDriver

FEW = 64  # elements that are drawn


def port(name: str, dtype: str, *shape: int, strides: tuple[int, ...] = ()) -> Port:
    strides = strides or row_major(shape)
    last = sum((e - 1) * s for e, s in zip(shape, strides, strict=True))
    n_bytes = (last + 1) * DTYPES[dtype].itemsize
    return Port(name, dtype, shape, strides, n_bytes, 16)


def test_every_set_holds_the_same_drawn_values(
    cu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("driver", lambda: cu), ("attribute", lambda *_: 1 << 11), ("DRAWN", FEW)):
        monkeypatch.setattr(timing, name, value)
    monkeypatch.setattr(cu, "cuMemGetInfo", lambda: cu._ok(1 << 20, 1 << 20), raising=False)
    ports = [port("long", "f16", 7, 31), port("short", "f32", 8), port("at", "i32", 65),
             port("padded", "f32", 3, 5, strides=(8, 1))]  # fmt: skip
    program: Any = SimpleNamespace(code=SimpleNamespace(ports={p.name: p for p in ports}))
    sets = timing._sets(program, 0)
    assert len(sets) > 2
    for n, p in enumerate(ports):
        held = [_held(p, memory[n].pointer) for memory in sets]
        assert all(np.array_equal(held[0], other) for other in held)
        values = np.lib.stride_tricks.as_strided(
            held[0], p.shape, [s * held[0].itemsize for s in p.strides]
        ).reshape(-1)
        if p.name != "padded":
            assert np.array_equal(values, np.resize(values[:FEW], values.size))
        assert len(set(values.tolist())) >= 4
        assert np.all(np.isfinite(values.astype(float)))
        assert p.dtype != "i32" or set(values.tolist()) == {0, 1, 2, 3}
    assert len({memory.pointer for one in sets for memory in one}) == len(sets) * len(ports)


def _held(p: Port, pointer: int) -> Any:
    host = np.zeros(p.n_bytes // DTYPES[p.dtype].itemsize, DTYPES[p.dtype].numpy)
    download(host, pointer, p.name)
    return host

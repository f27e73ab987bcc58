"""Results that come back from a device: those without dims stay so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from axe_eq_backends.cuda import arrays
from axe_eq_backends.cuda.code import Port


@pytest.mark.parametrize(("shape", "strides"), [((), ()), ((3,), (1,)), ((2, 3), (4, 1))])
def test_what_a_buffer_holds_has_the_shape_of_its_port(
    shape: tuple[int, ...], strides: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def filled(host: Any, pointer: int, what: str) -> None:
        host[...] = np.arange(host.size)

    monkeypatch.setattr(arrays, "download", filled)
    size = 1 + sum((e - 1) * s for e, s in zip(shape, strides, strict=True))
    got = arrays.fetched(Port("y", "i64", shape, strides, 8 * size, 1), 0)
    assert got.shape == shape
    assert got.flags.c_contiguous
    wanted = sum(i * s for i, s in zip(np.indices(shape), strides, strict=True))
    np.testing.assert_array_equal(got, wanted)

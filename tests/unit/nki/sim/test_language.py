"""Views, wrappers, classes and the grid of the simulated language, against numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from axe_eq_backends.nki.sim import NkiError, simulate
from axe_eq_backends.nki.sim.dtypes import TF32, cast
from axe_eq_backends.nki.sim.facade import modules
from axe_eq_backends.nki.sim.machine import machine
from axe_eq_backends.nki.sim.objects import NKIObject
from axe_eq_backends.nki.sim.state import Run, within
from axe_eq_backends.nki.sim.views import Tensor

Array = np.ndarray[Any, Any]
NL, NISA, NKI = (modules("0.3")[m] for m in ("nki.language", "nki.isa", "nki"))


@pytest.fixture
def run() -> Any:
    with within(Run(machine("trn2"))) as state:
        yield state


def test_views_see_what_numpy_sees(run: Run, rng: np.random.Generator) -> None:
    x = rng.standard_normal((6, 4, 10)).astype(np.float32)
    t = run.given(x)
    views: list[tuple[Tensor, Array]] = [
        (t, x),
        (t[2], x[2]),
        (t[1:4, ..., 3], x[1:4, ..., 3]),
        (t[..., 0:10:3], x[..., ::3]),
        (t[-1, 2:4], x[-1, 2:4]),
        (t[NL.ds(2, 3)], x[2:5]),
        (t.permute((2, 0, 1)), x.transpose(2, 0, 1)),
        (t.reshape((24, 10)), x.reshape(24, 10)),
        (t.reshape(6, 40), x.reshape(6, 40)),
        (t[:, 1:3].flatten_dims(1, 2), x[:, 1:3].reshape(6, 20)),
        (t.expand_dim(1), x[:, None]),
        (t[:, 0:1].squeeze_dim(1), x[:, 0]),
        (t.reshape_dim(2, (2, -1)), x.reshape(6, 4, 2, 5)),
        (t[:, 0:1].broadcast(1, 7), np.broadcast_to(x[:, :1], (6, 7, 10))),
        (t.select(1, 3), x[:, 3]),
        (t.slice(2, 1, 9, 2), x[:, :, 1:9:2]),
        (t.view(NL.int32), x.view(np.int32)),
        (t.view(NL.uint8), x.view(np.uint8)),
        (t.view(NL.uint8).view(NL.float32), x),
        (
            t.rearrange(("a", "b", ("c", "d")), ("a", "d", "b", "c"), {"c": 2}),
            x.reshape(6, 4, 2, 5).transpose(0, 3, 1, 2),
        ),
        (
            t.ap([[40, 6], [1, 4], [10, 4]]),
            np.lib.stride_tricks.as_strided(x, (6, 4, 4), (160, 4, 40)),
        ),
        (t[1].ap([[10, 3], [1, 10]], offset=10), x[1, 1:4]),
        (t.ap([[2, 5], [1, 2]], dtype=NL.uint16), x.view(np.uint16).reshape(-1)[:10].reshape(5, 2)),
    ]
    for view, wanted in views:
        assert view.shape == wanted.shape
        assert view.array().tobytes() == np.ascontiguousarray(wanted).tobytes()
        assert view.size == wanted.size


def test_on_chip_a_partition_stays_a_dim(run: Run) -> None:
    t = NL.ndarray((8, 3, 5), dtype=NL.float32)
    assert t[2].shape == (1, 3, 5)
    assert t[0:8, 1, 2].shape == (8, 1)
    assert t.is_contiguous()
    assert not t[0:8, 0:2].permute((0, 2, 1)).is_contiguous()
    assert t[1:3].get_pattern() == [[15, 2], [5, 3], [1, 5]]


def test_what_one_view_writes_another_has(run: Run) -> None:
    t = NL.ndarray((4, 8), dtype=NL.float32)
    NISA.memset(dst=t[0:4, 0:8:2], value=1.0)
    with pytest.raises(NkiError, match="16 of 32 elements that nothing wrote"):
        NISA.tensor_copy(dst=t, src=t)
    halves = t.view(NL.uint16)
    NISA.memset(dst=halves[0:4, 2:16:4], value=0)
    with pytest.raises(NkiError, match="16 of 64 elements"):
        NISA.tensor_copy(dst=halves, src=halves)
    NISA.memset(dst=halves[0:4, 3:16:4], value=0)
    NISA.tensor_copy(dst=t, src=t)
    assert (t.array()[:, ::2] == 1).all()
    assert (t.array()[:, 1::2] == 0).all()


def test_wrappers_make_tiles(run: Run, rng: np.random.Generator) -> None:
    x, y = (rng.standard_normal((8, 6)).astype(np.float32) for _ in "ab")
    a, b = NL.load(run.given(x)), NL.load(run.given(y))
    for got, wanted in (
        (NL.add(a, b), x + y),
        (NL.multiply(a, 2.0), x * 2),
        (NL.maximum(a, b[0:8, 0:1]), np.maximum(x, y[:, :1])),
        (NL.exp(a), np.exp(x)),
        (NL.sum(a, axis=1, keepdims=True), x.sum(1, keepdims=True)),
        (NL.max(a, axis=[1]), x.max(1)[:, None]),
        (NL.mean(a, axis=1), x.mean(1)[:, None]),
        (NL.transpose(a), x.T),
        (NL.matmul(a, NL.load(run.given(y.T.copy()))), x @ y.T),
        (NL.matmul(a, b, transpose_x=True), x.T @ y),
        (NL.where(NL.greater(a, 0.0), a, b), np.where(x > 0, x, y)),
        (NL.softmax(a), np.exp(x) / np.exp(x).sum(1, keepdims=True)),
        (NL.ones((3, 4), dtype=NL.float16), np.ones((3, 4))),
        (NL.broadcast_to(a[0:1], (5, 6)), np.broadcast_to(x[:1], (5, 6))),
        (NL.zeros_like(a), np.zeros((8, 6))),
        (NL.shared_identity_matrix(4), np.eye(4)),
        (NL.load_transpose2d(run.given(x)), x.T),
        (NL.copy(a), x),
        (NL.rms_norm(a, b, 1, 6), x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * y),
    ):
        np.testing.assert_allclose(got.array().astype(np.float64), wanted, 1e-5, 1e-6)


def test_other_instructions(run: Run) -> None:
    a = NL.load(run.given(np.array([[1.0, 2, 3]], np.float32)))
    total = NL.ndarray((1, 1), dtype=NL.float32)
    NISA.activation_reduce(dst=a, op=NL.square, data=a, reduce_op=NL.add, reduce_res=total)
    assert total.array().tolist() == [[14]]
    register = NISA.register_alloc(3)
    other = NISA.register_alloc()
    NISA.register_move(other, register)
    assert int(other) == 3
    assert a[NL.ds(0, 1), 0 : other.__index__()].shape == (1, 3)


def test_sizes_are_those_of_the_machine() -> None:
    for name, sbuf in (("trn1", 192), ("trn2", 224), ("trn3", 256)):
        with within(Run(machine(name))):
            assert (NL.tile_size.sbuf_fmax_bytes, NL.tile_size.pmax) == (sbuf << 10, 128)
            assert (NL.tile_size.psum_num_banks, NL.tile_size.psum_bank_fmax) == (8, 512)
            assert NISA.get_nc_version() == NISA.nc_version(int(name[3:]) + 1)


def test_classes_take_their_fields() -> None:
    class Plain(NKIObject):
        a: int
        b: int = 2
        c = 3

    assert vars(Plain(1)) == {"a": 1, "b": 2, "c": 3}
    assert vars(Plain(1, c=5, b=4)) == {"a": 1, "b": 4, "c": 5}
    with pytest.raises(TypeError, match="lacks a value of a"):
        Plain()
    with pytest.raises(TypeError, match="has fields"):
        Plain(1, 2, 3, 4)

    @dataclass
    class Decorated(NKIObject):
        at = None
        n: int = 1

    made: Any = Decorated
    assert vars(made(at=4, n=2)) == {"at": 4, "n": 2}


def test_programs_of_a_grid_share_their_results() -> None:
    def kernel(x: Any) -> Any:
        out = NL.ndarray((4, 6), dtype=NL.float32, buffer=NL.shared_hbm)
        i, j = NL.program_id(0), NL.program_id(1)
        assert (NL.num_programs(0), NL.num_programs((0, 1)), NL.program_ndim()) == (2, 6, 2)
        t = NL.load(x[2 * i : 2 * i + 2, 2 * j : 2 * j + 2])
        NL.store(out[2 * i : 2 * i + 2, 2 * j : 2 * j + 2], NL.add(t, 1.0))
        return out

    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert (simulate(kernel, "k", x, grid=(2, 3))[0] == x + 1).all()
    assert (NKI.jit(kernel)[2, 3](x) == x + 1).all()
    with pytest.raises(NkiError, match="needs two cores at once"):
        simulate(lambda: NISA.core_barrier(data=None, cores=(0, 1)), "k", grid=(2,))


COPY = """import nki.isa as nisa, nki.language as nl
def k(x):
    t = nl.load(x)
    nisa.tensor_copy(dst=t, src=t, dtype=nl.bfloat16)
    nl.store(x, t)
    return x
"""
BARE = """import nki.isa as nisa
def k(x):
    t = sbuf.view(dtype=x.dtype, shape=x.shape)
    nisa.dma_copy(dst=t, src=x)
    nisa.dma_copy(dst=x, src=t)
    return x
"""


def test_what_dialects_have() -> None:
    x = np.array([[1.0009765625]], np.float32)
    assert simulate(COPY, "k", x, dialect="0.2")[0].tolist() == [[1.0]]
    with pytest.raises(
        NkiError, match=r"no argument 'dtype' in dialect 0.3 \(dialect 0.2 has it\)"
    ):
        simulate(COPY, "k", x)
    assert simulate(BARE, "k", x, dialect="0.2")[0].tolist() == x.tolist()
    with pytest.raises(NkiError, match="name 'sbuf' is not defined"):
        simulate(BARE, "k", x)


def test_tfloat32_keeps_ten_bits_of_fraction() -> None:
    values = np.array([1 + 2.0**-10, 1 + 2.0**-11, 1 + 3 * 2.0**-11, np.inf, -0.0], np.float32)
    assert cast(values, TF32).tolist() == [1 + 2.0**-10, 1.0, 1 + 2.0**-9, np.inf, -0.0]

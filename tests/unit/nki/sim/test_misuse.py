"""Views and instructions used wrongly: each refused by its check, with the values."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from axe_eq_backends.nki.sim import NkiError
from axe_eq_backends.nki.sim.machine import machine
from axe_eq_backends.nki.sim.state import Run, within
from axe_eq_backends.nki.sim.views import Register
from tests.unit.nki.sim.tiles import NISA, NL

F8 = np.dtype(ml_dtypes.float8_e4m3)


class Held:
    """Tensors to misuse: written ones in SBUF, PSUM and HBM."""

    def __init__(self, run: Run) -> None:
        def tile(*shape: int, dtype: Any = NL.float32, buffer: Any = NL.sbuf) -> Any:
            t = NL.ndarray(shape, dtype=dtype, buffer=buffer)
            NISA.memset(dst=t, value=1)
            return t

        self.tile, self.run = tile, run
        self.t, self.u = tile(8, 16), tile(8, 16)
        self.p, self.q = tile(8, 16, buffer=NL.psum), tile(8, 16, buffer=NL.psum)
        self.one, self.bytes = tile(8, 1), tile(8, 16, dtype=NL.uint8)
        self.numbers = tile(8, 16, dtype=NL.int32)
        self.deep = tile(8, 4, 6)
        self.x4 = NL.ndarray((8, 16), dtype=NL.float8_e4m3fn_x4)
        NISA.memset(dst=self.x4, value=0)
        self.h = run.given(np.ones((4, 6, 8), np.float32))


VIEWS: tuple[tuple[str, str, Callable[[Held], Any]], ...] = (
    ("P1", "indexed by 3 values; expected at most 2", lambda h: h.t[0, 0, 0]),
    ("P1", "indexed by 'a' in dim 1", lambda h: h.t[0, "a"]),
    ("P1", "read at 16 in dim 1 of extent 16; expected 0 to 15", lambda h: h.t[0, 16]),
    ("P1", "read at -9 in dim 0 of extent 8", lambda h: h.t[-9]),
    ("P1", "sliced 3:3", lambda h: h.t[0:8, 3:3]),
    ("P1", "sliced with step -1", lambda h: h.t[0:8, 0:4:-1]),
    ("P1", "permuted by (1, 0)", lambda h: h.t.permute((1, 0))),
    ("P1", "permuted by (0, 0, 1)", lambda h: h.h.permute((0, 0, 1))),
    ("P1", "broadcast in dim 1 of extent 16; expected extent 1", lambda h: h.t.broadcast(1, 32)),
    ("P1", "its partitions changed", lambda h: h.one.broadcast(0, 8)),
    ("P1", "gets a dim before the partitions", lambda h: h.t.expand_dim(0)),
    ("P1", "loses dim 1 of extent 16; expected extent 1", lambda h: h.t.squeeze_dim(1)),
    ("P1", "its partitions split into (2, 4)", lambda h: h.t.reshape_dim(0, (2, 4))),
    ("P1", "reshaped to (3, 5); expected 16 elements", lambda h: h.t.reshape_dim(1, (3, 5))),
    ("P1", "dims 1 to 2 flattened", lambda h: h.deep[0:8, 0:4, 0:3].flatten_dims(1, 2)),
    ("P1", "reshaped to (8, 12) over gaps", lambda h: h.deep[0:8, 0:4, 0:3].reshape((8, 12))),
    ("P1", "reshaped to (8, 17); expected 128 elements", lambda h: h.t.reshape((8, 17))),
    ("P1", "seen as float32", lambda h: h.bytes[0:8, 0:3].view(NL.float32)),
    ("P1", "has no dim 2; expected 0 to 1", lambda h: h.t.slice(2, 0, 1)),
    ("P1", "reaches elements 120 to 135", lambda h: h.t.ap([[16, 1], [1, 16]], offset=120)),
    ("P1", "reaches elements -1 to 126", lambda h: h.t.ap([[16, 8], [-1, 16]], offset=14)),
    ("P1", "reaches elements 14 to 134", lambda h: h.t.ap([[16, 8], [-1, 9]], offset=22)),
    ("P3", "stride 8 over partitions; expected 16", lambda h: h.t.ap([[8, 2], [1, 8]])),
    ("P3", "selected by a vector in dim 1", lambda h: h.h.vector_select(1, h.numbers[0:4, 0:1])),
    ("P3", "selected by a vector in dim 0", lambda h: h.t.vector_select(0, h.numbers[0:8, 0:1])),
    ("P1", "reduces axis 0", lambda h: NL.sum(h.t, axis=0)),
    ("U1", "is asked whether it is true", lambda h: bool(h.t)),
    ("P1", "broadcast in dim 1 of extent 1 to -4", lambda h: h.one.broadcast(1, -4)),
    ("C2", "starts at byte -4", lambda h: NL.ndarray((8, 4), NL.float32, address=(0, -4))),
    ("", "has 3 parts", lambda h: NL.ndarray((8, 4), NL.float32, address=(0, 0, 0))),
)  # fmt: skip


def long_steps(h: Held) -> None:
    wide = NL.ndarray((2, 33_000), dtype=F8)
    NISA.memset(dst=wide, value=0)
    out = h.tile(2, 2, dtype=F8)
    NISA.tensor_copy(dst=out, src=wide.ap([[33_000, 2], [32_768, 1], [32_767, 2]]))
    NISA.tensor_copy(dst=out, src=wide.ap([[33_000, 2], [32_768, 2]]).expand_dim(1))


def moved(by: int) -> Callable[[Held], None]:
    def act(h: Held) -> None:
        NISA.dma_copy(dst=h.tile(6, 8), src=h.h.select(0, Register(by)))

    return act


def in_old_dialect(h: Held, act: Callable[[], Any]) -> None:
    h.run.dialect = "0.2"
    act()


PAIR = NISA.matmul_perf_mode.double_row
INSTRUCTIONS: tuple[tuple[str, str, Callable[[Held], Any]], ...] = (
    (
        "",
        "engine: is 'vector'; expected nisa.engine",
        lambda h: NISA.tensor_copy(dst=h.t, src=h.t, engine="vector"),
    ),
    (
        "",
        "has no argument 'accumulate' in dialect 0.2",
        lambda h: in_old_dialect(
            h, lambda: NISA.nc_matmul(h.p, h.t, h.t, False, False, False, True)
        ),
    ),
    ("", "value: is '1'; expected a number", lambda h: NISA.memset(dst=h.t, value="1")),
    ("P1", "axis 7 of data", lambda h: NISA.tensor_reduce(dst=h.one, op=NL.add, data=h.t, axis=7)),
    (
        "P2",
        "starts at partition 1 of its tile; expected 0 or 32 or 64 or 96",
        lambda h: NISA.memset(dst=h.t[1:3], value=0),
    ),
    (
        "E1",
        "holds four values",
        lambda h: NISA.tensor_scalar(dst=h.t, data=h.x4, op0=NL.add, operand0=1.0),
    ),
    ("E1", "value 2: fills float8_e4m3fn_x4; expected 0", lambda h: NISA.memset(dst=h.x4, value=2)),
    (
        "P1",
        "has 8 partitions of 16; expected 8 of 1",
        lambda h: NISA.tensor_scalar(dst=h.t, data=h.t, op0=NL.add, operand0=h.u),
    ),
    (
        "",
        "operand0: is 'a'; expected a number",
        lambda h: NISA.tensor_scalar(dst=h.t, data=h.t, op0=NL.add, operand0="a"),
    ),
    (
        "U1",
        "reads registers that nothing set",
        lambda h: NISA.activation(dst=h.t, op=NL.copy, data=h.t, reduce_res=h.one),
    ),
    (
        "P1",
        "reduce_res (8, 16)",
        lambda h: NISA.activation_reduce(
            dst=h.t, op=NL.copy, data=h.t, reduce_op=NL.add, reduce_res=h.u
        ),
    ),
    (
        "E1",
        "reduce_op nl.maximum: is none of the scalar engine",
        lambda h: NISA.activation_reduce(
            dst=h.t, op=NL.copy, data=h.t, reduce_op=NL.maximum, reduce_res=h.one
        ),
    ),
    (
        "E1",
        "none of the gpsimd engine",
        lambda h: NISA.tensor_scalar(
            dst=h.numbers, data=h.numbers, op0=NL.bitwise_and, operand0=1, engine=NISA.engine.gpsimd
        ),
    ),
    (
        "E1",
        "is on the sync engine",
        lambda h: NISA.memset(dst=h.t, value=0.0, engine=NISA.engine.sync),
    ),
    (
        "U1",
        "goes on with registers",
        lambda h: NISA.tensor_scalar_cumulative(
            dst=h.t, src=h.t, op0=NL.add, op1=NL.add, imm0=0.0, reduce_cmd=NISA.reduce_cmd.reduce
        ),
    ),
    (
        "B2",
        "data0 and data1: are both in PSUM",
        lambda h: NISA.tensor_tensor_scan(
            dst=h.t, data0=h.p, data1=h.q, initial=0.0, op0=NL.add, op1=NL.add
        ),
    ),
    (
        "P1",
        "is 8 x 16; expected 8 x 1",
        lambda h: NISA.tensor_reduce(dst=h.t, op=NL.add, data=h.u, axis=1),
    ),
    (
        "M1",
        "no pair of rows",
        lambda h: NISA.nc_matmul(dst=h.p, stationary=h.t, moving=h.u, perf_mode=PAIR),
    ),
    (
        "M1",
        "no 8-bit float",
        lambda h: NISA.nc_matmul(
            dst=h.p, stationary=h.tile(8, 2, 8), moving=h.tile(8, 2, 16), perf_mode=PAIR
        ),
    ),
    (
        "M1",
        "has 8 rows and 129 columns; expected at most 128 and 128",
        lambda h: NISA.nc_matmul(dst=h.p, stationary=h.tile(8, 129), moving=h.t),
    ),
    (
        "M1",
        "has 8 rows and 16 columns; expected at most 32 and 8",
        lambda h: NISA.nc_matmul(
            dst=h.p, stationary=h.t, moving=h.t, tile_position=(0, 0), tile_size=(32, 8)
        ),
    ),
    (
        "M1",
        "dst (8, 16) float32 of psum: is 8 x 16; expected 16 x 16",
        lambda h: NISA.nc_matmul(dst=h.p, stationary=h.t, moving=h.u),
    ),
    (
        "E1",
        "is float8_e4m3fn",
        lambda h: NISA.nc_matmul(
            dst=h.p,
            stationary=h.tile(8, 8, dtype=NL.float8_e4m3fn),
            moving=h.tile(8, 16, dtype=NL.float8_e4m3fn),
        ),
    ),
    (
        "P1",
        "indices of src: are 3; expected 4",
        lambda h: NISA.dma_copy(
            dst=h.tile(4, 8), src=h.h.ap([[48, 4], [1, 8]], vector_offset=h.numbers[0:3, 0:1])
        ),
    ),
    ("P1", "axes (0, 1)", lambda h: NISA.dma_transpose(dst=h.t, src=h.u, axes=(0, 1))),
    (
        "E1",
        "has 4 bytes per element; expected 2 under hwdge",
        lambda h: NISA.dma_transpose(dst=h.tile(16, 8), src=h.u, dge_mode=NISA.dge_mode.hwdge),
    ),
    ("B1", "has 8 elements; expected 128", lambda h: NISA.dma_transpose(dst=h.one, src=h.u)),
    (
        "E1",
        "none of the DMA engine",
        lambda h: NISA.dma_compute(dst=h.t, srcs=[h.t, h.u], reduce_op=NL.maximum),
    ),
    ("B1", "srcs[1]", lambda h: NISA.dma_compute(dst=h.t, srcs=[h.t, h.one], reduce_op=NL.add)),
    (
        "E1",
        "predicate (8, 16) int32",
        lambda h: NISA.tensor_copy_predicated(dst=h.t, src=h.u, predicate=h.numbers),
    ),
    (
        "B2",
        "is in PSUM as predicate is",
        lambda h: NISA.tensor_copy_predicated(
            dst=h.t, src=h.p, predicate=h.tile(8, 16, dtype=NL.uint8, buffer=NL.psum)
        ),
    ),
    (
        "E1",
        "is no float32; expected the dtype of dst",
        lambda h: NISA.tensor_copy_predicated(
            dst=h.t, src=h.tile(8, 16, dtype=NL.bfloat16), predicate=h.bytes
        ),
    ),
    (
        "M1",
        "is 8 x 129; expected at most 128 x 128 on the tensor engine",
        lambda h: NISA.nc_transpose(dst=h.p, data=h.tile(8, 129)),
    ),
    (
        "M1",
        "at most 32 x 32 on the vector engine",
        lambda h: NISA.nc_transpose(dst=h.tile(33, 8), data=h.tile(8, 33)),
    ),
    ("P1", "is 8 x 16; expected 16 x 8", lambda h: NISA.nc_transpose(dst=h.p, data=h.t)),
    (
        "B2",
        "is written from psum by the tensor engine",
        lambda h: NISA.nc_transpose(
            dst=h.tile(16, 8, buffer=NL.psum), data=h.p, engine=NISA.engine.tensor
        ),
    ),
    (
        "E1",
        "is no float32; expected the dtype of data",
        lambda h: NISA.nc_transpose(dst=h.tile(16, 8, dtype=NL.bfloat16), data=h.t),
    ),
    (
        "P1",
        "has 31 entries",
        lambda h: NISA.nc_stream_shuffle(dst=h.t, src=h.u, shuffle_mask=[0] * 31),
    ),
    (
        "P1",
        "has 32 entries",
        lambda h: NISA.nc_stream_shuffle(dst=h.t, src=h.u, shuffle_mask=[32] * 32),
    ),
    (
        "E1",
        "differs in dtype or elements",
        lambda h: NISA.nc_stream_shuffle(dst=h.bytes, src=h.u, shuffle_mask=[0] * 32),
    ),
    (
        "P1",
        "has no partition 9",
        lambda h: NISA.nc_stream_shuffle(dst=h.t, src=h.u, shuffle_mask=[9] * 32),
    ),
    (
        "P1",
        "has 128 elements; expected 1",
        lambda h: NISA.register_load(NISA.register_alloc(), h.numbers),
    ),
    ("P1", "has 128 elements; expected 1", lambda h: NISA.register_alloc(h.numbers)),
    ("", "dst: is 3; expected a register", lambda h: NISA.register_move(3, 4)),
    (
        "B2",
        "is in PSUM as predicate is",
        lambda h: NISA.select_reduce(
            dst=h.t,
            predicate=h.tile(8, 16, dtype=NL.uint8, buffer=NL.psum),
            on_true=h.p,
            on_false=0.0,
        ),
    ),
    (
        "E1",
        "predicate (8, 16) int32",
        lambda h: NISA.select_reduce(dst=h.t, predicate=h.numbers, on_true=h.u, on_false=0.0),
    ),
    ("E1", "expected uint32", lambda h: NISA.nc_n_gather(dst=h.t, data=h.u, indices=h.numbers)),
    (
        "P1",
        "hold 16; expected 0 to 15",
        lambda h: (
            at := h.tile(8, 16, dtype=NL.uint32),
            NISA.memset(dst=at, value=16),
            NISA.nc_n_gather(dst=h.t, data=h.u, indices=at),
        ),
    ),
    ("P1", "is 8 x 16; expected 8 x 17", lambda h: NISA.nonzero_with_count(dst=h.numbers, src=h.t)),
    (
        "P1",
        "has 7 elements per partition; expected 8 to 16384",
        lambda h: NISA.max8(dst=h.tile(8, 8), src=h.t[0:8, 0:7]),
    ),
    ("P1", "is 8 x 16; expected 8 x 8", lambda h: NISA.max8(dst=h.t, src=h.u)),
    (
        "E1",
        "expected uint16 or uint32",
        lambda h: NISA.nc_find_index8(dst=h.tile(8, 8), data=h.t, vals=h.t[0:8, 0:8]),
    ),
    (
        "P1",
        "has 513 elements per partition; expected at most 512",
        lambda h: NISA.bn_stats(dst=h.tile(8, 6), data=h.tile(8, 513)),
    ),
    ("P1", "is 8 x 5; expected 8 x 6", lambda h: NISA.bn_stats(dst=h.tile(8, 5), data=h.t)),
    ("P1", "multiple of three", lambda h: NISA.bn_aggr(dst=h.tile(8, 2), data=h.t)),
    (
        "P3",
        "has 5 dims; expected at most 4",
        lambda h: NISA.iota(dst=h.t, pattern=[[1, 1]] * 4 + [[1, 16]]),
    ),
    ("P3", "has stride 32768 and count 2", long_steps),
    ("P1", "starts at -1; expected 0 or more", moved(-1)),
    ("P1", "reaches elements 192 to 239", moved(4)),
    (
        "U1",
        "was never written",
        lambda h: NISA.dma_copy(dst=h.tile(6, 8), src=h.h.select(0, Register())),
    ),
)


@pytest.mark.parametrize(
    ("check", "said", "act"),
    [*VIEWS, *INSTRUCTIONS],
    ids=[f"{check or 'none'}-{n}" for n, (check, _, _) in enumerate([*VIEWS, *INSTRUCTIONS])],
)
def test_a_misuse_is_refused_with_its_values(
    check: str, said: str, act: Callable[[Held], Any]
) -> None:
    with within(Run(machine("trn2"))) as run, pytest.raises(NkiError) as caught:
        act(Held(run))
    assert said in str(caught.value)
    assert caught.value.check == check


def test_patterns_in_bounds_are_those_that_reach_held_elements_alone() -> None:
    with within(Run(machine("trn2"))) as run:
        h = run.given(np.arange(12, dtype=np.float32))
        for outer, inner, offset in product((-5, -1, 0, 3, 5), (-2, -1, 1, 2), range(-1, 13)):
            reached = np.add.outer(outer * np.arange(3), inner * np.arange(2)) + offset
            try:
                found = h.ap([[outer, 3], [inner, 2]], offset=offset)
            except NkiError:
                assert reached.min() < 0 or reached.max() >= 12
            else:
                assert (found.array() == reached).all()


def test_operators_of_two_classes_are_warned_of() -> None:
    with within(Run(machine("trn2"))) as run:
        h = Held(run)
        NISA.tensor_scalar(
            dst=h.numbers, data=h.numbers, op0=NL.bitwise_and, operand0=-1, op1=NL.add, operand1=1
        )
        assert {w.check for w in run.found.values()} == {"O1"}
        assert (h.numbers.array() == 2).all()


def test_a_tile_may_begin_where_all_that_engines_access_may() -> None:
    run = Run(machine("trn2"))
    with within(run):
        t, far = NL.ndarray((16, 8), NL.float32), run.given(np.ones((16, 8), np.float32))
        NISA.dma_copy(dst=t[3:9], src=far[3:9])  # a transfer reaches any
        for n in (3, 5):
            NISA.memset(dst=t[5 : 5 + n], value=0)
        with pytest.raises(NkiError, match="starts at partition 6 of its tile"):
            NISA.memset(dst=t[6:8], value=0)

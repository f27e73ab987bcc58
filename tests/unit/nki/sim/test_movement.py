"""Patterns, selections, searches, gathers, DMA and registers, against numpy written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from axe_eq_backends.nki.sim import NkiError, simulate
from tests.unit.nki.sim.tiles import BF16, F32, NISA, NL, Array, draw, on_tiles, same


def test_patterns_count_and_select(rng: np.random.Generator) -> None:
    pattern = [[100, 2], [-7, 3], [1, 4]]
    wanted = np.array(
        [
            [p * 11 + 5 + 100 * i - 7 * j + k for i in range(2) for j in range(3) for k in range(4)]
            for p in range(6)
        ]
    )
    got = on_tiles(
        lambda d: NISA.iota(dst=d, pattern=pattern, offset=5, channel_multiplier=11),
        shape=(6, 24),
        dtype=np.int32,
    )
    assert (got == wanted).all()
    x = draw(rng, 6, 24)
    got = on_tiles(
        lambda d, t: NISA.affine_select(
            dst=d,
            pattern=pattern,
            channel_multiplier=11,
            on_true_tile=t,
            on_false_value=-9.0,
            cmp_op=NL.greater,
            offset=-60,
        ),
        x,
        shape=x.shape,
    )
    assert (got == np.where(wanted - 65 > 0, x, -9)).all()


def test_ranges_and_predicates_select(rng: np.random.Generator) -> None:
    x, low, high = (
        draw(rng, 5, 20),
        np.array([[0.0], [3], [5], [25], [-1]], F32),
        np.array([[20.0], [7], [5], [30], [2]], F32),
    )
    results: list[Array] = []

    def ranged(dst: Any, t: Any, a: Any, b: Any) -> None:
        res = NL.ndarray((5, 1), dtype=NL.float32, buffer=NL.sbuf)
        NISA.range_select(
            dst=dst,
            on_true_tile=t,
            comp_op0=NL.greater_equal,
            comp_op1=NL.less,
            bound0=a,
            bound1=b,
            reduce_res=res,
            range_start=2,
        )
        results.append(res.array().copy())

    at = np.arange(20) + 2
    wanted = np.where((at >= low) & (at < high), x, F32.type(-3.4028235e38))
    assert (on_tiles(ranged, x, low, high, shape=x.shape) == wanted).all()
    assert (results[0] == wanted.max(1, keepdims=True)).all()
    chosen = rng.integers(0, 3, (5, 20)).astype(np.uint8)
    for reverse in (False, True):
        got = on_tiles(
            lambda d, p, t, f, r=reverse: NISA.select_reduce(
                dst=d, predicate=p, on_true=t, on_false=f, reverse_pred=r
            ),
            chosen,
            x,
            low,
            shape=x.shape,
        )
        assert (got == np.where((chosen != 0) != reverse, x, low)).all()

    def predicated(dst: Any, p: Any, t: Any) -> None:
        NISA.memset(dst=dst, value=4.0)
        NISA.tensor_copy_predicated(dst=dst, src=t, predicate=p)

    assert (on_tiles(predicated, chosen, x, shape=x.shape) == np.where(chosen != 0, x, 4)).all()


def test_the_eight_largest_and_where_they_are() -> None:
    x = np.array(
        [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, -2]], F32
    )
    largest = on_tiles(lambda d, t: NISA.max8(dst=d, src=t), x, shape=(2, 8))
    assert largest.tolist() == [[9, 8, 6, 5, 5, 5, 4, 3], [0] * 8]
    found = on_tiles(
        lambda d, t, v: NISA.nc_find_index8(dst=d, data=t, vals=v),
        x,
        largest,
        shape=(2, 8),
        dtype=np.uint32,
    )
    assert found.tolist() == [[5, 11, 7, 4, 8, 10, 2, 0], list(range(8))]
    absent = np.full((2, 8), 77, F32)
    found = on_tiles(
        lambda d, t, v: NISA.nc_find_index8(dst=d, data=t, vals=v),
        x,
        absent,
        shape=(2, 8),
        dtype=np.uint16,
    )
    assert (found == 0xFFFF).all()
    data = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], F32)
    vals = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], F32)
    places: list[Array] = []

    def replaced(dst: Any, t: Any, v: Any) -> None:
        at = NL.ndarray((1, 8), dtype=NL.uint32, buffer=NL.sbuf)
        NISA.nc_match_replace8(dst=dst, data=t, vals=v, imm=-1.0, dst_idx=at)
        places.append(at.array().copy())

    assert on_tiles(replaced, data, vals, shape=data.shape).tolist() == [[1, 2, -1, 4, *[-1] * 7]]
    assert places[0].tolist() == [[2, 10, 9, 8, 7, 6, 5, 4]]  # as the documentation has it


def test_means_and_variances_of_parts(rng: np.random.Generator) -> None:
    x = draw(rng, 4, 700)

    def act(dst: Any, t: Any) -> None:
        stats = NL.ndarray((4, 12), dtype=NL.float32, buffer=NL.sbuf)
        NISA.bn_stats(dst=stats[0:4, 0:6], data=t[0:4, 0:511])
        NISA.bn_stats(dst=stats[0:4, 6:12], data=t[0:4, 511:700])
        NISA.bn_aggr(dst=dst, data=stats)

    wide = x.astype(np.float64)
    same(on_tiles(act, x, shape=(4, 2)), np.stack([wide.mean(1), wide.var(1)], 1), 1e-5)


def test_gathers_and_counts(rng: np.random.Generator) -> None:
    x, at = draw(rng, 6, 40), rng.integers(0, 40, (6, 9)).astype(np.uint32)
    got = on_tiles(lambda d, t, i: NISA.nc_n_gather(dst=d, data=t, indices=i), x, at, shape=(6, 9))
    assert (got == np.take_along_axis(x, at.astype(int), 1)).all()
    bits = np.zeros((17, 8), np.int32)
    bits[0], bits[16] = [0, 1, 1, 0, 0, 1, 0, 0], [0] * 8

    def count(dst: Any, t: Any) -> None:
        NISA.memset(dst=dst, value=7)
        NISA.nonzero_with_count(dst=dst, src=t, index_offset=16)

    got = on_tiles(count, bits, shape=(17, 9), dtype=np.int32)
    assert got[0].tolist() == [17, 18, 21, -1, -1, -1, -1, -1, 3]
    assert got[16].tolist() == [-1] * 8 + [0]
    assert (got[1:16] == 7).all()


def test_partitions_shuffle_in_their_quadrant(rng: np.random.Generator) -> None:
    x = draw(rng, 64, 5)
    mask = [31, 30, *range(29), 255]

    def act(dst: Any, t: Any) -> None:
        NISA.memset(dst=dst, value=1.0)
        NISA.nc_stream_shuffle(dst=dst, src=t, shuffle_mask=mask)

    got = on_tiles(act, x, shape=x.shape)
    for p in range(64):
        m = mask[p % 32]
        assert (got[p] == (1 if m == 255 else x[p // 32 * 32 + m])).all()


def test_dma_casts_turns_adds_gathers_and_scatters(rng: np.random.Generator) -> None:
    x = draw(rng, 40, 8)
    at = rng.permutation(40)[:10].astype(np.int32).reshape(10, 1)

    def kernel(given: Any, index: Any, table: Any) -> Any:
        out = NL.ndarray((10, 8), dtype=NL.bfloat16, buffer=NL.shared_hbm)
        i = NL.ndarray((10, 1), dtype=NL.int32, buffer=NL.sbuf)
        NISA.dma_copy(dst=i, src=index)
        t = NL.ndarray((10, 8), dtype=NL.float32, buffer=NL.sbuf)
        NISA.dma_copy(dst=t, src=given.ap([[8, 10], [1, 8]], vector_offset=i, indirect_dim=0))
        NISA.dma_copy(dst=out, src=t)
        NISA.dma_copy(dst=table.ap([[8, 10], [1, 8]], vector_offset=i, indirect_dim=0), src=t)
        row = NL.ndarray((1, 8), dtype=NL.float32, buffer=NL.sbuf)
        one = NL.ndarray((1, 1), dtype=NL.int32, buffer=NL.sbuf)
        NISA.memset(dst=one, value=7)
        NISA.dma_copy(dst=row, src=given.ap([[8, 1], [1, 8]], scalar_offset=one, indirect_dim=0))
        twice = NL.ndarray((1, 8), dtype=NL.float32, buffer=NL.shared_hbm)
        NISA.dma_compute(
            dst=twice, srcs=[row, given.select(0, 7).reshape((1, 8))], reduce_op=NL.add
        )
        turned = NL.ndarray((8, 40), dtype=NL.float32, buffer=NL.shared_hbm)
        held = NL.ndarray((8, 40), dtype=NL.float32, buffer=NL.sbuf)
        NISA.dma_transpose(dst=held, src=given)
        NISA.dma_copy(dst=turned, src=held)
        return out, table, twice, turned

    zeros = np.zeros((40, 8), F32)
    out, table, twice, turned = simulate(kernel, "k", x, at, zeros)[0]
    assert (out == x[at[:, 0]].astype(BF16)).all()
    wanted = zeros.copy()
    wanted[at[:, 0]] = x[at[:, 0]]
    assert (table == wanted).all()
    assert (twice == 2 * x[7:8]).all()
    assert (turned == x.T).all()
    at[3] = 40
    with pytest.raises(NkiError, match="hold 40; expected 0 to 39"):
        simulate(kernel, "k", x, at, zeros)


def test_rows_out_of_bounds_are_skipped_where_asked(rng: np.random.Generator) -> None:
    x, at = draw(rng, 4, 8), np.array([[2], [9], [0]], np.int32)

    def kernel(given: Any, index: Any) -> Any:
        out = NL.ndarray((3, 8), dtype=NL.float32, buffer=NL.shared_hbm)
        i, t = NL.load(index), NL.full((3, 8), 5.0, dtype=NL.float32)
        NISA.dma_copy(dst=t, src=given.vector_select(0, i), oob_mode=NISA.oob_mode.skip)
        NISA.dma_copy(dst=out, src=t)
        return out

    assert (simulate(kernel, "k", x, at)[0] == np.stack([x[2], np.full(8, 5.0), x[0]])).all()


def test_registers_hold_what_was_loaded(rng: np.random.Generator) -> None:
    def kernel(n: Any) -> Any:
        out = NL.ndarray((1, 1), dtype=NL.int32, buffer=NL.shared_hbm)
        t, register = NL.load(n), NISA.register_alloc()
        NISA.register_load(register, t)
        NISA.memset(dst=t, value=0)
        for _ in NL.dynamic_range(register):
            NISA.tensor_scalar(dst=t, data=t, op0=NL.add, operand0=2.0)
        NISA.register_store(t, register) if int(register) > 4 else None
        NISA.dma_copy(dst=out, src=t)
        return out

    assert [int(simulate(kernel, "k", np.array([[n]], np.int32))[0][0, 0]) for n in (0, 3, 5)] == [
        0,
        6,
        5,
    ]
    with pytest.raises(NkiError, match="was never written") as caught:
        simulate(lambda: range(NISA.register_alloc().__index__()), "k")
    assert caught.value.check == "U1"


def test_a_row_or_block_out_of_bounds_is_skipped_where_asked(rng: np.random.Generator) -> None:
    x = draw(rng, 4, 8)

    def kernel(given: Any, at: int) -> Any:
        out = NL.full((1, 8), 5.0, dtype=NL.float32, buffer=NL.shared_hbm)
        where = NISA.register_alloc(at)
        row = given.ap([[8, 1], [1, 8]], scalar_offset=where, indirect_dim=0)
        NISA.dma_copy(dst=out, src=row, oob_mode=NISA.oob_mode.skip)
        back = given.ap([[8, 1], [1, 8]], scalar_offset=where, indirect_dim=0)
        NISA.dma_copy(
            dst=back, src=out, oob_mode=NISA.oob_mode.skip, dst_rmw_op=NL.add if at < 4 else None
        )
        return out, given

    out, given = simulate(kernel, "k", x, 2)[0]
    assert (out == x[2]).all()
    assert (given == np.concatenate([x[:2], 2 * x[2:3], x[3:]])).all()
    out, given = simulate(kernel, "k", x, 4)[0]
    assert (out == 5).all()
    assert (given == x).all()


def test_sums_of_selections(rng: np.random.Generator) -> None:
    x, chosen = draw(rng, 5, 20), rng.integers(0, 2, (5, 20)).astype(np.uint8)
    found: list[Array] = []

    def act(dst: Any, p: Any, t: Any) -> None:
        res = NL.ndarray((5, 1), dtype=NL.float32)
        NISA.select_reduce(dst=dst, predicate=p, on_true=t, on_false=-7.0, reduce_res=res,
                           reduce_cmd=NISA.reduce_cmd.reset_reduce)  # fmt: skip
        found.append(res.array().copy())
        NISA.tensor_copy_predicated(dst=dst, src=3.0, predicate=p, reverse_pred=True)

    got = on_tiles(act, chosen, x, shape=x.shape)
    assert (found[0] == np.where(chosen, x, -7).max(1, keepdims=True)).all()
    assert (got == np.where(chosen, x, 3)).all()


def test_running_sums_go_on_over_instructions(rng: np.random.Generator) -> None:
    x = draw(rng, 4, 10)

    def act(dst: Any, t: Any) -> None:
        for part, cmd in (
            (slice(0, 5), NISA.reduce_cmd.load_reduce),
            (slice(5, 10), NISA.reduce_cmd.reduce),
        ):
            NISA.tensor_scalar_cumulative(
                dst=dst[0:4, part],
                src=t[0:4, part],
                op0=NL.bypass,
                op1=NL.add,
                imm0=0.0,
                imm1=100.0,
                reduce_cmd=cmd,
            )

    same(on_tiles(act, x, shape=x.shape), 100 + np.cumsum(x.astype(np.float64), 1), 1e-5)
    total: list[Array] = []

    def newest(dst: Any, t: Any) -> None:
        res = NL.ndarray((4, 1), dtype=NL.float32)
        NISA.exponential(dst=dst, src=t, reduce_res=res, reduce_cmd=NISA.reduce_cmd.reset_reduce)
        NISA.activate2(
            dst=dst,
            op=NL.copy,
            data=dst,
            imm0=0.0,
            imm1=0.0,
            op0=NL.bypass,
            op1=NL.bypass,
            reduce_op=NL.maximum,
            reduce_res=NL.ndarray((4, 1), dtype=NL.float32),
            reduce_cmd=NISA.reduce_cmd.reset_reduce,
        )
        total.append(res.array().copy())

    same(on_tiles(newest, x, shape=x.shape, target="trn3"), np.exp(x), 1e-5)
    same(total[0], np.exp(x).sum(1, keepdims=True), 1e-5)


@pytest.mark.parametrize(
    ("shape", "order"), [((6, 5), (1, 0)), ((4, 3, 6), (2, 1, 0)), ((2, 3, 4, 6), (3, 1, 2, 0))]
)
def test_a_dma_reverses_outer_and_inner_dims(
    shape: tuple[int, ...], order: tuple[int, ...], rng: np.random.Generator
) -> None:
    x = draw(rng, *shape, dtype=BF16)
    wanted = x.transpose(order)
    for axes in (None, order):
        got = on_tiles(
            lambda d, t, a=axes: NISA.dma_transpose(dst=d, src=t, axes=a),
            x,
            shape=wanted.shape,
            dtype=BF16,
        )
        assert (got == wanted).all()


def test_bits_are_reduced_over_partitions() -> None:
    x = np.array([[0b1100, 2**30], [0b1010, 2**30 + 1]], np.int32)
    got = on_tiles(lambda d, t: NISA.tensor_partition_reduce(dst=d, op=NL.bitwise_and, data=t), x,
                   shape=(1, 2), dtype=np.int32)  # fmt: skip
    assert got.tolist() == [[0b1000, 2**30]]


def test_no_bias_is_a_bias_of_zero_on_the_first_machine() -> None:
    x = np.array([[1.0, 2.0]], np.float32)
    got = on_tiles(lambda d, t: NISA.activation(dst=d, op=NL.copy, data=t, bias=0.0), x,
                   shape=(1, 2), target="trn1")  # fmt: skip
    assert (got == x).all()

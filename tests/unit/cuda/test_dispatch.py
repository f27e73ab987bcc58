"""Sixty copies, products and reductions: which instruction each gets, or why none fits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from axe_eq.errors import DispatchError
from axe_eq.kernel.cells import IDENTITY
from axe_eq.kernel.dispatch import Choice, Names, choose
from axe_eq.kernel.expr import var
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.ir import Where, span
from axe_eq.layout import Layout
from axe_eq_backends.cuda.families import derivations
from axe_eq_backends.cuda.instrs import K_MAJOR, MN_MAJOR
from axe_eq_backends.cuda.mma import fragment
from axe_eq_backends.cuda.schedules import tiles
from axe_eq_backends.cuda.target import b200, h200
from axe_eq_backends.cuda.wgmma import accumulator

CTA, ELECT, GROUP = Where("cta", 4), Where("elect", 4), Where("warpgroup", 4)
FORMS = {f.name: f for f in K_MAJOR + MN_MAJOR}
ROW = var("row", 64, high=4096)


def only(write: Callable[[ThreadBuilder], None]) -> ir.Primitive:
    """The primitive that `write` records."""
    k = ThreadBuilder("k", 4)
    write(k)
    return next(s for s in k.kernel.body if isinstance(s, ir.Primitive))


def outcome(primitive: ir.Primitive, where: Where, target: Any = h200) -> Choice:
    return choose(primitive, target, where, derivations(), Names())


# -- register tiles and memory --


def vectors(dtype: str, wide: int, cols: int = 128) -> Callable[[ThreadBuilder], ir.Buffer]:
    """(8, cols) over 128 threads, `wide` neighbours a thread."""
    across = cols // wide
    shard = [
        (1024 // (128 * wide), wide, "reg"),
        (128 // across, across, "tx"),
        (across, 1, "tx"),
        (wide, 1, "reg"),
    ]
    layout = Layout([i for i in shard if i[0] > 1])
    return lambda k: k.reg("t", dtype, (8, cols), layout)


def load(dtype: str, wide: int, shape: Any, begin: Any = (0, 0), **place: Any) -> ir.Primitive:
    def write(k: ThreadBuilder) -> None:
        t, x = vectors(dtype, wide)(k), k.tensor("x", dtype, shape, **place)
        k.copy(t.all, x[span(begin[0], 8), span(begin[1], 128)])

    return only(write)


def shared(
    dtype: str, layout: Layout | None, tile: Layout, store: bool, turned: bool = False
) -> Any:
    def write(k: ThreadBuilder) -> None:
        t, s = k.reg("t", dtype, (64, 64), tile), k.smem("s", dtype, (64, 64), layout)
        view = s.all.T if turned else s.all
        k.copy(*((view, t.all) if store else (t.all, view)))

    return only(write)


FRAGMENT = Layout(
    [(4, 1, "warp"), (2, 2, "reg"), (8, 4, "lane"), (8, 4, "reg"), (4, 1, "lane"), (2, 1, "reg")]
)
ROWS16 = Layout([(4, 8, "reg"), (16, 8, "tx"), (8, 1, "tx"), (8, 1, "reg")])
SWIZZLED, PLAIN = tiles.panels((), 64, 64, 2), Layout([(64, 64), (64, 1)])
TURNED = tiles.transposed_panels((), 64, 64, 2)
PADDED = Layout([(64, 72), (64, 1)])

ACCEPTED: dict[str, tuple[Callable[[], ir.Primitive], Where, str]] = {
    "16 bytes": (lambda: load("f16", 8, (64, 128)), CTA, "ldst.ld_global: 16 bytes a thread"),
    "8 bytes": (lambda: load("f16", 4, (64, 128)), CTA, "ldst.ld_global: 8 bytes a thread"),
    "f32": (lambda: load("f32", 4, (64, 128)), CTA, "ldst.ld_global: 16 bytes a thread"),
    "odd pitch": (
        lambda: load("f16", 8, (64, 128), strides=(133, 1)),
        CTA,
        "ldst.ld_global: 2 bytes a thread",
    ),
    "even pitch": (
        lambda: load("f16", 8, (64, 128), strides=(134, 1)),
        CTA,
        "ldst.ld_global: 4 bytes a thread",
    ),
    "row tail": (
        lambda: load("f16", 8, (60, 128), (ROW, 0)),
        CTA,
        "16 bytes a thread, dims [0] guarded",
    ),
    "column tail": (
        lambda: load("f16", 8, (64, 132), (0, ROW)),
        CTA,
        "8 bytes a thread, dims [1] guarded",
    ),
    "odd tail of padded rows": (
        lambda: load("f16", 8, (64, 133), (0, ROW), strides=(136, 1)),
        CTA,
        "16 bytes a thread, dims [1] guarded",
    ),
    "odd tail": (
        lambda: load("f16", 8, (64, 133), (0, ROW)),
        CTA,
        "2 bytes a thread, dims [1] guarded",
    ),
    "columns contiguous": (
        lambda: load("f16", 8, (64, 128), strides=(1, 64)),
        CTA,
        "ldst.ld_global: 2 bytes a thread",
    ),
    "run-time rows": (
        lambda: load("f16", 8, (var("M"), 128), (ROW, 0)),
        CTA,
        "16 bytes a thread, dims [0] guarded",
    ),
    "run-time columns": (
        lambda: load("f16", 8, (64, var("N", 8)), (0, ROW)),
        CTA,
        "16 bytes a thread, dims [1] guarded",
    ),
    "matrix store": (
        lambda: shared("f16", SWIZZLED, FRAGMENT, True),
        CTA,
        "matrix.stmatrix: 4 calls x4, 1-way",
    ),
    "matrix load": (
        lambda: shared("f16", SWIZZLED, FRAGMENT, False),
        CTA,
        "matrix.ldmatrix: 4 calls x4, 1-way",
    ),
    "bf16 matrices": (lambda: shared("bf16", SWIZZLED, FRAGMENT, True), CTA, "matrix.stmatrix"),
    "turned store": (
        lambda: shared("f16", SWIZZLED, FRAGMENT, True, turned=True),
        CTA,
        "4 calls x4.trans, 1-way",
    ),
    "turned load": (
        lambda: shared("f16", SWIZZLED, FRAGMENT, False, turned=True),
        CTA,
        "4 calls x4.trans, 1-way",
    ),
    "column panels": (lambda: shared("f16", TURNED, FRAGMENT, True), CTA, "x4.trans, 1-way"),
    "padded rows": (lambda: shared("f16", PADDED, FRAGMENT, True), CTA, "4 calls x4, 1-way"),
    "unswizzled": (
        lambda: shared("f16", PLAIN, FRAGMENT, True),
        CTA,
        "matrix.stmatrix: 4 calls x4, 8-way",
    ),
    "vectors to smem": (
        lambda: shared("f16", SWIZZLED, ROWS16, True),
        CTA,
        "st_shared: 16 bytes a thread, 1-way",
    ),
    "vectors from smem": (
        lambda: shared("f16", SWIZZLED, ROWS16, False),
        CTA,
        "ld_shared: 16 bytes a thread, 1-way",
    ),
    "vectors turned": (
        lambda: shared("f16", SWIZZLED, ROWS16, False, turned=True),
        CTA,
        "ld_shared: 2 bytes a thread",
    ),
    "f32 smem": (
        lambda: shared("f32", Layout([(64, 65), (64, 1)]), ROWS16, True),
        CTA,
        "4 bytes a thread",
    ),
}


# -- bulk copies and ordinary async copies --


def bulk(
    shape: Any,
    tile: tuple[int, int],
    smem: Layout | None,
    *,
    dtype: str = "f16",
    store: bool = False,
    begin: Any = (0, 0),
    barrier: bool = True,
    **place: Any,
) -> ir.Primitive:
    k = ThreadBuilder("k", 4)
    x, s = k.tensor("x", dtype, shape, **place), k.smem("s", dtype, tile, smem)
    part = x[span(begin[0], tile[0]), span(begin[1], tile[1])]
    copy = ir.CopyAsync(*((part, s.all) if store else (s.all, part)))
    if barrier and not store:
        copy.barrier = k.mbarriers("b", 1)
    return copy


BLOCKED = Layout([(8, 32768), (64, 64), (8, 4096), (64, 1)])

ACCEPTED |= {
    "swizzled box": (
        lambda: bulk((256, 64), (64, 64), SWIZZLED),
        ELECT,
        "1 boxes of 64x64, swizzle 128",
    ),
    "plain box": (lambda: bulk((256, 64), (64, 64), PLAIN), ELECT, "1 boxes of 64x64, swizzle 0"),
    "two panels": (
        lambda: bulk((256, 128), (64, 128), tiles.panels((), 64, 128, 2)),
        ELECT,
        "2 boxes of 64x64",
    ),
    "column-major": (
        lambda: bulk((256, 64), (64, 64), TURNED, strides=(1, 256)),
        ELECT,
        "1 boxes of 64x64, swizzle 128",
    ),
    "tall": (
        lambda: bulk((1024, 64), (512, 64), tiles.panels((), 512, 64, 2)),
        ELECT,
        "2 boxes of 64x256",
    ),
    "store": (lambda: bulk((256, 64), (64, 64), SWIZZLED, store=True), ELECT, "tma.store"),
    "f32 box": (
        lambda: bulk((256, 32), (64, 32), tiles.panels((), 64, 32, 4), dtype="f32"),
        ELECT,
        "32x64, swizzle 128",
    ),
    "32-byte swizzle": (
        lambda: bulk((256, 16), (64, 16), tiles.panels((), 64, 16, 2, 32)),
        ELECT,
        "16x64, swizzle 32",
    ),
    "ragged": (
        lambda: bulk((250, 72), (64, 64), SWIZZLED, begin=(ROW, ROW)),
        ELECT,
        "1 boxes of 64x64",
    ),
    "blocked tensor": (
        lambda: bulk((512, 512), (64, 64), SWIZZLED, layout=BLOCKED),
        ELECT,
        "1 boxes of 64x64x1x1",
    ),
    "run-time pitch": (
        lambda: bulk((var("M"), var("K", 8)), (64, 64), SWIZZLED, begin=(ROW, 0)),
        ELECT,
        "1 boxes",
    ),
    "cp.async 16": (
        lambda: bulk((256, 64), (64, 64), SWIZZLED, barrier=False),
        CTA,
        "4 chunks of 16 bytes",
    ),
    "cp.async 8": (
        lambda: bulk((256, 68), (64, 64), SWIZZLED, begin=(0, 4), barrier=False),
        CTA,
        "chunks of 8 bytes",
    ),
    "cp.async 4": (
        lambda: bulk((256, 70), (64, 64), SWIZZLED, barrier=False),
        CTA,
        "chunks of 4 bytes",
    ),
}


# -- products --


def product(
    a: str = "K 128B",
    b: str = "K 128B",
    *,
    m: int = 64,
    n: int = 128,
    k: int = 64,
    dtype: str = "f16",
    acc: Layout | None = None,
    asynchronous: bool = True,
) -> ir.Primitive:
    def write(kb: ThreadBuilder) -> None:
        x = kb.smem("a", dtype, (1, m, k), tiles.operand(1, m, k, 2, FORMS[a]))
        y = kb.smem("b", dtype, (1, n, k), tiles.operand(1, n, k, 2, FORMS[b]))
        layout = acc or accumulator(m, n)
        c = kb.reg("acc", "f32", (m, n), layout)
        (kb.gemm_async if asynchronous else kb.gemm)(c.all, x[0], y[0], 0)

    return only(write)


B_COLS = [(4, 1, "lane"), (2, 1, "reg")]


def of_warps(b: Layout | None = None) -> ir.Primitive:
    """64 x 64 x 16 by four warps, from registers."""

    def write(k: ThreadBuilder) -> None:
        x = k.reg("x", "f16", (64, 16), fragment("a", 64, 16, (2, 2)))
        place = Layout([*b.shard[:3], (2, 2, "reg"), *B_COLS], [(2, 2, "warp")]) if b else None
        y = k.reg("y", "f16", (64, 16), place or fragment("b", 64, 16, (2, 2)))
        c = k.reg("c", "f32", (64, 64), fragment("c", 64, 64, (2, 2)))
        k.gemm(c.all, x.all, y.all, 1)

    return only(write)


def of_lanes(a: Layout | None = None, dtype: str = "f32") -> ir.Primitive:
    """64 x 64 x 4 by 128 threads, 8 x 4 elements each."""
    rows, cols = [(8, 16, "tx"), (8, 4, "reg")], [(4, 1, "reg"), (16, 1, "tx")]

    def write(k: ThreadBuilder) -> None:
        x = k.reg("x", dtype, (64, 4), a or Layout([*rows, (4, 1, "reg")], [(16, 1, "tx")]))
        spread = Layout([(4, 4, "reg"), (16, 1, "tx"), (4, 1, "reg")], [(8, 16, "tx")])
        y = k.reg("y", dtype, (64, 4), spread)
        c = k.reg("c", "f32", (64, 64), Layout([*rows, *cols]))
        k.gemm(c.all, x.all, y.all, 1)

    return only(write)


ACCEPTED |= {
    "product of warps": (lambda: of_warps(), CTA, "mma.f16: 8 x m16n8k16 a warp"),
    "product of lanes": (lambda: of_lanes(), CTA, "fma.f32: 128 multiply-adds a thread"),
    **{f"a {name}": (partial(product, a=name), GROUP, f"a {name}") for name in FORMS},
    **{f"b {name}": (partial(product, b=name), GROUP, f"b {name}") for name in FORMS},
    "bf16 product": (lambda: product(dtype="bf16"), GROUP, "wgmma.bf16: 4 x m64n128k16"),
    "two row tiles": (lambda: product(m=128), GROUP, "8 x m64n128k16"),
    "wide": (lambda: product(n=512), GROUP, "8 x m64n256k16"),
    "n 24": (lambda: product(n=24), GROUP, "4 x m64n24k16"),
    "whole panels": (
        lambda: product(b="MN 128B", n=320), GROUP, "8 x m64n192k16 and m64n128k16",
    ),
    "whole lines": (lambda: product(b="MN 64B", n=288), GROUP, "8 x m64n160k16 and m64n128k16"),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_expected_instruction_is_chosen(name: str) -> None:
    make, where, shown = ACCEPTED[name]
    choice = outcome(make(), where)
    assert shown in f"{choice.plan.row.name}: {choice.plan.notes}"


HALF = Layout([(4, 1, "warp"), (16, 1, "lane"), (64, 1, "reg")])
REFUSED: dict[str, tuple[Callable[[], ir.Primitive], Where, str]] = {
    "tma outside one thread": (
        lambda: bulk((256, 64), (64, 64), SWIZZLED),
        CTA,
        "tma.load: scope cta; needs one elected",
    ),
    "tma without a barrier": (
        lambda: bulk((256, 64), (64, 64), SWIZZLED, barrier=False),
        ELECT,
        "no barrier to complete on",
    ),
    "pitch of 66": (lambda: bulk((256, 66), (64, 64), SWIZZLED), ELECT, "stride of 132 bytes"),
    "more rows than a map has": (
        lambda: bulk(((1 << 32) + 64, 64), (64, 64), SWIZZLED),
        ELECT,
        "extent 4294967360",
    ),
    "rows further apart than a map has": (
        lambda: bulk((256, 1 << 39), (64, 64), SWIZZLED),
        ELECT,
        "stride of 1099511627776 bytes",
    ),
    "short rows": (
        lambda: bulk((256, 64), (64, 4), Layout([(64, 4), (4, 1)])),
        ELECT,
        "contiguous rows of 8 bytes",
    ),
    "rows wider than the swizzle": (
        lambda: bulk(
            (256, 128), (64, 128), Layout([(64, 128), (128, 1)], swizzle=tiles.swizzle(128, 2))
        ),
        ELECT,
        "a box begins at element",
    ),
    "another swizzle": (
        lambda: bulk(
            (256, 64), (64, 64), Layout([(64, 64), (64, 1)], swizzle=tiles.swizzle(128, 4))
        ),
        ELECT,
        "16-byte chunks XORed",
    ),
    "no contiguous dim": (
        lambda: bulk((256, 64), (64, 64), SWIZZLED, strides=(128, 2)),
        ELECT,
        "one stride 1",
    ),
    "begin inside an atom": (
        lambda: only(
            lambda k: k.copy(
                k.reg(
                    "t",
                    "f16",
                    (8, 64),
                    Layout([(4, 1, "warp"), (2, 1, "reg"), (32, 1, "lane"), (2, 2, "reg")]),
                ).all,
                k.smem("s", "f16", (64, 64), SWIZZLED)[span(var("r", 2), 8)],
            )
        ),
        CTA,
        "inside its swizzle's pattern",
    ),
    "cp.async of odd pitch": (
        lambda: bulk((256, 65), (64, 64), SWIZZLED, barrier=False),
        CTA,
        "aligned to 2 bytes",
    ),
    "cp.async to global": (
        lambda: bulk((256, 64), (64, 64), SWIZZLED, store=True),
        CTA,
        "cp.async: reads smem",
    ),
    "half of the lanes": (
        lambda: only(
            lambda k: k.copy(
                k.reg("t", "f16", (64, 64), HALF).all, k.tensor("x", "f16", (64, 64)).all
            )
        ),
        CTA,
        "covers lane 0..0 + 16; needs 0..31 exactly",
    ),
    "three warps": (lambda: load("f16", 8, (64, 128)), Where("cta", 3), "needs 0..2 exactly"),
    "global swizzle": (
        lambda: load("f16", 8, (8, 128), layout=tiles.panels((), 8, 128, 2)),
        CTA,
        "is swizzled",
    ),
    "product outside a warpgroup": (
        lambda: product(),
        ELECT,
        "scope elect of 4 warps; needs one warpgroup",
    ),
    "product of two warps": (lambda: product(), Where("cta", 2), "of 2 warps"),
    "synchronous shared product": (
        lambda: product(asynchronous=False),
        GROUP,
        "wgmma.f16: the product is synchronous",
    ),
    "rows not 64": (
        lambda: product(m=72, acc=Layout([(72, 4, "reg"), (4, 1, "reg"), (32, 1, "lane")])),
        GROUP,
        "tile of 72 x 128",
    ),
    "k not 16": (lambda: product("K none", "K none", k=24), GROUP, "tile of 64 x 128 x 24"),
    "f32 operands": (lambda: _f32_product(), GROUP, "dtypes f32 f32 f32; needs f16 f16 f32"),
    "foreign accumulator": (
        lambda: product(
            acc=Layout([(4, 1, "warp"), (16, 128, "reg"), (32, 1, "lane"), (4, 1, "reg")])
        ),
        GROUP,
        "inner part",
    ),
    "unswizzled rows as matrix operand": (
        lambda: _plain_product(),
        GROUP,
        "K none: dim 0 has stride 64",
    ),
    "misaligned operand": (lambda: _shifted_product(), GROUP, "begins at element"),
    "map over other threads": (lambda: _foreign_map(), CTA, "where the result is on"),
    "warps without scratch": (lambda: _bare_reduce(), CTA, "with scratch None"),
    "warps and registers in another order": (
        lambda: of_warps(b=Layout([(2, 1, "warp"), (4, 4, "reg"), (8, 4, "lane"), *B_COLS])),
        CTA,
        "warps divide operands and accumulator differently",
    ),
    "lanes that hold other rows": (
        lambda: of_lanes(a=Layout([(8, 4, "reg"), (8, 16, "tx"), (4, 1, "reg")], [(16, 1, "tx")])),
        CTA,
        "lies on",
    ),
    "16-bit factors on lanes": (
        lambda: of_lanes(dtype="f16"),
        CTA,
        "dtypes f16 f16 f32; needs f32 f32 f32",
    ),
}


def _f32_product() -> ir.Primitive:
    def write(k: ThreadBuilder) -> None:
        a, b = k.smem("a", "f32", (64, 32)), k.smem("b", "f32", (64, 32))
        k.gemm_async(k.reg("c", "f32", (64, 64), accumulator(64, 64)).all, a.all, b.all, 0)

    return only(write)


def _plain_product() -> ir.Primitive:
    def write(k: ThreadBuilder) -> None:
        a, b = k.smem("a", "f16", (64, 64)), k.smem("b", "f16", (64, 64))
        k.gemm_async(k.reg("c", "f32", (64, 64), accumulator(64, 64)).all, a.all, b.all, 0)

    return only(write)


def _shifted_product() -> ir.Primitive:
    def write(k: ThreadBuilder) -> None:
        a = k.smem("a", "f16", (128, 64), tiles.panels((), 128, 64, 2))
        b = k.smem("b", "f16", (64, 64), SWIZZLED)
        part = a[span(var("r", 2, high=64), 64)]
        k.gemm_async(k.reg("c", "f32", (64, 64), accumulator(64, 64)).all, part, b.all, 0)

    return only(write)


def _foreign_map() -> ir.Primitive:
    def write(k: ThreadBuilder) -> None:
        x, y = k.reg("x", "f16", (64, 64), FRAGMENT), k.reg("y", "f16", (64, 64), ROWS16)
        k.map(IDENTITY, x.all, y.all)

    return only(write)


def _bare_reduce() -> ir.Primitive:
    def write(k: ThreadBuilder) -> None:
        x = k.reg("x", "f32", (8, 128), Layout([(8, 1, "reg"), (128, 1, "tx")]))
        k.reduce("+", k.reg_reduced("s", "f32", x.all, [1]).all, x.all, [1])

    return only(write)


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name: str) -> None:
    make, where, reason = REFUSED[name]
    with pytest.raises(DispatchError) as refusal:
        outcome(make(), where)
    assert reason in str(refusal.value)


def test_sixty_cases_twenty_of_them_refused() -> None:
    assert len(ACCEPTED) + len(REFUSED) >= 60
    assert len(REFUSED) >= 20


def test_a_named_instruction_is_taken_or_refused() -> None:
    primitive = load("f16", 8, (64, 128))
    assert isinstance(primitive, ir.Copy)
    primitive.via = "ldst.ld_global"
    assert outcome(primitive, CTA).plan.row.name == "ldst.ld_global"
    primitive.via = "matrix"
    with pytest.raises(DispatchError, match="via matrix"):
        outcome(primitive, CTA)


def test_a_target_without_wgmma_refuses_its_products() -> None:
    with pytest.raises(DispatchError, match="no instruction of b200"):
        outcome(product(), GROUP, b200)

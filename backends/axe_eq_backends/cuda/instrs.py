"""Instruction rows of Hopper: what layout algebra cannot know.

A row's family is its name up to the first dot; the family's module derives plans for it (`copies`,
`mma`, `warps`), emits its text and holds its meaning. Adding a row of a known family touches this
file only. Rates are measured where the comment says so, else derived from the clock and the unit
counts.

Sources: PTX ISA 8.5, sections 9.7.8 (copies), 9.7.14 (mma, ldmatrix, stmatrix), 9.7.15 (wgmma);
rates: one H200, burst protocol, random normal data, 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from axe_eq.layout import Layout
from axe_eq.target import Instr


@dataclass(frozen=True)
class SmemForm:
    """One way a matrix operand may lie in shared memory (PTX ISA, matrix descriptor).

    Attributes:
        name: key of the row's efficiency table.
        major: "K" (the reduced dim is contiguous) or "MN".
        width: bytes of one contiguous row of the pattern: the swizzle's width, 16 without one.
        code: the descriptor's layout type, bits 62-63.
    """

    name: str
    major: str
    width: int
    code: int

    @property
    def swizzle_bits(self) -> int:
        """Bits of the XOR swizzle that this form needs; 0 for none."""
        return self.width.bit_length() - 5


K_MAJOR = tuple(
    SmemForm(f"K {name}", "K", width, code)
    for name, width, code in (("128B", 128, 1), ("64B", 64, 2), ("32B", 32, 3), ("none", 16, 0))
)
MN_MAJOR = tuple(
    SmemForm(f"MN {name}", "MN", width, code)
    for name, width, code in (("128B", 128, 1), ("64B", 64, 2), ("32B", 32, 3))
)

# Against the 128-byte swizzle in the same run, 128x256 tiles: 64 bytes 0.95-0.97, 32 bytes
# 0.51-0.58, none 0.30-0.33. Not separated: TMA's writes of short rows, wgmma's reads, or the extra
# barriers.
_WIDTH_EFFICIENCY = {
    "": 1.0,
    "K 128B": 1.0,
    "K 64B": 0.95,
    "K 32B": 0.55,
    "K none": 0.30,
    "MN 128B": 1.0,
    "MN 64B": 0.95,
    "MN 32B": 0.51,
}


def _wgmma(dtype: str, flops_per_s: float, k: int, forms: tuple[SmemForm, ...]) -> Instr:
    return Instr(
        name=f"wgmma.{dtype}",
        primitive="gemm",
        shape=(64, 256, k),
        dtypes=((dtype, dtype, "f32"),),
        scope="warpgroup",
        completion="wgmma",
        proxy="async",
        flops_per_s=flops_per_s,
        efficiency={
            n: e for n, e in _WIDTH_EFFICIENCY.items() if not n or n in {f.name for f in forms}
        },
        operands={"a": forms, "b": forms},
        limits={"n_step": 8, "n_max": 256},
    )


# Fragments of a warp: an (m, k) operand a, an (n, k) operand b, an (m, n) accumulator c (PTX ISA
# 9.7.14.5.8). Neighbours of 16 bits share a register.
_RESULT = Layout([(2, 2, "reg"), (8, 4, "lane"), (4, 1, "lane"), (2, 1, "reg")])
_PAIRS = {
    "a": Layout(
        [(2, 2, "reg"), (8, 4, "lane"), (2, 4, "reg"), (4, 1, "lane"), (2, 1, "reg")]
    ),
    "b": Layout([(8, 4, "lane"), (2, 2, "reg"), (4, 1, "lane"), (2, 1, "reg")]),
    "c": _RESULT,
}  # fmt: skip
_SINGLES = {
    "a": Layout([(2, 1, "reg"), (8, 4, "lane"), (2, 2, "reg"), (4, 1, "lane")]),
    "b": Layout([(8, 4, "lane"), (2, 1, "reg"), (4, 1, "lane")]),
    "c": _RESULT,
}


def _mma(
    dtype: str,
    acc: str,
    k: int,
    flops_per_s: float,
    fragments: Mapping[str, Layout],
    accumulators: int = 1,
) -> Instr:
    return Instr(
        name=f"mma.{dtype}",
        primitive="gemm",
        shape=(16, 8, k),
        dtypes=((dtype, dtype, acc),),
        scope="warp",
        flops_per_s=flops_per_s,
        operands=fragments,
        limits={"accumulators": accumulators},
    )


WGMMA = (
    _wgmma("f16", 770e12, 16, K_MAJOR + MN_MAJOR),
    # bf16 ran 1.043 times faster than f16 with the same kernel on random normal data (power).
    _wgmma("bf16", 800e12, 16, K_MAJOR + MN_MAJOR),
)
MMA = (
    # What attention through mma.sync reached: a lower bound of the instruction's rate.
    _mma("f16", "f32", 16, 362e12, _PAIRS),
    _mma("bf16", "f32", 16, 362e12, _PAIRS),
    # Derived: 132 SM x 1.98 GHz x 2 x 128 (datasheet: 67e12). Fragments of 16 deep leave too
    # few registers for a tile of 128 x 64. Warps have two accumulators at least of which
    # something is stored: with one, whose products follow each other while the next fragments
    # are read, sums were wrong, and other ones in every run, for 4 of 10 shapes; with two or
    # more, in ten tiles each, for none (H200, NVRTC 13.0 and 13.5, 2026-11-27; a loop of such
    # products whose fragments are read before each is right). Products by m8n8k4 were right
    # there too, at half the rate.
    _mma("f64", "f64", 8, 66.9e12, _SINGLES, accumulators=2),
)


def _fma(dtype: str, flops_per_s: float) -> Instr:
    return Instr(
        name=f"fma.{dtype}",
        primitive="gemm",
        shape=(64, 64, 8),
        dtypes=((dtype, dtype, dtype),),
        scope="thread",
        flops_per_s=flops_per_s,
    )


# Derived: 132 SM x 1.98 GHz x 2 x lanes, 128 of f32 and 64 of f64 and i32; i64 takes about four
# instructions for one; narrower integers are computed as i32.
FMA = (
    _fma("f32", 66.9e12), _fma("f64", 33.4e12), _fma("i32", 33.4e12), _fma("i64", 8.4e12),
    _fma("i8", 33.4e12), _fma("u8", 33.4e12), _fma("i16", 33.4e12),
)  # fmt: skip

# A tensor map holds at most 5 dims and boxes of at most 256 elements per dim; strides and the base
# are multiples of 16 bytes; the smem side is 128-byte aligned (more under a swizzle).
_TMA_LIMITS = {"rank": 5, "box": 256, "stride_bytes": 16, "align_bytes": 128}
_ANY = (("f16",), ("bf16",), ("f32",), ("i32",))
# What registers hold: narrow elements packed in words, wide ones in pairs of them.
_STORED = (
    *_ANY,
    ("f64",),
    ("i64",),
    ("f8e4m3",),
    ("f8e5m2",),
    ("bool",),
    ("i8",),
    ("u8",),
    ("i16",),
)
_MERGED = (("f16",), ("bf16",), ("i32",))  # where memory rounds as cells do
TMA = (
    Instr("tma.load", "copy_async", (), _STORED, "thread", "mbarrier", "async", limits=_TMA_LIMITS),
    # Into the same bytes of several CTAs' shared memory, named by a mask of 16 bits.
    Instr(
        "tma.load_multicast",
        "copy_async",
        (),
        _STORED,
        "thread",
        "mbarrier",
        "async",
        limits=_TMA_LIMITS,
    ),
    Instr("tma.store", "copy_async", (), _STORED, "thread", "bulk", "async", limits=_TMA_LIMITS),
    # f32 is added by memory too, but what is subnormal is lost there (PTX ISA 9.7.13, red).
    Instr("tma.merge", "merge_async", (), _MERGED, "thread", "bulk", "async", limits=_TMA_LIMITS),
)
CP_ASYNC = (
    Instr(
        "cp.async", "copy_async", (), _ANY, "thread", "cp_async", "generic", limits={"bytes": 16}
    ),
)
LOAD_STORE = tuple(
    Instr(f"ldst.{place}", "copy", (), _STORED, limits={"bytes": 16})
    for place in ("ld_global", "ld_global_apart", "st_global", "ld_shared", "st_shared")
)
# Merged in memory, wherever it is: at the scope of the system.
MERGE = (Instr("ldst.merge_global", "merge", (), _MERGED, limits={"bytes": 4}),)
# Loads from the shared memory of a CTA of the cluster.
FETCH = (Instr("ldst.ld_peer", "fetch", (), _STORED, limits={"bytes": 16}),)
# Loads at addresses that depend on registers: vectors where one index serves all of one.
GATHER = (Instr("gather.ld_global", "gather", (), _STORED, limits={"bytes": 16}),)
MATRIX = (
    Instr("matrix.ldmatrix", "copy", (8, 8), (("f16",), ("bf16",)), "warp", limits={"count": 4}),
    Instr("matrix.stmatrix", "copy", (8, 8), (("f16",), ("bf16",)), "warp", limits={"count": 4}),
)
REGISTERS = (
    Instr("move.reg", "copy", (), _STORED),
    Instr("cells.map", "map", (), ()),
    Instr("cells.fill", "fill", (), ()),
    Instr("cells.index", "index", (), (("i32",),)),
    Instr("prefix.scan", "scan", (), (("f32",), ("f64",), ("i32",), ("i64",)), "warp"),
    Instr("shuffle.reduce", "reduce", (), (("f32",), ("f64",), ("i32",), ("i64",)), "warp"),
)

# Of devices that see each other's memory: at the scope of the system.
SIGNALS = (
    Instr("signal.add", "signal", (), (("i32",),)),
    Instr("signal.clear", "clear", (), (("i32",),)),
    Instr("signal.tell", "tell", (), (("i32",),), "thread"),
    Instr("signal.wait", "await", (), (("i32",),)),
)

HOPPER = (
    *(
        WGMMA
        + MMA
        + FMA
        + TMA
        + CP_ASYNC
        + LOAD_STORE
        + MERGE
        + FETCH
        + GATHER
        + MATRIX
        + REGISTERS
    ),
    *SIGNALS,
)

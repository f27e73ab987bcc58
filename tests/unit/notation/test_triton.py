"""Triton's bases and encodings, turned round: where each element of the tensor lies."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest

from axe_eq.errors import NotationError
from axe_eq.layout import Layout
from axe_eq.layout.normal.elimination import stacks
from axe_eq.layout.notation import f2, read, stated_shape, write
from axe_eq.layout.notation.triton import AXES

MMA = """
 - register=1 -> (0, 1)
   register=2 -> (8, 0)
 - lane=1 -> (0, 2)
   lane=2 -> (0, 4)
   lane=4 -> (1, 0)
   lane=8 -> (2, 0)
   lane=16 -> (4, 0)
 - warp is a size 1 dimension
where out dims are: [dim0 (size 16), dim1 (size 8)]
"""
BLOCKED = (
    "#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], "
    "order = [1, 0]}>"
)


def turned(
    bases: dict[str, list[tuple[int, ...]]], rank: int
) -> dict[tuple[int, ...], set[tuple[tuple[str, int], ...]]]:
    """Every hardware index by the element that a linear layout sends it to, bit by bit."""
    held = defaultdict(set)
    for index in itertools.product(*(range(1 << len(vectors)) for vectors in bases.values())):
        element = [0] * rank
        for value, vectors in zip(index, bases.values(), strict=True):
            for bit, vector in enumerate(vectors):
                if value >> bit & 1:
                    element = [a ^ b for a, b in zip(element, vector, strict=True)]
        point = zip((AXES.get(dim, dim) for dim in bases), index, strict=True)
        held[tuple(element)].add(tuple(sorted((axis, value) for axis, value in point if value)))
    return held


def text_of(bases: dict[str, list[tuple[int, ...]]], shape: tuple[int, ...]) -> str:
    lines = []
    for dim, vectors in bases.items():
        lines += [
            f" - {dim}={1 << bit} -> ({', '.join(map(str, v))})" for bit, v in enumerate(vectors)
        ]
        lines += [] if vectors else [f" - {dim} is a size 1 dimension"]
    sizes = ", ".join(f"d{place} (size {extent})" for place, extent in enumerate(shape))
    return "\n".join([*lines, f"where out dims are: [{sizes}]"])


@pytest.mark.parametrize(
    ("bases", "shape"),
    [
        ({"register": [(0, 1), (8, 0)], "lane": [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)]}, (16, 8)),
        ({"offset": [(0, 1), (0, 2), (1, 1), (2, 2)]}, (4, 4)),
        ({"lane": [(1,), (3,), (6,), (12,)]}, (16,)),
        ({"lane": [(8,), (4,), (2,), (1,)], "warp": [(0,), (0,)]}, (16,)),
        ({"lane": [(1,), (1,), (2,), (3,)], "warp": [(4,), (4,), (0,)]}, (8,)),
        ({"register": [], "iteration": [(1,)]}, (2,)),
    ],
)
def test_bases(bases: dict[str, list[tuple[int, ...]]], shape: tuple[int, ...]) -> None:
    layout = read("triton", text_of(bases, shape))
    held = turned(bases, len(shape))
    for index in itertools.product(*map(range, shape)):
        assert layout(index, shape=shape) == held[index]
        again = read("triton", write("triton", layout, shape=shape), shape=shape)
        assert again(index, shape=shape) == held[index]


def test_axes_are_named_as_everywhere_else() -> None:
    fragment = Layout.parse("S[(2,8,4,2):(2@reg,4@lane,1@lane,1@reg)]")
    layout = read("triton", MMA)
    assert [layout(x) for x in range(128)] == [fragment(x) for x in range(128)]
    assert write("triton", fragment, shape=(16, 8)) == (
        "#ttg.linear<{register = [[0, 1], [8, 0]], "
        "lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [], block = []}>"
    )


def test_a_shared_layout_is_a_swizzle() -> None:
    text = (
        "#ttg.shared_linear<{offset = [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [0, 32], "
        "[1, 8], [2, 16], [4, 32]], block = []}, alignment = 1024>"
    )
    assert str(read("triton", text)) == "sw(3,3,3)@m . S[(8,64):(64@m,1@m)]"
    cute = read("cute", "Sw<3,3,3> o 0 o (8,64):(64,1)", shape=(8, 64))
    assert write("triton", cute, shape=(8, 64)).splitlines()[6] == "   offset=64 -> (1, 8)"


@pytest.mark.parametrize(
    ("shape", "axe"),
    [
        (None, "S[(4,8,4,4):(1@warp,4@lane,1@lane,1@reg)]"),
        ((32, 16), "S[(4,8,4,4):(1@warp,4@lane,1@lane,1@reg)]"),
        ((64, 32), "S[(2,4,8,2,4,4):(8@reg,1@warp,4@lane,4@reg,1@lane,1@reg)]"),
        ((16, 2), "S[(2,8,2):(1@warp,4@lane,1@reg)] + R[(4,2):(1@lane,2@warp)]"),
    ],
)
def test_blocked_encodings_adapt_to_the_shape(shape: tuple[int, ...] | None, axe: str) -> None:
    layout, expected = read("triton", BLOCKED, shape=shape), Layout.parse(axe)
    assert [layout(x) for x in range(layout.size)] == [expected(x) for x in range(expected.size)]


@pytest.mark.parametrize(
    ("shape", "registers"),
    [
        ((8, 8), "[1, 0], [4, 0], [0, 4]"),  # the dim that registers vary already comes first
        ((4, 4), "[1, 0]"),
        ((1, 4), ""),
    ],
)
def test_bases_adapt_to_the_shape(shape: tuple[int, ...], registers: str) -> None:
    text = "#ttg.linear<{{register = [{}], lane = [[2, 0], [0, 1]], warp = [[0, 2]], block = []}}>"
    layout = read("triton", text.format("[1, 0]"), shape=shape)
    expected = text.format(registers).replace("[2, 0]", "[2, 0]" if shape[0] > 1 else "[0, 0]")
    assert write("triton", layout, shape=shape) == expected


def test_registers_that_vary_no_dim_grow_the_last_one_first() -> None:
    text = "#ttg.linear<{{register = [{}], lane = [[1, 0], [0, 1]], warp = [], block = []}}>"
    layout = read("triton", text.format(""), shape=(4, 4))
    assert write("triton", layout, shape=(4, 4)) == text.format("[0, 2], [2, 0]")


@pytest.mark.parametrize(
    "cluster",
    [
        "CTAsPerCGA = [2, 2], CTASplitNum = [1, 2], CTAOrder = [0, 1]",
        "CGALayout = [[0, 0], [0, 1]]",
    ],
)
def test_blocks_of_a_cluster_split_or_repeat_the_tensor(cluster: str) -> None:
    layout = read("triton", BLOCKED.replace("}>", f", {cluster}}}>"), shape=(32, 32))
    plain = read("triton", BLOCKED, shape=(32, 16))
    for i, j in itertools.product(range(32), range(32)):
        (own,) = plain((i, j % 16), shape=(32, 16))
        assert layout((i, j), shape=(32, 32)) == {
            tuple(sorted((*own, *((("cta", block),) if block else ()))))
            for block in (j // 16 * 2, j // 16 * 2 + 1)
        }


MMA3 = (
    "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1]%s, "
    "instrShape = [16, 64, 16]}>"
)


def test_both_spellings_of_a_cluster_are_one() -> None:
    """Triton before 3.6 printed counts, splits and an order; from then on bases."""
    old = MMA3 % ", CTAsPerCGA = [2, 2], CTASplitNum = [2, 1], CTAOrder = [1, 0]"
    new = MMA3 % ", CGALayout = [[0, 0], [1, 0]]"
    for wrapped in ("%s", "#ttg.dot_op<{opIdx = 0, parent = %s, kWidth = 2}>",
                    "#ttg.slice<{dim = 1, parent = %s}>"):  # fmt: skip
        one, other = wrapped % old, wrapped % new
        assert one != other
        shape = (256,) if "slice" in wrapped else (256, 64)
        assert read("triton", one, shape=shape) == read("triton", other, shape=shape)
        assert "cta" in read("triton", one, shape=shape).axes


def test_without_a_shape_an_encoding_covers_its_tile_once() -> None:
    assert read("triton", MMA3 % "") == read("triton", MMA3 % "", shape=(64, 64))
    sliced = f"#ttg.slice<{{dim = 0, parent = {MMA3 % ''}}}>"
    assert read("triton", sliced) == read("triton", sliced, shape=(64,))


MODULE = """
#blocked = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>
#mma = #ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>
#smem = #ttg.shared_memory
"""  # noqa: E501


def test_names_of_a_module_stand_for_their_encodings() -> None:
    mma = MODULE.splitlines()[2].removeprefix("#mma = ")
    assert read("triton", f"#mma = {mma}") == read("triton", mma)
    assert read("triton", MODULE) == read("triton", mma)  # the last layout
    assert read("triton", f"{MODULE} #blocked") == read("triton", BLOCKED)
    operand = "#ttg.dot_op<{opIdx = 1, parent = %s, kWidth = 2}>"
    assert read("triton", MODULE + operand % "#mma") == read("triton", operand % mma)
    with pytest.raises(NotationError, match="#mma1 is not defined; expected #blocked, #mma"):
        read("triton", f"{MODULE} #mma1")
    with pytest.raises(NotationError, match="no layout"):
        read("triton", "#smem = #ttg.shared_memory")


def test_a_type_states_its_shape() -> None:
    for typed in ("tensor<64x32xf16, #mma>", "!ttg.memdesc<64x32xf16, #mma, #smem, mutable>"):
        text = MODULE + typed
        assert stated_shape("triton", text) == (64, 32)
        assert read("triton", text) == read("triton", f"{MODULE}#mma", shape=(64, 32))
        with pytest.raises(NotationError, match="the given shape"):
            read("triton", text, shape=(32, 64))
    assert stated_shape("triton", MODULE) is None
    assert stated_shape("triton", MMA) == (16, 8)


PADDED = "#ttg.padded_shared<[8:+%d] {%s}>"


def test_padding_is_places_that_hold_nothing() -> None:
    layout = read("triton", PADDED % (2, "order = [1, 0], shape = [4, 8]"))
    assert [int(place) for place in layout.table("m")] == [
        row * 10 + column for row in range(4) for column in range(8)
    ]
    swizzled = "offset = [[0, 1], [0, 2], [0, 4], [1, 1]], block = []"
    with pytest.raises(NotationError, match="padding behind an XOR"):
        read("triton", PADDED % (2, swizzled))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("#ttg.amd_mfma<{version = 3}>", "encoding amd_mfma; expected one of blocked, nvidia_mma"),
        ("#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>",
         "are not known; expected shape="),
        ("#ttg.swizzled_shared<{vec = 3, perPhase = 1, maxPhase = 8, order = [0]}>", "vec = 3"),
        (MMA3.replace("Major = 3", "Major = 1") % "", "versionMajor = 1; expected one of (2, 3)"),
        (MMA3.replace("[16, 64, 16]", "[16, 64]") % "", "[16, 64]; expected 3 entries"),
        (MMA3.replace("[16, 64, 16]", "[8, 64, 16]") % "", "expected 16 rows"),
        (MMA3.replace("[4, 1]", "[4]") % "", "warpsPerCTA = [4]; expected at least 2 dims"),
        ("#ttg.dot_op<{opIdx = 2, parent = #ttg.blocked<{order = [0]}>}>", "opIdx = 2"),
        ("#ttg.dot_op<{opIdx = 0}>", "no parent; expected parent = #ttg..."),
        (f"#ttg.dot_op<{{opIdx = 1, parent = {MMA3 % ''}, kWidth = 2}}>", "operand 0: the other"),
        (f"#ttg.slice<{{dim = 2, parent = {MMA3 % ''}}}>", "dim = 2; expected a dim of the parent"),
        ("#ttg.slice<{dim = 0, parent = #ttg.swizzled_shared<{vec = 1}>}>",
         "slice of swizzled_shared; expected of blocked, nvidia_mma, dot_op, slice, linear"),
        ("#ttg.blocked<{order = [0], vec = 1}>", "unknown field vec"),
        ("#ttg.linear<{register = 3}>", "basis 3"),
        ("#ttg.padded_shared<[3:+1] {order = [0], shape = [8]}>", "interval 3"),
    ],
)  # fmt: skip
def test_encodings_that_mean_nothing_are_one_clear_error(text: str, wrong: str) -> None:
    with pytest.raises(NotationError) as refused:
        read("triton", text)
    assert wrong in str(refused.value)


@pytest.mark.parametrize(
    ("axe", "wrong"),
    [
        ("S[(3):(1@lane)]", "shape (3,)"),
        ("S[(4):(3@lane)]", "iter 4:3@lane"),
        ("S[(4):(2@lane)]", "places between the elements are empty of lane"),
        ("S[(4,4):(2@lane,1@lane)]", "iters overlap in a bit of lane"),
        ("S[(4):(0)]", "iter 4:0@m"),
        ("S[(4):(1@lane)] + 4@lane", "offset {'lane': 4}"),
        ("sw(1,0,2)@lane . S[(4):(1@lane)]", "sw(1,0,2)@lane reaches past lane"),
    ],
)
def test_what_linear_layouts_cannot_express(axe: str, wrong: str) -> None:
    with pytest.raises(NotationError) as refused:
        write("triton", Layout.parse(axe))
    assert refused.value.wrong == wrong


def test_bits_solve_every_regular_matrix() -> None:
    regular = 0
    for columns in itertools.product(range(8), repeat=3):
        inverse = f2.inverse(columns)
        assert (inverse is None) == (len(f2.independent(columns)) < 3)
        if inverse is None:
            continue
        regular += 1
        stack = stacks("m", columns, 4)[0]
        bits = []
        for column in columns:
            for sw in stack:
                column = sw.undo(column)
            bits.append(column)
        assert sorted(bits) == [1, 2, 4]
    assert regular == 168

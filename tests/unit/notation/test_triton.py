"""Triton's bases and encodings, turned round: where each element of the tensor lies."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest

from axe_eq.errors import NotationError
from axe_eq.layout import Layout
from axe_eq.layout.notation import f2, read, write
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
        swizzles = f2.swizzles(columns, "m")
        for bit, column in enumerate(columns):
            value = 1 << bit
            for sw in reversed(swizzles):
                value = sw.apply(value)
            assert value == column
        rows = f2.diagonal(columns)
        assert sorted(rows) == [0, 1, 2]
        assert all(column >> row & 1 for column, row in zip(columns, rows, strict=True))
    assert regular == 168

"""The matrix form of the paper, and the strides of numpy and torch."""

from __future__ import annotations

import numpy as np
import pytest

from axe_eq.errors import NotationError
from axe_eq.layout import Layout
from axe_eq.layout.notation import read, write

FRAGMENT = "S[(8,2,4,2):(4@lane,1@warp,1@lane,1@reg)] + R[(2):(4@warp)] + 5@warp"
LATEX = (
    r"\begin{pmatrix}8&2&4&2\\4@\texttt{lane}&1@\texttt{warp}&1@\texttt{lane}&1@\texttt{reg}\\"
    r"\end{pmatrix}+\begin{bmatrix}2\\4@\texttt{warp}\end{bmatrix}+5@\texttt{warp}"
)


@pytest.mark.parametrize(
    ("text", "axe"),
    [
        ("(8 2 4 2 | 4@lane 1@warp 1@lane 1@reg) + [2 | 4@warp] + 5@warp", FRAGMENT),
        (LATEX, FRAGMENT),
        ("(2 3;3 1)", "S[(2,3):(3,1)]"),
        ("(2, 3\n 3, 1) + [4 | 6] + [2 | 24] + -1", "S[(2,3):(3,1)] + R[(4,2):(6,24)] + -1@m"),
        ("(2 | 1) + 3 + 1@P + 4@m", "S[(2):(1)] + 1@P + 7@m"),
        ("(16;1)", "S[(16):(1)]"),
        ("( | )", "S[():()]"),
    ],
)
def test_matrix(text: str, axe: str) -> None:
    layout = read("matrix", text)
    assert layout == Layout.parse(axe)
    assert read("matrix", write("matrix", layout)) == layout


def test_the_paper_has_no_swizzle_and_no_padding() -> None:
    assert write("matrix", Layout.parse(FRAGMENT)) == (
        "(8 2 4 2 | 4@lane 1@warp 1@lane 1@reg) + [2 | 4@warp] + 5@warp"
    )
    with pytest.raises(NotationError, match="swizzle"):
        write("matrix", Layout.parse("sw(1,0,1) . S[4:1]"))
    with pytest.raises(NotationError, match="padded"):
        write("matrix", Layout.parse("box[(3,5)] in S[(2,2,3,2):(12,2,4,1)]"))
    unswizzled = Layout.parse("sw(1,2,3)@m . S[(8,4):(0,8)] + 8")  # a box of 4 in 2 x 3
    for notation in ("matrix", "strides"):
        with pytest.raises(NotationError, match="padded"):
            write(notation, unswizzled, shape=(8, 4))
    pitched = Layout.parse("box[(3,3)] in S[(4,4):(4,1)]")
    assert write("matrix", pitched) == "(3 3 | 4@m 1@m)"


@pytest.mark.parametrize(
    ("text", "axe"),
    [
        ("shape=(2,3), strides=(3,1), offset=5", "S[(2,3):(3,1)] + 5@m"),
        ("size=torch.Size([2, 3]) stride=(1, 2) storage_offset=0", "S[(2,3):(1,2)]"),
        ("(2,3):(-3,0) + 3", "S[(2,3):(-3,0)] + 3@m"),
        ("shape=(), strides=()", "S[():()]"),
        ("[4]:[2]", "S[(4):(2)]"),
    ],
)
def test_strides(text: str, axe: str) -> None:
    layout = read("strides", text)
    assert layout == Layout.parse(axe)
    assert read("strides", write("strides", layout)) == layout


def test_bytes_are_said_to_be_bytes() -> None:
    array = np.zeros((6, 4), np.float32)[1:5:2, ::-1]
    offset = array.__array_interface__["data"][0] - array.base.__array_interface__["data"][0]  # type: ignore[union-attr]
    text = f"shape={array.shape}, byte_strides={array.strides}, byte_offset={offset}"
    assert read("strides", text, itemsize=4) == Layout.parse("S[(2,4):(8,-1)] + 7@m")
    with pytest.raises(NotationError, match="byte_strides without the size of an element"):
        read("strides", text)
    with pytest.raises(NotationError, match="-4 bytes; expected a multiple of the itemsize 8"):
        read("strides", text, itemsize=8)


def test_strides_follow_the_shape() -> None:
    layout = Layout.parse("S[(6,2):(2,1)]")
    assert write("strides", layout, shape=(3, 4)) == "shape=(3,4), strides=(4,1), offset=0"
    assert write("strides", layout, shape=(1, 12)) == "shape=(1,12), strides=(0,1), offset=0"
    with pytest.raises(NotationError) as refused:
        write("strides", Layout.parse("S[(2,2,3):(1,6,2)]"), shape=(4, 3))
    assert refused.value.wrong == "dim 0 has the strides 1, 6"

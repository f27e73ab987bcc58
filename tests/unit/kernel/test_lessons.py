"""The lessons on kernels run, stay short, and say what they promise."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


def _output(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_the_product_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    text = _output("05_gemm_by_hand.py", capsys)
    for line in (
        "tma.load",
        "wgmma.f16",
        "matrix.stmatrix",
        "tma.store",
        "primitives: largest error 0.0",
    ):
        assert line in text
    assert len((EXAMPLES / "05_gemm_by_hand.py").read_text().splitlines()) <= 120


def test_the_copy_two_ways_becomes_the_same_loads(capsys: pytest.CaptureFixture[str]) -> None:
    text = _output("06_copy_two_ways.py", capsys)
    first, second = text.split("collectively:")
    for half in (first, second):
        assert half.count("ldst.ld_global (16 bytes a thread)") == 1
        assert half.count("ld_global_v4_f32_once(") == 2

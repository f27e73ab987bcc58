"""Benchmarks as README starts them: one clear message where they cannot run; results stay."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from pathlib import Path

import pytest

import axe_eq as axe
from benchmarks import cuda_sums, latency, regret
from benchmarks.regret_programs import KINDS, drawn
from benchmarks.terminal import told

ROOT = Path(__file__).parents[2]
needs_no_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None, reason="torch is here, so they would measure"
)


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m benchmarks...` from the root of the repository."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@needs_no_torch
@pytest.mark.parametrize("name", ["cuda", "cuda_attention", "cuda_mlp", "cuda_calls"])
def test_without_torch_a_benchmark_says_so_in_one_line(name: str) -> None:
    done = started(f"benchmarks.{name}")
    assert done.returncode == 1
    assert done.stderr.startswith("package 'torch': cannot be imported (")
    assert done.stderr.count("\n") == 1


def test_a_benchmark_of_two_steps_that_is_told_neither_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for told_ in ([], ["--gpu"], ["--saved", "here"]):
        monkeypatch.setattr(sys, "argv", ["cuda_sums", *told_])
        with pytest.raises(SystemExit) as ended:
            cuda_sums.main()
        assert ended.value.code == 2
        assert "expected --prepare FOLDER, or --gpu --saved FOLDER" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["cuda_mlp", "cuda_calls"])
def test_what_is_saved_and_where_is_explained(name: str) -> None:
    said = started(f"benchmarks.{name}", "--help").stdout
    assert "that --save wrote" in " ".join(said.split())
    assert "--save needs" in started(f"benchmarks.{name}", "--save").stderr


def test_progress_without_a_terminal_is_a_line_each() -> None:
    file = io.StringIO()
    assert list(told([("mlp", 10), ("wide", 20)], "compiling", file)) == [("mlp", 10), ("wide", 20)]
    assert file.getvalue() == "compiling 1 of 2: mlp 10\ncompiling 2 of 2: wide 20\n"


@pytest.mark.parametrize("asked", [False, True])
def test_latency_keeps_its_figures_where_asked(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency, "RESULT", tmp_path / "latency.json")
    monkeypatch.setattr(latency, "run", lambda name, runs: {"cold": dict.fromkeys(
        (*latency.FIGURES, "kernels"), 1.0
    )})  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["latency", *["--write"][: int(asked)]])
    latency.main()
    assert (tmp_path / "latency.json").exists() == asked


def test_regret_is_the_choice_against_the_fastest() -> None:
    def candidate(estimate_s: float, time_s: float) -> dict[str, object]:
        return {"schedule": "lanes", "row": "", "parameters": f"{time_s}", "apart": 0.0,
                "estimate_s": estimate_s, "time_s": time_s}  # fmt: skip

    row = {"seed": 1, "kind": "rows", "specs": ["8x4:f32"], "kernel": "k0"}
    slow = {**row, "candidates": [candidate(1e-6, 3e-6), candidate(2e-6, 1.5e-6)]}
    best = {**row, "candidates": [candidate(1e-6, 1.2e-6), candidate(2e-6, 1.5e-6)]}
    found = regret.figures([slow, {**row, "failed": "no kernel"}, best])
    assert [f["regret"] for f in found] == [2.0, 1.0]
    said = regret.summed(found)
    assert (said["kernels"], said["within_30"], said["within_2x"]) == (2, 0.5, 0.5)
    assert said["missed_worst"] == pytest.approx(3.0)


@pytest.mark.parametrize("kind", KINDS)
def test_programs_of_every_kind_are_traced(kind: str) -> None:
    first = list(KINDS).index(kind) + 100 * len(KINDS)
    for seed in (first, first + len(KINDS), first + 2 * len(KINDS)):
        name, fn, specs = drawn(seed)
        assert name == kind
        assert axe.trace(fn, *specs).outputs[0].type.size > 0

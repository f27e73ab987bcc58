"""Every command: exit codes, JSON that parses, and one clear message for every bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axe_eq.cli import main
from axe_eq.pack import installed

PROGRAMS = """
from helper import shift

def dense(x, w):
    xp = x.__array_namespace__()
    return xp.tanh(x @ w)

def dense_by_exp(x, w):
    xp = x.__array_namespace__()
    e = xp.exp(2 * (x @ w))
    return (e - 1) / (e + 1)

def dense_turned(x, w):
    xp = x.__array_namespace__()
    return xp.tanh((w.T @ x.T).T)

def linear(x, w):
    return x @ w

def two(x, w):
    return {"sum": shift(x), "product": x @ w}

def undefined(x, w):
    return x @ w + bias

def branches(x, w):
    return w if x[0, 0] > 0 else x

def leaves(x, w):
    raise SystemExit(0)

def unheard(x, w):
    return x.__array_namespace__().fft(x)
"""
SPECS = ("--spec", "rows=8x6:f32", "--spec", "6x4:f32")
DENSE = ("programs.py:dense", *SPECS, "--target", "cpu")
Axe = Callable[..., "Done"]


class Done:
    """A command that ended."""

    def __init__(self, code: object, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out, parse_constant=pytest.fail)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with programs, arrays and things that are neither."""
    (tmp_path / "programs.py").write_text(PROGRAMS)
    (tmp_path / "helper.py").write_text("def shift(x):\n    return x + 1\n")
    (tmp_path / "broken.py").write_text("import a_library_that_nobody_has\n")
    (tmp_path / "syntax.py").write_text("def f(x:\n")
    np.save(tmp_path / "x.npy", np.ones((8, 6), np.float32))
    np.save(tmp_path / "w.npy", np.ones((6, 4), np.float32))
    np.save(tmp_path / "x64.npy", np.ones((8, 6)))
    np.save(tmp_path / "narrow.npy", np.ones((8, 5), np.float32))
    np.savez(tmp_path / "several.npz", a=np.ones(8), b=np.ones(6))
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "torn.npy").write_bytes((tmp_path / "x.npy").read_bytes().replace(b"}", b"("))
    for name, text in {"text": "no", "list": "[]", "half": '{"format": 1', "fields": "{}"}.items():
        (tmp_path / f"{name}.json").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture
def axe(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Axe:
    """`axe("equiv", a, b)` runs a command in `folder`."""

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["axe", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Done(ended.value.code or 0, captured.out, captured.err)

    return run


# -- what the commands do ------------------------------------------------------------------------


def test_compile_prints_the_schedule(axe: Axe) -> None:
    done = axe("compile", *DENSE)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("schedule for cpu\n")
    found = axe("compile", *DENSE, "--json").json
    assert found["target"] == "cpu"
    assert [k["schedule"] for k in found["kernels"]] == ["blas"]
    assert set(found["stages"]) == {"trace", "encode", "saturate", "extract", "build"}


def test_compile_saves_what_load_runs(axe: Axe, folder: Path) -> None:
    import axe_eq

    assert axe("compile", *DENSE, "-o", "dense.axe").code == 0
    x, w = np.load("x.npy"), np.load("w.npy")
    np.testing.assert_allclose(axe_eq.load("dense.axe")(x, w), np.tanh(x @ w), rtol=1e-6)
    assert not list(folder.glob("*.part")) + list(folder.glob(".*.part"))


def test_explain_says_why(axe: Axe) -> None:
    done = axe("explain", *DENSE, "--json")
    assert done.code == 0
    assert done.json["text"].startswith("schedule for cpu")
    assert "compared with:" in done.json["text"]


def test_run_compares_with_the_meaning(axe: Axe) -> None:
    assert axe("run", *DENSE).out.startswith("output 0: 8x4 float32, agrees with the numpy meaning")
    (row,) = axe("run", *DENSE, "--bind", "rows=3", "--json").json
    assert row["shape"] == [3, 4]
    assert row["agrees"]


def test_run_takes_and_writes_files(axe: Axe, folder: Path) -> None:
    done = axe("run", "programs.py:two", "--spec", "8x6:f32", "--spec", "6x4:f32", "--target",
               "cpu", "--input", "x.npy", "--input", "w.npy", "-o", "out")  # fmt: skip
    assert done.code == 0
    written = {path.name: np.load(path) for path in (folder / "out").iterdir()}
    assert sorted(written) == ["output0.npy", "output1.npy"]
    assert {a.shape for a in written.values()} == {(8, 6), (8, 4)}


def test_run_that_differs_from_the_meaning_is_exit_1(
    axe: Axe, monkeypatch: pytest.MonkeyPatch
) -> None:
    from axe_eq.run.executable import Schedule

    launch = Schedule.launch
    monkeypatch.setattr(Schedule, "launch", lambda self, *a: launch(self, *a) * np.float32(1.01))
    done = axe("run", *DENSE)
    assert done.code == 1
    assert "DIFFERS from the numpy meaning" in done.out


def test_nan_in_the_meaning_is_no_difference(axe: Axe) -> None:
    np.save("nan.npy", np.full((8, 6), np.nan, np.float32))
    done = axe("run", *DENSE, "--input", "nan.npy", "--input", "w.npy", "--json")
    assert done.json[0]["agrees"]


@pytest.mark.parametrize(
    ("a", "b", "code", "verdict"),
    [
        ("cute:(4,8):(8,1)", "S[(8,4):(1@m,8@m)]", 0, "Proved"),
        ("S[(4,8):(8@m,1@m)]", "S[(8,4):(1@m,8@m)]", 1, "Refuted"),
        ("programs.py:dense", "programs.py:dense_turned", 0, "Proved"),
        ("programs.py:dense", "programs.py:linear", 1, "Refuted"),
    ],
)
def test_equiv_answers_by_exit_code(axe: Axe, a: str, b: str, code: int, verdict: str) -> None:
    specs = SPECS if ".py" in a else ()
    done = axe("equiv", a, b, *specs, "--json")
    assert (done.json["verdict"], done.code) == (verdict, code)
    assert axe("equiv", a, b, *specs).out.startswith(verdict)


def test_equiv_that_finds_no_proof_is_exit_3(axe: Axe) -> None:
    done = axe("equiv", "programs.py:dense", "programs.py:dense_by_exp", *SPECS, "--json")
    assert (done.json["verdict"], done.code) == ("Unknown", 3)


def test_certificates_are_written_and_checked(axe: Axe, folder: Path) -> None:
    layouts = ("cute:(4,8):(8,1)", "S[(8,4):(1@m,8@m)]")
    assert axe("equiv", *layouts, "--certificate", "proof.json").code == 0
    said = axe("check-cert", "proof.json")
    read = "cute:(4,8):(8,1) = S[(8,4):(1@m,8@m)], both read as S[(8,4):(1@m,8@m)]"
    assert said.out.startswith(f"accepted: {read} (axe_eq ")
    found = axe("check-cert", "proof.json", "--json").json
    statement = said.out.strip().removeprefix("accepted: ")
    assert found == {"accepted": True, "reason": None, "statement": statement}
    forged = json.loads((folder / "proof.json").read_text())
    outer = next(t for t in forged["statement"]["right"]["terms"] if t["symbol"] == "Iter")
    outer["args"][1] += 1
    (folder / "forged.json").write_text(json.dumps(forged))
    done = axe("check-cert", "forged.json")
    assert done.code == 1
    assert done.out.startswith("refused: ")


def test_packs_and_targets_are_listed(axe: Axe) -> None:
    names = {row["name"] for row in axe("packs", "list", "--json").json}
    assert {"cpu", "cuda", "layout", "selector", "sharding", "tensor", "tiling"} <= names
    assert "tiling" in axe("packs", "list").out
    assert {"cpu", "h200", "b200"} <= {row["name"] for row in axe("targets", "--json").json}
    assert "h200" in axe("targets").out


def test_packs_check_passes_on_a_right_pack(axe: Axe) -> None:
    done = axe("packs", "check", "real_normal", "--samples", "2")
    assert (done.code, done.out) == (0, "pack 'real_normal': 4 laws hold on samples\n")
    assert axe("packs", "check", "real_normal", "--samples", "1", "--json").json == []


# -- bad input -----------------------------------------------------------------------------------

BAD = {
    "shape_mismatch": ("compile", "programs.py:dense", "--spec", "8x6:f32", "--spec", "5x4:f32"),
    "unknown_dtype": ("compile", "programs.py:dense", "--spec", "8x6:f17", "--spec", "6x4:f32"),
    "unknown_op": ("compile", "programs.py:unheard", *SPECS),
    "unknown_target": ("compile", "programs.py:dense", *SPECS, "--target", "h300"),
    "unknown_pack": ("compile", *DENSE, "--packs", "tensor,tiles"),
    "unknown_law": ("compile", *DENSE, "--without", "tensor/nothing"),
    "extents": ("compile", *DENSE, "--extents", "rows=1-4", "-o", "d.axe"),
    "extents_of_no_file": ("compile", *DENSE, "--extents", "rows=1:4"),
    "no_demand_laws": ("compile", *DENSE, "--without", "tiling"),
    "no_schedules": ("compile", *DENSE, "--packs", "tiling,tensor"),
    "spec_without_dtype": ("compile", "programs.py:dense", "--spec", "8x6", "--spec", "6x4:f32"),
    "spec_no_shape": ("compile", "programs.py:dense", "--spec", "hello", "--spec", "6x4:f32"),
    "spec_missing": ("compile", "programs.py:dense", "--spec", "8x6:f32"),
    "file_missing": ("compile", "nowhere.py:dense", *SPECS),
    "file_broken": ("compile", "broken.py:dense", *SPECS),
    "file_syntax": ("compile", "syntax.py:f", *SPECS),
    "function_missing": ("compile", "programs.py:dens", *SPECS),
    "function_unnamed": ("explain", "programs.py", *SPECS),
    "function_raises": ("compile", "programs.py:undefined", *SPECS),
    "function_exits": ("equiv", "programs.py:leaves", "programs.py:dense", *SPECS),
    "function_branches": ("compile", "programs.py:branches", *SPECS),
    "array_count": ("run", *DENSE, "--input", "x.npy"),
    "array_dtype": ("run", *DENSE, "--input", "x64.npy", "--input", "w.npy"),
    "array_shape": ("run", *DENSE, "--input", "narrow.npy", "--input", "w.npy"),
    "array_file": ("run", *DENSE, "--input", "nowhere.npy", "--input", "w.npy"),
    "array_torn": ("run", *DENSE, "--input", "torn.npy", "--input", "w.npy"),
    "array_several": ("run", *DENSE, "--input", "several.npz", "--input", "w.npy"),
    "bind_form": ("run", *DENSE, "--bind", "rows:3"),
    "bind_name": ("run", *DENSE, "--bind", "row=3"),
    "output_without_a_name": ("compile", *DENSE, "-o", ""),
    "output_folder": ("compile", *DENSE, "-o", "nowhere/dense.axe"),
    "output_under_file": ("run", *DENSE, "-o", "programs.py/out"),
    "equiv_layout_program": ("equiv", "S[(4):(1@m)]", "programs.py:dense"),
    "equiv_layout_text": ("equiv", "S[(4):(1@m)", "S[(4):(1@m)]"),
    "equiv_budget": ("equiv", "S[(4):(1@m)]", "S[(4):(1@m)]", "--budget", "soon"),
    "certificate_missing": ("check-cert", "nowhere.json"),
    "certificate_without_a_name": (
        "equiv", "S[(4):(1@m)]", "S[(2,2):(2@m,1@m)]", "--certificate", "",
    ),
    "certificate_no_folder": (
        "equiv", "S[(4):(1@m)]", "S[(2,2):(2@m,1@m)]", "--certificate", "nowhere/proof.json",
    ),
    "pack_missing": ("packs", "check", "nothing"),
    "pack_samples": ("packs", "check", "layout", "--samples", "0"),
    "seed_negative": ("run", *DENSE, "--seed", "-1"),
    "html_folder": ("compile", *DENSE, "--html", "nowhere/page.html"),
    "command": ("compil", "programs.py:dense"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_message(name: str, axe: Axe, golden: Callable[..., None]) -> None:
    done = axe(*BAD[name])
    assert (done.code, done.out) == (2, "")
    golden(done.err.replace(" ".join(installed()), "<installed packs>"))


@pytest.mark.parametrize("name", ["list", "fields"])
def test_a_malformed_certificate_is_refused(
    name: str, axe: Axe, golden: Callable[..., None]
) -> None:
    done = axe("check-cert", f"{name}.json")
    assert (done.code, done.err) == (1, "")
    golden(done.out)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("AXE_NODE_LIMIT", "40"),
        ("AXE_TIME_LIMIT_S", "0.000001"),
        ("AXE_MEMORY_LIMIT_MB", "1"),
        ("AXE_SPEED", "9"),
        ("AXE_PACKS", "tensor,cpu"),
    ],
)
def test_a_bad_environment_is_one_clear_message(
    variable: str, value: str, folder: Path, golden: Callable[..., None]
) -> None:
    # However slowly a loaded machine lets it, the search's worker says itself why it stopped.
    patient = "import axe_eq.pipeline.worker as p; p.LEAST_GRACE_S = 600.0; "
    done = subprocess.run(
        [sys.executable, "-c", f"{patient}from axe_eq.cli import main; main()", "compile", *DENSE],
        env={**os.environ, variable: value},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    golden(done.stderr)


def test_too_little_memory_is_one_message(axe: Axe, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> Any:
        raise MemoryError("Unable to allocate 4 TiB")

    monkeypatch.setattr("axe_eq.cli.programs.random_inputs", refuses)
    done = axe("run", *DENSE)
    assert (done.code, done.out) == (2, "")
    assert done.err == "axe: needs more memory than there is (Unable to allocate 4 TiB)\n"


def test_every_command_reads_the_environment(monkeypatch: pytest.MonkeyPatch, axe: Axe) -> None:
    assert axe("--version").out.startswith("axe, version ")
    monkeypatch.setenv("AXE_SPEED", "9")
    done = subprocess.run(
        [sys.executable, "-c", "from axe_eq.cli import main; main()", "targets"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "AXE_SPEED" in done.stderr


def test_output_that_cannot_be_written_is_one_message() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from axe_eq.cli import main; main()", "targets"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("axe: cannot write its output (No space left on device)")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [("--help",), ("layout", "--help"), ("equiv", "S[(4):(1)]", "S[(4):(1)]")],
    ids=" ".join,
)
def test_output_that_nobody_reads_says_nothing_of_the_answer(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`axe ... | head -1` ends as a program that SIGPIPE ended: neither yes nor refuted."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    monkeypatch.setattr(sys, "argv", ["axe", *words])
    with os.fdopen(write_end, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 141
    assert capsys.readouterr().err == ""


def test_a_refusal_that_nobody_reads_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    monkeypatch.setattr(sys, "argv", ["axe", "layout", "S[(4"])
    with os.fdopen(write_end, "w", buffering=1) as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        with pytest.raises(SystemExit) as ended:
            main()
        os.dup2(os.open(os.devnull, os.O_WRONLY), write_end)
    assert ended.value.code == 2


def test_a_failed_write_leaves_the_old_file(
    axe: Axe, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "dense.axe").write_text("old")
    monkeypatch.setattr(zipfile.ZipFile, "writestr", _full)
    assert axe("compile", *DENSE, "-o", "dense.axe").code == 2
    assert (folder / "dense.axe").read_text() == "old"
    assert not [path for path in folder.iterdir() if path.suffix == ".part"]


def _full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")

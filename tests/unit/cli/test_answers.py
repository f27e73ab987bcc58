"""What commands answer in full: verdicts as data, saved programs, what is not here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq
from axe_eq.cli import main

PROGRAMS = """
def dense(x, w):
    return x.__array_namespace__().tanh(x @ w)

def linear(x, w):
    return x @ w

def by_exp(x, w):
    e = x.__array_namespace__().exp(2 * (x @ w))
    return (e - 1) / (e + 1)
"""
SPECS = ("--spec", "rows=8x6:f32", "--spec", "6x4:f32")
Axe = Callable[..., tuple[int, str, str]]


@pytest.fixture
def axe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Axe:
    """A command in a folder with programs: exit code, standard output, standard error."""
    (tmp_path / "programs.py").write_text(PROGRAMS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["axe", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def verdict(axe: Axe, *arguments: str) -> Any:
    _, out, _ = axe("equiv", *arguments, "--json")
    return json.loads(out, parse_constant=pytest.fail)


# -- verdicts --------------------------------------------------------------------------------------


def test_a_proof_names_what_was_read_and_its_file(axe: Axe) -> None:
    sides = ("cute:(4,8):(8,1)", "S[(8,4):(1@m,8@m)]")
    found = verdict(axe, *sides, "--certificate", "proof.json")
    assert (found["verdict"], found["numerics"]) == ("Proved", "exact")
    assert found["certificate"] == "proof.json"
    assert found["packs"] == {}
    assert found["statement"].startswith(f"{sides[0]} = {sides[1]}, both read as {sides[1]} (axe_")
    assert found["counterexample"] is None
    code, out, _ = axe("check-cert", "proof.json")
    assert (code, out.strip()) == (0, f"accepted: {found['statement']}")


def test_a_certificate_s_texts_are_read_again(axe: Axe, tmp_path: Path) -> None:
    verdict(axe, "cute:(4,8):(8,1)", "S[(8,4):(1@m,8@m)]", "--certificate", "proof.json")
    for number, text in enumerate(["cute:(8,4):(8,1)", "cute:(4,8):(8,", "nothing", 3]):
        proof = json.loads((tmp_path / "proof.json").read_text())
        proof["statement"]["texts"][0] = text
        (tmp_path / "forged.json").write_text(json.dumps(proof))
        code, out, _ = axe("check-cert", "forged.json")
        assert code == 1
        assert number or "says that 'cute:(8,4):(8,1)' is S[(8,4):(1@m,8@m)]" in out
    proof["statement"]["texts"] = ["cute:(4,8):(8,1)"]
    (tmp_path / "forged.json").write_text(json.dumps(proof))
    assert axe("check-cert", "forged.json")[0] == 1


def test_a_file_that_is_no_json_is_bad_input_and_no_refused_proof(axe: Axe, tmp_path: Path) -> None:
    """It exited 1, as a certificate that was looked at and refused does."""
    for text in ("nonsense", "", "{"):
        (tmp_path / "text.json").write_text(text)
        code, _, said = axe("check-cert", "text.json")
        assert code == 2
        assert "is not JSON" in said
    (tmp_path / "text.json").write_text("{}")
    assert axe("check-cert", "text.json")[0] == 1


SHARDED = ("jax:P('x',None)", "alpa:S0R", "--shape", "8x16", "--mesh", "x=2")
FORGED: dict[str, Any] = {
    "another shape": {"shape": [16, 8]},
    "no shape": {"shape": None},
    "a shape of texts": {"shape": ["8", "16"]},
    "another mesh": {"mesh": {"dims": [["x", 4]], "axis": "gpuid"}},
    "another axis": {"mesh": {"dims": [["x", 2]], "axis": "cpuid"}},
    "a mesh dim twice": {"mesh": {"dims": [["x", 4], ["x", 2]], "axis": "gpuid"}},
    "a mesh of extents": {"mesh": {"dims": [2], "axis": "gpuid"}},
    "a mesh without devices": {"mesh": {"dims": [["x", 0]], "axis": "gpuid"}},
    "no mesh": {"mesh": None},
    "itemsize 0": {"itemsize": 0},
    "something else": {"dtype": "f32"},
}


def test_a_certificate_keeps_what_its_texts_leave_out(axe: Axe, tmp_path: Path) -> None:
    said = verdict(axe, *SHARDED, "--certificate", "proof.json")["statement"]
    wanted = "with shape 8x16, mesh x=2 on gpuid, both read as S[(2,4,16):(1@gpuid,16@m,1@m)]"
    assert said.startswith(f"{SHARDED[0]} = {SHARDED[1]} {wanted}")
    assert axe("check-cert", "proof.json")[:2] == (0, f"accepted: {said}\n")
    text = (tmp_path / "proof.json").read_text()

    def refused(**changed: Any) -> bool:
        proof = json.loads(text)
        for key, value in changed.items():
            (proof if key == "version" else proof["statement"])[key] = value
        (tmp_path / "forged.json").write_text(json.dumps(proof))
        return axe("check-cert", "forged.json")[0] == 1

    context = json.loads(text)["statement"]["context"]
    assert not refused(context=context)
    for what, changed in FORGED.items():
        assert refused(context={**context, **changed}), what
    assert refused(texts=["jax:P(None,'x')", SHARDED[1]])
    assert refused(texts=[])
    assert refused(context={})
    assert refused(version=2)  # which had no context, so its texts were read without one


def test_certificates_without_a_context_are_still_read(axe: Axe, tmp_path: Path) -> None:
    verdict(axe, "cute:(4,8):(8,1)", "S[(8,4):(1@m,8@m)]", "--certificate", "proof.json")
    proof = json.loads((tmp_path / "proof.json").read_text())
    assert "context" not in proof["statement"]
    (tmp_path / "old.json").write_text(json.dumps({**proof, "version": 2}))
    assert axe("check-cert", "old.json")[0] == 0


def test_what_counts_bytes_is_kept_with_its_itemsize(axe: Axe) -> None:
    sides = ("sw(128B) . S[(8,64):(64,1)]", "sw(3,3,3) . S[(8,64):(64,1)]")
    said = verdict(axe, *sides, "--itemsize", "2", "--certificate", "proof.json")["statement"]
    assert said.startswith(f"{' = '.join(sides)} with itemsize 2, both read as ")
    assert axe("check-cert", "proof.json")[0] == 0


def test_a_refuted_sharding_names_the_element_by_its_digits(axe: Axe) -> None:
    sides = ("jax:P('x',None)", "jax:P(None,'x')", "--shape", "8x16", "--mesh", "x=2")
    assert "at element (0,8): a gives {8@m}, b gives {1@gpuid}" in axe("equiv", *sides)[1]
    assert "at element (0,8): a gives" in axe("draw", *sides, "--text")[1]
    found = verdict(axe, *sides)["counterexample"]
    assert (found["x"], found["element"]) == (8, [0, 8])


def test_a_layout_counterexample_is_data(axe: Axe) -> None:
    found = verdict(axe, "S[(4,8):(8@m,1@m)]", "cute:(4,8):(8,1)")
    assert found["verdict"] == "Refuted"
    assert found["counterexample"]["x"] == 1
    assert found["counterexample"]["image_a"] == [{"m": 1}]
    assert found["counterexample"]["image_b"] == [{"m": 8}]
    assert found["statement"] is found["packs"] is found["certificate"] is None


def test_a_program_counterexample_is_data_that_shows_the_difference(axe: Axe) -> None:
    found = verdict(axe, "programs.py:dense", "programs.py:linear", *SPECS)
    shown = found["counterexample"]
    x, w = (np.array(i["values"]) for i in shown["inputs"])
    assert [i["name"] for i in shown["inputs"]] == ["x", "w"]
    assert [tuple(i["shape"]) for i in shown["inputs"]] == [(8, 6), (6, 4)]
    product = (x @ w)[tuple(shown["index"])]
    assert shown["value_b"] == product
    assert shown["value_a"] == pytest.approx(np.tanh(product))
    low, high = shown["bounds_a"]
    assert low <= shown["value_a"] <= high


def test_large_inputs_of_a_counterexample_are_described(axe: Axe) -> None:
    large = ("--spec", "8192x8192:f32", "--spec", "8192x8192:f32")
    shown = verdict(axe, "programs.py:dense", "programs.py:linear", *large)["counterexample"]
    assert shown["inputs"] == []
    assert "pattern" in shown["inputs_are"]


def test_what_was_missing_is_data(axe: Axe) -> None:
    found = verdict(axe, "programs.py:dense", "programs.py:by_exp", *SPECS)
    assert found["verdict"] == "Unknown"
    (stuck,) = found["missing"]["stuck"][:1]
    assert set(stuck) == {"left", "right", "family"}
    assert stuck["left"] in found["text"]


# -- saved programs --------------------------------------------------------------------------------


def test_a_saved_program_is_named_with_its_size(axe: Axe, tmp_path: Path) -> None:
    code, out, _ = axe("compile", "programs.py:dense", *SPECS, "--target", "cpu", "-o", "d.axe",
                       "--html", "d.html", "--json")  # fmt: skip
    assert code == 0
    sizes = {name: (tmp_path / name).stat().st_size for name in ("d.axe", "d.html")}
    assert json.loads(out)["written"] == sizes
    _, out, _ = axe("compile", "programs.py:dense", *SPECS, "--target", "cpu", "-o", "e.axe")
    assert out.splitlines()[-1].startswith("e.axe written, ")


def test_a_saved_program_runs_and_explains(axe: Axe, tmp_path: Path) -> None:
    axe("compile", "programs.py:dense", *SPECS, "--target", "cpu", "-o", "d.axe",
        "--extents", "rows=2:4")  # fmt: skip
    code, out, _ = axe("explain", "d.axe")
    assert code == 0
    assert out.startswith("schedule for cpu")
    assert json.loads(axe("explain", "d.axe", "--json")[1])["target"] == "cpu"
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((8, 6), (6, 4)))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "w.npy", w)
    code, out, _ = axe("run", "d.axe", "--input", "x.npy", "--input", "w.npy", "-o", "out")
    assert (code, out.strip()) == (0, "output 0: 8x4 float32, from a saved program: not compared")
    np.testing.assert_allclose(np.load("out/output0.npy"), np.tanh(x @ w), rtol=1e-5)
    (row,) = json.loads(axe("run", "d.axe", "--bind", "rows=3", "--json")[1])
    assert row["shape"] == [3, 4]
    assert repr(axe_eq.load("d.axe")) == "<Loaded 'd.axe' for cpu: 1 kernel>"


def test_what_is_compiled_takes_no_options_to_compile_it(axe: Axe, tmp_path: Path) -> None:
    axe("compile", "programs.py:dense", *SPECS, "--target", "cpu", "-o", "d.axe")
    code, _, said = axe("run", "d.axe", *SPECS, "--numerics", "exact")
    assert code == 2
    assert "file 'd.axe': is compiled already, and --spec --numerics would change nothing" in said
    (tmp_path / "half.axe").write_bytes((tmp_path / "d.axe").read_bytes()[:100])
    for name in ("half.axe", "nowhere.axe"):
        code, _, said = axe("explain", name)
        assert code == 2
        assert said.startswith(f"ArgumentError: file '{name}': ")
        assert said.endswith("; expected a saved executable\n")


# -- what is not here ------------------------------------------------------------------------------


def test_a_device_that_is_not_here_is_said_before_its_compiler(
    axe: Axe, monkeypatch: pytest.MonkeyPatch
) -> None:
    from axe_eq_backends.cuda.run import CudaRunner

    monkeypatch.setattr(CudaRunner, "present", lambda self, target: False)
    monkeypatch.setattr(CudaRunner, "compile", pytest.fail)
    code, out, said = axe("run", "programs.py:dense", *SPECS, "--target", "h200")
    assert (code, out) == (2, "")
    assert said.startswith("DeviceError: target 'h200': no such GPU or other device is here; ")
    assert "axe compile" in said


def test_an_index_of_several_dims_asks_for_the_option(axe: Axe) -> None:
    code, _, said = axe("layout", "apply", "S[(4,8):(8,1)]", "3,5")
    assert code == 2
    assert "--shape" in said
    assert axe("layout", "apply", "S[(4,8):(8,1)]", "3,5", "--shape", "4x8")[1] == "29@m\n"


def without(package: str, code: str) -> subprocess.CompletedProcess[str]:
    """A program in an interpreter where a package is not installed."""
    start = f"import sys; sys.modules[{package!r}] = None; "
    return subprocess.run(
        [sys.executable, "-c", start + code], capture_output=True, text=True, check=False
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("package", "code", "what"),
    [
        ("egglog", "import axe_eq; axe_eq.compile", "axe_eq.compile"),
        ("egglog", "import axe_eq; axe_eq.equivalent", "axe_eq.equivalent"),
        ("lark", "import axe_eq; axe_eq.read", "axe_eq.read"),
        ("egglog", "sys.argv = ['axe', 'targets']; import axe_eq.__main__ as m; m.main()", "axe"),
        ("click", "sys.argv = ['axe', 'targets']; import axe_eq.__main__ as m; m.main()", "axe"),
        ("rich", "sys.argv = ['axe', 'targets']; import axe_eq.__main__ as m; m.main()", "axe"),
        ("threadpoolctl", "from axe_eq import pack as p; p.installed()['cpu'].runners['cpu'].load",
         "module 'axe_eq_backends.cpu.run'"),
    ],
)  # fmt: skip
def test_a_missing_package_is_one_clear_error(axe: Axe, package: str, code: str, what: str) -> None:
    done = without(package, code)
    assert done.returncode in (1, 2)
    wanted = f"MissingPackage: {what}: needs the package {package!r}, which is not installed"
    assert wanted in done.stderr
    assert "axe.load" in done.stderr
    assert "Traceback" not in done.stderr or what != "axe"


def test_what_needs_no_package_works_without_it(axe: Axe) -> None:
    axe("compile", "programs.py:dense", *SPECS, "--target", "cpu", "-o", "d.axe")
    done = without("egglog", "import axe_eq; print(axe_eq.load('d.axe').explain())")
    assert done.stdout.startswith("schedule for cpu"), done.stderr
    assert without("egglog", "import axe_eq; print(axe_eq.read('axe', 'S[(4):(1)]'))").stdout


@pytest.mark.parametrize("sides", [("programs.py", "dense"), ("programs.py:dense", "programs.py")])
def test_a_file_without_a_function_asks_for_one(axe: Axe, sides: tuple[str, str]) -> None:
    code, out, said = axe("equiv", *sides, *SPECS)
    assert (code, out) == (2, "")
    wanted = "names no function; expected programs.py:FUNCTION"
    assert said == f"ArgumentError: program 'programs.py': {wanted}\n"

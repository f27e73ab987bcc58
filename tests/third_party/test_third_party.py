"""A pack of another distribution is installed, fused, extracted and checked like ours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PROBE = """
import json, sys
import numpy as np
import axe_eq as axe
from axe_eq_example_pack import mygate

def gated(x, w, r):
    return mygate(x @ w, r)

def product(x, w, r):
    return (x @ w) * axe.array.sigmoid(r)

def by_tanh(x, w, r):
    return axe.array.tanh(r / 2) * (x @ w) / 2 + (x @ w) / 2

def chosen(rows, **options):
    specs = [f"{rows}x1024:f16", "1024x2048:f16", f"{rows}x2048:f16"]
    exe = axe.compile(gated, *specs, target="h200", **options)
    cells = [[n.cell for n in k.nodes if n.cell] for k in exe.kernels]
    return {"cells": cells, "schedules": [k.schedule for k in exe.kernels], "fired": exe.matches}

rng = np.random.default_rng(0)
arrays = [rng.standard_normal(s) for s in ((5, 4), (4, 3), (5, 3))]
exe = axe.compile(gated, *arrays, target="cpu")
x, w, r = arrays
def compiled():
    try:
        from axe_eq_backends.cuda.compile import compile_text
        import cuda.bindings.nvrtc
    except ImportError:
        return None
    exe = axe.compile(gated, "136x64:f16", "64x128:f16", "136x128:f16", target="h200")
    return [[text, compile_text(text, 90, name).log] for name, text in exe.source.items()]

from axe_eq_example_pack.chip import mygcd, myfarthest
def on_chip(fn, wanted, x):
    exe = axe.compile(fn, x, target="chip")
    (kernel,) = exe.kernels
    right = all(np.array_equal(found, wanted(x)) for found in (exe.interpret(x), axe.run(fn, x)))
    (text,) = exe.source.values()
    return [right, kernel.schedule, dict(kernel.parameters), text]
floats = rng.standard_normal((5, 300)).astype("f4")
def on_core(fn, x, target="core"):
    exe = axe.compile(fn, x, target=target)
    (kernel,), (text,) = exe.kernels, exe.source.values()
    right = all(np.array_equal(found, fn(x)) for found in (exe(x), exe.interpret(x)))
    return [right, kernel.schedule, dict(kernel.parameters), text]
whole = 6 * rng.integers(-9, 9, (5, 70)).astype("i4")

from click.testing import CliRunner
from axe_eq.cli import axe as command, register
from gaps import gap
used = axe.equivalent(lambda x, y: gap(x, y) + y, lambda x, y: x, "8:f32", "8:f32")
register()
checked = CliRunner().invoke(command, ["packs", "check", "gaps"])

print(json.dumps({
    "page": [bool(used), checked.exit_code, checked.output],
    "gcd": on_chip(mygcd, lambda x: np.gcd.reduce(x, axis=1), whole),
    "farthest": on_chip(myfarthest, lambda x: np.abs(x).max(axis=1), floats),
    "pieces": on_chip(lambda x: x + x, lambda x: x + x, rng.standard_normal(4096).astype("f4")),
    "strips": on_core(abs, rng.standard_normal((100, 512)).astype("f4")),
    "magnitude": on_core(abs, floats),
    "strips of trn2": on_core(abs, rng.standard_normal((100, 512)).astype("f4"), "trn2"),
    "compiled": compiled(),
    "many rows": chosen(4096),
    "few rows": chosen(8),
    "without the law": chosen(4096, without=["gates/gate_by_tanh"]),
    "exact": chosen(8, numerics="exact"),
    "error": float(np.abs(exe(*arrays) - x @ w / (1 + np.exp(-r))).max()),
    "kernels on cpu": len(exe.kernels),
}))
"""


def _environment(*folders: Path) -> dict[str, str]:
    """The environment with these folders importable, as a user's site folder is."""
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}


def _python(code: str, *folders: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=_environment(*folders)
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _axe(*arguments: str, folder: Path, before: str = "") -> tuple[int, str]:
    command = [sys.executable, "-c", f"{before}from axe_eq.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(folder))
    return done.returncode, done.stdout + done.stderr


def _of_page(folder: Path) -> Path:
    """The distribution that docs/packs.md shows, from its blocks: a path, then the file."""
    page = (HERE.parents[1] / "docs" / "packs.md").read_text(encoding="utf-8")
    files = re.findall(r"^```\w+\n# (gaps/\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["gaps/pyproject.toml", "gaps/gaps.py"]
    (folder / "gaps").mkdir()
    for name, text in files:
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "gaps"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the distribution installed, without a network."""
    source = tmp_path_factory.mktemp("source") / "dist"
    shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    folder = tmp_path_factory.mktemp("site")
    page = _of_page(source.parent)
    command = "-m pip install --quiet --no-build-isolation --no-deps --no-index --target"
    subprocess.run(
        [sys.executable, *command.split(), str(folder), str(source), str(page)],
        check=True,
        capture_output=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    return folder


@pytest.fixture(scope="module")
def probe(site: Path) -> dict[str, Any]:
    found: dict[str, Any] = _python(PROBE, site)
    return found


def test_the_operator_is_fused_into_its_product_and_extracted(probe: dict[str, Any]) -> None:
    assert probe["without the law"]["cells"] == [["mul", "mygate"]]
    assert probe["without the law"]["schedules"] == ["tensor_cores"]
    assert probe["kernels on cpu"] == 1
    assert probe["error"] < 1e-12


def test_the_operator_is_written_as_its_pack_spells_it(probe: dict[str, Any]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    ((text, log),) = probe["compiled"]
    assert "(0.5f + 0.5f * tanhf(0.5f * " in text
    assert "0 bytes spill stores" in log


def test_the_law_fires_and_extraction_takes_the_cheaper_form(probe: dict[str, Any]) -> None:
    assert probe["many rows"]["cells"] == [["mul", "mytanhgate"]]
    assert probe["many rows"]["fired"]["gates/gate_by_tanh"] == 1
    assert "gates/gate_by_tanh" not in probe["without the law"]["fired"]


def test_the_schedule_is_picked_where_it_is_cheaper(probe: dict[str, Any]) -> None:
    assert probe["few rows"]["schedules"] == ["few_rows"]
    assert probe["many rows"]["schedules"] == ["tensor_cores"]


def test_a_pack_of_real_laws_takes_no_part_in_exact_numerics(probe: dict[str, Any]) -> None:
    assert probe["exact"]["cells"] == [["mul", "mygate"]]
    assert probe["exact"]["schedules"] != ["few_rows"]


# Of the sample programs of `axe packs check`: what the schedule takes, and what it refuses.
FEW = ("few rows @ b", "a @ b", "silu(a @ b) * (a @ c)", "softmax")
SAMPLES = "from axe_eq import schedulecheck as s; s.SAMPLES = {n: s.SAMPLES[n] for n in %r}; "


def test_the_pack_is_listed_and_what_it_declares_holds(site: Path, full: bool) -> None:
    code, text = _axe("packs", "list", "--json", folder=site)
    (listed,) = [row for row in json.loads(text) if row["name"] == "gates"]
    assert code == 0
    assert listed["version"] == "0.3.0"
    assert listed["operators"] == ["cell mygate", "cell mytanhgate"]
    assert listed["schedules"] == ["few_rows"]
    before, count = ("", 31) if full else (SAMPLES % (FEW,), len(FEW))
    code, text = _axe("packs", "check", "gates", folder=site, before=before)
    assert code == 0, text
    held, kernels = text.splitlines()
    assert code == 0
    assert held == "pack 'gates': 1 laws hold on samples, cell mygate, cell mytanhgate as declared"
    right = rf"schedule 'few_rows': [1-9] kernels of {count} programs compute their cones on 'h200'"
    assert re.fullmatch(right, kernels)


def test_a_machine_with_an_instruction_and_monoids_is_compiled_for_and_interpreted(
    probe: dict[str, Any],
) -> None:
    right, schedule, _, text = probe["gcd"]
    assert (right, schedule) == (True, "lanes")
    assert "while (b) { int r = a % b; a = b; b = r; } return abs(a);" in text
    right, schedule, _, text = probe["farthest"]
    assert (right, schedule) == (True, "lanes")
    assert "magnitude.f32, bits cleared" in text
    assert 'asm("abs.f32 %0, %1;"' in text
    right, schedule, parameters, _ = probe["pieces"]
    assert (right, schedule, parameters) == (True, "pieces_of_warps", {"p": 1024, "warps": 2})


def test_an_instruction_of_trainium_and_a_schedule_for_it_are_compiled_with(
    probe: dict[str, Any],
) -> None:
    right, schedule, parameters, text = probe["strips"]
    assert (right, schedule, parameters["wide"]) == (True, "strips", 256)
    assert "in range(2):" in text
    right, schedule, _, text = probe["magnitude"]
    assert (right, schedule) == (True, "tiles")
    assert "[magnitude.f32]" in text
    assert "nisa.tensor_tensor(dst=" in text
    right, schedule, parameters, text = probe["strips of trn2"]
    assert (right, schedule, parameters["wide"]) == (True, "strips", 256)
    assert "[scalar.activation]" in text


def test_all_that_such_a_pack_brings_is_tested(site: Path) -> None:
    code, text = _axe("packs", "check", "chip", folder=site, before=SAMPLES % (("row sums",),))
    assert code == 0, text
    held, pieces, rows = text.splitlines()
    declared = "cell mygcd, monoid mygcd, monoid myfarthest as declared"
    assert held == f"pack 'chip': 0 laws hold on samples, {declared}"
    assert re.fullmatch(r"schedule 'pieces_of_warps': [1-9] kernels of .* on 'chip'", pieces)
    assert re.fullmatch(r"row family 'magnitude': \d+ calls in 2 programs do .* on 'chip'", rows)


@pytest.fixture
def site_with(site: Path, tmp_path: Path) -> Callable[[str], Path]:
    """`site_with(module)`: a folder in which that module of the distribution is the pack."""

    def make(module: str) -> Path:
        shutil.copytree(site / "axe_eq_example_pack", tmp_path / "axe_eq_example_pack")
        info = tmp_path / "axe_eq_example_pack-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: axe-eq-example-pack\n")
        entry = f"[axe_eq.packs]\n{module}_gates = axe_eq_example_pack.{module}:PACK\n"
        (info / "entry_points.txt").write_text(entry)
        return tmp_path

    return make


def test_a_wrong_law_is_caught_by_name(site_with: Callable[[str], Path]) -> None:
    code, text = _axe("packs", "check", "wrong_gates", "--json", folder=site_with("wrong"))
    (finding,) = json.loads(text)
    assert code == 1
    assert finding.startswith("law 'wrong_gates/halves_commute': its sides differ over the reals")
    assert "states: [otherhalf](y, r) = [otherhalf](r, y)." in finding


@pytest.mark.parametrize("module", ["lying", "broken"])
def test_a_pack_that_does_not_load_is_one_clear_error(
    module: str, site_with: Callable[[str], Path], golden: Callable[..., None]
) -> None:
    code, text = _axe("packs", "list", folder=site_with(module))
    assert code == 2
    golden(text)


def test_the_distribution_of_the_page_is_installed_used_and_checked(probe: dict[str, Any]) -> None:
    used, code, said = probe["page"]
    assert used
    assert code == 0, said
    assert re.search(r"\bgaps\b", said)

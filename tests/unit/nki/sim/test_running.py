"""Loading, limits, the command line, and one clear message for every bad input."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from axe_eq.cli import main
from axe_eq_backends.nki.sim import NkiError, simulate
from axe_eq_backends.nki.sim.lint import check
from axe_eq_backends.nki.sim.loading import execute, findable, load_file
from axe_eq_backends.nki.sim.process import Job, Limits, run_file
from axe_eq_backends.nki.sim.worker import MOST_PRINTED
from tests.unit.nki.sim.good_kernels import GEMM, HEAD, SOFTMAX, arguments, expected


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def axe(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["axe", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


# -- bad input -------------------------------------------------------------------------------------

SCALE = f"""{HEAD}def scale(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=t)
    return out
"""

BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "partition of 129": (SCALE, {"x": np.ones((129, 512), np.float32)}),
    "sbuf exceeded": (SCALE, {"x": np.ones((2, 60_000), np.float32)}),
    "dtype that an engine lacks": (
        SCALE.replace(
            "nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)",
            "p = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.psum)\n"
            "    nisa.nc_matmul(dst=p, stationary=t, moving=t)",
        ),
        {"x": np.ones((4, 4), np.int32)},
    ),
    "dtype of no kernel": (SCALE, {"x": np.ones((4, 4))}),
    "file without the kernel": (SCALE.replace("def scale", "def other"), {}),
    "unknown instruction": (SCALE.replace("tensor_scalar", "tensor_scaler"), {}),
    "instruction of another dialect": (
        SCALE.replace("    return out", "    nl.par_dim(4)\n    return out"),
        {},
    ),
    "instruction of a later dialect": (
        SCALE.replace("    return out", "    nisa.select_reduce(dst=t)\n    return out"),
        {"dialect": "0.2"},
    ),
    "unknown argument": (SCALE.replace("operand0=2.0", "operand=2.0"), {}),
    "unknown module": (SCALE.replace("import nki.isa", "import nki.isb"), {}),
    "too many instructions": (
        SCALE.replace("    nisa.tensor_scalar", "    for _ in range(100): nisa.tensor_scalar"),
        {"most_instructions": 60},
    ),
    "no python": (SCALE.replace("(x):", "(x:"), {}),
    "fails while loading": ("import nothing_of_that_name\n", {}),
    "fails while running": (SCALE.replace("operand0=2.0", "operand0=x.shape[2]"), {}),
    "no tensor": (SCALE.replace("data=t", "data=3"), {}),
    "no operator": (SCALE.replace("op0=nl.multiply", "op0='mul'"), {}),
    "no memory": (SCALE.replace("buffer=nl.sbuf", "buffer='sbuf'"), {}),
    "no dtype": (SCALE.replace("dtype=x.dtype, buffer=nl.sbuf", "dtype='f99', buffer=nl.sbuf"), {}),
    "assigned": (SCALE.replace("    return out", "    t[0:1] = 0\n    return out"), {}),
    "returns a tile": (SCALE.replace("return out", "return t"), {}),
    "result in other memory": (SCALE.replace("shared_hbm", "private_hbm"), {}),
    "endless": (SCALE.replace("    return out", "    return scale(x)"), {}),
    "other arguments": (SCALE.replace("def scale(x)", "def scale(x, y)"), {}),
    "other target": (SCALE, {"target": "trn9"}),
    "other dialect": (SCALE, {"dialect": "0.1"}),
    "live tiles": (
        SCALE.replace(
            "nisa.dma_copy(dst=out, src=t)",
            "held = [nl.zeros((4, 30000), dtype=nl.float32) for _ in range(2)]\n"
            "    [nisa.tensor_copy(dst=t, src=h[0:4, 0:4]) for h in held]\n"
            "    nisa.dma_copy(dst=out, src=t)",
        ),
        {},
    ),
    "overwritten": (
        SCALE.replace(
            "dtype=x.dtype, buffer=nl.sbuf)",
            "dtype=x.dtype, buffer=nl.sbuf, address=(0, 0))\n"
            "    u = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, address=(0, 8))",
        ).replace("operand0=2.0)", "operand0=2.0)\n    nisa.memset(dst=u, value=0.0)"),
        {},
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_message(name: str, golden: Callable[..., None]) -> None:
    text, options = BAD[name]
    x = (
        options.pop("x", np.ones((4, 4), np.float32))
        if "x" in options
        else np.ones((4, 4), np.float32)
    )
    with pytest.raises(NkiError) as caught:
        simulate(text, "scale", x, file="scale.py", **options)
    golden(str(caught.value))


COMMANDS = {
    "no kernel named": ["run", "scale.py"],
    "no file": ["run", "absent.py:scale"],
    "no array": ["run", "scale.py:scale", "4by4"],
    "no such dtype": ["run", "scale.py:scale", "4x4:f99"],
    "array of no file": ["run", "scale.py:scale", "absent.npy"],
    "argument after names": ["run", "scale.py:scale", "x=4x4:f32", "4"],
    "grid of nothing": ["run", "scale.py:scale", "4x4:f32", "--grid", "0"],
    "check": ["run", "scale.py:scale", "129x4:f32"],
    "time": ["run", "endless.py:endless", "4x4:f32", "--seconds", "1"],
    "memory": ["run", "large.py:large", "--memory", "900"],
    "argument of no kind": ["run", "scale.py:scale", "1j"],
    "names that are no texts": ["run", "scale.py:scale", "{1: 2}"],
    "argument given twice": ["run", "scale.py:scale", "x=1", "x=2"],
    "empty file": ["run", "scale.py:scale", "empty.npy"],
    "endless time": ["run", "scale.py:scale", "4x4:f32", "--seconds", "inf"],
    "exit": ["run", "exit.py:exit"],
    "result of no kind": ["run", "result.py:result"],
    "trace nowhere": ["run", "scale.py:scale", "4x4:f32", "--trace", "absent/t.json"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_bad_command_is_one_clear_message(
    name: str, axe: Any, folder: Path, golden: Callable[..., None]
) -> None:
    (folder / "scale.py").write_text(SCALE)
    (folder / "endless.py").write_text(f"{HEAD}def endless(x):\n    while True:\n        pass\n")
    (folder / "large.py").write_text(
        f"{HEAD}def large():\n    return nl.zeros((1 << 20, 512), nl.float32, nl.shared_hbm)\n"
    )
    (folder / "exit.py").write_text("def exit():\n    raise SystemExit\n")
    (folder / "result.py").write_text("def result():\n    return {1, 2}\n")
    (folder / "empty.npy").touch()
    code, out, err = axe("nki", *COMMANDS[name])
    assert (code, out) == (2, "")
    golden(err)


@pytest.mark.parametrize("text", ["x = (", "a\0b", "(" * 300, "x = " + "-" * 100_000 + "1",
                                  "x = " + "1+" * 100_000 + "1"])  # fmt: skip
def test_what_python_does_not_parse_is_one_short_message(text: str) -> None:
    with pytest.raises(NkiError, match="is no Python") as caught:
        simulate(text, "k", file="k.py")
    assert len(str(caught.value)) < 500
    with pytest.raises(NkiError, match="is no Python"):
        execute(text, "k.py", "0.3")


def test_what_a_kernel_starts_and_prints_is_held_in_bounds(folder: Path) -> None:
    (folder / "busy.py").write_text(
        "import subprocess, sys\n\n\ndef busy():\n"
        "    subprocess.Popen(['sleep', '600'])\n"
        "    for file in (sys.stdout, sys.stderr):\n"
        "        file.write('x' * 1_000_000)\n"
        "    print('more')\n    return 1.0\n"
    )
    results, report = run_file(Job("busy.py", "busy"), Limits(seconds=100))
    assert [*results] == [1.0]
    assert report["printed"] == "x" * MOST_PRINTED


# -- the command -----------------------------------------------------------------------------------


def test_a_file_runs_in_a_process_of_its_own(axe: Any, folder: Path) -> None:
    (folder / "gemm.py").write_text(GEMM)
    a, b = arguments("gemm")
    np.save("a.npy", a)
    np.save("b.npy", b)
    words = ["nki", "run", "gemm.py:gemm", "a.npy", "b=b.npy", "-o", "out.npz", "--trace", "t.json"]
    code, out, err = axe(*words)
    assert (code, err) == (0, "")
    wanted = expected("gemm", (a, b))
    assert np.abs(np.load("out.npz")["result0"] - wanted).max() < 1e-4
    assert "simulated on trn2, NKI 0.3" in out
    assert "model time" in out
    assert "(simulated, not measured)" in out
    assert json.loads(Path("t.json").read_text())["traceEvents"]
    code, out, _ = axe(*words, "--json", "--target", "trn3")
    report = json.loads(out)
    assert (code, report["simulated"], report["target"]) == (0, True, "trn3")
    assert report["peaks"]["psum"]["bytes"] == 2048
    assert report["warnings"] == []


def test_arrays_and_values_travel(folder: Path) -> None:
    (folder / "k.py").write_text(
        f"{HEAD}def k(x, dtype, pair, flag=True, text=''):\n"
        "    assert pair == (1, (2, 3)) and flag is False and text == 'a'\n"
        "    assert dtype == nl.bfloat16\n"
        "    print('hello')\n    return x, x\n"
    )
    x = np.array([[1.5, -2]], ml_dtypes.bfloat16)
    job = Job("k.py", "k", (x, x.dtype, (1, (2, 3))), {"flag": False, "text": "a"})
    (one, two), report = run_file(job, Limits(seconds=60))
    assert one.dtype == x.dtype
    assert (one == x).all()
    assert (two == x).all()
    assert report["printed"] == "hello\n"
    # NKI 0.3 has no `is`: noted, and no reason to stop.
    assert [w["check"] for w in report["warnings"]] == ["LINT"]


# -- a real nki ------------------------------------------------------------------------------------


def test_our_own_text_leaves_no_module_behind() -> None:
    before = set(sys.modules)
    x = arguments("softmax")
    simulate(SOFTMAX, "softmax", *x)
    assert {m for m in set(sys.modules) - before if m.partition(".")[0] == "nki"} == set()


def test_a_finder_is_asked_last_and_goes_again(folder: Path) -> None:
    (folder / "helper_of_kernels.py").write_text(
        "import nki.language as nl\nP = nl.tile_size.pmax\n"
    )
    (folder / "k.py").write_text(
        f"{HEAD}def k(x):\n    from helper_of_kernels import P\n    assert P == 128\n    return x\n"
    )
    with findable("0.2", [str(folder)]):
        assert type(sys.meta_path[-1]).__name__ == "Finder"
        kernel = load_file("k.py", "0.2")["k"]
        assert simulate(kernel, "k", np.ones((2, 2), np.float32), dialect="0.2")[0].sum() == 4
        assert hasattr(builtins, "psum")
    assert not hasattr(builtins, "psum")
    assert "nki" not in sys.modules
    assert "helper_of_kernels" not in sys.modules
    assert type(sys.meta_path[-1]).__name__ != "Finder"


def test_a_real_nki_wins_and_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "nki.py").write_text("REAL = True\n")
    monkeypatch.syspath_prepend(str(folder))
    with (
        pytest.raises(NkiError, match=r"nki: is installed \(.*nki.py\) and comes before"),
        findable("0.3"),
    ):
        pass
    # Our own text does not ask who is installed.
    assert "gemm" in execute(GEMM, "<g>", "0.3")


# -- lint ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("    return x is None", "compares by `is`"),
        ("    return x is not None", "compares by `is`"),
        ("    yield x", "is a generator"),
    ],
)
def test_python_that_nki_lacks_is_noted(line: str, found: str) -> None:
    text = f"{HEAD}def k(x):\n{line}\n"
    assert [found in w.text and w.line == ("k.py", 8) for w in check(text, "k.py", "0.3")] == [True]
    assert check(text, "k.py", "0.2") == []
    assert check(text.replace("@nki.jit", ""), "k.py", "0.3") == []


def test_a_star_in_a_signature_is_noted() -> None:
    (found,) = check(f"{HEAD}def k(x, *, y):\n    return x\n", "k.py", "0.3")
    assert "has * in its signature" in str(found)


@pytest.mark.parametrize(
    "use",
    [
        "import nki.isa as i\ni.no_such_thing",
        "from nki.isa import no_such_thing",
        "from nki import isa\nisa.no_such_thing(1)",
        "import nki\nnki.isa.no_such_thing",
        "from nki.isa import constants as c\nc.no_such_thing",
    ],
)
def test_an_absent_name_is_found_however_it_is_spelled(use: str) -> None:
    with pytest.raises(
        NkiError,
        match=r"no_such_thing: is no name of dialect 0.3; expected a name that is simulated",
    ):
        check(use, "k.py", "0.3")


def test_a_kernel_is_not_stopped_by_names_of_functions_that_it_does_not_use() -> None:
    text = (
        "import nki\nimport nki.language as nl\n"
        "def old(x):\n    return nl.arange(x)\n"
        "def helper(x):\n    return other(x)\n"
        "def other(x):\n    return nl.no_such_thing\n"
        "def k(x):\n    return x\n"
        "def l(x):\n    return helper(x)\n"
    )
    said = [str(w).splitlines()[0] for w in check(text, "k.py", "0.3", kernel="k")]
    assert said == [
        f"LINT nki.language.{name}: is no name of dialect 0.3; not run here"
        for name in ("arange", "no_such_thing")
    ]
    bound = ("absent = nki.jit(helper)\n", "from others import absent\n", "from others import *\n")
    # Through two functions; whatever is run; by another name.
    for more, kernel in ("", "l"), ("", ""), *((b, "absent") for b in bound):
        with pytest.raises(NkiError, match="is no name of dialect"):
            check(text + more, "k.py", "0.3", kernel=kernel)
    check(text, "k.py", "0.3", kernel="absent")  # that there is no such kernel is said instead
    used = text.replace("def k", "table = {1: helper}\ndef k")
    with pytest.raises(NkiError, match="no_such_thing"):
        check(used, "k.py", "0.3", kernel="k")


def test_what_nki_has_and_the_simulator_has_not_is_called_so() -> None:
    for text in (
        "import nki.isa as nisa\nnisa.quantize_mx",
        "from nki.collectives import all_reduce",
        "import nki.language as nl\nnl.rand((1, 1))",
    ):
        with pytest.raises(NkiError, match="is not simulated; expected instructions without it"):
            check(text, "k.py", "0.3")

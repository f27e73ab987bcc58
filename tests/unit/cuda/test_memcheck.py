"""Memory checks without a device: guards see strays, logs are read, what is found fails.

Kernels are functions of a fake driver, and a sanitizer is a script that says what one would.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import pickle
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.image import Image, TensorSpec
from benchmarks import memcheck, spills
from benchmarks.memcheck import GUARDS, Case, Planted, Result, failed, findings, report, run, show
from benchmarks.memcheck_cases import memory_of, of_offer, of_subject, values_of
from benchmarks.offered import PROGRAMS, covering, offers
from tests.unit.cuda.fake_driver import FakeDriver

README = Path(__file__).parents[3] / "README.md"
RESULTS = README.parent / "benchmarks" / "results"
N = 5


def halves(address: int, n: int = N) -> Any:
    """Numbers of f16 at an address."""
    there: Any = (ctypes.c_char * (2 * n)).from_address(address)
    return np.frombuffer(there, np.float16)


def add(x: int, y: int) -> None:
    halves(y)[:] = halves(x) + 1


def stray(x: int, y: int) -> None:
    halves(y, N + 1)[:] = 1


def before(x: int, y: int) -> None:
    add(x, y)
    halves(y - 2, 1)[:] = 1


def reads_past(x: int, y: int) -> None:
    halves(y)[:] = halves(x) + halves(x, N + 1)[N]


def leaves(x: int, y: int) -> None:
    halves(y)[1:] = 1


KERNELS: dict[str, Callable[..., None]] = {
    f"n{number}_{fn.__name__}": fn
    for number, fn in enumerate((add, stray, before, reads_past, leaves))
}


def case(name: str, expected: Any = None) -> Case:
    specs = tuple(TensorSpec(t, "f16", (N,), (1,), 2) for t in "xy")
    image = Image(name, b"", 90, "13.0", 32, 0, 1, False, (), specs,
                  (("pointer", "x"), ("pointer", "y")), ())  # fmt: skip
    given = {"x": np.arange(N, dtype=np.float16).tobytes()}
    size, results = {"x": 2 * N, "y": 2 * N}, {"y": Result("f16", (N,), expected)}
    return Case(name, image, {}, {"x": "x", "y": "y"}, size, given, results)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("n0_add", ""),
        ("n1_stray", "writes past y"),
        ("n2_before", "writes before y"),
        ("n3_reads_past", "depend on what lies around"),
        ("n4_leaves", "was there before"),
    ],
)
def test_guards_see_what_strays(cu: FakeDriver, name: str, wrong: str) -> None:
    cu.kernels = KERNELS
    found = run(case(name), guards=True)
    assert wrong in found
    assert bool(wrong) == bool(found)
    assert not cu.memory


def test_buffers_that_are_too_short_and_wrong_values_are_seen(cu: FakeDriver) -> None:
    cu.kernels = KERNELS
    assert run(case("n0_add"), True, {"y": 2}) == "writes past y"
    assert "depend" in run(case("n0_add"), True, {"x": 2})
    assert run(case("n0_add", np.arange(N) + 1.0), False) == ""
    assert run(case("n0_add", np.arange(N) + 2.0), False) == "y is wrong with 1 CTAs"


LOG = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 2 bytes
=========     at n0_add+0x150
=========     by thread (0,0,0) in block (0,0,0)
=========
========= Invalid __global__ write of size 2 bytes
=========     at n0_add+0x150
=========     by thread (1,0,0) in block (0,0,0)
========= Error: Race reported between Write access at n1_stray+0x10
=========     and Read access at n1_stray+0x20 [4 hazards]
========= Something else
========= ERROR SUMMARY: 4 errors
"""


def test_findings_name_their_kernels() -> None:
    assert findings(LOG) == [
        *[("n0_add", "Invalid __global__ write of size 2 bytes")] * 2,
        ("n1_stray", "Error: Race reported between Write access at n1_stray+0x10"),
        ("", "Something else"),
    ]


def sanitizer(folder: Path, told: str, log: str = "") -> str:
    """A script that says this in place of the cases, and that in its log."""
    path = folder / "sanitizer"
    path.write_text(f"""#!{sys.executable}
import sys
given = sys.argv
if "--help" in given:
    print("  --padding arg")
elif "--version" in given:
    print("Version 7.1 (build 2)")
else:
    assert given[given.index("--padding") + 1] == "4096"
    numbers = given[given.index("--numbers") + 1].split(",")
    open(given[given.index("--log-file") + 1], "w").write({log!r} if "0" in numbers else "")
    planted = "--planted" in given
    exec({told!r})
""")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def saved(folder: Path) -> Path:
    path = folder / "cases.gz"
    plant = Planted("a store past a buffer", case("n1_stray"), ("memcheck",))
    found = [case("n0_add"), case("n1_stray"), case("n2_before")], [plant]
    path.write_bytes(gzip.compress(pickle.dumps(found)))
    return path


CLEAN = r"""
for n in numbers:
    print("@ begin", n)
    print("@ end", n, "writes past y" if planted else "")
"""


def test_what_a_sanitizer_says_is_summed_up(tmp_path: Path) -> None:
    path = saved(tmp_path)
    board = report(path, ["memcheck"], sanitizer(tmp_path, CLEAN), 1)
    assert not failed(board)
    assert board["sanitizer"] == "7.1"
    assert board["tools"]["memcheck"]["kernels"] == 3
    board = report(path, ["memcheck"], sanitizer(tmp_path, CLEAN, LOG), 1)
    row = board["tools"]["memcheck"]
    assert failed(board)
    assert row["findings"][0] == {"kernel": "n0_add",
                                  "what": ["Invalid __global__ write of size 2 bytes"]}  # fmt: skip
    assert row["others"] == ["Something else"]
    assert "memcheck          3         3         1 of 1" in "\n".join(show(board))
    blind = CLEAN.replace("if planted", "if False")
    assert failed(report(path, ["memcheck"], sanitizer(tmp_path, blind), 1))


def test_a_kernel_that_ends_the_process_costs_itself_alone(tmp_path: Path) -> None:
    ends = CLEAN.replace('    print("@ end', "    if n == '1': sys.exit(3)\n    print(\"@ end")
    board = report(saved(tmp_path), ["memcheck"], sanitizer(tmp_path, ends), 1)
    assert board["tools"]["memcheck"]["findings"] == [
        {"kernel": "n1_stray", "what": ["ends the process"]}
    ]


def test_what_cannot_be_checked_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path)
    refuses = sanitizer(tmp_path, "print('Error: Device not supported')")
    for given, says in ((refuses, "Device not supported"), ("/nowhere", "/nowhere; expected")):
        arguments = ["memcheck", "--gpu", str(path), "--tools", "memcheck", "--sanitizer", given]
        monkeypatch.setattr(sys, "argv", arguments)
        assert memcheck.main() == 2
        assert says in capsys.readouterr().err
    assert memcheck.command(GUARDS, "/nowhere") == ([], "")


# -- cases --


def test_buffers_end_at_their_last_element() -> None:
    made, planned = of_subject("cells of rows apart", 7)
    assert planned.kernel.name == "n7_elementwise"
    assert made.n_bytes == {"x": 2 * (2 * 336 + 331), "y": 2 * (2 * 336 + 331)}
    assert set(made.given) == {"x"}
    merging, _ = of_subject("merging rows", 8)
    assert set(merging.given) == {"X", "Y"}  # memory adds to what Y holds


def test_kernels_of_programs_read_indices_up_to_the_last() -> None:
    fn, specs = PROGRAMS["rows by number"]
    program = axe.trace(fn, *specs)
    (offer,) = offers(program)
    values = values_of(program, offer.graph, 0)
    memory = memory_of(offer, values)
    n_bytes, given, results = memory
    assert sorted(n_bytes.values()) == [77 * 4, 77 * 1000 * 2, 333 * 1000 * 2]
    (rows,) = (np.frombuffer(g, np.int32) for g in given.values() if len(g) == 77 * 4)
    assert (rows.min(), rows.max()) == (0, 332)
    assert [r.at for r in results.values()] == [(77, 1000)]
    written = of_offer("rows", 5, offer, offer.prices[-1], memory)
    assert written is not None
    last, planned = written
    assert planned.kernel.name.startswith("n5_")
    assert set(last.places.values()) == set(n_bytes)


def test_candidates_cover_all_that_is_offered() -> None:
    fn, specs = PROGRAMS["product"]
    (offer,) = offers(fn, specs)
    taken = covering(offer.prices)
    marks = [{(p.row, *x) for p in some for x in p.parameters} for some in (taken, offer.prices)]
    assert marks[0] == marks[1]
    assert taken[0] is offer.prices[0]
    assert len(taken) < len(offer.prices) / 20


def test_the_last_run_found_nothing_and_readme_says_of_how_many() -> None:
    board = json.loads((RESULTS / "memcheck.json").read_text(encoding="utf-8"))
    assert not failed(board)
    assert set(board["tools"]) == set(memcheck.TOOLS)
    (kernels,) = {row["kernels"] for row in board["tools"].values()}
    assert f"| {kernels} kernels of every schedule" in README.read_text(encoding="utf-8")


def test_spills_are_read_from_what_the_compiler_says() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    found = spills.checked(["turned"])
    assert found == {"candidates": {"turned": 6}, "spilled": {}}
    lines = ["int a[64];", *(f"a[{n}] = x[{n}];" for n in range(64))]
    lines += ["for (int i = 0; i < 99; i++) {"]
    lines += [f"a[{n}] = a[{n}] * a[{(n + 1) % 64}] + i;" for n in range(64)]
    lines += ["}", *(f"x[{n}] = a[{n}];" for n in range(64))]
    head = 'extern "C" __global__ void __launch_bounds__(1024, 2) f(int *x)'
    assert spills.spilled(compile_text("\n".join([head, "{", *lines, "}"]), 90).log) > 0

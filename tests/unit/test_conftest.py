"""The golden files' rules, tried on small suites that use this suite's conftest.py."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SUITE = """
import os
import pytest

def test_text(golden):
    golden("first")
    golden("second", key="k")

@pytest.mark.skip(reason="no device")
def test_skipped(golden):
    golden("unseen")

def test_environment(full):
    assert full is False
    assert sorted(n for n in os.environ if n.startswith("AXE_")) == ["AXE_CACHE_DIR", "AXE_CHECK"]
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    shutil.copy(CONFTEST, tmp_path / "tests")
    (tmp_path / "tests/test_it.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\nmarkers =\n gpu\n")
    return tmp_path


def _run(suite: Path, *options: str) -> tuple[int, str]:
    """pytest in a fork of this process, which has imported already what a new one would import."""
    printed = suite / "printed.txt"
    gc.freeze()  # a collection in the child would copy all of this process
    child = os.fork()
    if child == 0:
        os._exit(_in_fork(suite, printed, ["-q", "-p", "no:cacheprovider", *options]))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), printed.read_text()


def _in_fork(suite: Path, printed: Path, options: list[str]) -> int:
    """The exit code of pytest, with what it prints in a file; 99 where it raises."""
    try:
        with printed.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            sys.stdout = sys.stderr = file
            os.environ.clear()
            os.environ["AXE_DEBUG"] = "no such level"
            os.chdir(suite)
            sys.path.insert(0, str(suite))
            for name in [name for name in sys.modules if name.startswith("benchmarks")]:
                del sys.modules[name]
            return int(pytest.main(options))
    except BaseException:
        return 99


def _goldens(suite: Path) -> dict[str, str]:
    folder = suite / "tests/golden"
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*.txt")}


def test_golden_files_are_written_compared_and_kept_alive(suite: Path) -> None:
    code, output = _run(suite)
    assert code == 1
    assert "no golden file test_it/test_text.txt; run pytest --update-golden" in output

    assert _run(suite, "--update-golden")[0] == 0
    written = {"test_it/test_text.txt": "first\n", "test_it/test_text.k.txt": "second\n"}
    assert _goldens(suite) == written
    skipped = suite / "tests/golden/test_it/test_skipped.txt"
    skipped.write_text("kept: its test is only skipped here\n")
    assert _run(suite)[0] == 0

    (suite / "tests/golden/test_it/test_text.txt").write_text("other\n")
    code, output = _run(suite)
    assert code == 1
    assert "differs from golden file test_it/test_text.txt" in output


def test_a_golden_file_nobody_compares_fails_a_whole_run_only(suite: Path) -> None:
    _run(suite, "--update-golden")
    stale = suite / "tests/golden/test_it/test_renamed.txt"
    stale.write_text("stale\n")
    assert _run(suite, "-k", "text")[0] == 0
    code, output = _run(suite)
    assert code == 1
    assert "no test compares golden file test_it/test_renamed.txt" in output
    assert _run(suite, "--update-golden")[0] == 0
    assert not stale.exists()


def test_workers_share_what_they_compared(suite: Path) -> None:
    options = ("-p", "xdist", "--dist", "worksteal", "-n", "2")
    _run(suite, "--update-golden")
    (suite / "tests/golden/test_it/test_skipped.txt").write_text("kept: its test is skipped\n")
    (suite / "tests/golden/test_it/test_renamed.txt").write_text("stale\n")
    code, output = _run(suite, *options)
    assert code == 1
    assert output.count("no test compares golden file") == 1
    assert "test_it/test_renamed.txt" in output


def test_whole_campaigns_leave_what_they_printed(suite: Path) -> None:
    campaigns = suite / "tests/test_campaigns.py"
    campaigns.write_text("def test_a(full):\n    print('7 cases')\n\ndef test_b(): pass\n")
    (suite / "benchmarks").mkdir()
    (suite / "benchmarks/__init__.py").touch()
    shutil.copy(CONFTEST.parents[1] / "benchmarks/machine.py", suite / "benchmarks")
    kept = suite / "kept.json"
    kept.write_text('{"an older test": 3}')
    options = (str(campaigns), "--record", str(kept))
    _run(suite, *options)
    assert json.loads(kept.read_text()) == {"an older test": 3}  # a sample is no campaign
    assert _run(suite, "--full", *options, "-p", "xdist", "-n", "1")[0] == 0
    found = json.loads(kept.read_text())
    assert set(found) == {"an older test", "tests/test_campaigns.py::test_a"}
    assert found["tests/test_campaigns.py::test_a"]["printed"] == ["7 cases"]

    campaigns.write_text("def test_a(full):\n    assert False\n")
    assert _run(suite, "--full", *options)[0] == 1
    assert json.loads(kept.read_text()) == {"an older test": 3}


def test_of_sampled_tests_some_cases_run_and_others_of_another_sample(suite: Path) -> None:
    (suite / "tests/test_it.py").write_text(
        "import pytest\n\n@pytest.mark.sampled(3)\n@pytest.mark.parametrize('n', range(9))\n"
        "def test_n(n, golden):\n    print(f'case {n}')\n    golden(str(n))\n"
    )

    def cases(*options: str) -> list[str]:
        code, output = _run(suite, "-rP", "--strict-markers", *options)
        assert code == 0, output
        return re.findall("case .", output)

    ini = (suite / "pytest.ini").read_text()
    (suite / "pytest.ini").write_text(f"{ini} sampled(n): some\n")
    every = [f"case {n}" for n in range(9)]
    assert cases("--full", "--update-golden") == every
    some, others = cases(), cases("--sample", "1")  # the other cases' files are not orphans
    assert len(some) == len(others) == 3
    assert some != others
    left_out = next(case for case in every if case not in some)
    assert cases("-k", f"[{left_out[-1]}]") == [left_out]

    test = (suite / "tests/test_it.py").read_text()
    slow = [case[-1] for case in some]  # those that were taken
    (suite / "tests/test_it.py").write_text(test.replace("sampled(3)", f"sampled(7, slow={slow})"))
    assert len([case for case in cases() if case in some]) == 1
    mark = f"sampled(1, always=[{left_out[-1]!r}])"
    (suite / "tests/test_it.py").write_text(test.replace("sampled(3)", mark))
    assert cases() == [left_out]

"""Options, fixtures and skips shared by all tests."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

GOLDEN = Path(__file__).parent / "golden"

# Derandomised: a failure on one machine is a failure on all.
settings.register_profile(
    "sampled",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("full", settings.get_profile("sampled"), max_examples=1000)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("axe_eq")
    group.addoption("--full", action="store_true", help="run the large campaigns whole")
    group.addoption(
        "--sample", type=int, default=0, metavar="N", help="another choice of sampled cases"
    )
    group.addoption("--update-golden", action="store_true", help="rewrite the golden files")
    group.addoption(
        "--record", metavar="FILE",
        help="with --full: keep in this JSON file what the campaigns that passed print",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("full" if config.getoption("--full") else "sampled")
    for name in [name for name in os.environ if name.startswith("AXE_")]:
        del os.environ[name]
    # Without bytecode, every worker and every program that a test starts compiles all modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    cache = tempfile.mkdtemp(prefix="axe-eq-test-cache-")
    config.add_cleanup(lambda: shutil.rmtree(cache, ignore_errors=True))
    os.environ["AXE_CACHE_DIR"] = cache
    os.environ["AXE_CHECK"] = "1"  # every stage verifies its output in every test
    config.stash[_goldens] = _Goldens(GOLDEN, config.getoption("--update-golden"))


# -- devices --------------------------------------------------------------------------------------


def cuda_devices() -> int:
    """Number of CUDA devices the driver reports; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def _absent(marker: str, *least: int) -> str | None:
    """Why tests with `marker`, of so many devices at least, cannot run here, or None."""
    if marker == "nki":
        from axe_eq_backends.nki.device import has_nki

        return None if has_nki() else "no nki of 0.3 or later is installed"
    needed, found_devices = max(least, default={"gpu": 1, "multigpu": 2}[marker]), cuda_devices()
    if found_devices >= needed:
        return None
    return f"needs {needed} CUDA device(s), the driver reports {found_devices}"


@pytest.hookimpl(trylast=True)  # what is asked for by name is there, however it is sampled
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _skip_absent(items)
    if not config.getoption("--full"):
        left_out = _beyond_samples(items, config.getoption("--sample"))
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
        config.stash[_goldens].skipped.update(map(_golden_name, left_out))


def pytest_collection_finish() -> None:
    _keep()
    gc.set_threshold(20_000, 10, 20)


def _keep() -> None:
    """What is there now stays: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


def _beyond_samples(items: list[pytest.Item], sample: int) -> set[pytest.Item]:
    """Cases of tests marked `sampled(n)` beyond n of them, chosen by name and number of sample.

    Those that the mark calls `always`, by their ids, are taken first; those that it calls `slow`
    where no others are left.
    """
    cases: dict[tuple[Path, str], list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("sampled"):
            cases.setdefault((item.path, item.originalname), []).append(item)
    left_out: set[pytest.Item] = set()
    for found in cases.values():
        mark = found[0].get_closest_marker("sampled")
        assert mark is not None
        named = {"always": -1, "slow": 1}.items()
        places = {f"[{c}]": place for name, place in named for c in mark.kwargs.get(name, ())}

        def place(item: pytest.Function, places: dict[str, int] = places) -> tuple[int, int]:
            case = item.name.removeprefix(item.originalname)
            return places.get(case, 0), zlib.crc32(f"{sample} {item.name}".encode())

        order = sorted(found, key=place)
        left_out.update(order[mark.args[0] :])
    return left_out


def _skip_absent(items: list[pytest.Item]) -> None:
    absent = cache(_absent)
    for item in items:
        for name in ("gpu", "multigpu", "nki"):
            mark = item.get_closest_marker(name)
            if mark and (reason := absent(name, *mark.args)):
                item.add_marker(pytest.mark.skip(reason=reason))


# -- fixtures -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """True under --full: run a campaign whole instead of its sample of 2 % or so."""
    return bool(pytestconfig.getoption("--full"))


@pytest.fixture(scope="module", autouse=True)
def _keep_what_is_remembered() -> Iterator[None]:
    """Caches of the compiler hold millions of objects by the end, which collections went over."""
    yield
    _keep()


@pytest.fixture(autouse=True)
def _fixed_seeds() -> None:
    random.seed(0)
    np.random.seed(0)


@pytest.fixture
def searched() -> Iterator[None]:
    """Nothing is taken from the cache of programs: the test watches a search, or changes it."""
    from axe_eq.debug import debug

    with debug(cache=0):
        yield


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator whose seed is the test's name: the same in every order of tests."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


# -- golden files ---------------------------------------------------------------------------------


def _golden_name(item: pytest.Item) -> str:
    """Path of a test's golden files under tests/golden, up to the suffix."""
    name = re.sub(r"[^A-Za-z0-9_=-]+", "-", item.name).strip("-")
    return f"{item.path.stem}/{name}"


class _Goldens:
    """The golden files this session's tests compared, and the tests that were skipped instead."""

    def __init__(self, folder: Path, update: bool) -> None:
        self.folder, self.update = folder, update
        self.compared: set[str] = set()
        self.skipped: set[str] = set()
        self.orphans: list[str] = []

    def compare(self, name: str, text: str) -> None:
        assert name not in self.compared, f"{name} is compared twice in this run; pass a key"
        self.compared.add(name)
        path, text = self.folder / name, text.rstrip("\n") + "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden file {name}; run pytest --update-golden and review it"
        assert text == path.read_text(encoding="utf-8"), f"differs from golden file {name}"

    def find_orphans(self) -> None:
        """Remember every golden file that no test stands for; remove it when updating."""
        for path in sorted(self.folder.rglob("*.txt")):
            name = path.relative_to(self.folder).as_posix()
            if name not in self.compared and name.partition(".")[0] not in self.skipped:
                self.orphans.append(name)
                if self.update:
                    path.unlink()


_goldens = pytest.StashKey[_Goldens]()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`golden(text, key="")`: text must equal tests/golden/<test file>/<test name>[.key].txt."""
    goldens = request.config.stash[_goldens]

    def compare(text: str, key: str = "") -> None:
        __tracebackhide__ = True
        goldens.compare(_golden_name(request.node) + (f".{key}" if key else "") + ".txt", text)

    return compare


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped:
        item.config.stash[_goldens].skipped.add(_golden_name(item))
    return report


def _ran_whole(session: pytest.Session) -> bool:
    options = session.config.option
    narrowed = options.keyword or options.markexpr or options.deselect or options.ignore
    whole = session.config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return whole and not narrowed and not session.shouldstop and not session.testsfailed


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a worker of pytest-xdist compared; it is called where the report is made."""
    goldens = node.config.stash[_goldens]
    for name in ("compared", "skipped"):
        getattr(goldens, name).update(getattr(node, "workeroutput", {}).get(name, ()))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect what a campaign printed: its figures and histograms."""
    if report.when == "call" and not report.skipped:
        _called[report.nodeid] = report


_called: dict[str, pytest.TestReport] = {}


def _record(path: Path) -> None:
    """Put the campaigns of this run into the file; those of other tests stay as they were."""
    from benchmarks.machine import machine

    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for test, report in _called.items():
        known.pop(test, None)
        printed = [line for line in report.capstdout.splitlines() if line.strip()]
        if report.passed and printed:
            known[test] = {"machine": machine(), "seconds": round(report.duration, 1),
                           "printed": printed}  # fmt: skip
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a complete run that leaves a golden file uncompared."""
    goldens = session.config.stash[_goldens]
    if hasattr(session.config, "workeroutput"):  # one of several workers sees only its share
        session.config.workeroutput["compared"] = sorted(goldens.compared)
        session.config.workeroutput["skipped"] = sorted(goldens.skipped)
        return
    if _ran_whole(session):
        goldens.find_orphans()
    options = session.config.option
    if options.full and options.record:
        _record(Path(options.record))
    if goldens.orphans and not goldens.update:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    goldens = terminalreporter.config.stash[_goldens]
    verb = "removed" if goldens.update else "FAILED: no test compares"
    for name in goldens.orphans:
        terminalreporter.write_line(f"{verb} golden file {name}")

"""Options, fixtures and skips shared by all tests."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import random
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

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
    group.addoption("--update-golden", action="store_true", help="rewrite the golden files")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("full" if config.getoption("--full") else "sampled")
    for name in [name for name in os.environ if name.startswith("AXE_")]:
        del os.environ[name]
    cache = tempfile.mkdtemp(prefix="axe-eq-test-cache-")
    config.add_cleanup(lambda: shutil.rmtree(cache, ignore_errors=True))
    os.environ["AXE_CACHE_DIR"] = cache
    os.environ["AXE_CHECK"] = "1"  # every stage verifies its output in every test
    config.stash[_goldens] = _Goldens(update=config.getoption("--update-golden"))


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


def _absent(marker: str) -> str | None:
    """Why tests with `marker` cannot run here, or None."""
    if marker == "nki":
        found = any(importlib.util.find_spec(name) for name in ("nki", "neuronxcc"))
        return None if found else "no Neuron SDK (modules nki, neuronxcc) is installed"
    needed, found_devices = {"gpu": 1, "multigpu": 2}[marker], cuda_devices()
    if found_devices >= needed:
        return None
    return f"needs {needed} CUDA device(s), the driver reports {found_devices}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for marker in ("gpu", "multigpu", "nki"):
        marked = [item for item in items if item.get_closest_marker(marker)]
        if marked and (reason := _absent(marker)):
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


# -- fixtures -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """True under --full: run a campaign whole instead of its 5 % sample."""
    return bool(pytestconfig.getoption("--full"))


@pytest.fixture(autouse=True)
def _fixed_seeds() -> None:
    random.seed(0)
    np.random.seed(0)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator whose seed is the test's name: the same in every order of tests."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


# -- golden files ---------------------------------------------------------------------------------


class _Goldens:
    """The golden files used in this session."""

    def __init__(self, update: bool) -> None:
        self.update = update
        self.used: set[Path] = set()
        self.orphans: list[Path] = []

    def compare(self, path: Path, text: str) -> None:
        text = text.rstrip("\n") + "\n"
        assert path not in self.used, f"{path.name} is compared twice; pass a key"
        self.used.add(path)
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"no golden file {path}; run pytest --update-golden and review it"
        assert text == path.read_text(encoding="utf-8"), f"differs from {path}"


_goldens = pytest.StashKey[_Goldens]()


def _golden_path(item: pytest.Item, key: str = "") -> Path:
    name = re.sub(r"[^A-Za-z0-9_.=-]+", "-", item.name).strip("-")
    return GOLDEN / item.path.stem / f"{name}{'.' + key if key else ''}.txt"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`golden(text, key="")`: text must equal tests/golden/<test file>/<test name>[.key].txt."""
    goldens = request.config.stash[_goldens]

    def compare(text: str, key: str = "") -> None:
        goldens.compare(_golden_path(request.node, key), text)

    return compare


def _ran_whole(session: pytest.Session) -> bool:
    options = session.config.option
    narrowed = options.keyword or options.markexpr or options.deselect or options.ignore
    whole = session.config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return whole and not narrowed and not session.shouldstop and not session.shouldfail


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a complete run that leaves a golden file uncompared (remove it when updating)."""
    goldens = session.config.stash[_goldens]
    if not _ran_whole(session) or session.testsfailed:
        return
    skipped = {_golden_path(item).stem for item in session.items if item.get_closest_marker("skip")}
    for path in sorted(GOLDEN.rglob("*.txt")):
        if path not in goldens.used and path.stem.split(".")[0] not in skipped:
            goldens.orphans.append(path)
    if goldens.orphans and goldens.update:
        for path in goldens.orphans:
            path.unlink()
    elif goldens.orphans:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    goldens = terminalreporter.config.stash[_goldens]
    verb = "removed" if goldens.update else "FAILED: no test compares"
    for path in goldens.orphans:
        terminalreporter.write_line(f"{verb} {path.relative_to(GOLDEN.parent.parent)}")

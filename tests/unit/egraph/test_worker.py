"""Searches in a worker: limits that really stop them, errors that come back, nothing left."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from threading import Timer, get_ident
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.debug import Switches, switches
from axe_eq.egraph.session import Session
from axe_eq.egraph.worker import run_limited
from axe_eq.errors import ArgumentError, LayoutError, PackError, SearchError
from axe_eq.pack import Pack, packs
from axe_eq.pipeline.job import find_target
from axe_eq.target import Target

# What a worker is asked to do; it must be able to import this.
TASKS = """
import os, sys, time
from axe_eq.debug import progress, switches
from axe_eq.errors import LayoutError, PackError

def upper(text):
    progress.at("half")
    print("seen", file=sys.stderr)
    return text.upper()

def show(text):
    return repr((switches(), os.getcwd(), sys.path))

def refuse(text):
    raise LayoutError("layout x", "is bad", "a good one", at="f.py:1: x", hint="y")

def fail(text):
    raise ZeroDivisionError("1 / 0")

def sleep(text):
    progress.at(str(os.getpid()))
    time.sleep(1000)

def die(text):
    os.kill(os.getpid(), int(text))

def leave(text):
    print("last words", file=sys.__stderr__, flush=True)
    os._exit(7)

def take(text):
    return str(len(bytearray(int(text))))

LOADED = []

def load(size):
    LOADED.append(bytearray(size))

class Loading:
    def __reduce__(self):
        return load, (80 << 20,)

def loaded(_):
    return sum(map(len, LOADED))

def fail_in_c(text):
    raise PackError("pack 'p'", "does not load") from SystemError("error return without exception")

def swallow(text):
    raise PackError("schedule 's'", "its price fails") from MemoryError()
"""
# Packs of laws that grow without end: by themselves, as few tasks need what they import.
PACKS = """
from axe_eq.pack import Pack
from axe_eq.program.terms import Value, sel
from axe_eq.schedule.terms import LayoutText, place

LONE = Pack("lone", exact=True)
TWO = Pack("two", exact=True)

def lengthen(t: Value, L: LayoutText):
    "place(t, L) = place(flip t, L)."
    return place(t, L), place(sel("flip 0", t), L)

def double(t: Value, L: LayoutText):
    "place(t, L) = place(-t, L)."
    return place(t, L), place(sel("flip 1", t), L)

LONE.law(source="tests", demand=True)(lengthen)
TWO.law(source="tests", demand=True)(lengthen)
TWO.law(source="tests", demand=True)(double)
"""
MODULES = {"worker_tasks": TASKS, "worker_packs": PACKS}


@pytest.fixture(scope="module", autouse=True)
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("tasks")
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("worker_packs", None)


def call(name: str, argument: str = "", **limits: Any) -> Any:
    return run_limited(f"worker_tasks:{name}", argument, **limits)


def no_child_is_left() -> bool:
    """Even a zombie would be waited for."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


# -- answers --------------------------------------------------------------------------------------


def test_text_comes_back_and_so_does_what_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[str] = []
    assert call("upper", "täxt" * 50_000, tell=heard.append) == "TÄXT" * 50_000
    assert "half" in heard
    assert capsys.readouterr().err == "seen\n"
    assert no_child_is_left()


def test_a_worker_has_this_process_switches_folder_and_path(tmp_path: Path) -> None:
    with axe.debug(seed=5, without=("real", "cpu"), trace=tmp_path / "out", check=0):
        wanted = repr((switches(), os.getcwd(), sys.path))
        assert switches() != Switches()
        assert call("show") == wanted


# -- errors ---------------------------------------------------------------------------------------


def test_errors_come_back_with_their_fields() -> None:
    with pytest.raises(LayoutError) as caught:
        call("refuse")
    e = caught.value
    assert (e.thing, e.wrong, e.expected) == ("layout x", "is bad", "a good one")
    assert (e.at, e.hint) == ("f.py:1: x", "y")


BROKEN: dict[str, tuple[str, str, str]] = {
    "exception": ("fail", "", "search: failed in its worker (ZeroDivisionError: 1 / 0)"),
    "no function": ("absent", "", "search: failed in its worker (AttributeError: "),
    "exit": ("leave", "", "search: its worker died by exit code 7 (last words)"),
    "signal": ("die", str(int(signal.SIGTERM)), "search: its worker died by SIGTERM"),
    "killed": ("die", str(int(signal.SIGKILL)), "search: ran out of this machine's memory"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_worker_that_breaks_is_one_clear_error(case: str) -> None:
    name, argument, message = BROKEN[case]
    with pytest.raises(SearchError) as caught:
        call(name, argument)
    assert str(caught.value).startswith(message)
    assert no_child_is_left()


# -- limits ---------------------------------------------------------------------------------------


def test_a_worker_is_killed_at_its_deadline() -> None:
    with pytest.raises(SearchError) as caught:
        call("sleep", seconds=0.05)
    assert str(caught.value).startswith("search: exceeded AXE_TIME_LIMIT_S=0.05 s; expected ")
    assert no_child_is_left()


def test_memory_is_counted_beyond_what_imports_took() -> None:
    assert call("take", str(8 << 20), memory_bytes=64 << 20) == str(8 << 20)
    with pytest.raises(SearchError) as caught:
        call("take", str(80 << 20), memory_bytes=64 << 20)
    assert str(caught.value).startswith("search: exceeded AXE_MEMORY_LIMIT_MB=64 MiB; expected ")
    assert no_child_is_left()


def test_what_is_loaded_first_is_no_part_of_the_limit() -> None:
    """Packs used to load under the limit, and said themselves that they do not load."""
    loading = import_module("worker_tasks").Loading()
    assert run_limited("worker_tasks:loaded", loading, memory_bytes=16 << 20) == 80 << 20
    with pytest.raises(PackError, match="pack 'p': does not load"):
        call("fail_in_c")


@pytest.mark.parametrize("name", ["fail_in_c", "swallow"])
def test_an_error_for_want_of_memory_names_the_limit(name: str) -> None:
    """C code without memory fails without an exception, and packs' errors stand for their cause."""
    with pytest.raises(SearchError, match="exceeded AXE_MEMORY_LIMIT_MB=64 MiB"):
        call(name, memory_bytes=64 << 20)


def test_a_limit_beyond_any_memory_is_none() -> None:
    assert call("upper", "a", memory_bytes=10**30) == "A"


def test_an_interrupt_kills_the_worker() -> None:
    seen: list[str] = []

    def interrupt(at: str) -> None:
        if at.isdigit():
            seen.append(at)
            Timer(0.01, signal.pthread_kill, (get_ident(), signal.SIGINT)).start()

    # A suite that was started in the background is told to ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            call("sleep", tell=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int(seen[0]), 0)


# -- compile --------------------------------------------------------------------------------------

SPECS = ("64x48:f32", "48x32:f32")
FEW = ("cpu", "tiling", "tensor")  # a worker takes a second to compile the laws of all packs
TABLE = np.arange(32, dtype=np.float32)


def head(x: Any, w: Any) -> Any:
    return axe.nn.softmax(x @ w, axis=-1) + TABLE


def test_a_compilation_within_its_limits_is_the_same() -> None:
    free = axe.compile(head, *SPECS, target="cpu", packs=FEW)
    with axe.debug(time_limit_s=60, memory_limit_mb=2000):
        limited = axe.compile(head, *SPECS, target="cpu", packs=FEW)
    assert limited.schedule.graph == free.schedule.graph
    assert str(limited.schedule) == str(free.schedule)
    assert limited.explain() == free.explain()
    assert limited.matches == free.matches
    stages = [(s.name, s.depth) for s in limited.report.stages]
    assert stages == [
        ("trace", 0), ("encode", 0), ("search", 0), ("saturate", 1), ("extract", 1), ("build", 1)
    ]  # fmt: skip
    x, w = np.ones((64, 48), np.float32), np.ones((48, 32), np.float32)
    assert np.array_equal(limited(x, w), free(x, w))
    with pytest.raises(ArgumentError):
        limited(x, w[:5])
    assert no_child_is_left()


def test_a_mesh_and_a_target_of_ones_own_are_planned_alike() -> None:
    own: dict[str, Any] = {
        "target": target_of("h200").replace(smem=1 << 16),
        "mesh": axe.Mesh({"x": 2}),
        "packs": ["cuda", "tiling", "sharding"],
    }
    free = axe.compile(lambda x, w: x @ w, *SPECS, **own)
    with axe.debug(memory_limit_mb=2000):
        limited = axe.compile(lambda x, w: x @ w, *SPECS, **own)
    assert limited.schedule.graph == free.schedule.graph
    assert limited.explain() == free.explain()


def target_of(name: str) -> Target:
    return find_target(name, packs())


RUNAWAY: dict[str, tuple[str, dict[str, Any], str]] = {
    "time": ("LONE", {"time_limit_s": 0.2}, "search: exceeded AXE_TIME_LIMIT_S=0.2 s; expected "),
    "memory": ("TWO", {"memory_limit_mb": 50}, "search: exceeded AXE_MEMORY_LIMIT_MB=50 MiB; "),
}


@pytest.mark.parametrize("limit", RUNAWAY)
def test_a_law_that_grows_without_end_is_stopped(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("axe_eq.pipeline.worker.LEAST_GRACE_S", 0.1)
    name, limits, message = RUNAWAY[limit]
    laws = getattr(import_module("worker_packs"), name)
    with axe.debug(**limits), pytest.raises(SearchError) as caught:
        axe.compile(head, *SPECS, target="cpu", packs=["cpu", "tiling", laws])
    assert str(caught.value).startswith(message)
    assert f"try: a larger {'AXE_' + next(iter(limits)).upper()}" in str(caught.value)
    assert no_child_is_left()


def test_a_pack_that_no_other_process_finds_is_refused() -> None:
    with axe.debug(time_limit_s=60), pytest.raises(PackError) as caught:
        axe.compile(head, *SPECS, target="cpu", packs=["cpu", "tiling", Pack("mine")])
    assert str(caught.value).startswith("pack 'mine': cannot be found by another process; ")


def test_a_target_that_cannot_be_sent_is_refused() -> None:
    limits: Any = {"lambda": lambda: 1}
    target = target_of("cpu").replace(limits={**target_of("cpu").limits, **limits})
    with axe.debug(time_limit_s=60), pytest.raises(SearchError) as caught:
        axe.compile(head, *SPECS, target=target)
    assert "cannot be sent to another process" in str(caught.value)


# -- after a fork ---------------------------------------------------------------------------------


def test_a_forked_child_searches_in_a_worker() -> None:
    """A child has the pool of egglog's threads and no thread of it: it used to wait for ever."""
    axe.compile(lambda x: x + 1, "4:f32", target="cpu", packs=FEW)
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(there, in_child().encode())
        finally:
            os._exit(0)
    os.close(there)
    with open(here) as pipe:
        said = pipe.read() if select.select([pipe], [], [], 60)[0] else "hangs"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert said == "[3.0, 5.0] e-graph: this process was forked after its parent's first search"


def in_child() -> str:
    with axe.debug(cache=0):
        exe = axe.compile(lambda x: x * 2 + 1, "2:f32", target="cpu", packs=FEW)
    values = exe(np.array([1, 2], np.float32)).tolist()
    try:
        Session({}, [], [])
    except SearchError as error:
        return f"{values} {str(error).partition(',')[0]}"
    return f"{values} and an e-graph"

"""Results on disk: entries whole or not at all, and what a compiled program is found again by."""

from __future__ import annotations

import html
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.egraph.phases import Saturated
from axe_eq.errors import SearchError
from axe_eq.extract.search import stage as extraction
from axe_eq.pack import installed
from axe_eq.pipeline import answers
from axe_eq.program.node import InputSpec, input_node, op_node
from axe_eq.program.ops import CELLS, Cell
from axe_eq.program.types import value_type
from axe_eq.run import cache, fingerprint
from axe_eq.run.cache import Cache, key
from axe_eq.run.executable import Executable

THINGS = Cache("things")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with axe.debug(cache_dir=tmp_path):
        yield tmp_path


def was_known(exe: Any) -> bool:
    return all(s.notes.get("cached") for s in exe.report.stages[1:])


def f(x: Any) -> Any:
    return axe.array.tanh(x) + 1


SPECS = (axe.Spec((8, 4), "f32", dims=("rows", "")),)
FEW = ("cpu", "tiling", "tensor", "reassociate", "real")  # packs that suffice: less to search


def compiled(fn: Callable[..., Any] = f, *specs: Any, **options: Any) -> Any:
    return axe.compile(fn, *(specs or SPECS), **{"target": "cpu", "packs": FEW, **options})


# -- entries --------------------------------------------------------------------------------------


def test_keys_tell_their_parts_apart() -> None:
    keys = [key("a", "b"), key("ab", ""), key("ab"), key("b", "a"), key("a", "b", "")]
    assert len(set(keys)) == len(keys)
    assert key("a", b"b") == key("a", "b")


def test_damaged_entries_are_made_again(folder: Path) -> None:
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        return b"payload"

    assert [THINGS.get("x", make, bytes), THINGS.get("x", make, bytes)] == [b"payload", b"payload"]
    assert len(made) == 1
    path = folder / "things" / "x"
    whole = path.read_bytes()
    for damage in (whole[:-1], whole[:5], b"", whole[:-1] + b"?", b"x" * len(whole)):
        path.write_bytes(damage)
        assert THINGS.load("x") is None
        assert not path.exists()
        assert THINGS.get("x", make, bytes) == b"payload"
    assert len(made) == 6
    assert path.read_bytes() == whole


def test_writers_and_readers_meet_no_half_entry(folder: Path) -> None:
    payloads = {bytes([n]) * 300_000 for n in range(4)}
    seen: set[bytes | None] = set()
    writing = [True]

    def write(payload: bytes) -> None:
        for _ in range(12):
            THINGS.store("x", payload)

    def read() -> None:
        while writing[0]:
            seen.add(THINGS.load("x"))

    def inside(work: Callable[..., None], *given: Any) -> Thread:
        def run() -> None:
            with axe.debug(cache_dir=folder):  # switches are a thread's own
                work(*given)

        return Thread(target=run)

    THINGS.store("x", next(iter(payloads)))
    reader, writers = inside(read), [inside(write, p) for p in payloads]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    writing[0] = False
    reader.join()
    assert seen <= payloads
    assert [path.name for path in (folder / "things").iterdir()] == ["x"]


def test_a_named_folder_that_cannot_be_written_is_one_clear_error(
    tmp_path: Path, golden: Callable[..., None]
) -> None:
    (tmp_path / "file").write_text("")
    with axe.debug(cache_dir=tmp_path / "file" / "below"), pytest.raises(SearchError) as caught:
        compiled(lambda x: x + 1, "3:f32")
    golden(f"SearchError: {caught.value}".replace(str(tmp_path), "FOLDER"))


def test_the_default_folder_that_cannot_be_written_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cache, "_told", set())

    def both() -> None:
        for n in (1, 2):
            exe = compiled(lambda x, n=n: x + n, "3:f32")
            assert exe(np.zeros(3, np.float32)).tolist() == [n] * 3

    with axe.debug(cache_dir=None), pytest.warns(RuntimeWarning) as caught:
        both()
    assert len(caught) == 1
    assert "compiled programs are not kept: cannot write to" in str(caught[0].message)


def test_a_user_without_a_home_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr(cache, "_told", set())
    with axe.debug(cache_dir=None), pytest.warns(RuntimeWarning) as caught:
        made = [compiled(lambda x: x + 7, "3:f32") for _ in range(2)]
    assert [was_known(exe) for exe in made] == [False, False]
    assert len(caught) == 1
    assert "cannot write to the user's folder (Could not determine home" in str(caught[0].message)


def test_a_folder_that_is_only_read_serves_what_it_has(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = compiled(lambda x: x * 3, "3:f32")
    assert not was_known(exe)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert was_known(compiled(lambda x: x * 3, "3:f32"))


# -- programs -------------------------------------------------------------------------------------


def never(*_: Any, **__: Any) -> Saturated:
    raise AssertionError("searched again")


def test_a_program_is_searched_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled()
    said = first.explain()
    monkeypatch.setattr("axe_eq.pipeline.saturate_program", never)
    again = compiled()
    stages = ["trace", "encode", "saturate", "extract", "build"]
    assert [s.name for s in first.report.stages] == stages
    assert [s.name for s in again.report.stages] == stages
    assert [s.seconds for s in again.report.stages[1:]] == [0.0] * 4
    figures = first.report["saturate"].notes
    assert again.report["saturate"].notes == {**figures, "cached": True}
    assert again.schedule.graph == first.schedule.graph
    assert again.explain() == said
    assert (again.matches, again.cost) == (first.matches, first.cost)
    rng = np.random.default_rng(0)
    for rows in (8, 5):
        x = rng.standard_normal((rows, 4)).astype(np.float32)
        assert np.array_equal(again(x), first(x))
        assert np.array_equal(again.meaning(x), first.meaning(x))


def test_what_only_a_search_knows_is_searched_for(folder: Path) -> None:
    points = compiled().pareto()
    again = compiled()
    assert was_known(again)
    assert again.pareto() == points


def test_what_a_schedule_was_compared_with_is_worked_out_when_it_is_asked_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = extraction._changes

    def noted(*given: Any) -> Any:
        asked.append(1)
        return real(*given)

    monkeypatch.setattr(extraction, "_changes", noted)
    first = compiled()
    assert first.cost
    assert first.kernels
    assert first(np.zeros((8, 4), np.float32)).shape
    assert not asked
    again = compiled()
    assert was_known(again)
    assert not (folder / "explanations").exists()
    said = again.explain()  # nobody has asked before: searched again
    assert "compared with:" in said
    assert asked == [1]
    assert [exe.explain() for exe in (first, again, compiled())] == [said] * 3
    assert asked == [1]
    first.save(tmp_path / "kept.axe")
    assert axe.load(tmp_path / "kept.axe").explain() == said
    page = first.schedule.html()
    assert html.escape(said[said.index("compared with:") :]) in page


def test_a_damaged_program_is_searched_again(folder: Path) -> None:
    first = compiled()
    (path,) = (folder / "programs").iterdir()
    path.write_bytes(path.read_bytes()[:-10])
    again = compiled()
    assert not was_known(again)
    assert again.schedule.graph == first.schedule.graph
    assert was_known(compiled())


JUNK = [b"", b"{}", b"null", b"[1, 2]", b"\xff" * 9, b'"schedule"', b"[" * 100_000]


@pytest.mark.parametrize("payload", JUNK, ids=range(len(JUNK)))
def test_what_is_no_answer_of_a_search_is_searched_again(payload: bytes, folder: Path) -> None:
    first = compiled()
    (path,) = (folder / "programs").iterdir()
    answers.PROGRAMS.store(path.name, payload)  # with its right digest
    again = compiled()
    assert not was_known(again)
    assert [s.name for s in again.report.stages] == [s.name for s in first.report.stages]
    assert was_known(compiled())


@pytest.mark.parametrize("change", ["schedule", "stages"])
def test_an_answer_that_does_not_read_is_searched_again(change: str, folder: Path) -> None:
    compiled()
    (path,) = (folder / "programs").iterdir()
    answer = json.loads(answers.PROGRAMS.load(path.name) or b"")
    for wrong in (None, 3, "x", [3], {"buffers": 3}, '{"buffers": {}}', '{"buffers": [3]}'):
        answers.PROGRAMS.store(path.name, json.dumps(answer | {change: wrong}).encode())
        again = compiled()
        assert not was_known(again)
        assert len(again.report.stages) == 5


def test_constants_are_the_caller_s_not_the_cache_s(folder: Path) -> None:
    def plus(table: Any) -> Any:
        return compiled(lambda x: x + table, "2x3:f64")

    x = np.ones((2, 3))
    for _ in range(2):
        one, two = plus(np.arange(3.0)), plus(np.arange(3.0) * 10)
        assert one(x)[0].tolist() == [1, 2, 3]
        assert two(x)[0].tolist() == [1, 11, 21]
    assert was_known(one)


def target() -> axe.Target:
    return installed()["cpu"].targets["cpu"]


CHANGES: dict[str, Callable[[], Any]] = {
    "program": lambda: compiled(lambda x: axe.array.tanh(x) + 2),
    "shape": lambda: compiled(f, axe.Spec((9, 4), "f32", dims=("rows", ""))),
    "dtype": lambda: compiled(f, axe.Spec((8, 4), "f64", dims=("rows", ""))),
    "dims": lambda: compiled(f, axe.Spec((8, 4), "f32")),
    "layout": lambda: compiled(
        f, axe.Spec((8, 4), "f32", dims=("rows", ""), layout="S[(8,4):(1,8)]")
    ),
    "output layout": lambda: compiled(outputs=[axe.Layout([(4, 8, "m"), (8, 1, "m")])]),
    "target": lambda: compiled(target=target().replace(l2=1 << 12)),
    "without": lambda: compiled(without=["reassociate"]),
    "numerics": lambda: compiled(numerics="exact"),
    "limit": lambda: _with(node_limit=100_000),
    "seed": lambda: _with(seed=7),
    "left out": lambda: _with(without=("reassociate",)),
}


def _with(**switches: Any) -> Any:
    with axe.debug(**switches):
        return compiled()


def test_whatever_the_choice_depends_on_is_searched_for(folder: Path) -> None:
    compiled()
    assert [name for name, change in CHANGES.items() if was_known(change())] == []
    assert [name for name, change in CHANGES.items() if not was_known(change())] == []
    assert was_known(compiled())


def test_other_versions_are_searched_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled()
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "_version", lambda name: "another")
        assert not was_known(compiled())
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "sources", lambda *packages: "other code")
        assert not was_known(compiled())
    assert was_known(compiled())


def test_sources_are_told_apart_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "some_pack").mkdir()
    module = tmp_path / "some_pack" / "__init__.py"
    texts = ("x = 1\n", "x = 2\n", "x = 1\n")
    digests = []
    for text in texts:
        module.write_text(text)
        fingerprint.sources.cache_clear()
        digests.append(fingerprint.sources("some_pack"))
    module.rename(tmp_path / "some_pack" / "other.py")
    for name in ("__init__.py", "device.cu"):
        (tmp_path / "some_pack" / name).write_text("")
        fingerprint.sources.cache_clear()
        digests.append(fingerprint.sources("some_pack"))
    fingerprint.sources.cache_clear()
    assert digests[0] == digests[2]
    assert len(set(digests)) == 4


def test_what_no_installed_package_holds_is_not_kept(folder: Path) -> None:
    own = Cell("cached_by_nobody", 1, lambda x: x * 2)
    CELLS.add(own)
    try:
        x = input_node("x", value_type("f32[3]"))
        program = axe.Program((InputSpec(x),), (op_node("a -> a", own.name, [x]),), structure=0)
        for _ in range(2):
            assert not was_known(axe.compile(program, target="cpu", packs=FEW))
        pack = axe.Pack("of_this_test")
        pack.schedule(Odd())
        for _ in range(2):
            assert not was_known(compiled(packs=[*FEW, pack]))
    finally:
        del CELLS._by_name[own.name]
    assert not (folder / "programs").exists()


class Odd:
    """A schedule of a pack that is not installed."""

    name, families = "odd", ("of_no_machine",)

    def refuse(self, summary: Any, target: Any) -> str | None:
        return "nothing is wanted"

    def price(self, summary: Any, target: Any) -> Any:
        raise AssertionError("refused")


def test_a_search_that_a_clock_stopped_is_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Executable, "stopped", property(lambda self: "time in phase demand"))
    compiled()
    assert not (folder / "programs").exists()


def test_who_asks_to_see_a_search_gets_one(folder: Path, tmp_path: Path) -> None:
    compiled()
    assert not was_known(_with(trace=tmp_path / "trace"))
    assert not was_known(_with(level=2))
    assert not was_known(_with(cache=0))
    assert was_known(compiled())

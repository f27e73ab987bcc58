"""Switches, stages, reports and progress."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

import axe_eq
from axe_eq import debug as override
from axe_eq.debug import Report, Switches, progress, say, stage, switch_table, switches
from axe_eq.errors import AxeError, LayoutError, SearchError

ROOT = Path(__file__).parents[2]


# -- switches -------------------------------------------------------------------------------------


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Switches.from_environment({}) == Switches()
    assert Switches.from_environment({"PATH": "x", "AXE_PACKS": ""}) == Switches()


def test_every_switch_reads_from_the_environment() -> None:
    environment = {
        "AXE_DEBUG": "3",
        "AXE_TRACE": "traces",
        "AXE_CHECK": "2",
        "AXE_SEED": "17",
        "AXE_PACKS": "layout, tensor",
        "AXE_WITHOUT": "online_softmax",
        "AXE_NODE_LIMIT": "1000",
        "AXE_TIME_LIMIT_S": "2.5",
        "AXE_MEMORY_LIMIT_MB": "512",
        "AXE_CACHE": "0",
        "AXE_CACHE_DIR": "cache",
        "AXE_CORRECTIONS": str(ROOT / "LICENSE"),
    }
    assert len(environment) == len(fields(Switches))
    assert Switches.from_environment(environment) == Switches(
        level=3,
        trace=Path("traces"),
        check=2,
        seed=17,
        packs=("layout", "tensor"),
        without=("online_softmax",),
        node_limit=1000,
        time_limit_s=2.5,
        memory_limit_mb=512,
        cache=0,
        cache_dir=Path("cache"),
        corrections=ROOT / "LICENSE",
    )


BAD = {
    "unknown": {"AXE_SEEED": "1"},
    "unlike": {"AXE_Q": "1"},
    "level_word": {"AXE_DEBUG": "verbose"},
    "level_range": {"AXE_DEBUG": "7"},
    "check_negative": {"AXE_CHECK": "-1"},
    "seed_fraction": {"AXE_SEED": "0.5"},
    "packs_gap": {"AXE_PACKS": "a,,b"},
    "rows_zero": {"AXE_NODE_LIMIT": "0"},
    "time_nan": {"AXE_TIME_LIMIT_S": "nan"},
    "time_infinite": {"AXE_TIME_LIMIT_S": "inf"},
    "memory_unit": {"AXE_MEMORY_LIMIT_MB": "2G"},
    "trace_is_file": {"AXE_TRACE": "pyproject.toml"},
    "corrections_folder": {"AXE_CORRECTIONS": "axe_eq"},
    "corrections_absent": {"AXE_CORRECTIONS": "no/such.json"},
    "cache_too_long": {"AXE_CACHE_DIR": "a" * 300},
    "cache_of_nobody": {"AXE_CACHE_DIR": "~nobody_of_this_name/cache"},
    "cache_zero_byte": {"AXE_CACHE_DIR": "a\0b"},
    "seed_long": {"AXE_SEED": "9" * 5000},
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_variable_is_one_clear_error(
    case: str, golden: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(AxeError) as error:
        Switches.from_environment(BAD[case])
    golden(f"{type(error.value).__name__}: {error.value}")


def test_a_bad_variable_stops_a_process_at_its_first_stage() -> None:
    code = "from axe_eq.debug import stage\nstage('encode', lambda: print('ran'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"AXE_DEBGU": "1"}
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "AXE_DEBGU: is not a switch" in done.stderr
    assert "try: AXE_DEBUG" in done.stderr


def test_blocks_override_nest_and_end() -> None:
    outside = switches()
    with override(level=2, without=("a", "b")) as outer:
        assert switches() is outer
        with override(seed=5, without=None) as inner:
            assert (inner.level, inner.seed, inner.without) == (2, 5, ())
        assert switches() is outer
    assert switches() is outside


def test_an_override_ends_when_its_block_raises() -> None:
    outside = switches()
    with pytest.raises(LayoutError), override(level=2):
        raise LayoutError("layout", "is wrong")
    assert switches() is outside


def test_an_override_stays_in_its_thread() -> None:
    seen: list[int] = []
    with override(seed=99):
        thread = threading.Thread(target=lambda: seen.append(switches().seed))
        thread.start()
        thread.join()
    assert seen == [0]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"levl": 4}, "switch levl: is not a switch of axe_eq; expected one of level, "),
        ({"level": 9}, "switch AXE_DEBUG: cannot be '9'; expected a whole number from 0 to 6"),
        ({"level": True}, "switch AXE_DEBUG: cannot be 'True'"),
        ({"node_limit": 1.5}, "switch AXE_NODE_LIMIT: cannot be '1.5'"),
        ({"packs": ("a", "")}, "switch AXE_PACKS: cannot be 'a,'"),
    ],
)
def test_a_bad_override_is_refused_before_the_block(changes: dict[str, object], text: str) -> None:
    with pytest.raises(SearchError) as error, override(**changes):  # type: ignore[arg-type]
        pytest.fail("the block ran")
    assert str(error.value).startswith(text)


def test_the_cache_folder_follows_its_switch_then_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Switches().cache_folder == tmp_path / "axe_eq"
    assert Switches(cache_dir=tmp_path / "mine").cache_folder == tmp_path / "mine"


def test_the_page_of_switches_is_current() -> None:
    assert (ROOT / "docs/switches.md").read_text(encoding="utf-8") == switch_table(), "make docs"


def test_the_table_lists_every_switch_with_its_true_default() -> None:
    rows = [line.split("|") for line in switch_table().splitlines() if line.startswith("| `AXE")]
    assert [row[2].strip(" `") for row in rows] == [field.name for field in fields(Switches)]
    for row in rows:
        default = row[4].strip()
        if default.isdecimal():
            assert getattr(Switches(), row[2].strip(" `")) == int(default)


# -- stages ---------------------------------------------------------------------------------------


def test_a_stage_returns_its_result_and_is_reported() -> None:
    report = Report()
    assert stage("encode", lambda: 3, report=report, notes=lambda n: {"rows": n}) == 3
    record = report["encode"]
    assert record.notes == {"rows": 3}
    assert record.seconds >= 0
    assert report.to_json() == [
        {"stage": "encode", "seconds": record.seconds, "depth": 0, "notes": {"rows": 3}}
    ]


def test_stages_inside_stages_follow_them_and_count_once() -> None:
    report = Report()
    stage("outer", lambda: stage("inner", lambda: None, report=report), report=report)
    stage("after", lambda: None, report=report)
    assert [(s.name, s.depth) for s in report.stages] == [("outer", 0), ("inner", 1), ("after", 0)]
    assert report.seconds == report["outer"].seconds + report["after"].seconds
    assert [line.split()[0] for line in str(report).splitlines()] == ["outer", "inner", "after"]
    with pytest.raises(KeyError):
        report["absent"]


@pytest.mark.parametrize(("level", "called"), [(0, []), (1, ["check"]), (2, ["check", "compare"])])
def test_checks_run_at_their_level(level: int, called: list[str]) -> None:
    calls: list[str] = []
    with override(check=level):
        stage(
            "encode",
            lambda: 0,
            check=lambda _: calls.append("check"),
            compare=lambda _: calls.append("compare"),
        )
    assert calls == called


def test_a_failing_check_raises_its_error() -> None:
    def refuse(value: int) -> None:
        raise LayoutError("value", f"is {value}", "0")

    with override(check=1), pytest.raises(LayoutError, match="value: is 3"):
        stage("encode", lambda: 3, check=refuse)


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (0, []),
        (1, ["encode"]),
        (2, ["encode", "rows=3"]),
        (3, ["encode", "rows=3", "matches"]),
        (4, ["encode", "rows=3", "matches", "source"]),
    ],
)
def test_each_level_prints_more(
    level: int, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with override(level=level):
        stage(
            "encode",
            lambda: 3,
            notes=lambda n: {"rows": n},
            show={3: lambda n: "matches", 4: lambda n: "source"},
        )
    printed = capsys.readouterr()
    assert printed.out == ""
    assert [w for w in ("encode", "rows=3", "matches", "source") if w in printed.err] == words


def test_a_failing_stage_says_so_and_passes_the_error_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise LayoutError("layout (8:4)", "is wrong")

    with override(level=1), pytest.raises(LayoutError):
        stage("encode", fail)
    assert "encode failed after" in capsys.readouterr().err


def test_text_that_is_not_shown_is_not_made() -> None:
    say(1, lambda: pytest.fail("made"))


# -- traces ---------------------------------------------------------------------------------------


def test_every_stage_is_traced_as_one_file_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "traces"
    with override(trace=folder):
        stage("encode", lambda: {1, 2}, describe=sorted, notes=lambda v: {"rows": len(v)})
        stage("read/write", lambda: Path("x"))
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == ["0001-encode.json", "0002-read-write.json"]
    first, second = (json.loads(file.read_text(encoding="utf-8")) for file in files)
    assert (first["stage"], first["value"], first["notes"]) == ("encode", [1, 2], {"rows": 2})
    assert second["value"] == "x"


def test_a_second_run_keeps_the_first_one_s_traces(tmp_path: Path) -> None:
    for _ in range(2):
        with override(trace=tmp_path):
            stage("encode", lambda: 0)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_trace_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with override(trace=blocker / "below"), pytest.raises(SearchError, match="AXE_TRACE: cannot"):
        stage("encode", lambda: 0)


# -- progress -------------------------------------------------------------------------------------


def test_progress_is_silent_where_standard_error_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress.running("saturate"):
        assert progress._timer is None
        progress.at("round 3")
    assert capsys.readouterr().err == ""


def test_progress_names_the_nested_work_and_its_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.running("compile"), progress.running("saturate"):
        assert progress._timer is not None
        progress.at("round [3]")
        assert progress.line() == r"compile > saturate: round \[3]"
        progress._show()
        assert progress._status is not None
    assert progress._status is None
    assert progress._timer is None


def test_the_public_name_is_the_context_manager() -> None:
    assert axe_eq.debug is override

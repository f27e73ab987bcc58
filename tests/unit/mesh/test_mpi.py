"""Plans in real processes: shards in and out, clear errors, and no hanging.

Example 9 launches eight processes, and compares them with the simulation.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ArgumentError, AxeError, DeviceError, MissingPackage, PackError
from axe_eq.mesh.given import check_reports, report
from axe_eq.mesh.rank import part_of
from axe_eq.program.ops import Cell
from axe_eq.program.traced import elementwise
from axe_eq.run.host import HOST_ARRAYS
from axe_eq.run.launch import launch
from axe_eq_backends.mesh.mpi import MpiTransport
from tests.unit.mesh.jobs import two_ranks
from tests.unit.mesh.programs import arguments, compiled

ROOT = Path(__file__).parents[3]
JOB = Path(two_ranks.__file__)


def started(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)


def test_a_user_s_script_runs_on_its_own_shards_and_ends_when_a_rank_fails(tmp_path: Path) -> None:
    """Liars are named on every rank; a rank that is killed, raises or ends early ends the job."""
    two_ranks.compiled()  # its ranks find the search in the cache
    two_ranks.compiled(axe.Mesh({"x": 3}))
    script = [sys.executable, "-m", "tests.unit.mesh.jobs.two_ranks", str(tmp_path)]
    done = started([*MpiTransport().command(2), *script])
    for rank in (0, 1):
        assert (tmp_path / f"rank{rank}.txt").read_text().splitlines() == [
            "equal True, as planned True, y (4, 4)",
            "rank 1, shard 'w': differs from the copy of rank 0; expected copies of one part",
            "rank 1, shard 'x': has shape (3, 6); expected f32[4,6]",
            "rank 1, shard 'x': has dtype f64; expected f32[4,6]",
            "transport 'mpi': runs in 2 processes; expected 3, one per rank",
        ], done.stderr
    assert done.returncode != 0
    for how, wrong in (
        ("error", "ArgumentError: argument 'x': has shape (7, 6); expected f32[8,6]"),
        ("end", "DeviceError: rank 1: ended its script while others wait for it"),
    ):
        done = started([*MpiTransport().command(2), *script, how])
        assert wrong in done.stderr
        assert done.returncode != 0


class Refused:
    """A transport whose processes end at once."""

    name = "mpi"
    on_device = False
    one_process = False

    def open(self, n_ranks: int) -> Any:
        raise AssertionError

    def command(self, n_ranks: int) -> list[str]:
        return [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]


def test_ranks_that_end_early_are_one_clear_error() -> None:
    plan = compiled("mlp").plan
    with pytest.raises(DeviceError) as error:
        launch(plan, arguments("mlp"), Refused())
    assert str(error.value) == (
        "launch on 4 ranks: ended with status -9 before it was done; "
        "expected 4 ranks that end with results (4 did not)"
    )


HALVES = """
import numpy as np
import axe_eq as axe
from axe_eq.program.ops import Cell, monoid_of
from axe_eq.program.traced import elementwise

PACK = axe.Pack("halves")
PACK.cell(Cell("half_of", 1, lambda x: x / 2, "float"))
PACK.monoid(monoid_of("most_of", "maximum", unit=0.0, lifts="abs", exact=True))


def rows(x):
    return axe.array.block("a b -> a; most_of b", "id", elementwise("half_of", x))
"""


@pytest.mark.usefixtures("own_operators")
def test_ranks_load_the_packs_whose_operators_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "halves_of_a_pack.py").write_text(HALVES)
    monkeypatch.syspath_prepend(tmp_path)
    rows = import_module("halves_of_a_pack").rows
    exe = axe.compile(rows, "4x6:f32", target="cpu", mesh=axe.Mesh({"x": 1}))
    assert {"cell half_of", "monoid most_of"} <= exe.plan.operators()
    x = np.arange(24, dtype=np.float32).reshape(4, 6) - 12
    assert (exe.launch(x).outputs == np.abs(x / 2).max(axis=1)).all()


@pytest.mark.usefixtures("own_operators")
def test_an_operator_that_no_other_process_finds_is_one_clear_error() -> None:
    pack = axe.Pack("kept_here")
    pack.cell(Cell("kept_here", 1, lambda x: x / 2, "float"))
    exe = axe.compile(
        lambda x: elementwise("kept_here", x), "4:f32", target="cpu", mesh=axe.Mesh({"x": 1})
    )
    with pytest.raises(PackError, match="pack 'kept_here': cannot be found by another process"):
        exe.launch(np.ones(4, np.float32))


def test_a_missing_transport_says_which_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]
) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    exe, lines = compiled("mlp"), []
    for call in (lambda: exe.on("mpi"), lambda: exe.launch(*arguments("mlp"))):
        with pytest.raises(MissingPackage) as error:
            call()
        lines.append(f"{type(error.value).__name__}: {error.value}")
    golden("\n".join(lines) + "\n")


# -- shards, without processes ---------------------------------------------------------------------


def reports(change: Callable[[list[dict[str, Any]]], None]) -> list[bytes]:
    """What four ranks say of their shards of "two outputs" beside a replicated argument."""
    plan = compiled("mlp everywhere").plan
    given = dict(zip(plan.inputs, arguments("mlp everywhere"), strict=False))
    given |= compiled("mlp everywhere").schedule.constants
    shards = [{n: part_of(plan, n, a, r) for n, a in given.items()} for r in range(4)]
    change(shards)
    return [report(plan, s, HOST_ARRAYS.digest) for s in shards]


def test_of_several_copies_the_odd_one_is_the_liar() -> None:
    plan = compiled("mlp everywhere").plan
    check_reports(plan, reports(lambda shards: None))

    def lie(shards: list[dict[str, Any]]) -> None:
        shards[2]["x"] = shards[2]["x"] + np.float32(1)

    with pytest.raises(ArgumentError) as error:
        check_reports(plan, reports(lie))
    assert str(error.value) == (
        "rank 2, shard 'x': differs from the copies of ranks 0 1 3; expected copies of one part"
    )


def test_ranks_of_different_plans_are_told_apart() -> None:
    plan, other = compiled("mlp everywhere").plan, compiled("roll").plan
    said = reports(lambda shards: None)
    rolled = zip(other.inputs, arguments("roll"), strict=True)
    said[3] = report(other, {n: part_of(other, n, a, 3) for n, a in rolled}, HOST_ARRAYS.digest)
    with pytest.raises(AxeError, match=r"^rank 3: runs another plan than the other ranks"):
        check_reports(plan, said)

"""Tuning: the fastest of the nearest candidates is taken, and nothing becomes slower."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq import nn
from axe_eq.errors import ArgumentError, AxeError, DeviceError, SearchError
from axe_eq.pack import installed
from axe_eq.run.corrections import MEASURED, corrected, learn, read
from axe_eq.run.timing import alone, random_arrays
from axe_eq.schedule.graph import KernelStep, ScheduleGraph
from axe_eq_backends.cuda.run import CudaRunner

SPEC = "512x1000:f32"
Seconds = Callable[[KernelStep], float]


def softmax(x: Any) -> Any:
    return nn.softmax(x)


@pytest.fixture(scope="module")
def plain() -> Any:
    with axe.debug(cache=0):
        return axe.compile(softmax, SPEC, target="h200")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Callable[[Seconds], list[ScheduleGraph]]:
    """An H200 on which a kernel takes what a function says; and the graphs that ran there."""

    def made(seconds: Seconds) -> list[ScheduleGraph]:
        ran: list[ScheduleGraph] = []

        def timed(self: CudaRunner, graph: ScheduleGraph, target: Any, budget_s: float) -> Any:
            ran.append(graph)
            return [sum(map(seconds, graph.kernels))] * 3

        monkeypatch.setattr(CudaRunner, "present", lambda self, target: True)
        monkeypatch.setattr(CudaRunner, "device", lambda self: "NVIDIA H200")
        monkeypatch.setattr(CudaRunner, "timed", timed)
        return ran

    return made


def tuned(budget: bool | float = True, fn: Callable[..., Any] = softmax) -> Any:
    with axe.debug(cache=0):
        return axe.compile(fn, SPEC, target="h200", tune=budget)


def parameters(exe: Any) -> list[dict[str, int]]:
    return [dict(k.parameters) for k in exe.kernels]


def test_values_that_the_search_split_are_tuned(
    device: Callable[[Seconds], list[ScheduleGraph]],
) -> None:
    device(lambda k: 1e-5)
    with axe.debug(cache=0):
        exe = axe.compile(lambda x: xp.sum(x), "1269x873:f16", target="h200", tune=5.0)
    assert len(exe.kernels) == 2
    assert all(MEASURED in k.costs for k in exe.kernels)


def test_the_fastest_candidate_is_taken_whatever_its_price(
    plain: Any, device: Callable[[Seconds], list[ScheduleGraph]]
) -> None:
    ran = device(lambda k: 1e-5)
    tuned()
    (chosen,) = parameters(plain)
    others = [dict(k.parameters) for g in ran for k in g.kernels if len(g.kernels) == 1]
    wanted = next(p for p in others if p != chosen)
    device(lambda k: 1e-6 if dict(k.parameters) == wanted else 1e-5)
    exe = tuned()
    assert parameters(exe) == [wanted]
    assert exe.kernels[0].costs[MEASURED] == 1e-6
    assert "measured 1.0 us" in exe.explain()
    (stage,) = [s for s in exe.report.stages if s.name == "tune"]
    assert (stage.notes["before_s"], stage.notes["after_s"]) == (1e-5, 1e-6)


def test_what_is_no_faster_is_not_taken(
    plain: Any, device: Callable[[Seconds], list[ScheduleGraph]]
) -> None:
    # Alone a kernel of other parameters is faster, as a whole it is not.
    seconds = iter(range(1000, 0, -1))
    device(lambda k: 1e-6 * next(seconds) if dict(k.parameters) != parameters(plain)[0] else 1e-5)
    exe = tuned()
    assert parameters(exe) == parameters(plain)
    assert exe.kernels[0].costs[MEASURED] == 1e-5


def test_a_budget_that_is_spent_leaves_candidates_out(
    device: Callable[[Seconds], list[ScheduleGraph]],
) -> None:
    ran = device(lambda k: 1e-5)
    exe = tuned(1e-9)
    (stage,) = [s for s in exe.report.stages if s.name == "tune"]
    assert (stage.notes["left"], stage.notes["measured"]) == (1, 1)
    assert len(ran) == 3  # the whole before, its kernel, and the whole after


def test_a_step_alone_is_the_step_of_the_whole() -> None:
    """On the cpu target: every step alone, on what the steps before it made."""
    exe = axe.compile(lambda x, w: nn.softmax(nn.gelu(x @ w)), "9x7:f32", "7x5:f32", target="cpu")
    graph, runner = exe.schedule.graph, exe.schedule.runners["cpu"]
    rng = np.random.default_rng(0)
    given = [rng.normal(size=shape).astype("f4") for shape in ((9, 7), (7, 5))]
    held = dict(zip(graph.inputs, given, strict=True))
    for step in graph.steps:
        one = alone(graph, step)
        results = runner.prepare(one)([held[n] for n in one.inputs])
        held |= dict(zip(one.outputs, results, strict=True))
    assert np.array_equal(held[graph.outputs[0]], exe(*given))
    assert [a.shape for a in random_arrays(graph)] == [(9, 7), (7, 5)]


def test_a_tuned_program_computes_the_same_here() -> None:
    with axe.debug(cache=0):
        exe = axe.compile(softmax, "64x50:f32", target="cpu", tune=0.05)
    x = np.random.default_rng(1).normal(size=(64, 50)).astype("f4")
    assert np.allclose(exe(x), exe.meaning(x), rtol=1e-6)
    assert all(k.costs[MEASURED] > 0 for k in exe.kernels)


def test_what_was_tuned_is_kept_and_not_taken_for_what_was_not(
    tmp_path: Path, device: Callable[[Seconds], list[ScheduleGraph]]
) -> None:
    with axe.debug(cache_dir=tmp_path):
        ran = device(lambda k: 1e-5)
        axe.compile(softmax, SPEC, target="h200", tune=True)
        n_runs = len(ran)
        again = axe.compile(softmax, SPEC, target="h200", tune=True)
        untuned = axe.compile(softmax, SPEC, target="h200")
    assert len(ran) == n_runs
    assert again.kernels[0].costs[MEASURED] == 1e-5
    assert MEASURED not in untuned.kernels[0].costs


BAD: dict[str, tuple[type[AxeError], dict[str, Any], str]] = {
    "word": (ArgumentError, {"tune": "yes"}, "tune='yes': is no number of seconds"),
    "negative": (ArgumentError, {"tune": -1.0}, "tune=-1.0: is no number of seconds"),
    "absent": (DeviceError, {"tune": True, "target": "h200"},
               "target 'h200': no such device is here to measure on"),
    "mesh": (SearchError, {"tune": True, "mesh": axe.Mesh({"x": 2})},
             "tune=True: plans on a mesh are not measured"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_tuned_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, options, message = BAD[name]
    monkeypatch.setattr(CudaRunner, "present", lambda self, target: False)
    monkeypatch.setattr(CudaRunner, "device", lambda self: "none")
    with axe.debug(cache=0), pytest.raises(kind) as caught:
        axe.compile(softmax, SPEC, **{"target": "cpu", **options})
    assert str(caught.value).startswith(message)


# -- corrections --


def h200() -> Any:
    return installed()["cuda"].targets["h200"]


def test_corrections_are_what_estimates_miss(tmp_path: Path, plain: Any) -> None:
    path, target = tmp_path / "corrections.json", h200()
    with axe.debug(cache=0):
        (kernel,) = plain.kernels
        took = kernel.__class__(**{**vars(kernel), "costs": {MEASURED: 3 * kernel.time_s}})
        name = f"{kernel.schedule} {kernel.row}".strip()
        assert learn(path, target, [took, took]) == pytest.approx({name: 3.0})
        assert read(path)["h200"][name]["kernels"] == 2
        again = axe.compile(softmax, SPEC, target=corrected(target, path))
        with axe.debug(corrections=path):
            named = axe.compile(softmax, SPEC, target="h200")
    for exe in (again, named):
        assert exe.kernels[0].time_s == pytest.approx(3 * kernel.time_s)
    # What a corrected estimate misses multiplies what is known.
    (dearer,) = again.kernels
    exact = dearer.__class__(**{**vars(dearer), "costs": {MEASURED: dearer.time_s}})
    assert learn(path, again.target, [exact])[name] == pytest.approx(3.0)


def test_a_correction_changes_the_choice() -> None:
    target = installed()["cpu"].targets["cpu"]

    def kernels(target: Any) -> list[str]:
        """What each kernel computes: a dear product has no other cells beside it."""
        with axe.debug(cache=0):
            specs = ("256x256:f32", "256x512:f32")
            exe = axe.compile(lambda x, w: nn.softmax(nn.gelu(x @ w)), *specs, target=target)
        return [k.name for k in exe.kernels]

    assert kernels(target)[0] == "k0_full_mul_erf_add"
    assert kernels(target.replace(corrections={"blas sgemm": 9.5}))[0] == "k0_mul"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"h200": {"lanes": {"factor": -1, "kernels": 1}}}',
        '{"h200": {"lanes": 2}}',
        f'{{"h200": {{"lanes": {{"factor": {10**400}, "kernels": 1}}}}}}',
    ],
)
def test_what_is_no_file_of_corrections_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "corrections.json"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=r"corrections\.json"):
        corrected(h200(), path)


# -- the command line --


def test_commands_measure_and_learn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from click.testing import CliRunner

    from axe_eq.cli import tune as commands

    (tmp_path / "one.py").write_text("def double(x):\n    return x + x\n")
    program = [str(tmp_path / "one.py") + ":double", "--spec", "64x50:f32", "--target", "cpu"]
    run = CliRunner()
    done = run.invoke(commands.bench, [*program, "--json"], catch_exceptions=False)
    data = json.loads(done.output)
    assert [m["name"] for m in data["measured"]][-1] == "the whole"
    assert data["device"]
    assert all(m["least_s"] <= m["median_s"] <= m["most_s"] for m in data["measured"])
    assert "the whole" in run.invoke(commands.bench, program).output
    learned = tmp_path / "corrections.json"
    options = ["--budget", "0.1", "--corrections", str(learned)]
    done = run.invoke(commands.tune, [*program, *options], catch_exceptions=False)
    assert "candidates measured" in done.output
    assert "estimates are multiplied by" in done.output
    assert read(learned)["cpu"]

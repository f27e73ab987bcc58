"""`compile`: its stages, its limits, and what it refuses."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ArgumentError, LayoutError, PackError, ProgramError, SearchError
from axe_eq.pack import Pack, installed
from axe_eq.program.terms import Value, op
from axe_eq.program.trace import trace
from axe_eq.rule.law import Sides

STAGES = ["trace", "encode", "saturate", "extract", "build"]


def dense(x: Any, w: Any) -> Any:
    return axe.array.tanh(x @ w)


SPECS = ("8x6:f32", "6x4:f32")


def test_one_stage_after_the_other() -> None:
    exe = axe.compile(dense, *SPECS, target="cpu")
    assert [s.name for s in exe.report.stages] == STAGES
    assert exe.report["saturate"].notes["stopped"] == "saturated"
    assert exe.report["build"].notes["steps"] == 1


def test_every_stage_is_dumped(tmp_path: Path) -> None:
    with axe.debug(trace=tmp_path):
        axe.compile(dense, *SPECS, target="cpu")
    written = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))]
    assert [w["stage"] for w in written] == STAGES


def test_debug_shows_stages_and_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    with axe.debug(level=5):
        axe.compile(dense, *SPECS, target="cpu")
    shown = capsys.readouterr().err
    assert all(f"\n{name} " in f"\n{shown}" for name in STAGES)
    assert "tanh" in shown


def test_arrays_stand_for_specs_and_programs_for_functions() -> None:
    x, w = np.ones((8, 6), np.float32), np.ones((6, 4), np.float32)
    by_spec = axe.compile(dense, *SPECS, target="cpu")
    by_array = axe.compile(dense, x, w, target="cpu")
    by_program = axe.compile(trace(dense, *SPECS), target="cpu")
    assert str(by_spec.schedule) == str(by_array.schedule) == str(by_program.schedule)


def test_compiling_twice_gives_the_same_schedule() -> None:
    texts = {str(axe.compile(dense, *SPECS, target="h200").schedule) for _ in range(3)}
    assert len(texts) == 1


def test_a_row_of_a_convolution_may_be_taken_twice() -> None:
    def twice(x: Any, w: Any) -> Any:
        rows = axe.nn.conv2d(x, w)[:, :, :1]
        return axe.array.concat([rows, rows], axis=2)

    rng = np.random.default_rng(0)
    x, w = (rng.integers(-3, 4, s).astype("f4") for s in ((1, 2, 4, 5), (3, 2, 2, 2)))
    exe = axe.compile(twice, x, w, target="cpu")
    np.testing.assert_array_equal(exe(x, w), axe.run(twice, x, w))


def test_exact_numerics_use_no_law_of_a_real_pack() -> None:
    def f(x: Any, w: Any) -> Any:
        return axe.nn.softmax(x, axis=-1) @ w

    exact = axe.compile(f, "64x64:f32", "64x64:f32", target="h200", numerics="exact")
    assert all(pack.exact for pack in exact.packs)
    assert not {k for k in exact.matches if not installed()[k.partition("/")[0]].exact}
    real = axe.compile(f, "64x64:f32", "64x64:f32", target="h200")
    assert not all(pack.exact for pack in real.packs)


def test_exact_numerics_round_where_the_program_does() -> None:
    def f(x: Any) -> Any:
        return (x * 3 + 1) * 5 - x

    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    exe = axe.compile(f, x, target="cpu", numerics="exact")
    assert len(exe.kernels) == 1
    assert exe(x).tobytes() == axe.run(f, x).tobytes()


def test_a_law_left_out_by_name_or_key_does_not_fire() -> None:
    def f(x: Any) -> Any:
        return axe.array.permute_dims(axe.array.permute_dims(x, (1, 0)), (1, 0)) + 1

    fired = axe.compile(f, "8x6:f32", target="cpu").matches
    law = next(key for key in fired if key.startswith("tensor/"))
    for name in (law, law.partition("/")[2]):
        assert law not in axe.compile(f, "8x6:f32", target="cpu", without=[name]).matches
    with axe.debug(without=(law,)):
        assert law not in axe.compile(f, "8x6:f32", target="cpu").matches


def test_an_output_in_a_layout_of_its_own() -> None:
    column_major = axe.Layout.parse("S[(8,6):(1@m,8@m)]")
    x = np.arange(48, dtype=np.float32).reshape(8, 6)
    exe = axe.compile(lambda x: x + 1, "8x6:f32", target="cpu", outputs=[column_major])
    (written,) = [w for k in exe.kernels for w in k.writes]
    assert axe.equivalent(written.layout, column_major)
    assert np.array_equal(exe(x), x + 1)


def test_an_output_s_elements_have_places_of_their_own() -> None:
    shared = axe.Layout.parse("S[(8,6):(0@m,1@m)]")
    with pytest.raises(ArgumentError, match="of output 0: keeps elements 0 and 6 in one place"):
        axe.compile(lambda x: x + 1, "8x6:f32", target="cpu", outputs=[shared])


BAD: dict[str, tuple[type[Exception], dict[str, Any], str]] = {
    "numerics": (ProgramError, {"numerics": "fast"}, "numerics 'fast': is not a mode"),
    "target": (PackError, {"target": "h300"}, "target 'h300': is not known"),
    "pack": (PackError, {"packs": ["tiles"]}, "pack 'tiles': is not installed"),
    "without": (PackError, {"without": ["nothing"]}, "without 'nothing': is neither a law nor"),
    "demand": (SearchError, {"without": ["tiling"]}, "output f32[8,4]: no law answers"),
    "schedule": (PackError, {"without": ["cpu"]}, "target 'cpu': no schedule for family 'cpu'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_refused(name: str) -> None:
    kind, options, message = BAD[name]
    with pytest.raises(kind) as caught:
        axe.compile(dense, *SPECS, **{"target": "cpu", **options})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("switch", "value"), [("node_limit", 1), ("time_limit_s", 1e-9)])
def test_a_search_without_room_names_its_limit(
    switch: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The worker says why its own search stopped, however slowly this machine lets it answer.
    monkeypatch.setattr("axe_eq.pipeline.worker.LEAST_GRACE_S", 600.0)
    limit: dict[str, Any] = {switch: value}
    with axe.debug(**limit), pytest.raises(SearchError) as caught:
        axe.compile(dense, *SPECS, target="cpu")
    assert str(caught.value).startswith("search: reached its limit of 1")
    assert caught.value.hint == f"a larger AXE_{switch.upper()}"


def test_every_limit_gives_an_answer_or_the_limit() -> None:
    """Whatever was demanded by then, no half an operator is ever built."""
    x, w = np.ones((8, 6), np.float32), np.ones((6, 4), np.float32)
    whole = axe.compile(dense, *SPECS, target="cpu").report["saturate"].notes["rows"]
    assert isinstance(whole, int)
    answered, refusals = 0, []
    for rows in (*range(whole - 40, whole - 4, 9), whole - 3, whole - 1):
        with axe.debug(node_limit=rows):
            try:
                exe = axe.compile(dense, *SPECS, target="cpu")
            except SearchError as error:
                refusals.append(str(error))
                continue
        answered += 1
        np.testing.assert_allclose(exe(x, w), np.tanh(x @ w), rtol=1e-6)
    assert answered > 0
    assert refusals
    assert all(text.startswith("search: reached its limit") for text in refusals)


def test_laws_that_grow_too_fast_are_cut_and_the_search_says_so() -> None:
    sums = Pack("sums", summary="pointwise sums in any order")

    @sums.law(source="folklore")
    def turn(x: Value, y: Value) -> Sides:
        """x + y = y + x."""
        return op("a, a -> a", "add", x, y), op("a, a -> a", "add", y, x)

    @sums.law(source="folklore")
    def regroup(x: Value, y: Value, z: Value) -> Sides:
        """(x + y) + z = x + (y + z)."""
        left = op("a, a -> a", "add", op("a, a -> a", "add", x, y), z)
        return left, op("a, a -> a", "add", x, op("a, a -> a", "add", y, z))

    with axe.debug(node_limit=20_000):
        exe = axe.compile(
            lambda *xs: sum(xs[1:], xs[0]), *["4:i32"] * 8,
            target="cpu", packs=["tiling", "cpu", "tensor", sums],
        )  # fmt: skip
    assert exe.stopped == "values in phase exact"
    assert "the search stopped at a limit (values in phase exact)" in exe.explain()
    given = [np.arange(4, dtype=np.int32) + n for n in range(8)]
    np.testing.assert_array_equal(exe(*given), sum(given))


def test_an_input_without_a_layout_is_on_every_device_of_a_mesh() -> None:
    mesh = axe.Mesh({"x": 8})
    exe = axe.compile(lambda a, b: a @ b, "64x32:f32", "32x16:f32", target="h200", mesh=mesh)
    assert exe.cost["link_bytes"] == 0
    inputs = [b.layout for b in exe.schedule.buffers.values() if b.role == "input"]
    assert all(layout.endswith("+ R[(8):(1@gpuid)]") for layout in inputs)


def test_a_mesh_s_search_without_room_names_its_limit() -> None:
    mesh = axe.Mesh({"x": 8})
    with axe.debug(node_limit=5), pytest.raises(SearchError, match="its limit of 5 rows"):
        axe.compile(lambda a, b: a @ b, "64x32:f32", "32x16:f32", target="h200", mesh=mesh)


def test_matches_per_law_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with axe.debug(level=3):
        axe.compile(dense, *SPECS, target="cpu")
    assert "  tiling/compute\n" in capsys.readouterr().err


def test_an_output_may_lie_on_a_mesh_in_any_layout() -> None:
    """On two of eight devices, rows seven elements apart."""
    mesh = axe.Mesh({"x": 8})
    skewed = axe.Layout.parse("S[(8,6):(7@m,1@m)] + R[(2):(1@gpuid)]")
    exe = axe.compile(lambda x: x + 1, "8x6:f32", target="h200", mesh=mesh, outputs=[skewed])
    (name,) = exe.plan.outputs
    assert exe.plan.side(name).devices.tolist() == [0, 1]
    assert exe.plan.local_type(name).shape == (7 * 7 + 6,)
    x = np.arange(48, dtype=np.float32).reshape(8, 6)
    assert np.array_equal(exe(x), x + 1)


def test_a_compilation_leaves_the_collector_as_it_was() -> None:
    def fails(x: Any) -> Any:
        return x @ x

    assert gc.isenabled()
    axe.compile(lambda x: x + 1.0, "8:f32", target="cpu")
    assert gc.isenabled()
    with pytest.raises(axe.AxeError):
        axe.compile(fails, "8x8:f32", target="cpu", without=["tiling"])
    assert gc.isenabled()
    gc.disable()
    try:
        axe.compile(lambda x: x - 1.0, "8:f32", target="cpu")
        assert not gc.isenabled()
    finally:
        gc.enable()


def _sharded() -> tuple[axe.Mesh, axe.Layout]:
    mesh = axe.Mesh({"x": 2})
    return mesh, axe.read("jax", "P(None,'x')", shape=(8, 8), mesh=mesh)


def test_a_plan_on_a_mesh_is_explained_run_interpreted_and_emitted() -> None:
    mesh, cut = _sharded()
    rows = axe.read("jax", "P('x',None)", shape=(8, 8), mesh=mesh)
    specs = [axe.Spec((8, 8), "f32", layout=layout) for layout in (cut, rows)]
    exe = axe.compile(
        lambda a, b: a @ b, *specs,
        target="h200", mesh=mesh, outputs=[rows],
    )  # fmt: skip
    moving = [s for s in exe.schedule.steps if getattr(s, "n_bytes", 0)]
    lines = exe.explain().splitlines()
    assert moving
    for step in moving:
        (line,) = [text for text in lines if text.startswith(f"  {step.name}: ")]
        assert f"{step.time_s * 1e6:.1f} us, " in line
        assert line.endswith(f", {step.n_bytes:,} bytes cross links")
    assert not [line for line in lines if line.endswith(", ")]
    given = [np.ones((8, 8), np.float32)] * 2
    bound = exe.bind(*given)
    for result in (exe(*given), bound(), exe.schedule.run(*given)):
        assert np.array_equal(result, np.full((8, 8), 8.0))
    assert np.array_equal(exe.interpret(*given, orders=2), np.full((8, 8), 8.0))
    assert all(name.split(".")[0] in [s.name for s in exe.plan.steps] for name in exe.source)
    assert len(exe.source) == len(exe.kernels)
    assert all(name.split(".")[1] in text for name, text in exe.source.items())


def test_a_layout_of_devices_without_a_mesh_says_what_to_pass() -> None:
    _, cut = _sharded()
    with pytest.raises(LayoutError, match=r"lies on gpuid; .*\n  try: mesh=axe\.Mesh\("):
        axe.compile(lambda x: x + 1, axe.Spec((8, 8), "f32", layout=cut), target="h200")


def test_a_plan_on_a_mesh_needs_no_laws_of_its_own() -> None:
    mesh = axe.Mesh({"x": 2})
    rows = axe.read("jax", "P('x',None)", shape=(8, 6), mesh=mesh)
    exe = axe.compile(
        axe.array.exp, axe.Spec((8, 6), "f32", layout=rows), target="h200", mesh=mesh,
        outputs=[rows], without=["sharding"],
    )  # fmt: skip
    assert exe.plan.link_bytes == 0


def test_a_name_that_is_nearly_a_law_s_is_suggested() -> None:
    with pytest.raises(PackError, match=r"axe packs list --json.*\n  try: permute_permuted"):
        axe.compile(lambda x: x + 1, "8:f32", target="cpu", without=["tensor/permute_permut"])

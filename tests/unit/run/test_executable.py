"""Executables: calls, nesting, dtypes, other libraries' arrays, rebinding, saving, explaining."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from html import unescape
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ArgumentError, DeviceError, PackError, ScheduleError
from axe_eq.program.types import DTYPES
from axe_eq.run.executable import Executable
from axe_eq.run.rebind import Origin
from axe_eq.run.store import FORMAT


def scaled(x: Any, w: dict[str, Any]) -> dict[str, Any]:
    y = x @ w["weight"]
    return {"y": y + w["bias"], "parts": (axe.array.sum(y, axis=1), y > 0)}


@pytest.fixture(scope="module")
def exe() -> Executable:
    x = axe.Spec((6, 4), "f32", dims=("rows", "depth"))
    weights = {"weight": axe.Spec((4, 3), "f32"), "bias": axe.Spec((3,), "f32")}
    return axe.compile(scaled, x, weights, target="cpu")


def arrays(rows: int = 6) -> tuple[Any, dict[str, Any]]:
    rng = np.random.default_rng(rows)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((rows, 4), (4, 3), (3,)))
    return x, {"weight": w, "bias": b}


def check(result: Any, x: Any, w: dict[str, Any]) -> None:
    y = x @ w["weight"]
    np.testing.assert_allclose(result["y"], y + w["bias"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result["parts"][0], y.sum(1), rtol=1e-5, atol=1e-5)
    assert np.array_equal(result["parts"][1], y > 0)
    assert [result["y"].dtype, result["parts"][1].dtype] == [np.float32, np.bool_]


# -- calls ----------------------------------------------------------------------------------------


def test_outputs_nest_as_the_function_s_own(exe: Executable) -> None:
    x, w = arrays()
    result = exe(x, w)
    check(result, x, w)
    assert isinstance(result["parts"], tuple)


def test_other_rows_rebind_the_schedule(exe: Executable) -> None:
    for rows in (1, 5, 64):
        x, w = arrays(rows)
        check(exe(x, w), x, w)
        check(exe.schedule.bind(rows=rows).run(x, w), x, w)
        check(exe.meaning(x, w), x, w)


def test_strided_arrays_are_read_through_their_strides(exe: Executable) -> None:
    x, w = arrays(12)
    check(exe(x[::2], w), x[::2], w)
    check(exe(np.asfortranarray(x[:6]), w), x[:6], w)


def test_inputs_are_left_alone(exe: Executable) -> None:
    x, w = arrays()
    kept = x.copy()
    exe(x, w)
    assert np.array_equal(x, kept)


def test_bound_calls_read_the_buffers_as_they_are_then(exe: Executable) -> None:
    x, w = arrays()
    call = exe.bind(x, w)
    x *= 2
    check(call(), x, w)


class Foreign:
    """An array of a library that speaks DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class OfNoDevice(Foreign):
    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("lies in another device's memory")


class OfALibrary(Foreign):
    """An array whose namespace takes DLPack."""

    @classmethod
    def __array_namespace__(cls, **_: Any) -> Any:
        return SimpleNamespace(from_dlpack=cls)


def test_arrays_of_another_library_come_back_in_it(exe: Executable) -> None:
    x, w = arrays()
    result = exe(OfALibrary(x), w)
    assert type(result["y"]) is OfALibrary
    check({"y": result["y"].array, "parts": tuple(p.array for p in result["parts"])}, x, w)


def test_a_library_that_takes_no_dlpack_gets_numpy_arrays(exe: Executable) -> None:
    x, w = arrays()
    check(exe(Foreign(x), w), x, w)


def test_an_input_that_nothing_reads_may_be_given() -> None:
    exe = axe.compile(lambda x, unused: -x, "3:f32", "5:f32", target="cpu")
    x = np.arange(3, dtype=np.float32)
    assert np.array_equal(exe(x, np.zeros(5, np.float32)), -x)


def test_captured_constants_take_part() -> None:
    table = np.arange(3.0)
    exe = axe.compile(lambda x: x + table, "2x3:f64", target="cpu")
    assert np.array_equal(exe(np.ones((2, 3))), 1 + np.tile(table, (2, 1)))


# -- arrays that do not fit -----------------------------------------------------------------------

BAD: dict[str, tuple[Any, str]] = {
    "dtype": (lambda x, w: (x.astype(np.float64), w), "argument 'x': has dtype float64"),
    "rank": (lambda x, w: (x[0], w), "argument 'x': has shape (4,)"),
    "extent": (lambda x, w: (x[:, :3], w), "call: got arrays with depth=3"),
    "weight": (lambda x, w: (x, {**w, "bias": w["bias"][:2]}), "argument 'w.bias': has shape (2,)"),
    "missing": (lambda x, w: (x,), "call: got 1 arrays"),
    "key": (lambda x, w: (x, {"weight": w["weight"]}), "call: got 2 arrays;"),
    "order": (lambda x, w: (w, x), "call: got 3 arrays, nested otherwise;"),
    "text": (lambda x, w: ("x", w), "argument 'x': is a str"),
    "none": (lambda x, w: (None, w), "argument 'x': is a NoneType"),
    "device": (lambda x, w: (OfNoDevice(x), w), "argument 'x': cannot be read by the host"),
}


@pytest.mark.parametrize("name", BAD)
def test_arrays_that_do_not_fit_are_refused(name: str, exe: Executable) -> None:
    change, message = BAD[name]
    given = change(*arrays())
    for call in (exe, exe.bind, exe.schedule.run):
        with pytest.raises(ArgumentError) as caught:
            call(*given)
        assert str(caught.value).startswith(message)


def test_dims_that_must_agree_are_checked_against_each_other() -> None:
    spec = axe.Spec((4, 3), "f32", dims=("rows", ""))
    exe = axe.compile(lambda x, y: x + y, spec, spec, target="cpu")
    five, six = np.ones((5, 3), np.float32), np.ones((6, 3), np.float32)
    assert exe(five, five).shape == (5, 3)
    with pytest.raises(ArgumentError, match="argument 'y': has shape"):
        exe(five, six)


# -- how arguments are given ----------------------------------------------------------------------


def gated(x: Any, wg: Any, wu: Any, wd: Any) -> Any:
    return x * wg + wu - wd


def test_arguments_are_given_by_position_or_by_name_as_the_function_takes_them(
    exe: Executable, tmp_path: Path
) -> None:
    made = axe.compile(gated, *["2:f64"] * 4, target="cpu")
    x, g, u, d = np.arange(8.0).reshape(4, 2)
    made.save(tmp_path / "gated.axe")
    for f in (made, made.schedule.run, axe.load(tmp_path / "gated.axe"), made.meaning):
        assert np.array_equal(f(x, wd=d, wu=u, wg=g), gated(x, g, u, d))
        assert np.array_equal(f(x, g, u, d), gated(x, g, u, d))
    assert np.array_equal(made.bind(wg=g, x=x, wd=d, wu=u)(), gated(x, g, u, d))
    given, w = arrays()
    check(exe(given, w=w), given, w)  # a dict is one argument
    refused: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: made(x, g, u, wq=d), "call: got an argument named 'wq'; expected x, wg, wu, wd"),
        (lambda: made(x, g, u, d, x=x), "call: got argument 'x' twice"),
        (lambda: made(x, wd=d), "call: lacks argument 'wg'"),
    )
    for call, wrong in refused:
        with pytest.raises(ArgumentError, match=wrong):
            call()


def test_arguments_of_many_under_one_name_are_given_by_position() -> None:
    made = axe.compile(lambda *xs: xs[0] + xs[1], "2:f64", "2:f64", target="cpu")
    one = np.ones(2)
    assert made(one, one).tolist() == [2.0, 2.0]
    with pytest.raises(ArgumentError, match="got an argument named 'xs'"):
        made(one, xs=one)
    nested = axe.compile(lambda *xs: xs[0]["a"] + 1, {"a": "2:f64"}, target="cpu")
    assert nested({"a": one}).tolist() == [2.0, 2.0]
    with pytest.raises(ArgumentError, match="got an argument named 'xs'"):
        nested(xs={"a": one})


def test_an_array_lies_as_the_layout_of_its_spec_says(tmp_path: Path) -> None:
    def compiled(layout: str | None) -> Executable:
        return axe.compile(lambda x: x * 2, axe.Spec((4, 3), "f64", layout=layout), target="cpu")

    x = np.arange(12.0).reshape(4, 3)
    down, padded = np.asfortranarray(x), np.zeros((4, 5))[:, :3]
    padded[...] = x
    fitting = {"S[(4,3):(1,4)]": down, "S[(4,3):(3,1)]": x, "S[(4,3):(5,1)]": padded}
    for layout, array in fitting.items():
        made = compiled(layout)
        made.save(tmp_path / "lying.axe")
        for f in (made, made.bind, axe.load(tmp_path / "lying.axe")):
            f(array)
            for other in (x, down, padded, x[::-1]):
                if other.strides != array.strides:
                    with pytest.raises(ArgumentError, match=r"argument 'x': has strides \("):
                        f(other)
        assert np.array_equal(made(array), 2 * x)
    for plain in (None, "S[(2,2,3):(6,1,2)]", "S[(4,3):(3,1)] + 7@m"):  # no strides, or elsewhere
        for array in fitting.values():
            assert np.array_equal(compiled(plain)(array), 2 * x)


def test_binding_what_is_no_dim_is_refused(exe: Executable) -> None:
    with pytest.raises(ScheduleError, match="dim 'row': is no dim"):
        exe.schedule.bind(row=3)


def test_a_target_that_needs_no_text_has_no_source(exe: Executable, tmp_path: Path) -> None:
    assert exe.source == {}
    loaded = axe.load(saved(tmp_path))
    assert loaded.source == {}
    with pytest.raises(ArgumentError, match="texts of kernels, and none to interpret"):
        loaded.interpret()


def test_a_target_without_its_runner_or_emitter_says_so(exe: Executable) -> None:
    other = exe.target.replace(family="abacus")
    exe.schedule.target, kept = other, exe.schedule.target
    try:
        with pytest.raises(DeviceError, match="no runner for 'abacus'"):
            exe(*arrays())
        exe.target = other
        with pytest.raises(PackError, match="target 'cpu': has no emitter"):
            _ = exe.source
    finally:
        exe.schedule.target = exe.target = kept


# -- saving ---------------------------------------------------------------------------------------

LOADED = """
import sys
import numpy as np
import axe_eq as axe
exe = axe.load(sys.argv[1])
x = np.load(sys.argv[2])
assert np.array_equal(exe(x), x @ np.arange(6.0).reshape(3, 2) + 1)
assert len(exe.kernels) == 1 and "schedule for cpu" in exe.explain()
print("egglog" in sys.modules)
"""


def saved(folder: Path) -> Path:
    table = np.arange(6.0).reshape(3, 2)
    exe = axe.compile(lambda x: x @ table + 1, "4x3:f64", target="cpu")
    exe.save(folder / "small.axe")
    return folder / "small.axe"


def test_a_saved_program_runs_elsewhere_without_the_e_graph(tmp_path: Path) -> None:
    path = saved(tmp_path)
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(4, 3))
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(path), str(tmp_path / "x.npy")],
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


def test_saving_compares_nothing_where_no_dim_has_a_name(tmp_path: Path) -> None:
    """Extents that cannot change are not tried: that was a search of minutes for large programs."""
    exe = axe.compile(lambda x: x * x, "4x3:f64", target="cpu")
    exe.origin = Origin(exe.program, lambda *_: pytest.fail("programs were compared"))
    exe.save(tmp_path / "square.axe")
    assert axe.load(tmp_path / "square.axe")(np.full((4, 3), 2.0)).tolist() == [[4.0] * 3] * 4


def test_half_types_and_bools_are_saved_whole(tmp_path: Path) -> None:
    import ml_dtypes

    kept = np.array([1.5, -2, 0.25], ml_dtypes.bfloat16)
    mask = np.array([True, False, True])
    exe = axe.compile(lambda x: axe.array.where(mask, x * kept, x), "3:bf16", target="cpu")
    exe.save(tmp_path / "half.axe")
    x = np.array([3, 4, 5], ml_dtypes.bfloat16)
    result = axe.load(tmp_path / "half.axe")(x)
    assert result.dtype == ml_dtypes.bfloat16
    assert np.array_equal(result, np.where(mask, x * kept, x))


def test_constants_of_half_types_need_ml_dtypes_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ml_dtypes

    kept = np.ones(3, ml_dtypes.bfloat16)
    axe.compile(lambda x: x * kept, "3:bf16", target="cpu").save(tmp_path / "half.axe")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    monkeypatch.delitem(DTYPES["bf16"].__dict__, "numpy", raising=False)
    with pytest.raises(DeviceError, match=r"constant of type bf16\[3\]: cannot be held by numpy"):
        axe.load(tmp_path / "half.axe")


@pytest.mark.parametrize("damage", ["absent", "text", "cut", "bits", "format", "part missing"])
def test_a_file_that_is_no_saved_program_is_refused(damage: str, tmp_path: Path) -> None:
    path = saved(tmp_path)
    if damage == "absent":
        path = tmp_path / "absent.axe"
    elif damage == "text":
        path.write_text("no")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:200])
    elif damage == "bits":
        data = path.read_bytes()
        begin = data.index(b"schedule.json") + len(b"schedule.json")
        path.write_bytes(data[:begin] + b"\xff" * 40 + data[begin + 40 :])
    else:
        parts = parts_of(path)
        head = json.loads(parts["call.json"])
        parts["call.json"] = json.dumps(head | {"format": 999}).encode()
        if damage == "part missing":
            del parts["schedule.json"]
        write_parts(path, parts)
    wrong = {"bits": "was changed after it was saved: ", "text": "is not a zip file, or only the"}
    with pytest.raises(ArgumentError, match=f"file '{path}': {wrong.get(damage, '')}"):
        axe.load(path)


def parts_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def write_parts(path: Path, parts: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)


def edits(data: Any) -> Iterator[Any]:
    """The data with one entry gone or of another kind, everywhere in turn."""
    if isinstance(data, dict | list):
        for key in list(data) if isinstance(data, dict) else range(len(data)):
            for other in edits(data[key]):
                changed = data.copy()
                changed[key] = other
                yield changed
            rest = data.copy()
            del rest[key]
            yield rest
    yield from (None, -1, "zz", [], {})


@pytest.mark.parametrize("name", ["call.json", "schedule.json", "digests.json"])
def test_a_file_with_any_entry_changed_is_refused_when_loaded(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = parts_of(path)
    told = json.loads(whole[name])
    n_edits = 0
    for changed in islice((e for e in edits(told) if e != told), 0, None, 7):
        write_parts(path, whole | {name: json.dumps(changed).encode()})
        with pytest.raises(ArgumentError, match=f"file '{path}'"):
            axe.load(path)
        n_edits += 1
    assert n_edits > 3


def test_a_file_with_any_byte_changed_is_refused_when_loaded(tmp_path: Path) -> None:
    kept = np.arange(3.0)
    path = tmp_path / "added.axe"
    axe.compile(lambda x: x + kept, "3:f64", target="cpu").save(path)
    whole = parts_of(path)
    assert axe.load(path)(kept).tolist() == [0, 2, 4]
    for name, content in whole.items():
        for at in (0, len(content) // 2, len(content) - 1):
            other = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
            write_parts(path, whole | {name: other})
            with pytest.raises(ArgumentError, match=f"file '{path}'"):
                axe.load(path)
    write_parts(path, dict(reversed(whole.items())))  # in another order it is the same file
    assert axe.load(path)(kept).tolist() == [0, 2, 4]


@pytest.mark.parametrize("how", ["behind", "before", "twice", "comment"])
def test_a_file_with_bytes_around_its_parts_is_refused(how: str, tmp_path: Path) -> None:
    path = saved(tmp_path)
    data = path.read_bytes()
    if how == "comment":
        with zipfile.ZipFile(path, "a") as file:
            file.comment = b"more"
    else:
        path.write_bytes({"behind": data + b"x", "before": b"x" + data, "twice": 2 * data}[how])
    wrong = "was changed after it was saved: it has gained bytes around its parts"
    with pytest.raises(ArgumentError, match=wrong):
        axe.load(path)


def test_a_file_of_another_format_says_what_to_do(tmp_path: Path) -> None:
    path = saved(tmp_path)
    parts = parts_of(path)
    del parts["digests.json"]
    parts["call.json"] = json.dumps(json.loads(parts["call.json"]) | {"format": 3}).encode()
    write_parts(path, parts)
    with pytest.raises(
        ArgumentError, match=rf"has format 3; expected format {FORMAT}\n  try: compile and"
    ):
        axe.load(path)


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="cannot be written"):
        saved(tmp_path / "absent")
    saved(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["small.axe"]


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "small.axe")
    with pytest.raises(ArgumentError, match="is there and no file"):
        saved(tmp_path)
    assert (tmp_path / "small.axe").is_fifo()


# -- explaining -----------------------------------------------------------------------------------


def test_the_page_says_of_other_schedules_what_the_explanation_says(
    exe: Executable, tmp_path: Path
) -> None:
    page = unescape(exe.schedule.html())
    lines = exe.explain().splitlines()
    start = lines.index("compared with:")
    assert any(line.startswith("laws that fired: ") for line in lines[start:])
    assert "\n".join(lines[start:]) in page
    exe.save(tmp_path / "kept.axe")
    assert "\n".join(lines[start:]) in unescape(axe.load(tmp_path / "kept.axe").schedule.html())


def test_an_explanation_has_winner_runners_up_and_laws(exe: Executable) -> None:
    text = exe.explain()
    assert text.splitlines()[0].startswith("schedule for cpu (2 core): ")
    assert "every value materialised: " in text
    assert all(k.name in text for k in exe.kernels)
    assert text.endswith("estimates compare schedules; they are no measurement")


def test_costs_are_named_with_their_units(exe: Executable) -> None:
    assert exe.cost["kernels"] == len(exe.kernels)
    assert exe.cost["time_s"] == pytest.approx(sum(k.time_s for k in exe.kernels))
    units = {"time_s": "s", "kernels": "1"}
    assert exe.cost.units == {name: units.get(name, "B") for name in exe.cost}


def test_capacities_are_the_largest_kernel_s_and_other_costs_add_up() -> None:
    def f(x: Any, w: Any, v: Any) -> Any:
        return axe.array.exp(x @ w) @ v

    specs = [axe.Spec(s, "f16") for s in ((256, 256), (256, 512), (512, 64))]
    exe = axe.compile(f, *specs, target="h200")
    kernels = [k.costs for k in exe.kernels]
    assert len(kernels) > 1
    for name, combine in (("smem_bytes", max), ("register_bytes", max), ("gmem_bytes", sum)):
        assert exe.cost[name] == pytest.approx(combine(k.get(name, 0.0) for k in kernels))
    assert not {"matrix_s", "vector_s", "memory_s", "blocks"} & exe.cost.keys()


def test_a_target_declares_how_costs_combine() -> None:
    target = axe.Target("t", "f", 1, "core", (), costs={"room": "peak", "parts": "own"})
    kernels = [{"room": 3.0, "parts": 1.0, "work": 2.0}, {"room": 2.0, "work": 5.0}]
    assert target.total_costs(kernels) == {"room": 3.0, "work": 7.0}
    with pytest.raises(PackError, match="combines cost 'room' by 'sum'; expected one of total pe"):
        target.replace(costs={"room": "sum"})


def test_a_search_that_was_cut_short_says_so() -> None:
    def f(x: Any, w: Any) -> Any:
        return axe.array.tanh(x @ w)

    whole = axe.compile(f, "8x6:f32", "6x4:f32", target="cpu")
    rows = whole.report["saturate"].notes["rows"]
    assert isinstance(rows, int)
    with axe.debug(node_limit=rows - 2):
        cut = axe.compile(f, "8x6:f32", "6x4:f32", target="cpu")
    assert cut.explain().endswith(
        "the search stopped at a limit (rows in phase demand): a larger one may find better"
    )
    assert "limit" not in whole.explain()

"""`axe layout`, `convert` and `draw`: what they print, and one message for every bad input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from axe_eq.cli import main
from axe_eq.errors import NotationError
from axe_eq.layout import Layout, tile
from axe_eq.layout.notation import NOTATIONS, read

FRAGMENT = "S[(8,2,4,2):(4@lane,1@warp,1@lane,1@reg)] + R[(2):(4@warp)] + 5@warp"


class Done(NamedTuple):
    """A command that ended."""

    code: Any
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out, parse_constant=pytest.fail)


Axe = Callable[..., Done]


@pytest.fixture
def axe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Axe:
    """`axe("layout", text)` runs a command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["axe", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Done(ended.value.code or 0, captured.out, captured.err)

    return run


# -- axe layout ----------------------------------------------------------------------------------


def test_a_layout_is_described(axe: Axe, golden: Callable[..., None]) -> None:
    padded = axe("layout", "xla:f32[3,5]{1,0:T(2,2)}")
    fragment = axe("layout", FRAGMENT, "--shape", "8x16")
    sharded = axe("layout", "alpa:S1R", "--shape", "8x16", "--mesh", "x=2,y=4")
    aliasing = axe("layout", "S[(2,4):(2,1)]")
    assert {padded.code, fragment.code, sharded.code, aliasing.code} == {0}
    golden("\n".join([padded.out, fragment.out, sharded.out, aliasing.out]))


def test_the_description_as_data(axe: Axe) -> None:
    found = axe("layout", FRAGMENT, "--json").json
    assert found["canonical"] == FRAGMENT
    assert (found["size"], found["copies"]) == (128, 2)
    assert found["axes"]["warp"] == {"low": 5, "high": 10, "span": 6, "footprint": 6}
    assert found["aliasing"] == {"injective": True, "clash": None}
    assert (found["places"], found["holes"]) == (384, 128)
    assert set(found["notations"]) | set(found["refused"]) == set(NOTATIONS)
    clash = axe("layout", "S[(2,4):(2,1)]", "--json").json["aliasing"]["clash"]
    assert clash == {"x": 2, "y": 4, "coordinate": {"m": 2}}


def test_every_notation_that_is_printed_reads_back(axe: Axe) -> None:
    found = axe("layout", "S[(8,4):(4,1)]", "--shape", "8x4", "--json").json["notations"]
    assert {"axe", "matrix", "cute", "xla", "hlo_sharding", "triton", "strides"} == set(found)
    for name, text in found.items():
        layout = read(name, text, shape=(8, 4))
        assert list(layout.table("m")) == list(range(32))


OPERATIONS = {
    "canonical": (("canonical", "S[(2,3):(3,1)]"), "S[(6):(1@m)]"),
    "group": (("group", "S[6:1]", "3x2"), "S[(3,2):(2@m,1@m)]"),
    "slice": (("slice", "S[(8,4):(100,1)]", "32", "2:18"), "S[(4,2,2):(100@m,98@m,1@m)] + 2@m"),
    "slice of dims": (
        ("slice", "S[(4,8):(8,1)]", "4x8", "1:3,2:6"), "S[(2,4):(8@m,1@m)] + 10@m",
    ),
    "permute": (("permute", "S[(4,8):(8,1)]", "4x8", "1,0"), "S[(8,4):(1@m,8@m)]"),
    "tile": (
        ("tile", "S[(2,3):(3,1)]", "2x3", "S[(8,8):(8,1)]", "(8, 8)"),
        "S[(2,8,3,8):(192@m,8@m,64@m,1@m)]",
    ),
    "tile-of": (("tile-of", "S[16:1]", "16", "S[4:1]", "4"), "S[(4):(1@m)]"),
    "direct-sum": (
        ("direct-sum", "S[(2,2):(8,2)]", "2,2", "S[(2,2):(4,1)]", "2,2"), "S[(16):(1@m)]",
    ),
    "direct-sum-left": (("direct-sum-left", "S[16:1]", "16", "S[4:1]", "4"), "S[(4):(4@m)]"),
    "direct-sum-right": (("direct-sum-right", "S[16:1]", "16", "S[4:4]", "4"), "S[(4):(1@m)]"),
    "compose": (("compose", "S[(4,8):(8,1)]", "S[(8,4):(1,8)]"), "S[(8,4):(1@m,8@m)]"),
    "inverse": (("inverse", "S[(8,4):(1,8)]"), "S[(4,8):(1@m,4@m)]"),
    "inverse of two axes": (
        ("inverse", "S[(4,8):(1@lane,1@reg)]", "reg", "lane"), "S[(8,4):(1@reg,8@reg)]",
    ),
    "apply": (
        ("apply", FRAGMENT, "1,3", "--shape", "8x16"),
        "5@lane 1@reg 5@warp\n5@lane 1@reg 9@warp",
    ),
    "apply to a number": (("apply", "S[8:1]", "0"), "0"),
    "refine": (("refine", "2x6", "4,3"), "2x2x3"),
    "slice with an option": (
        ("slice", "S[(4,8):(8,1)]", "1:3,2:6", "--shape", "4x8"), "S[(2,4):(8@m,1@m)] + 10@m",
    ),
    "slice of a shape that the text states": (
        ("slice", "strides:shape=(4,8), strides=(8,1)", "1:3,2:6"), "S[(2,4):(8@m,1@m)] + 10@m",
    ),
    "apply to digits of dims that the text states": (
        ("apply", "xla:f32[3,5]{1,0:T(2,2)}", "2,3"), "17@m",
    ),
    "apply to a CuTe coordinate": (("apply", "cute:(4,8):(8,1)", "2,3"), "19@m"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_prints_its_result(name: str, axe: Axe) -> None:
    arguments, wanted = OPERATIONS[name]
    done = axe("layout", *arguments)
    assert (done.code, done.err) == (0, "")
    if wanted.startswith("S["):
        shown = Layout.parse(done.out).canonical()
        assert shown == Layout.parse(wanted).canonical(), done.out
        assert axe("layout", *arguments, "--json").json == {"layout": done.out.strip()}
    else:
        assert done.out.strip() == wanted
        assert axe("layout", *arguments, "--json").code == 0


def test_operations_are_those_of_the_library(axe: Axe) -> None:
    a, b = Layout.parse("S[(2,3):(7,1)] + R[2:4]"), Layout.parse("S[4:-1] + 2")
    printed = axe("layout", "tile", str(a), "6", str(b), "4").out.strip()
    assert printed == str(tile(a, (6,), b, (4,)))


# -- axe convert ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("--from", "xla", "--to", "cute", "f32[1024,512]{1,0:T(8,128)}"),
            "(128,4,8,128):(1,1024,128,4096)",
        ),
        (
            ("--to", "cute", "xla:f32[1024,512]{1,0:T(8,128)}", "--shape", "1024x512"),
            "((8,128),(128,4)):((128,4096),(1,1024))",
        ),
        (("--from", "cute", "--to", "xla", "(4,8):(8,1)"), "f32[8,4]{0,1}"),
        (("--from", "cute", "--to", "strides", "cute:(4,8):(8,1)"),
         "shape=(8,4), strides=(1,8), offset=0"),
        (("--to", "matrix", "S[(2,3):(3,1)]"), "(2 3 | 3@m 1@m)"),
        (("--to", "jax", "--mesh", "x=2,y=4", "--shape", "8x16", "alpa:S1R"), "P('y', None)"),
        (
            ("--to", "hlo_sharding", "--mesh", "x=2", "--axis", "dev", "--shape", "8", "alpa:S0"),
            "{devices=[2]<=[2]}",
        ),
        (("--to", "axe", "--itemsize", "2", "sw(128B) . S[(8,64):(64,1)]"),
         "sw(3,3,3)@m . S[(8,64):(64@m,1@m)]"),
    ],
)  # fmt: skip
def test_a_text_is_converted(arguments: tuple[str, ...], text: str, axe: Axe) -> None:
    done = axe("convert", *arguments)
    assert (done.code, done.out, done.err) == (0, f"{text}\n", "")
    assert axe("convert", *arguments, "--json").json["text"] == text


def test_what_is_converted_is_proved_equal(axe: Axe) -> None:
    source = "xla:f32[1024,512]{1,0:T(8,128)}"
    for target in ("axe", "matrix", "cute", "xla", "strides"):
        done = axe("convert", "--to", target, source)
        if done.code == 0:
            assert axe("equiv", source, f"{target}:{done.out.strip()}").code == 0


def test_notations_are_named_in_capitals_or_not(axe: Axe) -> None:
    wanted = axe("convert", "--from", "cute", "--to", "xla", "(4,8):(8,1)")
    assert axe("convert", "--from", "CuTe", "--to", "XLA", "(4,8):(8,1)") == wanted
    assert axe("convert", "--to", "XLA", "CuTe:(4,8):(8,1)") == wanted
    assert axe("equiv", "CUTE:(4,8):(8,1)", "cute:(4,8):(8,1)").code == 0
    said = axe("convert", "--to", "numpy", "S[8:1]")
    assert (said.code, said.err.splitlines()[-1]) == (
        2,
        "  try: strides, for numpy and torch strides",
    )


# -- the options that say what texts leave out -----------------------------------------------------


def test_a_mesh_may_be_said_in_parts(axe: Axe) -> None:
    sharded = ("convert", "--to", "axe", "jax:P('x','y')", "--shape", "8x16")
    whole = axe(*sharded, "--mesh", "x=2,y=4")
    assert axe(*sharded, "--mesh", "x=2", "--mesh", "y=4") == whole
    assert axe(*sharded, "--mesh", "y=4", "--mesh", "x=2").out not in ("", whole.out)
    twice = axe(*sharded, "--mesh", "x=2,y=4", "--mesh", "x=2")
    assert (twice.code, twice.out) == (2, "")
    assert "mesh 'x=2,y=4,x=2': has the dim x more than once" in twice.err


UNSAID = {
    "a shape": (("layout", "alpa:S0", "--mesh", "x=2"), "--shape 8x16"),
    "a mesh": (("layout", "alpa:S0", "--shape", "8"), "--mesh x=2,y=4"),
    "a mesh to compare": (("equiv", "jax:P('x')", "S[8:1]", "--shape", "8"), "--mesh x=2,y=4"),
    "a mesh to write": (("convert", "--to", "dtensor", "S[8:1]"), "--mesh x=2,y=4"),
    "a shape to write": (("convert", "--to", "hlo_sharding", "S[8:1]"), "--shape 8x16"),
    "an itemsize": (("layout", "sw(128B) . S[(8,64):(64,1)]"), "--itemsize 2"),
    "bytes": (("layout", "strides:shape=(2,), byte_strides=(4,)"), "--itemsize 4"),
    "bytes of rows": (("layout", "strides:shape=(2,3), byte_strides=(24,8)"), "--itemsize 8"),
}


@pytest.mark.parametrize("what", UNSAID)
def test_errors_name_the_options_that_can_be_typed(what: str, axe: Axe) -> None:
    arguments, option = UNSAID[what]
    done = axe(*arguments)
    assert (done.code, done.err.splitlines()[1:]) == (2, [])  # and no advice of something else
    assert done.err.endswith(f"; expected {option}\n")
    with pytest.raises(NotationError, match=r"expected (shape|mesh|itemsize)="):
        read("strides", "shape=(2,), byte_strides=(4,)")  # as Python says it, outside a command


def test_a_description_names_the_options_too(axe: Axe) -> None:
    said = axe("layout", "S[8:1]").out
    assert "=" not in "".join(line for line in said.splitlines() if " cannot: " in line).replace(
        "--mesh x=2,y=4", ""
    )
    assert "the devices are not known; expected --mesh x=2,y=4" in said


# -- axe draw ------------------------------------------------------------------------------------


def test_a_page_or_a_picture_is_written(axe: Axe, tmp_path: Path) -> None:
    assert axe("draw", FRAGMENT, "--shape", "8x16").out == "layout.html written\n"
    assert axe("draw", FRAGMENT, "-o", "a.svg", "--json").json == {"file": "a.svg"}
    assert (tmp_path / "layout.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "a.svg").read_text().startswith("<svg ")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.svg", "layout.html"]


def test_two_layouts_and_certificates_are_drawn_as_text(axe: Axe) -> None:
    pair = axe("draw", "S[(2,3):(3,1)]", "S[(2,3):(1,2)]", "--text")
    assert pair.code == 0
    assert pair.out.startswith("Refuted: index 1")
    assert "4 of the 6 elements drawn differ." in axe(
        "draw", "S[(2,3):(3,1)]", "S[(2,3):(1,2)]", "--text", "--json"
    ).json["text"]  # fmt: skip
    axe("equiv", "S[(2,3):(3,1)]", "S[6:1]", "--certificate", "proof.json")
    assert "accepted" in axe("draw", "proof.json", "--text").out


def test_banks_are_drawn_where_the_size_of_an_element_is_said(axe: Axe) -> None:
    text = "sw(1,2,3)@m . S[(4,32):(32,1)]"
    shown = axe("draw", text, "--banks", "4", "--text").out
    assert "byte\\bank" in shown
    assert shown == axe("draw", text, "--itemsize", "4", "--text").out
    twice = axe("draw", text, "--banks", "4", "--itemsize", "2", "--text")
    assert (twice.code, "--banks: says 4 bytes, and --itemsize 2" in twice.err) == (2, True)


def test_the_window_of_a_large_layout_moves(axe: Axe) -> None:
    done = axe("draw", "xla:f32[1024,512]", "--text", "--at", "1000,500")
    assert "Drawn are rows 992 to 1023 of 1024, columns 480 to 511 of 512." in done.out


# -- bad input -----------------------------------------------------------------------------------

BAD = {
    "layout_unbalanced": ("layout", "S[(8,4:(4,1)]"),
    "layout_unprefixed": ("layout", "f32[1024,512]{1,0:T(8,128)}"),
    "equiv_unprefixed": ("equiv", "P('x',None)", "alpa:S0R"),
    "equiv_itemsize": ("equiv", "sw(128B) . S[(8,64):(64,1)]", "S[512:1]"),
    "layout_zero": ("layout", "S[(0):(1)]"),
    "layout_negative": ("layout", "S[(-2):(1)]"),
    "layout_huge": ("layout", "S[(4294967296,4294967296):(1,1)]"),
    "layout_ten_thousand_iters": ("layout", f"S[({'2,' * 10_000}):({'1,' * 10_000})]"),
    "layout_million_iters": ("layout", f"S[({'2,' * 1_000_000}2):(1)]"),
    "layout_tile": ("layout", "xla:f32[3,5]{1,0:T(0,2)}"),
    "layout_long_shape": ("layout", "S[8:1]", "--shape", "8x" * 10_000),
    "layout_long_words": ("layout", "S[8:1]", "1," * 10_000),
    "layout_long_notation": ("layout", f"cute{'e' * 10_000}:(4,8):(8,1)"),
    "slice_long_region": ("layout", "slice", "S[8:1]", "8", "0:" * 10_000),
    "convert_long_mesh": ("layout", "alpa:S0", "--shape", "8", "--mesh", "x" * 10_000),
    "layout_notation": ("layout", "cut:(4,8):(8,1)"),
    "layout_shape": ("layout", "S[8:1]", "--shape", "3x3"),
    "layout_shape_text": ("layout", "S[8:1]", "--shape", "3xx3"),
    "layout_shape_zero": ("layout", "S[8:1]", "--shape", "0"),
    "layout_mesh_text": ("layout", "alpa:S0", "--shape", "8", "--mesh", "x:2"),
    "layout_mesh_twice": ("layout", "alpa:S0", "--shape", "8", "--mesh", "x=2,x=4"),
    "layout_mesh_zero": ("layout", "alpa:S0", "--shape", "8", "--mesh", "x=0"),
    "layout_axis": ("layout", "alpa:S0", "--shape", "8", "--mesh", "x=2", "--axis", "a b"),
    "group_cut": ("layout", "group", "S[(2,3):(9,1)]", "3x2"),
    "group_size": ("layout", "group", "S[(2,3):(9,1)]", "3x3"),
    "slice_range": ("layout", "slice", "S[8:1]", "8", "6:12"),
    "slice_empty": ("layout", "slice", "S[8:1]", "8", "3:3"),
    "slice_text": ("layout", "slice", "S[8:1]", "8", "3"),
    "slice_impossible": ("layout", "slice", "S[(4,4):(1@p,1)]", "16", "2:6"),
    "permute_twice": ("layout", "permute", "S[(4,8):(8,1)]", "4x8", "0,0"),
    "permute_text": ("layout", "permute", "S[(4,8):(8,1)]", "4x8", "b,a"),
    "tile_missing": ("layout", "tile", "S[8:1]"),
    "tile_of_none": ("layout", "tile-of", "S[(2,3):(1,2)]", "6", "S[2:1]", "2"),
    "compose_outside": ("layout", "compose", "box[(3)] in S[4:1]", "S[4:1]"),
    "inverse_gap": ("layout", "inverse", "S[4:2]"),
    "apply_range": ("layout", "apply", "S[8:1]", "8"),
    "apply_text": ("layout", "apply", "S[8:1]", "one"),
    "refine_shapes": ("layout", "refine", "2x6", "3x4"),
    "no_such_command": ("tuna",),
    "convert_refused": ("convert", "--to", "cute", "S[(8):(1@lane)]"),
    "convert_to": ("convert", "--to", "cut", "S[8:1]"),
    "convert_from": ("convert", "--from", "cut", "--to", "cute", "S[8:1]"),
    "convert_prefix": ("convert", "--from", "cute", "--to", "axe", "xla:f32[8]"),
    "convert_devices": ("convert", "--to", "jax", "S[8:1]"),
    "draw_ending": ("draw", "S[8:1]", "-o", "a.png"),
    "draw_folder": ("draw", "S[8:1]", "-o", "nowhere/a.svg"),
    "draw_colour": ("draw", "S[8:1]", "--colour", "lane"),
    "draw_axis": ("draw", "S[8:1]", "--axis", "<b>"),
    "draw_at": ("draw", "S[8:1]", "--at", "8"),
    "draw_banks": ("draw", "S[8:1@lane]", "--itemsize", "2"),
    "draw_certificate": ("draw", "nowhere.json"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_message(name: str, axe: Axe, golden: Callable[..., None]) -> None:
    done = axe(*BAD[name])
    assert (done.code, done.out) == (2, "")
    assert not list(Path().iterdir())  # nothing half written
    assert len(done.err) < 600
    golden(done.err)


def test_an_operation_may_be_spelled_as_in_python(axe: Axe) -> None:
    words = "S[8:1]", "8", "S[2:1]", "2"
    assert axe("layout", "tile_of", *words).out == axe("layout", "tile-of", *words).out


def test_a_text_that_states_its_shape_keeps_it(axe: Axe) -> None:
    told = "strides:size=torch.Size([64, 32]), stride=(1, 64)"
    lines = axe("layout", told).out.splitlines()
    assert "xla          f32[64,32]{0,1}" in lines
    assert not any(line.startswith("hlo_sharding cannot: the tensor's ext") for line in lines)
    given = axe("layout", told, "--shape", "64x32", "--json").json["notations"]
    assert {"cute": "(64,32):(1,64)"}.items() <= given.items()


def test_a_refusal_of_padding_names_no_other_shape_than_the_text_s(axe: Axe) -> None:
    said = axe("layout", "jax:P('x','y')", "--shape", "5x6", "--mesh", "x=2,y=2").out
    assert "cute         cannot: 30 elements padded to 36; expected no padding" in said


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("group", "S[8:1]", "2x4", "--shape", "2x4"), "Got SHAPE twice"),
        (("slice", "S[8:1]", "0:4"), "Missing SHAPE, as argument or --shape"),
        (("slice", "cute:(4,2):(1,4)", "0:4"), "Missing SHAPE, as argument or --shape"),
        (("slice", "S[8:1]", "--shape", "8"), "Missing argument 'REGION'"),
    ],
)
def test_a_shape_is_said_once(arguments: tuple[str, ...], wrong: str, axe: Axe) -> None:
    done = axe("layout", *arguments)
    assert (done.code, done.out, wrong in done.err) == (2, "", True)


def test_a_target_s_figures_are_told_with_their_units(axe: Axe) -> None:
    shown = axe("targets", "h200")
    assert shown.code == 0
    lines = {line.split()[0]: line.split()[1] for line in shown.out.splitlines()}
    data = axe("targets", "h200", "--json").json
    assert float(lines["vector_flops_per_s"]) == data["vector_flops_per_s"]
    assert float(lines["memory_bytes_per_s.gmem"]) == data["memory_bytes_per_s"]["gmem"]
    assert shown.out.endswith("Rates are the whole machine's, of all its units together.\n")
    assert axe("targets", "h300").code == 2


def test_help_is_not_cut_short(axe: Axe) -> None:
    for command in ((), ("layout",), ("packs",)):
        listed = axe(*command, "--help").out.partition("Commands:")[2]
        assert listed
        assert "..." not in listed


# -- axe equiv -----------------------------------------------------------------------------------


def test_symbolic_layouts_are_compared_under_assumptions(axe: Axe) -> None:
    sides = "S[(n/8,8):(8,1)]", "S[n:1]"
    assert axe("equiv", "S[(n,4):(4,1)]", "S[4n:1]").code == 0
    open_ended = axe("equiv", *sides)
    assert (open_ended.code, "the assumption n % 8 == 0" in open_ended.out) == (3, True)
    proved = axe("equiv", *sides, "--assume", "n % 8 == 0", "--certificate", "proof.json")
    assert (proved.code, axe("check-cert", "proof.json").code) == (0, 0)
    assert axe("equiv", *sides, "--assume", "n % 8").code == 2


def test_shardings_are_compared_where_shape_and_mesh_are_said(axe: Axe) -> None:
    said = ("--shape", "8x16", "--mesh", "x=2,y=4")
    assert axe("equiv", "jax:P('x',None)", "alpa:S0R", *said).out.startswith("Proved: ")
    differ = axe("equiv", "jax:P('y',None)", "alpa:S0R", *said)
    assert (differ.code, differ.out[:8]) == (1, "Refuted:")
    program = f"{Path(__file__).parents[3]}/examples/qwen.py:mlp_block"
    refused = axe("equiv", program, program, *said)
    assert refused.code == 2
    assert "got a shape, a mesh or an itemsize, which say how layouts are read" in refused.err
    unequal = axe("equiv", "S[(4,4):(4,1)]", "S[(4,4):(1,4)]", "--shape", "4x5")
    assert (unequal.code, "shape (4, 5): 20 elements; expected" in unequal.err) == (2, True)
    unknown = axe("equiv", "A[128]", "A[128]", *said)
    assert unknown.code == 2
    assert "got a shape, a mesh or an itemsize for an expression" in unknown.err


def test_sides_that_number_their_modes_otherwise_are_told_so(axe: Axe) -> None:
    sides = ("cute:(4,8):(8,1)", "S[(4,8):(8,1)]")
    for pair in (sides, sides[::-1]):
        *_, note = axe("equiv", *pair).out.splitlines()
        assert note.startswith("note: cute counts elements with the first mode fastest, axe with")
        assert "--shape 4x8" in note
    assert axe("equiv", *sides, "--json").json["hint"] in note
    assert axe("equiv", *sides, "--shape", "4x8").out.startswith("Proved: ")
    same = ("S[(8,4):(8,1)]", "S[(4,8):(8,1)]")
    for pair in (same, ("cute:(32):(1)", "S[(32):(2)]"), ("cute:(4,8):(8,1)", "cute:(4,8):(1,4)")):
        assert "note: " not in axe("equiv", *pair).out


def test_two_drawn_layouts_are_called_what_was_typed(axe: Axe) -> None:
    drawn = axe(
        "draw", "S[(4,8):(8,1)]", "strides:shape=(4,8), strides=(8,1), offset=0", "--text"
    ).out
    assert drawn.splitlines().count("S[(4,8):(8,1)]") == 1
    assert "strides:shape=(4,8), strides=(8,1), offset=0 = S[" in drawn

"""Layouts that are left to the compiler: among those kept, right, never dearer than dense."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.debug import Report
from axe_eq.errors import ArgumentError, PackError
from axe_eq.extract.search.layouts import Places, cheapest
from axe_eq.program.types import Array, value_type
from axe_eq.schedule.kept import KINDS, TURNED, Kept, kept_layouts
from axe_eq_backends.cuda.target import h200
from benchmarks.chosen_layouts import anywhere, blocks, both, drawn
from benchmarks.programs import LARGE, RIGHT

# Whatever little a layout saves.
SURE = h200.replace(figures={**h200.figures, "least_saved_s": 0.0})
DENSE, DENSE_OUT = axe.Layout([(65 * 383, 1)]), axe.Layout([(65 * 65, 1)])
# Of every family of operators with floats, those that an interpreter takes no second for.
DRAWN = (100_004, 100_008, 100_050, 100_070, 100_074, 100_080, 100_140, 100_152, 100_306, 100_328,
         100_714, 100_170)  # fmt: skip


def product(a: Any, b: Any) -> Any:
    return a @ b


def integers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)


@pytest.fixture(scope="module")
def odd() -> axe.Executable:
    """A product that tensor cores take from rows at multiples of 16 bytes alone."""
    return axe.compile(product, "65x383:f16@any", "383x65:f16@any", target=SURE, outputs="any")


# -- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["f16[6,35]", "f32[3,4,5]", "f64[2,3,5,7]", "i8[1,9]", "f16[]"])
def test_turned_layouts_are_those_of_numpy_with_one_dim_last(text: str) -> None:
    of = value_type(text)
    found = {kept.layout: kept.turn for kept in kept_layouts(of, (TURNED,))}
    every = np.arange(of.size).reshape(of.shape)
    for layout, turn in found.items():
        order = [d for d in range(of.rank) if d != of.rank - 1 - turn]
        order += [of.rank - 1 - turn][: of.rank]
        memory = np.transpose(every, order).reshape(-1)
        assert np.array_equal(memory[axe.Layout.parse(layout).table("m")], np.arange(of.size))
    assert len(found) == len({tuple(np.moveaxis(every, d, -1).reshape(-1)) for d in range(of.rank)
                              } | {tuple(every.reshape(-1))})  # fmt: skip


def test_padded_rows_begin_at_multiples_of_16_bytes_along_any_dim() -> None:
    found = kept_layouts(value_type("f16[95,95]"), KINDS)
    strides = [axe.Layout.parse(kept.layout).shard for kept in found]
    assert [[s for _, s, _ in of] for of in strides] == [[1], [96, 1], [1, 95], [1, 96]]


@pytest.mark.parametrize("form", ["blocked", "0/8", "0/8 0%4", "0 0", "", "0/0 0%0", "0/8 0/8"])
def test_kinds_that_no_target_can_list_are_refused(form: str) -> None:
    with pytest.raises(PackError, match=f"{form!r}: are of no kind; expected padded turned, or a"):
        kept_layouts(value_type("f16[8,8]"), (form,))


# A form, and how numpy makes its memory of a value of 2 x 12 x 16.
FORMS: dict[str, Callable[[Array], Array]] = {
    "0/4 1 0%4": lambda x: x.reshape(2, 12, 4, 4).transpose(0, 2, 1, 3),
    "1/3 0/8 1%3 0%8": lambda x: x.reshape(2, 4, 3, 2, 8).transpose(0, 1, 3, 2, 4),
    "1%4 1/4 0": lambda x: x.reshape(2, 3, 4, 16).transpose(0, 2, 1, 3),
    "1 2 0": lambda x: x.transpose(1, 0, 2),
    "0 1 2": lambda x: x.transpose(2, 1, 0),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_blocks_are_those_of_numpy(form: str) -> None:
    every = np.arange(2 * 12 * 16).reshape(2, 12, 16)
    dense, kept = kept_layouts(value_type("f16[2,12,16]"), (form,))
    memory = FORMS[form](every).reshape(-1)
    assert dense.layout == "S[(384):(1@m)]"
    assert np.array_equal(memory[axe.Layout.parse(kept.layout).table("m")], np.arange(every.size))


@pytest.mark.parametrize(
    ("form", "type_"),
    [("1 2 0", "f16[4,4]"), ("0/8 1 0%8", "f16[8,12]"), ("1%4 1/4 0", "f32[8,128]")],
)
def test_forms_that_do_not_fit_or_gain_nothing_are_left(form: str, type_: str) -> None:
    """Too few dims, blocks that end inside one, long rows that stay what they are."""
    assert len(kept_layouts(value_type(type_), (form,))) == 1


# -- what is chosen -------------------------------------------------------------------------------


def test_a_product_gets_rows_that_bulk_copies_take(odd: axe.Executable) -> None:
    dense = axe.compile(product, "65x383:f16", "383x65:f16", target="h200")
    assert (
        {k.schedule for k in odd.kernels} == {"tensor_cores"} != {k.schedule for k in dense.kernels}
    )
    assert odd.cost["time_s"] < dense.cost["time_s"]
    assert odd.layouts.keys() == {"a", "b", "output 0"}
    assert odd.layouts["a"] == axe.Layout([(65, 384), (383, 1)])
    a, b = integers(65, 383), integers(383, 65, seed=1)
    assert np.array_equal(odd.interpret(a, b), a @ b)


def test_explain_says_what_was_chosen_and_what_dense_would_cost(odd: axe.Executable) -> None:
    text = odd.explain()
    assert "layout chosen for a: S[(65,383):(384@m,1@m)]" in text
    assert re.search(r"  inputs and outputs dense row-major: \d+\.\d us, x1\.", text)


def test_what_a_target_does_not_keep_is_not_chosen() -> None:
    plain = h200.replace(kept=())
    exe = axe.compile(product, "65x383:f16@any", "383x65:f16@any", target=plain, outputs="any")
    assert exe.layouts["a"] == DENSE


@pytest.mark.parametrize(("least_s", "is_dense"), [(0.1e-6, False), (1e-3, True)])
def test_what_saves_too_little_stays_dense(least_s: float, is_dense: bool) -> None:
    target = h200.replace(figures={**h200.figures, "least_saved_s": least_s})
    exe = axe.compile(product, "65x383:f16@any", "383x65:f16@any", target=target, outputs="any")
    assert (exe.layouts["a"] == DENSE) == is_dense


def test_what_makes_no_difference_stays_dense() -> None:
    added = axe.Spec((64, 64), "f16", layout="any")
    exe = axe.compile(lambda a, b: a + b, added, added, target="h200", outputs="any")
    assert all(len(layout.shard) == 1 for layout in exe.layouts.values())


def test_an_input_that_is_handed_back_may_lie_anywhere() -> None:
    exe = axe.compile(lambda x: (x, x + 1), "5x7:f32@any", target="cpu", outputs=["any", None])
    x = integers(5, 7).astype("f4")
    one, two = exe(exe.pack("x", x))
    assert np.array_equal(one, x)
    assert np.array_equal(two, x + 1)


def test_a_layout_that_is_given_stays_and_others_follow() -> None:
    given = axe.Layout([(65, 1), (383, 65)])
    spec = axe.Spec((65, 383), "f16", layout=given)
    exe = axe.compile(product, spec, "383x65:f16@any", target="h200", outputs=[DENSE_OUT])
    assert exe.layouts["a"] == given
    assert exe.layouts["output 0"] == DENSE_OUT
    a, b = integers(65, 383), integers(383, 65, seed=1)
    assert np.array_equal(exe.interpret(a, b), a @ b)


@pytest.mark.sampled(4, slow=("100080", "100050"))
@pytest.mark.parametrize("seed", DRAWN)
def test_drawn_programs_are_right_and_never_dearer(seed: int) -> None:
    row = drawn(seed)
    assert row["state"] in (RIGHT, LARGE), row


def test_on_a_mesh_it_is_as_if_nothing_was_said() -> None:
    mesh = axe.Mesh({"x": 2})
    spec = axe.Spec((8, 8), "f32", layout="any")
    plans = [
        axe.compile(axe.array.tanh, spec, target="h200", mesh=mesh, outputs="any").schedule.graph,
        axe.compile(axe.array.tanh, "8x8:f32", target="h200", mesh=mesh).schedule.graph,
    ]
    assert plans[0].to_json() == plans[1].to_json()


@pytest.mark.parametrize(
    ("target", "seed", "layout"),
    [
        ("trn2", 8, "S[(16,16,128,32):(65536@m,32@m,512@m,1@m)]"),  # rows of partitions in one run
        ("trn2", 24, "S[(64,32,64,2):(4096@m,2@m,64@m,1@m)]"),
    ],
)
def test_forms_of_blocks_are_chosen_where_they_save(target: str, seed: int, layout: str) -> None:
    row = blocks(seed, target)
    assert layout in row["layouts"].values()
    assert row["chosen_us"] < 0.98 * row["dense_us"]


def test_what_lies_in_blocks_is_packed_printed_saved_and_right(tmp_path: Path) -> None:
    layout = axe.Layout([(64, 8), (8, 512), (8, 1)])
    spec = axe.Spec((64, 64), "f32", layout=layout)
    x = integers(64, 64).astype("f4")
    exe = axe.compile(lambda x: x * 2, spec, target="cpu", outputs=[layout])
    assert str(layout) in str(exe.schedule)
    packed = exe.pack("x", x)
    assert np.array_equal(exe(packed), x * 2)
    exe.save(tmp_path / "panels.axe")
    again = axe.load(tmp_path / "panels.axe")
    assert again.layouts == exe.layouts == {"x": layout, "output 0": layout}
    assert np.array_equal(again(again.pack("x", x)), x * 2)


# -- the search -----------------------------------------------------------------------------------


def found_by(table: Callable[[tuple[int, ...]], float], sizes: tuple[int, ...]) -> tuple[int, ...]:
    layouts = [[Kept(n, str(n)) for n in range(size)] for size in sizes]
    places = Places({}, layouts)
    way, best, dense = cheapest(places, table, lambda way, _: table(way), lambda cost: cost)
    assert dense == table((0,) * len(places.open))
    assert best == table(way) <= dense
    return way


@pytest.mark.parametrize("sizes", [(2, 3), (4, 4), (5, 4, 3), (3, 3, 3, 3)])
@pytest.mark.parametrize("seed", range(10))
def test_the_cheapest_way_of_sums_is_found(sizes: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = [rng.integers(1, 9, n).tolist() for n in sizes]

    def total(way: tuple[int, ...]) -> float:
        return float(sum(cost[n] for cost, n in zip(costs, way, strict=True)))

    least = min(map(total, itertools.product(*map(range, sizes))))
    assert total(found_by(total, sizes)) == least


def test_ways_that_gain_only_together_are_found() -> None:
    assert found_by(lambda w: 1.0 if set(w) == {1} else 2.0, (3, 3, 3)) == (1, 1, 1)


def test_what_gains_too_little_is_left() -> None:
    assert found_by(lambda w: 1.0 if not any(w) else 0.9995, (4, 2)) == (0, 0)


# -- calls ----------------------------------------------------------------------------------------


def test_pack_lays_an_array_out_as_chosen(odd: axe.Executable) -> None:
    a = integers(65, 383)
    packed = odd.pack("a", a)
    assert packed.strides == (768, 2)
    assert np.array_equal(packed, a)
    assert odd.pack("a", packed) is packed


@pytest.mark.parametrize(
    ("name", "array", "wrong"),
    [
        ("c", np.zeros((65, 383), "f2"), "input 'c': is none of the program's; expected a, b"),
        ("a", np.zeros((383, 65), "f2"), "argument 'a': has shape (383, 65)"),
        ("a", np.zeros((65, 383), "f4"), "argument 'a': has dtype float32; expected f16"),
        ("a", [[1.0]], "argument 'a': is a list; expected an array"),
    ],
)
def test_pack_refuses_what_does_not_fit(
    odd: axe.Executable, name: str, array: Any, wrong: str
) -> None:
    with pytest.raises(ArgumentError) as found:
        odd.pack(name, array)
    assert str(found.value).startswith(wrong)


def test_arrays_that_lie_otherwise_are_never_misread() -> None:
    spec = axe.Spec((5, 7), "f32", layout=axe.Layout([(5, 1), (7, 5)]))
    exe = axe.compile(lambda x: x * 2, spec, target="cpu")
    x = integers(5, 7).astype("f4")
    with pytest.raises(ArgumentError, match=r"exe\.pack\('x', array\)"):
        exe(x)
    assert np.array_equal(exe(exe.pack("x", x)), x * 2)


def test_a_saved_program_knows_its_layouts(odd: axe.Executable, tmp_path: Path) -> None:
    exe = axe.compile(product, "65x383:f16@any", "383x65:f16@any", target="cpu", outputs="any")
    exe.save(tmp_path / "product.axe")
    again = axe.load(tmp_path / "product.axe")
    assert again.layouts == exe.layouts
    a, b = integers(65, 383), integers(383, 65, seed=1)
    assert np.array_equal(again(again.pack("a", a), again.pack("b", b)), a @ b)


def test_a_program_from_the_cache_has_the_layouts_that_were_chosen(
    odd: axe.Executable, tmp_path: Path
) -> None:
    with axe.debug(cache=1, cache_dir=tmp_path):
        found = [
            axe.compile(product, "65x383:f16@any", "383x65:f16@any", target=SURE, outputs="any")
            for _ in range(2)
        ]
        dense = axe.compile(product, "65x383:f16", "383x65:f16", target=SURE)
    assert isinstance(found[1].report, Report)
    assert found[1].report["saturate"].notes["cached"]
    assert found[0].layouts == found[1].layouts == odd.layouts
    assert dense.layouts["a"] == DENSE


def test_outputs_are_any_or_one_layout_each() -> None:
    for wrong in ("dense", ["any", "any"], ["some"]):
        with pytest.raises(ArgumentError, match="'any'"):
            axe.compile(lambda x: x + 1, "4x4:f32", target="cpu", outputs=wrong)  # type: ignore[arg-type]


def test_a_program_text_says_what_is_left_open() -> None:
    program = axe.trace(lambda x: nn.relu(x), "4x4:f32@any")
    assert "x: f32[4,4] @ any" in str(program)
    assert anywhere(program).output_layouts == ("any",)
    assert both(program, "cpu")[1].layouts["x"] == axe.Layout([(16, 1)])

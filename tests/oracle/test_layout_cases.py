"""The layout algebra against recorded cases.

``layout_cases.json`` was recorded from TIRx (apache-tvm 0.27), pycute (cutlass 7107b05), numpy and
enumeration; its ``meta`` names the versions. ``out`` is what the definition gives: where a peer was
wrong or refused, the field ``tirx`` says so. Notations are tested beside this file.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import LayoutError
from axe_eq.layout import (
    Layout,
    Swizzle,
    complement,
    compose,
    direct_sum,
    direct_sum_left,
    direct_sum_right,
    left_inverse,
    right_inverse,
    same_map,
    tile,
    tile_of,
)

Case = dict[str, Any]
CASES: list[Case] = json.loads(
    (Path(__file__).parent / "layout_cases.json").read_text(encoding="utf-8")
)["cases"]


TESTED: set[str] = set()  # here; operations of notations are tested beside this file


def cases(op: str) -> pytest.MarkDecorator:
    TESTED.add(op)
    return pytest.mark.parametrize("case", [case for case in CASES if case["op"] == op], ids=_id)


def _id(case: Case) -> str:
    return str(case["id"])


def build(parts: Case) -> Layout:
    return Layout(parts["D"], parts["R"], parts["O"])


def same(a: Layout, b: Layout) -> bool:
    """Both decisions must say so: the comparison of maps and that of canonical forms."""
    equal = same_map(a, b) is None
    assert equal == (a.canonical() == b.canonical())
    return equal


def refused(operation: Any, *arguments: Any) -> bool:
    with pytest.raises(LayoutError):
        operation(*arguments)
    return True


def test_print_counts(capsys: pytest.CaptureFixture[str]) -> None:
    counts = Counter(case["op"] for case in CASES)
    with capsys.disabled():
        print("\n" + ", ".join(f"{op} {count}" for op, count in sorted(counts.items())))
    assert set(counts) == TESTED | {"xla.index", "gspmd", "hlo_sharding", "linear_layout"}
    assert counts["slice"] >= 40


@cases("apply")
def test_apply(case: Case) -> None:
    given, out = case["in"], case["out"]
    layout = build(given["lro"])
    assert layout.size == out["size"]
    assert {axis: layout.span(axis) for axis in given["axes"]} == out["span"]
    for index, points in zip(given["x"], out["points"], strict=True):
        values = {tuple(dict(point).get(a, 0) for a in given["axes"]) for point in layout(index)}
        assert values == {tuple(point) for point in points}
    bare = Layout(layout.shard, (), layout.offset)
    assert bare.aliasing().injective == out["injective_on_D"]


@cases("canonicalize")
def test_canonicalize(case: Case) -> None:
    layout, wanted = build(case["in"]["lro"]), build(case["out"]["lro"])
    assert layout.canonical() == wanted.canonical()
    assert str(layout) == case["in"]["layout"]
    assert Layout.parse(case["out"]["layout"]).canonical() == layout.canonical()


@cases("equal")
def test_equal(case: Case) -> None:
    a, b = build(case["in"]["a_lro"]), build(case["in"]["b_lro"])
    assert same(a, b) == case["out"]["equal"]
    shown = case["out"]["counterexample"]
    if shown is not None:
        found = same_map(a, b)
        assert found is not None
        assert found.x == shown["x"]
        for image, points in ((found.image_a, shown["a"]), (found.image_b, shown["b"])):
            assert image is not None
            values = {tuple(dict(p).get(axis, 0) for axis in shown["axes"]) for p in image}
            assert values == {tuple(point) for point in points}


@cases("group")
def test_group(case: Case) -> None:
    layout, shape, out = build(case["in"]["lro"]), case["in"]["shape"], case["out"]
    if not out["ok"]:
        assert refused(layout.group, shape)
        return
    grouped = layout.group(shape)
    assert grouped.layout == build(out["lro"])
    ends = np.cumsum([0, *map(len, grouped.blocks)]).tolist()
    assert ends == out["seps"]


@cases("tile")
def test_tile(case: Case) -> None:
    given, out = case["in"], case["out"]
    a, b = build(given["A_lro"]), build(given["B_lro"])
    assert {axis: b.span(axis) for axis in out["span_B"]} == out["span_B"]
    assert same(tile(a, given["SA"], b, given["SB"]), build(out["lro"]))


@cases("direct_sum")
def test_direct_sum(case: Case) -> None:
    given = case["in"]
    a, b, whole = build(given["A_lro"]), build(given["B_lro"]), build(case["out"]["lro"])
    shape = [x * y for x, y in zip(given["SA"], given["SB"], strict=True)]
    assert same(direct_sum(a, given["SA"], b, given["SB"]), whole)
    left = direct_sum_left(whole, shape, b, given["SB"])
    assert same(direct_sum(left, given["SA"], b, given["SB"]), whole)
    right = direct_sum_right(whole, shape, a, given["SA"])
    assert same(direct_sum(a, given["SA"], right, given["SB"]), whole)


@cases("tile_of")
def test_tile_of(case: Case) -> None:
    given, out = case["in"], case["out"]
    a, b = build(given["A_lro"]), build(given["B_lro"])
    if not out["ok"]:
        assert refused(tile_of, a, given["SA"], b, given["SB"])
        return
    found = tile_of(a, given["SA"], b, given["SB"])
    assert same(found, build(out["C_lro"]))
    assert same(tile(found, out["SC"], b, given["SB"]), a)


@cases("slice")
def test_slice(case: Case) -> None:
    given, out = case["in"], case["out"]
    layout = build(given["lro"])
    if not out["ok"]:
        assert refused(layout.slice, given["shape"], given["region"])
        return
    found = layout.slice(given["shape"], given["region"])
    assert same(found, build(out["lro"]))


@cases("cute.coalesce")
def test_coalesce(case: Case) -> None:
    layout = Layout.parse(case["in"]["axe"])
    assert same(layout, Layout.parse(case["out"]["axe"]))
    offsets = case["out"]["offsets"]  # long tables are recorded by their first 64 entries
    assert layout.canonical().table("m").tolist()[: len(offsets)] == offsets


@cases("cute.composition")
def test_composition(case: Case) -> None:
    given, out = case["in"], case["out"]
    found = compose(Layout.parse(given["A_axe"]), Layout.parse(given["B_axe"]))
    assert found.table("m").tolist() == out["offsets"]
    assert same(found, Layout.parse(out["axe"]))


@cases("cute.logical_divide")
def test_logical_divide(case: Case) -> None:
    whole, part = _cute(case["in"]["A"]), _cute(case["in"]["B"])
    order = Layout([*complement(part, whole.size).shard, *part.shard])  # the part is the fast mode
    found = compose(whole, order)
    assert found.table("m").tolist() == case["out"]["offsets"]
    assert same(found, Layout.parse(case["out"]["axe"]))


@cases("cute.inverse")
def test_inverse(case: Case) -> None:
    layout = _cute(case["in"]["A"])
    assert same(right_inverse(layout), _cute(case["out"]["right"]))
    assert right_inverse(layout).size == case["out"]["right_size"]
    assert same(left_inverse(layout), _cute(case["out"]["left"]))
    if case["out"]["right_size"] != layout.size:  # not onto: no inverse map
        assert refused(layout.inverse)
        return
    assert same(layout.inverse(), _cute(case["out"]["right"]))
    assert same(compose(layout.inverse(), layout), Layout([(layout.size, 1, "m")]))


@cases("cute.complement")
def test_complement(case: Case) -> None:
    assert same(complement(_cute(case["in"]["A"]), case["in"]["n"]), _cute(case["out"]["cute"]))


def _cute(text: str) -> Layout:
    """A flat CuTe layout: modes fastest first."""
    extents, strides = (
        [int(number) for number in part.strip("()").split(",")] for part in text.split(":")
    )
    return Layout([(e, s, "m") for e, s in zip(extents, strides, strict=True)][::-1])


@cases("swizzle")
def test_swizzle(case: Case) -> None:
    given, out = case["in"], case["out"]
    bits, base, shift = given["swizzle_len"], given["per_element"], given["atom_len"]
    swizzle = Swizzle("m", bits, base, shift if given["inner"] else -shift)
    plain = Layout.parse(given["tile"])
    layout = Layout(plain.shard, swizzle=[swizzle])
    values = layout.table("m")
    assert [[x, int(values[x])] for x, _ in out["sample"]] == out["sample"]
    assert layout.aliasing().injective == out["bijective"]
    digests = {
        hashlib.sha256(text).hexdigest()[:16]
        for text in (values.tobytes(), json.dumps(values.tolist()).encode())
    }
    assert out["sha256_16"] in digests


@cases("strides")
def test_strides(case: Case) -> None:
    given, out = case["in"], case["out"]
    pairs = zip(given["shape"], given["strides_elements"], strict=True)
    layout = Layout([(extent, stride) for extent, stride in pairs])
    assert str(layout) == out["axe"]
    assert layout.table("m").tolist() == out["offsets"]
    assert layout.aliasing().injective == out["injective"]
    assert {axis: layout.span(axis) for axis in out["span"]} == out["span"]
    assert layout.strided(given["shape"]) == tuple(
        ((extent, stride),)
        for extent, stride in zip(given["shape"], given["strides_elements"], strict=True)
    )

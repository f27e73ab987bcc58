"""Notations against other systems: recorded cases, and their own parsers where they are installed.

``layout_cases.json`` was recorded from jaxlib, triton, TVM, pycute and numpy; its ``meta`` names
the versions. Cases are compared element by element with what those systems said.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import NotationError
from axe_eq.layout import Layout, Mesh
from axe_eq.layout.notation import read, write
from axe_eq.layout.notation.triton import AXES
from tests.property.test_notation_round_trip import hlo_sample, mesh_form, xla_sample

CASES = json.loads((Path(__file__).parent / "layout_cases.json").read_text(encoding="utf-8"))
Point = dict[str, int]
Rng = np.random.Generator


def cases(*ops: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES["cases"] if case["op"] in ops]


def points(layout: Layout, index: Any, shape: Any = None) -> list[Point]:
    return [dict(point) for point in layout(index, shape=shape)]


def on_m(layout: Layout) -> list[int]:
    return [int(value) for value in layout.table("m")]


# ---- recorded cases -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases("xla.index"))
def test_xla_index(case: dict[str, Any]) -> None:
    given, out = case["in"], case["out"]
    layout = read("xla", given["shape"], shape=given["dims"])
    if out["linear"] is not None:
        assert on_m(layout) == out["linear"]
    for index, offset in out["sample"]:
        assert points(layout, index, given["dims"]) == [{"m": offset} if offset else {}]
    assert layout.size == prod(given["dims"])
    if not layout.swizzle:
        assert layout.footprint.get("m", 1) == out["physical_elements"]
        again = read("xla", write("xla", layout, shape=given["dims"]))
        assert on_m(again) == on_m(layout)
    if out["axe"] is not None:
        assert on_m(layout) == on_m(Layout.parse(out["axe"]))


@pytest.mark.parametrize("case", cases("gspmd"))
@pytest.mark.parametrize("notation", ["jax", "hlo_sharding", "dtensor", "alpa"])
def test_gspmd(case: dict[str, Any], notation: str) -> None:
    given, out = case["in"], case["out"]
    mesh, shape = Mesh(given["mesh"], axis="dev"), tuple(given["shape"])
    layout = read("jax", given["spec"], shape=shape, mesh=mesh)
    texts = {"jax": given["spec"], "hlo_sharding": given["hlo_sharding"]}
    if notation not in texts:
        texts[notation] = write(notation, layout, shape=shape, mesh=mesh)
    layout = read(notation, texts[notation], shape=shape, mesh=mesh)
    expected = Layout.parse(out["axe"])
    assert [layout(x) for x in range(layout.size)] == [expected(x) for x in range(expected.size)]
    for index, devices in out["devices_of"]:
        assert sorted(point.get("dev", 0) for point in points(layout, index, shape)) == devices
    written = write(notation, layout, shape=shape, mesh=mesh)
    again = read(notation, written, shape=shape, mesh=mesh)
    assert [again(x) for x in range(again.size)] == [layout(x) for x in range(layout.size)]


@pytest.mark.parametrize("case", cases("hlo_sharding"))
def test_hlo_sharding(case: dict[str, Any]) -> None:
    text, out = case["in"]["text"], case["out"]
    mesh = None if out["tiled"] else Mesh({"d": 8})
    dims = out.get("dims", [1])
    shape = tuple(dims[:-1] if out.get("replicate_on_last") else dims)
    layout = read("hlo_sharding", text, shape=shape, mesh=mesh)
    found = [{point.get("gpuid", 0) for point in points(layout, x)} for x in range(layout.size)]
    if out["tiled"]:
        devices = np.array(out["devices"]).reshape(layout.size, -1)
        assert found == [set(map(int, row)) for row in devices]
        assert write("hlo_sharding", layout, shape=shape, mesh=mesh) == out["print"]
    elif out["replicated"]:
        assert found == [set(range(8))]
    else:
        assert found == [{3}]
        assert write("hlo_sharding", layout, shape=shape, mesh=mesh) == out["print"]


@pytest.mark.parametrize("case", cases("linear_layout"))
def test_linear_layout(case: dict[str, Any]) -> None:
    """The table sends hardware indices to elements; a layout sends elements back."""
    bases, out = case["in"]["bases"], case["out"]
    shape = tuple(1 << max(v[dim].bit_length() for v in bases) for dim in range(len(bases[0])))
    lines = [f" - in={1 << bit} -> ({', '.join(map(str, v))})" for bit, v in enumerate(bases)]
    text = "\n".join(lines)
    if not out["surjective"]:
        with pytest.raises(NotationError, match=r"no hardware index holds|hold only some"):
            read("triton", text, shape=shape)
        return
    layout = read("triton", text, shape=shape)
    held: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for index, element in enumerate(out["table"]):
        held[tuple(element)].add(index)
    for element in itertools.product(*map(range, shape)):
        assert {point.get("in", 0) for point in points(layout, element, shape)} == held[element]
    again = read("triton", write("triton", layout, shape=shape), shape=shape)
    assert [again(x) for x in range(again.size)] == [layout(x) for x in range(layout.size)]


@pytest.mark.parametrize("case", cases("swizzle"))
def test_swizzle(case: dict[str, Any]) -> None:
    given, out = case["in"], case["out"]
    shift = given["atom_len"] if given["inner"] else -given["atom_len"]
    swizzle = f"sw({given['swizzle_len']},{given['per_element']},{shift})@m"
    layout = Layout.parse(f"{swizzle} . {given['tile']}")
    assert [on_m(layout)[x] for x, _ in out["sample"]] == [offset for _, offset in out["sample"]]
    text = write("cute", layout)
    assert on_m(read("cute", text)) == on_m(layout)
    if given["cute"]:
        assert text.startswith(f"{given['cute']} o 0 o ")
    assert (len(set(on_m(layout))) == layout.size) == out["bijective"]


@pytest.mark.parametrize("case", cases("strides"))
def test_strides(case: dict[str, Any]) -> None:
    shape, strides = case["in"]["shape"], case["in"]["strides_elements"]
    layout = read("strides", f"shape={tuple(shape)}, strides={tuple(strides)}", shape=shape)
    assert on_m(layout) == case["out"]["offsets"]
    assert {axis: layout.span(axis) for axis in layout.axes} == case["out"]["span"]
    nested = read(
        "cute", f"({','.join(map(str, shape))}):({','.join(map(str, strides))})", shape=shape
    )
    assert on_m(nested) == case["out"]["offsets"]


@pytest.mark.parametrize("case", cases("cute.coalesce", "cute.composition", "cute.logical_divide"))
def test_cute(case: dict[str, Any]) -> None:
    texts = {key: text for key, text in case["in"].items() if key in ("cute", "A", "B")}
    for key, text in texts.items():
        recorded = case["in"].get({"cute": "axe"}.get(key, f"{key}_axe"))
        if recorded is not None:
            assert on_m(read("cute", text)) == on_m(Layout.parse(recorded))
    result, recorded = read("cute", case["out"]["cute"]), case["out"]["offsets"]
    assert on_m(result)[: len(recorded)] == recorded
    assert on_m(result) == on_m(Layout.parse(case["out"]["axe"]))
    assert on_m(result) == on_m(read("cute", write("cute", result)))


@pytest.mark.parametrize("case", cases("cute.inverse", "cute.complement"))
def test_cute_texts_of_inverses(case: dict[str, Any]) -> None:
    forward = on_m(read("cute", case["in"]["A"]))
    if case["op"] == "cute.complement":
        rest = on_m(read("cute", case["out"]["cute"]))
        sums = [a + b for a in forward for b in rest]
        assert len(set(sums)) == len(sums)
        assert max(sums) + 1 >= case["in"]["n"]
        return
    right = on_m(read("cute", case["out"]["right"]))
    assert [forward[x] for x in right] == list(range(case["out"]["right_size"]))
    left = on_m(read("cute", case["out"]["left"]))
    assert [left[offset] for offset in forward] == list(range(len(forward)))


# ---- jax and jaxlib -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jax() -> Any:
    """jax with eight CPU devices, and the parsers of jaxlib."""
    if "jax" not in sys.modules:
        os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    jax = pytest.importorskip("jax")
    sharding = pytest.importorskip("jax.sharding")
    client = pytest.importorskip("jax._src.lib").xla_client
    if len(jax.devices()) < 8:
        pytest.skip("jax was started with fewer than 8 devices")
    return SimpleNamespace(devices=jax.devices()[:8], sharding=sharding, client=client)


def meshes() -> Iterator[dict[str, int]]:
    yield from ({"x": 2, "y": 4}, {"x": 8}, {"x": 2, "y": 2, "z": 2}, {"a": 4, "b": 1, "c": 2})


def test_partition_specs_place_elements_where_jax_does(jax: Any, rng: Rng, full: bool) -> None:
    for _ in range(400 if full else 20):
        sizes = list(meshes())[int(rng.integers(4))]
        dims: list[list[str]] = [[] for _ in range(int(rng.integers(1, 4)))]
        for name in rng.permutation(list(sizes)):
            if rng.random() < 0.8:
                dims[int(rng.integers(len(dims)))].append(str(name))
        shape = tuple(prod(sizes[n] for n in names) * int(rng.integers(1, 3)) for names in dims)
        spec = jax.sharding.PartitionSpec(*(tuple(names) or None for names in dims))
        devices = np.array(jax.devices).reshape(tuple(sizes.values()))
        theirs = jax.sharding.NamedSharding(jax.sharding.Mesh(devices, tuple(sizes)), spec)
        ours = read("jax", repr(spec), shape=shape, mesh=Mesh(sizes))
        hlo = str(theirs._to_xla_hlo_sharding(len(shape)))
        same = read("hlo_sharding", hlo, shape=shape, mesh=Mesh(sizes))
        assert [ours(x) for x in range(ours.size)] == [same(x) for x in range(same.size)]
        local = theirs.shard_shape(shape)
        for device, region in theirs.devices_indices_map(shape).items():
            inside = (range(*part.indices(n)) for part, n in zip(region, shape, strict=True))
            for place, index in enumerate(itertools.product(*inside)):
                assert tuple(
                    (axis, value) for axis, value in (("gpuid", device.id), ("m", place)) if value
                ) in ours(index, shape=shape)
        copies = 8 * prod(local) // prod(shape)
        assert all(len(ours(x)) == copies for x in range(ours.size))
        written = jax.client.HloSharding.from_string(
            write("hlo_sharding", ours, shape=shape, mesh=Mesh(sizes))
        )
        assert str(written) == str(jax.client.HloSharding.from_string(hlo))


def test_named_shardings_are_what_xla_converts_them_to(jax: Any, rng: Rng, full: bool) -> None:
    convert = getattr(jax.client.HloSharding, "v3_to_v2_sharding", None)
    if convert is None:
        pytest.skip("this jaxlib has no shardings that name mesh dims")
    for _ in range(1000 if full else 50):
        mesh = Mesh([{"x": 2, "y": 4}, {"x": 12}, {"a": 1, "b": 8, "c": 3}][int(rng.integers(3))])
        rank = int(rng.integers(1, 4))
        text = mesh_form(rng, mesh, rank)
        try:  # neighbouring parts of one mesh dim, which mean their product, end the process
            theirs = convert(jax.client.HloSharding.from_string(merged(text)))
        except Exception as error:
            pytest.fail(f"{text}: {error}")
        shape = tuple(int(n) for n in rng.integers(1, 9, rank))
        given: dict[str, Any] = {"shape": shape, "mesh": mesh}
        try:
            ours = read("hlo_sharding", text, **given)
        except NotationError:
            with pytest.raises(NotationError):
                read("hlo_sharding", str(theirs), **given)
            continue
        again = read("hlo_sharding", str(theirs), **given)
        assert [ours(x) for x in range(ours.size)] == [again(x) for x in range(again.size)], text


def merged(text: str) -> str:
    """The text with neighbouring parts of a mesh dim written as one, as XLA demands."""
    extents = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", text)}
    both = re.compile(r"'(\w+)':\((\d+)\)(\d+), '\1':\((\d+)\)(\d+)")
    place = 0
    while found := both.search(text, place):
        name, pre, size, next_pre, next_size = found.groups()
        if int(pre) * int(size) != int(next_pre):
            place = found.start() + 1
            continue
        whole = int(size) * int(next_size)
        joined = f"'{name}'" if whole == extents[name] else f"'{name}':({pre}){whole}"
        text = text[: found.start()] + joined + text[found.end() :]
    return text


@pytest.mark.parametrize("case", cases("xla.index"))
def test_jaxlib_parses_what_is_written(jax: Any, case: dict[str, Any]) -> None:
    given = case["in"]
    theirs = jax.client.Shape(given["shape"])
    layout = read("xla", str(theirs))
    assert on_m(layout) == on_m(read("xla", given["shape"]))
    if layout.swizzle:
        return
    for shape in (given["dims"], [layout.size]):
        text = write("xla", layout, shape=shape) if layout.box is None else write("xla", layout)
        assert on_m(read("xla", str(jax.client.Shape(text)))) == on_m(layout)


def test_jaxlib_reads_generated_texts_as_they_are_meant(jax: Any, rng: Rng, full: bool) -> None:
    """What we read, and what we write for it, jaxlib prints with the same meaning."""
    parsers: dict[str, tuple[Any, Any]] = {
        "xla": (xla_sample, jax.client.Shape),
        "hlo_sharding": (hlo_sample, jax.client.HloSharding.from_string),
    }
    for notation, (sample_of, parser) in parsers.items():
        for _ in range(1000 if full else 50):
            sample = sample_of(rng)
            given: dict[str, Any] = {"shape": sample.shape, "mesh": sample.mesh}
            try:
                layout = read(notation, sample.text, **given)
                written = write(notation, layout, **given)
            except NotationError:
                continue
            theirs = [str(parser(written))]
            if not re.search(r"\[\]{}|mesh|=\[1\]", sample.text):  # not read, or printed as given
                theirs.append(str(parser(sample.text)))
            for text in theirs:
                again = read(notation, text, **given)
                assert [again(x) for x in range(again.size)] == [
                    layout(x) for x in range(layout.size)
                ], (sample, written, text)


# ---- triton -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def triton() -> Any:
    """A builder that turns Gluon layouts into linear ones."""
    library = pytest.importorskip("triton._C.libtriton")
    layouts = pytest.importorskip("triton.experimental.gluon.language._layouts")
    context = library.ir.context()
    library.ir.load_dialects(context)
    builder = library.gluon_ir.GluonOpBuilder(context)
    return SimpleNamespace(layouts=layouts, builder=builder, context=context, library=library)


def held_by(theirs: Any) -> dict[tuple[int, ...], set[tuple[tuple[str, int], ...]]]:
    """Every element's hardware indices, from Triton's bases."""
    bases = {
        "reg": theirs.reg_bases,
        "lane": theirs.lane_bases,
        "warp": theirs.warp_bases,
        "cta": theirs.block_bases,
    }
    held: dict[tuple[int, ...], set[tuple[tuple[str, int], ...]]] = defaultdict(set)
    for index in itertools.product(*(range(1 << len(vectors)) for vectors in bases.values())):
        element = np.zeros(len(theirs.shape), dtype=np.int64)
        for value, vectors in zip(index, bases.values(), strict=True):
            for bit, vector in enumerate(vectors):
                element ^= np.array(vector) * (value >> bit & 1)
        point = sorted((axis, value) for axis, value in zip(bases, index, strict=True) if value)
        held[tuple(map(int, element))].add(tuple(point))
    return held


def test_blocked_encodings_are_triton_s(triton: Any, rng: Rng, full: bool) -> None:
    for _ in range(300 if full else 15):
        rank = int(rng.integers(1, 4))
        threads, lanes, warps = (
            [int(1 << bits) for bits in rng.integers(0, most, rank)] for most in (3, 3, 2)
        )
        while prod(lanes) < 32:
            lanes[int(rng.integers(rank))] *= 2
        if prod(lanes) > 32:
            continue
        order = [int(dim) for dim in rng.permutation(rank)]
        cluster = pick_cluster(rng, rank)
        counts = [
            1 << max((v[dim].bit_length() for v in cluster), default=0) for dim in range(rank)
        ]
        shape = [count << int(rng.integers(0, 5 if rank < 3 else 3)) for count in counts]
        encoding = triton.layouts.BlockedLayout(threads, lanes, warps, order, cluster)
        theirs = triton.builder.to_linear_layout(encoding._to_ir(triton.builder), shape)
        fields = f"sizePerThread = {threads}, threadsPerWarp = {lanes}, warpsPerCTA = {warps}"
        fields += f", order = {order}" + (f", CGALayout = {cluster}" if cluster else "")
        ours = read("triton", f"#ttg.blocked<{{{fields}}}>", shape=shape)
        held = held_by(theirs)
        for element in itertools.product(*map(range, shape)):
            assert ours(element, shape=shape) == held[element], fields


def pick_cluster(rng: Rng, rank: int) -> list[list[int]]:
    vectors: list[list[int]] = []
    sizes = [1] * rank
    for _ in range(int(rng.integers(0, 3))):
        vector, dim = [0] * rank, int(rng.integers(rank))
        if rng.random() < 0.7:
            vector[dim] = sizes[dim]
            sizes[dim] *= 2
        vectors.append(vector)
    return vectors


def test_printed_bases_are_triton_s(triton: Any, rng: Rng, full: bool) -> None:
    linear = triton.library.linear_layout.LinearLayout
    for _ in range(300 if full else 15):
        shape = [1 << int(bits) for bits in rng.integers(0, 4, int(rng.integers(1, 3)))]
        bits = (prod(shape) - 1).bit_length()
        columns = [1 << int(bit) for bit in rng.permutation(bits)]
        for place, other in itertools.permutations(range(bits), 2):
            columns[place] ^= columns[other] if rng.random() < 0.3 else 0
        vectors = [[int(x) for x in np.unravel_index(column, shape)] for column in columns]
        vectors += [[0] * len(shape)] * int(rng.integers(0, 2))
        names = [f"dim{dim}" for dim in range(len(shape))]
        theirs = linear.from_bases([("offset", vectors)], names, shape, True)
        ours = read("triton", str(theirs))
        for offset in range(1 << len(vectors)):
            element = tuple(theirs.apply({"offset": offset}).values())
            assert ((("m", offset),) if offset else ()) in ours(element, shape=shape)
        assert sum(len(ours(x)) for x in range(ours.size)) == 1 << len(vectors)
        assert AXES["offset"] == "m"


# ---- torch --------------------------------------------------------------------------------------


def test_placements_split_as_torch_does(rng: Rng, full: bool) -> None:
    torch = pytest.importorskip("torch")
    types = pytest.importorskip("torch.distributed.tensor.placement_types")
    accepted = 0
    for _ in range(400 if full else 40):
        sizes = [{"a": 2, "b": 4}, {"a": 8}, {"a": 2, "b": 3, "c": 2}][int(rng.integers(3))]
        shape = tuple(int(n) for n in rng.choice([1, 2, 4, 6, 7, 8, 12], int(rng.integers(1, 4))))
        placements = [pick_placement(types, rng, len(shape)) for _ in sizes]
        try:
            ours = read("dtensor", str(tuple(placements)), shape=shape, mesh=Mesh(sizes))
        except NotationError:
            continue
        accepted += 1
        held: dict[int, set[tuple[int, int]]] = defaultdict(set)
        whole = torch.arange(prod(shape)).reshape(shape)
        pitch: tuple[int, ...] = ()
        for device, coordinate in enumerate(itertools.product(*map(range, sizes.values()))):
            local = whole
            for count, place, placement in zip(sizes.values(), coordinate, placements, strict=True):
                if not placement.is_replicate():
                    chunks, _ = placement._split_tensor(
                        local, count, with_padding=False, contiguous=False
                    )
                    local = chunks[place]
            pitch = pitch or tuple(local.shape)
            for index in itertools.product(*map(range, local.shape)):
                offset = int(np.ravel_multi_index(index, pitch)) if pitch else 0
                held[int(local[index])].add((device, offset))
        for x in range(ours.size):
            found = {(point.get("gpuid", 0), point.get("m", 0)) for point in points(ours, x)}
            assert found == held[x], (placements, shape)
    assert accepted >= 10


def pick_placement(types: Any, rng: Rng, rank: int) -> Any:
    kind, dim = rng.random(), int(rng.integers(rank))
    if kind < 0.3:
        return types.Replicate()
    if kind < 0.75:
        return types.Shard(dim)
    return types._StridedShard(dim, split_factor=int(rng.choice([2, 4])))

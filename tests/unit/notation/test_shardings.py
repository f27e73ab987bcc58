"""HLO shardings, PartitionSpecs, Shardy's shardings, DTensor placements and Alpa specs."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any

import pytest

from axe_eq.errors import NotationError
from axe_eq.layout import Layout, Mesh
from axe_eq.layout.normal.decide import same_map
from axe_eq.layout.notation import read, write
from axe_eq.layout.notation.hlo_sharding import read_tuple
from axe_eq.layout.notation.text import Context

MESH = Mesh({"x": 2, "y": 4})
CUBE = Mesh({"x": 2, "y": 2, "z": 2})
ONE_SHARDING = {
    "hlo_sharding": "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
    "jax": "P('y')",
    "shardy": '#sdy.sharding<@mesh, [{"y"}, {}]>',
    "dtensor": "(Replicate(), Shard(dim=0))",
    "alpa": "S1R",
}


def images(layout: Layout) -> list[frozenset[tuple[tuple[str, int], ...]]]:
    return [layout(x) for x in range(layout.size)]


@pytest.mark.parametrize("notation", ONE_SHARDING)
def test_one_sharding_in_every_notation(notation: str) -> None:
    expected = Layout.parse("S[(4,2,16):(1@gpuid,16@m,1@m)] + R[(2):(4@gpuid)]")
    layout = read(notation, ONE_SHARDING[notation], shape=(8, 16), mesh=MESH)
    assert images(layout) == images(expected)
    for other, text in ONE_SHARDING.items():
        written = write(other, layout, shape=(8, 16), mesh=MESH)
        assert images(read(other, written, shape=(8, 16), mesh=MESH)) == images(expected)
        assert written == {"jax": "P('y', None)"}.get(other, text)


def test_the_mesh_names_the_axis() -> None:
    layout = read("jax", "P('x')", shape=(4,), mesh=Mesh({"x": 2}, axis="dev"))
    assert layout.axes == ("dev", "m")
    assert read("hlo_sharding", "{devices=[2]<=[2]}", shape=(4,)).axes == ("gpuid", "m")


# ---- HLO shardings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shape", "axe"),
    [
        ("{devices=[2,2]<=[2,2]T(1,0)}", (4, 4), "S[(2,2,2,2):(1@gpuid,2,2@gpuid,1)]"),
        ("{devices=[2,2]0,2,1,3}", (4, 4), "S[(2,2,2,2):(1@gpuid,2,2@gpuid,1)]"),
        (
            "{devices=[2,1,2]1,0,3,2 last_tile_dim_replicate}",
            (2, 3),
            "S[(2,3):(2@gpuid,1)] + R[2:1@gpuid]",
        ),
        (
            "{devices=[1,2,2]<=[4] last_tile_dims={replicated}}",
            (2, 2),
            "S[(2,2):(1,2@gpuid)] + R[2:1@gpuid]",
        ),
        (
            "{devices=[2,2,2]<=[8] last_tile_dims={replicated,replicated}}",
            (4,),
            "S[(2,2):(4@gpuid,1)] + R[4:1@gpuid]",
        ),
        ("{maximal device=3}", (2, 3), "S[6:1] + 3@gpuid"),
        ("{{maximal device=3}}", (2, 3), "S[6:1] + 3@gpuid"),
        ("{devices=[2]<=[2] shard_as 7}", (4,), "S[(2,2):(1@gpuid,1)]"),
        ('{devices=[2]<=[2] metadata={op_name="a{b}"}}', (4,), "S[(2,2):(1@gpuid,1)]"),
        ("{devices=[4]<=[4]}", (6,), "box[(6)] in S[(4,2):(1@gpuid,1)]"),
        ("{devices=[2,3]<=[2,3]T(1,0)}", (2, 3), "S[(3,2):(1@gpuid,3@gpuid)]"),
        ("{devices=[2,2]3,2,5,4}", (2, 2), "S[(2,2):(2@gpuid,-1@gpuid)] + 3@gpuid"),
    ],
)
def test_hlo_sharding(text: str, shape: tuple[int, ...], axe: str) -> None:
    assert images(read("hlo_sharding", text, shape=shape)) == images(Layout.parse(axe))


def test_replicated_needs_to_know_the_devices() -> None:
    layout = read("hlo_sharding", "{replicated}", shape=(2, 3), mesh=MESH)
    assert images(layout) == images(Layout.parse("S[6:1] + R[8:1@gpuid]"))
    with pytest.raises(NotationError, match="says nothing of the devices"):
        read("hlo_sharding", "{replicated}", shape=(2, 3))


@pytest.mark.parametrize(
    ("text", "tiled"),
    [
        ("{mesh['x'=2,'y'=4], [{'x'}, {}]}", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
        ("{mesh['x'=2,'y'=4], [{'y'}, {'x'}]}", "{devices=[4,2]<=[2,4]T(1,0)}"),
        ("{mesh['x'=2,'y'=4], [{'y','x'}, {}]}", "{devices=[8,1]<=[2,4]T(1,0)}"),
        (
            "{mesh['x'=2,'y'=4], [{'y':(1)2}, {}]}",
            "{devices=[2,1,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}",
        ),
        (
            "{mesh['x'=2,'y'=8], [{'y':(2)2,'x'}, {'y':(4)2}]}",
            "{devices=[4,2,2]<=[2,2,2,2]T(2,0,3,1) last_tile_dim_replicate}",
        ),
        (
            "{mesh['x'=2,'y'=4], device_ids=(0,2,4,6,1,3,5,7), [{'y'}, {}], replicated={'x'}}",
            "{devices=[4,1,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}",
        ),
        (
            "{mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)), [{'y'}, {}]}",
            "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",
        ),
        ("{mesh['x'=2,'y'=4], replicated}", "{devices=[1,1,8]<=[8] last_tile_dim_replicate}"),
        (
            '{mesh["x"=2,"y"=4], [], metadata={op_name="a{b}"}}',
            "{devices=[1,1,8]<=[8] last_tile_dim_replicate}",
        ),
        ("{maximal_mesh[device_id=3]}", "{maximal device=3}"),
        ("{{mesh['x'=2,'one'=1], [{'one'}, {'x'}]}}", "{devices=[1,2]<=[2]}"),
    ],
)
def test_shardings_that_name_mesh_dims(text: str, tiled: str) -> None:
    """What `xla::HloSharding` converts each to."""
    shape = (5, 8)
    found = images(read("hlo_sharding", text, shape=shape))
    assert found == images(read("hlo_sharding", tiled, shape=shape))


def test_a_mesh_in_the_text_lies_on_the_caller_s_axis_and_has_its_devices() -> None:
    text = "{mesh['x'=2,'y'=4], [{'x'}]}"
    layout = read("hlo_sharding", text, shape=(4,), mesh=Mesh({"d": 8}, axis="dev"))
    assert layout.axes == ("dev", "m")
    with pytest.raises(NotationError, match="8 devices; expected the mesh's 4"):
        read("hlo_sharding", text, shape=(4,), mesh=Mesh({"d": 4}))


def test_a_tuple_of_shardings_is_several_layouts() -> None:
    contexts = [Context(shape=(4,)), Context(shape=(2, 2))]
    one, two = read_tuple("{{devices=[2]<=[2]}, {maximal device=1}}", contexts)
    assert images(one) == images(Layout.parse("S[(2,2):(1@gpuid,1)]"))
    assert images(two) == images(Layout.parse("S[4:1] + 1@gpuid"))
    with pytest.raises(NotationError, match="a tuple of 2 shardings"):
        read_tuple("{{maximal device=0}, {maximal device=1}}", contexts[:1])


@pytest.mark.parametrize(
    ("axe", "shape", "text"),
    [
        ("S[(4,4):(4,1)]", (4, 4), "{maximal device=0}"),
        ("S[(4,4):(4,1)] + 2@gpuid", (4, 4), "{maximal device=2}"),
        ("S[6:1] + R[8:1@gpuid]", (6,), "{devices=[1,8]<=[8] last_tile_dim_replicate}"),
        ("S[(2,2):(-1@gpuid,1)] + 1@gpuid", (4,), "{devices=[2]1,0}"),
        (
            "S[(2,2,2):(1@gpuid,2@gpuid,1)] + R[2:4@gpuid]",
            (8,),
            "{devices=[4,2]<=[2,2,2]T(2,1,0) last_tile_dim_replicate}",
        ),
        ("box[(5)] in S[(2,3):(1@gpuid,1)]", None, "{devices=[2]<=[2]}"),
    ],
)
def test_hlo_sharding_written(axe: str, shape: tuple[int, ...] | None, text: str) -> None:
    layout = Layout.parse(axe)
    assert write("hlo_sharding", layout, shape=shape) == text
    again = read("hlo_sharding", text, shape=shape or layout.box)
    assert images(again) == images(layout)


# ---- PartitionSpecs -----------------------------------------------------------------------------


def test_a_partition_spec_places_every_element() -> None:
    shape = (4, 8, 5)
    layout = read("jax", "P(('z', 'x'), None, 'y')", shape=shape, mesh=CUBE)
    for i, j, k in itertools.product(*map(range, shape)):
        device = i // 1 % 2 * 4 + i // 2 * 1 + k // 3 * 2  # i: z slow, x fast, one row each
        local = j * 3 + k % 3
        expected = tuple(
            (axis, value) for axis, value in (("gpuid", device), ("m", local)) if value
        )
        assert layout((i, j, k), shape=shape) == {expected}


@pytest.mark.parametrize(
    "text",
    ["P('x')", "PartitionSpec('x')", "P('x', None)", 'P(("x",), ())', "P('x', unreduced={})"],
)
def test_spellings_of_one_spec(text: str) -> None:
    layout = read("jax", text, shape=(4, 4), mesh=MESH)
    assert write("jax", layout, shape=(4, 4), mesh=MESH) == "P('x', None)"


# ---- DTensor ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shape", "axe"),
    [
        ("(Shard(dim=0), Shard(dim=0))", (16,), "S[(8,2):(1@gpuid,1)]"),
        ("[S(0), S(0)]", (16,), "S[(8,2):(1@gpuid,1)]"),
        (
            "(_StridedShard(dim=0, split_factor=4), Shard(0))",
            (16,),
            "S[(4,2,2):(1@gpuid,4@gpuid,1)]",
        ),
        ("(_StridedShard(dim=0, sf=4), Shard(0))", (16,), "S[(4,2,2):(1@gpuid,4@gpuid,1)]"),
        ("(_S(0, 2), R)", (16,), "S[(2,2,4):(4,4@gpuid,1)] + R[4:1@gpuid]"),
        (
            "(Replicate(), Shard(-1))",
            (2, 6),
            "box[(2,6)] in S[(2,4,2):(2,1@gpuid,1)] + R[2:4@gpuid]",
        ),
        ("(Shard(0), Shard(0))", (10,), "box[(2,5)] in S[(2,4,2):(4@gpuid,1@gpuid,1)]"),
        ("(_S(0, 2), S(0))", (8,), "S[(2,2,2):(2@gpuid,4@gpuid,1@gpuid)]"),
        ("(S(1), S(1))", (3, 1), "S[3:1]"),
    ],
)
def test_dtensor(text: str, shape: tuple[int, ...], axe: str) -> None:
    layout = read("dtensor", text, shape=shape, mesh=MESH)
    assert images(layout) == images(Layout.parse(axe))
    written = write("dtensor", layout, shape=shape, mesh=MESH)
    assert images(read("dtensor", written, shape=shape, mesh=MESH)) == images(layout)


def test_chunks_of_uneven_chunks_are_boxes_in_boxes_where_their_sizes_differ() -> None:
    mesh = Mesh({"a": 3, "b": 2})
    layout = read("dtensor", "(Shard(0), Shard(0))", shape=(11,), mesh=mesh)  # 2 2 | 2 2 | 2 1
    assert images(layout) == images(Layout.parse("box[(11)] in S[(6,2):(1@gpuid,1)]"))
    layout = read("dtensor", "(Shard(0), Shard(0))", shape=(10,), mesh=mesh)  # 2 2 | 2 2 | 1 1
    assert layout.inner
    assert layout.table("gpuid").tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 5]
    assert layout.table("m").tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0, 0]
    whole = read("dtensor", "(Shard(1), Shard(1))", shape=(3, 10, 5), mesh=mesh)
    assert whole((2, 9, 3)) == {(("gpuid", 5), ("m", 2 * 10 + 3))}
    with pytest.raises(NotationError, match="uneven shards of 5 values"):
        read("dtensor", "(Shard(0), _StridedShard(0, 2))", shape=(5,), mesh=Mesh({"a": 2, "b": 2}))


def chunks(values: list[int], count: int) -> list[list[int]]:
    """As ``torch.chunk``, with empty ones at the end."""
    size = max(1, -(-len(values) // count))
    return [values[place * size : (place + 1) * size] for place in range(count)]


def dealt(extent: int, steps: list[tuple[int, int, int]]) -> dict[int, list[int]]:
    """Device -> the values of one dim that it gets, by `Shard` or `_StridedShard` of each step."""
    held = {0: list(range(extent))}
    for count, stride, factor in steps:
        held = {
            device + place * stride: [
                value for piece in chunks(values, factor) for value in chunks(piece, count)[place]
            ]
            for device, values in held.items()
            for place in range(count)
        }
    return held


@pytest.mark.parametrize("factors", [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (4, 3)])
@pytest.mark.parametrize("sizes", [(2, 4), (3, 2), (5, 1)])
def test_uneven_shards_are_padded_or_refused(
    factors: tuple[int, int], sizes: tuple[int, int]
) -> None:
    """Every extent is read as what it means, or no padded box computes it."""
    mesh = Mesh({"a": sizes[0], "b": sizes[1]})
    text = f"(_StridedShard(0, {factors[0]}), _StridedShard(0, {factors[1]}))"
    accepted = 0
    for extent in range(1, 26):
        steps = [(sizes[0], sizes[1], factors[0]), (sizes[1], 1, factors[1])]
        held = dealt(extent, steps)
        wanted = {
            value: tuple((a, v) for a, v in (("gpuid", device), ("m", place)) if v)
            for device, values in held.items()
            for place, value in enumerate(values)
        }
        try:
            layout = read("dtensor", text, shape=(extent,), mesh=mesh)
        except NotationError:
            continue
        accepted += 1
        assert images(layout) == [{wanted[x]} for x in range(extent)]
    assert accepted >= 6


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 2, 2), (2, 4, 3), (5, 3, 1), (3, 4, 2)])
def test_chunks_of_chunks_are_always_read(sizes: tuple[int, int, int], full: bool) -> None:
    """And lie where ``torch.chunk`` puts them; written back they are the same."""
    mesh = Mesh(dict(zip("abc", sizes, strict=True)))
    steps = [(size, stride, 1) for size, stride in mesh.axes.values()]
    for extent in range(1, 30) if full else (1, 2, 3, 5, 7, 8, 11, 12, 13, 24, 29):
        given: dict[str, Any] = {"shape": (extent,), "mesh": mesh}
        layout = read("dtensor", "(Shard(0), Shard(0), Shard(0))", **given)
        devices, places = layout.table("gpuid"), layout.table("m")
        for device, values in dealt(extent, steps).items():
            assert (devices[values] == device).all()
            assert places[values].tolist() == list(range(len(values)))
        for form in (layout, layout.canonical()):
            again = read("dtensor", write("dtensor", form, **given), **given)
            assert images(again) == images(layout)


def test_devices_numbered_across_the_dims_are_written_as_they_are_read() -> None:
    text, shape = "{devices=[2,3]<=[2,3]T(1,0)}", (2, 6)
    layout = read("hlo_sharding", text, shape=shape)
    assert layout == Layout.parse("S[(3,2,2):(1@gpuid,3@gpuid,1)]")
    assert write("hlo_sharding", layout, shape=shape) == text
    copied = read(
        "hlo_sharding", "{devices=[2,3,2]<=[2,3,2]T(1,0,2) last_tile_dim_replicate}", shape=shape
    )
    again = read("hlo_sharding", write("hlo_sharding", copied, shape=shape), shape=shape)
    assert images(again) == images(copied)


def test_more_pieces_than_values_cost_nothing() -> None:
    text = f"(_StridedShard(0, {2**40}), Shard(0))"
    assert read("dtensor", text, shape=(3,), mesh=Mesh({"x": 2**20, "y": 2**10})) == Layout.parse(
        "S[(3):(1@gpuid)]"
    )


@pytest.mark.parametrize("notation", ["jax", "dtensor", "alpa", "hlo_sharding"])
def test_a_tensor_without_dims(notation: str) -> None:
    mesh = Mesh({"x": 2})
    everywhere = Layout.parse("S[():()] + R[2:1@gpuid]")
    text = write(notation, everywhere, shape=(), mesh=mesh)
    assert images(read(notation, text, shape=(), mesh=mesh)) == images(everywhere)


PARTLY_USED: list[tuple[str, tuple[int, ...], dict[str, int]]] = [
    ("(Shard(dim=0),)", (1,), {"x": 4}),
    ("(Shard(dim=0), Shard(dim=0))", (5, 2), {"x": 2, "y": 4}),
    ("(_StridedShard(dim=0, split_factor=4),)", (12, 5), {"x": 5}),
    ("(Replicate(), _StridedShard(dim=0, split_factor=3))", (3, 2), {"x": 3, "y": 2}),
    ("(_StridedShard(dim=1, split_factor=4), Shard(dim=1))", (8, 5), {"x": 2, "y": 3}),
]


@pytest.mark.parametrize(("text", "shape", "sizes"), PARTLY_USED)
def test_placements_that_leave_devices_without_values_are_written_back(
    text: str, shape: tuple[int, ...], sizes: dict[str, int]
) -> None:
    given: dict[str, Any] = {"shape": shape, "mesh": Mesh(sizes)}
    layout = read("dtensor", text, **given)
    assert images(read("dtensor", write("dtensor", layout, **given), **given)) == images(layout)


def test_devices_of_no_shape_s_values_have_no_placements() -> None:
    with pytest.raises(NotationError, match="otherwise than in chunks over whole mesh dims"):
        write("dtensor", Layout.parse("S[():()]"), shape=(), mesh=Mesh({"x": 2}))


def test_a_block_cyclic_dim_is_a_strided_shard() -> None:
    layout = Layout.parse("S[(3,2,2):(2,1@gpuid,1)]")
    mesh = Mesh({"d": 2})
    assert (
        write("dtensor", layout, shape=(12,), mesh=mesh)
        == "(_StridedShard(dim=0, split_factor=3),)"
    )
    for notation in ("jax", "alpa", "hlo_sharding"):
        with pytest.raises(NotationError, match="blocks are dealt out in turns"):
            write(notation, layout, shape=(12,), mesh=mesh)


# ---- what shardings cannot express ---------------------------------------------------------------


@pytest.mark.parametrize("notation", ONE_SHARDING)
@pytest.mark.parametrize(
    ("axe", "shape", "wrong"),
    [
        ("S[(8):(1@lane)]", (8,), "axis lane"),
        ("S[(8):(1)] + 1", (8,), "offset 1@m"),
        ("S[(8):(1)]", (9,), "shape (9,)"),
        ("S[(8):(1)]", None, "the tensor's extents are not known"),
        ("sw(1,0,1)@m . S[(8):(1)] + R[(8):(1@gpuid)]", (8,), "swizzle sw(1,0,1)@m"),
        ("S[(8,8):(1,8)] + R[(8):(1@gpuid)]", (8, 8), " is another map"),
    ],
)
def test_layouts_that_are_no_sharding(
    notation: str, axe: str, shape: tuple[int, ...] | None, wrong: str
) -> None:
    with pytest.raises(NotationError) as refused:
        write(notation, Layout.parse(axe), shape=shape, mesh=MESH)
    assert refused.value.wrong.endswith(wrong)


@pytest.mark.parametrize("notation", ["jax", "dtensor", "alpa"])
def test_writing_needs_the_mesh(notation: str) -> None:
    with pytest.raises(NotationError, match="the devices are not known"):
        write(notation, Layout.parse("S[8:1]"), shape=(8,))


def test_a_layout_that_skips_devices_has_no_hlo_sharding_of_the_mesh() -> None:
    layout = Layout.parse("S[(2,4):(2@gpuid,1)]")
    with pytest.raises(NotationError, match=r"devices 0,2; expected each of 0 to n - 1 once"):
        write("hlo_sharding", layout, shape=(8,), mesh=Mesh({"x": 4}))
    assert write("hlo_sharding", layout, shape=(8,)) == "{devices=[2]0,2}"


EMPTY = [
    ("{devices=[4]<=[4]}", (5,)),  # device 3 has no block of 2
    ("{devices=[4,1,3]<=[3,4]T(1,0)}", (4, 1, 2)),
    ("{devices=[1,2,3]<=[2,3]}", (1, 4, 1)),
    ("{devices=[2,3]0,1,2,4,3,5}", (5, 1)),  # only 0 and 4 hold elements
    ("{devices=[3,2]<=[2,3]T(1,0) last_tile_dim_replicate}", (2,)),
    ("{devices=[8]<=[8]}", (1,)),
]


@pytest.mark.parametrize("n_devices", [True, False])
@pytest.mark.parametrize(("text", "shape"), EMPTY)
def test_devices_without_elements_are_written_back(
    text: str, shape: tuple[int, ...], n_devices: bool
) -> None:
    count = prod(map(int, text[text.index("[") + 1 : text.index("]")].split(",")))
    given: dict[str, Any] = {"shape": shape, "mesh": Mesh({"x": count}) if n_devices else None}
    layout = read("hlo_sharding", text, **given)
    again = read("hlo_sharding", write("hlo_sharding", layout, **given), **given)
    assert [again(x) for x in range(again.size)] == [layout(x) for x in range(layout.size)]


def test_a_mesh_says_which_devices_there_are() -> None:
    given: dict[str, Any] = {"shape": (8,), "mesh": Mesh({"x": 2})}
    with pytest.raises(NotationError, match="device 2; expected below 2"):
        read("hlo_sharding", "{devices=[2]0,2}", **given)
    with pytest.raises(NotationError, match="device 5; expected below 2"):
        write("hlo_sharding", Layout.parse("S[(8):(1)] + 5@gpuid"), **given)


def test_the_mesh_of_a_spec_must_divide_into_its_dims() -> None:
    kwargs: dict[str, Any] = {"shape": (8,), "mesh": MESH}
    with pytest.raises(NotationError, match=r"on devices 0,1; .* copies along whole dims of"):
        write("jax", Layout.parse("S[(4,2):(2@gpuid,1)] + R[2:1@gpuid]"), **kwargs)
    with pytest.raises(NotationError, match="blocks over parts of mesh dims"):
        write("jax", Layout.parse("S[(2,4):(2@gpuid,1)] + R[2:4@gpuid]"), **kwargs)


@pytest.mark.parametrize(
    ("notation", "text", "shape"),
    [
        ("jax", "P(('h', 'g', 'f', 'e', 'd', 'c', 'b', 'a'), None)", (2**40, 3)),
        ("jax", "P(('a', 'b', 'c'), ('h', 'd'))", (200_019, 7)),
        ("alpa", "S7012S3", (2**40 + 1, 12)),
        ("hlo_sharding", "{devices=[16,1,16]<=[256] last_tile_dim_replicate}", (2**40 + 1, 2**20)),
        ("dtensor", "(R, R, Shard(dim=0), R, R, R, R, _S(dim=0, split_factor=2))", (2**30, 5)),
        ("dtensor", "(Shard(dim=0), R, Shard(dim=0), R, R, R, R, R)", (200_019, 5)),
    ],
)
def test_blocks_of_long_dims_over_many_mesh_dims(
    notation: str, text: str, shape: tuple[int, ...]
) -> None:
    """Where a block ends is found without a look at every value."""
    given: dict[str, Any] = {"shape": shape, "mesh": Mesh(dict.fromkeys("abcdefgh", 2))}
    layout = read(notation, text, **given)
    assert same_map(read(notation, write(notation, layout, **given), **given), layout) is None


# ---- Shardy and NamedSharding -------------------------------------------------------------------


def hlo(dims: str) -> Layout:
    return read("hlo_sharding", f"{{mesh['x'=2,'y'=4], [{dims}]}}", shape=(8, 6))


@pytest.mark.parametrize(
    ("dims", "same"),
    [
        ('{"x"}, {}', "{'x'}, {}"),
        ('{}, {"y", "x"}', "{}, {'y','x'}"),
        ('{"y":(1)2, "x"}, {"y":(2)2}', "{'y':(1)2,'x'}, {'y':(2)2}"),
        ('{"y":(2)2}p3, {}p0', "{'y':(2)2}, {}"),
        ("{}, {}", "{}, {}"),
    ],
)
def test_shardy_says_what_hlo_says_on_a_mesh(dims: str, same: str) -> None:
    """XLA's own form with mesh dims is the same content in other words."""
    expected = hlo(same)
    for text, mesh in (
        (f"#sdy.sharding<@mesh, [{dims}]>", MESH),
        (f'sdy.mesh @mesh = <["x"=2, "y"=4]> #sdy.sharding<@mesh, [{dims}]>', None),
        (f'#sdy.sharding<mesh<["x"=2, "y"=4]>, [{dims}], replicated={{}}>', None),
        (f'#sdy.sharding<mesh<["x"=2, "y"=4], device_ids=[0,1,2,3,4,5,6,7]>, [{dims}]>', MESH),
    ):
        assert images(read("shardy", text, shape=(8, 6), mesh=mesh)) == images(expected)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('#sdy.sharding<@mesh, [{"x", ?}, {}]>', "dim 0 is open"),
        ('#sdy.sharding<@mesh, [{?}, {}]>', "dim 0 is open"),
        ('#sdy.sharding<@mesh, [{"x"}]>', "1 entries; expected one per dim of (8, 6)"),
        ('#sdy.sharding<@mesh, [{"z"}, {}]>', 'unknown mesh dim "z"; expected one of "x", "y"'),
        ('#sdy.sharding<@mesh, [{"x"}, {"x"}]>', 'mesh dim "x" twice'),
        ('#sdy.sharding<@mesh, [{"y":(1)2}, {"y"}]>', 'mesh dim "y" twice'),
        ('#sdy.sharding<@mesh, [{"y":(1)3}, {}]>', 'part "y":(1)3 of a mesh dim of 4'),
        ('#sdy.sharding<@mesh, [{}, {}], unreduced={"x"}>', "is a pending sum"),
        ('#sdy.sharding<@mesh, [{}, {}], open={"x"}>', "unknown open="),
        ('sdy.mesh @a = <["x"=2]> #sdy.sharding<@b, [{}, {}]>', "mesh @b is not defined"),
        ('#sdy.sharding<mesh<["x"=2]>, [{}, {}]>', "the given mesh {'x': 2, 'y': 4}"),
        ('#sdy.sharding<mesh<["x"=2,"y"=4], device_ids=[1,0,2,3,4,5,6,7]>, [{}, {}]>',
         "device_ids in another order"),
        ('#sdy.sharding<mesh<["x"=2,"x"=4]>, [{}, {}]>', "mesh dims x, x"),
        ('#sdy.sharding<mesh<["x"=0]>, [{}, {}]>', "mesh"),
    ],
)  # fmt: skip
def test_what_shardy_leaves_open_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(NotationError) as refused:
        read("shardy", text, shape=(8, 6), mesh=MESH)
    assert wrong in str(refused.value)


@pytest.mark.parametrize(
    "repr_of_mesh",
    [
        "Mesh('x': 2, 'y': 4)",
        "Mesh('x': 2, 'y': 4, axis_types=(Auto, Explicit))",
        "AbstractMesh('x': 2, 'y': 4, axis_types=(Auto,), device_kind=cpu)",
    ],
)
def test_a_named_sharding_is_read_as_it_prints_itself(repr_of_mesh: str) -> None:
    text = f"NamedSharding(mesh={repr_of_mesh}, spec=PartitionSpec('x', 'y'), memory_kind=device)"
    expected = read("jax", "P('x', 'y')", shape=(8, 6), mesh=MESH)
    for mesh in (None, MESH):
        assert read("jax", text, shape=(8, 6), mesh=mesh) == expected
    with pytest.raises(NotationError, match="the given mesh"):
        read("jax", text, shape=(8, 6), mesh=CUBE)

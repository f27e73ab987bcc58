"""Bad input: one clear error each, before any work that grows with the numbers in the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from axe_eq.errors import NotationError
from axe_eq.layout import Layout, Mesh
from axe_eq.layout.notation import NOTATIONS, read, read_any, write
from axe_eq.layout.notation.registry import SYSTEMS
from axe_eq.layout.symbolic.text import read_layout
from tests.unit.notation.examples import EXAMPLES

MESH = Mesh({"x": 2, "y": 4})
ON_MESH = {"shape": (8, 4), "mesh": MESH}

BAD: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "axe": [
        ("", {}),
        ("S[(8,2:(4,1)]", {}),
        ("S[(8,2):(4,1)", {}),
        ("S[(8,2):(4)]", {}),
        ("S[(0):(1)]", {}),
        ("S[(-4):(1)]", {}),
        ("S[(4):(1@3)]", {}),
        ("S[(8):(1)] - 3", {}),
        ("S[(8):(1)] + S[(8):(1)]", {}),
        ("S[(4294967296,4294967296):(1,1)]", {}),
        ("S[(2):(9223372036854775808)]", {}),
        ("box[(3,5)] in S[(4):(1)]", {}),
        ("box[(9) of (16)] in box[(3,5) of (4,6)] in S[24:1]", {}),
        ("box[(9) of (16)] in box[(2,8) of (2,7)] in S[14:1]", {}),
        ("box[(9) of (16)] in box[(2,8) of (2,9)] in S[16:1]", {}),
        ("box[(2,3)] in box[(3,2) order (0,0)] in S[6:1]", {}),
        ("box[(2,3) order (1,0)] in S[6:1]", {}),
        ("sw(3,4)@m . S[8:1]", {}),
        ("sw(3,4,0)@m . S[8:1]", {}),
        ("sw(128B)@m . S[8:1]", {}),
        ("sw(96B)@m . S[8:1]", {"itemsize": 2}),
        ("S[(8):(1)]", {"shape": (3, 3)}),
        ("S[(8):(1)]", {"shape": (0, 8)}),
        ("S[(8):(1)]", {"shape": 8}),
        ("S[(8):(1)]", {"mesh": {"x": 2}}),
        ("S[(8):(1)]", {"itemsize": 0}),
    ],
    "matrix": [
        ("(2 3 | 3 1", {}),
        ("(2 3 | 3)", {}),
        ("(2@m 3 | 3 1)", {}),
        ("(0 | 1)", {}),
        ("(2 | 1) + (2 | 1)", {}),
    ],
    "cute": [
        ("((4,8):(8,1)", {}),
        ("(4,8)", {}),
        ("(4,8):(8,(1,2))", {}),
        ("(4,0):(8,1)", {}),
        ("(4,?):(8,1)", {}),
        ("(4,8):(1@0,1@1)", {}),
        ("(4,8):(E<0>,E<1>)", {}),
        ("Sw<3,4,2> o 0 o 8:1", {}),
        ("Sw<1,1,3> o smem_ptr[64b](unset) o 8:1", {}),
        ("Sw<1,1,3> o 4 o Sw<1,0,1> o 0 o 8:1", {}),
        ("5 o 8:1", {}),
        ("(4,8):(8,1)", {"shape": (8, 4)}),
    ],
    "xla": [
        ("f32[3,5]{1,0", {}),
        ("f32[3,5]{1,0:T(0,2)}", {}),
        ("f32[3,5]{1,0:T()}", {}),
        ("f32[3,5]{1,0:T(2,*)}", {}),
        ("f32[3,5]{1,1}", {}),
        ("f32[3,5]{1}", {}),
        ("f32[0,5]{1,0}", {}),
        ("f32[<=3,5]{1,0}", {}),
        ("f99[3]", {}),
        ("(f32[3], f32[4])", {}),
        ("f32[4]{0:D(C)}", {}),
        ("f32[4]{0:SC(0:1)}", {}),
        ("f32[4]{0:L(3)}", {}),
        ("f32[4]{0:P(f32[2])}", {}),
        ("f32[4]{0:#(u32)}", {}),
        ("f32[4]{0:*(u32)}", {}),
        ("f32[4]{0:M(16)}", {}),
        ("f32[4294967296,4294967296]", {}),
        ("f32[5,9]{0,1:T(*,3)(0,4)}", {}),
        ("f32[6]{0:T(4)(2,3)(4,9223372036854775807)}", {}),
        ("f32[3,5]", {"shape": (5, 3)}),
    ],
    "hlo_sharding": [
        ("{devices=[2,2]<=[4]", {}),
        ("{devices=[2,2]<=[4]}", {}),
        ("{devices=[2,2]<=[5]}", {"shape": (4, 4)}),
        ("{devices=[2,2]0,1,2}", {"shape": (4, 4)}),
        ("{devices=[2,2]0,1,2,2}", {"shape": (4, 4)}),
        ("{devices=[2,2]0,1,3,2}", {"shape": (4, 4)}),
        ("{devices=[2,2]0,1,2,9999999999}", {"shape": (4, 4)}),
        ("{devices=[2,2]<=[2,2]T(0,0)}", {"shape": (4, 4)}),
        ("{devices=[2,2]<=[4]}", {"shape": (4,)}),
        ("{devices=[2,2]<=[4]}", ON_MESH),
        ("{devices=[0,2]<=[0]}", {"shape": (4, 4)}),
        ("{devices=[2,1,2]<=[4] last_tile_dims={manual}}", {"shape": (4, 4)}),
        ("{devices=[2,2]0,1,2,4 last_tile_dim_replicate}", {"shape": (4,)}),
        ("{manual}", {"shape": (4,)}),
        ("{unreduced}", {"shape": (4,)}),
        ("{replicated}", {"shape": (4,)}),
        ("{maximal device=9}", ON_MESH),
        ("{{replicated}, {replicated}}", ON_MESH),
        ("{replicated}}", ON_MESH),
        ("{{{replicated}}}", ON_MESH),
        ("{mesh['x'=2,'y'=4], [{'x'}", {"shape": (4,)}),
        ("{mesh[x=2], [{x}]}", {"shape": (4,)}),
        ("{mesh['x'=2,'y'=4], [{'x'}, {'x'}]}", {"shape": (4, 4)}),
        ("{mesh['x'=2,'y'=4], [{'z'}]}", {"shape": (4,)}),
        ("{mesh['x'=2,'y'=4], [{'y', ?}]}", {"shape": (4,)}),
        ("{mesh['x'=2,'y'=4], [{'y':(1)3}]}", {"shape": (4,)}),
        ("{mesh['x'=2,'y'=4], [{'y':(0)2}]}", {"shape": (4,)}),
        ("{mesh['y'=12], [{'y':(1)2}, {'y':(3)2}]}", {"shape": (4, 4)}),
        ("{mesh['x'=2,'y'=4], [{'x'}], unreduced={'y'}}", {"shape": (4,)}),
        ("{mesh['x'=2,'y'=4], [{'x'}], replicated={'x'}}", {"shape": (4,)}),
        ("{mesh['x'=2,'y'=4], manual}", {"shape": (4,)}),
        ("{mesh['x'=2,'x'=4], [{'x'}]}", {"shape": (4,)}),
        ("{mesh['x'=0], [{'x'}]}", {"shape": (4,)}),
        ("{mesh['x'=2], device_ids=(0,2), [{'x'}]}", {"shape": (4,)}),
        ("{mesh['x'=2], device_ids=(0,1,2), [{'x'}]}", {"shape": (4,)}),
        ("{mesh['x'=4294967296,'y'=4294967296], [{'x'}]}", {"shape": (4,)}),
        ("{mesh['x'=2,'y'=4], [{'x'}]}", {"shape": (4,), "mesh": Mesh({"d": 4})}),
    ],
    "jax": [
        ("P('x'", ON_MESH),
        ("P('w')", ON_MESH),
        ("P('x', 'x')", ON_MESH),
        ("P('x', 'y', None)", ON_MESH),
        ("P(UNCONSTRAINED)", ON_MESH),
        ("P('x', unreduced={'y'})", ON_MESH),
        ("P('x', color={'y'})", ON_MESH),
        ("P('x')", {"mesh": MESH}),
        ("P('x')", {"shape": (8,)}),
    ],
    "dtensor": [
        ("(Shard(0), Partial('sum'))", ON_MESH),
        ("(Shard(0),)", ON_MESH),
        ("(Shard(2), Replicate())", ON_MESH),
        ("(Shard(0), Shard(0)", ON_MESH),
        ("(_StridedShard(0, split_factor=3), Replicate())", {"shape": (7,), "mesh": MESH}),
        ("(Shard(0), _StridedShard(0, split_factor=2))", {"shape": (5,), "mesh": MESH}),
        ("(_StridedShard(0, split_factor=2), R)", {"shape": (10**6 + 1,), "mesh": MESH}),
        ("(_StridedShard(0, split_factor=0), Replicate())", ON_MESH),
    ],
    "shardy": [
        ('#sdy.sharding<@mesh, [{"x", ?}, {}]>', ON_MESH),
        ('#sdy.sharding<@mesh, [{"x"}]>', ON_MESH),
        ('#sdy.sharding<@mesh, [{"z"}, {}]>', ON_MESH),
        ('#sdy.sharding<@mesh, [{"x"}, {}]>', {"shape": (8, 4)}),
        ('#sdy.sharding<@mesh, {"x"}>', ON_MESH),
    ],
    "alpa": [("S0S2", ON_MESH), ("S0S0", ON_MESH), ("S0", ON_MESH), ("S0X", ON_MESH)],
    "triton": [
        ("#ttg.nvidia_mma<{versionMajor = 2}>", {}),
        ("#ttg.blocked<{order = [0]}>", {}),
        (
            "#ttg.blocked<{sizePerThread = [3], threadsPerWarp = [32], warpsPerCTA = [1], "
            "order = [0]}>",
            {},
        ),
        (
            "#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [1], "
            "order = [1]}>",
            {},
        ),
        ("#ttg.linear<{lane = [[1], [4]]}>", {}),
        ("#ttg.linear<{lane = [[1, 0], [1]]}>", {}),
        ("#ttg.linear<{lane = [1]}>", {}),
        ("#ttg.linear<{lane = [[1]], warp = [[1]]}>", {}),
        ("#ttg.linear<{lane = [[1], [2]]}>", {"shape": (6,)}),
        ("#ttg.linear<{lane = [[1], [2]]}>", {"shape": (2, 2)}),
        (" - lane=2 -> (1)", {}),
        (" - lane=1 -> (1)\nwhere out dims are: [d (size 4)]", {}),
    ],
    "strides": [
        ("shape=(2,3)", {}),
        ("shape=(2,3), strides=(1)", {}),
        ("shape=3, strides=(1)", {}),
        ("shape=(2), byte_strides=(6)", {"itemsize": 4}),
        ("shape=(2), byte_strides=(6)", {}),
        ("shape=(2), shape=(2)", {}),
        ("(2,3):(3,1)", {"shape": (3, 2)}),
    ],
    "sharding": [("{replicated}", {})],
}


def error_of(call: Callable[[], object]) -> str:
    with pytest.raises(NotationError) as raised:
        call()
    assert raised.value.__cause__ is None
    assert raised.value.thing
    assert raised.value.wrong
    return str(raised.value)


@pytest.mark.parametrize("notation", BAD)
def test_every_bad_text_has_one_clear_error(notation: str, golden: Callable[..., None]) -> None:
    errors = [
        error_of(lambda text=text, given=given: read(notation, text, **given))  # type: ignore[misc]
        for text, given in BAD[notation]
    ]
    assert all("\n" not in error for error in errors)
    golden("\n".join(errors))


def test_bad_input_was_thought_of_for_every_notation() -> None:
    assert set(BAD) == {*NOTATIONS, "sharding"}


TEN_THOUSAND = ",".join("2" for _ in range(10_000))
HUGE = {
    "axe": f"S[({TEN_THOUSAND}):({TEN_THOUSAND})]",
    "matrix": f"({TEN_THOUSAND} | {TEN_THOUSAND})",
    "cute": f"({TEN_THOUSAND}):({TEN_THOUSAND})",
    "xla": f"f32[{TEN_THOUSAND}]",
    "hlo_sharding": f"{{devices=[{TEN_THOUSAND}]<=[{TEN_THOUSAND}]}}",
    "jax": f"P({','.join('None' for _ in range(10_000))})",
    "dtensor": f"({','.join('R' for _ in range(10_000))})",
    "alpa": "R" * 10_000,
    "triton": f"#ttg.linear<{{lane = [{','.join('[1]' for _ in range(10_000))}]}}>",
    "strides": f"({TEN_THOUSAND}):({TEN_THOUSAND})",
}
MILLION = {
    "axe": "S[(" + "2," * 1_000_000 + "2):(1)]",
    "matrix": "(" + "2 " * 1_000_000 + "| 1)",
    "cute": "(" * 1_000_000,
    "xla": "f32[" + "2," * 1_000_000,
    "hlo_sharding": "{devices=[1000000]" + ",".join(map(str, range(1_000_000))) + "}",
    "jax": "P(" + "None," * 1_000_000 + ")",
    "dtensor": "(" + "R," * 1_000_000 + ")",
    "alpa": "S" + "0" * 1_000_000,
    "triton": " - lane=1 -> (0)\n" * 1_000_000,
    "strides": "shape=(" + "9" * 1_000_000 + ")",
}
DEEP = {"cute": "(" * 1000 + "2" + ")" * 1000, "hlo_sharding": "{" * 1000, "strides": "[" * 1000}


@pytest.mark.parametrize(
    ("notation", "text"),
    [(name, text) for table in (HUGE, MILLION, DEEP) for name, text in table.items()],
    ids=lambda value: value if value in NOTATIONS else f"{len(value)}-characters",
)
def test_size_is_refused_not_suffered(notation: str, text: str) -> None:
    message = error_of(lambda: read(notation, text, shape=(2,), mesh=MESH))
    assert len(message) < 400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MILLION["axe"], "2000010 characters; expected at most 65536"),
        (DEEP["cute"], "brackets nested deeper than 64 at column 65; expected at most 64 levels"),
        (
            "S[(" + "9" * 200 + "):(1)]",
            "an integer of 200 digits at column 4; expected at most 100 digits",
        ),
        (HUGE["axe"], "10000 iters; expected at most 1024"),
    ],
)
def test_limits_are_named(text: str, message: str) -> None:
    assert error_of(lambda: read("cute" if text[0] == "(" else "axe", text)).endswith(message)


def test_a_prefix_names_the_notation_and_none_means_axe() -> None:
    assert read_any(" cute : (4,8):(8,1) ") == read("cute", "(4,8):(8,1)")
    assert error_of(lambda: read_any("(4,8):(8,1)")).endswith(
        "expected 'R', 'S', 'box', 'sw' or an integer\n"
        "  try: the prefix of its notation: cute:(4,8):(8,1) or strides:(4,8):(8,1)"
    )
    assert error_of(lambda: read_any("foo")).endswith(
        "  try: a prefix for another notation, as in cute:(4,8):(8,1)"
    )
    names = ", ".join(NOTATIONS)
    assert error_of(lambda: read_any("cut:(4,8):(8,1)")) == (
        f"notation 'cut': unknown; expected one of {names}"
    )
    assert error_of(lambda: read("axe", 5)) == "layout text '5': is of type int; expected a text"  # type: ignore[arg-type]
    assert error_of(lambda: read(["axe"], "S[8:1]")) == (  # type: ignore[arg-type]
        f"notation ['axe']: unknown; expected one of {names}"
    )
    assert error_of(lambda: write("cut", Layout())) == (
        f"notation 'cut': unknown; expected one of {names}"
    )


def test_names_of_notations_may_be_in_capitals_and_systems_name_theirs() -> None:
    assert read("CuTe", "(4,8):(8,1)") is read("cute", "(4,8):(8,1)")
    assert read_any("CUTE:(4,8):(8,1)") == read("cute", "(4,8):(8,1)")
    both = "dtensor, for torch DTensor placements on a mesh or strides, for numpy and torch strides"
    for name, hint in (("numpy", "strides, for numpy and torch strides"), ("Torch", both)):
        with pytest.raises(NotationError) as caught:
            read(name, "(4,8):(8,1)")
        assert caught.value.hint == hint
    assert not set(SYSTEMS) & set(NOTATIONS)


def test_only_texts_of_another_grammar_are_told_of_prefixes() -> None:
    for text, hinted in (("(4,8):(8,1)", True), ("sw(128B) . S[8:1]", False), ("S[0:1]", False)):
        with pytest.raises(NotationError) as caught:
            read_any(text)
        assert bool(caught.value.hint) == hinted


@pytest.mark.parametrize("name", [name for name in NOTATIONS if name != "axe"])
def test_an_example_without_its_prefix_is_told_the_prefix(name: str) -> None:
    """In comparisons too, which read as an expression what is no layout."""
    example = EXAMPLES[name]
    for reading in (read_any, read_layout):
        with pytest.raises(NotationError) as caught:
            reading(example)
        assert f"{name}:{example}" in caught.value.hint
        assert caught.value.thing.startswith("axe layout")


@pytest.mark.parametrize("name", NOTATIONS)
def test_the_example_of_each_notation_reads(name: str) -> None:
    example = EXAMPLES[name]
    mesh = Mesh({"x": 2, "y": 2, "z": 2}) if "'z'" in example else Mesh({"x": 2, "y": 2})
    needs_shape = name in ("hlo_sharding", "jax", "shardy", "dtensor", "alpa")
    shape: tuple[int, ...] | None = (4,) * (3 if "None" in example else 2)
    shape = shape if needs_shape else None
    layout = read(name, example, shape=shape, mesh=mesh)
    shape = shape or layout.box
    written = write(name, layout, shape=shape, mesh=mesh)
    again = read(name, written, shape=shape, mesh=mesh)
    assert [again(x) for x in range(again.size)] == [layout(x) for x in range(layout.size)]

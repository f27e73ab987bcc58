"""What is said of a layout, against enumeration; and of layouts that nobody can enumerate."""

from __future__ import annotations

import numpy as np
import pytest

from axe_eq.errors import AxeError
from axe_eq.layout import Layout, Mesh, same_map
from axe_eq.layout.notation import NOTATIONS, read, write
from axe_eq.layout.picture.describe import aliasing_text, describe, expressions, n_copies

Rng = np.random.Generator


def random_layout(rng: Rng) -> Layout:
    def iters(most: int) -> list[tuple[int, int, str]]:
        return [
            (int(rng.integers(1, 5)), int(rng.integers(-4, 9)), str(rng.choice(["m", "p"])))
            for _ in range(int(rng.integers(0, most)))
        ]

    return Layout(iters(4), iters(4), {"m": int(rng.integers(-3, 4))})


def test_the_figures_are_those_of_the_enumeration(rng: Rng, full: bool) -> None:
    aliased = 0
    for _ in range(1000 if full else 60):
        layout = random_layout(rng)
        found, images = describe(layout), [layout(x) for x in range(layout.size)]
        places = {point for image in images for point in image}
        assert found.copies == n_copies(layout) == len(images[0])
        for axis, known in found.axes.items():
            values = [dict(point).get(axis, 0) for point in places]
            assert (known.low, known.high) == (min(values), max(values))
            assert known.span == max(values) - min(values) + 1 == known.footprint
        if len(places) == layout.size * found.copies:
            assert aliasing_text(found.aliasing).startswith("none")
            assert found.holes == found.places - len(places)
        else:
            aliased += 1
            assert found.holes is None
            assert aliasing_text(found.aliasing).startswith("elements")
    assert aliased > 10


def test_padding_counts_as_holes() -> None:
    found = describe(read("xla", "f32[3,5]{1,0:T(2,2)}"))
    assert (found.places, found.holes, found.axes["m"].span) == (24, 9, 21)


def test_every_expression_reads_back(rng: Rng) -> None:
    mesh, shape = Mesh({"x": 2, "y": 2}), (4, 6)
    layout = read("jax", "P('x', 'y')", shape=shape, mesh=mesh)
    found = expressions(layout, shape=shape, mesh=mesh)
    assert list(found) == list(NOTATIONS)
    texts = {name: text for name, text in found.items() if isinstance(text, str)}
    assert set(texts) == {"axe", "matrix", "hlo_sharding", "jax", "shardy", "dtensor", "alpa"}
    for name, text in texts.items():
        again = read(name, text, shape=shape, mesh=mesh)
        assert [again(x) for x in range(24)] == [layout(x) for x in range(24)]


@pytest.mark.parametrize(
    ("text", "copies", "holes"),
    [
        ("S[4:1] + R[1099511627776:1@gpuid]", 2**40, 0),
        ("S[4:1] + R[(100000,100000):(3@gpuid,2@gpuid)]", 499994, 8),
        ("S[(4,1048576):(1,4)] + R[(1048576,3):(1@gpuid,1048576@gpuid)]", 3 * 2**20, 0),
        ("S[4:1] + R[(16777216,7,5):(18@gpuid,15@gpuid,10@gpuid)]", None, None),
    ],
)
def test_what_nobody_can_enumerate_is_described(
    text: str, copies: int | None, holes: int | None
) -> None:
    found = describe(Layout.parse(text))
    assert (found.copies, found.holes) == (copies, holes)
    assert str(found).startswith(f"layout     {found.layout}\n")
    for name, refused in found.notations.items():
        assert isinstance(refused, str | AxeError), name
    assert found.data()["copies"] == copies


def test_the_dims_of_a_padded_tensor_are_kept() -> None:
    mesh = Mesh({"x": 2, "y": 4})
    layout = read("jax", "P('x','y')", shape=(5, 6), mesh=mesh)
    text = describe(layout, shape=(5, 6), mesh=mesh).notations["axe"]
    assert isinstance(text, str)
    again = Layout.parse(text)
    assert (again.box, same_map(again, layout)) == ((5, 6), None)
    normal = layout.canonical()
    assert normal.box == (30,)
    for shape, box in (((30,), (30,)), ((5, 6), (5, 6)), ((2, 15), (30,)), (None, (30,))):
        written = Layout.parse(write("axe", normal, shape=shape))
        assert (written.box, same_map(written, layout)) == (box, None)

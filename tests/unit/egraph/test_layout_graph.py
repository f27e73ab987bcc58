"""Many layouts in one e-graph: equal maps end in one class, and nothing else does."""

from __future__ import annotations

import random

import pytest

from axe_eq.egraph.layouts import LayoutGraph
from axe_eq.layout import Layout, Swizzle, same_map
from axe_eq.layout.symbolic.instances import layout_of
from axe_eq.pack import installed
from axe_eq.prove.layouts.equality import layout_graph


@pytest.fixture(scope="module")
def graph() -> LayoutGraph:
    return layout_graph([installed()["layout"]])


def respelled(rng: random.Random, layout: Layout) -> Layout:
    shard, replica, offset = [], [], layout.offset
    for extent, stride, axis in layout.shard:
        inner = rng.choice([d for d in range(1, extent + 1) if extent % d == 0])
        shard += [(extent // inner, stride * inner, axis), (inner, stride, axis)]
    for extent, stride, axis in layout.replica:
        cut = rng.randint(1, extent)
        offset[axis] = offset.get(axis, 0) + (extent - cut) * stride
        replica += [(cut, stride, axis), (extent - cut + 1, -stride, axis)]
    rng.shuffle(replica)
    return Layout(shard, replica, offset, layout.swizzle)


def test_the_graph_agrees_with_the_decision(graph: LayoutGraph, full: bool) -> None:
    rng, made = random.Random(3), [Layout()]
    for _ in range(400 if full else 60):
        layout = layout_of(rng, rng.choice((1, 4, 6, 8, 12)))
        made += [layout, respelled(rng, layout)]
        assert graph.equal(made[-2], made[-1])
        for other in rng.sample(made, min(6, len(made))):
            assert graph.equal(layout, other) == (same_map(layout, other) is None)


def test_what_rewriting_does_not_reach_is_computed(graph: LayoutGraph) -> None:
    sw = Swizzle("m", 1, 0, 2)
    pairs = [
        (Layout(replica=[(3, 2), (5, 3)]), Layout(replica=[(2, 3), (2, 5), (5, 2)])),
        (Layout([(8, 1)], swizzle=[sw, sw]), Layout([(2, 4), (4, 1)])),
        (Layout([(4, 1)], box=(3,)), Layout([(3, 1)])),
        (Layout([(2, 8), (4, 1)], box=(2, 3)), Layout([(2, 8), (5, 1)], box=(2, 3))),
    ]
    for a, b in pairs:
        assert graph.equal(a, b)
        assert not graph.equal(a, Layout([(a.size, 7)]))


def test_many_layouts_fall_into_their_classes() -> None:
    graph = layout_graph([installed()["layout"]])
    rng = random.Random(5)
    first = [Layout([(2, 1 + n, "lane"), (3, 7, "m")], offset={"m": n % 3}) for n in range(40)]
    again = [respelled(rng, layout) for layout in first]
    graph.add([*first, *again, *first])
    classes = graph.classes()
    assert len(graph) == len({*first, *again})
    assert len(classes) == len(first)
    for layout, other in zip(first, again, strict=True):
        assert [layout in found for found in classes] == [other in found for found in classes]


def test_axes_that_come_later_sort_too(graph: LayoutGraph) -> None:
    one = Layout(replica=[(2, 1, "late"), (2, 1, "early")], offset={"late": 1, "early": 2})
    two = Layout(replica=[(2, 1, "early"), (2, 1, "late")], offset={"early": 2, "late": 1})
    assert graph.equal(one, two)


def test_values_near_the_limit_neither_wrap_nor_merge(graph: LayoutGraph) -> None:
    big = 2**61
    assert not graph.equal(Layout([(2, big), (2, 1)]), Layout([(4, 1)]))
    assert graph.equal(Layout([(2, big), (1, 3)]), Layout([(2, big)]))
    assert graph.equal(Layout(replica=[(2, -big)]), Layout(replica=[(2, big)], offset={"m": -big}))


def test_without_laws_only_what_is_spelled_alike_is_equal() -> None:
    bare = LayoutGraph({})
    assert bare.equal(Layout([(8, 1)]), Layout([(8, 1)]))
    assert not bare.equal(Layout([(2, 4), (4, 1)]), Layout([(8, 1)]))

"""Boxes in boxes against enumeration: what numpy makes of every box, and what operations cut."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout import Layout
from axe_eq.layout.symbolic.terms import decode, encode
from tests.property.layout_model import (
    AXES,
    BOX,
    NEGATIVE,
    NESTED,
    PRIME,
    REORDERED,
    random_nested,
    random_shape,
    table_of,
)

Start = Callable[..., Any]  # the fixture `campaign`

PART = 100  # one case in so many runs unless --full: they are enumerated, and slow


def test_boxes_in_boxes_are_corners_of_corners(campaign: Start) -> None:
    """Each box by numpy: digits, moved, at their place in the padded shape; text and term too."""
    classes = (BOX, NESTED, REORDERED, NEGATIVE, AXES, PRIME)
    run = campaign("boxes in boxes: map, span, table, text", *classes, every=False, part=PART)
    for maker in run.cases():
        layout = random_nested(maker.random)
        run.met(layout)
        assert layout.box is not None and layout.padded is not None  # noqa: PT018 - for the types
        whole = Layout(layout.shard)
        place = np.full(layout.padded, -1)
        place[tuple(map(slice, layout.box))] = np.arange(layout.size).reshape(layout.box)
        for box, padded, order in layout.inner:
            incoming = [box[list(order or range(len(box))).index(dim)] for dim in range(len(box))]
            moved = place.reshape(incoming).transpose(order or range(len(box)))
            place = np.full(padded, -1)
            place[tuple(map(slice, box))] = moved
        at = {int(x): flat for flat, x in enumerate(place.reshape(-1)) if x >= 0}
        assert table_of(layout) == [whole(at[x]) for x in range(layout.size)]
        assert layout.footprint == {axis: whole.span(axis) for axis in whole.axes}
        for axis in layout.axes:
            values = [dict(point).get(axis, 0) for image in table_of(layout) for point in image]
            assert layout.span(axis) == max(values) - min(values) + 1
            assert layout.table(axis).tolist() == values
        assert Layout.parse(str(layout)) == layout == decode(encode(layout))
        assert pickle.loads(pickle.dumps(layout)) == layout


def test_canonical_on_several_axes_is_found_and_unique(campaign: Start) -> None:
    """Maps whose digits may step on three axes at once; one with another spelling of its list."""
    classes = (NESTED, REORDERED, NEGATIVE, AXES, PRIME)
    run = campaign("boxes in boxes: canonical, three axes", *classes, every=False, part=200)
    forms: dict[Any, Layout] = {}
    for number, maker in enumerate(run.cases()):
        source = maker.random
        made = random_nested(source)
        shard = [(extent, stride, source.choice("mpq")) for extent, stride, _ in made.shard]
        layout = Layout(shard, (), {"p": source.choice((0, 3))}, (), *made.boxes)
        run.met(layout)
        form, table = layout.canonical(), tuple(table_of(layout))
        assert tuple(table_of(form)) == table
        if number % 8 == 0:  # searched anew
            spelled = [(1, 5, "m"), *shard]
            assert Layout(spelled, (), layout.offset, (), *layout.boxes).canonical() == form
            assert Layout.parse(str(form)).canonical() == form
        run.saw(*(["a map met before"] if table in forms else []))
        run.saw(*(["boxes in boxes in the normal form"] if form.inner else []))
        assert forms.setdefault(table, form) == form
    assert run.seen["boxes in boxes in the normal form"] * 10 > run.total


def test_slice_permute_and_group_of_boxes_in_boxes(campaign: Start) -> None:
    classes = (NESTED, REORDERED, NEGATIVE, AXES, PRIME)
    run = campaign("boxes in boxes: slice, permute, group", *classes, every=False, part=PART)
    for maker in run.cases():
        source = maker.random
        layout = random_nested(source)
        run.met(layout)
        shape = random_shape(source, layout.size)
        table, index = table_of(layout), np.arange(layout.size).reshape(shape)
        begins = [source.choice((0, source.randrange(extent))) for extent in shape]
        region = [(b, source.randint(b + 1, e)) for b, e in zip(begins, shape, strict=True)]
        perm = source.sample(range(len(shape)), len(shape))
        cut = index[tuple(slice(*span) for span in region)]
        for name, operation, wanted in (
            ("sliced", partial(layout.slice, shape, region), cut),
            ("permuted", partial(layout.permute, shape, perm), index.transpose(perm)),
            ("grouped", lambda made=(layout, shape): made[0].group(made[1]).layout, index),
        ):
            try:
                found = operation()
            except (LayoutError, SearchError):
                continue
            run.saw(name)
            assert table_of(found) == [table[x] for x in wanted.reshape(-1).tolist()]
    assert min(run.seen["sliced"], run.seen["permuted"]) * 10 > 9 * run.total
    assert run.seen["grouped"] * 3 > run.total

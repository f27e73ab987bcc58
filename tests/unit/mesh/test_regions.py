"""Messages as regions of memory: what they read and write is what packing reads and writes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from axe_eq.layout import Mesh
from axe_eq.mesh import redistribute
from axe_eq.mesh.messages import Messages
from axe_eq.mesh.regions import Part, box_of, fills, parts_between, parts_of, put, view
from axe_eq.mesh.sides import outer
from axe_eq.program.types import Array
from tests.unit.mesh.programs import CASES, compiled


def payload(parts: Iterable[Part], memories: list[Array]) -> Array:
    read = [view(memories[p.leaf], p.source).reshape(-1) for p in parts]
    return np.concatenate(read)


def store(parts: Iterable[Part], memories: list[Array], memory: Array) -> None:
    for part in parts:
        values = part.value if part.value is not None else view(memories[part.leaf], part.source)
        for goal in part.goals:
            picked = values if part.pick is None else values.reshape(-1)[part.pick]
            put(memory, goal, picked)


def check(messages: Messages, n_devices: int) -> None:
    """Every device's goal, made by regions and by index tables."""
    rng = np.random.default_rng(0)
    numbers = [rng.integers(0, 250, (n_devices, s.n_elements)) for s in messages.sources]
    for device in range(n_devices):
        mine, theirs = (np.full(messages.goal.n_elements, -1) for _ in range(2))
        read = [m[device] for m in numbers]
        messages.start(device, read, theirs)
        store(parts_of(messages, device), read, mine)
        assert np.array_equal(mine, theirs)
        arrived = parts_of(messages, device)
        for src, dst in messages.pairs:
            if dst != device:
                continue
            read, parts = [m[src] for m in numbers], parts_between(messages, src, dst)
            sent = messages.packed(src, dst, read)
            assert np.array_equal(payload(parts, read), sent)
            messages.unpack(src, dst, sent, theirs)
            store(parts, read, mine)
            arrived += parts
        assert np.array_equal(mine, theirs)
        assert fills(arrived, len(mine)) == bool((theirs >= 0).all())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_regions_of_plans_are_what_is_packed(name: str) -> None:
    plan = compiled(name).plan
    for step in plan.exchanges:
        check(step.messages, plan.n_ranks)


M6, M8 = Mesh({"x": 6}), Mesh({"x": 2, "y": 4})
PAIRS = [
    ("jax:P('x','y')", "jax:P('y','x')", (8, 12), M8),
    ("jax:P(('x','y'),None)", "jax:P(None,'y')", (16, 8), M8),
    ("jax:P('x',None)", "jax:P(None,'x')", (12, 18), M6),
    ("S[(6,2,3):(1@gpuid,3@m,1@m)]", "S[(2,6,3):(3@m,1@gpuid,1@m)]", (12, 3), M6),  # in cycles
    ("jax:P('x',None)", "S[(2,6,8):(8@m,1@gpuid,1@m)] + 4@m", (12, 8), M6),  # an offset
    ("S[(6,8,8):(1@gpuid,1@m,8@m)]", "S[(6,8,8):(1@gpuid,8@m,1@m)]", (48, 8), M6),  # columns
]


@pytest.mark.parametrize(("source", "goal", "shape", "mesh"), PAIRS)
def test_regions_of_redistributions_are_what_is_packed(
    source: str, goal: str, shape: tuple[int, ...], mesh: Mesh
) -> None:
    check(redistribute(source, goal, shape=shape, mesh=mesh).messages, mesh.size)


def test_slices_of_dense_parts_are_boxes_that_need_no_packing() -> None:
    rows = redistribute("jax:P('x',None)", "jax:P(None,None)", shape=(12, 8), mesh=M6).messages
    (part,) = parts_between(rows, 0, 1)
    assert part.source.is_dense
    assert (part.source.offset, part.source.shape) == (0, (16,))
    assert [g.is_dense for g in part.goals] == [True]
    columns = redistribute("jax:P('x',None)", "jax:P(None,'x')", shape=(12, 12), mesh=M6).messages
    (part,) = parts_between(columns, 0, 1)
    assert (part.source.offset, part.source.shape, part.source.strides) == (2, (2, 2), (12, 1))
    assert (part.goals[0].offset, part.goals[0].shape) == (0, (4,))


def test_addresses_are_a_box_where_they_step_alike() -> None:
    assert box_of(np.array([7])) == (7, [])
    assert box_of(np.array([3, 5, 7])) == (3, [(3, 2)])
    assert box_of(np.array([9, 8, 5, 4, 1, 0])) == (9, [(3, -4), (2, -1)])
    assert box_of(np.array([0, 1, 2, 4, 5])) is None
    assert box_of(np.array([0, 1, 4, 6])) is None
    for shape, strides in (((2, 3, 4), (1, 7, 30)), ((4, 1, 5), (-5, 1, 1)), ((3, 3), (3, 1))):
        grid = outer([np.arange(n) * s for n, s in zip(shape, strides, strict=True)])
        found = box_of(grid.reshape(-1))
        assert found is not None
        offset, dims = found
        values = np.array([offset])
        for n, step in dims:
            values = (values[:, None] + np.arange(n) * step).reshape(-1)
        assert np.array_equal(values, grid.reshape(-1))

"""Redistribution between layouts: at the lower bound, bit for bit, and proved by enumeration."""

from __future__ import annotations

import doctest
import json
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
import axe_eq.array as xp
from axe_eq.errors import ScheduleError
from axe_eq.layout import Layout
from axe_eq.mesh import Redistribution, Window, redistribute, sides
from axe_eq.mesh.certificate import certify
from axe_eq.mesh.sides import Side
from tests.unit.mesh.layouts import SHAPES, bound, places, random_layout
from tests.unit.mesh.refusals import refusals

ORACLE = Path(__file__).parents[2] / "oracle" / "redistribution_cases.json"
CASES = json.loads(ORACLE.read_text())["redistribution"]
M8 = axe.Mesh({"x": 8})


def cut(shape: tuple[int, ...], mesh: axe.Mesh, dims: list[list[str]]) -> Layout:
    words = [
        "(" + "".join(f"{axis!r}," for axis in axes) + ")" if axes else "None" for axes in dims
    ]
    return axe.read("jax", f"P({','.join(words)})", shape=shape, mesh=mesh)


def rows(*shape: int) -> Layout:
    return cut(shape, M8, [["x"], *([] for _ in shape[1:])])


def check_exact(found: Redistribution, value: Any, wanted: Any) -> None:
    """What runs is what the goal's layout says, bit for bit."""
    made = found.run(found.scatter(value))
    assert sorted(made) == found.goal.devices.tolist()
    for device, memory in made.items():
        assert np.array_equal(memory, found.goal.scatter(wanted, device))


def numbered(shape: tuple[int, ...]) -> Any:
    return np.arange(1, prod(shape) + 1, dtype=np.float32).reshape(shape)


# -- others' cases ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_the_oracle_s_cases_are_at_the_lower_bound(case: dict[str, Any]) -> None:
    shape, mesh = tuple(case["shape"]), axe.Mesh(case["mesh"])
    source, goal = cut(shape, mesh, case["src"]), cut(shape, mesh, case["dst"])
    found = redistribute(source, goal, shape=shape, mesh=mesh)
    assert found.n_bytes == case["bound_bytes"] == found.certificate.bound_bytes
    assert found.n_messages == case["messages"]
    assert max(found.sent) == case["most_sent"]
    assert max(found.received) == case["most_received"]
    check_exact(found, numbered(shape), numbered(shape))


PATTERNS = {
    "R01": "all_gather of 8", "R02": "local", "R03": "all_to_all of 8", "R06": "permute",
    "R07": "all_to_all of 4", "R12": "permute", "R15": "all_gather of 4", "R08": "messages",
    "R21": "messages",
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_a_collective_is_recognised_where_all_messages_fit_it(name: str) -> None:
    (case,) = [c for c in CASES if c["id"] == name]
    shape, mesh = tuple(case["shape"]), axe.Mesh(case["mesh"])
    sides = [cut(shape, mesh, case[side]) for side in ("src", "dst")]
    assert redistribute(*sides, shape=shape, mesh=mesh).pattern == PATTERNS[name]


def test_one_device_s_value_is_scattered_broadcast_and_gathered() -> None:
    here, parts = Layout([(64, 1, "m")]), rows(64)
    everywhere = Layout([(64, 1, "m")], [(8, 1, "gpuid")])
    assert redistribute(here, parts, shape=(64,)).pattern == "scatter"
    assert redistribute(here, everywhere, shape=(64,)).pattern == "broadcast"
    assert redistribute(parts, here, shape=(64,)).pattern == "gather"


# -- shapes of moves -------------------------------------------------------------------------------


MOVES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], tuple[int, ...], int, int]] = {
    "roll": (lambda x: xp.roll(x, 1, axis=0), (1024, 1024), (1024, 1024), 32_768, 8),
    "flip": (lambda x: xp.flip(x, axis=0), (1024, 1024), (1024, 1024), 4_194_304, 8),
    "every other row": (lambda x: x[::2], (1024, 1024), (512, 1024), 0, 0),
    "region": (lambda x: x[128:256], (1024, 64), (128, 64), 28_672, 7),
    "twice": (lambda x: xp.concat([x, x]), (64, 4), (128, 4), 1792, 14),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_move_through_selectors_sends_only_what_lies_elsewhere(name: str) -> None:
    fn, shape, out, n_bytes, n_messages = MOVES[name]
    found = redistribute(rows(*shape), rows(*out), shape=shape, mesh=M8, through=fn)
    assert (found.n_bytes, found.n_messages) == (n_bytes, n_messages)
    assert found.certificate.bound_bytes == n_bytes
    check_exact(found, numbered(shape), np.asarray(axe.run(fn, numbered(shape))))


@pytest.mark.parametrize(("stride", "n_bytes"), [(1, 7168), (2, 3584)])
def test_windows_bring_their_halo_and_no_more(stride: int, n_bytes: int) -> None:
    shape, count = (1024, 128), 1024 // stride
    window = Window(count, 3, stride, 1)
    found = redistribute(
        rows(*shape), rows(count, 128), shape=shape, mesh=M8, windows={0: window}
    )  # fmt: skip
    assert found.n_bytes == n_bytes == found.certificate.bound_bytes
    value = numbered(shape)
    per = count // 8
    for device, memory in found.run(found.scatter(value)).items():
        first = max(0, device * per * stride - 1)
        last = min(1024, (device * per + per - 1) * stride + 2)
        part = memory.reshape(-1, 128)[: last - first]
        assert np.array_equal(part, value[first:last])


def test_eight_devices_to_six() -> None:
    goal = axe.read("jax", "P('y', None)", shape=(1000, 48), mesh=axe.Mesh({"y": 6}))
    found = redistribute(rows(1000, 48), goal, shape=(1000, 48), mesh=M8)
    have, want = places(rows(1000, 48), 48_000), places(goal, 48_000)
    assert found.n_bytes == 4 * bound(have, want) == found.certificate.bound_bytes
    check_exact(found, numbered((1000, 48)), numbered((1000, 48)))


def test_block_cyclic_rows_to_blocks_in_column_major_memory() -> None:
    cyclic = Layout([(4, 2 * 64, "m"), (8, 1, "gpuid"), (2, 64, "m"), (64, 1, "m")])
    blocks = Layout([(8, 1, "gpuid"), (8, 1, "m"), (64, 8, "m")])
    found = redistribute(cyclic, blocks, shape=(64, 64))
    assert found.n_bytes == 4 * bound(places(cyclic, 4096), places(blocks, 4096))
    check_exact(found, numbered((64, 64)), numbered((64, 64)))


@pytest.mark.sampled(40)
@pytest.mark.parametrize("seed", range(500))
def test_random_pairs_agree_with_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = SHAPES[int(rng.integers(len(SHAPES)))]
    source, goal = random_layout(rng, shape), random_layout(rng, shape)
    found = redistribute(source, goal, shape=shape, itemsize=2)
    have, want = places(source, prod(shape)), places(goal, prod(shape))
    assert found.n_bytes == 2 * bound(have, want) == found.certificate.bound_bytes
    assert sum(found.sent) == sum(found.received) == found.n_bytes
    value = np.arange(1, prod(shape) + 1, dtype=np.int16)
    before: dict[int, Any] = {d: np.zeros(found.source.n_elements, np.int16)
                              for d in found.source.devices.tolist()}  # fmt: skip
    for x, copies in enumerate(have):
        for device, address in copies:
            before[device][address] = value[x]
    for device, memory in before.items():
        assert np.array_equal(memory, found.source.scatter(value.reshape(shape), device))
    after = found.run(before)
    for x, copies in enumerate(want):
        for device, address in copies:
            assert after[device][address] == value[x]


def test_senders_of_copies_share_the_work() -> None:
    """Four copies of every part: each sends a quarter, not the first one all."""
    mesh = axe.Mesh({"x": 2, "y": 4})
    shape = (64, 64)
    found = redistribute(
        cut(shape, mesh, [["x"], []]), cut(shape, mesh, [[], []]), shape=shape, mesh=mesh
    )  # fmt: skip
    assert found.sent == [found.n_bytes // 8] * 8


# -- damage ----------------------------------------------------------------------------------------


def damaged(found: Redistribution, rng: np.random.Generator) -> tuple[str, Any]:
    """The messages with one of their figures changed."""
    at = int(rng.integers(len(found.messages.blocks)))
    block = found.messages.blocks[at]
    row = int(rng.integers(len(block.src)))
    kind = ["drop", "double", "sender", "goal", "class", "count", "index"][int(rng.integers(7))]
    keep = np.ones(len(block.src), bool)
    keep[row] = kind != "drop"
    order = np.append(np.flatnonzero(keep), [row] if kind == "double" else []).astype(int)
    columns = {n: getattr(block, n)[order] for n in ("src", "dst", "pick", "count")}
    classes = block.classes
    if kind in ("sender", "goal"):
        name = "src" if kind == "sender" else "dst"
        columns[name][row] = (columns[name][row] + 1 + rng.integers(7)) % 8
    if kind == "count":
        columns["count"][row] += 1
    if kind == "class":
        g = int(rng.integers(len(classes)))
        columns["pick"][row, g] = (columns["pick"][row, g] + 1) % len(classes[g])
    if kind == "index":
        c = classes[0][0]
        classes = ((replace(c, leaf=c.leaf + 1), *classes[0][1:]), *classes[1:])
    changed = replace(block, classes=classes, **columns)
    blocks = (*found.messages.blocks[:at], changed, *found.messages.blocks[at + 1 :])
    return kind, replace(found.messages, blocks=blocks)


@pytest.mark.parametrize("name", ["R03", "R04", "R10", "R13", "R16", "R21"])
def test_damaged_messages_are_refused_or_do_the_same(name: str, full: bool) -> None:
    (case,) = [c for c in CASES if c["id"] == name]
    mesh = axe.Mesh(case["mesh"])
    shape = (40, 24) if name == "R21" else (64, 64, 8)[: len(case["shape"])]
    found = redistribute(
        *(cut(shape, mesh, case[side]) for side in ("src", "dst")), shape=shape, mesh=mesh
    )  # fmt: skip
    rng, refused = np.random.default_rng(3), 0
    value = numbered(shape)
    for _ in range(200 if full else 25):
        kind, messages = damaged(found, rng)
        try:
            certify("damaged", messages, found.pieces)
        except ScheduleError:
            refused += 1
            continue
        assert kind in ("sender", "class"), kind  # another copy sends, or the one class there is
        check_exact(replace(found, messages=messages), value, value)
    assert refused >= 12


# -- the page --------------------------------------------------------------------------------------


def test_the_page_on_meshes_runs() -> None:
    page = Path(__file__).parents[3] / "docs" / "meshes.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert failed == 0
    assert tried > 10


# -- bad input -------------------------------------------------------------------------------------

anything: Any = redistribute
R64 = rows(64, 8)
BAD: dict[str, Callable[[], Any]] = {
    "size": lambda: redistribute(R64, R64, shape=(64, 4)),
    "axis": lambda: redistribute(Layout([(64, 1, "lane")]), R64, shape=(64,)),
    "another axis of devices": lambda: redistribute(
        R64, R64, shape=(64, 8), mesh=axe.Mesh({"x": 8}, axis="dev")
    ),
    "goal in one place": lambda: redistribute(rows(64), Layout([(8, 1), (8, 0)]), shape=(64,)),
    "below zero": lambda: redistribute(Layout([(64, -1)]), rows(64), shape=(64,)),
    "computes": lambda: redistribute(R64, R64, shape=(64, 8), through=lambda x: x + x),
    "two outputs": lambda: redistribute(R64, R64, shape=(64, 8), through=lambda x: (x, x)),
    "shape": lambda: anything(R64, R64, shape=8),
    "itemsize": lambda: anything(R64, R64, shape=(64, 8), itemsize=0),
    "text": lambda: redistribute("P('x')", R64, shape=(64, 8)),
    "mesh of the goal": lambda: redistribute(
        R64, R64, shape=(64, 8), mesh=M8, goal_mesh=axe.Mesh({"x": 8}, axis="dev")
    ),
    "window": lambda: redistribute(R64, R64, shape=(64, 8), windows={0: Window(64, 0)}),
    "windowed dim": lambda: redistribute(R64, R64, shape=(64, 8), windows={2: Window(64, 3)}),
    "memory": lambda: redistribute(R64, R64, shape=(64, 8)).run({0: np.zeros(64)}),
}


def test_bad_input_is_one_clear_error(golden: Callable[[str], None]) -> None:
    golden(refusals(BAD))


@pytest.mark.parametrize("cut", ["'x',None", "None,('y','x')", "'y','x'", "None,None"])
def test_large_values_are_cut_slab_by_slab(cut: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As small ones are by one table, which large ones would not fit into memory by."""
    shape, devices = (12, 18), axe.Mesh({"x": 2, "y": 3})
    layout, value = axe.read("jax", f"P({cut})", shape=shape, mesh=devices), np.arange(216)
    value = value.reshape(shape)
    at_once = [Side(layout, shape, "gpuid").scatter(value, d) for d in range(6)]
    monkeypatch.setattr(sides, "MOST_ENTRIES", 50)
    monkeypatch.setattr(sides, "SLAB_ENTRIES", 40)
    side = Side(layout, shape, "gpuid")
    for device, part in enumerate(at_once):
        assert np.array_equal(side.scatter(value, device), part)
        assert len(list(side.held(device))) == 6  # two rows of 18 at a time

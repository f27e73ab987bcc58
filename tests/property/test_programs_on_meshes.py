"""Drawn programs on drawn meshes, in drawn cuts: right, and moving what they say."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

import axe_eq as axe
from axe_eq.extract.mesh import seen
from axe_eq.extract.mesh.seen import READ, STORE
from axe_eq.layout import Layout
from axe_eq.program.node import Program
from axe_eq.program.types import value_type
from axe_eq.schedule import shard
from axe_eq.schedule.graph import SpmdStep
from benchmarks.drawn_programs import case
from benchmarks.programs import RIGHT, compared, is_large
from tests.unit.mesh.blocks import in_blocks
from tests.unit.mesh.carried import carry, seeing

COUNT = 300
MESHES: tuple[dict[str, int], ...] = (
    {"x": 2}, {"x": 3}, {"x": 8}, {"x": 2, "y": 2}, {"x": 2, "y": 4}, {"dp": 2, "tp": 2, "pp": 2},
)  # fmt: skip


@cache
def drawn(number: int) -> tuple[int, Program, str, axe.Mesh]:
    """Seed, program with layouts, kind of values, and mesh of a case."""
    rng = random.Random(f"on a mesh {number}")
    while True:
        seed = rng.randrange(1 << 20)
        found = case(seed)
        mesh = axe.Mesh(rng.choice(MESHES))
        if not is_large(found.program):
            return seed, placed(found.program, mesh, rng), found.values, mesh


def placed(program: Program, mesh: axe.Mesh, rng: random.Random) -> Program:
    """The program with its inputs and outputs cut in some way, or in none that is said."""
    text = shard.mesh_text(mesh)

    def cut(type_: str) -> Layout | None:
        boxes = shard.boxes(type_, text)
        chosen = boxes[-1] if rng.random() < 0.5 else rng.choice(boxes)
        if rng.random() < 0.3:  # one that may not divide a dim
            rank = value_type(type_).rank
            dims: list[list[str]] = [[] for _ in range(rank)]
            for axis in mesh.shape:
                if rank and rng.random() < 0.8:
                    rng.choice(dims).append(axis)
            return Layout.parse(shard.uneven_layout(type_, shard.show(dims), text))
        return Layout.parse(shard.layout_text(type_, chosen, text)) if rng.random() < 0.8 else None

    inputs = tuple(replace(i, layout=cut(str(i.node.type))) for i in program.inputs)
    outputs = tuple(cut(str(root.type)) for root in program.outputs)
    return replace(program, inputs=inputs, output_layouts=outputs)


def check(number: int) -> None:
    """A case has a plan, which is right and moves what it says."""
    seed, program, values, mesh = drawn(number)
    wanted = program.output_layouts
    exe = axe.compile(
        program, target="cpu", mesh=mesh, outputs=list(wanted),
        numerics="exact" if number % 3 == 0 else "real",
        objective="link_bytes" if number % 4 else "time",
    )  # fmt: skip
    state, problem = compared(seed, exe, program, values, "device")
    assert state == RIGHT, (seed, mesh, problem)
    assert exe.schedule.simulation.sent == exe.plan.n_bytes
    assert exe.plan.link_bytes == exe.cost["link_bytes"]
    check_prices(exe)


def check_prices(exe: axe.Executable) -> None:
    """No plan that was compiled is better; its cuts are priced as its local programs are."""
    plans = exe._searched
    assert min(t.rank for t in plans.tried.values()) == plans.best.rank
    for tried in plans.tried.values():
        tried.cuts.learn(tried.kernels)
        fused = tried.cuts.problem.fused
        priced = sum(fused.seconds(n, o) for n, o in tried.cuts.option.items())
        local = sum(s.time_s for s in tried.graph.steps if isinstance(s, SpmdStep))
        assert priced <= local * 1.0001, tried.how


@pytest.mark.usefixtures("searched")
@pytest.mark.sampled(6, slow=("217", "227"))
@pytest.mark.parametrize("number", range(COUNT))
def test_a_drawn_program_is_right_on_a_mesh(number: int) -> None:
    check(number)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", range(COUNT))
def test_a_drawn_program_in_blocks_is_right_on_a_mesh(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blocks(monkeypatch, [2, 3, (3, 1), (1, 2, 4, 1)], seed=number)
    seed, program, values, mesh = drawn(number)
    exe = axe.compile(
        program, target="cpu", mesh=mesh, outputs=list(program.output_layouts),
        numerics="exact" if number % 3 == 0 else "real",
    )  # fmt: skip
    state, problem = compared(seed, exe, program, values, "device")
    assert state == RIGHT, (seed, mesh, problem)
    assert exe.schedule.simulation.sent == exe.plan.n_bytes


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", range(COUNT))
def test_a_drawn_program_whose_kernels_see_other_devices_is_right(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry(monkeypatch, STORE if number % 3 == 1 else READ)
    monkeypatch.setattr(seen, "ALIGNMENT_BYTES", 1)  # the host reads from anywhere
    seed, program, values, mesh = drawn(number)
    exe = axe.compile(
        program, target=seeing(), mesh=mesh, outputs=list(program.output_layouts),
        numerics="exact" if number % 3 == 0 else "real",
    )  # fmt: skip
    state, problem = compared(seed, exe, program, values, "device")
    assert state == RIGHT, (seed, mesh, problem)
    assert exe.schedule.simulation.sent == exe.plan.n_bytes


def test_cuts_are_drawn() -> None:
    """Most programs have something cut, on every mesh."""
    found: Counter[str] = Counter()
    for number in range(60):
        _, program, _, mesh = drawn(number)
        layouts = [i.layout for i in program.inputs]
        cuts = [
            x for x in layouts if isinstance(x, Layout) and any(s[2] == "gpuid" for s in x.shard)
        ]
        found[str(mesh)] += bool(cuts)
    assert len(found) == len(MESHES)
    assert sum(found.values()) >= 30

"""Cuts of operators: what they need, what exchanges cost, and programs that others measured."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import axe_eq as axe
import axe_eq.array as xp
import benchmarks
from axe_eq.extract.mesh.cuts import Cut, Part, cut_dim, form, selector_needs, whole
from axe_eq.extract.mesh.moves import Moves, exchange_nodes, tree_of
from axe_eq.extract.mesh.options import Machine
from axe_eq.mesh.steps import exchange
from axe_eq.program.node import INPUT, Node, input_node, sel_node
from axe_eq.program.types import ValueType
from axe_eq.schedule import shard
from axe_eq.schedule.graph import Access
from axe_eq_backends.cpu.target import cpu
from axe_eq_backends.cuda.target import NCCL_LINK, PEERS_LINK
from benchmarks.mesh_programs import PROGRAMS
from tests.unit.mesh.programs import CASES, compiled

MESH = shard.mesh_text(axe.Mesh({"x": 2, "y": 3}))


def root(fn: Any, *specs: str) -> Node:
    (node,) = axe.trace(fn, *specs).outputs
    return node


def drawn_cut(shape: tuple[int, ...], rng: random.Random) -> Cut:
    """Some axes cut some dims, evenly or not."""
    axes = [rng.choice([-1, *range(len(shape))]) for _ in range(2)]
    return tuple(
        cut_dim([a for a, at in zip("xy", axes, strict=True) if at == d], n, MESH)
        for d, n in enumerate(shape)
    )


GIVEN = input_node("x", ValueType("f32", (7, 6)))
READ = {
    "as it is": GIVEN,
    "rolled": root(lambda x: xp.roll(x, 1, axis=0), "7x6:f32"),
    "flipped, every other": root(lambda x: xp.flip(x, axis=1)[::2], "7x6:f32"),
    "merged": root(lambda x: xp.reshape(x, (42,)), "7x6:f32"),
    "split": root(lambda x: xp.reshape(x, (7, 2, 3)), "7x6:f32"),
    "twice": root(lambda x: xp.concat([x, x], axis=1), "7x6:f32"),
    "repeated": sel_node("repeat 0 3", [GIVEN]),
    "padded": sel_node("pad ((2,1),(0,3)) 0.0", [GIVEN]),
}


@pytest.mark.parametrize("name", READ)
def test_bytes_are_priced_as_messages_move_them(name: str) -> None:
    """What devices want and do not hold, counted by dims, is what planned messages carry."""
    rng, moves = random.Random(name), Moves(MESH, cpu)
    value = READ[name]
    tree = tree_of(value, lambda n: n.kind == INPUT)
    (leaf,) = tree.leaves
    for _ in range(12):
        held = form(leaf.type, drawn_cut(leaf.shape, rng), MESH)
        goal = form(value.type, drawn_cut(value.shape, rng), MESH)
        nodes = exchange_nodes(tree, [held], goal, MESH)
        write = Access("b", goal.layout)
        messages = exchange("e", 0, [Access("a", held.layout)], write, nodes).messages
        assert moves.price(tree, 0, held, goal).n_bytes == messages.n_bytes


def test_a_convolution_needs_its_rows_and_a_halo() -> None:
    """Rows 4n .. 4n+5 of an image, where a device computes rows 4n .. 4n+3."""
    node = root(lambda x, w: axe.nn.conv2d(x, w), "1x2x14x3:f32", "4x2x3x1:f32")
    mesh = shard.mesh_text(axe.Mesh({"x": 3}))
    found = [o.needs[0][2] for o in Machine(mesh, cpu, True).options(node) if o.home[2].axes]
    assert Part(("x",), 4, 6) in found


def test_float_sums_are_cut_under_real_laws_alone() -> None:
    for monoid, rounds in ((xp.sum, True), (xp.max, False)):
        node = root(lambda x, of=monoid: of(x, axis=0), "12x6:f32")
        real, exact = (
            [o for o in Machine(MESH, cpu, numerics).options(node) if o.parts]
            for numerics in (True, False)
        )
        assert real
        assert bool(exact) != rounds


def test_parts_of_reshapes_are_reshapes_of_parts() -> None:
    """Of the first of dims that are reshaped; another one is spread over the others."""
    given = (ValueType("f32", (12, 6)),)
    rows, half = (cut_dim("y", 12, MESH), Part((), 6, 6)), cut_dim("y", 72, MESH)
    assert selector_needs("merge 0 2", given, (half,)) == (rows,)
    split = selector_needs("split 0 (-1,4)", given, (*whole((3, 4)), cut_dim("x", 6, MESH)))
    assert split == ((Part((), 12, 12), cut_dim("x", 6, MESH)),)
    inner = Part((), 3, 3), cut_dim("x", 4, MESH), Part((), 6, 6)
    assert selector_needs("split 0 (-1,4)", given, inner) is None


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_program_moves_more_than_its_best_known_plan(name: str) -> None:
    """That of P23 leaves out the integers, which are cut as the result is."""
    program = PROGRAMS[name]
    most = program.reference + (28_672 if name == "P23" else 0)
    plan = program.compiled(objective="link_bytes").plan
    assert plan.link_bytes <= most


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
def test_the_bytes_that_cuts_are_chosen_by_are_those_that_a_plan_moves(name: str) -> None:
    """Seconds are a fraction of a byte there."""
    exe = compiled(name, objective="link_bytes")
    cost = exe.report["extract"].notes["cost"]
    assert isinstance(cost, float)
    assert int(cost) == exe.plan.link_bytes


def test_what_several_operators_need_is_sent_once() -> None:
    """Rows of x are gathered for three products; each alone would pay for it by itself."""
    mesh = axe.Mesh({"x": 4})

    def given(shape: tuple[int, int], how: str) -> axe.Spec:
        return axe.Spec(shape, "f32", layout=axe.read("jax", how, shape=shape, mesh=mesh))

    x, w = given((64, 32), "P('x',None)"), given((32, 16), "P(None,'x')")
    columns = axe.read("jax", "P(None,'x')", shape=(64, 16), mesh=mesh)
    exe = axe.compile(
        lambda x, a, b, c: (x @ a, x @ b, x @ c), x, w, w, w, target="cpu", mesh=mesh,
        outputs=[columns] * 3, objective="link_bytes",
    )  # fmt: skip
    assert exe.plan.link_bytes == 3 * 64 * 32 * 4
    assert [s.name for s in exe.plan.exchanges] == ["m0_move"]


def test_what_messages_do_not_carry_as_it_lies_is_copied() -> None:
    """Halves of wider rows are packed, and a device's own are copied; what lies dense is not."""
    packing = replace(cpu.links[0], packs=1e9)
    plain, packed = (Moves(shard.mesh_text(axe.Mesh({"x": 2})), cpu.replace(links=(link,)))
                     for link in (replace(packing, packs=0.0), packing))  # fmt: skip
    rows, columns, dense = ((Part(("x",), 4, 4), Part((), 6, 6)), (Part((), 8, 8),
                            Part(("x",), 3, 3)), (Part((), 8, 8), Part((), 6, 6)))  # fmt: skip
    value = input_node("x", ValueType("f32", (8, 6)))
    tree, mesh = tree_of(value, lambda n: True), packed.mesh
    copied = {rows: {columns: 2 * 48, dense: 0}, columns: {rows: 2 * 48, dense: 2 * 96}}
    for held, goals in copied.items():
        for goal, n_bytes in goals.items():
            at = form(value.type, held, mesh), form(value.type, goal, mesh)
            more = packed.price(tree, 0, *at).seconds - plain.price(tree, 0, *at).seconds
            assert more == pytest.approx(2 * n_bytes / 1e9), (held, goal)


def test_links_are_priced_as_exchanges_over_them_were_measured() -> None:
    """Within a fifth, from 1 to 512 MiB; a turn packs half of what it sends, and keeps as much."""
    results = Path(benchmarks.__file__).parent / "results"
    for link, name in ((NCCL_LINK, "nccl"), (PEERS_LINK, "peers")):
        cases = json.loads((results / f"mesh_cuda_{name}.json").read_text())["cases"]
        told = {c["name"]: c for c in cases if c["kind"] in ("gather", "swap", "turn")}
        assert len(told) > 60
        for case in told.values():
            seconds, n_bytes = case["us"]["axe"] / 1e6, case["n_bytes"]
            priced = link.seconds(n_bytes, 1)
            if case["kind"] == "turn" and link.packs:
                priced += 2 * 2 * n_bytes / link.packs
            assert 0.8 < priced / seconds < 1.2, (name, case["name"])

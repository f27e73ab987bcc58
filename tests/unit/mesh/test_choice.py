"""Which plan is taken: by compiled prices, in memory, over links, and said on one page."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn, pipeline
from axe_eq.errors import ScheduleError
from axe_eq.extract.mesh.cuts import form
from axe_eq.extract.mesh.moves import Moves, exchange_nodes, tree_of
from axe_eq.extract.mesh.wires import wires
from axe_eq.extract.price.pricer import Pricer
from axe_eq.mesh import redistribute
from axe_eq.mesh.steps import exchange
from axe_eq.pipeline import on_mesh
from axe_eq.pipeline.rounds import Shared
from axe_eq.program.node import INPUT
from axe_eq.run.explain_mesh import explain_mesh
from axe_eq.schedule import shard
from axe_eq.schedule.graph import Access, SpmdStep
from axe_eq.target import Link
from axe_eq_backends.cpu.target import cpu
from axe_eq_backends.cuda.target import h200
from benchmarks.mesh_programs import PROGRAMS
from tests.unit.mesh.programs import arguments, compiled_for
from tests.unit.mesh.refusals import refusals
from tests.unit.mesh.test_cuts import READ, drawn_cut

FAR = Link(1e9, 50e-6, "network")
PAIRS = cpu.replace(links=(Link(6e9, 10e-6, "near", 1e-6, 2), FAR))
GRID = axe.Mesh({"x": 2, "y": 3})


def cut(how: str, shape: tuple[int, ...], mesh: axe.Mesh) -> axe.Layout:
    return axe.read("jax", how, shape=shape, mesh=mesh)


# -- prices ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("searched")
def test_programs_of_devices_share_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """All plans are priced by one pricer, and cost what each would cost by one of its own."""
    made: list[Pricer] = []
    plain, together = Pricer.__init__, products()

    def init(self: Pricer, *given: Any, **named: Any) -> None:
        made.append(self)
        plain(self, *given, **named)

    def apart(job: Any, known: Shared, program: Any) -> Any:
        return local(job, Shared(job.pricer()), program)

    monkeypatch.setattr(Pricer, "__init__", init)
    assert PROGRAMS["P06"].compiled().cost == together.cost
    assert len(made) == 1
    local = pipeline._local
    monkeypatch.setattr(pipeline, "_local", apart)
    alone = PROGRAMS["P06"].compiled()
    assert len(made) > 4
    costs = [[t.cost for t in exe._searched.tried.values()] for exe in (together, alone)]
    assert costs[0] == costs[1]


@cache
def products() -> Any:
    """Of ``(a @ b) @ c`` with a short inner extent, in the least time."""
    return PROGRAMS["P06"].compiled()


@pytest.mark.usefixtures("searched")
def test_the_plan_that_is_taken_is_the_best_that_was_compiled() -> None:
    """Rooflines choose fewer bytes; another plan is one kernel shorter, and faster."""
    exe = products()
    (first, *_), taken = exe._searched.tried.values(), exe.schedule.graph.time_s
    assert first.how == "rooflines"
    assert taken == min(t.graph.time_s for t in exe._searched.tried.values())
    assert taken < 0.8 * first.graph.time_s
    x = [np.ones(s, np.float32) for s, _, _ in PROGRAMS["P06"].given]
    np.testing.assert_allclose(exe(*x), exe.meaning(*x), rtol=1e-5)


@pytest.mark.usefixtures("searched")
def test_cuts_cost_what_they_were_compiled_to() -> None:
    """After what is learned of a plan, operators cost what its kernels take together."""
    for tried in products()._searched.tried.values():
        tried.cuts.learn(tried.kernels)
        fused = tried.cuts.problem.fused
        computed = sum(fused.seconds(n, o) for n, o in tried.cuts.option.items())
        local = [s for s in tried.graph.steps if isinstance(s, SpmdStep)]
        assert computed == pytest.approx(sum(k.time_s for s in local for k in s.graph.steps))


# -- memory ----------------------------------------------------------------------------------------


def gathered(capacity: int) -> Any:
    """A product whose weights are fastest gathered whole, in one exchange: latency decides."""
    mesh = axe.Mesh({"x": 4})
    rows, columns = cut("P('x',None)", (64, 512), mesh), cut("P(None,'x')", (512, 512), mesh)
    return axe.compile(
        lambda x, w: x @ w, axe.Spec((64, 512), "f32", layout=rows),
        axe.Spec((512, 512), "f32", layout=columns),
        target=cpu.replace(ram=capacity, l2=1 << 16, links=(Link(1e12, 1e-3),)), mesh=mesh,
        outputs=[rows],
    )  # fmt: skip


@pytest.mark.usefixtures("searched")
def test_an_output_that_others_read_in_uneven_parts_has_its_own_shape() -> None:
    """Rows of 5 over two devices are 6 where they are read: these are no rows of the output."""
    mesh = axe.Mesh({"x": 2})
    x = axe.Spec((5, 4), "f32", layout=cut("P(None,'x')", (5, 4), mesh))

    def fn(x: Any, r: Any) -> Any:
        h = x + r
        return axe.array.sum(h, axis=1) / axe.array.max(h, axis=1), h

    exe = axe.compile(fn, x, x, target="cpu", mesh=mesh, numerics="exact",
                      outputs=[cut("P('x')", (5,), mesh), None])  # fmt: skip
    rows = np.arange(1, 21, dtype=np.float32).reshape(5, 4)
    for found, wanted in zip(exe(rows, rows), exe.meaning(rows, rows), strict=True):
        assert np.array_equal(found, wanted)


def test_what_is_cheaper_to_compute_again_is_not_stored() -> None:
    """Exponentials of softmax along a cut axis. A kernel of whole rows is brought them and back."""
    shape, mesh = (16384, 16384), axe.Mesh({"x": 8})
    cut = axe.read("jax", "P(None,'x')", shape=shape, mesh=mesh)
    exe = axe.compile(
        lambda x: nn.softmax(x, axis=-1), axe.Spec(shape, "f32", layout=cut), target="h200",
        mesh=mesh, outputs=[cut],
    )  # fmt: skip
    assert exe._searched.best.cuts.late
    own = 4 * 16384 * 16384 // 8
    whole = 2 * own / h200.memories[0].bytes_per_s
    assert whole + 2 * h200.links[0].seconds(own * 7 // 8, 7) > 4 * exe.cost["time_s"]


@pytest.mark.usefixtures("searched")
def test_what_is_computed_again_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where plans that do so are taken whatever they cost."""
    monkeypatch.setattr(on_mesh, "LEAST_GAIN", 0.0)
    best = property(lambda plans: min(plans.tried.values(), key=lambda t: not t.cuts.late))
    monkeypatch.setattr(on_mesh.Plans, "best", best)
    name = "softmax of a cut axis"
    exe = compiled_for(name, "cpu")
    assert exe._searched.best.cuts.late
    given = arguments(name)
    np.testing.assert_allclose(exe(*given), exe.meaning(*given), rtol=1e-6)
    assert exe.schedule.simulation.sent == exe.plan.n_bytes
    assert axe.equivalent(exe.program, exe.plan)


def test_a_plan_that_fits_is_taken_where_a_faster_one_does_not() -> None:
    free = gathered(16 << 30)
    need = max(free.plan.peak_bytes)
    tight = gathered(need - 1)
    assert max(tight.plan.peak_bytes) < need
    assert tight.schedule.graph.time_s >= free.schedule.graph.time_s
    x, w = np.ones((64, 512), np.float32), np.ones((512, 512), np.float32)
    np.testing.assert_array_equal(tight(x, w), x @ w)
    points = tight.pareto()
    assert [p.time_s for p in points] == sorted(p.time_s for p in points)
    assert points[0].time_s <= tight.schedule.graph.time_s


def test_what_fits_no_device_is_refused_with_figures() -> None:
    for capacity, wrong in ((500_000, "of a device at its peak, the least of"), (300_000, "takes")):
        with pytest.raises(ScheduleError, match=wrong) as error:
            gathered(capacity)
        assert f"expected at most {capacity / 1000:.1f} kB" in str(error.value)


# -- links -----------------------------------------------------------------------------------------


def test_devices_are_joined_by_number_or_along_axes() -> None:
    text = shard.mesh_text(axe.Mesh({"x": 2, "y": 2}))
    by_number = wires(text, PAIRS, {})
    assert by_number.level.tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]]
    assert by_number.near == ((0, 0, 2, 2),)
    along = wires(text, PAIRS, {"y": "network"})
    assert along.level.tolist() == [[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]


@pytest.mark.parametrize("name", READ)
def test_bytes_over_every_link_are_priced_as_messages_move_them(name: str) -> None:
    """Copies are sent by who is nearest, so that the farther link carries least."""
    mesh = shard.mesh_text(GRID)
    target = cpu.replace(links=(Link(6e9, 1e-5, "near", 1e-6, 3), FAR))
    rng, moves, value = random.Random(name), Moves(mesh, target), READ[name]
    tree = tree_of(value, lambda n: n.kind == INPUT)
    (leaf,) = tree.leaves
    for _ in range(6):
        held = form(leaf.type, drawn_cut(leaf.shape, rng), mesh)
        goal = form(value.type, drawn_cut(value.shape, rng), mesh)
        nodes, near = exchange_nodes(tree, [held], goal, mesh), moves.wires.near
        write = Access("b", goal.layout)
        sent = exchange("e", 0, [Access("a", held.layout)], write, nodes, near).messages
        far = sum(n for (a, b), n in sent.pairs.items() if a // 3 != b // 3)
        price = moves.price(tree, 0, held, goal)
        assert price.n_bytes == sent.n_bytes
        if price.n_bytes:
            assert price.by_link["network_bytes"] == far


def test_the_busiest_device_and_link_decide() -> None:
    """One device sends 3 kB over the far link, and three send 1 kB over the near one."""
    joined = wires(shard.mesh_text(axe.Mesh({"x": 4})), PAIRS, {})
    n_bytes, n = np.zeros((4, 4), np.int64), np.zeros((4, 4), np.int64)
    n_bytes[0, 2], n[0, 2], n_bytes[0, 3], n[0, 3] = 1000, 1, 2000, 1
    assert joined.seconds(n_bytes, n) == pytest.approx(50e-6 + 3000 / 1e9)
    n_bytes[:], n[:] = 0, 0
    n_bytes[0, 1], n[0, 1] = 6000, 3
    assert joined.seconds(n_bytes, n) == pytest.approx(10e-6 + 6000 / 6e9 + 3e-6)
    assert joined.by_link(n_bytes) == {"near_bytes": 6000, "network_bytes": 0}


def test_the_link_that_costs_most_is_spared() -> None:
    """Two machines of two: least bytes over the network is an objective of its own."""
    mesh = axe.Mesh({"machine": 2, "x": 2}, links={"machine": "network"})
    shape = (64, 64)
    rows = cut("P(('machine','x'),None)", shape, mesh)

    def network(objective: str) -> tuple[float, int]:
        exe = axe.compile(
            lambda x, w: x @ w, *[axe.Spec(shape, "f32", layout=rows)] * 2, target=PAIRS, mesh=mesh,
            outputs=[rows], objective=objective,
        )  # fmt: skip
        sent = sum(s.messages.pairs[p] for s in exe.plan.exchanges for p in s.messages.pairs
                   if p[0] // 2 != p[1] // 2)  # fmt: skip
        assert exe.cost["network_bytes"] == sent
        x = np.arange(64 * 64, dtype=np.float32).reshape(shape) % 7
        np.testing.assert_array_equal(exe(x, x), x @ x)
        return exe.cost["network_bytes"], exe.plan.link_bytes

    least, every = network("network_bytes"), network("link_bytes")
    assert least[0] <= every[0]
    assert every[1] <= least[1]


def test_devices_are_numbered_in_the_order_of_the_mesh() -> None:
    """Columns first, as in Axe's figures: device (x, y) is x + 2 * y."""
    mesh = axe.Mesh({"x": 2, "y": 3}, order=("y", "x"))
    assert mesh.axes == {"x": (2, 1), "y": (3, 2)}
    layout = cut("P('x','y')", (4, 6), mesh)
    for i, j in product(range(4), range(6)):
        ((place,),) = [layout((i, j), shape=(4, 6))]
        assert dict(place).get("gpuid", 0) == i // 2 + 2 * (j // 2)
    for notation in ("jax", "dtensor", "alpa", "hlo_sharding", "shardy"):
        text = axe.write(notation, layout, shape=(4, 6), mesh=mesh)
        again = axe.read(notation, text, shape=(4, 6), mesh=mesh)
        assert again.canonical() == layout.canonical(), notation
    found = redistribute(layout, cut("P('y','x')", (6, 4), mesh).permute((6, 4), (1, 0)),
                         shape=(4, 6), mesh=mesh)  # fmt: skip
    assert found.certificate.n_bytes == found.certificate.bound_bytes
    exe = axe.compile(
        lambda x: nn.softmax(x, axis=1), axe.Spec((4, 6), "f32", layout=layout), target="cpu",
        mesh=mesh, outputs=[layout], objective="link_bytes",
    )  # fmt: skip
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_allclose(exe(x), exe.meaning(x), rtol=1e-6)
    verdict = axe.equivalent("jax:P('x','y')", str(layout), shape=(4, 6), mesh=mesh)
    assert verdict
    assert axe.check_certificate(verdict.certificate)
    document = json.loads(verdict.certificate)
    text = json.dumps(document)
    assert '"order": ["y", "x"]' in text
    assert not axe.check_certificate(text.replace('"order": ["y", "x"]', '"order": ["x", "y"]'))


# -- explanations and errors -----------------------------------------------------------------------


def test_an_explanation_says_what_lost_and_why() -> None:
    text = products().explain()
    assert "compared with:" in text
    (line,) = [x for x in text.splitlines() if x.startswith("  rooflines: ")]
    assert ", x1.27, computing +" in line
    assert "-688,128 bytes; cut otherwise: " in line


def test_an_explanation_is_a_page_however_long_the_program() -> None:
    """Steps that are alike are one line, and those that take little are counted."""
    exe = products()
    graph = exe.schedule.graph
    steps = tuple(
        replace(s, name=f"{s.name}_{n}", time_s=s.time_s * (1 + n // 50))
        for n in range(1000) for s in graph.steps
    )  # fmt: skip
    notes = exe.report["extract"].notes
    text = explain_mesh(replace(graph, steps=steps), exe.target, exe._searched, {}, "real", notes)
    assert len(text.splitlines()) < 60
    assert "and 49 steps alike" in text
    assert " steps more: " in text


BAD: dict[str, Callable[[], Any]] = {
    "order": lambda: axe.Mesh({"x": 2, "y": 2}, order=("x",)),
    "links along no axis": lambda: axe.Mesh({"x": 2}, links={"z": "near"}),
    "a link that the target lacks": lambda: axe.compile(
        lambda x: x + 1, "8:f32", target=PAIRS, mesh=axe.Mesh({"x": 2}, links={"x": "radio"})
    ),
    "devices that no link joins": lambda: axe.compile(
        lambda x: x + 1, "8:f32", target=cpu.replace(links=PAIRS.links[:1]),
        mesh=axe.Mesh({"x": 4}),
    ),
    "no cost": lambda: axe.compile(
        lambda x: x + 1, "8:f32", target=PAIRS, mesh=axe.Mesh({"x": 2}), objective="joy"
    ),
}  # fmt: skip


def test_bad_input_is_one_clear_error(golden: Callable[[str], None]) -> None:
    golden(refusals(BAD))

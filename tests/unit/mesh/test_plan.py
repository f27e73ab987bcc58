"""Plans of programs on a mesh: what they compute, what they move, and damage to them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import AxeError, ScheduleError
from axe_eq.mesh.plan import MeshPlan, plan_from_json, plan_of
from axe_eq.mesh.prove import Event, _check_stored, check_programs, program, prove
from axe_eq.mesh.sides import side
from axe_eq.mesh.simulate import Simulation
from axe_eq.mesh.steps import ExchangeStep, LocalStep, reads_of, writes_of
from axe_eq.program.nesting import flatten
from axe_eq.schedule.box import Entry
from axe_eq.schedule.graph import KernelStep, ScheduleGraph, TileNode
from axe_eq_backends.cpu.run import CpuRunner
from axe_eq_backends.cpu.target import cpu
from tests.unit.mesh.programs import CASES, M4, arguments, compiled
from tests.unit.mesh.refusals import refusals

ROUNDS = {"softmax", "softmax of a cut axis", "rmsnorm", "attention", "two by four"}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", CASES)
def test_programs_compute_on_a_mesh_what_they_mean(name: str) -> None:
    exe, given = compiled(name), arguments(name)
    found, meant = exe(*given), exe.meaning(*given)
    (nesting, results), (wanted_nesting, wanted) = flatten(found), flatten(meant)
    assert nesting == wanted_nesting
    for result, want in zip(results, wanted, strict=True):
        assert result.dtype == want.dtype
        if name in ROUNDS:
            np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)
        else:
            assert np.array_equal(result, want)
    assert exe.schedule.simulation.sent == exe.plan.n_bytes
    assert exe.plan.link_bytes == exe.cost["link_bytes"]


@pytest.mark.parametrize("name", ["mlp", "roll", "odd sums", "two outputs", "merged dims"])
def test_a_plan_is_read_back_from_its_json(name: str) -> None:
    plan = compiled(name).plan
    again = plan_from_json(plan.to_json())
    prove(again)
    assert (again.to_json(), str(again)) == (plan.to_json(), str(plan))
    data = json.loads(plan.to_json())
    for step in data["steps"]:
        if step["kind"] == "exchange":
            sent = sum(m["n_bytes"] for m in step["messages"])
            assert sent == sum(plan.n_bytes[step["name"]])
            for message in step["messages"]:
                assert sum(p["n_bytes"] for p in message["parts"]) == message["n_bytes"]


def test_a_plan_prints_every_message(golden: Callable[[str], None]) -> None:
    golden(f"{compiled('roll').plan}\n\n{compiled('everywhere').plan}\n")


def test_a_sum_is_folded_once_and_copied() -> None:
    """Copies of a result are copies of one sum: no device adds in an order of its own."""
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((16, 32), np.float32), rng.standard_normal((32, 8), np.float32)
    exe = compiled("everywhere")
    assert [s.pattern for s in exe.plan.exchanges] == ["all_to_all of 4", "all_gather of 4"]
    for made in (exe, compiled("everywhere", objective="time")):
        made(x, w)  # refuses copies that differ


def test_selectors_of_selectors_are_one_exchange() -> None:
    (step,) = [s for s in compiled("roll").plan.exchanges if len(s.nodes) > 2]
    assert [n.kind for n in step.nodes] == ["load", "gather", "gather", "gather"]
    assert sum(compiled("roll").plan.n_bytes[step.name]) == 4 * 8 * 4  # one row to each


def test_what_devices_compute_between_exchanges_is_fused() -> None:
    """One program of a device's own parts: its kernels are of several operators."""
    for name, kernels in {"softmax": 1, "rmsnorm": 1, "mlp": 3}.items():
        exe = compiled(name)
        assert len(exe.kernels) == kernels, name
        assert len(exe.program.nodes()) > kernels + 2


def test_a_halo_is_all_that_windows_move() -> None:
    rows = 3 * 2 * 4  # bytes of a row of all channels
    for name, n_rows in {"convolution": 6, "convolution in steps": 3}.items():
        assert compiled(name).plan.link_bytes == n_rows * rows


def test_a_lookup_sends_no_part_of_its_table() -> None:
    """Every device reads what it has; the rows that are found are exchanged, and the integers."""
    exe = compiled("vocabulary")
    assert exe.plan.link_bytes == 3 * 8 * 4 + 3 * 8 * 8 * 4


def test_peak_memory_is_what_is_alive_and_what_is_sent() -> None:
    plan = compiled("gathered product").plan
    (gather, *_) = plan.exchanges
    part, whole = 16 * 32 * 4 // 4, 16 * 32 * 4
    weights = 32 * 8 * 4 // 4
    sent = plan.n_bytes[gather.name][0]
    assert plan.peak_bytes[0] >= part + weights
    assert sent in (3 * part, 3 * weights)
    assert max(plan.peak_bytes) <= whole * 4


def test_values_between_kernels_of_a_step_are_counted() -> None:
    """Rows of an MLP need no exchange; 4 hidden rows lie between two kernels of a rank."""
    rows = axe.read("jax", "P('x',None)", shape=(16, 32), mesh=M4)
    exe = axe.compile(
        lambda x, a, b: (x @ a) @ b, axe.Spec((16, 32), "f32", layout=rows), "32x64:f32",
        "64x32:f32", target="cpu", mesh=M4, outputs=[rows], numerics="exact",
    )  # fmt: skip
    plan = exe.plan
    assert [len(s.graph.steps) for s in plan.steps if isinstance(s, LocalStep)] == [2]
    held = sum(plan.local_type(n).n_bytes for n in (*plan.inputs, *plan.outputs))
    assert set(plan.peak_bytes) == {held + 4 * 64 * 4}


# -- damage ----------------------------------------------------------------------------------------


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values of JSON data that hold no others, and of all lists."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from leaves(value, (*path, key))
        return
    if isinstance(data, list):
        if data:
            yield path
        for number, value in enumerate(data):
            yield from leaves(value, (*path, number))
        return
    yield path


def changed(value: Any, rng: random.Random) -> Any:
    if value is None:
        return 0
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice([-1, 1, 2])
    if isinstance(value, float):
        return value + 1.0
    if isinstance(value, list):
        at = rng.randrange(len(value))
        return value[:at] + value[at + 1 :]
    return value + "0" if not value or rng.random() < 0.5 else value[:-1]


def damaged(data: Any, path: tuple[Any, ...], rng: random.Random) -> Any:
    made = json.loads(json.dumps(data))
    inside = made
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = changed(inside[path[-1]], rng)
    return made


def outcome(data: Any, arrays: list[Any]) -> list[bytes] | None:
    """What a plan computes; None where it is refused."""
    try:
        plan = plan_of(data)
        prove(plan)
        return [a.tobytes() for a in Simulation(plan, CpuRunner().prepare)(arrays)]
    except AxeError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None  # `plan_from_json` says that it does not read


# Words that only describe: of people's names, costs and how a kernel is written.
SAID = {"target", "role", "schedule", "row", "time_s", "costs", "rejected", "parameters", "rounds",
        "name", "loops", "kind", "mesh", "dims"}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["mlp", "roll", "everywhere"])
def test_damage_to_any_field_is_refused_or_changes_nothing(name: str, full: bool) -> None:
    plan, given = compiled(name).plan, arguments(name)
    data = json.loads(plan.to_json())
    del data["digest"]
    arrays = [*given, *compiled(name).schedule.constants.values()]
    want = outcome(data, arrays)
    assert want is not None
    rng = random.Random(name)
    paths = list(leaves(data))
    fields: dict[str, list[tuple[Any, ...]]] = {}
    for path in paths:
        fields.setdefault(str([p for p in path if isinstance(p, str)]), []).append(path)
    tried = refused = 0
    for found in fields.values():  # every field of every kind of step
        for path in rng.sample(found, min(len(found), 6 if full else 1)):
            got = outcome(damaged(data, path, rng), arrays)
            tried += 1
            refused += got is None
            if got is not None and got != want:
                computes = {"cell", "text", "operands", "access", "view", "nodes", "roots"}
                words = [p for p in path if isinstance(p, str)]
                assert set(words) & computes, path  # another function, which is another plan
    assert tried >= 60
    assert refused > 0.6 * tried


def test_a_text_that_was_changed_is_refused_by_its_digest() -> None:
    text = compiled("mlp").plan.to_json()
    at = text.index('"src": [0') + len('"src": [')
    with pytest.raises(ScheduleError, match="was changed after it was written"):
        plan_from_json(text[:at] + "1" + text[at + 1 :])
    for wrong in ("", "{}", "[" * 100_000, text[:-9], text.replace('"format": 3', '"format": 9')):
        with pytest.raises(ScheduleError, match=r"^mesh plan: "):
            plan_from_json(wrong)


def test_stored_blocks_are_all_of_a_value_or_refused() -> None:
    """By brute force; of any number of blocks, which damage may make many."""
    rng = random.Random(0)
    for _ in range(1000):
        scale, offset, window = rng.randint(-4, 4), rng.randint(-6, 6), rng.randint(1, 5)
        n, extent = rng.randint(1, 5), rng.randint(1, 8)
        begins = {scale * k + offset for k in range(n)}
        whole = {b + w for b in begins for w in range(window)} >= {*range(extent)}
        root = TileNode("load", "", "", str(Entry("p", scale, offset, window)), f"f32[{extent}]")
        assert is_stored(root, n) == whole, (root, n)
    assert is_stored(TileNode("load", "", "", "p", "f32[8]"), 2**40)


def test_no_kernel_loops_more_often_than_over_every_index() -> None:
    plan = compiled("mlp").plan
    number, local, at, kernel = next(
        (n, s, k, kernel)
        for n, s in enumerate(plan.steps) if isinstance(s, LocalStep)
        for k, kernel in enumerate(s.graph.steps) if isinstance(kernel, KernelStep) and kernel.loops
    )  # fmt: skip
    steps = [*local.graph.steps]
    steps[at] = replace(kernel, loops=dict.fromkeys(kernel.loops, 2**40))
    other = replace(local, graph=replace(local.graph, steps=tuple(steps)))
    with pytest.raises(ScheduleError, match="loops 1,099,511,627,776 times over"):
        replace(plan, steps=(*plan.steps[:number], other, *plan.steps[number + 1 :])).prove()


def is_stored(root: TileNode, n: int) -> bool:
    try:
        _check_stored("step", root, {"p": n})
    except ScheduleError:
        return False
    return True


def programs(name: str) -> list[list[Event]]:
    plan = compiled(name).plan
    return [program(plan, rank) for rank in range(plan.n_ranks)]


def damaged_program(given: list[list[Event]], rng: random.Random) -> list[list[Event]]:
    made = [list(p) for p in given]
    rank = rng.randrange(len(made))
    at = rng.choice([n for n, e in enumerate(made[rank]) if e.what != "run"])
    event = made[rank][at]
    kind = rng.choice(["drop", "tag", "bytes", "peer", "twice", "order"])
    if kind == "drop":
        del made[rank][at]
    elif kind == "tag":
        made[rank][at] = event._replace(tag=event.tag + 1)
    elif kind == "bytes":
        made[rank][at] = event._replace(n_bytes=event.n_bytes - 1)
    elif kind == "peer":
        made[rank][at] = event._replace(dst=(event.dst + 1) % len(made))
    elif kind == "twice":
        made[rank].insert(at, event)
    else:  # one rank does its last exchange first
        last = max(e.tag for e in made[rank])
        mine = [e for e in made[rank] if e.tag == last]
        made[rank] = [*mine, *(e for e in made[rank] if e.tag != last)]
    return made


@pytest.mark.parametrize("name", ["everywhere", "mlp", "attention"])
def test_damaged_programs_of_ranks_are_refused(name: str, full: bool) -> None:
    good = programs(name)
    check_programs(good)
    rng = random.Random(name)
    for _ in range(300 if full else 40):
        bad = damaged_program(good, rng)
        if bad == good:  # the last exchange first, where it is the only one
            continue
        with pytest.raises(ScheduleError):
            check_programs(bad)


def test_ranks_that_wait_for_each_other_are_seen() -> None:
    """Each waits for what the other sends only afterwards: matched, and a circle."""

    def event(what: str, src: int, dst: int, tag: int) -> Event:
        return Event(what, src, dst, tag, 8)

    def rank(me: int, other: int) -> list[Event]:
        return [
            event("post", other, me, 0), event("wait", other, me, 0),
            event("send", me, other, 0), event("wait", me, other, 0),
        ]  # fmt: skip

    with pytest.raises(ScheduleError, match="wait in a circle"):
        check_programs([rank(0, 1), rank(1, 0)])


def test_a_step_that_no_rank_can_run_is_refused() -> None:
    plan = compiled("odd sums").plan
    for number, step in enumerate(plan.steps):
        if not isinstance(step, LocalStep):
            continue
        for ranks in ((0, 1), (), (0, 1, 2, 3, 4)):
            wrong = replace(step, ranks=ranks)
            steps = (*plan.steps[:number], wrong, *plan.steps[number + 1 :])
            if ranks != step.ranks:
                with pytest.raises(ScheduleError, match="rank"):
                    prove(replace(plan, steps=steps))


# -- bad input -------------------------------------------------------------------------------------


def added(x: Any) -> Any:
    return x + 1


def on_four(target: Any = "cpu", layout: Any = None, **more: Any) -> Any:
    return axe.compile(
        added, axe.Spec((16, 8), "f32", layout=layout), mesh=M4, target=target, **more
    )


EIGHT = axe.read("jax", "P('x',None)", shape=(16, 8), mesh=axe.Mesh({"x": 8}))
BAD: dict[str, Callable[[], Any]] = {
    "devices that do not exist": lambda: on_four(layout=EIGHT),
    "output on devices that do not exist": lambda: on_four(outputs=[EIGHT]),
    "below address 0": lambda: on_four(
        layout=axe.Layout([(4, 1, "gpuid"), (4, -8, "m"), (8, 1, "m")])
    ),
    "another axis": lambda: axe.compile(
        added, axe.Spec((16, 8), "f32", layout=axe.Layout([(4, 1, "d"), (32, 1, "m")])),
        mesh=axe.Mesh({"x": 4}, axis="d"), target="cpu",
    ),
    "objective": lambda: on_four(objective="pleasure"),
    "objective of one device": lambda: axe.compile(
        added, "16x8:f32", target="cpu", objective="link_bytes"
    ),
    "a machine without links": lambda: on_four(
        cpu.replace(links=()), axe.read("jax", "P('x',None)", shape=(16, 8), mesh=M4),
        outputs=[axe.read("jax", "P(None,'x')", shape=(16, 8), mesh=M4)],
    ),
    "memory": lambda: on_four(cpu.replace(ram=256)).plan,
    "one device": lambda: axe.compile(added, "16x8:f32", target="cpu").plan,
    "shape": lambda: on_four()(np.zeros((16, 9), np.float32)),
    "dtype": lambda: on_four()(np.zeros((16, 8))),
    "transport": lambda: on_four().on("pigeon"),
    "interpreted": lambda: on_four().interpret(np.zeros((16, 9), np.float32)),
    "orders": lambda: on_four().interpret(np.zeros((16, 8), np.float32), orders=0),
}  # fmt: skip


def test_bad_input_is_one_clear_error(golden: Callable[[str], None]) -> None:
    golden(refusals(BAD))


def test_a_graph_of_a_mesh_says_what_its_moves_go_through() -> None:
    """Selectors are part of a move, in its text and back from its JSON."""
    from axe_eq.schedule.graph import from_json

    graph = compiled("roll").schedule.graph
    again = from_json(graph.to_json())
    assert isinstance(again, ScheduleGraph)
    assert again == graph
    assert any(getattr(s, "nodes", ()) for s in graph.steps if s.kind == "move")


def test_a_timeline_keeps_every_rank_s_order_and_ends() -> None:
    """Lanes do one thing at a time, what is read is there, and all bytes are in the trace."""
    plan = compiled("mlp").plan
    events = plan.events
    for rank, track in {(e.rank, e.track) for e in events}:
        mine = [e for e in events if (e.rank, e.track) == (rank, track)]
        assert all(a.end <= b.start for a, b in pairwise(mine))
    made: dict[tuple[int, str], float] = {}
    for step in plan.steps:
        of = [e for e in events if e.step == step.name]
        for e in of:
            assert all(e.start >= made.get((e.rank, n), 0.0) for n in reads_of(step))
        for rank in range(plan.n_ranks):
            ends = [e.end for e in of if e.rank == rank]
            made |= {(rank, n): max(ends, default=0.0) for n in writes_of(step)}
        if isinstance(step, ExchangeStep):
            sent = tuple(sum(e.n_bytes for e in of if (e.rank, e.track) == (r, "out"))
                         for r in range(plan.n_ranks))  # fmt: skip
            assert sent == plan.n_bytes[step.name]
            assert max(e.end - e.start for e in of) == pytest.approx(step.time_s)
    trace = json.loads(plan.perfetto())["traceEvents"]
    bars = [t for t in trace if t["ph"] == "X"]
    assert [(t["pid"], t["name"]) for t in bars] == [(e.rank, e.step) for e in events]
    page = plan.html()
    assert page.count('class="bar"') == len(events)
    assert all(f"<code>{s.name}</code>" in page for s in plan.steps)


def test_plans_are_values() -> None:
    plan = compiled("mlp").plan
    assert isinstance(plan, MeshPlan)
    assert plan.digest == compiled("mlp").plan.digest != compiled("roll").plan.digest


def test_plans_are_proved_after_many_others() -> None:
    """What is remembered of layouts comes and goes; a plan made before is what it was."""
    plan = compiled("everywhere").plan
    side.cache_clear()
    plan.prove()

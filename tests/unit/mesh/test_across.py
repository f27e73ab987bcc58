"""Kernels that read and store where other devices have a value: where it lies, plans, refusals."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import DeviceError, ScheduleError
from axe_eq.extract.mesh.seen import READ, STORE
from axe_eq.kernel.interp import GlobalTensor, KernelFault
from axe_eq.kernel.spaces import WINDOW_BYTES
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.layout import Layout, Mesh
from axe_eq.mesh.across import across
from axe_eq.mesh.plan import plan_from_json
from axe_eq.mesh.prove import prove
from axe_eq.mesh.sides import side
from axe_eq.mesh.simulate import Simulation
from axe_eq.program.nesting import flatten
from axe_eq.run.host import HOST_ARRAYS
from axe_eq.run.meshes import local_codes
from axe_eq.schedule.window import flattened, in_window, remote
from axe_eq_backends.cpu.run import CpuRunner
from axe_eq_backends.cuda.target import h200
from tests.unit.mesh.carried import carry, seeing
from tests.unit.mesh.programs import CASES, arguments, compiled_for
from tests.unit.mesh.test_plan import ROUNDS, damaged, leaves, outcome
from tests.unit.mesh.test_transports import Copying

# -- where parts lie -------------------------------------------------------------------------------

MESHES = (Mesh({"x": 2}), Mesh({"x": 4}), Mesh({"x": 2, "y": 3}))


def drawn_cut(rng: random.Random, mesh: Mesh, rank: int) -> str:
    """Every axis cuts some dim, or none; the text says the axes of every dim."""
    entries: list[list[str]] = [[] for _ in range(rank)]
    for axis in mesh.shape:
        if (dim := rng.randint(-1, rank - 1)) >= 0:
            entries[dim].append(axis)
    words = [f"({','.join(map(repr, e))},)" if e else "None" for e in entries]
    return f"P({','.join(words)})"


def test_every_element_of_every_part_is_found_where_a_device_has_it() -> None:
    rng, found, refused = random.Random(5), 0, 0
    for _ in range(120):
        mesh = rng.choice(MESHES)
        shape = tuple(12 * rng.randint(1, 2) for _ in range(rng.randint(1, 3)))
        part, whole = (
            side(
                str(axe.read("jax", drawn_cut(rng, mesh, len(shape)), shape=shape, mesh=mesh)
                    .canonical()), shape, "gpuid",
            )
            for _ in range(2)
        )  # fmt: skip
        if len(whole.copies) > 1:
            with pytest.raises(ScheduleError, match="has copies"):
                across(part, whole, mesh.size)
            continue
        value = np.arange(np.prod(shape)).reshape(shape)
        memories = [whole.scatter(value, rank) for rank in range(mesh.size)]
        try:
            made = across(part, whole, mesh.size)
        except ScheduleError:
            refused += 1
            continue
        found += 1
        for rank in range(mesh.size):
            device, address = made.places(rank)
            read = [memories[d][a] for d, a in zip(device, address, strict=True)]
            assert read == part.scatter(value, rank).tolist()
    assert found > 40
    assert refused < 20


@pytest.mark.parametrize(
    ("part", "whole", "wrong"),
    [
        ("S[(8):(1@m)] + R[(2):(1@gpuid)]", "S[(8):(1@m)]", "has copies|lacks|0 boxes|None"),
        ("S[(4,2):(2@m,1@m)] + R[(2):(1@gpuid)]", "S[(8):(1@m)] + R[(2):(1@gpuid)]", "has copies"),
        ("S[(8):(2@m)] + R[(2):(1@gpuid)]", "S[(2,4):(1@gpuid,1@m)]", "is not dense"),
        ("S[(2,4):(-1@gpuid,1@m)] + 1@gpuid", "S[(4,2):(1@m,1@gpuid)]", None),
        ("S[(2,4):(1@gpuid,1@m)]", "S[(2,2,2):(1@gpuid,1@m,2@m)]", None),
        ("S[(2,4):(1@gpuid,1@m)]", "S[(2,2,2):(1@m,1@gpuid,2@m)]", None),
    ],
)
def test_what_no_layout_says_for_all_ranks_is_refused(
    part: str, whole: str, wrong: str | None
) -> None:
    sides = [side(text, (8,), "gpuid") for text in (part, whole)]
    if wrong is None or "None" in wrong:  # these are strides of devices and memory
        made = across(*sides, 2)
        value = np.arange(8)
        memories = [sides[1].scatter(value, rank) for rank in range(2)]
        for rank in sides[0].devices.tolist():
            device, address = made.places(rank)
            read = [memories[d][a] for d, a in zip(device, address, strict=True)]
            assert read == sides[0].scatter(value, rank).tolist()
        return
    with pytest.raises(ScheduleError, match=wrong):
        across(*sides, 2)


def test_a_device_is_a_stride_of_the_window() -> None:
    layout = Layout.parse("S[(3,4):(1@gpuid,1@m)] + 8@m")
    far = WINDOW_BYTES // 2
    assert str(in_window(layout, 2)) == f"S[(3,4):({far}@m,1@m)] + 8@m"
    assert in_window(Layout([(8, 1)]), 2) == Layout([(8, 1)])
    texts = str(layout), "S[(2,4):(1@gpuid,1@m)]", "S[(8):(1@m)]"
    assert [remote(text) for text in texts] == [2 * (1 - 1 / 3), 0.5, 0.0]


def test_an_element_beside_what_a_device_has_is_a_fault() -> None:
    """The interpreter has the memories of all devices, each as far as the tensor reaches."""
    far = WINDOW_BYTES // 4
    k = ThreadBuilder("k", 1)
    tensor = k.tensor("x", "f32", (2, 4), strides=(far, 1))
    found = GlobalTensor(tensor, np.arange(8, dtype=np.float32).reshape(2, 4), {}, "CTA")
    assert len(found.data) == 8
    assert found.read(np.array([3, far, far + 3]), np.array(True)).tolist() == [3, 4, 7]
    for wrong in (4, far - 1, far + 4, 2 * far):
        with pytest.raises(KernelFault, match="is accessed"):
            found.read(np.array([wrong]), np.array(True))


# -- plans -----------------------------------------------------------------------------------------

READS = ("gathered product", "everywhere", "reassociated", "mlp", "softmax of a cut axis",
         "column sums", "integers", "two by four", "three devices", "prefix sums", "gram",
         "constant")  # fmt: skip
STORES = ("summed product", "mlp", "column sums", "integers", "softmax of a cut axis", "gram")
WAYS = [(name, READ) for name in READS] + [(name, STORE) for name in STORES]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "how"), WAYS)
def test_kernels_that_see_other_devices_compute_what_is_meant(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = carry(monkeypatch, how)
    with axe.debug(check=1):
        exe = compiled_for(name, seeing())
        given = arguments(name)
        found = exe(*given)
    if not numbers:
        assert not exe.plan.seen
        return
    assert exe.plan.seen
    assert bool(exe.plan.stored) == (how == STORE)
    for result, want in zip(flatten(found)[1], flatten(exe.meaning(*given))[1], strict=True):
        if name in ROUNDS:
            np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)
        else:
            assert np.array_equal(result, want)
    assert exe.schedule.simulation.sent == exe.plan.n_bytes
    again = plan_from_json(exe.plan.to_json())
    prove(again)
    assert again.digest == exe.plan.digest
    run = exe.on(Copying())  # which sees nothing: messages are copied
    copied = run.whole(run(run.shards(*given)))
    for one, two in zip(flatten(copied)[1], flatten(found)[1], strict=True):
        assert np.array_equal(one, two)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "how"), [("mlp", READ), ("summed product", STORE)])
def test_damage_to_what_kernels_carry_is_refused_or_changes_nothing(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    carry(monkeypatch, how)
    exe, given = compiled_for(name, seeing()), arguments(name)
    data = json.loads(exe.plan.to_json())
    del data["digest"]
    want = outcome(data, given)
    assert want is not None
    rng = random.Random(name)
    fields: dict[str, list[tuple[Any, ...]]] = {}
    for path in leaves(data):
        fields.setdefault(str([p for p in path if isinstance(p, str)]), []).append(path)
    for paths in fields.values():
        for path in rng.sample(paths, min(len(paths), 6 if full else 1)):
            got = outcome(damaged(data, path, rng), given)
            if got is not None and got != want:
                computes = {"cell", "text", "operands", "access", "view", "nodes", "roots"}
                assert {p for p in path if isinstance(p, str)} & computes, path


def test_a_buffer_across_devices_is_one_value_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    carry(monkeypatch, STORE)
    plan = compiled_for("summed product", seeing()).plan
    (name,) = plan.stored
    root = plan.buffers[name].within

    everywhere = f"S[({plan.buffers[root].value_type.size}):(1@m)] + R[(4):(1@gpuid)]"

    def changed(**buffers: Any) -> Any:
        return replace(plan, buffers={**plan.buffers, **buffers})

    for wrong, buffers in (
        ("lies within ''", {name: replace(plan.buffers[name], within="")}),
        ("lies in S", {name: replace(plan.buffers[name], within="", across=False)}),
        ("has copies", {root: replace(plan.buffers[root], layout=everywhere)}),
    ):
        with pytest.raises(ScheduleError, match=wrong):
            prove(changed(**buffers))


# -- the choice, and machines ----------------------------------------------------------------------

M2 = Mesh({"x": 2})
R, C = "P('x',None)", "P(None,'x')"


def product(kind: str, shape: tuple[int, int, int], target: Any) -> Any:
    m, n, k = shape
    cuts = (R, C, C) if kind == "gathered" else (C, R, R)
    shapes = ((m, k), (k, n), (m, n))
    layouts = [axe.read("jax", c, shape=s, mesh=M2) for c, s in zip(cuts, shapes, strict=True)]
    specs = [axe.Spec(s, "f16", layout=x) for s, x in zip(shapes[:2], layouts, strict=False)]
    return axe.compile(lambda x, w: x @ w, *specs, target=target, mesh=M2, outputs=layouts[2:])


@pytest.mark.parametrize("kind", ["gathered", "summed"])
def test_small_exchanges_are_carried_by_kernels_where_devices_see_each_other(kind: str) -> None:
    exe = product(kind, (64, 64, 128), h200)
    assert exe.plan.seen
    assert "kernels" in exe.explain()
    blind = h200.replace(links=tuple(replace(link, wait_s=0.0) for link in h200.links))
    assert not product(kind, (64, 64, 128), blind).plan.seen
    rng = np.random.default_rng(0)
    given = [rng.integers(-2, 3, s).astype(np.float16) for s in ((64, 128), (128, 64))]
    for found in (exe(*given), exe.interpret(*given)):
        assert np.array_equal(found, exe.meaning(*given))


def test_an_input_that_is_returned_is_read_where_no_other_device_has_it() -> None:
    rows, everywhere = (axe.read("jax", cut, shape=(512, 8), mesh=M2) for cut in ("P('x')", "P()"))
    given = axe.Spec((512, 8), "f16", layout=rows)
    exe = axe.compile(lambda x: (x * 2, x), given, target=h200, mesh=M2, outputs=[everywhere, rows])
    assert exe.plan.link_bytes
    assert not exe.plan.seen


def test_a_kernel_that_reads_over_a_link_often_costs_that() -> None:
    """A product of many columns reads rows once for each block of them; of a copy it reads them so
    often from its own memory."""
    exe = product("gathered", (256, 8192, 2048), h200)
    assert exe.plan.seen
    assert [k.schedule for k in exe.kernels] == ["lanes", "tensor_cores"]


class Blind:
    """Devices that see no other's memory, on the host."""

    name, on_device, one_process = "blind", True, True

    def open(self, n_ranks: int) -> Any:
        self.n_ranks, self.arrays = n_ranks, [HOST_ARRAYS] * n_ranks
        return self

    def command(self, n_ranks: int) -> list[str]:
        raise AssertionError

    exchange = Copying.exchange


def test_devices_that_see_nothing_send_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    exe = product("summed", (64, 64, 128), h200)
    assert {"k0", "k0_silent_apart"} <= local_codes(exe.schedule).keys()
    plan = exe.plan.apart
    prove(plan)
    assert not plan.seen
    assert (plan.n_bytes, plan.apart) == (exe.plan.n_bytes, plan)
    monkeypatch.setattr(exe.schedule, "codes", {"k0": b"", "k1": b""})
    wrong = "plan: has no code of 'k0_silent_apart', which devices run that see no other's memory"
    with pytest.raises(DeviceError, match=wrong):
        exe.on(Blind())


@pytest.mark.parametrize(("name", "how"), [("mlp", READ), ("summed product", STORE)])
def test_plans_with_messages_instead_compute_the_same(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry(monkeypatch, how)
    exe, given = compiled_for(name, seeing()), arguments(name)
    assert axe.equivalent(CASES[name].fn, exe.plan)
    found = Simulation(exe.plan.apart, CpuRunner().prepare)(given)
    for one, two in zip(found, flatten(exe(*given))[1], strict=True):
        assert np.array_equal(one, two)


def test_graphs_across_devices_lie_flat_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    carry(monkeypatch, READ)
    exe = compiled_for("mlp", seeing())
    graphs = [s.graph for s in exe.plan.steps if hasattr(s, "graph")]
    found = [b.layout for g in graphs for b in g.buffers.values() if "gpuid" in b.layout]
    assert found
    for graph in map(flattened, graphs):
        texts = [b.layout for b in graph.buffers.values()]
        texts += [a.layout for s in graph.steps for a in (*s.reads, *s.writes)]
        assert not any("gpuid" in text for text in texts)

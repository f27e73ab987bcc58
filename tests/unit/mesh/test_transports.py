"""Transports of devices, as far as none is needed: shards, collectives, saved plans, errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ArgumentError, AxeError, DeviceError
from axe_eq.layout import Mesh
from axe_eq.mesh import redistribute
from axe_eq.mesh.rank import Rank
from axe_eq.mesh.simulate import Simulation
from axe_eq.mesh.steps import ExchangeStep
from axe_eq.program.nesting import flatten
from axe_eq.run.host import HOST_ARRAYS
from axe_eq.run.meshes import local_codes
from axe_eq_backends.mesh.torch_ranks import TorchTransport
from axe_eq_backends.mesh.wires import collective_of, sum_of
from tests.unit.mesh.blocks import in_blocks
from tests.unit.mesh.programs import arguments, compiled

M8, M24 = Mesh({"x": 8}), Mesh({"x": 2, "y": 4})


# -- one process with all ranks --------------------------------------------------------------------


class Copying:
    """All ranks in this process, on numpy; exchanges end when what they make is read."""

    name, on_device, one_process = "copying", False, True

    def open(self, n_ranks: int) -> Any:
        self.n_ranks, self.arrays = n_ranks, [HOST_ARRAYS] * n_ranks
        return self

    def command(self, n_ranks: int) -> list[str]:
        raise AssertionError

    def exchange(self, step: ExchangeStep, ranks: Sequence[Rank]) -> list[int]:
        sent = Simulation.exchange(self, step, ranks)  # type: ignore[arg-type]
        for rank in ranks:
            arrived = rank.memory[step.write.buffer]
            waiting = np.zeros_like(arrived)

            def finish(waiting: Any = waiting, arrived: Any = arrived) -> None:
                waiting[...] = arrived

            rank.memory[step.write.buffer] = waiting
            rank.arriving[step.write.buffer] = finish
        return sent


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["mlp", "everywhere", "two outputs", "constant", "roll", "halves"])
def test_one_process_runs_all_ranks_on_their_own_shards(name: str) -> None:
    exe, given = compiled(name), arguments(name)
    run = exe.on(Copying())
    results = run(run.shards(*given))
    assert len(results) == run.n_ranks == exe.plan.n_ranks
    found, wanted = run.whole(results), exe(*given)
    pairs = zip(flatten(found)[1], flatten(wanted)[1], strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
    assert [r[n] for n, sent in exe.plan.n_bytes.items() for r in run.sent] == [
        s for sent in exe.plan.n_bytes.values() for s in sent
    ]
    launched = exe.launch(*given, transport=Copying())
    pairs = zip(flatten(launched.outputs)[1], flatten(wanted)[1], strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
    assert launched.sent == exe.plan.n_bytes


def test_a_rank_that_holds_nothing_of_a_result_gives_zeros() -> None:
    mesh, alone = Mesh({"x": 2}), axe.Layout([(12, 1)])  # on the first device
    rows = axe.read("jax", "P('x',None)", shape=(4, 3), mesh=mesh)
    spec = axe.Spec((4, 3), "i32", layout=rows)
    exe = axe.compile(lambda x: x * 2, spec, target="cpu", mesh=mesh, outputs=[alone])
    x = np.arange(1, 13, dtype=np.int32).reshape(4, 3)
    assert np.array_equal(exe.launch(x, transport=Copying()).outputs, x * 2)
    run = exe.on(Copying())
    first, second = run(run.shards(x))
    assert np.array_equal(first.reshape(4, 3), x * 2)
    assert second.shape == first.shape
    assert not second.any()


def test_of_one_process_the_liar_is_named_by_rank() -> None:
    run = compiled("mlp everywhere").on(Copying())
    shards = run.shards(*arguments("mlp everywhere"))
    lied = [*shards[:2], (shards[2][0] + 1, *shards[2][1:]), shards[3]]
    for given, wrong in (
        (lied, "rank 2, shard 'x': differs from the copies of ranks 0 1 3"),
        ([(s[0][:3], *s[1:]) for s in shards], r"rank 0, shard 'x': has shape \(3, 32\)"),
        (shards[:3], "shards: are those of 3 ranks; expected 4 tuples, one per rank"),
    ):
        with pytest.raises(ArgumentError, match=wrong):
            run(given)


# -- collectives -----------------------------------------------------------------------------------

MOVES = [
    ("jax:P('x',None)", "jax:P(None,None)", (16, 8), M8, "all_gather"),
    ("jax:P(('x','y'),None)", "jax:P('x',None)", (16, 8), M24, "all_gather"),  # in two groups
    ("jax:P(None,'x')", "jax:P('x',None)", (16, 8), M8, None),  # columns do not lie dense
    ("jax:P('x',None)", "jax:P(None,None)", (16, 8), Mesh({"x": 4}), "all_gather"),
    ("jax:P('x',None)", "S[(8,8,4):(1@gpuid,1@m,8@m)] + R[(1):(1@gpuid)]", (64, 4), M8, None),
    ("S[(8,8,2):(1@gpuid,2@m,1@m)]", "S[(8,8,2):(2@m,1@gpuid,1@m)]", (64, 2), M8, "all_to_all"),
]


@pytest.mark.parametrize(("source", "goal", "shape", "mesh", "kind"), MOVES)
def test_a_collective_is_one_where_all_parts_lie_in_the_order_of_ranks(
    source: str, goal: str, shape: tuple[int, ...], mesh: Mesh, kind: str | None
) -> None:
    messages = redistribute(source, goal, shape=shape, mesh=mesh).messages
    found = collective_of(messages)
    assert (found.kind if found else None) == kind
    if found is not None:
        check_collective(messages, found, mesh.size)


def test_collectives_of_plans_move_what_their_messages_move() -> None:
    kinds = []
    for name in ("mlp", "everywhere", "two by four", "constant", "roll"):
        plan = compiled(name).plan
        for step in plan.exchanges:
            if (found := collective_of(step.messages)) is not None:
                check_collective(step.messages, found, plan.n_ranks)
                kinds.append(found.kind)
    assert {"all_gather", "all_to_all"} == set(kinds)


def check_collective(messages: Any, found: Any, n_ranks: int) -> None:
    """What the collective leaves on every rank is what the messages leave."""
    rng = np.random.default_rng(0)
    (side,) = messages.sources
    sources = rng.integers(0, 250, (n_ranks, side.n_elements))
    wanted = np.zeros((n_ranks, messages.goal.n_elements), np.int64)
    for rank in range(n_ranks):
        messages.start(rank, [sources[rank]], wanted[rank])
    for src, dst in messages.pairs:
        messages.unpack(src, dst, messages.packed(src, dst, [sources[src]]), wanted[dst])
    n, made = found.count, np.zeros_like(wanted)
    for group in found.groups:
        for j, rank in enumerate(group):
            for i, src in enumerate(group):
                begin = found.sources[src] + (j * n if found.kind == "all_to_all" else 0)
                at = found.goals[rank] + i * n
                made[rank, at : at + n] = sources[src, begin : begin + n]
    assert np.array_equal(made, wanted)


def product(
    n: int, dtype: str, fn: Callable[..., Any] = lambda x, w: x @ w, columns: int = 8,
    objective: str = "link_bytes",
) -> Any:  # fmt: skip
    """A product over a cut dim on so many devices, its result cut by rows."""
    mesh = Mesh({"x": n})
    shapes = (((16, 1024), "P(None,'x')"), ((1024, columns), "P('x',None)"))
    specs = [axe.Spec(s, dtype, layout=axe.read("jax", c, shape=s, mesh=mesh)) for s, c in shapes]
    goal = axe.read("jax", "P('x',None)", shape=(16, columns), mesh=mesh)
    return axe.compile(fn, *specs, target="cpu", mesh=mesh, outputs=[goal], objective=objective)


SUMS = [
    (2, "f16", True), (2, "f32", True), (2, "bf16", True), (4, "f32", False), (4, "i32", True),
    (2, "i16", False),
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("n", "dtype", "is_one"), SUMS)
def test_a_fold_is_a_reduce_scatter_where_that_gives_its_bits(
    n: int, dtype: str, is_one: bool
) -> None:
    plan = product(n, dtype).plan
    (step,) = plan.exchanges
    found = collective_of(step.messages)
    assert found is not None
    fold = sum_of(plan, step, found)
    assert (fold is not None) == is_one
    if fold is not None:
        assert fold is plan.steps[-1]


def test_two_halves_are_rounded_once_by_the_fold() -> None:
    """So a reduce-scatter, which adds them as they are, gives the same bits."""
    exe = product(2, "f16")
    fold = exe.plan.steps[-1]
    shape = exe.plan.local_type(fold.reads[0]).shape
    run = exe.schedule.runners["cpu"].prepare(fold.graph)
    rng = np.random.default_rng(0)
    for scale in (1e-7, 1.0, 1e4):
        parts = (rng.standard_normal(shape) * scale).astype(np.float16)
        with np.errstate(over="ignore"):
            assert np.array_equal(run([parts])[0], parts[0] + parts[1])


def test_what_is_no_sum_alone_stays_a_fold() -> None:
    plan = product(2, "f32", lambda x, w: axe.nn.relu(x @ w)).plan
    (step,) = plan.exchanges
    found = collective_of(step.messages)
    assert found is not None
    assert sum_of(plan, step, found) is None


@pytest.mark.parametrize("dim", [0, 1])
def test_a_sum_on_the_way_is_left_where_its_block_lies_dense(
    dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of rows lie so within the whole, those of columns do not."""
    in_blocks(monkeypatch, [2], dim=dim)
    plan = product(2, "f32", columns=64, objective="time").plan
    moves = [(s, collective_of(s.messages)) for s in plan.exchanges if plan.is_sent(s)]
    folds = [sum_of(plan, step, found) for step, found in moves if found is not None]
    assert len(folds) == 2
    assert all((fold is None) == (dim == 1) for fold in folds)
    inside = [b for b in plan.buffers.values() if b.within == plan.outputs[0]]
    assert len(inside) == 2


# -- saved plans -----------------------------------------------------------------------------------


def test_a_saved_plan_runs_and_is_the_plan_that_was_saved(tmp_path: Path) -> None:
    exe, given = compiled("mlp"), arguments("mlp")
    exe.save(tmp_path / "mlp.axe")
    again = axe.load(tmp_path / "mlp.axe")
    assert again.plan.digest == exe.plan.digest
    assert again.explain() == exe.explain()
    assert np.array_equal(again(*given), exe(*given))
    run = again.on(Copying())
    assert np.array_equal(run.whole(run(run.shards(*given))), exe(*given))


def test_a_plan_for_gpus_is_saved_with_the_code_of_its_local_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = compiled("summed product", "h200")
    exe.save(tmp_path / "product.axe")
    again = axe.load(tmp_path / "product.axe")
    names = [s.name for s in exe.plan.steps if not isinstance(s, ExchangeStep)]
    assert list(local_codes(again.schedule)) == names
    monkeypatch.setattr(type(exe.schedule.runners["cuda"].loaded), "compile", None)
    assert local_codes(again.schedule) == local_codes(exe.schedule)
    given = arguments("summed product")
    assert np.array_equal(again(*given), compiled("summed product")(*given))  # simulated


# -- bad input -------------------------------------------------------------------------------------


def test_what_is_missing_is_said_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    exe, given, lines = compiled("mlp"), arguments("mlp"), []
    calls: list[Callable[[], Any]] = [
        lambda: exe.on("nccl"),
        lambda: exe.on("gloo"),
        lambda: exe.on("peers"),
        lambda: exe.launch(*given, transport="gloo"),
        lambda: exe.launch(*given, transport="nccl"),
    ]
    for call in calls:
        with pytest.raises(AxeError) as error:
            call()
        lines.append(f"{type(error.value).__name__}: {error.value}")
    golden("\n".join(lines) + "\n")


class Torch:
    """So much of torch as a transport asks before it begins."""

    __version__ = "2.11"

    class distributed:
        is_initialized = staticmethod(lambda: False)
        is_nccl_available = staticmethod(lambda: True)
        is_gloo_available = staticmethod(lambda: False)

    class cuda:
        device_count = staticmethod(lambda: 1)
        set_device = staticmethod(lambda device: None)


def test_ranks_that_were_not_started_as_such_are_told_how(
    monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", Torch)
    monkeypatch.setitem(sys.modules, "torch.distributed", Torch.distributed)
    nccl, lines = TorchTransport("nccl", on_device=True), []
    started = [
        {},
        {"RANK": "0", "WORLD_SIZE": "3", "LOCAL_RANK": "0"},
        {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"},
    ]
    for told in started:
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            monkeypatch.delenv(name, raising=False)
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(DeviceError) as error:
            nccl.open(2)
        lines.append(f"{told}\n  {error.value}")
    with pytest.raises(DeviceError) as error:
        TorchTransport("gloo", on_device=False).open(2)
    golden("\n".join([*lines, f"gloo\n  {error.value}"]) + "\n")

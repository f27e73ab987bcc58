"""What `explain` says: names of the program, every part of a time, why there is no kernel less."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.program.show import value_names
from axe_eq.run.executable import Executable
from axe_eq.schedule.graph import BufferSpec
from axe_eq.schedule.memory import stored_bytes


def normed(x: Any, w: Any, b: Any) -> Any:
    return nn.layernorm(nn.gelu(x @ w + b))


@pytest.fixture(scope="module")
def exe() -> Executable:
    return axe.compile(normed, "256x512:f16", "512x384:f16", "384:f16", target="h200")


@pytest.fixture(scope="module")
def shares() -> Executable:
    return axe.compile(
        lambda x, w: nn.softmax(x @ w, axis=-1), "256x512:f16", "512x384:f16", target="h200"
    )


@pytest.fixture(scope="module")
def front(shares: Executable) -> list[Any]:
    return shares.pareto()


def test_values_are_called_what_the_program_calls_them(exe: Executable, front: list[Any]) -> None:
    names = {f"{name} ({node.type})" for node, name in value_names(exe.program).items()}
    said = re.findall(r"%\d+ \([^)]*\)", exe.explain())
    assert said
    assert set(said) <= names
    assert [p.materialised for p in front] == [("%2 (f16[256,384])",)]


def test_changes_that_cost_alike_are_one_line(exe: Executable) -> None:
    text = exe.explain()
    block = text[text.index("compared with:") : text.index("evaluated")].splitlines()[1:-1]
    costs = [line.rsplit(": ", 1)[1] for line in block if "x" in line.rsplit(": ", 1)[1][-6:]]
    assert len(costs) == len(set(costs))
    assert any("any one of" in line for line in block)


def test_it_says_that_runners_up_were_not_built(exe: Executable) -> None:
    assert exe.explain().count("under this cost model; runners-up are priced, not built") == 1


def test_it_says_why_there_is_no_kernel_less(exe: Executable) -> None:
    assert len(exe.kernels) == 2
    # Which of several equal values is in memory is no matter.
    wanted = (
        r"recompute %\d+ \(f\d+\[256,384\]\) where it is read: no schedule covers such a kernel"
    )
    assert re.search(wanted, exe.explain())


def test_parts_and_numbers_of_things_are_said(exe: Executable) -> None:
    text = exe.explain()
    assert ": 2 kernels, estimated " in text
    assert "(1 candidate)" in text
    assert "(1 candidates" not in text
    # Which kernel has the cells between the two depends on prices; the rest is counted.
    assert re.search(r"computes \+ over mul[^\n]*\n", text)
    assert re.search(r"computes [^\n]*cast f32, \+ over id, div, sub, mul, \+ over id, ", text)
    assert re.search(r"computes [^\n]+ \(with \d constants?\)\n", text)
    least = r"(?:the least a kernel takes, [\d.]+ us \(launch [\d.]+ us, )?"
    parts = re.findall(rf"time: {least}(\w+) [\d.]+ us", text)
    assert len(parts) == len(exe.kernels)
    for kernel, longest in zip(exe.kernels, parts, strict=True):
        known = {name: cost for name, cost in kernel.costs.items() if name.endswith("_s")}
        assert f"{longest}_s" == max(known, key=lambda name: known[name])


def test_stored_bytes_mean_the_same_in_costs_and_on_the_front(
    shares: Executable, front: list[Any]
) -> None:
    (point,) = [p for p in front if p.time_s == pytest.approx(shares.cost["time_s"])]
    assert point.stored_bytes == shares.cost["stored_bytes"] == 2 * 256 * 384 * 2
    assert shares.cost["peak_bytes"] == shares.cost["stored_bytes"] + 2 * (256 * 512 + 512 * 384)


def test_a_temporary_is_stored_until_its_last_reader() -> None:
    def f(x: Any) -> Any:
        return axe.array.sum(axe.array.sum(x, axis=0) * 2, axis=0)

    exe = axe.compile(f, "64x64:f32", target="cpu", without=["real", "tensor", "reassociate"])
    graph = exe.schedule.graph

    def size(spec: BufferSpec) -> int:
        return spec.value_type.n_bytes if spec.role in ("temporary", "output") else 0

    alive, most = 0, 0
    for number, step in enumerate(graph.steps):
        alive += sum(size(graph.buffers[w.buffer]) for w in step.writes)
        most = max(most, alive)
        later = {r.buffer for s in graph.steps[number + 1 :] for r in s.reads}
        for name in {r.buffer for r in step.reads} - later:
            alive -= size(graph.buffers[name]) * (graph.buffers[name].role == "temporary")
    assert stored_bytes(graph) == most


def test_a_schedule_is_not_its_own_rival() -> None:
    alone = axe.compile(lambda x: x + 1, "64x64:f32", target="h200").explain()
    fused = axe.compile(lambda x: axe.nn.relu(x) * 3, "64x64:f32", target="h200").explain()
    assert "x1.00" not in alone
    assert "every value materialised" not in alone
    assert "every value materialised: " in fused
    specs = "20x16:bf16", "16x60:bf16"
    engines = axe.compile(lambda x, w: axe.nn.relu(x @ w), *specs, target="trn2").explain()
    assert "compared with:" in engines
    assert "inf" not in engines
    assert not [line for line in (alone + fused).splitlines() if line.endswith((",", " "))]


def test_values_in_several_layouts_are_named_once_and_inputs_are_copied() -> None:
    """Rows of 333 elements may be kept dense and apart."""
    spec = axe.Spec((333, 1001), "bf16", layout="S[(333,1001):(1,333)]")
    text = axe.compile(lambda x: nn.softmax(x.T, axis=-1), spec, target="h200").explain()
    block = text[text.index("compared with:") : text.index("evaluated")].splitlines()[1:-1]
    assert "materialise x" not in text
    assert any("copy x (bf16[333,1001]) first: " in line for line in block)
    for line in block:
        named = re.findall(r"(%\d+|x) \(", line)
        assert len(named) == len(set(named))


@pytest.mark.parametrize(
    ("target", "fn", "specs"),
    [
        ("h200", lambda x: x * 2, ["128x512:f32"]),
        ("h200", lambda x, w: x @ w, ["24x40:f32", "40x16:f32"]),
        ("trn2", lambda x: x * 2, ["16:f32"]),
    ],
)
def test_of_a_small_kernel_the_least_that_one_takes_is_what_bounds_it(
    target: str, fn: Any, specs: list[str]
) -> None:
    small = axe.compile(fn, *specs, target=target)
    (kernel,) = small.kernels
    launch, floor = small.target.launch_s, kernel.costs["latency_s"]
    assert launch + floor <= kernel.time_s * (1 + 1e-9) < 1.5 * (launch + floor)
    least, begin, beside = (f"{s * 1e6:.1f} us" for s in (launch + floor, launch, floor))
    wanted = f"      time: the least a kernel takes, {least} (launch {begin}, latency {beside})"
    assert wanted in small.explain()
    assert "latency_s" not in small.cost


def test_of_a_large_kernel_the_latency_bounds_nothing() -> None:
    large = axe.compile(lambda x: x * 2, "8192x8192:f32", target="h200")
    assert "the least a kernel takes" not in large.explain()
    assert "      time: memory " in large.explain()


def test_it_says_which_kernels_are_too_large_to_be_one(exe: Executable) -> None:
    def long(x: Any) -> Any:
        for n in range(12):
            x = axe.array.tanh(x * 1.01 + n)
        return x

    cut = axe.compile(long, "64x64:f32", target="cpu")
    computed = [[n for n in k.nodes if n.kind != "load"] for k in cut.kernels]
    text = cut.explain()
    for (a, mine), (b, theirs) in pairwise(zip(cut.kernels, computed, strict=True)):
        constants = {n.text for n in (*mine, *theirs) if not n.operands}
        both = sum(bool(n.operands) for n in (*mine, *theirs)) + len(constants) + 1  # and x
        said = f"  {a.name} and {b.name} as one, without {a.writes[0].buffer}: {both} nodes"
        assert f"{said}, and a kernel has at most 40\n" in text
    assert "as one, without" not in exe.explain()
    assert "numerics: real\n" in text

"""Kernels written by hand: streaming, halos, several outputs, selectors; and wrong graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import axe_eq
from axe_eq.errors import ArgumentError, ScheduleError
from axe_eq.lower.formulas import Fold
from axe_eq.lower.read import read_cone
from axe_eq.program import standard as standard
from axe_eq.program.meaning import evaluate_sel
from axe_eq.program.node import sel_type
from axe_eq.program.ops import SELECTORS, Pull, Selector
from axe_eq.program.types import DTYPES, Array, ValueType, value_type
from axe_eq.schedule.box import sel_boxes
from axe_eq.schedule.graph import (
    Access,
    BufferSpec,
    KernelStep,
    MoveStep,
    ScheduleGraph,
    SpmdStep,
    Step,
    TileNode,
    from_json,
)
from axe_eq_backends.cpu.kernel import Kernel, Needs, sharing
from axe_eq_backends.cpu.run import run_schedule
from tests.unit.schedule.layouts import in_layouts

Rng = np.random.Generator


def dense(type_: str) -> str:
    return f"S[({value_type(type_).size}):(1@m)]"


def load(number: int, type_: str, box: str, view: tuple[str, ...] = ()) -> TileNode:
    return TileNode("load", "", "", box, type_, (), number, view)


def cell(text: str, name: str, box: str, type_: str, *operands: int) -> TileNode:
    return TileNode("cell", text, name, box, type_, operands)


def gather(text: str, box: str, type_: str, *operands: int) -> TileNode:
    return TileNode("gather", text, "", box, type_, operands)


def kernel(
    nodes: Sequence[TileNode],
    roots: Sequence[int],
    types: dict[str, str],
    loops: dict[str, int],
    blocks: dict[str, int],
) -> ScheduleGraph:
    """One kernel that reads the types' buffers in order and stores its roots in y0, y1, ..."""
    outputs = {f"y{n}": nodes[r].type for n, r in enumerate(roots)}
    reads = tuple(Access(n, dense(t)) for n, t in types.items())
    writes = tuple(Access(n, dense(t)) for n, t in outputs.items())
    step = KernelStep(
        "k", tuple(nodes), tuple(roots), reads, writes, loops, "hand", parameters=blocks
    )
    buffers = {n: BufferSpec(n, t, dense(t), "input") for n, t in types.items()}
    buffers |= {n: BufferSpec(n, t, dense(t), "output") for n, t in outputs.items()}
    return ScheduleGraph("test", buffers, (step,), tuple(types), tuple(outputs))


def blocked(graph: ScheduleGraph, **blocks: int) -> ScheduleGraph:
    step = graph.kernels[0]
    return replace(graph, steps=(replace(step, parameters=blocks),))


def edited(graph: ScheduleGraph, **changes: Any) -> ScheduleGraph:
    return replace(graph, steps=(replace(graph.kernels[0], **changes),))


@pytest.fixture
def matmul_bias_relu() -> ScheduleGraph:
    """relu(A @ B + b) in f16, k streamed; the row maxima of A @ B as a second output."""
    nodes = [
        load(0, "f16[20,30]", "p k"),
        load(1, "f16[30,24]", "k q"),
        cell("a c, c b -> a b; + c", "mul", "p q", "f16[20,24]", 0, 1),
        load(2, "f16[24]", "q"),
        cell("a b, b -> a b", "add", "p q", "f16[20,24]", 2, 3),
        gather("full () 0.0 f16", "", "f16[]"),
        cell("a b, -> a b", "maximum", "p q", "f16[20,24]", 4, 5),
    ]
    types = {"A": "f16[20,30]", "B": "f16[30,24]", "b": "f16[24]"}
    return kernel(nodes, [6], types, {"p": 20, "q": 24, "k": 30}, {"p": 8, "q": 5, "k": 7})


def halves(rng: Rng, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float16)


@pytest.mark.parametrize("blocks", [{}, {"p": 8, "q": 5, "k": 7}, {"p": 1, "q": 100, "k": 30}])
def test_a_product_with_its_epilogue(
    blocks: dict[str, int], matmul_bias_relu: ScheduleGraph, rng: Rng
) -> None:
    a, b, bias = halves(rng, 20, 30), halves(rng, 30, 24), halves(rng, 24)
    (found,) = run_schedule(blocked(matmul_bias_relu, **blocks), [a, b, bias])
    wide = [x.astype(np.float32) for x in (a, b, bias)]
    wanted = np.maximum(wide[0] @ wide[1] + wide[2], 0)
    assert found.dtype == np.float16
    # One rounding, at the store: what is summed in f32 is half a unit of f16 away at most.
    np.testing.assert_allclose(found, wanted, rtol=2**-10, atol=2**-14)


def test_intermediates_round_only_where_they_are_stored(rng: Rng) -> None:
    """(x + 1) - 1 in f16: 2**-12 is lost by a rounding in between, and kept without."""
    nodes = [
        load(0, "f16[6]", "p"),
        gather("full () 1.0 f16", "", "f16[]"),
        cell("a, -> a", "add", "p", "f16[6]", 0, 1),
        cell("a, -> a", "sub", "p", "f16[6]", 2, 1),
    ]
    graph = kernel(nodes, [3], {"x": "f16[6]"}, {"p": 6}, {"p": 4})
    x = np.full(6, 2.0**-12, np.float16)
    assert run_schedule(graph, [x])[0].tolist() == [2.0**-12] * 6
    assert run_schedule(edited(graph, rounds=True), [x])[0].tolist() == [0.0] * 6


@pytest.mark.parametrize("chunk", [1, 5, 16, 100])
def test_attention_streams_through_its_online_softmax(chunk: int, rng: Rng) -> None:
    """softmax(Q Kt) V as one structured reduction; scores are made chunk by chunk."""
    nodes = [
        load(0, "f32[2,9,4]", "b p *"),
        load(1, "f32[2,16,4]", "b s *"),
        cell("a b d, a c d -> a b c; + d", "mul", "b p s", "f32[2,9,16]", 0, 1),
        load(2, "f32[2,16,5]", "b s q"),
        cell("a b d, a d c -> a b c; softmax d", "pair", "b p q", "f32[2,9,5]", 2, 3),
    ]
    types = {"q": "f32[2,9,4]", "k": "f32[2,16,4]", "v": "f32[2,16,5]"}
    graph = kernel(
        nodes, [4], types, {"b": 2, "p": 9, "q": 5, "s": 16}, {"p": 4, "q": 3, "s": chunk}
    )
    q, k, v = (rng.standard_normal(value_type(t).shape).astype(np.float32) for t in types.values())
    scores = np.einsum("abd,acd->abc", q, k)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = (weights / weights.sum(-1, keepdims=True)) @ v
    (found,) = run_schedule(graph, [q, k, v])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


SOFTMAX = [
    load(0, "f32[7,50]", "p k"),
    cell("a b -> a; max b", "id", "p", "f32[7]", 0),
    cell("a b, a -> a b", "sub", "p k", "f32[7,50]", 0, 1),
    cell("a b -> a b", "exp", "p k", "f32[7,50]", 2),
    cell("a b -> a; + b", "id", "p", "f32[7]", 3),
    cell("a b -> a; + b", "mul", "p", "f32[7]", 0),
    load(0, "f32[7,50]", "p q"),
    cell("a b, a -> a b", "sub", "p q", "f32[7,50]", 6, 1),
    cell("a b -> a b", "exp", "p q", "f32[7,50]", 7),
    cell("a b, a -> a b", "div", "p q", "f32[7,50]", 8, 4),
]


def softmax_rows() -> ScheduleGraph:
    loops = {"p": 7, "q": 50, "k": 50}
    return kernel(SOFTMAX, [9, 5], {"x": "f32[7,50]"}, loops, {"p": 3, "q": 16, "k": 11})


def test_a_reduction_inside_another_s_loop_is_another_pass(rng: Rng) -> None:
    """Row softmax with maxima, then sums of exponentials, streamed; row sums as a second output."""
    x = rng.standard_normal((7, 50)).astype(np.float32)
    found, sums = run_schedule(softmax_rows(), [x])
    weights = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, weights / weights.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(sums, x.sum(1), rtol=1e-4, atol=1e-5)


def test_reductions_share_a_sweep_unless_one_needs_the_other() -> None:
    cone = read_cone(softmax_rows().kernels[0])
    groups: dict[str, list[tuple[str, ...]]] = {}
    for operand, others in sharing(cone, Needs(cone)).items():
        fold = cone.leaves[operand.index]
        assert isinstance(fold, Fold)
        groups.setdefault(fold.monoid, []).append(tuple(leaf.monoid for _, leaf in others))
    assert groups == {"max": [("+",)], "+": [(), ("max",)]}


@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_a_window_reads_its_halo(block: int, rng: Rng) -> None:
    """A strided convolution of a padded input, all in one kernel."""
    nodes = [
        load(0, "f64[2,11]", "* 2p-1:3"),
        gather("pad ((0,0),(1,2)) 0.5", "* 2p:3", "f64[2,14]", 0),
        load(1, "f64[4,2,3]", "q * *"),
        cell("c 2b+d, a c d -> a b; + c d", "mul", "q p", "f64[4,6]", 1, 2),
    ]
    types = {"x": "f64[2,11]", "w": "f64[4,2,3]"}
    graph = kernel(nodes, [3], types, {"p": 6, "q": 4}, {"p": block, "q": 3})
    x, w = rng.standard_normal((2, 11)), rng.standard_normal((4, 2, 3))
    padded = np.pad(x, ((0, 0), (1, 2)), constant_values=0.5)
    wanted = np.array(
        [[(padded[:, 2 * b : 2 * b + 3] * w[a]).sum() for b in range(6)] for a in range(4)]
    )
    np.testing.assert_allclose(run_schedule(graph, [x, w])[0], wanted)


def test_a_reshaped_buffer_is_read_as_a_view(rng: Rng) -> None:
    nodes = [
        load(0, "f32[6,2,4]", "p b *", ("split 1 (-1,4)",)),
        cell("b a c -> a b c", "id", "b p *", "f32[2,6,4]", 0),
    ]
    graph = kernel(nodes, [1], {"x": "f32[6,8]"}, {"b": 2, "p": 6}, {"p": 4})
    x = rng.standard_normal((6, 8)).astype(np.float32)
    wanted = x.reshape(6, 2, 4).transpose(1, 0, 2)
    assert np.array_equal(run_schedule(graph, [x])[0], wanted)
    columns = in_layouts(graph, {"x": "S[(6,8):(1@m,6@m)]"})
    assert np.array_equal(run_schedule(columns, [x])[0], wanted)


SELECTED = {
    "slice ((5,-2,3),None)": ("5-2p b", ["f32[6,4]"]),
    "flip (0,1)": ("-p+5 -b+3", ["f32[6,4]"]),
    "concat 0": ("p b;p-6 b", ["f32[6,4]", "f32[3,4]"]),
    "split 0 (-1,3)": ("* p", ["f32[6,4]"]),
    "repeat 1 2": ("p *", ["f32[6,4]"]),
    "interleave 0": ("* b;* b", ["f32[6,4]", "f32[6,4]"]),
}


@pytest.mark.parametrize("text", SELECTED)
def test_selectors_of_loaded_and_of_computed_tiles(text: str, rng: Rng) -> None:
    types = SELECTED[text][1]
    out = str(sel_type(text, tuple(map(value_type, types))))
    box = {2: "p b", 3: "b c p"}[value_type(out).rank]
    boxes = sel_boxes(text, "".join(f"{t};" for t in types), box)
    assert boxes is not None
    nodes: list[TileNode] = []
    for n, (type_, own) in enumerate(zip(types, boxes, strict=True)):
        nodes.append(load(n, type_, own))
        if n == 0:
            nodes.append(cell("a b -> a b", "neg", own, type_, 0))
    operands = [n for n, node in enumerate(nodes) if n > 0]
    nodes.append(gather(text, box, out, *operands))
    extents = dict(zip(box.split(), value_type(out).shape, strict=True))
    graph = kernel(
        nodes, [len(nodes) - 1], {f"x{n}": t for n, t in enumerate(types)}, extents, {"p": 2}
    )
    arrays = [rng.standard_normal(value_type(t).shape).astype(np.float32) for t in types]
    wanted = evaluate_sel(text, [-arrays[0], *arrays[1:]])
    assert np.array_equal(run_schedule(graph, arrays)[0], wanted)


@pytest.fixture
def declare() -> Iterator[Callable[[Selector], str]]:
    """Declares selectors for one test."""
    names = []

    def add(selector: Selector) -> str:
        names.append(SELECTORS.add(selector).name)
        return selector.name

    yield add
    for name in names:
        del SELECTORS._by_name[name]


def test_a_selector_that_mixes_moved_and_whole_axes_sees_whole_operands(
    declare: Callable[[Selector], str], rng: Rng
) -> None:
    def run(params: tuple[Any, ...], arrays: Sequence[Array]) -> Array:
        return np.roll(np.take(arrays[0], [4, 3, 2, 1, 0], axis=0), 1, axis=1)

    def pull(params: tuple[Any, ...], types: Sequence[ValueType]) -> list[list[Pull | None]]:
        return [[Pull(0, -1, 4), None]]

    rolled = declare(Selector("rolled", 1, lambda params, types: types[0], run, pull))
    nodes = [
        load(0, "f32[5,4]", "-p+4 *"),
        cell("a b -> a b", "neg", "-p+4 *", "f32[5,4]", 0),
        gather(rolled, "p *", "f32[5,4]", 1),
    ]
    graph = kernel(nodes, [2], {"x": "f32[5,4]"}, {"p": 5}, {"p": 2})
    x = rng.standard_normal((5, 4)).astype(np.float32)
    assert np.array_equal(run_schedule(graph, [x])[0], np.roll(-x[::-1], 1, axis=1))


@pytest.mark.parametrize("block", [1, 2, 3, 8])
def test_a_selector_that_steps_over_both_edges_is_filled_there(
    block: int, declare: Callable[[Selector], str], rng: Rng
) -> None:
    """y[i] = x[2i - 3], 7.5 outside."""

    def shape(params: tuple[Any, ...], types: Sequence[ValueType]) -> ValueType:
        return ValueType(types[0].dtype, (8,))

    def run(params: tuple[Any, ...], arrays: Sequence[Array]) -> Array:
        inside = {i: arrays[0][2 * i - 3] for i in range(8) if 0 <= 2 * i - 3 < 6}
        return np.array([inside.get(i, 7.5) for i in range(8)], arrays[0].dtype)

    def pull(params: tuple[Any, ...], types: Sequence[ValueType]) -> list[list[Pull | None]]:
        return [[Pull(0, 2, -3)]]

    name = declare(Selector("stepped", 1, shape, run, pull, lambda params: 7.5))
    nodes = [load(0, "f32[6]", "2p-3"), gather(name, "p", "f32[8]", 0)]
    graph = kernel(nodes, [1], {"x": "f32[6]"}, {"p": 8}, {"p": block})
    x = rng.standard_normal(6).astype(np.float32)
    assert np.array_equal(run_schedule(graph, [x])[0], evaluate_sel(name, [x]))


# Of a value's rows, what is summed: selectors, boxes of load and value, and operands.
MOVED: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "padding alone in a block": ("pad ((5,6),(0,0)) 2.0", "p-5 k", "p k", {"x": "f32[4,6]"}),
    "parts": ("parts 0 4", "*", "p k", {"x": "f32[10]"}),
    "rows that integers say": ("lookup 0 (0,)", "* k", "p k", {"x": "f32[9,6]", "i": "i64[15]"}),
}


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("blocks", [{}, {"p": 3, "k": 4}])
def test_what_is_reduced_is_read_where_selectors_say(
    name: str, blocks: dict[str, int], rng: Rng
) -> None:
    text, own, box, types = MOVED[name]
    out = str(sel_type(text, tuple(map(value_type, types.values()))))
    rows = value_type(out).shape[0]
    nodes = [load(0, types["x"], own), *([load(1, types["i"], "p")] if "i" in types else [])]
    nodes.append(gather(text, box, out, *range(len(nodes))))
    nodes.append(cell("a b -> a; + b", "id", "p", f"f32[{rows}]", len(nodes) - 1))
    loops = {"p": rows, "k": value_type(out).shape[1]}
    graph = kernel(nodes, [len(nodes) - 1], types, loops, blocks)
    assert Kernel(graph.kernels[0]).formulas is not None
    given = [rng.integers(0, 9, value_type(t).shape).astype(DTYPES[value_type(t).dtype].numpy)
             for t in types.values()]  # fmt: skip
    assert np.array_equal(run_schedule(graph, given)[0], evaluate_sel(text, given).sum(1))


def test_a_root_without_a_grid_letter_is_stored_once(rng: Rng) -> None:
    nodes = [
        load(0, "f32[6,8]", "p k"),
        cell("a b -> a; + b", "id", "p", "f32[6]", 0),
        load(0, "f32[6,8]", "p q"),
        cell("a b, a -> a b", "add", "p q", "f32[6,8]", 2, 1),
    ]
    loops = {"p": 6, "q": 8, "k": 8}
    graph = kernel(nodes, [3, 1], {"x": "f32[6,8]"}, loops, {"p": 2, "q": 3, "k": 3})
    x = np.arange(48, dtype=np.float32).reshape(6, 8)
    both, sums = run_schedule(graph, [x])
    assert np.array_equal(sums, x.sum(1))
    assert np.array_equal(both, x + x.sum(1, keepdims=True))


def test_moves_copy_between_layouts(rng: Rng) -> None:
    layouts = ["S[(4,6):(1@m,5@m)] + 2@m", "sw(2,1,2)@m . S[(24):(1@m)]", "S[(24):(1@m)]"]
    names = ["x", "t", "y"]
    steps: list[Step] = [
        MoveStep(f"m{n}", (Access(names[n], layouts[n]),), (Access(names[n + 1], layouts[n + 1]),))
        for n in range(2)
    ]
    roles = ("input", "temporary", "output")
    buffers = {
        n: BufferSpec(n, "bf16[4,6]", t, r) for n, t, r in zip(names, layouts, roles, strict=True)
    }
    graph = ScheduleGraph("test", buffers, tuple(steps), ("x",), ("y", "x"))
    x = rng.standard_normal((4, 6)).astype(DTYPES["bf16"].numpy)
    found = run_schedule(graph, [x])
    assert all(np.array_equal(f.view(np.uint16), x.view(np.uint16)) for f in found)


def test_a_graph_from_json_runs_alike(matmul_bias_relu: ScheduleGraph, rng: Rng) -> None:
    arrays = [halves(rng, 20, 30), halves(rng, 30, 24), halves(rng, 24)]
    copy = from_json(matmul_bias_relu.to_json())
    assert np.array_equal(run_schedule(copy, arrays)[0], run_schedule(matmul_bias_relu, arrays)[0])


# -- graphs that are wrong ------------------------------------------------------------------------


def test_layouts_that_do_not_fit_are_refused(matmul_bias_relu: ScheduleGraph, rng: Rng) -> None:
    arrays = [halves(rng, 20, 30), halves(rng, 30, 24), halves(rng, 24)]
    reads = matmul_bias_relu.kernels[0].reads
    cases = {
        "S[(600):(2@m)]": "reaches address 1198",
        "S[(300):(1@m)]": "holds 300 elements",
        "S[(600):(1@m)] + 1@m": "reaches address 600",
        "S[(600):(-1@m)]": "reaches address -599",
        "S[(20,30):(1@gpuid,1@m)]": "lies on axis gpuid",
    }
    for layout, message in cases.items():
        wrong = edited(matmul_bias_relu, reads=(Access("A", layout), *reads[1:]))
        with pytest.raises(ScheduleError, match=message) as caught:
            run_schedule(wrong, arrays)
        assert str(caught.value).startswith("step k, buffer 'A', layout")


@pytest.mark.parametrize("layout", ["S[(4,6):(0@m,1@m)]", "S[(4,6):(1@m,1@m)]"])
def test_elements_that_share_an_address_must_be_one(layout: str) -> None:
    spec = axe_eq.Spec((4, 6), "f32", layout=layout)
    exe = axe_eq.compile(lambda x: x + 1, spec, target="cpu")
    flat, steps = np.arange(9, dtype=np.float32), (layout.count("1@m") - 1, 1)
    fits = flat[np.add.outer(steps[0] * np.arange(4), steps[1] * np.arange(6))]
    np.testing.assert_array_equal(exe(fits), fits + 1)
    with pytest.raises(ArgumentError, match="'x': has different elements at one address of its"):
        exe(np.arange(24, dtype=np.float32).reshape(4, 6))


def test_a_store_to_shared_addresses_is_seen(matmul_bias_relu: ScheduleGraph, rng: Rng) -> None:
    arrays = [halves(rng, 20, 30), halves(rng, 30, 24), halves(rng, 24)]
    wrong = edited(matmul_bias_relu, writes=(Access("y0", "S[(20,24):(23@m,1@m)]"),))
    with pytest.raises(ScheduleError, match="stores to 461 addresses"):
        run_schedule(wrong, arrays)


def with_node(graph: ScheduleGraph, number: int, **changes: Any) -> ScheduleGraph:
    nodes = list(graph.kernels[0].nodes)
    nodes[number] = replace(nodes[number], **changes)
    return edited(graph, nodes=tuple(nodes))


def test_nodes_that_cannot_be_are_refused(matmul_bias_relu: ScheduleGraph, rng: Rng) -> None:
    arrays = [halves(rng, 20, 30), halves(rng, 30, 24), halves(rng, 24)]
    cases: list[tuple[ScheduleGraph, str]] = [
        (with_node(matmul_bias_relu, 0, kind="fetch"), "is a 'fetch'"),
        (with_node(matmul_bias_relu, 0, access=3), "loads through access 3"),
        (edited(matmul_bias_relu, roots=(9,)), "root 9"),
        (edited(matmul_bias_relu, roots=()), "0 roots and 1 writes"),
        (with_node(matmul_bias_relu, 2, operands=(0, 6)), r"operands \(0, 6\); expected earlier"),
    ]
    for graph, message in cases:
        with pytest.raises(ScheduleError, match=message):
            run_schedule(graph, arrays)


def test_what_needs_a_mesh_is_refused() -> None:
    type_ = "f32[4]"
    accesses = (Access("x", dense(type_)),), (Access("y", dense(type_)),)
    own = ScheduleGraph("test", {}, (), (), ())
    step = SpmdStep("sum", own, *accesses)
    buffers = {
        "x": BufferSpec("x", type_, dense(type_), "input"),
        "y": BufferSpec("y", type_, dense(type_), "output"),
    }
    graph = ScheduleGraph("test", buffers, (step,), ("x",), ("y",))
    with pytest.raises(ScheduleError, match="step sum: is for the devices of a mesh"):
        run_schedule(graph, [np.zeros(4, np.float32)])


def test_arguments_are_checked(matmul_bias_relu: ScheduleGraph, rng: Rng) -> None:
    a, b, bias = halves(rng, 20, 30), halves(rng, 30, 24), halves(rng, 24)
    with pytest.raises(ArgumentError, match="got 2 arrays; expected 3"):
        run_schedule(matmul_bias_relu, [a, b])
    with pytest.raises(ArgumentError, match=r"argument 'A': is f16\[30,20\]"):
        run_schedule(matmul_bias_relu, [a.T, b, bias])
    with pytest.raises(ArgumentError, match=r"argument 'b': is f32\[24\]"):
        run_schedule(matmul_bias_relu, [a, b, bias.astype(np.float32)])
    assert run_schedule(matmul_bias_relu, [np.asfortranarray(a), b, bias])[0].shape == (20, 24)


def test_names_that_are_no_buffers_are_refused(matmul_bias_relu: ScheduleGraph) -> None:
    with pytest.raises(ScheduleError, match="buffer 'z': is not in the graph"):
        run_schedule(replace(matmul_bias_relu, outputs=("z",)), [])

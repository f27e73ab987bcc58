"""Rank programs: what they compute, what is proved of them, and slips that are found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
import axe_eq.array as xp
from axe_eq import nn
from axe_eq.cli import main
from axe_eq.errors import AxeError, ProgramError
from axe_eq.mesh import (
    RankProgram,
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pmax,
    pmean,
    ppermute,
    psum,
    psum_scatter,
)
from axe_eq.mesh.plan import plan_from_json
from axe_eq.mesh.steps import LocalStep
from axe_eq.program.ops import SELECTORS, join_text
from axe_eq.program.types import ValueType
from axe_eq.prove.certificates.verdict import ProgramCounterexample
from tests.unit.mesh.programs import CASES, compiled

M8, M4 = axe.Mesh({"tp": 8}), axe.Mesh({"x": 4})
M24 = axe.Mesh({"x": 2, "y": 4})
ROWS, COLUMNS = "jax:P('x',None)", "jax:P(None,'x')"


def value(x: Any) -> Any:
    return x * 2


def stated(shape: tuple[int, ...]) -> axe.Spec:
    """A whole output that is cut in rows."""
    return axe.Spec(shape, "f32", layout=axe.read("jax", "P('x',None)", shape=shape, mesh=M4))


# -- the eight variants of a tensor-parallel MLP ---------------------------------------------------


def mlp(x: Any, a: Any, b: Any, bias: Any) -> Any:
    return nn.relu(x @ a) @ b + bias


VARIANTS: dict[str, tuple[Callable[..., Any], type]] = {
    "correct": (lambda x, a, b, c: psum(nn.relu(x @ a) @ b, "tp") + c, axe.Proved),
    "missing all-reduce": (lambda x, a, b, c: nn.relu(x @ a) @ b + c, axe.Refuted),
    "double all-reduce": (
        lambda x, a, b, c: psum(psum(nn.relu(x @ a) @ b, "tp"), "tp") + c, axe.Refuted,
    ),
    "bias before the sum": (lambda x, a, b, c: psum(nn.relu(x @ a) @ b + c, "tp"), axe.Refuted),
    "extra division": (lambda x, a, b, c: psum(nn.relu(x @ a) @ b, "tp") / 8 + c, axe.Refuted),
    "flipped shard": (
        lambda x, a, b, c: psum(xp.flip(nn.relu(x @ a), axis=1) @ b, "tp") + c, axe.Refuted,
    ),
    "dropped activation": (lambda x, a, b, c: psum((x @ a) @ b, "tp") + c, axe.Refuted),
    "product for sum": (lambda x, a, b, c: psum(nn.relu(x @ a) @ b, "tp") * c, axe.Refuted),
    # One more that is right: all ranks have the bias, and it is their mean.
    "mean of copies": (
        lambda x, a, b, c: psum(nn.relu(x @ a) @ b, "tp") + pmean(c, "tp"), axe.Proved,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_the_variants_of_an_mlp_come_out_right(name: str) -> None:
    """Types of placement accept most of these slips; see docs/meshes.md."""
    fn, wanted = VARIANTS[name]
    cuts = [None, "jax:P(None,'tp')", "jax:P('tp',None)", None]
    ranks = RankProgram(fn, M8, cuts)
    specs = [axe.Spec(s, "f32") for s in ((4, 8), (8, 16), (16, 8), (8,))]
    verdict = axe.equivalent(mlp, ranks, *specs)
    assert isinstance(verdict, wanted)
    if isinstance(verdict, axe.Proved):
        assert axe.check_certificate(verdict.certificate)
    else:
        assert isinstance(verdict, axe.Refuted)
        check_counterexample(verdict, mlp, ranks)


def check_counterexample(verdict: axe.Refuted, fn: Any, ranks: RankProgram) -> None:
    """The named rank has that value at that place, and the function another."""
    found = verdict.counterexample
    assert isinstance(found, ProgramCounterexample)
    assert found.rank is not None
    arrays = [np.asarray(a) for a in found.inputs]
    meant = axe.run(fn, *arrays)
    assert float(meant[found.index]) == pytest.approx(float(found.value_a), rel=1e-4)
    traced = ranks.trace(*arrays, outputs=[meant.shape])
    at, number = traced.places[found.rank], np.arange(meant.size).reshape(meant.shape)
    mine = traced.outputs[0].part(number + 1, at) == number[found.index] + 1
    (here,) = traced.run(arrays)[found.rank][0][mine]
    assert float(here) == pytest.approx(float(found.value_b), rel=1e-4)
    assert f"rank {found.rank}" in str(verdict)


# -- what is proved --------------------------------------------------------------------------------


def softmax(x: Any) -> Any:
    top = pmax(xp.max(x, axis=1, keepdims=True), "x")
    e = xp.exp(x - top)
    return e / psum(xp.sum(e, axis=1, keepdims=True), "x")


def rmsnorm(x: Any) -> Any:
    squares = psum(xp.sum(x * x, axis=-1, keepdims=True), "x") / (x.shape[-1] * axis_size("x"))
    return x * xp.reciprocal(xp.sqrt(squares + 1e-6))


def whole_norm(x: Any) -> Any:
    squares = xp.sum(x * x, axis=-1, keepdims=True) / x.shape[-1]
    return x * xp.reciprocal(xp.sqrt(squares + 1e-6))


def ulysses(q: Any, k: Any, v: Any) -> Any:
    """Sequence parts in and out, heads in between (tokens, heads, dim)."""
    q, k, v = (all_to_all(t, "x", 1, 0, tiled=True) for t in (q, k, v))
    scores = nn.softmax(nn.einsum("qhd,khd->hqk", q, k) * 0.5, axis=-1)
    return all_to_all(nn.einsum("hqk,khd->qhd", scores, v), "x", 0, 1, tiled=True)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = nn.softmax(nn.einsum("qhd,khd->hqk", q, k) * 0.5, axis=-1)
    return nn.einsum("hqk,khd->qhd", scores, v)


def layer(total: Callable[[Any], Any]) -> Callable[..., Any]:
    """A transformer layer, whose two sums over heads and hidden columns `total` makes whole."""

    def fn(x: Any, q: Any, k: Any, v: Any, o: Any, a: Any, b: Any) -> Any:
        h = nn.rmsnorm(x)
        qs, ks, vs = (nn.einsum("td,dhe->the", h, w) for w in (q, k, v))
        scores = nn.softmax(nn.einsum("qhe,khe->hqk", qs, ks) * 0.125, axis=-1)
        x = x + total(nn.einsum("the,hed->td", nn.einsum("hqk,khe->qhe", scores, vs), o))
        return x + total(nn.silu(nn.rmsnorm(x) @ a) @ b)

    return fn


HEADS = "jax:P(None,'tp',None)"
T3 = "jax:P('x',None,None)"
AROUND = [(i, (i + 1) % 4) for i in range(4)]
RIGHT: dict[str, tuple[Callable[..., Any], RankProgram, tuple[str, ...]]] = {
    "softmax of a cut axis": (
        lambda x: nn.softmax(x, axis=-1), RankProgram(softmax, M4, [COLUMNS], COLUMNS),
        ("8x16:f32",),
    ),
    "rmsnorm of a cut axis": (
        whole_norm, RankProgram(rmsnorm, M4, [COLUMNS], COLUMNS), ("8x16:f32",)
    ),
    "sequence parallel": (
        lambda x, a, b: nn.relu(x @ a) @ b,
        RankProgram(
            lambda x, a, b: psum_scatter(
                nn.relu(all_gather(x, "x", tiled=True) @ a) @ b, "x", tiled=True
            ),
            M4, [ROWS, COLUMNS, ROWS], ROWS,
        ),
        ("8x16:f32", "16x32:f32", "32x16:f32"),
    ),
    "exchange of heads": (
        attention, RankProgram(ulysses, M4, [T3, T3, T3], T3), ("8x4x2:f32",) * 3
    ),
    "transformer layer on 64 ranks": (
        layer(lambda x: x),
        RankProgram(
            layer(lambda x: psum(x, "tp")), axe.Mesh({"tp": 64}),
            [None, HEADS, HEADS, HEADS, "jax:P('tp',None,None)", "jax:P(None,'tp')",
             "jax:P('tp',None)"],
        ),
        ("2048x4096:f32", *("4096x64x64:f32",) * 3, "64x64x4096:f32", "4096x16384:f32",
         "16384x4096:f32"),
    ),
    "two axes": (
        lambda x, w: x @ w,
        RankProgram(
            lambda x, w: psum(x @ w, "y"), M24, ["jax:P('x','y')", "jax:P('y',None)"], ROWS
        ),
        ("8x16:f32", "16x4:f32"),
    ),
    "axes as one": (
        lambda x: xp.sum(x, axis=0),
        RankProgram(
            lambda x: psum(xp.sum(x, axis=0), ("y", "x")), M24, ["jax:P(('x','y'),None)"]
        ),
        ("16x4:f32",),
    ),
    "gathered one by one": (
        value,
        RankProgram(
            lambda x: 2 * all_gather(all_gather(x, "y", tiled=True), "x", tiled=True), M24,
            ["jax:P(('x','y'),None)"],
        ),
        ("16x4:f32",),
    ),
    "other notations": (
        lambda x: xp.permute_dims(x, (1, 0)),
        RankProgram(
            lambda x: xp.permute_dims(x, (1, 0)), M4, ["dtensor:[Shard(0)]"],
            "hlo_sharding:{devices=[1,4]<=[4]}",
        ),
        ("8x6:f32",),
    ),
    "rows in cycles": (
        value,
        RankProgram(
            value, M4, [axe.Layout([(2, 8, "m"), (4, 1, "gpuid"), (8, 1, "m")])],
            axe.Layout([(2, 8, "m"), (4, 1, "gpuid"), (8, 1, "m")]),
        ),
        ("8x8:f32",),
    ),
    "uneven rows": (
        lambda x: nn.relu(x - 1), RankProgram(lambda x: nn.relu(x - 1), M4, [ROWS], ROWS),
        ("10x4:f32",),
    ),
    "roll": (
        lambda x: xp.roll(x, 1, axis=0),
        RankProgram(
            lambda x: xp.concat([ppermute(x[-1:], "x", AROUND), x[:-1]]), M4, [ROWS], ROWS
        ),
        ("8x4:f32",),
    ),
    "halo": (
        lambda x: xp.pad(x, ((1, 1), (0, 0)))[:-2] + xp.pad(x, ((1, 1), (0, 0)))[2:] - 2 * x,
        RankProgram(
            lambda x: xp.concat([ppermute(x[-1:], "x", AROUND[:-1]), x[:-1]])
            + xp.concat([x[1:], ppermute(x[:1], "x", [(b, a) for a, b in AROUND[:-1]])]) - 2 * x,
            M4, [ROWS], ROWS,
        ),
        ("12x4:f32",),
    ),
    "rows looked up": (
        lambda t, i: xp.take(t, i, axis=0),
        RankProgram(lambda t, i: xp.take(t, i, axis=0), M4, [None, "jax:P('x')"], ROWS),
        ("16x8:f32", "8:i32"),
    ),
    "scans beside each other": (
        lambda x: xp.cumulative_sum(x, axis=1),
        RankProgram(lambda x: xp.cumulative_sum(x, axis=1), M4, [ROWS], ROWS), ("8x6:f32",),
    ),
    "nested arguments": (
        lambda p: p["x"] @ p["w"],
        RankProgram(
            lambda p: psum(p["x"] @ p["w"], "x"), M4, [{"x": COLUMNS, "w": ROWS}]
        ),
        ({"x": "4x8:f32", "w": "8x4:f32"},),  # type: ignore[dict-item]
    ),
}  # fmt: skip


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", RIGHT)
def test_rank_programs_are_proved(name: str) -> None:
    fn, ranks, specs = RIGHT[name]
    verdict = axe.equivalent(fn, ranks, *specs)
    assert isinstance(verdict, axe.Proved), verdict
    assert axe.check_certificate(verdict.certificate)
    assert verdict.how == "decided"


def test_bit_for_bit_a_sum_in_parts_is_another_and_a_move_is_not() -> None:
    fn, ranks, specs = RIGHT["axes as one"]
    assert not axe.equivalent(fn, ranks, *specs, numerics="exact")
    fn, ranks, specs = RIGHT["gathered one by one"]
    assert axe.equivalent(fn, ranks, *specs, numerics="exact")


def test_two_rank_programs_are_compared() -> None:
    by_parts = RankProgram(
        lambda x: all_gather(psum_scatter(x, "x", tiled=True), "x", tiled=True), M4
    )
    at_once = RankProgram(lambda x: psum(x, "x"), M4)
    assert axe.equivalent(at_once, by_parts, "8x4:f32")
    assert axe.equivalent(by_parts, at_once, "8x4:f32")
    twice = RankProgram(lambda x: psum(x, "x") * 2, M4)
    assert isinstance(axe.equivalent(twice, by_parts, "8x4:f32"), axe.Refuted)


def test_copies_that_differ_are_refuted_by_rank() -> None:
    """All have to be the function; rank 3 is not."""

    def fn(x: Any) -> Any:
        return x + xp.astype(xp.maximum(axis_index("x") - 2, 0), "float32")

    verdict = axe.equivalent(lambda x: x + 0, RankProgram(fn, M4), "4x4:f32")
    assert isinstance(verdict, axe.Refuted)
    assert isinstance(verdict.counterexample, ProgramCounterexample)
    assert verdict.counterexample.rank == 3
    check_counterexample(verdict, lambda x: x + 0, RankProgram(fn, M4))
    with pytest.raises(ProgramError, match="output 0 of rank 3: differs from the copy of rank 0"):
        RankProgram(fn, M4)(np.zeros((4, 4), np.float32))


def test_outputs_of_another_shape_are_refuted() -> None:
    ranks = RankProgram(lambda x: all_gather(x, "x", tiled=True), M4, [ROWS], ROWS)
    verdict = axe.equivalent(value, ranks, "8x4:f32")
    assert isinstance(verdict, axe.Refuted)
    assert "output 0 is f32[8,4] in a, f32[32,4] in b" in verdict.reason


def test_a_certificate_of_ranks_is_checked_without_an_e_graph(tmp_path: Path) -> None:
    fn, ranks, specs = RIGHT["sequence parallel"]
    verdict = axe.equivalent(fn, ranks, *specs)
    assert isinstance(verdict, axe.Proved)
    path = tmp_path / "proof.json"
    path.write_text(str.__str__(verdict.certificate))
    code = (
        "import sys, axe_eq as axe\n"
        f"ok = axe.check_certificate(open({str(path)!r}).read())\n"
        "print(ok, 'egglog' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
    text = path.read_text()
    forged = text.replace("f32[8,16]", "f32[8,32]", 1)
    assert forged != text
    assert not axe.check_certificate(forged)


# -- what is computed ------------------------------------------------------------------------------


def test_ranks_run_on_numpy() -> None:
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    ranks = RankProgram(
        lambda x: (psum(x, "x"), ppermute(x, "x", [(0, 1), (1, 2)]), axis_index("x")),
        M4,
        [ROWS],
        (None, ROWS, None),
    )
    parts = np.split(x, 4)
    found = ranks.run(x)
    assert len(found) == 4
    for rank, (total, got, index) in enumerate(found):
        assert np.array_equal(total, sum(parts))
        assert np.array_equal(got, parts[rank - 1] if rank in (1, 2) else np.zeros((2, 4)))
        assert (index.shape, int(index)) == ((), rank)
    fn, ranks, _ = RIGHT["uneven rows"]
    uneven = np.arange(40, dtype=np.float32).reshape(10, 4)
    whole = replace(ranks, out_layouts=stated((10, 4)))
    assert np.array_equal(whole(uneven), axe.run(fn, uneven))


def test_untiled_collectives_add_and_take_a_dim() -> None:
    x = np.arange(64, dtype=np.float32).reshape(16, 4)
    parts = np.split(x, 4)

    def fn(x: Any) -> Any:
        return (
            all_gather(x, "x", axis=1),
            psum_scatter(x, "x", scatter_dimension=1),
            all_to_all(x, "x", 0, 1),
        )

    for rank, (gathered, scattered, exchanged) in enumerate(RankProgram(fn, M4, [ROWS]).run(x)):
        assert np.array_equal(gathered, np.stack(parts, 1))
        assert np.array_equal(scattered, np.sum(parts, axis=0)[:, rank])
        assert np.array_equal(exchanged, np.stack([p[rank] for p in parts], 1))


def test_selectors_say_how_they_work_on_dims_elsewhere() -> None:
    """`Selector.placed` of every declared one: a stack of values is selected as each value is."""
    rng = np.random.default_rng(0)
    of = ValueType("i32", (4, 6))
    seen = set()
    for name in ("slice", "flip", "concat", "pad", "split", "parts", "merge", "repeat",
                 "interleave", "lookup"):  # fmt: skip
        declared = SELECTORS[name]
        assert declared.placed is not None
        for _ in range(12):
            count = 2 if name in ("concat", "interleave", "lookup") else 1
            stacks = [rng.integers(0, 4, (3, 2, *of.shape)).astype(np.int32) for _ in range(count)]
            if name == "lookup":
                params: Any = (1, (0, 1))
            else:
                assert declared.sample is not None
                params = declared.sample(rng, [of] * count)
            moved = declared.run(declared.placed(params, {0: 2, 1: 3}, 4), stacks)
            for at in np.ndindex(3, 2):
                each = declared.run(params, [s[at] for s in stacks])
                assert np.array_equal(moved[at], each), join_text(name, *params)
            seen.add(name)
    needed = {n for n in SELECTORS if SELECTORS[n].arity != 0 and "_" not in n}
    assert needed <= seen


# -- plans -----------------------------------------------------------------------------------------


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [n for n in CASES if n != "attention"])
def test_plans_are_proved(name: str) -> None:
    exe = compiled(name)
    verdict = axe.equivalent(exe.program, exe.plan)
    assert isinstance(verdict, axe.Proved), verdict
    assert axe.check_certificate(verdict.certificate)


def test_a_plan_that_takes_long_is_not_refuted(full: bool) -> None:
    """Attention is proved by laws that rewrite."""
    exe = compiled("attention")
    verdict = axe.equivalent(exe.program, exe.plan, budget=20 if full else 0.4)
    assert isinstance(verdict, axe.Proved) if full else not isinstance(verdict, axe.Refuted)


def test_a_plan_is_proved_from_its_json_for_the_function_that_it_was_made_of() -> None:
    plan = plan_from_json(compiled("mlp").plan.to_json())
    fn = CASES["mlp"].fn
    assert axe.equivalent(fn, plan)
    wrong = axe.equivalent(lambda x, a, b: nn.relu(x @ a) @ b * 2, plan)
    assert isinstance(wrong, axe.Refuted)
    assert isinstance(wrong.counterexample, ProgramCounterexample)
    assert wrong.counterexample.rank is not None
    gelu = axe.equivalent(lambda x, a, b: nn.gelu(x @ a) @ b, plan)
    assert isinstance(gelu, axe.Refuted)


def test_a_plan_that_computes_something_else_is_refuted() -> None:
    plan = compiled("mlp").plan
    for number, step in enumerate(plan.steps):
        if not isinstance(step, LocalStep) or "maximum" not in (text := step.graph.to_json()):
            continue
        from axe_eq.schedule.graph import from_json

        data = json.loads(text.replace('"maximum"', '"minimum"'))
        other = replace(step, graph=from_json(json.dumps(data)))
        steps = (*plan.steps[:number], other, *plan.steps[number + 1 :])
        verdict = axe.equivalent(CASES["mlp"].fn, replace(plan, steps=steps))
        assert isinstance(verdict, axe.Refuted)
        return
    pytest.fail("no step takes a maximum")


# -- bad input -------------------------------------------------------------------------------------


def traced(fn: Any, *layouts: Any, out: Any = None, spec: str = "8x4:f32") -> Any:
    return RankProgram(fn, M4, layouts or (None,), out).trace(*[spec] * max(len(layouts), 1))


BAD: dict[str, Callable[[], Any]] = {
    "outside": lambda: axe.trace(lambda x: psum(x, "x"), "8x4:f32"),
    "axis": lambda: traced(lambda x: psum(x, "z")),
    "twice one axis": lambda: traced(lambda x: psum(x, ("x", "x"))),
    "uneven scatter": lambda: traced(lambda x: psum_scatter(x[:3], "x", tiled=True)),
    "scatter without tiles": lambda: traced(lambda x: psum_scatter(x, "x")),
    "dim": lambda: traced(lambda x: all_gather(x, "x", axis=7)),
    "pairs": lambda: traced(lambda x: ppermute(x, "x", [(0, 1), (2, 1)])),
    "pair of no rank": lambda: traced(lambda x: ppermute(x, "x", [(0, 4)])),
    "sum of flags": lambda: traced(lambda x: psum(x > 0, "x")),
    "layouts": lambda: RankProgram(value, M4, [None, None]).trace("8x4:f32"),
    "out layouts": lambda: traced(value, out=(None, None)),
    "layout of other devices": lambda: traced(
        value, axe.Layout([(8, 1, "gpuid"), (4, 1, "m")])
    ),
    "on some devices": lambda: traced(value, axe.Layout([(32, 1, "m")], offset={"gpuid": 1})),
    "layout of another size": lambda: traced(value, axe.Layout([(4, 1, "gpuid"), (4, 1, "m")])),
    "layout of another shape": lambda: traced(
        value, axe.read("jax", "P('x',None)", shape=(4, 8), mesh=M4)
    ),
    "notation": lambda: traced(value, "P('x',None)"),
    "stated output": lambda: traced(value, out=stated((4, 4))),
    "assume": lambda: axe.equivalent(
        value, RankProgram(value, M4), "8x4:f32", assume=[(value, value)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_rank_programs(name: str, golden: Callable[[str], None]) -> None:
    with pytest.raises(AxeError) as caught:
        BAD[name]()
    golden(str(caught.value).partition("\n  at ")[0] + "\n")


# -- the command -----------------------------------------------------------------------------------

EXAMPLE = Path(__file__).parents[3] / "examples" / "11_prove_a_rank_program.py"


def test_the_command_takes_rank_programs_and_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr(sys, "argv", ["axe", "equiv", *words, "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), json.loads(capsys.readouterr().out)

    specs = [w for s in ("16x32:f32", "32x64:f32", "64x32:f32", "32:f32") for w in ("--spec", s)]
    code, said = run(f"{EXAMPLE}:mlp", f"{EXAMPLE}:BY_TOKENS", *specs)
    assert (code, said["verdict"], said["how"]) == (0, "Proved", "decided")
    code, said = run(f"{EXAMPLE}:mlp", f"{EXAMPLE}:SLIP", *specs)
    assert (code, said["counterexample"]["rank"]) == (1, 0)
    plan, fn = tmp_path / "plan.json", tmp_path / "roll.py"
    plan.write_text(compiled("roll").plan.to_json())
    fn.write_text("import axe_eq.array as xp\ndef fn(x):\n    return xp.roll(x, 1, axis=0) - x\n")
    code, said = run(f"{fn}:fn", str(plan))
    assert (code, said["verdict"]) == (0, "Proved")


@pytest.mark.parametrize(("mesh", "shape"), [
    ({"x": 2}, (2, 4)), ({"x": 3}, (3, 4)), ({"x": 4, "y": 3}, (12, 2)), ({"x": 3, "y": 2}, (6, 2)),
])  # fmt: skip
def test_the_whole_of_parts_has_all_of_them(mesh: dict[str, int], shape: tuple[int, int]) -> None:
    """As many rows as ranks have together, though fewer might be cut into such parts."""
    devices, rows = axe.Mesh(mesh), "jax:P('x',None)"
    spec = f"{shape[0]}x{shape[1]}:i32"
    same = RankProgram(lambda x: x, devices, [rows], [rows])
    last = mesh["x"] - 1
    other = RankProgram(
        lambda x: xp.where(axis_index("x") == last, 2 * x, x), devices, [rows], [rows]
    )
    x = np.arange(1, shape[0] * shape[1] + 1, dtype=np.int32).reshape(shape)
    assert np.array_equal(same(x), x)
    assert isinstance(axe.equivalent(same, other, spec), axe.Refuted)
    assert axe.equivalent(same, same, spec)


HELD = np.arange(16, dtype=np.float32).reshape(4, 4)
LOWER = np.where(np.tri(4), 0, -np.inf).astype(np.float32)


def planned(fn: Any) -> Any:
    mesh = axe.Mesh({"x": 2})
    rows = axe.read("jax", "P('x',None)", shape=(4, 4), mesh=mesh)
    spec = axe.Spec((4, 4), "f32", layout=rows)
    return axe.compile(fn, spec, target="cpu", mesh=mesh, outputs=[rows]).plan


@pytest.mark.parametrize(("fn", "other"), [
    (lambda x: x + HELD, lambda x: x + HELD[::-1]),
    (lambda x: x + HELD, lambda x: x + 2 * HELD),
    (lambda x: x + HELD, lambda x: x + HELD[:1]),
    (lambda x: x + HELD, lambda x: x + 1),
    (lambda x: x * HELD + HELD.T, lambda x: x * HELD.T + HELD),
    (lambda x: x + LOWER, lambda x: x + LOWER.T),
])  # fmt: skip
def test_what_a_plan_holds_is_known_by_its_digest(fn: Any, other: Any) -> None:
    """Not by its place: another array there is another program."""
    plan, whole = planned(fn), "jax:P(None,None)"
    for held in (plan, plan_from_json(plan.to_json())):
        same = axe.equivalent(fn, held, "4x4:f32")
        assert isinstance(same, axe.Proved)
        assert axe.check_certificate(same.certificate)
        assert not axe.equivalent(other, held, "4x4:f32")
    assert not axe.equivalent(plan, planned(other))
    ranks = RankProgram(other, axe.Mesh({"x": 2}), [whole], [whole])
    assert not axe.equivalent(ranks, plan, "4x4:f32")


def test_what_no_side_says_of_a_plan_s_array_refutes_nothing() -> None:
    """The plan knows its mask by a digest alone, and it may be what the other side computes."""
    found = axe.equivalent(
        lambda x: xp.where(xp.tril(xp.ones((4, 4), dtype=xp.bool)), x, -xp.inf),
        planned(lambda x: x + LOWER), "4x4:f32",
    )  # fmt: skip
    assert isinstance(found, axe.Unknown)
    assert "holds, which the plan does not say" in str(found)

"""Cells that packs declare and spell: written, compiled and interpreted; refused without a text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import pack as packs
from axe_eq.errors import PackError, SearchError
from axe_eq.kernel import cells as kernel_cells
from axe_eq.kernel.cells import apply, arg
from axe_eq.pack import Pack, installed
from axe_eq.program import ops
from axe_eq.program.ops import Cell
from axe_eq.program.terms import Sig, Value, op
from axe_eq.program.traced import elementwise
from axe_eq.rule.law import Sides
from axe_eq.run.fingerprint import lowering_key
from axe_eq_backends.cuda.cells import refusal, spell
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import interpreted


@pytest.fixture
def pack() -> Iterator[Pack]:
    """A pack with cells of its own, which are forgotten after the test."""
    declared, spelled = dict(ops.CELLS._by_name), dict(kernel_cells._SPELLINGS)
    made = Pack("theirs")
    made.cell(Cell("soft", 1, lambda x: np.log1p(np.exp(x)), "float", flops=20.0))
    made.cell(Cell("leak", 1, lambda x, slope: np.where(x > 0, x, slope * x), n_params=1))
    made.cell(Cell("norm", None, lambda *xs: sum(abs(x) for x in xs), "number"))
    yield made
    ops.CELLS._by_name.clear()
    ops.CELLS._by_name.update(declared)
    kernel_cells._SPELLINGS.clear()
    kernel_cells._SPELLINGS.update(spelled)


def soft(x: Any) -> Any:
    return elementwise("soft", x)


def leaky(x: Any) -> Any:
    return elementwise("leak 0.125", x)


def layer(x: Any, w: Any) -> Any:
    return leaky(soft(x @ w)) + soft(x)


SPECS = ("72x64:f16", "64x64:f16")


def compiled(pack: Pack, **options: Any) -> Any:
    return axe.compile(layer, *SPECS, target="h200", packs=[*installed().values(), pack], **options)


def test_a_spelled_cell_is_fused_compiled_and_right(pack: Pack) -> None:
    pack.spelling("cuda", "soft", f32="log1pf(exp_f32({0}))")
    pack.spelling("cuda", "leak", f32="{0} > 0 ? {0} : {p0}f * {0}")
    exe = compiled(pack)
    rng = np.random.default_rng(0)
    inputs = [(rng.standard_normal(s) / 4).astype(np.float16) for s in ((72, 64), (64, 64))]
    (found,) = interpreted(exe.schedule.graph, inputs)
    wanted = axe.run(layer, *inputs)
    assert np.abs(found.astype(np.float64) - wanted).max() < 4e-3 * np.abs(wanted).max()
    texts = exe.source
    assert any("log1pf(exp_f32(" in text and "0.125f * " in text for text in texts.values())
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    for name, text in texts.items():
        assert "0 bytes spill stores" in compile_text(text, 90, name).log


def test_without_a_spelling_extraction_refuses_with_the_reason(pack: Pack) -> None:
    with pytest.raises(SearchError, match=r"cell 'soft' has no CUDA spelling on f32: Pack\.spell"):
        compiled(pack)
    pack.spelling("cuda", "leak", f32="{0}")
    with pytest.raises(SearchError, match="'soft'") as refused:
        compiled(pack)
    assert "'leak" not in str(refused.value)
    assert axe.compile(layer, *SPECS, target="cpu", packs=[*installed().values(), pack]).kernels


def test_a_law_leads_around_a_cell_that_cannot_be_written(pack: Pack) -> None:
    @pack.law(source="ours")
    def soft_by_log(s: Sig, x: Value) -> Sides:
        """s[soft](x) = s[log1p](s[exp](x))."""
        return op(s, "soft", x), op(s, "log1p", op(s, "exp", x))

    exe = axe.compile(soft, "72x64:f16", target="h200", packs=[*installed().values(), pack])
    assert [[n.cell for n in k.nodes if n.cell] for k in exe.kernels] == [["exp", "log1p"]]
    assert "left out: cell 'soft' has no CUDA spelling on f32" in exe.explain()


def test_operands_that_a_text_repeats_are_evaluated_once(pack: Pack) -> None:
    pack.spelling("cuda", "leak", f32="{0} > 0 ? {0} : {p0}f * {0}")
    deep = apply("leak 0.5", apply("leak 0.25", apply("leak 0.125", arg(0))))
    text = spell(deep, ["x0"], ["f16"])
    assert text.count("x0") == 3  # of the innermost one
    assert [text.count(p) for p in ("0.5f", "0.25f", "0.125f")] == [1, 1, 1]


def test_an_associative_cell_of_any_arity_folds(pack: Pack) -> None:
    pack.spelling("cuda", "norm", i32="abs({0}) + abs({1})")
    three = apply("norm", arg(0), arg(1), arg(2))
    assert spell(three, ["a", "b", "c"], ["i32"] * 3) == "(abs((abs(a) + abs(b))) + abs(c))"


WRONG = {
    "an operand too many": (("soft", {"f32": "{1}"}), r"has '\{1\}' in '\{1\}'; expected \{0\}"),
    "a parameter too many": (("leak", {"f32": "{p1}"}), r"has '\{p1\}'.*expected \{0\} \{p0\}"),
    "a brace": (("soft", {"f32": "f({0}){"}), r"has '\{' in"),
    "a stored type": (
        ("soft", {"f16": "{0}"}),
        "is for 'f16'; expected one of f32 f64 i8 u8 i16 i32 i64 b",
    ),
    "nothing": (("soft", {}), "is empty"),
    "no such cell": (("sofd", {"f32": "{0}"}), "names no declared cell"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_spelling_is_one_error_that_names_it(what: str, pack: Pack) -> None:
    (cell, texts), problem = WRONG[what]
    with pytest.raises(PackError, match=f"^pack 'theirs', spelling of cell '{cell}' .*{problem}"):
        pack.spelling("cuda", cell, **texts)
    assert kernel_cells.spellings("cuda") == {}


def test_a_cell_has_one_spelling(pack: Pack) -> None:
    pack.spelling("cuda", "soft", f32="log1pf(exp_f32({0}))")
    pack.spelling("cuda", "soft", f32="log1pf(exp_f32({0}))")
    with pytest.raises(PackError, match="one spelling"):
        pack.spelling("cuda", "soft", f32="logf(1.0f + exp_f32({0}))")


def test_what_is_cached_depends_on_spellings(pack: Pack) -> None:
    graph = axe.compile(lambda x: x + 1, "8x8:f32", target="h200").schedule.graph
    without = lowering_key(graph, h200)
    pack.spelling("cuda", "soft", f32="log1pf(exp_f32({0}))")
    assert json.loads(str(lowering_key(graph, h200)))[0] == {
        "soft": {"f32": "log1pf(exp_f32({0}))"}
    }
    assert lowering_key(graph, h200) != without


def test_machine_code_depends_on_the_packs_that_write_kernels(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = axe.compile(lambda x: x + 1, "8x8:f32", target="h200").schedule.graph

    class Writes:
        """A schedule that no installed distribution holds, and that lowers."""

        def lower(self, *of: Any) -> None:
            """Nothing."""

    monkeypatch.setitem(packs._schedules, graph.kernels[0].schedule, ("theirs", Writes()))
    assert lowering_key(graph, h200) is None
    monkeypatch.setattr(Writes, "__module__", "axe_eq_rules.somewhere")
    ours = str(lowering_key(graph, h200))
    monkeypatch.setattr(Writes, "__module__", "axe_eq_backends.somewhere")
    assert ours not in (str(lowering_key(graph, h200)), "None")


def test_extraction_and_emission_agree_on_what_is_spelled() -> None:
    """What extraction lets pass is written, and what it refuses is not."""
    for name in ("exp", "add", "where", "cast f16", "cast i64", "eq", "bit_and"):
        for kind in ("f16", "f32", "i32"):
            dtypes = (["bool"] * (name == "where")) + [kind] * 2
            taken = refusal(name, dtypes) is None
            n = ops.cell(name)[0].arity or 2
            try:
                text = spell(apply(name, *map(arg, range(n))), ["x", "y", "z"][:n], dtypes)
            except axe.AxeError:
                assert not taken, (name, kind)
            else:
                assert taken, (name, kind)
                assert re.search(r"\bx\b", text)

"""Code of packs that fails: one error names the pack and its part, and where it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import pack as packs
from axe_eq.check.lawcheck import check_law
from axe_eq.errors import PackError, ProgramError
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.lower.own import Lowered
from axe_eq.pack import Pack, installed
from axe_eq.program import ops
from axe_eq.program.ops import Cell
from axe_eq.program.terms import Sig, Value, op
from axe_eq.program.traced import elementwise
from axe_eq.rule.law import Sides
from axe_eq.schedule.summary import Columns, Summary, grid_of
from axe_eq.target import Target


def _columns(**changes: Any) -> Columns:
    p, q, k = grid_of((64, 128), (64,), (64,))
    columns = Columns({"p": p, "q": q, "k": k, "s": k}, time_s=np.full(2, 1e-9))
    for name, value in changes.items():
        setattr(columns, name, value)
    return columns


def _no_attribute(summary: Any) -> str | None:
    reason: str | None = summary.which_function
    return reason


@dataclass
class Foreign:
    """A schedule whose answers a test invents."""

    name: str
    refusal: Callable[[Summary], Any]
    priced: Callable[[Summary], Any]
    families: tuple[str, ...] = ("cuda",)

    def refuse(self, summary: Summary, target: Target) -> Any:
        return self.refusal(summary)

    def price(self, summary: Summary, target: Target) -> Any:
        return self.priced(summary)


WRONG: dict[str, tuple[Callable[[Summary], Any], Callable[[Summary], Any], str]] = {
    "no table": (lambda s: None, lambda s: None, "its price returns None; expected Columns"),
    "no times": (
        lambda s: None, lambda s: _columns(time_s=np.zeros(0)),
        r"its price gives time_s of shape \(0,\) for 2 candidates \(is it unset\?\)",
    ),
    "a time that is no number": (
        lambda s: None, lambda s: _columns(time_s=np.array([1.0, np.nan])), "a time_s of nan",
    ),
    "a short column": (
        lambda s: None, lambda s: _columns(costs={"gmem_bytes": np.zeros(3)}),
        r"gives gmem_bytes of shape \(3,\) for 2 candidates",
    ),
    "too few rows": (lambda s: None, lambda s: _columns(rows=("fma.f32",)), "gives 1 rows for 2"),
    "a refusal that fails": (
        _no_attribute, lambda s: _columns(),
        r"its refuse fails \(AttributeError: 'Summary' object has no attribute 'which_function'\)"
        r"; expected a reason as text, or None\n  at .*: reason: .* = summary.which_function",
    ),
    "a refusal that says yes": (lambda s: True, lambda s: _columns(), "its refuse returns True"),
    "a price that fails": (
        lambda s: None, lambda s: dict[str, int]()["p"], r"its price fails \(KeyError: 'p'\)",
    ),
}  # fmt: skip


@pytest.fixture
def known() -> Iterator[None]:
    """Whatever a test declares is forgotten after it."""
    schedules, cells = dict(packs._schedules), dict(ops.CELLS._by_name)
    yield
    for table, before in ((packs._schedules, schedules), (ops.CELLS._by_name, cells)):
        table.clear()
        table.update(before)  # type: ignore[arg-type]


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.usefixtures("known")
def test_a_schedule_with_wrong_answers_is_one_error_that_names_it(what: str) -> None:
    refusal, priced, problem = WRONG[what]
    pack = Pack("theirs")
    pack.schedule(Foreign("foreign", refusal, priced))
    with pytest.raises(PackError, match=f"^schedule 'foreign' of pack 'theirs': .*{problem}"):
        axe.compile(
            lambda x: x + 1, "64x64:f32", target="h200", packs=[*installed().values(), pack]
        )


@pytest.mark.usefixtures("known")
def test_a_law_that_fails_is_named_where_it_is_compiled_and_where_it_is_checked() -> None:
    pack = Pack("theirs")

    @pack.law(source="ours")
    def by_size(s: Sig, x: Value) -> Sides:
        """s[neg](x) = s[neg](x) if x is large."""
        return op(s, "neg", x), op(s, "neg", x), x.size > 4

    wrong = r"its function fails on variables \(AttributeError: .*size.*\)"
    with pytest.raises(PackError, match=rf"^law 'theirs/by_size': {wrong}; .*\n  at .*x.size > 4"):
        axe.compile(lambda x: -x, "64x64:f32", target="cpu", packs=[*installed().values(), pack])
    (finding,) = check_law("theirs/by_size", by_size).findings
    assert str(finding).startswith("law 'theirs/by_size': cannot be tested (law 'by_size': its f")


def test_a_law_that_fails_on_samples_only_is_a_finding() -> None:
    pack = Pack("theirs")

    def sampler(rng: Any) -> tuple[Any, ...]:
        raise ZeroDivisionError("no sample")

    @pack.law(source="ours", sampler=sampler)
    def twice(s: Sig, x: Value) -> Sides:
        """s[neg](x) = s[neg](x)."""
        return op(s, "neg", x), op(s, "neg", x)

    (finding,) = check_law("theirs/twice", twice).findings
    assert "cannot be tested (ZeroDivisionError: no sample, at " in str(finding)
    assert 'raise ZeroDivisionError("no sample")' in str(finding)


@pytest.mark.usefixtures("known")
def test_a_cell_whose_function_fails_is_named() -> None:
    pack = Pack("theirs")
    pack.cell(Cell("theirs_only", 1, lambda x: x.nothing(), "float"))
    with pytest.raises(ProgramError, match=r"^cell 'theirs_only': its function fails on float32\[2,"
                       r" 3\] \(AttributeError: .*'nothing'\); .*\n  at .*x.nothing"):  # fmt: skip
        axe.run(lambda x: elementwise("theirs_only", x), np.ones((2, 3), np.float32))


class Lowering(Foreign):
    """A schedule that writes its kernels as a test says; cheaper than all others."""

    lowered: Callable[[Any], Any]

    def lower(self, step: Any, graph: Any, target: Target) -> Any:
        return self.lowered(step)


def _kernel(names: str = "XY") -> Any:
    k = ThreadBuilder("theirs", warps=1)
    x, y = k.tensor(names[0], "f32", (64, 64)), k.tensor(names[1], "f32", (64, 64), output=True)
    with k.tiles(1):
        held = k.reg("held", "f32", (64, 64), "S[(64,2,32):(2@reg,1@reg,1@lane)]")
        k.copy(held.all, x.all)
        k.copy(y.all, held.all)
    return k.finish()


def _oops(step: Any) -> Any:
    return dict[str, int]()["oops"]


LOWERED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "raises": (_oops, r"its lower fails \(KeyError: 'oops'\); expected .*\n  at .*\[\"oops\"\]"),
    "nothing": (lambda step: None, r"its lower returns None for kernel .*\n  at .*\.py:\d+"),
    "no mapping": (lambda step: Lowered(_kernel(), None), "gives buffers=None"),  # type: ignore[arg-type]
    "no buffer": (
        lambda step: Lowered(_kernel(), {"X": step.reads[0].buffer}),
        "leaves tensor 'Y' of kernel 'theirs' without a buffer",
    ),
    "no such buffer": (
        lambda step: Lowered(_kernel(), {"X": "nope", "Y": step.writes[0].buffer}),
        "puts tensor 'X' of kernel 'theirs' on 'nope', and the step reads ",
    ),
    "an input as result": (
        lambda step: Lowered(_kernel(), {"X": step.reads[0].buffer, "Y": step.reads[0].buffer}),
        "puts tensor 'Y' of kernel 'theirs' on '.*', and the step writes ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LOWERED)
@pytest.mark.usefixtures("known")
def test_a_lowering_with_wrong_answers_is_one_error_that_names_it(what: str) -> None:
    """What extraction takes is lowered before the search ends with it."""
    lowered, problem = LOWERED[what]
    pack = Pack("theirs")
    schedule = pack.schedule(Lowering("foreign", lambda s: None, lambda s: _columns()))
    schedule.lowered = lowered
    with pytest.raises(PackError, match=f"^schedule 'foreign' of pack 'theirs': .*{problem}"):
        axe.compile(
            lambda x: x + 1, "64x64:f32", target="h200", packs=[*installed().values(), pack]
        )


INCOMPLETE: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": None}, "has name=None; expected a text"),
    "families": ({"families": "cuda"}, r"has families='cuda'; expected a tuple of .*\(\"cuda\",\)"),
    "price": ({"price": 3}, r"has price=3; expected a method price\(summary, target\)"),
}


@pytest.mark.parametrize("what", INCOMPLETE)
@pytest.mark.usefixtures("known")
def test_a_schedule_that_lacks_a_part_is_refused_where_it_is_registered(what: str) -> None:
    changes, problem = INCOMPLETE[what]
    schedule = Foreign("foreign", lambda s: None, lambda s: _columns())
    for name, value in changes.items():
        setattr(schedule, name, value)
    with pytest.raises(PackError, match=f"^schedule .* of pack 'theirs': {problem}"):
        Pack("theirs").schedule(schedule)
    with pytest.raises(PackError, match="has no name; expected a text"):
        Pack("theirs").schedule(object())


@pytest.mark.usefixtures("known")
def test_a_schedule_of_a_family_that_no_target_has_is_said_in_explain() -> None:
    pack = Pack("theirs")
    pack.schedule(Foreign("foreign", lambda s: None, lambda s: _columns(), families=("cude",)))
    exe = axe.compile(lambda x: -x, "8x8:f32", target="cpu", packs=[*installed().values(), pack])
    said = "left out: schedule 'foreign' of pack 'theirs': for cude, and the known target families"
    assert said in exe.explain()


@pytest.mark.usefixtures("known")
def test_a_kernel_of_another_family_of_machines_is_named() -> None:
    pack = Pack("theirs")
    schedule = pack.schedule(Lowering("foreign", lambda s: None, lambda s: _columns()))
    schedule.families = ("nki",)
    buffers = {"X": "x", "Y": "t1"}
    schedule.lowered = lambda step: Lowered(_kernel(), buffers)
    problem = "its lower returns a Kernel for kernel .*, no EngineKernel; expected Lowered"
    with pytest.raises(PackError, match=f"^schedule 'foreign' of pack 'theirs': {problem}"):
        axe.compile(
            lambda x: x + 1, "64x64:f32", target="trn2", packs=[*installed().values(), pack]
        )

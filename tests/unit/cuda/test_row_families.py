"""Families of instruction rows that other packs bring: used, written, interpreted, tested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import DispatchError, PackError
from axe_eq.kernel import families
from axe_eq.kernel.cells import Constant, apply, arg
from axe_eq.kernel.families import RowFamily
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.kernel.threads.plan import Regs
from axe_eq.pack import Pack
from axe_eq.schedulecheck import check_row_families
from axe_eq.target import Instr
from axe_eq_backends.cuda.families import OWN
from axe_eq_backends.cuda.meaning_parts import read_registers, write_registers
from axe_eq_backends.cuda.target import h200

SAMPLES = {
    "relu(x) * 3": (lambda x: nn.relu(x) * 3, ("24x40:f32",)),
    "relu(x)": (nn.relu, ("33x40:f32",)),
    "halves": (nn.relu, ("16x40:f16",)),
}
POSITIVE = apply("maximum", arg(0), Constant(0.0, "f32"))


def derive(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """The greater of registers and zero, all of a tile at once."""
    if not isinstance(primitive, ir.Map) or primitive.cell != POSITIVE:
        raise DispatchError(row.name, "computes something else", "the greater of one value and 0")
    (view,) = primitive.ins
    if {view.buffer.dtype, primitive.out.buffer.dtype} != {"f32"}:
        raise DispatchError(row.name, f"has {view.buffer.dtype}", "f32")
    out, read = (v.place.static() for v in (primitive.out, view))
    if out != read:
        raise DispatchError(row.name, "reads other threads", "equal layouts")
    given = (Regs(v.buffer, tuple(range(v.place.extent_on("reg")))) for v in (primitive.out, view))
    args = dict(zip(("out", "x"), given, strict=True))
    return Plan(row, [Call("positive", args)], cycles=0.5, notes="one call")


def meaning(cta: Any, call: Call, env: Any, issue: Any) -> None:
    """NaN stays NaN."""
    values = read_registers(cta, call["x"], env, issue)
    write_registers(cta, call["out"], np.maximum(values, 0), env, issue)


def wrong_meaning(cta: Any, call: Call, env: Any, issue: Any) -> None:
    values = read_registers(cta, call["x"], env, issue)
    write_registers(cta, call["out"], np.abs(values), env, issue)


def text(w: Any, call: Call, s: Any) -> None:
    """One instruction per register."""
    x, out = call["x"], call["out"]
    for n in range(len(out.index)):
        to, given = f"{w.name(out.buffer)}[{n}]", f"{w.name(x.buffer)}[{n}]"
        w.line(f'asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"({to}) : "f"({given}));')


ROW = Instr("positive.f32", "map", dtypes=(("f32",),))


def machine() -> Any:
    return h200.replace(name="h200 with positive", instrs=(*h200.instrs, ROW))


@pytest.fixture
def theirs() -> Iterator[Pack]:
    pack = Pack("positive")
    pack.row_family(
        "cuda", RowFamily("positive", derive, {"positive": meaning}, {"positive": text})
    )
    pack.target(machine())
    yield pack
    del families._families["cuda", "positive"]


def test_rows_of_a_pack_are_dispatched_to_written_and_interpreted(theirs: Pack) -> None:
    exe = axe.compile(nn.relu, "33x40:f32", target=machine())
    (written,) = exe.source.values()
    assert "positive.f32, one call" in written
    assert 'asm("max.NaN.f32 %0, %1, 0f0' in written
    x = np.random.default_rng(0).standard_normal((33, 40)).astype(np.float32)
    x[3, 4] = np.nan
    np.testing.assert_array_equal(exe.interpret(x), np.maximum(x, 0))
    elsewhere = axe.compile(nn.relu, "33x40:f32", target="h200")
    assert "positive.f32" not in "".join(elsewhere.source.values())


def test_rows_of_a_pack_are_tested_like_ours(theirs: Pack) -> None:
    (report,) = check_row_families(theirs, SAMPLES)
    assert not report.findings
    assert report.calls > 0
    assert str(report).endswith("do what their primitives say on 'h200 with positive'")


def test_a_wrong_meaning_is_found(theirs: Pack) -> None:
    wrong = RowFamily("positive", derive, {"positive": wrong_meaning}, {"positive": text})
    theirs.row_family("cuda", wrong)
    (report,) = check_row_families(theirs, SAMPLES)
    assert "on relu(x)" in report.findings[-1]


def test_rows_that_nothing_uses_are_found(theirs: Pack) -> None:
    def refuses(row: Instr, primitive: Any, context: Any) -> Plan:
        raise DispatchError(row.name, "is never right", "nothing")

    theirs.row_family("cuda", RowFamily("positive", refuses))
    (report,) = check_row_families(theirs, SAMPLES)
    assert report.findings == ("no sample program uses it on 'h200 with positive'",)


def test_a_family_without_rows_is_found() -> None:
    pack = Pack("rowless")
    pack.row_family("cuda", RowFamily("rowless", derive))
    (report,) = check_row_families(pack, SAMPLES)
    assert report.findings == ("no target of pack 'rowless' has a row rowless.*",)
    del families._families["cuda", "rowless"]


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (RowFamily("fma", derive), "takes the name of row family 'fma' of pack 'cuda'"),
        (
            RowFamily("mine", derive, {"wgmma": meaning}, {"wgmma": text}),
            "takes the call 'wgmma' of row family 'wgmma' of pack 'cuda'",
        ),
        (RowFamily("mine", derive, {"a": meaning}), "has not both a meaning and a text for 'a'"),
        (RowFamily("a.b", derive), "is no row family; expected a RowFamily whose name has no dot"),
        (replace(OWN[0], name="mine", derive=None), "has derive=None"),  # type: ignore[arg-type]
        ("mine", "is no row family"),
    ],
)
def test_what_is_no_family_of_its_own_is_refused(family: Any, message: str) -> None:
    from axe_eq.pack import installed

    assert "cuda" in installed()  # whose families are declared
    with pytest.raises(PackError, match=message.replace("*", r"\*")):
        Pack("theirs").row_family("cuda", family)

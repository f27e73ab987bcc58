"""The layout benchmark believes no answer: what it times is checked against the definition."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from benchmarks.layout import measured, ratios, verdict
from benchmarks.layout_cases import OPERATIONS, Answer, Maker
from benchmarks.layout_peers import Axe, Contestant, Prepared


class Wrong(Contestant):
    """Like ours, but the fastest stride is one off, or the verdict turned round."""

    name, package = "wrong", "axe-eq"

    def prepare(self, op: str, operands: tuple[Any, ...]) -> Prepared | None:
        call, read = Axe().prepare(op, operands) or pytest.fail(f"no {op}")
        return call, lambda found: _spoilt(read(found))


def _spoilt(answer: Answer | bool | None) -> Answer | bool | None:
    if not isinstance(answer, Answer):
        return not answer
    if not answer.iters:
        return Answer([], {"m": answer.offset.get("m", 0) + 1})
    (extent, stride, axis), offset = answer.iters[-1], answer.offset
    return Answer([*answer.iters[:-1], (extent, stride + 1, axis)], offset)


class Refusing(Contestant):
    """Refuses everything, as peers do: with an exception of its own."""

    name, package = "refusing", "no-such-package"

    def prepare(self, op: str, operands: tuple[Any, ...]) -> Prepared | None:
        def refuse() -> None:
            raise RuntimeError(op)

        return refuse, lambda found: None


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize(("iters", "log2"), [(4, 10), (16, 16), (8, 24)])
def test_answers_are_checked(op: str, iters: int, log2: int) -> None:
    for case in islice(Maker(iters, log2, 5).cases(op), 5):
        assert verdict(Axe(), case) == "right"
        assert verdict(Wrong(), case) == "wrong"
        assert verdict(Refusing(), case) == "refused"
        assert verdict(Contestant(), case) == "absent"


def test_only_right_answers_are_timed() -> None:
    rows = measured("slice", 4, 10, 4, [Axe(), Wrong(), Refusing()])
    assert [(row["who"], row["right"], "median_us" in row) for row in rows] == [
        ("axe_eq", 24, True),
        ("wrong", 0, False),
        ("refusing", 0, False),
    ]
    assert rows[0]["p10_us"] <= rows[0]["median_us"] <= rows[0]["p90_us"]
    assert ratios(rows) == {}
    assert Refusing().version() == "unknown"


def test_a_shape_or_an_offset_that_is_off_is_wrong() -> None:
    case = next(Maker(4, 10, 0).cases("group"))
    layout = list(case.operands[0])
    assert case.holds(Answer(layout, {}))
    assert not case.holds(Answer(layout, {"m": 1}))
    assert not case.holds(Answer(layout, {"q": 1}))
    assert not case.holds(Answer([*layout, (2, 1, "m")], {}))

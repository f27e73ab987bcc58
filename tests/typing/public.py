"""Checked by mypy alone: what users' type checkers see."""

from __future__ import annotations

from typing import assert_type

import axe_eq as axe
from axe_eq.debug import Report, Switches, stage


def switches_are_typed() -> None:
    with axe.debug(level=4, trace="out") as switches:
        assert_type(switches, Switches)


def a_stage_has_the_type_of_its_work() -> None:
    report = Report()
    count = stage("count", lambda: len("abc"), report=report, check=lambda n: n > 0)
    assert_type(count, int)
    assert_type(report["count"].seconds, float)


def errors_carry_their_parts(error: axe.LayoutError) -> tuple[str, str]:
    return assert_type((error.thing, error.hint), tuple[str, str])

"""Laws that ask what is known of a value need to: without that condition their check finds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from axe_eq.check.lawcheck import check_law
from axe_eq.pack import installed
from axe_eq.program.facts import facts_of
from axe_eq.program.ops import join_text
from axe_eq.program.terms import sel
from axe_eq.rule.law import Law
from axe_eq_rules import polynomial, real_normal

LAWS = {f"{p.name}/{name}": law for p in installed().values() for name, law in p.laws.items()}


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is expanded under a law that a test breaks is not remembered for others."""
    for known in (real_normal._SUMS, real_normal._PRODUCTS, real_normal._BOTH):
        monkeypatch.setattr(known, "_memo", {})


def asks_for_facts(law: Law) -> bool:
    return not law.normal and any(c.function is facts_of for c in law.pattern().calls)


def without_conditions(law: Law) -> Law:
    """The law as it was when it said nothing of what is undefined or infinite."""
    return replace(law, fn=lambda *values: law.fn(*values)[:2])


ASKING = sorted(key for key, law in LAWS.items() if asks_for_facts(law))


def test_laws_that_drop_or_move_what_may_be_undefined_ask_for_facts() -> None:
    assert {
        "real/product_of_padded_left", "real/product_of_padded_right", "real/pad_of_product_0",
        "online_softmax/offset_of_weights", "online_softmax/offset_of_scores", "tensor/where_same",
    } <= set(ASKING)  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("key", ASKING)
def test_the_check_finds_a_law_whose_condition_is_left_out(key: str) -> None:
    found = check_law(key, without_conditions(LAWS[key]), 60)
    assert found.findings, f"{found.usable} samples"
    assert "differ" in str(found.findings[0]) or "not defined" in str(found.findings[0])


@pytest.mark.parametrize("key", ["real_normal/sum_form", "real_normal/distribute_form"])
def test_the_check_finds_normal_forms_that_cancel_what_may_be_infinite(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polynomial, "_knows", lambda *_: True)
    assert check_law(key, LAWS[key], 200).findings


def test_the_check_finds_coefficients_that_their_type_does_not_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def as_written(value: Any, dtype: str) -> Any:
        return sel(join_text("full", (), float(value) + 2**-30, dtype))

    monkeypatch.setattr(polynomial, "constant", as_written)
    assert check_law("real_normal/sum_form", LAWS["real_normal/sum_form"], 200).findings

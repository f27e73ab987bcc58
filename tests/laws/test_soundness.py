"""Every law of every installed pack: both sides mean the same wherever it says it holds."""

from __future__ import annotations

import pytest

from axe_eq.pack import installed
from axe_eq.prove.lawcheck import check_law

LAWS = {f"{p.name}/{name}": law for p in installed().values() for name, law in p.laws.items()}


# Laws of which most samples are thrown away, since nothing draws their operands to fit.
FEWER = {"selector/reduction_of_splits": 1, "selector/operator_of_merge_reduced_2": 1,
         "selector/merge_of_reductions_2": 1, "online_softmax/maximum_of_scores": 1,
         "selector/operator_of_copies_1": 1}  # fmt: skip


@pytest.mark.parametrize("key", sorted(LAWS))
def test_law_is_sound(key: str, full: bool) -> None:
    checked = check_law(key, LAWS[key], samples=300 if full else FEWER.get(key, 2))
    assert not checked.findings, "\n".join(map(str, checked.findings))
    assert checked.usable, "nothing was compared"

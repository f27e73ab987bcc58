"""Every law of every installed pack: both sides mean the same wherever it says it holds."""

from __future__ import annotations

import pytest

from axe_eq.check.lawcheck import check_law
from axe_eq.pack import installed

LAWS = {f"{p.name}/{name}": law for p in installed().values() for name, law in p.laws.items()}


@pytest.mark.parametrize("key", sorted(LAWS))
def test_law_is_sound(key: str, full: bool) -> None:
    checked = check_law(key, LAWS[key], samples=300 if full else 2)
    assert not checked.findings, "\n".join(map(str, checked.findings))
    assert checked.usable, "nothing was compared"

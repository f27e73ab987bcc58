"""A changed copy of a machine, and where its figures come from."""

from __future__ import annotations

from axe_eq.target import Memory, Target

CARD = Target(
    "card", "cuda", 4, "SM", (Memory("gmem", ("m",), 1 << 30, "device", 1e12),), source="measured"
)


def test_changed_figures_are_not_called_measured() -> None:
    """Rates are the whole machine's: a copy with more units keeps them, and says what changed."""
    larger = CARD.replace(name="larger", n_units=8, gmem=1 << 31)
    assert larger.source == "card (measured), with n_units, gmem changed"
    assert larger.memory("gmem").bytes_per_s == CARD.memory("gmem").bytes_per_s
    assert CARD.replace(name="other").source == "measured"
    assert CARD.replace(n_units=8, source="datasheet").source == "datasheet"

"""Samples of scans: a monoid and an axis that give values of wanted kinds."""

from __future__ import annotations

from axe_eq.program.decisions import Draw
from axe_eq.program.ops import MONOIDS, join_text, scan

_MOST_OPERANDS = 2
_KINDS = {"number": "fi", "float": "f", "integer": "i", "logical": "b", "index": "i"}


def draw_scan(draw: Draw, at: str, kinds: str, rank: int) -> str:
    """The text of a scan along one of `rank` axes whose value is of one of these kinds."""
    fits = [
        name
        for name in MONOIDS
        if MONOIDS[name].n_values <= _MOST_OPERANDS
        and any(kind in _KINDS.get(MONOIDS[name].result, "fib") for kind in kinds)
    ]
    axis = draw.pick(f"{at}.axis", range(max(rank, 1)))
    return join_text(draw.pick(f"{at}.monoid", fits), axis)


def scanned_kinds(text: str, kinds: str) -> list[str]:
    """Per operand of a scan, the kinds that it may have for a value of one of `kinds`."""
    monoid, _ = scan(text)
    if monoid.n_values > 1:
        last = "i" if monoid.result == "index" else "f"
        return ["f"] * (monoid.n_values - 1) + [last]
    return [kinds]

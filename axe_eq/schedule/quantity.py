"""Quantities as short text: seconds, bytes, and costs that carry the unit in their name."""

from __future__ import annotations

import math

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def seconds_text(seconds: float) -> str:
    """Three digits with the unit that fits: ``2.36 ms``."""
    if not math.isfinite(seconds):
        return "impossible"
    for unit, name in _SECONDS:
        if abs(seconds) >= unit:
            return f"{_three(seconds / unit)} {name}"
    return "0 s" if seconds == 0 else f"{_three(seconds * 1e9)} ns"


def bytes_text(n_bytes: float) -> str:
    """Three digits with the binary unit that fits: ``192 MiB``."""
    power = 0
    while abs(n_bytes) >= 1024 and power < len(_BYTES) - 1:
        n_bytes, power = n_bytes / 1024, power + 1
    return f"{n_bytes:.0f} B" if power == 0 else f"{_three(n_bytes)} {_BYTES[power]}"


def cost_text(name: str, value: float) -> str:
    """A named cost in the unit its name ends with."""
    if name.endswith("_s"):
        return seconds_text(value)
    if name.endswith("_bytes"):
        return bytes_text(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _three(value: float) -> str:
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}"

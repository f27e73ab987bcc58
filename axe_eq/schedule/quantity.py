"""Quantities as short text: seconds, bytes, and costs that carry the unit in their name."""

from __future__ import annotations

import math

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


_UNITS = {"_s": "s", "_bytes": "B"}  # by the ending of a name


class Costs(dict[str, float]):
    """Named costs, each in the unit that its name ends with.

    >>> Costs(time_s=2e-6, kernels=1.0).units
    {'time_s': 's', 'kernels': '1'}
    """

    @property
    def units(self) -> dict[str, str]:
        """Per name "s", "B" (bytes), or "1" for a number of things."""
        return {
            name: next((unit for end, unit in _UNITS.items() if name.endswith(end)), "1")
            for name in self
        }


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

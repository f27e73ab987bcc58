"""Calls that are refused, as a golden text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from axe_eq.errors import AxeError


def refusals(calls: Mapping[str, Callable[[], Any]]) -> str:
    """The error of every call, under its name; each has to raise one of ours."""
    lines = []
    for name, call in calls.items():
        with pytest.raises(AxeError) as error:
            call()
        lines.append(f"{name}\n  {type(error.value).__name__}: {error.value}")
    return "\n".join(lines) + "\n"

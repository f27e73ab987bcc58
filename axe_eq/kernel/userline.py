"""Where in a user's file a kernel is being written: what errors name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_HERE = str(Path(__file__).parent)


def user_line() -> str:
    """The nearest line outside this package, as ``file:line``."""
    frame: Any = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith(_HERE) or "contextlib" in frame.f_code.co_filename
    ):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""

"""What a result was measured on."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

PACKAGES = ("egglog", "numpy", "networkx")


def machine() -> dict[str, Any]:
    """Cores, processor, Python and package versions, and today's date."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()

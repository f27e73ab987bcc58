"""The user's file of corrections: by what a machine's estimates miss, as it was measured there.

``{"h200": {"lanes": {"factor": 1.08, "kernels": 12}}}``: per target and schedule, or schedule and
instruction row, the geometric mean of measured over estimated seconds, and of how many kernels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from axe_eq import plain
from axe_eq.errors import ArgumentError, cause
from axe_eq.files import write_text
from axe_eq.schedule.graph import KernelStep
from axe_eq.target import Target

MEASURED = "measured_s"  # the cost of a kernel that was measured


def corrected(target: Target, path: Path | None) -> Target:
    """The machine with the corrections that a file has for it.

    Raises:
        ArgumentError: the file is not one of corrections.
    """
    factors = {} if path is None else read(path).get(target.name, {})
    if not factors:
        return target
    return target.replace(corrections={name: e["factor"] for name, e in factors.items()})


def read(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """The corrections of a file.

    Raises:
        ArgumentError: it does not read, or a factor is no positive number.
    """
    expected = "what `axe tune --corrections FILE` wrote"
    try:
        found: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text())
        entries = [e for known in found.values() for e in known.values()]
        is_right = all(0 < float(e["factor"]) < math.inf and e["kernels"] > 0 for e in entries)
    except (OSError, *plain.DAMAGED) as error:
        raise ArgumentError(f"file {str(path)!r}", f"does not read ({cause(error)})",
                            expected) from None  # fmt: skip
    if not is_right:
        raise ArgumentError(f"file {str(path)!r}", "has a factor that is not positive", expected)
    return found


def learn(path: Path, target: Target, kernels: Iterable[KernelStep]) -> dict[str, float]:
    """Add what kernels took, against their estimates, to a file; the factors of their schedules.

    Raises:
        ArgumentError: the file is there and is not one of corrections, or cannot be written.
    """
    known = read(path) if path.exists() else {}
    mine = known.setdefault(target.name, {})
    changed = {}
    for step in kernels:
        if step.time_s > 0 and step.costs.get(MEASURED, 0) > 0:
            name = f"{step.schedule} {step.row}".strip()
            entry = mine.get(name, {"factor": 1.0, "kernels": 0})
            # An estimate that was corrected says what is still missing.
            missed = target.correction(step.schedule, step.row) * step.costs[MEASURED] / step.time_s
            n = entry["kernels"]
            mean = (n * math.log(entry["factor"]) + math.log(missed)) / (n + 1)
            mine[name] = {"factor": math.exp(mean), "kernels": n + 1}
            changed[name] = math.exp(mean)
    write_text(path, json.dumps(known, indent=1) + "\n")
    return changed

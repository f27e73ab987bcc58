"""Verdicts as JSON data."""

from __future__ import annotations

from typing import Any

import numpy as np

from axe_eq.prove.certificates.verdict import (
    MOST_SHOWN,
    Elements,
    Image,
    LayoutCounterexample,
    ProgramCounterexample,
    Proved,
    Refuted,
    Unknown,
    Verdict,
)
from axe_eq.prove.programs.frontier import Frontier, show


def verdict_data(verdict: Verdict, numerics: str, certificate: str | None) -> dict[str, Any]:
    """All that a verdict says.

    Args:
        verdict: what `equivalent` returned.
        numerics: what was asked for; layouts are always compared exactly.
        certificate: the file that the certificate of a proof was written to.
    """
    proved = verdict if isinstance(verdict, Proved) else None
    refuted = verdict if isinstance(verdict, Refuted) else None
    unknown = verdict if isinstance(verdict, Unknown) else None
    return {
        "verdict": type(verdict).__name__,
        "text": str(verdict),
        "numerics": proved.statement.numerics if proved else numerics,
        "statement": str(proved.statement) if proved else None,
        "how": proved.how if proved else None,
        "laws": list(proved.laws) if proved else None,
        "packs": dict(proved.statement.packs) if proved else None,
        "certificate": certificate if proved else None,
        "reason": refuted.reason if refuted is not None else None,
        "hint": refuted.hint or None if refuted is not None else None,
        "counterexample": _counterexample(refuted.counterexample) if refuted is not None else None,
        "missing": _missing(unknown.missing) if unknown is not None else None,
        "budget": unknown.budget if unknown is not None else None,
    }


def _counterexample(found: LayoutCounterexample | ProgramCounterexample | None) -> Any:
    if isinstance(found, LayoutCounterexample):
        return {
            "x": found.x,
            "element": list(found.element),
            "image_a": _image(found.image_a),
            "image_b": _image(found.image_b),
            "numbers": dict(found.numbers),
            "layouts": {name: str(layout) for name, layout in found.layouts.items()},
        }
    return None if found is None else _of_programs(found)


def _image(image: Image) -> list[dict[str, int]]:
    return [dict(place) for place in sorted(image)]


def _of_programs(found: ProgramCounterexample) -> dict[str, Any]:
    names = found.names or [f"input {n}" for n in range(len(found.inputs))]
    made = isinstance(found.inputs, tuple)  # others are too large to make just to print
    return {
        "output": found.output,
        "rank": found.rank,
        "index": list(found.index),
        "value_a": found.value_a,
        "value_b": found.value_b,
        "bounds_a": list(found.bounds_a),
        "bounds_b": list(found.bounds_b),
        "inputs": list(map(_input, names, found.inputs, found.elements)) if made else [],
        "inputs_are": None if made else str(found.inputs),
        "rounded_constants": list(found.rounded),
        "reduced": _counterexample(found.reduced),
    }


def _input(name: str, array: Any, unlike: Elements | None) -> dict[str, Any]:
    """One input; its values where they are few, or those unlike most where these are."""
    few = array.size <= MOST_SHOWN
    shown = array if array.dtype.kind in "iub" else array.astype(np.float64)
    return {
        "name": name,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "values": shown.tolist() if few else None,
        "not_zero": int(np.count_nonzero(shown)),
        "others": unlike.others if unlike is not None else None,
        "elements": [list(x) for x in unlike.first] if unlike is not None else None,
    }


def _missing(missing: Any) -> dict[str, Any]:
    if not isinstance(missing, Frontier):
        return {"text": str(missing), "stuck": [], "rounded_constants": []}
    stuck = [
        {"left": show(pair.left), "right": show(pair.right), "family": pair.family}
        for pair in missing.pairs
    ]
    rounded = list(missing.rounded)
    return {
        "text": f"not proved ({missing.stopped})", "stuck": stuck, "rounded_constants": rounded
    }  # fmt: skip

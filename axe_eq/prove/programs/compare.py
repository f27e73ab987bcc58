"""Values of inputs for tests of equality, and differences between results."""

from __future__ import annotations

from typing import Any

import numpy as np

from axe_eq.program.facts import ANYTHING, MASKED
from axe_eq.program.types import DTYPES, Array, ValueType
from axe_eq.prove.programs.reals import Real, apart, real
from axe_eq.schedule.contents import Contents

_STEPS = (2.0**-10, 2.0**-7, 2.0**-3, 2.0**-2)  # between numbers from 1 to 2 of the half types
_ENDS = (0, 1, 2, -1, -2)  # from the least integer of a type
_SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 65504.0)


def random_array(of: ValueType, rng: np.random.Generator, values: str) -> Array:
    """Values for an input.

    Args:
        of: its type.
        rng: source.
        values: "moderate" ones of both signs; "positive" ones; "special" ones among them; "ties",
            at or next to the middle of two numbers of a narrower type; "whole" numbers, whose
            sums do not depend on their order; "ends", moderate but for integers, many of which are
            at the ends of their range, where they wrap around; or "edges", small whole numbers and
            halves, many of them 0. Special ones are at the ends too.
    """
    kind, numpy = DTYPES[of.dtype].kind, DTYPES[of.dtype].numpy
    if kind == "b":
        return np.asarray(rng.integers(0, 2, of.shape), dtype=bool)
    if kind == "i":
        low, high = (np.iinfo(numpy).min, np.iinfo(numpy).max) if values == "special" else (-4, 5)
        whole = np.asarray(rng.integers(low, high, of.shape), dtype=numpy)
        if values not in ("special", "ends"):
            return whole
        with np.errstate(over="ignore"):
            ends = np.iinfo(numpy).min + np.asarray(rng.choice(_ENDS, of.shape), dtype=numpy)
        return np.where(rng.random(of.shape) < 0.4, ends, whole)
    if values == "edges":
        halves = rng.integers(-6, 7, of.shape) / 2
        return np.asarray(np.where(rng.random(of.shape) < 0.25, 0.0, halves), dtype=numpy)
    if values == "whole":
        return np.asarray(rng.integers(-3, 4, of.shape), dtype=numpy)
    array = rng.uniform(0.5, 2.0, of.shape)
    if values == "ties":
        step = rng.choice(_STEPS, of.shape)
        beside = rng.choice([0.0, 1.0, -1.0], of.shape) * 2.0**-26  # less than a step of float32
        array = (np.floor(array / step) + 0.5) * step + beside
    if values != "positive":
        array *= rng.choice([-1.0, 1.0], of.shape)
    if values == "special":
        array = np.where(rng.random(of.shape) < 0.4, rng.choice(_SPECIAL, of.shape), array)
    with np.errstate(all="ignore"):
        return np.asarray(array, dtype=numpy)


def real_input(name: str, of: ValueType, rng: np.random.Generator, values: str) -> Real:
    """An input over the reals: finite, unless its name says that it is anything, or may be -inf.

    Arguments as for `random_array`. Such a name stands for whatever may be undefined or infinite.
    """
    array = random_array(of, rng, values)
    hit = rng.random(of.shape) < (0.3 if values == "edges" else 0.0)
    if not name.startswith((ANYTHING, MASKED)):
        return real(array)
    if array.dtype.kind != "f":
        found = real(array)
        return Real(array, hit, found.lost) if name.startswith(ANYTHING) else found
    wild = [-np.inf] if name.startswith(MASKED) else [np.nan, np.inf, -np.inf]
    return real(np.where(hit, rng.choice(wild, of.shape), array))


def difference(a: Any, b: Any, *, exact: bool) -> str | None:
    """What differs between two results: nested sequences of arrays, memory, and other things.

    Args:
        a: a result.
        b: the other.
        exact: arrays must agree bit for bit, NaN to NaN; else to a relative `TOLERANCE`.

    Returns:
        One sentence about "its sides", or None.
    """
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        if len(a) != len(b):
            return f"its sides differ: they have {len(a)} and {len(b)} parts"
        parts = (difference(x, y, exact=exact) for x, y in zip(a, b, strict=True))
        return next((problem for problem in parts if problem is not None), None)
    if isinstance(a, Contents) and isinstance(b, Contents):
        if a.axes != b.axes or not np.array_equal(a.points, b.points):
            return "its sides differ in where elements are"
        a, b = a.values, b.values
    if isinstance(a, np.generic) and isinstance(b, np.generic):
        a, b = np.asarray(a), np.asarray(b)
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return None if a == b else "its sides differ"
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"its sides differ: they are {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
    if exact:
        return None if _bits(a) == _bits(b) else "its sides differ bit for bit"
    if a.dtype.kind in "iub":
        return None if np.array_equal(a, b) else "its sides differ"
    nan = a != a
    if not np.array_equal(nan, b != b):
        return "its sides are not defined at the same places"
    return "its sides differ over the reals" if (apart(a, b) & ~nan).any() else None


def _bits(array: Array) -> bytes:
    """The bytes of an array, every NaN alike."""
    if array.dtype.kind in "iub":
        return array.tobytes()
    plain = array.astype(array.dtype, copy=True)
    plain[np.isnan(plain.astype(np.float64))] = np.nan
    return plain.tobytes()

"""Plain arguments of functions on arrays: integers, shapes, numbers, flags, words.

Each reader takes what Python and numpy call such a value and refuses the rest in one form, so that
no function meets a value of a kind that it does not know.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Signature, signature
from typing import Any, ParamSpec, SupportsFloat

import numpy as np

from axe_eq.errors import ProgramError, said

Given = ParamSpec("Given")
_BITS = 64  # of the integers that numpy counts with


def refusing(fn: Callable[Given, Any], name: str) -> Callable[Given, Any]:
    """A function that refuses calls that do not fit its signature, with it."""

    @wraps(fn)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Any:
        try:
            return fn(*args, **kwargs)
        except TypeError:
            own = signature(fn)
            try:
                own.bind(*args, **kwargs)
            except TypeError as error:
                shown = own.replace(
                    parameters=[p.replace(annotation=p.empty) for p in own.parameters.values()],
                    return_annotation=own.empty,
                )
                hint = _standard_for(own, len(args), kwargs)
                raise ProgramError(name, str(error), f"{fn.__name__}{shown}", hint=hint) from None
            raise

    return called


# Keywords of other libraries -> those of the standard.
_STANDARD = {
    "dim": "axis", "dims": "axis", "axes": "axis", "keepdim": "keepdims", "ddof": "correction",
    "unbiased": "correction", "a_min": "min", "a_max": "max", "newshape": "shape",
}  # fmt: skip


def _standard_for(own: Signature, n_given: int, kwargs: Mapping[str, Any]) -> str:
    """What the standard calls keywords that a function does not take; "" where it has none."""
    named = {_STANDARD.get(k, "") for k in kwargs if k not in own.parameters}
    by_place = [p for p in own.parameters.values() if p.kind is not p.KEYWORD_ONLY]
    if n_given > len(by_place):  # by position, what goes by name: as a rule the axis
        named |= {k for k in ("axis",) if k not in kwargs}
    return ", ".join(f"{k}=..." for k in sorted(named & own.parameters.keys()))


def _refused(name: str, value: object, wanted: str) -> ProgramError:
    return ProgramError(f"{name} {said(value)}", f"is of type {type(value).__name__}", wanted)


def whole(name: str, value: Any, least: int | None = None) -> int:
    """An integer, at least `least` where that is given.

    Raises:
        ProgramError: something else, a truth value included, a smaller one, or one beyond 64 bits.
    """
    wanted = "an integer" + ("" if least is None else f" of at least {least}")
    if isinstance(value, bool):
        raise _refused(name, value, wanted)
    try:
        found = operator.index(value)
    except (TypeError, ProgramError):  # traced arrays have no value
        raise _refused(name, value, wanted) from None
    if found.bit_length() >= _BITS:
        raise ProgramError(f"{name} {said(found)}", f"is beyond {_BITS} bits", wanted)
    if least is not None and found < least:
        raise ProgramError(f"{name} {said(found)}", f"is below {least}", wanted)
    return found


def wholes(name: str, value: Any, least: int | None = None) -> tuple[int, ...]:
    """One integer, or a sequence of them.

    Raises:
        ProgramError: something else, or one below `least`.
    """
    wanted = "an integer or a sequence of integers"
    if isinstance(value, str | bytes):
        raise _refused(name, value, wanted)
    if hasattr(value, "__index__") and not getattr(value, "shape", ()):
        return (whole(name, value, least),)
    return tuple(whole(name, entry, least) for entry in listed(name, value, wanted))


def extents(value: Any) -> tuple[int, ...]:
    """A shape: one extent or a sequence of them, each at least 1.

    Raises:
        ProgramError: something else.
    """
    return wholes("shape", value, 1)


def listed(name: str, value: Any, wanted: str) -> tuple[Any, ...]:
    """The entries of a sequence.

    Raises:
        ProgramError: a value without entries.
    """
    try:
        return tuple(value)
    except TypeError:
        raise _refused(name, value, wanted) from None


def number(name: str, value: Any) -> float:
    """A real number known now, an integer or a float of Python.

    Raises:
        ProgramError: something else, or an integer that no float reaches.
    """
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, int | float):
        raise _refused(name, value, "a real number")
    as_float(name, plain)
    return plain


def as_float(name: str, value: SupportsFloat) -> float:
    """A real number as a float.

    Raises:
        ProgramError: an integer that no float reaches.
    """
    try:
        return float(value)
    except OverflowError:
        raise ProgramError(f"{name} {said(value)}", "is beyond every float", "a float") from None


def flag(name: str, value: Any) -> bool:
    """A truth value; 0 and 1 are such.

    Raises:
        ProgramError: something else.
    """
    if not isinstance(value, bool | np.bool_ | int) or value not in (0, 1):
        raise _refused(name, value, "True or False")
    return bool(value)


def word(name: str, value: Any, known: Sequence[str]) -> str:
    """One of the known words.

    Raises:
        ProgramError: something else.
    """
    if not isinstance(value, str) or value not in known:
        wanted = " or ".join(map(repr, known))
        raise ProgramError(f"{name} {said(value)}", "is not known", wanted)
    return value

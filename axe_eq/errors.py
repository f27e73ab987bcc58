"""Every error axe_eq raises: one class per stage, one text shape.

The text reads ``<thing>: <what is wrong, with values>; expected <what>``, then optionally the
user's source place and one action to try. "Not proved" is a result (`Unknown`), never an error.
"""

from __future__ import annotations

import traceback
from typing import ClassVar

_MOST_SAID = 80  # characters of a value in an error
_MOST_BITS = 256  # of an integer that is written


class AxeError(Exception):
    """Base of all errors of axe_eq.

    Args:
        thing: what is wrong ("layout (8:4)", "dtype 'f17'").
        wrong: what is wrong with it, with the values.
        expected: what would have been right; may be empty where nothing useful can be said.
        at: the user's source place, "file:line: text".
        hint: one action to try.
    """

    MOST_SAID: ClassVar[int | None] = None  # characters of a part; None for all

    def __init__(
        self, thing: str, wrong: str, expected: str = "", *, at: str = "", hint: str = ""
    ) -> None:
        self.thing, self.wrong, self.expected = thing, wrong, expected
        self.at, self.hint = at, hint
        super().__init__(thing, wrong, expected)

    def __str__(self) -> str:
        thing, wrong, expected = map(self._said, (self.thing, self.wrong, self.expected))
        text = f"{thing}: {wrong}"
        if expected:
            text += f"; expected {expected}"
        if self.at:
            text += f"\n  at {self.at}"
        if self.hint:
            text += f"\n  try: {self.hint}"
        return text

    def _said(self, part: str) -> str:
        """A part of the text; of an error about given texts and shapes cut in the middle."""
        most = self.MOST_SAID
        if most is None or len(part) <= most:
            return part
        return f"{part[: most * 3 // 4]} ... {part[-most // 8 :]}"


class Signal(Exception):
    """What passes through the code of packs without being a failure of it."""


def foreign(thing: str, error: Exception, function: object, wrong: str, expected: str) -> PackError:
    """The error where a pack's function raised what is no `AxeError` and no `Signal`.

    Args:
        thing: what the pack declared ("primitive 'half' of my_pack").
        error: what its function raised.
        function: the function; the error names its line.
        wrong: what fails, with the values.
        expected: what it should do.
    """
    return PackError(thing, f"{wrong} ({cause(error)})", expected, at=raised_at(error, function))


def cause(error: BaseException) -> str:
    """What another's code raised, in one line."""
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def said(value: object, most: int = _MOST_SAID) -> str:
    """A value as an error names it: in one line, and of so many characters at most."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"of {value.bit_length()} bits"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # others' values may fail, and Python refuses to write long integers
        return f"of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]} ..."


def raised_at(error: BaseException, function: object = None) -> str:
    """Where an error was raised, as ``file:line: text``; "" where that is not known.

    With a function, the last line of its file that led there, where one did.
    """
    frames = list(traceback.extract_tb(error.__traceback__))
    code = getattr(function, "__code__", None)
    own = [f for f in frames if code is not None and f.filename == code.co_filename]
    frames = own or [f for f in frames if not f.filename.startswith("<frozen")]
    return f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""


def defined_at(function: object) -> str:
    """Where a function is written, as ``file:line``; "" where that is not known."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


class LayoutError(AxeError):
    """An impossible layout or layout operation."""

    MOST_SAID = 500


class NotationError(AxeError):
    """A layout text that does not parse, or a layout that a notation cannot express."""

    MOST_SAID = 500


class ProgramError(AxeError):
    """A program that cannot be traced: shapes, dtypes or operators that do not fit."""


class MissingAttribute(ProgramError, AttributeError):
    """An attribute that traced arrays do not have: to `hasattr`, none."""


class NotBuilt(MissingAttribute):
    """A function of arrays that other libraries have and this one has not: to `hasattr`, none."""


class PackError(AxeError):
    """A pack that does not load, or a law or operator that breaks the rules for packs."""


class SearchError(AxeError):
    """A search that hit a limit, or an unusable limit or switch."""


class ScheduleError(AxeError):
    """A schedule graph that cannot be built, planned or rebound."""


class DispatchError(AxeError):
    """No instruction of the target fits a primitive; carries every row's reason."""


class EmitError(AxeError):
    """A plan that an emitter cannot write as text."""


class ArgumentError(AxeError):
    """An argument of a compiled program with the wrong shape, dtype, strides or device."""


class OutOfRange(ArgumentError):
    """An integer that reads an array where it has no element."""


class DeviceError(AxeError):
    """A device or its driver is missing or failed."""


class MissingPackage(AxeError, ImportError):
    """A Python package that is needed for what was asked for, and not installed."""


def missing_package(
    error: ModuleNotFoundError, what: str, own: str = "axe_eq", of: str = "axe_eq"
) -> MissingPackage | None:
    """The error of `what`, which needs a package that is not here.

    None where the missing module is one of axe_eq or of `own`, the package that asks for it: a
    mistake in it, not in the installation. `of` is the distribution that requires it.
    """
    package = (error.name or "").partition(".")[0]
    if not package or package.startswith("axe_eq") or package == own:
        return None
    return MissingPackage(
        what, f"needs the package {package!r}, which is not installed", f"all that {of} requires",
        hint=f"installing {of} without --no-deps; "
        "axe.load, and calls of what it loads, need numpy and cuda-python alone",
    )  # fmt: skip

"""What the simulator says: errors that end a run, warnings that do not; both by check and line."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from axe_eq.errors import ProgramError, cause

Line = tuple[str, int]  # file and line of a kernel
NOWHERE: Line = ("", 0)

# id -> what the check is about. Sources: facts of the NKI documentation, see the functions that
# raise them (`checks.py`, `views.py`, `isa`).
CHECKS = {
    "P1": "shapes: at most 128 partitions, two dims on chip, no step over partitions, in bounds",
    "P2": "partition at which an access may start",
    "P3": "access patterns: dims, strides and counts that a descriptor holds",
    "M1": "operands of a matrix product: extents, dtypes, memories, one bank",
    "M2": "accumulation onto what a matrix product wrote",
    "M3": "accumulation groups that are open while read, or share a bank",
    "U1": "every element that is read or returned was written",
    "B1": "DMA: no PSUM, equal counts, equal dtypes under hwdge",
    "B2": "which engine reaches which memory",
    "E1": "which engine has which instruction and dtype",
    "O1": "operators: class of dtype, legal reductions, ranges of activations",
    "C1": "live bytes per partition of SBUF and PSUM",
    "C2": "explicit addresses: alignment, and tiles that overwrite one another",
    "D1": "length of contiguous runs of a DMA",
    "S1": "number of instructions",
}
WARNINGS = frozenset({"M3", "O1", "D1", "S1"})

_OURS = str(Path(__file__).parent)
_MOST_SHOWN = 200  # characters of a line


class NkiError(ProgramError):
    """A kernel that cannot be loaded or run, or that a check refuses.

    Attributes:
        check: id of the check; "" for an error that is none of a check.
    """

    def __init__(
        self, thing: str, wrong: str, expected: str = "", *, check: str = "", at: str = "",
        hint: str = "",
    ) -> None:  # fmt: skip
        super().__init__(thing, wrong, expected, at=at, hint=hint)
        self.check = check

    def __str__(self) -> str:
        text = super().__str__()
        return f"{self.check} {text}" if self.check else text


class AbsentName(NkiError, AttributeError):
    """A name that a module of NKI does not have in this dialect."""


@dataclass
class Finding:
    """A warning of a check.

    Attributes:
        check: its id.
        text: what is wrong, in the form of errors.
        line: where, in the kernel.
        times: how often that line gave it.
    """

    check: str
    text: str
    line: Line
    times: int = field(default=1)

    def __str__(self) -> str:
        more = f" ({self.times} times)" if self.times > 1 else ""
        return f"{self.check} {self.text}{more}\n  at {shown(self.line)}"


def kernel_line() -> Line:
    """The line that is running outside of the simulator: the kernel's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OURS):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return NOWHERE


def shown(line: Line) -> str:
    """A line as errors show it: file:line: text."""
    text = linecache.getline(*line).strip()[:_MOST_SHOWN]
    return f"{line[0]}:{line[1]}: {text}" if text else f"{line[0]}:{line[1]}"


def refuse(check: str, thing: str, wrong: str, expected: str, line: Line | None = None) -> NkiError:
    """The error of a check, at the line of the kernel that runs (or at another)."""
    return NkiError(thing, wrong, expected, check=check, at=shown(line or kernel_line()))


@contextmanager
def parsing(file: str) -> Iterator[None]:
    """Whatever Python's parser says of a text as one error.

    Raises:
        NkiError: the text is no Python, or nested deeper than Python takes.
    """
    try:
        yield
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said, number = getattr(error, "msg", None) or cause(error), getattr(error, "lineno", None)
        raise NkiError(f"file {file}", f"is no Python ({said})", "a text of kernels",
                       at=shown((file, number)) if number else "") from None  # fmt: skip


def remember(text: str, file: str) -> None:
    """Let errors show lines of a text that may be in no file."""
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file

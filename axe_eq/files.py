"""Files appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from axe_eq.errors import ArgumentError, said


def as_path(path: object) -> Path:
    """What a caller gave as the path of a file.

    Raises:
        ArgumentError: no path, or one without a file's name.
    """
    wanted = path if isinstance(path, str) else None
    if isinstance(path, os.PathLike):
        wanted = os.fspath(path)
    if not isinstance(wanted, str) or not _is_name(wanted) or not Path(wanted).name:
        raise ArgumentError(f"file {said(path)}", "is no path of a file", "a path")
    return Path(wanted)


def _is_name(text: str) -> bool:
    """Whether the system can name a file so: no zero byte, and nothing that no byte stands for."""
    try:
        return "\0" not in os.fsdecode(os.fsencode(text))
    except UnicodeEncodeError:
        return False


@contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path`; what is written there replaces it when the block ends well.

    Raises:
        ArgumentError: the place cannot be written, or holds what is no file, as a device is; what
            was at `path` is as before.
    """
    goal = as_path(path)
    part = goal.with_name(f".{goal.name}.{os.getpid()}.part")
    try:
        if goal.exists() and not goal.is_file():
            raise ArgumentError(f"file {str(path)!r}", "is there and no file", "a path for a file")
        yield part
        part.replace(goal)
    except OSError as error:
        what = f"cannot be written ({error.strerror or error})"
        raise ArgumentError(
            f"file {str(path)!r}", what, "a file in a folder that is there"
        ) from None
    finally:
        with suppress(OSError):
            part.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, whole or not at all.

    Raises:
        ArgumentError: the place cannot be written.
    """
    with whole(path) as part:
        part.write_text(text, encoding="utf-8")


def read_text(path: str, expected: str) -> str:
    """The text in a file.

    Raises:
        ArgumentError: there is none; says what was `expected` instead.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"file {path!r}", f"does not read ({error})", expected) from None

"""What benchmarks tell whoever started them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, TextIO, TypeVar

T = TypeVar("T")


def told(items: Sequence[T], what: str, to: TextIO | None = None) -> Iterator[T]:
    """The items, with how far they are: a bar on a terminal, else a line each.

    Args:
        items: what is gone through.
        what: is done with each.
        to: where it is told; standard error by default.
    """
    file: Any = to or sys.stderr
    if file.isatty():
        from rich.console import Console  # a machine that only measures may lack it
        from rich.progress import track

        yield from track(items, what, console=Console(file=file))
        return
    for number, item in enumerate(items):
        named = " ".join(map(str, item)) if isinstance(item, tuple) else str(item)
        print(f"{what} {number + 1} of {len(items)}: {named}", file=file, flush=True)
        yield item


def need(package: str) -> None:
    """End with one message where a package is not here."""
    try:
        import_module(package)
    except ImportError as error:
        raise absent(error) from None


def absent(error: ImportError) -> SystemExit:
    """The one message of a benchmark whose packages are not here."""
    return SystemExit(
        f"package {error.name!r}: cannot be imported ({error}); expected a machine with the GPU, "
        "torch and triton, as README says beside the figures"
    )

"""The command line `axe`: exit 0 yes or done, 1 refuted, 2 bad input, 3 unknown; --json on all."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import NoReturn

import click

from axe_eq.cli.group import Unread, axe
from axe_eq.debug import switches
from axe_eq.errors import AxeError, missing_package

UNREAD = 128 + 13  # the shell's code of a program that SIGPIPE ended: nobody reads its output
MOST_SAID = 2000  # characters of an error message
MOST_REPEATED = 500  # characters of one about the words of the command line


def main() -> None:
    """Entry point: an error of axe_eq is one message and exit code 2, never a traceback."""
    try:
        switches()  # an unknown AXE_ variable is an error of every command
        register()
        code = axe.main(prog_name="axe", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        _refuse(short(said.getvalue().rstrip(), MOST_REPEATED))
    except AxeError as error:
        public = next(c for c in type(error).__mro__ if c.__module__ == AxeError.__module__)
        _refuse(short(f"{public.__name__}: {error}"))
    except ModuleNotFoundError as error:
        missing = missing_package(error, "axe")
        if missing is None:
            raise
        _refuse(f"{type(missing).__name__}: {missing}")
    except MemoryError as error:
        _refuse(f"axe: needs more memory than there is ({error})")
    except Unread:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # takes what is left
        sys.exit(UNREAD)
    except OSError as error:  # files that are named in arguments have errors of their own
        _refuse(f"axe: cannot write its output ({error.strerror or error})")
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str) -> NoReturn:
    """Say what is wrong, where somebody reads it, and end as for bad input."""
    with suppress(OSError):
        click.echo(message, err=True)
    sys.exit(2)


def short(message: str, most: int = MOST_SAID) -> str:
    """A message, cut in the middle where it repeats an argument of many characters."""
    if len(message) <= most:
        return message
    return f"{message[: most * 3 // 4]} ... {message[-most // 8 :]}"


def register() -> None:
    """Load the commands; each module adds its own."""
    from axe_eq.cli import launch, layouts, programs, prove, registry, tune  # noqa: F401

"""The command line `axe`: exit 0 yes or done, 1 refuted, 2 bad input, 3 unknown; --json on all."""

from __future__ import annotations

import io
import sys

import click

from axe_eq.cli.group import axe
from axe_eq.debug import switches
from axe_eq.errors import AxeError, missing_package

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
        click.echo(short(said.getvalue().rstrip(), MOST_REPEATED), err=True)
        sys.exit(2)
    except AxeError as error:
        public = next(c for c in type(error).__mro__ if c.__module__ == AxeError.__module__)
        click.echo(short(f"{public.__name__}: {error}"), err=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        missing = missing_package(error, "axe")
        if missing is None:
            raise
        click.echo(f"{type(missing).__name__}: {missing}", err=True)
        sys.exit(2)
    except MemoryError as error:
        click.echo(f"axe: needs more memory than there is ({error})", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:  # files that are named in arguments have errors of their own
        click.echo(f"axe: cannot write its output ({error.strerror or error})", err=True)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def short(message: str, most: int = MOST_SAID) -> str:
    """A message, cut in the middle where it repeats an argument of many characters."""
    if len(message) <= most:
        return message
    return f"{message[: most * 3 // 4]} ... {message[-most // 8 :]}"


def register() -> None:
    """Load the commands; each module adds its own."""
    from axe_eq.cli import launch, layouts, programs, prove, registry  # noqa: F401

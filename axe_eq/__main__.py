"""`python -m axe_eq`, and where the command `axe` starts: says which package it lacks."""

from __future__ import annotations

import sys

from axe_eq.errors import missing_package


def main() -> None:
    """The command line; see `axe_eq.cli`."""
    try:
        from axe_eq.cli import main as run
    except ModuleNotFoundError as error:
        missing = missing_package(error, "axe")
        if missing is None:
            raise
        print(f"{type(missing).__name__}: {missing}", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()

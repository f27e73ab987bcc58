"""Commands that packages bring by entry points of the group axe_eq.commands."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import click
import pytest

from axe_eq.cli import group, main


@click.command()
def hello() -> None:
    """Say hello."""
    click.echo("hello")


HELLO = EntryPoint("hello", f"{__name__}:hello", group.COMMANDS)
ABSENT = EntryPoint("absent", "no_such_package.command:absent", group.COMMANDS)
WRONG = EntryPoint("wrong", "json:dumps", group.COMMANDS)
HIDDEN = EntryPoint("run", f"{__name__}:hello", group.COMMANDS)


@pytest.fixture
def axe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    points = EntryPoints((HELLO, ABSENT, WRONG, HIDDEN))
    monkeypatch.setattr(group, "entry_points", lambda **wanted: points.select(**wanted))

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["axe", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def test_a_command_of_a_package_is_listed_and_runs(axe: Any) -> None:
    listed = axe("--help")[1]
    assert "hello" in listed
    assert "Does not load." in listed
    assert axe("hello") == (0, "hello\n", "")
    assert "Say hello." in axe("hello", "--help")[1]


def test_it_hides_no_command_of_ours(axe: Any) -> None:
    assert "Compile, run, compare" in axe("run", "--help")[1]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent", "command 'absent': its no_such_package.command:absent cannot be imported ("),
        ("wrong", "command 'wrong': is <function dumps"),
    ],
)
def test_one_that_does_not_load_is_one_clear_message(axe: Any, name: str, said: str) -> None:
    code, out, err = axe(name)
    assert (code, out) == (2, "")
    assert err.startswith(f"PackError: {said}")

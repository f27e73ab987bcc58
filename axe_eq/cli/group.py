"""The group of all commands, and what every command has."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from axe_eq.cli.words import OPTIONS
from axe_eq.errors import PackError
from axe_eq.layout.notation.text import spelled

COMMANDS = "axe_eq.commands"  # entry points: `name = "module:command"`, a command of click


class Unread(Exception):
    """Nobody reads the output any more. Of the system's error click makes exit 1: refuted."""


@contextmanager
def _reader() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise Unread from None


class _Commands(click.Group):
    """The commands here and those of packs; an error about an unknown one names one like it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *entry_points(group=COMMANDS).names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        for point in () if own else entry_points(group=COMMANDS, name=cmd_name):
            return _loaded(point)
        return own

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _reader():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _reader():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if "?" in error.format_message():  # click has a guess
                raise
            known = " ".join(self.list_commands(ctx))
            raise click.UsageError(f"{error.message} Known are {known}.", ctx) from None


def _loaded(point: EntryPoint) -> click.Command:
    """A package's command; one that says what is wrong where it does not load."""
    try:
        command = point.load()
    except ImportError as error:
        wrong = f"its {point.value} cannot be imported ({error})"
    else:
        if isinstance(command, click.Command):
            return command
        wrong = f"is {command!r}"

    def refuse(**_: Any) -> None:
        raise PackError(f"command {point.name!r}", wrong, "a command of click that loads")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(point.name, anything, refuse, short_help="Does not load.")


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="axe-eq")
@click.pass_context
def axe(context: click.Context) -> None:
    """Prove that layouts, programs and schedules are the same; choose the cheapest; explain it."""
    context.with_resource(spelled(OPTIONS))  # errors name what can be typed here


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The --json flag that every command has."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def as_json_text(data: Any) -> str:
    """Strict JSON: numbers that are not finite become null, which JSON has no word for."""
    return json.dumps(_finite(data), allow_nan=False)


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data

"""The group of all commands, and what every command has."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from axe_eq.cli.words import OPTIONS
from axe_eq.layout.notation.text import spelled


class Unread(Exception):
    """Nobody reads the output any more. Of the system's error click makes exit 1: refuted."""


@contextmanager
def _reader() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise Unread from None


class _Commands(click.Group):
    """A group whose error about an unknown command names one like it, or all."""

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

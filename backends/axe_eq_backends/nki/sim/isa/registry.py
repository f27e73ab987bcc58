"""The table of instructions: name -> function, and the dialects that have it and its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from typing import Any

from axe_eq_backends.nki.sim.errors import NkiError, shown
from axe_eq_backends.nki.sim.state import current

DIALECTS = ("0.2", "0.3")


@dataclass(frozen=True)
class Instruction:
    """A name of `nki.isa`.

    Attributes:
        run: what a kernel calls.
        dialects: that have it.
        arguments: name -> dialects that have it.
    """

    run: Callable[..., None]
    dialects: tuple[str, ...]
    arguments: dict[str, tuple[str, ...]]


INSTRUCTIONS: dict[str, Instruction] = {}


def instruction(
    *dialects: str, only: dict[str, str] | None = None, defaults: dict[str, Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register an instruction of the given dialects, all by default.

    Args:
        dialects: that have it.
        only: argument -> the one dialect that has it.
        defaults: unused arguments that are taken and mean nothing to the simulator.
    """

    def wrap(function: Callable[..., None]) -> Callable[..., None]:
        name = function.__name__.rstrip("_")
        parameters = inspect.signature(function).parameters
        names = [*parameters]
        kinds = {
            p: type(of.default) for p, of in parameters.items() if isinstance(of.default, Enum)
        }
        arguments: dict[str, tuple[str, ...]] = {
            p: (only[p],) if only and p in only else DIALECTS for p in names
        }
        arguments |= {p: DIALECTS for p in ("name", *(defaults or {})) if p not in arguments}
        passive = set(arguments) - set(names)

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> None:
            state = current()
            state.begin(name)
            for key, given in (*zip(names, args, strict=False), *kwargs.items()):
                if state.dialect not in arguments.get(key, ()):
                    raise _no_argument(name, key, arguments, state.dialect, shown(state.line))
                if key in kinds and not isinstance(given, kinds[key] | None):
                    raise NkiError(f"{name} {key}", f"is {given!r}", f"nisa.{kinds[key].__name__}",
                                   at=shown(state.line))  # fmt: skip
            function(*args, **{k: v for k, v in kwargs.items() if k not in passive})

        INSTRUCTIONS[name] = Instruction(run, dialects or DIALECTS, arguments)
        return function

    return wrap


def _no_argument(
    name: str, key: str, arguments: dict[str, tuple[str, ...]], dialect: str, at: str
) -> NkiError:
    known = " ".join(a for a, where in arguments.items() if dialect in where)
    elsewhere = arguments.get(key)
    also = f" (dialect {' '.join(elsewhere)} has it)" if elsewhere else ""
    return NkiError(
        name, f"has no argument {key!r} in dialect {dialect}{also}", f"one of {known}", at=at
    )

"""A limit of time for everything a call does, looked at between its steps.

Steps say where they are with `check_deadline`; one that takes long is not interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from axe_eq.errors import Signal

Clock = Callable[[], float]


class DeadlinePassed(Signal):
    """The limit was reached; caught by whoever set it."""


class Deadline:
    """A limit that began with its making.

    Args:
        seconds: how long.
        clock: seconds from an arbitrary start.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self.seconds, self._clock, self._start = seconds, clock, clock()

    def spent(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._start

    def left(self) -> float:
        """Seconds until the end, at least 0."""
        return max(0.0, self.seconds - self.spent())


_NOW: ContextVar[Deadline | None] = ContextVar("deadline", default=None)
_clock: Clock = time.monotonic


@contextmanager
def deadline(seconds: float | None) -> Iterator[Deadline | None]:
    """Within it `check_deadline` raises once so many seconds have passed; None: no limit."""
    token = _NOW.set(None if seconds is None else Deadline(seconds, _clock))
    try:
        yield _NOW.get()
    finally:
        _NOW.reset(token)


def check_deadline() -> None:
    """Stop here if the limit has been reached.

    Raises:
        DeadlinePassed: it has.
    """
    now = _NOW.get()
    if now is not None and now.spent() >= now.seconds:
        raise DeadlinePassed


def seconds_left() -> float | None:
    """Seconds until the limit; None where there is none."""
    now = _NOW.get()
    return None if now is None else now.left()

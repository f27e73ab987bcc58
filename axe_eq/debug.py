"""The AXE_* switches, and `stage`, through which every stage of the compiler runs.

`Switches` is the one table of switches, and `switches.toml` says what they do. They are read from
the environment once, overridden inside ``with axe_eq.debug(level=4):``, and written to
docs/switches.md by ``python -m axe_eq.debug``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache, partial
from importlib import resources
from itertools import count
from pathlib import Path
from stat import S_ISDIR
from threading import RLock, Timer
from typing import TYPE_CHECKING, Any, TypeVar

from axe_eq.errors import AxeError, SearchError, said

if TYPE_CHECKING:
    from rich.status import Status

T = TypeVar("T")

# -- reading one value ----------------------------------------------------------------------------


def _whole(least: int, most: float = float("inf")) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise ValueError
        return value

    return read


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise ValueError
    return names


class _Unusable(ValueError):
    """A value that reads, and that this machine cannot use: says why."""


def _folder(text: str) -> Path:
    try:
        path = Path(text).expanduser()
        is_folder = S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):  # is made, or cannot be, when it is needed
        return path
    except OSError as error:
        raise _Unusable(error.strerror or str(error)) from None
    except (RuntimeError, ValueError) as error:  # "~who" without a home, a zero byte
        raise _Unusable(str(error).rstrip(".")) from None
    if not is_folder:
        raise _Unusable("not a folder")
    return path


def _file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise _Unusable("not a file")
    return path


# -- the table ------------------------------------------------------------------------------------


def _text(read: Callable[[str], Any], variable: str = "") -> dict[str, Any]:
    """How a switch is read, and its variable where that is not named as the field is."""
    return {"read": read, "variable": variable}


@dataclass(frozen=True)
class Switches:
    """Every switch with its value; a variable set to nothing counts as not set."""

    level: int = field(default=0, metadata=_text(_whole(0, 6), "AXE_DEBUG"))
    trace: Path | None = field(default=None, metadata=_text(_folder))
    check: int = field(default=0, metadata=_text(_whole(0, 2)))
    seed: int = field(default=0, metadata=_text(_whole(0)))
    packs: tuple[str, ...] | None = field(default=None, metadata=_text(_names))
    without: tuple[str, ...] = field(default=(), metadata=_text(_names))
    node_limit: int | None = field(default=None, metadata=_text(_whole(1)))
    time_limit_s: float | None = field(default=None, metadata=_text(_seconds))
    memory_limit_mb: int | None = field(default=None, metadata=_text(_whole(1)))
    cache: int = field(default=1, metadata=_text(_whole(0, 1)))
    cache_dir: Path | None = field(default=None, metadata=_text(_folder))
    corrections: Path | None = field(default=None, metadata=_text(_file))

    @property
    def cache_folder(self) -> Path:
        """`cache_dir`, or the user's own cache folder of axe_eq.

        Raises:
            OSError: neither is named, and the user has no home.
        """
        if self.cache_dir is not None:
            return self.cache_dir
        if base := os.environ.get("XDG_CACHE_HOME"):
            return Path(base) / "axe_eq"
        try:
            return Path.home() / ".cache" / "axe_eq"
        except RuntimeError as error:
            raise FileNotFoundError(str(error).rstrip(".")) from None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Switches:
        """Read the AXE_ variables of `environment`.

        Raises:
            SearchError: an AXE_ variable that is not a switch, or a value that does not read.
        """
        names = {variable: name for name, variable in _variables().items()}
        given = {name: text for name, text in environment.items() if name.startswith("AXE_")}
        for variable in sorted(given.keys() - names.keys()):
            raise _unknown("environment variable", variable, sorted(names))
        return cls().override({names[variable]: text for variable, text in given.items()})

    def override(self, changes: Mapping[str, object]) -> Switches:
        """These switches with some changed.

        Args:
            changes: field name -> value, typed or as text; None or "" restores the default.

        Raises:
            SearchError: a name that is not a switch, or a value that does not read.
        """
        known = _variables()
        for name in sorted(changes.keys() - known.keys()):
            raise _unknown("switch", name, list(known))
        return replace(self, **{name: _value(name, value) for name, value in changes.items()})


@cache
def _variables() -> dict[str, str]:
    """The environment variable of every switch."""
    return {s.name: s.metadata["variable"] or f"AXE_{s.name.upper()}" for s in fields(Switches)}


def _said(name: str) -> dict[str, str]:
    """What a switch accepts, its default as text, and its meaning."""
    import tomllib  # not for every command: errors and documents alone need it

    text = resources.files("axe_eq").joinpath("switches.toml").read_text("utf-8")
    return tomllib.loads(text)[name]  # type: ignore[no-any-return]


def _unknown(thing: str, name: str, known: Sequence[str]) -> SearchError:
    bare = {switch.removeprefix("AXE_"): switch for switch in known}
    near = get_close_matches(name.removeprefix("AXE_"), bare, n=1)
    return SearchError(
        f"{thing} {name}",
        "is not a switch of axe_eq",
        f"one of {', '.join(known)}",
        hint=bare[near[0]] if near else "",
    )


def _value(name: str, value: object) -> Any:
    """`value`, read as the environment would give it, so that both doors accept the same."""
    text = ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    if value is None or not text:
        return getattr(Switches(), name)
    try:
        return next(s.metadata["read"] for s in fields(Switches) if s.name == name)(text)
    except ValueError as error:
        why = f" ({error})" if isinstance(error, _Unusable) else ""
        wrong = f"cannot be {said(text, 400)}{why}"
        raise SearchError(f"switch {_variables()[name]}", wrong, _said(name)["accepts"]) from None


_overridden: ContextVar[Switches | None] = ContextVar("axe_eq_switches", default=None)


@cache
def _from_process() -> Switches:
    return Switches.from_environment(os.environ)


def switches() -> Switches:
    """The switches in force: the innermost `debug` block, else the environment at first use.

    Raises:
        SearchError: the environment has an AXE_ variable that is unknown or does not read.
    """
    return _overridden.get() or _from_process()


@contextmanager
def debug(level: int | None = None, **changes: object) -> Iterator[Switches]:
    """Override switches inside a ``with`` block, in this thread or task.

    ``with axe_eq.debug(level=3, trace="out", without=("online_softmax",)): ...``

    >>> with axe.debug(cache=0):
    ...     print(axe.equivalent("S[(4):(1@m)]", "S[(2,2):(2@m,1@m)]").how)
    rewritten

    Args:
        level: what AXE_DEBUG says; None leaves it.
        changes: other fields of `Switches`; None restores a default.

    Raises:
        SearchError: a name that is not a switch, or a value that does not read.
    """
    if level is not None:
        changes["level"] = level
    inside = switches().override(changes)
    token = _overridden.set(inside)
    try:
        yield inside
    finally:
        _overridden.reset(token)


def say(level: int, text: str | Callable[[], str]) -> None:
    """Print `text` (or what it returns) on standard error where AXE_DEBUG is at least `level`."""
    if switches().level >= level:
        print(text if isinstance(text, str) else text(), file=sys.stderr)


def switch_table() -> str:
    """docs/switches.md: every switch, from `Switches`."""
    lines = [
        "# Switches",
        "",
        "Environment variables, each also a keyword of `with axe_eq.debug(...):`. An unknown AXE_",
        "variable or value is an error. Generated by `make docs` from `axe_eq/debug.py`.",
        "",
        "| variable | keyword | accepts | default | meaning |",
        "|---|---|---|---|---|",
    ]
    for name, variable in _variables().items():
        cells = " | ".join(_said(name).values())
        lines.append(f"| `{variable}` | `{name}` | {cells} |")
    return "\n".join(lines) + "\n"


# -- progress -------------------------------------------------------------------------------------


class _Progress:
    """The line on a terminal that names what has been running for over a second."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._running: list[str] = []
        self._detail = ""
        self._listener: Callable[[str], None] | None = None
        self._timer: Timer | None = None
        self._status: Status | None = None

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Name what this block does; blocks nest."""
        with self._lock:
            self._running.append(name)
            if len(self._running) == 1 and sys.stderr.isatty():
                self._timer = Timer(1.0, self._show)
                self._timer.daemon = True
                self._timer.start()
            self.at("")
        try:
            yield
        finally:
            with self._lock:
                self._running.pop()
                self.at("")
                if not self._running:
                    self._hide()

    def at(self, detail: str) -> None:
        """Say how far the innermost block is ("round 3, 12400 rows"); cheap, never fails."""
        with self._lock:
            self._detail = detail
            if self._status is not None:
                self._status.update(self.line())
            if self._listener is not None:
                self._listener(self.text())

    @contextmanager
    def told(self, listener: Callable[[str], None]) -> Iterator[None]:
        """Tell `listener` where this is inside the block: so a worker tells its parent."""
        before, self._listener = self._listener, listener
        try:
            yield
        finally:
            self._listener = before

    def text(self) -> str:
        """What is running, and how far it is."""
        return ": ".join(filter(None, (" > ".join(self._running), self._detail)))

    def line(self) -> str:
        """What is shown, as rich markup."""
        return self.text().replace("[", r"\[")

    def _show(self) -> None:
        from rich.console import Console

        with self._lock:
            if self._running and self._status is None:
                self._status = Console(stderr=True).status(self.line())
                self._status.start()

    def _hide(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._status is not None:
            self._status.stop()
        self._timer = self._status = None


progress = _Progress()

# -- stages ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StageRecord:
    """One stage that ran: wall time in seconds, and notes such as rows or the stop reason."""

    name: str
    seconds: float
    notes: Mapping[str, object]
    depth: int

    def __str__(self) -> str:
        notes = "  ".join(f"{key}={value}" for key, value in self.notes.items())
        name = "  " * self.depth + self.name
        return f"{name:<24}{self.seconds * 1e3:>10.1f} ms  {notes}".rstrip()


class Report:
    """The stages of one compilation, in the order they began."""

    def __init__(self) -> None:
        self.stages: list[StageRecord] = []
        self._depth = 0

    @property
    def seconds(self) -> float:
        """Wall time of all stages; one inside another is counted once."""
        return sum(stage.seconds for stage in self.stages if stage.depth == 0)

    def __getitem__(self, name: str) -> StageRecord:
        for record in self.stages:
            if record.name == name:
                return record
        raise KeyError(name)

    def __str__(self) -> str:
        return "\n".join(map(str, self.stages))

    def to_json(self) -> list[dict[str, object]]:
        """One object per stage: name, seconds, depth, notes."""
        return [_as_json(stage) for stage in self.stages]

    @contextmanager
    def _nested(self) -> Iterator[Callable[[StageRecord], None]]:
        """Reserve the place of a stage, so that those inside it are listed after it."""
        place = len(self.stages)
        self._depth += 1
        try:
            yield lambda record: self.stages.insert(place, record)
        finally:
            self._depth -= 1


def stage(
    name: str,
    work: Callable[[], T],
    *,
    report: Report | None = None,
    notes: Callable[[T], Mapping[str, object]] | None = None,
    check: Callable[[T], object] | None = None,
    compare: Callable[[T], object] | None = None,
    show: Mapping[int, Callable[[T], str]] | None = None,
    describe: Callable[[T], object] | None = None,
) -> T:
    """Run one stage of the compiler and return its result.

    ``terms = stage("encode", lambda: encode(program), report=report, check=same_program)``

    Args:
        name: the stage, a short word.
        work: does it; alone in the stage's time.
        report: gets the stage's time and notes.
        notes: figures of the result (rows, stop reason), shown at AXE_DEBUG >= 2.
        check: raises where the result is not what the stage promises; called at AXE_CHECK >= 1.
        compare: raises where the result's meaning differs; called at AXE_CHECK = 2.
        show: AXE_DEBUG level -> text of the result to print from that level on.
        describe: the result as JSON data for AXE_TRACE; ``str`` where not given.

    Raises:
        SearchError: the folder of AXE_TRACE cannot be written.
        Exception: whatever `work`, `check` or `compare` raise.
    """
    report = Report() if report is None else report
    now = switches()
    with report._nested() as add, progress.running(name):
        began = time.perf_counter()
        try:
            result = work()
        except AxeError as error:
            say(1, f"{name} failed after {time.perf_counter() - began:.3f} s: {error.thing}")
            raise
        seconds = time.perf_counter() - began
        record = StageRecord(name, seconds, notes(result) if notes else {}, report._depth - 1)
        add(record)
        say(1, str(record if now.level > 1 else replace(record, notes={})))
        for level, text in sorted((show or {}).items()):
            say(level, partial(text, result))
        if now.trace is not None:
            _trace(now.trace, record, (describe or str)(result))
        for least, verify in ((1, check), (2, compare)):
            if verify is not None and now.check >= least:
                verify(result)
    return result


def _as_json(record: StageRecord) -> dict[str, object]:
    return {
        "stage": record.name,
        "seconds": record.seconds,
        "depth": record.depth,
        "notes": dict(record.notes),
    }


def _trace(folder: Path, record: StageRecord, value: object) -> None:
    """Write `value` as the next numbered file; earlier runs and other processes are kept."""
    text = json.dumps({**_as_json(record), "value": value}, indent=1, default=str)
    word = re.sub(r"\W+", "-", record.name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = (int(path.name[:4]) for path in folder.glob("[0-9][0-9][0-9][0-9]-*.json"))
        for number in count(max(taken, default=0) + 1):
            try:
                with (folder / f"{number:04}-{word}.json").open("x", encoding="utf-8") as file:
                    file.write(text + "\n")
                return
            except FileExistsError:
                continue
    except OSError as error:
        raise SearchError(
            "switch AXE_TRACE", f"cannot write to {str(folder)!r}: {error.strerror}", "a folder"
        ) from None


if __name__ == "__main__":
    print(switch_table(), end="")

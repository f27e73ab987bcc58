"""Searches in a process of their own, which ends at its deadline and cannot take all memory.

egglog sees neither a signal nor a clock inside one round of laws, so a law that runs away is only
stopped from outside. The worker is a fresh interpreter: a forked one hangs in egglog, and one
spawned by multiprocessing runs the user's script again.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from io import TextIOBase
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import IO, Any

from axe_eq.debug import debug, progress, switches
from axe_eq.egraph.threads import are_lost
from axe_eq.errors import AxeError, SearchError

START_S = 60.0  # for the interpreter and its imports, before a limit counts
_MIB = 1 << 20
_BOOT = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from axe_eq.egraph.worker import serve; serve(int(sys.argv[1]))"
)
_MEMORY_WORDS = ("memory allocation", "out of memory", "bad_alloc", "Cannot allocate memory")


class LimitReached(SearchError):
    """A worker ended at a limit, without an answer.

    Attributes:
        limit: the limit as a switch and its value; "memory" where the machine had no more.
    """

    def __init__(self, limit: str, wrong: str, expected: str, hint: str) -> None:
        self.limit = limit
        super().__init__("search", wrong, expected, hint=hint)


def is_limited() -> bool:
    """Whether a search needs a process of its own.

    The user set a limit that only such a process can keep, or this one was forked after a search
    and has lost the threads that e-graphs need.
    """
    now = switches()
    return are_lost() or now.time_limit_s is not None or now.memory_limit_mb is not None


def run_limited(
    function: str,
    argument: Any,
    *,
    seconds: float | None = None,
    memory_bytes: int | None = None,
    grace_s: float = 0.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Any:
    """Call a function in a worker, within limits.

    The worker has this process' import path, folder and switches; what it prints on standard error
    is printed here. It is gone when this returns or raises, however it does.

    Args:
        function: "module:name".
        argument: passed to it, pickled; what it loads where it is read counts for no limit.
        seconds: the limit that errors name, counted from when the worker has loaded everything.
        memory_bytes: memory it may take beyond what was loaded.
        grace_s: time after the limit in which it may still answer with what it has.
        tell: told where it is.

    Raises:
        LimitReached: a limit was reached.
        SearchError: the worker died, or the argument cannot be pickled.
        AxeError: what the function raised, with the same fields.
    """
    try:
        sent = pickle.dumps(argument)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        wrong = f"cannot be sent to another process ({error})"
        raise SearchError("what is searched", wrong, "plain data, as of a target") from None
    here, there = Pipe()
    with tempfile.TemporaryFile() as crash, here, _started(there, crash) as process:
        here.send((function, sent, memory_bytes, switches()))
        try:
            return _answer(here, seconds, grace_s, tell)
        except (EOFError, ConnectionError):
            process.wait()
        except MemoryError:
            raise _out_of_memory(memory_bytes) from None
        raise _died(process.returncode, _last_line(crash), memory_bytes)


@contextmanager
def _started(there: Connection, crash: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A worker at the other end; killed and waited for when the block ends."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AXE_")}
    with there:
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(there.fileno()), *sys.path],
            env=environment,
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=crash,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _answer(
    here: Connection, seconds: float | None, grace_s: float, tell: Callable[[str], None]
) -> Any:
    """What the worker answers; its other messages are handled on the way."""
    end, late = time.monotonic() + START_S, _slow_start()
    while True:
        left = end - time.monotonic()
        if left <= 0 or not here.poll(min(left, 3600.0)):
            if left > 3600.0:
                continue
            raise late
        kind, value = here.recv()
        if kind == "result":
            return value
        if kind == "error":
            raise value
        if kind == "failed":
            raise _failed(*value)
        if kind == "ready":
            end = float("inf") if seconds is None else time.monotonic() + seconds + grace_s
            late = _too_slow(seconds or 0.0)
        elif kind == "at":
            tell(value)
        else:
            sys.stderr.write(value)


# -- errors ---------------------------------------------------------------------------------------


def _slow_start() -> SearchError:
    return SearchError("search", f"its worker did not start in {START_S:g} s", "a free machine")


def _too_slow(seconds: float) -> LimitReached:
    limit = f"AXE_TIME_LIMIT_S={seconds:g}"
    return LimitReached(
        limit, f"exceeded {limit} s", "a search that ends by itself",
        "a larger AXE_TIME_LIMIT_S, or leave out the law that grows without end",
    )  # fmt: skip


def _out_of_memory(bytes: int | None) -> LimitReached:
    if bytes is None:
        return LimitReached("memory", "ran out of this machine's memory", "more memory",
                            "AXE_MEMORY_LIMIT_MB stops it earlier")  # fmt: skip
    limit = f"AXE_MEMORY_LIMIT_MB={bytes // _MIB}"
    return LimitReached(
        limit, f"exceeded {limit} MiB", "a search that needs less",
        "a larger AXE_MEMORY_LIMIT_MB, or leave out the law that grows without end",
    )  # fmt: skip


def _died(code: int, said: str, limit: int | None) -> SearchError:
    """The error of a worker that ended without a word; aborts and kills are lacks of memory."""
    memory = code == -signal.SIGKILL or any(word in said for word in _MEMORY_WORDS)
    if memory or (limit is not None and code < 0):
        return _out_of_memory(limit)
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return SearchError("search", f"its worker died by {how}" + (f" ({said})" if said else ""))


def _failed(what: str, where: str) -> SearchError:
    error = SearchError("search", f"failed in its worker ({what})")
    error.add_note(where)
    return error


def _last_line(crash: IO[bytes]) -> str:
    crash.seek(0)
    lines = crash.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


# -- in the worker --------------------------------------------------------------------------------


class _Said(TextIOBase):
    """Standard error of a worker: its parent prints it, wherever its own may go."""

    def __init__(self, parent: Connection) -> None:
        self._parent = parent

    def write(self, text: str, /) -> int:
        self._parent.send(("said", text))
        return len(text)


def serve(handle: int) -> None:
    """Answer the one request that comes in through a connection.

    Args:
        handle: file descriptor of the connection.
    """
    parent = Connection(handle)
    name, sent, memory_bytes, given = parent.recv()
    Thread(target=_end_with, args=(parent,), daemon=True).start()
    sys.stderr = _Said(parent)
    try:
        with debug(**vars(given)), progress.told(lambda at: parent.send(("at", at))):
            function = _named(name)
            argument = pickle.loads(sent)
            _limit_memory(memory_bytes)
            parent.send(("ready", None))
            answer: tuple[str, Any] = ("result", function(argument))
    except BaseException as error:  # a panic of egglog is no Exception
        _limit_memory(None)  # words for it need some
        answer = _answer_of(error, limited=memory_bytes is not None)
    _limit_memory(None)
    parent.send(answer)


def _end_with(parent: Connection) -> None:
    """End this process when its parent does; the parent says nothing more."""
    try:
        parent.recv()
    except (EOFError, OSError):
        os._exit(1)


def _named(name: str) -> Callable[[Any], Any]:
    module, _, attribute = name.partition(":")
    function: Callable[[Any], Any] = getattr(import_module(module), attribute)
    return function


def _answer_of(error: BaseException, *, limited: bool) -> tuple[str, Any]:
    """What the parent is told of an error."""
    if _lacked_memory(error, limited=limited):
        return "error", MemoryError()
    if isinstance(error, AxeError):
        return "error", error
    where = "".join(traceback.format_exception(error))
    return "failed", (f"{type(error).__name__}: {error}", where)


def _lacked_memory(error: BaseException, *, limited: bool) -> bool:
    """Whether an error, or what it was raised for, is a lack of memory.

    C code that is given no memory at times fails without an exception; the interpreter then raises
    a SystemError, which under a limit means nothing else.
    """
    lacks = (MemoryError, SystemError) if limited else MemoryError
    at: BaseException | None = error
    while at is not None and not isinstance(at, lacks):
        at = at.__cause__
    return at is not None


def _limit_memory(beyond: int | None) -> None:
    """Limit the address space to what is taken now and `beyond`; None lifts the limit.

    Raises:
        SearchError: a system without such a limit.
    """
    import resource  # absent where there is no such limit; nothing else here needs it

    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = most if beyond is None else _address_space() + beyond
    if limit > sys.maxsize:  # more than the system can count is no limit
        limit = most
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    except (ValueError, OSError) as error:
        what = f"cannot be enforced here ({error})"
        raise SearchError("switch AXE_MEMORY_LIMIT_MB", what, "a system with RLIMIT_AS") from None


def _address_space() -> int:
    """Bytes of address space in use; 0 where the system does not tell."""
    table = Path("/proc/self/statm")
    pages = int(table.read_text().split()[0]) if table.exists() else 0
    return pages * os.sysconf("SC_PAGE_SIZE")

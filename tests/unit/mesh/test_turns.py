"""Windows of calls in turns by peer access, with a stand-in for the devices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from axe_eq_backends.mesh import peers
from tests.unit.mesh.test_meetings import product


class Stream:
    """Of a device; it notes what it is asked for."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def wait_stream(self, other: Stream) -> None:
        self.log.append(f"{self.name} follows {other.name}")

    def record_event(self) -> str:
        return f"what {self.name} did"

    def wait_event(self, event: str) -> None:
        self.log.append(f"{self.name} waits for {event}")


def turns_of(
    n_turns: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[peers.Turns, list[str], list[Stream], list[Any]]:
    """Turns on two devices, what they do, the streams that are current, and what is done again."""
    log, tape = list[str](), list[Any]()
    streams = [Stream(f"stream {d}", log) for d in range(2)]

    def do(action: Any) -> None:
        action()
        tape.append(action)

    windows = iter("AB")

    def sights(self: Any, plan: Any) -> list[Any]:
        window = next(windows)

        def number(rank: int) -> Any:
            return SimpleNamespace(fill_=lambda n: log.append(f"{window}{rank} is {min(n, 9)}"))

        return [SimpleNamespace(own=lambda name, r=r: number(r), at=window) for r in range(2)]

    cuda = SimpleNamespace(current_stream=lambda d: streams[d],
                           synchronize=lambda d: log.append(f"wait for device {d}"))  # fmt: skip
    session = SimpleNamespace(torch=SimpleNamespace(cuda=cuda), arrays=[SimpleNamespace(do=do)] * 2)
    monkeypatch.setattr(peers.Turns, "_window", sights)
    monkeypatch.setattr(peers, "turns_of", lambda plan: n_turns)
    plan: Any = product("summed", 2).plan if n_turns == 2 else SimpleNamespace(signals=(), seen=())
    session_: Any = session
    return peers.Turns(session_, plan), log, streams, tape


def test_numbers_are_open_in_calls_that_are_made_and_count_in_those_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns, log, _, tape = turns_of(2, monkeypatch)
    begun: list[Any] = [turns.begin(), turns.begin()]
    assert [[sight.at for sight in call] for call in begun] == [["A", "A"], ["B", "B"]]
    assert begun[0][0].before is begun[1][0]
    assert begun[1][1].before is begun[0][1]
    assert log == ["A0 is 9", "A1 is 9", "B0 is 9", "B1 is 9"]
    log.clear()
    for action in (*tape, *tape):
        action()
    wait = ["wait for device 0", "wait for device 1"]
    assert log == [*wait, "A0 is 0", "A1 is 0", "B0 is 0", "B1 is 0", *wait]
    log.clear()
    turns.begin()  # one that is made once more does not count
    assert log == ["A0 is 9", "A1 is 9"]


@pytest.mark.parametrize("n_turns", [1, 2])
def test_calls_follow_the_last_on_other_streams(
    n_turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, log, streams, _ = turns_of(n_turns, monkeypatch)
    turns.begin()
    turns.end()
    met = ["stream 0 waits for what stream 1 did", "stream 1 waits for what stream 0 did"]
    assert [line for line in log if "stream" in line] == (met if n_turns == 1 else [])
    log.clear()
    turns.begin()
    assert not any("follows" in line for line in log)
    streams[1] = Stream("another", log)
    turns.begin()
    assert [line for line in log if "follows" in line] == ["another follows stream 1"]

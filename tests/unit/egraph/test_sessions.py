"""Sessions on the same laws share an e-graph, one after the other, and nothing else."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.egraph import session as sessions
from axe_eq.egraph.session import Session
from axe_eq.errors import PackError
from axe_eq.pack import installed
from axe_eq.program.terms import In, encode, type_of, types_of
from axe_eq.prove.programs.search import SYMBOLS, program_laws

xp = axe.array
X = In("x", "f32[8]")
LAWS = {k: law for k, law in program_laws(installed().values()).items() if not law.normal}
FEW = dict(list(LAWS.items())[:9])
PROGRAMS = [
    lambda x: xp.exp(x) * 2.0 + x,
    lambda x: nn.softmax(x @ x.T),
    lambda x: xp.sum(x.T, axis=0) - x,
]


@pytest.fixture(autouse=True)
def taught(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The e-graphs that are taught laws in a test, which begins without any."""
    made: list[Any] = []
    begin = sessions._Taught.__init__

    def noted(self: Any, known: Any) -> None:
        made.append(known)
        begin(self, known)

    monkeypatch.setattr(sessions._Taught, "__init__", noted)
    monkeypatch.setattr(sessions, "_kept", {})
    yield made
    gc.collect()  # what a test leaves is not the next one's


def searched(fn: Any, known: dict[str, Any]) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """Tables with rows and firings of laws of one session, which ends."""
    session = Session({"exact": known}, SYMBOLS, [type_of, types_of], record=True)
    assert session.rows() == 0
    terms = encode(axe.trace(fn, axe.Spec((8, 8), "f32")).outputs).values()
    session.insert_all(terms)
    report = session.run("exact", 2)
    session.set_aside(terms)  # after which no law and no rule sees them
    return [table for table in session._sizes() if table[1]], report.matches


def test_a_session_finds_the_same_after_others(taught: list[Any]) -> None:
    found = [searched(fn, LAWS) for fn in [*PROGRAMS, *reversed(PROGRAMS)]]
    assert len(taught) == 1
    for first, again in zip(found, reversed(found), strict=True):
        assert first == again
    for fn, again in [*zip(PROGRAMS, found, strict=False)][1:]:  # the first had no other before
        sessions._kept.clear()
        assert searched(fn, LAWS) == again
    assert len(taught) == len(PROGRAMS)
    assert all(matches for _, matches in found)


def test_programs_are_compiled_the_same_after_others(taught: list[Any]) -> None:
    def compiled(fn: Any) -> str:
        return str(axe.compile(fn, axe.Spec((8, 8), "f32"), target="cpu").schedule)

    with axe.debug(cache=0):
        found = [compiled(fn) for fn in PROGRAMS]
        assert len(taught) == 1
        for fn, schedule in [*zip(PROGRAMS, found, strict=True)][1:]:  # the first had no other
            sessions._kept.clear()
            assert compiled(fn) == schedule


def test_two_sessions_at_once_have_an_e_graph_each(taught: list[Any]) -> None:
    first, second = (Session({"exact": FEW}, SYMBOLS, [type_of, types_of]) for _ in range(2))
    assert len(taught) == 2
    first.insert(X)
    assert (first.rows(), second.rows()) == (second.rows() + 2, first.rows() - 2)


def test_other_laws_have_another_e_graph(taught: list[Any]) -> None:
    for given in (FEW, dict(list(FEW.items())[1:]), dict(reversed(FEW.items())), FEW):
        Session({"exact": given}, SYMBOLS, [type_of, types_of])
    Session({"exact": FEW}, SYMBOLS, [type_of, types_of], record=True)
    Session({"other": FEW}, SYMBOLS, [type_of, types_of])
    assert len(taught) == 5


def test_few_are_kept() -> None:
    for n in range(2 * sessions._KEPT_AT_MOST):
        Session({f"ruleset_{n}": {}}, SYMBOLS, [type_of, types_of])
    assert len(sessions._kept) == sessions._KEPT_AT_MOST


def test_what_served_many_rows_is_not_kept(
    taught: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_ROWS_AT_MOST", 5)
    for n_made in (1, 1, 1, 2):  # two rows each
        Session({"exact": FEW}, SYMBOLS, [type_of, types_of]).insert(X)
        assert len(taught) == n_made


def test_what_broke_off_is_not_kept(taught: list[Any]) -> None:
    session = Session({"exact": FEW}, SYMBOLS, [type_of, types_of])
    session.insert(X)
    with pytest.raises(PackError, match="two different facts met in one class"):
        session.set_facts(type_of, [(X, "f32[8]"), (X, "f32[9]")])
    del session
    gc.collect()
    assert not sessions._kept
    Session({"exact": FEW}, SYMBOLS, [type_of, types_of])
    assert len(taught) == 2


def test_an_e_graph_stays_in_its_thread(taught: list[Any]) -> None:
    found: list[Any] = []
    Session({"exact": FEW}, SYMBOLS, [type_of, types_of], record=True)
    thread = threading.Thread(target=lambda: found.append(searched(PROGRAMS[0], FEW)))
    thread.start()
    thread.join()
    assert len(taught) == 2
    assert found == [searched(PROGRAMS[0], FEW)]
    assert len(taught) == 2

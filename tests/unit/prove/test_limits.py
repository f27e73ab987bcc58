"""Limits of `equivalent`: a worker keeps them, and what it did not decide is Unknown, no error."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
import axe_eq.array as xp
from axe_eq.errors import PackError
from axe_eq.pack import Pack, installed
from axe_eq.prove.certificates.verdict import ProgramCounterexample, Proved, Refuted, Unknown
from axe_eq.prove.programs.frontier import Frontier

# Laws that hold a search up inside one round of laws, where it looks at no clock.
PACKS = """
from axe_eq.pack import Pack
from axe_eq.program.terms import Sig, Value, op
from axe_eq.rule.term import STR, primitive

STALLS, GROWS = Pack("stalls", exact=False), Pack("grows", exact=False)

@primitive((STR,), (STR,))
def stall(sig):
    while True:
        pass

@primitive((STR,), (STR,))
def grow(sig):
    return len(bytearray(1 << 40)) and sig

@STALLS.law(source="tests")
def stalling(s: Sig, x: Value):
    "s[exp](x) = s[exp](x), once the machine has stopped."
    return op(s, "exp", x), op(stall(s), "exp", x)

@GROWS.law(source="tests")
def growing(s: Sig, x: Value):
    "s[exp](x) = s[exp](x), given a terabyte."
    return op(s, "exp", x), op(grow(s), "exp", x)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("packs")
    (folder / "limit_packs.py").write_text(textwrap.dedent(PACKS))
    sys.path.insert(0, str(folder))
    yield import_module("limit_packs")
    sys.path.remove(str(folder))
    del sys.modules["limit_packs"]


def no_child_is_left() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def gated(x: Any, y: Any) -> Any:
    return xp.exp(x + y) * y


def turned(x: Any, y: Any) -> Any:
    return y * xp.exp(y + x)


def spread(x: Any, y: Any) -> Any:
    return y * (xp.exp(y) * xp.exp(x))


def cut(x: Any, y: Any) -> Any:
    return xp.exp(x + y) * x


SPECS = ("3x4:f64", "3x4:f64")


@pytest.mark.parametrize(
    ("pack", "limits", "words"),
    [
        ("STALLS", {"time_limit_s": 1.0}, "exceeded AXE_TIME_LIMIT_S=1 s"),
        ("GROWS", {"memory_limit_mb": 300}, "exceeded AXE_MEMORY_LIMIT_MB=300 MiB"),
    ],
)
def test_a_limit_that_is_reached_makes_the_verdict_unknown(
    made: Any, pack: str, limits: dict[str, Any], words: str
) -> None:
    with axe.debug(**limits):
        verdict = axe.equivalent(gated, spread, *SPECS, packs=[getattr(made, pack)])
    assert isinstance(verdict, Unknown)
    assert words in str(verdict)
    assert verdict.budget == words.split()[1]
    assert no_child_is_left()


@pytest.fixture(scope="module")
def normal() -> list[Pack]:
    """Normal forms alone: the laws of all packs take seconds to compile in a fresh process."""
    return [installed()["real_normal"]]


@pytest.mark.parametrize(("other", "kind"), [(turned, Proved), (cut, Refuted), (spread, Unknown)])
def test_verdicts_within_the_limits_are_those_without(
    other: Callable[..., Any], kind: type, normal: list[Pack]
) -> None:
    plain: Any = axe.equivalent(gated, other, *SPECS, packs=normal, budget=2)
    with axe.debug(time_limit_s=60.0, memory_limit_mb=4000):
        limited: Any = axe.equivalent(gated, other, *SPECS, packs=normal, budget=2)
    assert [type(plain), type(limited)] == [kind, kind]
    if isinstance(limited, Proved):
        assert axe.check_certificate(limited.certificate)
        assert limited.statement == plain.statement
    elif isinstance(limited, Refuted):
        assert str(plain) == str(limited)
        assert isinstance(limited.counterexample, ProgramCounterexample)
        pairs = zip(plain.counterexample.inputs, limited.counterexample.inputs, strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)
    else:
        assert isinstance(limited.missing, Frontier)
        assert limited.missing.pairs == plain.missing.pairs


def test_assumptions_and_numerics_reach_the_worker() -> None:
    def assumed(x: Any, y: Any) -> Any:
        return xp.exp(x) * xp.tanh(y)

    with axe.debug(time_limit_s=60.0):
        verdict = axe.equivalent(
            lambda x, y: gated(x, y) + x, lambda x, y: assumed(x, y) + x, *SPECS,
            numerics="exact", packs=[],
            assume=[(axe.trace(gated, *SPECS), axe.trace(assumed, *SPECS))],
        )  # fmt: skip
    assert isinstance(verdict, Proved)
    assert verdict.statement.numerics == "exact"
    assert len(verdict.statement.assume) == 1


def test_switches_bound_the_search_itself(normal: list[Pack]) -> None:
    with axe.debug(node_limit=10):
        verdict = axe.equivalent(gated, spread, *SPECS, packs=normal)
    assert isinstance(verdict, Unknown)
    assert verdict.missing.stopped == "rows"


def test_what_is_wrong_with_the_call_or_the_worker_is_an_error() -> None:
    lost = Pack("lost", exact=True)
    with axe.debug(time_limit_s=60.0):
        with pytest.raises(PackError, match="cannot be found by another process"):
            axe.equivalent(gated, spread, *SPECS, packs=[lost])
        with pytest.raises(axe.AxeError, match="numerics"):
            axe.equivalent(gated, spread, *SPECS, numerics="rough")


def test_any_positive_number_of_seconds_is_a_budget() -> None:
    for seconds in (10**400, sys.float_info.max, float("inf")):
        assert isinstance(axe.equivalent(lambda x: x, lambda x: x, "4:f32", budget=seconds), Proved)

"""Calls of the Python interface with arguments nobody should pass: one clear error each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
import axe_eq.array as xp
from axe_eq import nn
from axe_eq.run.executable import Executable

anything: Any = axe  # the calls are wrong on purpose


def doubled(x: Any) -> Any:
    return x * 2.0


@pytest.fixture(scope="module")
def exe() -> Executable:
    return axe.compile(doubled, axe.Spec((4,), "f32", dims=("n",)), target="cpu")


def compiled(**arguments: Any) -> Callable[[], Any]:
    return lambda: axe.compile(doubled, "4:f32", **{"target": "cpu", **arguments})


def traced(fn: Callable[..., Any], spec: str = "4:f32") -> Callable[[], Any]:
    return lambda: axe.trace(fn, spec)


CALLS: dict[str, Callable[[], Any]] = {
    "function": lambda: anything.compile(None, "4:f32"),
    "builtin": lambda: axe.trace(int, "4:f32"),
    "spec": lambda: axe.compile(doubled, 4),
    "shape": lambda: anything.Spec(None, "f32"),
    "extent": lambda: anything.Spec((1.5,), "f32"),
    "huge extent": lambda: axe.Spec((2**70,), "f32"),
    "many dims": lambda: axe.Spec((1,) * 40, "f32"),
    "dtype": lambda: anything.Spec((4,), 3),
    "dim names": lambda: anything.Spec((4,), "f32", dims=(3,)),
    "number of dim names": lambda: axe.Spec((4,), "f32", dims=("a", "b")),
    "layout of a spec": lambda: anything.Spec((4,), "f32", layout=3),
    "dim": lambda: anything.dim(3),
    "divisible": lambda: anything.dim("n", divisible="a"),
    "mesh": compiled(mesh={"x": 2}),
    "packs as one text": compiled(packs="tensor"),
    "packs as a number": compiled(packs=3),
    "no packs": compiled(packs=[]),
    "without as one text": compiled(without="real"),
    "without a number": compiled(without=[5]),
    "without a list": compiled(without=[["real"]]),
    "a list as a pack": compiled(packs=[["real"]]),
    "numerics": compiled(numerics=None),
    "number of outputs": compiled(outputs=[None, None]),
    "layout of an output": compiled(outputs=["S[(4):(1@m)]"]),
    "size of an output": compiled(outputs=[axe.Layout([(8, 1, "m")])]),
    "shape of an output": compiled(outputs=[axe.read("axe", "S[(4):(1@m)]", shape=(2, 2))]),
    "two things to compare": lambda: axe.equivalent(3, 4),
    "function and layout": lambda: axe.equivalent(doubled, "S[(4):(1@m)]"),
    "assumptions": lambda: anything.equivalent(doubled, doubled, "4:f32", assume=[doubled]),
    "budget": lambda: anything.equivalent(doubled, doubled, "4:f32", budget="soon"),
    "proof numerics": lambda: anything.equivalent(doubled, doubled, "4:f32", numerics=3),
    "saved program": lambda: anything.load(None),
    "saved program of half a character": lambda: axe.load("\ud800"),
    "rebound dim": lambda: anything.trace(doubled, "n=4:f32").rebind(n="a"),
    "drawing": lambda: axe.trace(doubled, "4:f32").draw("/nowhere/x.svg"),
    "axis": traced(lambda x: xp.sum(x, axis="a")),  # type: ignore[arg-type]
    "reshape": traced(lambda x: xp.reshape(x, None)),  # type: ignore[arg-type]
    "no arrays": traced(lambda x: xp.concat([])),
    "einsum": traced(lambda x: nn.einsum(3, x)),  # type: ignore[arg-type]
    "large constant": traced(lambda x: x * 10**400),
}

ON_COMPILED: dict[str, Callable[[Any], Any]] = {
    "no array": lambda exe: exe(),
    "array of another kind": lambda exe: exe("text"),
    "objects": lambda exe: exe(np.array([{}] * 4)),
    "no elements": lambda exe: exe(np.ones(0, np.float32)),
    "bound to a list": lambda exe: exe.schedule.bind(n=[4]),
    "bound to too much": lambda exe: exe.schedule.bind(n=2**70),
    "saved at a zero byte": lambda exe: exe.save("a\0b"),
    "saved at bytes": lambda exe: exe.save(b"a.axe"),
    "saved at a long name": lambda exe: exe.save("a" * 300),
    "saved at half a character": lambda exe: exe.save("\ud800"),
    "saved nowhere": lambda exe: exe.save(None),
    "page nowhere": lambda exe: exe.schedule.html("/nowhere/x.html"),
}


def test_every_bad_call_is_one_clear_error(exe: Executable, golden: Callable[..., None]) -> None:
    calls: dict[str, Callable[[], Any]] = {**CALLS}
    calls |= {n: partial(c, exe) for n, c in ON_COMPILED.items()}
    said = []
    for name, call in calls.items():
        try:
            call()
        except axe.AxeError as error:
            said.append(f"{name}\n    {type(error).__name__}: {error}")
        else:
            pytest.fail(f"{name}: nothing was wrong")
    golden("\n".join(said))

"""Whatever is asked, only errors of axe_eq come out: bad texts, extents, arguments and files.

Every case is drawn by its number, so that a failure names what to repeat; ``--full`` runs all.
"""

from __future__ import annotations

import hashlib
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.array import sum
from axe_eq.errors import AxeError

SPECS, LAYOUTS, CALLS, FILES = 2000, 2000, 400, 1000  # cases of the whole campaign
CHARACTERS = "0123456789x:,()[]@+-*.RSfibnm{}'\"=%#<> \0é\ud800"
NUMBERS = ("0", "-1", "1", "3", "4096", "2147483648", "9" * 20, "9" * 5000, "1e9", "n", "")
NOTATIONS = (
    "S[(4,8):(8@m,1@lane)] + R[2:4@gpuid] + 3@m", "sw(3,3,3)@m . S[(8,64):(64,1)]",
    "cute:(4,(2,4)):(8,(1,2))", "xla:f32[3,5]{1,0:T(2,128)(2,1)}", "jax:P('x',None)",
    "hlo:{devices=[2,1]<=[2]}", "alpa:S0R", "strides:size=(4,8), stride=(8,1)",
    "tile(A[8], (8), S[(n):(1)], (n))", "box[(3) of (4)] in S[(2,2):(2,1)]",
)  # fmt: skip


def changed(text: str, rng: random.Random) -> str:
    """A text with one to three characters or numbers replaced, added or gone."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(text))
        new = rng.choice([*NUMBERS, *CHARACTERS, ""])
        text = text[:at] + new + text[at + rng.randint(0, 2) :]
    return text


def only_own_errors(what: object, ask: Callable[[], object]) -> bool:
    """Ask; whether an answer came. What is no error of axe_eq fails, with the question."""
    try:
        ask()
    except AxeError as error:
        str(error)
        return False
    except Exception as error:
        raise AssertionError(f"{what!r}: {type(error).__name__}: {error}") from error
    return True


def cases(n: int, full: bool) -> Iterator[tuple[int, random.Random]]:
    for number in range(0, n, 1 if full else 20):
        yield number, random.Random(number)


def test_texts_of_specs_are_read_or_refused(full: bool) -> None:
    answers = set()
    for number, rng in cases(SPECS, full):
        text = changed(
            rng.choice(["8x64:f16", "n=8xm=4:f32", ":i32", "4x4:f32@S[(4,4):(1,4)]"]), rng
        )

        def ask(text: str = text) -> object:
            return axe.trace(lambda x: x + x, text)

        answers.add(only_own_errors((number, text), ask))
    assert answers == {True, False}


def test_texts_of_layouts_are_read_or_refused(full: bool) -> None:
    answers = set()
    for number, rng in cases(LAYOUTS, full):
        text = changed(rng.choice(NOTATIONS), rng)

        def ask(text: str = text) -> object:
            return axe.equivalent(text, text, budget=1)

        answers.add(only_own_errors((number, text), ask))
    assert False in answers


ODD: tuple[Any, ...] = (
    None, "x", b"x", 3, 1.5, float("nan"), [], {}, object(), np.array(["a"]), np.zeros((2, 3)),
    np.zeros((2, 2), np.float32)[::-1], np.zeros((2, 2), np.float32), np.zeros((2, 2), object),
)  # fmt: skip


def test_calls_with_any_arguments_are_answered_or_refused(full: bool) -> None:
    spec = axe.Spec((2, 2), "f32", layout="S[(2,2):(2,1)]")
    exe = axe.compile(lambda x, w: x + w, spec, "2x2:f32", target="cpu")
    good = np.zeros((2, 2), np.float32)
    assert exe(good, w=good).shape == (2, 2)
    for number, rng in cases(CALLS, full):
        given = [rng.choice((good, *ODD)) for _ in range(rng.randint(0, 3))]
        named = {rng.choice("xwz"): rng.choice((good, *ODD)) for _ in range(rng.randint(0, 2))}
        for f in (exe, exe.bind, exe.meaning):
            only_own_errors((number, given, named), partial(f, *given, **named))


def test_programs_of_any_extents_are_decided_or_refused(full: bool) -> None:
    """No extent makes a question take an array of its size."""
    extents = (1, 7, 4096, 1 << 24, 400_000_000, 1 << 40, (1 << 48) // 3)
    pairs: list[tuple[Any, Any]] = [
        (lambda x: x + x, lambda x: x * 2),
        (lambda x: sum(x), lambda x: sum(x * 1.0)),
        (lambda x: axe.array.flip(x), lambda x: x),
        (lambda x: axe.array.reshape(x, (-1,)), lambda x: axe.array.reshape(x * 2, (-1,))),
    ]
    for number, rng in cases(100, full):
        shape = tuple(rng.choice(extents) for _ in range(rng.randint(1, 2)))
        left, right = rng.choice(pairs)

        def ask(left: Any = left, right: Any = right, shape: Any = shape) -> object:
            spec = axe.Spec(shape, "f32")
            return str(axe.equivalent(left, right, spec, budget=1, packs=["real_normal"]))[:200]

        only_own_errors((number, shape), ask)


# -- files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def f(x: Any, w: dict[str, Any]) -> Any:
        y = x @ w["a"]
        return {"y": y + w["b"], "parts": (sum(y, axis=1), y > 0)}

    weights = {"a": axe.Spec((4, 3), "f32"), "b": axe.Spec((3,), "f32")}
    x = axe.Spec((6, 4), "f32", dims=("n", ""))
    path = tmp_path_factory.mktemp("saved") / "whole.axe"
    axe.compile(f, x, weights, target="cpu").save(path)
    return path


def places(data: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a JSON value has entries."""
    yield at
    entries = data.items() if isinstance(data, dict) else ()
    for key, value in enumerate(data) if isinstance(data, list) else entries:
        yield from places(value, (*at, key))


def damaged(data: Any, rng: random.Random) -> Any:
    """JSON data with one entry gone, of another kind, or slightly other."""
    *above, key = rng.choice(list(places(data))[1:])
    holder = data
    for step in above:
        holder = holder[step]
    old = holder[key]
    others: list[Any] = [None, 0, -1, 1 << 70, 1.5, "", "x", "f32[3]", [], {}, [[]], True, [old]]
    if isinstance(old, str) and old:
        at = rng.randrange(len(old))
        others += [old[:at] + rng.choice("019(),-x @:[]") + old[at + 1 :]] * 8
    if isinstance(old, int):
        others += [old + rng.choice([-1, 1, 2, 100])] * 8
    if isinstance(old, list):
        others += [old[::-1], old * 2, old[1:]] * 3
    if rng.random() < 0.2:
        del holder[key]
    else:
        holder[key] = rng.choice(others)
    return data


def test_saved_programs_with_other_content_are_refused_or_run(
    saved: Path, tmp_path: Path, full: bool
) -> None:
    """Also where the digests were worked out again, so that only the content tells."""
    with zipfile.ZipFile(saved) as file:
        whole = {name: file.read(name) for name in file.namelist()}
    x = np.ones((6, 4), np.float32)
    w = {"a": np.ones((4, 3), np.float32), "b": np.ones(3, np.float32)}
    wanted = axe.load(saved)(x, w)["y"]
    answers = []
    for number, rng in cases(FILES, full):
        name = rng.choice(["call.json", "schedule.json"])
        parts = whole | {name: json.dumps(damaged(json.loads(whole[name]), rng)).encode()}
        digests = {n: hashlib.sha256(c).hexdigest() for n, c in parts.items()}
        del digests["digests.json"]
        parts["digests.json"] = json.dumps(digests).encode()
        path = tmp_path / "damaged.axe"
        with zipfile.ZipFile(path, "w") as file:
            for part, content in parts.items():
                file.writestr(part, content)

        def ask(path: Path = path) -> None:
            loaded = axe.load(path)
            repr(loaded), loaded.explain(), loaded.target, loaded.kernels
            result = loaded(x, w)
            if isinstance(result, dict) and "y" in result:
                assert np.array_equal(result["y"], wanted)

        answers.append(only_own_errors((number, name), ask))
    assert 0 < np.mean(answers) < 0.5

"""Drawn rank programs against numpy, rank by rank; verdicts about changed ones, and damaged plans.

No verdict may be wrong: Proved and a sample on which both sides differ, or Refuted and ranks that
compute no such values.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import AxeError
from axe_eq.mesh.plan import MeshPlan, plan_of
from axe_eq.mesh.simulate import Simulation
from axe_eq.program.meaning import evaluate
from axe_eq.program.nesting import flatten
from axe_eq.prove.certificates.verdict import ProgramCounterexample
from axe_eq_backends.cpu.run import CpuRunner
from tests.property.rank_recipes import COLLECTIVES, Recipe, drawn, mutated
from tests.unit.mesh.programs import arguments, compiled
from tests.unit.mesh.test_plan import damaged, leaves

COUNT, MUTANTS, DAMAGED = 300, 500, 500


@pytest.mark.sampled(9)
@pytest.mark.parametrize("seed", range(COUNT))
def test_ranks_compute_what_numpy_does(seed: int) -> None:
    """On numpy, and as one program of whole arrays, which proofs are about."""
    recipe = drawn(seed)
    arrays = recipe.arguments(np.random.default_rng(seed))
    wanted = recipe.results(arrays)
    ranks = recipe.program().trace(*recipe.specs())
    for (found,), want in zip(ranks.run(arrays), wanted, strict=True):
        assert np.array_equal(found, want)
    (whole,), (copies,) = evaluate(ranks.whole, arrays), ranks.copies
    for at, want in zip(recipe.places(), wanted, strict=True):
        mine = whole[tuple(at[a] for a in copies)]
        assert np.array_equal(ranks.outputs[0].part(mine, at), want)


def test_every_collective_is_drawn_and_copies_differ() -> None:
    found = Counter(step[0] for seed in range(40) for step in drawn(seed).steps)
    assert all(found[name] >= 1 for name in (*COLLECTIVES, "axis_index"))
    recipes = [drawn(seed) for seed in range(12)]
    assert sum(bool(r.program().trace(*r.specs()).copies[0]) for r in recipes)


# -- changed programs ------------------------------------------------------------------------------


@cache
def pair(seed: int) -> tuple[Recipe, Recipe]:
    """A drawn program and one with a step changed, left out or put in."""
    rng = random.Random(f"mutant {seed}")
    while True:
        recipe = drawn(rng.randrange(1 << 20))
        for _ in range(20):
            other = mutated(recipe, rng)
            if other is not None and other != recipe:
                return recipe, other


def check_pair(seed: int) -> tuple[str, bool]:
    """Name of the verdict, and whether both are alike on samples."""
    recipe, other = pair(seed)
    rng = np.random.default_rng(seed)
    alike = all(
        np.array_equal(a, b)
        for arrays in (recipe.arguments(rng) for _ in range(4))
        for a, b in zip(recipe.results(arrays), other.results(arrays), strict=True)
    )
    sides = recipe.program(), other.program()
    verdict = axe.equivalent(*sides, *recipe.specs(), budget=2)
    if isinstance(verdict, axe.Proved):
        assert alike, (recipe, other)
        assert axe.check_certificate(verdict.certificate)
    elif isinstance(verdict, axe.Refuted):
        check_refuted(verdict, recipe, other)
    return type(verdict).__name__, alike


def check_refuted(verdict: axe.Refuted, recipe: Recipe, other: Recipe) -> None:
    """The named rank computes both values at that place."""
    found = verdict.counterexample
    assert isinstance(found, ProgramCounterexample)
    assert found.rank is not None
    arrays, rank = [np.asarray(a) for a in found.inputs], found.rank
    shape = recipe.whole_shape()
    number = np.arange(prod(shape)).reshape(shape)
    parts = recipe.program().trace(*recipe.specs()).outputs[0]
    here = parts.part(number + 1, recipe.places()[rank]) == number[found.index] + 1
    (mine,), (theirs,) = recipe.results(arrays)[rank][here], other.results(arrays)[rank][here]
    assert (mine, theirs) == (found.value_a, found.value_b), (recipe, other)
    assert mine != theirs


def test_most_changed_rank_programs_are_decided(full: bool) -> None:
    """No verdict is wrong, few are missing, and both are common."""
    found = Counter(check_pair(seed) for seed in range(MUTANTS if full else 14))
    print(dict(found))
    total = sum(found.values())
    assert found["Refuted", False] > 0.25 * total
    assert found["Proved", True] > 0.2 * total
    assert found["Unknown", True] + found["Unknown", False] <= 0.06 * total + 1


# -- damaged plans ---------------------------------------------------------------------------------

PLANS = ("mlp", "roll", "everywhere", "softmax of a cut axis", "two outputs", "uneven product",
         "constant", "two by four", "first of the largest", "vocabulary")  # fmt: skip


@cache
def fields(name: str) -> list[list[tuple[Any, ...]]]:
    """Paths of a plan's JSON, those of one field of a kind of step together."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for path in leaves(data_of(name)):
        found.setdefault(str([p for p in path if isinstance(p, str)]), []).append(path)
    return list(found.values())


@cache
def data_of(name: str) -> Any:
    data = json.loads(compiled(name).plan.to_json())
    del data["digest"]
    return data


CELLS = ("add", "mul", "sub", "maximum", "minimum", "exp", "neg", "abs")


def recomputing(name: str, rng: random.Random) -> Any:
    """The plan's JSON with another cell, with operands exchanged, or with another constant."""
    data = json.loads(json.dumps(data_of(name)))
    nodes = [
        node
        for step in data["steps"]
        for part in (step["graph"]["steps"] if step["kind"] == "local" else [step])
        for node in part["nodes"]
        if node["kind"] != "load"
    ]
    node = rng.choice(nodes)
    if node["kind"] == "cell" and rng.random() < 0.6:
        node["cell"] = rng.choice(CELLS)
    elif len(node["operands"]) > 1:
        rng.shuffle(node["operands"])
    else:
        node["text"] = node["text"].replace("0", "1", 1)
    return data


def read(data: Any) -> MeshPlan | None:
    try:
        return plan_of(data)
    except (AxeError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None  # `plan_from_json` says that it does not read


def ran(plan: MeshPlan, name: str, arrays: list[Any]) -> list[Any] | None:
    """What the plan computes; None where ranks refuse to run it."""
    constants = compiled(name).schedule.constants.values()
    try:
        return Simulation(plan, CpuRunner().prepare)([*arrays, *constants])
    except AxeError:
        return None


def check_damaged(seed: int) -> str:
    """What became of a plan with one field changed."""
    rng = random.Random(f"damage {seed}")
    name = PLANS[seed % len(PLANS)]
    every = fields(name)
    path = rng.choice(every[(seed // len(PLANS)) % len(every)])
    other = seed % 4 == 3  # a plan that fits together, and may compute something else
    plan = read(recomputing(name, rng) if other else damaged(data_of(name), path, rng))
    if plan is None:
        return "refused"
    try:
        verdict = axe.equivalent(compiled(name).program, plan, budget=2)
    except AxeError:
        return "refused"
    if isinstance(verdict, axe.Proved):
        given = arguments(name, seed)
        found, meant = ran(plan, name, given), flatten(compiled(name).meaning(*given))[1]
        for a, b in zip(found or [], meant, strict=found is not None):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4, err_msg=str(path))
    elif isinstance(at := getattr(verdict, "counterexample", None), ProgramCounterexample):
        found = ran(plan, name, [np.asarray(a) for a in at.inputs])
        if found is not None:
            assert float(found[at.output][at.index]) == pytest.approx(float(at.value_b), rel=1e-4)
    return type(verdict).__name__


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(DAMAGED))
def test_damaged_plans_are_refused_or_judged_right(seed: int) -> None:
    assert check_damaged(seed) in ("refused", "Proved", "Refuted", "Unknown")

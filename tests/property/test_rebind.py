"""Random functions at other extents: what binding accepts computes them, and little is refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
import axe_eq.array as xp
from axe_eq import nn
from axe_eq.errors import ScheduleError

CASES, SAMPLE = 60, 2
ROWS = 16
SPECS = (
    axe.Spec((ROWS, 6), "f64", dims=("rows", "")),
    axe.Spec((6, 6), "f64"),
    axe.Spec((ROWS, 6), "f64"),  # as long as the named dim, by chance
)
EXTENTS = (1, 5, 8, 12, 15, 17, 32)


def _by_rows(x: Any) -> Any:
    return x / float(x.shape[0])


def _positions(x: Any) -> Any:
    return x + xp.reshape(xp.astype(xp.arange(x.shape[0]), xp.float64), (-1, 1))


def _padded(x: Any) -> Any:
    return xp.concat([x, xp.zeros((40 - x.shape[0], 6), dtype=xp.float64)], axis=0)[: x.shape[0]]


def _flat(x: Any) -> Any:
    return xp.reshape(xp.reshape(x, (-1,)) * 2.0, (x.shape[0], 6))


def _masked(x: Any) -> Any:
    return x * np.tril(np.ones((x.shape[0], 6)))


def _scores(x: Any) -> Any:
    return nn.softmax(x @ xp.permute_dims(x, (1, 0)), axis=-1) @ x


def _paired(x: Any) -> Any:
    return xp.concat([x[: x.shape[0] // 2], x[x.shape[0] // 2 :]], axis=0) if x.shape[0] > 1 else x


# Keep the rows; what they compute may depend on how many there are.
STEPS: dict[str, Callable[..., Any]] = {
    "exp": lambda x, w, z: xp.exp(xp.minimum(x, 2.0)),
    "relu": lambda x, w, z: nn.relu(x),
    "matmul": lambda x, w, z: x @ w,
    "softmax of a row": lambda x, w, z: nn.softmax(x, axis=1),
    "softmax of a column": lambda x, w, z: nn.softmax(x, axis=0),
    "centred": lambda x, w, z: x - xp.mean(x, axis=0, keepdims=True),
    "less the sum": lambda x, w, z: x - xp.sum(x, axis=0) * 0.125,
    "largest": lambda x, w, z: x + xp.max(x, axis=0),
    "flip": lambda x, w, z: xp.flip(x, axis=0),
    "by rows": lambda x, w, z: _by_rows(x),
    "positions": lambda x, w, z: _positions(x),
    "padded": lambda x, w, z: _padded(x),
    "flat": lambda x, w, z: _flat(x),
    "masked": lambda x, w, z: _masked(x),
    "scores": lambda x, w, z: _scores(x),
    "paired": lambda x, w, z: _paired(x),
    "first of sixteen": lambda x, w, z: x + xp.sum(x[:16], axis=0),
    "rows of another": lambda x, w, z: x + xp.sum(z[: x.shape[0]], axis=0),
    "another beside": lambda x, w, z: x + xp.sum(xp.concat([x, z], axis=0), axis=0),
    "both reduced": lambda x, w, z: x * (xp.max(x, axis=0) + xp.max(z, axis=0)),
    "ones": lambda x, w, z: x + xp.sum(xp.ones((x.shape[0], 6), dtype=xp.float64), axis=0),
}
# May change the number of rows.
ENDS: dict[str, Callable[[Any], Any]] = {
    "all": lambda x: x,
    "sum": lambda x: xp.sum(x, axis=0),
    "mean": lambda x: xp.mean(x),
    "variance": lambda x: xp.var(x, axis=0),
    "last": lambda x: x[-1],
    "every other": lambda x: x[::2],
    "first five": lambda x: x[:5],
    "turned": lambda x: xp.permute_dims(x, (1, 0)),
}


def function(seed: int) -> tuple[Callable[..., Any], list[str]]:
    """A function of the specs, and the names of its steps."""
    draw = random.Random(seed)
    names = draw.choices(list(STEPS), k=draw.randint(1, 3))
    end = draw.choice(list(ENDS))

    def fn(x: Any, w: Any, z: Any) -> Any:
        for name in names:
            x = STEPS[name](x, w, z)
        return ENDS[end](x)

    return fn, [*names, end]


@pytest.mark.parametrize("numerics", ["real", "exact"])
def test_a_bound_schedule_computes_the_function(
    numerics: str, full: bool, rng: np.random.Generator, record_property: Callable[..., None]
) -> None:
    told: Counter[str] = Counter()
    for seed in range(CASES if full else SAMPLE):
        fn, names = function(seed)
        exe = axe.compile(fn, *SPECS, target="cpu", numerics=numerics)
        for rows in EXTENTS if full else EXTENTS[seed % 2 :: 2]:
            arrays = [rng.uniform(-2, 2, shape) for shape in ((rows, 6), (6, 6), (ROWS, 6))]
            try:
                meant = axe.run(fn, *arrays)
            except axe.AxeError:
                told["no meaning"] += 1
                with pytest.raises(ScheduleError, match="has no meaning there"):
                    exe.schedule.bind(rows=rows)
                continue
            try:
                bound = exe.schedule.bind(rows=rows)
            except ScheduleError as error:
                told["refused"] += 1
                told[f"refused: {names} at {rows}: {error}".split("\n")[0]] += 1
                continue
            told["bound"] += 1
            found = bound.run(*arrays)
            assert found.shape == meant.shape, (seed, names, rows)
            np.testing.assert_allclose(
                found, meant, rtol=1e-9, atol=1e-9, err_msg=f"{seed} {names} {rows}"
            )
    record_property("told", dict(told))
    print(*(f"{n:5} {what}" for what, n in told.most_common()), sep="\n")
    assert told["bound"] > 4 * told["refused"]

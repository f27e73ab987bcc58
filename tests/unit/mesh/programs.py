"""Small programs on a mesh of four devices, with the layouts that they begin and end in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import axe_eq as axe
import axe_eq.array as xp
from axe_eq import nn
from axe_eq.layout import Mesh
from axe_eq.program.types import DTYPES, Array
from axe_eq.run.executable import Executable
from axe_eq.target import Target

M4 = Mesh({"x": 4})
R, C, W = "P('x',None)", "P(None,'x')", "P(None,None)"
COLUMN = np.arange(16, dtype=np.float32).reshape(16, 1)


@dataclass(frozen=True)
class Case:
    """A function, per argument its shape, cut and dtype, and the cuts of its outputs."""

    fn: Callable[..., Any]
    given: tuple[tuple[tuple[int, ...], str, str], ...]
    wanted: tuple[str | None, ...]
    mesh: Mesh = M4


def case(fn: Callable[..., Any], *given: Any, wanted: Any, mesh: Mesh = M4) -> Case:
    full = tuple((g[0], g[1], g[2] if len(g) > 2 else "f32") for g in given)
    return Case(fn, full, wanted if isinstance(wanted, tuple) else (wanted,), mesh)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = nn.einsum("qhd,khd->hqk", q, k)
    return nn.einsum("hqk,khd->qhd", nn.softmax(scores * 0.125, axis=-1), v)


H, MIDDLE = "P('x',None,None)", "P(None,'x',None)"
DEEP, ALL = "P(None,None,'x',None)", "P(None,None,None,None)"
CASES: dict[str, Case] = {
    "gathered product": case(lambda x, w: x @ w, ((16, 32), R), ((32, 8), C), wanted=R),
    "summed product": case(lambda x, w: x @ w, ((16, 32), C), ((32, 8), R), wanted=R),
    "everywhere": case(lambda x, w: x @ w, ((16, 32), C), ((32, 8), R), wanted=W),
    "reassociated": case(
        lambda a, b, c: (a @ b) @ c, ((64, 8), R), ((8, 64), C), ((64, 8), R), wanted=R
    ),
    "mlp": case(
        lambda x, a, b: nn.relu(x @ a) @ b, ((16, 32), R), ((32, 64), C), ((64, 32), R), wanted=R
    ),
    "mlp everywhere": case(
        lambda x, a, b: nn.relu(x @ a) @ b, ((16, 32), W), ((32, 64), C), ((64, 32), R), wanted=W
    ),
    "softmax of a cut axis": case(lambda x: nn.softmax(x, axis=-1), ((8, 64), C), wanted=C),
    "softmax": case(lambda x: nn.softmax(x, axis=-1), ((8, 64), R), wanted=R),
    "rmsnorm": case(lambda x: nn.rmsnorm(x), ((8, 64), R), wanted=R),
    "gram": case(lambda x: xp.permute_dims(x, (1, 0)) @ x, ((32, 8), R), wanted=R),
    "transpose": case(lambda x: xp.permute_dims(x, (1, 0)), ((16, 8), R), wanted=R),
    "merged dims": case(lambda x: xp.reshape(x, (64, 8)), ((16, 4, 8), MIDDLE), wanted=R),
    "split dim": case(lambda x: xp.reshape(x, (16, 8, 4)), ((16, 32), R), wanted=MIDDLE),
    "column sums": case(lambda x: xp.sum(x, axis=0), ((16, 8), R), wanted="P('x')"),
    "odd sums": case(lambda x: xp.sum(x, axis=0), ((16, 3), R), wanted="P(None)"),
    "sum of all": case(lambda x: xp.sum(x), ((16, 8), R), wanted=None),
    "largest": case(lambda x: xp.max(x, axis=1), ((8, 16), C), wanted="P(None)"),
    "first of the largest": case(lambda x: xp.argmax(x, axis=1), ((8, 16), C), wanted="P('x')"),
    "flip": case(lambda x: xp.flip(x, axis=0), ((16, 8), R), wanted=R),
    "roll": case(lambda x: xp.roll(x, 1, axis=0) - x, ((16, 8), R), wanted=R),
    "every other row": case(lambda x: x[::2], ((16, 8), R), wanted=R),
    "rows": case(lambda x: x[4:12] * 2, ((16, 8), R), wanted=R),
    "concatenation": case(lambda a, b: xp.concat([a, b]), ((16, 8), R), ((16, 8), R), wanted=R),
    "interleaved": case(
        lambda a, b: xp.reshape(xp.stack([a, b], axis=1), (32, 8)), ((16, 8), R), ((16, 8), R),
        wanted=R,
    ),
    "recurrence": case(
        lambda a, b: xp.associative_scan("recurrence", (a, b), axis=0), ((16, 8), R), ((16, 8), R),
        wanted=R,
    ),
    "prefix sums": case(lambda x: xp.cumulative_sum(x, axis=0), ((16, 8), R), wanted=R),
    "lookup": case(
        lambda t, i: xp.take(t, i, axis=0), ((16, 8), R), ((8,), "P('x')", "i32"), wanted=R
    ),
    "attention": case(attention, ((16, 4, 8), H), ((16, 4, 8), H), ((16, 4, 8), H), wanted=H),
    "literal": case(lambda x: x + 1, ((16, 8), R), wanted=R),
    "constant": case(lambda x: x + COLUMN, ((16, 8), R), wanted=R),
    "indices": case(lambda x: x * xp.arange(8, dtype=xp.float32), ((16, 8), C), wanted=C),
    "zeros behind": case(
        lambda x: xp.concat([x[1:], xp.zeros((1, 8), dtype=xp.float32)]) - x, ((16, 8), R), wanted=R
    ),
    "two outputs": case(
        lambda x: {"a": xp.sum(x, axis=1), "b": (x * 2,)}, ((16, 8), R), wanted=(None, R)
    ),
    "integers": case(
        lambda x, w: x @ w + 3, ((16, 32), C, "i32"), ((32, 8), R, "i32"), wanted=R
    ),
    "halves": case(lambda x: x * x - 1, ((16, 8), R, "f16"), wanted=C),
    "flags": case(lambda x: xp.flip(x > 0, axis=0), ((16, 8), R), wanted=R),
    "inputs called as buffers": case(
        lambda t2, t3: nn.relu(t2 @ t3), ((16, 32), C), ((32, 8), R), wanted=R
    ),
    "uneven rows": case(lambda x: nn.relu(x - 1), ((10, 8), R), wanted=R),
    "uneven product": case(lambda x, w: x @ w, ((10, 7), R), ((7, 6), C), wanted=R),
    "uneven roll": case(lambda x: xp.roll(x, 1, axis=0) * 2, ((10, 7), R), wanted=R),
    "uneven, left open": case(lambda x: x * 2, ((10, 7), R), wanted=None),
    "convolution": case(
        lambda x, w: nn.conv2d(x, w, padding=(1, 0)), ((1, 3, 10, 2), DEEP), ((5, 3, 3, 1), ALL),
        wanted=DEEP,
    ),
    "convolution in steps": case(
        lambda x, w: nn.conv2d(x, w, stride=(2, 1), padding=(1, 0)), ((1, 3, 16, 2), DEEP),
        ((5, 3, 3, 1), ALL), wanted=DEEP,
    ),
    "pool with rows left": case(
        lambda x: nn.max_pool2d(x, 2), ((1, 3, 17, 4), DEEP), wanted=DEEP
    ),
    "vocabulary": case(
        lambda t, i: xp.take(t, i, axis=0), ((4096, 8), R), ((8,), "P('x')", "i32"), wanted=R
    ),
    "vocabulary by bytes": case(
        lambda t, i: xp.take(t, i, axis=0), ((4096, 8), R), ((8,), "P('x')", "i8"), wanted=R
    ),
    "most so far": case(lambda x: xp.cumulative_prod(x, axis=0), ((16, 8), R, "i32"), wanted=R),
    "two by four": case(
        lambda x, w: nn.softmax(x @ w, axis=-1), ((8, 12), "P('x','y')"), ((12, 16), "P('y','x')"),
        wanted="P('x','y')", mesh=Mesh({"x": 2, "y": 4}),
    ),
    "three devices": case(
        lambda x, w: nn.relu(x @ w), ((12, 9), R), ((9, 6), C), wanted=R, mesh=Mesh({"x": 3})
    ),
    "two by two": case(
        lambda x: xp.flip(x + 1, axis=1), ((4, 4), "P('x','y')"), wanted="P('y','x')",
        mesh=Mesh({"x": 2, "y": 2}),
    ),
}  # fmt: skip


READ_AT = ("lookup", "vocabulary", "vocabulary by bytes")  # whose integers are indices


@cache
def compiled(name: str, target: str = "cpu", objective: str = "link_bytes") -> Executable:
    """A case's program, compiled once; by bytes, for which few plans are compiled to compare."""
    return compiled_for(name, target, objective=objective)


def compiled_for(name: str, target: Target | str, **how: Any) -> Executable:
    """A case's program, compiled anew; by time, where nothing else is said."""
    of = CASES[name]
    specs = [
        axe.Spec(shape, dtype, layout=axe.read("jax", cut, shape=shape, mesh=of.mesh))
        for shape, cut, dtype in of.given
    ]
    roots = axe.trace(of.fn, *specs).outputs
    outputs = [
        None if cut is None else axe.read("jax", cut, shape=root.shape, mesh=of.mesh)
        for cut, root in zip(of.wanted, roots, strict=True)
    ]
    return axe.compile(of.fn, *specs, target=target, mesh=of.mesh, outputs=outputs, **how)


def arguments(name: str, seed: int = 0) -> list[Array]:
    """Small whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    found = []
    for shape, _, dtype in CASES[name].given:
        low = 0 if name in READ_AT and dtype != "f32" else -3
        found.append(rng.integers(low, 4, shape).astype(DTYPES[dtype].numpy))
    return found

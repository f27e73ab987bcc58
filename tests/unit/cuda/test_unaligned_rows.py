"""Rows that begin anywhere, by aligned vectors that hang over their ends: right by every candidate.

Every row has another size of numbers, so that a value of its neighbour would be seen. Rows are
longer than a CTA's threads hold at once where there are first, inner and last tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.kernel.expr import divisor, evaluate, var
from axe_eq.lower.read import read_cone
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.interpret import run
from axe_eq_backends.cuda.make import make
from axe_eq_backends.cuda.prefixes import alone
from axe_eq_backends.cuda.target import h200
from axe_eq_backends.cuda.ways import candidates_of

xp, nn = axe.array, axe.nn
Shape = tuple[int, ...]


def wide(x: Any) -> Any:
    return xp.astype(x, "f32")


def centred(x: Any, w: Any) -> Any:
    """No value past a row's end changes nothing: it is masked."""
    h = wide(x)
    h = h - xp.mean(h, axis=-1, keepdims=True)
    h = h / xp.sqrt(xp.mean(h * h, axis=-1, keepdims=True) + 1e-5)
    return xp.astype(h if w is None else h * wide(w), "f16")


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Shape, ...], str]] = {
    "a row beside each": (lambda x, b: x * 2 + b, ((4, 1031), (1031,)), "f16"),
    "of f32": (lambda x, b: x * 2 + b, ((3, 517), (517,)), "f32"),
    "eight rows apart": (lambda x, b: x * 2 + b, ((16, 4229), (4229,)), "f16"),
    "four rows apart": (lambda x, b, y: x * b + y, ((2, 8, 1551), (1551,), (2, 1, 1551)), "f32"),
    "results of both widths": (
        lambda x, b: (x * b, wide(x) + wide(b)), ((4, 1027), (1027,)), "f16",
    ),
    "softmax": (lambda x: nn.softmax(x, axis=-1), ((3, 4115),), "f16"),
    "centred": (lambda x: centred(x, None), ((3, 2059),), "f16"),
    "long and centred": (centred, ((2, 9001), (9001,)), "f16"),
    "sums of f32": (lambda x: xp.sum(x * x, axis=-1), ((3, 4099),), "f32"),
    "the greatest": (lambda x: xp.max(x, axis=-1), ((5, 4099),), "f16"),
    "sums over two dims": (lambda x: xp.sum(wide(x), axis=(0, 2)), ((3, 2, 1029),), "f16"),
    "a part of each": (lambda x: xp.sum(wide(x[:, 3:4098]), axis=-1), ((4, 4101),), "f16"),
    "beside rows apart": (lambda x, y: x + y[:, 1:], ((3, 1033), (3, 1034)), "f16"),
    "turned rows": (lambda x: xp.permute_dims(x, (1, 0, 2)), ((2, 3, 1025),), "f16"),
}  # fmt: skip
APART = {"a row beside each", "of f32", "eight rows apart", "four rows apart", "turned rows",
         "results of both widths", "long and centred", "beside rows apart"}  # fmt: skip
NUMPY = {"f16": np.float16, "f32": np.float32}


def check(name: str, full: bool, run: Callable[..., Any] = run) -> set[str]:
    """The instruction rows that candidates load by; each computes what the program means.

    `run` gives the results of a step by their names: the interpreter's, or a device's.
    """
    fn, shapes, dtype = PROGRAMS[name]
    exe = axe.compile(fn, *(axe.Spec(s, dtype) for s in shapes), target="h200")
    graph = exe.schedule.graph
    (step,) = graph.kernels
    rng = np.random.default_rng(len(name))
    arrays = []
    for shape in shapes:
        sizes = 2.0 ** (np.arange(np.prod(shape[:-1])) % 11).reshape(*shape[:-1], 1)
        arrays.append((rng.standard_normal(shape) * sizes).astype(NUMPY[dtype]))
    given = dict(zip(graph.inputs, arrays, strict=True))
    wanted = axe.run(fn, *(a.astype(np.float64) for a in arrays))
    wants = wanted if isinstance(wanted, tuple) else (wanted,)
    every = [dict(c.parameters) for c in candidates_of(read_cone(step, alone), h200)]
    shifted = [p for p in every if "shifted" in p]
    by_kind = {len(p): p for p in shifted}
    found = set()
    for n, p in enumerate(shifted if full else by_kind.values()):
        one = replace(step, parameters=p)
        made = run(one, graph, h200, given, n)
        for out, want in zip(graph.outputs, wants, strict=True):
            got = made[out].reshape(want.shape)
            most = np.abs(want).max(axis=-1, keepdims=True) if want.ndim > 1 else np.abs(want)
            assert (np.abs(got - want) <= 4e-3 * most).all(), (out, p)
        planned = make(one, graph, h200).planned
        found |= {
            c.plan.row.name for c in planned.choices.values() if "ld_global" in c.plan.row.name
        }
    return found


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_candidates_for_rows_that_begin_anywhere_are_right(name: str, full: bool) -> None:
    """What is not aligned where results are is read by vectors all the same."""
    wanted = {"ldst.ld_global": name != "turned rows", "ldst.ld_global_apart": name in APART}
    assert check(name, full) == {row for row, by in wanted.items() if by}


def texts(fn: Callable[..., Any], *shapes: Shape, **wanted: int) -> list[str]:
    """The kernels of a program by its candidates for such rows that have these parameters."""
    exe = axe.compile(fn, *(axe.Spec(s, "f16") for s in shapes), target="h200")
    graph = exe.schedule.graph
    (step,) = graph.kernels
    every = [dict(c.parameters) for c in candidates_of(read_cone(step, alone), h200)]
    return [
        emit(make(replace(step, parameters=p), graph, h200).planned).text
        for p in every if {"shifted": 1, **wanted}.items() <= p.items()
    ]  # fmt: skip


def test_what_is_beside_a_row_is_filled_behind_all_that_is_read() -> None:
    both = lambda x, r: centred(x + r, None)  # noqa: E731
    (text,) = texts(both, (300, 2059), (300, 2059), row_threads=128)
    body = text[text.index("#pragma unroll 1") :]
    assert body.count("_of_row_u16(") == 4  # the first vector and the last one of both
    assert body.rindex("ld_global_v4_nc(") < body.index("_of_row_u16(")
    ends = text[text.index("_first_u16(") :].partition("}")[0]
    assert ends.rindex(" = ld_global_u16(") < ends.index("x0 = e0")


def test_maps_guard_nothing_inside_of_rows() -> None:
    added = lambda x, b: x + b  # noqa: E731
    every = texts(added, (16, 20011), (20011,))
    assert len(every) == 3
    for text in every:
        inside = text.partition("const int inner = ")[2].partition("\n    }")[0]
        assert "st_global_v4(" in inside
        assert not any(what in inside for what in ("of_row", "_first", "_within", "_apart_u16"))
    (rows,) = texts(added, (16, 20011), (20011,), alike=8)
    assert rows.partition("const int inner = ")[2].count("_nc_two_u16(") == 1  # for two rows


def test_rows_of_few_elements_and_aligned_rows_have_no_such_candidates() -> None:
    for shape in ((64, 33), (4, 1032)):
        exe = axe.compile(lambda x, b: x + b, *(axe.Spec(s, "f16") for s in (shape, shape[1:])),
                          target="h200")  # fmt: skip
        (step,) = exe.schedule.graph.kernels
        offered = candidates_of(read_cone(step, alone), h200)
        assert offered
        assert not any("shifted" in c.parameters for c in offered)


def test_what_is_rounded_down_to_a_multiple_is_one() -> None:
    row, at = var("row", high=511), var("at", 8, high=60000)
    past = row % 8 * (50257 % 8) % 8
    assert [divisor(row * 50257 + (at - past + n)) for n in (0, 4, 16)] == [8, 4, 8]
    assert divisor(at - past) == 1
    values = {"row": np.arange(512), "at": np.arange(512) * 8}
    assert not (evaluate(row * 50257 + (at - past), values) % 8).any()

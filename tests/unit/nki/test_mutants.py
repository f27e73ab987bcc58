"""A text changed at any site is refused, warned of, computes something else, or issues the same.

Ten texts are generated, one of every schedule and form, and two are calls that several kernels were
joined to; four are written by hand. A sample of the changes runs here, all under ``--full``.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.kernel.cells import apply
from axe_eq.lower.formulas import Looked
from axe_eq_backends.nki.planning import plan
from axe_eq_backends.nki.sim import NkiError, simulate
from axe_eq_backends.nki.space import Count, Space, Tensor
from axe_eq_backends.nki.target import trn2
from tests.unit.nki import test_texts as texts
from tests.unit.nki.levels import numpy_of, stream, written
from tests.unit.nki.sim import good_kernels
from tests.unit.nki.sim.mutants import mutants
from tests.unit.nki.sim.traces import trace, traced
from tests.unit.nki.test_launches import PROGRAMS, drawn
from tests.unit.nki.test_texts import WEIGHT, X, Y, Z, attention, product, tiles

ROWS = 4000  # of what is gathered from: more than narrow integers count
SAMPLE = 30  # of so many changes one is tried by default
# Forms of `test_texts` again, at sizes at which the simulator is quick and all bits of types count.
GENERATED: dict[str, Callable[[], texts.Kernel]] = texts.KERNELS | {
    "gemm": lambda: product(Tensor("a", "bf16", (1, 0, 256)), Tensor("b", "bf16", (0, 1, 512)),
                            (256, 512, 256), (256, 512, 0), Z),
    "blocked": lambda: product(Tensor("a", "f32", (1, 0, 128)), Tensor("b", "f32", (0, 1, 512)),
                               (128, 512, 384), (128, 512, 128), Z),
    "softmax": lambda: tiles(
        Space((256, 700), (Tensor("x", "f32", (700, 1)), *texts.SOFTMAX),
              ((Tensor("y", "f32", (700, 1)), apply("div", WEIGHT, Z)),)), 8192,
        {"x": (256, 700), "y": (256, 700)}),
    "attention": lambda: (*stream(attention(384, 256, 32), "attention", trn2,
                                  {"chunk": 256, "kept": 1, "turned": 1}),
                          {"q": (384, 32), "k": (32, 256), "v": (256, 32), "y": (384, 32)}),
    "masked": lambda: tiles(
        Space((512, 300), (Tensor("x", "f32", (300, 1)), Count(0), Count(1)),
              ((Tensor("y", "f32", (300, 1)), texts.MASKED),)), 512,
        {"x": (512, 300), "y": (512, 300)}),
    "gathered": lambda: tiles(
        Space((64, 32), (Tensor("i", "i32", (1, 0)),
                         Tensor("x", "f32", (0, 1), looks=(Looked(X, "i32", 32, ROWS),))),
              ((Tensor("y", "f32", (32, 1)), Y),)), 512,
        {"i": (64,), "x": (ROWS, 32), "y": (64, 32)}),
}  # fmt: skip


def generated(name: str) -> tuple[str, str, list[Any]]:
    """A kernel's name and text, and arrays for it."""
    kernel, buffers, shapes = GENERATED[name]()
    kinds = {b: kernel.tensor(t).dtype for t, b in buffers.items()}
    draw = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        b: (draw.integers(0, ROWS, s) if kinds[b] == "i32" else draw.standard_normal(s))
        .astype(numpy_of(kinds[b])) for b, s in shapes.items()
    }  # fmt: skip
    source = written(plan(kernel, trn2), buffers, arrays)
    return source.name, source.text, [arrays[p.buffer] for p in source.inputs]


def joined(name: str) -> tuple[str, str, list[Any]]:
    """A call of several kernels, its text, and arrays for it."""
    fn, specs = PROGRAMS[name]
    exe = axe.compile(fn, *specs, target="trn2")
    ((call, text),) = exe.source.items()
    assert len(exe.kernels) > 1
    given = dict(zip(exe.schedule.graph.inputs, drawn(specs), strict=True))
    names = re.search(rf"def {call}\((.*)\):", text)[1].split(", ")  # type: ignore[index]
    return call, text, [given[n] for n in names]


def subject(name: str) -> tuple[str, str, list[Any]]:
    """A kernel's name and text, and arrays for it."""
    if name.startswith("own "):
        kernel = name.removeprefix("own ")
        return kernel, good_kernels.KERNELS[kernel], list(good_kernels.arguments(kernel))
    return joined(name.removeprefix("joined ")) if name.startswith("joined ") else generated(name)


def inputs(arrays: Sequence[Any]) -> list[list[Any]]:
    """The arrays; with a mean far from 0; with large numbers where tiles begin or end."""
    found = [list(arrays), [x + x.dtype.type(5 * (x.dtype.kind != "i")) for x in arrays]]
    for at in (slice(0, None, 1024), slice(1023, None, 1024), slice(-1, None)):
        found.append([x.copy() for x in arrays])
        for x in found[-1]:
            if x.dtype.kind != "i":
                x[..., at] *= 1000
    return found


def ran(text: str, name: str, arrays: Sequence[Any]) -> tuple[Any, set[tuple[str, str]], list[Any]]:
    """The result of a text, its warnings, and its trace."""
    with traced() as calls, np.errstate(all="ignore"):
        found, report = simulate(text, name, *arrays, most_instructions=1000)
    results = found if isinstance(found, tuple) else (found,)
    kept = [(x.shape, str(x.dtype), x.tobytes()) for x in results]
    return kept, {(w.check, w.text) for w in report.warnings}, trace(calls)


def judged(text: str, name: str, given: Sequence[list[Any]], right: Sequence[Any]) -> str:
    """What becomes of a changed text; "" where nothing tells it from the right one."""
    try:
        for arrays, (result, warnings, calls) in zip(given, right, strict=True):
            found, warned, issued = ran(text, name, arrays)
            if found != result:
                return "computes something else"
            if warned - warnings:
                return "is warned of"
            if issued == calls:
                return "issues the same"
    except NkiError:
        return "is refused"
    return ""


SUBJECTS = (*GENERATED, "joined mlp", "joined both", *(f"own {n}" for n in good_kernels.KERNELS))


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_change_of_a_text_goes_unnoticed(name: str, full: bool) -> None:
    kernel, text, arrays = subject(name)
    given = inputs(arrays)
    right = [ran(text, kernel, x) for x in given]
    every = 1 if full else SAMPLE
    verdicts = [
        (what, judged(changed, kernel, given, right))
        for what, changed in mutants(text, zlib.crc32(name.encode()), every)
    ]
    assert [what for what, verdict in verdicts if not verdict] == []
    assert verdicts
    if full:
        print(f"{name}: {len(verdicts)} changes,", dict(Counter(v for _, v in verdicts)))

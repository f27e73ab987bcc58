"""Mutations of correct kernels, at every site: each is caught, or listed with the argument why it
is legal.

A mutation changes one statement of a kernel or one call of its plan. Caught means that the
interpreter objects at plan level, in one of its orders, or that values differ. The campaign runs
whole under --full, a sample else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import AxeError
from axe_eq.kernel import ir
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.dispatch import Planned
from axe_eq.kernel.expr import Expr
from axe_eq.kernel.interp import ORDERS, interpret
from axe_eq.kernel.plan import Address, Call, Regs, TensorMap
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.gemm import Extra, Problem, Tiling, gemm
from axe_eq_backends.cuda.schedules.map import elementwise
from axe_eq_backends.cuda.schedules.rows import Reduction, reduce_rows
from axe_eq_backends.cuda.schedules.tensors import dense
from axe_eq_backends.cuda.schedules.transpose import transpose
from axe_eq_backends.cuda.target import h200
from axe_eq_backends.cuda.wgmma import Operand

Arrays = dict[str, Any]
Site = tuple[ir.Body, int]
Change = Callable[[ir.Kernel, Planned], None]


@dataclass(frozen=True)
class Subject:
    """A kernel to mutate: how to build it, its arrays, what comes out."""

    build: Callable[[], ir.Kernel]
    arrays: Arrays
    expected: Arrays


def _normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def _gemm() -> Subject:
    m, n, k = 256, 256, 320
    cell = apply("maximum", apply("add", arg(0), arg(1)), 0.0)
    a, b, bias = _normal(m, k, seed=1), _normal(n, k, seed=2), _normal(n, seed=3)
    problem = Problem(m, n, k, cell=cell, extras=(Extra("bias", "n"),))
    wide = a.astype(np.float64) @ b.astype(np.float64).T + bias
    arrays = {"A": a, "B": b, "bias": bias, "C": np.zeros((m, n), np.float16)}
    tiling = Tiling(128, 128, 64, 3, 2, 2)
    return Subject(lambda: gemm(problem, tiling), arrays, {"C": np.maximum(wide, 0)})


def _rows() -> Subject:
    """Two reductions, each of whose values matters; four warps to a row, a masked tail."""
    shape = (16, 1000)
    steps = [Reduction("+", arg(0)), Reduction("max", apply("mul", arg(0), arg(1)))]
    outputs = [(dense("y", "f16", shape), apply("sub", apply("mul", arg(0), arg(1)), arg(2)))]
    x = _normal(*shape) + np.float16(0.1)
    wide = x.astype(np.float64)
    product = wide * wide.sum(1, keepdims=True)
    return Subject(
        lambda: reduce_rows(shape, [dense("x", "f16", shape)], steps, outputs, elements=8),
        {"x": x, "y": np.zeros(shape, np.float16)},
        {"y": product - product.max(1, keepdims=True)},
    )


def _transpose() -> Subject:
    x = _normal(1, 72, 136)
    arrays = {"x": x, "out": np.zeros((1, 136, 72), np.float16)}
    return Subject(lambda: transpose((72, 136)), arrays, {"out": x.swapaxes(1, 2)})


def _turn_elements() -> Subject:
    x = _normal(1, 40, 33)
    arrays = {"x": x, "out": np.zeros((1, 33, 40), np.float16)}
    return Subject(lambda: transpose((40, 33)), arrays, {"out": x.swapaxes(1, 2)})


def _cells() -> Subject:
    shape = (5, 1000)
    ops = [dense("x", "f16", shape), dense("b", "f16", shape, [1])]
    x, b = _normal(*shape), _normal(1000, seed=1)
    arrays = {"x": x, "b": b, "y": np.zeros(shape, np.float16)}
    outputs = [(dense("y", "f16", shape), apply("sub", arg(0), arg(1)))]
    return Subject(
        lambda: elementwise(shape, ops, outputs), arrays, {"y": x.astype(np.float64) - b}
    )


SUBJECTS = {
    "gemm": _gemm(), "rows": _rows(), "transpose": _transpose(),
    "transpose by elements": _turn_elements(), "cells": _cells(),
}  # fmt: skip


# -- operators --


def sites(body: ir.Body) -> Iterator[Site]:
    for i, s in enumerate(body):
        yield body, i
        for inner in ir.children(s):
            yield from sites(inner)


SYNCHRONISATION = (
    ir.Wait, ir.Arrive, ir.Expect, ir.Sync, ir.FenceAsync, ir.Commit, ir.WaitGroup, ir.Assign,
)  # fmt: skip


def statement_changes(s: ir.Statement) -> Iterator[tuple[str, Callable[[Site], None]]]:
    """What can be done to one statement."""
    if isinstance(s, SYNCHRONISATION):
        yield "delete", _delete
    if isinstance(s, ir.WaitGroup):
        yield "one more pending", _bump_pending
    if isinstance(s, ir.Let) and s.var.name.startswith("parity"):
        yield "shift the phase", _flip
    if isinstance(s, ir.Wait):
        yield "wait for the other phase", _other_phase
    if isinstance(s, ir.FenceAsync):
        yield "fence after the barrier", _swap_with_next
    if isinstance(s, ir.Arrive) and isinstance(s.slot, Expr) and str(s.slot) == "previous":
        yield "release the stage in use", _release_early


def _delete(site: Site) -> None:
    del site[0][site[1]]


def _bump_pending(site: Site) -> None:
    s = site[0][site[1]]
    assert isinstance(s, ir.WaitGroup)
    s.pending += 1


def _flip(site: Site) -> None:
    s = site[0][site[1]]
    assert isinstance(s, ir.Let)
    s.value = s.value ^ 1


def _other_phase(site: Site) -> None:
    s = site[0][site[1]]
    assert isinstance(s, ir.Wait)
    s.parity = s.parity ^ 1


def _swap_with_next(site: Site) -> None:
    body, i = site
    body[i], body[i + 1] = body[i + 1], body[i]


def _release_early(site: Site) -> None:
    s = site[0][site[1]]
    assert isinstance(s, ir.Arrive)
    s.slot = (s.slot + 1) % s.barrier.slots


def call_changes(call: Call) -> Iterator[tuple[str, Call | None]]:
    """What can be done to one call; None deletes it."""
    yield "delete the call", None
    for name, value in call.args.items() if call.op != "fill" else ():
        for what, other in _values(name, value):
            yield f"{what} of {name}", Call(call.op, {**call.args, name: other})


def _values(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Address):
        yield "16 bytes more", Address(value.buffer, value.byte + 16)
    elif isinstance(value, TensorMap):
        yield "another swizzle", replace(value, swizzle_bytes=64)
        yield "a smaller box", replace(value, box=(*value.box[:-1], value.box[-1] - 1))
    elif isinstance(value, Operand):
        yield "double stride", replace(value, bits=value.bits + (64 << 32))
        yield "another swizzle", replace(value, bits=value.bits ^ (3 << 62))
    elif isinstance(value, Regs) and len(value.index) > 1 and name != "ins":
        yield "swapped registers", Regs(value.buffer, value.index[::-1])
    elif name == "coords":
        yield "one off", (value[0] + 1, *value[1:])
    elif name == "guard" and value is not None:
        yield "without", None
    elif name == "mask":
        yield "a neighbour's", 2 * value if value < 16 else 1
    elif name == "element":
        yield "8 more", value + 8
    elif name == "trans":
        yield "the other", not value
    elif name == "accumulate":
        yield from [("always", 1)] if value != 1 else []
        yield "never", 0


def mutations(subject: Subject) -> list[tuple[str, Change]]:
    """Every mutation of a subject, with a name that is stable across runs."""
    kernel = subject.build()
    planned = plan(kernel, h200)
    found: list[tuple[str, Change]] = []
    for number, (body, i) in enumerate(sites(kernel.body)):
        s = body[i]
        for what, _ in statement_changes(s):
            found.append((f"{what}: {type(s).__name__} #{number}", _at_statement(number, what)))
    for number, (primitive, choice) in enumerate(planned.choices.items()):
        for n_th, call in enumerate(choice.plan.calls):
            for what, _ in call_changes(call):
                title = f"{what}: {type(primitive).__name__} #{number} {call.op} {n_th}"
                found.append((title, _at_call(number, n_th, what)))
    for number, barrier in enumerate(kernel.barriers):
        for step in (1, -1):
            found.append((f"{barrier.name} counts {step:+d}", _count(number, step)))
    for number, buffer in enumerate(kernel.buffers):
        if buffer.memory == "smem" and buffer.offset:
            found.append((f"{buffer.name} overlaps its neighbour", _overlap(number)))
    return found


def _at_statement(number: int, what: str) -> Change:
    def change(kernel: ir.Kernel, planned: Planned) -> None:
        site = list(sites(kernel.body))[number]
        dict(statement_changes(site[0][site[1]]))[what](site)

    return change


def _at_call(number: int, n_th: int, what: str) -> Change:
    def change(kernel: ir.Kernel, planned: Planned) -> None:
        calls = list(planned.choices.values())[number].plan.calls
        new = dict(call_changes(calls[n_th]))[what]
        calls[n_th : n_th + 1] = [] if new is None else [new]

    return change


def _count(number: int, step: int) -> Change:
    def change(kernel: ir.Kernel, planned: Planned) -> None:
        kernel.barriers[number].arrivals += step

    return change


def _overlap(number: int) -> Change:
    def change(kernel: ir.Kernel, planned: Planned) -> None:
        kernel.buffers[number].offset -= 1024

    return change


# -- verdicts --


def caught(subject: Subject, change: Change | None) -> str:
    """How a mutation is caught; "" where it survives."""
    for order in ORDERS:
        kernel = subject.build()
        planned = plan(kernel, h200)
        if change is not None:
            change(kernel, planned)
        try:
            run = interpret(kernel, subject.arrays, planned=planned, meanings=MEANINGS, order=order)
        except AxeError as error:
            return str(error).splitlines()[0]
        for name, expected in subject.expected.items():
            wrong = np.abs(run.outputs[name].astype(np.float64) - expected)
            if not (wrong <= 2e-2 + 2e-3 * np.abs(expected)).all():
                return f"values of {name}"
    return ""


# Survivors with the reason why they are right: the name starts with the key.
_FENCE = "every thread fences before one of them issues the store, which is ordered as well"
LEGAL: dict[str, dict[str, str]] = {
    "gemm": {"fence after the barrier": _FENCE},
    "rows": {
        "swapped registers of out: Index": "a vector's columns are all inside or all outside",
        "swapped registers of out: Map #2": "the values are only summed",
        "swapped registers of out: Map #4": "only their maximum is used",
        "delete the call: Reduce #3 sync 6": "nobody has used the scratch before",
    },
    "transpose": {"fence after the barrier": _FENCE},
    "transpose by elements": {
        "without of guard: Copy #0 ld_global 0": "reads inside the tensor what is never stored",
    },
    "cells": {},
}


def _reason(name: str, title: str) -> str:
    return next((why for key, why in LEGAL[name].items() if title.startswith(key)), "")


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_mutation_is_caught_or_argued_legal(name: str, full: bool) -> None:
    subject = SUBJECTS[name]
    assert caught(subject, None) == ""
    every = mutations(subject)
    step = 1 if full else max(1, len(every) // 12)
    survivors = [t for t, change in every[::step] if not caught(subject, change)]
    assert [t for t in survivors if not _reason(name, t)] == []


def test_there_are_hundreds_of_mutations() -> None:
    assert sum(len(mutations(s)) for s in SUBJECTS.values()) >= 300

"""Contractions on the device: every case of the unit tests, and ragged extents up to thousands."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.lower.own import Lowered
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda import image
from axe_eq_backends.cuda.arrays import DeviceArray
from axe_eq_backends.cuda.driver import call, default_device, driver, on
from axe_eq_backends.cuda.launch import Loaded
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda import test_contractions as unit
from tests.unit.cuda.whole import Whole, lowered

pytestmark = pytest.mark.gpu


class Memory:
    """Flat buffers on the device."""

    def __init__(self) -> None:
        self.pointers: list[int] = []

    def upload(self, array: Any) -> int:
        pointer = int(call(driver().cuMemAlloc(max(array.nbytes, 16)), "allocation"))
        self.pointers.append(pointer)
        call((*driver().cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes), None), "upload")
        return pointer

    def free(self) -> None:
        while self.pointers:
            driver().cuMemFree(self.pointers.pop())


@pytest.fixture
def memory() -> Iterator[Memory]:
    with on(default_device()):
        m = Memory()
        yield m
        m.free()


def run(built: image.Image, kernel: Lowered, flat: dict[str, Any], memory: Memory) -> None:
    """Launch on flat buffers and bring all of them back."""
    pointers = {name: memory.upload(array) for name, array in flat.items()}
    arrays = {
        t.name: DeviceArray(
            pointers[kernel.buffers[t.name]], t.dtype, tuple(map(int, t.shape)),  # type: ignore[arg-type]
            tuple(map(int, t.strides or ())),  # type: ignore[arg-type]
        )
        for t in built.tensors
    }  # fmt: skip
    bound = Loaded(built).bind(arrays)
    for _ in range(2):
        bound.launch()
    call((*driver().cuCtxSynchronize(), None), "kernel")
    for name, array in flat.items():
        copied = driver().cuMemcpyDtoH(array.ctypes.data, pointers[name], array.nbytes)
        call((*copied, None), "copy")
    memory.free()


def _check(w: Whole, planned: Planned, memory: Memory) -> None:
    """Run a whole kernel and compare with what it is expected to write."""
    flat = w.flat()
    run(image.build(planned), w.lowered, flat, memory)
    w.check(flat, unit.tolerance(w))


@pytest.mark.parametrize("name", unit.ALL)
def test_the_device_gives_the_expected_values(name: str, memory: Memory) -> None:
    w = unit.case(name)
    _check(w, unit.planned(name), memory)


@pytest.mark.parametrize("name", unit.TURNED)
def test_columns_of_tiles_may_be_rows(name: str, memory: Memory) -> None:
    w = unit.turned(name)
    _check(w, plan(w.lowered.kernel, h200), memory)


@pytest.mark.parametrize("dtype", unit.IN_PARTS)
def test_results_in_parts(dtype: str, memory: Memory) -> None:
    w = unit.in_parts(dtype)
    _check(w, plan(w.lowered.kernel, h200), memory)


def test_ragged_extents(memory: Memory, full: bool) -> None:
    """All of M, N, K in {1, 8, 17, 64, 333, 1000, 4096} under --full, some of them otherwise."""
    ways = ("nn", "nt", "tn", "tt")
    extents = list(product(unit.EXTENTS, repeat=3))
    rng = random.Random(7)
    cases = [(e, rng.choice(ways), "f16") for e in (extents if full else rng.sample(extents, 40))]
    cases += [(e, rng.choice(ways), "f32") for e in rng.sample(extents, 60 if full else 8)]
    cases += [(e, rng.choice(ways), "f64") for e in rng.sample(extents, 60 if full else 8)]

    def built(case: tuple[tuple[int, ...], str, str]) -> tuple[Lowered, image.Image]:
        (m, n, k), way, dtype = case
        shapes = unit.shapes(m, n, k, way)
        program = axe.trace(unit.transposable(way), *unit.of(dtype, *shapes))
        kernel = lowered(program)
        return kernel, image.build(plan(kernel.kernel, h200))

    with ThreadPoolExecutor() as pool:  # the compiler runs outside Python's lock
        made = list(pool.map(built, cases))
    for ((m, n, k), way, dtype), (kernel, compiled) in zip(cases, made, strict=True):
        numpy = DTYPES[dtype].numpy
        a_shape, b_shape = unit.shapes(m, n, k, way)
        draw = np.random.default_rng(m * n + k)
        a, b = (draw.standard_normal(s, np.float32).astype(numpy) for s in (a_shape, b_shape))
        flat = {"x": a.ravel(), "y": b.ravel(), "out0": np.full(m * n, 77).astype(numpy)}
        run(compiled, kernel, flat, memory)
        wide = np.float64 if dtype != "f16" else np.float32
        left: Any
        right: Any
        left, right = a.astype(wide), b.astype(wide)
        want = (left if way[0] == "n" else left.T) @ (right if way[1] == "n" else right.T)
        worst = np.abs(flat["out0"].reshape(m, n) - want).max() / np.abs(want).max()
        assert worst < 2 * unit.TOLERANCE[dtype], f"{m} {n} {k} {way} {dtype}: {worst}"


def test_short_sums_of_f64_are_the_same_each_time() -> None:
    """By chains of one accumulator they were others in every run."""
    for m, n, k, way in ((1024, 17, 64, "tn"), (500, 40, 96, "nt"), (3333, 129, 35, "nn")):
        shapes = unit.shapes(m, n, k, way)
        exe = axe.compile(unit.transposable(way), *unit.of("f64", *shapes), target="h200")
        for seed in range(5):
            draw = np.random.default_rng(seed)
            a, b = (draw.standard_normal(s) for s in shapes)
            want = (a if way[0] == "n" else a.T) @ (b if way[1] == "n" else b.T)
            np.testing.assert_allclose(exe(a, b), want, atol=1e-11)

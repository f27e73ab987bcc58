"""Clusters on a device: multicast copies, products that share operand tiles, graphs of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.threads import ir
from axe_eq_backends.cuda import image
from axe_eq_backends.cuda.arrays import DeviceArray
from axe_eq_backends.cuda.driver import Memory, call, download, driver, upload
from axe_eq_backends.cuda.launch import Bound, Loaded
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.gemm import Extra, Matrix, Problem, Tiling, gemm, parameters
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda import clustered

pytestmark = pytest.mark.gpu


class Device:
    """Device copies of dense arrays, first dim slowest unless strides say otherwise."""

    def __init__(self) -> None:
        driver()
        self._held: list[Memory] = []

    def put(self, host: Any, dtype: str, strides: tuple[int, ...]) -> DeviceArray:
        """Copy an array whose elements lie at these strides."""
        order = sorted(range(host.ndim), key=lambda d: -strides[d])
        flat = np.ascontiguousarray(host.transpose(order))
        memory = Memory(flat.nbytes)
        upload(memory.pointer, flat, "array")
        self._held.append(memory)
        return DeviceArray(memory.pointer, dtype, host.shape, strides)

    def get(self, array: DeviceArray, dtype: Any) -> Any:
        """Copy back."""
        order = sorted(range(len(array.shape)), key=lambda d: -array.strides[d])
        flat = np.empty([array.shape[d] for d in order], dtype)
        download(flat, array.pointer, "array")
        return flat.transpose(np.argsort(order))


@pytest.fixture
def device() -> Iterator[Device]:
    made = Device()
    Loaded(image.build(plan(clustered.spread(), h200)))  # a context is current from here on
    yield made
    call((*driver().cuCtxSynchronize(), None), "kernels")


def bound(
    kernel: ir.Kernel, arrays: dict[str, Any], params: dict[str, int], device: Device
) -> tuple[Bound, dict[str, DeviceArray]]:
    """A launch on copies of the arrays, those of outputs poisoned."""
    built = image.build(plan(kernel, h200))
    given = {}
    for spec in built.tensors:
        host = arrays[spec.name]
        if spec.name in kernel.outputs:
            host = np.full(host.shape, np.nan, host.dtype)
        assert spec.strides is not None
        strides = tuple(int(evaluate(s, params)) for s in spec.strides)
        given[spec.name] = device.put(host, spec.dtype, strides)
    return Loaded(built).bind(given, params), given


@pytest.mark.parametrize("cluster", [2, 4, 8])
@pytest.mark.parametrize("write", [clustered.spread, clustered.in_step])
def test_every_cta_of_a_cluster_gets_what_is_multicast(
    write: Any, cluster: int, device: Device
) -> None:
    if write is clustered.spread and cluster == 8:
        pytest.skip("a part of 4 rows does not begin where the swizzle's pattern does")
    kernel, arrays = write(cluster), clustered.arrays(cluster)
    launch, given = bound(kernel, arrays, {}, device)
    for _ in range(20):
        launch.launch()
    found = device.get(given["y"], np.float16)
    assert (found == arrays["x"]).all()


M, N, K = parameters()
SIZES = [(128, 256, 64), (1000, 1048, 1032), (4096, 2304, 72), (2048, 4096, 1024), (8, 8, 8)]
TILINGS = {
    "rows": Tiling(cluster_rows=2),
    "columns": Tiling(cluster_cols=2),
    "four rows": Tiling(128, 256, 64, 3, cluster_rows=4),
    "small, one consumer": Tiling(64, 128, 64, 4, consumers=1, cluster_rows=2),
    "wide": Tiling(256, 128, 64, 3, cluster_cols=2),
    "two rows, four columns": Tiling(128, 128, 64, 4, cluster_rows=2, cluster_cols=4),
    "three consumers": Tiling(192, 192, 64, 4, consumers=3, staging=1),
    "three consumers, two columns": Tiling(192, 144, 64, 4, consumers=3, cluster_cols=2),
    "side by side": Tiling(192, 192, 64, 4, across=2, staging=1),
    "side by side, four rows": Tiling(64, 160, 64, 6, across=2, cluster_rows=4),
    "four rows, two columns": Tiling(64, 192, 64, 6, consumers=1, cluster_rows=4, cluster_cols=2),
}
IN_EIGHTS = {
    "halves of 104 rows": Tiling(128, 208, 64, 3, cluster_rows=2),
    "parts of 96 and of 72": Tiling(192, 72, 64, 4, consumers=1, cluster_cols=2),
    "one panel of 152": Tiling(128, 152, 64, 4),
    "288 columns": Tiling(128, 288, 64, 3, staging=1, cluster_cols=2),
}
# Tiles of which 12 are left by a wave of 132, all of 40, and 124 that would be too many to share.
RESTS = [(2048, 2304, 1032), (1000, 1048, 1032), (2048, 4096, 512)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*TILINGS, *IN_EIGHTS])
def test_clustered_products_are_right(
    name: str, size: tuple[int, int, int], device: Device
) -> None:
    m, n, k = size
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((e, k)).astype(np.float16) for e in (m, n))
    bias = rng.standard_normal(n).astype(np.float16)
    expected = np.maximum(a.astype(np.float32) @ b.astype(np.float32).T + bias, 0)
    arrays = {"A": a, "B": b, "bias": bias, "C": np.zeros((m, n), np.float16)}
    params = {"M": m, "N": n, "K": k}
    relu = apply("maximum", apply("add", arg(0), arg(1)), 0.0)
    tiling = (TILINGS | IN_EIGHTS)[name]
    for major in (1, 0) if name in TILINGS else (1,):
        pairs = ((Matrix("A", major=major), Matrix("B", major=major)),)
        p = Problem(M, N, K, pairs, relu, (Extra("bias", "n"),))
        launch, given = bound(gemm(p, tiling), arrays, params, device)
        for _ in range(5):
            launch.launch()
        found = device.get(given["C"], np.float16).astype(np.float32)
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert error < 1e-3


@pytest.mark.parametrize("size", RESTS)
@pytest.mark.parametrize("major", [1, 0])
def test_the_rest_of_tiles_is_shared(
    major: int, size: tuple[int, int, int], device: Device
) -> None:
    m, n, k = size
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-2, 3, (e, k)).astype(np.float16) for e in (m, n))
    arrays = {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}
    pairs = ((Matrix("A", major=major), Matrix("B", major=major)),)
    tiling = Tiling(128, 256, 64, 4, staging=1, split=2, rest=1)
    launch, given = bound(gemm(Problem(m, n, k, pairs), tiling), arrays, {}, device)
    for _ in range(5):
        launch.launch()
        found = device.get(given["C"], np.float16)
        assert (found == (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16)).all()


def test_a_persistent_grid_is_whole_clusters_and_at_most_what_fits(device: Device) -> None:
    for tiling in (TILINGS["rows"], TILINGS["four rows"]):
        loaded = Loaded(image.build(plan(gemm(Problem(M, N, K), tiling), h200)))
        for size in ((8, 8, 8), (8192, 8192, 64)):
            grid = loaded.grid(dict(zip("MNK", size, strict=True)))
            assert grid % tiling.cluster == 0
            assert grid <= h200.n_units


def test_clusters_become_nodes_of_a_graph(device: Device) -> None:
    cu, arrays = driver(), clustered.arrays()
    launch, given = bound(clustered.spread(), arrays, {}, device)
    graph = call(cu.cuGraphCreate(0), "graph")
    launch.add_to(graph, [launch.add_to(graph, [])])
    ready = call(cu.cuGraphInstantiate(graph, 0), "graph")
    stream = call(cu.cuStreamCreate(1), "stream")
    call((*cu.cuGraphLaunch(ready, stream), None), "graph")
    call((*cu.cuStreamSynchronize(stream), None), "graph")
    assert (device.get(given["y"], np.float16) == arrays["x"]).all()


def test_clustered_launches_can_be_captured(device: Device) -> None:
    cu, arrays = driver(), clustered.arrays()
    launch, given = bound(clustered.spread(), arrays, {}, device)
    stream = call(cu.cuStreamCreate(1), "stream")
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    call((*cu.cuStreamBeginCapture(stream, mode), None), "capture")
    launch.launch(int(stream))
    graph = call(cu.cuStreamEndCapture(stream), "capture")
    ready = call(cu.cuGraphInstantiate(graph, 0), "graph")
    call((*cu.cuGraphLaunch(ready, stream), None), "graph")
    call((*cu.cuStreamSynchronize(stream), None), "graph")
    assert (device.get(given["y"], np.float16) == arrays["x"]).all()


def test_saved_machine_code_launches_its_clusters(device: Device) -> None:
    arrays = clustered.arrays()
    built = image.build(plan(clustered.spread(), h200))
    read = image.Image.from_bytes(built.to_bytes())
    assert read == replace(built)
    assert read.cluster == 2
    given = {
        t.name: device.put(arrays[t.name], t.dtype, tuple(int(evaluate(s, {})) for s in t.strides))
        for t in read.tensors
        if t.strides is not None
    }
    Loaded(read).bind(given).launch()
    assert (device.get(given["y"], np.float16) == arrays["x"]).all()

"""Launches that move to other memory, with a driver that has none."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import DeviceError
from axe_eq_backends.cuda import launch, prepared, run
from tests.unit.cuda.fake_driver import CURRENT, OTHER, FakeDriver
from tests.unit.cuda.fake_programs import C, FakeLibrary, N, expected, floats, several, through_maps


@pytest.mark.parametrize("again", [1, 3])
def test_launches_that_move_to_other_memory_compute_there(again: int, cu: FakeDriver) -> None:
    program, library = run.Program(several()), FakeLibrary()
    there = program.on(0)
    c = there.constant("c", C)
    given = [(library.array(n), library.array()) for n in range(3 * prepared.KEPT_BINDINGS)]
    for x, y in given:
        for _ in range(again):  # as a graph from the second time on
            there.run((x.values.ctypes.data, c, y.values.ctypes.data), 0)
    cu.wait()
    for n, (_, y) in enumerate(given):
        np.testing.assert_array_equal(y.values, expected(np.full(N, n), C))


def test_moving_writes_only_the_addresses_that_changed(
    cu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = run.Program(several()).on(0)
    c, x = there.constant("c", C), cu.cuMemAlloc(4 * N)[1]
    results = [cu.cuMemAlloc(4 * N)[1] for _ in range(prepared.KEPT_BINDINGS + 2)]
    for y in results[: prepared.KEPT_BINDINGS]:
        there.run((x, c, y), 0)
    written: list[int] = []
    writing = launch._writing

    def counted(*given: Any) -> launch.Write:
        write = writing(*given)

        def work(address: int) -> None:
            written.append(address)
            write(address)

        return work

    monkeypatch.setattr(launch, "_writing", counted)
    for y in results[prepared.KEPT_BINDINGS :]:
        there.run((x, c, y), 0)
    assert written == results[prepared.KEPT_BINDINGS :]  # of three kernels one writes the result


def test_new_memory_moves_the_nodes_of_a_graph_that_touch_it(cu: FakeDriver) -> None:
    there = run.Program(several()).on(0)
    c, (x, other_x) = there.constant("c", C), [cu.cuMemAlloc(4 * N)[1] for _ in range(2)]
    floats(x)[:], floats(other_x)[:] = 3, 5
    results = [cu.cuMemAlloc(4 * N)[1] for _ in range(2 * prepared.KEPT_BINDINGS + 2)]
    for y in results[:-2]:
        there.run((x, c, y), 0)
    cu.calls.clear()
    there.run((x, c, results[-2]), 0)
    assert cu.calls == ["node add moved", "graph of 3 on 0"]
    cu.calls.clear()
    there.run((other_x, c, results[-1]), 0)
    assert sorted(cu.calls) == ["graph of 3 on 0", "node add moved", "node increment moved"]
    cu.wait()
    for y in results[:-1]:
        np.testing.assert_array_equal(floats(y), expected(np.full(N, 3), C))
    np.testing.assert_array_equal(floats(results[-1]), expected(np.full(N, 5), C))


def test_a_node_that_the_driver_did_not_move_is_moved_by_the_next_call(cu: FakeDriver) -> None:
    there = run.Program(several()).on(0)
    c, x = there.constant("c", C), cu.cuMemAlloc(4 * N)[1]
    results = [cu.cuMemAlloc(4 * N)[1] for _ in range(2 * prepared.KEPT_BINDINGS + 1)]
    for y in results[:-1]:
        there.run((x, c, y), 0)
    moving = cu.cuGraphExecKernelNodeSetParams
    cu.cuGraphExecKernelNodeSetParams = lambda *_: cu.failed("CUDA_ERROR")[:1]  # type: ignore[method-assign]
    with pytest.raises(DeviceError, match="kernel add in a graph: failed with CUDA_ERROR"):
        there.run((x, c, results[-1]), 0)
    cu.cuGraphExecKernelNodeSetParams = moving  # type: ignore[method-assign]
    floats(x)[:] = 4
    there.run((x, c, results[-1]), 0)
    cu.wait()
    np.testing.assert_array_equal(floats(results[-1]), expected(np.full(N, 4), C))


def test_a_graph_runs_where_it_was_made_and_goes_with_its_program(cu: FakeDriver) -> None:
    program, library = run.Program(several()), FakeLibrary()
    x = library.array(1)
    for cu.context in (CURRENT, OTHER, None):
        for _ in range(3):
            (y,) = program.call([x, C])
        assert cu.context in (OTHER, CURRENT)
        cu.wait()
        np.testing.assert_array_equal(y.values, expected(np.full(N, 1), C))
    assert cu.graphs
    del program
    gc.collect()
    assert not cu.graphs


def test_tensor_maps_move_with_their_offsets(cu: FakeDriver) -> None:
    there = run.Program(through_maps()).on(0)
    given = [[cu.cuMemAlloc(8 * N)[1] for _ in range(2)] for _ in range(3 * prepared.KEPT_BINDINGS)]
    for n, (x, y) in enumerate(given):
        floats(x + 8)[:] = n
        there.run((x, y), 0)
    cu.wait()
    for n, (_, y) in enumerate(given):
        np.testing.assert_array_equal(floats(y + 8), np.full(N, n + 1))


def test_a_move_that_the_driver_refuses_spoils_no_later_call(cu: FakeDriver) -> None:
    there = run.Program(through_maps()).on(0)
    given = [[cu.cuMemAlloc(8 * N)[1] for _ in range(2)] for _ in range(2 * prepared.KEPT_BINDINGS)]
    refused, moving = given[-1][1] + 8, cu.cuTensorMapReplaceAddress

    def refusing(at: int, address: int) -> Any:
        return cu.failed("CUDA_ERROR")[:1] if address == refused else moving(at, address)

    cu.cuTensorMapReplaceAddress = refusing  # type: ignore[method-assign]
    for x, y in given[:-1]:
        there.run((x, y), 0)
    for _ in range(2):
        with pytest.raises(DeviceError, match="tensor map of b: failed with CUDA_ERROR"):
            there.run((given[-1][0], given[-1][1]), 0)
        for x, y in given[:-1]:
            floats(x + 8)[:], floats(y + 8)[:] = x % 991, 0
            there.run((x, y), 0)
        cu.wait()
        for x, y in given[:-1]:
            np.testing.assert_array_equal(floats(y + 8), np.full(N, x % 991 + 1))

"""Programs on a device, with a driver that has none: memory, streams, captures, one clear error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ArgumentError, AxeError, DeviceError
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda import driver, prepared, run
from axe_eq_backends.cuda.arrays import DeviceArray, fetched, flat, memory_of
from axe_eq_backends.cuda.code import Code, Launch, Port
from tests.unit.cuda.fake_driver import OTHER, FakeDriver
from tests.unit.cuda.fake_programs import (
    KERNELS,
    Array,
    C,
    FakeLibrary,
    N,
    expected,
    forget,
    image,
    one,
    port,
    several,
    use,
)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    forget()


def test_host_arrays_lie_in_blocks_where_no_strides_say_it(cu: FakeDriver) -> None:
    layout = axe.read("xla", "f32[5,6]{1,0:T(4,4)}")
    blocks = Port("x", "f32", (64,), (1,), 256, 1, str(layout), (5, 6))
    x = np.arange(30, dtype="f4").reshape(5, 6)
    memory = flat(blocks, x)
    assert np.array_equal(memory[layout.table("m")], x.ravel())
    with driver.on(0):
        held = driver.Memory(memory.nbytes)
        driver.upload(held.pointer, memory, "x")
        assert np.array_equal(fetched(blocks, held.pointer), x)
    with pytest.raises(ArgumentError, match=r"is float32\[64\]; expected f32\[5,6\]"):
        flat(blocks, memory)


@pytest.mark.parametrize("lies", ["", "S[(3,4):(1@m,1@m)]"])
def test_a_host_array_that_no_memory_holds_is_refused(lies: str) -> None:
    """Its layout has several elements at one address, and they differ."""
    port = Port("x", "f32", (3, 4), (1, 1), 24, 1)
    if lies:
        port = Port("x", "f32", (6,), (1,), 24, 1, lies, (3, 4))
    fits = np.add.outer(np.arange(3, dtype="f4"), np.arange(4, dtype="f4"))
    assert np.array_equal(memory_of(port, fits), np.arange(6))
    with pytest.raises(ArgumentError, match="'x': has different elements at one address"):
        memory_of(port, fits.T.reshape(3, 4))


def test_what_lies_in_blocks_is_saved_with_its_layout() -> None:
    layout = axe.read("xla", "f32[20,37]{1,0:T(8,16)}")
    spec = axe.Spec((20, 37), "f32", layout=layout)
    exe = axe.compile(lambda x: x * 2, spec, target="h200", outputs=[layout])
    program = run.load(run.CudaRunner().compile(exe.schedule.graph, exe.target))
    ports = program.code.ports.values()
    assert [(p.lies, p.value, p.n_bytes) for p in ports] == [(str(layout), (20, 37), 4608)] * 2
    assert program.lying == (True,)


def test_on_a_device_what_lies_in_blocks_is_its_memory(cu: FakeDriver) -> None:
    layout = axe.Layout([(2, 4), (2, 1), (2, 2)])
    blocks = Port("x", "f32", (N,), (1,), 4 * N, 16, str(layout), (2, N // 2))
    held = flat(blocks, np.arange(N, dtype="f4").reshape(2, N // 2))
    code, library = one(), FakeLibrary()
    program = run.Program(
        replace(code, ports={"x": blocks, "y": replace(blocks, name="y", align=1)})
    )
    assert program.memories == {"x"}
    (y,) = program.call([library.array(held)])
    cu.wait()
    assert np.array_equal(y.values, held + 1)
    with pytest.raises(ArgumentError, match=r"expected f32\[8\]\n  try: exe.pack"):
        _read_as(program, library, shape=(2, N // 2))


# -- values ---------------------------------------------------------------------------------------


def test_host_arrays_go_in_and_results_come_out(cu: FakeDriver) -> None:
    program = run.Program(several())
    x = np.linspace(0, 1, N, dtype=np.float32)
    for scale in (1, 3):
        (y,) = program([x * np.float32(scale), C])
        np.testing.assert_array_equal(y, expected(x * np.float32(scale), C))
    assert len(cu.memory) == 1  # scratch memory stays, arguments do not


@pytest.mark.parametrize("name", DTYPES)
def test_host_arrays_of_every_dtype_lie_at_a_port_s_strides(cu: FakeDriver, name: str) -> None:
    """Numpy cannot restride some 8-bit floats by their own type, and casts of them raised."""
    element = DTYPES[name].numpy
    x = np.arange(6).reshape(2, 3).astype(element)
    columns = Port("x", name, (2, 3), (1, 4), 10 * element.itemsize, 1)
    memory = flat(columns, x)
    wanted = np.zeros(10, element)
    wanted[[0, 4, 8, 1, 5, 9]] = x.ravel()
    assert memory.dtype == element
    assert memory.tobytes() == wanted.tobytes()
    with driver.on(0):
        held = driver.Memory(memory.nbytes)
        driver.upload(held.pointer, memory, "x")
        back = fetched(columns, held.pointer)
    assert back.dtype == element
    assert back.shape == x.shape
    assert back.tobytes() == x.tobytes()
    for shape, strides, n in (((), (), 1), ((3, 2), (2, 1), 6)):
        dense = x.ravel()[:n].reshape(shape)
        port = Port("x", name, shape, strides, n * element.itemsize, 1)
        assert flat(port, dense).tobytes() == dense.tobytes()


def test_results_are_new_arrays_of_the_caller_s_library(cu: FakeDriver) -> None:
    program, library = run.Program(several()), FakeLibrary()
    x = library.array(5)
    first, second = program.call([x, C])[0], program.call([x, C])[0]
    cu.wait()
    assert first is not second
    for y in (first, second):
        np.testing.assert_array_equal(y.values, expected(np.full(N, 5), C))


def test_a_prepared_call_writes_the_same_arrays_every_time(cu: FakeDriver) -> None:
    library = FakeLibrary()
    x = library.array(1)
    for code, given in ((one(), [x]), (several(), [x, C])):
        launch_, (y,) = run.Program(code).bind(given)
        for value in (1, 7):
            x.values[:] = value
            launch_()
            cu.wait()
            wanted = value + 1 if code.arena_bytes == 0 else expected(np.full(N, value), C)
            np.testing.assert_array_equal(y.values, np.broadcast_to(wanted, N))


def test_code_survives_bytes(cu: FakeDriver) -> None:
    code = several(4)
    assert Code.from_bytes(code.to_bytes()) == code
    data = json.loads(code.to_bytes())
    data["launches"][0]["image"]["tiles"] = []
    nested = b"[" * 5000 + b"]" * 5000
    deep = code.to_bytes().replace(b'"arena_bytes": ', b'"arena_bytes": ' + nested + b', "a": ', 1)
    for damage in (b"", b"\0" * 40, code.to_bytes()[:60], json.dumps(data).encode(), deep):
        with pytest.raises(ArgumentError, match="machine code: is damaged or of another version"):
            Code.from_bytes(damage)


# -- launches -------------------------------------------------------------------------------------


def test_one_kernel_is_one_launch_and_several_are_one_graph(cu: FakeDriver) -> None:
    library = FakeLibrary()
    x = library.array()
    launch_, _ = run.Program(one()).bind([x])
    launch_()
    assert cu.calls == ["kernel increment on 0"]
    launch_, _ = run.Program(several()).bind([x, C])
    cu.calls.clear()
    launch_()
    library.now = 7
    launch_()
    assert cu.calls == ["graph of 3 on 0", "graph of 3 on 7"]


@pytest.mark.parametrize(
    ("tiles", "persistent", "n_ctas"), [(2, True, 4), (9, True, 6), (9, False, 18)]
)
def test_clusters_are_launched_whole(
    tiles: int, persistent: bool, n_ctas: int, cu: FakeDriver
) -> None:
    """A tile is a cluster's, and at most as many clusters are launched as fit at once."""
    library = FakeLibrary()
    code = Code.from_bytes(one(cluster=2, tiles=tiles, persistent=persistent).to_bytes())
    launch_, (y,) = run.Program(code).bind([library.array(3)])
    for library.now in (0, 5, 5):
        launch_()
    cu.wait()
    assert cu.calls[::2] == [f"{n_ctas} CTAs in clusters of 2 x 1 x 1"] * 3
    assert cu.calls[1::2] == [f"kernel increment on {s}" for s in (0, 5, 5)]
    np.testing.assert_array_equal(y.values, np.full(N, 4))


def test_nodes_of_a_graph_are_clusters_too(cu: FakeDriver) -> None:
    code = several()
    second = replace(code.launches[1], image=replace(code.launches[1].image, cluster=4))
    code = replace(code, launches=(code.launches[0], second, code.launches[2]))
    launch_, (y,) = run.Program(code).bind([FakeLibrary().array(5), C])
    launch_()
    cu.wait()
    assert cu.calls == ["node double in clusters of 4 x 1 x 1", "graph of 3 on 0"]
    np.testing.assert_array_equal(y.values, expected(np.full(N, 5), C))


def test_a_device_that_holds_no_cta_is_one_clear_error(cu: FakeDriver) -> None:
    """Else a persistent kernel would have a grid of none, and results nobody wrote."""
    cu.n_resident = 0
    with pytest.raises(DeviceError, match="device 0: holds no CTA of increment: "):
        run.Program(one()).bind([FakeLibrary().array()])


def test_a_device_that_holds_no_cluster_is_one_clear_error(cu: FakeDriver) -> None:
    cu.n_clusters = 0
    with pytest.raises(DeviceError) as refusal:
        run.Program(one(cluster=8)).bind([FakeLibrary().array()])
    wrong = "device 0: does not hold one cluster of 8 CTAs of increment; expected smaller"
    assert wrong in str(refusal.value)


def test_plain_calls_on_memory_seen_before_are_one_graph(cu: FakeDriver) -> None:
    there = run.Program(several()).on(0)
    c = there.constant("c", C)
    x, y = (cu.cuMemAlloc(4 * N)[1] for _ in range(2))
    for _ in range(3):
        there.run((x, c, y), 0)
    assert cu.calls == [*(f"kernel {k} on 0" for k in ("increment", "double", "add")),
                        "graph of 3 on 0", "graph of 3 on 0"]  # fmt: skip


def test_what_is_kept_for_plain_calls_is_bounded(cu: FakeDriver) -> None:
    there = run.Program(several()).on(0)
    c, y = there.constant("c", C), cu.cuMemAlloc(4 * N)[1]
    for stream in range(1, 2 * prepared.KEPT_STREAMS):
        for _ in range(2 * prepared.KEPT_BINDINGS):
            there.run((cu.cuMemAlloc(4 * N)[1], c, y), stream)
    assert len(there._lanes) == prepared.KEPT_STREAMS
    assert {len(lane.bindings) for lane in there._lanes.values()} == {prepared.KEPT_BINDINGS}


@pytest.mark.parametrize("way", ["call", "bind"])
def test_calls_on_different_streams_share_no_scratch_memory(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(12):
        cu = use(FakeDriver(KERNELS, seed=seed), monkeypatch)
        program, library = run.Program(several(6)), FakeLibrary()
        wanted: list[Any] = []
        results: list[Any] = []
        kept: list[Any] = []
        for stream in (3, 4, 5, 3, 4):
            library.now = stream
            kept.append(x := library.array(len(results)))
            wanted.append(expected(np.full(N, len(results)), C, 6))
            if way == "bind":
                launch_, (y,) = program.bind([x, C])
                launch_()
            else:
                (y,) = program.call([x, C])
            results.append(y)
        cu.wait()
        for y, value in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(y.values, value)


def test_threads_on_one_stream_do_not_interleave(cu: FakeDriver) -> None:
    program, library = run.Program(several(8)), FakeLibrary()
    given = [library.array(n) for n in range(24)]
    results: dict[int, Any] = {}
    together = Barrier(3)

    def yielding(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            os.sched_yield()
            return work(*given)

        return run

    cu.cuLaunchKernelEx = yielding(cu.cuLaunchKernelEx)  # type: ignore[method-assign]
    cu.cuMemcpyHtoD = yielding(cu.cuMemcpyHtoD)  # type: ignore[method-assign]

    def work(numbers: Sequence[int]) -> None:
        together.wait()
        for n in numbers:
            results[n] = program.call([given[n], C])[0]

    threads = [Thread(target=work, args=(range(k, 24, 3),)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cu.wait()
    for n, y in results.items():
        np.testing.assert_array_equal(y.values, expected(np.full(N, n), C, 8))


def test_captured_calls_own_their_scratch_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(12):
        cu = use(FakeDriver(KERNELS, seed=seed), monkeypatch)
        program, library = run.Program(several(4)), FakeLibrary()
        two, nine = library.array(2), library.array(9)
        launch_, (bound_y,) = program.bind([two, C])
        library.now = 3
        cu.capturing.add(3)
        made = [program.call([two, C])[0] for _ in range(2)]
        launch_()
        assert not any("graph" in c for c in cu.calls)  # none can be launched into a capture
        cu.capturing.clear()
        (other,) = program.call([nine, C])  # waits on the stream while the graph runs on another
        cu.queues[4] = list(cu.captured)
        cu.wait()
        for array, value in [(other, 9), *((y, 2) for y in (*made, bound_y))]:
            np.testing.assert_array_equal(array.values, expected(np.full(N, value), C, 4))


def test_loading_and_allocating_are_allowed_inside_a_capture(cu: FakeDriver) -> None:
    modes: list[Any] = []

    def telling(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            modes.append(cu.mode)
            return work(*given)

        return run

    cu.cuModuleLoadData = telling(cu.cuModuleLoadData)  # type: ignore[method-assign]
    cu.cuMemAlloc = telling(cu.cuMemAlloc)  # type: ignore[method-assign]
    program, library = run.Program(several()), FakeLibrary()
    program.call([library.array(), C])
    assert {mode.name for mode in modes} == {"CU_STREAM_CAPTURE_MODE_RELAXED"}
    assert cu.mode == "global"


def test_a_thread_without_a_context_and_one_on_another_device(cu: FakeDriver) -> None:
    library = FakeLibrary()
    x = library.array(1)
    launch_, (y,) = run.Program(one()).bind([x])
    cu.context = OTHER
    launch_()
    assert cu.context == OTHER
    cu.context = None
    launch_()
    assert cu.context is not None
    assert len(cu.calls) == 4  # refused, then launched with the right device
    cu.wait()
    np.testing.assert_array_equal(y.values, np.full(N, 2))


# -- errors ---------------------------------------------------------------------------------------


def error_of(work: Callable[[], object]) -> str:
    with pytest.raises(AxeError) as caught:
        work()
    return f"{type(caught.value).__name__}: {caught.value}"


def _misaligned() -> Array:
    x = FakeLibrary().array()
    x.values = x.memory[1 : 1 + N]
    assert x.values.ctypes.data % 16
    return x


def _read_as(program: run.Program, library: FakeLibrary, **changes: Any) -> object:
    fields = {"pointer": 0, "dtype": "f32", "shape": (N,), "strides": (1,), "device": 0}
    library.read = lambda array: DeviceArray(**{**fields, **changes})  # type: ignore[method-assign]
    return program.call([library.array()])


ARRAYS: dict[str, Callable[[run.Program, FakeLibrary], object]] = {
    "dtype": lambda p, lib: _read_as(p, lib, dtype="f16"),
    "shape": lambda p, lib: _read_as(p, lib, shape=(2, N)),
    "strides": lambda p, lib: _read_as(p, lib, strides=(2,)),
    "count": lambda p, lib: p.call([lib.array(), lib.array()]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_do_not_fit_are_one_clear_error(
    name: str, cu: FakeDriver, golden: Callable[..., None]
) -> None:
    golden(error_of(lambda: ARRAYS[name](run.Program(one()), FakeLibrary())))
    assert cu.calls == []


def test_an_array_that_is_not_aligned_is_copied(cu: FakeDriver) -> None:
    """In the order of its library's stream, at every call of what is bound to it as well."""
    library, x = FakeLibrary(), _misaligned()
    library.now, x.library = 4, library
    for code, links in ((one(), 0), (several(), 2)):
        program = run.Program(code)
        launch, (y,) = program.bind([x, *[C] * len(code.constants)])
        for value in (1, 5):
            x.values[:] = value
            made = program.call([x, *[C] * len(code.constants)])
            launch()
            cu.wait()
            wanted = expected(x.values, C) if links else x.values + 1
            np.testing.assert_array_equal(made[0].values, wanted)
            np.testing.assert_array_equal(y.values, wanted)
        (_, part), *_ = program.parts([x, *[C] * len(code.constants)])
        part()
        cu.wait()
    assert {c for c in cu.calls if c.startswith("copy")} == {"copy on 4"}


def test_an_array_that_is_not_aligned_is_copied_in_a_capture(cu: FakeDriver) -> None:
    library, x = FakeLibrary(), _misaligned()
    library.now, x.library = 4, library
    program, cu.capturing = run.Program(several()), {4}
    (y,) = program.call([x, C])
    for value in (2, 3):
        x.values[:] = value
        for work in cu.captured:
            work()
        np.testing.assert_array_equal(y.values, expected(x.values, C))


def test_arrays_on_two_devices_or_on_the_host_are_refused(
    cu: FakeDriver, golden: Callable[..., None]
) -> None:
    ports = {n: port(n) for n in "xcy"}
    kernel = Launch(image("add", "a", "c", "b"), {}, {"a": "x", "c": "c", "b": "y"})
    program = run.Program(Code("h200", ports, ("x", "c"), (), ("y",), 0, (kernel,)))
    here, there = FakeLibrary(0), FakeLibrary(1)
    golden(error_of(lambda: program.call([here.array(), there.array()])), "device")
    golden(error_of(lambda: program.call([here.array(), C])), "host")


DRIVERS: dict[str, tuple[dict[str, Any], Code]] = {
    "another device": ({"capability": (8, 0)}, one()),
    "old driver": ({"version": 12040}, one()),
    "damaged code": ({}, one(cubin=b"nonsense")),
}


@pytest.mark.parametrize("name", DRIVERS)
def test_a_machine_that_cannot_run_the_code_is_one_clear_error(
    name: str, monkeypatch: pytest.MonkeyPatch, golden: Callable[..., None]
) -> None:
    options, code = DRIVERS[name]
    use(FakeDriver(KERNELS, **options), monkeypatch)
    program = run.Program(code)
    golden(error_of(lambda: program([np.zeros(N, np.float32)])))


def test_a_launch_that_the_driver_refuses_is_one_clear_error(
    cu: FakeDriver, golden: Callable[..., None]
) -> None:
    refused = cu.failed("CUDA_ERROR_INVALID_HANDLE")[:1]
    cu.cuLaunchKernelEx = lambda *_: refused  # type: ignore[method-assign]
    launch_, _ = run.Program(one()).bind([FakeLibrary().array()])
    golden(error_of(launch_))


def test_a_newer_driver_of_the_same_major_version_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(FakeDriver(KERNELS, version=13000), monkeypatch)  # the image is of 13.4
    (y,) = run.Program(one())([np.zeros(N, np.float32)])
    assert y.tolist() == [1.0] * N


def test_present_says_whether_the_machine_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from axe_eq_backends.cuda.target import b200, h200

    use(FakeDriver(), monkeypatch)
    assert [run.CudaRunner().present(t) for t in (h200, b200)] == [True, False]

    def absent() -> None:
        raise DeviceError("CUDA driver", "finds no device", "an NVIDIA GPU")

    monkeypatch.setattr(driver, "driver", absent)
    assert not run.CudaRunner().present(h200)


def _without(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing a module fails, as where it is not installed."""
    for name in [n for n in sys.modules if n == module or n.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    parent, _, child = module.rpartition(".")
    if parent in sys.modules:
        monkeypatch.delattr(sys.modules[parent], child, raising=False)
    monkeypatch.setitem(sys.modules, module, None)


def test_without_bindings_driver_or_device_there_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, golden: Callable[..., None]
) -> None:
    bindings = pytest.importorskip("cuda.bindings.driver", reason="cuda.bindings is not installed")
    uncached = driver.driver.__wrapped__

    def no_library(flags: int) -> None:
        raise RuntimeError("no libcuda.so.1 was found. Ensure that the driver is installed.")

    monkeypatch.setattr(bindings, "cuInit", no_library)
    golden(error_of(uncached), "driver")
    no_device = bindings.CUresult.CUDA_ERROR_NO_DEVICE
    monkeypatch.setattr(bindings, "cuInit", lambda flags: (no_device,))
    golden(error_of(uncached), "device")
    _without("cuda.bindings.driver", monkeypatch)
    golden(error_of(uncached), "bindings")

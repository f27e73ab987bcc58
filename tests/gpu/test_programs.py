"""Compiled programs on the device: saved, loaded, called with arrays of every library."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import ArgumentError
from axe_eq.program.types import dtype
from axe_eq.run.timing import alone
from axe_eq.schedule.graph import KernelStep, ScheduleGraph
from axe_eq_backends.cuda.assemble import assemble
from axe_eq_backends.cuda.run import Program
from tests.unit.cuda import test_typed_cells as typed
from tests.unit.cuda import test_unaligned_rows as unaligned
from tests.unit.cuda.whole import sample

pytestmark = pytest.mark.gpu

TABLE = np.linspace(0.5, 1.5, 256).astype(np.float16)


def one_kernel(x: Any) -> Any:
    return axe.array.exp(x) * TABLE


def mlp(x: Any, g: Any, wg: Any, wu: Any, wd: Any) -> Any:
    h = nn.rmsnorm(x) * g
    return x + (nn.silu(h @ wg) * (h @ wu)) @ wd


def nested(pair: Any, x: Any) -> Any:
    return {"sum": pair["a"] + x, "others": (pair["a"] * 2, axe.array.reshape(x + 1, (-1,)))}


def spec(*shape: int, **more: Any) -> axe.Spec:
    return axe.Spec(shape, "f16", **more)


ROWS, HIDDEN, INNER = 136, 256, 512
OTHER_ROWS = (1, 17, ROWS, 200)
MLP = (
    spec(ROWS, HIDDEN, dims=("rows", "")), spec(HIDDEN), spec(HIDDEN, INNER), spec(HIDDEN, INNER),
    spec(INNER, HIDDEN),
)  # fmt: skip
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "one": (one_kernel, (spec(64, 256, dims=("rows", "")),)),
    "mlp": (mlp, MLP),
    "nested": (nested, ({"a": spec(16, 64)}, spec(16, 64))),
    "columns": (lambda x: x + 1, (spec(32, 64, layout="S[(32,64):(1,32)]"),)),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every program compiled, saved and loaded; what runs is what was loaded."""
    folder = tmp_path_factory.mktemp("saved")
    found = {}
    for name, (fn, specs) in PROGRAMS.items():
        extents = {"rows": OTHER_ROWS} if name in ("one", "mlp") else {}
        axe.compile(fn, *specs, target="h200").save(folder / f"{name}.axe", extents=extents)
        found[name] = axe.load(folder / f"{name}.axe")
    return found


def numbers(*shape: int, seed: int = 0) -> Any:
    scale = shape[0] ** -0.5 if len(shape) > 1 else 1.0
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float16)


def mlp_arrays(rows: int = ROWS, seed: int = 0) -> list[Any]:
    weights = ((HIDDEN, INNER), (HIDDEN, INNER), (INNER, HIDDEN))
    given = [numbers(rows, HIDDEN, seed=seed), numbers(HIDDEN, seed=1)]
    return given + [numbers(*s, seed=2 + n) for n, s in enumerate(weights)]


def close(got: Any, wanted: Any) -> None:
    got, wanted = np.asarray(got, np.float32), np.asarray(wanted, np.float32)
    assert got.shape == wanted.shape
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(got, wanted, atol=4e-3 * max(1.0, float(np.abs(wanted).max())))


# -- host arrays, and machines with numpy and cuda-python alone -----------------------------------


def test_host_arrays_go_there_and_back(programs: dict[str, Any]) -> None:
    x = numbers(64, 256)
    close(programs["one"](x), axe.run(one_kernel, x))
    close(programs["mlp"](*mlp_arrays()), axe.run(mlp, *mlp_arrays()))
    a, b = numbers(16, 64), numbers(16, 64, seed=1)
    result = programs["nested"]({"a": a}, b)
    for got, wanted in zip((result["sum"], *result["others"]), (a + b, a * 2, b + 1), strict=True):
        close(got, wanted.reshape(np.shape(got)))


@pytest.mark.parametrize("shape", [(64, 64, 64), (1 << 20,), (1_000_003,), (3, 1_000_000)])
def test_long_reductions(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float16)
    xp = axe.array
    for fn in (xp.sum, xp.max, lambda v: xp.sum(v, axis=-1), lambda v: nn.softmax(v, axis=-1)):
        exe = axe.compile(fn, spec(*shape), target="h200")
        wanted = np.asarray(axe.run(fn, x.astype(np.float64)))
        got = np.asarray(exe(x), np.float64)
        assert got.shape == wanted.shape
        error = np.abs(got - wanted).max()
        assert error <= 2e-3 * max(np.abs(wanted).max(), 1e-4)


def test_gelu_of_every_number() -> None:
    """Texts of several cells at once, whose exponentials and reciprocals are the machine's."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    exe = axe.compile(lambda x: nn.gelu(axe.array.astype(x, "f32")), spec(x.size), target="h200")
    assert "one_more_erf" in "".join(exe.source.values())
    there = np.isfinite(x)
    want = np.array([0.5 * v * math.erfc(-v * 0.5**0.5) for v in x[there].astype(np.float64)])
    off = np.abs(np.asarray(exe(x))[there] - want)
    assert (off <= 1e-6 + 1e-6 * np.abs(want)).all()
    normal = np.abs(want) >= 2.0**-13
    assert (off[normal] < 2.0**-13 * np.abs(want[normal])).all()


@pytest.mark.parametrize("name", typed.PROGRAMS)
def test_constants_and_positions_have_types(name: str) -> None:
    fn, specs = typed.PROGRAMS[name]
    rng = np.random.default_rng(3)
    inputs = [sample(rng, s.type) for s in specs]
    got = np.asarray(axe.compile(fn, *specs, target="h200")(*inputs))
    want = np.asarray(axe.run(fn, *inputs))
    assert got.dtype == want.dtype
    digits = {"f16": 2e-3, "f32": 2e-6, "f64": 1e-14}.get(dtype(want.dtype).name, 0)
    np.testing.assert_allclose(got, want, rtol=digits, atol=0)


def by_device(
    step: KernelStep, graph: ScheduleGraph, target: axe.Target, given: dict[str, Any], order: int
) -> dict[str, Any]:
    """The results of a step by their names."""
    one = alone(graph, step)
    results = Program(assemble(one, target))([given[name] for name in one.inputs])
    return dict(zip(one.outputs, results, strict=True))


@pytest.mark.parametrize("name", unaligned.PROGRAMS)
def test_vectors_that_hang_over_rows(name: str) -> None:
    """What is loaded past the ends of a row, or of a tensor, is none of it."""
    unaligned.check(name, full=True, run=by_device)


def test_other_rows_are_compiled_where_the_compiler_is(programs: dict[str, Any]) -> None:
    for rows in OTHER_ROWS:
        close(programs["mlp"](*mlp_arrays(rows)), axe.run(mlp, *mlp_arrays(rows)))


BARE = """
import sys
sys.path[:] = [p for p in sys.path if "site-packages" not in p and "dist-packages" not in p]
sys.path.insert(0, sys.argv[1])
import numpy as np
import axe_eq as axe
from axe_eq_backends.cuda.arrays import to_device, to_host
exe, x = axe.load(sys.argv[2]), np.load(sys.argv[3])
host = exe(x)
there = exe(to_device(x))
assert type(there).__module__.startswith("cuda.core")
assert np.array_equal(to_host(there), host)
run = exe.bind(to_device(x))
assert all(np.array_equal(to_host(run()), host) for _ in range(3))
np.save(sys.argv[4], host)
print(sorted({m.partition(".")[0] for m in sys.modules} & {"torch", "egglog", "lark", "ml_dtypes",
      "networkx", "flint", "rich", "click", "threadpoolctl", "cupy"}))
"""


def test_an_interpreter_with_numpy_and_cuda_python_alone_runs_it(tmp_path: Path) -> None:
    pytest.importorskip("cuda.core")
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("numpy", "cuda"):
        for folder in importlib.import_module(name).__path__:
            for path in Path(folder).parent.glob(f"{name}*"):
                _link(bare / path.name, path)
    for name in ("axe_eq", "axe_eq_backends"):
        (folder,) = importlib.import_module(name).__path__
        _link(bare / name, Path(folder))
    entry = bare / "bare-1.dist-info"
    entry.mkdir()
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: bare\nVersion: 1\n")
    loader = "[axe_eq.loaders]\ncuda = axe_eq_backends.cuda.run:load\n"
    (entry / "entry_points.txt").write_text(loader)
    fn, specs = PROGRAMS["one"]
    axe.compile(fn, *specs, target="h200").save(tmp_path / "one.axe")
    x = numbers(64, 256)
    np.save(tmp_path / "x.npy", x)
    files = [str(tmp_path / n) for n in ("bare", "one.axe", "x.npy", "y.npy")]
    command = [sys.executable, "-I", "-S", "-c", BARE, *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    close(np.load(tmp_path / "y.npy"), axe.run(one_kernel, x))


def _link(link: Path, to: Path) -> None:
    if not link.exists():
        link.symlink_to(to.resolve())


# -- torch ----------------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return found


def tensors(torch: Any, arrays: list[Any]) -> list[Any]:
    return [torch.from_numpy(a).cuda() for a in arrays]


def wanted_mlp(torch: Any, x: Any, g: Any, wg: Any, wu: Any, wd: Any) -> Any:
    h = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6) * g.float()
    gate = h @ wg.float()
    return x.float() + (gate * torch.sigmoid(gate) * (h @ wu.float())) @ wd.float()


def test_tensors_stay_on_the_device(programs: dict[str, Any], torch: Any) -> None:
    x = torch.from_numpy(numbers(64, 256)).cuda()
    for _ in range(4):  # the first call, the quick ones, and those that reuse memory
        y = programs["one"](x)
        assert (y.is_cuda, y.dtype) == (True, torch.float16)
        close(y.cpu(), axe.run(one_kernel, x.cpu().numpy()))
    kept = [(x * 0.9**n, programs["one"](x * 0.9**n)) for n in range(40)]  # always other memory
    for given, y in kept:
        close(y.cpu(), axe.run(one_kernel, given.cpu().numpy()))


def test_nestings_and_views_of_tensors(programs: dict[str, Any], torch: Any) -> None:
    a, b = tensors(torch, [numbers(16, 64), numbers(16, 64, seed=1)])
    for _ in range(3):
        result = programs["nested"]({"a": a}, b)
        close(result["sum"].cpu(), (a + b).cpu())
        close(result["others"][0].cpu(), (a * 2).cpu())
        close(result["others"][1].cpu(), (b + 1).reshape(-1).cpu())


def test_parameters_are_tensors(programs: dict[str, Any], torch: Any) -> None:
    given = tensors(torch, mlp_arrays())
    wrapped = [given[0], *map(torch.nn.Parameter, given[1:])]
    for _ in range(3):
        close(programs["mlp"](*wrapped).cpu(), wanted_mlp(torch, *given).cpu())


def test_calls_follow_the_current_stream(programs: dict[str, Any], torch: Any) -> None:
    """Work of many streams at once, each with its own inputs; nothing waits but the end."""
    weights = tensors(torch, mlp_arrays())[1:]
    streams = [torch.cuda.Stream() for _ in range(6)]
    results = []
    torch.cuda.synchronize()
    for turn in range(12):
        for n, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                x = torch.full((ROWS, HIDDEN), 0.1, device="cuda", dtype=torch.float16)
                for column in range(8):  # work that the call has to come after
                    x[:, column] += turn + n
                results.append((x, programs["mlp"](x, *weights)))
    torch.cuda.synchronize()
    for x, y in results:
        close(y.cpu(), wanted_mlp(torch, x, *weights).cpu())


def test_every_call_may_come_with_other_memory(programs: dict[str, Any], torch: Any) -> None:
    """Graphs are moved there while those launched before still run."""
    given = tensors(torch, mlp_arrays())
    calls = []
    for n in range(60):
        moved = [a * 0.99**n if n % 3 == 0 or i == n % 5 else a for i, a in enumerate(given)]
        calls.append((moved, programs["mlp"](*moved)))
    torch.cuda.synchronize()
    for moved, y in calls:
        close(y.cpu(), wanted_mlp(torch, *moved).cpu())


def test_threads_call_at_the_same_time(programs: dict[str, Any], torch: Any) -> None:
    weights = tensors(torch, mlp_arrays())[1:]

    def work(seed: int) -> list[tuple[Any, Any]]:
        xs = [torch.from_numpy(numbers(ROWS, HIDDEN, seed=seed + n)).cuda() for n in range(20)]
        return [(x, programs["mlp"](x, *weights)) for x in xs]

    with ThreadPoolExecutor(4) as pool:
        results = [pair for part in pool.map(work, range(0, 400, 100)) for pair in part]
    torch.cuda.synchronize()
    for x, y in results:
        close(y.cpu(), wanted_mlp(torch, x, *weights).cpu())


def test_prepared_calls_read_the_buffers_as_they_are_then(
    programs: dict[str, Any], torch: Any
) -> None:
    given = tensors(torch, mlp_arrays())
    run = programs["mlp"].bind(*given)
    first = run()
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            given[0].mul_(0.9)
            assert run() is first
            got = first.clone()
        stream.synchronize()
        close(got.cpu(), wanted_mlp(torch, *given).cpu())


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("name", ["one", "mlp"])
def test_calls_become_part_of_the_caller_s_graph(name: str, warm: bool, torch: Any) -> None:
    fn, specs = PROGRAMS[name]
    exe = axe.compile(fn, *specs, target="h200")
    exe.schedule.code()
    given = tensors(torch, mlp_arrays() if name == "mlp" else [numbers(64, 256)])
    run = exe.bind(*given) if warm else None
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = exe(*given)
        z = exe(y, *given[1:])  # on what the call before computes
        bound = run() if run else None
    for factor in (1.0, 0.5, 2.0):
        given[0].mul_(factor)
        graph.replay()
        others = [exe(given[0] * (n + 1), *given[1:]) for n in range(3)]  # on the same stream
        with torch.cuda.stream(torch.cuda.Stream()):
            exe(given[0] * 7, *given[1:])  # beside the graph
        torch.cuda.synchronize()
        wanted = axe.run(fn, *(g.cpu().numpy() for g in given))
        close(y.cpu(), wanted)
        close(z.cpu(), axe.run(fn, y.cpu().numpy(), *(g.cpu().numpy() for g in given[1:])))
        if bound is not None:
            close(bound.cpu(), wanted)
        close(others[0].cpu(), wanted)


def test_tensors_that_do_not_fit_are_one_clear_error(programs: dict[str, Any], torch: Any) -> None:
    exe = programs["one"]
    x = torch.zeros(64, 256, dtype=torch.float16, device="cuda")
    wrong = {
        r"argument 'x': has strides \(1, 64\); expected \(256, 1\)\n  try: exe\.pack": (
            torch.zeros(256, 64, dtype=torch.float16, device="cuda").T
        ),
        r"argument 'x': has dtype float32; expected f16": x.float(),
        r"argument 'x': has shape \(64, 255\), extent 255 in dim 1": x[:, :255],
    }
    for _ in range(2):  # with and without a quick call before
        for text, given in wrong.items():
            with pytest.raises(ArgumentError, match=text):
                exe(given)
        exe(x)
    given = tensors(torch, mlp_arrays())
    with pytest.raises(ArgumentError, match=r"'wg': lies in host memory; expected device 0, where"):
        programs["mlp"](*given[:2], given[2].cpu(), *given[3:])


def test_tensors_that_begin_anywhere_are_taken(programs: dict[str, Any], torch: Any) -> None:
    """Where vectors and bulk copies cannot read them, they are copied first."""
    given = tensors(torch, mlp_arrays())
    for name, aligned in (("one", given[:1]), ("mlp", given)):
        exe, odd = programs[name], []
        for t in aligned:
            odd.append(torch.empty(t.numel() + 1, dtype=t.dtype, device="cuda")[1:].view(t.shape))
            odd[-1].copy_(t)
        bound = exe.bind(*odd)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = exe(*odd)
        for factor in (1.0, 0.5):
            odd[0].mul_(factor)
            wanted = exe(*(t.clone() for t in odd)).cpu()
            for _ in range(2):  # the short way, where there is one
                close(exe(*odd).cpu(), wanted)
            close(bound().cpu(), wanted)
            graph.replay()
            close(captured.cpu(), wanted)


def test_inputs_in_another_layout_are_taken_as_they_are(
    programs: dict[str, Any], torch: Any
) -> None:
    x = torch.randn(64, 32, device="cuda").half().T
    close(programs["columns"](x).cpu(), (x + 1).cpu())
    with pytest.raises(ArgumentError, match=r"has strides \(64, 1\); expected \(1, 32\)"):
        programs["columns"](x.contiguous())


@pytest.mark.multigpu
def test_every_device_runs_its_own_arrays(programs: dict[str, Any], torch: Any) -> None:
    for device in (1, 0, 1):
        given = [t.to(f"cuda:{device}") for t in tensors(torch, mlp_arrays())]
        for _ in range(3):
            y = programs["mlp"](*given)
            assert y.get_device() == device
            close(y.cpu(), wanted_mlp(torch, *given).cpu())
    mixed = [given[0].to("cuda:0"), *given[1:]]
    with pytest.raises(ArgumentError, match=r"'g': lies on device 1; expected device 0, where 'x'"):
        programs["mlp"](*mixed)


# -- other libraries ------------------------------------------------------------------------------


def test_cupy_arrays_on_cupy_s_stream(programs: dict[str, Any]) -> None:
    cupy = pytest.importorskip("cupy")
    given = mlp_arrays()
    weights = [cupy.asarray(a) for a in given[1:]]
    results = []
    for n, stream in enumerate([cupy.cuda.Stream.null, *(cupy.cuda.Stream() for _ in range(3))]):
        with stream:
            x = cupy.asarray(given[0]) * (n + 1)
            results.append((x, programs["mlp"](x, *weights)))
    cupy.cuda.Device().synchronize()
    for x, y in results:
        assert isinstance(y, cupy.ndarray)
        close(y.get(), axe.run(mlp, x.get(), *given[1:]))


def test_jax_arrays_come_back_as_jax_arrays(programs: dict[str, Any]) -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this jax has no CUDA")
    given = mlp_arrays()
    for n in range(3):
        there = [jax.numpy.asarray(a) for a in given]
        there[0] = there[0] * (n + 1)
        y = programs["mlp"](*there)
        assert isinstance(y, jax.Array)
        close(np.asarray(y), axe.run(mlp, np.asarray(there[0]), *given[1:]))


def test_arrays_of_two_libraries_are_ordered(programs: dict[str, Any], torch: Any) -> None:
    cupy = pytest.importorskip("cupy")
    given = mlp_arrays()
    weights = [cupy.asarray(a) for a in given[1:]]
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.from_numpy(given[0]).cuda(non_blocking=True) * 2
        y = programs["mlp"](x, *weights)
    torch.cuda.synchronize()
    assert isinstance(y, torch.Tensor)
    close(y.cpu(), axe.run(mlp, x.cpu().numpy(), *given[1:]))

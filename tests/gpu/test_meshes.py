"""Plans on two GPUs, over NCCL and by peer access: what they compute, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ArgumentError
from axe_eq.extract.mesh.seen import READ, STORE
from axe_eq.layout import Mesh
from axe_eq.program.nesting import flatten
from axe_eq.program.types import DTYPES, Array
from axe_eq.schedule.meeting import chunks_of
from axe_eq_backends.cuda import image
from axe_eq_backends.cuda.arrays import DeviceArray
from axe_eq_backends.cuda.driver import driver
from axe_eq_backends.cuda.launch import Loaded
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200
from axe_eq_backends.mesh.peers import Copies
from tests.unit.mesh.blocks import in_blocks
from tests.unit.mesh.carried import carry
from tests.unit.mesh.test_merging import drawn, merging

pytestmark = pytest.mark.multigpu

M2 = Mesh({"x": 2})
R, C, W = "P('x',None)", "P(None,'x')", "P(None,None)"
FLIPPED = "S[(2,32,48):(-1@gpuid,48@m,1@m)] + 1@gpuid"
CYCLES = "S[(32,2,48):(48@m,1@gpuid,1@m)]"
COLUMNS = "S[(2,32,48):(1@gpuid,1@m,32@m)]"
LAYOUTS = (R, C, W, FLIPPED, CYCLES, COLUMNS)
MOVES = [(a, b) for a in LAYOUTS for b in LAYOUTS if a != b]


def placed(text: str, shape: tuple[int, ...]) -> Any:
    return axe.read("jax", text, shape=shape, mesh=M2) if text[0] == "P" else axe.Layout.parse(text)


def moved(source: str, goal: str, dtype: str, shape: tuple[int, ...] = (64, 48)) -> Any:
    spec = axe.Spec(shape, dtype, layout=placed(source, shape))
    return axe.compile(lambda x: x, spec, target="h200", mesh=M2, outputs=[placed(goal, shape)])


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    drawn = np.random.default_rng(seed).integers(-3, 4, shape)
    return drawn.astype(DTYPES[dtype].numpy)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "i8", "f64", "bool"])
@pytest.mark.parametrize(("source", "goal"), MOVES)
def test_redistributions_by_peer_access_are_bit_exact(source: str, goal: str, dtype: str) -> None:
    exe, x = moved(source, goal, dtype), numbers((64, 48), dtype)
    run = exe.on("peers")
    assert run.whole(run(run.shards(x))).tobytes() == x.tobytes()
    assert [sent for mine in run.sent for sent in mine.values()] == [
        mine[r] for r in range(2) for mine in exe.plan.n_bytes.values()
    ]


@pytest.mark.parametrize("goal", [W, C])
def test_shards_may_change_when_a_call_has_returned(goal: str) -> None:
    """What was queued before reads them first."""
    shape = (8192, 8192)
    exe, x = moved(R, goal, "f16", shape), numbers(shape, "f16")
    run = exe.on("peers")
    shards = run.shards(x)
    for _ in range(3):
        results = run(shards)
        for mine in shards:
            mine[0].zero_()
        assert np.array_equal(run.whole(results), x)
        shards = run.shards(x)


def mlp(x: Any, a: Any, b: Any) -> Any:
    return axe.nn.relu(x @ a) @ b


SHAPES = ((256, 128), (128, 256), (256, 128))


def compiled_mlp() -> Any:
    specs = [
        axe.Spec(s, "f16", layout=placed(cut, s)) for s, cut in zip(SHAPES, (R, C, R), strict=True)
    ]
    return axe.compile(mlp, *specs, target="h200", mesh=M2, outputs=[placed(R, SHAPES[0])])


@pytest.mark.parametrize("transport", ["peers", "nccl"])
def test_a_block_launched_on_two_devices_is_the_block(transport: str, tmp_path: Path) -> None:
    exe, given = compiled_mlp(), [numbers(s, "f16", n) for n, s in enumerate(SHAPES)]
    exe.save(tmp_path / "mlp.axe")
    wanted = exe.meaning(*given).astype(np.float32)
    for one in (exe, axe.load(tmp_path / "mlp.axe")):
        found = one.launch(*given, transport=transport)
        got = np.asarray(flatten(found.outputs)[1][0], np.float32)
        assert np.linalg.norm(got - wanted) < 2e-3 * np.linalg.norm(wanted)
        assert found.sent == exe.plan.n_bytes


@pytest.mark.parametrize("transport", ["peers", "nccl"])
@pytest.mark.parametrize(("dim", "late"), [(0, True), (1, None)])
def test_blocks_are_read_and_written_where_they_lie(
    dim: int, late: bool | None, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows at another place on every device, sums in the product's kernel; and columns."""
    chosen = in_blocks(monkeypatch, [(1, 1)], dim=dim, late=late)
    shapes = (512, 256), (256, 512)
    specs = [axe.Spec(s, "f16", layout=placed(c, s)) for s, c in zip(shapes, (C, R), strict=True)]
    goal = [placed(R, (512, 512))]
    exe = axe.compile(lambda x, w: x @ w, *specs, target="h200", mesh=M2, outputs=goal)
    assert chosen
    assert bool(exe.plan.under) == bool(late)  # own sums are merged with what has arrived
    given = [numbers(s, "f16", n) for n, s in enumerate(shapes)]
    found = exe.launch(*given, transport=transport)
    assert np.array_equal(np.asarray(flatten(found.outputs)[1][0]), exe.meaning(*given))
    assert found.sent == exe.plan.n_bytes


PRODUCTS = {"gathered": (R, C, C), "summed": (C, R, R)}


@pytest.mark.parametrize(
    ("kind", "how", "dtype"),
    [("gathered", READ, "f16"), ("summed", READ, "f16"), ("summed", STORE, "f16"),
     ("gathered", READ, "f32"), ("summed", STORE, "bf16"), ("summed", STORE, "i32")],
)  # fmt: skip
@pytest.mark.parametrize("rows", [64, 512])
def test_kernels_read_and_store_on_other_devices(
    kind: str, how: str, dtype: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls over and over, on shards that change while others are still on their way."""
    numbered = carry(monkeypatch, how)
    shapes, cuts = ((rows, 256), (256, 384)), PRODUCTS[kind]
    specs = [axe.Spec(s, dtype, layout=placed(c, s)) for s, c in zip(shapes, cuts, strict=False)]
    goal = [placed(cuts[2], (rows, 384))]
    exe = axe.compile(lambda x, w: x @ w, *specs, target="h200", mesh=M2, outputs=goal)
    assert numbered
    assert exe.plan.seen
    given = [np.sign(numbers(s, dtype, n)).astype(DTYPES[dtype].numpy)
             for n, s in enumerate(shapes)]  # fmt: skip
    wanted = np.asarray(exe.meaning(*given), np.float32)
    run = exe.on("peers")
    shards = run.shards(*given)
    for call in (run, run):
        assert np.array_equal(np.asarray(run.whole(call(shards)), np.float32), wanted)
    assert all(r[n] == s for n, sent in exe.plan.n_bytes.items()
               for r, s in zip(run.sent, sent, strict=True))  # fmt: skip
    bound, found = run.bind(shards), []
    first = [mine.clone() for mine in shards_of(shards, 0)]
    places = [y.data_ptr() for y in bound()]
    for factor in (1, 2, -1, 0, 3, 1, -2, 2, 1, 0, -3):
        for mine, base in zip(shards_of(shards, 0), first, strict=True):
            mine.copy_(base * factor)
        results = bound()
        assert [y.data_ptr() for y in results] == places
        found.append((factor, [y.clone() for y in results]))
        assert run(shards)  # beside a bound call, in memory of its own
    for factor, parts in found:
        got = np.asarray(run.whole(parts), np.float32)
        assert np.array_equal(got, factor * wanted), factor


@pytest.mark.parametrize(("chunks", "rows"), [(0, 64), (1, 64), (4, 64), (1, 512), (4, 512)])
def test_bound_calls_follow_each_other_on_any_streams(chunks: int, rows: int) -> None:
    """Kernels that wait for the other device, which is late or early, on streams that change."""
    torch = pytest.importorskip("torch")
    cuts, shapes = PRODUCTS["summed"], ((rows, 256), (256, 384))
    specs = [axe.Spec(s, "f16", layout=placed(c, s)) for s, c in zip(shapes, cuts, strict=False)]
    goal = [placed(cuts[2], (rows, 384))]
    exe = axe.compile(lambda x, w: x @ w, *specs, target=telling(chunks), mesh=M2, outputs=goal)
    assert {chunks_of(exe.plan.buffers[n]) for n in exe.plan.signals} == {chunks}
    given = [np.sign(numbers(s, "f16", n)).astype(np.float16) for n, s in enumerate(shapes)]
    run, wanted = exe.on("peers"), np.asarray(exe.meaning(*given), np.float32)
    bound, found = run.bind(run.shards(*given)), []
    streams = [[torch.cuda.Stream(d), torch.cuda.default_stream(d)] for d in range(2)]
    for call in range(24):
        with torch.cuda.stream(streams[0][call // 3 % 2]), torch.cuda.stream(streams[1][call % 2]):
            with torch.cuda.device(call % 5 % 2):
                torch.cuda._sleep(200_000)
            found.append([y.clone() for y in bound()])
    for d in range(2):
        torch.cuda.synchronize(d)
    for parts in found:
        assert np.array_equal(np.asarray(run.whole(parts), np.float32), wanted)


def telling(chunks: int) -> Any:
    """A machine whose kernels tell others of so many chunks, and never wait by events."""
    dear, cheap = (1e-6, 1e-6, 0.0), (1e-6, -0.1e-6, 0.0)  # one chunk, or as many as may be
    told = None if not chunks else dear if chunks == 1 else cheap
    links = tuple(replace(link, signal_s=2e-6, tell_s=told) for link in h200.links)
    return h200.replace(links=links)


def shards_of(shards: Any, number: int) -> list[Any]:
    return [mine[number] for mine in shards]


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize(("dtype", "monoid"), [("f16", "+"), ("bf16", "+"), ("i32", "max")])
def test_the_memory_of_either_device_merges(
    dtype: str, monoid: str, bulk: bool, device: int
) -> None:
    """And rounds once, also what is subnormal."""
    torch = pytest.importorskip("torch")
    for n in range(2):
        torch.zeros(1, device=f"cuda:{n}")
    Copies(driver(), 2)  # which lets devices see each other's memory
    built = image.build(plan(merging(dtype, monoid, bulk), h200))
    x, y = drawn(dtype, 0), drawn(dtype, 1)
    with np.errstate(all="ignore"):
        want = {"+": np.add, "max": np.maximum}[monoid](x, y).astype(y.dtype)
    held = {"x": (x, 0), "y": (y, device)}
    raw = {n: torch.from_numpy(a.view(np.uint8).copy()).to(f"cuda:{d}")
           for n, (a, d) in held.items()}  # fmt: skip
    arrays = {n: DeviceArray(t.data_ptr(), dtype, x.shape, (x.shape[1], 1))
              for n, t in raw.items()}  # fmt: skip
    Loaded(built, 0).bind(arrays).launch()
    for n in range(2):
        torch.cuda.synchronize(n)
    assert raw["y"].cpu().numpy().tobytes() == want.tobytes()


def test_over_nccl_messages_stand_for_what_kernels_carry(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    carry(monkeypatch, READ)
    exe, given = compiled_mlp(), [numbers(s, "f16", n) for n, s in enumerate(SHAPES)]
    assert exe.plan.seen
    exe.save(tmp_path / "mlp.axe")
    wanted = exe.meaning(*given).astype(np.float32)
    found = axe.load(tmp_path / "mlp.axe").launch(*given, transport="nccl")
    got = np.asarray(flatten(found.outputs)[1][0], np.float32)
    assert np.linalg.norm(got - wanted) < 2e-3 * np.linalg.norm(wanted)
    assert found.sent == exe.plan.n_bytes


def test_shards_on_another_device_are_refused() -> None:
    run = compiled_mlp().on("peers")
    shards = run.shards(*[numbers(s, "f16") for s in SHAPES])
    with pytest.raises(ArgumentError, match="shard 'x': lies on cuda:1; expected cuda:0"):
        run([shards[1], shards[0]])


def torchrun(
    ranks: int, job: str, folder: Path, *files: str, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a script, kept in a folder, in so many processes on files of that folder."""
    (folder / "job.py").write_text(job)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    script = [str(folder / name) for name in ("job.py", *files)]
    return subprocess.run(
        [*run, str(ranks), *script], capture_output=True, text=True, timeout=timeout
    )


GLOO = """
import os, numpy as np
from axe_eq.program.nesting import flatten
from tests.unit.mesh.programs import CASES, arguments, compiled
for name in CASES:
    exe = compiled(name)
    if exe.plan.n_ranks != int(os.environ["WORLD_SIZE"]):
        continue
    run, given = exe.on("gloo"), arguments(name)
    found, wanted = run(*run.shards(*given)), run.parts(exe(*given))
    for got, want in zip(flatten(found)[1], flatten(wanted)[1], strict=True):
        assert np.allclose(run._arrays.host(got), want, rtol=1e-5, atol=1e-6), name
    assert all(run.sent[n] == sent[run.rank] for n, sent in exe.plan.n_bytes.items()), name
"""


def test_all_small_programs_run_over_gloo(tmp_path: Path) -> None:
    done = torchrun(4, GLOO, tmp_path)
    assert done.returncode == 0, done.stderr


KILLED = """
import os, signal, sys, numpy as np
import axe_eq as axe
run = axe.load(sys.argv[1]).on("nccl")
shards = run.shards(*[np.ones(t.shape, np.float16) for t in run._call.types])
run(*shards)
if run.rank:
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    run(*shards)
"""


def test_a_killed_rank_ends_the_job(tmp_path: Path) -> None:
    compiled_mlp().save(tmp_path / "mlp.axe")
    done = torchrun(2, KILLED, tmp_path, "mlp.axe", timeout=120)
    assert done.returncode != 0
    assert "-9" in done.stderr  # torchrun names the rank and its end


JOB = """
import sys, numpy as np, torch
import axe_eq as axe
from axe_eq.errors import AxeError
run = axe.load(sys.argv[1]).on("nccl")
whole = [np.ones(t.shape, np.float16) for t in run._call.types]
shards = run.shards(*whole)
y = run(*shards)
said = [f"{y.device.type} {tuple(y.shape)}"]
for x in (shards[0][run.rank :], shards[0].float() if run.rank else shards[0]):
    try:
        run(x, *shards[1:])
    except AxeError as error:
        said.append(str(error))
open(f"{sys.argv[2]}/{run.rank}.txt", "w").write("\\n".join(said))
"""


def test_a_script_of_torchrun_keeps_shards_on_the_device_and_names_liars(tmp_path: Path) -> None:
    compiled_mlp().save(tmp_path / "mlp.axe")
    done = torchrun(2, JOB, tmp_path, "mlp.axe", "", timeout=120)
    for rank in range(2):
        assert (tmp_path / f"{rank}.txt").read_text().splitlines() == [
            "cuda (128, 128)",
            "rank 1, shard 'x': has shape (127, 128); expected f16[128,128]",
            "rank 1, shard 'x': has dtype f32; expected f16[128,128]",
        ], done.stderr

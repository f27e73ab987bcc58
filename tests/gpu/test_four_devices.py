"""Plans on four GPUs: small programs by peer access and over NCCL, kernels that meet others."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.extract.mesh.seen import READ, STORE
from axe_eq.program.nesting import flatten
from axe_eq.program.types import Array
from axe_eq.schedule.meeting import chunks_of
from tests.gpu.test_meshes import torchrun
from tests.unit.mesh.carried import carry
from tests.unit.mesh.programs import CASES, M4, C, R, arguments, compiled

pytestmark = pytest.mark.multigpu(4)

FOUR = [name for name, case in CASES.items() if case.mesh.size == 4]
CLOSE = partial(np.allclose, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FOUR)
def test_small_programs_by_peer_access(name: str) -> None:
    exe, given = compiled(name, "h200", "time"), arguments(name)
    run, wanted = exe.on("peers"), flatten(exe.meaning(*given))[1]
    shards = run.shards(*given)
    for _ in range(2):
        found = flatten(run.whole(run(shards)))[1]
        for got, want in zip(found, wanted, strict=True):
            assert CLOSE(np.asarray(got), want)


JOB = """
from axe_eq.program.nesting import flatten
from tests.gpu.test_four_devices import FOUR, CLOSE
from tests.unit.mesh.programs import arguments, compiled
for name in FOUR:
    exe, given = compiled(name, "h200", "time"), arguments(name)
    run = exe.on("nccl")
    found, wanted = run(*run.shards(*given)), run.parts(exe.meaning(*given))
    for got, want in zip(flatten(found)[1], flatten(wanted)[1], strict=True):
        assert CLOSE(run._arrays.host(got), want), name
    assert all(run.sent[n] == sent[run.rank] for n, sent in exe.plan.n_bytes.items()), name
"""


def test_small_programs_over_nccl(tmp_path: Path) -> None:
    done = torchrun(4, JOB, tmp_path)
    assert done.returncode == 0, done.stderr


def signs(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(np.float16)


GRID, B = axe.Mesh({"x": 2, "y": 2}), "P('x','y')"  # in groups of two, which begin at 0 and 1


@pytest.mark.parametrize(
    ("mesh", "cuts", "how"),
    [
        (M4, (R, C, C), READ),
        (M4, (C, R, R), READ),
        (M4, (C, R, R), STORE),
        (GRID, (C, B, B), STORE),
    ],
)
@pytest.mark.parametrize("rows", [128, 512])
def test_kernels_read_and_store_on_others(
    mesh: axe.Mesh, cuts: tuple[str, ...], how: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered = carry(monkeypatch, how)
    shapes, goal = ((rows, 256), (256, 512)), (rows, 512)
    placed = [
        axe.read("jax", cut, shape=s, mesh=mesh)
        for cut, s in zip(cuts, (*shapes, goal), strict=True)
    ]
    specs = [axe.Spec(s, "f16", layout=at) for s, at in zip(shapes, placed, strict=False)]
    exe = axe.compile(lambda x, w: x @ w, *specs, target="h200", mesh=mesh, outputs=[placed[2]])
    assert numbered
    told = [chunks_of(exe.plan.buffers[n]) for n in exe.plan.signals]
    assert mesh is M4 or (told and min(told) > 0)
    assert exe.plan.seen
    given = [signs(s, n) for n, s in enumerate(shapes)]
    run, wanted = exe.on("peers"), np.asarray(exe.meaning(*given), np.float32)
    shards = run.shards(*given)
    bound, first = run.bind(shards), [mine[0].clone() for mine in shards]
    assert np.array_equal(np.asarray(run.whole(run(shards)), np.float32), wanted)
    found = []
    for factor in (1, 2, -1, 0, 1, -2, 2, 0, -1):
        for mine, base in zip(shards, first, strict=True):
            mine[0].copy_(base * factor)
        found.append((factor, [y.clone() for y in bound()]))
    for factor, parts in found:
        assert np.array_equal(np.asarray(run.whole(parts), np.float32), factor * wanted), factor

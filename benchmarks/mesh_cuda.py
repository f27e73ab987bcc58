"""Mesh plans on two GPUs, against torch with NCCL.

    python -m benchmarks.mesh_cuda --prepare FOLDER                   # anywhere
    torchrun --nproc-per-node 2 -m benchmarks.mesh_cuda --gpu --saved FOLDER    # where the GPUs are

Every case is a saved program of one function on a mesh of two. Its results are checked first: moves
bit for bit, products against float32. Then it is timed beside torch's way in turns: calls in a row
behind a sleep of the device, so that no host is waited for; the slower rank's time; the median.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import axe_eq as axe
from benchmarks.cuda_saved import Found, arguments, chosen, picked, save
from benchmarks.terminal import need

MESH = axe.Mesh({"x": 2})
R, C, W = "P('x',None)", "P(None,'x')", "P(None,None)"
MIB = 1 << 20
COLUMNS = 8192


@dataclass(frozen=True)
class Case:
    """A function on two devices.

    Attributes:
        name: of its files.
        kind: which way of torch's it is compared with.
        shapes: of the arguments, f16.
        cuts: of the arguments, then of the result.
        n_bytes: that every rank sends.
    """

    name: str
    kind: str
    shapes: tuple[tuple[int, ...], ...]
    cuts: tuple[str, ...]
    n_bytes: int


def moves(mib: int) -> list[Case]:
    """Exchanges in which every rank sends so many MiB."""
    n, rows = mib * MIB, mib * MIB // (2 * COLUMNS)
    tall, deep = (2 * rows, COLUMNS), (2, 2 * rows, COLUMNS)
    return [
        Case(f"gather{mib}", "gather", (tall,), (R, W), n),
        Case(f"turn{mib}", "turn", ((4 * rows, COLUMNS),), (R, C), n),
        Case(f"sums{mib}", "sums", (deep,), ("P('x',None,None)", R), n),
    ]


SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
# Products of facts measured before: rows, columns and extent per device of the inner dim.
PRODUCTS = {
    "qwen_8b_down": (8192, 4096, 6144),
    "llama_70b_down": (8192, 8192, 14336),
    "attention_out": (8192, 8192, 4096),
    "mixtral_down": (8192, 4096, 7168),
}
MLP = (8192, 4096, 14336)


def cases() -> list[Case]:
    """All of them."""
    found = [case for mib in SIZES for case in moves(mib) if case.kind == "gather" or mib == 64]
    m, k, n = MLP
    found.append(Case("mlp", "mlp", ((m, k), (k, n), (n, k)), (R, C, R, R), m * k))
    for name, (m, n, k) in PRODUCTS.items():
        found.append(Case(f"scatter_{name}", "scatter", ((m, 2 * k), (2 * k, n)), (C, R, R), m * n))
        found.append(Case(f"gathered_{name}", "gathered", ((m, k), (k, 2 * n)), (R, C, C), m * k))
    return found


def function(kind: str) -> Callable[..., Any]:
    """What is compiled."""
    xp, nn = axe.array, axe.nn
    known: dict[str, Callable[..., Any]] = {
        "gather": lambda x: x,
        "turn": lambda x: x,
        "sums": lambda x: xp.sum(x, axis=0),
        "mlp": lambda x, a, b: nn.silu(x @ a) @ b,
        "scatter": lambda x, w: x @ w,
        "gathered": lambda x, w: x @ w,
    }
    return known[kind]


def prepare(folder: Path, only: list[str] | None) -> None:
    """Compile and save; needs no GPU."""
    folder.mkdir(parents=True, exist_ok=True)
    for case in picked(cases(), only):
        specs = [
            axe.Spec(shape, "f16", layout=axe.read("jax", cut, shape=shape, mesh=MESH))
            for shape, cut in zip(case.shapes, case.cuts, strict=False)
        ]
        (root,) = axe.trace(function(case.kind), *specs).outputs
        goal = axe.read("jax", case.cuts[-1], shape=root.shape, mesh=MESH)
        exe = axe.compile(function(case.kind), *specs, target="h200", mesh=MESH, outputs=[goal])
        moved = {s.name: s.time_s * 1e6 for s in exe.schedule.graph.steps if s.kind == "move"}
        assert max(map(max, exe.plan.n_bytes.values())) <= case.n_bytes * (
            2 if case.kind == "mlp" else 1
        )
        save(exe, folder, case.name, {**chosen(exe), "exchanges_us": moved})
        print(case.name, [s.name for s in exe.plan.steps], exe.plan.link_bytes, flush=True)


# -- torch's way -----------------------------------------------------------------------------------


def torch_way(kind: str, given: list[Any]) -> Callable[[], Any]:
    """The same on two ranks of torch, with NCCL."""
    import torch
    import torch.distributed as dist

    x = given[0]

    def gather() -> Any:
        out = torch.empty((2 * x.shape[0], x.shape[1]), dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(out, x)
        return out

    def turn() -> Any:
        halves = x.reshape(x.shape[0], 2, -1).transpose(0, 1).contiguous()
        out = torch.empty_like(halves)
        dist.all_to_all_single(out, halves)
        return out.reshape(-1, halves.shape[-1])

    def scattered(parts: Any) -> Any:
        out = torch.empty((parts.shape[0] // 2, parts.shape[1]), dtype=x.dtype, device=x.device)
        dist.reduce_scatter_tensor(out, parts)
        return out

    ways: dict[str, Callable[[], Any]] = {
        "gather": gather,
        "turn": turn,
        "sums": lambda: scattered(x[0]),
        "scatter": lambda: scattered(x @ given[1]),
        "gathered": lambda: gather() @ given[1],
        "mlp": lambda: scattered(
            torch.nn.functional.silu(gather() @ given[1], inplace=True) @ given[2]
        ),
    }
    return ways[kind]


def wanted(kind: str, whole: list[Any]) -> Any:
    """The whole result, of whole arrays, in float32."""
    import torch

    x = whole[0]
    if kind in ("gather", "turn"):
        return x
    if kind == "sums":
        return x.float().sum(0)
    if kind == "mlp":
        return (
            torch.nn.functional.silu(x.float() @ whole[1].float()).half().float() @ whole[2].float()
        )
    return x.float() @ whole[1].float()


def part(whole: Any, cut: str, rank: int) -> Any:
    """A rank's part of a whole tensor."""
    entries = cut.removeprefix("P(").removesuffix(")").split(",")
    dim = next((d for d, e in enumerate(entries) if "x" in e), None)
    if dim is None:
        return whole
    n = whole.shape[dim] // 2
    return whole.narrow(dim, rank * n, n).contiguous()


# -- timing ----------------------------------------------------------------------------------------


def in_turns(ways: Mapping[str, Callable[[], Any]], rounds: int = 9) -> dict[str, float]:
    """Microseconds of a call of every way: the slower rank's median."""
    import torch
    import torch.distributed as dist

    times: dict[str, list[float]] = {name: [] for name in ways}
    counts = {}
    for name, way in ways.items():
        way()
        counts[name] = max(2, min(40, int(4e3 / _timed(way, 2))))
    most = torch.tensor([counts[n] for n in ways], device="cuda")
    dist.broadcast(most, 0)
    counts = dict(zip(ways, most.tolist(), strict=True))
    for number in range(rounds):
        order = list(ways) if number % 2 else list(ways)[::-1]
        for name in order:
            times[name].append(_timed(ways[name], counts[name]))
    found = torch.tensor([statistics.median(times[n]) for n in ways], device="cuda")
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return dict(zip(ways, found.tolist(), strict=True))


def _timed(way: Callable[[], Any], count: int) -> float:
    import torch
    import torch.distributed as dist

    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    way()
    torch.cuda._sleep(2_000_000 + 300_000 * count)  # the host runs ahead
    start.record()
    for _ in range(count):
        way()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / count * 1e3


def measure(case: Case, folder: Path) -> Found:
    """Check, then time."""
    import torch

    from axe_eq.run.store import load

    run = load(folder / f"{case.name}.axe").on("nccl")
    torch.manual_seed(0)
    whole = [torch.randn(s, device="cuda").half() for s in case.shapes]
    if case.kind in ("mlp", "scatter", "gathered"):
        whole[1:] = [w * w.shape[0] ** -0.5 for w in whole[1:]]
    given = [part(w, cut, run.rank) for w, cut in zip(whole, case.cuts, strict=False)]
    bound, torch_s = run.bind(*given), torch_way(case.kind, given)
    mine, theirs = bound(), torch_s()
    if case.kind == "gathered":
        meant = whole[0].float() @ given[1].float()
    else:
        meant = part(wanted(case.kind, whole), case.cuts[-1], run.rank)
    del whole
    found: Found = {"name": case.name, "kind": case.kind, "n_bytes": case.n_bytes}
    if case.kind in ("gather", "turn"):
        found["equal"] = [bool((m.reshape(-1) == meant.reshape(-1)).all()) for m in (mine, theirs)]
        assert all(found["equal"]), found
    else:
        norm = meant.norm()
        found["errors"] = [float((m.float() - meant).norm() / norm) for m in (mine, theirs)]
        assert found["errors"][0] < 2e-3, found
    assert sum(run.sent.values()) == sum(s[run.rank] for s in run.plan.n_bytes.values())
    del mine, theirs, meant
    found["us"] = in_turns({"axe": bound, "torch": torch_s})
    found["ratio"] = found["us"]["torch"] / found["us"]["axe"]
    found["chosen"] = json.loads((folder / f"{case.name}.json").read_text())
    return found


def gpu(folder: Path, out: Path, only: list[str] | None) -> None:
    """Every case that was saved."""
    import torch

    from benchmarks.cuda import machine

    rank, found = int(os.environ["RANK"]), []
    for case in picked(cases(), only):
        if not (folder / f"{case.name}.axe").exists():
            continue
        found.append(measure(case, folder))
        one = found[-1]
        torch.cuda.empty_cache()
        if rank == 0:
            checked = one.get("equal", one.get("errors"))
            print(case.name, checked, {k: round(v, 1) for k, v in one["us"].items()},
                  f"{one['ratio']:.3f}", flush=True)  # fmt: skip
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps({"machine": machine(), "cases": found}, indent=1))


def main() -> None:
    """Prepare, or measure."""
    options = arguments(__doc__, "mesh_cuda.json").parse_args()
    if options.prepare:
        prepare(options.prepare, options.only)
    elif options.gpu:
        need("torch")
        gpu(options.saved, options.out, options.only)


if __name__ == "__main__":
    main()

"""Mesh plans on two GPUs, against torch with NCCL.

    python -m benchmarks.mesh_cuda --prepare FOLDER [--peers]         # anywhere
    torchrun --nproc-per-node 2 -m benchmarks.mesh_cuda --gpu --saved FOLDER    # where the GPUs are
    python -m benchmarks.mesh_cuda --gpu --peers --saved FOLDER       # one process, peer access

Every case is a saved program of one function on a mesh of two. Its results are checked first: moves
bit for bit, products against float32. Then it is timed beside torch's way in turns: calls in a row
behind a sleep of the device, so that no host is waited for; the slower rank's time; the median.
Torch's way is NCCL's collectives and cuBLAS, in one process those of `torch.cuda.nccl`.

Products and blocks of two are written as a user writes them: that their exchanges are hidden is the
search's own choice. Plans are priced for the transport that they are saved for.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import axe_eq as axe
from benchmarks.cuda_saved import Found, arguments, asked, chosen, picked, save

MESH = axe.Mesh({"x": 2})
R, C, W = "P('x',None)", "P(None,'x')", "P(None,None)"
DEEP = "P('x',None,None)"
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


def moves(mib: float) -> list[Case]:
    """Exchanges in which every rank sends so many MiB."""
    n = int(mib * MIB)
    rows = n // (2 * COLUMNS)
    tall, deep = (2 * rows, COLUMNS), (2, 2 * rows, COLUMNS)
    return [
        Case(f"gather{mib:g}", "gather", (tall,), (R, W), n),
        Case(f"swap{mib:g}", "swap", (tall,), (R, R), n),
        Case(f"turn{mib:g}", "turn", ((4 * rows, COLUMNS),), (R, C), n),
        Case(f"sums{mib:g}", "sums", (deep,), ("P('x',None,None)", R), n),
    ]


SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
BETWEEN = (1.5, 3, 6, 12, 24, 48, 96, 192, 384)  # what the figures of links are fitted to
UNSEEN = (1.25, 1.75, 2.5, 3.5, 5, 7, 10, 20, 40, 80, 160, 320, 448)  # what they are not fitted to
# Rows, columns and extent per device of the inner dim, of models.
PRODUCTS = {
    "qwen_8b_down": (8192, 4096, 6144),
    "llama_70b_down": (8192, 8192, 14336),
    "attention_out": (8192, 8192, 4096),
    "mixtral_down": (8192, 4096, 7168),
}
MLP = (8192, 4096, 14336)
SMALL = {f"rows_{m}": (m, 4096, 6144) for m in (128, 256, 512, 1024)}
# Ends of names of plans whose kernels see no other device's memory, or do not wait themselves; that
# do not tell what they store; and whose sums read what has arrived.
MESSAGES, EVENTS, SIGNALS, READS = ".messages", ".events", ".signals", ".reads"
LACKS: dict[str, dict[str, Any]] = {
    MESSAGES: {"wait_s": 0.0}, EVENTS: {"signal_s": 0.0, "tell_s": None}, SIGNALS: {"tell_s": None},
    READS: {},
}  # fmt: skip


LAYOUTS = {
    "rows": R,
    "columns": C,
    "whole": W,
    "swapped": "S[(2,32,48):(-1@gpuid,48@m,1@m)] + 1@gpuid",
    "cycles": "S[(32,2,48):(48@m,1@gpuid,1@m)]",
    "column_major": "S[(2,32,48):(1@gpuid,1@m,32@m)]",
    "padded": "S[(2,32,48):(1@gpuid,56@m,1@m)] + 8@m",
}


def redistributions() -> list[Case]:
    """Small moves between all these layouts, to be checked and not timed."""
    pairs = [(a, b) for a in LAYOUTS for b in LAYOUTS if a != b]
    return [
        Case(f"move_{a}_{b}", "move", ((64, 48),), (LAYOUTS[a], LAYOUTS[b]), 0) for a, b in pairs
    ]


def placed(cut: str, shape: tuple[int, ...]) -> Any:
    """A layout, as jax or as axe_eq writes it."""
    if cut.startswith("P("):
        return axe.read("jax", cut, shape=shape, mesh=MESH)
    return axe.Layout.parse(cut)


def drawn(seed: int = 26) -> dict[str, tuple[int, int, int]]:
    """Eight products more."""
    rng = random.Random(seed)
    return {
        f"drawn_{n}": (8192, 512 * rng.randint(6, 16), 512 * rng.randint(8, 20)) for n in range(8)
    }


def cases() -> list[Case]:
    """All of them."""
    every = [case for mib in sorted((*SIZES, *BETWEEN, *UNSEEN)) for case in moves(mib)]
    found = [case for case in every if case.kind in ("gather", "swap") or "64" in case.name]
    found += redistributions()
    m, k, n = MLP
    found.append(Case("mlp", "mlp", ((m, k), (k, n), (n, k)), (R, C, R, R), m * k))
    for name, (m, n, k) in {**PRODUCTS, **drawn(), **SMALL}.items():
        shapes = ((m, 2 * k), (2 * k, n))
        found.append(Case(f"scatter_{name}", "scatter", shapes, (C, R, R), m * n))
        shapes = ((m, n), (n, 2 * k))
        found.append(Case(f"gathered_{name}", "gathered", shapes, (R, C, C), m * n))
    return found


def function(kind: str) -> Callable[..., Any]:
    """What is compiled."""
    xp, nn = axe.array, axe.nn
    known: dict[str, Callable[..., Any]] = {
        "gather": lambda x: x,
        "turn": lambda x: x,
        "move": lambda x: x,
        "swap": lambda x: xp.reshape(
            xp.flip(xp.reshape(x, (2, x.shape[0] // 2, x.shape[1])), axis=0), x.shape
        ),
        "sums": lambda x: xp.sum(x, axis=0),
        "mlp": lambda x, a, b: nn.silu(x @ a) @ b,
        "scatter": lambda x, w: x @ w,
        "gathered": lambda x, w: x @ w,
    }
    return known[kind]


def prepare(folder: Path, only: list[str] | None, peers: bool) -> None:
    """Compile and save; needs no GPU."""
    from axe_eq.schedule.meeting import chunks_of
    from axe_eq_backends.cuda.target import NCCL_LINK, h200

    target = h200 if peers else h200.replace(links=(NCCL_LINK,))
    folder.mkdir(parents=True, exist_ok=True)
    for case in picked(cases(), only):
        specs = [
            axe.Spec(shape, "f16", layout=placed(cut, shape))
            for shape, cut in zip(case.shapes, case.cuts, strict=False)
        ]
        fn = function(case.kind)
        roots = axe.trace(fn, *specs).outputs
        goals = [
            placed(cut, root.shape)
            for cut, root in zip(case.cuts[len(case.shapes) :], roots, strict=True)
        ]
        exe = axe.compile(fn, *specs, target=target, mesh=MESH, outputs=goals)
        tells = any(chunks_of(exe.plan.buffers[n]) for n in exe.plan.signals)
        differs = {MESSAGES: exe.plan.seen, EVENTS: exe.plan.signals, SIGNALS: tells,
                   READS: exe.plan.under}  # fmt: skip
        for name, lacks in LACKS.items():
            if differs[name]:
                links = tuple(replace(link, **lacks) for link in target.links)
                slow = {"merge_unit_bytes_per_s": 1.0} if name == READS else {}
                machine = target.replace(links=links, figures={**target.figures, **slow})
                other = axe.compile(fn, *specs, target=machine, mesh=MESH, outputs=goals)
                save(other, folder, case.name + name, chosen(other))
        moved = {s.name: s.time_s * 1e6 for s in exe.schedule.graph.steps if s.kind == "move"}
        computed = case.kind in ("mlp", "scatter", "gathered")  # other cuts may be hidden better
        assert case.kind == "move" or computed or exe.plan.link_bytes == 2 * case.n_bytes, case
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

    def swap() -> Any:
        out, other = torch.empty_like(x), 1 - dist.get_rank()
        ops = [dist.P2POp(dist.irecv, out, other), dist.P2POp(dist.isend, x, other)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return out

    ways: dict[str, Callable[[], Any]] = {
        "gather": gather,
        "swap": swap,
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
    if kind == "swap":
        return torch.cat(x.chunk(2)[::-1])
    if kind == "sums":
        return x.float().sum(0)
    if kind == "mlp":
        return (
            torch.nn.functional.silu(x.float() @ whole[1].float()).half().float() @ whole[2].float()
        )
    return x.float() @ whole[1].float()


def part(whole: Any, cut: str, rank: int) -> Any:
    """A copy of a rank's part of a whole tensor."""
    import torch

    entries = cut.removeprefix("P(").removesuffix(")").split(",")
    dim = next((d for d, e in enumerate(entries) if "x" in e), None)
    if dim is None:
        return whole.clone()
    n = whole.shape[dim] // 2
    return whole.narrow(dim, rank * n, n).clone(memory_format=torch.contiguous_format)


# -- timing ----------------------------------------------------------------------------------------


Timed = Callable[[Callable[[], Any], int], float]  # microseconds of a call, of so many


def in_turns(
    ways: Mapping[str, Callable[[], Any]], timed: Timed, rounds: int = 5
) -> dict[str, float]:
    """Microseconds of a call of every way: the median."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    counts = {}
    for name, way in ways.items():
        timed(way, 2)
        counts[name] = max(2, min(40, int(4e3 / timed(way, 2))))
    for number in range(rounds):
        for name in list(ways) if number % 2 else list(ways)[::-1]:
            times[name].append(timed(ways[name], counts[name]))
    return {name: statistics.median(times[name]) for name in ways}


def _of_processes() -> Timed:
    """The slower of two processes."""
    import torch
    import torch.distributed as dist

    def timed(way: Callable[[], Any], count: int) -> float:
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000 + 300_000 * count)  # the host runs ahead
        start.record()
        for _ in range(count):
            way()
        end.record()
        torch.cuda.synchronize()
        found = torch.tensor([start.elapsed_time(end) / count * 1e3], device="cuda")
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return float(found)

    return timed


def _of_devices(n: int) -> Timed:
    """The slowest of the devices of this process."""
    import torch

    def timed(way: Callable[[], Any], count: int) -> float:
        events, slept = [], []
        for device in range(n):
            torch.cuda.synchronize(device)
        for device in range(n):
            with torch.cuda.device(device):
                torch.cuda._sleep(2_000_000 + 1_200_000 * count)  # the host runs ahead
                slept.append(torch.cuda.current_stream().record_event())
        for device in range(n):
            with torch.cuda.device(device):
                for one in slept:  # in cycles: a clock 1 % slower sleeps 0.25 ms more
                    torch.cuda.current_stream().wait_event(one)
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                events.append((start, end))
        for _ in range(count):
            way()
        for device, (_, end) in enumerate(events):
            with torch.cuda.device(device):
                end.record()
        for device in range(n):
            torch.cuda.synchronize(device)
        return max(float(start.elapsed_time(end)) for start, end in events) / count * 1e3

    return timed


def one_process(kind: str, given: list[tuple[Any, ...]]) -> Callable[[], Any]:
    """The same in one process on two GPUs, with `torch.cuda.nccl`."""
    import torch
    from torch.cuda import nccl

    xs = [mine[0] for mine in given]

    def made(shape: tuple[int, ...]) -> list[Any]:
        return [torch.empty(shape, dtype=x.dtype, device=x.device) for x in xs]

    def gather() -> list[Any]:
        out = made((2 * xs[0].shape[0], xs[0].shape[1]))
        nccl.all_gather(xs, out)
        return out

    def scattered(parts: list[Any]) -> list[Any]:
        out = made((parts[0].shape[0] // 2, parts[0].shape[1]))
        nccl.reduce_scatter(parts, out)
        return out

    def product(left: list[Any], number: int) -> list[Any]:
        return [x @ mine[number] for x, mine in zip(left, given, strict=True)]

    def hidden() -> list[Any]:
        return [torch.nn.functional.silu(h, inplace=True) for h in product(gather(), 1)]

    ways: dict[str, Callable[[], Any]] = {
        "gather": gather,
        "sums": lambda: scattered([x[0] for x in xs]),
        "scatter": lambda: scattered(product(xs, 1)),
        "gathered": lambda: product(gather(), 1),
        "mlp": lambda: scattered(product(hidden(), 2)),
    }
    return ways[kind]


def arrays(case: Case) -> list[Any]:
    """Whole arguments, alike on every rank."""
    import torch

    torch.manual_seed(0)
    whole = [torch.randn(s, device="cuda").half() for s in case.shapes]
    if case.kind in ("mlp", "scatter", "gathered"):
        whole[1:] = [w * w.shape[0] ** -0.5 for w in whole[1:]]
    return whole


def check(case: Case, meant: Any, result: Any, rank: int) -> bool | float:
    """Whether a rank's part of a move is equal, else the relative error of a product.

    Args:
        case: what was run.
        meant: the whole result.
        result: the rank's part.
        rank: whose.
    """
    import torch

    cut = case.cuts[len(case.shapes)]
    wanted = part(meant, cut, rank).to(result.device)
    if case.kind in ("gather", "turn", "swap"):
        assert torch.equal(result.reshape(-1), wanted.reshape(-1)), case
        return True
    error = float((result.float().reshape(wanted.shape) - wanted).norm() / wanted.norm())
    assert error < 2e-3, (case, error)
    return error


def measure(case: Case, folder: Path) -> Found:
    """Check, then time."""
    from axe_eq.run.store import load

    run = load(folder / f"{case.name}.axe").on("nccl")
    whole = arrays(case)
    given = [part(w, cut, run.rank) for w, cut in zip(whole, case.cuts, strict=False)]
    bound, torch_s = run.bind(*given), torch_way(case.kind, given)
    meant = wanted(case.kind, whole)
    checks = [check(case, meant, bound(), run.rank) for _ in range(2)]
    if case.kind != "sums":  # of its own data in half precision nobody's sums are exact
        checks.append(check(case, meant, torch_s(), run.rank))
    del whole, meant
    assert all(n == run.plan.n_bytes[name][run.rank] for name, n in run.sent.items())
    times = in_turns({"axe": bound, "torch": torch_s}, _of_processes())
    return {**found_of(case, folder, checks, times), "host_us": hosts(bound, [run.rank])}


def check_moves(folder: Path, transport: str, only: list[str] | None) -> None:
    """Every redistribution that was saved: each part of the goal bit for bit."""
    import numpy as np

    from axe_eq.mesh.rank import part_of
    from axe_eq.run.store import load

    x, count = np.arange(64 * 48, dtype=np.float16).reshape(64, 48), 0
    for case in picked(redistributions(), only):
        if not (folder / f"{case.name}.axe").exists():
            continue
        run, count = load(folder / f"{case.name}.axe").on(transport), count + 1
        (name,) = run.plan.outputs
        mine = (
            {run.rank: run(*run.shards(x))}
            if transport == "nccl"
            else dict(enumerate(run(run.shards(x))))
        )
        for rank, found in mine.items():
            meant = part_of(run.plan, name, x, rank).reshape(tuple(found.shape))
            assert np.array_equal(found.cpu().numpy(), meant), (case, rank)
    print(f"{count} redistributions over {transport} are bit-exact", flush=True)


def predicted(case: Case, folder: Path) -> float:
    """Microseconds, as they were estimated."""
    return float(json.loads((folder / f"{case.name}.json").read_text())["estimate_us"])


def found_of(case: Case, folder: Path, checks: list[Any], times: dict[str, float]) -> Found:
    """The figures of a case."""
    said = json.loads((folder / f"{case.name}.json").read_text())
    return {
        "name": case.name, "kind": case.kind, "n_bytes": case.n_bytes, "checks": checks,
        "us": times, "gb_per_s": case.n_bytes / times["axe"] / 1e3, "chosen": said,
        "ratio": times["torch"] / times["axe"] if "torch" in times else None,
    }  # fmt: skip


def measure_peers(case: Case, folder: Path) -> Found:
    """Check all ranks of this process, then time."""
    import torch

    from axe_eq.run.store import load

    run = load(folder / f"{case.name}.axe").on("peers")
    whole = arrays(case)
    given = [
        tuple(part(w, cut, r).to(f"cuda:{r}") for w, cut in zip(whole, case.cuts, strict=False))
        for r in range(2)
    ]
    meant = wanted(case.kind, whole)
    bound = run.bind(given)
    ways, checks = {"axe": bound}, [check(case, meant, y, r) for r, y in enumerate(bound())]
    for name in LACKS:
        if (path := folder / f"{case.name}{name}.axe").exists():
            ways[name[1:]] = load(path).on("peers").bind(given)
            checks += [check(case, meant, y, r) for r, y in enumerate(ways[name[1:]]())]
    if case.kind not in ("turn", "swap"):
        ways["torch"] = one_process(case.kind, given)
        checks += [check(case, meant, y, r) for r, y in enumerate(ways["torch"]())]
    for n in range(2):
        torch.cuda.synchronize(n)
    assert all(n == run.plan.n_bytes[name][r] for r in range(2) for name, n in run.sent[r].items())
    for _ in range(2):  # of the other sign, where the function is linear, and of the first again
        for n, mine in enumerate(given):
            mine[0].neg_()
            torch.cuda.synchronize(n)
        meant = -meant
        if case.kind != "mlp":
            checks += [check(case, meant, y, r) for r, y in enumerate(bound())]
            for n in range(2):
                torch.cuda.synchronize(n)
    del whole, meant
    times = in_turns(ways, _of_devices(2))
    return {**found_of(case, folder, checks, times), "host_us": hosts(bound, range(2))}


def hosts(way: Callable[[], Any], devices: Sequence[int]) -> float:
    """Microseconds of the host for a call, when devices are busy."""
    import torch

    for device in devices:
        torch.cuda.synchronize(device)
        with torch.cuda.device(device):
            torch.cuda._sleep(50_000_000)
    begin = time.perf_counter()
    for _ in range(5):
        way()
    found = (time.perf_counter() - begin) / 5 * 1e6
    for device in devices:
        torch.cuda.synchronize(device)
    return found


def gpu(folder: Path, out: Path, only: list[str] | None, peers: bool) -> None:
    """Every case that was saved."""
    import torch

    from benchmarks.cuda import machine

    rank, found = int(os.environ.get("RANK", "0")), list[Found]()
    check_moves(folder, "peers" if peers else "nccl", only)
    for case in picked(cases(), only):
        if case.kind == "move" or not (folder / f"{case.name}.axe").exists():
            continue
        found.append(measure_peers(case, folder) if peers else measure(case, folder))
        one = found[-1]
        one["predicted_us"] = predicted(case, folder)
        torch.cuda.empty_cache()
        if rank == 0:
            times = {k: round(v, 1) for k, v in one["us"].items()}
            ratio = f"{one['ratio']:.3f}" if one["ratio"] else "-"
            told, rate = one["predicted_us"], f"{one['gb_per_s']:.0f} GB/s"
            said = f"predicted {told:.1f}: {told / one['us']['axe']:.2f} of it"
            said += f", host {one['host_us']:.0f}"
            print(case.name, one["checks"][0], times, ratio, rate, said, flush=True)
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps({"machine": machine(), "cases": found}, indent=1))


def main() -> None:
    """Prepare, or measure."""
    parser = arguments(__doc__, "mesh_cuda.json")
    parser.add_argument("--peers", action="store_true", help="one process with peer access")
    options = asked(parser)
    if options.prepare:
        prepare(options.prepare, options.only, options.peers)
    elif options.gpu:
        gpu(options.saved, options.out, options.only, options.peers)


if __name__ == "__main__":
    main()

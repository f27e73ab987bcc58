"""Products of few rows, as a decoder has them, against torch on this machine's GPU.

    python -m benchmarks.cuda_small [--out FOLDER] [--prepare FOLDER | --saved FOLDER]

Whole programs as `axe.compile` chose and lowered them, checked against torch first; --prepare saves
them anywhere, --saved takes those. What is timed
are CUDA graphs of 20 calls over buffers that take turns and are larger than L2 together, so that
weights come from main memory; shuffled order, median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cuda_saved import chosen, save, shown
from benchmarks.terminal import need

Shape = tuple[int, int, int, str]  # rows, depth, columns, element type
CALLS, ROUNDS, BYTES = 20, 15, 150e6
WEIGHTS = ((4096, 4096), (14336, 4096), (4096, 14336), (2048, 2048))
TOLERANCES = {"f16": 5e-3, "f32": 1e-4, "f64": 1e-12}
ROWS = (1, 8, 16, 32, 64, 128, 256)
Calls = dict[str, list[Callable[[], Any]]]


def timed(work: Calls) -> dict[str, float]:
    """Microseconds of a call, by name; the calls of a name take turns."""
    import torch

    graphs: dict[str, Any] = {}
    for name, calls in work.items():
        for call in calls:
            call()
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for n in range(CALLS):
                calls[n % len(calls)]()
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name in random.sample(list(graphs), len(graphs)):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graphs[name].replay()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end) / CALLS * 1e3)
    return {name: statistics.median(found[3:]) for name, found in times.items()}


def _saved(shape: Shape, folder: Path) -> dict[str, Any]:
    """Compile a product and keep it there, if it is not; what was chosen."""
    name = "x".join(map(str, shape))
    if not (folder / f"{name}.json").exists():
        import axe_eq as axe

        rows, depth, columns, dtype = shape
        specs = axe.Spec((rows, depth), dtype), axe.Spec((depth, columns), dtype)
        exe = axe.compile(lambda a, b: a @ b, *specs, target="h200")
        save(exe, folder, name, chosen(exe))
    found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return {"path": folder / f"{name}.axe", **found}


def case(shape: Shape, folder: Path, peers: Callable[[Any], Calls]) -> dict[str, Any]:
    """One product: what was chosen, its error and the times, of peers beside torch.mm too."""
    import torch

    from axe_eq.run.store import load

    rows, depth, columns, dtype = shape
    about = _saved(shape, folder)
    exe = load(about["path"])
    several = max(2, round(BYTES / (2 * depth * columns)))

    def normal(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=getattr(torch, f"float{dtype[1:]}"))

    sets = [(normal(rows, depth), normal(depth, columns)) for _ in range(several)]
    want = sets[0][0].double() @ sets[0][1].double()
    error = float((exe(*sets[0]).double() - want).abs().max() / want.abs().max())
    out = normal(rows, columns)
    work: Calls = {
        "axe": [exe.bind(*given) for given in sets],
        "torch": [partial(torch.mm, a, b, out=out) for a, b in sets],
        **peers(sets),
    }
    return {
        "dtype": dtype, "rows": rows, "depth": depth, "columns": columns,
        "schedules": [k["schedule"] for k in about["kernels"]],
        "error": error, "estimate_us": about["estimate_us"], "us": timed(work),
    }  # fmt: skip


def measure(
    name: str, about: str, shapes: Iterable[Shape], peers: Callable[[Any], Calls] = lambda sets: {}
) -> None:
    """Run products of (rows, depth, columns, dtype) and write them to a file of this name.

    Args:
        name: of the file.
        about: what --help says.
        shapes: of the products.
        peers: calls for every pair of operands, by the name of who is timed beside torch.mm.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    default = Path(os.environ.get("OUT", "benchmarks/results"))
    parser.add_argument("--out", type=Path, default=default)
    for what, said in (("prepare", "compile here and save there"), ("saved", "where that is")):
        parser.add_argument(f"--{what}", type=Path, help=said)
    options = parser.parse_args()
    if options.prepare:
        options.prepare.mkdir(parents=True, exist_ok=True)
        for shape in shapes:
            print(shape, shown(_saved(shape, options.prepare)), flush=True)
        return
    need("torch")
    import torch

    found, folder = [], options.saved or Path(tempfile.mkdtemp())
    for rows, depth, columns, dtype in shapes:
        found.append(case((rows, depth, columns, dtype), folder, peers))
        assert found[-1]["error"] < TOLERANCES[dtype], found[-1]
        times = found[-1]["us"]
        print(
            f"{dtype} {rows:4} x {depth:5} x {columns:5}:"
            f" {min(us for n, us in times.items() if n != 'axe') / times['axe']:.3f} of torch;"
            f" {' '.join(f'{n} {us:.1f}' for n, us in times.items())},"
            f" estimated {found[-1]['estimate_us']:.1f}, {' '.join(found[-1]['schedules'])}",
            flush=True,
        )
    machine = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
        "python": platform.python_version(),
    }  # fmt: skip
    text = json.dumps({"machine": machine, "cases": found}, indent=1)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    shapes = [(rows, depth, columns, "f16") for depth, columns in WEIGHTS for rows in ROWS]
    measure("cuda_small.json", __doc__, shapes)

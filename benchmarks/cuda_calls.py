"""What a call costs the host, and what loading a saved program takes, on this machine's GPU.

    python -m benchmarks.cuda_calls [FOLDER] [--save] [--out FOLDER]

``--save`` compiles the programs into FOLDER, for an H200 and without a GPU; without it they are
loaded from there and called. Without FOLDER they are compiled here first.
Values first. Times are of calls that follow one another without
waiting, in batches short enough that the device keeps up, in a shuffled order per round; torch's
own calls in the same rounds say what this machine's host is like. Results that are kept make every
call come with memory that the calls before did not have; "inputs new" gives it another first input,
too. "one by one" launches the kernels on fixed memory, without a graph.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.terminal import need

ROWS, HIDDEN, INNER = 64, 256, 512
BATCH, ROUNDS = 50, 60
Work = Callable[[], Any]


def programs() -> dict[str, Any]:
    """Name -> (function, specs): one kernel, and three."""
    import axe_eq as axe
    from axe_eq import nn

    def of(*shape: int) -> axe.Spec:
        return axe.Spec(shape, "f16")

    def mlp(x: Any, g: Any, wg: Any, wu: Any, wd: Any) -> Any:
        h = nn.rmsnorm(x) * g
        return x + (nn.silu(h @ wg) * (h @ wu)) @ wd

    weights = of(HIDDEN, INNER), of(HIDDEN, INNER), of(INNER, HIDDEN)
    return {
        "softmax": (lambda x: nn.softmax(x, axis=-1), (of(ROWS, HIDDEN),)),
        "mlp": (mlp, (of(ROWS, HIDDEN), of(HIDDEN), *weights)),
    }


def save(folder: Path) -> None:
    """Compile and save."""
    folder.mkdir(parents=True, exist_ok=True)
    import axe_eq as axe

    for name, (fn, specs) in programs().items():
        axe.compile(fn, *specs, target="h200").save(folder / f"{name}.axe")


def run(folder: Path) -> dict[str, Any]:
    """Check values, then measure."""
    import torch

    from axe_eq.run.store import load
    from benchmarks.cuda import machine, normal, relative_error
    from benchmarks.cuda_mlp import exact

    torch.manual_seed(0)
    random.seed(0)
    x, g = normal(ROWS, HIDDEN), normal(HIDDEN)
    weights = [
        normal(*s).mul_(s[0] ** -0.5) for s in ((HIDDEN, INNER), (HIDDEN, INNER), (INNER, HIDDEN))
    ]
    given = {"softmax": (x,), "mlp": (x, g, *weights)}
    wanted = {"softmax": torch.softmax(x.float(), -1), "mlp": exact(*given["mlp"])}
    loading, errors, runs = {}, {}, {}
    for name, arrays in given.items():
        began = time.perf_counter()
        exe = load(folder / f"{name}.axe")
        read = time.perf_counter()
        first = exe(*arrays)
        torch.cuda.synchronize()
        loading[name] = {"read_s": read - began, "first_call_s": time.perf_counter() - read}
        errors[name] = relative_error(first, wanted[name])
        runs[f"{name}, prepared"] = exe.bind(*arrays)
        runs[f"{name}, plain"] = _plain(exe, arrays)
        runs[f"{name}, plain, results kept"] = _kept(exe, [arrays])
        firsts = [(arrays[0].clone(), *arrays[1:]) for _ in range(2 * BATCH)]
        runs[f"{name}, plain, results kept, inputs new"] = _kept(exe, firsts)
        runs[f"{name}, kernels one by one"] = _one_by_one(exe, arrays)
    out, product = torch.empty_like(x), torch.empty(ROWS, INNER, device="cuda").half()
    runs["torch.softmax"] = lambda: torch.softmax(x, -1)
    runs["torch.add(out=)"] = lambda: torch.add(x, x, out=out)
    runs["torch.mm(out=)"] = lambda: torch.mm(x, weights[0], out=product)
    return {
        "machine": machine(), "errors": errors, "loading": loading, "host_us": measure(runs),
    }  # fmt: skip


def _plain(exe: Any, arrays: tuple[Any, ...]) -> Work:
    return lambda: exe(*arrays)


def _kept(exe: Any, given: Sequence[tuple[Any, ...]]) -> Work:
    """Results that live on: every call writes to memory that the one before did not."""
    kept: list[Any] = []
    following = cycle(given).__next__

    def work() -> None:
        if len(kept) == 2 * BATCH:
            kept.clear()
        kept.append(exe(*following()))

    return work


def _one_by_one(exe: Any, arrays: tuple[Any, ...]) -> Work:
    launches = [launch for _, launch in exe.caller.ready.parts(arrays)]

    def work() -> None:
        for launch in launches:
            launch()

    return work


def measure(runs: dict[str, Work]) -> dict[str, dict[str, float]]:
    """Microseconds of host time per call: median, and spread over rounds."""
    import torch

    found: dict[str, list[float]] = {name: [] for name in runs}
    for work in runs.values():
        for _ in range(BATCH):
            work()
    for _ in range(ROUNDS):
        for name in random.sample(list(runs), len(runs)):
            work = runs[name]
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(BATCH):
                work()
            found[name].append((time.perf_counter() - began) / BATCH * 1e6)
    return {
        name: {"us": statistics.median(us), "min": min(us), "max": max(us)}
        for name, us in found.items()
    }


def main() -> None:
    """Save, or run and print; write cuda_calls.json where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="of the programs that --save wrote")
    parser.add_argument("--save", action="store_true", help="search and fill it; needs no GPU")
    default = os.environ.get("OUT")
    parser.add_argument("--out", type=Path, default=default, help="a folder to write figures to")
    options = parser.parse_args()
    if options.save:
        if options.folder is None:
            parser.error("--save needs the folder to fill")
        save(options.folder)
        return
    need("torch")
    with tempfile.TemporaryDirectory() as made:
        if options.folder is None:
            save(Path(made))
        found = run(options.folder or Path(made))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "cuda_calls.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({k: v for k, v in found.items() if k != "machine"}, indent=1))


if __name__ == "__main__":
    main()

"""The MLP block of the demo on this machine's GPU, compiled ahead of time, against torch.compile.

    python -m benchmarks.cuda_mlp [SAVED] [--out FOLDER]

SAVED is what `exe.save` wrote for target "h200" (`python -m benchmarks.cuda_mlp SAVED --save` where
the search runs, if that is another machine); without it the search runs here.
Values first, then burst protocol in the same process, order shuffled. All arguments are marked as
static for torch.compile: else its CUDA graphs copy them at every call.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.terminal import need


def save(path: Path, tokens: int) -> None:
    """Search for an H200 and save; needs no GPU."""
    import axe_eq as axe
    from examples import qwen

    axe.compile(qwen.mlp_block, *qwen.mlp_specs(tokens), target="h200").save(path)


def run(path: Path, rounds: int) -> dict[str, Any]:
    """Compare values and times."""
    import torch

    from axe_eq.run.store import load
    from benchmarks.cuda import burst, machine, normal, relative_error, summary

    def block(x: Any, g: Any, wg: Any, wu: Any, wd: Any) -> Any:
        h = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)).half() * g
        return x + (torch.nn.functional.silu(h @ wg) * (h @ wu)) @ wd

    torch.manual_seed(0)
    random.seed(0)
    exe = load(path)
    shapes = [t.shape for t in exe.call.types]
    x, g = normal(*shapes[0]), normal(*shapes[1])
    wg, wu, wd = (normal(*s).mul_(s[0] ** -0.5) for s in shapes[2:])
    given = (x, g, wg, wu, wd)
    start = time.perf_counter()
    first = exe(*given)
    torch.cuda.synchronize()
    first_s = time.perf_counter() - start
    wanted = exact(*given)
    for tensor in given:
        torch._dynamo.mark_static_address(tensor)
    compiled = torch.compile(block, mode="max-autotune", dynamic=False)
    half = compiled(*given)
    errors = {
        "axe": relative_error(first, wanted), "torch.compile": relative_error(half, wanted),
    }  # fmt: skip
    bound = exe.bind(*given)
    bound()
    start = time.perf_counter()
    for _ in range(50):
        bound()
    call_us = (time.perf_counter() - start) / 50 * 1e6
    torch.cuda.synchronize()
    runs = {
        "axe": bound,
        "torch.compile": lambda: compiled(*given),
        "torch eager": lambda: block(*given),
    }
    tokens, hidden, inner = shapes[0][0], shapes[0][1], shapes[2][1]
    times = summary(burst(runs, rounds), 6.0 * tokens * hidden * inner)
    steps = parts(exe, given, rounds)
    return {
        "machine": machine(), "errors": errors, "times": times, "steps": steps,
        "first_call_s": first_s, "prepared_call_us": call_us,
        "ratio": times["torch.compile"]["us"] / times["axe"]["us"],
    }  # fmt: skip


def exact(x: Any, g: Any, wg: Any, wu: Any, wd: Any) -> Any:
    """The block in float32 (no tf32)."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    x, g, wg, wu, wd = (t.float() for t in (x, g, wg, wu, wd))
    h = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * g
    return x + (torch.nn.functional.silu(h @ wg) * (h @ wu)) @ wd


def parts(exe: Any, given: tuple[Any, ...], rounds: int) -> dict[str, Any]:
    """Microseconds of every kernel alone."""
    from benchmarks.cuda import burst, summary

    return summary(burst(dict(exe.caller.ready.parts(given)), rounds), 0.0)


def main() -> None:
    """Save, or run and print; write cuda_SAVED.json where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("saved", type=Path, nargs="?", help="a file that --save wrote")
    parser.add_argument("--save", action="store_true", help="search and write SAVED; needs no GPU")
    parser.add_argument("--tokens", type=int, default=8192, help="rows; of SAVED, with --save")
    parser.add_argument("--rounds", type=int, default=9)
    default = os.environ.get("OUT")
    parser.add_argument("--out", type=Path, default=default, help="a folder to write figures to")
    options = parser.parse_args()
    if options.save:
        if options.saved is None:
            parser.error("--save needs the file to write: SAVED")
        save(options.saved, options.tokens)
        return
    need("torch")
    with tempfile.TemporaryDirectory() as folder:
        saved = options.saved or Path(folder) / f"h200_mlp{options.tokens}.axe"
        if options.saved is None:
            save(saved, options.tokens)
        found = run(saved, options.rounds)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"cuda_{saved.stem}.json").write_text(json.dumps(found, indent=1))
    print(json.dumps({k: v for k, v in found.items() if k != "machine"}, indent=1))


if __name__ == "__main__":
    main()

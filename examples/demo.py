"""The tour: equal layouts, a block made fast, attention in one kernel, proofs, a GPU.

Run by `make demo`, or `python -m examples.demo`. Each part prints what it shows and checks it: a
part that does not hold ends the demo with an error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import axe_eq as axe
from examples import qwen

XLA = "xla:f32[1024,512]{1,0:T(8,128)}"
CUTE = "cute:((128,4),(8,128)):((1,1024),(128,4096))"
AXE = "S[(128,8,4,128):(4096@m,128@m,1024@m,1@m)]"
NEAR_MISS = "S[(128,8,4,128):(4096@m,128@m,1@m,1024@m)]"
ROWS = 64
PAGE = Path("demo_schedule.html")

console = Console(width=110)


def check(holds: object, what: str) -> None:
    """Print what was checked; end the demo where it does not hold."""
    console.print(("[green]ok[/green]   " if holds else "[red]FAILED[/red] ") + what)
    if not holds:
        sys.exit(1)


def begin(what: str) -> None:
    """Say what begins now, where it takes some seconds: also in a log, which shows no spinner."""
    console.print(f"      [dim]... {what}[/dim]")


def proved(what: str, verdict: axe.Proved | axe.Refuted | axe.Unknown) -> None:
    """Check a proof, and that its certificate re-checks without any search."""
    check(isinstance(verdict, axe.Proved), f"{what}: {verdict}")
    if isinstance(verdict, axe.Proved):
        check(axe.check_certificate(verdict.certificate), "its certificate re-checks")


def layouts() -> str:
    """(a) One layout in three notations, and a near miss."""
    for text in (XLA, CUTE):
        proved(text, axe.equivalent(text, AXE))
    miss = axe.equivalent(XLA, NEAR_MISS)
    check(isinstance(miss, axe.Refuted), f"a near miss, {NEAR_MISS}: {miss}")
    return "three notations, one layout: proved; a near miss: refuted with the element"


def block() -> str:
    """(b) The Qwen3-8B MLP block for an H200, run on the cpu at 64 rows."""
    begin("searching for the block's schedule on an H200")
    exe = axe.compile(qwen.mlp_block, *qwen.mlp_specs(), target="h200")
    console.print(exe.explain(), markup=False, highlight=False)
    exe.schedule.html(PAGE)
    check(PAGE.is_file(), f"the same as a page: open {PAGE} in a browser")
    begin(f"running the chosen schedule at {ROWS} rows on the cpu, and the meaning in numpy")
    small = exe.schedule.bind(tokens=ROWS)
    arrays = random_arrays(qwen.mlp_specs(ROWS))
    got = small.run(*arrays)
    want = axe.run(qwen.mlp_block, *arrays)
    error = relative_error(got, want)
    check(error < 5e-3, f"the chosen schedule at {ROWS} rows on cpu: relative error {error:.1e}")
    estimate = f"estimated {exe.cost['time_s'] * 1e3:.2f} ms"
    return f"MLP block: {len(exe.kernels)} kernels, {estimate}; {PAGE} shows them"


def streaming() -> str:
    """(c) Attention: one streaming kernel under real laws, pieces under exact ones."""
    specs = qwen.attention_specs()
    begin("searching for attention's schedule, with real laws and with exact ones")
    fused = axe.compile(qwen.attention, *specs, target="h200")
    exact = axe.compile(qwen.attention, *specs, target="h200", numerics="exact")
    streams = [k for k in fused.kernels if any("softmax" in n.text for n in k.nodes)]
    check(len(streams) == 1, f"real laws: one kernel streams attention ({streams[0].name})")
    check(not any("; softmax" in n.text for k in exact.kernels for n in k.nodes),
          f"exact laws: {len(exact.kernels)} kernels, none streams a softmax")  # fmt: skip
    check(len(exact.kernels) > len(fused.kernels), "exact laws need more kernels")
    arrays = random_arrays(qwen.attention_specs(16, 64, 4, 16))
    tiny = axe.compile(qwen.attention, *qwen.attention_specs(16, 64, 4, 16), target="cpu")
    error = relative_error(tiny(*arrays), axe.run(qwen.attention, *arrays))
    check(error < 5e-3, f"a small one compiled and run on cpu: relative error {error:.1e}")
    return (
        f"attention block: {len(fused.kernels)} kernels with real laws, {len(exact.kernels)} exact"
    )


def proofs() -> str:
    """(d) Two forms of the block are the same; one without its residual is not."""
    specs = qwen.mlp_specs()
    begin("proving that two forms of the block are the same (the longest step)")
    same = axe.equivalent(qwen.mlp_block, qwen.mlp_block_by_hand, *specs)
    proved("two hand-written forms of the block", same)
    begin("comparing with the form whose residual was forgotten")
    other = axe.equivalent(qwen.mlp_block, qwen.mlp_block_forgotten, *specs)
    check(isinstance(other, axe.Refuted), f"without the residual: {other}")
    return "block proved equal to another form; forgotten residual refuted"


def random_arrays(specs: list[axe.Spec]) -> list[np.ndarray]:
    """Normal arrays, weights scaled so that every stage keeps its size."""
    rng = np.random.default_rng(0)
    return [
        (
            rng.standard_normal(s.shape) / np.sqrt(s.shape[0] if len(s.shape) > 1 and n else 1.0)
        ).astype(np.float16)
        for n, s in enumerate(specs)
    ]


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """Largest difference over the largest value."""
    a, b = np.asarray(got, np.float32), np.asarray(want, np.float32)
    return float(np.abs(a - b).max() / np.abs(b).max())


def on_the_gpu() -> str:
    """(e) The block at 8192 tokens on this machine's GPU, where it has one that is known."""
    specs = qwen.mlp_specs()
    exe = axe.compile(qwen.mlp_block, *specs)  # for the first known GPU, else for the cpu
    if exe.target.name == "cpu":
        return "skipped: no GPU of a known target is here"
    from axe_eq_backends.cuda.arrays import to_device, to_host

    arrays = random_arrays(specs)
    run = exe.bind(*map(to_device, arrays))
    rows = np.random.default_rng(1).choice(qwen.TOKENS, ROWS, replace=False)
    error = relative_error(
        to_host(run())[rows], axe.run(qwen.mlp_block, arrays[0][rows], *arrays[1:])
    )
    check(error < 5e-3, f"{ROWS} of {qwen.TOKENS} rows against numpy: relative error {error:.1e}")
    seconds = []
    for _ in range(20):
        began = time.perf_counter()
        run()  # waits for its results
        seconds.append(time.perf_counter() - began)
    took = float(np.median(seconds))
    rate = 6 * qwen.TOKENS * qwen.HIDDEN * qwen.INTERMEDIATE / took
    return f"MLP block on {exe.target.name}: {took * 1e3:.2f} ms, {rate / 1e12:.0f} TFLOP/s"


PARTS: dict[str, Callable[[], str]] = {
    "a. layouts": layouts,
    "b. a block made fast": block,
    "c. attention": streaming,
    "d. programs proved": proofs,
    "e. on the GPU": on_the_gpu,
}


def main() -> None:
    """Run all parts and end with a summary."""
    summary = Table(title="what you saw", show_lines=False)
    for column in ("part", "result", "seconds"):
        summary.add_column(column)
    for title, part in PARTS.items():
        console.rule(title)
        began = time.perf_counter()
        result = part()
        summary.add_row(title, result, f"{time.perf_counter() - began:.1f}")
    console.print(summary)


if __name__ == "__main__":
    main()

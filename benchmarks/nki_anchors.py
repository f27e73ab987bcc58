"""Published times of kernels for Trainium beside the model's: `python -m benchmarks.nki_anchors`.

    python -m benchmarks.nki_anchors CHECKOUTS --write benchmarks/results/nki_anchors.md

CHECKOUTS is that of `nki_foreign`; without it the kernels of others are left out. Two anchors fit
the one figure that no page gives, the run of a DMA at which half of its rate is reached; the others
are held out. Nothing is measured here: times are the model's, and those published are others'.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq import nn
from axe_eq.target import Target
from axe_eq_backends.nki.lower import planned
from axe_eq_backends.nki.schedules import gemm
from axe_eq_backends.nki.sim import Report, Timeline, simulate
from axe_eq_backends.nki.sim.loading import findable, load_file, prelude
from axe_eq_backends.nki.sim.machine import machine_of
from axe_eq_backends.nki.sim.run import find
from axe_eq_backends.nki.target import trn1, trn2
from axe_eq_backends.nki.unroll import timeline
from benchmarks.nki_foreign import SOURCES
from benchmarks.nki_foreign_cases import BF16, F32, LIBRARY, SDK

_EXAMPLES = "nki/examples/matrix_multiplication/matrix_multiplication_nki_kernels.py"
_MAMBA = "nki/examples/fused_mamba/mamba_nki_kernels.py"
_ATTENTION = "nkilib_src.nkilib.core.attention.attention_cte"
RUNS = (0, 16, 32, 64, 128, 256, 512)  # bytes, among which the fit chooses


@dataclass(frozen=True)
class Anchor:
    """A published figure of a kernel.

    Attributes:
        name: what was timed.
        repository, file, kernel: as in `nki_foreign`.
        shapes: of the arguments; other arguments follow as they are.
        dtype: of the arrays.
        machine: that it ran on.
        published: microseconds, or the share of the time that an engine is busy.
        busy: the engine; "" where the time is published.
        source: the page.
        role: "fit" or "held out".
        times: the kernel's work is that of the shapes times this: its tiles are independent, and
            the simulator computes every product.
    """

    name: str
    repository: str
    file: str
    kernel: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: Any
    machine: Target
    published: float
    busy: str
    source: str
    role: str
    times: int = 1


_GEMM = "autocomp, examples/trn-tutorial/1_gemm_trace.py"
_GUIDE = "aws-neuron-sdk, nki/guides/tutorials/kernel-optimization.rst"
_FUSED = "aws-neuron-sdk, nki/guides/tutorials/fused_mamba.rst"
_NARROW, _WIDE = (
    ((1, c, 512), (1, c, 512), (c, 16), (1, 16, 512), (1, 16, 512)) for c in (256, 4096)
)
ANCHORS = (
    Anchor("GEMM 4096x8192x8192 bf16, tiled", SDK, _EXAMPLES, "nki_matmul_tiled_",
           ((8192, 512), (8192, 1024)), BF16, trn1, 20990.0, "", _GEMM, "fit", 64),
    Anchor("GEMM 4096x8192x8192 f32, tiled: TensorE busy", SDK, _EXAMPLES, "nki_matmul_tiled_",
           ((8192, 512), (8192, 1024)), F32, trn2, 0.8728, "tensor", _GUIDE, "fit"),
    Anchor("GEMM f32, free dims blocked: TensorE busy", SDK, _EXAMPLES,
           "nki_matmul_block_free_dimension_", ((4096, 1024), (4096, 1024)), F32, trn2, 0.9952,
           "tensor", _GUIDE, "held out"),
    Anchor("GEMM f32, fully blocked: TensorE busy", SDK, _EXAMPLES,
           "nki_matmul_fully_optimized_", ((2048, 2048), (2048, 1024)), F32, trn2, 0.9950,
           "tensor", _GUIDE, "held out"),
    Anchor("GEMM f32, fully blocked: VectorE busy", SDK, _EXAMPLES,
           "nki_matmul_fully_optimized_", ((2048, 2048), (2048, 1024)), F32, trn2, 0.1055,
           "vector", _GUIDE, "held out"),
    Anchor("Mamba v1, 256 channels", SDK, _MAMBA, "mamba_v1", _NARROW, F32, trn1, 172.93, "",
           _FUSED, "held out"),
    Anchor("Mamba v1, 4096 channels", SDK, _MAMBA, "mamba_v1", _WIDE, F32, trn1, 2340.0, "",
           _FUSED, "held out"),
    Anchor("Mamba v2, 4096 channels", SDK, _MAMBA, "mamba_v2", _WIDE, F32, trn1, 1610.0, "", _FUSED,
           "held out"),
)  # fmt: skip


def of(target: Target, half_run: int) -> Target:
    """A machine with another figure of a DMA's run."""
    return replace(target, limits={**target.limits, "dma_half_run_bytes": half_run})


def foreign(
    checkouts: Path, repository: str, file: str, kernel: str, args: Sequence[Any], target: Target
) -> Report:
    """The run of a kernel of others."""
    root = checkouts / repository.partition("/")[2]
    module = file if repository == LIBRARY else ""
    path = root / SOURCES / (file.replace(".", "/") + ".py") if module else root / file
    paths = [str(root / SOURCES), str(path.parent)]
    with findable("0.3", paths), redirect_stdout(sys.stderr):
        space = load_file(str(path), "0.3", module, None if module else prelude("0.3"))
        _, report = simulate(find(space, kernel, file), kernel, *args, target=target)
    return report


def timed(report: Report, target: Target, half_run: int) -> Timeline:
    """A run's timeline, had its DMAs another figure."""
    machine = machine_of(of(target, half_run))
    steps = tuple(
        s._replace(ns=machine.dma_ns(s.n_bytes, s.run)) if s.engine == "dma" and s.n_bytes else s
        for s in report.steps
    )
    return replace(report, steps=steps, machine=machine).timeline


def drawn(shapes: Sequence[tuple[int, ...]], dtype: Any, scale: float = 0.1) -> list[Any]:
    """Arrays of normal numbers."""
    draw = np.random.default_rng(0)
    return [(draw.standard_normal(s) * scale).astype(dtype) for s in shapes]


def modelled(a: Anchor, checkouts: Path) -> dict[int, float]:
    """What the model says of an anchor, by the run of a DMA."""
    report = foreign(checkouts, a.repository, a.file, a.kernel, drawn(a.shapes, a.dtype), a.machine)
    found = {run: timed(report, a.machine, run) for run in RUNS}
    return {
        run: lines.utilisation()[a.busy] if a.busy else lines.total_ns / 1e3 * a.times
        for run, lines in found.items()
    }


@dataclass(frozen=True)
class Rival:
    """A program, the run of a DMA, and microseconds of the model: ours, and AWS's if it ran."""

    name: str
    machine: str
    half_run: int
    ours: float
    theirs: float | None


def attention(heads: int, length: int) -> tuple[Callable[..., Any], tuple[str, ...], Any]:
    """Softmax(q k) v of so many queries and keys, d 128, and the shapes that AWS's kernel takes."""
    shapes = [(heads, length, 128), (heads, 128, length), (heads, length, 128)]
    own = [s[1:] if heads == 1 else s for s in shapes]
    specs = tuple("x".join(map(str, s)) + ":bf16" for s in own)
    return lambda q, k, v: nn.softmax(q @ k) @ v, specs, shapes


def generated(fn: Callable[..., Any], specs: Sequence[str], target: Target) -> float:
    """Microseconds of a program of one kernel, on a timeline of all its instructions."""
    exe = axe.compile(fn, *specs, target=target)
    (step,) = exe.schedule.steps
    made = planned(step, exe.schedule.graph, target).made
    return timeline(made.planned, made.places).total_ns / 1e3


# AWS's kernels of the product 4096 x 8192 x 8192 before the last, each on the turns of its outer
# loops that the others repeat, and how many of these there are.
_BEFORE = (
    ("tiled", "nki_matmul_tiled_", ((8192, 512), (8192, 1024)), 64),
    ("loads hoisted", "nki_matmul_hoist_load_", ((8192, 128), (8192, 8192)), 32),
    ("free dims blocked", "nki_matmul_block_free_dimension_", ((8192, 256), (8192, 8192)), 16),
)


def stages(checkouts: Path, found: Sequence[Rival]) -> list[str]:
    """AWS's stages of the product, of which the last is a rival, as Markdown."""
    last = {r.half_run: r.theirs or 0.0 for r in found if r.name.startswith("GEMM")}
    rows: list[tuple[str, dict[int, float]]] = []
    for name, kernel, shapes, times in _BEFORE:
        report = foreign(checkouts, SDK, _EXAMPLES, kernel, drawn(shapes, BF16), trn2)
        us = {run: timed(report, trn2, run).total_ns / 1e3 * times for run in last}
        rows.append((name, us))
        print(name, us, file=sys.stderr)
    rows.append(("all dims blocked", last))
    kept = all(b[run] < a[run] for (_, a), (_, b) in pairwise(rows) for run in last)
    lines = [
        f"AWS's stages of this product on trn2: each is {'' if kept else 'NOT '}faster in the "
        f"model than the one before, as AWS measured them to be ({_GUIDE}). Those before the last "
        "are one part of the product, times how many parts there are.", "",
        "| stage | " + " | ".join(f"model us at {run}" for run in last) + " |",
        "| --- |" + " --- |" * len(last),
    ]  # fmt: skip
    return lines + [
        f"| {name} | " + " | ".join(f"{us[run]:.0f}" for run in last) + " |" for name, us in rows
    ]


def rivals(checkouts: Path | None, runs: Sequence[int]) -> list[Rival]:
    """Programs beside AWS's kernels of the same."""
    blocked = SDK, _EXAMPLES, "nki_matmul_fully_optimized_", [(8192, 4096), (8192, 8192)], ()
    programs: list[tuple[str, Target, Any, Any, Any]] = []
    for heads, length, target in ((1, 2048, trn2), (8, 2048, trn2), (1, 4096, trn2),
                                  (1, 8192, trn2), (1, 2048, trn1), (1, 4096, trn1)):  # fmt: skip
        fn, specs, shapes = attention(heads, length)
        name = f"attention of {heads} head{'s' * (heads > 1)}, {length} x {length}, d 128, bf16"
        theirs = LIBRARY, _ATTENTION, "attention_cte", shapes, (1.0, False)
        programs.append((name, target, fn, specs, theirs))
    specs = "8192x4096:bf16", "8192x8192:bf16"
    name = "GEMM 4096x8192x8192 bf16, A transposed"
    programs.append((name, trn2, lambda a, b: a.T @ b, specs, blocked))
    found = []
    for name, machine, fn, specs, (repository, file, kernel, shapes, more) in programs:
        other: dict[int, float] = {}
        if checkouts:
            args = [*drawn(shapes, BF16, 0.3), *more]
            report = foreign(checkouts, repository, file, kernel, args, machine)
            other = {run: timed(report, machine, run).total_ns / 1e3 for run in runs}
        for run in runs:
            # Under a name of its own, as choices are kept by it.
            target = replace(of(machine, run), name=f"{machine.name} at {run}")
            ours = generated(fn, specs, target)
            found.append(Rival(name, machine.name, run, ours, other.get(run)))
            print(found[-1], file=sys.stderr)
    return found


# Schedules here, by files, and AWS's kernels of the same; the function "" is all of a file.
OURS = {
    "product": ("gemm.py", "contraction.py", "region.py"),
    "attention": ("stream.py", "gemm.py", "contraction.py", "region.py"),
}
THEIRS = {
    "product": (SDK, _EXAMPLES, "nki_matmul_fully_optimized_"),
    "attention": (LIBRARY, f"{SOURCES}/{_ATTENTION.replace('.', '/')}.py", ""),
}


def code_lines(path: Path, function: str = "") -> int:
    """Lines of code of a file or a function of it: no blank ones, comments or docstrings."""
    text = path.read_text(encoding="utf-8")
    tree: ast.AST = ast.parse(text)
    if function:
        tree = next(n for n in ast.walk(tree) if getattr(n, "name", "") == function)
    said: set[int] = set()
    for n in ast.walk(tree):
        if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant):
            said |= set(range(n.lineno, (n.end_lineno or n.lineno) + 1))
    first, last = getattr(tree, "lineno", 1), getattr(tree, "end_lineno", len(text.splitlines()))
    marks = tokenize.generate_tokens(io.StringIO(text).readline)
    skipped = tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT
    code = {
        line for m in marks if m.type not in skipped and m.string
        for line in range(m.start[0], m.end[0] + 1)
    }  # fmt: skip
    return len({n for n in code - said if first <= n <= last})


def sizes(checkouts: Path) -> list[str]:
    """Lines of code of schedules here and of AWS's kernels, counted alike."""
    lines = [
        "Lines of code, counted alike: no blank ones, comments or docstrings. A schedule here "
        "writes every kernel of its kind: any extents, element types, operand orders, cells before "
        "and after. What it shares with others is counted too.", "",
        "| schedule | here | shared with others | AWS's kernel |", "| --- | --- | --- | --- |",
    ]  # fmt: skip
    for name, (own, *shared) in OURS.items():
        repository, file, function = THEIRS[name]
        root = checkouts / repository.partition("/")[2]
        here = Path(gemm.__file__).parent
        others = sum(code_lines(here / f) for f in shared)
        theirs = code_lines(root / file, function)
        lines.append(f"| {name} | {code_lines(here / own)} | {others} | {theirs} |")
    return lines


def misses(found: Mapping[str, float]) -> float:
    """The largest factor by which anchors of the fit are missed."""
    fitted = [(found[a.name], a.published) for a in ANCHORS if a.role == "fit"]
    return max(max(x / y, y / x) for x, y in fitted)


def table(fits: Mapping[int, Mapping[str, float]], used: int,
          compared: Sequence[Rival]) -> str:  # fmt: skip
    """All of it as Markdown."""
    runs = list(fits)
    lines = [
        "# Published times beside the model of Trainium", "",
        "`python -m benchmarks.nki_anchors CHECKOUTS --write FILE` writes this page. Times are the "
        "model's: the simulator's timeline. Nothing was measured here; what is published was "
        "measured by others, on older dialects of some kernels. Shares of engines are those of one "
        "or two blocks of the product.", "",
    ]  # fmt: skip
    if fits:
        lines += [
            "One figure of the machines is published nowhere: the run of a DMA at which half of "
            "its rate is reached, in bytes. The anchors of the fit are missed by a factor of "
            + ", ".join(f"{misses(fits[r]):.2f} at {r}" for r in runs)
            + f" at most. Their runs are 256 bytes and more, so they do not tell small "
            f"figures apart; the targets say {used}: the largest that misses by 1 % more than the "
            "least at most, as short runs are known to be dear (nki-dma-bandwidth-guide).", "",
            "| anchor | machine | role | published | "
            + " | ".join(f"model at {r}" for r in runs) + f" | miss at {used} | source |",
            "| --- | --- | --- | --- |" + " --- |" * (len(runs) + 2),
        ]  # fmt: skip
        for a in ANCHORS:
            shown = "{:.1%}" if a.busy else "{:.0f} us"
            values = " | ".join(shown.format(fits[r][a.name]) for r in runs)
            miss = f"{fits[used][a.name] / a.published - 1:+.0%}"
            head = f"| {a.name} | {a.machine.name} | {a.role} | {shown.format(a.published)} | "
            lines.append(f"{head}{values} | {miss} | {a.source} |")
        lines.append("")
    lines += [
        "Kernels generated here beside AWS's own, in the same timeline, without what lies "
        "between kernels.", "",
        "| program | machine | half run | generated, model us | AWS's, model us | ratio |",
        "| --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for r in compared:
        theirs = "" if r.theirs is None else f"{r.theirs:.1f}"
        ratio = "" if r.theirs is None else f"{r.ours / r.theirs:.2f}"
        head = f"| {r.name} | {r.machine} | {r.half_run} | "
        lines.append(f"{head}{r.ours:.1f} | {theirs} | {ratio} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", type=Path, nargs="?")
    parser.add_argument("--write", type=Path, help="write the page here")
    options = parser.parse_args()
    used = int(trn2.limits["dma_half_run_bytes"])
    fits: dict[int, dict[str, float]] = {}
    for a in ANCHORS if options.checkouts else ():
        for run, x in modelled(a, options.checkouts).items():
            fits.setdefault(run, {})[a.name] = x
            print(f"half run {run}: {a.name}: model {x:.4g}, published {a.published:g}",
                  file=sys.stderr)  # fmt: skip
    compared = rivals(options.checkouts, (used, 0))
    text = table(fits, used, compared)
    if options.checkouts:
        more = [*stages(options.checkouts, compared), "", *sizes(options.checkouts)]
        text += "\n" + "\n".join(more) + "\n"
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()

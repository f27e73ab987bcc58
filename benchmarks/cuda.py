"""CUDA kernels of axe_eq against cuBLAS, torch.compile and Triton on this machine's GPU.

    python -m benchmarks.cuda [--out FOLDER] [--only PART] [--quick] [--saved FOLDER] [--cluster N]

Correctness comes first: every kernel is compared with float32 torch on fresh random normal data,
with poisoned outputs, before it is timed. What is timed are whole programs as `axe.compile` chose
and lowered them; --saved takes them from where `benchmarks.cuda_programs` saved them; --cluster
also times products whose CTAs share operand tiles in clusters of N (saved with the same). Products:
burst protocol (35 ms idle, one untimed call, 1.5 ms of timed work, shuffled order, median of 9
rounds). Memory-bound kernels: CUDA graph over rotating buffers larger than L2, shuffled, median.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import random
import statistics
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.terminal import absent

try:
    import torch
except ImportError as error:
    raise absent(error) from None

from axe_eq.kernel.cells import Cell, apply, arg
from axe_eq.kernel.threads import ir
from axe_eq_backends.cuda import image
from axe_eq_backends.cuda.launch import Bound, Loaded
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.gemm import Extra, Matrix, Problem, Tiling, gemm, parameters
from axe_eq_backends.cuda.target import h200
from benchmarks import cuda_peers as peers
from benchmarks import cuda_programs as programs
from benchmarks.cuda_programs import MODELS, M

RELU: Cell = apply("maximum", arg(0), 0.0)
BIAS_RELU: Cell = apply("maximum", apply("add", arg(0), arg(1)), 0.0)
SILU_GATE: Cell = apply("mul", apply("mul", arg(0), apply("sigmoid", arg(0))), arg(1))
Run = Callable[[], Any]
Case = dict[str, Any]
Shapes = dict[str, tuple[int, int]]


def load(kernel: ir.Kernel) -> Loaded:
    """Plan, compile and load a kernel."""
    return Loaded(image.build(plan(kernel, h200), cached=False))


def stream() -> int:
    """The current stream's handle."""
    return int(torch.cuda.current_stream().cuda_stream)


def launcher(bound: Bound) -> Run:
    """A call that launches on the stream that is current then."""
    return lambda: bound.launch(stream())


def relative_error(out: torch.Tensor, ref: torch.Tensor) -> float:
    """Frobenius norm of the difference over that of the reference; NaN where out has NaN."""
    out, ref = out.double(), ref.double()
    return float((out - ref).norm() / ref.norm())


# -- protocols --


def burst(runs: dict[str, Run], rounds: int = 9) -> dict[str, list[float]]:
    """Milliseconds per call of every round."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    counts = {}
    for name, run in runs.items():
        run()
        counts[name] = max(2, int(1.5 / _timed(run, 2)))
    for _ in range(rounds):
        order = list(runs)
        random.shuffle(order)
        for name in order:
            torch.cuda.synchronize()
            time.sleep(0.035)
            runs[name]()
            times[name].append(_timed(runs[name], counts[name]))
    return times


def _timed(run: Run, count: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / count


def graphs(runs: dict[str, list[Run]], rounds: int = 9) -> dict[str, list[float]]:
    """Milliseconds per call; every run is one call per buffer set, captured in one graph."""
    captured = {}
    for name, calls in runs.items():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for call in calls[:2]:
                call()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            # Results live until all are captured: else those that a call makes anew would all be
            # one buffer, which stays in L2, and no writes of one peer would reach main memory.
            results = [call() for call in calls]
        del results
        captured[name] = graph
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        order = list(runs)
        random.shuffle(order)
        for name in order:
            captured[name].replay()
            times[name].append(_timed(captured[name].replay, 3) / len(runs[name]))
    return times


def summary(times: dict[str, list[float]], work: float) -> dict[str, Any]:
    """Median, least and most time in microseconds, and work per second at the median."""
    return {
        name: {
            "us": round(statistics.median(ms) * 1e3, 3),
            "us_min": round(min(ms) * 1e3, 3),
            "us_max": round(max(ms) * 1e3, 3),
            "rate": work / statistics.median(ms) * 1e3,
        }
        for name, ms in times.items()
    }


# -- products --


def normal(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """Random normal values on the GPU."""
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def gemm_cases() -> list[tuple[str, Problem, Tiling, tuple[int, int, int]]]:
    """Variants whose values are checked: orders, forms, tails, epilogues, dtypes."""
    sizes = [(1024, 1536, 1024), (1000, 1048, 1032), (128, 256, 64), (4096, 2304, 72)]
    m, n, k = parameters()
    column = Matrix("A", major=0), Matrix("B", major=0)
    row = Matrix("A"), Matrix("B")
    brain = Matrix("A", "bf16"), Matrix("B", "bf16")
    variants = {
        "plain": (Problem(m, n, k), Tiling()),
        "a mn-major": (Problem(m, n, k, ((column[0], row[1]),)), Tiling()),
        "b mn-major": (Problem(m, n, k, ((row[0], column[1]),)), Tiling()),
        "both mn-major": (Problem(m, n, k, (column,)), Tiling()),
        "64B": (Problem(m, n, k), Tiling(k=32, stages=6)),
        "32B": (Problem(m, n, k), Tiling(k=16, stages=8)),
        "no swizzle": (Problem(m, n, k), Tiling(forms={"A": "K none", "B": "K none"})),
        "128x128": (Problem(m, n, k), Tiling(128, 128, 64, 4)),
        "256x128": (Problem(m, n, k), Tiling(256, 128, 64, 3)),
        "64x256 one consumer": (Problem(m, n, k), Tiling(64, 256, 64, 4, 1)),
        "column-major out": (Problem(m, n, k, out=Matrix("C", major=0)), Tiling()),
        "f32 out": (Problem(m, n, k, out=Matrix("C", "f32")), Tiling(128, 128, 64, 3)),
        "clusters of 2 along m": (Problem(m, n, k), Tiling(cluster_rows=2)),
        "clusters of 2 along n": (Problem(m, n, k), Tiling(cluster_cols=2)),
        "clusters of 4, both mn-major": (Problem(m, n, k, (column,)), Tiling(cluster_rows=4)),
        "bias+relu": (Problem(m, n, k, cell=BIAS_RELU, extras=(Extra("bias", "n"),)), Tiling()),
        "row scale": (
            Problem(m, n, k, cell=apply("mul", arg(0), arg(1)), extras=(Extra("scale", "m"),)),
            Tiling(),
        ),
        "residual": (
            Problem(m, n, k, cell=apply("add", arg(0), arg(1)), extras=(Extra("R", "mn"),)),
            Tiling(128, 128, 64, 4),
        ),
        "gated": (
            Problem(
                m, n, k, ((row[0], row[1]), (row[0], Matrix("G"))), SILU_GATE,
            ),
            Tiling(128, 128, 64, 3),
        ),
        "bf16": (Problem(m, n, k, (brain,), out=Matrix("C", "bf16")), Tiling()),
    }  # fmt: skip
    return [(f"{v} {s}", p, t, s) for v, (p, t) in variants.items() for s in sizes if _fits(p, s)]


def _fits(problem: Problem, size: tuple[int, int, int]) -> bool:
    """Whether bulk copies take these extents; parameters carry proven divisors."""
    m_major = any(a.major == 0 for a, _ in problem.products) or problem.out.major == 0
    return not (m_major and size[0] % 8)


TORCH = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


def gemm_arrays(problem: Problem, size: tuple[int, int, int]) -> dict[str, torch.Tensor]:
    """Random operands, extras, and a poisoned output."""
    m, n, k = size
    arrays: dict[str, torch.Tensor] = {}
    for a, b in problem.products:
        for matrix, rows in ((a, m), (b, n)):
            arrays.setdefault(matrix.name, _matrix(rows, k, matrix))
    shapes = {"mn": (m, n), "m": (m,), "n": (n,)}
    for e in problem.extras:
        arrays[e.name] = normal(*shapes[e.dims], dtype=TORCH[e.dtype])
    arrays[problem.out.name] = _matrix(m, n, problem.out).fill_(float("nan"))
    return arrays


def _matrix(rows: int, cols: int, matrix: Matrix) -> torch.Tensor:
    dtype = TORCH[matrix.dtype]
    return normal(rows, cols, dtype=dtype) if matrix.major else normal(cols, rows, dtype=dtype).t()


def gemm_reference(problem: Problem, arrays: dict[str, torch.Tensor]) -> torch.Tensor:
    """The result in float32."""
    accs = [arrays[a.name].float() @ arrays[b.name].float().t() for a, b in problem.products]
    ins = accs + [
        arrays[e.name].float()[:, None] if e.dims == "m" else arrays[e.name].float()
        for e in problem.extras
    ]
    return torch_cell(problem.cell, ins)


def torch_cell(cell: Cell, ins: list[torch.Tensor]) -> Any:
    """A cell expression in torch."""
    if hasattr(cell, "index"):
        return ins[cell.index]
    if hasattr(cell, "value"):
        return cell.value
    args = [torch_cell(a, ins) for a in cell.args]
    like = next(a for a in args if isinstance(a, torch.Tensor))
    args = [a if isinstance(a, torch.Tensor) else torch.full_like(like, a) for a in args]
    return getattr(torch, cell.cell)(*args)


def check_gemm() -> list[dict[str, Any]]:
    """Values of all variants."""
    torch.backends.cuda.matmul.allow_tf32 = False
    loaded: dict[int, Loaded] = {}
    results = []
    for name, problem, tiling, size in gemm_cases():
        try:
            if id(problem) not in loaded:
                loaded[id(problem)] = load(gemm(problem, tiling))
            arrays = gemm_arrays(problem, size)
            params = dict(zip("MNK", size, strict=True))
            loaded[id(problem)].bind(arrays, params).launch(stream())
            torch.cuda.synchronize()
            error = relative_error(arrays[problem.out.name], gemm_reference(problem, arrays))
            limit = 5e-3 if problem.out.dtype == "bf16" else 1e-3
            results.append({"case": name, "error": error, "right": error < limit})
        except Exception as error:
            results.append({"case": name, "right": False, "failed": repr(error)[:400]})
        if not results[-1]["right"]:
            print("WRONG", results[-1], flush=True)
    return results


def bench_products(
    kind: str, shapes: Shapes, rounds: int, saved: Path | None, cluster: int = 1
) -> list[Case]:
    """f16 products at M = 8192 against cuBLAS, or with bias and relu against cuBLASLt's fused."""
    results = []
    for name, (cols, depth) in shapes.items():
        x, w, bias = normal(M, depth), normal(cols, depth), normal(cols)
        out = torch.full((M, cols), float("nan"), device="cuda", dtype=torch.float16)
        plain = kind == "gemm"
        peer = "cublas" if plain else "cublaslt"
        runs: dict[str, Run] = {
            peer: partial(torch.mm, x, w.t(), out=out)
            if plain
            else partial(torch._addmm_activation, bias, x, w.t(), out=out)
        }
        runs[peer]()
        errors = {}
        for n in sorted({1, cluster}):
            exe = programs.executable(programs.gemm_name(kind, cols, depth), saved, n)
            call = exe.bind(*((x, w) if plain else (x, w, bias)))
            key = "axe" if n == 1 else f"axe, clusters of {n}"
            errors[key] = checked(call, out)
            if errors[key] < 1e-3:
                runs[key] = call
            else:
                print("WRONG", name, key, errors[key], flush=True)
        found = summary(burst(runs, rounds), 2.0 * M * cols * depth)
        case = {"shape": name, "N": cols, "K": depth, "error": max(errors.values())}
        results.append({**case, "times": found})
        _print_row(name, found, peer)
    return results


def checked(call: Run, wanted: torch.Tensor) -> float:
    """The relative error of a prepared call whose results were poisoned before."""
    call().fill_(float("nan"))
    got = call()
    torch.cuda.synchronize()
    return relative_error(got, wanted)


# -- memory-bound programs --


def bench_memory(rounds: int, quick: bool, saved: Path | None) -> list[Case]:
    """Rows, cells and transposition, against the best of torch.compile and Triton."""
    results = []
    sizes = programs.MEMORY_SIZES[:1] if quick else programs.MEMORY_SIZES
    for op in programs.MEMORY_OPS:
        for rows, cols in sizes:
            try:
                results.append(_memory_case(op, rows, cols, rounds, saved))
            except Exception as error:
                traceback.print_exc()
                results.append({"op": op, "rows": rows, "cols": cols, "failed": repr(error)[:400]})
    return results


def _memory_case(op: str, rows: int, cols: int, rounds: int, saved: Path | None) -> Case:
    n_bytes = 4.0 * rows * cols
    sets = max(2, math.ceil(300e6 / n_bytes))
    extra = op in ("rmsnorm", "bias_gelu")
    xs = [normal(rows, cols) for _ in range(sets)]
    w = normal(cols)
    shape = (cols, rows) if op == "transpose" else (rows, cols)
    ys = [torch.full(shape, float("nan"), device="cuda", dtype=torch.float16) for _ in range(sets)]
    inputs = [(x, w) if extra else (x,) for x in xs]
    reference = peers.reference(op)
    exe = programs.executable(programs.memory_name(op, rows, cols), saved)
    calls = [exe.bind(*i) for i in inputs]
    error = checked(calls[0], reference(*inputs[0]))
    runs: dict[str, list[Run]] = {}
    if error < 1e-3:
        runs["axe"] = calls
    else:
        print("WRONG", op, rows, cols, error, flush=True)
    for key, peer in peers.TRITON[op].items():
        runs[key] = [partial(peer, *i, y) for i, y in zip(inputs, ys, strict=True)]
    torch._dynamo.reset()
    compiled = torch.compile(reference, dynamic=False)
    runs["torch.compile"] = [partial(compiled, *i) for i in inputs]
    runs["copy"] = [partial(y.view(-1).copy_, x.view(-1)) for x, y in zip(xs, ys, strict=True)]
    found = summary(graphs(runs, rounds), n_bytes)
    best = min(v["us"] for key, v in found.items() if key not in ("axe", "copy"))
    ours = found["axe"]["us"] if "axe" in found else math.inf
    shown = " ".join(f"{key} {v['us']:.2f}" for key, v in found.items())
    print(f"{op:10} {rows:5} x {cols:5}: {best / ours:.3f} of the best peer; {shown}", flush=True)
    case = {"op": op, "rows": rows, "cols": cols, "error": error}
    return {**case, "ratio": best / ours, "times": found}


# -- host costs and the whole --


def host_costs() -> dict[str, float]:
    """Host time of a prepared call, and of planning and compiling a kernel, in microseconds."""
    m, n, k = parameters()
    start = time.perf_counter()
    planned = plan(gemm(Problem(m, n, k)), h200)
    planned_us = (time.perf_counter() - start) * 1e6
    start = time.perf_counter()
    loaded = Loaded(image.build(planned, cached=False))
    compiled_us = (time.perf_counter() - start) * 1e6
    image.build(planned)
    start = time.perf_counter()
    image.build(planned)
    cached_us = (time.perf_counter() - start) * 1e6
    arrays = {"A": normal(128, 64), "B": normal(256, 64), "C": normal(128, 256)}
    bound = loaded.bind(arrays, {"M": 128, "N": 256, "K": 64})
    handle = stream()
    for _ in range(100):
        bound.launch(handle)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(200):
        bound.launch(handle)
    call_us = (time.perf_counter() - start) / 200 * 1e6
    torch.cuda.synchronize()
    return {
        "plan_us": planned_us, "compile_and_load_us": compiled_us, "from_cache_us": cached_us,
        "prepared_call_us": call_us,
    }  # fmt: skip


def _print_row(name: str, found: dict[str, Any], peer: str) -> None:
    base = found[peer]["us"]
    shown = " ".join(f"{key} {base / v['us']:.3f}" for key, v in found.items() if key != peer)
    print(f"{name:18} {peer} {found[peer]['rate'] / 1e12:.0f} TFLOP/s; {shown}", flush=True)


def machine() -> dict[str, str]:
    """What this ran on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "python": platform.python_version(),
    }


def main() -> None:
    """Run what was asked for and write cuda.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OUT", "benchmarks/results"))
    )
    parser.add_argument("--only", choices=("check", "gemm", "fused", "memory", "host"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--saved", type=Path, help="where benchmarks.cuda_programs saved")
    parser.add_argument("--cluster", type=int, default=1, help="CTAs that share operand tiles")
    options = parser.parse_args()
    rounds = 3 if options.quick else 9
    torch.manual_seed(0)
    random.seed(0)
    shapes = dict(list(MODELS.items())[:2]) if options.quick else MODELS
    parts: dict[str, Callable[[], Any]] = {
        "check": check_gemm,
        "host": host_costs,
        "gemm": lambda: bench_products("gemm", shapes, rounds, options.saved, options.cluster),
        "fused": lambda: bench_products("fused", shapes, rounds, options.saved, options.cluster),
        "memory": lambda: bench_memory(rounds, options.quick, options.saved),
    }
    results: dict[str, Any] = {"machine": machine()}
    for name, part in parts.items():
        if options.only in (None, name):
            start = time.perf_counter()
            try:
                results[name] = part()
            except Exception as error:
                traceback.print_exc()
                results[name] = {"failed": repr(error)[:1000]}
            print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "cuda.json").write_text(json.dumps(results, indent=1))
    checked = results.get("check", [])
    if isinstance(checked, list):
        print(f"{sum(c['right'] for c in checked)} of {len(checked)} products right")


if __name__ == "__main__":
    main()

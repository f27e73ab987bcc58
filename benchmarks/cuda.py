"""CUDA kernels of axe_eq against cuBLAS, torch.compile and Triton on this machine's GPU.

    python -m benchmarks.cuda [--out FOLDER] [--only gemm|fused|memory] [--quick] [--cluster N]

Correctness comes first: every kernel is compared with float32 torch on fresh random normal data,
with poisoned outputs, before it is timed. Products: burst protocol (35 ms idle, one untimed call,
1.5 ms of timed work, shuffled order, median of 9 rounds). Memory-bound kernels: CUDA graph over
rotating buffers larger than L2, shuffled, median.
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

import torch

from axe_eq.kernel import ir
from axe_eq.kernel.cells import Cell, apply, arg
from axe_eq_backends.cuda import image
from axe_eq_backends.cuda.launch import Bound, Loaded
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.gemm import Extra, Matrix, Problem, Tiling, gemm, parameters
from axe_eq_backends.cuda.schedules.map import elementwise
from axe_eq_backends.cuda.schedules.rows import Reduction, best_across, reduce_rows
from axe_eq_backends.cuda.schedules.tensors import Operand, dense
from axe_eq_backends.cuda.schedules.transpose import best_warps, turn
from axe_eq_backends.cuda.target import h200
from benchmarks import cuda_peers as peers

M = 8192
MODELS = {
    "Qwen3-8B o": (4096, 4096), "Qwen3-8B gate_up": (24576, 4096), "Qwen3-32B down": (5120, 25600),
    "Qwen3-32B qkv": (10240, 5120), "L3.1-70B o": (8192, 8192), "Gemma2-9B gate_up": (28672, 3584),
    "L3.1-405B o": (16384, 16384), "GPT3 o": (12288, 12288),
}  # fmt: skip
RELU: Cell = apply("maximum", arg(0), 0.0)
BIAS_RELU: Cell = apply("maximum", apply("add", arg(0), arg(1)), 0.0)
SILU_GATE: Cell = apply("mul", apply("mul", arg(0), apply("sigmoid", arg(0))), arg(1))
Run = Callable[[], Any]


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
            for call in calls:
                call()
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
        "clusters of 2 along m": (Problem(m, n, k), Tiling(cluster=2)),
        "clusters of 2 along n": (Problem(m, n, k), Tiling(cluster=2, along="n")),
        "clusters of 4, both mn-major": (Problem(m, n, k, (column,)), Tiling(cluster=4)),
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


def bench_gemm(
    shapes: dict[str, tuple[int, int]], rounds: int, cluster: int
) -> list[dict[str, Any]]:
    """f16 products at M = 8192 against cuBLAS; two rasters, parametric and fixed extents.

    With a cluster, also kernels whose CTAs share operand tiles, along rows and along columns.
    """
    m, n, k = parameters()
    tilings = {f"axe g{g}": Tiling(raster=g) for g in (8, 16)}
    if cluster > 1:
        ways = [(along, g) for along in "mn" for g in (8, 16)]
        tilings |= {
            f"axe g{g}, clusters of {cluster} along {along}": Tiling(
                raster=g, cluster=cluster, along=along
            )
            for along, g in ways
        }
    kernels = {key: load(gemm(Problem(m, n, k), t)) for key, t in tilings.items()}
    results = []
    for name, (cols, depth) in shapes.items():
        a, b = normal(M, depth), normal(cols, depth)
        c, d = (
            torch.full((M, cols), float("nan"), device="cuda", dtype=torch.float16) for _ in "cd"
        )
        params = {"M": M, "N": cols, "K": depth}
        runs: dict[str, Run] = {"cublas": partial(torch.mm, a, b.t(), out=d)}
        runs["cublas"]()
        fixed = load(gemm(Problem(M, cols, depth), Tiling(raster=8)))
        bounds = {key: k.bind({"A": a, "B": b, "C": c}, params) for key, k in kernels.items()}
        bounds["axe g8 fixed"] = fixed.bind({"A": a, "B": b, "C": c})
        errors = {}
        for key, bound in bounds.items():
            c.fill_(float("nan"))
            bound.launch(stream())
            torch.cuda.synchronize()
            errors[key] = relative_error(c, d)
            if errors[key] < 1e-3:
                runs[key] = launcher(bound)
            else:
                print("WRONG", name, key, errors[key], flush=True)
        found = summary(burst(runs, rounds), 2.0 * M * cols * depth)
        results.append({"shape": name, "N": cols, "K": depth, "errors": errors, "times": found})
        _print_row(name, found, "cublas")
    return results


def bench_fused(shapes: dict[str, tuple[int, int]], rounds: int) -> list[dict[str, Any]]:
    """The same with bias + relu against cuBLASLt's fused epilogue."""
    m, n, k = parameters()
    problem = Problem(m, n, k, cell=BIAS_RELU, extras=(Extra("bias", "n"),))
    kernels = {f"axe g{g}": load(gemm(problem, Tiling(raster=g))) for g in (8, 16)}
    results = []
    for name, (cols, depth) in shapes.items():
        a, b, bias = normal(M, depth), normal(cols, depth), normal(cols)
        c, d = (
            torch.full((M, cols), float("nan"), device="cuda", dtype=torch.float16) for _ in "cd"
        )
        fused = partial(torch._addmm_activation, bias, a, b.t(), out=d)
        runs: dict[str, Run] = {"cublaslt": fused}
        runs["cublaslt"]()
        errors = {}
        for key, kernel in kernels.items():
            bound = kernel.bind(
                {"A": a, "B": b, "bias": bias, "C": c}, {"M": M, "N": cols, "K": depth}
            )
            c.fill_(float("nan"))
            bound.launch(stream())
            torch.cuda.synchronize()
            errors[key] = relative_error(c, d)
            if errors[key] < 1e-3:
                runs[key] = launcher(bound)
        found = summary(burst(runs, rounds), 2.0 * M * cols * depth)
        results.append({"shape": name, "N": cols, "K": depth, "errors": errors, "times": found})
        _print_row(name, found, "cublaslt")
    return results


# -- memory-bound kernels --


def memory_kernel(op: str, rows: int, cols: int) -> ir.Kernel:
    """The kernel that lowering writes for an operation, with the tiling that its costs pick."""
    shape = (rows, cols)
    x, w = dense("x", "f16", shape), dense("w", "f16", shape, [1])
    y = dense("y", "f16", shape)
    if op == "bias_gelu":
        t = apply("add", arg(0), arg(1))
        half = apply("add", apply("erf", apply("mul", t, math.sqrt(0.5))), 1.0)
        return elementwise(shape, [x, w], [(y, apply("mul", apply("mul", t, 0.5), half))])
    if op == "transpose":
        turned = Operand("x", "f16", (1, cols)), Operand("y", "f16", (rows, 1))
        warps = best_warps((cols, rows), turned, h200.n_units)
        return turn((cols, rows), [turned[0]], [(turned[1], arg(0))], warps)
    if op == "softmax":
        e = apply("exp", apply("sub", arg(0), arg(1)))
        steps, given = [Reduction("max", arg(0)), Reduction("+", e)], [x]
        cell = apply("div", e, arg(2))
    else:
        scale = apply("rsqrt", apply("add", apply("mul", arg(2), 1 / cols), 1e-6))
        cell = apply("mul", apply("mul", arg(0), scale), arg(1))
        steps, given = [Reduction("+", apply("mul", arg(0), arg(0)))], [x, w]
    across = best_across(shape, given, steps, [(y, cell)], h200.n_units)
    assert across is not None
    return reduce_rows(shape, given, steps, [(y, cell)], across)


def bench_memory(rounds: int, quick: bool) -> list[dict[str, Any]]:
    """Row and cell kernels and transposition, against the best of torch.compile and Triton."""
    results = []
    sizes = [(r, c) for r in (8192, 1024) for c in (4096, 12288, 1000)]
    for op in ("rmsnorm", "softmax", "bias_gelu", "transpose"):
        for rows, cols in sizes[:1] if quick else sizes:
            try:
                results.append(_memory_case(op, rows, cols, rounds))
            except Exception as error:
                traceback.print_exc()
                results.append({"op": op, "rows": rows, "cols": cols, "failed": repr(error)[:400]})
    return results


def _memory_case(op: str, rows: int, cols: int, rounds: int) -> dict[str, Any]:
    n_bytes = 4.0 * rows * cols
    sets = max(2, math.ceil(300e6 / n_bytes))
    extra = op in ("rmsnorm", "bias_gelu")
    xs = [normal(rows, cols) for _ in range(sets)]
    w = normal(cols)
    shape = (cols, rows) if op == "transpose" else (rows, cols)
    ys = [torch.full(shape, float("nan"), device="cuda", dtype=torch.float16) for _ in range(sets)]
    inputs = [(x, w) if extra else (x,) for x in xs]
    reference = peers.reference(op)
    wanted = reference(*inputs[0])
    runs: dict[str, list[Run]] = {}
    errors = {}
    loaded = load(memory_kernel(op, rows, cols))
    bounds = [loaded.bind(_memory_arrays(op, i, y)) for i, y in zip(inputs, ys, strict=True)]
    bounds[0].launch(stream())
    torch.cuda.synchronize()
    errors["axe"] = relative_error(ys[0], wanted)
    ys[0].fill_(float("nan"))
    if errors["axe"] < 1e-3:
        runs["axe"] = [launcher(b) for b in bounds]
    else:
        print("WRONG", op, rows, cols, errors["axe"], flush=True)
    for key, peer in peers.TRITON[op].items():
        runs[key] = [partial(peer, *i, y) for i, y in zip(inputs, ys, strict=True)]
    torch._dynamo.reset()
    compiled = torch.compile(reference, dynamic=False)
    runs["torch.compile"] = [partial(compiled, *i) for i in inputs]
    runs["copy"] = [partial(y.view(-1).copy_, x.view(-1)) for x, y in zip(xs, ys, strict=True)]
    found = summary(graphs(runs, rounds), n_bytes)
    best = min(v["us"] for key, v in found.items() if not key.startswith(("axe", "copy")))
    ours = min((v["us"] for key, v in found.items() if key.startswith("axe")), default=math.inf)
    shown = " ".join(f"{key} {v['us']:.1f}" for key, v in found.items())
    print(f"{op:10} {rows:5} x {cols:5}: {best / ours:.3f} of the best peer; {shown}", flush=True)
    case = {"op": op, "rows": rows, "cols": cols, "errors": errors}
    return {**case, "ratio": best / ours, "times": found}


def _memory_arrays(op: str, inputs: tuple[torch.Tensor, ...], y: torch.Tensor) -> dict[str, Any]:
    if op == "transpose":
        return {"x": inputs[0].t(), "y": y}
    if op == "bias_gelu":
        return {"x": inputs[0], "w": inputs[1], "y": y}
    return {"x": inputs[0], "y": y} | ({"w": inputs[1]} if len(inputs) > 1 else {})


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
    parser.add_argument("--cluster", type=int, default=1, help="CTAs that share operand tiles")
    options = parser.parse_args()
    rounds = 3 if options.quick else 9
    torch.manual_seed(0)
    random.seed(0)
    shapes = dict(list(MODELS.items())[:2]) if options.quick else MODELS
    parts: dict[str, Callable[[], Any]] = {
        "check": check_gemm,
        "host": host_costs,
        "gemm": lambda: bench_gemm(shapes, rounds, options.cluster),
        "fused": lambda: bench_fused(shapes, rounds),
        "memory": lambda: bench_memory(rounds, options.quick),
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

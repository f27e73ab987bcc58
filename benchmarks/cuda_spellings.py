"""Attention in every spelling of `benchmarks.attention_spellings`: compiled, interpreted, run.

    python -m benchmarks.cuda_spellings [--interpret SIZE] [--only NAME ...] [--out FILE]
        [--save FOLDER]

compiles each for an H200 at a small and at a large size, writes its text, and interprets the small
one in several orders, on ordinary and on extreme data, against float64; no GPU is needed.
`--interpret small` leaves the large ones out. With --save the large ones are kept, and

    python -m benchmarks.cuda_spellings --gpu [--load FOLDER] [--only NAME ...] [--out FILE]

runs them on this machine's GPU against float64 where the program's own types mean the same, several
times over poisoned results, and times them beside torch's attention where that has the program.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attention_spellings import (
    SPELLINGS,
    Sizes,
    Spelling,
    heads,
    meaning,
    names,
    rounded,
    shape,
    work,
)  # fmt: skip
from benchmarks.terminal import absent, told

Arrays = dict[str, Any]
KINDS = ("ordinary", "large", "extreme")
# Parts of the largest value; weights of 16 bits are mixed.
TOLERANCE = {"f16": 4e-3, "bf16": 3e-2, "f32": 4e-3}
LOG_TOLERANCE = 2e-3
COMPILED = ("small", "large")
REPEATS, ROUNDS, IDLE_S = 4, 5, 0.035
APART = 16.0
LARGENESS = {"q": 4.0, "k": 1.0, "a": 16.0}


# -- data --


def arrays(spelling: Spelling, sizes: Sizes, kind: str, seed: int = 0) -> Arrays:
    """Operands, by name.

    Extreme ones make scores of up to about 1e4 and rows of masks without a key; large ones a
    quarter of that, which stays in f16 before it is scaled. Their scores are multiples of `APART`:
    rounding them, which any program of 16 bits may, changes no weight much.
    """
    rng = np.random.default_rng(seed)
    made: Arrays = {}
    for name, dims in spelling.operands.items():
        dtype = spelling.kinds.get(name, spelling.dtype)
        extents = shape(dims, sizes)
        array: Any
        if dtype == "bool":
            array = rng.random(extents) < 0.7
            if kind == "extreme" and array.ndim == 2:
                array[::3] = False
        elif dtype == "i32":
            array = np.sort(rng.integers(0, 3, extents))
        elif name == "m":
            array = 2.0 ** -rng.integers(1, 9, extents)
        elif kind != KINDS[0] and name in "qka":
            unit = APART if name == "a" else np.ceil((APART / spelling.scale(sizes)) ** 0.5)
            largeness = LARGENESS[name] if kind == "extreme" or name == "a" else 1.0
            array = unit * largeness * rng.integers(-3, 4, extents)
        else:
            array = rng.standard_normal(extents)
        made[name] = rounded(array, dtype)
    return made


def wide(held: Mapping[str, Any], xp: Any = np) -> Arrays:
    """Operands in float64, truth values as they are."""
    return {n: a if a.dtype == xp.bool else _in_float64(a, xp) for n, a in held.items()}


def _in_float64(array: Any, xp: Any) -> Any:
    return array.astype(np.float64) if xp is np else array.double()


def nudged(spelling: Spelling, held: Mapping[str, Any], xp: Any = np) -> Arrays:
    """Operands whose queries are a rounding of their element type away, up and down by turns."""
    step = 1 + 2.0 ** -{"f16": 10, "bf16": 7, "f32": 23}[spelling.dtype]
    q = held["q"]
    moved = _in_float64(q, xp)
    moved[..., ::2] *= step
    moved[..., 1::2] /= step
    return dict(held) | {"q": moved.astype(q.dtype) if xp is np else moved.to(q.dtype)}


# -- comparing --


def difference(
    found: Any, wanted: Any, others: Sequence[Any], tolerance: float, xp: Any = np
) -> tuple[float, int, list[int]]:
    """The largest difference over the largest value, how many elements were asked for, and where.

    Asked for are rows that mean the same in float64 and in the program's own types, to half the
    tolerance, and do so too when an operand moves by a rounding: elsewhere rounding decides what
    comes out, by overflow or between near scores. The difference is infinite where NaN or
    infinities are elsewhere.

    Args:
        found: what was computed.
        wanted: what is meant, in float64; a row of the last dim shares its weights.
        others: what is meant, in the program's own types.
        tolerance: of the largest finite value.
        xp: numpy or torch.
    """
    ends, zero = xp.isfinite(wanted), xp.zeros_like(wanted)
    largest = xp.abs(xp.where(ends, wanted, zero)).max() + 1e-6
    asked = xp.ones_like(wanted) > 0
    for other in others:
        apart = xp.where(_same(wanted, other, xp), zero, xp.abs(wanted - other))
        near = apart <= tolerance / 2 * largest  # of NaN nothing is
        asked = asked & (near.all(-1)[..., None] if wanted.ndim > 1 else near)
    off = xp.where(_same(wanted, found, xp), zero, xp.abs(found - wanted))
    off = xp.where(asked, xp.where(xp.isnan(off), zero + float("inf"), off), zero)
    index = np.unravel_index(int(off.argmax()), tuple(off.shape))
    return float(off.max() / largest), int(asked.sum()), [int(n) for n in index]


def _same(a: Any, b: Any, xp: Any) -> Any:
    return (a == b) | (xp.isnan(a) & xp.isnan(b))


def worst(
    spelling: Spelling, sizes: Sizes, held: Mapping[str, Any], results: Any, xp: Any = np
) -> dict[str, Any]:
    """The worst head of every result, and the share of all elements that were asked for.

    Where a result is off by more than it may be, "wrong" says at which head and index it is worst.

    Args:
        spelling: the program.
        sizes: of its dims.
        held: operands by name, as the program has them.
        results: of the program.
        xp: numpy or torch.
    """
    found = results if isinstance(results, list | tuple) else [results]
    apart: dict[str, Any] = dict.fromkeys(["result", "log sums"][: len(found)], 0.0)
    places: dict[str, Any] = {}
    tolerances = {"result": TOLERANCE[spelling.dtype], "log sums": LOG_TOLERANCE}
    asked, total, exact = 0, 0, wide(held, xp)
    own = held, nudged(spelling, held, xp)
    for at in heads(spelling, sizes):
        with np.errstate(all="ignore"):
            wanted = meaning(xp, spelling, sizes, exact, at)
            narrow = [meaning(xp, spelling, sizes, one, at) for one in own]
        for name, got, want, *others in zip(tuple(apart), found, wanted, *narrow, strict=False):
            dims = spelling.out if name == "result" else "h s"
            part, near = _head(got, dims, sizes, at), tolerances[name]
            with np.errstate(all="ignore"):
                wide_others = [_in_float64(o, xp) for o in others]
                off, n, index = difference(part, want, wide_others, near, xp)
            if off > max(apart[name], near):
                places[name] = {"head": dict(at), "index": index}
            apart[name] = max(apart[name], off)
            asked, total = asked + n, total + math.prod(want.shape)
    shown = {"wrong": places} if places else {}
    return apart | {"asked": round(asked / total, 4)} | shown


def _head(array: Any, dims: str, sizes: Sizes, at: Mapping[str, int]) -> Any:
    order = names(dims)
    whole = array.reshape([sizes[n] for n in order])
    part = whole[tuple(at.get(n, slice(None)) for n in order)]
    return _in_float64(part, np if isinstance(part, np.ndarray) else None)


def right(apart: Mapping[str, Any], dtype: str) -> bool:
    """Whether results are as near as their element type allows."""
    near = apart["result"] <= TOLERANCE[dtype] and apart.get("log sums", 0.0) <= LOG_TOLERANCE
    return bool(near)


# -- without a GPU --


def compiled(spelling: Spelling, sizes: Sizes) -> Any:
    """The executable for an H200."""
    import axe_eq as axe

    return axe.compile(spelling.fn, *spelling.specs(sizes), target="h200")


def interpreted(exe: Any, held: Mapping[str, Any], order: str, seed: int = 0) -> list[Any]:
    """The emitted kernels' plans, each on what those before it wrote; results poisoned."""
    from axe_eq.program.types import DTYPES
    from axe_eq_backends.cuda.interpret import POISON, elements, launch
    from axe_eq_backends.cuda.lower import lower
    from axe_eq_backends.cuda.planning import plan

    graph, target = exe.schedule.graph, exe.schedule.target
    places = {n: elements(b.layout, b.value_type.shape) for n, b in graph.buffers.items()}
    flat: Arrays = {}
    for name, spec in graph.buffers.items():
        size = int(places[name].max(initial=0)) + 1
        flat[name] = np.full(size, POISON).astype(DTYPES[spec.value_type.dtype].numpy)
    given = dict(zip((i.name for i in exe.program.inputs), held.values(), strict=False))
    for name, array in (given | exe.program.constants).items():
        if name in places:
            flat[name][places[name]] = array
    for step in graph.steps:
        lowered = lower(step, graph, target)
        launch(lowered, flat, planned=plan(lowered.kernel, target), order=order, seed=seed)
    return [flat[name][places[name]] for name in graph.outputs]


def described(exe: Any) -> list[str]:
    """Schedules of the kernels, in order."""
    return [getattr(step, "schedule", "move") for step in exe.schedule.graph.steps]


def without_device(
    name: str, save: Path | None, orders: tuple[str, ...], sizes: tuple[str, ...] = COMPILED
) -> dict[str, Any]:
    """Compile, emit, and interpret one spelling; of large sizes nothing is interpreted."""
    spelling = SPELLINGS[name]
    found: dict[str, Any] = {"name": name}
    every = {"small": spelling.small, "large": spelling.large}
    for size in sizes:
        start = time.process_time()
        row: dict[str, Any] = {"sizes": every[size]}
        found[size] = row
        try:
            exe = compiled(spelling, every[size])
            row["compile_cpu_s"] = round(time.process_time() - start, 2)
            row["kernels"] = described(exe)
            row["characters"] = sum(map(len, exe.source.values()))
            if size != "large":
                row["values"] = _values(spelling, every[size], exe, orders)
                row["right"] = all(right(v, spelling.dtype) for v in row["values"].values())
            elif save is not None:
                save.mkdir(parents=True, exist_ok=True)
                exe.save(save / f"{_file(name)}.axe")
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:600]
    return found


def _values(spelling: Spelling, sizes: Sizes, exe: Any, orders: tuple[str, ...]) -> dict[str, Any]:
    values = {}
    for seed, (kind, order) in enumerate((k, o) for k in KINDS for o in orders):
        held = arrays(spelling, sizes, kind, seed)
        with np.errstate(all="ignore"):
            results = interpreted(exe, held, order, seed)
        values[f"{kind}, {order}"] = worst(spelling, sizes, held, results)
    return values


def _file(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "_")


def is_good(row: dict[str, Any]) -> bool:
    """Whether a spelling compiled at its sizes, and was right where it was run."""
    return all(
        "error" not in r and r.get("right", True) for r in row.values() if isinstance(r, dict)
    )


# -- on a GPU --


def on_device(name: str, load: Path | None) -> dict[str, Any]:
    """Run the large size of one spelling against float64, and time it."""
    import torch

    spelling, sizes = SPELLINGS[name], SPELLINGS[name].large
    row: dict[str, Any] = {"sizes": sizes, "values": {}}
    try:
        if load is None:
            exe = compiled(spelling, sizes)
        else:
            import axe_eq as axe

            exe = axe.load(load / f"{_file(name)}.axe")
        for seed, kind in enumerate(KINDS):
            host = arrays(spelling, sizes, kind, seed)
            held = {n: torch.from_numpy(a).cuda() for n, a in host.items()}
            if spelling.dtype == "bf16":
                held = {n: a.bfloat16() for n, a in held.items()}
            bound = exe.bind(*held.values())
            results = bound()
            for _ in range(REPEATS):
                for out in results if isinstance(results, list | tuple) else [results]:
                    out.fill_(float("nan"))
                bound()
            torch.cuda.synchronize()
            row["values"][kind] = worst(spelling, sizes, held, results, torch)
            if kind == KINDS[0]:
                row["times"] = _times(spelling, sizes, held, bound)
        row["right"] = all(right(v, spelling.dtype) for v in row["values"].values())
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"[:600]
    torch.cuda.empty_cache()
    return {"name": name, "large": row}


def _times(spelling: Spelling, sizes: Sizes, held: Arrays, bound: Any) -> dict[str, Any]:
    """Microseconds and operations per second: the median of bursts, in turns with torch's."""
    import torch

    runs = {"axe": bound}
    if spelling.peer is not None:
        q, k, v = (held[n].reshape(-1, *held[n].shape[-2:])[None] for n in "qkv")
        runs["torch"] = partial(
            torch.nn.functional.scaled_dot_product_attention, q, k, v,
            is_causal=spelling.peer == "causal",
        )  # fmt: skip
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            time.sleep(IDLE_S)
            run()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(REPEATS):
                run()
            end.record()
            torch.cuda.synchronize()
            found[name].append(start.elapsed_time(end) / REPEATS * 1e3)
    us = {name: sorted(times)[len(times) // 2] for name, times in found.items()}
    n = work(spelling, sizes)
    return {name: {"us": round(t, 2), "rate": n / t * 1e6} for name, t in us.items()}


def _gpu_machine() -> dict[str, Any]:
    try:
        import torch
    except ImportError as error:
        raise absent(error) from None
    torch.set_default_device("cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
    }


def main() -> None:
    """Run what was asked for and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(SPELLINGS), metavar="NAME")
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--save", type=Path, help="a folder for the large programs")
    parser.add_argument("--load", type=Path, help="where --save wrote, on a machine with a GPU")
    parser.add_argument("--gpu", action="store_true", help="run on this machine's GPU")
    parser.add_argument("--interpret", choices=["small"], help="nothing but this")
    parser.add_argument("--order", nargs="+", default=["random", "late"], metavar="ORDER")
    options = parser.parse_args()
    result: dict[str, Any] = {"cases": []}
    if options.gpu:
        result["machine"] = _gpu_machine()
    for name in told(options.only or list(SPELLINGS), "spelling"):
        if options.gpu:
            row = on_device(name, options.load)
        else:
            sizes = (options.interpret,) if options.interpret else COMPILED
            row = without_device(name, options.save, tuple(options.order), sizes)
        result["cases"].append(row)
        print("good" if is_good(row) else "BAD ", json.dumps(row), flush=True)
        if options.out:
            options.out.write_text(json.dumps(result, indent=1))
    good = sum(map(is_good, result["cases"]))
    print(f"{good} of {len(result['cases'])} are right")


if __name__ == "__main__":
    main()

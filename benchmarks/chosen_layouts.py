"""Programs whose inputs and outputs lie as the compiler chooses, against dense row-major ones.

    python -m benchmarks.chosen_layouts [--drawn COUNT] [--only NAME ...] [--out FILE]
    python -m benchmarks.chosen_layouts [--drawn COUNT] --prepare FOLDER
    python -m benchmarks.chosen_layouts --gpu FOLDER [--out FILE]
    python -m benchmarks.chosen_layouts --blocks COUNT [--target trn2] [--kept FORM ...]

compiles every program of `PROGRAMS` for an H200 twice, dense and with ``layout="any"`` everywhere,
and prints both estimates with the layouts chosen; `--drawn` does so with programs drawn by seed,
and interprets what was emitted against float64. No GPU is needed. With `--prepare` both of each are
saved instead, where more than 5 % is predicted; with `--gpu` such are run on this machine's GPU,
compared, and timed in turns. Packing the arrays is not in the times. Dense ones have all values
between kernels in rows along their last dims as well. `--blocks` draws programs of short rows,
turned dims and split ones, whose inputs or outputs alone are left to the compiler: with the kinds
that name no form of blocks, and with all that the target lists, or that `--kept` adds.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import AxeError
from axe_eq.pack import packs
from axe_eq.program.node import Program
from axe_eq.program.types import ANY, DTYPES
from axe_eq.program.types import dtype as named
from axe_eq.run.store import load
from axe_eq.schedule.kept import KINDS
from benchmarks.cuda_saved import n_sets
from benchmarks.drawn_programs import FAMILIES, case, inputs, kind_of
from benchmarks.programs import LARGE, RIGHT, compared, judged
from benchmarks.terminal import absent, told

xp = axe.array
Shape = tuple[int, ...]
TOLERANCE = {"f16": 4e-3, "bf16": 3e-2}  # of the largest value
MOST_SETS = 48  # of arrays that take turns
LEAST_GAIN = 1.05  # predicted, from which on a program counts


def _product(a: Any, b: Any) -> Any:
    return a @ b


# Name: function, shapes of its inputs, element type.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Shape, ...], str]] = {
    "product 4095": (_product, ((4095, 4095), (4095, 4095)), "f16"),
    "product 4096x4095x4096": (_product, ((4096, 4095), (4095, 4096)), "f16"),
    "product 4096x4096x4095": (_product, ((4096, 4096), (4096, 4095)), "f16"),
    "product 3333x1035x1037": (_product, ((3333, 1035), (1035, 1037)), "f16"),
    "product 64x4095x4095": (_product, ((64, 4095), (4095, 4095)), "f16"),
    "product 16x5001x5001": (_product, ((16, 5001), (5001, 5001)), "f16"),
    "product 2048x2049x2048, bf16": (_product, ((2048, 2049), (2049, 2048)), "bf16"),
    "batches": (_product, ((16, 512, 511), (16, 511, 512)), "f16"),
    "product with a transpose": (lambda a, b: a @ b.T, ((4096, 1021), (4096, 1021)), "f16"),
    "gram matrix": (lambda a: a.T @ a, ((8191, 1023),), "f16"),
    "layer": (
        lambda x, w, b: nn.relu(x @ w + b), ((2048, 2047), (2047, 2047), (2047,)), "f16",
    ),
    "gated": (
        lambda x, w, v: nn.silu(x @ w) * (x @ v),
        ((2048, 1023), (1023, 2049), (1023, 2049)), "f16",
    ),
    "two layers": (
        lambda x, w, v: nn.gelu(x @ w) @ v, ((2048, 1025), (1025, 4097), (4097, 1025)), "f16",
    ),
    "scores of heads": (
        lambda q, k: nn.einsum("shd,thd->hst", q, k), ((1024, 16, 65), (1024, 16, 65)), "f16",
    ),
    "softmax of columns": (
        lambda a, b: xp.sum(xp.exp(nn.softmax(a @ b, axis=0)), axis=0),
        ((4096, 512), (512, 2048)), "f16",
    ),
    "attention, heads of 63": (
        lambda q, k, v: nn.softmax(q @ xp.permute_dims(k, (0, 2, 1)) * 0.125, axis=-1) @ v,
        ((32, 1024, 63),) * 3, "f16",
    ),
}  # fmt: skip


def anywhere(program: Program) -> Program:
    """The program with the layout of every input and output left to the compiler."""
    inputs = tuple(replace(i, layout=ANY) for i in program.inputs)
    outputs: tuple[Any, ...] = (ANY,) * len(program.outputs)
    return replace(program, inputs=inputs, output_layouts=outputs)


def both(program: Program, target: str = "h200") -> tuple[Any, Any]:
    """It compiled with everything dense, and with the layouts of all values chosen."""
    dense = next(p.targets[target] for p in packs() if target in p.targets).replace(kept=())
    return axe.compile(program, target=dense), axe.compile(anywhere(program), target=target)


def apart(exe: Any) -> dict[str, str]:
    """The layouts of its values that are not dense."""
    found = {n: str(layout) for n, layout in exe.layouts.items() if len(layout.shard) > 1}
    held = [b for b in exe.schedule.graph.buffers.values() if b.role == "temporary"]
    return found | {b.name: b.layout for b in held if len(axe.Layout.parse(b.layout).shard) > 1}


def described(dense: Any, chosen: Any) -> dict[str, Any]:
    """Estimates of the two, and the layouts that are not dense."""
    us = [exe.cost["time_s"] * 1e6 for exe in (dense, chosen)]
    return {
        "dense_us": round(us[0], 3), "chosen_us": round(us[1], 3),
        "predicted": round(us[0] / us[1], 3) if us[1] else 1.0, "layouts": apart(chosen),
    }  # fmt: skip


def drawn(seed: int, target: str = "h200") -> dict[str, Any]:
    """What becomes of the program of a seed: its state is that of `benchmarks.programs`."""
    found = case(seed)
    row: dict[str, Any] = {"name": found.name}
    try:
        dense, chosen = both(found.program, target)
    except AxeError as error:
        return row | {"state": "refused", "problem": str(error)[:300]}
    row |= described(dense, chosen)
    row["state"], row["problem"] = compared(
        seed, chosen, found.program, found.values, "interpreter"
    )
    dearer = row["chosen_us"] > row["dense_us"] + 1e-3
    return row | {"state": "dearer"} if dearer else row


def in_blocks(seed: int) -> tuple[str, Program]:
    """A program of short rows, turned or split dims, with its name; one side of it is left open."""
    rng = random.Random(f"blocks {seed}")
    some = rng.choice
    kind, dtype = (
        some(("order", "orders", "pairs", "heads", "depth")),
        some(("bf16", "bf16", "f32")),
    )
    f = some((lambda x: x * 2 + 1, nn.gelu, xp.exp, xp.abs))
    shapes: list[Shape]
    if kind == "order":
        shapes = [(some((256, 512, 1024)), some((256, 384, 512)), some((2, 4, 8, 16)))]
        fn: Callable[..., Any] = lambda x: f(xp.permute_dims(x, (1, 0, 2)))  # noqa: E731
    elif kind == "orders":
        shapes = [(some((8, 16, 64)), some((32, 64, 128)), some((32, 64)), some((2, 4, 8)))]
        order = (*rng.sample(range(3), 3), 3)
        fn = lambda x: f(xp.permute_dims(x, order))  # noqa: E731
    elif kind == "pairs":
        batch = some((1, 4, 8, 16)), some((1024, 2048, 4096, 8192))
        shapes = [(*batch, some((8, 16, 32, 64))) for _ in range(2)]
        fn = lambda k, v: nn.einsum("htd,hte->hde", k, v)  # noqa: E731
    elif kind == "heads":
        s, h, d = some((512, 1024)), some((16, 32)), some((4, 8, 16))
        shapes = [(s, h * d)]
        fn = lambda x: nn.softmax(xp.permute_dims(xp.reshape(x, (s, h, d)), (1, 0, 2)))  # noqa: E731
    else:
        n, c, r = some((32, 64, 128)), some((8, 16, 32)), some((2, 4))
        shapes = [(c, n, n)]
        cut, to = (c, n // r, r, n // r, r), (c * r * r, n // r, n // r)
        fn = lambda x: f(xp.reshape(xp.permute_dims(xp.reshape(x, cut), (0, 2, 4, 1, 3)), to))  # noqa: E731
    program, side = axe.trace(fn, *(axe.Spec(of, dtype) for of in shapes)), some(("in", "out"))
    if side == "in":
        program = replace(program, inputs=anywhere(program).inputs)
    else:
        program = replace(program, output_layouts=anywhere(program).output_layouts)
    texts = (f"{'x'.join(map(str, of))}:{dtype}" for of in shapes)
    return f"{seed} {kind} {' '.join(texts)} {side}", program


def blocks(seed: int, target: str, more: Sequence[str] = ()) -> dict[str, Any]:
    """What forms of blocks save a drawn program of `in_blocks`, by price."""
    name, program = in_blocks(seed)
    machine = next(p.targets[target] for p in packs() if target in p.targets)
    kinds = tuple(k for k in machine.kept if k in KINDS)
    without = axe.compile(program, target=machine.replace(kept=kinds))
    chosen = axe.compile(program, target=machine.replace(kept=(*machine.kept, *more)))
    row = {"name": name, **described(without, chosen)}
    dearer = row["chosen_us"] > row["dense_us"] + 1e-3
    return row | {"state": "dearer"} if dearer else row


def traced(name: str) -> Program:
    """A program of `PROGRAMS`."""
    fn, shapes, dtype = PROGRAMS[name]
    return axe.trace(fn, *(axe.Spec(of, dtype) for of in shapes))


def compiled(name: str) -> dict[str, Any]:
    """Estimates of a program of `PROGRAMS`."""
    return {"name": name, **described(*both(traced(name)))}


# -- on a GPU --


def _found(which: int | str) -> tuple[str, Program, Callable[[], Sequence[Any]]]:
    """A drawn program by its seed, or one of `PROGRAMS`: name, program, and random data for it."""
    if isinstance(which, int):
        of = case(which)
        return of.name, of.program, lambda: inputs(which, of.program, of.values)
    _, shapes, dtype = PROGRAMS[which]
    rng = np.random.default_rng(0)
    return which, traced(which), lambda: [
        rng.normal(size=of).astype(DTYPES[dtype].numpy) for of in shapes
    ]  # fmt: skip


def prepared(which: int | str, folder: Path) -> None:
    """Keep both of a program, and what is known of it, where more than 5 % is predicted."""
    name, program, _ = _found(which)
    row: dict[str, Any] = {"which": which, "name": name}
    try:
        if apart(axe.compile(anywhere(program), target="h200")):  # else it is the dense one
            dense, chosen = both(program)
            row |= described(dense, chosen)
    except AxeError as error:
        row |= {"state": "refused", "problem": str(error)[:300]}
    if row.get("predicted", 1.0) >= LEAST_GAIN:
        dense.save(folder / f"{which}.dense.axe")
        chosen.save(folder / f"{which}.chosen.axe")
    (folder / f"{which}.json").write_text(json.dumps(row), encoding="utf-8")


def prepare(work: Sequence[int | str], folder: Path) -> None:
    """Compile programs side by side, for `measured`; no GPU is needed."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(prepared, which, folder) for which in work]
        for _, done in zip(told(work, "program"), waiting, strict=True):
            done.result()


def measured(path: Path) -> dict[str, Any]:
    """What `prepared` kept of a program, with times where it kept both."""
    row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    which = row.pop("which")
    if row.get("predicted", 1.0) < LEAST_GAIN:
        return row
    dense, chosen = (load(path.with_suffix(f".{kind}.axe")) for kind in ("dense", "chosen"))
    _, program, draw = _found(which)
    names, arrays = [i.name for i in program.inputs], list(draw())
    row |= timed(dense, chosen, names, arrays)
    if not row["right"]:  # sums in another order, perhaps
        given = [chosen.pack(n, _on_device(a)) for n, a in zip(names, arrays, strict=True)]
        found = [_on_host(a) for a in _leaves(chosen(*given))]
        row["state"], row["problem"] = judged(program, arrays, found)
        row["right"] = row["state"] == RIGHT
    return row


def timed(dense: Any, chosen: Any, names: Sequence[str], host: Sequence[Any]) -> dict[str, Any]:
    """Whether both give the same on these arrays, and their times in turns, in CUDA graphs."""
    import torch

    from benchmarks.cuda import graphs

    count = min(MOST_SETS, n_sets(sum(a.nbytes for a in host)))
    sets = [[_on_device(a) for a in host] for _ in range(count)]
    packed = [[chosen.pack(n, a) for n, a in zip(names, given, strict=True)] for given in sets]
    first, second = (_leaves(run(*given[0])) for run, given in ((dense, sets), (chosen, packed)))
    torch.cuda.synchronize()
    worst, right = 0.0, True
    for a, b in zip(first, second, strict=True):
        largest = a.double().abs().nan_to_num(posinf=0.0).max().clamp(min=1e-30)
        off = float(((a.double() - b.double()).abs().nan_to_num() / largest).max())
        narrow = {torch.float16: "f16", torch.bfloat16: "bf16"}.get(a.dtype, "")
        worst, right = max(worst, off), right and off <= TOLERANCE.get(narrow, 1e-5)
    runs = {"dense": [dense.bind(*g) for g in sets], "chosen": [chosen.bind(*g) for g in packed]}
    times = {name: median(ms) * 1e3 for name, ms in graphs(runs).items()}
    row: dict[str, Any] = {"apart": worst, "right": right}
    row |= {f"{n}_measured_us": round(t, 3) for n, t in times.items()}
    row["measured"] = round(times["dense"] / times["chosen"], 3)
    torch.cuda.empty_cache()
    return row


def _on_device(array: Any) -> Any:
    """An array on the GPU; torch knows none of numpy's narrow floats."""
    import torch

    words = torch.from_numpy(np.asarray(array, order="C").view(f"i{array.itemsize}")).cuda()
    return words.view(getattr(torch, named(array.dtype).scalar.rstrip("_")))


def _on_host(array: Any) -> Any:
    """The other way."""
    import torch

    words = array.contiguous().view(getattr(torch, f"int{8 * array.itemsize}")).cpu().numpy()
    return words.view(named(str(array.dtype)[len("torch.") :]).numpy)


def _leaves(made: Any) -> list[Any]:
    """The arrays of a result, however they are nested."""
    if isinstance(made, dict):
        made = list(made.values())
    if isinstance(made, list | tuple):
        return [leaf for part in made for leaf in _leaves(part)]
    return [made]


def _machine() -> dict[str, Any]:
    try:
        import torch
    except ImportError as error:
        raise absent(error) from None
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def main() -> None:
    """Run what was asked for and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), metavar="NAME")
    parser.add_argument("--drawn", type=int, default=0, metavar="COUNT")
    parser.add_argument("--blocks", type=int, default=0, metavar="COUNT")
    parser.add_argument("--target", default="h200", help="of --blocks")
    parser.add_argument(
        "--kept", nargs="+", default=[], metavar="FORM", help="more forms of blocks"
    )
    parser.add_argument("--first", type=int, default=0, help="first seed of those drawn")
    parser.add_argument("--kinds", nargs="*", choices=[*FAMILIES, "generic"], help="of --drawn")
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--prepare", type=Path, help="compile for --gpu and save there")
    parser.add_argument("--gpu", type=Path, help="run what was saved there on this machine's GPU")
    options = parser.parse_args()
    result: dict[str, Any] = {"cases": []}
    seeds: Sequence[int] = range(options.first, options.first + max(options.drawn, options.blocks))
    if options.kinds:
        seeds = [seed for seed in seeds if kind_of(seed) in options.kinds]
    drawn_, names = options.drawn > 0, options.only or list(PROGRAMS)
    if options.prepare:
        prepare(seeds if drawn_ else names, options.prepare)
        return
    work: list[Callable[[], dict[str, Any]]]
    if options.gpu:
        result["machine"] = _machine()
        work = [partial(measured, path) for path in sorted(options.gpu.glob("*.json"))]
    elif options.blocks:
        work = [partial(blocks, seed, options.target, options.kept) for seed in seeds]
    elif drawn_:
        work = [partial(drawn, seed) for seed in seeds]
    else:
        work = [partial(compiled, name) for name in names]
    for done in told(work, "program"):
        result["cases"].append(done())
        print(json.dumps(result["cases"][-1]), flush=True)
        if options.out:
            options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(summary(result["cases"]))


def summary(rows: list[dict[str, Any]]) -> str:
    """How many of those with a gain predicted are faster, and what is wrong."""
    gains = [r for r in rows if r.get("predicted", 1.0) >= LEAST_GAIN]
    timed = [r for r in gains if "measured" in r]
    faster = sum(r["measured"] > 1 for r in timed)
    fine = (RIGHT, LARGE, "refused")
    wrong = [
        r["name"] for r in rows if not (r.get("right", True) and r.get("state", RIGHT) in fine)
    ]
    said = f"{len(rows)} programs, {len(gains)} with more than 5 % predicted"
    if timed:
        said += f", {faster} of {len(timed)} faster"
    return f"{said}; wrong or dearer: {', '.join(wrong) or 'none'}"


if __name__ == "__main__":
    main()

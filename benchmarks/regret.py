"""Estimates against time, and what was chosen against what was not, on this machine's GPU.

    python -m benchmarks.regret [--first SEED] [--count N] [--target h200] [--out FILE]
    python -m benchmarks.regret --show FILE [--plot FILE.svg]

Programs are drawn by seed over all schedules (`benchmarks.regret_programs`). Of every kernel that
the compiler chose, the choice, the six candidates nearest by price and six drawn among the others
are built and measured alone: CUDA graphs of calls on rotating memory, medians. Regret is the
choice's time over that of the fastest; an estimate is off by time over estimate. Outputs of all
candidates are compared with the choice's on the same random arrays first.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from benchmarks.regret_programs import drawn
from benchmarks.terminal import need, told

NEAR, FAR, MOST = 6, 6, 48
SHARE_S = 0.03  # for the rounds of one candidate
Row = dict[str, Any]


def prepared(seed: int, target: str) -> list[Row]:
    """The kernels of a seed's program, each with its candidates as machine code."""
    import axe_eq as axe
    from axe_eq.errors import AxeError
    from axe_eq.extract.search.commit import as_priced
    from axe_eq.extract.search.merge import stored
    from axe_eq.run.timing import alone

    kind, fn, specs = drawn(seed)
    base = {"seed": seed, "kind": kind, "specs": specs}
    try:
        with axe.debug(cache=0):
            exe = axe.compile(fn, *specs, target=target)
    except AxeError as error:
        return [{**base, "failed": str(error)}]
    found, graph = exe._searched, exe.schedule.graph
    runner = exe.schedule.runners[exe.target.family]
    rows = []
    for step, group in zip(graph.kernels, found.groups, strict=True):
        layouts = stored(found.forest, group)
        prices = [*found.prices.nearest(group.roots, group.picks, layouts, MOST)]
        far = prices[NEAR + 1 :]
        random.Random(seed).shuffle(far)
        candidates = []
        for price in [*prices[: NEAR + 1], *far[:FAR]]:
            made = replace(as_priced(step, price), rejected={})
            try:
                code = runner.compile(alone(graph, made), exe.target)
            except AxeError:
                continue
            way = " ".join(f"{n}={v}" for n, v in price.parameters)
            candidates.append({"schedule": price.schedule, "row": price.row, "parameters": way,
                               "estimate_s": price.time_s, "code": code})  # fmt: skip
        rows.append({**base, "kernel": step.name, "bytes": dict(step.costs).get("gmem_bytes", 0),
                     "candidates": candidates})  # fmt: skip
    return rows


def measured(row: Row) -> Row:
    """A kernel with the seconds of its candidates, those that compute what the choice computes."""
    from axe_eq.program.types import ValueType
    from axe_eq.run.timing import drawn as random_array
    from axe_eq_backends.cuda.run import load
    from axe_eq_backends.cuda.timing import timed

    wanted: list[Any] = []
    for candidate in row["candidates"]:
        program = load(candidate.pop("code"))
        code, rng = program.code, np.random.default_rng(row["seed"])
        ports = [code.ports[n] for n in code.inputs]
        results = program([random_array(ValueType(p.dtype, p.shape), rng) for p in ports])
        wanted = wanted or results
        candidate["apart"] = max(map(_apart, results, wanted), default=0.0)
        seconds = timed(program, SHARE_S)
        candidate["time_s"] = statistics.median(seconds)
        candidate["spread"] = (max(seconds) - min(seconds)) / candidate["time_s"]
    return row


def _apart(a: Any, b: Any) -> float:
    """The norm of a difference over that of what is wanted."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    both = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~both], b[~both], equal_nan=True):
        return float("inf")
    return float(np.linalg.norm((a - b)[both]) / (np.linalg.norm(b[both]) or 1.0))


def gone_through(seeds: Sequence[int], target: str) -> Iterator[Row]:
    """Rows of all seeds: compiled side by side, measured one by one."""
    workers = max(1, (os.cpu_count() or 2) - 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(prepared, seed, target) for seed in seeds]
        for _, future in zip(told(seeds, "seed"), waiting, strict=True):
            for row in future.result():
                yield row if "failed" in row else measured(row)


# -- what is said --


def figures(rows: Sequence[Row]) -> list[Row]:
    """Per kernel: what it took over its estimate, and over the fastest candidate."""
    found = []
    for row in rows:
        if "failed" in row or not row["candidates"]:
            continue
        chosen, *_ = row["candidates"]
        fastest = min(row["candidates"], key=lambda c: c["time_s"])
        found.append({
            **{n: row[n] for n in ("seed", "kind", "specs")},
            "schedule": f"{chosen['schedule']} {chosen['row']}".strip(),
            "time_s": chosen["time_s"], "missed": chosen["time_s"] / chosen["estimate_s"],
            "regret": chosen["time_s"] / fastest["time_s"],
            "fastest": f"{fastest['schedule']} {fastest['row']} {fastest['parameters']}",
            "chosen": chosen["parameters"],
        })  # fmt: skip
    return found


def summed(found: Sequence[Row]) -> Row:
    """Figures of several kernels."""
    regrets, missed = [f["regret"] for f in found], [f["missed"] for f in found]
    return {
        "kernels": len(found),
        "regret_median": statistics.median(regrets), "regret_worst": max(regrets),
        "within_30": sum(1 / 1.3 <= m <= 1.3 for m in missed) / len(missed),
        "within_2x": sum(0.5 <= m <= 2 for m in missed) / len(missed),
        "missed_median": statistics.median(missed), "missed_worst": max(missed, key=_off),
    }  # fmt: skip


def _off(missed: float) -> float:
    return max(missed, 1 / missed)


def show(rows: Sequence[Row]) -> None:
    """Tables by kind and by schedule, and the worst kernels."""
    found = figures(rows)
    console = Console(width=150)
    for title, by in (("kind", "kind"), ("schedule", "schedule")):
        table = Table(title=f"by {title}")
        names = ["kernels", "regret median", "worst", "within 30 %", "within 2x",
                 "time / estimate", "worst"]  # fmt: skip
        for name in (title, *names):
            table.add_column(name)
        groups = {f[by]: [g for g in found if g[by] == f[by]] for f in found}
        for name, some in [*sorted(groups.items()), ("all", found)]:
            s = summed(some)
            table.add_row(
                name, str(s["kernels"]), f"{s['regret_median']:.3f}", f"{s['regret_worst']:.2f}",
                f"{s['within_30']:.0%}", f"{s['within_2x']:.0%}", f"{s['missed_median']:.2f}",
                f"{s['missed_worst']:.2f}",
            )  # fmt: skip
        console.print(table)
    for key, title in ((lambda f: -f["regret"], "regret"), (lambda f: -_off(f["missed"]), "miss")):
        console.print(f"worst by {title}:")
        for f in sorted(found, key=key)[:12]:
            console.print(
                f"  {f['seed']} {f['kind']} {' '.join(f['specs'])} {f['schedule']} {f['chosen']}: "
                f"{f['time_s'] * 1e6:.1f} us, time / estimate {f['missed']:.2f}, regret "
                f"{f['regret']:.2f} to {f['fastest']}", highlight=False,
            )  # fmt: skip
    apart = [c["apart"] for r in rows for c in r.get("candidates", [])]
    console.print(f"{len(apart)} candidates, largest difference from the choice {max(apart):.1e}; "
                  f"{sum('failed' in r for r in rows)} programs failed")  # fmt: skip


def plot(rows: Sequence[Row], path: Path) -> None:
    """Time against estimate, a dot per kernel, as SVG."""
    need("matplotlib")
    import matplotlib.pyplot as plt

    found = figures(rows)
    figure, axes = plt.subplots(figsize=(6, 6))
    for kind in sorted({f["kind"] for f in found}):
        some = [f for f in found if f["kind"] == kind]
        times = [f["time_s"] * 1e6 for f in some]
        axes.loglog([t / f["missed"] for t, f in zip(times, some, strict=True)], times, ".",
                    label=kind)  # fmt: skip
    ends = [1.0, max(f["time_s"] for f in found) * 1e6]
    for factor, style in ((1.0, "-"), (1.3, ":"), (1 / 1.3, ":"), (2.0, "--"), (0.5, "--")):
        axes.plot(ends, [e * factor for e in ends], style, color="grey", linewidth=0.7)
    axes.set(xlabel="estimate, us", ylabel="measured, us")
    axes.legend(fontsize=7)
    figure.savefig(path)


def main() -> None:
    """Measure, or show what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/regret.json")
    parser.add_argument("--show", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    if given.show is None:
        seeds = range(given.first, given.first + given.count)
        rows = list(gone_through(seeds, given.target))
        from axe_eq_backends.cuda.driver import default_device, device_name

        data = {"machine": {**machine(), "gpu": device_name(default_device())}, "rows": rows,
                "figures": summed(figures(rows))}  # fmt: skip
        given.out.write_text(json.dumps(data) + "\n")
    rows = json.loads((given.show or given.out).read_text())["rows"]
    show(rows)
    if given.plot is not None:
        plot(rows, given.plot)


if __name__ == "__main__":
    main()

"""The layout algebra against its peers.

``python -m benchmarks.layout`` writes results/layout.json and prints tables: microseconds per
operation, number of iters and size. Peers take part where they are installed. Every figure is of
questions of their own on fresh values, contestants in random order; answers are checked against the
definition before anything is timed. "seen" is ours when the same object is asked again.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.layout_cases import OPERATIONS, Case, Maker
from benchmarks.layout_peers import Contestant, contestants
from benchmarks.machine import machine

RESULT = Path(__file__).parent / "results" / "layout.json"
ITERS = (4, 8, 16)
LOG2 = (10, 16, 20, 24)
CASES = 200
WARM = 20  # cases before the clock starts
BATCH = 10  # cases of one contestant in a row: a slow peer's memory traffic is not the next one's

Row = dict[str, Any]


def timed(call: Callable[[], Any]) -> float:
    """Microseconds of one call."""
    began = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - began) / 1000


def summary(samples: Sequence[float]) -> Row:
    """Median and spread of some microseconds."""
    tenths = statistics.quantiles(samples, n=10)
    return {"median_us": statistics.median(samples), "p10_us": tenths[0], "p90_us": tenths[-1]}


def verdict(who: Contestant, case: Case) -> str:
    """Whether a contestant answers rightly: right, wrong, refused or absent."""
    prepared = who.prepare(case.op, case.operands)
    if prepared is None:
        return "absent"
    call, read = prepared
    try:
        answer = read(call())
    except Exception:  # peers refuse with exceptions of their own
        return "refused"
    return "refused" if answer is None else "right" if case.holds(answer) else "wrong"


def measured(op: str, iters: int, log2: int, count: int, field: Sequence[Contestant]) -> list[Row]:
    """One cell: every contestant on the same cases, those that it answers rightly timed."""
    cases = list(islice(Maker(iters, log2, 0).cases(op), count + WARM))
    verdicts = [{who.name: verdict(who, case) for who in field} for case in cases]
    fresh: dict[str, list[float]] = {who.name: [] for who in field}
    again: dict[str, list[float]] = {who.name: [] for who in field}
    order = random.Random(op)
    gc.collect()
    gc.disable()
    for start in range(0, len(cases), BATCH):
        for who in order.sample(field, len(field)):
            for number in range(start, min(start + BATCH, len(cases))):
                prepared = who.prepare(op, cases[number].operands)
                if prepared is None or verdicts[number][who.name] != "right":
                    continue
                first, second = timed(prepared[0]), timed(prepared[0])
                if number >= WARM:
                    fresh[who.name].append(first)
                    again[who.name].append(second)
    gc.enable()
    rows = []
    for who in field:
        said = [found[who.name] for found in verdicts]
        if set(said) == {"absent"}:
            continue
        row = {"op": op, "iters": iters, "log2": log2, "who": who.name, "cases": len(said)}
        row |= {"right": said.count("right"), "wrong": said.count("wrong")}
        if len(fresh[who.name]) >= 2:
            row |= summary(fresh[who.name])
            row["again_us"] = statistics.median(again[who.name])
        rows.append(row)
    return rows


def cells() -> list[tuple[str, int, int]]:
    """Every operation, number of iters and size for which such layouts exist."""
    return [(op, k, n) for op in OPERATIONS for k in ITERS for n in LOG2 if k <= n]


def table(rows: Sequence[Row], field: Sequence[Contestant]) -> Table:
    """Medians with their spread, and how many times longer than ours a peer takes."""
    shown = Table(title="layout operations, microseconds: median (10th to 90th percentile)")
    for column in ("operation", "iters", "elements", *(who.name for who in field), "seen"):
        shown.add_column(column, justify="left" if column == "operation" else "right")
    for op, iters, log2 in dict.fromkeys((r["op"], r["iters"], r["log2"]) for r in rows):
        at = {r["who"]: r for r in rows if (r["op"], r["iters"], r["log2"]) == (op, iters, log2)}
        ours = at[field[0].name]
        parts = [cell(at.get(who.name), ours) for who in field]
        shown.add_row(op, str(iters), f"2^{log2}", *parts, f"{ours['again_us']:.1f}")
    return shown


def cell(row: Row | None, ours: Row) -> str:
    """One contestant's figure; a peer's with its ratio to ours and what it got wrong."""
    if row is None:
        return ""
    wrong = row["cases"] - row["right"]
    note = f", {wrong} of {row['cases']} not answered rightly" if wrong else ""
    if "median_us" not in row:
        return note.lstrip(", ")
    times = "" if row is ours else f" x{row['median_us'] / ours['median_us']:.2f}"
    return f"{row['median_us']:.1f} ({row['p10_us']:.1f}-{row['p90_us']:.1f}){times}{note}"


def ratios(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Operation -> peer -> geometric mean over the cells of its time over ours."""
    found: dict[str, dict[str, list[float]]] = {}
    ours = {(r["op"], r["iters"], r["log2"]): r for r in rows if r["who"] == "axe_eq"}
    for row in rows:
        if row["who"] != "axe_eq" and "median_us" in row:
            base = ours[row["op"], row["iters"], row["log2"]]["median_us"]
            found.setdefault(row["op"], {}).setdefault(row["who"], []).append(
                row["median_us"] / base
            )
    return {
        op: {who: statistics.geometric_mean(values) for who, values in peers.items()}
        for op, peers in found.items()
    }


def main() -> None:
    """Measure everything, print the tables, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="questions per figure")
    parser.add_argument("--ops", nargs="*", default=list(OPERATIONS), choices=OPERATIONS)
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    field = contestants()
    console, progress = Console(), Console(stderr=True)
    rows: list[Row] = []
    chosen = [found for found in cells() if found[0] in given.ops]
    for op, iters, log2 in track(chosen, "measuring operations", console=progress):
        rows += measured(op, iters, log2, given.cases, field)
    console.print(table(rows, field))
    for op, peers in ratios(rows).items():
        console.print(f"{op}: " + ", ".join(f"{who} x{r:.2f}" for who, r in peers.items()))
    if given.no_write:
        return
    result = {
        "machine": {**machine(), "load": os.getloadavg()},
        "contestants": {who.name: who.version() for who in field},
        "operations": rows,
        "times_ours": ratios(rows),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

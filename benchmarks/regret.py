"""Estimates against time, and what was chosen against what was not, on this machine's GPU.

    python -m benchmarks.regret [--first SEED] [--count N] [--kinds KIND ..] [--out FILE]
    python -m benchmarks.regret --prepare FOLDER [--first SEED] [--count N] [--target h200]
    python -m benchmarks.regret --saved FOLDER [--budget SECONDS] [--out FILE]
    python -m benchmarks.regret --tune SECONDS [--first SEED] [--count N] [--budget SECONDS] ..
    python -m benchmarks.regret --show FILE [--plot FILE.svg]

Programs are drawn by seed over all schedules (`benchmarks.regret_programs`). Of every kernel that
the compiler chose, the choice, the six candidates nearest by price and six drawn among all others
of any schedule are built and measured alone: CUDA graphs of calls on rotating memory, medians of
rounds there and, of those that are not far slower, back: what runs first after a pause is slower.
Candidates whose price is above three times the choice's are not drawn. Regret is the choice's time
over that of the fastest, of a kernel, and of a program the sums of its kernels' over each other; an
estimate is off by time over estimate. What every candidate stores is
compared with what the choice stored. --prepare builds them anywhere, a file per seed; --saved
measures those, seed after seed until the budget is spent. --tune measures whole programs instead,
as they are chosen and as `tune=SECONDS` leaves them, in turns.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import pickle
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine
from benchmarks.regret_programs import KINDS, drawn

NEAR, FAR, FARTHEST = 6, 6, 3.0
SHARE_S, ROUND_S = 2.5e-3, 6e-4  # for the rounds of one candidate, there and back, and of one round
NEARLY = 1.3  # of the fastest, that are measured once more
SIDE, MARGIN = 420, 46  # of the plot, in points
COMPARED = 1 << 20  # bytes at either end of a result
Row = dict[str, Any]


def prepared(seed: int, target: str) -> list[Row]:
    """The kernels of a seed's program, each with its candidates as machine code."""
    kind, fn, specs = drawn(seed)
    return built({"seed": seed, "kind": kind, "specs": specs}, fn, specs, target)


def built(
    base: Row, fn: Any, specs: Sequence[Any], target: str, near: int = NEAR, far: int = FAR
) -> list[Row]:
    """The kernels of a program, each with some of its candidates as machine code.

    Args:
        base: what rows of it begin with; its `seed` draws among the farther candidates.
        fn: the program.
        specs: of its arguments.
        target: the machine.
        near: candidates after the choice, by price.
        far: others that are drawn.
    """
    from axe_eq.errors import AxeError
    from benchmarks.offered import offers

    try:
        kernels = list(offers(fn, specs, target))
    except AxeError as error:
        return [{**base, "failed": str(error)}]
    rows = []
    for offer in kernels:
        choice, *others = offer.prices
        runner = offer.exe.schedule.runners[offer.exe.target.family]
        drawn_ = [p for p in others[near:] if p.time_s < FARTHEST * choice.time_s]
        random.Random(base["seed"]).shuffle(drawn_)
        candidates = list[Row]()
        for price in [choice, *others[:near], *drawn_]:
            if len(candidates) > near + far:
                break
            _, graph = offer.made(price)
            try:
                code = runner.compile(graph, offer.exe.target)
            except AxeError:
                continue
            way = " ".join(f"{n}={v}" for n, v in price.parameters)
            candidates.append({"schedule": price.schedule, "row": price.row, "parameters": way,
                               "estimate_s": price.time_s, "code": code})  # fmt: skip
        n_bytes = dict(offer.step.costs).get("gmem_bytes", 0)
        rows.append({**base, "kernel": offer.step.name, "bytes": n_bytes, "candidates": candidates})
    return rows


def whole(seed: int, target: str, tune: float = 0.0) -> list[Row]:
    """A seed's program as machine code, as it is chosen, or tuned for so many seconds here."""
    import axe_eq as axe
    from axe_eq.errors import AxeError

    kind, fn, specs = drawn(seed)
    base: Row = {"seed": seed, "kind": kind, "specs": specs}
    try:
        with axe.debug(cache=0):
            exe = axe.compile(fn, *specs, target=target, tune=tune)
    except AxeError as error:
        return [{**base, "failed": str(error)}]
    code = exe.schedule.runners[exe.target.family].compile(exe.schedule.graph, exe.target)
    way = "; ".join(" ".join(f"{n}={v}" for n, v in k.parameters.items()) for k in exe.kernels)
    return [{**base, "candidates": [
        {"schedule": "tuned" if tune else "plain", "row": "", "parameters": way,
         "estimate_s": exe.cost["time_s"], "code": code}
    ]}]  # fmt: skip


def both(seeds: Sequence[int], target: str, budget_s: float) -> Iterator[tuple[int, list[Row]]]:
    """Whole programs of seeds, as chosen and as tuned, each to be measured three times in turns."""
    for seed, (row,) in compiled(seeds, target, whole):
        (other,) = [row] if "failed" in row else whole(seed, target, budget_s)
        if "failed" not in other:
            row["candidates"] = [dict(c) for c in (*row["candidates"], *other["candidates"]) * 3]
        yield seed, [other if "failed" in other else row]


def over_plain(row: Row) -> float:
    """What a tuned program takes over what it takes as chosen, by the medians of their rounds."""
    tuned, plain = (
        statistics.median(c["time_s"] for c in row["candidates"] if c["schedule"] == way)
        for way in ("tuned", "plain")
    )
    return float(tuned / plain)


def measured(row: Row) -> Row:
    """A kernel with the seconds of its candidates, and how far apart their results are."""
    from axe_eq_backends.cuda import timing
    from axe_eq_backends.cuda.driver import default_device, on
    from axe_eq_backends.cuda.run import load

    programs = [load(candidate.pop("code")) for candidate in row["candidates"]]
    each = list(zip(row["candidates"], programs, strict=True))
    wanted: list[Any] = []
    with on(default_device()):
        sets = timing.rotating(programs[0])  # all candidates have the same ports
        _scatter(programs[0].code, sets)
        for candidate, program in each:
            _results(program.code, sets[0], clear=True)
            candidate["seconds"] = timing.timed(program, SHARE_S, sets, ROUND_S)
            results = _results(program.code, sets[0])
            wanted = wanted or results
            candidate["apart"] = max(map(_apart, results, wanted), default=0.0)
        near = NEARLY * min(statistics.median(candidate["seconds"]) for candidate, _ in each)
        for candidate, program in reversed(each):
            seconds = candidate.pop("seconds")
            if statistics.median(seconds) <= near:
                seconds += timing.timed(program, SHARE_S, sets, ROUND_S)
            candidate["time_s"] = statistics.median(seconds)
            candidate["spread"] = (max(seconds) - min(seconds)) / candidate["time_s"]
    return row


def _scatter(code: Any, sets: Sequence[Sequence[Any]]) -> None:
    """Let integers choose among all rows of the largest array; they were drawn from four."""
    from axe_eq.program.types import DTYPES
    from axe_eq_backends.cuda.driver import upload

    rows = max(code.ports.values(), key=lambda port: port.n_bytes).shape[0]
    for n, (name, port) in enumerate(code.ports.items()):
        if name in code.inputs and DTYPES[port.dtype].kind == "i":
            element, rng = DTYPES[port.dtype].numpy, np.random.default_rng(1)
            chosen = rng.integers(0, rows, port.n_bytes // element.itemsize).astype(element)
            for memories in sets:
                upload(memories[n].pointer, chosen, name)


def _results(code: Any, memories: Sequence[Any], clear: bool = False) -> list[Any]:
    """Both ends of every result, as it lies in memory; with `clear`, made zeros instead."""
    from axe_eq.program.types import DTYPES
    from axe_eq_backends.cuda.driver import download, upload

    found = []
    for (name, port), memory in zip(code.ports.items(), memories, strict=True):
        element = DTYPES[port.dtype].numpy
        n_bytes = min(port.n_bytes, COMPARED) // element.itemsize * element.itemsize
        for first in {0, port.n_bytes - n_bytes} if name in code.made else ():
            part = np.zeros(n_bytes // element.itemsize, element)
            if clear:
                upload(memory.pointer + first, part, name)
            else:
                download(part, memory.pointer + first, name)
            found.append(part)
    return found


def _apart(a: Any, b: Any) -> float:
    """The norm of a difference over that of what is wanted."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    both = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~both], b[~both], equal_nan=True):
        return float("inf")
    return float(np.linalg.norm((a - b)[both]) / (np.linalg.norm(b[both]) or 1.0))


def compiled(
    seeds: Sequence[int], target: str, made: Callable[[int, str], list[Row]] = prepared
) -> Iterator[tuple[int, list[Row]]]:
    """Seeds and their kernels, compiled side by side."""
    from benchmarks.terminal import told

    workers = max(1, (os.cpu_count() or 2) - 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(made, seed, target) for seed in seeds]
        for seed, future in zip(told(seeds, "seed"), waiting, strict=True):
            yield seed, future.result()


def saved(folder: Path) -> Iterator[tuple[int, list[Row]]]:
    """What `--prepare` left in a folder."""
    for path in sorted(folder.glob("*.seed"), key=lambda p: int(p.stem)):
        yield int(path.stem), pickle.loads(gzip.decompress(path.read_bytes()))


def gone_through(found: Iterator[tuple[int, list[Row]]], budget_s: float) -> Iterator[Row]:
    """Rows of seeds until the budget is spent; a kernel that fails costs itself alone."""
    began = time.perf_counter()
    for _, rows in found:
        if time.perf_counter() - began > budget_s:
            return
        for row in rows:
            try:
                yield row if "failed" in row else measured(row)
            except Exception as error:
                yield {**{n: row[n] for n in ("seed", "kind", "specs")}, "failed": repr(error)}


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
            "fastest_s": fastest["time_s"],
            "regret": chosen["time_s"] / fastest["time_s"],
            "fastest": f"{fastest['schedule']} {fastest['row']} {fastest['parameters']}",
            "chosen": chosen["parameters"],
        })  # fmt: skip
    return found


def of_programs(found: Sequence[Row]) -> list[float]:
    """What each program's kernels take over the fastest candidate of every one.

    >>> kernel = {"seed": 1, "time_s": 3.0, "fastest_s": 2.0}
    >>> of_programs([kernel, {"seed": 1, "time_s": 9.0, "fastest_s": 6.0}])
    [1.5]
    """
    sums = dict[Any, tuple[float, float]]()
    for f in found:
        chosen_s, fastest_s = sums.get(f["seed"], (0.0, 0.0))
        sums[f["seed"]] = chosen_s + f["time_s"], fastest_s + f["fastest_s"]
    return [chosen_s / fastest_s for chosen_s, fastest_s in sums.values()]


def summed(found: Sequence[Row]) -> Row:
    """Figures of several kernels."""
    regrets, missed = [f["regret"] for f in found], [f["missed"] for f in found]
    programs = of_programs(found)
    return {
        "kernels": len(found), "programs": len(programs),
        "regret_median": statistics.median(regrets), "regret_worst": max(regrets),
        "program_median": statistics.median(programs), "program_worst": max(programs),
        "within_30": sum(1 / 1.3 <= m <= 1.3 for m in missed) / len(missed),
        "within_2x": sum(0.5 <= m <= 2 for m in missed) / len(missed),
        "missed_median": statistics.median(missed), "missed_worst": max(missed, key=_off),
    }  # fmt: skip


def _off(missed: float) -> float:
    return max(missed, 1 / missed)


def show(rows: Sequence[Row]) -> None:
    """Tables by kind and by schedule, and the worst kernels."""
    from rich.console import Console
    from rich.table import Table

    found = figures(rows)
    console = Console(width=150)
    for title, by in (("kind", "kind"), ("schedule", "schedule")):
        table = Table(title=f"by {title}")
        names = ["kernels", "regret median", "worst", "of programs", "within 30 %", "within 2x",
                 "time / estimate", "worst"]  # fmt: skip
        for name in (title, *names):
            table.add_column(name)
        groups = {f[by]: [g for g in found if g[by] == f[by]] for f in found}
        for name, some in [*sorted(groups.items()), ("all", found)]:
            s = summed(some)
            table.add_row(
                name, str(s["kernels"]), f"{s['regret_median']:.3f}", f"{s['regret_worst']:.2f}",
                f"{s['program_worst']:.2f}", f"{s['within_30']:.0%}", f"{s['within_2x']:.0%}",
                f"{s['missed_median']:.2f}", f"{s['missed_worst']:.2f}",
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
    """Time against estimate, a dot per kernel with its regret as a title, as SVG."""
    found = figures(rows)
    times = [f["time_s"] * 1e6 for f in found]
    estimates = [t / f["missed"] for t, f in zip(times, found, strict=True)]
    ends = [10 ** math.floor(math.log10(min(times + estimates))),
            10 ** math.ceil(math.log10(max(times + estimates)))]  # fmt: skip
    low, high = map(math.log10, ends)

    def at(us: float) -> float:
        return MARGIN + SIDE * (math.log10(us) - low) / (high - low)

    whole, kinds = SIDE + 2 * MARGIN, sorted({f["kind"] for f in found})
    marks = [f'<rect x="{MARGIN}" y="{MARGIN}" width="{SIDE}" height="{SIDE}" fill="none"/>']
    for factor, dashes in ((1.0, ""), (1.3, "2 3"), (1 / 1.3, "2 3"), (2.0, "6 4"), (0.5, "6 4")):
        first, last = max(ends[0], ends[0] / factor), min(ends[1], ends[1] / factor)
        marks.append(
            f'<line x1="{at(first):.1f}" y1="{whole - at(first * factor):.1f}" '
            f'x2="{at(last):.1f}" y2="{whole - at(last * factor):.1f}" '
            f'stroke-dasharray="{dashes}"/>'
        )
    for power in range(round(low), round(high) + 1):
        x = at(10.0**power)
        marks += [f'<text x="{x:.1f}" y="{whole - MARGIN + 14}">{10**power}</text>',
                  f'<text x="{MARGIN - 14}" y="{whole - x:.1f}">{10**power}</text>']  # fmt: skip
    marks.append(f'<text x="{whole / 2}" y="{whole - 6}">estimate, us</text>')
    marks.append(f'<text x="{MARGIN}" y="{MARGIN - 12}">measured, us</text>')
    for time_us, estimate, f in zip(times, estimates, found, strict=True):
        colour = f"hsl({360 * kinds.index(f['kind']) // len(kinds)} 70% 45%)"
        said = f"{f['kind']} {' '.join(f['specs'])}, regret {f['regret']:.2f}"
        marks.append(
            f'<circle cx="{at(estimate):.1f}" cy="{whole - at(time_us):.1f}" r="3" '
            f'fill="{colour}" stroke="none"><title>{said}</title></circle>'
        )
    for n, kind in enumerate(kinds):
        marks.append(
            f'<text x="{MARGIN + 8}" y="{MARGIN + 16 + 13 * n}" text-anchor="start" '
            f'fill="hsl({360 * n // len(kinds)} 70% 45%)">{kind}</text>'
        )
    style = 'font-family="sans-serif" font-size="11" text-anchor="middle" stroke-width="0.7"'
    lines = "\n".join(
        mark.replace("<line", '<line stroke="grey"').replace("<rect", '<rect stroke="grey"')
        for mark in marks
    )
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {whole}" {style}>\n'
        f"{lines}\n</svg>\n", encoding="utf-8",
    )  # fmt: skip


def main() -> None:
    """Measure, or show what was measured."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--first", type=int, default=1, help="seed")
    parser.add_argument("--count", type=int, default=150, help="of seeds")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, help="of programs; all by default")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/regret.json")
    parser.add_argument("--prepare", type=Path)
    parser.add_argument("--saved", type=Path)
    parser.add_argument("--tune", type=float, help="seconds a program")
    parser.add_argument("--budget", type=float, default=math.inf)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    names, wanted = list(KINDS), given.kinds or KINDS
    drawn_ = range(given.first, given.first + given.count)
    seeds = [seed for seed in drawn_ if names[seed % len(names)] in wanted]
    if given.prepare is not None:
        given.prepare.mkdir(parents=True, exist_ok=True)
        for seed, rows in compiled(seeds, given.target):
            path = given.prepare / f"{seed}.seed"
            path.write_bytes(gzip.compress(pickle.dumps(rows)))
        return
    if given.show is None:
        from axe_eq.errors import DeviceError
        from axe_eq_backends.cuda.driver import default_device, device_name

        try:
            gpu = device_name(default_device())
        except DeviceError as error:
            wrong = str(error).partition("\n")[0]
            raise SystemExit(f"{wrong}, or --prepare FOLDER, or --show FILE") from None
        if given.tune:
            found = both(seeds, given.target, given.tune)
        elif given.saved:
            found = saved(given.saved)
        else:
            found = compiled(seeds, given.target)
        rows = list(gone_through(found, given.budget))
        ran = [row for row in rows if "failed" not in row]
        said = {"tuned": [over_plain(row) for row in ran]} if given.tune else summed(figures(rows))
        data = {"machine": {**machine(), "gpu": gpu}, "rows": rows, "figures": said}
        given.out.write_text(json.dumps(data) + "\n")
        if given.saved or given.tune:  # there may be nothing there to show it with
            print(json.dumps(data["figures"]))
            return
    rows = json.loads((given.show or given.out).read_text())["rows"]
    show(rows)
    if given.plot is not None:
        plot(rows, given.plot)


if __name__ == "__main__":
    main()

"""Equality of layouts through the e-graph, by the laws of the layout pack alone."""

from __future__ import annotations

import statistics
import time
from itertools import islice
from math import log
from typing import Any

from rich.table import Table

from axe_eq.egraph.layouts import LayoutGraph
from axe_eq.layout import Layout
from axe_eq.pack import laws_of
from axe_eq_rules.layout import PACK
from benchmarks.layout_cases import Case, Maker

ITERS = (4, 8, 16)
LOG2 = 20
QUESTIONS = 100
ROTATE = 20  # questions before a fresh graph
SIZES = (250, 500, 1000, 2000, 4000)

Row = dict[str, Any]


def graph() -> LayoutGraph:
    """An empty e-graph that knows the laws of the layout pack."""
    return LayoutGraph(laws_of([PACK]))


def questions(op: str, iters: int, count: int) -> list[Case]:
    """Cases whose two operands are equal layouts."""
    return list(islice(Maker(iters, LOG2, 1).cases(op), count))


def sides(case: Case) -> list[Layout]:
    """The two layouts of a case, as new objects."""
    copies = case.op == "equality_copies"
    return [Layout(*side) if copies else Layout(side) for side in case.operands]


def ask(field: LayoutGraph, case: Case) -> float:
    """Microseconds of one question, asked about new objects.

    Raises:
        AssertionError: the laws do not prove it.
    """
    a, b = sides(case)
    began = time.perf_counter_ns()
    proved = field.equal(a, b)
    took = (time.perf_counter_ns() - began) / 1000
    assert proved, f"{a} and {b} are not equal in the e-graph"
    return took


def one_by_one(op: str, iters: int, crowd: int) -> Row:
    """A new question and the same one again, in graphs that hold a crowd of layouts already."""
    cases = questions(op, iters, QUESTIONS)
    others = [Layout(case.operands[0]) for case in questions("equality", iters, crowd + QUESTIONS)]
    new: list[float] = []
    seen: list[float] = []
    for number, case in enumerate(cases):
        if number % ROTATE == 0:
            field = graph()
            field.add(others[QUESTIONS:])
            ask(
                field, questions(op, iters, QUESTIONS + 1)[-1]
            )  # egglog compiles rules when first run
        new.append(ask(field, case))
        seen.append(ask(field, case))
    row: Row = {"op": op, "iters": iters, "layouts": crowd + 2 * ROTATE}
    for name, samples in (("new", new), ("seen", seen)):
        tenths = statistics.quantiles(samples, n=10)
        row |= {f"{name}_us": statistics.median(samples)}
        row |= {f"{name}_p10_us": tenths[0], f"{name}_p90_us": tenths[-1]}
    return row


def together(iters: int) -> list[Row]:
    """Seconds to insert many layouts into one graph and to make the equal ones equal."""
    rows = []
    for size in SIZES:
        layouts = [x for case in questions("equality", iters, size // 2) for x in sides(case)]
        field = graph()
        began = time.perf_counter()
        field.add(layouts)
        took = time.perf_counter() - began
        assert len(field.classes()) <= size // 2
        rows.append({"iters": iters, "layouts": size, "seconds": took})
    return rows


def growth(rows: list[Row]) -> float:
    """The exponent of time in the number of layouts, by least squares: 1 is linear."""
    points = [(log(row["layouts"]), log(row["seconds"])) for row in rows]
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def steps() -> list[tuple[str, str, int, int]]:
    """What `measured` is called with: kind, operation, iters, layouts in the graph before."""
    small = [("ask", op, k, 0) for op in ("equality", "equality_copies") for k in ITERS]
    large = [("ask", op, k, 960) for op in ("equality", "equality_copies") for k in ITERS]
    return [*small, *large, *(("many", "", k, 0) for k in ITERS)]


def measured(kind: str, op: str, iters: int, crowd: int) -> list[Row]:
    """One step."""
    return together(iters) if kind == "many" else [one_by_one(op, iters, crowd)]


def tables(rows: list[Row]) -> list[Table]:
    """Questions one by one, and many layouts at once."""
    asked = Table(
        title="equality through the e-graph, microseconds: median (10th to 90th percentile)"
    )
    for column in ("question", "iters", "layouts in the graph", "new", "seen"):
        asked.add_column(column, justify="left" if column == "question" else "right")
    many = Table(title="many layouts in one e-graph, milliseconds")
    for column in ("iters", *map(str, SIZES), "exponent"):
        many.add_column(column, justify="right")
    for row in (row for row in rows if "new_us" in row):
        cells = [
            f"{row[f'{x}_us']:.0f} ({row[f'{x}_p10_us']:.0f}-{row[f'{x}_p90_us']:.0f})"
            for x in ("new", "seen")
        ]
        asked.add_row(row["op"], str(row["iters"]), f"up to {row['layouts']}", *cells)
    for iters in ITERS:
        mine = [row for row in rows if "seconds" in row and row["iters"] == iters]
        if mine:
            times = [f"{1e3 * row['seconds']:.0f}" for row in mine]
            many.add_row(str(iters), *times, f"{growth(mine):.2f}")
    return [asked, many]

"""`axe bench` and `axe tune`: programs measured where they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from axe_eq.cli.group import as_json_text, axe, json_option
from axe_eq.cli.programs import check_present, compiled, program_options
from axe_eq.run.corrections import MEASURED, learn
from axe_eq.run.timing import alone, device_of, timed
from axe_eq.schedule.quantity import seconds_text

SHARE_S = 0.2  # for the rounds of one kernel


@axe.command()
@program_options
@json_option
def bench(as_json: bool, **options: Any) -> None:
    """Measure on the device, beside estimates.

    Every kernel runs alone on random arrays, then the whole schedule: a median, and the fastest and
    slowest round.
    """
    exe = compiled(**options)
    check_present(exe)
    graph, target = exe.schedule.graph, exe.target
    runner = exe.schedule.runners[target.family]
    parts = [(step.name, step.time_s, alone(graph, step)) for step in graph.steps]
    found = []
    for name, estimate, part in [*parts, ("the whole", graph.time_s, graph)]:
        timing = timed(runner, part, target, SHARE_S)
        found.append({"name": name, "estimate_s": estimate, "median_s": timing.median_s,
                      "least_s": timing.least_s, "most_s": timing.most_s})  # fmt: skip
    if as_json:
        data = {"target": target.name, "device": device_of(runner), "measured": found}
        click.echo(as_json_text(data))
        return
    table = Table(title=f"{target.name}, measured on {device_of(runner)}")
    for column in ("", "estimate", "measured", "fastest", "slowest", "measured / estimate"):
        table.add_column(column, justify="right" if column else "left", overflow="fold")
    for row in found:
        times = [seconds_text(row[n]) for n in ("estimate_s", "median_s", "least_s", "most_s")]
        missed = f"{row['median_s'] / row['estimate_s']:.2f}" if row["estimate_s"] else "-"
        table.add_row(row["name"], *times, missed)
    Console().print(table)


@axe.command()
@program_options
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    help="Seconds for measuring, 60 by default.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Save the executable here.")
@click.option(
    "--corrections",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file to add to by what estimates miss; AXE_CORRECTIONS=FILE uses it.",
)
@json_option
def tune(
    budget: float, output: str | None, corrections: Path | None, as_json: bool, **options: Any
) -> None:
    """Measure candidates, take the fastest.

    Of every kernel those that are nearest by price run; what is slower as a whole is not taken.
    """
    exe = compiled(**options, tune=budget)
    notes: dict[str, Any] = next((s.notes for s in exe.report.stages if s.name == "tune"), {})
    factors = {} if corrections is None else learn(corrections, exe.target, exe.kernels)
    if output is not None:
        exe.save(output)
    if as_json:
        kernels = [
            {"name": k.name, "schedule": k.schedule, "row": k.row, "time_s": k.time_s,
             "parameters": dict(k.parameters), MEASURED: k.costs.get(MEASURED)}
            for k in exe.kernels
        ]  # fmt: skip
        click.echo(as_json_text({"target": exe.target.name, "kernels": kernels, **notes,
                                 "corrections": factors}))  # fmt: skip
        return
    click.echo(str(exe.schedule))
    for kernel in exe.kernels:
        estimate, took = seconds_text(kernel.time_s), seconds_text(kernel.costs[MEASURED])
        click.echo(f"{kernel.name}: measured {took}, estimated {estimate}")
    before, after = seconds_text(notes["before_s"]), seconds_text(notes["after_s"])
    click.echo(f"the whole: {after}, untuned {before}; {notes['measured']} candidates measured")
    for name, factor in factors.items():
        click.echo(f"{name}: estimates are multiplied by {factor:.2f} with {corrections}")

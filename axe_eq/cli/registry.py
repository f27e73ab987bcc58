"""`axe packs list|check` and `axe targets`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from axe_eq.check.lawcheck import check_pack
from axe_eq.cli.group import as_json_text, axe, json_option
from axe_eq.pack import Pack, installed
from axe_eq.pack import packs as find_packs
from axe_eq.pipeline.job import find_target
from axe_eq.schedulecheck import (
    RowFamilyReport,
    ScheduleReport,
    check_row_families,
    check_schedules,
)
from axe_eq.target import Target


@axe.group()
def packs() -> None:
    """The installed packs."""


@packs.command("list")
@json_option
def list_packs(as_json: bool) -> None:
    """Every installed pack with what it registers."""
    rows = [describe(pack) for pack in installed().values()]
    if as_json:
        click.echo(as_json_text(rows))
        return
    table = Table("pack", "version", "laws hold", "laws", "also", box=None)
    for row in rows:
        also = ", ".join(
            [*row["operators"], *row["targets"], *row["schedules"], *row["transports"]]
        )
        table.add_row(row["name"], row["version"], row["numerics"], str(len(row["laws"])), also)
    Console(width=110).print(table)


def describe(pack: Pack) -> dict[str, Any]:
    """A pack as JSON data."""
    return {
        "name": pack.name,
        "version": pack.version,
        "numerics": "exactly" if pack.exact else "over the reals",
        "summary": pack.summary,
        "laws": {name: law.statement for name, law in pack.laws.items()},
        "operators": list(pack.operators),
        "targets": list(pack.targets),
        "schedules": [s.name for s in pack.schedules],
        "transports": list(pack.transports),
    }


@packs.command()
@click.argument("name")
@click.option("--samples", type=click.IntRange(1), default=25, help="Ground instances per law.")
@click.option("--target", help="Machine that schedules are tested for; default: of their family.")
@json_option
def check(name: str, samples: int, target: str | None, as_json: bool) -> None:
    """Test a pack on samples; exit 1: something is wrong.

    Laws, operators, and what its schedules and instruction rows make of sample programs.
    """
    (pack,) = find_packs([name])
    machine = None if target is None else find_target(target, find_packs())
    found = [str(finding) for finding in check_pack(pack, samples)]
    reports: list[ScheduleReport | RowFamilyReport] = []
    reports += check_schedules(pack, machine)
    reports += check_row_families(pack)
    wrong = found + [str(report) for report in reports if report.findings]
    if as_json:
        click.echo(as_json_text(wrong))
    else:
        held = [f"pack {name!r}: {len(pack.laws)} laws hold on samples"]
        if pack.operators:
            held[0] += f", {', '.join(pack.operators)} as declared"
        fine = [str(report) for report in reports if not report.findings]
        click.echo("\n".join([*(found or held), *(w for w in wrong if w not in found), *fine]))
    sys.exit(1 if wrong else 0)


@axe.command()
@click.argument("name", required=False)
@json_option
def targets(name: str | None, as_json: bool) -> None:
    """The known machines; of one, its NAME given, all figures."""
    if name is not None:
        shown = figures(find_target(name, find_packs()))
        click.echo(as_json_text(shown) if as_json else _figures_text(shown))
        return
    known = [t for pack in installed().values() for t in pack.targets.values()]
    if as_json:
        click.echo(as_json_text([figures(t) for t in known]))
        return
    table = Table("target", "family", "units", "memories", "source", box=None)
    for target in known:
        memories = ", ".join(f"{m.name} {_size(m.n_bytes)}" for m in target.memories)
        table.add_row(
            target.name, target.family, f"{target.n_units} {target.unit}", memories, target.source
        )
    Console(width=110).print(table)


def figures(target: Target) -> dict[str, Any]:
    """A target as JSON data; every rate is the whole machine's."""
    return {
        "name": target.name,
        "family": target.family,
        "units": target.n_units,
        "levels": {x.name: x.extent for x in target.levels},
        "memories": {m.name: m.n_bytes for m in target.memories},
        "memory_bytes_per_s": {m.name: m.bytes_per_s for m in target.memories if m.bytes_per_s},
        "memory_rows": {m.name: _row(m, "n_bytes", "bytes_per_s") for m in target.memories},
        "engines": {
            x.name: _row(x) | {"rows": [r.name for r in target.instrs if r.scope == x.name]}
            for x in target.engines
        },
        "completions": {x.name: list(x.scopes) or ["all"] for x in target.completions},
        "vector_flops_per_s": target.vector_flops_per_s,
        "launch_s": target.launch_s,
        "links": {x.name: _row(x) for x in target.links},
        "limits": dict(target.limits),
        "choices": {name: list(sizes) for name, sizes in target.choices.items()},
        "figures": dict(target.figures),
        "rows": [row.name for row in target.instrs],
        "row_flops_per_s": {row.name: row.flops_per_s for row in target.instrs if row.flops_per_s},
        "source": target.source,
    }


def _row(row: Any, *beside: str) -> dict[str, Any]:
    """What a row says, without its name and what stands elsewhere."""
    return {n: x for n, x in asdict(row).items() if x and n not in ("name", *beside)}


def _figures_text(shown: dict[str, Any]) -> str:
    """All figures of a target, one per line; rates with their unit, of the whole machine."""
    lines = [f"{name:<41} {value}" for name, value in _flat(shown)]
    return "\n".join([*lines, "Rates are the whole machine's, of all its units together."])


def _flat(shown: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Every figure with its dotted name; lists in one line."""
    for name, value in shown.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, list | tuple):
            yield before + name, ", ".join(map(str, value))
        else:
            yield before + name, f"{value:.4g}" if isinstance(value, float) else str(value)


def _size(n_bytes: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n_bytes < 1024:
            return f"{n_bytes} {unit}"
        n_bytes //= 1024
    return f"{n_bytes} GiB"

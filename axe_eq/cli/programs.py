"""`axe compile`, `explain`, `run`: programs from files."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np

from axe_eq.cli.group import as_json_text, axe, json_option
from axe_eq.cli.source import load_arrays, load_function, parse_dims, parse_extents, taking
from axe_eq.cli.words import together
from axe_eq.errors import ArgumentError, DeviceError
from axe_eq.files import whole
from axe_eq.pipeline import compile as compile_program
from axe_eq.program.gathers import index_limits
from axe_eq.program.nesting import flatten
from axe_eq.program.types import DTYPES
from axe_eq.run.executable import simulates
from axe_eq.run.store import Loaded, load
from axe_eq.schedule.quantity import bytes_text

# What names a program and how it is compiled.
program_options = together(
    click.argument("function", metavar="FILE:FN"),
    click.option("--spec", "specs", multiple=True, help='One per argument: "8192x4096:f16".'),
    click.option("--target", default=None, help="A machine; see `axe targets`."),
    click.option("--packs", default=None, help="Packs to use, separated by commas."),
    click.option("--without", multiple=True, help="A law or pack to leave out."),
    click.option("--numerics", type=click.Choice(["real", "exact"]), default="real"),
)


def is_saved(function: str) -> bool:
    """Whether what is named is a program that `axe compile -o` wrote, not a function in a file."""
    return function.endswith(".axe") or zipfile.is_zipfile(function)


def saved(function: str, **options: Any) -> Loaded:
    """The program in a file.

    Raises:
        ArgumentError: it does not load, or options say how to compile what is compiled already.
    """
    given = [f"--{name.removesuffix('s') if name == 'specs' else name}"
             for name, value in options.items() if value and value != "real"]  # fmt: skip
    if given:
        wrong = f"is compiled already, and {' '.join(given)} would change nothing"
        raise ArgumentError(f"file {function!r}", wrong, "FILE.py:FUNCTION, or no such options")
    return load(function)


def pack_names(packs: str | None) -> list[str] | None:
    """The packs that an option names; None without one."""
    return [name.strip() for name in packs.split(",")] if packs else None


def compiled(function: str, specs: tuple[str, ...], packs: str | None, **options: Any) -> Any:
    """Compile what the options name; those that are not read here are `compile`'s own."""
    fn = taking(load_function(function), specs)
    return compile_program(fn, *specs, packs=pack_names(packs), **options)


def summary(exe: Any) -> dict[str, Any]:
    """What a compilation chose, as JSON data."""
    return {
        "target": exe.target.name,
        "cost": exe.cost,
        "kernels": [
            {
                "name": k.name,
                "schedule": k.schedule,
                "row": k.row,
                "parameters": dict(k.parameters),
                "time_s": k.time_s,
            }
            for k in exe.kernels
        ],
        "stages": {s.name: s.seconds for s in exe.report.stages},
    }


@axe.command("compile")
@program_options
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Save the executable here.")
@click.option(
    "--extents",
    multiple=True,
    help="Other extents of a named dim that the file is to run at: rows=3,8 or rows=1:65.",
)
@click.option("--html", type=click.Path(dir_okay=False), help="Write a page of the schedule here.")
@json_option
def compile_command(
    output: str | None, extents: tuple[str, ...], html: str | None, as_json: bool, **options: Any
) -> None:
    """Compile a function: choose its cheapest schedule."""
    wanted = parse_extents(extents)
    if wanted and output is None:
        raise ArgumentError("--extents", "is given without --output", "a file to save")
    exe = compiled(**options)
    written = []
    if output is not None:
        exe.save(output, extents=wanted)
        written.append(output)
    if html is not None:
        exe.schedule.html(html)
        written.append(html)
    sizes = {path: Path(path).stat().st_size for path in written}
    if as_json:
        click.echo(as_json_text(summary(exe) | {"written": sizes}))
        return
    click.echo(str(exe.schedule))
    for path, size in sizes.items():
        click.echo(f"{path} written, {bytes_text(size)}")


@axe.command()
@program_options
@json_option
def explain(as_json: bool, **options: Any) -> None:
    """Say which schedule was chosen, and why.

    Also what it was compared with, and what was ruled out.

    FILE.axe, which `axe compile -o` wrote, may stand for the function: what was said then.
    """
    if is_saved(options["function"]):
        loaded = saved(**options)
        data = {"target": loaded.target_name, "cost": loaded.cost, "text": loaded.explain()}
        click.echo(as_json_text(data) if as_json else loaded.explain())
        return
    exe = compiled(**options)
    click.echo(as_json_text(summary(exe) | {"text": exe.explain()}) if as_json else exe.explain())


@axe.command("run")
@program_options
@click.option("--input", "inputs", multiple=True, help="An .npy file per argument; random if none.")
@click.option("--bind", "bindings", multiple=True, help="A named dim at run time: tokens=64.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of random inputs.")
@click.option(
    "-o", "--output", "folder", default=None, help="Folder for the outputs as .npy files."
)
@json_option
def run_command(
    inputs: tuple[str, ...],
    bindings: tuple[str, ...],
    seed: int,
    folder: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compile, run, compare with numpy; exit 1: differs.

    FILE.axe, which `axe compile -o` wrote, may stand for the function; it is run, but holds no
    meaning to compare with.
    """
    kept = is_saved(options["function"])
    exe: Any = saved(**options) if kept else compiled(**options)
    check_present(exe)
    runs: Any = exe.schedule.bind(**parse_dims(bindings)) if bindings else exe
    call = runs.call if bindings or kept else exe.schedule.call
    arrays = load_arrays(inputs) if inputs else random_inputs(call.types, seed, places_of(exe))
    given = call.nest(check_count(arrays, call.names))
    results = flatten(runs.launch(*given) if bindings else exe(*given))[1]
    wanted = [None] * len(results) if kept else flatten(exe.meaning(*given))[1]
    rows = [
        compare(n, got, want) for n, (got, want) in enumerate(zip(results, wanted, strict=True))
    ]
    if folder is not None:
        write_outputs(Path(folder), results)
    click.echo(as_json_text(rows) if as_json else "\n".join(map(line, rows)))
    sys.exit(1 if any(row["agrees"] is False for row in rows) else 0)


def check_present(exe: Any) -> None:
    """Refuse to run where the target is not: its compiler may be missing too, which hides that.

    Raises:
        DeviceError: this machine is no such target.
    """
    target = exe.target
    runner = exe.schedule.runners.get(target.family)
    if simulates(runner, target):
        click.echo(f"simulated: no {target.name} is here", err=True)
    elif runner is not None and not runner.present(target):
        raise DeviceError(
            f"target {target.name!r}", "no such GPU or other device is here",
            "a machine with one, or another target such as cpu",
            hint="axe compile and axe explain need no device; functions run with --target cpu",
        )  # fmt: skip


def check_count(arrays: list[Any], names: Sequence[str]) -> list[Any]:
    """The arrays, one per input.

    Raises:
        ArgumentError: more or fewer.
    """
    if len(arrays) != len(names):
        wanted = f"{len(names)}, for {' '.join(names)}"
        raise ArgumentError("--input", f"got {len(arrays)} files", wanted)
    return arrays


def places_of(exe: Any) -> list[int]:
    """Per input what its integers are below, since they say where values are read; 0 for none.

    Of a saved program, which has no operators, nothing is known.
    """
    if not hasattr(exe, "program"):
        return []
    limits = index_limits(exe.program.outputs)
    return [limits.get(i.node, 0) for i in exe.program.inputs]


def random_inputs(types: Any, seed: int, places: Sequence[int] = ()) -> list[Any]:
    """Normal floats, small integers or such as say where a value is read, random bools."""
    rng = np.random.default_rng(seed)
    found = []
    for number, type_ in enumerate(types):
        declared = DTYPES[type_.dtype]
        if declared.kind == "f":
            found.append(rng.standard_normal(type_.shape).astype(declared.numpy))
        elif declared.kind == "i" and number < len(places) and places[number]:
            most = min(places[number] - 1, int(np.iinfo(declared.numpy).max))
            found.append(rng.integers(0, most, type_.shape, endpoint=True).astype(declared.numpy))
        elif declared.kind == "i":
            found.append(rng.integers(-3, 4, type_.shape).astype(declared.numpy))
        else:
            found.append(rng.integers(0, 2, type_.shape).astype(bool))
    return found


def compare(number: int, got: Any, want: Any) -> dict[str, Any]:
    """One output against the meaning: errors, and whether more than rounding explains them.

    Floats agree within the square root of their epsilon, relative to the largest value: wider than
    any order of a sum, narrower than any wrong element. Other dtypes agree when they are equal.
    Without a meaning nothing is said of the values.
    """
    if want is None:
        shape = list(np.shape(got))
        return {"output": number, "dtype": str(np.asarray(got).dtype), "shape": shape,
                "largest_error": None, "relative_error": None, "agrees": None}  # fmt: skip
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    error = float(np.max(np.nan_to_num(apart, nan=np.inf), initial=0.0))
    scale = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b))) or 1.0
    dtype = np.asarray(got).dtype
    floating = dtype.kind not in "biu"
    eps = ml_dtypes.finfo(dtype).eps if floating else 0.0  # type: ignore[no-untyped-call]
    allowed = float(eps) ** 0.5
    return {"output": number, "dtype": str(dtype), "shape": list(np.shape(got)),
            "largest_error": error, "relative_error": error / scale,
            "agrees": error <= allowed * scale}  # fmt: skip


def line(row: dict[str, Any]) -> str:
    """One output as a line of text."""
    shape = "x".join(map(str, row["shape"])) or "scalar"
    if row["agrees"] is None:
        return f"output {row['output']}: {shape} {row['dtype']}, from a saved program: not compared"
    said = "agrees with" if row["agrees"] else "DIFFERS from"
    return (
        f"output {row['output']}: {shape} {row['dtype']}, {said} the numpy meaning, "
        f"relative error {row['relative_error']:.1e}"
    )


def write_outputs(folder: Path, results: list[Any]) -> None:
    """Write the outputs as .npy files, each whole or not at all.

    Raises:
        ArgumentError: the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot be made ({error.strerror})"
        raise ArgumentError(f"folder {str(folder)!r}", what, "a folder to write to") from None
    for number, result in enumerate(results):
        with whole(folder / f"output{number}.npy") as part, part.open("wb") as file:
            np.save(file, np.asarray(result))

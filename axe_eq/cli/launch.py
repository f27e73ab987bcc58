"""`axe launch`: a function of whole arrays, compiled for a mesh and run in a process per device."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from axe_eq.cli.group import as_json_text, axe, json_option
from axe_eq.cli.programs import (
    check_count,
    compare,
    line,
    pack_names,
    places_of,
    program_options,
    random_inputs,
    write_outputs,
)
from axe_eq.cli.source import load_arrays, load_function, taking
from axe_eq.cli.words import parse_mesh
from axe_eq.errors import ArgumentError
from axe_eq.layout import Layout, Mesh
from axe_eq.layout.notation import read_any
from axe_eq.mesh.transport import find_transport
from axe_eq.pipeline import as_program
from axe_eq.pipeline import compile as compile_program
from axe_eq.program.nesting import flatten
from axe_eq.program.spec import Spec, parse_spec
from axe_eq.schedule.quantity import bytes_text
from axe_eq.schedule.shard import DEVICE_AXIS

WHOLE = "-"
# Of a core, and of memory, that a process takes until it has begun: 64 and 200 of them, measured.
BEGIN_S, BEGIN_BYTES = 0.8, 50_000_000
LONG_S = 10.0


@axe.command("launch")
@program_options
@click.option("--ranks", type=click.IntRange(1), default=None, help="Processes, one per device.")
@click.option("--mesh", "mesh_text", default=None, help="The devices: x=2,y=4; x=RANKS if none.")
@click.option(
    "--layout", "layouts", multiple=True, metavar="LAYOUT",
    help=f"""One per argument, as "jax:P('x',None)"; "{WHOLE}" or none: whole on every rank.""",
)  # fmt: skip
@click.option(
    "--output-layout", "wanted", multiple=True, metavar="LAYOUT",
    help=f'One per output; "{WHOLE}" or none: what is cheapest.',
)  # fmt: skip
@click.option("--transport", default="mpi", help="What carries messages between processes.")
@click.option("--input", "inputs", multiple=True, help="An .npy file per argument; random if none.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of random inputs.")
@click.option("-o", "--output", "folder", default=None, help="Folder for outputs as .npy files.")
@json_option
def launch_command(
    ranks: int | None,
    mesh_text: str | None,
    layouts: tuple[str, ...],
    wanted: tuple[str, ...],
    transport: str,
    inputs: tuple[str, ...],
    seed: int,
    folder: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compile, run in a process per device, compare with numpy.

    Exit 1: results differ, or other bytes were sent than planned.
    """
    mesh = mesh_of(ranks, mesh_text)
    exe = compiled_on(mesh, layouts, wanted, **options)
    link = find_transport(transport, exe.transports)
    types = exe.schedule.call.types
    arrays = load_arrays(inputs) if inputs else random_inputs(types, seed, places_of(exe))
    given = exe.schedule.call.nest(check_count(arrays, exe.schedule.call.names))
    if not link.one_process and (text := long_begin(exe.plan.n_ranks, os.cpu_count() or 1)):
        click.echo(text, err=True)
    found = exe.launch(*given, transport=link)
    results = flatten(found.outputs)[1]
    meant = flatten(exe.meaning(*given))[1]
    rows = [compare(n, got, want) for n, (got, want) in enumerate(zip(results, meant, strict=True))]
    if folder is not None:
        write_outputs(Path(folder), results)
    as_planned = found.sent == exe.plan.n_bytes
    said = {
        "ranks": exe.plan.n_ranks,
        "steps": [s.name for s in exe.plan.steps],
        "sent_bytes": found.sent,
        "as_planned": as_planned,
        "seconds": max(found.seconds),
        "outputs": rows,
    }
    click.echo(as_json_text(said) if as_json else text_of(said, exe.plan.link_bytes))
    agrees = as_planned and all(row["agrees"] for row in rows)
    sys.exit(0 if agrees else 1)


def long_begin(n_ranks: int, n_cores: int) -> str:
    """What is said before so many processes are started on one machine; "" where they soon are."""
    seconds, memory = n_ranks * BEGIN_S / n_cores, bytes_text(n_ranks * BEGIN_BYTES)
    said = f"{n_ranks} processes on {n_cores} cores: about {seconds:.0f} s and {memory} to begin"
    return said if seconds > LONG_S else ""


def mesh_of(ranks: int | None, text: str | None) -> Mesh:
    """The devices.

    Raises:
        ArgumentError: neither is given, or they disagree.
    """
    if text is None:
        if ranks is None:
            raise ArgumentError("launch", "has no devices", "--ranks 8 or --mesh x=2,y=4")
        return Mesh({"x": ranks}, DEVICE_AXIS)
    mesh = parse_mesh(text, DEVICE_AXIS)
    if ranks is not None and ranks != mesh.size:
        raise ArgumentError(f"--ranks {ranks}", f"is not the size of mesh {text}", f"{mesh.size}")
    return mesh


def compiled_on(
    mesh: Mesh,
    layouts: tuple[str, ...],
    wanted: tuple[str, ...],
    function: str,
    specs: tuple[str, ...],
    target: str | None,
    packs: str | None,
    without: tuple[str, ...],
    numerics: str,
) -> Any:
    """Compile what the options name, for a mesh; by default for processes of this machine."""
    if len(layouts) > len(specs):
        wrong = f"is given {len(layouts)} times"
        raise ArgumentError("--layout", wrong, f"at most {len(specs)}, one per argument")
    placed = []
    for number, spec in enumerate(map(parse_spec, specs)):
        text = layouts[number] if number < len(layouts) else WHOLE
        layout = None if text == WHOLE else _layout(text, spec, mesh)
        placed.append(spec if layout is None else Spec(spec.shape, spec.dtype, spec.dims, layout))
    fn = taking(load_function(function), specs)
    outputs = None
    if wanted:
        program = as_program(fn, placed)
        if len(wanted) != len(program.outputs):
            wrong = f"is given {len(wanted)} times"
            raise ArgumentError("--output-layout", wrong, f"{len(program.outputs)}, one per output")
        outputs = [
            None if text == WHOLE else _layout(text, Spec(root.shape, root.dtype), mesh)
            for text, root in zip(wanted, program.outputs, strict=True)
        ]
    return compile_program(
        fn, *placed, target=target or "cpu", mesh=mesh, outputs=outputs, packs=pack_names(packs),
        without=without, numerics=numerics,
    )  # fmt: skip


def _layout(text: str, spec: Spec, mesh: Mesh) -> Layout:
    return read_any(text, shape=spec.shape, mesh=mesh, itemsize=spec.type.itemsize)


def text_of(said: dict[str, Any], link_bytes: int) -> str:
    """A launch for people."""
    lines = [f"{said['ranks']} ranks, {len(said['steps'])} steps, {said['seconds']:.3f} s"]
    for name, sent in said["sent_bytes"].items():
        lines.append(f"  {name}: {sum(sent):,} bytes, at most {max(sent):,} sent by a rank")
    how = "as planned" if said["as_planned"] else f"NOT as planned, {link_bytes:,}"
    lines.append(f"{bytes_text(sum(map(sum, said['sent_bytes'].values())))} crossed links, {how}")
    return "\n".join([*lines, *map(line, said["outputs"])])

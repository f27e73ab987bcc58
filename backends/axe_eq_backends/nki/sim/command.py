"""`axe nki run FILE:KERNEL ARGUMENT ...`: anybody's kernel, simulated in a process of its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import click
import numpy as np

from axe_eq.cli.group import as_json_text
from axe_eq.program.types import DTYPES as CORE_DTYPES
from axe_eq_backends.nki.sim.dtypes import DTYPES, F32, Dtype, cast, is_integer, name_of
from axe_eq_backends.nki.sim.errors import NkiError
from axe_eq_backends.nki.sim.process import Job, Limits, run_file

SPEC = re.compile(r"(\d+(?:x\d+)*):(\w+)")
NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@click.group()
def nki() -> None:
    """Kernels for Trainium, simulated."""


@nki.command()
@click.argument("kernel", metavar="FILE:KERNEL")
@click.argument("arguments", nargs=-1, metavar="[NAME=]ARGUMENT ...")
@click.option("--target", default="trn2", help="trn1, trn2 or trn3.")
@click.option("--dialect", type=click.Choice(["0.2", "0.3"]), default="0.3", help="Of NKI.")
@click.option(
    "--grid", default="", help="Programs, such as 2 or 2x4; they run one after the other."
)
@click.option("--module", is_flag=True, help="FILE is a module that --path makes importable.")
@click.option("--path", "paths", multiple=True, help="A folder to import from.")
@click.option(
    "--prelude", is_flag=True, help="nki, nisa, nl, np, math are there without an import."
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Of drawn arrays.")
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), default=120.0, help="Limit."
)
@click.option("--memory", type=click.IntRange(64), default=8192, help="Limit in MiB.")
@click.option("--instructions", type=click.IntRange(1), default=Limits.instructions, help="Limit.")
@click.option("--trace", default="", help="Write the timeline here, for Perfetto.")
@click.option("-o", "--output", default="", help="Write the results here, as .npz.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run(
    kernel: str,
    arguments: tuple[str, ...],
    target: str,
    dialect: str,
    grid: str,
    module: bool,
    paths: tuple[str, ...],
    prelude: bool,
    seed: int,
    seconds: float,
    memory: int,
    instructions: int,
    trace: str,
    output: str,
    as_json: bool,
) -> None:
    """Simulate a kernel on arrays: 128x512:f32 is drawn, a.npy is read; numbers are themselves."""
    file, colon, name = kernel.rpartition(":")
    if not colon or not file or not name:
        raise NkiError(f"kernel {kernel!r}", "does not parse", "FILE.py:KERNEL")
    args, kwargs = parsed(arguments, seed)
    job = Job(
        "" if module else file, name, args, kwargs, target, dialect, parsed_grid(grid),
        file if module else "", [str(Path(p).resolve()) for p in paths], prelude, trace,
    )  # fmt: skip
    outputs, report = run_file(job, Limits(seconds, memory << 20, instructions))
    if output:
        _save(output, outputs)
    described = [_described(x) for x in outputs]
    if as_json:
        click.echo(as_json_text(report | {"results": described}))
    else:
        click.echo(text(report, described))


def parsed(arguments: tuple[str, ...], seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Arguments and those by name, from words of the command line.

    Raises:
        NkiError: one is neither an array, a number nor a data type.
    """
    args, kwargs = list[Any](), dict[str, Any]()
    draw = np.random.default_rng(seed)
    for word in arguments:
        named = NAMED.fullmatch(word)
        value = _value(named[2] if named else word, draw)
        if named and named[1] in kwargs:
            raise NkiError(f"argument {word!r}", "is given twice", "every name once")
        if named:
            kwargs[named[1]] = value
        elif kwargs:
            raise NkiError(f"argument {word!r}", "follows arguments by name", "NAME=ARGUMENT")
        else:
            args.append(value)
    return args, kwargs


def _value(word: str, draw: np.random.Generator) -> Any:
    spec = SPEC.fullmatch(word)
    if spec:
        shape, dtype = tuple(map(int, spec[1].split("x"))), _dtype(spec[2], word)
        if is_integer(dtype):
            return draw.integers(0, 8, shape).astype(dtype)
        return cast(draw.standard_normal(shape).astype(F32), dtype)
    if word.endswith(".npy"):
        try:
            return np.load(word)
        except (OSError, ValueError, EOFError) as error:
            raise NkiError(
                f"array {word!r}", f"does not load ({error})", "a file of numpy.save"
            ) from None
    if word in DTYPES:
        return DTYPES[word]
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        raise NkiError(
            f"argument {word!r}",
            "does not parse",
            "an array such as 128x512:f32, FILE.npy, a data type or a Python value",
        ) from None


def _dtype(name: str, word: str) -> Dtype:
    if name in DTYPES:
        return DTYPES[name]
    if name in CORE_DTYPES and np.dtype(CORE_DTYPES[name].numpy) in DTYPES.values():
        return np.dtype(CORE_DTYPES[name].numpy)
    raise NkiError(f"argument {word!r}", f"has dtype {name!r}", f"one of {' '.join(DTYPES)}")


def parsed_grid(text: str) -> tuple[int, ...]:
    """Extents of a grid such as 2x4.

    Raises:
        NkiError: it is none.
    """
    if not text:
        return ()
    if not re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3})*", text):
        raise NkiError(f"grid {text!r}", "does not parse", "extents such as 2 or 2x4")
    return tuple(map(int, text.split("x")))


def _save(path: str, outputs: list[Any]) -> None:
    arrays = {f"result{n}": x.astype(F32) if x.dtype.kind == "V" or x.dtype.num > 24 else x
              for n, x in enumerate(outputs) if isinstance(x, np.ndarray)}  # fmt: skip
    try:
        with open(path, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise NkiError(
            f"output {path!r}", f"cannot be written ({error.strerror})", "a file"
        ) from None


def _described(x: Any) -> dict[str, Any]:
    if not isinstance(x, np.ndarray):
        return {"value": repr(x)}
    wide = x.astype(np.float64)
    return {"shape": list(x.shape), "dtype": name_of(x.dtype), "least": float(wide.min()),
            "most": float(wide.max()), "mean": float(wide.mean())}  # fmt: skip


def text(report: dict[str, Any], results: list[dict[str, Any]]) -> str:
    """A report for people; says that it is simulated."""
    lines = [f"kernel {report['kernel']}: simulated on {report['target']}, NKI {report['dialect']}"]
    for n, r in enumerate(results):
        lines.append(
            f"result {n}: {r['value']}" if "value" in r else
            f"result {n}: {'x'.join(map(str, r['shape']))} {r['dtype']}, "
            f"{r['least']:.4g} to {r['most']:.4g}, mean {r['mean']:.4g}"
        )  # fmt: skip
    counts = report["instructions"]
    lines.append(
        f"{sum(counts.values())} instructions: " + ", ".join(f"{e} {n}" for e, n in counts.items())
    )
    for memory, peak in report["peaks"].items():
        lines.append(f"{memory} holds {peak['bytes']} of {peak['of']} bytes per partition at most")
        lines += [f"  {p['bytes']:>7} by {p['tiles']} of {p['line']}" for p in peak["lines"][:3]]
    lines.append(f"model time {report['model_ns'] / 1e3:.2f} us (simulated, not measured)")
    lines += [f"  {e:<7} {share:6.1%} busy" for e, share in report["utilisation"].items()]
    for w in report["warnings"]:
        more = f" ({w['times']} times)" if w["times"] > 1 else ""
        lines.append(f"warning {w['check']} {w['text']}{more}\n  at {w['line']}")
    if report.get("printed"):
        lines.append("printed by the kernel:\n" + report["printed"].rstrip()[:4000])
    return "\n".join(lines)

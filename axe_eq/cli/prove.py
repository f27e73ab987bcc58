"""`axe equiv` and `axe check-cert`."""

from __future__ import annotations

import json
import sys
from types import FunctionType
from typing import Any

import click
import numpy as np

from axe_eq.cli.group import as_json_text, axe, json_option
from axe_eq.cli.source import load_function, taking
from axe_eq.cli.words import context_of, context_options
from axe_eq.errors import ArgumentError
from axe_eq.files import read_text, write_text
from axe_eq.mesh import plan_from_json
from axe_eq.prove.certificates.checker import refusal
from axe_eq.prove.certificates.proof import Certificate
from axe_eq.prove.certificates.verdict import (
    MOST_SHOWN,
    Elements,
    Image,
    LayoutCounterexample,
    ProgramCounterexample,
    Proved,
    Refuted,
    Unknown,
    Verdict,
)
from axe_eq.prove.equivalent import equivalent
from axe_eq.prove.programs.frontier import Frontier, show

YES, REFUTED, UNKNOWN = 0, 1, 3


@axe.command()
@click.argument("a")
@click.argument("b")
@click.option("--spec", "specs", multiple=True, help='Programs: one per argument, "64x64:f16".')
@click.option("--assume", multiple=True, help='Layouts: of a name in numbers, "n % 8 == 0".')
@click.option("--numerics", type=click.Choice(["real", "exact"]), default="real")
@click.option("--budget", type=float, default=None, help="Seconds for the whole call.")
@click.option("--certificate", type=click.Path(dir_okay=False), help="Write the certificate here.")
@context_options
@json_option
def equiv(
    a: str,
    b: str,
    specs: tuple[str, ...],
    assume: tuple[str, ...],
    numerics: str,
    budget: float | None,
    certificate: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Are two layouts (texts) or two programs (FILE:FN) the same?

    A program may be what ranks of a mesh do: a RankProgram (FILE:NAME), or a plan (FILE.json).

    Layouts of shardings need --shape and --mesh. With --shape, CuTe's modes are the dims in order.
    """
    context = context_of(**options)
    if bare := [side for side in (a, b) if side.endswith(".py")]:
        raise ArgumentError(f"program {bare[0]!r}", "names no function", f"{bare[0]}:FUNCTION")
    programs = [side.rpartition(":")[0].endswith(".py") or _is_plan(side) for side in (a, b)]
    if any(programs) and not all(programs):
        raise ArgumentError("equiv", "got a layout and a program", "two layouts or two programs")
    sides = [_program(side) if all(programs) else side for side in (a, b)]
    if all(isinstance(side, FunctionType) for side in sides) and not any(context.values()):
        for side in sides:  # a plan or a rank program would say itself what its arguments are
            taking(side, specs)
    verdict = equivalent(*sides, *specs, numerics=numerics, assume=assume, budget=budget, **context)
    if certificate is not None and isinstance(verdict, Proved):
        write_text(certificate, str.__str__(verdict.certificate))
    if as_json:
        used = numerics if all(programs) else "exact"
        click.echo(as_json_text(verdict_data(verdict, used, certificate)))
    else:
        click.echo(str(verdict))
        if isinstance(verdict, Proved):
            click.echo(verdict.reason)
    sys.exit(YES if verdict else REFUTED if isinstance(verdict, Refuted) else UNKNOWN)


def _is_plan(side: str) -> bool:
    return side.endswith(".json")


def _program(side: str) -> Any:
    """A function, a rank program, or a plan read back from its JSON."""
    if not _is_plan(side):
        return load_function(side)
    return plan_from_json(read_text(side, "a mesh plan"))


@axe.command("check-cert")
@click.argument("file", type=click.Path())
@json_option
def check_cert(file: str, as_json: bool) -> None:
    """Check a certificate without a search; exit 1: refused."""
    text = read_text(file, "a certificate")
    reason = refusal(text)
    accepted = reason is None
    if not accepted:
        _check_json(file, text)
    statement = str(Certificate(text).proof.statement) if accepted else None
    said = f"accepted: {statement}" if accepted else f"refused: {reason}"
    data = {"accepted": accepted, "reason": reason, "statement": statement}
    click.echo(as_json_text(data) if as_json else said)
    sys.exit(YES if accepted else REFUTED)


def _check_json(file: str, text: str) -> None:
    """What is no JSON at all was no certificate to refuse."""
    try:
        json.loads(text)
    except RecursionError:
        pass  # JSON, nested too deeply: the checker refuses it
    except json.JSONDecodeError as error:
        raise ArgumentError(f"file {file!r}", f"is not JSON ({error})", "a certificate") from None


# -- verdicts as JSON data -------------------------------------------------------------------------


def verdict_data(verdict: Verdict, numerics: str, certificate: str | None) -> dict[str, Any]:
    """All that a verdict says.

    Args:
        verdict: what `equivalent` returned.
        numerics: what was asked for; layouts are always compared exactly.
        certificate: the file that the certificate of a proof was written to.
    """
    proved = verdict if isinstance(verdict, Proved) else None
    refuted = verdict if isinstance(verdict, Refuted) else None
    unknown = verdict if isinstance(verdict, Unknown) else None
    return {
        "verdict": type(verdict).__name__,
        "text": str(verdict),
        "numerics": proved.statement.numerics if proved else numerics,
        "statement": str(proved.statement) if proved else None,
        "how": proved.how if proved else None,
        "laws": list(proved.laws) if proved else None,
        "packs": dict(proved.statement.packs) if proved else None,
        "certificate": certificate if proved else None,
        "reason": refuted.reason if refuted is not None else None,
        "hint": refuted.hint or None if refuted is not None else None,
        "counterexample": _counterexample(refuted.counterexample) if refuted is not None else None,
        "missing": _missing(unknown.missing) if unknown is not None else None,
        "budget": unknown.budget if unknown is not None else None,
    }


def _counterexample(found: LayoutCounterexample | ProgramCounterexample | None) -> Any:
    if isinstance(found, LayoutCounterexample):
        return {
            "x": found.x,
            "element": list(found.element),
            "image_a": _image(found.image_a),
            "image_b": _image(found.image_b),
            "numbers": dict(found.numbers),
            "layouts": {name: str(layout) for name, layout in found.layouts.items()},
        }
    return None if found is None else _of_programs(found)


def _image(image: Image) -> list[dict[str, int]]:
    return [dict(place) for place in sorted(image)]


def _of_programs(found: ProgramCounterexample) -> dict[str, Any]:
    names = found.names or [f"input {n}" for n in range(len(found.inputs))]
    made = isinstance(found.inputs, tuple)  # others are too large to make just to print
    return {
        "output": found.output,
        "rank": found.rank,
        "index": list(found.index),
        "value_a": found.value_a,
        "value_b": found.value_b,
        "bounds_a": list(found.bounds_a),
        "bounds_b": list(found.bounds_b),
        "inputs": list(map(_input, names, found.inputs, found.elements)) if made else [],
        "inputs_are": None if made else str(found.inputs),
        "rounded_constants": list(found.rounded),
        "reduced": _counterexample(found.reduced),
    }


def _input(name: str, array: Any, unlike: Elements | None) -> dict[str, Any]:
    """One input; its values where they are few, or those unlike most where these are."""
    few = array.size <= MOST_SHOWN
    shown = array if array.dtype.kind in "iub" else array.astype(np.float64)
    return {
        "name": name,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "values": shown.tolist() if few else None,
        "not_zero": int(np.count_nonzero(shown)),
        "others": unlike.others if unlike is not None else None,
        "elements": [list(x) for x in unlike.first] if unlike is not None else None,
    }


def _missing(missing: Any) -> dict[str, Any]:
    if not isinstance(missing, Frontier):
        return {"text": str(missing), "stuck": [], "rounded_constants": []}
    stuck = [
        {"left": show(pair.left), "right": show(pair.right), "family": pair.family}
        for pair in missing.pairs
    ]
    rounded = list(missing.rounded)
    return {
        "text": f"not proved ({missing.stopped})", "stuck": stuck, "rounded_constants": rounded
    }  # fmt: skip

"""Tracing: run a Python function on traced arrays and keep what it did as a program."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import shorten
from types import TracebackType
from typing import Any

from axe_eq.errors import ProgramError
from axe_eq.program.meaning import evaluate, of_their_own
from axe_eq.program.nesting import flatten, leaf_names, unflatten
from axe_eq.program.node import InputSpec, Node, Program, input_node, topological
from axe_eq.program.ops import constant_of
from axe_eq.program.spec import Dim, Spec, as_spec, dim, named_extents, parse_spec
from axe_eq.program.traced import Traced, as_traced
from axe_eq.program.tracing import TRACING, Place, Tracing, is_internal

__all__ = ["Dim", "Spec", "Traced", "as_spec", "dim", "parse_spec", "run", "trace"]


def trace(fn: Callable[..., Any], *specs: Any) -> Program:
    """The program a function computes.

    >>> print(axe.trace(lambda x: x * 2.0, "4:f32"))
    program(x: f32[4])
      %1 : f32[]  = full () 2.0 f32
      %2 : f32[4] = mul(x, %1)       [a, -> a]
      return %2

    Args:
        fn: a function of arrays that returns an array or a tuple, list or dict of arrays, nested in
            any way. It runs once, on `Traced` arrays; it may capture arrays.
        specs: one per argument: a `Spec`, a spec text (``"8192x4096:f16"``), an array that stands
            for its spec, or a tuple, list or dict of these.

    Returns:
        The program; no law is applied to it. Inputs are named after the parameters.

    Raises:
        ProgramError: arguments that do not fit the function, or anything in it that cannot be
            traced, with the user's line.
    """
    arguments = _bind(fn, specs)
    nesting, leaves = flatten(specs)
    given = [as_spec(leaf) for leaf in leaves]
    named_extents(given)
    names = _names(nesting, arguments)
    inputs = [_input(name, spec) for name, spec in zip(names, given, strict=True)]
    tracing = Tracing(stop=(trace.__code__,))
    structure, outputs = _run(fn, nesting, zip(inputs, given, strict=True), tracing)
    roots = tuple(x.node for x in outputs)
    return Program(
        inputs=tuple(inputs),
        outputs=roots,
        structure=structure,
        constants=_used_constants(roots, tracing),
        names=_value_names(tracing, roots),
        places={node: _place_text(place) for node, place in tracing.places.items()},
        written=_rounded_constants(tracing),
        arguments=nesting,
        retrace=partial(_retrace, fn, nesting, given),
    )


def run(fn: Callable[..., Any], *arrays: Any) -> Any:
    """What a function of arrays means: traced, then evaluated with numpy.

    >>> axe.run(lambda x: x @ x, np.eye(2, dtype=np.float32) * 3)
    array([[9., 0.],
           [0., 9.]], dtype=float32)

    Args:
        fn: a function as `trace` takes it.
        arrays: numpy arrays, nested as the function takes them.

    Returns:
        numpy arrays of their own, nested as the function returns them: what would be a view of an
        argument is a copy.

    Raises:
        ProgramError: see `trace`.
    """
    program, given = trace(fn, *arrays), flatten(arrays)[1]
    return unflatten(program.structure, of_their_own(evaluate(program, given), given))


def _bind(fn: Callable[..., Any], specs: Sequence[Any]) -> list[str]:
    """Parameter name per argument."""
    if not callable(fn):
        raise ProgramError(f"function {fn!r}", "is not callable", "a function of arrays")
    name = getattr(fn, "__name__", type(fn).__name__)
    try:
        bound = inspect.signature(fn).bind(*specs)
    except (TypeError, ValueError) as error:
        wrong = f"does not take {len(specs)} arguments ({error})"
        raise ProgramError(f"function {name!r}", wrong, "one spec per parameter") from None
    names: list[str] = []
    for parameter, value in bound.arguments.items():
        variadic = bound.signature.parameters[parameter].kind is inspect.Parameter.VAR_POSITIONAL
        names += [f"{parameter}.{n}" for n in range(len(value))] if variadic else [parameter]
    return names


def _names(nesting: Any, arguments: Sequence[str]) -> list[str]:
    names = [
        leaf
        for name, part in zip(arguments, nesting[1], strict=True)
        for leaf in leaf_names(part, name)
    ]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ProgramError(f"argument {twice[0]!r}", "is the name of two arrays", "other dict keys")
    return names


def _input(name: str, spec: Spec) -> InputSpec:
    layout: Any = spec.layout
    return InputSpec(input_node(name, spec.type), spec.dims, layout, spec.divisible)


def _run(
    fn: Callable[..., Any], nesting: Any, inputs: Iterable[tuple[InputSpec, Spec]], tracing: Tracing
) -> tuple[Any, list[Traced]]:
    """Nesting and leaves of what the function returns on traced arrays."""
    token = TRACING.set(tracing)
    try:
        handed = [Traced(given.node, spec.shape) for given, spec in inputs]
        structure, leaves = flatten(fn(*unflatten(nesting, handed)))
        return structure, _outputs(leaves)
    except ProgramError as error:
        error.at = error.at or _error_place(error.__traceback__)
        raise
    finally:
        TRACING.reset(token)


def _outputs(leaves: Sequence[Any]) -> list[Traced]:
    wanted = "arrays, nested in tuples, lists or dicts"
    if not leaves:
        raise ProgramError("output of the function", "holds no array", wanted)
    try:
        return [as_traced(leaf) for leaf in leaves]
    except ProgramError as error:
        raise ProgramError("output of the function", error.wrong, wanted) from None


def _used_constants(roots: Sequence[Node], tracing: Tracing) -> dict[str, Any]:
    used = {node.text for node in topological(roots)}
    return {name: array for name, array in tracing.constants.items() if name in used}


def _retrace(
    fn: Callable[..., Any], nesting: Any, specs: Sequence[Spec], extents: Mapping[str, int]
) -> Program:
    known = named_extents(specs)
    for name in extents:
        if name not in known:
            named = " ".join(known) or "none is named"
            raise ProgramError(f"dim {name!r}", "is not a dim of the program", f"one of: {named}")
    return trace(fn, *unflatten(nesting, [spec.bound(extents) for spec in specs]))


# -- names and places -----------------------------------------------------------------------------

_ASSIGNED = re.compile(r"\s*([A-Za-z_]\w*)\s*(?::[^=]*)?=(?!=)")


def _value_names(tracing: Tracing, roots: Sequence[Node]) -> dict[Node, str]:
    """The user's names: the last value made on a line ``name = ...`` is `name`."""
    reached = set(topological(roots))
    names: dict[Node, str] = {}
    for (path, line), node in tracing.last.items():
        match = _ASSIGNED.match(linecache.getline(path, line))
        if match and node in reached:
            names.setdefault(node, match[1])
    return names


def _rounded_constants(tracing: Tracing) -> dict[Node, dict[float, str]]:
    """Constants that somewhere are written as their element type does not hold them."""
    return {
        node: {value: _place_text(place) for value, place in written.items()}
        for node, written in tracing.written.items()
        if any(value == value and value != constant_of(node.text) for value in written)
    }


def _place_text(place: Place) -> str:
    path, line = place
    text = shorten(linecache.getline(path, line).strip(), 100, placeholder=" ...")
    return f"{Path(path).name}:{line}: {text}"


def _error_place(traceback: TracebackType | None) -> str:
    """The innermost line of the user's on the way to an error."""
    found = ""
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        if not is_internal(path):
            found = _place_text((path, traceback.tb_lineno))
        traceback = traceback.tb_next
    return found

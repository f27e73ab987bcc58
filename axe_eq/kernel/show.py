"""Kernels as text, at both levels: primitives, and plans where they are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import Planned
from axe_eq.kernel.plan import Resource


def show(kernel: ir.Kernel, planned: Planned[Any] | None = None) -> str:
    """The kernel as text; with `planned`, instruction calls stand below their primitives."""
    lines = [*kernel.header(), *kernel.declarations()]
    for name, resource in planned.resources.items() if planned else ():
        lines.append(f"  {name} = {resource}")
    return "\n".join([*lines, *_body(kernel.body, planned, 1)]) + "\n"


def _body(body: ir.Body, planned: Planned[Any] | None, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for statement in body:
        yield indent + statement.line()
        if isinstance(statement, ir.Primitive) and planned is not None:
            yield from (f"{indent}  | {text}" for text in _plan(statement, planned))
        for section in statement.sections():
            yield from [f"{indent}  {section.heading}"] if section.heading else []
            yield from _body(section.body, planned, depth + (2 if section.heading else 1))


def _plan(primitive: ir.Primitive, planned: Planned[Any]) -> Iterator[str]:
    plan = planned.plan(primitive)
    yield f"{plan.row.name}: {plan.notes}"
    yield from (f"{v} = {value}" for v, value in plan.lets)
    for call in plan.calls:
        args = {
            k: planned.name_of(v) if isinstance(v, Resource) else v for k, v in call.args.items()
        }
        shown = ", ".join(f"{k}={_value(v)}" for k, v in args.items() if v is not None)
        yield f"{call.op}({shown})"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_value, value)) + ")"
    return str(value)

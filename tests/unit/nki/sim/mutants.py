"""Mutations of a kernel's text at every site: numbers, operators, flags, instructions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

SWAPPED = {
    "add": "subtract",
    "subtract": "add",
    "multiply": "maximum",  # scores plus a number are the same to softmax
    "divide": "multiply",
    "maximum": "minimum",
    "minimum": "maximum",
    "exp": "tanh",
    "copy": "square",
    "bitwise_xor": "bitwise_or",
    "bitwise_and": "bitwise_or",
    "psum": "sbuf",
    "sbuf": "psum",
    "float32": "bfloat16",
    "int32": "int8",
    "reset_reduce": "reduce",
}


def mutants(text: str, first: int = 0, every: int = 1) -> Iterator[tuple[str, str]]:
    """(what was changed, the changed text) for every site, or for every so many of the changes."""
    tree = ast.parse(text)
    changes = [(node, *change) for node in ast.walk(tree) for change in _changes(node)]
    for node, said, field, value in changes[first % every :: every]:
        before = getattr(node, field)
        setattr(node, field, value)
        yield f"{getattr(node, 'lineno', 0)}: {said}", ast.unparse(tree)
        setattr(node, field, before)


def _changes(node: ast.AST) -> Iterator[tuple[str, str, Any]]:
    """(what is said, field, its new value)"""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} flipped", "value", not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        for step in (1, -1):
            yield f"{node.value} {step:+}", "value", node.value + step
    elif isinstance(node, ast.Attribute) and node.attr in SWAPPED:
        yield f"{node.attr} to {SWAPPED[node.attr]}", "attr", SWAPPED[node.attr]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield f"without {ast.unparse(node)[:60]}", "value", ast.Constant(None)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add):
        other = ast.Add() if isinstance(node.op, ast.Mult) else ast.Mult()
        yield f"{ast.unparse(node)} with {type(other).__name__}", "op", other
    elif isinstance(node, ast.Compare):
        yield f"{ast.unparse(node)} with >=", "ops", [ast.GtE()]

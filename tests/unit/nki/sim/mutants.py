"""Mutations of a kernel's text at every site: numbers, operators, flags, instructions."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import Any

SWAPPED = {
    "add": "subtract",
    "subtract": "add",
    "multiply": "add",
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
    "int32": "int16",
    "reset_reduce": "reduce",
}


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """(what was changed, the changed text) for every site."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    for at, node in enumerate(nodes):
        line = getattr(node, "lineno", 0)
        for said, change in _changes(node):
            other = copy.deepcopy(tree)
            changed = list(ast.walk(other))[at]
            change(changed)
            yield f"{line}: {said}", ast.unparse(other)


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], None]]]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} flipped", lambda n: setattr(n, "value", not n.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        for step in (1, -1):
            yield f"{node.value} {step:+}", lambda n, s=step: setattr(n, "value", n.value + s)
    elif isinstance(node, ast.Attribute) and node.attr in SWAPPED:
        new = SWAPPED[node.attr]
        yield f"{node.attr} to {new}", lambda n: setattr(n, "attr", new)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield f"without {ast.unparse(node)[:60]}", lambda n: setattr(n, "value", ast.Constant(None))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add):
        new_op = ast.Add() if isinstance(node.op, ast.Mult) else ast.Mult()
        yield (
            f"{ast.unparse(node)} with {type(new_op).__name__}",
            lambda n: setattr(n, "op", new_op),
        )
    elif isinstance(node, ast.Compare):
        yield f"{ast.unparse(node)} with >=", lambda n: setattr(n, "ops", [ast.GtE()])

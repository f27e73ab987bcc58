"""Mutations of a kernel's text at every site: numbers, operators, flags, instructions."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
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
        for said, field, value in _changes(node):
            other = copy.deepcopy(tree)
            setattr(list(ast.walk(other))[at], field, value)
            yield f"{line}: {said}", ast.unparse(other)


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

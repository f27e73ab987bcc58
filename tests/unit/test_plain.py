"""Plain data: what is written is read back as it was, and what does not fit says where."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from axe_eq import plain
from axe_eq.errors import ArgumentError
from axe_eq.kernel.expr import Int, var
from axe_eq.program.types import ValueType, value_type


@dataclass(frozen=True)
class Leaf:
    size: Int
    code: bytes = b"\0code"
    kind: str = "leaf"


@dataclass(frozen=True)
class Tree:
    parts: tuple[Leaf | Tree, ...]
    types: Mapping[str, ValueType]
    pair: tuple[float, int] | None
    free: Any = None
    kind: str = "tree"


N = var("n", divisor=8, high=4096)
TREE = Tree((Leaf(3), Tree((Leaf(N * 2 + 1),), {}, None)), {"x": value_type("f16[8,4]")}, (1, 2))


def test_values_come_back() -> None:
    data = json.loads(plain.text(TREE))
    assert plain.read("tree", data, Tree) == TREE
    data["parts"][0] = TREE.parts[0]  # that is read already
    assert plain.read("tree", data, Tree) == TREE


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("parts", 1, "parts", 0, "kind"), "twig", "tree: parts[1]: parts[0]: says"),
        (("parts", 0, "size"), None, "tree: parts[0]: size: says None"),
        (("parts",), {}, "tree: parts: says {}"),
        (("types",), [], "tree: types: says []"),
        (("pair",), [1.0], "tree: pair: says [1.0]"),
        (("pair", 1), 2.5, "tree: pair[1]: says 2.5"),
        (("more",), 1, "tree: says ['free', 'kind', 'more', 'pair', 'parts', 'types']"),
        (("kind",), None, "tree: kind: says None"),
    ],
)
def test_what_does_not_fit_says_where(path: tuple[Any, ...], value: Any, said: str) -> None:
    data = json.loads(plain.text(TREE))
    at = data
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(ArgumentError) as caught:
        plain.read("tree", data, Tree)
    assert str(caught.value).startswith(said)

"""Which alternatives a cone may use, so that no kernel ever waits for itself.

Laws make value classes refer to each other in circles: x = merge(split(x)). Values that share
memory (reshapes of one another) count as one. Inside a circle an alternative is kept only where it
leads to values that are strictly simpler, that is, nearer to the inputs; every value keeps its
simplest alternative, so nothing becomes impossible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from axe_eq.walk import circles

Edges = Mapping[int, Sequence[tuple[int, ...]]]


def ranks(nodes: Edges) -> dict[int, int]:
    """Steps from the inputs: 0 without operands, else one more than the largest, at best.

    Args:
        nodes: class -> operand classes of every alternative.
    """
    users: dict[int, list[tuple[int, int]]] = {}
    waiting: dict[tuple[int, int], int] = {}
    rank: dict[int, int] = {}
    layer: list[int] = []
    for value, alternatives in nodes.items():
        for number, operands in enumerate(alternatives):
            waiting[value, number] = len(set(operands))
            for operand in set(operands):
                users.setdefault(operand, []).append((value, number))
            if not operands:
                layer.append(value)
    depth = 0
    while layer:
        reached = [v for v in dict.fromkeys(layer) if v not in rank]
        rank |= dict.fromkeys(reached, depth)
        depth += 1
        layer = []
        for value in reached:
            for user, number in users.get(value, ()):
                waiting[user, number] -= 1
                if not waiting[user, number]:
                    layer.append(user)
    return rank


def admissible(
    nodes: Edges, same_memory: Iterable[tuple[int, int]]
) -> Callable[[int, Iterable[int]], bool]:
    """A test: may a tile of this value class be computed from tiles of those?

    Args:
        nodes: value class -> operand value classes of every alternative.
        same_memory: pairs of value classes that are reshapes of one another.
    """
    home = _homes(nodes, same_memory)
    merged: dict[int, list[tuple[int, ...]]] = {}
    for value, alternatives in nodes.items():
        outside = [tuple(home[o] for o in ops) for ops in alternatives]
        kept = [ops for ops in outside if home[value] not in ops]
        merged.setdefault(home[value], []).extend(kept)
    simple, joint = ranks(nodes), ranks(merged)
    below = {v: list(chain.from_iterable(alternatives)) for v, alternatives in merged.items()}
    circle = {v: number for number, part in enumerate(circles(below)) for v in part}
    last = len(simple) + 1

    def test(value: int, operands: Iterable[int]) -> bool:
        for operand in operands:
            a, b = home[value], home[operand]
            if a == b:
                if simple.get(operand, last) >= simple.get(value, last):
                    return False
            elif circle.get(a) == circle.get(b) and joint.get(b, last) >= joint.get(a, last):
                return False
        return True

    return test


def _homes(nodes: Edges, same_memory: Iterable[tuple[int, int]]) -> dict[int, int]:
    near: dict[int, list[int]] = {v: [] for v in nodes}
    near |= {o: [] for alternatives in nodes.values() for ops in alternatives for o in ops}
    for a, b in same_memory:
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    return {v: min(part) for part in circles(near) for v in part}

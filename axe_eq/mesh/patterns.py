"""Which collective an exchange is, read off its messages: a name is given only where all fit it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from axe_eq.mesh.messages import Messages


def pattern(messages: Messages) -> str:
    """The collective that an exchange is, over groups of so many devices where it is several.

    ``"local"`` (nothing crosses links), ``"permute"`` (one message out and one in at most),
    ``"broadcast"``, ``"scatter"``, ``"gather"``, ``"all_gather of 4"``, ``"all_to_all of 8"``; else
    ``"messages"``.
    """
    pairs = messages.pairs
    if not pairs:
        return "local"
    out: dict[int, list[int]] = {}
    into: dict[int, list[int]] = {}
    for src, dst in pairs:
        out.setdefault(src, []).append(dst)
        into.setdefault(dst, []).append(src)
    most_out, most_in = max(map(len, out.values())), max(map(len, into.values()))
    if most_out == most_in == 1:
        return "permute"
    if len(out) == 1:
        return "broadcast" if _sends_alike(messages, out) else _if_apart(messages, "scatter")
    if len(into) == 1:
        return "gather"
    size = _groups(out)
    if size == 0:
        return "messages"
    if _sends_alike(messages, out):
        return f"all_gather of {size}"
    equal = len(set(pairs.values())) == 1
    return _if_apart(messages, f"all_to_all of {size}") if equal else "messages"


def _groups(out: Mapping[int, list[int]]) -> int:
    """Devices per group where in each group everyone sends to everyone else; 0 where not."""
    groups = {frozenset((src, *dst)) for src, dst in out.items()}
    sizes = {len(g) for g in groups}
    if len(sizes) != 1 or sum(map(len, groups)) != len(out):
        return 0
    return sizes.pop()


def _parts(messages: Messages) -> dict[tuple[int, int], list[tuple[object, ...]]]:
    """Per pair of devices the parts of leaves that are sent, as numbers of classes of leaves."""
    names: dict[tuple[int, int, int], bytes] = {}
    found: dict[tuple[int, int], list[tuple[object, ...]]] = {}
    for src, dst, _, number, row in messages.table.tolist():
        block = messages.blocks[number]
        part: list[object] = [block.piece.leaf]
        for g, c in enumerate(block.pick[row].tolist()):
            key = (number, g, c)
            if key not in names:
                names[key] = block.classes[g][c].leaf.tobytes()
            part.append(names[key])
        found.setdefault((src, dst), []).append(tuple(part))
    return found


def _sends_alike(messages: Messages, out: Mapping[int, list[int]]) -> bool:
    """Whether everyone who sends sends the same to all."""
    if len({messages.pairs[p] for p in messages.pairs}) > len(out):
        return False
    parts = _parts(messages)
    return all(
        sorted(map(repr, parts[src, dst])) == sorted(map(repr, parts[src, goals[0]]))
        for src, goals in out.items()
        for dst in goals[1:]
    )


def _if_apart(messages: Messages, name: str) -> str:
    """The name where nobody sends one element to two devices, else "messages"."""
    for block in messages.blocks:
        crosses = block.src != block.dst
        source = messages.sources[block.piece.leaf] if block.piece.leaf >= 0 else None
        if source is None:
            continue
        if len(messages.goal.copies) > 1 and crosses.any():
            keys = np.concatenate([block.src[crosses, None], block.pick[crosses]], 1)
            if len(np.unique(keys, axis=0)) != len(keys):
                return "messages"
    return name

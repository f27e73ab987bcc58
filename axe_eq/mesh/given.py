"""Shards that ranks bring: are they parts of the declared layouts? The liar is named by rank."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from axe_eq.errors import ArgumentError, AxeError
from axe_eq.mesh.plan import MeshPlan
from axe_eq.program.types import dtype


def report(plan: MeshPlan, shards: Mapping[str, Any], digest: Callable[[Any], str]) -> bytes:
    """What a rank says of its shards before a run: what is wrong with one, and digests of copies.

    Args:
        plan: of all ranks.
        shards: arrays of any library.
        digest: of such an array.
    """
    said: dict[str, object] = {"plan": plan.digest}
    for name, array in shards.items():
        wanted = plan.local_type(name)
        found = _element(array)
        if tuple(array.shape) != wanted.shape:
            said["wrong"] = [f"shard {name!r}", f"has shape {tuple(array.shape)}", str(wanted)]
            break
        if found != wanted.dtype:
            said["wrong"] = [f"shard {name!r}", f"has dtype {found}", str(wanted)]
            break
    else:
        copied = [n for n in shards if copies_of(plan, n)]
        said["digests"] = {n: digest(shards[n]) for n in copied}
    return json.dumps(said).encode()


def report_wrong(plan: MeshPlan, error: ArgumentError) -> bytes:
    """What a rank says of a shard that it cannot read."""
    said = [error.thing, error.wrong, error.expected]
    return json.dumps({"plan": plan.digest, "wrong": said}).encode()


def _element(array: Any) -> str:
    """The element type of an array of any library, as it is called here or there."""
    given = array.dtype
    text = str(given).rpartition(".")[2]
    try:
        return dtype(given if isinstance(given, np.dtype) else text).name
    except AxeError:
        return text


def check_reports(plan: MeshPlan, reports: Sequence[bytes]) -> None:
    """Refuse shards that are no parts of one whole, or another plan; all ranks find the same.

    Raises:
        ArgumentError: names the rank.
    """
    said = [json.loads(r) for r in reports]
    plans = Counter(s["plan"] for s in said)
    if len(plans) > 1:
        common = plans.most_common(1)[0][0]
        odd = next(n for n, s in enumerate(said) if s["plan"] != common)
        raise ArgumentError(f"rank {odd}", "runs another plan than the other ranks", "one plan")
    for rank, s in enumerate(said):
        if "wrong" in s:
            thing, wrong, expected = s["wrong"]
            raise ArgumentError(f"rank {rank}, {thing}", wrong, expected)
    for name in plan.inputs:
        for ranks in copies_of(plan, name):
            digests = [said[rank]["digests"][name] for rank in ranks]
            common, times = Counter(digests).most_common(1)[0]
            liars = [r for r, d in zip(ranks, digests, strict=True) if d != common]
            if liars:
                others = [r for r in ranks if r not in liars]
                wrong = f"differs from the copy of rank {others[0]}"
                if times > 1:
                    wrong = f"differs from the copies of ranks {' '.join(map(str, others))}"
                thing = f"rank {liars[0]}, shard {name!r}"
                raise ArgumentError(thing, wrong, "copies of one part")


def copies_of(plan: MeshPlan, name: str) -> list[list[int]]:
    """Ranks that hold one part of a buffer, for every part that several hold."""
    holder = plan.side(name)
    parts: dict[bytes, list[int]] = {}
    for rank in holder.devices.tolist():
        held = holder.bases[np.isin(holder.bases, rank - holder.copies)]
        parts.setdefault(held.tobytes(), []).append(rank)
    return [ranks for ranks in parts.values() if len(ranks) > 1]

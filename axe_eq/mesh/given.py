"""Shards that ranks bring: are they parts of the declared layouts? The liar is named by rank."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from axe_eq.errors import ArgumentError
from axe_eq.mesh.plan import MeshPlan
from axe_eq.program.types import Array, dtype


def report(plan: MeshPlan, shards: Mapping[str, Array]) -> bytes:
    """What a rank says of its shards before a run: what is wrong with one, and their digests."""
    said: dict[str, object] = {"plan": plan.digest}
    for name, array in shards.items():
        wanted = plan.local_type(name)
        found = dtype(array.dtype).name
        if tuple(array.shape) != wanted.shape:
            said["wrong"] = [f"shard {name!r}", f"has shape {tuple(array.shape)}", str(wanted)]
            break
        if found != wanted.dtype:
            said["wrong"] = [f"shard {name!r}", f"has dtype {found}", str(wanted)]
            break
    else:
        said["digests"] = {n: _digest(a) for n, a in shards.items()}
    return json.dumps(said).encode()


def _digest(array: Array) -> str:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()


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
        held = np.flatnonzero(holder.held_by(rank)) if len(holder.copies) > 1 else np.array([rank])
        parts.setdefault(held.tobytes(), []).append(rank)
    return [ranks for ranks in parts.values() if len(ranks) > 1]

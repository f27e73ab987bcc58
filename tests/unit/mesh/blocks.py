"""Plans whose operators are computed in blocks wherever they can be, whatever that costs."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from axe_eq.extract.mesh.blocks import Region, regions
from axe_eq.extract.mesh.turned import turned
from axe_eq.pipeline import answers
from axe_eq.pipeline.on_mesh import Plans


def in_blocks(
    monkeypatch: pytest.MonkeyPatch,
    counts: Sequence[int | tuple[int, ...]],
    seed: int = 0,
    dim: int | None = None,
    late: bool | None = None,
) -> list[Region]:
    """Take the first plan in such numbers of blocks; what that is, once something is compiled.

    With `late` blocks are turned, and sums are in the kernels of products or not.
    """
    found: list[Region] = []

    def hide(plans: Plans) -> None:
        rng, taken = random.Random(seed), set[object]()
        best = plans.best
        every = [r for r in regions(best.cuts, 0.0) if dim is None or {*r.dims.values()} == {dim}]
        if late is not None:
            every = [t for r in every for t in turned(best.cuts, r) if t.late == late]
        rng.shuffle(every)
        for region in every:
            numbers = rng.sample(list(counts), len(counts))
            sizes = [(1,) * n if isinstance(n, int) else n for n in numbers]
            own = next((o for s in sizes if (o := region.split(*s)) is not None), None)
            if own is not None and not taken & own.dims.keys():
                found.append(own)
                taken |= own.dims.keys()
        if found:
            made = plans._try(best.cuts, "in blocks", tuple(found))
            assert made is not None, plans.refused
            plans.tried = {0: made}

    monkeypatch.setattr(answers, "is_cached", lambda: False)  # what is found so is for nobody else
    monkeypatch.setattr(Plans, "_hide", hide)
    monkeypatch.setattr(Plans, "_improve", lambda plans: None)
    monkeypatch.setattr(Plans, "_transform", lambda plans, problem: None)
    return found

"""Plans whose kernels carry every exchange that they can, whatever that costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from axe_eq.extract.mesh.seen import carriers
from axe_eq.pipeline import answers
from axe_eq.pipeline.on_mesh import Plans
from axe_eq.target import Target
from axe_eq_backends.cpu.target import cpu


def seeing(target: Target = cpu) -> Target:
    """A machine whose devices see each other's memory."""
    return target.replace(links=tuple(replace(link, wait_s=1e-6) for link in target.links))


def carry(monkeypatch: pytest.MonkeyPatch, how: str) -> list[int]:
    """Take the first plan with all exchanges carried so; their numbers, once it is compiled."""
    found: list[int] = []

    def see(plans: Plans) -> None:
        best = plans.best
        numbers = [n for alike in carriers(best.graph) if how in alike.ways for n in alike.numbers]
        if not numbers:
            return
        found.extend(numbers)
        made = plans._try(best.cuts, how, carried=dict.fromkeys(numbers, how))
        assert made is not None, plans.refused
        plans.tried = {0: made}

    monkeypatch.setattr(answers, "is_cached", lambda: False)  # what is found so is for nobody else
    monkeypatch.setattr(Plans, "_see", see)
    for name in ("_hide", "_improve"):
        monkeypatch.setattr(Plans, name, lambda plans: None)
    monkeypatch.setattr(Plans, "_transform", lambda plans, problem: None)
    return found

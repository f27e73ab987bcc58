"""Ways to write a cone on lanes: each knows its candidates, and the kernel of any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from axe_eq.kernel.threads import ir
from axe_eq.lower.candidate import Candidate
from axe_eq.lower.formulas import Cone
from axe_eq.target import Target
from axe_eq_backends.cuda.pointwise import mapped
from axe_eq_backends.cuda.reductions import reduced
from axe_eq_backends.cuda.scanning import scanned


class Way(Protocol):
    """A kind of kernel, for one cone.

    Attributes:
        names: of its parameters; no two kinds have the same.
    """

    @property
    def names(self) -> frozenset[str]:
        """The parameters of its candidates."""

    def candidates(self, target: Target) -> list[Candidate]:
        """What it may be written by on a machine, with its prices."""

    def kernel(self, parameters: Mapping[str, int], name: str) -> ir.Kernel:
        """The kernel by these parameters.

        Raises:
            ScheduleError: it cannot be written by them.
        """


def ways_of(cone: Cone) -> tuple[Sequence[Way], Mapping[str, str]]:
    """The ways to write a cone, and the buffers behind their tensors.

    Raises:
        DispatchError: no kernel on lanes computes it; says why.
    """
    if cone.prefixes:
        return scanned(cone)
    return reduced(cone) if cone.folds else mapped(cone)


def candidates_of(cone: Cone, target: Target) -> list[Candidate]:
    """All candidates for a cone; what was measured best first, of those that cost alike."""
    return [c for way in ways_of(cone)[0] for c in way.candidates(target)]


def cheapest(cone: Cone, target: Target) -> Mapping[str, int]:
    """Parameters of the cheapest candidate.

    Raises:
        DispatchError: no kernel on lanes computes the cone, or none of the target's sizes.
    """
    offered = candidates_of(cone, target)
    if not offered:
        raise cone.refuse("has no candidate", "sizes that the target has")
    return min(offered, key=lambda c: c.time_s).parameters


def written(cone: Cone, parameters: Mapping[str, int]) -> tuple[ir.Kernel, Mapping[str, str]]:
    """The kernel of a cone by a candidate's parameters, and the buffers behind its tensors.

    Raises:
        DispatchError, ScheduleError: it cannot be written so.
    """
    found, buffers = ways_of(cone)
    for way in found:
        if way.names == parameters.keys():
            return way.kernel(parameters, cone.name), buffers
    known = "; ".join(" ".join(sorted(way.names)) for way in found)
    raise cone.refuse(f"is to be written by {' '.join(parameters) or 'nothing'}", known)

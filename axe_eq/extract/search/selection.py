"""What a search ends with: the kernel of each materialised value, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from axe_eq.extract.price.cone import Picks
from axe_eq.extract.price.pricer import Price


@dataclass(frozen=True, eq=False)
class Mapped:
    """The best kernel of one placed class under some M.

    Attributes:
        placed: the class.
        price: its price; infinite where no cone exists.
        root: root tile class.
        picks: the cone.
        leaves: placed classes it loads (inputs included).
        met: placed classes whose membership in M it depends on.
    """

    placed: int
    price: Price
    root: int = -1
    picks: Picks = field(default_factory=dict)
    leaves: frozenset[int] = frozenset()
    met: frozenset[int] = frozenset()

    @property
    def time_s(self) -> float:
        """Estimated seconds."""
        return self.price.time_s


@dataclass(frozen=True, eq=False)
class Selection:
    """What extraction chose: one kernel per live materialised class.

    Attributes:
        kernels: by placed class.
        time_s: total estimated seconds of the kernels and moves.
        exact: proven the best over all M of this forest.
        cut: the search ended before no move of a single value gained anything.
    """

    kernels: dict[int, Mapped]
    time_s: float
    exact: bool = False
    cut: bool = False

    @property
    def materialised(self) -> frozenset[int]:
        """The live members of M."""
        return frozenset(self.kernels)

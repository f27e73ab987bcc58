"""Interval arithmetic: rigorous enclosures of what operators compute over the reals.

An `Interval` is a pair of float64 arrays that holds the exact real value of every cell between its
bounds; every rounding is directed outward. Two programs are refuted only where such enclosures are
disjoint, so a rounding difference refutes nothing. Four conventions make that safe:

* NaN in both bounds says *this value may be undefined or is unknown* (a division by an interval
  that holds zero, the logarithm of a non-positive number, infinity minus infinity, an integer
  beyond its type that is not known exactly; of others it is known how they wrap around). It
  passes through every cell and is disjoint from nothing.
* An infinite bound is an extended real: the value is infinite (a mask of -inf) or unknown.
* Booleans are 0.0 and 1.0; an undecided comparison is the interval [0, 1].
* Sums, products, quotients and square roots that are exact in float64 stay points, so
  integer-valued programs give point intervals.

Correctly rounded operations (+ - * / sqrt) are widened by the sign of their exact residual
(TwoSum and TwoProduct; Ogita, Rump, Oishi, Accurate Sum and Dot Product, SIAM J. Sci. Comput. 26,
2005). Every other numpy function is widened by `ULPS` units in the last place. Sums and
contractions use a priori bounds gamma_n, which hold for any order of summation (Higham, Accuracy
and Stability of Numerical Algorithms, 3.1), in midpoint-radius form (Rump, Fast and Parallel
Interval Arithmetic, BIT 39, 1999).

`ENCLOSE` has the enclosure of every standard cell by name, called as fn(*intervals, *params);
`ENCLOSE_MONOID` that of every standard reduction, called as fn(intervals, axes). `POLES` and
`AT_INFINITY` say where cells are undefined for certain.
"""

from __future__ import annotations

from axe_eq.program.interval import arithmetic, choices, functions
from axe_eq.program.interval.poles import AT_INFINITY, POLES
from axe_eq.program.interval.reductions import ENCLOSE_MONOID, contract
from axe_eq.program.interval.value import (
    APPROXIMATE,
    ENCLOSE,
    WRAPS,
    Interval,
    defined,
    disjoint,
    literal,
    point,
    together,
    undefined,
    within,
    without,
    wrapped,
)

__all__ = [
    "APPROXIMATE", "AT_INFINITY", "ENCLOSE", "ENCLOSE_MONOID", "POLES", "WRAPS", "Interval",
    "arithmetic", "choices", "contract", "defined", "disjoint", "functions", "literal", "point",
    "together", "undefined", "within", "without", "wrapped",
]  # fmt: skip

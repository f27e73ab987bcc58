"""A simulator of NKI: kernels for Trainium run on arrays of numpy, under the rules of the machine.

``simulate(text or function, "kernel", *arrays)`` returns the arrays that the kernel returns and a
report: warnings, live bytes, and a timeline by a model. `axe nki run FILE:KERNEL` does the same for
a file, in a process of its own. Nothing here is a measurement.
"""

from __future__ import annotations

from axe_eq_backends.nki.sim.errors import CHECKS, WARNINGS, Finding, NkiError
from axe_eq_backends.nki.sim.run import Report, simulate
from axe_eq_backends.nki.sim.timeline import Item, Span, Timeline, schedule

__all__ = [
    "CHECKS",
    "WARNINGS",
    "Finding",
    "Item",
    "NkiError",
    "Report",
    "Span",
    "Timeline",
    "schedule",
    "simulate",
]

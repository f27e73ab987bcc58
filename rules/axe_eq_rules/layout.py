"""Laws of layouts.

Legend: x, y, z layouts; S, T, U shapes; R regions; o, p, q permutations; d, e, r lists of iters, in
which ``(e, s@a) r`` is an iter before others; g, h functions of several indices; p, q also sets of
copies, in which ``[e, s@a] + p`` is e copies s apart on axis a and ``v@a + p`` a shift; v, w spans,
one per axis. ``d | S`` is d as a function of the dims of S. A layout is ``d + p``.

Laws of lists, copies, grids and maps rewrite, and hold whether or not a layout computes what their
terms say. Computed laws, marked n, write operations on layouts out and decide equality where
rewriting does not reach.
"""

from __future__ import annotations

from axe_eq.pack import Pack

PACK = Pack("layout", version="2", summary="layouts: canonical forms, operations, spans")

for _part in ("lists", "grids", "maps", "computed"):
    PACK.proof_laws(f"axe_eq_rules.layout_{_part}:LAWS.add_to")

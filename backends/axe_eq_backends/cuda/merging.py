"""Products whose results memory merges with what it holds, see `axe_eq.schedule.merging`."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

import numpy as np

from axe_eq.kernel.cells import Apply, Operand, used
from axe_eq.lower.formulas import Cone, Load
from axe_eq.program.types import value_type
from axe_eq.schedule.box import GRID_LETTERS, TILE_LETTERS
from axe_eq.schedule.graph import KernelStep
from axe_eq.target import Target
from axe_eq_backends.cuda.schedules import tiles
from axe_eq_backends.cuda.schedules.gemm import tile_words


def alone(cone: Cone, buffer: str) -> Cone:
    """A cone without the value of a buffer that its result is merged with.

    Raises:
        DispatchError: its last cell does not merge that with something else, as it is stored.
    """
    (root,) = cone.roots
    if isinstance(root.cell, Apply) and len(root.cell.args) == 2:
        for own, rest in (root.cell.args, root.cell.args[::-1]):
            leaf = cone.leaves[own.index] if isinstance(own, Operand) else None
            lies = (root.dtype, root.strides, root.offset)
            if (
                isinstance(leaf, Load) and isinstance(own, Operand) and leaf.buffer == buffer
                and (leaf.dtype, leaf.strides, leaf.offset) == lies and not leaf.looks
                and not any(leaf.window) and own.index not in used(rest)
            ):  # fmt: skip
                return replace(cone, roots=[replace(root, cell=rest)])
    raise cone.refuse(f"is to be merged with {buffer}", "a cell that merges it last, as it lies")


def seconds(step: KernelStep, target: Target) -> float:
    """What a product takes whose result memory merges, where it read and added what is there.

    Those that multiply read no panel of it; memory takes longer for what they store.
    """
    chosen, figure = step.parameters, target.figure
    (root,) = (step.nodes[n] for n in step.roots)
    size = value_type(root.type).itemsize
    stored = chosen["m"] * chosen["n"] // chosen["split"]
    sides = ("n", "m") if chosen["turned"] else ("m", "n")
    tile = dict(zip(TILE_LETTERS, (chosen[side] for side in sides), strict=True))
    blocks = prod(ceil(n / tile.get(x, 1)) for x, n in step.loops.items() if x in GRID_LETTERS)
    per_unit = ceil(blocks / target.n_units)
    own = chosen["n"] // chosen["split"] // chosen["across"]
    wide = tiles.panel_width(own, size, int(not chosen["turned"]))
    rows = chosen["m"] * chosen["across"] // chosen["consumers"]
    words = float(np.asarray(tile_words(rows, wide, size)))
    read = ceil(own / wide) * (figure("read_panel_s") + words * figure("read_word_s"))
    more = stored * size / figure("merge_unit_bytes_per_s")
    return step.time_s - per_unit * (read - more)

"""What a kernel issues: texts of one trace are known to compute the same of all inputs.

A trace has the instructions in order, with the elements that each takes. Tiles are known by their
first use; their sizes and memories are not in it, as engines compute the same wherever a tile is.
Left out are writes that nothing reads later, steps along dims of one index, and the type of a tile
that is filled with a number which the type holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from axe_eq_backends.nki.sim.facade import modules
from axe_eq_backends.nki.sim.isa.registry import INSTRUCTIONS
from axe_eq_backends.nki.sim.state import current
from axe_eq_backends.nki.sim.views import Tensor

RESULT = -1  # all tensors that are no tiles, which are read in the end
Known = tuple[int, Any]  # a tile, and the rest of what is known of an operand
Call = tuple[str, dict[str, str | Known], set[int], set[int]]  # arguments, tiles read and written


@contextmanager
def traced(dialect: str = "0.3") -> Iterator[list[Call]]:
    """The calls that kernels make meanwhile."""
    names, calls = vars(modules(dialect)["nki.isa"]), list[Call]()

    def noted(name: str, run: Callable[..., None]) -> Callable[..., None]:
        @wraps(run)
        def noting(**given: Any) -> None:
            run(**given)
            step = current().steps[-1]
            reads, writes = ({r.space.number for r in rs} for rs in (step.reads, step.writes))
            exact = name == "memset" and np.all(given["dst"].array() == given["value"])
            typed = set() if exact else writes
            if any(not r.space.memory.on_chip for r in step.writes):
                writes = {RESULT}
            calls.append((name, {k: _known(x, typed) for k, x in given.items()}, reads, writes))

        return noting

    before = {name: names[name] for name in INSTRUCTIONS if name in names}
    names.update({name: noted(name, run) for name, run in before.items()})
    try:
        yield calls
    finally:
        names.update(before)


def _known(x: Any, typed: set[int]) -> str | Known:
    """An argument; of a tensor with its type where it is written."""
    if isinstance(x, list):  # [step, count] of every dim
        x = [(step, n) for step, n in x if n > 1]
    if not isinstance(x, Tensor):
        return str(x)
    tile, size = x.storage.tile, x.itemsize
    lead, *steps = [s * (n > 1) for s, n in zip(x.steps, x.shape, strict=True)]
    row = tile.bytes_per_partition if x.buffer.on_chip else x.storage.n_bytes
    first, at = divmod(x.first, row)
    lead = lead // row if x.buffer.on_chip else lead
    moved = x.moved and (x.moved.by.storage.tile.number, x.moved.count)
    return tile.number, (first, at / size, lead, [s / size for s in steps], x.shape, moved and
                         moved[1], str(x.dtype) if tile.number in typed else "")  # fmt: skip


def trace(calls: list[Call]) -> list[Any]:
    """What is equal of kernels that compute the same of all inputs."""
    live, kept, numbers = {RESULT}, list[Call](), dict[int, int]()
    for call in reversed(calls):
        if call[3] & live:
            live |= call[2]
            kept.append(call)
    return [
        (name, [(k, numbers.setdefault(x[0], len(numbers)), x[1]) if isinstance(x, tuple)
                else (k, x) for k, x in sorted(args.items())])
        for name, args, _, _ in reversed(kept)
    ]  # fmt: skip

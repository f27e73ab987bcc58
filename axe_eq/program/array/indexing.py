"""Basic indexing: integers, slices, None and Ellipsis; missing trailing indices are full slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from axe_eq.errors import ProgramError
from axe_eq.program.array.arguments import whole
from axe_eq.program.ops import join_text
from axe_eq.program.signature import Affine, make, plain
from axe_eq.program.traced import Traced, block, select

_EXPECTED = "integers, slices, None or ..."


def index(x: Traced, key: Any) -> Traced:
    """``x[key]``: one slice selector, then unit dims dropped and inserted.

    Raises:
        ProgramError: an index out of range, an empty slice, too many indices, or an index whose
            result would depend on values.
    """
    entries = _complete(x, key if isinstance(key, tuple) else (key,))
    parts, dropped, inserted = [], [], []
    axis = out = 0
    for entry in entries:
        if entry is None:
            inserted.append(out)
            out += 1
            continue
        parts.append(_part(x, axis, entry))
        if isinstance(entry, slice):
            out += 1
        else:
            dropped.append(axis)
        axis += 1
    if any(part is not None for part in parts):
        x = select(join_text("slice", tuple(parts)), x)
    return insert_dims(drop_dims(x, dropped), inserted)


def _complete(x: Traced, key: tuple[Any, ...]) -> list[Any]:
    """The key with `...` and missing indices written as full slices, integers as integers."""
    entries = [_entry(k) for k in key]
    n_dots = sum(e is Ellipsis for e in entries)
    missing = x.ndim - sum(e is not None and e is not Ellipsis for e in entries)
    if n_dots > 1 or missing < 0:
        wrong = "has more than one ..." if n_dots > 1 else f"has too many indices for {x.node.type}"
        raise ProgramError(f"index {_text(key)}", wrong, f"at most {x.ndim} indices")
    at = entries.index(Ellipsis) if n_dots else len(entries)
    return entries[:at] + [slice(None)] * missing + entries[at + n_dots :]


def _entry(entry: Any) -> Any:
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return entry
    if isinstance(entry, int | np.integer) and not isinstance(entry, bool):
        return int(entry)
    thing = f"index of type {type(entry).__name__}"
    if _is_mask(entry):
        wrong, hint = "would give a shape that depends on values", "where(mask, a, b)"
    elif isinstance(entry, float | str | bytes):
        wrong, hint = "is no number of an element", ""
    else:
        wrong, hint = "is an array of indices", "axe_eq.array.take(x, indices, axis=...)"
    raise ProgramError(thing, wrong, _EXPECTED, hint=hint)


def _is_mask(entry: Any) -> bool:
    """Whether an index selects where it is true, so that its values say how many elements."""
    if isinstance(entry, Traced):
        return entry.node.dtype == "bool"
    try:
        return np.asarray(entry).dtype == np.bool_
    except ValueError:  # lists of unequal lengths
        return False


def _part(x: Traced, axis: int, entry: Any) -> tuple[int, int, int] | None:
    extent = x.node.shape[axis]
    if isinstance(entry, int):
        if not -extent <= entry < extent:
            wrong = f"is out of range on axis {axis} of {x.node.type}"
            raise ProgramError(f"index {entry}", wrong, f"{-extent}..{extent - 1}")
        return entry % extent, 1, 1
    bounds = (entry.start, entry.stop, entry.step)
    if any(isinstance(b, Traced) for b in bounds):
        raise ProgramError(
            f"slice {_text((entry,))}", "begins or ends where the run says", "integers",
            hint="axe_eq.array.dynamic_slice(x, starts, sizes)",
        )  # fmt: skip
    given = [None if b is None else whole("bound of a slice", b) for b in bounds]
    if given[2] == 0:
        raise ProgramError(f"slice {_text((entry,))}", "has step 0", "another step")
    start, stop, step = slice(*given).indices(extent)
    count = len(range(start, stop, step))
    if count == 0:
        wrong = f"selects nothing of axis {axis} of {x.node.type}"
        raise ProgramError(f"slice {_text((entry,))}", wrong, "at least one element")
    return None if (start, step, count) == (0, 1, extent) else (start, step, count)


def _text(key: Sequence[Any]) -> str:
    def one(entry: Any) -> str:
        if isinstance(entry, slice):
            bounds = [entry.start, entry.stop] + ([entry.step] if entry.step is not None else [])
            return ":".join("" if b is None else str(b) for b in bounds)
        return "..." if entry is Ellipsis else str(entry)

    return "[" + ", ".join(map(one, key)) + "]"


def drop_dims(x: Traced, axes: Sequence[int]) -> Traced:
    """Remove dims of extent 1."""
    if not axes:
        return x
    kept = [d for d in range(x.ndim) if d not in axes]
    operand = [Affine(()) if d in axes else plain(kept.index(d)) for d in range(x.ndim)]
    return block(make([operand], range(len(kept))).text, "id", x)


def insert_dims(x: Traced, axes: Sequence[int]) -> Traced:
    """Insert dims of extent 1 at these axes of the result."""
    if not axes:
        return x
    rank = x.ndim + len(axes)
    operand = [plain(d) for d in range(rank) if d not in axes]
    return block(make([operand], range(rank), fixed=dict.fromkeys(axes, 1)).text, "id", x)

"""Boxes: which part of a value a kernel works on at a time, as one text entry per dim.

Letters: ``p`` ``q`` blocks of the grid, ``b`` ``c`` ``d`` ``e`` one index per block, ``k`` a
    streaming loop,
``s`` a streaming loop of a structured monoid (online softmax), ``*`` the whole dim. An entry is an
affine image of its letter's range plus a window: ``2p+3:4`` covers 2i+3 .. 2i+6 for every i of p's
range. A box holds no extents and no tile sizes; those are the extractor's (Tapestry, block
operators; Axe sec. 3).

A box in a demand has a number too, as in ``p+3!2``. It counts how often moving and computing took
turns on the way there from the root of the kernel. After `MOST_TURNS` nothing more is computed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from axe_eq.errors import ScheduleError
from axe_eq.program.node import sel_type
from axe_eq.program.ops import CELLS, MONOIDS, Pull, scan, selector, split_text
from axe_eq.program.signature import Affine, Signature, signature
from axe_eq.program.types import ValueType, value_type

WHOLE = "*"
TILE_LETTERS = ("p", "q")
UNIT_LETTERS = ("b", "c", "d", "e")
MIXED_LETTER = "s"  # of a structured monoid's dim
STREAM_LETTERS = ("k", MIXED_LETTER)
GRID_LETTERS = (*TILE_LETTERS, *UNIT_LETTERS)


@dataclass(frozen=True)
class Entry:
    """One dim of a box: scale * letter + offset, a window wide; the letter ``*`` is the whole dim.

    A scale of 0 is the constant index `offset`.
    """

    letter: str
    scale: int = 1
    offset: int = 0
    window: int = 1

    def __str__(self) -> str:
        if self.letter == WHOLE:
            return WHOLE
        scale = {1: "", -1: "-"}.get(self.scale, str(self.scale))
        text = scale + self.letter if self.scale else ""
        if self.offset or not text:
            text += f"{self.offset:+d}" if text else str(self.offset)
        return text + (f":{self.window}" if self.window != 1 else "")

    def image(self, scale: int, offset: int) -> Entry:
        """The entry of scale * x + offset where x ranges over this entry."""
        if self.letter == WHOLE:
            return self
        low = min(0, scale * (self.window - 1)) if scale < 0 else 0
        window = abs(scale) * (self.window - 1) + 1
        return Entry(self.letter, scale * self.scale, scale * self.offset + offset + low, window)


ALL = Entry(WHOLE)
# Even: computed on the way to something computed or stored; odd: moved. What is computed under a
# move is computed again under every other one, at boxes of its own: a stencil step reads the one
# before at several places, and n steps in one kernel at n times as many along every dim. At the
# last turn values are read from memory. Kernels of three steps have more nodes than cones may.
MOST_TURNS = 5
SEEN = MOST_TURNS + 1  # nothing is moved either: a value in memory is seen as a view of it
_ENTRY = re.compile(r"^(?:(-?\d*)([a-z]))?([+-]?\d+)?(?::(\d+))?$")


def split_turns(text: str) -> tuple[str, int]:
    """A box, and the turns of moving and computing on the way to it.

    >>> split_turns("p+3 q!2")
    ('p+3 q', 2)
    """
    box, _, turns = text.partition("!")
    return box, int(turns or 0)


def with_turns(box: str, turns: int) -> str:
    """The text of both."""
    return f"{box}!{turns}" if turns else box


@cache
def parse(text: str) -> tuple[Entry, ...]:
    """The entries of a box text, one per dim; how often it took turns is no part of them.

    Raises:
        ScheduleError: an entry that is not one.
    """
    return tuple(_parse_entry(word) for word in split_turns(text)[0].split())


def _parse_entry(word: str) -> Entry:
    if word == WHOLE:
        return ALL
    match = _ENTRY.match(word)
    if match is None:
        raise ScheduleError(
            f"box entry {word!r}", "does not parse", "'p', '2p+3:4', '*' or a number"
        )
    scale, letter, offset, window = match.groups()
    factor = {"": 1, "-": -1}.get(scale) if letter else 0
    return Entry(
        letter or "", int(scale) if factor is None else factor, int(offset or 0), int(window or 1)
    )


def show(entries: Iterable[Entry]) -> str:
    """The text of a box."""
    return " ".join(map(str, entries))


def letters(text: str) -> str:
    """The loop letters of a box, each once, in order."""
    return "".join(dict.fromkeys(e.letter for e in parse(text) if e.letter not in ("", WHOLE)))


@cache
def root_boxes(type_text: str) -> tuple[str, ...]:
    """Boxes that a kernel may have at its root, for a value of this type.

    One dim is cut in blocks p. The last one is cut in blocks q, or kept whole. A block has one
    index of every other dim. The last of these boxes keeps everything whole, for some windows allow
    no cut at all.
    """
    rank = value_type(type_text).rank
    if rank == 0:
        return ("",)
    if rank == 1:
        return ("p", WHOLE)
    boxes = []
    for row in range(rank - 1):
        for last in ("q", WHOLE):
            units = iter(UNIT_LETTERS)
            dims = [
                "p" if d == row else last if d == rank - 1 else next(units, WHOLE)
                for d in range(rank)
            ]
            boxes.append(" ".join(dims))
    return (*boxes, " ".join([WHOLE] * rank))


def _streams(sig: Signature, extents: Sequence[int]) -> int | None:
    """The reduced dim worth streaming: the longest that only plain projections read."""
    windows = {d for op in sig.operands for p in op if p.plain is None for d, _ in p.terms}
    free = [d for d in sig.reduced if d not in windows]
    return max(free, key=lambda d: (extents[d], -d), default=None)


@cache
def op_boxes(sig_text: str, cell_text: str, types: str, box: str) -> tuple[tuple[str, ...], ...]:
    """Ways to read the operands of a block operator so that its output box can be computed.

    At most one letter streams; a product inside a streaming box is refused unless a structured
    monoid streams there (its operands are consumed chunk by chunk, as in attention).

    Args:
        sig_text: signature.
        cell_text: cell.
        types: operand types, each followed by ";".
        box: box of the output.

    Returns:
        Alternatives, each one box text per operand.
    """
    sig = signature(sig_text)
    out = parse(box)
    if len(out) != sig.n_out:
        return ()
    extents = sig.extents([value_type(t).shape for t in types.split(";")[:-1]])
    choices = _reduction_choices(sig, cell_text, extents, {e.letter for e in out})
    found = []
    for entries in choices:
        operands = project(sig, [*out, *entries], extents)
        if operands is not None and operands not in found:
            found.append(operands)
    return tuple(found)


def _reduction_choices(
    sig: Signature, cell_text: str, extents: Sequence[int], used: set[str]
) -> list[list[Entry]]:
    """Entries for the reduced dims."""
    if not sig.n_reduced:
        return [[]]
    whole = [ALL] * sig.n_reduced
    product = CELLS[split_text(cell_text)[0]].product and len(sig.operands) == 2
    structured = MONOIDS[sig.monoid].n_values > 1
    streaming = bool(used & set(STREAM_LETTERS))
    choices = []
    dim = _streams(sig, extents)
    if dim is not None and not streaming:
        letter = MIXED_LETTER if structured else "k"
        choices.append([Entry(letter) if d == dim else ALL for d in sig.reduced])
    if MIXED_LETTER in used or not (product or structured) or (dim is None and not streaming):
        choices.append(whole)
    return choices


def project(
    sig: Signature, entries: Sequence[Entry], extents: Sequence[int]
) -> tuple[str, ...] | None:
    """Boxes of the operands for these entries of all index dims; None where two letters meet."""
    boxes = []
    for operand in sig.operands:
        dims = [_project_dim(p, entries, extents) for p in operand]
        if None in dims:
            return None
        boxes.append(show(d for d in dims if d is not None))
    return tuple(boxes)


def _project_dim(
    projection: Affine, entries: Sequence[Entry], extents: Sequence[int]
) -> Entry | None:
    """The box entry of one operand dim, or None where two letters would meet in it."""
    dim = projection.plain
    if dim is not None:
        return entries[dim]
    moving = [(d, c) for d, c in projection.terms if entries[d].letter != WHOLE]
    spread = [(d, c) for d, c in projection.terms if entries[d].letter == WHOLE]
    if len(moving) > 1:
        return None
    low = projection.offset + sum(min(0, c * (extents[d] - 1)) for d, c in spread)
    extra = sum(abs(c) * (extents[d] - 1) for d, c in spread)
    if not moving:
        return Entry("", 0, low, extra + 1) if not spread else ALL
    image = entries[moving[0][0]].image(moving[0][1], low)
    return Entry(image.letter, image.scale, image.offset, image.window + extra)


@cache
def sel_boxes(spec: str, types: str, box: str) -> tuple[str, ...] | None:
    """Boxes in which a selector's operands are read for its output box; None for another rank."""
    declared, params = selector(spec)
    given = [value_type(t) for t in types.split(";")[:-1]]
    out = parse(box)
    if len(out) != sel_type(spec, tuple(given)).rank:
        return None
    pulls = declared.pull(params, given) if declared.pull else [[None] * t.rank for t in given]
    return tuple(show(_pulled(p, out) for p in operand) for operand in pulls)


def _pulled(pull: Pull | None, out: Sequence[Entry]) -> Entry:
    return ALL if pull is None else out[pull.axis].image(pull.scale, pull.offset)


@cache
def scan_roots(text: str, type_text: str) -> tuple[str, ...]:
    """Boxes in which a kernel may store a scan beside `root_boxes`: its axis whole, columns cut.

    `root_boxes` keep an axis whole that is not the last only where they keep all dims whole.
    """
    axis, rank = scan(text)[1], value_type(type_text).rank
    if axis == rank - 1:
        return ()
    return (_whole_along({axis}, rank),)


@cache
def spread_roots(sig_text: str, type_text: str) -> tuple[str, ...]:
    """Boxes in which a kernel may store what is computed of values that lack a dim between others.

    Where such a dim is whole, what is reduced over it and what reads the result along it are one
    kernel, as in softmax and norms over that dim.

    Args:
        sig_text: signature of a block operator.
        type_text: type of its value.
    """
    sig, dims = signature(sig_text), range(value_type(type_text).rank)
    reads = ({i for p in o for i, _ in p.terms} for o in sig.operands)
    lacked = {frozenset(dims) - r for r in reads if 0 in r}
    found = sorted(map(sorted, lacked - {frozenset(), frozenset(dims[-1:])}))
    return tuple(_whole_along(whole, len(dims)) for whole in found)


def _whole_along(whole: Collection[int], rank: int) -> str:
    """The box with these dims whole, the last of the others in blocks, one index of the rest."""
    *rest, cut = (d for d in range(rank) if d not in whole)
    letters = dict(zip(rest, (*UNIT_LETTERS, *[WHOLE] * rank), strict=False))
    return " ".join("p" if d == cut else letters.get(d, WHOLE) for d in range(rank))


@cache
def scan_boxes(text: str, types: str, box: str) -> tuple[str, ...] | None:
    """Boxes in which a scan's operands are read for its box: its own, if its axis is whole there.

    None for another box: what comes before an element is no part of it.
    """
    entries, axis = parse(box), scan(text)[1]
    if axis >= len(entries) or entries[axis] != ALL:
        return None
    return (box,) * (len(types.split(";")) - 1)


@dataclass(frozen=True)
class Range:
    """Indices begin .. end-1 of one dim."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        """Number of indices."""
        return max(0, self.end - self.begin)


def ranges(entries: Sequence[Entry], loops: dict[str, Range], type: ValueType) -> tuple[Range, ...]:
    """The index ranges a box covers when its letters range over `loops`, clipped to the value."""
    return tuple(_range(e, loops, n) for e, n in zip(entries, type.shape, strict=True))


def _range(entry: Entry, loops: dict[str, Range], extent: int) -> Range:
    if entry.letter == WHOLE:
        return Range(0, extent)
    loop = loops[entry.letter] if entry.letter else Range(0, 1)
    ends = (entry.scale * loop.begin, entry.scale * (loop.end - 1))
    begin = min(ends) + entry.offset
    end = max(ends) + entry.offset + entry.window
    return Range(min(max(begin, 0), extent), min(max(end, 0), extent))

"""Access patterns: how an engine walks the operands of a primitive, from their placements.

All operands of an instruction are walked together, so their placements are refined to common digits
(Axe, section 3.4): those on partitions, and those along the free axis, of which a pattern has few.
The slowest of what is left are loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import Names
from axe_eq.kernel.expr import Expr, Int, Var
from axe_eq.kernel.placement import Block, number
from axe_eq.target import Instr
from axe_eq_backends.nki.build import FREE, PARTITION
from axe_eq_backends.nki.sim.storage import region

Steps = tuple[tuple[int, int], ...]  # (stride in elements, count), slow to fast


def repeats(loops: Iterable[Var]) -> int:
    """How often calls in a plan's loops are issued."""
    return prod((v.high or 0) + 1 for v in loops)


@dataclass(frozen=True)
class Access:
    """Elements of a buffer in the order in which an engine takes them.

    Attributes:
        view: of which they are.
        first: partition of the first one; 0 for tensors in HBM.
        partitions: how many.
        begin: element of the free axis, or of the tensor, where it begins.
        steps: along the free axis; of tensors in HBM those of partitions stand before, `lead` many.
        lead: how many of the steps are those of partitions.
    """

    view: ir.View
    first: Int
    partitions: int
    begin: Int
    steps: Steps
    lead: int = 0

    @property
    def buffer(self) -> ir.Buffer:
        """The storage that it is a part of."""
        return self.view.buffer.storage

    @property
    def is_far(self) -> bool:
        """Whether it lies in HBM."""
        return self.buffer.is_global

    @property
    def elements(self) -> int:
        """Elements of one partition."""
        return prod(n for _, n in self.steps[self.lead :])

    @property
    def is_column(self) -> bool:
        """Whether every partition reads one element."""
        return not self.is_far and all(n == 1 or s == 0 for s, n in self.steps)

    def __str__(self) -> str:
        steps = " ".join(f"{n}:{s}" for s, n in self.steps)
        return f"{self.buffer}[{self.first}:+{self.partitions}, {self.begin} + ({steps})]"


@dataclass(frozen=True)
class Digit:
    """One step of the common refinement: per operand its stride and axis; ("", 0) where none."""

    extent: int
    at: tuple[tuple[int, str], ...]

    def axis(self, operand: int) -> str:
        """The axis on which an operand has it."""
        return self.at[operand][1]

    def stride(self, operand: int) -> int:
        """Its stride in an operand."""
        return self.at[operand][0]

    def cut(self, inner: int) -> tuple[Digit, Digit]:
        """The digit as two, the faster one of so many."""
        slow = tuple((s * inner, a) for s, a in self.at)
        return Digit(self.extent // inner, slow), Digit(inner, self.at)


def refined(blocks: Sequence[Block], extent: int, thing: str) -> list[Digit]:
    """Common refinement of one dim in several placements, slow to fast.

    Raises:
        DispatchError: iters that do not divide each other.
    """
    stacks = [list(b) for b in blocks]
    absent = [not s for s in stacks]
    out: list[Digit] = []
    left = extent
    while left > 1:
        tops = [None if a else s[-1] for s, a in zip(stacks, absent, strict=True)]
        e = min([left] + [number(t.extent) for t in tops if t])
        if left % e or any(number(t.extent) % e for t in tops if t):
            raise DispatchError(thing, "iters without a common refinement", "extents that divide")
        at = []
        for stack, top in zip(stacks, tops, strict=True):
            if top is None:
                at.append((0, ""))
                continue
            stack.pop()
            if number(top.extent) > e:
                stack.append(top._replace(extent=number(top.extent) // e, stride=top.stride * e))
            at.append((number(top.stride), top.axis))
        out.insert(0, Digit(e, tuple(at)))
        left //= e
    return fused(out)


def fused(digits: Sequence[Digit]) -> list[Digit]:
    """Neighbours that continue each other in every operand as one."""
    out: list[Digit] = []
    for d in digits:
        if out and all(
            a == b and s == t * d.extent for (s, a), (t, b) in zip(out[-1].at, d.at, strict=True)
        ):
            out[-1] = Digit(out[-1].extent * d.extent, d.at)
        else:
            out.append(d)
    return out


def digits_of(views: Sequence[ir.View], shape: Sequence[int], thing: str) -> list[Digit]:
    """Digits of all dims of a primitive; operands of fewer dims are broadcast as in numpy."""
    return _digits(tuple(v.place.blocks for v in views), shape, thing)


def _digits(blocks: Sequence[Sequence[Block]], shape: Sequence[int], thing: str) -> list[Digit]:
    rank = len(shape)
    padded = [((),) * (rank - len(b)) + tuple(b) for b in blocks]
    return [d for dim in range(rank) for d in refined([b[dim] for b in padded], shape[dim], thing)]


@lru_cache(maxsize=1 << 14)
def _sorted_digits(
    blocks: tuple[tuple[Block, ...], ...], shape: tuple[int, ...], chip: tuple[int, ...], thing: str
) -> tuple[list[Digit], list[Digit]]:
    """(digits on partitions, digits along the free axis), slow to fast, for operands on `chip`.

    Kept by placement: the candidates of a search have the same few.
    """
    digits = _digits(blocks, shape, thing)
    across = [d for d in digits if any(d.axis(n) == PARTITION for n in chip)]
    along = [d for d in digits if d not in across]
    for n in chip:
        if any(d.axis(n) != PARTITION for d in across):
            wrong = f"operand {n} lies across partitions where others do not"
            raise DispatchError(thing, wrong, "the same partitions")
    across.sort(key=lambda d: -max(d.stride(n) for n in chip))
    along.sort(key=lambda d: [-abs(d.stride(n)) for n in (*chip, *range(len(blocks)))])
    across, along = fused(across), fused(along)
    for n in chip:
        _check_partitions(across, n, thing)
    return across, along


def walked(
    views: Sequence[ir.View], shape: Sequence[int], thing: str, names: Names, dims: int
) -> tuple[list[Access], list[Var]]:
    """Accesses of operands that an engine walks together, and loops around them.

    Args:
        views: the operands.
        shape: of the primitive.
        thing: for messages.
        names: of loops.
        dims: of a pattern at most, the partition's among them.

    Raises:
        DispatchError: partitions that do not agree.
    """
    chip = tuple(n for n, v in enumerate(views) if not v.buffer.is_global)
    blocks = tuple(v.place.blocks for v in views)
    across, along = _sorted_digits(blocks, tuple(shape), chip, thing)
    parts = prod(d.extent for d in across)
    room = dims - max(len(across), 1)
    outer = along[: max(len(along) - room, 0)]
    along = along[len(outer) :]
    loops = [names.fresh("j", 0, d.extent - 1) for d in outer]
    found = []
    for n, view in enumerate(views):
        place = view.place
        shift: Int = 0
        for v, d in zip(loops, outer, strict=True):
            shift = shift + v * d.stride(n)
        if view.buffer.is_global:
            steps = tuple((d.stride(n), d.extent) for d in (*across, *along))
            begin = place.at(view.buffer.space.axes[-1]) + shift
            found.append(Access(view, 0, parts, begin, steps, len(across)))
        else:
            steps = _merged((d.stride(n), d.extent) for d in along)
            at = place.at(FREE) + shift
            found.append(Access(view, place.at(PARTITION), parts, at, steps))
    return found, loops


def swapped(row: Instr, s: ir.Copy) -> tuple[Access, Access, int]:
    """(destination, source, extent between) of a copy on chip that turns partitions.

    What the destination has on partitions is the fastest of the source's free axis, and what the
    source has there is the fastest of the destination's; a dim between them stays.

    Raises:
        DispatchError: it turns nothing, or more than an instruction of the row does.
    """
    digits = digits_of((s.dst, s.src), s.dst.shape, row.name)
    to_p = [d for d in digits if d.axis(0) == PARTITION and d.axis(1) != PARTITION]
    to_f = [d for d in digits if d.axis(0) != PARTITION and d.axis(1) == PARTITION]
    rest = [d for d in digits if d not in to_p and d not in to_f]
    if len(to_p) > 1 or len(to_f) > 1 or len(rest) > 1 or any(PARTITION in a for d in rest
                                                            for _, a in d.at):  # fmt: skip
        raise DispatchError(row.name, "is no swap of partitions and one free dim", "one")
    p = to_p[0] if to_p else Digit(1, ((1, PARTITION), (1, FREE)))
    f = to_f[0] if to_f else Digit(1, ((1, FREE), (1, PARTITION)))
    if p.extent > row.shape[0] or f.extent > row.shape[1] or max(p.stride(0), f.stride(1)) > 1:
        raise DispatchError(row.name, f"turns {f.extent} x {p.extent}", "whole tiles of 128 x 128")

    def access(view: ir.View, n: int, partitions: int, fastest: Digit) -> Access:
        steps = tuple((d.stride(n), d.extent) for d in (*rest, fastest))
        return Access(view, view.place.at(PARTITION), partitions, view.place.at(FREE), steps)

    between = rest[0].extent if rest else 0
    return access(s.dst, 0, p.extent, f), access(s.src, 1, f.extent, p), between


def _check_partitions(across: Sequence[Digit], operand: int, thing: str) -> None:
    """Digits number the partitions from the first one on, each once."""
    size = 1
    for d in reversed(across):
        if d.stride(operand) != size:
            raise DispatchError(thing, f"partitions with stride {d.stride(operand)}", f"{size}")
        size *= d.extent


def _merged(steps: object) -> Steps:
    out: list[tuple[int, int]] = []
    for stride, count in steps:  # type: ignore[attr-defined]
        if count == 1:
            continue
        if out and out[-1][0] == stride * count:
            out[-1] = (stride, out[-1][1] * count)
        else:
            out.append((stride, count))
    return tuple(out)


def linear(e: Int) -> tuple[int, dict[Var, int]] | None:
    """(constant, factor of every variable) of a sum with factors of at least 0; None for others.

    >>> i = Var(name="i")
    >>> linear(i * 128 + 5)
    (5, {i: 128})
    """
    if not isinstance(e, Expr):
        return (e, {}) if e >= 0 else None
    if isinstance(e, Var):
        return 0, {e: 1}
    if e.op not in ("+", "*"):
        return None
    parts = [linear(x) for x in e.args]
    if parts[0] is None or parts[1] is None:
        return None
    (a, of_a), (b, of_b) = parts[0], parts[1]
    if e.op == "+":
        return a + b, {v: of_a.get(v, 0) + of_b.get(v, 0) for v in (*of_a, *of_b)}
    if of_a and of_b:
        return None
    by, first, of = (b, a, of_a) if not of_b else (a, b, of_b)
    return first * by, {v: f * by for v, f in of.items()}


def run_bytes(a: Access) -> int:
    """Contiguous bytes at the end of an access; on chip, within a partition."""
    size = a.buffer.itemsize
    return region(None, 0, [n for _, n in a.steps], [s * size for s, _ in a.steps], size).run

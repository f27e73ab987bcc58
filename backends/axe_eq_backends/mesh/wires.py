"""An exchange as one rank does it on tensors: what it sends, receives and copies, made ready once.

What lies dense is sent and received where it lies; the rest goes through a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from axe_eq.mesh.regions import Part, Region, fills, parts_between, parts_of
from axe_eq.mesh.steps import LocalStep, reads_of
from axe_eq.program.signature import signature
from axe_eq.program.types import DTYPES
from axe_eq.schedule.digits import digits
from axe_eq.schedule.graph import KernelStep
from axe_eq_backends.mesh.torch_arrays import Moved, TorchArrays

if TYPE_CHECKING:
    from axe_eq.mesh.messages import Messages
    from axe_eq.mesh.plan import MeshPlan
    from axe_eq.mesh.rank import Rank
    from axe_eq.mesh.steps import ExchangeStep


class Wire:
    """One rank's part of an exchange.

    Attributes:
        rank: whose.
        name, dtype: of the buffer that is made.
        size: elements of it that the rank has.
        sent: bytes that it sends.
        constants: what it stores before all else.
        own: what it copies itself.
        out, into: per rank that it sends to or receives from, the parts of the message.
    """

    def __init__(self, arrays: TorchArrays, step: ExchangeStep, rank: Rank) -> None:
        messages, me = step.messages, rank.rank
        self.arrays, self.rank = arrays, me
        self.name, self.dtype = step.write.buffer, step.type.dtype
        self.size = rank.size(self.name)
        own = parts_of(messages, me)
        out = {d: parts_between(messages, me, d) for s, d in messages.pairs if s == me}
        into = {s: parts_between(messages, s, me) for s, d in messages.pairs if d == me}
        every = [*own, *(p for parts in into.values() for p in parts)]
        self._fills = fills(every, self.size)  # of what lies in another buffer nobody asks
        self.constants = self._moved([p for p in own if p.value is not None])
        self.own = self._moved([p for p in own if p.value is None])
        self.out = {d: self._moved(parts) for d, parts in out.items()}
        self.into = {s: self._moved(parts) for s, parts in into.items()}
        self.is_view = (
            not self.into and not self.constants and len(own) == 1 and _is_plain(own[0])
            and own[0].source.size == self.size and not rank.plan.buffers[self.name].inside
        )  # fmt: skip
        sizes = {pair: n // step.messages.itemsize for pair, n in messages.pairs.items()}
        self._arriving = {s: sizes[s, me] for s in self.into}
        self.sent = sum(n for (s, _), n in messages.pairs.items() if s == me)

    def _moved(self, parts: Sequence[Part]) -> list[Moved]:
        return [Moved(self.arrays, part, self.dtype) for part in parts]

    def memory(self, reads: Sequence[Any], rank: Rank) -> Any:
        """Memory for what is made, with its constants, which other parts lie over.

        It is new, or that of the buffer it lies in, or what is read where that is just a stretch of
        it: nobody writes there again.
        """
        memory = rank.around(self.name)
        if memory is None and self.is_view:
            return self.own[0].source.read(reads[self.own[0].leaf])
        if memory is None:
            make = self.arrays.empty if self._fills else self.arrays.zeros
            memory = make(self.size, self.dtype)
        for part in self.constants:
            part.store(part.value, memory)
        return memory

    def payload(self, dst: int, reads: Sequence[Any]) -> Any:
        """What is sent to a rank: where it lies if that is dense, else packed."""
        parts = self.out[dst]
        if len(parts) == 1 and parts[0].source.is_dense:
            return parts[0].source.read(reads[parts[0].leaf])
        packed = self.arrays.empty(sum(p.source.size for p in parts), self.dtype)

        def pack() -> None:  # by copies: of 64 MiB that is not dense `torch.cat` takes 25 us more
            begin = 0
            for part in parts:
                read = part.source.read(reads[part.leaf])
                packed[begin : begin + part.source.size].view(read.shape).copy_(read)
                begin += part.source.size

        self.arrays.do(pack)
        return packed

    def landing(self, src: int, memory: Any) -> Any:
        """Where what a rank sends arrives: where it is stored if that is dense, else a buffer."""
        parts = self.into[src]
        if len(parts) == 1 and parts[0].is_dense:
            return parts[0].goals[0].read(memory)
        return self.arrays.empty(self._arriving[src], self.dtype)

    def unpack(self, src: int, landed: Any, memory: Any) -> None:
        """Store what arrived in a buffer."""
        parts = self.into[src]
        if len(parts) == 1 and parts[0].is_dense:
            return
        begin = 0
        for part in parts:
            n = part.source.size
            part.store(landed[begin : begin + n], memory)
            begin += n

    def keep(self, reads: Sequence[Any], memory: Any) -> None:
        """Copy what this rank has itself."""
        for part in () if self.is_view else self.own:
            part.copy(reads, memory)


# -- collectives -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Collective:
    """An exchange that is one collective in every group of ranks.

    Attributes:
        kind: "all_gather" or "all_to_all".
        groups: of ranks, ascending.
        sources, goals: per rank, first address of what it gives and gets.
        count: elements of a part.
    """

    kind: str
    groups: tuple[tuple[int, ...], ...]
    sources: dict[int, int]
    goals: dict[int, int]
    count: int


def collective_of(messages: Messages) -> Collective | None:
    """The collective that an exchange is, its own copies too; None where it is none.

    Every rank's parts must lie behind each other, in the order of ranks.
    """
    out: dict[int, set[int]] = {}
    for src, dst in messages.pairs:
        out.setdefault(src, {src}).add(dst)
    groups = {tuple(sorted(group)) for group in out.values()}
    if not groups or sum(map(len, groups)) != len(out):
        return None
    if len({len(g) for g in groups}) > 1 or any(
        tuple(sorted(out[r])) != g for g in groups for r in g
    ):
        return None
    found = [_Group(messages, group) for group in sorted(groups)]
    for kind in ("all_gather", "all_to_all"):
        if all(g.fits(kind) for g in found) and len({g.count for g in found}) == 1:
            sources = {r: a for g in found for r, a in g.sources(kind).items()}
            goals = {
                r: g.first(r, r)[1] - i * g.count for g in found for i, r in enumerate(g.ranks)
            }
            return Collective(kind, tuple(sorted(groups)), sources, goals, found[0].count)
    return None


class _Group:
    """Ranks that send to each other."""

    def __init__(self, messages: Messages, ranks: tuple[int, ...]) -> None:
        self.messages, self.ranks = messages, ranks

    @cached_property
    def table(self) -> dict[tuple[int, int], tuple[int, int, int]] | None:
        """(source, goal) -> addresses there and there, and elements; None where one is not so."""
        found = {}
        for src in self.ranks:
            for dst in self.ranks:
                between = src != dst
                parts = (
                    parts_between(self.messages, src, dst)
                    if between
                    else parts_of(self.messages, src)
                )
                if len(parts) != 1 or not _is_plain(parts[0]):
                    return None
                (goal,) = parts[0].goals
                found[src, dst] = (parts[0].source.offset, goal.offset, goal.size)
        return found

    def first(self, src: int, dst: int) -> tuple[int, int, int]:
        """Addresses and elements of what one sends another."""
        assert self.table is not None
        return self.table[src, dst]

    @property
    def count(self) -> int:
        """Elements of a part."""
        return self.first(self.ranks[0], self.ranks[0])[2]

    def sources(self, kind: str) -> dict[int, int]:
        """Per rank the first address of what it gives."""
        step = self.count if kind == "all_to_all" else 0
        return {r: self.first(r, r)[0] - i * step for i, r in enumerate(self.ranks)}

    def fits(self, kind: str) -> bool:
        """Whether all parts lie as this collective takes and leaves them."""
        if self.table is None or len({n for _, _, n in self.table.values()}) != 1:
            return False
        n, begins = self.count, self.sources(kind)
        step = n if kind == "all_to_all" else 0
        for i, src in enumerate(self.ranks):
            for j, dst in enumerate(self.ranks):
                source, goal, _ = self.first(src, dst)
                own = self.first(dst, dst)[1] - j * n
                if source != begins[src] + j * step or goal != own + i * n or own < 0:
                    return False
        return all(a >= 0 for a in begins.values())


def _is_plain(part: Part) -> bool:
    """Whether a part is read and stored once, dense."""
    plain: Region = part.source
    return (
        part.value is None and part.pick is None and plain.is_dense
        and len(part.goals) == 1 and part.goals[0].is_dense
    )  # fmt: skip


# -- sums on the way -------------------------------------------------------------------------------

_SUMMED = ("f16", "bf16", "f32", "f64", "i8", "u8", "i32", "i64")  # what NCCL and gloo add


def sum_of(plan: MeshPlan, step: ExchangeStep, found: Collective) -> LocalStep | None:
    """The local step that adds the parts of an all-to-all, where a reduce-scatter gives its bits.

    What it makes lies dense, for so a reduce-scatter leaves it. Sums of integers have one result,
    and so have those of two floats: these are rounded once, as the fold rounds its float32 sum once
    more without changing it (Figueroa, When is double rounding innocuous?, 1995). More floats are
    left to the plan's fold, whose order is fixed.
    """
    name = step.write.buffer
    users = [s for s in plan.steps if name in reads_of(s)]
    if found.kind != "all_to_all" or len(users) != 1 or name in plan.outputs:
        return None
    (user,), n = users, len(found.groups[0])
    type_ = step.type
    whole = {plan.side(name).n_elements} == {n * found.count} and set(found.goals.values()) == {0}
    exact = n == 2 or DTYPES[type_.dtype].kind != "f"
    if not isinstance(user, LocalStep) or not (whole and exact) or type_.dtype not in _SUMMED:
        return None
    if not {rank for group in found.groups for rank in group} <= set(user.ranks):
        return None
    made = [plan.buffers[name] for name in user.writes]
    if any(b.within and not digits(b).is_dense for b in made):
        return None
    return user if _adds_first_dim(user, n) else None


def _adds_first_dim(step: LocalStep, n: int) -> bool:
    """Whether all that a step does is to add n parts, which lie behind each other."""
    graph = step.graph
    if len(graph.steps) != 1 or (len(step.reads), len(step.writes)) != (1, 1):
        return False
    (kernel,) = graph.steps
    if not isinstance(kernel, KernelStep):
        return False
    nodes = kernel.nodes
    if [node.kind for node in nodes] != ["load", "cell"] or nodes[0].view or nodes[1].view:
        return False
    given, made = (graph.buffers[b].value_type for b in (graph.inputs[0], graph.outputs[0]))
    says = signature(nodes[1].text)
    wanted = [made.rank, *range(made.rank)]  # the reduced dim, then those of the value
    return (
        nodes[1].cell == "id" and says.monoid == "+" and says.n_reduced == 1
        and (given.dtype, given.shape) == (made.dtype, (n, *made.shape))
        and nodes[0].type == str(given) and [p.plain for p in says.operands[0]] == wanted
    )  # fmt: skip

"""What operators cost in the kernels that local programs were compiled to.

A roofline of every operator alone says little of kernels of several: what these keep in registers
moves no bytes, and no kernel reaches the peak rate. So cuts are chosen again by what was compiled.
The time of a kernel is shared among the operators that it computes, by their work in it; another
cut of one of them is taken to be as much slower than that work there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from axe_eq.extract.mesh.options import Option
from axe_eq.program.node import Node


@dataclass(frozen=True)
class Kernel:
    """A kernel of a local program, in terms of the program that is cut.

    Attributes:
        level: number of the local program.
        computes: operators.
        stores: those whose values it stores.
        seconds: its price, at the extents of the cut.
    """

    level: int
    computes: frozenset[Node]
    stores: frozenset[Node]
    seconds: float


@dataclass(frozen=True)
class Share:
    """An operator's part in a kernel.

    Attributes:
        inside: operands that the kernel makes itself.
        kept: its value is stored.
        factor: how much slower than its work there it is.
    """

    inside: frozenset[int] = frozenset()
    kept: bool = True
    factor: float = 1.0

    def seconds(self, option: Option) -> float:
        """What an option takes with that part."""
        return self.factor * option.work.seconds(self.inside, self.kept)


@dataclass
class Fused:
    """Prices of operators as they were compiled, where they were.

    Attributes:
        last: operator -> its part in what was compiled last.
        known: operator -> option -> the part that it had when it was compiled so.
        typical: how much slower than their rooflines all operators were that were compiled last.
    """

    last: dict[Node, Share] = field(default_factory=dict)
    known: dict[Node, dict[Option, Share]] = field(default_factory=dict)
    typical: float = 1.0

    def seconds(self, node: Node, option: Option) -> float:
        """What a device takes for an option of an operator."""
        if node not in self.known:
            return self.typical * option.seconds
        return self.known[node].get(option, self.last[node]).seconds(option)

    def learn(
        self,
        options: Mapping[Node, Option],
        reads: Mapping[Node, Sequence[Iterable[Node]]],
        kernels: Sequence[Kernel],
    ) -> None:
        """Share what kernels take among operators.

        Args:
            options: what was compiled.
            reads: operator -> per operand the values that it is made of.
            kernels: of all local programs.
        """
        parts: dict[Node, Share] = {}
        taken: dict[Node, float] = {}
        rest: dict[int, float] = {}
        inside: dict[int, dict[Node, None]] = {}
        for kernel in kernels:
            computed = [n for n in options if n in kernel.computes]
            inside.setdefault(kernel.level, {}).update(dict.fromkeys(computed))
            if not computed:
                rest[kernel.level] = rest.get(kernel.level, 0.0) + kernel.seconds
                continue
            for node in computed:
                made = frozenset(
                    i for i, leaves in enumerate(reads[node])
                    if (found := list(leaves)) and kernel.computes.issuperset(found)
                )  # fmt: skip
                before = parts.get(node, Share(made, False))
                kept = before.kept or node in kernel.stores
                parts[node] = Share(before.inside & made, kept)
            self._share(taken, computed, parts, options, kernel.seconds)
        for level, seconds in rest.items():  # kernels of what laws made alone
            members = list(inside[level]) or list(parts)
            if members:
                self._share(taken, members, parts, options, seconds)
        for node in options:  # of what no kernel computes, others' have done the work
            parts.setdefault(node, Share())
        for node, part in parts.items():
            work = part.seconds(options[node])
            share = Share(part.inside, part.kept, taken.get(node, 0.0) / work if work else 1.0)
            self.last[node] = self.known.setdefault(node, {})[options[node]] = share
        alone = sum(options[node].seconds for node in parts)
        self.typical = sum(taken.values()) / alone if alone else 1.0

    @staticmethod
    def _share(
        taken: dict[Node, float],
        members: Sequence[Node],
        parts: Mapping[Node, Share],
        options: Mapping[Node, Option],
        seconds: float,
    ) -> None:
        work = [parts[n].seconds(options[n]) for n in members]
        whole = sum(work)
        for node, own in zip(members, work, strict=True):
            part = own / whole if whole else 1 / len(members)
            taken[node] = taken.get(node, 0.0) + seconds * part

"""Which link every two devices of a mesh are joined by, and what an exchange takes on all of them.

Links work side by side, and a link's busiest device decides: what it sends or receives over the
link, whichever is more, and what its messages cost it beside their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import ArgumentError, SearchError
from axe_eq.schedule import shard
from axe_eq.target import Link, Target

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Wires:
    """The links between the devices of a mesh.

    Attributes:
        links: of the target, the nearest first.
        level: per two devices the number of the link that joins them; 0 of one and itself.
        target: name of the target.
    """

    links: tuple[Link, ...]
    level: Ints
    target: str

    @cached_property
    def near(self) -> tuple[tuple[int, ...], ...]:
        """Per link but the last one, per device the first of those that it reaches by no other.

        Empty where one link joins all.
        """
        levels = range(int(self.level.max(initial=0)))
        return tuple(tuple((self.level <= n).argmax(1).tolist()) for n in levels)

    @cached_property
    def packs(self) -> float:
        """The least rate of links that carry dense messages alone; 0 where all carry others too."""
        return min((link.packs for link in self.links if link.packs), default=0.0)

    def seconds(self, n_bytes: Ints, n_messages: Ints) -> float:
        """What an exchange takes.

        Args:
            n_bytes: per two devices, from the first to the second.
            n_messages: likewise.

        Raises:
            SearchError: bytes cross links, and the target has none.
        """
        most = []
        for number in range(len(self.links) or 1):
            over = self.level == number
            both = (np.where(over, table, 0) for table in (n_bytes, n_messages))
            most.append([int(max(t.sum(0).max(), t.sum(1).max())) for t in both])
        return self.busiest(most)

    def busiest(self, most: Sequence[Sequence[int]]) -> float:
        """What an exchange takes of whose busiest device these are bytes and messages, per link.

        Raises:
            SearchError: bytes cross links, and the target has none.
        """
        found = [0.0]
        for number, (n_bytes, n_messages) in enumerate(most):
            if n_bytes:
                found.append(self.link(number).seconds(n_bytes, n_messages))
        return max(found)

    def waiting(self, n_bytes: Ints, signals: bool = False, chunks: int = 0) -> float:
        """What it takes until devices may see what these bytes are; 0 where some do not.

        Args:
            n_bytes: between every two devices.
            signals: kernels wait for each other themselves.
            chunks: that those who store tell of; 0 where those who read tell that they have come.
        """
        levels = np.unique(self.level[n_bytes > 0]).tolist()
        links = [self.link(number) for number in levels]
        found = [link.signal_s if signals else link.wait_s for link in links]
        if chunks and all(link.tell_s for link in links):
            found = [self._told(number, n_bytes, chunks) for number in levels]
        return max(found, default=0.0) if all(found) else 0.0

    def _told(self, number: int, n_bytes: Ints, chunks: int) -> float:
        """What it takes where those who store tell: they wait until it is there."""
        link = self.link(number)
        first, more, part = link.tell_s or (0.0, 0.0, 0.0)
        over = np.where(self.level == number, n_bytes, 0)
        stored = float(over.sum(1).max()) / link.bytes_per_s
        return first + more * (chunks - 1) + part * stored

    def by_link(self, n_bytes: Ints) -> dict[str, float]:
        """Bytes that cross every link, given those between every two devices; see `named`."""
        levels = range(len(self.links))
        return self.named([int(n_bytes[self.level == n].sum()) for n in levels])

    def named(self, n_bytes: Sequence[int]) -> dict[str, float]:
        """Bytes per link by its cost's name, ``NVLink_bytes``, where there are several links."""
        if not self.links[1:]:
            return {}
        costs = dict.fromkeys((f"{link.name}_bytes" for link in self.links), 0.0)
        return costs | dict(zip(costs, map(float, n_bytes), strict=False))

    def link(self, number: int) -> Link:
        """A link by its number.

        Raises:
            SearchError: the target has none.
        """
        if not self.links:
            wrong, wanted = "has no links to other devices", "a target with links"
            raise SearchError(f"target {self.target!r}", wrong, wanted)
        return self.links[number]


def wires(mesh: str, target: Target, along: Mapping[str, str]) -> Wires:
    """The links between the devices of a mesh.

    Args:
        mesh: text.
        target: whose links they are.
        along: mesh axis -> name of the link along it; where there are any, other axes take the
            first. Without, a link joins as many devices, by their numbers, as it says.

    Raises:
        ArgumentError: the target has no such link.
        SearchError: no link joins two of the devices.
    """
    links, n = target.links, shard.n_devices(mesh)
    device = np.arange(n)
    level = np.zeros((n, n), np.int64)
    if along:
        names = [link.name for link in links]
        for axis, (size, stride) in shard.mesh_axes(mesh).items():
            name = along.get(axis, names[0] if names else "")
            if name not in names:
                wrong = f"is joined by {name!r}, which {target.name!r} lacks"
                raise ArgumentError(f"mesh axis {axis!r}", wrong, f"one of {' '.join(names)}")
            place = device // stride % size
            other = place[:, None] != place
            level = np.maximum(level, np.where(other, names.index(name), 0))
        return Wires(links, level, target.name)
    left = device[:, None] != device
    for number, link in enumerate(links):
        level[left] = number
        if not link.n_devices:
            return Wires(links, level, target.name)
        group = device // link.n_devices
        left &= group[:, None] != group
    if links and left.any():
        a, b = np.argwhere(left)[0].tolist()
        raise SearchError(f"target {target.name!r}", f"has no link that joins devices {a} and {b}",
                          "a last link with n_devices=0")  # fmt: skip
    return Wires(links, level, target.name)

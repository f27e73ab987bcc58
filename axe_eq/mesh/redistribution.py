"""`axe_eq.mesh.redistribute`: a value from one layout over devices to another, in least bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import ArgumentError, LayoutError
from axe_eq.layout import Layout, Mesh
from axe_eq.layout.notation import check_shape, read_any
from axe_eq.layout.value.check import check_extents
from axe_eq.mesh.certificate import Certificate, certify
from axe_eq.mesh.messages import Messages, plan
from axe_eq.mesh.patterns import pattern
from axe_eq.mesh.pieces import Piece, identity, read_through
from axe_eq.mesh.sides import Side
from axe_eq.mesh.windows import Window, windowed, windowed_shape
from axe_eq.program.node import INPUT, SEL
from axe_eq.program.spec import Spec
from axe_eq.program.trace import trace
from axe_eq.schedule.graph import TileNode

Array = NDArray[np.generic]
DEVICE_AXIS = "gpuid"
MOST_SHOWN = 16  # messages in a text
MOST_ITEMSIZE = 1 << 10


@dataclass(frozen=True, eq=False)
class Redistribution:
    """Messages that bring a value from one layout to another; see `redistribute`.

    Attributes:
        messages: the exchange.
        pieces: what the goal reads of the source.
        n_devices: devices of both sides, numbered from 0.
    """

    messages: Messages
    pieces: tuple[Piece, ...]
    n_devices: int

    @property
    def source(self) -> Side:
        """Who holds what before."""
        return self.messages.sources[0]

    @property
    def goal(self) -> Side:
        """Who holds what after."""
        return self.messages.goal

    @property
    def n_bytes(self) -> int:
        """Bytes that cross links, all devices together."""
        return self.messages.n_bytes

    @property
    def n_messages(self) -> int:
        """Messages on the wire: at most one per pair of devices."""
        return self.messages.n_messages

    @cached_property
    def pattern(self) -> str:
        """The collective that it is, see `axe_eq.mesh.patterns.pattern`."""
        return pattern(self.messages)

    @cached_property
    def sent(self) -> list[int]:
        """Bytes that every device sends."""
        return self.messages.sent(self.n_devices)

    @cached_property
    def received(self) -> list[int]:
        """Bytes that every device receives."""
        return self.messages.received(self.n_devices)

    @cached_property
    def certificate(self) -> Certificate:
        """The proof by enumeration that everything arrives once, in the least bytes.

        Raises:
            ScheduleError: it does not.
        """
        return certify("redistribution", self.messages, self.pieces)

    def scatter(self, value: Array) -> dict[int, Array]:
        """Device -> its flat memory with its part of a whole value in the source's layout."""
        return {d: self.source.scatter(value, d) for d in self.source.devices.tolist()}

    def run(self, memories: Mapping[int, Array]) -> dict[int, Array]:
        """Move real memories in this process: device -> flat memory in the goal's layout.

        Args:
            memories: device -> flat memory in the source's layout, as `scatter` makes them.

        Raises:
            ArgumentError: a device whose memory is missing or too short.
        """
        for device in self.source.devices.tolist():
            there = len(memories[device]) if device in memories else 0
            if there < self.source.n_elements:
                wrong = f"has memory of {there} elements"
                raise ArgumentError(f"device {device}", wrong, f"{self.source.n_elements}")
        dtype = next(iter(memories.values())).dtype
        nothing = np.zeros(0, dtype)
        made = {d: np.zeros(self.goal.n_elements, dtype) for d in self.goal.devices.tolist()}
        for device, memory in made.items():
            self.messages.start(device, [memories.get(device, nothing)], memory)
        for src, dst in self.messages.pairs:
            self.messages.unpack(
                src, dst, self.messages.packed(src, dst, [memories[src]]), made[dst]
            )
        return made

    def to_json(self) -> str:
        """Layouts, and every message with its regions and bytes."""
        return json.dumps({
            "shape": self.source.shape,
            "source": str(self.source.layout),
            "goal": str(self.goal.layout),
            "itemsize": self.messages.itemsize,
            "pattern": self.pattern,
            "n_bytes": self.n_bytes,
            "messages": [
                {"src": src, "dst": dst, "n_bytes": n, "parts": self.messages.regions(src, dst)}
                for (src, dst), n in self.messages.pairs.items()
            ],
        })  # fmt: skip

    def __str__(self) -> str:
        lines = [
            f"{self.pattern}: {self.n_bytes:,} bytes in {self.n_messages:,} messages, "
            f"at most {max(self.sent, default=0):,} sent and {max(self.received, default=0):,} "
            "received by one device"
        ]
        for (src, dst), n in list(self.messages.pairs.items())[:MOST_SHOWN]:
            parts = " and ".join(
                "x".join(str(r) for r in part["region"].values()) or "all"  # type: ignore[attr-defined]
                for part in self.messages.regions(src, dst)
            )
            lines.append(f"  {src} -> {dst}: [{parts}] {n:,} B")
        if (left := self.n_messages - MOST_SHOWN) > 0:
            lines.append(f"  and {left:,} more")
        return "\n".join(lines)


def redistribute(
    source: Layout | str,
    goal: Layout | str,
    *,
    shape: Sequence[int],
    mesh: Mesh | None = None,
    goal_mesh: Mesh | None = None,
    itemsize: int = 4,
    through: Callable[[Any], Any] | None = None,
    windows: Mapping[int, Window] | None = None,
) -> Redistribution:
    """Plan the messages that bring a value from one layout over devices to another.

    ``redistribute("jax:P('x',None)", "jax:P(None,'x')", shape=(4096, 4096), mesh=Mesh({"x": 8}))``
    is an all-to-all of 58,720,256 bytes, in 56 messages.

    >>> sides, mesh = ("jax:P('x',None)", "jax:P(None,'x')"), axe.Mesh({"x": 8})
    >>> axe.mesh.redistribute(*sides, shape=(64, 64), mesh=mesh).n_bytes
    14336

    Args:
        source: layout that the value is in, with a device axis and flat memory `m`.
        goal: layout wanted.
        shape: of the value that is in the source's layout.
        mesh: numbers the devices of notations that name mesh axes.
        goal_mesh: of the goal, where it is another one (8 -> 6 devices); by default `mesh`.
        itemsize: bytes per element.
        through: a function of one array, made of selectors (slices, flips, concatenations, ...):
            the goal is the layout of its value. ``lambda x: xp.roll(x, 1, axis=0)`` is a halo of
            one row.
        windows: dim -> window that is read along it: every device then gets, dense and row-major,
            all that the windows of its part of the goal read.

    Returns:
        The plan; ``.n_bytes``, ``.pattern``, ``.certificate``, ``.run(...)``, ``print(...)``.

    Raises:
        LayoutError: layouts that do not fit the shape, or lie on other axes.
        ArgumentError: `through` computes, or `itemsize` is none.
        ScheduleError: a dim of too many indices.
    """
    extents = check_extents("shape", shape)
    if itemsize not in range(1, MOST_ITEMSIZE + 1):
        wanted = f"bytes per element, 1 to {MOST_ITEMSIZE}"
        raise ArgumentError(f"itemsize={itemsize!r}", "is no size", wanted)
    axis = DEVICE_AXIS if mesh is None else mesh.axis
    other = mesh if goal_mesh is None else goal_mesh
    if other is not None and other.axis != axis:
        raise LayoutError(f"goal_mesh={other!r}", f"numbers devices on {other.axis}", axis)
    pieces = _pieces(through, extents)
    windows = windows or {}
    out = windowed_shape(pieces[0].shape, windows)
    before = Side(_layout(source, extents, mesh, itemsize), extents, axis)
    after = Side(_layout(goal, out, other, itemsize), out, axis)
    if (clash := after.layout.aliasing().clash) is not None:
        wrong = f"keeps elements {clash.x} and {clash.y} in one place"
        raise LayoutError(f"goal {after.layout}", wrong, "a place for each")
    if windows:
        after, pieces = windowed(after.layout, axis, pieces, windows)
    n = max(int(before.devices[-1]), int(after.devices[-1])) + 1
    n = max(n, *(m.size for m in (mesh, goal_mesh) if m is not None), 0)
    return Redistribution(plan([before], after, pieces, itemsize), pieces, n)


def _layout(
    given: Layout | str, shape: tuple[int, ...], mesh: Mesh | None, itemsize: int
) -> Layout:
    if not isinstance(given, Layout):
        return read_any(given, shape=shape, mesh=mesh, itemsize=itemsize)
    check_shape(given, shape)
    return given


def _pieces(through: Callable[[Any], Any] | None, shape: tuple[int, ...]) -> tuple[Piece, ...]:
    if through is None:
        return (identity(0, shape),)
    program = trace(through, Spec(shape, "f32"))
    if len(program.outputs) != 1:
        raise ArgumentError("through", f"has {len(program.outputs)} outputs", "one array")
    (root,) = program.outputs
    numbers: dict[Any, int] = {}
    nodes: list[TileNode] = []
    for node in program.nodes():
        if node.kind not in (INPUT, SEL):
            raise ArgumentError("through", f"computes {node!r}", "selectors alone, which only move")
        operands = tuple(numbers[o] for o in node.args)
        kind = "load" if node.kind == INPUT else "gather"
        access = 0 if node.kind == INPUT else -1
        text = "" if node.kind == INPUT else node.text
        numbers[node] = len(nodes)
        nodes.append(TileNode(kind, text, "", "", str(node.type), operands, access))
    return read_through(nodes[: numbers[root] + 1])

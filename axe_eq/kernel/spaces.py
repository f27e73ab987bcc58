"""Memories as kernels see them: what a name stands for, on every machine of one execution model."""

from __future__ import annotations

from dataclasses import dataclass

from axe_eq.target.machine import GLOBAL, PRIVATE, SHARED, Memory

__all__ = ["GLOBAL", "PRIVATE", "SHARED", "WINDOW_BYTES", "Space", "space_of"]

# From where a kernel finds an element of global memory to where the next device has its own, where
# devices see each other's memory: tensor maps have strides below 2^40 bytes, for 16 devices.
WINDOW_BYTES = 1 << 36


@dataclass(frozen=True)
class Space:
    """A memory that the buffers of a kernel lie in.

    Example: registers of threads are ``Space("reg", PRIVATE, ("warp", "lane", "reg"))``.

    Attributes:
        name: that of the target's `Memory`.
        kind: who sees it: "global" (all; arguments lie there, and what lies outside one is masked),
            "shared" (those who run one instance of the kernel), "private" (each issuer its own).
        axes: the layout axes that it owns; the last one counts its elements.
        align_bytes: bytes that buffers in it begin at a multiple of.
    """

    name: str
    kind: str
    axes: tuple[str, ...]
    align_bytes: int = 1


def space_of(memory: Memory) -> Space:
    """A memory of a target as its kernels see it, where no execution model says otherwise."""
    return Space(memory.name, memory.kind, memory.axes, memory.align_bytes)

"""Where a run of a function under `trace` stands: what it collects, and the user's place in it."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

import numpy as np

from axe_eq.program.node import Node
from axe_eq.program.types import Array

Place = tuple[str, int]  # file, line


@dataclass
class Tracing:
    """What one run of a function under `trace` collects beside its nodes.

    Attributes:
        stop: code objects in which the search for the user's frame ends.
        constants: captured arrays by name.
        places: node -> where it was made first.
        last: place -> the last node made or met there.
        written: node -> its constant as it was written -> where, first.
    """

    stop: tuple[CodeType, ...] = ()
    constants: dict[str, Array] = field(default_factory=dict)
    places: dict[Node, Place] = field(default_factory=dict)
    last: dict[Place, Node] = field(default_factory=dict)
    written: dict[Node, dict[float, Place]] = field(default_factory=dict)

    def note(self, node: Node, constant: float | None = None) -> None:
        """Remember the user's place that made this node, and the constant that stands there."""
        frame = _user_frame(self.stop)
        if frame is None:
            return
        place = frame.f_code.co_filename, frame.f_lineno
        self.places.setdefault(node, place)
        if constant is not None:
            self.written.setdefault(node, {}).setdefault(constant, place)
        # The line of a lambda assigns something else, if it assigns at all.
        if frame.f_code.co_name != "<lambda>":
            self.last[place] = node


TRACING: ContextVar[Tracing | None] = ContextVar("tracing", default=None)
_INTERNAL = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], *np.__path__))


def is_internal(path: str) -> bool:
    """Whether a source file belongs to this package or to one that hands calls on to it."""
    return path.startswith(_INTERNAL) or "array_api_compat" in path


def _user_frame(stop: tuple[CodeType, ...]) -> FrameType | None:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code not in stop:
        if not is_internal(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None

"""The buffers and states of one kernel: what its statements may name."""

from __future__ import annotations

from collections.abc import Collection

from axe_eq.kernel import ir
from axe_eq.kernel.expr import Int, Var, bounds
from axe_eq.kernel.given import integer, refuse


class Parts:
    """What one kernel declared. Every check refuses, at the user's line, what is no part of it.

    Args:
        outputs: names of the arguments that it may write, while it declares them.
    """

    def __init__(self, outputs: Collection[str]) -> None:
        self._outputs = outputs
        self._own: set[object] = set()
        self._states: list[Var] = []

    def add(self, part: object) -> None:
        """Declare a buffer, a state, or what else a model of execution has."""
        if isinstance(part, Var):
            self._states.append(part)
        else:
            self._own.add(part)

    def own(self, thing: str, value: object, what: str) -> None:
        """Something that this kernel declared."""
        if value not in self._own:
            raise refuse(thing, f"{value} belongs to another kernel", f"{what} of this one")

    def buffer(self, thing: str, value: object) -> ir.Buffer:
        """A buffer of this kernel."""
        if not isinstance(value, ir.Buffer):
            raise refuse(thing, f"{value!s} is no buffer", "a buffer")
        self.own(thing, value.storage, "a buffer")
        return value

    def view(self, thing: str, value: object) -> ir.View:
        """A part of a buffer of this kernel."""
        if not isinstance(value, ir.View):
            raise refuse(thing, f"{value!s} is no view", "a part of a buffer: x[0:32], x.all")
        self.buffer(thing, value.buffer)
        return value

    def written(self, thing: str, value: object) -> ir.View:
        """A part of a buffer of this kernel that may be written."""
        view = self.view(thing, value)
        if view.buffer.is_global and view.buffer.name not in self._outputs:
            raise refuse(thing, f"{view} is a part of an input", "a tensor with output=True")
        return view

    def held(self, state: Var, value: Int) -> Int:
        """A value that a state of this kernel may have, as far as it is known."""
        if not any(state is s for s in self._states):
            raise refuse("assign", f"{state!s} is no state of this kernel", "one of k.state(...)")
        value = integer(f"state {state}", "value", value)
        (low, high), (least, most) = bounds(state), bounds(value)
        above = least is not None and high is not None and least > high
        if above or (most is not None and low is not None and most < low):
            raise refuse(f"state {state}", f"becomes {value}", f"{low} to {high}")
        return value

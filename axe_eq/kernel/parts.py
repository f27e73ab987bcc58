"""The buffers, barriers and states of one kernel: what its statements may name."""

from __future__ import annotations

from collections.abc import Collection

from axe_eq.kernel import ir
from axe_eq.kernel.expr import Int, Var, bounds
from axe_eq.kernel.given import integer, refuse


class Parts:
    """What one kernel declared. Every check refuses, at the user's line, what is no part of it.

    Args:
        outputs: names of the global tensors that it may write, while it declares them.
    """

    def __init__(self, outputs: Collection[str]) -> None:
        self._outputs = outputs
        self._own: set[ir.Buffer | ir.MBarrier] = set()
        self._states: list[Var] = []

    def add(self, part: ir.Buffer | ir.MBarrier | Var) -> None:
        """Declare a buffer, barriers or a state."""
        if isinstance(part, Var):
            self._states.append(part)
        else:
            self._own.add(part)

    def buffer(self, thing: str, value: object) -> ir.Buffer:
        """A buffer of this kernel."""
        if not isinstance(value, ir.Buffer):
            raise refuse(thing, f"{value!s} is no buffer", "a buffer")
        if value not in self._own:
            raise refuse(thing, f"{value} belongs to another kernel", "a buffer of this one")
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
        if view.buffer.memory == "gmem" and view.buffer.name not in self._outputs:
            raise refuse(thing, f"{view} is a part of an input", "a tensor with output=True")
        return view

    def barrier(self, thing: str, value: object, slot: Int) -> tuple[ir.MBarrier, Int]:
        """Barriers of this kernel, and one of their slots."""
        if not isinstance(value, ir.MBarrier):
            raise refuse(thing, f"{value!s} is no array of barriers", "k.mbarriers(name, slots)")
        if value not in self._own:
            raise refuse(thing, f"{value} belongs to another kernel", "barriers of this one")
        slot = integer(f"barrier {value}", "slot", slot)
        if isinstance(slot, int) and not 0 <= slot < value.slots:
            raise refuse(f"barrier {value}", f"slot {slot}", f"0 to {value.slots - 1}")
        return value, slot

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

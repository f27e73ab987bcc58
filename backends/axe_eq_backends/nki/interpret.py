"""Kernels of engines in program order, from their layouts or from their plans, without a machine.

Engines wait for data by themselves, so there is no race to find: found are reads of what was never
written, sums into what no product wrote, stray accesses, and outputs not written once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np

from axe_eq.kernel import cells, ir
from axe_eq.kernel.dispatch import Planned
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.interp import Env, GlobalTensor, KernelFault, bind, check_given
from axe_eq.kernel.plan import Call
from axe_eq.program import ops
from axe_eq.program.types import DTYPES
from axe_eq_backends.nki.build import CopyReduce, Gather

Meaning = Callable[["Core", Call, Env], None]


class Core:
    """One core while it runs.

    Args:
        kernel: what runs.
        arrays: of its tensors, by name; those of outputs give their shape and type alone.
    """

    def __init__(self, kernel: ir.Kernel, arrays: Mapping[str, Any]) -> None:
        check_given(kernel, arrays, {})
        self.tensors = {
            t.name: GlobalTensor(t, arrays[t.name], {}, "kernel") for t in kernel.tensors
        }
        for name in kernel.outputs:
            self.tensors[name].clear()
        self.values: dict[ir.Buffer, Any] = {}
        self.known: dict[ir.Buffer, Any] = {}
        for b in kernel.buffers:
            shape = tuple(b.place.extent_on(a) for a in b.space.axes)
            self.values[b] = np.zeros(shape, b.type.numpy)
            self.known[b] = np.zeros(shape, bool)

    # -- places --

    def _places(self, view: ir.View, env: Env) -> tuple[Any, ...]:
        """Where every element of a view on chip lies, per axis."""
        place = view.place
        found = tuple(
            np.broadcast_to(place.coordinate(a) + int(evaluate(place.at(a), env)), view.shape)
            for a in view.buffer.space.axes
        )
        sizes = self.values[view.buffer.storage].shape
        for axis, at, size in zip(view.buffer.space.axes, found, sizes, strict=True):
            if at.size and (at.min() < 0 or at.max() >= size):
                wrong = f"reaches {axis} {int(at.max())}"
                raise KernelFault(f"view {view}", wrong, f"0 to {size - 1}")
        return found

    def read_at(self, buffer: ir.Buffer, at: Any, what: str) -> Any:
        """Values at places of a buffer on chip, which must be written.

        Raises:
            KernelFault: they are not.
        """
        if not self.known[buffer][at].all():
            raise KernelFault(what, f"reads {buffer}, which was never written", "a written tile")
        return self.values[buffer][at]

    def write_at(self, buffer: ir.Buffer, at: Any, values: Any) -> None:
        """Write places of a buffer on chip, rounded to its element type."""
        self.values[buffer][at] = rounded(values, buffer.dtype)
        self.known[buffer][at] = True

    def _elements(self, view: ir.View, env: Env) -> tuple[Any, Any]:
        tensor = self.tensors[view.buffer.name]
        index = []
        for d in range(len(view.buffer.shape)):
            step = np.arange(view.extent[d] if d in view.dims else 1)
            shape = [1] * len(view.dims)
            if d in view.dims:
                shape[view.dims.index(d)] = -1
            index.append(int(evaluate(view.begin[d], env)) + step.reshape(shape))
        return (
            np.broadcast_to(tensor.element(index), view.shape),
            np.broadcast_to(tensor.inside(index), view.shape),
        )

    def read(self, view: ir.View, env: Env, what: str, fill: float = 0.0) -> Any:
        """The values of a view."""
        if view.buffer.is_global:
            return self.tensors[view.buffer.name].read(*self._elements(view, env), fill)
        return self.read_at(view.buffer.storage, self._places(view, env), what)

    def write(self, view: ir.View, env: Env, values: Any) -> None:
        """Write a view; values broadcast to it."""
        values = np.broadcast_to(values, view.shape)
        if view.buffer.is_global:
            element, inside = self._elements(view, env)
            held = rounded(values, view.buffer.dtype)
            self.tensors[view.buffer.name].write(element, held, inside)
        else:
            self.write_at(view.buffer.storage, self._places(view, env), values)


def rounded(values: Any, dtype: str) -> Any:
    """Values in an element type: whole numbers nearest to floats, at the ends of its range."""
    values, to = np.asarray(values), DTYPES[dtype]
    with np.errstate(all="ignore"):
        if to.kind == "i" and values.dtype.kind not in "iub":
            ends = np.iinfo(to.numpy)
            near = np.rint(values.astype(np.float64))
            near = np.where(np.isnan(near), 0, np.clip(near, ends.min, ends.max))
            return near.astype(to.numpy)
        if to.kind == "b":
            return values != 0
        return values.astype(to.numpy)


def wide(values: Any) -> Any:
    """Values as cells of programs take them: in the dtype that theirs is computed in."""
    name = next(n for n, d in DTYPES.items() if d.numpy == values.dtype)
    return values.astype(DTYPES[DTYPES[name].accumulate].numpy)


def _primitive(core: Core, s: ir.Primitive, env: Env) -> None:
    """One primitive from its layouts alone."""
    what = f"{s.operands} ({s.at})"
    if isinstance(s, ir.Copy):
        core.write(s.dst, env, core.read(s.src, env, what, s.fill))
    elif isinstance(s, ir.Map):
        held = [wide(core.read(v, env, what)) for v in s.ins]
        core.write(s.out, env, cells.evaluate(s.cell, held))
    elif isinstance(s, ir.Fill):
        core.write(s.out, env, np.full(s.out.shape, s.value))
    elif isinstance(s, ir.Index):
        shape = [-1 if d == s.dim else 1 for d in range(len(s.out.shape))]
        count = int(evaluate(s.begin, env)) + np.arange(s.out.shape[s.dim])
        core.write(s.out, env, count.reshape(shape))
    elif isinstance(s, ir.Reduce):
        monoid = ops.MONOIDS[s.monoid]
        held = wide(core.read(s.src, env, what))
        core.write(s.out, env, monoid.finish(monoid.lift((held,), s.dims)))
    elif isinstance(s, CopyReduce):
        monoid, held = ops.MONOIDS[s.monoid], core.read(s.src, env, what)
        core.write(s.out, env, held)
        core.write(s.reduced, env, monoid.finish(monoid.lift((wide(held),), s.dims)))
    elif isinstance(s, Gather):
        _gathered(core, s, env, what)
    elif isinstance(s, ir.Scan):
        _scanned(core, s, env, what)
    elif isinstance(s, ir.Gemm):
        a, b = (core.read(v, env, what).astype(np.float32) for v in (s.a, s.b))
        total = a @ b.T
        if evaluate(s.accumulate, env):
            total = total + core.read(s.acc, env, what)
        core.write(s.acc, env, total)
    else:
        raise KernelFault(what, "is not known to engines", "copy map fill index reduce gemm")


def _gathered(core: Core, s: Gather, env: Env, what: str) -> None:
    at = core.read(s.where, env, what).astype(np.int64)
    for d, step in enumerate(s.steps):
        shape = [-1 if e == d else 1 for e in range(len(s.steps))]
        at = at + step * np.arange(s.out.shape[d]).reshape(shape)
    tensor = core.tensors[s.src.buffer.name]
    first = int(evaluate(s.src.place.at("m"), env))
    core.write(s.out, env, tensor.read(first + at, np.ones(at.shape, bool)))


def _scanned(core: Core, s: ir.Scan, env: Env, what: str) -> None:
    (state,), (carry,), (merge,) = s.states, s.carries, s.merge
    values, held = core.read(state, env, what), core.read(carry, env, what)
    made = []
    for i in range(values.shape[s.dim]):
        held = cells.evaluate(merge, [held, np.take(values, [i], s.dim)])
        made.append(held)
    core.write(state, env, np.concatenate(made, s.dim))
    core.write(carry, env, held)


def interpret(
    kernel: ir.Kernel,
    arrays: Mapping[str, Any],
    planned: Planned[Any] | None = None,
    meanings: Mapping[str, Meaning] | None = None,
) -> dict[str, Any]:
    """Run a kernel on arrays of its tensors' shapes; the arrays of its outputs.

    Args:
        kernel: the kernel.
        arrays: by tensor.
        planned: its plans, which are run; without them primitives are run from their layouts.
        meanings: of the plans' calls.

    Raises:
        KernelFault: what it does wrong.
    """
    core = Core(kernel, arrays)

    def body(statements: ir.Body, env: Env) -> None:
        for s in statements:
            if isinstance(s, ir.For):
                ends = (int(evaluate(x, env)) for x in (s.start, s.stop, s.step))
                for i in range(*ends):
                    inner = dict(env)
                    bind(inner, s.var, i, s.at)
                    body(s.body, inner)
            elif isinstance(s, ir.If):
                if evaluate(s.condition, env):
                    body(s.body, env)
            elif isinstance(s, ir.Let | ir.Assign):
                bind(env, s.var, int(evaluate(s.value, env)), s.at)
            elif not isinstance(s, ir.Primitive):
                raise KernelFault(type(s).__name__, "is not known to engines", "loops, primitives")
            elif planned is None:
                _primitive(core, s, env)
            else:
                _planned(core, s, env)

    def _planned(core: Core, s: ir.Primitive, env: Env) -> None:
        assert planned is not None
        assert meanings is not None
        plan = planned.plan(s)
        for at in product(*(range((v.high or 0) + 1) for v in plan.loops)):
            inner = env | dict(zip((v.name for v in plan.loops), at, strict=True))
            for call in plan.calls:
                meanings[call.op](core, call, inner)

    body(kernel.body, {})
    for name in kernel.outputs:
        t = core.tensors[name]
        if (t.count[t.index] != 1).any():
            raise KernelFault(f"output {name}", "has elements not written exactly once", "once")
    return {name: core.tensors[name].array() for name in kernel.outputs}

"""Kernels against the cones they implement: interpreted, and compared with the numpy meaning.

A schedule that writes its own kernels is trusted by nobody: it sees figures of a cone when it says
that it can implement it, so it may well compute another function. A family's interpreter
(`Pack.interpreters`) runs what it lowered, and every buffer that it writes is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from axe_eq.debug import say, switches
from axe_eq.errors import AxeError, ScheduleError, cause, raised_at
from axe_eq.pack import Pack, title_of_schedule
from axe_eq.program.meaning import evaluate_nodes, evaluate_unchecked, scanned
from axe_eq.program.node import SCAN, Node, Program, input_node
from axe_eq.program.ops import cell, scan
from axe_eq.program.scans import FIRST, LAST
from axe_eq.program.signature import signature
from axe_eq.program.types import DTYPES, Array, ValueType, value_type
from axe_eq.prove.certificates.rebuild import in_float64
from axe_eq.prove.programs.marks import on_no_integer
from axe_eq.run.interpret import Interpreter, interpreter_of
from axe_eq.schedule.contents import shared
from axe_eq.schedule.decode import written
from axe_eq.schedule.graph import KernelStep, ScheduleGraph, TileNode
from axe_eq.target import Target

# Of the largest value: sums in another order, functions to a few ulp, and roundings of the coarsest
# type that a kernel may keep values in on its way.
TOLERANCES = {
    "f64": 1e-9, "f32": 1e-4, "f16": 4e-3, "bf16": 3e-2, "f8e4m3": 0.15, "f8e5m2": 0.3,
}  # fmt: skip
Index = tuple[int, ...]
Evaluate = Callable[[Node, Sequence[Array]], Array]
MOST_POINTS = 1 << 26  # of index spaces, of kernels that are interpreted at AXE_CHECK = 2
MERGED_AS_A_POINT = 64  # elements that numpy merges while one point is interpreted
KINDS = ("moderate", "extreme")
EXTREME = np.array([1e4, -1e4, 1e-4, -1e-4, 0.0, -0.0, 1.0])
UNDEFINED = np.array([np.inf, -np.inf, np.nan])
EXTREME_SHARE, UNDEFINED_SHARE = 0.125, 0.004  # most rows of a sample stay without NaN
JUMPING_SHARE = 0.02  # of elements that may differ where a cell of the kernel jumps


@dataclass(frozen=True)
class Wrong:
    """A kernel that does not compute its cone.

    Attributes:
        step: the kernel.
        problem: what is wrong, with both values where it ran.
    """

    step: KernelStep
    problem: str

    @property
    def title(self) -> str:
        """The schedule, its pack and the kernel."""
        return f"{title_of_schedule(self.step.schedule)}, kernel {self.step.name}"

    def __str__(self) -> str:
        return f"{self.title}: {self.problem}"


def check_kernels(
    program: Program, graph: ScheduleGraph, target: Target, packs: Iterable[Pack]
) -> None:
    """Interpret the kernels of a schedule on samples, where the target's family can.

    Larger ones than `MOST_POINTS` are left alone, which AXE_DEBUG says.

    Raises:
        ScheduleError: a kernel that does not compute its cone; names its schedule.
    """
    interpreter = interpreter_of(packs, target.family)
    if interpreter is None:
        return
    if (size := points(graph)) > MOST_POINTS:
        say(1, f"kernels are not compared: {size} points, at most {MOST_POINTS}")
        return
    rng = np.random.default_rng(switches().seed)
    for kind, wrong in wrong_on_samples(program, graph, target, interpreter, rng):
        on = "" if kind == KINDS[0] else f"on {kind} values, "
        raise ScheduleError(wrong.title, f"{on}{wrong.problem}")


def wrong_on_samples(
    program: Program,
    graph: ScheduleGraph,
    target: Target,
    interpreter: Interpreter,
    rng: np.random.Generator,
    only: Collection[str] | None = None,
) -> Iterator[tuple[str, Wrong]]:
    """`wrong_kernels` on a sample of every kind, and the kind.

    Args:
        program: what the graph computes; its constants are held as they are.
        graph: of one device.
        target: its machine.
        interpreter: of its family.
        rng: what the samples are drawn from.
        only: names of schedules whose kernels are run; all by default.
    """
    for kind in KINDS:
        inputs = sampled_inputs(graph, rng, kind) | dict(program.constants)
        for wrong in wrong_kernels(graph, target, interpreter, inputs, only):
            yield kind, wrong


def sampled_inputs(
    graph: ScheduleGraph, rng: np.random.Generator, kind: str = "moderate"
) -> dict[str, Array]:
    """Values for the inputs of a graph, by name: "moderate" or "extreme" ones.

    Extreme are large and small numbers side by side, zeros of both signs, rows of -inf, and here
    and there an infinity or NaN; of integers the ends of their type.
    """
    buffers = [graph.buffers[name] for name in graph.inputs]
    return {b.name: shared(sample(b.value_type, rng, kind), b.layout) for b in buffers}


def sample(of: ValueType, rng: np.random.Generator, kind: str) -> Array:
    """An array of a type, "moderate" or "extreme" as `sampled_inputs` says."""
    numpy_kind, numpy = DTYPES[of.dtype].kind, DTYPES[of.dtype].numpy
    if numpy_kind == "b":
        return np.asarray(rng.integers(0, 2, of.shape), dtype=bool)
    if numpy_kind == "i":
        if kind == "moderate":
            return np.asarray(rng.integers(-9, 10, of.shape), dtype=numpy)
        ends = np.iinfo(numpy)
        return np.asarray(rng.choice(np.array([ends.min, ends.max, 0, -1, 1]), of.shape), numpy)
    moderate = rng.standard_normal(of.shape) / 2
    if kind == "moderate":
        return np.asarray(moderate, dtype=numpy)
    large = rng.random(of.shape) < EXTREME_SHARE
    extreme = np.where(large, rng.choice(EXTREME, of.shape), moderate)
    rows = rng.random(of.shape[:-1]) < EXTREME_SHARE
    extreme = np.where(rows[..., None] if of.shape else rows, -np.inf, extreme)
    odd = rng.random(of.shape) < UNDEFINED_SHARE
    with np.errstate(all="ignore"):  # narrow types hold infinities for large numbers
        return np.asarray(np.where(odd, rng.choice(UNDEFINED, of.shape), extreme), dtype=numpy)


def wrong_kernels(
    graph: ScheduleGraph,
    target: Target,
    interpreter: Interpreter,
    inputs: Mapping[str, Array],
    only: Collection[str] | None = None,
) -> Iterator[Wrong]:
    """Interpret the kernels of a graph, each on what its operands mean.

    Args:
        graph: of one device.
        target: its machine.
        interpreter: of its family.
        inputs: arrays of inputs and constants, by buffer.
        only: names of schedules whose kernels are run; all by default.
    """
    held = dict(inputs)
    for step in graph.steps:
        if not isinstance(step, KernelStep):
            held[step.writes[0].buffer] = held[step.reads[0].buffer]
            continue
        kernel = _Kernel(step, graph, {a.buffer: held[a.buffer] for a in step.reads})
        wanted = kernel.meaning()
        if only is None or step.schedule in only:
            problem = kernel.problem(target, interpreter, wanted)
            if problem is not None:
                yield Wrong(step, problem)
        with np.errstate(all="ignore"):  # narrow types hold infinities for large numbers
            held |= {
                name: value.astype(DTYPES[graph.buffers[name].value_type.dtype].numpy)
                for name, value in wanted.items()
            }


@dataclass(frozen=True)
class _Kernel:
    """A kernel of a graph, on these values of the buffers that it reads."""

    step: KernelStep
    graph: ScheduleGraph
    reads: Mapping[str, Array]

    @cached_property
    def written(self) -> Mapping[str, Node]:
        """What it writes, by buffer, as nodes over the buffers that it reads."""
        buffers = self.graph.buffers
        return written(self.step, {n: input_node(n, buffers[n].value_type) for n in self.reads})

    def meaning(self) -> dict[str, Array]:
        """What it is to write, by buffer: its cone on the values.

        Floats are computed in float64, where only stores round; operator by operator in their own
        types where the kernel rounds so.
        """
        return self._meaning(wide=not self.step.rounds)

    def _otherwise(self) -> list[dict[str, Array]]:
        """What it means in the program's own types, and where no order of a scan decides."""
        found = [] if self.step.rounds else [self._meaning(wide=False)]
        if any(_has_order(node) for node in self.step.nodes):
            found.append(self._meaning(False, _decided))
        return found

    def _meaning(self, wide: bool, evaluate: Evaluate = evaluate_unchecked) -> dict[str, Array]:
        roots, given = list(self.written.values()), dict(self.reads)
        if wide:
            roots = in_float64(roots)
            given = {n: a.astype(np.float64) if _is_float(a) else a for n, a in given.items()}
        with np.errstate(all="ignore"):
            found = evaluate_nodes(roots, given, evaluate)
        return {name: found[root] for name, root in zip(self.written, roots, strict=True)}

    def problem(
        self, target: Target, interpreter: Interpreter, wanted: Mapping[str, Array]
    ) -> str | None:
        """What is wrong with what it writes; None if nothing is."""
        also = self._otherwise()
        try:
            made = interpreter.run(self.step, self.graph, target, self.reads)
        except AxeError as error:
            return f"cannot be run: {error}"
        except Exception as error:  # a pack's own lowering may fail in any way
            return f"cannot be lowered ({cause(error)}, at {raised_at(error)})"
        for name, want in wanted.items():
            if name not in made:
                return f"writes no {name}"
            found, others = np.asarray(made[name]), [a[name] for a in also]
            problem = _difference(found, want, others, self.step)
            if problem is not None:  # worked out for what differs alone
                problem = _difference(found, want, others, self.step, self._undetermined()[name])
            if problem is not None:
                return f"{problem.format(name=name)}: it does not compute {_cone(self.step)}"
        return None

    def _undetermined(self) -> dict[str, Array]:
        """By buffer: infinite where an element rests on what is no integer's value, else 0."""
        nodes = self.written
        roots = list(nodes.values())
        with np.errstate(all="ignore"):
            marks = on_no_integer(roots, evaluate_nodes(roots, self.reads, evaluate_unchecked))
        return {
            n: np.where(marks.get(r, False), np.inf, np.zeros(r.shape)) for n, r in nodes.items()
        }


def _has_order(node: TileNode) -> bool:
    """Whether a value depends on the order in which it is merged: by infinities and overflow."""
    return node.kind == "scan" and not scan(node.text)[0].exact


def _decided(node: Node, arrays: Sequence[Array]) -> Array:
    """Value of a node; of a scan another one from where its order decides what is no number.

    0 times infinity is NaN, and products of what comes later are 0 or infinite sooner than values.
    """
    usual = evaluate_unchecked(node, arrays)
    if node.kind != SCAN or not _is_float(usual):
        return usual
    finite, same = np.isfinite(usual), np.ones(usual.shape, bool)
    for order in (FIRST, LAST):
        other = scanned(node.text, arrays, order).astype(usual.dtype)
        same = same & np.where(finite, np.isfinite(other), _same(usual, other))
    decided = np.logical_and.accumulate(same, axis=scan(node.text)[1])
    return np.where(decided, usual, np.where(np.isnan(usual), 0, np.nan).astype(usual.dtype))


def _is_float(array: Array) -> bool:
    return array.dtype.kind not in "iub"


def _difference(
    found: Array, want: Array, also: Sequence[Array], step: KernelStep, free: Array | None = None
) -> str | None:
    """The worst element of a kernel's result, as text with a place for the buffer's name."""
    if found.shape != want.shape:
        return f"writes {{name}} of shape {found.shape}, and its cone has {want.shape}"
    share = JUMPING_SHARE if _jumps(step) else 0.0
    apart = difference(found, want, also, _tolerance(step), share, free)
    if apart is None:
        return None
    at, count = apart
    values = f"{_number(found[at])} at {at} of {{name}}, where its cone is {_number(want[at])}"
    return f"gives {values} ({count} of {found.size} elements differ)"


def difference(
    found: Array,
    want: Array,
    also: Sequence[Array],
    tolerance: float,
    share: float = 0.0,
    rounding: Array | None = None,
) -> tuple[Index, int] | None:
    """The first element that is not what it is to be, and how many there are.

    Where the meaning in float64 and the meaning computed otherwise are not the same number,
    infinity or NaN, rounding or the order of merging decides what comes out: nothing is asked.

    Args:
        found: what was computed.
        want: what is meant, in float64.
        also: what is meant, computed otherwise: in the program's own types, in another order.
        tolerance: of the largest finite value.
        share: of the elements that may differ.
        rounding: what each element may be off by beyond the tolerance, of floats; where that is
            inf, nothing is asked.
    """
    if not _is_float(want):
        apart = np.all([found != want, *(want == other for other in also)], axis=0)
        if rounding is not None:
            apart &= np.isfinite(rounding)
    else:
        with np.errstate(all="ignore"):
            stored = want.astype(found.dtype).astype(np.float64)
            own, a = [other.astype(np.float64) for other in also], found.astype(np.float64)
            finite = np.isfinite(np.stack([stored, *own])).all(axis=0)
            near = np.asarray(tolerance * (np.abs(stored[finite]).max(initial=0.0) + 1e-30))
            if rounding is not None:
                near = near + rounding
            asked = np.isfinite(np.broadcast_to(near, stored.shape))
            for other in own:
                asked &= np.where(finite, np.abs(stored - other) <= near, _same(stored, other))
            apart = asked & ~np.where(finite, np.abs(a - stored) <= near, _same(a, stored))
    if apart.sum() <= share * apart.size:
        return None
    return tuple(int(i) for i in np.argwhere(apart)[0]), int(apart.sum())


def _same(a: Array, b: Array) -> Array:
    """Where two arrays hold the same infinity, or both NaN."""
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _number(value: Any) -> str:
    return f"{float(value):.6g}" if _is_float(np.asarray(value)) else str(value)


def _tolerance(step: KernelStep) -> float:
    """Of the coarsest element type in the kernel."""
    kinds = {value_type(node.type).dtype for node in step.nodes}
    return max((TOLERANCES[k] for k in kinds if k in TOLERANCES), default=0.0)


def _jumps(step: KernelStep) -> bool:
    """Whether a cell jumps where a rounding may change its operand."""
    floats = any(value_type(node.type).dtype in TOLERANCES for node in step.nodes)
    return floats and any(cell(n.cell)[0].jumps for n in step.nodes if n.cell)


def _cone(step: KernelStep) -> str:
    cells = [n.cell or n.text for n in step.nodes if n.kind != "load"]
    return ", ".join(dict.fromkeys(cells)) if cells else "a copy"


def points(graph: ScheduleGraph) -> int:
    """Points of the index spaces of all nodes of all kernels: what comparing them costs."""
    total = 0
    for step in graph.kernels:
        types = [value_type(n.type) for n in step.nodes]
        for node, type_ in zip(step.nodes, types, strict=True):
            shapes = [types[o].shape for o in node.operands]
            is_cell = node.kind == "cell"
            total += prod(signature(node.text).extents(shapes)) if is_cell else type_.size
            if _has_order(node):  # also from its end, in quadratic work
                total += type_.size * type_.shape[scan(node.text)[1]] // MERGED_AS_A_POINT
    return total

"""What `compile` returns: a schedule that runs on its target and says why it was chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from axe_eq.debug import Report
from axe_eq.errors import ArgumentError, DeviceError, PackError, ScheduleError, SearchError
from axe_eq.pack import Pack
from axe_eq.program.nesting import flatten, unflatten
from axe_eq.program.node import Program
from axe_eq.program.types import Array, ValueType, dtype
from axe_eq.run.arrays import as_numpy, like, on_device, stand_in
from axe_eq.run.files import write_text
from axe_eq.schedule.graph import ScheduleGraph
from axe_eq.target import Target

if TYPE_CHECKING:
    from axe_eq.extract.pareto import Point


@dataclass(frozen=True)
class Call:
    """How arrays go in and out of a compiled program.

    Attributes:
        names: input names in order.
        types: their types.
        arguments: nesting of the arguments.
        structure: nesting of the outputs.
        dims: per input, its dim names ("" where unnamed; empty where none).
    """

    names: tuple[str, ...]
    types: tuple[ValueType, ...]
    arguments: Any
    structure: Any
    dims: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, program: Program) -> Call:
        """The call of a program."""
        return cls(
            tuple(i.name for i in program.inputs),
            tuple(i.node.type for i in program.inputs),
            program.arguments,
            program.structure,
            tuple(i.dims for i in program.inputs),
        )

    def flat(self, arrays: Sequence[Any]) -> list[Any]:
        """The arrays in the order of the inputs.

        Raises:
            ArgumentError: another nesting or number of arrays.
        """
        nesting, leaves = flatten(tuple(arrays))
        if len(leaves) != len(self.names) or (
            self.arguments is not None and nesting != self.arguments
        ):
            wanted = ", ".join(f"{n}: {t}" for n, t in zip(self.names, self.types, strict=True))
            raise ArgumentError("call", f"got {len(leaves)} arrays", f"{len(self.names)}: {wanted}")
        return leaves

    def plain(self, arrays: Sequence[Any]) -> list[Array]:
        """The arrays in the order of the inputs, as numpy."""
        return [as_numpy(a, n) for a, n in zip(self.flat(arrays), self.names, strict=True)]

    def nest(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Arrays in the order of the inputs, as the arguments of a call."""
        return tuple(arrays) if self.arguments is None else tuple(unflatten(self.arguments, arrays))

    def extents(self, arrays: Sequence[Array]) -> dict[str, int]:
        """Extents of named dims in these arrays that differ from the compiled ones.

        Raises:
            ArgumentError: a shape or dtype that does not fit.
        """
        found: dict[str, int] = {}
        for n, array in enumerate(arrays):
            found |= self._check(n, array, found)
        return found

    def _check(self, number: int, array: Array, known: Mapping[str, int]) -> dict[str, int]:
        name, wanted = self.names[number], self.types[number]
        dims = self.dims[number] or ("",) * wanted.rank if self.dims else ("",) * wanted.rank
        if array.dtype != dtype(wanted.dtype).numpy:
            got = f"has dtype {array.dtype}"
            raise ArgumentError(f"argument {name!r}", got, wanted.dtype)
        if len(array.shape) != wanted.rank:
            raise ArgumentError(f"argument {name!r}", f"has shape {array.shape}", str(wanted))
        changed: dict[str, int] = {}
        for axis, (extent, was, dim) in enumerate(
            zip(array.shape, wanted.shape, dims, strict=True)
        ):
            if extent == was and dim not in known:
                continue
            if not dim or known.get(dim, extent) != extent:
                got = f"has shape {array.shape}, extent {extent} in dim {axis}"
                raise ArgumentError(f"argument {name!r}", got, f"shape {wanted.shape}")
            changed[dim] = extent
        return changed


@dataclass
class Schedule:
    """The schedule graph of an executable, with the means to run and rebind it."""

    graph: ScheduleGraph
    call: Call
    target: Target
    constants: Mapping[str, Array] = field(default_factory=dict)
    runners: Mapping[str, Any] = field(default_factory=dict)

    def bind(self, **dims: int) -> Schedule:
        """The same schedule with named dims at other extents.

        Raises:
            ScheduleError: no such dim, or something in the schedule depends on its extent.
        """
        from axe_eq.schedule.bind import bind

        graph = bind(self.graph, **dims)
        types = tuple(graph.buffers[n].value_type for n in self.call.names)
        call = Call(
            self.call.names, types, self.call.arguments, self.call.structure, self.call.dims
        )
        return Schedule(graph, call, self.target, self.constants, self.runners)

    def run(self, *arrays: Any) -> Any:
        """Run every step on the `cpu` runner, whatever the schedule was chosen for."""
        return self._run("cpu", arrays)

    def launch(self, *arrays: Any) -> Any:
        """Run on the target.

        Raises:
            DeviceError: no runner, or the machine has no such device.
        """
        return self._run(self.target.family, arrays)

    def _run(self, family: str, arrays: Sequence[Any]) -> Any:
        return self.bound_call(family, arrays)()

    def bound_call(self, family: str, arrays: Sequence[Any]) -> Callable[[], Any]:
        """A call on these very arrays, read when it is made: checks and rebinding are done now.

        Raises:
            ArgumentError: arrays that do not fit.
            DeviceError: no runner for this family.
        """
        given = self.call.flat(arrays)
        if family == self.target.family and any(map(on_device, given)):
            return self._bound_there(family, given)
        plain = self.call.plain(arrays)
        fitting = self._fitting(self.call.extents(plain))
        run = fitting.prepared(family)
        inputs = [*plain, *self.constants.values()]
        return lambda: fitting.nested([like(given, r) for r in run(inputs)])

    def nested(self, results: Sequence[Any]) -> Any:
        """Results of the buffers, viewed as the program's outputs and nested as it nests them."""
        if any(self.graph.views):
            types = self.graph.output_types()
            results = [r.reshape(t.shape) for r, t in zip(results, types, strict=True)]
        return unflatten(self.call.structure, results)

    def _fitting(self, extents: Mapping[str, int]) -> Schedule:
        """This schedule at the extents that arrays have."""
        if not extents:
            return self
        try:
            return self.bind(**extents)
        except ScheduleError as error:
            got = ", ".join(f"{name}={extent}" for name, extent in extents.items())
            raise ArgumentError(
                "call", f"got arrays with {got} ({error})", "extents the schedule can be bound to"
            ) from None

    def _bound_there(self, family: str, given: Sequence[Any]) -> Callable[[], Any]:
        """A call on arrays that lie on the target's device; nothing passes through the host."""
        named = zip(given, self.call.names, strict=True)
        extents = self.call.extents([stand_in(a, n) for a, n in named])
        fitting = self._fitting(extents)
        prepared: Any = fitting.prepared(family)
        if not hasattr(prepared, "on_device"):
            wrong = f"lies on a device, and runner {family!r} takes host arrays only"
            raise ArgumentError(f"argument {self.call.names[0]!r}", wrong, "host arrays")
        run = prepared.on_device([*given, *self.constants.values()])
        return lambda: fitting.nested(run())

    def prepared(self, family: str) -> Callable[[Sequence[Array]], Sequence[Array]]:
        """The schedule made ready on a runner, once."""
        if family not in self._prepared:
            runner = self.runners.get(family)
            if runner is None:
                known = " ".join(sorted(self.runners))
                raise DeviceError(
                    f"target {self.target.name!r}", f"no runner for {family!r}", known
                )
            self._prepared[family] = runner.prepare(self.graph)
        return self._prepared[family]

    @cached_property
    def _prepared(self) -> dict[str, Callable[[Sequence[Array]], Sequence[Array]]]:
        return {}

    @property
    def steps(self) -> tuple[Any, ...]:
        """Steps of the graph."""
        return self.graph.steps

    @property
    def buffers(self) -> Mapping[str, Any]:
        """Buffers of the graph."""
        return self.graph.buffers

    def __str__(self) -> str:
        from axe_eq.schedule.show import graph_text

        return graph_text(self.graph)

    def html(self, path: str | Path | None = None) -> str:
        """One self-contained page of the schedule; written to `path` where given."""
        from axe_eq.schedule.html import schedule_html

        text = schedule_html(self.graph, self.target)
        if path is not None:
            write_text(path, text)
        return text


class Executable:
    """A compiled program; see `axe_eq.pipeline.compile`."""

    def __init__(
        self,
        program: Program,
        graph: ScheduleGraph,
        target: Target,
        packs: Sequence[Pack],
        numerics: str,
        report: Report,
        found: Any = None,
        matches: Mapping[str, int] | None = None,
        explanation: str | None = None,
    ) -> None:
        from axe_eq.pack import packs as find_packs

        self.program, self.target, self.numerics, self.report = program, target, numerics, report
        self.packs = tuple(packs)
        self.matches = dict(matches or {})
        self._found, self._explanation = found, explanation
        runners = {f: r for p in (*find_packs(), *packs) for f, r in p.runners.items()}
        self.schedule = Schedule(graph, Call.of(program), target, program.constants, runners)

    def __call__(self, *arrays: Any) -> Any:
        """Run on the target: same nesting and dtypes as the function's own outputs.

        Raises:
            ArgumentError: an array that does not fit.
            DeviceError: the target is not there.
        """
        return self.schedule.launch(*arrays)

    def bind(self, *arrays: Any) -> Callable[[], Any]:
        """A prepared call for these very arrays: checks are done once, now."""
        return self.schedule.bound_call(self.target.family, arrays)

    @property
    def kernels(self) -> tuple[Any, ...]:
        """The kernels, in order."""
        return self.schedule.graph.kernels

    @property
    def source(self) -> dict[str, str]:
        """Kernel name -> emitted text.

        Raises:
            PackError: no emitter exists for the target's family.
        """
        emitters = {f: e for p in self.packs for f, e in p.emitters.items()}
        if self.target.family not in emitters:
            raise PackError(f"target {self.target.name!r}", "has no emitter", "a pack with one")
        return dict(emitters[self.target.family].emit(self.schedule.graph, self.target))

    @property
    def cost(self) -> dict[str, float]:
        """Named costs of the whole schedule; units are in the names."""
        from axe_eq.run.explain import total_cost

        return total_cost(self.schedule.graph)

    def meaning(self, *arrays: Any) -> Any:
        """The numpy meaning of the program on these arrays, at their extents of named dims."""
        from axe_eq.program.meaning import evaluate

        plain = self.schedule.call.plain(arrays)
        extents = self.schedule.call.extents(plain)
        program = self.program.rebind(**extents) if extents else self.program
        return unflatten(program.structure, evaluate(program, plain))

    def pareto(self) -> list[Point]:
        """Schedules that no other beats in both estimated time and peak memory, fastest first.

        Raises:
            SearchError: the executable holds no forest (it was loaded, or planned for a mesh).
        """
        from axe_eq.extract.pareto import pareto  # loading a saved program needs no e-graph

        if self._found is None or self._found.pricer is None:
            raise SearchError("pareto", "needs what extraction chose from", "a compiled program")
        return pareto(self._found.forest, self._found.pricer)

    def explain(self) -> str:
        """The chosen kernels, the schedules that lost, and why."""
        from axe_eq.run.explain import explain

        if self._explanation is not None:
            return self._explanation
        text = explain(self.schedule.graph, self.target, self._found, self.matches, self.numerics)
        stopped = self.report["saturate"].notes["stopped"]
        if stopped == "saturated":
            return text
        return f"{text}\nthe search stopped at a limit ({stopped}): a larger one may find better"

    def save(self, path: str | Path) -> None:
        """Write everything needed to run without compiling; see `load`."""
        from axe_eq.run.store import save

        save(self.schedule, self.explain(), path)

    def __repr__(self) -> str:
        return f"<Executable for {self.target.name}: {len(self.kernels)} kernels>"

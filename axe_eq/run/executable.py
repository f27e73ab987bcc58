"""What `compile` returns: a schedule that runs on its target and says why it was chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from axe_eq import plain
from axe_eq.debug import Report, progress, switches
from axe_eq.errors import DeviceError, PackError, ScheduleError, SearchError
from axe_eq.files import write_text
from axe_eq.layout import Layout
from axe_eq.pack import Pack
from axe_eq.program.gathers import index_nodes
from axe_eq.program.nesting import unflatten
from axe_eq.program.node import Program
from axe_eq.program.types import Array
from axe_eq.run.call import Call, Caller, fitting, shaped
from axe_eq.run.compiled import Compiled
from axe_eq.run.meshes import local_codes
from axe_eq.run.rebind import Compare, Origin, Saved
from axe_eq.schedule.bind import check_extents
from axe_eq.schedule.graph import ScheduleGraph, output_name
from axe_eq.schedule.quantity import Costs
from axe_eq.target import Target

if TYPE_CHECKING:
    from axe_eq.extract.search.pareto import Point
    from axe_eq.mesh.plan import MeshPlan
    from axe_eq.mesh.simulate import Simulation


_MOST_BOUND = 64  # extents for which a bound schedule is kept


@dataclass
class Schedule:
    """The schedule graph of an executable, with the means to run and rebind it."""

    graph: ScheduleGraph
    call: Call
    target: Target
    constants: Mapping[str, Array] = field(default_factory=dict)
    runners: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin | Saved = field(default_factory=Saved)
    explain: Callable[[], str] = (
        str  # why it was chosen, in lines; of a rebound one nothing is known
    )
    codes: Mapping[str, bytes] | None = None  # on a mesh, of local steps, where they are known

    def bind(self, **dims: int) -> Schedule:
        """The same kernels with named dims at other extents, where they compute the same function.

        Raises:
            ScheduleError: no such dim, or what these kernels compute at these extents is not the
                function traced there.
        """
        return self._bound(tuple(sorted(check_extents(self.graph, dims).items())))

    @cached_property
    def _bound(self) -> Callable[[tuple[tuple[str, int], ...]], Schedule]:
        return lru_cache(_MOST_BOUND)(self._bind)

    def _bind(self, dims: tuple[tuple[str, int], ...]) -> Schedule:
        if not dims:
            return self
        if self.graph.mesh is not None:
            got = ", ".join(f"{name}={extent}" for name, extent in dims)
            wrong = "a plan on a mesh is for the extents that it was made for"
            raise ScheduleError(f"schedule bound {got}", wrong, "these")
        graph, origin, constants = self.origin.rebind(self.graph, dict(dims), self.constants)
        types = tuple(graph.buffers[n].value_type for n in self.call.names)
        call = replace(self.call, types=types)
        return Schedule(graph, call, self.target, constants, self.runners, origin)

    def run(self, *arrays: Any, **named: Any) -> Any:
        """Run every step on the `cpu` runner, whatever the schedule was chosen for."""
        return self.caller("cpu")(*arrays, **named)

    def launch(self, *arrays: Any, **named: Any) -> Any:
        """Run on the target.

        Raises:
            DeviceError: no runner, or the machine has no such device.
        """
        return self.caller(self.target.family)(*arrays, **named)

    def caller(self, family: str) -> Caller:
        """The schedule as a function of arrays on a runner; made ready at its first call.

        Of a plan on a mesh it is the simulation: all ranks in this process, on the `cpu` runner.

        Raises:
            DeviceError: no runner for this family.
        """
        if self.graph.mesh is not None:
            return self._simulated
        if family not in self._callers:
            runner = self.runner(family)
            self._callers[family] = Caller(
                self.call,
                self.constants,
                output_shapes(self.graph),
                lambda: made_ready(runner, self.graph, self.target),
                lambda extents: self.bind(**extents).caller(family),
                in_place=family == self.target.family and not compiles(runner),
            )
        return self._callers[family]

    @cached_property
    def plan(self) -> MeshPlan:
        """What every rank of the mesh does; proved.

        Raises:
            ScheduleError: a schedule of one device, or a plan that does not fit the machine.
        """
        from axe_eq.mesh.lower import lower

        made = lower(self.graph)
        made.prove(self.target.memories[0].n_bytes)
        return made

    @cached_property
    def simulation(self) -> Simulation:
        """The plan made ready for all ranks in this process."""
        from axe_eq.mesh.rank import LOCAL_FAMILY
        from axe_eq.mesh.simulate import Simulation

        return Simulation(self.plan, self.runner(LOCAL_FAMILY).prepare)

    @cached_property
    def _simulated(self) -> Caller:
        def rebound(extents: Mapping[str, int]) -> Caller:
            return self.bind(**extents)._simulated

        shapes = output_shapes(self.graph)
        return Caller(self.call, self.constants, shapes, lambda: self.simulation, rebound)

    def code(self) -> bytes | None:
        """Machine code for the target, on a mesh of all local steps; None where none is needed.

        Raises:
            DispatchError, EmitError, ScheduleError: the target cannot run the schedule.
            DeviceError: a compiler is missing.
        """
        runner = self.runner(self.target.family)
        if not compiles(runner):
            return None
        if self.graph.mesh is not None:
            return plain.text(local_codes(self)).encode()
        code: bytes = runner.compile(self.graph, self.target)
        return code

    @property
    def graphs(self) -> list[tuple[str, ScheduleGraph]]:
        """What one device runs, named by "" alone; on a mesh what ranks run, by steps' names."""
        if self.graph.mesh is None:
            return [("", self.graph)]
        from axe_eq.mesh.steps import LocalStep

        return [(f"{s.name}.", s.graph) for s in self.plan.steps if isinstance(s, LocalStep)]

    def runner(self, family: str) -> Any:
        """The runner of a family.

        Raises:
            DeviceError: no installed pack has one.
        """
        if family not in self.runners:
            known = " ".join(sorted(self.runners))
            raise DeviceError(f"target {self.target.name!r}", f"no runner for {family!r}", known)
        return self.runners[family]

    @cached_property
    def _callers(self) -> dict[str, Caller]:
        return {}

    @property
    def steps(self) -> tuple[Any, ...]:
        """Steps of the graph."""
        return self.graph.steps

    @property
    def buffers(self) -> Mapping[str, Any]:
        """Buffers of the graph."""
        return self.graph.buffers

    @property
    def layouts(self) -> dict[str, Layout]:
        """The layout of every input, by its name, and of every output, as "output 0"."""
        made = {output_name(n): name for n, name in enumerate(self.graph.outputs)}
        places = {**{name: name for name in self.call.names}, **made}
        return {n: Layout.parse(self.graph.buffers[name].layout) for n, name in places.items()}

    def __str__(self) -> str:
        from axe_eq.schedule.show import graph_text

        return graph_text(self.graph)

    def html(self, path: str | Path | None = None) -> str:
        """One self-contained page of the schedule; written to `path` where given."""
        from axe_eq.run.explain import of_others
        from axe_eq.schedule.html import schedule_html

        text = schedule_html(self.graph, self.target, of_others(self.explain()))
        if path is not None:
            write_text(path, text)
        return text


def output_shapes(graph: ScheduleGraph) -> list[tuple[int, ...] | None]:
    """Per output the shape that its buffer is viewed in, None where it is the buffer's own."""
    if not any(graph.views):
        return [None] * len(graph.outputs)
    return [t.shape for t in graph.output_types()]


def compiles(runner: Any) -> bool:
    """Whether a runner makes machine code ahead of time (`compile`, `load`)."""
    return hasattr(runner, "compile")


def simulates(runner: Any, target: Target) -> bool:
    """Whether a runner simulates its machine, because none is here."""
    return bool(getattr(runner, "simulates", False)) and not runner.present(target)


def made_ready(runner: Any, graph: ScheduleGraph, target: Target) -> Any:
    """A schedule made ready on a runner: what is called with arrays."""
    if compiles(runner):
        return runner.load(runner.compile(graph, target))
    return runner.prepare(graph)


Keep = Callable[[Callable[[], str]], str]
"""Keeps what a function makes, and gives it back where it was kept before."""


def made_now(make: Callable[[], str]) -> str:
    """A `Keep` that keeps nothing."""
    return make()


class Executable(Compiled):
    """A compiled program; see `axe_eq.pipeline.compile`.

    Args:
        program: what was compiled.
        graph: the schedule chosen for it.
        target: the machine.
        packs: whose laws and schedules were used.
        numerics: "real" or "exact".
        report: the stages that ran.
        found: the e-graph's alternatives and their prices; None where the search ran in another
            process, or came from the cache.
        matches: firings per law.
        explanation: the text of `explain`, where `found` is not there to write it.
        again: runs the search again, for what only `found` knows.
        differ: how the program is compared with what its schedule computes at other extents.

    Attributes:
        keep: keeps its explanation, which takes long to work out.
    """

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
        again: Callable[[], Executable] | None = None,
        *,
        differ: Compare,
    ) -> None:
        from axe_eq.pack import packs as find_packs

        self.program, self.target, self.numerics, self.report = program, target, numerics, report
        self.packs = tuple(packs)
        self.matches = dict(matches or {})
        self._searched, self._explanation, self._again = found, explanation, again
        self._repeated: Executable | None = None
        self.keep: Keep = made_now
        runners = {f: r for p in (*find_packs(), *packs) for f, r in p.runners.items()}
        self.origin = Origin(program, differ)
        self.schedule = Schedule(
            graph, Call.of(program), target, program.constants, runners, self.origin, self.explain
        )
        self.call = self.schedule.call

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Run on the target: same nesting and dtypes as the function's own outputs.

        Arguments are given as the function takes them, by position or by name.
        Arrays on the target's device stay there: kernels run on their library's current stream, and
        results are new arrays of that library.

        Raises:
            ArgumentError: an array that does not fit, or a name that is no argument's.
            OutOfRange: integers that say where an array is read, of arrays on the host, or of any
                with AXE_CHECK, are no indices there.
            DeviceError: the target is not there.
        """
        self._check_places(arrays, named)
        return self.schedule.launch(*arrays, **named)

    def bind(self, *arrays: Any, **named: Any) -> Callable[[], Any]:
        """A prepared call for these very arrays: checks are done once, now.

        On a device every call writes its results to the same arrays.
        """
        self._check_places(arrays, named)
        return self.schedule.caller(self.schedule.target.family).bind(*arrays, **named)

    def _check_places(
        self, arrays: Sequence[Any], named: Mapping[str, Any], everything: bool = False
    ) -> None:
        """Refuse integers that say where there is no element, as far as they are looked at."""
        from axe_eq.program.meaning import bind_inputs, check_places

        if not self._reads_at_places:
            return
        call, checks = self.schedule.call, everything or bool(switches().check)
        given = call.positional(arrays, named)
        if not checks and not all(isinstance(a, np.ndarray) for a in call.flat(given)):
            return
        plain = call.plain(given)
        extents = call.extents(plain)
        program = self.program.rebind(**extents) if extents else self.program
        check_places(program, bind_inputs(program, plain), computed=checks)

    @cached_property
    def _reads_at_places(self) -> bool:
        return any(True for _ in index_nodes(self.program.nodes()))

    @property
    def source(self) -> dict[str, str]:
        """Kernel name -> emitted text; empty for a target that runs schedules without any.

        Kernels that run in one call (`schedule.graph.launches`) are one text, by the call's name.
        On a mesh names begin with that of the plan's step, as "k1.k0_mul".

        Raises:
            PackError: the target needs a text, and nothing emits for its family.
        """
        emitters = {f: e for p in self.packs for f, e in p.emitters.items()}
        if self.target.family not in emitters:
            runner = self.schedule.runners.get(self.target.family)
            if runner is not None and not compiles(runner):
                return {}
            raise PackError(f"target {self.target.name!r}", "has no emitter", "a pack with one")
        emit = emitters[self.target.family].emit
        return {
            before + name: text
            for before, graph in self.schedule.graphs
            for name, text in emit(graph, self.target).items()
        }

    @property
    def cost(self) -> Costs:
        """Named costs of the whole schedule, with their `units` (docs/costs.md)."""
        from axe_eq.run.explain import total_cost

        return total_cost(self.schedule.graph, self.target)

    def meaning(self, *arrays: Any, **named: Any) -> Any:
        """The numpy meaning of the program on these arrays, at their extents of named dims."""
        from axe_eq.program.meaning import evaluate, of_their_own

        plain = self.schedule.call.plain(self.schedule.call.positional(arrays, named))
        extents = self.schedule.call.extents(plain)
        program = self.program.rebind(**extents) if extents else self.program
        return unflatten(program.structure, of_their_own(evaluate(program, plain), plain))

    def interpret(self, *arrays: Any, orders: int = 1, **named: Any) -> Any:
        """Run the emitted kernels on the CPU interpreter: what the device would compute.

        ``exe.interpret(x, w)`` on an `h200` runs every instruction of every thread in Python, with
        the rounding of the machine, and finds races, deadlocks and stray accesses on the way. It
        is slow: a few microseconds for every element that a thread touches. On a mesh it runs the
        kernels of every rank.

        Args:
            arrays: as for a call; any arrays that numpy reads.
            named: arguments by name, as for a call; one that is called `orders` goes by position.
            orders: orders of threads and of asynchronous effects to run, each with the same result.

        Returns:
            As a call returns it, in numpy.

        Raises:
            ArgumentError: an array that does not fit, or `orders` below 1.
            KernelFault, ScheduleError: what a kernel does wrong.
            PackError: the target's family has no interpreter.
        """
        from axe_eq.run import interpret as how

        interpreter = how.interpreter_of(self.packs, self.target.family)
        if interpreter is None:
            raise PackError(f"target {self.target.name!r}", "has no interpreter", "a pack with one")
        call = self.schedule.call
        plain = call.plain(call.positional(arrays, named))
        extents = call.extents(plain)
        self._check_places(arrays, named, everything=True)
        with fitting(extents):
            schedule = self.schedule.bind(**extents)
        held = {**dict(zip(call.names, plain, strict=True)), **schedule.constants}
        how.check_shared(schedule.graph, held)
        with progress.running("interpret"):
            if schedule.graph.mesh is not None:
                made = how.interpret_plan(schedule.plan, self.target, interpreter, held, orders)
            else:
                made = how.interpret_graph(schedule.graph, self.target, interpreter, held, orders)
        return unflatten(call.structure, shaped(made, output_shapes(schedule.graph)))

    def pareto(self) -> list[Point]:
        """Schedules that no other beats in both estimated time and stored bytes, fastest first.

        The two are `time_s` and `stored_bytes` as in `cost`, before kernels are merged. On a mesh
        they are the plans that were compiled.

        A program that came from the cache is searched again.

        Raises:
            SearchError: the search ran in another process.
        """
        if self._found is None:
            raise SearchError("pareto", "needs what extraction chose from", "a compiled program")
        return list(self._found.points)

    @property
    def _found(self) -> Any:
        """What extraction chose from; what came from the cache is searched again for it."""
        other = self._searched_again
        return self._searched if other is None else other._searched

    @property
    def _searched_again(self) -> Executable | None:
        """The same program from a search of now; None where what a search said is here."""
        if self._repeated is None and self._searched is None and self._again is not None:
            self._repeated = self._again()
        return self._repeated

    def explain(self) -> str:
        """The chosen kernels, the schedules that lost, and why.

        The schedules that lost are worked out now. A program that came from the cache is searched
        again, unless it was explained before.
        """
        return self.keep(self._explained)

    def _explained(self) -> str:
        from axe_eq.run.explain import explain
        from axe_eq.run.explain_mesh import explain_mesh

        if self._explanation is not None:
            return self._explanation
        if (other := self._searched_again) is not None:
            return other._explained()
        said = self.schedule.graph, self.target, self._found, self.matches, self.numerics
        whole = self.schedule.graph.mesh is None
        text = explain(*said) if whole else explain_mesh(*said, self.report["extract"].notes)
        if self.stopped == "saturated":
            return text
        limit = f"the search stopped at a limit ({self.stopped}): a larger one may find better"
        return f"{text}\n{limit}"

    @property
    def stopped(self) -> str:
        """Why the search stopped: "saturated", or the limit that it reached."""
        return str(self.report["saturate"].notes["stopped"])

    def save(self, path: str | Path, *, extents: Mapping[str, Iterable[int]] | None = None) -> None:
        """Write everything that a machine needs to run this, machine code included; see `load`.

        ``exe.save("mlp.axe", extents={"tokens": range(1, 65)})`` proves now, while the function is
        there, that its kernels compute it at each of these extents: the file runs there too.

        Args:
            path: the file.
            extents: dim name -> other extents that the file is to run at, in every combination.
                Machine code is for the compiled extents; that for others is made where they run.

        Raises:
            ArgumentError: the place cannot be written.
            DispatchError, EmitError, ScheduleError: the target cannot run the schedule; or these
                kernels are not known to compute the function at one of the extents.
            DeviceError: the target's compiler is missing.
        """
        from axe_eq.run.store import save

        schedule = self.schedule
        origin = self.origin.saved(schedule.graph, schedule.constants, extents or {})
        emits = any(self.target.family in p.emitters for p in self.packs)
        code = schedule.code()
        is_one = schedule.graph.mesh is None  # local steps have texts of their own
        source = self.source if code is not None and emits and is_one else {}
        save(path, schedule, self.explain(), self.cost, code, source, origin)

    def __repr__(self) -> str:
        from axe_eq.run.explain import counted

        runner = self.schedule.runners.get(self.target.family)
        how = ", simulated" if simulates(runner, self.target) else ""
        return f"<Executable for {self.target.name}: {counted(len(self.kernels), 'kernel')}{how}>"

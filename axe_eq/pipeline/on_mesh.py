"""Plans on a mesh: cuts are chosen, compiled, and chosen again by what was compiled.

Which cuts are best depends on what kernels cost, and which kernels there are on the cuts. So the
choice begins with rooflines of operators. What it chooses is compiled, and operators cost from then
on what they take in their kernels; cuts that are chosen so are compiled too, until nothing changes.
The plan that is taken is the best of those that were compiled and that fit into memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from axe_eq.debug import Report, stage
from axe_eq.errors import ArgumentError, SearchError
from axe_eq.extract.mesh.blocks import Region, blocked, regions
from axe_eq.extract.mesh.build import Compile, Local, build
from axe_eq.extract.mesh.choose import BYTES, MOST_WORK, TIME, Cuts, Problem, choose
from axe_eq.extract.mesh.fused import Kernel
from axe_eq.extract.mesh.seen import Failing, carriers
from axe_eq.extract.mesh.turned import turned
from axe_eq.extract.mesh.values import Values
from axe_eq.extract.search.pareto import Point, front
from axe_eq.mesh.lower import lower
from axe_eq.mesh.overlap import WORTH_S, seconds
from axe_eq.pipeline.requests import TooLarge, n_bytes_text, too_large
from axe_eq.program.node import Node, Program
from axe_eq.program.types import ValueType
from axe_eq.run.explain import total_cost
from axe_eq.schedule.graph import MoveStep, ScheduleGraph, SpmdStep
from axe_eq.schedule.memory import buffer_bytes, stored_bytes
from axe_eq.schedule.memory import plan as plan_memory
from axe_eq.schedule.merging import Merging
from axe_eq.target import Target

MOST_ROUNDS = 4  # of one form of the program, and of what is near the best plan
MOST_COMPILED = 250  # operators of local programs, beyond the first plan
MOST_FORMS = 2  # forms of the program, at a time
LEAST_GAIN = 0.01  # for which it is gone on
# What a block costs beside its price, of a plan: a host launches it, and it waits for an exchange.
# On two H200 a product in eight blocks takes 2 % longer than in four, which cost 1.5 % more.
# Kernels of a block wait 3 us for what another one's exchange brings, which is more of small ones.
BLOCK_SHARE, WAIT_S = 0.005, 3e-6
MOST_HIDDEN = 3  # plans whose exchanges are hidden behind blocks
MOST_SEEN, MOST_KINDS = 2, 6  # plans whose exchanges kernels carry, and kinds of these
MOST_REPEATED = 4  # values that are computed again where they are read, at a time
MOST_OTHERS = 8  # plans with one operator cut otherwise, at a time
WORTH = 1.5  # by estimates, what other cuts may cost of the best ones to be compiled
# What it costs to fill a device's memory, of what a plan costs: where time alone takes too much.
FILLED = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


@dataclass(frozen=True)
class Tried:
    """Cuts that were compiled.

    Attributes:
        how: how they were chosen, in words.
        cuts: of all operators.
        graph: the schedule.
        kernels: what they compute of the program.
        cost: by the objective.
        capacity: bytes that a device holds.
        regions: what is computed in blocks.
        carried: exchanges that kernels carry, by number, and how.
    """

    how: str
    cuts: Cuts
    graph: ScheduleGraph
    kernels: Sequence[Kernel]
    cost: float
    capacity: int
    regions: tuple[Region, ...] = ()
    carried: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def peak_bytes(self) -> int:
        """The most that a device needs at once: a bound, where that fits already."""
        bound = _most_bytes(self.graph)
        return bound if bound <= self.capacity else max(lower(self.graph).peak_bytes)

    @property
    def fits(self) -> bool:
        """Whether no device needs more than it holds."""
        return self.peak_bytes <= self.capacity

    @property
    def least_s(self) -> float:
        """What it takes if kernels and exchanges run beside each other all the time."""
        sent = sum(s.time_s for s in self.graph.steps if isinstance(s, MoveStep) and s.n_bytes)
        return max(sent, sum(s.time_s for s in self.graph.steps) - sent)

    @property
    def rank(self) -> tuple[bool, float, float]:
        """The better, the less: what fits, then by the objective, then by time."""
        share = BLOCK_SHARE * sum(region.n_blocks for region in self.regions)
        waits = WAIT_S * sum(region.n_blocks - 1 for region in self.regions)
        share = max(share, waits / self.graph.time_s if self.graph.time_s else 0.0)
        return not self.fits, self.cost * (1 + share), self.graph.time_s


def _most_bytes(graph: ScheduleGraph) -> int:
    """What a device holds if nothing is ever let go: no less than it needs."""
    size = {name: buffer_bytes(b) for name, b in graph.buffers.items()}
    own = (size[name] for name, b in graph.buffers.items() if not b.within)
    n, within = math.prod((graph.mesh or {}).values()), [0]
    for step in graph.steps:
        if isinstance(step, SpmdStep):
            within.append(plan_memory(step.graph).arena_bytes)
        else:  # a device may send all it has to everyone
            sent = sum(size[r.buffer] for r in step.reads)
            within.append(n * sent + sum(size[w.buffer] for w in step.writes))
    return sum(own) + max(within)


@dataclass
class Plans:
    """Plans of one program, compiled one after the other.

    Attributes:
        target: of every device.
        names: what the program's text calls its values.
        inputs: name, type and role of inputs and constants.
        compile_local: compiles a program of one device.
        failing: why a kernel of one cannot be written; None where it can.
        merging: what a kernel of one takes whose result memory merges.
        report: of the stages.
        tried: all that were compiled.
        refused: why others could not be.
    """

    target: Target
    names: dict[Node, str]
    inputs: Sequence[tuple[str, ValueType, str]]
    compile_local: Compile
    failing: Failing
    merging: Merging
    report: Report
    tried: dict[object, Tried] = field(default_factory=dict)
    refused: dict[object, SearchError | TooLarge] = field(default_factory=dict)
    _known: dict[object, Local] = field(default_factory=dict)
    _work: int = 0

    @property
    def best(self) -> Tried:
        """The plan that is taken."""
        return min(self.tried.values(), key=lambda t: t.rank)

    @property
    def points(self) -> list[Point]:
        """Plans that no other beats in both time and stored bytes of a device, fastest first."""
        return front(Point(t.graph.time_s, stored_bytes(t.graph), (t.how,))
                     for t in self.tried.values())  # fmt: skip

    def choose(self, problem: Problem, own: Values) -> Tried:
        """The best plan found.

        Args:
            problem: what is asked of cuts.
            own: all forms of the program, its own one picked.

        Raises:
            ScheduleError: no plan that was found fits into memory.
            ArgumentError: the objective is no cost.
        """
        first, *_ = self._forms(problem, own)
        self._rounds(first, "rooflines")
        mine = Cuts(problem, own.roots(), own)
        if not problem.counts_bytes or mine.cost < _worth(first):
            self._rounds(mine, "the program's own form")
        if not problem.counts_bytes:  # these are known of all cuts before they are compiled
            self._transform(problem)
            self._improve()
            self._repeat()
            self._see()
            self._hide()
        if not self.tried or not self.best.fits:
            self._shrink(first)
        elif problem.objective != TIME and not problem.counts_bytes:
            for filled in FILLED:  # cuts have no such cost: memory is what else they have
                self._try(self._smaller(first, filled), "less memory")
        return self.best

    def _forms(self, problem: Problem, values: Values, most_work: int = MOST_WORK) -> list[Cuts]:
        return stage("extract", lambda: choose(problem, values, most_work), report=self.report,
                     notes=lambda found: found[0].notes)  # fmt: skip

    def _gaining(self) -> Iterator[Tried]:
        """The best plan, as long as there are better ones than before."""
        before = math.inf
        for _ in range(MOST_ROUNDS):
            if not self.tried or self._is_over or self.best.cost > before * (1 - LEAST_GAIN):
                return
            before = self.best.cost
            self.best.cuts.learn(self.best.kernels)  # others taught since what other kernels cost
            yield self.best

    def _transform(self, problem: Problem) -> None:
        """Compile other forms of the program, as long as that pays."""
        for best in self._gaining():
            now = best.cuts.again()
            forms = self._forms(problem, best.cuts.values, MOST_WORK // 4)
            others = [f for f in forms if (f.key,) not in self.tried and f.cost < _worth(now)]
            for form in others[:MOST_FORMS]:
                if not self._is_over:
                    self._rounds(form, "another form of the program")

    @property
    def _is_over(self) -> bool:
        return self._work > MOST_COMPILED

    def _rounds(self, cuts: Cuts, how: str) -> None:
        """Compile cuts, and those that are chosen by what was compiled, until nothing changes."""
        for _ in range(MOST_ROUNDS):
            if self._try(cuts, how) is None or self._is_over:
                return
            how = "prices of compiled kernels"
            cuts = stage("extract", cuts.again, report=self.report, notes=lambda c: c.notes)

    def _improve(self) -> None:
        """Compile cuts with one operator cut otherwise, as long as that pays."""
        for best in self._gaining():
            now = best.cuts.again()
            others = stage("extract", now.others, report=self.report,
                           notes=lambda found: {"others": len(found)})  # fmt: skip
            near = [(n, c) for n, c in others if c.cost < _worth(now)]
            for node, cuts in near[:MOST_OTHERS]:
                if not self._is_over:
                    self._try(cuts, f"{self.name(node)} cut {cuts.option[node].text}")

    def _repeat(self) -> None:
        """Compute again what is stored for a later program, as long as that pays."""
        rate = self.target.memories[0].bytes_per_s
        for best in self._gaining():
            for node, n_bytes in best.cuts.crossing(best.kernels)[:MOST_REPEATED]:
                worth = n_bytes / rate > LEAST_GAIN * best.graph.time_s
                if worth and not self._is_over:
                    self._try(best.cuts.late_too(node), f"{self.name(node)} where it is read")

    def _hide(self) -> None:
        """Compute what is beside exchanges in blocks, more of them as long as that pays."""
        if not self._beside:
            return
        fitting = (t for t in self.tried.values() if t.fits and not t.carried)
        plain = sorted(fitting, key=lambda t: t.least_s + t.graph.time_s)  # all hidden, and nothing
        for tried in plain[:MOST_HIDDEN]:
            if tried.least_s > self.best.graph.time_s * (1 - LEAST_GAIN):
                continue
            for region in regions(tried.cuts, WORTH_S):
                found = [self._in_blocks(tried, own) for own in turned(tried.cuts, region)]
                best = min(found, key=lambda t: t.rank, default=tried)
                tried = self._in_blocks(tried, region) if best is tried else best

    def _see(self) -> None:
        """Let kernels read and store where other devices have values, as long as that pays."""
        if not any(link.wait_s for link in self.target.links):
            return
        plain = sorted(self.tried.values(), key=lambda t: t.rank)
        for tried in plain[:MOST_SEEN]:
            for alike in carriers(tried.graph)[:MOST_KINDS]:
                found, of = [tried], " ".join(map(str, alike.numbers[:4]))
                for how in () if self._is_over else alike.ways:
                    said = f"kernels {how} what exchange {of} brings"
                    carried = {**tried.carried, **dict.fromkeys(alike.numbers, how)}
                    if (other := self._try(tried.cuts, said, carried=carried)) is not None:
                        found.append(other)
                tried = min(found, key=lambda t: t.rank)

    def _in_blocks(self, tried: Tried, region: Region) -> Tried:
        """A plan with a region more in blocks, where that pays."""
        if {n for r in tried.regions for n in r.dims} & region.dims.keys():
            return tried
        before, best = tried.regions, tried
        for sizes in region.tried_sizes:
            own = region.split(*sizes)
            if own is None or self._is_over:
                break
            how = f"{self.name(next(iter(own.dims)))} {own.text}"
            other = self._try(tried.cuts, how, (*before, own))
            if other is not None and other.rank < best.rank:
                best = other
            elif len(set(sizes)) == 1 < len(sizes):  # more of them are worse
                break
        return best

    @property
    def _beside(self) -> bool:
        """Whether devices compute while links carry what they exchange."""
        return bool(self.target.links) and all(link.beside for link in self.target.links)

    def _smaller(self, form: Cuts, filled: float) -> Cuts:
        return form.again(filled * form.cost / self.target.memories[0].n_bytes)

    def _shrink(self, form: Cuts) -> None:
        """Look for cuts that hold less.

        Raises:
            ScheduleError: gives the least that was found.
        """
        for filled in FILLED:
            self._try(self._smaller(form, filled), "less memory")
            if self.tried and self.best.fits:
                return
        if not self.tried:
            raise next(iter(self.refused.values()))
        least = min(t.peak_bytes for t in self.tried.values())
        many = f"{len(self.tried)} plans" if len(self.tried) > 1 else "one plan"
        raise too_large(
            f"plan that takes {n_bytes_text(least)} of a device at its peak, the least of {many}",
            self.target,
        )

    def _try(
        self,
        cuts: Cuts,
        how: str,
        chosen: tuple[Region, ...] = (),
        carried: Mapping[int, str] = MappingProxyType({}),
    ) -> Tried | None:
        """Compile cuts, with some operators in blocks; None where they are known or cannot be."""
        own = blocked(cuts, chosen) if chosen else cuts
        key = own and (own.key, *carried.items())
        if own is None or key in self.tried or key in self.refused:
            return None
        try:
            built = stage("build", lambda: build(own, self.target, self.inputs, self._local,
                                                 carried, self.failing, self.merging),
                          report=self.report, notes=lambda b: {"steps": len(b.graph.steps)},
                          )  # fmt: skip
        except (SearchError, TooLarge) as error:  # no kernel at these extents, or none that fits
            self.refused[key] = error
            return None
        if not (chosen or carried or own.late):
            cuts.learn(built.kernels)
        graph = built.graph
        if self._beside:
            graph = replace(graph, time_s=seconds(graph))
        cost = cost_of(graph, self.target, cuts.problem.objective)
        capacity = self.target.memories[0].n_bytes
        made = Tried(how, cuts, graph, built.kernels, cost, capacity, chosen, carried)
        self.tried[key] = made
        return made

    def _local(self, program: Program) -> Local:
        """A program of one device, compiled once."""
        key = program.outputs, program.output_layouts, tuple(i.layout for i in program.inputs)
        if key not in self._known:
            self._known[key] = self.compile_local(program)
            if self.tried:
                self._work += len(program.nodes())
        return self._known[key]

    def name(self, node: Node) -> str:
        """What people call a value: one that laws made has its operator's text."""
        return self.names.get(node, node.text)


def _worth(cuts: Cuts) -> float:
    """What other cuts may cost to be compiled: time only breaks ties of bytes."""
    return math.floor(cuts.cost) + 1.0 if cuts.problem.counts_bytes else WORTH * cuts.cost


def cost_of(graph: ScheduleGraph, target: Target, objective: str) -> float:
    """What a plan costs by an objective.

    Raises:
        ArgumentError: plans have no such cost.
    """
    if objective == TIME:
        return graph.time_s
    if objective == BYTES:
        return float(sum(s.n_bytes for s in graph.steps if isinstance(s, MoveStep)))
    costs = total_cost(graph, target)
    if objective not in costs:
        wanted = f"{TIME!r}, or a cost of plans: {' '.join(sorted(costs))}"
        raise ArgumentError(f"objective={objective!r}", "is none", wanted)
    return float(costs[objective])

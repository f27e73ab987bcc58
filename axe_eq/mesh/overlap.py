"""The order of a plan's steps in which exchanges run while ranks compute something else.

What ranks compute between exchanges is several kernels, of which an exchange may need some and wait
for others in vain. So kernels are put in order one by one, by their prices: an exchange begins when
what it sends is there, and of the kernels whose operands are there that one runs next from which
the longest way leads to the end. Kernels of one step that stay together are one step again.

Source: list scheduling by the critical path (Graham, Bounds on multiprocessing timing anomalies,
SIAM J. Appl. Math. 17, 1969; Coffman, Computer and job-shop scheduling theory, 1976).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from axe_eq.layout import Layout, Mesh
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.schedule import shard
from axe_eq.schedule.graph import SIGNAL, Access, BufferSpec, MoveStep, ScheduleGraph, SpmdStep
from axe_eq.schedule.graph import Step as GraphStep

WORTH_S = 20e-6  # of an exchange: shorter ones are hidden by no more than a launch or two


@dataclass(frozen=True, eq=False)
class Item:
    """An exchange, or kernels of a step that run together.

    Attributes:
        step: whose it is.
        kernels: numbers of steps of its graph; () for an exchange.
        is_sent: bytes cross links.
        reads, writes: buffers of the plan; those between kernels are called after the step.
        time_s: estimated seconds.
    """

    step: MoveStep | SpmdStep
    kernels: tuple[int, ...]
    reads: frozenset[str]
    writes: frozenset[str]
    time_s: float
    is_sent: bool = False


def seconds(graph: ScheduleGraph) -> float:
    """How long a schedule on a mesh takes whose exchanges run while kernels do.

    Of one with short exchanges alone, whose steps stay as they are, it is the sum of these.
    """
    if not _is_worth(graph):
        return sum(s.time_s for s in graph.steps)
    return _ordered([item for step in graph.steps for item in _items(step)])[1]


def _is_worth(graph: ScheduleGraph) -> bool:
    moves = [s for s in graph.steps if isinstance(s, MoveStep)]
    return any(m.time_s >= WORTH_S for m in moves) and len(graph.steps) > len(moves)


def overlapped(graph: ScheduleGraph) -> ScheduleGraph:
    """A schedule on a mesh whose exchanges run while kernels do, where one is worth it."""
    if not _is_worth(graph):
        return graph
    moves = [s for s in graph.steps if isinstance(s, MoveStep)]
    items = [item for step in graph.steps for item in _items(step)]
    buffers, steps = dict(graph.buffers), list[GraphStep]()
    arriving = {a.buffer for m in moves for a in m.writes}
    for item in _together(_ordered(items)[0], arriving):
        if isinstance(item.step, SpmdStep) and len(item.kernels) < len(item.step.graph.steps):
            parts = _Parts(item.step, graph)
            steps.append(parts.step(item.kernels))
            buffers |= parts.buffers
        else:
            steps.append(item.step)
    return replace(graph, steps=tuple(steps), buffers=buffers)


def _items(step: GraphStep) -> list[Item]:
    if isinstance(step, MoveStep):
        reads, writes = ({a.buffer for a in of} for of in (step.reads, step.writes))
        sent = step.n_bytes > 0
        return [Item(step, (), frozenset(reads), frozenset(writes), step.time_s, sent)]
    assert isinstance(step, SpmdStep)
    local = _Names(step)
    found = []
    for numbers in local.groups:
        mine = [step.graph.steps[n] for n in numbers]
        writes = {local.of(a.buffer) for s in mine for a in s.writes}
        reads = {local.of(a.buffer) for s in mine for a in s.reads} - writes
        time_s = sum(s.time_s for s in mine)
        found.append(Item(step, numbers, frozenset(reads), frozenset(writes), time_s))
    return found


class _Names:
    """What buffers of a step's graph are called in the plan, and which kernels stay together."""

    def __init__(self, step: SpmdStep) -> None:
        self.step, self.graph = step, step.graph
        given = zip(self.graph.inputs, (a.buffer for a in step.reads), strict=True)
        made = zip(self.graph.outputs, (a.buffer for a in step.writes), strict=True)
        self.known = {**dict(given), **dict(made)}

    def of(self, name: str) -> str:
        """The plan's name of a buffer."""
        return self.known.get(name, f"{self.step.name}.{name}")

    @cached_property
    def groups(self) -> list[tuple[int, ...]]:
        """Numbers of the graph's steps that cannot be apart, in order."""
        steps = self.graph.steps
        every = tuple(range(len(steps)))
        apart = len(self.known) == len(self.graph.inputs) + len(self.graph.outputs)
        views = zip(self.graph.outputs, self.graph.views, strict=False)
        viewed = {name for name, view in views if view}  # of other types in the plan than here
        if not apart or any(a.buffer in viewed for s in steps for a in s.reads):
            return [every]
        of = list(every)
        for name, buffer in self.graph.buffers.items():
            users = [n for n in every if name in {a.buffer for a in _accesses(steps[n])}]
            if name not in self.known and not _is_plain(buffer):
                low = min(of[n] for n in users)
                met = {of[n] for n in users}
                of = [low if g in met else g for g in of]
        return [tuple(n for n in every if of[n] == g) for g in sorted(set(of))]


def _accesses(step: GraphStep) -> Iterable[Access]:
    return (*step.reads, *step.writes)


def _is_plain(buffer: BufferSpec) -> bool:
    """Whether a buffer is a dense row-major array, as steps of a plan hand on."""
    type_ = buffer.value_type
    return type_.rank > 0 and Layout.parse(buffer.layout) == Layout([(type_.size, 1, DEFAULT_AXIS)])


def _ordered(items: Sequence[Item]) -> tuple[list[Item], float]:
    """The items in the order in which they begin, and when the last one ends."""
    writer = {name: item for item in items for name in item.writes}
    needs = {item: {writer[n] for n in item.reads if n in writer} for item in items}
    tails: dict[Item, float] = {}
    for item in reversed(items):
        users = [tails[other] for other in tails if item in needs[other]]
        tails[item] = item.time_s + max(users, default=0.0)
    found: list[Item] = []
    ends: dict[Item, float] = {}
    now = link = 0.0
    left = list(items)
    while left:
        ready = [item for item in left if needs[item] <= ends.keys()]
        exchange = next((item for item in ready if not item.kernels), None)

        def there(item: Item) -> float:
            return max((ends[n] for n in needs[item]), default=0.0)

        if exchange is not None:
            item = exchange
            if item.is_sent:
                link = ends[item] = max(link, there(item)) + item.time_s
            else:  # what is there, or is copied by devices themselves
                ends[item] = max(now, there(item)) + item.time_s if item.time_s else there(item)
                now = max(now, ends[item]) if item.time_s else now
        else:
            item = min(ready, key=lambda i: (max(there(i), now), -tails[i]))
            now = ends[item] = max(now, there(item)) + item.time_s
        found.append(item)
        left.remove(item)
    return found, max(ends.values(), default=0.0)


def _together(items: Sequence[Item], arriving: set[str]) -> list[Item]:
    """Neighbours of one step as one, where the later waits for no exchange that the other does not.

    Args:
        items: in order.
        arriving: buffers that exchanges make.
    """
    found: list[Item] = []
    for item in items:
        last = found[-1] if found else None
        waits = item.reads & arriving
        if last is not None and item.kernels and item.step is last.step and waits <= last.reads:
            writes = last.writes | item.writes
            numbers = tuple(sorted((*last.kernels, *item.kernels)))
            reads = (last.reads | item.reads) - writes
            found[-1] = Item(item.step, numbers, reads, writes, last.time_s + item.time_s)
        else:
            found.append(item)
    return found


class _Parts:
    """Some kernels of a step as a step, and the buffers that it hands on.

    Attributes:
        buffers: of the plan, that lie between parts of the step.
    """

    def __init__(self, step: SpmdStep, plan: ScheduleGraph) -> None:
        self.whole, self.names, self.plan = step, _Names(step), plan
        self.buffers: dict[str, BufferSpec] = {}

    def step(self, numbers: tuple[int, ...]) -> SpmdStep:
        """The step of these kernels."""
        graph, local = self.whole.graph, self.names
        mine = [graph.steps[n] for n in numbers]
        rest = [s for n, s in enumerate(graph.steps) if n not in numbers]
        made = list(dict.fromkeys(a.buffer for s in mine for a in s.writes))
        read = dict.fromkeys(a.buffer for s in mine for a in s.reads)
        wanted = {a.buffer for s in rest for a in s.reads} | set(graph.outputs)
        inputs = tuple(n for n in read if n not in made)
        outputs = tuple(n for n in made if n in wanted)
        roles = {**dict.fromkeys(inputs, "input"), **dict.fromkeys(outputs, "output")}
        roles |= {n: SIGNAL for n in inputs if graph.buffers[n].role == SIGNAL}
        buffers = {
            n: replace(graph.buffers[n], role=roles.get(n, "temporary")) for n in (*inputs, *made)
        }
        time_s = sum(s.time_s for s in mine)
        views = dict(zip(graph.outputs, graph.views, strict=False))
        part = replace(
            graph, buffers=buffers, steps=tuple(mine), inputs=inputs, outputs=outputs,
            time_s=time_s, views=tuple(views.get(n, ()) for n in outputs),
        )  # fmt: skip
        accesses = {a.buffer: a for a in (*self.whole.reads, *self.whole.writes)}

        def access(name: str) -> Access:
            plan_name = local.of(name)
            if plan_name in accesses:
                return accesses[plan_name]
            spec = self._between(plan_name, graph.buffers[name])
            self.buffers[plan_name] = spec
            return Access(plan_name, spec.layout)

        name = f"{self.whole.name}.{'_'.join(map(str, numbers))}"
        reads, writes = tuple(map(access, inputs)), tuple(map(access, outputs))
        return SpmdStep(name, part, reads, writes, time_s)

    def _between(self, name: str, buffer: BufferSpec) -> BufferSpec:
        """A value between kernels, as ranks' parts of one that is cut over all of them."""
        type_, n = buffer.value_type, shard.n_devices(self._mesh)
        whole = replace(type_, shape=(type_.shape[0] * n, *type_.shape[1:]))
        layout = Layout([(n, 1, shard.DEVICE_AXIS), (type_.size, 1, DEFAULT_AXIS)])
        return BufferSpec(name, str(whole), str(layout), "temporary")

    @property
    def _mesh(self) -> str:
        mesh: Mapping[str, int] = self.plan.mesh or {}
        return shard.mesh_text(Mesh(dict(mesh)))

"""Dispatch: a primitive, its operands' layouts, its scope and a target -> a plan, or the reasons.

Derive by layout algebra, decide by enumeration: a row's family derives a plan from the operands'
placements and checks it on every element. Derivations are pure and cached by placement, so dispatch
is cheap enough to be called while alternatives are tabulated; lowering calls it again and gets the
same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from axe_eq.errors import AxeError, DispatchError, LayoutError
from axe_eq.kernel import ir
from axe_eq.kernel.expr import Var, var
from axe_eq.kernel.plan import Plan, Require, Resource
from axe_eq.target import Instr, Target


def variables(kernel: ir.Kernel) -> Iterator[Var]:
    """Every run-time integer that a kernel declares, its parameters first."""
    yield from kernel.params
    for statement, _ in ir.walk(kernel):
        if isinstance(statement, ir.Let):
            yield statement.var
        yield from (v for section in statement.sections() for v in section.variables)


class Names:
    """Fresh names of values that plans compute; `taken` are the kernel's own."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        self._count = 0
        self._taken = taken
        self.elements: set[str] = set()

    def fresh(
        self, stem: str, low: int | None = 0, high: int | None = None, *, element: bool = False
    ) -> Var:
        """A variable no other plan of the kernel uses; `element` marks element numbers."""
        self._count += 1
        while f"{stem}{self._count}" in self._taken:
            self._count += 1
        v = var(f"{stem}{self._count}", 1, low, high)
        if element:
            self.elements.add(v.name)
        return v


W = TypeVar("W", bound=ir.Where)
K = TypeVar("K", bound=ir.Kernel)


@dataclass(frozen=True)
class Context(Generic[W]):
    """What a derivation may use besides the primitive."""

    target: Target
    where: W
    names: Names


# Families belong to an execution model, whose primitives and contexts they take.
Derive = Callable[[Instr, Any, Context[Any]], Plan]
Families = Mapping[str, Derive]


@dataclass
class Choice:
    """The plan of a primitive, with the rows that lost and why.

    Attributes:
        plan: the cheapest.
        lost: every other row with its reason.
        others: plans that fit and cost more: engines that work side by side may share the work.
    """

    plan: Plan
    lost: list[tuple[str, str]]
    others: list[Plan] = field(default_factory=list)


@dataclass
class Planned(Generic[K]):
    """A kernel with a plan for every primitive.

    Attributes:
        kernel: the kernel.
        target: what it was planned for.
        names: of the values that plans compute.
        choices: per primitive.
        resources: what a launch needs beside arguments, by name, in order of first use.
    """

    kernel: K
    target: Target
    names: Names = field(default_factory=Names)
    choices: dict[ir.Primitive, Choice] = field(default_factory=dict)
    resources: dict[str, Resource] = field(default_factory=dict)

    def plan(self, primitive: ir.Primitive) -> Plan:
        """The plan of a primitive."""
        return self.choices[primitive].plan

    @property
    def requires(self) -> list[Require]:
        """Every run-time precondition, once, in program order."""
        found = (r for choice in self.choices.values() for r in choice.plan.requires)
        return list(dict.fromkeys(found))

    @property
    def align(self) -> dict[str, int]:
        """Bytes that each tensor's base address must be a multiple of."""
        needed: dict[str, int] = {}
        for choice in self.choices.values():
            for name, n_bytes in choice.plan.align.items():
                needed[name] = max(needed.get(name, 1), n_bytes)
        return needed

    def name_of(self, resource: Resource) -> str:
        """The name of a resource; equal ones share one."""
        for name, known in self.resources.items():
            if known == resource:
                return name
        number = sum(r.of is resource.of for r in self.resources.values())
        name = resource.stem + (f"_{number}" if number else "")
        while name in self.resources:  # of a thing whose name ends in a number
            name += "_"
        self.resources[name] = resource
        return name

    def is_element(self, v: Var) -> bool:
        """Whether a plan's value numbers elements of an argument, which may exceed 32 bits."""
        return v.name in self.names.elements

    def explain(self) -> str:
        """Per primitive: the chosen row, and every other row with its reason."""
        lines = []
        for primitive, choice in self.choices.items():
            lines.append(f"{primitive.operands}: {choice.plan.row.name} ({choice.plan.notes})")
            lines += [f"  not {name}: {reason}" for name, reason in choice.lost]
        return "\n".join(lines)


def choose(
    primitive: ir.Primitive, target: Target, where: ir.Where, families: Families, names: Names
) -> Choice:
    """The cheapest plan of a primitive.

    Raises:
        DispatchError: no row fits; the hint holds every row's reason.
    """
    plans, lost = [], []
    via = getattr(primitive, "via", "")
    for row in target.rows(primitive.name):
        family = row.family
        if via and via not in (family, row.name):
            continue
        try:
            plans.append(_derive(row, family, primitive, Context(target, where, names), families))
        except (DispatchError, LayoutError) as refusal:
            lost.append((row.name, _reason(refusal, row)))
    if not plans:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in lost)
        raise DispatchError(
            primitive.operands,
            f"no instruction of {target.name} fits in scope {where.scope}"
            + (f" via {via}" if via else ""),
            "operand layouts that one row accepts",
            at=primitive.at,
            hint=reasons or f"the rows are {' '.join(r.name for r in target.instrs)}",
        )
    best = min(plans, key=lambda plan: plan.cycles)
    lost += [
        (p.row.name, f"{p.cycles:.0f} cycles against {best.cycles:.0f}")
        for p in plans
        if p is not best
    ]
    return Choice(best, lost, [p for p in plans if p is not best])


def _derive(
    row: Instr, family: str, primitive: ir.Primitive, context: Context[Any], families: Families
) -> Plan:
    if family not in families:
        raise DispatchError(f"row {row.name}", f"family {family} has no derivation")
    return families[family](row, primitive, context)


def _reason(error: AxeError, row: Instr) -> str:
    thing = "" if error.thing == row.name else f"{error.thing}: "
    return f"{thing}{error.wrong}" + (f"; needs {error.expected}" if error.expected else "")


def dispatch(kernel: K, target: Target, families: Families) -> Planned[K]:
    """Plan every primitive of a kernel.

    Raises:
        DispatchError: a primitive that no row of the target implements.
    """
    taken = set(kernel.names())
    planned = Planned(kernel, target, Names(taken | {v.name for v in variables(kernel)}))
    for statement, where in ir.walk(kernel):
        if isinstance(statement, ir.Primitive):
            choice = choose(statement, target, where, families, planned.names)
            planned.choices[statement] = choice
            for call in choice.plan.calls:
                for value in call.args.values():
                    if isinstance(value, Resource):
                        planned.name_of(value)
    return planned

"""Rounds of a search: extract, build every kernel that was taken, rule out what cannot be built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from axe_eq.check.kernelcheck import check_kernels
from axe_eq.debug import Report, progress, stage
from axe_eq.egraph.phases import Saturated
from axe_eq.errors import SearchError
from axe_eq.extract.price.priced import Prices
from axe_eq.extract.price.pricer import Pricer
from axe_eq.extract.read.excluded import drop_unwritable, emitter_of, without_machine
from axe_eq.extract.read.forest import read_forest
from axe_eq.extract.search.commit import Failure, Kernels
from axe_eq.extract.search.layouts import Places
from axe_eq.extract.search.merge import Group, chosen
from axe_eq.extract.search.pareto import PRICES
from axe_eq.extract.search.stage import Extracted, extract
from axe_eq.pack import Pack
from axe_eq.pack import packs as find_packs
from axe_eq.pipeline.requests import (
    arrival_layouts,
    constant_nodes,
    n_bytes_text,
    places_of,
    too_large,
)
from axe_eq.pipeline.saturation import limited
from axe_eq.program.node import Node, Program
from axe_eq.program.show import value_names
from axe_eq.rule.term import Term
from axe_eq.schedule.build import build
from axe_eq.schedule.graph import ScheduleGraph
from axe_eq.schedule.memory import plan
from axe_eq.schedule.terms import row_major
from axe_eq.target import Target


@dataclass
class Choices:
    """What a schedule is chosen from.

    Attributes:
        graph: the saturated e-graph.
        prices: of its cones, less what was built in vain.
        kernels: those built so far.
        unwritable: why alternatives were left out.
        per_byte: seconds that a stored byte is worth, where time alone takes too much memory.
        places: where inputs and outputs may lie.
    """

    graph: Saturated
    prices: Prices
    kernels: Kernels
    places: Places
    unwritable: tuple[str, ...] = ()
    per_byte: float = 0.0

    def improve(self, built: Built, report: Report) -> bool:
        """Whether another search is needed: without what failed, or with less in memory.

        Raises:
            SearchError: what failed has no alternative.
            ScheduleError: the least memory that was found is too much.
        """
        if built.failures:
            stage("rule out", lambda: self.kernels.rule_out(
                      built.failures, built.schedule, self.prices), report=report,
                  notes=lambda _: {"built": self.kernels.n_built})  # fmt: skip
            return True
        peak, target = plan(built.schedule).peak_bytes, self.kernels.target
        if peak <= target.memories[0].n_bytes:
            return False
        dearer = [price for price in PRICES if price > self.per_byte]
        if not dearer:
            raise too_large(f"program that takes {n_bytes_text(peak)} at its peak", target)
        self.per_byte = dearer[0]
        return True


@dataclass(frozen=True)
class Shared:
    """What holds of any program on a target: the programs of a mesh's devices share it.

    Attributes:
        pricer: what cones cost.
        built: which kernels can be built, see `Kernels.known`.
    """

    pricer: Pricer
    built: dict[object, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Built:
    """A schedule, and which of its kernels cannot be made."""

    schedule: ScheduleGraph
    failures: Sequence[Failure] = ()


def read_choices(
    program: Program,
    terms: Mapping[Node, Term],
    graph: Saturated,
    target: Target,
    used: Sequence[Pack],
    known: Shared,
) -> Choices:
    """Read the e-graph, less what the target cannot write."""
    # Laws may have made several values one: the first keeps its name.
    shown = reversed(value_names(program).items())
    names = {terms[node]: name for node, name in shown if node in terms}
    forest = read_forest(graph.session, graph.requests, names)
    emitter = emitter_of(used, target.family)
    unwritable = drop_unwritable(forest, emitter)
    families = {t.family for pack in (*find_packs(), *used) for t in pack.targets.values()}
    idle = without_machine(used, {*families, target.family})
    kernels = kernels_of(target, used, known)
    places = places_of(program, target.kept)
    return Choices(graph, Prices(forest, known.pricer), kernels, places, (*unwritable, *idle))


def kernels_of(target: Target, used: Sequence[Pack], known: Shared) -> Kernels:
    """What builds the kernels of a target, with what is known of them."""
    emitter = emitter_of(used, target.family)
    return Kernels(emitter if hasattr(emitter, "build") else None, target, known.built)


def extract_program(choices: Choices) -> Extracted:
    """Choose the cheapest schedule of what can be built, as far as that is known."""
    try:
        found = extract(
            choices.prices, choices.places, per_byte=choices.per_byte, progress=progress.at
        )
    except SearchError as error:
        if choices.unwritable:
            error.wrong = f"{error.wrong}; left out: {'; '.join(choices.unwritable)}"
        raise limited(choices.graph, error) from error
    failed = dict.fromkeys(f"cannot be built: {why}" for why in choices.kernels.ruled_out)
    return replace(found, unwritable=(*choices.unwritable, *failed))


def extraction_notes(found: Extracted) -> dict[str, object]:
    """Figures of an extraction."""
    return {"kernels": len(found.groups), "priced": found.priced, "exact": found.selection.exact}


def build_program(program: Program, choices: Choices, found: Extracted, numerics: str) -> Built:
    """The schedule graph of a selection, with its kernels built."""
    schedule = graph_of(program, found, found.groups, choices.kernels.target, numerics)
    return Built(schedule, choices.kernels.failures(schedule, found.groups))


def compare_kernels(program: Program, built: Built, target: Target, used: Sequence[Pack]) -> None:
    """Interpret the kernels of a schedule that could all be built.

    Raises:
        ScheduleError: one does not compute its cone.
    """
    if not built.failures:
        check_kernels(program, built.schedule, target, used)


def build_notes(choices: Choices, number: int, built: Built) -> dict[str, object]:
    """Figures of a built schedule."""
    failed = {"failed": len(built.failures)} if built.failures else {}
    rounds = {"round": number} if number > 1 or failed else {}
    return {
        "steps": len(built.schedule.steps),
        "built": choices.kernels.n_built,
        **failed,
        **rounds,
    }


def given_up(built: Built, rounds: int) -> SearchError:
    """The error of a search that found no schedule whose kernels can all be built."""
    if not built.failures:  # the last rounds looked for one that fits into memory
        wrong = f"found no schedule that fits into memory in {rounds} rounds"
        return SearchError("search", wrong,
                           "a program that takes less")  # fmt: skip
    failure = built.failures[0]
    wrong = f"and its rivals cannot be built, after {rounds} rounds: {failure.reason}"
    expected = "a program whose kernels some schedule covers"
    return SearchError(f"kernel {failure.name}", wrong, expected)


def graph_of(
    program: Program, found: Extracted, groups: Sequence[Group], target: Target, numerics: str
) -> ScheduleGraph:
    """The schedule graph of one choice of kernels."""
    layouts = {**arrival_layouts(program), **found.layouts}
    inputs = [(i.name, i.node.type, layouts[i.name]) for i in program.inputs]
    inputs += [
        (name, node.type, row_major(node.type.size))
        for name, node in constant_nodes(program).items()
    ]
    return build(
        chosen(found.forest, groups, found.outputs),
        target=target.name,
        inputs=inputs,
        constants=tuple(program.constants),
        dims={i.name: i.dims for i in program.inputs if any(i.dims)},
        rounds=numerics == "exact",
    )


def kernels_of_values(
    program: Program, found: Extracted
) -> tuple[tuple[frozenset[Node], frozenset[Node], float], ...]:
    """Per kernel the program's values that it computes, those that it stores, and its seconds."""
    of = {name: node for node, name in value_names(program).items()}
    forest = found.forest

    def named(values: Iterable[int]) -> frozenset[Node]:
        return frozenset(of[forest.names[v]] for v in values if v in forest.names)

    return tuple(
        (
            named(group.values),
            named(v for placed in group.placed for v, _ in forest.placed[placed].requests),
            group.price.time_s,
        )
        for group in found.groups
    )

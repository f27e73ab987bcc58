"""Schedules at other extents of their named dims: only where they still compute the function.

What a function computes from an extent (the divisor of a mean, the end of a slice) is a constant in
its schedule, and a law may have used that two extents were equal. So the function is traced again
at the new extents, what it computes otherwise is put into the schedule, and both are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from axe_eq.errors import ProgramError, ScheduleError
from axe_eq.program.meaning import array_type
from axe_eq.program.node import INPUT, OP, Node, Program, op_node, sel_node
from axe_eq.program.ops import join_text, selector
from axe_eq.program.signature import signature
from axe_eq.program.types import Array
from axe_eq.schedule.bind import bind, check_extents, named_extents
from axe_eq.schedule.decode import decode
from axe_eq.schedule.graph import ScheduleGraph

Pairs = list[tuple[Program, Program]]
Compare = Callable[[Program, Program, Pairs], str | None]
"""(what is meant, what is computed, what is assumed) -> why they differ, or None."""
Extents = Mapping[str, int]
Constants = Mapping[str, Array]
Texts = dict[str, str]


@dataclass(frozen=True)
class Origin:
    """What a schedule was made from: its function can be traced at other extents.

    Attributes:
        program: traced from a function.
        differ: see `Compare`.
    """

    program: Program
    differ: Compare

    def rebind(
        self, graph: ScheduleGraph, extents: Extents, constants: Constants
    ) -> tuple[ScheduleGraph, Origin, Constants]:
        """The schedule graph at other extents of its named dims, its origin, and its constants.

        Args:
            graph: chosen for the program, at its extents.
            extents: dim name -> extent.
            constants: arrays that the program captured, by name.

        Raises:
            ScheduleError: no such dim, or nothing with this graph's kernels computes the function
                at these extents, with the reason.
        """
        if not check_extents(graph, extents):
            return graph, self, constants
        meant = self._traced(extents)
        reasons = []
        for texts, renamed in _followed(self.program, meant):
            try:
                return self._follow(graph, constants, extents, meant, texts, renamed)
            except (ScheduleError, ProgramError) as error:
                reasons.append(str(error).replace("\n", " "))
        raise _refused(extents, reasons[0])

    def _follow(
        self,
        graph: ScheduleGraph,
        constants: Constants,
        extents: Extents,
        meant: Program,
        texts: Texts,
        renamed: Texts,
    ) -> tuple[ScheduleGraph, Origin, Constants]:
        """The graph with these texts replaced, if it computes what is meant."""
        arrays = {**constants, **meant.constants}
        given = {name: renamed.get(name, name) for name in constants}
        types = {name: array_type(arrays[new]) for name, new in given.items()}
        bound = bind(graph, extents, texts, types)
        outputs = decode(bound, self._inputs(meant, given))
        computed = replace(meant, outputs=outputs, constants=arrays)
        why = self.differ(meant, computed, _assumed(meant, texts))
        if why is not None:
            raise ScheduleError("schedule", f"does not compute the function: {why}")
        return bound, Origin(meant, self.differ), {n: arrays[new] for n, new in given.items()}

    def _traced(self, extents: Extents) -> Program:
        try:
            return self.program.rebind(**extents)
        except ProgramError as error:
            wrong = f"the function has no meaning there ({str(error).splitlines()[0]})"
            raise _refused(extents, wrong) from None

    def _inputs(self, meant: Program, constants: Mapping[str, str]) -> dict[str, Node]:
        """Nodes of the graph's buffers: the inputs, and constants in their places."""
        nodes = {n.text: n for program in (self.program, meant) for n in program.nodes()}
        given = {spec.name: spec.node for spec in meant.inputs}
        return given | {name: nodes[new] for name, new in constants.items()}

    def saved(self, graph: ScheduleGraph, constants: Constants) -> Saved:
        """What is known about other extents once the function is gone: a few are tried.

        Only dims of which the function computes nothing that stands in the schedule may change.
        Where no dim has a name there is nothing to know, and nothing is tried.
        """
        multiples = _multiples(self.program)
        known = named_extents(graph)
        longer = {name: extent + multiples.get(name, 1) for name, extent in known.items()}
        reasons: dict[str, str] = {}

        def attempt(extents: Extents) -> None:
            try:
                self._follow(graph, constants, extents, self._traced(extents), {}, {})
            except (ScheduleError, ProgramError) as error:
                at = ", ".join(f"{name}={extent}" for name, extent in extents.items())
                reasons.update(dict.fromkeys(extents, f"at {at}, {str(error).splitlines()[0]}"))

        for name, extent in known.items():
            half = max(extent // 2 // multiples.get(name, 1), 1) * multiples.get(name, 1)
            for other in sorted({half, longer[name], 4 * extent} - {extent}):
                attempt({name: other})
        if together := {name: longer[name] for name in known if name not in reasons}:
            attempt(together)
        return Saved({name: reasons.get(name, "") for name in known}, multiples)


@dataclass(frozen=True)
class Saved:
    """What a schedule without its function knows about other extents.

    Attributes:
        reasons: dim -> why it keeps its extent; "" for a dim that need not.
        multiples: dim -> what divides each of its extents.
    """

    reasons: Mapping[str, str] = field(default_factory=dict)
    multiples: Mapping[str, int] = field(default_factory=dict)

    def rebind(
        self, graph: ScheduleGraph, extents: Extents, constants: Constants
    ) -> tuple[ScheduleGraph, Saved, Constants]:
        """As `Origin.rebind`.

        Raises:
            ScheduleError: no such dim, one that was found to keep its extent when this was saved,
                or an extent that it cannot have.
        """
        for name, extent in check_extents(graph, extents).items():
            if reason := self.reasons.get(name, "nothing says that it may change"):
                raise _refused(extents, f"dim {name!r} keeps its extent: {reason}")
            if extent % self.multiples.get(name, 1):
                multiple = f"a multiple of {self.multiples[name]}"
                raise ScheduleError(f"dim {name!r}", f"bound to {extent}", multiple)
        return bind(graph, extents), self, constants

    def saved(self, graph: ScheduleGraph, constants: Constants) -> Saved:
        """Itself."""
        return self


def _multiples(program: Program) -> dict[str, int]:
    """Per named dim, what divides all its extents, where that is not 1."""
    found: dict[str, int] = {}
    for spec in program.inputs:
        for name, multiple in zip(spec.dims, spec.divisible, strict=False):
            if name and multiple > 1:
                found[name] = math.lcm(multiple, found.get(name, 1))
    return found


def _refused(extents: Extents, wrong: str) -> ScheduleError:
    names = ", ".join(f"{name}={extent}" for name, extent in extents.items())
    hint = "compile for this extent"
    return ScheduleError(f"schedule bound {names}", wrong, hint=hint)


# -- what the function does otherwise --------------------------------------------------------------


def _followed(old: Program, new: Program) -> Iterator[tuple[Texts, Texts]]:
    """Ways to follow a function: operators' texts to replace, and names of captured constants.

    First everything that changed in the function, with the reciprocals of numbers that did, for a
    law may have turned a divisor into a factor; then nothing but the extents.
    """
    texts, constants = _changes(old, new)
    if texts or constants:
        factors = (_reciprocals(pair) for pair in texts.items())
        yield {k: v for pair in factors for k, v in pair.items()} | texts, constants
    yield {}, {}


def _changes(old: Program, new: Program) -> tuple[Texts, Texts]:
    """Texts and constants' names of nodes that correspond and differ, where there is one answer."""
    found: dict[tuple[bool, str], set[str]] = {}
    captured = {*old.constants, *new.constants}
    todo = list(zip(old.outputs, new.outputs, strict=False))
    seen = set(todo)
    while todo:
        a, b = todo.pop()
        if (a.kind, a.cell, len(a.args)) != (b.kind, b.cell, len(b.args)):
            continue
        if _corresponds(a, b) if a.kind != INPUT else {a.text, b.text} <= captured:
            found.setdefault((a.kind == INPUT, a.text), set()).add(b.text)
        pairs = [pair for pair in zip(a.args, b.args, strict=True) if pair not in seen]
        seen.update(pairs)
        todo += pairs
    single = {key: texts.pop() for key, texts in found.items() if len(texts) == 1}
    changed = {key: text for key, text in single.items() if text != key[1]}
    texts, constants = (
        {text: new for (given, text), new in changed.items() if given is of} for of in (False, True)
    )
    return texts, constants


def _corresponds(a: Node, b: Node) -> bool:
    """Whether one operator may stand for another: a signature differs in fixed extents alone."""
    if a.kind != OP:
        return True
    first, second = signature(a.text), signature(b.text)
    return replace(first, fixed=()) == replace(second, fixed=())


def _reciprocals(texts: tuple[str, str]) -> Texts:
    """For two texts of numbers, those of one over them."""
    old, new = (_renumbered(text, lambda n: 1 / n) for text in texts)
    return {} if old is None or new is None else {old: new}


def _assumed(meant: Program, texts: Texts) -> Pairs:
    """That a reciprocal which follows a divisor is one over it, whatever its rounding."""
    found, new = [], set(texts.values())
    for divisor in new:
        inverse, one = _renumbered(divisor, lambda n: 1 / n), _renumbered(divisor, lambda _: 1.0)
        if one is None or inverse not in new or sel_node(divisor, ()).shape:
            continue
        exact = op_node(",->", "div", (sel_node(one, ()), sel_node(divisor, ())))
        rounded = sel_node(inverse, ())
        found.append((replace(meant, outputs=(rounded,)), replace(meant, outputs=(exact,))))
    return found


def _renumbered(text: str, of: Callable[[float], float]) -> str | None:
    """The text of a constant with another number in its place; None where it is none."""
    try:
        declared, params = selector(text)
    except ProgramError:
        return None
    value = declared.fill(params) if declared.fill and declared.arity == 0 else None
    if not isinstance(value, int | float) or not value:
        return None
    return join_text(declared.name, *(of(value) if p is value else p for p in params))

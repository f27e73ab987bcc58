"""Schedules at other extents of their named dims: only where they still compute the function.

What a function computes from an extent (the divisor of a mean, the end of a slice) is a constant in
its schedule, and a law may have used that two extents were equal. So the function is traced again
at the new extents, what it computes otherwise is put into the schedule, and both are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product

from axe_eq.errors import ProgramError, ScheduleError
from axe_eq.program.meaning import array_type
from axe_eq.program.node import INPUT, OP, Node, Program
from axe_eq.program.ops import join_text, selector
from axe_eq.program.signature import signature
from axe_eq.program.types import Array, ValueType
from axe_eq.schedule.bind import bind, check_extents, named_extents
from axe_eq.schedule.decode import decode
from axe_eq.schedule.graph import ScheduleGraph
from axe_eq.schedule.quotients import with_quotients

Compare = Callable[[Program, Program], str | None]
"""(what is meant, what is computed) -> why they differ, or None."""
Extents = Mapping[str, int]
Constants = Mapping[str, Array]
Texts = Mapping[str, str]

MOST_PROVED = 4096  # combinations of extents that one file is proved for
_MOST_LISTED = 8  # of these in an error


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
        for way, renamed in _followed(self.program, meant, graph, extents):
            try:
                return self._follow(graph, constants, extents, meant, way, renamed)
            except (ScheduleError, ProgramError) as error:
                reasons.append(str(error).replace("\n", " "))
        raise _refused(extents, reasons[0])

    def _follow(
        self,
        graph: ScheduleGraph,
        constants: Constants,
        extents: Extents,
        meant: Program,
        way: Followed,
        renamed: Texts,
    ) -> tuple[ScheduleGraph, Origin, Constants]:
        """The graph with these changes, if it computes what is meant."""
        arrays = {**constants, **meant.constants}
        given = {name: renamed.get(name, name) for name in constants}
        types = {name: array_type(arrays[new]) for name, new in given.items()}
        bound = way.bound(graph, extents, types)
        outputs = decode(bound, self._inputs(meant, given))
        computed = replace(meant, outputs=outputs, constants=arrays)
        why = self.differ(meant, computed)
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

    def saved(
        self, graph: ScheduleGraph, constants: Constants, extents: Mapping[str, Iterable[int]]
    ) -> Saved:
        """What is proved of other extents while the function is there; nothing else is tried.

        Args:
            graph: chosen for the program, at its extents.
            constants: arrays that the program captured, by name.
            extents: dim name -> extents; every combination is proved, own extents of other dims.

        Raises:
            ScheduleError: no such dim, too many combinations, or extents at which these kernels are
                not known to compute the function, or need other captured arrays.
        """
        at = named_extents(graph)
        accepted = []
        for other in _combinations(graph, extents):
            if other == at:
                continue
            meant = self._traced(other)
            reasons = []
            for way, renamed in _followed(self.program, meant, graph, other):
                try:
                    _, _, arrays = self._follow(graph, constants, other, meant, way, renamed)
                except (ScheduleError, ProgramError) as error:
                    reasons.append(str(error).replace("\n", " "))
                    continue
                if all(_same(constants[n], array) for n, array in arrays.items()):
                    accepted.append(Accepted(way.texts, way.divisors, other))
                    break
                reasons.append("it captures other arrays there, and a file holds those of one")
            else:
                raise _refused(other, reasons[0])
        return Saved(at, tuple(accepted), graph)


@dataclass(frozen=True)
class Followed:
    """What a schedule computes otherwise at other extents, because its function does.

    Attributes:
        texts: operators' texts to replace.
        divisors: constants that are factors, and what they are one over: there it divides by that.
    """

    texts: Texts = field(default_factory=dict)
    divisors: Texts = field(default_factory=dict)

    def bound(
        self,
        graph: ScheduleGraph,
        extents: Extents,
        constants: Mapping[str, ValueType] | None = None,
    ) -> ScheduleGraph:
        """A schedule graph at other extents; arguments and errors as for `bind`."""
        return bind(with_quotients(graph, self.divisors), extents, self.texts, constants)


@dataclass(frozen=True)
class Accepted(Followed):
    """Extents at which a schedule was proved to compute its function.

    Attributes:
        extents: of every named dim.
    """

    extents: Extents = field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    """What a schedule without its function knows about other extents: those that were proved.

    Attributes:
        extents: named dims of the graph that was saved.
        accepted: proved when it was saved.
        graph: as it was saved; None where nothing was.
    """

    extents: Extents = field(default_factory=dict)
    accepted: Sequence[Accepted] = ()
    graph: ScheduleGraph | None = None

    def rebind(
        self, graph: ScheduleGraph, extents: Extents, constants: Constants
    ) -> tuple[ScheduleGraph, Saved, Constants]:
        """As `Origin.rebind`.

        Raises:
            ScheduleError: no such dim, or extents that were not proved when this was saved.
        """
        if not check_extents(graph, extents):
            return graph, self, constants
        wanted = named_extents(graph) | dict(extents)
        if self.graph is not None and wanted == self.extents:
            return self.graph, self, constants
        for known in self.accepted:
            if self.graph is not None and known.extents == wanted:
                return known.bound(self.graph, wanted), self, constants
        raise _unproved(wanted, [self.extents, *(known.extents for known in self.accepted)])


def _same(a: Array, b: Array) -> bool:
    """Whether two arrays are one, bit for bit."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _combinations(
    graph: ScheduleGraph, extents: Mapping[str, Iterable[int]]
) -> Iterator[dict[str, int]]:
    """Extents of all named dims, for every combination of the given ones."""
    at = named_extents(graph)
    given = {}
    for name, several in extents.items():
        try:
            given[name] = list(islice(several, MOST_PROVED + 1))
        except TypeError:
            thing, wanted = f"extents of dim {name!r}", "several, as range(1, 65)"
            raise ScheduleError(thing, f"got {several!r}", wanted) from None
        for extent in given[name]:
            check_extents(graph, {name: extent})
    count = math.prod(map(len, given.values()))
    if count > MOST_PROVED:
        wrong = f"are at least {count} combinations, each to be proved"
        raise ScheduleError("extents to save", wrong, f"at most {MOST_PROVED}")
    for chosen in product(*given.values()):
        yield at | {n: int(extent) for n, extent in zip(given, chosen, strict=True)}


def _unproved(wanted: Extents, known: Sequence[Extents]) -> ScheduleError:
    """What a saved schedule says of extents for which nothing was proved."""
    changed = {n: e for n, e in wanted.items() if any(e != k.get(n) for k in known)} or wanted
    each = [", ".join(f"{n}={k[n]}" for n in changed if n in k) for k in known if k]
    more = f" and {len(each) - _MOST_LISTED} more" if len(each) > _MOST_LISTED else ""
    return ScheduleError(
        f"saved schedule bound {', '.join(f'{n}={e}' for n, e in changed.items())}",
        "was not proved to compute its function there",
        ("; ".join(each[:_MOST_LISTED]) + more) or "its own extents",
        hint="where it is compiled, save(path, extents={dim: extents}) proves others",
    )


def _refused(extents: Extents, wrong: str) -> ScheduleError:
    names = ", ".join(f"{name}={extent}" for name, extent in extents.items())
    hint = "compile for this extent"
    return ScheduleError(f"schedule bound {names}", wrong, hint=hint)


# -- what the function does otherwise --------------------------------------------------------------


def _followed(
    old: Program, new: Program, graph: ScheduleGraph, extents: Extents
) -> Iterator[tuple[Followed, Texts]]:
    """Ways to follow a function: what changes in a schedule, and names of captured constants.

    First everything that changed in the function, with the extents that laws wrote into operators,
    then without these, then nothing but the extents of arrays.
    """
    texts, constants = _changes(old, new)
    divisors = {inverse: text for text in texts if (inverse := _reciprocal(text)) is not None}
    fixed = {text: at for text, at in _refixed(graph, extents).items() if text not in texts}
    if fixed:
        yield Followed({**texts, **fixed}, divisors), constants
    if texts or constants:
        yield Followed(texts, divisors), constants
    yield Followed(), {}


def _refixed(graph: ScheduleGraph, extents: Extents) -> Texts:
    """Signatures that fix an extent of a named dim, with the new one in its place."""
    at, found = named_extents(graph), {}
    changed = {at[name]: int(extent) for name, extent in extents.items() if extent != at[name]}
    for node in (node for step in graph.kernels for node in step.nodes if node.kind == "cell"):
        sig = signature(node.text)
        fixed = tuple((d, changed.get(extent, extent)) for d, extent in sig.fixed)
        if fixed != sig.fixed:
            found[node.text] = replace(sig, fixed=fixed).text
    return found


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


def _reciprocal(text: str) -> str | None:
    """The text of a constant that is one over another, exactly; None where there is none."""
    try:
        declared, params = selector(text)
    except ProgramError:
        return None
    value = declared.fill(params) if declared.fill and declared.arity == 0 else None
    if not isinstance(value, float) or abs(math.frexp(value)[0]) != 0.5:  # no power of two
        return None
    return join_text(declared.name, *(1 / value if p is value else p for p in params))

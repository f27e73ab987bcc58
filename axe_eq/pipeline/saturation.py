"""Saturation: the laws of packs on a program, and what is demanded of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from axe_eq.debug import progress, switches
from axe_eq.egraph.phases import Saturated, saturate
from axe_eq.egraph.session import Limits
from axe_eq.errors import SearchError
from axe_eq.extract.read.circles import leave_out_circles
from axe_eq.pack import Pack, laws_of
from axe_eq.pipeline.requests import places_of, requests_of, ways
from axe_eq.program.facts import facts_of
from axe_eq.program.node import INPUT, Node, Program
from axe_eq.program.terms import OPERATORS, Cons, In, Nil, type_of, types_of
from axe_eq.rule.term import Term
from axe_eq.schedule import terms as schedule_terms

SYMBOLS = (In, *OPERATORS, Nil, Cons, schedule_terms.Buffer)
ANALYSES = (type_of, types_of, schedule_terms.arrivals)


def limits() -> Limits:
    """Limits of the search, from the switches."""
    now = switches()
    default = Limits()
    return Limits(now.node_limit or default.rows, now.time_limit_s or default.seconds)


def saturate_program(
    program: Program,
    terms: Mapping[Node, Term],
    used: Sequence[Pack],
    without: Iterable[str],
    requests: Sequence[Term] | None = None,
    numerics: str = "real",
    kinds: Collection[str] = (),
) -> Saturated:
    """Run all laws of these packs on a program and demand its outputs (or what `requests` says).

    Under the numerics "exact" only laws that hold bit for bit. What is left open lies in any of
    the layouts that a target of these kinds keeps.
    """
    places = places_of(program, kinds).inputs
    layouts = {
        n.text: schedule_terms.layouts_text(
            kept.layout for kept in places.get(n.text) or ways(None, n.type)
        )
        for n in terms if n.kind == INPUT
    }  # fmt: skip
    known = [
        (type_of, [(term, str(node.type)) for node, term in terms.items()]),
        (
            schedule_terms.arrivals,
            [(t, layouts[n.text]) for n, t in terms.items() if n.kind == INPUT],
        ),
        # Asked for in the e-graph they would be answered node by node, from the inputs on.
        (facts_of, [(t, f) for t in terms.values() if (f := facts_of.of(t)) is not None]),
    ]
    laws = laws_of(used, without, numerics=numerics, search=True)
    if requests is not None:  # on a mesh parts are those of the devices
        laws = {key: law for key, law in laws.items() if not law.late}
    return saturate(
        laws, SYMBOLS, ANALYSES, list(terms.values()), known,
        requests_of(program, terms, kinds) if requests is None else requests,
        limits=limits(), progress=progress.at,
        before_demand=leave_out_circles if requests is None else lambda _: None,
    )  # fmt: skip


def saturation_notes(graph: Saturated) -> dict[str, object]:
    """Figures of a saturation."""
    return {"rows": graph.rows, "stopped": graph.stopped}


def matches_text(graph: Saturated) -> str:
    """How often each law fired, the busiest first."""
    rows = sorted(graph.matches.items(), key=lambda item: (-item[1], item[0]))
    return "\n".join(f"{count:>10}  {key}" for key, count in rows)


def limited(graph: Saturated, error: SearchError) -> SearchError:
    """The error of a search whose saturation reached a limit: the limit is its cause."""
    bound, _, phase = graph.stopped.partition(" in phase ")
    if bound == "rows":  # laws that made too many were cut: then it is the last that did
        phase = [name for name, report in graph.reports.items() if report.stopped == bound][-1]
    given = graph.session.limits
    limit, switch = {
        "rows": (f"{given.rows} rows", "AXE_NODE_LIMIT"),
        "time": (f"{given.seconds:g} s", "AXE_TIME_LIMIT_S"),
    }.get(bound, ("", ""))
    if not limit:
        return error
    what = f"reached its limit of {limit} with {phase} laws, before every output had a schedule"
    return SearchError("search", what, "a higher limit", hint=f"a larger {switch}")

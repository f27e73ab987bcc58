"""Samples of what schedule terms say in texts: boxes, layouts, meshes, and where inputs arrive.

Such a text makes sense for some values only, so it is drawn after the value it speaks about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod

from axe_eq.layout import Layout
from axe_eq.program.decisions import Draw
from axe_eq.program.terms import operands, type_of
from axe_eq.program.types import ValueType, value_type
from axe_eq.rule.term import Analysis, Call, Symbol, Term
from axe_eq.schedule import terms as s
from axe_eq.schedule.box import Entry, root_boxes, show

Fact = tuple[Analysis, Term, int | str]

# Texts of a symbol's primitive arguments, given its other arguments: (decisions, prefix of their
# names, other arguments) -> one per primitive argument. Packs may add those of their symbols.
ARGUMENTS: dict[Symbol, Callable[[Draw, str, Sequence[Term]], Sequence[int | str]]] = {}
# Facts about inputs that encoders state and nothing computes: (decisions, prefix, input) -> fact.
STATED: dict[Analysis, Callable[[Draw, str, Term], int | str]] = {}

_LETTERS = {"*": 5, "p": 4, "q": 3, "k": 2, "s": 1, "b": 1, "c": 1, "": 1}


def draw_facts(draw: Draw, calls: Iterable[Call], inputs: Iterable[Term]) -> list[Fact]:
    """What is stated about the inputs of a sample: facts that its law asks for."""
    asked = {call.function for call in calls}
    pairs = ((a, x) for a in STATED if a in asked for x in inputs)
    return [(a, x, STATED[a](draw, f"{a.name} of {x.args[0]}", x)) for a, x in pairs]


@contextmanager
def stating(facts: Iterable[Fact]) -> Iterator[None]:
    """These facts hold inside the block."""
    by_analysis: dict[Analysis, dict[Term, int | str]] = {}
    for analysis, term, fact in facts:
        by_analysis.setdefault(analysis, {})[term] = fact
    with ExitStack() as stack:
        for analysis, known in by_analysis.items():
            stack.enter_context(analysis.stating(known))
        yield


# -- one device ------------------------------------------------------------------------------------


def _type(value: Term) -> ValueType:
    return value_type(type_of(value))


def draw_layout(draw: Draw, at: str, type: ValueType) -> str:
    """A layout of a value: its dims in any order, often row-major, perhaps more than once."""
    order = list(range(type.rank))
    if draw.chance(f"{at}.turned", 0.4):
        order = draw.shuffled(f"{at}.order", order)
    strides = {d: prod(type.shape[e] for e in order[n + 1 :]) for n, d in enumerate(order)}
    shard_ = [(type.shape[d], strides[d], "m") for d in range(type.rank)]
    replica = [(2, 1, "lane")] if draw.chance(f"{at}.copied", 0.15) else []
    offset = {"m": draw.integer(f"{at}.offset", 0, 2)}
    return str(Layout(shard=shard_, replica=replica, offset=offset).canonical())


def draw_box(draw: Draw, at: str, type: ValueType) -> str:
    """A box of a value: one that kernels have at their roots, or any."""
    if draw.chance(f"{at}.root", 0.4):
        return draw.pick(f"{at}.roots", root_boxes(str(type)))
    return show(_entry(draw, f"{at}.{n}", extent) for n, extent in enumerate(type.shape))


def _entry(draw: Draw, at: str, extent: int) -> Entry:
    letter = draw.weighted(f"{at}.letter", _LETTERS)
    window = draw.integer(f"{at}.window", 1, 3) if draw.chance(f"{at}.wide", 0.2) else 1
    if letter in ("*", ""):
        offset = 0 if letter else draw.integer(f"{at}.index", 0, extent - 1)
        return Entry(letter, int(letter == "*"), offset, 1 if letter else window)
    if draw.chance(f"{at}.plain", 0.7):
        return Entry(letter)
    if draw.chance(f"{at}.back", 0.3):
        return Entry(letter, -1, extent - 1)
    scale = draw.integer(f"{at}.scale", 1, 2)
    return Entry(letter, scale, draw.integer(f"{at}.from", -1, 1), window)


def _place(draw: Draw, at: str, given: Sequence[Term]) -> Sequence[int | str]:
    return (draw_layout(draw, f"{at}.L", _type(given[0])),)


def _tile(draw: Draw, at: str, given: Sequence[Term]) -> Sequence[int | str]:
    return (draw_box(draw, f"{at}.b", _type(given[0])),)


def _tiles(draw: Draw, at: str, given: Sequence[Term]) -> Sequence[int | str]:
    types = [*map(_type, operands(given[0])), *_unread(draw, at)]
    return ("".join(f"{draw_box(draw, f'{at}.b{n}', t)};" for n, t in enumerate(types)),)


def _load(draw: Draw, at: str, given: Sequence[Term]) -> Sequence[int | str]:
    """What is placed, seen in its own shape or as a list, in the layout it is placed in."""
    value, layout = given[0].args
    type_ = _type(value)
    seen = ValueType(type_.dtype, (type_.size,)) if draw.chance(f"{at}.list", 0.5) else type_
    return str(seen), str(layout), draw_box(draw, f"{at}.b", seen)


def _unread(draw: Draw, at: str) -> list[ValueType]:
    """Types that boxes beyond the last operand speak about; what reads a list ignores them."""
    shapes = ((6,), (2, 3), (4, 2, 1))
    n_boxes = draw.weighted(f"{at}.unread", {0: 4, 1: 1, 2: 1})
    return [ValueType("f64", draw.pick(f"{at}.unread {n}", shapes)) for n in range(n_boxes)]


def _arrival(draw: Draw, at: str, value: Term) -> str:
    """Where an input arrives."""
    return draw_layout(draw, at, _type(value))


ARGUMENTS |= {s.place: _place, s.tile: _tile, s.tiles: _tiles, s.Load: _load}
STATED[s.arrivals] = _arrival

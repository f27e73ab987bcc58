"""Values without inputs, element by element: masks by position, captured arrays, tables.

What reads no input has known elements, so two spellings of it are compared by looking at all of
them: up to 2^20, and where none of them depends on how a machine rounds. A captured array takes
part where the statement says what it holds (`axe_eq.prove`).

Legend as in pack tensor, whose laws these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from axe_eq.program.decisions import Draw
from axe_eq.program.gathers import looks
from axe_eq.program.interval import APPROXIMATE, ENCLOSE, ENCLOSE_MONOID, Interval, literal, point
from axe_eq.program.meaning import evaluate_node, index_views
from axe_eq.program.node import OP, SEL, Node, topological
from axe_eq.program.ops import MONOIDS, cell, constant_of, join_text, selector
from axe_eq.program.selectors import array_text
from axe_eq.program.sigalg import identity
from axe_eq.program.signature import make, plain, signature
from axe_eq.program.terms import VALUE, In, Scan, Sel, Value, decode, op, operands, sel, type_of
from axe_eq.program.types import DTYPES, Array, dtype, value_type
from axe_eq.rule.term import INT, Analysis, Ground, Term, Undefined, mapped
from axe_eq_rules.constants import constant_text, holds_value
from axe_eq_rules.layout_numbers import Laws

LAWS = Laws()
_LARGEST = 1 << 20  # elements of one value that are looked at
_CELLS = ENCLOSE.keys() - APPROXIMATE - {"pair"}


# -- the elements ----------------------------------------------------------------------------------


def _size(term: Term, known: Callable[[Term], Any]) -> int | None:
    """Elements of the largest value that a term is made of, if it reads no input."""
    if term.symbol in (In, Scan):
        return None
    sizes, of = [known(a) for a in operands(term)], type_of.of(term)
    return None if of is None or None in sizes else int(max(value_type(of).size, *sizes, 1))


closed_size = Analysis("closed size", VALUE, INT, _size)


def elements(term: Term) -> Array | None:
    """All elements of a value that reads no input; None where a machine, or the reals, may differ.

    Every operator in it must have one result over the reals, which its dtype holds.
    """
    size = closed_size.of(term)
    if size is None or size > _LARGEST:
        return None
    values: dict[Node, Array] = {}
    with np.errstate(all="ignore"):
        for node in topological([decode(term)]):
            found = _element_values(node, [values[a] for a in node.args])
            if found is None:
                return None
            values[node] = found
    return found


def _element_values(node: Node, given: Sequence[Array]) -> Array | None:
    if node.kind == SEL and looks(node.text, [a.type for a in node.args]):
        return None
    values = evaluate_node(node, given)
    if node.kind == SEL:
        return values if _holds_its_constants(node, values) else None
    assert node.kind == OP
    exact = _over_the_reals(node, given)
    return values if exact is not None and np.array_equal(exact, _wide(values)) else None


def _wide(values: Array) -> Array:
    return np.asarray(values, np.float64)


def _holds_its_constants(node: Node, values: Array) -> bool:
    """Whether the elements of a selector are numbers that its dtype holds as they are written."""
    declared, _ = selector(node.text)
    if np.isnan(_wide(values)).any():
        return False
    written = constant_of(node.text)
    if written is not None:
        return holds_value(node.dtype, written)
    return not declared.counts or np.array_equal(_wide(values), np.arange(node.type.size))


def _over_the_reals(node: Node, given: Sequence[Array]) -> Array | None:
    """The values of a block operator on reals, if they are known exactly and have one sign of 0."""
    sig, (declared, params) = signature(node.text), cell(node.cell)
    if declared.name not in _CELLS or not _has_one_order(sig.monoid, node):
        return None
    views = [
        literal(v, "i64") if v.dtype.kind in "iub" else point(v) for v in index_views(sig, given)
    ]
    selects = sig.monoid or (declared.commutative and not declared.rounds)
    if selects and any((np.signbit(v.low) & (v.low == 0)).any() for v in views):
        return None
    assert declared.enclose is not None
    found = Interval(*declared.enclose(*views, *params))
    if sig.monoid:
        shape = np.broadcast_shapes(*(v.shape for v in views))
        found = found.map(lambda bound: np.broadcast_to(bound, shape))
        found = ENCLOSE_MONOID[sig.monoid]([found], tuple(sig.reduced))
    if not np.array_equal(found.low, found.high):  # NaN, what is not known, equals nothing
        return None
    low = found.low.reshape(found.low.shape[: sig.n_out])
    return np.broadcast_to(low, node.shape)


def _has_one_order(monoid: str, node: Node) -> bool:
    if not monoid:
        return True
    whole = all(DTYPES[a.dtype].kind != "f" for a in node.args)
    return (
        monoid in ENCLOSE_MONOID
        and MONOIDS[monoid].n_values == 1
        and (whole or MONOIDS[monoid].exact)
    )


# -- one term for all spellings --------------------------------------------------------------------


def _written(values: Array) -> Term | None:
    """The one term that stands for these elements: constants, choices between two, runs.

    Dims along which nothing changes are broadcast, and a mask holds at its first element, so what
    is one mask repeated, or negated, is so in its term.
    """
    words = values.view(f"u{values.itemsize}")
    varying = [d for d in range(values.ndim) if (words != words.take([0], d)).any()]
    core = values[tuple(slice(None) if d in varying else 0 for d in range(values.ndim))]
    term = _of_core(np.array(core, order="C"))
    if term is None or len(varying) == values.ndim:
        return term
    view = make([map(plain, varying)], range(values.ndim), fixed=dict(enumerate(values.shape)))
    return op(view.text, "id", term)


def _of_core(core: Array) -> Term | None:
    """The term of elements that differ along every dim."""
    name = dtype(core.dtype).name
    if core.ndim == 0:
        return sel(constant_text(core.item() if core.dtype.kind in "iub" else float(core), name))
    own = identity(core.ndim)
    if name == "bool":
        runs = array_text(core if core.flat[0] else ~core)
        return (
            None if runs is None else sel(runs) if core.flat[0] else op(own.text, "not", sel(runs))
        )
    words = core.view(f"u{core.itemsize}")
    first = words == words.flat[0]
    other = core[~first]
    if (words[~first] != words[~first][0]).any():
        runs = array_text(core)
        return None if runs is None else sel(runs)
    mask = array_text(first)
    choice = make([own.operands[0], (), ()], range(core.ndim)).text
    ends = (_of_core(np.array(x)) for x in (core.flat[0], other[0]))
    return None if mask is None else op(choice, "where", sel(mask), *ends)


def written_out(term: Term) -> Term:
    """The term with values that read no input written by their elements, where they are known."""

    def one(sub: Term) -> Term:
        values = elements(sub) if sub.sort == VALUE else None
        found = None if values is None else _written(values)
        return sub if found is None else found

    return mapped(term, one)


def _sample(draw: Draw) -> tuple[Ground, ...]:
    """A mask by position, the same captured, or numbers made of one."""
    rows, cols = draw.integer("rows", 1, 4), draw.integer("cols", 1, 4)
    compare = draw.pick("cell", ("le", "lt", "ge", "eq", "ne", "sub", "maximum", "bit_and"))
    of = draw.pick("dtype", ("i64", "i32", "i8"))
    sides = [sel(join_text("iota", n, of)) for n in (cols, rows)]
    made = op("b, a -> a b", compare, *sides)
    way = draw.pick("way", ("plain", "cast", "choice", "repeat", "half"))
    if way == "plain" or compare in ("sub", "maximum", "bit_and"):
        return (made,)
    if way == "cast":
        return (op("a b -> a b", f"cast {draw.pick('to', ('f16', 'f32', 'i8'))}", made),)
    if way == "repeat":
        return (op("a b -> a b c [c=2]", "id", made),)
    if way == "half":
        return (op("a b -> b; or a", "id", made),)
    ends = [sel(constant_text(draw.pick(n, (0.0, 1.0, -np.inf)), "f32")) for n in ("x", "y")]
    return (op("a b, , -> a b", "where", made, *ends),)


@LAWS.law(source="ours: all elements are looked at", normal=True, sampler=_sample)
def elements_form(t: Value) -> tuple[Term, Term]:
    """Value t = its elements, each written out   if it reads no input and they are few."""
    if t.symbol is Sel and constant_of(t.args[0]) is not None and not value_type(type_of(t)).shape:
        raise Undefined("elements")
    found = elements(t)
    written = None if found is None else _written(found)
    if written is None or written is t:
        raise Undefined("elements")
    return t, written

"""Layout terms as text; layouts and operations as `axe_eq.layout.symbolic.text` reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from axe_eq.errors import LayoutError
from axe_eq.layout.symbolic import terms as t
from axe_eq.rule.term import Symbol, Term, postorder


def show(term: Term) -> str:
    """A layout term, or a part of one, as one line."""
    texts: dict[Term, str] = {}
    for sub in postorder(term):
        texts[sub] = show_part(sub, texts)
    return texts[term]


def show_part(term: Term, texts: Mapping[Term, str]) -> str:
    """A layout term, or a part of one, whose own parts have these texts."""
    return _written(term) or _one(term, texts)


def _one(term: Term, texts: Mapping[Term, str]) -> str:
    given = [texts[a] if isinstance(a, Term) else a for a in term.args]
    form = _FORMS.get(term.symbol)
    if form is not None:
        return form(*given)
    return f"{term.symbol.name}({', '.join(map(str, given))})"


def _written(term: Term) -> str | None:
    """A layout that is written out."""
    if term.symbol not in (t.Map, t.Swizzled, t.Boxed):
        return None
    if t.is_written(term):
        try:
            return str(t.decode(term))
        except LayoutError:
            return None
    return _symbolic(*term.args) if term.symbol is t.Map else None


def _symbolic(shard: Term, rest: Term) -> str | None:
    shifts = []
    while rest.symbol in (t.SymShift, t.Shift):
        shifts.append((rest.args[0], rest.args[1]))
        rest = rest.args[-1]
    parts = [_items(shard, (t.SymIter, t.Iter)), _items(rest, (t.SymCopy, t.Copy))]
    if None in parts:
        return None
    text = f"S{parts[0]}"
    if rest.args:
        text += f" + R{parts[1]}"
    return text + "".join(f" + {_factor(value)}@{axis}" for value, axis in shifts)


def _items(term: Term, symbols: tuple[Symbol, ...]) -> str | None:
    found = []
    while term.args:
        if term.symbol not in symbols:
            return None
        found.append(term.args[:-1])
        term = term.args[-1]
    extents = ",".join(str(extent) for extent, _, _ in found)
    return f"[({extents}):({','.join(f'{_factor(s)}@{a}' for _, s, a in found)})]"


def _factor(number: Any) -> str:
    text = str(number)
    return f"({text})" if "+" in text or "-" in text[1:] else text


_FORMS: dict[Symbol, Callable[..., str]] = {
    t.NoIter: lambda: "()",
    t.Iter: lambda e, s, a, r: f"({e}, {s}@{a})" + ("" if r == "()" else f" {r}"),
    t.SymIter: lambda e, s, a, r: f"({e}, {_factor(s)}@{a})" + ("" if r == "()" else f" {r}"),
    t.Append: lambda d, r: f"{d} {r}",
    t.Join: lambda g: f"join({g})",
    t.Window: lambda d, b, c: f"{d}[{b}:{b + c}]",
    t.ScaleIters: lambda d, w: f"<{w}> * {d}",
    t.NoBlock: lambda: "",
    t.Block: lambda d, g: f"{d}, {g}" if g else d,
    t.Cut: lambda d, s: f"({d} | ({s}))",
    t.Prepend: lambda e, s, a, g: f"(({e}, {s}@{a}) before dim 0 of ({g}))",
    t.SymPrepend: lambda e, s, a, g: f"(({e}, {_factor(s)}@{a}) before dim 0 of ({g}))",
    t.Insert: lambda d, k, g: f"({g} with {d} at {k})",
    t.Reorder: lambda g, p: f"({g})[{p}]",
    t.Zip: lambda g, h: f"(({g}) & ({h}))",
    t.Region: lambda g, r: f"({g})[{r}]",
    t.Here: lambda: "0",
    t.Copy: lambda e, s, a, p: f"[{e}, {s}@{a}]" + ("" if p == "0" else f" + {p}"),
    t.SymCopy: lambda e, s, a, p: f"[{e}, {_factor(s)}@{a}]" + ("" if p == "0" else f" + {p}"),
    t.Shift: lambda v, a, p: f"{v}@{a}" + ("" if p == "0" else f" + {p}"),
    t.SymShift: lambda v, a, p: f"{_factor(v)}@{a}" + ("" if p == "0" else f" + {p}"),
    t.Sum: lambda p, q: f"({p}) + ({q})",
    t.ScaleCopies: lambda p, w: f"<{w}> * ({p})",
    t.MoveTo: lambda d, i, p: f"{d}({i}) + {p}",
    t.PlaceAt: lambda g, r, p: f"({g})(begin of {r}) + {p}",
    t.Map: lambda d, p: f"map({d} + {p})",
    t.Swizzled: lambda a, i, j, k, x: f"sw({i},{j},{k})@{a} . {x}",
    t.BoxEnd: lambda: "",
    t.BoxOrder: lambda order: f"order {order}",
    t.BoxDim: lambda n, m, rest: f"{n} of {m}" + (f", {rest}" if rest else ""),
    t.Boxed: lambda b, x: f"box[{b}] in {x}",
    t.AnyLayout: lambda name, n, bound: f"{name}[{n} below {bound}]" if bound else f"{name}[{n}]",
    t.Group: lambda x, s: f"group({x}, ({s}))",
    t.Permute: lambda x, s, p: f"permute({x}, ({s}), ({p}))",
    t.Slice: lambda x, s, r: f"slice({x}, ({s}), ({r}))",
    **{
        symbol: lambda a, s, b, u, name=name: f"{name}({a}, ({s}), {b}, ({u}))"
        for name, symbol in t.PAIRS.items()
    },
    t.Compose: lambda a, b: f"compose({a}, {b})",
    t.Inverse: lambda x, axes: f"inverse({x}, ({axes}))",
    t.Scale: lambda x, v: f"{v} * {x}",
    t.Spans: lambda v: f"<{v}>",
    t.SpanOf: lambda x: f"span({x})",
    t.SpanOfIters: lambda d: f"span({d})",
    t.SpanOfCopies: lambda p: f"span({p})",
    t.SpanSum: lambda v, w: f"({v} (+) {w})",
    t.SpanProduct: lambda v, w: f"({v} (x) {w})",
    t.Footprint: lambda b, x: f"footprint(box[{b}] in {x})",
    t.ShapeIs: lambda s: f"({s})",
    t.CommonRefinement: lambda s, u: f"common_refinement(({s}), ({u}))",
    t.Aliasing: lambda x: f"aliasing({x})",
    t.Injective: lambda: "injective",
    t.Clashing: lambda x, y: f"elements {x} and {y} meet",
}

"""Attention as one streaming reduction: softmax weights times values is a monoid.

Legend: z scores; v values to be mixed; m an offset of each row; e = exp(z); s, t, d, u signatures;
w that of a maximum.
``softmax`` is the monoid on (score, value) with state (maximum, sum of weights, weighted sum).
Chunks merge by rescaling, so a kernel streams over the dim and holds no row of weights. The monoid
finds its own maximum: finite offsets of a row do not matter, and neither does the row's maximum,
though that is -inf where all scores are masked: both sides are undefined there. Weights that are
cast before they mix, as where softmax is computed wide, mix like others; the mixture is cast.

Source: Milakov and Gimelshein 2018 (online normalizer); Dao et al. 2022 (FlashAttention).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import Any

from axe_eq.pack import Pack
from axe_eq.program import sigalg
from axe_eq.program.ops import join_text, split_text
from axe_eq.program.signature import Affine, Signature, signature
from axe_eq.program.terms import Cell, In, Sig, Value, op, type_of
from axe_eq.program.types import DTYPES, dtype, promote, value_type
from axe_eq.rule.law import Sides
from axe_eq.rule.term import STR, Primitive, Term, Undefined, primitive
from axe_eq_rules.needs import is_below, is_finite

PACK = Pack(
    "online_softmax", version="3", exact=False, summary="attention as one streaming reduction"
)


def _normalises(
    e: tuple[Affine, ...], total: tuple[Affine, ...], norm: str, sig: Signature, monoid: str = "+"
) -> bool:
    """Whether `total` reads the sum of e, where `e` reads it, over just the dims sig reduces."""
    t = signature(norm)
    read = [p.plain for p in t.operands[0]]
    if t.monoid != monoid or len(t.operands) != 1 or t.fixed or None in read:
        return False
    if sorted(d for d in read if d is not None) != list(range(t.n_dims)):
        return False
    rows = tuple(e[read.index(d)] for d in range(t.n_out))
    summed = [e[read.index(d)].plain for d in t.reduced]
    kept = {d for p in rows for d, _ in p.terms}
    return (
        rows == total and sorted(map(_dim, summed)) == list(sig.reduced) and not kept & set(summed)
    )


def _is_top(whole: Signature, top: str) -> bool:
    """Whether the second operand is the first one's maximum over just the reduced dims."""
    z, m = whole.operands[:2]
    return _normalises(z, m, top, whole, "max")


def _dim(dim: int | None) -> int:
    return -1 if dim is None else dim


def _fold(whole: Signature, order: tuple[int, int, int], norm: str, exp: str) -> str | None:
    """The fold of scores and values; `order` says where e, v and the sum of e stand in `whole`."""
    e, v, total = order
    t = signature(exp)
    if whole.monoid != "+" or t.n_reduced:
        return None
    if not _normalises(whole.operands[e], whole.operands[total], norm, whole):
        return None
    pair = sigalg.reorder(sigalg.without_operand(whole, total), (0, 1) if e < v else (1, 0))
    return sigalg.rebuild(sigalg.inline(pair, 0, t), monoid="softmax").text


def _inlined(outer: str, position: int, inner: str) -> Signature:
    s, t = signature(outer), signature(inner)
    if len(s.operands) != 2 or len(t.operands) != 2 or bool(s.n_reduced) == bool(t.n_reduced):
        raise Undefined("a mixture and a division")
    return sigalg.inline(s, position, t)


@cache
def _folded(late: bool, right: bool) -> Primitive:
    """(mixture, division, sum, exp) -> the fold of scores and values.

    Args:
        late: the division comes after the mixture.
        right: the weights are the right operand of the mixture.
    """

    def fn(mix: str, divide: str, norm: str, exp: str) -> str | None:
        whole = _inlined(divide, 0, mix) if late else _inlined(mix, int(right), divide)
        place = (0, 1, 2) if late else (0, 2, 1)
        return _fold(whole, (1, 0, 2) if right else place, norm, exp)

    fn.__name__ = f"fold{'_late' if late else ''}{'_right' if right else ''}"
    return Primitive(fn, (STR,) * 4, (STR,))


@cache
def _folded_cast(right: bool) -> Primitive:
    """(mixture, map of a cast, division, sum, exp) -> the fold of scores and values.

    Args:
        right: the weights, which are cast after the division, are the right operand.
    """

    def fn(mix: str, cast: str, divide: str, norm: str, exp: str) -> str | None:
        if signature(cast).n_reduced:
            return None
        read = sigalg.inline(signature(mix), int(right), signature(cast))
        whole = _inlined(read.text, int(right), divide)
        return _fold(whole, (1, 0, 2) if right else (0, 2, 1), norm, exp)

    fn.__name__ = f"fold_cast{'_right' if right else ''}"
    return Primitive(fn, (STR,) * 5, (STR,))


@primitive((STR, STR, STR), (STR,))
def without_offset(fold: str, shift: str, f: str) -> str | None:
    """The fold less an offset of its scores that is the same along the folded dims."""
    s, t = signature(fold), signature(shift)
    if s.monoid != "softmax" or f not in ("add", "sub") or t.n_reduced or len(t.operands) != 2:
        return None
    whole = sigalg.inline(s, 0, t)
    if any(d in whole.reduced for d in sigalg.dims_of(whole.operands[1])):
        return None
    return sigalg.without_operand(whole, 1).text


@primitive((STR, STR, STR), (STR,))
def without_maximum(fold: str, shift: str, top: str) -> str | None:
    """The fold less an offset of its scores that is their maximum along the folded dims."""
    s, t = signature(fold), signature(shift)
    if s.monoid != "softmax" or t.n_reduced or len(t.operands) != 2:
        return None
    whole = sigalg.inline(s, 0, t)
    return sigalg.without_operand(whole, 1).text if _is_top(whole, top) else None


@primitive((STR, STR, STR), (STR, STR))
def cast_mixture(fold: str, cast: str, v: str) -> tuple[str, str] | None:
    """(map, cast) of a mixture by weights that are cast to a floating dtype."""
    name, params = split_text(cast)
    if name != "cast":
        return None
    to, own = dtype(params[0]).name, value_type(v).dtype
    if DTYPES[to].kind != "f" or DTYPES[own].kind != "f":
        return None
    return sigalg.identity(signature(fold).n_out).text, join_text("cast", promote(to, own))


# -- samples ---------------------------------------------------------------------------------------


PLAIN, OFFSET, MAXIMUM = "", "_offset", "_maximum"


def _sample(
    draw: Any, *, late: bool, right: bool, kind: str, rounded: bool = False
) -> tuple[Any, ...]:
    """Scores and values as attention has them, in several orders of dims."""
    lead = draw.pick("lead", ("", "h ", "g h "))
    e = lead + draw.pick("e", ("m n", "n m"))
    v = lead + draw.pick("v", ("n d", "d n"))
    out = lead + draw.pick("out", ("m d", "d m"))
    read = lead + draw.pick("read", ("m n", "n m")) if rounded else e
    mix = f"{v}, {read}" if right else f"{read}, {v}"
    divide = f"{out}, {lead}m -> {out}" if late else f"{e}, {lead}m -> {e}"
    texts = [f"{mix} -> {out}; + n", divide, f"{e} -> {lead}m; + n", f"{e} -> {e}"]
    values = [("z", e), ("v", v)]
    if kind != PLAIN:
        texts.append(f"{e}, {lead}m -> {e}")
    if kind == OFFSET:
        values.insert(1, ("m", f"{lead}m"))
    if kind == MAXIMUM:
        texts.append(f"{e} -> {lead}m; max n")
    sizes = {"g": 2, "h": 3, "m": 4, "n": 5, "d": 2}
    shapes = [(name, ",".join(str(sizes[d]) for d in dims.split())) for name, dims in values]
    narrow = draw.pick("of_values", ("f64", "f32")) if rounded else "f64"
    held = {"v": narrow}
    inputs = [In(name, f"{held.get(name, 'f64')}[{shape}]") for name, shape in shapes]
    cast = (signature(f"{e} -> {read}").text, join_text("cast", draw.pick("to", ("f32", "f64"))))
    return (*(signature(text).text for text in texts), *(cast if rounded else ()), *inputs)


def _shifted(draw: Any, top: bool = False) -> tuple[Any, ...]:
    """A fold of shifted scores."""
    fold = draw.pick("fold", ("m n, n d -> m d; softmax n", "n m, d n -> d m; softmax n"))
    scores, offset = ("m n", "m") if fold[0] == "m" else ("n m", "m")
    shift = f"{scores}, {offset} -> {scores}"
    z = In("z", "f64[4,5]" if fold[0] == "m" else "f64[5,4]")
    v = In("v", "f64[5,2]" if fold[0] == "m" else "f64[2,5]")
    if top:
        return *map(_text, (fold, shift, f"{scores} -> m; max n")), z, v
    cell = draw.pick("cell", ("add", "sub"))
    return signature(fold).text, signature(shift).text, cell, z, In("m", "f64[4]"), v


def _text(sig: str) -> str:
    return signature(sig).text


def _weights(draw: Any, *, top: bool) -> tuple[Any, ...]:
    """Weights over their sums, of shifted scores."""
    e = draw.pick("e", ("m n", "n m", "h m n"))
    rows = " ".join(d for d in e.split() if d != "n")
    texts = [f"{e}, {rows} -> {e}", f"{e} -> {rows}; + n", f"{e} -> {e}", f"{e}, {rows} -> {e}"]
    sizes = {"h": 2, "m": 3, "n": 4}
    shape, short = (",".join(str(sizes[d]) for d in dims.split()) for dims in (e, rows))
    z = In("z", f"f64[{shape}]")
    if top:
        return *map(_text, (*texts, f"{e} -> {rows}; max n")), z
    return *map(_text, texts), z, In("m", f"f64[{short}]")


# -- laws ------------------------------------------------------------------------------------------


def _fold_law(late: bool, right: bool, kind: str) -> Callable[..., Sides]:
    folded = _folded(late, right)

    def sides(s: Any, d: Any, t: Any, x: Any, z: Any, v: Any) -> tuple[Term, Any]:
        e = op(x, "exp", z)
        share = e if late else op(d, "div", e, op(t, "id", e))
        mixed = op(s, "mul", v, share) if right else op(s, "mul", share, v)
        return op(d, "div", mixed, op(t, "id", e)) if late else mixed, folded(s, d, t, x)

    def plain(s: Sig, d: Sig, t: Sig, x: Sig, z: Value, v: Value) -> Sides:
        """(e / sum e) v = (e v) / sum e = u[pair](z, v) folded   where e = exp(z)."""
        left, u = sides(s, d, t, x, z, v)
        return left, op(u, "pair", z, v)

    def shifted(s: Sig, d: Sig, t: Sig, x: Sig, y: Sig, z: Value, m: Value, v: Value) -> Sides:
        """(e / sum e) v = (e v) / sum e = u[pair](z, v) folded   where e = exp(z - m), m finite."""
        left, u = sides(s, d, t, x, op(y, "sub", z, m), v)
        right = op(without_offset(u, y, "sub"), "pair", z, v)
        return left, right, is_finite(m)

    def topped(s: Sig, d: Sig, t: Sig, x: Sig, y: Sig, w: Sig, z: Value, v: Value) -> Sides:
        """(e / sum e) v = (e v) / sum e = u[pair](z, v) folded   where e = exp(z - max z)."""
        left, u = sides(s, d, t, x, op(y, "sub", z, op(w, "id", z)), v)
        return left, op(without_maximum(u, y, w), "pair", z, v)

    laws: dict[str, Callable[..., Sides]] = {PLAIN: plain, OFFSET: shifted, MAXIMUM: topped}
    return laws[kind]


def _rounded_law(right: bool, kind: str) -> Callable[..., Sides]:
    folded = _folded_cast(right)

    def sides(s: Any, d: Any, t: Any, x: Any, c: Any, f: Any, z: Any, v: Any) -> tuple[Term, Any]:
        e = op(x, "exp", z)
        share = op(c, f, op(d, "div", e, op(t, "id", e)))
        mixed = op(s, "mul", v, share) if right else op(s, "mul", share, v)
        return mixed, folded(s, c, d, t, x)

    def cast(u: Any, f: Any, z: Any, v: Any) -> Term:
        i, g = cast_mixture(u, f, type_of(v))
        return op(i, g, op(u, "pair", z, v))

    def plain(s: Sig, d: Sig, t: Sig, x: Sig, c: Sig, f: Cell, z: Value, v: Value) -> Sides:
        """cast(e / sum e) v = cast(u[pair](z, v)) folded   where e = exp(z)."""
        left, u = sides(s, d, t, x, c, f, z, v)
        return left, cast(u, f, z, v)

    def shifted(
        s: Sig, d: Sig, t: Sig, x: Sig, y: Sig, c: Sig, f: Cell, z: Value, m: Value, v: Value
    ) -> Sides:
        """cast(e / sum e) v = cast(u[pair](z, v)) folded   where e = exp(z - m), m finite."""
        left, u = sides(s, d, t, x, c, f, op(y, "sub", z, m), v)
        return left, cast(without_offset(u, y, "sub"), f, z, v), is_finite(m)

    def topped(
        s: Sig, d: Sig, t: Sig, x: Sig, y: Sig, w: Sig, c: Sig, f: Cell, z: Value, v: Value
    ) -> Sides:
        """cast(e / sum e) v = cast(u[pair](z, v)) folded   where e = exp(z - max z)."""
        left, u = sides(s, d, t, x, c, f, op(y, "sub", z, op(w, "id", z)), v)
        return left, cast(without_maximum(u, y, w), f, z, v)

    laws: dict[str, Callable[..., Sides]] = {PLAIN: plain, OFFSET: shifted, MAXIMUM: topped}
    return laws[kind]


def _name(late: bool, right: bool, kind: str, rounded: bool = False) -> str:
    mixed = "values_weights" if right else "weights_values"
    return mixed + "_cast" * rounded + "_divided_late" * late + kind


for _late, _right, _kind in product((False, True), (False, True), (PLAIN, OFFSET, MAXIMUM)):
    PACK.law(
        source="Milakov and Gimelshein 2018; Dao et al. 2022",
        sampler=partial(_sample, late=_late, right=_right, kind=_kind),
        name=_name(_late, _right, _kind),
    )(_fold_law(_late, _right, _kind))

for _right, _kind in product((False, True), (PLAIN, OFFSET, MAXIMUM)):
    PACK.law(
        source="Milakov and Gimelshein 2018; Dao et al. 2022",
        sampler=partial(_sample, late=False, right=_right, kind=_kind, rounded=True),
        name=_name(False, _right, _kind, rounded=True),
    )(_rounded_law(_right, _kind))


@PACK.law(source="folklore: softmax does not change with an offset", sampler=_shifted)
def offset_of_scores(s: Sig, t: Sig, f: Cell, z: Value, m: Value, v: Value) -> Sides:
    """s[pair](t[f](z, m), v) = u[pair](z, v), both folded by softmax   for finite m of rows."""
    right = op(without_offset(s, t, f), "pair", z, v)
    return op(s, "pair", op(t, f, z, m), v), right, is_finite(m)


@PACK.law(
    source="folklore: softmax does not change with an offset", sampler=partial(_shifted, top=True)
)
def maximum_of_scores(s: Sig, t: Sig, w: Sig, z: Value, v: Value) -> Sides:
    """s[pair](t[sub](z, max z), v) = u[pair](z, v), both folded by softmax   for rows' maxima."""
    shifted = op(t, "sub", z, op(w, "id", z))
    return op(s, "pair", shifted, v), op(without_maximum(s, t, w), "pair", z, v)


@primitive((STR, STR, STR, STR), (STR, STR))
def shares_without_offset(divide: str, norm: str, exp: str, shift: str) -> tuple[str, str] | None:
    """(division, exp) of weights over their sum, less an offset that the sum's dims do not read."""
    d, t, x, y = map(signature, (divide, norm, exp, shift))
    if d.n_reduced or x.n_reduced or y.n_reduced or len(y.operands) != 2 or t.monoid != "+":
        return None
    inner = sigalg.inline(sigalg.inline(t, 0, x), 0, y)
    if any(k in inner.reduced for k in sigalg.dims_of(inner.operands[1])):
        return None
    kept = sigalg.without_operand(sigalg.inline(x, 0, y), 1)
    return (d.text, kept.text) if _divides_its_rows(d, t, x) else None


def _divides_its_rows(d: Signature, t: Signature, x: Signature) -> bool:
    """Whether a division reads, beside each weight, the sum of its own row."""
    read = [p.plain for p in t.operands[0]]
    if len(t.operands) != 1 or len(d.operands) != 2 or not set(range(t.n_out)) <= set(read):
        return False
    kept = tuple(d.operands[0][read.index(row)] for row in range(t.n_out))
    return kept == d.operands[1] and len(d.operands[0]) == x.n_out


@PACK.law(
    source="folklore: softmax does not change with an offset",
    sampler=partial(_weights, top=False),
    search=False,
)
def offset_of_weights(d: Sig, t: Sig, x: Sig, y: Sig, z: Value, m: Value) -> Sides:
    """E / sum e = e' / sum e'   for e = exp(z - m), e' = exp(z), m a finite offset of rows."""
    u, v = shares_without_offset(d, t, x, y)
    e, plain = op(x, "exp", op(y, "sub", z, m)), op(v, "exp", z)
    right = op(u, "div", plain, op(t, "id", plain))
    return op(d, "div", e, op(t, "id", e)), right, is_finite(m)


@primitive((STR, STR, STR, STR), (STR,))
def is_maximum(norm: str, exp: str, shift: str, top: str) -> str | None:
    """Defined where the offset is the maximum of the scores that are summed."""
    whole = sigalg.inline(signature(norm), 0, signature(exp))
    return top if _is_top(sigalg.inline(whole, 0, signature(shift)), top) else None


@PACK.law(
    source="folklore: softmax does not change with an offset",
    sampler=partial(_weights, top=True),
    search=False,
)
def maximum_of_weights(d: Sig, t: Sig, x: Sig, y: Sig, w: Sig, z: Value) -> Sides:
    """E / sum e = e' / sum e'   for e = exp(z - max z), e' = exp(z), rows of z never +inf."""
    u, v = shares_without_offset(d, t, x, y)
    is_maximum(t, x, y, w)
    e, plain = op(x, "exp", op(y, "sub", z, op(w, "id", z))), op(v, "exp", z)
    right = op(u, "div", plain, op(t, "id", plain))
    return op(d, "div", e, op(t, "id", e)), right, is_below(z)

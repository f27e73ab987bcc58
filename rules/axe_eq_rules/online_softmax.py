"""Attention as one streaming reduction: softmax weights times values is a monoid.

Legend: s scores; v values to be mixed; e = exp(s - max s); sums and maxima run over the same dims
of s, which the contraction with v reduces too. The monoid ``softmax`` keeps (maximum, sum, weighted
sum) and merges chunks by rescaling, so a kernel streams over the dim and holds no row of weights.

Source: Milakov and Gimelshein 2018 (online normalizer); Dao et al. 2022 (FlashAttention).
"""

from __future__ import annotations

from typing import Any

from axe_eq.pack import Pack
from axe_eq.program.signature import Affine, Signature, make, signature
from axe_eq.program.terms import In, Sig, Value, op
from axe_eq.rule.law import Sides
from axe_eq.rule.term import STR, Term, primitive

PACK = Pack("online_softmax", exact=False, summary="attention as one streaming reduction")


def _reads_whole(operand: tuple[Affine, ...], rank: int) -> bool:
    return [p.plain for p in operand] == list(range(rank))


def _row_dims(text: str, monoid: str) -> tuple[int, ...] | None:
    """Dims of the operand that a plain reduction keeps, in the order of its output."""
    sig = signature(text)
    if sig.monoid != monoid or len(sig.operands) != 1:
        return None
    read = [p.plain for p in sig.operands[0]]
    if sorted(-1 if d is None else d for d in read) != list(range(sig.n_dims)):
        return None
    return tuple(read.index(d) for d in range(sig.n_out))


def _applies_rows(text: str, rows: tuple[int, ...] | None) -> bool:
    """Whether a cell combines every element with the entry of its row."""
    sig = signature(text)
    if rows is None or len(sig.operands) != 2 or sig.n_reduced or sig.fixed:
        return False
    by_row = [p.plain for p in sig.operands[1]]
    return _reads_whole(sig.operands[0], sig.n_out) and by_row == list(rows)


def _mixes(sig: Signature, rows: tuple[int, ...]) -> bool:
    """Whether a contraction reduces exactly the dims of its first operand that rows lack."""
    if sig.monoid != "+" or len(sig.operands) != 2:
        return False
    read = [p.plain for p in sig.operands[0]]
    if None in read or len(set(read)) != len(read):
        return False
    return {d for n, d in enumerate(read) if n not in rows} == set(sig.reduced)


@primitive((STR, STR, STR, STR, STR), (STR,))
def streamed(exponent: str, shift: str, top: str, norm: str, mix: str) -> str | None:
    """The streaming signature of (exp(s - max s) / sum) v, given the signatures of its parts."""
    rows = _row_dims(top, "max")
    sig, exp = signature(mix), signature(exponent)
    same = rows is not None and rows == _row_dims(norm, "+") and _applies_rows(shift, rows)
    if not same or rows is None or not _reads_whole(exp.operands[0], exp.n_out) or exp.n_reduced:
        return None
    if not _mixes(sig, rows):
        return None
    return make(sig.operands, range(sig.n_out), "softmax", sig.reduced, dict(sig.fixed)).text


@primitive((STR, STR), (STR,))
def divides_rows(divide: str, norm: str) -> str | None:
    """Defined where a division takes every element by the sum of its row."""
    return divide if _applies_rows(divide, _row_dims(norm, "+")) else None


@primitive((STR, STR, STR), (STR,))
def divides_mixed(divide: str, norm: str, mix: str) -> str | None:
    """Defined where a division takes every mixed element by the sum of its row of weights."""
    sig, rows, by = signature(mix), _row_dims(norm, "+"), signature(divide)
    if rows is None or len(by.operands) != 2 or by.n_reduced or by.fixed:
        return None
    kept = [sig.operands[0][n].plain for n in rows]
    if not _reads_whole(by.operands[0], by.n_out) or [p.plain for p in by.operands[1]] != kept:
        return None
    return divide


def _sample(draw: Any) -> tuple[Any, ...]:
    """Scores of two or three dims and values, in the usual attention shapes."""
    heads = draw.pick("heads", ("", "h "))
    lead = "3," if heads else ""
    s = In("s", f"f64[{lead}4,5]")
    v = In("v", f"f64[{lead}5,2]")
    row = f"{heads}m n -> {heads}m"
    both = f"{heads}m n, {heads}m -> {heads}m n"
    mix = f"{heads}m n, {heads}n e -> {heads}m e; + n"
    texts = (f"{heads}m n -> {heads}m n", both, f"{row}; max n", f"{row}; + n", both, mix)
    return (*(signature(t).text for t in texts), s, v)


def _sample_late(draw: Any) -> tuple[Any, ...]:
    """As `_sample`, with the division after the contraction."""
    exponent, shift, top, norm, _, mix, s, v = _sample(draw)
    lead = "h " if len(signature(exponent).operands[0]) == 3 else ""
    late = signature(f"{lead}m e, {lead}m -> {lead}m e").text
    return exponent, shift, top, norm, late, mix, s, v


def _weights(exponent: Any, shift: Any, top: Any, s: Any) -> Term:
    return op(exponent, "exp", op(shift, "sub", s, op(top, "id", s)))


@PACK.law(source="Milakov and Gimelshein 2018; Dao et al. 2022", sampler=_sample)
def weights_then_values(
    exponent: Sig, shift: Sig, top: Sig, norm: Sig, divide: Sig, mix: Sig, s: Value, v: Value
) -> Sides:
    """(e / sum e) v = softmax-fold of (s, v)   where e = exp(s - max s)."""
    e = _weights(exponent, shift, top, s)
    fold = streamed(exponent, shift, top, norm, mix)
    left = op(mix, "mul", op(divide, "div", e, op(norm, "id", e)), v)
    return left, op(fold, "pair", s, v), divides_rows(divide, norm) == divide


@PACK.law(source="Milakov and Gimelshein 2018; Dao et al. 2022", sampler=_sample_late)
def values_then_division(
    exponent: Sig, shift: Sig, top: Sig, norm: Sig, divide: Sig, mix: Sig, s: Value, v: Value
) -> Sides:
    """(e v) / sum e = softmax-fold of (s, v)   where e = exp(s - max s)."""
    e = _weights(exponent, shift, top, s)
    fold = streamed(exponent, shift, top, norm, mix)
    left = op(divide, "div", op(mix, "mul", e, v), op(norm, "id", e))
    return left, op(fold, "pair", s, v), divides_mixed(divide, norm, mix) == divide

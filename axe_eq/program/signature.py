"""Signatures of block operators: index space, operand projections, reduction.

A block operator computes ``out[i] = reduce_r cell(arg_0[P_0(i, r)], arg_1[P_1(i, r)], ...)``: every
operand is read through an affine projection of the index space, which covers permutation,
broadcast, contraction, strided windows (convolution) and reduction in one form (Tapestry, index
projections; Axe sec. 3).

Text: ``a c, c b -> a b; + c`` is a matrix product. Index dims are letters; output dims come first,
in order, then reduced dims in the order operands meet them, so equal signatures have equal texts. A
projection of one operand dim is a sum such as ``2b+d`` or a constant; ``[b=5]`` fixes the extent of
a dim no operand determines. Signatures hold no extents otherwise: those come from the operands'
shapes. An operand without dims is empty text, so ``-> a b [a=2 b=3]`` broadcasts one scalar; every
operator has at least one operand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from axe_eq.errors import ProgramError

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Affine:
    """One operand dim: the sum of coefficient x index dim, plus an offset."""

    terms: tuple[tuple[int, int], ...]  # (index dim, coefficient), by dim, no zero coefficients
    offset: int = 0

    @staticmethod
    def of(coefficients: Mapping[int, int], offset: int = 0) -> Affine:
        """Build from a dict, dropping zero coefficients."""
        return Affine(tuple(sorted((d, c) for d, c in coefficients.items() if c)), offset)

    @property
    def plain(self) -> int | None:
        """The index dim, if this is just that dim; else None."""
        if self.offset == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0]
        return None

    def substitute(self, images: Mapping[int, Affine]) -> Affine:
        """Replace every index dim by an affine expression."""
        if self.plain is not None:
            return images[self.plain]
        total: dict[int, int] = {}
        offset = self.offset
        for dim, coefficient in self.terms:
            image = images[dim]
            offset += coefficient * image.offset
            for d, c in image.terms:
                total[d] = total.get(d, 0) + coefficient * c
        return Affine.of(total, offset)

    def text(self, names: Sequence[str]) -> str:
        """Print with the given dim names."""
        parts = [("" if c == 1 else "-" if c == -1 else str(c)) + names[d] for d, c in self.terms]
        if self.offset or not parts:
            parts.append(str(self.offset))
        return "+".join(parts).replace("+-", "-")


@cache
def plain(dim: int) -> Affine:
    """The projection onto one index dim."""
    return Affine(((dim, 1),))


@dataclass(frozen=True)
class Signature:
    """A canonical signature; build through `signature` or `make`, which canonicalise.

    Attributes:
        operands: per operand, per operand dim, its projection.
        n_out: number of output dims (index dims 0 .. n_out-1, in order).
        monoid: name of the reduction ("" where nothing is reduced).
        n_reduced: number of reduced dims (index dims n_out .. n_out+n_reduced-1).
        fixed: extents of the dims no operand determines, (dim, extent).
    """

    operands: tuple[tuple[Affine, ...], ...]
    n_out: int
    monoid: str = ""
    n_reduced: int = 0
    fixed: tuple[tuple[int, int], ...] = ()

    @property
    def n_dims(self) -> int:
        """Rank of the index space."""
        return self.n_out + self.n_reduced

    @cached_property
    def text(self) -> str:
        """The canonical text."""
        left = ", ".join(" ".join(p.text(LETTERS) for p in op) for op in self.operands)
        out = " ".join(LETTERS[: self.n_out])
        text = f"{left.strip()} -> {out}".strip()
        if self.n_reduced:
            text += f"; {self.monoid} {' '.join(LETTERS[self.n_out : self.n_dims])}"
        if self.fixed:
            text += " [" + " ".join(f"{LETTERS[d]}={e}" for d, e in self.fixed) + "]"
        return text

    def __str__(self) -> str:
        return self.text

    @property
    def reduced(self) -> range:
        """The reduced index dims."""
        return range(self.n_out, self.n_dims)

    def extents(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Extents of all index dims, given the operands' shapes.

        Raises:
            ProgramError: ranks or extents do not fit; names the operand, its dim and both extents.
        """
        found = dict(self.fixed)
        self._check_ranks(shapes)
        self._plain_extents(shapes, found)
        self._window_extents(shapes, found)
        if len(found) < self.n_dims:
            open_dims = [LETTERS[d] for d in range(self.n_dims) if d not in found]
            raise ProgramError(
                f"op '{self}'",
                f"no operand determines dim {' '.join(open_dims)}",
                f"an extent in brackets, [{open_dims[0]}=...]",
            )
        return tuple(found[d] for d in range(self.n_dims))

    def _check_ranks(self, shapes: Sequence[tuple[int, ...]]) -> None:
        if len(shapes) != len(self.operands):
            raise ProgramError(
                f"op '{self}'", f"got {len(shapes)} operands", f"{len(self.operands)} operands"
            )
        for n, (op, shape) in enumerate(zip(self.operands, shapes, strict=True)):
            if len(op) != len(shape):
                raise ProgramError(
                    f"op '{self}'", f"operand {n} has shape {shape}", f"{len(op)} dims"
                )

    def _plain_extents(self, shapes: Sequence[tuple[int, ...]], found: dict[int, int]) -> None:
        for n, (op, shape) in enumerate(zip(self.operands, shapes, strict=True)):
            for axis, (projection, extent) in enumerate(zip(op, shape, strict=True)):
                dim = projection.plain
                if dim is None:
                    continue
                if found.setdefault(dim, extent) != extent:
                    raise ProgramError(
                        f"op '{self}'",
                        f"dim {axis} of operand {n} has extent {extent}, "
                        f"but dim {LETTERS[dim]} is {found[dim]}",
                        "equal extents",
                    )

    def _window_extents(self, shapes: Sequence[tuple[int, ...]], found: dict[int, int]) -> None:
        windows = [
            (n, axis, projection, extent)
            for n, (op, shape) in enumerate(zip(self.operands, shapes, strict=True))
            for axis, (projection, extent) in enumerate(zip(op, shape, strict=True))
            if projection.plain is None
        ]
        # A window with one open dim determines it; that may leave another window with one.
        progress = True
        while progress:
            progress = any(self._solve(w[2], w[3], found) for w in windows)
        for n, axis, projection, extent in windows:
            self._check_window(projection, extent, found, n, axis)

    @staticmethod
    def _solve(projection: Affine, extent: int, found: dict[int, int]) -> bool:
        """Find the one open dim of a window; False where there is not exactly one."""
        unknown = [(d, c) for d, c in projection.terms if d not in found]
        if len(unknown) != 1 or unknown[0][1] < 0:
            return False
        room = extent - 1 - projection.offset
        room -= sum(c * (found[d] - 1) for d, c in projection.terms if d in found and c > 0)
        dim, step = unknown[0]
        found[dim] = max(room // step + 1, 1)
        return True

    def _check_window(
        self, projection: Affine, extent: int, found: dict[int, int], operand: int, axis: int
    ) -> None:
        steps = [c * (found[d] - 1) for d, c in projection.terms if d in found]
        low = projection.offset + sum(s for s in steps if s < 0)
        high = projection.offset + sum(s for s in steps if s > 0)
        if low < 0 or high >= extent:
            raise ProgramError(
                f"op '{self}'",
                f"window {projection.text(LETTERS)} does not fit dim {axis} of operand {operand}, "
                f"extent {extent}: it reads {low}..{high}",
                "a window inside the operand",
            )

    def out_shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Shape of the output, given the operands' shapes."""
        return self.extents(shapes)[: self.n_out]


def make(
    operands: Iterable[Iterable[Affine]],
    out: Sequence[int],
    monoid: str = "",
    reduced: Iterable[int] = (),
    fixed: Mapping[int, int] | None = None,
) -> Signature:
    """Canonicalise: output dims first, then reduced dims as the operands meet them."""
    ops = tuple(tuple(op) for op in operands)
    wanted = set(reduced)
    order = list(out)
    seen = set(order)
    for op in ops:
        for projection in op:
            for d, _ in projection.terms:
                if d in wanted and d not in seen:
                    seen.add(d)
                    order.append(d)
    order += sorted(wanted - seen)
    if len(order) > len(LETTERS):
        raise ProgramError("signature", f"has {len(order)} dims", f"at most {len(LETTERS)}")
    new = {d: i for i, d in enumerate(order)}
    images = {d: plain(i) for d, i in new.items()}
    determined = {p.plain for op in ops for p in op} - {None}
    kept = tuple(sorted((new[d], e) for d, e in (fixed or {}).items() if d not in determined))
    n_reduced = len(order) - len(out)
    return Signature(
        tuple(tuple(p.substitute(images) for p in op) for op in ops),
        len(out),
        monoid if n_reduced else "",
        n_reduced,
        kept,
    )


_TERM = re.compile(r"([+-]?)(\d*)([A-Za-z]?)")
_AFFINE = re.compile(r"[+-]?(\d+[A-Za-z]?|[A-Za-z])([+-](\d+[A-Za-z]?|[A-Za-z]))*")
_FORM = "'a c, c b -> a b; + c [b=2]'"


def _parse_affine(text: str, number: Mapping[str, int]) -> Affine:
    total: dict[int, int] = {}
    offset = 0
    for sign, digits, letter in _TERM.findall(text):
        if not (digits or letter):
            continue
        value = (-1 if sign == "-" else 1) * (int(digits) if digits else 1)
        if letter:
            total[number[letter]] = total.get(number[letter], 0) + value
        else:
            offset += value
    return Affine.of(total, offset)


def _parse_fixed(text: str, tail: str) -> dict[str, int]:
    pairs = [pair.partition("=") for pair in tail.rstrip().removesuffix("]").split()]
    if not all(len(d) == 1 and d in LETTERS and e.isdecimal() and int(e) for d, _, e in pairs):
        raise ProgramError(f"signature {text!r}", f"has extents [{tail}", "extents such as [b=5]")
    return {d: int(e) for d, _, e in pairs}


def _check_text(text: str, operands: list[list[str]], out: list[str], reduced: list[str]) -> None:
    """Refuse projections that do not parse, and dims that are named wrongly or not exactly once."""
    bad = [p for op in operands for p in op if not _AFFINE.fullmatch(p)]
    bad += [d for d in out + reduced if len(d) != 1 or d not in LETTERS]
    if bad:
        raise ProgramError(f"signature {text!r}", f"cannot read {bad[0]!r}", f"the form {_FORM}")
    placed = out + reduced
    wrong = [d for d in placed if placed.count(d) > 1]
    wrong += [c for op in operands for p in op for c in p if c.isalpha() and c not in placed]
    if wrong:
        raise ProgramError(
            f"signature {text!r}",
            f"dim {wrong[0]} is neither output nor reduced, or repeated",
            "every dim once, in the output or in the reduction",
        )


@cache
def signature(text: str) -> Signature:
    """Parse a signature text, canonical or not (letters may be any, spaces between dims).

    Raises:
        ProgramError: the text is not ``operands -> out; monoid dims [dim=extent]``.
    """
    head, bracket, tail = text.partition("[")
    body, semicolon, reduction = head.partition(";")
    left, arrow, right = body.partition("->")
    if not arrow:
        raise ProgramError(f"signature {text!r}", "has no '->'", f"the form {_FORM}")
    monoid, *reduced = reduction.split() or [""]
    if semicolon and not reduced:
        raise ProgramError(f"signature {text!r}", "reduces no dim after ';'", f"the form {_FORM}")
    out = right.split()
    operands = [part.split() for part in left.split(",")]
    _check_text(text, operands, out, reduced)
    fixed = _parse_fixed(text, tail) if bracket else {}
    number = {name: i for i, name in enumerate(out + reduced)}
    if unknown := [d for d in fixed if d not in number]:
        raise ProgramError(
            f"signature {text!r}", f"fixes dim {unknown[0]}, which it does not have", "a dim of it"
        )
    return make(
        [[_parse_affine(p, number) for p in op] for op in operands],
        [number[c] for c in out],
        monoid,
        [number[c] for c in reduced],
        {number[c]: e for c, e in fixed.items()},
    )

"""Signature algebra against brute force: every result means what its definition says."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod

import numpy as np
import pytest

from axe_eq.errors import ProgramError
from axe_eq.program import sigalg
from axe_eq.program.signature import Affine, Signature, make, plain, signature
from axe_eq.rule.term import Undefined

Arrays = Sequence[np.ndarray]
MAX_POINTS = 4000


def value(sig: Signature, arrays: Arrays, *, terms: bool = False) -> np.ndarray:
    """Sum of products by enumeration of the index space."""
    extents = sig.extents([a.shape for a in arrays])
    if prod(extents) > MAX_POINTS:
        pytest.fail("index space too large for enumeration")
    result = np.zeros(extents[: sig.n_out], dtype=object)
    for point in itertools.product(*map(range, extents)):
        total = 1
        for op, array in zip(sig.operands, arrays, strict=True):
            at = tuple(p.offset + sum(c * point[d] for d, c in p.terms) for p in op)
            assert all(0 <= i < e for i, e in zip(at, array.shape, strict=True))
            total *= int(array[at])
        result[point[: sig.n_out]] += total
    return result


def random_signature(
    rng: random.Random, *, n_out: int | None = None, reduces: bool = True
) -> Signature:
    """A signature with windows, fixed dims, repeated and missing dims."""
    out = rng.randint(0, 3) if n_out is None else n_out
    dims = out + (rng.randint(0, 2) if reduces else 0)

    def affine() -> Affine:
        kind = rng.random()
        if not dims or kind < 0.08:
            return Affine((), rng.randint(0, 1))
        if kind < 0.75:
            return plain(rng.randrange(dims))
        chosen = rng.sample(range(dims), min(dims, rng.choice((1, 2, 2))))
        step = {d: rng.choice((1, 1, 2, -1)) for d in chosen}
        return Affine.of(step, rng.choice((0, 0, 1, 2)))

    operands = [[affine() for _ in range(rng.randint(0, 3))] for _ in range(rng.randint(1, 3))]
    sig = make(operands, range(out), "+", range(out, dims))
    known = sigalg.plain_dims(sig)
    read = {d for op in sig.operands for d in sigalg.dims_of(op)}
    fixed = {
        d: rng.randint(1, 3)
        for d in range(sig.n_dims)
        if d not in known and (d not in read or rng.random() < 0.3)
    }
    return sigalg.rebuild(sig, fixed=fixed)


def shapes_for(
    rng: random.Random, sig: Signature, given: dict[int, tuple[int, ...]] | None = None
) -> list[tuple[int, ...]] | None:
    """Operand shapes that fit, some with slack beyond their windows; `given` ones are kept."""
    fixed = dict(sig.fixed)
    extents = [fixed.get(d, rng.randint(1, 3)) for d in range(sig.n_dims)]
    for n, shape in (given or {}).items():
        for p, e in zip(sig.operands[n], shape, strict=True):
            if p.plain is not None:
                extents[p.plain] = e
    shapes = []
    for n, op in enumerate(sig.operands):
        tops = [p.offset + sum(max(c, 0) * (extents[d] - 1) for d, c in p.terms) for p in op]
        slack = [0 if p.plain is not None else rng.choice((0, 0, 1, 2)) for p in op]
        shapes.append(
            (given or {}).get(n) or tuple(t + 1 + s for t, s in zip(tops, slack, strict=True))
        )
    try:
        found = sig.extents(shapes)
    except ProgramError:
        return None
    return shapes if prod(found) <= MAX_POINTS else None


def arrays_for(rng: random.Random, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    return [
        np.array([rng.randint(-3, 3) for _ in range(prod(s))], dtype=object).reshape(s)
        for s in shapes
    ]


def campaign(full: bool, wanted: int, attempt: Callable[[random.Random], bool]) -> None:
    """Repeat until `wanted` attempts were real tests; too few usable ones fail."""
    rng, done = random.Random(7), 0
    for _ in range(wanted * (2000 if full else 400)):
        with suppress(Undefined):
            done += attempt(rng)
        if done >= wanted * (20 if full else 1):
            return
    pytest.fail(f"only {done} usable samples")


def test_inline_means_composition(full: bool) -> None:
    def attempt(rng: random.Random) -> bool:
        outer = random_signature(rng)
        position = rng.randrange(len(outer.operands))
        inner = random_signature(rng, n_out=len(outer.operands[position]))
        result = sigalg.inline(outer, position, inner)
        inner_shapes = shapes_for(rng, inner)
        if inner_shapes is None:
            return False
        shapes = shapes_for(rng, outer, {position: inner.out_shape(inner_shapes)})
        if shapes is None:
            return False
        arrays, inner_arrays = arrays_for(rng, shapes), arrays_for(rng, inner_shapes)
        inlined = [*arrays[:position], *inner_arrays, *arrays[position + 1 :]]
        arrays[position] = value(inner, inner_arrays)
        assert np.array_equal(value(result, inlined), value(outer, arrays)), (
            outer,
            position,
            inner,
        )
        return True

    campaign(full, 150, attempt)


def test_outline_is_the_inverse_of_inline(full: bool) -> None:
    def attempt(rng: random.Random) -> bool:
        sig = random_signature(rng)
        group = rng.sample(range(len(sig.operands)), rng.randint(1, len(sig.operands)))
        found = sigalg.outline(sig, group, reduce=rng.random() < 0.7)
        shapes = shapes_for(rng, sig)
        if shapes is None:
            return False
        outer, inner = found
        arrays = arrays_for(rng, shapes)
        place = min(group) - sum(1 for n in group if n < min(group))
        outside = [a for n, a in enumerate(arrays) if n not in group]
        outside.insert(place, value(inner, [arrays[n] for n in group]))
        assert np.array_equal(value(outer, outside), value(sig, arrays)), (sig, group)
        return True

    campaign(full, 150, attempt)


def test_reordering_operands_keeps_the_product(full: bool) -> None:
    def attempt(rng: random.Random) -> bool:
        sig = random_signature(rng)
        order = rng.sample(range(len(sig.operands)), len(sig.operands))
        result, shapes = sigalg.reorder(sig, order), shapes_for(rng, sig)
        if shapes is None or len(order) < 2:
            return False
        arrays = arrays_for(rng, shapes)
        assert np.array_equal(value(result, [arrays[n] for n in order]), value(sig, arrays))
        return True

    campaign(full, 100, attempt)


def test_sorted_operands_do_not_depend_on_their_first_order(full: bool) -> None:
    def attempt(rng: random.Random) -> bool:
        sig = random_signature(rng)
        keys = [rng.randint(0, 1) for _ in sig.operands]
        found, shapes = sigalg.sort_operands(sig, keys), shapes_for(rng, sig)
        if found is None or shapes is None or len(keys) < 2:
            return False
        assert [keys[n] for n in found[0]] == sorted(keys)
        arrays = arrays_for(rng, shapes)
        assert np.array_equal(value(found[1], [arrays[n] for n in found[0]]), value(sig, arrays))
        for order in itertools.permutations(range(len(keys))):
            shuffled = sigalg.reorder(sig, order)
            again = sigalg.sort_operands(shuffled, [keys[n] for n in order])
            assert again is not None
            assert again[1] == found[1]
        return True

    campaign(full, 60, attempt)


def test_without_operand_keeps_extents(full: bool) -> None:
    def attempt(rng: random.Random) -> bool:
        sig = random_signature(rng)
        position = rng.randrange(len(sig.operands))
        result, shapes = sigalg.without_operand(sig, position), shapes_for(rng, sig)
        if shapes is None:
            return False
        arrays = arrays_for(rng, shapes)
        arrays[position] = np.ones(shapes[position], dtype=int)
        rest = [a for n, a in enumerate(arrays) if n != position]
        assert np.array_equal(value(result, rest), value(sig, arrays))
        return True

    campaign(full, 60, attempt)


@pytest.mark.parametrize(
    ("outer", "position", "inner", "text"),
    [
        ("a c, c b -> a b; + c", 0, "a b -> b a", "c a, c b -> a b; + c"),
        ("a c, c b -> a b; + c", 1, "a c, c b -> a b; + c", "a c, c d, d b -> a b; + c d"),
        ("a b, b -> a b", 1, "-> a [a=4]", "a b, -> a b"),
        ("a -> a b [b=3]", 0, "a b -> a; + b", "a c -> a b; + c [b=3]"),
        ("2a+b, b -> a; + b", 0, "a -> a", "2a+b, b -> a; + b"),
    ],
)
def test_inline_examples(outer: str, position: int, inner: str, text: str) -> None:
    found = sigalg.inline(signature(outer), position, signature(inner))
    assert found == signature(text)


@pytest.mark.parametrize(
    ("outer", "position", "inner"),
    [
        ("a b -> a; + b", 0, "a c, b c -> a b; max c"),  # two different reductions
        ("a -> a", 0, "a b -> a b"),  # ranks differ
        ("2a, -> a; + b [b=2]", 0, "a+b, a -> a; + b"),  # the window of b would seem wider
        ("a+1 -> a", 0, "-> a [a=5]"),  # nobody would determine a
        ("a+1, a+2 -> a", 0, "a -> a"),  # the window of the first operand alone determines a
        ("2a -> a", 0, "a+2 -> a [a=3]"),  # what is read ends before its operand does
    ],
)
def test_inline_refuses(outer: str, position: int, inner: str) -> None:
    with pytest.raises(Undefined):
        sigalg.inline(signature(outer), position, signature(inner))


def test_transpositions() -> None:
    for perm in itertools.permutations(range(4)):
        sig = sigalg.transpose(perm)
        assert sigalg.transposition(sig) == perm
        array = np.arange(2 * 3 * 1 * 2).reshape(2, 3, 1, 2)
        assert np.array_equal(value(sig, [array]), array.transpose(perm))
    assert sigalg.is_identity(signature("a b -> a b"))
    assert not sigalg.is_identity(signature("b a -> a b"))
    assert sigalg.transposition(signature("a a -> a")) is None
    assert sigalg.transposition(signature("a -> a b [b=1]")) is None
    assert sigalg.elementwise(1, 2) == signature("a, a -> a")

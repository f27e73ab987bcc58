"""Signatures: canonical text, extents, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from axe_eq.errors import ProgramError
from axe_eq.program.signature import make, plain, signature


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("m k, k n -> m n; + k", "a c, c b -> a b; + c"),
        ("i j -> j i", "b a -> a b"),
        ("x -> x y[y=3]", "a -> a b [b=3]"),
        ("x, -> x", "a, -> a"),
        (", x -> x", ", a -> a"),
        ("->", "->"),
        ("-> p q [q=2 p=1]", "-> a b [a=1 b=2]"),
        (
            "n c 2h+r w+3s, o c r s -> n o h w; + c r s",
            "a e 2c+f d+3g, b e f g -> a b c d; + e f g",
        ),
        ("i i -> i", "a a -> a"),
        ("0 b, 2 -> b", "0 a, 2 -> a"),
        ("-i+4 -> i [i=5]", "-a+4 -> a [a=5]"),
        ("x y -> ; max y x", "a b ->; max a b"),
        ("x -> x; + y [y=4]", "a -> a; + b [b=4]"),
        ("x -> x [x=3]", "a -> a"),
    ],
)
def test_texts_become_canonical(given: str, canonical: str) -> None:
    assert signature(given).text == canonical
    assert signature(canonical).text == canonical


@pytest.mark.parametrize(
    ("text", "shapes", "extents"),
    [
        ("a c, c b -> a b; + c", [(2, 3), (3, 5)], (2, 5, 3)),
        ("2a+b -> a; + b [b=3]", [(9,)], (4, 3)),
        ("a+b, b -> a; + b", [(9,), (4,)], (6, 4)),
        ("2a+3b, b -> a; max b", [(9,), (2,)], (3, 2)),
        ("-a+4 -> a [a=5]", [(5,)], (5,)),
        ("0 a -> a", [(7, 2)], (2,)),
        ("a+b, b+c, c -> a b c", [(9,), (5,), (2,)], (6, 4, 2)),
    ],
)
def test_extents_follow_from_shapes(text: str, shapes: Any, extents: Any) -> None:
    assert signature(text).extents(shapes) == extents


REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: signature("a b"),
        "signature 'a b': has no '->'; expected the form 'a c, c b -> a b; + c [b=2]'",
    ),
    (
        lambda: signature("a b -> a"),
        "signature 'a b -> a': dim b is neither output nor reduced, or repeated; "
        "expected every dim once, in the output or in the reduction",
    ),
    (
        lambda: signature("a -> a a"),
        "signature 'a -> a a': dim a is neither output nor reduced, or repeated; "
        "expected every dim once, in the output or in the reduction",
    ),
    (
        lambda: signature("a_ -> a"),
        "signature 'a_ -> a': cannot read 'a_'; expected the form 'a c, c b -> a b; + c [b=2]'",
    ),
    (
        lambda: signature("a -> a b [b=x]"),
        "signature 'a -> a b [b=x]': has extents [b=x]; expected extents such as [b=5]",
    ),
    (
        lambda: signature("a -> a [b=2]"),
        "signature 'a -> a [b=2]': fixes dim b, which it does not have; expected a dim of it",
    ),
    (
        lambda: signature("a -> a; +"),
        "signature 'a -> a; +': reduces no dim after ';'; "
        "expected the form 'a c, c b -> a b; + c [b=2]'",
    ),
    (
        lambda: signature("a c, c b -> a b; + c").extents([(2, 3), (4, 5)]),
        "op 'a c, c b -> a b; + c': dim 0 of operand 1 has extent 4, but dim c is 3; "
        "expected equal extents",
    ),
    (
        lambda: signature("a -> a").extents([(2, 3)]),
        "op 'a -> a': operand 0 has shape (2, 3); expected 1 dims",
    ),
    (
        lambda: signature("a -> a").extents([(2,), (2,)]),
        "op 'a -> a': got 2 operands; expected 1 operands",
    ),
    (
        lambda: signature("a -> a b").extents([(2,)]),
        "op 'a -> a b': no operand determines dim b; expected an extent in brackets, [b=...]",
    ),
    (
        lambda: signature("a+b -> a b").extents([(2,)]),
        "op 'a+b -> a b': no operand determines dim a b; expected an extent in brackets, [a=...]",
    ),
    (
        lambda: signature("a+b, b -> a; + b").extents([(2,), (5,)]),
        "op 'a+b, b -> a; + b': window a+b does not fit dim 0 of operand 0, extent 2: "
        "it reads 0..4; expected a window inside the operand",
    ),
    (
        lambda: signature("-a+2 -> a [a=5]").extents([(5,)]),
        "op '-a+2 -> a [a=5]': window -a+2 does not fit dim 0 of operand 0, extent 5: "
        "it reads -2..2; expected a window inside the operand",
    ),
    (
        lambda: make([[plain(d) for d in range(53)]], range(53)),
        "signature: has 53 dims; expected at most 52",
    ),
]


@pytest.mark.parametrize(
    ("call", "text"), REFUSED, ids=lambda v: None if callable(v) else str(v)[:40]
)
def test_refusals_say_what_is_wrong(call: Callable[[], object], text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        call()
    assert str(caught.value) == text

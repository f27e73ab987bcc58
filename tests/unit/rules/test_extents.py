"""One signature of an operator at its extents."""

from __future__ import annotations

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq import nn
from axe_eq.program.meaning import evaluate_op
from axe_eq.program.signature import signature
from axe_eq.prove.certificates.verdict import Proved
from axe_eq_rules.extents import least

ALIKE: dict[str, tuple[tuple[int, ...], ...]] = {
    # texts of one meaning at some shapes, the one that is kept first
    "a 2b+c -> a b; max c [c=2] | a 2b+c -> a b; max c [b=3 c=2]": ((2, 6),),
    "0 b -> a b [a=1] | a b -> a b": ((1, 3),),
    "0 b -> b | a b -> b; max a": ((1, 3),),
    "0 b -> b; + c [c=1] | a b -> b; + a": ((1, 3),),
    "0 0 -> a b [a=1 b=1] | a b -> a b | a 0 -> a b [b=1]": ((1, 1),),
    "a c, 0 b -> a b c | a c, d b -> a b c; min d": ((2, 3), (1, 4)),
    "2a -> a | 2a+b -> a; max b [a=2 b=1]": ((4,),),
}


@pytest.mark.parametrize("texts", ALIKE)
def test_signatures_that_read_alike_have_one_text(texts: str) -> None:
    kept, *others = (signature(text) for text in texts.split(" | "))
    shapes = list(ALIKE[texts])
    assert least(kept, shapes) == kept
    arrays = [np.arange(np.prod(s), dtype=np.float32).reshape(s) for s in shapes]
    cell = "id" if len(arrays) == 1 else "mul"
    for other in others:
        assert least(other, shapes) == kept
        a, b = (evaluate_op(s.text, cell, arrays) for s in (kept, other))
        assert np.array_equal(a, b)


def test_windows_that_read_a_part_keep_their_extents() -> None:
    for text, shape in (("a+c -> a; max c [a=2 c=2]", (5,)), ("a+b -> a; max b [a=1 b=2]", (3,))):
        assert least(signature(text), [shape]).extents([shape]) == signature(text).extents([shape])


def test_pooling_is_the_maximum_of_a_reshape() -> None:
    found = axe.equivalent(
        lambda x: nn.max_pool2d(x, 2),
        lambda x: xp.max(xp.reshape(x, (2, 2, 4, 2, 4, 2)), axis=(3, 5)), "2x2x8x8:f32",
    )  # fmt: skip
    assert isinstance(found, Proved)
    assert {"tensor/least_extents", "sharding/digit_form"} & set(found.laws)  # either does it
    assert axe.check_certificate(found.certificate)


def test_a_batch_of_one_is_no_batch() -> None:
    found = axe.equivalent(
        lambda x: xp.reshape(xp.max(xp.reshape(x, (4, 8)), axis=-1), (1, 4)),
        lambda x: xp.max(x, axis=-1), "1x4x8:f32", numerics="exact",
    )  # fmt: skip
    assert isinstance(found, Proved)
    assert axe.check_certificate(found.certificate)

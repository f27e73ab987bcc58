"""Specs: texts, dims, layouts, refusals."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from axe_eq.errors import AxeError, ProgramError
from axe_eq.layout import Layout
from axe_eq.layout.notation import read
from axe_eq.program.spec import Spec, as_spec, dim, parse_spec
from axe_eq.program.types import DTYPES


@pytest.mark.parametrize(
    ("text", "type_", "dims"),
    [
        ("8192x4096:f16", "f16[8192,4096]", ()),
        ("5:bfloat16", "bf16[5]", ()),
        (":f32", "f32[]", ()),
        ("f32[3,4]", "f32[3,4]", ()),
        ("bfloat16[5]", "bf16[5]", ()),
        (" f32[] ", "f32[]", ()),
        ("tokens=8x4096:f16", "f16[8,4096]", ("tokens", "")),
        ("tokens=8xhidden=16:i64", "i64[8,16]", ("tokens", "hidden")),
        ("x2x=4xy=3:f64", "f64[4,3]", ("x2x", "y")),
    ],
)
def test_texts(text: str, type_: str, dims: tuple[str, ...]) -> None:
    spec = parse_spec(text)
    assert str(spec.type) == type_
    assert spec.dims == dims


def test_texts_with_layouts() -> None:
    plain = parse_spec("4x8:f16@S[(4,8):(1,4)]")
    assert plain.layout == Layout.parse("S[(4,8):(1,4)]")
    named = parse_spec("4x8:f16 @ S[(4,8):(8@m,1@m)] + R[2:1@gpuid]".replace(" @ ", "@"))
    assert named.layout is not None
    assert Spec((4, 8), "f16", layout=Layout.parse("S[(4,8):(1,4)]")) == plain
    assert parse_spec("64x64:f16@cute:(64,64):(64,1)").layout is not None
    assert parse_spec("f16[4,8]@S[(4,8):(1,4)]") == plain


@pytest.mark.parametrize(
    "text",
    [
        "f16[3,4",
        "f16[3,]",
        "f16[-3]",
        "f16[3]:f16",
        "[3,4]",
        "a=f16[3]",
        "f16[3x4]",
        "",
        "8",
        "8x:f16",
        "x8:f16",
        "8x4",
        "8*4:f16",
        "8x4:",
        "-8:f16",
        "a=:f16",
        "8xx4:f16",
    ],
)
def test_texts_that_do_not_parse(text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse_spec(text)
    assert str(caught.value) == (
        f"spec {text!r}: does not parse; expected the form '8192x4096:f16', "
        "with names 'tokens=8192x4096:f16', with a layout '...:f16@m-text', of a scalar ':f16'"
    )


def test_an_extent_of_thousands_of_digits_is_too_large() -> None:
    """Python refuses to read it as a number."""
    with pytest.raises(ProgramError, match="has an extent of 5000 digits; expected at most"):
        parse_spec(f"4x{'9' * 5000}:f32")


def test_dims_are_integers_with_a_name() -> None:
    n = dim("n", divisible=24)
    assert (n, n.name, n.divisible) == (4080, "n", 24)
    assert type(n + 1) is int
    assert dim("n", divisible=10_000) == 10_000
    assert dim("n", divisible=8, example=64) == 64
    again = pickle.loads(pickle.dumps(n))
    assert (again, again.name, again.divisible) == (n, "n", 24)
    spec = Spec((n, 64), "f16")
    assert (spec.dims, spec.divisible) == (("n", ""), (24, 1))
    assert spec.shape[0] is n
    assert type(spec.type.shape[0]) is int


def test_specs_bind_their_dims() -> None:
    spec = Spec((dim("n", 8), 4), "f16", dims=("n", "hidden"))
    assert spec.bound({"n": 16}).type.shape == (16, 4)
    assert spec.bound({"n": 16}).divisible == (8, 1)
    assert spec.bound({"hidden": 2}).type.shape == (4096, 2)
    laid_out = Spec((2, 4), "f16", dims=("n", ""), layout="S[(2,4):(1,2)]")
    assert laid_out.bound({"n": 2}).layout == laid_out.layout
    assert laid_out.bound({"n": 4}).layout is None


class Foreign:
    """An array of a library whose dtypes print with its name."""

    shape = (2, 3)
    dtype = "torch.bfloat16"


def test_arrays_stand_for_their_specs() -> None:
    assert as_spec(np.ones((2, 3), np.float16)) == Spec((2, 3), "f16")
    assert as_spec(np.float32(2)) == Spec((), "f32")
    assert as_spec(np.ones(2, ml_dtypes.bfloat16)) == Spec((2,), "bf16")
    assert as_spec(Foreign()) == Spec((2, 3), "bf16")
    assert as_spec("2x3:f16") == Spec((2, 3), "f16")
    assert Spec(5, "f32").shape == (5,)  # type: ignore[arg-type]


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Spec((2, 0), "f16"), "shape (2, 0): has extent 0; expected integers of at least 1"),
    (lambda: Spec((2.5,), "f16"), "shape (2.5,): has extent 2.5; expected integers of at least 1"),  # type: ignore[arg-type]
    (lambda: Spec((2,), "f17"), "dtype 'f17': is not known; expected one of " + " ".join(DTYPES)),
    (lambda: Spec((2, 3), "f16", dims=("a",)), "dims ('a',): names 1 dims; expected 2 names"),
    (
        lambda: Spec((dim("n"),), "f16", dims=("m",)),
        "dims ('m',): calls dim 'n' 'm'; expected one name",
    ),
    (
        lambda: Spec((2, 3), "f16", layout=Layout([(5, 1, "m")])),
        "layout S[(5):(1@m)]: has size 5; expected 6, of (2, 3)",
    ),
    (
        lambda: Spec((2, 3), "f16", layout=read("axe", "S[(6):(1@m)]", shape=(3, 2))),
        "layout S[(6):(1@m)]: was read for (3, 2); expected (2, 3)",
    ),
    (lambda: dim("2n"), "dim '2n': is not a name; expected a name such as 'tokens'"),
    (lambda: dim("n", 0), "dim 'n': divisible is 0; expected at least 1"),
    (
        lambda: dim("n", 8, 12),
        "dim 'n': extent 12 is not a positive multiple of 8; expected a multiple of 8",
    ),
    (
        lambda: Spec((dim("n", 8),), "f16").bound({"n": 12}),
        "dim 'n': extent 12 is not a positive multiple of 8; expected a multiple of 8",
    ),
    (
        lambda: as_spec(3),
        "argument 3: is of type int; expected a Spec, a spec text such as '8192x4096:f16', "
        "or an array\n  try: bind constants with functools.partial",
    ),
    (lambda: as_spec(np.ones(2, complex)), "dtype dtype('complex128'): is not known; "
     "expected one of " + " ".join(DTYPES)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "text"), REFUSED, ids=lambda v: None if callable(v) else str(v)[:40]
)
def test_refusals_say_what_is_wrong(call: Callable[[], object], text: str) -> None:
    with pytest.raises(AxeError) as caught:
        call()
    assert str(caught.value) == text

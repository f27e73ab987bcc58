"""Attributes that traced arrays do not have: one error, which names what there is instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import axe_eq as axe
from axe_eq.errors import ProgramError
from axe_eq.program.trace import Traced, trace

xp: Any = axe.array  # whose signatures type checkers know


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("reshape", "axe_eq.array.reshape(x, ...)"),
        ("reshap", "axe_eq.array.reshape(x, ...)"),
        ("transpose", "axe_eq.array.permute_dims(x, ...)"),
        ("cumsum", "axe_eq.array.cumulative_sum(x, ...)"),
        ("softmax", "axe_eq.nn.softmax(x, ...)"),
        ("shpae", "x.shape"),
        ("requires_grad", ""),
        ("__cuda_array_interface__", ""),
    ],
)
def test_an_attribute_that_arrays_lack_is_one_error_that_names_the_nearest(
    name: str, instead: str
) -> None:
    with pytest.raises(AttributeError) as caught:
        trace(lambda x: getattr(x, name), "3:f16")
    error = caught.value
    assert isinstance(error, ProgramError)
    assert error.wrong == f"has no attribute {name!r}"
    assert error.hint == instead
    assert "test_attributes.py" in error.at
    assert str(error).startswith(
        f"traced array: has no attribute {name!r}; expected one of T device dtype mT ndim shape "
    )


def test_attributes_can_be_asked_for() -> None:
    seen = []

    def fn(x: Any) -> Any:
        seen.extend([hasattr(x, "T"), hasattr(x, "foo"), getattr(x, "foo", 7)])
        return x

    trace(fn, "3x4:f16")
    assert seen == [True, False, 7]
    public = {name for name in dir(Traced) if not name.startswith("_")} - {"node", "tracing"}
    assert all(name in str(_error_of_foo()) for name in public)


def _error_of_foo() -> Exception:
    with pytest.raises(AttributeError) as caught:
        trace(lambda x: x.foo, "3:f16")
    return caught.value


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("softmax", "axe_eq.nn.softmax(x, ...)"),
        ("tak", "axe_eq.array.take(x, ...)"),
        ("foo", ""),
    ],
)
def test_a_function_that_the_namespace_lacks_is_such_an_error_too(name: str, instead: str) -> None:
    with pytest.raises(AttributeError) as caught:
        trace(lambda x: getattr(x.__array_namespace__(), name)(x), "3:f16")
    error = caught.value
    assert isinstance(error, ProgramError)
    assert (error.wrong, error.hint) == (f"has no attribute {name!r}", instead)
    assert "test_attributes.py" in error.at


@pytest.mark.parametrize(
    ("call", "wrong", "expected"),
    [
        (lambda x: xp.sum(x, dim=-1), "unexpected keyword argument 'dim'", "sum(x, /, *, axis="),
        (lambda x: xp.concat([x, x], dim=0), "argument 'dim'", "concat(arrays, /, *, axis=0)"),
        (lambda x: xp.abs(x, out=x), "unexpected keyword argument 'out'", "abs(x, /)"),
        (lambda x: xp.sum(x, -1), "too many positional arguments", "sum(x, /, *, axis="),
        (lambda x: xp.reshape(x), "missing a required argument: 'shape'", "reshape(x, /, shape"),
    ],
)
def test_a_call_that_fits_no_signature_is_refused_with_it(
    call: Callable[[Any], Any], wrong: str, expected: str
) -> None:
    with pytest.raises(ProgramError) as caught:
        trace(call, "3:f16")
    assert caught.value.wrong.endswith(wrong)
    assert caught.value.expected.startswith(expected)
    assert "test_attributes.py" in caught.value.at


def test_a_mistake_inside_what_a_function_is_given_stays_what_it_is() -> None:
    class Odd:
        def __index__(self) -> int:
            raise TypeError("not this one")

    with pytest.raises(ProgramError, match="axis"):
        trace(lambda x: xp.sum(x, axis=Odd()), "3:f16")

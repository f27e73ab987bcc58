"""Attributes that traced arrays do not have: one error, which names what there is instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ProgramError
from axe_eq.program.names import DONE_BY, RENAMED, SAID
from axe_eq.program.trace import Traced, trace
from axe_eq.program.traced import instead

xp: Any = axe.array  # whose signatures type checkers know
nn: Any = axe.nn


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("reshape", "axe_eq.array.reshape(x, ...)"),
        ("reshap", "axe_eq.array.reshape(x, ...)"),
        ("transpose", "axe_eq.array.permute_dims(x, ...)"),
        ("cumsum", "axe_eq.array.cumulative_sum(x, ...)"),
        ("softmax", "axe_eq.nn.softmax(x, ...)"),
        ("shpae", "x.shape"),
        ("unsqueeze", "axe_eq.array.expand_dims(x, ...)"),
        ("view", "axe_eq.array.reshape(x, ...)"),
        ("float", "axe_eq.array.astype(x, ...)"),
        ("clone", "x: nothing changes it"),
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
        ("cat", "axe_eq.array.concat(x, ...)"),
        ("swapaxes", "axe_eq.array.permute_dims(x, ...)"),
        ("split", "slices, as x[:, :3] and x[:, 3:]"),
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


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda x: xp.sum(x, dim=-1, keepdim=True), "axis=..., keepdims=..."),
        (lambda x: xp.sum(x, -1), "axis=..."),
        (lambda x: xp.var(x, ddof=1), "correction=..."),
        (lambda x: xp.clip(x, a_min=0, a_max=1), "max=..., min=..."),
        (lambda x: nn.softmax(x, dim=-1), "axis=..."),
        (lambda x: xp.round(x, 1), ""),  # not built: no keyword does it
        (lambda x: xp.pad(x, ((1, 1),), mode="edge"), ""),
        (lambda x: xp.concat([x, x], 0, axis=0), ""),
        (round, "axe_eq.array.round(x)"),
    ],
)
def test_a_keyword_of_another_library_is_refused_with_that_of_the_standard(
    call: Callable[[Any], Any], hint: str
) -> None:
    with pytest.raises(ProgramError) as caught:
        trace(call, "3:f16")
    assert caught.value.hint == hint


def test_a_layer_under_another_name_is_such_an_error_too() -> None:
    with pytest.raises(AttributeError) as caught:
        trace(lambda x: nn.layer_norm(x, 3), "3:f16")
    error = caught.value
    assert isinstance(error, ProgramError)
    assert error.hint == "axe_eq.nn.layernorm(x, ...)"
    assert "test_attributes.py" in error.at
    assert not hasattr(nn, "linear")


def test_what_others_call_a_function_is_of_one_that_exists_and_none_of_ours() -> None:
    ours = {*xp.__all__, *nn.__all__}
    for old, new in (RENAMED | DONE_BY).items():
        assert new in ours
        assert instead(old).endswith(f".{new}(x, ...)")
    assert {*RENAMED, *DONE_BY, *SAID} & ours == {"bfloat16", "bool"}  # dtypes, not methods


def test_divmod_is_the_quotient_and_the_remainder() -> None:
    x = np.array([-7, -1, 0, 5], np.int32)
    for mine, numpys in ((lambda y: divmod(y, 3), divmod(x, 3)), (lambda y: divmod(9, y + 8),
                         divmod(9, x + 8))):  # fmt: skip
        found = axe.run(mine, x)
        assert [a.tolist() for a in found] == [a.tolist() for a in numpys]


def test_a_mistake_inside_what_a_function_is_given_stays_what_it_is() -> None:
    class Odd:
        def __index__(self) -> int:
            raise TypeError("not this one")

    with pytest.raises(ProgramError, match="axis"):
        trace(lambda x: xp.sum(x, axis=Odd()), "3:f16")

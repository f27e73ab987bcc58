"""Equality of programs with scans: proved with certificates, or refuted by enclosures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.check.opcheck import check_operators
from axe_eq.program.ops import MONOIDS
from axe_eq.prove.programs.enclose import enclose_program

xp = axe.array
Fn = Callable[[Any], Any]


def along(monoid: str, axis: int, *, reverse: bool = False) -> Fn:
    return lambda x: xp.associative_scan(monoid, x, axis=axis, reverse=reverse)


PLUS = along("+", 1)
PROVED: dict[str, tuple[Fn, Fn, str]] = {
    "operands": (lambda x: PLUS(x + x), lambda x: PLUS(2 * x), "real"),
    "turned": (lambda x: PLUS(x).T, lambda x: along("+", 0)(x.T), "exact"),
    "rows": (lambda x: PLUS(x)[1:3], lambda x: PLUS(x[1:3]), "exact"),
    "rows backwards": (
        lambda x: xp.flip(along("max", 1)(x), axis=0),
        lambda x: along("max", 1)(xp.flip(x, axis=0)), "exact",
    ),
    "its end": (lambda x: PLUS(x)[:, -1], lambda x: xp.sum(x, axis=1), "real"),
    "an exact end": (lambda x: along("max", 1)(x)[:, -1], lambda x: xp.max(x, axis=1), "exact"),
}  # fmt: skip
REFUTED: dict[str, tuple[Fn, Fn]] = {
    "another monoid": (PLUS, along("*", 1)),
    "another axis": (PLUS, along("+", 0)),
    "the other end": (PLUS, along("+", 1, reverse=True)),
    "nothing": (PLUS, lambda x: x),
    "before its end": (lambda x: PLUS(x)[:, -2], lambda x: xp.sum(x, axis=1)),
}  # fmt: skip


@pytest.mark.parametrize("case", PROVED)
def test_what_is_equal_is_proved(case: str) -> None:
    """With a certificate that the checker accepts."""
    a, b, numerics = PROVED[case]
    found = axe.equivalent(a, b, axe.Spec((5, 7), "f32"), numerics=numerics)
    assert isinstance(found, axe.Proved), found
    assert axe.check_certificate(found.certificate)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("extents", [(5, 7), (4096, 4096)])
@pytest.mark.parametrize("case", REFUTED)
def test_what_differs_is_refuted(case: str, extents: tuple[int, int]) -> None:
    """At large shapes from a few elements."""
    a, b = REFUTED[case]
    found = axe.equivalent(a, b, axe.Spec(extents, "f32"))
    assert isinstance(found, axe.Refuted), found


def test_other_associations_are_not_proved_bit_for_bit() -> None:
    """The last element of a scan of floats need not be the sum that a machine computes."""
    spec = axe.Spec((5, 7), "f32")
    found = axe.equivalent(
        lambda x: PLUS(x)[:, -1], lambda x: xp.sum(x, axis=1), spec, numerics="exact", budget=3
    )
    assert not found


@pytest.mark.parametrize("monoid", [m for m in MONOIDS if m != "argmin"])
def test_enclosures_hold_every_prefix(monoid: str) -> None:
    """What float64 computes lies inside, and is close."""
    rng = np.random.default_rng(0)
    declared, shape = MONOIDS[monoid], (3, 20)
    x = rng.uniform(-1, 1, shape) > 0 if declared.result == "logical" else rng.uniform(-1, 1, shape)
    places = np.broadcast_to(np.arange(shape[1]), shape).copy()
    second = [] if declared.n_values == 1 else [places if declared.result == "index" else x + 1]

    def fn(*xs: Any) -> Any:
        return xp.associative_scan(monoid, list(xs), axis=1)

    program = axe.trace(fn, x, *second)
    (found,) = enclose_program(program, [x, *second])
    value = axe.run(fn, x, *second).astype(float)
    assert (found.low <= value + 1e-12).all()
    assert (found.high >= value - 1e-12).all()
    assert (found.high - found.low < 1e-9).all()


def test_declared_monoids_are_checked_as_scans_need_them() -> None:
    """One that does not commute is merged in order alone."""
    assert list(check_operators(["monoid recurrence", "monoid +"])) == []

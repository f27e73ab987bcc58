"""Do two programs compute the same? Over the reals or bit for bit; a proof or a counterexample."""

from __future__ import annotations

from typing import Any

import axe_eq as axe
from axe_eq import nn

xp = axe.array
SPECS = ("tokens=64x32:f32", "32x48:f32", "32x48:f32")


def two_products(x: Any, w: Any, v: Any) -> Any:
    """Two products, then their sum."""
    return x @ w + x @ v


def one_product(x: Any, w: Any, v: Any) -> Any:
    """The weights added first: half the work."""
    return x @ (w + v)


def forgotten(x: Any, w: Any, v: Any) -> Any:
    """A slip: the second weight is used twice."""
    return x @ (v + v)


def softmax_by_hand(x: Any, w: Any, v: Any) -> Any:
    """Softmax without the shift that keeps exp in range."""
    e = xp.exp(x @ w)
    return e / xp.sum(e, axis=-1, keepdims=True)


def softmax(x: Any, w: Any, v: Any) -> Any:
    """The library's."""
    return nn.softmax(x @ w, axis=-1)


def main() -> None:
    """Ask four questions; every answer says what it rests on."""
    real = axe.equivalent(two_products, one_product, *SPECS)
    assert isinstance(real, axe.Proved)
    assert axe.check_certificate(real.certificate)
    print(f"factored: {real}")

    exact = axe.equivalent(two_products, one_product, *SPECS, numerics="exact")
    assert not exact  # rounding tells them apart: refuted, or not proved, never proved
    print(f"factored, bit for bit: {type(exact).__name__}")

    slip = axe.equivalent(two_products, forgotten, *SPECS)
    assert isinstance(slip, axe.Refuted)
    print(f"slip: {slip.reason}")

    shift = axe.equivalent(softmax, softmax_by_hand, *SPECS)
    assert shift  # over the reals: floats overflow in one of them only
    print(f"softmax without its shift: {str(shift).splitlines()[0]}")


if __name__ == "__main__":
    main()

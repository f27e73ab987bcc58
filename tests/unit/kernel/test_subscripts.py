"""Subscripts of tensors mean what they mean in numpy, or are refused at their line."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import LayoutError
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.ir import View, span

N = 5
AROUND = range(-N - 2, N + 3)


def _tensor(k: ThreadBuilder, memory: str, extent: Any = N) -> Any:
    return k.tensor("x", "f32", (extent,)) if memory == "gmem" else k.smem("x", "f32", (extent,))


def _subscript(part: Any, index: Any) -> View | None:
    """The view; None where it is refused, at this file's line."""
    try:
        found: View = part[index]
    except LayoutError as error:
        place = error.at
    else:
        return found
    assert place.rpartition(":")[0] == __file__
    return None


@pytest.mark.parametrize("memory", ["gmem", "smem"])
@pytest.mark.parametrize("of_a_view", [False, True])
def test_subscripts_are_numpys_or_refused(memory: str, of_a_view: bool) -> None:
    x = _tensor(ThreadBuilder("k", 1), memory, 2 * N if of_a_view else N)
    part, first = (x[span(N, N)], N) if of_a_view else (x, 0)
    values = np.arange(first, first + N)
    for index in AROUND:
        view = _subscript(part, index)
        assert (view is not None) == (0 <= index < N), index
        assert view is None or (view.begin, view.shape) == ((values[index],), ())
    for begin, end in product([None, *AROUND], repeat=2):
        view = _subscript(part, slice(begin, end))
        low, high = begin or 0, N if end is None else end
        # What begins inside may hang over the end of a global tensor, where accesses are masked.
        inside = 0 <= low < N and low < high and (high <= N or memory == "gmem")
        assert (view is not None) == inside, (begin, end)
        if view is not None and high <= N:
            assert [view.begin[0] + i for i in range(*view.extent)] == [*values[begin:end]]


def test_negative_numbers_are_refused_where_the_extent_is_not_known() -> None:
    k = ThreadBuilder("k", 1)
    n = k.param("n")
    x = k.tensor("x", "f32", (n,))
    for index in (-1, slice(-8, None), slice(0, -1)):
        assert _subscript(x, index) is None
    assert x[99].begin == (99,)  # there may be one


def test_the_refusal_says_how_a_window_is_written() -> None:
    k = ThreadBuilder("k", 1)
    x = k.tensor("x", "f32", (40, 72))
    with pytest.raises(LayoutError) as refusal:
        x[-32:0, 0:32]
    text = str(refusal.value)
    assert "buffer x: begin -32 of dim 0; expected 0 to 39, from the first element" in text
    assert "try: span(begin, extent), for a window that may lie outside" in text
    assert x[span(-32, 32), 0:32].begin == (-32, 0)
    first = k.let("first", k.param("m") - 4)
    assert x[first].shape == (72,)  # what is known at run time may lie before

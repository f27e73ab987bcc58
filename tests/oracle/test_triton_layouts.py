"""Encodings as Triton itself turns them into bases, for tensors of many shapes."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from math import prod
from pathlib import Path
from typing import Any

import pytest

from axe_eq.layout.notation import read
from axe_eq.layout.notation.triton import AXES
from axe_eq.layout.notation.triton_encodings import linear_of
from axe_eq.layout.notation.triton_text import understood

CASES = json.loads((Path(__file__).parent / "triton_layouts.json").read_text())["cases"]
SMALL = 1 << 11  # hardware indices that are gone through one by one


def named(case: dict[str, Any]) -> str:
    return f"{case['text'][5:]} {case['shape']}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_an_encoding_has_triton_s_bases(case: dict[str, Any]) -> None:
    shape = tuple(case["shape"])
    found = linear_of(understood(case["text"]).meant, shape)
    bases = {dim: [list(vector) for vector in vectors] for dim, vectors in found.bases.items()}
    assert bases == {"block": []} | case["bases"]
    assert found.shape == shape
    assert [list(pair) for pair in found.padding] == case.get("padding", [])


def test_every_element_lies_where_triton_puts_it() -> None:
    """Bit by bit, over all hardware indices; padding as its documentation defines it."""
    seen: dict[str, int] = defaultdict(int)
    for case in CASES:
        bases, shape = case["bases"], tuple(case["shape"])
        if 1 << sum(map(len, bases.values())) > SMALL:
            continue
        held: dict[tuple[int, ...], set[Any]] = defaultdict(set)
        for index in itertools.product(*(range(1 << len(v)) for v in bases.values())):
            element = [0] * len(shape)
            point = {}
            for dim, value in zip(bases, index, strict=True):
                for bit, vector in enumerate(bases[dim]):
                    if value >> bit & 1:
                        element = [a ^ b for a, b in zip(element, vector, strict=True)]
                if dim == "offset":
                    value += sum(value // every * pad for every, pad in case.get("padding", ()))
                point[AXES[dim]] = value
            held[tuple(element)].add(tuple(sorted((a, v) for a, v in point.items() if v)))
        layout = read("triton", case["text"], shape=shape)
        assert layout.size == prod(shape)
        for index in itertools.product(*map(range, shape)):
            assert layout(index, shape=shape) == held[index], case
        seen[case["text"].partition("<")[0]] += 1
    assert {name: n for name, n in seen.items() if n < 2} == {}
    assert len(seen) == 8

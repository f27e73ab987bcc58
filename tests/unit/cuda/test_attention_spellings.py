"""Attention in many spellings: each is one streaming kernel with the values that it means.

Here kernels are lowered without a search: where a spelling mixes values by softmax, the test writes
the fold that laws find. Under --full every spelling goes the whole way.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.interpret import POISON, elements, launch
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200
from benchmarks import attention_spellings
from benchmarks.attention_spellings import SPELLINGS
from benchmarks.cuda_spellings import (
    arrays,
    is_good,
    right,
    wide,
    without_device,
    worst,
)  # fmt: skip
from tests.unit.cuda.whole import cone_of, lowered

xp = axe.array
# By name: blocks of rows, columns and keys, where they are not those below.
STREAMED: dict[str, dict[str, int]] = {
    "three batch dims, keys of the middle one": {}, "groups by broadcast": {},
    "keys of all heads": {"p": 128}, "causal, a number added": {}, "mask": {}, "mask of keys": {},
    "documents": {}, "slopes, causal": {}, "capped, causal": {}, "96 wide": {"q": 96},
    "one query": {}, "few keys": {}, "no heads": {}, "three batch dims": {}, "slopes": {},
    "causal, groups by broadcast": {"p": 128}, "causal, last queries": {}, "bf16": {"p": 192},
    "window on both sides": {}, "bias per head": {}, "40 wide": {"q": 40},
}  # fmt: skip
SAMPLE = list(STREAMED)[:12]
CHUNK = 32


def smaller(sizes: dict[str, int]) -> dict[str, int]:
    """Two chunks of keys, the last one a part, and one tile of rows."""
    cut = {"s": 34 if sizes["s"] < sizes["t"] else 52, "t": 52}
    return sizes | {n: min(sizes[n], e) for n, e in cut.items()}


def fold(z: Any, v: Any) -> Any:
    """Values mixed by the softmax of their scores, as laws write it."""
    lead = "abcdefgh"[: max(z.ndim, v.ndim) - 2]

    def dims(x: Any, last: str) -> str:
        batch = lead[len(lead) - (x.ndim - 2) :]
        extents = zip(batch, x.shape, strict=False)
        return " ".join([*("0" if e == 1 else n for n, e in extents), *last])

    names = {n: m for m, n in enumerate([*lead, *"mwt"])}
    letters = "abcdefghijklmnop"
    texts = [dims(z, "mt"), dims(v, "tw"), " ".join([*lead, *"mw"])]
    renamed = [
        " ".join(d if d == "0" else letters[names[d]] for d in text.split()) for text in texts
    ]
    sig = f"{renamed[0]}, {renamed[1]} -> {renamed[2]}; softmax {letters[names['t']]}"
    return xp.block(sig, "pair", z, v)


@pytest.mark.parametrize("name", STREAMED)
def test_a_spelling_is_one_streaming_kernel_with_the_values_that_it_means(
    name: str, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores of up to 1e4, masked rows, batches that operands lack; in several orders."""
    if not full and name not in SAMPLE:
        pytest.skip("runs under --full")
    monkeypatch.setattr(attention_spellings, "mixed", fold)
    spelling, sizes = SPELLINGS[name], smaller(SPELLINGS[name].small)
    program = axe.trace(spelling.fn, *spelling.specs(sizes))
    chosen = {"p": 64, "q": 64, "s": CHUNK, "stages": 2} | STREAMED[name]
    made = lowered(program, f"wgmma.{spelling.dtype}", chosen)
    assert any(b.name == "weights" for b in made.kernel.buffers)
    planned = plan(made.kernel, h200)
    step = cone_of(program)
    every = product(("ordinary", "extreme"), ("late", "random", "early"))
    for seed, (kind, order) in enumerate(every if full else [("extreme", "random")]):
        held = arrays(spelling, sizes, kind, seed)
        types = {i.name: DTYPES[i.node.type.dtype].numpy for i in program.inputs}
        flat = {n: a.reshape(-1).astype(types[n]) for n, a in (held | program.constants).items()}
        (out,) = program.outputs
        flat["out0"] = np.full(out.type.size, POISON).astype(DTYPES[out.type.dtype].numpy)
        launch(made, flat, planned=planned, order=order, seed=seed)
        (write,) = step.writes
        result = flat["out0"][elements(write.layout, out.type.shape)]
        with np.errstate(all="ignore"):
            apart = worst(spelling, sizes, wide(held), result)
        assert right(apart, spelling.dtype), apart


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling_compiles_and_means_what_it_says(name: str, full: bool) -> None:
    if not full:
        pytest.skip("runs under --full, and in benchmarks.cuda_spellings")
    row = without_device(name, None, ("random",))
    assert is_good(row), row

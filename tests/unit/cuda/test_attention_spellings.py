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
from benchmarks.attention_spellings import SPELLINGS, heads, meaning
from benchmarks.cuda_spellings import (
    arrays,
    compiled,
    described,
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
    "keys of all heads": {"consumers": 2}, "causal, a number added": {}, "mask": {},
    "mask of keys": {}, "documents": {}, "slopes, causal": {}, "capped, causal": {},
    "96 wide": {"q": 96},
    "one query": {}, "few keys": {}, "no heads": {}, "three batch dims": {}, "slopes": {},
    "causal, groups by broadcast": {"consumers": 2}, "causal, last queries": {},
    "bf16": {"consumers": 3}, "window on both sides": {}, "bias per head": {}, "40 wide": {},
}  # fmt: skip
SAMPLE = list(STREAMED)[:9]
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


@pytest.mark.sampled(12)
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
    made = lowered(program, f"wgmma.{spelling.dtype}", {"s": CHUNK} | STREAMED[name])
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
        apart = worst(spelling, sizes, held, result)
        assert right(apart, spelling.dtype), apart
        assert apart["asked"] > 0.5, apart


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling_compiles_and_means_what_it_says(name: str, full: bool) -> None:
    if not full:
        pytest.skip("runs under --full, and in benchmarks.cuda_spellings")
    row = without_device(name, None, ("random",), ("small",))
    assert is_good(row), row


def test_softmax_in_f32_is_one_kernel_where_its_weights_are_rounded_to_the_values_type() -> None:
    spelling = SPELLINGS["softmax in f32"]
    sizes = spelling.small

    def kept(q: Any, k: Any, v: Any) -> Any:
        z = xp.astype(attention_spellings._scores(q, k), xp.float32)
        return attention_spellings._softmax(z) @ v

    assert described(compiled(spelling, sizes)) == ["streaming"]
    wider = axe.compile(kept, *spelling.specs(sizes), target="h200")
    assert "streaming" not in described(wider)
    assert wider.schedule.graph.buffers[wider.schedule.graph.outputs[0]].type.startswith("f32")


def test_what_overflows_or_is_rounded_away_in_the_program_s_types_is_not_asked() -> None:
    """A score beyond f16 makes NaN in f16, so kernels that keep scores there were called wrong."""
    spelling, sizes = SPELLINGS["one token"], {"h": 16, "s": 1, "t": 1, "d": 128, "w": 128}
    held = arrays(spelling, sizes, "extreme", 1)
    with np.errstate(all="ignore"):
        own = [meaning(np, spelling, sizes, held, at)[0] for at in heads(spelling, sizes)]
    result = np.stack(own)
    lost = np.isnan(result).all(axis=(1, 2))
    assert 0 < lost.sum() < sizes["h"]
    apart = worst(spelling, sizes, held, result)
    assert right(apart, "f16"), apart
    assert apart["asked"] == 1 - lost.mean()
    for head, value in product(np.flatnonzero(~lost)[:2], (np.nan, np.inf, 0.1)):
        off = result.copy()
        off[head, 0, 7] += value
        found = worst(spelling, sizes, held, off)
        assert not right(found, "f16")
        assert found["wrong"]["result"] == {"head": {"h": head}, "index": [0, 7]}


def test_distances_that_f16_rounds_decide_weights_only_where_slopes_are_steep() -> None:
    spelling, sizes = SPELLINGS["slopes"], {"h": 2, "s": 2, "t": 4096, "d": 16, "w": 4}
    held = arrays(spelling, sizes, "ordinary") | {"m": np.array([-0.5, -(2**-11)], np.float16)}
    exact = [meaning(np, spelling, sizes, wide(held), at)[0] for at in heads(spelling, sizes)]
    assert 0 < worst(spelling, sizes, held, np.stack(exact))["asked"] < 1
    assert not right(worst(spelling, sizes, held, np.stack(exact[::-1])), "f16")

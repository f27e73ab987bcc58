"""Each of the 15 checks: good kernels pass, and every mutation trips its check and no other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from axe_eq_backends.nki.sim import CHECKS, WARNINGS, NkiError, simulate
from axe_eq_backends.nki.target import trn2
from tests.unit.nki.sim.good_kernels import KERNELS, arguments, expected


@dataclass(frozen=True)
class Mutation:
    """One place of a kernel changed."""

    check: str
    kernel: str
    old: str
    new: str
    target: Any = "trn2"


SMALL = replace(trn2, limits={**trn2.limits, "instructions": 20})  # the gemm has 20
TILE = "nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)"
PSUM = "nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)"
LOAD = "nisa.dma_copy(dst=t, src=x)"
TOTAL = "total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)"
COPY = "nisa.tensor_copy(dst=tile, src=acc)"
PRODUCT = "nisa.nc_matmul(dst=acc, stationary=left, moving=right, accumulate=k > 0)"
DETECTED = PRODUCT.replace(", accumulate=k > 0", "")
RIGHT = "c[0:128, k * 512:k * 512 + 512]\n"

MUTATIONS = (
    Mutation(
        "P1",
        "gemm",
        f"tile = {TILE}",
        "tile = nl.ndarray((129, 512), dtype=nl.float32, buffer=nl.sbuf)",
    ),
    Mutation("P1", "gemm", "b[k * 128:k * 128 + 128, 0:512]", "b[k * 128:k * 128 + 128, 1:513]"),
    Mutation("P1", "gemm", "dst=tile, src=acc", "dst=tile[0:127, 0:512], src=acc"),
    Mutation(
        "P1", "softmax", TOTAL, "total = nl.ndarray((128,), dtype=nl.float32, buffer=nl.sbuf)"
    ),
    Mutation("P1", "softmax", LOAD, f"{LOAD}\n    t = t[0:128:2, 0:512]"),
    Mutation("P1", "softmax", LOAD, f"{LOAD}\n    t = t.reshape((64, 1024))"),
    Mutation("P1", "softmax", "axis=1", "axis=0"),
    Mutation("P1", "bits", "[[1, 512]]", "[[1, 511]]"),
    Mutation("P2", "placed", "address=(0, 0)", "address=(16, 0)"),
    Mutation("P2", "placed", "address=(64, 2048)", "address=(32, 2048)"),
    Mutation(
        "P2",
        "placed",
        "nisa.tensor_copy(dst=s, src=t)",
        "nisa.tensor_copy(dst=s, src=t)\n    nisa.memset(dst=s[16:48, 0:1], value=0.0)",
    ),
    Mutation("P2", "gemm", COPY, f"{COPY}\n        nisa.memset(dst=tile[1:128, 0:512], value=0.0)"),
    Mutation("P3", "softmax", LOAD, f"{LOAD}\n    t = t.ap([[511, 128], [1, 511]])"),
    Mutation(
        "P3",
        "softmax",
        LOAD,
        f"{LOAD}\n    view = t.ap([[512, 128], [256, 2], [64, 2], [16, 2], [4, 2], [1, 2]])"
        "\n    nisa.tensor_copy(dst=view, src=t[0:128, 0:32])",
    ),
    Mutation(
        "P3",
        "softmax",
        "nisa.reciprocal(dst=part, data=total)",
        "nisa.reciprocal(dst=part, data=total)\n"
        "    nisa.tensor_copy(dst=part.broadcast(1, 512), src=t)",
    ),
    Mutation("P3", "bits", "[[1, 512]]", "[[256, 2], [128, 2], [64, 2], [32, 2], [1, 32]]"),
    Mutation("M1", "gemm", RIGHT, RIGHT.replace("0:128", "0:64")),
    Mutation("M1", "gemm", "start:start + 128]", "start:start + 127]"),
    Mutation("M1", "gemm", RIGHT, "c[0:128, 0:513]\n"),
    Mutation("M1", "gemm", f"acc = {PSUM}", f"acc = {TILE}"),
    Mutation(
        "M1", "gemm", f"acc = {PSUM}", PSUM.join(("acc = ", "")).replace("float32", "bfloat16")
    ),
    Mutation(
        "M1",
        "gemm",
        f"acc = {PSUM}",
        "acc = nl.ndarray((128, 513), dtype=nl.float32, buffer=nl.psum)[0:128, 1:513]",
    ),
    Mutation(
        "M1",
        "gemm",
        "c = nl.ndarray((128, 1024), dtype=nl.float32",
        "c = nl.ndarray((128, 1024), dtype=nl.bfloat16",
    ),
    Mutation("M2", "gemm", "accumulate=k > 0", "accumulate=True"),
    Mutation(
        "M2", "gemm", PRODUCT, f"k or nisa.memset(dst=acc, value=1.0)\n            {DETECTED}"
    ),
    Mutation(
        "M2",
        "gemm",
        PRODUCT,
        "k or nisa.nc_matmul(dst=acc[0:128, 0:256], stationary=left, moving=c[0:128, 0:256])"
        f"\n            {DETECTED}",
    ),
    Mutation(
        "M2", "gemm", PRODUCT, f"{PRODUCT}\n            nisa.memset(dst=acc[0:1, 0:1], value=0.0)"
    ),
    Mutation(
        "M3",
        "gemm",
        PRODUCT,
        f"{PRODUCT}\n            k or nisa.tensor_copy(dst=c[0:128, 0:1], src=acc[0:128, 0:1])",
    ),
    Mutation(
        "M3",
        "gemm",
        PRODUCT,
        f"{PRODUCT}\n            one = acc[0:128, 1:2]"
        "\n            k or nisa.activation(dst=a[0:128, 0:1], op=nl.copy, data=one)",
    ),
    Mutation(
        "M3",
        "gemm",
        PRODUCT,
        "for h in (0, 256):"
        "\n                nisa.nc_matmul(dst=acc[0:128, h:h + 256], stationary=left,"
        "\n                               moving=right[0:128, h:h + 256], accumulate=k > 0)",
    ),
    Mutation(
        "U1",
        "gemm",
        "nisa.dma_copy(dst=c[0:128, k * 512:k * 512 + 512]",
        "k or nisa.dma_copy(dst=c[0:128, k * 512:k * 512 + 512]",
    ),
    Mutation("U1", "gemm", "nisa.dma_copy(dst=out[", "m == 3 or nisa.dma_copy(dst=out["),
    Mutation("U1", "softmax", LOAD, "nisa.dma_copy(dst=t[0:127, 0:512], src=x[0:127, 0:512])"),
    Mutation("U1", "softmax", "reduce_cmd.reset_reduce", "reduce_cmd.reduce"),
    Mutation("U1", "softmax", "data=e, op0", "data=nl.ndarray((128, 512), dtype=nl.float32), op0"),
    Mutation("B1", "gemm", "src=tile)", "src=acc)"),
    Mutation("B1", "gemm", "b[k * 128:k * 128 + 128, 0:512]", "b[k * 128:k * 128 + 128, 0:511]"),
    Mutation(
        "B1",
        "gemm",
        "tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)",
        "tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)",
    ),
    Mutation(
        "B1",
        "softmax",
        "nisa.dma_copy(dst=out, src=e)",
        "h = nl.zeros((128, 1024), dtype=nl.bfloat16)\n"
        "    nisa.dma_copy(dst=out, src=h[0:128, 0:512], dge_mode=nisa.dge_mode.hwdge)",
    ),
    Mutation("B2", "gemm", COPY, "nisa.tensor_tensor(dst=tile, data1=acc, data2=acc, op=nl.add)"),
    Mutation("B2", "gemm", COPY, "nisa.tensor_copy(dst=tile, src=acc, engine=nisa.engine.gpsimd)"),
    Mutation("B2", "gemm", COPY, "nisa.tensor_copy(dst=tile, src=b[0:128, 0:512])"),
    Mutation(
        "B2",
        "bits",
        "r = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.sbuf)",
        "r = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.psum)",
    ),
    Mutation(
        "E1",
        "gemm",
        "tensor_copy(dst=tile, src=acc)",
        "tensor_copy(dst=tile, src=acc, engine=nisa.engine.scalar)",
        "trn1",
    ),
    Mutation("E1", "gemm", COPY, "nisa.exponential(dst=tile, src=acc)"),
    Mutation(
        "E1",
        "gemm",
        "a = nl.ndarray((128, 1024), dtype=nl.float32",
        "a = nl.ndarray((128, 1024), dtype=nl.int32",
    ),
    Mutation(
        "E1",
        "softmax",
        "operand0=part)",
        "operand0=part, op1=nl.subtract, operand1=0.0, engine=nisa.engine.scalar)",
    ),
    Mutation("E1", "softmax", "bias=most", "bias=1.0", "trn1"),
    Mutation("E1", "softmax", "op=nl.exp", "op=nl.add"),
    Mutation(
        "O1",
        "bits",
        "nisa.tensor_copy(dst=f, src=r)",
        "nisa.tensor_copy(dst=f, src=r)\n"
        "    nisa.tensor_scalar(dst=f, data=f, op0=nl.bitwise_and, operand0=255)",
    ),
    Mutation("O1", "bits", "op=nl.copy", "op=nl.sin"),
    Mutation("O1", "bits", "op=nl.copy", "op=nl.rsqrt"),
    Mutation("O1", "softmax", "op=nl.maximum", "op=nl.power"),
    Mutation("O1", "softmax", "op=nl.exp", "op=nl.log"),
    Mutation(
        "C1",
        "softmax",
        TOTAL,
        "total = nl.ndarray((128, 57345), dtype=nl.float32, buffer=nl.sbuf)[0:128, 0:1]",
    ),
    Mutation(
        "C1",
        "softmax",
        TOTAL,
        "total = nl.ndarray((128, 49153), dtype=nl.float32, buffer=nl.sbuf)[0:128, 0:1]",
        "trn1",
    ),
    Mutation(
        "C1",
        "softmax",
        LOAD,
        f"{LOAD}\n    held = [nl.zeros((128, 28000), dtype=nl.float32) for _ in range(3)]\n"
        "    [nisa.tensor_copy(dst=t[0:128, 0:1], src=h[0:128, 0:1]) for h in held]",
    ),
    Mutation(
        "C1",
        "gemm",
        COPY,
        f"{COPY}\n        held = [{PSUM} for _ in range(9)]\n"
        "        [nisa.memset(dst=h, value=0.0) for h in held]\n"
        "        [nisa.tensor_copy(dst=tile[0:128, 0:1], src=h[0:128, 0:1]) for h in held]",
    ),
    Mutation(
        "C2", "placed", "buffer=nl.psum, address=(0, 2048)", "buffer=nl.psum, address=(0, 2052)"
    ),
    Mutation("C2", "placed", "address=(0, 0)", "address=(0, 2)"),
    Mutation("C2", "placed", "address=(64, 2048)", "address=(0, 2048)"),
    Mutation("C2", "placed", "address=(64, 2048)", "address=(0, 3000)"),
    Mutation(
        "D1",
        "softmax",
        LOAD,
        "nisa.dma_copy(dst=t[0:128, 0:256], src=x[0:128, 0:256])\n"
        "    nisa.dma_copy(dst=t[0:128, 256:512], src=x[0:128, 256:512])",
    ),
    Mutation(
        "D1",
        "softmax",
        LOAD,
        "nisa.dma_copy(dst=t[0:128, 0:512:2], src=x[0:128, 0:512:2])\n"
        "    nisa.dma_copy(dst=t[0:128, 1:512:2], src=x[0:128, 1:512:2])",
    ),
    Mutation("D1", "gemm", "src=tile)", "src=tile.reshape((128, 2, 256)).permute((0, 2, 1)))"),
    Mutation("S1", "gemm", COPY, f"{COPY}\n        nisa.tensor_copy(dst=tile, src=acc)", SMALL),
    Mutation("S1", "gemm", "return out", "nisa.memset(dst=tile, value=0.0)\n    return out", SMALL),
    Mutation("S1", "gemm", "    for m in range(4):", "    for m in [0, 0, 1, 2, 3]:", SMALL),
)


def run(name: str, text: str, target: Any = "trn2") -> tuple[Any, set[str]]:
    """Results, and the checks that warn."""
    outputs, report = simulate(text, name, *arguments(name), target=target)
    return outputs, {w.check for w in report.warnings}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_a_good_kernel_is_right_and_nothing_is_found(name: str, target: str) -> None:
    outputs, warned = run(name, KERNELS[name], target)
    wanted = expected(name, arguments(name))
    assert warned == set()
    assert np.abs(outputs - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_a_good_kernel_is_as_long_as_a_machine_allows() -> None:
    assert run("gemm", KERNELS["gemm"], SMALL)[1] == set()


@pytest.mark.parametrize(
    "mutation", MUTATIONS, ids=[f"{m.check}-{m.kernel}-{n}" for n, m in enumerate(MUTATIONS)]
)
def test_a_mutation_trips_its_check_and_no_other(mutation: Mutation) -> None:
    text = KERNELS[mutation.kernel]
    assert mutation.old in text
    text = text.replace(mutation.old, mutation.new)
    if mutation.check in WARNINGS:
        assert run(mutation.kernel, text, mutation.target)[1] == {mutation.check}
        return
    with pytest.raises(NkiError) as caught:
        run(mutation.kernel, text, mutation.target)
    assert caught.value.check == mutation.check
    assert f"<{mutation.kernel}.nki>:" in caught.value.at


def test_every_check_has_three_mutations() -> None:
    counted = Counter(m.check for m in MUTATIONS)
    assert set(counted) == set(CHECKS)
    assert min(counted.values()) >= 3


def test_instructions_beyond_the_limit_of_a_run_are_refused() -> None:
    name = "gemm"
    simulate(KERNELS[name], name, *arguments(name), most_instructions=20)
    with pytest.raises(NkiError, match="is instruction 20; expected at most 19") as caught:
        simulate(KERNELS[name], name, *arguments(name), most_instructions=19)
    assert caught.value.check == "S1"

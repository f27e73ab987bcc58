"""The e-graph chooses: laws, target data and extents decide which kernels there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import SearchError
from axe_eq.layout import Layout, Mesh
from axe_eq.pack import installed
from axe_eq.run.executable import Executable
from axe_eq.target import Instr, Target

HIDDEN, INNER, HEADS, HEAD = 4096, 12288, 32, 128


def h200() -> Target:
    return installed()["cuda"].targets["h200"]


def block(x: Any, g: Any, w: Any) -> Any:
    return nn.silu((nn.rmsnorm(x) * g) @ w)


def block_specs(rows: int) -> list[str]:
    return [f"{rows}x{HIDDEN}:f16", f"{HIDDEN}:f16", f"{HIDDEN}x{INNER}:f16"]


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = nn.einsum("hte,hse->hts", q, k) * HEAD**-0.5
    return nn.einsum("hts,hse->hte", nn.softmax(scores, axis=-1), v)


def kernels(exe: Executable) -> list[tuple[Any, ...]]:
    """What was chosen: structure, schedule, row and parameters of every kernel."""
    return [
        (tuple((n.text, n.cell) for n in k.nodes), k.schedule, k.row, tuple(k.parameters.items()))
        for k in exe.kernels
    ]


def parameters(exe: Executable) -> list[tuple[str, dict[str, int]]]:
    return [(k.row, dict(k.parameters)) for k in exe.kernels]


@pytest.fixture(scope="module")
def of_block() -> Callable[..., Executable]:
    """`of_block(rows, target)`: the block compiled, each combination once."""
    known: dict[Any, Executable] = {}

    def get(rows: int = 8192, target: Target | None = None) -> Executable:
        machine = target or h200()
        key = (rows, machine.n_units, machine.memory("smem").n_bytes, len(machine.instrs))
        if key not in known:
            known[key] = axe.compile(block, *block_specs(rows), target=machine)
        return known[key]

    return get


@pytest.fixture(scope="module")
def of_attention() -> Callable[..., Executable]:
    """`of_attention(**options)`: attention of all heads compiled, each choice of options once."""
    known: dict[Any, Executable] = {}

    def get(**options: Any) -> Executable:
        key = str(sorted(options.items()))
        if key not in known:
            spec = f"{HEADS}x8192x{HEAD}:f16"
            known[key] = axe.compile(attention, spec, spec, spec, target="h200", **options)
        return known[key]

    return get


# -- laws -----------------------------------------------------------------------------------------


def test_real_laws_make_attention_one_kernel(of_attention: Callable[..., Executable]) -> None:
    real, exact = of_attention(), of_attention(numerics="exact")
    assert len(real.kernels) == 1
    assert len(exact.kernels) > 1
    assert real.cost["time_s"] < exact.cost["time_s"]


def test_without_online_softmax_attention_is_never_one_kernel(
    of_attention: Callable[..., Executable],
) -> None:
    without = of_attention(without=("online_softmax",))
    assert len(without.kernels) > 1
    assert not any("softmax" in n.text for k in without.kernels for n in k.nodes)


def test_without_demand_laws_nothing_compiles() -> None:
    with pytest.raises(SearchError) as caught:
        axe.compile(block, *block_specs(16), target="h200", without=("tiling",))
    assert str(caught.value) == (
        f"output f16[16,{INNER}]: no law answers its request; "
        "expected a pack of demand laws, such as tiling"
    )


# -- the machine ----------------------------------------------------------------------------------


def test_half_the_shared_memory_changes_parameters(of_block: Callable[..., Executable]) -> None:
    half = h200().replace(smem=h200().memory("smem").n_bytes // 2)
    small = of_block(target=half)
    assert parameters(small) != parameters(of_block())
    assert all(k.costs.get("smem_bytes", 0) <= half.memory("smem").n_bytes for k in small.kernels)
    assert any(k.costs.get("smem_bytes", 0) > half.memory("smem").n_bytes
               for k in of_block().kernels)  # fmt: skip


def test_half_the_sms_change_parameters(of_block: Callable[..., Executable]) -> None:
    half = h200().replace(n_units=h200().n_units // 2)
    assert parameters(of_block(target=half)) != parameters(of_block())


def gemm_row(m: int, n: int, flops_per_s: float) -> Instr:
    """A row like the machine's own, of another size and rate."""
    (own,) = (row for row in h200().instrs if row.name == "wgmma.f16")
    return replace(own, name="wgmma.test", shape=(m, n, 16), flops_per_s=flops_per_s)


def test_a_better_gemm_row_is_taken(of_block: Callable[..., Executable]) -> None:
    better = replace(h200(), instrs=(*h200().instrs, gemm_row(64, 64, 4e15)))
    exe = of_block(target=better)
    assert {k.row for k in exe.kernels if k.row} == {"wgmma.test"}
    assert exe.cost["time_s"] < of_block().cost["time_s"]


def test_a_worse_gemm_row_changes_nothing(of_block: Callable[..., Executable]) -> None:
    worse = replace(h200(), instrs=(*h200().instrs, gemm_row(64, 64, 1e12)))
    exe = axe.compile(block, *block_specs(8192), target=worse)
    assert kernels(exe) == kernels(of_block())


def test_without_its_gemm_row_another_is_taken(of_block: Callable[..., Executable]) -> None:
    taken = {k.row for k in of_block().kernels if k.row}
    fewer = replace(h200(), instrs=tuple(i for i in h200().instrs if i.name not in taken))
    exe = of_block(target=fewer)
    assert {k.row for k in exe.kernels if k.row}.isdisjoint(taken)
    assert exe.cost["time_s"] > of_block().cost["time_s"]


def test_without_matrix_units_products_are_computed_on_lanes() -> None:
    units = [i for i in h200().instrs if i.primitive == "gemm" and i.scope != "thread"]
    bare = replace(h200(), instrs=tuple(i for i in h200().instrs if i not in units))
    exe = axe.compile(lambda x, w: x @ w, "16x64:f16", "64x96:f16", target=bare)
    assert {k.row for k in exe.kernels} == {"fma.f32"}
    assert any("no gemm row for f16" in why for k in exe.kernels for why in k.rejected)


def test_without_any_gemm_row_nothing_multiplies_matrices() -> None:
    bare = replace(h200(), instrs=tuple(i for i in h200().instrs if i.primitive != "gemm"))
    with pytest.raises(SearchError, match="has no kernel"):
        axe.compile(block, *block_specs(16), target=bare)


# -- extents --------------------------------------------------------------------------------------


def test_few_rows_and_many_rows_get_different_kernels(of_block: Callable[..., Executable]) -> None:
    few, many = of_block(16), of_block(8192)
    assert parameters(few) != parameters(many)
    sides = ("n" if k.parameters.get("turned") else "m" for k in few.kernels)
    assert all(k.parameters.get(x, 64) <= 64 for k, x in zip(few.kernels, sides, strict=True))
    assert any(k.parameters.get("m", 0) >= 128 for k in many.kernels)


def test_fusing_is_never_dearer_than_materialising(of_block: Callable[..., Executable]) -> None:
    for rows in (16, 8192):
        exe = of_block(rows)
        found = exe._found
        assert exe.cost["time_s"] <= found.unfused_s
        assert all(r.time_s >= exe.cost["time_s"] * (1 - 1e-9) for r in found.runners_up)


# -- a mesh ---------------------------------------------------------------------------------------

MESH = Mesh({"x": 8})
ROWS, COLUMNS = "P('x',None)", "P(None,'x')"


def sharded(shape: tuple[int, int], cut: str) -> axe.Spec:
    return axe.Spec(shape, "f32", layout=layout(shape, cut))


def layout(shape: tuple[int, int], cut: str) -> Layout:
    return axe.read("jax", cut, shape=shape, mesh=MESH)


def link_bytes(fn: Callable[..., Any], specs: Sequence[Any], out: Layout, numerics: str) -> float:
    exe = axe.compile(
        fn, *specs, mesh=MESH, target="h200", outputs=[out], numerics=numerics,
        objective="link_bytes",
    )  # fmt: skip
    return exe.cost["link_bytes"]


def test_a_product_of_rows_and_columns_moves_what_it_must() -> None:
    x, w = (1024, 1024), (1024, 4096)
    given = [sharded(x, ROWS), sharded(w, COLUMNS)]
    out = layout((1024, 4096), ROWS)
    assert link_bytes(lambda a, b: a @ b, given, out, "real") == 44_040_192


@pytest.mark.parametrize(("numerics", "n_bytes"), [("real", 229_376), ("exact", 14_680_064)])
def test_reassociation_saves_almost_all_communication(numerics: str, n_bytes: int) -> None:
    tall, wide = (4096, 64), (64, 4096)
    given = [sharded(tall, ROWS), sharded(wide, COLUMNS), sharded(tall, ROWS)]
    out = layout(tall, ROWS)
    assert link_bytes(lambda a, b, c: (a @ b) @ c, given, out, numerics) == n_bytes


def test_what_is_gathered_from_a_gathered_value_is_read_in_parts() -> None:
    """By figures every block read all of x, so a kernel that reads 39 kB of it was never tried."""

    def fn(x: Any, i: Any) -> Any:
        xp = axe.array
        pairs = xp.remainder(xp.remainder(xp.arange(3, dtype=xp.int64), 2), 687)
        return xp.take(xp.take(x, i, axis=0), pairs, axis=2)

    with axe.debug(cache=0):
        exe = axe.compile(fn, "11x8x687:i64", "100:i64", target="h200")
    assert len(exe.kernels) == 1

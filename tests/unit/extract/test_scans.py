"""The search of programs with scans: its size does not grow with their extents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.debug import debug
from axe_eq.pipeline.saturation import SYMBOLS
from axe_eq.schedule.graph import ScheduleGraph

xp = axe.array


def cumulative(x: Any) -> Any:
    return xp.cumulative_sum(x * 2, axis=1) + 1


def rows_of(exe: Any) -> int:
    """Rows of the e-graph of a search."""
    (rows,) = [int(line.split("rows=")[1].split()[0]) for line in str(exe.report).splitlines()
               if "rows=" in line]  # fmt: skip
    return rows


def searched(fn: Any, *specs: axe.Spec, target: str = "cpu") -> Any:
    with debug(cache=0):
        return axe.compile(fn, *specs, target=target)


@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_the_rows_of_a_scan_do_not_depend_on_its_extent(target: str) -> None:
    """It was log2(n) shifted additions, and 131,031 rows at 1,024."""
    found = [
        rows_of(searched(cumulative, axe.Spec((4, n), "f32"), target=target)) for n in (16, 4096)
    ]
    assert found[0] == found[1] < 1000


@pytest.mark.parametrize("extent", [16, 1000, 1 << 15, 1 << 20])
def test_long_scans_compile_in_few_rows(extent: int) -> None:
    """14 GB at 32,768 when every step was an operator."""
    exe = searched(lambda x: xp.cumulative_sum(x, axis=0), axe.Spec((extent,), "f32"))
    assert rows_of(exe) < 100
    x = np.ones(extent, np.float32)
    assert (np.asarray(exe(x)) == np.arange(1, extent + 1)).all()


def test_scans_of_scans_compile() -> None:
    """Along two axes, one after the other: 69 s and thousands of operators before."""
    spec = axe.Spec((64, 64), "i32")
    exe = searched(lambda x: xp.cumulative_sum(xp.cumulative_sum(x, axis=0), axis=1), spec)
    assert rows_of(exe) < 1000
    x = np.arange(4096, dtype=np.int32).reshape(64, 64) % 9
    want = np.cumsum(np.cumsum(x, axis=0), axis=1)
    assert (np.asarray(exe(x)) == want).all()


def kinds(graph: ScheduleGraph) -> list[list[str]]:
    """Kinds of what every kernel computes."""
    return [[n.kind for n in k.nodes if n.kind != "load" and n.operands] for k in graph.kernels]


@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_cells_around_a_scan_are_computed_in_its_kernel(target: str) -> None:
    """Before it and after it, where the rows are whole."""
    exe = searched(cumulative, axe.Spec((512, 4096), "f32"), target=target)
    assert kinds(exe.schedule.graph) == [["cell", "scan", "cell"]]


def test_the_end_of_a_scan_is_a_reduction() -> None:
    """What reads the last element alone computes no other."""
    spec = axe.Spec((16, 1000), "f32")
    exe = searched(lambda x: xp.cumulative_sum(x, axis=1)[:, -1], spec)
    assert kinds(exe.schedule.graph) == [["cell"]]


def test_parts_of_a_scan_are_scans_of_parts() -> None:
    """Rows that nobody wants are not scanned."""
    spec = axe.Spec((512, 4096), "f32")
    exe = searched(lambda x: xp.cumulative_sum(x, axis=1)[7], spec)
    scans = [n for k in exe.schedule.graph.kernels for n in k.nodes if n.kind == "scan"]
    assert [n.type for n in scans] == ["f32[1,4096]"] or [n.type for n in scans] == ["f32[4096]"]


@pytest.mark.parametrize(("numerics", "moved"), [("real", 8 * 4), ("exact", 2 * 8 * 32 * 4)])
def test_a_scan_on_a_mesh_waits_for_totals_alone(numerics: str, moved: int) -> None:
    """Along a cut axis a device gets the totals before it, where sums may round otherwise."""
    mesh = axe.Mesh({"x": 2}, axis="gpuid")
    for cut, n_bytes in (("P('x',None)", 0), ("P(None,'x')", moved)):
        layout = axe.read("jax", cut, shape=(8, 64), mesh=mesh)
        exe = axe.compile(
            lambda x: xp.cumulative_sum(x, axis=1), axe.Spec((8, 64), "f32", layout=layout),
            mesh=mesh, target="h200", outputs=[layout], numerics=numerics,
            objective="link_bytes",
        )  # fmt: skip
        assert exe.plan.link_bytes == n_bytes


def test_the_search_knows_scans() -> None:
    """As a constructor of its own: no law about block operators or selectors meets one."""
    assert "Scan" in [s.name for s in SYMBOLS]

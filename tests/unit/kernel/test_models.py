"""A model of execution that is none of ours: one engine, tiles of partitions and places in them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from axe_eq.errors import PackError, ScheduleError
from axe_eq.kernel import check as common
from axe_eq.kernel import ir as nodes
from axe_eq.kernel.build import Builder
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.dispatch import dispatch
from axe_eq.kernel.ir import span
from axe_eq.kernel.placement import of_layout
from axe_eq.kernel.plan import Plan
from axe_eq.kernel.show import show
from axe_eq.kernel.spaces import Space
from axe_eq.layout import Layout
from axe_eq.target import Instr, Memory
from axe_eq_backends.cuda.target import h200

PARTITIONS = Space("sbuf", "shared", ("P", "F"))


@dataclass(eq=False)
class EngineKernel(nodes.Kernel):
    """A kernel of one engine."""

    @property
    def top(self) -> nodes.Where:
        return nodes.Where("engine")


class EngineBuilder(Builder):
    """Writes for it."""

    def __init__(self, name: str) -> None:
        self.kernel = EngineKernel(name)
        super().__init__(self.kernel)

    def tile(self, name: str, shape: tuple[int, ...], layout: str) -> nodes.Buffer:
        place = of_layout(Layout.parse(layout), shape)
        buffer = self._buffer(name, name, PARTITIONS, "f32", shape, place)
        self.kernel.buffers.append(buffer)
        return buffer


ENGINE = replace(
    h200,
    name="engines",
    memories=(
        Memory("global", ("m",), 1 << 30, "device"),
        Memory("sbuf", ("P", "F"), 1 << 20, "engine"),
    ),
    scopes=("device", "engine"),
    instrs=(Instr("dma.copy", "copy"), Instr("vector.map", "map")),
)


def test_another_model_of_execution_writes_checks_prints_and_plans() -> None:
    k = EngineBuilder("doubled")
    x, y = k.tensor("X", "f32", (256, 64)), k.tensor("Y", "f32", (256, 64), output=True)
    tile = k.tile("tile", (128, 64), "S[(128,64):(1@P,1@F)]")
    with k.range(2) as i:
        k.copy(tile.all, x[span(i * 128, 128), :])
        k.map(apply("mul", arg(0), 2.0), tile.all, tile.all)
        k.copy(y[span(i * 128, 128), :], tile.all)
    kernel = k.finish()
    common.check(kernel, ENGINE)
    assert tile.n_elements == 64
    assert [w.scope for _, w in nodes.walk(kernel)] == ["engine"] * 4
    families = {f: lambda row, primitive, context: Plan(row, []) for f in ("dma", "vector")}
    planned = dispatch(kernel, ENGINE, families)
    rows = [planned.plan(p).row.name for p in planned.choices]
    assert rows == ["dma.copy", "vector.map", "dma.copy"]
    shown = show(kernel, planned)
    assert "sbuf tile f32[128x64] = (128:1@P) (64:1@F)" in shown
    assert "    map tile[0:+128, 0:+64] <- tile[0:+128, 0:+64]: mul(x0, 2.0)\n" in shown


def test_checks_of_every_model_refuse_what_it_lacks() -> None:
    k = EngineBuilder("lost")
    k.tile("tile", (128, 64), "S[(128,64):(1@P,1@F)]")
    with pytest.raises(PackError, match="has no memory 'sbuf'"):
        common.check(k.finish(), h200)


def test_the_builder_of_every_model_names_that_of_threads() -> None:
    with pytest.raises(ScheduleError, match=r"expected a kernel; on threads .*ThreadBuilder"):
        Builder("turned")  # type: ignore[arg-type]

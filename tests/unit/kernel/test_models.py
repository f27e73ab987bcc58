"""A model of execution that is none of ours: one engine, tiles of partitions and places in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from axe_eq.errors import PackError, ScheduleError
from axe_eq.kernel import check as common
from axe_eq.kernel import ir as nodes
from axe_eq.kernel.build import Builder
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.dispatch import dispatch
from axe_eq.kernel.ir import span
from axe_eq.kernel.plan import Plan
from axe_eq.kernel.show import show
from axe_eq.kernel.spaces import Space, space_of
from axe_eq.target import Engine, Instr, Level, Memory, Target
from axe_eq_backends.cuda.target import h200

SBUF = Memory("sbuf", ("P", "F"), 1 << 17, "engine", extents=(128,), align_bytes=64)
PSUM = Memory(
    "psum", ("P", "F"), 1 << 17, "engine", accumulates=True, extents=(128,), bank_bytes=256
)
PARTITIONS = space_of(SBUF)


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

    def tile(
        self, name: str, shape: tuple[int, ...], layout: str, space: Space = PARTITIONS
    ) -> nodes.Buffer:
        return self.buffer(space, name, "f32", shape, layout)


ENGINE = Target(
    name="engines",
    family="engines",
    n_units=1,
    unit="engine",
    memories=(Memory("global", ("m",), 1 << 30, "device"), SBUF, PSUM),
    levels=(Level("device", 1), Level("engine")),
    instrs=(Instr("dma.copy", "copy"), Instr("vector.map", "map", scope="vector")),
    engines=(Engine("vector", 1e9),),
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


def _too_wide(k: EngineBuilder) -> None:
    k.tile("tile", (256, 4), "S[(256,4):(1@P,1@F)]")


def _filled(*apart: bool) -> Callable[[EngineBuilder], None]:
    """Two tiles of 800 bytes, each used in a loop of its own or at the top."""

    def write(k: EngineBuilder) -> None:
        for name, is_apart in zip("ab", apart, strict=True):
            tile = k.tile(name, (128, 200), "S[(128,200):(1@P,1@F)]")
            with k.range(2) if is_apart else nullcontext():
                k.fill(tile.all, 0.0)

    return write


def _unaligned(k: EngineBuilder) -> None:
    k.tile("tile", (128, 4), "S[(128,4):(1@P,1@F)]", Space("sbuf", "shared", ("P", "F"), 32))


def _private(k: EngineBuilder) -> None:
    k.tile("tile", (128, 4), "S[(128,4):(1@P,1@F)]", Space("sbuf", "private", ("P", "F"), 64))


def _product(space: Space, n: int) -> Callable[[EngineBuilder], None]:
    def write(k: EngineBuilder) -> None:
        a, b = (k.tile(x, (e, 8), f"S[({e},8):(1@F,1@P)]") for x, e in (("a", 128), ("b", n)))
        acc = k.tile("acc", (128, n), f"S[(128,{n}):(1@P,1@F)]", space)
        k.gemm(acc.all, a.all, b.all, 0)

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_too_wide, "buffer tile: takes 256 P of sbuf; expected at most 128"),
        (
            _filled(False, True),
            r"takes 1600 bytes of sbuf per P \(a 800, b 800\); expected at most 1024",
        ),
        (_unaligned, "begins at multiples of 32 bytes; expected of 64, as sbuf"),
        (_private, "lies in sbuf, which is shared on engines; expected a private memory"),
        (_product(PARTITIONS, 8), "adds up in sbuf; expected a memory that accumulates: psum"),
        (_product(space_of(PSUM), 65), "acc covers 260 bytes of F; expected one bank of psum, 256"),
    ],
)
def test_checks_of_every_model_read_memories_as_data(
    write: Callable[[EngineBuilder], None], message: str
) -> None:
    k = EngineBuilder("k")
    write(k)
    with pytest.raises(ScheduleError, match=message):
        common.check(k.finish(), ENGINE)


def test_tiles_that_live_one_after_another_share_a_memory() -> None:
    k = EngineBuilder("k")
    _filled(True, True)(k)
    common.check(k.finish(), ENGINE)


@pytest.mark.parametrize("n", [64, 128])
def test_a_product_that_fills_banks_is_taken(n: int) -> None:
    k = EngineBuilder("k")
    _product(space_of(PSUM), n)(k)
    common.check(k.finish(), ENGINE)


def test_the_builder_of_every_model_names_that_of_threads() -> None:
    with pytest.raises(ScheduleError, match=r"expected a kernel; on threads .*ThreadBuilder"):
        Builder("turned")  # type: ignore[arg-type]


# Words of one execution model or machine: nothing that every machine has says them.
OF_THREADS = {"gmem", "smem", "reg", "tmem", "lane", "warp", "cta", "mbarrier", "wgmma", "tma"}


def test_what_every_model_has_speaks_of_no_threads() -> None:
    room = Path(nodes.__file__).parent
    rooms = [*room.glob("*.py"), *(room.parent / "target").glob("*.py")]
    assert len(rooms) > 15
    for path in rooms:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        bare = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}  # docstrings
        said = {getattr(n, "attr", "") or getattr(n, "id", "") for n in ast.walk(tree)}
        said |= {
            word
            for n in ast.walk(tree)
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in bare
            for word in re.findall(r"[a-z]+", n.value.lower())
        }
        assert not said & OF_THREADS, path.name

"""Streaming contractions: values mixed by weights of scores, in one kernel (Hopper).

out = cell(mix over s of value[s] by weight(score[m, s]), extras), where a score is a cell over
products and extras. A structured monoid (`online`) says how chunks of s merge; scores and weights
never leave registers: the first products' accumulators, rounded, are the second product's rows.
A producer warpgroup keeps rings of operand tiles full by bulk copies, and every consumer warpgroup
multiplies the next chunk's scores while it weighs the last one's values. Operands that bulk copies
refuse go through registers, in one warpgroup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from math import gcd

from axe_eq.errors import ScheduleError
from axe_eq.kernel.cells import IDENTITY
from axe_eq.kernel.expr import Expr, Int, Var, equal
from axe_eq.kernel.placement import number
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import Pipe
from axe_eq.kernel.threads.ir import span
from axe_eq.program.ops import MONOIDS
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.schedules import tiles
from axe_eq_backends.cuda.schedules.chunks import (
    GROUP_ROWS,
    MatrixOperand,
    Problem,
    Tensor,
    Tiling,
    Writer,
)  # fmt: skip
from axe_eq_backends.cuda.schedules.tensors import VECTOR_BYTES, thread_layout

GROUP_THREADS = 128
# Elements of an operand tile that one thread carries at a time on the way through registers.
CARRIED = 32


def stream(problem: Problem, tiling: Tiling, name: str = "stream") -> ir.Kernel:
    """The kernel.

    Raises:
        ScheduleError: tiles that matrix instructions do not take.
    """
    for what, size in (("chunk", tiling.s), ("width", tiling.q)):
        if size % 16 or not 0 < size <= 256:
            raise ScheduleError(f"{what} of {name}", f"{size}", "a multiple of 16 up to 256")
    writer = _Bulk if tiling.stages > 1 else _Carried
    return writer(problem, tiling, name).write()


class _Bulk(Writer):
    """A producer warpgroup and consumer warpgroups, over rings that bulk copies fill."""

    def __init__(self, problem: Problem, tiling: Tiling, name: str) -> None:
        self.consumers, self.stages = tiling.consumers, tiling.stages
        super().__init__(problem, tiling, name, 4 * (tiling.consumers + 1))

    def write(self) -> ir.Kernel:
        k, stages = self.k, self.stages
        self._declare()
        self.staged_out = self.p.out.bulk
        if self.staged_out:
            lead, size = (self.consumers, self.staged), DTYPES[self.p.out.dtype].itemsize
            lay = tiles.panels if self.p.out.major else tiles.transposed_panels
            layout = lay(lead, GROUP_ROWS, self.wide, size)
            shape = (*lead, GROUP_ROWS, self.wide)
            name = f"{self.p.out.name}_staging"
            self.staging = k.smem(name, self.p.out.dtype, shape, layout)
        rings = {"left": 1, "right": stages} if self.lefts else {}
        rings["values"] = stages
        self.full = {n: k.mbarriers(f"{n}_full", e) for n, e in rings.items()}
        self.empty = {n: k.mbarriers(f"{n}_empty", e) for n, e in rings.items()}
        self.turns = self.t.turns and self.consumers > 1
        if self.turns:
            self.turn = k.mbarriers("turn", self.consumers)
        with k.roles():
            with k.warpgroups(self.consumers, self.consumers + 1):
                self._produce()
            with k.warpgroups(0, self.consumers) as group:
                self._consume(group)
        return k.finish()

    # -- the producer --

    def _produce(self) -> None:
        k, t = self.k, self.t
        with k.one_thread():
            pipes = {n: k.pipe(full.slots, parity=1) for n, full in self.full.items()}
            values = pipes["values"]
            with self._tiles() as (batch, row, col):
                self._fill("left", self.lefts, pipes, batch, span(row, self.rows))
                with k.range(self.count, name="step") as step:
                    chunk = span(k.let("chunk", self._chunk(step)), t.s)
                    self._fill("right", self.rights, pipes, batch, chunk)
                    k.wait(self.empty["values"], values.stage, values.parity)
                    with k.arrives(self.full["values"], values.stage):
                        v = self.values
                        part = self._view(v.tensor, v.buffer, batch, span(col, t.q), chunk)
                        k.copy_async(v.ring[values.stage], part)
                    values.advance()

    def _fill(
        self,
        name: str,
        operands: Sequence[MatrixOperand],
        pipes: Mapping[str, Pipe],
        batch: Sequence[Int],
        rows: span,
    ) -> None:
        """Wait for a slot and load every operand's tile into it, over all of its depth."""
        if not operands:
            return
        k, pipe = self.k, pipes[name]
        k.wait(self.empty[name], pipe.stage, pipe.parity)
        with k.arrives(self.full[name], pipe.stage):
            for o in dict.fromkeys(operands):
                depth = span(0, number(o.ring.shape[2]))
                part = self._view(o.tensor, o.buffer, batch, rows, depth)
                k.copy_async(o.ring[pipe.stage], part)
        pipe.advance()

    # -- consumers --

    def _consume(self, group: Int) -> None:
        k = self.k
        self._registers()
        self.pipes = {n: k.pipe(full.slots) for n, full in self.full.items()}
        previous = k.state("previous", 0, high=self.stages - 1)
        # The first consumer's first turn needs nobody before it.
        turn = k.state("turn_parity", equal(group, 0), high=1) if self.turns else None
        with self._tiles() as (batch, row, col):
            row = k.let("group_row", row + group * GROUP_ROWS)
            if self.lefts:
                left = self.pipes["left"]
                k.wait(self.full["left"], left.stage, left.parity)
            extras = self._load_extras(batch, row, self._chunk(0))
            self._await_scores()
            self._multiply_scores(group)
            k.wait_group("wgmma", 0)
            self._free_scores()
            k.fill(self.mixed.all, 0.0)
            self._score(extras, 0)
            self._weigh(first=True)
            with k.range(self.count, 1, name="step") as step:
                extras = self._load_extras(batch, row, self._chunk(step))
                # Also where code stops: what weighed the last chunk stays before the wait below.
                self._await_scores()
                k.wait_group("wgmma", 0)
                with k.when(step > 1):
                    self._free_values(previous)
                    self._rescale()
                k.map(IDENTITY, self.weights.all, self.scores[0].all)
                if turn is not None:
                    k.wait(self.turn, group, turn)
                    k.assign(turn, turn ^ 1)
                self._multiply_scores(group)
                self._multiply_values(previous)
                if turn is not None:
                    with k.one_thread():
                        k.arrive(self.turn, (group + 1) % self.consumers)
                k.wait_group("wgmma", 1)
                self._free_scores()
                self._score(extras, step)
                self._weigh(first=False)
            self._finish_mix(previous)
            self._store_rows(batch, row, col)
            for panel in range(self.panels):
                self._store(group, batch, row, col, panel)
        if self.staged_out:
            with k.one_thread():
                k.wait_group("bulk", 0)

    def _finish_mix(self, previous: Var) -> None:
        """The last chunk's values."""
        k = self.k
        if self.lefts:
            self._free("left")
        if self.count != 1:
            k.wait_group("wgmma", 0)
            with k.when(self.count > 1) if isinstance(self.count, Expr) else nullcontext():
                self._free_values(previous)
                self._rescale()
        k.map(IDENTITY, self.weights.all, self.scores[0].all)
        self._multiply_values(previous)
        k.wait_group("wgmma", 0)
        self._free_values(previous)

    def _await_scores(self) -> None:
        if self.lefts:
            right = self.pipes["right"]
            self.k.wait(self.full["right"], right.stage, right.parity)

    def _free_scores(self) -> None:
        """Give the chunk of the scores' operands back to the producer."""
        if self.lefts:
            self._free("right")

    def _free(self, name: str) -> None:
        with self.k.one_thread():
            self.k.arrive(self.empty[name], self.pipes[name].stage)
        self.pipes[name].advance()

    def _free_values(self, previous: Var) -> None:
        with self.k.one_thread():
            self.k.arrive(self.empty["values"], previous)

    def _multiply_scores(self, group: Int) -> None:
        k = self.k
        for acc, a, b in zip(self.scores, self.lefts, self.rights, strict=False):
            # One consumer takes the whole tile, which begins where its swizzle does.
            first = group * GROUP_ROWS if self.consumers > 1 else 0
            rows = a.ring[0, span(first, GROUP_ROWS)]
            k.gemm_async(acc.all, rows, b.ring[self.pipes["right"].stage], accumulate=0)

    def _multiply_values(self, previous: Var) -> None:
        k, pipe = self.k, self.pipes["values"]
        k.wait(self.full["values"], pipe.stage, pipe.parity)
        k.gemm_async(self.mixed.all, self.weights.all, self.values.ring[pipe.stage], 1)
        k.assign(previous, pipe.stage)
        pipe.advance()

    def _store(self, group: Int, batch: Sequence[Int], row: Int, col: Int, panel: int) -> None:
        k = self.k
        if not self.staged_out:
            result = self._result(batch, row, col, panel)
            k.copy(self._place(batch, row, col, panel), result.all)
            return
        slot = self.staging[group, panel % self.staged]
        with k.one_thread():
            k.wait_group("bulk_read", self.staged - 1)
        k.sync()
        result = self._result(batch, row, col, panel)
        k.copy(slot, result.all)
        k.fence_async()
        k.sync()
        with k.one_thread():
            k.copy_async(self._place(batch, row, col, panel), slot)
            k.commit("bulk")


class _Carried(Writer):
    """One warpgroup that carries its operands through registers: any strides, any extents."""

    consumers, stages = 1, 1

    def __init__(self, problem: Problem, tiling: Tiling, name: str) -> None:
        if (tiling.consumers, tiling.stages) != (1, 1):
            wrong = f"{tiling.consumers} consumers, {tiling.stages} stages"
            raise ScheduleError(f"tiling of {name}", wrong, "one and 1, or at least 2 stages")
        super().__init__(problem, tiling, name, 4)

    def write(self) -> ir.Kernel:
        k = self.k
        self._declare()
        self._registers()
        with self._tiles() as (batch, row, col):
            for o in dict.fromkeys(self.lefts):
                self._carry(o, batch, row, 0)
            k.fill(self.mixed.all, 0.0)
            self._begin()
            with k.range(self.count, name="step") as step:
                chunk = k.let("chunk", self._chunk(step))
                for o in dict.fromkeys(self.rights):
                    self._carry(o, batch, chunk, 0)
                self._carry(self.values, batch, col, chunk)
                extras = self._load_extras(batch, row, chunk)
                k.fence_async()
                k.sync()
                for acc, a, b in zip(self.scores, self.lefts, self.rights, strict=False):
                    k.gemm_async(acc.all, a.ring[0], b.ring[0], accumulate=0)
                k.wait_group("wgmma", 0)
                self._score(extras, step)
                self._weigh(first=False)
                self._rescale()
                k.map(IDENTITY, self.weights.all, self.scores[0].all)
                k.gemm_async(self.mixed.all, self.weights.all, self.values.ring[0], accumulate=1)
                k.wait_group("wgmma", 0)
                k.sync()
            self._store_rows(batch, row, col)
            for panel in range(self.panels):
                result = self._result(batch, row, col, panel)
                k.copy(self._place(batch, row, col, panel), result.all)
        return k.finish()

    def _begin(self) -> None:
        """Nothing mixed yet: the statistic's unit, and no weights."""
        unit = MONOIDS[self.p.monoid.statistic].unit
        if unit is None:
            raise ScheduleError(f"monoid {self.p.monoid.statistic}", "has no unit", "one")
        self.k.fill(self.top.all, unit)
        self.k.fill(self.total.all, 0.0)

    def _carry(self, o: MatrixOperand, batch: Sequence[Int], mn: Int, depth: Int) -> None:
        """An operand's tile to shared memory, some lines of its contiguous dim at a time."""
        k, size = self.k, DTYPES[o.tensor.dtype].itemsize
        _, rows, cols = map(number, o.ring.shape)
        lines, run = (rows, cols) if o.tensor.major else (cols, rows)
        wide, across, down = _spread(lines, run, VECTOR_BYTES // size)
        repeats = gcd(lines // down, max(1, CARRIED * across // run))
        taken = down * repeats
        layout = thread_layout((repeats, down), (run // across // wide, across), wide)
        held = k.reg(o.tensor.name, o.tensor.dtype, (taken, run), layout)
        for first in range(0, lines, taken):
            here, there = span(first, taken), span(0, run)
            at, along = (mn, depth) if o.tensor.major else (depth, mn)
            spans, places = [span(at + first, taken), span(along, run)], [here, there]
            if not o.tensor.major:
                spans, places = spans[::-1], places[::-1]
            source = self._view(o.tensor, o.buffer, batch, spans[0], spans[1])
            target = o.ring[0, places[0], places[1]]
            if not o.tensor.major:
                source, target = source.T, target.T
            k.copy(held.all, source)
            k.copy(target, held.all)


def _spread(lines: int, run: int, wide: int) -> tuple[int, int, int]:
    """(elements of a vector, vectors of a line, lines) that a warpgroup carries at once."""
    while True:
        across = gcd(run // wide, GROUP_THREADS)
        down = GROUP_THREADS // across
        if lines % down == 0 or wide == 1:
            return wide, across, down
        wide //= 2


__all__ = ["Problem", "Tensor", "Tiling", "stream"]

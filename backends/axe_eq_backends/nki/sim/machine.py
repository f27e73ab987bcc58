"""What a NeuronCore limits, read off its target: numbers that checks and the timeline ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from axe_eq.target import Target
from axe_eq_backends.nki import target as targets
from axe_eq_backends.nki.instrs import MIN_CYCLES
from axe_eq_backends.nki.sim.errors import NkiError
from axe_eq_backends.nki.timing import dma_ns, engine_ns


@dataclass(frozen=True)
class Machine:
    """One NeuronCore.

    Attributes:
        name: of the target.
        generation: 2, 3 or 4 (NeuronCore-v2, -v3, -v4).
        sbuf_bytes, psum_bytes: per partition.
        bank_bytes: of one bank of PSUM, per partition.
        most_moving: columns of the moving operand of a product.
        ghz: clock of each engine.
        dma_bytes_per_ns: of all queues together.
        dma_half_run: bytes of a contiguous run that moves at half of the rate.
        dma_latency_ns: from the end of a transfer to its completion.
        dma_queues: that work side by side.
        warned_instructions: number from which a kernel is called large.
        rates: "engine.row" of the target's instructions -> cycles per element of a partition, or
            per column of a product.
    """

    name: str
    generation: int
    sbuf_bytes: int
    psum_bytes: int
    bank_bytes: int
    most_moving: int
    ghz: Mapping[str, float]
    dma_bytes_per_ns: float
    dma_half_run: float
    dma_latency_ns: float
    dma_queues: int
    warned_instructions: int
    rates: Mapping[str, float]
    partitions: int = targets.PARTITIONS
    most_stationary: int = 128
    least_cycles: int = MIN_CYCLES

    def ns(self, engine: str, row: str, elements: float) -> float:
        """Time that an engine takes for so many elements per partition, by a row's figures.

        An instruction that the target has no row for takes what a copy takes on that engine.
        """
        each = self.rates.get(row, self.rates.get(f"{engine}.copy", 1.0))
        return engine_ns(self.ghz[engine] * 1e9, each, elements, self.least_cycles)

    def dma_ns(self, n_bytes: int, run_bytes: int) -> float:
        """Time that a transfer takes of all queues together, in which latencies overlap."""
        latency = self.dma_latency_ns / self.dma_queues
        return dma_ns(n_bytes, run_bytes, self.dma_bytes_per_ns * 1e9, self.dma_half_run, latency)

    @property
    def psum_banks(self) -> int:
        """Banks of PSUM per partition."""
        return self.psum_bytes // self.bank_bytes


def machine_of(target: Target) -> Machine:
    """A target of family nki as the simulator asks it."""
    memories = {m.name: m for m in target.memories}
    per_partition = {n: m.n_bytes // targets.PARTITIONS for n, m in memories.items()}
    engines, limits = {e.name: e for e in target.engines}, target.limits
    generation = int(limits["generation"])
    return Machine(
        name=target.name,
        generation=generation,
        sbuf_bytes=per_partition["sbuf"],
        psum_bytes=per_partition["psum"],
        bank_bytes=memories["psum"].bank_bytes,
        # 512 columns fill a bank with f32; NeuronCore-v4 writes across banks (nki.isa.nc_matmul).
        most_moving=512 if generation < 4 else 4096,
        ghz={name: engine.hz / 1e9 for name, engine in engines.items()},
        dma_bytes_per_ns=(memories["hbm"].bytes_per_s or 0.0) / 1e9,
        dma_half_run=limits["dma_half_run_bytes"],
        dma_latency_ns=limits["dma_latency_ns"],
        dma_queues=engines["dma"].queues,
        warned_instructions=int(limits["instructions"]),
        rates=_rates(target),
    )


def _rates(target: Target) -> dict[str, float]:
    out: dict[str, float] = {}
    for row in target.instrs:
        for limit in ("element_cycles", "column_cycles"):
            if limit in row.limits:
                out[row.name] = row.limits[limit]
        if "f32_column_cycles" in row.limits:
            out[f"{row.name}_f32"] = row.limits["f32_column_cycles"]
    return out


def machine(target: str | Target | Machine) -> Machine:
    """The machine of a target or of its name; a machine itself.

    Raises:
        NkiError: no target of Trainium has that name.
    """
    if isinstance(target, Machine):
        return target
    if isinstance(target, Target):
        return machine_of(target)
    known = {t.name: t for t in vars(targets).values() if isinstance(t, Target)}
    if target not in known:
        raise NkiError(f"target {target!r}", "is none of Trainium", f"one of {' '.join(known)}")
    return machine_of(known[target])

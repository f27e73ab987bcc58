"""What a generation of NeuronCore limits: the numbers that checks and the timeline ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from axe_eq_backends.nki.sim.errors import NkiError

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")


@dataclass(frozen=True)
class Machine:
    """One NeuronCore.

    Attributes:
        name: of the target.
        generation: 2, 3 or 4 (NeuronCore-v2, -v3, -v4).
        sbuf_bytes: per partition.
        psum_banks: per partition.
        bank_bytes: of one bank of PSUM, per partition.
        moving: most columns of the moving operand of a product.
        ghz: clock of each engine.
        dma_bytes_per_ns: of all queues together.
        dma_run_bytes: what a contiguous run costs beside its bytes, in bytes.
        dma_latency_ns: from the end of a transfer to its completion.
        dma_queues: that work side by side.
    """

    name: str
    generation: int
    sbuf_bytes: int
    psum_banks: int
    bank_bytes: int
    moving: int
    ghz: Mapping[str, float]
    dma_bytes_per_ns: float
    dma_run_bytes: float = 0.0
    dma_latency_ns: float = 1300.0
    dma_queues: int = 16
    partitions: int = 128
    stationary: int = 128

    @property
    def psum_bytes(self) -> int:
        """Of PSUM per partition."""
        return self.psum_banks * self.bank_bytes


def _clocks(tensor: float, vector: float, scalar: float, gpsimd: float) -> dict[str, float]:
    return dict(zip(ENGINES, (tensor, vector, scalar, gpsimd, scalar), strict=True))


# NKI architecture guides, trainium_inferentia2_arch, trainium2_arch, trainium3_arch; DMA rates from
# the NKI DMA bandwidth guide.
MACHINES = {
    "trn1": Machine("trn1", 2, 192 << 10, 8, 2048, 512, _clocks(2.8, 1.12, 1.4, 1.4), 272.0),
    "trn2": Machine("trn2", 3, 224 << 10, 8, 2048, 512, _clocks(2.4, 0.96, 1.2, 1.2), 368.0),
    "trn3": Machine("trn3", 4, 256 << 10, 8, 2048, 4096, _clocks(2.4, 1.2, 1.2, 1.2), 528.0),
}


def machine(name: str) -> Machine:
    """The machine of that name.

    Raises:
        NkiError: there is none.
    """
    if name not in MACHINES:
        raise NkiError(f"target {name!r}", "is none of Trainium", f"one of {' '.join(MACHINES)}")
    return MACHINES[name]

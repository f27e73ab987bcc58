"""Constants of `nki.isa`."""

from __future__ import annotations

from enum import Enum


class engine(Enum):
    """Engines of a NeuronCore."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class reduce_cmd(Enum):
    """What an instruction does with the registers that reductions add up in."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Enum):
    """Who writes the descriptors of a DMA."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Enum):
    """What an index out of bounds does."""

    error = 0
    skip = 1


class matmul_perf_mode(Enum):
    """How a product packs its operands."""

    none = "none"
    double_row = "double_row"
    double_column = "double_column"
    double_pixel = "double_pixel"


class dma_engine(Enum):
    """Which DMA engines move."""

    dma = 1
    gpsimd_dma = 2


class nc_version(Enum):
    """Generations, in order."""

    gen2 = 2
    gen3 = 3
    gen4 = 4

    def __ge__(self, other: nc_version) -> bool:
        return self.value >= other.value

    def __gt__(self, other: nc_version) -> bool:
        return self.value > other.value

    def __le__(self, other: nc_version) -> bool:
        return self.value <= other.value

    def __lt__(self, other: nc_version) -> bool:
        return self.value < other.value


CONSTANTS = (engine, reduce_cmd, dge_mode, oob_mode, matmul_perf_mode, dma_engine, nc_version)

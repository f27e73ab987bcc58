"""A target is a machine as data; nothing here knows which machine it is.

Compilers read targets, they never test their names: a changed copy (`Target.replace`) is a machine
of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import add
from types import MappingProxyType
from typing import Any

from axe_eq.errors import PackError

COMBINED: Mapping[str, Callable[[float, float], float] | None] = MappingProxyType(
    {"total": add, "peak": max, "own": None}
)


_NAMES = frozenset({"name", "unit", "source"})  # fields of a target that are no figures


@dataclass(frozen=True)
class Memory:
    """One memory of a machine.

    Attributes:
        name: how kernels name it ("gmem", "smem", "reg", ...).
        axes: the layout axes it owns.
        n_bytes: capacity of one instance.
        scope: the scope that shares one instance ("device", "cta", "thread", ...).
        bytes_per_s: rate over the whole machine; 0 where nobody measured it.
        accumulates: writes may add to what is there (PSUM, TMEM).
    """

    name: str
    axes: tuple[str, ...]
    n_bytes: int
    scope: str
    bytes_per_s: float = 0.0
    accumulates: bool = False


@dataclass(frozen=True)
class Instr:
    """One row of a target's instruction table.

    Attributes:
        name: name of the row.
        primitive: the kernel-language primitive it implements ("gemm", "copy", "map", ...).
        shape: extents of one call; for a gemm (m, n, k).
        dtypes: accepted operand dtypes, one tuple per accepted combination.
        scope: who issues it ("thread", "warp", "warpgroup", "engine", ...).
        completion: how completion is seen ("sync", "mbarrier", "commit_group", "wait_group", ...).
        proxy: the memory proxy its accesses go through ("generic", "async", ...).
        flops_per_s: rate of the whole machine when only this row runs; 0 where it does not compute.
        efficiency: factor on the rate per named operand form (a swizzle width, say); "" is the
            default.
        operands: layout patterns with unknowns, per operand name, in the form its backend's
            dispatch reads.
        limits: named limits (alignments, box sizes, register counts).
    """

    name: str
    primitive: str
    shape: tuple[int, ...] = ()
    dtypes: tuple[tuple[str, ...], ...] = ()
    scope: str = "thread"
    completion: str = "sync"
    proxy: str = "generic"
    flops_per_s: float = 0.0
    efficiency: Mapping[str, float] = field(default_factory=dict)
    operands: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """A machine.

    Rates are those of the whole machine, not of one unit, in bytes, operations and seconds: a copy
    with other `n_units` keeps them. ``axe targets NAME`` prints them.

    Attributes:
        name: "cpu", "h200", ...
        family: the backend that emits and runs for it ("cpu", "cuda", "nki").
        n_units: independent compute units (SMs, cores, NeuronCores).
        unit: what they are called.
        memories: all memories, outermost first; the first one holds program values.
        scopes: the kernel-language scopes that exist, outermost first.
        instrs: instruction rows.
        vector_flops_per_s: rate of ordinary arithmetic over the whole machine, f32; a
            multiplication with an addition is two.
        launch_s: time between dependent kernel launches.
        link_bytes_per_s: per-device rate to its peers; 0 where it has none.
        link_latency_s: latency of one message or collective step.
        limits: named limits (threads per block, registers, ...).
        choices: sizes that kernels may have, by name (threads of a row, warps of a block, bytes of
            a vector, ...): what schedules with candidates choose among.
        costs: how the kernels' cost columns make the cost of a schedule, by column: "total" (what
            is not named), "peak" (capacities: what the largest kernel needs) or "own" (a kernel's
            alone, as the parts of its time that overlap).
        source: where the figures come from.
    """

    name: str
    family: str
    n_units: int
    unit: str
    memories: tuple[Memory, ...]
    scopes: tuple[str, ...] = ("device",)
    instrs: tuple[Instr, ...] = ()
    vector_flops_per_s: float = 1e9
    launch_s: float = 0.0
    link_bytes_per_s: float = 0.0
    link_latency_s: float = 0.0
    limits: Mapping[str, int] = field(default_factory=dict)
    choices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    costs: Mapping[str, str] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        for name, how in self.costs.items():
            if how not in COMBINED:
                wrong = f"combines cost {name!r} by {how!r}"
                raise PackError(f"target {self.name!r}", wrong, f"one of {' '.join(COMBINED)}")

    def total_costs(self, kernels: Iterable[Mapping[str, float]]) -> dict[str, float]:
        """The cost columns of several kernels as those of all together, see `costs`."""
        total: dict[str, float] = {}
        for kernel in kernels:
            for name, value in kernel.items():
                combine = COMBINED[self.costs.get(name, "total")]
                if combine is not None:
                    total[name] = combine(total.get(name, 0.0), value)
        return total

    def memory(self, name: str) -> Memory:
        """The memory called `name`.

        Raises:
            PackError: the target has no such memory.
        """
        for memory in self.memories:
            if memory.name == name:
                return memory
        known = " ".join(m.name for m in self.memories)
        raise PackError(f"target {self.name!r}", f"has no memory {name!r}", f"one of {known}")

    def sizes(self, name: str) -> tuple[int, ...]:
        """The sizes that kernels choose among, see `choices`.

        Raises:
            PackError: the target names none so.
        """
        if name not in self.choices:
            known = " ".join(self.choices) or "none"
            raise PackError(f"target {self.name!r}", f"has no sizes {name!r}", f"one of {known}")
        return self.choices[name]

    def rows(self, primitive: str) -> tuple[Instr, ...]:
        """Instruction rows that implement a primitive."""
        return tuple(row for row in self.instrs if row.primitive == primitive)

    def replace(self, **changes: Any) -> Target:
        """A changed copy. A memory's name as keyword sets its capacity: ``replace(smem=1 << 16)``.

        Rates stay, those of memories and instruction rows too, which are the whole machine's: a
        copy with twice the units, and nothing else, is no faster. The source of figures says
        which of them were changed, where `source` is not given.

        Raises:
            PackError: a keyword is neither a field nor a memory.
        """
        known = {f.name for f in fields(self)}
        figures = [name for name in changes if name not in _NAMES]
        if figures and "source" not in changes:
            changes["source"] = f"{self.name} ({self.source}), with {', '.join(figures)} changed"
        memories = list(changes.pop("memories", self.memories))
        for name in [k for k in changes if k not in known]:
            self.memory(name)
            size = changes.pop(name)
            memories = [replace(m, n_bytes=size) if m.name == name else m for m in memories]
        return replace(self, memories=tuple(memories), **changes)

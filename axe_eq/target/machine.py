"""A target is a machine as data; nothing here knows which machine it is.

Compilers read targets, they never test their names: a changed copy (`Target.replace`) is a machine
of its own. ``axe targets NAME`` prints one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cached_property
from math import prod
from operator import add
from types import MappingProxyType
from typing import Any, Self

from axe_eq.errors import PackError

COMBINED: Mapping[str, Callable[[float, float], float] | None] = MappingProxyType(
    {"total": add, "peak": max, "own": None}
)


GLOBAL, SHARED, PRIVATE = "global", "shared", "private"
KINDS = (GLOBAL, SHARED, PRIVATE)
_NAMES = frozenset({"name", "unit", "source"})  # fields of a target that are no figures


@dataclass(frozen=True)
class Memory:
    """One memory of a machine.

    Attributes:
        name: how kernels name it ("gmem", "smem", "reg", ...).
        axes: the layout axes it owns; the last one counts elements.
        n_bytes: capacity of one instance.
        scope: the level that shares one instance ("device", "cta", "thread", ...).
        bytes_per_s: rate over the whole machine; 0 where nobody measured it.
        accumulates: writes may add to what is there (PSUM, TMEM).
        kind: who sees it: "global" (all; arguments lie there), "shared" (those who run one instance
            of a kernel), "private" (each issuer its own). Where it is not said, "global" if the
            device has one instance, else "shared".
        extents: places along every axis but the last, such as 128 partitions, which share
            `n_bytes` evenly; () where the last axis is all of it.
        bank_bytes: size of a bank; a sum lies inside one, or fills whole ones; 0 for no banks.
        align_bytes: bytes that buffers begin at a multiple of.
        latency_s: seconds until a read is answered; 0 where nobody measured it.
    """

    name: str
    axes: tuple[str, ...]
    n_bytes: int
    scope: str
    bytes_per_s: float = 0.0
    accumulates: bool = False
    kind: str = ""
    extents: tuple[int, ...] = ()
    bank_bytes: int = 0
    align_bytes: int = 1
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", GLOBAL if self.scope == "device" else SHARED)
        if self.kind not in KINDS:
            wrong = f"is of kind {self.kind!r}"
            raise PackError(f"memory {self.name!r}", wrong, f"one of {' '.join(KINDS)}")
        if len(self.extents) not in (0, len(self.axes) - 1):
            wrong = f"has extents {self.extents} of axes {' '.join(self.axes)}"
            raise PackError(f"memory {self.name!r}", wrong, "one for every axis but the last")

    @property
    def place_bytes(self) -> int:
        """Bytes along the last axis, at one place of the others."""
        return self.n_bytes // prod(self.extents)


@dataclass(frozen=True)
class Level:
    """One level of a machine's hierarchy, which is a scope of its kernels.

    Attributes:
        name: "device", "cta", "warp", "engine", ...
        extent: how many of it one of the level around it has at most; 0 for any number.
    """

    name: str
    extent: int = 0


@dataclass(frozen=True)
class Engine:
    """A unit that issues its instructions in order, beside others, and itself waits for their data.

    Attributes:
        name: rows of the instruction table name it as their `scope`.
        hz: its clock.
        queues: instructions that it works on at a time.
    """

    name: str
    hz: float
    queues: int = 1


@dataclass(frozen=True)
class Completion:
    """A way to see that asynchronous work has ended.

    Attributes:
        name: how rows (`Instr.completion`) and statements that wait name it.
        scopes: the scopes that may wait for it; () for all.
        closed: whoever issued the work closes a group of it first.
    """

    name: str
    scopes: tuple[str, ...] = ()
    closed: bool = False


@dataclass(frozen=True)
class Link:
    """What joins a device to its peers.

    A machine of machines has several, the nearest first: NVLink joins 8 devices, and a network any
    number of them.

    Attributes:
        bytes_per_s: rate of one device, each way.
        latency_s: of one exchange, beside what its messages take.
        name: what it is called.
        per_message_s: what every message of a device costs it beside its bytes.
        n_devices: how many it joins, numbered one after another; 0 for any number.
        beside: devices compute while it carries messages, so their time can be hidden.
        wait_s: devices that it joins see each other's memory, and wait for each other so long
            before they read what others made; 0 where they do not see it.
        signal_s: what they wait where kernels tell and ask each other, see
            `axe_eq.schedule.meeting`; 0 where no instructions do.
        tell_s: likewise where kernels tell others tile by tile what they have stored: of one chunk,
            for every further one, and for what a device stores as a part of the time that this
            takes over the link; none where no instructions do.
        bulk: rate and latency of exchanges so large that they end earlier by these; none by
            default. A library may send large messages in another way than small ones.
        packs: bytes read and written a second where a device copies what does not lie dense: into
            messages before they are sent, out of them after, and what it keeps; 0 where the link
            carries such parts as they lie.
    """

    bytes_per_s: float
    latency_s: float = 0.0
    name: str = "link"
    per_message_s: float = 0.0
    n_devices: int = 0
    beside: bool = False
    wait_s: float = 0.0
    signal_s: float = 0.0
    tell_s: tuple[float, float, float] | None = None
    bulk: tuple[float, float] | None = None
    packs: float = 0.0

    def seconds(self, n_bytes: int, n_messages: int) -> float:
        """What an exchange takes whose busiest device moves so much over the link."""
        least = self.latency_s + n_bytes / self.bytes_per_s
        if self.bulk is not None:
            rate, latency = self.bulk
            least = min(least, latency + n_bytes / rate)
        return least + n_messages * self.per_message_s


@dataclass(frozen=True)
class Instr:
    """One row of a target's instruction table.

    Attributes:
        name: name of the row.
        primitive: the kernel-language primitive it implements ("gemm", "copy", "map", ...).
        shape: extents of one call; for a gemm (m, n, k).
        dtypes: accepted operand dtypes, one tuple per accepted combination.
        scope: the level or the engine that issues it ("thread", "warpgroup", "tensor", ...); ""
            where any that reaches the statement does.
        completion: name of the `Completion` that shows its end; "sync" where it has ended when the
            next statement is reached.
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
    scope: str = ""
    completion: str = "sync"
    proxy: str = "generic"
    flops_per_s: float = 0.0
    efficiency: Mapping[str, float] = field(default_factory=dict)
    operands: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The family of rows that share derivation, meaning and text: its name up to a dot."""
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Target:
    """A machine.

    Rates are those of the whole machine, not of one unit, in bytes, operations and seconds: a copy
    with other `n_units` keeps them. ``axe targets NAME`` prints them.

    >>> from axe_eq_backends.cuda.target import h200
    >>> h200.n_units, h200.replace(n_units=66).n_units
    (132, 66)

    Attributes:
        name: "cpu", "h200", ...
        family: the backend that emits and runs for it ("cpu", "cuda", "nki").
        n_units: independent compute units (SMs, cores, NeuronCores).
        unit: what they are called.
        memories: all memories, outermost first; the first one holds program values.
        levels: its hierarchy, outermost first: the scopes of its kernels. A text is a level with
            any number of it.
        instrs: instruction rows.
        vector_flops_per_s: rate of ordinary arithmetic over the whole machine, f32; a
            multiplication with an addition is two.
        launch_s: time between dependent kernel launches.
        links: what joins it to its peers, the nearest first; () where it has none.
        limits: named limits (registers, bytes of a cache, ...), none of which is a level's extent.
        choices: sizes that kernels may have, by name (threads of a row, warps of a block, bytes of
            a vector, ...): what schedules choose among.
        figures: what cost models fitted to measurements, by name with its unit; `source` says
            where and when.
        costs: cost column -> how a schedule's is made of its kernels': "total" (their sum; also of
            columns that are not named here), "peak" (the largest, as of capacities) or "own" (none:
            it says something of one kernel, as the parts of its time that overlap).
        kept: layouts beside dense row-major in which its first memory may keep values: some of
            `axe_eq.schedule.kept.KINDS`, or forms of blocks, see `kept_layouts` there.
        source: where the figures come from.
        corrections: factors on estimates, from measurements on one machine: the name of a schedule,
            or its name and an instruction row ("register_products mma.f16"), -> factor.
        engines: what issues instructions side by side; () where levels do.
        completions: ways to see that asynchronous work has ended.
    """

    name: str
    family: str
    n_units: int
    unit: str
    memories: tuple[Memory, ...]
    levels: tuple[Level, ...] = (Level("device", 1),)
    instrs: tuple[Instr, ...] = ()
    vector_flops_per_s: float = 1e9
    launch_s: float = 0.0
    links: tuple[Link, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    choices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ("padded",)
    source: str = ""
    engines: tuple[Engine, ...] = ()
    completions: tuple[Completion, ...] = ()
    corrections: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """All of it, as one text that tells machines apart."""
        return json.dumps(asdict(self), default=repr, sort_keys=True)

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """A target; keywords of before are named with what replaced them."""
        _refuse_renamed(f"target {named.get('name', (*given, '')[0])!r}", named)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        levels = tuple(Level(x) if isinstance(x, str) else x for x in self.levels)
        object.__setattr__(self, "levels", levels)
        for limit in self.limits:
            inner, _, outer = limit.partition("_per_")
            if {inner.removesuffix("s"), outer} <= {level.name for level in levels}:
                expected = f"extents of levels: levels=(..., Level({inner.removesuffix('s')!r}, 1))"
                raise PackError(f"target {self.name!r}", f"has limit {limit!r}", expected)
        issuers = {*self.scopes, *(engine.name for engine in self.engines)}
        for row in self.instrs:
            if row.scope and row.scope not in issuers:
                wrong = f"is issued by {row.scope!r}, no level or engine of it"
                raise self._wrong_row(row, wrong, f"one of {' '.join(sorted(issuers))}")
            if row.completion != "sync" and self.completion(row.completion) is None:
                known = " ".join(("sync", *(c.name for c in self.completions)))
                wrong = f"completes by {row.completion!r}, no completion of it"
                raise self._wrong_row(row, wrong, f"one of {known}")
        for name, how in self.costs.items():
            if how not in COMBINED:
                wrong = f"combines cost {name!r} by {how!r}"
                raise PackError(f"target {self.name!r}", wrong, f"one of {' '.join(COMBINED)}")

    def _wrong_row(self, row: Instr, wrong: str, expected: str) -> PackError:
        return PackError(f"target {self.name!r}, row {row.name!r}", wrong, expected)

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

    @property
    def scopes(self) -> tuple[str, ...]:
        """Names of its levels, outermost first."""
        return tuple(level.name for level in self.levels)

    def most(self, inner: str, outer: str) -> int:
        """How many of a level there are at most in one of a level around it; 0 for any number.

        Raises:
            PackError: one of them is no level of it, or the first is not inside the second.
        """
        names = self.scopes
        if inner not in names or outer not in names[: names.index(inner)]:
            wrong = f"has no level {inner!r} inside a level {outer!r}"
            raise PackError(f"target {self.name!r}", wrong, f"two of {' '.join(names)}, in order")
        inside = self.levels[names.index(outer) + 1 : names.index(inner) + 1]
        return prod(level.extent for level in inside)

    def completion(self, name: str) -> Completion | None:
        """The completion called `name`; None where it has none."""
        return next((c for c in self.completions if c.name == name), None)

    def sizes(self, name: str) -> tuple[int, ...]:
        """The sizes that kernels choose among, see `choices`.

        Raises:
            PackError: the target names none so.
        """
        found: tuple[int, ...] = self._named("choices", "sizes", name)
        return found

    def figure(self, name: str) -> float:
        """A fitted figure of cost models, see `figures`.

        Raises:
            PackError: the target has none so.
        """
        found: float = self._named("figures", "figure", name)
        return found

    def _named(self, table: str, what: str, name: str) -> Any:
        held = getattr(self, table)
        if name not in held:
            known = " ".join(held) or "none"
            raise PackError(
                f"target {self.name!r}", f"has no {what} {name!r}", f"one of {known}",
                hint=f"target.replace({table}={{**target.{table}, NAME: ..}}) changes one of all",
            )  # fmt: skip
        return held[name]

    def correction(self, schedule: str, row: str = "") -> float:
        """The factor on an estimate, see `corrections`."""
        known = self.corrections
        return known.get(f"{schedule} {row}", known.get(schedule, 1.0))

    def rows(self, primitive: str) -> tuple[Instr, ...]:
        """Instruction rows that implement a primitive."""
        return tuple(row for row in self.instrs if row.primitive == primitive)

    def replace(self, **changes: Any) -> Target:
        """A changed copy: ``replace(smem=1 << 16, cluster=4)``.

        A memory's name as keyword sets its capacity, a level's its extent. `choices` and `figures`
        are replaced as a whole: ``choices={**target.choices, "product_rows": (64,)}``.

        All rates are the whole machine's, and they stay: a copy with twice the units, and
        nothing else changed, is no faster. Where `source` is not given, it then says which
        figures were changed.

        Raises:
            PackError: a keyword is neither a field nor a memory or level, or a choice is none.
        """
        _refuse_renamed(f"target {self.name!r}", changes)
        for name, sizes in changes.get("choices", {}).items():
            self._check_choice(name, sizes)
        known = {f.name for f in fields(self)}
        figures = [name for name in changes if name not in _NAMES]
        if figures and "source" not in changes:
            changes["source"] = f"{self.name} ({self.source}), with {', '.join(figures)} changed"
        memories = list(changes.pop("memories", self.memories))
        levels = list(changes.pop("levels", self.levels))
        for name in [k for k in changes if k not in known]:
            size = changes.pop(name)
            if name in self.scopes:
                levels = [replace(x, extent=size) if x.name == name else x for x in levels]
                continue
            if name not in (places := [m.name for m in self.memories]):
                wanted = ", ".join((*sorted(known), *places, *self.scopes))
                raise PackError(
                    f"target {self.name!r}", f"has no field, memory or level {name!r}", wanted
                )
            memories = [replace(m, n_bytes=size) if m.name == name else m for m in memories]
        return replace(self, memories=tuple(memories), levels=tuple(levels), **changes)

    def _check_choice(self, name: str, sizes: object) -> None:
        """Refuse a name that is one of the machine's misspelt, and sizes that no kernel has."""
        near = get_close_matches(name, self.choices, 1, cutoff=0.9)
        if name not in self.choices and near:
            raise PackError(f"target {self.name!r}", f"has no choice {name!r}", near[0])
        least = 0 if 0 in self.choices.get(name, ()) else 1
        if not isinstance(sizes, tuple) or any(type(n) is not int or n < least for n in sizes):
            expected = f"a tuple of integers from {least} on"
            raise PackError(f"target {self.name!r}", f"is given {name}={sizes!r}", expected)


_LINKS = "links=(Link(bytes_per_s, latency_s),)"
_RENAMED = {"scopes": "levels", "link_bytes_per_s": _LINKS, "link_latency_s": _LINKS}


def _refuse_renamed(thing: str, named: Iterable[str]) -> None:
    for name in named:
        if name in _RENAMED:
            raise PackError(thing, f"is given {name}", _RENAMED[name])

"""Transports: what carries a plan's messages between ranks. Packs register them by name.

``Pack(..., transports={"mpi": MpiTransport()})``. A transport opens a session per rank; the loop
that runs a plan (`run_rank`) is the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from axe_eq.errors import DeviceError
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.rank import Memory, Rank
from axe_eq.mesh.steps import ExchangeStep
from axe_eq.program.types import Array


class Arrays(Memory, Protocol):
    """The library of a rank's memory and shards."""

    def given(self, array: Any, name: str) -> Any:
        """A shard as this library's array, copied only where it lies elsewhere.

        Raises:
            ArgumentError: not an array.
        """

    def like(self, given: Sequence[Any], result: Any) -> Any:
        """A result in the library of the shards given."""

    def host(self, array: Any) -> Array:
        """The array for numpy, after all work on it."""

    def digest(self, array: Any) -> str:
        """A digest of a shard: equal for equal bytes."""


class Session(Protocol):
    """One rank's end of a transport.

    Of devices it may have `again(run, plan)`, which makes of a call one that does the same work on
    the same memory over and over.

    Attributes:
        rank: this process's rank.
        n_ranks: how many there are.
        arrays: where shards and buffers lie; `axe_eq.run.host.HOST_ARRAYS` is numpy.
    """

    rank: int
    n_ranks: int
    arrays: Arrays

    def exchange(self, step: ExchangeStep, rank: Rank) -> int:
        """Do an exchange: `rank.keep`, and all messages; the bytes that were sent."""

    def share(self, mine: bytes) -> list[bytes]:
        """What every rank says, by rank; all ranks call it together."""

    def abort(self, error: BaseException) -> None:
        """End all ranks, because this one cannot go on."""


class Exchanges(Protocol):
    """What carries the messages of all ranks at once."""

    def exchange(self, step: ExchangeStep, ranks: Sequence[Rank]) -> Sequence[int]:
        """Do an exchange, or begin it (`Rank.arriving`); the bytes that every rank sends."""


class Together(Exchanges, Protocol):
    """All ranks of a transport that needs one process.

    Where devices see each other's memory it has `windows(plan)`, which gives calls of a plan that
    follow each other memory: `begin()` is asked before each for every rank's
    `axe_eq.mesh.rank.Windows`, and `end()` called after its last step.

    Attributes:
        n_ranks: how many there are.
        arrays: per rank, where its shards and buffers lie.
    """

    n_ranks: int
    arrays: Sequence[Arrays]


class Transport(Protocol):
    """A way between ranks.

    Attributes:
        name: how it is asked for.
        on_device: whether ranks run the target's own kernels, on its devices; else local steps run
            on the `cpu` runner.
        one_process: whether one process has all ranks.

    One may say `sees = True`: its devices see each other's memory, see `Together`. On others plans
    whose kernels do send messages instead.
    """

    name: str
    on_device: bool
    one_process: bool

    def open(self, n_ranks: int) -> Any:
        """This process's `Session`; `Together` where it has all ranks.

        Raises:
            MissingPackage: says which extra to install.
            DeviceError: another number of processes was started.
        """

    def command(self, n_ranks: int) -> list[str]:
        """The command, to be continued by a program's own, that starts so many processes of it.

        One that needs one process has none.

        Raises:
            MissingPackage, DeviceError: there is none here.
        """


def find_transport(name: str, known: Mapping[str, Transport]) -> Transport:
    """A transport by its name.

    Raises:
        DeviceError: no installed pack has one of that name.
    """
    if name not in known:
        wanted = f"one of {' '.join(sorted(known))}" if known else "a pack with transports"
        raise DeviceError(f"transport {name!r}", "no installed pack has it", wanted)
    return known[name]


def run_rank(rank: Rank, session: Session) -> None:
    """Run a rank's steps; exchanges go through a session, and what is sent is counted."""
    plan = rank.plan
    for number, step in enumerate(plan.steps):
        rank.alone(step)
        if isinstance(step, ExchangeStep) and plan.is_carried(step):
            rank.sent[step.name] = session.exchange(step, rank)
        rank.forget(number)


def run_ranks(ranks: Sequence[Rank], session: Exchanges) -> None:
    """Run all ranks' steps, side by side."""
    plan = ranks[0].plan
    for number, step in enumerate(plan.steps):
        for rank in ranks:
            rank.alone(step)
        if isinstance(step, ExchangeStep) and plan.is_carried(step):
            for rank, sent in zip(ranks, session.exchange(step, ranks), strict=True):
                rank.sent[step.name] = sent
        for rank in ranks:
            rank.forget(number)


def traced(plan: MeshPlan, ranks: Sequence[Mapping[str, int]]) -> dict[str, tuple[int, ...]]:
    """Exchange -> bytes that every rank sent, from the traces of all ranks."""
    return {s.name: tuple(sent[s.name] for sent in ranks) for s in plan.exchanges}

"""A compiled program on one rank of a mesh, or on all in one process: `Executable.on`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from axe_eq.errors import ArgumentError
from axe_eq.mesh.given import check_reports, report, report_wrong
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.rank import Locals, Rank, part_of, whole_of
from axe_eq.mesh.transport import Session, Together, run_rank, run_ranks
from axe_eq.program.nesting import flatten, unflatten
from axe_eq.program.types import Array, value_type
from axe_eq.run.call import Call

Result = TypeVar("Result")


def check_shards(plan: MeshPlan, session: Session, shards: Mapping[str, Any]) -> None:
    """Check a rank's shards together with all other ranks.

    Raises:
        ArgumentError: shards that are no parts of the declared layouts, on all ranks alike.
    """
    check_reports(plan, session.share(report(plan, shards, session.arrays.digest)))


def run_steps(plan: MeshPlan, local: Locals, session: Session, shards: Mapping[str, Any]) -> Rank:
    """Run a rank's steps on shards that were checked; where it fails, all ranks end."""
    rank = Rank(plan, session.rank, local, session.arrays)
    try:
        rank.bring(shards)
        run_rank(rank, session)
    except BaseException as error:  # others wait for this rank
        session.abort(error)
        raise
    return rank


def _again(session: Any, run: Callable[[], Result], plan: MeshPlan) -> Callable[[], Result]:
    """A call that is made over and over, as a transport of devices makes it fast."""
    made = getattr(session, "again", None)
    return run if made is None else cast("Callable[[], Result]", made(run, plan))


class OnRank:
    """A compiled program, as one rank of a transport calls it.

    ``run = exe.on("mpi"); part = run(*run.shards(x, w))``: every rank gives its own part of every
    argument and gets its own part of the results.

    Attributes:
        rank: this process's rank.
        n_ranks: how many there are.
        plan: what all ranks do.
        sent: exchange -> bytes that this rank sent in the last call.
    """

    def __init__(
        self,
        call: Call,
        plan: MeshPlan,
        constants: Mapping[str, Array],
        local: Mapping[str, Any],
        session: Session,
    ) -> None:
        self.plan, self._call, self._session = plan, call, session
        self.rank, self.n_ranks = session.rank, session.n_ranks
        self._arrays = session.arrays
        self._local = Locals(local, self._arrays)
        self._constants = {n: self._own(n, a) for n, a in constants.items()}
        self.sent: dict[str, int] = {}

    def __call__(self, *shards: Any, **named: Any) -> Any:
        """Run on this rank's parts; all ranks call it together.

        Args:
            shards: dense parts of the arguments, nested as the function takes them.
            named: arguments by name.

        Returns:
            Its parts of the results, nested as the function's own.

        Raises:
            ArgumentError: a shard that is no part of its declared layout, with its rank; raised on
                every rank.
        """
        return self._bound(shards, named)()

    def bind(self, *shards: Any, **named: Any) -> Callable[[], Any]:
        """A call on these very shards, which are checked together once, now.

        All ranks bind together, and call what they get together. On a device nothing waits for the
        host: a call returns when its work is queued, and what it returns is the same arrays every
        time.

        Args:
            shards: as for a call.
            named: arguments by name.

        Raises:
            ArgumentError: as a call.
        """
        return _again(self._session, self._bound(shards, named), self.plan)

    def _bound(self, shards: tuple[Any, ...], named: Mapping[str, Any]) -> Callable[[], Any]:
        given = self._call.flat(self._call.positional(shards, named))
        try:
            names = zip(self._call.names, given, strict=True)
            held = {n: self._arrays.given(a, n) for n, a in names} | self._constants
        except ArgumentError as error:  # the other ranks wait to hear of these shards
            check_reports(self.plan, self._session.share(report_wrong(self.plan, error)))
            raise
        check_shards(self.plan, self._session, held)

        def run() -> Any:
            rank = run_steps(self.plan, self._local, self._session, held)
            self.sent = rank.sent
            found = [self._arrays.like(given, r) for r in rank.results()]
            return unflatten(self._call.structure, found)

        return run

    def _own(self, name: str, whole: Any) -> Any:
        """This rank's part of a whole array, where it lies for a call."""
        return self._arrays.given(part_of(self.plan, name, whole, self.rank), name)

    def shards(self, *arrays: Any) -> tuple[Any, ...]:
        """This rank's parts of whole arguments, as a call of it takes them."""
        whole = self._call.plain(arrays)
        names = zip(self._call.names, whole, strict=True)
        return self._call.nest([self._own(n, a) for n, a in names])

    def parts(self, results: Any) -> Any:
        """This rank's parts of whole results, nested as the function's own."""
        nesting, leaves = flatten(results)
        found = []
        for name, type_, array in zip(
            self.plan.outputs, self.plan.result_types, leaves, strict=True
        ):
            whole = np.asarray(array).reshape(self.plan.buffers[name].value_type.shape)
            found.append(part_of(self.plan, name, whole, self.rank).reshape(type_.shape))
        return unflatten(nesting, found)

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.n_ranks}: {len(self.plan.steps)} steps>"


class OnRanks:
    """A compiled program on all ranks of a mesh, which one process has, as that calls it.

    ``run = exe.on("peers"); parts = run(run.shards(x, w))``: a rank's shards are a tuple of its
    parts of the arguments, and what is returned has an entry per rank.

    Attributes:
        n_ranks: how many there are.
        plan: what they do.
        sent: per rank, exchange -> bytes that it sent in the last call.
    """

    def __init__(
        self,
        call: Call,
        plan: MeshPlan,
        constants: Mapping[str, Array],
        local: Callable[[], Mapping[str, Any]],
        session: Together,
    ) -> None:
        self.plan, self._call, self._session = plan, call, session
        self.n_ranks, self._arrays = session.n_ranks, session.arrays
        self._local = [Locals(local(), arrays) for arrays in self._arrays]
        self._constants = [
            {n: self._own(rank, n, a) for n, a in constants.items()} for rank in range(self.n_ranks)
        ]
        self.sent: list[dict[str, int]] = []

    def __call__(self, shards: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run on every rank's parts of the arguments; every rank's parts of the results.

        Raises:
            ArgumentError: a shard that is no part of its declared layout, with its rank.
        """
        return self._bound(shards)()

    def bind(self, shards: Sequence[tuple[Any, ...]]) -> Callable[[], list[Any]]:
        """A call on these very shards, which are checked once, now.

        On devices what it returns is the same arrays every time.

        Raises:
            ArgumentError: as a call.
        """
        return _again(self._session, self._bound(shards, again=True), self.plan)

    def _bound(
        self, shards: Sequence[tuple[Any, ...]], again: bool = False
    ) -> Callable[[], list[Any]]:
        if len(shards) != self.n_ranks:
            wrong = f"are those of {len(shards)} ranks"
            raise ArgumentError("shards", wrong, f"{self.n_ranks} tuples, one per rank")
        given = [self._call.flat(self._call.positional(mine, {})) for mine in shards]
        held = []
        for rank, arrays in enumerate(self._arrays):
            names = zip(self._call.names, given[rank], strict=True)
            held.append({n: arrays.given(a, n) for n, a in names} | self._constants[rank])
        windows = self._seen() if again else self._windows
        kept: list[dict[str, Any]] = []
        said = zip(held, self._arrays, strict=True)
        check_reports(self.plan, [report(self.plan, h, arrays.digest) for h, arrays in said])

        def run() -> list[Any]:
            sights = [None] * self.n_ranks if windows is None else windows.begin()
            each = enumerate(zip(self._local, self._arrays, sights, strict=True))
            ranks = [Rank(self.plan, n, *of) for n, of in each]
            for rank, mine in zip(ranks, kept, strict=False):
                rank.kept = mine
            for rank, mine in zip(ranks, held, strict=True):
                rank.bring(mine)
            run_ranks(ranks, self._session)
            if windows is not None:
                windows.end()
            if again and windows is not None:  # results are the same arrays, whatever window it is
                made = self.plan.computed & set(self.plan.outputs)
                kept[:] = [{n: rank.memory[n] for n in made} for rank in ranks]
            self.sent = [rank.sent for rank in ranks]
            found = []
            for rank, arrays, its in zip(ranks, self._arrays, given, strict=True):
                results = [arrays.like(its, r) for r in rank.results()]
                found.append(unflatten(self._call.structure, results))
            return found

        return run

    def _seen(self) -> Any:
        """Memory that all ranks see, for calls that follow each other; None where none is."""
        windows = getattr(self._session, "windows", None)
        return windows(self.plan) if windows and self.plan.seen else None

    @cached_property
    def _windows(self) -> Any:
        return self._seen()

    def _own(self, rank: int, name: str, whole: Any) -> Any:
        return self._arrays[rank].given(part_of(self.plan, name, whole, rank), name)

    def shards(self, *arrays: Any) -> list[tuple[Any, ...]]:
        """Every rank's parts of whole arguments, as a call takes them."""
        whole = self._call.plain(arrays)
        return [
            self._call.nest(
                [self._own(rank, n, a) for n, a in zip(self._call.names, whole, strict=True)]
            )
            for rank in range(self.n_ranks)
        ]

    def whole(self, results: Sequence[Any]) -> Any:
        """The whole results, on the host, of every rank's parts."""
        leaves = [flatten(mine)[1] for mine in results]
        found = []
        for number, name in enumerate(self.plan.outputs):
            each = zip(self._arrays, leaves, strict=True)
            parts = [arrays.host(mine[number]).reshape(-1) for arrays, mine in each]
            type_ = value_type(self.plan.types[number])
            found.append(whole_of(self.plan, name, parts).reshape(type_.shape))
        return unflatten(self._call.structure, found)

    def __repr__(self) -> str:
        return f"<{self.n_ranks} ranks: {len(self.plan.steps)} steps>"

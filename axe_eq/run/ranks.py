"""A compiled program on one rank of a mesh: `Executable.on`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from axe_eq.mesh.given import check_reports, report
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.rank import Locals, Rank, part_of
from axe_eq.mesh.transport import Session, run_rank
from axe_eq.program.nesting import flatten, unflatten
from axe_eq.program.types import Array
from axe_eq.run.call import Call


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
        return self.bind(*shards, **named)()

    def bind(self, *shards: Any, **named: Any) -> Callable[[], Any]:
        """A call on these very shards, which are checked together once, now.

        All ranks bind together, and call what they get together. On a device nothing waits for the
        host: a call returns when its work is queued.

        Args:
            shards: as for a call.
            named: arguments by name.

        Raises:
            ArgumentError: as a call.
        """
        given = self._call.flat(self._call.positional(shards, named))
        names = self._call.names
        arrays = [self._arrays.given(a, n) for a, n in zip(given, names, strict=True)]
        held = dict(zip(names, arrays, strict=True)) | self._constants
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

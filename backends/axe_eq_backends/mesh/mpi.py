"""Mesh plans over MPI: one process per rank, started by mpiexec or by `axe launch`.

An exchange posts all its receives, then sends, copies what stays, and waits for all: the order that
is proved before the launch. Messages are packed, contiguous, and tagged by the exchange's number.
Who ends its script says so, and is not waited for.
"""

from __future__ import annotations

import atexit
import shutil
import sys
import sysconfig
import time
from functools import cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from axe_eq.errors import DeviceError, MissingPackage
from axe_eq.run.host import HOST_ARRAYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from axe_eq.mesh.rank import Rank
    from axe_eq.mesh.steps import ExchangeStep

EXTRA = 'pip install "axe-eq[mpi]"'
_NOT_MPI = 1  # exit status of a job that a rank's error ends
_HANDED_ON_S = 0.5  # mpiexec hands on what a process said, and drops that when the job is aborted


class _World:
    """MPI's world, whose ranks all do the same operations, in one order.

    A rank that ends says how many it has done, and then waits for all others to end, as MPI has it.
    So who waits for it in an operation that it did not come to knows that it never will.
    """

    def __init__(self, mpi: Any) -> None:
        self.mpi, self.comm = mpi, mpi.COMM_WORLD.Dup()  # no receive of a script takes its messages
        self.size = int(self.comm.size)
        self.n_done, self.ended = 0, dict[int, int]()  # rank -> operations that it had done
        self._tag = mpi.COMM_WORLD.Get_attr(mpi.TAG_UB)
        self._said = np.zeros(2, np.int64)
        self._listen()
        if self.size > 1:
            _end_all(self.comm)
            atexit.register(self._end)
            # A script may end MPI before itself: what is said of COMM_SELF is forgotten first.
            mpi.COMM_SELF.Set_attr(mpi.Comm.Create_keyval(delete_fn=self._end), None)

    def _listen(self) -> None:
        alone = len(self.ended) == self.size - 1
        self._heard = self.mpi.REQUEST_NULL if alone else self.comm.Irecv(self._said, tag=self._tag)

    def wait(self, *requests: Any) -> None:
        """Wait for the messages of an operation, which is done then.

        Raises:
            DeviceError: another rank ended before it came to it.
        """
        while any(requests):
            for rank, n_done in self.ended.items():
                if n_done <= self.n_done:
                    wrong = "ended its script while others wait for it"
                    raise DeviceError(f"rank {rank}", wrong, "every call on every rank")
            self._some(requests)
        self.n_done += 1

    def _some(self, requests: Sequence[Any]) -> None:
        """Wait until one of some requests is done, or a rank says that it ends."""
        self.mpi.Request.Waitsome([*requests, self._heard])
        if not self._heard and len(self.ended) < self.size - 1:
            rank, n_done = self._said.tolist()
            self.ended[rank] = n_done
            self._listen()

    def _end(self, *_: Any) -> None:
        mine = np.array([self.comm.rank, self.n_done])
        others = (rank for rank in range(self.size) if rank != self.comm.rank)
        sent = [self.comm.Isend(mine, dest=rank, tag=self._tag) for rank in others]
        while any([*sent, self._heard]):
            self._some(sent)
        atexit.unregister(self._end)


_world = cache(_World)


class MpiSession:
    """This process's rank of MPI's world."""

    def __init__(self, mpi: Any) -> None:
        self.mpi, self._world = mpi, _world(mpi)
        self.comm = self._world.comm
        self.rank, self.n_ranks = int(self.comm.rank), int(self.comm.size)
        self.arrays = HOST_ARRAYS

    def exchange(self, step: ExchangeStep, rank: Rank) -> int:
        """All messages of an exchange; the bytes that this rank sent."""
        reads, tag, me = rank.reads(step), step.number, self.rank
        pairs = step.messages.pairs
        kind = reads[0].dtype if reads else np.dtype(np.uint8)
        into = {src: np.empty(n, np.uint8) for (src, dst), n in pairs.items() if dst == me}
        requests = [
            self.comm.Irecv([buffer, self.mpi.BYTE], source=src, tag=tag)
            for src, buffer in into.items()
        ]
        sent = 0
        held = []  # until they have left
        for dst in [dst for src, dst in pairs if src == me]:
            payload = np.ascontiguousarray(step.messages.packed(me, dst, reads)).view(np.uint8)
            held.append(payload)
            requests.append(self.comm.Isend([payload, self.mpi.BYTE], dest=dst, tag=tag))
            sent += payload.nbytes
        rank.keep(step)
        self._world.wait(*requests)
        memory = rank.memory[step.write.buffer]
        for src, buffer in into.items():
            step.messages.unpack(src, me, buffer.view(kind), memory)
        return sent

    def share(self, mine: bytes) -> list[bytes]:
        """What every rank says, by rank."""
        sizes = np.empty(self.n_ranks, np.int64)
        self._world.wait(self.comm.Iallgather(np.array([len(mine)]), sizes))
        found = bytearray(sizes.sum())
        self._world.wait(self.comm.Iallgatherv(mine, [found, sizes.tolist(), self.mpi.BYTE]))
        ends = accumulate(sizes.tolist(), initial=0)
        return [bytes(found[begin:end]) for begin, end in pairwise(ends)]

    def abort(self, error: BaseException) -> None:
        """End all ranks: the others may be waiting for this one."""
        print(f"rank {self.rank}: {type(error).__name__}: {error}", file=sys.stderr)
        _abort(self.comm)


class MpiTransport:
    """MPI through mpi4py, with the MPI library of the wheel `mpich` or of the machine."""

    name = "mpi"
    on_device = False
    one_process = False

    def open(self, n_ranks: int) -> MpiSession:
        """This process's session.

        Raises:
            MissingPackage: no mpi4py, or no MPI library.
            DeviceError: another number of processes was started.
        """
        session = MpiSession(_mpi())
        if session.n_ranks != n_ranks:
            raise DeviceError(
                "transport 'mpi'", f"runs in {session.n_ranks} process"
                + ("es" if session.n_ranks != 1 else ""), f"{n_ranks}, one per rank",
                hint=f"mpiexec -n {n_ranks} python ..., or axe launch --ranks {n_ranks}",
            )  # fmt: skip
        return session

    def command(self, n_ranks: int) -> list[str]:
        """What starts so many processes of a program.

        Raises:
            MissingPackage: no mpi4py.
            DeviceError: no mpiexec.
        """
        try:
            import mpi4py  # noqa: F401
        except ImportError as error:
            raise _missing(error) from None
        here = sysconfig.get_path("scripts")
        found = shutil.which("mpiexec", path=here) or shutil.which("mpiexec")
        if found is None:
            raise DeviceError("mpiexec", "is not on this machine", "an MPI library", hint=EXTRA)
        return [found, "-n", str(n_ranks)]


TRANSPORT = MpiTransport()


def _end_all(comm: Any) -> None:
    """An error that ends this process ends the job: others may wait for it, and MPI for them."""
    before = sys.excepthook

    def hook(*error: Any) -> None:
        before(*error)
        _abort(comm)

    sys.excepthook = hook


def _abort(comm: Any) -> None:
    sys.stderr.flush()
    time.sleep(_HANDED_ON_S)
    comm.Abort(_NOT_MPI)


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: it finds no MPI library
        raise _missing(error) from None
    return MPI


def _missing(error: Exception) -> MissingPackage:
    why = str(error).partition("\n")[0]
    return MissingPackage(
        "transport 'mpi'", f"needs mpi4py and an MPI library ({why})", "the extra 'mpi'", hint=EXTRA
    )

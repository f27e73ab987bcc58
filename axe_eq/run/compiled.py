"""What made and loaded programs have in common: their call, their plan, their layouts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from axe_eq.errors import ArgumentError
from axe_eq.run.call import Call

if TYPE_CHECKING:
    from axe_eq.layout import Layout
    from axe_eq.mesh.plan import MeshPlan
    from axe_eq.mesh.transport import Transport
    from axe_eq.pack import Pack
    from axe_eq.run.executable import Schedule
    from axe_eq.run.launch import Launched


class Compiled:
    """A compiled program: it holds machine code and devices, and is copied as a file alone.

    Attributes:
        schedule: its schedule.
        call: how arrays go in and out.
        packs: whose parts it may use beside the installed ones.
    """

    schedule: Schedule
    call: Call
    packs: Sequence[Pack] = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """No copy and no pickle.

        Raises:
            ArgumentError: always; says what keeps a program.
        """
        raise ArgumentError(
            f"{type(self).__name__.lower()} program", "is neither copied nor pickled",
            "exe.save(path), and axe.load(path) where it is wanted",
        )  # fmt: skip

    @cached_property
    def transports(self) -> dict[str, Transport]:
        """Transports between ranks, by name."""
        from axe_eq.pack import packs

        return {n: t for p in (*packs(), *self.packs) for n, t in p.transports.items()}

    @property
    def plan(self) -> MeshPlan:
        """On a mesh: what every rank does, with every message; proved before it is handed out.

        ``print(exe.plan)``, ``exe.plan.n_bytes`` (exchange -> bytes that every rank sends),
        ``exe.plan.peak_bytes``, ``exe.plan.to_json()``.

        Raises:
            ScheduleError: a schedule of one device, or a plan that does not fit the machine.
        """
        return self.schedule.plan

    def on(self, transport: str | Transport) -> Any:
        """The program as this process, one rank of a mesh, calls it, with its own shards.

        ``run = exe.on("mpi"); y = run(x_part, w_part)`` in a script that ``mpiexec -n 8`` starts.
        With "peers" this process has all ranks: ``run = exe.on("peers"); run(run.shards(x, w))``.

        Args:
            transport: a name that an installed pack has ("mpi"), or a transport.

        Returns:
            An `axe_eq.run.ranks.OnRank`; an `OnRanks` where this process has all ranks.

        Raises:
            DeviceError: no such transport, or another number of processes than the plan has ranks.
            MissingPackage: says which extra to install.
            ScheduleError: as `plan`.
        """
        from axe_eq.run.meshes import found, on

        return on(self.schedule, found(transport, self.transports))

    def launch(self, *arrays: Any, transport: str | Transport = "mpi", **named: Any) -> Launched:
        """Run on whole arrays, in one process per device, which this call starts.

        Args:
            arrays: as for a call.
            transport: between the processes.
            named: arguments by name.

        Returns:
            The whole outputs, nested as the function's own, what every rank sent per exchange, and
            seconds per rank.

        Raises:
            ArgumentError: an array that does not fit.
            DeviceError: a rank ended before it was done; no such transport.
            MissingPackage: says which extra to install.
        """
        from axe_eq.run.meshes import found, launched

        return launched(self.schedule, found(transport, self.transports), arrays, named)

    @property
    def layouts(self) -> dict[str, Layout]:
        """The layout of every input, by its name, and of every output, as "output 0".

        Where a spec or `outputs` says "any", it is the one that was chosen:
        ``exe.layouts["x"]`` may be ``S[(1001,333):(336@m,1@m)]``, rows 336 elements apart.
        """
        return self.schedule.layouts

    def pack(self, name: str, array: Any) -> Any:
        """An array as an input's layout wants it: the same values in other strides.

        ``exe(exe.pack("x", x), w)`` takes a dense x whatever layout was chosen for it. Of a layout
        that no strides say, as of blocks, calls on a device take the memory that holds the value.

        Args:
            name: of the input.
            array: of its shape and dtype, of numpy, torch or CuPy; a copy stays on its device.

        Returns:
            The array itself where it lies so already. Of a layout that no strides say: on a device
            the memory, an array of one dim; on the host the array, which calls bring there.

        Raises:
            ArgumentError: no such input, another shape or dtype, or a library whose arrays have no
                strides of the caller's choice.
        """
        return self.call.pack(name, array, lambda name: self.layouts[name])

    @property
    def kernels(self) -> tuple[Any, ...]:
        """The kernels, in order."""
        return self.schedule.graph.kernels

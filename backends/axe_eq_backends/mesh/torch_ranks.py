"""Mesh plans over torch.distributed: a process per GPU with NCCL, or per rank with gloo.

Parts are tensors and stay on the device; local steps run there, on torch's current stream, which
waits for what NCCL moves on its own. Exchanges that are an all-gather or an all-to-all are NCCL's,
which copies a rank's own part on the way; others are its sends and receives in one group.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from axe_eq.errors import DeviceError, MissingPackage
from axe_eq.mesh.steps import LocalStep, reads_of
from axe_eq_backends.mesh.torch_arrays import TorchArrays, again
from axe_eq_backends.mesh.wires import Collective, Wire, collective_of, sum_of

if TYPE_CHECKING:
    from axe_eq.mesh.plan import MeshPlan
    from axe_eq.mesh.rank import Rank
    from axe_eq.mesh.steps import ExchangeStep

# No multicast over NVLink, whose memory is bound in ways that other users of a machine notice.
ENVIRONMENT = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
_STARTED = ("RANK", "WORLD_SIZE", "LOCAL_RANK")  # what torchrun tells a process


@dataclass(frozen=True)
class Call:
    """How this rank does an exchange.

    Attributes:
        collective: None where messages are sent one by one.
        ranks: this rank's group in it; () where it has none.
        fold: the local step that a reduce-scatter does too.
        waits: whether the step after it reads what it makes.
    """

    collective: Collective | None = None
    ranks: tuple[int, ...] = ()
    fold: LocalStep | None = None
    waits: bool = True


class Work:
    """What torch's process group does, begun and waited for; over and over."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._moving: Sequence[Any] = ()

    def begin(self) -> None:
        """Begin it."""
        made = self._make()
        self._moving = made if isinstance(made, list) else [made]

    def end(self) -> None:
        """Wait for it."""
        for one in self._moving:
            one.wait()


class TorchSession:
    """This process's rank of torch's process group."""

    def __init__(self, torch: Any, arrays: TorchArrays) -> None:
        self.torch, self.dist, self.arrays = torch, torch.distributed, arrays
        self.rank, self.n_ranks = self.dist.get_rank(), self.dist.get_world_size()
        self._wires: WeakKeyDictionary[Any, Wire] = WeakKeyDictionary()
        self._calls: WeakKeyDictionary[Any, Call] = WeakKeyDictionary()
        self._groups: dict[tuple[int, ...], Any] = {tuple(range(self.n_ranks)): None}

    def exchange(self, step: ExchangeStep, rank: Rank) -> int:
        """All messages of an exchange; the bytes that this rank sent."""
        if step not in self._wires:
            self._calls[step] = self._call_of(rank.plan, step)
            self._wires[step] = Wire(self.arrays, step, rank)
        wire, call = self._wires[step], self._calls[step]
        reads = rank.reads(step)
        if call.collective is None:
            memory = rank.memory[wire.name] = wire.memory(reads, rank)
            rank.arriving[wire.name] = self._group(wire, reads, memory)
        elif call.ranks:
            made, begin = self._collective(call, call.collective, wire, reads, rank)
            name = wire.name
            if call.fold is not None:
                name = call.fold.writes[0]
                rank.done.add(call.fold.name)
            rank.memory[name] = made
            work = Work(begin)
            self.arrays.do(work.begin)
            if not call.waits:
                rank.arriving[name] = partial(self.arrays.do, work.end)
        else:
            rank.memory[wire.name] = wire.memory(reads, rank)
        return wire.sent

    def _group(self, wire: Wire, reads: list[Any], memory: Any) -> Callable[[], None]:
        """Sends and receives together; what stays is copied meanwhile. What ends them."""
        dist, uint8 = self.dist, self.torch.uint8
        landed = {src: wire.landing(src, memory) for src in wire.into}
        sent = {dst: wire.payload(dst, reads) for dst in wire.out}
        ops = [dist.P2POp(dist.irecv, a.view(uint8), src) for src, a in landed.items()]
        ops += [dist.P2POp(dist.isend, a.view(uint8), dst) for dst, a in sent.items()]
        work = Work(partial(dist.batch_isend_irecv, ops) if ops else list)
        self.arrays.do(work.begin)
        if wire.own and not wire.is_view:
            self.arrays.do(partial(wire.keep, reads, memory))

        def finish() -> None:
            work.end()
            for src, array in landed.items():
                wire.unpack(src, array, memory)

        return partial(self.arrays.do, finish)

    def _call_of(self, plan: MeshPlan, step: ExchangeStep) -> Call:
        """What all ranks call for an exchange; all of them decide alike."""
        found = collective_of(step.messages)
        if found is None:
            return Call()
        for group in found.groups:
            if group not in self._groups:  # all ranks make it together
                self._groups[group] = self.dist.new_group(list(group))
        ranks = next((g for g in found.groups if self.rank in g), ())
        fold = sum_of(plan, step, found)
        made = fold.writes[0] if fold else step.write.buffer
        after = [s for s in plan.steps[plan.steps.index(step) + 1 :] if s is not fold]
        waits = not after or made in reads_of(after[0])
        return Call(found, ranks, fold, waits)

    def _collective(
        self, call: Call, found: Collective, wire: Wire, reads: list[Any], rank: Rank
    ) -> tuple[Any, Callable[[], Any]]:
        """What a collective makes, and what begins it."""
        (source,), dist, group = reads, self.dist, self._groups[call.ranks]
        begin, n = found.sources[self.rank], found.count
        how, whole = {"group": group, "async_op": not call.waits}, n * len(call.ranks)
        if call.fold is not None:
            name = call.fold.writes[0]
            memory = rank.around(name)
            made = self.arrays.empty(n, wire.dtype) if memory is None else memory
            if memory is not None:
                rank.memory[name] = memory
            into = made if memory is None else rank.part(name).reshape(-1)
            given = source[begin : begin + whole]
            return made, partial(dist.reduce_scatter_tensor, into, given, **how)
        goal, uint8 = found.goals[self.rank], self.torch.uint8
        made = wire.memory(reads, rank)
        into = made[goal : goal + whole].view(uint8)
        if found.kind == "all_gather":
            given = source[begin : begin + n].view(uint8)
            return made, partial(dist.all_gather_into_tensor, into, given, **how)
        given = source[begin : begin + whole].view(uint8)
        return made, partial(dist.all_to_all_single, into, given, **how)

    def again(self, run: Callable[[], Any], plan: MeshPlan) -> Callable[[], Any]:
        """A call on memory of its own, see `axe_eq_backends.mesh.torch_arrays.again`."""
        return again([self.arrays], run, plan.held_bytes)

    def share(self, mine: bytes) -> list[bytes]:
        """What every rank says, by rank."""
        found: list[Any] = [None] * self.n_ranks
        self.dist.all_gather_object(found, mine)
        return found

    def abort(self, error: BaseException) -> None:
        """End this process: torchrun ends the others, which may be waiting for it."""
        print(f"rank {self.rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(1)


class TorchTransport:
    """Torch's process groups.

    Args:
        name: of the transport, and of torch's backend: "nccl" or "gloo".
        on_device: whether parts lie on GPUs.
    """

    one_process = False

    def __init__(self, name: str, on_device: bool) -> None:
        self.name, self.on_device = name, on_device

    def open(self, n_ranks: int) -> TorchSession:
        """This process's session; a process group that the program began is used as it is.

        Raises:
            MissingPackage: no torch.
            DeviceError: not started as ranks, as others than wanted, or without a GPU for this one.
        """
        os.environ.update(ENVIRONMENT)
        torch = self._torch()
        dist = torch.distributed
        if not dist.is_initialized():
            lacking = [name for name in _STARTED if name not in os.environ]
            if lacking:
                wrong = f"was not started as ranks ({lacking[0]} is not set)"
                raise self._wrong(wrong, n_ranks)
            n = int(os.environ["WORLD_SIZE"])
        else:
            n = dist.get_world_size()
        if n != n_ranks:
            wrong = f"runs in {n} process{'es' if n != 1 else ''}"
            raise self._wrong(wrong, n_ranks)
        device = self._device(torch)
        if not dist.is_initialized():
            more = {"device_id": torch.device(device)} if self.on_device else {}
            dist.init_process_group(self.name, **more)
            atexit.register(_end, dist)
        return TorchSession(torch, TorchArrays(torch, device))

    def _device(self, torch: Any) -> str:
        if not self.on_device:
            return "cpu"
        local, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if local >= there:
            raise DeviceError(
                f"transport {self.name!r}", f"finds {there} GPU{'s' if there != 1 else ''} "
                f"for rank {local} of this machine", "a GPU per rank",
            )  # fmt: skip
        torch.cuda.set_device(local)
        return f"cuda:{local}"

    def _wrong(self, wrong: str, n_ranks: int) -> DeviceError:
        return DeviceError(
            f"transport {self.name!r}", wrong, f"{n_ranks} processes, one per rank",
            hint=f"torchrun --nproc-per-node {n_ranks} ..., or axe launch --ranks {n_ranks} "
            f"--transport {self.name}",
        )  # fmt: skip

    def command(self, n_ranks: int) -> list[str]:
        """What starts so many processes of a program.

        Raises:
            MissingPackage: no torch.
        """
        if importlib.util.find_spec("torch") is None:
            raise self._missing("No module named 'torch'")
        os.environ.update(ENVIRONMENT)
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # else torchrun says that it sets it
        run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
        return [*run, "--nproc-per-node", str(n_ranks)]

    def _torch(self) -> Any:
        try:
            import torch
            import torch.distributed
        except ImportError as error:
            raise self._missing(str(error).partition("\n")[0]) from None
        if not getattr(torch.distributed, f"is_{self.name}_available")():
            wrong = f"is not in torch {torch.__version__}"
            raise DeviceError(f"transport {self.name!r}", wrong, "a build of torch that has it")
        return torch

    def _missing(self, why: str) -> MissingPackage:
        return MissingPackage(
            f"transport {self.name!r}", f"needs torch ({why})", "the extra 'nccl'",
            hint='pip install "axe-eq[nccl]"',
        )  # fmt: skip


NCCL, GLOO = TorchTransport("nccl", on_device=True), TorchTransport("gloo", on_device=False)


def _end(dist: Any) -> None:
    if dist.is_initialized():
        dist.destroy_process_group()

"""The pack of transports."""

from __future__ import annotations

from axe_eq.pack import Pack
from axe_eq_backends.mesh.mpi import MpiTransport
from axe_eq_backends.mesh.peers import PeersTransport
from axe_eq_backends.mesh.torch_ranks import TorchTransport

NCCL, GLOO = TorchTransport("nccl", on_device=True), TorchTransport("gloo", on_device=False)

PACK = Pack(
    "mesh",
    summary="transports of mesh plans: MPI, NCCL and gloo of torch, GPUs of one process",
    transports={t.name: t for t in (MpiTransport(), NCCL, GLOO, PeersTransport())},
)

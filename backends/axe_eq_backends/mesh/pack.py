"""The pack of transports."""

from __future__ import annotations

from axe_eq.pack import Later, Pack

_HERE = "axe_eq_backends.mesh"

PACK = Pack(
    "mesh",
    summary="transports of mesh plans: MPI, NCCL and gloo of torch, GPUs of one process",
    transports={
        "mpi": Later(f"{_HERE}.mpi:TRANSPORT"),
        "nccl": Later(f"{_HERE}.torch_ranks:NCCL"),
        "gloo": Later(f"{_HERE}.torch_ranks:GLOO"),
        "peers": Later(f"{_HERE}.peers:TRANSPORT"),
    },
)

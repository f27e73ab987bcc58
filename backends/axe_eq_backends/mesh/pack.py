"""The pack of transports."""

from __future__ import annotations

from axe_eq.pack import Pack
from axe_eq_backends.mesh.mpi import MpiTransport

PACK = Pack(
    "mesh",
    summary="transports of mesh plans: MPI",
    transports={MpiTransport.name: MpiTransport()},
)

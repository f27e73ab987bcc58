"""Numpy as the library of a rank's shards, for transports between memories of hosts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from axe_eq.mesh.rank import Host
from axe_eq.program.types import Array
from axe_eq.run.arrays import as_numpy, like


class HostArrays(Host):
    """See `axe_eq.mesh.transport.Arrays`."""

    def given(self, array: Any, name: str) -> Array:
        """A shard as numpy reads it."""
        return as_numpy(array, name)

    def like(self, given: Sequence[Any], result: Any) -> Any:
        """A result in the library of the shards given."""
        return like(given, result)

    def host(self, array: Any) -> Array:
        """The array itself."""
        found: Array = array
        return found

    def digest(self, array: Any) -> str:
        """Of the bytes, row-major."""
        raw = np.ascontiguousarray(array).tobytes()
        return hashlib.blake2b(raw, digest_size=16).hexdigest()


HOST_ARRAYS = HostArrays()

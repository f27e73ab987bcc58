"""Memory that all devices of a process see in one space of addresses, by the driver.

A window has as much memory of every device, each `WINDOW_BYTES` behind that of the device before
it. So a kernel reaches any device's part by a stride, and a bulk copy by a dim of its tensor map.

Source: CUDA driver API, virtual memory management.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from axe_eq.errors import DeviceError
from axe_eq.kernel.spaces import WINDOW_BYTES


class Window:
    """So many bytes of every device, in one range of addresses.

    Args:
        driver: `cuda.bindings.driver`.
        contexts: of the devices 0, 1, ..
        n_bytes: of each.

    Attributes:
        base: address of the first device's memory.

    Raises:
        DeviceError: the driver refused, as where a device lacks memory.
    """

    def __init__(self, driver: Any, contexts: Sequence[Any], n_bytes: int) -> None:
        self.base, self._cu, self._mapped = 0, driver, list[tuple[int, Any]]()
        self._contexts, n_devices = contexts, len(contexts)
        if n_bytes > WINDOW_BYTES:
            wrong = f"of {n_bytes:,} bytes of a device"
            raise DeviceError("memory that devices see", wrong, f"{WINDOW_BYTES:,}")
        kinds, places = driver.CUmemAllocationType, driver.CUmemLocationType
        props, access = [], []
        for device in range(n_devices):
            prop, desc = driver.CUmemAllocationProp(), driver.CUmemAccessDesc()
            prop.type = kinds.CU_MEM_ALLOCATION_TYPE_PINNED
            for location in (prop.location, desc.location):
                location.type = places.CU_MEM_LOCATION_TYPE_DEVICE
                location.id = device
            desc.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            props.append(prop)
            access.append(desc)
        least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
        unit = max(self._done(driver.cuMemGetAllocationGranularity(p, least)) for p in props)
        self._size, self._whole = -(-n_bytes // unit) * unit, n_devices * WINDOW_BYTES
        self.base = int(self._done(driver.cuMemAddressReserve(self._whole, 0, 0, 0)))
        for device, prop in enumerate(props):
            handle = self._done(driver.cuMemCreate(self._size, prop, 0))
            at = self.address(device)
            self._done((*driver.cuMemMap(at, self._size, 0, handle, 0), None))
            self._mapped.append((at, handle))
            self._done((*driver.cuMemSetAccess(at, self._size, access, len(access)), None))

    def address(self, device: int, offset: int = 0) -> int:
        """Where a byte of a device lies."""
        return self.base + device * WINDOW_BYTES + offset

    def array(self, device: int, offset: int, n_bytes: int) -> Placed:
        """Bytes of a device's memory."""
        return Placed(self, self.address(device, offset), n_bytes)

    def _done(self, returned: Any) -> Any:
        if returned[0] != self._cu.CUresult.CUDA_SUCCESS:
            what = "memory that devices see"
            raise DeviceError(what, f"failed with {returned[0].name}", "success")
        return returned[1]

    def __del__(self) -> None:
        if sys.is_finalizing() or not self.base:
            return
        for context in self._contexts:  # kernels may still be there
            self._cu.cuCtxPushCurrent(context)
            self._cu.cuCtxSynchronize()
            self._cu.cuCtxPopCurrent()
        for at, handle in self._mapped:
            self._cu.cuMemUnmap(at, self._size)
            self._cu.cuMemRelease(handle)
        self._cu.cuMemAddressFree(self.base, self._whole)


class Placed:
    """Bytes of a window as other libraries take them: the CUDA array interface, version 3."""

    def __init__(self, window: Window, pointer: int, n_bytes: int) -> None:
        self.window = window
        self.__cuda_array_interface__ = {
            "shape": (n_bytes,), "typestr": "|u1", "data": (pointer, False), "version": 3,
            "strides": None,
        }  # fmt: skip

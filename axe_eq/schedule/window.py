"""Values that lie on several devices, as a kernel on one of them sees them: in one space of addresses.

A layout with the device axis says on which device an element lies, and where there. Devices that
see each other's memory see it `WINDOW_BYTES` apart, so for a kernel the device is one more stride.

>>> from axe_eq.layout import Layout
>>> str(in_window(Layout.parse("S[(2,64,8):(1@gpuid,8@m,1@m)]"), 4))
'S[(2,64,8):(17179869184@m,8@m,1@m)]'
"""

from __future__ import annotations

from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.schedule.shard import DEVICE_AXIS

# What a device's memory of a window has room for. Tensor maps have strides below 2^40 bytes, so 16
# devices may lie behind each other.
WINDOW_BYTES = 1 << 36


def is_across(layout: Layout) -> bool:
    """Whether a value lies on several devices."""
    return any(a == DEVICE_AXIS and e > 1 for e, _, a in layout.shard)


def window_elements(itemsize: int) -> int:
    """Elements from a device's memory to the next one's."""
    return WINDOW_BYTES // itemsize


def in_window(layout: Layout, itemsize: int) -> Layout:
    """A layout over devices as one of memory; others are as they are."""
    if not is_across(layout):
        return layout
    far = window_elements(itemsize)
    shard = [(e, s * far, DEFAULT_AXIS) if a == DEVICE_AXIS else (e, s, a)
             for e, s, a in layout.shard]  # fmt: skip
    return Layout(shard, layout.replica, layout.offset, layout.swizzle, *layout.boxes)

"""Device meshes: named dimensions whose devices are numbered row-major on one layout axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from axe_eq.errors import LayoutError
from axe_eq.layout.value.check import check_axis, check_extents


class Mesh:
    """A grid of devices with named dimensions.

    Device ids are row-major over the dimensions in the order given: ``Mesh({"x": 2, "y": 4})`` puts
    device (x, y) at ``4 * x + y`` on the layout axis `axis`. With ``order=("y", "x")`` they are
    numbered columns first, device (x, y) at ``x + 2 * y``, as Axe's figures do.

    >>> axe.Mesh({"x": 2, "y": 4}).size
    8

    Args:
        shape: dimension name -> extent, slow to fast.
        axis: the layout axis that device ids lie on.
        order: all dimension names, slow to fast in device ids; by default as in `shape`.
        links: dimension name -> name of the target's link that joins devices along it; where one is
            named, the others take the target's first. By default devices' numbers say it.

    Raises:
        LayoutError: an extent below 1, a name that is no identifier, or an order or links of other
            names than the dimensions'.
    """

    __slots__ = ("axis", "links", "order", "shape")

    def __init__(
        self,
        shape: Mapping[str, int],
        axis: str = "gpuid",
        *,
        order: Sequence[str] | None = None,
        links: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(shape, Mapping):
            raise LayoutError(f"mesh {shape!r}", "no mapping", 'a dict such as {"x": 2, "y": 4}')
        extents = check_extents("mesh", shape.values())
        names = [check_axis(name) for name in shape]
        self.shape = dict(zip(names, extents, strict=True))
        self.axis = check_axis(axis)
        self.order = tuple(names if order is None else order)
        if sorted(self.order) != sorted(names):
            wanted = f"each of {' '.join(names)} once"
            raise LayoutError(f"mesh {self.shape}", f"has the order {self.order}", wanted)
        self.links = dict(links or {})
        if strange := [name for name in self.links if name not in self.shape]:
            wanted = f"names of {' '.join(names)}"
            raise LayoutError(f"mesh {self.shape}", f"has links along {' '.join(strange)}", wanted)

    @property
    def size(self) -> int:
        """The number of devices."""
        return prod(self.shape.values())

    @property
    def axes(self) -> dict[str, tuple[int, int]]:
        """Dimension name -> (extent, stride of the device id)."""
        strides: dict[str, int] = {}
        stride = self.size
        for name in self.order:
            stride //= self.shape[name]
            strides[name] = stride
        return {name: (extent, strides[name]) for name, extent in self.shape.items()}

    @property
    def key(self) -> tuple[object, ...]:
        """All that it says: what it is made of again, as JSON data too."""
        shape, links = list(self.shape.items()), list(self.links.items())
        return shape, self.axis, list(self.order), links

    @classmethod
    def of_key(cls, key: Sequence[Any]) -> Mesh:
        """What `key` says."""
        shape, axis, order, links = key
        return cls(dict(shape), axis, order=order, links=dict(links))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mesh):
            return NotImplemented
        return self.key == other.key

    def __hash__(self) -> int:
        return hash(repr(self.key))

    def __repr__(self) -> str:
        order = "" if self.order == tuple(self.shape) else f", order={self.order!r}"
        links = f", links={self.links!r}" if self.links else ""
        return f"Mesh({self.shape!r}, axis={self.axis!r}{order}{links})"

"""Device meshes: named dimensions whose devices are numbered row-major on one layout axis."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from axe_eq.errors import LayoutError
from axe_eq.layout.value.check import check_axis, check_extents


class Mesh:
    """A grid of devices with named dimensions.

    Device ids are row-major over the dimensions in the order given: ``Mesh({"x": 2, "y": 4})`` puts
    device (x, y) at ``4 * x + y`` on the layout axis `axis`.

    >>> axe.Mesh({"x": 2, "y": 4}).size
    8

    Args:
        shape: dimension name -> extent, slow to fast.
        axis: the layout axis that device ids lie on.

    Raises:
        LayoutError: an extent below 1 or a name that is no identifier.
    """

    __slots__ = ("axis", "shape")

    def __init__(self, shape: Mapping[str, int], axis: str = "gpuid") -> None:
        if not isinstance(shape, Mapping):
            raise LayoutError(f"mesh {shape!r}", "no mapping", 'a dict such as {"x": 2, "y": 4}')
        extents = check_extents("mesh", shape.values())
        names = [check_axis(name) for name in shape]
        self.shape = dict(zip(names, extents, strict=True))
        self.axis = check_axis(axis)

    @property
    def size(self) -> int:
        """The number of devices."""
        return prod(self.shape.values())

    @property
    def axes(self) -> dict[str, tuple[int, int]]:
        """Dimension name -> (extent, stride of the device id)."""
        placed: dict[str, tuple[int, int]] = {}
        stride = self.size
        for name, extent in self.shape.items():
            stride //= extent
            placed[name] = extent, stride
        return placed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mesh):
            return NotImplemented
        return (self.axis, list(self.shape.items())) == (other.axis, list(other.shape.items()))

    def __hash__(self) -> int:
        return hash((self.axis, tuple(self.shape.items())))

    def __repr__(self) -> str:
        return f"Mesh({self.shape!r}, axis={self.axis!r})"

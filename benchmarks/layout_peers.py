"""Who answers the layout benchmark: axe_eq's direct path, and the peers that are installed.

A contestant turns the operands of a case into its own values outside the clock, and hands back a
call to time. What it answers is read back into plain numbers, to be checked before anything is
timed. Peers: ``pip install apache-tvm islpy``, and ``pycute`` from NVIDIA's cutlass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from axe_eq.layout import Layout, same_map, tile, tile_of
from benchmarks.layout_cases import Answer, Iter

Call = Callable[[], Any]
Side = tuple[Sequence[Iter], Sequence[Iter], dict[str, int]]  # shard, replica, offset
Prepared = tuple[Call, Callable[[Any], Answer | bool | None]]  # to time; its result as numbers


class Contestant:
    """One implementation of some operations.

    Attributes:
        name: how tables call it.
        package: the distribution whose version is recorded.
        operations: operation -> method that prepares a call from a case's operands.
    """

    name: ClassVar[str]
    package: ClassVar[str]

    def prepare(self, op: str, operands: tuple[Any, ...]) -> Prepared | None:
        """A call on fresh values, or None: it has no such operation."""
        method = getattr(self, f"_{op}", None)
        return None if method is None else method(*operands)

    def version(self) -> str:
        """The version that is installed."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return "unknown"


class Axe(Contestant):
    """The direct path on values."""

    name, package = "axe_eq", "axe-eq"

    def _canonical(self, layout: Sequence[Iter]) -> Prepared:
        return Layout(layout).canonical, self._read

    def _equality(self, a: Sequence[Iter], b: Sequence[Iter]) -> Prepared:
        one, two = Layout(a), Layout(b)
        return lambda: same_map(one, two), lambda found: found is None

    def _equality_copies(self, a: Side, b: Side) -> Prepared:
        one, two = Layout(*a), Layout(*b)
        return lambda: same_map(one, two), lambda found: found is None

    def _group(self, layout: Sequence[Iter], shape: Sequence[int]) -> Prepared:
        value = Layout(layout)
        return lambda: value.group(shape), lambda found: self._read(found.layout)

    def _tile(self, a: Any, shape_a: Any, b: Any, shape_b: Any) -> Prepared:
        one, two = Layout(a), Layout(b)
        return lambda: tile(one, shape_a, two, shape_b), self._read

    def _tile_of(self, a: Any, shape_a: Any, b: Any, shape_b: Any) -> Prepared:
        one, two = Layout(a), Layout(b)
        return lambda: tile_of(one, shape_a, two, shape_b), self._read

    def _slice(self, layout: Any, shape: Any, region: Any) -> Prepared:
        value = Layout(layout)
        return lambda: value.slice(shape, region), self._read

    _slice_carry = _slice

    def _read(self, found: Layout) -> Answer:
        return Answer(list(found.shard), found.offset)


class Tirx(Contestant):
    """The layouts of apache-tvm, by the authors of Axe: C++ behind Python."""

    name, package = "TIRx", "apache-tvm"

    def __init__(self) -> None:
        layouts = import_module("tvm.tirx.layout")
        self.axis, self.iter = layouts.Axis.get, layouts.Iter
        self.make = layouts.TileLayout.from_iters
        self.equal = import_module("tvm_ffi").structural_equal

    def _layout(
        self,
        shard: Sequence[Iter],
        copies: Sequence[Iter] = (),
        offset: dict[str, int] | None = None,
    ) -> Any:
        iters = [[self.iter(e, s, self.axis(a)) for e, s, a in part] for part in (shard, copies)]
        return self.make(*iters, offset)

    def _canonical(self, layout: Sequence[Iter]) -> Prepared:
        return self._layout(layout).canonicalize, self._read

    def _equality(self, a: Sequence[Iter], b: Sequence[Iter]) -> Prepared:
        one, two, equal = self._layout(a), self._layout(b), self.equal
        return lambda: equal(one.canonicalize(), two.canonicalize()), bool

    def _equality_copies(self, a: Side, b: Side) -> Prepared:
        one, two, equal = self._layout(*a), self._layout(*b), self.equal
        return lambda: equal(one.canonicalize(), two.canonicalize()), bool

    def _group(self, layout: Sequence[Iter], shape: Sequence[int]) -> Prepared:
        value, wanted = self._layout(layout), list(shape)
        return lambda: value.group(wanted), lambda found: self._read(found[0])

    def _tile(self, a: Any, shape_a: Any, b: Any, shape_b: Any) -> Prepared:
        one, two, shapes = self._layout(a), self._layout(b), (list(shape_a), list(shape_b))
        return lambda: two.tile(one, *shapes), self._read

    def _tile_of(self, a: Any, shape_a: Any, b: Any, shape_b: Any) -> Prepared:
        one, two, shapes = self._layout(a), self._layout(b), (list(shape_a), list(shape_b))
        return lambda: two.is_tile_inner(one, *shapes), self._read

    def _slice(self, layout: Any, shape: Any, region: Any) -> Prepared:
        value, wanted, spans = self._layout(layout), list(shape), list(region)
        return lambda: value.slice(wanted, spans), self._read

    _slice_carry = _slice

    def _read(self, found: Any) -> Answer | None:
        if found is None:
            return None
        iters = [(int(i.extent), int(i.stride), i.axis.name) for i in found.shard]
        return Answer(iters, {axis.name: int(value) for axis, value in found.offset.items()})


class Pycute(Contestant):
    """CuTe's layout algebra in Python. It has one axis: ours lie on it far apart."""

    name, package = "pycute", "nvidia-cutlass"
    weights: ClassVar = {"F": 2**52, "P": 2**26, "m": 1}

    def __init__(self) -> None:
        layouts = import_module("pycute")
        self.make, self.coalesce = layouts.Layout, layouts.coalesce

    def _layout(self, iters: Sequence[Iter]) -> Any:
        fast_first = list(iters)[::-1]
        strides = tuple(stride * self.weights[axis] for _, stride, axis in fast_first)
        return self.make(tuple(extent for extent, _, _ in fast_first), strides)

    def _canonical(self, layout: Sequence[Iter]) -> Prepared | None:
        value = self._layout(layout)
        return lambda: self.coalesce(value), self._read

    def _equality(self, a: Sequence[Iter], b: Sequence[Iter]) -> Prepared | None:
        one, two = self._layout(a), self._layout(b)
        return lambda: self.coalesce(one) == self.coalesce(two), bool

    def _read(self, found: Any) -> Answer:
        modes = zip(*(x if isinstance(x, tuple) else (x,) for x in (found.shape, found.stride)),
                    strict=True)  # fmt: skip
        iters = []
        for extent, stride in modes:
            axis = next(axis for axis, weight in self.weights.items() if stride >= weight)
            iters.append((extent, stride // self.weights[axis], axis))
        return Answer(iters[::-1], {})


class Isl(Contestant):
    """Integer sets and relations: equality of maps given as formulas, parsed outside the clock."""

    name, package = "islpy", "islpy"

    def __init__(self) -> None:
        self.read_map = import_module("islpy").Map

    def _map(self, iters: Sequence[Iter]) -> Any:
        terms: dict[str, list[str]] = {}
        inner = 1
        for extent, stride, axis in reversed(iters):
            terms.setdefault(axis, []).append(f"{stride}*(floor(x/{inner}) mod {extent})")
            inner *= extent
        images = ", ".join(" + ".join(terms.get(axis, ["0"])) for axis in ("m", "P", "F"))
        return self.read_map(f"{{ [x] -> [{images}] : 0 <= x < {inner} }}")

    def _equality(self, a: Sequence[Iter], b: Sequence[Iter]) -> Prepared | None:
        if len(a) > 8:  # the texts of more iters take isl up to a second to parse
            return None
        one, two = self._map(a), self._map(b)
        return lambda: one.is_equal(two), bool


def contestants() -> list[Contestant]:
    """axe_eq first, then every peer that imports."""
    found: list[Contestant] = [Axe()]
    for peer in (Tirx, Pycute, Isl):
        try:
            found.append(peer())
        except ImportError:
            continue
    return found

"""A compiled kernel as a value: machine code and what a launch needs to know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from axe_eq.errors import ArgumentError
from axe_eq.kernel.dispatch import Planned
from axe_eq.kernel.expr import Int, Var, evaluate, from_json, to_json
from axe_eq_backends.cuda import cache, compile
from axe_eq_backends.cuda.emit import Source, emit

FORMAT = "1"


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument: dtype, extents and strides in elements, alignment in bytes."""

    name: str
    dtype: str
    shape: tuple[Int, ...]
    strides: tuple[Int, ...] | None
    align: int


@dataclass(frozen=True)
class MapSpec:
    """A tensor map argument, fastest dim first; strides in elements."""

    tensor: str
    shape: tuple[Int, ...]
    strides: tuple[Int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int


@dataclass(frozen=True)
class Image:
    """A kernel that can be launched.

    Attributes:
        name: entry point.
        cubin: machine code.
        compute_capability: the architecture it was compiled for.
        n_threads, smem_bytes: of one CTA.
        tiles, persistent: the grid: one CTA per tile, or as many as the machine holds at once.
        params: run-time integers.
        tensors: tensor arguments by name.
        arguments: in order: a tensor name, a map, or a parameter name, with its kind.
        requires: (what, value, multiple) preconditions.
    """

    name: str
    cubin: bytes
    compute_capability: int
    n_threads: int
    smem_bytes: int
    tiles: Int
    persistent: bool
    params: tuple[Var, ...]
    tensors: tuple[TensorSpec, ...]
    arguments: tuple[tuple[str, str | MapSpec], ...]
    requires: tuple[tuple[str, Int, int], ...]

    def check(self, params: Mapping[str, int]) -> None:
        """Check the parameters against what was proven with them.

        Raises:
            ArgumentError: a missing parameter, a wrong divisor or bound, or a broken precondition.
        """
        for p in self.params:
            value = params.get(p.name)
            if value is None:
                raise ArgumentError(f"kernel {self.name}", f"no value for {p.name}", "an integer")
            outside = value < (p.low or 0) or (p.high is not None and value > p.high)
            if value % p.divisor or outside:
                bounds = f"a multiple of {p.divisor} in {p.low}..{p.high}"
                raise ArgumentError(f"parameter {p.name}", f"is {value}", bounds)
        for what, value_of, multiple in self.requires:
            value = int(evaluate(value_of, params))
            if value % multiple:
                raise ArgumentError(what, f"is {value}", f"a multiple of {multiple}")

    def to_bytes(self) -> bytes:
        """Everything in one piece of bytes."""
        head = json.dumps(
            {
                "format": FORMAT, "name": self.name, "cc": self.compute_capability,
                "threads": self.n_threads, "smem": self.smem_bytes, "tiles": to_json(self.tiles),
                "persistent": self.persistent, "params": [to_json(p) for p in self.params],
                "tensors": [_tensor_json(t) for t in self.tensors],
                "arguments": [_argument_json(a) for a in self.arguments],
                "requires": [[w, to_json(v), m] for w, v, m in self.requires],
            }
        ).encode()  # fmt: skip
        return len(head).to_bytes(8, "little") + head + self.cubin

    @staticmethod
    def from_bytes(data: bytes) -> Image:
        """The inverse of `to_bytes`.

        Raises:
            ArgumentError: the bytes are no image of this version.
        """
        size = int.from_bytes(data[:8], "little")
        try:
            d = json.loads(data[8 : 8 + size])
        except ValueError:
            d = {}
        if d.get("format") != FORMAT:
            raise ArgumentError("kernel image", "is damaged or of another version", f"{FORMAT}")
        return Image(
            d["name"], data[8 + size :], d["cc"], d["threads"], d["smem"], from_json(d["tiles"]),
            d["persistent"], tuple(from_json(p) for p in d["params"]),  # type: ignore[misc]
            tuple(_tensor(t) for t in d["tensors"]), tuple(_argument(a) for a in d["arguments"]),
            tuple((w, from_json(v), m) for w, v, m in d["requires"]),
        )  # fmt: skip


def _ints(values: Any) -> tuple[Int, ...]:
    return tuple(from_json(v) for v in values)


def _tensor_json(t: TensorSpec) -> list[Any]:
    strides = None if t.strides is None else list(map(to_json, t.strides))
    return [t.name, t.dtype, list(map(to_json, t.shape)), strides, t.align]


def _tensor(d: list[Any]) -> TensorSpec:
    return TensorSpec(d[0], d[1], _ints(d[2]), None if d[3] is None else _ints(d[3]), d[4])


def _argument_json(argument: tuple[str, str | MapSpec]) -> list[Any]:
    kind, what = argument
    if isinstance(what, str):
        return [kind, what]
    shape, strides = list(map(to_json, what.shape)), list(map(to_json, what.strides))
    return [kind, [what.tensor, shape, strides, list(what.box), what.swizzle_bytes]]


def _argument(d: list[Any]) -> tuple[str, str | MapSpec]:
    if isinstance(d[1], str):
        return d[0], d[1]
    tensor, shape, strides, box, swizzle = d[1]
    return d[0], MapSpec(tensor, _ints(shape), _ints(strides), tuple(box), swizzle)


def build(planned: Planned, source: Source | None = None, *, cached: bool = True) -> Image:
    """Compile a planned kernel, or take it from the disk cache.

    Raises:
        EmitError: the kernel cannot be written or compiled.
        DeviceError: NVRTC is missing, or the cache cannot be written.
    """
    source = source or emit(planned)
    capability = planned.target.limits["compute_capability"]

    def make() -> bytes:
        cubin = compile.compile_text(source.text, capability, source.name).cubin
        return _image(planned, source, cubin, capability).to_bytes()

    if not cached:
        return Image.from_bytes(make())
    name = cache.key(FORMAT, compile.version(), *compile.options(capability), source.text)
    return Image.from_bytes(cache.get(name, make))


def _image(planned: Planned, source: Source, cubin: bytes, capability: int) -> Image:
    kernel, align = planned.kernel, planned.align
    arguments: list[tuple[str, str | MapSpec]] = []
    for a in source.arguments:
        if a.map is None:
            arguments.append((a.kind, a.name))
        else:
            m = a.map
            arguments.append(
                ("map", MapSpec(m.buffer.name, m.shape, m.strides, m.box, m.swizzle_bytes))
            )
    tensors = tuple(
        TensorSpec(t.name, t.dtype, t.shape, _strides(t), align.get(t.name, t.itemsize))
        for t in kernel.tensors
    )
    requires = tuple((r.what, r.value, r.multiple) for r in planned.requires)
    return Image(
        source.name, cubin, capability, source.n_threads, source.smem_bytes, kernel.tiles,
        kernel.persistent, tuple(kernel.params), tensors, tuple(arguments), requires,
    )  # fmt: skip


def _strides(tensor: Any) -> tuple[Int, ...] | None:
    """Element strides of a tensor with one iter per dim; None for blocked layouts."""
    blocks = tensor.place.blocks
    if any(len(block) > 1 for block in blocks):
        return None
    return tuple(block[0].stride if block else 0 for block in blocks)

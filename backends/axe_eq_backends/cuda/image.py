"""A compiled kernel as a value: machine code and what a launch needs to know.

Images are read where no compiler is: only what builds them imports one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from axe_eq import plain
from axe_eq.errors import ArgumentError
from axe_eq.kernel.expr import Int, Var, evaluate
from axe_eq.run.cache import Cache, key

if TYPE_CHECKING:
    from axe_eq.kernel.threads.dispatch import Planned
    from axe_eq_backends.cuda.compile import Binary
    from axe_eq_backends.cuda.emit import Source

FORMAT = "5"
KERNELS = Cache("kernels")
MOST_CTAS = 1 << 30  # a CTA's number and the grid's size, added, fit in 32 bits


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
    """A tensor map argument, fastest dim first; strides and offset in elements."""

    tensor: str
    shape: tuple[Int, ...]
    strides: tuple[Int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    offset: Int = 0


@dataclass(frozen=True)
class Image:
    """A kernel that can be launched.

    Attributes:
        name: entry point.
        cubin: machine code.
        compute_capability: the architecture it was compiled for.
        toolkit: version of the compiler, "13.0"; drivers of its major version can load the code.
        n_threads, smem_bytes: of one CTA.
        tiles, persistent: the grid: a cluster per tile, or as many as the machine holds at once.
        params: run-time integers.
        tensors: tensor arguments by name.
        arguments: in order: a tensor name, a map, or a parameter name, with its kind.
        requires: (what, value, multiple) preconditions.
        cluster: CTAs of one cluster.
    """

    name: str
    cubin: bytes
    compute_capability: int
    toolkit: str
    n_threads: int
    smem_bytes: int
    tiles: Int
    persistent: bool
    params: tuple[Var, ...]
    tensors: tuple[TensorSpec, ...]
    arguments: tuple[tuple[str, str | MapSpec], ...]
    requires: tuple[tuple[str, Int, int], ...]
    cluster: int = 1

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
        ctas = int(evaluate(self.tiles, params)) * self.cluster
        if ctas > MOST_CTAS:
            wrong = f"has work for {ctas} CTAs"
            raise ArgumentError(f"kernel {self.name}", wrong, f"at most {MOST_CTAS}")

    def to_bytes(self) -> bytes:
        """Everything in one piece of bytes."""
        return plain.to_bytes(self, FORMAT)

    @staticmethod
    def from_bytes(data: bytes) -> Image:
        """The inverse of `to_bytes`.

        Raises:
            ArgumentError: the bytes are no image of this version.
        """
        return plain.of_bytes("kernel image", data, Image, FORMAT)


def build(planned: Planned, source: Source | None = None, *, cached: bool = True) -> Image:
    """Compile a planned kernel, or take it from the disk cache.

    Raises:
        EmitError: the kernel cannot be written or compiled.
        DeviceError: NVRTC is missing.
        SearchError: AXE_CACHE_DIR names a folder that cannot be written.
    """
    (image,) = build_all([planned], None if source is None else [source], cached=cached)
    return image


def build_all(
    planned: Sequence[Planned], sources: Sequence[Source] | None = None, *, cached: bool = True
) -> list[Image]:
    """`build` for several kernels; those that are not cached compile at the same time."""
    from axe_eq_backends.cuda import compile
    from axe_eq_backends.cuda.emit import emit

    texts = [emit(p) for p in planned] if sources is None else sources
    names, found = [], list[Image | None]()
    for p, source in zip(planned, texts, strict=True):
        flags = compile.options(p.target.limits["compute_capability"])
        name = key(FORMAT, compile.version(), *flags, source.text)
        names.append(name)
        found.append(KERNELS.read(name, Image.from_bytes) if cached else None)
    missing = [n for n, image in enumerate(found) if image is None]
    binaries = compile.compile_texts(
        [
            (texts[n].text, planned[n].target.limits["compute_capability"], texts[n].name)
            for n in missing
        ]
    )
    for n, binary in zip(missing, binaries, strict=True):
        data = _image(planned[n], texts[n], binary).to_bytes()
        found[n] = Image.from_bytes(data)
        if cached:
            KERNELS.store(names[n], data)
    return [image for image in found if image is not None]


def _image(planned: Planned, source: Source, binary: Binary) -> Image:
    kernel, align = planned.kernel, planned.align
    arguments: list[tuple[str, str | MapSpec]] = []
    for a in source.arguments:
        if a.map is None:
            arguments.append((a.kind, a.name))
        else:
            m = a.map
            spec = MapSpec(m.buffer.name, m.shape, m.strides, m.box, m.swizzle_bytes, m.offset)
            arguments.append(("map", spec))
    tensors = tuple(
        TensorSpec(t.name, t.dtype, t.shape, _strides(t), align.get(t.name, t.itemsize))
        for t in kernel.tensors
    )
    requires = tuple((r.what, r.value, r.multiple) for r in planned.requires)
    return Image(
        source.name, binary.cubin, planned.target.limits["compute_capability"], binary.version,
        source.n_threads, source.smem_bytes, kernel.tiles, kernel.persistent,
        tuple(kernel.params), tensors, tuple(arguments), requires, kernel.cluster,
    )  # fmt: skip


def _strides(tensor: Any) -> tuple[Int, ...] | None:
    """Element strides of a tensor with one iter per dim; None for blocked layouts."""
    blocks = tensor.place.blocks
    if any(len(block) > 1 for block in blocks):
        return None
    return tuple(block[0].stride if block else 0 for block in blocks)

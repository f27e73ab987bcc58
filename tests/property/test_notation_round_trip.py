"""Generated texts and layouts of every notation: written and read again they are the same map.

Maps are compared element by element, so nothing here relies on the algebra. A generator may make
what its notation refuses; how often is asserted, so that the tests cannot become empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest

from axe_eq.errors import NotationError, SearchError
from axe_eq.layout import Layout, Mesh, Swizzle
from axe_eq.layout.notation import NOTATIONS, read, write

Rng = np.random.Generator
SMALL = 200  # elements; every element's image is enumerated


class Sample(NamedTuple):
    """A text, or a layout to write, with what its notation needs to know."""

    text: str | None
    layout: Layout | None = None
    shape: tuple[int, ...] | None = None
    mesh: Mesh | None = None


def pick(rng: Rng, *options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def some(rng: Rng, low: int, high: int) -> range:
    return range(int(rng.integers(low, high + 1)))


def extents(rng: Rng, most: int = SMALL, ranks: tuple[int, int] = (0, 4)) -> list[int]:
    found: list[int] = []
    for _ in some(rng, *ranks):
        extent = pick(rng, 1, 2, 2, 3, 4, 5, 6, 8)
        if prod(found) * extent <= most:
            found.append(extent)
    return found


def random_layout(rng: Rng, axes: tuple[str, ...], simple: bool = False) -> Layout:
    """D, R and O on the axes; swizzles and a box too, unless simple."""

    def stride() -> int:
        return int(pick(rng, 0, 1, 1, 2, 3, 4, 8, 16, -1, -6))

    shard = [(extent, stride(), pick(rng, *axes)) for extent in extents(rng)]
    replica = [(extent, stride(), pick(rng, *axes)) for extent in extents(rng, 8, (0, 2))]
    offset = {axis: int(rng.integers(-9, 10)) for axis in axes if pick(rng, True, False)}
    if simple:
        return Layout(shard, replica, offset)
    swizzle = [
        Swizzle(pick(rng, *axes), pick(rng, 1, 2, 3), pick(rng, 0, 1, 2), pick(rng, 1, 3, -2))
        for _ in range(pick(rng, 0, 0, 1, 2))
    ]
    box = None
    if shard and pick(rng, True, False):
        box = [int(rng.integers(1, extent + 1)) for extent, _, _ in shard]
    padded = None if box is None else [extent for extent, _, _ in shard]
    return Layout(shard, replica, offset, swizzle, box, padded)


# ---- samples ------------------------------------------------------------------------------------


def axe_sample(rng: Rng) -> Sample:
    return Sample(None, random_layout(rng, ("m", "lane", "gpuid")))


def matrix_sample(rng: Rng) -> Sample:
    return Sample(None, random_layout(rng, ("m", "warp", "P"), simple=True))


def cute_sample(rng: Rng) -> Sample:
    def nested(depth: int) -> tuple[str, str, int]:
        if depth == 0 or rng.random() < 0.5:
            extent = int(pick(rng, 1, 2, 3, 4))
            return str(extent), str(pick(rng, 0, 1, 2, 5, 8, 16, -3)), extent
        inner = [nested(depth - 1) for _ in some(rng, 1, 3)]
        shapes, strides, sizes = zip(*inner, strict=True)
        return f"({','.join(shapes)})", f"({','.join(strides)})", prod(sizes)

    modes = [nested(2) for _ in some(rng, 1, 3)]
    if not modes or prod(size for _, _, size in modes) > SMALL:
        return cute_sample(rng)
    shape, stride, sizes = zip(*modes, strict=True)
    front = "".join(
        f"Sw<{bits},{pick(rng, 0, 1, 3)},{pick(rng, 1, -1) * (bits + pick(rng, 0, 1))}> o 0 o "
        for bits in (int(pick(rng, 0, 1, 2, 3)) or 1 for _ in some(rng, 0, 2))
    )
    if front:
        front = f"{front.removesuffix('0 o ')}{rng.integers(-4, 20)} o "
    text = f"{front}({','.join(shape)}):({','.join(stride)})"
    return Sample(text, shape=pick(rng, None, sizes))


def xla_sample(rng: Rng) -> Sample:
    dims = extents(rng, SMALL, (0, 3))
    rank, tiles = len(dims), []
    for _ in some(rng, 0, 2):
        tile = [str(pick(rng, 1, 2, 2, 4, 4, 3, 8)) for _ in range(int(rng.integers(1, rank + 2)))]
        for place in range(len(tile) - 1):
            if rng.random() < 0.15:
                tile[place] = "*"
        tiles.append(tile)
        rank += sum(entry != "*" for entry in tile)
    order = ",".join(map(str, rng.permutation(len(dims))))
    properties = "T" + "".join(f"({','.join(tile)})" for tile in tiles) if tiles else ""
    properties += pick(rng, "", "", "S(1)")
    layout = f"{{{order}{':' if properties else ''}{properties}}}"
    text = f"{pick(rng, 'f32', 'bf16', 's8')}[{','.join(map(str, dims))}]{layout}"
    return Sample(text, shape=tuple(dims))


def a_mesh(rng: Rng) -> Mesh:
    shapes = (
        {"x": 8},
        {"x": 2, "y": 4},
        {"x": 2, "y": 3, "z": 2},
        {"a": 1, "b": 4},
        {"x": 5, "y": 3},
    )
    return Mesh(pick(rng, *shapes), pick(rng, "gpuid", "gpuid", "dev"))


def a_shape(rng: Rng) -> tuple[int, ...]:
    return tuple(int(pick(rng, 1, 2, 3, 4, 5, 6, 7, 8)) for _ in range(int(rng.integers(0, 4))))


def hlo_sample(rng: Rng) -> Sample:
    mesh, shape = a_mesh(rng), a_shape(rng)
    tile = [1] * (len(shape) + 1)
    for extent in mesh.shape.values():
        tile[int(rng.integers(len(tile)))] *= extent
    factors = list(mesh.shape.values())
    order = rng.permutation(len(factors))
    table = np.arange(mesh.size).reshape(factors).transpose(order).reshape(-1)
    if len(factors) == 1:
        iota = f"<=[{mesh.size}]"
    else:
        iota = f"<=[{','.join(map(str, factors))}]T({','.join(map(str, order))})"
    devices = pick(rng, iota, f"<=[{mesh.size}]", ",".join(map(str, table)))
    text = f"{{devices=[{','.join(map(str, tile))}]{devices} last_tile_dim_replicate}}"
    named = mesh_form(rng, mesh, len(shape))
    text = pick(rng, text, text, named, named, "{replicated}", "{maximal device=1}")
    return Sample(text, shape=shape, mesh=mesh)


def mesh_form(rng: Rng, mesh: Mesh, rank: int) -> str:
    """A sharding that names mesh dims, some of them in parts."""
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in rng.permutation(list(mesh.shape)):
        pre, extent = 1, mesh.shape[str(name)]
        while pre < extent:
            rest = extent // pre
            size = int(pick(rng, *(n for n in range(2, rest + 1) if rest % n == 0)))
            part = f"'{name}'" if size == extent else f"'{name}':({pre}){size}"
            if rank and rng.random() < 0.7:
                pick(rng, *dims).append(part)
            pre *= size
    axes = ",".join(f"'{name}'={extent}" for name, extent in mesh.shape.items())
    ids = f", device_ids=({','.join(map(str, range(mesh.size)[::-1]))})"
    entries = ", ".join(f"{{{', '.join(parts)}}}" for parts in dims)
    return f"{{mesh[{axes}]{pick(rng, '', '', ids)}, [{entries}]}}"


def dealt(rng: Rng, mesh: Mesh, rank: int) -> list[list[str]]:
    """Mesh dims dealt out to tensor dims, some to none."""
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in rng.permutation(list(mesh.shape)):
        if rank and rng.random() < 0.8:
            dims[int(rng.integers(rank))].append(str(name))
    return dims


def jax_sample(rng: Rng) -> Sample:
    mesh, shape = a_mesh(rng), a_shape(rng)
    entries = [repr(tuple(names)) if names else "None" for names in dealt(rng, mesh, len(shape))]
    return Sample(f"P({', '.join(entries)})", shape=shape, mesh=mesh)


def shardy_sample(rng: Rng) -> Sample:
    """Whole mesh dims; parts of them have tests of their own."""
    mesh, shape = a_mesh(rng), a_shape(rng)
    dims = ["{" + ", ".join(f'"{name}"' for name in names) + "}"
            for names in dealt(rng, mesh, len(shape))]  # fmt: skip
    return Sample(f"#sdy.sharding<@mesh, [{', '.join(dims)}]>", shape=shape, mesh=mesh)


def alpa_sample(rng: Rng) -> Sample:
    mesh, shape = a_mesh(rng), a_shape(rng)
    order = list(mesh.shape)
    symbols = [
        f"S{''.join(str(order.index(name)) for name in names)}" if names else "R"
        for names in dealt(rng, mesh, len(shape))
    ]
    return Sample("".join(symbols), shape=shape, mesh=mesh)


def dtensor_sample(rng: Rng) -> Sample:
    mesh, shape = a_mesh(rng), a_shape(rng)
    placements = ["Replicate()" for _ in mesh.shape]
    for place in range(len(placements)) if shape else ():
        dims = rng.integers(-len(shape), len(shape), 3)
        strided = f"_StridedShard(dim={dims[2]}, split_factor={pick(rng, 1, 2, 2, 3, 4)})"
        sharded = f"Shard(dim={dims[0]})", f"Shard({dims[1]})", strided
        placements[place] = pick(rng, placements[place], *sharded)
    return Sample(f"({', '.join(placements)},)", shape=shape, mesh=mesh)


def triton_sample(rng: Rng) -> Sample:
    shape = tuple(1 << int(rng.integers(0, 5)) for _ in range(int(rng.integers(1, 3))))
    if rng.random() < 0.5:
        rank = len(shape)
        columns = [[int(pick(rng, 1, 2, 4)) for _ in range(rank)] for _ in range(3)]
        names = ("sizePerThread", "threadsPerWarp", "warpsPerCTA")
        fields = [f"{name} = {column}" for name, column in zip(names, columns, strict=True)]
        fields.append(f"order = {[int(dim) for dim in rng.permutation(rank)]}")
        return Sample(f"#ttg.blocked<{{{', '.join(fields)}}}>", shape=shape)
    bits = (prod(shape) - 1).bit_length()
    held: dict[str, list[int]] = {dim: [] for dim in pick(rng, ("offset",), ("lane", "register"))}
    for bit in rng.permutation(bits):
        pick(rng, *held.values()).append(1 << int(bit))
    for basis in held.values():
        for place, other in itertools.permutations(range(len(basis)), 2):
            basis[place] ^= basis[other] if rng.random() < 0.2 else 0
        basis += [0 for _ in some(rng, 0, 1)]
    lines = [
        f" - {name}={1 << place} -> ({', '.join(map(str, np.unravel_index(column, shape)))})"
        for name, basis in held.items()
        for place, column in enumerate(basis)
    ]
    sizes = ", ".join(f"dim{dim} (size {extent})" for dim, extent in enumerate(shape))
    lines = lines or [" - lane is a size 1 dimension"]
    return Sample("\n".join([*lines, f"where out dims are: [{sizes}]"]), shape=shape)


def strides_sample(rng: Rng) -> Sample:
    shape = tuple(extents(rng))
    strides = tuple(int(pick(rng, 0, 1, -1, 4, 9)) for _ in shape)
    return Sample(f"shape={shape}, strides={strides}, offset={rng.integers(-5, 6)}")


SAMPLES: dict[str, Callable[[Rng], Sample]] = {
    "axe": axe_sample,
    "matrix": matrix_sample,
    "cute": cute_sample,
    "xla": xla_sample,
    "hlo_sharding": hlo_sample,
    "jax": jax_sample,
    "shardy": shardy_sample,
    "dtensor": dtensor_sample,
    "alpa": alpa_sample,
    "triton": triton_sample,
    "strides": strides_sample,
}
MOST_REFUSED = {"xla": 0.1, "dtensor": 0.1, "hlo_sharding": 0.1}  # the others refuse none
# Canonical forms whose tiles are not found; stacks of swizzles that have none, or one in boxes.
NOT_WRITTEN = {"xla": 0.01, "axe": 0.02, "cute": 0.15}


def images(layout: Layout) -> list[frozenset[tuple[tuple[str, int], ...]]]:
    return [layout(x) for x in range(layout.size)]


@pytest.mark.parametrize("notation", SAMPLES)
def test_written_and_read_again_it_is_the_same_map(
    notation: str, rng: np.random.Generator, request: pytest.FixtureRequest
) -> None:
    """As it is, and from its canonical form."""
    wanted = 1000 if request.config.getoption("--full", default=False) else 50
    done = refused = unwritten = 0
    while done < wanted:
        sample = SAMPLES[notation](rng)
        given: dict[str, Any] = {"shape": sample.shape, "mesh": sample.mesh}
        layout = sample.layout
        if layout is None:
            try:
                layout = read(notation, sample.text or "", **given)
            except NotationError:
                refused += 1
                continue
        text = write(notation, layout, **given)
        expected = images(layout)
        assert images(read(notation, text, **given)) == expected, (sample, text)
        done += 1
        try:
            text = write(notation, layout.canonical(), **given)
        except (SearchError, NotationError):
            unwritten += 1
            continue
        assert images(read(notation, text, **given)) == expected, (sample, text)
    print(f"\n{notation}: {done} written, canonical forms too but {unwritten}")
    assert refused <= MOST_REFUSED.get(notation, 0) * (done + refused)
    assert unwritten <= NOT_WRITTEN.get(notation, 0) * done


def test_every_notation_has_samples() -> None:
    assert set(SAMPLES) == set(NOTATIONS)


@pytest.mark.parametrize("target", ["cute", "xla", "strides", "triton", "hlo_sharding"])
def test_what_another_notation_accepts_it_keeps(
    target: str, rng: np.random.Generator, request: pytest.FixtureRequest
) -> None:
    """Any layout either converts exactly or is refused."""
    wanted = 1000 if request.config.getoption("--full", default=False) else 50
    accepted = 0
    for _ in range(wanted):
        layout = random_layout(rng, ("m",) if rng.random() < 0.8 else ("m", "gpuid"))
        shape = (layout.size,) if layout.box is None else layout.box
        try:
            text = write(target, layout, shape=shape)
        except NotationError:
            continue
        accepted += 1
        assert images(read(target, text, shape=shape)) == images(layout), (layout, text)
    assert accepted >= wanted // 25


def damaged(rng: Rng, text: str) -> str:
    """A text with a few characters dropped, doubled or replaced."""
    characters = list(text)
    for _ in some(rng, 1, 4):
        place = int(rng.integers(len(characters))) if characters else 0
        kind = rng.random()
        if kind < 0.3:
            characters[place : place + 1] = []
        elif kind < 0.6:
            characters[place:place] = characters[place : place + 2]
        else:
            inserted = pick(rng, *"0123,()[]{}:-*@_ \n|<>='é", "00", "-1", "9" * 20, "None")
            characters[place : place + 1] = [inserted]
    return "".join(characters)


@pytest.mark.parametrize("notation", SAMPLES)
def test_a_damaged_text_is_read_or_refused(
    notation: str, rng: np.random.Generator, request: pytest.FixtureRequest
) -> None:
    wanted = 1000 if request.config.getoption("--full", default=False) else 50
    messages: list[str] = []
    for _ in range(wanted):
        sample = SAMPLES[notation](rng)
        layout = sample.layout or Layout()
        text = damaged(rng, write(notation, layout) if sample.text is None else sample.text)
        try:
            read(notation, text, shape=sample.shape, mesh=sample.mesh)
        except NotationError as error:
            messages.append(str(error))
    assert len(messages) > wanted // 4
    assert all(len(message) < 500 and "\n" not in message for message in messages)

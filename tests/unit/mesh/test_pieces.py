"""What selectors read, group by group: the same as their numpy meaning, one over another too."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from axe_eq.errors import ProgramError, ScheduleError
from axe_eq.mesh.certificate import check_coverage
from axe_eq.mesh.messages import plan
from axe_eq.mesh.pieces import FILL, MADE, Piece, is_read, read_through
from axe_eq.mesh.sides import Side
from axe_eq.program.meaning import evaluate_sel
from axe_eq.program.node import sel_type
from axe_eq.program.ops import SELECTORS, join_text
from axe_eq.program.types import Array, ValueType, value_type
from axe_eq.schedule.graph import TileNode
from tests.unit.mesh.layouts import random_layout

TRIED = [n for n in SELECTORS if SELECTORS[n].sample is not None]


def drawn(rng: np.random.Generator, name: str) -> list[TileNode]:
    """One or two leaves, and up to three selectors above them, the last one of this name."""
    shape = [(6,), (4, 6), (2, 3, 4)][int(rng.integers(3))]
    nodes = [TileNode("load", "", "", "", str(ValueType("f64", shape)), (), n) for n in range(2)]
    names = [TRIED[int(rng.integers(len(TRIED)))] for _ in range(int(rng.integers(3)))]
    for wanted in (*names, name):
        declared = SELECTORS[wanted]
        count = int(rng.integers(1, 4)) if declared.arity is None else declared.arity
        first = int(rng.integers(len(nodes)))
        alike = [n for n, node in enumerate(nodes) if node.type == nodes[first].type]
        operands = [first, *(alike[int(rng.integers(len(alike)))] for _ in range(count - 1))]
        operands = operands[:count]
        types = tuple(value_type(nodes[o].type) for o in operands)
        if types and not types[0].rank:
            continue
        assert declared.sample is not None
        text = join_text(wanted, *declared.sample(rng, types))
        try:
            out = sel_type(text, types)
        except ProgramError:  # a constant that the element type does not hold
            continue
        if out.size <= 4000:
            nodes.append(TileNode("gather", text, "", "", str(out), tuple(operands)))
    return nodes


def evaluated(nodes: list[TileNode], leaves: list[Array]) -> Array:
    values: list[Array] = []
    for node in nodes:
        given = [values[o] for o in node.operands]
        values.append(
            leaves[node.access] if node.kind == "load" else evaluate_sel(node.text, given)
        )
    return values[-1]


def read(pieces: tuple[Piece, ...], leaves: list[Array], like: Array) -> Array:
    """The value that pieces say, element by element; each but constants is said once."""
    made = np.full(like.size, -99.0)
    said = np.zeros(like.size, int)
    for piece in pieces:
        for choice in np.ndindex(*(len(g.index) for g in piece.groups)):
            at, leaf = [0] * len(piece.shape), [0] * len(piece.leaf_shape)
            for n, group in zip(choice, piece.groups, strict=True):
                place(at, group.dims, int(group.index[n]), piece.shape)
                place(leaf, group.leaf_dims, int(group.leaf[n]), piece.leaf_shape)
            x = int(np.ravel_multi_index(at, piece.shape)) if at else 0
            if piece.leaf >= 0:
                made[x] = leaves[piece.leaf][tuple(leaf)]
            else:
                whole = evaluate_sel(piece.text, ()) if piece.leaf == MADE else None
                made[x] = piece.fill if whole is None else whole[tuple(leaf)]
            said[x] += piece.leaf >= 0
    assert said.max(initial=0) <= 1
    return made.reshape(like.shape)


def place(at: list[int], dims: tuple[int, ...], index: int, shape: tuple[int, ...]) -> None:
    for d in reversed(dims):
        index, at[d] = divmod(index, shape[d])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("name", TRIED)
def test_pieces_say_what_selectors_mean(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(10):
        nodes = drawn(rng, name)
        shape = value_type(nodes[0].type).shape
        leaves: list[Array] = [np.arange(prod(shape)).reshape(shape) + 1000.0 * n for n in (1, 2)]
        meant = evaluated(nodes, leaves)
        assert np.array_equal(read(read_through(nodes), leaves, meant), meant)


@pytest.mark.sampled(30)
@pytest.mark.parametrize("seed", range(200))
def test_messages_through_selectors_bring_what_these_mean(seed: int) -> None:
    """From two leaves in layouts of their own to a value in its own, in all devices' memories."""
    rng = np.random.default_rng(seed)
    nodes = drawn(rng, TRIED[seed % len(TRIED)])
    shape, out = value_type(nodes[0].type).shape, value_type(nodes[-1].type).shape
    leaves: list[Array] = [np.arange(prod(shape)).reshape(shape) + 1000.0 * n for n in (1, 2)]
    sources = [Side(random_layout(rng, shape), shape, "gpuid") for _ in leaves]
    goal = Side(random_layout(rng, out), out, "gpuid")
    if not goal.grouped and any(p.leaf == MADE for p in read_through(nodes)):
        with pytest.raises(ScheduleError, match="cuts within dims"):
            plan(sources, goal, read_through(nodes), 8)
        return
    found = plan(sources, goal, read_through(nodes), 8)
    meant = evaluated(nodes, leaves).astype(float)
    held = list(zip(sources, leaves, strict=True))
    before = {
        d: [s.scatter(v, d) if d in s.devices else np.zeros(0) for s, v in held] for d in range(16)
    }
    for device in goal.devices.tolist():
        memory: Array = np.zeros(goal.n_elements)
        found.start(device, before[device], memory)
        for src in range(16):
            if (src, device) in found.pairs:
                found.unpack(src, device, found.packed(src, device, before[src]), memory)
        assert np.array_equal(memory, goal.scatter(meant, device))


@pytest.mark.parametrize(("text", "shape"), [("parts 0 4", (6,)), ("parts 1 3", (2, 4))])
def test_the_last_part_of_a_dim_ends_in_zeros(text: str, shape: tuple[int, ...]) -> None:
    of = ValueType("f64", shape)
    leaf = TileNode("load", "", "", "", str(of), (), 0)
    nodes = [leaf, TileNode("gather", text, "", "", str(sel_type(text, (of,))), (0,))]
    values: list[Array] = [np.arange(prod(shape)).reshape(shape) + 1000.0]
    meant = evaluated(nodes, values)
    assert np.array_equal(read(read_through(nodes), values, meant), meant)


def test_reads_where_integers_say_are_no_pieces() -> None:
    types = (ValueType("f32", (8, 4)), ValueType("i32", (3,)))
    assert not is_read("lookup 0 (0,)", types)
    loads = [TileNode("load", "", "", "", str(t), (), n) for n, t in enumerate(types)]
    gather = TileNode("gather", "lookup 0 (0,)", "", "", "f32[3,4]", (0, 1))
    with pytest.raises(ScheduleError, match="reads where integers say"):
        read_through([*loads, gather])


def coverage(pieces: list[Piece]) -> tuple[Array, Array]:
    """How often every element is read, and whether it is a constant, element by element."""
    read, filled = np.zeros(pieces[0].shape), np.zeros(pieces[0].shape, bool)
    for piece in pieces:
        there = np.ones(piece.shape, bool)
        for group in piece.groups:
            inside = np.zeros([piece.shape[d] for d in group.dims], bool).reshape(-1)
            inside[group.index] = True
            extents = [e if d in group.dims else 1 for d, e in enumerate(piece.shape)]
            there &= inside.reshape(extents)
        if piece.leaf == FILL:
            filled |= there
        else:
            read += there
    return read, filled


def test_elements_that_no_piece_or_several_read_are_found() -> None:
    """Of drawn selectors, with pieces left out, doubled and thinned: as element by element."""
    rng, wrong, right = np.random.default_rng(3), 0, 0
    for _ in range(150):
        whole = list(read_through(drawn(rng, TRIED[int(rng.integers(len(TRIED)))])))
        at = int(rng.integers(len(whole))) if whole else 0
        thinned = whole[:at] + [less(rng, p) for p in whole[at : at + 1]] + whole[at + 1 :]
        for pieces in (whole, whole[:at] + whole[at + 1 :], [*whole, *whole[at : at + 1]], thinned):
            if not pieces:
                continue
            read, filled = coverage(pieces)
            if ((read == 1) | ((read == 0) & filled)).all():
                check_coverage("step m", pieces)
                right += 1
                continue
            with pytest.raises(ScheduleError, match="step m: element") as error:
                check_coverage("step m", pieces)
            said = re.match(r"step m: element (\d+) is read (\d+) times", str(error.value))
            assert said is not None
            assert read.reshape(-1)[int(said[1])] == int(said[2]) != 1
            wrong += 1
    assert wrong > 100
    assert right > 100


def less(rng: np.random.Generator, piece: Piece) -> Piece:
    """A piece without some indices of one of its groups."""
    at = int(rng.integers(len(piece.groups))) if piece.groups else 0
    groups = list(piece.groups)
    for group in groups[at : at + 1]:
        kept = rng.random(len(group.index)) < 0.7
        groups[at] = replace(group, index=group.index[kept], leaf=group.leaf[kept])
    return replace(piece, groups=tuple(groups))

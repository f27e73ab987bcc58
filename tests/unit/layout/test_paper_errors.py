"""The twenty errors of the Axe paper that enumeration shows (numbered as the notes on it do).

Each test states what the paper's rule gives, what the definition gives and what axe_eq gives. The
paper's algorithms are written down here as printed, for iters ``(extent, stride)`` on one axis or
``(extent, stride, axis)``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from math import gcd, prod

import pytest

from axe_eq.errors import LayoutError
from axe_eq.layout import Layout, direct_sum, direct_sum_left, same_map, tile, tile_of
from axe_eq.layout.normal.replicas import has_gaps, least_steps, saturate

Pair = tuple[int, int]  # (extent, stride)
Iter = tuple[int, int, str]


def image(replica: Iterable[Pair]) -> set[int]:
    """The set of a replica list, by definition."""
    choices = [[digit * stride for digit in range(extent)] for extent, stride in replica]
    return {sum(choice) for choice in itertools.product(*choices)}


def values(shard: Sequence[Pair], offset: int = 0) -> list[int]:
    """The map of a shard on one axis, by definition."""
    digits = itertools.product(*(range(extent) for extent, _ in shard))
    return [
        offset + sum(d * s for d, (_, s) in zip(choice, shard, strict=True)) for choice in digits
    ]


def copies(layout: Layout) -> set[int]:
    return {dict(point).get("m", 0) for point in layout(0)}


def table(layout: Layout) -> list[int]:
    return [int(value) for value in layout.table("m")]


# ---- replicas -----------------------------------------------------------------------------------


def absorb(
    replica: list[Pair], strict: bool, order: Callable[..., Iterable[tuple[Pair, Pair]]]
) -> list[Pair]:
    """C2 to the end: A.1 prints ``1 <= q < e`` (strict), A.2.2 ``1 <= q <= E``."""
    merged = True
    while merged:
        merged = False
        for (e, s), (f, t) in order(replica):
            q, rest = divmod(t, s)
            if rest == 0 and q >= 1 and (q < e if strict else q <= e):
                replica = [pair for pair in replica if pair not in ((e, s), (f, t))]
                replica.append((e + q * (f - 1), s))
                merged = True
                break
    return sorted(replica)


def replicated(*replica: Pair) -> Layout:
    return Layout(replica=[(extent, stride) for extent, stride in replica])


def slow_first(pairs: Iterable[Pair]) -> Iterable[tuple[Pair, Pair]]:
    return itertools.permutations(sorted(pairs, key=lambda pair: -pair[1]), 2)


def fast_first(pairs: Iterable[Pair]) -> Iterable[tuple[Pair, Pair]]:
    return itertools.permutations(sorted(pairs, key=lambda pair: pair[1]), 2)


def test_d1_absorbing_needs_q_up_to_the_extent() -> None:
    pair = [(2, 1), (2, 2)]
    assert absorb(pair, True, fast_first) == pair  # the paper: nothing to do
    assert image(pair) == image([(4, 1)])  # the definition: one run of four
    assert replicated(*pair).canonical() == Layout(replica=[(4, 1)])


def test_d2_absorbing_is_not_confluent() -> None:
    replica = [(4, 2), (3, 3), (2, 6)]
    ends = {tuple(absorb(replica, False, order)) for order in (slow_first, fast_first)}
    assert {((3, 3), (7, 2)), ((4, 2), (5, 3))} <= ends  # the paper: two normal forms
    assert image(replica) == image([(7, 2), (3, 3)]) == image([(4, 2), (5, 3)])
    forms = {
        replicated(*pairs).canonical() for pairs in (replica, [(7, 2), (3, 3)], [(4, 2), (5, 3)])
    }
    assert len(forms) == 1


def test_d3_an_image_may_be_smaller_than_its_combinations() -> None:
    layout = replicated((3, 1), (2, 1))
    assert prod(extent for extent, _, _ in layout.replica) == 6  # the paper: |f(x)| = E_R
    assert len(image([(3, 1), (2, 1)])) == 4
    assert len(layout(0)) == 4


def test_d4_saturated_lists_are_not_unique_off_the_gap_condition() -> None:
    lists = ((2, 3), (3, 5)), ((2, 5), (3, 2), (5, 2))  # (stride, extent)
    assert all(saturate(steps) == steps for steps in lists)  # the paper: both are final
    assert image((e, s) for s, e in lists[0]) == image((e, s) for s, e in lists[1])
    assert least_steps(lists[0]) == least_steps(lists[1])


def test_d4_a_list_with_gaps_has_no_saturated_rival() -> None:
    by_image: dict[frozenset[int], set[tuple[Pair, ...]]] = {}
    steps = [(stride, extent) for stride in range(1, 8) for extent in range(2, 5)]
    for count in (1, 2, 3):
        for chosen in itertools.combinations(steps, count):
            if saturate(chosen) == chosen:
                key = frozenset(image((e, s) for s, e in chosen))
                by_image.setdefault(key, set()).add(chosen)
    rivals = [lists for lists in by_image.values() if len(lists) > 1]
    assert rivals  # so the theorem needs its gap condition
    assert not any(has_gaps(steps) for lists in rivals for steps in lists)  # and with it, holds


def test_d5_the_gap_condition_is_not_always_true() -> None:
    replica = [(2, 2), (2, 3)]
    assert absorb(replica, False, fast_first) == replica  # saturated
    assert len(image(replica)) == 4  # and free of aliasing
    assert not has_gaps(((2, 2), (3, 2)))  # yet "always true in well-behaved layouts" fails
    assert copies(replicated(*replica).canonical()) == image(replica)


# ---- shard --------------------------------------------------------------------------------------


def test_d6_broadcasting_needs_zero_strides() -> None:
    on_p, on_f = (
        Layout([(2, 0, "P")]),
        Layout([(2, 0, "F")]),
    )  # the paper: s != 0, so neither exists
    assert [on_p(x) for x in range(2)] == [on_f(x) for x in range(2)]
    assert on_p.canonical() == on_f.canonical() == Layout([(2, 0, "m")])


def paper_group(shard: Sequence[Pair], shape: Sequence[int]) -> list[list[Pair]] | None:
    """Algorithm 1 as printed."""
    source, place = list(shard), 0
    blocks = []
    for target in shape:
        block: list[Pair] = []
        current = 1
        while current < target:
            if place >= len(source):
                return None
            extent, stride = source[place]
            common = gcd(extent, target // current)
            if common == 1:
                return None
            block.append((common, extent // common * stride))
            current *= common
            if extent > common:
                source[place] = extent // common, stride
            else:
                place += 1
        blocks.append(block)
    return blocks


def test_d7_grouping_has_to_fuse_first_and_skip_unit_iters() -> None:
    sliced = [(1, 192), (8, 8), (2, 64), (8, 1)]  # the paper's own slice result of 3.3
    assert paper_group(sliced, (8, 16)) is None
    blocks = Layout(sliced, offset={"m": 64}).group((8, 16)).blocks
    assert blocks == (((8, 8, "m"),), ((2, 64, "m"), (8, 1, "m")))

    split = [(2, 3), (3, 1)]
    assert values(split) == values([(6, 1)])
    assert paper_group(split, (3, 2)) is None
    assert paper_group([(6, 1)], (3, 2)) == [[(3, 2)], [(2, 1)]]
    assert Layout(split).group((3, 2)).blocks == (((3, 2, "m"),), ((2, 1, "m"),))


# ---- recognition --------------------------------------------------------------------------------


def paper_tile_of(a: Sequence[Pair], b: Sequence[Pair]) -> list[Pair] | None:
    """Algorithm 3 as printed, one dim: B as any subsequence of A, the rest scaled by span(B)."""
    span = 1 + sum((extent - 1) * abs(stride) for extent, stride in b)
    place, rest = 0, []
    for extent, stride in a:
        if place < len(b) and (extent, stride) == b[place]:
            place += 1
        elif stride % span:
            return None
        else:
            rest.append((extent, stride // span))
    return rest if place == len(b) else None


def test_d8_theorem_d1_is_false() -> None:
    a, b = [(2, 1), (3, 2)], [(2, 1)]
    assert paper_tile_of(a, b) == [(3, 1)]
    made = tile(Layout([(3, 1)]), [3], Layout(b), [2])
    assert table(made) == values([(3, 2), (2, 1)]) != values(a)  # C (x) B is not A
    with pytest.raises(LayoutError, match="index 3 breaks"):
        tile_of(Layout(a), [6], Layout(b), [2])


def test_d9_recognition_misses_fused_tiles() -> None:
    assert paper_tile_of([(16, 1)], [(4, 1)]) is None
    found = tile_of(Layout([(16, 1)]), [16], Layout([(4, 1)]), [4])
    assert same_map(found, Layout([(4, 1)])) is None


# ---- slices -------------------------------------------------------------------------------------


def paper_slice(
    shard: Sequence[Iter], begin: int, count: int
) -> list[tuple[int, dict[str, int]]] | None:
    """Algorithm 4 as printed: extents and vector strides.

    Raises:
        IndexError: where the pivot that the algorithm names does not exist (D10).
    """
    sizes = [prod(e for e, _, _ in shard[place + 1 :]) for place in range(len(shard))]
    digits = [begin // inner % e for (e, _, _), inner in zip(shard, sizes, strict=True)]
    peeled: list[tuple[int, dict[str, int]]] = []
    rest, pivot = count, -1
    for place in reversed(range(len(shard))):
        extent, stride, axis = shard[place]
        if digits[place] == 0 and rest % extent == 0:
            peeled.insert(0, (extent, {axis: stride}))
            rest //= extent
        else:
            pivot = place
            break
    if rest == 0:
        return peeled
    if pivot < 0:
        raise IndexError("no pivot")
    extent, stride, axis = shard[pivot]
    if digits[pivot] + rest <= extent:
        return [(rest, {axis: stride}), *peeled]
    left_fits = pivot == 0 or digits[pivot - 1] + 1 <= shard[pivot - 1][0]
    if rest % 2 == 0 and digits[pivot] + rest // 2 == extent and left_fits:
        step = {axis: -(extent - rest // 2) * stride}
        if pivot > 0:
            _, left, left_axis = shard[pivot - 1]
            step[left_axis] = step.get(left_axis, 0) + left
        return [(2, step), (rest // 2, {axis: stride}), *peeled]
    return None


def test_d10_a_fully_peeled_block_has_no_pivot() -> None:
    shard = [(2, 4, "m"), (2, 1, "m")]
    with pytest.raises(IndexError):
        paper_slice(shard, 0, 4)  # rem ends at 1, never at 0
    assert table(Layout(shard).slice([4], [(0, 4)])) == [0, 1, 4, 5]


def test_d11_a_carry_may_ripple() -> None:
    shard = [(2, 100, "m"), (2, 10, "m"), (4, 1, "m")]
    assert paper_slice(shard, 6, 4) == [(2, {"m": 8}), (2, {"m": 1})]  # 12, 13, 20, 21
    assert table(Layout(shard))[6:10] == [12, 13, 100, 101]
    found = Layout(shard).slice([16], [(6, 10)])
    assert table(found) == [12, 13, 100, 101]
    assert found.canonical() == Layout([(2, 88), (2, 1)], offset={"m": 12})


def test_d12_one_iter_cannot_step_along_two_axes() -> None:
    shard = [(4, 1, "p"), (4, 1, "m")]
    assert paper_slice(shard, 2, 4) == [(2, {"m": -2, "p": 1}), (2, {"m": 1})]
    with pytest.raises(LayoutError, match=r"index 2 of the region breaks.* several axes"):
        Layout(shard).slice([16], [(2, 6)])


def test_d13_the_leftmost_digit_never_wraps() -> None:
    reached = [
        (extent, begin, count)
        for extent in range(1, 9)
        for begin in range(extent)
        for count in range(2, extent - begin + 1, 2)
        if begin + count > extent and begin + count // 2 == extent
    ]
    assert reached == []  # Lemma E.2 with k = 0 is a dead branch
    with pytest.raises(LayoutError, match="0 <= begin < end <= 8"):
        Layout([(8, 1)]).slice([8], [(6, 12)])


# ---- tile and direct sum ------------------------------------------------------------------------


def test_d14_scaling_leaves_out_neither_replicas_nor_offset() -> None:
    a, b = Layout([(2, 1)], [(2, 2)], {"m": 3}), Layout([(4, 1)])
    scaled = Layout([(2, 4)], [(2, 2)], {"m": 3})  # A.W of F.3: R and O unchanged
    whole = tile(a, [2], b, [4])
    assert same_map(direct_sum(scaled, [2], b, [4]), whole) is not None
    for x, y in itertools.product(range(2), range(4)):
        wanted = {4 * dict(p).get("m", 0) + y for p in a(x)}  # Theorem C.2
        assert {dict(p).get("m", 0) for p in whole(4 * x + y)} == wanted
    assert whole.replica == ((2, 8, "m"),)
    assert whole.offset == {"m": 12}


def test_d15_permuting_digits_of_one_axis_changes_the_map() -> None:
    a, b = Layout([(2, 8), (2, 2)]), Layout([(2, 4), (2, 1)])
    printed, reordered = [(2, 8), (2, 2), (2, 4), (2, 1)], [(2, 8), (2, 4), (2, 2), (2, 1)]
    assert values(printed) != values(reordered) == list(range(16))
    assert table(direct_sum(a, [2, 2], b, [2, 2])) == list(range(16))  # F.2 interleaves at once


def test_d16_the_left_operand_is_the_grid() -> None:
    whole = tile(Layout([(2, 3), (3, 1)]), [2, 3], Layout([(8, 8), (8, 1)]), [8, 8])
    assert whole.shard == ((2, 192, "m"), (8, 8, "m"), (3, 64, "m"), (8, 1, "m"))
    # The prose says an 8x8 grid of 2x3 tiles; then (2, 3) would start the second tile.
    wanted = {
        ((i, j), 192 * (i // 8) + 64 * (j // 8) + 8 * (i % 8) + j % 8)
        for i in range(16)
        for j in range(24)
    }
    assert {(index, table(whole)[24 * index[0] + index[1]]) for index, _ in wanted} == wanted


# ---- examples and definitions -------------------------------------------------------------------


def test_d17_the_tensor_memory_example_spans_224_columns() -> None:
    layout = Layout([(2, 112, "Col"), (128, 1, "Lane"), (112, 1, "Col")])
    assert layout.span("Col") == 224  # the prose: 256 in one grouping and 256 in another
    assert layout.span("Lane") == 128


def test_d18_the_fully_sharded_example_keeps_the_row_pitch() -> None:
    layout = Layout([(2, 1, "gpuid"), (32, 128, "m"), (2, 2, "gpuid"), (64, 1, "m")])
    per_device = layout.size // layout.span("gpuid")
    assert (per_device, layout.span("m")) == (2048, 4032)  # the prose: factors 32 and 128


def test_d19_a_recovered_replica_part_is_not_unique() -> None:
    a, b = Layout(replica=[(5, 1)]), Layout(replica=[(3, 1)])
    for missing in ([(3, 1)], [(2, 2)]):  # both are right
        assert image([*missing, (3, 1)]) == image([(5, 1)])
    found = direct_sum_left(a, [], b, [])
    assert same_map(direct_sum(found, [], b, []), a) is None


@pytest.mark.parametrize("offset", [0, 4, -3])
def test_d20_the_span_is_greatest_minus_least_plus_one(offset: int) -> None:
    shard = [(4, -1), (3, 5), (2, -7)]
    seen = values(shard, offset)
    by_lemma = 1 + sum((extent - 1) * abs(stride) for extent, stride in shard)  # Lemma C.1
    assert max(seen) - min(seen) + 1 == by_lemma
    assert Layout(shard, offset={"m": offset}).span("m") == by_lemma
    assert Layout(shard).span("absent") == 1

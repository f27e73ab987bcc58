"""Monoids that packs declare by cells: reduced and scanned on lanes, refused with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import pack as packs
from axe_eq.check.opcheck import check_operators
from axe_eq.errors import DispatchError, PackError, SearchError
from axe_eq.kernel import cells as kernel_cells
from axe_eq.kernel import monoids as kernel_monoids
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.monoids import Parts
from axe_eq.pack import Pack, installed
from axe_eq.program import ops
from axe_eq.program.ops import Cell, Monoid, State, monoid_of
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import launch, whole

GCD = "[](int a, int b) {{ while (b) {{ int r = a % b; a = b; b = r; }} return abs(a); }}({0}, {1})"


def _sums(values: State, axes: tuple[int, ...]) -> State:
    weights, x = np.broadcast_arrays(*values)
    return weights.sum(axes, keepdims=True), (weights * x).sum(axes, keepdims=True)


MEAN = Monoid(
    "theirmean", _sums, lambda a, b: (a[0] + b[0], a[1] + b[1]), lambda s: s[1] / s[0],
    n_values=2, result="float", convex=True,
)  # fmt: skip

MOST = ops.MONOIDS["max"]


def mean_parts(dtypes: Sequence[str]) -> Parts:
    sums = tuple(apply("add", arg(n), arg(n + 2)) for n in range(2))
    lift = arg(0), apply("mul", arg(0), arg(1))
    return Parts(lift, sums, (0.0, 0.0), apply("div", arg(1), arg(0)))


@pytest.fixture
def pack() -> Iterator[Pack]:
    """A pack with monoids of its own, which are forgotten after the test."""
    tables: list[dict[Any, Any]] = [
        ops.CELLS._by_name, ops.MONOIDS._by_name, kernel_cells._SPELLINGS, kernel_monoids._declared,
        packs._owners,
    ]  # fmt: skip
    kept = [dict(table) for table in tables]
    made = Pack("theirs")
    made.cell(Cell("theirgcd", 2, np.gcd, "integer", commutative=True, associative=True))
    made.spelling("cuda", "theirgcd", i32=GCD)
    integer: dict[str, Any] = {"result": "integer", "exact": True}
    made.monoid(monoid_of("theirgcd", "theirgcd", 0.0, lifts="abs", **integer))
    made.monoid(monoid_of("farthest", "maximum", 0.0, lifts="abs", exact=True))
    made.monoid(monoid_of("logsum", "logaddexp", -np.inf, result="float"))
    made.monoid(MEAN, mean_parts)
    yield made
    for table, old in zip(tables, kept, strict=True):
        table.clear()
        table.update(old)


def rows(monoid: str) -> Callable[[Any], Any]:
    return lambda x: axe.array.block(f"a b -> a; {monoid} b", "id", x)


def columns(monoid: str) -> Callable[[Any], Any]:
    return lambda x: axe.array.block(f"b a -> a; {monoid} b", "id", x)


def prefixes(monoid: str, axis: int = 1) -> Callable[..., Any]:
    return lambda *x: axe.array.associative_scan(monoid, x if len(x) > 1 else x[0], axis=axis)


# What `axe.run` says is tested against numpy here, then kernels against it.
MEANT: dict[str, Callable[[Any], Any]] = {
    "theirgcd": lambda x: np.gcd.reduce(x, axis=1),
    "farthest": lambda x: np.abs(x).max(axis=1),
    "logsum": lambda x: np.log(np.exp(x.astype(np.float64)).sum(axis=1)),
}


@pytest.mark.parametrize("name", MEANT)
def test_monoids_of_cells_mean_what_numpy_says(pack: Pack, name: str) -> None:
    whole_numbers = np.random.default_rng(0).integers(-30, 30, (5, 7))
    x: Any = whole_numbers * 6 if name == "theirgcd" else whole_numbers / 7
    assert np.allclose(axe.run(rows(name), x), MEANT[name](x))
    y = axe.run(prefixes(name), x)
    assert np.allclose(y[:, -1], MEANT[name](x))
    assert np.allclose(y[:, 2], MEANT[name](x[:, :3]))


@pytest.mark.parametrize(
    ("fn", "shapes", "dtype"),
    [
        (rows("theirgcd"), [(5, 300)], "i32"),
        (columns("theirgcd"), [(300, 40)], "i32"),
        (rows("theirgcd"), [(2, 9000)], "i32"),
        (prefixes("theirgcd"), [(9, 70)], "i32"),
        (rows("farthest"), [(33, 40)], "f16"),
        (rows("farthest"), [(33, 1)], "f32"),
        (rows("farthest"), [(9, 40)], "i8"),
        (prefixes("farthest", 0), [(40, 24)], "f64"),
        (rows("logsum"), [(7, 100)], "f32"),
        (prefixes("theirmean"), [(5, 90), (5, 90)], "f32"),
    ],
)
def test_kernels_reduce_and_scan_by_them(
    pack: Pack, fn: Callable[..., Any], shapes: list[tuple[int, ...]], dtype: str
) -> None:
    made = whole(fn, *(axe.Spec(shape, dtype) for shape in shapes))
    flat, planned = made.flat(), plan(made.lowered.kernel, h200)
    launch(made.lowered, flat, planned=planned)
    made.check(flat, 1e-5 if dtype in ("f32", "f16") else 0.0)
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    log = compile_text(emit(planned).text, 90, made.lowered.kernel.name).log
    assert "0 bytes spill stores" in log


@pytest.mark.parametrize(
    ("monoid", "dtype", "reason"),
    [
        ("theirgcd", "i64", "cell 'theirgcd' has no CUDA spelling on i64: Pack.spelling gives it"),
        ("theirgcd", "i8", "of i8, which is exchanged in 32 bits"),
        ("farthest", "bool", "of truth values"),
    ],
)
def test_what_kernels_cannot_reduce_is_refused(
    pack: Pack, monoid: str, dtype: str, reason: str
) -> None:
    with pytest.raises(DispatchError, match=reason):
        plan(whole(rows(monoid), axe.Spec((5, 70), dtype)).lowered.kernel, h200)


def test_a_monoid_of_no_cell_or_unit_is_refused_in_one_line(pack: Pack) -> None:
    pack.monoid(monoid_of("unitless", "maximum"))
    pack.monoid(replace(MOST, name="theircount", merges=""))
    everything = [*installed().values(), pack]
    for monoid, reason in {
        "unitless": "lanes: reduces by unitless, which has no unit",
        "theircount": "lanes: reduces by theircount, and kernels on lanes by what a cell merges",
    }.items():
        with pytest.raises(SearchError, match=reason):
            axe.compile(rows(monoid), "8x64:f32", target="h200", packs=everything)


def test_what_is_interpreted_is_merged_as_it_is_written(pack: Pack) -> None:
    pack.monoid(replace(MOST, name="lying", merges="minimum"))
    made = whole(rows("lying"), axe.Spec((5, 70), "f32"))
    flat = made.flat()
    launch(made.lowered, flat, planned=plan(made.lowered.kernel, h200))
    with pytest.raises(AssertionError, match="of the largest value"):
        made.check(flat, 1e-5)


def test_wrong_cells_of_a_monoid_are_named(pack: Pack) -> None:
    right = ["monoid theirgcd", "monoid farthest", "monoid logsum", "monoid theirmean"]
    assert list(check_operators(right)) == []

    def declared(name: str, **fields: Any) -> str:
        pack.monoid(replace(MOST, name=name, **fields))
        return str(list(check_operators([f"monoid {name}"])))

    assert "declares merges='minimum', which gives another value of" in declared(
        "a", merges="minimum"
    )
    assert "lifts a value to other than the cell 'abs'" in declared(
        "b", merges="maximum", lifts="abs"
    )
    by_max = monoid_of("c", "maximum", 0.0)
    assert "unit=0, which changes" in str(
        list(check_operators([f"monoid {pack.monoid(by_max).name}"]))
    )


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda p: Parts(p.lift, p.merge, (1.0, 0.0), p.finish), "has parts that give"),
        (lambda p: Parts(p.lift, p.merge, p.units, arg(1)), "has parts that give"),
        (lambda p: Parts((arg(0), arg(1)), p.merge, p.units, p.finish), "has parts that give"),
        (lambda p: Parts(p.lift[:1], p.merge, p.units, p.finish), "1 lifts, 2 merges, 2 units"),
        (
            lambda p: Parts(p.lift, p.merge, p.units, apply("where", apply("isfinite", arg(1)),
                                                            p.finish, 0.0)),
            "for extreme terms",
        ),
    ],
)  # fmt: skip
def test_wrong_parts_are_named(pack: Pack, change: Callable[[Parts], Parts], wrong: str) -> None:
    kernel_monoids._declared["theirmean"] = lambda dtypes: change(mean_parts(dtypes))
    ((title, found),) = check_operators(["monoid theirmean"])
    assert title == "monoid theirmean"
    assert wrong in found


@pytest.mark.parametrize(
    ("declare", "wrong"),
    [
        (lambda p: p.monoid(replace(MOST, name="m", merges="nocell")), "which is no declared"),
        (lambda p: p.monoid(replace(MOST, name="m", merges="exp")), "cell of 2 operands"),
        (lambda p: p.monoid(replace(MOST, name="m", lifts="sub")), "is of 'sub', which is no"),
        (lambda p: p.monoid(MEAN, lambda dtypes: mean_parts(dtypes)), "are declared twice"),
        (lambda p: p.monoid(MEAN, "parts"), "has parts='parts'; expected a function of dtypes"),
    ],
)
def test_a_wrong_monoid_is_refused_where_it_is_declared(
    pack: Pack, declare: Callable[[Pack], Any], wrong: str
) -> None:
    with pytest.raises(PackError, match=wrong):
        declare(pack)

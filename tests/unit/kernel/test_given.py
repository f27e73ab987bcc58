"""What kernel builders are given: mistakes are refused where they are made, at the user's line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import AxeError, ScheduleError
from axe_eq.kernel import build, given
from axe_eq.kernel.cells import Apply, Cell, apply, arg
from axe_eq.kernel.expr import var
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.interp import KernelFault, interpret
from axe_eq.kernel.threads.ir import span
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200

LANES = "S[32:1@lane]"


def x(k: ThreadBuilder, dtype: str = "f32") -> Any:
    return k.tensor("x", dtype, (32,))


def r(k: ThreadBuilder, dtype: str = "f32", name: str = "r") -> ir.Buffer:
    return k.reg(name, dtype, (32,), LANES)


def other() -> ThreadBuilder:
    return ThreadBuilder("other", 1)


def _within(opened: Callable[[ThreadBuilder], Any], inside: Callable[[ThreadBuilder], Any]) -> Any:
    def write(k: ThreadBuilder) -> None:
        with opened(k):
            inside(k)

    return write


def _filled(dtype: str, value: Any) -> Any:
    return lambda k: k.fill(r(k, dtype).all, value)


def _mapped(cell: Any, dtype: str = "f32") -> Any:
    return lambda k: k.map(cell, r(k, dtype).all, r(k, dtype).all)


def _deep(levels: int) -> Cell:
    cell: Cell = arg(0)
    for _ in range(levels - 1):
        cell = Apply("add", (cell, cell))
    return cell


def _left_open(k: ThreadBuilder) -> None:
    loop = k.range(3)
    loop.__enter__()
    k.finish()


def _nested(k: ThreadBuilder) -> None:
    with k.range(2):
        _nested(k)


Case = tuple[Callable[[Any], Any], str]  # the values are of wrong types on purpose
made: Any = ThreadBuilder
part: Any = span
text: Any = "x"
MISTAKES: dict[str, Case] = {
    # -- views --
    "a buffer": (lambda k: k.copy(r(k), x(k)), "copy: r is no view; expected a part of a"),
    "nothing": (lambda k: k.copy(None, x(k).all), "copy: None is no view"),
    "an index that is a text": (lambda k: x(k)["a"], "buffer x: index 'a'; expected an integer"),
    "a fraction": (lambda k: x(k)[0.5:2], "buffer x: begin 0.5; expected an integer"),
    "an end that is a fraction": (lambda k: x(k)[0:2.5], "buffer x: end 2.5"),
    "an ellipsis": (lambda k: x(k)[...], "buffer x: index Ellipsis"),
    "no index": (lambda k: x(k)[None], "buffer x: index None"),
    "a truth": (lambda k: x(k)[True], "buffer x: index True"),
    "a span of fractions": (lambda k: x(k)[part(0, 2.0)], "buffer x: extent 2.0"),
    "a span of run-time size": (
        lambda k: x(k)[span(0, k.param("n"))], "buffer x: extent n; expected a number",
    ),
    "a slice of run-time size": (lambda k: x(k)[0 : k.param("n")], "known only at run time"),
    "an element after the last": (
        lambda k: x(k)[32], "buffer x: index 32 of dim 0; expected 0 to 31, from the first",
    ),
    "an element counted from the end": (lambda k: x(k)[-1], "buffer x: index -1 of dim 0"),
    "a vector turned": (lambda k: x(k).all.T, "has 1 dims to swap; expected at least 2"),
    # -- declarations --
    "an empty tensor": (lambda k: k.tensor("x", "f32", (0,)), "tensor x: shape (0); expected ext"),
    "a negative extent": (lambda k: k.tensor("x", "f32", (4, -3)), "shape (4, -3)"),
    "an extent of a fraction": (lambda k: k.tensor("x", "f32", (32.0,)), "shape 32.0"),
    "one number for a shape": (
        lambda k: k.tensor("x", "f32", 32), "tensor x: shape 32; expected a sequence of integers",
    ),
    "no dtype": (lambda k: k.tensor("x", None, (32,)), "tensor x: dtype None; expected one of"),
    "an unknown dtype": (lambda k: k.tensor("x", "f33", (32,)), "dtype 'f33': is not known"),
    "a name that is a number": (lambda k: k.tensor(5, "f32", (32,)), "is named 5; expected a na"),
    "a name of two lines": (lambda k: k.smem("a\nb", "f32", (32,)), "is named 'a\\nb'"),
    "strides of another rank": (
        lambda k: k.tensor("x", "f32", (32,), strides=(1, 1)), "tensor x: 2 strides for 1 dims",
    ),
    "negative strides": (
        lambda k: k.tensor("x", "f32", (32,), strides=(-1,)),
        "tensor x: layout (32:-1@m); expected iters on axis m, no element before the first",
    ),
    "negative strides with a small offset": (
        lambda k: k.tensor("x", "f32", (32,), layout="S[32:-1@m] + 30@m"), "no element before",
    ),
    "a tensor on lanes": (lambda k: k.tensor("x", "f32", (32,), layout=LANES), "iters on axis m"),
    "memory below its buffer": (
        lambda k: k.smem("s", "f32", (32,), "S[32:-1@m]"), "smem s: layout (32:-1@m); expected it",
    ),
    "registers below the first": (
        lambda k: k.reg("q", "f32", (64,), "S[(2,32):(-1@reg,1@lane)]"), "registers q: layout (2:-",
    ),
    "registers on an unknown axis": (
        lambda k: k.reg("q", "f32", (32,), "S[32:1@banana]"), "iters on axes warp, lane, reg",
    ),
    "registers on 64 lanes": (
        lambda k: k.reg("q", "f32", (64,), "S[64:1@lane]"),
        "registers q: layout (64:1@lane) takes 64 lanes; expected 32 at most",
    ),
    "lanes far apart": (
        lambda k: k.reg("q", "f32", (2,), "S[2:32@lane]"), "takes 33 lanes; expected 32 at most",
    ),
    "registers of 16 warps": (
        lambda k: k.reg("q", "f32", (512,), "S[512:1@tx]"), "takes 16 warps; expected 8 at most",
    ),
    "copies on 64 lanes": (
        lambda k: k.reg("q", "f32", (2,), "S[2:1@reg] + R[64:1@lane]"), "takes 64 lanes; expected",
    ),
    "a warpgroup's registers on 8 warps": (
        _within(
            lambda k: k.roles(),
            _within(
                lambda k: k.warpgroups(0, 1), lambda k: k.reg("q", "f32", (256,), "S[256:1@tx]")
            ),
        ),
        "takes 8 warps; expected 4 at most",
    ),
    "a layout that is none": (lambda k: k.reg("q", "f32", (32,), 7), "registers q: layout 7"),
    "slots of a fraction": (lambda k: k.mbarriers("b", 1.5), "barrier b: slots 1.5"),
    "warps as a text": (lambda k: made("k", "4"), "kernel k: warps '4'; expected an integer"),
    "warps of a fraction": (lambda k: made("k", 1.5), "kernel k: warps 1.5"),
    "a cluster as a text": (lambda k: made("k", 1, "2"), "kernel k: cluster '2'"),
    "a kernel named by a number": (lambda k: made(5, 1), "kernel: is named 5"),
    "parameters of no divisor": (
        lambda k: k.param("n", 0), "param n: divisor 0; expected a number, at least 1",
    ),
    "parameters that have no value": (
        lambda k: k.param("n", 8, high=4), "param n: high 4; expected a number, at least 8",
    ),
    "bounds the wrong way round": (
        lambda k: k.state("s", 0, low=3, high=1), "state s: bounds 3 to 1; expected the lower one",
    ),
    "a bound that is a text": (lambda k: k.state("s", 0, high="3"), "state s: high '3'; expected"),
    "a state outside its bounds": (
        lambda k: k.state("s", 4, high=3), "state s: becomes 4; expected 0 to 3",
    ),
    "a state that leaves its bounds": (
        lambda k: k.assign(s := k.state("s", 0, high=0), s + 5), "state s: becomes s + 5; expect",
    ),
    "a loop's variable assigned": (
        _within(lambda k: k.range(2), lambda k: k.assign(var("i", 1, 0, 1), 0)),
        "assign: i is no state of this kernel; expected one of k.state",
    ),
    "a parameter assigned": (lambda k: k.assign(k.param("n"), 3), "assign: n is no state of this"),
    "a state of another kernel": (
        lambda k: k.assign(other().state("s", 0), 3), "assign: s is no state of this kernel",
    ),
    "a let of a fraction": (lambda k: k.let("q", 0.5), "let q: value 0.5; expected an integer"),
    # -- control --
    "a step of 0": (
        lambda k: k.range(4, step=0).__enter__(), "range: step 0; expected a step that is proven",
    ),
    "a step back": (lambda k: k.range(4, start=8, step=-1).__enter__(), "range: step -1"),
    "a step of a state": (
        lambda k: k.range(4, step=k.state("s", 1)).__enter__(), "range: step s; expected a step",
    ),
    "a range of a fraction": (lambda k: k.range(4.5).__enter__(), "range: stop 4.5; expected an"),
    "no tiles": (lambda k: k.tiles(0).__enter__(), "tiles: count 0; expected at least 1"),
    "tiles of a fraction": (lambda k: k.tiles(1.5).__enter__(), "tiles: count 1.5; expected an"),
    "half a condition": (lambda k: k.when(0.5).__enter__(), "when: condition 0.5; expected an int"),
    "a statement beside roles": (
        _within(lambda k: k.roles(), lambda k: k.fill(r(k).all, 0.0)),
        "roles: fill beside k.warpgroups; expected statements inside k.warpgroups",
    ),
    "a value beside roles": (
        _within(lambda k: k.roles(), lambda k: k.state("s", 0)), "roles: let beside k.warpgroups",
    ),
    "warpgroups the wrong way round": (
        _within(lambda k: k.roles(), lambda k: k.warpgroups(2, 1).__enter__()),
        "warpgroups: high 1; expected a number, at least 3",
    ),
    "finished inside a loop": (_left_open, "kernel k: is finished inside a scope; expected at its"),
    "statements without end": (_nested, "kernel: statements of 100 levels; expected fewer"),
    # -- synchronisation --
    "a wait for a tensor": (
        lambda k: k.wait(x(k), 0, 0), "wait: x is no array of barriers; expected k.mbarriers",
    ),
    "an arrival at a number": (lambda k: k.arrive(3, 0), "arrive: 3 is no array of barriers"),
    "a slot that is a text": (
        lambda k: k.wait(k.mbarriers("b", 1), "a", 0), "barrier b: slot 'a'; expected an integer",
    ),
    "a parity that is a fraction": (
        lambda k: k.wait(k.mbarriers("b", 1), 0, 0.5), "wait for b: parity 0.5",
    ),
    "groups of a fraction": (
        lambda k: k.wait_group("cp_async", 0.5), "wait_group: pending 0.5; expected an integer",
    ),
    "ranks that are a number": (
        lambda k: k.arrive(k.mbarriers("b", 1), 0, ranks=1), "arrive at b: ranks 1; expected a seq",
    ),
    # -- primitives --
    "an input written": (
        lambda k: k.copy(x(k).all, r(k).all),
        "copy: x[0:+32] is a part of an input; expected a tensor with output=True",
    ),
    "an input filled": (lambda k: k.fill(x(k).all, 0.0), "fill: x[0:+32] is a part of an input"),
    "a fill that is a text": (_filled("f32", "abc"), "fill: value 'abc'; expected a number"),
    "a copy's fill that is a text": (
        lambda k: k.copy(r(k).all, x(k).all, fill="x"), "copy: value 'x'; expected a number",
    ),
    "a fill past f32": (_filled("f32", 1e300), "fill: value 1e+300; expected what f32 holds"),
    "a fill past f16": (_filled("f16", 1e6), "fill: value 1000000.0; expected what f16 holds"),
    "infinity of 8 bits": (_filled("f8e4m3", math.inf), "fill: value inf; expected what f8e4m3 h"),
    "a fraction for an integer": (_filled("i32", 1.5), "fill: value 1.5; expected what i32 holds"),
    "a fill past i32": (_filled("i32", 1 << 31), "fill: value 2147483648; expected what i32 holds"),
    "NaN for an integer": (_filled("i32", math.nan), "fill: value nan; expected what i32 holds"),
    "a third truth": (_filled("bool", 2), "fill: value 2; expected what bool holds"),
    "a name for a cell": (_mapped("add"), "map: cell 'add'; expected a cell expression: apply("),
    "a text in a cell": (
        lambda k: _mapped(apply("add", arg(0), text))(k), "map: constant 'x'; expected a",
    ),
    "bits of floats": (
        _mapped(apply("bit_and", arg(0), arg(0))), "cell 'bit_and': got f32; expected an integer",
    ),
    "a deep mistake in a cell": (
        _mapped(apply("exp", apply("lt", arg(0), 1.0))), "cell 'exp': got bool; expected a float",
    ),
    "a cast to nothing": (
        lambda k: apply("cast", arg(0)),
        "cell 'cast': has 0 parameters in its text; expected 1, such as \"cast f32\"",
    ),
    "a cast to two": (lambda k: apply("cast f32 f16", arg(0)), "cell 'cast f32 f16': has 2 param"),
    "a cast to an unknown dtype": (lambda k: apply("cast f33", arg(0)), "dtype 'f33': is not kno"),
    "a parameter of a cell that has none": (
        lambda k: apply("exp 2", arg(0)), "cell 'exp 2': has 1 parameters in its text; expected 0",
    ),
    "a deep cell": (
        _mapped(_deep(3000)), "map: a cell of more than 100 levels; expected several maps",
    ),
    "a cell of two values": (
        _mapped(apply("pair", arg(0), arg(0))), "map: cell 'pair' of 2 values; expected one value",
    ),
    "a dim that is not there": (
        lambda k: k.reduce("+", r(k).all, r(k).all, [5]),
        "reduce: dims [5] of a tile of 1 dims; expected different ones of 0 to 0",
    ),
    "a dim counted from the end": (
        lambda k: k.reduce("+", k.reg("o", "f32", (1,), "S[1:1]").all, r(k).all, [-1]),
        "reduce: dims [-1] of a tile of 1 dims",
    ),
    "a dim twice": (
        lambda k: k.reduce("+", k.reg("o", "f32", (1,), "S[1:1]").all, r(k).all, [0, 0]),
        "reduce: dims [0, 0] of a tile of 1 dims",
    ),
    "a tile reduced over no dim": (
        lambda k: k.reg_reduced("o", "f32", r(k).all, [2]), "registers o: dims [2] of a tile of 1",
    ),
    "an unknown monoid": (
        lambda k: k.reduce("xor", r(k).all, r(k).all, []), "reduce: monoid 'xor'; expected one of",
    ),
    "sums of truths": (
        lambda k: k.reduce("+", r(k, "bool").all, r(k, "bool").all, []), "monoid '+': got bool;",
    ),
    "scratch that is a view": (
        lambda k: k.reduce("+", r(k).all, r(k).all, [], k.smem("s", "f32", (4,)).all),
        "reduce: s[0:+4] is no buffer; expected a buffer",
    ),
    "positions along no dim": (
        lambda k: k.index(r(k, "i32").all, 7), "index: dims [7] of a tile of 1 dims",
    ),
    "positions along the dim before the first": (
        lambda k: k.index(r(k, "i32").all, -1), "index: dims [-1] of a tile of 1 dims",
    ),
    "positions from a fraction": (
        lambda k: k.index(r(k, "i32").all, 0, 0.5), "index: begin 0.5; expected an integer",
    ),
    "a copy to another dtype": (
        lambda k: k.copy(r(k, "f16").all, x(k).all),
        'copy: f32 to f16; expected k.map with a cast: apply("cast f16", arg(0))',
    ),
    "a text that decides about a sum": (
        lambda k: k.gemm(r(k).all, x(k).all, x(k).all, "no"), "gemm: condition 'no'; expected an",
    ),
    # -- parts of another kernel --
    "registers of another kernel": (
        lambda k: k.copy(r(other()).all, x(k).all),
        "copy: r belongs to another kernel; expected a buffer of this one",
    ),
    "a tensor of another kernel": (
        lambda k: k.copy(r(k).all, x(other()).all), "copy: x belongs to another kernel",
    ),
    "a number beyond floats": (
        lambda k: k.fill(r(k).all, 10**5000), "value of 16610 bits; expected what f32 holds",
    ),
    "a number beyond integers": (
        lambda k: k.fill(r(k, "i32").all, -(10**400)), "value of 1329 bits; expected what i32",
    ),
    "barriers of another kernel": (
        lambda k: k.arrive(other().mbarriers("b", 1), 0), "arrive: b belongs to another kernel",
    ),
    "scratch of another kernel": (
        lambda k: k.reduce("+", r(k).all, r(k).all, [], other().smem("s", "f32", (4,))),
        "reduce: s belongs to another kernel",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused_at_their_line(name: str) -> None:
    write, reason = MISTAKES[name]
    with pytest.raises(AxeError) as refusal:
        write(ThreadBuilder("k", 8))
    assert reason in str(refusal.value)
    assert refusal.value.at.rpartition(":")[0] == __file__


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("f32", -math.inf), ("f32", math.nan), ("f16", 65504), ("f8e5m2", math.inf), ("bool", True),
        ("i32", -(1 << 31)), ("i32", 7.0), ("i64", (1 << 62) + 1), ("i64", np.int32(3)),
    ],
)  # fmt: skip
def test_what_elements_hold_is_filled_in(dtype: str, value: Any) -> None:
    k = ThreadBuilder("k", 1)
    out = k.tensor("out", dtype, (32,), output=True)
    tile = r(k, dtype)
    k.fill(tile.all, value)
    k.copy(out.all, tile.all)
    found = run(k.finish(), out=np.zeros(32, out.type.numpy))["out"]
    want = np.full(32, value).astype(out.type.numpy)
    assert np.array_equal(found.astype("f8"), want.astype("f8"), equal_nan=True)
    assert dtype != "i64" or int(found[0]) == value


def run(kernel: ir.Kernel, **arrays: Any) -> Any:
    return interpret(kernel, arrays, planned=plan(kernel, h200), meanings=MEANINGS).outputs


def test_deepest_cells_and_statements_are_planned_run_and_written() -> None:
    k = ThreadBuilder("k", 1)
    out, tile = k.tensor("out", "f32", (32,), output=True), r(k)
    given_ = x(k)
    cell: Cell = arg(0)
    for _ in range(given.DEEPEST_CELL - 1):
        cell = apply("add", cell, 1.0)

    def statements(left: int) -> None:
        if left:
            with k.when(1):
                statements(left - 1)
            return
        k.copy(tile.all, given_.all)
        k.map(cell, tile.all, tile.all)
        k.copy(out.all, tile.all)

    statements(build.DEEPEST)
    kernel = k.finish()
    zeros = np.zeros(32, np.float32)
    assert (run(kernel, x=zeros, out=zeros)["out"] == given.DEEPEST_CELL - 1).all()
    emit(plan(kernel, h200))


def test_numbers_of_numpy_are_numbers() -> None:
    k = made("k", np.int64(1))
    tile = k.reg("r", "f32", (np.int32(32),), LANES)
    k.copy(tile.all, x(k)[np.int64(0) : np.int64(32)])
    with k.range(np.int16(3)), k.when(np.True_):
        k.sync()
    assert plan(k.finish(), h200).kernel.n_threads == 32


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["a", "a", "a_1", "a", "a_1"], ["a", "a_1", "a_1_1", "a_2", "a_1_2"]),
        (["a_1", "a", "a", "a"], ["a_1", "a", "a_2", "a_3"]),
    ],
)
def test_names_are_given_once(wanted: list[str], found: list[str]) -> None:
    k = ThreadBuilder("k", 1)
    assert [k.state(name, 0).name for name in wanted] == found


# -- states and other promises --


def _climbing(step: int) -> ir.Kernel:
    k = ThreadBuilder("k", 1)
    s = k.state("s", 0, high=7)
    with k.range(3):
        k.assign(s, s + step)
    return k.finish()


def test_a_state_that_leaves_its_bounds_is_a_fault() -> None:
    interpret(_climbing(2), {})
    with pytest.raises(KernelFault, match="variable s: becomes 9; expected 0 to 7") as fault:
        interpret(_climbing(3), {})
    assert fault.value.at.rpartition(":")[0] == __file__


def test_a_state_beyond_32_bits_is_a_fault() -> None:
    k = ThreadBuilder("k", 1)
    s = k.state("s", 1 << 20)
    with k.range(2):
        k.assign(s, s * 64)
    with pytest.raises(KernelFault, match="variable s: becomes 4294967296; expected 0 to 2147483"):
        interpret(k.finish(), {})


def test_a_bound_that_does_not_hold_is_a_fault() -> None:
    k = ThreadBuilder("k", 1)
    n = k.param("n", high=9)
    k.let("rest", n - 4, low=1)
    kernel = k.finish()
    interpret(kernel, {}, {"n": 5})
    with pytest.raises(KernelFault, match="variable rest: becomes 0; expected 1 to 5"):
        interpret(kernel, {}, {"n": 4})
    with pytest.raises(KernelFault, match="variable n: becomes 10; expected 1 to 9"):
        interpret(kernel, {}, {"n": 10})


def test_a_promised_bound_allows_a_division() -> None:
    k = ThreadBuilder("k", 1)
    n = k.param("n", high=9)
    with pytest.raises(ScheduleError, match="divides what may be -3"):
        k.let("half", (n - 4) // 2)
    k.let("half", k.let("rest", n - 4, low=0) // 2)


# -- arrays and parameters --


def _of_n() -> ir.Kernel:
    k = ThreadBuilder("k", 1)
    n = k.param("n")
    k.tensor("x", "f32", (n, 32))
    k.tensor("y", "f16", (n,))
    return k.finish()


ARRAYS: dict[str, Any] = {"x": np.zeros((4, 32), np.float32), "y": np.zeros(4, np.float16)}
UNFIT: dict[str, tuple[Any, Any, str]] = {
    "other names": ({"Z": 1}, {"n": 4}, "kernel k: arrays lack x, y and have Z; expected x, y"),
    "one missing": ({"x": ARRAYS["x"]}, {"n": 4}, "kernel k: arrays lack y; expected x, y"),
    "one too many": (ARRAYS | {"z": 1}, {"n": 4}, "kernel k: arrays have z; expected x, y"),
    "no parameter": (ARRAYS, {}, "kernel k: params lack n; expected n"),
    "another parameter": (ARRAYS, {"n": 4, "m": 4}, "kernel k: params have m; expected n"),
    "a list": (ARRAYS | {"y": [0.0] * 4}, {"n": 4}, "tensor y: got [0.0, 0.0, 0.0, 0.0]; expected"),
    "another dtype": (
        ARRAYS | {"y": np.zeros(4)}, {"n": 4},
        "tensor y: array of dtype float64; expected float16 (f16)",
    ),
    "another extent": (ARRAYS, {"n": 5}, "tensor x: array of shape (4, 32); expected (5, 32)"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_arrays_and_parameters_that_do_not_fit_are_named(name: str) -> None:
    arrays, params, reason = UNFIT[name]
    interpret(_of_n(), ARRAYS, {"n": 4})
    with pytest.raises(KernelFault) as fault:
        interpret(_of_n(), arrays, params)
    assert reason in str(fault.value)


# -- texts --


def _plain(name: str = "k", tensor: str = "x") -> ir.Kernel:
    k = ThreadBuilder(name, 1)
    source, out, tile = (
        k.tensor(tensor, "f32", (32,)),
        k.tensor("y", "f32", (32,), output=True),
        r(k),
    )
    k.copy(tile.all, source.all)
    k.copy(out.all, tile.all)
    return k.finish()


def _idle() -> ir.Kernel:
    k = ThreadBuilder("k", 1)
    k.smem("s", "f32", (32,))
    return k.finish()


def _of_threads() -> ir.Kernel:
    k = ThreadBuilder("k", 1)
    source, out = x(k), k.tensor("y", "f32", (32,), output=True)
    with k.each_thread() as t:
        tile = k.reg("t", "f32", (1,), "S[1:1@reg]")
        k.copy(tile.all, source[span(t, 1)])
        k.copy(out[span(t, 1)], tile.all)
    return k.finish()


@pytest.mark.parametrize("write", [_plain, _idle, _of_threads])
def test_texts_declare_nothing_that_they_do_not_read(write: Callable[[], ir.Kernel]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    text = emit(plan(write(), h200)).text
    assert "warning" not in compile_text(text, 90, "k").log


@pytest.mark.parametrize("name", ["main", "__global__", "_Pragma", "\u00e9t\u00e9", "x;y", "9", ""])
def test_kernels_and_tensors_have_any_printable_name(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    source = emit(plan(_plain(name, name), h200))
    assert source.name.isascii()
    assert source.name.isidentifier()
    assert "warning" not in compile_text(source.text, 90, source.name).log


def test_tensor_maps_of_such_names_stay_apart() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    k = ThreadBuilder("k", 1)
    barrier = k.mbarriers("b", 1)
    with k.one_thread(), k.arrives(barrier, 0):
        for name in ("a.b", "a b", "\u00e9t\u00e9", "\u00e0t\u00e0"):
            k.copy_async(k.smem(name, "f32", (32,)).all, k.tensor(name, "f32", (32,)).all)
    with k.range(k.param("n"), name="map_a_b") as i:
        k.let("twice", i * 2)
        k.sync()
    k.wait(barrier, 0, 0)
    source = emit(plan(k.finish(), h200))
    compile_text(source.text, 90, source.name)
    assert sum(a.kind == "map" for a in source.arguments) == 4


@pytest.mark.parametrize("monoid", ["xor", "softmax"])
def test_a_monoid_that_no_cell_merges_is_refused_at_its_line(monoid: str) -> None:
    k = ThreadBuilder("k", 1)
    tile = r(k)
    k.copy(tile.all, x(k).all)
    k.reduce("+", tile.all, tile.all, [])
    k.kernel.body[-1].monoid = monoid  # type: ignore[attr-defined]
    with pytest.raises(
        AxeError, match=f"monoid '{monoid}'; needs one that a cell merges"
    ) as refusal:
        plan(k.finish(), h200)
    assert refusal.value.at.rpartition(":")[0] == __file__

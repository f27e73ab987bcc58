"""Kernels whose tiles hang over the end of a dim, attacked: drawn programs, interpreted.

``python -m benchmarks.ragged --count 1000 --results FILE`` draws programs by seed, compiles each
for an H200, interprets the kernels that would be emitted and compares them with numpy. Extents are
mostly odd, values mostly such that a branch depends on them (equal, 0, large, infinite, NaN, the
ends of a type). FILE keeps a line of JSON per seed, and seeds in it are not run again.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import AxeError
from axe_eq.program.types import DTYPES

RIGHT, WRONG, REFUSED, RAISED = "right", "wrong", "refused", "raised"
MOST_ELEMENTS = 1 << 14
FLOATS = ("f32", "f32", "f16", "bf16", "f64", "f8e4m3", "f8e5m2")
WHOLE = ("i32", "i64")
MODERATE = (0.0, 0.0, 1.0, 1.0, -1.0, 2.0, 0.5, 3.0, -37.0, 88.0, 120.0, 150.0, -4.0)
EXTREME = (1e4, -1e4, 1e-4, np.inf, -np.inf, np.nan, 0.0, -0.0, 6e4, 3e38, -3e38)
INTEGERS = (0, 0, 1, -1, 2, 3, 7, -5, 150)
ENDS = (-(2**31), 2**31 - 1, -(2**31) + 1, 1 << 20)
# Results of several roundings, and of exponentials right to 1e-5.
TOLERANCE = {"f64": 1e-6, "f32": 1e-3, "f16": 1e-2, "bf16": 6e-2, "f8e4m3": 0.2, "f8e5m2": 0.4}


@dataclass(frozen=True)
class Case:
    """A program as text over its inputs, and how it is compiled and fed.

    Attributes:
        text: an expression over `xp`, `nn` and the inputs.
        specs: name, shape and dtype of every input.
        numerics: "real" or "exact".
        extreme: values include infinities, NaN and the ends of types.
        seed: of the values.
    """

    text: str
    specs: tuple[tuple[str, tuple[int, ...], str], ...]
    numerics: str
    extreme: bool
    seed: int

    def __call__(self, *arrays: Any) -> Any:
        """The program."""
        names = {name: a for (name, _, _), a in zip(self.specs, arrays, strict=True)}
        return eval(self.text, {"xp": axe.array, "nn": nn, "inf": np.inf, **names})

    def inputs(self) -> list[Any]:
        """Values from a short list, so that they are often equal."""
        rng = np.random.default_rng(self.seed)
        return [self._values(rng, shape, dtype) for _, shape, dtype in self.specs]

    def _values(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
        kind, numpy = DTYPES[dtype].kind, DTYPES[dtype].numpy
        if kind == "b":
            return rng.random(shape) < rng.choice([0.0, 0.1, 0.5, 1.0])
        whole = kind == "i"
        pool: list[Any] = list(INTEGERS if whole else MODERATE)
        chosen = [pool[i] for i in rng.integers(0, len(pool), rng.integers(1, 6))]
        if self.extreme:
            more = ENDS if whole else EXTREME
            chosen += [more[i] for i in rng.integers(0, len(more), rng.integers(1, 3))]
        weights = rng.dirichlet(np.ones(len(chosen)) * 0.5)
        with np.errstate(all="ignore"):
            return np.asarray(chosen)[rng.choice(len(chosen), shape, p=weights)].astype(numpy)


class Drawing:
    """Draws one program."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.kind = rng.choice("ffffi")
        self.base = rng.choice(FLOATS if self.kind == "f" else WHOLE)
        self.rows = rng.random() < 0.4  # sums of ragged rows alone, of values that hang on the row
        self.shape = (rng.randint(2, 40), rng.randint(17, 400)) if self.rows else self._shape()
        self.inputs: dict[str, tuple[tuple[int, ...], str]] = {}
        self.seed = seed

    def _shape(self) -> tuple[int, ...]:
        rng, rank = self.rng, self.rng.choice((1, 2, 2, 2, 2, 2, 3))
        while True:
            ends = [5000 if d == rank - 1 else 60 for d in range(rank)]
            if rng.random() < 0.25:
                rng.shuffle(ends)
            found = tuple(int(np.exp(rng.uniform(0, np.log(e + 0.999)))) for e in ends)
            if int(np.prod(found)) <= MOST_ELEMENTS:
                return found

    def case(self) -> Case:
        """The program."""
        rng, names = self.rng, list[str]()
        for _ in range(rng.choice((1, 1, 1, 2))):
            names.append(self._result())
        text = names[0] if len(names) == 1 else f"({', '.join(names)})"
        numerics = rng.choice(("real", "exact"))
        extreme = numerics == "exact" and rng.random() < 0.7
        if not re.search(r"\b[a-z]\d?[nk]?\b", text):
            text = f"{text} + {self._input('x', self.shape)}[..., :1]"
        named = set(re.findall(r"\w+", text))
        specs = tuple((n, *of) for n, of in self.inputs.items() if n in named)
        return Case(text, specs, numerics, extreme, self.seed)

    # -- values of the whole shape --

    def _leaf(self) -> str:
        rng, rank = self.rng, len(self.shape)
        pick = rng.random()
        if pick < 0.55:
            return self._input(rng.choice("xxy"), self.shape)
        if pick < 0.9:  # along all dims but one, or along one
            d = rng.randrange(rank)
            drop = rng.random() < 0.6
            kept = tuple(
                1 if (n == d) == drop and rank > 1 else e for n, e in enumerate(self.shape)
            )
            return self._input(rng.choice("abuv") + str(d) + "nk"[drop], kept)
        return repr(rng.choice((0, 1, 2, -1) if self.kind == "i" else (0.0, 1.0, 0.5, -2.0, 100.0)))

    def _input(self, name: str, shape: tuple[int, ...]) -> str:
        dtype = self.base
        if name not in self.inputs:
            if self.rng.random() < 0.15:
                dtype = self.rng.choice(FLOATS if self.kind == "f" else WHOLE)
            self.inputs[name] = shape, dtype
        return name

    def _value(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.1:
            return self._leaf()
        a, b = self._value(depth - 1), self._value(depth - 1)
        forms = [f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"xp.maximum({a} * {a}, {b})",
                 f"xp.where({self._test(depth - 1)}, {a}, {b})", f"xp.abs({self._array(a)})",
                 f"xp.where({self._test(depth - 1)}, {a}, 1)", f"xp.minimum({a}, {b} - 200)",
                 f"(-{a})"]  # fmt: skip
        if self.kind == "f":
            x = self._array(a)
            forms += [f"xp.exp(-xp.abs({x}))", f"xp.tanh({x})", f"xp.sqrt(xp.abs({x}))",
                      f"({a} / (1 + xp.abs({self._array(b)})))", f"xp.floor({x})",
                      f"({x} / {self._array(b)})", f"xp.sign({x})"]  # fmt: skip
        else:
            x, y = self._array(a), self._array(b)
            forms += [f"xp.bitwise_and({x}, {y})", f"xp.bitwise_or({x}, {y})",
                      f"xp.bitwise_xor({x}, 3)", f"xp.bitwise_invert({x})",
                      f"xp.bitwise_left_shift({x}, 2)", f"xp.bitwise_right_shift({x}, 1)",
                      f"({x} // (xp.abs({y}) + 1))", f"({x} % 7)"]  # fmt: skip
        return self.rng.choice(forms)

    def _array(self, text: str) -> str:
        """The same, an array where it is a plain number."""
        try:
            float(text)
        except ValueError:
            return text
        return f"({text} + {self._input('x', self.shape)})"

    def _test(self, depth: int) -> str:
        a, b = self._array(self._value(depth)), self._value(depth)
        tests = [f"({a} == {b})", f"({a} != {b})", f"({a} > 100)", f"({a} < {b})", f"({a} >= 0)",
                 f"(({a} > 0) | ({a} != {b}))", f"xp.logical_not({a} > 2)"]  # fmt: skip
        return self.rng.choice(tests)

    def _full(self, depth: int) -> str:
        """A value that has the whole shape."""
        value = self._value(depth)
        if re.search(r"\b[xy]\b", value):
            return value
        if self.rng.random() < 0.5:
            return f"({value} + {self._input('x', self.shape)})"
        return f"xp.broadcast_to({self._array(value)}, {self.shape})"

    # -- reductions --

    def _axis(self) -> str:
        rank = len(self.shape)
        choices = ["-1", "-1", "-1", *map(str, range(rank)), "None"]
        if rank > 2:
            choices += ["(0, 2)", "(1, 2)"]
        return self.rng.choice(choices)

    def _reduced(self, value: str, axis: str, keep: bool = False) -> str:
        rng, kept = self.rng, ", keepdims=True" if keep else ""
        forms = [
            f"xp.sum({value}, axis={axis}{kept})",
            f"xp.sum({value}, axis={axis}{kept})",
            f"xp.max({value}, axis={axis}{kept})",
            f"xp.min({value}, axis={axis}{kept})",
        ]
        if not keep:
            forms += [
                f"xp.prod(xp.where({value} > 100, 2, 1), axis={axis})",
                f"xp.prod(xp.where({value} == 0, 1, -1), axis={axis})",
                f"xp.count_nonzero({value}, axis={axis})",
                f"xp.any({value} > 3, axis={axis})",
                f"xp.all({value} != 2, axis={axis})",
            ]
            if axis in ("-1", "0", "1", "None"):
                forms += [f"xp.argmax({value}, axis={axis})", f"xp.argmin({value}, axis={axis})"]
        if self.kind == "f":
            forms += [f"xp.mean({value}, axis={axis}{kept})", f"xp.var({value}, axis={axis}{kept})"]
        return rng.choice(forms)

    def _of_rows(self) -> str:
        """A value of the whole shape that hangs on values of a row: zeros, choices, factors."""
        d, rank = len(self.shape) - 1, len(self.shape)
        kept = tuple(1 if n == d and rank > 1 else e for n, e in enumerate(self.shape))
        a, b = (self._input(f"{name}{d}n", kept) for name in "ab")
        x = self._input("x", self.shape)
        value = self._full(self.rng.choice((0, 1)))
        forms = [
            f"({value} + ({a} - {b}))",
            f"xp.where({a} == {b}, {value}, 1)",
            f"xp.where({a} > 100, 1, {value})",
            f"xp.maximum({x} * {x}, {a} - 200)",
            f"(({value} > 0) | ({a} != {b}))",
            f"xp.where({a} > 100, 2, 1 + 0 * {x})",
            f"(xp.abs({x}) * {a})",
            f"({x} * ({a} - {b}) + ({a} - {b}) * {a})",
            f"xp.where({x} < {a}, {value}, {b})",
            f"xp.minimum({value}, {a} * {b})",
        ]
        if self.kind == "f":
            forms += [f"({x} / {a})", f"xp.exp({x} - {a})", f"xp.where({a} == {b}, xp.exp({x}), 0)",
                      f"(xp.tanh({x}) * ({a} / {b}))"]  # fmt: skip
        else:
            forms += [f"xp.bitwise_or({x}, {a})", f"xp.bitwise_and({x}, {a} - {b})",
                      f"xp.bitwise_xor({x}, {a})"]  # fmt: skip
        return self.rng.choice(forms)

    def _result(self) -> str:
        rng, axis = self.rng, self._axis()
        pick = rng.random()
        if self.rows or rng.random() < 0.2:
            return self._reduced(self._of_rows(), rng.choice(("-1", "-1", "-1", "-1", "None")))
        value = self._full(rng.choice((1, 2, 2, 3)))
        if pick < 0.45:
            return self._reduced(value, axis)
        if pick < 0.75:  # what comes after an earlier reduction
            first = self._reduced(value, axis, keep=True)
            x = self._full(rng.choice((0, 1)))
            second = rng.choice((
                f"({x} - {first})", f"xp.where({first} > 100, 1, {x})", f"({x} * {first})",
                f"xp.where({x} == {first}, {x}, 0)", f"xp.maximum({x}, {first})",
            ))  # fmt: skip
            return second if rng.random() < 0.3 else self._reduced(second, axis)
        if pick < 0.87 and self.kind == "f" and axis in ("-1", "0", "1"):
            axis = axis if int(axis) < len(self.shape) else "-1"
            forms = [
                f"nn.softmax({value}, axis={axis})",
                f"xp.log(xp.sum(xp.exp({value} - "
                f"xp.max({value}, axis={axis}, keepdims=True)), axis={axis}))",
                f"nn.rmsnorm({value})",
                f"nn.layernorm({value})",
                f"xp.sum(nn.softmax({value}, axis={axis}) * {self._full(1)}, axis={axis})",
            ]
            return rng.choice(forms)
        return self._moved(value)

    def _moved(self, value: str) -> str:
        """Maps, turns, parts and products."""
        rng, rank = self.rng, len(self.shape)
        if rng.random() < 0.15:
            how, axis = rng.choice(("sum", "prod")), rng.randrange(rank)
            return f"xp.cumulative_{how}({self._array(value)}, axis={axis})"
        if rank < 2:
            return rng.choice((value, f"xp.flip({value})", f"xp.pad({value}, ((2, 3),))"))
        forms = [value, f"{value}.mT", f"xp.concat([{value}, {self._full(0)}], axis=-1)",
                 f"xp.sum({value}.mT, axis=-1)", f"xp.sum({value}[..., ::2], axis=-1)",
                 f"xp.max(xp.flip({value}, axis=-1), axis=-1)"]  # fmt: skip
        if rank == 2 and self.shape[0] * self.shape[1] * self.shape[0] < 1 << 18:
            y = self._full(rng.choice((0, 1, 2)))
            forms += [f"({value} @ {y}.mT)", f"xp.sum({value} @ {y}.mT, axis=1)",
                      f"xp.maximum({value} @ {y}.mT, 0)"] * 2  # fmt: skip
        return rng.choice(forms)


def drawn(seed: int) -> Case:
    """The program of a seed."""
    return Drawing(seed).case()


# -- running ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What became of a program."""

    seed: int
    kind: str
    note: str = ""
    steps: int = 0


def outcome(seed: int) -> Outcome:
    """Compile, interpret and compare the program of a seed."""
    case = drawn(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            specs = [axe.Spec(shape, dtype) for _, shape, dtype in case.specs]
            exe = axe.compile(case, *specs, target="h200", numerics=case.numerics)
            steps = len(exe.source)
    except AxeError as error:
        return Outcome(seed, REFUSED, f"{case.text}: {str(error)[:400]}")
    except Exception as error:  # named by the report, so that the others are run
        return Outcome(seed, RAISED, f"{case}: {type(error).__name__}: {str(error)[:400]}")
    arrays = case.inputs()
    try:
        found = listed(exe.interpret(*arrays))
    except Exception as error:
        return Outcome(seed, RAISED, f"{case}: {type(error).__name__}: {str(error)[:400]}", steps)
    with np.errstate(all="ignore"):
        wrong = difference(case, arrays, found)
    return Outcome(seed, WRONG if wrong else RIGHT, f"{case}: {wrong}" if wrong else "", steps)


def difference(case: Case, arrays: Sequence[Any], found: Sequence[Any]) -> str | None:
    """What differs from numpy.

    Values are compared with those of float64, as far as numpy's own rounding lets them; NaN and
    infinities with those of numpy in the program's types.
    """
    own = listed(axe.run(case, *arrays))
    wide = listed(axe.run(case, *(widened(a) for a in arrays)))
    for n, (got, want, real) in enumerate(zip(found, own, wide, strict=True)):
        name = str(np.asarray(want).dtype)
        got, want, real = (np.asarray(v).astype(np.float64) for v in (got, want, real))
        tolerance = next((t for d, t in TOLERANCE.items() if DTYPES[d].numpy.name == name), 0.0)
        least = min((TOLERANCE[d] for _, _, d in case.specs if d in TOLERANCE), default=0.0)
        tolerance = max(tolerance, least)
        known = np.isfinite(want) & np.isfinite(real)
        scale = np.abs(real[known]).max(initial=0.0)
        slack = tolerance * (np.abs(real) + 1e-2 * scale) + 20 * np.abs(want - real)
        bad = np.where(known, ~(np.abs(got - real) <= slack), False)
        special = ~np.isfinite(want) & ~np.isfinite(real)
        bad |= special & ~((got == want) | (np.isnan(got) & np.isnan(want)))
        if bad.any():
            at = tuple(int(i[0]) for i in np.nonzero(bad))
            return (
                f"output {n}: {int(bad.sum())} of {bad.size}, at {at} {got[at]}, "
                f"numpy {want[at]}, in float64 {real[at]}"
            )
    return None


def listed(result: Any) -> list[Any]:
    """The outputs of a program, in order."""
    return list(result) if isinstance(result, tuple) else [result]


def widened(array: Any) -> Any:
    """Floats in float64; other values as they are."""
    return array.astype(np.float64) if array.dtype.kind not in "iub" else array


# -- the command -----------------------------------------------------------------------------------


def main() -> None:
    """Run the seeds that the file of results lacks, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--results", type=Path, help="a file of JSON lines to go on with")
    given = parser.parse_args()
    known: dict[int, dict[str, Any]] = {}
    if given.results and given.results.exists():
        lines = given.results.read_text(encoding="utf-8").splitlines()
        known = {row["seed"]: row for row in map(json.loads, lines)}
    counts: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.count):
        row = known.get(seed) or asdict(outcome(seed))
        counts[row["kind"]] += 1
        if seed not in known and given.results:
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        if row["kind"] not in (RIGHT, REFUSED):
            print(json.dumps(row), flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main()

"""Pairs of programs written by hand: is what is Proved true? `python -m benchmarks.hand_pairs`.

Every line below says whether two programs are equal over the reals, as docs/programs.md means it:
inputs are finite reals, constants are what their element type holds, and what would be NaN or a
division by zero is undefined, at the same inputs on both sides. Each line is asked at several
shapes and element types. A false pair that is Proved, or a true one that is Refuted, is an error;
how many of the true ones are Proved is a figure.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import axe_eq as axe
from axe_eq import nn
from benchmarks.terminal import told

xp = axe.array
FLOATS, INTEGERS, BOTH = "f32 f64", "i32 i64", "f32 i32"
CELLS, MATRICES, SQUARES = ("3", "2x5"), ("3x4", "5x2"), ("3x3", "4x4")


@dataclass(frozen=True)
class Family:
    """Lines ``left = right`` in x, y and z, at some shapes and element types."""

    shapes: tuple[str, ...]
    dtypes: str
    true: str
    false: str


FAMILIES = (
    Family(CELLS, FLOATS, """
        x - x = x * 0
        x + 0 = x
        x * 1 = x
        x / 1 = x
        -(-x) = x
        x + x = 2 * x
        x * x = xp.square(x)
        x * x * x = x * xp.square(x)
        (x + y) + z = x + (y + z)
        x * (y + z) = x * y + x * z
        (x - y) * (x + y) = x * x - y * y
        x - (y - z) = x - y + z
        xp.abs(-x) = xp.abs(x)
        xp.abs(x * y) = xp.abs(x) * xp.abs(y)
        xp.maximum(x, x) = x
        xp.maximum(x, y) = xp.maximum(y, x)
        xp.minimum(x, y) = -xp.maximum(-x, -y)
        xp.maximum(xp.maximum(x, y), z) = xp.maximum(x, xp.maximum(y, z))
        xp.where(x > y, x, y) = xp.maximum(x, y)
        xp.where(x >= y, x, y) = xp.maximum(x, y)
        xp.where(x < y, x, y) = xp.minimum(x, y)
        xp.where(x == x, x, y) = x
        xp.maximum(x, 0) = nn.relu(x)
        xp.exp(x) * xp.exp(y) = xp.exp(x + y)
        xp.exp(x) * xp.exp(-x) = x * 0 + 1
        xp.log(xp.exp(x)) = x
        xp.exp(2 * x) = xp.square(xp.exp(x))
        xp.sqrt(x * x) = xp.abs(x)
        xp.sin(-x) = -xp.sin(x)
        xp.cos(-x) = xp.cos(x)
        xp.tanh(-x) = -xp.tanh(x)
        x / y = x * (1 / y)
        (x / y) / z = x / (y * z)
        (x + y) / z = x / z + y / z
        x + 1e10 - 1e10 = x
        xp.isnan(x) = x > x
        xp.isfinite(x) = x == x
        (x > y) = (y < x)
        ~(x > y) = (x <= y)
        (x > y) & (x > y) = x > y
        xp.exp(-xp.inf + x * 0) = x * 0
        """, """
        x / x = x * 0 + 1
        x * 0 = x
        0 / x = x * 0
        x - x + y / y = x * 0 + 1
        1 / (1 / x) = x
        xp.sqrt(x) * xp.sqrt(x) = x
        xp.sqrt(x * x) = x
        xp.exp(xp.log(x)) = x
        xp.log(x * x) = 2 * xp.log(x)
        xp.log(x * y) = xp.log(x) + xp.log(y)
        x * (y / y) = x
        (x * x - y * y) / (x - y) = x + y
        x + 1e-30 = x
        x * 1e30 * 1e-30 = x * 1.5
        xp.where(x > 0, x, -x) + 1e-6 = xp.abs(x)
        xp.where(x > y, x, y) = xp.minimum(x, y)
        xp.where(x > 0, 1 / x, 0) = 1 / xp.maximum(x, 0)
        xp.maximum(x, -1e4) = x
        xp.maximum(x, y) = x + y
        xp.minimum(xp.maximum(x, 0), 1) = xp.maximum(x, 0)
        xp.exp(x + y) = xp.exp(x) + xp.exp(y)
        xp.exp(x) = x + 1
        xp.tanh(x) = x
        xp.sin(x) = xp.cos(x)
        xp.sqrt(x + y) = xp.sqrt(x) + xp.sqrt(y)
        xp.abs(x + y) = xp.abs(x) + xp.abs(y)
        x - (y - z) = x - y - z
        x / (y / z) = x / y / z
        x / y = y / x
        (x > y) = (x >= y)
        x + xp.inf * 0 = x
        x * xp.log(y * 0) = x * 0
        xp.floor(x) = x
        xp.trunc(x) = xp.floor(x)
        xp.round(x) = xp.floor(x + 0.5)
        xp.sign(x) * xp.sign(x) = x * 0 + 1
        nn.relu(x) = xp.abs(x)
        nn.silu(x) = nn.gelu(x)
        x ** 2 = x * 2
        xp.isfinite(x / y) = x == x
        """),
    Family(CELLS, INTEGERS, """
        x - x = x * 0
        x + 0 = x
        x * 1 = x
        -(-x) = x
        x + x = 2 * x
        (x + y) + z = x + (y + z)
        x * (y + z) = x * y + x * z
        x * y = y * x
        x & x = x
        x | x = x
        x ^ x = x * 0
        ~(~x) = x
        (x & y) & z = x & (y & z)
        x & y = y & x
        ~(x & y) = ~x | ~y
        x & (x | y) = x
        xp.maximum(x, y) = xp.maximum(y, x)
        xp.minimum(x, x) = x
        x // 1 = x
        x % 1 = x * 0
        (x > y) = (y < x)
        xp.where(x == y, x, y) = y
        """, """
        x + 1 > x = x == x
        xp.abs(x) >= 0 = x == x
        (x * 2) // 2 = x
        (x << 1) >> 1 = x
        x // y * y = x
        x // y * y + x % y = x + 1
        x & y = x | y
        x ^ y = x + y
        -x = ~x
        xp.maximum(x, y) = x
        xp.minimum(x, -x) = -xp.abs(x) + 1
        x >> 1 = x // 2 + 1
        x % 2 = x & 3
        x * x > 0 = x != 0
        x - y > 0 = x > y
        xp.maximum(-x, x) >= 0 = x == x
        """),
    Family(MATRICES, BOTH, """
        xp.sum(x + y, axis=0) = xp.sum(x, axis=0) + xp.sum(y, axis=0)
        xp.sum(x * 3, axis=1) = 3 * xp.sum(x, axis=1)
        xp.sum(xp.sum(x, axis=0), axis=0) = xp.sum(x)
        xp.sum(xp.permute_dims(x, (1, 0)), axis=0) = xp.sum(x, axis=1)
        xp.sum(xp.flip(x, axis=0), axis=0) = xp.sum(x, axis=0)
        xp.sum(xp.reshape(x, (-1,))) = xp.sum(x)
        xp.max(xp.max(x, axis=1)) = xp.max(x)
        xp.max(x, axis=0) = xp.max(xp.flip(x, axis=0), axis=0)
        xp.sum(xp.concat([x, y], axis=0), axis=0) = xp.sum(x, axis=0) + xp.sum(y, axis=0)
        xp.max(xp.concat([x, y])) = xp.maximum(xp.max(x), xp.max(y))
        xp.concat([x, y])[: x.shape[0]] = x
        xp.concat([x, y], axis=1)[:, x.shape[1] :] = y
        xp.flip(xp.flip(x)) = x
        xp.permute_dims(xp.permute_dims(x, (1, 0)), (1, 0)) = x
        xp.reshape(xp.reshape(x, (-1,)), x.shape) = x
        xp.concat([x[:1], x[1:]]) = x
        xp.stack([x, y])[1] = y
        xp.roll(xp.roll(x, 1, axis=0), -1, axis=0) = x
        xp.roll(x, x.shape[0], axis=0) = x
        xp.flip(x + y) = xp.flip(x) + xp.flip(y)
        xp.permute_dims(x * y, (1, 0)) = xp.permute_dims(x, (1, 0)) * xp.permute_dims(y, (1, 0))
        xp.pad(x, ((1, 1), (0, 0)))[1:-1] = x
        xp.expand_dims(x, axis=0)[0] = x
        xp.cumulative_sum(x, axis=0)[-1] = xp.sum(x, axis=0)
        xp.cumulative_sum(2 * x, axis=1) = 2 * xp.cumulative_sum(x, axis=1)
        """, """
        xp.sum(x * y) = xp.sum(x) * xp.sum(y)
        xp.sum(x, axis=0, keepdims=True) * x = x
        xp.sum(x) = xp.sum(x, axis=0)[0]
        xp.max(x + y, axis=0) = xp.max(x, axis=0) + xp.max(y, axis=0)
        xp.max(x) = xp.sum(x)
        xp.max(x * y, axis=1) = xp.max(x, axis=1) * xp.max(y, axis=1)
        xp.concat([x, y]) = xp.concat([y, x])
        xp.concat([x[1:], x[:1]]) = x
        xp.flip(x) = x
        xp.flip(x, axis=0) = xp.flip(x, axis=1)
        xp.reshape(xp.permute_dims(x, (1, 0)), x.shape) = x
        xp.roll(x, 1, axis=0) = xp.roll(x, -1, axis=1)
        xp.roll(x, 1, axis=1) = x
        xp.pad(x, ((1, 1), (0, 0)))[:-2] = x
        xp.sum(xp.pad(x, 1, constant_values=1)) = xp.sum(x)
        xp.max(xp.pad(x, 1)) = xp.max(x)
        xp.stack([x, y])[0] = y
        xp.cumulative_sum(x, axis=0) = xp.cumulative_sum(x, axis=1)
        xp.cumulative_sum(x, axis=0)[0] = xp.sum(x, axis=0)
        xp.cumulative_sum(xp.flip(x), axis=0) = xp.flip(xp.cumulative_sum(x, axis=0))
        xp.cumulative_prod(x, axis=0) = xp.cumulative_sum(x, axis=0)
        x[:, ::-1] = x
        x[1:] + x[:-1] = x[1:] * 2
        """),
    Family(SQUARES, FLOATS, """
        (x @ y) @ z = x @ (y @ z)
        x @ (y + z) = x @ y + x @ z
        (x + y) @ z = x @ z + y @ z
        (2 * x) @ y = 2 * (x @ y)
        xp.matrix_transpose(x @ y) = xp.matrix_transpose(y) @ xp.matrix_transpose(x)
        xp.sum(x @ y, axis=0) = xp.sum(x, axis=0) @ y
        xp.sum(x @ y, axis=1) = x @ xp.sum(y, axis=1)
        nn.softmax(x + 3, axis=-1) = nn.softmax(x, axis=-1)
        nn.softmax(x, axis=0) = xp.exp(x) / xp.sum(xp.exp(x), axis=0, keepdims=True)
        xp.mean(x, axis=0) = xp.sum(x, axis=0) / x.shape[0]
        xp.mean(x + y) = xp.mean(x) + xp.mean(y)
        xp.mean(x - xp.mean(x)) = xp.mean(x) * 0
        x @ xp.eye(x.shape[0], dtype=x.dtype) = x
        xp.tril(x) + xp.triu(x, k=1) = x
        xp.sum(xp.tril(x)) + xp.sum(xp.triu(x, k=1)) = xp.sum(x)
        nn.einsum("ij,jk->ik", x, y) = x @ y
        nn.einsum("ij,kj->ik", x, y) = x @ xp.matrix_transpose(y)
        nn.einsum("ij->ji", x) = xp.matrix_transpose(x)
        nn.softmax(x, axis=-1) @ y = (xp.exp(x) @ y) / xp.sum(xp.exp(x), axis=-1, keepdims=True)
        """, """
        x @ y = y @ x
        x @ y = x * y
        (x + y) @ z = x @ z + y
        xp.matrix_transpose(x @ y) = xp.matrix_transpose(x) @ xp.matrix_transpose(y)
        xp.sum(x @ y) = xp.sum(x) * xp.sum(y)
        nn.softmax(2 * x, axis=-1) = nn.softmax(x, axis=-1)
        nn.softmax(x, axis=0) = nn.softmax(x, axis=1)
        nn.softmax(x + y, axis=-1) = nn.softmax(x, axis=-1)
        xp.mean(x * y) = xp.mean(x) * xp.mean(y)
        xp.mean(x, axis=0) = xp.sum(x, axis=0)
        xp.var(x + y) = xp.var(x) + xp.var(y)
        xp.var(x) = xp.var(x, correction=1)
        xp.tril(x) + xp.triu(x) = x
        xp.tril(x) @ y = xp.tril(x @ y)
        xp.where(xp.tril(x * 0 + 1) > 0, x, -xp.inf) + y = xp.tril(x) + y
        nn.rmsnorm(2 * x) = nn.rmsnorm(x)
        nn.softmax(xp.where(x > 0, x, -xp.inf), axis=-1) = nn.softmax(nn.relu(x), axis=-1)
        nn.softmax(xp.where(x > 0, x, -1e4), axis=-1) = nn.softmax(x, axis=-1)
        xp.max(x, axis=0) @ y = xp.max(x @ y, axis=0)
        x / xp.sum(x, axis=-1, keepdims=True) * xp.sum(x, axis=-1, keepdims=True) = x
        """),
    Family(CELLS, "f16 bf16 f8e4m3", """
        x + 0 = x
        -(-x) = x
        x * 1 = x
        xp.maximum(x, x) = x
        xp.astype(xp.astype(x, "float32"), x.dtype) = x
        xp.maximum(x, -xp.inf) = x
        xp.abs(xp.abs(x)) = xp.abs(x)
        """, """
        x + 1 = x
        x * 0 = x
        x / x = x * 0 + 1
        xp.maximum(x, 0) = x
        xp.where(x > 0, x, x - 1) = x
        xp.sqrt(x) * xp.sqrt(x) = x
        xp.astype(xp.astype(x, "int32"), x.dtype) = x
        """),
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A line at one shape and element type."""

    name: str
    left: str
    right: str
    spec: str
    is_true: bool

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Outcome:
    """What was said of a pair; `wrong` where that is not so."""

    name: str
    is_true: bool
    verdict: str
    wrong: bool


def pairs() -> Iterator[Pair]:
    """All pairs, in the order of the families."""
    for family in FAMILIES:
        for text, is_true in ((family.true, True), (family.false, False)):
            for line in filter(None, map(str.strip, text.splitlines())):
                left, right = sides(line)
                for shape in family.shapes:
                    for dtype in family.dtypes.split():
                        spec = f"{shape}:{dtype}"
                        yield Pair(f"{line}  [{spec}]", left, right, spec, is_true)


def sides(line: str) -> tuple[str, str]:
    """The texts on both sides of the ``=`` that stands alone and in no bracket, the last one."""
    depth, found = 0, -1
    for at, letter in enumerate(line):
        depth += (letter in "([") - (letter in ")]")
        if not depth and line[at : at + 3] == " = ":
            found = at
    return line[:found].strip(), line[found + 3 :].strip()


def program(text: str) -> Callable[..., Any]:
    """The function of x, y and z that a side is."""
    code = compile(text, text, "eval")

    def function(x: Any, y: Any, z: Any) -> Any:
        return eval(code, {"xp": xp, "nn": nn, "x": x, "y": y, "z": z})

    return function


def outcome(pair: Pair, budget: float) -> Outcome:
    """Ask about a pair, and check the certificate of what is Proved."""
    found = axe.equivalent(program(pair.left), program(pair.right), *[pair.spec] * 3, budget=budget)
    if isinstance(found, axe.Proved):
        axe.check_certificate(found.certificate)
    verdict = type(found).__name__
    wrong = verdict == ("Refuted" if pair.is_true else "Proved")
    return Outcome(pair.name, pair.is_true, verdict, wrong)


def main() -> None:
    """Ask about all pairs; prints the figures and every error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of a verdict")
    parser.add_argument("--out", type=Path, help="a line per pair")
    given = parser.parse_args()
    found = [outcome(p, given.budget) for p in told(list(pairs()), "pair")]
    if given.out is not None:
        given.out.write_text("".join(json.dumps(asdict(o)) + "\n" for o in found), "utf-8")
    for o in found:
        if o.wrong:
            print(f"WRONG {o.verdict}: {o.name}")
    counts = Counter((o.is_true, o.verdict) for o in found)
    for (is_true, verdict), count in sorted(counts.items()):
        print(f"{count:5}  {'true' if is_true else 'false'} pairs {verdict}")
    print(f"{len(found)} pairs, {sum(o.wrong for o in found)} wrong")


if __name__ == "__main__":
    main()

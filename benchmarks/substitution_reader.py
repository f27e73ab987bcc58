"""TASO's and Tensat's graph substitutions as pairs of axe_eq programs at concrete shapes.

Both notations are read into `Pattern`s. Shapes follow from the operators: every dim is an unknown,
the operators give linear equations, and a substitution is tried at small positive solutions.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from itertools import islice, product
from math import lcm
from pathlib import Path
from typing import Any

import numpy as np

import axe_eq as axe

FOLDER = Path(__file__).parents[1] / "tests" / "oracle" / "substitutions"
LARGEST = 12  # extent of any dim
_KNOWN = "one the corpus has"
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Pattern:
    """A tensor expression of the corpus.

    Attributes:
        op: "input", "matmul", "conv2d", "concat", "ewadd", "ewmul", "relu" or "split".
        params: conv2d: kernel (0 where the notation leaves it open) and activation; matmul:
            activation; concat: axis and rank; split: axis, part, and a shift of the cut.
        args: operands.
        name: name of an input.
    """

    op: str
    params: tuple[int, ...] = ()
    args: tuple[Pattern, ...] = ()
    name: str = ""

    def __str__(self) -> str:
        if self.op == "input":
            return self.name
        parts = (*map(str, self.params), *map(str, self.args))
        return f"({self.op} {' '.join(parts)})"

    def nodes(self) -> Iterator[Pattern]:
        """Every node, operands first, each once."""
        seen: dict[Pattern, None] = {}

        def visit(node: Pattern) -> None:
            if node not in seen:
                for arg in node.args:
                    visit(arg)
                seen[node] = None

        visit(self)
        yield from seen


@dataclass(frozen=True)
class Rule:
    """A substitution: pairs of expressions that are claimed to be equal."""

    source: str
    number: int
    pairs: tuple[tuple[Pattern, Pattern], ...]

    @property
    def name(self) -> str:
        """Name of the rule."""
        return f"{self.source}-{self.number:03d}"

    def __str__(self) -> str:
        return "; ".join(f"{left} = {right}" for left, right in self.pairs)

    def nodes(self) -> list[Pattern]:
        """Every node of every side, each once."""
        sides = [side for pair in self.pairs for side in pair]
        return list(dict.fromkeys(node for side in sides for node in side.nodes()))


# -- reading --------------------------------------------------------------------------------------


@cache
def taso() -> tuple[Rule, ...]:
    """The 133 substitutions of TASO."""
    listed = json.loads((FOLDER / "taso.json").read_text(encoding="utf-8"))["rules"]
    return tuple(Rule("taso", n, _taso_pairs(rule)) for n, rule in enumerate(listed))


def _taso_pairs(rule: Mapping[str, Any]) -> tuple[tuple[Pattern, Pattern], ...]:
    return tuple(
        (_taso_value(rule["src"], *pair["src"]), _taso_value(rule["dst"], *pair["dst"]))
        for pair in rule["outputs"]
    )


def _taso_value(nodes: Sequence[Mapping[str, Any]], index: int, output: int) -> Pattern:
    if index < 0:
        return Pattern("input", name=f"x{-index}")
    node = nodes[index]
    args = tuple(_taso_value(nodes, *operand) for operand in node["inputs"])
    p = node["params"]
    match node["op"]:
        case "MATMUL":
            return Pattern("matmul", (p["ACTI"],), args)
        case "CONV2D":
            _same_and_unit(p["STRIDE_H"], p["STRIDE_W"], p["PAD"])
            return Pattern("conv2d", (p["KERNEL_H"], p["ACTI"]), args)
        case "CONCAT":
            return Pattern("concat", (p["AXIS"], p["NUMDIM"]), args)
        case "SPLIT":
            return Pattern("split", (p["AXIS"], output, 0), args)
        case "EW_ADD" | "EW_MUL" | "RELU" as name:
            return Pattern(name.replace("_", "").lower(), (), args)
    raise axe.NotationError(f"TASO operator {node['op']!r}", "is not read here", _KNOWN)


def _same_and_unit(rows: int, cols: int, pad: int) -> None:
    if (rows, cols, pad) != (1, 1, 0):
        wrong = f"has strides {rows}, {cols} and padding mode {pad}"
        raise axe.NotationError("convolution of the corpus", wrong, "strides of 1, same padding")


@cache
def tensat() -> tuple[Rule, ...]:
    """The 120 substitutions of one output of Tensat, then the 13 of two outputs."""
    single = (FOLDER / "tensat_single.txt").read_text(encoding="utf-8").splitlines()
    multi = (FOLDER / "tensat_multi.txt").read_text(encoding="utf-8").splitlines()
    groups = [[line] for line in single] + [multi[n : n + 2] for n in range(0, len(multi), 2)]
    return tuple(
        Rule("tensat", n, tuple(_tensat_pair(line) for line in lines))
        for n, lines in enumerate(groups)
    )


def _tensat_pair(line: str) -> tuple[Pattern, Pattern]:
    left, _, right = line.partition("=>")
    return _tensat_value(left), _tensat_value(right)


def _tensat_value(text: str) -> Pattern:
    tokens = re.findall(r"[()]|[^\s()]+", text)

    def parse() -> Any:
        token = tokens.pop(0)
        if token != "(":
            return Pattern("input", name=token[1:]) if token[0] == "?" else int(token)
        name, items = tokens.pop(0), []
        while tokens[0] != ")":
            items.append(parse())
        tokens.pop(0)
        return _tensat_node(name, items)

    pattern = parse()
    assert isinstance(pattern, Pattern)
    return pattern


def _tensat_node(name: str, items: list[Any]) -> Pattern:
    params = [i for i in items if isinstance(i, int)]
    args = tuple(i for i in items if isinstance(i, Pattern))
    match name:
        case "conv2d":
            _same_and_unit(*params[:3])
            return Pattern("conv2d", (0, params[3]), args)
        case "split":
            return Pattern("split", (params[0], 0, 0), args)
        case "split_0" | "split_1":
            axis, _, shift = args[0].params
            return replace(args[0], params=(axis, int(name[-1]), shift))
        case "matmul" | "concat" | "ewadd" | "ewmul" | "relu":
            return Pattern(name, tuple(params), args)
    raise axe.NotationError(f"Tensat operator {name!r}", "is not read here", _KNOWN)


# -- shapes ---------------------------------------------------------------------------------------


@dataclass
class Dims:
    """Unknown extents and linear equations between them."""

    count: int = 0
    equations: list[tuple[dict[int, int], int]] = field(default_factory=list)

    def new(self) -> int:
        """A new unknown."""
        self.count += 1
        return self.count - 1

    def equal(self, a: int, b: int, factor: int = 1) -> None:
        """Say a = factor * b."""
        if a != b:
            self.equations.append(({a: 1, b: -factor}, 0))
        elif factor != 1:
            self.equations.append(({a: 1}, 0))

    def total(self, whole: int, parts: Sequence[int]) -> None:
        """Say whole = the sum of the parts."""
        row = {whole: 1}
        for part in parts:
            row[part] = row.get(part, 0) - 1
        self.equations.append((row, 0))

    def fix(self, a: int, value: int) -> None:
        """Say a = value."""
        self.equations.append(({a: 1}, value))

    def reduced(self) -> tuple[list[list[Fraction]], list[int]]:
        """The equations in reduced echelon form, and the pivot column of each row."""
        rows = [
            [Fraction(row.get(c, 0)) for c in range(self.count)] + [Fraction(value)]
            for row, value in self.equations
        ]
        pivots: list[int] = []
        for column in range(self.count):
            at = len(pivots)
            found = next((r for r in range(at, len(rows)) if rows[r][column]), None)
            if found is None:
                continue
            rows[at], rows[found] = rows[found], rows[at]
            rows[at] = [x / rows[at][column] for x in rows[at]]
            for r, row in enumerate(rows):
                if r != at and row[column]:
                    rows[r] = [x - row[column] * y for x, y in zip(row, rows[at], strict=True)]
            pivots.append(column)
        return rows[: len(pivots)], pivots

    def solutions(self, seed: str, tries: int = 200) -> Iterator[list[int]]:
        """Small positive integer solutions."""
        rows, pivots = self.reduced()
        free = [c for c in range(self.count) if c not in pivots]
        sparse = []
        for row, pivot in zip(rows, pivots, strict=True):
            scale = lcm(*(x.denominator for x in row))
            terms = [(c, int(row[c] * scale)) for c in free if row[c]]
            if row[-1] <= 0 and all(factor > 0 for _, factor in terms):
                return
            sparse.append((pivot, scale, terms, int(row[-1] * scale)))
        chance = random.Random(seed)
        for _ in range(tries):
            values = [chance.choice((2, 3, 1, 4)) for _ in range(self.count)]
            for pivot, scale, terms, constant in sparse:
                total = constant - sum(factor * values[c] for c, factor in terms)
                values[pivot] = 0 if total % scale else total // scale
            if all(1 <= v <= LARGEST for v in values):
                yield values


@dataclass
class Shaped:
    """A rule's dims as unknowns, for given numbers of groups of its convolutions."""

    rule: Rule
    groups: Mapping[Pattern, int]
    kernel: int
    dims: Dims = field(default_factory=Dims)
    shapes: dict[Pattern, tuple[int, ...]] = field(default_factory=dict)
    cuts: dict[Pattern, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ranks = _ranks(self.rule)
        for node in self.rule.nodes():
            self.cuts[node] = {}
            self.shapes[node] = self._shape(node, ranks)
        for left, right in self.rule.pairs:
            self._same(self.shapes[left], self.shapes[right])

    def _same(self, a: Sequence[int], b: Sequence[int], but: int | None = None) -> None:
        for axis, (x, y) in enumerate(zip(a, b, strict=True)):
            if axis != but:
                self.dims.equal(x, y)

    def _shape(self, node: Pattern, ranks: Mapping[Pattern, int]) -> tuple[int, ...]:
        if node.op == "input":
            return tuple(self.dims.new() for _ in range(ranks[node]))
        given = [self.shapes[arg] for arg in node.args]
        match node.op:
            case "matmul":
                self.dims.equal(given[0][1], given[1][0])
                return self._outer(node, given)
            case "conv2d":
                return self._convolution(node, given)
            case "concat":
                return self._concat(node, given)
            case "split":
                axis, part, _ = node.params
                cut = self.cuts[node.args[0]].get(axis)
                if cut is None:
                    raise axe.NotationError(f"split {node}", "follows no concatenation", "a cut")
                return (*given[0][:axis], cut[part], *given[0][axis + 1 :])
        self._same(given[0], given[-1])
        for arg in reversed(node.args):
            self.cuts[node] |= self.cuts[arg]
        return given[0]

    def _outer(self, node: Pattern, given: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        a, b = (self.cuts[arg] for arg in node.args)
        column = 0 if node.op == "conv2d" else 1
        self.cuts[node] |= {0: a[0]} if 0 in a else {}
        self.cuts[node] |= {1: b[column]} if column in b else {}
        return given[0][0], given[1][column]

    def _convolution(self, node: Pattern, given: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        x, w = given
        self.dims.equal(x[1], w[1], self.groups[node])
        self.dims.equal(w[0], self.dims.new(), self.groups[node])
        for axis in (2, 3):
            self.dims.fix(w[axis], node.params[0] or self.kernel)
        return (*self._outer(node, given), x[2], x[3])

    def _concat(self, node: Pattern, given: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        axis = node.params[0]
        self._same(given[0], given[1], but=axis)
        whole = self.dims.new()
        self.dims.total(whole, [shape[axis] for shape in given])
        self.cuts[node] |= self.cuts[node.args[0]]
        self.cuts[node][axis] = (given[0][axis], given[1][axis])
        return (*given[0][:axis], whole, *given[0][axis + 1 :])

    def assignments(self, count: int) -> Iterator[Shapes]:
        """At most so many different choices of the inputs' shapes."""
        found: list[Shapes] = []
        inputs = [node for node in self.rule.nodes() if node.op == "input"]
        for values in self.dims.solutions(self.rule.name):
            shapes = {n.name: tuple(values[d] for d in self.shapes[n]) for n in inputs}
            if shapes not in found:
                found.append(shapes)
                yield shapes
            if len(found) == count:
                return


def _ranks(rule: Rule) -> dict[Pattern, int]:
    """Rank of every node; operators that fit any rank are tried at rank 2."""
    known: dict[Pattern, int] = {}
    fixed = {"matmul": 2, "conv2d": 4}
    for node in rule.nodes():
        rank = fixed.get(node.op) or (node.params[1] if node.op == "concat" else 0)
        for member in (node, *node.args) if rank else ():
            known[member] = rank
    linked = [(n, a) for n in rule.nodes() if n.op != "input" for a in n.args]
    linked += list(rule.pairs)
    for _ in range(len(linked)):
        for a, b in linked:
            for x, y in ((a, b), (b, a)):
                if x in known:
                    known.setdefault(y, known[x])
    return {node: known.get(node, 2) for node in rule.nodes()}


@dataclass(frozen=True)
class Case:
    """A rule at concrete shapes."""

    rule: Rule
    shapes: Mapping[str, tuple[int, ...]]
    grouped: bool

    def programs(self) -> tuple[axe.Program, axe.Program]:
        """Both sides as programs over the same inputs."""
        specs = [axe.Spec(shape, "f32") for shape in self.shapes.values()]

        def side(which: int) -> axe.Program:
            def run(*arrays: Any) -> tuple[Any, ...]:
                given = dict(zip(self.shapes, arrays, strict=True))
                return tuple(value(pair[which], given) for pair in self.rule.pairs)

            return axe.trace(run, *specs)

        return side(0), side(1)

    def __str__(self) -> str:
        shapes = " ".join(f"{n}{list(s)}".replace(" ", "") for n, s in self.shapes.items())
        return f"{self.rule.name} at {shapes}"


def cases(rule: Rule, count: int = 3, *, grouped: bool = False) -> list[Case]:
    """The rule at small shapes, none if no shapes fit.

    Convolutions have as few groups as the rule allows, one where it can.

    Args:
        rule: the rule.
        count: how many shapes.
        grouped: the next choice of groups instead; none for rules without convolutions.
    """
    convs = [node for node in rule.nodes() if node.op == "conv2d"]
    ways = sorted(product((1, 2, 4), repeat=len(convs)), key=lambda way: (sum(way), way))
    found = (_cases(rule, dict(zip(convs, way, strict=True)), count, grouped) for way in ways)
    return next(islice(filter(None, found), int(grouped), None), [])


def _cases(rule: Rule, groups: Mapping[Pattern, int], count: int, grouped: bool) -> list[Case]:
    """Shapes for these numbers of groups: kernels of 3, and last one of 1 where that is open."""
    large = list(Shaped(rule, groups, 3).assignments(count))
    small = list(Shaped(rule, groups, 1).assignments(1))
    shapes = large if not large or small[:1] == large[:1] else [*large[: count - 1], *small]
    return [Case(rule, s, grouped) for s in (shapes or small)[:count]]


# -- meaning --------------------------------------------------------------------------------------


def value(pattern: Pattern, inputs: Mapping[str, Any]) -> Any:
    """Value of an expression on arrays, traced ones or numpy's."""
    return _value(pattern, inputs, {}, {})


def _value(
    pattern: Pattern,
    inputs: Mapping[str, Any],
    known: dict[Pattern, Any],
    cuts: dict[Pattern, dict[int, int]],
) -> Any:
    if pattern not in known:
        args = [_value(arg, inputs, known, cuts) for arg in pattern.args]
        cuts[pattern] = _cuts(pattern, args, [cuts[arg] for arg in pattern.args])
        known[pattern] = _apply(pattern, args, inputs, cuts)
    return known[pattern]


def _cuts(pattern: Pattern, args: Sequence[Any], given: Sequence[dict[int, int]]) -> dict[int, int]:
    """Axis -> where the last concatenation joined, for every axis of the value."""
    if pattern.op in ("matmul", "conv2d"):
        column = 0 if pattern.op == "conv2d" else 1
        first = {0: given[0][0]} if 0 in given[0] else {}
        return first | ({1: given[1][column]} if column in given[1] else {})
    found: dict[int, int] = {}
    for cut in reversed(given):
        found |= cut
    if pattern.op == "concat":
        found[pattern.params[0]] = args[0].shape[pattern.params[0]]
    return found


def _apply(
    pattern: Pattern,
    args: list[Any],
    inputs: Mapping[str, Any],
    cuts: Mapping[Pattern, dict[int, int]],
) -> Any:
    match pattern.op:
        case "input":
            return inputs[pattern.name]
        case "matmul":
            return _activated(args[0] @ args[1], pattern.params[0])
        case "conv2d":
            x, w = args
            groups = x.shape[1] // w.shape[1]
            same = ((w.shape[2] - 1) // 2, (w.shape[3] - 1) // 2)
            return _activated(axe.nn.conv2d(x, w, padding=same, groups=groups), pattern.params[1])
        case "concat":
            return _concat(args, pattern.params[0])
        case "ewadd":
            return args[0] + args[1]
        case "ewmul":
            return args[0] * args[1]
        case "relu":
            return axe.nn.relu(args[0])
        case "split":
            axis, part, shift = pattern.params
            cut = _cut_at(pattern, cuts[pattern.args[0]])
            ends = (0, cut) if part == 0 else (cut, args[0].shape[axis])
            return args[0][(slice(None),) * axis + (slice(ends[0] + shift, ends[1] + shift),)]
    raise axe.NotationError(f"operator {pattern.op!r}", "is not known", _KNOWN)


def _cut_at(pattern: Pattern, cuts: Mapping[int, int]) -> int:
    if pattern.params[0] not in cuts:
        raise axe.NotationError(f"split {pattern}", "follows no concatenation", "a cut")
    return cuts[pattern.params[0]]


def _concat(args: list[Any], axis: int) -> Any:
    if isinstance(args[0], np.ndarray):
        return np.concatenate(args, axis=axis)
    return axe.array.concat(args, axis=axis)


def _activated(x: Any, activation: int) -> Any:
    if activation not in (0, 2):
        raise axe.NotationError(f"activation {activation}", "is not read here", "0 none or 2 relu")
    return axe.nn.relu(x) if activation else x

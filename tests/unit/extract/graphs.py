"""Random graphs of values for extraction tests: products, rows, cells, shared values."""

from __future__ import annotations

import random
from collections.abc import Sequence

from axe_eq.extract.price.priced import Prices
from axe_eq.extract.price.pricer import Pricer
from axe_eq.extract.read.forest import Forest, read_forest
from axe_eq.extract.search.search import Search
from axe_eq.pack import installed
from axe_eq.pipeline.job import find_target
from axe_eq.pipeline.requests import requests_of
from axe_eq.pipeline.saturation import saturate_program
from axe_eq.program.node import InputSpec, Node, Program, input_node, op_node
from axe_eq.program.terms import encode
from axe_eq.program.types import value_type

MATMUL = "a c, c b -> a b; + c"
CELLS = ("exp", "neg", "sigmoid", "tanh")
PAIRS = ("add", "mul", "maximum", "sub")


def random_program(seed: int, n_ops: int, extent: int = 2048) -> Program:
    """A connected random program of about n_ops operators with one output."""
    rng, values, weight = _begun(seed, extent)
    made: list[Node] = []
    while len(made) < n_ops:
        made.append(_operator(rng, values, weight))
        values.append(made[-1])
    used = {a for node in made for a in node.args}
    loose = [n for n in dict.fromkeys(made) if n not in used]
    root = loose[0]
    for other in loose[1:]:
        root = op_node("a b, a b -> a b", "add", [root, other])
    inputs = [n for n in Program((), (root,)).nodes() if n.kind == "input"]
    return Program(tuple(InputSpec(n) for n in inputs), (root,))


def _begun(seed: int, extent: int) -> tuple[random.Random, list[Node], Node]:
    """A generator, two inputs and a weight."""
    matrix = value_type(f"f16[{extent},{extent}]")
    values = [input_node("x", matrix), input_node("y", matrix)]
    return random.Random(seed), values, input_node("w", matrix)


def program_of_results(seed: int, n_ops: int, extent: int = 2048) -> Program:
    """The same, whose results are rows, loose ends, and a value that others use."""
    rng, values, weight = _begun(seed, extent)
    made: list[Node] = []
    while len(made) < n_ops:
        if rng.random() < 0.3:
            row = rng.choice(("a b -> a; + b", "a b -> a; max b"))
            made.append(op_node(row, "id", [rng.choice(values[-4:])]))
        else:
            made.append(_operator(rng, values, weight))
            values.append(made[-1])
    used = {a for node in made for a in node.args}
    loose = [n for n in made if n not in used]
    inner = [n for n in made if n in used]
    roots = tuple(dict.fromkeys([*loose, *([rng.choice(inner)] if inner else [])]))
    inputs = [n for n in Program((), roots).nodes() if n.kind == "input"]
    return Program(tuple(InputSpec(n) for n in inputs), roots)


def _operator(rng: random.Random, values: Sequence[Node], weight: Node) -> Node:
    recent = values[-4:]
    kind = rng.random()
    if kind < 0.25:
        return op_node(MATMUL, "mul", [rng.choice(recent), weight])
    if kind < 0.4:
        row = op_node("a b -> a; + b", "id", [rng.choice(recent)])
        return op_node("a b, a -> a b", "mul", [rng.choice(recent), row])
    if kind < 0.7:
        return op_node("a b -> a b", rng.choice(CELLS), [rng.choice(recent)])
    pair = [rng.choice(recent), rng.choice(recent)]
    return op_node("a b, a b -> a b", rng.choice(PAIRS), pair)


def forest_of(program: Program) -> Forest:
    """The saturated forest of a program, demand laws of one device only."""
    packs = installed()
    terms = encode(program.outputs)
    graph = saturate_program(program, terms, [packs["tiling"]], ())
    return read_forest(graph.session, requests_of(program, terms))


def search_of(forest: Forest) -> Search:
    """A search of a forest for the H200."""
    packs = list(installed().values())
    schedules = [s for pack in packs for s in pack.schedules]
    return Search(Prices(forest, Pricer(find_target("h200", packs), schedules)))

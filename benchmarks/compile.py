"""Compile time by stage: stacks of blocks and wide shared graphs, all default packs on.

``python -m benchmarks.compile`` writes results/compile.json and prints a table: per size the median
of five runs per stage, rows of the e-graph and peak memory. Every run is a process of its own, so
memory is its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from axe_eq.program.node import InputSpec, Node, Program, input_node, op_node
from axe_eq.program.types import value_type
from benchmarks.machine import machine
from benchmarks.terminal import told

RESULT = Path(__file__).parent / "results" / "compile.json"
SIZES = (10, 50, 100, 500, 1000)
RUNS = 5
TOKENS, HIDDEN, INNER, HEADS, HEAD = 4096, 4096, 12288, 32, 128
MATMUL = "a c, c b -> a b; + c"


class Maker:
    """Builds nodes with fresh inputs."""

    def __init__(self) -> None:
        self.inputs: list[Node] = []
        self.count = 0

    def input(self, *shape: int) -> Node:
        """A new input."""
        self.inputs.append(input_node(f"i{len(self.inputs)}", value_type(_type(shape))))
        return self.inputs[-1]

    def op(self, sig: str, cell: str, *args: Node) -> Node:
        """A block operator."""
        self.count += 1
        return op_node(sig, cell, args)

    def norm(self, x: Node) -> Node:
        """Root-mean-square norm with a gain."""
        square = self.op("a b, a b -> a b", "mul", x, x)
        scale = self.op("a -> a", "rsqrt", self.op("a b -> a; + b", "id", square))
        return self.op(
            "a b, b -> a b", "mul", self.op("a b, a -> a b", "mul", x, scale), self.input(HIDDEN)
        )

    def mlp(self, x: Node) -> Node:
        """A gated MLP block with its residual."""
        h = self.norm(x)
        gate = self.op(MATMUL, "mul", h, self.input(HIDDEN, INNER))
        up = self.op(MATMUL, "mul", h, self.input(HIDDEN, INNER))
        act = self.op("a b, a b -> a b", "mul", gate, self.op("a b -> a b", "sigmoid", gate))
        both = self.op("a b, a b -> a b", "mul", act, up)
        down = self.op(MATMUL, "mul", both, self.input(INNER, HIDDEN))
        return self.op("a b, a b -> a b", "add", x, down)

    def attention(self, x: Node) -> Node:
        """Attention of all heads with its residual."""
        h = self.norm(x)
        q, k, v = (
            self.op("b d, d a c -> a b c; + d", "mul", h, self.input(HIDDEN, HEADS, HEAD))
            for _ in "qkv"
        )
        s = self.op("a b d, a c d -> a b c; + d", "mul", q, k)
        top = self.op("a b c -> a b; max c", "id", s)
        e = self.op("a b c -> a b c", "exp", self.op("a b c, a b -> a b c", "sub", s, top))
        p = self.op("a b c, a b -> a b c", "div", e, self.op("a b c -> a b; + c", "id", e))
        o = self.op("a b d, a d c -> a b c; + d", "mul", p, v)
        y = self.op("c a d, c d b -> a b; + c d", "mul", o, self.input(HEADS, HEAD, HIDDEN))
        return self.op("a b, a b -> a b", "add", x, y)


def _type(shape: tuple[int, ...]) -> str:
    return f"f16[{','.join(map(str, shape))}]"


def mlp_stack(n_ops: int) -> Program:
    """MLP blocks until there are n_ops operators."""
    make = Maker()
    x = make.input(TOKENS, HIDDEN)
    while make.count < n_ops:
        x = make.mlp(x)
    return _program(make, x)


def transformer_stack(n_ops: int) -> Program:
    """Transformer blocks until there are n_ops operators."""
    make = Maker()
    x = make.input(TOKENS, HIDDEN)
    while make.count < n_ops:
        x = make.mlp(make.attention(x))
    return _program(make, x)


def wide(n_ops: int, width: int = 8) -> Program:
    """A random graph in which recent values are shared, with a product now and then."""
    rng = random.Random(n_ops)
    make = Maker()
    values = [make.input(HIDDEN, HIDDEN) for _ in range(width)]
    weight = make.input(HIDDEN, HIDDEN)
    made: list[Node] = []
    while len(set(made)) + len(_loose(made)) - 1 < n_ops:  # the loose ends are summed
        pick = [rng.choice(values[-width:]) for _ in range(2)]
        if make.count % 17 == 16:
            node = make.op(MATMUL, "mul", pick[0], weight)
        elif rng.random() < 0.5:
            node = make.op("a b -> a b", rng.choice(("exp", "neg", "sigmoid")), pick[0])
        else:
            cell = rng.choice(("add", "mul", "maximum", "sub"))
            node = make.op("a b, a b -> a b", cell, *pick)
        values.append(node)
        made.append(node)
    loose = _loose(made)
    root = loose[0]
    for other in loose[1:]:
        root = make.op("a b, a b -> a b", "add", root, other)
    return _program(make, root)


def _loose(made: list[Node]) -> list[Node]:
    """Nodes that no other uses."""
    used = {a for node in made for a in node.args}
    return [n for n in dict.fromkeys(made) if n not in used]


def _program(make: Maker, root: Node) -> Program:
    return Program(tuple(InputSpec(n) for n in make.inputs), (root,))


FAMILIES = {"mlp": mlp_stack, "transformer": transformer_stack, "wide": wide}


def once(family: str, size: int) -> dict[str, Any]:
    """One run in this process."""
    from axe_eq.pipeline import compile

    program = FAMILIES[family](size)
    gc.collect()
    gc.freeze()  # else one stage or another pays 50 ms for a look at all that was imported
    began = time.perf_counter()
    exe = compile(program, target="h200")
    total = time.perf_counter() - began
    stages = {s.name: s.seconds for s in exe.report.stages}
    notes = {k: v for s in exe.report.stages for k, v in s.notes.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ops = sum(n.kind != "input" for n in program.nodes())
    return {"total": total, "stages": stages, "notes": notes, "peak_mib": peak, "ops": ops,
            "time_s": exe.cost["time_s"]}  # fmt: skip


def measured(family: str, size: int, runs: int) -> dict[str, Any]:
    """Median of some runs, each in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.compile", "--once", family, str(size)]
    found = []
    for _ in range(runs):
        searched = os.environ | {"AXE_CACHE": "0"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=searched)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    totals = sorted(f["total"] for f in found)
    return {
        "family": family,
        "size": size,
        "ops": found[0]["ops"],
        "total_s": statistics.median(totals),
        "spread_s": [totals[0], totals[-1]],
        "stages_s": {
            k: statistics.median(f["stages"][k] for f in found) for k in found[0]["stages"]
        },
        "peak_mib": max(f["peak_mib"] for f in found),
        "notes": found[0]["notes"],
        "estimate_s": found[0]["time_s"],
    }


def growth(rows: list[dict[str, Any]]) -> list[str]:
    """Stages over 50 ms whose time at 1000 operators is more than 2.5 times that at 500."""
    worse = []
    for family in FAMILIES:
        at = {r["size"]: r["stages_s"] for r in rows if r["family"] == family}
        for stage, seconds in at.get(1000, {}).items():
            half = at.get(500, {}).get(stage, 0.0)
            if seconds > 0.05 and seconds > 2.5 * half:
                worse.append(f"{family} {stage}: {seconds:.2f} s at 1000, {half:.2f} s at 500")
    return worse


def main() -> None:
    """Measure everything, print a table, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", nargs=2, metavar=("FAMILY", "SIZE"))
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    given = parser.parse_args()
    if given.once:
        print(json.dumps(once(given.once[0], int(given.once[1])), default=str))
        return
    cases = [(family, size) for family in FAMILIES for size in given.sizes]
    rows = [measured(f, s, given.runs) for f, s in told(cases, "compiling")]
    table = Table(title="compile time, seconds (median)")
    stages = list(rows[0]["stages_s"])
    for column in ("program", "ops", "total", *stages, "rows", "MiB"):
        table.add_column(column)
    for row in rows:
        cells = [f"{row['stages_s'][s]:.3f}" for s in stages]
        table.add_row(f"{row['family']} {row['size']}", str(row["ops"]), f"{row['total_s']:.2f}",
        *cells,
                      str(row["notes"].get("rows")), f"{row['peak_mib']:.0f}")  # fmt: skip
    Console(width=150).print(table)
    worse = growth(rows)
    Console().print(
        "\n".join(worse) or "no stage over 50 ms grows more than 2.5 times from 500 to 1000"
    )
    RESULT.write_text(
        json.dumps({"machine": machine(), "rows": rows, "grows": worse}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()

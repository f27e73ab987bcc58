"""Cost model of NVIDIA GPUs: a roofline over main memory, L2, matrix units and vector lanes.

Candidates come from the target's gemm rows, sizes and capacities; nothing here knows a program or a
shape. Times are for comparing decisions, by figures that were fitted on the target.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise, starmap
from math import gcd
from typing import NamedTuple

import numpy as np

from axe_eq.program.types import DTYPES
from axe_eq.schedule.box import UNIT_LETTERS
from axe_eq.schedule.summary import (
    Access,
    Column,
    Columns,
    Summary,
    Work,
    blocks,
    flops,
    traffic,
)  # fmt: skip
from axe_eq.target import Instr, Target
from axe_eq_backends.cuda.contract import OF_REGISTERS, OF_TILES
from axe_eq_backends.cuda.schedules.gemm_copies import BULK_BYTES
from axe_eq_backends.cuda.sides import as_matrices

# What caches are read by: copies of rows that begin elsewhere touch more of them.
LINE_BYTES = 128
# A block size that covers any dim: cutting is never worse than keeping a dim whole.
WHOLE_DIM = 1 << 40
# Values that a thread of a cone on lanes reads before it computes: one element of 8 bytes of each
# takes half of its registers.
MOST_READS = 64


def too_many_reads(summary: Summary) -> str | None:
    """Why no thread holds what a cone reads; None where it does."""
    if summary.n_reads > MOST_READS:
        return f"{summary.n_reads} or more reads at once, not {MOST_READS}"
    return None


def not_strided(summary: Summary, looks: bool = False, ends: bool = False) -> str | None:
    """Why no kernel reads what a cone reads; None where strides and one range per dim say it.

    So it is for cones whose results are not of one index space, for those that read where integers
    say, unless the kernel `looks` there, and for parts that end past a tensor, unless it `ends`.
    """
    if summary.n_looked and not looks:
        return "values from where integers say"
    if summary.n_ended and not ends:
        return "parts that end past what is there"
    if summary.unread:
        return f"values from places that no strides describe ({summary.unread})"
    if summary.n_outside:
        return "results over several index spaces"
    return None


def not_as_they_lie(summary: Summary, target: Target) -> str | None:
    """Why warpgroup products of tensors as they lie are not what a cone is; None where they are."""
    types = sorted({t for w in summary.products for t in w.dtypes})
    if len(types) > 1:
        return f"operands of {' and '.join(types)}: a product takes one type, cast one"
    if len({w.reduced for w in summary.products}) > 1:
        return "products that sum over different dims"
    if any(w.crossed for w in summary.products):
        return "operands contiguous along different reduced dims"
    if summary.n_parts:
        return "values put together from parts"
    return misaligned(as_matrices(summary).summary, target)


def misaligned(summary: Summary, target: Target) -> str | None:
    """Why bulk copies cannot fetch the operands of products; None where they can."""
    operands = [a for a in summary.loads if a.feeds_product]
    fed = [a.aligned for a in operands]
    # Tiles have one index of a unit letter's dim.
    along = {x for a in operands for x, _, step in a.strides if step == 1}
    if 0 in fed or along & set(UNIT_LETTERS):
        return "an operand without a contiguous dim"
    least = min((gcd(a, BULK_BYTES) for a in fed), default=BULK_BYTES)
    if least < BULK_BYTES:
        return (
            f"rows of operands {least} B apart, and bulk copies (TMA) need strides that are "
            f"multiples of {BULK_BYTES} B"
        )
    dims = max((_n_dims(a, summary) for a in summary.loads if a.feeds_product), default=0)
    most = min(
        (r.limits["rank"] for r in target.rows("copy_async") if "rank" in r.limits), default=0
    )
    return f"operands of {dims} dims in memory, not {most}" if dims > most else None


def _n_dims(access: Access, summary: Summary) -> int:
    """Dims of an operand where those are one that operands and results run through as one."""
    known = (a for a in (*summary.loads, *summary.stores) if a.strides)
    steps = [{x: (e, s) for x, e, s in a.strides} for a in known]

    def are_one(slow: str, fast: str) -> bool:
        pairs = ((a.get(slow, (1, 0)), a.get(fast, (1, 0))) for a in steps)
        return slow != fast and all(s == inner * e for (_, s), (e, inner) in pairs)

    letters = [x for x, _, _ in access.strides]
    return len(letters) - sum(starmap(are_one, pairwise(letters)))


def padded(there: int, tile: Column) -> Column:
    """What tiles cover of a side, their parts past its end included, over what is there."""
    return np.asarray(np.ceil(there / tile) * tile / there)


def no_rows_of_scores(summary: Summary) -> str | None:
    """Why a structured reduction has no rows of scores over one dim; None where it has them."""
    if not summary.has("p") or summary.extent("s") == 1:
        return "no block dim p, or no more than one index of a streamed dim s"
    if any(w.structured and len(w.reduced) > 1 for w in summary.products):
        return "a structured reduction over several dims"
    return None


def wide_weights(summary: Summary) -> str | None:
    """Why weights must not be rounded to the values' type, as kernels of matrix units have them.

    None where no score is wider than the values, or results are stored as narrow: rounding weights
    is then no coarser than rounding results.
    """
    for work in summary.products:
        widest = max((DTYPES[t].itemsize for t in work.dtypes), default=0)
        size = DTYPES[work.dtype].itemsize
        if work.structured and widest > size and max(a.itemsize for a in summary.stores) > size:
            return f"weights that {work.dtype} does not hold, for a wider result"
    return None


def mixes_rows(summary: Summary) -> bool:
    """Whether every row mixes values of its own: no products of rows with what they share."""
    return any({"p", "s"} <= set(a.letters) for a in summary.loads if a.feeds_product)


def tile_rows(target: Target, dtype: str) -> list[Instr]:
    """Rows that multiply an element type from tile memory, and that a kernel is written with."""
    return [r for r in _rows_of(target, dtype) if r.family == OF_TILES]


def _rows_of(target: Target, dtype: str) -> list[Instr]:
    return [r for r in target.rows("gemm") if any(dtype == accepted[0] for accepted in r.dtypes)]


def no_rows(target: Target, dtypes: Collection[str]) -> str:
    """Why there is no row that multiplies element types from tile memory."""
    known = {r.name for d in dtypes for r in _rows_of(target, d)}
    unwritten = sorted(n for n in known if n.partition(".")[0] not in (OF_TILES, *OF_REGISTERS))
    if unwritten:
        return f"no kernel is written with {' '.join(unwritten)}"
    return f"no gemm row for {' '.join(sorted(dtypes))}"


def is_of_matrices(work: Work) -> bool:
    """Whether each operand of a product has dims of its own; else one of them is a vector."""
    return {"a", "b"} <= {reach for _, _, reach in work.kept}


class Run(NamedTuple):
    """What of a structured reduction's chunks blocks run.

    Attributes:
        part: of all chunks.
        busiest: chunks of the busiest unit over the average of all units.
    """

    part: Column
    busiest: Column


def pieces(summary: Summary, columns: Columns) -> Column:
    """CTAs: of every block as many as share its steps; one where they share the rest alone."""
    chosen = columns.extra
    n_blocks = blocks(summary, columns)
    return np.asarray(np.where(chosen.get("rest", 0), n_blocks, n_blocks * chosen.get("split", 1)))


def waves(summary: Summary, target: Target, columns: Columns) -> Column:
    """Blocks of the busiest unit over the average, where blocks are alike.

    Of those that CTAs share because they fill no wave it has parts.
    """
    number, units = pieces(summary, columns), target.n_units
    parts = np.where(columns.extra.get("rest", 0), columns.extra.get("split", 1), 1)
    alone = np.floor(number / units)
    shared = np.ceil((number - alone * units) * parts / units) / parts
    return np.asarray((alone + shared) * units / number)


def roofline(
    summary: Summary,
    target: Target,
    columns: Columns,
    matrix: Column,
    run: Run | None = None,
    shared: Columns | None = None,
) -> None:
    """Fill time_s and the cost columns.

    Args:
        summary: the cone.
        target: the machine.
        columns: its candidates.
        matrix: seconds of the products, of all units together.
        run: the chunks that blocks run, where masks leave some out.
        shared: blocks that read operands once, where several do together.
    """
    run = run or Run(np.ones(len(columns)), waves(summary, target, columns))
    once, again = traffic(summary, shared or columns, run.part)
    n_blocks = pieces(summary, columns)
    rate = target.memories[0].bytes_per_s
    vector = flops(summary.vector, summary, columns, run.part) / target.vector_flops_per_s
    shared_rate = rate * target.figure("l2_over_memory")
    busy = np.minimum(1.0, n_blocks * target.figure("copy_unit_bytes_per_s") / shared_rate)
    streaming = np.minimum(1.0, n_blocks * target.figure("unit_bandwidth"))
    # What crosses memory crosses the cache that all units share, beside what that gives again.
    memory = np.maximum(once / rate / streaming, (once + again) / shared_rate / busy)
    compute = np.maximum(matrix, vector) * run.busiest
    exposed = target.figure("exposed") * np.minimum(memory, matrix + vector)
    columns.time_s = target.launch_s + np.maximum(memory, compute) + exposed
    columns.costs = {
        "gmem_bytes": once, "reread_bytes": again, "matrix_s": matrix, "vector_s": vector,
        "memory_s": memory, "blocks": n_blocks,
    }  # fmt: skip

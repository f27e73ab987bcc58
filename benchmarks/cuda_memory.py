"""Memory-bound rows, cells, rotations and transposes against torch, Triton and a copy on a GPU.

    python -m benchmarks.cuda_memory --prepare FOLDER [--seed SEED] [--only NAME ...]
    python -m benchmarks.cuda_memory --gpu --saved FOLDER --out FILE [--seed SEED] [--only NAME ...]

The first compiles and saves all programs for an H200, without a GPU; the second runs them. 33
programs are those of a review of 2026-11, 20 more are drawn; --seed takes those drawn by another
seed alone. Correctness comes first: every result, of Triton's kernels too, is compared with torch
in float64 on random normal data. What is timed are CUDA graphs over buffers that take turns and are
larger than L2 together (so inputs are cold), in shuffled order, the median of the rounds. Torch is
the best of eager and of `torch.compile` by default and with max-autotune-no-cudagraphs; Triton the
best of several block sizes; the copy one of as many bytes as the program must read and write.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import cuda_outputs, cuda_saved
from benchmarks.cuda_outputs import Torch

TOLERANCE = 2e-3
SEED, DRAWN, COPIED = 41, 20, 4096
Shape = tuple[int, ...]


def layernorm(np: Any, x: Any, w: Any, b: Any) -> Any:
    """Rows less their mean, over their deviation, scaled and shifted."""
    return np.layernorm(x, w, b)


def rmsnorm(np: Any, x: Any, w: Any) -> Any:
    """Rows over the root of their mean square, scaled."""
    return np.narrow(cuda_outputs._rms(np, np.wide(x), np.wide(w)))


def softmax(np: Any, x: Any) -> Any:
    """Softmax of rows."""
    return np.softmax(x)


def logsumexp(np: Any, x: Any) -> Any:
    """The log of the sum of every row's exponentials."""
    return np.narrow(np.logsumexp(np.wide(x)))


def bias_gelu(np: Any, x: Any, b: Any) -> Any:
    """Bias and gelu."""
    return np.narrow(np.gelu(np.wide(x) + np.wide(b)))


def total(np: Any, x: Any) -> Any:
    """The sum of all."""
    return np.sum(np.wide(x), None)


def turn102(np: Any, x: Any) -> Any:
    """The first two dims turned."""
    return np.permuted(x, (1, 0, 2))


def turn021(np: Any, x: Any) -> Any:
    """The last two dims turned."""
    return np.permuted(x, (0, 2, 1))


def rope(np: Any, x: Any, cos: Any, sin: Any) -> Any:
    """Halves of the last dim turned by angles of the dim before."""
    half = x.shape[-1] // 2
    a, b = np.wide(x[..., :half]), np.wide(x[..., half:])
    return np.narrow(np.concat([a * cos - b * sin, a * sin + b * cos]))


KINDS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (layernorm, rmsnorm, softmax, logsumexp, bias_gelu, cuda_outputs.residual_rmsnorm,
              total, turn102, turn021, rope)
}  # fmt: skip
COLUMNS = {"layernorm": 2, "rmsnorm": 1, "bias_gelu": 1, "residual_rmsnorm": 1}
TENSORS = {"residual_rmsnorm": 2}


@dataclass(frozen=True)
class Case:
    """A program of a kind on f16 tensors of a shape; angles of `rope` are f32."""

    kind: str
    shape: Shape

    @property
    def name(self) -> str:
        """Kind and shape."""
        return f"{self.kind}_{'x'.join(map(str, self.shape))}"

    @property
    def given(self) -> list[tuple[Shape, str]]:
        """Shape and element type of every argument."""
        tensors = [(self.shape, "f16")] * TENSORS.get(self.kind, 1)
        tensors += [(self.shape[-1:], "f16")] * COLUMNS.get(self.kind, 0)
        if self.kind == "rope":
            tensors += [((self.shape[1], self.shape[-1] // 2), "f32")] * 2
        return tensors

    def run(self, np: Any, *given: Any) -> Any:
        """The program, by some functions of arrays."""
        return KINDS[self.kind](np, *given)


def named() -> list[Case]:
    """Those of the review."""
    rows = [(3000, 5120), (16384, 2880), (512, 50257), (65536, 128)]
    kinds = "layernorm", "rmsnorm", "softmax", "logsumexp", "bias_gelu", "residual_rmsnorm"
    return [
        *(Case(kind, shape) for shape in rows for kind in kinds),
        *(Case("total", shape) for shape in rows[:3]),
        *(Case("turn102", shape) for shape in ((48, 3000, 128), (3000, 48, 100))),
        *(Case("turn021", shape) for shape in ((16, 2880, 1000), (48, 3000, 128))),
        *(Case("rope", shape) for shape in ((32, 4096, 128), (40, 3000, 64))),
    ]


def drawn(seed: int = SEED, count: int = DRAWN) -> Iterator[Case]:
    """Programs of 4 to 64 million elements, every kind in turn."""
    rng = random.Random(seed)
    for n in range(count):
        kind = list(KINDS)[n % len(KINDS)]
        size = rng.randint(4, 64) * 2**20
        if kind.startswith("turn"):
            step = rng.choice((1, 8))
            last, middle = (step * rng.randint(64 // step, 3000 // step) for _ in range(2))
            yield Case(kind, (max(2, size // (last * middle)), middle, last))
        elif kind == "rope":
            last, length = rng.choice((64, 96, 128)), rng.randint(500, 8000)
            yield Case(kind, (max(1, size // (last * length)), length, last))
        else:
            step = rng.choice((1, 2, 8, 8))
            last = step * rng.randint(128 // step, 16384 // step)
            yield Case(kind, (size // last, last))


cases = partial(cuda_saved.cases, named, drawn)


def compile_torch(case: Case, modes: Sequence[str]) -> None:
    """Torch's programs, for its caches."""
    for mode in modes:
        program = partial(case.run, Torch())
        cuda_saved.compiled(program, [cuda_outputs.tensors(case)], mode=mode)


def measure(case: Case, saved: Path, modes: Sequence[str]) -> dict[str, Any]:
    """Errors, then times."""
    import torch

    from benchmarks import cuda_triton

    first = cuda_outputs.tensors(case)
    n_bytes = first[0].nbytes
    sets = [first, *(cuda_outputs.tensors(case) for _ in range(1, cuda_saved.n_sets(n_bytes)))]
    program, error = partial(case.run, Torch()), partial(cuda_outputs._error, case, first)
    results = program(*first)
    written = results if isinstance(results, tuple) else (results,)
    moved = sum(t.nbytes for t in [*first, *written])
    wrong: dict[str, str] = {}

    def peers() -> dict[str, list[Any]]:
        found = {}
        for name, way in cuda_triton.ways(case.kind, case.shape).items():
            try:
                off = error(way(*first))
            except Exception as failed:
                wrong[name] = repr(failed)[:200]
                continue
            if off < TOLERANCE:
                found[name] = [partial(way, *given) for given in sets]
            else:
                wrong[name] = f"off by {off:.1e}"
        # Copies of whole vectors: others are slower.
        part = -(-moved // 2 // COPIED) * COPIED
        parts = [torch.empty(part, device="cuda", dtype=torch.uint8) for _ in sets * 2]
        pairs = zip(parts[: len(sets)], parts[len(sets) :], strict=True)
        return {**found, "copy": [partial(y.copy_, x) for x, y in pairs]}

    found = cuda_saved.raced(
        case, saved, sets, program, error, tolerance=TOLERANCE, modes=modes, more=peers
    )  # fmt: skip
    times = {key: v["us"] for key, v in found["times"].items()}
    ours = times["axe"] if "axe" in times else float("inf")
    torchs = [us for key, us in times.items() if key.startswith(("eager", "compile"))]
    tritons = [us for key, us in times.items() if key.startswith("triton")]
    return {
        **found, "ratio": min(torchs) / ours, "of_copy": times["copy"] / ours,
        "of_triton": min(tritons) / ours if tritons else None, "wrong": wrong,
    }  # fmt: skip


def main() -> None:
    """Prepare or measure."""
    parser = cuda_saved.arguments(__doc__, "cuda_memory.json")
    parser.add_argument("--quick", action="store_true", help="torch.compile by default alone")
    parser.add_argument("--seed", type=int, help="of other programs than the named ones")
    options = cuda_saved.asked(parser)
    found = cases(options.only, options.seed)
    if options.prepare:
        cuda_saved.prepare(found, options.prepare, cuda_outputs.written)
    if not options.gpu:
        return
    modes = cuda_saved.MODES[: 1 if options.quick else None]
    cuda_saved.warmed(found, partial(compile_torch, modes=modes))

    def line(case: dict[str, Any]) -> str:
        triton = f"{case['of_triton']:.3f}" if case["of_triton"] else str(case["wrong"])
        return (
            f"{case['ratio']:.3f} of torch, {triton} of Triton, {case['of_copy']:.3f} of copy;"
            f" {cuda_saved.times(case)}; estimated {case['estimate_us']:.1f}, error"
            f" {case['error']:.1e}"
        )

    measure_one = partial(measure, saved=options.saved, modes=modes)
    rows = cuda_saved.measured(found, measure_one, line, options.out)
    cuda_saved.summed("programs", rows)
    for key, what in (("of_triton", "Triton"), ("of_copy", "copy")):
        if ratios := [row[key] for row in rows if row.get(key)]:
            mean = statistics.geometric_mean(ratios)
            print(f"of {what}: geomean {mean:.3f}, least {min(ratios):.3f}")


if __name__ == "__main__":
    main()

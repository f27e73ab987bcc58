"""Sums over any dims, norms, argmax and pooling against torch on this machine's GPU.

    python -m benchmarks.cuda_sums --prepare FOLDER [--seed SEED] [--only NAME ...]
    python -m benchmarks.cuda_sums --gpu --saved FOLDER --out FILE [--only NAME ...] [--quick] ..

The first compiles and saves all programs for an H200, without a GPU; the second runs them. Named
programs are those that a review of 2026-11 found slow; 20 more are drawn; --seed takes others
alone. Correctness comes first: every result is compared with torch in float64 on random normal
data. What is timed are CUDA graphs over buffers that take turns and are larger than L2 together, in
shuffled order, the median of the rounds: torch eager, `torch.compile` by default and with max-
autotune-no-cudagraphs, beside a copy of what is read. --quick leaves max-autotune out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import cuda_saved

EPS, TOLERANCE = 1e-5, 2e-3
SEED, DRAWN = 13, 20
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A program: what it computes, over which dims, of which arguments.

    Attributes:
        kind: "sum", "mean", "stats", "norm", "rmsnorm", "softmax", "argmax" or "pool".
        shape, dtype: of its argument.
        dims: that are reduced; of a pool its window.
        along: of a norm, the dims along which a scale and a shift vary.
    """

    kind: str
    shape: Shape
    dims: tuple[int, ...]
    dtype: str = "f16"
    along: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Kind, shape, element type and dims."""
        given = "x".join(map(str, self.shape)), self.dtype, "".join(map(str, self.dims))
        return "_".join((self.kind, *given))

    @property
    def shapes(self) -> list[Shape]:
        """Those of its arguments."""
        scale = tuple(e if d in self.along else 1 for d, e in enumerate(self.shape))
        return [self.shape, *([scale] * 2 if self.along else [])]

    def axe(self, x: Any, *scale: Any) -> Any:
        """The program as a user writes it."""
        from axe_eq import array as xp
        from axe_eq import nn

        dims, kept = self.dims, partial(xp.mean, axis=self.dims, keepdims=True)
        if self.kind == "pool":
            return nn.max_pool2d(x, (dims[0], dims[1]))
        if self.kind == "norm":
            mean = kept(xp.astype(x, "f32"))
            centred = x - mean
            spread = kept(centred * centred)
            return xp.astype(centred / xp.sqrt(spread + EPS) * scale[0] + scale[1], self.dtype)
        programs: dict[str, Callable[[], Any]] = {
            "sum": lambda: xp.sum(x, axis=dims),
            "mean": lambda: xp.mean(x, axis=dims),
            "stats": lambda: (xp.mean(x, axis=dims), xp.var(x, axis=dims)),
            "rmsnorm": lambda: x / xp.sqrt(kept(x * x) + EPS),
            "softmax": lambda: nn.softmax(x, axis=dims[0]),
            "argmax": lambda: xp.argmax(x, axis=dims[0]),
        }
        return programs[self.kind]()

    def torch(self, x: Any, *scale: Any) -> Any:
        """The same in torch."""
        import torch
        from torch.nn import functional

        dims, kept = self.dims, partial(torch.mean, dim=self.dims, keepdim=True)
        if self.kind == "norm":
            # What torch computes norms in.
            wide = x.float() if x.dtype == torch.float16 else x
            centred = wide - kept(wide)
            spread = kept(centred * centred)
            return (centred / torch.sqrt(spread + EPS) * scale[0] + scale[1]).to(x.dtype)
        programs: dict[str, Callable[[], Any]] = {
            "sum": lambda: torch.sum(x, dim=dims),
            "mean": lambda: torch.mean(x, dim=dims),
            "stats": lambda: torch.var_mean(x, dim=dims, correction=0)[::-1],
            "rmsnorm": lambda: x / torch.sqrt(kept(x * x) + EPS),
            "softmax": lambda: torch.softmax(x, dim=dims[0]),
            "argmax": lambda: torch.argmax(x, dim=dims[0]),
            "pool": lambda: functional.max_pool2d(x, dims, stride=dims),
        }
        return programs[self.kind]()


def named() -> list[Case]:
    """Programs that a review found slow, and their like."""
    rows = ((3000, 5120), (16384, 2880), (512, 50257), (65536, 128))
    return [
        *(Case("sum", shape, (0,)) for shape in rows),
        *(Case("sum", shape, (0, 1)) for shape in rows),
        Case("rmsnorm", (16, 1024, 2048), (1,)),
        Case("softmax", (512, 50257), (1,)),
        Case("stats", (32, 56, 56, 128), (0, 1, 2)),
        Case("stats", (32, 128, 56, 56), (0, 2, 3)),
        Case("norm", (32, 56, 56, 128), (0, 1, 2), along=(3,)),
        Case("norm", (32, 128, 56, 56), (0, 2, 3), along=(1,)),
    ]


def drawn(seed: int = SEED, count: int = DRAWN) -> list[Case]:
    """Programs of 8 to 64 million elements, every kind in turn."""
    rng = random.Random(seed)
    return [_drawn(rng, n) for n in range(count)]


def _drawn(rng: random.Random, number: int) -> Case:
    kinds = "sum", "sum", "mean", "stats", "norm", "group", "rmsnorm", "argmax", "pool", "softmax"
    kind, dtype = kinds[number % len(kinds)], rng.choice(("f16", "f16", "f32"))
    side = rng.choice((28, 32, 56, 60, 112))
    if kind in ("norm", "pool", "group"):
        channels = rng.choice((32, 64, 96, 128, 256))
        n = max(2, rng.randint(8, 40) * 2**20 // (channels * side * side))
        if kind == "pool":
            return Case("pool", (n, channels, side, side), (2, 2), dtype)
        if kind == "group":
            parts = (n, 8, channels // 8, side, side)
            return Case("norm", parts, (2, 3, 4), dtype, along=(1, 2))
        if rng.random() < 0.5:
            return Case("norm", (n, side, side, channels), (0, 1, 2), dtype, along=(3,))
        return Case("norm", (n, channels, side, side), (0, 2, 3), dtype, along=(1,))
    if kind == "softmax":
        columns = rng.choice((32000, 50257, 65536, 128256))
        return Case("softmax", (rng.randint(8, 32) * 2**20 // columns, columns), (1,), dtype)
    if kind == "rmsnorm":
        middle, last = rng.choice((64, 300, 512, 1500)), rng.choice((64, 192, 1000, 2048))
        n = max(1, rng.randint(8, 32) * 2**20 // (middle * last))
        return Case("rmsnorm", (n, middle, last), (1,), dtype)
    rank = rng.randint(2, 4) if kind != "argmax" else 2
    shape = [rng.choice((3, 17, 64, 100, 129, 256, 511, 1024)) for _ in range(rank - 1)]
    shape.insert(rng.randint(0, rank - 1), 1)
    at = shape.index(1)
    shape[at] = max(2, rng.randint(8, 48) * 2**20 // math.prod(shape))
    dims = tuple(sorted(rng.sample(range(rank), 1 if kind == "argmax" else rng.randint(1, rank))))
    return Case(kind, tuple(shape), dims, dtype)


cases = partial(cuda_saved.cases, named, drawn)


def written(case: Case) -> tuple[Callable[..., Any], list[Any]]:
    """A program and the specs of its arguments."""
    import axe_eq as axe

    dtypes = [case.dtype, *["f32"] * (len(case.shapes) - 1)]
    return case.axe, [axe.Spec(*given) for given in zip(case.shapes, dtypes, strict=True)]


def tensors(case: Case) -> tuple[Any, ...]:
    """Random arguments."""
    import torch

    dtype = getattr(torch, f"float{case.dtype[1:]}")
    return (
        torch.randn(case.shape, device="cuda", dtype=dtype),
        *(torch.randn(s, device="cuda") for s in case.shapes[1:]),
    )


def compile_torch(case: Case, modes: Sequence[str]) -> None:
    """Torch's programs, for its caches."""
    for mode in modes:
        cuda_saved.compiled(case.torch, [tensors(case)], mode=mode)


def measure(case: Case, saved: Path, modes: Sequence[str]) -> dict[str, Any]:
    """Errors, then times."""
    import torch

    first = tensors(case)
    sets = [first, *(tensors(case) for _ in range(1, cuda_saved.n_sets(first[0].nbytes)))]

    def copies() -> dict[str, list[Any]]:
        others = [torch.empty_like(given[0]) for given in sets]
        return {"copy": [partial(y.copy_, g[0]) for y, g in zip(others, sets, strict=True)]}

    return cuda_saved.raced(
        case, saved, sets, case.torch, partial(_error, case, first),
        tolerance=TOLERANCE, modes=modes, more=copies,
    )  # fmt: skip


def _error(case: Case, given: Sequence[Any], results: Any) -> float:
    """The largest difference from torch in float64, over the largest value."""
    import torch

    x = given[0].double()
    outs = results if isinstance(results, (tuple, list)) else (results,)
    if case.kind == "argmax":  # of equal values torch may take any
        at = outs[0].unsqueeze(case.dims[0]).long()
        wanted = x.amax(case.dims[0], keepdim=True)
        return float((x.gather(case.dims[0], at) - wanted).abs().max())
    want = case.torch(x, *(g.double() for g in given[1:]))
    wants = want if isinstance(want, (tuple, list)) else (want,)
    # Sums of random numbers cancel: what they are sums of says what is large.
    terms = math.sqrt(x.numel() / wants[0].numel()) if case.kind in ("sum", "mean") else 0.0
    scale = [terms / (x.numel() / wants[0].numel() if case.kind == "mean" else 1.0), 0.0]
    return (
        max(
            float((out.double() - want).abs().max() / max(float(want.abs().max()), least))
            for out, want, least in zip(outs, wants, scale, strict=False)
        )
        if all(torch.isfinite(o).all() for o in outs)
        else math.inf
    )


def main() -> None:
    """Prepare or measure."""
    parser = cuda_saved.arguments(__doc__, "cuda_sums.json")
    parser.add_argument("--quick", action="store_true", help="torch.compile by default alone")
    parser.add_argument("--seed", type=int, help="of other programs than the named ones")
    options = cuda_saved.asked(parser)
    some = cases(options.only, options.seed)
    if options.prepare:
        cuda_saved.prepare(some, options.prepare, written)
    if not options.gpu:
        return
    modes = cuda_saved.MODES[: 1 if options.quick else None]
    cuda_saved.warmed(some, partial(compile_torch, modes=modes))

    def line(case: dict[str, Any]) -> str:
        return (
            f"{case['ratio']:.3f} of the best peer; {cuda_saved.times(case)};"
            f" estimated {case['estimate_us']:.1f}, error {case['error']:.1e}"
        )

    measure_one = partial(measure, saved=options.saved, modes=modes)
    found = cuda_saved.measured(some, measure_one, line, options.out)
    near = sum(0.7 <= c["of_estimate"] <= 1.3 for c in found if c.get("ratio"))
    cuda_saved.summed("programs", found, f"; {near} within 30 % of their estimate")


if __name__ == "__main__":
    main()

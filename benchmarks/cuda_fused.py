"""Products with what follows them in one kernel, and blocks of two, against torch on a GPU.

    python -m benchmarks.cuda_fused --prepare FOLDER [--seed SEED] [--only NAME ...]
    python -m benchmarks.cuda_fused --gpu --saved FOLDER [--seed SEED] [--quick] [--out FILE]

The first compiles and saves all programs for an H200, without a GPU; the second runs them. Without
--seed these are shapes of models, with it three drawn ones of a kind. Peers are torch eager,
`torch.compile` of a module whose weights are its own, by default and with
max-autotune-no-cudagraphs (not with --quick), and cuBLASLt's fused bias and relu or gelu. Each
result is compared with torch in float32 first. Large programs are timed in bursts after a rest;
those of less than 5e10 operations in CUDA graphs over buffers that are larger than L2 together.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import cuda_saved
from benchmarks.regret_programs import log_uniform

DRAWN, LARGE, TOLERANCE = 3, 5e10, 4e-3
KINDS = ("bias_relu", "bias_gelu", "residual", "gated", "block")


@dataclass(frozen=True)
class Case:
    """A program over x of (m, k), weights of (n, k) and what is beside them.

    Attributes:
        kind: one of `KINDS`; "block" is x + gelu(x w^T + b) v^T.
        m, n, k: extents.
    """

    kind: str
    m: int
    n: int
    k: int

    @property
    def name(self) -> str:
        """Kind and extents."""
        return f"{self.kind}_{self.m}x{self.n}x{self.k}"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """x, then weights."""
        m, n, k = self.m, self.n, self.k
        more: dict[str, list[tuple[int, ...]]] = {
            "bias_relu": [(n,)], "bias_gelu": [(n,)], "residual": [(m, n)], "gated": [(n, k)],
            "block": [(n,), (k, n)],
        }  # fmt: skip
        return [(m, k), (n, k), *more[self.kind]]

    @property
    def flops(self) -> float:
        """Of its products."""
        return 2.0 * self.m * self.n * self.k * (2 if self.kind in ("gated", "block") else 1)

    def run(self, f: Any, x: Any, w: Any, *more: Any) -> Any:
        """The program in a library of functions `f`."""
        if self.kind == "gated":
            return f.silu(x @ w.T) * (x @ more[0].T)
        if self.kind == "residual":
            return x @ w.T + more[0]
        if self.kind == "bias_relu":
            return f.relu(x @ w.T + more[0])
        hidden = f.gelu(x @ w.T + more[0], approximate="tanh")
        return hidden if self.kind == "bias_gelu" else x + hidden @ more[1].T


def named() -> Iterator[Case]:
    """Shapes of models."""
    for kind, m, n, k in [
        ("bias_relu", 8192, 4096, 4096), ("bias_gelu", 4096, 13824, 5120),
        ("bias_gelu", 10240, 7168, 2048), ("bias_gelu", 1000, 6144, 1536),
        ("residual", 6144, 5120, 13824), ("residual", 16384, 3584, 3584),
        ("gated", 4096, 18944, 3584), ("gated", 10240, 5632, 2048), ("gated", 64, 13824, 5120),
        ("block", 4096, 5632, 2048), ("block", 16384, 2048, 512), ("block", 8192, 128, 256),
    ]:  # fmt: skip
        yield Case(kind, m, n, k)


def drawn(seed: int) -> Iterator[Case]:
    """Some of every kind."""
    for kind in KINDS:
        rng = random.Random(f"{kind} {seed}")
        for _ in range(DRAWN):
            m, n = (log_uniform(rng, low, 16384, 64) for low in (256, 1024))
            yield Case(kind, m, n, log_uniform(rng, 512, 8192, 64))


def written(case: Case) -> tuple[Callable[..., Any], Sequence[Any]]:
    """The program for axe."""
    import axe_eq as axe
    from axe_eq import nn

    return partial(case.run, nn), [axe.Spec(shape, "f16") for shape in case.shapes]


def measure(case: Case, saved: Path, modes: Sequence[str]) -> dict[str, Any]:
    """Errors, then times."""
    import torch
    from torch.nn import functional

    from axe_eq.run.store import load
    from benchmarks.cuda import burst, graphs, normal, relative_error, summary

    class Module(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, weights: Sequence[Any]) -> None:
            super().__init__()
            for n, w in enumerate(weights):
                self.register_parameter(f"w{n}", torch.nn.Parameter(w, False))
            self.number = len(weights)

        def forward(self, x: Any, *given: Any) -> Any:
            held = [getattr(self, f"w{n}") for n in range(self.number)]
            return case.run(functional, x, *held, *given)

    def tensors() -> list[Any]:
        scales = (1.0, case.k**-0.5, *(s[-1] ** -0.5 for s in case.shapes[2:]))
        return [normal(*s).mul_(by) for s, by in zip(case.shapes, scales, strict=True)]

    is_large = case.flops > LARGE
    n_bytes = sum(2 * math.prod(s) for s in case.shapes) + 2 * case.m * case.n
    sets = [tensors() for _ in range(1 if is_large else cuda_saved.n_sets(n_bytes))]
    about = json.loads((saved / f"{case.name}.json").read_text(encoding="utf-8"))
    calls = [load(saved / f"{case.name}.axe").bind(*given) for given in sets]
    want = case.run(functional, *(t.float() for t in sets[0]))
    found = {"name": case.name, **about, "error": relative_error(calls[0](), want)}
    del want
    runs = {"axe": calls} if found["error"] < TOLERANCE else {}
    runs["eager"] = [partial(case.run, functional, *given) for given in sets]
    # A residual is an input; all else beside x belongs to the module.
    own = 1 if case.kind == "residual" else len(case.shapes) - 1
    for mode in modes:
        torch._dynamo.reset()
        made = torch.compile(Module(sets[0][1 : 1 + own]), mode=mode, dynamic=False)
        with torch.no_grad():
            made(sets[0][0], *sets[0][1 + own :])
        runs[f"compile {mode}"] = [partial(made, g[0], *g[1 + own :]) for g in sets]
    if case.kind in ("bias_relu", "bias_gelu"):
        fused, gelu = torch._addmm_activation, case.kind == "bias_gelu"
        runs["cublaslt"] = [partial(fused, b, x, w.t(), use_gelu=gelu) for x, w, b in sets]
    with torch.no_grad():
        timed = burst({k: v[0] for k, v in runs.items()}, 7) if is_large else graphs(runs, 7)
    times = found["times"] = summary(timed, case.flops)
    best = min(v["us"] for key, v in times.items() if key != "axe")
    ours = times["axe"]["us"] if "axe" in times else math.inf
    return {**found, "ratio": best / ours, "of_estimate": ours / found["estimate_us"]}


def main() -> None:
    """Prepare or measure."""
    parser = cuda_saved.arguments(__doc__, "cuda_fused.json")
    parser.add_argument("--quick", action="store_true", help="torch.compile by default alone")
    parser.add_argument("--seed", type=int, help="of other shapes than those of models")
    options = cuda_saved.asked(parser)
    every = named() if options.seed is None else drawn(options.seed)
    some = list(cuda_saved.picked(every, options.only))
    if options.prepare:
        cuda_saved.prepare(some, options.prepare, written)
    if not options.gpu:
        return
    modes = cuda_saved.MODES[:1] if options.quick else cuda_saved.MODES
    measure_one = partial(measure, saved=options.saved, modes=modes)
    found = cuda_saved.measured(some, measure_one, _line, options.out)
    cuda_saved.summed("programs", found)


def _line(case: dict[str, Any]) -> str:
    """What one came to."""
    return (
        f"{case['ratio']:.3f} of the best peer; {cuda_saved.times(case)};"
        f" estimated {case['estimate_us']:.1f}, error {case['error']:.1e}"
    )


if __name__ == "__main__":
    main()

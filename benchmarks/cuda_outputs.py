"""Programs of several results, rotations, concatenations and slices against torch on a GPU.

    python -m benchmarks.cuda_outputs --prepare FOLDER [--seed SEED] [--only NAME ...]
    python -m benchmarks.cuda_outputs --gpu --saved FOLDER --out FILE [--only NAME ...] ..

The first compiles and saves all programs for an H200, without a GPU; the second runs them. Shapes
are those of models and, of every kind, two drawn; --seed takes others alone. Correctness comes
first: every result is compared with torch in float64 on random normal data. What is timed are CUDA
graphs over buffers that take turns and are larger than L2 together, in shuffled order, the median
of the rounds: `torch.compile` by default, which the ratio is to, and eager; of attention, whose
log-sum-exp is a second result, flash attention too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import cuda_saved

EPS, TOLERANCE = 1e-5, 2e-3
SEED, DRAWN = 29, 2
Shape = tuple[int, ...]


def _rms(np: Any, x: Any, weight: Any) -> Any:
    return x * (1 / np.sqrt(np.mean(x * x, -1) + EPS))[..., None] * weight


def residual_rmsnorm(np: Any, x: Any, r: Any, weight: Any) -> Any:
    """The residual h = x + r, and its norm."""
    h = np.wide(x) + np.wide(r)
    return np.narrow(h), np.narrow(_rms(np, h, np.wide(weight)))


def residual_softmax(np: Any, x: Any, r: Any) -> Any:
    """The residual h = x + r, and its softmax."""
    h = np.wide(x) + np.wide(r)
    return np.narrow(h), np.narrow(np.softmax(h))


def residual_layernorm(np: Any, x: Any, r: Any) -> Any:
    """The residual h = x + r, its norm, and the mean and scale of every row."""
    h = np.wide(x) + np.wide(r)
    mean = np.mean(h, -1)
    centred = h - mean[..., None]
    scale = 1 / np.sqrt(np.mean(centred * centred, -1) + EPS)
    return np.narrow(h), np.narrow(centred * scale[..., None]), mean, scale


def moments(np: Any, x: Any) -> Any:
    """Sum and sum of squares of every row."""
    wide = np.wide(x)
    return np.sum(wide, -1), np.sum(wide * wide, -1)


def bounds(np: Any, x: Any) -> Any:
    """Least and greatest of every row."""
    return np.min(x, -1), np.max(x, -1)


def rope(np: Any, x: Any, cos: Any, sin: Any) -> Any:
    """Halves of the last dim turned by angles of the first one (Su et al. 2021)."""
    half = x.shape[-1] // 2
    a, b = np.wide(x[..., :half]), np.wide(x[..., half:])
    c, s = cos[:, None, :], sin[:, None, :]
    return np.narrow(np.concat([a * c - b * s, a * s + b * c]))


def gated(np: Any, x: Any) -> Any:
    """Two slices of one tensor: silu of one times the other."""
    half = x.shape[-1] // 2
    gate, up = np.wide(x[..., :half]), np.wide(x[..., half:])
    return np.narrow(gate / (1 + np.exp(-gate)) * up)


def joined(np: Any, x: Any, r: Any) -> Any:
    """A tensor beside the double of another."""
    return np.concat([x, r * 2])


def attention(np: Any, q: Any, k: Any, v: Any) -> Any:
    """Attention, and the log of the sum of every row's exponentials."""
    s = np.wide(np.matmul(q, np.turned(k))) * (q.shape[-1] ** -0.5)
    top = np.max(s, -1)
    e = np.exp(s - top[..., None])
    total = np.sum(e, -1)
    return np.matmul(np.narrow(e / total[..., None]), v), top + np.log(total)


KINDS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (residual_rmsnorm, residual_softmax, residual_layernorm, moments, bounds,
              rope, gated, joined, attention)
}  # fmt: skip
TENSORS = {"residual_rmsnorm": 2, "residual_softmax": 2, "residual_layernorm": 2, "joined": 2,
           "attention": 3}  # fmt: skip


def _along(reduced: Callable[..., Any]) -> Callable[[Any, int], Any]:
    """A reduction with its axis by place, as torch has it."""
    return lambda x, axis: reduced(x, axis=axis)


class Axe:
    """The functions of arrays that programs take."""

    def __init__(self) -> None:
        from axe_eq import array, nn

        self.exp, self.log, self.sqrt, self.matmul = array.exp, array.log, array.sqrt, array.matmul
        self.concat: Callable[[Any], Any] = partial(array.concat, axis=-1)
        self.softmax: Callable[[Any], Any] = partial(nn.softmax, axis=-1)
        self.logsumexp = self._logsumexp
        self.gelu, self.permuted = nn.gelu, array.permute_dims
        self.layernorm: Callable[[Any, Any, Any], Any] = lambda x, w, b: nn.layernorm(
            x, weight=w, bias=b, eps=EPS
        )
        self.wide: Callable[[Any], Any] = lambda x: array.astype(x, "f32")
        self.narrow: Callable[[Any], Any] = lambda x: array.astype(x, "f16")
        self.turned: Callable[[Any], Any] = partial(array.permute_dims, axes=(0, 2, 1))
        self.sum, self.mean = _along(array.sum), _along(array.mean)
        self.min, self.max = _along(array.min), _along(array.max)

    def _logsumexp(self, x: Any) -> Any:
        top = self.max(x, -1)
        return top + self.log(self.sum(self.exp(x - top[..., None]), -1))


def _permuted(x: Any, axes: Sequence[int]) -> Any:
    return x.permute(axes).contiguous()


class Torch:
    """The same of torch, with its own softmax; in float64 nothing is narrowed."""

    def __init__(self, exact: bool = False) -> None:
        import torch

        self.exp, self.log, self.sqrt = torch.exp, torch.log, torch.sqrt
        self.matmul, self.sum, self.mean = torch.matmul, torch.sum, torch.mean
        self.min, self.max = torch.amin, torch.amax
        self.concat: Callable[[Any], Any] = partial(torch.cat, dim=-1)
        self.softmax: Callable[[Any], Any] = partial(torch.softmax, dim=-1)
        self.logsumexp: Callable[[Any], Any] = partial(torch.logsumexp, dim=-1)
        self.gelu, self.permuted = torch.nn.functional.gelu, _permuted
        self.layernorm: Callable[[Any, Any, Any], Any] = lambda x, w, b: (
            torch.nn.functional.layer_norm(x, x.shape[-1:], w, b, EPS)
        )
        self.wide: Callable[[Any], Any] = (lambda x: x) if exact else (lambda x: x.float())
        self.narrow: Callable[[Any], Any] = (lambda x: x) if exact else (lambda x: x.half())
        self.turned: Callable[[Any], Any] = partial(torch.transpose, dim0=1, dim1=2)


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
        if self.kind == "rope":
            tensors += [((self.shape[0], self.shape[-1] // 2), "f32")] * 2
        if self.kind == "residual_rmsnorm":
            tensors.append((self.shape[-1:], "f16"))
        return tensors

    def run(self, np: Any, *given: Any) -> Any:
        """The program, by some functions of arrays."""
        return KINDS[self.kind](np, *given)


def named() -> list[Case]:
    """Shapes of models."""
    rows = [(8192, 4096), (16384, 2880), (4096, 8192), (512, 50257)]
    kinds = [k for k in KINDS if k not in ("rope", "attention")]
    return [
        *(Case(kind, shape) for kind in kinds for shape in rows[: 4 if "soft" in kind else 3]),
        *(Case("rope", shape) for shape in ((4096, 32, 128), (8192, 64, 64), (2048, 8, 128))),
        *(Case("attention", shape) for shape in ((32, 2048, 64), (16, 4096, 128))),
    ]


def drawn(seed: int = SEED, count: int = DRAWN) -> Iterator[Case]:
    """Of every kind some of 8 to 64 million elements."""
    rng = random.Random(seed)
    for kind in KINDS:
        for _ in range(count):
            if kind == "attention":
                yield Case(kind, (rng.choice((8, 24, 40)), rng.choice((1000, 1536, 3000)), 64))
                continue
            last = 2 * rng.choice((32, 48, 64)) if kind == "rope" else 2 * rng.randint(100, 8000)
            heads = (rng.choice((4, 12, 40)),) if kind == "rope" else ()
            rest = last * math.prod(heads)
            yield Case(kind, (rng.randint(8, 64) * 2**20 // rest, *heads, last))


cases = partial(cuda_saved.cases, named, drawn)


def written(case: Any) -> tuple[Callable[..., Any], list[Any]]:
    """A program and the specs of its arguments."""
    import axe_eq as axe

    return partial(case.run, Axe()), [axe.Spec(shape, dtype) for shape, dtype in case.given]


def tensors(case: Any) -> list[Any]:
    """Random arguments."""
    import torch

    dtypes = {"f16": torch.float16, "f32": torch.float32}
    return [torch.randn(shape, device="cuda", dtype=dtypes[dtype]) for shape, dtype in case.given]


def measure(case: Case, saved: Path) -> dict[str, Any]:
    """Errors, then times."""
    import torch

    first = tensors(case)
    n_bytes = sum(t.nbytes for t in first)
    sets = [first, *(tensors(case) for _ in range(1, cuda_saved.n_sets(n_bytes)))]

    def flash() -> dict[str, list[Any]]:
        attend = torch.ops.aten._scaled_dot_product_flash_attention
        heads = [[t[None] for t in given] for given in sets]
        return {"flash": [partial(attend, *given) for given in heads]}

    more = flash if case.kind == "attention" else dict
    return cuda_saved.raced(
        case, saved, sets, partial(case.run, Torch()), partial(_error, case, first),
        tolerance=TOLERANCE, modes=cuda_saved.MODES[:1], more=more,
    )  # fmt: skip


def _error(case: Any, given: Sequence[Any], results: Any) -> float:
    """The largest difference from torch in float64, over the largest value of the result."""
    wanted = case.run(Torch(exact=True), *(t.double() for t in given))
    pairs = zip(
        *(x if isinstance(x, (tuple, list)) else (x,) for x in (results, wanted)), strict=True
    )
    errors = [float((got.double() - want).abs().max() / want.abs().max()) for got, want in pairs]
    return max(e if math.isfinite(e) else math.inf for e in errors)


def _results(kernel: Any) -> dict[str, Any]:
    return {"results": len(kernel.writes)}


def main() -> None:
    """Prepare or measure."""
    parser = cuda_saved.arguments(__doc__, "cuda_outputs.json")
    parser.add_argument("--seed", type=int, help="of other programs than the named ones")
    options = cuda_saved.asked(parser)
    some = cases(options.only, options.seed)
    if options.prepare:
        cuda_saved.prepare(some, options.prepare, written, _results)
    if not options.gpu:
        return

    def line(case: dict[str, Any]) -> str:
        return (
            f"{case['ratio']:.3f} of the peer; {cuda_saved.times(case)};"
            f" estimated {case['estimate_us']:.1f}, error {case['error']:.1e}"
        )

    measure_one = partial(measure, saved=options.saved)
    found = cuda_saved.measured(some, measure_one, line, options.out)
    cuda_saved.summed("programs", found)


if __name__ == "__main__":
    main()

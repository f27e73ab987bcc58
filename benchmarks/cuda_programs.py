"""The programs that `benchmarks.cuda` times, as a user writes them; compiled here or elsewhere.

    python -m benchmarks.cuda_programs FOLDER [--only PART ...] [--cluster N]

saves them all for an H200, without a GPU; ``python -m benchmarks.cuda --saved FOLDER`` runs them.
With --cluster, CTAs of products share operand tiles in clusters of N; those are saved beside.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

M = 8192
MODELS = {
    "Qwen3-8B o": (4096, 4096), "Qwen3-8B gate_up": (24576, 4096), "Qwen3-32B down": (5120, 25600),
    "Qwen3-32B qkv": (10240, 5120), "L3.1-70B o": (8192, 8192), "Gemma2-9B gate_up": (28672, 3584),
    "L3.1-405B o": (16384, 16384), "GPT3 o": (12288, 12288),
}  # fmt: skip
MEMORY_OPS = ("rmsnorm", "softmax", "bias_gelu", "transpose")
MEMORY_SIZES = [(r, c) for r in (8192, 1024) for c in (4096, 12288, 1000)]
TOKENS, HEADS = 16384, 16
LENGTHS, WIDTHS = (1024, 2048, 4096, 8192, 16384), (128, 64)
Fn = Callable[..., Any]


def product(x: Any, w: Any) -> Any:
    """A linear layer; weights are (outputs, inputs)."""
    return x @ w.T


def bias_relu(x: Any, w: Any, b: Any) -> Any:
    """A linear layer with bias and relu."""
    from axe_eq import nn

    return nn.relu(x @ w.T + b)


def memory_program(op: str) -> Fn:
    """A memory-bound operation by name."""
    from axe_eq import nn

    programs: dict[str, Fn] = {
        "rmsnorm": lambda x, w: nn.rmsnorm(x) * w,
        "softmax": lambda x: nn.softmax(x, axis=-1),
        "bias_gelu": lambda x, b: nn.gelu(x + b),
        "transpose": lambda x: x.T,
    }
    return programs[op]


def attention(q: Any, k: Any, v: Any) -> Any:
    """softmax(q k^T / sqrt(width)) v over (heads, length, width)."""
    from axe_eq import nn

    scores = nn.einsum("hte,hse->hts", q, k) * q.shape[-1] ** -0.5
    return nn.einsum("hts,hse->hte", nn.softmax(scores, axis=-1), v)


def gemm_name(kind: str, cols: int, depth: int) -> str:
    """Name of a product or of one with bias and relu."""
    return f"{kind}_{cols}x{depth}"


def memory_name(op: str, rows: int, cols: int) -> str:
    """Name of a memory-bound program."""
    return f"{op}_{rows}x{cols}"


def attention_name(length: int, width: int) -> str:
    """Name of an attention program."""
    return f"attention_{length}x{width}"


def programs() -> dict[str, tuple[Fn, list[tuple[int, ...]]]]:
    """Name -> (function, shapes of its f16 arguments)."""
    return dict(_programs())


def _programs() -> Iterator[tuple[str, tuple[Fn, list[tuple[int, ...]]]]]:
    for cols, depth in MODELS.values():
        shapes: list[tuple[int, ...]] = [(M, depth), (cols, depth)]
        yield gemm_name("gemm", cols, depth), (product, shapes)
        yield gemm_name("fused", cols, depth), (bias_relu, [*shapes, (cols,)])
    for op in MEMORY_OPS:
        more = op in ("rmsnorm", "bias_gelu")
        for rows, cols in MEMORY_SIZES:
            given: list[tuple[int, ...]] = [(rows, cols), (cols,)]
            yield memory_name(op, rows, cols), (memory_program(op), given[: 1 + more])
    for width in WIDTHS:
        for length in LENGTHS:
            shape = HEADS * TOKENS // length, length, width
            yield attention_name(length, width), (attention, [shape] * 3)


def executable(name: str, saved: Path | None = None, cluster: int = 1) -> Any:
    """A program of this name: loaded from a folder, or else compiled for this machine's H200."""
    if saved is not None:
        from axe_eq.run.store import load

        return load(saved / file_name(name, cluster))
    import axe_eq as axe
    from axe_eq_backends.cuda.target import h200

    fn, shapes = programs()[name]
    target = h200.replace(choices={**h200.choices, "product_cluster": (cluster,)})
    specs = (axe.Spec(s, "f16") for s in shapes)
    return axe.compile(fn, *specs, target=h200 if cluster == 1 else target)


def file_name(name: str, cluster: int = 1) -> str:
    """Where a program is saved, by the CTAs that share operand tiles of its products."""
    return f"{name}_cluster{cluster}.axe" if cluster > 1 else f"{name}.axe"


def main() -> None:
    """Compile and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=None, help="beginnings of names")
    parser.add_argument("--cluster", type=int, default=1, help="CTAs that share operand tiles")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in programs():
        if options.only is None or name.startswith(tuple(options.only)):
            exe = executable(name, cluster=options.cluster)
            exe.save(options.folder / file_name(name, options.cluster))
            steps = ((s.schedule, dict(s.parameters)) for s in exe.kernels)
            print(name, *steps, flush=True)


if __name__ == "__main__":
    main()

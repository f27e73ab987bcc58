"""Streaming attention of axe_eq against cuDNN and FlashAttention-2 through torch, on this GPU.

    python -m benchmarks.cuda_attention [--out FOLDER] [--variants] [--quick] [--saved FOLDER]

f16, 16 heads, batch x length = 16384, no mask; burst protocol of `benchmarks.cuda`. Values are
compared with float32 torch before anything is timed. Timed is the whole program as `axe.compile`
chose and lowered it (--saved: where `benchmarks.cuda_programs` saved it); `--variants` times other
tilings beside that one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.terminal import absent

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    raise absent(error) from None

from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.structured import ONLINE
from axe_eq_backends.cuda.schedules.stream import Problem, Tensor, Tiling, stream
from benchmarks import cuda_programs as programs
from benchmarks.cuda import Run, burst, launcher, load, machine, normal, relative_error, summary
from benchmarks.cuda_programs import HEADS, LENGTHS, TOKENS, WIDTHS

PEERS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash2": SDPBackend.FLASH_ATTENTION}


def problem(heads: int, length: int, width: int) -> Problem:
    """softmax(Q K^T / sqrt(width)) V over dense (heads, length, width)."""
    strides = length * width, width, 1
    score = apply("mul", arg(0), width**-0.5)
    turned = length * width, 1, width
    return Problem(
        (heads,), length, length, width,
        ((Tensor("Q", "f16", strides), Tensor("K", "f16", strides)),), (width,),
        Tensor("V", "f16", turned), Tensor("O", "f16", strides), ONLINE["softmax"], score,
    )  # fmt: skip


def sdpa(backend: SDPBackend, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention of torch with one backend."""
    with sdpa_kernel(backend):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The result in float32, head by head."""
    scale = q.shape[-1] ** -0.5
    heads = [
        torch.softmax(a.float() @ b.float().t() * scale, -1) @ c.float()
        for a, b, c in zip(q, k, v, strict=True)
    ]
    return torch.stack(heads)


def tilings(width: int) -> dict[str, Tiling]:
    """Tilings to compare with the chosen one, by name."""
    if width == 128:
        return {
            "n128": Tiling(2, 128, width, 2),
            "n160": Tiling(2, 160, width, 2),
            "n176": Tiling(2, 176, width, 2, staging=1),
            "n144": Tiling(2, 144, width, 2),
            "n112": Tiling(2, 112, width, 2),
            "n96 st3": Tiling(2, 96, width, 3),
            "3c n80": Tiling(3, 80, width, 2),
        }
    return {
        "n128": Tiling(2, 128, width, 2),
        "n176": Tiling(2, 176, width, 2),
        "n192": Tiling(2, 192, width, 2),
        "3c n96": Tiling(3, 96, width, 2),
        "3c n112": Tiling(3, 112, width, 2),
        "3c n128": Tiling(3, 128, width, 2),
        "3c n128 st3": Tiling(3, 128, width, 3),
        "1c n128": Tiling(1, 128, width, 3),
    }


def ours(
    shape: tuple[int, int, int], arrays: tuple[torch.Tensor, ...], variants: bool,
    saved: Path | None,
) -> dict[str, tuple[Run, torch.Tensor]]:  # fmt: skip
    """Name -> (call, where its results are): the chosen kernel, and others."""
    q, k, v = arrays
    heads, length, width = shape
    chosen = programs.executable(programs.attention_name(length, width), saved).bind(q, k, v)
    found = {"axe": (chosen, chosen())}
    for name, tiling in tilings(width).items() if variants else ():
        out = torch.empty_like(q)
        given = {"Q": q, "K": k, "V": v.transpose(1, 2), "O": out}
        try:
            bound = load(stream(problem(heads, length, width), tiling)).bind(given)
        except Exception as error:
            print(name, repr(error)[:300], flush=True)
            continue
        found[name] = launcher(bound), out
    return found


def case(
    length: int, width: int, rounds: int, variants: bool, saved: Path | None
) -> dict[str, Any]:
    """One shape: values first, then times."""
    heads = HEADS * TOKENS // length
    q, k, v = (normal(heads, length, width) for _ in range(3))
    wanted = reference(q[:4], k[:4], v[:4])
    whole = sdpa(PEERS["cudnn"], q[None], k[None], v[None])[0]
    runs: dict[str, Run] = {}
    errors: dict[str, Any] = {}
    for name, (call, out) in ours((heads, length, width), (q, k, v), variants, saved).items():
        out.fill_(float("nan"))
        call()
        torch.cuda.synchronize()
        errors[name] = relative_error(out[:4], wanted)
        if errors[name] < 2e-3 and relative_error(out, whole) < 2e-3:
            runs[name] = call
        else:
            print("WRONG", length, width, name, errors[name], flush=True)
    batched = [x.view(-1, HEADS, length, width) for x in (q, k, v)]
    for name, backend in PEERS.items():
        errors[name] = relative_error(sdpa(backend, *batched).view_as(q)[:4], wanted)
        runs[name] = partial(sdpa, backend, *batched)
    found = summary(burst(runs, rounds), 4.0 * heads * length * length * width)
    base = found["cudnn"]["us"]
    shown = " ".join(f"{n} {t['rate'] / 1e12:.0f} ({base / t['us']:.3f})" for n, t in found.items())
    print(f"{length:6} x {width}: TFLOP/s (of cuDNN) {shown}", flush=True)
    return {"length": length, "width": width, "heads": heads, "errors": errors, "times": found}


def main() -> None:
    """Run all shapes and write attention.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(os.environ.get("OUT", "benchmarks/results"))
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--saved", type=Path, help="where benchmarks.cuda_programs saved")
    options = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    results: dict[str, Any] = {"machine": machine(), "cases": []}
    for width in WIDTHS:
        for length in LENGTHS[2::2] if options.quick else LENGTHS:
            rounds = 3 if options.quick else 9
            done = case(length, width, rounds, options.variants, options.saved)
            results["cases"].append(done)
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "attention.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

"""Products against torch: long reduced dims, few rows, rows that begin inside lines, large ones.

    python -m benchmarks.cuda_long --list
    python -m benchmarks.cuda_long --prepare FOLDER [--only NAME ...]
    python -m benchmarks.cuda_long --gpu --saved FOLDER --out FILE [--only NAME ...] [--quick]
    python -m benchmarks.cuda_long ... --seed SEED [--most N]

--prepare compiles and saves all products for an H200, without a GPU, and beside what is chosen the
best of one kernel where that is another; --gpu runs them. Products are named ones and drawn ones:
`long` of K from 16384 to 524288 and few tiles, `few` of 1 to 256 rows, `askew` of rows that begin
inside lines of 128 bytes, `large` of 4096 to 16384 rows. --seed takes those drawn by another seed
alone, N of a group at most. --quick leaves out max-autotune, --plain torch.compile, which by
default takes torch.mm. Correctness comes first: every result is compared with torch in float64 on
random normal data. What is timed are CUDA graphs over buffers that take turns and are larger
than L2 together, in shuffled order, the median of the rounds: torch.mm and `torch.compile`, which
autotunes products with max-autotune-no-cudagraphs. Large products are bursts of calls on the same
memory after a rest, against torch.mm alone, whose result they are compared with.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import cuda_saved
from benchmarks.regret_programs import log_uniform

SEED, SETS_BYTES, MOST_BYTES = 29, 300e6, 1.5e9
DRAWN, MOST = {"long": 20, "few": 30, "askew": 10, "large": 24}, 30
TOLERANCE = 2e-3
MODES = ("default", "max-autotune-no-cudagraphs")


@dataclass(frozen=True)
class Case:
    """A product of m rows, n columns and a sum over k.

    Attributes:
        group: "long", "few", "askew" or "large".
        m, k, n: extents.
        turned: per operand whether it lies transposed, "N" or "T".
        dtype: of operands and result.
    """

    group: str
    m: int
    k: int
    n: int
    turned: str = "NN"
    dtype: str = "f16"

    @property
    def name(self) -> str:
        """Group, extents, order of operands, element type."""
        return f"{self.group}_{self.m}x{self.k}x{self.n}_{self.turned}_{self.dtype}"

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Those of the operands as they lie."""
        whole = (self.m, self.k), (self.k, self.n)
        return [s if t == "N" else s[::-1] for s, t in zip(whole, self.turned, strict=True)]

    def product(self, a: Any, b: Any) -> Any:
        """The program, as a user of either library writes it."""
        a, b = (x if t == "N" else x.T for x, t in zip((a, b), self.turned, strict=True))
        return a @ b


def named() -> list[Case]:
    """Products that were slow, and their like."""
    return [
        Case("long", 192, 104768, 512, dtype="bf16"), Case("long", 192, 104768, 512),
        Case("long", 128, 43904, 448), Case("long", 256, 524288, 256),
        Case("long", 64, 524288, 64), Case("long", 256, 16384, 256),
        Case("long", 1024, 16384, 256, "TN"), Case("long", 16, 262144, 512, "NT"),
        *(Case("few", m, k, n) for m in (1, 16, 64, 256)
          for k, n in ((4096, 4096), (14336, 4096), (5120, 5120))),
        Case("few", 21, 10560, 1472), Case("few", 4, 3328, 4352, "NT"),
        Case("askew", 1016, 1896, 694, "NT"), Case("askew", 1016, 1895, 694, "NT"),
        Case("askew", 1896, 694, 1016, "TN"), Case("askew", 1896, 1024, 1016, "NN"),
    ]  # fmt: skip


def drawn(group: str, seed: int = SEED, most: int = MOST) -> list[Case]:
    """Products of a group."""
    rng = random.Random(f"{group} {seed}")
    return [_drawn(group, rng) for _ in range(min(DRAWN[group], most))]


def _drawn(group: str, rng: random.Random) -> Case:
    turned, dtype = rng.choice(("NN", "NT", "TN", "TT")), rng.choice(("f16", "f16", "bf16"))
    if group == "few":
        k, n = (log_uniform(rng, 1024, 16384, 64) for _ in range(2))
        return Case(group, log_uniform(rng, 1, 256), k, n, rng.choice(("NN", "NT")), dtype)
    if group == "large":
        m, (k, n) = (
            log_uniform(rng, 4096, 16384, 64),
            (log_uniform(rng, 1024, 16384, 64) for _ in "kn"),
        )
        return Case(group, m, k, n, rng.choice(("NN", "NT")), dtype)
    if group == "askew":
        m, k, n = (e + 8 * (e % 64 == 0) for e in (log_uniform(rng, 512, 4096, 8) for _ in "mkn"))
        return Case(group, m, k, n, turned, dtype)
    while True:
        m, n = (log_uniform(rng, 16, 1024, 8) for _ in range(2))
        k = log_uniform(rng, 16384, 524288, 8)
        if 2 * k * (m + n) < MOST_BYTES:
            return Case(group, m, k, n, turned, dtype)


def cases(only: Sequence[str] | None, seed: int | None, most: int) -> list[Case]:
    """All of them, or those of a seed; and of these, those whose names begin so."""
    known = named() if seed is None else []
    every = [*known, *(c for group in DRAWN for c in drawn(group, seed or SEED, most))]
    return list(cuda_saved.picked(every, only))


def prepare(folder: Path, some: Sequence[Case]) -> None:
    """Compile and save, in parts as they are chosen and whole."""
    import axe_eq as axe

    folder.mkdir(parents=True, exist_ok=True)
    for case in some:
        specs = [axe.Spec(shape, case.dtype) for shape in case.shapes]
        about: dict[str, Any] = {}
        for way, without in (("axe", ()), ("whole", ("long_product_in_parts",))):
            exe = axe.compile(case.product, *specs, target="h200", without=without)
            found = cuda_saved.chosen(
                exe, lambda k: {"parts": k.loops.get("b", 1), "blocks": k.costs["blocks"]}
            )
            if any(known["kernels"] == found["kernels"] for known in about.values()):
                continue  # it is chosen whole
            about[way] = found
            exe.save(folder / f"{case.name}.{way}.axe")
            shown = cuda_saved.shown(found)
            print(f"{case.name} {way}: {found['estimate_us']:.1f} us: {shown}", flush=True)
        (folder / f"{case.name}.json").write_text(json.dumps(about), encoding="utf-8")


def measure(case: Case, saved: Path, modes: Sequence[str], rounds: int = 9) -> dict[str, Any]:
    """Errors, then times."""
    import torch

    from axe_eq.run.store import load
    from benchmarks.cuda import Run, burst, graphs, summary

    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[case.dtype]
    n_bytes = dtype.itemsize * (case.k * (case.m + case.n) + case.m * case.n)
    is_large = case.group == "large"
    sets = [
        tuple(torch.randn(s, device="cuda", dtype=dtype) for s in case.shapes)
        for _ in range(1 if is_large else max(2, math.ceil(SETS_BYTES / n_bytes)))
    ]
    want = case.product(*(x if is_large else x.double() for x in sets[0]))
    about = json.loads((saved / f"{case.name}.json").read_text(encoding="utf-8"))
    runs: dict[str, list[Run]] = {}
    for way, found in about.items():
        exe = load(saved / f"{case.name}.{way}.axe")
        calls = [exe.bind(*given) for given in sets]
        error = (calls[0]().double() - want).abs().max() / want.abs().max()
        # bf16 rounds results to 8 bits.
        found["error"] = float(error)
        if found["error"] < TOLERANCE * (1 if case.dtype == "f16" else 4):
            runs[way] = calls
    del want
    outs = [torch.empty(case.m, case.n, device="cuda", dtype=dtype) for _ in sets]
    plain = [
        [x if t == "N" else x.T for x, t in zip(given, case.turned, strict=True)] for given in sets
    ]
    runs["torch.mm"] = [
        partial(torch.mm, *given, out=out) for given, out in zip(plain, outs, strict=True)
    ]
    for mode in () if is_large else modes:
        runs[f"compile {mode}"] = cuda_saved.compiled(case.product, sets, mode=mode)
    timed = (
        burst({way: calls[0] for way, calls in runs.items()}, rounds)
        if is_large
        else graphs(runs, rounds)
    )
    times = summary(timed, n_bytes)
    best = min(v["us"] for key, v in times.items() if key not in about)
    ours = times["axe"]["us"] if "axe" in times else math.inf
    return {
        "name": case.name, "group": case.group, "ways": about, "times": times,
        "of_mm": times["torch.mm"]["us"] / ours, "ratio": best / ours,
        "of_estimate": {w: times[w]["us"] / about[w]["estimate_us"] for w in about if w in times},
        "regret": ours / min(times[w]["us"] for w in about if w in times) if times else math.inf,
    }  # fmt: skip


def main() -> None:
    """List, prepare or measure."""
    parser = cuda_saved.arguments(__doc__, "cuda_long.json")
    parser.add_argument("--list", action="store_true", help="the names")
    parser.add_argument("--quick", action="store_true", help="torch.compile by default alone")
    parser.add_argument("--plain", action="store_true", help="torch.mm alone")
    parser.add_argument("--seed", type=int, help="of other products than the named ones")
    parser.add_argument("--most", type=int, default=MOST, help="drawn products of a group")
    options = cuda_saved.asked(parser)
    some = cases(options.only, options.seed, options.most)
    if options.list:
        print("\n".join(case.name for case in some))
    if options.prepare:
        prepare(options.prepare, some)
    if not options.gpu:
        return
    modes = () if options.plain else MODES[:1] if options.quick else MODES
    measure_one = partial(measure, saved=options.saved, modes=modes)
    found = cuda_saved.measured(some, measure_one, _line, options.out)
    for group in DRAWN:
        cuda_saved.summed(f"products, {group}", [c for c in found if c.get("group") == group])


def _line(case: dict[str, Any]) -> str:
    """What one came to."""
    near = " ".join(f"{way} {ratio:.2f}" for way, ratio in case["of_estimate"].items())
    errors = max(way["error"] for way in case["ways"].values())
    return (
        f"{case['ratio']:.3f} of the best peer, {case['of_mm']:.3f} of torch.mm;"
        f" {cuda_saved.times(case)}; of its estimate {near}; error {errors:.1e}"
    )


if __name__ == "__main__":
    main()

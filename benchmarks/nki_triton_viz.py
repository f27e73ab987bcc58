"""Generated kernels in another interpreter: `python -m benchmarks.nki_triton_viz CHECKOUTS`.

CHECKOUTS is that of `nki_foreign`; its `triton-viz` has an interpreter of NKI 0.2 of its own
(`triton_viz/core/simulation/nki_beta2.py`). The package of that name on PyPI, 3.0, has one of the
dialect before it, which has no `dst=`, so it runs none of these texts. Both ways every result is
compared bit for bit with that of our simulator.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq import nn
from axe_eq.program.types import DTYPES
from axe_eq_backends.nki.assemble import sources
from axe_eq_backends.nki.emit import Source
from axe_eq_backends.nki.sim import simulate
from axe_eq_backends.nki.sim.facade import modules
from axe_eq_backends.nki.sim.isa.registry import INSTRUCTIONS
from axe_eq_backends.nki.target import trn1

xp = axe.array
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "aT.T @ b": (lambda a, b: a.T @ b, ("128x256:bf16", "128x1024:bf16")),
    "aT.T @ b, tails": (lambda a, b: a.T @ b, ("100x200:f32", "100x700:f32")),
    "a @ b": (lambda a, b: a @ b, ("256x128:bf16", "128x512:bf16")),
    "a @ b.T": (lambda a, b: a @ b.T, ("256x96:f16", "300x96:f16")),
    "relu(aT.T @ b)": (lambda a, b: nn.relu(a.T @ b), ("128x128:f32", "128x512:f32")),
    "exp(aT.T @ b + c)": (lambda a, b, c: xp.exp(a.T @ b + c),
                          ("64x128:f32", "64x256:f32", "128x256:f32")),
    "a deep product": (lambda a, b: a.T @ b, ("512x128:bf16", "512x512:bf16")),
    "x + y": (lambda x, y: x + y, ("300x200:f32", "300x200:f32")),
    "exp(x) * y": (lambda x, y: xp.exp(x) * y, ("128x700:bf16", "128x700:bf16")),
    "row sums": (lambda x: xp.sum(x, axis=1), ("256x500:f32",)),
    "softmax": (lambda x: nn.softmax(x), ("256x700:f32",)),
    "softmax, bf16": (lambda x: nn.softmax(x), ("130x300:bf16",)),
    "rmsnorm": (lambda x: x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + 1e-5),
                ("256x512:f32",)),
    "attention": (lambda q, k, v: nn.softmax(q @ k) @ v,
                  ("256x64:bf16", "64x256:bf16", "256x64:bf16")),
    "transpose": (lambda x: x.T + 0.0, ("128x200:f32",)),
}  # fmt: skip
FOLDERS = ("", "core", "core.simulation", "utils")  # of triton_viz; their own imports need Triton


@contextmanager
def interpreter(root: Path) -> Iterator[ModuleType]:
    """Its interpreter, with copies of our modules as the `nki` that it imports and patches."""
    made: dict[str, ModuleType] = {}
    for name, ours in modules("0.2").items():
        made[name] = ModuleType(name)
        vars(made[name]).update({k: v for k, v in vars(ours).items() if not k.startswith("_")})
        made[name].__path__ = []
    for name, module in made.items():
        package, _, last = name.rpartition(".")
        if package:
            setattr(made[package], last, module)
    for folder in FOLDERS:
        name = f"triton_viz.{folder}".rstrip(".")
        made[name] = ModuleType(name)
        made[name].__path__ = [str(root.joinpath(*name.split(".")))]
    sys.modules.update(made)
    try:
        found = importlib.import_module("triton_viz.core.simulation.nki_beta2")
        found.nki_patch_lang()
        vars(made["nki.language"])["shared_hbm"] = found.hbm
        vars(made["nki"])["jit"] = lambda function: function
        for name in set(vars(made["nki.isa"])) & set(INSTRUCTIONS):
            if getattr(vars(made["nki.isa"])[name], "__module__", "") != found.__name__:
                delattr(made["nki.isa"], name)  # its interpreter has no such instruction
        yield found
    finally:
        for name in [n for n in sys.modules if n.partition(".")[0] in ("nki", "triton_viz")]:
            del sys.modules[name]


def interpreted(found: ModuleType, text: str, name: str, arrays: list[Any]) -> Any:
    """The result of a kernel there."""
    space: dict[str, Any] = {}
    exec(compile(text, f"<{name}>", "exec"), space)
    given = [found.NDArray(value=x.copy(), buffer="hbm") for x in arrays]
    return space[name](*given).data


def texts(fn: Callable[..., Any], specs: tuple[str, ...]) -> list[Source]:
    """A program's kernels in dialect 0.2."""
    exe = axe.compile(fn, *specs, target=trn1)
    return [*sources(exe.schedule.graph, trn1, "0.2").values()]


def told(found: ModuleType, text: Source) -> str:
    """What comes of a kernel."""
    draw = np.random.default_rng(0)
    arrays = [draw.standard_normal(p.shape).astype(DTYPES[p.dtype].numpy) for p in text.inputs]
    ours, _ = simulate(text.text, text.name, *arrays, dialect="0.2", target="trn1")
    try:
        theirs = np.asarray(interpreted(found, text.text, text.name, arrays))
    except Exception as error:  # whatever its interpreter says is the reason
        return f"not run: {type(error).__name__}: {str(error).splitlines()[0][:90]}"
    return f"difference {np.abs(ours.astype(float) - theirs.astype(float)).max():g}"


def main() -> None:
    """Run all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", type=Path)
    root = parser.parse_args().checkouts / "triton-viz"
    written = [(name, text) for name, program in PROGRAMS.items() for text in texts(*program)]
    with interpreter(root) as found:
        for name, text in written:
            print(f"{name}, {text.name}: {told(found, text)}")


if __name__ == "__main__":
    main()

"""A program on a mesh: who computes what, and what every step moves.

A sharding is a layout with a device axis. Inputs arrive cut as their specs say; the plan is the
cheapest way to an output cut as asked. Example 9 runs one.
"""

from __future__ import annotations

from typing import Any

import axe_eq as axe

MESH = axe.Mesh({"x": 8})


def cut(shape: tuple[int, int], how: str) -> axe.Layout:
    """The layout of a JAX partition spec over the mesh."""
    return axe.read("jax", how, shape=shape, mesh=MESH)


def chain(a: Any, b: Any, c: Any) -> Any:
    """(a @ b) @ c, where a @ b is 4096 x 4096 and everything else is thin."""
    return (a @ b) @ c


def main() -> None:
    """Plan the chain for the least bytes, with real laws and with exact ones only."""
    tall, wide = (4096, 64), (64, 4096)
    specs = [
        axe.Spec(tall, "f32", layout=cut(tall, "P('x',None)")),
        axe.Spec(wide, "f32", layout=cut(wide, "P(None,'x')")),
        axe.Spec(tall, "f32", layout=cut(tall, "P('x',None)")),
    ]
    wanted = [cut(tall, "P('x',None)")]
    moved = {}
    for numerics in ("exact", "real"):
        exe = axe.compile(
            chain, *specs, mesh=MESH, target="h200", outputs=wanted, numerics=numerics,
            objective="link_bytes",
        )  # fmt: skip
        moved[numerics] = exe.cost["link_bytes"]
        print(f"{numerics} laws: {moved[numerics]:,.0f} bytes cross links")
        for step in exe.schedule.steps:
            crossing = getattr(step, "n_bytes", 0)  # kernels move nothing between devices
            print(f"    {step.name}: {crossing:,} bytes, estimated {step.time_s * 1e6:.1f} us")
        print(exe.schedule)
    # a @ (b @ c) is another rounding, so a real law: b @ c is 64 x 64, summed where it is needed.
    assert moved["real"] < moved["exact"] / 60


if __name__ == "__main__":
    main()

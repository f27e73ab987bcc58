"""Move an array from one layout over devices to another, in the fewest bytes, and see the proof.

Others move 1 to 7 times what a redistribution needs. Here every device sends just what another one
wants and lacks; what that is, box intersection says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import axe_eq as axe
import axe_eq.array as xp
from axe_eq.mesh import Window, redistribute

MESH = axe.Mesh({"x": 2, "y": 4})
SHAPE = (1024, 1024)
ROLLED = "jax:P(('x','y'), None)"


def rolled(x: Any) -> Any:
    """Every row one further."""
    return xp.roll(x, 1, axis=0)


def main() -> None:
    """A transposed mesh, a roll, a halo, and another number of devices."""
    found = redistribute("jax:P('x','y')", "jax:P('y','x')", shape=SHAPE, mesh=MESH)
    print(found)
    print(found.certificate)

    # Moved for real, in this process: every device's memory before and after.
    value = np.arange(1024 * 1024, dtype=np.float32).reshape(SHAPE)
    after = found.run(found.scatter(value))
    assert all(np.array_equal(m, found.goal.scatter(value, d)) for d, m in after.items())

    halo = redistribute(ROLLED, ROLLED, shape=SHAPE, mesh=MESH, through=rolled)
    print(f"a roll by one row: {halo.pattern}, {halo.n_bytes:,} bytes")
    assert halo.n_bytes == 8 * 1024 * 4

    windows = {0: Window(1024, 3, before=1)}  # a convolution of three rows
    near = redistribute(ROLLED, ROLLED, shape=SHAPE, mesh=MESH, windows=windows)
    print(f"windows of three rows: {near.n_messages} messages, {near.n_bytes:,} bytes")

    fewer = redistribute(
        ROLLED, "jax:P('d', None)", shape=SHAPE, mesh=MESH, goal_mesh=axe.Mesh({"d": 6})
    )
    print(f"from eight devices to six: {fewer.n_bytes:,} bytes, {fewer.certificate}")


if __name__ == "__main__":
    main()

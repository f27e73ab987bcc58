"""The interpreter: kernels run on CPU over real byte and register memories, at both levels.

Primitive level: `interpret(kernel, arrays)`. Plan level: with the dispatched kernel and its
backend's meanings of instruction calls. Both check races, deadlocks, stray accesses, uninitialised
reads, and that every element of an output is written exactly once.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from axe_eq.kernel.devices import Device, Shared, Told
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.interp import GlobalTensor, KernelFault, bind, check_given, unwatched
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.kernel.threads.interp import tiles
from axe_eq.kernel.threads.interp.cluster import Cluster
from axe_eq.kernel.threads.interp.machine import ORDERS, Cta, Issue, Meaning
from axe_eq.kernel.threads.interp.promise import promise
from axe_eq.kernel.threads.interp.signals import SharedTensor

__all__ = ["ORDERS", "Issue", "KernelFault", "Meaning", "Report", "interpret"]


@dataclass(frozen=True)
class Report:
    """A finished run.

    Attributes:
        outputs: the arrays of the kernel's outputs.
        n_ctas: CTAs that ran.
        n_steps: scheduling steps of all CTAs.
        digest: of every change of registers, shared memory and outputs, in order, where asked for.
    """

    outputs: dict[str, npt.NDArray[Any]]
    n_ctas: int
    n_steps: int
    digest: str = ""


def interpret(
    kernel: ir.Kernel,
    arrays: Mapping[str, npt.NDArray[Any]],
    params: Mapping[str, int] | None = None,
    *,
    planned: Planned | None = None,
    meanings: Mapping[str, Meaning] | None = None,
    n_ctas: int = 2,
    order: str = "random",
    seed: int = 0,
    digest: bool = False,
    compare: bool = False,
    device: Device | None = None,
    shared: Mapping[str, Shared] = MappingProxyType({}),
) -> Report:
    """Run a kernel.

    Args:
        kernel: the kernel.
        arrays: an array per tensor, in its logical shape; those of outputs that the kernel does not
            merge with what they hold give the dtype only.
        params: values of the run-time parameters.
        planned: run the plans' instruction calls instead of the primitives.
        meanings: what instruction calls do, by name.
        n_ctas: CTAs of a persistent kernel's grid, whole clusters and at least one; others get one
            cluster per tile.
        order: when asynchronous effects happen: "early", "late" or "random".
        seed: of the random choices.
        digest: remember all changes of memory; two runs in the order "early" with equal digests
            have done the same to the machine.
        compare: at plan level, compare what every plan did with what its primitive says: copies,
            maps, fills, positions and reductions; others show in what reads their results.
        device: which one runs it, where several are interpreted together.
        shared: tensors that lie in memory that all of these see.

    Raises:
        KernelFault: arrays or parameters that do not fit, or the first thing that goes wrong.
    """
    check_given(kernel, arrays, params or {})
    rng, env = random.Random(seed), dict(params or {})
    for param in kernel.params:
        if param.name in env:
            bind(env, param, int(env[param.name]))
    changes = hashlib.blake2b()
    watch = partial(_note, changes) if digest else unwatched
    tensors = {
        t.name: SharedTensor(t, arrays[t.name], env, device, shared[t.name])
        if device is not None and t.name in shared
        else GlobalTensor(t, arrays[t.name], env, "CTA")
        for t in kernel.tensors
    }
    learned: list[Told] = []
    for name in kernel.outputs:
        tensors[name].clear(name in kernel.merged, name in kernel.again)
        tensors[name].watch = watch
    n_tiles = int(evaluate(kernel.tiles, env))
    n = kernel.cluster
    clusters = min(max(n_ctas // n, 1), n_tiles) if kernel.persistent else n_tiles
    grid, steps = env | {ir.N_CTAS.name: clusters * n}, 0
    for first in range(0, clusters * n, n):
        ctas = [
            Cta(
                kernel, tensors, grid | {ir.CTA.name: first + r, ir.RANK: r}, order, planned,
                meanings or {}, tiles.execute, promise, watch, compare,
            )
            for r in range(n)
        ]  # fmt: skip
        for cta in ctas:
            cta.device, cta.run = device, -1 if device is None else device.begin()
        cluster = Cluster(kernel, order, rng)
        with np.errstate(all="ignore"):  # a machine computes infinities and NaN without a word
            cluster.run(ctas)
        steps += cluster.n_steps
        learned += [told for cta in ctas for _, _, told in cta.acquired]
    if device is not None:
        device.ended(learned)
    for name in kernel.outputs:
        written = tensors[name].count[tensors[name].index]
        if (written != 1).any():
            at = tuple(int(x[0]) for x in np.nonzero(written != 1))
            raise KernelFault(
                f"output {name}", f"element {at} is written {int(written[at])} times", "once"
            )
    found = {n: tensors[n].array() for n in kernel.outputs}
    return Report(found, clusters * n, steps, changes.hexdigest() if digest else "")


def _note(changes: Any, where: str, *arrays: npt.NDArray[Any]) -> None:
    changes.update(where.encode())
    for array in arrays:
        changes.update(np.ascontiguousarray(array).tobytes())

"""One copy, as CuTe and as Triton see it: both views are layouts (Axe, section 3.1).

A CTA of 128 threads reads C[16:32, 64:128] of a (32, 128) f32 tensor: thread i the 8 elements from
[16 + i // 8, 64 + i % 8 * 8]. CuTe cuts the tensor into loops and binds some of them to threads;
Triton declares a tensor that the threads hold together. Both become the same two 16-byte loads.

    python examples/06_copy_two_ways.py
"""

from __future__ import annotations

import numpy as np

import axe_eq as axe
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.interp import interpret
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200

WHOLE, REGION = axe.Layout.parse("S[(32,128):(128,1)]"), ((16, 32), (64, 128))
# CuTe's work partition of the region: rows, threads of a row, atoms of a thread, elements.
PARTITION = axe.Layout.parse("S[(16,8,2,4):(128,8,4,1)] + 2112@m")
# Triton's register tile: which thread (tx) holds which element in which register.
LOCAL = "S[(16,8,8):(8@tx,1@tx,1@reg)]"


def thread_by_thread() -> ir.Kernel:
    """CuTe's view: the first two loops are bound to the thread, the third runs over its atoms."""
    k = ThreadBuilder("thread_by_thread", warps=4)
    c = k.tensor("C", "f32", (16, 8, 2, 4), layout=PARTITION)
    out = k.tensor("out", "f32", (16, 8, 2, 4), output=True)
    with k.each_thread() as tx:
        mine = k.reg("mine", "f32", (2, 4), "S[(2,4):(4@reg,1@reg)]")
        for atom in range(2):
            k.copy(mine[atom], c[tx // 8, tx % 8, atom])
        k.copy(out[tx // 8, tx % 8], mine.all)
    return k.finish()


def collectively() -> ir.Kernel:
    """Triton's view: one statement of the whole CTA, whose layout says who holds what."""
    k = ThreadBuilder("collectively", warps=4)
    c = k.tensor("C", "f32", (32, 128), layout=WHOLE)
    out = k.tensor("out", "f32", (16, 64), output=True)
    local = k.reg("local", "f32", (16, 64), LOCAL)
    k.copy(local.all, c[16:32, 64:128])
    k.copy(out.all, local.all)
    return k.finish()


def main() -> None:
    """The partition is proved to be the region; both kernels read it with the same loads."""
    verdict = axe.equivalent(WHOLE.slice((32, 128), REGION), PARTITION)
    assert verdict
    print(f"C[16:32, 64:128] = {PARTITION}: {type(verdict).__name__}")
    array = np.random.default_rng(0).standard_normal((32, 128)).astype(np.float32)
    part = array[16:32, 64:128]
    for kernel, seen in ((thread_by_thread(), part.reshape(16, 8, 2, 4)), (collectively(), array)):
        planned = plan(kernel, h200)
        arrays = {"C": seen, "out": np.zeros_like(part.reshape(kernel.tensor("out").all.shape))}
        for plans in (None, planned):
            found = interpret(kernel, arrays, planned=plans, meanings=MEANINGS).outputs["out"]
            assert (found.reshape(16, 64) == part).all()
        print(f"{kernel.name}:")
        lines = [line.strip() for line in emit(planned).text.splitlines()]
        print("\n".join(x for x in lines if x.startswith(("// copy", "const int g", "ld_global"))))


if __name__ == "__main__":
    main()

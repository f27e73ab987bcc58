"""One copy, written thread by thread and collectively: both views are layouts (Axe, section 3.1).

A CTA of 128 threads reads C[16:32, 64:128] of a (32, 128) f32 tensor. Thread i reads the 8 elements
from [16 + i // 8, 64 + i % 8 * 8]. CuTe divides the work among threads by loop transformations;
Triton declares a tensor that the CTA holds together. Here both are the same statement under two
layouts, and become the same loads.

    python examples/06_copy_two_ways.py
"""

from __future__ import annotations

import numpy as np

from axe_eq.kernel import ir
from axe_eq.kernel.build import Builder
from axe_eq.kernel.interp import interpret
from axe_eq.kernel.ir import span
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200


def thread_by_thread() -> ir.Kernel:
    """CuTe's view: every thread has a (1, 8) tile of its own, at its own begin."""
    k = Builder("thread_by_thread", warps=4)
    c = k.tensor("C", "f32", (32, 128))
    out = k.tensor("out", "f32", (16, 64), output=True)
    with k.each_thread() as thread:
        mine = k.reg("mine", "f32", (1, 8), "S[(8):(1@reg)]")
        row, col = thread // 8, thread % 8 * 8
        k.copy(mine.all, c[span(row + 16, 1), span(col + 64, 8)])
        k.copy(out[span(row, 1), span(col, 8)], mine.all)
    return k.finish()


def collectively() -> ir.Kernel:
    """Triton's view: the CTA holds one (16, 64) tile; the layout says which thread holds what."""
    k = Builder("collectively", warps=4)
    c = k.tensor("C", "f32", (32, 128))
    out = k.tensor("out", "f32", (16, 64), output=True)
    local = k.reg("local", "f32", (16, 64), "S[(16,8,8):(8@tx,1@tx,1@reg)]")
    k.copy(local.all, c[16:32, 64:128])
    k.copy(out.all, local.all)
    return k.finish()


def main() -> None:
    """Both kernels read the same part, with the same two 16-byte loads a thread."""
    array = np.random.default_rng(0).standard_normal((32, 128)).astype(np.float32)
    arrays = {"C": array, "out": np.zeros((16, 64), np.float32)}
    for kernel in (thread_by_thread(), collectively()):
        planned = plan(kernel, h200)
        run = interpret(kernel, arrays, planned=planned, meanings=MEANINGS)
        assert (run.outputs["out"] == array[16:32, 64:128]).all()
        print(f"{kernel.name}:\n{planned.explain()}")
        lines = emit(planned).text.splitlines()
        print(
            "\n".join(
                line.strip() for line in lines if line.strip().startswith(("ld_", "const int g"))
            )
        )


if __name__ == "__main__":
    main()

"""Vector and scalar engines, element by element: tensor_tensor, tensor_scalar, activation, ..."""

from __future__ import annotations

from typing import Any

import numpy as np

from axe_eq_backends.nki.sim.dtypes import F32, is_integer, is_packed, name_of
from axe_eq_backends.nki.sim.enums import engine as ENGINE
from axe_eq_backends.nki.sim.enums import reduce_cmd as CMD
from axe_eq_backends.nki.sim.errors import NkiError, shown
from axe_eq_backends.nki.sim.isa.registry import instruction
from axe_eq_backends.nki.sim.ops import OPS, Op
from axe_eq_backends.nki.sim.state import PSUM, Run, current
from axe_eq_backends.nki.sim.storage import Array
from axe_eq_backends.nki.sim.views import Tensor

ENGINES = ("vector", "gpsimd")


def operator_of(run: Run, what: str, given: Any, *, kinds: tuple[str, ...]) -> Op:
    """An operator argument, of a kind that the instruction takes."""
    if not isinstance(given, Op):
        raise NkiError(
            f"{run.op} {what}", f"is {given!r}", "an operator such as nl.add", at=shown(run.line)
        )
    if given.kind not in kinds and not (given.activation and "activation" in kinds):
        raise run.wrong(
            "E1", f"{what} {given!r}", f"is of kind {given.kind}", f"{' or '.join(kinds)}"
        )
    return given


def inputs(run: Run, op: Op, **views: Tensor) -> list[Array]:
    """Operands as an operator sees them: float32, or bits for bitvec operators (O1)."""
    out = []
    for what, t in views.items():
        if is_packed(t.dtype):
            raise run.wrong("E1", f"{what} {t!r}", "holds four values in an element",
                            "what vector engines compute with")  # fmt: skip
        values = run.read(what, t, exact=op.kind == "bitvec")
        if op.kind == "bitvec" and not is_integer(t.dtype):
            run.warn(
                "O1",
                f"{what} {t!r}",
                f"is {name_of(t.dtype)} under {op!r}, which takes bit patterns",
                "integers",
            )
            values = values.view(f"u{t.itemsize}")
        out.append(values)
    return out


def results(run: Run, op: Op, dst: Tensor, values: Array, what: str = "dst") -> None:
    """Write what an operator gave; bits stay bits."""
    if op.kind == "bitvec" and not is_integer(dst.dtype):
        run.warn(
            "O1",
            f"{what} {dst!r}",
            f"is {name_of(dst.dtype)} under {op!r}, which gives bit patterns",
            "integers",
        )
        if values.dtype.itemsize == dst.itemsize:
            values = values.view(dst.dtype)
    run.write(what, dst, values)


def scalar(run: Run, what: str, given: Any, data: Tensor, bits: Array | None = None) -> Array:
    """A constant, or one value per partition."""
    if isinstance(given, Tensor):
        if given.partitions != data.partitions or given.free != 1:
            raise run.wrong(
                "P1",
                f"{what} {given!r}",
                f"has {given.partitions} partitions of {given.free}",
                f"{data.partitions} of 1, or a constant",
            )
        run.on_chip(**{what: given})
        values = run.read(what, given, exact=bits is not None)
        return values.reshape((data.partitions,) + (1,) * (data.ndim - 1))
    if given is None or isinstance(given, bool | int | float | np.number):
        held = bits.dtype if bits is not None else F32
        value = 0 if given is None else given
        if bits is not None and int(value) < 0:
            return np.array(int(value), f"i{held.itemsize}").view(held)
        return np.array(value).astype(held)
    raise NkiError(f"{run.op} {what}", f"is {given!r}", "a number or a tensor", at=shown(run.line))


def scaled(
    run: Run, data: Tensor, op0: Op, operand0: Any, reverse0: bool, op1: Op | None = None,
    operand1: Any = None, reverse1: bool = False,
) -> Array:  # fmt: skip
    """(data <op0> operand0) <op1> operand1, in the shape of data."""
    (x,) = inputs(run, op0, data=data)
    bits = x if op0.kind == "bitvec" else None
    with np.errstate(all="ignore"):
        x = combined(op0, x, scalar(run, "operand0", operand0, data, bits), reverse0)
        if op1 is not None:
            x = combined(op1, x, scalar(run, "operand1", operand1, data, bits), reverse1)
    return np.asarray(x)


def combined(op: Op, a: Array, b: Array, reverse: bool = False) -> Any:
    """Op of two operands, or of the first where it takes one."""
    if op.arity == 1:
        return op.cell(a)
    if op.name == "bypass":
        return a
    return op.cell(b, a) if reverse else op.cell(a, b)


def reduced(run: Run, op: Op, x: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """A reduction; an operator that is none of reductions is warned of (O1)."""
    if op.reduces is None:
        run.warn(
            "O1",
            f"op {op!r}",
            "is no operator of reductions",
            "add, subtract, multiply, maximum, minimum or logical and bitwise ones",
        )
        flat = x.reshape(*x.shape[: x.ndim - len(axes)], -1)
        out = flat[..., 0]
        with np.errstate(all="ignore"):
            for i in range(1, flat.shape[-1]):
                out = op.cell(out, flat[..., i])
        return out.reshape(out.shape + (1,) * len(axes)) if keepdims else out
    with np.errstate(all="ignore"):
        return op.reduce(x, axes, keepdims)


def summed(
    run: Run, engine: str, op: Op, values: Array, data: Tensor, cmd: Any, res: Any, *,
    start: Any = None, negate: bool = False,
) -> None:  # fmt: skip
    """Registers that add up over instructions: what `cmd` does, and reading them into `res`."""
    part = reduced(run, op, values.reshape(data.partitions, -1), (1,), True).astype(F32)
    held = run.sums.get(engine)
    fresh = np.full((data.partitions, 1), op.start, F32)
    if cmd is CMD.load_reduce:
        held = scalar(run, "reduce_init", start, data).reshape(-1, 1) + np.zeros_like(fresh)
    elif cmd in (CMD.reset, CMD.reset_reduce):
        held = fresh
    if cmd in (CMD.reduce, CMD.reset_reduce, CMD.load_reduce):
        if held is None or len(held) != data.partitions:
            raise run.wrong(
                "U1",
                f"reduce_cmd {cmd.name}",
                "goes on with registers that nothing set",
                "reset_reduce first",
            )
        held = op.cell(held, part)
    if held is not None:
        run.sums[engine] = held
    if res is not None:
        if held is None:
            raise run.wrong(
                "U1", "reduce_res", "reads registers that nothing set", "reset_reduce first"
            )
        out = run.tensor("reduce_res", res)
        if (out.partitions, out.free) != (data.partitions, 1):
            raise run.wrong("P1", f"reduce_res {out!r}", f"is {out.partitions} x {out.free}",
                            f"{data.partitions} x 1")  # fmt: skip
        run.write("reduce_res", out, -held if negate else held)


# -- vector engine ---------------------------------------------------------------------------------


@instruction()
def tensor_tensor(dst: Any, data1: Any, data2: Any, op: Any, engine: Any = ENGINE.unknown) -> None:
    """Dst = data1 <op> data2."""
    run = current()
    dst, data1, data2 = run.on_chip(dst=dst, data1=data1, data2=data2)
    run.same(data1=data1, data2=data2, dst=dst)
    op = operator_of(run, "op", op, kinds=("arithmetic", "bitvec"))
    _one_in_psum(run, data1=data1, data2=data2)
    wide = {np.dtype(np.int32), np.dtype(np.uint32)}
    exact = op.kind == "arithmetic" and {data1.dtype, data2.dtype, dst.dtype} <= wide
    default = "vector"
    if exact or op.name == "power":
        default = "gpsimd" if PSUM not in (dst.buffer, data1.buffer, data2.buffer) else "vector"
    chosen = run.engine(engine, ENGINES, default)
    if exact and chosen == "gpsimd":
        a, b = (
            run.read(w, t, exact=True).astype(np.int64)
            for w, t in (("data1", data1), ("data2", data2))
        )
        with np.errstate(all="ignore"):
            values = np.asarray(op.cell(a.reshape(dst.shape), b.reshape(dst.shape)))
        if is_integer(values.dtype):  # 32 bits wrap
            values = values.astype(np.uint32).astype(dst.dtype)
        run.write("dst", dst, values)
    else:
        a, b = inputs(run, op, data1=data1, data2=data2)
        with np.errstate(all="ignore"):
            values = combined(op, a.reshape(dst.shape), b.reshape(dst.shape))
        results(run, op, dst, values)
    run.issue(chosen, dst.free, "tensor_tensor" if chosen == "vector" else "integers")


def _one_in_psum(run: Run, **views: Tensor) -> None:
    if all(t.buffer is PSUM for t in views.values()):
        raise run.wrong("B2", " and ".join(views), "are both in PSUM", "one of them in SBUF")


def _same_class(run: Run, op0: Op, op1: Op | None) -> None:
    if op1 is not None and (op0.kind == "bitvec") != (op1.kind == "bitvec"):
        run.warn(
            "O1",
            f"op0 {op0!r}",
            f"is {op0.kind} and op1 {op1!r} is {op1.kind}",
            "one class of both",
        )


@instruction()
def tensor_scalar(
    dst: Any, data: Any, op0: Any, operand0: Any = None, reverse0: bool = False, op1: Any = None,
    operand1: Any = None, reverse1: bool = False, engine: Any = ENGINE.unknown,
) -> None:  # fmt: skip
    """Dst = (data <op0> operand0) <op1> operand1, operands constant or one per partition."""
    run = current()
    dst, data = run.on_chip(dst=dst, data=data)
    run.same(data=data, dst=dst)
    kinds = ("arithmetic", "bitvec", "unary")
    op0 = operator_of(run, "op0", op0, kinds=kinds)
    op1 = None if op1 is None else operator_of(run, "op1", op1, kinds=kinds)
    _same_class(run, op0, op1)
    chosen = run.engine(engine, ("vector", "scalar", "gpsimd"))
    pair = op0.name, op1.name if op1 else None
    if chosen == "scalar" and pair not in {("multiply", "add"), ("multiply", None), ("add", None)}:
        raise run.wrong("E1", f"op0 {op0!r} and op1 {op1!r}", "are none of the scalar engine",
                        "multiply and add, multiply, or add")  # fmt: skip
    if chosen == "gpsimd" and op0.kind == "bitvec":
        raise run.wrong("E1", f"op0 {op0!r}", "is none of the gpsimd engine", "the vector engine")
    results(run, op0, dst, scaled(run, data, op0, operand0, reverse0, op1, operand1, reverse1))
    run.issue(chosen, data.free, "activation" if chosen == "scalar" else "tensor_scalar")


@instruction()
def scalar_tensor_tensor(
    dst: Any, data: Any, op0: Any, operand0: Any, op1: Any, operand1: Any, reverse0: bool = False,
    reverse1: bool = False,
) -> None:  # fmt: skip
    """Dst = (data <op0> operand0) <op1> operand1, where operand1 is a tile."""
    run = current()
    dst, data, operand1 = run.on_chip(dst=dst, data=data, operand1=operand1)
    run.same(data=data, operand1=operand1, dst=dst)
    _one_in_psum(run, data=data, operand1=operand1)
    op0 = operator_of(run, "op0", op0, kinds=("arithmetic", "unary"))
    op1 = operator_of(run, "op1", op1, kinds=("arithmetic",))
    x = scaled(run, data, op0, operand0, reverse0)
    y = run.read("operand1", operand1).reshape(x.shape)
    with np.errstate(all="ignore"):
        run.write("dst", dst, combined(op1, x, y, reverse1))
    run.issue("vector", dst.free, "scalar_tensor_tensor")


@instruction()
def tensor_reduce(
    dst: Any, op: Any, data: Any, axis: Any, negate: bool = False, keepdims: bool = False
) -> None:
    """Reduce the last free dims."""
    run = current()
    dst, data = run.on_chip(dst=dst, data=data)
    op = operator_of(run, "op", op, kinds=("arithmetic", "bitvec"))
    n, given = data.ndim, (axis,) if isinstance(axis, int) else tuple(axis)
    axes = tuple(sorted(a % n for a in given if -n <= a < n))
    if not given or 0 in axes or axes != tuple(range(n - len(given), n)):
        raise run.wrong("P1", f"axis {axis} of data {data!r}", "is not of the last free dims",
                        f"dims up to {data.ndim - 1} without a gap, and not 0")  # fmt: skip
    (x,) = inputs(run, op, data=data)
    values = reduced(run, op, x, axes, keepdims)
    if dst.partitions != data.partitions or dst.size != values.size:
        raise run.wrong("P1", f"dst {dst!r}", f"is {dst.partitions} x {dst.free}",
                        f"{data.partitions} x {values.size // data.partitions}")  # fmt: skip
    results(run, op, dst, -values if negate else values)
    run.issue("vector", data.free, "reduce")


@instruction()
def tensor_scalar_reduce(
    dst: Any, data: Any, op0: Any, operand0: Any, reduce_op: Any, reduce_res: Any = None,
    reverse0: bool = False, reduce_cmd: Any = CMD.reset_reduce, reduce_init: Any = None,
    reduce_res_negate: bool = False,
) -> None:  # fmt: skip
    """Dst = data <op0> operand0, and its reduction over free dims."""
    run = current()
    dst, data = run.on_chip(dst=dst, data=data)
    run.same(data=data, dst=dst)
    op0 = operator_of(run, "op0", op0, kinds=("arithmetic", "unary"))
    reduce_op = operator_of(run, "reduce_op", reduce_op, kinds=("arithmetic",))
    values = scaled(run, data, op0, operand0, reverse0)
    run.write("dst", dst, values)
    summed(run, "vector", reduce_op, values, data, reduce_cmd, reduce_res, start=reduce_init,
           negate=reduce_res_negate)  # fmt: skip
    run.issue("vector", data.free, "tensor_scalar")


@instruction()
def tensor_scalar_cumulative(
    dst: Any, src: Any, op0: Any, op1: Any, imm0: Any, imm1: Any = None,
    reduce_cmd: Any = CMD.reset_reduce,
) -> None:  # fmt: skip
    """Dst[i] = op1(op0(src[i], imm0), dst[i - 1]) over free dims."""
    run = current()
    dst, src = run.on_chip(dst=dst, src=src)
    run.same(src=src, dst=dst)
    op0 = operator_of(run, "op0", op0, kinds=("arithmetic", "unary"))
    op1 = operator_of(run, "op1", op1, kinds=("arithmetic",))
    x = scaled(run, src, op0, imm0, False).reshape(src.partitions, -1)
    if reduce_cmd is CMD.load_reduce:
        held = scalar(run, "imm1", imm1, src).reshape(-1) + np.zeros(src.partitions, F32)
    elif reduce_cmd is CMD.reduce:
        if "vector" not in run.sums:
            raise run.wrong("U1", "reduce_cmd reduce", "goes on with registers that nothing set",
                            "reset_reduce first")  # fmt: skip
        held = run.sums["vector"][:, 0]
    else:
        held = np.full(src.partitions, op1.start, F32)
    out = np.empty_like(x)
    with np.errstate(all="ignore"):
        for i in range(x.shape[1]):
            held = out[:, i] = op1.cell(x[:, i], held)
    run.sums["vector"] = held[:, None]
    run.write("dst", dst, out)
    run.issue("vector", src.free, "scan")


@instruction()
def tensor_tensor_scan(
    dst: Any, data0: Any, data1: Any, initial: Any, op0: Any, op1: Any, reverse0: bool = False,
    reverse1: bool = False,
) -> None:  # fmt: skip
    """Dst[i] = op1(op0(data0[i], dst[i - 1]), data1[i]) over the free dim."""
    run = current()
    dst, data0, data1 = run.on_chip(dst=dst, data0=data0, data1=data1)
    run.same(data0=data0, data1=data1, dst=dst)
    _one_in_psum(run, data0=data0, data1=data1)
    op0 = operator_of(run, "op0", op0, kinds=("arithmetic",))
    op1 = operator_of(run, "op1", op1, kinds=("arithmetic",))
    a = run.read("data0", data0).reshape(data0.partitions, -1).T.copy()
    b = run.read("data1", data1).reshape(data0.partitions, -1).T.copy()
    held = scalar(run, "initial", initial, data0).reshape(-1) + np.zeros(data0.partitions, F32)
    out = np.empty_like(a)
    with np.errstate(all="ignore"):
        for i in range(len(a)):
            held = out[i] = combined(op1, combined(op0, a[i], held, reverse0), b[i], reverse1)
    run.write("dst", dst, np.ascontiguousarray(out.T))
    run.issue("vector", dst.free, "scan")


@instruction()
def reciprocal(dst: Any, data: Any, engine: Any = ENGINE.unknown) -> None:
    """Dst = 1 / data."""
    run = current()
    dst, data = run.on_chip(dst=dst, data=data)
    run.same(data=data, dst=dst)
    (x,) = inputs(run, OPS["reciprocal"], data=data)
    with np.errstate(all="ignore"):
        run.write("dst", dst, 1 / x)
    run.issue(run.engine(engine, ("vector",)), data.free, "reciprocal")


@instruction("0.3")
def exponential(
    dst: Any, src: Any, max_value: Any = 0.0, reduce_res: Any = None, reduce_cmd: Any = CMD.idle,
    reduce_init: Any = 0.0,
) -> None:  # fmt: skip
    """Dst = exp(src - max_value), and its sum over free dims."""
    run = current()
    run.at_least(4)
    dst, src = run.on_chip(dst=dst, src=src)
    run.same(src=src, dst=dst)
    values = np.exp(scaled(run, src, OPS["subtract"], max_value, False))
    run.write("dst", dst, values)
    if reduce_cmd is not CMD.idle or reduce_res is not None:
        summed(run, "vector", OPS["add"], values, src, reduce_cmd, reduce_res, start=reduce_init)
    run.issue("vector", src.free, "cast")


# -- scalar engine ---------------------------------------------------------------------------------


def _activated(run: Run, op: Any, x: Array) -> Array:
    op = operator_of(run, "op", op, kinds=("activation",))
    if not op.valid(x):
        most = f"{op.low:g} to {op.high:g}" + (" by absolute value" if op.mirrored else "")
        run.warn("O1", f"op {op!r}", f"has arguments from {x.min():g} to {x.max():g}", most)
    with np.errstate(all="ignore"):
        return np.asarray(op.cell(x))


def _activation(
    dst: Any, op: Any, data: Any, bias: Any, scale: Any, reduce_op: Any, reduce_res: Any, cmd: Any
) -> None:
    run = current()
    dst, data = run.on_chip(dst=dst, data=data)
    run.same(data=data, dst=dst)
    generation = run.machine.generation
    if bias is not None and not isinstance(bias, Tensor) and generation < 3 and bias != 0.0:
        raise run.wrong(
            "E1", f"bias {bias}", "is a constant on NeuronCore-v2", "a tensor of one per partition"
        )
    (x,) = inputs(run, OPS["copy"], data=data)
    with np.errstate(all="ignore"):
        x = x * scalar(run, "scale", scale, data)
        if bias is not None:
            x = x + scalar(run, "bias", bias, data)
    values = _activated(run, op, x)
    run.write("dst", dst, values)
    if reduce_op is not None or reduce_res is not None or cmd is not CMD.idle:
        reduce_op = operator_of(run, "reduce_op", reduce_op or OPS["add"], kinds=("arithmetic",))
        if reduce_op.name != "add" and generation < 4:
            raise run.wrong(
                "E1", f"reduce_op {reduce_op!r}", "is none of the scalar engine", "nl.add"
            )
        summed(run, "scalar", reduce_op, values, data, cmd, reduce_res)
    # The registers are read by an instruction of their own.
    read = run.machine.least_cycles if reduce_res is not None else 0
    run.issue("scalar", data.free + read, "activation")


@instruction()
def activation(
    dst: Any, op: Any, data: Any, bias: Any = None, scale: Any = 1.0, reduce_op: Any = None,
    reduce_res: Any = None, reduce_cmd: Any = CMD.idle,
) -> None:  # fmt: skip
    """Dst = op(data * scale + bias), and its sum over free dims."""
    _activation(dst, op, data, bias, scale, reduce_op, reduce_res, reduce_cmd)


@instruction()
def activation_reduce(
    dst: Any,
    op: Any,
    data: Any,
    reduce_op: Any,
    reduce_res: Any,
    bias: Any = None,
    scale: Any = 1.0,
) -> None:
    """Activation with reduce_cmd reset_reduce."""
    _activation(dst, op, data, bias, scale, reduce_op, reduce_res, CMD.reset_reduce)


@instruction("0.3")
def activate2(
    dst: Any, op: Any, data: Any, imm0: Any, imm1: Any, op0: Any, op1: Any, relu_param: Any = 0.0,
    reverse0: bool = False, reverse1: bool = False, reduce_op: Any = None, reduce_res: Any = None,
    reduce_cmd: Any = CMD.idle,
) -> None:  # fmt: skip
    """Dst = op((data <op0> imm0) <op1> imm1), and its reduction over free dims."""
    run = current()
    run.at_least(4)
    dst, data = run.on_chip(dst=dst, data=data)
    run.same(data=data, dst=dst)
    x = scaled(run, data, op0, imm0, reverse0, op1, imm1, reverse1)
    values = _activated(run, op, x)
    run.write("dst", dst, values)
    if reduce_op is not None:
        summed(run, "scalar", reduce_op, values, data, reduce_cmd, reduce_res)
    run.issue("scalar", data.free, "activation")

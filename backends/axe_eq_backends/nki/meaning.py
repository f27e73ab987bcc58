"""What instruction calls do, by the engines' rules, on the memories of the interpreter.

Engines compute in float32; the interpreter rounds where a tile is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.interp import Env, KernelFault
from axe_eq.kernel.plan import Call
from axe_eq.program import ops
from axe_eq_backends.nki.access import Access, Steps
from axe_eq_backends.nki.interpret import Core

Numpy = Callable[..., Any]
OPERATORS: dict[str, Numpy] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "equal": np.equal, "not_equal": np.not_equal, "less": np.less,
    "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": lambda a, b: (a.view(np.uint32) >> b.astype(np.uint32)).view(np.int32),
}  # fmt: skip
_FUNCTIONS = {"arctan": "atan"}  # names of nki.language that are not those of cells


def _along(steps: Steps) -> Any:
    """What every index of some steps adds, in their order."""
    along = np.zeros(1, np.int64)
    for stride, n in steps:
        along = (along[:, None] + stride * np.arange(n)).ravel()
    return along


def _where(a: Access, env: Env) -> Any:
    """(partition, free) of every element, one row per partition; elements of tensors alike."""
    along = _along(a.steps) + int(evaluate(a.begin, env))
    if a.is_far:
        return along
    parts = int(evaluate(a.first, env)) + np.arange(a.partitions)
    return np.broadcast_arrays(parts[:, None], along[None, :])


def read(core: Core, a: Access, env: Env, call: Call) -> Any:
    """The elements of an access, a row per partition, in the order of memory that sums need."""
    at = _where(a, env)
    if a.is_far:
        found = core.tensors[a.buffer.name].read(at, np.ones(at.shape, bool))
        return found.reshape(a.partitions, -1)
    # numpy gathers in the order of the indices' strides, and adds in that of its operand's.
    return np.ascontiguousarray(core.read_at(a.buffer, tuple(at), str(call)))


def write(core: Core, a: Access, env: Env, values: Any) -> None:
    """Write the elements of an access."""
    at = _where(a, env)
    if a.is_far:
        tensor = core.tensors[a.buffer.name]
        tensor.write(at, np.asarray(values).reshape(at.shape), np.ones(at.shape, bool))
    else:
        core.write_at(a.buffer, tuple(at), np.broadcast_to(values, at[0].shape))


def _float(values: Any) -> Any:
    return values.astype(np.float32)


def copy(core: Core, c: Call, env: Env) -> None:
    """`dma_copy`, `tensor_copy`: bits, or rounded by way of float32."""
    write(core, c["dst"], env, read(core, c["src"], env, c))


def predicated(core: Core, c: Call, env: Env) -> None:
    """`tensor_copy_predicated`."""
    asked = read(core, c["predicate"], env, c) != 0
    values = np.where(asked, read(core, c["src"], env, c), read(core, c["dst"], env, c))
    write(core, c["dst"], env, values)


def matmul(core: Core, c: Call, env: Env) -> None:
    """`nc_matmul`."""
    a, b = (_float(read(core, c[n], env, c)) for n in ("stationary", "moving"))
    if a.shape[0] > 128 or a.shape[1] > 128 or b.shape[1] > 512:
        raise KernelFault(str(c), f"multiplies {a.shape} by {b.shape}", "128 x 128 by 128 x 512")
    with np.errstate(all="ignore"):
        total = a.T @ b
    if evaluate(c["accumulate"], env):
        total = read(core, c["dst"], env, c) + total
    write(core, c["dst"], env, total)


def transpose(core: Core, c: Call, env: Env) -> None:
    """`nc_transpose`."""
    write(core, c["dst"], env, read(core, c["data"], env, c).T)


def dma_transpose(core: Core, c: Call, env: Env) -> None:
    """`dma_transpose`: the outer and the inner dim change places, what lies between them stays."""
    src = c["src"]
    values = read(core, src, env, c).reshape(src.partitions, -1, src.steps[-1][1])
    write(core, c["dst"], env, values.transpose(2, 1, 0).reshape(c["dst"].partitions, -1))


def _computed(name: str, a: Any, b: Any) -> Any:
    """An operator: bits of integers, 32-bit integers, or float32."""
    whole = [np.asarray(x).dtype.kind in "iu" or isinstance(x, int) for x in (a, b)]
    with np.errstate(all="ignore"):
        if name.startswith("bitwise") or name.endswith("shift"):
            return OPERATORS[name](np.asarray(a, np.int32), np.asarray(b, np.int32))
        if all(whole) and all(np.asarray(x).dtype == np.int32 for x in (a, b)):
            return OPERATORS[name](a, b)
        return OPERATORS[name](np.asarray(a, np.float32), np.asarray(b, np.float32))


def tensor_tensor(core: Core, c: Call, env: Env) -> None:
    """`tensor_tensor`."""
    a, b = (read(core, c[n], env, c) for n in ("data1", "data2"))
    if c["engine"] != "gpsimd" and not _of_bits(c["op"]):
        a, b = _float(a), _float(b)
    write(core, c["dst"], env, _number(_computed(c["op"], a, b)))


def _of_bits(name: str) -> bool:
    return name.startswith("bitwise") or name.endswith("shift")


def _number(values: Any) -> Any:
    return values.astype(np.float32) if values.dtype == bool else values


def _small(core: Core, x: Any, env: Env, c: Call) -> Any:
    """A number, or a value per partition."""
    return read(core, x, env, c)[:, :1] if isinstance(x, Access) else x


def tensor_scalar(core: Core, c: Call, env: Env) -> None:
    """`tensor_scalar`: one operator or two."""
    value = read(core, c["data"], env, c)
    if not _of_bits(c["op0"]):
        value = _float(value)
    for n in ("0", "1"):
        if f"op{n}" not in c.args:
            break
        other = _small(core, c[f"operand{n}"], env, c)
        a, b = (other, value) if c.args.get(f"reverse{n}") else (value, other)
        value = _number(_computed(c[f"op{n}"], a, b))
    write(core, c["dst"], env, value)


def tensor_scalar_reduce(core: Core, c: Call, env: Env) -> None:
    """`tensor_scalar_reduce`: `tensor_scalar`, and a reduction of all of a partition."""
    tensor_scalar(core, c, env)
    made = _float(read(core, c["dst"], env, c))
    with np.errstate(all="ignore"):
        found = OPERATORS[c["reduce_op"]].reduce(made, axis=1, keepdims=True)  # type: ignore[attr-defined]
    write(core, c["reduce_res"], env, found)


def scalar_tensor_tensor(core: Core, c: Call, env: Env) -> None:
    """`scalar_tensor_tensor`: (data op0 number) op1 tile."""
    value = _float(read(core, c["data"], env, c))
    for n, other in (
        ("0", _small(core, c["operand0"], env, c)), ("1", read(core, c["operand1"], env, c)),
    ):  # fmt: skip
        a, b = (other, value) if c.args.get(f"reverse{n}") else (value, other)
        value = _number(_computed(c[f"op{n}"], a, b))
    write(core, c["dst"], env, value)


def activation(core: Core, c: Call, env: Env) -> None:
    """`activation`: a function of data * scale + bias."""
    x = _float(read(core, c["data"], env, c))
    with np.errstate(all="ignore"):
        if "scale" in c.args:
            x = x * np.float32(c["scale"])
        if "bias" in c.args:
            x = x + read(core, c["bias"], env, c)[:, :1]
        name = _FUNCTIONS.get(c["op"], c["op"])
        write(core, c["dst"], env, ops.cell(name)[0].fn(x))


def reciprocal(core: Core, c: Call, env: Env) -> None:
    """`reciprocal`."""
    with np.errstate(all="ignore"):
        write(core, c["dst"], env, np.float32(1) / _float(read(core, c["data"], env, c)))


def reduce(core: Core, c: Call, env: Env) -> None:
    """`tensor_reduce` along the last free dim."""
    data = c["data"]
    x = _float(read(core, data, env, c))
    x = x.reshape(len(x), -1, data.steps[-1][1])
    with np.errstate(all="ignore"):
        found = OPERATORS[c["op"]].reduce(x, axis=2)  # type: ignore[attr-defined]
    write(core, c["dst"], env, found)


def memset(core: Core, c: Call, env: Env) -> None:
    """`memset`."""
    at = _where(c["dst"], env)
    with np.errstate(all="ignore"):
        core.write_at(c["dst"].buffer, tuple(at), np.full(at[0].shape, c["value"]))


def iota(core: Core, c: Call, env: Env) -> None:
    """`iota`: offset + partition * channel_multiplier + the pattern's step."""
    at = _where(c["dst"], env)
    along = _along(c["pattern"])
    parts = np.arange(c["dst"].partitions) * c["channel_multiplier"]
    values = int(evaluate(c["offset"], env)) + parts[:, None] + along[None, :]
    core.write_at(c["dst"].buffer, tuple(at), np.broadcast_to(values, at[0].shape))


def gather(core: Core, c: Call, env: Env) -> None:
    """`dma_copy` of rows that begin where integers say."""
    at = read(core, c["at"], env, c).astype(np.int64) + _along(c["steps"])[None, :]
    tensor = core.tensors[c["src"].buffer.name]
    first = int(evaluate(c["src"].place.at("m"), env))
    write(core, c["dst"], env, tensor.read(first + at, np.ones(at.shape, bool)))


def scan(core: Core, c: Call, env: Env) -> None:
    """`tensor_tensor_scan`: dst[i] = op1(op0(data0[i], dst[i - 1]), data1[i])."""
    a, b = (_float(read(core, c[n], env, c)) for n in ("data0", "data1"))
    held = _float(read(core, c["initial"], env, c))[:, 0]
    out = np.empty_like(b)
    with np.errstate(all="ignore"):
        for i in range(b.shape[1]):
            held = OPERATORS[c["op1"]](OPERATORS[c["op0"]](a[:, i], held), b[:, i])
            out[:, i] = held
    write(core, c["dst"], env, out)


MEANINGS: dict[str, Callable[[Core, Call, Env], None]] = {
    "dma_copy": copy, "tensor_copy": copy, "tensor_copy_predicated": predicated,
    "nc_matmul": matmul, "nc_transpose": transpose, "tensor_tensor": tensor_tensor,
    "tensor_scalar": tensor_scalar, "scalar_tensor_tensor": scalar_tensor_tensor,
    "activation": activation, "reciprocal": reciprocal, "tensor_reduce": reduce,
    "tensor_scalar_reduce": tensor_scalar_reduce, "memset": memset,
    "dma_transpose": dma_transpose, "iota": iota, "dma_gather": gather, "tensor_tensor_scan": scan,
}  # fmt: skip

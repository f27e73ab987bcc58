"""Traced arrays: what a function sees while it is traced, and how operators are applied to them.

Nothing here applies a law: ``x + 0`` stays, constants are not folded; equal nodes are one node. The
functions on traced arrays are in the namespace `axe_eq.array`; the operators of Python call them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from axe_eq.errors import AxeError, MissingAttribute, ProgramError, cause, said
from axe_eq.program.array.arguments import as_float
from axe_eq.program.array.joining import joined
from axe_eq.program.facts import captured_name
from axe_eq.program.names import DONE_BY, RENAMED, SAID
from axe_eq.program.node import OP, SCAN, Node, input_node, op_node, scan_node
from axe_eq.program.ops import constant_of, join_text, selector
from axe_eq.program.signature import Affine, make, plain, signature
from axe_eq.program.spec import MAX_ELEMENTS, Dim
from axe_eq.program.tracing import TRACING, Tracing
from axe_eq.program.types import DTYPES, Array, ValueType, dtype, has_mask, promote

_ALIKE = 0.8  # of the letters of a name, so that another is suggested for it
Operand = Any  # a Traced, a Python number, or an array of any library
_Binary = Callable[["Traced", Operand], "Traced"]


@cache
def _namespace() -> ModuleType:
    # By name: the namespace is made of this module, and stands above it.
    return import_module("axe_eq.array")


def _call(name: str, *args: Any) -> Traced:
    result: Traced = getattr(_namespace(), name)(*args)
    return result


def _unary(name: str) -> Callable[[Traced], Traced]:
    """The operator that calls this function of the namespace."""
    return lambda x: _call(name, x)


def _binary(name: str) -> tuple[_Binary, _Binary]:
    """The operators that call this function of the namespace: from the left, and from the right."""
    return lambda x, other: _call(name, x, other), lambda x, other: _call(name, other, x)


class Traced:
    """An array of a program under construction (Python array API standard).

    It has a shape and a dtype but no values: asking for one (``bool(x)``, ``float(x)``) is an error
    that says what to use instead.
    """

    __slots__ = ("__weakref__", "node", "shape", "tracing")
    __array_priority__ = 1000

    node: Node
    shape: tuple[int, ...]
    tracing: Tracing | None

    def __init__(self, node: Node, shape: tuple[int, ...] | None = None) -> None:
        """Wrap a node for the present run; `shape` may hold its named dims (`Dim`)."""
        self.node = node
        self.shape = node.shape if shape is None else shape
        self.tracing = TRACING.get()

    # -- attributes of the standard

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        return self.node.dtype

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.node.type.size

    @property
    def device(self) -> str:
        """A name only: a program belongs to no device yet."""
        return "traced"

    @property
    def T(self) -> Traced:
        """The transpose of a matrix."""
        if self.ndim != 2:
            wrong = f"needs 2 dims, has shape {self.node.shape}"
            raise ProgramError("x.T", wrong, "a matrix", hint="x.mT or permute_dims(x, axes)")
        return _call("permute_dims", self, (1, 0))

    @property
    def mT(self) -> Traced:
        """The transpose of every matrix of a stack."""
        return _call("matrix_transpose", self)

    def to_device(self, device: object, /, *, stream: object = None) -> Traced:
        """The array itself: devices are chosen when a program is compiled."""
        return self

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return _namespace()

    # -- arithmetic, comparison and bitwise operators

    __neg__ = _unary("negative")
    __pos__ = _unary("positive")
    __abs__ = _unary("abs")
    __invert__ = _unary("bitwise_invert")
    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("subtract")
    __mul__, __rmul__ = _binary("multiply")
    __truediv__, __rtruediv__ = _binary("divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide")
    __mod__, __rmod__ = _binary("remainder")
    __pow__, __rpow__ = _binary("pow")
    __matmul__, __rmatmul__ = _binary("matmul")
    __and__, __rand__ = _binary("bitwise_and")
    __or__, __ror__ = _binary("bitwise_or")
    __xor__, __rxor__ = _binary("bitwise_xor")
    __lshift__, __rlshift__ = _binary("bitwise_left_shift")
    __rshift__, __rrshift__ = _binary("bitwise_right_shift")
    __eq__ = _binary("equal")[0]  # type: ignore[assignment]
    __ne__ = _binary("not_equal")[0]  # type: ignore[assignment]
    __lt__ = _binary("less")[0]
    __le__ = _binary("less_equal")[0]
    __gt__ = _binary("greater")[0]
    __ge__ = _binary("greater_equal")[0]

    def __divmod__(self, other: Operand) -> tuple[Traced, Traced]:
        return self // other, self % other

    def __rdivmod__(self, other: Operand) -> tuple[Traced, Traced]:
        return other // self, other % self

    __hash__ = object.__hash__

    # -- indexing

    def __getitem__(self, key: Any) -> Traced:
        from axe_eq.program.array.indexing import index

        result: Traced = index(self, key)
        return result

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        hint = "where(mask, value, x), or concat of slices"
        raise ProgramError("traced array", "is never changed in place", "a new array", hint=hint)

    def __len__(self) -> int:
        if not self.shape:
            raise ProgramError("len(x)", "x has no dims", "at least one dim", hint="x.size")
        return self.shape[0]

    def __iter__(self) -> Iterator[Traced]:
        for n in range(len(self)):
            yield self[n]

    # -- values that tracing does not have

    def __bool__(self) -> bool:
        _no_value("bool(x)", "where(condition, a, b)")

    def __int__(self) -> int:
        _no_value("int(x)", "astype(x, 'i64')")

    def __float__(self) -> float:
        _no_value("float(x)", "astype(x, 'f64')")

    def __round__(self, digits: int | None = None) -> int:
        _no_value("round(x)", "axe_eq.array.round(x)")

    def __complex__(self) -> complex:
        _no_value("complex(x)", "an array of a dtype of ours")

    def __index__(self) -> int:
        _no_value("x as an index", "where, or a slice with known bounds")

    def __contains__(self, item: object) -> bool:
        _no_value("item in x", "any(x == item)")

    # -- numpy functions on traced arrays

    def __array__(self, *args: object, **kwargs: object) -> Any:
        _no_value("numpy.asarray(x)", "functions of axe_eq.array")

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            called = f"numpy.{ufunc.__name__}.{method}"
            raise ProgramError(
                called, "has no meaning on traced arrays", "functions of axe_eq.array"
            )
        return _call_numpy(ufunc.__name__, args, {})

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _call_numpy(func.__name__, args, kwargs)

    def __getattr__(self, name: str) -> NoReturn:
        hint = "" if name.startswith("_") else instead(name)
        wrong, wanted = f"has no attribute {name!r}", f"one of {' '.join(_ATTRIBUTES)}"
        raise MissingAttribute("traced array", wrong, wanted, hint=hint)

    def __repr__(self) -> str:
        return f"<traced {self.node.type}>"

    def __format__(self, spec: str) -> str:
        if spec:
            _no_value(f"format(x, {spec!r})", "f'{x}', which shows dtype and shape")
        return repr(self)

    def __copy__(self) -> Traced:
        return self

    def __deepcopy__(self, memo: object) -> Traced:
        return self


_ATTRIBUTES = ("T", "device", "dtype", "mT", "ndim", "shape", "size", "to_device")


def instead(name: str) -> str:
    """What has this name, or nearly, of what traced arrays have and is done to them."""
    known = {name: f"x.{name}" for name in _ATTRIBUTES}
    for module in (import_module("axe_eq.nn"), _namespace()):
        known |= {
            name: f"{module.__name__}.{name}(x, ...)"
            for name in module.__all__
            if callable(getattr(module, name)) and not name.startswith("_")
        }
    known |= {old: known[new] for old, new in (RENAMED | DONE_BY).items()} | SAID
    near = get_close_matches(name, known, 1, _ALIKE)
    return known[near[0]] if near else ""


def _no_value(what: str, instead: str) -> NoReturn:
    raise ProgramError(
        what, "x is traced and has no values yet", "shapes and dtypes only", hint=instead
    )


def _call_numpy(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A numpy function called on a traced array: the namespace's function of that name."""
    found = getattr(_namespace(), RENAMED.get(name, name), None)
    if found is None:
        raise ProgramError(
            f"numpy.{name}", "has no counterpart for traced arrays", "a function of axe_eq.array"
        )
    return found(*args, **kwargs)


# -- operands -------------------------------------------------------------------------------------


def as_traced(value: Operand, like: Sequence[str] = ()) -> Traced:
    """The operand as a traced array.

    A Python number takes the dtype of the arrays beside it where that can hold it (`like`), as in
    the array API standard and numpy; arrays become captured constants.

    Raises:
        ProgramError: neither a number nor an array of our dtypes, a number its dtype cannot hold,
            or a value of another trace.
    """
    if isinstance(value, Traced):
        if value.tracing is not None and value.tracing is not TRACING.get():
            wanted = "values of the function being traced"
            raise ProgramError(f"operand {value!r}", "belongs to another trace", wanted)
        return value
    if isinstance(value, np.generic):
        return constant(np.asarray(value))
    if isinstance(value, bool | int | float):
        return scalar(value, weak_dtype(value, like))
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return constant(_held(value))
    raise ProgramError(
        f"operand {said(value)}", f"is of type {type(value).__name__}", "an array or a real number"
    )


def _held(value: Any) -> Array:
    if has_mask(value):
        raise ProgramError("operand", "has masked elements", "an array; filled(number) makes one")
    try:
        return np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)
    except AxeError:
        raise
    except Exception as error:  # another library's array may refuse in any way
        wrong = f"gives numpy no array ({cause(error)})"
        wanted = "an array in the memory of the host"
        raise ProgramError(f"operand of type {type(value).__name__}", wrong, wanted) from None


def as_operands(*values: Operand) -> list[Traced]:
    """All operands of one operator as traced arrays, numbers in the dtype of the others."""
    strong = [v if is_number(v) else as_traced(v) for v in values]
    like = [v.dtype for v in strong if isinstance(v, Traced)]
    return [as_traced(v, like) for v in strong]


def is_number(value: object) -> bool:
    """Whether this is a Python number, whose dtype yields to arrays (numpy's scalars do not)."""
    return isinstance(value, bool | int | float) and not isinstance(value, np.generic)


def weak_dtype(value: float, like: Sequence[str]) -> str:
    """The dtype a Python number takes beside arrays of these dtypes."""
    kinds = {DTYPES[name].kind for name in like}
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return promote(*like) if kinds & {"i", "f"} else "i64"
    return promote(*like) if "f" in kinds else "f64"


def scalar(value: float, name: str) -> Traced:
    """A constant without dims, as its dtype holds it: what f16 cannot hold is rounded, or inf."""
    kind = DTYPES[name].kind
    wide = as_float("constant", value)  # whatever the dtype: none holds what no float reaches
    typed = bool(value) if kind == "b" else wide if kind == "f" else value
    return select(join_text("full", (), typed, name))


def constant(array: Array) -> Traced:
    """A captured array; its name is a digest of its contents, so equal arrays are one input.

    The name also says whether the array holds infinities or NaN, for statements about the program.

    Raises:
        ProgramError: no function is being traced, or the dtype is none of ours.
    """
    name = dtype(array.dtype).name
    if array.size == 0:
        wrong = f"has shape {array.shape}, which holds no element"
        raise ProgramError("captured array", wrong, "extents of at least 1")
    if array.ndim == 0:
        return scalar(float(array) if DTYPES[name].kind == "f" else array.item(), name)
    tracing = TRACING.get()
    if tracing is None:
        hint = "call it in a function given to axe_eq.trace"
        raise ProgramError(
            "array", "is captured outside of a trace", "a traced function", hint=hint
        )
    held = np.array(array, order="C")
    type_ = ValueType(name, tuple(held.shape))
    digest = hashlib.blake2b(str(type_).encode(), digest_size=16)
    digest.update(held.reshape(-1).view(np.uint8).data)
    name = f"{captured_name(held)}{digest.hexdigest()}"
    tracing.constants.setdefault(name, held)
    return Traced(input_node(name, type_))


# -- operators ------------------------------------------------------------------------------------


def block(sig: str, cell: str, *arrays: Operand) -> Traced:
    """Apply a block operator.

    >>> print(axe.trace(lambda x: xp.block("a b -> a; max b", "id", x), "2x3:f32"))
    program(x: f32[2,3])
      %1 : f32[2] = id(x)  [a b -> a; max b]
      return %1

    Args:
        sig: its signature, ``"a c, c b -> a b; + c"``.
        cell: what happens at one point of the index space, ``"mul"``, ``"cast f16"``.
        arrays: one per operand of the signature.

    Raises:
        ProgramError: the signature does not parse, or arity, shapes or dtypes do not fit.
    """
    operands = as_operands(*arrays)
    _check_texts(sig, cell)
    return _made(op_node(sig, cell, [x.node for x in operands]), operands)


def select(text: str, *arrays: Operand) -> Traced:
    """Apply a selector given by its text, such as ``"concat 0"``; many arrays join in groups.

    >>> axe.run(lambda x: xp.select("flip (0,)", x), np.array([1.0, 2.0]))
    array([2., 1.])

    Raises:
        ProgramError: the text names no selector, or arity, shapes or parameters do not fit.
    """
    operands = as_operands(*arrays)
    _check_texts(text)
    return _made(joined(text, [x.node for x in operands]), operands, constant_of(text))


def scan(text: str, *arrays: Operand) -> Traced:
    """Apply a scan given by its text: ``"+ 1"`` adds up along axis 1.

    Raises:
        ProgramError: the text names no monoid, or arity, shapes, axis or dtypes do not fit.
    """
    operands = as_operands(*arrays)
    _check_texts(text)
    return _made(scan_node(text, [x.node for x in operands]), operands)


def _check_texts(*texts: object) -> None:
    for text in texts:
        if not isinstance(text, str):
            wrong = f"is of type {type(text).__name__}"
            raise ProgramError(f"operator {said(text)}", wrong, "a text")


def elementwise(cell: str, *arrays: Operand) -> Traced:
    """Apply a cell to arrays broadcast against each other.

    Raises:
        ProgramError: shapes that do not broadcast, or dtypes the cell does not take.
    """
    operands = as_operands(*arrays)
    sig = _broadcast_signature(cell, tuple(x.node.shape for x in operands))
    return _made(op_node(sig, cell, [x.node for x in operands]), operands)


@cache
def _broadcast_signature(cell: str, shapes: tuple[tuple[int, ...], ...]) -> str:
    """Right-aligned dims; an operand's dim of extent 1 beside a longer one is read at 0."""
    try:
        out = np.broadcast_shapes(*shapes)
    except ValueError:
        given = " and ".join(map(str, shapes))
        raise ProgramError(
            f"cell {cell!r}", f"shapes {given} do not broadcast", "equal extents, or 1"
        ) from None
    return make([projection(shape, out) for shape in shapes], range(len(out))).text


def projection(shape: tuple[int, ...], out: Sequence[int]) -> list[Affine]:
    """Where an operand of this shape is read when it is broadcast to the last dims of `out`."""
    first = len(out) - len(shape)
    return [
        plain(first + n) if extent == out[first + n] else Affine(())
        for n, extent in enumerate(shape)
    ]


def _made(node: Node, operands: Sequence[Traced], constant: float | None = None) -> Traced:
    if node.type.size > MAX_ELEMENTS:
        raise ProgramError(f"value {node.type}", f"has {node.type.size} elements",
                           f"at most 2**{MAX_ELEMENTS.bit_length() - 1}")  # fmt: skip
    tracing = TRACING.get()
    if tracing is not None:
        tracing.note(node, constant)
    if not any(isinstance(e, Dim) for x in operands for e in x.shape):
        return Traced(node)
    return Traced(node, _named_shape(node, operands))


def _named_shape(node: Node, operands: Sequence[Traced]) -> tuple[int, ...]:
    """The node's shape with the operands' named dims where the operator passes them through."""
    shape: list[int] = list(node.shape)
    for operand, row in zip(operands, _passed(node), strict=True):
        for extent, axis in zip(operand.shape, row, strict=True):
            if axis is not None and isinstance(extent, Dim) and shape[axis] == extent:
                shape[axis] = extent
    return tuple(shape)


def _passed(node: Node) -> list[list[int | None]]:
    """Per operand, per dim, the output axis it is passed to unchanged."""
    if node.kind == OP:
        sig = signature(node.text)
        dims = [[p.plain for p in operand] for operand in sig.operands]
        return [[d if d is not None and d < sig.n_out else None for d in row] for row in dims]
    if node.kind == SCAN:
        return [list(range(len(a.shape))) for a in node.args]
    declared, params = selector(node.text)
    if declared.pull is None:
        return [[None] * len(a.shape) for a in node.args]
    pulls = declared.pull(params, [a.type for a in node.args])
    return [[p.axis if p and (p.scale, p.offset) == (1, 0) else None for p in row] for row in pulls]

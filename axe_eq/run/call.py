"""Calls of compiled programs: arrays in, checked and taken apart; results out, nested.

Nothing here knows a compiler: a saved program is called by this module and by what its family loads
machine code with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from axe_eq.errors import ArgumentError, ScheduleError
from axe_eq.program.nesting import flatten, leaf_names, leaf_numbers, unflatten
from axe_eq.program.types import Array, ValueType
from axe_eq.run.arrays import (
    Described,
    as_numpy,
    described,
    in_memory,
    in_strides,
    lies,
    like,
    on_device,
)

if TYPE_CHECKING:
    from axe_eq.layout import Layout
    from axe_eq.program.node import Program


MOST_QUICK = 8  # extents whose calls skip the checks


@dataclass(frozen=True)
class Call:
    """How arrays go in and out of a compiled program.

    Attributes:
        names: input names in order.
        types: their types.
        arguments: nesting of the arguments.
        structure: nesting of the outputs.
        dims: per input, its dim names ("" where unnamed; empty where none).
        strides: per input, the element strides that its spec's layout says; None where that says
            none or no plain ones.
    """

    names: tuple[str, ...]
    types: tuple[ValueType, ...]
    arguments: Any
    structure: Any
    dims: tuple[tuple[str, ...], ...] = ()
    strides: tuple[tuple[int, ...] | None, ...] = ()

    @classmethod
    def of(cls, program: Program) -> Call:
        """The call of a program."""
        from axe_eq.layout.value.plain import plain_strides

        return cls(
            tuple(i.name for i in program.inputs),
            tuple(i.node.type for i in program.inputs),
            program.arguments,
            program.structure,
            tuple(i.dims for i in program.inputs),
            tuple(
                None if isinstance(i.layout, str) else plain_strides(i.layout, i.node.shape)
                for i in program.inputs
            ),
        )

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Per argument its name; "" for one without arrays, or of many under one name."""
        if self.arguments is None:
            return self.names
        found = []
        for part in self.arguments[1]:
            leaves = list(leaf_numbers(part))
            name = self.names[leaves[0]] if leaves else ""
            found.append(name.removesuffix(f".{next(leaf_names(part, ''), '')}"))
        return tuple("" if "." in name else name for name in found)

    def positional(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """All arguments by position, as the function takes them.

        Raises:
            ArgumentError: a name that is none of the function's, given twice, or one that lacks.
        """
        found = dict(enumerate(arrays))
        for name, array in named.items():
            number = self.parameters.index(name) if name in self.parameters else -1
            if number < 0 or not name:
                known = ", ".join(filter(None, self.parameters))
                raise ArgumentError("call", f"got an argument named {name!r}", known)
            if number in found:
                raise ArgumentError("call", f"got argument {name!r} twice", "each once")
            found[number] = array
        if lacking := [n for n in range(len(found)) if n not in found]:
            name = self.parameters[lacking[0]] or f"number {lacking[0]}"
            raise ArgumentError("call", f"lacks argument {name!r}", ", ".join(self.parameters))
        return tuple(found[n] for n in range(len(found)))

    def pack(self, name: str, array: Any, layout: Callable[[str], Layout]) -> Any:
        """An array as an input's layout has it; see `Executable.pack`."""
        if name not in self.names:
            raise ArgumentError(
                f"input {name!r}", "is none of the program's", ", ".join(self.names)
            )
        number = self.names.index(name)
        self._check(number, described(array, name), {})
        strides, shape = self.strides[number], self.types[number].shape
        if strides is None and not on_device(array):
            return array
        if tuple(array.shape) != shape:
            wrong = f"has shape {tuple(array.shape)}, for which its layout says nothing"
            raise ArgumentError(f"argument {name!r}", wrong, f"shape {shape}")
        if strides is None:
            return in_memory(array, layout(name), name)
        return in_strides(array if hasattr(array, "shape") else np.asarray(array), strides, name)

    def check_strides(self, arrays: Sequence[Array]) -> None:
        """Refuse host arrays of the compiled shapes that do not lie as their specs say.

        Raises:
            ArgumentError: names the argument, its strides and those of its layout.
        """
        for name, array, wanted in zip(self.names, arrays, self.strides, strict=False):
            if wanted is None:
                continue
            found = tuple(s // array.itemsize for s in array.strides)
            if not lies(array.shape, found, wanted):
                raise ArgumentError(
                    f"argument {name!r}", f"has strides {found}",
                    f"strides {wanted}, in elements, as its spec's layout says",
                    hint=f"exe.pack({name!r}, array), or a spec without a layout",
                )  # fmt: skip

    @cached_property
    def is_flat(self) -> bool:
        """Whether the arguments are the inputs themselves, in no nesting."""
        flat = ["tuple", list(range(len(self.names)))]
        return self.arguments is None or self.arguments == flat

    def flat(self, arrays: Sequence[Any]) -> list[Any]:
        """The arrays in the order of the inputs.

        Raises:
            ArgumentError: another nesting or number of arrays.
        """
        nesting, leaves = flatten(tuple(arrays))
        if len(leaves) != len(self.names) or (
            self.arguments is not None and nesting != self.arguments
        ):
            wanted = ", ".join(f"{n}: {t}" for n, t in zip(self.names, self.types, strict=True))
            numbers = sum(isinstance(leaf, int | float | complex) for leaf in leaves)
            as_many = len(leaves) == len(self.names)
            got = f"got {len(leaves)} arrays{', nested otherwise' if as_many else ''}"
            if numbers > len(self.names):  # a list of numbers is as many arguments
                got = f"got lists of {numbers} numbers"
            raise ArgumentError("call", got, f"{len(self.names)}: {wanted}")
        return leaves

    def plain(self, arrays: Sequence[Any]) -> list[Array]:
        """The arrays in the order of the inputs, as numpy."""
        return [as_numpy(a, n) for a, n in zip(self.flat(arrays), self.names, strict=True)]

    def nest(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Arrays in the order of the inputs, as the arguments of a call."""
        return tuple(arrays) if self.arguments is None else tuple(unflatten(self.arguments, arrays))

    def extents(self, arrays: Sequence[Any], memories: Collection[str] = ()) -> dict[str, int]:
        """Extents of named dims in these arrays that differ from the compiled ones.

        Args:
            arrays: one per input.
            memories: inputs whose arrays are not looked at.

        Raises:
            ArgumentError: no array, or a shape or dtype that does not fit.
        """
        found: dict[str, int] = {}
        for number, (name, array) in enumerate(zip(self.names, arrays, strict=True)):
            if name not in memories:
                self._check(number, described(array, name), found)
        compiled = {
            dim: extent
            for names, of in zip(self.dims, self.types, strict=False)
            for dim, extent in zip(names, of.shape, strict=False)
        }
        return {dim: extent for dim, extent in found.items() if extent != compiled[dim]}

    def _check(self, number: int, array: Described, known: dict[str, int]) -> None:
        """Check one array, given the extents that dims have in those before; add its own."""
        name, wanted = self.names[number], self.types[number]
        dims = (self.dims[number] if self.dims else ()) or ("",) * wanted.rank
        if array.dtype != wanted.dtype:
            raise ArgumentError(f"argument {name!r}", f"has dtype {array.text}", wanted.dtype)
        if len(array.shape) != wanted.rank:
            raise ArgumentError(f"argument {name!r}", f"has shape {array.shape}", str(wanted))
        for axis, (extent, was, dim) in enumerate(
            zip(array.shape, wanted.shape, dims, strict=True)
        ):
            needed = known.setdefault(dim, extent) if dim else was
            if extent != needed:
                got = f"has shape {array.shape}, extent {extent} in dim {axis}"
                shape = tuple(known.get(d, e) for d, e in zip(dims, wanted.shape, strict=True))
                raise ArgumentError(f"argument {name!r}", got, f"shape {shape}")


def shaped(outputs: Sequence[Any], shapes: Sequence[tuple[int, ...] | None]) -> list[Any]:
    """Arrays of buffers in the shapes of the program's outputs."""
    return [
        a if shape is None else a.reshape(shape) for a, shape in zip(outputs, shapes, strict=True)
    ]


@contextmanager
def fitting(extents: Mapping[str, int]) -> Iterator[None]:
    """Whatever binds a schedule to the extents of arrays in a call.

    Raises:
        ArgumentError: the schedule cannot be bound to them.
    """
    try:
        yield
    except ScheduleError as error:
        got = ", ".join(f"{name}={extent}" for name, extent in extents.items())
        why = str(error).splitlines()[0].removeprefix(f"schedule bound {got}: ")
        raise ArgumentError(
            "call", f"got arrays with {got} ({why})",
            "extents the schedule can be bound to", hint=error.hint,
        ) from None  # fmt: skip


@dataclass
class Caller:
    """A compiled program as a function of arrays on one machine.

    Attributes:
        call: how arrays go in and out.
        constants: values that the program captured, by buffer name.
        shapes: shape of every output; None where it is its buffer's own.
        make: makes the schedule ready; done once, at the first call.
        rebound: the caller for other extents of named dims.
        in_place: host arrays are what the machine reads: they lie as their specs say.
    """

    call: Call
    constants: Mapping[str, Array]
    shapes: Sequence[tuple[int, ...] | None]
    make: Callable[[], Any]
    rebound: Callable[[Mapping[str, int]], Caller]
    in_place: bool = False
    _lock: Lock = field(default_factory=Lock, init=False)
    _seen: list[Caller] = field(default_factory=list, init=False)  # latest first
    _others: dict[tuple[tuple[str, int], ...], Caller] = field(default_factory=dict, init=False)

    @cached_property
    def ready(self) -> Any:
        """The schedule made ready, once, whichever thread is first."""
        with self._lock:
            if "ready" not in self.__dict__:
                self.__dict__["ready"] = self.make()
            return self.__dict__["ready"]

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Run on these arrays, given as the function takes them.

        Raises:
            ArgumentError: arrays that do not fit.
            DeviceError: the machine is not there.
        """
        if named:
            arrays = self.call.positional(arrays, named)
        if self._seen:
            quick = arrays if self.call.is_flat else self.call.flat(arrays)
            for seen in self._seen:
                found = seen.ready.quick(quick)
                if found is not None:
                    return seen.nested(found)
        given = self.call.flat(arrays)
        if not self._there(given):
            return self._on_host(given)()
        fitting = self._fitting(given, self._memories)
        self._seen = [fitting, *(c for c in self._seen if c is not fitting)][:MOST_QUICK]
        return fitting.nested(fitting.ready.call([*given, *fitting.constants.values()]))

    def bind(self, *arrays: Any, **named: Any) -> Callable[[], Any]:
        """A prepared call on these very arrays: checks and rebinding are done now.

        Host arrays are read anew at every call. On a device, every call writes its results to the
        same arrays, which are made now.

        Raises:
            ArgumentError: arrays that do not fit.
        """
        given = self.call.flat(self.call.positional(arrays, named))
        if not self._there(given):
            return self._on_host(given)
        fitting = self._fitting(given, self._memories)
        launch, results = fitting.ready.bind([*given, *fitting.constants.values()])
        value = fitting.nested(results)

        def run() -> Any:
            launch()
            return value

        return run

    def nested(self, results: Sequence[Any]) -> Any:
        """Results on a device, viewed as the program's outputs and nested as it nests them."""
        if self._views:
            results = shaped(results, self._views)
        return unflatten(self.call.structure, results)

    @cached_property
    def _views(self) -> Sequence[tuple[int, ...] | None]:
        """`shapes` but of what is returned as its memory; nothing where all are None."""
        lying = getattr(self.ready, "lying", ())
        views = [None if n < len(lying) and lying[n] else s for n, s in enumerate(self.shapes)]
        return views if any(shape is not None for shape in views) else ()

    @property
    def _memories(self) -> Collection[str]:
        """Inputs whose arrays are memory on a device, where the machine has such."""
        names: Collection[str] = getattr(self.ready, "memories", ())
        return names

    def _there(self, given: Sequence[Any]) -> bool:
        """Whether to run where the arrays lie."""
        return any(map(on_device, given)) and hasattr(self.ready, "call")

    def _on_host(self, given: Sequence[Any]) -> Callable[[], Any]:
        plain = [as_numpy(a, n) for a, n in zip(given, self.call.names, strict=True)]
        fitting = self._fitting(plain)
        if self.in_place and fitting is self:
            self.call.check_strides(plain)
        run = fitting.ready
        inputs = [*plain, *fitting.constants.values()]

        def running() -> Any:
            made = shaped([like(given, r) for r in run(inputs)], fitting.shapes)
            return unflatten(self.call.structure, made)

        return running

    def _fitting(self, arrays: Sequence[Any], memories: Collection[str] = ()) -> Caller:
        """The caller for the extents that arrays have; some inputs' are memory without dims."""
        extents = self.call.extents(arrays, memories)
        if not extents:
            return self
        key = tuple(sorted(extents.items()))
        if key not in self._others:
            with fitting(extents):
                self._others[key] = self.rebound(extents)
        return self._others[key]

"""The modules that kernels import: `nki`, `nki.isa`, `nki.language`, ..., one set per dialect.

They are made here, from the tables of instructions and names, and never put where a real `nki`
would be found: our own text gets them by an `__import__` of its own, foreign kernels by a finder
that is asked last (`loading.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from axe_eq_backends.nki.sim import language
from axe_eq_backends.nki.sim.enums import CONSTANTS, engine, nc_version
from axe_eq_backends.nki.sim.errors import AbsentName, kernel_line, shown
from axe_eq_backends.nki.sim.isa import DIALECTS, INSTRUCTIONS
from axe_eq_backends.nki.sim.isa.moves import register_alloc
from axe_eq_backends.nki.sim.objects import NKIObject
from axe_eq_backends.nki.sim.state import current, running
from axe_eq_backends.nki.sim.views import Tensor


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names of NKI that the simulator does not have, in any dialect.
UNSIMULATED = {
    "nki.isa": _words(
        "nc_matmul_mx quantize_mx rng rand2 dropout set_rng_seed rand_set_state rand_get_state "
        "local_gather sequence_bounds topk get_nc_sub_version NkiInstruction"
    ),
    "nki.language": _words("rand random_seed dropout while_loop prelu"),
    "nki.collectives": _words(
        "ReplicaGroup all_gather all_reduce reduce_scatter all_to_all collective_permute_implicit "
        "collective_permute_implicit_current_processing_rank_id rank_id"
    ),
}

Names = dict[str, tuple[Any, tuple[str, ...]]]


outside: list[Callable[..., Any]] = []  # `run.simulate`, which puts itself here


class Kernel:
    """A function under `nki.jit`: called as it is inside a kernel, simulated outside."""

    def __init__(self, function: Callable[..., Any], grid: tuple[int, ...] = ()) -> None:
        self.function, self.grid = function, grid
        functools.update_wrapper(self, function)

    def __getitem__(self, grid: Any) -> Kernel:
        return Kernel(
            self.function, tuple(grid) if isinstance(grid, tuple | list) else (int(grid),)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns; arrays, where it is simulated."""
        if running() is not None:
            return self.function(*args, **kwargs)
        return outside[0](self, "", *args, **kwargs)[0]


def jit(function: Any = None, **_: Any) -> Any:
    """Mark a function as a kernel."""
    if function is None:
        return lambda f: Kernel(f)
    return function if isinstance(function, Kernel) else Kernel(function)


def simulate_kernel(kernel: Any) -> Callable[..., Any]:
    """`nki.simulate`: a function of arrays."""
    made: Kernel = jit(kernel)
    return made


def get_nc_version() -> nc_version:
    """The generation that runs."""
    run = running()
    return nc_version(run.machine.generation if run else 3)


def _two_cores(called: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> None:
        if current().programs > 1 or called == "sendrecv":
            raise AbsentName(
                f"nisa.{called}",
                "needs two cores at once, and programs of a grid run one after the other here",
                "a kernel for one core",
                at=shown(kernel_line()),
            )

    return refuse


class TensorType:
    """`nki.typing.tensor[...]`: annotations only."""

    def __getitem__(self, key: Any) -> TensorType:
        return self


def _tables() -> dict[str, Names]:
    isa: Names = {n: (i.run, i.dialects) for n, i in INSTRUCTIONS.items()}
    isa |= {c.__name__: (c, DIALECTS) for c in CONSTANTS}
    isa |= {f"{e.name}_engine": (e, DIALECTS) for e in engine}
    isa |= {
        "get_nc_version": (get_nc_version, DIALECTS),
        "register_alloc": (register_alloc, DIALECTS),
        "core_barrier": (_two_cores("core_barrier"), DIALECTS),
        "sendrecv": (_two_cores("sendrecv"), DIALECTS),
    }
    top: Names = {
        "jit": (jit, DIALECTS),
        "simulate": (simulate_kernel, ("0.3",)),
        "dtype": (np.dtype, DIALECTS),
        "NKIObject": (NKIObject, DIALECTS),
        "NkiTensor": (Tensor, DIALECTS),
    }
    return {
        "nki": top,
        "nki.isa": isa,
        "nki.isa.constants": {c.__name__: (c, DIALECTS) for c in CONSTANTS},
        "nki.language": dict(language.NAMES),
        "nki.typing": {"tensor": (TensorType(), DIALECTS)},
        "nki.collectives": {},
    }


class Facade(ModuleType):
    """A module of one dialect; names that it lacks say which dialect has them."""

    def __init__(self, name: str, names: Names, dialect: str) -> None:
        super().__init__(name, f"{name} of NKI {dialect}, simulated")
        self._names, self._dialect = names, dialect
        self.__path__: list[str] = []
        self.__dict__.update({n: value for n, (value, where) in names.items() if dialect in where})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise absent(self.__name__, name, self._dialect)


def absent(module: str, name: str, dialect: str) -> AbsentName:
    """The error of a name that a module does not have."""
    return AbsentName(*no_name(module, name, dialect), at=shown(kernel_line()))


def no_name(module: str, name: str, dialect: str) -> tuple[str, str, str]:
    """The parts of that error's text: which dialect has the name, or one like it."""
    if name in UNSIMULATED.get(module, ()):
        return f"{module}.{name}", "is not simulated", "instructions without it"
    names = tables().get(module, {})
    _, where = names.get(name, (None, ()))
    near = get_close_matches(name, [n for n, (_, where) in names.items() if dialect in where], 1)
    there = f"dialect {' '.join(where)}, which has it" if where else \
        f"a name that is simulated{''.join(f', such as {n}' for n in near)}"  # fmt: skip
    return f"{module}.{name}", f"is no name of dialect {dialect}", there


@cache
def tables() -> dict[str, Names]:
    """Every module's names, their values and the dialects that have them."""
    return _tables()


@cache
def modules(dialect: str) -> dict[str, Facade]:
    """The modules of a dialect, each in its package."""
    made = {name: Facade(name, names, dialect) for name, names in tables().items()}
    for name, module in made.items():
        package, _, last = name.rpartition(".")
        if package:
            setattr(made[package], last, module)
    return made

"""Run a kernel: `simulate(text or function, name, *arrays) -> outputs, report`."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from axe_eq.errors import cause, defined_at
from axe_eq.target import Target
from axe_eq_backends.nki.sim import capacity, lint
from axe_eq_backends.nki.sim.dtypes import dtype_of
from axe_eq_backends.nki.sim.errors import Finding, NkiError, refuse, shown
from axe_eq_backends.nki.sim.facade import Kernel, outside
from axe_eq_backends.nki.sim.isa import DIALECTS
from axe_eq_backends.nki.sim.loading import execute, raised_in
from axe_eq_backends.nki.sim.machine import Machine, machine
from axe_eq_backends.nki.sim.state import MOST_INSTRUCTIONS, Run, Step, within
from axe_eq_backends.nki.sim.storage import MemoryRegion
from axe_eq_backends.nki.sim.timeline import Timeline, schedule
from axe_eq_backends.nki.sim.views import Tensor


@dataclass(frozen=True)
class Report:
    """What a simulated run showed; times are the model's, never measured.

    Attributes:
        kernel: name.
        machine: that was simulated.
        dialect: of NKI.
        steps: instructions, in the order of the program.
        warnings: what checks found that does not end a run.
        peaks: memory -> most bytes per partition that are live at once, with their lines.
        placed: tile number -> byte of its partition, where one was found for the timeline.
    """

    kernel: str
    machine: Machine
    dialect: str
    steps: tuple[Step, ...]
    warnings: tuple[Finding, ...]
    peaks: Mapping[str, capacity.Peak]
    placed: Mapping[int, int]

    @property
    def timeline(self) -> Timeline:
        """The steps on engines and queues."""
        return schedule(capacity.items(self.steps, self.placed), self.machine)

    def counts(self) -> dict[str, int]:
        """Instructions by engine."""
        return dict(Counter(step.engine for step in self.steps))


def simulate(
    source: str | Callable[..., Any], kernel: str = "", *args: Any,
    target: str | Target | Machine = "trn2",
    dialect: str = "0.3", grid: tuple[int, ...] = (), most_instructions: int = MOST_INSTRUCTIONS,
    names: Mapping[str, Any] | None = None, file: str = "", **kwargs: Any,
) -> tuple[Any, Report]:  # fmt: skip
    """Run a kernel on arrays, in this process.

    ``outputs, report = simulate(text, "add", a, b)``: outputs as the kernel returns them, tensors
    as arrays of numpy (bfloat16 and 8-bit floats are those of ml_dtypes).

    Args:
        source: a text that defines the kernel, or the function.
        kernel: its name; of a function "" means its own.
        args: arguments; arrays of numpy (or with `detach`) are tensors in HBM.
        target: "trn1", "trn2", "trn3", a `Target` of family nki or a `Machine`.
        dialect: "0.2" or "0.3".
        grid: programs that run one after the other.
        most_instructions: after which the run is refused.
        names: more names for the text.
        file: what errors call the text; default "<NAME.nki>".
        kwargs: arguments by name.

    Raises:
        NkiError: the text does not load, a check refuses the kernel, or it fails.
    """
    if dialect not in DIALECTS:
        raise NkiError(f"dialect {dialect!r}", "is not simulated", " or ".join(DIALECTS))
    held, remarks = machine(target), list[Finding]()
    if isinstance(source, str):
        file = file or f"<{kernel}.nki>"
        remarks = lint.check(source, file, dialect, names, kernel)
        function = find(execute(source, file, dialect, names), kernel, file)
    else:
        function = source
    if isinstance(function, Kernel):
        grid = grid or function.grid
        function = function.function
    title = kernel or getattr(function, "__name__", "kernel")
    run = Run(held, dialect, most_instructions, grid=grid, programs=int(np.prod(grid, dtype=int)))
    with within(run):
        given, by_name = _tensors(run, function, args, kwargs, title)
        outputs: Any = None
        for program in range(run.programs):
            run.program, run.n_shared = program, 0
            outputs = _call(function, given, by_name, title)
        peaks = capacity.peaks(run.tiles, held)
        arrays = _outputs(run, outputs, title)
    size = len(run.steps)
    if size > held.warned_instructions:
        line = run.steps[-1].line
        text = (f"kernel {title}: has {size} instructions, all unrolled; expected up to "
                f"{held.warned_instructions}, beyond which compilers take hours")  # fmt: skip
        run.found["S1", line] = Finding("S1", text, line)
    placed = capacity.placement(run.tiles, held)
    report = Report(
        title, held, dialect, tuple(run.steps), (*remarks, *run.found.values()), peaks, placed
    )
    return arrays, report


outside.append(simulate)


def find(space: Mapping[str, Any], kernel: str, file: str) -> Any:
    """The kernel of that name.

    Raises:
        NkiError: there is none.
    """
    if not callable(space.get(kernel)):
        known = [n for n, v in space.items() if isinstance(v, Kernel)]
        known = known or [
            n for n, v in space.items() if inspect.isfunction(v) and not n.startswith("_")
        ]
        raise NkiError(
            f"file {file}", f"has no kernel {kernel!r}", f"one of {' '.join(known) or 'none'}"
        )
    return space[kernel]


def _tensors(
    run: Run, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], title: str
) -> tuple[list[Any], dict[str, Any]]:
    try:
        names = list(inspect.signature(function).bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise NkiError(f"kernel {title}", f"is called with other arguments ({error})",
                       f"{title}{inspect.signature(function)}") from None  # fmt: skip
    given = [_given(run, a, n) for a, n in zip(args, [*names, *[""] * len(args)], strict=False)]
    return given, {n: _given(run, a, n) for n, a in kwargs.items()}


def _given(run: Run, value: Any, name: str) -> Any:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        dtype_of(value.dtype)
        return run.given(value if value.ndim else value.reshape(1), name)
    if isinstance(value, tuple | list):
        return type(value)(_given(run, v, name) for v in value)
    return value


def _call(function: Any, args: list[Any], kwargs: dict[str, Any], title: str) -> Any:
    try:
        return function(*args, **kwargs)
    except NkiError:
        raise
    except MemoryError as error:
        raise NkiError(
            f"kernel {title}",
            f"needs more memory than there is ({error})",
            "smaller arrays",
            at=raised_in(error),
        ) from None
    except RecursionError:
        raise NkiError(f"kernel {title}", "calls itself without end", "a kernel that returns",
                       at=defined_at(function)) from None  # fmt: skip
    except Exception as error:
        raise NkiError(
            f"kernel {title}",
            f"fails ({cause(error)})",
            "a kernel that returns its results",
            at=raised_in(error),
        ) from error


def _outputs(run: Run, value: Any, title: str) -> Any:
    if isinstance(value, Tensor):
        if value.buffer.on_chip:
            raise NkiError(f"kernel {title}", f"returns {value!r}", "tensors in HBM")
        if run.dialect != "0.2" and value.buffer is not MemoryRegion.shared_hbm:
            raise NkiError(f"kernel {title}", f"returns {value!r}", "tensors of nl.shared_hbm",
                           at=shown(value.storage.tile.line))  # fmt: skip
        if not value.storage.whole:
            written = value.bits(value.storage.init)
            if not written.all():
                missing = int(written.size - np.count_nonzero(written)) * value.size // written.size
                raise refuse("U1", f"result {value!r} of kernel {title}",
                             f"has {missing} of {value.size} elements that nothing wrote",
                             "every element written", value.storage.tile.line)  # fmt: skip
        return value.array().copy()
    if isinstance(value, tuple | list):
        return type(value)(_outputs(run, v, title) for v in value)
    if isinstance(value, dict):
        return {k: _outputs(run, v, title) for k, v in value.items()}
    return value

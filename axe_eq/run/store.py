"""Saved executables: one zip with the machine code, the schedule as JSON, constants as npy.

A digest of every part lies beside them, and nothing is read whose digest is another: a file runs as
it was saved or is refused.

What a call needs is the head (names, types, nesting), the constants and the code, which the target
family's loader reads; loaders are found by the entry-point group ``axe_eq.loaders``. The schedule
is there to be looked at, to run on `cpu` and to be rebound: it loads, and with it the compiler,
when it is asked for.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from axe_eq import plain
from axe_eq.errors import ArgumentError, AxeError, DeviceError, PackError, cause, said
from axe_eq.files import as_path, whole
from axe_eq.program.types import DTYPES, Array, ValueType
from axe_eq.run.call import Caller
from axe_eq.run.compiled import Compiled
from axe_eq.run.content import Head, check_call, check_graph
from axe_eq.schedule.quantity import Costs

if TYPE_CHECKING:
    from axe_eq.run.executable import Schedule
    from axe_eq.run.rebind import Saved
    from axe_eq.target import Target

FORMAT = 10
DIGESTS = "digests.json"
LOADERS = "axe_eq.loaders"
_END, _END_FIELDS = b"PK\5\6", 18  # of a zip: a mark and bytes of fields, without a comment
# What zipfile raises where a part is torn; a place in the file that is none is an OSError too.
_TORN = (
    zipfile.BadZipFile, zlib.error, EOFError, struct.error, UnicodeDecodeError, RuntimeError,
)  # fmt: skip


def save(
    path: str | Path,
    schedule: Schedule,
    explanation: str,
    cost: Mapping[str, float],
    code: bytes | None,
    source: Mapping[str, str],
    origin: Saved,
) -> None:
    """Write a compiled program; the file appears whole or not at all.

    Args:
        path: the file.
        schedule: its schedule, with target and constants.
        explanation: the text of `explain`.
        cost: its named costs.
        code: machine code as the target's runner made it; None where that needs none.
        source: emitted text per kernel, to be read.
        origin: what is proved of other extents.

    Raises:
        ArgumentError: the place cannot be written.
    """
    from axe_eq.run.executable import output_shapes

    graph = schedule.graph
    head = Head(
        format=FORMAT,
        call=schedule.call,
        extents=origin.extents,
        accepted=tuple((a.texts, a.divisors, a.extents) for a in origin.accepted),
        shapes=tuple(output_shapes(graph)),
        target=replace(schedule.target, instrs=()),
        rows=tuple(row.name for row in schedule.target.instrs),
        constants={n: graph.buffers[n].value_type for n in schedule.constants},
        cost=cost,
        source=tuple(source),
        has_code=code is not None,
        mesh=graph.mesh,
    )
    digests: dict[str, str] = {}
    with whole(path) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as file:

        def add(name: str, content: str | bytes) -> None:
            data = content.encode() if isinstance(content, str) else content
            digests[name] = hashlib.sha256(data).hexdigest()
            file.writestr(name, data)

        add("call.json", plain.text(head))
        add("schedule.json", graph.to_json())
        add("explain.txt", explanation)
        if code is not None:
            add("code.bin", code)
        for name, text in source.items():
            add(f"source/{name}", text)
        for name, array in schedule.constants.items():
            buffer = io.BytesIO()
            np.save(buffer, np.ascontiguousarray(array).view(np.uint8), allow_pickle=False)
            add(f"constants/{name}.npy", buffer.getvalue())
        file.writestr(DIGESTS, json.dumps(digests))


class Loaded(Compiled):
    """A saved executable: runs and explains, without e-graph or search.

    Attributes:
        call: how arrays go in and out.
        source: emitted text per kernel; empty where the target has none.
        cost: named costs of the whole schedule, as when it was saved.
    """

    def __init__(self, path: str | Path, head: Head, parts: Mapping[str, Any]) -> None:
        self.path, self._head, self._parts = path, head, parts
        self.source: dict[str, str] = parts["source"]
        self.cost = Costs(head.cost)
        self._constants: dict[str, Array] = parts["constants"]
        self.call = head.call
        check_call(self.call, head.shapes)

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Run on the target; as `Executable.__call__`."""
        return self.caller(*arrays, **named)

    def bind(self, *arrays: Any, **named: Any) -> Callable[[], Any]:
        """A prepared call for these very arrays; as `Executable.bind`."""
        return self.caller.bind(*arrays, **named)

    def interpret(self, *arrays: Any, **named: Any) -> Any:
        """Refused: what was saved are texts, and kernels are interpreted before.

        Raises:
            ArgumentError: always.
        """
        raise ArgumentError(
            f"interpret of {str(self.path)!r}", "has texts of kernels, and none to interpret",
            "the executable that was saved",
        )  # fmt: skip

    def explain(self) -> str:
        """The explanation as it was when saved."""
        text: str = self._parts["explain"]
        return text

    @property
    def target_name(self) -> str:
        """Name of the machine; loads no compiler, as `target` does."""
        return self._head.target.name

    def __repr__(self) -> str:
        number = round(self.cost.get("kernels", 0))
        kernels = f"{number} kernel" + ("" if number == 1 else "s")
        return f"<Loaded {str(self.path)!r} for {self.target_name}: {kernels}>"

    @property
    def target(self) -> Target:
        """The machine."""
        return self.schedule.target

    @cached_property
    def schedule(self) -> Schedule:  # type: ignore[override]  # made when it is asked for
        """The schedule, to look at, to run on `cpu` and to rebind; loads the compiler."""
        from axe_eq.pack import installed
        from axe_eq.run.executable import Schedule
        from axe_eq.run.rebind import Accepted, Saved
        from axe_eq.schedule.graph import from_json

        head, packs = self._head, installed().values()
        known = {name: t for p in packs for name, t in p.targets.items()}
        try:
            graph = from_json(self._parts["schedule"])
            codes = None
            if graph.mesh is None:
                check_graph(graph, self.call, self._constants)
            elif self._parts["code"] is not None:
                codes = plain.read("its code", json.loads(self._parts["code"]), dict[str, bytes])
            # The installed machine of that name has the rows.
            named = known[head.target.name].instrs if head.target.name in known else ()
            target = replace(head.target, instrs=tuple(r for r in named if r.name in head.rows))
            origin = Saved(head.extents, tuple(Accepted(*of) for of in head.accepted), graph)
        except Exception as error:  # what is no schedule may fail at any point
            raise _damaged(self.path, error) from None
        runners = {family: r for p in packs for family, r in p.runners.items()}
        return Schedule(
            graph, self.call, target, self._constants, runners, origin, self.explain, codes
        )

    @cached_property
    def caller(self) -> Caller:
        """The program as a function of arrays on the target."""
        family = self._head.target.family
        code = self._parts["code"]
        if code is None or self._head.mesh is not None:
            return self.schedule.caller(family)
        shapes = list(self._head.shapes)
        return Caller(
            self.call, self._constants, shapes, lambda: loader(family)(code), self._rebound
        )

    def _rebound(self, extents: Mapping[str, int]) -> Caller:
        """The caller at other extents, for which this file has no code.

        Raises:
            DeviceError: this machine cannot compile.
        """
        family = self._head.target.family
        try:
            found = self.schedule.bind(**extents).caller(family)
            _ = found.ready
        except (ImportError, PackError, DeviceError) as error:
            got = ", ".join(f"{name}={extent}" for name, extent in extents.items())
            why = str(error).partition("\n")[0]
            raise DeviceError(
                f"call with {got}",
                f"has no machine code in {str(self.path)!r}, and it cannot be made here ({why})",
                "the extents that were compiled, or a machine with all of axe_eq",
            ) from None
        return found


def loader(family: str) -> Callable[[bytes], Any]:
    """What makes machine code of a target family ready.

    Raises:
        DeviceError: no installed package has one.
    """
    for point in entry_points(group=LOADERS, name=family):
        try:
            found: Callable[[bytes], Any] = point.load()
        except ImportError as error:
            wrong = f"its loader {point.value} cannot be imported ({error})"
            raise DeviceError(f"target family {family!r}", wrong, "its packages") from None
        return found
    raise DeviceError(
        f"target family {family!r}", "no installed package loads its machine code",
        f"an entry point of that name in the group {LOADERS}",
    )  # fmt: skip


def load(path: str | Path) -> Loaded:
    """Load what `Executable.save` wrote; imports numpy, and no compiler.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "plus.axe"
    >>> axe.compile(lambda x: x + 1.0, "2:f32", target="cpu").save(path)
    >>> axe.load(path)(np.zeros(2, np.float32))
    array([1., 1.], dtype=float32)

    Raises:
        ArgumentError: not such a file, of another format, or changed since it was saved.
        DeviceError: it holds constants of a type that only ml_dtypes gives numpy.
    """
    try:
        with zipfile.ZipFile(as_path(path)) as file:
            head = json.loads(file.read("call.json"))
            if head["format"] != FORMAT:
                raise ArgumentError(
                    f"file {str(path)!r}", f"has format {said(head['format'])}", f"format {FORMAT}",
                    hint="compile and save it again",
                )  # fmt: skip
            digests = _digests(path, file)

            def part(name: str) -> bytes:
                data = file.read(name)
                if hashlib.sha256(data).hexdigest() != digests[name]:
                    raise _changed(path, f"its {name} is another")
                return data

            head = plain.read("its head", json.loads(part("call.json")), Head)
            parts = {
                "schedule": part("schedule.json").decode(),
                "explain": part("explain.txt").decode(),
                "code": part("code.bin") if head.has_code else None,
                "source": {n: part(f"source/{n}").decode() for n in head.source},
                "constants": {
                    n: _constant(part(f"constants/{n}.npy"), type_)
                    for n, type_ in head.constants.items()
                },
            }
        return Loaded(path, head, parts)
    except (ArgumentError, DeviceError):
        raise
    except Exception as error:  # what is no saved executable may fail at any point
        raise _damaged(path, error) from None


def _digests(path: str | Path, file: zipfile.ZipFile) -> dict[str, str]:
    """The digest of every part as it was when saved; the file has these parts and no others."""
    digests: dict[str, str] = json.loads(file.read(DIGESTS))
    there, saved = Counter(file.namelist()), Counter([*digests, DIGESTS])
    if there != saved:
        names = {"lacks": sorted(saved - there), "has gained": sorted(there - saved)}
        how = " and ".join(f"{verb} {' '.join(parts)}" for verb, parts in names.items() if parts)
        raise _changed(path, f"it {how}")
    with as_path(path).open("rb") as raw:
        raw.seek(-len(_END) - _END_FIELDS, io.SEEK_END)
        ends = raw.read(len(_END)) == _END
    if not ends or min(part.header_offset for part in file.infolist()):
        raise _changed(path, "it has gained bytes around its parts")
    return digests


def _changed(path: str | Path, how: str) -> ArgumentError:
    wrong = f"was changed after it was saved: {how}"
    return ArgumentError(f"file {str(path)!r}", wrong, "a file as it was saved")


def _damaged(path: str | Path, error: Exception) -> ArgumentError:
    thing, wanted = f"file {str(path)!r}", "a saved executable"
    if isinstance(error, OSError) and error.filename is not None:
        return ArgumentError(thing, f"does not load ({error.strerror or error})", wanted)
    if not zipfile.is_zipfile(path):
        return ArgumentError(thing, "is not a zip file, or only the beginning of one", wanted)
    if isinstance(error, (*_TORN, OSError)):
        return _changed(path, f"a part of it is torn ({cause(error)})")
    why = str(error) if isinstance(error, AxeError) else cause(error)
    return ArgumentError(thing, f"does not load ({why})", wanted)


def _constant(data: bytes, wanted: ValueType) -> Array:
    raw: Array = np.load(io.BytesIO(data), allow_pickle=False)
    try:
        element = DTYPES[wanted.dtype].numpy
    except ImportError as error:
        raise DeviceError(
            f"constant of type {wanted}", f"cannot be held by numpy alone ({error})", "ml_dtypes",
            hint="pip install ml_dtypes",
        ) from None  # fmt: skip
    return raw.view(element).reshape(wanted.shape)

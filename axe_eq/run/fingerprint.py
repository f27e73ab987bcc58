"""What a cached result depends on: source files by content, programs, packs, targets, switches.

A version alone says too little: a checkout changes without it. Whatever cannot be told apart by its
text (packs and operators that no installed distribution holds) makes a program one that is not
cached.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from axe_eq.debug import switches

if TYPE_CHECKING:
    from axe_eq.layout import Mesh
    from axe_eq.pack import Pack
    from axe_eq.program.node import Program
    from axe_eq.schedule.graph import ScheduleGraph
    from axe_eq.target import Target

# Switches that change what is shown, not what is chosen.
_SHOWN_ONLY = {"level", "trace", "check", "cache", "cache_dir"}


@cache
def sources(*packages: str) -> str:
    """A digest of all files of top-level packages, by path and content."""
    h = hashlib.sha256()
    for package in packages:
        for name, path in sorted(_files(package)):
            data = path.read_bytes()
            h.update(f"{package}/{name}:{len(data)}\n".encode() + data)
    return h.hexdigest()


def _files(package: str) -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec(package)
    if spec is None:
        return
    for folder in spec.submodule_search_locations or ():
        for path in Path(folder).rglob("*.*"):
            if path.parent.name != "__pycache__" and path.is_file():
                yield path.relative_to(folder).as_posix(), path
    if spec.submodule_search_locations is None and spec.origin is not None:
        yield Path(spec.origin).name, Path(spec.origin)


def program_key(
    program: Program,
    target: Target,
    mesh: Mesh | None,
    packs: Sequence[Pack],
    without: Iterable[str],
    numerics: str,
) -> str | None:
    """Text of everything that the choice of a schedule depends on.

    None where it cannot be told: a pack or an operator that no installed distribution holds.
    """
    from axe_eq.kernel.cells import spellings
    from axe_eq.program.store import stored

    known = _packages()
    needed = {_root(m) for pack in packs for m in _modules(pack)} | _operators(program)
    if not needed <= known:
        return None
    machine = target.text
    if " at 0x" in machine:  # the repr of an object that is another one in every process
        return None
    # Values of constants and places in the user's files choose nothing.
    bare = replace(program, constants={}, places={}, written={})
    now = {f.name: str(getattr(switches(), f.name)) for f in fields(switches())}
    return json.dumps({
        "program": stored(bare),
        "target": machine,
        "mesh": None if mesh is None else mesh.key,
        "spellings": spellings(target.family),
        "packs": [[p.name, p.version, p.exact, sorted(p.search_laws)] for p in packs],
        "without": sorted(without),
        "numerics": numerics,
        "switches": {n: text for n, text in now.items() if n not in _SHOWN_ONLY},
        "sources": sources(*sorted(needed | {"axe_eq"})),
        "egglog": _version("egglog"),
    }, sort_keys=True, default=str)  # fmt: skip


def lowering_key(graph: ScheduleGraph, target: Target) -> str | None:
    """Text of what packs add to the lowering of a graph: kernels and spellings of their own.

    None where it cannot be told: a schedule that no installed distribution holds writes a kernel.
    """
    from axe_eq.kernel.cells import spellings
    from axe_eq.kernel.families import row_families
    from axe_eq.kernel.monoids import all_parts
    from axe_eq.pack import schedule_named

    named = {k.schedule: schedule_named(k.schedule) for k in graph.kernels}
    writers = {_root(type(s).__module__) for s in named.values() if hasattr(s, "lower")}
    writers |= {_root(f.derive.__module__) for f in row_families(target.family).values()}
    writers |= {_root(make.__module__) for make in all_parts()}
    if not writers <= _packages():
        return None
    return json.dumps([spellings(target.family), sources(*sorted(writers))])


@cache
def _packages() -> frozenset[str]:
    """Top-level packages that hold installed packs, and our own."""
    found = {_root(point.module) for point in entry_points(group="axe_eq.packs")}
    return frozenset(found | {"axe_eq"})


def _root(module: str) -> str:
    return module.partition(".")[0]


def _modules(pack: Pack) -> Iterator[str]:
    """Modules that hold parts of a pack that a search depends on."""
    yield from (law.fn.__module__ for law in pack.search_laws.values())
    parts = (*pack.schedules, *pack.emitters.values(), *pack.runners.values())
    yield from (type(part).__module__ for part in parts)
    yield from (f.derive.__module__ for f in pack.row_families.values())


def _operators(program: Program) -> set[str]:
    """Top-level packages that declare the operators of a program."""
    from axe_eq.program.ops import CELLS, MONOIDS, SELECTORS

    words = {
        w for n in program.nodes() for w in re.findall(r"[^\s();,\[\]]+", f"{n.text} {n.cell}")
    }
    declared: list[Any] = [CELLS[w].fn for w in words if w in CELLS]
    declared += [MONOIDS[w].merge for w in words if w in MONOIDS]
    declared += [SELECTORS[w].run for w in words if w in SELECTORS]
    modules = {_root(getattr(fn, "__module__", None) or "numpy") for fn in declared}
    return modules - {"numpy"}


@cache
def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""

"""Kernels with their memory, to be run under a sanitizer; built where there is a compiler.

Every buffer of a kernel is memory of its own, of exactly the bytes from its first element to its
last. So a kernel of a program runs alone, on drawn values in place of what others compute.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq.errors import AxeError
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.program.node import Program
from axe_eq.program.types import DTYPES, ValueType
from axe_eq.run.timing import drawn
from axe_eq.schedule.memory import buffer_bytes
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.image import build, build_all
from axe_eq_backends.cuda.interpret import elements
from axe_eq_backends.cuda.make import make
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200
from benchmarks.drawn_programs import case as case_of
from benchmarks.kernel_mutations import applied, kernel_mutants
from benchmarks.kernel_subjects import SUBJECTS, Subject
from benchmarks.memcheck import Case, Planted, Result
from benchmarks.offered import PROGRAMS, Offered, covering, offers

Arrays = dict[str, Any]
LARGEST = 1 << 22  # bytes of a buffer: sanitizers are slow
FEW = 3  # candidates of a kernel of a drawn program
PERIOD = 4099  # of values that are drawn
TOGETHER = 40  # kernels that are compiled side by side


Unbuilt = tuple[Case, Planned]  # whose image is not compiled yet
Memory = tuple[dict[str, int], dict[str, bytes], dict[str, Result]]


def built(unbuilt: Sequence[Unbuilt]) -> list[Case]:
    """The cases with their images, compiled side by side; their kernels get names of their own."""
    images = build_all([planned for _, planned in unbuilt])
    return [replace(case, image=image) for (case, _), image in zip(unbuilt, images, strict=True)]


def of_subject(name: str, number: int, subject: Subject | None = None) -> Unbuilt:
    """A subject of the campaign of mutations."""
    s = subject or SUBJECTS[name]()
    s.kernel.name = f"n{number}_{s.kernel.name}"
    given, results, n_bytes = dict[str, bytes](), dict[str, Result](), dict[str, int]()
    merges = (x for x, _ in ir.walk(s.kernel) if isinstance(x, ir.Merge | ir.MergeAsync))
    merged = {x.dst.buffer.name for x in merges}
    for tensor in s.kernel.tensors:
        shape = [int(evaluate(e, s.params)) for e in tensor.shape]
        array = np.broadcast_to(s.arrays[tensor.name], shape)
        at = tensor.place.coordinate("m") + int(evaluate(tensor.place.at("m"), {}))
        flat = np.zeros(int(at.max(initial=0)) + 1, array.dtype)
        flat[np.broadcast_to(at, shape)] = array
        n_bytes[tensor.name] = flat.nbytes
        if tensor.name in s.expected:
            expected = s.expected[tensor.name]
            results[tensor.name] = Result(
                tensor.dtype, _where(np.broadcast_to(at, shape)), expected
            )
        if tensor.name not in s.expected or tensor.name in merged:
            given[tensor.name] = flat.tobytes()
    places = {name: name for name in n_bytes}
    made = Case(name, _NONE, s.params, places, n_bytes, given, results, s.n_ctas)
    return made, plan(s.kernel, h200)


def of_offer(name: str, number: int, offer: Offered, price: Any, memory: Memory) -> Unbuilt | None:
    """A kernel of a program by one of its candidates; None where that is not written.

    Args:
        name: of the program.
        number: of the case.
        offer: the kernel.
        price: of the candidate.
        memory: of the kernel.
    """
    step, graph = offer.made(price, f"n{number}_{offer.step.name}")
    try:
        made = make(step, graph, h200)
    except AxeError:
        return None
    way = " ".join(f"{n}={v}" for n, v in price.parameters)
    case = Case(f"{name}: {offer.step.name} {way}", _NONE, dict(made.lowered.params),
                made.lowered.buffers, *memory)  # fmt: skip
    return case, made.planned


def memory_of(offer: Offered, values: Mapping[str, Any]) -> Memory:
    """Bytes of a kernel's buffers, what lies there before, and its results.

    Args:
        offer: the kernel.
        values: of some buffers; others are drawn, and integers are zeros.
    """
    _, graph = offer.made(offer.prices[0])
    rng, given, results = np.random.default_rng(0), dict[str, bytes](), dict[str, Result]()
    for buffer in graph.inputs:
        held = graph.buffers[buffer]
        array = values.get(buffer)
        if array is None:
            array = _drawn(held.value_type, rng)
            array = np.zeros_like(array) if DTYPES[held.value_type.dtype].kind == "i" else array
        flat = np.zeros(buffer_bytes(held) // array.itemsize, array.dtype)
        flat[elements(held.layout, held.value_type.shape)] = array
        given[buffer] = flat.tobytes()
    for buffer in graph.outputs:
        held = graph.buffers[buffer]
        at = _where(elements(held.layout, held.value_type.shape))
        results[buffer] = Result(held.value_type.dtype, at)
    return {n: buffer_bytes(b) for n, b in graph.buffers.items()}, given, results


def _where(at: Any) -> Any:
    """The elements of a result as files keep them; see `Result`."""
    is_dense = (at.ravel() == np.arange(at.size)).all()
    return at.shape if is_dense else at.astype(np.int32)


def _drawn(of: ValueType, rng: np.random.Generator) -> Any:
    """Drawn elements, repeated: neighbours differ, and files are small."""
    return np.resize(drawn(ValueType(of.dtype, (PERIOD,)), rng), of.shape)


def values_of(program: Program, graph: Any, seed: int) -> Arrays:
    """Values of a program's inputs; integers that say where values are read reach both ends."""
    from axe_eq.program.gathers import index_limits

    rng, limits, found = np.random.default_rng(seed), index_limits(program.outputs), Arrays()
    inputs = [n for n in graph.inputs if graph.buffers[n].role != "constant"]
    for name, spec in zip(inputs, program.inputs, strict=True):
        of: ValueType = spec.node.type
        array = _drawn(of, rng)
        if spec.node in limits:
            most = min(limits[spec.node] - 1, int(np.iinfo(array.dtype).max))
            array = rng.integers(0, most, array.shape, endpoint=True).astype(array.dtype)
            array.flat[:1], array.flat[-1:] = 0, most
        found[name] = array
    return found


# -- all of them --


def prepared(
    seeds: int, most: int | None = None, only: Sequence[str] | None = None
) -> tuple[list[Case], list[Planted]]:
    """All cases and all planted mistakes.

    Args:
        seeds: programs that are drawn.
        most: candidates of a kernel of a program.
        only: beginnings of names of subjects and programs.
    """
    from benchmarks.terminal import told

    unbuilt, cases = list[Unbuilt](), list[Case]()
    names: list[str | int] = [
        n for n in (*SUBJECTS, *PROGRAMS) if not only or n.startswith(tuple(only))
    ]
    names += [] if only else range(seeds)
    assert len({_number(n) for n in names}) == len(names)  # or kernels would share their names
    for name in told(names, "kernels of"):
        if isinstance(name, str) and name in SUBJECTS:
            unbuilt.append(of_subject(name, _number(name)))
        else:
            unbuilt += _of_program(name, _number(name), most)
        if len(unbuilt) > TOGETHER:
            cases, unbuilt = [*cases, *built(unbuilt)], []
    cases += built(unbuilt)
    return cases, planted()


def _number(name: str | int) -> int:
    """Of a name's first kernel, whatever others there are: texts are compiled once."""
    return zlib.crc32(str(name).encode()) % 10**6 * 100


def _of_program(name: str | int, number: int, most: int | None) -> Iterator[Unbuilt]:
    """Kernels of a program by candidates, of a named one or of a drawn one."""
    if isinstance(name, int):
        case = case_of(name)
        program, name, most = case.program, case.name, min(most or FEW, FEW)
    else:
        fn, specs = PROGRAMS[name]
        program = axe.trace(fn, *specs)
    try:
        offered = list(offers(program))
    except AxeError:
        return
    for offer in offered:
        memory = memory_of(offer, values_of(program, offer.graph, number))
        if max(memory[0].values()) > LARGEST:
            continue
        for price in covering(offer.prices, number, most):
            if (one := of_offer(str(name), number, offer, price, memory)) is not None:
                yield one
                number += 1


def planted() -> list[Planted]:
    """A mistake of every kind that a tool is to find, or is asked for."""
    found = list[Planted]()
    both, bulk = ("guards", "memcheck"), (("guards",), ("memcheck",))

    def one(name: str, changed: tuple[str, str] | None = None) -> Case:
        """A subject, with another text in place of what one is in its own."""
        case, planned = of_subject(name, len(found))
        source = emit(planned)
        if changed is not None:
            assert changed[0] in source.text
            source = replace(source, text=source.text.replace(*changed, 1))
        return replace(case, image=build(planned, source))

    def less(name: str, site: str) -> Case:
        """A subject without a statement."""
        subject = SUBJECTS[name]()
        edits = next(m.edits for m in kernel_mutants(subject.kernel)
                     if m.operator == "delete" and m.site.startswith(site))  # fmt: skip
        with applied(edits):
            return built([of_subject(name, len(found), subject)])[0]

    for what, name, buffer, n_bytes, tools, asked in (
        ("a load past a buffer", "cells", "x", 2, both, ()),
        ("a store past a buffer", "cells", "y", 2, both, ()),
        ("a merge past a buffer", "merging rows", "Y", 2, both, ()),
        ("a copy to shared memory past a buffer", "product of lanes", "A", 4, both, ()),
        ("a bulk copy past a buffer", "persistent product", "A", 256, *bulk),
        ("a bulk store past a buffer", "persistent product", "C", 256, *bulk),
        ("a bulk merge past a buffer", "merging product", "C", 256, *bulk),
    ):
        found.append(Planted(what, one(name), tools, asked, {buffer: n_bytes}))
    for what, name in (
        ("a store past shared memory", "transpose by elements"),
        ("products past shared memory", "persistent product"),
    ):
        case = one(name)
        image = replace(case.image, smem_bytes=case.image.smem_bytes // 2)
        found.append(Planted(what, replace(case, image=image), ("memcheck",)))
    what = "a read of memory that nothing was written to"
    found.append(Planted(what, one("cells"), ("initcheck",), unset="x"))
    one_warp = "__syncthreads();", "if (warp == 0) __syncthreads();"
    what, case = "a barrier that one warp meets", one("transpose by elements", one_warp)
    found.append(Planted(what, case, (), ("synccheck",)))
    case = less("transpose by elements", "sync")
    found.append(Planted("a barrier less", case, ("racecheck",)))
    for what, site in (
        ("a barrier less before a bulk store", "sync"),
        ("a fence less before a bulk store", "fence_async"),
        ("a bulk store that nobody waits for", "one thread: wait_group bulk_read"),
    ):
        case = less("persistent product", site)
        found.append(Planted(what, case, (), ("racecheck",)))
    return found


_NONE: Any = None

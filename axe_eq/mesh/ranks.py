"""Rank programs: what every rank of a mesh runs, written by hand, with collectives.

``RankProgram(fn, mesh, in_layouts, out_layouts)`` is what JAX's ``shard_map(f, mesh, in_specs,
out_specs)`` is: a function of the parts that a rank has. Layouts say how whole arrays are cut into
parts, and whole results put together. It runs on numpy, all ranks in this process, and
`axe_eq.equivalent` proves that it is a function of whole arrays, or says where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from axe_eq.errors import ArgumentError, AxeError, ProgramError
from axe_eq.layout import Layout, Mesh
from axe_eq.mesh.collectives import COLLECTIVE, RANKS, collective, group_of, whole_program
from axe_eq.mesh.joint import Joint
from axe_eq.mesh.lift import Lift
from axe_eq.mesh.parts import Parts, parts_from_local, read_parts
from axe_eq.program.meaning import evaluate, evaluate_node
from axe_eq.program.nesting import flatten, unflatten
from axe_eq.program.node import INPUT, InputSpec, Node, Program, input_node, topological
from axe_eq.program.spec import Spec, as_spec
from axe_eq.program.trace import trace
from axe_eq.program.types import Array, ValueType

Given = Layout | str | None
Place = dict[str, int]


@dataclass(frozen=True, eq=False)
class RankProgram:
    """A function that every rank of a mesh runs on its parts of whole arrays.

    Inside it the functions of `axe_eq.mesh` read other ranks' values: `psum`, `pmean`, `pmax`,
    `pmin`, `all_gather`, `psum_scatter`, `all_to_all`, `ppermute`; `axis_index` says which rank
    this is.

    Attributes:
        fn: of arrays, in the array API, as `axe_eq.trace` takes it.
        mesh: the devices, ranks numbered row-major.
        in_layouts: per argument how it is cut: a layout, the text of one ("jax:P('x',None)",
            "dtensor:[Shard(0), Replicate()]"), or None where every rank has all of it. Nested
            arguments have a nesting of these, or one for all they hold. Omitted: those of specs.
        out_layouts: the same of the outputs; a Spec says the whole shape too, which is needed where
            axes do not divide it.
    """

    fn: Callable[..., Any]
    mesh: Mesh
    in_layouts: Any = ()
    out_layouts: Any = None

    def trace(self, *specs: Any, outputs: Sequence[tuple[int, ...]] | None = None) -> Ranks:
        """What ranks do with arrays like these.

        Args:
            specs: of whole arrays, as for `axe_eq.trace`.
            outputs: shapes of the whole outputs; by default those that parts are even cuts of.

        Raises:
            AxeError: layouts that do not cut these arrays, or a function that does not trace.
        """
        nesting, leaves = flatten(specs)
        given = [as_spec(leaf) for leaf in leaves]
        layouts = self._in_layouts(specs, given)
        parts = [
            _parts(f"input {n}", read_parts, layout, spec.type.shape, self.mesh)
            for n, (layout, spec) in enumerate(zip(layouts, given, strict=True))
        ]
        local = [Spec(p.local, s.type.dtype) for p, s in zip(parts, given, strict=True)]
        token = RANKS.set(self.mesh)
        try:
            program = trace(self.fn, *unflatten(nesting, local))
        finally:
            RANKS.reset(token)
        found = self._out_parts(program, outputs)
        return Ranks(program, self.mesh, tuple(given), tuple(parts), tuple(found))

    def _in_layouts(self, specs: Sequence[Any], given: Sequence[Spec]) -> list[Given]:
        if self.in_layouts == ():
            return [s.layout for s in given]
        if not isinstance(self.in_layouts, tuple | list) or len(self.in_layouts) != len(specs):
            wrong = f"has in_layouts {self.in_layouts!r} for {len(specs)} arguments"
            raise ArgumentError("rank program", wrong, "one per argument")
        pairs = zip(self.in_layouts, specs, strict=True)
        return [layout for one, of in pairs for layout in _spread(one, of)]

    def _out_parts(self, program: Program, shapes: Sequence[tuple[int, ...]] | None) -> list[Parts]:
        layouts = self.out_layouts
        single = isinstance(layouts, Layout | str | Spec) or layouts is None
        layouts = [layouts] * len(program.outputs) if single else flatten(layouts)[1]
        if len(layouts) != len(program.outputs):
            wrong = f"has {len(layouts)} out_layouts for {len(program.outputs)} outputs"
            raise ArgumentError("rank program", wrong, "one per output")
        if shapes is not None and len(shapes) != len(program.outputs):
            shapes = None  # whoever compares says so
        return [
            self._out_part(n, layout, node.type, None if shapes is None else shapes[n])
            for n, (layout, node) in enumerate(zip(layouts, program.outputs, strict=True))
        ]

    def _out_part(
        self, number: int, layout: Any, local: ValueType, shape: tuple[int, ...] | None
    ) -> Parts:
        thing, stated = f"output {number}", isinstance(layout, Spec)
        if isinstance(layout, Spec):
            layout, shape = layout.layout, layout.type.shape
        if shape is not None:
            found = _parts(thing, read_parts, layout, shape, self.mesh)
            if found.local == local.shape:
                return found
            if not stated:  # it is another whole than the other side has
                return _parts(thing, parts_from_local, layout, local, self.mesh)
            whole = ValueType(local.dtype, shape)
            wanted = f"{ValueType(local.dtype, found.local)}, the part of {whole}"
            raise ProgramError(thing, f"is {local} on a rank", wanted)
        return _parts(thing, parts_from_local, layout, local, self.mesh)

    def __call__(self, *arrays: Any) -> Any:
        """Run all ranks in this process, on numpy.

        Args:
            arrays: whole arrays, nested as the function takes them.

        Returns:
            The whole outputs, nested as the function returns them.

        Raises:
            ProgramError: ranks disagree about a part that they all have; names them.
            AxeError: see `trace`.
        """
        ranks = self.trace(*arrays)
        return unflatten(ranks.program.structure, ranks.assembled(ranks.run(flatten(arrays)[1])))

    def run(self, *arrays: Any) -> list[Any]:
        """What every rank computes of its parts of these whole arrays, by rank."""
        ranks = self.trace(*arrays)
        found = ranks.run(flatten(arrays)[1])
        return [unflatten(ranks.program.structure, own) for own in found]


def _parts(thing: str, read: Callable[..., Parts], *of: Any) -> Parts:
    try:
        return read(*of)
    except AxeError as error:
        error.thing = f"{thing}, {error.thing}"
        raise


def _spread(layout: Any, of: Any) -> list[Given]:
    """Layouts of an argument's arrays: one for all, or nested as they are."""
    nesting, leaves = flatten(of)
    if layout is None or isinstance(layout, Layout | str):
        return [layout] * len(leaves)
    own, found = flatten(layout)
    if own != nesting:
        raise ArgumentError("rank program", f"has in_layouts {layout!r}", "nested as the argument")
    return found


@dataclass(frozen=True, eq=False)
class Ranks:
    """A rank program traced for whole arrays of given types.

    Attributes:
        program: what one rank computes of its parts.
        mesh: the devices.
        specs: of the whole inputs.
        inputs, outputs: how they are cut.
    """

    program: Program
    mesh: Mesh
    specs: tuple[Spec, ...]
    inputs: tuple[Parts, ...]
    outputs: tuple[Parts, ...]

    @property
    def places(self) -> list[Place]:
        """Where every rank stands on the mesh."""
        shape = self.mesh.shape
        return [dict(zip(shape, at, strict=True)) for at in product(*map(range, shape.values()))]

    # -- whole arrays -----------------------------------------------------------------------------

    @property
    def whole(self) -> Program:
        """What all ranks compute together: outputs that have a dim in front per axis of `copies`.

        Raises:
            ProgramError: see `axe_eq.mesh.lift`.
        """
        return self._lifted[0]

    @property
    def copies(self) -> tuple[tuple[str, ...], ...]:
        """Per output the mesh axes along which ranks might have other copies of it."""
        return self._lifted[1]

    @property
    def joint(self) -> Joint:
        """All ranks as proofs take them."""

        def holder(output: int, copies: Place, index: Sequence[int]) -> int:
            at = self.outputs[output].place(index) | copies
            return sum(at.get(name, 0) * stride for name, (_, stride) in self.mesh.axes.items())

        return Joint(self.whole, self.mesh, self.copies, holder)

    @cached_property
    def _lifted(self) -> tuple[Program, tuple[tuple[str, ...], ...]]:
        lift, given, inputs = Lift(self.mesh), {}, []
        for own, spec, parts in zip(self.program.inputs, self.specs, self.inputs, strict=True):
            whole = InputSpec(input_node(own.name, spec.type), spec.dims)
            inputs.append(whole)
            given[own.node] = lift.shards(whole.node, parts)
        values = lift.values(self.program.outputs, given)
        pairs = zip(self.program.outputs, self.outputs, strict=True)
        found = [lift.whole(values[node], parts) for node, parts in pairs]
        places = {values[n].node: at for n, at in self.program.places.items() if n in values}
        made = replace(
            self.program, inputs=tuple(inputs), outputs=tuple(node for node, _ in found),
            names={}, places=places, written={}, retrace=None,
        )  # fmt: skip
        return made, tuple(axes for _, axes in found)

    # -- on numpy ---------------------------------------------------------------------------------

    def run(self, arrays: Sequence[Any]) -> list[list[Array]]:
        """Every rank's outputs, given the whole inputs."""
        places = self.places
        values: list[dict[Node, Array]] = [{} for _ in places]
        shards = zip(self.program.inputs, self.inputs, map(np.asarray, arrays), strict=True)
        for own, parts, array in shards:
            for at, mine in zip(places, values, strict=True):
                mine[own.node] = parts.part(array, at)
        for node in topological(self.program.outputs):
            if node.kind == COLLECTIVE:
                self._collective(node, values)
                continue
            for mine in values:
                if node.kind == INPUT and node not in mine:
                    mine[node] = self.program.constants[node.text]
                elif node.kind != INPUT:
                    mine[node] = evaluate_node(node, [mine[a] for a in node.args])
        return [[mine[node] for node in self.program.outputs] for mine in values]

    def _collective(self, node: Node, values: Sequence[dict[Node, Array]]) -> None:
        """A collective on every group of ranks."""
        program = whole_program(node.text, tuple(a.type for a in node.args))
        names = [name for name, _ in group_of(node)]
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank, at in enumerate(self.places):
            groups.setdefault(tuple(n for a, n in at.items() if a not in names), []).append(rank)
        for ranks in groups.values():
            ranks.sort(key=lambda rank: [self.places[rank][name] for name in names])
            given = [np.stack([values[rank][a] for rank in ranks]) for a in node.args]
            (found,) = evaluate(program, given)
            for number, rank in enumerate(ranks):
                values[rank][node] = found[number] if collective(node).varies else found

    def assembled(self, results: Sequence[Sequence[Array]]) -> list[Array]:
        """The whole outputs, given every rank's.

        Raises:
            ProgramError: ranks have other copies of one part.
        """
        return [
            self._assembled(n, parts, [own[n] for own in results])
            for n, parts in enumerate(self.outputs)
        ]

    def _assembled(self, number: int, parts: Parts, results: Sequence[Array]) -> Array:
        first: dict[tuple[int, ...], int] = {}
        for rank, at in enumerate(self.places):
            other = first.setdefault(tuple(at[a] for a in sorted(parts.axes)), rank)
            if results[rank].tobytes() != results[other].tobytes():
                wrong = f"differs from the copy of rank {other}"
                raise ProgramError(f"output {number} of rank {rank}", wrong, "copies of one part")
        return parts.whole(list(zip(self.places, results, strict=True)))

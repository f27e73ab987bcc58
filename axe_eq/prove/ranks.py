"""Equality with what all ranks of a mesh do: of rank programs and of mesh plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from axe_eq.errors import LayoutError
from axe_eq.mesh.joint import Joint
from axe_eq.mesh.lift import Lift, Lifted, array_code
from axe_eq.mesh.lift_plan import keeps_narrow, plan_joint
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.ranks import RankProgram
from axe_eq.program.facts import is_captured
from axe_eq.program.node import Node, Program
from axe_eq.program.spec import Spec
from axe_eq.program.traced import Traced
from axe_eq.prove.certificates.rebuild import type_difference
from axe_eq.prove.certificates.verdict import ProgramCounterexample, Refuted, Unknown, Verdict

Decide = Callable[[Program, Program], Verdict]
Side = Program | Joint


def is_ranks(side: object) -> bool:
    """Whether a side is what ranks do."""
    return isinstance(side, RankProgram | MeshPlan)


def decide_ranks(
    a: Any,
    b: Any,
    specs: Sequence[Any],
    numerics: str,
    traced: Callable[[Any, Sequence[Any]], Program],
    decide: Decide,
) -> Verdict:
    """Decide whether what ranks do is a program, or what other ranks do.

    Args:
        a: a rank program, a plan, or what `traced` takes.
        b: another; one of both is of ranks.
        specs: of whole arrays; inputs of a side that has them by default.
        numerics: "real" or "exact".
        traced: (side, specs) -> program.
        decide: for programs of whole arrays.
    """
    specs = specs or _specs((a, b))
    found: dict[int, Side] = {}
    for n in sorted((0, 1), key=lambda n: is_ranks((a, b)[n])):  # programs first: they say shapes
        side = (a, b)[n]
        other = found.get(1 - n)
        if isinstance(side, RankProgram):
            found[n] = side.trace(*specs, outputs=_shapes(other)).joint
        elif isinstance(side, MeshPlan):
            if numerics == "exact" and (kernel := keeps_narrow(side)):
                return Unknown(f"bits of kernel {kernel}, which keeps values unrounded")
            try:
                found[n] = plan_joint(side, _names(other))
            except LayoutError as error:
                return Unknown(f"a program for what ranks do ({error})")
        else:
            found[n] = traced(side, specs)
    return _decided(found[0], found[1], decide)


def _specs(sides: Sequence[Any]) -> list[Any]:
    """What inputs look like, from a side that knows."""
    for side in sides:
        if isinstance(side, Program):
            return [Spec(i.node.shape, i.node.dtype, i.dims) for i in side.inputs]
    for side in sides:
        if isinstance(side, MeshPlan):
            given = [side.buffers[n] for n in side.inputs if not is_captured(n)]
            return [Spec(b.value_type.shape, b.value_type.dtype) for b in given]
    return []


def _shapes(side: Side | None) -> list[tuple[int, ...]] | None:
    if side is None:
        return None
    program, copies = (side, ()) if isinstance(side, Program) else (side.program, side.copies)
    shapes = [node.shape for node in program.outputs]
    return [s[len(c) :] for s, c in zip(shapes, copies or ((),) * len(shapes), strict=True)]


def _names(side: Side | None) -> list[str]:
    """What a plan's inputs are called: as the program's."""
    if side is None:
        return []
    program = side if isinstance(side, Program) else side.program
    return [i.name for i in program.inputs if not is_captured(i.name)]


def _decided(a: Side, b: Side, decide: Decide) -> Verdict:
    left, right = (x if isinstance(x, Program) else x.program for x in (a, b))
    left, right, unknown = _with_constants(left, right)
    plain = [replace_outputs(p, _plain(x, p)) for x, p in ((a, left), (b, right))]
    if difference := type_difference(*plain):
        return Refuted(None, f"the types differ: {difference}")
    joints = [x for x in (a, b) if isinstance(x, Joint)]
    lift = Lift(joints[0].mesh)
    copies = [_copies(x, len(left.outputs)) for x in (a, b)]
    axes = [lift.ordered({*m, *n}) for m, n in zip(*copies, strict=True)]
    wide = [
        [lift.varying(Lifted(node, c), w).node for node, c, w in zip(p.outputs, own, axes,
                                                                       strict=True)]
        for p, own in zip((left, right), copies, strict=True)
    ]  # fmt: skip
    lemmas = [lemma for joint in joints for lemma in joint.lemmas]
    wide[0] += [one for _, one, _ in lemmas]
    wide[1] += [other for _, _, other in lemmas]
    verdict = decide(replace_outputs(left, wide[0]), replace_outputs(right, wide[1]))
    if unknown and isinstance(verdict, Refuted):
        return Unknown(f"what {' '.join(unknown)} holds, which the plan does not say")
    return _told(verdict, joints, axes, [name for name, _, _ in lemmas])


def replace_outputs(program: Program, outputs: Sequence[Node]) -> Program:
    """The program with other outputs."""
    return replace(program, outputs=tuple(outputs), structure=None, output_layouts=())


def _plain(side: Side, program: Program) -> list[Node]:
    """Outputs without dims of copies: for their types alone."""
    if isinstance(side, Program):
        return list(program.outputs)
    pairs = zip(program.outputs, side.copies, strict=True)
    return [node if not c else _first(node, len(c)) for node, c in pairs]


def _first(node: Node, n: int) -> Node:
    with array_code():
        return Traced(node)[(0,) * n].node


def _copies(side: Side, n: int) -> list[tuple[str, ...]]:
    return [()] * n if isinstance(side, Program) else list(side.copies)


def _with_constants(a: Program, b: Program) -> tuple[Program, Program, list[str]]:
    """Both programs over one list of inputs, and the constants that no side knows.

    A plan has constants as inputs, called by digests. What these hold the other side says, where it
    has them too; others are whatever arrays.
    """
    known = {**a.constants, **b.constants}
    unknown = {
        i.name: i for p in (a, b) for i in p.inputs if is_captured(i.name) and i.name not in known
    }

    def told(program: Program) -> Program:
        own = tuple(i for i in program.inputs if not is_captured(i.name))
        return replace(program, inputs=(*own, *unknown.values()), constants=known)

    return told(a), told(b), list(unknown)


def _told(
    verdict: Verdict, joints: Sequence[Joint], axes: Sequence[tuple[str, ...]], lemmas: list[str]
) -> Verdict:
    """The verdict about ranks: a counterexample names one."""
    if not isinstance(verdict, Refuted) or verdict.counterexample is None:
        return verdict
    found = verdict.counterexample
    assert isinstance(found, ProgramCounterexample)
    if found.output >= len(axes):
        name = lemmas[found.output - len(axes)]
        return Unknown(f"a proof that copies of buffer {name!r} are equal: they are not always")
    own = axes[found.output]
    place = dict(zip(own, found.index, strict=False))
    index = tuple(found.index[len(own) :])
    rank = joints[0].holder(found.output, place, index)
    changed = replace(found, index=index, rank=rank, reduced=None)
    reason = f"output {found.output} of rank {rank} differs"
    how = verdict.reason.partition(" differs ")[2]
    return replace(verdict, counterexample=changed, reason=f"{reason} {how}".strip())

"""Mutations of kernels: one small mistake at one site, made by operators that know no kernel.

Statements of a kernel are changed before it is checked and planned; the layout of one operand is
changed while its primitive alone is planned; calls of a plan are changed before they run. Every
change is an edit of mutable nodes that is undone afterwards, so a kernel is built once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from axe_eq.kernel.cells import Apply, Cell, Constant
from axe_eq.kernel.dispatch import Choice
from axe_eq.kernel.expr import Expr, Int, Var, make
from axe_eq.kernel.placement import Iter, Placement, number
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.kernel.threads.plan import Address, Regs
from axe_eq.layout.value.swizzle import Swizzle
from axe_eq_backends.cuda.tensor_map import TensorMap
from axe_eq_backends.cuda.wgmma import Operand


@dataclass(frozen=True)
class Edit:
    """Another value for one attribute of an object; attribute "" stands for a list's contents."""

    owner: Any
    attribute: str
    value: Any

    def swap(self) -> Edit:
        """Make the edit; what undoes it."""
        if not self.attribute:
            before = list(self.owner)
            self.owner[:] = self.value
            return Edit(self.owner, "", before)
        before = getattr(self.owner, self.attribute)
        setattr(self.owner, self.attribute, self.value)
        return Edit(self.owner, self.attribute, before)


@contextmanager
def applied(edits: Iterable[Edit]) -> Iterator[None]:
    """With the edits made; they are undone in the end."""
    undo = [e.swap() for e in edits]
    try:
        yield
    finally:
        for e in reversed(undo):
            e.swap()


@dataclass(frozen=True)
class Operand_:
    """An operand of a primitive, planned as though its buffer lay otherwise."""

    primitive: ir.Primitive
    number: int
    place: Placement


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes:
        level: "kernel" (statements), "layout" (of one operand) or "plan" (calls).
        operator: what is done.
        site: to what, as text.
        detail: what stands there now, where the operator does not say it.
        edits: of a kernel or of a plan's calls.
        operand: of level "layout".
    """

    level: str
    operator: str
    site: str
    edits: tuple[Edit, ...] = ()
    operand: Operand_ | None = None
    detail: str = ""

    @property
    def synchronises(self) -> bool:
        """Whether order is changed: what is done may be the same, and still come too early."""
        ordered = self.level == "kernel" and self.operator in _ORDER
        return ordered or self.site.startswith("sync ")

    def __str__(self) -> str:
        return f"{self.operator}: {self.site}"


_ORDER = frozenset({
    "delete", "do twice", "do later", "do earlier", "by all threads", "by one thread", "always",
    "the other phase", "shift the phase", "one more pending", "one less pending", "wait bulk",
    "wait bulk_read", "the next slot", "another barrier", "forget a copy's bytes", "count +1",
    "count -1", "shrink the ring", "overlap", "a CTA less", "the own CTA alone",
})  # fmt: skip


Changes = Iterator[tuple[str, tuple[Edit, ...]]]


# -- expressions --


def nudged(e: Int) -> Iterator[Int]:
    """The expression with one of its constants one larger or smaller."""
    if not isinstance(e, Expr):
        yield from (e + 1, e - 1)
        return
    if isinstance(e, Var):
        return
    for position, part in enumerate(e.args):
        for other in nudged(part):
            if position and e.op in ("//", "%") and isinstance(other, int) and other < 1:
                continue
            yield make(e.op, *(other if n == position else a for n, a in enumerate(e.args)))


def _one_off(e: Int) -> list[Int]:
    """Neighbours of an expression: every constant nudged, and the value itself."""
    found = list(nudged(e))
    return found if not isinstance(e, Expr) else [*found, e + 1, e - 1]


# -- statements --

INSTANT = (
    ir.Wait, ir.Arrive, ir.Expect, ir.Sync, ir.FenceAsync, ir.Commit, ir.WaitGroup,
    ir.ClusterArrive, ir.ClusterWait,
)  # fmt: skip


def bodies(body: ir.Body, alone: bool = False) -> Iterator[tuple[ir.Body, bool]]:
    """This body and all bodies inside it, and whether one thread runs them."""
    yield body, alone
    for s in body:
        for inner in ir.children(s):
            yield from bodies(inner, alone or (isinstance(s, ir.Scope) and s.kind == "elect"))


def _synchronises(s: ir.Statement) -> bool:
    """Whether a statement only synchronises, in a narrower scope too."""
    inside = [x for part in ir.children(s) for x in part]
    control = isinstance(s, ir.Scope | ir.If) and bool(inside) and all(map(_synchronises, inside))
    return isinstance(s, INSTANT) or control


def order_changes(body: ir.Body, i: int) -> Changes:
    """Statements deleted, repeated, early or late."""
    s = body[i]
    yield "delete", (Edit(body, "", body[:i] + body[i + 1 :]),)
    if not _synchronises(s):
        return
    yield "do twice", (Edit(body, "", [*body[: i + 1], *body[i:]]),)
    for what, j in (("do later", i + 1), ("do earlier", i - 1)):
        if 0 <= j < len(body) and not isinstance(body[j], ir.Let):
            moved = list(body)
            moved[i], moved[j] = moved[j], moved[i]
            yield what, (Edit(body, "", moved),)


def scope_changes(body: ir.Body, i: int, alone: bool) -> Changes:
    """Wider and narrower scopes, branches that are always taken."""
    s = body[i]
    if isinstance(s, ir.Scope):
        yield "by all threads", (Edit(body, "", [*body[:i], *s.body, *body[i + 1 :]]),)
    elif isinstance(s, INSTANT) and not alone:
        one = ir.Scope("elect", [s], at=s.at)
        yield "by one thread", (Edit(body, "", [*body[:i], one, *body[i + 1 :]]),)
    if isinstance(s, ir.If):
        yield "always", (Edit(body, "", [*body[:i], *s.body, *body[i + 1 :]]),)


def number_changes(body: ir.Body, i: int) -> Changes:
    """Integers of a statement, one off: bounds, conditions, states, slots, phases, counts."""
    s = body[i]
    for attribute in ("start", "stop", "value", "condition", "begin"):
        e = getattr(s, attribute, None)
        if isinstance(e, int | Expr) and not isinstance(s, ir.Fill):
            for other in _one_off(e):
                yield f"{attribute} one off", (Edit(s, attribute, other),)
    if isinstance(s, ir.Wait):
        yield "the other phase", (Edit(s, "parity", s.parity ^ 1),)
    if isinstance(s, ir.Let) and s.var.name.startswith("parity"):
        yield "shift the phase", (Edit(s, "value", s.value ^ 1),)
    if isinstance(s, ir.WaitGroup):
        yield "one more pending", (Edit(s, "pending", s.pending + 1),)
        if s.pending:
            yield "one less pending", (Edit(s, "pending", s.pending - 1),)
        for kind in {"bulk": ["bulk_read"], "bulk_read": ["bulk"]}.get(s.kind, []):
            yield f"wait {kind}", (Edit(s, "kind", kind),)


def barrier_changes(body: ir.Body, i: int, kernel: ir.Kernel) -> Changes:
    """Another slot, another barrier, or those of other CTAs of the cluster."""
    s = body[i]
    if isinstance(s, ir.Arrive | ir.CopyAsync) and s.ranks:
        for n in range(len(s.ranks)):
            yield "a CTA less", (Edit(s, "ranks", s.ranks[:n] + s.ranks[n + 1 :]),)
        yield "the own CTA alone", (Edit(s, "ranks", ()),)
    if not isinstance(s, ir.Wait | ir.Arrive | ir.Expect | ir.CopyAsync) or s.barrier is None:
        return
    if s.barrier.slots > 1:
        yield "the next slot", (Edit(s, "slot", (s.slot + 1) % s.barrier.slots),)
    for other in kernel.barriers:
        if other is not s.barrier:
            yield "another barrier", (Edit(s, "barrier", other),)
    if isinstance(s, ir.Expect):
        for n in range(len(s.copies)):
            fewer = s.copies[:n] + s.copies[n + 1 :]
            yield "forget a copy's bytes", (Edit(s, "copies", fewer),)


def cells_of(cell: Cell) -> Iterator[tuple[str, Cell]]:
    """The cell with one application dropped, turned round, or one constant changed."""
    if isinstance(cell, Constant):
        yield "another constant", Constant(cell.value + 1, cell.dtype)
    if not isinstance(cell, Apply):
        return
    yield "drop a cell", cell.args[0]
    if len(cell.args) > 1:
        yield "turn a cell round", Apply(cell.cell, cell.args[::-1])
    for n, a in enumerate(cell.args):
        for what, other in cells_of(a):
            yield what, Apply(cell.cell, (*cell.args[:n], other, *cell.args[n + 1 :]))


def primitive_changes(body: ir.Body, i: int) -> Changes:
    """What a primitive computes, and of which operands."""
    s = body[i]
    match s:
        case ir.Gemm():
            for what, other in (("always", 1), ("never", 0), ("not", _turned(s.accumulate))):
                if s.accumulate != other:
                    yield f"accumulate {what}", (Edit(s, "accumulate", other),)
            if s.a.shape == s.b.shape:
                yield "swap operands", (Edit(s, "a", s.b), Edit(s, "b", s.a))
        case ir.Map():
            for what, cell in cells_of(s.cell):
                yield what, (Edit(s, "cell", cell),)
            for n in range(len(s.ins) - 1):
                swapped = (*s.ins[:n], s.ins[n + 1], s.ins[n], *s.ins[n + 2 :])
                yield "swap operands", (Edit(s, "ins", swapped),)
        case ir.Reduce():
            for monoid in ("+", "max", "min"):
                if monoid != s.monoid:
                    yield "another monoid", (Edit(s, "monoid", monoid),)
            if s.scratch is not None:
                yield "without scratch", (Edit(s, "scratch", None),)
        case ir.Fill():
            yield "another constant", (Edit(s, "value", s.value + 1.0),)
        case ir.Copy():
            yield "another fill", (Edit(s, "fill", s.fill + 1.0),)
    if isinstance(s, ir.Primitive):
        yield from _view_changes(s)


def _turned(e: Int) -> Int:
    return make("==", e, 0) if isinstance(e, Expr) else int(not e)


def _views(s: ir.Primitive) -> Iterator[tuple[ir.View, Callable[[ir.View], Edit]]]:
    """Operands of a primitive, and the edit that replaces one."""
    for attribute, value in vars(s).items():
        if isinstance(value, ir.View):
            yield value, lambda v, a=attribute: Edit(s, a, v)  # type: ignore[misc]
        elif attribute == "ins":
            for n, view in enumerate(value):
                yield view, lambda v, n=n: Edit(s, "ins", (*s.ins[:n], v, *s.ins[n + 1 :]))  # type: ignore[attr-defined, misc]


def _view_changes(s: ir.Primitive) -> Changes:
    """Boxes one element, one extent or one stage off, and dims swapped."""
    for view, edit in _views(s):
        for d, (begin, extent) in enumerate(zip(view.begin, view.extent, strict=True)):
            for step in sorted({1, -1, extent}):
                at = (*view.begin[:d], begin + step, *view.begin[d + 1 :])
                yield f"box {step:+d}", (edit(replace(view, begin=at)),)
        if len(view.dims) > 1 and view.shape[-1] == view.shape[-2]:
            yield "transposed", (edit(view.T),)


def kernel_mutants(kernel: ir.Kernel) -> Iterator[Mutant]:
    """Every mutant of a kernel's statements and of what is derived for it."""
    for body, alone in bodies(kernel.body):
        for i, s in enumerate(body):
            for changes in (
                order_changes(body, i), scope_changes(body, i, alone), number_changes(body, i),
                barrier_changes(body, i, kernel), primitive_changes(body, i),
            ):  # fmt: skip
                for what, edits in changes:
                    detail = _passed(body, i, what) or _detail(edits)
                    yield Mutant("kernel", what, _site(s), edits, None, detail)
            if isinstance(s, ir.Roles):
                yield from _role_mutants(s)
    yield from _derived_mutants(kernel)


def _site(s: ir.Statement) -> str:
    """A statement in one line, with what is inside it where that only synchronises."""
    inside = [_site(x) for part in ir.children(s) for x in part] if _synchronises(s) else []
    return " ".join([s.line(), "; ".join(inside)]).strip()


def _role_mutants(node: ir.Roles) -> Iterator[Mutant]:
    for role in node.branches:
        site = f"warpgroups {role.low}..{role.high - 1}"
        for step in (8, -8) if role.registers else ():
            edit = Edit(role, "registers", role.registers + step)
            yield Mutant("kernel", f"{step:+d} registers", site, (edit,))
        rest = [r for r in node.branches if r is not role]
        yield Mutant("kernel", "no role", site, (Edit(node, "branches", rest),))


def _derived_mutants(kernel: ir.Kernel) -> Iterator[Mutant]:
    for barrier in kernel.barriers:
        for step in (1, -1):
            edit = Edit(barrier, "arrivals", barrier.arrivals + step)
            yield Mutant("kernel", f"count {step:+d}", f"{barrier}", (edit,))
        edit = Edit(barrier, "slots", barrier.slots - 1)
        yield Mutant("kernel", "shrink the ring", f"barrier {barrier}", (edit,))
    shared = [b for b in kernel.buffers if b.memory == "smem"]
    for n, buffer in enumerate(shared):
        if buffer.offset:
            edit = Edit(buffer, "offset", buffer.offset - buffer.alignment)
            yield Mutant("kernel", "overlap", f"smem {buffer}", (edit,))
        if len(buffer.shape) > 2 and number(buffer.shape[0]) > 1:
            edits = (*_shrunk(buffer), *_moved(shared[n + 1 :], _slot_bytes(buffer)))
            yield Mutant("kernel", "shrink the ring", f"smem {buffer}", edits)
    for step in (1, -1):
        edit = Edit(kernel, "tiles", kernel.tiles + step)
        yield Mutant("kernel", f"tiles {step:+d}", "grid", (edit,))


def _slot_bytes(buffer: ir.Buffer) -> int:
    return number(buffer.place.blocks[0][0].stride) * buffer.itemsize


def _shrunk(buffer: ir.Buffer) -> tuple[Edit, ...]:
    """One slot less of the slowest dim."""
    first = buffer.place.blocks[0][0]
    blocks = ((first._replace(extent=first.extent - 1),), *buffer.place.blocks[1:])
    shape = (number(buffer.shape[0]) - 1, *buffer.shape[1:])
    return Edit(buffer, "place", replace(buffer.place, blocks=blocks)), Edit(buffer, "shape", shape)


def _moved(buffers: Sequence[ir.Buffer], n_bytes: int) -> tuple[Edit, ...]:
    return tuple(Edit(b, "offset", b.offset - n_bytes) for b in buffers)


# -- layouts of one operand --


def layout_mutants(kernel: ir.Kernel) -> Iterator[Mutant]:
    """Every operand of every primitive, planned as though its buffer lay otherwise."""
    for s, _ in ir.walk(kernel):
        if isinstance(s, ir.Primitive):
            for n, view in enumerate(s.views()):
                for what, place in other_places(view.buffer.place, view.buffer.memory):
                    operand = Operand_(s, n, place)
                    site = f"{view} of {s.operands}"
                    yield Mutant("layout", what, site, (), operand, str(place))


def other_places(place: Placement, memory: str) -> Iterator[tuple[str, Placement]]:
    """A placement with one field wrong: a stride, an order of iters, the swizzle, the offset."""
    for d, block in enumerate(place.blocks):
        for p, i in enumerate(block):
            strides: list[Int] = [i.stride * 2]
            strides += [i.stride // 2] if isinstance(i.stride, int) and i.stride > 1 else []
            strides += [i.stride + 8] if memory != "reg" and i.stride != 1 else []
            for stride in strides:
                yield "wrong stride", _with_iter(place, d, p, i._replace(stride=stride))
        for p in range(len(block) - 1):
            a, b = block[p], block[p + 1]
            if a.extent == b.extent:
                turned = _with_iter(place, d, p, b)
                yield "iters swapped", _with_iter(turned, d, p + 1, a)
    if memory == "smem":
        for swizzle in _other_swizzles(place.swizzle):
            yield "wrong swizzle", replace(place, swizzle=swizzle)
        yield "wrong offset", place.moved({"m": 64})


def _with_iter(place: Placement, dim: int, position: int, i: Iter) -> Placement:
    block = list(place.blocks[dim])
    block[position] = i
    blocks = (*place.blocks[:dim], tuple(block), *place.blocks[dim + 1 :])
    return replace(place, blocks=blocks)


def _other_swizzles(swizzle: Swizzle | None) -> Iterator[Swizzle | None]:
    if swizzle is None:
        yield Swizzle("m", 3, 3, 3)
        return
    yield None
    if swizzle.bits > 1:
        yield swizzle._replace(bits=swizzle.bits - 1)
    yield swizzle._replace(base=swizzle.base + 1)
    yield swizzle._replace(shift=2)


# -- calls of a plan --


def plan_mutants(planned: Planned) -> Iterator[Mutant]:
    """Every call of every plan, and the values that calls share."""
    for primitive, choice in planned.choices.items():
        plan, site = choice.plan, primitive.operands
        for n, call in enumerate(plan.calls):
            at = f"{call.op} {n} of {site}"
            without = plan.calls[:n] + plan.calls[n + 1 :]
            yield Mutant("plan", "delete the call", at, (Edit(plan, "calls", without),))
            for what, name, other in call_changes(call):
                calls = [*plan.calls[:n], other, *plan.calls[n + 1 :]]
                edits = (Edit(plan, "calls", calls),)
                yield Mutant("plan", f"{what} of {name}", at, edits, None, str(other[name]))
        for n, (v, value) in enumerate(plan.lets):
            for other_value in _one_off(value):
                lets = [*plan.lets[:n], (v, other_value), *plan.lets[n + 1 :]]
                edits = (Edit(plan, "lets", lets),)
                named = f"{v} of {site}"
                yield Mutant("plan", "a value one off", named, edits, None, str(other_value))


def _passed(body: ir.Body, i: int, what: str) -> str:
    """What a statement changes places with, or what follows where it is missing."""
    step = {"do later": 1, "do earlier": -1}.get(what)
    if step:
        return f"over {_site(body[i + step])}"
    if what != "delete":
        return ""
    return f"before {_site(body[i + 1])}" if i + 1 < len(body) else "at the end of its block"


def _detail(edits: tuple[Edit, ...]) -> str:
    """The values of edits that are one value."""
    shown = (Expr, int, ir.View, Apply, Constant)
    return ", ".join(str(e.value) for e in edits if isinstance(e.value, shown))


def call_changes(call: Call) -> Iterator[tuple[str, str, Call]]:
    """What is done to which argument, and the call with it."""
    for name, value in call.args.items():
        for what, other in _argument_changes(name, value):
            yield what, name, Call(call.op, {**call.args, name: other})


def _argument_changes(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case Address():
            yield from ((f"{s:+d} bytes", Address(value.buffer, value.byte + s)) for s in (16, 128))
            for byte in nudged(value.byte):
                yield "one off", Address(value.buffer, byte)
        case TensorMap():
            yield from _map_changes(value)
        case Operand():
            yield from _descriptor_changes(value)
        case Regs() if name != "ins":
            yield from _register_changes(value)
        case Apply() | Constant():
            return  # as in the statement
        case _:
            yield from _named_changes(name, value)


def _map_changes(m: TensorMap) -> Iterator[tuple[str, TensorMap]]:
    for width in {0, 32, 64, 128} - {m.swizzle_bytes}:
        yield "wrong swizzle", replace(m, swizzle_bytes=width)
    for d in range(len(m.box)):
        for what, attribute, value in (
            ("a smaller box", "box", m.box[d] - 1),
            ("half a box", "box", m.box[d] // 2),
            ("a box one larger", "box", m.box[d] + 1),
            ("wrong stride", "strides", m.strides[d] * 2),
            ("stride 8 off", "strides", m.strides[d] + 8),
            ("a smaller tensor", "shape", m.shape[d] - 1),
            ("a larger tensor", "shape", m.shape[d] + 1),
        ):
            old = getattr(m, attribute)
            changed: dict[str, Any] = {attribute: (*old[:d], value, *old[d + 1 :])}
            yield what, replace(m, **changed)


def _descriptor_changes(o: Operand) -> Iterator[tuple[str, Operand]]:
    for what, bits in (
        ("wrong lbo", o.bits ^ 1 << 16 + 4),
        ("wrong sbo", o.bits + (64 << 32)),
        ("sbo 16 bytes off", o.bits + (1 << 32)),
        ("wrong swizzle", o.bits ^ 3 << 62),
        ("no swizzle", o.bits & (1 << 62) - 1),
    ):
        if bits != o.bits:
            yield what, replace(o, bits=bits)
    majors = {"K": "MN", "MN": "K"}
    yield "the other major", replace(o, form=replace(o.form, major=majors[o.form.major]))


def _register_changes(regs: Regs) -> Iterator[tuple[str, Regs]]:
    if len(regs.index) > 1:
        yield "reversed registers", Regs(regs.buffer, regs.index[::-1])
        yield "rotated registers", Regs(regs.buffer, (*regs.index[1:], regs.index[0]))
    step = len(regs.index)
    size = regs.buffer.n_elements
    if step < size:
        yield "other registers", Regs(regs.buffer, tuple((i + step) % size for i in regs.index))


def _named_changes(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    match name, value:
        case "coords", _:
            for n, c in enumerate(value):
                for step in (1, -1, 8):
                    yield f"{step:+d}", (*value[:n], c + step, *value[n + 1 :])
        case (("guard" | "inside" | "before"), Expr()):
            yield "without", None
            yield from (("one off", other) for other in nudged(value))
        case "guard", None:
            yield "a lane missing", ir.LANE < 31
        case "mask", _:
            yield "a neighbour's", 2 * value if value < 16 else 1
        case "element", _:
            yield from ((f"{step:+d}", value + step) for step in (1, -1, 8))
        case "trans", _:
            yield "the other", not value
        case "accumulate", _:
            yield from (("always", 1),) if value != 1 else ()
            yield "never", 0
        case "values", _:
            yield "one more", (*value[:-1], value[-1] + 1)
        case "monoid", _:
            yield from (("another", m) for m in ("+", "max", "min") if m != value)
        case (("count" | "n" | "k"), int()):
            yield "half", value // 2
        case "slot", _:
            yield "one more", value + 1
        case "value", _:
            yield "one more", value + 1.0
        case "ins", tuple() if len(value) > 1:
            yield "swapped", value[::-1]
        case "ins", Regs():
            yield "one less", Regs(value.buffer, value.index[:-1] or value.index)
        case "live", Expr():
            yield from (("one off", other) for other in nudged(value))


def with_plan(planned: Planned, primitive: ir.Primitive, plan: Plan) -> Planned:
    """The planned kernel with another plan of one primitive."""
    choices = {**planned.choices, primitive: Choice(plan, [])}
    return replace(planned, choices=choices, resources=dict(planned.resources))

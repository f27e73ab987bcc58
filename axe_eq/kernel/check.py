"""Static checks that kernels of every execution model share, found before any plan.

Errors name the statement's place. What depends on values (bounds, races, deadlocks) is the
interpreter's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from axe_eq.errors import ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.expr import Expr, Int, bounds, depends, variables
from axe_eq.kernel.placement import number
from axe_eq.kernel.spaces import SHARED
from axe_eq.target import Target

INT_MAX = (1 << 31) - 1  # kernels count with 32 bits; element numbers of tensors may be wider
Rule = Callable[[ir.Kernel, Target], None]


def check_memories(kernel: ir.Kernel, target: Target) -> None:
    """Buffers lie in memories that the target has, at places that these have."""
    for buffer in kernel.parts():
        memory = target.memory(buffer.memory)
        if buffer.space.kind != memory.kind:
            wrong = f"lies in {memory.name}, which is {memory.kind} on {target.name}"
            raise ScheduleError(f"buffer {buffer}", wrong, f"a {buffer.space.kind} memory")
        if buffer.alignment % memory.align_bytes:
            wrong = f"begins at multiples of {buffer.alignment} bytes"
            raise ScheduleError(
                f"buffer {buffer}", wrong, f"of {memory.align_bytes}, as {memory.name}"
            )
        for axis, most in zip(memory.axes, memory.extents, strict=False):
            if buffer.place.extent_on(axis) > most:
                wrong = f"takes {buffer.place.extent_on(axis)} {axis} of {memory.name}"
                raise ScheduleError(f"buffer {buffer}", wrong, f"at most {most}")


def check_capacity(kernel: ir.Kernel, target: Target) -> None:
    """Buffers of a shared memory that live together fit in one instance of it."""
    for memory in (m for m in target.memories if m.kind == SHARED):
        here = {b for b in kernel.buffers if b.memory == memory.name}
        held = _together(kernel.body, here)
        if _bytes(held) > memory.place_bytes:
            shown = ", ".join(f"{b} {_bytes([b])}" for b in kernel.buffers if b in held)
            each = f" per {' '.join(memory.axes[:-1])}" if memory.extents else ""
            raise ScheduleError(
                f"kernel {kernel.name}",
                f"takes {_bytes(held)} bytes of {memory.name}{each} ({shown})",
                f"at most {memory.place_bytes}",
            )  # fmt: skip


def _bytes(buffers: Iterable[ir.Buffer]) -> int:
    return sum(b.n_elements * b.itemsize for b in buffers)


def _together(body: ir.Body, among: set[ir.Buffer]) -> set[ir.Buffer]:
    """The most of these buffers that live at once: one lives in the innermost body of all uses."""
    uses = [_used(s) & among for s in body]
    often = Counter(b for used in uses for b in used)
    own = {b for b, n in often.items() if n > 1}
    own |= {
        b for s, used in zip(body, uses, strict=True) if isinstance(s, ir.Primitive) for b in used
    }
    inside = [
        _together([x for part in ir.children(s) for x in part], used - own)
        for s, used in zip(body, uses, strict=True)
        if used - own
    ]
    return own | max(inside, key=_bytes, default=set())


def _used(s: ir.Statement) -> set[ir.Buffer]:
    views = s.views() if isinstance(s, ir.Primitive) else ()
    return {v.buffer for v in views}.union(*(_used(x) for part in ir.children(s) for x in part))


def check_sums(kernel: ir.Kernel, target: Target) -> None:
    """Products add up in private memories, or in one bank or whole ones of what accumulates."""
    for s, _ in ir.walk(kernel):
        if not isinstance(s, ir.Gemm) or s.acc.buffer.is_private:
            continue
        memory, acc = target.memory(s.acc.buffer.memory), s.acc.buffer
        if not memory.accumulates:
            known = " ".join(m.name for m in target.memories if m.accumulates) or "none"
            raise broken(s, f"adds up in {memory.name}", f"a memory that accumulates: {known}")
        held, bank = acc.n_elements * acc.itemsize, memory.bank_bytes
        if 0 < bank < held and held % bank:
            wrong = f"{acc} covers {held} bytes of {memory.axes[-1]}"
            raise broken(s, wrong, f"one bank of {memory.name}, {bank}, or whole ones")


def check_variables(kernel: ir.Kernel, target: Target) -> None:
    """Values are used where they are declared, and changed by those that share them.

    Those of a scope run in step, so what controls them is one value for all of them: it does not
    depend on who of them it is, and no single one changes it for the others.
    """
    known = dict.fromkeys(kernel.given(), kernel.top.scope)
    _check_body(kernel, kernel.body, kernel.owner, known)


def _check_body(kernel: ir.Kernel, body: ir.Body, where: ir.Where, outer: dict[str, str]) -> None:
    known = dict(outer)
    for s in body:
        for e in s.uniform():
            _check_known(kernel, s, e, known)
        if isinstance(s, ir.Primitive):
            for e in s.places():
                _check_known(kernel, s, e, known | dict.fromkeys(where.numbers, where.scope))
        if isinstance(s, ir.Assign) and known.get(s.var.name) != where.scope:
            wrong = f"{s.var} of scope {known.get(s.var.name)} changes in scope {where.scope}"
            raise broken(s, wrong, f"a change by all {kernel.issuer}s that have it")
        if isinstance(s, ir.Let):
            known[s.var.name] = where.scope
        for section, narrower in s.inside(where):
            own = dict.fromkeys((v.name for v in section.variables), narrower.scope)
            _check_body(kernel, section.body, narrower, known | own)


def _check_known(kernel: ir.Kernel, s: ir.Statement, e: Int, known: dict[str, str]) -> None:
    for v in variables(e):
        if v.name not in known:
            own = v.name in kernel.issuer_numbers
            wrong = f"{e} depends on the {kernel.issuer}" if own else f"{v} is not declared here"
            raise broken(s, wrong, "one value for the whole scope" if own else "a value in scope")


def check_integers(kernel: ir.Kernel, target: Target) -> None:
    """Integers fit in 32 bits, as far as they are known before a launch."""
    given = {p.name for p in kernel.params}
    for s, _ in ir.walk(kernel):
        if isinstance(s, ir.Let) and depends(s.value, frozenset(given)):
            given.add(s.var.name)
        if isinstance(s, ir.For) and depends(s.stop, frozenset(given)):
            given.add(s.var.name)
        for e in _counted(s):
            if not depends(e, frozenset(given)) and (wide := _too_wide(e)) is not None:
                raise ScheduleError(
                    f"kernel {kernel.name}", f"counts to {bounds(wide)[1]} ({wide})",
                    f"at most {INT_MAX}, what 32 bits hold", at=s.at,
                )  # fmt: skip


def _counted(s: ir.Statement) -> Iterator[Int]:
    """Integers of a statement, and where the operands of primitives end."""
    yield from s.uniform()
    if isinstance(s, ir.For):
        yield s.stop + s.step
    if isinstance(s, ir.Index):
        yield s.begin + (number(s.out.shape[s.dim]) - 1)
    for view in s.views() if isinstance(s, ir.Primitive) else ():
        yield from (b + (e - 1) for b, e in zip(view.begin, view.extent, strict=True))


def _too_wide(e: Int) -> Int | None:
    """A part of an expression that 32 bits are proven not to hold at its bounds."""
    low, high = bounds(e)
    if (high is not None and high > INT_MAX) or (low is not None and low < -INT_MAX - 1):
        return e
    parts = (_too_wide(x) for x in e.args) if isinstance(e, Expr) else ()
    return next((x for x in parts if x is not None), None)


def check_inside(kernel: ir.Kernel, target: Target) -> None:
    """Parts of all but arguments lie inside their buffers, as far as they are known."""
    for s, _ in ir.walk(kernel):
        for view in s.views() if isinstance(s, ir.Primitive) else ():
            if not view.buffer.is_global and not _is_inside(view):
                raise broken(s, f"{view} is not inside {view.buffer}", f"{view.buffer.shape}")


def _is_inside(view: ir.View) -> bool:
    return all(
        begin >= 0 and begin + extent <= number(size)
        for begin, extent, size in zip(view.begin, view.extent, view.buffer.shape, strict=True)
        if isinstance(begin, int)
    )


def broken(s: ir.Statement, wrong: str, expected: str) -> ScheduleError:
    """The error of a statement that breaks a rule."""
    return ScheduleError(type(s).__name__.lower(), wrong, expected, at=s.at)


RULES: tuple[Rule, ...] = (
    check_memories, check_variables, check_inside, check_integers, check_capacity, check_sums,
)  # fmt: skip


def check(kernel: ir.Kernel, target: Target) -> None:
    """Run the checks of every execution model.

    Raises:
        ScheduleError: the first rule that the kernel breaks.
    """
    for rule in RULES:
        rule(kernel, target)

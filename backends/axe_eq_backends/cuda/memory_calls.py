"""The texts of loads and stores by registers: vectors, parts of them, and vectors in two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from axe_eq.kernel.expr import Int, bounds, variables
from axe_eq.kernel.plan import Call
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.plan import Regs
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda import cells, prelude

if TYPE_CHECKING:
    from axe_eq_backends.cuda.emit import Writer

INT_MAX = (1 << 31) - 1


def is_large(e: Int) -> bool:
    """Whether 32 bits are not proven to hold a value."""
    low, high = bounds(e)
    return high is None or high > INT_MAX or low is None or low < -INT_MAX


def words_of(w: Writer, regs: Regs) -> list[str]:
    """The 32-bit registers that hold consecutive elements."""
    per = max(1, 4 // regs.buffer.itemsize)
    name = w.name(regs.buffer)
    return [f"{name}[{i // per}]" for i in regs.index[::per]]


def helpers(w: Writer, *texts: str) -> None:
    """Include every fixed device function that a text calls."""
    for name in prelude.FIXED:
        mark = name if name.isupper() else f"{name}("
        if any(mark in text for text in texts):
            w.use(name)


def _accessed(w: Writer, call: Call, op: str, space: str, at: str, path: str = "") -> str:
    """One load or store statement."""
    regs: Regs = call["regs"]
    if len(regs.index) * regs.buffer.itemsize < 4:
        return _part_of_word(w, regs, op, space, at)
    kind = w.register_type(regs.buffer.dtype)
    words = words_of(w, regs)
    name = prelude.access_name(op, space, len(words), kind, path)
    w.use(name, lambda: prelude.access(op, space, len(words), kind, path))
    args = [*words, at] if op == "ld" else [at, *words]
    return f"{name}({', '.join(args)});"


def _part_of_word(w: Writer, regs: Regs, op: str, space: str, at: str) -> str:
    """A load or store of one or two bytes of a register."""
    n_bytes = len(regs.index) * regs.buffer.itemsize
    function = w.use(f"{op}_{space}_u{8 * n_bytes}")
    if op == "ld":
        return _set_part(w, regs, f"{function}({at})")
    word, place = _place_in_word(w, regs)
    return f"{function}({at}, {word} >> {8 * n_bytes * place});"


def _place_in_word(w: Writer, regs: Regs) -> tuple[str, int]:
    """The register that holds less than a word's elements, and their place in it."""
    size = regs.buffer.itemsize
    word, byte = divmod(regs.index[0] * size, 4)
    return f"{w.name(regs.buffer)}[{word}]", byte // (len(regs.index) * size)


def _set_part(w: Writer, regs: Regs, value: str) -> str:
    """Set one or two bytes of a register."""
    word, place = _place_in_word(w, regs)
    part = {1: "set_byte", 2: "set_half"}[len(regs.index) * regs.buffer.itemsize]
    return f"{w.use(part)}({word}, {place}, {value});"


def guarded(w: Writer, guard: Int | None, statement: str, otherwise: str = "") -> None:
    """A statement that runs where its guard holds, else another one."""
    if guard is None:
        w.line(statement)
    else:
        w.line(f"if ({w.expr(guard)}) {statement}" + (f" else {otherwise}" if otherwise else ""))


def global_address(w: Writer, call: Call) -> str:
    """Where an access of global memory begins."""
    element: Int = call["element"]
    moves = "".join(f" + {_move(w, regs, step)}" for regs, step, _ in call.args.get("at", ()))
    if element == 0:
        return w.name(call["tensor"]) + moves
    named = all(map(w.planned.is_element, variables(element)))
    shown = w.expr(element) if named or not is_large(element) else w.wide(element)
    return f"{w.name(call['tensor'])} + {shown}{moves}"


def _move(w: Writer, regs: Regs, step: int) -> str:
    """The elements that an index in a register moves an address by."""
    index = w.element(regs, str(regs.index[0]))
    return index if step == 1 else f"(long long){index} * {step}"


def ld_global(w: Writer, call: Call, s: ir.Primitive) -> None:
    """A predicated vector load; registers are filled where the guard fails."""
    changing = call["tensor"].name in (*w.kernel.outputs, *w.kernel.awaited)
    path = "" if changing else "nc"
    load = _inside(w, call, "ld", path)
    guarded(w, call["guard"], load, filled(w, call["regs"], call["fill"]))


def _inside(w: Writer, call: Call, op: str, path: str) -> str:
    """A load or store of global memory, of those elements of its vector that are inside."""
    at, regs, apart = global_address(w, call), call["regs"], call.op == "ld_global_apart"
    before, inside = call["before"], call["inside"]
    if before is None and inside is None and not apart:
        return _accessed(w, call, op, "global", at, path)
    kind, size, words = w.register_type(regs.buffer.dtype), regs.buffer.itemsize, words_of(w, regs)

    def accessing(words: int) -> str:
        name = prelude.access_name(op, "global", words, kind, path)
        return w.use(name, lambda: prelude.access(op, "global", words, kind, path))

    whole = accessing(len(words))
    part = w.use(f"{op}_global_u{8 * size}") if size < 4 else accessing(1)
    if size < 4 and op == "ld":
        w.use({1: "set_byte", 2: "set_half"}[size])
    begins = apart or before is not None
    sure = apart and call["reach"] is None
    kept = "two" if sure else "apart" if apart else "within" if begins else "first"
    name = f"{whole}_{kept}"
    name += f"_u{8 * size}" if size < 4 else ""
    given = len(words), kind, whole, part
    if sure:
        w.use(name, lambda: prelude.out_of_two(name, *given[:3], size))
        return f"{name}({', '.join([*words, f'(const char*)({at})'])});"
    w.use(name, lambda: prelude.some_elements(name, op, *given, begins=begins, apart=apart))
    ends = [w.expr(len(regs.index) if inside is None else inside)]
    ends += [w.expr(0 if before is None else before)] if begins else []
    at = f"({'const char' if op == 'ld' else 'char'}*)({at})"
    if op == "st":
        return f"{name}({', '.join([at, *words, *ends])});"
    ends.append(constant(w, regs.buffer.dtype, call["fill"]))
    if begins:
        tensor = w.name(call["tensor"])
        ends += [f"(const char*)({tensor} + {w.expr(e)})" for e in call["reach"]]
    return f"{name}({', '.join([*words, at, *ends])});"


def filled(w: Writer, regs: Regs, value: float) -> str:
    """The statement that sets registers to a value."""
    dtype = regs.buffer.dtype
    if len(regs.index) * regs.buffer.itemsize < 4:
        mask = (1 << 8 * len(regs.index) * regs.buffer.itemsize) - 1
        return _set_part(w, regs, f"{constant(w, dtype, value)} & {mask:#x}u")
    return f"{' = '.join(words_of(w, regs))} = {constant(w, dtype, value)};"


def constant(w: Writer, dtype: str, value: float) -> str:
    """A register that holds a constant in every element."""
    per = 4 // DTYPES[dtype].itemsize
    if per > 1:
        if value == 0:
            return "0u"
        text = cells.number(value, dtype if DTYPES[dtype].kind == "i" else "f32")
        helpers(w, text)
        return f"{w.use(f'pack_{dtype}')}({', '.join([text] * per)})"
    text = cells.number(value, dtype)
    helpers(w, text)
    return text


def st_global(w: Writer, call: Call, s: ir.Primitive) -> None:
    """A predicated vector store."""
    path = "cs" if call["tensor"].name in w.kernel.streamed else ""
    guarded(w, call["guard"], _inside(w, call, "st", path))


def merge_global(w: Writer, call: Call, s: ir.Primitive) -> None:
    """Words that memory merges, one after the other."""
    by, regs = prelude.MERGED_BY[call["monoid"]], call["regs"]
    name = f"{by}_global_{regs.buffer.dtype}"
    w.use(name, lambda: prelude.merge_global(by, regs.buffer.dtype))
    (word,) = words_of(w, regs)
    guarded(w, call["guard"], f"{name}({global_address(w, call)}, {word});")


def ld_shared(w: Writer, call: Call, s: ir.Primitive) -> None:
    """A vector load from shared memory."""
    guarded(
        w,
        call["guard"] if "guard" in call.args else None,
        _accessed(w, call, "ld", "shared", w.address(call["address"])),
    )


def st_shared(w: Writer, call: Call, s: ir.Primitive) -> None:
    """A vector store to shared memory."""
    guarded(w, call["guard"], _accessed(w, call, "st", "shared", w.address(call["address"])))


def ld_peer(w: Writer, call: Call, s: ir.Primitive) -> None:
    """A vector load from the shared memory of a CTA of the cluster."""
    at = f"{w.use('peer_address')}({w.address(call['address'])}, {w.expr(call['rank'])})"
    w.line(_accessed(w, call, "ld", "peer", at))


CALLS: Mapping[str, Callable[[Writer, Call, Any], None]] = {
    "ld_global": ld_global, "ld_global_apart": ld_global, "st_global": st_global,
    "merge_global": merge_global,
    "ld_shared": ld_shared, "st_shared": st_shared, "ld_peer": ld_peer,
}  # fmt: skip

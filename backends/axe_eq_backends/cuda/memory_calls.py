"""The texts of loads and stores by registers: vectors, parts of them, and vectors in two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from axe_eq.kernel.expr import Expr, Int, both, bounds, variables
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
    before, inside, fill = call["before"], call["inside"], call["fill"]
    if before is None and inside is None and not apart:
        return _accessed(w, call, op, "global", at, path)
    kind, size, words = w.register_type(regs.buffer.dtype), regs.buffer.itemsize, words_of(w, regs)

    def accessing(words: int) -> str:
        name = prelude.access_name(op, "global", words, kind, path)
        return w.use(name, lambda: prelude.access(op, "global", words, kind, path))

    whole = accessing(len(words))
    part = w.use(f"{op}_global_u{8 * size}") if size < 4 else accessing(1)
    marks, given = f"_u{8 * size}" if size < 4 else "", (len(words), kind)
    if op == "st" or (call["reach"] is None and not apart):
        name = f"{whole}_{'first' if before is None else 'within'}{marks}"
        w.use(name, lambda: prelude.some_elements(
            name, op, *given, whole, part, begins=before is not None
        ))  # fmt: skip
        ends = [w.expr(len(regs.index) if inside is None else inside)]
        ends += [] if before is None else [w.expr(before)]
        at = f"({'const char' if op == 'ld' else 'char'}*)({at})"
        if op == "st":
            return f"{name}({', '.join([at, *words, *ends])});"
        return f"{name}({', '.join([*words, at, *ends, constant(w, regs.buffer.dtype, fill)])});"
    at = f"(const char*)({at})"
    if call["reach"] is None:
        name = f"{whole}_two{marks}"
        w.use(name, lambda: prelude.out_of_two(name, *given, whole, size))
        return f"{name}({', '.join([*words, at])});"
    return _end_of_row(w, call, at, whole, part, marks)


def _end_of_row(w: Writer, call: Call, at: str, whole: str, part: str, marks: str) -> str:
    """A load of a vector of which a row has a part: it is read now, and filled later.

    One that is taken out of two is filled at once: they would take twice the registers till then.
    """
    regs, words = call["regs"], words_of(w, call["regs"])
    size, given = regs.buffer.itemsize, (len(words), w.register_type(regs.buffer.dtype))
    count = len(regs.index)
    inside = w.expr(count if call["inside"] is None else call["inside"])
    before = w.expr(0 if call["before"] is None else call["before"])
    fill, (low, end) = constant(w, regs.buffer.dtype, call["fill"]), call["reach"]
    if size < 4:
        w.use({1: "set_byte", 2: "set_half"}[size])
    reach = [_few(w, e - call["element"], 2 * count) for e in (low, end)]
    if call.op == "ld_global_apart":
        name = f"{whole}_apart{marks}"
        w.use(name, lambda: prelude.apart_in_row(name, *given, whole, part))
        return f"{name}({', '.join([*words, at, inside, before, fill, *reach])});"
    row = f"{whole}_of_row{marks}"
    w.use(row, lambda: prelude.of_row(row, *given, size))
    guard = "" if call["guard"] is None else f"if ({w.expr(call['guard'])}) "
    w.later(f"{guard}{row}({', '.join([*words, inside, before, fill])});")
    # Vectors are aligned: one that has an element of a tensor has no other, if that is too.
    begins = bool(low % count)
    least, _ = bounds(end - call["element"])
    ends_within = bool(end % count) and not (least is not None and least >= count)
    some = both(
        None if call["before"] is None else call["before"] < count,
        None if call["inside"] is None else call["inside"] > 0,
    )
    there = w.expr(some) if isinstance(some, Expr) else ""
    if not (begins or ends_within):
        load = f"{whole}({', '.join([*words, at])});"
        otherwise = filled(w, regs, call["fill"])
        return f"{{ if ({there}) {load} else {otherwise} }}" if there else load
    read = f"{whole}_{'within' if begins else 'first'}{marks}"
    w.use(read, lambda: prelude.some_elements(read, "ld", *given, whole, part, begins))
    left = f"{there} ? {reach[1]} : 0" if there else reach[1]
    ends = [left, reach[0]] if begins else [left]
    return f"{read}({', '.join([*words, at, *ends, '0u' if size < 4 else '0'])});"


def _few(w: Writer, e: Int, most: int) -> str:
    """A number of elements as an int, where more than so many are as good as so many."""
    if not is_large(e):
        return w.expr(e)
    return f"(int)max(-{most}ll, min({most}ll, {w.wide(e)}))"


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

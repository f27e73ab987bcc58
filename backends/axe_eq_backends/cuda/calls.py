"""One text per instruction call: how emitted kernels write what plans say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from axe_eq.errors import EmitError
from axe_eq.kernel.cells import IDENTITY, Cell, Operand, result_dtype
from axe_eq.kernel.expr import Expr, Int
from axe_eq.kernel.plan import Call
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.plan import Address, Regs
from axe_eq_backends.cuda import cells, memory_calls, prelude
from axe_eq_backends.cuda.memory_calls import (
    constant,
    filled,
    global_address,
    guarded,
    helpers,
    words_of,
)  # fmt: skip

if TYPE_CHECKING:
    from axe_eq_backends.cuda.emit import Writer


MOST_SHOWN = 200  # letters of a cell in the comment above its function
PARTS = 4  # independent chains of a long reduction in one thread


def _matrix(w: Writer, call: Call, op: str) -> None:
    count, trans = call["count"], call["trans"]
    name = prelude.matrix_name(op, count, trans)
    w.use(name, lambda: prelude.matrix(op, count, trans))
    registers = [f"{w.name(call['regs'].buffer)}[{i // 2}]" for i in call["regs"].index]
    at = w.address(call["address"])
    args = [*registers, at] if op == "ldmatrix" else [at, *registers]
    w.line(f"{name}({', '.join(args)});")


def ldmatrix(w: Writer, call: Call, s: ir.Primitive) -> None:
    """Matrices from shared memory."""
    _matrix(w, call, "ldmatrix")


def stmatrix(w: Writer, call: Call, s: ir.Primitive) -> None:
    """Matrices to shared memory."""
    _matrix(w, call, "stmatrix")


def tma_load(w: Writer, call: Call, s: ir.Primitive) -> None:
    """A bulk load."""
    coords = call["coords"]
    name = w.use(f"tma_load_{len(coords)}d", lambda: prelude.tma_load(len(coords)))
    w.use("TensorMap")
    barrier = w.slot(call["barrier"], call["slot"])
    args = [w.address(call["address"]), f"&{w.map_name(call['map'])}", barrier]
    w.line(f"{name}({', '.join([*args, *map(w.expr, coords)])});")


def tma_load_multicast(w: Writer, call: Call, s: ir.Primitive) -> None:
    """A bulk load into several CTAs of the cluster, a bit of a mask each."""
    coords, ranks = call["coords"], call["ranks"]
    name = f"tma_load_multicast_{len(coords)}d"
    w.use(name, lambda: prelude.tma_load(len(coords), multicast=True))
    w.use("TensorMap")
    known = sum(1 << r for r in ranks if isinstance(r, int))
    bits = [f"{known:#x}"] if known else []
    bits += [f"1 << ({w.expr(r)})" for r in ranks if not isinstance(r, int)]
    barrier = w.slot(call["barrier"], call["slot"])
    args = [w.address(call["address"]), f"&{w.map_name(call['map'])}", barrier]
    w.line(f"{name}({', '.join([*args, ' | '.join(bits), *map(w.expr, coords)])});")


def tma_store(w: Writer, call: Call, s: ir.Primitive) -> None:
    """A bulk store."""
    coords = call["coords"]
    name = w.use(f"tma_store_{len(coords)}d", lambda: prelude.tma_store(len(coords)))
    w.use("TensorMap")
    args = [f"&{w.map_name(call['map'])}", w.address(call["address"])]
    w.line(f"{name}({', '.join([*args, *map(w.expr, coords)])});")


def tma_merge(w: Writer, call: Call, s: ir.Primitive) -> None:
    """A bulk store that memory merges with what it holds."""
    coords, by = call["coords"], prelude.MERGED_BY[call["monoid"]]
    name = f"tma_{by}_{len(coords)}d"
    w.use(name, lambda: prelude.tma_store(len(coords), by))
    w.use("TensorMap")
    args = [f"&{w.map_name(call['map'])}", w.address(call["address"])]
    w.line(f"{name}({', '.join([*args, *map(w.expr, coords)])});")


def cp_async(w: Writer, call: Call, s: ir.Primitive) -> None:
    """An ordinary async copy."""
    n_bytes = call["count"] * call["tensor"].itemsize
    name = w.use(f"cp_async_{n_bytes}", lambda: prelude.cp_async(n_bytes))
    inside = "true" if call["guard"] is None else w.expr(call["guard"])
    copy = f"{name}({w.address(call['address'])}, {global_address(w, call)}, {inside});"
    guarded(w, None if call["live"] == 1 else call["live"], copy)


# -- products --


def wgmma(w: Writer, call: Call, s: ir.Primitive) -> None:
    """One warpgroup product; constant steps are added to a descriptor made once per base."""
    a_form, b_form, n, k = call["a_form"], call["b_form"], call["n"], call["k"]
    shape = (call["dtype"], a_form.transposed if a_form else 0, b_form.transposed, not a_form)
    name = prelude.wgmma_name(n, *shape)
    w.use(name, lambda: prelude.wgmma(n, k, *shape))
    if a_form:
        a = _descriptor(w, call["a"], a_form.bits, s)
    else:
        rows: Regs = call["a"]
        a = f"{w.name(rows.buffer)} + {rows.index[0] // 2}"
    b = _descriptor(w, call["b"], b_form.bits, s)
    regs: Regs = call["regs"]
    acc = w.name(regs.buffer) + (f" + {regs.index[0]}" if regs.index[0] else "")
    w.line(f"{name}({acc}, {a}, {b}, {w.expr(call['accumulate'])});")


def _descriptor(w: Writer, address: Address, form: int, s: ir.Primitive) -> str:
    byte: Int = address.byte
    step = 0
    if isinstance(byte, Expr) and byte.op == "+" and isinstance(byte.args[1], int):
        step, byte = byte.args[1], byte.args[0]
    elif isinstance(byte, int):
        byte, step = 0, byte
    key = (id(s), address.buffer.name, w.expr(byte), form)
    if key not in w.cells:
        w.cells[key] = w.descriptor_name(address.buffer)
        start = w.address(Address(address.buffer, byte))
        w.line(f"const unsigned long long {w.cells[key]} = descriptor({start}, {form:#018x}ull);")
    return w.cells[key] + (f" + {step >> 4}" if step else "")


def wgmma_fence(w: Writer, call: Call, s: ir.Primitive) -> None:
    """Before the first product of a group."""
    w.hold(w.held[s].before)
    w.line(f"{w.use('wgmma_fence')}();")


def wgmma_commit(w: Writer, call: Call, s: ir.Primitive) -> None:
    """After the last product of a group."""
    w.line(f"{w.use('wgmma_commit')}();")


def mma(w: Writer, call: Call, s: ir.Primitive) -> None:
    """One warp product."""
    acc, a, b = call["acc"], call["a"], call["b"]
    depth = len(a.index) * 2  # of 32 lanes and 16 rows
    name = w.use(f"mma_{call['dtype']}", lambda: prelude.mma(call["dtype"], depth))
    args = [f"{w.name(r.buffer)} + {_word(r)}" for r in (acc, a, b)]
    args.append(w.expr(call["accumulate"]))
    w.line(f"{name}({', '.join(args)});")


def _word(regs: Regs) -> int:
    """The register of the first of some elements: narrow ones are packed."""
    return regs.index[0] * min(regs.buffer.itemsize, 4) // 4


def fma(w: Writer, call: Call, s: ir.Primitive) -> None:
    """Multiply-adds of one thread: a loop that unrolls, or lines where numbers are irregular."""
    acc, a, b = call["acc"], call["a"], call["b"]
    if call["accumulate"] != 1:
        zeros = [f"{w.name(acc.buffer)}[{i}] = 0;" for i in sorted(set(acc.index))]
        w.line(f"if (!{w.expr(call['accumulate'])}) {{ {' '.join(zeros)} }}")
    spelled = {"f32": "fmaf({1}, {2}, {0})", "f64": "fma({1}, {2}, {0})"}
    kind = call["dtype"]
    form = "{0} = " + spelled.get(kind, f"add_{kind}(mul_{kind}({{1}}, {{2}}), {{0}})") + ";"
    helpers(w, form)
    names = [w.name(r.buffer) for r in (acc, a, b)]
    texts = [_index(r.index, "i") for r in (acc, a, b)]
    if any(t is None for t in texts):
        for numbers in zip(acc.index, a.index, b.index, strict=True):
            w.line(form.format(*(f"{n}[{i}]" for n, i in zip(names, numbers, strict=True))))
        return
    w.line("#pragma unroll")
    step = form.format(*(f"{n}[{t}]" for n, t in zip(names, texts, strict=True)))
    w.line(f"for (int i = 0; i < {len(acc.index)}; i++) {step}")


# -- registers --


def digits(numbers: Sequence[int]) -> list[tuple[int, int, int]] | None:
    """(size, radix, stride) per digit such that numbers[i] - numbers[0] is their sum, or None."""
    out: list[tuple[int, int, int]] = []
    size, count = 1, len(numbers)
    step = numbers[1] - numbers[0] if count > 1 else 0
    if step and tuple(numbers) == tuple(range(numbers[0], numbers[0] + count * step, step)):
        return [(1, count, step)]  # as most are: one after another
    while size < len(numbers):
        stride = numbers[size] - numbers[0]
        radix = 1
        while size * (radix + 1) <= len(numbers) and all(
            numbers[size * radix + j] - numbers[j] == stride * radix for j in range(size)
        ):
            radix += 1
        if radix == 1 or len(numbers) % (size * radix):
            return None
        out.append((size, radix, stride))
        size *= radix
    return out


def _index(numbers: Sequence[int], i: str) -> str | None:
    """An expression of the loop counter that gives the register numbers."""
    found = digits(numbers)
    if found is None:
        return None
    terms = []
    for size, radix, stride in found:
        digit = i if size == 1 else f"{i} / {size}"
        if size * radix < len(numbers):
            digit += f" % {radix}"
        if stride:
            terms.append(
                digit
                if stride == 1
                else f"{digit} * {stride}"
                if " " not in digit
                else f"({digit}) * {stride}"
            )
    if numbers[0] or not terms:
        terms.insert(0, str(numbers[0]))
    return " + ".join(terms)


def map_cells(w: Writer, call: Call, s: ir.Primitive) -> None:
    """A cell over registers: a loop that unrolls, or lines where numbers are irregular."""
    out: Regs = call["out"]
    ins: tuple[Regs, ...] = call["ins"]
    if call["cell"] == IDENTITY and _moved(w, out, ins[0]):
        return
    function = cell_function(w, call["cell"], tuple(r.buffer.dtype for r in ins))
    per = max(1, 4 // out.buffer.itemsize)
    indices = [_index(r.index, "i") for r in (out, *ins)]
    even = len(out.index) % per == 0
    if len(out.index) > per and even and all(i is not None for i in indices):
        w.line("#pragma unroll")
        step = "i++" if per == 1 else f"i += {per}"
        w.line(f"for (int i = 0; i < {len(out.index)}; {step})")
        w.depth += 1
        texts = [_shifted(r.index, per) for r in (out, *ins)]
        _assign(w, function, out, ins, texts, call)
        w.depth -= 1
        return
    for first in range(0, len(out.index), per):
        texts = [[str(n) for n in r.index[first : first + per]] for r in (out, *ins)]
        _assign(w, function, out, ins, texts, call)


def _moved(w: Writer, out: Regs, src: Regs) -> bool:
    """Move registers, or halves of them; False where that is no move of whole words."""
    per = max(1, 4 // out.buffer.itemsize)
    if src.buffer.dtype != out.buffer.dtype or per > 2 or len(out.index) % per:
        return False
    to, of = w.name(out.buffer), w.name(src.buffer)
    firsts, words = src.index[::per], [n // per for n in out.index[::per]]
    if per == 1 or (not any(n % 2 for n in firsts) and src.index[1::2] == _next(firsts)):
        source = [n // per for n in firsts]
        targets, sources = _index(words, "i"), _index(source, "i")
        if len(words) > 1 and targets is not None and sources is not None:
            w.line("#pragma unroll")
            w.line(f"for (int i = 0; i < {len(words)}; i++) {to}[{targets}] = {of}[{sources}];")
            return True
        for word, n in zip(words, source, strict=True):
            w.line(f"{to}[{word}] = {of}[{n}];")
        return True
    for word, low, high in zip(words, firsts, src.index[1::2], strict=True):
        picked = (0x76 if high % 2 else 0x54) << 8 | (0x32 if low % 2 else 0x10)
        w.line(f"{to}[{word}] = __byte_perm({of}[{low // 2}], {of}[{high // 2}], {picked:#06x});")
    return True


def _next(numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(n + 1 for n in numbers)


def _shifted(numbers: Sequence[int], per: int) -> list[str]:
    """Index texts of the `per` elements of one step."""
    return [_index(numbers, "i" if j == 0 else f"(i + {j})") or "0" for j in range(per)]


def _assign(
    w: Writer, function: str, out: Regs, ins: Sequence[Regs], texts: list[list[str]], call: Call
) -> None:
    values = [
        f"{function}({', '.join(w.element(r, t[j]) for r, t in zip(ins, texts[1:], strict=True))})"
        for j in range(len(texts[0]))
    ]
    w.line(_stored(w, out, texts[0][0], values))


def _stored(w: Writer, out: Regs, index: str, values: Sequence[str]) -> str:
    name, dtype = w.name(out.buffer), out.buffer.dtype
    per = 4 // out.buffer.itemsize
    if per <= 1:
        return f"{name}[{index}] = {values[0]};"
    values = [*values, *["0"] * per][:per]
    plain = index.isidentifier()
    place = index if plain else f"({index})"
    word = str(int(index) // per) if index.isdigit() else f"{place} / {per}"
    return f"{name}[{word}] = {w.use(f'pack_{dtype}')}({', '.join(values)});"


def cell_function(w: Writer, cell: Cell, dtypes: tuple[str, ...]) -> str:
    """A device function for a cell over operands of these dtypes, shared by equal cells."""
    key = ("cell", cell, dtypes)
    if key in w.cells:
        return w.cells[key]
    kinds = [cells.C_TYPE.get(result_dtype(Operand(i), dtypes), "") for i in range(len(dtypes))]
    if "" in kinds:
        known = " ".join(cells.C_TYPE)
        raise EmitError(f"map of {' '.join(dtypes)}", "has no CUDA registers", known)
    result = result_dtype(cell, dtypes)
    body = cells.function_body(cell, dtypes)
    helpers(w, body)
    name = f"cell_{len(w.cell_texts)}"
    args = ", ".join(f"{kind} x{i}" for i, kind in enumerate(kinds))
    shown = str(cell)
    shown = shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}..."
    w.cell_texts.append(
        f"// {shown}\n{prelude.DEVICE} {cells.C_TYPE[result]} {name}({args}) {{ {body} }}\n"
    )
    w.cells[key] = name
    return name


def fill(w: Writer, call: Call, s: ir.Primitive) -> None:
    """A constant in registers."""
    out: Regs = call["out"]
    if len(out.index) * out.buffer.itemsize < 4:
        w.line(filled(w, out, call["value"]))
        return
    value = constant(w, out.buffer.dtype, call["value"])
    words = words_of(w, out)
    w.line(f"{' = '.join(words)} = {value};" if len(words) <= 8 else _fill_loop(w, out, value))


def _fill_loop(w: Writer, out: Regs, value: str) -> str:
    per = max(1, 4 // out.buffer.itemsize)
    numbers = [i // per for i in out.index[::per]]
    index = _index(numbers, "i")
    if index is None:
        return " ".join(f"{word} = {value};" for word in words_of(w, out))
    w.line("#pragma unroll")
    return f"for (int i = 0; i < {len(numbers)}; i++) {w.name(out.buffer)}[{index}] = {value};"


def index(w: Writer, call: Call, s: ir.Primitive) -> None:
    """Positions in registers."""
    out: Regs = call["out"]
    name = w.name(out.buffer)
    for i, value in zip(out.index, call["values"], strict=True):
        w.line(f"{name}[{i}] = {w.expr(value)};")


def accumulate(w: Writer, call: Call, s: ir.Primitive) -> None:
    """Combine registers of one thread, long runs in parts: a chain waits for every step."""
    out, ins = call["out"], call["ins"]
    target = f"{w.name(out.buffer)}[{out.index[0]}]"
    n = len(ins.index)
    parts = PARTS if n % PARTS == 0 and n >= 4 * PARTS else 1
    runs = [ins.index[i::parts] for i in range(parts)]
    if parts == 1:
        _chain(w, call, target, runs[0])
        return
    with w.block():
        kind = w.register_type(out.buffer.dtype)
        names = [target, *(f"chain{i}" for i in range(1, parts))]
        w.line(f"{kind} {', '.join(names[1:])};")
        for name, run in zip(names, runs, strict=True):
            _chain(w, call, name, run)
        while len(names) > 1:
            for a, b in zip(names[::2], names[1::2], strict=True):
                w.line(f"{a} = {cells.combine(call['monoid'], a, b, out.buffer.dtype)};")
            names = names[::2]


def _chain(w: Writer, call: Call, target: str, run: Sequence[int]) -> None:
    """Combine registers in order."""
    ins, dtype = call["ins"], call["out"].buffer.dtype
    w.line(f"{target} = {w.element(ins, str(run[0]))};")
    rest = run[1:]
    index = _index(rest, "i") if len(rest) > 1 else None
    if index is not None:
        w.line("#pragma unroll")
        merged = cells.combine(call["monoid"], target, w.element(ins, index), dtype)
        w.line(f"for (int i = 0; i < {len(rest)}; i++) {target} = {merged};")
        helpers(w, merged)
        return
    for i in rest:
        merged = cells.combine(call["monoid"], target, w.element(ins, str(i)), dtype)
        helpers(w, merged)
        w.line(f"{target} = {merged};")


def shuffle(w: Writer, call: Call, s: ir.Primitive) -> None:
    """Combine with other lanes."""
    regs: Regs = call["regs"]
    dtype = regs.buffer.dtype
    function = w.use("shuffle_xor" if dtype == "f32" else f"shuffle_xor_{dtype}")
    for i in regs.index:
        x = f"{w.name(regs.buffer)}[{i}]"
        merged = cells.combine(call["monoid"], x, f"{function}({x}, {call['mask']})", dtype)
        helpers(w, merged)
        w.line(f"{x} = {merged};")


def ld_reduce(w: Writer, call: Call, s: ir.Primitive) -> None:
    """Read values that lie `step` apart in shared memory and combine them."""
    regs, count, step = call["regs"], call["count"], call["step"]
    kind, at, n = w.register_type(regs.buffer.dtype), call["address"], len(call["regs"].index)
    most = 16 // regs.buffer.itemsize
    words = n if n > 1 else most if step == 1 and count % most == 0 else 1
    name = prelude.access_name("ld", "shared", words, kind)
    w.use(name, lambda: prelude.access("ld", "shared", words, kind))
    with w.block():
        w.line(f"{kind} other[{count * n}];")
        for first in range(0, count * n, words):
            targets = ", ".join(f"other[{first + i}]" for i in range(words))
            place = Address(at.buffer, at.byte + first // n * step * regs.buffer.itemsize)
            w.line(f"{name}({targets}, {w.address(place)});")
        for i, register in enumerate(regs.index):
            parts = [f"other[{i + p * n}]" for p in range(count)]
            while len(parts) > 1:
                pairs = zip(parts[::2], parts[1::2], strict=False)
                rest = parts[len(parts) // 2 * 2 :]
                found = [cells.combine(call["monoid"], a, b, regs.buffer.dtype) for a, b in pairs]
                parts = found + rest
            helpers(w, parts[0])
            w.line(f"{w.name(regs.buffer)}[{register}] = {parts[0]};")


def sync(w: Writer, call: Call, s: ir.Primitive) -> None:
    """Barrier of the scope."""
    w.sync(w.where)


CALLS: Mapping[str, Callable[[Writer, Call, Any], None]] = {
    "ldmatrix": ldmatrix, "stmatrix": stmatrix, "tma_load": tma_load,
    "tma_load_multicast": tma_load_multicast,
    "tma_store": tma_store, "tma_merge": tma_merge,
    "cp_async": cp_async, "wgmma": wgmma, "wgmma_fence": wgmma_fence,
    "wgmma_commit": wgmma_commit, "mma": mma, "fma": fma, "map": map_cells, "fill": fill,
    "index": index, "accumulate": accumulate, "shuffle": shuffle, "ld_reduce": ld_reduce,
    "sync": sync, **memory_calls.CALLS,
}  # fmt: skip

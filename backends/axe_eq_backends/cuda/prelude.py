"""Device functions that emitted kernels use: one text per instruction, included where it is called.

Those that are the same in every kernel are C++ in `device/`. The texts need no header: kernels
compile alone. Instruction forms: PTX ISA 8.5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import resources

DEVICE = "__device__ __forceinline__"
# C type of a register -> constraint letter, bits, and the mark of its functions' names.
_REGISTERS = {
    "unsigned": ("r", 32, ""), "int": ("r", 32, "_i32"), "float": ("f", 32, "_f32"),
    "double": ("d", 64, "_f64"), "long long": ("l", 64, "_i64"),
}  # fmt: skip

_PART_BYTES = {"u16": 2, "u8": 1}
_SET_PART = {2: "set_half", 1: "set_byte"}


def _device(file: str, **words: object) -> dict[str, str]:
    """The functions of a file of `device/` by name; `words` stand for what ``${}`` marks in it."""
    text = _text(file)
    for word, means in words.items():
        text = text.replace(f"${{{word}}}", str(means))
    functions = [chunk.strip() for chunk in text.split("\n\n") if chunk.strip()]
    return {_NAME.search(function)[1]: function for function in functions}  # type: ignore[index]


@cache
def _text(file: str) -> str:
    """A file of `device/`, without comments."""
    text = resources.files(__package__).joinpath("device", f"{file}.cu").read_text(encoding="utf-8")
    return "".join(line for line in text.splitlines(True) if not line.startswith("//"))


_NAME = re.compile(r"(\w+)\(")

# What stands before all functions.
_DECLARED = {
    "TensorMap": "struct alignas(64) TensorMap { unsigned long long opaque[16]; };",
    "types": "typedef unsigned short f16;\ntypedef unsigned short bf16;",
    "INFINITY_F32": "#define INFINITY_F32 __int_as_float(0x7f800000)",
    "NAN_F32": "#define NAN_F32 __int_as_float(0x7fffffff)",
}
FIXED: dict[str, str] = {
    **_DECLARED,
    **_device("fixed"),
    **_device("floats", kind="f32", type="float", f="f"),
    **_device("floats", kind="f64", type="double", f=""),
    **_device("shuffles", name="xor", mode="bfly", number="mask", last=31),
    **_device("shuffles", name="up", mode="up", number="by", last=0),
    **_device("shuffles", name="from", mode="idx", number="lane", last=31),
}  # fmt: skip
for _kind, _type, _bare in (
    ("i32", "int", "unsigned int"), ("i64", "long long", "unsigned long long"),
    ("i8", "signed char", "unsigned int"), ("u8", "unsigned char", "unsigned int"),
    ("i16", "short", "unsigned int"),
):  # fmt: skip
    FIXED |= _device("integers", kind=_kind, type=_type, bare=_bare, bits=_kind[1:])

# Functions that a kernel with products has, whether a text calls them or not.
_OF_PRODUCTS = ("wgmma_fence", "wgmma_commit", "descriptor")


@cache
def _called(name: str) -> tuple[str, ...]:
    """What a fixed text calls beside itself."""
    body = FIXED[name].partition("{")[2]
    return tuple(n for n in FIXED if f"{n}(" in body)


def _operands(kind: str, names: Iterable[str], first: int) -> tuple[str, str]:
    names = list(names)
    places = ", ".join(f"%{first + i}" for i in range(len(names)))
    return places, ", ".join(f'"{kind}"({n})' for n in names)


def access(op: str, space: str, words: int, c_type: str, path: str = "") -> str:
    """A load or store of 1, 2 or 4 registers, at most 16 bytes.

    Args:
        op: "ld" or "st".
        space: "global", "shared" or "peer", the shared memory of a CTA of the cluster.
        words: registers.
        c_type: their C type.
        path: of global memory. "nc": the tensor is only read; without a place in L1
            (L1::no_allocate) rows and transposes were 3 to 5 % slower on an H200. "cs": what is
            stored is the first that caches give up.
    """
    letter, bits, _ = _REGISTERS[c_type]
    vector = f"b{bits}" if words == 1 else f"v{words}.b{bits}"
    names = [f"x{i}" for i in range(words)]
    pointer = "unsigned a" if space != "global" else ("const void* a" if op == "ld" else "void* a")
    address = "l" if space == "global" else "r"
    place = {"peer": "shared::cluster"}.get(space, space)
    where = f"{place}.{path}" if path else place
    function = access_name(op, space, words, c_type, path)
    clobber = ' : "memory"' if space != "global" or op == "st" else ""
    if op == "ld":
        args = ", ".join(f"{c_type}& {n}" for n in names)
        places, outs = _operands(f"={letter}", names, 0)
        form = f"ld.{where}.{vector} {_braced(places, words)}, [%{words}];"
        body = f'asm volatile("{form}" : {outs} : "{address}"(a){clobber});'
        return f"{DEVICE} void {function}({args}, {pointer}) {{\n  {body}\n}}"
    args = ", ".join(f"{c_type} {n}" for n in names)
    places, ins = _operands(letter, names, 1)
    form = f"st.{where}.{vector} [%0], {_braced(places, words)};"
    body = f'asm volatile("{form}" :: "{address}"(a), {ins}{clobber});'
    return f"{DEVICE} void {function}({pointer}, {args}) {{\n  {body}\n}}"


def some_elements(
    name: str, op: str, words: int, c_type: str, whole: str, part: str, begins: bool = False
) -> str:
    """A vector of global memory of which only some elements are inside: those are accessed.

    Args:
        name: of the function.
        op: "ld", which fills registers outside, or "st".
        words: registers.
        c_type: their C type.
        whole: function that accesses the vector.
        part: function that accesses one element; one of 1 or 2 bytes gives or takes its value.
        begins: some elements before those may be outside too.
    """
    load, n_bytes = op == "ld", _n_bytes(part, c_type)
    names, count = [f"x{i}" for i in range(words)], words * _REGISTERS[c_type][1] // 8 // n_bytes
    here = "before <= {} && " if begins else ""
    all_inside = f"{here.format(0)}inside >= {count}"
    arguments = ", ".join([*names, "a"] if load else ["a", *names])
    lines = [f"if ({all_inside}) return {whole}({arguments});"]
    places = [(f"a + {n * n_bytes}" if n else "a", f"{here.format(n)}inside > {n}")
              for n in range(count)]  # fmt: skip
    if load:
        lines += _elements(names, places, part, n_bytes, "fill")
    else:
        per = max(1, 4 // n_bytes)
        for n, (at, inside) in enumerate(places):
            shift = f" >> {8 * n_bytes * (n % per)}" if n % per else ""
            lines.append(f"if ({inside}) {part}({at}, {names[n // per]}{shift});")
    held = ", ".join(f"{c_type}{'&' if load else ''} {x}" for x in names)
    ends = "int inside, int before" if begins else "int inside"
    given = f"{held}, const char* a, {ends}, {c_type} fill" if load else f"char* a, {held}, {ends}"
    return _function(name, given, lines)


def _function(name: str, given: str, lines: Iterable[str]) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"{DEVICE} void {name}({given}) {{\n{body}}}"


def _n_bytes(part: str, c_type: str) -> int:
    """Bytes of the elements that a function accesses one of."""
    return _PART_BYTES.get(part.rpartition("_")[2], _REGISTERS[c_type][1] // 8)


def _elements(
    names: Sequence[str], places: Sequence[tuple[str, str]], part: str, n_bytes: int, fill: str
) -> list[str]:
    """Lines that read those elements whose conditions hold: all are on their way together.

    One after the other they were several us of a CTA.
    """
    per = max(1, 4 // n_bytes)
    if per == 1:
        lines = [f"{x} = {fill};" for x in names]
        pairs = zip(names, places, strict=True)
        return lines + [f"if ({inside}) {part}({x}, {at});" for x, (at, inside) in pairs]
    own = f"{fill} & {(1 << 8 * n_bytes) - 1:#x}u"
    lines = [f"unsigned {', '.join(f'e{n} = {own}' for n in range(len(places)))};"]
    lines += [f"if ({inside}) e{n} = {part}({at});" for n, (at, inside) in enumerate(places)]
    for i, x in enumerate(names):
        parts = (f"e{i * per + k} << {8 * n_bytes * k}" for k in range(1, per))
        lines.append(f"{x} = {' | '.join([f'e{i * per}', *parts])};")
    return lines


def of_row(name: str, words: int, c_type: str, n_bytes: int) -> str:
    """A vector that was read, with those of its elements filled that are beside a row.

    What waits for the vector is apart from what reads it, so that other reads come between.
    """
    count = words * _REGISTERS[c_type][1] // 8 // n_bytes
    lines = [f"if (before <= 0 && inside >= {count}) return;", *_filled(count, n_bytes)]
    held = ", ".join(f"{c_type}& x{i}" for i in range(words))
    return _function(name, f"{held}, int inside, int before, {c_type} fill", lines)


def apart_in_row(name: str, words: int, c_type: str, whole: str, part: str) -> str:
    """A vector that begins anywhere, with those of its elements filled that are beside a row.

    It is taken out of two aligned ones, if a tensor has what is needed of both: its elements from
    the vector's first one are those from `low` to `end`.

    Args:
        name: of the function.
        words: registers.
        c_type: their C type.
        whole: function that reads an aligned vector.
        part: function that reads an element.
    """
    n_bytes, size = _n_bytes(part, c_type), _REGISTERS[c_type][1] // 8
    width, n, names = words * size, words * size // n_bytes, [f"x{i}" for i in range(words)]
    first, second = ([f"w{i + k * words}" for i in range(words)] for k in range(2))
    lines = [
        *_aligned(width),
        f"const bool one = past + max(before, 0) * {n_bytes} < {width} && inside > 0;",
        f"const bool two = past + min(inside, {n}) * {n_bytes} > {width} && before < {n};",
        f"const int from = low * {n_bytes} + past, to = end * {n_bytes} + past;",
        f"if ((!one || (from <= 0 && to >= {width})) && "
        f"(!two || (from <= {width} && to >= {2 * width}))) {{",
        f"  {c_type} {', '.join([*first, *second])};",
        f"  {' = '.join(first)} = {' = '.join(second)} = 0;",
        f"  if (one) {whole}({', '.join([*first, 'at'])});",
        f"  if (two) {whole}({', '.join([*second, f'at + {width}'])});",
        *(f"  {line}" for line in _turned(names, size, n_bytes)),
        f"  if (before <= 0 && inside >= {n}) return;",
        *(f"  {line}" for line in _filled(n, n_bytes)),
        "  return;", "}",
    ]  # fmt: skip
    places = [(f"a + {i * n_bytes}", f"before <= {i} && inside > {i}") for i in range(n)]
    lines += _elements(names, places, part, n_bytes, "fill")
    held = ", ".join(f"{c_type}& {x}" for x in names)
    ends = f"int inside, int before, {c_type} fill, int low, int end"
    return _function(name, f"{held}, const char* a, {ends}", lines)


def _filled(count: int, n_bytes: int) -> list[str]:
    """Lines that fill those of so many elements that are before a row or behind it."""
    per, lines = max(1, 4 // n_bytes), []
    for n in range(count):
        x, own = f"x{n // per}", f"fill & {(1 << 8 * n_bytes) - 1:#x}u"
        left = f"{_SET_PART[n_bytes]}({x}, {n % per}, {own})" if per > 1 else f"{x} = fill"
        lines.append(f"if (before > {n} || inside <= {n}) {left};")
    return lines


def _aligned(width: int) -> list[str]:
    """Lines that round an address down to a vector of so many bytes."""
    at = f"const char* at = (const char*)((unsigned long long)a & ~{width - 1}ull);"
    return [at, "const int past = a - at;"]


def _turned(names: Sequence[str], size: int, n_bytes: int) -> list[str]:
    """Lines that take a vector out of two, from byte `past` on; without branches."""
    step, words = len(names) // 2, len(names)
    lines = []
    while step:
        moves = (f"w{i} = w{i + step};" for i in range(words + step))
        lines.append(f"if (past & {size * step}) {{ {' '.join(moves)} }}")
        step //= 2
    for i, x in enumerate(names):
        turned = f"__funnelshift_r(w{i}, w{i + 1}, past % 4 * 8)" if n_bytes < 4 else f"w{i}"
        lines.append(f"{x} = {turned};")
    return lines


def out_of_two(name: str, words: int, c_type: str, whole: str, n_bytes: int) -> str:
    """A vector that begins anywhere, of a tensor that has both aligned ones that hold it.

    Args:
        name: of the function.
        words: registers.
        c_type: their C type.
        whole: function that reads an aligned vector.
        n_bytes: of an element.
    """
    size = _REGISTERS[c_type][1] // 8
    width, names = words * size, [f"x{i}" for i in range(words)]
    held = [f"w{i}" for i in range(2 * words)]
    lines = [
        f"{c_type} {', '.join(held)};", *_aligned(width),
        f"{whole}({', '.join([*held[:words], 'at'])});",
        f"{whole}({', '.join([*held[words:], f'at + {width}'])});",
        *_turned(names, size, n_bytes),
    ]  # fmt: skip
    given = ", ".join(f"{c_type}& {x}" for x in names)
    return _function(name, f"{given}, const char* a", lines)


def access_name(op: str, space: str, words: int, c_type: str, path: str = "") -> str:
    """The name of `access`'s function."""
    kind = _REGISTERS[c_type][2]
    return f"{op}_{space}{'' if words == 1 else f'_v{words}'}{kind}{f'_{path}' if path else ''}"


def _braced(places: str, words: int) -> str:
    return places if words == 1 else "{" + places + "}"


def tma_load(rank: int, multicast: bool = False) -> str:
    """A bulk tensor load that completes on a barrier, of each CTA in a mask if it is multicast."""
    coords = ", ".join(f"int c{i}" for i in range(rank))
    places, ins = _operands("r", (f"c{i}" for i in range(rank)), 4 if multicast else 3)
    name, kind, given, mask, form = f"tma_load_{rank}d", "", "", "", ""
    if multicast:
        name, kind, given = f"tma_load_multicast_{rank}d", ".multicast::cluster", "int ctas, "
        mask, form = '"h"((unsigned short)ctas), ', ", %3"
    return f"""{DEVICE} void {name}(unsigned to, const TensorMap* map, unsigned barrier,
    {given}{coords}) {{
  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
               "{kind} [%0], [%1, {{{places}}}], [%2]{form};"
               :: "r"(to), "l"(map), "r"(barrier), {mask}{ins} : "memory");
}}"""


MERGED_BY = {"+": "add", "max": "max", "min": "min"}  # as memory merges


def merge_global(by: str, dtype: str) -> str:
    """A word in global memory, of any device, that is merged with a register."""
    kind = {"f16": "noftz.f16x2", "bf16": "noftz.bf16x2", "i32": "s32"}[dtype]
    c_type = "int" if dtype == "i32" else "unsigned"
    form = f"red.relaxed.sys.global.{by}.{kind} [%0], %1;"
    body = f'asm volatile("{form}" :: "l"(a), "r"(x) : "memory");'
    return f"{DEVICE} void {by}_global_{dtype}(void* a, {c_type} x) {{\n  {body}\n}}"


def tma_store(rank: int, by: str = "") -> str:
    """A bulk tensor store that completes with its group; `by` merges it with what is there."""
    how = f"reduce.async.bulk.tensor.{rank}d.global.shared::cta.{by}.tile" if by else ""
    how = how or f"async.bulk.tensor.{rank}d.global.shared::cta"
    coords = ", ".join(f"int c{i}" for i in range(rank))
    places, ins = _operands("r", (f"c{i}" for i in range(rank)), 2)
    name = f"tma_{by or 'store'}_{rank}d"
    return f"""{DEVICE} void {name}(const TensorMap* map, unsigned from, {coords}) {{
  asm volatile("cp.{how}.bulk_group"
               " [%0, {{{places}}}], [%1];" :: "l"(map), "r"(from), {ins} : "memory");
}}"""


def wgmma(n: int, k: int, dtype: str, trans_a: int, trans_b: int, from_registers: bool) -> str:
    """One warpgroup product; d is the accumulator fragment of n / 2 registers, rows may be four."""
    count = n // 2
    d = _wrapped([f"%{i}" for i in range(count)], 16, ', "\n               "')
    outs = _wrapped([f'"+f"(d[{i}])' for i in range(count)], 6, ",\n                 ")
    rows = 4 if from_registers else 1
    a = ", ".join(f"%{count + i}" for i in range(rows))
    b, keep = (f"%{count + rows + i}" for i in range(2))
    flags = f"{trans_b}" if from_registers else f"{trans_a}, {trans_b}"
    words = ", ".join(f'"r"(a[{i}])' for i in range(rows))
    given = words if from_registers else '"l"(a)'
    kind = "const unsigned*" if from_registers else "unsigned long long"
    name = wgmma_name(n, dtype, trans_a, trans_b, from_registers)
    return f"""{DEVICE} void {name}(
    float* d, {kind} a, unsigned long long b, int keep) {{
  asm volatile("{{\\n.reg .pred keep;\\nsetp.ne.b32 keep, {keep}, 0;\\n"
               "wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{dtype}.{dtype} {{"
               "{d}}}, "
               "{f"{{{a}}}" if from_registers else a}, {b}, keep, 1, 1, {flags};\\n}}"
               : {outs} : {given}, "l"(b), "r"(keep));
}}"""


def _wrapped(items: Sequence[str], per_line: int, between: str) -> str:
    """Items with commas, some on each line."""
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return between.join(lines)


def wgmma_name(n: int, dtype: str, trans_a: int, trans_b: int, from_registers: bool) -> str:
    """The name of `wgmma`'s function."""
    marks = ("_ra" if from_registers else "") + ("_ta" if trans_a else "")
    return f"wgmma_n{n}_{dtype}{marks}" + ("_tb" if trans_b else "")


def matrix(op: str, count: int, trans: bool) -> str:
    """Matrix loads or stores (ldmatrix, stmatrix) of 1, 2 or 4 matrices."""
    names = [f"x{i}" for i in range(count)]
    suffix = ".trans" if trans else ""
    if op == "ldmatrix":
        places, outs = _operands("=r", names, 0)
        args = ", ".join(f"unsigned& {n}" for n in names)
        form = f"ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 {{{places}}}, [%{count}];"
        body = f'asm volatile("{form}" : {outs} : "r"(a) : "memory");'
        return f"{DEVICE} void {matrix_name(op, count, trans)}({args}, unsigned a) {{\n  {body}\n}}"
    places, ins = _operands("r", names, 1)
    args = ", ".join(f"unsigned {n}" for n in names)
    form = f"stmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 [%0], {{{places}}};"
    body = f'asm volatile("{form}" :: "r"(a), {ins} : "memory");'
    return f"{DEVICE} void {matrix_name(op, count, trans)}(unsigned a, {args}) {{\n  {body}\n}}"


def matrix_name(op: str, count: int, trans: bool) -> str:
    """The name of `matrix`'s function."""
    return f"{op}_x{count}" + ("_trans" if trans else "")


def mma(dtype: str, k: int) -> str:
    """One warp product m16n8k<k>."""
    wide = dtype == "f64"
    acc, sums, word = ("f64", "double", "double") if wide else ("f32", "float", "unsigned")
    words = k // 2 if wide else k // 4  # of a; b has half as many rows
    d, given_d = _operands(f"+{_REGISTERS[sums][0]}", (f"d[{i}]" for i in range(4)), 0)
    kind = _REGISTERS[word][0]
    a, given_a = _operands(kind, (f"a[{i}]" for i in range(words)), 4)
    b, given_b = _operands(kind, (f"b[{i}]" for i in range(words // 2)), 4 + words)
    return f"""{DEVICE} void mma_{dtype}({sums}* d, const {word}* a, const {word}* b, int keep) {{
  if (!keep) d[0] = d[1] = d[2] = d[3] = 0;
  asm volatile("mma.sync.aligned.m16n8k{k}.row.col.{acc}.{dtype}.{dtype}.{acc} "
               "{{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};"
               : {given_d}
               : {given_a}, {given_b});
}}"""


def cp_async(n_bytes: int) -> str:
    """An ordinary async copy of 4, 8 or 16 bytes; zeros where `inside` fails."""
    path = "cg" if n_bytes == 16 else "ca"
    return f"""{DEVICE} void cp_async_{n_bytes}(unsigned to, const void* from, bool inside) {{
  asm volatile("cp.async.{path}.shared.global [%0], [%1], {n_bytes}, %2;"
               :: "r"(to), "l"(from), "r"(inside ? {n_bytes} : 0) : "memory");
}}"""


def collect(used: dict[str, Callable[[], str]]) -> str:
    """The texts of all used functions with what they need, each once."""
    texts: dict[str, str] = {n: FIXED[n] for n in _DECLARED if n in used}

    def include(name: str) -> None:
        for needed in _called(name):
            include(needed)
        texts.setdefault(name, FIXED[name])

    for name, make in used.items():
        if name in FIXED:
            include(name)
            continue
        for needed in _OF_PRODUCTS if name.startswith("wgmma") else ():
            include(needed)
        texts.setdefault(name, make())
    return "\n".join(texts.values()) + "\n"

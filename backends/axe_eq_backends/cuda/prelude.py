"""Device functions that emitted kernels use: one text per instruction, included where it is called.

The texts need no header: kernels compile alone. Instruction forms: PTX ISA 8.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

DEVICE = "__device__ __forceinline__"
_WORDS = {1: ("b32", "{%s}"), 2: ("v2.b32", "{%s}"), 4: ("v4.b32", "{%s}")}

FIXED: dict[str, str] = {
    "TensorMap": "struct alignas(64) TensorMap { unsigned long long opaque[16]; };",
    "types": "typedef unsigned short f16;\ntypedef unsigned short bf16;",
    "INFINITY_F32": "#define INFINITY_F32 __int_as_float(0x7f800000)",
    "NAN_F32": "#define NAN_F32 __int_as_float(0x7fffffff)",
    "shared_address": DEVICE + """ unsigned shared_address(const void* p) {
  unsigned a;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
  return a;
}""",
    "barrier_init": DEVICE + """ void barrier_init(unsigned b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(b), "r"(arrivals) : "memory");
}""",
    "barrier_expect": DEVICE + """ void barrier_expect(unsigned b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(b), "r"(bytes) :
  "memory");
}""",
    "barrier_arrive": DEVICE + """ void barrier_arrive(unsigned b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(b) : "memory");
}""",
    "barrier_wait": DEVICE + """ void barrier_wait(unsigned b, unsigned parity) {
  asm volatile("{\\n.reg .pred done;\\nagain:\\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n"
               "@done bra over;\\nbra again;\\nover:\\n}" :: "r"(b), "r"(parity) : "memory");
}""",
    "f32_from_f16": DEVICE + """ float f32_from_f16(unsigned half) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)half));
  return x;
}""",
    "get_f16": DEVICE + """ float get_f16(const unsigned* x, int i) {
  return f32_from_f16(x[i >> 1] >> ((i & 1) * 16));
}""",
    "get_bf16": DEVICE + """ float get_bf16(const unsigned* x, int i) {
  return __uint_as_float(i & 1 ? x[i >> 1] & 0xffff0000u : x[i >> 1] << 16);
}""",
    "pack_f16": DEVICE + """ unsigned pack_f16(float low, float high) {
  unsigned x;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}""",
    "pack_bf16": DEVICE + """ unsigned pack_bf16(float low, float high) {
  unsigned x;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}""",
    "round_f16": DEVICE + """ float round_f16(float x) {
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
  return x;
}""",
    "round_bf16": DEVICE + """ float round_bf16(float x) {
  unsigned short half;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return __uint_as_float((unsigned)half << 16);
}""",
    "max_f32": DEVICE + """ float max_f32(float a, float b) {
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
  return a;
}""",
    "min_f32": DEVICE + """ float min_f32(float a, float b) {
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
  return a;
}""",
    "exp_f32": DEVICE + """ float exp_f32(float x) {
  // Relative error below 1e-5 over the whole range: that of the rounded exponent.
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(x * 1.4426950408889634f));
  return x;
}""",
    "div_f32": DEVICE + """ float div_f32(float a, float b) {
  asm("div.full.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
  return a;
}""",
    "set_half": DEVICE + """ void set_half(unsigned& word, int high, unsigned half) {
  word = high ? (word & 0xffffu) | half << 16 : (word & 0xffff0000u) | half;
}""",
    "fence_async": DEVICE + """ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}""",
    "wgmma_fence": DEVICE + """ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}""",
    "wgmma_commit": DEVICE + """ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}""",
    "descriptor": DEVICE + """ unsigned long long descriptor(unsigned start, unsigned long long
    form) {
  return (unsigned long long)((start & 0x3FFFF) >> 4) | form;
}""",
    "shuffle_xor": DEVICE + """ float shuffle_xor(float x, int mask) {
  asm volatile("shfl.sync.bfly.b32 %0, %0, %1, 31, 0xffffffff;" : "+f"(x) : "r"(mask));
  return x;
}""",
    "shuffle_xor_i32": DEVICE + """ int shuffle_xor_i32(int x, int mask) {
  asm volatile("shfl.sync.bfly.b32 %0, %0, %1, 31, 0xffffffff;" : "+r"(x) : "r"(mask));
  return x;
}""",
    "ld_global_u16": DEVICE + """ unsigned ld_global_u16(const void* p) {
  unsigned short x;
  asm volatile("ld.global.b16 %0, [%1];" : "=h"(x) : "l"(p));
  return x;
}""",
    "st_global_u16": DEVICE + """ void st_global_u16(void* p, unsigned x) {
  asm volatile("st.global.b16 [%0], %1;" :: "l"(p), "h"((unsigned short)x) : "memory");
}""",
    "ld_shared_u16": DEVICE + """ unsigned ld_shared_u16(unsigned a) {
  unsigned short x;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(x) : "r"(a) : "memory");
  return x;
}""",
    "st_shared_u16": DEVICE + """ void st_shared_u16(unsigned a, unsigned x) {
  asm volatile("st.shared.b16 [%0], %1;" :: "r"(a), "h"((unsigned short)x) : "memory");
}""",
}  # fmt: skip

DECLARATIONS = ("TensorMap", "types", "INFINITY_F32", "NAN_F32")  # stand before all functions

# What a text calls beside itself.
NEEDS: dict[str, tuple[str, ...]] = {
    "get_f16": ("f32_from_f16",),
    "wgmma": ("wgmma_fence", "wgmma_commit", "descriptor"),
}


def _operands(kind: str, names: Iterable[str], first: int) -> tuple[str, str]:
    names = list(names)
    places = ", ".join(f"%{first + i}" for i in range(len(names)))
    return places, ", ".join(f'"{kind}"({n})' for n in names)


def access(op: str, space: str, words: int, c_type: str, cached: bool = True) -> str:
    """A load or store of 1, 2 or 4 registers of type unsigned, int or float.

    Args:
        op: "ld" or "st".
        space: "global" or "shared".
        words: registers.
        c_type: their C type.
        cached: False for tensors that are only read: the non-coherent path without L1 allocation.
    """
    letter = "f" if c_type == "float" else "r"
    names = [f"x{i}" for i in range(words)]
    pointer = "unsigned a" if space == "shared" else ("const void* a" if op == "ld" else "void* a")
    address = "r" if space == "shared" else "l"
    path = "" if cached or space == "shared" else ".nc.L1::no_allocate"
    function = access_name(op, space, words, c_type, cached)
    clobber = ' : "memory"' if space == "shared" or op == "st" else ""
    if op == "ld":
        args = ", ".join(f"{c_type}& {n}" for n in names)
        places, outs = _operands(f"={letter}", names, 0)
        form = f"ld.{space}{path}.{_WORDS[words][0]} {_braced(places, words)}, [%{words}];"
        body = f'asm volatile("{form}" : {outs} : "{address}"(a){clobber});'
        return f"{DEVICE} void {function}({args}, {pointer}) {{\n  {body}\n}}"
    args = ", ".join(f"{c_type} {n}" for n in names)
    places, ins = _operands(letter, names, 1)
    form = f"st.{space}.{_WORDS[words][0]} [%0], {_braced(places, words)};"
    body = f'asm volatile("{form}" :: "{address}"(a), {ins}{clobber});'
    return f"{DEVICE} void {function}({pointer}, {args}) {{\n  {body}\n}}"


def access_name(op: str, space: str, words: int, c_type: str, cached: bool = True) -> str:
    """The name of `access`'s function."""
    kind = {"unsigned": "", "int": "_i32", "float": "_f32"}[c_type]
    path = "" if cached or op == "st" or space == "shared" else "_once"
    return f"{op}_{space}{'' if words == 1 else f'_v{words}'}{kind}{path}"


def _braced(places: str, words: int) -> str:
    return places if words == 1 else "{" + places + "}"


def tma_load(rank: int) -> str:
    """A bulk tensor load that completes on a barrier."""
    coords = ", ".join(f"int c{i}" for i in range(rank))
    places, ins = _operands("r", (f"c{i}" for i in range(rank)), 3)
    return f"""{DEVICE} void tma_load_{rank}d(unsigned to, const TensorMap* map, unsigned barrier,
    {coords}) {{
  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1, {{{places}}}], [%2];"
               :: "r"(to), "l"(map), "r"(barrier), {ins} : "memory");
}}"""


def tma_store(rank: int) -> str:
    """A bulk tensor store that completes with its group."""
    coords = ", ".join(f"int c{i}" for i in range(rank))
    places, ins = _operands("r", (f"c{i}" for i in range(rank)), 2)
    return f"""{DEVICE} void tma_store_{rank}d(const TensorMap* map, unsigned from, {coords}) {{
  asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group"
               " [%0, {{{places}}}], [%1];" :: "l"(map), "r"(from), {ins} : "memory");
}}"""


def wgmma(n: int, k: int, dtype: str, trans_a: int, trans_b: int) -> str:
    """One warpgroup product; d is the accumulator fragment of n / 2 registers."""
    count = n // 2
    d = ", ".join(f"%{i}" for i in range(count))
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    a, b, keep = (f"%{count + i}" for i in range(3))
    return f"""{DEVICE} void {wgmma_name(n, dtype, trans_a, trans_b)}(float* d, unsigned long long
    a, unsigned long long b, int keep) {{
  asm volatile("{{\\n.reg .pred keep;\\nsetp.ne.b32 keep, {keep}, 0;\\n"
               "wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{dtype}.{dtype} {{{d}}}, "
               "{a}, {b}, keep, 1, 1, {trans_a}, {trans_b};\\n}}"
               : {outs} : "l"(a), "l"(b), "r"(keep));
}}"""


def wgmma_name(n: int, dtype: str, trans_a: int, trans_b: int) -> str:
    """The name of `wgmma`'s function."""
    return f"wgmma_n{n}_{dtype}" + ("_ta" if trans_a else "") + ("_tb" if trans_b else "")


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


def mma(dtype: str) -> str:
    """One warp product m16n8k16."""
    return f"""{DEVICE} void mma_{dtype}(float* d, const unsigned* a, const unsigned* b, int keep)
    {{
  if (!keep) d[0] = d[1] = d[2] = d[3] = 0.0f;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32 "
               "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
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
    texts: dict[str, str] = {n: FIXED[n] for n in DECLARATIONS if n in used}

    def include(name: str) -> None:
        for needed in NEEDS.get(name, ()):
            include(needed)
        texts.setdefault(name, FIXED[name])

    for name, make in used.items():
        if name in FIXED:
            include(name)
        else:
            for needed in NEEDS.get(name.partition("_")[0], ()):
                include(needed)
            texts.setdefault(name, make())
    return "\n".join(texts.values()) + "\n"

"""Planned kernels as CUDA C++ text: pure, deterministic, readable, and complete without headers.

All decisions were made in dispatch; this writes control flow, and one text per instruction call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from axe_eq.errors import EmitError
from axe_eq.kernel import dispatch
from axe_eq.kernel.expr import Expr, Int, Var, substitute, text, variables
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.kernel.threads.plan import Address, Regs
from axe_eq_backends.cuda import prelude
from axe_eq_backends.cuda.families import texts
from axe_eq_backends.cuda.held import Held, held_registers
from axe_eq_backends.cuda.memory_calls import is_large
from axe_eq_backends.cuda.sizes import begins_late
from axe_eq_backends.cuda.tensor_map import TensorMap

LARGE_CTA = 512
SPELL = {"//": "/", "and": "&&"}
_C_TYPES = {
    "bool": "unsigned char", "f8e4m3": "unsigned char", "f8e5m2": "unsigned char", "f16": "f16",
    "bf16": "bf16", "f32": "float", "f64": "double", "i8": "signed char", "u8": "unsigned char",
    "i16": "short", "i32": "int", "i64": "long long",
}  # fmt: skip
_WHOLE_REGISTERS = ("float", "int", "double", "long long")
_HOLDS = dict(zip(_WHOLE_REGISTERS, ("hold_f32", "hold_i32", "hold_f64", "hold_i64"), strict=True))
# Words of the language, and what every kernel's text declares or reads.
_WORDS = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t",
    "char16_t char32_t class co_await co_return co_yield compl concept const const_cast",
    "consteval constexpr constinit continue decltype default delete do double dynamic_cast",
    "else enum explicit export extern false float for friend goto if inline int long mutable",
    "namespace new noexcept not not_eq nullptr operator or or_eq private protected public",
    "register reinterpret_cast requires return short signed sizeof static static_assert",
    "static_cast struct switch template this thread_local throw true try typedef typeid",
    "typename union unsigned using virtual void volatile wchar_t while xor xor_eq threadIdx",
    "blockIdx blockDim gridDim warpSize __syncthreads __syncwarp __byte_perm __int_as_float",
    "lane warp thread cta n_ctas rank smem smem_bytes group f16 bf16 min max fma fmaf i",
    "chain1 chain2 chain3 other main",
)
_RESERVED = frozenset(word for line in _WORDS for word in line.split())
# Functions that are written as they are called; none of their names ends in an underscore.
_WORD = re.compile(r"[A-Za-z_]\w*")
_CONSTANT = re.compile(r"\s*const (?:int|long long) (\w+) = ")
_FUNCTION = re.compile(r"(ld|st|tma|wgmma|mma|ldmatrix|stmatrix|cp_async|cell)_\w*[^_]|scan_\w*\d")


@dataclass(frozen=True)
class Argument:
    """One kernel argument: a tensor map, a pointer, or a run-time integer."""

    kind: str
    name: str
    map: TensorMap | None = None


@dataclass(frozen=True)
class Source:
    """An emitted kernel.

    Attributes:
        name: entry point.
        text: CUDA C++, complete.
        arguments: in the order of the entry point's parameters.
        n_threads: threads of one CTA.
        smem_bytes: dynamic shared memory, alignment slack included.
    """

    name: str
    text: str
    arguments: tuple[Argument, ...]
    n_threads: int
    smem_bytes: int


def emit(planned: Planned) -> Source:
    """Write a planned kernel.

    Raises:
        EmitError: a dtype or a cell without a CUDA spelling.
    """
    return Writer(planned).source()


def identifier(name: str) -> str:
    """A C identifier for a name of the kernel."""
    clean = re.sub(r"\W", _as_letters, name, flags=re.ASCII)
    if not clean or re.match(r"\d|__|_[A-Z]", clean):  # no name, or one of the compiler's
        clean = f"n{clean}"
    return f"{clean}_" if _is_taken(clean) else clean


def _as_letters(found: re.Match[str]) -> str:
    """What stands for a character that no identifier has: other letters stay apart."""
    return "_" if found[0].isascii() else f"u{ord(found[0]):x}"


def _is_taken(name: str) -> bool:
    return name in _RESERVED or name in prelude.FIXED or bool(_FUNCTION.fullmatch(name))


class Writer:
    """Text of one kernel while it is written."""

    def __init__(self, planned: Planned) -> None:
        self.planned, self.kernel = planned, planned.kernel
        self.texts = texts()
        self.lines: list[str] = []
        self.waiting: list[str] = []  # lines that wait for what was read, see `later`
        self.depth = 1
        self.used: dict[str, Callable[[], str]] = {}
        self.cells: dict[tuple[object, ...], str] = {}
        self.cell_texts: list[str] = []
        self.names: dict[int, str] = {}
        self.where = ir.Where("cta", self.kernel.n_warps)
        self.n_descriptors = 0
        self.held = held_registers(self.kernel)
        self._claim_names()
        self.assigned = {s.var.name for s, _ in ir.walk(self.kernel) if isinstance(s, ir.Assign)}

    # -- names, expressions, helpers for calls --

    def _claim_names(self) -> None:
        kernel = self.kernel
        taken = self.taken = set[str]()
        for v in dispatch.variables(kernel):
            # Short loops over registers have an i of their own and use no other.
            if identifier(v.name) != v.name and v.name != "i":
                raise EmitError(
                    f"variable {v.name!r}", "is no name of CUDA C++", "another name",
                    at=self._declared_at(v),
                )  # fmt: skip
            taken.add(v.name)
        self.map_names = {wanted: self._claim(wanted) for wanted in self.planned.resources}
        things = [(id(b), b.name) for b in kernel.tensors + kernel.buffers]
        for number, wanted in things + [(id(b), b.name) for b in kernel.barriers]:
            self.names[number] = self._claim(wanted)

    def _claim(self, wanted: str) -> str:
        """A C name for what the kernel calls so, which nothing else has."""
        name = identifier(wanted)
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _declared_at(self, v: Var) -> str:
        found = (s.at for s, _ in ir.walk(self.kernel) if getattr(s, "var", None) is v)
        return next(found, "")

    def name(self, thing: ir.Buffer | ir.MBarrier) -> str:
        """The C name of a buffer or barrier array."""
        return self.names[id(thing)]

    def map_name(self, tensor_map: TensorMap) -> str:
        """The C name of a tensor map."""
        name = self.planned.name_of(tensor_map)
        if name not in self.map_names:  # of a plan that was changed since
            self.map_names[name] = self._claim(name)
        return self.map_names[name]

    def descriptor_name(self, buffer: ir.Buffer) -> str:
        """A C name for a matrix descriptor of a part of a buffer."""
        self.n_descriptors += 1
        while (name := f"{self.name(buffer)}_{self.n_descriptors}") in self.taken:
            self.n_descriptors += 1
        return name

    def use(self, name: str, make: Callable[[], str] | None = None) -> str:
        """Include a device function; its name."""
        self.used.setdefault(name, make or (lambda: ""))
        return name

    def line(self, content: str) -> None:
        """One line at the present depth."""
        self.lines.append("  " * self.depth + content)

    def later(self, content: str) -> None:
        """A line that stands behind the loads of global memory that follow."""
        self.waiting.append(content)

    def _waited(self) -> None:
        """What was to come later."""
        for content in self.waiting:
            self.line(content)
        self.waiting = []

    @contextmanager
    def block(self, head: str = "{", tail: str = "}") -> Iterator[None]:
        """What is written meanwhile stands between these lines, one deeper."""
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1
        self.line(tail)

    def expr(self, e: Int) -> str:
        """An integer expression."""
        return text(e, SPELL)

    def wide(self, e: Int) -> str:
        """An integer expression in 64 bits."""
        if not isinstance(e, Expr):
            return f"{e}ll"
        cast = {
            v.name: Var(name=f"(long long){v.name}", divisor=v.divisor, low=v.low, high=v.high)
            for v in variables(e)
        }
        return text(substitute(e, cast), SPELL)

    def address(self, a: Address) -> str:
        """A shared-memory address."""
        if a.byte == 0:
            return self.name(a.buffer)
        # In C, + binds tighter than the ^ of a swizzled offset: the buffer's own address must not
        # be swizzled with it.
        loose = isinstance(a.byte, Expr) and a.byte.op == "^"
        offset = f"({self.expr(a.byte)})" if loose else self.expr(a.byte)
        return f"{self.name(a.buffer)} + {offset}"

    def slot(self, barrier: ir.MBarrier, slot: Int) -> str:
        """The address of a barrier slot."""
        offset = slot * 8
        return self.name(barrier) + (f" + {self.expr(offset)}" if offset != 0 else "")

    def c_type(self, dtype: str) -> str:
        """The C type of an element in memory."""
        if dtype not in _C_TYPES:
            raise EmitError(f"dtype {dtype}", "has no CUDA storage here", " ".join(_C_TYPES))
        return _C_TYPES[dtype]

    def register_type(self, dtype: str) -> str:
        """The C type of one register: narrower elements are packed in unsigned words."""
        kind = self.c_type(dtype)
        return kind if kind in _WHOLE_REGISTERS else "unsigned"

    def element(self, regs: Regs, index: str) -> str:
        """One element of a register tile, in its accumulation dtype."""
        name, dtype = self.name(regs.buffer), regs.buffer.dtype
        if regs.buffer.itemsize < 4:
            return f"{self.use(f'get_{dtype}')}({name}, {index})"
        return f"{name}[{index}]"

    # -- the whole --

    def source(self) -> Source:
        """Everything, in order."""
        kernel = self.kernel
        self._body(kernel.body, self.where)
        body = _without_unread(self.lines)
        arguments = self._arguments()
        self.lines = []
        self._prologue(arguments, body)
        parameters = ",\n    ".join(self._parameter(a) for a in arguments)
        bounds = f"__launch_bounds__({kernel.n_threads}{self._residency()})"
        if kernel.cluster > 1:
            bounds += f" __cluster_dims__({kernel.cluster}, 1, 1)"
        head = (
            f'extern "C" __global__ void {bounds}\n{identifier(kernel.name)}(\n    {parameters}) {{'
        )
        functions = prelude.collect(self.used) + "".join(self.cell_texts)
        code = "\n".join([self._comment() + functions, head, *self.lines, *body, "}", ""])
        return Source(
            identifier(kernel.name), code, arguments, kernel.n_threads, kernel.launch_smem_bytes
        )

    def _residency(self) -> str:
        """CTAs of an SM that its registers are divided among; "" leaves that to ptxas.

        Where that is left to it, ptxas reads later to hold less: of 4 vectors of 16 bytes 2 are
        under way at once, and a kernel that waits for memory takes twice as long.
        ptxas spills to fit more CTAs. Large ones are alone for their registers; products gain
        nothing by company (0.99 to 1.01 of the time on an H200), nor do f64 cells, whose
        subroutines take most of what there is.
        """
        if self.kernel.resident:
            return f", {self.kernel.resident}"
        alone = self._has_roles() or self.kernel.n_threads >= LARGE_CTA
        steps = (s for s, _ in ir.walk(self.kernel))
        return ", 1" if alone or any(map(_wants_registers, steps)) else ""

    def _comment(self) -> str:
        n = self.kernel.cluster
        clusters = f", clusters of {n} CTAs" if n > 1 else ""
        count = f"{self.kernel.n_warps} warps, {self.kernel.tiles} tiles{clusters}"
        lines = [f"{self.kernel.name}: {count}"]
        for b in self.kernel.tensors + self.kernel.buffers:
            shape = "x".join(map(str, b.shape))
            lines.append(f"{b.memory} {self.name(b)} {b.dtype}[{shape}] = {b.place}")
        return "".join(f"// {line}\n" for line in lines)

    def _arguments(self) -> tuple[Argument, ...]:
        held = {n: r for n, r in self.planned.resources.items() if isinstance(r, TensorMap)}
        mapped = {m.buffer for m in held.values()}
        pointed = {
            c["tensor"]
            for choice in self.planned.choices.values()
            for c in choice.plan.calls
            if "tensor" in c.args
        }
        maps = [Argument("map", n, m) for n, m in held.items()]
        pointers = [
            Argument("pointer", t.name)
            for t in self.kernel.tensors
            if t in pointed or t not in mapped
        ]
        return (*maps, *pointers, *(Argument("int", p.name) for p in self.kernel.params))

    def _parameter(self, argument: Argument) -> str:
        if argument.kind == "map":
            self.use("TensorMap")
            return f"const __grid_constant__ TensorMap {self.map_names[argument.name]}"
        if argument.kind == "int":
            return f"const int {identifier(argument.name)}"
        tensor = self.kernel.tensor(argument.name)
        self.use("types")
        const = "" if argument.name in self.kernel.outputs else "const "
        return f"{const}{self.c_type(tensor.dtype)}* __restrict__ {self.name(tensor)}"

    def _prologue(self, arguments: Sequence[Argument], body: Sequence[str]) -> None:
        self._constants(body)
        self._init_barriers(arguments)
        # Kernels of one stream follow each other without a gap: CTAs start where there is room,
        # and wait here for the memory of the kernel before.
        if self.kernel.persistent or not begins_late(self.kernel.tiles):
            self.line(f"{self.use('kernel_start')}();")
        if not self._has_roles():
            self._declare_registers(self.kernel.body)

    def _constants(self, body: Sequence[str]) -> None:
        """Declare the numbers of the thread and places in shared memory, as far as they are read.

        NVRTC warns of others.
        """
        places = [(self.name(b), b.offset) for b in self.kernel.buffers if b.memory == "smem"]
        places += [(self.name(b), b.offset) for b in self.kernel.barriers]
        align = self.kernel.smem_alignment
        aligned = f"(shared_address(smem_bytes) + {align - 1}) & ~{align - 1}u"
        first = aligned if align > 16 else "shared_address(smem_bytes)"
        roles = self._has_roles()
        # A shuffle tells the compiler that it is the same in a warp: what loops of roles count lies
        # in registers of the whole warp then, which matrix units and bulk copies read.
        group = [("group", "__shfl_sync(0xffffffff, thread >> 7, 0)")] if roles else []
        lines: list[str] = []
        read = _words(body)
        if self.kernel.barriers:  # one thread initialises them
            read.update(["thread", *(self.name(b) for b in self.kernel.barriers)])
        for kind, values in reversed([
            ("unsigned", [("smem", first)]),
            *(("unsigned", [(name, f"smem + {offset}")]) for name, offset in places),
            ("int", [("thread", "threadIdx.x"), ("lane", "thread & 31")]),
            ("int", [*group, ("warp", "thread >> 5 & 3" if roles else "thread >> 5")]),
            ("int", [("cta", "blockIdx.x"), ("n_ctas", "gridDim.x")]),
            ("int", [(ir.RANK, "cluster_rank()")]),
        ]):  # fmt: skip
            kept: list[str] = []
            for name, value in reversed(values):
                if name in read:
                    kept.insert(0, f"{name} = {value}")
                    read |= _words([value])
            if kept:
                lines.insert(0, f"const {kind} {', '.join(kept)};")
        for function in ("shared_address", "cluster_rank"):
            if function in read:
                self.use(function)
        if "smem_bytes" in read:
            lines.insert(0, "extern __shared__ unsigned char smem_bytes[];")
        for line in lines:
            self.line(line)

    def _has_roles(self) -> bool:
        return any(isinstance(s, ir.Roles) for s in self.kernel.body)

    def _init_barriers(self, arguments: Sequence[Argument]) -> None:
        maps = [a for a in arguments if a.kind == "map"]
        if not self.kernel.barriers:
            return
        self.use("barrier_init")
        with self.block("if (thread == 0) {"):
            for b in self.kernel.barriers:
                each = f"barrier_init({self.name(b)} + 8 * i, {b.arrivals});"
                self.line(f"for (int i = 0; i < {b.slots}; i++) {each}")
            self.line('asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");')
            for a in maps:
                name = self.map_names[a.name]
                self.line(f'asm volatile("prefetch.tensormap [%0];" :: "l"(&{name}));')
        if self.kernel.cluster > 1:  # nobody reaches a CTA whose barriers are not there yet
            self.line(f"{self.use('cluster_start')}();")
        else:
            self.line("__syncthreads();")

    def _declare_registers(self, body: ir.Body) -> None:
        seen: dict[ir.Buffer, None] = {}
        for s in _statements(body):
            if isinstance(s, ir.Primitive):
                seen.update({v.buffer: None for v in s.views() if v.buffer.memory == "reg"})
        for b in seen:
            kind, per = self.register_type(b.dtype), max(1, 4 // b.itemsize)
            self.line(f"{kind} {self.name(b)}[{-(-b.n_elements // per)}];")

    # -- statements --

    def _block(self, head: str, body: ir.Body, where: ir.Where, tail: str = "}") -> None:
        with self.block(head + " {", tail):
            self._body(body, where)

    def _body(self, body: ir.Body, where: ir.Where) -> None:
        for s in body:
            self.where = where
            try:
                if not (isinstance(s, ir.Let) or self._loads(s)):
                    self._waited()
                self._statement(s, where)
            except EmitError as error:
                error.at = error.at or s.at
                raise
        self._waited()

    def _loads(self, s: ir.Statement) -> bool:
        """Whether all that a statement does is to read global memory."""
        return isinstance(s, ir.Copy) and "ld_global" in self.planned.plan(s).row.name

    def _statement(self, s: ir.Statement, where: ir.Where) -> None:
        match s:
            case ir.For():
                self._for(s, where)
            case ir.If():
                self._block(f"if ({self.expr(s.condition)})", s.body, where)
            case ir.Roles():
                self._roles(s)
            case ir.Scope(kind="elect"):
                self._block(f"if ({self._first(s, where)})", s.body, s.narrowed(where))
            case ir.Scope():
                self._body(s.body, s.narrowed(where))
            case ir.Let(anew=True):
                self.line(f"int {s.var.name} = {self.expr(s.value)};")
                self.line(f"{self.use('hold_i32')}({s.var.name});")
            case ir.Let():
                self.declare(s.var, s.value)
            case ir.Assign():
                self.line(f"{s.var.name} = {self.expr(s.value)};")
            case ir.Primitive():
                self._primitive(s)
            case _:
                self._synchronise(s, where)

    def _first(self, s: ir.Scope, where: ir.Where) -> str:
        """Whether a thread is the one of a scope."""
        # Of one found by its number the compiler does not know that it is alone: it moves operands
        # of bulk copies lane by lane. A ring that a warp's elected thread fills takes 5.3 us for 24
        # steps instead of 5.6 to 7.0; results that one stores take 0.3 % longer (2026-11-27).
        if any(isinstance(x, ir.Expect) for x in _statements(s.body)):
            return f"warp == 0 && {self.use('elected')}()"
        return "(thread & 127) == 0" if where.role else "thread == 0"

    def _for(self, s: ir.For, where: ir.Where) -> None:
        v = s.var.name
        self.line("#pragma unroll 1")
        head = f"for (int {v} = {self.expr(s.start)}; {v} < {self.expr(s.stop)}; "
        self._block(f"{head}{v} += {self.expr(s.step)})", s.body, where)

    def declare(self, v: Var, value: Int) -> None:
        """Name a value. Element numbers of global tensors may need 64 bits, indices never do."""
        const = "" if v.name in self.assigned else "const "
        if self.planned.is_element(v) and is_large(value):
            self.line(f"{const}long long {v.name} = {self.wide(value)};")
        else:
            self.line(f"{const}int {v.name} = {self.expr(value)};")

    def _roles(self, s: ir.Roles) -> None:
        """One if/else chain: separate ifs cost the assembler its warp-uniformity."""
        entry = min(65536 // self.kernel.n_threads // 8 * 8, 248)
        for number, role in enumerate(s.branches):
            last = number == len(s.branches) - 1
            test = (
                f"group == {role.low}"
                if role.high == role.low + 1
                else f"group >= {role.low} && group < {role.high}"
            )
            head = f"if ({test})" if number == 0 else "else" if last else f"else if ({test})"
            with self.block(head + " {"):
                if role.registers:
                    change = "inc" if role.registers > entry else "dec"
                    form = f"setmaxnreg.{change}.sync.aligned.u32 {role.registers};"
                    self.line(f'asm volatile("{form}");')
                self.line(f"const int {role.var.name} = group;")
                self._declare_registers(role.body)
                self._body(role.body, ir.Where("warpgroup", ir.WARPS_PER_GROUP, role))

    def _synchronise(self, s: ir.Statement, where: ir.Where) -> None:
        match s:
            case ir.Wait():
                self.use("barrier_wait")
                self.line(f"barrier_wait({self.slot(s.barrier, s.slot)}, {self.expr(s.parity)});")
            case ir.Arrive() if s.ranks:
                at = f"{self.use('barrier_arrive_at')}({self.slot(s.barrier, s.slot)}"
                for rank in s.ranks:
                    self.line(f"{at}, {self.expr(rank)});")
            case ir.Arrive():
                self.use("barrier_arrive")
                self.line(f"barrier_arrive({self.slot(s.barrier, s.slot)});")
            case ir.ClusterArrive():
                self.line(f"{self.use('cluster_arrive')}();")
            case ir.ClusterWait():
                self.line(f"{self.use('cluster_wait')}();")
            case ir.Expect():
                self.use("barrier_expect")
                self.line(f"barrier_expect({self.slot(s.barrier, s.slot)}, {s.n_bytes});")
            case ir.Sync():
                self.sync(where)
            case ir.FenceAsync():
                self.line(f"{self.use('fence_async')}();")
            case ir.Commit() | ir.WaitGroup():
                held = self.held.get(s, Held())
                self.hold(held.before)
                self.line(f'asm volatile("{_group_form(s)}" ::: "memory");')
                self.hold(held.after)
            case _:
                raise EmitError(f"statement {type(s).__name__}", "has no CUDA text", "a known one")

    def sync(self, where: ir.Where) -> None:
        """Barrier of a scope."""
        if where.scope == "warp":
            self.line("__syncwarp();")
        elif where.role is None:
            self.line("__syncthreads();")
        else:
            # Not by the role's variable, which would take a register for it.
            self.line('asm volatile("bar.sync %0, 128;" :: "r"((thread >> 7) + 1) : "memory");')

    def hold(self, tiles: Iterable[ir.Buffer]) -> None:
        """Keep accesses of register tiles on their side of this place."""
        for b in tiles:
            hold = self.use(_HOLDS.get(self.register_type(b.dtype), "hold"))
            count = -(-b.n_elements // max(1, 4 // b.itemsize))
            self.line("#pragma unroll")
            self.line(f"for (int i = 0; i < {count}; i++) {hold}({self.name(b)}[i]);")

    def _primitive(self, s: ir.Primitive) -> None:
        plan = self.planned.plan(s)
        self.line(f"// {s.operands}: {plan.row.name}, {plan.notes}")
        for v, value in plan.lets:
            self.declare(v, value)
        for call in plan.calls:
            if call.op not in self.texts:
                wrong = f"calls {call.op!r}, which no row family writes"
                raise EmitError(f"a plan of row {plan.row.name}", wrong, "a text for it", at=s.at)
            self.texts[call.op](self, call, s)


def _words(lines: Iterable[str]) -> Counter[str]:
    """Words of some lines, their comments left out, and how often each stands there."""
    return Counter(word for line in lines for word in _WORD.findall(line.partition("//")[0]))


def _without_unread(lines: Sequence[str]) -> list[str]:
    """Lines without constants that nothing reads: where a range has one value, ir folds it."""
    read = _words(lines)
    named = [(line, _CONSTANT.match(line)) for line in lines]
    while True:
        unread = [line for line, name in named if name is not None and read[name[1]] == 1]
        if not unread:
            return [line for line, _ in named]
        named = [(line, name) for line, name in named if name is None or read[name[1]] > 1]
        read -= _words(unread)


def _statements(body: ir.Body) -> list[ir.Statement]:
    out: list[ir.Statement] = []
    for s in body:
        out.append(s)
        for inner in ir.children(s):
            out += _statements(inner)
    return out


def _group_form(s: ir.Commit | ir.WaitGroup) -> str:
    if isinstance(s, ir.Commit):
        return {"bulk": "cp.async.bulk.commit_group;", "cp_async": "cp.async.commit_group;"}[s.kind]
    return {
        "wgmma": f"wgmma.wait_group.sync.aligned {s.pending};",
        "bulk": f"cp.async.bulk.wait_group {s.pending};",
        "bulk_read": f"cp.async.bulk.wait_group.read {s.pending};",
        "cp_async": f"cp.async.wait_group {s.pending};",
    }[s.kind]


def _wants_registers(s: ir.Statement) -> bool:
    """Whether a statement multiplies matrices, or computes cells in f64."""
    wide = isinstance(s, ir.Map) and "f64" in {v.buffer.dtype for v in s.views()}
    return wide or isinstance(s, ir.Gemm)

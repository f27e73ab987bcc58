"""The ways to compute one operator on a mesh: which axes cut which letters, and what that implies.

An axis cuts a dim of the value, or a dim that is reduced: then devices hold parts of a reduction,
which are sent to where the value is wanted, cut along the axis or not, and folded there in one
order. A scan along a cut dim is parts too: every device scans its own behind the totals of those
before it (Blelloch 1990, sec. 1.4). So is a read at integers along a cut dim: every device reads
what it has, and 0 elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from axe_eq.errors import ProgramError
from axe_eq.extract.mesh.cuts import (
    Cut,
    Part,
    axes_of,
    cut_dim,
    is_even,
    local_type,
    read_part,
    selector_needs,
)
from axe_eq.program.gathers import looks
from axe_eq.program.node import OP, SCAN, SEL, Node, op_node, op_type, sel_node, sel_type
from axe_eq.program.ops import MONOIDS, Monoid, cell, folding, join_text, scan, selector
from axe_eq.program.signature import Signature, make, plain, signature
from axe_eq.program.types import DTYPES, ValueType
from axe_eq.schedule import shard
from axe_eq.target import Target

MOST_OPTIONS = 256  # of an operator; those that divide its work most are kept


@dataclass(frozen=True)
class Parts:
    """Parts of a reduction, or of a scan, over devices.

    Attributes:
        axes: the mesh axes that cut what is reduced, or scanned.
        letter: the reduced letter, the scanned axis, or the dim that integers index.
        monoid: merges parts; "" for a scan, whose parts only wait for the totals before them.
        cut: of a part's value, before it is folded.
    """

    axes: tuple[str, ...]
    letter: int
    monoid: str
    cut: Cut


@dataclass(frozen=True)
class Work:
    """What one device does for an operator, in seconds.

    Attributes:
        compute_s: its operations.
        given_s: reading every operand from memory.
        made_s: storing the value.
    """

    compute_s: float
    given_s: tuple[float, ...]
    made_s: float

    def seconds(self, inside: Collection[int] = (), kept: bool = True) -> float:
        """The roofline: computing, or moving where that takes longer.

        Args:
            inside: operands that are made in the same kernel, so that nothing moves.
            kept: the value is stored.
        """
        read = sum(s for n, s in enumerate(self.given_s) if n not in inside)
        return max(self.compute_s, read + (self.made_s if kept else 0.0))


NO_WORK = Work(0.0, (), 0.0)


@dataclass(frozen=True)
class Option:
    """One way to compute an operator.

    Attributes:
        needs: per operand, the cut that devices compute from.
        home: the cut of the value.
        work: of one device.
        parts: where a reduced or scanned letter is cut.
    """

    needs: tuple[Cut, ...]
    home: Cut
    work: Work
    parts: Parts | None = None

    @property
    def seconds(self) -> float:
        """Of one device, by the roofline of the operator alone."""
        return self.work.seconds()

    @property
    def text(self) -> str:
        """For people: ``[x.y,-]``, the mesh axes that cut every dim, ``, in parts over z``."""
        dims = ",".join(".".join(p.axes) or shard.NONE for p in self.home)
        over = f" of parts over {'.'.join(self.parts.axes)}" if self.parts else ""
        return f"[{dims}]{over}"


@dataclass(frozen=True)
class Machine:
    """The mesh that operators are cut over.

    Attributes:
        mesh: text.
        target: of every device.
        rounds: parts of float sums may be added, which rounds in another order (real laws).
    """

    mesh: str
    target: Target
    rounds: bool
    known: dict[tuple[object, ...], list[Option]] = field(default_factory=dict, compare=False)

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that have several devices."""
        return tuple(a for a, (size, _) in shard.mesh_axes(self.mesh).items() if size > 1)

    def options(self, node: Node) -> list[Option]:
        """The ways to compute an operator; equal ones have one list."""
        key = node.kind, node.text, node.cell, tuple(a.type for a in node.args)
        if key not in self.known:
            ways = {OP: self._operator, SCAN: self._scan, SEL: self._selector}[node.kind](node)
            best: dict[tuple[object, ...], Option] = {}
            for way in ways:
                own = way.needs, way.home, way.parts
                if own not in best or way.seconds < best[own].seconds:
                    best[own] = way
            self.known[key] = sorted(best.values(), key=lambda o: o.seconds)[:MOST_OPTIONS]
        return self.known[key]

    def cuts(self, shape: tuple[int, ...]) -> list[Option]:
        """The ways to have what is only read: in all cuts into equal parts."""
        if shape not in self.known:
            self.known[shape] = [Option((c,), c, NO_WORK) for c in self._plain(shape, even=True)]
        return self.known[shape]

    def even(self, options: list[Option], shape: tuple[int, ...]) -> list[Option]:
        """Those whose cut is a layout of the value itself."""
        key = "even", id(options)
        if key not in self.known:
            self.known[key] = [o for o in options if is_even(o.home, shape, self.mesh)]
        return self.known[key]

    # -- letters -----------------------------------------------------------------------------------

    def _letters(
        self, choice: Sequence[int], extents: Sequence[int], even: Sequence[bool]
    ) -> list[Part] | None:
        """The cut of every letter, given per axis the letter that it cuts (-1: none)."""
        found = []
        for letter, extent in enumerate(extents):
            axes = [a for a, c in zip(self.axes, choice, strict=True) if c == letter]
            part = cut_dim(axes, extent, self.mesh)
            uneven = part.length * shard.ways(axes, self.mesh) != extent
            if axes and (extent == 1 or (uneven and even[letter])):
                return None
            found.append(part)
        return found

    def _fits(self, needs: Sequence[Cut]) -> bool:
        """Whether no axis cuts two dims of one operand, as of ``x[i, i]``."""
        return all(len(set(axes_of(cut))) == len(axes_of(cut)) for cut in needs)

    def _folds(self, cut: Cut, shape: Sequence[int], axes: Sequence[str]) -> Iterator[Cut]:
        """Where parts over some axes may be folded: every axis cuts one dim more, or none."""
        for choice in product(range(-1, len(shape)), repeat=len(axes)):
            more = dict(zip(axes, choice, strict=True))
            dims = [
                tuple(a for a in self.axes if a in part.axes or more.get(a) == d)
                for d, part in enumerate(cut)
            ]
            if all(n > 1 or not d for d, n in zip(dims, shape, strict=True)):
                parts = zip(dims, shape, strict=True)
                yield tuple(cut_dim(d, n, self.mesh) for d, n in parts)

    # -- operators ---------------------------------------------------------------------------------

    def _operator(self, node: Node) -> Iterator[Option]:
        sig = signature(node.text)
        shapes = [a.type.shape for a in node.args]
        extents = sig.extents(shapes)
        merged = [d for d in sig.reduced if self._is_merged(node, sig, d)]
        even = [d >= sig.n_out for d in range(sig.n_dims)]
        letters = [-1, *range(sig.n_out), *merged]
        for choice in product(letters, repeat=len(self.axes)):
            reduced = {c for c in choice if c >= sig.n_out}
            cuts = self._letters(choice, extents, even)
            if cuts is None or len(reduced) > 1:
                continue
            needs = self._needs(sig, node, cuts, extents)
            if needs is None or not self._fits(needs):
                continue
            own, local = tuple(cuts[: sig.n_out]), [p.length for p in cuts]
            work = self._work(sig, node, needs, local)
            if not reduced:
                yield Option(needs, own, work)
            for letter in reduced:
                parts = Parts(cuts[letter].axes, letter, _folding(node), own)
                for home in self._folds(own, node.shape, parts.axes):
                    yield Option(needs, home, work, parts)

    def _is_merged(self, node: Node, sig: Signature, letter: int) -> bool:
        """Whether parts of a reduction along a letter may be reduced, and then merged."""
        fold = _folding(node)
        if not fold or not self._may_merge(sig.monoid, node.type):
            return False
        rows = [[p for p in o if any(d == letter for d, _ in p.terms)] for o in sig.operands]
        if MONOIDS[fold].n_values > 1 and not all(rows):
            return False
        read = [p for row in rows for p in row]
        return bool(read) and all(p.plain == letter for p in read) and merges(node, fold)

    def _may_merge(self, monoid: str, type: ValueType) -> bool:
        """Whether another association is allowed: it rounds otherwise for sums of floats."""
        return self.rounds or MONOIDS[monoid].exact or DTYPES[type.dtype].kind != "f"

    def _needs(
        self, sig: Signature, node: Node, cuts: Sequence[Part], extents: Sequence[int]
    ) -> tuple[Cut, ...] | None:
        found: list[Cut] = []
        for operand, arg in zip(sig.operands, node.args, strict=True):
            dims = zip(operand, arg.type.shape, strict=True)
            parts = [read_part(p, n, cuts, extents) for p, n in dims]
            if None in parts:
                return None
            found.append(tuple(p for p in parts if p is not None))
        return tuple(found)

    def _work(self, sig: Signature, node: Node, needs: Sequence[Cut], local: Sequence[int]) -> Work:
        """Matrix rate for products of two, else plain."""
        target = self.target
        rows = [r for r in target.rows("gemm") if any(node.type.dtype in d for d in r.dtypes)]
        rate = target.vector_flops_per_s
        if sig.n_reduced and len(node.args) > 1:
            rate = max((r.flops_per_s for r in rows), default=rate)
        made = math.prod(local[: sig.n_out]) * node.type.itemsize
        return self._moving(node, needs, 2.0 * math.prod(local) / rate, made)

    def _moved(self, node: Node, needs: Sequence[Cut], home: Cut, times: int = 1) -> Work:
        """Work of what takes one step per element."""
        out = local_type(node.type, home)
        compute_s = times * out.size / self.target.vector_flops_per_s
        return self._moving(node, needs, compute_s, out.n_bytes, times)

    def _moving(
        self, node: Node, needs: Sequence[Cut], compute_s: float, made: int, times: int = 1
    ) -> Work:
        rate = self.target.memories[0].bytes_per_s / times
        given = zip(node.args, needs, strict=True)
        read = tuple(local_type(a.type, c).n_bytes / rate for a, c in given)
        return Work(compute_s, read, made / rate)

    def _plain(self, shape: Sequence[int], even: bool, but: int = -1) -> Iterator[Cut]:
        """Cuts of a value, over all dims but one."""
        dims = [-1, *(d for d in range(len(shape)) if d != but)]
        for choice in product(dims, repeat=len(self.axes)):
            cut = self._letters(choice, shape, [even] * len(shape))
            if cut is not None:
                yield tuple(cut)

    def _scan(self, node: Node) -> Iterator[Option]:
        monoid, axis = scan(node.text)
        for cut in self._plain(node.shape, even=False, but=axis):
            needs = (cut,) * len(node.args)
            yield Option(needs, cut, self._moved(node, needs, cut))
        if not self._may_merge(monoid.name, node.type) or not scanned_units(node):
            return
        if any(n.dtype != node.dtype for n in (*node.args, *scanned_totals(node))):
            return
        for cut in self._plain(node.shape, even=True):
            if cut[axis].axes:
                needs = (cut,) * len(node.args)
                work = self._moved(node, needs, cut, times=2)
                yield Option(needs, cut, work, Parts(cut[axis].axes, axis, "", cut))

    def _selector(self, node: Node) -> Iterator[Option]:
        """Of one that reads where integers say; others are read through."""
        given = tuple(a.type for a in node.args)
        found = looks(node.text, given)
        for cut in self._plain(node.shape, even=True):
            needs = selector_needs(node.text, given, cut)
            if needs is not None and self._fits(needs):
                yield Option(needs, cut, self._moved(node, needs, cut))
        if len(found) == 1:
            yield from self._looked_up(node, given)

    def _looked_up(self, node: Node, given: tuple[ValueType, ...]) -> Iterator[Option]:
        """A read along a dim that is cut: what other devices have is 0 here."""
        declared, params = selector(node.text)
        (look,) = looks(node.text, given)
        assert declared.pull is not None
        pulls = declared.pull(params, given)[look.by]
        if any(p is None or (p.scale, p.offset) != (1, 0) for p in pulls):
            return
        if DTYPES[node.dtype].kind not in "fi" or not self._may_merge("+", node.type):
            return
        extent = given[look.operand].shape[look.dim]
        for own in self._plain(node.shape, even=True):
            left = [a for a in self.axes if a not in axes_of(own)]
            needs = selector_needs(node.text, given, own)
            if needs is None:
                continue
            for size in range(1, 1 << len(left)):
                axes = tuple(a for n, a in enumerate(left) if size >> n & 1)
                part = cut_dim(axes, extent, self.mesh)
                if part.length * shard.ways(axes, self.mesh) != extent:
                    continue
                table = list(needs[look.operand])
                table[look.dim] = part
                read = tuple(tuple(table) if n == look.operand else c for n, c in enumerate(needs))
                if not self._fits(read):
                    continue
                work = self._moved(node, read, own)
                parts = Parts(axes, look.dim, "+", own)
                for home in self._folds(own, node.shape, axes):
                    yield Option(read, home, work, parts)


def _folding(node: Node) -> str:
    """The monoid that reduces what `stands_for` says of parts; "" where none does."""
    monoid = MONOIDS[signature(node.text).monoid]
    if monoid.n_values == 1:
        return folding(monoid.name)
    return monoid.name if monoid.stands and cell(node.cell)[0].identity else ""


def stands_for(node: Node) -> list[tuple[Node, tuple[int, ...]]]:
    """What stands for a part of a reduction, and which of its dims each of these values has.

    That is the part reduced, and of a structured monoid further values: the largest element beside
    its index.
    """
    every = tuple(range(len(node.shape)))
    name = signature(node.text).monoid if node.kind == OP else ""
    monoid = MONOIDS[name] if name else None
    if monoid is None or monoid.n_values == 1:
        return [(node, every)]
    sig, found = signature(node.text), list[tuple[Node, tuple[int, ...]]]()
    extents = dict(enumerate(sig.extents([a.shape for a in node.args])))
    for operand, arg, name in zip(sig.operands, node.args, monoid.stands, strict=True):
        if not name:
            found.append((node, every))
            continue
        read = {d for p in operand for d, _ in p.terms}
        out, reduced = ([d for d in of if d in read] for of in (every, sig.reduced))
        fixed = {d: extents[d] for d in read}
        made = make([operand], out, name, reduced, fixed)
        found.append((op_node(made.text, "id", [arg]), tuple(out)))
    return found


def merges(node: Node, monoid: str) -> bool:
    """Whether the reduction of values of such parts is of the type that each has."""
    values = stands_for(node)
    text = fold_text([dims for _, dims in values], len(node.shape), monoid)
    given = tuple(lead(value.type, 2) for value, _ in values)
    try:
        return op_type(text, folded_by(node), given) == node.type
    except ProgramError:
        return False


def folded_by(node: Node) -> str:
    """The cell whose values are reduced where parts are."""
    return node.cell if len(stands_for(node)) > 1 else "id"


def lead(type: ValueType, n: int) -> ValueType:
    """So many values of a type, along a dim in front."""
    return ValueType(type.dtype, (n, *type.shape))


def fold_text(dims: Sequence[Sequence[int]], rank: int, monoid: str) -> str:
    """The signature of a reduction of the first dim of values, to a value of this rank.

    Args:
        dims: of each value, which dims it has of the result.
        rank: of the result.
        monoid: which.
    """
    operands = [[plain(rank), *map(plain, own)] for own in dims]
    return make(operands, range(rank), monoid, [rank]).text


def scanned_totals(node: Node) -> list[Node]:
    """Per operand of a scan what stands for all that is scanned, of extent 1 along the axis."""
    monoid, axis = scan(node.text)
    rank = len(node.shape)
    dims = [plain(rank if d == axis else d) for d in range(rank)]
    ends = tuple((n - 1, 1, 1) if d == axis else None for d, n in enumerate(node.shape))
    found = []
    for arg, name in zip(node.args, _standing(monoid), strict=True):
        of = name or (monoid.name if monoid.n_values == 1 and monoid.commutative else "")
        total = make([dims], range(rank), of, [rank], {axis: 1}).text if of else ""
        last = join_text("slice", ends)
        found.append(op_node(total, "id", [arg]) if of else sel_node(last, [node]))
    return found


def scanned_units(node: Node) -> list[float]:
    """Per operand of a scan what stands for no element; none where a type holds no such value."""
    monoid, axis = scan(node.text)
    rows = tuple((1, 0) if d == axis else (0, 0) for d in range(len(node.shape)))
    found: list[float] = []
    for arg, name in zip(node.args, _standing(monoid), strict=False):
        unit = MONOIDS[name].unit if name else monoid.unit
        if unit is None:
            return []
        whole_number = DTYPES[arg.dtype].kind != "f" and math.isfinite(unit)
        found.append(int(unit) if whole_number else unit)
        try:
            sel_type(join_text("pad", rows, found[-1]), (arg.type,))
        except ProgramError:
            return []
    return found


def _standing(monoid: Monoid) -> tuple[str, ...]:
    """`Monoid.stands`, of a monoid of one value itself; () where nothing stands for parts."""
    return monoid.stands or ("",) * (folding(monoid.name) == monoid.name)

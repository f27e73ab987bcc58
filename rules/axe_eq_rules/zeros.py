"""Zero paddings of factors and of products: zeros add nothing, and times what is finite are zeros.

Legend as in pack real, whose laws these are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from axe_eq.program import sigalg
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import join_text, split_text
from axe_eq.program.signature import signature
from axe_eq.program.terms import In, Sig, Spec, Value, args, op, sel, type_of, types_of
from axe_eq.program.types import value_type
from axe_eq.rule.law import Sides
from axe_eq.rule.term import INT, STR, Ground, Primitive, primitive
from axe_eq_rules.joins import named, types_in
from axe_eq_rules.layout_numbers import Laws
from axe_eq_rules.needs import FINITE, NOTHING, is_finite
from axe_eq_rules.through import padded_factors

LAWS = Laws()


@primitive((STR, INT, STR, STR), (STR,))
def padding_summed(sig: str, position: int, spec: str, x: str) -> str | None:
    """Defined where a zero padding lies only along summed dims that no other operand reads."""
    return spec if _padding_of(sig, position, spec, None) is not None else None


@primitive((STR, INT, STR, STR, INT, STR), (STR,))
def padding_met(sig: str, position: int, spec: str, x: str, other: int, y: str) -> str | None:
    """The slice of the other factor that meets what was padded with zeros along summed dims."""
    widths = _padding_of(sig, position, spec, other)
    if widths is None:
        return None
    parts = []
    for p, extent in zip(signature(sig).operands[other], value_type(y).shape, strict=True):
        lo, hi = widths.get(-1 if p.plain is None else p.plain, (0, 0))
        parts.append((lo, 1, extent - lo - hi) if lo or hi else None)
    return join_text("slice", tuple(parts)) if any(p is not None for p in parts) else None


def _padding_of(
    sig: str, position: int, spec: str, other: int | None
) -> dict[int, tuple[int, int]] | None:
    """Padded index dims with their widths, if all are summed and read plainly, and only there."""
    s, (name, params) = signature(sig), split_text(spec)
    if name != "pad" or params[1] != 0 or s.monoid != "+":
        return None
    widths: dict[int, tuple[int, int]] = {}
    for p, width in zip(s.operands[position], params[0], strict=True):
        if width != (0, 0):
            if p.plain is None or p.plain < s.n_out or p.plain in widths:
                return None
            widths[p.plain] = width
    for n, operand in enumerate(s.operands):
        for p in operand:
            reads = [d for d, _ in p.terms if d in widths]
            if reads and (n not in (position, other) or p.plain is None):
                return None
    return widths or None


def _padded_factors(draw: Draw, *, position: int) -> tuple[Ground, ...]:
    """A contraction of two factors, one of them with zeros along the summed dim."""
    out, read = draw.pick(
        "dims", (("a b", ("a c", "c b")), ("a", ("a c", "c")), ("a", ("a c", "a c")))
    )
    lo, hi = draw.pick("widths", ((1, 0), (0, 2), (1, 1)))
    sizes = {"a": 2, "b": 3, "c": 3 + lo + hi}
    dims = [operand.split() for operand in read]
    spec = join_text("pad", tuple((lo, hi) if d == "c" else (0, 0) for d in dims[position]), 0.0)
    types = [
        f"f64[{','.join(str(3 if n == position and d == 'c' else sizes[d]) for d in of)}]"
        for n, of in enumerate(dims)
    ]
    x, y = (In(f"x{n}", type) for n, type in enumerate(types))
    return signature(f"{', '.join(read)} -> {out}; + c").text, spec, x, y


def _padded_product(draw: Draw) -> tuple[Ground, ...]:
    """A product whose value gets zeros along one or two dims."""
    ways = (("a b", "a b"), ("a", "b"), ("a b", "b"), ("a", "a b"), ("a b", ""), ("", "a b"))
    read = [operand.split() for operand in draw.pick("read", ways)]
    pads = {d: draw.pick(f"pad {d}", ((0, 0), (1, 0), (1, 2))) for d in "ab"}
    spec = join_text("pad", (pads["a"], pads["b"]), 0.0)
    fixed = "".join(f"[{d}={n}]" for d, n in (("a", 2), ("b", 3)) if d not in read[0] + read[1])
    sig = signature(f"{', '.join(map(' '.join, read))} -> a b{fixed}").text
    sizes = {"a": "2", "b": "3"}
    x, y = (In(f"x{n}", f"f64[{','.join(sizes[d] for d in of)}]") for n, of in enumerate(read))
    return spec, sig, x, y


def _padded_sum(draw: Draw) -> tuple[Ground, ...]:
    """A sum over a dim with zeros at its ends."""
    read = draw.pick("dims", ("a c", "c a", "c"))
    widths = draw.pick("widths", ((1, 0), (0, 2), (1, 1)))
    dims = read.split()
    spec = join_text("pad", tuple(widths if d == "c" else (0, 0) for d in dims), 0.0)
    out = "a" if "a" in dims else ""
    shape = ",".join("3" if d == "c" else "2" for d in dims)
    return signature(f"{read} -> {out}; + c").text, spec, In("x0", f"f64[{shape}]")


@LAWS.law(source="folklore: zeros add nothing", sampler=_padded_sum)
def sum_of_padded(s: Sig, k: Spec, x: Value) -> Sides:
    """s[id](pad(x)) = s[id](x)   for zeros along summed dims."""
    padding_summed(s, 0, k, type_of(x))
    return op(s, "id", sel(k, x)), op(s, "id", x)


@LAWS.law(source="folklore: zeros add nothing", sampler=partial(_padded_factors, position=0))
def product_of_padded_left(s: Sig, k: Spec, x: Value, y: Value) -> Sides:
    """s[mul](pad(x), y) = s[mul](x, m(y))   for zeros along summed dims, m a slice; y finite."""
    m = padding_met(s, 0, k, type_of(x), 1, type_of(y))
    right = op(s, "mul", x, sel(m, y))
    return op(s, "mul", sel(k, x), y), right, is_finite(y)


@LAWS.law(source="folklore: zeros add nothing", sampler=partial(_padded_factors, position=1))
def product_of_padded_right(s: Sig, k: Spec, x: Value, y: Value) -> Sides:
    """s[mul](x, pad(y)) = s[mul](m(x), y)   for zeros along summed dims, m a slice; x finite."""
    m = padding_met(s, 1, k, type_of(y), 0, type_of(x))
    right = op(s, "mul", sel(m, x), y)
    return op(s, "mul", x, sel(k, y)), right, is_finite(x)


def _zero_padded(touched: tuple[int, ...]) -> Primitive:
    """(pad, sig, types) -> zero paddings of just these factors, and what both factors must be.

    A factor that lacks some of the padded dims is met by the zeros of the other one.
    """

    def fn(spec: str, sig: str, types: str) -> tuple[str | int, ...] | None:
        s = signature(sig)
        found = padded_factors(spec, s, types_in(types))
        if found is None or tuple(n for n, k in enumerate(found) if k) != touched:
            return None
        dims = {d for d, width in enumerate(split_text(spec)[1][0]) if width != (0, 0)}
        reads = (sigalg.dims_of(operand) for operand in s.operands)
        needs = [NOTHING if dims <= read else FINITE for read in reads]
        return (*(k for k in found if k), *needs) if len(needs) == 2 else None

    fn.__name__ = named("zero_padded", touched)
    return Primitive(fn, (STR, STR, STR), (*(STR,) * len(touched), INT, INT))


def _pad_of_product(touched: tuple[int, ...]) -> Callable[..., Sides]:
    padded = _zero_padded(touched)

    def law(k: Spec, s: Sig, x: Value, y: Value) -> Sides:
        """pad(s[mul](x, y)) = s[mul](pad(x), pad(y))   with zeros; finite what lacks padded d."""
        *specs, need, other = padded(k, s, types_of(args(x, y)))
        factors = [sel(specs.pop(0), v) if n in touched else v for n, v in enumerate((x, y))]
        conditions = (is_finite(x, need), is_finite(y, other))
        return sel(k, op(s, "mul", x, y)), op(s, "mul", *factors), *conditions

    return law


for _touched in ((0,), (1,), (0, 1)):
    LAWS.law(
        source="folklore: zeros absorb",
        sampler=_padded_product,
        name=named("pad_of_product", _touched),
    )(_pad_of_product(_touched))

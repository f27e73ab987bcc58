"""Laws and spellings of packs that are written wrongly: one error at the user's line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import axe_eq as axe
from axe_eq.errors import PackError
from axe_eq.kernel import cells
from axe_eq.pack import Pack, installed, packs
from axe_eq.program.terms import Sig, Value, op, type_of
from axe_eq.rule.law import law
from axe_eq.rule.term import STR, primitive


@primitive((STR,), (STR,))
def same(text: str) -> str:
    return text


WRONG: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "arithmetic on arrays": (
        lambda s, x: (op(s, "abs", x + 1), op(s, "abs", x)),
        "(?x + 1) computes with sort Value, which has no arithmetic",
    ),
    "one side": (lambda s, x: op(s, "abs", x), "its function returns Op(?s, 'abs', ACons(?x, ANil"),
    "nothing": (lambda s, x: None, "its function returns None"),
    "one side in a tuple": (lambda s, x: (op(s, "abs", x),), "its function returns (Op("),
    "sides of two sorts": (lambda s, x: (op(s, "abs", x), s), "are of sorts Value and String"),
    "a side that is no term": (
        lambda s, x: (op(s, "abs", x), 1.5), "its function returns 1.5 for a term",
    ),
    "a truth for a condition": (
        lambda s, x: (op(s, "abs", x), op(s, "abs", x), True), "returns True as a condition",
    ),
    "operands the wrong way round": (
        lambda s, x: (op(x, "abs", s), op(s, "abs", x)), "of sort String, is an argument of ACons",
    ),
    "a number for an operand": (
        lambda s, x: (op(s, "abs", x), op(s, "add", x, 1)), "1, of sort i64, is an argument of ACo",
    ),
    "an array for a text": (
        lambda s, x: (op(s, "abs", x), op(same(x), "abs", x)), "?x, of sort Value, is an argument",
    ),
    "the type of a signature": (
        lambda s, x: (op(s, "abs", x), op(type_of(op(s, "abs", s)), "abs", x)), "argument of ACons",
    ),
    "arithmetic with an array": (
        lambda s, x: (op(s, "abs", x), op(s + x, "abs", x)), "is an argument of (?s + ?x)",
    ),
    "arithmetic on arrays in a condition": (
        lambda s, x: (op(s, "abs", x), op(s, "abs", x), x + 1 == x), "(?x + 1) computes with sort",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_law_of_other_sorts_is_refused_where_it_is_written(what: str) -> None:
    sides, problem = WRONG[what]

    def wrong(s: Sig, x: Value) -> Any:
        """s[abs](x) = s[abs](x)."""
        return sides(s, x)

    with pytest.raises(PackError) as refusal:
        law(source="ours")(wrong).pattern()
    assert str(refusal.value).startswith("law 'wrong': ")
    assert problem in str(refusal.value)
    assert refusal.value.at == f"{__file__}:{wrong.__code__.co_firstlineno}"


def test_a_law_that_is_compiled_is_refused_before_the_e_graph_sees_it() -> None:
    pack = Pack("theirs")

    @pack.law(source="ours")
    def plus_one(s: Sig, x: Value) -> Any:
        """s[abs](x + 1) = s[abs](x)."""
        return op(s, "abs", x + 1), op(s, "abs", x)

    with pytest.raises(PackError, match=r"^law 'theirs/plus_one': \(\?x \+ 1\) computes with"):
        axe.compile(lambda x: -x, "64x64:f32", target="cpu", packs=[*installed().values(), pack])


def test_an_error_from_inside_our_functions_names_the_line_of_the_law() -> None:
    def wrong(s: Sig, x: Value) -> Any:
        """s[abs](x) = s[abs](x)."""
        return op(same(s, s), "abs", x), op(s, "abs", x)

    with pytest.raises(PackError, match=r"same': got 2 arguments; expected 1") as refusal:
        law(source="ours")(wrong).pattern()
    line = wrong.__code__.co_firstlineno + 2
    assert refusal.value.at.startswith(f"{__file__}:{line}: return op(same(s, s)")


@pytest.fixture
def _forgotten() -> Iterator[None]:
    before = dict(cells._SPELLINGS)
    yield
    cells._SPELLINGS.clear()
    cells._SPELLINGS.update(before)


@pytest.mark.usefixtures("_forgotten")
def test_a_spelling_for_a_family_misspelt_is_refused_where_it_is_declared() -> None:
    pack, elsewhere = Pack("theirs"), Pack("elsewhere")
    pack.spelling("cudaa", "hypot", f32="hypotf({0}, {1})")
    elsewhere.spelling("spatial", "hypot", f32="hypot({0}, {1})")  # for a pack not installed here
    everything = [*installed().values(), elsewhere]
    assert packs(everything) == everything
    with pytest.raises(PackError, match=r"^pack 'theirs', spelling of cell 'hypot' for 'cudaa': no "
                       r"target has such a family; expected one of .*cuda") as refusal:  # fmt: skip
        packs([*everything, pack])
    assert refusal.value.hint == "cuda"
    assert refusal.value.at.rpartition(":")[0] == __file__


def test_a_spelling_of_no_cell_names_its_line() -> None:
    with pytest.raises(PackError, match="names no declared cell") as refusal:
        Pack("theirs").spelling("cuda", "hypott", f32="{0}")
    assert refusal.value.at.rpartition(":")[0] == __file__

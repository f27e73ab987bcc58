"""The table of laws is current and lists every pack of this distribution."""

from __future__ import annotations

from pathlib import Path

from axe_eq.pack import Pack, installed
from axe_eq.program.terms import Sig, Value, op
from axe_eq_rules import table

ROOT = Path(__file__).parents[3]


def test_the_page_is_current() -> None:
    assert (ROOT / "docs/laws.md").read_text(encoding="utf-8") == table.law_table(), "make docs"


def test_every_pack_of_laws_is_listed() -> None:
    ours = {
        name
        for name, pack in installed().items()
        if pack.laws and all(w.fn.__module__.startswith("axe_eq_rules") for w in pack.laws.values())
    }
    assert ours == set(table.PACKS)


def test_every_law_is_named_in_the_page() -> None:
    page = table.law_table()
    for name in table.PACKS:
        for law in installed()[name].laws:
            assert f"`{law}`" in page


def test_laws_that_say_the_same_share_a_row() -> None:
    pack = Pack("tensor", summary="twice the same")

    def law(s: Sig, x: Value) -> tuple[object, ...]:
        """s[neg](x) | 0 = s[neg](x)."""
        return op(s, "neg", x), op(s, "neg", x)

    for number in (0, 1):
        pack.law(source="a test", name=f"same_{number}", expands=True)(law)
    rows = [line for line in table.law_table([pack]).splitlines() if line.startswith("| `")]
    assert rows == ["| `same_0`, `same_1` | `s[neg](x) \\| 0 = s[neg](x).` | g | a test |"]

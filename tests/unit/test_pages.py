"""The pages on programs, packs and kernels: every block runs, and says what the page says."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from axe_eq import array, nn
from axe_eq import pack as packs
from axe_eq.kernel import cells, families, monoids
from axe_eq.program import ops
from axe_eq.program.types import DTYPES
from tests.unit.pages import DOCS, run_page


@pytest.fixture
def _forgotten() -> Iterator[None]:
    """What a page declares is forgotten after it."""
    tables: list[dict[Any, Any]] = [
        packs._schedules, families._families, cells._SPELLINGS, monoids._declared,
        ops.CELLS._by_name, ops.MONOIDS._by_name,
    ]  # fmt: skip
    kept = [dict(table) for table in tables]
    yield
    for table, old in zip(tables, kept, strict=True):
        table.clear()
        table.update(old)


def test_the_page_on_kernels_runs() -> None:
    count, names = run_page("kernels.md")
    assert count == 7
    assert names["kernel"].name == "turned"


def test_the_page_on_kernels_names_what_the_builder_has() -> None:
    from axe_eq.kernel.build import Builder
    from axe_eq.kernel.threads.build import ThreadBuilder

    text = (DOCS / "kernels.md").read_text(encoding="utf-8")
    every = {*vars(Builder), *vars(ThreadBuilder)}
    public = {n for n in every if not n.startswith("_")} - {"finish"}
    missing = sorted(n for n in public if f"k.{n}" not in text and f"`{n}`" not in text)
    assert missing == ["cluster_arrive", "cluster_wait"]  # the halves of cluster_sync


def test_the_page_on_kernels_lists_the_cells_and_monoids() -> None:
    text = (DOCS / "kernels.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (.*) \|$", text, re.MULTILINE))
    listed = {what: re.findall(r"`([^`]+)`", row) for what, row in rows.items()}
    # In another process, where no test has declared any.
    code = "from axe_eq.program import standard, ops; print(*ops.CELLS); print(*ops.MONOIDS)"
    told = subprocess.check_output([sys.executable, "-c", code], text=True)
    declared, monoids = told.splitlines()
    single = [m for m in monoids.split() if ops.MONOIDS[m].n_values == 1]
    assert sorted(listed.pop("monoids")) == sorted(single)
    groups: dict[str, list[str]] = {what: [] for what in listed}
    operands = {None: "any number of operands", 2: "two operands", 1: "one operand"}
    for name in declared.split():
        cell = ops.CELLS[name]
        moves = name in ("id", "cast", "where")
        if cell.n_values == 1:
            groups["moves" if moves else operands[cell.arity]].append(name)
    assert {what: sorted(names) for what, names in listed.items()} == {
        what: sorted(names) for what, names in groups.items()
    }


def _signature(function: Any) -> str:
    """A function's name and parameters without their types."""
    own = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in own.parameters.values()]
    return f"{function.__name__}{own.replace(parameters=bare, return_annotation=own.empty)}"


def test_the_page_on_programs_runs_and_lists_what_there_is() -> None:
    count, _ = run_page("programs.md")
    assert count == 13
    text = (DOCS / "programs.md").read_text(encoding="utf-8")
    functions, layers = text.partition("| `axe_eq.array` |")[2].split("| `axe_eq.nn` |")
    rows = re.findall(r"^\| [a-z ]+ \| (.*) \|$", functions, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(names) == sorted(n for n in array.__all__ if not n.startswith("__"))
    shown = re.findall(r"^\| `(.*)` \|$", layers, re.MULTILINE)
    assert shown == [_signature(getattr(nn, name)) for name in sorted(nn.__all__)]
    dtypes = text.partition("## Dtypes\n\n")[2].partition(", also by")[0]
    assert re.findall(r"`(\w+)`", dtypes) == list(DTYPES)


def test_the_page_on_trainium_runs() -> None:
    count, names = run_page("trainium.md")
    assert count == 7
    assert names["kernel"].schedule == "tensor_engine"


@pytest.mark.usefixtures("_forgotten")
def test_the_page_on_packs_runs() -> None:
    count, names = run_page("packs.md")
    assert count == 15
    assert names["PACK"].laws.keys() == {"gate_by_tanh", "gate_by_sigmoid"}


README = DOCS.parent / "README.md"


def test_blocks_of_the_readme_use_what_stands_in_earlier_ones() -> None:
    """Whoever copies them in order, as they stand, meets no name that nothing has said."""
    known = set(dir(builtins))
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    for block in map(ast.parse, blocks):
        names = [n for n in ast.walk(block) if isinstance(n, ast.Name)]
        known |= {n.id for n in names if isinstance(n.ctx, ast.Store)}
        known |= {n.arg for n in ast.walk(block) if isinstance(n, ast.arg)}
        known |= {n.asname or n.name for n in ast.walk(block) if isinstance(n, ast.alias)}
        known |= {n.name for n in ast.walk(block) if isinstance(n, ast.FunctionDef)}
        assert {n.id for n in names} - known == set()


def test_the_readme_says_where_the_command_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = README.read_text(encoding="utf-8")
    before = text[: text.index("    axe equiv")]
    assert ". .venv/bin/activate" in before
    assert "python -m axe_eq" in before
    monkeypatch.setattr(sys, "argv", ["axe", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("axe_eq", run_name="__main__")
    assert capsys.readouterr().out.startswith("axe, version ")

"""What packs register is imported when it is used: most programs are for one machine."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from axe_eq.errors import PackError
from axe_eq.pack import Later, Pack, installed, laws_of, packs

SELDOM = (
    "axe_eq_backends.nki.sim", "axe_eq_backends.nki.meaning", "axe_eq_backends.cuda.meaning",
    "axe_eq_backends.mesh.peers", "axe_eq_backends.mesh.mpi", "axe_eq_backends.cpu.run",
    "axe_eq_backends.cuda.run", "axe_eq_rules.layout_lists", "axe_eq_rules.digit_forms",
    "networkx",
)  # fmt: skip


def test_a_search_imports_what_every_program_needs() -> None:
    code = (
        "import sys, axe_eq as axe\n"
        "with axe.debug(cache=0): axe.compile(lambda x: -x, '64:f32', target='h200')\n"
        f"print({{*{SELDOM}}} & {{*sys.modules}})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n", done.stdout


def test_what_comes_later_is_the_object_itself() -> None:
    assert Later("math:sqrt")(9) == 3
    assert Later("string:digits").startswith("01")
    assert Later("axe_eq.program.types:DTYPES", "f16").itemsize == 2
    missing = copy.copy(Later("no_such_module:x"))  # copying imports nothing
    with pytest.raises(ModuleNotFoundError):
        missing()


def test_every_later_object_of_installed_packs_is_there() -> None:
    found = 0
    for pack in installed().values():
        tables: list[Mapping[str, Any]] = [pack.transports, pack.runners, pack.interpreters]
        for family in pack.row_families.values():
            tables += [family.meanings, family.texts, {"": family.derive}]
        for one in (x for table in tables for x in table.values() if isinstance(x, Later)):
            assert one.loaded is not None
            found += 1
    assert found > 40


PROOFS = """
from axe_eq.program.terms import Sig, Value, op

def double(s: Sig, x: Value):
    \"\"\"s[add](x, x) = s[add](x, x).\"\"\"
    return op(s, "add", x, x), op(s, "add", x, x)

def declare(pack):
    pack.law(source="ours", search=False)(double)

def declare_searched(pack):
    declare(pack)
    pack.law(source="ours", name="searched")(double)

def fail(pack):
    declare(pack)
    raise KeyError("gone")
"""


def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> Pack:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "proofs_of_tests", raising=False)
    (tmp_path / "proofs_of_tests.py").write_text(PROOFS)
    pack = Pack("proofs_of_tests")
    pack.proof_laws(f"proofs_of_tests:{function}")
    return pack


def test_laws_of_proofs_load_when_laws_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = theirs(tmp_path, monkeypatch, "declare")
    assert packs([pack]) == [pack]
    assert laws_of([pack], search=True) == {}
    assert "proofs_of_tests" not in sys.modules
    with pytest.raises(PackError, match="is neither a law nor a pack"):
        packs([pack], without=["duoble"])
    assert packs([pack], without=["proofs_of_tests/double"]) == [pack]
    assert list(laws_of([pack])) == ["proofs_of_tests/double"]
    assert laws_of([pack], search=True) == {}
    assert laws_of([pack], ["double"]) == {}


def test_laws_of_proofs_that_are_none_or_fail_are_refused_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {
        "declare_searched": "law 'proofs_of_tests/searched' .* is for searches too",
        "fail": "proof laws 'proofs_of_tests:fail': do not load .KeyError",
        "missing": "do not load .AttributeError",
    }
    for function, message in wrong.items():
        pack = theirs(tmp_path, monkeypatch, function)
        for _ in range(2):
            with pytest.raises(PackError, match=message):
                _ = pack.laws
    pack = Pack("nowhere")
    pack.proof_laws("no_module_of_tests:declare")
    with pytest.raises(PackError, match="No module named 'no_module_of_tests'") as refused:
        _ = pack.laws
    assert "<frozen" not in str(refused.value)


def test_searches_use_every_law_that_is_not_for_proofs() -> None:
    """What loads later says so itself: no installed pack loses a law of searches by it."""
    for pack in installed().values():
        searched = {n for n, law in pack.laws.items() if law.searches}
        assert set(pack.search_laws) == searched
    assert sum(len(p.search_laws) for p in installed().values()) > 100

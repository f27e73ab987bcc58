"""What packs register is imported when it is used: most programs are for one machine."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Mapping

import pytest

from axe_eq.pack import Later, installed

SELDOM = (
    "axe_eq_backends.nki.sim", "axe_eq_backends.nki.meaning", "axe_eq_backends.cuda.meaning",
    "axe_eq_backends.mesh.peers", "axe_eq_backends.mesh.mpi", "axe_eq_backends.cpu.run",
)  # fmt: skip


def test_loading_all_packs_imports_what_every_program_needs() -> None:
    code = f"import sys, axe_eq.pack as p; p.installed(); print({{*{SELDOM}}} & {{*sys.modules}})"
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
        tables: list[Mapping[str, object]] = [pack.transports, pack.runners, pack.interpreters]
        for family in pack.row_families.values():
            tables += [family.meanings, family.texts, {"": family.derive}]
        for one in (x for table in tables for x in table.values() if isinstance(x, Later)):
            assert one.loaded is not None
            found += 1
    assert found > 40

"""Programs saved with machine code: made without a GPU, run with numpy and cuda-python alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import AxeError, SearchError
from axe_eq.pack import installed
from axe_eq_backends.cuda import driver, run
from tests.conftest import cuda_devices

pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")

# Packages that a machine which only runs programs need not have, and the compiler's own parts.
ABSENT = (
    "click", "cuda.bindings.nvrtc", "cuda.core", "egglog", "flint", "hypothesis", "lark",
    "ml_dtypes", "networkx", "rich", "threadpoolctl", "axe_eq.egraph", "axe_eq.extract",
    "axe_eq.pack", "axe_eq.pipeline", "axe_eq.prove", "axe_eq.rule", "axe_eq_rules",
    "axe_eq_backends.cuda.emit", "axe_eq_backends.cuda.lower", "axe_eq_backends.cuda.make",
)  # fmt: skip
RUN = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if any(name == n or name.startswith(n + ".") for n in ABSENT):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import numpy as np
import axe_eq as axe

def said(work):
    try:
        return work()
    except axe.AxeError as error:
        return f"{type(error).__name__}: {error}"

exe = axe.load(sys.argv[1])
x, rows = np.load(sys.argv[2]), np.load(sys.argv[3])
program = exe.caller.ready
assert [launch.image.cubin[:4] for launch in program.code.launches] == [b"\\x7fELF"]
assert "schedule for h200" in exe.explain() and exe.cost["kernels"] == 1
assert all("__global__" in text for text in exe.source.values())
print(said(lambda: np.allclose(exe(x), np.exp(x.astype(np.float32)) * TABLE, rtol=2e-3)))
print(said(lambda: exe(rows)))
print(said(lambda: exe(x.astype(np.float32))))
"""
TABLE = np.arange(256, dtype=np.float16)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "scaled.axe"
    x = axe.Spec((8, 256), "f16", dims=("rows", ""))
    axe.compile(lambda x: axe.array.exp(x) * TABLE, x, target="h200").save(
        path, extents={"rows": [3, 16]}
    )
    return path


def test_a_machine_with_numpy_and_cuda_python_alone_runs_it(
    saved: Path, golden: Callable[..., None]
) -> None:
    x = np.random.default_rng(0).standard_normal((12, 256)).astype(np.float16)
    for name, array in (("x", x[:8]), ("rows", x)):
        np.save(saved.with_name(f"{name}.npy"), array)
    program = f"ABSENT, TABLE = {ABSENT!r}, {TABLE.tolist()!r}\n{RUN}"
    given = [str(saved), *(str(saved.with_name(f"{n}.npy")) for n in ("x", "rows"))]
    done = subprocess.run([sys.executable, "-c", program, *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.replace(str(saved), "FILE")
    lines = re.sub(r"cannot be loaded \(.*\);", "cannot be loaded (...);", lines)
    if cuda_devices():  # tests/gpu looks at what it computes
        assert lines.startswith("True\n")
        pytest.skip("the golden text is of machines without a GPU")
    golden(lines)


def test_what_is_saved_is_what_runs(saved: Path) -> None:
    with zipfile.ZipFile(saved) as file:
        names = set(file.namelist())
        code = file.read("code.bin")
    loaded = axe.load(saved)
    (kernel,) = loaded.kernels
    assert {"call.json", "schedule.json", "explain.txt", f"source/{kernel.name}"} <= names
    assert loaded.schedule.code() == code  # compiled anew from the schedule it holds
    (launch,) = run.load(code).code.launches
    assert launch.image.compute_capability == loaded.target.limits["compute_capability"]


def test_a_loaded_schedule_is_looked_at_rebound_and_run_on_the_cpu(saved: Path) -> None:
    loaded = axe.load(saved)
    assert "exp" in str(loaded.schedule)
    x = np.ones((3, 256), np.float16)
    got = loaded.schedule.bind(rows=3).run(x)
    np.testing.assert_allclose(got, np.exp(np.float32(1)) * TABLE * np.ones((3, 1)), rtol=2e-3)


def test_other_extents_of_a_loaded_program_are_compiled_where_that_is_possible(saved: Path) -> None:
    caller = axe.load(saved).caller._fitting([np.ones((16, 256), np.float16)])
    assert caller.ready.code.ports["x"].shape == (16, 256)


def test_a_program_that_the_machine_cannot_run_is_not_compiled(tmp_path: Path) -> None:
    h200 = installed()["cuda"].targets["h200"]
    rows = tuple(row for row in h200.instrs if row.primitive != "copy")
    with pytest.raises(SearchError, match="no instruction of h200 fits"):
        axe.compile(lambda x: -x, axe.Spec((8, 64), "f16"), target=h200.replace(instrs=rows))
    assert list(tmp_path.iterdir()) == []


def test_another_machine_s_data_makes_its_own_code(tmp_path: Path) -> None:
    exe = axe.compile(lambda x: -x, axe.Spec((8, 64), "f16"), target="b200")
    exe.save(tmp_path / "negative.axe")
    (launch,) = axe.load(tmp_path / "negative.axe").caller.ready.code.launches
    assert launch.image.compute_capability == 100


def test_a_changed_machine_is_kept_with_the_program(tmp_path: Path) -> None:
    target = installed()["cuda"].targets["h200"].replace(smem=100 << 10)
    exe = axe.compile(lambda x: -x, axe.Spec((8, 64), "f16"), target=target)
    exe.save(tmp_path / "small.axe")
    assert axe.load(tmp_path / "small.axe").target == target


def test_running_without_a_device_is_one_clear_error(
    saved: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[..., None]
) -> None:
    def absent() -> Any:
        raise axe.DeviceError("CUDA driver", "finds no device", "an NVIDIA GPU")

    monkeypatch.setattr(driver, "driver", absent)
    with pytest.raises(AxeError) as caught:
        axe.load(saved)(np.ones((8, 256), np.float16))
    golden(f"{type(caught.value).__name__}: {caught.value}")


def digests(parts: dict[str, bytes]) -> bytes:
    known = {n: sha256(data).hexdigest() for n, data in parts.items() if n != "digests.json"}
    return json.dumps(known).encode()


@pytest.mark.parametrize("damage", ["code", "missing code", "more", "no loader", "schedule"])
def test_a_damaged_file_is_one_clear_error(
    damage: str, saved: Path, tmp_path: Path, golden: Callable[..., None]
) -> None:
    with zipfile.ZipFile(saved) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    if damage == "code":
        parts["code.bin"] = parts["code.bin"][:100]
    elif damage == "missing code":
        del parts["code.bin"]
    elif damage == "schedule":
        parts["schedule.json"] = b"{}"
    elif damage == "more":
        parts["source/more"] = b""
    else:  # what another installation may have saved
        head = json.loads(parts["call.json"])
        head["target"]["family"] = "abacus"
        parts["call.json"] = json.dumps(head).encode()
        parts["digests.json"] = digests(parts)
    path = tmp_path / "damaged.axe"
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)
    with pytest.raises(AxeError) as caught:
        _ = axe.load(path).schedule if damage == "schedule" else axe.load(path).caller.ready
    golden(f"{type(caught.value).__name__}: {caught.value}".replace(str(path), "FILE"))

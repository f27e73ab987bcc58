"""A second family of machines is a folder and a target: Trainium's, as another distribution's.

Its folder is copied under another name, for machines of other names, and installed beside packages
that have no such family. Nothing in core names it, so it is compiled for, interpreted and saved.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import axe_eq_backends

PROBE = """
import sys
import axe_eq.pack
points = axe_eq.pack.entry_points
axe_eq.pack.entry_points = lambda **of: [p for p in points(**of) if p.name != "nki"]
import numpy as np
import axe_eq as axe
from axe_eq import nn

rng = np.random.default_rng(0)
x, w = rng.standard_normal((32, 64)).astype("f4"), rng.standard_normal((64, 48)).astype("f4")
exe = axe.compile(lambda x, w: nn.relu(x @ w), x, w, target="moved2")
exe.save(sys.argv[1])
results = exe(x, w), exe.interpret(x, w), axe.load(sys.argv[1])(x, w)
assert all(np.allclose(found, np.maximum(x @ w, 0), atol=1e-4) for found in results)
assert exe.target.family == "moved" and not any("backends.nki" in name for name in sys.modules)
print(*[k.schedule for k in exe.kernels])
"""


def _moved(folder: Path) -> None:
    """The folder as a distribution's package `moved`, of a family and machines of that name."""
    (root,) = axe_eq_backends.__path__
    package = folder / "moved"
    shutil.copytree(Path(root) / "nki", package, ignore=shutil.ignore_patterns("__pycache__"))
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8").replace("axe_eq_backends.nki", "moved")
        if path.parent == package:  # the simulator's language is called nki, too
            text = re.sub(r'"trn([123])"', r'"moved\1"', text.replace('"nki"', '"moved"'))
        path.write_text(text, encoding="utf-8")
    about = folder / "moved-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: moved\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[axe_eq.packs]\nmoved = moved.pack:PACK\n[axe_eq.loaders]\nmoved = moved.run:load\n"
    )


def test_a_family_is_a_folder_of_any_distribution(tmp_path: Path) -> None:
    _moved(tmp_path)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(tmp_path / "saved.axe")],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "tensor_engine\n"

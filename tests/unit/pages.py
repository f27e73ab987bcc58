"""Pages whose Python blocks are run, in order and in one namespace, as a reader would."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_page(name: str) -> tuple[int, dict[str, Any]]:
    """Run a page of docs/; the number of its blocks and the names that they leave."""
    text = (DOCS / name).read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": name.replace(".", "_")}
    blocks = list(_BLOCK.finditer(text))
    for block in blocks:
        begin = text.count("\n", 0, block.start(1))
        code = "\n" * begin + block[1]  # lines of tracebacks are those of the page
        place = f"docs/{name}"
        linecache.cache[place] = len(code), None, code.splitlines(keepends=True), place
        exec(compile(code, place, "exec"), names)
    return len(blocks), names

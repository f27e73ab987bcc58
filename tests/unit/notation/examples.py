"""The texts that docs/notations.md has in its table, one of each notation."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "notations.md"
_ROW = re.compile(r"\| \[`(\w+)`\]\(#\w+\) \| `(.+)` \| [a-z, ]*\|")

EXAMPLES = {
    row[1]: row[2].replace(r"\|", "|")
    for row in map(_ROW.fullmatch, PAGE.read_text(encoding="utf-8").splitlines())
    if row
}

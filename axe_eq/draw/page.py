"""Self-contained pages: nothing is fetched, light or dark as the reader's system asks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from html import escape
from importlib import resources

from axe_eq.draw import colour


@cache
def _file(name: str) -> str:
    return "\n" + resources.files(__name__.rpartition(".")[0]).joinpath(name).read_text("utf-8")


def page(
    title: str, body: Iterable[str], *, formal: bool = False, linked: bool = False, style: str = ""
) -> str:
    """A whole HTML document.

    Args:
        title: of the window, and the heading.
        body: what stands below the heading, as HTML.
        formal: the title is text of a formal language.
        linked: cells light up together, and ``page.html#37`` selects element 37.
        style: the file in this folder with one more style sheet.
    """
    hint = '<div id="selected">Point at a cell, or click to keep it.</div>' if linked else ""
    # Cells that stand for one element light up together; a click keeps it in the address.
    script = f"<script>{_file('page.js')}</script>" if linked else ""
    styles = (
        _file("theme.css") + _file("page.css") + colour.style() + (_file(style) if style else "")
    )
    heading = code(title) if formal else escape(title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{styles}</style></head>\n"
        f"<body><main>\n<h1>{heading}</h1>\n{chr(10).join(body)}\n</main>{hint}{script}"
        "</body></html>\n"
    )


def alone(svg: str, style: str) -> str:
    """A picture of a page as a file of its own, with the page's colours on paper of its own.

    Args:
        svg: the picture.
        style: the file in this folder with its style sheet.
    """
    head, _, drawn = svg.partition(">")
    paper = '<rect width="100%" height="100%" fill="var(--card)"/>'
    return f"{head}><style>{_file('theme.css')}{_file(style)}</style>{paper}{drawn}"


def section(title: str, note: str, body: str) -> str:
    """A part of a page under a heading; `body` is HTML, the rest is text."""
    text = f"<p>{escape(note)}</p>" if note else ""
    return f"<section><h2>{escape(title)}</h2>{text}{body}</section>"


def panel(drawn: str) -> str:
    """A frame that scrolls."""
    return f'<div class="panel">{drawn}</div>'


def side_by_side(parts: Iterable[tuple[str, str]]) -> str:
    """Titled pieces of HTML next to each other where there is room."""
    drawn = "".join(f"<div><h3>{escape(title)}</h3>{body}</div>" for title, body in parts)
    return f'<div class="side">{drawn}</div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Named figures in a row."""
    shown = "".join(f"<div><b>{escape(value)}</b>{escape(name)}</div>" for name, value in pairs)
    return f'<div class="facts">{shown}</div>'


def code(text: str) -> str:
    """Text of a formal language, as HTML."""
    return f"<code>{escape(text)}</code>" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()) -> str:
    """A table in a frame; cells are HTML already, columns in `numbers` are aligned right."""
    marks = [' class="n"' if n in numbers else "" for n in range(len(head))]
    top = "".join(f"<th{m}>{escape(h)}</th>" for h, m in zip(head, marks, strict=True))
    lines = [
        "<tr>" + "".join(f"<td{m}>{c}</td>" for c, m in zip(row, marks, strict=True)) + "</tr>"
        for row in rows
    ]
    return panel(f"<table><tr>{top}</tr>\n{chr(10).join(lines)}</table>")


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Tones and marks with what they mean."""
    drawn = []
    for name, meaning in entries:
        kind = f"cell {name}" if name[:1] in "hrp" else f"mark {name}"
        drawn.append(
            f'<span><svg class="axe" width="14" height="14"><rect class="{kind}" x="1" y="1" '
            f'width="12" height="12"/></svg>{escape(meaning)}</span>'
        )
    return f'<div class="legend">{"".join(drawn)}</div>'

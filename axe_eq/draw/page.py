"""Self-contained pages: nothing is fetched, light or dark as the reader's system asks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape

from axe_eq.draw import colour

_STYLE = """
:root{color-scheme:light dark;--page:#fbfbfa;--card:#fff;--ink:#1d2125;--soft:#626b76;
--line:#d7dbe0;--mark:#eef2f8;--bad:#b3122b;--good:#156b3e}
@media (prefers-color-scheme:dark){:root{--page:#14171b;--card:#1d2126;--ink:#e4e8ec;--soft:#98a2ae;
--line:#363d45;--mark:#242a32;--bad:#ff8a82;--good:#63cf98}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:14px/1.45 system-ui,sans-serif}
main{max-width:1240px;margin:0 auto;padding:24px 20px 96px}
h1{font-size:22px;margin:0 0 6px}h1 code{font-size:18px}
h2{font-size:16px;margin:28px 0 8px}h3{font-size:13px;margin:0 0 6px;overflow-wrap:anywhere}
p{color:var(--soft);margin:0 0 10px;max-width:80ch}
code{font:12px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
.verdict{color:var(--ink);font-size:15px}.no{color:var(--bad)}.yes{color:var(--good)}
.facts{display:flex;flex-wrap:wrap;gap:8px 28px;margin:14px 0 0}
.facts div{color:var(--soft)}.facts b{display:block;color:var(--ink);font-size:16px}
.pair{display:flex;flex-wrap:wrap;gap:0 16px}.pair>section{min-width:0;flex:1 1 380px}
.side{display:flex;flex-wrap:wrap;gap:16px}.side>div{min-width:0;flex:1 1 380px}
.panel{background:var(--card);border:1px solid var(--line);border-radius:8px;overflow:auto;
padding:10px;max-height:78vh}
.panel>svg{display:block}
table{border-collapse:collapse;width:100%}
th,td{padding:5px 12px 5px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
tr:last-child td{border-bottom:0}
th{color:var(--soft);font-weight:600;font-size:12px;white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.soft{color:var(--soft)}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:0 0 8px;color:var(--soft)}
.legend svg{vertical-align:-3px;margin-right:5px}
.step{margin:0 0 12px}.step code{display:block;padding:2px 0}
#selected{position:fixed;left:0;right:0;bottom:0;background:var(--card);color:var(--ink);
border-top:1px solid var(--line);padding:8px 20px;font:12px/1.4 ui-monospace,monospace;
white-space:pre-line;min-height:36px}
"""

# Cells of all grids that stand for one element light up together; a click keeps it in the address.
_SCRIPT = """
(()=>{const out=document.getElementById('selected'),rest=out.textContent;let lit=[],held='';
function pick(keys,cell){lit.forEach(c=>c.classList.remove('on'));lit=[];const told=new Set();
if(cell&&cell.dataset.t)told.add(cell.dataset.t);
if(keys)keys.split(' ').forEach(k=>document.querySelectorAll('[data-x~="'+k+'"]').forEach(c=>{
c.classList.add('on');lit.push(c);told.add(c.dataset.t)}));
out.textContent=told.size?[...told].slice(0,6).join('\\n'):rest}
const of=e=>e.target.closest&&e.target.closest('[data-t]');
document.addEventListener('pointerover',e=>{const c=of(e);pick(c?c.dataset.x||'':held,c)});
document.addEventListener('click',e=>{const c=of(e),x=c&&c.dataset.x;if(x){held=x===held?'':x;
history.replaceState(null,'',held?'#'+held.replaceAll(' ','+'):'#');pick(held,c)}});
held=decodeURIComponent(location.hash.slice(1)).replaceAll('+',' ');
if(!/^[0-9 ]+$/.test(held))held='';pick(held)})();
"""


def page(
    title: str, body: Iterable[str], *, formal: bool = False, linked: bool = False, style: str = ""
) -> str:
    """A whole HTML document.

    Args:
        title: of the window, and the heading.
        body: what stands below the heading, as HTML.
        formal: the title is text of a formal language.
        linked: cells light up together, and ``page.html#37`` selects element 37.
        style: more style sheets.
    """
    hint = '<div id="selected">Point at a cell, or click to keep it.</div>' if linked else ""
    script = f"<script>{_SCRIPT}</script>" if linked else ""
    heading = code(title) if formal else escape(title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{colour.style()}{style}</style></head>\n"
        f"<body><main>\n<h1>{heading}</h1>\n{chr(10).join(body)}\n</main>{hint}{script}"
        "</body></html>\n"
    )


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

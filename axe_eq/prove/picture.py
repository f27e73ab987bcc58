"""Pictures of layouts, of pairs of layouts with their verdict, and of certificates.

Each can be had as a page (HTML), as a picture (SVG), as text for a terminal, and shows itself in a
notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import NamedTuple

from axe_eq.draw import page as html
from axe_eq.draw.grid import figure_svg
from axe_eq.errors import ArgumentError, AxeError
from axe_eq.files import write_text
from axe_eq.layout import Layout, Mesh
from axe_eq.layout.notation import prefixed, read_any, row_major_shape, stated_shape
from axe_eq.layout.picture.matrix import matrix_of, region
from axe_eq.layout.picture.pair import Pair, pair_of, pair_sections, pair_text, rows_and_columns
from axe_eq.layout.picture.panels import shown_axes
from axe_eq.layout.picture.single import FEW, Look, layout_html, layout_svg, layout_text
from axe_eq.pack import packs as find_packs
from axe_eq.prove.certificates.checker import refusal
from axe_eq.prove.certificates.proof import Certificate
from axe_eq.prove.certificates.steps import Account, Step, account
from axe_eq.prove.certificates.verdict import LayoutCounterexample, Proved, Refuted, Verdict
from axe_eq.prove.layouts.equality import equivalent_layouts, orders


class Picture:
    """Something drawn, in whatever form it is asked for.

    Args:
        html: makes one self-contained page.
        svg: makes one self-contained picture, without what only a page has.
        text: makes what a terminal shows.
    """

    def __init__(
        self, html: Callable[[], str], svg: Callable[[], str], text: Callable[[], str]
    ) -> None:
        self._html, self.svg, self.text = html, svg, text

    def html(self, path: str | Path | None = None) -> str:
        """One self-contained page; written to `path` where given, as a schedule's `html`."""
        text = self._html()
        if path is not None:
            write_text(path, text)
        return text

    def save(self, path: str | Path) -> None:
        """Write it to a file, whole or not at all: a page, or a picture where it ends in .svg.

        Raises:
            ArgumentError: another ending, or a place that cannot be written.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in (".html", ".svg"):
            raise ArgumentError(f"file {str(path)!r}", f"ends in {suffix!r}", ".html or .svg")
        write_text(path, self.svg() if suffix == ".svg" else self.html())

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.svg()


def layout_picture(layout: Layout, look: Look) -> Picture:
    """One layout: elements, places, banks, notations."""
    forms = (partial(form, layout, look) for form in (layout_html, layout_svg, layout_text))
    return Picture(*forms)


# ---- two layouts --------------------------------------------------------------------------------


def pair_picture(
    a: Layout, b: Layout, look: Look, titles: tuple[str, str], hint: str = ""
) -> Picture:
    """Two layouts, what differs, and the verdict with its proof or its counterexample.

    Args:
        a: a layout.
        b: another.
        look: how they are drawn.
        titles: what stands above them.
        hint: what else is said of them where they differ.
    """
    verdict = equivalent_layouts(a, b, find_packs(None))
    found = verdict.counterexample if isinstance(verdict, Refuted) else None
    first = found.x if isinstance(found, LayoutCounterexample) else None
    drawn = _Compared(a, b, look, titles, verdict, first if isinstance(first, int) else None)
    if isinstance(verdict, Refuted) and isinstance(found, LayoutCounterexample):
        told = replace(found, dims=rows_and_columns(a, b, look).dims)  # named as in the grids
        drawn = drawn._replace(verdict=replace(verdict, counterexample=told, hint=hint))
    return Picture(
        partial(_pair_html, drawn), partial(_pair_svg, drawn), partial(_pair_text, drawn)
    )


class _Compared(NamedTuple):
    """Two layouts with the verdict on them and the first element that differs."""

    a: Layout
    b: Layout
    look: Look
    titles: tuple[str, str]
    verdict: Verdict
    first: int | None

    def pair(self, most: int, *, named: bool = True) -> Pair | None:
        """Both as grids; None where they have not one size."""
        if self.a.size != self.b.size:
            return None
        return pair_of(self.a, self.b, self.first, self.look, most, named=named)

    def said(self) -> list[str]:
        """The verdict in lines."""
        return str(self.verdict).splitlines()


def _pair_html(drawn: _Compared) -> str:
    kind = {Proved: "yes", Refuted: "no"}.get(type(drawn.verdict), "")
    head, *rest = drawn.said()
    body = [f'<p class="verdict {kind}">{escape(head)}</p>']
    body += [f'<p class="verdict">{html.code(line)}</p>' for line in rest]
    if drawn.a.size == drawn.b.size:
        body += pair_sections(drawn.a, drawn.b, drawn.first, drawn.look, drawn.titles)
    if isinstance(drawn.verdict, Proved):
        certificate = drawn.verdict.certificate
        body += proof_sections(account(certificate.proof), texts_read(certificate))
    return html.page(" and ".join(drawn.titles), body, formal=True, linked=True)


def _pair_svg(drawn: _Compared) -> str:
    pair = drawn.pair(FEW)
    if pair is None:
        return figure_svg([], [*drawn.titles, *drawn.said()])
    parts = zip(drawn.titles, pair.grids, strict=True)
    return figure_svg(list(parts), [*drawn.said(), pair.note])


def _pair_text(drawn: _Compared) -> str:
    pair = drawn.pair(FEW, named=False)
    shown = [] if pair is None else ["", pair_text(pair, drawn.titles)]
    return "\n".join([*drawn.said(), *shown])


# ---- a certificate ------------------------------------------------------------------------------


def proof_picture(certificate: Certificate) -> Picture:
    """A certificate as steps, and whether it is accepted."""
    reason = refusal(certificate)
    told = account(certificate.proof, chained=reason is None)
    read = texts_read(certificate)
    said = "accepted" if reason is None else f"refused: {reason}"
    kind = "yes" if reason is None else "no"

    def page() -> str:
        verdict = f'<p class="verdict {kind}">{escape(said)}</p>'
        return html.page(told.statement, [verdict, *proof_sections(told, read)], formal=True)

    def lines() -> list[str]:
        return _proof_lines(told, said, read)

    return Picture(page, lambda: figure_svg([], lines()), lambda: "\n".join(lines()))


def texts_read(certificate: Certificate) -> list[tuple[str, str]]:
    """The texts that two layouts were given as, each with the layout that it is read as."""
    state, found = certificate.proof.statement, []
    for text in state.texts:
        try:
            found.append((text, str(read_any(text, **state.context._asdict()))))
        except AxeError as error:  # a certificate may claim anything
            found.append((text, f"nothing: {error}"))
    return found


def _proof_lines(told: Account, said: str, read: Sequence[tuple[str, str]] = ()) -> list[str]:
    lines = [told.statement, said, ""]
    lines += [f"{text} is read as {layout}" for text, layout in read] + [""] * bool(read)
    for name, (defined, roots) in (("left", told.left), ("right", told.right)):
        lines += [*defined, f"{name}: {', '.join(roots)}", ""]
    if not told.chain:
        lines += [line for step in told.steps for line in _step_lines(step)]
    for link in told.chain:
        if link.step is None:
            lines.append(f"  {link.text}")
        else:
            step = told.steps[link.step]
            lines += [f"    by {step.law}: {step.says}", f"= {link.text}"]
    return lines


def _step_lines(step: Step) -> list[str]:
    """What a step defines and what it makes equal."""
    equal = [] if step.left is None else [f"so {step.left} = {step.right}"]
    return [f"by {step.law}: {step.says}", *step.defined, *equal]


def proof_sections(told: Account, read: Sequence[tuple[str, str]] = ()) -> list[str]:
    """The parts of a page that tell a certificate: how texts were read, the sides, the steps."""
    shown = []
    if read:
        rows = [[html.code(text), html.code(layout)] for text, layout in read]
        shown.append(html.section("How the texts are read", "", html.table(("text", "as"), rows)))
    if any(told.left[0] + told.right[0]):
        rows = [
            [name, "<br>".join(map(html.code, (*defined, f"root {', '.join(roots)}")))]
            for name, (defined, roots) in (("left", told.left), ("right", told.right))
        ]
        shown.append(html.section("The two sides", "", html.table(("side", "values"), rows)))
    if not told.steps:
        both = "Both texts are read as one layout" if read else "Both sides are the same term"
        note = f"{both}: there is nothing to prove."
    elif told.chain:
        note = "From the left side to the right one, each equal to the one before by a law."
    else:
        note = "What follows from these equalities by equal parts makes both sides equal."
    drawn = _chain(told) if told.chain and told.steps else "".join(map(_step, told.steps))
    return [*shown, html.section("Proof", note, html.panel(drawn) if drawn else "")]


def _chain(told: Account) -> str:
    parts = []
    for link in told.chain:
        step = None if link.step is None else told.steps[link.step]
        by = "" if step is None else f"<p>{html.code(step.law)} {escape(step.says)}</p>"
        sign = "" if step is None else "= "
        parts.append(f'<div class="step">{by}{html.code(sign + link.text)}</div>')
    return "".join(parts)


def _step(step: Step) -> str:
    said, *lines = _step_lines(step)
    return f'<div class="step"><p>{escape(said)}</p>{"".join(map(html.code, lines))}</div>'


def draw(
    a: Layout | str | Certificate,
    b: Layout | str | None = None,
    *,
    shape: Iterable[int] | None = None,
    mesh: Mesh | None = None,
    itemsize: int | None = None,
    colour: str | None = None,
    at: Sequence[int] | None = None,
) -> Picture:
    """Draw a layout, the difference of two layouts, or the certificate of a proof.

    >>> print(str(axe.draw("S[(2,4):(4@m,1@m)]", shape=(2, 4))).splitlines()[0])
    S[(2,4):(4@m,1@m)]

    Args:
        a: a layout, or its text with the notation as a prefix; or a certificate.
        b: another layout.
        shape: extents of the tensor; by default those that the layout's box or its text states.
            CuTe text without it is the function of its own linear index, as everywhere; one such
            layout alone is shown with its modes as rows and columns, and says so.
        mesh: the devices.
        itemsize: bytes of one element; shows the banks of shared memory.
        colour: the axis that colours the cells.
        at: an element, by its digits or its number, that the window of a large layout shows.

    Raises:
        NotationError, LayoutError: a text or a shape that does not fit.
        ArgumentError: a combination that cannot be drawn.
    """
    if isinstance(a, Certificate):
        if b is not None:
            raise ArgumentError("draw", "got a certificate and a layout", "a certificate alone")
        return proof_picture(a)
    extents = None if shape is None else tuple(shape)
    meant = None
    if b is None and isinstance(a, str) and extents is None:
        extents = stated_shape(*prefixed(a))  # CuTe's modes are dims, as CuTe prints them
        meant = read_any(a, mesh=mesh, itemsize=itemsize)
    sides = [
        x if isinstance(x, Layout) else read_any(x, shape=extents, mesh=mesh, itemsize=itemsize)
        for x in (a, b)
        if x is not None
    ]
    if extents is None:
        given = [x for x in (a, b) if x is not None]
        stated = [row_major_shape(*prefixed(x)) if isinstance(x, str) else None for x in given]
        # Both are drawn over the left one's dims; over the right one's where it is one run.
        one_run = sum(extent > 1 for extent, _, _ in sides[0].shard) < 2
        extents = stated[0] or (next(filter(None, stated), None) if one_run else None)
    matrix = matrix_of(sides[0], extents)
    known = shown_axes(*sides)
    if colour is not None and colour not in known:
        raise ArgumentError(f"colour {colour!r}", "no axis of what is drawn", " or ".join(known))
    index = None if at is None else region(matrix, at)
    if meant == sides[0]:
        meant = None
    typed = a.strip() if isinstance(a, str) and prefixed(a)[0] != "axe" else ""
    look = Look(extents, colour, index, itemsize, mesh, meant, typed)
    if len(sides) == 1:
        return layout_picture(sides[0], look)
    one, two = (_title(x, side) for x, side in zip((a, b), sides, strict=True))
    return pair_picture(sides[0], sides[1], look, (one, two), "" if shape else orders(a, b))


def _title(given: object, layout: Layout) -> str:
    """What was given; of another notation than ours also the layout that it was read as."""
    if not isinstance(given, str):
        return str(layout)
    typed = given.strip()
    return typed if prefixed(given)[0] == "axe" else f"{typed} = {layout}"

"""`axe layout`, `convert` and `draw`: what is known of layouts, in every notation, as pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from axe_eq.cli.group import as_json_text, axe, json_option
from axe_eq.cli.words import context_of, context_options, parse_integers, parse_region, parse_shape
from axe_eq.errors import ArgumentError
from axe_eq.files import read_text
from axe_eq.layout import (
    Layout,
    common_refinement,
    compose,
    direct_sum,
    direct_sum_left,
    direct_sum_right,
    tile,
    tile_of,
)
from axe_eq.layout.notation import (
    NOTATIONS,
    find,
    prefixed,
    read,
    read_any,
    row_major_shape,
    stated_shape,
    write,
)
from axe_eq.layout.notation.text import quote
from axe_eq.layout.picture.describe import describe
from axe_eq.prove.certificates.proof import Certificate
from axe_eq.prove.picture import draw as draw_picture

# ---- axe layout ---------------------------------------------------------------------------------


class _Operations(click.Group):
    """A group whose first word is an operation, or else the layout to describe."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0].replace("_", "-") in self.commands:
            args = [args[0].replace("_", "-"), *args[1:]]  # as in Python
        elif args:
            args = ["describe", *args]
        return super().resolve_command(ctx, args)


@axe.group(cls=_Operations, context_settings={"ignore_unknown_options": True})
def layout() -> None:
    """Describe a layout, or apply an operation to it.

    `axe layout TEXT` describes, `axe layout OP ...` applies.
    """


@layout.command("describe")
@click.argument("text")
@context_options
@json_option
def describe_command(text: str, as_json: bool, **options: Any) -> None:
    """Normal form, spans, aliasing, all notations.

    Also the memory that it needs, and what of that holds nothing.
    """
    context = context_of(**options)
    found = describe(
        read_any(text, **context),
        shape=context["shape"],
        mesh=context["mesh"],
        stated=row_major_shape(*prefixed(text)),
    )
    click.echo(as_json_text(found.data()) if as_json else str(found))


def _operation(name: str, *arguments: str) -> Callable[..., Any]:
    """Registers a command whose function gives a layout, which is printed as axe text.

    An argument SHAPE may be given as an option instead, and left out where A's text states it.
    """
    shaped = "shape" in arguments

    def register(function: Callable[..., Layout]) -> Callable[..., Any]:
        def run(as_json: bool, shape_option: str | None = None, **given: str | None) -> None:
            words = _with_shape(given, shape_option) if shaped else given
            result = str(function(**words))
            click.echo(as_json_text({"layout": result}) if as_json else result)

        command: Any = json_option(run)
        if shaped:
            told = "Extents of A, instead of the argument; by default those that A's text states."
            command = click.option("--shape", "shape_option", default=None, help=told)(command)
        for argument in reversed(arguments):
            command = click.argument(argument, required=argument == "a" or not shaped)(command)
        layout.command(name, help=function.__doc__)(command)
        return function

    return register


def _with_shape(given: dict[str, str | None], option: str | None) -> dict[str, str | None]:
    """The arguments by name, the shape among them: given, said as an option, or stated by A.

    Raises:
        UsageError: not as many as the operation takes.
    """
    words = [word for word in given.values() if word is not None]
    at = list(given).index("shape")
    if option is not None and len(words) == len(given):
        raise click.UsageError("Got SHAPE twice, as an argument and as --shape.")
    if option is not None:
        words.insert(at, option)
    elif len(words) == len(given) - 1:
        stated = _stated(words[0])
        if stated is None:
            raise click.UsageError("Missing SHAPE, as argument or --shape: A's text states none.")
        words.insert(at, stated)
    if len(words) < len(given):
        missing = list(given)[len(words)]
        raise click.UsageError(f"Missing argument '{missing.upper()}'.")
    return dict(zip(given, words, strict=True))


def _stated(text: str) -> str | None:
    """The extents of the dims that a text states, as an option's text; modes are no dims."""
    name, rest = prefixed(text)
    found = None if find(name).first_fastest else stated_shape(name, rest)
    return None if found is None else "x".join(map(str, found))


@_operation("canonical", "a")
def _canonical(a: str) -> Layout:
    """The one layout of all with the same map."""
    return read_any(a).canonical()


@_operation("group", "a", "shape")
def _group(a: str, shape: str) -> Layout:
    """A cut at the boundaries of SHAPE."""
    return read_any(a).group(parse_shape(shape)).layout


@_operation("slice", "a", "shape", "region")
def _slice(a: str, shape: str, region: str) -> Layout:
    """The part of A, of SHAPE, in REGION: 0:4,8:16."""
    return read_any(a).slice(parse_shape(shape), parse_region(region))


@_operation("permute", "a", "shape", "perm")
def _permute(a: str, shape: str, perm: str) -> Layout:
    """A with the dims of SHAPE in the order PERM: 1,0."""
    return read_any(a).permute(parse_shape(shape), parse_integers("permutation", perm))


def _of_two(name: str, operation: Callable[..., Any], meaning: str) -> None:
    """Registers an operation on two layouts of given shapes."""

    def of_two(a: str, shape_a: str, b: str, shape_b: str) -> Layout:
        made: Layout = operation(
            read_any(a), parse_shape(shape_a), read_any(b), parse_shape(shape_b)
        )
        return made

    of_two.__doc__ = meaning
    _operation(name, "a", "shape_a", "b", "shape_b")(of_two)


_of_two("tile", tile, "A grid A of tiles B (A is outer).")
_of_two("tile-of", tile_of, "C such that A is a grid C of tiles B.")
_of_two("direct-sum", direct_sum, "A + B, their dims interleaved.")
_of_two("direct-sum-left", direct_sum_left, "C such that A = C + B.")
_of_two("direct-sum-right", direct_sum_right, "C such that A = B + C.")


@_operation("compose", "a", "b")
def _compose(a: str, b: str) -> Layout:
    """B, then A: the layout x -> A(B(x))."""
    return compose(read_any(a), read_any(b))


@layout.command("inverse")
@click.argument("a")
@click.argument("axes", nargs=-1)
@json_option
def inverse_command(a: str, axes: tuple[str, ...], as_json: bool) -> None:
    """From places to elements.

    Several AXES are given in the order that indexes the inverse.
    """
    result = str(read_any(a).inverse(axes))
    click.echo(as_json_text({"layout": result}) if as_json else result)


@layout.command("apply")
@click.argument("a")
@click.argument("index")
@click.option("--shape", default=None, help="Extents of the tensor, for an index of several dims.")
@json_option
def apply_command(a: str, index: str, shape: str | None, as_json: bool) -> None:
    """Where the element INDEX lies: 5, or digits 1,0.

    Digits are those of --shape, else of the dims or modes that the text of A states.
    """
    digits = parse_integers("index", index)
    dims = None if shape is None else parse_shape(shape)
    if dims is None and len(digits) > 1:
        name, rest = prefixed(a)
        dims = row_major_shape(name, rest)
        digits = digits[::-1] if dims and find(name).first_fastest else digits
    if dims is None and len(digits) > 1:
        wrong = f"has {len(digits)} digits, and the layout's dims are not said"
        raise ArgumentError(f"index {quote(index)}", wrong, "--shape with as many extents, as 8x16")
    at: int | Sequence[int] = digits[0] if len(digits) == 1 and dims is None else digits
    places = sorted(read_any(a)(at, shape=dims))
    if as_json:
        click.echo(as_json_text([dict(place) for place in places]))
        return
    lines = (" ".join(f"{value}@{axis}" for axis, value in place) or "0" for place in places)
    click.echo("\n".join(lines))


@layout.command("refine")
@click.argument("shapes", nargs=-1, required=True)
@json_option
def refine_command(shapes: tuple[str, ...], as_json: bool) -> None:
    """The coarsest shape that cuts where SHAPES do."""
    result = list(common_refinement([parse_shape(shape) for shape in shapes]))
    click.echo(as_json_text({"shape": result}) if as_json else "x".join(map(str, result)))


# ---- axe convert --------------------------------------------------------------------------------


@axe.command()
@click.argument("text")
@click.option("--from", "source", default=None, help="Notation of the text; else its prefix.")
@click.option("--to", "target", required=True, help=f"One of {', '.join(NOTATIONS)}.")
@context_options
@json_option
def convert(text: str, source: str | None, target: str, as_json: bool, **options: Any) -> None:
    """Write a layout in another notation.

    What that cannot express is refused with the reason.
    """
    context = context_of(**options)
    goal, (name, rest) = find(target), prefixed(text)
    if source is not None and source.lower() != name:
        name, rest = source, text
    found = read(name, rest, **context)
    shape = context["shape"]
    if shape is None and not goal.first_fastest:
        shape = row_major_shape(name, rest)
    written = write(goal.name, found, shape=shape, mesh=context["mesh"])
    click.echo(as_json_text({"notation": goal.name, "text": written}) if as_json else written)


# ---- axe draw -----------------------------------------------------------------------------------


@axe.command()
@click.argument("a")
@click.argument("b", required=False)
@context_options
@click.option("-o", "--output", default="layout.html", help="A .html page or a .svg picture.")
@click.option("--text", "as_text", is_flag=True, help="Print it instead.")
@click.option("--colour", "--color", "colour", default=None, help="The axis that colours cells.")
@click.option(
    "--banks",
    type=click.IntRange(1),
    default=None,
    help="Bytes of an element: shows which bank of shared memory holds what, as --itemsize does.",
)
@click.option("--at", default=None, help="An element that the window of a large layout shows: 3,5.")
@json_option
def draw(
    a: str,
    b: str | None,
    output: str,
    as_text: bool,
    colour: str | None,
    banks: int | None,
    at: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Draw a layout, two, or a certificate (a .json file).

    Two layouts are compared as `axe equiv` compares them, over the dims of the first. With --shape
    they are read for a tensor of that shape, which changes what some texts mean: the modes of CuTe
    text are then the dims in order; without it they are its own linear index, first mode fastest.
    One CuTe layout alone is drawn with its modes as rows and columns; the drawing says so.
    """
    context = context_of(**options)
    if banks is not None and context["itemsize"] not in (None, banks):
        wrong = f"says {banks} bytes, and --itemsize {context['itemsize']}"
        raise ArgumentError("--banks", wrong, "one of the two")
    context["itemsize"] = banks or context["itemsize"]
    picture = draw_picture(
        _subject(a),
        None if b is None else _subject(b),
        colour=colour,
        at=None if at is None else parse_integers("element", at),
        **context,
    )
    if as_text:
        text = picture.text()
        click.echo(as_json_text({"text": text}) if as_json else text)
        return
    picture.save(output)
    click.echo(as_json_text({"file": output}) if as_json else f"{output} written")


def _subject(text: str) -> str | Certificate:
    """A layout text, or the certificate in a file."""
    return Certificate(read_text(text, "a certificate")) if text.endswith(".json") else text

"""What a cone reduces: of which of them there are how many, and over what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from axe_eq.extract.price.cone import Picks
from axe_eq.extract.price.lying import part_of
from axe_eq.extract.read.forest import LOAD, SCAN, Choice, Forest, TileClass
from axe_eq.program.signature import signature
from axe_eq.schedule.summary import Reductions


def reductions(forest: Forest, order: Sequence[int], picks: Picks, results: int) -> Reductions:
    """How many reductions of every kind the tiles of a cone of so many results are."""
    products = structured = folds = staged = 0
    scans = False
    spaces: set[tuple[str, tuple[int, ...], tuple[int, ...]]] = set()
    for choice in (picks[tile] for tile in order):
        scans |= choice.kind == SCAN
        if choice.product:
            products += 1
            structured += choice.structured
            staged += sum(1 for _ in computed_operands(forest, choice, picks))
        if choice.reduces and (choice.structured or not choice.product):
            folds += not choice.product
            spaces.add(_space(forest, choice))
    return Reductions(products, structured, folds, len(spaces), staged, scans, results)


def monoids(order: Sequence[int], picks: Picks) -> tuple[str, ...]:
    """What they reduce by, in order of the alphabet."""
    return tuple(sorted({_monoid(picks[t].text) for t in order if picks[t].reduces}))


def computed_operands(forest: Forest, product: Choice, picks: Picks) -> Iterator[TileClass]:
    """Operands of a product that the kernel computes itself: they pass through tile memory."""
    for child in through_tiles(product):
        if picks[part_of(child, picks)].kind != LOAD:
            yield forest.tiles[child]


def through_tiles(choice: Choice) -> tuple[int, ...]:
    """Operands of a product that pass through tile memory; scores of a structured one do not."""
    return choice.children[1:] if choice.structured else choice.children


@cache
def _monoid(text: str) -> str:
    """What a signature reduces by."""
    return signature(text).monoid


def _space(forest: Forest, choice: Choice) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """What a reduction is over: box and shape of its largest operand, and the dims reduced."""
    sizes = [forest.tiles[c].type.size for c in choice.children]
    at = sizes.index(max(sizes))
    whole = forest.tiles[choice.children[at]]
    return whole.box, whole.type.shape, _dims(choice.text, at)


@cache
def _dims(text: str, operand: int) -> tuple[int, ...]:
    """The dims of an operand that a signature reduces."""
    parsed = signature(text)
    dims = enumerate(parsed.operands[operand])
    return tuple(d for d, p in dims if any(i in parsed.reduced for i, _ in p.terms))

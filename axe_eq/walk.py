"""What some things reach through others: in an order, what waits for nothing first; in circles."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

Thing = TypeVar("Thing", bound=Hashable)


def reached(roots: Iterable[Thing], below: Callable[[Thing], Sequence[Thing]]) -> Iterator[Thing]:
    """What the roots reach, themselves included, each once: after what is below it.

    Deterministic, and without recursion, however deep it goes. What waits for itself comes after
    all that it reaches by another way.

    >>> list(reached(["ab"], lambda word: [word[0]] if word[1:] else []))
    ['a', 'ab']

    Args:
        roots: where to begin.
        below: what something waits for, the first first.
    """
    return (thing for thing in in_order(roots, below) if thing is not None)


def in_order(
    roots: Iterable[Thing], below: Callable[[Thing], Sequence[Thing]]
) -> Iterator[Thing | None]:
    """As `reached`, with None where something is met that waits for itself.

    >>> list(in_order(["ab"], lambda word: ["ab"]))
    [None, 'ab']
    """
    done, begun = set[Thing](), set[Thing]()
    for root in roots:
        stack = [(root, False)]
        while stack:
            thing, ready = stack.pop()
            if ready:
                done.add(thing)
                yield thing
            elif thing in done:
                continue
            elif thing in begun:
                yield None
            else:
                begun.add(thing)
                stack.append((thing, True))
                stack.extend(
                    (other, False) for other in reversed(below(thing)) if other not in done
                )


def circles(below: Mapping[Thing, Iterable[Thing]]) -> Iterator[list[Thing]]:
    """Things that reach one another, together; alone where no other is reached and reaches back.

    Source: Kosaraju's algorithm (Sharir, A strong-connectivity algorithm, 1981).

    >>> [sorted(part) for part in circles({1: [2], 2: [1, 3]})]
    [[1, 2], [3]]
    """
    above: dict[Thing, list[Thing]] = {}
    for thing, others in below.items():
        for other in others:
            above.setdefault(other, []).append(thing)
    given = set[Thing]()
    for root in reversed(list(reached(below, lambda thing: tuple(below.get(thing, ()))))):
        if root not in given:
            free = lambda thing: [t for t in above.get(thing, ()) if t not in given]  # noqa: E731
            part = list(reached([root], free))
            given.update(part)
            yield part

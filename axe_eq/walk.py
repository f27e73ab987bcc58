"""What some things reach through others, in an order: what waits for nothing first."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

Thing = TypeVar("Thing", bound=Hashable)


def reached(roots: Iterable[Thing], below: Callable[[Thing], Sequence[Thing]]) -> Iterator[Thing]:
    """What the roots reach, themselves included, each once: after what is below it.

    Deterministic, and without recursion, however deep it goes.

    >>> list(reached(["ab"], lambda word: [word[0]] if word[1:] else []))
    ['a', 'ab']

    Args:
        roots: where to begin.
        below: what something waits for, the first first; nothing waits for itself.
    """
    return (thing for thing in in_order(roots, below) if thing is not None)


def in_order(
    roots: Iterable[Thing], below: Callable[[Thing], Sequence[Thing]]
) -> Iterator[Thing | None]:
    """As `reached`; the last one is None where something waits for itself.

    >>> list(in_order(["ab"], lambda word: ["ab"]))
    [None]
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
                return
            else:
                begun.add(thing)
                stack.append((thing, True))
                stack.extend(
                    (other, False) for other in reversed(below(thing)) if other not in done
                )

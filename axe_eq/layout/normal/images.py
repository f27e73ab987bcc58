"""Sets of integers as bits, and the lists of steps that have them as images.

A step ``(stride, extent)`` is a progression from 0; a list is the sum of its steps. Many lists have
one image, and `factor` picks one that depends on the image alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from math import gcd

from axe_eq.errors import SearchError

Steps = tuple[tuple[int, int], ...]  # (stride, extent), strides positive and ascending

MAX_WORK = 2**33  # bits shifted in one search: about a second
MAX_FIRST = 2**32  # bits shifted in the first attempt of `factor`
MAX_TRIES = 100  # lists that it begins
MAX_SECOND = 2**32  # bits shifted in its second attempt: half a second
MAX_STEPS = 24  # each step at least doubles the reach, and the span is at most 2**24


def spread(bits: int, stride: int, extent: int) -> int:
    """The union of `extent` copies of a set, each `stride` above the one before."""
    done = 1
    while done < extent:
        step = min(done, extent - done)
        bits |= bits << (step * stride)
        done += step
    return bits


def erode(bits: int, stride: int, extent: int) -> int:
    """The elements from which `extent` steps of `stride` stay inside a set."""
    done = 1
    while done < extent:
        step = min(done, extent - done)
        bits &= bits >> (step * stride)
        done += step
    return bits


def needed_strides(target: int) -> tuple[int, ...]:
    """Elements of a list's image that are no sum of two others: strides of every list for it."""
    top = target.bit_length() - 1
    needed: list[int] = []
    open_ = target & ~1
    while open_:
        element = (open_ & -open_).bit_length() - 1
        open_ &= open_ - 1
        # An image is symmetric, so b = element - a is in it where top - element + a is.
        if target & target >> (top - element) & (1 << element) - 2:
            continue
        needed.append(element)
        open_ &= ~((target & ~1) << element)
    return tuple(needed)


class _Search:
    """Depth first over lists in ascending stride, for the first one that completes a set.

    A partial list with sum P can only be completed inside ``room = {q | q + P in the target}``, and
    only if ``P + room`` is the whole target. Both shrink as an extent grows, so the greatest extent
    worth trying is found by bisection.
    """

    def __init__(self, target: int, start: Steps, grid: int, most: int) -> None:
        self.target, self.start, self.grid, self.most = target, start, grid, most
        self.top = target.bit_length() - 1
        given = {stride for stride, _ in start}
        self.needed = tuple(s for s in needed_strides(target) if s not in given)
        self.work = self.tries = 0
        self.cut = False

    def run(self, done: int, room: int, taken: Steps, more: int | None) -> Steps | None:
        """The whole list, `taken` and at most `more` steps after it, or None: there is none.

        Without a number of steps, the largest strides are tried first, and few lists are begun.
        """
        if done == self.target:
            return taken
        self.tries += 1
        missing = self.target & ~done
        nearest = (missing & -missing).bit_length() - 1
        budget = self.top - (done.bit_length() - 1)
        last, top = taken[-1][0] if taken else 0, min(nearest, budget)
        # The least remaining stride cannot jump over the least element that is still missing.
        for stride in self._strides(room, last, top, more):
            if more == 1:
                extents: Iterable[int] = self._last(done, stride, budget)
            else:
                extents = range(self._longest(room, stride, budget, taken), 1, -1)
            grid = self._known_grid(stride, more)
            for extent in extents:
                if more is None and self.tries > MAX_TRIES:
                    return None
                left = budget - stride * (extent - 1)
                if 0 < left <= stride or left % grid:
                    continue
                longer = (*taken, (stride, extent))
                self._spend(extent)
                wider, less = spread(done, stride, extent), erode(room, stride, extent)
                found = self.run(wider, less, longer, more and more - 1)
                if found is not None:
                    return found
        return None

    def _strides(self, room: int, last: int, top: int, more: int | None) -> Iterator[int]:
        """The strides that may come next: ascending, or descending for any number of steps."""
        window = room >> (last + 1) & (1 << max(top - last, 0)) - 1
        if more is None:
            while window:
                yield last + window.bit_length()
                window ^= 1 << (window.bit_length() - 1)
            return
        ahead = [stride for stride in self.needed if stride > last]
        if len(ahead) >= more:
            self.cut = True
            if 0 < len(ahead) == more and ahead[0] <= top and room >> ahead[0] & 1:
                yield ahead[0]
            return
        top = min([top, *ahead[:1]])
        window = room >> (last + 1) & (1 << max(top - last, 0)) - 1
        while window:
            low = window & -window
            window ^= low
            stride = last + low.bit_length()
            if stride % self.grid == 0:
                yield stride

    def _known_grid(self, stride: int, more: int | None) -> int:
        """A number that divides all strides after this one: their own where they are forced."""
        ahead = [needed for needed in self.needed if needed > stride]
        if more is None or not 0 < len(ahead) == more - 1:
            return self.grid
        self.cut = True
        return gcd(*ahead)

    def _last(self, done: int, stride: int, budget: int) -> tuple[int, ...]:
        """The one extent that uses up the budget, where it completes the target."""
        self.cut = True
        times, rest = divmod(budget, stride)
        self._spend(times + 1)
        complete = rest == 0 and spread(done, stride, times + 1) == self.target
        return (times + 1,) if complete else ()

    def _longest(self, room: int, stride: int, budget: int, taken: Steps) -> int:
        """The greatest extent that leaves room to complete the target."""
        low, high = 1, budget // stride + 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.completes(erode(room, stride, middle), (*taken, (stride, middle))):
                low = middle
            else:
                high = middle - 1
        return low

    def completes(self, room: int, taken: Steps) -> bool:
        """Whether the sum so far, spread over all its room, is the target."""
        if not room & 1:
            return False
        for stride, extent in (*self.start, *taken):
            self._spend(extent)
            room = spread(room, stride, extent)
        return room == self.target

    def _spend(self, extent: int) -> None:
        self.work += (self.top + 4096) * extent.bit_length()
        if self.work > self.most:
            raise SearchError(
                f"replica image of span {self.top + 1}", "search too long", "a simpler replica list"
            )


def search(target: int, start: Steps, grid: int, most: int = MAX_WORK) -> Steps | None:
    """The least steps with strides on a grid whose sum with `start` is a set, given as bits.

    Args:
        target: the image of some list, as bits.
        start: steps that are part of the sum already.
        grid: every stride found is a multiple of it.
        most: bits to shift at most.

    Returns:
        Steps, fewest first, then smaller strides and larger extents first, or None: there are none.

    Raises:
        SearchError: the search takes too long.
    """
    done, room = 1, target
    for stride, extent in start:
        done, room = spread(done, stride, extent), erode(room, stride, extent)
    hunt = _Search(target, start, grid, most)
    if any(stride % grid for stride in hunt.needed) or not hunt.completes(room, ()):
        return None
    for most in range(len(hunt.needed), MAX_STEPS + 1):
        hunt.cut = False
        found = hunt.run(done, room, (), most)
        if found is not None or not hunt.cut:
            return found
    return None


# Images for which no list was found in time -> the list that stands for each in this process.
_HARD: dict[bytes, Steps] = {}


def factor(target: int, known: Steps | None = None) -> Steps | None:
    """The list that stands for an image, given as bits; None where no list has it.

    It is the first one that a search in a fixed order finds: strides ascending, each the largest
    that covers the least element still missing, each extent the longest; if that takes too long,
    the one with the fewest steps. Both depend on the image alone. Where both take too long, about
    one random overlapping list in a thousand, the first known list stands for the image as long as
    the process lives.

    Args:
        target: the image of some list, or a set of which that is asked.
        known: a list with this image, if there is one at hand.

    Raises:
        SearchError: the searches take too long and no list is known.
    """
    try:
        found = _Search(target, (), 1, MAX_FIRST).run(1, target, (), None)
    except SearchError:
        found = None
    if found is not None:
        return found
    key = sha256(target.to_bytes(target.bit_length() // 8 + 1, "little")).digest()
    if key in _HARD:
        return _HARD[key]
    try:
        return search(target, (), 1, MAX_SECOND)
    except SearchError:
        if known is None:
            raise
    return _HARD.setdefault(key, known)

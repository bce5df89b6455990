"""Backoff of repeated tries, and deadlines, for steps: they wait and read the clock by requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from .requests import Clock, Step, Wait


@dataclass(frozen=True)
class Backoff:
    """The number of tries, and the pauses between them.

    ::

        for attempt in BACKOFF.attempts():
            yield from BACKOFF.pause(attempt)
            ...

    :param tries: the number of tries, the first one included.
    :param first: seconds of the first pause.
    :param growth: factor from one pause to the next.
    :param cap: most seconds of a pause.
    :param at_once: the number of tries without a pause before them, the first one included.

    A random part of each pause, up to half of it, is left out.
    """

    tries: int
    first: float
    growth: float = 2.0
    cap: float = inf
    at_once: int = 1

    def attempts(self) -> Iterator[int]:
        """Return the numbers of the tries, from 0."""
        return iter(range(self.tries))

    def delay(self, attempt: int) -> float:
        """Return the seconds of the pause before a try, before a random part is left out."""
        if attempt < self.at_once:
            return 0.0
        return min(self.first * self.growth ** (attempt - self.at_once), self.cap)

    def pause(self, attempt: int) -> Step[None]:
        """Wait for the pause before a try."""
        delay = self.delay(attempt)
        if delay:
            yield from Wait(delay, spread=0.5)


@dataclass(frozen=True)
class Deadline:
    """A point of this process's own monotonic clock: clocks of two hosts are never compared."""

    at: float

    @staticmethod
    def after(seconds: float) -> Step[Deadline]:
        """Return the deadline that is this number of seconds away."""
        return Deadline((yield from Clock()) + seconds)

    def is_over(self) -> Step[bool]:
        """Return whether the deadline has passed."""
        return (yield from Clock()) >= self.at

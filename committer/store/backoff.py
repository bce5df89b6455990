"""Backoff of repeated tries, and deadlines, for steps: both wait and tell time by requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from .requests import Clock, Step, Wait


@dataclass(frozen=True)
class Backoff:
    """How often something is tried, and the pauses between.

    ::

        for attempt in BACKOFF.attempts():
            yield from BACKOFF.pause(attempt)
            ...

    :param tries: the first included.
    :param first: seconds of the first pause.
    :param growth: each pause is so many times the one before.
    :param cap: seconds that no pause exceeds.
    :param at_once: tries that wait for nothing: the first alone, or so many.

    Up to half of a pause is left out, by chance.
    """

    tries: int
    first: float
    growth: float = 2.0
    cap: float = inf
    at_once: int = 1

    def attempts(self) -> Iterator[int]:
        """The numbers of the tries, from 0."""
        return iter(range(self.tries))

    def delay(self, attempt: int) -> float:
        """Seconds of the pause before a try."""
        if attempt < self.at_once:
            return 0.0
        return min(self.first * self.growth ** (attempt - self.at_once), self.cap)

    def pause(self, attempt: int) -> Step[None]:
        """Wait until a try is due."""
        delay = self.delay(attempt)
        if delay:
            yield from Wait(delay, spread=0.5)


@dataclass(frozen=True)
class Deadline:
    """A moment by this process's own monotonic clock: clocks of two hosts are never compared."""

    at: float

    @staticmethod
    def after(seconds: float) -> Step[Deadline]:
        """The moment in so many seconds."""
        return Deadline((yield from Clock()) + seconds)

    def is_over(self) -> Step[bool]:
        """Whether the moment has come."""
        return (yield from Clock()) >= self.at

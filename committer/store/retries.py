"""Retries of requests to one store: how long, how often, and how many requests at once."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import inf

_log = logging.getLogger("zero_rename.committer.store")
#: Seconds of silence after which the log says that the store is waited for.
_TOLD_AFTER = 10.0

#: Requests at once that any throttling leaves.
FEWEST = 4
#: What a throttled answer leaves of the limit.
_CUT = 0.7


class ConcurrencyLimit:
    """Bounds the requests under way, as TCP bounds what it sends: additive growth with answers,
    multiplicative cuts with throttled ones (RFC 5681, section 3.1; S3 asks for it with
    ``503 SlowDown``). Thread-safe.

    Of the requests that were under way at a cut none cuts again: they all tell of the same moment.
    Nothing is bounded before the first cut, nor after the limit has grown back.

    :param most: the limit at which there is none any more.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._under_way = 0
        self._limit = inf
        self._cuts = 0

    @property
    def limit(self) -> float:
        """Requests that may be under way at once."""
        return self._limit

    def begin(self) -> int:
        """Wait for a turn, and take it.

        :returns: a token, for :meth:`end`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._under_way + 1 <= self._limit)
            self._under_way += 1
            return self._cuts

    def end(self, token: int, *, throttled: bool) -> None:
        """Give a turn back, having seen its answer."""
        with self._changed:
            if throttled and token == self._cuts:
                at_once = min(self._limit, self._under_way)
                self._limit = max(float(FEWEST), at_once * _CUT)
                self._cuts += 1
            elif not throttled and self._limit < inf:
                self._limit += 1 / self._limit
                if self._limit >= self._most:
                    self._limit = inf
            self._under_way -= 1
            self._changed.notify_all()


class Trouble(StrEnum):
    """Why a request has no usable answer. None of these says anything about what was asked for."""

    THROTTLED = "throttled"
    FAILED = "failed at the store"
    UNANSWERED = "unanswered"
    UNREACHED = "without a connection"


@dataclass(frozen=True)
class RetryBudget:
    """How long a request that may be repeated is repeated, in seconds.

    :param total: after its first try, or after the store's last usable answer where that was
        before: a store that is away is waited for once, not by each request again.
    :param unheard: the same for a store that has not answered this process at all: an endpoint
        that is wrong is told soon. Throttling is an answer.
    :param first: the pause before the second try; each is twice the one before.
    :param longest: no pause exceeds it.
    :param tries: at most so many; for requests whose caller asks again by itself.
    """

    total: float = 120.0
    unheard: float = 5.0
    first: float = 0.2
    longest: float = 8.0
    tries: int = 1_000

    def pause(self, tries: int) -> float:
        """Seconds to wait after so many tries."""
        return min(self.first * 2.0 ** min(tries - 1, 30), self.longest)


class Retries:
    """What a process has met lately at one store. Thread-safe. Times are by the caller's own
    monotonic clock, seconds.

    :param most: requests at once while nothing is throttled, as :class:`ConcurrencyLimit` takes it.
    :param chance: a random number of 0 to 1; for tests.
    """

    def __init__(self, most: int, chance: Callable[[], float] = random.random) -> None:
        self._troubles: Counter[Trouble] = Counter()
        self.concurrency = ConcurrencyLimit(most)
        self._chance = chance
        self._lock = threading.Lock()
        self._heard = False
        self._silent_since: float | None = None
        self._told = False

    @property
    def troubles(self) -> Counter[Trouble]:
        """How often each was met so far: each was followed by another try, as long as the budget
        lasted. A copy."""
        with self._lock:
            return self._troubles.copy()

    def answered(self) -> None:
        """The store gave a usable answer."""
        if self._heard and self._silent_since is None:
            return
        with self._lock:
            self._heard = True
            self._silent_since = None
            told, self._told = self._told, False
        if told:
            _log.warning("The store answers again.")

    def troubled(self, trouble: Trouble, now: float) -> None:
        """A request got no usable answer."""
        with self._lock:
            self._troubles[trouble] += 1
            if trouble is Trouble.THROTTLED:
                self._heard = True
            if self._silent_since is None:
                self._silent_since = now
            tell = not self._told and now - self._silent_since >= _TOLD_AFTER
            self._told |= tell
        if tell:
            _log.warning(
                "The store gave no usable answer for %.0f seconds; it is waited for (%s).",
                _TOLD_AFTER,
                trouble,
            )

    def pause(self, budget: RetryBudget, began: float, now: float, tries: int) -> float | None:
        """Seconds until a request is to be sent again, by chance half of the pause to all of it,
        so that those which failed together do not come back together.

        :param began: when it was sent first.
        :param tries: how often it was sent.
        :returns: ``None`` where it is not to be.
        """
        if tries >= budget.tries:
            return None
        with self._lock:
            silent_since = began if self._silent_since is None else self._silent_since
            total = budget.total if self._heard else budget.unheard
        left = min(began, silent_since) + total - now
        if left <= 0:
            return None
        return min(budget.pause(tries) * (1 + self._chance()) / 2, left)

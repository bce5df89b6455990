"""Retries of requests to one store: their time and number, and the limit of requests at once."""

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
#: Seconds of silence after which the log says that this process waits for the store.
_TOLD_AFTER = 10.0
#: Seconds without any trouble, in a process that sends nothing, after which a trouble begins a
#: silence of its own. A request under way is in trouble more often than that.
_FORGOTTEN = 300.0

#: Lowest limit of requests at once: throttling does not reduce it further.
FEWEST = 4
#: Factor by which a throttled answer reduces the limit.
_CUT = 0.7


class ConcurrencyLimit:
    """Limit of the requests under way. Thread-safe.

    It works as in TCP: answers let the limit grow by addition, throttled answers cut it by a factor
    (RFC 5681, section 3.1; S3 asks for it with ``503 SlowDown``).

    Requests that were under way at a cut do not cut the limit again: their answers are about the
    same moment. There is no limit before the first cut, nor after it has grown back to ``most``.

    :param most: the value at which the limit ends.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._under_way = 0
        self._limit = inf
        self._cuts = 0

    @property
    def limit(self) -> float:
        """Number of requests that may be under way at once."""
        return self._limit

    def begin(self) -> int:
        """Wait until one more request may be under way, and count it.

        :returns: a token for :meth:`end`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._under_way + 1 <= self._limit)
            self._under_way += 1
            return self._cuts

    def end(self, token: int, *, throttled: bool) -> None:
        """Stop counting a request, and adjust the limit by its answer."""
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
    """Reason for the lack of a usable answer; it says nothing about the requested object."""

    THROTTLED = "throttled"
    FAILED = "failed at the store"
    UNANSWERED = "unanswered"
    UNREACHED = "without a connection"


@dataclass(frozen=True)
class RetryBudget:
    """Limits for the tries of a request that may be repeated; times in seconds.

    :param total: time for tries, from the first try, or from the store's last usable answer if that
        was earlier. So a process waits for an absent store once, not again for each request.
    :param unheard: the same for a store that has never answered this process, so a wrong endpoint
        is reported soon. Throttling counts as an answer.
    :param first: the pause before the second try; each further pause is twice the one before.
    :param longest: the longest pause.
    :param tries: most tries; for requests whose caller sends them again by itself.
    """

    total: float = 120.0
    unheard: float = 5.0
    first: float = 0.2
    longest: float = 8.0
    tries: int = 1_000

    def pause(self, tries: int) -> float:
        """Return the seconds to wait after this number of tries."""
        return min(self.first * 2.0 ** min(tries - 1, 30), self.longest)


class Retries:
    """A process's record of troubles with one store. Thread-safe.

    Times are by the caller's own monotonic clock, in seconds.

    :param most: the value at which the :class:`ConcurrencyLimit` ends.
    :param chance: returns a random number from 0 to 1; for tests.
    """

    def __init__(self, most: int, chance: Callable[[], float] = random.random) -> None:
        self._troubles: Counter[Trouble] = Counter()
        self.concurrency = ConcurrencyLimit(most)
        self._chance = chance
        self._lock = threading.Lock()
        self._heard = False
        self._silent_since: float | None = None
        self._troubled_at = 0.0
        self._told = False

    @property
    def troubles(self) -> Counter[Trouble]:
        """Number of troubles of each kind so far; a copy.

        Each was followed by another try, unless the budget was spent.
        """
        with self._lock:
            return self._troubles.copy()

    def answered(self) -> None:
        """Record that the store gave a usable answer."""
        if self._heard and self._silent_since is None:
            return
        with self._lock:
            self._heard = True
            self._silent_since = None
            told, self._told = self._told, False
        if told:
            _log.warning("The store answers again.")

    def troubled(self, trouble: Trouble, now: float) -> None:
        """Record that a request got no usable answer."""
        with self._lock:
            self._troubles[trouble] += 1
            if trouble is Trouble.THROTTLED:
                self._heard = True
            if self._silent_since is None or now - self._troubled_at > _FORGOTTEN:
                self._silent_since = now
            self._troubled_at = now
            tell = not self._told and now - self._silent_since >= _TOLD_AFTER
            self._told |= tell
        if tell:
            _log.warning(
                "The store gave no usable answer for %.0f seconds; it is waited for (%s).",
                _TOLD_AFTER,
                trouble,
            )

    def pause(self, budget: RetryBudget, began: float, now: float, tries: int) -> float | None:
        """Return the seconds until a request is to be sent again; ``None``: not again.

        It is a random time between half of the pause and all of it, so requests that failed
        together are not all sent again together.

        :param began: when it was first sent.
        :param tries: the number of times it was sent.
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

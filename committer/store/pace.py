"""Pace of a process's requests: fewer at once while the store throttles them."""

from __future__ import annotations

import threading
from math import inf

#: Requests at once that any throttling leaves.
FEWEST = 4
#: What a throttled answer leaves of the limit.
_CUT = 0.7


class Pace:
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

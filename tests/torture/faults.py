"""Faults between a job and its store: throttling, silence, restarts, a clock that is
off."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from torture.proxy import Seen

from support.faulty_server import DROPPED, Reply, s3_error

#: Of the requests that are throttled so many per cent were carried out all the same: what a proxy
#: or a store in the middle of its work answers.
_CARRIED_OUT = 25
#: Seconds that a request's date may be off, as S3 has it.
_MOST_SKEW = 15 * 60


@dataclass
class Throttling:
    """A share of all requests, chosen at random, is answered ``503 SlowDown``.

    :param share: 0 to 1.
    :param seed: of the choice, which follows the order in which requests come.
    """

    share: float
    seed: int = 0
    throttled: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        self._lock = threading.Lock()

    def __call__(self, seen: Seen, carry_out: Callable[[], Reply]) -> Reply:
        with self._lock:
            struck = self._random.random() < self.share
            late = self._random.randrange(100) < _CARRIED_OUT
            if struck:
                self.throttled[seen.operation] += 1
        if not struck:
            return carry_out()
        if late:
            carry_out()
        return s3_error(503, "SlowDown")


@dataclass
class Outage:
    """From a request of a job's commit on, the store is away for a while.

    :param begins: tells by a request whether it begins with this one. It does once.
    :param seconds: how long.
    :param silent: requests hang until it is over, and are then dropped; else their connections
        are closed at once, as by a store that restarts.
    """

    begins: Callable[[Seen], bool]
    seconds: float
    silent: bool
    met: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._until: float | None = None

    def __call__(self, seen: Seen, carry_out: Callable[[], Reply]) -> Reply:
        with self._lock:
            if self._until is None and self.begins(seen):
                self._until = time.monotonic() + self.seconds
            left = 0.0 if self._until is None else self._until - time.monotonic()
            self.met += left > 0
        if left <= 0:
            return carry_out()
        if self.silent:
            time.sleep(left)
        return DROPPED


@dataclass
class StrictClock:
    """A store that refuses requests whose date is off, as S3 does."""

    refused: int = 0

    def __call__(self, seen: Seen, carry_out: Callable[[], Reply]) -> Reply:
        if seen.dated:
            dated = datetime.strptime(seen.dated, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            if abs(dated.timestamp() - time.time()) > _MOST_SKEW:
                self.refused += 1
                return s3_error(403, "RequestTimeTooSkewed")
        return carry_out()

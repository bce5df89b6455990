"""Weather of a store: whether it answers, and how long a request waits for it to answer again."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from .pace import Pace
from .tally import Tally, Trouble

_log = logging.getLogger("zero_rename.committer.store")


@dataclass(frozen=True)
class Patience:
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


#: Seconds of silence after which the log says that the store is waited for.
_TOLD_AFTER = 10.0


class Weather:
    """What a process has met lately at one store. Thread-safe. Times are by the caller's own
    monotonic clock, seconds.

    :param most: requests at once in fair weather, as :class:`.pace.Pace` takes it.
    :param chance: a random number of 0 to 1; for tests.
    """

    def __init__(self, most: int, chance: Callable[[], float] = random.random) -> None:
        self.tally = Tally()
        self.pace = Pace(most)
        self._chance = chance
        self._lock = threading.Lock()
        self._heard = False
        self._silent_since: float | None = None
        self._told = False

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
        self.tally.add(trouble)
        with self._lock:
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

    def pause(self, patience: Patience, began: float, now: float, tries: int) -> float | None:
        """Seconds until a request is to be sent again, by chance half of the pause to all of it,
        so that those which failed together do not come back together.

        :param began: when it was sent first.
        :param tries: how often it was sent.
        :returns: ``None`` where it is not to be.
        """
        if tries >= patience.tries:
            return None
        with self._lock:
            silent_since = began if self._silent_since is None else self._silent_since
            total = patience.total if self._heard else patience.unheard
        left = min(began, silent_since) + total - now
        if left <= 0:
            return None
        return min(patience.pause(tries) * (1 + self._chance()) / 2, left)

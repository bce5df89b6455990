"""Wait of a run for other runs that write its partitions."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from .errors import CommitConflictError, InvalidInputError, first_few
from .format.job_spec import OnConflict

_log = logging.getLogger("zero_rename.committer.rival_wait")
#: Seconds between two polls.
LOOK_EVERY = 10.0
#: Seconds after which the log repeats that a run waits.
_SAY_EVERY = 600.0


@dataclass
class RivalWait:
    """Wait of a run for other runs: its longest duration, and its beginning.

    A run that waits holds nothing that another run waits for, so no two runs wait for each other.

    :param longest: seconds.
    :param since: Unix time at which it began to wait; ``None``: it has not waited yet.
    :param pause: waits so many seconds. May raise, to go on in another process.
    :param every: seconds between two polls.
    :param log: gets the names of the jobs for which the run waits.
    """

    longest: float
    since: float | None = None
    pause: Callable[[float], object] = time.sleep
    every: float = LOOK_EVERY
    log: logging.Logger = _log
    _said: tuple[str, ...] = ()
    _said_at: float = 0.0

    @property
    def left(self) -> float:
        """Seconds until the run stops waiting."""
        return max(0.0, self.longest - self.waited)

    @property
    def waited(self) -> float:
        """Seconds that the run has waited."""
        return 0.0 if self.since is None else max(0.0, time.time() - self.since)

    def wait_while(self, find: Callable[[], Sequence[object]]) -> tuple[str, ...]:
        """Wait while there are jobs to wait for and time is left.

        :param find: finds the jobs to wait for.
        :returns: the jobs that are still there after that time; empty: none.
        """
        while found := tuple(str(it) for it in find()):
            if not self.wait_once(found):
                return found
        self.end()
        return ()

    def wait_once(self, named: Sequence[str]) -> bool:
        """Wait until the next poll is due; return ``False`` if the time is over.

        :param named: the jobs for which the run waits, for the log.
        """
        if self.since is None:
            self.since = time.time()
        left = self.left
        if not left:
            return False
        now = time.monotonic()
        if tuple(named) != self._said or now - self._said_at >= _SAY_EVERY:
            self.log.info(
                "Waiting for another run of the same partitions, for %.0f s more at the most: %s. "
                "Nothing is submitted or written meanwhile.",
                left,
                first_few(named),
            )
            self._said, self._said_at = tuple(named), now
        self.pause(min(left, self.every))
        return True

    @staticmethod
    def of(given: timedelta | float | None) -> RivalWait | None:
        """Build a wait from a duration in seconds or as a timedelta; ``None``: no wait.

        :raises InvalidInputError: it is not a duration.
        """
        if given is None:
            return None
        seconds = math.nan
        if isinstance(given, timedelta):
            seconds = given.total_seconds()
        elif isinstance(given, int | float) and not isinstance(given, bool):
            seconds = float(given)
        if not 0 <= seconds < math.inf:
            raise InvalidInputError(
                f"wait_for_other_runs={given!r} is not a duration. Nothing was sent.",
                remedy="Give seconds, or a timedelta.",
            )
        return RivalWait(seconds) if seconds else None

    def wait_for_rivals(
        self,
        find: Callable[[], Sequence[object]],
        on_conflict: OnConflict | None,
        table: str,
        remedy: str = "Run it again when that run has ended: it then writes on top of its rows.",
    ) -> None:
        """Wait while jobs of other runs are at work on a run's partitions.

        :param find: finds them.
        :param table: its root; ``remedy``: what to do if the time is over.
        :raises CommitConflictError: a job is at work after all that time, under *fail*. Under the
            other policies the commit decides.
        """
        left = self.wait_while(find)
        if not left:
            return
        said = (
            f"Another run is at work on the same partitions after "
            f"wait_for_other_runs={self.longest:.0f} s: {first_few(left)}"
        )
        if on_conflict in (OnConflict.LAST_WINS, OnConflict.NEWEST_RUN):
            self.log.warning("%s. on_conflict=%s decides which rows stay.", said, on_conflict)
            return
        raise CommitConflictError(
            f"{said}. Nothing was submitted or written.",
            table=table,
            remedy=f"{remedy} Or wait for it longer, by wait_for_other_runs.",
        )

    def end(self) -> None:
        """Log that the wait is over, if the run has waited."""
        if self._said:
            self.log.info("No other run is at work on these partitions any more.")
            self._said = ()

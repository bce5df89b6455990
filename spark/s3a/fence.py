"""Ending a write by one of Hadoop's committers whose try was given up for dead."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...committer.errors import ZeroRenameError
from ...s3a.runs.try_record import HEARTBEAT_TIMEOUT

#: Seconds without a heartbeat after which a write ends itself: a retry waits for
#: :data:`HEARTBEAT_TIMEOUT`, and Spark's tasks need a while to stop.
GIVE_UP = HEARTBEAT_TIMEOUT - 30.0


class Fence:
    """One write's heartbeats, and its end where they came too late.

    Nothing in an S3A committer refuses the commit of a job that others hold for dead. So the
    application looks itself, with each heartbeat, for a later try of its run; and it ends its
    write when it cannot send one in time. A commit that has begun Spark cannot cancel.

    :param beat: sends a heartbeat; says why the try may not write any more, a sentence, ``""``
        where it may.
    :param cancel: cancels the write's Spark jobs. Called again with each heartbeat after that,
        since a write may be between two jobs.
    :param clock: seconds, by a clock that does not jump.
    """

    def __init__(
        self,
        beat: Callable[[], str],
        cancel: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._beat = beat
        self._cancel = cancel
        self._clock = clock
        self._last = clock()
        #: Why the write was ended; ``""`` while it may go on.
        self.reason = ""

    def heartbeat(self) -> None:
        """Send a heartbeat, or end the write.

        :raises ZeroRenameError: it could not be sent; the next may be.
        """
        if not self.reason:
            self.reason = self._why_not()
        if self.reason:
            self._cancel()

    def _why_not(self) -> str:
        begun = self._clock()
        try:
            reason = self._beat()
        except ZeroRenameError as error:
            silent = self._clock() - self._last
            if silent < GIVE_UP:
                raise
            return (
                f"It could send no heartbeat for {silent:.0f} s ({error}), after which a "
                "retry may load the same rows"
            )
        self._last = begun
        return reason

"""Ending a write by one of Hadoop's committers whose try was given up for dead."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...committer.errors import ZeroRenameError
from ...s3a.runs.ledger import SIGN_LATE

#: Seconds without a sign of life after which a write ends itself: a retry waits for
#: :data:`SIGN_LATE`, and Spark's tasks need a while to stop.
GIVE_UP = SIGN_LATE - 30.0


class Fence:
    """One write's signs of life, and its end where they came too late.

    Nothing in an S3A committer refuses the commit of a job that others hold for dead and have
    replaced. So the application looks itself: with each sign of life, for a later try of its run;
    and it ends its write when it cannot give a sign in time, since then it cannot know. What is
    left open is a commit that has begun already: Spark cannot cancel that.

    :param renew: gives a sign of life.
    :param superseded: why the try may not write any more, a sentence; ``""`` where it may.
    :param cancel: cancels the write's Spark jobs. Called again with each sign after that, since
        a write may be between two jobs.
    :param clock: seconds, by a clock that does not jump.
    """

    def __init__(
        self,
        renew: Callable[[], object],
        superseded: Callable[[], str],
        cancel: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._renew = renew
        self._superseded = superseded
        self._cancel = cancel
        self._clock = clock
        self._last = clock()
        #: Why the write was ended; ``""`` while it may go on.
        self.reason = ""

    def sign(self) -> None:
        """Give a sign of life, or end the write.

        :raises ZeroRenameError: the sign could not be given; the next may be.
        """
        if not self.reason:
            self.reason = self._why_not()
        if self.reason:
            self._cancel()

    def _why_not(self) -> str:
        begun = self._clock()
        try:
            self._renew()
            reason = self._superseded()
        except ZeroRenameError as error:
            silent = self._clock() - self._last
            if silent < GIVE_UP:
                raise
            return (
                f"It could give no sign of life for {silent:.0f} s ({error}), after which a "
                "retry may load the same rows"
            )
        self._last = begun
        return reason

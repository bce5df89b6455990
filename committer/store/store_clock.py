"""The store's clock, by which requests are signed where this host's is off."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger("zero_rename.committer.store.store_clock")
#: Seconds. S3 refuses what is dated 15 minutes off; a lesser difference is no reason to doubt the
#: host's own clock.
_TOLERATED = 300.0


class StoreClock:
    """How far the store's clock is ahead of this host's: 0 until the store has refused a request
    for its date (``RequestTimeTooSkewed``). AWS's other SDKs correct by the answer's Date header;
    botocore does not.

    :param ahead: seconds.
    :param host: this host's clock, seconds since the epoch; for tests.
    """

    def __init__(self, ahead: float = 0.0, host: Callable[[], float] | None = None) -> None:
        self.ahead = ahead
        self._host = host or (lambda: time.time())
        self._lock = threading.Lock()

    def heed(self, date: float, signed: float) -> bool:
        """Go by the date of a refusal from now on.

        :param date: the answer's Date header, seconds since the epoch; 0 for none.
        :param signed: what :attr:`ahead` was as the request was signed.
        :returns: whether its date was off, so that it may be signed anew.
        """
        ahead = date - self._host()
        if not date or abs(ahead - signed) < _TOLERATED:
            return False
        with self._lock:
            known = abs(ahead - self.ahead) < _TOLERATED
            self.ahead = self.ahead if known else ahead
        if not known:
            self._tell(ahead)
        return True

    def _tell(self, ahead: float) -> None:
        _log.warning(
            "This host's clock is %.0f seconds %s the store's, which refused a request for it; "
            "requests are signed by the store's. Set this host's clock.",
            abs(ahead),
            "behind" if ahead > 0 else "ahead of",
        )

    def now(self) -> float:
        """The time by the store's clock, as far as it is known; seconds since the epoch."""
        return self._host() + self.ahead

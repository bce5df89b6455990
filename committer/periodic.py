"""Periodic heartbeats from a thread while a block runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import ZeroRenameError

#: Seconds between two heartbeats of a process that lives as long as its job.
INTERVAL = 30.0
_log = logging.getLogger("zero_rename.committer.periodic")


@contextmanager
def repeating(
    send: Callable[[], object],
    interval: float,
    first_after: float | None = None,
    linger: float | None = None,
) -> Iterator[None]:
    """Send heartbeats while the block runs.

    If one cannot be sent, that is logged, and the next is tried an interval later: a job counts as
    dead only after several are missing. When the block has ended, none is under way any more: a
    late one would overwrite what is written next.

    The thread is a daemon: it does not keep a process alive that has nothing else to do, and a fork
    does not copy it.

    :param send: sends one heartbeat. The heartbeats end if it returns ``False``, or raises an error
        other than :class:`ZeroRenameError`.
    :param interval: seconds between two.
    :param first_after: seconds until the first; ``None`` for an interval.
    :param linger: seconds that the end of the block waits for a heartbeat under way, for callers to
        which a late one does no harm; ``None`` waits until it has ended.
    """
    ended = threading.Event()

    def keep_on() -> None:
        pause = interval if first_after is None else first_after
        while not ended.wait(pause):
            pause = interval
            try:
                if send() is False:
                    return
            except ZeroRenameError as error:
                _log.warning("No heartbeat could be sent: %s", error)

    thread = threading.Thread(target=keep_on, name="zero-rename-periodic", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(linger)

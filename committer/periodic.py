"""Periodic heartbeats from a thread, while a block runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import ZeroRenameError

_log = logging.getLogger("zero_rename.committer.periodic")


@contextmanager
def repeating(send: Callable[[], object], interval: float) -> Iterator[None]:
    """Send heartbeats while the block runs, the first after ``interval`` seconds.

    One that cannot be sent is logged, and the next is tried an interval later: whoever judges
    silence allows for several. When the block has ended none is under way any more: a late one
    would stand over what is written next.

    :param send: sends one. What it raises but :class:`ZeroRenameError` ends them.
    """
    ended = threading.Event()

    def keep_on() -> None:
        while not ended.wait(interval):
            try:
                send()
            except ZeroRenameError as error:
                _log.warning("No heartbeat could be sent: %s", error)

    thread = threading.Thread(target=keep_on, name="zero-rename-periodic", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

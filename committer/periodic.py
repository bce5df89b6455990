"""Something done again and again while a block runs, from a thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import ZeroRenameError

_log = logging.getLogger("zero_rename.pulse")


@contextmanager
def signs_of_life(give: Callable[[], object], interval: float) -> Iterator[None]:
    """Give signs of life while the block runs, the first after ``interval`` seconds.

    A sign that cannot be given is logged, and the next is tried an interval later: whoever judges
    silence allows for several. When the block has ended no sign is under way any more: a late one
    would stand over what is written next.

    :param give: gives one. What it raises but :class:`ZeroRenameError` ends the signs.
    """
    ended = threading.Event()

    def keep_on() -> None:
        while not ended.wait(interval):
            try:
                give()
            except ZeroRenameError as error:
                _log.warning("No sign of life could be given: %s", error)

    thread = threading.Thread(target=keep_on, name="zero-rename-pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

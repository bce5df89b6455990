"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

#: Seconds after which a process, a thread or a server of a test is stuck: on a busy machine a fresh
#: Spark takes minutes, and none takes this long. Below pytest's own limit, so that it says what.
STUCK = 600.0


class NeverError(AssertionError):
    """What was waited for did not come."""


def until(what: str, ask: Callable[[], Any]) -> Any:
    """Ask until the answer is true. Returns it.

    :param what: for the message.
    :raises NeverError: it never was.
    """
    end = time.monotonic() + STUCK
    while not (answer := ask()):
        if time.monotonic() > end:
            raise NeverError(f"Waited {STUCK:.0f} s in vain: {what}.")
        time.sleep(0.2)
    return answer

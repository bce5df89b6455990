"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

#: Seconds until what is waited for counts as never coming, on a busy machine too.
PATIENCE = 900.0


class NeverError(AssertionError):
    """What was waited for did not come."""


def until(what: str, ask: Callable[[], Any]) -> Any:
    """Ask until the answer is true. Returns it.

    :param what: for the message.
    :raises NeverError: it never was.
    """
    end = time.monotonic() + PATIENCE
    while not (answer := ask()):
        if time.monotonic() > end:
            raise NeverError(f"Waited {PATIENCE:.0f} s in vain: {what}.")
        time.sleep(0.2)
    return answer

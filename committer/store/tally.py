"""Tally of what went wrong with requests to a store."""

from __future__ import annotations

import threading
from collections import Counter
from enum import StrEnum


class Trouble(StrEnum):
    """Why a request has no usable answer. None of these says anything about what was asked for."""

    THROTTLED = "throttled"
    FAILED = "failed at the store"
    UNANSWERED = "unanswered"
    UNREACHED = "without a connection"


class Tally:
    """Counts troubles. Thread-safe; each was followed by another try, as long as there was
    patience."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Trouble] = Counter()

    def add(self, trouble: Trouble) -> None:
        with self._lock:
            self._counts[trouble] += 1

    @property
    def counts(self) -> Counter[Trouble]:
        """How often each was met so far; a copy."""
        with self._lock:
            return self._counts.copy()

    @property
    def total(self) -> int:
        return self.counts.total()


def in_words(counts: Counter[Trouble]) -> str:
    """Such as ``12 throttled, 1 unanswered``; ``""`` for none."""
    return ", ".join(f"{counts[trouble]} {trouble}" for trouble in Trouble if counts[trouble])

"""How far a job is, told from its requests alone."""

from __future__ import annotations

import re
from enum import IntEnum

from torture.proxy import Seen

_OPEN = re.compile(r"/_zero_rename/open/(zr1-[0-9A-Z]{26})\.json$")


class Phase(IntEnum):
    """The parts of a job's life, by the protocol's steps."""

    STARTING = 0
    OPENING = 1
    WRITING = 2
    CLAIMING = 3
    DECIDING = 4
    APPLYING = 5
    CLOSING = 6
    DONE = 7


class Tracker:
    """Follows one job's requests."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.job: str | None = None

    def follow(self, seen: Seen) -> Phase:
        """The phase a request belongs to; phases never go back."""
        self.phase = max(self.phase, self._phase_of(seen))
        return self.phase

    def _phase_of(self, seen: Seen) -> Phase:
        put = seen.operation == "PutObject"
        opened = _OPEN.search(seen.key)
        if opened and self.job is None and put:
            self.job = opened.group(1)
            return Phase.OPENING
        if opened and seen.operation == "DeleteObject" and self.job == opened.group(1):
            return Phase.CLOSING
        if seen.operation == "CreateMultipartUpload" and "/_zero_rename/" not in seen.key:
            return Phase.WRITING
        if put and self.job is not None and f"/jobs/{self.job}" in seen.key:
            return Phase.DECIDING
        if put and ("/_zero_rename/heads/" in seen.key or "/_zero_rename/runs/" in seen.key):
            return Phase.CLAIMING if self.phase < Phase.DECIDING else Phase.APPLYING
        if self.phase >= Phase.DECIDING and not opened:
            listing = seen.operation == "ListMultipartUploads"
            return Phase.CLOSING if listing else Phase.APPLYING
        return self.phase


class Target:
    """Picks the request to strike at: the n-th of a phase, or the first one of a later phase."""

    def __init__(self, phase: Phase, number: int) -> None:
        self._phase = phase
        self._left = number
        self.tracker = Tracker()
        self.struck_in = Phase.STARTING

    def __call__(self, _: int, seen: Seen) -> bool:
        phase = self.tracker.follow(seen)
        self.struck_in = phase
        if phase < self._phase:
            return False
        self._left -= 1
        return phase > self._phase or self._left < 0

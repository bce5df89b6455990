"""A gate at which a proxy holds back requests of a job that has to be at work for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from torture.proxy import Seen

from support.dead_drivers import Held
from support.faulty_server import Reply
from support.waiting import STUCK, NeverError


@dataclass
class Gate:
    """Holds back requests of a job's, until they may go on; for :attr:`.Proxy.faults`.

    :param number: how many there are at once: as many as tasks that each get to theirs.
    """

    held: Held
    number: int = 1
    open: threading.Event = field(default_factory=threading.Event)
    _reached: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __call__(self, seen: Seen, carry_out: Callable[[], Reply]) -> Reply:
        if self.held(seen):
            self._reached.release()
            self.open.wait(STUCK)
        return carry_out()

    def wait(self) -> None:
        """Wait until all these requests are held back.

        :raises NeverError: they never are.
        """
        for count in range(self.number):
            if not self._reached.acquire(timeout=STUCK):
                raise NeverError(f"Of {self.number} requests to be held back {count} came.")

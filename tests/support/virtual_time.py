"""Round trips of steps, counted exactly: a store in memory whose every answer is one tick late.

Nothing waits for real. A driver carries out so many requests at once as it has connections; what
a busy machine makes slow stays out of the figures.
"""

from __future__ import annotations

import heapq
from concurrent.futures import Future
from typing import Any

from support.memory_store import MemoryDriver, MemoryStore
from support.protocol import World
from zero_rename.committer.store import requests as s
from zero_rename.committer.store.scheduler import Scheduler, Ticket

CONNECTIONS = 32
#: What a driver answers by itself.
_UNSENT = s.Clock | s.ServerName | s.Wait | s.DemandedEncryption


class TickingDriver(MemoryDriver):
    """A driver whose ``now`` is the tick at which the last answer came.

    :param connections: requests under way at once.
    """

    def __init__(self, store: MemoryStore, connections: int = CONNECTIONS) -> None:
        super().__init__(store)
        self.parallel = connections
        self.now = 0

    def run(self, work: Any) -> Any:
        scheduler: Scheduler[Any] = Scheduler(work)
        sent: list[tuple[int, int, Ticket, Any]] = []
        count = 0
        while not scheduler.finished:
            while len(sent) < self.parallel and (taken := scheduler.take()) is not None:
                ticket, request = taken
                if isinstance(request, _UNSENT):
                    scheduler.answer(ticket, super().perform(request))
                    continue
                count += 1
                heapq.heappush(sent, (self.now + 1, count, ticket, request))
            if scheduler.finished:
                break
            self.now, _, ticket, request = heapq.heappop(sent)
            try:
                answer = super().perform(request)
            except Exception as error:
                scheduler.throw(ticket, error)
            else:
                scheduler.answer(ticket, answer)
        return scheduler.result()

    def perform(self, request: Any) -> Any:
        self.now += 1
        return super().perform(request)

    def submit(self, request: Any, over: Any = None) -> Future[Any]:
        return _Answer(self, super().perform, request)


class _Answer(Future[Any]):
    """An answer that comes one tick after its request was sent, to who waits for it then."""

    def __init__(self, driver: TickingDriver, perform: Any, request: Any) -> None:
        super().__init__()
        self._driver, self._due = driver, driver.now + 1
        try:
            self.set_result(perform(request))
        except Exception as error:
            self.set_exception(error)

    def done(self) -> bool:
        return self._driver.now >= self._due

    def result(self, timeout: float | None = None) -> Any:
        self._driver.now = max(self._driver.now, self._due)
        return super().result(timeout)


class TickingWorld(World):
    """A table on a store whose answers are a tick late."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        super().__init__(store)
        self.driver: TickingDriver = TickingDriver(self.store)

"""Round trips of steps, counted exactly: a store in memory whose every answer is one tick late.

Nothing waits for real. A driver carries out so many requests at once as it has connections; what
a busy machine makes slow stays out of the figures.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from random import Random
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


class ManyProcesses:
    """Processes that work on one store at once; the same seed gives the same course.

    :param latency: seconds until a request is answered, a fifth more or less by chance; the store
        carries it out half-way.
    """

    def __init__(self, store: MemoryStore, latency: float, seed: int) -> None:
        self._store, self._latency, self._chance = store, latency, Random(seed)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self.now = 0.0
        #: Requests so far.
        self.requests = 0

    def run(self, *processes: Iterator[Any]) -> None:
        """Run processes to their ends: each does one work after the other, and is told its result.

        :param processes: generators of steps, to which each step's result is sent.
        """
        for process in processes:
            self._go_on(process, None)
        while self._due:
            self.now, _, happens = heapq.heappop(self._due)
            happens()

    def _go_on(self, process: Any, result: Any) -> None:
        try:
            work = process.send(result)
        except StopIteration:
            return
        self._send(Scheduler(work), process)

    def _send(self, scheduler: Scheduler[Any], process: Any) -> None:
        """Send what a step asks for now; once it is over, its process goes on."""
        while (taken := scheduler.take()) is not None:
            ticket, request = taken
            if isinstance(request, s.Clock):
                scheduler.answer(ticket, self.now)
            elif isinstance(request, s.Wait):
                seconds = request.seconds * (1 - request.spread * self._chance.random())
                self._later(seconds, lambda it=ticket: self._answer(scheduler, it, None, process))
            else:
                self.requests += 1
                self._later(self._half(), lambda it=taken: self._carry_out(scheduler, *it, process))
        if scheduler.finished:
            self._go_on(process, scheduler.result())

    def _half(self) -> float:
        return self._latency / 2 * self._chance.uniform(0.8, 1.2)

    def _later(self, seconds: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._count), happens))

    def _carry_out(self, scheduler: Any, ticket: Ticket, request: Any, process: Any) -> None:
        answer = self._store.apply(request)
        self._later(self._half(), lambda: self._answer(scheduler, ticket, answer, process))

    def _answer(self, scheduler: Any, ticket: Ticket, answer: Any, process: Any) -> None:
        scheduler.answer(ticket, answer)
        self._send(scheduler, process)

"""A proxy before an S3 server that sees every request, slows it down, and can act at any one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote, urlsplit

from support.counting import operation
from support.faulty_server import DROPPED, FaultyServer, Received, Reply


class When(StrEnum):
    """Where in a request something happens."""

    BEFORE = "before it reaches the store"
    AFTER = "after the store did it, the answer lost"
    LATER = "some time later, whatever is under way then"


@dataclass(frozen=True)
class Seen:
    """A request as it came in.

    :param port: the client's port, which tells processes apart.
    :param dated: when the client says it is, by its ``X-Amz-Date``.
    """

    operation: str
    key: str
    port: int
    dated: str = ""


#: What becomes of a request: by what carries it out, its answer, another one, or ``DROPPED``.
Faults = Callable[[Seen, Callable[[], Reply]], Reply]


def fair(_: Seen, carry_out: Callable[[], Reply]) -> Reply:
    """A store that answers everything."""
    return carry_out()


@dataclass(frozen=True)
class Trap:
    """Something to do at one request.

    :param wanted: tells by the number of the request, from 0, and the request.
    :param act: done in the request's thread; the client gets no answer but with ``LATER``. What
        it raises comes out of the proxy's ``with``.
    :param delay: of ``LATER``, in seconds.
    """

    wanted: Callable[[int, Seen], bool]
    when: When
    act: Callable[[], None]
    delay: float = 0.0


class Proxy(FaultyServer):
    """Serves while it is entered.

    :param upstream: the server's URL.
    :param latency: seconds each request takes longer.
    :param faults: what becomes of each request that no trap strikes.
    """

    def __init__(self, upstream: str, latency: float = 0.0, faults: Faults = fair) -> None:
        super().__init__(self._carry_out, upstream)
        self.latency = latency
        self.faults = faults
        self.seen: list[Seen] = []
        self._trap: Trap | None = None
        self._failures: list[Exception] = []
        self._active = 0
        self._changed = threading.Condition()

    def __exit__(self, *raised: object) -> None:
        super().__exit__()
        if self._failures and raised[0] is None:
            raise ExceptionGroup("what was to happen at a request failed", self._failures)

    def watch(self, trap: Trap | None = None) -> None:
        """Forget the requests seen so far and wait for one to act at."""
        with self._changed:
            self.seen = []
            self._trap = trap

    def drain(self, seconds: float = 60.0) -> None:
        """Wait until the store has answered all that was sent to it.

        :raises TimeoutError: it has not.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._active, seconds):
                raise TimeoutError(f"{self._active} requests are still under way")

    def _note(self, got: Received) -> None:
        pass  # Bodies of data files would be kept.

    def _carry_out(self, got: Received, pass_on: Callable[[], Reply]) -> Reply:
        seen, trap = self._look(got)
        try:
            if trap is not None and trap.when is When.BEFORE:
                self._act(trap)
                return DROPPED
            if trap is not None and trap.when is When.LATER:
                threading.Timer(trap.delay, self._act, (trap,)).start()
                trap = None
            if self.latency:
                time.sleep(self.latency)
            reply = self.faults(seen, pass_on)
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()
        if trap is None:
            return reply
        self._act(trap)
        return DROPPED

    def _act(self, trap: Trap) -> None:
        try:
            trap.act()
        except Exception as error:  # Raised where the test can see it.
            self._failures.append(error)

    def _look(self, got: Received) -> tuple[Seen, Trap | None]:
        """Keep that a request came; and what is to be done at it."""
        url = urlsplit(got.path)
        path = unquote(url.path)
        asked = {"REQUEST_METHOD": got.method, "QUERY_STRING": url.query, "PATH_INFO": path}
        if source := got.headers.get("x-amz-copy-source"):
            asked["HTTP_X_AMZ_COPY_SOURCE"] = source
        key = path.lstrip("/").partition("/")[2]
        seen = Seen(operation(asked), key, got.port, got.headers.get("x-amz-date", ""))
        with self._changed:
            self._active += 1
            number = len(self.seen)
            self.seen.append(seen)
            trap = self._trap
            if trap is None or not trap.wanted(number, seen):
                return seen, None
            self._trap = None
            return seen, trap

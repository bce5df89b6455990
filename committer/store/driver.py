"""Driver of protocol steps: :class:`BotoDriver` carries them out on S3, in parallel."""

from __future__ import annotations

import hashlib
import heapq
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from ..errors import StoreRefusedError, StoreUnreachableError, ZeroRenameError
from .boto_calls import S3Requests
from .client_settings import S3_CLIENT
from .clients import S3Clients, profile_client
from .copies import CopyFile, CopyPart
from .encrypted_writes import EncryptionsKnown, names_none, record_key, root_of, with_encryption
from .encryption import Encryption
from .fast_root import FastPlace, FastRoot, by_place
from .requests import (
    Clock,
    Deleted,
    DeleteMany,
    DemandedEncryption,
    Get,
    Request,
    ServerName,
    Wait,
    Work,
)
from .retries import RetryBudget
from .scheduler import Scheduler, Ticket

T = TypeVar("T")
#: A fast root that does not answer is gone, as far as a table can tell, and what lies there lost
#: for now: nobody waits long to be told so.
_BRIEF = RetryBudget(total=15.0)
#: Seconds for which an interrupt waits for the answers to requests that are sent.
_LAST_ANSWERS = 3.0


class Driver(Protocol):
    """What steps and streams need of a driver."""

    @property
    def bucket(self) -> str: ...

    @property
    def parallel(self) -> int:
        """Requests that run at once."""
        ...

    @property
    def retries(self) -> int:
        """Requests that got no usable answer so far, in this process."""
        ...

    def encrypt(self, root: str, encryption: Encryption | None) -> None:
        """Send this encryption with all that is written below a table's root from now on, and
        names none; ``None``: that of the table's record."""
        ...

    def encrypt_by_default(self, encryption: Encryption | None, root: str | None = None) -> None:
        """Send this encryption with what is written where neither a job nor a table's record
        names one; ``None`` changes nothing.

        :param root: of a table; ``None``: all of the bucket.
        """
        ...

    def default_encryption(self, root: str) -> Encryption | None:
        """The encryption below a table's root where neither a job nor its record names one."""
        ...

    def run(self, work: Work[T]) -> T: ...

    def perform(self, request: Request[T]) -> T: ...

    def submit(self, request: Request[T], over: threading.Event | None = None) -> Future[T]: ...


#: Of the request that a thread of a pool carries out: set when nobody wants its answer any more.
_over: ContextVar[threading.Event | None] = ContextVar("over", default=None)


class _Process:
    """What a driver has in one process: connections and a pool's threads survive no fork."""

    def __init__(self, bucket: str, clients: S3Clients, clock: Callable[[], float]) -> None:
        self.clients = clients
        self._clock = clock
        self._requests: dict[FastRoot | None, S3Requests] = {}
        self._requests[None] = S3Requests(bucket, clients, clock)
        self._bucket = bucket
        self.lock = threading.Lock()
        self.pool: ThreadPoolExecutor | None = None

    def carry_out(self, request: Any, pause: Callable[[float], bool]) -> Any:
        """A request, where the keys that it is about lie: in the bucket, or in fast roots.

        :raises FastRootGoneError: such a root does not answer, or its bucket is not there.
        """
        if isinstance(request, DeleteMany):
            failed: dict[str, str] = {}
            for place, its in by_place(self._bucket, request).items():
                answer = self._carry_out(place, its, pause)
                if not isinstance(answer, Deleted):
                    return answer
                failed |= answer.errors
            return Deleted(failed)
        if isinstance(request, CopyFile | CopyPart):
            request = replace(request, source=request.source.real)
        about = getattr(request, "key", "") or getattr(request, "prefix", "")
        return self._carry_out(FastPlace.of(self._bucket, about), request, pause)

    def _carry_out(
        self, place: FastPlace | None, request: Any, pause: Callable[[float], bool]
    ) -> Any:
        if place is None:
            return self._requests[None].carry_out(request, pause)
        requests = self._requests.get(place.root)
        if requests is None:
            try:
                clients = _at(self.clients, place.root)
            except StoreRefusedError as error:
                raise place.gone(self._bucket, request, error, error.remedy) from error
            requests = S3Requests(place.root.bucket, clients, self._clock, _BRIEF)
            requests = self._requests.setdefault(place.root, requests)
        try:
            return place.answered(request, requests.carry_out(place.sent(request), pause))
        except StoreUnreachableError as error:
            raise place.gone(self._bucket, request, error) from error
        except StoreRefusedError as error:
            if error.no_bucket:
                raise place.gone(self._bucket, request, error) from error
            raise


class BotoDriver:
    """Carries out steps on one bucket. May be used by many threads, and after a fork: a child
    makes connections of its own, by the same settings and credentials.

    Generators run in the thread that calls :meth:`run`; only single requests go to the pool, so
    that nested ``All`` cannot use it up. A step with nothing else under way sends its request
    from the calling thread: no hand-over.

    :param bucket: the bucket all keys are in.
    :param clients: how to reach it.
    :param sleep: waits so many seconds, or until the event is set; for tests.
    :param clock: the monotonic clock, seconds; for tests.
    :param observe: called with every request to the store, once per request of a step (not per
        try), in the thread that sends it.

    Each write carries the encryption of its table (:mod:`.encrypted_writes`).
    """

    def __init__(
        self,
        bucket: str,
        clients: S3Clients,
        *,
        sleep: Callable[[float, threading.Event], object] = lambda s, over: over.wait(s),
        clock: Callable[[], float] = time.monotonic,
        observe: Callable[[Request[Any]], None] | None = None,
    ) -> None:
        self.bucket = bucket
        self._sleep = sleep
        self._clock = clock
        self._observe = observe
        self._encryptions = EncryptionsKnown()
        # A parent's stays here, too: to close its connections takes locks, and one that another
        # thread held at the fork is held in the child for good.
        self._processes = {os.getpid(): _Process(bucket, clients, clock)}
        self._forked: dict[int, threading.Lock] = {}

    @property
    def clients(self) -> S3Clients:
        """This process's clients."""
        return self._process().clients

    def reach(self, keys: Iterable[str]) -> set[S3Clients]:
        """The clients that keys are reached by: where all are one, a store can copy by itself."""
        places = (FastPlace.of(self.bucket, key) for key in keys)
        return {self.clients if it is None else _at(self.clients, it.root) for it in places}

    @property
    def parallel(self) -> int:
        return self.clients.parallel

    @property
    def retries(self) -> int:
        return self.clients.retries.troubles.total()

    def encrypt(self, root: str, encryption: Encryption | None) -> None:
        self._encryptions.name(root, encryption)

    def encrypt_by_default(self, encryption: Encryption | None, root: str | None = None) -> None:
        if encryption is not None:
            self._encryptions.configure(root, encryption)

    def default_encryption(self, root: str) -> Encryption | None:
        return self._encryptions.configured(f"{root}/")

    def encryption_below(self, root: str) -> Encryption | None:
        """The encryption that is sent with what is written below a table's root, as far as this
        process has read its record."""
        return self._encryptions.of(f"{root}/")

    def demanded_encryption(self, key: str) -> Encryption | None:
        """As :class:`.requests.DemandedEncryption` asks."""
        return self._encryptions.demanded(key)

    def perform(self, request: Request[T]) -> T:
        """Carry out one request to the store in the calling thread.

        :raises StoreRefusedError: rights, credentials, bucket or region.
        :raises StoreUnreachableError: no answer, and nothing that needs cleaning up.
        """
        if self._observe is not None:
            self._observe(request)
        over = _over.get() or threading.Event()

        def pause(seconds: float) -> bool:
            self._sleep(seconds, over)
            return not over.is_set()

        sent = self._encryptions.applied(request)
        try:
            answer = self._process().carry_out(sent, pause)
        except StoreRefusedError as refusal:
            if not refusal.lacks_right or not names_none(request):
                raise
            answer = self._write_otherwise(sent, refusal, pause)
        self._encryptions.heed(request, answer)
        return answer

    def _write_otherwise(
        self, request: Any, refusal: StoreRefusedError, pause: Callable[[float], bool]
    ) -> Any:
        """Send a write that was refused for want of a right under the encryptions that it may be
        wanted with. A refused request did nothing, so that its condition holds as before.

        :raises StoreRefusedError: the first refusal, where none of them is taken either.
        """
        if (record := record_key(request.key)) is not None:
            try:
                self.perform(Get(record))
            except ZeroRenameError as error:
                raise refusal from error
        for encryption in self._encryptions.instead(request):
            changed = with_encryption(request, encryption)
            try:
                answer = self._process().carry_out(changed, pause)
            except StoreRefusedError as error:
                if not error.lacks_right:
                    raise
            else:
                self._encryptions.took(changed, root_of(request.key))
                return answer
        raise refusal

    def submit(self, request: Request[T], over: threading.Event | None = None) -> Future[T]:
        """Carry out one request to the store in the pool.

        :param over: set when nobody wants the answer any more: it is then not sent again.
        """

        def perform() -> T:
            _over.set(over)
            return self.perform(request)

        return self._executor().submit(perform)

    def run(self, work: Work[T]) -> T:
        """Carry out a step and all steps it starts, or a single request.

        :returns: what the step returned, or the request's answer.
        :raises Exception: what the step raised. If the calling thread is interrupted, requests
            already sent are waited for, for a few seconds, and the steps are closed.
        """
        return _StepsRun(self, work).to_the_end()

    def close(self) -> None:
        """Wait for requests under way and end the pool's threads. The driver stays usable."""
        here = self._process()
        with here.lock:
            pool, here.pool = here.pool, None
        if pool is not None:
            pool.shutdown()

    def _executor(self) -> ThreadPoolExecutor:
        here = self._process()
        with here.lock:
            if here.pool is None:
                here.pool = ThreadPoolExecutor(self.parallel, thread_name_prefix="zero-rename")
            return here.pool

    def _process(self) -> _Process:
        pid = os.getpid()
        here = self._processes.get(pid)
        if here is not None:
            return here
        with self._forked.setdefault(pid, threading.Lock()):
            here = self._processes.get(pid)
            if here is None:
                parent = next(reversed(self._processes.values()))
                here = self._processes[pid] = _Process(
                    self.bucket, parent.clients.anew(), self._clock
                )
            return here


class _StepsRun:
    """One call of :meth:`BotoDriver.run`: what it waits for."""

    def __init__(self, driver: BotoDriver, work: Work[Any]) -> None:
        self._driver = driver
        self._scheduler = Scheduler(work)
        self._done: queue.SimpleQueue[tuple[Ticket, Future[Any]]] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, Ticket]] = []
        self._count = 0
        self._under_way: set[Future[Any]] = set()
        self._over = threading.Event()

    def to_the_end(self) -> Any:
        scheduler = self._scheduler
        try:
            while not scheduler.finished:
                taken = scheduler.take()
                if taken is None:
                    self._wait()
                else:
                    self._send(*taken)
        finally:
            if not scheduler.finished:
                self._over.set()
                # A claim that arrives after the clean-up would be nobody's.
                wait([it for it in self._under_way if not it.cancel()], _LAST_ANSWERS)
                scheduler.close()
        return scheduler.result()

    def _send(self, ticket: Ticket, request: Any) -> None:
        driver = self._driver
        if isinstance(request, Clock):
            self._scheduler.answer(ticket, driver._clock())
        elif isinstance(request, ServerName):
            self._scheduler.answer(ticket, driver.clients.server_name)
        elif isinstance(request, DemandedEncryption):
            self._scheduler.answer(ticket, driver.demanded_encryption(request.key))
        elif isinstance(request, Wait):
            self._count += 1
            due = driver._clock() + request.seconds * (1 - request.spread * random.random())
            heapq.heappush(self._timers, (due, self._count, ticket))
        elif self._scheduler.idle and not self._under_way and not self._timers:
            try:
                answer = driver.perform(request)
            except Exception as error:
                self._scheduler.throw(ticket, error)
            else:
                self._scheduler.answer(ticket, answer)
        else:
            future = driver.submit(request, self._over)
            self._under_way.add(future)
            future.add_done_callback(lambda done: self._done.put((ticket, done)))

    def _wait(self) -> None:
        """Block until a request is answered or a wait is over."""
        driver = self._driver
        left = max(0.0, self._timers[0][0] - driver._clock()) if self._timers else None
        if not self._under_way:
            if left:
                driver._sleep(left, self._over)
            self._scheduler.answer(heapq.heappop(self._timers)[2], None)
            return
        try:
            ticket, future = self._done.get(timeout=left)
        except queue.Empty:
            self._scheduler.answer(heapq.heappop(self._timers)[2], None)
            return
        self._under_way.discard(future)
        error = future.exception()
        if error is None:
            self._scheduler.answer(ticket, future.result())
        elif isinstance(error, Exception):
            self._scheduler.throw(ticket, error)
        else:
            raise error


_derived: WeakKeyDictionary[Any, tuple[int, S3Clients]] = WeakKeyDictionary()
#: Those of fast roots, by a table's own.
_fast: WeakKeyDictionary[S3Clients, dict[FastRoot, S3Clients]] = WeakKeyDictionary()
_drivers_lock = threading.Lock()


def connect(bucket: str, client: Any = None) -> BotoDriver:
    """The driver for a bucket.

    :param client: a boto3 S3 client whose credentials and endpoint are used (see
        :meth:`.clients.S3Clients.derived_from`); ``None`` for boto3's standard chain. What is made
        of a client is kept as long as the client, and drivers of the standard chain per process,
        bucket and AWS environment: building clients costs more than a small commit's requests.
    :raises StoreRefusedError: no client can be made from the environment.
    """
    if client is not None:
        return BotoDriver(bucket, _clients_of(client))
    with _drivers_lock:
        return _driver(bucket, os.getpid(), _environment())


@cache
def _driver(bucket: str, pid: int, environment: str) -> BotoDriver:
    return BotoDriver(bucket, _clients(pid, environment))


@cache
def _clients(pid: int, environment: str) -> S3Clients:
    return S3Clients.from_environment()


def _clients_of(client: Any) -> S3Clients:
    """This process's clients that are derived from a caller's."""
    with _drivers_lock:
        made = _derived.get(client)
        if made is None or made[0] != os.getpid():
            made = _derived[client] = (os.getpid(), S3Clients.derived_from(client))
        return made[1]


def _at(clients: S3Clients, root: FastRoot) -> S3Clients:
    """What reaches a fast root: a table's own clients, where it is at their store and with their
    keys; else others, which are kept as long as these.

    :raises StoreRefusedError: there is no such profile, or no client can be made of it.
    """
    if root.endpoint in (None, clients.client.meta.endpoint_url) and root.profile is None:
        return clients
    with _drivers_lock:
        made = _fast.setdefault(clients, {})
        if root.place not in made:
            source = clients.client if root.profile is None else profile_client(root.profile)
            made[root.place] = S3Clients.derived_from(source, clients.parallel, root.endpoint)
        return made[root.place]


def _environment() -> str:
    """A digest of the AWS variables, and of the settings that another process has handed over: a
    test or a task that sets others gets other clients."""
    digest = hashlib.sha256()
    ours = (name for name in os.environ if name.startswith("AWS_") or name == S3_CLIENT)
    for name in sorted(ours):
        digest.update(f"{name}={os.environ[name]}\0".encode())
    return digest.hexdigest()

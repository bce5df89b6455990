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
#: Retries at a fast root. For a table, a root that does not answer is missing, and its files are
#: lost for now; this is reported without a long wait.
_BRIEF = RetryBudget(total=15.0)
#: Seconds for which an interrupt waits for the answers to requests that are sent.
_LAST_ANSWERS = 3.0


class Driver(Protocol):
    """The interface of a driver for steps and streams."""

    @property
    def bucket(self) -> str: ...

    @property
    def parallel(self) -> int:
        """Number of requests that run at once."""
        ...

    @property
    def retries(self) -> int:
        """Number of requests without a usable answer so far, in this process."""
        ...

    def encrypt(self, root: str, encryption: Encryption | None) -> None:
        """Add this encryption to all later writes without one below a table's root.

        :param encryption: ``None``: that of the table's record.
        """
        ...

    def encrypt_by_default(self, encryption: Encryption | None, root: str | None = None) -> None:
        """Add this encryption to writes for which neither a job nor a table's record names one.

        :param encryption: ``None``: nothing is changed.
        :param root: root of a table; ``None``: the whole bucket.
        """
        ...

    def default_encryption(self, root: str) -> Encryption | None:
        """Return the encryption below a table's root if neither a job nor its record names one."""
        ...

    def run(self, work: Work[T]) -> T: ...

    def perform(self, request: Request[T]) -> T: ...

    def submit(self, request: Request[T], over: threading.Event | None = None) -> Future[T]: ...


#: Event for the request that a thread of the pool carries out: set when its answer is no longer
#: needed.
_over: ContextVar[threading.Event | None] = ContextVar("over", default=None)


class _Process:
    """The clients and the pool of a driver in one process.

    Connections and threads do not survive a fork.
    """

    def __init__(self, bucket: str, clients: S3Clients, clock: Callable[[], float]) -> None:
        self.clients = clients
        self._clock = clock
        self._requests: dict[FastRoot | None, S3Requests] = {}
        self._requests[None] = S3Requests(bucket, clients, clock)
        self._bucket = bucket
        self.lock = threading.Lock()
        self.pool: ThreadPoolExecutor | None = None

    def carry_out(self, request: Any, pause: Callable[[float], bool]) -> Any:
        """Carry out a request at the places of its keys: in the bucket, or in fast roots.

        :raises FastRootGoneError: a fast root does not answer, or its bucket does not exist.
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
    """Driver that carries out steps on one bucket.

    It may be used by many threads, and after a fork: a child process makes connections of its own,
    with the same settings and credentials.

    Generators run in the thread that calls :meth:`run`. Only single requests go to the pool, so
    nested ``All`` cannot use it up. If nothing else is under way, a step's request is sent from the
    calling thread, without the pool.

    :param bucket: the bucket of all keys.
    :param clients: the clients that reach it.
    :param sleep: waits for a number of seconds, or until the event is set; for tests.
    :param clock: the monotonic clock, in seconds; for tests.
    :param observe: called with every request to the store, once for each request of a step (not for
        each try), in the thread that sends it.

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
        # The parent's entry is kept in a child, too. To close its connections would take locks, and
        # a lock that another thread held at the fork is held in the child for ever.
        self._processes = {os.getpid(): _Process(bucket, clients, clock)}
        self._forked: dict[int, threading.Lock] = {}

    @property
    def clients(self) -> S3Clients:
        """Clients of this process."""
        return self._process().clients

    def reach(self, keys: Iterable[str]) -> set[S3Clients]:
        """Return the clients that reach these keys; if there is only one, the store can copy."""
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
        """Return the encryption that is sent with writes below a table's root.

        The table's record counts if this process has read or written it.
        """
        return self._encryptions.of(f"{root}/")

    def demanded_encryption(self, key: str) -> Encryption | None:
        """Return the answer to :class:`.requests.DemandedEncryption`."""
        return self._encryptions.demanded(key)

    def perform(self, request: Request[T]) -> T:
        """Carry out one request to the store in the calling thread.

        :raises StoreRefusedError: a missing right, or wrong credentials, bucket or region.
        :raises StoreUnreachableError: there was no answer; nothing needs cleaning up.
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
        """Send a write again that was refused for lack of a right, with other encryptions.

        The bucket may demand one of them. A refused request did nothing, so its condition holds as
        before.

        :raises StoreRefusedError: the store accepts none of them; this is the first refusal.
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

        :param over: set when the answer is no longer needed: the request is then not sent again.
        """

        def perform() -> T:
            _over.set(over)
            return self.perform(request)

        return self._executor().submit(perform)

    def run(self, work: Work[T]) -> T:
        """Carry out a step and all steps it starts, or a single request.

        :returns: the step's result, or the request's answer.
        :raises Exception: the step's error. If the calling thread is interrupted, it waits a few
            seconds for the answers to requests that were sent, and closes the steps.
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
    """One call of :meth:`BotoDriver.run`, with its requests under way and its timers."""

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
                # Wait, since a claim that arrives after the clean-up would stay without an owner.
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
#: Clients of fast roots, by the table's own clients.
_fast: WeakKeyDictionary[S3Clients, dict[FastRoot, S3Clients]] = WeakKeyDictionary()
_drivers_lock = threading.Lock()


def connect(bucket: str, client: Any = None) -> BotoDriver:
    """Return the driver for a bucket.

    Clients are kept, since building them costs more than the requests of a small commit: those
    derived from a caller's client as long as that client, and drivers of the standard chain for
    each process, bucket and AWS environment.

    :param client: a boto3 S3 client whose credentials and endpoint are used (see
        :meth:`.clients.S3Clients.derived_from`); ``None``: boto3's standard chain.
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
    """Return this process's clients that are derived from a caller's client."""
    with _drivers_lock:
        made = _derived.get(client)
        if made is None or made[0] != os.getpid():
            made = _derived[client] = (os.getpid(), S3Clients.derived_from(client))
        return made[1]


def _at(clients: S3Clients, root: FastRoot) -> S3Clients:
    """Return the clients that reach a fast root.

    If the root is at the table's store and uses its keys, they are the table's own clients.
    Otherwise others are made, and kept as long as the table's.

    :raises StoreRefusedError: the profile does not exist, or no client can be made from it.
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
    """Return a digest of the AWS variables, and of the client settings from another process.

    So a test or a task that sets other variables gets other clients.
    """
    digest = hashlib.sha256()
    ours = (name for name in os.environ if name.startswith("AWS_") or name == S3_CLIENT)
    for name in sorted(ours):
        digest.update(f"{name}={os.environ[name]}\0".encode())
    return digest.hexdigest()

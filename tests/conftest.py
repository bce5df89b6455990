"""Fixtures all tests share: an S3 server, a bucket of one's own, a driver on it."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from botocore import endpoint
from hypothesis import settings

from support import descriptions
from support.counting import RequestCounter
from support.faulty_server import Answer, FaultyServer
from support.garbage import collect_rarely
from support.known_store import spare_probes
from support.memory_s3 import MemoryS3, answering, is_wanted
from support.moto_server import S3Server, client_of, running
from support.plain_bucket import PlainBucket
from support.protocol import World
from zero_rename.committer.scan.reads import forget_reads
from zero_rename.committer.store import boto_calls, conditional_put
from zero_rename.committer.store import driver as store_driver
from zero_rename.committer.store.backoff import Backoff
from zero_rename.committer.store.driver import BotoDriver, connect
from zero_rename.committer.store.requests import Deleted, DeleteMany
from zero_rename.committer.store.retries import RetryBudget

# How long an example takes says something of the machine, nothing of the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

collect_rarely()
descriptions.read_once()
# A run begun in the background ignores Ctrl-C, and so would what tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Servers for a whole run; which worker runs what; the one Spark session of a worker; the wheel of
#: a run; how far the simulation went, printed below the results.
pytest_plugins = (
    "support.shared_servers",
    "support.shares",
    "support.pauses",
    "support.spark",
    "support.wheel",
    "simulation.summary",
)
_numbers = itertools.count(1)
#: What puts a server of a test before the store, which answers as the test says.
Behind = Callable[[Answer], FaultyServer]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep the format of the log that tests read.

    A logger of PySpark sets JSON for each handler that it is given, and pytest gives its handlers
    to each logger that does not propagate, as two of PySpark's do.
    """
    plugin = session.config.pluginmanager.get_plugin("logging-plugin")
    assert plugin is not None
    for handler in (plugin.caplog_handler, plugin.report_handler):
        handler.setFormatter = lambda _formatter: None


@pytest.fixture
def world() -> World:
    """A table on a store in memory, which no job has made yet."""
    return World()


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3Server]:
    """moto's server, a process of its own for the whole test run."""
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(moto_server: S3Server) -> S3Server:
    """An S3 server: another process, which other processes reach."""
    return moto_server


@pytest.fixture
def memory_s3() -> Iterator[MemoryS3]:
    """A store in this process, which tests marked ``memory_s3`` have for their server."""
    server = MemoryS3("http://memory.invalid")
    with answering(server):
        yield server


@pytest.fixture
def s3_here(request: pytest.FixtureRequest) -> S3Server:
    """The store of a test: moto's server where it is not marked, or asks for that by name."""
    return request.getfixturevalue("memory_s3" if is_wanted(request) else "s3_server")


@pytest.fixture
def s3_env(s3_here: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The store, with the environment pointing boto3 at it and at nothing else."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    for name, value in s3_here.environment.items():
        monkeypatch.setenv(name, value)
    return s3_here


@pytest.fixture(autouse=True)
def soon_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint at which nobody has answered yet is given up at once: many tests have one.
    Clients of other services than S3 try as often as ever, without pauses."""
    monkeypatch.setattr(boto_calls, "_USUAL", RetryBudget(unheard=0.1))
    monkeypatch.setattr(store_driver, "_BRIEF", RetryBudget(total=1.0, unheard=0.1))
    monkeypatch.setattr(endpoint, "time", SimpleNamespace(sleep=lambda _seconds: None))


_addresses = socket.getaddrinfo
_HERE = re.compile(
    r"|localhost|.+\.localhost|[\d.]+|[\da-f]*:[\da-f:.]*|" + re.escape(socket.gethostname())
)


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name of another machine is found, as without a network, and at once: wrong arguments lead
    to AWS itself."""

    def getaddrinfo(host: Any, *more: Any, **named: Any) -> Any:
        text = host.decode() if isinstance(host, bytes) else host or ""
        if _HERE.fullmatch(text):
            return _addresses(host, *more, **named)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.fixture(autouse=True)
def known_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """No first job probes moto, in this process and in those that are forked for tests. Folders
    whose subject it is have a fixture of this name that does nothing."""
    spare_probes(monkeypatch.setattr)


@pytest.fixture(autouse=True)
def nothing_read() -> None:
    """What one test reads is no input of the jobs of another."""
    forget_reads()


@pytest.fixture
def impatient(soon_told: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not answer, or throttles, is given up at once."""
    monkeypatch.setattr(boto_calls, "_USUAL", RetryBudget(total=0.1, unheard=0.1, first=0.01))
    monkeypatch.setattr(conditional_put, "_TRIES", Backoff(3, 0.01))


@pytest.fixture
def answered_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], Any]], None]:
    """Lets a function answer requests in the store's place; those that it has no answer to, the
    store does."""
    carry_out = BotoDriver.perform

    def let(answer: Callable[[Any], Any]) -> None:
        def perform(self: BotoDriver, request: Any) -> Any:
            found = answer(request)
            return carry_out(self, request) if found is None else found

        monkeypatch.setattr(BotoDriver, "perform", perform)

    return let


@pytest.fixture
def deletes_denied(answered_by: Any) -> None:
    """The store refuses to delete many objects at once, as for a role without that right."""

    def answer(request: Any) -> Any:
        if isinstance(request, DeleteMany):
            return Deleted({key: "AccessDenied" for key, _ in request.items})
        return None

    answered_by(answer)


@pytest.fixture
def s3_client(s3_env: S3Server) -> Any:
    """A plain boto3 client of the server, to look at what our code did."""
    return client_of(s3_env.endpoint)


@pytest.fixture
def glue_client(
    s3_env: S3Server, moto_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """A plain boto3 client of Glue, which the environment leads to: moto's, wherever S3 is."""
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", moto_server.endpoint)
    client = boto3.client("glue")
    yield client
    client.close()


@pytest.fixture(autouse=True)
def sigterm_as_before() -> Iterator[None]:
    """A job that a test leaves open, as a dead driver does, leaves its handler of SIGTERM, too."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class Bucket(PlainBucket):
    """A bucket nobody else uses.

    :param counter: counts the requests to this bucket as they arrive at the server.
    """

    counter: RequestCounter


@pytest.fixture
def s3_bucket(s3_env: S3Server, s3_client: Any) -> Bucket:
    """An empty bucket; the environment points at its server."""
    name = f"test-{os.getpid()}-{next(_numbers)}"
    s3_client.create_bucket(Bucket=name)
    counter = s3_env.counter(name)
    counter.reset()
    return Bucket(name, s3_client, counter)


@pytest.fixture
def behind(
    s3_bucket: Bucket, s3_env: S3Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Behind]:
    """Puts a server of the test's own before the store, for the rest of the test."""
    servers: list[FaultyServer] = []

    def make(answer: Answer) -> FaultyServer:
        servers.append(FaultyServer(answer, s3_env.endpoint).__enter__())
        monkeypatch.setenv("AWS_ENDPOINT_URL", servers[-1].endpoint)
        return servers[-1]

    yield make
    for server in servers:
        server.__exit__()


@pytest.fixture
def bucket(s3_bucket: Bucket) -> str:
    """The name of an empty bucket; the environment points at its server."""
    return s3_bucket.name


@pytest.fixture
def driver(bucket: str) -> BotoDriver:
    """A driver on the empty bucket."""
    return connect(bucket)

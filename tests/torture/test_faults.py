"""Jobs in faults of the store: the short form. ``make torture FAULTS=…`` is the long one."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from torture.faults import Outage, Throttling
from torture.proxy import Proxy, Seen
from torture.servers import Store
from torture.storms import completes, decides, rows_of

from support.faulty_server import Reply, s3_error
from zero_rename import FileOptions, Table
from zero_rename.committer import CommitStateUnknownError, RefusedError, UnfinishedCommitError
from zero_rename.committer.commit.state.job_state import Committed
from zero_rename.committer.errors import ZeroRenameError

FILES = 12


def job_into(table: Table, files: int = FILES) -> Committed:
    with table.job(
        rows_of(files).schema, partition_by=("day",), files=FileOptions(rows_per_file=1)
    ) as job:
        job.write(rows_of(files))
    assert job.committed is not None
    return job.committed


def timeless(table: Table) -> Table:
    """The same, and pauses cost no time."""
    table.driver._sleep = lambda seconds, over: None
    return table


def claims(seen: Seen) -> bool:
    return seen.operation == "PutObject" and "/_zero_rename/heads/" in seen.key


def assert_whole(url: str, files: int = FILES) -> None:
    table = Table(url)
    assert sorted(table.to_arrow(columns=["row"]).column("row").to_pylist()) == list(range(files))
    assert table.open_jobs() == []
    assert table.verify() == []


def through(proxy: Proxy, monkeypatch: pytest.MonkeyPatch, url: str) -> Table:
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    table = Table(url)
    table.driver.clients  # noqa: B018, connected before the environment is put back
    return table


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2])
def test_throttled_jobs_finish(
    share: float, store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three attempts a request let 0 of 4 jobs finish where one answer in five was SlowDown."""
    faults = Throttling(share, seed=3)
    with Proxy(store.endpoint, faults=faults) as proxy, monkeypatch.context() as patch:
        done = job_into(timeless(through(proxy, patch, url)))
    # moto answers 500 to the probe's Completes of an object that is gone.
    assert abs(done.retries - faults.throttled.total()) <= 3
    assert (faults.throttled.total() > 0) == (share > 0)
    assert_whole(url)


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "closed"])
@pytest.mark.parametrize("begins", [claims, decides, completes])
def test_a_store_that_is_away_for_a_moment_is_waited_for(
    begins: Callable[[Seen], bool],
    silent: bool,
    store: Store,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = Outage(begins, 0.4, silent)
    with Proxy(store.endpoint, faults=faults) as proxy, monkeypatch.context() as patch:
        assert job_into(through(proxy, patch, url), 3).retries >= faults.met > 0
    assert_whole(url, 3)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("begins", "told", "rows"),
    [
        (claims, RefusedError, 0),
        (decides, CommitStateUnknownError, 0),
        (completes, UnfinishedCommitError, 3),
    ],
)
def test_when_patience_ends_the_jobs_state_is_told_rightly(
    begins: Callable[[Seen], bool],
    told: type[ZeroRenameError],
    rows: int,
    store: Store,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refused where nothing was decided; unknown where the decision was sent; committed and
    unfinished after it. The decision never arrived here."""
    faults = Outage(begins, 600.0, silent=False)
    with Proxy(store.endpoint, faults=faults) as proxy, monkeypatch.context() as patch:
        table = through(proxy, patch, url)
        with pytest.raises(told):
            job_into(table, 3)
    table = Table(url)
    if table.exists():
        table.recover(0.0)
    assert table.exists() == (rows > 0)
    assert not rows or table.to_arrow().num_rows == rows


def test_a_store_that_throttles_gets_fewer_requests_at_once(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers as long as no more than six are under way together."""
    under_way = most_answered = 0
    lock = threading.Lock()

    def faults(seen: Seen, carry_out: Callable[[], Reply]) -> Reply:
        nonlocal under_way, most_answered
        with lock:
            under_way += 1
            busy = under_way > 6
        try:
            return s3_error(503, "SlowDown") if busy else carry_out()
        finally:
            with lock:
                under_way -= 1

    with (
        Proxy(store.endpoint, latency=0.005, faults=faults) as proxy,
        monkeypatch.context() as patch,
    ):
        table = through(proxy, patch, url)
        done = job_into(table, 60)
        assert table.driver.clients.retries.concurrency.limit < 32
    assert done.files == 60
    assert_whole(url, 60)

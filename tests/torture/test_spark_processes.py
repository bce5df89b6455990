"""A Spark worker killed from outside, and a shuffle longer than anybody's patience."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pyarrow as pa
import pytest
from torture.proxy import Proxy, Seen, Trap, When
from torture.servers import Store
from torture.writers import Recoverer

from support.spark_tables import data_keys, open_records, worker_environment, write
from zero_rename import Table

pytestmark = pytest.mark.spark

#: Seconds: far less than real ones, which ``make torture`` takes.
# The patience leaves room for a first sign that a busy machine gives late.
INTERVAL, PATIENCE, SHUFFLE = 1.0, 20.0, 30.0


def process_on(port: int) -> psutil.Process:
    """The process below this one that has a connection from a port."""
    for process in psutil.Process().children(recursive=True):
        try:
            connections = process.net_connections("tcp")
        except psutil.Error:
            continue
        if any(connection.laddr.port == port for connection in connections):
            return process
    raise LookupError(f"nobody has port {port}")


def test_an_executor_killed_while_it_writes(
    spark: Any, proxy: Proxy, s3_bucket: Any, url: str
) -> None:
    """The task's next attempt writes its rows; the uploads of the killed one, of which its job
    knows nothing, are gone when the job is closed."""
    struck: list[Seen] = []
    killed: list[int] = []

    def wanted(_: int, seen: Seen) -> bool:
        if seen.operation == "UploadPart" and "/_zero_rename/" not in seen.key:
            struck.append(seen)
        return len(struck) == 3

    def kill() -> None:
        process = process_on(struck[-1].port)
        killed.append(process.pid)
        process.kill()

    proxy.watch(Trap(wanted, When.AFTER, kill))
    frame = spark.range(0, 40, 1, 2)
    with worker_environment(spark, AWS_ENDPOINT_URL=proxy.endpoint):
        write(frame, url, rowsPerFile="4")
    assert len(killed) == 1
    lost = struck[-1].key
    uploads = [s.key for s in proxy.seen if s.operation == "CreateMultipartUpload"]
    assert uploads.count(lost) == 2, "the killed attempt and its successor write the same keys"
    found = Table(url).to_arrow()
    assert sorted(found.column("id").to_pylist()) == list(range(40))
    assert len(data_keys(s3_bucket, "flights/")) == 10
    assert s3_bucket.uploads() == []
    assert open_records(s3_bucket, "flights") == []


def test_a_shuffle_longer_than_the_patience(
    spark: Any, store: Store, s3_bucket: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the job reaches the store for longer than a recoverer waits, but heartbeats
    do: it is left alone, and commits."""
    from zero_rename.spark import registration

    (thread,) = [t for t in registration._heartbeats.values() if t.is_alive()]
    monkeypatch.setattr(thread, "_interval", INTERVAL)
    # Adaptive execution runs a shuffle's first half before the write is planned, and so before
    # its job is open; without it all of the shuffle is part of the job.
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    outcomes: list[dict[str, str]] = []
    done = threading.Event()

    def slow(batches: Any) -> Any:
        time.sleep(SHUFFLE)
        yield from batches

    def recover() -> None:
        while not done.wait(1.0):
            found = Recoverer(url, store.environment(), PATIENCE).outcomes()
            assert isinstance(found, list), found
            outcomes.extend(found)

    make_table(url)
    with ThreadPoolExecutor(1) as pool:
        recovering = pool.submit(recover)
        try:
            write(spark.range(0, 8, 1, 1).mapInArrow(slow, "id long").repartition(2), url)
        finally:
            done.set()
            spark.conf.unset("spark.sql.adaptive.enabled")
        recovering.result()
    found = [outcome["outcome"] for outcome in outcomes]
    # A recoverer that comes by between decision and close helps.
    assert set(found) <= {"left", "committed"}
    assert found.count("left") > 4, "recovery hardly looked while the job was open"
    assert sorted(Table(url).to_arrow().column("id").to_pylist()) == list(range(8))
    assert open_records(s3_bucket, "flights") == []


def make_table(url: str) -> None:
    """Without a row, so that there is something to recover."""
    with Table(url).job(pa.schema([("id", pa.int64())])):
        pass

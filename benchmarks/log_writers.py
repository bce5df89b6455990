"""Commits a second of many writers of one Delta table, each answer of the store so late.

``PYTHONPATH=tests:. .venv/bin/python benchmarks/log_writers.py [--writers 32] [--jobs 10]
[--latency 0.03] [--processes 4] [--write]``. On Ceph, since a Delta table takes one writer at a
time where a store checks and writes in two steps. Each writer appends a row a job to a partition of
its own, and opens its next job once the last one is committed. Writers are threads
of a few processes, each with connections of its own: 32 processes of Python would measure the
machine. An answer is late where it is waited for, in the writer's thread, which costs no CPU. The
store runs on the same cores: where they are busy, the rate is theirs. ``--write`` puts the table
into docs/performance.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from torture.servers import Store, serving

from docs.extensions.tables import between
from zero_rename.committer.store.clients import S3Clients
from zero_rename.committer.store.driver import BotoDriver
from zero_rename.committer.store.requests import Put, Request
from zero_rename.tables import DeltaTable

_CHECKOUT = Path(__file__).resolve().parent.parent
_ENTRY = re.compile(r"/_delta_log/\d{20}\.json$")
BUCKET = "writers"
_SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int32())])


@dataclass(frozen=True)
class WriterJob:
    """The cost of one job.

    :param lost: numbers of the log that it lost to other jobs.
    """

    seconds: float
    requests: int
    lost: int


@dataclass(frozen=True)
class WritersCost:
    """The cost of all jobs of all writers.

    :param cpu: seconds of all writers' processes.
    """

    jobs: Sequence[WriterJob]
    seconds: float
    cpu: float


class LateDriver:
    """Lets every answer be late, and counts requests and entries that are sent."""

    def __init__(self, store: Store, bucket: str, latency: float) -> None:
        clients = S3Clients.derived_from(store.client())
        self.driver, self._latency = BotoDriver(bucket, clients, observe=self._send), latency
        self._lock = threading.Lock()
        self.requests = self.entries = 0

    def _send(self, request: Request[Any]) -> None:
        with self._lock:
            self.requests += 1
            self.entries += isinstance(request, Put) and bool(_ENTRY.search(request.key))
        time.sleep(self._latency)


def write(late: LateDriver, url: str, writer: int, jobs: int) -> list[WriterJob]:
    """Append so many times, one job after the other."""
    table, done = DeltaTable(url, driver=late.driver), []
    for number in range(jobs):
        begun, requests, entries = time.monotonic(), late.requests, late.entries
        with table.job(_SCHEMA, mode="append") as job:
            job.write(pa.table({"id": [number], "day": [writer]}, _SCHEMA))
        lost = late.entries - entries - 1
        done.append(WriterJob(time.monotonic() - begun, late.requests - requests, lost))
    return done


def work(
    store: Store, url: str, writers: Sequence[int], jobs: int, latency: float, ready: Any
) -> tuple[list[WriterJob], float]:
    """Let the writers of one process begin with those of the others; their jobs, and its CPU."""
    write(LateDriver(store, BUCKET, 0.0), f"{url}-warm-{writers[0]}", 0, 1)
    late = [LateDriver(store, BUCKET, latency) for _ in writers]
    with ThreadPoolExecutor(len(writers)) as pool:
        ready.wait()
        cpu = time.process_time()
        found = [
            pool.submit(write, its, url, writer, jobs)
            for its, writer in zip(late, writers, strict=True)
        ]
        return [job for it in found for job in it.result()], time.process_time() - cpu


def measured(
    store: Store, url: str, writers: int, jobs: int, latency: float, processes: int
) -> WritersCost:
    """Let so many writers append to a new table at once.

    :raises AssertionError: a row is lost or doubled.
    """
    table = DeltaTable(url, store.client())
    with table.job(_SCHEMA, partition_by=["day"]):
        pass
    shares = [range(writers)[it::processes] for it in range(processes)]
    forks = multiprocessing.get_context("spawn")
    with forks.Manager() as manager, forks.Pool(processes) as pool:
        ready = manager.Barrier(processes + 1)
        under_way = [
            pool.apply_async(work, (store, url, it, jobs, latency, ready)) for it in shares
        ]
        ready.wait()
        begun = time.monotonic()
        results = [it.get() for it in under_way]
        seconds = time.monotonic() - begun
    read = table.scan(columns=["id", "day"]).to_arrow().to_pylist()
    rows = sorted((it["id"], it["day"]) for it in read)
    assert rows == sorted((number, writer) for number in range(jobs) for writer in range(writers))
    done = [job for its, _ in results for job in its]
    return WritersCost(done, seconds, sum(cpu for _, cpu in results))


def row(writers: int, cost: WritersCost) -> str:
    """A line of the table."""
    jobs, count = cost.jobs, len(cost.jobs)
    lost = [it.lost for it in jobs]
    cells = (
        writers,
        count,
        f"{count / cost.seconds:.1f}",
        max(lost),
        f"{statistics.mean(lost):.1f}",
        f"{statistics.mean(it.requests for it in jobs):.0f}",
        f"{statistics.median(it.seconds for it in jobs):.1f}",
        f"{max(it.seconds for it in jobs):.1f}",
        f"{cost.cpu / cost.seconds:.1f}",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


HEAD: tuple[str, ...] = (
    "| writers | jobs | commits a second | most numbers lost by one job | lost by a job | requests"
    " of a job | its seconds, median | longest | cores that the writers took |",
    "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--latency", type=float, default=0.03)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines = list(HEAD)
    with serving(os.environ.get("SERVER") or "ceph") as store:
        store.client().create_bucket(Bucket=BUCKET)
        for writers in options.writers:
            url = f"s3://{BUCKET}/table-{writers}"
            processes = min(writers, options.processes)
            cost = measured(store, url, writers, options.jobs, options.latency, processes)
            lines.append(row(writers, cost))
            print(lines[-1], flush=True)
        lines += ["", f"Measured on {store.ran_on}."]
    print("\n".join(lines))
    if options.write:
        page = _CHECKOUT / "docs" / "performance.md"
        page.write_text(between(page.read_text("utf-8"), "log writers", "\n".join(lines)), "utf-8")


if __name__ == "__main__":
    main()

"""A Delta table of a million files in 5,000 commits: what opening, reading and a checkpoint take.

``PYTHONPATH=tests:. .venv/bin/python benchmarks/large_log.py [--files 1000000] [--commits 5000]
[--write]``. The log is made in memory by this package's own commits, with statistics of eight
columns for each file; what an opening reads of it is put on moto's server. Each figure is of a
process of its own: the seconds of its CPU, and its memory at the most besides what it had when it
had imported the package. Ten minutes, and 4 GB of memory, nearly all of it the maker's.
``--write`` puts the table into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs.extensions.tables import between
from support.log_tables import COLUMNS, LAYOUT, LOG, NOW, LogTable, ids
from support.memory_store import MemoryStore
from support.moto_server import S3Server, running
from zero_rename.committer.store.requests import Get
from zero_rename.log.actions import AddFile
from zero_rename.log.change import LogBase, LogChange
from zero_rename.log.checkpointing import make_checkpoint
from zero_rename.log.job_steps import commit_job, open_log_job
from zero_rename.log.opening import LogDepth, open_log
from zero_rename.tables import DeltaTable

_CHECKOUT = Path(__file__).resolve().parent.parent
PARTITIONS = 365
#: Entries since the checkpoint: as many as there are before the next one is made.
SINCE = 49
MIB = 1024 * 1024


@dataclass(frozen=True)
class ActCost:
    """Requests, time and memory that an act took.

    :param peak: bytes of memory at the most, besides those of the process before it.
    """

    requests: int
    seconds: float
    cpu: float
    peak: int


def statistics(number: int) -> str:
    """Statistics of a file's eight columns, with values that differ from file to file."""
    low = {
        "flight_id": number * 1000,
        "scheduled_at": f"2026-01-{number % 28 + 1:02}T00:00:00.000Z",
        "departed_at": f"2026-01-{number % 28 + 1:02}T00:01:00.000Z",
        "origin": f"{'ABCDE'[number % 5]}BQ",
        "destination": "ABE",
        "tail": f"N{number % 1000:03}AA",
        "delay": -(number % 60),
        "price": number % 90,
    }
    high = {name: it + 1000 if isinstance(it, int) else f"{it}Z" for name, it in low.items()}
    nulls = dict.fromkeys(low, number % 7)
    told = {"numRecords": 1000, "minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps(told, separators=(",", ":"))


def files_of(job: str, first: int, files: int) -> Iterator[AddFile]:
    """The files of a commit, in as many partitions as there are."""
    for number in range(first, first + files):
        yield AddFile(
            f"data/{job}/part-00000-{number:08}.parquet",
            {"day": str(number % PARTITIONS)},
            64 * MIB,
            NOW,
            statistics=statistics(number),
        )


def made(files: int, commits: int) -> MemoryStore:
    """A log of so many commits, with a checkpoint before the last ones."""
    store = MemoryStore()
    table = LogTable(store)
    table.make()
    share = files // commits
    for number in range(1, commits + 1):
        job = f"zr1-{number:026}"
        opened = table.run(open_log_job(LAYOUT, ids(job), {}))
        base = LogBase(opened.log.state.version, opened.log.state.table_id)
        adds = tuple(files_of(job, number * share, share))
        table.run(commit_job(LAYOUT, opened.log, LogChange(job, base, COLUMNS, adds), NOW))
        if number == commits - SINCE:
            table.run(make_checkpoint(LAYOUT, NOW))
    return store


def upload(store: MemoryStore, client: Any, first: int) -> None:
    """Put on a server what an opening may read: what is not before the checkpoint."""
    client.create_bucket(Bucket=LAYOUT.root.bucket)
    for key in store.keys(LOG.prefix):
        name = key.removeprefix(LOG.prefix)
        if name.startswith("_") or int(name[:20]) >= first:
            client.put_object(Bucket=LAYOUT.root.bucket, Key=key, Body=store.objects[key].body)


def _memory(name: str) -> int:
    """Bytes of this process's memory, by Linux: ``VmRSS`` now, ``VmHWM`` at the most."""
    status = Path("/proc/self/status").read_text("ascii")
    return next(int(it.split()[1]) * 1024 for it in status.splitlines() if it.startswith(name))


def _append(table: Any) -> None:
    table.run(open_log(LAYOUT, LogDepth.BLIND))


def _partition(table: Any) -> None:
    assert len(table.state(["day=7"]).files) > 100


def _every_file(table: Any) -> None:
    assert len(table.state().files) > 100


def _checkpoint(table: Any) -> None:
    assert table.checkpoint_log() is not None


ACTS = {
    "opening for an append": _append,
    "files of one partition": _partition,
    "all files": _every_file,
    "a checkpoint": _checkpoint,
}


def measure(act: str, server: S3Server, sink: Any) -> None:
    """Carry out an act in this process, which does nothing else."""
    url = f"s3://{LAYOUT.root.bucket}/{LAYOUT.root.prefix.rstrip('/')}"
    table = DeltaTable(url, server.client())
    table.run(Get(LOG.hint))  # It has connected, and knows the store's clock.
    Path("/proc/self/clear_refs").write_text("5")  # The most begins anew.
    before, sent = _memory("VmRSS"), server.counter().total()
    cpu, began = time.process_time(), time.monotonic()
    ACTS[act](table)
    seconds, spent = time.monotonic() - began, time.process_time() - cpu
    peak = _memory("VmHWM") - before
    sink.send(ActCost(server.counter().total() - sent, seconds, spent, peak))


def measured(act: str, server: S3Server) -> ActCost:
    """Measure an act in a process of its own."""
    context = multiprocessing.get_context("spawn")
    source, sink = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(act, server, sink))
    process.start()
    sink.close()
    cost = source.recv()
    process.join()
    return cost


def page(costs: dict[str, ActCost], files: int, commits: int) -> str:
    """The table, as docs/performance.md has it."""
    lines = [
        f"{files:,} files in {commits:,} commits over {PARTITIONS} partitions, {SINCE} entries "
        f"after the checkpoint, on {os.cpu_count()} cores.",
        "",
        "| | requests | seconds | of CPU | MB at the most |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {act} | {it.requests} | {it.seconds:.2f} | {it.cpu:.2f} | {it.peak / 1e6:.0f} |"
        for act, it in costs.items()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=5_000)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    store = made(given.files, given.commits)
    with running() as server:
        upload(store, server.client(), given.commits - SINCE)
        del store
        costs = {act: measured(act, server) for act in ACTS}
    text = page(costs, given.files, given.commits)
    print(text)
    if given.write:
        pages = _CHECKOUT / "docs/performance.md"
        pages.write_text(between(pages.read_text("utf-8"), "large log", text), "utf-8")


if __name__ == "__main__":
    main()

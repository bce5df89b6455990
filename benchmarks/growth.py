"""How a table's records grow: bytes, requests and memory, on a store in memory; ``make growth``
writes it into docs/performance.md::

    PYTHONPATH=tests:. .venv/bin/python benchmarks/growth.py

Times are those of 32 connections whose every answer is 30 ms late, and of CPU; nothing
waits for real. Four minutes, and 700 MB of memory, nearly all of it the store's;
``--files 10000`` makes a smaller table.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from docs.extensions.tables import between
from support.memory_store import ManualClock, MemoryStore, StoredObject
from support.protocol import ROOT, memory_table
from support.virtual_time import TickingDriver, TickingWorld
from zero_rename import Table
from zero_rename.committer.commit.state.heads import read_head
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.format.records.head import Slot
from zero_rename.committer.format.records.pending_file import PendingFile
from zero_rename.committer.upkeep.gc.collect import gc

_CHECKOUT = Path(__file__).resolve().parent.parent
DAY = 24 * 3600.0
LATENCY = 0.03
OWNER = Owner("flights_daily", "scheduled__2026-01-01T00:00:00+00:00", "load", -1, 1, "app", "host")


@dataclass
class Cost:
    """What something came to.

    :param seconds: of waiting for the store, and of CPU.
    :param peak: bytes of memory at the most, of this process, besides what was there.
    """

    requests: int = 0
    seconds: float = 0.0
    peak: int = 0


def bounded(file: PendingFile) -> PendingFile:
    """The file with bounds of eight columns, as a task of the flights has them: of numbers, moments
    and texts, other ones in each file."""
    seed = int(file.checksum[-12:], 16)
    first = 1_767_225_600_000_000 + seed % 10**14
    parts = [
        f"flight_id=i{seed % 10**9},{seed % 10**9 + 1000}",
        f"scheduled_at=z{first},{first + 86_000_000_000}",
        f"departed_at=z{first + 60_000_000},{first + 88_000_000_000},{seed % 7}",
        f"origin=s{'ABCDE'[seed % 5]}BQ,Y{'UVWXY'[seed % 5]}M",
        f"destination=sABE,{'XYZ'[seed % 3]}NA",
        f"tail=sN{seed % 1000:03}AA,N{seed % 1000:03}ZW,{seed % 11}",
        f"delay=i-{seed % 60},{seed % 1500},{seed % 7}",
        f"price=d{seed % 90}.50,{seed % 3000}.99",
    ]
    return replace(file, summary="&".join(parts))


class GrowingTable(TickingWorld):
    """A table whose jobs come an hour apart."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(MemoryStore(clock=self.clock))

    def append(self, *partitions: str, files: int = 1) -> int:
        """How many requests a job sends."""
        self.clock.advance(3600)
        self.driver.requests.clear()
        opened = self.open(owner=OWNER)
        results = [self.write(opened, *partitions, task=task, rows=1000) for task in range(files)]
        self.commit(opened, *(replace(it, files=tuple(map(bounded, it.files))) for it in results))
        return len(self.driver.requests)

    def maintain(self) -> None:
        """gc two times, a day apart, and the index: lists that were named until the first one go
        with the second."""
        for _ in range(2):
            self.clock.advance(8 * DAY)
            self.driver.run(gc(self.context, apply=True))
        self.write_index()

    def control(self) -> Counter[str]:
        """Bytes of the records, by folder."""
        sizes: Counter[str] = Counter()
        for key in self.store.keys(ROOT.control_prefix):
            folder = key.removeprefix(ROOT.control_prefix).split("/")[0]
            sizes[folder] += len(self.store.objects[key].body)
        return sizes

    def head_manifests(self, partition: str) -> int:
        """How many lists of files a head names."""
        state = self.driver.run(read_head(self.context, Slot.partition(ROOT, partition)))
        return len(state.head.manifests)

    @contextmanager
    def measured(self) -> Iterator[Cost]:
        cost = Cost()
        self.driver.requests.clear()
        tick, before = self.driver.now, time.process_time()
        yield cost
        cost.requests = len(self.driver.requests)
        cost.seconds = time.process_time() - before + (self.driver.now - tick) * LATENCY


def opened(table: GrowingTable) -> Cost:
    """What a reader pays for the whole table."""
    with table.measured() as cost:
        table.snapshot()
    tracemalloc.start()
    table.snapshot()
    cost.peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return cost


def mean(costs: Sequence[int]) -> float:
    return sum(costs) / len(costs)


def many_partitions(jobs: int, partitions: int) -> None:
    table = GrowingTable()
    names = [f"day=2026-{n // 31 + 1:02}-{n % 31 + 1:02}" for n in range(partitions)]
    costs = [table.append(names[n % partitions]) for n in range(jobs)]
    before, loaded = table.control(), opened(table)
    table.maintain()
    after, maintained = table.control(), opened(table)
    later = [table.append(names[n]) for n in range(100)]
    with_moved = opened(table)
    print(f"### {jobs:,} appends of one file over {partitions} partitions\n")
    print("| | after the jobs | after maintenance |")
    print("|---|---:|---:|")
    for folder in sorted(before | after):
        print(f"| bytes of `{folder}` | {before[folder]:,} | {after[folder]:,} |")
    whole = (sum(before.values()), sum(after.values()))
    print(f"| **bytes a file** | {whole[0] / jobs:,.0f} | **{whole[1] / jobs:,.0f}** |")
    print(f"| requests of a reader that opens it | {loaded.requests} | **{maintained.requests}** |")
    print(f"| its seconds | {loaded.seconds:.2f} | {maintained.seconds:.2f} |")
    print()
    print("| requests of an append, mean | |\n|---|---:|")
    print(f"| the first hundred, without the very first | {mean(costs[1:100]):.1f} |")
    print(f"| the last hundred | {mean(costs[-100:]):.1f} |")
    print(f"| a hundred after maintenance | {mean(later):.1f} |")
    print(f"\nA reader after these hundred: {with_moved.requests} requests.\n")


def one_partition(jobs: int) -> None:
    print(f"### {jobs:,} appends of one file to one partition\n")
    print(
        "| appends | bytes of records a file | lists of files that the head names | "
        "bytes of all lists ever written, a file |"
    )
    print("|---:|---:|---:|---:|")
    table = GrowingTable()
    written = 0
    known: set[str] = set()
    for number in range(1, jobs + 1):
        table.append("day=2026-01-01")
        for key in set(table.store.keys(ROOT.manifests_prefix)) - known:
            known.add(key)
            written += len(table.store.objects[key].body)
        if number in (jobs // 10, jobs // 2, jobs):
            size, named = sum(table.control().values()), table.head_manifests("day=2026-01-01")
            print(f"| {number:,} | {size / number:,.0f} | {named} | {written / number:,.0f} |")
    table.maintain()
    size, named = sum(table.control().values()), table.head_manifests("day=2026-01-01")
    print(f"| after maintenance | {size / jobs:,.0f} | {named} | |\n")


def large_table(files: int, partitions: int) -> None:
    table = GrowingTable()
    names = [f"day={n:05}" for n in range(partitions)]
    jobs = 5
    for _ in range(jobs):
        table.append(*names, files=files // partitions // jobs)
    table.maintain()
    cost = opened(table)
    control = table.control()
    with table.measured() as some:
        table.snapshot(names[100:110])
    print(f"### {files:,} files in {partitions:,} partitions\n")
    print("| | |\n|---|---:|")
    print(f"| bytes of records a file | {sum(control.values()) / files:,.0f} |")
    print(f"| requests of a reader that opens the whole table | {cost.requests} |")
    print(f"| its seconds | **{cost.seconds:.2f}** |")
    print(f"| its memory at the most, MB | {cost.peak / 1e6:.0f} |")
    print(f"| requests of a reader of ten partitions | {some.requests} |")
    print()


def dead_jobs(count: int) -> None:
    """Jobs that died while they wrote, each with an upload."""
    table = GrowingTable()
    table.append("day=1")
    for _ in range(count):
        opened_job = table.open(owner=OWNER)
        table.write(opened_job, "day=1")
    with table.measured() as beside:
        table.append("day=1")
    with table.measured() as cost:
        table.recover(patience=0.0)
    left = len(table.store.upload_keys())
    print(f"### {count} jobs that died while they wrote\n")
    print("| | requests | seconds |\n|---|---:|---:|")
    print(f"| an append beside them | {beside.requests} | {beside.seconds:.1f} |")
    print(f"| recovery of all, {left} uploads left | {cost.requests:,} | {cost.seconds:.1f} |\n")


class ForeignFolder:
    """A folder of files that another program wrote, each of 1 MB."""

    def __init__(self, files: int, partitions: int) -> None:
        target = io.BytesIO()
        texts = [os.urandom(16) for _ in range(65_536)]
        pq.write_table(pa.table({"id": range(65_536), "text": texts}), target)
        body = target.getvalue()
        # One object stands for the bytes of all: the store's memory is not to be measured.
        made = StoredObject(body, f'"{hashlib.md5(body).hexdigest()}"', time.time())
        self._store = MemoryStore()
        for number in range(files):
            key = f"{ROOT.prefix}/day={number % partitions}/f{number:05}.parquet"
            self._store.objects[key] = made
        self._driver = TickingDriver(self._store)

    @property
    def table(self) -> Table:
        """Open the table as a process that has read nothing yet."""
        table = memory_table(self._store)
        table.driver = self._driver  # type: ignore[assignment]
        return table

    def cost(self, work: Callable[[Table], object]) -> Cost:
        self._driver.requests.clear()
        tick, before = self._driver.now, time.process_time()
        work(self.table)
        seconds = time.process_time() - before + (self._driver.now - tick) * LATENCY
        return Cost(len(self._driver.requests), seconds)


def foreign_files(counts: Sequence[int], partitions: int) -> None:
    """Measure reading, adopting and appending to folders of another program's files."""
    print(f"### Files of another program in {partitions} partitions\n")
    print(
        "Each footer is read once, by one ranged GET of the file's end, also where `adopt` has "
        "found the columns before it adopts.\n"
    )
    print("| files | | requests | seconds | MB at the most |\n|---:|---|---:|---:|---:|")
    for count in counts:
        folder = ForeignFolder(count, partitions)
        read = folder.cost(lambda table: table.schema)
        tracemalloc.start()
        folder.cost(lambda table: table.schema)
        read.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        adopted = folder.cost(lambda table: table.adopt(apply=True))
        later = folder.cost(_append_row)
        print(
            f"| {count:,} | columns of the folder | {read.requests:,} | {read.seconds:.1f} "
            f"| {read.peak / 1e6:.0f} |"
        )
        print(f"| | `adopt --apply` | {adopted.requests:,} | {adopted.seconds:.1f} | |")
        print(f"| | an append later | {later.requests:,} | {later.seconds:.1f} | |")
    print()


def _append_row(table: Table) -> None:
    with table.job() as job:
        job.write(pa.table({"id": [1], "text": [b"x"], "day": [0]}, schema=job.opened.schema))


_HEAD = """\
`make growth` writes this part (`benchmarks/growth.py`): requests and bytes are counted on a store
in memory, with the very code that boto3 carries out. Seconds are those of 32 connections whose
answers come 30 ms late, and of CPU on the machine that wrote the page; memory is what Python's
allocations came to at the most. Each file has bounds of eight columns on record. What the records
are is told in [protocol.md](protocol.md), *Records that stay small*.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=100_000, help="of the large table")
    parser.add_argument("--write", action="store_true", help="docs/performance.md, not the screen")
    given = parser.parse_args()
    page = _CHECKOUT / "docs" / "performance.md"
    told = io.StringIO()
    with redirect_stdout(told) if given.write else nullcontext():
        print(_HEAD)
        many_partitions(1100, 365)
        one_partition(1100)
        large_table(given.files, given.files // 20)
        dead_jobs(300)
        foreign_files((1_000, 10_000), 100)
    if given.write:
        text = between(page.read_text("utf-8"), "growth", told.getvalue().rstrip())
        page.write_text(text, "utf-8")


if __name__ == "__main__":
    main()

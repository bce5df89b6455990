"""Protocol steps on a store in memory, with data files of a few bytes: no Parquet needed."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from support.faults import Crash, on
from support.memory_store import Fault, ManualClock, MemoryDriver, MemoryStore
from support.no_columns import no_columns
from zero_rename.committer.commit.commit import abort_job, commit_job
from zero_rename.committer.commit.index.write_index import write_index
from zero_rename.committer.commit.open import open_job
from zero_rename.committer.commit.snapshot import Snapshot, take_snapshot
from zero_rename.committer.commit.state.context import Context
from zero_rename.committer.commit.state.heads import list_heads_and_index
from zero_rename.committer.commit.state.job_state import Committed, OpenedJob
from zero_rename.committer.format.job_spec import JobSpec, Mode
from zero_rename.committer.format.layout import TableRoot, job_ids_begin
from zero_rename.committer.format.records.pending_file import PendingFile, TaskResult
from zero_rename.committer.store.requests import (
    CompleteUpload,
    CreateUpload,
    Done,
    ObjectSettings,
    Step,
    UploadPart,
)
from zero_rename.committer.table import Table
from zero_rename.committer.upkeep.purging.purge import purge
from zero_rename.committer.upkeep.recovery import recover

ROOT = TableRoot("bucket", "flights")
SCHEMA = pa.schema([("value", pa.int64()), ("day", pa.int32())])
DAY1, DAY2, DAY3 = "day=1", "day=2", "day=3"


def write_file(
    opened: OpenedJob, partition: str, number: int = 0, task: int = 0, rows: int = 1
) -> Step[PendingFile]:
    """One file, as a task leaves it: create, one part, no complete."""
    body = f"{rows} rows of {opened.job} {number}".encode()
    settings = ObjectSettings({"zero-rename-job": opened.job})
    key = opened.root.data_key(partition, task, opened.job, number)
    upload_id = (yield from CreateUpload(key, settings)).upload_id
    part = yield from UploadPart(key, upload_id, 1, body)
    assert isinstance(part, Done)
    checksum = f"sha256:{hashlib.sha256(body).hexdigest()}"
    return PendingFile(key, partition, upload_id, (part.etag,), len(body), rows, checksum)


def write_task(
    opened: OpenedJob, partitions: Sequence[str], task: int = 0, rows: int = 1
) -> Step[TaskResult]:
    """A task attempt with one file in each of ``partitions``."""
    files = []
    for number, partition in enumerate(partitions):
        files.append((yield from write_file(opened, partition, number, task, rows)))
    return TaskResult(opened.job, task, 0, tuple(files))


class World:
    """A table on a store in memory."""

    def __init__(self, store: MemoryStore | None = None, **facts: Any) -> None:
        self.store = store if store is not None else MemoryStore()
        self.driver = MemoryDriver(self.store)
        self.context = Context(ROOT, read_columns=no_columns)

    def open(self, mode: Mode = Mode.APPEND, **policy: Any) -> OpenedJob:
        policy.setdefault("partition_by", ("day",))
        schema = policy.pop("schema", SCHEMA)
        return self.driver.run(open_job(self.context, JobSpec(schema, mode, **policy)))

    def write(
        self, opened: OpenedJob, *partitions: str, task: int = 0, rows: int = 1
    ) -> TaskResult:
        return self.driver.run(write_task(opened, partitions, task, rows))

    def commit(self, opened: OpenedJob, *results: TaskResult) -> Committed:
        return self.driver.run(commit_job(self.context, opened, results))

    def abort(self, opened: OpenedJob, *results: TaskResult) -> Any:
        return self.driver.run(abort_job(self.context, opened, results))

    def written(
        self, *partitions: str, mode: Mode = Mode.APPEND, rows: int = 1, **policy: Any
    ) -> tuple[OpenedJob, TaskResult]:
        """An open job, and what its task reports: one file in each of ``partitions``."""
        opened = self.open(mode, **policy)
        return opened, self.write(opened, *partitions, rows=rows)

    def load(self, *partitions: str, **options: Any) -> Committed:
        """A whole job, as :meth:`written`."""
        return self.commit(*self.written(*partitions, **options))

    def advance(self, seconds: float) -> None:
        """Let so much time pass by the store's clock, which has to be a manual one."""
        assert isinstance(self.store.clock, ManualClock)
        self.store.clock.advance(seconds)

    def date_jobs(self) -> None:
        """Let the ids of jobs begin with the store's time, in the order in which they are made."""
        numbers = itertools.count()

        def job_id() -> str:
            return f"{job_ids_begin(self.store.clock(), 10)}{next(numbers):016d}"

        self.context = replace(self.context, job_id=job_id)

    def recover(self, patience: float | None = None):
        return self.driver.run(recover(self.context, patience))

    def purge(self, apply: bool = True, **options: Any):
        return self.driver.run(purge(self.context, apply=apply, **options))

    def snapshot(self, partitions: Sequence[str] | None = None) -> Snapshot:
        return self.driver.run(take_snapshot(self.context, partitions))

    def write_index(self) -> bool:
        def listed() -> Step[bool]:
            listing = yield from list_heads_and_index(self.context)
            return (yield from write_index(self.context, listing))

        return self.driver.run(listed())

    def jobs_of(self, partition: str) -> list[str]:
        """The jobs whose files readers through the heads see, in order."""
        return [file.job for file in self.snapshot([partition]).files]

    def listed(self, partition: str) -> list[str]:
        """The data files that readers who list see."""
        prefix = ROOT.partition_prefix(partition)
        return [
            key
            for key in self.store.keys(prefix)
            if not key.removeprefix(prefix).startswith(("_", "."))
        ]

    def assert_clean(self) -> None:
        """Nothing is left to do: no open record, no upload, no claim."""
        assert self.store.keys(ROOT.open_prefix) == []
        assert self.store.upload_keys() == []
        heads = [key for key in self.store.keys(ROOT.heads_prefix) if key != ROOT.index_key]
        for key in (*heads, *self.store.keys(ROOT.runs_prefix)):
            assert b'"claim":null' in self.store.objects[key].body

    def with_context(self, **changes: Any) -> World:
        """The same store seen by another process."""
        other = World(self.store)
        other.context = replace(self.context, **changes)
        return other


def rows_by_partition(committed: Committed) -> Mapping[str, int]:
    return {change.partition: change.rows for change in committed.partitions}


def memory_table(store: MemoryStore, url: str = ROOT.url) -> Table:
    """A table as users meet it, on a store in memory; each one is another process."""
    table = Table(url)
    table.driver = MemoryDriver(store)  # type: ignore[assignment]
    return table


def put_rows(
    table: Table, schema: pa.Schema, rows: list[dict[str, Any]], **policy: Any
) -> Committed | None:
    """Write rows by one job."""
    with table.job(schema, **policy) as job:
        job.write(pa.Table.from_pylist(rows, schema))
    return job.committed


def die_of(fault: Fault, world: World, opened: OpenedJob, *results: TaskResult) -> None:
    """Commit, and die of a fault; the world's driver works again afterwards."""
    world.driver.fault = fault
    with pytest.raises(Crash):
        world.commit(opened, *results)
    world.driver.fault = None


def die_before_applying(world: World, opened: OpenedJob, result: TaskResult) -> None:
    """Commit, and die with the decision written and no file complete."""
    die_of(on(CompleteUpload, Crash), world, opened, result)

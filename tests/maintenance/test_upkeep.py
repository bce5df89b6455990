"""Upkeep of a table: what it is told to do, it does in this order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from support.day_rows import load
from support.faults import on
from support.memory_store import Fault, ManualClock, MemoryStore
from support.old_records import gc_of_all
from support.protocol import memory_table
from support.s3a_jobs import ROOT, MagicJob
from zero_rename.committer import GcReport, JobSpec, PurgeAction, Table
from zero_rename.committer.errors import StoreRefusedError, UnfinishedCommitError
from zero_rename.committer.store.requests import (
    AbortUpload,
    CreateUpload,
    Deleted,
    DeleteMany,
    Put,
    Unknown,
)
from zero_rename.maintenance.destinations import Destination, destination_at, destinations_in
from zero_rename.maintenance.purging import PurgedEntry, PurgeOrder
from zero_rename.maintenance.upkeep import as_markdown, look_after

DAY = 24 * 3600.0
DATA = pa.table({"value": [1, 2, 3], "day": [1, 1, 2]})


class OldTable(Table):
    """A table whose records are all old."""

    def gc(self, older_than: float = 0.0, apply: bool = False) -> GcReport:
        return gc_of_all(self, apply)


def test_old_records_are_made_small_and_the_index_says_so(s3_bucket: Any) -> None:
    table = OldTable(f"s3://{s3_bucket.name}/flights")
    with table.job(DATA.schema, partition_by=["day"]) as job:
        job.write(DATA)
    place = Destination(table.root, is_table=True)
    planned = look_after(table, place, PurgeOrder())
    assert planned.records == {"would-be-folded": 2, "would-be-condensed": 1}
    done = look_after(table, place, PurgeOrder(apply=True))
    assert done.records == {"folded": 2, "condensed": 1}
    assert "1 condensed, 2 folded" in as_markdown([done], applied=True)
    assert (done.person, done.again, done.findings) == ([], [], {})
    assert sum(file.rows for file in table.snapshot().files) == 3
    parts = [key for key in s3_bucket.keys("flights/_zero_rename/index/")]
    assert len(parts) == 1


def test_first_job_that_died_is_settled_and_no_table_is_missed(s3_bucket: Any) -> None:
    table = Table(f"s3://{s3_bucket.name}/flights")
    dead = table.open_job(JobSpec(DATA.schema, max_duration=1000.0))
    place = Destination(table.root, is_table=True)
    for apply in (False, True):
        done = look_after(table, place, PurgeOrder(apply=apply, patience=0.0))
        assert done.jobs == {"aborted" if apply else "would-abort": 1}
        assert (done.person, done.again, done.notes) == ([], [], [])
    assert table.is_closed(dead.job)


def test_table_whose_record_is_gone_needs_a_person_and_is_not_passed_over() -> None:
    store = MemoryStore()
    table = memory_table(store, ROOT.url)
    load(table, 1)
    del store.objects[ROOT.table_key]
    top = memory_table(store, f"s3://{ROOT.bucket}/wh")
    below = {it.root: it for it in top.run(destinations_in(top.root))}
    for place in (table.run(destination_at(ROOT)), below[ROOT]):
        done = look_after(table, place, PurgeOrder(apply=True, foreign_age=DAY))
        assert done.kind == "table"
        assert any("table.json is gone" in why for why in done.person)


DENIED = StoreRefusedError("The credentials lack a right.", lacks_right=True)


def old(store: MemoryStore, url: str) -> Table:
    """A table with an upload of a closed job, and an old record."""
    table = memory_table(store, url)
    load(table, 1)
    (file,) = table.files()
    store.apply(CreateUpload(file.key.replace("-0000.parquet", "-0009.parquet")))
    store.apply(Put(f"{table.root.failures_prefix}run.json", b"{}"))
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(30 * DAY)
    return table


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        (on(AbortUpload, DENIED), "lack a right"),
        (on(DeleteMany, Deleted({f"{ROOT.failures_prefix}run.json": "AccessDenied"})), "run.json"),
    ],
    ids=["abort", "removal"],
)
def test_right_that_is_missing_needs_a_person(fault: Fault, part: str) -> None:
    table = old(MemoryStore(), ROOT.url)
    table.driver.fault = fault  # type: ignore[attr-defined]
    done = look_after(table, table.run(destination_at(ROOT)), PurgeOrder(apply=True))
    assert done.again == []
    assert done.person
    assert all(part in why for why in done.person)


def test_denial_is_not_read_from_the_text_of_a_reason() -> None:
    reason = "of a job that failed (AccessDenied); it is still listed (503 SlowDown)"
    entry = PurgedEntry("flights/a", "1", "", 0.0, 0.0, None, PurgeAction.FAILED, reason)
    assert not entry.is_denied


def test_files_that_nobody_may_delete_need_a_person() -> None:
    store = MemoryStore()
    table = memory_table(store, ROOT.url)
    load(table, 1)
    (file,) = table.files()
    table.driver.fault = on(DeleteMany, Deleted({file.key: "AccessDenied"}))  # type: ignore[attr-defined]
    with pytest.raises(UnfinishedCommitError):
        load(table, 2, mode="replace")
    done = look_after(table, table.run(destination_at(ROOT)), PurgeOrder(apply=True))
    assert done.jobs == {"failed": 1}
    assert done.again == []
    assert "AccessDenied" in done.person[0]


def test_store_that_is_too_busy_is_asked_again_by_the_next_run() -> None:
    table = old(MemoryStore(), ROOT.url)
    table.driver.fault = on(AbortUpload, Unknown("503 SlowDown"))  # type: ignore[attr-defined]
    done = look_after(table, table.run(destination_at(ROOT)), PurgeOrder(apply=True))
    assert done.person == []
    assert "503 SlowDown" in done.again[0]


def test_job_of_hadoops_that_lacks_a_right_needs_a_person() -> None:
    store = MemoryStore()
    table = memory_table(store, ROOT.url)
    MagicJob(table.driver.perform, ROOT).begin().task(1)
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(2 * DAY)
    table.driver.fault = on(AbortUpload, DENIED)  # type: ignore[attr-defined]
    place = table.run(destination_at(ROOT))
    done = look_after(table, place, PurgeOrder(apply=True, s3a_patience=DAY))
    assert done.jobs == {"failed": 1}
    assert done.again == []
    assert done.person

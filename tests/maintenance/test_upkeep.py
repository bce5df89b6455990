"""Upkeep of a table: what it is told to do, it does in this order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from support.day_rows import load
from support.memory_store import MemoryStore
from support.old_records import gc_of_all
from support.protocol import memory_table
from support.s3a_jobs import ROOT
from zero_rename.committer import GcReport, JobSpec, Table
from zero_rename.maintenance.destinations import Destination, destination_at, destinations_in
from zero_rename.maintenance.purging import PurgeOrder
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

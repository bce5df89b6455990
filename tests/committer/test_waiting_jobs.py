"""Jobs of plain Python and of ``save()`` that wait for other runs of their partitions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.pauses import Pauses
from zero_rename import Table
from zero_rename.committer import CommitConflictError, InvalidInputError
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.write_job import WriteJob
from zero_rename.spark.write_target import resolve

pytestmark = [pytest.mark.memory_s3]
HOUR = timedelta(hours=1)
COLUMNS = pa.schema([("day", pa.string()), ("delay", pa.int64())])


@pytest.fixture
def table(s3_bucket: Bucket) -> Table:
    made = Table(f"s3://{s3_bucket.name}/flights")
    write(job_of(made, "1"), 1)
    return made


def job_of(table: Table, day: str, **options: Any) -> WriteJob:
    named: dict[str, Any] = {"mode": "overwrite", "replace_partitions": [f"day={day}"]}
    return table.job(COLUMNS, partition_by=["day"], **{**named, **options})


def write(job: WriteJob, *delays: int, day: str = "1") -> None:
    with job:
        job.write(pa.table({"day": [day] * len(delays), "delay": delays}, schema=COLUMNS))


def delays(table: Table) -> list[int]:
    return sorted(table.to_arrow()["delay"].to_pylist())


def test_the_later_job_waits_and_loads_on_top(table: Table, pauses: Pauses) -> None:
    other = job_of(table, "1")
    other.__enter__()
    other.write(pa.table({"day": ["1"], "delay": [2]}, schema=COLUMNS))
    seen = pauses(lambda: other.__exit__(None, None, None))
    write(job_of(table, "1", wait_for_other_runs=HOUR), 3)
    assert seen == [10.0]
    assert delays(table) == [3]
    assert other.committed is not None


def test_a_job_of_another_partition_does_not_wait(table: Table, pauses: Pauses) -> None:
    seen = pauses(lambda: None)
    with job_of(table, "1"):
        write(job_of(table, "2", wait_for_other_runs=HOUR), 3, day="2")
    assert seen == []
    assert delays(table) == [3]


def test_two_appends_do_not_wait_for_each_other(table: Table, pauses: Pauses) -> None:
    seen = pauses(lambda: None)
    appends: dict[str, Any] = {"mode": "append", "replace_partitions": None}
    with job_of(table, "1", **appends):
        write(job_of(table, "1", wait_for_other_runs=3600, **appends), 3)
    assert seen == []
    assert delays(table) == [1, 3]


def test_a_wait_that_was_too_short_is_a_conflict(table: Table, pauses: Pauses) -> None:
    pauses(lambda: None)
    other = job_of(table, "1")
    with other:
        job = job_of(table, "1", wait_for_other_runs=0.001)
        with pytest.raises(CommitConflictError, match="wait_for_other_runs=0 s"):
            write(job, 3)
        assert job.job is None
        other.write(pa.table({"day": ["1"], "delay": [2]}, schema=COLUMNS))
    assert delays(table) == [2]


def test_the_last_wins_after_a_wait_that_was_too_short(table: Table, pauses: Pauses) -> None:
    pauses(lambda: None)
    with job_of(table, "1") as other:
        other.write(pa.table({"day": ["1"], "delay": [2]}, schema=COLUMNS))
        last = job_of(table, "1", wait_for_other_runs=0.001, on_conflict="last_wins")
        last.__enter__()
        last.write(pa.table({"day": ["1"], "delay": [3]}, schema=COLUMNS))
    last.__exit__(None, None, None)
    assert delays(table) == [3]


@pytest.mark.parametrize("given", ["1h", -1, True, timedelta(seconds=-1)])
def test_what_is_no_duration_is_refused(table: Table, given: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"wait_for_other_runs=.* is not a duration"):
        job_of(table, "1", wait_for_other_runs=given)


def test_hadoops_committers_refuse_it_outside_an_operator() -> None:
    with pytest.raises(InvalidInputError, match="notices no other runs by itself"):
        resolve("s3://bucket/t", Handoff(), committer="magic", wait_for_other_runs=60)
    assert resolve("s3://bucket/t", Handoff(), wait_for_other_runs=60).wait_for_other_runs == 60

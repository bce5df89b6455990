"""Jobs of plain Python and of ``save()`` that wait for other runs of their partitions."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.pauses import Pauses
from zero_rename import Table
from zero_rename.committer import (
    CommitConflictError,
    InvalidInputError,
    OtherJobError,
    SupersededRunError,
)
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.run_rank import RunRank, RunRanks
from zero_rename.committer.write_job import WriteJob
from zero_rename.spark.write_target import resolve
from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.memory_s3]
HOUR = timedelta(hours=1)
COLUMNS = pa.schema([("day", pa.string()), ("delay", pa.int64())])
NUMBERS = pa.schema([("day", pa.int64()), ("delay", pa.int64())])


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
    return sorted(table.scan().to_arrow()["delay"].to_pylist())


def test_the_later_job_waits_and_loads_on_top(table: Table, pauses: Pauses) -> None:
    other = job_of(table, "1")
    other.__enter__()
    other.write(pa.table({"day": ["1"], "delay": [2]}, schema=COLUMNS))
    seen = pauses(lambda: other.__exit__(None, None, None))
    write(job_of(table, "1", wait_for_other_runs=HOUR), 3)
    assert seen == [10.0]
    assert delays(table) == [3]
    assert other.committed is not None


@pytest.mark.parametrize("kind", [Table, DeltaTable])
def test_job_that_has_waited_is_newer_than_the_jobs_that_it_waited_for(
    s3_bucket: Bucket, kind: Any, pauses: Pauses
) -> None:
    table = kind(f"s3://{s3_bucket.name}/{kind.__name__}")
    newest: dict[str, Any] = {"mode": "overwrite", "on_conflict": "newest_run"}
    write_numbers(table.job(NUMBERS, partition_by=["day"], **newest))
    other = table.job(NUMBERS, **newest)
    other.__enter__()

    def end_other_and_load_again() -> None:
        other.__exit__(None, None, None)
        time.sleep(0.01)  # Ids of jobs have milliseconds.
        write_numbers(table.job(NUMBERS, **newest), 2)
        time.sleep(0.01)

    pauses(end_other_and_load_again)
    waited = table.job(NUMBERS, wait_for_other_runs=HOUR, **newest)
    write_numbers(waited, 3)
    assert delays(table) == [3]


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


@pytest.mark.parametrize("kind", [Table, DeltaTable])
@pytest.mark.parametrize(("own", "others"), [("day=1", "day=01"), ("day=01", "day=1")])
def test_partition_that_the_other_job_spells_in_another_way_is_the_same(
    s3_bucket: Bucket, kind: Any, own: str, others: str
) -> None:
    table = kind(f"s3://{s3_bucket.name}/{kind.__name__}")
    write_numbers(table.job(NUMBERS, partition_by=["day"]))
    replaces: dict[str, Any] = {"mode": "overwrite"}
    other = table.job(NUMBERS, replace_partitions=[others], **replaces)
    with other:
        other.write(pa.table({"day": [1], "delay": [2]}, schema=NUMBERS))
        assert [it.job for it in table.rival_jobs([own], False)] == [other.job]
        assert table.rival_jobs(["day=2"], False) == []
        assert table.rival_jobs(["day=x"], False) == []
        if isinstance(table, Table):
            with pytest.raises(OtherJobError, match="may write day=1"):
                table.refuse_open_jobs("day=1")
        job = table.job(NUMBERS, replace_partitions=[own], wait_for_other_runs=0.001, **replaces)
        with pytest.raises(CommitConflictError, match="Another run is at work"):
            job.__enter__()


@pytest.mark.parametrize("kind", [Table, DeltaTable])
def test_ranks_count_in_partitions_that_they_spell_in_another_way(
    s3_bucket: Bucket, kind: Any
) -> None:
    table = kind(f"s3://{s3_bucket.name}/{kind.__name__}")
    newest: dict[str, Any] = {"mode": "overwrite", "on_conflict": "newest_run"}
    newer, older = (RunRanks({"day=01": RunRank.of(it)}) for it in (2, 1))
    write_numbers(table.job(NUMBERS, partition_by=["day"], run_rank=newer, **newest))
    assert table.newer_runs(["day=1"], older, replaces=True).keys() == {"day=1"}
    assert table.newer_runs(["day=1"], newer, replaces=True) == {}
    with pytest.raises(SupersededRunError):
        write_numbers(table.job(NUMBERS, run_rank=older, **newest), 7)
    write_numbers(table.job(NUMBERS, run_rank=RunRanks({"day=001": RunRank.of(3)}), **newest), 8)
    assert delays(table) == [8]


@pytest.mark.parametrize("kind", [Table, DeltaTable])
def test_rank_of_a_partition_that_the_table_cannot_have_is_refused(
    s3_bucket: Bucket, kind: Any
) -> None:
    table = kind(f"s3://{s3_bucket.name}/{kind.__name__}")
    write_numbers(table.job(NUMBERS, partition_by=["day"]))
    ranks = RunRanks({"month=1": RunRank.of(1)})
    with pytest.raises(InvalidInputError, match="month=1"):
        write_numbers(table.job(NUMBERS, run_rank=ranks, on_conflict="newest_run"))
    assert table.open_jobs() == []


def write_numbers(job: WriteJob, delay: int = 1) -> None:
    with job:
        job.write(pa.table({"day": [1], "delay": [delay]}, schema=NUMBERS))


@pytest.mark.parametrize("kind", [Table, DeltaTable])
def test_ranks_that_do_not_compare_name_the_partition(s3_bucket: Bucket, kind: Any) -> None:
    table = kind(f"s3://{s3_bucket.name}/{kind.__name__}")
    newest: dict[str, Any] = {"mode": "overwrite", "on_conflict": "newest_run"}
    write_numbers(table.job(NUMBERS, partition_by=["day"], run_rank=1, **newest))
    with pytest.raises(InvalidInputError, match="the rank of the rows in day=1 is 1: a time"):
        write_numbers(table.job(NUMBERS, run_rank="2026-01-01", **newest))
    assert delays(table) == [1]

"""Inputs of jobs in Delta tables: what each was computed from, and how long that is on record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.command_line import as_json
from zero_rename import Table
from zero_rename.committer import Content, FileOptions
from zero_rename.committer.format.records.inputs import Inputs, PartitionRead, content_of
from zero_rename.committer.scan.reads import forget_reads
from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.memory_s3]


@pytest.fixture(autouse=True)
def _nothing_read() -> Iterator[None]:
    forget_reads()
    yield
    forget_reads()


@pytest.fixture
def days(s3_bucket: Bucket) -> DeltaTable:
    return DeltaTable(f"s3://{s3_bucket.name}/days")


@pytest.fixture
def weeks(s3_bucket: Bucket) -> DeltaTable:
    return DeltaTable(f"s3://{s3_bucket.name}/weeks")


def load(table: DeltaTable | Table, day: int, *delays: int, **more: Any) -> str:
    data = pa.table({"day": [day] * len(delays), "delay": list(delays)})
    given: dict[str, Any] = {"mode": "overwrite", **more}
    with table.job(data.schema, partition_by=["day"], **given) as job:
        job.write(data)
    assert job.job is not None
    return job.job


def tables_of(inputs: Inputs) -> list[str]:
    return [it.table.rpartition("/")[2] for it in inputs.tables]


class TestRecorded:
    def test_a_job_is_made_of_what_its_process_has_read(
        self, days: DeltaTable, weeks: DeltaTable
    ) -> None:
        load(days, 1, 5)
        load(days, 2, 6)
        (total,) = days.scan(["day=2"]).to_arrow()["delay"].to_pylist()
        job = load(weeks, 1, total)
        (read,) = weeks.inputs_of(job).tables
        assert read.table == days.root.url
        content = content_of(days.state(["day=2"]).files)
        assert read.partitions == (PartitionRead("day=2", 1, content),)
        assert not read.whole

    def test_a_table_of_directories_is_made_of_a_delta_table(
        self, days: DeltaTable, s3_bucket: Bucket
    ) -> None:
        load(days, 1, 5)
        weeks = Table(f"s3://{s3_bucket.name}/weeks")
        job = load(weeks, 1, *days.scan().to_arrow()["delay"].to_pylist())
        (read,) = weeks.inputs_of(job).tables
        assert (read.table, read.whole) == (days.root.url, True)
        assert [it.partition for it in read.partitions] == ["day=1"]

    def test_stated_inputs_count_alone(
        self, days: DeltaTable, weeks: DeltaTable, s3_bucket: Bucket
    ) -> None:
        load(days, 1, 5)
        days.snapshot()
        s3_bucket.put("raw/1.csv", b"5")
        url = f"s3://{s3_bucket.name}/raw/1.csv"
        job = load(weeks, 1, 5, inputs=[url], code_version="4")
        inputs = weeks.inputs_of(job)
        assert ([it.url for it in inputs.files], inputs.tables) == ([url], ())
        assert inputs.code_versions == ("4",)
        assert inputs.began is not None

    def test_nothing_is_told_of_a_job_without_reads(self, days: DeltaTable) -> None:
        job = load(days, 1, 5)
        assert days.inputs_of(job) == Inputs()
        assert days.inputs_of("no-such-job") == Inputs()

    def test_a_job_that_is_published_later_tells_them(
        self, days: DeltaTable, weeks: DeltaTable
    ) -> None:
        load(days, 1, 5)
        days.snapshot()
        job = load(weeks, 1, 5, publish=False, code_version="4")
        assert weeks.inputs_of(job) == Inputs()
        weeks.publish(job)
        assert tables_of(weeks.inputs_of(job)) == ["days"]
        assert weeks.inputs_of(job).code_versions == ("4",)

    def test_inputs_of_a_later_version_that_cannot_be_read_are_unknown(
        self, days: DeltaTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "zero_rename.tables.delta_entry.tell_inputs", lambda _: {"inputs": {"tables": 5}}
        )
        assert days.inputs_of(load(days, 1, 5)) == Inputs()


class TestRowsOfOneJob:
    """They are no state: nothing that is there later can be held against them."""

    @pytest.mark.parametrize("stated", [True, False])
    def test_what_is_made_of_them_is_never_stale_and_not_all_told(
        self, days: DeltaTable, weeks: DeltaTable, stated: bool
    ) -> None:
        load(days, 1, 5)
        load(days, 2, 6)
        job = load(days, 3, 7, mode="append", publish=False)
        rows, beside = days.scan(job=job), days.scan(["day=1"])
        (delay,) = rows.to_arrow()["delay"].to_pylist()
        beside.to_arrow()
        told: dict[str, Any] = {"inputs": [rows, beside]} if stated else {}
        made = load(weeks, 1, delay, **told)
        inputs = weeks.inputs_of(made)
        assert [[it.partition for it in read.partitions] for read in inputs.tables] == [["day=1"]]
        assert not inputs.tables[0].whole
        assert inputs.partly
        days.publish(job)
        assert as_json("lineage", "stale", weeks.root.url) == []
        (found,) = as_json("lineage", "show", weeks.root.url)
        assert found["state"] == "unknown"
        assert found["why"] == ["of some of its rows it was not told what they were computed from"]

    def test_jobs_to_come_are_not_made_of_them_once_they_are_forgotten(
        self, days: DeltaTable, weeks: DeltaTable
    ) -> None:
        job = load(days, 3, 7)
        days.scan(job=job).to_arrow()
        load(weeks, 1, 1)
        days.scan(["day=3"]).to_arrow()
        forget_reads(before_last_job=True)
        assert not weeks.inputs_of(load(weeks, 2, 1)).partly


class TestRowsWrittenAgain:
    @pytest.fixture
    def made(self, days: DeltaTable, weeks: DeltaTable) -> DeltaTable:
        """A table of weeks, by two jobs."""
        load(days, 1, 5)
        load(weeks, 1, 5, inputs=[days.snapshot()], code_version="3")
        load(weeks, 1, 6, mode="append", inputs=[days.snapshot()], code_version="4")
        return weeks

    def test_a_compaction_keeps_the_inputs_of_all_its_rows(self, made: DeltaTable) -> None:
        load(made, 1, 7, mode="append", inputs=())
        (done,) = made.compact(apply=True)
        assert done.job is not None
        inputs = made.inputs_of(done.job)
        assert tables_of(inputs) == ["days"]
        assert inputs.code_versions == ("", "3", "4")
        assert inputs.partly

    def test_a_merge_adds_its_own(self, made: DeltaTable, s3_bucket: Bucket) -> None:
        other = DeltaTable(f"s3://{s3_bucket.name}/other")
        load(other, 1, 9)
        given = other.scan().to_arrow()
        done = made.merge(given, ["day", "delay"], code_version="5")
        assert done.committed is not None
        inputs = made.inputs_of(done.committed.job)
        assert {"days", "other"} <= set(tables_of(inputs))
        assert inputs.code_versions == ("3", "4", "5")

    def test_a_deletion_keeps_those_of_the_rows_that_stay(self, made: DeltaTable) -> None:
        done = made.delete([("delay", "=", 5)])
        assert done.committed is not None
        inputs = made.inputs_of(done.committed.job)
        assert tables_of(inputs) == ["days"]
        assert inputs.code_versions == ("3", "4")


class TestContentByRows:
    def test_the_same_rows_in_fewer_files_are_the_same_content(self, days: DeltaTable) -> None:
        files = FileOptions(content=Content.ROWS)
        for delay in (5, 6, 7):
            load(days, 1, delay, mode="append", files=files)
        before = content_of(days.state().files)
        assert before.startswith("rows:3:")
        (done,) = days.compact(apply=True)
        assert done.job is not None
        assert len(days.state().files) == 1
        assert content_of(days.state().files) == before

    def test_files_of_which_one_was_not_counted_by_rows_are_known_by_names(
        self, days: DeltaTable
    ) -> None:
        load(days, 1, 5, files=FileOptions(content=Content.ROWS))
        load(days, 1, 6, mode="append")
        assert content_of(days.state().files).startswith("bytes:")

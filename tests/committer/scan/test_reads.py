"""What a job's rows were computed from: on record with the job, and as long as its rows."""

from __future__ import annotations

import hashlib
import threading
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import Bucket

from support.old_records import gc_of_all
from zero_rename import Table
from zero_rename.committer import Content, FileOptions, InvalidInputError, JobSpec, TaskResultsError
from zero_rename.committer.commit.changes import compose_decision
from zero_rename.committer.format.parquet.row_content import RowContent
from zero_rename.committer.format.records.decision import CondensedDecision
from zero_rename.committer.format.records.inputs import (
    MOST_NAMED,
    UNKNOWN_INPUTS,
    Inputs,
    content_of,
)
from zero_rename.committer.format.row_changes import RowChanges
from zero_rename.committer.scan import reads
from zero_rename.committer.scan.reads import ReadLog

pytestmark = pytest.mark.memory_s3

BY_ROWS = FileOptions(content=Content.ROWS)


@pytest.fixture
def daily(s3_bucket: Bucket) -> Table:
    table = Table(f"s3://{s3_bucket.name}/daily")
    load(table, 1, 2, 3)
    return table


@pytest.fixture
def weekly(s3_bucket: Bucket) -> Table:
    return Table(f"s3://{s3_bucket.name}/weekly")


def load(table: Table, *days: int, x: int = 0, mode: str = "overwrite", **more: Any) -> str:
    rows = pa.table({"x": [x] * len(days), "day": list(days)})
    with table.job(rows.schema, partition_by=["day"], mode=mode, **more) as job:
        job.write(rows)
    assert job.job is not None
    return job.job


def told(table: Table, job: str) -> dict[str, dict[str, int]]:
    """Partitions and versions that a job has read, by table."""
    return {
        read.table.rpartition("/")[2]: {it.partition: it.version for it in read.partitions}
        for read in table.inputs_of(job).tables
    }


class TestWhatIsNoted:
    def test_a_process_that_reads_nothing_says_nothing(self, daily: Table) -> None:
        (job,) = {file.job for file in daily.files()}
        assert daily.inputs_of(job) == Inputs()

    def test_a_snapshot_and_a_scan_in_whatever_thread(self, daily: Table, weekly: Table) -> None:
        reading = threading.Thread(target=lambda: daily.snapshot(["day=1"]))
        reading.start()
        reading.join()
        daily.scan(["day=2"]).to_arrow()
        assert told(weekly, load(weekly, 1)) == {"daily": {"day=1": 1, "day=2": 1}}

    def test_what_was_asked_for(self, daily: Table, weekly: Table) -> None:
        daily.snapshot(["day=1", "day=9"])
        daily.scan(filter=pc.field("day") >= 3).to_arrow()
        (read,) = weekly.inputs_of(load(weekly, 1)).tables
        assert [it.partition for it in read.partitions] == ["day=1", "day=3"]
        assert (read.names, read.whole, len(read.filters)) == (("day=9",), False, 1)
        daily.to_arrow()
        (read,) = weekly.inputs_of(load(weekly, 1)).tables
        assert (len(read.partitions), read.whole) == (3, True)

    def test_of_states_that_were_read_in_turn_the_first_counts(
        self, daily: Table, weekly: Table
    ) -> None:
        daily.snapshot(["day=1"])
        load(daily, 1, inputs=())
        # That job has ended, so what is read again counts anew; what is not, as it was.
        daily.snapshot(["day=2"])
        assert told(weekly, load(weekly, 1))["daily"] == {"day=1": 1, "day=2": 1}
        daily.snapshot(["day=1"])
        daily.snapshot(["day=1"])
        assert told(weekly, load(weekly, 1))["daily"] == {"day=1": 2, "day=2": 1}

    @pytest.mark.parametrize("ends", ["refused", "aborted"])
    def test_state_read_again_after_a_job_that_came_to_nothing_counts_as_it_is_then(
        self, daily: Table, weekly: Table, ends: str
    ) -> None:
        daily.snapshot(["day=1"])
        opened = daily.open_job(JobSpec(pa.schema([("x", pa.int64()), ("day", pa.int64())])))
        if ends == "refused":
            with pytest.raises(TaskResultsError):
                daily.commit(opened, [], expected_tasks=1)
        else:
            daily.abort(opened)
        with pytest.MonkeyPatch.context() as elsewhere:
            elsewhere.setattr("zero_rename.committer.write_job.note_end", lambda: None)
            load(daily, 1, inputs=())
        daily.snapshot(["day=1"])
        assert told(weekly, load(weekly, 1))["daily"] == {"day=1": 2}

    def test_reads_of_two_logs_are_too_many_together(self, daily: Table, weekly: Table) -> None:
        load(weekly, 1)
        one, other = (ReadLog().read_state(it.state()) for it in (daily, weekly))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reads, "_MOST_TABLES", 1)
            both = one.beside(other)
        assert both.read_state(daily.state()).inputs == UNKNOWN_INPUTS

    def test_what_is_read_once_the_claims_begin_is_not_in_the_rows(
        self, daily: Table, weekly: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        daily.snapshot(["day=1"])

        def reading_first(*given: Any) -> Any:
            daily.snapshot(["day=2"])
            return compose_decision(*given)

        monkeypatch.setattr("zero_rename.committer.commit.commit.compose_decision", reading_first)
        assert told(weekly, load(weekly, 1)) == {"daily": {"day=1": 1}}

    def test_a_process_that_reads_very_many_tables_says_nothing(
        self, daily: Table, weekly: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reads, "_MOST_TABLES", 0)
        daily.snapshot()
        assert told(weekly, load(weekly, 1)) == {}

    def test_who_looks_after_a_table_reads_nothing(self, daily: Table, weekly: Table) -> None:
        daily.partitions()
        daily.files()
        daily.survey()
        daily.compact(apply=True)
        assert told(weekly, load(weekly, 1)) == {}


class TestWhatIsStated:
    def test_states_narrow_and_nothing_turns_it_off(self, daily: Table, weekly: Table) -> None:
        state = daily.snapshot(["day=1"])
        daily.snapshot(["day=2"])
        assert told(weekly, load(weekly, 1, inputs=[state])) == {"daily": {"day=1": 1}}
        assert weekly.inputs_of(load(weekly, 1, inputs=())) == Inputs()
        job = load(weekly, 1, inputs=[state, daily.scan(["day=3"])])
        assert told(weekly, job) == {"daily": {"day=1": 1, "day=3": 1}}

    def test_a_foreign_file(self, s3_bucket: Bucket, weekly: Table) -> None:
        s3_bucket.put("raw/x.csv", b"1,2")
        etag = hashlib.md5(b"1,2").hexdigest()
        url = f"s3://{s3_bucket.name}/raw/x.csv"
        (file,) = weekly.inputs_of(load(weekly, 1, inputs=[url])).files
        assert (file.url, file.etag) == (url, etag)
        with pytest.raises(InvalidInputError, match=r"raw/y\.csv is not there"):
            load(weekly, 1, inputs=[f"s3://{s3_bucket.name}/raw/y.csv"])

    @pytest.mark.parametrize(
        "url",
        [
            "s3://who:SECRET@lake/raw/x.csv",
            "s3://lake/raw/x.csv?X-Amz-Signature=SECRET",
            "https://who:SECRET@host/x.csv",
        ],
    )
    def test_a_password_is_kept_nowhere(
        self, s3_bucket: Bucket, weekly: Table, url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with pytest.raises(InvalidInputError) as refused:
            load(weekly, 1, inputs=[url])
        assert "SECRET" not in f"{refused.value} {caplog.text}"
        assert s3_bucket.keys() == []


class TestAsLongAsTheRows:
    def test_condensed_decisions_keep_it(
        self, s3_bucket: Bucket, daily: Table, weekly: Table
    ) -> None:
        daily.snapshot()
        first = load(weekly, 1)
        before = weekly.inputs_of(first)
        owner = weekly.owner_of(first)
        for _ in range(2):
            gc_of_all(weekly)
        assert CondensedDecision.is_one(s3_bucket.read(weekly.root.decision_key(first)))
        assert (weekly.inputs_of(first), weekly.owner_of(first)) == (before, owner)

    @pytest.mark.parametrize("content", Content)
    def test_a_compaction_takes_over(self, daily: Table, weekly: Table, content: Content) -> None:
        files = FileOptions(content=content)
        for day in ("day=1", "day=2"):
            load(weekly, 1, mode="append", files=files, inputs=[daily.snapshot([day])])
        before = content_of(weekly.files())
        (done,) = weekly.compact(apply=True)
        assert done.job is not None
        reads = weekly.inputs_of(done.job)
        assert [[it.partition for it in read.partitions] for read in reads.tables] == [
            ["day=1"],
            ["day=2"],
        ]
        assert not reads.partly
        assert (content_of(weekly.files()) == before) is (content is Content.ROWS)

    def test_rows_of_which_nothing_is_known_are_said_to_be_there(
        self, daily: Table, weekly: Table
    ) -> None:
        load(weekly, 1, mode="append", inputs=[daily.snapshot()])
        load(weekly, 1, mode="append", inputs=())
        (done,) = weekly.compact(apply=True)
        assert done.job is not None
        assert weekly.inputs_of(done.job).partly

    def test_an_undoing_takes_over(self, daily: Table, weekly: Table) -> None:
        load(weekly, 1, mode="append", inputs=[daily.snapshot(["day=1"])])
        added = load(weekly, 1, mode="append", inputs=[daily.snapshot(["day=2"])])
        undone = weekly.keep_rows("day=1", undo=added, apply=True)
        assert undone.job is not None
        assert told(weekly, undone.job) == {"daily": {"day=1": 1}}

    @pytest.mark.parametrize("content", Content)
    def test_a_merge_takes_over_and_adds_what_its_rows_come_of(
        self, daily: Table, weekly: Table, content: Content
    ) -> None:
        first = daily.snapshot(["day=1"])
        for day in (1, 2):
            load(weekly, day, files=FileOptions(content=content), inputs=[first])
        reads.forget_reads()
        assert weekly.merge(daily.to_arrow(partitions=["day=2"]), on=["day"]).committed is None
        rows = pa.table({"x": [7, 0], "day": [2, 2]})
        done = weekly.merge(rows, on=["x"])
        assert done.committed is not None
        assert done.rows == RowChanges(inserted=1, unchanged=1)
        # What it reads of its own table is what it is held against, and no input.
        inputs = weekly.inputs_of(done.committed.job)
        asked = [(it.table, [p.partition for p in it.partitions]) for it in inputs.tables]
        assert asked == [(daily.root.url, ["day=1"]), (daily.root.url, ["day=2"])]
        assert not inputs.partly
        (by,) = {bool(file.content) for file in weekly.files("day=2")}
        assert by is (content is Content.ROWS)

    def test_a_merge_into_nothing_has_what_it_reads_alone(
        self, daily: Table, weekly: Table
    ) -> None:
        rows = daily.to_arrow(partitions=["day=2"])
        done = weekly.merge(rows, on=["day"], partition_by=["day"])
        assert done.committed is not None
        assert told(weekly, done.committed.job) == {"daily": {"day=2": 1}}
        assert not weekly.inputs_of(done.committed.job).partly

    def test_a_merge_of_rows_that_nobody_read_says_that_some_are_not_known(
        self, daily: Table, weekly: Table
    ) -> None:
        load(weekly, 1, inputs=[daily.snapshot(["day=1"])])
        reads.forget_reads()
        done = weekly.merge(pa.table({"x": [7], "day": [1]}), on=["x"])
        assert done.committed is not None
        assert told(weekly, done.committed.job) == {"daily": {"day=1": 1}}
        assert weekly.inputs_of(done.committed.job).partly

    def test_a_deletion_takes_over_and_adds_nothing(self, daily: Table, weekly: Table) -> None:
        for x in (1, 2):
            load(weekly, 1, x=x, mode="append", inputs=[daily.snapshot(["day=1"])])
        daily.snapshot(["day=2"])
        done = weekly.delete(pc.field("x") == 1)
        assert done.committed is not None
        assert told(weekly, done.committed.job) == {"daily": {"day=1": 1}}
        assert not weekly.inputs_of(done.committed.job).partly


def test_many_partitions_are_a_digest(daily: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_NAMED == 1_000
    monkeypatch.setattr("zero_rename.committer.format.records.inputs.MOST_NAMED", 2)
    read = reads.read_of(daily.snapshot())
    assert (read.stated().more, read.stated().partitions, read.stated().whole) == (3, (), True)
    digest = read.stated().digest
    assert digest == reads.read_of(daily.snapshot()).stated().digest
    load(daily, 2, x=7, inputs=())
    assert digest != reads.read_of(daily.snapshot()).stated().digest


@pytest.mark.parametrize("bucket", ["lake", "My_Bucket", "a.b-c", "0"])
def test_file_in_a_bucket_of_any_valid_name_can_be_an_input(bucket: str) -> None:
    """Ceph's buckets may have capitals and underscores, like those of tables."""
    assert reads.place_of(f"s3a://{bucket}/raw/x.csv") == (bucket, "raw/x.csv")


@pytest.mark.parametrize("nested", [False, True])
def test_content_of_rows_stays_as_a_decimal_gets_a_wider_scale(nested: bool) -> None:
    texts = ["1.00", "-20.50", "0.00", "12345678901234567890123456789.01"]

    def content(kind: pa.DataType) -> str:
        values: list[Any] = [Decimal(it) for it in texts]
        made = (
            pa.array([[it] for it in values], pa.list_(kind)) if nested else pa.array(values, kind)
        )
        found = RowContent()
        found.add(pa.table({"x": made}))
        return found.digest

    narrow, wide, widest = pa.decimal128(31, 2), pa.decimal128(38, 7), pa.decimal256(76, 40)
    assert content(narrow) == content(wide) == content(widest)


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()], ids=str
)
def test_content_of_nested_rows_counts_times_that_python_lacks(kind: pa.DataType) -> None:
    """In the year 10000, and far beyond."""
    ten_thousand = 253_402_300_800_000_000 if pa.types.is_timestamp(kind) else 2_932_897

    def values(*numbers: int) -> pa.Array:
        whole = pa.int64() if pa.types.is_timestamp(kind) else pa.int32()
        return pa.array(numbers, whole).cast(kind)

    def content(times: pa.Array) -> str:
        lists = pa.ListArray.from_arrays(pa.array(range(len(times) + 1), pa.int32()), times)
        found = RowContent()
        found.add(pa.table({"x": lists, "m": pa.StructArray.from_arrays([times], names=["at"])}))
        return found.digest

    far, farther, near = ten_thousand, ten_thousand + 1, 0
    assert content(values(near, far)) == content(values(far, near))
    assert len({content(values(it)) for it in (near, far, farther)}) == 3

    def plus(*those: str) -> str:
        return f"{sum(int(it, 16) for it in those) % 2**64:016x}"

    assert content(values(near, far)) == plus(content(values(near)), content(values(far)))


class TestContent:
    """Of rows, whatever their order: an identical recompute is known by it."""

    ROWS = pa.table({"x": [1, 2, 3], "s": ["a", None, "c"], "day": [1, 1, 1]})

    def content(self, url: str, *parts: pa.Table, **options: Any) -> str:
        table = Table(url)
        files = FileOptions(content=Content.ROWS, **options)
        with table.job(parts[0].schema, partition_by=["day"], files=files) as job:
            for part in parts:
                job.write(part)
        return content_of(table.files())

    def test_order_split_codec_and_later_columns_do_not_count(self, s3_bucket: Bucket) -> None:
        url, rows = f"s3://{s3_bucket.name}/t", self.ROWS
        content = self.content(f"{url}1", rows)
        assert content.startswith("rows:3:")
        assert self.content(f"{url}2", rows.take([2, 0, 1]), compression="none") == content
        assert self.content(f"{url}3", rows[2:], rows[:2], rows_per_file=1) == content
        wider = rows.append_column("later", pa.nulls(3, pa.string()))
        assert self.content(f"{url}4", wider.select(["later", "s", "day", "x"])) == content

    @pytest.mark.parametrize(
        "other",
        [
            {"x": [1, 2, 2], "s": ["a", None, "c"]},
            {"x": [1, 2, 3], "s": ["a", "", "c"]},
            {"x": [2, 1, 3], "s": ["a", None, "c"]},
            {"x": [1, 2, 3, 3], "s": ["a", None, "c", "c"]},
            {"y": [1, 2, 3], "s": ["a", None, "c"]},
        ],
    )
    def test_other_rows_are_others(self, s3_bucket: Bucket, other: dict[str, list]) -> None:
        url = f"s3://{s3_bucket.name}/t"
        days = {"day": [1] * len(other["s"])}
        assert self.content(f"{url}1", self.ROWS) != self.content(f"{url}2", pa.table(other | days))

    def test_it_survives_folding_and_the_index(self, s3_bucket: Bucket) -> None:
        url = f"s3://{s3_bucket.name}/t"
        content = self.content(url, self.ROWS)
        table = Table(url)
        gc_of_all(table)
        assert content_of(table.files()) == content
        assert table.write_index()
        assert content_of(table.files()) == content

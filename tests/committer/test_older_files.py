"""A directory that had files before its first native job: nothing of them is hidden, the layout
on disk is the table's, and a job that fails leaves no table behind."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.memory_store import MemoryDriver
from zero_rename import Table
from zero_rename.committer import (
    DamagedError,
    DataFile,
    FindingKind,
    InvalidInputError,
    JobSpec,
    Mode,
    RefusedError,
    SnapshotGoneError,
    TableMismatchError,
    TableNotFoundError,
    readable_table,
)
from zero_rename.committer.format.schema.other_formats import FORMATS
from zero_rename.committer.store.requests import Delete, Put

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int32())])
BY_MONTH = pa.schema([("id", pa.int64()), ("month", pa.int32())])
BY_ID = pa.schema([("id", pa.int64())])
SEVERAL = ["not partitions of one table"]


class Directory:
    """A directory as Spark, Hive or Hadoop's committers leave it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = MemoryDriver()
        monkeypatch.setattr(readable_table, "connect", lambda bucket, client: self.driver)
        self.url = "s3://bucket/wh/flights"

    @property
    def table(self) -> Table:
        """As another process sees it: nothing is remembered."""
        return Table(self.url)

    def put(self, path: str, body: bytes = b"") -> str:
        key = f"wh/flights/{path}"
        self.driver.run(Put(key, body))
        return key

    def parquet(self, path: str, ids: list[Any], **more: Any) -> str:
        target = io.BytesIO()
        pq.write_table(pa.table({"id": ids, **more}), target)
        return self.put(path, target.getvalue())

    def load(self, ids: list[int], day: int, **policy: Any) -> None:
        policy = {"partition_by": ["day"], **policy}
        with self.table.job(SCHEMA, **policy) as job:
            job.write(pa.table({"id": ids, "day": [day] * len(ids)}, schema=SCHEMA))

    def ids(self, **options: Any) -> list[int]:
        return sorted(self.table.to_arrow(**options).column("id").to_pylist())

    def records(self) -> list[str]:
        """What this package wrote, decisions of aborted jobs aside."""
        keys = self.driver.store.keys("wh/flights/_zero_rename/")
        return [key for key in keys if "/_zero_rename/jobs/" not in key]

    def counts(self) -> dict[str, int]:
        """Requests since the last look."""
        counts = self.driver.counts()
        self.driver.requests.clear()
        return counts


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Directory:
    """Three days, ten rows each."""
    directory = Directory(monkeypatch)
    for day in (1, 2, 3):
        directory.parquet(f"day={day}/part-0.parquet", list(range(day * 10, day * 10 + 10)))
    return directory


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> Directory:
    return Directory(monkeypatch)


ALL = list(range(10, 40))


class TestReading:
    def test_a_first_job_that_fails_hides_nothing(self, older: Directory) -> None:
        def load() -> None:
            with older.table.job(SCHEMA, partition_by=["day"]) as job:
                job.write(pa.table({"id": [1], "day": [1]}, schema=SCHEMA))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            load()
        assert older.ids() == ALL
        assert not older.table.exists()
        assert older.records() == []

    def test_partitions_without_a_head_are_what_a_listing_shows(self, older: Directory) -> None:
        older.load([99], day=3)
        assert older.table.exists()
        assert older.ids() == [*ALL, 99]
        assert older.ids(partitions=["day=1"]) == list(range(10, 20))
        assert older.ids(partitions=["day=1", "day=3"]) == [*range(10, 20), *range(30, 40), 99]
        assert older.table.partitions() == ["day=1", "day=2", "day=3"]
        assert older.table.snapshot().versions == {"day=3": 1}

    def test_what_another_committer_loads_later_is_seen_too(self, older: Directory) -> None:
        older.load([99], day=3)
        older.parquet("day=4/part-0.parquet", [40])
        assert older.ids() == [*ALL, 40, 99]

    def test_a_replace_replaces_older_files_and_no_other_partition(self, older: Directory) -> None:
        older.load([99], day=1, mode="replace")
        assert older.ids() == [*range(20, 40), 99]

    def test_a_replace_of_the_table_replaces_all_of_them(self, older: Directory) -> None:
        older.parquet("day=4/part-0.parquet", ["another type"])
        older.load([99], day=1, mode="replace", replace_table=True)
        assert older.ids() == [99]
        older.table.write_index()
        older.counts()
        older.table.snapshot()
        assert older.counts()["ListObjects"] == 2

    def test_an_unpartitioned_directory(self, empty: Directory) -> None:
        empty.parquet("part-0.parquet", [1, 2])
        with pytest.raises(ZeroDivisionError), empty.table.job(BY_ID):
            raise ZeroDivisionError
        assert empty.ids() == [1, 2]
        with empty.table.job(BY_ID) as job:
            job.write(pa.table({"id": [3]}))
        assert empty.ids() == [1, 2, 3]

    def test_an_empty_job_hides_nothing(self, empty: Directory) -> None:
        empty.parquet("part-0.parquet", [1, 2])
        with empty.table.job(BY_ID):
            pass
        assert empty.ids() == [1, 2]

    def test_what_is_no_parquet_file_is_passed_over(self, older: Directory) -> None:
        older.put("day=1/")
        older.put("day=1_$folder$")
        older.put("day=1/empty.parquet")
        older.put("_SUCCESS", b"{}")
        older.load([99], day=3)
        older.load([98], day=1)
        assert older.ids() == [*ALL, 98, 99]

    def test_a_condition_is_asked_about_partitions_only(self, older: Directory) -> None:
        older.load([99], day=3)
        older.parquet("day=today/part-0.parquet", [1])

        class Early(Collection[str]):
            """As a filter of a data source: a collection that cannot be written out."""

            def __contains__(self, partition: object) -> bool:
                return int(str(partition).removeprefix("day=")) < 3

            def __iter__(self) -> Iterator[str]:
                return iter(())

            def __len__(self) -> int:
                return 0

        assert older.ids(partitions=Early()) == list(range(10, 30))

    def test_it_costs_one_listing_more_and_one_for_each_other_format(
        self, older: Directory
    ) -> None:
        older.load([99], day=3)
        older.counts()
        older.table.snapshot()
        assert older.counts() == {"ListObjects": 3 + len(FORMATS), "Get": 1 + 1 + 1}


class TestLayout:
    """The first job agrees with what is on disk, or nothing happens."""

    def refused(self, directory: Directory, schema: pa.Schema, **policy: Any) -> RefusedError:
        before = directory.records()
        with pytest.raises(RefusedError) as caught:
            directory.table.open_job(JobSpec(schema, **policy))
        assert directory.records() == before
        assert caught.value.remedy
        return caught.value

    def test_a_job_without_partition_by_takes_the_directory_s(self, older: Directory) -> None:
        older.load([99], day=3, partition_by=None)
        assert older.table.partition_by == ("day",)
        assert older.ids() == [*ALL, 99]

    @pytest.mark.parametrize(
        ("paths", "schema", "partition_by", "words"),
        [
            (["day=1/a.parquet"], BY_ID, None, ["partitioned by day"]),
            (["day=1/a.parquet"], BY_MONTH, "month", ["partitioned by day", "partitionBy='day'"]),
            (["part-0.parquet"], SCHEMA, "day", ["at its root"]),
            (["month=01/a.parquet"], BY_MONTH, "month", ["month=01", "month=1"]),
            (["day=today/a.parquet"], SCHEMA, "day", ["day=today"]),
            (["day=1/a.parquet", "month=1/b.parquet"], SCHEMA, "day", SEVERAL),
            (["day=1/a.parquet", "day=1/hour=2/b.parquet"], SCHEMA, "day", SEVERAL),
            (["day=1/HIVE_UNION_SUBDIR_1/a.parquet"], SCHEMA, "day", SEVERAL),
        ],
        ids=str,
    )
    def test_one_that_does_not(
        self,
        empty: Directory,
        paths: list[str],
        schema: pa.Schema,
        partition_by: str | None,
        words: list[str],
    ) -> None:
        for path in paths:
            empty.parquet(path, [1])
        error = self.refused(empty, schema, partition_by=partition_by and (partition_by,))
        assert [word for word in words if word not in str(error)] == []

    def test_other_partition_columns(self, older: Directory) -> None:
        error = self.refused(older, BY_MONTH, partition_by=("month",))
        assert isinstance(error, TableMismatchError)
        assert older.ids() == ALL

    def test_a_string_is_spelled_as_it_is(self, empty: Directory) -> None:
        empty.parquet("month=01/part-0.parquet", [1])
        schema = pa.schema([("id", pa.int64()), ("month", pa.string())])
        with empty.table.job(schema, partition_by=["month"]) as job:
            job.write(pa.table({"id": [2], "month": ["01"]}))
        assert empty.ids(partitions=["month=01"]) == [1, 2]

    def test_files_of_other_columns(self, older: Directory) -> None:
        older.parquet("day=4/part-0.parquet", [1], carrier=["UA"])
        error = self.refused(older, SCHEMA, partition_by=("day",))
        assert "carrier" in str(error)
        assert older.ids() == [1, *ALL]

    def test_files_of_other_types(self, empty: Directory) -> None:
        empty.parquet("day=1/part-0.parquet", ["one"])
        error = self.refused(empty, SCHEMA, partition_by=("day",))
        assert "id is string" in str(error)

    def test_a_job_with_more_columns(self, older: Directory) -> None:
        schema = pa.schema([*SCHEMA, ("carrier", pa.string())])
        with older.table.job(schema, partition_by=["day"]) as job:
            job.write(pa.table({"id": [99], "day": [3], "carrier": ["UA"]}, schema=schema))
        assert older.ids() == [*ALL, 99]
        assert older.table.to_arrow(["carrier"]).column(0).null_count == 30

    def test_files_at_the_root_are_tolerated(self, older: Directory) -> None:
        stray = older.parquet("notes.parquet", [0])
        assert older.ids() == ALL
        older.load([99], day=3)
        assert older.ids() == [*ALL, 99]
        (finding,) = older.table.verify()
        assert (finding.key, finding.kind) == (stray, FindingKind.UNNAMED)

    #: What is skipped as Spark does, and what is named.
    UNFINISHED = ("day=2/part-9.parquet._COPYING_", "day=9._COPYING_/part-0.parquet")
    NO_PARQUET = ("day=2/data.csv", "day=2/Rows.JSON.gz")

    def test_what_is_no_parquet_is_passed_over_and_named(self, older: Directory) -> None:
        for path in self.UNFINISHED:
            older.put(path, b"PAR1 half a file")
        keys = [older.put(path, b"a,b") for path in self.NO_PARQUET]
        assert older.ids() == ALL
        assert sorted(finding.key for finding in older.table.verify()) == sorted(keys)
        older.load([99], day=2)
        assert older.ids() == [*ALL, 99]
        assert older.table.adopt(apply=True).entries
        assert older.ids() == [*ALL, 99]
        findings = older.table.verify()
        assert sorted(finding.key for finding in findings) == sorted(keys)
        assert all("no Parquet by its name" in finding.detail for finding in findings)
        assert "files no reader sees" in {problem.what for problem in older.table.doctor()}
        older.load([7], day=2, mode="replace")
        assert older.ids(partitions=["day=2"]) == [7]

    BUCKET = "part-00000-0e588b61-d860-41c9-b116-c38605f57235_00001.c000.snappy.parquet"

    def test_buckets_of_a_catalog_s_table(self, empty: Directory) -> None:
        empty.parquet(self.BUCKET, [1])
        error = self.refused(empty, BY_ID)
        assert "CLUSTERED BY" in str(error)
        assert f"zero-rename adopt {empty.url} --apply" in str(error)
        assert empty.ids() == [1]
        empty.table.adopt(apply=True)
        with empty.table.job(BY_ID) as job:
            job.write(pa.table({"id": [2]}))
        assert empty.ids() == [1, 2]

    def test_names_that_are_no_buckets(self, empty: Directory) -> None:
        for name in ("000000_0", "part-00000-x.c000.snappy.parquet", "2013_00001.parquet"):
            empty.parquet(f"day=1/{name}", [1])
        empty.load([2], day=1)
        assert empty.ids() == [1, 1, 1, 2]


class TestNoTrace:
    """A first job that fails leaves nothing that the next one would have to agree with."""

    def another_layout(self, directory: Directory) -> None:
        schema = pa.schema([("key", pa.string()), ("month", pa.int32())])
        with directory.table.job(schema, partition_by=["month"]) as job:
            job.write(pa.table({"key": ["x"], "month": [1]}, schema=schema))
        assert directory.table.to_arrow().to_pydict() == {"key": ["x"], "month": [1]}

    def test_of_one_that_fails_while_it_writes(self, empty: Directory) -> None:
        with pytest.raises(ZeroDivisionError), empty.table.job(SCHEMA, partition_by=["day"]):
            raise ZeroDivisionError
        with pytest.raises(TableNotFoundError):
            empty.table.to_arrow()
        self.another_layout(empty)

    def test_of_one_that_fails_at_its_commit(self, empty: Directory) -> None:
        key = empty.parquet("day=1/part-0.parquet", [1])
        with pytest.raises(RefusedError, match="fail-if-exists"):
            empty.load([2], day=1, mode=Mode.FAIL_IF_EXISTS)
        assert empty.ids() == [1]
        empty.driver.run(Delete(key))
        self.another_layout(empty)

    def test_of_one_that_was_killed(self, empty: Directory) -> None:
        empty.table.open_job(JobSpec(SCHEMA, partition_by=("day",)))
        empty.table.recover(patience=0)
        self.another_layout(empty)


class TestVerify:
    def test_partitions_that_no_reader_sees(self, empty: Directory) -> None:
        empty.load([1], day=1)
        key = empty.parquet("day=2/part-0.parquet", [2])
        assert empty.ids() == [1]
        (finding,) = empty.table.verify()
        assert (finding.partition, finding.key) == ("day=2", key)
        assert "zero-rename adopt" in finding.detail

    def test_adopted_file_that_is_gone_says_that_nobody_counted_its_rows(
        self, older: Directory
    ) -> None:
        older.table.adopt(apply=True)
        gone = older.table.files()[0].key
        older.driver.run(Delete(gone))
        (finding,) = older.table.verify()
        assert (finding.key, finding.kind) == (gone, "missing")
        assert finding.detail == "rows that nobody has counted, of another program"
        with pytest.raises(SnapshotGoneError, match=r"or it is lost.*zero-rename verify TABLE"):
            older.ids()

    def test_older_partitions_are_no_finding(self, older: Directory) -> None:
        older.load([99], day=3)
        assert older.table.verify() == []

    def test_directories_of_no_partition(self, older: Directory) -> None:
        older.load([99], day=3)
        keys = [
            older.parquet("backup/part-0.parquet", [1]),
            older.parquet("month=1/part-0.parquet", [1]),
            older.parquet("day=x/part-0.parquet", [1]),
            older.parquet("part-0.parquet", [1]),
        ]
        assert older.ids() == [*ALL, 99]
        assert sorted(f.key for f in older.table.verify()) == sorted(keys)

    def test_a_table_below_this_one_is_its_own(self, empty: Directory) -> None:
        empty.load([1], day=1)
        other = Table(f"{empty.url}/others/hotels")
        with other.job(SCHEMA) as job:
            job.write(pa.table({"id": [1], "day": [1]}, schema=SCHEMA))
        assert empty.table.verify() == []

    def test_doctor_tells_too(self, older: Directory) -> None:
        older.load([99], day=3)
        older.parquet("part-0.parquet", [1])
        found = {problem.what: problem for problem in older.table.doctor()}
        assert "zero-rename adopt" in found["files not adopted"].remedy
        assert "2 partitions" in found["files not adopted"].detail
        assert "zero-rename verify" in found["files no reader sees"].remedy


class TestPartitionFolder:
    @pytest.mark.parametrize("folder", ["day=1", "day=1/"])
    def test_reading_one_goes_through_its_table(self, older: Directory, folder: str) -> None:
        older.load([99], day=1)
        part = Table(f"{older.url}/{folder}")
        for read in (part.to_arrow, part.snapshot, part.verify, lambda: part.schema):
            with pytest.raises(InvalidInputError, match="is a partition of the table") as caught:
                read()
            assert older.url in str(caught.value)
            assert "day=1" in str(caught.value.remedy)

    def test_nobody_writes_a_table_into_one(self, older: Directory) -> None:
        older.load([99], day=1)
        part = Table(f"{older.url}/day=1")
        with pytest.raises(InvalidInputError, match="is a partition of the table"):
            part.open_job(JobSpec(BY_ID))

    def test_of_a_directory_without_a_table_it_is_read(self, older: Directory) -> None:
        part = Table(f"{older.url}/day=1")
        assert sorted(part.to_arrow().column("id").to_pylist()) == list(range(10, 20))


class TestAdopting:
    def test_dry_by_default(self, older: Directory) -> None:
        older.load([99], day=3)
        before = older.records()
        report = older.table.adopt()
        assert [(e.partition, e.files, e.action) for e in report.entries] == [
            ("day=1", 1, "would-adopt"),
            ("day=2", 1, "would-adopt"),
        ]
        assert report.readers_list
        assert older.records() == before

    def test_readers_look_for_other_formats_alone_afterwards(self, older: Directory) -> None:
        older.load([99], day=3)
        report = older.table.adopt(apply=True)
        assert [(e.partition, e.action) for e in report.entries] == [
            ("day=1", "adopted"),
            ("day=2", "adopted"),
        ]
        assert not report.readers_list
        older.table.write_index()
        older.counts()
        assert older.ids() == [*ALL, 99]
        assert older.counts()["ListObjects"] == 2 + len(FORMATS)
        assert older.table.snapshot().versions == {"day=1": 1, "day=2": 1, "day=3": 1}
        assert older.table.verify() == []
        assert older.table.adopt(apply=True).entries == ()

    def test_a_directory_without_a_table(self, older: Directory) -> None:
        assert [e.action for e in older.table.adopt().entries] == ["would-adopt"] * 3
        assert not older.table.exists()
        report = older.table.adopt(apply=True)
        assert [e.action for e in report.entries] == ["adopted"] * 3
        assert older.table.partition_by == ("day",)
        assert older.ids() == ALL
        older.load([99], day=1)
        assert older.ids() == [*ALL, 99]

    def test_first_job_at_any_moment_loses_nothing_and_is_no_damage(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        moments = adopted = 0
        while True:
            older = Directory(monkeypatch)
            older.parquet("day=1/part-0.parquet", ALL)
            left = [moments]

            def fault(
                request: Any, apply: Any, older: Directory = older, left: list[int] = left
            ) -> Any:
                left[0] -= 1
                if left[0] == -1:
                    older.load([99], day=1)
                return apply(request)

            older.driver.fault = fault
            with suppress(RefusedError):
                adopted += bool(older.table.adopt(apply=True).entries)
            if left[0] >= 0:
                break
            assert older.ids() == [*ALL, 99]
            assert older.table.verify() == []
            moments += 1
        assert moments > adopted > 0

    def test_spelled_values_become_strings(self, empty: Directory) -> None:
        empty.parquet("month=01/part-0.parquet", [1])
        empty.table.adopt(apply=True)
        assert empty.table.schema.field("month").type == pa.string()
        assert empty.ids(partitions=["month=01"]) == [1]

    @pytest.mark.parametrize("name", ["month=01", "month=1"])
    @pytest.mark.parametrize("asked", [{}, {"filter": [("id", ">", 0)]}], ids=str)
    def test_partition_of_a_directory_is_read_by_either_spelling(
        self, empty: Directory, name: str, asked: dict[str, Any]
    ) -> None:
        empty.parquet("month=01/part-0.parquet", [1])
        empty.parquet("month=02/part-0.parquet", [2])
        found = empty.table.scan([name], **asked)
        assert (found.to_arrow()["id"].to_pylist(), found.count()) == ([1], 1)

    def test_what_no_reader_saw_is_seen_again(self, empty: Directory) -> None:
        empty.load([1], day=1)
        empty.parquet("day=2/part-0.parquet", [2])
        assert empty.ids() == [1]
        empty.table.adopt(apply=True)
        assert empty.ids() == [1, 2]

    def test_a_value_spelled_otherwise_is_left(self, older: Directory) -> None:
        older.load([99], day=3)
        older.parquet("day=04/part-0.parquet", [40])
        report = older.table.adopt(apply=True)
        left = [e for e in report.entries if e.action == "left"]
        assert [(e.partition, "day=4" in e.reason) for e in left] == [("day=04", True)]
        assert report.readers_list
        assert older.ids() == [*ALL, 40, 99]

    def test_nothing_is_there(self, empty: Directory) -> None:
        with pytest.raises(TableNotFoundError):
            empty.table.adopt(apply=True)

    def test_success_markers_of_others_stay(self, older: Directory) -> None:
        older.put("_SUCCESS", b"{}")
        older.table.adopt(apply=True)
        assert older.driver.store.objects["wh/flights/_SUCCESS"].body == b"{}"


def test_files_of_older_partitions_are_foreign(older: Directory) -> None:
    older.load([99], day=3)
    file: DataFile = older.table.files("day=1")[0]
    assert file.is_foreign
    assert file.job == ""


def test_older_files_below_bytes_that_are_not_utf8_are_never_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    older = Directory(monkeypatch)
    schema = pa.schema([("id", pa.int64()), ("g", pa.string())])
    older.parquet("g=a/part-0.parquet", [1])
    with older.table.job(schema, partition_by=["g"]) as job:
        job.write(pa.table({"id": [2], "g": ["b"]}))
    key = older.parquet("g=Z%FCrich/part-0.parquet", [3])
    for read in (older.ids, lambda: older.table.scan(filter=[("g", "=", "a")]).to_arrow()):
        with pytest.raises(DamagedError, match=r"Z%FCrich.* not UTF-8") as caught:
            read()
        assert "g=Z%FCrich" in (caught.value.key or "")
    assert older.ids(partitions=["g=a"]) == [1]
    left = [it for it in older.table.adopt(apply=True).entries if it.action == "left"]
    assert [(it.partition, "not UTF-8" in it.reason) for it in left] == [("g=Z%FCrich", True)]
    assert key in {finding.key for finding in older.table.verify()}

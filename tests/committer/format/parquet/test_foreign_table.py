"""Reading what other committers wrote: schema from the files, partitions from the paths."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zero_rename.committer import (
    DamagedError,
    FindingKind,
    JobSpec,
    Table,
    TableMismatchError,
    TableNotFoundError,
)
from zero_rename.committer.format.parquet.foreign_columns import contradiction
from zero_rename.committer.format.parquet.foreign_table import common_type, type_of

pytestmark = pytest.mark.memory_s3

INSTANT = pa.timestamp("us", "UTC")


class Folder:
    """A table's folder, filled as S3A fills it."""

    def __init__(self, bucket: Any) -> None:
        self.bucket = bucket
        self.table = Table(f"s3://{bucket.name}/wh/flights", client=bucket.client)

    def put(self, path: str, body: bytes) -> str:
        key = f"wh/flights/{path}"
        self.bucket.client.put_object(Bucket=self.bucket.name, Key=key, Body=body)
        return key

    def parquet(self, path: str, columns: dict[str, Any], **options: Any) -> str:
        target = io.BytesIO()
        pq.write_table(pa.table(columns), target, **options)
        return self.put(path, target.getvalue())

    def marker(self, path: str, keys: list[str], timestamp: int = 1, job: str = "j") -> None:
        document = {
            "name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1",
            "success": True,
            "timestamp": timestamp,
            "committer": "magic",
            "jobId": job,
            "filenames": [f"/{key}" for key in keys],
        }
        self.put(path, json.dumps(document).encode())


@pytest.fixture
def folder(s3_bucket: Any) -> Folder:
    return Folder(s3_bucket)


class TestReading:
    def test_a_partitioned_table(self, folder: Folder) -> None:
        folder.parquet("year=2013/month=02/part-0.parquet", {"id": [1, 2]})
        folder.parquet("year=2013/month=3/part-1.parquet", {"id": [3]})
        folder.put("_SUCCESS", b"")
        folder.put("year=2013/month=3/", b"")
        folder.put("__magic_job-u/job-u/00/task.pendingset", b"{}")
        table = folder.table
        assert not table.exists()
        assert table.partition_by == ("year", "month")
        assert table.schema == pa.schema(
            [("id", pa.int64()), ("year", pa.int32()), ("month", pa.int32())]
        )
        assert table.partitions() == ["year=2013/month=02", "year=2013/month=3"]
        read = table.to_arrow().sort_by("id")
        assert read.to_pydict() == {"id": [1, 2, 3], "year": [2013] * 3, "month": [2, 2, 3]}
        only = table.to_arrow(["id"], partitions=["year=2013/month=3"])
        assert only.to_pydict() == {"id": [3]}
        assert [file.rows for file in table.files("year=2013/month=3")] == [-1]
        assert table.snapshot().versions == {}

    def test_an_unpartitioned_table(self, folder: Folder) -> None:
        folder.parquet("part-0.parquet", {"id": [1]})
        assert folder.table.partition_by == ()
        assert folder.table.to_arrow().to_pydict() == {"id": [1]}

    def test_columns_come_and_go(self, folder: Folder) -> None:
        folder.parquet("day=1/a.parquet", {"id": [1], "old": ["x"]})
        folder.parquet("day=2/b.parquet", {"id": [2], "new": [True]})
        read = folder.table.to_arrow().sort_by("id").to_pydict()
        assert read == {"id": [1, 2], "old": ["x", None], "new": [None, True], "day": [1, 2]}

    def test_the_timestamps_of_spark_are_instants(self, folder: Folder) -> None:
        moment = datetime(2013, 2, 1, 5, tzinfo=UTC)
        column = pa.array([moment.replace(tzinfo=None)], pa.timestamp("ns"))
        folder.parquet("a.parquet", {"at": column}, use_deprecated_int96_timestamps=True)
        assert folder.table.schema.field("at").type == INSTANT
        assert folder.table.to_arrow().column("at").to_pylist() == [moment]

    def test_null_is_a_partition_of_any_type(self, folder: Folder) -> None:
        folder.parquet("day=1/a.parquet", {"id": [1]})
        folder.parquet("day=__HIVE_DEFAULT_PARTITION__/a.parquet", {"id": [2]})
        read = folder.table.to_arrow().sort_by("id").to_pydict()
        assert read == {"id": [1, 2], "day": [1, None]}

    def test_what_looks_like_a_date_and_is_none(self, folder: Folder) -> None:
        folder.parquet("day=2013-02-28/a.parquet", {"id": [1]})
        folder.parquet("day=2013-02-30/a.parquet", {"id": [2]})
        assert folder.table.schema.field("day").type == pa.string()
        assert folder.table.to_arrow().num_rows == 2

    def test_what_a_listing_shows_now(self, folder: Folder) -> None:
        folder.parquet("day=1/a.parquet", {"id": [1]})
        assert folder.table.to_arrow().num_rows == 1
        folder.parquet("day=2/a.parquet", {"id": [2]})
        assert folder.table.to_arrow().num_rows == 2


class TestNoTable:
    @pytest.mark.parametrize("path", [None, "_temporary/0/part.parquet", "day=1/_part.parquet"])
    def test_without_data(self, folder: Folder, path: str | None) -> None:
        if path:
            folder.parquet(path, {"id": [1]})
        with pytest.raises(TableNotFoundError):
            folder.table.snapshot()

    def test_a_table_of_ours_whose_record_is_lost(self, folder: Folder) -> None:
        with folder.table.job(pa.schema([("id", pa.int64())])) as job:
            job.write(pa.table({"id": [1]}))
        client, name = folder.bucket.client, folder.bucket.name
        client.delete_object(Bucket=name, Key="wh/flights/_zero_rename/table.json")
        with pytest.raises(DamagedError, match=r"table\.json is gone"):
            Table(folder.table.root.url, client=client).snapshot()

    @pytest.mark.parametrize(
        ("paths", "message"),
        [
            (["day=1/a.parquet", "month=1/b.parquet"], "not partitions of one table"),
            (["flights/day=1/a.parquet"], "no partition"),
        ],
    )
    def test_files_of_several_tables(self, folder: Folder, paths: list[str], message: str) -> None:
        for path in paths:
            folder.parquet(path, {"id": [1]})
        with pytest.raises(TableMismatchError, match=message):
            folder.table.to_arrow()

    def test_columns_of_two_types(self, folder: Folder) -> None:
        folder.parquet("a.parquet", {"id": [1]})
        folder.parquet("b.parquet", {"id": ["1"]})
        with pytest.raises(TableMismatchError, match=r"b\.parquet: id is string there, in the t"):
            folder.table.to_arrow()

    def test_files_that_are_not_parquet(self, folder: Folder) -> None:
        folder.put("part-0.csv", b"id\n1\n")
        with pytest.raises(TableMismatchError, match=r"part-0\.csv is no Parquet by its name"):
            folder.table.schema  # noqa: B018
        folder.put("000000_0", b"id\n1\n")
        with pytest.raises(DamagedError, match=r"cannot be read as Parquet: .*[^.]\. No job"):
            folder.table.schema  # noqa: B018


class TestVerify:
    def test_a_file_that_the_marker_names_is_gone(self, folder: Folder) -> None:
        key = folder.parquet("day=1/a.parquet", {"id": [1]})
        folder.marker("_SUCCESS", [key])
        assert folder.table.verify() == []
        lost = "wh/flights/day=1/b.parquet"
        folder.marker("_SUCCESS", [key, lost])
        (finding,) = folder.table.verify()
        assert (finding.key, finding.kind, finding.partition) == (
            lost,
            FindingKind.MISSING,
            "day=1",
        )

    def test_a_later_marker_counts(self, folder: Folder) -> None:
        key = folder.parquet("day=1/new.parquet", {"id": [1]})
        folder.marker("_SUCCESS", ["wh/flights/day=1/old.parquet"], timestamp=1)
        folder.marker("day=1/_SUCCESS", [key], timestamp=2)
        assert folder.table.verify() == []


def test_the_first_native_job_takes_the_files_over(folder: Folder) -> None:
    """As before: a table of ours is made, and adopts what is in the partitions it writes."""
    folder.parquet("day=1/a.parquet", {"id": [1]})
    schema = pa.schema([("id", pa.int64()), ("day", pa.int32())])
    table = folder.table
    opened = table.open_job(JobSpec(schema, partition_by=("day",)))
    writer = table.task_writer(opened, 0, 0)
    writer.write(pa.table({"id": [2], "day": [1]}, schema=schema))
    table.commit(opened, [writer.close()])
    assert table.exists()
    assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 2]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1", pa.int32()),
        ("01", pa.int32()),
        ("-5", pa.int32()),
        ("2147483648", pa.int64()),
        ("9223372036854775808", pa.decimal128(38, 0)),
        ("1.5", pa.float64()),
        ("1e3", pa.float64()),
        ("2013-02-01", pa.date32()),
        ("2013-02-01 05:00:00", INSTANT),
        ("EWR", pa.string()),
        ("1a", pa.string()),
        ("true", pa.string()),
    ],
)
def test_types_of_values(value: str, kind: pa.DataType) -> None:
    assert type_of(value) == kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], pa.string()),
        (["1", "2147483648"], pa.int64()),
        (["1", "1.5"], pa.float64()),
        (["1", "EWR"], pa.string()),
        (["2013-02-01", "1"], pa.string()),
        (["2013-02-01", "2013-02-01 05:00:00"], INSTANT),
    ],
)
def test_types_of_columns(values: list[str], kind: pa.DataType) -> None:
    assert common_type(values) == kind


class TestEscapedNames:
    def test_values_escaped_as_utf8_are_read_and_copied_as_they_were(self, folder: Folder) -> None:
        folder.parquet("g=Z%C3%BCrich/a.parquet", {"id": [1]})
        folder.parquet("g=Bern/a.parquet", {"id": [2]})
        read = folder.table.to_arrow().sort_by("id").to_pydict()
        assert read == {"id": [1, 2], "g": ["Zürich", "Bern"]}
        assert folder.table.scan(filter=[("g", "=", "Zürich")]).count() == 1
        copied = Table(f"s3://{folder.bucket.name}/wh/copied", client=folder.bucket.client)
        folder.table.copy(copied)
        assert copied.partitions() == ["g=Bern", "g=Zürich"]
        assert copied.to_arrow().sort_by("id").to_pydict() == read

    def test_adoption_leaves_other_spellings_and_says_how_to_rename_them(
        self, folder: Folder
    ) -> None:
        folder.parquet("g=Z%C3%BCrich/a.parquet", {"id": [1]})
        (entry,) = folder.table.adopt(apply=True).entries
        assert (entry.action, "written to g=Zürich" in entry.reason) == ("left", True)
        assert folder.table.to_arrow().to_pydict() == {"id": [1], "g": ["Zürich"]}

    def test_bytes_that_are_not_utf8_are_refused_by_the_name_of_their_directory(
        self, folder: Folder
    ) -> None:
        folder.parquet("g=Bern/a.parquet", {"id": [1]})
        folder.parquet("g=Z%FCrich/a.parquet", {"id": [2]})
        for use in (folder.table.to_arrow, lambda: folder.table.adopt(apply=True)):
            with pytest.raises(TableMismatchError, match=r"g=Z%FCrich.* not UTF-8"):
                use()


@pytest.mark.parametrize(
    ("directory", "value", "fits"),
    [
        ("x=NaN", math.nan, True),
        ("x=NaN", 1.0, False),
        ("x=1.0", math.nan, False),
        ("x=1.0", 1.0, True),
        ("x=__HIVE_DEFAULT_PARTITION__", None, True),
    ],
)
def test_partition_column_in_a_file_has_its_directorys_float(
    directory: str, value: float | None, fits: bool
) -> None:
    rows = pa.record_batch({"x": pa.array([value], pa.float64())})
    problem = contradiction(directory, ["x"], pa.field("x", pa.float64()), [rows])
    assert (problem == "") == fits

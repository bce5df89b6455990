"""Calendar of a file by its footer: which marks count, and what bounds say beside them."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from zero_rename.committer import Table
from zero_rename.committer.format.parquet.calendars import FileCalendar
from zero_rename.committer.format.parquet.row_filter import RowFilter

pytestmark = pytest.mark.memory_s3

#: 1 January 1 in the Julian calendar, and the day of that date in the Gregorian one.
JULIAN, GREGORIAN = -719_164, -719_162
OLD = {b"org.apache.spark.version": b"2.4.8"}
HIVE = {b"writer.date.proleptic": b"false"}


def dates(*days: int, metadata: dict[bytes, bytes] | None = None) -> pa.Table:
    table = pa.table({"d": pa.array(days, pa.int32()).cast(pa.date32())})
    return table.replace_schema_metadata(metadata)


def body_of(table: pa.Table) -> bytes:
    target = io.BytesIO()
    pq.write_table(table, target)
    return target.getvalue()


def days_of(table: Table) -> list[int]:
    return table.to_arrow()["d"].cast(pa.int32()).to_pylist()


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        ({}, FileCalendar()),
        ({b"org.apache.spark.version": b"2.4.8"}, FileCalendar(True, True, True)),
        ({b"org.apache.spark.version": b"3.0.3"}, FileCalendar(int96=True)),
        ({b"org.apache.spark.version": b"3.1.0"}, FileCalendar()),
        ({b"org.apache.spark.legacyDateTime": b""}, FileCalendar()),
        (
            {
                b"org.apache.spark.version": b"4.3.0",
                b"org.apache.spark.legacyDateTime": b"",
                b"org.apache.spark.timeZone": b"Asia/Tokyo",
            },
            FileCalendar(True, True, zone="Asia/Tokyo"),
        ),
        (
            {b"org.apache.spark.version": b"4.3.0", b"org.apache.spark.legacyINT96": b""},
            FileCalendar(int96=True),
        ),
        ({b"writer.date.proleptic": b"false"}, FileCalendar(dates=True)),
        ({b"writer.date.proleptic": b"true"}, FileCalendar()),
    ],
)
def test_marks_of_a_footer_tell_its_calendar(
    marks: dict[bytes, bytes], found: FileCalendar
) -> None:
    assert FileCalendar.of(marks) == found


@pytest.mark.parametrize("marks", [OLD, HIVE])
def test_julian_dates_are_read_as_the_dates_they_were_written_as(
    s3_bucket: Bucket, marks: dict[bytes, bytes]
) -> None:
    s3_bucket.put("t/a.parquet", body_of(dates(JULIAN, -141_428, -141_427, 0, metadata=marks)))
    table = Table(f"s3://{s3_bucket.name}/t", client=s3_bucket.client)
    assert days_of(table) == [GREGORIAN, -141_438, -141_427, 0]
    found = table.scan(filter=pc.field("d") == pa.scalar(GREGORIAN, pa.int32()).cast(pa.date32()))
    assert found.count() == 1


def test_bounds_of_a_marked_file_count_from_the_day_on_that_both_calendars_call_alike() -> None:
    condition = pc.field("d") == pa.scalar(-141_438, pa.int32()).cast(pa.date32())
    row_filter = RowFilter([condition], pa.schema([("d", pa.date32())]))

    def groups(*days: int) -> list[int]:
        body = body_of(dates(*days, metadata=OLD))
        return list(row_filter.row_groups(pq.ParquetFile(io.BytesIO(body)), {}))

    assert groups(-141_428) == [0]
    assert groups(-141_427, 0) == []


def test_marks_of_the_file_that_rows_were_read_from_are_not_written_with_them(
    s3_bucket: Bucket,
) -> None:
    rows = dates(GREGORIAN, 0, metadata={**OLD, **HIVE, b"own": b"kept"})
    table = Table(f"s3://{s3_bucket.name}/t", client=s3_bucket.client)
    with table.job(rows.schema) as job:
        job.write(rows)
    assert days_of(table) == [GREGORIAN, 0]
    (file,) = table.files()
    body = s3_bucket.client.get_object(Bucket=s3_bucket.name, Key=file.key)["Body"].read()
    metadata = pq.read_metadata(io.BytesIO(body)).metadata or {}
    assert FileCalendar.of(metadata).is_gregorian
    assert metadata[b"own"] == b"kept"

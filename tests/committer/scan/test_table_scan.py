"""Lazy reads: which requests they send, which rows come, and in which library's hands."""

from __future__ import annotations

import io
import os
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from support.arrow_data import rows_of
from zero_rename import Table
from zero_rename.committer import FileOptions, InvalidInputError, SnapshotGoneError
from zero_rename.committer.format.parquet import reader as parquet_reader
from zero_rename.committer.store import range_reader

pytestmark = pytest.mark.memory_s3

ROWS = pa.table(
    {
        "day": [1, 1, 2, 2, 3, 3],
        "delay": [5.0, None, 20.0, float("nan"), 70.0, 80.0],
        "carrier": ["UA", "AA", "UA", None, "B6", "UA"],
    }
)
#: One row to a row group.
SMALL_GROUPS = FileOptions(row_group_rows=1)


@pytest.fixture
def table(s3_bucket: Bucket) -> Table:
    table = Table(f"s3://{s3_bucket.name}/flights")
    with table.job(ROWS.schema, partition_by=["day"], files=SMALL_GROUPS) as job:
        job.write(ROWS)
    return table


@pytest.fixture
def by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are read by ranges, as large ones are."""
    monkeypatch.setattr(parquet_reader, "_FILTERED", 0)
    monkeypatch.setattr(range_reader, "_TAIL", 4000)
    monkeypatch.setattr(range_reader, "_GAP", 100)


def delays(found: pa.Table) -> list[Any]:
    return [value for value in found["delay"].to_pylist() if value == value]


class TestRows:
    def test_nothing_is_sent_before_rows_are_asked_for(
        self, table: Table, s3_bucket: Bucket
    ) -> None:
        s3_bucket.counter.reset()
        scan = table.scan(filter=[("delay", ">", 10)]).filter(pc.field("day") > 2).select("delay")
        assert s3_bucket.counter.total() == 0
        assert delays(scan.to_arrow()) == [70.0, 80.0]

    def test_all_rows_without_a_filter(self, table: Table) -> None:
        assert rows_of(table.scan().to_arrow()) == rows_of(table.to_arrow()) == rows_of(ROWS)
        assert table.scan().to_batches().read_all().num_rows == 6

    def test_columns_come_in_the_order_asked_for(self, table: Table) -> None:
        scan = table.scan(columns=["carrier", "day"], filter=pc.field("delay") >= 70)
        assert scan.schema.names == ["carrier", "day"]
        assert scan.to_arrow().to_pydict() == {"carrier": ["B6", "UA"], "day": [3, 3]}

    def test_a_limit(self, table: Table) -> None:
        for limit in (0, 1, 3, 100):
            scan = table.scan(limit=limit)
            assert scan.to_arrow().num_rows == scan.count() == min(limit, 6)
            assert sum(batch.num_rows for batch in scan.to_batches()) == min(limit, 6)
        assert table.scan(filter=pc.field("carrier") == "UA", limit=2).count() == 2

    def test_named_partitions_and_a_filter(self, table: Table) -> None:
        scan = table.scan(["day=1", "day=02"], pc.field("carrier") == "UA")
        assert delays(scan.to_arrow()) == [5.0, 20.0]

    @pytest.mark.parametrize("columns", [None, ["carrier"], ["carrier", "day"]], ids=str)
    def test_filter_names_a_column_of_the_table_by_its_number(
        self, table: Table, columns: list[str] | None
    ) -> None:
        assert table.schema.names.index("delay") == 1
        scan = table.scan(filter=(pc.field(1) > 10) & (pc.field("carrier") == "UA"))
        scan = scan if columns is None else scan.select(*columns)
        assert scan.to_arrow()["carrier"].to_pylist() == ["UA", "UA"]
        assert table.scan(filter=pc.field(0) == 3).count() == 2

    def test_null_and_nan(self, table: Table) -> None:
        assert table.scan(filter=pc.field("delay").is_null()).to_arrow()["day"].to_pylist() == [1]
        assert table.scan(filter=pc.field("delay").is_nan()).to_arrow()["day"].to_pylist() == [2]
        assert table.scan(filter=pc.field("delay") != 5.0).count() == 4
        assert table.scan(filter=~(pc.field("delay") > 10)).count() == 2

    def test_an_empty_result_has_the_columns(self, table: Table) -> None:
        scan = table.scan(filter=pc.field("day") == 9, columns=["carrier"])
        assert scan.to_arrow().schema == pa.schema([("carrier", pa.string())])
        assert list(scan.to_batches()) == []

    def test_a_table_without_partitions(self, s3_bucket: Bucket) -> None:
        table = Table(f"s3://{s3_bucket.name}/plain")
        with table.job(ROWS.schema) as job:
            job.write(ROWS)
        assert table.scan(filter=pc.field("day") > 2).count() == 2


class TestWhatIsRead:
    def test_the_heads_of_other_partitions_are_not(self, table: Table, s3_bucket: Bucket) -> None:
        s3_bucket.counter.reset()
        assert table.scan(filter=pc.field("day") == 2).count() == 2
        heads = [key for _, key in s3_bucket.counter.log() if "/heads/day=" in key]
        assert heads == ["flights/_zero_rename/heads/day=2.json"]

    @pytest.mark.usefixtures("by_ranges")
    def test_row_groups_and_columns_are_left_out_of_what_is_fetched(
        self, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        texts = [os.urandom(100).hex() for _ in range(10_000)]
        rows = pa.table({"n": range(10_000), "text": texts})
        table = Table(f"s3://{s3_bucket.name}/long")
        with table.job(rows.schema, files=FileOptions(row_group_rows=1000)) as job:
            job.write(rows)
        fetched: list[int] = []
        read = range_reader.RangeFile._read

        def counted(self: Any, start: int, end: int) -> Any:
            fetched.append(end - start)
            return (yield from read(self, start, end))

        monkeypatch.setattr(range_reader.RangeFile, "_read", counted)
        scan = table.scan(filter=pc.field("n") == 7001, columns=["text"])
        assert scan.to_arrow().to_pydict() == {"text": [texts[7001]]}
        assert sum(fetched) < table.files()[0].size / 4

    def test_a_count_reads_no_file(self, table: Table, s3_bucket: Bucket) -> None:
        before = table.snapshot()
        s3_bucket.counter.reset()
        assert table.scan(snapshot=before).count() == 6
        assert table.scan(snapshot=before, filter=pc.field("day") < 3).count() == 4
        assert s3_bucket.counter.total() == 0

    def test_a_count_of_foreign_files_reads_their_footers(self, s3_bucket: Bucket) -> None:
        for day in (1, 2):
            body = io.BytesIO()
            pq.write_table(ROWS.drop_columns(["day"]), body)
            s3_bucket.put(f"old/day={day}/a.parquet", body.getvalue())
        table = Table(f"s3://{s3_bucket.name}/old")
        assert table.scan().count() == 12
        assert table.scan(filter=pc.field("day") == 1).count() == 6
        assert table.scan(filter=pc.field("delay") > 10).count() == 6


class TestState:
    def test_scans_made_of_one_that_was_read_stay_with_its_state(self, table: Table) -> None:
        scan = table.scan(filter=pc.field("delay") > 10)
        assert (scan.count(), scan.snapshot.versions["day=3"]) == (3, 1)
        with table.job(ROWS.schema) as job:
            job.write(ROWS)
        assert scan.count() == scan.select("day").to_arrow().num_rows == 3
        assert scan.filter(pc.field("day") == 3).count() == 2
        assert table.scan(filter=pc.field("delay") > 10).count() == 6

    def test_a_scan_stays_with_the_state_it_found(self, table: Table) -> None:
        scan = table.scan()
        assert scan.count() == 6
        with table.job() as job:
            job.write(ROWS)
        assert scan.to_arrow().num_rows == scan.count() == 6
        assert table.scan().count() == 12

    def test_several_scans_of_one_state(self, table: Table) -> None:
        state = table.snapshot()
        with table.job() as job:
            job.write(ROWS)
        assert table.scan(snapshot=state).count() == 6
        assert table.scan(["day=1"], snapshot=state).count() == 2

    def test_a_file_that_a_replace_removed_is_reported(self, table: Table) -> None:
        scan = table.scan(filter=pc.field("delay") > 0)
        assert scan.files
        with table.job(mode="overwrite") as job:
            job.write(ROWS)
        with pytest.raises(SnapshotGoneError):
            scan.to_arrow()
        with pytest.raises(SnapshotGoneError):
            list(scan.to_batches())


class TestLibraries:
    def test_pandas(self, table: Table) -> None:
        frame = table.scan(filter=[("day", "=", 3)]).to_pandas()
        assert frame["delay"].tolist() == [70.0, 80.0]

    def test_polars(self, table: Table) -> None:
        frame = table.scan(filter=[("day", "=", 3)]).to_polars()
        assert frame["delay"].to_list() == [70.0, 80.0]

    def test_duckdb(self, table: Table) -> None:
        connection = table.scan(columns=["day", "delay"]).to_duckdb("flights")
        found = connection.execute("select day, count(*) from flights group by day order by day")
        assert found.fetchall() == [(1, 2), (2, 2), (3, 2)]
        assert table.scan(limit=1).to_duckdb("one", connection) is connection

    def test_one_that_is_not_installed(self, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "polars", None)
        with pytest.raises(InvalidInputError, match="pip install polars"):
            table.scan().to_polars()


class TestRefused:
    def test_columns_that_are_not_there(self, table: Table) -> None:
        for scan in (table.scan(columns=["nope"]), table.scan().select("day", "day")):
            with pytest.raises(InvalidInputError, match=r"column"):
                scan.to_arrow()

    def test_a_filter_that_does_not_fit(self, table: Table) -> None:
        with pytest.raises(InvalidInputError, match="nope"):
            table.scan(filter=pc.field("nope") > 1).count()

    def test_a_text_for_partitions(self, table: Table) -> None:
        with pytest.raises(InvalidInputError, match="not a list"):
            table.scan("day=1", pc.field("day") > 1).to_arrow()

"""Footers of other writers: bounds in an order of their own, and counts that contradict."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from support.parquet_footer import (
    I64,
    NUM_ROWS,
    Struct,
    each_statistics,
    with_footer,
    without_column_orders,
)
from zero_rename.committer import DamagedError, Table
from zero_rename.committer.format.parquet.footers import count_rows
from zero_rename.committer.format.parquet.row_filter import RowFilter

pytestmark = pytest.mark.memory_s3

#: As the footer of parquet-testing's ``fixed_length_decimal.parquet`` has it.
OLD_SPARK = "parquet-mr version 1.8.2 (build c6522788629e590a53eb79874b95f6c3ff11f16c)"
DECIMALS = pa.array([Decimal(n) for n in range(1, 4)], pa.decimal128(25, 2))


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table(columns), target, **options)
    return target.getvalue()


def bounded(low: bytes, high: bytes) -> Any:
    """Set the bounds of every column chunk."""

    def change(footer: Struct) -> None:
        for statistics in each_statistics(footer):
            for high_at, low_at in ((1, 2), (5, 6)):
                if high_at in statistics:
                    statistics[high_at], statistics[low_at] = (8, high), (8, low)

    return change


def by_old_spark(
    columns: dict[str, Any], low: bytes, high: bytes, writer: str = OLD_SPARK
) -> bytes:
    """A file whose writer compared bytes in an order that is not the type's."""
    body = with_footer(parquet(columns), without_column_orders(writer))
    return with_footer(body, bounded(low, high))


def decimal_bytes(unscaled: int) -> bytes:
    return unscaled.to_bytes(11, "big", signed=True)


def put(bucket: Bucket, body: bytes, name: str = "a.parquet") -> Table:
    bucket.put(f"t/{name}", body)
    return Table(f"s3://{bucket.name}/t", client=bucket.client)


class TestBoundsOfUnknownOrder:
    #: 1.00 is outside of these, as in parquet-testing's file.
    BODY = by_old_spark({"value": DECIMALS}, decimal_bytes(200), decimal_bytes(300))

    def test_rows_of_decimals_in_fixed_length_bytes_are_found(self, s3_bucket: Bucket) -> None:
        table = put(s3_bucket, self.BODY)
        found = table.scan(filter=pc.field("value") == Decimal("1.00")).to_arrow()
        assert found["value"].to_pylist() == [Decimal("1.00")]

    def test_deletion_finds_rows_outside_of_untrusted_bounds(self, s3_bucket: Bucket) -> None:
        table = put(s3_bucket, self.BODY)
        table.adopt(apply=True)
        done = table.delete(pc.field("value") == Decimal("1.00"))
        assert done.rows.deleted == 1
        assert table.to_arrow()["value"].to_pylist() == [Decimal(2), Decimal(3)]

    @pytest.mark.parametrize(
        "writer",
        [
            "parquet-mr version 1.9.1 (build x)",
            "impala version 2.2.0",
            "parquet-mr",
            "",
            "unheard of",
        ],
    )
    @pytest.mark.parametrize(
        ("column", "low", "high"),
        [
            (pa.array(["a", "b"]), b"b", b"b"),
            (pa.array([1, 2], pa.uint32()), b"\2\0\0\0", b"\2\0\0\0"),
            (pa.array([Decimal(1), Decimal(2)], pa.decimal128(5, 0)), *[b"\0\0\2"] * 2),
        ],
        ids=["text", "unsigned", "decimal"],
    )
    def test_bounds_without_column_order_leave_nothing_out(
        self, writer: str, column: pa.Array, low: bytes, high: bytes
    ) -> None:
        file = pq.ParquetFile(io.BytesIO(by_old_spark({"x": column}, low, high, writer)))
        condition = RowFilter([pc.field("x") == column[0]], pa.schema([("x", column.type)]))
        assert list(condition.row_groups(file, {})) == [0]

    @pytest.mark.parametrize(
        "writer",
        [
            "parquet-mr version 1.10.0 (build x)",
            "parquet-mr version 1.10.1-databricks3 (build x)",
            "parquet-cpp-arrow version 18.0.0",
            "DuckDB version v2.0.0 (build d54cbbe3df)",
            "Polars (python) version 2.1.0 (build x)",
        ],
    )
    def test_bounds_with_column_order_leave_groups_out(self, writer: str) -> None:
        body = with_footer(
            parquet({"x": ["b", "c"]}), lambda footer: footer.update({6: (8, writer.encode())})
        )
        condition = RowFilter([pc.field("x") == "a"], pa.schema([("x", pa.string())]))
        assert list(condition.row_groups(pq.ParquetFile(io.BytesIO(body)), {})) == []

    def test_bounds_of_signed_numbers_count_whoever_wrote_them(self) -> None:
        body = with_footer(parquet({"x": [5, 6]}), without_column_orders(OLD_SPARK))
        condition = RowFilter([pc.field("x") == 4], pa.schema([("x", pa.int64())]))
        assert list(condition.row_groups(pq.ParquetFile(io.BytesIO(body)), {})) == []

    def test_bounds_that_are_nan_leave_nothing_out(self) -> None:
        nan = pa.array([float("nan")]).buffers()[1].to_pybytes()
        body = with_footer(parquet({"x": [1.0, 2.0]}), bounded(nan, nan))
        for condition in (pc.field("x") == 1.0, pc.field("x") < 1.5, pc.field("x") != 5.0):
            row_filter = RowFilter([condition], pa.schema([("x", pa.float64())]))
            assert list(row_filter.row_groups(pq.ParquetFile(io.BytesIO(body)), {})) == [0]


class TestContradictingCounts:
    BODY = with_footer(
        parquet({"x": [1, 2, 3, 4, 5, 6]}), lambda footer: footer.update({NUM_ROWS: (I64, 0)})
    )

    def test_reading_names_the_damage(self, s3_bucket: Bucket) -> None:
        table = put(s3_bucket, self.BODY)
        for columns in (None, ["x"], []):
            with pytest.raises(DamagedError, match=r"0 rows.*row groups.* 6") as caught:
                table.to_arrow(columns)
            assert caught.value.key == "t/a.parquet"

    def test_adoption_is_refused(self, s3_bucket: Bucket) -> None:
        table = put(s3_bucket, self.BODY)
        with pytest.raises(DamagedError, match=r"0 rows.*row groups.* 6"):
            table.adopt(apply=True)
        assert not table.exists()

    def test_rows_are_not_counted(self, s3_bucket: Bucket) -> None:
        table = put(s3_bucket, self.BODY)
        assert count_rows(table.driver, {"t/a.parquet": len(self.BODY)}) is None

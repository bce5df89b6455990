"""Spark data frames that a Dagster asset hands over and takes, in the session of its process."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from dagster_zero_rename import ZeroRenameIOManager, ZeroRenameResource
from support.dagster_loads import DAYS, days
from zero_rename.committer.errors import InvalidInputError

pytestmark = pytest.mark.spark


def frame(spark: Any, numbers: Mapping[str, int]) -> DataFrame:
    return spark.createDataFrame(list(numbers.items()), "day string, number int").selectExpr(
        "cast(day as date) day", "number"
    )


def test_frames_are_written_and_read(spark: Any, bucket: str) -> None:
    zero = ZeroRenameResource(table_root=f"s3://{bucket}/tables")
    numbers = {"2013-01-01": 1, "2013-01-02": 2}
    took: list[Any] = []

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    def flights(context: dg.AssetExecutionContext) -> DataFrame:
        return frame(spark, {d: n for d, n in numbers.items() if d in context.partition_keys})

    @dg.asset(partitions_def=DAYS)
    def report(flights: DataFrame) -> None:
        # load() serves every Spark; of the data source Spark 3.5 knows nothing.
        plan = flights._jdf.queryExecution().toString()  # pyrefly: ignore[not-callable]
        assert "BatchScan" not in plan
        took.append([tuple(row) for row in flights.collect()])

    def run(asset: Any, **given: Any) -> Any:
        resources = {"io_manager": ZeroRenameIOManager(zero_rename=zero)}
        return dg.materialize([flights, report], resources=resources, selection=[asset], **given)

    result = run(flights, tags=days("2013-01-01", "2013-01-03"))
    told = {it.partition: it.metadata for it in result.asset_materializations_for_node("flights")}
    assert len({str(it["zero_rename/job"].value) for it in told.values()}) == 1
    rows = [it["dagster/partition_row_count"].value for _, it in sorted(told.items())]
    assert rows == [1, 1, 0]
    del numbers["2013-01-02"]
    run(flights, partition_key="2013-01-02")  # A day without rows is emptied.
    assert zero.table("flights").to_arrow()["number"].to_pylist() == [1]
    run(report, partition_key="2013-01-01")
    [[(day, number)]] = took
    assert (day.isoformat(), number) == ("2013-01-01", 1)


def test_frames_are_merged(spark: Any, bucket: str) -> None:
    zero = ZeroRenameResource(table_root=f"s3://{bucket}/tables")
    table = zero.table("flights")
    schema = pa.schema([("day", pa.date32()), ("number", pa.int32())])
    with table.job(schema, partition_by=["day"]) as job:
        first, second = dt.date(2013, 1, 1), dt.date(2013, 1, 2)
        job.write(pa.table([[first, second, second], [1, 2, 3]], schema=schema))
    metadata = {"partition_expr": "day", "mode": "merge", "merge_on": ["number"]}
    numbers = {"2013-01-01": 1, "2013-01-02": 2}

    @dg.asset(partitions_def=DAYS, metadata={**metadata, "delete_when": "op = 'D' or op = 'X'"})
    def flights(context: dg.AssetExecutionContext) -> DataFrame:
        return frame(spark, numbers).selectExpr("*", "if(number = 2, 'D', 'U') op")

    resources = {"io_manager": ZeroRenameIOManager(zero_rename=zero)}
    tags = days("2013-01-01", "2013-01-02")
    for _ in range(2):  # The second changes nothing.
        run = dg.materialize([flights], resources=resources, tags=tags)
        assert sorted(table.to_arrow()["number"].to_pylist()) == [1, 3]
        told = {it.partition: it.metadata for it in run.asset_materializations_for_node("flights")}
    assert told["2013-01-02"]["zero_rename/partitions_left"].value == 2
    assert table.snapshot().versions == {"day=2013-01-01": 1, "day=2013-01-02": 2}
    numbers["2013-01-03"] = 7
    with pytest.raises(dg.Failure, match="may write day=2013-01-01"):
        dg.materialize([flights], resources=resources, tags=tags)


def test_a_frame_of_another_store_is_refused(spark: Any, bucket: str) -> None:
    zero = ZeroRenameResource(table_root=f"s3://{bucket}/t", endpoint_url="http://127.0.0.1:1")

    @dg.asset
    def airports(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        return zero.write(context, frame(spark, {"2013-01-01": 1}))

    @dg.asset
    def report(flights: DataFrame) -> None:
        raise AssertionError("called")

    resources = {"zero": zero, "io_manager": ZeroRenameIOManager(zero_rename=zero)}
    for wanted in (airports, report):
        with pytest.raises(dg.Failure, match="differs from the ZeroRenameResource") as failed:
            dg.materialize([dg.AssetSpec("flights"), wanted], resources=resources)
        assert isinstance(failed.value.__cause__, InvalidInputError)
        assert failed.value.allow_retries is False

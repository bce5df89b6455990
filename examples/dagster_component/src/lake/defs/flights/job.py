"""Flights of some days, from a CSV file of nycflights13's shape."""

import argparse
import os

from pyspark.sql import SparkSession
from pyspark.sql.functions import make_date

from zero_rename.spark import save


def main() -> None:
    """Table, mode and partitions are handed on by Dagster's step; this says which rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", required=True)
    parser.add_argument("--last", required=True)
    ends = parser.parse_args()
    spark = SparkSession.builder.getOrCreate()
    rows = spark.read.csv(os.environ["FLIGHTS_CSV"], header=True, inferSchema=True, nullValue="NA")
    day = make_date("year", "month", "day")
    save(rows.where(day.between(ends.first, ends.last)), partition_by=["year", "month", "day"])


if __name__ == "__main__":
    main()

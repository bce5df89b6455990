"""One table read by Spark's own ``spark.read.parquet``, and by ``load``: seconds, as ratios.

The ways take turns in one session, after a warm-up; what is printed are medians, and their ratios
to ``spark.read.parquet`` of the table's root in the same run. All requests pass a proxy that counts
them and delays each answer, since a store on the same machine answers sooner than any S3 does::

    .venv/bin/python benchmarks/table_reads.py
    .venv/bin/python benchmarks/table_reads.py --server versitygw --rows 6000000 --latency 0

The jars are fetched as for the tests: ``python tools/fetch_s3a_jars.py``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT), str(ROOT / "benchmarks")]

from s3a_committers import started, timed  # noqa: E402

from tools import fetch_s3a_jars  # noqa: E402

PLAIN = "spark.read.parquet"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", default="moto", help="moto, versitygw or minio")
    parser.add_argument("--latency", type=float, default=0.01, help="seconds per request")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--days", type=int, default=20, help="partitions, a file each")
    given = parser.parse_args()
    fetch_s3a_jars.fetch_jars()
    with started(given.server, given.latency) as (application, proxy):
        place = application.place()
        fill(application.spark, place.root.url, given)
        measure(application.spark, place, proxy, given)


def fill(spark: Any, url: str, given: Any) -> None:
    """Orders: numbers, prices, dates and texts, as in TPC-H's lineitem."""
    from zero_rename.spark import save

    frame = spark.range(0, given.rows, 1, 2).selectExpr(
        "id orderkey",
        "cast(rand(1) * 200000 as int) partkey",
        "cast(rand(2) * 10000 as int) suppkey",
        "cast(rand(3) * 50 as decimal(15,2)) quantity",
        "cast(rand(4) * 100000 as decimal(15,2)) extendedprice",
        "cast(rand(5) / 10 as decimal(15,2)) discount",
        "date_add(date'1992-01-01', cast(rand(6) * 2500 as int)) shipdate",
        "substr(sha2(cast(id as string), 256), 1, 30) comment",
        f"cast(id * {given.days} / {given.rows} as int) day",
    )
    save(frame, url, partition_by=["day"])


def measure(spark: Any, place: Any, proxy: Any, given: Any) -> None:
    from zero_rename.spark import load

    url = place.root.url
    schema = load(spark, url).schema
    ways: dict[str, Callable[[], Any]] = {
        PLAIN: lambda: spark.read.schema(schema).parquet(place.url),
        "load, by Spark": lambda: load(spark, url, by="spark"),
        "load, by zero_rename": lambda: load(spark, url, by="zero_rename"),
        'format("zero_rename")': lambda: spark.read.format("zero_rename").load(url),
    }
    queries: dict[str, Callable[[Any], Any]] = {
        "one column": lambda frame: frame.selectExpr("sum(quantity)"),
        "a few rows": lambda frame: frame.where(f"orderkey = {given.rows // 2}"),
        "one day": lambda frame: frame.where("day = 3").selectExpr("max(extendedprice)"),
        "all columns": lambda frame: frame.selectExpr("max(struct(*))"),
    }
    for query, asked in queries.items():
        print(f"\n{query}")
        report(rounds(ways, asked, proxy, given.rounds))


def rounds(
    ways: dict[str, Callable[[], Any]], asked: Callable[[Any], Any], proxy: Any, number: int
) -> dict[str, list[tuple[float, int]]]:
    """Seconds and requests of each way, the warm-up left out; all ways find the same rows."""
    found: dict[str, list[tuple[float, int]]] = {way: [] for way in ways}
    answers: set[str] = set()
    for _ in range(number + 1):
        for way, frame in ways.items():
            read = lambda frame=frame: answers.add(repr(asked(frame()).collect()))  # noqa: E731
            found[way].append(timed(read, proxy))
    assert len(answers) == 1, answers
    return {way: runs[1:] for way, runs in found.items()}


def report(found: dict[str, list[tuple[float, int]]]) -> None:
    medians = {way: statistics.median(took for took, _ in runs) for way, runs in found.items()}
    for way, median in medians.items():
        ratio, requests = median / medians[PLAIN], found[way][-1][1]
        print(f"  {way:<22} {median:6.2f} s  {ratio:5.2f}  {requests:5} requests")


if __name__ == "__main__":
    main()

"""``save()``, which is ``mapInArrow``, beside ``format("zero_rename")``: seconds and their ratio.

``python benchmarks/save_ways.py [--rows 2000000] [--rounds 3]``. Both write the
same cached frames into new tables on one server, in turn, in one session; the median counts.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.moto_server import running
from support.spark import environment, settings

_numbers = itertools.count(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with running() as server, tempfile.TemporaryDirectory() as folder:
        os.environ.update(environment(server))
        server.client().create_bucket(Bucket="ways")
        spark = session(Path(folder))
        print(f"| frame | save() | format | ratio |  (Spark {spark.version})\n|---|---|---|---|")
        for name, frame, columns in frames(spark, asked.rows):
            frame.cache().count()
            seconds = compare(frame, columns, asked.rounds)
            ratio = seconds["save"] / seconds["format"]
            print(f"| {name} | {seconds['save']:.2f} s | {seconds['format']:.2f} s | {ratio:.2f} |")
            frame.unpersist()


def session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    from zero_rename.spark import register

    builder = SparkSession.builder.master("local[2]")
    for name, value in settings(folder).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def frames(spark: Any, rows: int) -> list[tuple[str, Any, list[str]]]:
    """Name, frame and partition columns."""
    many = spark.range(0, rows, 1, 2).selectExpr(
        "id", "id % 7 a", "cast(id as string) s", "id / 3.0D d", "id % 30 p"
    )
    return [
        ("one row", spark.range(1), []),
        (f"{rows:,} rows", many, []),
        (f"{rows:,} rows, 30 partitions, unsorted", many, ["p"]),
    ]


def compare(frame: Any, columns: list[str], rounds: int) -> dict[str, float]:
    """Median seconds of each way, after a round that does not count."""
    ways: dict[str, Callable[[str], object]] = {
        "save": lambda url: by_save(frame, columns, url),
        "format": lambda url: by_format(frame, columns, url),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            started = time.monotonic()
            way(f"s3://ways/t{next(_numbers)}")
            if number:
                took[name].append(time.monotonic() - started)
    return {name: statistics.median(seconds) for name, seconds in took.items()}


def by_save(frame: Any, columns: list[str], url: str) -> None:
    from zero_rename.spark import save

    save(frame, url, partition_by=columns)


def by_format(frame: Any, columns: list[str], url: str) -> None:
    writer = frame.write.format("zero_rename").mode("append")
    (writer.option("partitionBy", ",".join(columns)) if columns else writer).save(url)


if __name__ == "__main__":
    main()

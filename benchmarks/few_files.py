"""``save()`` with ``distribute`` ``none`` and ``partition``: files, bytes, requests, seconds, CPU.

``PYTHONPATH=benchmarks:tests:. .venv/bin/python benchmarks/few_files.py [--rounds 3]``. The ways
write the same cached frames into new tables on one server, in turn, in one session with four task
slots, after a round that does not count; the median counts. A proxy delays every answer. CPU is
that of the JVM and of Spark's Python workers.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench.store import DelayedStore, delayed
from support.spark import settings
from zero_rename.spark import save

_BUCKET = "few-files"
_numbers = itertools.count(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--rows", type=int, default=4_000_000, help="of the larger frames")
    parser.add_argument("--latency", type=float, default=0.03, help="seconds of every answer")
    asked = parser.parse_args()
    with delayed("moto") as store, tempfile.TemporaryDirectory() as folder:
        os.environ.update(store.behind.environment())
        os.environ.update(ZERO_RENAME_LOG_LEVEL="WARNING", PYSPARK_PYTHON=sys.executable)
        store.make_bucket(_BUCKET)
        spark = session(Path(folder))
        print("| frame | `distribute` | files | bytes | requests | seconds | CPU |")
        print("|---|---|---:|---:|---:|---:|---:|", flush=True)
        for name, frame in frames(spark, asked.tasks, asked.rows):
            frame.cache().count()
            measure(store, name, frame, asked.rounds, asked.latency)
            frame.unpersist()


def session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    more = {"spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "200"}
    given = settings(folder) | more | {"spark.driver.memory": "4g"}
    return SparkSession.builder.master("local[4]").config(map={**given}).getOrCreate()


def frames(spark: Any, tasks: int, rows: int) -> list[tuple[str, Any]]:
    columns = ("id", "cast(hash(id) as string) s", "rand(1) d")
    small = spark.range(0, 70_000, 1, 8).selectExpr(*columns, "id % 10 day")
    large = spark.range(0, rows, 1, 8)
    return [
        (f"70,000 rows, 10 days, `repartition({tasks})`", small.repartition(tasks)),
        (f"{rows:,} rows, 30 days, 8 tasks", large.selectExpr(*columns, "id % 30 day")),
        ("… each task has its own days", large.selectExpr(*columns, f"id div {rows // 32} day")),
        ("… all of one day", large.selectExpr(*columns, "1 day")),
    ]


def measure(store: DelayedStore, name: str, frame: Any, rounds: int, latency: float) -> None:
    took: dict[str, list[tuple[float, float]]] = {"none": [], "partition": []}
    said: dict[str, str] = {}
    for number in range(rounds + 1):
        for way, found in took.items():
            url = f"s3://{_BUCKET}/table{next(_numbers)}"
            store.delay(latency)
            started, used = time.monotonic(), cpu()
            done = save(frame, url, partition_by=["day"], distribute=way)
            assert done is not None
            took_now = time.monotonic() - started, cpu() - used
            requests = sum(store.traffic().requests.values())
            said[way] = f"{done.files:,} | {done.bytes:,} | {requests:,}"
            if number:
                found.append(took_now)
    for way, found in took.items():
        seconds, used = (statistics.median(it) for it in zip(*found, strict=True))
        print(f"| {name} | `{way}` | {said[way]} | {seconds:.1f} | {used:.1f} |", flush=True)


def cpu() -> float:
    """Seconds of CPU that Spark's processes have taken: the JVM and its workers."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if "java" in process.name() or "pyspark" in " ".join(process.cmdline()):
                total += sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return total


if __name__ == "__main__":
    main()

"""What a small task of ``save()`` costs the Python workers, beside one that does nothing.

``.venv/bin/python benchmarks/task_cost.py [--tasks 64] [--rounds 3]``. Each way runs in workers of
its own, in turn, in one session, twice: what counts is the second call, whose workers have imported
all they need; of several rounds the median. CPU is that of the Python workers alone, which a busy
machine changes little; seconds are those of the call.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.moto_server import running
from support.spark import environment, settings
from zero_rename.spark import save

_numbers = itertools.count(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with running() as server, tempfile.TemporaryDirectory() as folder:
        os.environ.update(environment(server) | {"ZERO_RENAME_LOG_LEVEL": "WARNING"})
        server.client().create_bucket(Bucket="tasks")
        spark = session(Path(folder))
        found: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in ways(spark, 1)}
        for _ in range(asked.rounds):
            for name, way in ways(spark, asked.tasks):
                measured(spark, name, way)  # Spark ends workers that were idle for a minute.
                found[name].append(measured(spark, name, way))
        report(spark, found, asked.tasks)


def session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", False)
    for name, value in settings(folder).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def ways(spark: Any, tasks: int) -> Iterator[tuple[str, Callable[[], object]]]:
    rows = spark.range(0, tasks, 1, tasks)
    none = rows.where("id < 0")
    yield "`mapInArrow` that does nothing", lambda: none.mapInArrow(nothing, "id long").collect()
    for freeze in ("false", "true"):
        given = {"freezeWorkers": freeze}
        yield (
            f"`save()`, no rows, `freezeWorkers` {freeze}",
            lambda given=given: save(none, url(), options=given),
        )
        yield (
            f"`save()`, a row a task, `freezeWorkers` {freeze}",
            lambda given=given: save(rows, url(), options=given),
        )


def nothing(batches: Any) -> Any:
    for _ in batches:
        pass
    return iter(())


def url() -> str:
    return f"s3://tasks/table{next(_numbers)}"


def measured(spark: Any, name: str, way: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and CPU of the workers."""
    context = spark.sparkContext
    before = context.environment
    context.environment = before | {"WORKERS_OF": name}
    started, used = time.monotonic(), cpu_of_workers()
    try:
        way()
    finally:
        context.environment = before
    took = time.monotonic() - started
    time.sleep(0.2)  # A worker collects garbage when its last task is over.
    return took, sum(cpu - used.get(pid, 0.0) for pid, cpu in cpu_of_workers().items())


def cpu_of_workers() -> dict[int, float]:
    """Seconds of CPU that each worker which is there has used."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        try:
            if "pyspark.daemon" in process.cmdline():
                times = process.cpu_times()
                found[process.pid] = times.user + times.system
        except psutil.Error:
            continue
    return found


def report(spark: Any, found: dict[str, list[tuple[float, float]]], tasks: int) -> None:
    print(f"| {tasks} tasks, two at once, Spark {spark.version} | CPU of the workers | seconds |")
    print("|---|---:|---:|")
    floor = None
    for name, rounds in found.items():
        took, used = (statistics.median(values) for values in zip(*rounds, strict=True))
        floor = floor or (took, used)
        print(
            f"| {name} | {used:.2f} s, {used / floor[1]:.1f} | "
            f"{took:.1f} s, {took / floor[0]:.1f} |"
        )


if __name__ == "__main__":
    main()

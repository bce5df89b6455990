"""What runs in a Spark session: this project, Hadoop's committers, and plain Parquet."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench import rows as made
from bench.workloads import QUERIES, Workload, input_of

#: Of the session: what the tests have for speed of start would make its JVM slow in the long run.
MEMORY, SLOTS = "3g", 4


class SparkSide:
    """A session with four task slots, with Hadoop's jars where ``SPARK_SETTINGS`` names some."""

    def __init__(self, folder: Path) -> None:
        from pyspark.sql import SparkSession

        from zero_rename.spark import register

        self.folder = folder
        settings = {
            **json.loads(os.environ["SPARK_SETTINGS"]),
            "spark.driver.memory": MEMORY,
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} -XX:-UsePerfData",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.hadoop.hadoop.tmp.dir": str(folder / "hadoop"),
            "spark.hadoop.fs.s3a.committer.staging.tmp.path": f"file://{folder}/staging",
        }
        builder = SparkSession.builder.master(f"local[{SLOTS}]").appName("bench")
        self.spark: Any = builder.config(map=settings).getOrCreate()
        if self.spark.version >= "4.1":  # Else it has no format of ours.
            register(self.spark)
        self._frame: tuple[Any, Any] = (None, None)
        #: What is merged next.
        self.source: Any = None
        #: What the program that runs has made.
        self.made: Any = None

    def close(self) -> None:
        self.spark.stop()

    def prepare(self, workload: Workload) -> None:
        """Have the rows in memory: what computes them is nobody's."""
        if workload.verb == "program":
            return  # Its rows are another table's.
        if workload.verb == "merge":
            self.source = self.spark.createDataFrame(made.source(workload)).cache()
            self.source.count()
        else:
            self.frame(workload).count()

    def frame(self, workload: Workload) -> Any:
        """``id``, an integer, a text and a number with a fraction; ``day`` is the partition. Of a
        program that runs, what it makes of its input."""
        if self.made is not None:
            return self.made
        shape = (workload.rows, workload.tasks, workload.partitions, workload.ordered)
        if self._frame[0] != shape:
            self.spark.catalog.clearCache()
            columns = [
                "id",
                "cast(id % 7 as int) a",
                "cast(id * 2654435761 % 4294967296 as string) s",
                "id / 3.0D d",
            ]
            if workload.partitions:
                any_order = f"id * 2654435761 % 4294967296 % {workload.partitions}"
                in_order = f"id * {workload.partitions} div {workload.rows}"
                columns.append(f"cast({in_order if workload.ordered else any_order} as int) day")
            rows = self.spark.range(0, workload.rows, 1, workload.tasks).selectExpr(*columns)
            self._frame = (shape, rows.cache())
        return self._frame[1]

    @contextlib.contextmanager
    def workers(self, name: str) -> Iterator[None]:
        """Python workers that no other peer has used: what one froze stays frozen."""
        context = self.spark.sparkContext
        before = context.environment
        context.environment = before | {"WORKERS_OF": name}
        try:
            yield
        finally:
            context.environment = before


def _by(workload: Workload) -> list[str]:
    return ["day"] if workload.partitions else []


def save(
    mode: str = "append", layout: str | None = None, **options: str
) -> Callable[[SparkSide, Workload, str], None]:
    """``save()``, with options in workers of its own."""

    def act(side: SparkSide, workload: Workload, url: str) -> None:
        from zero_rename.spark import save

        with side.workers(_pool(options)):
            frame, by = side.frame(workload), _by(workload)
            save(frame, url, partition_by=by, mode=mode, layout=layout, options=options)

    return act


#: By the query of the verb ``program``: rows of its input, and how many files it is to write.
_PROGRAMS: dict[str, Callable[[Any, int], Any]] = {
    "copy": lambda rows, files: rows.repartition(files),
    "word count": lambda rows, _: rows.groupBy("a").count().coalesce(1),
    "sort": lambda rows, files: rows.repartitionByRange(files, "s").sortWithinPartitions("s"),
}


def program(
    write: Callable[[SparkSide, Workload, str], object], *, ours: bool
) -> Callable[[SparkSide, Workload, str], None]:
    """Read a table, and write another one.

    :param ours: read it by ``load()``, not as a folder.
    """

    def act(side: SparkSide, workload: Workload, url: str) -> None:
        from zero_rename.spark import load

        where = input_of(url)
        parquet = side.spark.read.parquet
        rows = load(side.spark, where) if ours else parquet(where.replace("s3:", "s3a:"))
        side.made = _PROGRAMS[workload.query](rows, workload.tasks)
        try:
            write(side, workload, url)
        finally:
            side.made = None

    return act


def merge(side: SparkSide, _: Workload, url: str) -> None:
    from zero_rename.spark import merge

    with side.workers(_pool({})):
        merge(side.source, url, on=made.KEYS)


def prime(**options: str) -> Callable[[SparkSide, Workload, str], None]:
    """Rows of a task for each slot, into a table of their own."""

    def act(side: SparkSide, _: Workload, url: str) -> None:
        from zero_rename.spark import save

        with side.workers(_pool(options)):
            save(side.spark.range(0, SLOTS, 1, SLOTS), url, options=options)

    return act


def _pool(options: Mapping[str, str]) -> str:
    return "workers" + options.get("freezeWorkers", "")


def by_format(side: SparkSide, workload: Workload, url: str) -> None:
    writer = side.frame(workload).write.format("zero_rename").mode("append")
    if workload.partitions:
        writer = writer.option("partitionBy", "day")
    writer.save(url)


def prime_format(side: SparkSide, _: Workload, url: str) -> None:
    """As :func:`prime`: a data source's workers are others, since it keeps the variables that it
    was registered with."""
    rows = side.spark.range(0, SLOTS, 1, SLOTS)
    rows.write.format("zero_rename").mode("append").save(url)


def nothing(side: SparkSide, workload: Workload, url: str) -> None:
    with side.workers("nothing"):
        side.frame(workload).where("id < 0").mapInArrow(_nothing, "id long").collect()


def _nothing(batches: Any) -> Any:
    for _ in batches:
        pass
    return iter(())


def by_committer(name: str, **given: Any) -> Callable[[SparkSide, Workload, str], None]:
    """One of Hadoop's, as this project sets it."""

    def append(side: SparkSide, workload: Workload, url: str) -> None:
        from support.hadoop_committers import set_in
        from zero_rename.s3a.hadoop.settings import Committer, S3ASettings

        with set_in(side.spark, S3ASettings(Committer(name), **given).spark_conf()):
            _write(side, workload, url.replace("s3:", "s3a:"))

    return append


def rename(algorithm: int, dynamic: bool = False) -> Callable[[SparkSide, Workload, str], None]:
    """Spark's own committer, by one of Hadoop's two algorithms."""

    def write(side: SparkSide, workload: Workload, url: str) -> None:
        from support.hadoop_committers import RENAMING, set_in
        from zero_rename.s3a.hadoop.settings import ALGORITHM_KEY

        settings = {**RENAMING, ALGORITHM_KEY: str(algorithm)}
        if dynamic:
            settings["spark.sql.sources.partitionOverwriteMode"] = "dynamic"
        with set_in(side.spark, settings):
            mode = "overwrite" if dynamic else "append"
            _write(side, workload, url.replace("s3:", "s3a:"), mode)

    return write


def locally(side: SparkSide, workload: Workload, url: str) -> None:
    from support.hadoop_committers import RENAMING, set_in

    with set_in(side.spark, RENAMING):
        _write(side, workload, f"file://{side.folder}/{url.removeprefix('s3://')}")


def _write(side: SparkSide, workload: Workload, url: str, mode: str = "append") -> None:
    writer = side.frame(workload).write.mode(mode).option("compression", "zstd")
    (writer.partitionBy("day") if workload.partitions else writer).parquet(url)


def load_by(way: str) -> Callable[[SparkSide, Workload, str], int]:
    """This project's reading, by Spark's Parquet reader or by its own."""

    def read(side: SparkSide, workload: Workload, url: str) -> int:
        from zero_rename.spark import load

        condition, column = QUERIES[workload.query]
        given: Any = {"where": "{} {} {}".format(*condition) if condition else None}
        given["columns"] = [column] if column else None
        with side.workers(_pool({})):
            return all_of(load(side.spark, url, by=way, **given))

    return read


def read_format(side: SparkSide, workload: Workload, url: str) -> int:
    with side.workers(_pool({})):
        frame = side.spark.read.format("zero_rename").load(url)
        return all_of(asked(frame, workload))


def read_parquet(side: SparkSide, workload: Workload, url: str) -> int:
    return all_of(asked(side.spark.read.parquet(url.replace("s3:", "s3a:")), workload))


def asked(frame: Any, workload: Workload) -> Any:
    condition, column = QUERIES[workload.query]
    rows = frame.where("{} {} {}".format(*condition)) if condition else frame
    return rows.select(column) if column else rows


def all_of(frame: Any) -> int:
    """How many rows, every column of them looked at."""
    return frame.selectExpr("count(1) n", "max(struct(*))").first().n

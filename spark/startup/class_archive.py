"""Maker of the class archive that :func:`.launch.jvm_options` uses.

``python -m zero_rename.spark.startup.class_archive`` runs one small Spark application with the
operations of small jobs (read CSV, sort, write and read through a Python data source), and lets its
JVM write the classes that it loaded to the user's cache folder: about 160 MB, in under a minute,
once for each Java and Spark. ``--force`` makes it again.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from ...committer.errors import InvalidInputError
from .launch import SMALL_JOB_FLAGS, archive_path, java_option

_TIMEOUT = 300.0
#: A stand-alone program. Its operations decide which classes the archive holds.
_TRAINING = """
import sys
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource, DataSourceArrowWriter, DataSourceReader, InputPartition, WriterCommitMessage)

class Writer(DataSourceArrowWriter):
    def write(self, iterator):
        for _ in iterator:
            pass
        return WriterCommitMessage()

class Reader(DataSourceReader):
    def partitions(self):
        return [InputPartition(1), InputPartition(2)]
    def read(self, partition):
        yield pa.record_batch({"n": pa.array([1, 2, 3], pa.int64())})

class Training(DataSource):
    @classmethod
    def name(cls):
        return "training"
    def schema(self):
        return "n bigint"
    def writer(self, schema, overwrite):
        return Writer()
    def reader(self, schema):
        return Reader()

folder = sys.argv[1]
with open(folder + "/in.csv", "w") as file:
    file.write("a,b,c\\n" + "".join(f"{i},x{i},{i}.5\\n" for i in range(100)))
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", folder + "/warehouse")
    .getOrCreate()
)
spark.dataSource.register(Training)
frame = spark.read.csv(folder + "/in.csv", header=True, inferSchema=True)
frame = frame.selectExpr("a", "b", "c", "a % 3 as p", "date'2013-01-01' + cast(a as int) as d")
frame.repartition(2, "p").sortWithinPartitions("p").write.format("training").mode("append").save()
frame.where("b like 'x1%'").write.format("training").mode("overwrite").save()
spark.createDataFrame([(1, "x")], "a int, b string").write.format("training").mode("append").save()
loaded = spark.read.format("training").load()
loaded.where("n > 1").groupBy("n").count().orderBy("n").collect()
frame.write.mode("overwrite").partitionBy("p").parquet(folder + "/out")
spark.read.parquet(folder + "/out").where("p = 1").groupBy("p").count().collect()
spark.stop()
"""


def make(path: Path, training: str = _TRAINING, variables: Mapping[str, str] = os.environ) -> None:
    """Make the class archive at ``path``; a failed attempt leaves none.

    :param training: a program that starts a session; its argument is a folder for its files.
    :param variables: its environment variables.
    :raises InvalidInputError: Spark or Java failed; the message ends with their output.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="zero-rename-") as folder:
        part = path.with_name(f".{path.name}.{os.getpid()}")
        made = java_option(f"-XX:ArchiveClassesAtExit={part}")
        flags = [*SMALL_JOB_FLAGS, made, "-Xlog:cds*=off"]
        script = Path(folder) / "training.py"
        script.write_text(training, "utf-8")
        setting = f"spark.driver.extraJavaOptions={' '.join(flags)}"
        environment = {
            **variables,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"--conf {shlex.quote(setting)} pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        try:
            answer = subprocess.run(
                [sys.executable, script, folder],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT,
            )
            if answer.returncode != 0 or not part.is_file():
                said = " ".join((answer.stderr or answer.stdout).split())[-600:]
                raise InvalidInputError(
                    f"The class archive was not made (exit {answer.returncode}): {said}",
                    remedy="Small jobs work without it, a few seconds slower. Check that a plain "
                    "PySpark session starts.",
                )
            os.replace(part, path)
        except subprocess.TimeoutExpired as error:
            raise InvalidInputError(
                f"The class archive was not made within {_TIMEOUT:.0f} s.",
                remedy="Small jobs work without it. Try again on a less busy machine.",
            ) from error
        finally:
            part.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m zero_rename.spark.startup.class_archive")
    parser.add_argument("--force", action="store_true", help="make it even if it is there")
    options = parser.parse_args(arguments)
    try:
        path = archive_path()
        if path.is_file() and not options.force:
            print(f"class archive is there: {path}")
            return 0
        started = time.monotonic()
        make(path)
    except InvalidInputError as error:
        print(error, file=sys.stderr)
        return 1
    megabytes = path.stat().st_size / 1e6
    print(f"class archive made in {time.monotonic() - started:.0f} s, {megabytes:.0f} MB: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

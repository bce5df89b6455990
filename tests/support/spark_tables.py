"""What tests of the data source do over and over: write, read back, fetch the files."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write(frame: Any, url: str, mode: str = "append", **options: str) -> None:
    frame.write.format("zero_rename").mode(mode).options(**options).save(url)


def read(spark: Any, url: str, **options: str) -> Any:
    return spark.read.format("zero_rename").options(**options).load(url)


def rows(frame: Any) -> list[Any]:
    """The rows of a frame, in an order that does not depend on Spark's."""
    return sorted((row.asDict(True) for row in frame.collect()), key=repr)


def data_keys(bucket: Any, prefix: str = "") -> list[str]:
    """Keys of data files."""
    keys = bucket.keys(prefix)
    return [key for key in keys if key.endswith(".parquet") and "/_zero_rename/" not in key]


def open_records(bucket: Any, prefix: str) -> list[str]:
    return bucket.keys(f"{prefix}/_zero_rename/open/")


def download(bucket: Any, prefix: str, folder: Path) -> Path:
    """A table's data files as a local directory tree."""
    for key in data_keys(bucket, prefix):
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bucket.read(key))
    return folder / prefix


@contextmanager
def worker_environment(spark: Any, **variables: str):
    """Let the data source's workers have these variables: registration keeps the environment of
    its moment."""
    from zero_rename.spark import register

    environment = spark.sparkContext.environment
    before = dict(environment)
    environment.update(variables)
    try:
        register(spark)
        yield
    finally:
        environment.clear()
        environment.update(before)
        register(spark)

"""Sizes of the files of one task, ours and those of Spark's own Parquet writer, from the same rows.

The rows are those of an order book: keys, numbers, prices as decimals, few and many different
texts, dates. They come in no order, as one task of Spark, once without partitions and once for
each number of them. What is printed are bytes, row groups and seconds, and ours in Spark's::

    .venv/bin/python benchmarks/file_sizes.py
    .venv/bin/python benchmarks/file_sizes.py --rows 500000 --partitions 0 --compression snappy

Nothing is uploaded: files are written to a temporary directory.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from support.spark import settings  # noqa: E402
from zero_rename.committer.format.job_spec import FileOptions  # noqa: E402
from zero_rename.committer.format.layout import TableRoot, new_job_id  # noqa: E402
from zero_rename.committer.format.parquet.task_writer import TaskWriter  # noqa: E402
from zero_rename.committer.store.requests import ObjectSettings  # noqa: E402

#: What Spark hands to a writer at once.
_BATCH_ROWS = 10_000
_WORDS = "furiously ironic deposits sleep above the quickly regular pinto beans among theodolites"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--partitions", default="0,366,5000", help="numbers of them; 0 for none")
    parser.add_argument("--compression", default="zstd", help="zstd, snappy, gzip or none")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = spark_session(folder)
        for count in map(int, given.partitions.split(",")):
            rows = order_lines(given.rows, count)
            theirs = by_spark(spark, folder / f"spark-{count}", rows, count, given.compression)
            ours = by_us(folder / f"ours-{count}", rows, count, given.compression)
            print(f"{given.rows} rows, {count or 'no'} partitions, {given.compression}")
            print(f"  Spark {spark.version}: {theirs}\n  zero-rename: {ours}")
            print(f"  ours in Spark's: {ours.bytes / theirs.bytes:.3f} of the bytes", flush=True)


@dataclass(frozen=True)
class FolderSize:
    """What a writer left in a folder."""

    files: int
    bytes: int
    row_groups: int
    seconds: float

    def __str__(self) -> str:
        size = f"{self.bytes / 1e6:.2f} MB in {self.files} files"
        return f"{size}, {self.row_groups} row groups, {self.seconds:.1f} s"


def order_lines(count: int, partitions: int) -> pa.Table:
    """Rows in no order; ``bucket`` is the column to partition by."""
    random = np.random.default_rng(7)
    words = np.array(_WORDS.split())
    text = pa.array([" ".join(words[n]) for n in random.integers(0, len(words), (count, 4))])

    def of(*names: str) -> pa.Array:
        return pa.array(np.array(names)[random.integers(0, len(names), count)])

    def money(highest: int, digits: int) -> pa.Array:
        cents = pa.array(random.integers(100, highest, count)).cast(pa.decimal128(19, 0))
        cent = pa.scalar("0.01").cast(pa.decimal128(3, 2))
        return pc.call_function("multiply", [cents, cent]).cast(pa.decimal128(digits, 2))

    return pa.table(
        {
            "order": np.sort(random.integers(0, count * 4, count)),
            "part": random.integers(0, 200_000, count),
            "supplier": random.integers(0, 10_000, count, dtype=np.int32),
            "quantity": money(5_000, 7),
            "price": money(10_000_000, 15),
            "discount": money(111, 5),
            "weight": random.normal(20, 5, count),
            "flag": of("A", "N", "R"),
            "mode": of("AIR", "FOB", "MAIL", "RAIL", "SHIP", "TRUCK", "REG AIR"),
            "shipped": pa.array(random.integers(8000, 10500, count, dtype=np.int32), pa.date32()),
            "scanned": pa.array(
                random.integers(0, 10**9, count) * 1_000_000, pa.timestamp("us", "UTC")
            ),
            "comment": text,
            "bucket": random.integers(0, max(1, partitions), count, dtype=np.int32),
        }
    )


def spark_session(folder: Path) -> SparkSession:
    given = settings(folder) | {
        "spark.driver.memory": "4g",
        "spark.sql.files.maxPartitionBytes": "16g",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    return SparkSession.builder.master("local[1]").config(map={**given}).getOrCreate()


def by_spark(
    spark: SparkSession, folder: Path, rows: pa.Table, partitions: int, compression: str
) -> FolderSize:
    source = folder.with_suffix(".source")
    pq.write_table(rows, source, compression="none", row_group_size=len(rows))
    frame = spark.read.parquet(str(source))
    writing: Any = frame.write.option("compression", compression)
    if partitions:
        writing = writing.partitionBy("bucket")
    return timed(folder, lambda: writing.parquet(str(folder)))


class LocalStream:
    """A file in the place of an upload."""

    def __init__(self, folder: Path, key: str) -> None:
        self.key = key
        self._path = folder / key
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("wb")

    def begin(self) -> None:
        """The file is there."""

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def seal(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def abort(self) -> None:
        self._file.close()

    @property
    def upload(self) -> Any:
        return LocalUpload(self.key, self._path.stat().st_size)


@dataclass(frozen=True)
class LocalUpload:
    """What a task reports of a file."""

    key: str
    size: int
    upload_id: str = "local"
    etags: tuple[str, ...] = ()
    checksum: str = hashlib.sha256().hexdigest()


def by_us(folder: Path, rows: pa.Table, partitions: int, compression: str) -> FolderSize:
    def stream(key: str, settings: ObjectSettings) -> LocalStream:
        return LocalStream(folder, key)

    by = ("bucket",) if partitions else ()
    options = FileOptions(compression=compression)
    task = TaskWriter(
        TableRoot("bucket", "orders"), new_job_id(), 0, 0, rows.schema, by, options, stream
    )

    def write() -> None:
        for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
            task.write(batch)
        task.close()

    return timed(folder, write)


def timed(folder: Path, write: Callable[[], None]) -> FolderSize:
    began = time.monotonic()
    write()
    seconds = time.monotonic() - began
    files = list(folder.rglob("*.parquet"))
    groups = sum(pq.read_metadata(file).num_row_groups for file in files)
    return FolderSize(len(files), sum(file.stat().st_size for file in files), groups, seconds)


if __name__ == "__main__":
    main()

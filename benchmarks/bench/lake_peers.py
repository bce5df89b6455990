"""Delta Lake and Apache Iceberg on Spark itself, in a session of the latest Spark that they serve.

Delta's tables lie where the URL says. Iceberg's are a catalog's, kept in SQLite on this machine:
its swap of the table's pointer costs no request, and no answer of it is late.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import rows as made
from bench.spark_peers import SparkSide, all_of, asked
from bench.workloads import ICEBERG, Workload, slug
from support.delta_settings import EXTENSION, delta_settings

if TYPE_CHECKING:
    from torture.servers import Store

_CATALOG = "lake"
_EXTENSIONS = (EXTENSION, "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
_MATCH = " and ".join(f"t.{key} = source.{key}" for key in made.KEYS)


def settings(store: Store, jars: tuple[Path, ...], folder: Path) -> Mapping[str, str]:
    """What the session is started with.

    :param folder: for Iceberg's catalog; a new one.
    """
    catalog = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{folder}/iceberg.db",
        ".jdbc.schema-version": "V1",
        ".warehouse": f"s3://bench-{slug(ICEBERG)}/warehouse",
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": store.endpoint,
        ".s3.path-style-access": "true",
        ".client.region": "us-east-1",
    }
    return {
        **delta_settings(store.endpoint, jars),
        "spark.sql.extensions": ",".join(_EXTENSIONS),
        **{f"spark.sql.catalog.{_CATALOG}{name}": value for name, value in catalog.items()},
        "spark.sql.parquet.compression.codec": "zstd",
        # Two requests a file instead of four, for all that S3A reads (docs/guides/cheap-reads.md).
        "spark.hadoop.fs.s3a.input.stream.type": "analytics",
    }


def delta(side: SparkSide, workload: Workload, url: str) -> None:
    _delta(side, workload).mode("append").save(_s3a(url))


def delta_replace(side: SparkSide, workload: Workload, url: str) -> None:
    writer = _delta(side, workload).mode("overwrite")
    writer.option("partitionOverwriteMode", "dynamic").save(_s3a(url))


def delta_merge(side: SparkSide, _: Workload, url: str) -> None:
    _merge(side, f"delta.`{_s3a(url)}`")


def delta_check(side: SparkSide, workload: Workload, url: str) -> int:
    return made.check(workload, _read_delta(side, url).toArrow())


def delta_read(side: SparkSide, workload: Workload, url: str) -> int:
    return all_of(asked(_read_delta(side, url), workload))


def iceberg(side: SparkSide, workload: Workload, url: str) -> None:
    _iceberg(side, workload, url).append()


def iceberg_replace(side: SparkSide, workload: Workload, url: str) -> None:
    _iceberg(side, workload, url).overwritePartitions()


def iceberg_merge(side: SparkSide, _: Workload, url: str) -> None:
    _merge(side, _table(url))


def iceberg_check(side: SparkSide, workload: Workload, url: str) -> int:
    return made.check(workload, side.spark.table(_table(url)).toArrow())


def iceberg_read(side: SparkSide, workload: Workload, url: str) -> int:
    return all_of(asked(side.spark.table(_table(url)), workload))


def iceberg_read_newest(side: SparkSide, workload: Workload, url: str) -> int:
    side.spark.sql(f"refresh table {_table(url)}")
    return iceberg_read(side, workload, url)


def _delta(side: SparkSide, workload: Workload) -> Any:
    writer = side.frame(workload).write.format("delta")
    return writer.partitionBy("day") if workload.partitions else writer


def _read_delta(side: SparkSide, url: str) -> Any:
    return side.spark.read.format("delta").load(_s3a(url))


def _iceberg(side: SparkSide, workload: Workload, url: str) -> Any:
    """A writer of the workload's rows; the table is made where it is not there."""
    from pyspark.sql.functions import col

    frame, table = side.frame(workload), _table(url)
    side.spark.sql(f"create namespace if not exists {_CATALOG}.db")
    if not side.spark.catalog.tableExists(table):
        new = frame.limit(0).writeTo(table).using("iceberg")
        given = {"location": url, "write.parquet.compression-codec": "zstd"}
        for name, value in given.items():
            new = new.tableProperty(name, value)
        (new.partitionedBy(col("day")) if workload.partitions else new).create()
    return frame.writeTo(table)


def _merge(side: SparkSide, table: str) -> None:
    side.source.createOrReplaceTempView("source")
    side.spark.sql(
        f"merge into {table} t using source on {_MATCH} "
        "when matched then update set * when not matched then insert *"
    )


def _s3a(url: str) -> str:
    return url.replace("s3:", "s3a:")


def _table(url: str) -> str:
    return f"{_CATALOG}.db.{slug(url.rpartition('/')[2]).replace('-', '_')}"

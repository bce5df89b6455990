"""Settings of a Spark session with Delta Lake's own jars, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"


def delta_settings(endpoint: str, jars: Iterable[Path]) -> dict[str, str]:
    """The session reads and writes Delta tables on an S3 server, whose keys its environment has.

    :param jars: on the driver's class path.
    """
    return {
        "spark.driver.extraClassPath": ":".join(map(str, jars)),
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }

"""Delta on Spark 4.1, in a process of its own environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from support.delta_settings import delta_settings
from support.engine_process import EngineProcess, engine_process
from support.moto_server import S3Server
from support.older_python import older_python
from support.spark import ROOMY, SETTINGS, environment
from tools.environments import SPARK_4_1
from tools.fetch_lake_jars import delta_folder
from tools.s3_servers import in_ci
from zero_rename.spark.startup.launch import jvm_options

_PROGRAM = Path(__file__).with_name("spark_engine.py")
#: Of a session that runs many small statements. Without checksum files of Hadoop's own, which
#: would contradict what others write into a folder.
_SMALL = {
    "spark.master": "local[2]",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.default.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    # S3A would keep its blocks by a file system with such checksums.
    "spark.hadoop.fs.s3a.fast.upload.buffer": "array",
}


def delta_jars() -> tuple[Path, ...]:
    """Delta's jars. A test is skipped where there are none, and fails in continuous integration."""
    jars = delta_folder().cached()
    if jars is None:
        why = "there are no jars of Delta Lake: run make lake-jars"
        if in_ci():
            pytest.fail(why)
        pytest.skip(why)
    return jars


def delta_spark(
    folder: Path, server: S3Server, settings: Mapping[str, str] | None = None
) -> AbstractContextManager[EngineProcess]:
    """Start a session; a test is skipped where its parts were not fetched.

    :param folder: for whatever Spark writes.
    :param server: for tables on S3.
    """
    python, jars = older_python(SPARK_4_1), delta_jars()
    given = {
        **SETTINGS,
        **_SMALL,
        "spark.driver.extraJavaOptions": f"{jvm_options()} {ROOMY} -Dderby.system.home={folder}",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
        **delta_settings(server.endpoint, jars),
        **(settings or {}),
    }
    return engine_process(
        [python, _PROGRAM, json.dumps(given)],
        {**environment(server), "PYSPARK_PYTHON": str(python)},
        folder / "spark.log",
    )

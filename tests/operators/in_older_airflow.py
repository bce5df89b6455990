"""Loads and sensors on the oldest Airflow, run there by ``test_older_airflow.py``: its Python has
that Airflow, pytest and the wheel, and the environment an S3 server and a home with a database."""

from __future__ import annotations

import asyncio
import importlib
import os
import pkgutil
import re
import stat
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import airflow
import pytest

import zero_rename
from zero_rename.provider import get_provider_info
from zero_rename.provider.connection import ConnectionSettings
from zero_rename.provider.hooks import ZeroRenameHook

BUCKET = "older-airflow"
TABLE = f"s3://{BUCKET}/wh/flights"
DAY = "year=2013/month=2/day=1"
EXAMPLES = Path(zero_rename.__file__).parent / "example_dags"
#: Writes a row of a day, by the options and variables of the data source, with no Spark.
APPLICATION = """
import os
import pyarrow as pa
from zero_rename import committer
from zero_rename.spark.options import read_writer_options

url = os.environ["ZERO_RENAME_TABLE"]
options = read_writer_options({"path": url, "partitionBy": "year,month,day"}, os.environ)
day = int(options.replace_partitions[0].rsplit("=")[-1])
row = {"year": [2013], "month": [2], "day": [day], "flight": ["f1"]}
columns = [("year", pa.int32()), ("month", pa.int32()), ("day", pa.int32()), ("flight", "string")]
table = pa.table(row).cast(pa.schema(columns))
more = {}
if not options.publish:
    from zero_rename.tables import DeltaTable
    more = {"publish": False}
job = (DeltaTable if more else committer.Table)(url).job(
    table.schema,
    mode=options.mode(bool(options.replace_partitions)),
    partition_by=options.partition_by,
    replace_partitions=options.replace_partitions,
    idempotency_key=options.idempotency_key,
    on_repeat=options.on_repeat,
    on_conflict=options.on_conflict,
    on_superseded=options.on_superseded,
    run_rank=options.run_rank,
    owner=options.owner("test"),
    **more,
)
with job:
    job.write(table)
raise SystemExit(int(os.environ.get("TEST_STATUS", "0")))
"""


#: Holds rows back, looks at them, and publishes or aborts them; and takes a job back.
AUDITED = f"""
from datetime import datetime
from airflow import DAG, Dataset
from airflow.decorators import task
from airflow.models.baseoperator import chain
from zero_rename.operators.publishing import AbortLoadOperator, PublishLoadOperator
from zero_rename.operators.restoring import RestoreTableOperator
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.provider.hooks import ZeroRenameHook

JOB = "{{{{ (ti.xcom_pull('load') or {{}}).get('job', '') }}}}"

@task
def audit(job, params=None):
    rows = ZeroRenameHook().get_delta_table("audited").scan(job=job).to_arrow().num_rows
    if rows != params["rows"]:
        raise ValueError(f"{{rows}} rows")

with DAG("audited", schedule=None, start_date=datetime(2013, 1, 1), params={{"rows": 1}}):
    load = ZeroRenameSparkSubmitOperator(task_id="load", application=__file__, table="audited",
        partition={DAY!r}, mode="overwrite", layout="delta", publish=False)
    publish = PublishLoadOperator(task_id="publish", table="audited", job=JOB,
        outlets=[Dataset("s3://{BUCKET}/wh/audited")])
    abort = AbortLoadOperator(task_id="abort", table="audited", job=JOB, trigger_rule="one_failed")
    audited = audit(JOB)
    chain(load, audited, [publish, abort])
with DAG("undone", schedule=None, start_date=datetime(2013, 1, 1), params={{"job": ""}}):
    RestoreTableOperator(
        task_id="undo", table="audited", undo="{{{{ params.job }}}}", apply=True
    )
"""


@pytest.fixture(scope="module", autouse=True)
def submits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    script = tmp_path_factory.mktemp("bin") / "spark-submit"
    script.write_text(f"#!{sys.executable}\n{APPLICATION}")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
        yield


@pytest.fixture(scope="module")
def dags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The example DAGs that this Airflow can have, and one with a dataset of a user's own."""
    from airflow.models.dagbag import DagBag

    folder = tmp_path_factory.mktemp("dags")
    (folder / "own.py").write_text(
        "from datetime import datetime\n"
        "from airflow import DAG, Dataset\n"
        "from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator\n"
        "with DAG('plain', schedule=None, start_date=datetime(2013, 1, 1)):\n"
        "    ZeroRenameSparkSubmitOperator(task_id='load', application=__file__,\n"
        f"        table='s3://{BUCKET}/new/flights', partition={DAY!r}, mode='overwrite')\n"
        "for word in ('fail', 'skip'):\n"
        "    with DAG(f'newest_{word}', schedule=None, start_date=datetime(2013, 1, 1)) as dag:\n"
        "        ZeroRenameSparkSubmitOperator(task_id='load', application=__file__,\n"
        f"            table=f's3://{BUCKET}/newest_{{word}}/flights', partition={DAY!r},\n"
        "            mode='overwrite', on_conflict='newest_run', on_superseded=word)\n"
        "    globals()[dag.dag_id] = dag\n"
        "with DAG('own', schedule=None, start_date=datetime(2013, 1, 1)):\n"
        "    ZeroRenameSparkSubmitOperator(task_id='load', application=__file__, retries=1,\n"
        f"        retry_delay=0, table={TABLE!r}, partition={DAY!r}, mode='overwrite',\n"
        f"        asset_partitions=True, outlets=[Dataset({TABLE!r})])\n"
    )
    (folder / "audited.py").write_text(AUDITED)
    found: dict[str, Any] = {}
    for path in (folder / "own.py", folder / "audited.py", *map(EXAMPLES.joinpath, WITH_2_11)):
        bag = DagBag(str(path), include_examples=False)
        assert bag.import_errors == {}
        bag.sync_to_db()
        found |= bag.dags
    return found


#: The examples that are run here.
WITH_2_11 = ("flights_daily.py", "flights_emr_serverless.py", "zero_rename_maintenance.py")


@pytest.fixture(scope="module")
def daily(dags: dict[str, Any]) -> Any:
    return dags["flights_daily"].test(execution_date=at(2))


@pytest.fixture(scope="module")
def retried(dags: dict[str, Any]) -> Any:
    """Its application commits, and ends badly each time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TEST_STATUS", "3")
        return dags["own"].test(execution_date=at(2))


def at(day: int) -> datetime:
    return datetime(2013, 2, day, tzinfo=timezone.utc)  # noqa: UP017


def xcom(run: Any, task_id: str, key: str = "return_value") -> Any:
    return run.get_task_instance(task_id).xcom_pull(task_ids=task_id, key=key)


def events(run: Any) -> list[tuple[str, dict[str, Any]]]:
    from airflow.models.dataset import DatasetEvent  # pyrefly: ignore[missing-import]
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(DatasetEvent).filter_by(source_run_id=run.run_id)
        mine = [event for event in found if event.source_dag_id == run.dag_id]
        return [(event.dataset.uri, dict(event.extra)) for event in mine]


def test_every_module_imports() -> None:
    assert airflow.__version__.startswith("2.11.")
    seen = []
    # There are no mappers before 3.2, and these providers are not installed.
    missing = (".partition_mapper", ".spark_kubernetes", ".cancelling_application", ".databricks")
    for room in ("provider", "operators", "sensors"):
        package = importlib.import_module(f"zero_rename.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(missing):
                seen.append(importlib.import_module(module.name))
    assert len(seen) >= 17


def test_form_of_the_connection_has_its_fields() -> None:
    """This Airflow asks the hook for them; there was only ``extra``."""
    from airflow.providers_manager import ProvidersManager

    (said,) = get_provider_info()["connection-types"]
    prefix, manager = "extra__zero_rename__", ProvidersManager()
    widgets: Any = manager.connection_form_widgets
    shown = [it.field_name for name, it in widgets.items() if name.startswith(prefix)]
    assert shown == list(said["conn-fields"])
    behaviour = manager.field_behaviours["zero_rename"]
    assert behaviour["hidden_fields"] == said["ui-field-behaviour"]["hidden-fields"]
    assert f"{prefix}table_root" in behaviour["placeholders"]
    on_conflict = widgets[f"{prefix}on_conflict"].field.kwargs
    assert on_conflict["description"].endswith("[fail, last_wins, newest_run]")
    # What a field was left empty is left out of the connection; what was filled in is text.
    extra = {"table_root": "s3://lake/wh", "purge_older_than_hours": "72"}
    settings = ConnectionSettings.from_extra(extra, "c")
    assert (settings.purge_older_than_hours, settings.policies) == (72.0, {})


def test_examples_that_are_said_to_run_here_are_read() -> None:
    from airflow.models.dagbag import DagBag

    table = (Path(__file__).parents[2] / "docs" / "airflow" / "examples.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(\w+\.py)\].*\| ([^|]+) \|$", table, re.MULTILINE)
    said = [name for name, versions in rows if "2.11" in versions]
    assert {*WITH_2_11} < {*said}
    for name in said:
        bag = DagBag(str(EXAMPLES / name), include_examples=False)
        assert (bag.import_errors, len(bag.dags) > 0) == ({}, True), name


def test_the_daily_example(dags: dict[str, Any], daily: Any) -> None:
    """A load, and a sensor that finds its job by its task."""
    assert str(daily.state) == "success"
    report = xcom(daily, "load")
    assert (report["partition"], report["rows"], report["repeated"]) == (DAY, 1, False)
    assert xcom(daily, "committed")["job"] == report["job"]
    # A table that is a template has no outlets.
    assert events(daily) == []
    again = dags["flights_maintenance"].test(execution_date=at(2), run_conf={"table": TABLE})
    assert xcom(again, "purge")["tables"][0]["failed"] == 0


def test_a_load_that_names_no_outlets(dags: dict[str, Any]) -> None:
    """It crashed after its commit: ``dag.test()`` cannot bear aliases of new datasets."""
    run = dags["plain"].test(execution_date=at(2))
    assert str(run.state) == "success"
    assert xcom(run, "load")["rows"] == 1
    assert events(run) == []


@pytest.mark.parametrize("on_superseded", ["fail", "skip"])
def test_late_run_gives_way_by_its_logical_date(dags: dict[str, Any], on_superseded: str) -> None:
    """A DAG run of an earlier date that comes later starts no Spark, and fails or is skipped."""
    dag = dags[f"newest_{on_superseded}"]
    newer = dag.test(execution_date=at(3))
    assert str(newer.state) == "success"
    late = dag.test(execution_date=at(2))
    state = {"fail": "failed", "skip": "skipped"}[on_superseded]
    assert str(late.get_task_instance("load").state) == state
    again = dag.test(execution_date=at(4))
    assert xcom(again, "load")["version"] == xcom(newer, "load")["version"] + 1


def test_a_retry_reports_what_the_try_before_has_committed(retried: Any) -> None:
    assert str(retried.state) == "success"
    report = xcom(retried, "load")
    assert report["repeated"] is True
    # No partition keys here: one event, with the totals.
    ((uri, extra),) = events(retried)
    assert uri == TABLE
    assert (extra["job"], extra["rows"], extra["partition"]) == (report["job"], 1, DAY)


def test_the_trigger_of_a_deferred_sensor(daily: Any) -> None:
    """It asks the database for the task's state, too."""
    from zero_rename.orchestration.job_query import JobQuery
    from zero_rename.provider.compat import states_in_database
    from zero_rename.provider.triggers import SuccessManifestTrigger

    states = states_in_database(
        dag_id="flights_daily", task_ids=["load", "committed"], run_ids=[daily.run_id, "none"]
    )
    assert states == {daily.run_id: {"load": "success", "committed": "success"}, "none": {}}

    async def answer(idempotency_key: str) -> Any:
        query = JobQuery(table=TABLE, idempotency_key=idempotency_key).as_dict()
        trigger = SuccessManifestTrigger(query, "zero_rename_default", 0.1)
        return await anext(aiter(trigger.run()))

    found = asyncio.run(answer(f"flights_daily/{daily.run_id}/load"))
    assert found.payload["report"]["job"] == xcom(daily, "load")["job"]
    # That task has ended well, and has loaded nothing: nobody waits for it.
    failed = asyncio.run(answer(f"flights_daily/{daily.run_id}/committed"))
    assert failed.payload["state"] == "failed"


@pytest.mark.parametrize("soft_fail", [False, True])
def test_a_time_out_in_the_triggerer_names_what_was_waited_for(
    dags: dict[str, Any], soft_fail: bool
) -> None:
    """This Airflow raises for it what it raises for a trigger that failed."""
    from airflow.exceptions import AirflowSensorTimeout, AirflowSkipException

    from zero_rename.sensors.success_manifest import SuccessManifestSensor

    task = SuccessManifestSensor(
        task_id="wait", table=TABLE, idempotency_key="none", deferrable=True, soft_fail=soft_fail
    )
    kwargs = {"error": "Trigger/execution timeout"}
    expected = AirflowSkipException if soft_fail else AirflowSensorTimeout
    context: Any = {"ti": SimpleNamespace(task_id="wait"), "task": task}
    with pytest.raises(expected, match=f"Waited for the job of none of {TABLE}. Nothing committed"):
        task.resume_execution("__fail__", kwargs, context)


def test_only_a_mapped_task_has_an_index() -> None:
    from airflow import DAG

    from zero_rename.committer import InvalidInputError
    from zero_rename.provider.task_context import map_index_of
    from zero_rename.sensors.success_manifest import SuccessManifestSensor

    with DAG("mapped", schedule=None):
        SuccessManifestSensor.partial(task_id="load", table=TABLE).expand(job=["a", "b"])
        given = {"task": SuccessManifestSensor(task_id="wait", table=TABLE, partitions=[DAY])}
    assert map_index_of("load", "1", given) == 1
    assert map_index_of("wait", None, given) == -1
    for name, index, why in (("load", None, "is mapped"), ("wait", 0, "is not mapped")):
        with pytest.raises(InvalidInputError, match=f"'{name}' {why}"):
            map_index_of(name, index, given)


def test_the_link_is_kept_for_the_web_server(dags: dict[str, Any], retried: Any) -> None:
    from airflow.models.taskinstancekey import TaskInstanceKey
    from airflow.serialization import serialized_objects

    from zero_rename.provider.compat import keep_link
    from zero_rename.provider.links import CONSOLE_KEY

    ti = retried.get_task_instance("load")
    assert xcom(retried, "load", CONSOLE_KEY) == ""
    keep_link(ti, CONSOLE_KEY, "https://console.aws.amazon.com/s3/…")
    serialized: Any = serialized_objects.SerializedDAG
    served = serialized.from_dict(serialized.to_dict(dags["own"])).get_task("load")
    links = {link.name: link for link in served.operator_extra_links}
    link = links["S3 console"]
    key = TaskInstanceKey("own", "load", retried.run_id, ti.try_number, -1)
    assert link.get_link(served, ti_key=key) == "https://console.aws.amazon.com/s3/…"
    assert link.get_link(SimpleNamespace(_console_url="u"), ti_key=key) == "u"


def test_the_maintenance_of_all_tables(dags: dict[str, Any]) -> None:
    run = dags["zero_rename_maintenance"].test(execution_date=at(5))
    assert str(run.state) == "success"
    assert [it["table"] for it in xcom(run, "maintain")["tables"]] == [TABLE]
    assert ZeroRenameHook().get_table("flights").to_arrow().num_rows == 1


def test_rows_are_held_back_audited_published_and_taken_back(dags: dict[str, Any]) -> None:
    table = ZeroRenameHook().get_delta_table("audited")
    bad = dags["audited"].test(execution_date=at(2), run_conf={"rows": 7})
    states = {it.task_id: str(it.state) for it in bad.get_task_instances()}
    assert states == {
        "load": "success",
        "audit": "failed",
        "publish": "upstream_failed",
        "abort": "success",
    }
    assert table.unpublished() == []
    good = dags["audited"].test(execution_date=at(3), run_conf={"rows": 1})
    states = {it.task_id: str(it.state) for it in good.get_task_instances()}
    assert (states["publish"], states["abort"]) == ("success", "skipped")
    report = xcom(good, "publish")
    assert (report["rows"], report["repeated"]) == (1, False)
    ((uri, extra),) = events(good)
    assert (uri, extra["job"]) == (table.root.url, report["job"])
    undone = dags["undone"].test(execution_date=at(4), run_conf={"job": report["job"]})
    assert xcom(undone, "undo")["removed"] == 1
    assert table.scan().to_arrow().num_rows == 0

"""Whole DAG runs in a real Airflow with a database of its own."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from support.airflow import JOB_FILE, Connect, Tables, migrate
from support.airflow_runs import events, let_know, let_run, run_tasks, started_by_assets, xcom
from support.fake_spark import FAILS_AFTERWARDS, WRITES, FakeSpark
from support.moto_server import SECRET_KEY
from zero_rename.orchestration.job_query import JobQuery

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(1200)),
    *(pytest.mark.usefixtures("spark"), pytest.mark.memory_s3),
]

EXAMPLES = Path(__file__).parents[2] / "example_dags"


def names_of_assets(uri: str) -> list[str]:
    from airflow.models.asset import AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        assets: Any = session.query(AssetModel).filter_by(uri=uri)
        return [asset.name for asset in assets]


def delete(run: Any) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        session.delete(session.query(DagRun).filter_by(dag_id=run.dag_id, run_id=run.run_id).one())


def assert_no_secret_shown(capfd: pytest.CaptureFixture[str]) -> str:
    """A run under ``test`` logs to the terminal: what it has logged."""
    shown = "".join(capfd.readouterr())
    assert "Spark-Submit cmd: spark-submit" in shown
    assert SECRET_KEY not in shown
    return shown


def keys_of_events(run: Any) -> list[str | None]:
    """Partition keys of the events that a run was started by."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.get(DagRun, run.id)
        assert found is not None
        events = sorted(found.consumed_asset_events, key=lambda it: it.timestamp)
        return [event.partition_key for event in events]


def test_a_load_and_a_sensor_that_reads_its_xcom(
    tables: Tables,
    spark: FakeSpark,
    dag_of: Callable[[str, str], Any],
    capfd: pytest.CaptureFixture[str],
) -> None:
    dag = dag_of(
        "one_load",
        f"""
        load = ZeroRenameSparkSubmitOperator(
            task_id="load", application="{JOB_FILE}", table="{tables.url()}",
            partition_format="day=%-d", mode="overwrite",
        )
        wait = SuccessManifestSensor(
            task_id="wait", table="{tables.url()}", partition="day=1",
            job="{{{{ ti.xcom_pull('load')['job'] }}}}", poke_interval=1, timeout=300,
        )
        load >> wait
        """,
    )
    run = dag.test(logical_date=datetime(2013, 2, 1, tzinfo=UTC))
    assert str(run.state) == "success"
    report = xcom(run, "load")
    assert report["partition"] == "day=1"
    assert xcom(run, "wait")["job"] == report["job"]
    assert spark.calls()[0]["env"]["ZERO_RENAME_IDEMPOTENCY_KEY"] == f"one_load/{run.run_id}/load"
    assert_no_secret_shown(capfd)
    # Without outlets= the load is an event of the asset at the table's address, where there is one.
    assert events(run) == []
    let_know(tables.url())
    run = dag.test(logical_date=datetime(2013, 2, 1, tzinfo=UTC))
    report = xcom(run, "load")
    ((uri, key, extra),) = [it for it in events(run) if "partitions" in it[2]]
    assert (uri, key) == (tables.url(), None)
    assert extra == {
        "job": report["job"],
        "table": tables.url(),
        "rows": 1,
        "files": 1,
        "bytes": report["bytes"],
        "partition": "day=1",
        "partitions": 1,
        "version": 2,
    }


@pytest.mark.parametrize(
    ("name", "quoted"), [("flüge", "fl%C3%BCge"), ("flights#2", "flights%232")]
)
def test_a_table_whose_name_a_uri_does_not_hold_has_an_asset_of_its_own(
    tables: Tables, dag_of: Callable[..., Any], name: str, quoted: str
) -> None:
    """The one failed its task after the commit, the other sent its events to the asset of
    ``flights``."""
    let_know(tables.url(quoted))
    dag = dag_of(
        f"named_{quoted.replace('%', '_')}",
        f"""
        ZeroRenameSparkSubmitOperator(
            task_id="load", application="{JOB_FILE}", table="{tables.url(name)}", partition="*",
        )
        """,
    )
    run = dag.test(logical_date=datetime(2013, 2, 1, tzinfo=UTC))
    assert str(run.state) == "success"
    told = {(uri, extra["table"]) for uri, _, extra in events(run)}
    assert told == {(tables.url(quoted), tables.url(name))}


def test_each_partition_is_an_event_that_starts_dags(
    tables: Tables, dag_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event of a job carried the totals of all. A user's own asset stands at that address."""
    monkeypatch.setenv("TEST_DAYS", "1,2,2")
    listened = f'Asset("flights", uri="{tables.url()}")'
    wait = f"""
        SuccessManifestSensor(
            task_id="wait", table="{tables.url()}", partition="{{{{ partition_key }}}}",
            newer_than_version=0, timeout=60,
        )
    """
    by_partition = f"airflow.sdk.PartitionedAssetTimetable(assets={listened})"
    consumer = dag_of("of_a_partition", wait, by_partition)
    dag_of("of_a_load", "airflow.sdk.BaseOperator(task_id='go')", f"[{listened}]")
    dag = dag_of(
        "many_partitions",
        f"""
        ZeroRenameSparkSubmitOperator(
            task_id="load", application="{JOB_FILE}", table="{tables.url()}", partition="*",
        )
        """,
    )
    let_run("of_a_partition", "of_a_load")
    run = dag.test(logical_date=datetime(2013, 2, 1, tzinfo=UTC))
    started = started_by_assets()
    assert str(run.state) == "success"
    report = xcom(run, "load")
    found = {key: extra for _, key, extra in events(run)}
    entries = {entry["partition"]: entry for entry in report["partitions"]}
    assert {key: extra["rows"] for key, extra in found.items()} == {None: 3, "day=1": 1, "day=2": 2}
    for key, entry in entries.items():
        expected = {n: entry[n] for n in ("partition", "version", "rows", "files", "bytes")}
        assert found[key] == {"job": report["job"], "table": tables.url(), **expected}
    assert names_of_assets(tables.url()) == ["flights"]

    wanted = {("of_a_partition", "day=1"), ("of_a_partition", "day=2"), ("of_a_load", None)}
    assert set(started) == wanted
    assert keys_of_events(started["of_a_load", None]) == ["day=1", "day=2", None]
    second = started["of_a_partition", "day=2"]
    second = run_tasks(consumer, second)
    assert xcom(second, "wait")["rows"] == 2


def test_mapped_loads_tell_the_tables_asset_and_their_own_sensors(
    tables: Tables, dag_of: Callable[..., Any]
) -> None:
    """Of mapped tasks no asset was told, and a sensor of a mapped group waited for a job without an
    index."""
    heard = f'[Asset("{tables.url()}"), Asset("{tables.url("b")}")]'
    dag_of("of_mapped", "airflow.sdk.BaseOperator(task_id='go')", heard)
    given = f'application="{JOB_FILE}", partition="*", mode="append"'
    dag = dag_of(
        "mapped",
        f"""
        ZeroRenameSparkSubmitOperator.partial(task_id="load", {given}).expand(
            table=["{tables.url()}", "{tables.url("b")}"]
        )

        @airflow.sdk.task_group
        def each(name):
            load = ZeroRenameSparkSubmitOperator(task_id="load", {given}, table=name, outlets=[])
            wait = SuccessManifestSensor(
                task_id="wait", table=name, upstream_task_id="each.load", timeout=60,
            )
            load >> wait

        each.expand(name=["{tables.url("c")}", "{tables.url("d")}"])
        """,
    )
    let_run("of_mapped")
    run = dag.test(logical_date=datetime(2013, 2, 1, tzinfo=UTC))
    assert str(run.state) == "success"
    told = [(uri, extra["rows"]) for uri, _, extra in events(run) if "partitions" in extra]
    assert sorted(told) == [(tables.url("b"), 1), (tables.url(), 1)]
    assert set(started_by_assets()) == {("of_mapped", None)}


def test_the_example_that_a_commit_by_anybody_starts(tables: Tables, connect: Connect) -> None:
    """The trigger as the DAG processor put it into the database, and what the scheduler makes of
    its events."""
    from airflow.dag_processing.dagbag import DagBag
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session

    name = "flights_watch.py"
    file = migrate() / "dags" / name
    shutil.copy(EXAMPLES / name, file)
    connect("zero_rename_default", extra={"table_root": tables.url("").rstrip("/")})
    let_run("flights_watch")
    with create_session() as session:
        triggers: Any = session.query(Trigger)
        (row,) = [it for it in triggers if it.classpath.endswith("CommitTrigger")]
        number, trigger = row.id, resolve_name(row.classpath)(**row.kwargs)
    tables.load(1)
    tables.load(1, 2, rows=3)

    trigger.since = "2013-01-01"
    Trigger.submit_event(number, asyncio.run(first_event(trigger)))
    started = started_by_assets()
    dag = DagBag(str(file)).dags["flights_watch"]
    run = run_tasks(dag, started["flights_watch", None])
    file.unlink()
    assert str(run.state) == "success"
    assert [(it["partition"], it["version"], it["rows"]) for it in xcom(run, "changed")] == [
        ("day=1", 2, 3),
        ("day=2", 1, 3),
    ]


async def first_event(trigger: Any) -> Any:
    return await anext(trigger.run())


def test_a_deferred_sensor_wakes_up_when_the_job_commits(
    tables: Tables, dag_of: Callable[[str, str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker looks once, the trigger from then on; the job comes between its looks."""
    tables.load(9)
    after, looks, looked = JobQuery.after, [], threading.Event()

    def watched(self: JobQuery, *given: Any) -> Any:
        result = after(self, *given)
        looks.append(threading.current_thread())
        if len(looks) == 2:
            looked.set()
        return result

    def commit() -> None:
        if looked.wait(400):
            tables.load(1)

    monkeypatch.setattr(JobQuery, "after", watched)
    dag = dag_of(
        "deferred",
        f"""
        SuccessManifestSensor(
            task_id="wait", table="{tables.url()}", partition="day=1", newer_than_version=0,
            poke_interval=0.2, timeout=500, deferrable=True,
        )
        """,
    )
    writer = threading.Thread(target=commit)
    writer.start()
    run = dag.test(logical_date=datetime(2013, 2, 1, tzinfo=UTC))
    writer.join()
    assert str(run.state) == "success"
    assert (xcom(run, "wait")["partition"], xcom(run, "wait")["version"]) == ("day=1", 1)
    assert len(looks) >= 3


def test_sensors_of_a_failed_load_end_at_once_and_alike(
    tables: Tables, spark: FakeSpark, dag_of: Callable[..., Any]
) -> None:
    """They waited to the end of their time; with ``soft_fail`` the deferrable one failed of what
    skipped the other."""
    spark.runs("raise SystemExit(4)")
    each = """
        for name, given in {
            "poked": {}, "deferrable": {"deferrable": True},
            "poked_softly": {"soft_fail": True},
            "deferrable_softly": {"soft_fail": True, "deferrable": True},
        }.items():
            load >> SuccessManifestSensor(
                task_id=name, table=load.table, upstream_task_id="load", trigger_rule="all_done",
                poke_interval=1, timeout=3600, **given,
            )
    """
    dag = dag_of(
        "failed_load",
        f"""
        load = ZeroRenameSparkSubmitOperator(
            task_id="load", application="{JOB_FILE}", table="{tables.url()}", partition="*",
        )
        """
        + each,
    )
    run = dag.test(logical_date=datetime(2013, 2, 1, tzinfo=UTC))
    states = {it.task_id: str(it.state) for it in run.get_task_instances()}
    assert states == {
        "load": "failed",
        **dict.fromkeys(("poked", "deferrable"), "failed"),
        **dict.fromkeys(("poked_softly", "deferrable_softly"), "skipped"),
    }


def test_a_retry_reports_its_own_run_s_commit_and_no_run_s_of_before(
    tables: Tables, spark: FakeSpark, dag_of: Callable[[str, str], Any], tmp_path: Path
) -> None:
    """The run is deleted and made anew under the same id; its first try fails."""
    dag = dag_of(
        "retried",
        f"""
        from datetime import timedelta
        ZeroRenameSparkSubmitOperator(
            task_id="load", application="{JOB_FILE}", table="{tables.url()}", retries=1,
            retry_delay=timedelta(0), partition_format="day=%-d", mode="overwrite",
        )
        """,
    )
    day = datetime(2013, 2, 1, tzinfo=UTC)
    spark.runs(FAILS_AFTERWARDS)
    first = dag.test(run_after=day, logical_date=day)
    assert str(first.state) == "success"
    before = xcom(first, "load")
    assert before["repeated"] is True
    assert len(spark.calls()) == 1

    begun = tmp_path / "begun"
    fails_once = f"from pathlib import Path\nbegun = Path({str(begun)!r})\n"
    fails_once += "if not begun.exists():\n    begun.touch()\n    raise SystemExit(4)\n"
    spark.runs(fails_once + WRITES)
    delete(first)
    # ``dag.test`` lets a run begin at its logical date, a scheduler when it begins.
    again = dag.test(run_after=day, logical_date=day + timedelta(hours=1))
    assert (str(again.state), again.run_id) == ("success", first.run_id)
    assert len(spark.calls()) == 3
    report = xcom(again, "load")
    assert report["repeated"] is False
    assert report["job"] != before["job"]


def test_the_maintenance_of_all_tables(tables: Tables, connect: Connect) -> None:
    """It settles what it can, and then fails for what needs a person; the summary is there then,
    too."""
    from airflow.dag_processing.dagbag import DagBag

    home = migrate()
    name = "zero_rename_maintenance.py"
    shutil.copy(EXAMPLES / name, home / "dags" / name)
    connect("zero_rename_default", extra={"table_root": tables.url("").rstrip("/")})
    tables.load(1, name="a")
    job = tables.decided(2, name="b")
    dag = DagBag(str(home / "dags" / name)).dags["zero_rename_maintenance"]
    run = dag.test(logical_date=datetime(2013, 2, 2, tzinfo=UTC))
    assert str(run.state) == "success"
    assert [it["jobs"] for it in xcom(run, "maintain")["tables"]] == [{}, {"committed": 1}]
    assert tables.table("b").is_closed(job)
    (file,) = tables.table("a").files()
    tables.bucket.delete(file.key)
    run = dag.test(logical_date=datetime(2013, 2, 3, tzinfo=UTC))
    assert str(run.state) == "failed"
    assert xcom(run, "maintain")["person"] == 1
    assert f"missing: {file.key}" in xcom(run, "maintain", "markdown")

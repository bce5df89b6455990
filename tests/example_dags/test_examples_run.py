"""The examples that are not the daily one, each run in a real Airflow; a stand-in is Spark.

What collides, is killed or cleared does so in ``tests/airflow_life``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support import s3a_stand_in
from support.airflow import Connect, Tables, migrate
from support.airflow_runs import events, let_know, let_run, run_tasks, started_by_assets, xcom
from support.fake_spark import FakeSpark, installed
from support.s3a_jobs import MagicJob
from zero_rename.committer.format.layout import TableRoot
from zero_rename.tables import DeltaTable

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(1200)),
    pytest.mark.memory_s3,
]
EXAMPLES = Path(__file__).parents[2] / "example_dags"
NAMES = (
    *("flights_audited.py", "flights_backfill.py", "flights_conflicts.py", "flights_daily.py"),
    *("flights_hourly.py", "flights_last_week.py", "flights_s3a.py", "flights_two_producers.py"),
)
#: Writes two rows for each partition that the operator names, by the writer's own options.
APPLICATION = """
import os
import pyarrow as pa
from zero_rename import committer, tables
from zero_rename.committer.format.handoff import Handoff
from zero_rename.spark.options import read_writer_options

is_delta = Handoff.decode(os.environ).layout == "delta"
named = read_writer_options({}, os.environ).replace_partitions
columns = [part.split("=")[0] for part in named[0].split("/")]
options = read_writer_options({"partitionBy": ",".join(columns)}, os.environ)
rows = [dict(part.split("=") for part in path.split("/")) for path in named for _ in range(2)]
table = pa.table(
    {name: [int(row[name]) for row in rows] for name in columns}
    | {"dep_delay": [0, 16] * len(named)},
    schema=pa.schema([(name, pa.int32()) for name in [*columns, "dep_delay"]]),
)
to = (tables.DeltaTable if is_delta else committer.Table)(os.environ["ZERO_RENAME_TABLE"])
held_back = {"publish": options.publish} if is_delta else {}
job = to.job(
    table.schema,
    **held_back,
    mode=options.mode(True),
    partition_by=options.partition_by,
    replace_partitions=named,
    on_conflict=options.on_conflict,
    on_superseded=options.on_superseded,
    run_rank=options.run_rank,
    idempotency_key=options.idempotency_key,
    on_repeat=options.on_repeat,
    owner=options.owner("test"),
)
with job:
    job.write(table)
"""


@pytest.fixture
def spark(
    tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> FakeSpark:
    connect("spark_default", "spark", host="local[2]")
    connect("zero_rename_default", extra={"table_root": tables.url("").rstrip("/")})
    made = installed(tmp_path, monkeypatch, here=True)
    made.runs(APPLICATION)
    return made


@pytest.fixture(scope="module")
def dags() -> Iterator[dict[str, Any]]:
    """Copied to the DAGs' folder, as users do, and known to Airflow."""
    from airflow.dag_processing.dagbag import DagBag

    folder = migrate() / "dags"
    for name in NAMES:
        shutil.copy(EXAMPLES / name, folder / name)
    shutil.copytree(EXAMPLES / "jobs", folder / "jobs", dirs_exist_ok=True)
    found: dict[str, Any] = {}
    for name in NAMES:
        bag = DagBag(str(folder / name))
        assert bag.import_errors == {}
        found |= bag.dags
    yield found
    for name in NAMES:
        (folder / name).unlink()
    shutil.rmtree(folder / "jobs")


def words(call: dict[str, Any]) -> list[str]:
    """The application's arguments."""
    argv = call["argv"]
    return argv[next(n for n, word in enumerate(argv) if word.endswith("flights_job.py")) + 1 :]


def test_a_range_of_days_is_one_commit(
    dags: dict[str, Any], tables: Tables, spark: FakeSpark
) -> None:
    days = {"first": "2013-01-31", "last": "2013-02-02"}
    run = dags["flights_backfill"].test(run_conf=days)
    assert str(run.state) == "success"
    (call,) = spark.calls()
    assert words(call) == ["--csv", "/data/flights.csv", "--days", "2013-01-31", "2013-02-02"]
    entries = xcom(run, "load")["partitions"]
    assert [entry["partition"] for entry in entries] == [
        "year=2013/month=1/day=31",
        "year=2013/month=2/day=1",
        "year=2013/month=2/day=2",
    ]
    assert tables.table().to_arrow().num_rows == 6


def test_producers_of_one_partition_have_the_policy_of_their_dag(
    dags: dict[str, Any], tables: Tables, spark: FakeSpark
) -> None:
    policies = {"flights_first_wins": "fail", "flights_last_wins": "last_wins"}
    for dag_id in policies:
        run = dags[dag_id].test(logical_date=datetime(2013, 2, 2, tzinfo=UTC))
        assert str(run.state) == "success"
        assert tables.table(dag_id).to_arrow().num_rows == 2
    told = [
        (it["env"]["ZERO_RENAME_DAG"], it["env"]["ZERO_RENAME_ON_CONFLICT"]) for it in spark.calls()
    ]
    assert sorted(told) == sorted([*policies.items()] * 2)
    assert {tuple(words(call)) for call in spark.calls()} == {
        ("--csv", f"/data/{name}.csv", "--day", "2013-02-01") for name in ("airline", "airport")
    }


def test_late_run_of_a_week_keeps_off_the_days_that_newer_runs_have_loaded(
    dags: dict[str, Any], tables: Tables, spark: FakeSpark
) -> None:
    def run(day: int, **conf: str) -> Any:
        return dags["flights_last_week"].test(
            logical_date=datetime(2013, 2, day, tzinfo=UTC), run_conf=conf
        )

    def states(of: Any) -> dict[str, str]:
        return {it.task_id: str(it.state) for it in of.get_task_instances()}

    assert str(run(10).state) == "success"
    late = run(9)
    assert states(late) == {"load": "success", "report": "success"}
    report = xcom(late, "load")
    assert [it["partition"] for it in report["partitions"]] == ["year=2013/month=2/day=2"]
    assert len(report["superseded"]) == 6
    submitted = len(spark.calls())
    later = run(11)
    assert len(xcom(later, "load")["partitions"]) == 7
    again = run(8)
    assert len(xcom(again, "load")["superseded"]) == 6
    assert len(spark.calls()) == submitted + 2


def test_run_of_a_week_that_newer_runs_have_loaded_is_skipped_and_its_successor_is_not(
    dags: dict[str, Any], tables: Tables, spark: FakeSpark
) -> None:
    names = ("year", "month", "day", "dep_delay")
    rows = pa.Table.from_pylist(
        [{"year": 2013, "month": 2, "day": day, "dep_delay": 0} for day in range(1, 29)],
        schema=pa.schema([(name, pa.int32()) for name in names]),
    )
    newer = tables.table("flights_last_week").job(
        rows.schema, partition_by=names[:3], run_rank=datetime(2013, 3, 1, tzinfo=UTC)
    )
    with newer:
        newer.write(rows)
    run = dags["flights_last_week"].test(logical_date=datetime(2013, 2, 20, tzinfo=UTC))
    found = {it.task_id: str(it.state) for it in run.get_task_instances()}
    assert found == {"load": "skipped", "report": "success"}
    assert spark.calls() == []
    on_purpose = dags["flights_last_week"].test(
        logical_date=datetime(2013, 2, 21, tzinfo=UTC), run_conf={"policy": "last_wins"}
    )
    assert len(xcom(on_purpose, "load")["partitions"]) == 7


def test_correction_comes_back_after_an_older_load_has_replaced_it(
    dags: dict[str, Any], tables: Tables, spark: FakeSpark
) -> None:
    """Under newest_run the older load gives way; that it wins on purpose is a conflict, settled."""

    def run(dag: str, at: int, **conf: str) -> Any:
        return dags[dag].test(logical_date=datetime(2013, 2, at, tzinfo=UTC), run_conf=conf)

    def job() -> str:
        (name,) = {it.job for it in table.state().files}
        return name

    table = DeltaTable(tables.url("flights_of_two"), client=tables.bucket.client)
    let_know(table.root.url)
    day = "year=2013/month=2/day=1"
    assert str(run("flights_of_day", 2).state) == "success"
    assert str(run("flights_settle", 2).state) == "success"
    assert str(run("flights_corrected", 3, day="2013-02-01").state) == "success"
    corrected = job()
    settled = run("flights_settle", 3)
    assert xcom(settled, "find")["unresolved"] == 0
    on_purpose = dags["flights_of_day"].test(
        logical_date=datetime(2013, 2, 2, 0, 0, 1, tzinfo=UTC), run_conf={"policy": "last_wins"}
    )
    assert str(on_purpose.state) == "success"
    assert job() != corrected
    settled = run("flights_settle", 4)
    assert str(settled.state) == "success"
    (found,) = xcom(settled, "find")["tables"]
    (conflict,) = found["conflicts"]
    assert (conflict["partition"], len(conflict["runs"])) == (day, 2)
    (done,) = xcom(settled, "settle")["conflicts"]
    assert done["settlement"]["by"].startswith("flights_settle.settle of run ")
    assert job() == corrected
    assert [(key, it["partition"]) for _, key, it in events(settled)] == [(day, day), (None, day)]
    assert xcom(run("flights_settle", 5), "find")["unresolved"] == 0


def test_day_is_published_once_its_audit_has_passed(
    dags: dict[str, Any], tables: Tables, spark: FakeSpark
) -> None:
    spark.runs(APPLICATION.replace("dep_delay", "carrier"))
    dag, at = dags["flights_audited"], datetime(2013, 2, 2, tzinfo=UTC)
    table = DeltaTable(tables.url("flights_audited"), client=tables.bucket.client)
    let_know(table.root.url)
    refused = dag.test(logical_date=at, run_conf={"least": 3})
    states = {it.task_id: str(it.state) for it in refused.get_task_instances()}
    assert states == {"load": "success", "audit": "failed", "publish": "upstream_failed"}
    [waits] = table.unpublished()
    assert (waits.job, table.scan().count()) == (xcom(refused, "load")["job"], 0)
    assert events(refused) == []
    later = datetime(2013, 2, 3, tzinfo=UTC)
    published = dag.test(logical_date=later, run_conf={"least": 2})
    assert str(published.state) == "success"
    assert (xcom(published, "audit"), xcom(published, "publish")["rows"]) == (2, 2)
    assert table.scan().count() == 2
    day = "year=2013/month=2/day=2"
    assert [(key, it["partition"]) for _, key, it in events(published)] == [(day, day), (None, day)]
    assert [it.job for it in table.unpublished()] == [waits.job]


def test_an_hour_starts_its_report(dags: dict[str, Any], tables: Tables, spark: FakeSpark) -> None:
    """A run of a partition, made as the scheduler makes it; its event has the partition's path."""
    from airflow.api.common.trigger_dag import trigger_dag
    from airflow.utils.types import DagRunTriggeredByType

    let_run("flights_hour_report")
    run = trigger_dag(
        "flights_hourly",
        triggered_by=DagRunTriggeredByType.TEST,
        partition_key="2013-02-01T06:00:00",
        run_id="hour",
    )
    run_tasks(dags["flights_hourly"], run)
    (call,) = spark.calls()
    assert words(call)[-2:] == ["--hour", "2013-02-01T06"]
    key = "year=2013/month=2/day=1/hour=6"
    assert [(name, it["rows"]) for _, name, it in events(run)] == [(key, 2)]
    started = started_by_assets()
    assert set(started) == {("flights_hour_report", key)}
    report = started["flights_hour_report", key]
    run_tasks(dags["flights_hour_report"], report)
    assert xcom(report, "count") == {"flights": 2, "late": 1}


class TestByMagic:
    """The load's application leaves what ``save()`` and the committer leave."""

    @pytest.fixture(autouse=True)
    def _stand_in(self, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
        spark.runs(s3a_stand_in.APPLICATION)
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        monkeypatch.setenv("SPARK_CONF_DIR", str(spark.folder))

    def test_day_is_loaded_waited_for_and_cleaned_up(
        self, dags: dict[str, Any], tables: Tables
    ) -> None:
        run = dags["flights_s3a"].test(logical_date=datetime(2013, 2, 1, tzinfo=UTC))
        assert str(run.state) == "success"
        report = xcom(run, "load")
        assert (report["committer"], report["files"]) == ("magic", 1)
        assert xcom(run, "committed")["job"] == report["job"]
        assert [it["job"] for it in xcom(run, "day_is_whole")["partitions"]] == [report["job"]]
        assert len(xcom(run, "month_has_days")["partitions"]) == 1
        dead = MagicJob(
            tables.table("flights_s3a").driver.perform,
            TableRoot(tables.bucket.name, "wh/flights_s3a"),
        ).begin()
        dead.task(0)
        tended = dags["flights_s3a_maintenance"].test(logical_date=datetime(2013, 2, 3, tzinfo=UTC))
        assert str(tended.state) == "success"
        (found,) = xcom(tended, "purge")["tables"]
        # Nobody's record names the job, so it is not known to be dead.
        assert (found["kind"], found["kept"], found["aborted"]) == ("s3a", 2, 0)

    def test_maintenance_looks_after_a_table_that_its_sister_wrote_by_magic(
        self, dags: dict[str, Any], tables: Tables
    ) -> None:
        run = dags["flights_daily"].test(
            logical_date=datetime(2013, 2, 1, tzinfo=UTC), run_conf={"committer": "magic"}
        )
        assert (str(run.state), xcom(run, "load")["committer"]) == ("success", "magic")
        tended = dags["flights_maintenance"].test(logical_date=datetime(2013, 2, 3, tzinfo=UTC))
        assert str(tended.state) == "success"
        (found,) = xcom(tended, "purge")["tables"]
        assert (found["kind"], found["failed"]) == ("s3a", 0)

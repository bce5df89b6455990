"""What happens to runs of the examples, and the rows after each of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torture.servers import Store

from airflow_life.deployment import Deployment, kill
from airflow_life.hadoop_store import HadoopStore
from airflow_life.postgres import locks_held
from airflow_life.rows import KEY, Flights, check_day, check_partition, path_of, seen_by_engines
from support.waiting import until
from zero_rename.committer import Table
from zero_rename.tables import DeltaTable

DAILY, LOAD = "flights_daily", "load"


@dataclass(frozen=True)
class World:
    """Where it happens.

    :param delta: opens a Delta table below the connection's root, ``table`` one of directories:
        of two producers, and of some conflicts.
    :param flights: what the examples load, and ``mended``: the same but for some rows.
    :param january: flights of a whole month.
    :param hadoop: where Hadoop's committers write.
    """

    airflow: Deployment
    store: Store
    table: Callable[[str], Table]
    delta: Callable[[str], DeltaTable]
    flights: Flights
    mended: Flights
    january: Flights
    hadoop: HadoopStore

    def conf(self, flights: Flights | None = None) -> dict[str, Any]:
        return {"csv": str((flights or self.flights).path)}

    def backfill(self, day: str, flights: Flights | None = None, **more: Any) -> str:
        """Begin the daily example's run of a day. Returns its id."""
        self.airflow.backfill(DAILY, day, dag_run_conf=self.conf(flights), **more)
        return self.airflow.run_of(DAILY, day)["dag_run_id"]

    def succeeded(self, run_id: str, dag_id: str = DAILY) -> dict[str, Any]:
        """The load's report of a run that has to succeed."""
        self.airflow.succeeded(dag_id, run_id)
        return self.airflow.report(dag_id, run_id, LOAD)


def backfilled(world: World) -> str:
    """three days, each a run, at once"""
    days = ["2013-02-01", "2013-02-02", "2013-02-03"]
    world.airflow.backfill(DAILY, days[0], days[-1], dag_run_conf=world.conf())
    for day in days:
        world.succeeded(world.airflow.run_of(DAILY, day)["dag_run_id"])
        check_day(world.delta("flights"), day, world.flights.of(day))
    return "3 runs"


def cleared(world: World) -> str:
    """a run cleared: its task loads again, in the place of its own rows"""
    day = "2013-02-01"
    run = world.airflow.run_of(DAILY, day)["dag_run_id"]
    before = world.airflow.report(DAILY, run, LOAD)
    content = {"dry_run": False, "reset_dag_runs": True, "only_failed": False, "dag_run_id": run}
    world.airflow.call("POST", f"dags/{DAILY}/clearTaskInstances", json=content)
    until("the cleared run to run", lambda: _state(world, run) not in ("success", "failed"))
    after = world.succeeded(run)
    assert (after["job"] != before["job"], after["repeated"]) == (True, False)
    check_day(world.delta("flights"), day, world.flights.of(day))
    return f"version {before['version']}, then {after['version']}"


def backfilled_again(world: World) -> str:
    """a day backfilled again from a mended file (`reprocess_behavior`)"""
    day = "2013-02-02"
    run = world.airflow.run_of(DAILY, day)["dag_run_id"]
    job = world.airflow.report(DAILY, run, LOAD)["job"]
    world.backfill(day, world.mended, reprocess_behavior="completed")
    until("the run to run again", lambda: _state(world, run) not in ("success", "failed"))
    assert world.succeeded(run)["job"] != job
    check_day(world.delta("flights"), day, world.mended.of(day))
    return f"{world.mended.of(day).total()} rows in place of {world.flights.of(day).total()}"


def worker_killed(world: World) -> str:
    """the worker killed in the middle of the job (-9); the application lives, and commits"""
    day = "2013-02-04"
    run, airflow = _held(world, day), world.airflow
    kill(airflow.worker_of(airflow.spark_submit(day)))
    until("the second try", lambda: _at_work(world, run, 2))
    airflow.release(f"{DAILY}-{LOAD}-{day}")
    report = world.succeeded(run)
    assert report["repeated"] is True, report
    check_day(world.delta("flights"), day, world.flights.of(day))
    return "the next try waited for it, submitted nothing, and reported its job"


def machine_killed(world: World) -> str:
    """the worker and all it started killed in the middle of the job (-9)"""
    day = "2013-02-05"
    run, airflow = _held(world, day), world.airflow
    application = airflow.spark_submit(day)
    kill([*airflow.worker_of(application), application, *application.children(recursive=True)])
    airflow.release(f"{DAILY}-{LOAD}-{day}")
    report = world.succeeded(run)
    assert report["repeated"] is False, report
    check_day(world.delta("flights"), day, world.flights.of(day))
    return f"try {airflow.task(DAILY, run, LOAD)['try_number']} loaded"


def scheduler_restarted(world: World) -> str:
    """the scheduler and all it started killed in the middle of a job (-9), and started again"""
    day = "2013-02-06"
    run, airflow = _held(world, day), world.airflow
    # As a container's end does.
    scheduler = airflow.processes["scheduler"]
    kill([scheduler, *scheduler.children(recursive=True)])
    scheduler.wait()
    return _started_again(world, day, run)


def scheduler_alone(world: World) -> str:
    """the scheduler alone killed (-9) with its loop's locks in the database, and started again"""
    # Its workers keep its connection, so that PostgreSQL does not know that it is dead, and ends
    # its transaction by idle_in_transaction_session_timeout only.
    day = "2013-02-10"
    run, airflow = _held(world, day), world.airflow
    scheduler = airflow.processes["scheduler"]
    until("the scheduler with the locks of its loop", lambda: _stopped_with_locks(airflow))
    scheduler.kill()
    scheduler.wait()
    return _started_again(world, day, run)


def _started_again(world: World, day: str, run: str) -> str:
    """The held run goes on once a dead scheduler's successor is at work."""
    airflow = world.airflow
    until("the scheduler's silence to be seen", lambda: not airflow.healthy("scheduler"))
    airflow.start("scheduler")
    until("a heartbeat of the scheduler", lambda: airflow.healthy("scheduler"))
    airflow.release(f"{DAILY}-{LOAD}-{day}")
    report = world.succeeded(run)
    check_day(world.delta("flights"), day, world.flights.of(day))
    tries = airflow.task(DAILY, run, LOAD)["try_number"]
    return f"{tries} {'try' if tries == 1 else 'tries'}, repeated: {report['repeated']}"


def first_wins(world: World) -> str:
    """two producers of one partition at once, `on_conflict="fail"`"""
    states, rows = _colliding(world, "flights_first_wins")
    assert sorted(states.values()) == ["failed", "success"], states
    winner = next(name for name, state in states.items() if state == "success")
    check_day(world.table("flights_first_wins"), "2013-02-01", rows[winner])
    return f"{winner} committed, the other one failed for good"


def last_wins(world: World) -> str:
    """two producers of one partition at once, `on_conflict="last_wins"`"""
    states, rows = _colliding(world, "flights_last_wins")
    assert set(states.values()) == {"success"}, states
    table = world.table("flights_last_wins")
    found = {name: _is_there(table, expected) for name, expected in rows.items()}
    assert sorted(found.values()) == [False, True], found
    return f"{next(name for name, there in found.items() if there)} was the last one"


def one_job(world: World) -> str:
    """a range of days backfilled as one job"""
    conf = world.conf() | {"first": "2013-02-07", "last": "2013-02-09"}
    report = world.succeeded(
        world.airflow.trigger("flights_backfill", conf=conf), "flights_backfill"
    )
    for day in ("2013-02-07", "2013-02-08", "2013-02-09"):
        check_day(world.delta("flights"), day, world.flights.of(day))
    return f"{len(report['partitions'])} partitions by one commit"


def hourly(world: World) -> str:
    """an hour loaded by a partitioned run, whose asset event starts the report's run"""
    key, partition = "2013-02-01T06:00:00", f"{path_of('2013-02-01')}/hour=6"
    run = world.airflow.trigger("flights_hourly", partition_key=key, conf=world.conf())
    world.succeeded(run, "flights_hourly")
    expected = world.flights.of("2013-02-01", 6)
    check_partition(world.delta("flights_by_hour"), partition, expected)
    report = "flights_hour_report"
    runs = until("a run of the report", lambda: world.airflow.runs(report))
    assert [it["partition_key"] for it in runs] == [partition]
    assert world.airflow.ended(report, runs[0]["dag_run_id"]) == "success"
    counted = world.airflow.report(report, runs[0]["dag_run_id"], "count")
    assert counted["flights"] == expected.total()
    return f"{counted['flights']} flights, {counted['late']} late"


def maintained(world: World) -> str:
    """maintenance of all tables: what the killed ones left is gone"""
    run = world.airflow.trigger("zero_rename_maintenance")
    assert world.airflow.ended("zero_rename_maintenance", run) == "success"
    report = world.airflow.report("zero_rename_maintenance", run, "maintain")
    assert (report["person"], report["again"]) == (0, 0), report
    uploads = sum(sum(table["uploads"].values()) for table in report["tables"])
    read = seen_by_engines(world.delta("flights"), KEY)
    return f"{len(report['tables'])} tables, {uploads} uploads looked at; flights: {read}"


#: In this order: what comes later is about what came before.
SCENES = (
    *(backfilled, cleared, backfilled_again, worker_killed, machine_killed, scheduler_restarted),
    *(scheduler_alone, first_wins, last_wins, one_job, hourly, maintained),
)


def _held(world: World, day: str) -> str:
    """A run in the middle of its job."""
    name = f"{DAILY}-{LOAD}-{day}"
    world.airflow.hold(name)
    run = world.backfill(day)
    world.airflow.begun(name)
    return run


def _stopped_with_locks(airflow: Deployment) -> bool:
    """Stop the scheduler; whether it is in a transaction with the lock of pools, without which no
    other scheduler starts a task. Else it goes on."""
    scheduler = airflow.processes["scheduler"]
    scheduler.suspend()
    if locks_held(airflow.environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"], "slot_pool"):
        return True
    scheduler.resume()
    return False


def _colliding(world: World, dag_id: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Both producers in the middle of their jobs, then released. States, and what each loads."""
    day, airflow = "2013-02-01", world.airflow
    files = {"airline": world.flights, "airport": world.mended}
    for name in files:
        airflow.hold(f"{dag_id}-{name}-{day}")
    airflow.backfill(dag_id, day, dag_run_conf={n: str(f.path) for n, f in files.items()})
    run = airflow.run_of(dag_id, day)["dag_run_id"]
    for name in files:
        airflow.begun(f"{dag_id}-{name}-{day}")
    for name in files:
        airflow.release(f"{dag_id}-{name}-{day}")
    airflow.ended(dag_id, run)
    states = {name: airflow.task(dag_id, run, name)["state"] for name in files}
    return states, {name: flights.of(day) for name, flights in files.items()}


def _is_there(table: Table, expected: Any) -> bool:
    try:
        check_day(table, "2013-02-01", expected)
    except AssertionError:
        return False
    return True


def _state(world: World, run_id: str) -> str:
    return world.airflow.call("GET", f"dags/{DAILY}/dagRuns/{run_id}")["state"]


def _at_work(world: World, run_id: str, try_number: int) -> bool:
    found = world.airflow.task(DAILY, run_id, LOAD)
    return found["state"] == "running" and found["try_number"] >= try_number

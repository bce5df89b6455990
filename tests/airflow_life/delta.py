"""Runs that load one Delta table: killed, cleared, late, at once, and beside a purge; other engines
read what they have left."""

from __future__ import annotations

from airflow_life.conflicts import CORRECTED, DAILY, LOAD, Meeting
from airflow_life.deployment import kill
from airflow_life.rows import KEY, check_day, seen_by_engines
from airflow_life.scenes import World
from support.waiting import until

TABLE = "life_delta"


def delta_backfilled(world: World) -> str:
    """`layout="delta"`: three days at once, and the machine of one killed in its job (-9)"""
    killed, *others = (_meeting(world, day) for day in ("2013-02-11", "2013-02-12", "2013-02-13"))
    airflow, run = world.airflow, killed.held_daily()
    application = airflow.spark_submit(killed.day)
    kill([*airflow.worker_of(application), application, *application.children(recursive=True)])
    killed.release_daily()
    runs = [run, *(meeting.daily() for meeting in others)]
    reports = [killed.succeeded(DAILY, it) for it in runs]
    for meeting in (killed, *others):
        meeting.holds(world.flights)
    tries = airflow.task(DAILY, run, LOAD)["try_number"]
    assert tries > 1
    versions = sorted(report["version"] for report in reports)
    assert len(set(versions)) == 3, reports
    return f"versions {versions}, one by try {tries}; {_seen_by_engines(world)}"


def delta_loaded_again(world: World) -> str:
    """a day backfilled again from a mended file: its rows take the place of the run's own"""
    meeting = _meeting(world, "2013-02-11")
    run = world.airflow.run_of(DAILY, meeting.day)["dag_run_id"]
    before = world.airflow.report(DAILY, run, LOAD)
    content = meeting.told(world.mended)
    world.airflow.backfill(DAILY, meeting.day, dag_run_conf=content, reprocess_behavior="completed")
    until("the run to run again", lambda: not _is_over(world, run))
    after = meeting.succeeded(DAILY, run)
    assert (after["job"] != before["job"], after["repeated"]) == (True, False)
    meeting.holds(world.mended)
    _restored(world, before["version"])
    return f"version {before['version']}, then {after['version']}; {_seen_by_engines(world)}"


def delta_under_fail(world: World) -> str:
    """two DAGs on one day at once, `fail`: who commits later is refused, and nothing of it there"""
    meeting = _meeting(world, "2013-02-14")
    first = meeting.held_daily()
    meeting.succeeded(CORRECTED, meeting.corrected())
    meeting.release_daily()
    meeting.refused(DAILY, first, "CommitConflictError")
    meeting.holds(world.mended)
    meeting.clear(DAILY, first)
    meeting.succeeded(DAILY, first)
    meeting.holds(world.flights)
    return "cleared, it loads on top"


def delta_under_newest_run(world: World) -> str:
    """a late backfill over a newer run, `newest_run`: it fails for good, and starts no Spark"""
    meeting = _meeting(world, "2013-02-15", "newest_run")
    newer = meeting.succeeded(CORRECTED, meeting.corrected())
    late = meeting.daily()
    meeting.refused(DAILY, late, "SupersededRunError", newer["job"])
    assert not meeting.started_spark(DAILY, late)
    meeting.holds(world.mended)
    return "the newer run's rows stand"


def delta_beside_purge(world: World) -> str:
    """a purge of files of all ages, and maintenance, beside a job that has written its rows"""
    meeting = _meeting(world, "2013-02-16")
    run = meeting.held_daily()
    meeting.look("life_purge")
    meeting.release_daily()
    meeting.succeeded(DAILY, run)
    meeting.look("life_purge")
    meeting.holds(world.flights)
    assert world.delta(TABLE).verify() == []
    return _seen_by_engines(world)


SCENES = (
    *(delta_backfilled, delta_loaded_again, delta_under_fail, delta_under_newest_run),
    delta_beside_purge,
)


def _meeting(world: World, day: str, policy: str = "fail") -> Meeting:
    return Meeting(world, day, TABLE, policy, layout="delta")


def _is_over(world: World, run: str) -> bool:
    found = world.airflow.call("GET", f"dags/{DAILY}/dagRuns/{run}")["state"]
    return found in ("success", "failed")


def _restored(world: World, version: int) -> None:
    """Restore the table to a version and back again: each holds what it held."""
    table, day = world.delta(TABLE), "2013-02-11"
    newest = table.newest_entry()
    assert newest is not None
    table.restore(version, apply=True)
    check_day(table, day, world.flights.of(day))
    table.restore(newest.version, apply=True)
    check_day(table, day, world.mended.of(day))


def _seen_by_engines(world: World) -> str:
    return seen_by_engines(world.delta(TABLE), KEY)

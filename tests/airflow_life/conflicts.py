"""Runs that meet over a day, by each policy: the rows, the state of each task, and what its log,
its report and the next look for conflicts say."""

from __future__ import annotations

import json
from typing import Any

from airflow_life.hadoop_store import CONN_ID
from airflow_life.rows import Flights, check_day, path_of
from airflow_life.scenes import World

DAILY, CORRECTED, LOAD = "life_daily", "life_corrected", "load"
NATIVE = "zero_rename"


class Meeting:
    """A table whose day is loaded by two DAGs: from all flights by the daily one, from a mended
    file by the one that corrects, whose runs are newer.

    :param day: no other meeting has it, since a DAG has one run of a day by backfills.
    :param committer: where it is one of Hadoop's, the table is on their store.
    :param more: what runs are told besides.
    """

    def __init__(
        self, world: World, day: str, table: str, policy: str, committer: str = NATIVE, **more: str
    ) -> None:
        self.world, self.airflow, self.name, self.day = world, world.airflow, table, day
        self.is_native = committer == NATIVE
        native = world.delta if more.get("layout") == "delta" else world.table
        self.table = (native if self.is_native else world.hadoop.table)(table)
        self._place = {"table": table} | ({} if self.is_native else {"store": CONN_ID})
        self._conf = {**self._place, "policy": policy, "day": day, "committer": committer, **more}
        if not self.is_native:
            self._conf["jars"] = world.hadoop.jars()

    def daily(self, **more: Any) -> str:
        """Begin the day's own run. Returns its id."""
        self.airflow.backfill(DAILY, self.day, dag_run_conf=self.told(self.world.flights), **more)
        return self.airflow.run_of(DAILY, self.day)["dag_run_id"]

    def held_daily(self) -> str:
        """Begin the day's own run, and wait until it is held in the middle of its job."""
        name = f"{DAILY}-{LOAD}-{self.day}"
        self.airflow.hold(name)
        run = self.daily()
        self.airflow.begun(name)
        return run

    def release_daily(self) -> None:
        self.airflow.release(f"{DAILY}-{LOAD}-{self.day}")

    def corrected(self) -> str:
        """Begin a run that loads the mended day. Returns its id."""
        return self.airflow.trigger(CORRECTED, conf=self.told(self.world.mended))

    def clear(self, dag_id: str, run: str) -> None:
        content = {"dry_run": False, "reset_dag_runs": True, "only_failed": False}
        path = f"dags/{dag_id}/clearTaskInstances"
        self.airflow.call("POST", path, json=content | {"dag_run_id": run})

    def succeeded(self, dag_id: str, run: str) -> dict[str, Any]:
        return self.world.succeeded(run, dag_id)

    def refused(self, dag_id: str, run: str, *words: str, try_number: int = 1) -> None:
        """A load has failed for good, without another try, and its log has these words."""
        assert self.airflow.ended(dag_id, run) == "failed"
        task = self.airflow.task(dag_id, run, LOAD)
        assert (task["state"], task["try_number"]) == ("failed", try_number), task
        log = self.airflow.said(dag_id, run)
        missing = [word for word in words if word not in log]
        assert not missing, f"{missing} not in: {log[-5000:]}"

    def started_spark(self, dag_id: str, run: str) -> bool:
        return "spark-submit" in self.airflow.said(dag_id, run)

    def holds(self, flights: Flights) -> None:
        check_day(self.table, self.day, flights.of(self.day))

    def found(self) -> list[dict[str, Any]]:
        """What a look for conflicts reports."""
        run = self.look("life_find")
        return conflicts_in(self.airflow.report("life_find", run, "find"))

    def look(self, dag_id: str) -> str:
        """Let a DAG that is told the table alone succeed. Returns the run's id."""
        run = self.airflow.trigger(dag_id, conf=self._place)
        self.airflow.succeeded(dag_id, run)
        return run

    def told(self, flights: Flights) -> dict[str, Any]:
        """What a run is told that loads the day from a file."""
        return self._conf | {"csv": str(flights.path)}


def conflicts_in(report: Any) -> list[dict[str, Any]]:
    return [one for table in report["tables"] for one in table["conflicts"]]


def shown(conflict: dict[str, Any]) -> tuple[Any, ...]:
    """A conflict's partition, whether it is settled, and the DAGs whose rows are visible."""
    visible = [it["dag_id"] for it in conflict["runs"] if it["visible"]]
    return conflict["partition"], conflict["settled"], visible


def settled_by_rerun(world: World) -> str:
    """two DAGs on one day, the late one replaced the correction: `by="rerun"` has it load again"""
    meeting, airflow = Meeting(world, "2013-02-01", "life_rerun", "fail"), world.airflow
    stands = meeting.corrected()
    first = meeting.succeeded(CORRECTED, stands)
    late = meeting.daily()
    meeting.succeeded(DAILY, late)
    meeting.holds(world.flights)
    policy = json.dumps({"prefer": [CORRECTED, DAILY]})
    run = airflow.trigger("life_settle", conf={"table": meeting.name, "policy": policy})
    airflow.succeeded("life_settle", run)
    [conflict] = conflicts_in(airflow.report("life_settle", run, "find"))
    assert shown(conflict) == (path_of(meeting.day), False, [DAILY]), conflict
    report = airflow.report("life_settle", run, "settle")
    assert (report["settled"], report["unresolved"]) == (1, 0), report
    again = airflow.task(CORRECTED, stands, LOAD)
    assert (again["state"], again["try_number"]) == ("success", 2), again
    loaded = airflow.report(CORRECTED, stands, LOAD)
    [settled] = report["conflicts"]
    said = settled["settlement"]
    assert (said["job"], said["how"]) == (loaded["job"], "rerun"), said
    assert said["job"] != first["job"]
    assert said["version"], said
    meeting.holds(world.mended)
    assert conflicts_in(airflow.report("life_settle", run, "check")) == []
    return f"try 2 loaded by version {said['version']} of the DAG; {_loser_refused(meeting, late)}"


def _loser_refused(meeting: Meeting, late: str) -> str:
    """A run that lost a settlement is cleared: it is refused for good, and starts no Spark."""
    airflow = meeting.airflow
    before = airflow.said(DAILY, late).count("spark-submit")
    meeting.clear(DAILY, late)
    meeting.refused(DAILY, late, try_number=2)
    assert airflow.said(DAILY, late).count("spark-submit") == before
    meeting.holds(meeting.world.mended)
    return "the cleared loser is refused"


def settled_by_restore(world: World) -> str:
    """the examples, a Delta table: a late run by `last_wins`, and `flights_settle` undoes it"""
    airflow, name = world.airflow, "flights_of_two"
    day = "2013-02-03"
    conf = world.conf(world.mended) | {"day": day}
    stands = airflow.trigger("flights_corrected", conf=conf)
    world.succeeded(stands, "flights_corrected")
    airflow.backfill("flights_of_day", day, dag_run_conf=world.conf() | {"policy": "last_wins"})
    late = airflow.run_of("flights_of_day", day)["dag_run_id"]
    world.succeeded(late, "flights_of_day")
    check_day(world.delta(name), day, world.flights.of(day))
    run = airflow.trigger("flights_settle")
    airflow.succeeded("flights_settle", run)
    [conflict] = conflicts_in(airflow.report("flights_settle", run, "find"))
    assert shown(conflict) == (path_of(day), False, ["flights_of_day"]), conflict
    [settled] = airflow.report("flights_settle", run, "settle")["conflicts"]
    said = settled["settlement"]
    [winner] = [it for it in settled["runs"] if it["run_id"] == stands]
    assert (said["how"], said["stands"]) == ("restore", winner["run"]), said
    check_day(world.delta(name), day, world.mended.of(day))
    assert airflow.task("flights_corrected", stands, LOAD)["try_number"] == 1
    assert conflicts_in(airflow.report("flights_settle", run, "check")) == []
    return f"decided by {said['by']}; no load ran again"


def late_under_fail(world: World) -> str:
    """a late backfill over a newer run, `fail`: it replaces the rows, and a look finds it"""
    return _late_and_loads(world, "2013-02-02", "fail")


def late_under_last_wins(world: World) -> str:
    """a late backfill over a newer run, `last_wins`: it replaces the rows, and a look finds it"""
    return _late_and_loads(world, "2013-02-03", "last_wins")


def _late_and_loads(world: World, day: str, policy: str) -> str:
    meeting = Meeting(world, day, f"life_late_{policy}", policy)
    meeting.succeeded(CORRECTED, meeting.corrected())
    assert meeting.found() == []
    meeting.succeeded(DAILY, meeting.daily())
    meeting.holds(world.flights)
    [conflict] = meeting.found()
    assert shown(conflict) == (path_of(meeting.day), False, [DAILY]), conflict
    return conflict["cause"]


def late_under_newest_run(world: World) -> str:
    """a late backfill over a newer run, `newest_run`: it fails for good, and starts no Spark"""
    return late_gives_way(Meeting(world, "2013-02-04", "life_late_newest_run", "newest_run"))


def late_gives_way(meeting: Meeting) -> str:
    """Let a late backfill fail for good beside a newer run, before Spark starts."""
    stands = meeting.corrected()
    first = meeting.succeeded(CORRECTED, stands)
    late = meeting.daily()
    # Hadoop's jobs are named with their runs: one try may have several.
    newer = first["job"] if meeting.is_native else f"{CORRECTED}.{LOAD} of run {stands}"
    meeting.refused(DAILY, late, "SupersededRunError", path_of(meeting.day), newer)
    assert not meeting.started_spark(DAILY, late)
    meeting.holds(meeting.world.mended)
    [conflict] = meeting.found()
    assert shown(conflict) == (path_of(meeting.day), True, [CORRECTED]), conflict
    assert conflict["settlement"]["how"] == "policy", conflict
    return "the look tells it as settled by the policy"


SCENES = (
    *(settled_by_rerun, settled_by_restore, late_under_fail, late_under_last_wins),
    late_under_newest_run,
)

"""Runs that meet over a day by Hadoop's committers, and a purge beside one of their jobs."""

from __future__ import annotations

from airflow_life.conflicts import CORRECTED, DAILY, LOAD, Meeting, late_gives_way, shown
from airflow_life.rows import path_of
from airflow_life.scenes import World
from support.waiting import until


def magic_under_fail(world: World) -> str:
    """two DAGs on one day at once by `magic`, `fail`: the later fails for good, without Spark"""
    meeting = Meeting(world, "2013-02-05", "life_magic_fail", "fail", "magic")
    first = meeting.held_daily()
    words = "CommitConflictError", "at work on the same partitions", f"{DAILY}.{LOAD} of run"
    later = meeting.corrected()
    meeting.refused(CORRECTED, later, *words)
    meeting.clear(CORRECTED, later)
    meeting.refused(CORRECTED, later, *words, try_number=2)
    assert not meeting.started_spark(CORRECTED, later)
    meeting.release_daily()
    meeting.succeeded(DAILY, first)
    meeting.holds(world.flights)
    assert _who_stands(meeting) == DAILY
    meeting.clear(CORRECTED, later)
    meeting.succeeded(CORRECTED, later)
    meeting.holds(world.mended)
    assert _who_stands(meeting) == CORRECTED
    return "cleared, it repeats that; cleared when the other has ended, it loads in its place"


def magic_met_another(world: World) -> str:
    """a run by `magic`, `fail`, beside one that says `last_wins`: it fails for good"""
    day, table = "2013-02-09", "life_magic_met"
    meeting = Meeting(world, day, table, "fail", "magic")
    insisting = Meeting(world, day, table, "last_wins", "magic")
    first = meeting.held_daily()
    between = insisting.corrected()
    report = meeting.succeeded(CORRECTED, between)
    assert f"{DAILY}.{LOAD} of run {first}" in report["overlapped"], report
    meeting.release_daily()
    other = f"while this one was at work: {CORRECTED}.{LOAD} of run {between}"
    meeting.refused(DAILY, first, "CommitConflictError", other)
    assert _who_stands(meeting) == DAILY
    meeting.clear(DAILY, first)
    report = meeting.succeeded(DAILY, first)
    assert "conflict" not in report, report
    meeting.holds(world.flights)
    return "cleared when both have ended, it loads again, and that settles it"


def magic_under_newest_run(world: World) -> str:
    """a late backfill over a newer run by `magic`, `newest_run`: it starts no Spark"""
    day, table = "2013-02-06", "life_magic_newest_run"
    came = late_gives_way(Meeting(world, day, table, "newest_run", "magic"))
    skipping = Meeting(world, day, table, "newest_run", "magic", on_superseded="skip")
    run = skipping.daily(reprocess_behavior="completed")
    until("the late run to be made again", lambda: _try_number(world, run) == 2)
    assert world.airflow.ended(DAILY, run) == "success"
    assert world.airflow.task(DAILY, run, LOAD)["state"] == "skipped"
    assert not skipping.started_spark(DAILY, run)
    skipping.holds(world.mended)
    return f'it fails for good, and {came}; by `on_superseded="skip"` it is skipped'


def partitioned_under_last_wins(world: World) -> str:
    """two DAGs on one day at once by `partitioned`, `last_wins`: both load, and both say so"""
    meeting = Meeting(world, "2013-02-07", "life_partitioned_last_wins", "last_wins", "partitioned")
    first = meeting.held_daily()
    between = meeting.corrected()
    report = meeting.succeeded(CORRECTED, between)
    assert f"{DAILY}.{LOAD} of run {first}" in report["overlapped"], report
    meeting.holds(world.mended)
    meeting.release_daily()
    report = meeting.succeeded(DAILY, first)
    assert f"{CORRECTED}.{LOAD} of run {between}" in report["overlapped"], report
    meeting.holds(world.flights)
    assert _who_stands(meeting) == DAILY
    return "the rows are those of the one that committed last"


def purge_beside_magic(world: World) -> str:
    """a purge of uploads of all ages beside a job of `magic` at its commit, then maintenance"""
    meeting, hadoop = Meeting(world, "2013-02-08", "life_purged", "fail", "magic"), world.hadoop
    root, airflow = meeting.table.root, world.airflow
    with hadoop.held(root) as gate:
        load = meeting.daily()
        gate.wait()
        written = hadoop.uploads(root)
        assert written
        # It may be of the run that is at work, as far as a purge can tell.
        orphaned = hadoop.leave_upload(root)
        under_way = hadoop.uploads(root)
        run = meeting.look("life_purge")
        assert _purged(world, run) == dict.fromkeys(under_way, "kept")
        [maintained] = airflow.report("life_purge", run, "maintain")["tables"]
        assert maintained["jobs"] == {"left": 1}, maintained
        assert maintained["uploads"] == {"kept": len(under_way)}, maintained
        assert hadoop.uploads(root) == under_way
    meeting.succeeded(DAILY, load)
    meeting.holds(world.flights)
    assert _purged(world, meeting.look("life_purge")) == {orphaned: "aborted"}
    assert hadoop.uploads(root) == []
    meeting.holds(world.flights)
    return (
        f"spared: {len(written)} upload, whose rows are committed; aborted later: an orphaned one"
    )


def _purged(world: World, run: str) -> dict[str, str]:
    """Return what a purge of a table has done to each upload, by its key."""
    [purged] = world.airflow.report("life_purge", run, "purge")["tables"]
    return {it["key"]: it["action"] for it in purged["uploads"]}


def _who_stands(meeting: Meeting) -> str:
    """Return the DAG whose rows are visible, in the one conflict, which nobody has settled."""
    [conflict] = meeting.found()
    partition, is_settled, visible = shown(conflict)
    assert (partition, is_settled) == (path_of(meeting.day), False), conflict
    assert {it["dag_id"] for it in conflict["runs"]} == {DAILY, CORRECTED}, conflict
    [dag_id] = visible
    return dag_id


def _try_number(world: World, run: str) -> int:
    return world.airflow.task(DAILY, run, LOAD)["try_number"]


SCENES = (
    *(magic_under_fail, magic_met_another, magic_under_newest_run),
    *(partitioned_under_last_wins, purge_beside_magic),
)

"""Conflicts of runs that loaded by Hadoop's committers: by what the ledger says of their tries."""

from __future__ import annotations

from typing import Any

import pytest

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.s3a_jobs import ROOT
from zero_rename.committer import CommitConflictError, OnConflict, Owner, RunRank, Table
from zero_rename.committer.errors import OutcomeUnknownError
from zero_rename.committer.format.job_spec import Mode
from zero_rename.committer.format.records.run_conflict import ConflictCause, RunConflict, SettledBy
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import Found, Get, Put
from zero_rename.committer.upkeep.conflicts.conflict_search import ConflictReport
from zero_rename.orchestration.runs.task_run import TaskRun
from zero_rename.orchestration.s3a.configuration import LoadRequest
from zero_rename.orchestration.s3a.load import S3ALoad
from zero_rename.s3a.hadoop.settings import Committer
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.ledger import runs_prefix
from zero_rename.s3a.runs.run_conflicts import find_s3a_conflicts
from zero_rename.s3a.runs.try_record import COMMITTED, UNDONE, TryRecord, run_uuid

DAY = 24 * 3600.0
OLD, NEW = RunRank(1.0), RunRank(9.0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def table(clock: ManualClock) -> Table:
    table = Table(ROOT.url)
    table.driver = MemoryDriver(MemoryStore(clock), None, clock)  # pyrefly: ignore[bad-assignment]
    look(table)
    return table


def look(table: Table, seconds: float | None = None) -> ConflictReport:
    return table.run(find_s3a_conflicts(ROOT, seconds))


def only(table: Table) -> RunConflict:
    (conflict,) = look(table).conflicts
    return conflict


def load(
    table: Table,
    clock: ManualClock,
    run: str,
    rank: RunRank,
    dag: str = "daily",
    report: dict[str, Any] | None = None,
    **given: Any,
) -> str:
    """Enter a whole load of the day in the ledger; returns the try's UUID."""
    policy: dict[str, Any] = {"mode": "replace", "partitions": ("day=1",), **given}
    record = TryRecord(run_uuid(), f"{dag}/{run}/load", Owner(dag, run, "load"), "magic", **policy)
    record = table.run(ledger.open_try(ROOT, record))
    clock.advance(10)
    said = {
        "decided_at": clock.now,
        "partitions": [{"partition": "day=1", "files": 1, "rows": 5}],
        **(report or {}),
    }
    done = {"state": COMMITTED, "report": said, "rank": rank}
    table.run(ledger.close_try(ROOT, record, **done))
    clock.advance(10)
    return record.uuid


def begun(table: Table, run: str, rank: RunRank, dag: str = "daily") -> TryRecord:
    owner = Owner(dag, run, "load")
    policy: dict[str, Any] = {"partitions": ("day=1",), "rank": rank}
    record = TryRecord(run_uuid(), f"{dag}/{run}/load", owner, "magic", mode="replace", **policy)
    return table.run(ledger.open_try(ROOT, record))


def test_late_backfill_over_newer_run_is_conflict(table: Table, clock: ManualClock) -> None:
    newer = load(table, clock, "day 2", NEW)
    older = load(table, clock, "day 1", OLD)
    conflict = only(table)
    assert (conflict.partition, conflict.cause) == ("day=1", ConflictCause.OLDER_CAME_LATER)
    assert [(it.job, it.is_visible, it.rows) for it in conflict.runs] == [
        (older, True, 5),
        (newer, False, 5),
    ]
    clock.advance(DAY)
    assert only(table) == conflict


def test_newer_run_of_one_task_and_appends_are_none(table: Table, clock: ManualClock) -> None:
    load(table, clock, "day 1", OLD)
    load(table, clock, "day 2", NEW)
    load(table, clock, "by hand", OLD, dag="corrections", mode="append")
    assert look(table).conflicts == ()


def test_runs_of_two_tasks_are_conflict(table: Table, clock: ManualClock) -> None:
    load(table, clock, "day 1", OLD)
    load(table, clock, "by hand", NEW, dag="corrections")
    assert only(table).cause is ConflictCause.TASKS_DIFFER


def test_other_task_that_newest_run_let_pass_is_none(table: Table, clock: ManualClock) -> None:
    load(table, clock, "day 1", OLD)
    load(table, clock, "by hand", NEW, dag="corrections", on_conflict=OnConflict.NEWEST_RUN)
    assert look(table).conflicts == ()


@pytest.mark.parametrize("word", ["conflict", "overlapped"])
def test_run_that_says_it_met_another_is_conflict(
    table: Table, clock: ManualClock, word: str
) -> None:
    load(table, clock, "day 1", OLD)
    load(table, clock, "day 2", NEW, report={word: "Another run wrote the same partitions."})
    assert only(table).cause is ConflictCause.OVERLAPPED


def test_run_made_again_by_hand_settles(table: Table, clock: ManualClock) -> None:
    load(table, clock, "day 2", NEW)
    load(table, clock, "day 1", OLD)
    assert not only(table).is_settled
    load(table, clock, "day 2", NEW)
    conflict = only(table)
    assert conflict.settlement is not None
    assert conflict.settlement.how is SettledBy.LATER_RUN
    clock.advance(DAY)
    assert look(table).conflicts == ()


def test_run_that_gave_way_to_one_at_work_is_conflict(table: Table, clock: ManualClock) -> None:
    owner = Owner("hourly", "manual", "load")
    policy: dict[str, Any] = {"mode": "replace", "partitions": ("day=1",), "rank": OLD}
    first = table.run(
        ledger.open_try(ROOT, TryRecord(run_uuid(), "hourly/x/load", owner, "magic", **policy))
    )
    clock.advance(10)
    request = LoadRequest(Committer.MAGIC, ROOT, Mode.REPLACE, ("day=1",))
    second = S3ALoad(table, TaskRun("daily", "r", "load", -1, 1, 1), request, rank=NEW)
    with pytest.raises(CommitConflictError, match="at work"), second.submitted():
        pytest.fail("It is submitted.")
    report = {"decided_at": clock.now + 5, "partitions": [{"partition": "day=1", "rows": 3}]}
    clock.advance(5)
    table.run(ledger.close_try(ROOT, first, state=COMMITTED, report=report))
    conflict = only(table)
    assert conflict.cause is ConflictCause.OVERLAPPED
    assert [(it.key, it.gave_way, it.rank) for it in conflict.runs] == [
        ("hourly/x/load", False, OLD),
        ("daily/r/load", True, NEW),
    ]


def test_run_of_any_partition_that_gave_way_is_in_conflict_where_another_was_at_work(
    table: Table, clock: ManualClock
) -> None:
    """It holds the whole table. Of the days that were loaded long before none is in conflict."""
    for day in (1, 2, 3):
        said = {"partitions": [{"partition": f"day={day}", "files": 1, "rows": 5}]}
        load(table, clock, f"day {day}", OLD, partitions=(f"day={day}",), report=said)
    first = begun(table, "again", OLD)
    clock.advance(10)
    request = LoadRequest(Committer.PARTITIONED, ROOT, Mode.REPLACE, ())
    second = S3ALoad(table, TaskRun("hourly", "r", "load", -1, 1, 1), request, rank=NEW)
    with pytest.raises(CommitConflictError, match="at work"), second.submitted():
        pytest.fail("It is submitted.")
    report = {"decided_at": clock.now + 5, "partitions": [{"partition": "day=1", "rows": 3}]}
    clock.advance(5)
    table.run(ledger.close_try(ROOT, first, state=COMMITTED, report=report))
    conflict = only(table)
    assert conflict.partition == "day=1"
    assert [it.key for it in conflict.runs] == ["daily/again/load", "hourly/r/load"]


def test_run_to_be_tried_again_is_no_conflict(table: Table, clock: ManualClock) -> None:
    """Of two that opened in one second both give way, and are tried again."""
    owner = Owner("hourly", "manual", "load")
    policy: dict[str, Any] = {"mode": "replace", "partitions": ("day=1",), "rank": OLD}
    table.run(
        ledger.open_try(ROOT, TryRecord(run_uuid(), "hourly/x/load", owner, "magic", **policy))
    )
    request = LoadRequest(Committer.MAGIC, ROOT, Mode.REPLACE, ("day=1",))
    second = S3ALoad(table, TaskRun("daily", "r", "load", -1, 1, 1), request, rank=NEW)
    with pytest.raises(OutcomeUnknownError), second.submitted():
        pytest.fail("It is submitted.")
    assert look(table).conflicts == ()


def test_load_that_is_on_record_after_a_look_is_judged_by_the_next(
    table: Table, clock: ManualClock
) -> None:
    """Its operator verifies it first; of a dead one recovery says on another day that it wrote."""
    load(table, clock, "day 2", NEW)
    late = begun(table, "day 1", OLD)
    clock.advance(10)
    report = {"decided_at": clock.now, "partitions": [{"partition": "day=1", "rows": 5}]}
    clock.advance(DAY)
    assert look(table).conflicts == ()
    clock.advance(DAY)
    table.run(ledger.close_try(ROOT, late, state=COMMITTED, report=report))
    assert only(table).cause is ConflictCause.OLDER_CAME_LATER


def test_load_before_one_that_was_judged_is_in_conflict_with_it(
    table: Table, clock: ManualClock
) -> None:
    corrections = begun(table, "by hand", NEW, dag="corrections")
    clock.advance(10)
    report = {"decided_at": clock.now, "partitions": [{"partition": "day=1", "rows": 5}]}
    clock.advance(10)
    daily = load(table, clock, "day 1", OLD)
    assert look(table).conflicts == ()
    clock.advance(DAY)
    table.run(ledger.close_try(ROOT, corrections, state=COMMITTED, report=report))
    conflict = only(table)
    assert {it.job for it in conflict.runs} == {daily, corrections.uuid}
    assert [it.job for it in conflict.visible] == [daily]


def test_run_that_gives_way_after_a_look_is_told_by_the_next(
    table: Table, clock: ManualClock
) -> None:
    waiting = begun(table, "day 1", OLD)
    clock.advance(60)
    load(table, clock, "by hand", NEW, dag="corrections", on_conflict=OnConflict.NEWEST_RUN)
    clock.advance(DAY)
    assert look(table).conflicts == ()
    clock.advance(DAY)
    gone = {"state": UNDONE, "gave_way": "CommitConflictError"}
    table.run(ledger.close_try(ROOT, waiting, **gone))
    assert {it.key for it in only(table).runs} >= {"daily/day 1/load"}
    clock.advance(DAY)
    assert not only(table).is_settled


def test_damaged_record_is_named_by_each_look_and_judged_once_it_can_be_read(
    table: Table, clock: ManualClock
) -> None:
    load(table, clock, "day 2", NEW)
    older = load(table, clock, "day 1", OLD)
    (key,) = (it for it in table.driver.run(list_objects(runs_prefix(ROOT))).keys if older in it)
    whole = table.driver.run(Get(key))
    assert isinstance(whole, Found)
    table.driver.run(Put(key, b"{"))
    for _ in range(2):
        clock.advance(DAY)
        report = look(table)
        assert report.conflicts == ()
        (note,) = report.unread
        assert older in note
    table.driver.run(Put(key, whole.body))
    assert only(table).cause is ConflictCause.OLDER_CAME_LATER
    clock.advance(DAY)
    assert look(table).unread == ()


def test_damaged_record_is_named_and_keeps_no_other_from_being_read(
    table: Table, clock: ManualClock
) -> None:
    load(table, clock, "day 2", NEW)
    load(table, clock, "day 1", OLD)
    key = f"{ledger.run_prefix(ROOT, 'x')}{run_uuid()}.json"
    table.run(Put(key, b"{"))
    report = look(table)
    assert [it.partition for it in report.conflicts] == ["day=1"]
    assert any(key in it for it in report.unread)


def test_look_where_nothing_happened_takes_three_requests(table: Table, clock: ManualClock) -> None:
    for number in range(30):
        load(table, clock, f"day {number}", RunRank(float(number)))
    look(table)
    clock.advance(DAY)
    driver: Any = table.driver
    driver.requests.clear()
    assert look(table).conflicts == ()
    assert driver.counts() == {"Get": 1, "ListObjects": 1, "Put": 1}
